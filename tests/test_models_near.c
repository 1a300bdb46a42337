/* A real model against the reference implementations: test_models_near NAME, with what
 * tests/fixtures/make_models.py says of the file that scripts/fetch_models.sh gets. Prompts are cut
 * into the same ids, logits are within the bound of float32, greedy tokens are the same. Skipped
 * (exit 77) where the file is not there, or is of a family or tokenizer that is not built. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "rig.h"
#include "sha256.h"

enum { ROWS = 96 };

static json_t *expected;
static ls_rig rig;
static char file[1024];

static int32_t *ids_of(const json_t *list, size_t *n) {
    *n = json_array_size(list);
    int32_t *ids = malloc(*n * sizeof *ids);
    assert_true(ids && *n > 0);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static void test_digest(void **state) {
    (void)state;
    ls_file f;
    ls_err err;
    char hex[LS_SHA256_HEX];
    OK(ls_file_open(file, NULL, &f, &err), &err);
    OK(ls_sha256_of(f.data, f.bytes, hex, &err), &err);
    ls_file_close(&f);
    assert_string_equal(hex, json_string_value(json_object_get(expected, "sha256")));
}

static void test_tokens(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach (json_object_get(expected, "cases"), i, one) {
        const char *text = json_string_value(json_object_get(one, "text"));
        size_t n = 0;
        int32_t *want = ids_of(json_object_get(one, "tokens"), &n);
        ls_ids got = {0};
        ls_text back = {0};
        ls_err err;
        const ls_tokenizer *tok = rig.model->tokenizer;
        OK(ls_tokenizer_encode(tok, text, strlen(text), LS_ENCODE_TEMPLATE, &got, NULL, &err),
           &err);
        assert_int_equal(got.n, n);
        assert_memory_equal(got.id, want, n * sizeof *want);
        const size_t bos = n > 0 && got.id[0] == ls_tokenizer_bos(tok); /* of the template */
        OK(ls_tokenizer_decode(tok, got.id + bos, n - bos, false, &back, &err), &err);
        assert_string_equal(back.s, text);
        ls_ids_free(&got);
        ls_text_free(&back);
        free(want);
    }
}

/* The largest |logit - reference| over the rows of one case, the whole text as one pass. */
static double largest_error(const json_t *one, const int32_t *prompt, size_t n, const int32_t *next,
                            size_t n_next) {
    ls_err err;
    ls_row row[ROWS];
    ls_kv *kv = ls_engine_kv(rig.engine);
    const int32_t total = (int32_t)(n + n_next) - 1;
    float *got = malloc((size_t)ls_engine_opts(rig.engine)->n_vocab * sizeof *got);
    int32_t seq;
    double worst = 0;
    assert_non_null(got);
    assert_in_range(total, 1, ROWS);
    OK(ls_kv_open(kv, &seq, &err), &err);
    for (int32_t p = 0; p < total; p++) {
        const size_t at = (size_t)p;
        row[p] = ls_row_chain(seq, at < n ? prompt[at] : next[at - n], p, at + 1 >= n);
    }
    OK(ls_pass(rig.engine, row, total, &err), &err);
    for (size_t k = 0; k < n_next; k++) {
        const json_t *want = json_array_get(json_object_get(one, "rows"), k);
        assert_true(json_array_size(want) >= 16);
        OK(ls_pass_logits(rig.engine, (int32_t)k, got, &err), &err);
        for (size_t i = 0; i + 1 < json_array_size(want); i += 2) {
            const json_int_t id = json_integer_value(json_array_get(want, i));
            const double off =
                fabs((double)got[id] - json_number_value(json_array_get(want, i + 1)));
            worst = off > worst || isnan(off) ? off : worst;
        }
    }
    ls_kv_close(kv, seq);
    free(got);
    return worst;
}

static void test_logits(void **state) {
    (void)state;
    const double bound = json_number_value(json_object_get(expected, "bound"));
    size_t i;
    json_t *one;
    assert_true(bound > 0 && bound < 0.1);
    json_array_foreach (json_object_get(expected, "cases"), i, one) {
        size_t n = 0, n_next = 0;
        int32_t *prompt = ids_of(json_object_get(one, "tokens"), &n);
        int32_t *next = ids_of(json_object_get(one, "greedy"), &n_next);
        const double worst = largest_error(one, prompt, n, next, n_next);
        print_message("prompt %zu: largest error %.2e, bound %.2e\n", i, worst, bound);
        if (!(worst <= bound))
            fail_msg("prompt %zu: a logit is off by %g, the bound is %g", i, worst, bound);
        /* negative control: another token in the prompt is far outside */
        prompt[n / 2] = prompt[n / 2] == next[0] ? prompt[0] : next[0];
        assert_true(i > 0 || largest_error(one, prompt, n, next, n_next) > 4 * bound);
        free(prompt);
        free(next);
    }
}

static void test_greedy(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach (json_object_get(expected, "cases"), i, one) {
        size_t n = 0, n_next = 0;
        int32_t *prompt = ids_of(json_object_get(one, "tokens"), &n);
        int32_t *next = ids_of(json_object_get(one, "greedy"), &n_next);
        ls_greedy g;
        ls_greedy_run(&rig, prompt, (int32_t)n, (int32_t)n_next, &g);
        assert_memory_equal(g.token + n, next, n_next * sizeof *next);
        ls_greedy_free(&g);
        free(prompt);
        free(next);
    }
}

static int left_out(const char *why) {
    printf("test_models_near: skipped: %s\n", why);
    json_decref(expected);
    return 77;
}

int main(int argc, char **argv) {
    char path[1024];
    ls_err err;
    ls_model *m = NULL;
    snprintf(path, sizeof path, LS_TEST_DIR "/fixtures/models/%s.json",
             argc > 1 ? argv[1] : "smollm2");
    expected = json_load_file(path, 0, NULL);
    if (!expected) {
        fprintf(stderr, "test_models_near: cannot read %s\n", path);
        return 2;
    }
    snprintf(file, sizeof file, LS_SOURCE_DIR "/models/%s",
             json_string_value(json_object_get(expected, "file")));
    if (!ls_file_exists(file))
        return left_out("the model is not there: scripts/fetch_models.sh gets it");
    /* what is not built yet is refused by name; anything else that fails is a failure */
    if (ls_model_open(file, (ls_model_options){.partial_bytes = true}, &m, &err) != LS_OK) {
        if (strstr(err.msg, "is not a supported family"))
            return left_out(err.msg);
        fprintf(stderr, "test_models_near: %s\n", err.msg);
        return 1;
    }
    const bool reads = m->tokenizer != NULL;
    ls_model_close(m);
    if (!reads)
        return left_out("its tokenizer is not built");
    ls_rig_open(&rig, file, (ls_cpu_options){2, LS_SIMD_AUTO},
                (ls_engine_options){.max_rows = ROWS, .context = 256});
    const struct CMUnitTest all[] = {cmocka_unit_test(test_digest), cmocka_unit_test(test_tokens),
                                     cmocka_unit_test(test_logits), cmocka_unit_test(test_greedy)};
    const int bad = cmocka_run_group_tests(all, NULL, NULL);
    ls_rig_close(&rig);
    json_decref(expected);
    return bad;
}
