#include "fuzz_text.h"

#include <string.h>

#include "fuzz.h"

static const char all_sorts[] =
    "Hello, world's 123 456789  \t\r\n\n  x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa <s></s><unk> "
    "<|im_start|>"
    "caf\xc3\xa9 e\xcc\x81 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb "
    "\xef\xac\x81 \xc2\xa0\xe3\x80\x80\xff\xfe\xed\xa0\x80 don't _we_ ((()))";

void fuzz_text(const ls_tokenizer *tok, const char *text, size_t n) {
    ls_ids ids = {0};
    ls_text whole = {0}, streamed = {0};
    ls_err err = {0};
    char hex[LS_SHA256_HEX];
    if (!text) {
        text = all_sorts;
        n = sizeof all_sorts - 1;
    }
    for (unsigned flags = 0; flags < 4; flags++) {
        ls_encode_info info;
        ids.n = 0;
        if (!fuzz_verdict(ls_tokenizer_encode(tok, text, n, flags, &ids, &info, &err), &err))
            continue;
        for (size_t i = 0; i < ids.n; i++) {
            size_t len = 0;
            fuzz_require(ids.id[i] >= 0 && ids.id[i] < ls_tokenizer_size(tok),
                         "an id past the size");
            fuzz_require(ls_tokenizer_bytes(tok, ids.id[i], &len) != NULL, "an id without a token");
        }
        whole.n = streamed.n = 0;
        fuzz_require(ls_tokenizer_decode(tok, ids.id, ids.n, false, &whole, &err) == LS_OK,
                     "what was encoded does not decode");
        ls_stream s = ls_stream_begin(tok, false);
        for (size_t i = 0; i < ids.n; i++)
            fuzz_require(ls_stream_push(&s, ids.id[i], &streamed, &err) == LS_OK, "a stream ends");
        fuzz_require(ls_stream_flush(&s, &streamed, &err) == LS_OK, "a stream ends");
        fuzz_require(whole.n == streamed.n &&
                         (whole.n == 0 || !memcmp(whole.s, streamed.s, whole.n)),
                     "a stream says something else than the whole");
    }
    fuzz_require(ls_tokenizer_digest(tok, hex, &err) == LS_OK, "no digest");
    fuzz_require(ls_tokenizer_same(tok, tok, &err) == LS_OK, "a vocabulary is not its own");
    ls_ids_free(&ids);
    ls_text_free(&whole);
    ls_text_free(&streamed);
}
