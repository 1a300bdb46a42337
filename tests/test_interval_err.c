/* What has no interval says so; what is no data is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "interval.h"

static const ls_interval_options defaults = {0};

static void absent_is_not_zero(void **state) {
    (void)state;
    const double zero[] = {0, 0, 0}, num[] = {1, 2, 3}, den[] = {2, 4, 6};
    ls_interval v;
    assert_int_equal(ls_interval_ratio(zero, zero, 3, defaults, &v, NULL), LS_OK);
    assert_true(!v.known && !v.bounded);
    assert_int_equal(ls_interval_ratio(num, den, 0, defaults, &v, NULL), LS_OK);
    assert_true(!v.known && !v.bounded);
    assert_int_equal(ls_interval_ratio(num, den, 1, defaults, &v, NULL), LS_OK);
    assert_true(v.known && !v.bounded && v.estimate == 0.5 && v.n_cluster == 1);
    assert_int_equal(ls_interval_speed(num, den, 0, defaults, &v, NULL, NULL), LS_OK);
    assert_true(!v.known);
}

static void few_denominators_have_no_interval(void **state) {
    (void)state;
    /* one prompt of three drafted: 30 % of the resamples have no denominator */
    const double num[] = {1, 0, 0}, den[] = {2, 0, 0};
    ls_interval v;
    assert_int_equal(ls_interval_ratio(num, den, 3, defaults, &v, NULL), LS_OK);
    assert_true(v.known && !v.bounded && v.estimate == 0.5);
}

static void no_spread_is_no_interval(void **state) {
    (void)state;
    const double num[] = {1, 2, 3, 4}, den[] = {2, 4, 6, 8}, all[] = {2, 4, 6, 8};
    ls_interval v;
    assert_int_equal(ls_interval_ratio(num, den, 4, defaults, &v, NULL), LS_OK);
    assert_true(v.known && !v.bounded && v.estimate == 0.5);
    assert_int_equal(ls_interval_ratio(all, den, 4, defaults, &v, NULL), LS_OK);
    assert_true(v.known && !v.bounded && v.estimate == 1);
    const double most[] = {2, 4, 5, 8};
    assert_int_equal(ls_interval_ratio(most, den, 4, defaults, &v, NULL), LS_OK);
    assert_true(v.bounded && v.low < 1 && v.high == 1);
}

static void same_seed_same_numbers(void **state) {
    (void)state;
    const double num[] = {1, 7, 3, 9, 2, 8}, den[] = {9, 9, 9, 11, 10, 10};
    ls_interval a, b, c;
    ls_interval_options o = {.seed = 5, .n_resample = 300};
    assert_int_equal(ls_interval_ratio(num, den, 6, o, &a, NULL), LS_OK);
    assert_int_equal(ls_interval_ratio(num, den, 6, o, &b, NULL), LS_OK);
    assert_true(a.low == b.low && a.high == b.high && a.estimate == b.estimate);
    o.seed = 6;
    assert_int_equal(ls_interval_ratio(num, den, 6, o, &c, NULL), LS_OK);
    assert_true(c.low != a.low || c.high != a.high);
}

static void refused(void **state) {
    (void)state;
    const double ok[] = {1, 2}, negative[] = {1, -2}, nan_[] = {1, NAN}, inf[] = {INFINITY, 1},
                 zero[] = {0, 1};
    ls_interval v;
    ls_err err = {0};
    assert_int_equal(ls_interval_ratio(negative, ok, 2, defaults, &v, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "cluster 1"));
    assert_int_equal(ls_interval_ratio(ok, nan_, 2, defaults, &v, &err), LS_ERR_INPUT);
    assert_int_equal(ls_interval_ratio_diff(ok, ok, inf, ok, 2, defaults, &v, &err), LS_ERR_INPUT);
    assert_int_equal(ls_interval_speed(ok, zero, 2, defaults, &v, NULL, &err), LS_ERR_INPUT);
    assert_int_equal(ls_interval_ratio(ok, ok, -1, defaults, &v, &err), LS_ERR_INPUT);
    assert_int_equal(ls_interval_ratio(ok, ok, 2, (ls_interval_options){.level = 1}, &v, &err),
                     LS_ERR_INPUT);
    assert_int_equal(ls_interval_ratio(ok, ok, 2, (ls_interval_options){.n_resample = 5}, &v, &err),
                     LS_ERR_INPUT);
    double p[] = {0.5, 1.5};
    assert_int_equal(ls_holm(p, 2, p, &err), LS_ERR_INPUT);
    assert_true(p[0] == 0.5 && p[1] == 1.5);
    p[1] = NAN;
    assert_int_equal(ls_holm(p, 2, p, &err), LS_ERR_INPUT);
    assert_int_equal(ls_holm(p, 0, p, &err), LS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_is_not_zero),
        cmocka_unit_test(few_denominators_have_no_interval),
        cmocka_unit_test(no_spread_is_no_interval),
        cmocka_unit_test(same_seed_same_numbers),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
