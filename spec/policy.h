/* policy.h - a length policy: how much to draft. It can make a run slow, never wrong.
 * Calls    plan before a round; more after each drafted token (NULL: the whole plan is drafted
 *          without returning to the host); observe after verification (NULL: not wanted).
 * Sees     the past rounds as counts and the drafter's own statistics, never the target's future.
 * Errors   whatever the policy's author did wrong comes back as LS_ERR_SCRIPT and ends the run.
 * Memory   a policy belongs to whoever created it; one run at a time. */
#ifndef LS_POLICY_H
#define LS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

#define LS_DRAFT_MAX 64 /* most tokens of one draft */

/* One round, as the records hold it (C021). Times in microseconds. */
typedef struct ls_round {
    int32_t position;  /* absolute position of the round's first token */
    int32_t planned;   /* what the policy asked for, before the clamp */
    int32_t proposed;  /* drafted tokens sent to verification */
    int32_t accepted;  /* drafted tokens emitted; replaced by a rule does not count */
    int32_t evaluated; /* drafted tokens judged: accepted, plus 1 if one was refused */
    int32_t emitted;   /* accepted + the bonus or corrected token, less what the end cut off */
    bool clamped;      /* planned did not fit the room left */
    float draft_us, verify_us, policy_us, accept_us;
} ls_round;

/* What a policy may know before a round. Rates: at depth d (1-based, index d - 1), tried counts the
 * rounds that judged a token there, accepted those that took it. */
typedef struct ls_policy_ctx {
    int32_t position; /* of the next token */
    int32_t n_prompt;
    int32_t n_new; /* tokens emitted so far */
    int32_t room;  /* most that can be drafted now: context, wanted tokens, LS_DRAFT_MAX */
    int32_t n_rounds;
    ls_round last; /* the last round; all zero before the first */
    int32_t tried[LS_DRAFT_MAX], accepted[LS_DRAFT_MAX];
    double draft_us;                    /* mean time of a drafted token so far, 0 = not known */
    double verify_us[LS_DRAFT_MAX + 1]; /* mean time of a pass by drafts verified, 0 = not known */
    float temperature;
    uint64_t seed;
    uint32_t sequence;
} ls_policy_ctx;

/* A token just drafted. */
typedef struct ls_policy_step {
    int32_t n; /* drafted in this round so far, this one included */
    int32_t token;
    float prob;    /* the draft's probability of it (warped; 1 where the drafter has none) */
    float entropy; /* nats, of the draft's distribution; 0 where it has none */
    float margin;  /* largest minus second largest draft logit */
    int32_t n_top;
    const int32_t *top_token;
    const float *top_prob;
} ls_policy_step;

typedef struct ls_policy ls_policy;
struct ls_policy {
    const char *name;
    const char *where; /* file or "built in", for records */
    int32_t n_top;     /* top tokens it wants in a step, 0..LS_TOP_MAX */
    ls_status (*begin)(ls_policy *, const ls_policy_ctx *, ls_err *); /* a new run; may be NULL */
    /* Any n >= 0: the caller clamps to ctx->room and marks the round. */
    ls_status (*plan)(ls_policy *, const ls_policy_ctx *, int64_t *n, ls_err *);
    ls_status (*more)(ls_policy *, const ls_policy_ctx *, const ls_policy_step *, bool *, ls_err *);
    ls_status (*observe)(ls_policy *, const ls_policy_ctx *, const ls_round *, ls_err *);
    void (*destroy)(ls_policy *);
};

static inline void ls_policy_destroy(ls_policy *p) {
    if (p)
        p->destroy(p);
}

/* The one policy the host brings itself: always n (0 = plain decode through the same rounds). */
ls_status ls_policy_fixed(int32_t n, ls_policy **out, ls_err *err);

#endif
