/* Rows that must not become a token (cases/numeric/logits.json), and what launchers refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <jansson.h>
#include <cmocka.h>

#include "draw.h"
#include "kernel_rig.h"

static float number(const json_t *j) {
    const char *s = json_string_value(j);
    return !s                       ? (float)json_number_value(j)
           : strcmp(s, "inf") == 0  ? INFINITY
           : strcmp(s, "-inf") == 0 ? -INFINITY
                                    : NAN;
}

static void cases(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    json_error_t why;
    json_t *all = json_load_file(LS_TEST_DIR "/cases/numeric/logits.json", 0, &why), *one, *v;
    size_t i, k;
    if (!all)
        fail_msg("%s", why.text);
    assert_int_equal(json_array_size(all), 10);
    json_array_foreach (all, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        json_t *logits = json_object_get(one, "logits"), *at = json_object_get(one, "equal_max_at");
        const size_t n = logits ? json_array_size(logits)
                                : (size_t)json_integer_value(json_object_get(one, "vocab"));
        float x[512];
        assert_true(n >= 1 && n <= 512);
        for (k = 0; k < n; k++)
            x[k] = logits ? number(json_array_get(logits, k)) : -1.0f;
        json_array_foreach (at, k, v)
            x[json_integer_value(v)] = 1.0f;
        json_t *greedy = json_object_get(one, "greedy"), *sampled = json_object_get(one, "sampled");
        json_t *temperature = json_object_get(one, "temperature");
        /* as greedy, and sampled at 1 or at the case's own temperature, over 50 positions */
        for (uint32_t p = 0; p < 51; p++) {
            const ls_warp w = {p == 0 ? 0.0f : temperature ? number(temperature) : 1.0f, 0, 1, 0};
            const ls_draw d = ls_draw_key(3, 0, p, LS_DRAW_TEST, 0);
            ls_row_stats st;
            ls_stats_args a = {x, (int)n, (int)n, &w, &d, 4, &st, 1, 0, NULL};
            kr_stats(be, &a);
            kr_sync(be);
            if (json_is_string(greedy)) {
                if (st.flags == 0 || st.token != -1 || st.argmax != -1)
                    fail_msg("%s: flags %d, token %d", name, st.flags, st.token);
                float prob[512];
                ls_probs_args pr = {x, &st, prob, (int)n, (int)n, 1};
                kr_probs(be, &pr);
                for (k = 0; k < n; k++)
                    assert_true(prob[k] == 0.0f);
            } else {
                assert_int_equal(st.flags, 0);
                if (greedy)
                    assert_int_equal(st.argmax, json_integer_value(greedy));
                if (sampled)
                    assert_int_equal(st.token, json_integer_value(sampled));
            }
        }
    }
    json_decref(all);
    ls_backend_destroy(be);
}

/* Each fault alone at each end of the row, with its own flag. */
static void flags(void **state) {
    (void)state;
    static const int sizes[] = {1, 33, 512, 513, 5000};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    const ls_warp w = {1, 5, 0.9f, 0.1f};
    const ls_draw d = ls_draw_key(3, 0, 0, LS_DRAW_TEST, 0);
    for (int i = 0; i < 5; i++)
        for (int end = 0; end < 2; end++) {
            const int n = sizes[i], at = end ? n - 1 : 0;
            float *x = kr_alloc((size_t)(n + 1) * 4);
            ls_row_stats st;
            ls_stats_args a = {x, n + 1, n, &w, &d, 4, &st, 1, 0, NULL};
            kr_fill(x, (size_t)n, 4, 2.0f);
            x[n] = NAN; /* past the vocabulary: nobody's business */
            kr_stats(be, &a);
            assert_int_equal(st.flags, 0);
            x[at] = NAN;
            kr_stats(be, &a);
            assert_int_equal(st.flags, LS_ROW_NAN);
            x[at] = -NAN;
            kr_stats(be, &a);
            assert_int_equal(st.flags, LS_ROW_NAN);
            x[at] = INFINITY;
            kr_stats(be, &a);
            assert_int_equal(st.flags, LS_ROW_INF);
            if (n > 1) {
                x[n / 2 == at ? at - 1 : n / 2] = NAN;
                kr_stats(be, &a);
                assert_int_equal(st.flags, LS_ROW_INF | LS_ROW_NAN);
            }
            for (int k = 0; k < n; k++)
                x[k] = -INFINITY;
            kr_stats(be, &a);
            assert_int_equal(st.flags, LS_ROW_NONE);
            free(x);
        }
    ls_backend_destroy(be);
}

/* A launcher refuses quietly, the first reason waits for sync, and the backend lives on. */
static void refusals(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    ls_err err;
    float x[8] = {0};
    ls_attn_args odd = {.head_dim = 7, .n_heads = 1, .n_kv = 1};
    ls_rope_args wide = {.head_dim = 258, .n_heads = 1, .n_kv = 1};
    be->attn(be, &odd);
    be->rope(be, &wide);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    assert_non_null(strstr(err.msg, "attention"));
    assert_int_equal(be->sync(be, NULL), LS_OK);
    be->rope(be, &wide);
    assert_int_equal(be->sync(be, NULL), LS_ERR_SHAPE);

    const int32_t length[1] = {100}, base[1] = {0};
    ls_attn_args a = {.q = x, .k_pool = x, .v_pool = x, .loc = {.base = base, .n_slots = 1}};
    a.length = length, a.n_rows = 1, a.n_heads = a.n_kv = 1, a.head_dim = 2, a.part = x, a.out = x;
    a.rule = (ls_chunk_rule){LS_CHUNK_EVEN, 10, 64}, a.max_chunks = 9; /* ten are needed */
    if (!rig_on_gpu()) { /* lengths in device memory are not looked at before a launch */
        be->attn(be, &a);
        assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    }
    a.rule.min_keys = 0;
    be->attn(be, &a);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    a.rule = (ls_chunk_rule){LS_CHUNK_SPLITS, 0, 1}, a.loc.base = NULL; /* paged in blocks of 0 */
    be->attn(be, &a);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);

    ls_stats_args s = {x, 8, 9, NULL, NULL, 0, NULL, 1, 0, NULL};
    be->stats(be, &s);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    s.n_vocab = 8, s.n_top = 9;
    be->stats(be, &s);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    ls_linear_args lin = {.w = {x, (ls_dtype)9, 1, 1}, .x = x, .y = x, .n_rows = 1};
    be->linear(be, &lin);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);

    /* nothing to do is no error */
    lin.w.dtype = LS_F32, lin.n_rows = 0;
    be->linear(be, &lin);
    ls_embed_args none = {{x, LS_F32, 1, 1}, NULL, x, 0, 0};
    be->embed(be, &none);
    assert_int_equal(be->sync(be, &err), LS_OK);
    ls_backend_destroy(be);
    ls_backend_destroy(NULL);
}

static void options(void **state) {
    (void)state;
    ls_backend *be = NULL;
    ls_err err;
    assert_int_equal(ls_cpu_create((ls_cpu_options){.n_threads = -1}, &be, &err), LS_ERR_INPUT);
    assert_int_equal(ls_cpu_create((ls_cpu_options){.simd = (ls_simd)7}, &be, &err), LS_ERR_INPUT);
    assert_null(be);
    assert_int_equal(ls_cpu_create((ls_cpu_options){.simd = LS_SIMD_PLAIN}, &be, &err), LS_OK);
    assert_non_null(strstr(be->device, "plain"));
    void *p = NULL;
    assert_int_equal(be->alloc(be, SIZE_MAX - 5, &p, &err), LS_ERR_MEMORY);
    assert_int_equal(be->alloc(be, 0, &p, &err), LS_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    be->free(be, p);
    be->free(be, NULL);
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases), cmocka_unit_test(flags),
                                       cmocka_unit_test(refusals), cmocka_unit_test(options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
