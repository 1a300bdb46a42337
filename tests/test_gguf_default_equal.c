/* The pre-tokenizer `default` of a GGUF file, which no tokenizer.json has: llama.cpp's own ids,
 * over the texts of the golden ids (fixtures/tokenizers/llamacpp.py). */
#include "tokenizer_golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_rig.h"
#include "gguf_tokenizer.h"

#define KEY(name) "tokenizer.ggml." name

/* The vocabulary and merges of gpt2.json, without added tokens, pre-tokenized as `pre` says. */
static ls_tokenizer *opened(const char *pre) {
    json_t *doc = ls_rig_json("fixtures/tokenizers/gpt2.json");
    const json_t *model = json_object_get(doc, "model"), *merges = json_object_get(model, "merges");
    json_t *vocab = json_object_get(model, "vocab"), *value;
    const size_t n = json_object_size(vocab);
    const char **token = calloc(n, sizeof *token), *key;
    assert_non_null(token);
    json_object_foreach (vocab, key, value) {
        const size_t id = (size_t)json_integer_value(value);
        assert_true(id < n);
        token[id] = key;
    }
    ls_gguf_made m = {0};
    gguf_bytes b = {0};
    size_t i;
    gguf_key_str(&m, KEY("model"), "gpt2");
    gguf_key_str(&m, KEY("pre"), pre);
    for (i = 0; i < n; i++)
        gguf_put_str(&b, token[i]);
    gguf_key_array(&m, KEY("tokens"), MADE_STRING, n, b);
    b = (gguf_bytes){0};
    for (i = 0; i < n; i++)
        gguf_put_u(&b, 1, 4);
    gguf_key_array(&m, KEY("token_type"), MADE_I32, n, b);
    b = (gguf_bytes){0};
    json_array_foreach (merges, i, value)
        gguf_put_str(&b, json_string_value(value));
    gguf_key_array(&m, KEY("merges"), MADE_STRING, json_array_size(merges), b);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(gguf_open_tokenizer(&m, &tok, &err), &err);
    assert_non_null(tok);
    free(token);
    json_decref(doc);
    return tok;
}

static void as_llama_cpp(void **state) {
    (void)state;
    ls_tokenizer *tok = opened("default"), *other = opened("gpt-2");
    const size_t n = ls_golden_expect(tok, "gpt2-llamacpp", LS_ENCODE_NO_SPECIAL, false);
    assert_true(n == ls_golden.n);
    /* negative control: another pre-tokenizer gives other ids */
    size_t n_other = 0;
    for (size_t i = 0; i < n; i++) {
        const ls_golden_text *x = &ls_golden.text[i];
        ls_ids a = {0}, b = {0};
        ls_err err = {0};
        OK(ls_tokenizer_encode(tok, x->s, x->n, 0, &a, NULL, &err), &err);
        OK(ls_tokenizer_encode(other, x->s, x->n, 0, &b, NULL, &err), &err);
        n_other += a.n != b.n || (a.n && memcmp(a.id, b.id, a.n * sizeof *a.id) != 0);
        ls_ids_free(&a);
        ls_ids_free(&b);
    }
    print_message("%zu texts as llama.cpp gives them, %zu otherwise by gpt-2\n", n, n_other);
    assert_true(n_other > 20);
    ls_tokenizer_destroy(tok);
    ls_tokenizer_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_llama_cpp)};
    return cmocka_run_group_tests(tests, ls_golden_begin, ls_golden_end);
}
