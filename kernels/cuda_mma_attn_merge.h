/* cuda_mma_attn_merge.h - the parts of a row's chunks into its result, for cuda_mma_attn.cu. A warp
 * takes a (row, head), four elements a lane; the order is that of MMA_ATTN.md, whoever merges:
 * Behind    a launch of its own, a warp a (row, head), or
 * Within    of few rows the blocks of the chunks: of those that share rows and heads, the one that
 *           is done last. A counter for each such group of blocks tells which; it is zero again
 *           when the launch ends.
 * Near      of few rows and at most CLUSTER chunks (9.0 and later): the blocks of a cluster, which put
 *           their parts into each other's shared memory. */
#ifndef LS_CUDA_MMA_ATTN_MERGE_H
#define LS_CUDA_MMA_ATTN_MERGE_H

#include "cuda.h"
#include "cuda_mma_attn_tile.h"

#define MERGE_AHEAD 8 /* parts of which a lane reads its elements at once */
#define CLUSTER 8
#define PART_PITCH(EP) ((EP) + 4) /* floats of a part in shared memory: acc, then m, l */

/* Where results go besides a.out, and what is told of a row that has lost chunks. */
typedef struct merging {
    uint16_t *x16; /* NULL, or the results rounded: [R, H E rounded up to 32] */
    int32_t
        *done;    /* NULL: a launch behind merges; or a counter for each (x, y) of the grid, zero */
    int32_t near; /* with `done`: blocks along z are clusters of CLUSTER */
    cuda_fault *fault;
    int32_t *claim;
} merging;

/* Four elements from e on of a result: acc / l, or what there is without a key. In x16, too, four from
 * a multiple of four lie together. */
DEV void put_result(const ls_attn_args &a, uint16_t *x16, int row, int head, int e, float4 acc,
                    float l, float none) {
    const int dim = a.n_heads * a.head_dim, k = head * a.head_dim + e;
    float4 y = make_float4(none, none, none, none);
    if (l != 0.0f)
        y = make_float4(__fdiv_rn(acc.x, l), __fdiv_rn(acc.y, l), __fdiv_rn(acc.z, l),
                        __fdiv_rn(acc.w, l));
    *(float4 *)(a.out + (size_t)row * (size_t)dim + k) = y;
    if (x16)
        *(uint2 *)(x16 + (size_t)row * (size_t)((dim + 31) / 32 * 32) + LS_MMA_AT(k)) =
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
DEV void merge_one(const ls_attn_args &a, const merging &m, int row, int head, int32_t n) {
    const int lane = (int)(threadIdx.x & 31u);
    const size_t step = 2 + (size_t)a.head_dim;
    const float *part =
        a.part + ((size_t)row * (size_t)a.n_heads + (size_t)head) * (size_t)a.max_chunks * step;
    const bool lost = n > a.max_chunks || n > LS_CHUNKS_MAX; /* parts are missing */
    if (n == 1 && !lost)
        return;
    if (lost) {
        if (lane == 0)
            cuda_report_chunks(m.fault, m.claim, row, __ldcg(a.length + row), n, a.max_chunks);
        n = 0;
    }
    float2 own = make_float2(-INFINITY, 0.0f); /* m and l of chunk `lane` of 32 */
    if (lane < n)
        own = __ldcg((const float2 *)(part + (size_t)lane * step));
    float top = -INFINITY;
    for (int e0 = 0; e0 < a.head_dim; e0 += 128) {
        const int e = min(e0 + lane * 4, a.head_dim - 4);
        float4 next[MERGE_AHEAD], acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++) /* only parts that were written */
            next[i] = i < n ? part_of(part + (size_t)i * step, e) : acc;
        if (e0 == 0) {
            top = own.x;
            for (int c = lane + 32; c < n; c += 32)
                top = fmaxf(top, __ldcg(part + (size_t)c * step));
#pragma unroll
            for (int o = 16; o > 0; o >>= 1)
                top = fmaxf(top, __shfl_xor_sync(FULL, top, o));
        }
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
            put_result(a, m.x16, row, head, e, acc, l, lost ? __int_as_float(0x7fc00000) : 0.0f);
    }
}

/* Grid: a warp a (row, head). */
static __global__ void merge_kernel(const __grid_constant__ ls_attn_args a,
                                    const __grid_constant__ merging m) {
    const int i = (int)(blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5));
    const int row = i / a.n_heads;
    cuda_let_behind();
    int32_t n = 0;
    if (row < a.n_rows)
        n = chunk_count(a.rule, __ldcg(a.length + row));
    cuda_wait();
    if (row < a.n_rows)
        merge_one(a, m, row, i % a.n_heads, n);
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
        merge_one(a, m, row0 + r, head0 + i % n_heads, __shfl_sync(FULL, count, r));
    }
}

/* ---- near ------------------------------------------------------------------------------------ */

/* Block c of a cluster makes chunk c of the rows, and puts each part into the block that merges it:
 * block t mod `blocks` has (row, head) t, row first, as its number t / blocks. */
typedef struct neighbours {
    int32_t blocks;  /* that have a chunk; one without any */
    int32_t inverse; /* t / blocks is t inverse / 65536, t below 64 */
    int32_t most;    /* (row, head)s of a block */
} neighbours;
DEV neighbours find_neighbours(int n_items, int columns) {
    neighbours y;
    y.blocks = max(n_items, 1);
    y.inverse = 65536 / y.blocks + 1;
    y.most = (columns + y.blocks - 1) * y.inverse >> 16;
    return y;
}
/* Parts a block may be given: of up to `columns` (row, head)s of each chunk. */
#define NEAR_PARTS(columns) ((columns) + CLUSTER)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/* `at` of this block's shared memory, in block `rank` of the cluster; to there. */
DEV uint32_t shared_of(uint32_t at, int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}
DEV void put_near(uint32_t at, float4 v) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}
DEV void put_near(uint32_t at, float2 v) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(v.x), "f"(v.y)
                 : "memory");
}
/* All blocks of the cluster that have not ended. */
DEV void cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
DEV void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else /* no clusters: merging.near is not set */
DEV uint32_t shared_of(uint32_t at, int rank) {
    return rank ? 0 : at;
}
template <class T> DEV void put_near(uint32_t, T) {}
DEV void cluster_arrive(void) {}
DEV void cluster_wait(void) {}
#endif

/* Where the part of (row, head) t and this block's chunk goes; part: of this block. */
template <int EP> DEV uint32_t near_part(const float *part, const neighbours &near, int t) {
    const int number = t * near.inverse >> 16, rank = t - number * near.blocks;
    const int at = ((int)blockIdx.z * near.most + number) * PART_PITCH(EP);
    return shared_of((uint32_t)__cvta_generic_to_shared(part + at), rank);
}

/* The parts are here: a warp takes 32 elements of a (row, head), a lane each. */
template <int EP>
DEV void merge_near(const ls_attn_args &a, const merging &m, const float *part,
                    const neighbours &near, int32_t count, int row0, int n, int head0,
                    int n_heads) {
    constexpr int PIECES = (EP + 31) / 32;
    const int lane = (int)(threadIdx.x & 31u), warps = (int)(blockDim.x >> 5);
    const int dim = a.n_heads * a.head_dim;
    for (int i = (int)(threadIdx.x >> 5); i < near.most * PIECES; i += warps) {
        const int j = i / PIECES, e = i % PIECES * 32 + lane, t = (int)blockIdx.z + j * near.blocks;
        if (t >= n * n_heads)
            break;
        const int r = t / n_heads, head = head0 + t - r * n_heads, row = row0 + r;
        int32_t chunks = __shfl_sync(FULL, count, r);
        const bool lost = chunks > a.max_chunks;
        if (chunks == 1 && !lost)
            continue;
        if (lost && i % PIECES == 0 && lane == 0)
            cuda_report_chunks(m.fault, m.claim, row, __ldcg(a.length + row), chunks, a.max_chunks);
        chunks = lost ? 0 : chunks;
        const float *from = part + j * PART_PITCH(EP);
        const int step = near.most * PART_PITCH(EP);
        float2 own = make_float2(-INFINITY, 0.0f);
        float acc[CLUSTER], y = 0.0f;
        if (lane < chunks)
            own = *(const float2 *)(from + lane * step + EP);
#pragma unroll
        for (int c = 0; c < CLUSTER; c++)
            acc[c] = c < chunks && e < EP ? from[c * step + e] : 0.0f;
        float top = own.x;
#pragma unroll
        for (int o = 4; o > 0; o >>= 1)
            top = fmaxf(top, __shfl_xor_sync(FULL, top, o));
        top = __shfl_sync(FULL, top, 0);
        const float z = top == -INFINITY ? 0.0f : top;
        const float w = exp2_of(__fsub_rn(own.x, z));
        float l = lane < chunks ? __fmaf_rn(w, own.y, 0.0f) : 0.0f;
#pragma unroll
        for (int c = 0; c < CLUSTER; c++) {
            const float wc = __shfl_sync(FULL, w, c);
            y = c < chunks ? __fmaf_rn(wc, acc[c], y) : y;
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1)
            l = __fadd_rn(l, __shfl_xor_sync(FULL, l, o));
        y = l == 0.0f ? (lost ? __int_as_float(0x7fc00000) : 0.0f) : __fdiv_rn(y, l);
        if (e < a.head_dim) {
            const int k = head * a.head_dim + e;
            a.out[(size_t)row * (size_t)dim + (size_t)k] = y;
            if (m.x16)
                m.x16[(size_t)row * (size_t)((dim + 31) / 32 * 32) + (size_t)LS_MMA_AT(k)] =
                    cuda_bf16(y);
        }
    }
}

#endif
