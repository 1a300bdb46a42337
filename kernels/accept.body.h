/* accept.body.h - the verdict on a round of drafts (N-ACC), in order, until one does not stand.
 * EXACT      draft i stands iff it is target[i].token; that token follows where one does not.
 * REJECTION  draft x stands iff p(x) > 0 and u q(x) <= p(x): u and q have 24 bits each, so the
 *            product is exact in double. Else the draw of N-DRAW from max(p - q, 0), the difference
 *            rounded once; where that has no mass, p = q and x stands iff p(x) > 0.
 *            Leviathan et al. 2211.17192, Chen et al. 2302.01318.
 * Ends       a target row with flags: no token. A draft row with flags, a token outside the
 *            vocabulary (REJECTION) and row n: the target's own token follows.
 * Pieces     what a draft comes to needs nothing of another (ls_accept_of): the warps share them,
 *            and the segments of a residual (ls_accept_residual). A second residual is only there
 *            where the first was empty and its draft stands.
 * Block      one for the round: every thread walks the drafts alike. */
#ifndef LS_ACCEPT_BODY_H
#define LS_ACCEPT_BODY_H

#include "backend.h"
#include "draw.body.h"
#include "draw.h"
#include "stats.body.h"
#include "tile.h"

#define LS_ACCEPT_AT_ONCE 32

/* What a draft comes to. */
typedef enum ls_accept_look {
    LS_ACCEPT_STANDS,
    LS_ACCEPT_OWN,     /* it does not, nor do those behind it: the target's own token follows */
    LS_ACCEPT_NO_ROW,  /* likewise, but the target has no token */
    LS_ACCEPT_RESIDUAL /* it does not, unless the residual is empty */
} ls_accept_look;

typedef struct ls_accept_mem {
    int32_t look[LS_ACCEPT_AT_ONCE];
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

LS_FN ls_accept_row ls_accept_row_of(const ls_accept_args *a, int i) {
    ls_accept_row row;
    row.token = a->token[i];
    row.logits = a->logits + (size_t)i * (size_t)a->ld_logits;
    row.target = a->target + i;
    row.draft = a->draft ? a->draft + i : NULL;
    row.draft_logits = a->draft ? a->draft_logits + (size_t)i * (size_t)a->ld_draft : NULL;
    return row;
}
LS_FN ls_draw ls_accept_draw(const ls_accept_args *a, int i, uint32_t purpose) {
    return ls_draw_at(a->seed, a->sequence, a->position + (uint32_t)i, purpose);
}

/* Row i: a draft, or the row behind them all. */
LS_FN int32_t ls_accept_of(const ls_accept_args *a, int i) {
    const ls_row_stats *target = a->target + i;
    if (target->flags)
        return LS_ACCEPT_NO_ROW;
    if (i == a->n || (a->draft && a->draft[i].flags))
        return LS_ACCEPT_OWN;
    const int32_t token = a->token[i];
    if (a->kind != LS_ACCEPT_REJECTION)
        return token == target->token ? LS_ACCEPT_STANDS : LS_ACCEPT_OWN;
    if (token < 0 || token >= a->n_vocab)
        return LS_ACCEPT_OWN;
    const ls_accept_row row = ls_accept_row_of(a, i);
    const float p = ls_accept_p(&row), q = ls_accept_q(&row);
    const ls_draw test = ls_accept_draw(a, i, LS_DRAW_ACCEPT);
    return p > 0.0f && (double)ls_draw_first(&test) * (double)q <= (double)p ? LS_ACCEPT_STANDS
                                                                             : LS_ACCEPT_RESIDUAL;
}

/* The first row from *i on that does not stand at once; what it comes to, in every thread. */
LS_FN int32_t ls_accept_walk(const ls_accept_args *a, int32_t *i, ls_accept_mem *mem) {
    for (;; *i += LS_ACCEPT_AT_ONCE) {
        const int n = ls_min_i(a->n + 1 - *i, LS_ACCEPT_AT_ONCE);
        LS_WARPS (j, n) {
            const int32_t look = ls_accept_of(a, *i + j);
            LS_LANE0 mem->look[j] = look;
        }
        LS_BARRIER();
        int j = 0;
        int32_t look = LS_ACCEPT_STANDS;
        for (; j < n && look == LS_ACCEPT_STANDS; j++)
            look = mem->look[j];
        LS_BARRIER(); /* all have read before the memory is used again */
        if (look != LS_ACCEPT_STANDS) {
            *i += j - 1;
            return look;
        }
    }
}

/* A warp: weight[x] = max(p(x) - q(x), 0) of segment s, and the best of it (ls_choose_segment). */
LS_FN int32_t ls_accept_residual(const ls_accept_args *a, int i, int s, int32_t *token) {
    const ls_accept_row row = ls_accept_row_of(a, i);
    const part_f32 zero = part_set(0.0f);
    const int n = a->n_vocab, end = ls_min_i(n, (s + 1) * LS_SEGMENT);
    for (int k = s * LS_SEGMENT; k < end; k += LS_LANES)
        LS_FOR_PARTS (l) {
            const part_f32 p = ls_probs_at(row.logits, row.target, k, n, l);
            part_f32 q;
            if (row.draft)
                q = ls_probs_at(row.draft_logits, row.draft, k, n, l);
            else
                q = part_select(
                    part_ieq(part_iadd(part_iset(k), part_iota(l)), part_iset(row.token)),
                    part_set(1.0f), zero);
            const part_f32 w = part_sub(p, q);
            part_store_n(a->weight + k, n - k, l, part_select(part_gt(w, zero), w, zero));
        }
    LS_WARP_SYNC(); /* the weights are written */
    const ls_draw draw = ls_accept_draw(a, i, LS_DRAW_RESIDUAL);
    return ls_choose_segment(a->weight, n, &draw, s, token);
}

/* Row i did not stand at once, and `drawn` came of its residual, if it has one. True, and *token,
 * where it ends the round; false: the draft stands. */
LS_FN int ls_accept_ends(const ls_accept_args *a, int i, int32_t look, int32_t drawn,
                         int32_t *token) {
    *token = look == LS_ACCEPT_NO_ROW ? -1 : a->target[i].token;
    if (look != LS_ACCEPT_RESIDUAL)
        return 1;
    if (drawn >= 0) {
        *token = drawn;
        return 1;
    }
    const ls_accept_row row = ls_accept_row_of(a, i);
    return !(ls_accept_p(&row) > 0.0f);
}

/* The verdict from row i on: rows before it stand. */
LS_FN void ls_accept_from(const ls_accept_args *a, int32_t i, ls_accept_mem *mem) {
    const int n_seg = ls_ceil_div(a->n_vocab, LS_SEGMENT);
    for (;; i++) {
        const int32_t look = ls_accept_walk(a, &i, mem);
        int32_t token, drawn = -1;
        if (look == LS_ACCEPT_RESIDUAL) {
            LS_WARPS (s, n_seg) {
                int32_t id;
                const int32_t key = ls_accept_residual(a, i, s, &id);
                LS_LANE0 {
                    mem->choose.key[s] = key;
                    mem->choose.id[s] = id;
                }
            }
            LS_BARRIER();
            drawn = ls_choose_of(mem->choose.key, mem->choose.id, n_seg);
            LS_BARRIER(); /* all have read before the memory is used again */
        }
        if (!ls_accept_ends(a, i, look, drawn, &token))
            continue;
        LS_WARP0 LS_LANE0 {
            a->out->n_accept = i;
            a->out->token = token;
        }
        return;
    }
}

LS_FN void ls_body_accept(const ls_accept_args *a, ls_accept_mem *mem) {
    ls_accept_from(a, 0, mem);
}

#endif
