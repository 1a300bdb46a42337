/* A row's bits at a large model's shapes, where launches take long enough to run into each other: two
 * layers as wide as Llama 3 8B's, a text of several chunks of keys, read again in passes of other
 * widths, over and over. The reference is decode, one row a pass. Profile mma, or ieee
 * (LS_TEST_DEVICE). Skipped where there is no GPU. */
#include <stdio.h>
#include <stdlib.h>

#include "make_model.h"
#include "rig.h"

enum { N_PROMPT = 8, N_TEXT = 576, MOST = 64, TURNS = 4 };

static rig_device where(void) {
    return rig_on_gpu() ? rig_device_chosen() : RIG_MMA;
}

static ls_test_shape large(void) {
    ls_test_shape s = ls_test_shape_default();
    s.dim = 4096, s.ffn = 14336, s.n_heads = 32, s.n_kv = 8, s.head_dim = 128;
    s.n_layers = 2, s.n_vocab = 320, s.n_pos = 1024, s.dtype = LS_BF16, s.no_eos = true;
    return s;
}

/* The whole text from its beginning in passes of m rows; `queued`: passes of a prompt, which nobody
 * waits for, and one row behind them. */
static void read_again(ls_rig *r, const ls_greedy *ref, int32_t m, bool queued, float *row) {
    ls_err err;
    char what[96];
    int32_t seq;
    const int32_t last = N_PROMPT - 1, end = last + ref->n_new;
    OK(ls_kv_open(ls_engine_kv(r->engine), &seq, &err), &err);
    for (int32_t at = 0; at < end; at += m) {
        const int32_t n = end - at < m ? end - at : m;
        ls_row rows[MOST];
        for (int32_t i = 0; i < n; i++)
            rows[i] = ls_row_chain(seq, ref->token[at + i], at + i, !queued || at + i == end - 1);
        OK(ls_pass(r->engine, rows, n, &err), &err);
        for (int32_t i = queued ? n - 1 : 0; i < n; i++) {
            if (at + i < last || (queued && at + i < end - 1))
                continue;
            OK(ls_pass_logits(r->engine, queued ? 0 : i, row, &err), &err);
            snprintf(what, sizeof what, "passes of %d rows%s: position %d", m,
                     queued ? ", queued" : "", at + i);
            ls_assert_bits(row, ls_greedy_row(ref, at + i + 1), (size_t)ref->n_vocab, what);
        }
    }
    ls_kv_close(ls_engine_kv(r->engine), seq);
}

static void test_widths_again(void **state) {
    (void)state;
    static const int32_t widths[] = {1, 5, 8, 16, 33, 64};
    const ls_test_shape shape = large();
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_greedy ref;
    int32_t prompt[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 37 * i % 256;
    ls_rig_open_on(
        &r, where(), dir, (ls_cpu_options){0},
        (ls_engine_options){
            .max_rows = MOST, .max_want = MOST, .context = N_TEXT + MOST, .kv_dtype = LS_BF16});
    float *row = malloc((size_t)shape.n_vocab * sizeof *row);
    assert_non_null(row);
    ls_greedy_run(&r, prompt, N_PROMPT, N_TEXT - N_PROMPT, &ref);
    for (int32_t turn = 0; turn < TURNS; turn++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            read_again(&r, &ref, widths[w], false, row);
            read_again(&r, &ref, widths[w], true, row);
        }
    free(row);
    ls_greedy_free(&ref);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths_again)};
    rig_device_need(where());
    return cmocka_run_group_tests_name("cuda_large_equal", tests, NULL, NULL);
}
