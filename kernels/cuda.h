/* cuda.h - what the files of the CUDA backend share. Private: everyone else reads backend.h.
 * Files       cuda.cu          create, errors, stamps, graphs
 *             cuda_memory.cu   device memory, uploads, downloads
 *             cuda_rows.cu     bodies whose warps do not wait for each other: a row in many blocks
 *             cuda_bodies.cu   bodies whose warps meet in a block: attention, and norms (blocks
 *                              share few rows)
 *             cuda_stats.cu    statistics, draws, verdicts: their blocks share rows of logits
 *             cuda_linear.cu   the linear of profile ieee (packed: cuda_linear_packed.h)
 *             cuda_read.cu     the plain read
 *             cuda_none.c      ls_cuda_create of a build without CUDA
 * Profiles    `ieee` is what ls_cuda_*_install put into the table. LS_HAVE_MMA and LS_HAVE_CUBLAS
 *             say that a build has the files of the other two (cuda_profile_mma.cu, cuda_mma*;
 *             cuda_cublas.cu); their install functions run last in ls_cuda_create and replace
 *             members (linear, linears, norm_linears, norm_gates, attn, place_attn, attn_launch, mat,
 *             mat_free, weights_done).
 * Stream      all work of a backend goes to its one stream. Host threads: every entry names the
 *             device, so the owner may change threads.
 * Errors      the first failure is kept in `err`: what a launcher refused, what a launch or a copy
 *             answered, and what a kernel found out (cuda_fault), which is read after a wait. */
#ifndef LS_CUDA_H
#define LS_CUDA_H

#include <cuda_runtime.h>

#include "backend.h"
#include "check.h"
#include "cuda_share.h"

#define LS_RING_PART ((size_t)64 << 10) /* the largest small upload */
#define LS_RING_PARTS 16
#define LS_STAGES 4
#define LS_STAGE_BYTES ((size_t)8 << 20)

/* What a kernel found wrong: written by the first block that claims it, host memory. */
typedef struct cuda_fault {
    int32_t set, row, length, chunks, max_chunks; /* of ls_check_chunks */
} cuda_fault;

typedef struct cuda_backend cuda_backend;
struct cuda_backend {
    ls_backend be; /* first: a backend pointer is one of these */
    int device;
    int capability; /* 90 for 9.0: of the device, or of the code for it when that is older */
    int n_units, threads_a_unit; /* multiprocessors to plan with, threads one can hold */
    int32_t block_bytes;         /* shared memory a block may ask for, likewise */
    cudaStream_t stream;
    int overlap; /* launches may begin before the kernel ahead has ended (cuda_wait_ahead) */
    int recording, recorded; /* now; ever */
    ls_err err;              /* the first failure since the last sync */
    cudaEvent_t stamp[LS_STAMPS];
    int stamped[LS_STAMPS];

    cuda_fault *fault; /* pinned */
    int32_t *claim_d;  /* [17] 1 once a block has claimed the fault; then words nobody reads */

    char *ring; /* pinned: small uploads, LS_RING_PARTS parts with an event each */
    cudaEvent_t ring_done[LS_RING_PARTS];
    int ring_used[LS_RING_PARTS]; /* the event has been recorded */
    int ring_part;
    size_t ring_at;
    char *stage[LS_STAGES]; /* pinned, on first need: large copies */
    cudaEvent_t stage_done[LS_STAGES];
    int stage_at; /* the next large upload begins in this one */

    /* Profile mma: what gates and attention write, rounded to bf16 beside it, for a linear
     * that is the very next entry (cuda_mma.h: x16). x16 is NULL in other profiles. */
    uint16_t *x16;
    size_t x16_bytes;
    const float *x16_of; /* the f32 rows it was made of */
    int32_t x16_rows, x16_dim;
    uint64_t x16_entry, entries; /* the entry that made it; entries so far */

    cuda_shared *weights; /* row-major, by the host memory they came from */
    cuda_shared *retired; /* see cuda_retire */

    void *profile_data; /* of an installed profile; profile_free runs in destroy */
    void (*profile_free)(cuda_backend *);
};

static inline cuda_backend *cuda_of(ls_backend *be) {
    return (cuda_backend *)(void *)be;
}

/* Names the device to the runtime, for this host thread; LS_ERR_DEVICE. */
ls_status cuda_enter(cuda_backend *cuda, ls_err *err);

/* LS_OK, or LS_ERR_DEVICE (LS_ERR_MEMORY when memory ran out) with "cuda: `what`: ...". Clears the
 * runtime's own note of the error. */
ls_status cuda_answer(cudaError_t answer, const char *what, ls_err *err);

/* Where an entry that writes [n_rows, dim] at `of` puts its rounded copy; NULL: nobody will ask. */
uint16_t *cuda_round_beside(cuda_backend *cuda, const float *of, int32_t n_rows, int32_t dim);

/* For launchers: keeps `why` when it is the first failure. */
void cuda_keep(cuda_backend *cuda, const ls_err *why);
/* After a launch: keeps the runtime's answer. */
void cuda_launched(cuda_backend *cuda, const char *what);

/* Gives back device memory that was replaced: at once, or with the backend when launches have been
 * recorded, which may name it. */
ls_status cuda_retire(cuda_backend *cuda, void *p, ls_err *err);

/* After the stream was waited for: the kept failure, or what a kernel found, and forgets it. */
ls_status cuda_take_error(cuda_backend *cuda, ls_err *err);

/* Programmatic dependent launch (9.0 and later): LS_LAUNCH may start a kernel while the one ahead
 * still runs, and every kernel so launched calls cuda_wait_ahead in all threads, before it reads or
 * writes anything but its arguments and weights, which no launch writes. What comes behind waits
 * for it in turn, so all before it has ended too.
 * Tables      embed, the first launch of a pass, lets none begin before it has waited
 *             (cuda_wait_first): so the tables of a pass (tokens, positions, lengths, where keys
 *             lie), which no launch of the pass writes, and what older passes wrote may be read
 *             before the wait as well, from the second cache (the first may hold what was there
 *             before). */
#ifdef __CUDACC__
static __device__ __forceinline__ void cuda_let_behind(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ void cuda_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void cuda_wait_ahead(void) {
    cuda_let_behind();
    cuda_wait();
}
static __device__ __forceinline__ void cuda_wait_first(void) {
    cuda_wait();
    cuda_let_behind();
}
/* For one thread of a block: row `row` has more chunks than its scratch holds. */
static __device__ __forceinline__ void cuda_report_chunks(cuda_fault *fault, int32_t *claim,
                                                          int32_t row, int32_t length,
                                                          int32_t chunks, int32_t max_chunks) {
    if (atomicCAS(claim, 0, 1) != 0)
        return;
    fault->row = row;
    fault->length = length;
    fault->chunks = chunks;
    fault->max_chunks = max_chunks;
    __threadfence_system();
    fault->set = 1;
}
/* bf16, nearest even, as the instructions of profile mma round */
static __device__ __forceinline__ uint16_t cuda_bf16(float v) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(v));
    return (uint16_t)r;
}
/* A launch that, where `early`, may begin before the kernel ahead has ended; *attr outlives it. */
static inline cudaLaunchConfig_t cuda_launch_of(dim3 grid, unsigned threads, size_t shared,
                                                cudaStream_t stream, int early,
                                                cudaLaunchAttribute *attr) {
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = shared;
    c.stream = stream;
    c.attrs = attr;
    c.numAttrs = early ? 1 : 0;
    attr->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr->val.programmaticStreamSerializationAllowed = 1;
    return c;
}
/* Launches of the kernel may ask for so much block memory (0: none); and the split of a
 * multiprocessor's memory that all kernels of a pass have: it drains to change it, and nothing
 * begins early. */
static inline cudaError_t cuda_split(const void *kernel, int dynamic_bytes) {
    cudaError_t e = cudaSuccess;
    if (dynamic_bytes > 0)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 dynamic_bytes);
    return e != cudaSuccess
               ? e
               : cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared);
}
#define LS_LAUNCH(cuda, what, kernel, grid, threads, ...) \
    LS_LAUNCH_SHARED(cuda, what, kernel, grid, threads, 0, __VA_ARGS__)
/* with `shared` bytes of block memory */
#define LS_LAUNCH_SHARED(cuda, what, kernel, grid, threads, shared, ...)                     \
    do {                                                                                     \
        cudaLaunchAttribute early_;                                                          \
        const cudaLaunchConfig_t config_ =                                                   \
            cuda_launch_of(grid, threads, shared, (cuda)->stream, (cuda)->overlap, &early_); \
        cudaLaunchKernelEx(&config_, kernel, __VA_ARGS__); /* asked for below */             \
        cuda_launched(cuda, what);                                                           \
    } while (0)
#endif

/* What every launcher begins with: a refused or impossible launch returns. */
#define LS_CUDA_BEGIN(be, check)                                    \
    cuda_backend *cuda = cuda_of(be);                               \
    do {                                                            \
        ls_err why_;                                                \
        if ((check) != LS_OK || cuda_enter(cuda, &why_) != LS_OK) { \
            cuda_keep(cuda, &why_);                                 \
            return;                                                 \
        }                                                           \
    } while (0)

/* Members of the table. */
void ls_cuda_memory_install(cuda_backend *cuda);
ls_status ls_cuda_memory_create(cuda_backend *cuda, ls_err *err);
void ls_cuda_memory_destroy(cuda_backend *cuda);
void ls_cuda_rows_install(cuda_backend *cuda);
void ls_cuda_bodies_install(cuda_backend *cuda);
void ls_cuda_stats_install(cuda_backend *cuda);
/* The small kernels of a pass ask for the split of memory that the kernels of profile mma have: a
 * multiprocessor drains to change it, and nothing begins early. */
cudaError_t ls_cuda_rows_split(void);
cudaError_t ls_cuda_bodies_split(void); /* of cuda_bodies.cu and cuda_stats.cu */
cudaError_t ls_cuda_stats_split(void);
void ls_cuda_linear_install(cuda_backend *cuda);
void ls_cuda_read_install(cuda_backend *cuda);
/* Whether the build holds code for the device, and for which capability it was compiled. */
cudaError_t ls_cuda_bodies_probe(int *code);

/* Other profiles, where the build has them. */
ls_status ls_mma_install(cuda_backend *cuda, ls_err *err);
ls_status ls_cublas_install(cuda_backend *cuda, ls_err *err);

#endif
