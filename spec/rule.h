/* rule.h - an acceptance rule: which drafted tokens are kept, and what stands where one is not.
 * Exact       `exact` keeps a draft iff it is the token plain decode draws there: same tokens, bit
 *             for bit, greedy or sampled (coupled: the draft draws with the same numbers).
 * Lossless    `rejection` keeps the distribution (Leviathan et al. 2211.17192; Chen et al.
 *             2302.01318), with a point mass for drafters that have no probabilities.
 * Lossy       everything else says so, and every record repeats it.
 * Errors      LS_ERR_NUMERIC for a row without a token; LS_ERR_SCRIPT from a rule written in
 *             Lua. */
#ifndef LS_RULE_H
#define LS_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

/* One verified row: the target's view of the position after `index` drafts were kept. */
typedef struct ls_judge {
    int32_t position; /* absolute position of the token in question */
    int32_t index;    /* 0-based place in the draft; n_draft = the bonus row */
    int32_t n_draft;
    int32_t draft;                   /* drafted token, -1 on the bonus row */
    const ls_row_stats *target;      /* target.token is what plain decode draws here */
    const ls_row_stats *draft_stats; /* NULL on the bonus row or if the drafter has none */
    const float *p_target;           /* [V] warped, host memory; NULL unless needs_target */
    const float *p_draft;            /* [V]; NULL unless needs_draft, or for a point mass */
    int32_t n_vocab;
    uint64_t seed;
    uint32_t sequence;
    float temperature;
} ls_judge;

typedef struct ls_verdict {
    bool accept;   /* keep the draft; never on the bonus row */
    int32_t token; /* emitted instead when not accepted (and on the bonus row) */
} ls_verdict;

typedef enum ls_rule_kind { LS_RULE_EXACT, LS_RULE_LOSSLESS, LS_RULE_LOSSY } ls_rule_kind;

typedef struct ls_rule ls_rule;
struct ls_rule {
    const char *name;
    const char *where; /* file or "built in" */
    ls_rule_kind kind;
    bool coupled;                            /* drafts draw with the target's own numbers */
    ls_accept_kind accept;                   /* judged on the device, all rows at once: no judge */
    bool needs_target, needs_draft;          /* probability rows it reads */
    int32_t n_top;                           /* top tokens it wants of the target's row */
    ls_status (*begin)(ls_rule *, ls_err *); /* a new run; may be NULL */
    ls_status (*judge)(ls_rule *, const ls_judge *, ls_verdict *, ls_err *);
    void (*destroy)(ls_rule *);
};

static inline void ls_rule_destroy(ls_rule *r) {
    if (r)
        r->destroy(r);
}
static inline const char *ls_rule_kind_name(ls_rule_kind k) {
    return k == LS_RULE_EXACT ? "exact" : k == LS_RULE_LOSSLESS ? "lossless" : "lossy";
}

/* "exact" or "rejection": the rules of N-ACC. */
ls_status ls_rule_builtin(const char *name, ls_rule **out, ls_err *err);

#endif
