/* N-STAT against sorting and double precision. The float y = (x - max) / T is part of the
 * definition (what is kept is a set of y), so the oracle forms it so; the rest is its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "draw.h"
#include "kernel_rig.h"

static const int sizes[] = {1, 2, 31, 32, 33, 1023, 1025, 128256};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static ls_backend *be;

static ls_row_stats stats_of(const float *x, int n, int ld, ls_warp warp, ls_draw draw, int n_top) {
    ls_row_stats st;
    memset(&st, 0xff, sizeof st);
    ls_stats_args a = {x, ld, n, &warp, &draw, n_top, &st, 1, 0, NULL};
    kr_stats(be, &a);
    kr_sync(be);
    return st;
}

/* A sum of non-negative floats over n tokens passes at most this many roundings. */
static double roundings(int n) {
    return 16 + 5 + n / 512 + 1;
}

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The floor must be the smallest y kept, by each filter in turn. */
static void check_floor(const ls_row_stats *st, const float *sorted, int n, ls_warp w) {
    int kept = n;
    if (w.top_k > 0 && w.top_k < n)
        for (kept = w.top_k; kept < n && sorted[kept] == sorted[w.top_k - 1];)
            kept++;
    if (w.top_p < 1.0f) {
        double total = 0, mass = 0;
        const double slack = 2 * roundings(n) * 0x1p-24 + 0x1p-22;
        int end = 0, found = 0;
        for (int i = 0; i < kept; i++)
            total += exp((double)sorted[i]);
        while (end < kept && !found) { /* whole groups of equal y */
            const double before = mass;
            const float y = sorted[end];
            for (; end < kept && sorted[end] == y; end++)
                mass += exp((double)y);
            if (y == st->floor || (w.min_p > 0 && mass >= (double)w.top_p * total)) {
                assert_true(w.min_p > 0 || mass >= (double)w.top_p * total * (1 - slack));
                assert_true(before == 0 || before < (double)w.top_p * total * (1 + slack));
                found = 1;
            }
        }
        assert_true(found);
        kept = end;
    }
    if (w.min_p > 0)
        while (kept > 1 && exp((double)sorted[kept - 1]) < (double)w.min_p * (1 - 0x1p-22))
            kept--;
    if (kept == n && st->floor == -INFINITY)
        return;
    if (w.min_p > 0) /* within the error of exp, the edge may be a neighbour */
        assert_true(fabs((double)(st->floor - sorted[kept - 1])) <= 1e-6 || w.top_p < 1);
    else
        assert_true(st->floor == sorted[kept - 1]);
}

static void check_row(const float *x, int n, int ld, ls_warp w, uint32_t position) {
    const ls_draw draw = ls_draw_key(7, 2, position, LS_DRAW_TEST, 0);
    const ls_row_stats st = stats_of(x, n, ld, w, draw, LS_TOP_MAX);
    const int greedy = w.temperature < LS_TEMPERATURE_MIN;
    float *y = kr_alloc((size_t)n * 4), *sorted = kr_alloc((size_t)n * 4);
    int best = 0;
    float second = -INFINITY;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    for (int i = 0; i < n; i++)
        second = i != best && x[i] > second ? x[i] : second;
    assert_int_equal(st.flags, 0);
    assert_int_equal(st.argmax, best);
    assert_true(st.max == x[best] && st.temp == (greedy ? 1.0f : w.temperature));
    assert_true(n == 1 ? st.margin == INFINITY : st.margin == x[best] - second);
    for (int i = 0; i < n; i++)
        sorted[i] = y[i] = (x[i] - x[best]) / st.temp;
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    if (greedy)
        assert_true(st.floor == -INFINITY);
    else
        check_floor(&st, sorted, n, w);

    double sum = 0, weighted = 0, top = -INFINITY, next = -INFINITY;
    int drawn = -1, listed = 0;
    for (int i = 0; i < n; i++) {
        if (!(y[i] >= st.floor))
            continue;
        const double e = exp((double)y[i]);
        sum += e;
        weighted += e > 0 ? e * (double)y[i] : 0;
        const double v = (double)y[i] - log(-log((double)ls_draw_uniform(&draw, (uint32_t)i)));
        listed += e > 0;
        if (v > top) {
            next = top;
            top = v;
            drawn = i;
        } else {
            next = v > next ? v : next;
        }
    }
    const double rel = roundings(n) * 0x1p-24 + 0x1p-23, entropy = log(sum) - weighted / sum;
    kr_near("sum", (double)st.sum, sum, rel * sum);
    kr_near("entropy", (double)st.entropy, entropy,
            4 * rel * (1 + log((double)n) - weighted / sum));
    if (greedy)
        assert_int_equal(st.token, best);
    else if (top - next > 1e-5) /* log and the sum round: a nearer race is nobody's error */
        assert_int_equal(st.token, drawn);
    else
        assert_true(st.token >= 0 && st.token < n && y[st.token] >= st.floor);

    kr_near("probability of the token", (double)st.token_prob, exp((double)y[st.token]) / sum,
            (rel + 0x1p-22) * exp((double)y[st.token]) / sum);
    assert_int_equal(st.n_top, listed < LS_TOP_MAX ? listed : LS_TOP_MAX);
    for (int i = 0; i < st.n_top; i++) {
        const int t = st.top_token[i];
        kr_near("top probability", (double)st.top_prob[i], exp((double)y[t]) / sum,
                (rel + 0x1p-22) * exp((double)y[t]) / sum);
        assert_true(y[t] == sorted[i]);
        if (i) {
            const int b = st.top_token[i - 1];
            assert_true(x[b] > x[t] || (x[b] == x[t] && b < t));
        }
    }
    float *prob = kr_alloc((size_t)n * 4);
    ls_probs_args p = {x, &st, prob, ld, n, 1};
    kr_probs(be, &p);
    kr_sync(be);
    for (int i = 0; i < n; i++)
        kr_near("probability", (double)prob[i], y[i] >= st.floor ? exp((double)y[i]) / sum : 0,
                (rel + 0x1p-22) * exp((double)y[i]) / sum + 0x1p-149);
    free(y), free(sorted), free(prob);
}

static void random_rows(void **state) {
    (void)state;
    static const ls_warp warps[] = {{0, 0, 1, 0},         {1, 0, 1, 0},       {0.7f, 40, 1, 0},
                                    {1, 1, 1, 0},         {1.3f, 0, 0.9f, 0}, {0.8f, 0, 0.0f, 0},
                                    {1, 0, 0.9999f, 0},   {1, 0, 1, 0.05f},   {0.9f, 20, 0.8f, 0},
                                    {1, 50, 0.95f, 0.02f}};
    for (int i = 0; i < N_SIZES; i++)
        for (int k = 0; k < 10; k++) {
            const int n = sizes[i], ld = n + 5;
            if (n > 100000 && k % 3)
                continue;
            float *x = kr_alloc((size_t)ld * 4);
            kr_fill(x, (size_t)ld, (uint32_t)(k + 1), 10.0f);
            for (int t = 0; t < n; t++) /* coarse values on every other row: ties everywhere */
                x[t] = k % 2 ? x[t] : floorf(x[t]);
            for (int t = n; t < ld; t++)
                x[t] = 200.0f; /* padded vocabulary: larger, and not there */
            if (n > 40)
                x[3] = -INFINITY;
            check_row(x, n, ld, warps[k], (uint32_t)k);
            free(x);
        }
}

static void equal_maxima(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        const int n = sizes[i];
        float *x = kr_alloc((size_t)n * 4);
        const ls_warp greedy = {0, 0, 1, 0};
        const ls_draw draw = ls_draw_key(1, 0, 0, LS_DRAW_TEST, 0);
        for (int where = 0; where < 3; where++) {
            const int a = where == 0 ? 0 : where == 1 ? n / 2 : n - 1, b = n - 1;
            kr_fill(x, (size_t)n, 5, 3.0f);
            x[a] = x[b] = 4.0f;
            ls_row_stats st = stats_of(x, n, n, greedy, draw, 2);
            assert_int_equal(st.argmax, a);
            assert_int_equal(st.token, a);
            assert_true(n == 1 ? st.margin == INFINITY : a == b || st.margin == 0.0f);
            assert_int_equal(st.top_token[0], a);
            if (a != b)
                assert_int_equal(st.top_token[1], b);
            x[a] = -0.0f, x[b] = 0.0f; /* the zeros are equal, whichever comes first */
            for (int t = 0; t < n; t++)
                x[t] = t == a || t == b ? x[t] : -1.0f;
            assert_int_equal(stats_of(x, n, n, greedy, draw, 0).argmax, a);
        }
        for (int t = 0; t < n; t++)
            x[t] = -7.5f; /* all equal: uniform */
        const ls_row_stats st = stats_of(x, n, n, (ls_warp){1, 0, 1, 0}, draw, 0);
        assert_int_equal(st.argmax, 0);
        kr_near("entropy of a uniform row", (double)st.entropy, log((double)n),
                1e-6 * (1 + log(n)));
        assert_true(st.sum == (float)n);
        free(x);
    }
}

/* Logits near the largest floats, temperatures at both ends: no infinity, no NaN. */
static void extremes(void **state) {
    (void)state;
    const ls_draw draw = ls_draw_key(1, 0, 0, LS_DRAW_TEST, 0);
    const float far[4] = {3e38f, -3e38f, 2.9e38f, -INFINITY}, near[3] = {1.0f, 0.5f, -2.0f};
    const float temperatures[] = {1e-40f, 0.0f, -1.0f, NAN, 1e-4f, 0.1f, 1.0f, 1e30f, INFINITY};
    for (int i = 0; i < 9; i++) {
        ls_row_stats st = stats_of(far, 4, 4, (ls_warp){temperatures[i], 0, 0.9f, 0.01f}, draw, 4);
        assert_true(st.flags == 0 && st.argmax == 0 && isfinite(st.sum) && isfinite(st.entropy));
        assert_true(i > 6 ? st.token >= 0 && st.token < 3 : st.token == 0);
        st = stats_of(near, 3, 3, (ls_warp){temperatures[i], 0, 1, 0}, draw, 3);
        assert_true(st.flags == 0 && st.argmax == 0 && isfinite(st.sum) && isfinite(st.entropy));
        if (i < 5)
            assert_int_equal(st.token, 0);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_rows),
                                       cmocka_unit_test(equal_maxima), cmocka_unit_test(extremes)};
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
