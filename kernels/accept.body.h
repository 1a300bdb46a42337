/* accept.body.h - the verdict on a round of drafts (N-ACC), in order, until one does not stand.
 * EXACT      draft i stands iff it is target[i].token; that token follows where one does not.
 * REJECTION  draft x stands iff p(x) > 0 and u q(x) <= p(x): u and q have 24 bits each, so the
 *            product is exact in double. Else the draw of N-DRAW from max(p - q, 0), the difference
 *            rounded once; where that has no mass, p = q and x stands iff p(x) > 0.
 *            Leviathan et al. 2211.17192, Chen et al. 2302.01318.
 * Ends       a target row with flags: no token. A draft row with flags, a token outside the
 *            vocabulary (REJECTION) and row n: the target's own token follows.
 * Block      one for the round: every thread walks the drafts alike, the warps share a residual. */
#ifndef LS_ACCEPT_BODY_H
#define LS_ACCEPT_BODY_H

#include "backend.h"
#include "draw.body.h"
#include "draw.h"
#include "stats.body.h"
#include "tile.h"

typedef struct ls_accept_mem {
    ls_choose_mem choose;
} ls_accept_mem;

/* p and q of the place of draft i. */
typedef struct ls_accept_row {
    const float *logits, *draft_logits;
    const ls_row_stats *target, *draft; /* draft NULL: all of q is at `token` */
    int32_t token;
} ls_accept_row;

LS_FN float ls_accept_p(const ls_accept_row *row) {
    return part_first(ls_prob_of(row->target, part_set(row->logits[row->token])));
}
LS_FN float ls_accept_q(const ls_accept_row *row) {
    return row->draft ? part_first(ls_prob_of(row->draft, part_set(row->draft_logits[row->token])))
                      : 1.0f;
}

/* weight[x] = max(p(x) - q(x), 0) */
LS_FN void ls_accept_residual(const ls_accept_row *row, int n, float *weight) {
    const part_f32 zero = part_set(0.0f);
    LS_WARPS (j, ls_ceil_div(n, LS_LANES)) {
        const int k = j * LS_LANES;
        LS_FOR_PARTS (i) {
            const part_f32 p = ls_probs_at(row->logits, row->target, k, n, i);
            part_f32 q;
            if (row->draft)
                q = ls_probs_at(row->draft_logits, row->draft, k, n, i);
            else
                q = part_select(
                    part_ieq(part_iadd(part_iset(k), part_iota(i)), part_iset(row->token)),
                    part_set(1.0f), zero);
            const part_f32 w = part_sub(p, q);
            part_store_n(weight + k, n - k, i, part_select(part_gt(w, zero), w, zero));
        }
    }
    LS_BARRIER(); /* the weights are written */
}

/* Whether draft i stands under REJECTION; where it does not, *token is what follows instead. */
LS_FN int ls_accept_rejection(const ls_accept_args *a, int i, ls_accept_mem *mem, int32_t *token) {
    ls_accept_row row;
    row.token = a->token[i];
    if (row.token < 0 || row.token >= a->n_vocab)
        return 0;
    row.logits = a->logits + (size_t)i * (size_t)a->ld_logits;
    row.target = a->target + i;
    row.draft = a->draft ? a->draft + i : NULL;
    row.draft_logits = a->draft ? a->draft_logits + (size_t)i * (size_t)a->ld_draft : NULL;
    const uint32_t position = a->position + (uint32_t)i;
    const float p = ls_accept_p(&row), q = ls_accept_q(&row);
    const ls_draw test = ls_draw_at(a->seed, a->sequence, position, LS_DRAW_ACCEPT);
    const float u = ls_draw_first(&test);
    if (p > 0.0f && (double)u * (double)q <= (double)p)
        return 1;
    ls_accept_residual(&row, a->n_vocab, a->weight);
    const ls_draw draw = ls_draw_at(a->seed, a->sequence, position, LS_DRAW_RESIDUAL);
    const int32_t drawn = ls_choose_token(a->weight, a->n_vocab, &draw, &mem->choose);
    if (drawn < 0)
        return p > 0.0f;
    *token = drawn;
    return 0;
}

LS_FN void ls_body_accept(const ls_accept_args *a, ls_accept_mem *mem) {
    int32_t token = -1;
    int i = 0;
    for (;; i++) {
        const ls_row_stats *target = a->target + i;
        token = target->flags ? -1 : target->token;
        if (target->flags || i == a->n || (a->draft && a->draft[i].flags))
            break;
        if (a->kind == LS_ACCEPT_REJECTION ? !ls_accept_rejection(a, i, mem, &token)
                                           : a->token[i] != token)
            break;
    }
    LS_WARP0 LS_LANE0 {
        a->out->n_accept = i;
        a->out->token = token;
    }
}

#endif
