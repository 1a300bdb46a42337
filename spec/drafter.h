/* drafter.h - where drafts come from: a draft model, a look-up, or deliberate garbage.
 * Sees     the committed tokens, and its own model; never the target's future.
 * Cache    a drafter keeps its own; draft() rewinds it to what is common with the tokens given.
 * Errors   a drafter that has nothing to offer answers with fewer tokens, or none: not an error.
 * Memory   engines are borrowed. A block is valid until the next draft() of the drafter. */
#ifndef LS_DRAFTER_H
#define LS_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "policy.h"

typedef struct ls_draft_job {
    const int32_t *token; /* committed so far, prompt included */
    int32_t n_token;
    int32_t n; /* draft at most this many, <= LS_DRAFT_MAX */
    ls_warp warp;
    uint64_t seed;
    uint32_t sequence;
    bool coupled;    /* draw with LS_DRAW_TOKEN; else LS_DRAW_DRAFT salted with n_token */
    bool want_probs; /* keep what probability rows are made of */
    int32_t n_top;
    /* Asked after each token; stops when it answers false. NULL: draft all n. */
    ls_status (*more)(void *self, int32_t n, int32_t token, const ls_row_stats *stats, bool *yes,
                      ls_err *err);
    void *more_self;
} ls_draft_job;

typedef struct ls_draft_block {
    int32_t n;
    const int32_t *token;      /* [n] */
    const ls_row_stats *stats; /* [n], NULL: the drafter has no distribution (a point mass) */
    /* A model's drafts are on its device too: statistics [n] and, with want_probs, logits
     * [n, ld_chain]. When `pending`, they are only there: n is how many were asked for, and token
     * and stats become true when `settle` is given what ls_pass_result brought. */
    const ls_row_stats *chain;
    const float *chain_logits;
    int32_t ld_chain;
    bool pending;
} ls_draft_block;

typedef struct ls_drafter ls_drafter;
struct ls_drafter {
    const char *name;
    ls_engine *engine; /* NULL without a model */
    int32_t context;   /* tokens it can look at; INT32_MAX without a model */
    ls_status (*begin)(ls_drafter *, ls_err *); /* a new sequence: forget the last */
    ls_status (*draft)(ls_drafter *, const ls_draft_job *, ls_draft_block *, ls_err *);
    /* Makes a pending block true: stats [n] as they were drawn. Drafts end before one with
     * flags. */
    void (*settle)(ls_drafter *, const ls_row_stats *stats, ls_draft_block *);
    /* Probability row of drafted token i of the last block, host memory [V] (want_probs only). */
    ls_status (*probs)(ls_drafter *, int32_t i, const float **row, ls_err *);
    void (*destroy)(ls_drafter *);
};

static inline void ls_drafter_destroy(ls_drafter *d) {
    if (d)
        d->destroy(d);
}

/* A model with the target's vocabulary, on its device. The engine needs one sequence free. */
ls_status ls_drafter_model(ls_engine *engine, ls_drafter **out, ls_err *err);
/* Prompt look-up (Saxena 2023): the most recent earlier occurrence of the last n_max..n_min tokens,
 * longest first; copies what followed, up to and including an end token. A match ends before the
 * suffix begins its last token; the copy never runs into tokens that do not exist yet. */
ls_status ls_drafter_ngram(int32_t n_min, int32_t n_max, const int32_t *eos, int32_t n_eos,
                           ls_drafter **out, ls_err *err);
/* Uniformly random tokens: the worst drafter, for tests and reproducibility studies. */
ls_status ls_drafter_garbage(int32_t n_vocab, ls_drafter **out, ls_err *err);

#endif
