/* N-DRAW in law: Gumbel-max over a warped row against its softmax, and the draw from weights
 * against the weights. Fixed seeds; each chi-square alarms falsely with probability 1e-4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <gsl/gsl_cdf.h>
#include <cmocka.h>

#include "draw.h"
#include "kernel_rig.h"

#define ALPHA 1e-4
enum { N_DRAWS = 200000, BATCH = 500, V = 60 };

static ls_backend *be;

/* p-value of counts against p; cells that expect less than 5 are pooled. A count in a cell of
 * probability 0 fails at once. */
static double p_value(const int *count, const double *p, int n, int draws) {
    double chi = 0, pool = 0, pooled = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        const double want = p[i] * draws;
        if (p[i] == 0)
            assert_int_equal(count[i], 0);
        else if (want < 5)
            pool += want, pooled += count[i];
        else
            chi += (count[i] - want) * (count[i] - want) / want, cells++;
    }
    if (pool >= 5)
        chi += (pooled - pool) * (pooled - pool) / pool, cells++;
    assert_true(cells >= 2);
    return gsl_cdf_chisq_Q(chi, cells - 1);
}

/* Softmax of the row after its filters, in double. */
static void softmax(const float *x, ls_warp w, float floor, double *p) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < V; i++)
        top = fmax(top, (double)x[i]);
    for (int i = 0; i < V; i++) {
        const float y = (x[i] - (float)top) / w.temperature;
        p[i] = y >= floor ? exp(((double)x[i] - top) / (double)w.temperature) : 0;
        sum += p[i];
    }
    for (int i = 0; i < V; i++)
        p[i] /= sum;
}

/* Counts of tokens drawn at positions 0 .. N_DRAWS - 1; returns the row's floor. */
static float draw_tokens(const float *x, ls_warp warp, uint64_t seed, int *count) {
    float *logits = kr_alloc(BATCH * V * 4);
    ls_row_stats *st = kr_alloc(BATCH * sizeof *st);
    ls_draw draw[BATCH];
    ls_warp w[BATCH];
    memset(count, 0, V * sizeof *count);
    for (int r = 0; r < BATCH; r++) {
        memcpy(logits + r * V, x, V * 4);
        w[r] = warp;
    }
    for (int at = 0; at < N_DRAWS; at += BATCH) {
        for (int r = 0; r < BATCH; r++)
            draw[r] = ls_draw_key(seed, 5, (uint32_t)(at + r), LS_DRAW_TOKEN, 0);
        ls_stats_args a = {logits, V, V, w, draw, 0, st, BATCH, 0, NULL};
        kr_stats(be, &a);
        kr_sync(be);
        for (int r = 0; r < BATCH; r++)
            count[st[r].token]++;
    }
    const float floor = st[0].floor;
    free(logits), free(st);
    return floor;
}

static void gumbel(void **state) {
    (void)state;
    static const ls_warp warps[] = {
        {1, 0, 1, 0}, {0.6f, 0, 1, 0}, {1.7f, 12, 1, 0}, {1, 0, 0.8f, 0}, {1, 0, 1, 0.1f}};
    float x[V];
    kr_fill(x, V, 3, 4.0f);
    x[7] = -INFINITY;
    for (int i = 0; i < 5; i++) {
        int count[V];
        double p[V];
        softmax(x, warps[i], draw_tokens(x, warps[i], (uint64_t)i + 11, count), p);
        const double got = p_value(count, p, V, N_DRAWS);
        print_message("warp %d: p = %.3g\n", i, got);
        assert_true(got > ALPHA);
        /* negative control: a shift of 2 % at one token is seen */
        double other[V];
        memcpy(other, p, sizeof p);
        int big = 0, small = -1;
        for (int t = 1; t < V; t++)
            big = p[t] > p[big] ? t : big;
        for (int t = 0; t < V; t++)
            small = t != big && p[t] > 0.02 ? t : small;
        assert_true(small >= 0);
        other[big] += 0.02, other[small] -= 0.02;
        other[small] = fmax(other[small], 1e-9);
        assert_true(p_value(count, other, V, N_DRAWS) < 1e-9);
    }
}

static void weights(void **state) {
    (void)state;
    float *w = kr_alloc(BATCH * V * 4);
    int32_t token[BATCH];
    ls_draw draw[BATCH];
    int count[V] = {0};
    double p[V], sum = 0;
    for (int i = 0; i < V; i++) {
        p[i] = i % 5 ? fabs((double)kr_uniform(9, (size_t)i)) * 37 : 0; /* not normalised, some 0 */
        p[i] = (double)(float)p[i];
        sum += p[i];
        for (int r = 0; r < BATCH; r++)
            w[r * V + i] = (float)p[i];
    }
    for (int i = 0; i < V; i++)
        p[i] /= sum;
    for (int at = 0; at < N_DRAWS; at += BATCH) {
        for (int r = 0; r < BATCH; r++)
            draw[r] = ls_draw_key(21, 6, (uint32_t)(at + r), LS_DRAW_RESIDUAL, 0);
        ls_choose_args a = {w, draw, token, V, BATCH};
        kr_choose(be, &a);
        kr_sync(be);
        for (int r = 0; r < BATCH; r++)
            count[token[r]]++;
    }
    const double got = p_value(count, p, V, N_DRAWS);
    print_message("weights: p = %.3g\n", got);
    assert_true(got > ALPHA);
    memset(w, 0, BATCH * V * 4);
    w[3] = NAN, w[V + 9] = 1e-44f; /* nothing positive; one denormal */
    ls_choose_args a = {w, draw, token, V, 3};
    kr_choose(be, &a);
    assert_int_equal(token[0], -1);
    assert_int_equal(token[1], 9);
    assert_int_equal(token[2], -1);
    free(w);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(gumbel), cmocka_unit_test(weights)};
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
