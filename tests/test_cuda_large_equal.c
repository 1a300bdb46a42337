/* A row's bits at a large model's shapes, where launches take long enough to run into each other: two
 * layers as wide as Llama 3 8B's, a text of several chunks of keys, read again in passes of other
 * widths, over and over. The reference is decode, one row a pass. Profile mma, or ieee
 * (LS_TEST_DEVICE). Skipped where there is no GPU. */
#include <stdlib.h>

#include "make_model.h"
#include "rig.h"

enum { N_PROMPT = 8, N_TEXT = 576, MOST = 64, TURNS = 4 };

static ls_test_shape large(void) {
    ls_test_shape s = ls_test_shape_default();
    s.dim = 4096, s.ffn = 14336, s.n_heads = 32, s.n_kv = 8, s.head_dim = 128;
    s.n_layers = 2, s.n_vocab = 320, s.n_pos = 1024, s.dtype = LS_BF16, s.no_eos = true;
    return s;
}

/* A way to read the text again, and what was found. */
typedef struct way {
    int32_t width;
    bool queued; /* passes that nobody waits for, as of a prompt, and one wanted row at the end */
    int32_t n_row, n_differ, first; /* rows looked at, that differ; the first's position */
} way;

static void look_at(way *w, const ls_greedy *ref, const float *row, int32_t pos) {
    const size_t n = (size_t)ref->n_vocab;
    const bool differs = ls_count_bits(row, ls_greedy_row(ref, pos + 1), n) > 0;
    if (differs && (w->n_differ == 0 || pos < w->first))
        w->first = pos;
    w->n_row++, w->n_differ += differs;
}

/* The whole text from its beginning. */
static void read_again(ls_rig *r, const ls_greedy *ref, way *w, float *row) {
    ls_err err;
    int32_t seq;
    const int32_t last = N_PROMPT - 1, end = last + ref->n_new;
    OK(ls_kv_open(ls_engine_kv(r->engine), &seq, &err), &err);
    for (int32_t at = 0; at < end; at += w->width) {
        const int32_t n = end - at < w->width ? end - at : w->width;
        ls_row rows[MOST];
        for (int32_t i = 0; i < n; i++)
            rows[i] =
                ls_row_chain(seq, ref->token[at + i], at + i, !w->queued || at + i == end - 1);
        OK(ls_pass(r->engine, rows, n, &err), &err);
        for (int32_t i = 0, wanted = 0; i < n; i++)
            if (rows[i].want) {
                OK(ls_pass_logits(r->engine, wanted++, row, &err), &err);
                if (at + i >= last)
                    look_at(w, ref, row, at + i);
            }
    }
    ls_kv_close(ls_engine_kv(r->engine), seq);
}

static void test_widths_again(void **state) {
    (void)state;
    way ways[] = {{.width = 1},  {.width = 1, .queued = true},  {.width = 5},
                  {.width = 8},  {.width = 8, .queued = true},  {.width = 16},
                  {.width = 33}, {.width = 64, .queued = true}, {.width = 64}};
    const size_t n_way = sizeof ways / sizeof *ways;
    const ls_test_shape shape = large();
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_greedy ref;
    int32_t prompt[N_PROMPT], n_differ = 0;
    for (int32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 37 * i % 256;
    const ls_engine_options o = {
        .max_rows = MOST, .max_want = MOST, .context = N_TEXT + MOST, .kv_dtype = LS_BF16};
    ls_rig_open_on(&r, rig_device_gpu(RIG_MMA), dir, (ls_cpu_options){0}, o);
    float *row = malloc((size_t)shape.n_vocab * sizeof *row);
    assert_non_null(row);
    ls_greedy_run(&r, prompt, N_PROMPT, N_TEXT - N_PROMPT, &ref);
    for (int32_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < n_way; i++)
            read_again(&r, &ref, &ways[i], row);
    for (size_t i = 0; i < n_way; i++) {
        const way *w = &ways[i];
        if (w->n_differ > 0)
            print_message("passes of %d rows%s: %d of %d rows differ, from position %d on\n",
                          w->width, w->queued ? ", queued" : "", w->n_differ, w->n_row, w->first);
        n_differ += w->n_differ;
    }
    assert_int_equal(n_differ, 0);
    free(row);
    ls_greedy_free(&ref);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths_again)};
    rig_device_need(rig_device_gpu(RIG_MMA));
    return cmocka_run_group_tests_name("cuda_large_equal", tests, NULL, NULL);
}
