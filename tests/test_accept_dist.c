/* N-ACC in law: what a round of `accept` under REJECTION emits follows the target's distribution at
 * every place, whatever drafted it, and a draft stands at the rate sum min(p, q). Fixed seeds; each
 * chi-square alarms falsely with probability 1e-4, each rate at five standard deviations. */
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

#define ALARM 1e-4
enum { V = 24, N = 3, BATCH = 200, POINTS = 4, ROWS = N + 1 };

static ls_backend *be;

/* Multiples of BATCH. A call on host operands is slow on a GPU. */
static uint32_t n_rounds(void) {
    return LS_THIN || rig_on_gpu() ? 15000 : 60000;
}

typedef enum drafter { OWN_LAW, POINT_MASS } drafter;

typedef struct law {
    double p[ROWS][V], q[N][V]; /* in double, from logits and filters alone */
    int64_t count[ROWS][V], reached[ROWS], stood[N];
} law;

/* Point mass of place i in a round of kind b. A few tokens only: over all of them alike, a residual
 * that forgets the point mass would have the right law on average. */
static int point(int b, int i) {
    return (6 * b + 5 * i) % V;
}

static double chi_square_p(const int64_t *count, const double *p, int64_t total) {
    double chi = 0, pool = 0, pooled = 0;
    int cells = 0;
    for (int i = 0; i < V; i++) {
        const double want = p[i] * (double)total;
        if (p[i] == 0 && count[i] > 0)
            return 0;
        if (want < 5)
            pool += want, pooled += (double)count[i];
        else
            chi += ((double)count[i] - want) * ((double)count[i] - want) / want, cells++;
    }
    if (pool >= 5)
        chi += (pooled - pool) * (pooled - pool) / pool, cells++;
    assert_true(cells >= 2);
    return gsl_cdf_chisq_Q(chi, cells - 1);
}

/* The warped softmax in double; the filters by sorting, which the thresholds of N-STAT do not do.
 * The rows are drawn so that no filter's edge is near a token. */
static void softmax(const float *x, ls_warp w, double *p) {
    double top = -INFINITY, sum = 0, all = 0;
    int order[V];
    for (int i = 0; i < V; i++) {
        top = fmax(top, (double)x[i]);
        int k = i;
        for (; k > 0 && x[order[k - 1]] < x[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    const int most = w.top_k > 0 && w.top_k < V ? w.top_k : V;
    for (int i = 0; i < V; i++)
        p[i] = exp(((double)x[i] - top) / (double)w.temperature);
    for (int k = 0; k < most; k++)
        all += p[order[k]];
    for (int k = 0; k < V; k++) {
        double *e = &p[order[k]];
        if (k >= most || sum >= (double)w.top_p * all || *e < (double)w.min_p)
            *e = 0;
        sum += *e;
    }
    for (int i = 0; i < V; i++)
        p[i] /= sum;
}

/* Statistics of one row's logits at BATCH positions from `at`: only the token differs. */
static void draw_rows(const float *x, ls_warp warp, uint64_t seed, uint32_t at, ls_purpose purpose,
                      ls_row_stats *out) {
    static float logits[BATCH * V];
    static ls_warp warps[BATCH];
    static ls_draw draws[BATCH];
    for (uint32_t r = 0; r < BATCH; r++) {
        memcpy(logits + r * V, x, V * sizeof *x);
        warps[r] = warp;
        draws[r] = ls_draw_key(seed, 3, at + r, purpose, 0);
    }
    const ls_stats_args a = {logits, V, V, warps, draws, 0, out, BATCH, 0, NULL};
    kr_stats(be, &a);
    kr_sync(be);
}

/* Rounds of N drafts; round k begins at position 8 k. */
static void play(const float *logits, const float *draft_logits, ls_warp warp, ls_warp warp_q,
                 drafter who, uint64_t seed, law *out) {
    static ls_row_stats target[ROWS][BATCH], draft[N][BATCH];
    float weight[V];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ROWS; i++)
        softmax(logits + i * V, warp, out->p[i]);
    for (int i = 0; i < N; i++)
        softmax(draft_logits + i * V, warp_q, out->q[i]);
    const uint32_t n = n_rounds();
    for (uint32_t k = 0; k < n; k += BATCH) {
        /* any position not used twice for one purpose is as good as another */
        for (uint32_t i = 0; i < ROWS; i++)
            draw_rows(logits + i * V, warp, seed + 1000 * i, k, LS_DRAW_TOKEN, target[i]);
        for (uint32_t i = 0; i < N; i++)
            draw_rows(draft_logits + i * V, warp_q, seed + 1000 * i, k, LS_DRAW_DRAFT, draft[i]);
        for (uint32_t r = 0; r < BATCH; r++) {
            ls_row_stats t[ROWS], d[N];
            int32_t token[N];
            ls_verdict_set v;
            for (int i = 0; i < ROWS; i++)
                t[i] = target[i][r];
            for (int i = 0; i < N; i++) {
                d[i] = draft[i][r];
                token[i] = who == POINT_MASS ? point((int)(r % POINTS), i) : d[i].token;
            }
            const ls_accept_args a = {.kind = LS_ACCEPT_REJECTION,
                                      .token = token,
                                      .target = t,
                                      .draft = who == POINT_MASS ? NULL : d,
                                      .logits = logits,
                                      .draft_logits = draft_logits,
                                      .weight = weight,
                                      .out = &v,
                                      .ld_logits = V,
                                      .ld_draft = V,
                                      .n_vocab = V,
                                      .n = N,
                                      .seed = seed,
                                      .sequence = 3,
                                      .position = 8 * (k + r)};
            kr_accept(be, &a);
            kr_sync(be);
            assert_in_range(v.n_accept, 0, N);
            for (int i = 0; i <= v.n_accept; i++) {
                const int32_t y = i < v.n_accept ? token[i] : v.token;
                assert_in_range(y, 0, V - 1);
                out->count[i][y]++;
                out->reached[i]++;
                if (i < N)
                    out->stood[i] += i < v.n_accept;
            }
        }
    }
}

static double overlap(const law *l, int i) {
    double sum = 0;
    for (int t = 0; t < V; t++)
        sum += fmin(l->p[i][t], l->q[i][t]);
    return sum;
}

static double point_rate(const law *l, int i) {
    double reached = 0, stood = 0;
    for (int b = 0; b < POINTS; b++) {
        double p = 1;
        for (int k = 0; k < i; k++)
            p *= l->p[k][point(b, k)];
        reached += p;
        stood += p * l->p[i][point(b, i)];
    }
    return stood / reached;
}

static void expect(const law *l, drafter who) {
    assert_true(l->reached[1] > 300);
    for (int i = 0; i < ROWS && l->reached[i] > 300; i++) { /* point masses seldom go further */
        const double got = chi_square_p(l->count[i], l->p[i], l->reached[i]);
        print_message("  place %d: %lld rounds, p = %.3g\n", i, (long long)l->reached[i], got);
        assert_true(got > ALARM);
        /* negative control at the first place: 2 % moved from one token to another is seen */
        double other[V];
        int big = 0, next = -1;
        memcpy(other, l->p[i], sizeof other);
        for (int t = 0; t < V; t++)
            big = other[t] > other[big] ? t : big;
        for (int t = 0; t < V; t++)
            next = t != big && other[t] > 0.025 ? t : next;
        if (i == 0 && next >= 0) {
            other[big] += 0.02, other[next] -= 0.02;
            assert_true(chi_square_p(l->count[i], other, l->reached[i]) < ALARM);
        }
        if (i == N)
            break;
        const double rate = who == POINT_MASS ? point_rate(l, i) : overlap(l, i);
        kr_near("rate", (double)l->stood[i] / (double)l->reached[i], rate,
                5 * sqrt(rate * (1 - rate) / (double)l->reached[i]) + 1e-6);
    }
}

static void one_law(const char *what, float apart, ls_warp warp, ls_warp warp_q, drafter who,
                    uint64_t seed) {
    float logits[ROWS * V], draft_logits[N * V], noise[N * V];
    law l;
    kr_fill(logits, ROWS * V, (uint32_t)seed, 2.5f);
    kr_fill(noise, N * V, (uint32_t)seed + 1, apart);
    logits[5] = -INFINITY; /* never emitted, though it may be drafted */
    for (int i = 0; i < N * V; i++)
        draft_logits[i] = (i == 5 ? 1.0f : logits[i]) + noise[i];
    if (apart == 0)
        memcpy(draft_logits, logits, sizeof draft_logits);
    print_message("%s\n", what);
    play(logits, draft_logits, warp, warp_q, who, seed, &l);
    assert_int_equal(l.count[0][5], 0);
    expect(&l, who);
}

static void near_pair(void **state) {
    (void)state;
    one_law("close draft", 0.8f, (ls_warp){1, 0, 1, 0}, (ls_warp){1, 0, 1, 0}, OWN_LAW, 101);
}
static void far_pair(void **state) {
    (void)state;
    one_law("far draft", 3.0f, (ls_warp){1, 0, 1, 0}, (ls_warp){1, 0, 1, 0}, OWN_LAW, 202);
}
static void other_warps(void **state) {
    (void)state;
    one_law("filters on both, not the same", 0.6f, (ls_warp){0.8f, 9, 1, 0},
            (ls_warp){1.4f, 0, 0.9f, 0.02f}, OWN_LAW, 303);
}
static void equal_pair(void **state) {
    (void)state;
    one_law("draft equal to target", 0, (ls_warp){1, 0, 0.9f, 0}, (ls_warp){1, 0, 0.9f, 0}, OWN_LAW,
            404);
}
static void point_mass(void **state) {
    (void)state;
    one_law("point masses", 1.0f, (ls_warp){1, 0, 1, 0.03f}, (ls_warp){1, 0, 1, 0}, POINT_MASS,
            505);
}

static int open_backend(void **state) {
    (void)state;
    be = kr_backend(LS_SIMD_AUTO, 1);
    return 0;
}
static int close_backend(void **state) {
    (void)state;
    ls_backend_destroy(be);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_pair), cmocka_unit_test(far_pair),
                                       cmocka_unit_test(other_warps), cmocka_unit_test(equal_pair),
                                       cmocka_unit_test(point_mass)};
    return cmocka_run_group_tests_name("accept_dist", tests, open_backend, close_backend);
}
