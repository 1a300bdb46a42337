/* A row's bits where matrices are as large as an 8B model's: passes of several widths, over and over,
 * against each row alone. It takes so many bytes to have copies, loads and products under way at once,
 * of which one may overtake another. Profile mma, or ieee (LS_TEST_DEVICE). Skipped where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernel_rig.h"

enum { MOST = 64, HIDDEN = 4096, WIDE = 14336 };

static void run(ls_backend *be, const ls_mat *w, void *x, void *y, int first, int n) {
    const ls_linear_args a = {.w = *w,
                              .x = (float *)x + (size_t)first * (size_t)w->n_in,
                              .y = (float *)y + (size_t)first * (size_t)w->n_out,
                              .n_rows = n};
    be->linear(be, &a);
}

static void of_shape(ls_backend *be, int n_out, int n_in, ls_dtype t) {
    static const int widths[] = {1, 5, 8, 9, 16, 33, MOST};
    const int turns = LS_THIN ? 1 : 12;
    const size_t n = (size_t)MOST * (size_t)n_out;
    ls_mat w = kr_mat(be, n_out, n_in, t, 1, 0.2f);
    void *x = kr_filled(be, (size_t)MOST * (size_t)n_in, 2, 2.0f);
    void *y = kr_dev(be, NULL, n * sizeof(float));
    float *want = kr_alloc(n * sizeof *want), *got = kr_alloc(n * sizeof *got);
    float *none = kr_alloc(n * sizeof *none); /* NaN: what is not written differs */
    for (int r = 0; r < MOST; r++)
        run(be, &w, x, y, r, 1);
    kr_sync(be);
    kr_down(be, want, y, n * sizeof *want);
    for (int turn = 0; turn < turns; turn++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            const size_t rows = (size_t)widths[i] * (size_t)n_out;
            kr_up(be, y, none, rows * sizeof *none);
            run(be, &w, x, y, 0, widths[i]);
            kr_sync(be);
            kr_down(be, got, y, rows * sizeof *got);
            kr_same("rows of a pass, alone", got, want, rows, (size_t)n_out);
        }
    kr_mat_free(be, &w);
    kr_free(be, x), kr_free(be, y);
    free(want), free(got), free(none);
}

static void test_every_width(void **state) {
    (void)state;
    ls_backend *be = rig_backend_on(rig_device_gpu(RIG_MMA), (ls_cpu_options){0});
    static const ls_dtype types[] = {LS_BF16, LS_Q8_0, LS_Q4_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        of_shape(be, HIDDEN, WIDE, types[i]); /* its k is walked range after range */
        of_shape(be, HIDDEN, HIDDEN, types[i]);
        of_shape(be, WIDE, HIDDEN, types[i]);
    }
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_width)};
    rig_device_need(rig_device_gpu(RIG_MMA));
    return cmocka_run_group_tests_name("linear_large_equal", tests, NULL, NULL);
}
