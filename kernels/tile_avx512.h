/* tile_avx512.h - the tile language on AVX-512 F, BW, DQ and VL: part_f32 is __m512, a lane_f32 two
 * of them. Contract: tile.h. Included by it alone.
 * Masks   of the language are vectors of all ones and zeros, as everywhere; mask registers serve
 *         the ends of rows, where they make a partial load or store one instruction. */
#ifndef LS_TILE_AVX512_H
#define LS_TILE_AVX512_H

#include "tile_x86.h"

#define LS_PARTS 2
#define LS_HOLD(a) __asm__("" : "+v"(a))

/* The linear's tiles (M rows, N outputs, P parts at a time): up to 24 accumulators of 32
 * registers, which leaves room for the outputs' weights and a row of x. */
#define LS_LINEAR_TILES(X) \
    X(1, 3, 2) X(2, 4, 2) X(3, 3, 2) X(4, 3, 2) X(5, 2, 2) X(6, 4, 2) X(8, 3, 2)
#define LS_LINEAR_TILE 12      /* largest N * M in one go */
#define LS_LINEAR_PARTS 2      /* largest P */
#define LS_LINEAR_UNIT 12      /* outputs: a multiple of every N */
#define LS_LINEAR_BYTES 131072 /* weights that stay in the second cache for all rows */
#define LS_LINEAR_AHEAD 1536   /* bytes the prefetch looks ahead in each stream */

#define LS_ATTN_HELD 2  /* parts: 16 sums of keys and a query */
#define LS_ATTN_WARPS 2 /* up to 16 sums of values */

typedef __m512 part_f32;
typedef __m512i part_i32;

/* ---- loads and stores ------------------------------------------------------------------------ */

/* the first n - 16 part lanes, of 16 */
LS_FN __mmask16 ls_mask_n(int n, int part) {
    n -= 16 * part;
    return (__mmask16)(n >= 16 ? 0xffffu : n > 0 ? (1u << n) - 1u : 0u);
}
/* Word i goes to the upper half of lane i, zero to the lower: one instruction, where to widen and
 * to shift are two. */
LS_FN __m512 ls_widen_bf16(__m256i h) {
    const __m512i at = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0,
                                        6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, at, _mm512_castsi256_si512(h)));
}
LS_FN part_f32 part_load(const void *p, size_t at, ls_dtype t, int part) {
    at += 16 * (size_t)part;
    if (t == LS_F32)
        return _mm512_loadu_ps((const float *)p + at);
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)p + at));
    return t == LS_F16 ? _mm512_cvtph_ps(h) : ls_widen_bf16(h);
}
LS_FN part_f32 part_load_n(const void *p, size_t at, int n, ls_dtype t, int part) {
    const __mmask16 in = ls_mask_n(n, part);
    at += 16 * (size_t)part;
    if (t == LS_F32)
        return _mm512_maskz_loadu_ps(in, (const float *)p + at);
    const __m256i h = _mm256_maskz_loadu_epi16(in, (const uint16_t *)p + at);
    return t == LS_F16 ? _mm512_cvtph_ps(h) : ls_widen_bf16(h);
}
/* Packed weights (packed.h). The 16 values of a part of Q4_K are a register, and a load a look-up:
 * a lane's index is the low four bits. */
typedef __m512 ls_q4;
LS_FN part_f32 part_set_f16(const uint8_t *h) {
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)ls_u16_at(h)));
}
LS_FN part_f32 part_load_i8(const uint8_t *q, int part) {
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(q + 16 * part));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}
LS_FN ls_q4 part_q4(float scale, float min) {
    const __m512 q = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_fmsub_ps(_mm512_set1_ps(scale), q, _mm512_set1_ps(min));
}
LS_FN part_f32 part_load_q4(const uint8_t *q, int high, ls_q4 value, int part) {
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(q + 16 * part));
    const __m512i at = _mm512_cvtepu8_epi32(b);
    return _mm512_permutexvar_ps(high ? _mm512_srli_epi32(at, 4) : at, value);
}
LS_FN void part_store(float *p, int part, part_f32 a) {
    _mm512_storeu_ps(p + 16 * part, a);
}
LS_FN void part_store_n(float *p, int n, int part, part_f32 a) {
    _mm512_mask_storeu_ps(p + 16 * part, ls_mask_n(n, part), a);
}
LS_FN part_i32 part_iload_n(const int32_t *p, int n, int part) {
    return _mm512_maskz_loadu_epi32(ls_mask_n(n, part), p + 16 * part);
}
/* out[w], lane l of the 32: p[4 l + w]; of the first n floats, +0 past them */
LS_FN void part_load_quads(const float *p, int n, int part, part_f32 out[4]) {
    const __m512i first =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    part_f32 q[4];
    LS_UNROLL
    for (int i = 0; i < 4; i++)
        q[i] = part_load_n(p, 0, n, LS_F32, 4 * part + i);
    /* words 0 and 1 of the first 8 lanes and of the last 8; words 2 and 3 likewise */
    const __m512 ab0 = _mm512_permutex2var_ps(q[0], first, q[1]);
    const __m512 cd0 = _mm512_permutex2var_ps(q[2], first, q[3]);
    const __m512 ab2 = _mm512_permutex2var_ps(q[0], last, q[1]);
    const __m512 cd2 = _mm512_permutex2var_ps(q[2], last, q[3]);
    out[0] = _mm512_shuffle_f32x4(ab0, cd0, 0x44);
    out[1] = _mm512_shuffle_f32x4(ab0, cd0, 0xEE);
    out[2] = _mm512_shuffle_f32x4(ab2, cd2, 0x44);
    out[3] = _mm512_shuffle_f32x4(ab2, cd2, 0xEE);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

LS_FN part_f32 part_set(float a) {
    return _mm512_set1_ps(a);
}
LS_FN part_f32 part_add(part_f32 a, part_f32 b) {
    return _mm512_add_ps(a, b);
}
LS_FN part_f32 part_sub(part_f32 a, part_f32 b) {
    return _mm512_sub_ps(a, b);
}
LS_FN part_f32 part_mul(part_f32 a, part_f32 b) {
    return _mm512_mul_ps(a, b);
}
LS_FN part_f32 part_div(part_f32 a, part_f32 b) {
    return _mm512_div_ps(a, b);
}
LS_FN part_f32 part_max(part_f32 a, part_f32 b) {
    return _mm512_max_ps(a, b);
}
LS_FN part_f32 part_min(part_f32 a, part_f32 b) {
    return _mm512_min_ps(a, b);
}
LS_FN part_f32 part_fma(part_f32 a, part_f32 b, part_f32 c) {
    return _mm512_fmadd_ps(a, b, c);
}

LS_FN part_i32 part_iset(int32_t a) {
    return _mm512_set1_epi32(a);
}
/* the lane's number, 0..31 */
LS_FN part_i32 part_iota(int part) {
    return _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                            _mm512_set1_epi32(16 * part));
}
LS_FN part_i32 part_iadd(part_i32 a, part_i32 b) {
    return _mm512_add_epi32(a, b);
}
LS_FN part_i32 part_isub(part_i32 a, part_i32 b) {
    return _mm512_sub_epi32(a, b);
}
LS_FN part_i32 part_iand(part_i32 a, part_i32 b) {
    return _mm512_and_si512(a, b);
}
LS_FN part_i32 part_ior(part_i32 a, part_i32 b) {
    return _mm512_or_si512(a, b);
}
LS_FN part_i32 part_ixor(part_i32 a, part_i32 b) {
    return _mm512_xor_si512(a, b);
}
LS_FN part_i32 part_isll(part_i32 a, int n) {
    return _mm512_slli_epi32(a, (unsigned)n);
}
LS_FN part_i32 part_isrl(part_i32 a, int n) {
    return _mm512_srli_epi32(a, (unsigned)n);
}
LS_FN part_i32 part_isra(part_i32 a, int n) {
    return _mm512_srai_epi32(a, (unsigned)n);
}
LS_FN part_i32 part_imax(part_i32 a, part_i32 b) {
    return _mm512_max_epi32(a, b);
}
LS_FN part_i32 part_imin(part_i32 a, part_i32 b) {
    return _mm512_min_epi32(a, b);
}
/* low and high words of the unsigned product with a constant */
LS_FN part_i32 part_umullo(part_i32 a, uint32_t b) {
    return _mm512_mullo_epi32(a, _mm512_set1_epi32((int)b));
}
LS_FN part_i32 part_umulhi(part_i32 a, uint32_t b) {
    const __m512i m = _mm512_set1_epi32((int)b);
    const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, m), 32);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
    return _mm512_mask_blend_epi32(0xAAAA, even, odd);
}

/* masks: all ones where the relation holds (never where a NaN takes part), else zero */
LS_FN part_i32 part_igt(part_i32 a, part_i32 b) {
    return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(a, b));
}
LS_FN part_i32 part_ieq(part_i32 a, part_i32 b) {
    return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(a, b));
}
LS_FN part_i32 part_gt(part_f32 a, part_f32 b) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ));
}
LS_FN part_i32 part_ge(part_f32 a, part_f32 b) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ));
}
LS_FN part_i32 part_eq(part_f32 a, part_f32 b) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ));
}
LS_FN part_i32 part_nan(part_f32 a) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q));
}
/* bit by bit: the mask's, then a's or b's */
LS_FN part_i32 part_iselect(part_i32 mask, part_i32 a, part_i32 b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}
LS_FN part_f32 part_as_f(part_i32 a) {
    return _mm512_castsi512_ps(a);
}
LS_FN part_i32 part_as_i(part_f32 a) {
    return _mm512_castps_si512(a);
}
LS_FN part_f32 part_select(part_i32 mask, part_f32 a, part_f32 b) {
    return part_as_f(part_iselect(mask, part_as_i(a), part_as_i(b)));
}
LS_FN part_f32 part_from_i(part_i32 a) {
    return _mm512_cvtepi32_ps(a);
}

/* ---- across lanes ---------------------------------------------------------------------------- */

/* Lanes xor 16 meet as whole parts, xor 8 as halves of what they give. */
LS_FN float lane_sum_parts(const part_f32 *p) {
    const __m512 a = _mm512_add_ps(p[0], p[1]);
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    t = _mm_add_ss(t, _mm_movehdup_ps(t));
    return _mm_cvtss_f32(t);
}
/* Butterflies of up to 8 warps' values at once, by transposing while adding: the same additions as
 * lane_sum_parts, each result keeping its own tree. xor 16 adds whole parts. */
LS_FN __m512 ls_fold_8(__m512 a, __m512 b) { /* xor 8: the first half a's, the other b's */
    return _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a, b), _mm512_shuffle_f32x4(a, b, 0x4E));
}
LS_FN __m512 ls_fold_4(__m512 a, __m512 b) { /* xor 4: quarters of a, a, b, b */
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
LS_FN __m512 ls_fold_1(__m512 a) { /* xor 1, twice each */
    return _mm512_add_ps(a, _mm512_permute_ps(a, 0xB1));
}
/* v: n groups of LS_PARTS parts, n <= 8; out has room for 8, those past n mean nothing. */
LS_FN void lane_sums_parts(const part_f32 *v, int n, float *out) {
    __m512 t[8];
    if (n == 1) {
        out[0] = lane_sum_parts(v);
        return;
    }
    LS_UNROLL
    for (int i = 0; i < 8; i++)
        if (i < n)
            t[i] = _mm512_add_ps(v[LS_PARTS * i], v[LS_PARTS * i + 1]);
        else
            t[i] = t[0];
    if (n <= 4) {
        const __m512 u = ls_fold_4(ls_fold_8(t[0], t[1]), ls_fold_8(t[2], t[3]));
        const __m512 r = ls_fold_1(_mm512_add_ps(u, _mm512_permute_ps(u, 0x4E)));
        /* a quarter holds one result */
        const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(at, r)));
        return;
    }
    const __m512 a = ls_fold_4(ls_fold_8(t[0], t[1]), ls_fold_8(t[2], t[3]));
    const __m512 b = ls_fold_4(ls_fold_8(t[4], t[5]), ls_fold_8(t[6], t[7]));
    /* xor 2: a quarter holds one result of a, then one of b */
    const __m512 r =
        ls_fold_1(_mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE)));
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm256_storeu_ps(out, _mm512_castps512_ps256(_mm512_permutexvar_ps(at, r)));
}
LS_FN int32_t lane_hmax_i(const part_i32 *p) {
    return _mm512_reduce_max_epi32(_mm512_max_epi32(p[0], p[1]));
}
LS_FN int32_t lane_hmin_i(const part_i32 *p) {
    return _mm512_reduce_min_epi32(_mm512_min_epi32(p[0], p[1]));
}
/* Sums of integers wrap and have no order. */
LS_FN int32_t lane_hsum_i(const part_i32 *p) {
    return _mm512_reduce_add_epi32(_mm512_add_epi32(p[0], p[1]));
}
/* the part's first lane, for values equal in all */
LS_FN float part_first(part_f32 a) {
    return _mm512_cvtss_f32(a);
}

#endif
