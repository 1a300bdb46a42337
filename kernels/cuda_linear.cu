/* cuda_linear.cu - the linear of profile ieee (N-LIN) on CUDA cores: segments of linear.body.h.
 * Block    groups of N outputs for M rows; `share` warps take the segments of a group in turn.
 *          Segment sums meet in block memory, and a thread an (output, row) adds them in ascending
 *          order, the first one starting the sum, `add` last. Which warp computed a segment, N, M
 *          and the groups are in no result.
 * Rows     M up to 8; more rows are more blocks, neighbours of those with the same weights.
 * Packed   weights in blocks have segments of their own (cuda_linear_packed.h).
 * Launch   up to LS_LINEARS linears of the same type at once. */
#include "linear.body.h"

#include "cuda.h"
#include "cuda_linear_packed.h"

#define ROWS 8  /* M at most */
#define SUMS 64 /* segment sums of a group that block memory holds: then they are added up */

/* Tiles for M rows, as measured on one H200: outputs a warp sums at once (they share the loads of
 * the activations), steps of weights in flight, and blocks a multiprocessor shall hold. */
#define WARPS 8
#define OUTPUTS_OF(M) ((M) > 2 && (M) < 6 ? 8 : 4)
#define STEPS_OF(M) ((M) < 3 ? 8 : (M) < 6 ? 2 : 4)
#define BLOCKS_OF(M) ((M) < 3 ? 3 : 2)

typedef struct linear_launch {
    ls_linear_args a[LS_LINEARS];
    int first[LS_LINEARS + 1]; /* blocks of linear i: first[i] .. first[i + 1] - 1, of a row tile */
    int n;
    int r0, row_tiles;      /* row tile t: rows r0 + t * M .. */
    int share[LS_LINEARS];  /* warps a group */
    int groups[LS_LINEARS]; /* groups a block */
} linear_launch;

/* A whole segment from k0 on, as ls_linear_segment sums it, with the loads of `STEPS` steps and all
 * outputs in flight at once. Products are added in the same order: step after step. */
template <int N, int M, int T, int STEPS>
static __device__ __forceinline__ void whole_segment(const ls_linear_args *a, int n0, int step,
                                                     int r0, int k0, float *sum) {
    const size_t K = (size_t)a->w.n_in, size = T == LS_F32 ? 4 : 2;
    const char *w0 = (const char *)a->w.data + ((size_t)n0 * K + (size_t)k0) * size;
    const float *x0 = a->x + (size_t)r0 * K + k0;
    part_f32 acc[N * M];
    LS_UNROLLED (i, N * M)
        acc[i] = 0.0f;
    LS_UNROLLED (b, LS_SEGMENT / LS_LANES / STEPS) {
        part_f32 w[N][STEPS];
        LS_UNROLLED (n, N)
            LS_UNROLLED (i, STEPS)
                w[n][i] = part_load(w0 + (size_t)(n * step) * K * size,
                                    (size_t)((b * STEPS + i) * LS_LANES), (ls_dtype)T, 0);
        LS_UNROLLED (i, STEPS)
            LS_UNROLLED (m, M) {
                const part_f32 x =
                    part_load(x0 + (size_t)m * K, (size_t)((b * STEPS + i) * LS_LANES), LS_F32, 0);
                LS_UNROLLED (n, N)
                    acc[n * M + m] = part_fma(w[n][i], x, acc[n * M + m]);
            }
    }
    LS_UNROLL
    for (int i = 0; i < N * M; i += 8)
        lane_sums_parts(acc + i, N * M - i < 8 ? N * M - i : 8, sum + i);
}

/* Segment s of outputs n0, n0 + step, ...: the first n_sums sums to block memory. */
template <int N, int M, int T>
static __device__ __forceinline__ void segment_sums(const ls_linear_args *a, int n0, int step,
                                                    int r0, int s, float *to, int n_sums) {
    float sum[N * M + 7];
    const int k0 = s * LS_SEGMENT;
    if constexpr (T == LS_Q8_0 || T == LS_Q4_K) {
        packed_sums<N, M, T>(a, n0, step, r0, k0, ls_min_i(a->w.n_in, k0 + LS_SEGMENT), to, n_sums);
        return;
    }
    if (k0 + LS_SEGMENT <= a->w.n_in)
        whole_segment<N, M, T, STEPS_OF(M)>(a, n0, step, r0, k0, sum);
    else
        ls_linear_segment(a, n0, step, r0, k0, a->w.n_in, N, M, 1, (ls_dtype)T, sum);
    LS_UNROLL
    for (int j = 0; j < N * M;
         j += 32) { /* lane l stores sum j + l: selects, as registers have no index */
        float mine = 0.0f;
        LS_UNROLLED (i, N * M - j < 32 ? N * M - j : 32)
            mine = LS_LANE == i ? sum[j + i] : mine;
        if (j + LS_LANE < n_sums)
            to[j + LS_LANE] = mine;
    }
}

template <int N, int M, int T>
static __global__ void __launch_bounds__(32 * WARPS, BLOCKS_OF(M))
    ls_linear_kernel(const linear_launch p) {
    __shared__ float sums[SUMS][N * M];
    const int tile = (int)blockIdx.x / p.row_tiles, r0 = p.r0 + (int)blockIdx.x % p.row_tiles * M;
    int i = 0;
    while (i + 1 < p.n && tile >= p.first[i + 1])
        i++;
    const ls_linear_args a = p.a[i];
    const int share = p.share[i], groups = p.groups[i];
    const int n_seg = ls_ceil_div(a.w.n_in, LS_SEGMENT), held = n_seg < SUMS ? n_seg : SUMS;
    const int warp = (int)(threadIdx.x >> 5), group = warp / share, part = warp % share;
    const int block0 = (tile - p.first[i]) * groups * N, n0 = block0 + group * N;
    const int n1 = ls_min_i(n0 + N, a.w.n_out), whole = n1 - n0 == N;
    /* what this thread adds up: (output, row) number threadIdx.x, threadIdx.x + blockDim.x, ... */
    const int OWN = (N * M + 31) / 32;
    float total[OWN];

    for (int s0 = 0; s0 < n_seg; s0 += held) {
        const int s1 = ls_min_i(n_seg, s0 + held);
        if (group < groups)
            for (int s = s0 + part; s < s1; s += share)
                /* the last outputs, fewer than N, go one after the other */
                for (int n = n0; n < n1; n += whole ? N : 1)
                    segment_sums<N, M, T>(&a, n, whole, r0, s,
                                          sums[group * held + s - s0] + (n - n0) * M,
                                          whole ? N * M : M);
        __syncthreads(); /* the sums are there */
        LS_UNROLLED (j, OWN) {
            const int own = (int)threadIdx.x + j * (int)blockDim.x;
            if (own < groups * N * M)
                for (int s = s0; s < s1; s++) {
                    const float sum = sums[own / (N * M) * held + s - s0][own % (N * M)];
                    total[j] = s == 0 ? sum : total[j] + sum;
                }
        }
        if (s1 < n_seg)
            __syncthreads(); /* and used up */
    }
    LS_UNROLLED (j, OWN) {
        const int own = (int)threadIdx.x + j * (int)blockDim.x, g = own / (N * M);
        const int n = block0 + g * N + own % (N * M) / M;
        if (g < groups && n < a.w.n_out) {
            const size_t at = (size_t)(r0 + own % M) * (size_t)a.w.n_out + (size_t)n;
            a.y[at] = a.add ? total[j] + a.add[at] : total[j];
        }
    }
}

/* ---- launch ---------------------------------------------------------------------------------- */

typedef void (*linear_kernel)(const linear_launch);

template <int T> static linear_kernel kernel_of(int m) {
    switch (m) {
    case 1:
        return ls_linear_kernel<OUTPUTS_OF(1), 1, T>;
    case 2:
        return ls_linear_kernel<OUTPUTS_OF(2), 2, T>;
    case 3:
        return ls_linear_kernel<OUTPUTS_OF(3), 3, T>;
    case 4:
        return ls_linear_kernel<OUTPUTS_OF(4), 4, T>;
    case 5:
        return ls_linear_kernel<OUTPUTS_OF(5), 5, T>;
    case 6:
        return ls_linear_kernel<OUTPUTS_OF(6), 6, T>;
    case 7:
        return ls_linear_kernel<OUTPUTS_OF(7), 7, T>;
    default:
        return ls_linear_kernel<OUTPUTS_OF(8), 8, T>;
    }
}

static void launch(cuda_backend *cuda, const ls_linear_args *a, int n, int r0, int row_tiles,
                   int m) {
    linear_launch p;
    int threads = 0;
    p.n = n;
    p.r0 = r0;
    p.row_tiles = row_tiles;
    p.first[0] = 0;
    for (int i = 0; i < n; i++) {
        const int n_seg = a[i].w.n_in / LS_SEGMENT + (a[i].w.n_in % LS_SEGMENT != 0);
        const int turns = (n_seg + WARPS - 1) / WARPS; /* of equal length, as far as that goes */
        p.a[i] = a[i];
        p.share[i] = (n_seg + turns - 1) / turns;
        p.groups[i] = WARPS / p.share[i];
        const int outputs = p.groups[i] * OUTPUTS_OF(m), used = 32 * p.share[i] * p.groups[i];
        p.first[i + 1] = p.first[i] + (a[i].w.n_out + outputs - 1) / outputs;
        threads = used > threads ? used : threads;
    }
    if (p.first[n] == 0)
        return;
    const linear_kernel kernel = a[0].w.dtype == LS_F32    ? kernel_of<LS_F32>(m)
                                 : a[0].w.dtype == LS_BF16 ? kernel_of<LS_BF16>(m)
                                 : a[0].w.dtype == LS_F16  ? kernel_of<LS_F16>(m)
                                 : a[0].w.dtype == LS_Q8_0 ? kernel_of<LS_Q8_0>(m)
                                                           : kernel_of<LS_Q4_K>(m);
    kernel<<<(unsigned)p.first[n] * (unsigned)row_tiles, (unsigned)threads, 0, cuda->stream>>>(p);
    cuda_launched(cuda, "linear");
}

static ls_status check_linear(const ls_linear_args *a, ls_err *err) {
    const uintptr_t blocks = a->w.dtype == LS_Q4_K ? 16 : 2; /* begin at multiples of */
    LS_TRY(ls_check_linear(a, err));
    LS_REFUSE(ls_dtype_block(a->w.dtype) > 1 &&
                  ((uintptr_t)a->x % 16 != 0 || (uintptr_t)a->w.data % blocks != 0),
              "linear: rows for packed weights begin at multiples of 16 bytes, blocks of %s at "
              "multiples of %d",
              ls_dtype_name(a->w.dtype), (int)blocks);
    return LS_OK;
}

static void ls_linears_cuda(ls_backend *be, const ls_linear_args *a, int32_t n) {
    LS_CUDA_BEGIN(be, ls_check_linears(n, &why_));
    for (int32_t i = 0; i < n; i++) {
        ls_err why;
        if (check_linear(&a[i], &why) != LS_OK) {
            cuda_keep(cuda, &why);
            return;
        }
    }
    for (int32_t i = 0, same; i < n; i += same) { /* runs of one type and one number of rows */
        for (same = 1; i + same < n && a[i + same].w.dtype == a[i].w.dtype &&
                       a[i + same].n_rows == a[i].n_rows;)
            same++;
        const int whole = a[i].n_rows / ROWS, rest = a[i].n_rows % ROWS;
        if (whole)
            launch(cuda, a + i, same, 0, whole, ROWS);
        if (rest)
            launch(cuda, a + i, same, whole * ROWS, 1, rest);
    }
}

static void ls_linear_cuda(ls_backend *be, const ls_linear_args *a) {
    ls_linears_cuda(be, a, 1);
}

static void ls_norm_linears_cuda(ls_backend *be, const ls_rmsnorm_args *norm,
                                 const ls_linear_args *a, int32_t n) {
    LS_CUDA_BEGIN(be, ls_check_norm_linears(norm, a, n, &why_));
    be->rmsnorm(be, norm);
    be->linears(be, a, n);
}

void ls_cuda_linear_install(cuda_backend *cuda) {
    cuda->be.linear = ls_linear_cuda;
    cuda->be.linears = ls_linears_cuda;
    cuda->be.norm_linears = ls_norm_linears_cuda;
    cuda->be.norm_gates = ls_norm_gates_apart;
}
