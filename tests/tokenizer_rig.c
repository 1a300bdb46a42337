#include "tokenizer_rig.h"

#include <stdio.h>
#include <stdlib.h>

ls_tokenizer *ls_rig_tokenizer(bool partial_bytes, const char *fmt, ...) {
    char rest[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    char *path = ls_test_path("%s", rest);
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    ls_tokenizer *tok = NULL;
    const ls_tokenizer_options o = {.partial_bytes = partial_bytes};
    ls_err err = {0};
    OK(ls_tokenizer_parse(text, n, path, &o, &tok, &err), &err);
    free(text);
    free(path);
    return tok;
}

json_t *ls_rig_json(const char *rest) {
    char *path = ls_test_path("%s", rest);
    json_t *j = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(j);
    return j;
}

void ls_expect_ids(const ls_tokenizer *tok, const char *text, size_t n_text, unsigned flags,
                   const int32_t *want, size_t n) {
    ls_ids ids = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, text, n_text, flags, &ids, NULL, &err), &err);
    for (size_t i = 0; i < n || i < ids.n; i++) {
        long is = i < ids.n ? ids.id[i] : -1, should = i < n ? want[i] : -1;
        if (is != should)
            fail_msg("\"%s\": id %zu is %ld, expected %ld (-1: none)", text, i, is, should);
    }
    ls_ids_free(&ids);
}

void ls_expect_json_ids(const ls_tokenizer *tok, const char *text, size_t n_text, unsigned flags,
                        const json_t *want) {
    size_t n = json_array_size(want);
    int32_t *id = malloc((n + 1) * sizeof *id);
    assert_non_null(id);
    for (size_t i = 0; i < n; i++)
        id[i] = (int32_t)json_integer_value(json_array_get(want, i));
    ls_expect_ids(tok, text, n_text, flags, id, n);
    free(id);
}
