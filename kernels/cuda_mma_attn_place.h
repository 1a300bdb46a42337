/* cuda_mma_attn_place.h - rope and the store into the cache inside the launch of the chunks, for
 * cuda_mma_attn.cu (place_attn of backend.h, few rows). The bits are those of place.body.h.
 * Queries   a block turns those of its own columns as it reads them.
 * Keys      a block one of whose chunks has keys of this pass stores the rows of the pass, all of
 *           them, for its key/value head: into the cache, and into the tiles that its rings have by
 *           then. Tiles that come later are copied from the cache. Several blocks may do so: they
 *           write the same values, and none reads what another wrote.
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
DEV float4 turned_4(float4 x, float4 y, float4 c, float4 s, bool upper) {
    return make_float4(turned_1(x.x, y.x, c.x, s.x, upper), turned_1(x.y, y.y, c.y, s.y, upper),
                       turned_1(x.z, y.z, c.z, s.z, upper), turned_1(x.w, y.w, c.w, s.w, upper));
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
    return turned_4(a, b, c, s, upper);
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
DEV uint2 rounded_4(float4 v) {
    return make_uint2((uint32_t)ls_bf16_of_f32(v.x) | (uint32_t)ls_bf16_of_f32(v.y) << 16,
                      (uint32_t)ls_bf16_of_f32(v.z) | (uint32_t)ls_bf16_of_f32(v.w) << 16);
}

/* Where the pass's rows lie in the tiles of a ring; 0: in none. */
typedef struct own_rows {
    uint32_t at[LS_MMA_FEW];
} own_rows;
/* One warp of the ring, all lanes: none yet, and those that are in the tile at `tile` (key_of, from
 * find_own). */
DEV void note_none(own_rows *own) {
    const int lane = (int)(threadIdx.x & 31u);
    if (lane < LS_MMA_FEW)
        own->at[lane] = 0;
}
template <int EP> DEV void note_own(own_rows *own, uint32_t tile, int32_t key_of) {
    if (key_of >= 0)
        own->at[threadIdx.x & 31u] = tile + (uint32_t)(key_of * PITCH_BYTES(EP));
}

/* Stores the rows of the pass, of a key/value head, into the cache and into the tiles of n_rings
 * rings: thread i of n, whole warps, four elements of either half of a row at a time. */
template <int EP>
DEV void store_rows(const ls_attn_args &a, const placing &p, const lane_place &own, int kv_head,
                    const own_rows *rings, int n_rings, int i, int n) {
    const int half = a.head_dim / 2, fours = half / 4, all = a.n_rows * fours;
    for (int first = 0; first < all; first += n) {
        const int row = (first + i) / fours, e = (first + i - row * fours) * 4;
        const int32_t pos = __shfl_sync(FULL, own.pos, row & 31);
        const int32_t slot = __shfl_sync(FULL, own.slot, row & 31);
        if (row >= a.n_rows || slot < 0)
            continue;
        const size_t from = (size_t)(row * a.n_kv + kv_head) * (size_t)a.head_dim + (size_t)e;
        const size_t to =
            ((size_t)slot * (size_t)a.n_kv + (size_t)kv_head) * (size_t)a.head_dim + (size_t)e;
        const float4 low = __ldcg((const float4 *)(p.k + from));
        const float4 high = __ldcg((const float4 *)(p.k + from + half));
        const float4 v = __ldcg((const float4 *)(p.v + from));
        const float4 w = __ldcg((const float4 *)(p.v + from + half));
        float4 k = low, l = high;
        if (pos >= 0) {
            const size_t turn = (size_t)pos * (size_t)half + (size_t)e;
            const float4 c = *(const float4 *)(p.cos + turn), s = *(const float4 *)(p.sin + turn);
            k = turned_4(low, high, c, s, false);
            l = turned_4(high, low, c, s, true);
        }
        *(uint2 *)(p.k_pool + to) = rounded_4(k);
        *(uint2 *)(p.k_pool + to + half) = rounded_4(l);
        *(uint2 *)(p.v_pool + to) = rounded_4(v);
        *(uint2 *)(p.v_pool + to + half) = rounded_4(w);
        uint32_t tile = 0;
        for (int j = 0; j < n_rings; j++)
            tile = max(tile, rings[j].at[row]);
        if (tile) {
            const uint32_t at = tile + (uint32_t)e * 2u, up = at + (uint32_t)half * 2u;
            put_shared(at, rounded_4(k));
            put_shared(up, rounded_4(l));
            put_shared(at + HALF_TILE_BYTES(EP), rounded_4(v));
            put_shared(up + HALF_TILE_BYTES(EP), rounded_4(w));
        }
    }
}

#endif
