/* place.body.h - rope, then the store into the cache, of one row: a warp that rotated a key head
 * stores it, so no warp waits for another. The bits of ls_body_rope and ls_body_kv_store. */
#ifndef LS_PLACE_BODY_H
#define LS_PLACE_BODY_H

#include "rope.body.h"
#include "rows.body.h"

LS_FN void ls_body_place(const ls_rope_args *a, const ls_kv_store_args *b, int r) {
    const int pos = a->pos[r], E = a->head_dim, half = E / 2, slot = b->slot[r];
    const int turns = pos >= 0 && pos < a->n_pos, stores = slot >= 0 && slot < b->n_slots;
    const size_t angle = turns ? (size_t)pos * (size_t)half : 0;
    LS_WARPS (h, a->n_heads + a->n_kv) {
        const int g = h - a->n_heads;
        const size_t from = ((size_t)r * (size_t)a->n_kv + (size_t)ls_max_i(g, 0)) * (size_t)E;
        float *x =
            g < 0 ? a->q + ((size_t)r * (size_t)a->n_heads + (size_t)h) * (size_t)E : a->k + from;
        if (turns)
            ls_rope_head(x, a->cos + angle, a->sin + angle, half);
        LS_WARP_SYNC();
        if (g >= 0 && stores) {
            const size_t to = ((size_t)slot * (size_t)b->n_kv + (size_t)g) * (size_t)E;
            LS_EACH (e, E) {
                ls_kv_put(b->k_pool, to + (size_t)e, b->kv_dtype, b->k[from + (size_t)e]);
                ls_kv_put(b->v_pool, to + (size_t)e, b->kv_dtype, b->v[from + (size_t)e]);
            }
        }
    }
}

#endif
