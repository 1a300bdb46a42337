/* check.h - is a speculative run bit for bit the plain one? Tokens, logits, cache.
 * Check       runs ls_generate and compares position by position. The first difference is triaged:
 *             both passes are run again with a trace and compared operation by operation.
 * Errors      only what keeps the check from running; a fork is a result, not an error.
 * Memory      the transcript; while triaging, every operation's output for one row, twice. */
#ifndef LS_CHECK_H
#define LS_CHECK_H

#include <stdio.h>

#include "plain.h"

typedef enum ls_fork_kind {
    LS_FORK_NONE = 0,
    LS_FORK_LOGITS, /* same tokens so far, other logits bits */
    LS_FORK_TOKEN,  /* same logits bits, another token: a fault of the rule or the draw */
    LS_FORK_LENGTH, /* one text goes on where the other ended: a fault of the end conditions */
    LS_FORK_CACHE   /* same tokens and logits, another cache row */
} ls_fork_kind;

typedef struct ls_fork {
    ls_fork_kind kind;
    int32_t position; /* absolute, of the first difference */
    int32_t token_plain, token_spec;
    int32_t round, row, rows; /* the verify pass it came from, the row in it, and its rows */
    int32_t layer;            /* -1: embedding or head */
    char op[24];              /* first operation whose output differs; "" if a rerun agreed */
    int32_t element;
    uint32_t bits_plain, bits_spec;
    int64_t ulp;  /* distance of the two in units in the last place */
    float margin; /* plain's largest minus second largest logit at that position */
} ls_fork;

typedef struct ls_check_result {
    bool same;
    int64_t n_position;     /* tokens compared */
    int64_t n_logit;        /* logits compared (values) */
    int64_t n_cache;        /* cache values compared */
    int64_t n_differ;       /* positions whose token or logits differ, 0 when same */
    int64_t n_cache_differ; /* cache rows that differ */
    ls_fork fork;
    ls_transcript spec;
    char digest_token[65], digest_logits[65],
        digest_cache[65]; /* chains over all positions (plain's) */
} ls_check_result;

/* gen->hooks must be empty but for stop. Zero the result first; free it with ls_check_free. */
ls_status ls_check_run(const ls_gen *gen, const ls_plain *plain, ls_engine *plain_engine,
                       ls_check_result *out, ls_err *err);
void ls_check_free(ls_check_result *r);

/* One line for a person: where, what, bits, distance, margin, and what kind of fault that is. */
void ls_fork_print(FILE *f, const ls_fork *fork);

#endif
