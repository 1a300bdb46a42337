/* kernel_rig.h - what the kernel tests share: seeded data, widening in double, comparison of bits,
 * and operations whose operands are host arrays, on whatever device is under test (device_rig.h).
 * Oracles stay in the tests: this file holds no arithmetic that a body could share. */
#ifndef LS_KERNEL_RIG_H
#define LS_KERNEL_RIG_H

#include "backend.h"
#include "cpu_bodies.h"
#include "device_rig.h"

/* Uniform in [-1, 1), a function of (seed, index). */
float kr_uniform(uint32_t seed, size_t i);
void kr_fill(float *x, size_t n, uint32_t seed, float scale);
/* malloc, filled with NaN; fails the test when there is no memory. */
void *kr_alloc(size_t bytes);
/* n seeded values of a storage type, in [-scale, scale); of a packed one whole blocks, some of
 * whose scales are negative or denormal. */
void *kr_weights(size_t n, ls_dtype t, uint32_t seed, float scale);
/* Element i in double, decoded by its own arithmetic; of Q4_K rounded to float once (N-PACK). */
double kr_value(const void *p, size_t i, ls_dtype t);
/* The size of what it is made of: |d s q| + |dmin m| of Q4_K, else its own. */
double kr_size(const void *p, size_t i, ls_dtype t);

/* A backend of the device under test; on the CPU with this instruction set and n_threads (0 is the
 * default). */
ls_backend *kr_backend(ls_simd simd, int n_threads);
/* One on the CPU, whatever is under test. */
ls_backend *kr_cpu(ls_simd simd, int n_threads);
/* The CPU's bodies for an instruction set, AUTO the best there is; NULL where the processor or the
 * build lacks it. */
const ls_cpu_bodies *kr_bodies(ls_simd simd);
/* Backends on the CPU, one thread each, of every instruction set this processor has, plain C first;
 * how many. */
enum { KR_FORMS = 3 };
int kr_forms(ls_backend *form[KR_FORMS]);
/* Fails unless nothing was refused since the last call. */
void kr_sync(ls_backend *be);

/* ---- operations on host operands ---------------------------------------------------------------
 * On the CPU, be->op(be, args). Elsewhere the operands are copied to the device, the results back,
 * and every result is compared with that of the same call on the CPU, bit for bit, where the
 * device's profile promises those bits; a NaN may have any payload. What lies
 * behind an operand is not copied: NaN is there instead, or nothing (LS_TEST_THIN, for
 * memcheck). */
void kr_embed(ls_backend *be, const ls_embed_args *a);
void kr_rmsnorm(ls_backend *be, const ls_rmsnorm_args *a);
void kr_linear(ls_backend *be, const ls_linear_args *a);
void kr_linears(ls_backend *be, const ls_linear_args *a, int32_t n);
void kr_bias(ls_backend *be, const ls_bias_args *a);
void kr_rope(ls_backend *be, const ls_rope_args *a);
void kr_kv_store(ls_backend *be, const ls_kv_store_args *a);
void kr_place(ls_backend *be, const ls_rope_args *a, const ls_kv_store_args *b);
void kr_attn(ls_backend *be, const ls_attn_args *a);
void kr_silu_mul(ls_backend *be, const ls_silu_mul_args *a);
void kr_gelu_mul(ls_backend *be, const ls_gelu_mul_args *a);
void kr_gather(ls_backend *be, const ls_gather_args *a);
void kr_stats(ls_backend *be, const ls_stats_args *a);
void kr_probs(ls_backend *be, const ls_probs_args *a);
void kr_choose(ls_backend *be, const ls_choose_args *a);
void kr_keep(ls_backend *be, const ls_keep_args *a);
void kr_feed(ls_backend *be, const ls_feed_args *a);
void kr_take(ls_backend *be, const ls_take_args *a);
void kr_accept(ls_backend *be, const ls_accept_args *a);
/* The instruction set of the CPU's side of the comparison: plain C (the default), or AUTO where a
 * case is large. */
void kr_shadow(ls_simd simd);

/* Device memory with a copy of `bytes` of host (NULL: NaN), freed by kr_free. */
void *kr_dev(ls_backend *be, const void *host, size_t bytes);
void kr_free(ls_backend *be, void *dev);
/* n seeded floats there (kr_fill), freed likewise. */
void *kr_filled(ls_backend *be, size_t n, uint32_t seed, float scale);
void kr_up(ls_backend *be, void *dev, const void *host, size_t bytes);
void kr_down(ls_backend *be, void *host, const void *dev, size_t bytes);
/* Seeded weights (kr_weights) in the form that `linear` reads, freed by kr_mat_free. */
ls_mat kr_mat(ls_backend *be, int n_out, int n_in, ls_dtype t, uint32_t seed, float scale);
void kr_mat_free(ls_backend *be, ls_mat *m);

/* Number of differing elements; the first is reported when `what` is given. */
size_t kr_differ(const char *what, const float *a, const float *b, size_t n, size_t row);
/* Fails unless all bits agree. */
void kr_same(const char *what, const float *a, const float *b, size_t n, size_t row);
/* v rounded to the eight significant bits of bf16, ties to even; in double, no denormals. */
double kr_to_bf16(double v);
/* Fails unless |got - want| <= bound; a NaN fails. */
void kr_near(const char *what, double got, double want, double bound);

#endif
