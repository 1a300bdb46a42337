/* norm_linears, bits: every row equals the row alone, at any width; the hint of a linear that a
 * norm reads its result next (ls_linear_args.next_w) is in no bit; linears of other weights in the
 * same call are as without the others; and where a profile has no form of its own (N-MMAN) the
 * result is that of rmsnorm and then linears. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernel_rig.h"

#define MAX_ROWS 129
#define N_OUT 2
#define BEFORE 256 /* most inputs of the linear ahead */
#define EPS 1e-5f
#define SCALE 0.4f /* of weights */

static const int rows_of[] = {1, 2, 7, 8, 9, 16, 17, 33, MAX_ROWS};
#define N_ROWS (sizeof rows_of / sizeof *rows_of)

/* The linear ahead, [K] -> [D] with a residual, and two linears of its norm; all on the device
 * of be. */
typedef struct chain {
    ls_backend *be;
    int K, D, n_out[N_OUT];
    ls_mat before, w[N_OUT];
    void *x, *add, *row, *norm_w, *normed, *y[N_OUT];
    ls_dtype norm_dtype;
} chain;

/* t: of the two linears, and of the one ahead. */
static void chain_open(chain *c, ls_backend *be, int D, ls_dtype norm_dtype, const ls_dtype *t) {
    /* one so wide that many rows of it take another kernel */
    *c = (chain){.be = be, .D = D, .n_out = {29, D == 576 ? 4096 : 64}, .norm_dtype = norm_dtype};
    c->K = ls_dtype_block(t[N_OUT]) == 1 ? 48 : BEFORE;
    c->before = kr_mat(be, D, c->K, t[N_OUT], 1, SCALE);
    void *w = kr_weights((size_t)D, norm_dtype, 4, 1.5f);
    c->norm_w = kr_dev(be, w, (size_t)D * ls_dtype_bytes(norm_dtype));
    free(w);
    c->x = kr_filled(be, (size_t)MAX_ROWS * BEFORE, 5, 2.0f);
    c->add = kr_filled(be, (size_t)MAX_ROWS * (size_t)D, 6, 3.0f);
    c->row = kr_dev(be, NULL, (size_t)MAX_ROWS * (size_t)D * sizeof(float));
    c->normed = kr_dev(be, NULL, (size_t)MAX_ROWS * (size_t)D * sizeof(float));
    for (int i = 0; i < N_OUT; i++) {
        c->w[i] = kr_mat(be, c->n_out[i], D, t[i], 2 + (uint32_t)i, SCALE);
        c->y[i] = kr_dev(be, NULL, (size_t)(MAX_ROWS * c->n_out[i]) * sizeof(float));
    }
}
static void chain_close(chain *c) {
    kr_mat_free(c->be, &c->before);
    for (int i = 0; i < N_OUT; i++) {
        kr_mat_free(c->be, &c->w[i]);
        kr_free(c->be, c->y[i]);
    }
    void *all[] = {c->x, c->add, c->row, c->norm_w, c->normed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kr_free(c->be, all[i]);
}

enum how { PLAIN = 0, HINTED = 1, APART = 2, IN_TWO = 4, CHANGED = 8 };
/* Rows from..from + n - 1; their results to out. */
static void run(chain *c, int from, int n, int how, float *out[N_OUT]) {
    ls_backend *be = c->be;
    const size_t at = (size_t)from * (size_t)c->D;
    float *row = (float *)c->row + at;
    const ls_linear_args ahead = {.w = c->before,
                                  .x = (float *)c->x + (size_t)from * (size_t)c->K,
                                  .y = row,
                                  .add = (float *)c->add + at,
                                  .n_rows = n,
                                  .next_w = how & HINTED ? c->norm_w : NULL,
                                  .next_dtype = c->norm_dtype};
    const ls_rmsnorm_args norm = {.x = row,
                                  .w = c->norm_w,
                                  .w_dtype = c->norm_dtype,
                                  .y = (float *)c->normed + at,
                                  .eps = EPS,
                                  .n_rows = n,
                                  .dim = c->D};
    ls_linear_args a[N_OUT];
    for (int i = 0; i < N_OUT; i++)
        a[i] = (ls_linear_args){.w = c->w[i],
                                .x = norm.y,
                                .y = (float *)c->y[i] + (size_t)from * (size_t)c->n_out[i],
                                .n_rows = n};
    be->linear(be, &ahead);
    if (how & CHANGED) { /* what the linear left is of a row that is no more */
        const ls_bias_args bias = {
            .y = row, .b = c->norm_w, .b_dtype = c->norm_dtype, .n_rows = n, .dim = c->D};
        be->bias(be, &bias);
    }
    if (how & APART) {
        be->rmsnorm(be, &norm);
        be->linears(be, a, N_OUT);
    } else if (how & IN_TWO) { /* the second call finds nothing that was left for it */
        be->norm_linears(be, &norm, &a[1], 1);
        be->norm_linears(be, &norm, &a[0], 1);
    } else {
        be->norm_linears(be, &norm, a, N_OUT);
    }
    kr_sync(be);
    for (int i = 0; i < N_OUT; i++)
        kr_down(be, out[i], a[i].y, (size_t)(n * c->n_out[i]) * sizeof(float));
}

static void chain_is_one(chain *c) {
    float *alone[N_OUT], *changed[N_OUT], *y[N_OUT];
    for (int i = 0; i < N_OUT; i++) {
        alone[i] = kr_alloc((size_t)(MAX_ROWS * c->n_out[i]) * sizeof(float));
        y[i] = kr_alloc((size_t)(MAX_ROWS * c->n_out[i]) * sizeof(float));
        changed[i] = kr_alloc((size_t)(MAX_ROWS * c->n_out[i]) * sizeof(float));
    }
    for (int r = 0; r < MAX_ROWS; r++) {
        float *to[N_OUT];
        for (int i = 0; i < N_OUT; i++)
            to[i] = alone[i] + r * c->n_out[i];
        run(c, r, 1, PLAIN, to);
    }
    const bool own = strcmp(c->be->profile, "mma") == 0;
    static const int hows[] = {PLAIN, HINTED, HINTED | IN_TWO, APART};
    for (size_t k = 0; k < N_ROWS; k++) {
        const int n = rows_of[k];
        for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
            if (hows[h] & APART && own)
                continue;
            run(c, 0, n, hows[h], y);
            for (int i = 0; i < N_OUT; i++)
                kr_same("rows together, rows alone", y[i], alone[i], (size_t)(n * c->n_out[i]),
                        (size_t)c->n_out[i]);
        }
        run(c, 0, n, CHANGED, y);
        for (int i = 0; i < N_OUT; i++)
            memcpy(changed[i], y[i], (size_t)(n * c->n_out[i]) * sizeof(float));
        assert_true(kr_differ(NULL, changed[0], alone[0], (size_t)(n * c->n_out[0]),
                              (size_t)c->n_out[0]) > 0);
        run(c, 0, n, CHANGED | HINTED, y);
        for (int i = 0; i < N_OUT; i++)
            kr_same("a row changed behind its linear", y[i], changed[i], (size_t)(n * c->n_out[i]),
                    (size_t)c->n_out[i]);
    }
    for (int i = 0; i < N_OUT; i++)
        free(alone[i]), free(y[i]), free(changed[i]);
}

static void widths(void **state) {
    (void)state;
    static const int dims[] = {16, 40, 96, 576, 2048, 2560, 4112, 9216};
    static const ls_dtype types[][N_OUT + 1] = {{LS_BF16, LS_BF16, LS_BF16},
                                                {LS_BF16, LS_F32, LS_BF16},
                                                {LS_Q8_0, LS_Q8_0, LS_Q4_K},
                                                {LS_Q4_K, LS_BF16, LS_Q8_0}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t t = 0; t < (dims[i] % 256 ? 2 : sizeof types / sizeof *types); t++) {
            ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
            chain c;
            chain_open(&c, be, dims[i], t % 2 ? LS_F32 : LS_BF16, types[t]);
            chain_is_one(&c);
            chain_close(&c);
            ls_backend_destroy(be);
        }
}

/* Operands that do not belong together are refused. */
static void refused(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 1);
    const ls_dtype t[] = {LS_BF16, LS_BF16, LS_BF16};
    chain c;
    chain_open(&c, be, 64, LS_F32, t);
    for (int wrong = 0; wrong < 4; wrong++) {
        ls_rmsnorm_args norm = {.x = c.row,
                                .w = c.norm_w,
                                .w_dtype = LS_F32,
                                .y = c.normed,
                                .eps = EPS,
                                .n_rows = wrong == 1 ? 2 : 1,
                                .dim = wrong == 2 ? 48 : 64,
                                .add = wrong == 3 ? c.row : NULL};
        const ls_linear_args a = {
            .w = c.w[0], .x = wrong == 0 ? c.row : c.normed, .y = c.y[0], .n_rows = 1};
        ls_err err;
        be->norm_linears(be, &norm, &a, 1);
        assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    }
    chain_close(&c);
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(widths), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
