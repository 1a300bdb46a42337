/* Drafts of another size: models whose vocabularies agree and are padded differently make a pair,
 * and decode to the bits of plain decode; padding is never proposed, never emitted. Other
 * vocabularies are refused with the first token that differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

static const int32_t prompt[] = {84, 104, 101, 32, 109, 111, 111, 110, 32, 119, 97, 115};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 40 };

static char *make(int32_t n_vocab, bool small, uint64_t seed) {
    ls_test_shape s = ls_test_shape_default();
    s.no_eos = true;
    s.n_vocab = n_vocab;
    s.seed = seed;
    if (small)
        s.n_layers = 1, s.dim = 64, s.ffn = 96, s.n_heads = 2, s.n_kv = 1, s.head_dim = 32;
    return ls_test_model_make(&s);
}

static void test_padding(void **state) {
    (void)state;
    static const int32_t more[][2] = {{0, 70}, {70, 0}, {6, 300}, {58, 58}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char *dir[2] = {make(LS_TEST_TOKENS + more[i][0], false, 1),
                        make(LS_TEST_TOKENS + more[i][1], true, 2)};
        ls_rig r[2];
        ls_err err;
        int32_t n = 0;
        for (int k = 0; k < 2; k++)
            ls_rig_open(&r[k], dir[k], (ls_cpu_options){2, LS_SIMD_AUTO},
                        (ls_engine_options){.max_seqs = 3});
        OK(ls_model_pair(r[0].model, r[1].model, &n, &err), &err);
        assert_int_equal(n, LS_TEST_TOKENS);
        assert_int_equal(ls_engine_opts(r[0].engine)->n_vocab, n);
        assert_int_equal(ls_engine_opts(r[1].engine)->n_vocab, n);
        ls_drafter *d;
        OK(ls_drafter_model(r[1].engine, &d, &err), &err);
        for (int hot = 0; hot < 2; hot++) {
            ls_gen g = {.target = r[0].engine,
                        .prompt = prompt,
                        .n_prompt = N_PROMPT,
                        .max_new = N_NEW,
                        .warp = {.temperature = hot ? 1.2f : 0.0f, .top_p = 1},
                        .seed = 7};
            ls_plain *plain;
            OK(ls_plain_run(&g, r[0].engine, &plain, &err), &err);
            for (int32_t t = 0; t < plain->n_token; t++)
                assert_in_range(plain->token[t], 0, LS_TEST_TOKENS - 1);
            g.drafter = d;
            OK(ls_policy_fixed(4, &g.policy, &err), &err);
            assert_int_equal(plain->n_token, N_NEW);
            ls_assert_plain(&g, plain, r[0].engine, "a padded pair");
            ls_policy_destroy(g.policy);
            ls_plain_destroy(plain);
        }
        ls_drafter_destroy(d);
        for (int k = 0; k < 2; k++) {
            ls_rig_close(&r[k]);
            ls_test_model_remove(dir[k]);
        }
    }
}

/* A token of the draft's vocabulary renamed. */
static void rename_token(const char *dir, const char *from, const char *to) {
    char path[600];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    char *text = ls_read_all(path, &n);
    FILE *f = fopen(path, "wb");
    int count = 0;
    assert_non_null(f);
    char *p = text;
    for (char *at; (at = strstr(p, from)); p = at + strlen(from), count++) {
        fwrite(p, 1, (size_t)(at - p), f);
        fputs(to, f);
    }
    fputs(p, f);
    assert_int_equal(fclose(f), 0);
    assert_true(count > 0);
    free(text);
}

static ls_status pair(const char *target, const char *draft, bool no_tokenizer, int32_t *n,
                      ls_err *err) {
    ls_model *a = NULL, *b = NULL;
    const ls_model_options o = {.no_tokenizer = no_tokenizer};
    OK(ls_model_open(target, o, &a, err), err);
    OK(ls_model_open(draft, o, &b, err), err);
    const ls_status s = ls_model_pair(a, b, n, err);
    ls_model_close(a);
    ls_model_close(b);
    return s;
}

static void test_refused(void **state) {
    (void)state;
    ls_err err = {0};
    int32_t n = -1;
    char *a = make(LS_TEST_TOKENS, false, 1), *b = make(LS_TEST_TOKENS + 4, true, 2);
    /* without tokenizers only equal sizes say anything */
    assert_int_equal(pair(a, b, true, &n, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "vocabularies of 270 and 266"));
    assert_non_null(strstr(err.msg, "add tokenizer.json"));
    OK(pair(a, a, true, &n, &err), &err);
    assert_int_equal(n, LS_TEST_TOKENS);
    OK(pair(a, b, false, &n, &err), &err);
    /* the last token of all */
    rename_token(b, "</s>", "<end>");
    assert_int_equal(pair(a, b, false, &n, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "cannot draft for"));
    assert_non_null(strstr(err.msg, "id 265"));
    assert_non_null(strstr(err.msg, "</s>"));
    assert_non_null(strstr(err.msg, "<end>"));
    /* a token more than the other knows */
    rename_token(b, "<end>", "</s>");
    OK(pair(a, b, false, &n, &err), &err);
    rename_token(b, "\"added_tokens\":[",
                 "\"added_tokens\":[{\"id\":266,\"content\":\"<more>\",\"single_word\":false,"
                 "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},");
    assert_int_equal(pair(a, b, false, &n, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "id 266"));
    assert_non_null(strstr(err.msg, "<more>"));
    ls_test_model_remove(a);
    ls_test_model_remove(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("pair_equal", tests, NULL, NULL);
}
