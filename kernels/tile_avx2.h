/* tile_avx2.h - the tile language on AVX2, FMA and F16C: part_f32 is __m256, a lane_f32 four of
 * them. Contract: tile.h. Included by it alone. */
#ifndef LS_TILE_AVX2_H
#define LS_TILE_AVX2_H

#include "tile_x86.h"

#define LS_PARTS 4

/* The linear's tiles (M rows, N outputs, P parts at a time): 12 accumulators of 16 registers. */
#define LS_LINEAR_TILES(X) X(1, 3, 4) X(2, 6, 1) X(3, 4, 1) X(4, 3, 1) X(6, 4, 1) X(8, 3, 1)
#define LS_LINEAR_TILE 12      /* largest N * M in one go; above it rows go in two halves */
#define LS_LINEAR_PARTS 4      /* largest P */
#define LS_LINEAR_UNIT 12      /* outputs: a multiple of every N */
#define LS_LINEAR_BYTES 131072 /* weights that stay in the second cache for all rows */
#define LS_LINEAR_AHEAD 4096   /* bytes the prefetch looks ahead in each stream */

#define LS_ATTN_HELD 1 /* part: 8 sums of keys and a query */

typedef __m256 part_f32;
typedef __m256i part_i32;

/* ---- loads and stores ------------------------------------------------------------------------ */

LS_FN part_f32 part_load(const void *p, size_t at, ls_dtype t, int part) {
    at += 8 * (size_t)part;
    if (t == LS_F32)
        return _mm256_loadu_ps((const float *)p + at);
    const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)p + at));
    if (t == LS_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
/* Partial loads and stores are the ends of rows: out of line, to keep the loops small. */
static __attribute__((noinline, unused)) __m256 ls_load_end(const void *p, size_t at, int n,
                                                            ls_dtype t, int part) {
    float whole[8] = {0};
    n -= 8 * part;
    const size_t size = ls_dtype_bytes(t);
    if (n > 0)
        memcpy(whole, (const char *)p + (at + 8 * (size_t)part) * size,
               (size_t)(n < 8 ? n : 8) * size);
    return part_load(whole, 0, t, 0);
}
LS_FN part_f32 part_load_n(const void *p, size_t at, int n, ls_dtype t, int part) {
    return n >= 8 * (part + 1) ? part_load(p, at, t, part) : ls_load_end(p, at, n, t, part);
}
/* Packed weights (packed.h). */
typedef struct ls_q4 {
    __m256 scale, min;
} ls_q4;
LS_FN part_f32 part_set_f16(const uint8_t *h) {
    return _mm256_cvtph_ps(_mm_set1_epi16((short)ls_u16_at(h)));
}
LS_FN part_f32 part_load_i8(const uint8_t *q, int part) {
    const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(q + 8 * part));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
LS_FN ls_q4 part_q4(float scale, float min) {
    const ls_q4 r = {_mm256_set1_ps(scale), _mm256_set1_ps(min)};
    return r;
}
LS_FN part_f32 part_load_q4(const uint8_t *q, int high, ls_q4 value, int part) {
    const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(q + 8 * part));
    const __m256i byte = _mm256_cvtepu8_epi32(b);
    const __m256i i =
        high ? _mm256_srli_epi32(byte, 4) : _mm256_and_si256(byte, _mm256_set1_epi32(15));
    return _mm256_fmsub_ps(value.scale, _mm256_cvtepi32_ps(i), value.min);
}
LS_FN void part_store(float *p, int part, part_f32 a) {
    _mm256_storeu_ps(p + 8 * part, a);
}
static __attribute__((noinline, unused)) void ls_store_end(float *p, int n, int part, __m256 a) {
    float whole[8];
    _mm256_storeu_ps(whole, a);
    n -= 8 * part;
    if (n > 0)
        memcpy(p + 8 * part, whole, (size_t)(n < 8 ? n : 8) * sizeof *p);
}
LS_FN void part_store_n(float *p, int n, int part, part_f32 a) {
    if (n >= 8 * (part + 1))
        part_store(p, part, a);
    else
        ls_store_end(p, n, part, a);
}
static __attribute__((noinline, unused)) __m256i part_iload_n(const int32_t *p, int n, int part) {
    int32_t whole[8] = {0};
    n -= 8 * part;
    if (n > 0)
        memcpy(whole, p + 8 * part, (size_t)(n < 8 ? n : 8) * sizeof *p);
    return _mm256_loadu_si256((const __m256i *)(const void *)whole);
}
static __attribute__((noinline, unused)) const float *ls_quads_end(const float *p, int n,
                                                                   float whole[32]) {
    memset(whole, 0, 32 * sizeof *whole);
    if (n > 0)
        memcpy(whole, p, (size_t)n * sizeof *p);
    return whole;
}
/* out[w], lane l of the 32: p[4 l + w]; of the first n floats, +0 past them */
LS_FN void part_load_quads(const float *p, int n, int part, part_f32 out[4]) {
    float whole[32];
    p += 32 * part;
    n -= 32 * part;
    if (n < 32)
        p = ls_quads_end(p, n, whole);
    const __m256 a =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 16), 1);
    const __m256 b =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)), _mm_loadu_ps(p + 20), 1);
    const __m256 c =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 8)), _mm_loadu_ps(p + 24), 1);
    const __m256 d =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 12)), _mm_loadu_ps(p + 28), 1);
    const __m256 ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
    const __m256 cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_shuffle_ps(ab0, cd0, 0x44);
    out[1] = _mm256_shuffle_ps(ab0, cd0, 0xEE);
    out[2] = _mm256_shuffle_ps(ab1, cd1, 0x44);
    out[3] = _mm256_shuffle_ps(ab1, cd1, 0xEE);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

LS_FN part_f32 part_set(float a) {
    return _mm256_set1_ps(a);
}
LS_FN part_f32 part_add(part_f32 a, part_f32 b) {
    return _mm256_add_ps(a, b);
}
LS_FN part_f32 part_sub(part_f32 a, part_f32 b) {
    return _mm256_sub_ps(a, b);
}
LS_FN part_f32 part_mul(part_f32 a, part_f32 b) {
    return _mm256_mul_ps(a, b);
}
LS_FN part_f32 part_div(part_f32 a, part_f32 b) {
    return _mm256_div_ps(a, b);
}
LS_FN part_f32 part_max(part_f32 a, part_f32 b) {
    return _mm256_max_ps(a, b);
}
LS_FN part_f32 part_min(part_f32 a, part_f32 b) {
    return _mm256_min_ps(a, b);
}
LS_FN part_f32 part_fma(part_f32 a, part_f32 b, part_f32 c) {
    return _mm256_fmadd_ps(a, b, c);
}

LS_FN part_i32 part_iset(int32_t a) {
    return _mm256_set1_epi32(a);
}
/* the lane's number, 0..31 */
LS_FN part_i32 part_iota(int part) {
    return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * part));
}
LS_FN part_i32 part_iadd(part_i32 a, part_i32 b) {
    return _mm256_add_epi32(a, b);
}
LS_FN part_i32 part_isub(part_i32 a, part_i32 b) {
    return _mm256_sub_epi32(a, b);
}
LS_FN part_i32 part_iand(part_i32 a, part_i32 b) {
    return _mm256_and_si256(a, b);
}
LS_FN part_i32 part_ior(part_i32 a, part_i32 b) {
    return _mm256_or_si256(a, b);
}
LS_FN part_i32 part_ixor(part_i32 a, part_i32 b) {
    return _mm256_xor_si256(a, b);
}
LS_FN part_i32 part_isll(part_i32 a, int n) {
    return _mm256_slli_epi32(a, n);
}
LS_FN part_i32 part_isrl(part_i32 a, int n) {
    return _mm256_srli_epi32(a, n);
}
LS_FN part_i32 part_isra(part_i32 a, int n) {
    return _mm256_srai_epi32(a, n);
}
LS_FN part_i32 part_imax(part_i32 a, part_i32 b) {
    return _mm256_max_epi32(a, b);
}
LS_FN part_i32 part_imin(part_i32 a, part_i32 b) {
    return _mm256_min_epi32(a, b);
}
/* low and high words of the unsigned product with a constant */
LS_FN part_i32 part_umullo(part_i32 a, uint32_t b) {
    return _mm256_mullo_epi32(a, _mm256_set1_epi32((int)b));
}
LS_FN part_i32 part_umulhi(part_i32 a, uint32_t b) {
    const __m256i m = _mm256_set1_epi32((int)b);
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, m), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
    return _mm256_blend_epi32(even, odd, 0xAA);
}

/* masks: all ones where the relation holds (never where a NaN takes part), else zero */
LS_FN part_i32 part_igt(part_i32 a, part_i32 b) {
    return _mm256_cmpgt_epi32(a, b);
}
LS_FN part_i32 part_ieq(part_i32 a, part_i32 b) {
    return _mm256_cmpeq_epi32(a, b);
}
LS_FN part_i32 part_gt(part_f32 a, part_f32 b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
LS_FN part_i32 part_ge(part_f32 a, part_f32 b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
LS_FN part_i32 part_eq(part_f32 a, part_f32 b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
LS_FN part_i32 part_nan(part_f32 a) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
LS_FN part_f32 part_select(part_i32 mask, part_f32 a, part_f32 b) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
}
LS_FN part_i32 part_iselect(part_i32 mask, part_i32 a, part_i32 b) {
    return _mm256_blendv_epi8(b, a, mask);
}
LS_FN part_f32 part_as_f(part_i32 a) {
    return _mm256_castsi256_ps(a);
}
LS_FN part_i32 part_as_i(part_f32 a) {
    return _mm256_castps_si256(a);
}
LS_FN part_f32 part_from_i(part_i32 a) {
    return _mm256_cvtepi32_ps(a);
}

/* ---- across lanes ---------------------------------------------------------------------------- */

/* Lanes xor 16 and xor 8 meet as whole parts. */
LS_FN __m256 ls_fold_parts(const part_f32 *p) {
    return _mm256_add_ps(_mm256_add_ps(p[0], p[2]), _mm256_add_ps(p[1], p[3]));
}
LS_FN float lane_sum_parts(const part_f32 *p) {
    __m256 t = ls_fold_parts(p);
    t = _mm256_add_ps(t, _mm256_permute2f128_ps(t, t, 1));
    t = _mm256_add_ps(t, _mm256_shuffle_ps(t, t, 0x4e));
    t = _mm256_add_ps(t, _mm256_shuffle_ps(t, t, 0xb1));
    return _mm256_cvtss_f32(t);
}
/* Butterflies of 8 warps' values at once, by transposing while adding: the same additions as
 * lane_sum_parts, each result keeping its own tree. v: n groups of LS_PARTS parts, n <= 8; out has
 * room for 8, those past n are written and mean nothing. */
LS_FN void lane_sums_parts(const part_f32 *v, int n, float *out) {
    if (n == 1) {
        out[0] = lane_sum_parts(v);
        return;
    }
    __m256 t[8], u[4], w[2];
    LS_UNROLL
    for (int i = 0; i < 8; i++)
        t[i] = ls_fold_parts(v + LS_PARTS * (i < n ? i : 0));
    /* xor 4: two results share a register, one a half */
    LS_UNROLL
    for (int i = 0; i < 4; i++)
        u[i] = _mm256_add_ps(_mm256_permute2f128_ps(t[i], t[i + 4], 0x20),
                             _mm256_permute2f128_ps(t[i], t[i + 4], 0x31));
    /* xor 2, then xor 1 */
    LS_UNROLL
    for (int i = 0; i < 2; i++)
        w[i] = _mm256_add_ps(_mm256_shuffle_ps(u[i], u[i + 2], 0x44),
                             _mm256_shuffle_ps(u[i], u[i + 2], 0xEE));
    const __m256 s =
        _mm256_add_ps(_mm256_shuffle_ps(w[0], w[1], 0x88), _mm256_shuffle_ps(w[0], w[1], 0xDD));
    /* elements of a half: results 0, 2, 1, 3; the other half 4 more */
    const __m256 r = _mm256_permute_ps(s, 0xD8);
    _mm256_storeu_ps(out, r);
}
LS_FN int32_t lane_hmax_i(const part_i32 *p) {
    __m256i t = _mm256_max_epi32(_mm256_max_epi32(p[0], p[2]), _mm256_max_epi32(p[1], p[3]));
    t = _mm256_max_epi32(t, _mm256_permute2x128_si256(t, t, 1));
    t = _mm256_max_epi32(t, _mm256_shuffle_epi32(t, 0x4e));
    t = _mm256_max_epi32(t, _mm256_shuffle_epi32(t, 0xb1));
    return _mm256_cvtsi256_si32(t);
}
LS_FN int32_t lane_hmin_i(const part_i32 *p) {
    __m256i t = _mm256_min_epi32(_mm256_min_epi32(p[0], p[2]), _mm256_min_epi32(p[1], p[3]));
    t = _mm256_min_epi32(t, _mm256_permute2x128_si256(t, t, 1));
    t = _mm256_min_epi32(t, _mm256_shuffle_epi32(t, 0x4e));
    t = _mm256_min_epi32(t, _mm256_shuffle_epi32(t, 0xb1));
    return _mm256_cvtsi256_si32(t);
}
/* Sums of integers wrap and have no order. */
LS_FN int32_t lane_hsum_i(const part_i32 *p) {
    __m256i t = _mm256_add_epi32(_mm256_add_epi32(p[0], p[2]), _mm256_add_epi32(p[1], p[3]));
    t = _mm256_add_epi32(t, _mm256_permute2x128_si256(t, t, 1));
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0x4e));
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0xb1));
    return _mm256_cvtsi256_si32(t);
}
/* the part's first lane, for values equal in all */
LS_FN float part_first(part_f32 a) {
    return _mm256_cvtss_f32(a);
}

#endif
