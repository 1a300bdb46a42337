/* sha256.h - SHA-256 of bytes that come in pieces, as hex.
 * Errors    LS_ERR_MEMORY when the library cannot make a context; a failed ls_sha256 stays failed
 *           until end, so only begin and end need checking.
 * Memory    end releases what begin took, on every path; begin without end leaks. */
#ifndef LS_SHA256_H
#define LS_SHA256_H

#include <stddef.h>

#include "status.h"

#define LS_SHA256_HEX 65 /* 64 lowercase digits and a zero */
#define LS_SHA256_RAW 32

typedef struct ls_sha256 {
    void *state;
    int failed;
} ls_sha256;

#ifdef __cplusplus
extern "C" {
#endif
ls_status ls_sha256_begin(ls_sha256 *h, ls_err *err);
void ls_sha256_add(ls_sha256 *h, const void *data, size_t bytes);
ls_status ls_sha256_end(ls_sha256 *h, char hex[LS_SHA256_HEX], ls_err *err);
/* The digest of what was added, and begins the next: for a digest a row. */
void ls_sha256_take(ls_sha256 *h, unsigned char raw[LS_SHA256_RAW]);
/* Releases without an end; a struct of zeros is allowed. */
void ls_sha256_drop(ls_sha256 *h);
/* Begin, add, end. */
ls_status ls_sha256_of(const void *data, size_t bytes, char hex[LS_SHA256_HEX], ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
