/* A sliding window, bits: a row of L keys gives what it would give alone over its last min(L, W)
 * keys, in every layout, whatever rides along; what lies before the window is never read; and a
 * window that leaves nothing out is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "attn_rig.h"
#include "kernel_rig.h"

static const ls_chunk_rule rules[] = {{LS_CHUNK_EVEN, 32, 64},
                                      {LS_CHUNK_EVEN, 5, 3},
                                      {LS_CHUNK_DOUBLING, 8, 4},
                                      {LS_CHUNK_SPLITS, 0, 1},
                                      {LS_CHUNK_SPLITS, 0, 3}};
static const int windows[] = {1, 7, 32, 33, 100, 513};
enum { N_RULES = sizeof rules / sizeof *rules, N_WINDOWS = sizeof windows / sizeof *windows };

static ls_backend *be, *two;

/* The keys of `whole` from the first on, as a case of their own. */
static ar_case tail_of(const ar_case *whole, int first) {
    ar_case c;
    const size_t row = (size_t)(whole->G * whole->E) * ls_dtype_bytes(whole->t);
    ar_case_init(&c, whole->H, whole->G, whole->E, whole->T - first, whole->t, 1, 1.0f);
    memcpy(c.k, (char *)whole->k + (size_t)first * row, (size_t)c.T * row);
    memcpy(c.v, (char *)whole->v + (size_t)first * row, (size_t)c.T * row);
    return c;
}

/* The oracle is attention without a window, over fewer keys; other layouts give the same. */
static void last_keys(void **unused) {
    (void)unused;
    static const int lengths[] = {1, 6, 7, 8, 33, 100, 130, 700};
    for (int i = 0; i < 8; i++)
        for (int w = 0; w < N_WINDOWS; w++)
            for (int u = 0; u < N_RULES; u++) {
                ar_case c;
                const int L = lengths[i], W = windows[w] < L ? windows[w] : L, H = 4, E = 24;
                const size_t n = (size_t)(H * E);
                const int32_t all[1] = {L}, some[1] = {W};
                ar_case_init(&c, H, 2, E, L, (ls_dtype)((i + u) % 3), 9, 2.0f);
                ar_case tail = tail_of(&c, L - W);
                float *q = ar_queries(&c, 1), *want = kr_alloc(n * 4), *got = kr_alloc(n * 4);
                ar_layout short_one = ar_contiguous(&tail, 1, 2), flat = ar_contiguous(&c, 1, 3);
                ar_run(be, &tail, &short_one, rules[u], some, 1, q, want);
                c.window = windows[w];
                ar_run(be, &c, &flat, rules[u], all, 1, q, got);
                if (!rig_on_gpu() || rig_on_ieee()) /* profile mma has another form without one */
                    kr_same("window, the last keys alone", got, want, n, (size_t)E);
                memcpy(want, got, n * 4);
                ar_layout other[5] = {ar_paged(&c, 1, 1), ar_paged(&c, 1, 7), ar_paged(&c, 1, 16),
                                      ar_tree(&c, 1, L / 2), ar_tree(&c, 1, L > 3 ? L - 3 : 0)};
                for (int o = 0; o < 5; o++) {
                    ar_run(be, &c, &other[o], rules[u], all, 1, q, got);
                    kr_same(o < 3 ? "paged, contiguous" : "tree, contiguous", got, want, n,
                            (size_t)E);
                    ar_layout_free(&other[o]);
                }
                ar_layout_free(&short_one), ar_layout_free(&flat);
                free(q), free(want), free(got), ar_case_free(&c), ar_case_free(&tail);
            }
}

static void long_window_is_none(void **unused) {
    (void)unused;
    if (rig_on_gpu() && !rig_on_ieee())
        skip(); /* there a windowed launch takes another form, whatever its length */
    static const int32_t lengths[] = {1, 31, 33, 200, 2049};
    for (int i = 0; i < 5; i++)
        for (int u = 0; u < N_RULES; u++) {
            ar_case c;
            const int32_t L = lengths[i];
            ar_case_init(&c, 3, 1, 16, L, (ls_dtype)(u % 3), 19, 2.0f);
            float *q = ar_queries(&c, 1), none[48], got[48];
            ar_layout flat = ar_contiguous(&c, 1, 0);
            ar_run(be, &c, &flat, rules[u], &L, 1, q, none);
            const int32_t wide[] = {L, L + 1, INT32_MAX};
            for (int w = 0; w < 3; w++) {
                c.window = wide[w];
                ar_run(be, &c, &flat, rules[u], &L, 1, q, got);
                kr_same("a long window, none", got, none, 48, 16);
            }
            c.window = L - 1; /* negative control: one key less is another result */
            if (L > 1) {
                ar_run(be, &c, &flat, rules[u], &L, 1, q, got);
                assert_true(kr_differ(NULL, got, none, 48, 16) > 20);
            }
            ar_layout_free(&flat), free(q), ar_case_free(&c);
        }
}

/* Every width 1..16 over rows whose lengths go past the window, each row against itself alone. */
static void widths(void **unused) {
    (void)unused;
    enum { R = 16, H = 6, E = 32, T = 90 };
    for (int w = 0; w < 4; w++)
        for (int u = 0; u < N_RULES; u++) {
            ar_case c;
            int32_t length[R];
            ar_case_init(&c, H, 2, E, T, (ls_dtype)(w % 3), 15, 2.0f);
            c.window = windows[w];
            float *q = ar_queries(&c, R), *all = kr_alloc(R * H * E * 4), alone[H * E];
            for (int r = 0; r < R; r++)
                length[r] = r % 5 == 4 ? r : 74 + r;
            for (int paged = 0; paged < 2; paged++) {
                ar_layout l = paged ? ar_paged(&c, R, 16) : ar_contiguous(&c, R, 1);
                for (int n = 1; n <= R; n++) {
                    ar_run(n % 2 ? be : two, &c, &l, rules[u], length, n, q, all);
                    for (int r = n > 2 ? n - 2 : 0; r < n; r++) {
                        ar_run(be, &c, &l, rules[u], length + r, 1, q + r * H * E, alone);
                        kr_same("together, alone", all + r * H * E, alone, H * E, E);
                    }
                }
                ar_layout_free(&l);
            }
            free(q), free(all), ar_case_free(&c);
        }
}

/* NaN before the window is not seen; NaN in its first key is. */
static void before_the_window(void **unused) {
    (void)unused;
    enum { E = 16, T = 80, W = 21 };
    for (int u = 0; u < N_RULES; u++)
        for (int nan_at = T - W - 1; nan_at <= T - W; nan_at++) {
            ar_case c;
            float got[2 * E];
            const int32_t L = T;
            ar_case_init(&c, 2, 1, E, T, LS_F32, 8, 2.0f);
            c.window = W;
            for (int k = nan_at == T - W ? nan_at : 0; k <= nan_at; k++)
                for (int e = 0; e < E; e++)
                    ((float *)c.k)[k * E + e] = ((float *)c.v)[k * E + e] = NAN;
            float *q = ar_queries(&c, 1);
            ar_layout flat = ar_contiguous(&c, 1, 0);
            ar_run(be, &c, &flat, rules[u], &L, 1, q, got);
            for (int e = 0; e < 2 * E; e++)
                assert_int_equal(isnan(got[e]) != 0, nan_at == T - W);
            ar_layout_free(&flat), free(q), ar_case_free(&c);
        }
}

static int open_backends(void **unused) {
    (void)unused;
    be = kr_backend(LS_SIMD_AUTO, 1);
    two = kr_backend(LS_SIMD_AUTO, 2);
    return 0;
}
static int close_backends(void **unused) {
    (void)unused;
    ls_backend_destroy(be), ls_backend_destroy(two);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_keys), cmocka_unit_test(long_window_is_none),
        cmocka_unit_test(widths), cmocka_unit_test(before_the_window)};
    return cmocka_run_group_tests_name("window_equal", tests, open_backends, close_backends);
}
