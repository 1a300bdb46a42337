/* cuda_mma.h - the tensor-core linear of profile `mma` (N-MMA, kernels/MMA.md).
 * Shapes      y[R, n_out] = W[n_out, n_in] x[R, n_in] (+ add[R, n_out]); x, y, add: f32 row-major
 *             without padding; W: bf16, Q8_0 or Q4_K, packed once by ls_mma_pack. Any sizes from 1;
 *             of Q8_0 and Q4_K n_in is whole blocks.
 * Exactness   result row r is a function of row r of x (and add), W and the shapes. How many rows
 *             ride along, their contents, which kernel ran, the grid and the device's size are not
 *             in it.
 * Errors      the first CUDA error of a call is returned; cudaErrorInvalidValue for shapes that do
 *             not belong together. Nothing is launched then.
 * Memory      allocates nothing. Scratch is the caller's: one for all launches of a stream.
 * Order       launches go to the stream, and may begin before the kernel ahead of them has ended
 *             (programmatic dependent launch): until then they read packed weights and nothing
 *             else. So whoever packs waits for the stream before the first launch that reads packed
 *             weights (backend.h: weights_done).
 * Threads     nothing global; one owner a stream and scratch. */
#ifndef LS_CUDA_MMA_H
#define LS_CUDA_MMA_H

#include <cuda_runtime_api.h>

#include "backend.h"

/* What a launch must know of the device; made once by ls_mma_device_get. n_sm and smem_block may be
 * lowered, and pdl set to 0: no bit of a result follows from any of it. */
typedef struct ls_mma_device {
    int32_t n_sm;       /* multiprocessors to use */
    int32_t smem_block; /* most shared memory of a block, bytes */
    int32_t bulk;       /* 1: bulk copies and dependent launch, as sm_90 has them */
    int32_t pdl;        /* 1: launches may begin early */
} ls_mma_device;

#ifdef __cplusplus
extern "C" {
#endif
/* Reads the current device's properties, and raises the kernels' shared memory limits. */
cudaError_t ls_mma_device_get(ls_mma_device *dev);

/* Whether weights of this type have a tensor-core form: what `t` is below. */
int ls_mma_has(ls_dtype t);
/* Bytes of the packed form: n_out padded to 16, n_in to 16. */
size_t ls_mma_bytes(ls_dtype t, int32_t n_out, int32_t n_in);
/* Packs row-major weights [n_out, n_in], bf16 or the blocks of a file, both in device memory, in
 * the stream's order. packed_d has ls_mma_bytes and is aligned to 128 bytes. */
cudaError_t ls_mma_pack(const void *rowmajor_d, ls_dtype t, int32_t n_out, int32_t n_in,
                        void *packed_d, cudaStream_t stream);

/* A norm ahead of linears (N-MMAN): their x16 is z, the row weighted but not yet divided, and its
 * squares are summed here. Both are made by ls_mma_weigh, or by the linear that wrote the row. */
typedef struct ls_mma_norm {
    const float *squares; /* [n_rows, dim / 16 rounded up]; NULL: no norm */
    float eps;
    int32_t dim;
} ls_mma_norm;
/* The norm that reads a linear's y next: what a launch of at most 16 rows leaves for it. */
typedef struct ls_mma_next {
    const void *w; /* [n_out]; NULL: nothing */
    ls_dtype dtype;
    uint16_t *z;    /* [n_rows, ld], ld = LS_MMA_LD(n_out): as x16 */
    float *squares; /* [n_rows, n_squares], n_squares = n_out / 16 rounded up */
    int32_t ld, n_squares;
} ls_mma_next;
/* What a gate and an up matrix lead to: h = silu(gate) * up, or with gelu (N-SILU, N-GELU). */
typedef enum ls_mma_gate { LS_MMA_NO_GATE = 0, LS_MMA_SILU, LS_MMA_GELU } ls_mma_gate;
typedef struct ls_mma_gates {
    ls_mma_gate gate;
    float *h;      /* [n_rows, n_out] */
    uint16_t *x16; /* [n_rows, ld], ld = LS_MMA_LD(n_out): as ls_mma_round of h; or NULL */
    int32_t ld;
} ls_mma_gates;
/* Bytes of z (as x16) are ls_mma_x_bytes; of squares: */
size_t ls_mma_squares_bytes(int32_t dim, int32_t n_rows);
/* z and squares of the rows a->x with the weights a->w. */
cudaError_t ls_mma_weigh(const ls_rmsnorm_args *a, uint16_t *z, float *squares,
                         const ls_mma_device *dev, cudaStream_t stream);

/* Scratch that serves every launch of at most n_rows rows, n_out outputs (of all its linears
 * together) and n_in inputs. */
size_t ls_mma_scratch_bytes(ls_dtype t, int32_t n_out, int32_t n_in, int32_t n_rows);

/* x rounded to bf16 as few rows are read: [n_rows, LS_MMA_LD(n_in)], element k of a row at
 * LS_MMA_AT(k), +0 past n_in. Aligned to 16 bytes. Whoever writes x may write this beside it. */
#define LS_MMA_LD(n_in) (((n_in) + 31) / 32 * 32)
#define LS_MMA_AT(k) (((k) & ~31) + ((k) >> 2 & 3) * 8 + ((k) >> 4 & 1) * 4 + ((k)&3))
size_t ls_mma_x_bytes(int32_t n_in, int32_t n_rows);
cudaError_t ls_mma_round(const float *x, int32_t n_in, int32_t n_rows, void *x16,
                         const ls_mma_device *dev, cudaStream_t stream);
/* Whether this many rows are read as x16. */
int ls_mma_reads_x16(const ls_linear_args *a, int32_t n, const ls_mma_device *dev);

/* n <= LS_LINEARS linears of the same x, n_in, n_rows and type of weights, in one launch where rows
 * are few. w.data is packed. x16: ls_mma_round of x (ignored by many rows of bf16). scratch is
 * aligned to 256 bytes.
 * norm   NULL, or a norm ahead: x16 is its z, for any number of rows, and x is not read.
 * next   NULL, or what to leave for a norm behind: one linear, at most 16 rows. */
cudaError_t ls_mma_linears(const ls_linear_args *a, int32_t n, const void *x16,
                           const ls_mma_norm *norm, const ls_mma_next *next, void *scratch,
                           const ls_mma_device *dev, cudaStream_t stream);
/* Gate and up of the norm ahead, and at once what follows from them: the bits of ls_mma_linears,
 * whose y are left alone, and then of the gates. What ls_mma_gated_fits refuses is an invalid
 * value. */
int ls_mma_gated_fits(const ls_linear_args both[2]);
cudaError_t ls_mma_gated(const ls_linear_args both[2], const void *z, const ls_mma_norm *norm,
                         const ls_mma_gates *gates, const ls_mma_device *dev, cudaStream_t stream);
#define LS_MMA_FEW 16 /* rows of the narrow kernel: one launch, or more where memory is small */
#ifdef __cplusplus
}
#endif

#endif
