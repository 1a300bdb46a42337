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
    float *prob; /* [LS_DRAFT_MAX, V], made when first wanted */
    int32_t n_vocab;
} model_drafter;

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

/* Feeds the committed tokens that are missing; the last row of the last pass gives logits. */
static ls_status catch_up(model_drafter *m, const ls_draft_job *job, int32_t from, ls_err *err) {
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
    LS_TRY(ls_pass(e, rows, left, err));
    memcpy(m->cached + from, job->token + from, (size_t)left * sizeof *m->cached);
    return LS_OK;
}

static ls_status keep_probs(model_drafter *m, int32_t i, ls_err *err) {
    if (!m->prob) {
        m->prob = malloc((size_t)LS_DRAFT_MAX * (size_t)m->n_vocab * sizeof *m->prob);
        if (!m->prob)
            return ls_fail(err, LS_ERR_MEMORY, "drafter: out of memory");
    }
    return ls_pass_probs(m->base.engine, 0, &m->stats[i], m->prob + (size_t)i * (size_t)m->n_vocab,
                         err);
}

static ls_status model_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                             ls_err *err) {
    model_drafter *m = (model_drafter *)d;
    int32_t have, want = job->n < LS_DRAFT_MAX ? job->n : LS_DRAFT_MAX;
    out->n = 0;
    out->token = m->token;
    out->stats = m->stats;
    if (want > d->context - job->n_token + 1) /* the last drafted token takes no row */
        want = d->context - job->n_token + 1;
    if (want < 1)
        return LS_OK;
    LS_TRY(rewind_to_common(m, job, &have, err));
    LS_TRY(catch_up(m, job, have, err));
    for (int32_t i = 0;; i++) {
        const int32_t pos = job->n_token + i;
        const ls_draw draw =
            job->coupled ? ls_draw_key(job->seed, job->sequence, (uint32_t)pos, LS_DRAW_TOKEN, 0)
                         : ls_draw_key(job->seed, job->sequence, (uint32_t)pos, LS_DRAW_DRAFT,
                                       (uint32_t)job->n_token);
        LS_TRY(ls_pass_stats(d->engine, 0, 1, &job->warp, &draw, job->n_top, &m->stats[i], err));
        if (m->stats[i].flags)
            return LS_OK; /* a draft without a token is no draft; the target's rows are what counts */
        m->token[i] = m->stats[i].token;
        if (job->want_probs)
            LS_TRY(keep_probs(m, i, err));
        out->n = i + 1;
        bool yes = out->n < want;
        if (yes && job->more)
            LS_TRY(job->more(job->more_self, out->n, m->token[i], &m->stats[i], &yes, err));
        if (!yes)
            return LS_OK;
        const ls_row row = ls_row_chain(m->seq, m->token[i], pos, true);
        LS_TRY(ls_pass(d->engine, &row, 1, err));
        m->cached[pos] = m->token[i];
    }
}

static ls_status model_probs(ls_drafter *d, int32_t i, const float **row, ls_err *err) {
    model_drafter *m = (model_drafter *)d;
    if (!m->prob || i < 0 || i >= LS_DRAFT_MAX)
        return ls_fail(err, LS_ERR_STATE, "drafter: probabilities were not asked for");
    *row = m->prob + (size_t)i * (size_t)m->n_vocab;
    return LS_OK;
}

static void model_destroy(ls_drafter *d) {
    model_drafter *m = (model_drafter *)d;
    ls_kv_close(ls_engine_kv(d->engine), m->seq);
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
    m->base.probs = model_probs;
    m->base.destroy = model_destroy;
    *out = &m->base;
    return LS_OK;
}
