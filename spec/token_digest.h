/* token_digest.h - SHA-256 of token ids as little-endian int32: what names a text in records. */
#ifndef LS_TOKEN_DIGEST_H
#define LS_TOKEN_DIGEST_H

#include <stdint.h>

#include "sha256.h"

ls_status ls_token_digest(const int32_t *token, int32_t n, char hex[LS_SHA256_HEX], ls_err *err);

#endif
