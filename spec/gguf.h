/* gguf.h - one .gguf file: checked tables of metadata and tensors over a mapping.
 * Layout    little endian: "GGUF", u32 version, u64 tensors, u64 keys, the keys with their values,
 *           the tensor table, padding to the alignment, data. Versions 2 and 3 (the same layout).
 * Checked   counts against the bytes that are left before anything is allocated; every length and
 *           value inside the file; types known; true and false are 1 and 0; keys and names not
 *           empty, without a zero byte, unique; general.alignment a power of two; 1 to 4
 *           dimensions; shape x size without overflow; rows of whole blocks; spans aligned, inside
 *           the file, disjoint.
 * Values    as stored and not decoded: strings and arrays point into the file, in general NOT
 *           aligned. Strings are bytes, not zero-terminated.
 * Data      as stored, aligned to general.alignment (32 unless the file says otherwise) from the
 *           start of a page.
 * Memory    owns the mapping (open) or borrows the bytes (parse); the tables take at most four
 *           times the size of the file.
 * Errors    LS_ERR_INPUT naming the file, the key or tensor, and how to mend; LS_ERR_IO.
 * Threads   read-only after open.
 * Source    the format's description, docs/gguf.md of ggml. */
#ifndef LS_GGUF_H
#define LS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define LS_GGUF_DIMS_MAX 4
#define LS_GGUF_DEPTH_MAX 8 /* arrays in arrays */

/* The numbers are those of the file. */
typedef enum ls_gguf_type {
    LS_GGUF_U8 = 0,
    LS_GGUF_I8,
    LS_GGUF_U16,
    LS_GGUF_I16,
    LS_GGUF_U32,
    LS_GGUF_I32,
    LS_GGUF_F32,
    LS_GGUF_BOOL,
    LS_GGUF_STRING,
    LS_GGUF_ARRAY,
    LS_GGUF_U64,
    LS_GGUF_I64,
    LS_GGUF_F64,
    LS_GGUF_N_TYPES
} ls_gguf_type;

/* Number types of tensors, by the number in the file; those this program computes with. Others are
 * known to the table by name and size alone. */
enum {
    LS_GGML_F32 = 0,
    LS_GGML_F16 = 1,
    LS_GGML_Q4_0 = 2,
    LS_GGML_Q4_1 = 3,
    LS_GGML_Q5_0 = 6,
    LS_GGML_Q5_1 = 7,
    LS_GGML_Q8_0 = 8,
    LS_GGML_Q2_K = 10,
    LS_GGML_Q3_K = 11,
    LS_GGML_Q4_K = 12,
    LS_GGML_Q5_K = 13,
    LS_GGML_Q6_K = 14,
    LS_GGML_BF16 = 30,
    LS_GGML_N_TYPES = 42
};

typedef struct ls_gguf_str { /* not zero-terminated */
    const char *s;
    size_t n;
} ls_gguf_str;

typedef struct ls_gguf_value {
    ls_gguf_type type;
    ls_gguf_type elem; /* of an array */
    uint64_t n;        /* bytes of a string, elements of an array, else 1 */
    const uint8_t *at; /* the string's or number's bytes; an array's first element */
    size_t bytes;      /* from `at` on */
} ls_gguf_value;

typedef struct ls_gguf_key {
    ls_gguf_str key;
    ls_gguf_value value;
} ls_gguf_key;

typedef struct ls_gguf_tensor {
    ls_gguf_str name;
    const uint8_t *data;
    size_t bytes;
    uint64_t n_elems;
    uint64_t dim[LS_GGUF_DIMS_MAX]; /* as in the file: INNERMOST first; 1 past n_dims */
    int32_t n_dims;
    uint32_t type; /* LS_GGML_ */
} ls_gguf_tensor;

typedef struct ls_gguf ls_gguf;

#ifdef __cplusplus
extern "C" {
#endif
ls_status ls_gguf_open(const char *path, ls_gguf **out, ls_err *err);
/* Over bytes the caller keeps; `name` is for messages. */
ls_status ls_gguf_parse(const uint8_t *bytes, size_t n, const char *name, ls_gguf **out,
                        ls_err *err);
void ls_gguf_close(ls_gguf *g);
/* Does the file begin as GGUF files do? False also for what cannot be read. */
bool ls_gguf_is(const char *path);

/* The path, as given. */
const char *ls_gguf_name(const ls_gguf *g);
uint32_t ls_gguf_version(const ls_gguf *g);
/* The mapped file (for digests). */
const uint8_t *ls_gguf_bytes(const ls_gguf *g, size_t *n);

/* Keys and tensors: i < count, in byte order of their names. */
size_t ls_gguf_n_keys(const ls_gguf *g);
const ls_gguf_key *ls_gguf_key_at(const ls_gguf *g, size_t i);
const ls_gguf_value *ls_gguf_find(const ls_gguf *g, const char *key); /* NULL: none */
size_t ls_gguf_count(const ls_gguf *g);
const ls_gguf_tensor *ls_gguf_at(const ls_gguf *g, size_t i);
const ls_gguf_tensor *ls_gguf_tensor_find(const ls_gguf *g, const char *name);

/* "FILE: what: reason", LS_ERR_INPUT; what: a key or a tensor's name. */
ls_status ls_gguf_fail(const ls_gguf *g, ls_gguf_str what, ls_err *err, const char *fmt, ...)
    LS_PRINTF(4, 5);

/* The number in a value of any integer type; false when it is none or does not fit. */
bool ls_gguf_as_int(const ls_gguf_value *v, int64_t *out);
/* Of any integer or floating type. */
bool ls_gguf_as_number(const ls_gguf_value *v, double *out);
bool ls_gguf_as_bool(const ls_gguf_value *v, bool *out);
bool ls_gguf_as_string(const ls_gguf_value *v, ls_gguf_str *out);
/* The array's next element: *cursor begins at 0 and moves on; false past the last. */
bool ls_gguf_next(const ls_gguf_value *array, size_t *cursor, ls_gguf_value *item);

const char *ls_gguf_type_name(ls_gguf_type t); /* of values: "u32" */
/* NULL for a number the format does not define. *block: elements of a block, *bytes: its bytes;
 * either may be NULL. */
const char *ls_ggml_type(uint32_t t, uint32_t *block, uint32_t *bytes);

bool ls_gguf_str_is(ls_gguf_str s, const char *text);
#ifdef __cplusplus
}
#endif

#endif
