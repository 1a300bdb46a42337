/* gguf_rig.h - GGUF files made up byte by byte, right or wrong as a test wants them. Shares no code
 * with the reader.
 * Memory      a ls_gguf_made grows as it is filled; gguf_free releases it.
 * Errors      abort the test. */
#ifndef LS_TEST_GGUF_RIG_H
#define LS_TEST_GGUF_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer.h"

typedef struct gguf_bytes {
    uint8_t *p;
    size_t n, cap;
} gguf_bytes;

typedef struct ls_gguf_made {
    gguf_bytes keys, infos, data;
    uint64_t n_keys, n_tensors;
    uint32_t align; /* 0: 32 */
} ls_gguf_made;

/* Types of values, as the format numbers them. */
enum { MADE_U32 = 4, MADE_I32 = 5, MADE_F32 = 6, MADE_BOOL = 7, MADE_STRING = 8, MADE_ARRAY = 9 };

void gguf_put(gguf_bytes *b, const void *data, size_t n);
void gguf_put_u(gguf_bytes *b, uint64_t v, int n_bytes); /* little endian */
void gguf_put_str(gguf_bytes *b, const char *s);

/* A key whose value is these bytes. */
void gguf_key(ls_gguf_made *m, const char *key, uint32_t type, const void *value, size_t n);
void gguf_key_u32(ls_gguf_made *m, const char *key, uint32_t v);
void gguf_key_f32(ls_gguf_made *m, const char *key, float v);
void gguf_key_str(ls_gguf_made *m, const char *key, const char *v);
/* An array of n items of a type, which are freed. */
void gguf_key_array(ls_gguf_made *m, const char *key, uint32_t elem, size_t n, gguf_bytes items);
/* A tensor whose entry says exactly this. */
void gguf_info(ls_gguf_made *m, const char *name, uint32_t n_dims, const uint64_t *dim,
               uint32_t type, uint64_t offset);
/* The same with data behind all data so far; dim: innermost first. */
void gguf_tensor(ls_gguf_made *m, const char *name, uint32_t n_dims, const uint64_t *dim,
                 uint32_t type, const void *data, size_t n);
/* The file; the parts stay as they are. */
gguf_bytes gguf_file(const ls_gguf_made *m);
void gguf_free(ls_gguf_made *m);
/* The tokenizer of the file; what the library says of it. The parts are freed. */
ls_status gguf_open_tokenizer(ls_gguf_made *m, ls_tokenizer **out, ls_err *err);

/* A llama of one layer with F32 tensors: width 4, feed-forward 6, 2 heads over 1 of 4, 3 tokens;
 * element j of tensor i of its list is 100 i + j.
 * Keys and tensors whose name is `without` are left out (NULL: none); output.weight only with
 * `head`. */
void gguf_llama(ls_gguf_made *m, const char *without, int head);

#endif
