#include "kernel_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

float kr_uniform(uint32_t seed, size_t i) {
    uint32_t z = (uint32_t)i * 0x9E3779B9u + seed * 0x85EBCA6Bu + (uint32_t)((uint64_t)i >> 32);
    z = (z ^ z >> 16) * 0x7FEB352Du;
    z = (z ^ z >> 15) * 0x846CA68Bu;
    z ^= z >> 16;
    return (float)((int32_t)(z >> 8) - (1 << 23)) * 0x1p-23f;
}

void kr_fill(float *x, size_t n, uint32_t seed, float scale) {
    for (size_t i = 0; i < n; i++)
        x[i] = kr_uniform(seed, i) * scale;
}

void *kr_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    memset(p, 0xff, bytes);
    return p;
}

/* The f16 at or below f in size, for f in the range of its normal numbers. */
static uint16_t cut_half(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u >> 16 & 0x8000u) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 1023u));
}

/* Blocks of random bytes under scales that make the largest weight about `scale`. */
static void *packed_weights(size_t n, ls_dtype t, uint32_t seed, float scale) {
    const size_t bytes = ls_dtype_bytes(t), blocks = n / ls_dtype_block(t);
    uint8_t *w = kr_alloc(blocks * bytes);
    assert_true(n % ls_dtype_block(t) == 0);
    for (size_t i = 0; i < blocks * bytes; i++)
        w[i] = (uint8_t)(int32_t)(kr_uniform(seed, i) * 128.0f);
    for (size_t b = 0; b < blocks; b++) {
        const float f = scale * (0.75f + 0.25f * kr_uniform(seed + 77, b));
        const uint16_t d = b % 16 == 5  ? 0x8003 /* a denormal */
                           : b % 8 == 3 ? cut_half(-f / 128.0f)
                                        : cut_half(f / (t == LS_Q8_0 ? 128.0f : 1024.0f)),
                       m = b % 16 == 9 ? 0x0001 : cut_half(f / 128.0f);
        memcpy(w + b * bytes, &d, 2);
        if (t == LS_Q4_K)
            memcpy(w + b * bytes + 2, &m, 2);
    }
    return w;
}

/* The test's own narrowing: cut to the type's bits, which needs no rounding rule. */
void *kr_weights(size_t n, ls_dtype t, uint32_t seed, float scale) {
    if (ls_dtype_block(t) > 1)
        return packed_weights(n, t, seed, scale);
    void *w = kr_alloc(n * ls_dtype_bytes(t));
    for (size_t i = 0; i < n; i++) {
        const float f = kr_uniform(seed, i) * scale;
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if (t == LS_F32) {
            ((float *)w)[i] = f;
        } else if (t == LS_BF16) {
            ((uint16_t *)w)[i] = (uint16_t)(u >> 16);
        } else { /* one in 64 is a denormal of f16, so that widening meets them */
            const int e = (int)(u >> 23 & 255) - 127 + 15;
            const uint32_t sign = u >> 16 & 0x8000u, m = u >> 13 & 1023u;
            ((uint16_t *)w)[i] =
                (uint16_t)(sign | m | (e < 1 || i % 64 == 5 ? 0u : (uint32_t)e << 10));
        }
    }
    return w;
}

/* Six bits of the 12 bytes of a Q4_K block that hold scales (which = 0) and minima (1): the format
 * keeps entries 0 to 3 of each whole, and splits 4 to 7. */
static int six_bits(const uint8_t *s, int which, int part) {
    if (part < 4)
        return s[4 * which + part] % 64;
    const int low = which ? s[4 + part] / 16 : s[4 + part] % 16;
    return low + s[4 * which + part - 4] / 64 * 16;
}

/* Of Q4_K: d s q, and dmin m. */
static double q4_k_value(const uint8_t *p, size_t i, double *less) {
    const uint8_t *b = p + i / 256 * 144;
    const int part = (int)(i % 256 / 32), byte = b[16 + part / 2 * 32 + (int)(i % 32)];
    *less = kr_value(b + 2, 0, LS_F16) * six_bits(b + 4, 1, part);
    return kr_value(b, 0, LS_F16) * six_bits(b + 4, 0, part) * (part % 2 ? byte / 16 : byte % 16);
}

static double packed_value(const uint8_t *p, size_t i, ls_dtype t) {
    double less;
    if (t == LS_Q8_0) {
        const uint8_t *b = p + i / 32 * 34;
        const int q = b[2 + i % 32];
        return kr_value(b, 0, LS_F16) * (q < 128 ? q : q - 256);
    }
    const double v = q4_k_value(p, i, &less);
    return (double)(float)(v - less);
}

double kr_size(const void *p, size_t i, ls_dtype t) {
    double less;
    if (t != LS_Q4_K)
        return fabs(kr_value(p, i, t));
    const double v = q4_k_value(p, i, &less);
    return fabs(v) + fabs(less);
}

double kr_value(const void *p, size_t i, ls_dtype t) {
    if (t == LS_F32)
        return ((const float *)p)[i];
    if (ls_dtype_block(t) > 1)
        return packed_value(p, i, t);
    const uint16_t h = ((const uint16_t *)p)[i];
    const int bits = t == LS_F16 ? 10 : 7, bias = t == LS_F16 ? 15 : 127;
    const int m = h & ((1 << bits) - 1), e = (h & 0x7fff) >> bits;
    const double a = e ? ldexp(m + (1 << bits), e - bias - bits) : ldexp(m, 1 - bias - bits);
    return h >> 15 ? -a : a;
}

ls_backend *kr_backend(ls_simd simd, int n_threads) {
    return rig_backend_on(rig_device_chosen(), (ls_cpu_options){n_threads, simd});
}

ls_backend *kr_cpu(ls_simd simd, int n_threads) {
    return rig_backend_on(RIG_CPU, (ls_cpu_options){n_threads, simd});
}

const ls_cpu_bodies *kr_bodies(ls_simd simd) {
    ls_backend *be;
    ls_err err;
    if (ls_cpu_create((ls_cpu_options){1, simd}, &be, &err) != LS_OK)
        return NULL;
    const ls_cpu_bodies *bodies = &ls_cpu_plain;
#if defined(__x86_64__)
    if (strstr(be->device, ", avx2,"))
        bodies = &ls_cpu_avx2;
    if (strstr(be->device, ", avx512,"))
        bodies = &ls_cpu_avx512;
#endif
    ls_backend_destroy(be);
    return bodies;
}

int kr_forms(ls_backend *form[KR_FORMS]) {
    static const ls_simd kinds[KR_FORMS] = {LS_SIMD_PLAIN, LS_SIMD_AVX2, LS_SIMD_AVX512};
    int n = 0;
    for (int i = 0; i < KR_FORMS; i++)
        if (kr_bodies(kinds[i]))
            form[n++] = kr_cpu(kinds[i], 1);
    return n;
}

void kr_sync(ls_backend *be) {
    ls_err err;
    if (be->sync(be, &err) != LS_OK)
        fail_msg("%s", err.msg);
}

size_t kr_differ(const char *what, const float *a, const float *b, size_t n, size_t row) {
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && bad++ == 0)
            first = i;
    if (bad && what) {
        uint32_t u, v;
        memcpy(&u, a + first, sizeof u);
        memcpy(&v, b + first, sizeof v);
        print_error("%s: %zu of %zu differ, first [%zu, %zu]: %08x (%.9g) and %08x (%.9g)\n", what,
                    bad, n, first / row, first % row, u, (double)a[first], v, (double)b[first]);
    }
    return bad;
}

void kr_same(const char *what, const float *a, const float *b, size_t n, size_t row) {
    if (kr_differ(what, a, b, n, row))
        fail_msg("%s: bits differ", what);
}

double kr_to_bf16(double v) {
    int exponent;
    const double m = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(m, 8)), exponent - 8);
}

void kr_near(const char *what, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %.17g, should be %.17g within %.3g (off by %.3g)", what, got, want, bound,
                 fabs(got - want));
}
