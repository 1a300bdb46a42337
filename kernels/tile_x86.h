/* tile_x86.h - what the AVX2 and the AVX-512 form of the tile language have in common: a block is
 * one thread, scalars live in the low lane of a vector register. Included by those forms alone. */
#ifndef LS_TILE_X86_H
#define LS_TILE_X86_H

#include <immintrin.h>

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
LS_FN float ls_sqrt(float a) {
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a)));
}
LS_FN float ls_fma(float a, float b, float c) {
    return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

#endif
