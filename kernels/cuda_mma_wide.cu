/* cuda_mma_wide.cu - the tensor-core linear for many rows (N-MMA): prompts. Bits as few rows.
 * Structure   x is rounded once into scratch (x16 copied), in the order in which lanes read it. A
 *             block makes 128 outputs x 128 rows: 4 warps of 64 x 64, chunks of 32 k of both
 *             operands in a ring. Two blocks fit a multiprocessor.
 * Order       a warp's sums c are of one segment. At its end the range's sum so far (in shared
 *             memory) is added before it; at a range's end the total so far (in scratch).
 * Copies      sm_90: the warps take turns at bulk copies; a `full` and an `empty` barrier a place.
 *             Elsewhere all warps copy 16 bytes a lane, with a block barrier a chunk. */
#include "cuda_mma_format.h"

#define WIDE_WARPS 4
#define WIDE_TILES 8   /* of 16 outputs */
#define WIDE_GROUPS 16 /* of 8 rows */
#define WIDE_ROWS (WIDE_GROUPS * 8)
#define WIDE_STEPS 2 /* of a chunk */
#define WIDE_W_BYTES (WIDE_TILES * WIDE_STEPS * MMA_STEP_BYTES)
#define WIDE_X_BYTES (WIDE_GROUPS * 512)
#define WIDE_CHUNK_BYTES (WIDE_W_BYTES + WIDE_X_BYTES)
#define WIDE_SUM_BYTES (WIDE_TILES * WIDE_GROUPS * 512) /* all sums of a block */
#define WIDE_DEPTH_MAX 3
#define WIDE_THREADS (WIDE_WARPS * 32)
#define WIDE_TOTALS 528 /* blocks of a launch that keep totals in scratch */

typedef struct mma_wide_args {
    mma_list m;
    int32_t block0[LS_LINEARS]; /* a matrix' first block of outputs; past the end without one */
    const uint4 *x;
    float4 *total;
    const float *root; /* [n_rows] of the norm ahead; NULL: none */
    int32_t n_in, n_rows, segments, last_steps, depth, first; /* block of outputs of this launch */
} mma_wide_args;

static int32_t wide_chunks(int32_t n_in) {
    return mma_ceil(n_in, WIDE_STEPS * MMA_STEP);
}
static size_t wide_x_bytes(int32_t n_in, int32_t n_rows) {
    return (size_t)mma_ceil(n_rows, WIDE_ROWS) * (size_t)wide_chunks(n_in) * WIDE_X_BYTES;
}
static size_t wide_root_bytes(int32_t n_rows) {
    return ((size_t)n_rows * sizeof(float) + 255) / 256 * 256;
}
size_t ls_mma_wide_scratch(int32_t n_out, int32_t n_in, int32_t n_rows) {
    const size_t blocks = (size_t)(mma_ceil(n_out, WIDE_TILES * MMA_TILE) + LS_LINEARS) *
                          (size_t)mma_ceil(n_rows, WIDE_ROWS);
    const size_t totals = blocks < WIDE_TOTALS ? blocks : WIDE_TOTALS;
    return wide_x_bytes(n_in, n_rows) + wide_root_bytes(n_rows) +
           (n_in > MMA_RANGE * MMA_SEGMENT ? totals * WIDE_SUM_BYTES : 0);
}

MMA_FN uint2 wide_load_x(const float *row, int k, int n_in, int vec) {
    if (!vec || k >= n_in)
        return mma_load_x(row, k, n_in);
    const float4 v = *(const float4 *)(row + k);
    return make_uint2(mma_bf16x2(v.x, v.y), mma_bf16x2(v.z, v.w));
}
/* x rounded: [128 rows][pair of steps][group of 8 rows][lane] 16 bytes: 4 k of the first step, 4 of
 * the second. Rows and k past the end are zeros. */
__global__ void mma_wide_x(const float *x, const uint4 *x16, int n_in, int n_rows, int pairs,
                           size_t n, int vec, uint4 *to) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const int lane = (int)(i & 31), group = (int)(i >> 5) % WIDE_GROUPS;
        const size_t rest = (i >> 5) / WIDE_GROUPS;
        const int pair = (int)(rest % (size_t)pairs);
        const int row = (int)(rest / (size_t)pairs) * WIDE_ROWS + group * 8 + (lane >> 2);
        const int k = pair * 32 + (lane & 3) * 4;
        uint2 v0 = make_uint2(0, 0), v1 = v0;
        if (row < n_rows && x16) {
            to[i] = x16[((size_t)row * (size_t)pairs + (size_t)pair) * 4 + (lane & 3)];
            continue;
        }
        if (row < n_rows) {
            const float *r = x + (size_t)row * (size_t)n_in;
            v0 = wide_load_x(r, k, n_in, vec);
            v1 = wide_load_x(r, k + 16, n_in, vec);
        }
        to[i] = make_uint4(v0.x, v0.y, v1.x, v1.y);
    }
}

/* The roots of all rows; a warp a row. */
__global__ void mma_wide_roots(const ls_mma_norm norm, int n_rows, float *root) {
    const int row = (int)(blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5));
    if (row < n_rows)
        mma_row_root(&norm, row, root + row, (int)threadIdx.x & 31);
}

/* A block's place in the work. */
typedef struct wide_at {
    int matrix, tile, tiles; /* its first tile (counted over all matrices), how many it has */
    int rows, chunks, steps; /* block of rows; chunks and steps of k */
} wide_at;

MMA_FN wide_at wide_at_of(const mma_wide_args *a) {
    wide_at w;
    const int b = (int)blockIdx.y + a->first;
    w.matrix = (b >= a->block0[1]) + (b >= a->block0[2]);
    const int local = (b - a->block0[w.matrix]) * WIDE_TILES;
    w.tile = a->m.first[w.matrix] + local;
    w.tiles = min(WIDE_TILES, a->m.n_tiles[w.matrix] - local);
    w.rows = (int)blockIdx.x;
    w.chunks = (a->n_in + WIDE_STEPS * MMA_STEP - 1) / (WIDE_STEPS * MMA_STEP);
    w.steps = (a->n_in + MMA_STEP - 1) / MMA_STEP;
    return w;
}
MMA_FN int wide_steps(const wide_at *w, int chunk) {
    return min(WIDE_STEPS, w->steps - chunk * WIDE_STEPS);
}
/* A tile's weights of a chunk; those of the tile t after it lie t * *stride bytes on. */
MMA_FN const char *wide_w(const mma_wide_args *a, const wide_at *w, int chunk, int *stride) {
    const int segment = chunk / (MMA_SEGMENT_STEPS / WIDE_STEPS);
    const int in = chunk % (MMA_SEGMENT_STEPS / WIDE_STEPS);
    const int steps = segment == a->segments - 1 ? a->last_steps : MMA_SEGMENT_STEPS;
    *stride = steps * MMA_STEP_BYTES;
    return mma_unit_of<LS_BF16>(&a->m, w->matrix, w->tile, segment, steps) +
           in * WIDE_STEPS * MMA_STEP_BYTES;
}
MMA_FN const char *wide_x(const mma_wide_args *a, const wide_at *w, int chunk) {
    return (const char *)a->x +
           ((size_t)w->rows * (size_t)w->chunks + (size_t)chunk) * WIDE_X_BYTES;
}

#if LS_MMA_BULK
/* One lane: a chunk into a place. */
MMA_FN void wide_copy(const mma_wide_args *a, const wide_at *w, uint32_t to, uint32_t full,
                      int chunk) {
    const uint32_t bytes = (uint32_t)(wide_steps(w, chunk) * MMA_STEP_BYTES);
    int stride;
    const char *from = wide_w(a, w, chunk, &stride);
    mma_bar_expect(full, bytes * (uint32_t)w->tiles + WIDE_X_BYTES);
    mma_bulk(to + WIDE_W_BYTES, wide_x(a, w, chunk), WIDE_X_BYTES, full);
#pragma unroll 1
    for (int i = 0; i < w->tiles; i++)
        mma_bulk(to + (uint32_t)(i * WIDE_STEPS * MMA_STEP_BYTES), from + (size_t)i * stride, bytes,
                 full);
}
#else
/* All threads: a chunk into a place. One group, also without a chunk. */
MMA_FN void wide_copy(const mma_wide_args *a, const wide_at *w, uint32_t to, int chunk) {
    if (chunk < w->chunks) {
        int stride;
        const char *from = wide_w(a, w, chunk, &stride), *x = wide_x(a, w, chunk);
        for (int i = (int)threadIdx.x; i < WIDE_W_BYTES / 16; i += WIDE_THREADS) {
            const int tile = i / (WIDE_STEPS * 32), in = i % (WIDE_STEPS * 32);
            if (tile < w->tiles && in < wide_steps(w, chunk) * 32)
                mma_copy16(to + (uint32_t)i * 16, from + (size_t)tile * stride + in * 16);
        }
        for (int i = (int)threadIdx.x; i < WIDE_X_BYTES / 16; i += WIDE_THREADS)
            mma_copy16(to + WIDE_W_BYTES + (uint32_t)i * 16, x + i * 16);
    }
    mma_copy_commit();
}
#endif

/* The steps of a chunk into a warp's sums: 4 tiles x 8 groups of rows. */
MMA_FN void wide_chunk(float c[4][8][4], uint32_t w, uint32_t x, int steps) {
    uint4 b[8], v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = mma_lds4(w + (uint32_t)(i * WIDE_STEPS * MMA_STEP_BYTES));
#pragma unroll
    for (int j = 0; j < 8; j++)
        b[j] = mma_lds4(x + (uint32_t)(j * 512));
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            mma_step(c[i][j], v[i], b[j].x, b[j].y);
    if (steps < 2)
        return;
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = mma_lds4(w + (uint32_t)((i * WIDE_STEPS + 1) * MMA_STEP_BYTES));
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            mma_step(c[i][j], v[i], b[j].z, b[j].w);
}

MMA_FN void wide_add4(float c[4], float4 before) {
    c[0] = __fadd_rn(before.x, c[0]);
    c[1] = __fadd_rn(before.y, c[1]);
    c[2] = __fadd_rn(before.z, c[2]);
    c[3] = __fadd_rn(before.w, c[3]);
}
MMA_FN float4 wide_take4(float c[4]) {
    const float4 v = make_float4(c[0], c[1], c[2], c[3]);
    c[0] = c[1] = c[2] = c[3] = 0.0f;
    return v;
}
/* The end of a segment: what came before is added, and but at the very end the sum is put away. */
MMA_FN void wide_segment_end(const mma_wide_args *a, float c[4][8][4], int segment, uint32_t sum,
                             float4 *total) {
    const int end = segment == a->segments - 1;
    const int range_end = end || segment % MMA_RANGE == MMA_RANGE - 1;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int at = (i * 8 + j) * 32;
            if (segment % MMA_RANGE > 0)
                wide_add4(c[i][j], mma_ldsf4(sum + (uint32_t)at * 16));
            if (range_end && segment >= MMA_RANGE)
                wide_add4(c[i][j], total[at]);
            if (end)
                continue;
            if (range_end)
                total[at] = wide_take4(c[i][j]);
            else
                mma_stsf4(sum + (uint32_t)at * 16, wide_take4(c[i][j]));
        }
}
MMA_FN void wide_store(const mma_wide_args *a, const wide_at *w, int wm, int wn, int lane,
                       float c[4][8][4]) {
    const int g = lane >> 2, t = lane & 3, n_out = a->m.n_out[w->matrix];
    const float *add = a->m.add[w->matrix];
    float *y = a->m.y[w->matrix];
    const int out0 = (w->tile - a->m.first[w->matrix] + wm * 4) * MMA_TILE + g;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = w->rows * WIDE_ROWS + (wn * 8 + j) * 8 + t * 2 + e;
            if (row >= a->n_rows)
                continue;
            const float root = a->root ? a->root[row] : 1.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int out = out0 + i * 8;
                if (out >= n_out)
                    continue;
                const size_t at = (size_t)row * (size_t)n_out + (size_t)out;
                float v = c[i / 2][j][(i & 1) * 2 + e];
                if (a->root)
                    v = __fdiv_rn(v, root);
                y[at] = add ? __fadd_rn(v, add[at]) : v;
            }
        }
}

__global__ void __launch_bounds__(WIDE_THREADS, 2)
    mma_wide(const __grid_constant__ mma_wide_args a) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int lane = (int)threadIdx.x & 31;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0);
    const wide_at at = wide_at_of(&a);
    const uint32_t sums = mma_smem(memory), ring = sums + WIDE_SUM_BYTES;
    const uint32_t bars = ring + (uint32_t)(a.depth * WIDE_CHUNK_BYTES);
#if LS_MMA_BULK
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.depth; i++) {
            mma_bar_init(bars + (uint32_t)i * 16, 1);
            mma_bar_init(bars + (uint32_t)i * 16 + 8, WIDE_THREADS);
        }
        mma_bar_fence();
    }
    __syncthreads(); /* the barriers */
    if (threadIdx.x == 0)
        for (int chunk = 0; chunk < a.depth - 1 && chunk < at.chunks; chunk++)
            wide_copy(&a, &at, ring + (uint32_t)(chunk * WIDE_CHUNK_BYTES),
                      bars + (uint32_t)chunk * 16, chunk);
#else
    (void)bars;
    for (int chunk = 0; chunk < a.depth - 1; chunk++)
        wide_copy(&a, &at, ring + (uint32_t)(chunk * WIDE_CHUNK_BYTES), chunk);
#endif
    const int wm = warp & 1, wn = warp >> 1;
    const uint32_t sum = sums + (uint32_t)((warp * 32 * 32 + lane) * 16);
    float4 *total = a.total +
                    ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * (WIDE_SUM_BYTES / 16) +
                    warp * 32 * 32 + lane;
    float c[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            wide_take4(c[i][j]);
    const int per_segment = MMA_SEGMENT_STEPS / WIDE_STEPS;
    int place = 0, ahead = a.depth - 1; /* where the chunk is, and the one to be copied */
    uint32_t parity = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < at.chunks; chunk++) {
        const int next = chunk + a.depth - 1;
        const uint32_t next_at = ring + (uint32_t)(ahead * WIDE_CHUNK_BYTES);
        const uint32_t from = ring + (uint32_t)(place * WIDE_CHUNK_BYTES);
#if LS_MMA_BULK
        mma_bar_wait(bars + (uint32_t)place * 16, parity);
        if (warp == chunk % WIDE_WARPS && next < at.chunks) {
            const uint32_t bar = bars + (uint32_t)ahead * 16;
            if (chunk > 0) /* the chunk before this one is used up */
                mma_bar_wait(bar + 8, parity ^ (place == 0));
            if (lane == 0)
                wide_copy(&a, &at, next_at, bar, next);
        }
#else
        if (a.depth == 2)
            MMA_COPY_WAIT(0);
        else
            MMA_COPY_WAIT(1);
        __syncthreads(); /* the chunk has come for all; the one before it is used up */
        wide_copy(&a, &at, next_at, next);
#endif
        wide_chunk(c, from + (uint32_t)(wm * 4 * WIDE_STEPS * MMA_STEP_BYTES + lane * 16),
                   from + WIDE_W_BYTES + (uint32_t)(wn * 8 * 512 + lane * 16),
                   wide_steps(&at, chunk));
#if LS_MMA_BULK
        mma_bar_release(bars + (uint32_t)place * 16 + 8);
#endif
        ahead = place;
        place++;
        if (place == a.depth) {
            place = 0;
            parity ^= 1;
        }
        if ((chunk + 1) % per_segment == 0 || chunk + 1 == at.chunks)
            wide_segment_end(&a, c, chunk / per_segment, sum, total);
    }
    wide_store(&a, &at, wm, wn, lane, c);
}

/* ---- the launch ------------------------------------------------------------------------------ */

static int32_t wide_bytes(int32_t depth) {
    return WIDE_SUM_BYTES + depth * WIDE_CHUNK_BYTES + 64;
}
static int32_t wide_depth(const ls_mma_device *dev) {
    int32_t depth = WIDE_DEPTH_MAX;
    while (depth > 1 && wide_bytes(depth) > dev->smem_block)
        depth--;
    return depth;
}
int ls_mma_wide_fits(const ls_mma_device *dev) {
    return wide_depth(dev) >= 2;
}
int32_t ls_mma_wide_blocks(const mma_list *m, int32_t n_rows) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++)
        n += mma_ceil(m->n_tiles[i], WIDE_TILES);
    return n * mma_ceil(n_rows, WIDE_ROWS);
}

cudaError_t ls_mma_wide_get(ls_mma_device *dev) {
    return cuda_split((const void *)mma_wide, dev->smem_block);
}

cudaError_t ls_mma_wide(const mma_list *m, const float *x, const void *x16, int32_t n_in,
                        int32_t n_rows, const ls_mma_norm *norm, void *scratch,
                        const ls_mma_device *dev, cudaStream_t stream) {
    mma_wide_args k = {};
    char *room = (char *)scratch;
    const size_t x_bytes = wide_x_bytes(n_in, n_rows);
    k.m = *m;
    k.x = (const uint4 *)room;
    k.total = (float4 *)(room + x_bytes + wide_root_bytes(n_rows));
    k.n_in = n_in;
    k.n_rows = n_rows;
    k.segments = mma_ceil(n_in, MMA_SEGMENT);
    k.last_steps = mma_ceil(n_in - (k.segments - 1) * MMA_SEGMENT, MMA_STEP);
    k.depth = wide_depth(dev);
    int32_t blocks = 0;
    for (int32_t i = 0; i < LS_LINEARS; i++) {
        k.block0[i] = i < m->n ? blocks : INT32_MAX;
        blocks += i < m->n ? mma_ceil(m->n_tiles[i], WIDE_TILES) : 0;
    }
    const int vec = n_in % 4 == 0 && ((uintptr_t)x & 15) == 0; /* rows of 16-byte words */
    mma_wide_x<<<dev->n_sm * 8, 256, 0, stream>>>(x, norm ? (const uint4 *)x16 : NULL, n_in, n_rows,
                                                  wide_chunks(n_in), x_bytes / 16, vec,
                                                  (uint4 *)room);
    if (norm) {
        float *root = (float *)(room + x_bytes);
        k.root = root;
        mma_wide_roots<<<mma_ceil(n_rows, 8), 256, 0, stream>>>(*norm, n_rows, root);
    }
    cudaError_t e = cudaGetLastError();
    const int32_t across = mma_ceil(n_rows, WIDE_ROWS);
    const int32_t most = k.segments <= MMA_RANGE ? 32768 : WIDE_TOTALS / across;
    if (most < 1)
        return cudaErrorInvalidValue;
    for (k.first = 0; k.first < blocks && e == cudaSuccess; k.first += most) {
        const int32_t n = blocks - k.first < most ? blocks - k.first : most;
        mma_wide<<<dim3((unsigned)across, (unsigned)n), WIDE_THREADS, (size_t)wide_bytes(k.depth),
                   stream>>>(k);
        e = cudaGetLastError();
    }
    return e;
}
