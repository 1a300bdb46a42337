/* chain.body.h - what joins passes into a chain without the host: a drawn token becomes the input
 * of the next single-row pass, its logits and statistics are kept, the chain becomes the input of a
 * wider pass. Moves only: every value is copied with its bits.
 * Counter  at[0] is the place in the chain. Where it is outside [0, n) nothing is kept and nothing
 *          fed, so a chain that is replayed too often stands still.
 * Order    keep reads at[0] and feed moves it on: a step keeps, then feeds. */
#ifndef LS_CHAIN_BODY_H
#define LS_CHAIN_BODY_H

#include "attn.body.h"
#include "backend.h"
#include "tile.h"

/* Statistics as words, so that the lanes of a warp share a copy. */
typedef union ls_stats_words {
    ls_row_stats stats;
    uint32_t word[sizeof(ls_row_stats) / sizeof(uint32_t)];
} ls_stats_words;

LS_FN void ls_stats_copy(ls_row_stats *to, const ls_row_stats *from) {
    uint32_t *w = ((ls_stats_words *)(void *)to)->word;
    const uint32_t *v = ((const ls_stats_words *)(const void *)from)->word;
    LS_EACH (i, (int)(sizeof(ls_row_stats) / sizeof(uint32_t)))
        w[i] = v[i];
}

/* Elements [s * LS_SEGMENT, ...) of the row. */
LS_FN void ls_body_keep(const ls_keep_args *a, int s) {
    const int at = a->at[0], k0 = s * LS_SEGMENT, end = ls_min_i(a->dim, k0 + LS_SEGMENT);
    if (at < 0 || at >= a->n)
        return;
    float *y = a->y + (size_t)at * (size_t)a->dim;
    LS_WARPS (i, ls_ceil_div(end - k0, LS_LANES)) {
        const int k = k0 + i * LS_LANES;
        lane_store_n(y + k, end - k, lane_load_n(a->x, (size_t)k, end - k, LS_F32));
    }
}

/* One warp. The new row's logical index is the number of keys of row `row`. */
LS_FN void ls_body_feed(const ls_feed_args *a) {
    const int at = a->at[0];
    if (at < 0 || at >= a->n)
        return;
    ls_stats_copy(a->chain + at, a->stats);
    LS_WARP_SYNC(); /* every lane has read the counter before it moves */
    LS_LANE0 {
        const int32_t index = a->length[a->row], pos = a->pos[a->row];
        a->token[0] = a->stats->flags ? -1 : a->stats->token;
        a->pos[0] = pos + 1;
        a->length[0] = index + 1;
        a->slot[0] = ls_locate(&a->loc, 0, index);
        a->draw[0].position += 1;
        a->at[0] = at + 1;
    }
}

/* One warp: entry i. */
LS_FN void ls_body_take(const ls_take_args *a, int i) {
    ls_stats_copy(a->copy + i, a->chain + i);
    LS_LANE0 a->token[i] = a->chain[i].token;
}

#endif
