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

typedef enum ls_dtype { LS_F32 = 0, LS_BF16 = 1, LS_F16 = 2 } ls_dtype;

LS_SHARED_FN size_t ls_dtype_bytes(ls_dtype t) {
    return t == LS_F32 ? 4 : 2;
}
static inline const char *ls_dtype_name(ls_dtype t) {
    return t == LS_F32 ? "f32" : t == LS_BF16 ? "bf16" : "f16";
}

#define LS_HEAD_DIM_MAX 256 /* head widths are even and at most this */
#define LS_CHUNK_MAX 2048   /* keys a chunk block may hold (its scores live in block memory) */
#define LS_CHUNKS_MAX 1024  /* chunks a row may have (their weights live in block memory) */
#define LS_ROWS_MAX 1024    /* rows of one pass (profiles keep scratch for as many) */
#define LS_TOP_MAX 8        /* top tokens a row's statistics can list */

#endif
