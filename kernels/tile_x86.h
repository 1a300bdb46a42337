/* tile_x86.h - what the AVX2 and the AVX-512 form of the tile language have in common: a block is
 * one thread, scalars live in the low lane of a vector register. Included by those forms alone. */
#ifndef LS_TILE_X86_H
#define LS_TILE_X86_H

#include <immintrin.h>

#include "packed.h"

#ifdef __SANITIZE_ADDRESS__ /* instrumented, the unrolled bodies take minutes to compile */
#define LS_FN static __attribute__((noinline, unused))
#define LS_UNROLL
#else
#define LS_FN static inline __attribute__((always_inline, unused))
#define LS_UNROLL _Pragma("GCC unroll 32")
#endif
/* a body specialised for constants: a function of its own */
#define LS_INSTANCE static __attribute__((noinline, unused))
#define LS_WARPS(i, n) for (int i = 0; i < (n); i++)
#define LS_EACH(i, n) for (int i = 0; i < (n); i++)
#define LS_WARP0
#define LS_LANE0
#define LS_BARRIER() ((void)0)
#define LS_WARP_SYNC() ((void)0)
#define LS_CONST_TABLE static const

LS_FN void part_prefetch(const void *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}
/* tile.h's, eight at a time */
#define ls_q4_k_scales ls_q4_k_scales
LS_FN void ls_q4_k_scales(const uint8_t *b, float out[16]) {
    uint32_t u[3];
    memcpy(u, b + LS_Q4_K_SCALES, sizeof u);
    const uint32_t six = 0x3f3f3f3fu, four = 0x0f0f0f0fu, top = 0x30303030u;
    const __m128i s =
        _mm_setr_epi32((int)(u[0] & six), (int)((u[2] & four) | (u[0] >> 2 & top)),
                       (int)(u[1] & six), (int)((u[2] >> 4 & four) | (u[1] >> 2 & top)));
    const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)ls_u16_at(b)));
    const __m256 dmin = _mm256_cvtph_ps(_mm_set1_epi16((short)ls_u16_at(b + 2)));
    _mm256_storeu_ps(out, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(s))));
    const __m128i m = _mm_srli_si128(s, 8);
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(m))));
}
LS_FN float ls_sqrt(float a) {
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a)));
}
LS_FN float ls_fma(float a, float b, float c) {
    return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

#endif
