/* kernel_rig.h - what the kernel tests share: seeded data, widening in double, comparison of bits.
 * Oracles stay in the tests: this file holds no arithmetic that a body could share. */
#ifndef LS_KERNEL_RIG_H
#define LS_KERNEL_RIG_H

#include "backend.h"

/* Uniform in [-1, 1), a function of (seed, index). */
float kr_uniform(uint32_t seed, size_t i);
void kr_fill(float *x, size_t n, uint32_t seed, float scale);
/* malloc, filled with NaN; fails the test when there is no memory. */
void *kr_alloc(size_t bytes);
/* n seeded values of a storage type, in [-scale, scale). */
void *kr_weights(size_t n, ls_dtype t, uint32_t seed, float scale);
/* Element i in double, decoded by its own arithmetic. */
double kr_value(const void *p, size_t i, ls_dtype t);

/* A backend; n_threads 0 is the default. AUTO is AVX2 where the processor has it. */
ls_backend *kr_backend(ls_simd simd, int n_threads);
/* Fails unless nothing was refused since the last call. */
void kr_sync(ls_backend *be);

/* Number of differing elements; the first is reported when `what` is given. */
size_t kr_differ(const char *what, const float *a, const float *b, size_t n, size_t row);
/* Fails unless all bits agree. */
void kr_same(const char *what, const float *a, const float *b, size_t n, size_t row);
/* Fails unless |got - want| <= bound; a NaN fails. */
void kr_near(const char *what, double got, double want, double bound);

#endif
