/* safetensors.h - one .safetensors file: a checked table of named tensors over a mapping.
 * Layout    8 bytes n (little endian), n bytes of JSON beginning with '{', then data.
 * Checked   n <= LS_ST_HEADER_MAX and 8 + n <= file size before anything is allocated; every dtype
 *           known; shape x size = span without overflow; spans sorted by begin start at 0, touch,
 *           and end at the end of the file, so no two tensors share a byte; keys unique;
 *           __metadata__ maps strings to strings.
 * Data      as stored, little endian, in general NOT aligned to the element size.
 * Memory    owns the mapping (open) or borrows the bytes (parse); tensors live until close.
 * Threads   read-only after open. */
#ifndef LS_SAFETENSORS_H
#define LS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define LS_ST_HEADER_MAX 100000000u
#define LS_ST_DIMS_MAX 8

typedef enum ls_st_dtype {
    LS_ST_BOOL,
    LS_ST_U8,
    LS_ST_I8,
    LS_ST_U16,
    LS_ST_I16,
    LS_ST_U32,
    LS_ST_I32,
    LS_ST_U64,
    LS_ST_I64,
    LS_ST_F16,
    LS_ST_BF16,
    LS_ST_F32,
    LS_ST_F64,
    LS_ST_C64,
    LS_ST_F8_E4M3,
    LS_ST_F8_E5M2,
    LS_ST_F8_E8M0,
    LS_ST_F8_E4M3FNUZ,
    LS_ST_F8_E5M2FNUZ,
    LS_ST_F6_E2M3,
    LS_ST_F6_E3M2,
    LS_ST_F4,
    LS_ST_N_DTYPES,
    /* blocks of a GGUF file that stay as they are (gguf_view.h): no dtypes of this format */
    LS_ST_Q8_0 = LS_ST_N_DTYPES,
    LS_ST_Q4_K,
    LS_ST_N_ALL
} ls_st_dtype;

typedef struct ls_st_tensor {
    const char *name;
    const uint8_t *data;
    size_t bytes;
    uint64_t n_elems;
    uint64_t dim[LS_ST_DIMS_MAX]; /* outermost first */
    int32_t n_dims;               /* 0: a scalar, one element */
    ls_st_dtype dtype;
} ls_st_tensor;

typedef struct ls_safetensors ls_safetensors;

#ifdef __cplusplus
extern "C" {
#endif
/* `inside` as in file.h. */
ls_status ls_safetensors_open(const char *path, const char *inside, ls_safetensors **out,
                              ls_err *err);
/* Over bytes the caller keeps; `name` is for messages. */
ls_status ls_safetensors_parse(const uint8_t *bytes, size_t n, const char *name,
                               ls_safetensors **out, ls_err *err);
void ls_safetensors_close(ls_safetensors *st);

size_t ls_safetensors_count(const ls_safetensors *st);
/* i < count, in byte order of the names. */
const ls_st_tensor *ls_safetensors_at(const ls_safetensors *st, size_t i);
const ls_st_tensor *ls_safetensors_find(const ls_safetensors *st, const char *name);
/* The mapped file (for digests). */
const uint8_t *ls_safetensors_bytes(const ls_safetensors *st, size_t *n);

const char *ls_st_dtype_name(ls_st_dtype t);
uint32_t ls_st_dtype_bits(ls_st_dtype t); /* 0 for blocks */
#ifdef __cplusplus
}
#endif

#endif
