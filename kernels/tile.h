/* tile.h - the tile language: a body is written once and compiled by the C compiler and by nvcc.
 * Unit        the 32-lane warp. `lane_f32` is one float a lane. It is made of LS_PARTS parts of
 *             LS_PART_LANES lanes, what one instruction holds: part i covers lanes
 *             [i * LS_PART_LANES, (i + 1) * LS_PART_LANES).
 *                 compiler            part_f32            LS_PARTS   file
 *                 C, AVX-512          __m512              2          tile_avx512.h
 *                 C, AVX2 + FMA       __m256              4          tile_avx2.h
 *                 C, any processor    struct of 32 floats 1          tile_plain.h
 *                 nvcc                float               1          tile_cuda.h
 *             The order of parts is never an order of arithmetic: lanes do not meet but in the
 *             butterflies, which add lane l and lane l xor 16, then 8, 4, 2, 1.
 * Uniform     scalars (`float`, `int`) have the same value in every lane.
 * Phases      LS_WARPS(i, n) spreads items over the warps of a block, LS_EACH(i, n) over the lanes
 *             of a warp, LS_WARP0 runs in one warp, LS_LANE0 in one lane. What crosses a
 *             LS_BARRIER (LS_WARP_SYNC inside one warp) lives in block memory. On the CPU a block
 *             is one thread: loops, and nothing to wait for.
 * Packed      weights in blocks (packed.h) have loads of their own, a warp's 32 elements at a time.
 * Numerics    each operation is one correctly rounded IEEE operation, denormals kept, never
 *             contracted. part_max(a, b) is (a > b ? a : b): the second where either is a NaN or
 *             both are zeros. Loads of fewer lanes than 32 give +0 in the others. */
#ifndef LS_TILE_H
#define LS_TILE_H

#ifdef __FAST_MATH__
#error "the bodies are bit exact: build without -ffast-math and --use_fast_math"
#endif

#include <stdint.h>
#include <string.h>

#include "shape.h"
#include "tile_limits.h"

#if defined(__CUDACC__)
#include "tile_cuda.h"
#elif defined(LS_TILE_AVX512)
#include "tile_avx512.h"
#elif defined(LS_TILE_AVX2)
#include "tile_avx2.h"
#else
#include "tile_plain.h"
#endif

#include "packed.h"

#define LS_PART_LANES (LS_LANES / LS_PARTS)
#define LS_UNROLLED(i, n) LS_UNROLL for (int i = 0; i < (n); i++)
#define LS_FOR_PARTS(i) LS_UNROLLED (i, LS_PARTS)
#define LS_INF (ls_float_of(0x7f800000u))
#ifndef LS_HOLD /* keeps a part in its register, where a compiler would rather load it again */
#define LS_HOLD(a) ((void)0)
#endif
/* parts whose sums of 8 keys registers hold for a head; 0: heads share loads */
#ifndef LS_ATTN_HELD
#define LS_ATTN_HELD 0
#endif
#ifndef LS_ATTN_WARPS /* warps of values summed at once, where a head is a multiple of them wide */
#define LS_ATTN_WARPS 1
#endif
#ifndef LS_UNROLL_4 /* four turns of a loop at once, where that hides waiting */
#define LS_UNROLL_4
#endif

typedef struct lane_f32 {
    part_f32 p[LS_PARTS];
} lane_f32;
typedef struct lane_i32 {
    part_i32 p[LS_PARTS];
} lane_i32;

/* ---- scalars --------------------------------------------------------------------------------- */

LS_FN uint32_t ls_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
LS_FN float ls_float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
LS_FN int ls_min_i(int a, int b) {
    return a < b ? a : b;
}
LS_FN int ls_max_i(int a, int b) {
    return a > b ? a : b;
}
LS_FN int ls_ceil_div(int a, int b) {
    return a / b + (a % b != 0);
}

/* ---- loads of a warp ------------------------------------------------------------------------- */

/* Elements at, at + 1, ... of an array of dtype t: element at + l in lane l, exactly widened. */
LS_FN lane_f32 lane_load(const void *p, size_t at, ls_dtype t) {
    lane_f32 r;
    LS_FOR_PARTS (i)
        r.p[i] = part_load(p, at, t, i);
    return r;
}
/* As lane_load, of the first n lanes (n may be 32 or more: all of them). */
LS_FN lane_f32 lane_load_n(const void *p, size_t at, int n, ls_dtype t) {
    lane_f32 r;
    LS_FOR_PARTS (i)
        r.p[i] = n >= LS_LANES ? part_load(p, at, t, i) : part_load_n(p, at, n, t, i);
    return r;
}
#ifndef ls_q4_k_scales
/* Scales, then minima, of the 8 parts of a block of Q4_K. */
LS_FN void ls_q4_k_scales(const uint8_t *block, float out[16]) {
    for (int i = 0; i < 8; i++) {
        const ls_scale_min s = ls_q4_k_scale(block, i);
        out[i] = s.scale;
        out[8 + i] = s.min;
    }
}
#endif
/* Elements at, at + 1, ..., at a multiple of 32, of packed weights of type t. */
LS_FN lane_f32 lane_load_packed(const void *p, size_t at, ls_dtype t) {
    const uint8_t *b = (const uint8_t *)p + at / ls_dtype_block(t) * ls_dtype_bytes(t);
    lane_f32 r;
    if (t == LS_Q8_0) {
        LS_FOR_PARTS (i)
            r.p[i] = part_mul(part_load_i8(b + LS_Q8_0_Q, i), part_set_f16(b));
    } else {
        const int sub = (int)(at / 32 % 8);
        const ls_scale_min s = ls_q4_k_scale(b, sub);
        LS_FOR_PARTS (i)
            r.p[i] =
                part_load_q4(b + LS_Q4_K_Q + sub / 2 * 32, sub % 2, part_q4(s.scale, s.min), i);
    }
    return r;
}
LS_FN void lane_store_n(float *p, int n, lane_f32 a) {
    LS_FOR_PARTS (i)
        part_store_n(p, n, i, a.p[i]);
}

/* ---- arithmetic, lane by lane ---------------------------------------------------------------- */

#define LS_LANE_F1(op)                     \
    LS_FN lane_f32 lane_##op(lane_f32 a) { \
        LS_FOR_PARTS (i)                   \
            a.p[i] = part_##op(a.p[i]);    \
        return a;                          \
    }
#define LS_LANE_F2(op)                                 \
    LS_FN lane_f32 lane_##op(lane_f32 a, lane_f32 b) { \
        LS_FOR_PARTS (i)                               \
            a.p[i] = part_##op(a.p[i], b.p[i]);        \
        return a;                                      \
    }
LS_LANE_F2(add)
LS_LANE_F2(sub)
LS_LANE_F2(mul)
LS_LANE_F2(div)
LS_LANE_F2(max)

LS_FN lane_f32 lane_set(float a) {
    lane_f32 r;
    LS_FOR_PARTS (i)
        r.p[i] = part_set(a);
    return r;
}
/* a * b + c, rounded once */
LS_FN lane_f32 lane_fma(lane_f32 a, lane_f32 b, lane_f32 c) {
    LS_FOR_PARTS (i)
        c.p[i] = part_fma(a.p[i], b.p[i], c.p[i]);
    return c;
}

/* Integer whose signed order is the order of the floats, -0 below +0, NaNs at the ends. Butterflies
 * for maxima work on it, so that every lane ends with the same bits. */
LS_FN part_i32 part_order(part_f32 a) {
    part_i32 u = part_as_i(a);
    return part_ixor(u, part_isrl(part_isra(u, 31), 1));
}
LS_FN float ls_unorder(int32_t k) {
    uint32_t u = (uint32_t)k;
    return ls_float_of(k < 0 ? u ^ 0x7fffffffu : u);
}
LS_FN int32_t ls_order(float f) {
    uint32_t u = ls_bits_of(f);
    return (int32_t)(u >> 31 ? u ^ 0x7fffffffu : u);
}
LS_FN float lane_hmax(lane_f32 a) {
    lane_i32 k;
    LS_FOR_PARTS (i)
        k.p[i] = part_order(a.p[i]);
    return ls_unorder(lane_hmax_i(k.p));
}

/* The lanes' sum by the butterfly 16, 8, 4, 2, 1. */
LS_FN float lane_sum(lane_f32 a) {
    return lane_sum_parts(a.p);
}

#endif
