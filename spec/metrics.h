/* metrics.h - from rounds to numbers: how much was drafted, how much of it was kept, at what depth.
 * Counts      everything is an integer count until the last division; two sets of counts pool by
 *             addition. A rate without a denominator is absent (null in JSON), never 0 or NaN.
 * Words       drafted    tokens sent to verification
 *             accepted   drafted tokens that were emitted
 *             evaluated  drafted tokens that were judged: what stood behind a refusal or behind
 *                        the end of the text is neither accepted nor refused
 *             emitted    accepted + the bonus or corrected token, less what the end cut off
 *             depth d    the d-th token of a draft, 1-based; arrays hold it at d - 1
 * Rates       acceptance     accepted / evaluated, which is the maximum-likelihood estimate under
 *                            censoring: accepted / (accepted + rounds that ended in a refusal). A
 *                            draft that was kept whole only says "at least this long".
 *             yield          accepted / drafted. Falls as drafts get longer, whatever the drafter.
 *             conditional    at depth d, of the rounds in which all before d were kept and d was
 *                            judged, the share that kept d
 *             unconditional  at depth d, of the rounds that drafted to d and whose text did not end
 *                            before it, the share that kept d
 *             per pass       emitted / target passes of the decode loop (prompt not counted)
 * Errors      a round that contradicts itself is LS_ERR_SHAPE, and is not added.
 * Memory      plain structs, nothing to free. */
#ifndef LS_METRICS_H
#define LS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy.h"

/* A share that remembers what it is made of. */
typedef struct ls_rate {
    int64_t num, den;
} ls_rate;

/* False, and *value untouched, when nothing was counted. */
static inline bool ls_rate_get(ls_rate r, double *value) {
    if (r.den <= 0)
        return false;
    *value = (double)r.num / (double)r.den;
    return true;
}

typedef struct ls_metrics {
    int64_t n_round;       /* target passes */
    int64_t n_draft_round; /* those that verified at least one drafted token */
    int64_t n_drafted, n_accepted, n_evaluated, n_emitted;
    int64_t n_refused;             /* rounds that ended in a refusal */
    int64_t n_cut;                 /* rounds in which the text ended inside the draft */
    int64_t n_clamped;             /* rounds whose plan did not fit the room left */
    int64_t kept[LS_DRAFT_MAX];    /* rounds that kept depth d */
    int64_t judged[LS_DRAFT_MAX];  /* rounds that judged depth d */
    int64_t reached[LS_DRAFT_MAX]; /* rounds that drafted to d and did not end before it */
    double draft_us, verify_us, policy_us, accept_us;
} ls_metrics;

/* Start from a zeroed struct. */
ls_status ls_metrics_add(ls_metrics *m, const ls_round *round, ls_err *err);
ls_status ls_metrics_add_all(ls_metrics *m, const ls_round *round, int32_t n, ls_err *err);
void ls_metrics_pool(ls_metrics *into, const ls_metrics *from);

ls_rate ls_metrics_acceptance(const ls_metrics *m);
ls_rate ls_metrics_yield(const ls_metrics *m);
ls_rate ls_metrics_per_pass(const ls_metrics *m);
ls_rate ls_metrics_per_draft(const ls_metrics *m); /* accepted / rounds that drafted */
ls_rate ls_metrics_conditional(const ls_metrics *m, int32_t depth);
ls_rate ls_metrics_unconditional(const ls_metrics *m, int32_t depth);
int32_t ls_metrics_depth(const ls_metrics *m); /* deepest judged, 0 = nothing was */

#endif
