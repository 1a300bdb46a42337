/* json.h - strict JSON through jansson, with messages that say file, place and reason.
 * Accepts   RFC 8259 in UTF-8, a leading byte-order mark allowed and skipped.
 * Refuses   duplicate keys, NaN and Infinity, numbers past double or 64 bits, bad UTF-8, lone
 *           surrogates, a zero byte (raw or \u0000), UTF-16 and UTF-32 (by name), more than
 *           LS_JSON_DEPTH levels (found by a scan of the text before anything recurses, so it holds
 *           on a 64 KiB stack).
 * Messages  "FILE: line 3, column 7: reason" for the text; "FILE: model.vocab: reason" for values.
 * Memory    an ls_json owns the tree and the name; cursors and strings borrow from it.
 * Threads   a tree may be read from many threads. */
#ifndef LS_JSON_H
#define LS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define LS_JSON_DEPTH 64

typedef struct ls_json {
    json_t *root;
    char *name; /* of the file, for messages */
} ls_json;

/* A value and how it was reached. Lives on the stack; `up` has to outlive it. */
typedef struct ls_json_at {
    const json_t *value; /* NULL: absent */
    const struct ls_json_at *up;
    const char *key;  /* in an object */
    size_t index;     /* in an array, when key is NULL */
    const char *file; /* at the root */
} ls_json_at;

#ifdef __cplusplus
extern "C" {
#endif

ls_status ls_json_parse(const char *text, size_t n, const char *name, ls_json *out, ls_err *err);
ls_status ls_json_read(const char *path, const char *inside, size_t max_bytes, ls_json *out,
                       ls_err *err);
/* NULL and a zeroed ls_json are allowed; leaves it zeroed. */
void ls_json_free(ls_json *doc);

ls_json_at ls_json_root(const ls_json *doc);
ls_json_at ls_json_key(const ls_json_at *object, const char *key);
ls_json_at ls_json_item(const ls_json_at *array, size_t index);
/* Absent or null. */
bool ls_json_none(const ls_json_at *at);

/* Writes the way to the value, as "model.vocab" or "added_tokens[3]"; "" at the root. */
void ls_json_path(const ls_json_at *at, char *dst, size_t cap);
/* "FILE: path: reason", LS_ERR_INPUT. */
ls_status ls_json_fail(const ls_json_at *at, ls_err *err, const char *fmt, ...) LS_PRINTF(3, 4);

/* Each refuses another type, naming what it found. */
ls_status ls_json_as_object(const ls_json_at *at, ls_err *err);
ls_status ls_json_as_array(const ls_json_at *at, size_t *n, ls_err *err);
ls_status ls_json_as_int(const ls_json_at *at, int64_t min, int64_t max, int64_t *out, ls_err *err);
ls_status ls_json_as_number(const ls_json_at *at, double min, double max, double *out, ls_err *err);
ls_status ls_json_as_bool(const ls_json_at *at, bool *out, ls_err *err);
/* Borrowed, zero-terminated, without zero bytes inside. */
ls_status ls_json_as_string(const ls_json_at *at, const char **out, size_t *n, ls_err *err);

/* The member `key`; _or: `fallback` when it is absent or null. */
ls_status ls_json_int(const ls_json_at *object, const char *key, int64_t min, int64_t max,
                      int64_t *out, ls_err *err);
ls_status ls_json_int_or(const ls_json_at *object, const char *key, int64_t min, int64_t max,
                         int64_t fallback, int64_t *out, ls_err *err);
ls_status ls_json_number_or(const ls_json_at *object, const char *key, double min, double max,
                            double fallback, double *out, ls_err *err);
ls_status ls_json_bool_or(const ls_json_at *object, const char *key, bool fallback, bool *out,
                          ls_err *err);
ls_status ls_json_string(const ls_json_at *object, const char *key, const char **out, ls_err *err);
ls_status ls_json_string_or(const ls_json_at *object, const char *key, const char *fallback,
                            const char **out, ls_err *err);

/* Refuses the first member whose key is not among the n names. */
ls_status ls_json_only(const ls_json_at *object, const char *const *names, size_t n, ls_err *err);

#ifdef __cplusplus
}
#endif

#endif
