/* Drafters. Prompt look-up: tests/cases/numeric/ngram.json (C019), random histories against a plain
 * search, and a long history of one token. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

static ls_draft_block look_up(const int32_t *token, int32_t n, int32_t n_min, int32_t n_max,
                              int32_t k, const int32_t *eos, int32_t n_eos, ls_drafter **keep) {
    ls_err err;
    ls_draft_block block = {0};
    OK(ls_drafter_ngram(n_min, n_max, eos, n_eos, keep, &err), &err);
    const ls_draft_job job = {.token = token, .n_token = n, .n = k};
    OK((*keep)->draft(*keep, &job, &block, &err), &err);
    return block;
}

static void test_cases(void **state) {
    (void)state;
    json_t *all = json_load_file(LS_TEST_DIR "/cases/numeric/ngram.json", 0, NULL), *row;
    size_t i;
    assert_non_null(all);
    assert_int_equal(json_array_size(all), 8);
    json_array_foreach (all, i, row) {
        int32_t token[16] = {0}, eos = -1;
        json_t *list = json_object_get(row, "tokens"), *want = json_object_get(row, "draft");
        if (!want) /* our tie rule: the most recent match */
            want = json_object_get(row, "draft_rightmost");
        const int32_t n = (int32_t)json_array_size(list);
        for (int32_t k = 0; k < n; k++)
            token[k] = (int32_t)json_integer_value(json_array_get(list, (size_t)k));
        if (json_object_get(row, "eos"))
            eos = (int32_t)json_integer_value(json_object_get(row, "eos"));
        const int32_t len = (int32_t)json_integer_value(json_object_get(row, "n"));
        const int32_t k = (int32_t)json_integer_value(json_object_get(row, "k"));
        ls_drafter *d;
        const ls_draft_block b = look_up(token, n, len, len, k, &eos, 1, &d);
        assert_int_equal(b.n, json_array_size(want));
        for (int32_t t = 0; t < b.n; t++)
            assert_int_equal(b.token[t], json_integer_value(json_array_get(want, (size_t)t)));
        ls_drafter_destroy(d);
    }
    json_decref(all);
}

/* For every (history, n_max): the longest suffix that occurs earlier, its latest place, what
 * follows. */
static void test_random_histories(void **state) {
    (void)state;
    uint32_t seed = 3;
    for (int trial = 0; trial < 1000; trial++) {
        int32_t token[40], want[8], n_want = 0;
        const int32_t n = (int32_t)(((seed = seed * 1664525u + 1013904223u) >> 16) % 40);
        for (int32_t i = 0; i < n; i++)
            token[i] = (int32_t)(((seed = seed * 1664525u + 1013904223u) >> 16) % 3);
        for (int32_t len = 3; len >= 1 && n_want == 0; len--)
            for (int32_t at = 0; at + len < n; at++) /* ascending: the last one found stands */
                if (memcmp(token + at, token + n - len, (size_t)len * sizeof *token) == 0)
                    for (n_want = 0; n_want < 8 && at + len + n_want < n; n_want++)
                        want[n_want] = token[at + len + n_want];
        ls_drafter *d;
        const ls_draft_block b = look_up(token, n, 1, 3, 8, NULL, 0, &d);
        assert_int_equal(b.n, n_want);
        if (n_want)
            assert_memory_equal(b.token, want, (size_t)n_want * sizeof *want);
        ls_drafter_destroy(d);
    }
}

static void test_never_past_the_history(void **state) {
    (void)state;
    enum { N = 100000 };
    int32_t *token = calloc(N, sizeof *token);
    assert_non_null(token);
    ls_drafter *d;
    const ls_draft_block b = look_up(token, N, 1, 4, LS_DRAFT_MAX, NULL, 0, &d);
    assert_int_equal(b.n, 1); /* the most recent match leaves one token before the end */
    ls_drafter_destroy(d);
    free(token);
}

/* The drafts are on the device until they are settled, as a round does it. */
static void settle(ls_drafter *d, ls_draft_block *b) {
    ls_err err;
    ls_row_stats stats[LS_DRAFT_MAX];
    ls_backend *be = ls_engine_backend(d->engine);
    assert_true(b->pending && b->n <= LS_DRAFT_MAX);
    OK(be->download(be, stats, b->chain, (size_t)b->n * sizeof *stats, &err), &err);
    d->settle(d, stats, b);
    assert_false(b->pending);
}

/* A model drafter that has drafted what was then refused answers as one that never did: tokens and
 * statistics, bit for bit. Nothing of the refused draft may be left in its cache. */
static void test_refused_drafts_leave_no_trace(void **state) {
    (void)state;
    ls_err err;
    ls_test_shape shape = ls_test_shape_default();
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){1, LS_SIMD_AUTO}, (ls_engine_options){.max_seqs = 2});
    ls_drafter *old, *fresh;
    OK(ls_drafter_model(r.engine, &old, &err), &err);
    OK(ls_drafter_model(r.engine, &fresh, &err), &err);
    int32_t token[64] = {84, 104, 101, 32}, n = 4;
    for (int32_t round = 0; n < 50; round++) {
        const ls_draft_job job = {.token = token, .n_token = n, .n = 5, .warp = {0, 0, 1, 0}};
        ls_draft_block a, b;
        OK(old->draft(old, &job, &a, &err), &err);
        settle(old, &a); /* before the other one uses the engine */
        OK(fresh->begin(fresh, &err), &err);
        OK(fresh->draft(fresh, &job, &b, &err), &err);
        settle(fresh, &b);
        assert_int_equal(a.n, 5);
        assert_int_equal(b.n, 5);
        for (int32_t i = 0; i < 5; i++) {
            assert_int_equal(a.token[i], b.token[i]);
            assert_true(a.stats[i].entropy == b.stats[i].entropy);
            assert_true(a.stats[i].max == b.stats[i].max);
            assert_true(a.stats[i].entropy > 0); /* of a row that was there */
        }
        /* keep round % 4 of them, then something else, and a token more */
        const int32_t keep = round % 4;
        for (int32_t i = 0; i < keep; i++)
            token[n++] = a.token[i];
        token[n++] = (a.token[keep] + 1) % 256;
        token[n++] = round * 37 % 256; /* the last one's row is never reused: one more */
    }
    ls_drafter_destroy(old);
    ls_drafter_destroy(fresh);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

static void test_arguments(void **state) {
    (void)state;
    ls_err err;
    ls_drafter *d = NULL;
    assert_int_equal(ls_drafter_ngram(0, 3, NULL, 0, &d, &err), LS_ERR_INPUT);
    assert_int_equal(ls_drafter_ngram(4, 3, NULL, 0, &d, &err), LS_ERR_INPUT);
    assert_int_equal(ls_drafter_garbage(0, &d, &err), LS_ERR_SHAPE);
    assert_null(d);
}

/* A chain is fed from a row that was wanted, of the pass that ran. */
static void test_chain_refuses(void **state) {
    (void)state;
    ls_err err;
    int32_t seq;
    ls_test_shape shape = ls_test_shape_default();
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){1, LS_SIMD_AUTO}, (ls_engine_options){.max_rows = 4});
    OK(ls_kv_open(ls_engine_kv(r.engine), &seq, &err), &err);
    assert_int_equal(ls_chain_feed(r.engine, 0, false, &err), LS_ERR_STATE); /* no pass yet */
    ls_row row = ls_row_chain(seq, 84, 0, false);
    OK(ls_pass(r.engine, &row, 1, &err), &err);
    assert_int_equal(ls_chain_feed(r.engine, 0, true, &err), LS_ERR_STATE); /* nothing wanted */
    assert_null(ls_chain_logits(r.engine));
    row = ls_row_chain(seq, 104, 1, true);
    OK(ls_pass(r.engine, &row, 1, &err), &err);
    assert_int_equal(ls_chain_feed(r.engine, -1, false, &err), LS_ERR_SHAPE);
    assert_int_equal(ls_chain_feed(r.engine, 4, false, &err), LS_ERR_SHAPE);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_never_past_the_history),
        cmocka_unit_test(test_refused_drafts_leave_no_trace),
        cmocka_unit_test(test_chain_refuses),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("drafter_state", tests, NULL, NULL);
}
