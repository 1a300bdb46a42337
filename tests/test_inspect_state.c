/* What inspect says of folders, alone and as pairs. */
#define _XOPEN_SOURCE 700
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "make_model.h"

static char *say(const char *dir, const char *dir2) {
    char *text = NULL;
    size_t n = 0;
    ls_err err = {0};
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    OK(ls_inspect_print(f, dir, dir2, &err), &err);
    fclose(f);
    return text;
}

static void expect(const char *text, const char *needle) {
    if (!strstr(text, needle))
        fail_msg("\"%s\" is not in:\n%s", needle, text);
}

static void test_one(void **state) {
    (void)state;
    char *dir = ls_test_path("cases/models/rand_head_dim_12"), *text = say(dir, NULL);
    expect(text, "2 layers, width 32, feed-forward 48, 4 heads over 2 of 12\n");
    expect(text, "256 positions");
    expect(text, "its own\n");
    expect(text, "end ids      257\n");
    expect(text, " BF16 in 1 file\n");
    expect(text, "none: the folder has no tokenizer.json");
    expect(text,
           "cache        384 B a token in f32, 98.3 KB for the whole context; half in bf16\n");
    free(text);
    free(dir);
    dir = ls_test_path("cases/models/table_target");
    text = say(dir, NULL);
    expect(text, "16 tokens, 0 merges, ids below 16 of 16 rows");
    expect(text, "no token for the bytes 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F and ");
    expect(
        text,
        "digest       sha256 512e7e97dd6030318af3d827270e41762d2b658659a7b1adae4c292e6896d643\n");
    free(text);
    free(dir);
}

static void test_families(void **state) {
    (void)state;
    static const struct {
        const char *name, *family, *context;
    } all[] = {
        {"llama3", "family       llama\n", "rope theta 10000 (llama3, factor 8), norm eps 1e-05\n"},
        {"llama_linear", "family       llama\n", "rope theta 10000 (linear, factor 4), norm eps"},
        {"mistral", "family       mistral\n", "rope theta 1e+06, norm eps"},
        {"qwen2", "family       qwen2, biases of q, k and v\n", "rope theta 1e+06, norm eps"},
        {"qwen3", "family       qwen3, normed query and key heads\n", "heads over 2 of 24"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char at[96];
        snprintf(at, sizeof at, "fixtures/families/%s", all[i].name);
        char *dir = ls_test_path(at), *text = say(dir, NULL);
        expect(text, all[i].family);
        expect(text, all[i].context);
        free(text);
        free(dir);
    }
}

static void test_gguf(void **state) {
    (void)state;
    char *path = ls_test_path("fixtures/gguf/tiny-q8_0.gguf"), *text = say(path, NULL);
    expect(text, "file         GGUF version 3, 17.9 KB");
    free(text);
    free(path);
}

static void test_pairs(void **state) {
    (void)state;
    ls_test_shape shape = ls_test_shape_default();
    char *a = ls_test_model_make(&shape);
    shape.n_vocab += 22;
    shape.n_pos = 64;
    shape.tied = true;
    shape.dtype = LS_BF16;
    char *b = ls_test_model_make(&shape);
    char *text = say(a, b);
    expect(text, "the embedding (tied)");
    expect(text, "BF16");
    expect(text, "begin id     264 \"<s>\"");
    expect(text, "yes: the same 266 tokens; the draft has 0.");
    expect(text, " of the target's parameters; the draft stops at position 64");
    assert_null(strstr(text, "no token for")); /* it has all 256 */
    free(text);
    char *other = ls_test_path("cases/models/rand_base");
    text = say(a, other);
    expect(text, "pair         no: ");
    expect(text, "id 256 is");
    free(text);
    free(other);
    ls_test_model_remove(a);
    ls_test_model_remove(b);
}

static void test_bad(void **state) {
    (void)state;
    ls_err err = {0};
    char *dir = ls_test_path("cases/models/rand_tied_extra_head");
    assert_int_equal(ls_inspect_print(stdout, dir, NULL, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "lm_head.weight", NULL);
    assert_int_equal(ls_inspect_print(stdout, "/no/such", NULL, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "/no/such", NULL);
    free(dir);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_families),
                                     cmocka_unit_test(test_gguf), cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(all, begin, NULL);
}
