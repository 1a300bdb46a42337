/* cuda_mma_attn_place.h - rope and the store into the cache inside the launch of the chunks, for
 * cuda_mma_attn.cu (place_attn of backend.h, few rows). The bits are those of place.body.h.
 * Queries   a block turns those of its own columns as it reads them.
 * Keys      the warps of a ring that come to a tile with keys of this pass store the rows of the
 *           pass, all of them, for their key/value head: into the cache, and what is in the tile
 *           into the tile. Several blocks may do so: they write the same values, and none of this
 *           launch reads them from the cache.
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
/* Which keys of a tile are rows of the pass, a bit a key: lanes i and i + 16 hold the slot of key
 * i. Lane r is told which key row r is, -1 for none. */
DEV uint32_t find_own(const lane_place &own, int n_rows, int32_t slot, int32_t *key_of) {
    const int lane = (int)(threadIdx.x & 31u);
    uint32_t all = 0;
    *key_of = -1;
    for (int r = 0; r < n_rows; r++) {
        const int32_t s = __shfl_sync(FULL, own.slot, r);
        const uint32_t is = __ballot_sync(FULL, s >= 0 && slot == s) & 0xffffu;
        *key_of = lane == r ? __ffs((int)is) - 1 : *key_of;
        all |= is;
    }
    return all;
}

DEV void put_shared(uint32_t at, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

/* Stores the rows of a key/value head, four elements at a time: thread i of n, whole warps. Rows
 * that are keys of the tile at `tile` (key_of, from find_own) go there as well. */
template <int EP>
DEV void store_rows(const ls_attn_args &a, const placing &p, const lane_place &own, int kv_head,
                    uint32_t tile, int32_t key_of, int i, int n) {
    const int fours = a.head_dim / 4, all = a.n_rows * fours;
    for (int first = 0; first < all; first += n) {
        const int row = (first + i) / fours, e = (first + i) % fours * 4;
        const int32_t pos = __shfl_sync(FULL, own.pos, row & 31);
        const int32_t slot = __shfl_sync(FULL, own.slot, row & 31);
        const int32_t key = __shfl_sync(FULL, key_of, row & 31);
        if (row >= a.n_rows || slot < 0)
            continue;
        const size_t from = (size_t)(row * a.n_kv + kv_head) * (size_t)a.head_dim;
        const size_t to = ((size_t)slot * (size_t)a.n_kv + (size_t)kv_head) * (size_t)a.head_dim;
        const float4 raw = __ldcg((const float4 *)(p.v + from + e));
        const uint2 k = rounded_4(read_turned(p, p.k + from, e, a.head_dim / 2, pos));
        const uint2 v = rounded_4(raw);
        *(uint2 *)(p.k_pool + to + e) = k;
        *(uint2 *)(p.v_pool + to + e) = v;
        if (key >= 0) {
            const uint32_t at = tile + (uint32_t)(key * PITCH_BYTES(EP) + e * 2);
            put_shared(at, k);
            put_shared(at + HALF_TILE_BYTES(EP), v);
        }
    }
}

#endif
