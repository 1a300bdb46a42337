/* A device's size is in no bit (profile mma): linears of every format, and passes over a bf16
 * cache, planned for few multiprocessors and the least memory a block, beside the whole device.
 * That few rows fit a launch there, that rings are short and that a block has many tiles in turn,
 * shows nowhere. Skipped where there is no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_rig.h"
#include "make_model.h"
#include "rig.h"

enum { WHOLE, SMALL, N_SIZES, MAX_ROWS = 129 };
static const rig_device sizes[N_SIZES] = {RIG_MMA, RIG_MMA_SMALL};

static void linear(ls_backend *const be[N_SIZES], ls_dtype t, int n_out, int n_in) {
    static const int rows_of[] = {1, 2, 5, 8, 9, 16, 17, 40, MAX_ROWS};
    const size_t n_y = (size_t)MAX_ROWS * (size_t)n_out;
    float *y[N_SIZES];
    ls_mat w[N_SIZES];
    void *x_d[N_SIZES], *y_d[N_SIZES];
    char what[96];
    for (int s = 0; s < N_SIZES; s++) {
        y[s] = kr_alloc(n_y * sizeof(float));
        w[s] = kr_mat(be[s], n_out, n_in, t, 1, 0.4f);
        x_d[s] = kr_filled(be[s], (size_t)(MAX_ROWS * n_in), 2, 2.0f);
        y_d[s] = kr_dev(be[s], NULL, n_y * sizeof(float));
    }
    for (size_t k = 0; k < sizeof rows_of / sizeof *rows_of; k++) {
        const int n = rows_of[k];
        for (int s = 0; s < N_SIZES; s++) {
            const ls_linear_args a = {.w = w[s], .x = x_d[s], .y = y_d[s], .n_rows = n};
            be[s]->linear(be[s], &a);
            kr_sync(be[s]);
            kr_down(be[s], y[s], y_d[s], (size_t)(n * n_out) * sizeof(float));
        }
        snprintf(what, sizeof what, "type %d, %d x %d, %d rows", (int)t, n_out, n_in, n);
        kr_same(what, y[SMALL], y[WHOLE], (size_t)(n * n_out), (size_t)n_out);
    }
    for (int s = 0; s < N_SIZES; s++) {
        kr_mat_free(be[s], &w[s]);
        kr_free(be[s], x_d[s]);
        kr_free(be[s], y_d[s]);
        free(y[s]);
    }
}

static void test_linears(void **state) {
    (void)state;
    static const ls_dtype types[] = {LS_BF16, LS_Q8_0, LS_Q4_K};
    ls_backend *be[N_SIZES];
    for (int s = 0; s < N_SIZES; s++)
        be[s] = rig_backend_on(sizes[s], (ls_cpu_options){0});
    for (int t = 0; t < 3; t++) {
        linear(be, types[t], 29, 256);
        linear(be, types[t], 2100, 768); /* more tiles than blocks, on both */
        linear(be, types[t], 300, 4864); /* ranges */
    }
    for (int s = 0; s < N_SIZES; s++)
        ls_backend_destroy(be[s]);
}

/* Greedy texts behind a short and a long prompt. That passes of other widths give these bits, on
 * either size, is test_cuda_width_equal's. */
static void test_passes(void **state) {
    (void)state;
    enum { N_NEW = 80, MOST = 64, LONGEST = 900 };
    static const int32_t prompts[] = {20, LONGEST};
    static int32_t prompt[LONGEST];
    ls_test_shape shape = ls_test_shape_default();
    shape.dim = 256, shape.ffn = 512, shape.n_heads = 4, shape.n_kv = 2, shape.head_dim = 64;
    shape.n_vocab = 320, shape.n_pos = 1024, shape.dtype = LS_BF16, shape.no_eos = true;
    char *dir = ls_test_model_make(&shape), what[64];
    ls_rig r[N_SIZES];
    for (int i = 0; i < LONGEST; i++)
        prompt[i] = (i * 37 + i / 7) % 256;
    for (int s = 0; s < N_SIZES; s++)
        ls_rig_open_on(&r[s], sizes[s], dir, (ls_cpu_options){0},
                       (ls_engine_options){.max_rows = MOST, .kv_dtype = LS_BF16});
    for (int k = 0; k < 2; k++) {
        ls_greedy text[N_SIZES];
        for (int s = 0; s < N_SIZES; s++)
            ls_greedy_run(&r[s], prompt, prompts[k], N_NEW, &text[s]);
        snprintf(what, sizeof what, "%d tokens, then %d", prompts[k], N_NEW);
        ls_assert_bits(text[SMALL].logits, text[WHOLE].logits,
                       (size_t)(N_NEW * text[WHOLE].n_vocab), what);
        for (int s = 0; s < N_SIZES; s++)
            ls_greedy_free(&text[s]);
    }
    for (int s = 0; s < N_SIZES; s++)
        ls_rig_close(&r[s]);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linears),
                                       cmocka_unit_test(test_passes)};
    rig_device_need(RIG_MMA);
    return cmocka_run_group_tests_name("cuda_small_equal", tests, NULL, NULL);
}
