/* place.body.h - rope, then the store into the cache, of one row: a warp that rotated 32 pairs of a
 * key head stores them, so no warp waits for another. k of both arguments is the same. The bits of
 * ls_body_rope and ls_body_kv_store. */
#ifndef LS_PLACE_BODY_H
#define LS_PLACE_BODY_H

#include "rope.body.h"
#include "rows.body.h"

/* Row r, at position pos, into a slot. */
LS_FN void ls_place_row(const ls_rope_args *a, const ls_kv_store_args *b, int r, int pos,
                        int slot) {
    const int E = a->head_dim, half = E / 2;
    const int turns = pos >= 0 && pos < a->n_pos, stores = slot >= 0 && slot < b->n_slots;
    const int pieces = ls_ceil_div(half, LS_LANES);
    const size_t angle = turns ? (size_t)pos * (size_t)half : 0;
    LS_WARPS (i, (a->n_heads + a->n_kv) * pieces) {
        const int h = i / pieces, e0 = i % pieces * LS_LANES, n = half - e0, g = h - a->n_heads;
        const size_t from = ((size_t)r * (size_t)a->n_kv + (size_t)ls_max_i(g, 0)) * (size_t)E;
        const int stored = g >= 0 && stores;
        float *x =
            g < 0 ? a->q + ((size_t)r * (size_t)a->n_heads + (size_t)h) * (size_t)E : a->k + from;
        ls_pairs p = ls_pairs_of(x, half, e0), value = p;
        if (stored)
            value = ls_pairs_of(b->v + from, half, e0);
        if (turns) {
            p = ls_pairs_turned(p, a->cos + angle, a->sin + angle, half, e0);
            ls_pairs_store(x, half, e0, p);
        }
        if (stored) {
            const size_t to = ((size_t)slot * (size_t)b->n_kv + (size_t)g) * (size_t)E + (size_t)e0;
            ls_kv_put_lanes(b->k_pool, to, n, b->kv_dtype, p.u);
            ls_kv_put_lanes(b->k_pool, to + (size_t)half, n, b->kv_dtype, p.v);
            ls_kv_put_lanes(b->v_pool, to, n, b->kv_dtype, value.u);
            ls_kv_put_lanes(b->v_pool, to + (size_t)half, n, b->kv_dtype, value.v);
        }
    }
}

LS_FN void ls_body_place(const ls_rope_args *a, const ls_kv_store_args *b, int r) {
    ls_place_row(a, b, r, a->pos[r], b->slot[r]);
}

#endif
