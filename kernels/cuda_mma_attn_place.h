/* cuda_mma_attn_place.h - rope and the store into the cache inside the launch of the chunks, for
 * cuda_mma_attn.cu (place_attn of backend.h, few rows). The bits are those of place.body.h.
 * Queries   a block turns those of its own columns as it reads them.
 * Keys      the warps of a ring that come to the first tile with keys of this pass store the rows of
 *           the pass, all of them, for their key/value head, and then copy the tile. Several blocks
 *           may do so: they write the same values, and none reads what it has not written itself.
 * Tables    positions and slots are read before the launch ahead has ended. */
#ifndef LS_CUDA_MMA_ATTN_PLACE_H
#define LS_CUDA_MMA_ATTN_PLACE_H

#include "convert.h"
#include "cuda_mma_attn_tile.h"

/* What is placed: the rows of the attention, with its heads and its pools. */
typedef struct placing {
    const float *k, *v;        /* [R, G, E]; k NULL: a launch ahead has placed them */
    const float *cos, *sin;    /* [n_pos, E/2] */
    const int32_t *pos, *slot; /* [R] */
    uint16_t *k_pool, *v_pool; /* [n_slots, G, E], the attention's */
    int32_t n_pos, n_slots;
} placing;

/* Lane i: row i of the pass. */
typedef struct lane_place {
    int32_t pos, slot; /* -1: it is not turned, not stored */
} lane_place;
DEV lane_place read_places(const placing &p, int n_rows, int lane) {
    lane_place y = {-1, -1};
    if (p.k && lane < n_rows) {
        y.pos = __ldcg(p.pos + lane);
        y.slot = __ldcg(p.slot + lane);
        y.pos = y.pos < p.n_pos ? y.pos : -1;
        y.slot = y.slot < p.n_slots ? y.slot : -1;
    }
    return y;
}

/* fma(x, c, -(y s)) of the lower half, fma(x, c, y s) of the upper */
DEV float turned_1(float x, float y, float c, float s, bool upper) {
    const float b = __fmul_rn(y, s);
    return __fmaf_rn(x, c, upper ? b : -b);
}
/* Elements e..e + 3 of the head at `from`, turned by a position below 0 not at all. */
DEV float4 read_turned(const placing &p, const float *from, int e, int half, int32_t pos) {
    const float4 a = __ldcg((const float4 *)(from + e));
    if (pos < 0)
        return a;
    const bool upper = e >= half;
    const int other = upper ? e - half : e + half;
    const size_t at = (size_t)pos * (size_t)half + (size_t)(upper ? other : e);
    const float4 b = __ldcg((const float4 *)(from + other));
    const float4 c = *(const float4 *)(p.cos + at), s = *(const float4 *)(p.sin + at);
    return make_float4(turned_1(a.x, b.x, c.x, s.x, upper), turned_1(a.y, b.y, c.y, s.y, upper),
                       turned_1(a.z, b.z, c.z, s.z, upper), turned_1(a.w, b.w, c.w, s.w, upper));
}

DEV uint2 rounded_4(float4 v) {
    return make_uint2((uint32_t)ls_bf16_of_f32(v.x) | (uint32_t)ls_bf16_of_f32(v.y) << 16,
                      (uint32_t)ls_bf16_of_f32(v.z) | (uint32_t)ls_bf16_of_f32(v.w) << 16);
}
/* Stores the rows of a key/value head, four elements at a time: thread i of n, whole warps. */
DEV void store_rows(const ls_attn_args &a, const placing &p, const lane_place &own, int kv_head,
                    int i, int n) {
    const int fours = a.head_dim / 4, all = a.n_rows * fours;
    for (int first = 0; first < all; first += n) {
        const int row = (first + i) / fours, e = (first + i) % fours * 4;
        const int32_t pos = __shfl_sync(FULL, own.pos, row & 31);
        const int32_t slot = __shfl_sync(FULL, own.slot, row & 31);
        if (row >= a.n_rows || slot < 0)
            continue;
        const size_t from = (size_t)(row * a.n_kv + kv_head) * (size_t)a.head_dim;
        const size_t to = ((size_t)slot * (size_t)a.n_kv + (size_t)kv_head) * (size_t)a.head_dim;
        const float4 v = __ldcg((const float4 *)(p.v + from + e));
        const float4 k = read_turned(p, p.k + from, e, a.head_dim / 2, pos);
        *(uint2 *)(p.k_pool + to + e) = rounded_4(k);
        *(uint2 *)(p.v_pool + to + e) = rounded_4(v);
    }
}

#endif
