/* rope.body.h - rotary embedding of one row in place (N-ROPE), half-split pairs (i, i + E/2).
 * Order   u' = fma(u, cos, -(v sin)), v' = fma(v, cos, u sin): the second product is rounded first.
 * Tables  cos and sin [n_pos, E/2], made on the host in double. A position outside them leaves the
 *         row as it is. */
#ifndef LS_ROPE_BODY_H
#define LS_ROPE_BODY_H

#include "backend.h"
#include "tile.h"

/* Pairs i .. i + 31 of one head x[2 half]: u of the lower half, v of the upper. */
typedef struct ls_pairs {
    lane_f32 u, v;
} ls_pairs;
LS_FN ls_pairs ls_pairs_of(const float *x, int half, int i) {
    ls_pairs p;
    p.u = lane_load_n(x, (size_t)i, half - i, LS_F32);
    p.v = lane_load_n(x + half, (size_t)i, half - i, LS_F32);
    return p;
}
LS_FN void ls_pairs_store(float *x, int half, int i, ls_pairs p) {
    lane_store_n(x + i, half - i, p.u);
    lane_store_n(x + half + i, half - i, p.v);
}
LS_FN ls_pairs ls_pairs_turned(ls_pairs p, const float *cos, const float *sin, int half, int i) {
    const lane_f32 c = lane_load_n(cos, (size_t)i, half - i, LS_F32);
    const lane_f32 s = lane_load_n(sin, (size_t)i, half - i, LS_F32);
    const lane_f32 minus = lane_sub(lane_set(-0.0f), lane_mul(p.v, s)); /* -0 - a is exactly -a */
    ls_pairs r;
    r.u = lane_fma(p.u, c, minus);
    r.v = lane_fma(p.v, c, lane_mul(p.u, s));
    return r;
}

LS_FN void ls_body_rope(const ls_rope_args *a, int r) {
    const int pos = a->pos[r], half = a->head_dim / 2;
    if (pos < 0 || pos >= a->n_pos)
        return;
    const float *cos = a->cos + (size_t)pos * (size_t)half,
                *sin = a->sin + (size_t)pos * (size_t)half;
    LS_WARPS (h, a->n_heads + a->n_kv) {
        const int g = h - a->n_heads;
        float *x = g < 0 ? a->q + ((size_t)r * (size_t)a->n_heads + (size_t)h) * (size_t)a->head_dim
                         : a->k + ((size_t)r * (size_t)a->n_kv + (size_t)g) * (size_t)a->head_dim;
        for (int i = 0; i < half; i += LS_LANES)
            ls_pairs_store(x, half, i, ls_pairs_turned(ls_pairs_of(x, half, i), cos, sin, half, i));
    }
}

#endif
