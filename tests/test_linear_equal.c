/* N-LIN, bits: every row equals the row alone, at any width, thread count, instruction set and
 * device, whatever the other rows hold, alone, recorded and beside other linears of its x; and
 * equals the order of additions written out below. Packed weights equal those weights as f32
 * (N-PACK). Profile mma (N-MMA, N-MMAQ) promises the rows, not that order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "kernel_rig.h"

#define MAX_ROWS 64

static const int hidden[] = {16, 32, 96, 160, 256, 576, 768, 2560, 4097};
static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_Q8_0, LS_Q4_K};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)
/* rows of packed weights are whole blocks */
static bool has_width(ls_dtype t, int K) {
    return K % (int)ls_dtype_block(t) == 0;
}

/* The order of N-LIN, one lane after another; `segment` is 512 in the specification. */
static float by_lanes(const void *w, ls_dtype t, size_t row, const float *x, int K, int segment) {
    float y = 0.0f;
    for (int k0 = 0; k0 < K; k0 += segment) {
        float lane[32] = {0}, next[32];
        for (int k = k0; k < K && k < k0 + segment; k++)
            lane[(k - k0) % 32] =
                fmaf((float)kr_value(w, row * (size_t)K + (size_t)k, t), x[k], lane[(k - k0) % 32]);
        for (int o = 16; o > 0; o /= 2) {
            for (int l = 0; l < 32; l++)
                next[l] = lane[l] + lane[l ^ o];
            memcpy(lane, next, sizeof lane);
        }
        y = k0 == 0 ? lane[0] : y + lane[0];
    }
    return y;
}

/* 1 to 17, 33, 64 */
static int next_width(int rows) {
    return rows < 17 ? rows + 1 : rows == 17 ? 33 : rows == 33 ? 64 : 65;
}

static void run(ls_backend *be, ls_mat w, const float *x, const float *add, float *y, int rows) {
    ls_linear_args a = {.w = w, .x = x, .y = y, .add = add, .n_rows = rows};
    kr_linear(be, &a);
    kr_sync(be);
}

static void widths(void **state) {
    (void)state;
    ls_backend *one = kr_backend(LS_SIMD_AUTO, 1), *two = kr_backend(LS_SIMD_AUTO, 2);
    ls_backend *form[KR_FORMS];
    const int n_forms = kr_forms(form);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (size_t d = 0; d < N_DTYPES; d++) {
            const int K = hidden[i], N = K > 2000 ? 53 : 131;
            if (!has_width(dtypes[d], K))
                continue;
            const size_t out = (size_t)N * MAX_ROWS;
            ls_mat w = {kr_weights((size_t)N * (size_t)K, dtypes[d], 1, 0.3f), dtypes[d], N, K};
            float *x = kr_alloc((size_t)K * MAX_ROWS * sizeof *x);
            float *add = kr_alloc(out * sizeof *add);
            float *alone = kr_alloc(out * sizeof *alone), *y = kr_alloc(out * sizeof *y);
            kr_fill(x, (size_t)K * MAX_ROWS, 2, 2.0f);
            kr_fill(add, out, 3, 1.0f);
            for (int r = 0; r < MAX_ROWS; r++) {
                const size_t at = (size_t)r * (size_t)N;
                run(one, w, x + (size_t)r * (size_t)K, add + at, alone + at, 1);
            }
            for (int rows = 1; rows <= MAX_ROWS; rows = next_width(rows)) {
                const size_t n = (size_t)N * (size_t)rows;
                run(one, w, x, add, y, rows);
                kr_same("rows together, rows alone", y, alone, n, (size_t)N);
                run(two, w, x, add, y, rows);
                kr_same("two threads, one", y, alone, n, (size_t)N);
            }
            memcpy(y, add, out * sizeof *y);
            run(two, w, x, y, y, MAX_ROWS);
            kr_same("the sum in place", y, alone, out, (size_t)N);
            for (int f = 0; f < n_forms && rig_on_ieee(); f++)
                for (int rows = 1; rows <= (f ? 16 : 5); rows += f ? 1 : 2) { /* plain C is slow */
                    run(form[f], w, x, add, y, rows);
                    kr_same(form[f]->device, y, alone, (size_t)N * (size_t)rows, (size_t)N);
                }
            free((void *)(uintptr_t)w.data);
            free(x), free(add), free(alone), free(y);
        }
    ls_backend_destroy(one), ls_backend_destroy(two);
    for (int f = 0; f < n_forms; f++)
        ls_backend_destroy(form[f]);
}

static void written_out(void **state) {
    (void)state;
    if (!rig_on_ieee())
        skip(); /* another profile, another order */
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (size_t d = 0; d < N_DTYPES; d++) {
            const int K = hidden[i], N = 37, R = 5;
            if (!has_width(dtypes[d], K))
                continue;
            ls_mat w = {kr_weights((size_t)N * (size_t)K, dtypes[d], 4, 0.3f), dtypes[d], N, K};
            float *x = kr_alloc((size_t)(K * R) * sizeof *x), y[37 * 5], want[37 * 5],
                  other[37 * 5];
            kr_fill(x, (size_t)(K * R), 5, 2.0f);
            run(be, w, x, NULL, y, R);
            for (int r = 0; r < R; r++)
                for (int n = 0; n < N; n++) {
                    want[r * N + n] = by_lanes(w.data, w.dtype, (size_t)n, x + r * K, K, 512);
                    other[r * N + n] = by_lanes(w.data, w.dtype, (size_t)n, x + r * K, K, 256);
                }
            kr_same("the order written out", y, want, (size_t)(N * R), (size_t)N);
            if (K > 512) /* negative control: another segment length is another sum */
                assert_true(kr_differ(NULL, y, other, (size_t)(N * R), (size_t)N) > 10);
            free((void *)(uintptr_t)w.data), free(x);
        }
    ls_backend_destroy(be);
}

/* Other rows hold NaN and infinity: a row does not see them. */
static void bad_neighbours(void **state) {
    (void)state;
    enum { K = 768, N = 37, SEEN = 3 };
    static const int widths_of[] = {8, 9, 16, 20, 64};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    float *x = kr_alloc(K * MAX_ROWS * sizeof *x), *y = kr_alloc(N * MAX_ROWS * sizeof *y);
    for (size_t d = 0; d < N_DTYPES; d++) {
        const ls_mat w = {kr_weights(N * K, dtypes[d], 8, 0.3f), dtypes[d], N, K};
        for (size_t i = 0; i < sizeof widths_of / sizeof *widths_of; i++) {
            const int rows = widths_of[i], at[SEEN] = {0, rows / 2, rows - 1};
            float alone[N];
            for (int s = 0; s < SEEN; s++) {
                for (int k = 0; k < K * rows; k++)
                    x[k] = k / K % 2 ? NAN : INFINITY;
                kr_fill(x + at[s] * K, K, 9 + (uint32_t)s, 2.0f);
                run(be, w, x + at[s] * K, NULL, alone, 1);
                run(be, w, x, NULL, y, rows);
                kr_same("a row among NaN", y + at[s] * N, alone, N, N);
                assert_true(isfinite(alone[0]));
            }
        }
        free((void *)(uintptr_t)w.data);
    }
    free(x), free(y);
    ls_backend_destroy(be);
}

/* Linears of one x whose weights are of several types, behind the norm that wrote x, as a pass has
 * them; then recorded and replayed with other rows. */
static void together(void **state) {
    (void)state;
    enum { K = 768, N = 37, R = 20 };
    static const ls_dtype mixes[][LS_LINEARS] = {
        {LS_Q4_K, LS_Q4_K, LS_Q8_0}, {LS_Q4_K, LS_F32, LS_Q4_K},  {LS_Q8_0, LS_Q8_0, LS_Q8_0},
        {LS_F16, LS_BF16, LS_Q8_0},  {LS_BF16, LS_BF16, LS_BF16}, {LS_F32, LS_Q8_0, LS_BF16}};
    static const int widths_of[] = {1, 5, 16, R};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    const size_t out = N * R * sizeof(float);
    float *x = kr_alloc(2 * K * R * sizeof *x), *norm = kr_alloc(K * R * sizeof *norm), gain[K];
    float want[LS_LINEARS][N * R], y[N * R];
    kr_fill(x, 2 * K * R, 21, 2.0f);
    kr_fill(gain, K, 22, 1.0f);
    float *x_d = kr_dev(be, x, K * R * sizeof *x), *norm_d = kr_dev(be, x, K * R * sizeof *x);
    float *gain_d = kr_dev(be, gain, sizeof gain), *y_d[LS_LINEARS];
    for (int i = 0; i < LS_LINEARS; i++)
        y_d[i] = kr_dev(be, NULL, out);
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++) {
        ls_mat w[LS_LINEARS], w_d[LS_LINEARS];
        ls_err err;
        for (int i = 0; i < LS_LINEARS; i++) {
            w[i] =
                (ls_mat){kr_weights(N * K, mixes[m][i], 23 + (uint32_t)i, 0.3f), mixes[m][i], N, K};
            assert_int_equal(be->mat(be, &w[i], &w_d[i], &err), LS_OK);
        }
        for (size_t k = 0; k < sizeof widths_of / sizeof *widths_of; k++) {
            const int rows = widths_of[k];
            const size_t n = (size_t)(N * rows);
            ls_graph *graph = NULL;
            ls_rmsnorm_args before = {.x = x_d, .w = gain_d, .w_dtype = LS_F32, .y = norm_d};
            before.eps = 1e-5f, before.n_rows = rows, before.dim = K;
            ls_linear_args a[LS_LINEARS];
            for (int i = 0; i < LS_LINEARS; i++)
                a[i] = (ls_linear_args){.w = w_d[i], .x = norm_d, .y = y_d[i], .n_rows = rows};
            for (int turn = 0; turn < (be->record ? 3 : 1); turn++) {
                const float *from = x + turn / 2 * K * R; /* at last with other rows */
                ls_rmsnorm_args alone = before;
                alone.x = from, alone.w = gain, alone.y = norm;
                kr_rmsnorm(be, &alone);
                for (int i = 0; i < LS_LINEARS; i++) {
                    run(be, w[i], norm, NULL, want[i], rows);
                    memset(y, 0xff, sizeof y);
                    kr_up(be, y_d[i], y, out);
                }
                kr_up(be, x_d, from, K * R * sizeof *x);
                if (turn == 1)
                    assert_int_equal(be->record(be, &err), LS_OK);
                if (turn < 2) {
                    be->rmsnorm(be, &before);
                    be->linears(be, a, LS_LINEARS);
                }
                if (turn == 1)
                    assert_int_equal(be->record_end(be, &graph, &err), LS_OK);
                if (turn > 0)
                    assert_int_equal(be->replay(be, graph, &err), LS_OK);
                kr_sync(be);
                for (int i = 0; i < LS_LINEARS; i++) {
                    kr_down(be, y, y_d[i], out);
                    kr_same("beside others, alone", y, want[i], n, N);
                }
            }
            if (graph)
                be->graph_free(be, graph);
        }
        for (int i = 0; i < LS_LINEARS; i++) {
            be->mat_free(be, &w_d[i]);
            free((void *)(uintptr_t)w[i].data);
        }
    }
    for (int i = 0; i < LS_LINEARS; i++)
        kr_free(be, y_d[i]);
    kr_free(be, x_d), kr_free(be, norm_d), kr_free(be, gain_d);
    free(x), free(norm);
    ls_backend_destroy(be);
}

/* Packed weights at any address, and the same weights as f32: linear and embedding. */
static void packed_is_widened(void **state) {
    (void)state;
    enum { N = 41, R = 16, WIDEST = 2560 };
    ls_backend *form[KR_FORMS + 1];
    int n_forms = rig_on_gpu() ? 0 : kr_forms(form);
    form[n_forms++] = kr_backend(LS_SIMD_AUTO, 2);
    float *x = kr_alloc(WIDEST * R * sizeof *x), y[N * R], want[N * R];
    float *row = kr_alloc(WIDEST * 6 * sizeof *row);
    const int32_t token[6] = {0, N - 1, 7, -1, N, 7};
    kr_fill(x, WIDEST * R, 31, 2.0f);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (size_t d = 3; d < N_DTYPES; d++) {
            const int K = hidden[i];
            if (!has_width(dtypes[d], K))
                continue;
            const size_t n = (size_t)N * (size_t)K, bytes = ls_dtype_span(dtypes[d], n);
            void *w = kr_weights(n, dtypes[d], 30 + (uint32_t)d, 0.3f);
            uint8_t *odd = kr_alloc(bytes + 1);
            float *wide = kr_alloc(n * sizeof *wide);
            memcpy(odd + 1, w, bytes);
            for (size_t k = 0; k < n; k++)
                wide[k] = (float)kr_value(w, k, dtypes[d]);
            for (int f = 0; f < n_forms; f++)
                for (int rows = 1; rows <= R; rows += rows < 9 ? 1 : 7) {
                    const size_t out = (size_t)(N * rows);
                    const ls_mat p = {f % 2 ? w : odd + 1, dtypes[d], N, K};
                    run(form[f], (ls_mat){wide, LS_F32, N, K}, x, NULL, want, rows);
                    run(form[f], p, x, NULL, y, rows);
                    if (rig_on_ieee())
                        kr_same(form[f]->device, y, want, out, N);
                    ls_embed_args e = {p, token, row, 6, 0.0f};
                    kr_embed(form[f], &e);
                    kr_sync(form[f]);
                    for (int r = 0; r < 6; r++) {
                        float *got = row + r * K;
                        if (token[r] >= 0 && token[r] < N)
                            kr_same("embedding", got, wide + token[r] * K, (size_t)K, (size_t)K);
                        else
                            for (int k = 0; k < K; k++)
                                assert_true(got[k] == 0.0f);
                    }
                }
            free(w), free(odd), free(wide);
        }
    for (int f = 0; f < n_forms; f++)
        ls_backend_destroy(form[f]);
    free(x), free(row);
}

/* A row that is no whole number of blocks is refused, by the linear and by the embedding. */
static void parts_of_blocks(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 1);
    float x[512] = {0}, y[4];
    const int32_t token[1] = {0};
    static const int widths_of[][2] = {{48, 128}, {31, 384}, {33, 32}};
    for (size_t i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            ls_err err = {0};
            const ls_mat w = {x, j ? LS_Q4_K : LS_Q8_0, 1, widths_of[i][j]};
            const ls_linear_args a = {.w = w, .x = x, .y = y, .n_rows = 1};
            be->linear(be, &a);
            assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
            assert_non_null(strstr(err.msg, j ? "rows of q4_k are multiples of 256"
                                              : "rows of q8_0 are multiples of 32"));
            const ls_embed_args e = {w, token, y, 1, 0.0f};
            be->embed(be, &e);
            assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
        }
    ls_backend_destroy(be);
}

/* What lies behind the rows is read by nobody: the ends are guarded by NaN. */
static void guarded_ends(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 1);
    const int K = 45, N = 7;
    float *w = kr_alloc((size_t)(K * N + 64) * sizeof *w),
          *x = kr_alloc((size_t)(K + 64) * sizeof *x), y[7];
    kr_fill(w, (size_t)(K * N), 6, 1.0f);
    kr_fill(x, (size_t)K, 7, 1.0f);
    run(be, (ls_mat){w, LS_F32, N, K}, x, NULL, y, 1);
    for (int n = 0; n < N; n++)
        assert_true(isfinite(y[n]));
    free(w), free(x);
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(widths),
                                       cmocka_unit_test(written_out),
                                       cmocka_unit_test(bad_neighbours),
                                       cmocka_unit_test(together),
                                       cmocka_unit_test(packed_is_widened),
                                       cmocka_unit_test(parts_of_blocks),
                                       cmocka_unit_test(guarded_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
