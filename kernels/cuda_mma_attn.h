/* cuda_mma_attn.h - attention of the profile `mma`: chunks on tensor cores, then the merge.
 * Arithmetic  kernels/MMA_ATTN.md (N-MATTN); the chunk rules, the locator and the shape of the
 *             result are those of N-ATTN and N-LOC.
 * Exactness   a row's result is a function of its own query, keys and length. Rows of one sequence
 *             share loads; n_rows, max_chunks, the grid and everything in ls_mma_attn_device choose
 *             how the work is laid out, never a bit of it.
 * Promise     equal bits on every run on GPUs of one architecture: the order of additions inside a
 *             tensor-core product, and ex2.approx, are the hardware's.
 * Needs       compute capability 8.0; what ls_mma_attn_fits says. The backend uses the bodies of
 *             attn.body.h for the rest.
 * Memory      nothing is allocated; scratch is a->part. Lengths, locators and keys of older passes
 *             are read before the launch ahead has ended (cuda.h, cuda_wait_first): what writes
 *             them is no launch of this pass.
 * Errors      the first launch that fails; nothing waits for the device.
 * Threads     one owner a stream. */
#ifndef LS_CUDA_MMA_ATTN_H
#define LS_CUDA_MMA_ATTN_H

#include "backend.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct cuda_fault;

typedef struct ls_mma_attn_device {
    int32_t units;           /* multiprocessors */
    int32_t warps_a_unit;    /* warps one of them can hold */
    int32_t shared_a_unit;   /* bytes of shared memory: of a multiprocessor, */
    int32_t shared_a_block;  /* and the most a block may ask for */
    int32_t shared_reserved; /* bytes every block takes besides */
    int32_t overlap;         /* launches may start before the one ahead has ended (9.0 and later):
                                they wait inside for its results */
    int32_t waves;           /* grids are cut to this many rounds of resident blocks */
} ls_mma_attn_device;

#ifdef __cplusplus
extern "C" {
#endif
/* Reads the current device and readies the kernels for it; once for each device, before any launch
 * or capture. cudaErrorNotSupported: below compute capability 8.0. */
cudaError_t ls_mma_attn_prepare(ls_mma_attn_device *dev);

/* Whether this form computes `a`: no window, a bf16 cache, 16-byte aligned pools, head_dim a
 * multiple of 16 up to LS_HEAD_DIM_MAX. Looks at shapes only, so that a model's rows are all
 * computed alike. */
bool ls_mma_attn_fits(const ls_attn_args *a);

/* What comes with the rows.
 * rope, store  what of place is still to be done; NULL: they have been placed
 * x16          NULL, or where the rows [R, H E] go once more, rounded, as cuda_mma.h's linears want
 * done         LS_MMA_ATTN_GROUPS zeros, which stay zeros
 * fault, claim  of cuda.h: a row of more chunks than a->max_chunks is NaN and is reported */
typedef struct ls_mma_attn_with {
    const ls_rope_args *rope;
    const ls_kv_store_args *store;
    uint16_t *x16;
    int32_t *done;
    struct cuda_fault *fault;
    int32_t *claim;
} ls_mma_attn_with;
#define LS_MMA_ATTN_GROUPS 4096

/* Whether `with` may have the rope and the store of these rows (ls_check_place_attn holds). */
bool ls_mma_attn_places(const ls_attn_args *a, const ls_rope_args *rope,
                        const ls_kv_store_args *store);

/* The launches of a->only, on `stream`; can be captured. Rows at a->length <= 0 come out as
 * zeros. */
cudaError_t ls_mma_attn(const ls_attn_args *a, const ls_mma_attn_with *with,
                        const ls_mma_attn_device *dev, cudaStream_t stream);

/* How its chunks are launched. */
void ls_mma_attn_launch(const ls_attn_args *a, const ls_mma_attn_device *dev, ls_launch *out);
#ifdef __cplusplus
}
#endif

#endif
