/* norm_gates, bits: h, and the linear that reads it, are those of norm_linears and then silu_mul or
 * gelu_mul; a row has the bits of the row alone, at any width; whether the linear ahead knew of the
 * norm, and whether h lies in gate's place, is in no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernel_rig.h"

#define MAX_ROWS 17 /* one more than a narrow launch of profile mma takes */
#define AHEAD 48    /* inputs of the linear ahead */
#define BEHIND 33   /* outputs of the linear behind */

/* The linear ahead, [AHEAD] -> [D] with a residual; gate and up of its norm, [D] -> [F]; the linear
 * behind, [F] -> [BEHIND]; all on the device of be. */
typedef struct block {
    ls_backend *be;
    int D, F, gelu;
    ls_mat ahead, gate, up, behind;
    void *x, *add, *row, *norm_w, *normed, *g, *u, *h, *y;
} block;

typedef struct result {
    float *h, *y; /* [MAX_ROWS, F], [MAX_ROWS, BEHIND] */
} result;

static void *rows_of(ls_backend *be, int n) {
    return kr_dev(be, NULL, (size_t)MAX_ROWS * (size_t)n * sizeof(float));
}

static void block_open(block *b, ls_backend *be, int D, int F, ls_dtype gate, ls_dtype up) {
    *b = (block){.be = be, .D = D, .F = F};
    b->ahead = kr_mat(be, D, AHEAD, LS_BF16, 1, 0.4f);
    b->gate = kr_mat(be, F, D, gate, 2, 0.2f);
    b->up = kr_mat(be, F, D, up, 3, 0.2f);
    b->behind = kr_mat(be, BEHIND, F, LS_BF16, 4, 0.4f);
    b->x = kr_filled(be, (size_t)MAX_ROWS * AHEAD, 5, 2.0f);
    b->add = kr_filled(be, (size_t)MAX_ROWS * (size_t)D, 6, 3.0f);
    b->norm_w = kr_filled(be, (size_t)D, 7, 1.5f);
    b->row = rows_of(be, D);
    b->normed = rows_of(be, D);
    b->g = rows_of(be, F);
    b->u = rows_of(be, F);
    b->h = rows_of(be, F);
    b->y = rows_of(be, BEHIND);
}
static void block_close(block *b) {
    ls_mat *mats[] = {&b->ahead, &b->gate, &b->up, &b->behind};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
        kr_mat_free(b->be, mats[i]);
    void *all[] = {b->x, b->add, b->row, b->norm_w, b->normed, b->g, b->u, b->h, b->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kr_free(b->be, all[i]);
}

static float *at(void *rows, int from, int width) {
    return (float *)rows + (size_t)from * (size_t)width;
}

enum how { APART = 1, HINTED = 2, IN_PLACE = 4 };
/* Rows from..from + n - 1; their results to the first n rows of out. */
static void run(block *b, int from, int n, int how, result out) {
    ls_backend *be = b->be;
    float *row = at(b->row, from, b->D), *y = at(b->y, from, BEHIND);
    const ls_linear_args ahead = {.w = b->ahead,
                                  .x = at(b->x, from, AHEAD),
                                  .y = row,
                                  .add = at(b->add, from, b->D),
                                  .n_rows = n,
                                  .next_w = how & HINTED ? b->norm_w : NULL,
                                  .next_dtype = LS_F32};
    const ls_rmsnorm_args norm = {.x = row,
                                  .w = b->norm_w,
                                  .w_dtype = LS_F32,
                                  .y = at(b->normed, from, b->D),
                                  .eps = 1e-5f,
                                  .n_rows = n,
                                  .dim = b->D};
    const ls_linear_args both[] = {
        {.w = b->gate, .x = norm.y, .y = at(b->g, from, b->F), .n_rows = n},
        {.w = b->up, .x = norm.y, .y = at(b->u, from, b->F), .n_rows = n}};
    const ls_silu_mul_args gates = {.gate = both[0].y,
                                    .up = both[1].y,
                                    .h = how & IN_PLACE ? both[0].y : at(b->h, from, b->F),
                                    .n_rows = n,
                                    .dim = b->F};
    const ls_linear_args behind = {.w = b->behind, .x = gates.h, .y = y, .n_rows = n};
    be->linear(be, &ahead);
    if (how & APART) {
        be->norm_linears(be, &norm, both, 2);
        (b->gelu ? be->gelu_mul : be->silu_mul)(be, &gates);
    } else {
        be->norm_gates(be, &norm, both, &gates, b->gelu);
    }
    be->linear(be, &behind);
    kr_sync(be);
    kr_down(be, out.h, gates.h, (size_t)n * (size_t)b->F * sizeof(float));
    kr_down(be, out.y, y, (size_t)n * BEHIND * sizeof(float));
    /* once more, and without what was left for the very next operation */
    float *again = kr_alloc((size_t)n * BEHIND * sizeof *again);
    be->linear(be, &behind);
    kr_sync(be);
    kr_down(be, again, y, (size_t)n * BEHIND * sizeof(float));
    kr_same("the linear behind, again", again, out.y, (size_t)n * BEHIND, BEHIND);
    free(again);
}

static void is_one(block *b) {
    const size_t F = (size_t)b->F;
    result want, got;
    want.h = kr_alloc(MAX_ROWS * F * sizeof(float)), got.h = kr_alloc(MAX_ROWS * F * sizeof(float));
    want.y = kr_alloc(MAX_ROWS * BEHIND * sizeof(float));
    got.y = kr_alloc(MAX_ROWS * BEHIND * sizeof(float));
    run(b, 0, MAX_ROWS, APART, want);
    for (int n = 1; n <= MAX_ROWS; n++) {
        if (LS_THIN && n % 7 != 1 && n < MAX_ROWS - 1)
            continue;
        run(b, 0, n, (n & 1 ? HINTED : 0) | (n & 2 ? IN_PLACE : 0), got);
        kr_same("h", got.h, want.h, (size_t)n * F, F);
        kr_same("the linear behind", got.y, want.y, (size_t)n * BEHIND, BEHIND);
        const int r = n - 1; /* the last of them alone */
        run(b, r, 1, n & 4 ? HINTED : 0, got);
        kr_same("h of a row alone", got.h, want.h + (size_t)r * F, F, F);
        kr_same("the linear behind a row alone", got.y, want.y + (size_t)r * BEHIND, BEHIND,
                BEHIND);
    }
    b->gelu ^= 1; /* the other gate: another h */
    run(b, 0, 1, 0, got);
    assert_true(kr_differ(NULL, got.h, want.h, F, F) > 0);
    b->gelu ^= 1;
    free(want.h), free(want.y), free(got.h), free(got.y);
}

static void of_shape(int D, int F, ls_dtype gate, ls_dtype up) {
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    block b;
    block_open(&b, be, D, F, gate, up);
    for (b.gelu = 0; b.gelu < 2; b.gelu++)
        is_one(&b);
    block_close(&b);
    ls_backend_destroy(be);
}

/* Fewer outputs than a GPU has blocks for, and more; inputs of one segment of 512, of two, of four
 * or five, and of two ranges. */
static void shapes(void **state) {
    (void)state;
    static const int shape[][2] = {{64, 40},     {64, 4250},  {576, 16},  {576, 2200}, {2048, 40},
                                   {2048, 1000}, {2560, 130}, {5120, 40}, {5120, 150}};
    static const ls_dtype types[][2] = {{LS_BF16, LS_BF16}, {LS_F32, LS_F32},   {LS_BF16, LS_F32},
                                        {LS_Q8_0, LS_Q8_0}, {LS_Q4_K, LS_Q4_K}, {LS_Q8_0, LS_Q4_K}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            if (shape[i][0] % (int)ls_dtype_block(types[t][0]) == 0 &&
                shape[i][0] % (int)ls_dtype_block(types[t][1]) == 0)
                of_shape(shape[i][0], shape[i][1], types[t][0], types[t][1]);
}

/* So many tiles that a block of a large GPU makes them in several bands, of two ranges. */
static void bands(void **state) {
    (void)state;
    if (!rig_on_gpu() || LS_THIN)
        skip(); /* a CPU has none */
    of_shape(4112, 8720, LS_BF16, LS_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
