/* cmd_check.c - `lockstep check`: plain against speculative, bit for bit, over a set of prompts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "commands.h"
#include "prompts.h"
#include "record.h"
#include "setup.h"
#include "term.h"

#define TEMPERATURES_MAX 8
#define FORKS_KEPT 16 /* a certificate lists this many of a cell's forks, and counts all */

static const char *const default_policies[] = {"fixed:1",   "fixed:4",    "fixed:15",
                                               "heuristic", "confidence", "svip"};
static const char *const default_temperatures[] = {"0", "1"};

typedef struct own {
    ls_list prompts, policy, temperature;
    int32_t n_prompts;
    ls_chunk_rule plain_chunk;
    const char *certificate;
    bool quiet;
    int color;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"prompts", "FILE",
     "JSONL set of prompts, or a folder of them; may be repeated\n"
     "(default: the sets of experiments/prompts)",
     LS_OPT_LIST, AT(prompts), 0, 0, NULL},
    {"n-prompts", "N", "how many of them, spread over the sets (default 16; 0: all)", LS_OPT_INT,
     AT(n_prompts), 0, 1000000, NULL},
    {"policy", "NAME|FILE",
     "as for generate; may be repeated (default: fixed:1, fixed:4,\n"
     "fixed:15, heuristic, confidence, svip)",
     LS_OPT_LIST, AT(policy), 0, 0, NULL},
    {"temperature", "T", "may be repeated (default: 0 and 1)", LS_OPT_LIST, AT(temperature), 0, 0,
     NULL},
    {"certificate", "FILE", "write what was compared as JSON; - is standard output", LS_OPT_TEXT,
     AT(certificate), 0, 0, NULL},
    {"plain-chunk", "RULE",
     "decode plainly under another chunk rule: a deliberate fork,\n"
     "to see what is said about one",
     LS_OPT_OTHER, AT(plain_chunk), 0, 0, ls_parse_chunk},
    {"color", LS_TERM_COLORS, "colours on standard output", LS_OPT_CHOICE, AT(color), 0, 0, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

/* One policy at one temperature: a line of the table. */
typedef struct cell {
    int64_t n_prompt, n_position, n_logit, n_cache, n_differ, n_cache_differ, n_fork;
    ls_metrics metrics;
    double plain_us, spec_us;
    json_t *forks;
} cell;

typedef struct job {
    own a;
    ls_model_args model;
    ls_decode_args decode;
    ls_term term;
    ls_setup setup;
    ls_engine *plain_engine;
    ls_rule *rule;
    int32_t n_policy, n_temperature;
    ls_policy *policy[LS_LIST_MAX];
    char policy_options[LS_LIST_MAX][256];
    float temperature[TEMPERATURES_MAX];
    cell *cell; /* [n_policy, n_temperature] */
    ls_prompts prompts;
    int32_t n_prompt_cut; /* prompts that lost their beginning */
    json_t *chains;
    int64_t n_done, n_total;
    FILE *say; /* table and triage: stderr while the certificate is on stdout */
} job;

/* ---- the work -------------------------------------------------------------------------------- */

static json_t *fork_json(const ls_prompt *p, const ls_fork *f) {
    static const char *const kinds[] = {"none", "logits", "token", "length", "cache"};
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:I, s:I, s:I}",
                     "prompt", p->id, "kind", kinds[f->kind], "position", f->position,
                     "token_plain", f->token_plain, "token_spec", f->token_spec, "round", f->round,
                     "row", f->row, "rows", f->rows, "layer", f->layer, "op", f->op, "element",
                     f->element, "bits_plain", (json_int_t)f->bits_plain, "bits_spec",
                     (json_int_t)f->bits_spec, "ulp", (json_int_t)f->ulp);
}

static ls_status count(job *j, const ls_prompt *p, int32_t i_policy, int32_t i_temperature,
                       const ls_plain *plain, const ls_check_result *r, ls_err *err) {
    cell *c = &j->cell[i_policy * j->n_temperature + i_temperature];
    c->n_prompt++;
    c->n_position += r->n_position;
    c->n_logit += r->n_logit;
    c->n_cache += r->n_cache;
    c->n_differ += r->n_differ;
    c->n_cache_differ += r->n_cache_differ;
    c->plain_us += plain->decode_us;
    c->spec_us += r->spec.total_us - r->spec.prefill_us;
    LS_TRY(ls_metrics_add_all(&c->metrics, r->spec.round, r->spec.n_round, err));
    if (r->same)
        return LS_OK;
    if (c->n_fork++ < FORKS_KEPT)
        json_array_append_new(c->forks, fork_json(p, &r->fork));
    ls_term_clear(&j->term);
    fprintf(j->say, "%sfork%s in prompt %s, policy %s, temperature %g: ",
            ls_term_style(&j->term, LS_STYLE_BAD), ls_term_style(&j->term, LS_STYLE_NONE), p->id,
            j->policy[i_policy]->name, (double)j->temperature[i_temperature]);
    ls_fork_print(j->say, &r->fork);
    return LS_OK;
}

static void chain(job *j, const ls_prompt *p, const ls_gen *gen, const ls_plain *plain,
                  const ls_check_result *r) {
    json_array_append_new(j->chains,
                          json_pack("{s:s, s:s, s:f, s:i, s:i, s:i, s:s, s:s, s:s, s:s}", "prompt",
                                    p->id, "set", p->set, "temperature",
                                    (double)gen->warp.temperature, "sequence", (int)gen->sequence,
                                    "n_prompt", gen->n_prompt, "n_token", plain->n_token, "end",
                                    ls_end_name(plain->end), "tokens", r->digest_token, "logits",
                                    r->digest_logits, "cache", r->digest_cache));
}

/* Plain decode once, then every policy against it. */
static ls_status check_one(job *j, const ls_prompt *p, ls_gen *gen, int32_t i_temperature,
                           ls_err *err) {
    ls_plain *plain = NULL;
    gen->warp.temperature = j->temperature[i_temperature];
    ls_status status = ls_plain_run(gen, j->plain_engine, &plain, err);
    j->n_done++;
    for (int32_t i = 0; status == LS_OK && i < j->n_policy; i++) {
        ls_check_result r = {0};
        ls_term_progress(&j->term, j->n_done++, j->n_total, p->id);
        gen->policy = j->policy[i];
        status = ls_check_run(gen, plain, j->plain_engine, &r, err);
        if (status == LS_OK && i == 0)
            chain(j, p, gen, plain, &r);
        if (status == LS_OK)
            status = count(j, p, i, i_temperature, plain, &r, err);
        ls_check_free(&r);
    }
    ls_plain_destroy(plain);
    return status;
}

static ls_status check_prompt(job *j, int32_t i_prompt, ls_err *err) {
    const ls_prompt *p = &j->prompts.prompt[i_prompt];
    ls_ids ids = {0};
    LS_TRY(ls_tokenizer_encode(j->setup.target->tokenizer, p->text, strlen(p->text),
                               LS_ENCODE_TEMPLATE, &ids, NULL, err));
    /* a prompt that leaves no room keeps its end: what is decoded follows from there */
    const int32_t context = ls_engine_opts(j->setup.engine)->context;
    const int32_t wanted = j->decode.max_new < context ? j->decode.max_new : context / 2;
    const int32_t room = context - (wanted > 0 ? wanted : context / 2);
    const int32_t n = (int32_t)ids.n, skip = n > room ? n - room : 0;
    j->n_prompt_cut += skip > 0;
    ls_gen gen = {
        .target = j->setup.engine,
        .drafter = j->setup.drafter,
        .rule = j->rule,
        .prompt = ids.id + skip,
        .n_prompt = n - skip,
        .max_new = j->decode.max_new,
        .warp = {.top_k = j->decode.top_k, .top_p = j->decode.top_p, .min_p = j->decode.min_p},
        .seed = j->decode.seed.value,
        .sequence = (uint32_t)i_prompt,
        .ignore_eos = j->decode.ignore_eos,
        .stop = j->decode.stop.item,
        .n_stop = j->decode.stop.n,
        .tokenizer = j->setup.target->tokenizer,
        .hooks = {.stop = ls_term_stopped}};
    ls_status status = LS_OK;
    for (int32_t t = 0; status == LS_OK && t < j->n_temperature; t++)
        status = check_one(j, p, &gen, t, err);
    ls_ids_free(&ids);
    return status == LS_OK ? status : ls_fail_in(err, status, "prompt %s", p->id);
}

/* ---- what it found --------------------------------------------------------------------------- */

/* The counts of all cells. */
static cell totals(const job *j) {
    cell all = {0};
    for (int32_t i = 0; i < j->n_policy * j->n_temperature; i++) {
        all.n_position += j->cell[i].n_position;
        all.n_logit += j->cell[i].n_logit;
        all.n_cache += j->cell[i].n_cache;
        all.n_differ += j->cell[i].n_differ + j->cell[i].n_cache_differ;
    }
    return all;
}

static void table(const job *j) {
    fprintf(j->say, "%-34s %5s %8s %10s %14s %9s %12s %10s\n", "policy", "temp", "prompts",
            "positions", "logits", "differing", "tokens/pass", "acceptance");
    for (int32_t i = 0; i < j->n_policy; i++)
        for (int32_t t = 0; t < j->n_temperature; t++) {
            const cell *c = &j->cell[i * j->n_temperature + t];
            const int64_t n_differ = c->n_differ + c->n_cache_differ;
            char name[64], per_pass[16] = "-", acceptance[16] = "-";
            double v;
            snprintf(name, sizeof name, "%s %.40s", j->policy[i]->name, j->policy_options[i]);
            if (ls_rate_get(ls_metrics_per_pass(&c->metrics), &v))
                snprintf(per_pass, sizeof per_pass, "%.3f", v);
            if (ls_rate_get(ls_metrics_acceptance(&c->metrics), &v))
                snprintf(acceptance, sizeof acceptance, "%.3f", v);
            fprintf(j->say, "%-34.34s %5g %8lld %10lld %14lld %s%9lld%s %12s %10s\n", name,
                    (double)j->temperature[t], (long long)c->n_prompt, (long long)c->n_position,
                    (long long)c->n_logit,
                    ls_term_style(&j->term, n_differ ? LS_STYLE_BAD : LS_STYLE_GOOD),
                    (long long)n_differ, ls_term_style(&j->term, LS_STYLE_NONE), per_pass,
                    acceptance);
        }
}

static json_t *cells_json(const job *j) {
    json_t *out = json_array();
    for (int32_t i = 0; i < j->n_policy; i++)
        for (int32_t t = 0; t < j->n_temperature; t++) {
            const cell *c = &j->cell[i * j->n_temperature + t];
            json_array_append_new(
                out, json_pack("{s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:o, s:f, s:f}",
                               "policy", ls_record_policy(j->policy[i], j->policy_options[i]),
                               "temperature", (double)j->temperature[t], "n_prompt",
                               (json_int_t)c->n_prompt, "n_position", (json_int_t)c->n_position,
                               "n_logit", (json_int_t)c->n_logit, "n_cache", (json_int_t)c->n_cache,
                               "n_differ", (json_int_t)c->n_differ, "n_cache_differ",
                               (json_int_t)c->n_cache_differ, "n_fork", (json_int_t)c->n_fork,
                               "forks", c->forks, "metrics", ls_record_metrics(&c->metrics),
                               "plain_us", c->plain_us, "spec_us", c->spec_us));
        }
    return out;
}

static ls_status certificate(const job *j, const cell *all, bool complete, ls_err *err) {
    json_t *record;
    LS_TRY(ls_record_setup("check", &j->setup, &record, err));
    const ls_warp warp = {
        .top_k = j->decode.top_k, .top_p = j->decode.top_p, .min_p = j->decode.min_p};
    json_t *sampling = ls_record_warp(&warp);
    json_object_del(sampling, "temperature"); /* each cell has its own */
    json_object_set_new(record, "same",
                        json_boolean(complete && all->n_position > 0 && all->n_differ == 0));
    json_object_set_new(record, "complete", json_boolean(complete));
    json_object_set_new(record, "plain_engine", ls_record_engine(j->plain_engine));
    json_object_set_new(record, "rule", ls_record_rule(j->rule));
    json_object_set_new(record, "sampling", sampling);
    json_object_set_new(record, "seed", json_integer((json_int_t)j->decode.seed.value));
    json_object_set_new(record, "max_new", json_integer(j->decode.max_new));
    json_object_set_new(record, "ignore_eos", json_boolean(j->decode.ignore_eos));
    json_object_set_new(record, "n_prompt_cut", json_integer(j->n_prompt_cut));
    json_object_set_new(record, "cells", cells_json(j));
    json_object_set(record, "chains", j->chains);
    return ls_record_write(record, j->a.certificate, true, err);
}

static void verdict(const job *j, const cell *all) {
    if (all->n_position > 0 && all->n_differ == 0)
        fprintf(j->say,
                "%severy bit equal%s: %lld tokens, %lld logits and %lld cache values against plain "
                "decode; seed %llu\n",
                ls_term_style(&j->term, LS_STYLE_GOOD), ls_term_style(&j->term, LS_STYLE_NONE),
                (long long)all->n_position, (long long)all->n_logit, (long long)all->n_cache,
                (unsigned long long)j->decode.seed.value);
    if (j->n_prompt_cut)
        fprintf(j->say, "%d prompts were too long for the context and lost their beginning\n",
                j->n_prompt_cut);
}

/* ---- the command ----------------------------------------------------------------------------- */

static ls_status take_lists(job *j, ls_err *err) {
    own *a = &j->a;
    if (a->policy.n == 0)
        for (size_t i = 0; i < sizeof default_policies / sizeof *default_policies; i++)
            a->policy.item[a->policy.n++] = default_policies[i];
    if (a->temperature.n == 0)
        for (size_t i = 0; i < sizeof default_temperatures / sizeof *default_temperatures; i++)
            a->temperature.item[a->temperature.n++] = default_temperatures[i];
    if (a->temperature.n > TEMPERATURES_MAX)
        return ls_fail(err, LS_ERR_INPUT, "more than %d temperatures", TEMPERATURES_MAX);
    for (; j->n_temperature < a->temperature.n; j->n_temperature++) {
        double t;
        ls_status status = ls_parse_number(a->temperature.item[j->n_temperature], 0, 1000, &t, err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "--temperature");
        j->temperature[j->n_temperature] = (float)t;
    }
    for (; j->n_policy < a->policy.n; j->n_policy++)
        LS_TRY(ls_setup_policy(&j->setup, a->policy.item[j->n_policy], &j->decode.option,
                               &j->policy[j->n_policy], j->policy_options[j->n_policy], err));
    j->cell = calloc((size_t)(j->n_policy * j->n_temperature), sizeof *j->cell);
    if (!j->cell)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < j->n_policy * j->n_temperature; i++)
        j->cell[i].forks = json_array();
    j->chains = json_array();
    return LS_OK;
}

static ls_status take_prompts(job *j, ls_err *err) {
    if (j->a.prompts.n == 0) {
        if (!j->setup.places.prompts)
            return ls_fail(err, LS_ERR_INPUT,
                           "no prompt sets were found: give --prompts FILE.jsonl");
        LS_TRY(ls_prompts_read(j->setup.places.prompts, &j->prompts, err));
    }
    for (int32_t i = 0; i < j->a.prompts.n; i++)
        LS_TRY(ls_prompts_read(j->a.prompts.item[i], &j->prompts, err));
    LS_TRY(ls_prompts_sample(&j->prompts, j->a.n_prompts, 1, err));
    return j->prompts.n ? LS_OK : ls_fail(err, LS_ERR_INPUT, "the prompt sets are empty");
}

/* Hours of work must not end in a path that cannot be written. */
static ls_status try_certificate(const char *path, ls_err *err) {
    if (!path || strcmp(path, "-") == 0)
        return LS_OK;
    FILE *f = fopen(path, "a");
    char shown[256];
    if (!f)
        return ls_fail(err, LS_ERR_IO, "--certificate %s: %s",
                       ls_err_text(shown, sizeof shown, path, strlen(path)), strerror(errno));
    fclose(f);
    return LS_OK;
}

static ls_status prepare(job *j, ls_err *err) {
    LS_TRY(try_certificate(j->a.certificate, err));
    j->model.load = ls_term_load(&j->term);
    const ls_status opened = ls_setup_open(&j->model, &j->setup, err);
    ls_term_clear(&j->term);
    LS_TRY(opened);
    if (!j->setup.target->tokenizer)
        return ls_fail(
            err, LS_ERR_INPUT,
            "%s has no tokenizer (tokenizer.json, or one in the GGUF file that is supported): "
            "prompts cannot be read",
            j->setup.target->dir);
    LS_TRY(ls_setup_plain(&j->setup, j->a.plain_chunk, &j->plain_engine, err));
    LS_TRY(ls_setup_rule(&j->setup, j->decode.rule, &j->rule, err));
    if (j->rule->kind != LS_RULE_EXACT)
        return ls_fail(
            err, LS_ERR_INPUT,
            "rule %s is %s: it does not promise plain decode's tokens, only --rule exact "
            "does",
            j->rule->name, ls_rule_kind_name(j->rule->kind));
    if (!j->decode.seed.given)
        LS_TRY(ls_fresh_seed(&j->decode.seed, err));
    LS_TRY(take_lists(j, err));
    return take_prompts(j, err);
}

static ls_status work(job *j, ls_err *err) {
    LS_TRY(prepare(j, err));
    ls_status status = LS_OK;
    j->n_total = (int64_t)j->prompts.n * j->n_temperature * (1 + j->n_policy);
    for (int32_t i = 0; status == LS_OK && i < j->prompts.n; i++)
        status = check_prompt(j, i, err);
    ls_term_clear(&j->term);
    if (status != LS_OK && status != LS_ERR_STOPPED)
        return status;
    const cell all = totals(j);
    table(j);
    verdict(j, &all);
    if (j->a.certificate)
        LS_TRY(certificate(j, &all, status == LS_OK, err));
    LS_TRY(status);
    if (all.n_position == 0)
        return ls_fail(err, LS_ERR_INPUT, "no token was compared: raise --max-new or --context");
    if (all.n_differ > 0)
        return ls_fail(
            err, LS_ERR_CHECK,
            "%lld positions differ from plain decode: this is a fault of Lockstep, or of "
            "--plain-chunk",
            (long long)all.n_differ);
    return LS_OK;
}

static void close_job(job *j) {
    for (int32_t i = 0; j->cell && i < j->n_policy * j->n_temperature; i++)
        json_decref(j->cell[i].forks);
    for (int32_t i = 0; i < j->n_policy; i++)
        ls_policy_destroy(j->policy[i]);
    free(j->cell);
    json_decref(j->chains);
    ls_prompts_free(&j->prompts);
    ls_rule_destroy(j->rule);
    ls_engine_destroy(j->plain_engine);
    ls_setup_close(&j->setup);
}

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    job j = {.a = {.n_prompts = 16},
             .model = ls_model_args_default(),
             .decode = ls_decode_args_default()};
    const ls_opt_group groups[] = {{"Check", own_opts, sizeof own_opts / sizeof *own_opts, &j.a},
                                   ls_decode_group(&j.decode),
                                   ls_model_group(&j.model)};
    ls_args args;
    LS_TRY(ls_options_parse(self, groups, 3, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos)
        return ls_fail(err, LS_ERR_INPUT,
                       "prompt sets go behind --prompts: try lockstep check "
                       "--help");
    const bool to_stdout = j.a.certificate && strcmp(j.a.certificate, "-") == 0;
    j.say = to_stdout ? stderr : stdout;
    j.term = ls_term_open(to_stdout ? 2 : j.a.color, j.a.quiet);
    ls_status status = work(&j, err);
    close_job(&j);
    return status;
}

const ls_command ls_cmd_check = {
    .name = "check",
    .line = "compare speculative with plain decoding, bit for bit",
    .usage = "[OPTIONS]",
    .about =
        "Decodes each prompt plainly, one row a pass, and then with every policy, and compares\n"
        "tokens, the bits of every logit, and the cache. All equal: exit 0. A difference is "
        "traced\n"
        "to its first pass, layer, operation and element, so that a fault of logic and one of\n"
        "arithmetic are told apart at once: exit 1.",
    .examples =
        "  lockstep check --n-prompts 4 --max-new 64\n"
        "  lockstep check --n-prompts 64 --certificate certificate.json\n"
        "  lockstep check --drafter garbage --policy fixed:15 --block-rows 16 --kv bf16\n"
        "  lockstep check --n-prompts 1 --plain-chunk splits:3     what a fork looks like\n",
    .run = run,
};
