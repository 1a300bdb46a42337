/* N-LIN against a sum in double. A product passes at most 16 fma of its lane, 5 butterfly additions
 * and one addition a segment, each with a relative error of 2^-24: |error| <= n 2^-24 sum |w x|.
 * Profile mma, bf16, Q8_0 and Q4_K weights (N-MMA, N-MMAQ): x is rounded to bf16 first; a step has
 * at most 17 terms, each cut at 2^-24 of the largest or better. MMA.md counts what a product
 * passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "kernel_rig.h"

/* Terms and roundings inside a segment in profile mma; of Q4_K one more, for an oracle that has its
 * weights rounded. 0: N-LIN. */
static int in_segment(ls_dtype t) {
    return t == LS_BF16 ? 32 * 17 : t == LS_Q8_0 ? 2 * 17 + 16 : t == LS_Q4_K ? 110 + 1 : 0;
}

static void against_double(void **state) {
    (void)state;
    static const int hidden[] = {1,   2,   16,  31,  32,  33,   96,   256,
                                 511, 512, 513, 576, 768, 2560, 4097, 8960};
    static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_Q8_0, LS_Q4_K};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const int K = hidden[i], N = 29, R = 3;
            if (K % (int)ls_dtype_block(dtypes[d]) != 0)
                continue; /* rows of packed weights are whole blocks */
            const size_t n_w = (size_t)N * (size_t)K, n_x = (size_t)R * (size_t)K;
            void *w = kr_weights(n_w, dtypes[d], 11, 1.0f);
            float *x = kr_alloc(n_x * sizeof *x), y[29 * 3], add[29 * 3];
            kr_fill(x, n_x, 12, 3.0f);
            kr_fill(add, 29 * 3, 13, 5.0f);
            ls_linear_args a = {.w = {w, dtypes[d], N, K}, .x = x, .y = y, .add = add, .n_rows = R};
            kr_linear(be, &a);
            kr_sync(be);
            const bool mma = strcmp(be->profile, "mma") == 0 && in_segment(dtypes[d]);
            const double steps = (mma ? in_segment(dtypes[d]) : 16 + 5) + (K + 511) / 512 + 2;
            for (int r = 0; r < R; r++)
                for (int n = 0; n < N; n++) {
                    double sum = add[r * N + n], size = fabs(sum);
                    for (int k = 0; k < K; k++) {
                        const size_t at = (size_t)n * (size_t)K + (size_t)k;
                        const double v = (double)x[r * K + k], xk = mma ? kr_to_bf16(v) : v;
                        const double p = kr_value(w, at, dtypes[d]) * xk;
                        sum += p;
                        size += mma ? kr_size(w, at, dtypes[d]) * fabs(xk) : fabs(p);
                    }
                    kr_near("linear", (double)y[r * N + n], sum, steps * 0x1p-24 * size * 1.001);
                }
            free(w), free(x);
        }
    ls_backend_destroy(be);
}

/* Linears of a norm: y = sum_k w[n, k] norm_w[k] x[k] / root. The norm's elements pass a division
 * and a product, and the root's relative error is at most half that of a sum of squares, (16 + 5 +
 * segments) 2^-24: with the linear's own, |error| <= (n + 32) 2^-24 sum |w norm_w x| / root.
 * Profile mma, bf16 weights (N-MMAN): norm_w x is rounded to bf16 first. */
static void normed_against_double(void **state) {
    (void)state;
    static const int hidden[] = {16, 40, 96, 576, 2560, 4112, 8960};
    static const ls_dtype dtypes[] = {LS_F32, LS_BF16};
    enum { N = 29, R = 3 };
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 0);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const int K = hidden[i];
            const size_t n_x = (size_t)R * (size_t)K;
            const ls_mat host = {kr_weights((size_t)N * (size_t)K, dtypes[d], 21, 1.0f), dtypes[d],
                                 N, K};
            float *x = kr_alloc(n_x * sizeof *x), *norm_w = kr_alloc((size_t)K * sizeof *x),
                  y[N * R];
            kr_fill(x, n_x, 22, 3.0f);
            kr_fill(norm_w, (size_t)K, 23, 1.5f);
            void *x_d = kr_dev(be, x, n_x * sizeof *x), *y_d = kr_dev(be, NULL, sizeof y);
            void *w_d = kr_dev(be, norm_w, (size_t)K * sizeof *x);
            void *normed = kr_dev(be, NULL, n_x * sizeof *x);
            ls_err err;
            ls_linear_args a = {.x = normed, .y = y_d, .n_rows = R};
            assert_int_equal(be->mat(be, &host, &a.w, &err), LS_OK);
            assert_int_equal(be->weights_done(be, &err), LS_OK);
            const ls_rmsnorm_args norm = {
                .x = x_d, .w = w_d, .y = normed, .eps = 1e-5f, .n_rows = R, .dim = K};
            be->norm_linears(be, &norm, &a, 1);
            kr_sync(be);
            kr_down(be, y, y_d, sizeof y);
            const bool mma = strcmp(be->profile, "mma") == 0 && dtypes[d] == LS_BF16;
            const double steps = (mma ? 32 * 17 : 16 + 5) + (K + 511) / 512 + 2 + 32;
            for (int r = 0; r < R; r++) {
                double squares = 0;
                for (int k = 0; k < K; k++)
                    squares += (double)x[r * K + k] * (double)x[r * K + k];
                const double root = sqrt(squares / K + (double)1e-5f);
                for (int n = 0; n < N; n++) {
                    double sum = 0, size = 0;
                    for (int k = 0; k < K; k++) {
                        const double z = (double)x[r * K + k] * (double)norm_w[k];
                        /* the product is rounded to float before it is to bf16 */
                        const double p =
                            kr_value(host.data, (size_t)n * (size_t)K + (size_t)k, dtypes[d]) *
                            (mma ? kr_to_bf16((double)(float)z) : z);
                        sum += p;
                        size += fabs(p);
                    }
                    kr_near("linear of a norm", (double)y[r * N + n], sum / root,
                            steps * 0x1p-24 * size / root * 1.001);
                }
            }
            be->mat_free(be, &a.w);
            kr_free(be, x_d), kr_free(be, y_d), kr_free(be, w_d), kr_free(be, normed);
            free((void *)(uintptr_t)host.data), free(x), free(norm_w);
        }
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double),
                                       cmocka_unit_test(normed_against_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
