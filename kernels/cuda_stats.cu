/* cuda_stats.cu - kernels and launchers of what is done to rows of logits: statistics, choose,
 * verdicts.
 * Statistics  a launch a step (stats.body.h): blocks share the segments of a row, a warp each, and
 *             leave what they found in the row's scratch. Every block of the next launch concludes
 *             it for itself. The last launch joins, a block a row. Filters that no row asks for
 *             (`without`) have no steps.
 * Verdicts    a launch that walks the drafts, one over the segments of a residual, one that joins;
 *             where that residual was empty and its draft stands, this last block walks on alone.
 * Scratch     of a row: two copies of the row's state and of what thresholds keep, for a launch
 *             reads one and writes the other; the arrays over segments are written by one step
 *             each.
 * Bits        where and when a segment is read is in no result: sums meet in the order of
 *             segments. */
#define LS_STAT_PIVOTS 31 /* a lane totals a threshold; 7 readings cut 2^31 keys down to one */

#include "accept.body.h"
#include "draw.body.h"
#include "stats.body.h"

#include "cuda.h"

#define SEGMENT_WARPS 4 /* segments a block: a warp for each scheduler of a multiprocessor */
#define SEGMENT_THREADS (32 * SEGMENT_WARPS)
#define JOIN_THREADS 256
#define BLOCK_THREADS 1024
#define TOTALLED 128 /* segments whose thresholds lie in block memory at once */

static int segments_of(int n) {
    return n / LS_SEGMENT + (n % LS_SEGMENT != 0);
}

/* ---- scratch --------------------------------------------------------------------------------- */

#define STATE_BYTES 128 /* of a copy of the row's state */
#define WORDS 9         /* arrays of words over segments */
static_assert(sizeof(ls_stats_row) <= STATE_BYTES, "scratch of a row");
static_assert(WORDS * 4 + 2 * sizeof(ls_stats_above) <= LS_STAT_PART, "scratch of a segment");
static_assert(LS_STAT_PART % 16 == 0, "scratch of a row");
static_assert(LS_STAT_PIVOTS == 31, "a lane for each threshold");

/* What step t writes (copy t % 2 of what there are two of), in the scratch `at` of a row. */
static __device__ __forceinline__ ls_stats_part part_of(void *at, int n_seg, int t) {
    char *base = (char *)at + 2 * STATE_BYTES;
    ls_stats_above *above = (ls_stats_above *)(void *)base;
    int32_t *word = (int32_t *)(void *)(above + 2 * n_seg);
    ls_stats_part part;
    part.above = above + (t & 1) * n_seg;
    part.key = word;
    part.id = word + n_seg;
    part.flag = word + 2 * n_seg;
    part.least = word + 3 * n_seg;
    part.best = word + 4 * n_seg;
    part.drawn = word + 5 * n_seg;
    part.sum = (uint32_t *)word + 6 * n_seg;
    part.ent = (uint32_t *)word + 7 * n_seg;
    part.next = word + 8 * n_seg;
    return part;
}
static __device__ __forceinline__ ls_stats_row *state_of(void *at, int t) {
    return (ls_stats_row *)(void *)((char *)at + (t & 1) * STATE_BYTES);
}
static __device__ __forceinline__ void *scratch_of(const ls_stats_args &a, int r) {
    return (char *)a.part + (size_t)r * ls_stats_part_bytes(a.n_vocab);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Thresholds of n_seg segments totalled, by a block, in ascending order: one lane a threshold, from
 * block memory, where all of them are brought at once. */
static __device__ __forceinline__ void total_above(const ls_stats_above *above, int n_seg, int mass,
                                                   uint32_t total[32]) {
    __shared__ __align__(16) ls_stats_above here[TOTALLED];
    enum { QUADS = sizeof(ls_stats_above) / sizeof(uint4), AT_ONCE = 8 };
    uint32_t sum = ls_stats_none_above(mass);
    for (int s = 0; s < n_seg; s += TOTALLED) {
        const int n = ls_min_i(n_seg - s, TOTALLED), quads = n * QUADS;
        const uint4 *from = (const uint4 *)(const void *)(above + s);
        uint4 *to = (uint4 *)(void *)here;
        for (int at = (int)threadIdx.x; at < quads; at += AT_ONCE * (int)blockDim.x) {
            uint4 v[AT_ONCE];
            LS_UNROLLED (j, AT_ONCE) {
                const int k = at + j * (int)blockDim.x;
                if (k < quads)
                    v[j] = from[k];
            }
            LS_UNROLLED (j, AT_ONCE) {
                const int k = at + j * (int)blockDim.x;
                if (k < quads)
                    to[k] = v[j];
            }
        }
        __syncthreads();
        if (threadIdx.x < 32)
            sum = ls_stats_more_above(sum, mass, here, (int)threadIdx.x, n);
        __syncthreads();
    }
    if (threadIdx.x < 32)
        total[threadIdx.x] = sum;
    __syncthreads();
}

/* The row before step t > 0, from its scratch: what step t - 1 (`last`) found is concluded. By a
 * block. COUNTED: ls_stats_counts(last); else no block memory is taken, and the block fits beside
 * those of the launch ahead. */
template <int COUNTED>
static __device__ __forceinline__ void row_before(ls_stats_row *row, int t, ls_stats_step last,
                                                  const ls_warp *warp, void *scratch) {
    __shared__ uint32_t total[32];
    const ls_stats_part part = part_of(scratch, row->n_seg, t - 1);
    if (last != LS_STATS_LOGITS) /* which begins with a row as it is */
        *row = *state_of(scratch, t - 1);
    if (COUNTED && ls_stats_asks(row, warp, last))
        total_above(part.above, row->n_seg, last != LS_STATS_TOP_K, total);
    ls_stats_conclude(row, warp, last, &part, total);
}

/* Step t: blocks share the segments of row blockIdx.y. */
template <int STEP, int COUNTED>
static __global__ void __launch_bounds__(SEGMENT_THREADS)
    ls_stats_step_kernel(const ls_stats_args a, int t, ls_stats_step last) {
    __shared__ float logits[SEGMENT_WARPS][LS_SEGMENT];
    cuda_wait_ahead();
    const int r = (int)blockIdx.y;
    void *scratch = scratch_of(a, r);
    const ls_warp warp = a.warp[r];
    const ls_draw draw = a.draw[r];
    const int s = (int)blockIdx.x * SEGMENT_WARPS + (int)(threadIdx.x >> 5);
    ls_stats_row row = ls_stats_row_of(&a, r);
    ls_stats_seg seg = ls_stats_seg_of(&row, s);
    part_f32 x[LS_SEGMENT / LS_LANES]; /* on its way while the row is concluded */
    LS_UNROLLED (j, LS_SEGMENT / LS_LANES)
        x[j] = part_load_n(seg.x, (size_t)j * LS_LANES, seg.end - seg.k0 - j * LS_LANES, LS_F32, 0);
    if (STEP != LS_STATS_LOGITS)
        row_before<COUNTED>(&row, t, last, &warp, scratch);
    float *here = logits[threadIdx.x >> 5];
    LS_UNROLLED (j, LS_SEGMENT / LS_LANES)
        part_store(here + j * LS_LANES, 0, x[j]);
    __syncwarp();
    seg.x = here;
    const ls_stats_part part = part_of(scratch, row.n_seg, t);
    if (s < row.n_seg)
        ls_stats_segment(&row, &seg, &warp, &draw, (ls_stats_step)STEP, s, &part);
    if (STEP != LS_STATS_LOGITS && blockIdx.x == 0 && threadIdx.x == 0)
        *state_of(scratch, t) = row;
}

/* The statistics of row blockIdx.x, after its last step t. */
static __global__ void __launch_bounds__(JOIN_THREADS)
    ls_stats_join_kernel(const ls_stats_args a, int t) {
    __shared__ int32_t word[7][LS_STAT_SEGMENTS];
    __shared__ ls_stats_join_mem mem;
    cuda_wait_ahead();
    const int r = (int)blockIdx.x;
    void *scratch = scratch_of(a, r);
    const ls_stats_row row = *state_of(scratch, t);
    const int n_seg = ls_ceil_div(a.n_vocab, LS_SEGMENT);
    const ls_stats_part there = part_of(scratch, n_seg, t);
    /* what no step wrote, of a flagged or greedy row, is brought too, and not looked at */
    for (int s = (int)threadIdx.x; s < n_seg; s += (int)blockDim.x) {
        word[0][s] = there.key[s];
        word[1][s] = there.id[s];
        word[2][s] = there.best[s];
        word[3][s] = there.drawn[s];
        word[4][s] = (int32_t)there.sum[s];
        word[5][s] = (int32_t)there.ent[s];
        word[6][s] = there.next[s];
    }
    __syncthreads();
    ls_stats_part here = there;
    here.key = word[0];
    here.id = word[1];
    here.best = word[2];
    here.drawn = word[3];
    here.sum = (uint32_t *)word[4];
    here.ent = (uint32_t *)word[5];
    here.next = word[6];
    ls_stats_join(&a, r, &row, &here, &mem);
}

typedef void (*step_kernel)(const ls_stats_args, int, ls_stats_step);
/* By whether the step before has thresholds to total. */
#define STEP_KERNELS(step) \
    { ls_stats_step_kernel<step, 0>, ls_stats_step_kernel<step, 1> }
static const step_kernel step_kernels[][2] = {
    STEP_KERNELS(LS_STATS_LOGITS), STEP_KERNELS(LS_STATS_TOP_K), STEP_KERNELS(LS_STATS_TOTAL),
    STEP_KERNELS(LS_STATS_TOP_P),  STEP_KERNELS(LS_STATS_MIN_P), STEP_KERNELS(LS_STATS_KEPT)};

static ls_status check_stats(const ls_stats_args *a, ls_err *err) {
    LS_TRY(ls_check_stats(a, err));
    LS_REFUSE(a->n_rows > 0 && !a->part, "statistics: no scratch");
    return LS_OK;
}
static void ls_stats_cuda(ls_backend *be, const ls_stats_args *a) {
    LS_CUDA_BEGIN(be, check_stats(a, &why_));
    if (a->n_rows < 1)
        return;
    const int blocks = (segments_of(a->n_vocab) + SEGMENT_WARPS - 1) / SEGMENT_WARPS;
    const dim3 grid((unsigned)blocks, (unsigned)a->n_rows);
    ls_stats_step step[LS_STATS_STEPS];
    const int n = ls_stats_plan(~a->without, step);
    for (int t = 0; t < n; t++) {
        const ls_stats_step last = step[t > 0 ? t - 1 : 0];
        LS_LAUNCH(cuda, "statistics", step_kernels[step[t]][ls_stats_counts(last)], grid,
                  SEGMENT_THREADS, *a, t, last);
    }
    LS_LAUNCH(cuda, "statistics", ls_stats_join_kernel, dim3((unsigned)a->n_rows), JOIN_THREADS, *a,
              n - 1);
}

/* ---- choose ---------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(BLOCK_THREADS) ls_choose_kernel(const ls_choose_args a) {
    __shared__ ls_choose_mem mem;
    cuda_wait_ahead();
    ls_body_choose(&a, (int)blockIdx.x, &mem);
}
static void ls_choose_cuda(ls_backend *be, const ls_choose_args *a) {
    LS_CUDA_BEGIN(be, ls_check_choose(a, &why_));
    if (a->n_rows < 1)
        return;
    LS_LAUNCH(cuda, "choose", ls_choose_kernel, dim3((unsigned)a->n_rows), BLOCK_THREADS, *a);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Whether a residual may be needed. */
LS_SHARED_FN int may_redraw(const ls_accept_args *a) {
    return a->kind == LS_ACCEPT_REJECTION && a->n > 0;
}

/* What the walk found, at the front of the scratch; key and id of each segment lie behind it. */
typedef struct accept_state {
    int32_t i, look;
} accept_state;
static __device__ __forceinline__ int32_t *accept_keys(const ls_accept_args &a) {
    return (int32_t *)a.part + 2;
}

static __global__ void __launch_bounds__(BLOCK_THREADS)
    ls_accept_walk_kernel(const ls_accept_args a) {
    __shared__ ls_accept_mem mem;
    cuda_wait_ahead();
    int32_t i = 0, token;
    const int32_t look = ls_accept_walk(&a, &i, &mem);
    if (threadIdx.x != 0)
        return;
    if (may_redraw(&a)) {
        accept_state *state = (accept_state *)a.part;
        state->i = i;
        state->look = look;
    }
    if (look != LS_ACCEPT_RESIDUAL) {
        ls_accept_ends(&a, i, look, -1, &token);
        a.out->n_accept = i;
        a.out->token = token;
    }
}

static __global__ void __launch_bounds__(SEGMENT_THREADS)
    ls_accept_residual_kernel(const ls_accept_args a) {
    cuda_wait_ahead();
    const accept_state state = *(const accept_state *)a.part;
    const int n_seg = ls_ceil_div(a.n_vocab, LS_SEGMENT);
    const int s = (int)blockIdx.x * SEGMENT_WARPS + (int)(threadIdx.x >> 5);
    if (state.look != LS_ACCEPT_RESIDUAL || s >= n_seg)
        return;
    int32_t id;
    const int32_t key = ls_accept_residual(&a, state.i, s, &id);
    LS_LANE0 {
        accept_keys(a)[s] = key;
        accept_keys(a)[n_seg + s] = id;
    }
}

static __global__ void __launch_bounds__(BLOCK_THREADS)
    ls_accept_join_kernel(const ls_accept_args a) {
    __shared__ ls_accept_mem mem;
    cuda_wait_ahead();
    const accept_state state = *(const accept_state *)a.part;
    const int n_seg = ls_ceil_div(a.n_vocab, LS_SEGMENT);
    int32_t token;
    if (state.look != LS_ACCEPT_RESIDUAL)
        return;
    const int32_t drawn = ls_choose_of(accept_keys(a), accept_keys(a) + n_seg, n_seg);
    if (!ls_accept_ends(&a, state.i, state.look, drawn, &token)) {
        ls_accept_from(&a, state.i + 1, &mem);
    } else if (threadIdx.x == 0) {
        a.out->n_accept = state.i;
        a.out->token = token;
    }
}

static ls_status check_accept(const ls_accept_args *a, ls_err *err) {
    LS_TRY(ls_check_accept(a, err));
    LS_REFUSE(may_redraw(a) && !a->part, "accept: no scratch");
    return LS_OK;
}
static void ls_accept_cuda(ls_backend *be, const ls_accept_args *a) {
    LS_CUDA_BEGIN(be, check_accept(a, &why_));
    const unsigned drafts = a->n + 1 < LS_ACCEPT_AT_ONCE ? (unsigned)a->n + 1 : LS_ACCEPT_AT_ONCE;
    LS_LAUNCH(cuda, "accept", ls_accept_walk_kernel, dim3(1), 32 * drafts, *a);
    if (!may_redraw(a))
        return;
    const int blocks = (segments_of(a->n_vocab) + SEGMENT_WARPS - 1) / SEGMENT_WARPS;
    LS_LAUNCH(cuda, "accept", ls_accept_residual_kernel, dim3((unsigned)blocks), SEGMENT_THREADS,
              *a);
    LS_LAUNCH(cuda, "accept", ls_accept_join_kernel, dim3(1), BLOCK_THREADS, *a);
}

/* ---- the table ------------------------------------------------------------------------------- */

cudaError_t ls_cuda_stats_split(void) {
    const void *const others[] = {
        (const void *)ls_stats_join_kernel, (const void *)ls_accept_walk_kernel,
        (const void *)ls_accept_residual_kernel, (const void *)ls_accept_join_kernel};
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < 2 * sizeof step_kernels / sizeof *step_kernels && e == cudaSuccess; i++)
        e = cuda_split((const void *)step_kernels[i / 2][i % 2], 0);
    for (size_t i = 0; i < sizeof others / sizeof *others && e == cudaSuccess; i++)
        e = cuda_split(others[i], 0);
    return e;
}

void ls_cuda_stats_install(cuda_backend *cuda) {
    ls_backend *be = &cuda->be;
    be->stats = ls_stats_cuda;
    be->choose = ls_choose_cuda;
    be->accept = ls_accept_cuda;
}
