/* shape.h - the letters used in every shape comment, and the storage types.
 *   R rows of a pass      D model width        H query heads     G key/value heads
 *   E head width          T keys of a row      F feed-forward    V vocabulary
 * Arrays are row-major, innermost dimension last: [R, H, E]. */
#ifndef LS_SHAPE_H
#define LS_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* A function both compilers share: host and device code alike. */
#ifdef __CUDACC__
#define LS_SHARED_FN static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define LS_SHARED_FN static inline __attribute__((unused))
#else
#define LS_SHARED_FN static inline
#endif

/* Q8_0 and Q4_K are packed: blocks of elements that share their scales (packed.h). Matrices alone
 * are stored so, whole blocks a row. */
typedef enum ls_dtype { LS_F32 = 0, LS_BF16 = 1, LS_F16 = 2, LS_Q8_0 = 3, LS_Q4_K = 4 } ls_dtype;

/* Elements of a block; 1: each element lies alone. */
LS_SHARED_FN size_t ls_dtype_block(ls_dtype t) {
    return t == LS_Q8_0 ? 32 : t == LS_Q4_K ? 256 : 1;
}
/* Bytes of a block. */
LS_SHARED_FN size_t ls_dtype_bytes(ls_dtype t) {
    return t == LS_F32 ? 4 : t == LS_Q8_0 ? 34 : t == LS_Q4_K ? 144 : 2;
}
/* Bytes of n elements, a multiple of the block. */
LS_SHARED_FN size_t ls_dtype_span(ls_dtype t, size_t n) {
    return n / ls_dtype_block(t) * ls_dtype_bytes(t);
}
static inline const char *ls_dtype_name(ls_dtype t) {
    return t == LS_F32    ? "f32"
           : t == LS_BF16 ? "bf16"
           : t == LS_F16  ? "f16"
           : t == LS_Q8_0 ? "q8_0"
                          : "q4_k";
}

#define LS_HEAD_DIM_MAX 256 /* head widths are even and at most this */
#define LS_CHUNK_MAX 2048   /* keys a chunk block may hold (its scores live in block memory) */
#define LS_CHUNKS_MAX 1024  /* chunks a row may have (their weights live in block memory) */
#define LS_ROWS_MAX 1024    /* rows of one pass (profiles keep scratch for as many) */
#define LS_TOP_MAX 8        /* top tokens a row's statistics can list */

#endif
