/* cuda_bodies.cu - kernels and launchers of the bodies of one block: its warps meet in barriers and
 * share block memory. Grids and threads are no part of a result. */
#include "attn.body.h"
#include "norm.body.h"

#include "cuda.h"

/* Threads of a block whose warps share n items. */
static unsigned threads_of(int n_items, int most) {
    const int n = 32 * n_items;
    return (unsigned)(n < 128 ? 128 : n < most ? n : most);
}
static int segments_of(int n) {
    return n / LS_SEGMENT + (n % LS_SEGMENT != 0);
}

/* n floats into block memory, as a block: loads are in flight together. Published when it
 * returns. */
static __device__ __forceinline__ void stage(float *to, const float *from, int n) {
    enum { AT_ONCE = 16 };
    for (int at = (int)threadIdx.x; at < n; at += AT_ONCE * (int)blockDim.x) {
        float v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int k = at + j * (int)blockDim.x;
            v[j] = k < n ? from[k] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int k = at + j * (int)blockDim.x;
            if (k < n)
                to[k] = v[j];
        }
    }
    __syncthreads();
}

/* ---- norm ------------------------------------------------------------------------------------ */

#define NORM_THREADS 256 /* few, of few registers: a block fits beside one of a linear */
#define NORM_BLOCKS 5    /* a multiprocessor, for the registers' sake */
#define NORM_STAGED 8192 /* elements of a row that is brought into block memory at once */
#define NORM_AHEAD 8     /* weights of so many pieces are on their way at once */
#define NORM_SHARED 16   /* so many rows are shared by blocks */

static __device__ __forceinline__ void norm_weights(const ls_rmsnorm_args &a, int p, int step,
                                                    lane_f32 w[NORM_AHEAD]) {
    LS_UNROLLED (j, NORM_AHEAD) {
        const int k = (p + j * step) * LS_LANES;
        w[j] = lane_load_n(a.w, (size_t)k, a.dim - k, a.w_dtype);
    }
}

/* Row blockIdx.x, shared by the blocks of grid y: each finds the root, then makes pieces of the
 * row, whose weights, which no launch writes, are asked for first of all. */
static __global__ void __launch_bounds__(NORM_THREADS, NORM_BLOCKS)
    ls_rmsnorm_kernel(const ls_rmsnorm_args a) {
    __shared__ ls_norm_mem mem;
    extern __shared__ float row[]; /* of at most NORM_STAGED elements */
    const int warps = (int)(blockDim.x >> 5), step = (int)gridDim.y * warps, D = a.dim;
    const int first = (int)blockIdx.y * warps + (int)(threadIdx.x >> 5);
    const size_t at = (size_t)blockIdx.x * (size_t)D;
    const float *x = a.x + at;
    lane_f32 w[NORM_AHEAD];
    norm_weights(a, first, step, w);
    cuda_wait_ahead();
    if (D <= NORM_STAGED) {
        stage(row, x, D);
        x = row;
    }
    const lane_f32 root = lane_set(ls_norm_root(x, D, a.eps, &mem));
    for (int p = first; p < ls_ceil_div(D, LS_LANES); p += NORM_AHEAD * step) {
        if (p > first)
            norm_weights(a, p, step, w);
        LS_UNROLLED (j, NORM_AHEAD) {
            const int k = (p + j * step) * LS_LANES;
            if (k >= D)
                continue;
            lane_f32 v = ls_norm_of(lane_load_n(x, (size_t)k, D - k, LS_F32), root, w[j]);
            if (a.add)
                v = lane_add(v, lane_load_n(a.add + at, (size_t)k, D - k, LS_F32));
            lane_store_n(a.y + at + k, D - k, v);
        }
    }
}
/* Few rows are shared by as many blocks as have a piece a warp; not in place, where one block would
 * write what another reads. */
static void ls_rmsnorm_cuda(ls_backend *be, const ls_rmsnorm_args *a) {
    LS_CUDA_BEGIN(be, ls_check_rmsnorm(a, &why_));
    if (a->n_rows < 1)
        return;
    const unsigned threads = threads_of(2 * segments_of(a->dim), NORM_THREADS);
    const int pieces = a->dim / LS_LANES + (a->dim % LS_LANES != 0), warps = (int)threads / 32;
    const int apart = a->x != a->y && a->n_rows <= NORM_SHARED;
    const dim3 grid((unsigned)a->n_rows, apart ? (unsigned)((pieces + warps - 1) / warps) : 1u);
    const size_t staged = a->dim <= NORM_STAGED ? (size_t)a->dim * sizeof(float) : 0;
    LS_LAUNCH_SHARED(cuda, "rmsnorm", ls_rmsnorm_kernel, grid, threads, staged, *a);
}

/* ---- attention ------------------------------------------------------------------------------- */

#define ATTN_THREADS 128

/* Block (row, chunk) x kv head; chunks past the row's count return at once: the grid is a bound.
 * Storage type and head width are constants inside. A row with more chunks than the scratch holds
 * is left to the merge, which reports it. */
template <int T, int E>
static __global__ void __launch_bounds__(ATTN_THREADS)
    ls_attn_chunk_kernel(const ls_attn_args arg) {
    __shared__ ls_attn_mem mem;
    ls_attn_args a = arg;
    cuda_wait_ahead();
    a.kv_dtype = (ls_dtype)T;
    if (E)
        a.head_dim = E;
    const int r = (int)blockIdx.x / a.max_chunks, c = (int)blockIdx.x % a.max_chunks;
    if (ls_chunk_count_of(a.rule, ls_window_len(a.window, a.length[r])) <= a.max_chunks)
        ls_body_attn_chunk(&a, r, (int)blockIdx.y, c, &mem);
}

#define MERGE_THREADS 256
#define MERGE_STAGED 9216 /* floats of partial states that are brought into block memory at once */

static __global__ void __launch_bounds__(MERGE_THREADS)
    ls_attn_merge_kernel(const ls_attn_args a, cuda_fault *fault, int32_t *claim) {
    __shared__ ls_merge_mem mem;
    __shared__ float states[MERGE_STAGED];
    cuda_wait_ahead();
    const int r = (int)blockIdx.x / a.n_heads, h = (int)blockIdx.x % a.n_heads;
    const int keys = ls_window_len(a.window, a.length[r]);
    const int n = ls_chunk_count_of(a.rule, keys), size = n * (2 + a.head_dim);
    if (n <= a.max_chunks && n <= LS_CHUNKS_MAX) {
        const size_t row = (size_t)r * (size_t)a.n_heads + (size_t)h;
        if (n == 0 || size > MERGE_STAGED) {
            ls_body_attn_merge(&a, r, h, &mem);
            return;
        }
        stage(states, a.part + row * (size_t)a.max_chunks * (size_t)(2 + a.head_dim), size);
        ls_attn_join(states, n, a.head_dim, a.out + row * (size_t)a.head_dim, &mem);
        return;
    }
    float *out = a.out + ((size_t)r * (size_t)a.n_heads + (size_t)h) * (size_t)a.head_dim;
    for (int e = (int)threadIdx.x; e < a.head_dim; e += (int)blockDim.x)
        out[e] = ls_float_of(0x7fc00000u);
    if (threadIdx.x == 0)
        cuda_report_chunks(fault, claim, r, keys, n, a.max_chunks);
}

typedef void (*attn_kernel)(const ls_attn_args);

template <int T> static attn_kernel attn_kernel_of(int head_dim) {
    return head_dim == 64    ? ls_attn_chunk_kernel<T, 64>
           : head_dim == 128 ? ls_attn_chunk_kernel<T, 128>
                             : ls_attn_chunk_kernel<T, 0>;
}
static attn_kernel attn_kernel_for(const ls_attn_args *a) {
    return a->kv_dtype == LS_F32    ? attn_kernel_of<LS_F32>(a->head_dim)
           : a->kv_dtype == LS_BF16 ? attn_kernel_of<LS_BF16>(a->head_dim)
                                    : attn_kernel_of<LS_F16>(a->head_dim);
}

static void ls_attn_cuda(ls_backend *be, const ls_attn_args *a) {
    LS_CUDA_BEGIN(be, ls_check_attn(a, &why_));
    if (a->n_rows < 1)
        return;
    if (a->only != 2 && a->max_chunks > 0) {
        const dim3 grid((unsigned)a->n_rows * (unsigned)a->max_chunks, (unsigned)a->n_kv);
        LS_LAUNCH(cuda, "attention", attn_kernel_for(a), grid, ATTN_THREADS, *a);
    }
    if (a->only != 1) {
        LS_LAUNCH(cuda, "attention merge", ls_attn_merge_kernel,
                  dim3((unsigned)a->n_rows * (unsigned)a->n_heads), ATTN_THREADS, *a, cuda->fault,
                  cuda->claim_d);
    }
}

static void ls_place_attn_cuda(ls_backend *be, const ls_rope_args *rope,
                               const ls_kv_store_args *store, const ls_attn_args *a) {
    LS_CUDA_BEGIN(be, ls_check_place_attn(rope, store, a, &why_));
    be->place(be, rope, store);
    be->attn(be, a);
}

static void ls_attn_launch_cuda(ls_backend *be, const ls_attn_args *a, ls_launch *out) {
    LS_CUDA_BEGIN(be, ls_check_attn(a, &why_));
    cudaFuncAttributes attr;
    ls_err why;
    int blocks = 0;
    if (cuda_answer(cudaFuncGetAttributes(&attr, attn_kernel_for(a)), "attention", &why) != LS_OK ||
        cuda_answer(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, attn_kernel_for(a),
                                                                  ATTN_THREADS, 0),
                    "attention", &why) != LS_OK) {
        cuda_keep(cuda, &why);
        return;
    }
    out->blocks = a->n_rows * a->max_chunks * a->n_kv;
    out->threads = ATTN_THREADS;
    out->blocks_a_unit = blocks;
    out->warps_a_unit = cuda->threads_a_unit / 32;
    out->units = cuda->n_units;
    out->shared_bytes = (int32_t)attr.sharedSizeBytes;
}

/* ---- the table ------------------------------------------------------------------------------- */

cudaError_t ls_cuda_bodies_probe(int *code) {
    cudaFuncAttributes attr;
    const cudaError_t answer = cudaFuncGetAttributes(&attr, ls_rmsnorm_kernel);
    *code = answer == cudaSuccess ? attr.ptxVersion : 0;
    return answer;
}

cudaError_t ls_cuda_bodies_split(void) {
    const cudaError_t e = cuda_split((const void *)ls_rmsnorm_kernel, 0);
    return e == cudaSuccess ? ls_cuda_stats_split() : e;
}

void ls_cuda_bodies_install(cuda_backend *cuda) {
    ls_backend *be = &cuda->be;
    be->rmsnorm = ls_rmsnorm_cuda;
    be->attn = ls_attn_cuda;
    be->place_attn = ls_place_attn_cuda;
    be->attn_launch = ls_attn_launch_cuda;
}
