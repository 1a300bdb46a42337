#include "record.h"

#include <errno.h>
#include <string.h>

/* Paths and names may be any bytes; JSON is UTF-8. */
static json_t *text(const char *s) {
    json_t *out = json_string(s ? s : "");
    char shown[512];
    return out ? out : json_string(ls_err_text(shown, sizeof shown, s, strlen(s)));
}

ls_status ls_record_model(const ls_model *m, json_t **out, ls_err *err) {
    char weights[LS_SHA256_HEX], tokenizer[LS_SHA256_HEX];
    LS_TRY(ls_checkpoint_digest(m->checkpoint, weights, err));
    if (m->tokenizer)
        LS_TRY(ls_tokenizer_digest(m->tokenizer, tokenizer, err));
    *out = json_pack("{s:o, s:s, s:s?, s:I}", "dir", text(m->dir), "sha256", weights,
                     "tokenizer_sha256", m->tokenizer ? tokenizer : NULL, "n_params",
                     (json_int_t)m->weights->n_params);
    return *out ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "out of memory for a record");
}

json_t *ls_record_engine(const ls_engine *e) {
    const ls_engine_options *o = ls_engine_opts(e);
    char chunk[LS_CHUNK_TEXT];
    ls_chunk_text(o->chunk, chunk);
    return json_pack("{s:i, s:s, s:i, s:s, s:i}", "context", o->context, "kv",
                     ls_dtype_name(o->kv_dtype), "block_rows", o->block_rows, "chunk", chunk,
                     "n_vocab", o->n_vocab);
}

ls_status ls_record_setup(const char *command, const ls_setup *s, json_t **out, ls_err *err) {
    json_t *target = NULL, *draft = NULL;
    LS_TRY(ls_record_model(s->target, &target, err));
    ls_status status = s->draft ? ls_record_model(s->draft, &draft, err) : LS_OK;
    if (status != LS_OK) {
        json_decref(target);
        return status;
    }
    *out = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o?, s:s, s:o}", "lockstep", LS_VERSION, "command",
                     command, "profile", s->be->profile, "device", s->be->device, "target", target,
                     "draft", draft, "drafter", s->drafter ? s->drafter->name : "none", "engine",
                     ls_record_engine(s->engine));
    return *out ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "out of memory for a record");
}

json_t *ls_record_warp(const ls_warp *w) {
    return json_pack("{s:f, s:i, s:f, s:f}", "temperature", (double)w->temperature, "top_k",
                     w->top_k, "top_p", (double)w->top_p, "min_p", (double)w->min_p);
}

json_t *ls_record_policy(const ls_policy *p, const char *options) {
    return p ? json_pack("{s:o, s:o, s:s}", "name", text(p->name), "where", text(p->where),
                         "options", options)
             : json_null();
}

json_t *ls_record_rule(const ls_rule *r) {
    return json_pack("{s:o, s:o, s:s}", "name", text(r->name), "where", text(r->where), "kind",
                     ls_rule_kind_name(r->kind));
}

json_t *ls_record_rate(ls_rate r) {
    double value;
    return ls_rate_get(r, &value) ? json_real(value) : json_null();
}

json_t *ls_record_metrics(const ls_metrics *m) {
    json_t *depth = json_array();
    for (int32_t d = 1; d <= ls_metrics_depth(m); d++)
        json_array_append_new(
            depth, json_pack("{s:i, s:I, s:I, s:o, s:I, s:o}", "depth", d, "n_kept",
                             (json_int_t)m->kept[d - 1], "n_judged", (json_int_t)m->judged[d - 1],
                             "conditional", ls_record_rate(ls_metrics_conditional(m, d)),
                             "n_reached", (json_int_t)m->reached[d - 1], "unconditional",
                             ls_record_rate(ls_metrics_unconditional(m, d))));
    json_t *out = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "n_round", (json_int_t)m->n_round,
        "n_draft_round", (json_int_t)m->n_draft_round, "n_drafted", (json_int_t)m->n_drafted,
        "n_accepted", (json_int_t)m->n_accepted, "n_evaluated", (json_int_t)m->n_evaluated,
        "n_emitted", (json_int_t)m->n_emitted, "n_refused", (json_int_t)m->n_refused, "n_cut",
        (json_int_t)m->n_cut, "n_clamped", (json_int_t)m->n_clamped);
    if (!out || !depth) {
        json_decref(out);
        json_decref(depth);
        return NULL;
    }
    json_object_set_new(out, "acceptance", ls_record_rate(ls_metrics_acceptance(m)));
    json_object_set_new(out, "yield", ls_record_rate(ls_metrics_yield(m)));
    json_object_set_new(out, "tokens_per_pass", ls_record_rate(ls_metrics_per_pass(m)));
    json_object_set_new(out, "accepted_per_draft", ls_record_rate(ls_metrics_per_draft(m)));
    json_object_set_new(out, "by_depth", depth);
    json_object_set_new(out, "draft_us", json_real(m->draft_us));
    json_object_set_new(out, "verify_us", json_real(m->verify_us));
    json_object_set_new(out, "policy_us", json_real(m->policy_us));
    json_object_set_new(out, "accept_us", json_real(m->accept_us));
    return out;
}

json_t *ls_record_tokens(const int32_t *token, int32_t n) {
    json_t *out = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(out, json_integer(token[i]));
    return out;
}

ls_status ls_record_write(json_t *record, const char *path, bool indent, ls_err *err) {
    if (!record)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory for a record");
    const bool to_stdout = strcmp(path, "-") == 0;
    FILE *f = to_stdout ? stdout : fopen(path, "w");
    bool ok = f != NULL;
    if (f) {
        ok = json_dumpf(record, f, (indent ? JSON_INDENT(1) : 0) | JSON_ENSURE_ASCII) == 0;
        ok = fputc('\n', f) != EOF && ok;
        ok = (to_stdout ? fflush(f) : fclose(f)) == 0 && ok;
    }
    json_decref(record);
    char shown[256];
    return ok ? LS_OK
              : ls_fail(err, LS_ERR_IO, "%s: cannot write the record: %s",
                        ls_err_text(shown, sizeof shown, path, strlen(path)), strerror(errno));
}
