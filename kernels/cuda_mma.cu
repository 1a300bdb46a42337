/* cuda_mma.cu - the tensor-core linear of profile `mma` (N-MMA): packing, and which kernel runs.
 * Up to 16 rows take the narrow kernel (cuda_mma_narrow.cu). More take it several times, or the
 * wide one (cuda_mma_wide.cu), whichever should be faster: the bits are the same. Q8_0 and Q4_K
 * have the narrow one alone. */
#include "cuda_mma_format.h"

/* ---- packing --------------------------------------------------------------------------------- */

int ls_mma_has(ls_dtype t) {
    return t == LS_BF16 || t == LS_Q8_0 || t == LS_Q4_K;
}

size_t ls_mma_bytes(ls_dtype t, int32_t n_out, int32_t n_in) {
    return (size_t)mma_ceil(n_out, MMA_TILE) *
           (size_t)mma_ceil(n_in, MMA_STEP * MMA_GROUP_STEPS(t)) * (size_t)MMA_GROUP_BYTES(t);
}

MMA_FN uint32_t mma_pair_at(const uint16_t *w, int n_out, int n_in, int row, int k) {
    uint32_t v = 0;
    if (row < n_out && k < n_in)
        v = w[(size_t)row * (size_t)n_in + (size_t)k];
    if (row < n_out && k + 1 < n_in)
        v |= (uint32_t)w[(size_t)row * (size_t)n_in + (size_t)k + 1] << 16;
    return v;
}
__global__ void mma_pack(const uint16_t *w, int n_out, int n_in, uint4 *packed, size_t n) {
    const size_t tiles = (size_t)((n_out + MMA_TILE - 1) / MMA_TILE);
    const size_t steps_all = (size_t)((n_in + MMA_STEP - 1) / MMA_STEP);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const int lane = (int)(i & 31), g = lane >> 2, t = lane & 3;
        const size_t unit = i >> 5, segment = unit / (tiles * MMA_SEGMENT_STEPS);
        const size_t inside = unit - segment * tiles * MMA_SEGMENT_STEPS;
        const size_t left = steps_all - segment * MMA_SEGMENT_STEPS;
        const size_t steps = left < MMA_SEGMENT_STEPS ? left : MMA_SEGMENT_STEPS;
        const int row = (int)(inside / steps) * MMA_TILE + g;
        const int k = (int)(segment * MMA_SEGMENT_STEPS + inside % steps) * MMA_STEP + t * 4;
        packed[i] = make_uint4(
            mma_pair_at(w, n_out, n_in, row, k), mma_pair_at(w, n_out, n_in, row + 8, k),
            mma_pair_at(w, n_out, n_in, row, k + 2), mma_pair_at(w, n_out, n_in, row + 8, k + 2));
    }
}

cudaError_t ls_mma_pack(const void *rowmajor_d, ls_dtype t, int32_t n_out, int32_t n_in,
                        void *packed_d, cudaStream_t stream) {
    if (!rowmajor_d || !packed_d || n_out < 1 || n_in < 1 || !ls_mma_has(t) ||
        n_in % (int32_t)ls_dtype_block(t) != 0)
        return cudaErrorInvalidValue;
    if (t != LS_BF16)
        return ls_mma_pack_blocks(rowmajor_d, t, n_out, n_in, packed_d, stream);
    mma_pack<<<2048, 256, 0, stream>>>((const uint16_t *)rowmajor_d, n_out, n_in, (uint4 *)packed_d,
                                       ls_mma_bytes(t, n_out, n_in) / 16);
    return cudaGetLastError();
}

/* ---- x rounded ------------------------------------------------------------------------------- */

size_t ls_mma_x_bytes(int32_t n_in, int32_t n_rows) {
    return (size_t)LS_MMA_LD(n_in) * sizeof(uint16_t) * (size_t)n_rows;
}

/* A thread makes the 16 bytes of a lane: four k of an even step, four of the odd one. */
__global__ void mma_round(const float *x, int n_in, int n_rows, int lanes, uint4 *to) {
    cuda_wait_ahead();
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n_rows * lanes;
         i += (int)(gridDim.x * blockDim.x)) {
        const int row = i / lanes, lane = i - row * lanes, k = (lane >> 2) * 32 + (lane & 3) * 4;
        const float *from = x + (size_t)row * (size_t)n_in;
        const uint2 even = mma_load_x(from, k, n_in), odd = mma_load_x(from, k + 16, n_in);
        to[i] = make_uint4(even.x, even.y, odd.x, odd.y);
    }
}

cudaError_t ls_mma_round(const float *x, int32_t n_in, int32_t n_rows, void *x16,
                         const ls_mma_device *dev, cudaStream_t stream) {
    const int32_t lanes = mma_ceil(n_in, 32) * 4, blocks = mma_ceil(lanes * n_rows, 128);
    cudaLaunchAttribute early;
    const unsigned grid = (unsigned)(blocks < 4 * dev->n_sm ? blocks : 4 * dev->n_sm);
    const cudaLaunchConfig_t c = cuda_launch_of(dim3(grid), 128, 0, stream, dev->pdl, &early);
    return cudaLaunchKernelEx(&c, mma_round, x, (int)n_in, (int)n_rows, (int)lanes, (uint4 *)x16);
}

/* ---- a row for the norm ahead ---------------------------------------------------------------- */

size_t ls_mma_squares_bytes(int32_t dim, int32_t n_rows) {
    return (size_t)mma_ceil(dim, 16) * sizeof(float) * (size_t)n_rows;
}

/* Row blockIdx.x; a lane an element. */
__global__ void mma_weigh(const ls_rmsnorm_args a, uint16_t *z, float *squares, int ld, int n) {
    const int k = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    const size_t row = blockIdx.x;
    const float w = k < a.dim ? mma_weight(a.w, a.w_dtype, k) : 0.0f;
    cuda_wait_ahead();
    const float v = k < a.dim ? __ldcg(a.x + row * (size_t)a.dim + k) : 0.0f;
    const float square = mma_square(v, 8, 1);
    if (k < ld)
        z[row * (size_t)ld + LS_MMA_AT(k)] = cuda_bf16(__fmul_rn(v, w));
    if (k % 16 == 0 && k / 16 < n)
        squares[row * (size_t)n + k / 16] = square;
}

cudaError_t ls_mma_weigh(const ls_rmsnorm_args *a, uint16_t *z, float *squares,
                         const ls_mma_device *dev, cudaStream_t stream) {
    const int32_t ld = LS_MMA_LD(a->dim);
    cudaLaunchAttribute early;
    const dim3 grid((unsigned)a->n_rows, (unsigned)mma_ceil(ld, 128));
    const cudaLaunchConfig_t c = cuda_launch_of(grid, 128, 0, stream, dev->pdl, &early);
    return cudaLaunchKernelEx(&c, mma_weigh, *a, z, squares, (int)ld, (int)mma_ceil(a->dim, 16));
}

/* ---- the choice ------------------------------------------------------------------------------ */

static int mma_list_make(const ls_linear_args *a, int32_t n, mma_list *m) {
    m->n = n;
    m->tiles = 0;
    m->format = a->w.dtype;
    if (!ls_mma_has(m->format) || a->w.n_in % (int32_t)ls_dtype_block(m->format) != 0)
        return 0;
    for (int32_t i = 0; i < LS_LINEARS; i++) {
        m->first[i] = INT32_MAX;
        m->w[i] = NULL;
        m->y[i] = NULL;
        m->add[i] = NULL;
        m->n_out[i] = m->n_tiles[i] = 0;
        if (i >= n)
            continue;
        if (a[i].x != a->x || a[i].n_rows != a->n_rows || a[i].w.n_in != a->w.n_in ||
            a[i].w.dtype != m->format || a[i].w.n_out < 1 || a[i].w.n_in < 1)
            return 0;
        m->w[i] = (const char *)a[i].w.data;
        m->y[i] = a[i].y;
        m->add[i] = a[i].add;
        m->n_out[i] = a[i].w.n_out;
        m->first[i] = m->tiles;
        m->n_tiles[i] = mma_ceil(a[i].w.n_out, MMA_TILE);
        m->tiles += m->n_tiles[i];
    }
    return 1;
}

/* Whether many rows are better off in the wide kernel: nanoseconds of a multiprocessor that reads
 * 23 bytes or does 3000 operations in each, as an H200's do. */
static int mma_is_wide(const mma_list *m, int32_t n_rows, const ls_mma_device *dev) {
    const int32_t at_once = ls_mma_narrow_rows(dev, m->format, n_rows);
    if (m->format != LS_BF16 || !ls_mma_wide_fits(dev) || n_rows <= LS_MMA_FEW)
        return 0;
    const double read = (double)mma_ceil(n_rows, at_once) * m->tiles * MMA_TILE * 2.0 / 23.0;
    const double waves = mma_ceil(ls_mma_wide_blocks(m, n_rows), dev->n_sm);
    return waves * dev->n_sm * (2.0 * 128 * 128 / 3000.0) < read;
}

int ls_mma_reads_x16(const ls_linear_args *a, int32_t n, const ls_mma_device *dev) {
    mma_list m;
    return n >= 1 && n <= LS_LINEARS && mma_list_make(a, n, &m) && !mma_is_wide(&m, a->n_rows, dev);
}

/* All rows, by as many launches of the narrow kernel as they need. norm, next, gates: or NULL. */
static cudaError_t narrow(mma_list *m, const ls_linear_args *a, const void *x16,
                          const ls_mma_norm *norm, const ls_mma_next *next,
                          const ls_mma_gates *gates, const ls_mma_device *dev,
                          cudaStream_t stream) {
    const int32_t n_rows = a->n_rows, n_in = a->w.n_in;
    for (int32_t row = 0, at_once; row < n_rows; row += at_once) {
        at_once = ls_mma_narrow_rows(dev, m->format, n_rows - row);
        for (int32_t i = 0; i < m->n; i++) {
            const size_t at = (size_t)row * (size_t)a[i].w.n_out;
            m->y[i] = a[i].y + at;
            m->add[i] = a[i].add ? a[i].add + at : NULL;
        }
        ls_mma_norm here = {};
        if (norm)
            here = *norm, here.squares += (size_t)row * (size_t)mma_ceil(norm->dim, 16);
        ls_mma_next behind = {};
        if (next) {
            behind = *next;
            behind.z += (size_t)row * (size_t)next->ld;
            behind.squares += (size_t)row * (size_t)next->n_squares;
        }
        ls_mma_gates gated = {};
        if (gates) {
            gated = *gates;
            gated.h += (size_t)row * (size_t)a->w.n_out;
            gated.x16 = gates->x16 ? gates->x16 + (size_t)row * (size_t)gates->ld : NULL;
        }
        const cudaError_t e = ls_mma_narrow(m, (const char *)x16 + ls_mma_x_bytes(n_in, row), n_in,
                                            at_once, &here, &behind, &gated, dev, stream);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}

cudaError_t ls_mma_linears(const ls_linear_args *a, int32_t n, const void *x16,
                           const ls_mma_norm *norm, const ls_mma_next *next, void *scratch,
                           const ls_mma_device *dev, cudaStream_t stream) {
    mma_list m;
    if (n < 1 || n > LS_LINEARS || !mma_list_make(a, n, &m) || a->n_rows < 0)
        return cudaErrorInvalidValue;
    const int32_t n_rows = a->n_rows, n_in = a->w.n_in;
    if (next && (n != 1 || n_rows > LS_MMA_FEW))
        return cudaErrorInvalidValue;
    if (n_rows > 0 && mma_is_wide(&m, n_rows, dev))
        return ls_mma_wide(&m, a->x, x16, n_in, n_rows, norm, scratch, dev, stream);
    return narrow(&m, a, x16, norm, next, NULL, dev, stream);
}

static int gated_list_make(const ls_linear_args both[2], mma_list *m) {
    return mma_list_make(both, 2, m) && both->n_rows <= LS_MMA_FEW && m->n_out[0] == m->n_out[1] &&
           !both[0].add && !both[1].add;
}
int ls_mma_gated_fits(const ls_linear_args both[2]) {
    mma_list m;
    return gated_list_make(both, &m);
}

cudaError_t ls_mma_gated(const ls_linear_args both[2], const void *z, const ls_mma_norm *norm,
                         const ls_mma_gates *gates, const ls_mma_device *dev, cudaStream_t stream) {
    mma_list m;
    if (!gated_list_make(both, &m) || both->n_rows < 0 || !gates->gate)
        return cudaErrorInvalidValue;
    return narrow(&m, both, z, norm, NULL, gates, dev, stream);
}

size_t ls_mma_scratch_bytes(ls_dtype t, int32_t n_out, int32_t n_in, int32_t n_rows) {
    return t == LS_BF16 ? ls_mma_wide_scratch(n_out, n_in, n_rows) : 0;
}

cudaError_t ls_mma_device_get(ls_mma_device *dev) {
    int device, v[3];
    cudaError_t e = cudaGetDevice(&device);
    const cudaDeviceAttr want[3] = {cudaDevAttrMultiProcessorCount,
                                    cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    cudaDevAttrComputeCapabilityMajor};
    for (int i = 0; i < 3 && e == cudaSuccess; i++)
        e = cudaDeviceGetAttribute(&v[i], want[i], device);
    if (e != cudaSuccess)
        return e;
    *dev = ls_mma_device{};
    dev->n_sm = v[0];
    dev->smem_block = v[1];
    dev->bulk = v[2] >= 9;
    e = ls_mma_narrow_get(dev);
    return e != cudaSuccess ? e : ls_mma_wide_get(dev);
}
