/* cuda_mma_attn_tile.h - one tile of 16 keys and 8 columns, for cuda_mma_attn.cu: how it is copied
 * to shared memory, and how it goes into a warp's running state. The arithmetic, and a drawing of
 * the fragments: MMA_ATTN.md. */
#ifndef LS_CUDA_MMA_ATTN_TILE_H
#define LS_CUDA_MMA_ATTN_TILE_H

#include "cuda_mma_attn_rows.h"

#define KEY_WARPS 4 /* part of the arithmetic: tile i of a chunk belongs to key warp i mod 4 */
#define TILE 16     /* keys of a tile, likewise */
#define COLUMNS 8   /* columns of a product */

/* Shared memory holds rows of EP elements and 16 bytes: eight of them touch every bank once. */
#define PITCH_BYTES(EP) (((EP) + 8) * 2)
#define HALF_TILE_BYTES(EP) (TILE * PITCH_BYTES(EP)) /* keys, then values */
#define TILE_BYTES(EP) (2 * HALF_TILE_BYTES(EP))

/* ---- instructions ---------------------------------------------------------------------------- */

/* d += a (16 x 16) b (16 x 8) */
DEV void product(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV void load_4(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEV void load_4_turned(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
/* an 8 x 8 of bf16, turned in registers */
DEV uint32_t turned(uint32_t a) {
    uint32_t d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
DEV uint32_t pair_of(float low, float high) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
/* 2^x: at most 2^-22 off, relatively; exactly 1 for 0 and 0 for -inf */
DEV float exp2_of(float x) {
    float d;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}
/* 16 bytes to shared memory, zeros when not live; the source is not read then */
DEV void copy_16(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 16 : 0)
                 : "memory");
}
DEV void copies_close() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* all groups but the newest `but` have landed */
DEV void copies_wait(int but) {
    if (but >= 3)
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (but == 2)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (but == 1)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* One key/value head's part of the pools. */
typedef struct pools {
    const unsigned char *k, *v; /* of slot 0 */
    uint32_t slot_bytes, row_bytes;
} pools;

/* Copies the keys and values of a tile, shared out among C warps, but for the keys of `own`, whose
 * rows are stored later; lane i < 16 holds the slot of key i. */
template <int EP, int C>
DEV void fetch(const pools &from, int32_t slot, uint32_t own, uint32_t to, int warp) {
    constexpr int UNITS = EP / 8; /* of 16 bytes, a row */
    constexpr int ALL = TILE * UNITS, TURNS = (ALL + 32 * C - 1) / (32 * C);
    const int at0 = warp * 32 + (int)(threadIdx.x & 31u);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const int at = at0 + i * 32 * C, key = at / UNITS;
        const uint32_t e = (uint32_t)(at % UNITS) * 16u;
        const int32_t s = __shfl_sync(FULL, slot, key & 15);
        const bool live = s >= 0 && e < from.row_bytes;
        const uint64_t source = live ? (uint64_t)(uint32_t)s * from.slot_bytes + e : 0u;
        const uint32_t d = to + (uint32_t)(key * PITCH_BYTES(EP)) + e;
        const bool later = own >> (key & 15) & 1u && e < from.row_bytes;
        if ((ALL % (32 * C) == 0 || at < ALL) && !later) {
            copy_16(d, from.k + source, live);
            copy_16(d + HALF_TILE_BYTES(EP), from.v + source, live);
        }
    }
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* A warp's running state: a lane holds columns 2t, 2t + 1 (t = lane mod 4), and of the values
 * elements g and g + 8 of each 16 (g = lane / 4). */
template <int EP> struct warp_state {
    float acc[EP / 16][4];
    float m[2], l[2];
};

template <int EP> DEV void clear(warp_state<EP> &s) {
    s.m[0] = s.m[1] = -INFINITY, s.l[0] = s.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < EP / 16; i++)
        s.acc[i][0] = s.acc[i][1] = s.acc[i][2] = s.acc[i][3] = 0.0f;
}

/* Where keys stop for the warp's columns. A row that is not in the item has none. */
typedef struct edge {
    int32_t whole;       /* keys below it are keys of every row */
    int32_t top;         /* keys from it on are no row's */
    int32_t limit[2];    /* of the lane's columns */
    int32_t row[2];      /* their rows; -1 for none */
    int32_t of_row;      /* lane i: limit of row i */
    int32_t first, last; /* rows of the warp's columns */
} edge;

/* Values of a tile that not every row has all keys of: row by row, with the values past the row's
 * limit cleared before the product, since 0 times a NaN is one. */
template <int EP>
DEV void add_values_edge(warp_state<EP> &s, const uint32_t p[2], uint32_t v_at, int32_t key0,
                         const edge &e) {
    const int t = (int)(threadIdx.x & 3u);
    for (int r = e.first; r <= e.last; r++) {
        const int32_t n = __shfl_sync(FULL, e.of_row, r) - key0; /* keys that are row r's */
        if (n <= 0)
            continue;
        const uint32_t low = (2 * t < n ? 0xffffu : 0u) | (2 * t + 1 < n ? 0xffff0000u : 0u);
        const uint32_t high = (2 * t + 8 < n ? 0xffffu : 0u) | (2 * t + 9 < n ? 0xffff0000u : 0u);
#pragma unroll
        for (int i = 0; i < EP / 16; i++) {
            uint32_t v[4];
            load_4_turned(v, v_at + (uint32_t)(i * 32));
            v[0] &= low, v[1] &= low, v[2] &= high, v[3] &= high;
            float d[4] = {s.acc[i][0], s.acc[i][1], s.acc[i][2], s.acc[i][3]};
            product(d, v, p[0], p[1]);
#pragma unroll
            for (int j = 0; j < 4; j++)
                s.acc[i][j] = e.row[j & 1] == r ? d[j] : s.acc[i][j];
        }
    }
}

/* One tile into the state. k_at, v_at: this lane's addresses for the fragment loads; q: the
 * queries' fragments. */
template <int EP>
DEV void add_tile(warp_state<EP> &s, const uint32_t (&q)[EP / 16][2], uint32_t k_at, uint32_t v_at,
                  float scale, int32_t key0, const edge &e) {
    const int g = (int)(threadIdx.x & 31u) >> 2;
    const bool at_edge = key0 + TILE > e.whole;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < EP / 16; i++) {
        uint32_t k[4];
        load_4(k, k_at + (uint32_t)(i * 32));
        product(i % 2 ? y : x, k, q[i][0], q[i][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = __fmul_rn(__fadd_rn(x[i], y[i]), scale);
    if (at_edge) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = key0 + g + (i & 2) * 4 < e.limit[i & 1] ? x[i] : -INFINITY;
    }

    float m[2], w[2], z[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        m[i] = fmaxf(x[i], x[i + 2]);
#pragma unroll
        for (int o = 4; o < 32; o <<= 1)
            m[i] = fmaxf(m[i], __shfl_xor_sync(FULL, m[i], o));
        m[i] = fmaxf(s.m[i], m[i]);
        /* -inf minus -inf is a NaN: with nothing but -inf so far, subtract 0 */
        z[i] = m[i] == -INFINITY ? 0.0f : m[i];
        w[i] = exp2_of(__fsub_rn(s.m[i], z[i]));
        s.m[i] = m[i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = exp2_of(__fsub_rn(x[i], z[i & 1]));
    const uint32_t p[2] = {turned(pair_of(x[0], x[1])), turned(pair_of(x[2], x[3]))};
    /* times 1 is no change, and most tiles leave the maximum where it is */
    if (__any_sync(FULL, !(w[0] == 1.0f && w[1] == 1.0f))) {
        s.l[0] = __fmul_rn(s.l[0], w[0]), s.l[1] = __fmul_rn(s.l[1], w[1]);
#pragma unroll
        for (int i = 0; i < EP / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s.acc[i][j] = __fmul_rn(s.acc[i][j], w[j & 1]);
    }
    /* the sum of the rounded probabilities: a value of all ones */
    const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    float d[4] = {s.l[0], s.l[1], 0.0f, 0.0f};
    product(d, ones, p[0], p[1]);
    if (at_edge) {
        s.l[0] = key0 < e.limit[0] ? d[0] : s.l[0];
        s.l[1] = key0 < e.limit[1] ? d[1] : s.l[1];
        add_values_edge<EP>(s, p, v_at, key0, e);
        return;
    }
    s.l[0] = d[0], s.l[1] = d[1];
#pragma unroll
    for (int i = 0; i < EP / 16; i++) {
        uint32_t v[4];
        load_4_turned(v, v_at + (uint32_t)(i * 32));
        product(s.acc[i], v, p[0], p[1]);
    }
}

#endif
