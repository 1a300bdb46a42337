#include "sha256.h"

#include <openssl/evp.h>

ls_status ls_sha256_begin(ls_sha256 *h, ls_err *err) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    h->state = ctx;
    h->failed = 0;
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        h->state = NULL;
        return ls_fail(err, LS_ERR_MEMORY, "no context for SHA-256");
    }
    return LS_OK;
}

void ls_sha256_add(ls_sha256 *h, const void *data, size_t bytes) {
    if (bytes > 0 && EVP_DigestUpdate(h->state, data, bytes) != 1)
        h->failed = 1;
}

ls_status ls_sha256_end(ls_sha256 *h, char hex[LS_SHA256_HEX], ls_err *err) {
    static const char digit[] = "0123456789abcdef";
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int ok = EVP_DigestFinal_ex(h->state, raw, &n) == 1 && n == 32 && !h->failed;
    EVP_MD_CTX_free(h->state);
    h->state = NULL;
    if (!ok)
        return ls_fail(err, LS_ERR_MEMORY, "SHA-256 failed");
    for (unsigned i = 0; i < n; i++) {
        hex[2 * i] = digit[raw[i] >> 4];
        hex[2 * i + 1] = digit[raw[i] & 15];
    }
    hex[2 * n] = 0;
    return LS_OK;
}

void ls_sha256_take(ls_sha256 *h, unsigned char raw[LS_SHA256_RAW]) {
    if (EVP_DigestFinal_ex(h->state, raw, NULL) != 1 ||
        EVP_DigestInit_ex(h->state, EVP_sha256(), NULL) != 1)
        h->failed = 1;
}

void ls_sha256_drop(ls_sha256 *h) {
    EVP_MD_CTX_free(h->state);
    h->state = NULL;
}

ls_status ls_sha256_of(const void *data, size_t bytes, char hex[LS_SHA256_HEX], ls_err *err) {
    ls_sha256 h;
    LS_TRY(ls_sha256_begin(&h, err));
    ls_sha256_add(&h, data, bytes);
    return ls_sha256_end(&h, hex, err);
}
