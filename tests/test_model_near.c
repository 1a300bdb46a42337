/* Logits and greedy tokens of small checkpoints against a double-precision reference that shares no
 * code (tests/cases/models/.../expected.json; the embedded pair: tests/fixtures/pair). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rig.h"

static int32_t int_list(const json_t *list, int32_t **out) {
    const int32_t n = (int32_t)json_array_size(list);
    *out = malloc(((size_t)n + 1) * sizeof **out);
    assert_non_null(*out);
    for (int32_t i = 0; i < n; i++)
        (*out)[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

/* Greedy tokens of `model` equal those expected of `reference`; its first logits within 1e-4. */
static void expect_tokens(const char *model, const char *reference) {
    char path[512], *dir = ls_case_model(model), *ref = ls_case_model(reference);
    snprintf(path, sizeof path, "%s/expected.json", ref);
    json_t *e = json_load_file(path, 0, NULL);
    assert_non_null(e);
    int32_t *prompt, *want;
    const int32_t n = int_list(json_object_get(e, "prompt_ids"), &prompt);
    const int32_t m = int_list(json_object_get(e, "greedy_ids"), &want);
    ls_rig r;
    ls_greedy g;
    ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO}, (ls_engine_options){0});
    ls_greedy_run(&r, prompt, n, m, &g);
    assert_memory_equal(g.token + n, want, (size_t)m * sizeof *want);
    const json_t *top = json_object_get(e, "first_step_top5");
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);
        const double value = json_number_value(json_array_get(pair, 1));
        const int64_t id = json_integer_value(json_array_get(pair, 0));
        if (!(fabs((double)g.logits[id] - value) <= 1e-4))
            fail_msg("%s: logit %d is %g, the reference has %g", model, (int)id,
                     (double)g.logits[id], value);
    }
    ls_greedy_free(&g);
    ls_rig_close(&r);
    json_decref(e);
    free(prompt);
    free(want);
    free(dir);
    free(ref);
}

static void test_cases(void **state) {
    (void)state;
    expect_tokens("rand_base", "rand_base");
    expect_tokens("rand_base_bf16", "rand_base");
    expect_tokens("rand_base_f16", "rand_base");
    expect_tokens("rand_head_dim_12", "rand_head_dim_12");
    expect_tokens("rand_tied", "rand_tied");
}

/* The logits that follow token[position]. */
static void run_to(ls_rig *r, const int32_t *token, int32_t position, float *logits) {
    ls_err err;
    int32_t seq;
    ls_kv *kv = ls_engine_kv(r->engine);
    const ls_row row = ls_row_chain(0, token[position], position, true);
    OK(ls_kv_open(kv, &seq, &err), &err);
    assert_int_equal(seq, row.seq);
    OK(ls_prefill(r->engine, seq, token, position, 0, &err), &err);
    OK(ls_pass(r->engine, &row, 1, &err), &err);
    OK(ls_pass_logits(r->engine, 0, logits, &err), &err);
    ls_kv_close(kv, seq);
}

/* The greedy run of one prompt of golden.json, and the logits listed after eight of its tokens. The
 * reference is float64 over the same bf16 weights; a dot product of at most 1024 terms in float32
 * errs by some 1e-6 of its size, the logits are near 10 and pass six layers: 1e-3 is generous, and
 * an arithmetic fault is far outside. */
static void expect_run(ls_rig *r, const json_t *run, const char *model) {
    int32_t *prompt, *want;
    const int32_t n = int_list(json_object_get(run, "prompt"), &prompt);
    const int32_t m = int_list(json_object_get(run, "greedy"), &want);
    const json_t *top = json_object_get(run, "top"), *at;
    size_t i;
    ls_greedy g;
    ls_greedy_run(r, prompt, n, m, &g);
    assert_memory_equal(g.token + n, want, (size_t)m * sizeof *want);
    float *logits_after = malloc((size_t)g.n_vocab * sizeof *logits_after);
    assert_non_null(logits_after);
    json_array_foreach (top, i, at) {
        const int32_t position = (int32_t)json_integer_value(json_object_get(at, "position"));
        assert_in_range(position, 0, n + m - 1);
        run_to(r, g.token, position, logits_after);
        const json_t *ids = json_object_get(at, "ids"), *logits = json_object_get(at, "logits");
        for (size_t k = 0; k < json_array_size(ids); k++) {
            const int64_t id = json_integer_value(json_array_get(ids, k));
            const double value = json_number_value(json_array_get(logits, k));
            const double got = (double)logits_after[id];
            if (!(fabs(got - value) <= 1e-3))
                fail_msg("%s: after token %d, logit %d is %.7g, the reference has %.7g", model,
                         position, (int)id, got, value);
        }
    }
    free(logits_after);
    ls_greedy_free(&g);
    free(prompt);
    free(want);
}

static json_t *golden(void) {
    json_t *e = json_load_file(LS_TEST_DIR "/fixtures/pair/golden.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(e);
    return e;
}

static void test_embedded_pair(void **state) {
    (void)state;
    static const char *const name[] = {"target", "draft"};
    json_t *e = golden();
    for (int i = 0; i < 2; i++) {
        char dir[512];
        ls_rig r;
        json_t *run;
        size_t k;
        snprintf(dir, sizeof dir, "%s/experiments/models/%s", LS_SOURCE_DIR, name[i]);
        ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO}, (ls_engine_options){0});
        json_array_foreach (json_object_get(json_object_get(e, "models"), name[i]), k, run)
            if (!LS_THIN || k == 0)
                expect_run(&r, run, name[i]);
        assert_int_equal(k, 4);
        ls_rig_close(&r);
    }
    json_decref(e);
}

static void test_embedded_tokenizer(void **state) {
    (void)state;
    ls_err err;
    ls_tokenizer *tok;
    json_t *e = golden(), *row;
    size_t i;
    OK(ls_tokenizer_open(LS_SOURCE_DIR "/experiments/models/target", NULL, &tok, &err), &err);
    json_array_foreach (json_object_get(e, "strings"), i, row) {
        const json_t *text = json_object_get(row, "text"),
                     *decoded = json_object_get(row, "decoded");
        int32_t *want;
        ls_ids ids = {0};
        ls_text back = {0};
        const int32_t n = int_list(json_object_get(row, "ids"), &want);
        OK(ls_tokenizer_encode(tok, json_string_value(text), json_string_length(text),
                               LS_ENCODE_TEMPLATE, &ids, NULL, &err),
           &err);
        assert_int_equal(ids.n, n);
        if (n)
            assert_memory_equal(ids.id, want, (size_t)n * sizeof *want);
        OK(ls_tokenizer_decode(tok, ids.id, ids.n, false, &back, &err), &err);
        assert_int_equal(back.n, json_string_length(decoded));
        if (back.n)
            assert_memory_equal(back.s, json_string_value(decoded), back.n);
        ls_ids_free(&ids);
        ls_text_free(&back);
        free(want);
    }
    assert_int_equal(i, 60);
    ls_tokenizer_destroy(tok);
    json_decref(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_embedded_pair),
        cmocka_unit_test(test_embedded_tokenizer),
    };
    return cmocka_run_group_tests_name("model_near", tests, NULL, NULL);
}
