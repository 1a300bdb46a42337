/* Intervals and corrections against closed forms and published worked examples. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "interval.h"

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *s) {
    return (double)(next(s) >> 11) * 0x1p-53;
}

enum { N = 300 };

/* Clusters of 20..119 tokens, each with a rate of its own. */
static void clusters(uint64_t seed, double base, double *num, double *den) {
    for (int i = 0; i < N; i++) {
        den[i] = 20 + (double)(next(&seed) % 100);
        const double rate = base + 0.3 * uniform(&seed);
        num[i] = 0;
        for (int t = 0; t < (int)den[i]; t++)
            num[i] += uniform(&seed) < rate;
    }
}

/* The linearised residuals of a ratio of sums: their root sum of squares is its standard error. */
static double residuals(const double *num, const double *den, double *e) {
    double top = 0, bottom = 0;
    for (int i = 0; i < N; i++)
        top += num[i], bottom += den[i];
    for (int i = 0; i < N; i++)
        e[i] = (num[i] - top / bottom * den[i]) / bottom;
    return top / bottom;
}

static double root_sum(const double *e) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += e[i] * e[i];
    return sqrt(sum);
}

/* With 300 clusters the delta method is right to a few percent; 4000 resamples place a bound within
 * 4 % of the half width (one standard error of a 2.5 % quantile). Allowed: 12 % of it. */
static void is_delta(const ls_interval *v, double estimate, double se) {
    const double half = 1.959964 * se;
    assert_true(v->known && v->bounded && v->n_cluster == N);
    assert_true(fabs(v->estimate - estimate) < 1e-12);
    assert_true(fabs(v->low - (estimate - half)) < 0.12 * half);
    assert_true(fabs(v->high - (estimate + half)) < 0.12 * half);
}

static void ratio_is_the_delta_method(void **state) {
    (void)state;
    double num[N], den[N], e[N];
    clusters(11, 0.4, num, den);
    ls_interval v;
    const ls_interval_options o = {.n_resample = 4000};
    assert_int_equal(ls_interval_ratio(num, den, N, o, &v, NULL), LS_OK);
    const double r = residuals(num, den, e);
    is_delta(&v, r, root_sum(e));
}

static void diff_is_the_delta_method(void **state) {
    (void)state;
    double num_a[N], den_a[N], num_b[N], den_b[N], ea[N], eb[N];
    clusters(12, 0.4, num_a, den_a);
    for (int i = 0; i < N; i++) { /* b: the same prompts, a little worse: strongly paired */
        den_b[i] = den_a[i];
        num_b[i] = floor(0.9 * num_a[i]);
    }
    ls_interval v;
    const ls_interval_options o = {.n_resample = 4000};
    assert_int_equal(ls_interval_ratio_diff(num_a, den_a, num_b, den_b, N, o, &v, NULL), LS_OK);
    const double a = residuals(num_a, den_a, ea), b = residuals(num_b, den_b, eb);
    const double unpaired = hypot(root_sum(ea), root_sum(eb));
    for (int i = 0; i < N; i++)
        ea[i] -= eb[i];
    is_delta(&v, a - b, root_sum(ea));
    assert_true(v.high - v.low < unpaired); /* negative control: pairing has to be seen */
}

static void speed_is_the_log_mean(void **state) {
    (void)state;
    double a[N], b[N], x[N], mean = 0, ss = 0, p;
    uint64_t seed = 13;
    for (int i = 0; i < N; i++) {
        b[i] = 1000 * (1 + 9 * uniform(&seed));
        x[i] = -0.2 + 0.4 * (uniform(&seed) + uniform(&seed) - 1);
        a[i] = b[i] * exp(x[i]);
        mean += x[i] / N;
    }
    for (int i = 0; i < N; i++)
        ss += (x[i] - mean) * (x[i] - mean);
    ls_interval v;
    const ls_interval_options o = {.n_resample = 4000};
    assert_int_equal(ls_interval_speed(a, b, N, o, &v, &p, NULL), LS_OK);
    assert_true(fabs(v.estimate - exp(mean)) < 1e-12);
    const double half = 1.959964 * sqrt(ss) / N;
    assert_true(fabs(log(v.low) - (mean - half)) < 0.12 * half);
    assert_true(fabs(log(v.high) - (mean + half)) < 0.12 * half);
    assert_true(p == 1.0 / 4001); /* no flip comes near: the least 4000 can say */
}

/* Every pattern of signs, by hand: logs 1, 2, 3 have |sum| >= 6 in 2 of 8 patterns, and 1, 2, -3
 * have |sum| >= 0 in all. */
static void sign_flips_are_exact(void **state) {
    (void)state;
    const double one[] = {1, 1, 1}, up[] = {exp(1), exp(2), exp(3)},
                 flat[] = {exp(1), exp(2), exp(-3)};
    ls_interval v;
    double p = -1;
    assert_int_equal(ls_interval_speed(up, one, 3, (ls_interval_options){0}, &v, &p, NULL), LS_OK);
    assert_true(p == 0.25);
    assert_int_equal(ls_interval_speed(flat, one, 3, (ls_interval_options){0}, &v, &p, NULL),
                     LS_OK);
    assert_true(p == 1);
}

/* Newcombe, Statistics in Medicine 17 (1998), table I, method 3. */
static void wilson_examples(void **state) {
    (void)state;
    const struct {
        ls_rate rate;
        double low, high;
    } example[] = {{{81, 263}, 0.2553, 0.3662},
                   {{15, 148}, 0.0624, 0.1605},
                   {{0, 20}, 0.0000, 0.1611},
                   {{1, 29}, 0.0061, 0.1718}};
    for (int i = 0; i < 4; i++) {
        const ls_interval v = ls_interval_wilson(example[i].rate, 0.95);
        assert_true(v.known && v.bounded);
        assert_true(fabs(v.low - example[i].low) < 5.1e-5);
        assert_true(fabs(v.high - example[i].high) < 5.1e-5);
    }
    const ls_interval all = ls_interval_wilson((ls_rate){20, 20}, 0.95);
    assert_true(all.high == 1 && fabs(all.low - (1 - 0.1611)) < 5.1e-5);
    assert_false(ls_interval_wilson((ls_rate){0, 0}, 0.95).known);
}

/* 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which may not fall below the one before. */
static void holm_example(void **state) {
    (void)state;
    double p[] = {0.01, 0.04, 0.03, 0.005};
    const double expected[] = {0.03, 0.06, 0.06, 0.02};
    assert_int_equal(ls_holm(p, 4, p, NULL), LS_OK); /* in place */
    for (int i = 0; i < 4; i++)
        assert_true(fabs(p[i] - expected[i]) < 1e-15);
    double big[] = {0.6, 0.4, 0.9};
    assert_int_equal(ls_holm(big, 3, big, NULL), LS_OK);
    assert_true(big[0] == 1 && big[1] == 1 && big[2] == 1);
}

static void rule_of_three(void **state) {
    (void)state;
    assert_true(fabs(ls_rule_of_three(1, 0.95) - 0.95) < 1e-12);
    assert_true(fabs(ls_rule_of_three(100, 0.95) - 0.0295130) < 5e-7);
    const double many = ls_rule_of_three(1000000000, 0.95);
    assert_true(fabs(many * 1e9 - 2.995732) < 1e-5);
    assert_true(ls_rule_of_three(0, 0.95) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratio_is_the_delta_method),
        cmocka_unit_test(diff_is_the_delta_method),
        cmocka_unit_test(speed_is_the_log_mean),
        cmocka_unit_test(sign_flips_are_exact),
        cmocka_unit_test(wilson_examples),
        cmocka_unit_test(holm_example),
        cmocka_unit_test(rule_of_three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
