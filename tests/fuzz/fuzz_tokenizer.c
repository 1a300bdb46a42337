/* tokenizer.json; behind a zero byte, a text to encode with it. */
#include <string.h>

#include "fuzz.h"
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    const size_t first = zero ? (size_t)(zero - data) : n;
    const ls_tokenizer_options options = {.partial_bytes = true};
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    fuzz_mem_begin();
    if (fuzz_verdict(ls_tokenizer_parse((const char *)data, first, FUZZ_NAME, &options, &tok, &err),
                     &err))
        fuzz_text(tok, zero ? (const char *)zero + 1 : NULL, zero ? n - first - 1 : 0);
    ls_tokenizer_destroy(tok);
    fuzz_mem_end(n, 200, 4 << 20); /* the table of ids may have 65536 gaps */
    return 0;
}
