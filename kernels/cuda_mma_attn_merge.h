/* cuda_mma_attn_merge.h - the parts of a row's chunks into its result, for cuda_mma_attn.cu. A warp
 * takes a (row, head), four elements a lane; the order is that of MMA_ATTN.md, whoever merges:
 * Behind    a launch of its own, a warp a (row, head), or
 * Within    of few rows the blocks of the chunks: of those that share rows and heads, the one that
 *           is done last. A counter for each such group of blocks tells which; it is zero again
 *           when the launch ends. */
#ifndef LS_CUDA_MMA_ATTN_MERGE_H
#define LS_CUDA_MMA_ATTN_MERGE_H

#include "cuda.h"
#include "cuda_mma_attn_tile.h"

#define MERGE_AHEAD 8 /* parts of which a lane reads its elements at once */

/* Where results go besides a.out, and what is told of a row that has lost chunks. */
typedef struct merging {
    uint16_t *x16;  /* NULL, or the results rounded: [R, H E rounded up to 32] */
    int32_t *done;  /* NULL: a launch behind merges; or a counter for each (x, y) of the grid, zero */
    cuda_fault *fault;
    int32_t *claim;
} merging;

/* Where element e of a (row, head) lies in x16; four from a multiple of four lie together. */
DEV size_t rounded_at(const ls_attn_args &a, size_t row_head, int e) {
    const size_t row = row_head / (size_t)a.n_heads, head = row_head % (size_t)a.n_heads;
    const int dim = a.n_heads * a.head_dim, k = (int)head * a.head_dim + e;
    return row * (size_t)((dim + 31) / 32 * 32) + (size_t)LS_MMA_AT(k);
}
/* Four elements of a result; y is acc / l, or what there is without a key. */
DEV void put_result(const ls_attn_args &a, uint16_t *x16, size_t row_head, int e, float4 acc,
                    float l, float none) {
    float4 y = make_float4(none, none, none, none);
    if (l != 0.0f)
        y = make_float4(__fdiv_rn(acc.x, l), __fdiv_rn(acc.y, l), __fdiv_rn(acc.z, l),
                        __fdiv_rn(acc.w, l));
    *(float4 *)(a.out + row_head * (size_t)a.head_dim + e) = y;
    if (x16)
        *(uint2 *)(x16 + rounded_at(a, row_head, e)) =
            make_uint2(pair_of(y.x, y.y), pair_of(y.z, y.w));
}

DEV float4 scaled_add(float f, float4 x, float4 acc) {
    return make_float4(__fmaf_rn(f, x.x, acc.x), __fmaf_rn(f, x.y, acc.y), __fmaf_rn(f, x.z, acc.z),
                       __fmaf_rn(f, x.w, acc.w));
}
/* Elements e..e + 3 of a part; its m and l are the two before its elements. */
DEV float4 part_of(const float *part, int e) {
    const float2 low = __ldcg((const float2 *)(part + 2 + e));
    const float2 high = __ldcg((const float2 *)(part + 4 + e));
    return make_float4(low.x, low.y, high.x, high.y);
}

/* One (row, head) of n chunks, by a warp. Of 1 chunk it has been written; without any it is zeros. */
DEV void merge_one(const ls_attn_args &a, const merging &m, size_t row_head, int32_t n) {
    const int lane = (int)(threadIdx.x & 31u);
    const size_t step = 2 + (size_t)a.head_dim;
    const float *part = a.part + row_head * (size_t)a.max_chunks * step;
    const bool lost = n > a.max_chunks || n > LS_CHUNKS_MAX; /* parts are missing */
    if (n == 1 && !lost)
        return;
    if (lost) {
        const int32_t row = (int32_t)(row_head / (size_t)a.n_heads);
        if (lane == 0)
            cuda_report_chunks(m.fault, m.claim, row, __ldcg(a.length + row), n, a.max_chunks);
        n = 0;
    }
    float top = -INFINITY;
    for (int c = lane; c < n; c += 32)
        top = fmaxf(top, __ldcg(part + (size_t)c * step));
    float2 own = make_float2(-INFINITY, 0.0f); /* m and l of chunk `lane` of 32 */
    if (lane < n)
        own = __ldcg((const float2 *)(part + (size_t)lane * step));
    for (int e0 = 0; e0 < a.head_dim; e0 += 128) {
        const int e = min(e0 + lane * 4, a.head_dim - 4);
        float4 next[MERGE_AHEAD], acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++) /* only parts that were written */
            next[i] = i < n ? part_of(part + (size_t)i * step, e) : acc;
        if (e0 == 0)
#pragma unroll
            for (int o = 16; o > 0; o >>= 1)
                top = fmaxf(top, __shfl_xor_sync(FULL, top, o));
        const float z = top == -INFINITY ? 0.0f : top;
        float l = 0.0f, w = 0.0f;
        for (int c0 = 0; c0 < n; c0 += MERGE_AHEAD) {
            if (c0 % 32 == 0 && c0 + lane < n) {
                if (c0 > 0 || e0 > 0)
                    own = __ldcg((const float2 *)(part + (size_t)(c0 + lane) * step));
                w = exp2_of(__fsub_rn(own.x, z));
                l = __fmaf_rn(w, own.y, l);
            }
            float4 now[MERGE_AHEAD];
#pragma unroll
            for (int i = 0; i < MERGE_AHEAD; i++) {
                const int c = c0 + MERGE_AHEAD + i;
                now[i] = next[i];
                if (c < n)
                    next[i] = part_of(part + (size_t)c * step, e);
            }
#pragma unroll
            for (int i = 0; i < MERGE_AHEAD; i++) {
                const float wi = __shfl_sync(FULL, w, c0 % 32 + i);
                acc = c0 + i < n ? scaled_add(wi, now[i], acc) : acc;
            }
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1)
            l = __fadd_rn(l, __shfl_xor_sync(FULL, l, o));
        if (e == e0 + lane * 4)
            put_result(a, m.x16, row_head, e, acc, l, lost ? __int_as_float(0x7fc00000) : 0.0f);
    }
}

/* Grid: a warp a (row, head). */
static __global__ void merge_kernel(const __grid_constant__ ls_attn_args a,
                                    const __grid_constant__ merging m) {
    const size_t row_head = (size_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    cuda_let_behind();
    int32_t n = 0;
    if (row_head < (size_t)a.n_rows * (size_t)a.n_heads)
        n = chunk_count(a.rule, __ldcg(a.length + row_head / (size_t)a.n_heads));
    cuda_wait();
    if (row_head < (size_t)a.n_rows * (size_t)a.n_heads)
        merge_one(a, m, row_head, n);
}

/* Counts one up, having published what the block wrote, and sees what the others published. */
DEV int32_t count_up(int32_t *at) {
    int32_t was;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(was) : "l"(at) : "memory");
    return was;
}

/* The block has made its items: the last of `blocks` that share its rows and heads merges them.
 * count: of lane's row; of rows row0..row0 + n - 1 the heads head0..head0 + n_heads - 1. */
DEV void merge_within(const ls_attn_args &a, const merging &m, int32_t count, int row0, int n,
                      int head0, int n_heads, int blocks) {
    __shared__ int32_t is_last;
    if (!__any_sync(FULL, (int)(threadIdx.x & 31u) < n && count != 1))
        return; /* the chunks wrote all results */
    __syncthreads();
    if (blocks > 1) {
        if (threadIdx.x == 0) {
            int32_t *done = m.done + blockIdx.y * gridDim.x + blockIdx.x;
            is_last = count_up(done) == blocks - 1;
            if (is_last)
                *done = 0;
        }
        __syncthreads();
        if (!is_last)
            return;
    }
    for (int i = (int)(threadIdx.x >> 5); i < n * n_heads; i += (int)(blockDim.x >> 5)) {
        const int r = i / n_heads;
        merge_one(a, m, (size_t)(row0 + r) * (size_t)a.n_heads + (size_t)(head0 + i % n_heads),
                  __shfl_sync(FULL, count, r));
    }
}

#endif
