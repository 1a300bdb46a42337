#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "drafter.h"

typedef struct model_drafter {
    ls_drafter base;
    int32_t seq;
    int32_t *cached; /* [context] tokens whose rows the cache holds, ls_kv_len of them */
    int32_t token[LS_DRAFT_MAX];
    ls_row_stats stats[LS_DRAFT_MAX];
    int32_t n_token; /* committed when the last block was drafted */
    float *prob;     /* [V] host, and on the device: made when first wanted */
    void *prob_d;
    int32_t n_vocab;
} model_drafter;

_Static_assert(LS_DRAFT_MAX <= LS_CHAIN_MAX, "a draft is a chain");

static ls_status model_begin(ls_drafter *d, ls_err *err) {
    return ls_kv_rewind(ls_engine_kv(d->engine), ((model_drafter *)d)->seq, 0, err);
}

/* Rewinds the cache to what it has in common with the committed tokens, less the last of them (its
 * row has to run to give logits), and returns the number of rows left. */
static ls_status rewind_to_common(model_drafter *m, const ls_draft_job *job, int32_t *n,
                                  ls_err *err) {
    ls_kv *kv = ls_engine_kv(m->base.engine);
    const int32_t len = ls_kv_len(kv, m->seq);
    const int32_t most = len < job->n_token - 1 ? len : job->n_token - 1;
    int32_t c = 0;
    while (c < most && m->cached[c] == job->token[c])
        c++;
    *n = c;
    return ls_kv_rewind(kv, m->seq, c, err);
}

/* Feeds the committed tokens that are missing; row *row of the last pass gives the first draft. */
static ls_status catch_up(model_drafter *m, const ls_draft_job *job, int32_t from, int32_t *row,
                          ls_err *err) {
    ls_engine *e = m->base.engine;
    const int32_t max_rows = ls_engine_opts(e)->max_rows;
    int32_t left = job->n_token - from;
    if (left > max_rows) {
        const int32_t ahead = left - max_rows;
        LS_TRY(ls_prefill(e, m->seq, job->token + from, ahead, from, err));
        memcpy(m->cached + from, job->token + from, (size_t)ahead * sizeof *m->cached);
        from += ahead;
        left = max_rows;
    }
    ls_row rows[LS_PASS_ROWS_MAX];
    for (int32_t i = 0; i < left; i++)
        rows[i] = ls_row_chain(m->seq, job->token[from + i], from + i, i == left - 1);
    const uint32_t pos = (uint32_t)job->n_token;
    const ls_draw draw = job->coupled ? ls_draw_key(job->seed, job->sequence, pos, LS_DRAW_TOKEN, 0)
                                      : ls_draw_key(job->seed, job->sequence, pos, LS_DRAW_DRAFT,
                                                    (uint32_t)job->n_token);
    const ls_draws draws = {.warp = &job->warp, .draw = &draw, .n_top = job->n_top};
    LS_TRY(ls_pass_drawn(e, rows, left, &draws, err));
    memcpy(m->cached + from, job->token + from, (size_t)left * sizeof *m->cached);
    *row = left - 1;
    return LS_OK;
}

/* The cache holds the rows of all drafts but the last; what it holds is known by its tokens. */
static void model_settle(ls_drafter *d, const ls_row_stats *stats, ls_draft_block *block) {
    model_drafter *m = (model_drafter *)d;
    const int32_t len = ls_kv_len(ls_engine_kv(d->engine), m->seq);
    int32_t n = 0;
    if (stats != m->stats)
        memcpy(m->stats, stats, (size_t)block->n * sizeof *stats);
    while (n < block->n && !m->stats[n].flags) { /* a draft without a token is no draft */
        m->token[n] = m->stats[n].token;
        n++;
    }
    for (int32_t i = 0; i < block->n && m->n_token + i < len; i++)
        m->cached[m->n_token + i] = i < n ? m->token[i] : -1;
    block->n = n;
    block->pending = false;
}

/* After each token: brings its statistics and asks whether to go on. */
static ls_status ask(model_drafter *m, const ls_draft_job *job, int32_t i, bool *yes, ls_err *err) {
    ls_backend *be = ls_engine_backend(m->base.engine);
    LS_TRY(
        be->download(be, &m->stats[i], ls_chain_stats(m->base.engine) + i, sizeof *m->stats, err));
    *yes = false;
    if (m->stats[i].flags)
        return LS_OK;
    m->token[i] = m->stats[i].token;
    return job->more(job->more_self, i + 1, m->token[i], &m->stats[i], yes, err);
}

static ls_status model_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                             ls_err *err) {
    model_drafter *m = (model_drafter *)d;
    int32_t have, want = job->n < LS_DRAFT_MAX ? job->n : LS_DRAFT_MAX;
    *out = (ls_draft_block){.token = m->token, .stats = m->stats};
    if (want > d->context - job->n_token + 1) /* the last drafted token takes no row */
        want = d->context - job->n_token + 1;
    if (want < 1)
        return LS_OK;
    LS_TRY(rewind_to_common(m, job, &have, err));
    LS_TRY(ls_kv_reserve(ls_engine_kv(d->engine), m->seq, job->n_token + want - 1, err));
    int32_t row;
    LS_TRY(catch_up(m, job, have, &row, err));
    m->n_token = job->n_token;
    bool yes = true;
    int32_t n = 0;
    while (yes) {
        LS_TRY(ls_chain_feed(d->engine, n ? 0 : row, job->want_probs, err));
        yes = ++n < want;
        if (job->more) {
            bool more;
            LS_TRY(ask(m, job, n - 1, &more, err));
            yes = yes && more;
        }
        if (!yes)
            break;
        m->cached[job->n_token + n - 1] = -1; /* until it is settled, nobody knows */
        LS_TRY(ls_chain_pass(d->engine, m->seq, job->n_top, err));
    }
    out->n = n;
    out->chain = ls_chain_stats(d->engine);
    out->chain_logits = job->want_probs ? ls_chain_logits(d->engine) : NULL;
    out->ld_chain = m->n_vocab;
    out->pending = !job->more;
    if (!out->pending) /* they are all here already */
        model_settle(d, m->stats, out);
    return LS_OK;
}

static ls_status model_probs(ls_drafter *d, int32_t i, const float **row, ls_err *err) {
    model_drafter *m = (model_drafter *)d;
    const float *logits = ls_chain_logits(d->engine);
    ls_backend *be = ls_engine_backend(d->engine);
    const size_t bytes = (size_t)m->n_vocab * sizeof *m->prob;
    if (!logits || i < 0 || i >= LS_DRAFT_MAX)
        return ls_fail(err, LS_ERR_STATE, "drafter: probabilities were not asked for");
    if (!m->prob)
        m->prob = malloc(bytes);
    if (!m->prob)
        return ls_fail(err, LS_ERR_MEMORY, "drafter: out of memory");
    if (!m->prob_d)
        LS_TRY(be->alloc(be, bytes, &m->prob_d, err));
    const ls_probs_args a = {.logits = logits + (size_t)i * (size_t)m->n_vocab,
                             .stats = ls_chain_stats(d->engine) + i,
                             .prob = m->prob_d,
                             .ld_logits = m->n_vocab,
                             .n_vocab = m->n_vocab,
                             .n_rows = 1};
    be->probs(be, &a);
    *row = m->prob;
    return be->download(be, m->prob, m->prob_d, bytes, err);
}

static void model_destroy(ls_drafter *d) {
    model_drafter *m = (model_drafter *)d;
    ls_kv_close(ls_engine_kv(d->engine), m->seq);
    ls_engine_backend(d->engine)->free(ls_engine_backend(d->engine), m->prob_d);
    free(m->cached);
    free(m->prob);
    free(m);
}

ls_status ls_drafter_model(ls_engine *engine, ls_drafter **out, ls_err *err) {
    const ls_engine_options *o = ls_engine_opts(engine);
    model_drafter *m = calloc(1, sizeof *m);
    if (m)
        m->cached = malloc((size_t)o->context * sizeof *m->cached);
    if (!m || !m->cached) {
        free(m);
        return ls_fail(err, LS_ERR_MEMORY, "drafter: out of memory");
    }
    ls_status s = ls_kv_open(ls_engine_kv(engine), &m->seq, err);
    if (s != LS_OK) {
        free(m->cached);
        free(m);
        return s;
    }
    m->n_vocab = o->n_vocab;
    m->base.name = "model";
    m->base.engine = engine;
    m->base.context = o->context;
    m->base.begin = model_begin;
    m->base.draft = model_draft;
    m->base.settle = model_settle;
    m->base.probs = model_probs;
    m->base.destroy = model_destroy;
    *out = &m->base;
    return LS_OK;
}
