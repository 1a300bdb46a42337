/* cpu_bodies.h - the bodies as the CPU backend calls them: a range of blocks, run by one thread.
 * The same table exists three times, compiled from the same source: cpu_avx512.c, cpu_avx2.c and
 * cpu_plain.c.
 * Blocks      linear: outputs [n0, n1) of all rows. Others: rows, or items counted as said.
 * Threads     ranges of one call may run at once; block memory is on the caller's stack. */
#ifndef LS_CPU_BODIES_H
#define LS_CPU_BODIES_H

#include "backend.h"

typedef struct ls_cpu_bodies {
    const char *name;
    int linear_unit; /* outputs: ranges begin at multiples of it */
    void (*linear)(const ls_linear_args *, int n0, int n1);
    void (*embed)(const ls_embed_args *, int r0, int r1);
    void (*rmsnorm)(const ls_rmsnorm_args *, int r0, int r1);
    void (*bias)(const ls_bias_args *, int r0, int r1);
    void (*rope)(const ls_rope_args *, int r0, int r1);
    void (*kv_store)(const ls_kv_store_args *, int r0, int r1);
    void (*place)(const ls_rope_args *, const ls_kv_store_args *, int r0, int r1);
    void (*silu_mul)(const ls_silu_mul_args *, int r0, int r1);
    void (*gelu_mul)(const ls_gelu_mul_args *, int r0, int r1);
    void (*gather)(const ls_gather_args *, int i0, int i1);
    /* items: every chunk of every kv head of every row, rows outermost, chunks innermost */
    void (*attn_chunk)(const ls_attn_args *, int64_t i0, int64_t i1);
    void (*attn_merge)(const ls_attn_args *, int i0, int i1); /* items: row * H + head */
    /* joins n states (m, l, acc[E]) into out[E] */
    void (*attn_join)(const float *part, int n, int E, float *out);
    void (*stats)(const ls_stats_args *, int r0, int r1);
    void (*probs)(const ls_probs_args *, int i0, int i1); /* items: row * segments + segment */
    void (*choose)(const ls_choose_args *, int r0, int r1);
    void (*keep)(const ls_keep_args *, int s0, int s1); /* items: segments */
    void (*feed)(const ls_feed_args *);
    void (*take)(const ls_take_args *, int i0, int i1);
    void (*accept)(const ls_accept_args *);
    /* out[i] = the word of token `first` + i; first a multiple of 4 (N-DRAW) */
    void (*words)(const ls_draw *, uint32_t first, uint32_t *out, int n);
    /* out[i] = exp or log of x[i] (N-EXP, N-LOG) */
    void (*exp)(const float *x, float *out, int n);
    void (*log)(const float *x, float *out, int n);
    /* acc = fma(acc, x, x), n_step times in each of some chains; adds what they come to to *sum,
     * and returns how many single fma that was */
    int64_t (*fma)(int64_t n_step, float x, float *sum);
} ls_cpu_bodies;

extern const ls_cpu_bodies ls_cpu_avx512, ls_cpu_avx2, ls_cpu_plain;

#endif
