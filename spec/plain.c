#include "plain.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "draw.h"

ls_status ls_cache_row_digest(ls_engine *engine, int32_t seq, int32_t index, ls_sha256 *h,
                              unsigned char out[LS_SHA256_RAW], int64_t *n_value, ls_err *err) {
    ls_kv *kv = ls_engine_kv(engine);
    const ls_kv_options *o = ls_kv_shape(kv);
    const size_t n = 2 * (size_t)o->n_kv * (size_t)o->head_dim,
                 bytes = n * ls_dtype_bytes(o->dtype);
    void *row = malloc(bytes);
    if (!row)
        return ls_fail(err, LS_ERR_MEMORY, "cache digest: out of memory");
    ls_status s = LS_OK;
    for (int32_t l = 0; s == LS_OK && l < o->n_layers; l++) {
        s = ls_kv_read(kv, seq, l, index, row, err);
        if (s == LS_OK)
            ls_sha256_add(h, row, bytes);
    }
    ls_sha256_take(h, out);
    *n_value = (int64_t)n * o->n_layers;
    free(row);
    return s;
}

typedef struct plain_run {
    const ls_gen *g;
    ls_engine *e;
    ls_plain *p;
    ls_sha256 digest;
    float *row;
    int32_t seq, n_vocab, limit;
} plain_run;

static bool text_stops(const plain_run *r, ls_status *s, ls_err *err) {
    const ls_gen *g = r->g;
    ls_text text = {0};
    bool hit = false;
    if (g->n_stop == 0)
        return false;
    /* through the stream, which holds back a half character: it is no text yet */
    ls_stream stream = ls_stream_begin(g->tokenizer, true);
    for (int32_t i = 0; *s == LS_OK && i < r->p->n_token; i++)
        *s = ls_stream_push(&stream, r->p->token[i], &text, err);
    for (int32_t i = 0; *s == LS_OK && text.s && i < g->n_stop; i++)
        hit = hit || strstr(text.s, g->stop[i]) != NULL;
    ls_text_free(&text);
    return hit;
}

static bool is_end_token(const plain_run *r, int32_t token) {
    const ls_config *c = &ls_engine_model(r->e)->config;
    const int32_t *eos = r->g->n_eos ? r->g->eos : c->eos;
    const int32_t n = r->g->ignore_eos ? 0 : r->g->n_eos ? r->g->n_eos : c->n_eos;
    for (int32_t i = 0; i < n; i++)
        if (eos[i] == token)
            return true;
    return false;
}

/* One row: feeds `token` at `pos`, draws the token of position pos + 1. */
static ls_status step(plain_run *r, int32_t token, int32_t pos, ls_row_stats *stats, ls_err *err) {
    const ls_gen *g = r->g;
    const ls_row row = ls_row_chain(r->seq, token, pos, true);
    const ls_draw draw = ls_draw_key(g->seed, g->sequence, (uint32_t)(pos + 1), LS_DRAW_TOKEN, 0);
    LS_TRY(ls_pass_drawn(r->e, &row, 1, &(ls_draws){.warp = &g->warp, .draw = &draw}, err));
    return ls_pass_result(r->e, NULL, 0, NULL, stats, 1, err);
}

static ls_status decode(plain_run *r, ls_err *err) {
    const ls_gen *g = r->g;
    ls_plain *p = r->p;
    int32_t n = g->n_prompt, token = g->prompt[n - 1];
    const double t0 = ls_now_us();
    double spent = 0; /* digests are not decoding */
    LS_TRY(ls_prefill(r->e, r->seq, g->prompt, n - 1, 0, err));
    const double t1 = ls_now_us();
    p->prefill_us = t1 - t0;
    while (p->end == LS_END_NONE && n < r->limit) {
        ls_row_stats stats;
        LS_TRY(step(r, token, n - 1, &stats, err));
        if (stats.flags)
            return ls_fail(err, LS_ERR_NUMERIC, "position %d: the logits hold NaN or infinity", n);
        const double w0 = ls_now_us();
        LS_TRY(ls_pass_logits(r->e, 0, r->row, err));
        ls_sha256_add(&r->digest, r->row, (size_t)r->n_vocab * sizeof *r->row);
        ls_sha256_take(&r->digest, p->logits[p->n_token]);
        p->margin[p->n_token] = stats.margin;
        token = stats.token;
        p->token[p->n_token++] = token;
        n++;
        ls_status s = LS_OK;
        if (is_end_token(r, token) || text_stops(r, &s, err))
            p->end = LS_END_STOP;
        LS_TRY(s);
        if (g->hooks.stop && g->hooks.stop(g->hooks.self))
            return ls_fail(err, LS_ERR_STOPPED, "stopped after %d tokens", p->n_token);
        spent += ls_now_us() - w0;
    }
    if (p->end == LS_END_NONE)
        p->end = LS_END_LENGTH;
    p->decode_us = ls_now_us() - t1 - spent;
    p->n_row = ls_kv_len(ls_engine_kv(r->e), r->seq);
    for (int32_t i = 0; i < p->n_row; i++) {
        int64_t n_value;
        LS_TRY(ls_cache_row_digest(r->e, r->seq, i, &r->digest, p->cache[i], &n_value, err));
    }
    return LS_OK;
}

static ls_status run_open(plain_run *r, const ls_gen *g, ls_engine *e, ls_err *err) {
    const ls_engine_options *o = ls_engine_opts(e);
    *r = (plain_run){.g = g, .e = e, .seq = -1, .n_vocab = o->n_vocab};
    if (g->n_prompt < 1 || g->n_prompt > o->context)
        return ls_fail(err, LS_ERR_INPUT, "a prompt of %d tokens: from 1 to %d fit", g->n_prompt,
                       o->context);
    r->limit = g->max_new > 0 && g->max_new < o->context - g->n_prompt ? g->n_prompt + g->max_new
                                                                       : o->context;
    LS_TRY(ls_sha256_begin(&r->digest, err));
    r->row = malloc((size_t)r->n_vocab * sizeof *r->row);
    if (!r->row)
        return ls_fail(err, LS_ERR_MEMORY, "plain decode: out of memory");
    return ls_kv_open(ls_engine_kv(e), &r->seq, err);
}

static void run_close(plain_run *r) {
    if (r->seq >= 0)
        ls_kv_close(ls_engine_kv(r->e), r->seq);
    ls_sha256_drop(&r->digest);
    free(r->row);
}

ls_status ls_plain_run(const ls_gen *gen, ls_engine *engine, ls_plain **out, ls_err *err) {
    plain_run r;
    ls_status s = run_open(&r, gen, engine, err);
    ls_plain *p = s == LS_OK ? calloc(1, sizeof *p) : NULL;
    if (p) {
        const size_t n = (size_t)(r.limit - gen->n_prompt) + 1;
        p->n_prompt = gen->n_prompt;
        p->token = malloc(n * sizeof *p->token);
        p->logits = malloc(n * sizeof *p->logits);
        p->margin = malloc(n * sizeof *p->margin);
        p->cache = malloc((size_t)r.limit * sizeof *p->cache);
        r.p = p;
    }
    if (s == LS_OK)
        s = p && p->token && p->logits && p->margin && p->cache
                ? decode(&r, err)
                : ls_fail(err, LS_ERR_MEMORY, "plain decode: out of memory");
    run_close(&r);
    if (s == LS_OK)
        *out = p;
    else
        ls_plain_destroy(p);
    return s;
}

void ls_plain_destroy(ls_plain *p) {
    if (!p)
        return;
    free(p->token);
    free(p->logits);
    free(p->margin);
    free(p->cache);
    free(p);
}

ls_status ls_plain_trace(const ls_gen *gen, ls_engine *engine, const ls_plain *plain,
                         int32_t position, const ls_trace *trace, ls_err *err) {
    plain_run r;
    ls_row_stats stats;
    ls_status s = run_open(&r, gen, engine, err);
    if (s == LS_OK)
        s = ls_prefill(engine, r.seq, gen->prompt, gen->n_prompt - 1, 0, err);
    /* the row at n - 1 chooses position n; tokens between prompt and position are the plain ones */
    for (int32_t n = gen->n_prompt; s == LS_OK && n <= position; n++) {
        const int32_t token =
            n == gen->n_prompt ? gen->prompt[n - 1] : plain->token[n - gen->n_prompt - 1];
        ls_engine_trace(engine, n == position ? trace : NULL);
        s = step(&r, token, n - 1, &stats, err);
    }
    ls_engine_trace(engine, NULL);
    run_close(&r);
    return s;
}
