/* Drafters without a model: prompt look-up and garbage. Both propose a point mass. */
#include <stdlib.h>

#include "draw.h"
#include "drafter.h"

typedef struct lookup {
    ls_drafter base;
    int32_t token[LS_DRAFT_MAX];
    int32_t n_min, n_max, n_eos, n_vocab;
    int32_t *eos;
} lookup;

static ls_status lookup_begin(ls_drafter *d, ls_err *err) {
    (void)d;
    (void)err;
    return LS_OK;
}

static void lookup_destroy(ls_drafter *d) {
    free(((lookup *)d)->eos);
    free(d);
}

/* Asks `more` after each token, as a model drafter would; *n is how many stand. */
static ls_status offer(lookup *u, const ls_draft_job *job, int32_t n, ls_draft_block *out,
                       ls_err *err) {
    int32_t i = 0;
    while (i < n) {
        i++;
        bool yes = true;
        if (job->more)
            LS_TRY(job->more(job->more_self, i, u->token[i - 1], NULL, &yes, err));
        if (!yes)
            break;
    }
    out->n = i;
    out->token = u->token;
    out->stats = NULL;
    return LS_OK;
}

/* Start of the most recent earlier occurrence of the last n tokens, -1 if there is none. */
static int32_t find_ngram(const int32_t *t, int32_t n_token, int32_t n) {
    for (int32_t at = n_token - n - 1; at >= 0; at--) {
        int32_t k = 0;
        while (k < n && t[at + k] == t[n_token - n + k])
            k++;
        if (k == n)
            return at;
    }
    return -1;
}

static ls_status ngram_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                             ls_err *err) {
    lookup *u = (lookup *)d;
    int32_t n = 0;
    const int32_t want = job->n < LS_DRAFT_MAX ? job->n : LS_DRAFT_MAX;
    for (int32_t len = u->n_max; len >= u->n_min && n == 0 && want > 0; len--) {
        const int32_t at = len < job->n_token ? find_ngram(job->token, job->n_token, len) : -1;
        bool end = at < 0;
        for (int32_t from = at + len; !end && n < want && from < job->n_token; from++) {
            u->token[n++] = job->token[from];
            for (int32_t e = 0; e < u->n_eos; e++)
                end = end || job->token[from] == u->eos[e];
        }
    }
    return offer(u, job, n, out, err);
}

static ls_status garbage_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                               ls_err *err) {
    lookup *u = (lookup *)d;
    const int32_t n = job->n < LS_DRAFT_MAX ? job->n : LS_DRAFT_MAX;
    for (int32_t i = 0; i < n; i++) {
        const ls_draw key = ls_draw_key(job->seed, job->sequence, (uint32_t)(job->n_token + i),
                                        LS_DRAW_TEST, (uint32_t)job->n_token);
        u->token[i] = (int32_t)(ls_draw_word(&key, 0) % (uint32_t)u->n_vocab);
    }
    return offer(u, job, n, out, err);
}

static lookup *lookup_create(const char *name) {
    lookup *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->base.name = name;
    u->base.context = INT32_MAX;
    u->base.begin = lookup_begin;
    u->base.destroy = lookup_destroy;
    return u;
}

ls_status ls_drafter_ngram(int32_t n_min, int32_t n_max, const int32_t *eos, int32_t n_eos,
                           ls_drafter **out, ls_err *err) {
    if (n_min < 1 || n_max < n_min)
        return ls_fail(err, LS_ERR_INPUT, "ngram drafter: lengths %d..%d, need 1 <= min <= max",
                       n_min, n_max);
    lookup *u = lookup_create("ngram");
    if (u)
        u->eos = malloc(((size_t)n_eos + 1) * sizeof *u->eos);
    if (!u || !u->eos) {
        free(u);
        return ls_fail(err, LS_ERR_MEMORY, "ngram drafter: out of memory");
    }
    for (int32_t i = 0; i < n_eos; i++)
        u->eos[i] = eos[i];
    u->n_min = n_min;
    u->n_max = n_max;
    u->n_eos = n_eos;
    u->base.draft = ngram_draft;
    *out = &u->base;
    return LS_OK;
}

ls_status ls_drafter_garbage(int32_t n_vocab, ls_drafter **out, ls_err *err) {
    if (n_vocab < 1)
        return ls_fail(err, LS_ERR_SHAPE, "garbage drafter: a vocabulary of %d", n_vocab);
    lookup *u = lookup_create("garbage");
    if (!u)
        return ls_fail(err, LS_ERR_MEMORY, "garbage drafter: out of memory");
    u->n_vocab = n_vocab;
    u->base.draft = garbage_draft;
    *out = &u->base;
    return LS_OK;
}
