/* N-NORM, N-ROPE, N-SILU, N-EMB, N-KV against double, with bounds from the number of roundings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "kernel_rig.h"

static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};

static ls_backend *be;

/* The sum of squares has 22 + segments roundings, halved by the root; root, quotient, product. */
static void rmsnorm_near(void **state) {
    (void)state;
    static const int dims[] = {1,   2,   16,  31,  32,   33,   96,  160,
                               512, 513, 576, 2560, 4097, 8192, 8193, 9216};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t d = 0; d < 3; d++) {
            const int D = dims[i], R = 3;
            float *x = kr_alloc((size_t)(D * R) * sizeof *x),
                  *y = kr_alloc((size_t)(D * R) * sizeof *y);
            void *w = kr_weights((size_t)D, dtypes[d], 21, 2.0f);
            kr_fill(x, (size_t)(D * R), 22, 4.0f);
            for (int k = 0; k < D; k++)
                x[2 * D + k] *= 1e-12f; /* a row so small that eps decides */
            ls_rmsnorm_args a = {x, w, dtypes[d], y, 1e-5f, R, D, NULL};
            kr_rmsnorm(be, &a);
            kr_sync(be);
            const double steps = (22 + (D + 511) / 512 + 3) / 2.0 + 3;
            for (int r = 0; r < R; r++) {
                double sum = 0;
                for (int k = 0; k < D; k++)
                    sum += (double)x[r * D + k] * (double)x[r * D + k];
                const double root = sqrt(sum / D + (double)1e-5f);
                for (int k = 0; k < D; k++) {
                    const double want =
                        (double)x[r * D + k] / root * kr_value(w, (size_t)k, dtypes[d]);
                    kr_near("rmsnorm", (double)y[r * D + k], want,
                            steps * 0x1p-24 * fabs(want) + 0x1p-149);
                }
            }
            /* with a residual: one rounding more, in place */
            float *z = kr_alloc((size_t)(D * R) * sizeof *z);
            kr_fill(z, (size_t)(D * R), 23, 4.0f);
            float *sum = kr_alloc((size_t)(D * R) * sizeof *sum);
            memcpy(sum, z, (size_t)(D * R) * sizeof *sum);
            a.y = sum, a.add = sum;
            kr_rmsnorm(be, &a);
            kr_sync(be);
            for (int k = 0; k < D * R; k++) {
                const double want = (double)y[k] + (double)z[k];
                kr_near("rmsnorm and residual", (double)sum[k], want, 0x1p-24 * fabs(want));
            }
            free(x), free(y), free(z), free(sum), free(w);
        }
}

/* In place as apart. So wide that the blocks of a GPU which would share a row do not all fit at
 * once: the later ones would read what the first have written. */
static void rmsnorm_in_place(void **state) {
    (void)state;
    static const int rows[] = {1, 16, 17};
    const int D = 65536;
    void *w = kr_weights((size_t)D, LS_BF16, 24, 2.0f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = (size_t)rows[i] * (size_t)D;
        float *x = kr_alloc(n * sizeof *x), *y = kr_alloc(n * sizeof *y);
        kr_fill(x, n, 25, 4.0f);
        ls_rmsnorm_args a = {x, w, LS_BF16, y, 1e-5f, rows[i], D, NULL};
        kr_rmsnorm(be, &a);
        a.y = x;
        kr_rmsnorm(be, &a);
        kr_sync(be);
        kr_same("rmsnorm in place", x, y, n, (size_t)D);
        free(x), free(y);
    }
    free(w);
}

/* One rounding, and rows that ride along change nothing. */
static void bias_near(void **state) {
    (void)state;
    static const int dims[] = {1, 31, 32, 33, 96, 513};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t d = 0; d < 3; d++) {
            const int D = dims[i], R = 3;
            const size_t n = (size_t)(D * R);
            float *y = kr_alloc(n * sizeof *y), *y0 = kr_alloc(n * sizeof *y0);
            float *one = kr_alloc((size_t)D * sizeof *one);
            void *b = kr_weights((size_t)D, dtypes[d], 71, 2.0f);
            kr_fill(y0, n, 72, 4.0f), memcpy(y, y0, n * sizeof *y);
            memcpy(one, y0 + D, (size_t)D * sizeof *one);
            kr_bias(be, &(ls_bias_args){y, b, dtypes[d], R, D});
            kr_bias(be, &(ls_bias_args){one, b, dtypes[d], 1, D});
            kr_sync(be);
            for (size_t k = 0; k < n; k++) {
                const double want = (double)y0[k] + kr_value(b, k % (size_t)D, dtypes[d]);
                kr_near("bias", (double)y[k], want, 0x1p-24 * fabs(want));
            }
            kr_same("bias of one row", one, y + D, (size_t)D, (size_t)D);
            free(y), free(y0), free(one), free(b);
        }
}

static void rope_near(void **state) {
    (void)state;
    static const int widths[] = {2, 8, 12, 64, 66, 128, 256};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int E = widths[i], H = 3, G = 1, R = 4, P = 50, half = E / 2;
        const int32_t pos[4] = {0, 49, 50, -1}; /* two rows lie outside the tables */
        float *q = kr_alloc((size_t)(R * H * E) * 4), *q0 = kr_alloc((size_t)(R * H * E) * 4);
        float *k = kr_alloc((size_t)(R * G * E) * 4), *k0 = kr_alloc((size_t)(R * G * E) * 4);
        float *c = kr_alloc((size_t)(P * half) * 4), *s = kr_alloc((size_t)(P * half) * 4);
        kr_fill(q0, (size_t)(R * H * E), 31, 3.0f), memcpy(q, q0, (size_t)(R * H * E) * 4);
        kr_fill(k0, (size_t)(R * G * E), 32, 3.0f), memcpy(k, k0, (size_t)(R * G * E) * 4);
        for (int p = 0; p < P; p++)
            for (int e = 0; e < half; e++) {
                c[p * half + e] = (float)cos(p * pow(10000.0, -2.0 * e / E));
                s[p * half + e] = (float)sin(p * pow(10000.0, -2.0 * e / E));
            }
        ls_rope_args a = {q, k, pos, c, s, R, H, G, E, P};
        kr_rope(be, &a);
        kr_sync(be);
        for (int r = 0; r < R; r++)
            for (int h = 0; h < H + G; h++) {
                const float *was = h < H ? q0 + (r * H + h) * E : k0 + r * E;
                const float *now = h < H ? q + (r * H + h) * E : k + r * E;
                if (pos[r] < 0 || pos[r] >= P) {
                    kr_same("a position outside the table", now, was, (size_t)E, (size_t)E);
                    continue;
                }
                for (int e = 0; e < half; e++) {
                    const double u = (double)was[e], v = (double)was[e + half];
                    const double co = (double)c[pos[r] * half + e],
                                 si = (double)s[pos[r] * half + e];
                    const double bound = 2.01 * 0x1p-24 * (fabs(u) + fabs(v));
                    kr_near("rope, first half", (double)now[e], u * co - v * si, bound);
                    kr_near("rope, second half", (double)now[e + half], v * co + u * si, bound);
                }
            }
        free(q), free(q0), free(k), free(k0), free(c), free(s);
    }
}

/* exp within an ulp, then the sum, the quotient and the product: five roundings at most. */
static void silu_near(void **state) {
    (void)state;
    const int F = 101, R = 2;
    float g[202], u[202], h[202];
    kr_fill(g, 202, 41, 20.0f);
    kr_fill(u, 202, 42, 3.0f);
    g[7] = 0.0f, g[8] = -200.0f, g[9] = 200.0f, g[10] = -87.5f, g[11] = -0.0f;
    ls_silu_mul_args a = {g, u, h, R, F};
    kr_silu_mul(be, &a);
    kr_sync(be);
    for (int i = 0; i < F * R; i++) {
        const double want = (double)g[i] / (1 + exp(-(double)g[i])) * (double)u[i];
        kr_near("silu", (double)h[i], want, 5 * 0x1p-24 * fabs(want) + 0x1p-126);
    }
    a.h = g; /* in place */
    float kept[202];
    memcpy(kept, h, sizeof h);
    kr_silu_mul(be, &a);
    kr_same("silu in place", g, kept, 202, (size_t)F);
}

/* Errors of N-GELU: t by 3.5 roundings, exp by an ulp, then sum, quotient and product. */
static void gelu_near(void **state) {
    (void)state;
    const int F = 101, R = 2;
    float g[202], u[202], h[202];
    kr_fill(g, 202, 43, 9.0f);
    kr_fill(u, 202, 44, 3.0f);
    g[7] = 0.0f, g[8] = -200.0f, g[9] = 200.0f, g[10] = -11.5f, g[11] = -0.0f, g[12] = 1e30f;
    g[13] = -1e30f, g[14] = 1e-30f;
    ls_gelu_mul_args a = {g, u, h, R, F};
    kr_gelu_mul(be, &a);
    kr_sync(be);
    for (int i = 0; i < F * R; i++) {
        const double x = (double)g[i];
        const double inner = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
        const double want = x / (1 + exp(-2 * inner)) * (double)u[i];
        const double slope = (2 + 3.5 * fabs(2 * inner)) / (1 + exp(2 * inner));
        kr_near("gelu", (double)h[i], want,
                (5 + (slope < 1e4 ? slope : 1e4)) * 0x1p-24 * fabs(want) + 0x1p-122);
    }
    a.h = g; /* in place */
    float kept[202];
    memcpy(kept, h, sizeof h);
    kr_gelu_mul(be, &a);
    kr_same("gelu in place", g, kept, 202, (size_t)F);
}

static void embed_exact(void **state) {
    (void)state;
    const int D = 45, V = 9;
    const int32_t token[4] = {8, 0, 9, -1};
    for (size_t d = 0; d < 3; d++) {
        void *table = kr_weights((size_t)(D * V), dtypes[d], 51, 1.0f);
        float x[4 * 45];
        ls_embed_args a = {{table, dtypes[d], V, D}, token, x, 4, 0};
        kr_embed(be, &a);
        kr_sync(be);
        for (int r = 0; r < 4; r++)
            for (int k = 0; k < D; k++) {
                const int known = token[r] >= 0 && token[r] < V;
                const double want =
                    known ? kr_value(table, (size_t)(token[r] * D + k), dtypes[d]) : 0;
                kr_near("embed", (double)x[r * D + k], want, 0.0);
            }
        a.scale = 25.25f;
        kr_embed(be, &a);
        kr_sync(be);
        for (int r = 0; r < 4; r++)
            for (int k = 0; k < D; k++) {
                const int known = token[r] >= 0 && token[r] < V;
                const double want =
                    known ? 25.25 * kr_value(table, (size_t)(token[r] * D + k), dtypes[d]) : 0;
                kr_near("scaled embed", (double)x[r * D + k], want, 0x1p-24 * fabs(want));
            }
        free(table);
    }
}

/* Rounding to the cache's type: nothing representable is nearer, and a tie goes to the even one. */
static void kv_store_rounds(void **state) {
    (void)state;
    enum { N = 4096 };
    static float k[N], v[N];
    for (int i = 0; i < N; i++) {
        k[i] = ldexpf(kr_uniform(61, (size_t)i), i % 55 - 40);
        uint32_t u = 0x38000000u + (uint32_t)i * 0x1000u; /* ties and exact values of f16 */
        memcpy(&v[i], &u, sizeof u);
    }
    for (int d = 1; d < 3; d++) {
        static uint16_t kp[3 * N], vp[3 * N];
        memset(kp, 0xff, sizeof kp), memset(vp, 0xff, sizeof vp);
        const int32_t slot[1] = {1};
        ls_kv_store_args a = {k, v, kp, vp, slot, dtypes[d], 1, 1, N, 3};
        kr_kv_store(be, &a);
        kr_sync(be);
        for (int i = 0; i < N; i++)
            for (int which = 0; which < 2; which++) {
                const double x = (double)(which ? v : k)[i];
                const uint16_t *p = (which ? vp : kp) + N, h = p[i];
                const double got = kr_value(p, (size_t)i, dtypes[d]), off = fabs(got - x);
                for (int step = -1; step <= 1; step += 2) { /* the two neighbours in magnitude */
                    if ((h & 0x7fff) == 0 && step < 0)
                        continue;
                    const uint16_t near = (uint16_t)(h + step);
                    const double other = fabs(kr_value(&near, 0, dtypes[d]) - x);
                    if (!(off < other || (off == other && h % 2 == 0)))
                        fail_msg("%a stored as %a", x, got);
                }
            }
        for (int i = 0; i < N; i++) /* the neighbouring slots are as they were */
            assert_true(kp[i] == 0xffff && kp[2 * N + i] == 0xffff && vp[i] == 0xffff);
        const float ends[4] = {INFINITY, -INFINITY, NAN, 3.0e38f};
        const int32_t two[1] = {2};
        a = (ls_kv_store_args){ends, ends, kp, vp, two, dtypes[d], 1, 1, 4, 3};
        kr_kv_store(be, &a);
        const uint16_t inf = dtypes[d] == LS_F16 ? 0x7c00 : 0x7f80;
        assert_int_equal(kp[8], inf);
        assert_int_equal(kp[9], 0x8000 | inf);
        assert_true((kp[10] & 0x7fff) > inf);
        assert_int_equal(kp[11], dtypes[d] == LS_F16 ? inf : 0x7f62);
    }
}

static void kv_store_outside(void **state) {
    (void)state;
    float k[4] = {1, 2, 3, 4}, pool[2][4] = {{9, 9, 9, 9}, {9, 9, 9, 9}}, same[2][4];
    memcpy(same, pool, sizeof pool);
    const int32_t slot[2] = {-1, 2};
    ls_kv_store_args a = {k, k, pool, pool, slot, LS_F32, 2, 1, 2, 2};
    kr_kv_store(be, &a);
    kr_sync(be);
    assert_memory_equal(pool, same, sizeof pool);
}

static int open_backend(void **state) {
    (void)state;
    be = kr_backend(LS_SIMD_AUTO, 0);
    return 0;
}
static int close_backend(void **state) {
    (void)state;
    ls_backend_destroy(be);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_near),    cmocka_unit_test(rmsnorm_in_place),
        cmocka_unit_test(bias_near),       cmocka_unit_test(rope_near),
        cmocka_unit_test(silu_near),       cmocka_unit_test(gelu_near),
        cmocka_unit_test(embed_exact),     cmocka_unit_test(kv_store_rounds),
        cmocka_unit_test(kv_store_outside)};
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
