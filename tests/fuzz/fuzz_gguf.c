/* A GGUF file: its tables, and as a model its config, weights and tokenizer. */
#include "fuzz.h"
#include "fuzz_text.h"
#include "gguf.h"
#include "gguf_config.h"
#include "gguf_tokenizer.h"
#include "gguf_view.h"

static void walk(const ls_gguf_value *v) {
    ls_gguf_value item;
    size_t at = 0;
    int64_t n = 0, i = 0;
    double x = 0;
    bool b = false;
    ls_gguf_str s;
    ls_gguf_as_int(v, &n);
    ls_gguf_as_number(v, &x);
    ls_gguf_as_bool(v, &b);
    ls_gguf_as_string(v, &s);
    for (; ls_gguf_next(v, &at, &item); i++)
        if (i < 8)
            walk(&item);
    fuzz_require(v->type != LS_GGUF_ARRAY || (uint64_t)i == v->n, "an array of another length");
}

static void as_model(const ls_gguf *g) {
    ls_err err = {0};
    ls_config c;
    ls_gguf_view view = {0};
    if (fuzz_verdict(ls_gguf_config_read(g, &c, &err), &err)) {
        fuzz_require(c.n_kv >= 1 && c.n_heads % c.n_kv == 0 && c.head_dim % 2 == 0, "heads");
        for (int widen = 0; widen < 2; widen++) {
            if (fuzz_verdict(ls_gguf_view_make(g, &c, widen, &view, &err), &err))
                for (size_t i = 0; i < view.n; i++) {
                    const ls_st_tensor *t = &view.tensor[i];
                    volatile uint8_t last = t->data[0]; /* so that the bytes are read */
                    last = t->data[t->bytes - 1];
                    (void)last;
                }
            ls_gguf_view_free(&view);
        }
    }
    const ls_tokenizer_options options = {.partial_bytes = true};
    ls_tokenizer *tok = NULL;
    if (fuzz_verdict(ls_gguf_tokenizer_open(g, &options, &tok, &err), &err) && tok)
        fuzz_text(tok, NULL, 0);
    ls_tokenizer_destroy(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    ls_gguf *g = NULL;
    ls_err err = {0};
    fuzz_mem_begin();
    if (fuzz_verdict(ls_gguf_parse(data, n, FUZZ_NAME, &g, &err), &err)) {
        for (size_t i = 0; i < ls_gguf_n_keys(g); i++)
            walk(&ls_gguf_key_at(g, i)->value);
        for (size_t i = 0; i < ls_gguf_count(g); i++) {
            const ls_gguf_tensor *t = ls_gguf_at(g, i);
            fuzz_require(t->data >= data && t->data + t->bytes <= data + n,
                         "a tensor past the end");
        }
        as_model(g);
    }
    ls_gguf_close(g);
    fuzz_mem_end(n, 200, 4 << 20);
    return 0;
}
