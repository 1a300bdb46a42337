/* cuda_mma_attn_merge.h - the parts of a row's chunks into its result, for cuda_mma_attn.cu. The
 * order is that of MMA_ATTN.md, whoever merges:
 * Behind    a launch of its own, a block a (row, head), or
 * Near      of few rows and at most CLUSTER chunks (9.0 and later) the blocks of the chunks, which
 *           are a cluster and put their parts into each other's shared memory. Rows that do not
 *           share their chunks go through memory there too, and are merged
 * Within    by the one of their blocks that is done last. A counter for each group of blocks that
 *           shares rows and heads tells which; it is zero again when the launch ends. */
#ifndef LS_CUDA_MMA_ATTN_MERGE_H
#define LS_CUDA_MMA_ATTN_MERGE_H

#include "cuda.h"
#include "cuda_mma_attn_tile.h"

#define MERGE_AHEAD 16 /* parts of which a lane reads its element at once */
#define CLUSTER LS_CHUNKS_FEW
#define PART_PITCH(EP) ((EP) + 4) /* floats of a part in shared memory: acc, then m, l */

/* Where results go besides a.out, and what is told of a row that has lost chunks. */
typedef struct merging {
    uint16_t *x16; /* NULL, or the results rounded: [R, H E rounded up to 32] */
    int32_t *done; /* NULL: a launch behind merges. Else blocks along z are clusters of CLUSTER, and
                       this is a counter for each (x, y) of the grid, zero */
    cuda_fault *fault;
    int32_t *claim;
} merging;

/* Where element e of a head lies in a row of x16; four from a multiple of four lie together. */
DEV size_t rounded_at(const ls_attn_args &a, int row, int head, int e) {
    const int dim = a.n_heads * a.head_dim;
    return (size_t)row * (size_t)LS_MMA_LD(dim) + (size_t)LS_MMA_AT(head * a.head_dim + e);
}
/* What there is without a key; a row that has lost chunks is a NaN. */
DEV float none_of(bool lost) {
    return lost ? __int_as_float(0x7fc00000) : 0.0f;
}
/* An element of a result. */
DEV void put_result(const ls_attn_args &a, uint16_t *x16, int row, int head, int e, float y) {
    a.out[((size_t)row * (size_t)a.n_heads + (size_t)head) * (size_t)a.head_dim + (size_t)e] = y;
    if (x16)
        x16[rounded_at(a, row, head, e)] = cuda_bf16(y);
}
/* Parts are missing: by one lane. */
DEV void report_lost(const ls_attn_args &a, const merging &m, int row, int32_t chunks) {
    cuda_report_chunks(m.fault, m.claim, row, __ldcg(a.length + row), chunks, a.max_chunks);
}

/* 32 elements of a (row, head) of n chunks by a warp, e the lane's, in memory. Of 1 chunk the
 * result has been written; without any it is zeros. */
DEV void merge_32(const ls_attn_args &a, const merging &m, int row, int head, int32_t n, int e) {
    const int lane = (int)(threadIdx.x & 31u), at = min(e, a.head_dim - 1);
    const size_t step = 2 + (size_t)a.head_dim;
    const float *part =
        a.part + ((size_t)row * (size_t)a.n_heads + (size_t)head) * (size_t)a.max_chunks * step;
    const bool lost = n > a.max_chunks || n > LS_CHUNKS_MAX;
    if (lost && e == 0)
        report_lost(a, m, row, n);
    if (n == 1 && !lost)
        return;
    n = lost ? 0 : n;
    /* only parts that were written: any other is far away, in no cache */
    float next[MERGE_AHEAD];
#pragma unroll
    for (int i = 0; i < MERGE_AHEAD; i++)
        next[i] = i < n ? __ldcg(part + (size_t)i * step + 2 + (size_t)at) : 0.0f;
    float2 own = make_float2(-INFINITY, 0.0f); /* m and l of chunk `lane` of 32 */
    if (lane < n)
        own = __ldcg((const float2 *)(part + (size_t)lane * step));
    float top = own.x, l = 0.0f, acc = 0.0f, w = 0.0f;
    for (int c = lane + 32; c < n; c += 32)
        top = fmaxf(top, __ldcg(part + (size_t)c * step));
#pragma unroll
    for (int o = 16; o > 0; o >>= 1)
        top = fmaxf(top, __shfl_xor_sync(FULL, top, o));
    const float z = top == -INFINITY ? 0.0f : top;
    for (int c0 = 0; c0 < n; c0 += MERGE_AHEAD) {
        if (c0 % 32 == 0 && c0 + lane < n) {
            if (c0 > 0)
                own = __ldcg((const float2 *)(part + (size_t)(c0 + lane) * step));
            w = exp2_of(__fsub_rn(own.x, z));
            l = __fmaf_rn(w, own.y, l);
        }
        float now[MERGE_AHEAD];
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++) {
            const int c = c0 + MERGE_AHEAD + i;
            now[i] = next[i];
            next[i] = c < n ? __ldcg(part + (size_t)c * step + 2 + (size_t)at) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++) {
            const float wi = __shfl_sync(FULL, w, c0 % 32 + i);
            acc = c0 + i < n ? __fmaf_rn(wi, now[i], acc) : acc;
        }
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1)
        l = __fadd_rn(l, __shfl_xor_sync(FULL, l, o));
    if (e < a.head_dim)
        put_result(a, m.x16, row, head, e, l == 0.0f ? none_of(lost) : __fdiv_rn(acc, l));
}

/* Grid: a block a (row, head), a lane an element. */
static __global__ void merge_kernel(const __grid_constant__ ls_attn_args a,
                                    const __grid_constant__ merging m) {
    const int row = (int)blockIdx.x / a.n_heads, head = (int)blockIdx.x % a.n_heads;
    cuda_let_behind();
    const int32_t n = chunk_count(a.rule, __ldcg(a.length + row));
    cuda_wait();
    merge_32(a, m, row, head, n, (int)threadIdx.x);
}

/* ---- within ---------------------------------------------------------------------------------- */

/* Counts one up, having published what the block wrote, and sees what the others published. */
DEV int32_t count_up(int32_t *at) {
    int32_t was;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(was) : "l"(at) : "memory");
    return was;
}

/* The block has made its items: the last of `blocks` that share its rows and heads merges them.
 * count: of lane's row; of rows row0..row0 + n - 1 the heads head0..head0 + n_heads - 1. A function
 * of its own, for the registers of the rest. */
static __device__ __noinline__ void merge_within(const ls_attn_args &a, const merging &m,
                                                 int32_t count, int row0, int n, int head0,
                                                 int n_heads, int blocks) {
    __shared__ int32_t is_last;
    const int lane = (int)(threadIdx.x & 31u), pieces = (a.head_dim + 31) / 32;
    if (!__any_sync(FULL, lane < n && count != 1))
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
    for (int i = (int)(threadIdx.x >> 5); i < n * n_heads * pieces; i += (int)(blockDim.x >> 5)) {
        const int r = i / pieces / n_heads, h = i / pieces % n_heads;
        merge_32(a, m, row0 + r, head0 + h, __shfl_sync(FULL, count, r), i % pieces * 32 + lane);
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
#else /* no clusters: merging.done is NULL */
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
    for (int i = (int)(threadIdx.x >> 5); i < near.most * PIECES; i += warps) {
        const int j = i / PIECES, e = i % PIECES * 32 + lane, t = (int)blockIdx.z + j * near.blocks;
        if (t >= n * n_heads)
            break;
        const int r = t / n_heads, head = head0 + t - r * n_heads, row = row0 + r;
        int32_t chunks = __shfl_sync(FULL, count, r);
        const bool lost = chunks > a.max_chunks;
        if (chunks == 1 && !lost)
            continue;
        if (lost && e == 0)
            report_lost(a, m, row, chunks);
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
        if (e < a.head_dim)
            put_result(a, m.x16, row, head, e, l == 0.0f ? none_of(lost) : __fdiv_rn(y, l));
    }
}

#endif
