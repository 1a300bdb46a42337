#include "token_digest.h"

ls_status ls_token_digest(const int32_t *token, int32_t n, char hex[LS_SHA256_HEX], ls_err *err) {
    ls_sha256 h;
    LS_TRY(ls_sha256_begin(&h, err));
    for (int32_t i = 0; i < n; i++) {
        const uint32_t t = (uint32_t)token[i];
        const unsigned char b[4] = {(unsigned char)t, (unsigned char)(t >> 8),
                                    (unsigned char)(t >> 16), (unsigned char)(t >> 24)};
        ls_sha256_add(&h, b, sizeof b);
    }
    return ls_sha256_end(&h, hex, err);
}
