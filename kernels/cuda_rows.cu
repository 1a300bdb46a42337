/* cuda_rows.cu - kernels and launchers of the bodies whose warps do not wait for each other. A row
 * has as many blocks (grid y) as it has work for: each warp takes few items, so that a single row
 * is not walked by one multiprocessor. */
#define LS_WARP_FIRST ((int)(blockIdx.y * (blockDim.x >> 5) + (threadIdx.x >> 5)))
#define LS_WARP_STEP ((int)(gridDim.y * (blockDim.x >> 5)))

#include "chain.body.h"
#include "place.body.h"
#include "stats.body.h"

#include "cuda.h"
#include "cuda_mma.h"

#define THREADS 128
#define WARPS (THREADS / 32)
#define BLOCKS_A_ROW 1024 /* and then a warp takes more items */

/* Blocks for a row of n_items, a warp each. */
static unsigned blocks_of(int n_items) {
    const int n = (n_items + WARPS - 1) / WARPS;
    return (unsigned)(n < 1 ? 1 : n < BLOCKS_A_ROW ? n : BLOCKS_A_ROW);
}
static int lanes_of(int n) {
    return n / LS_LANES + (n % LS_LANES != 0);
}

/* kernel and launcher of ls_body_<op>(args, row) for `rows` rows of `items` items each */
#define LS_ROWS_KERNEL(op, wait, rows, items)                                                    \
    static __global__ void __launch_bounds__(THREADS) ls_##op##_kernel(const ls_##op##_args a) { \
        wait();                                                                                  \
        ls_body_##op(&a, (int)blockIdx.x);                                                       \
    }                                                                                            \
    static void ls_##op##_cuda(ls_backend *be, const ls_##op##_args *a) {                        \
        LS_CUDA_BEGIN(be, ls_check_##op(a, &why_));                                              \
        if ((rows) < 1 || (items) < 1)                                                           \
            return;                                                                              \
        const dim3 grid((unsigned)(rows), blocks_of(items));                                     \
        LS_LAUNCH(cuda, #op, ls_##op##_kernel, grid, THREADS, *a);                               \
    }

LS_ROWS_KERNEL(embed, cuda_wait_first, a->n_rows, lanes_of(a->table.n_in))
LS_ROWS_KERNEL(gather, cuda_wait_ahead, a->n, lanes_of(a->dim))
LS_ROWS_KERNEL(bias, cuda_wait_ahead, a->n_rows, lanes_of(a->dim))
LS_ROWS_KERNEL(rope, cuda_wait_ahead, a->n_rows, a->n_heads + a->n_kv)
LS_ROWS_KERNEL(kv_store, cuda_wait_ahead, a->n_rows, lanes_of(a->n_kv * a->head_dim))
/* a segment of 512 elements is a "row" of these */
LS_ROWS_KERNEL(keep, cuda_wait_ahead,
               a->n < 1 ? 0 : a->dim / LS_SEGMENT + (a->dim % LS_SEGMENT != 0),
               LS_SEGMENT / LS_LANES)

static __global__ void __launch_bounds__(THREADS)
    ls_probs_kernel(const ls_probs_args a, int n_seg) {
    cuda_wait_ahead();
    ls_body_probs(&a, (int)blockIdx.x / n_seg, (int)blockIdx.x % n_seg);
}
static void ls_probs_cuda(ls_backend *be, const ls_probs_args *a) {
    LS_CUDA_BEGIN(be, ls_check_probs(a, &why_));
    const int n_seg = a->n_vocab / LS_SEGMENT + (a->n_vocab % LS_SEGMENT != 0);
    if (a->n_rows < 1)
        return;
    LS_LAUNCH(cuda, "probs", ls_probs_kernel, dim3((unsigned)n_seg * (unsigned)a->n_rows), THREADS,
              *a, n_seg);
}

/* A piece of a row is stored with its copy rounded to bf16 beside it (x16 of cuda_mma.h). */
LS_FN void put_rounded(float *y, uint16_t *x16, int k, int n, lane_f32 v) {
    lane_store_n(y + k, n - k, v);
    if (x16)
        x16[LS_MMA_AT(k + LS_LANE)] = cuda_bf16(k + LS_LANE < n ? v.p[0] : 0.0f);
}

#define LS_GATE_KERNEL(op)                                                          \
    static __global__ void __launch_bounds__(THREADS)                               \
        ls_##op##_kernel(const ls_##op##_args a, uint16_t *x16) {                   \
        const int F = a.dim;                                                        \
        const size_t row = (size_t)blockIdx.x * (size_t)F;                          \
        if (x16)                                                                    \
            x16 += (size_t)blockIdx.x * (size_t)LS_MMA_LD(F);                       \
        cuda_wait_ahead();                                                          \
        LS_WARPS (i, ls_ceil_div(F, LS_LANES)) {                                    \
            const int k = i * LS_LANES;                                             \
            const lane_f32 g = lane_load_n(a.gate + row, (size_t)k, F - k, LS_F32); \
            const lane_f32 u = lane_load_n(a.up + row, (size_t)k, F - k, LS_F32);   \
            put_rounded(a.h + row, x16, k, F, ls_##op##_of(g, u));                  \
        }                                                                           \
    }                                                                               \
    static void ls_##op##_cuda(ls_backend *be, const ls_##op##_args *a) {           \
        LS_CUDA_BEGIN(be, ls_check_##op(a, &why_));                                 \
        if (a->n_rows < 1)                                                          \
            return;                                                                 \
        const dim3 grid((unsigned)a->n_rows, blocks_of(lanes_of(a->dim)));          \
        LS_LAUNCH(cuda, #op, ls_##op##_kernel, grid, THREADS, *a,                   \
                  cuda_round_beside(cuda, a->h, a->n_rows, a->dim));                \
    }
LS_GATE_KERNEL(silu_mul)
LS_GATE_KERNEL(gelu_mul)

static __global__ void __launch_bounds__(THREADS)
    ls_place_kernel(const ls_rope_args a, const ls_kv_store_args b) {
    const int r = (int)blockIdx.x, half = a.head_dim / 2;
    cuda_let_behind();
    const int pos = __ldcg(a.pos + r), slot = __ldcg(b.slot + r); /* tables: no launch ahead's */
    if (pos >= 0 && pos < a.n_pos)
        for (int e = (int)threadIdx.x * 32; e < half; e += (int)blockDim.x * 32) {
            const size_t at = (size_t)pos * (size_t)half + (size_t)e;
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.cos + at));
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.sin + at));
        }
    cuda_wait_ahead();
    ls_place_row(&a, &b, r, pos, slot);
}
static void ls_place_cuda(ls_backend *be, const ls_rope_args *a, const ls_kv_store_args *b) {
    LS_CUDA_BEGIN(be, ls_check_place(a, b, &why_));
    if (a->n_rows < 1 || a->n_heads + a->n_kv < 1)
        return;
    const int pieces = lanes_of(a->head_dim / 2); /* of 32 pairs, a warp each */
    const dim3 grid((unsigned)a->n_rows, blocks_of((a->n_heads + a->n_kv) * pieces));
    LS_LAUNCH(cuda, "place", ls_place_kernel, grid, THREADS, *a, *b);
}

static __global__ void ls_take_kernel(const ls_take_args a) {
    cuda_wait_ahead();
    ls_body_take(&a, (int)blockIdx.x);
}
static void ls_take_cuda(ls_backend *be, const ls_take_args *a) {
    LS_CUDA_BEGIN(be, ls_check_take(a, &why_));
    if (a->n < 1)
        return;
    LS_LAUNCH(cuda, "take", ls_take_kernel, dim3((unsigned)a->n), 32, *a);
}

static __global__ void ls_feed_kernel(const ls_feed_args a) {
    cuda_wait_ahead();
    ls_body_feed(&a);
}
static void ls_feed_cuda(ls_backend *be, const ls_feed_args *a) {
    LS_CUDA_BEGIN(be, ls_check_feed(a, &why_));
    LS_LAUNCH(cuda, "feed", ls_feed_kernel, dim3(1), 32, *a);
}

cudaError_t ls_cuda_rows_split(void) {
    const void *kernels[] = {(const void *)ls_embed_kernel,    (const void *)ls_gather_kernel,
                             (const void *)ls_bias_kernel,     (const void *)ls_place_kernel,
                             (const void *)ls_silu_mul_kernel, (const void *)ls_gelu_mul_kernel,
                             (const void *)ls_keep_kernel,     (const void *)ls_take_kernel,
                             (const void *)ls_feed_kernel};
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && e == cudaSuccess; i++)
        e = cuda_split(kernels[i], 0);
    return e;
}

void ls_cuda_rows_install(cuda_backend *cuda) {
    ls_backend *be = &cuda->be;
    be->embed = ls_embed_cuda;
    be->gather = ls_gather_cuda;
    be->bias = ls_bias_cuda;
    be->rope = ls_rope_cuda;
    be->kv_store = ls_kv_store_cuda;
    be->place = ls_place_cuda;
    be->silu_mul = ls_silu_mul_cuda;
    be->gelu_mul = ls_gelu_mul_cuda;
    be->keep = ls_keep_cuda;
    be->probs = ls_probs_cuda;
    be->take = ls_take_cuda;
    be->feed = ls_feed_cuda;
}
