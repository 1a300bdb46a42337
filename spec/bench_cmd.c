#include "bench_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "file.h"
#include "synth.h"

/* ---- models ---------------------------------------------------------------------------------- */

static ls_status open_engine(ls_bench_job *j, const ls_model *m, ls_backend *be,
                             const ls_bench_need *need, ls_engine **out, ls_err *err) {
    const ls_model_args *a = &j->a.model;
    const ls_engine_options o = {.max_rows = need->max_rows,
                                 .max_seqs = need->max_seqs,
                                 .context = need->context,
                                 .block_rows = a->block_rows,
                                 .kv_dtype = a->kv == 1 ? LS_BF16 : LS_F32,
                                 .chunk = a->chunk,
                                 .n_vocab = j->setup.n_vocab,
                                 .eager = a->eager};
    return ls_engine_create(m, be, o, out, err);
}

/* Models are opened without tokenizers, so that a head is as tall as its file says. */
static ls_status open_models(ls_bench_job *j, const char *target, const char *draft,
                             const ls_bench_need *need, ls_err *err) {
    ls_setup *s = &j->setup;
    const ls_model_options plain = {.no_tokenizer = true};
    LS_TRY(ls_model_open(target, plain, &s->target, err));
    s->n_vocab = s->target->config.n_vocab;
    if (need->pair) {
        if (!draft)
            return ls_fail(err, LS_ERR_INPUT, "--target without --draft: name a draft model");
        LS_TRY(ls_model_open(draft, plain, &s->draft, err));
        LS_TRY(ls_model_pair(s->target, s->draft, &s->n_vocab, err));
    }
    return LS_OK;
}

static ls_status open_engines(ls_bench_job *j, const ls_bench_need *need, ls_err *err) {
    ls_setup *s = &j->setup;
    LS_TRY(ls_device_open(&j->a.model.device, &s->be, err));
    LS_TRY(open_engine(j, s->target, s->be, need, &s->engine, err));
    if (need->pair) {
        LS_TRY(open_engine(j, s->draft, s->be, need, &s->draft_engine, err));
        LS_TRY(ls_drafter_model(s->draft_engine, &s->drafter, err));
    }
    if (need->thin && s->target->config.n_layers > 1) {
        ls_engine_options o = *ls_engine_opts(s->engine);
        o.n_layers = 1;
        LS_TRY(ls_engine_create(s->target, s->be, o, &j->other, err));
    }
    if (need->against && j->a.against) {
        ls_device_args d = j->a.model.device;
        d.profile = j->a.against - 1;
        LS_TRY(ls_device_open(&d, &j->other_be, err));
        LS_TRY(open_engine(j, s->target, j->other_be, need, &j->other, err));
    }
    return LS_OK;
}

static void on_write(void *self, int64_t done, int64_t total) {
    ls_term_progress(self, done >> 20, (total >> 20) + 1, "MiB of random weights");
}

static ls_status open_pair_in(ls_bench_job *j, const char *dir, const ls_bench_need *need,
                              ls_err *err) {
    char *target, *draft;
    LS_TRY(ls_file_join(dir, "target", &target, err));
    ls_status status = ls_file_join(dir, "draft", &draft, err);
    if (status == LS_OK) {
        status = open_models(j, target, draft, need, err);
        free(draft);
    }
    free(target);
    return status;
}

/* Random weights in a new folder, opened and removed: the mapping keeps them while it is open. */
static ls_status open_shape(ls_bench_job *j, const ls_bench_need *need, ls_err *err) {
    char dir[512], model[520];
    const int n = snprintf(dir, sizeof dir, "%s/lockstep-bench-XXXXXX", j->a.tmp);
    if (n < 0 || (size_t)n >= sizeof dir || !mkdtemp(dir))
        return ls_fail(err, LS_ERR_IO, "cannot make a folder in --tmp %s", j->a.tmp);
    snprintf(model, sizeof model, "%s/model", dir);
    const ls_synth_options o = {.seed = 1,
                                .draft_layers = need->pair ? j->a.draft_layers : 0,
                                .divergence = (double)j->a.divergence,
                                .self = &j->term,
                                .progress = on_write,
                                .stop = ls_term_stopped};
    ls_status status = ls_synth_write(ls_shape_at(j->a.shape - 1), &o, model, err);
    if (status == LS_OK)
        status =
            need->pair ? open_pair_in(j, model, need, err) : open_models(j, model, NULL, need, err);
    ls_synth_remove(model);
    remove(dir);
    ls_term_clear(&j->term);
    return status;
}

ls_status ls_bench_open(ls_bench_job *j, const ls_bench_need *need, ls_err *err) {
    const ls_model_args *a = &j->a.model;
    ls_setup *s = &j->setup;
    if (j->a.shape && (a->target || a->draft))
        return ls_fail(err, LS_ERR_INPUT, "--shape and --target: give one of them");
    LS_TRY(ls_bench_chunk(j, err));
    LS_TRY(ls_places_find(&s->places, err));
    if (j->a.shape) {
        LS_TRY(open_shape(j, need, err));
    } else if (a->target) {
        LS_TRY(open_models(j, a->target, a->draft, need, err));
    } else {
        LS_TRY(ls_places_need_pair(&s->places, err));
        LS_TRY(open_models(j, s->places.target, a->draft ? a->draft : s->places.draft, need, err));
    }
    return open_engines(j, need, err);
}

void ls_bench_close(ls_bench_job *j) {
    ls_engine_destroy(j->other);
    ls_backend_destroy(j->other_be);
    ls_setup_close(&j->setup);
    json_decref(j->results);
    j->results = NULL;
}

/* ---- options --------------------------------------------------------------------------------- */

static ls_status add_numbers(const char *text, int32_t min, int32_t max, int32_t out[LS_BENCH_LIST],
                             int32_t *n, ls_err *err) {
    while (*text) {
        char one[32];
        const size_t len = strcspn(text, ",");
        int64_t v;
        if (*n == LS_BENCH_LIST)
            return ls_fail(err, LS_ERR_INPUT, "more than %d numbers", LS_BENCH_LIST);
        snprintf(one, sizeof one, "%.*s", len < sizeof one ? (int)len : (int)sizeof one, text);
        LS_TRY(ls_parse_int(one, min, max, &v, err));
        out[(*n)++] = (int32_t)v;
        text += len + (text[len] == ',');
    }
    return LS_OK;
}

ls_status ls_bench_numbers(const ls_list *list, const char *name, const char *fallback, int32_t min,
                           int32_t max, int32_t out[LS_BENCH_LIST], int32_t *n, ls_err *err) {
    *n = 0;
    for (int32_t i = 0; i < (list->n ? list->n : 1); i++) {
        const ls_status status =
            add_numbers(list->n ? list->item[i] : fallback, min, max, out, n, err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "--%s", name);
    }
    return *n ? LS_OK : ls_fail(err, LS_ERR_INPUT, "--%s: no number", name);
}

ls_status ls_bench_chunk(ls_bench_job *j, ls_err *err) {
    if (j->a.chunk.n > 1)
        return ls_fail(err, LS_ERR_INPUT, "--chunk: several rules are for attention alone");
    if (j->a.chunk.n == 0)
        return LS_OK;
    const ls_status status = ls_chunk_parse(j->a.chunk.item[0], &j->a.model.chunk, err);
    return status == LS_OK ? LS_OK : ls_fail_in(err, status, "--chunk");
}

/* ---- output ---------------------------------------------------------------------------------- */

static void on_progress(void *self, int64_t done, int64_t total, const char *text) {
    ls_term_progress(self, done, total, text);
}

ls_bench_how ls_bench_how_of(ls_bench_job *j) {
    return (ls_bench_how){.n_repeat = j->a.repeats,
                          .self = &j->term,
                          .progress = on_progress,
                          .stop = ls_term_stopped};
}

const char *ls_bench_model_name(const ls_bench_job *j) {
    return j->a.shape ? ls_shape_at(j->a.shape - 1)->name : j->setup.target->dir;
}

void ls_bench_heading(const ls_bench_job *j) {
    const ls_setup *s = &j->setup;
    if (j->a.json)
        return;
    printf("%s: %.1f M parameters", ls_bench_model_name(j),
           (double)s->target->weights->n_params / 1e6);
    if (s->draft)
        printf(", drafts by %.1f M", (double)s->draft->weights->n_params / 1e6);
    printf("; %s, profile %s", s->be->device, s->be->profile);
    printf(j->other_be ? " against %s\n" : "\n", j->other_be ? j->other_be->profile : "");
}

json_t *ls_bench_spread(ls_spread s) {
    return json_pack("{s:f, s:f, s:f, s:f}", "median_us", s.median, "low_us", s.low, "high_us",
                     s.high, "cv", s.cv);
}

json_t *ls_bench_series(const ls_series *s) {
    return json_pack("{s:o, s:o}", "wall", ls_bench_spread(s->wall), "device",
                     ls_bench_spread(s->device));
}

static json_t *model_json(const ls_model *m, const char *name) {
    return m ? json_pack("{s:s, s:I}", "name", name, "n_params", (json_int_t)m->weights->n_params)
             : json_null();
}

ls_status ls_bench_write(ls_bench_job *j, const char *command, json_t *extra, ls_err *err) {
    const ls_setup *s = &j->setup;
    if (!j->a.json && !j->a.record) {
        json_decref(extra);
        return LS_OK;
    }
    char at[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *r = json_pack("{s:s, s:s, s:s, s:i}", "lockstep", LS_VERSION, "command", command, "at",
                          at, "n_repeat", j->a.repeats);
    if (s->target) {
        const char *name = ls_bench_model_name(j);
        json_object_set_new(r, "model", model_json(s->target, name));
        json_object_set_new(r, "draft", model_json(s->draft, s->draft ? s->draft->dir : ""));
        if (j->a.shape) /* the weights are a function of these */
            json_object_set_new(r, "synth",
                                json_pack("{s:s, s:i, s:i, s:f}", "shape", name, "seed", 1,
                                          "draft_layers", s->draft ? j->a.draft_layers : 0,
                                          "divergence", (double)j->a.divergence));
    }
    if (s->be) {
        json_object_set_new(r, "device", json_string(s->be->device));
        json_object_set_new(r, "profile", json_string(s->be->profile));
    }
    if (j->other_be)
        json_object_set_new(r, "against", json_string(j->other_be->profile));
    if (s->engine) {
        json_object_set_new(r, "engine", ls_record_engine(s->engine));
        json_object_set_new(r, "weight_bytes",
                            json_integer((json_int_t)ls_engine_count(s->engine).weight_bytes));
    }
    if (extra)
        json_object_update(r, extra);
    json_decref(extra);
    json_object_set(r, "results", j->results);
    return ls_record_write(r, j->a.json ? "-" : j->a.record, false, err);
}
