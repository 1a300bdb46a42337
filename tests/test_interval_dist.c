/* Coverage: how often does a 95 % interval hold the truth it was not told?
 * Alarm: 1000 simulated studies a case. If an interval covers 94 % in truth (a bootstrap of 40
 * clusters falls a little short of 95), fewer than 91.5 % or more than 97 % are seen with
 * probability 1e-3; the sign-flip test has its level exactly, 6.5 % or more of 2000 has 2e-3. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "interval.h"

enum { N = 40, STUDIES = 1000 };

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *s) {
    return (double)(next(s) >> 11) * 0x1p-53;
}

/* Prompts of 10..109 judged tokens whose own rate is 0.5, 0.7 or 0.9, whatever their length: the
 * ratio of sums estimates 0.7. */
static void study(uint64_t *seed, double *num, double *den) {
    for (int i = 0; i < N; i++) {
        den[i] = 10 + (double)(next(seed) % 100);
        const double rate = 0.5 + 0.2 * (double)(next(seed) % 3);
        num[i] = 0;
        for (int t = 0; t < (int)den[i]; t++)
            num[i] += uniform(seed) < rate;
    }
}

static bool holds(const ls_interval *v, double truth) {
    assert_true(v->bounded && v->low <= v->high);
    return v->low <= truth && truth <= v->high;
}

static void ratio_covers(void **state) {
    (void)state;
    uint64_t seed = 7;
    int n_hold = 0, n_wilson = 0;
    for (int k = 0; k < STUDIES; k++) {
        double num[N], den[N], top = 0, bottom = 0;
        study(&seed, num, den);
        ls_interval v;
        const ls_interval_options o = {.n_resample = 500, .seed = (uint64_t)k + 1};
        assert_int_equal(ls_interval_ratio(num, den, N, o, &v, NULL), LS_OK);
        n_hold += holds(&v, 0.7);
        for (int i = 0; i < N; i++)
            top += num[i], bottom += den[i];
        v = ls_interval_wilson((ls_rate){(int64_t)top, (int64_t)bottom}, 0.95);
        n_wilson += holds(&v, 0.7);
    }
    print_message("clusters: %d of %d, tokens as if independent: %d\n", n_hold, STUDIES, n_wilson);
    assert_in_range(n_hold, 915, 970);
    /* negative control: tokens taken as independent trials cover far too seldom */
    assert_true(n_wilson < 700);
}

static void speed_covers_and_keeps_its_level(void **state) {
    (void)state;
    uint64_t seed = 8;
    int n_hold = 0, n_alarm = 0, n_power = 0;
    for (int k = 0; k < 2 * STUDIES; k++) {
        double a[N], b[N], shifted[N], p;
        for (int i = 0; i < N;
             i++) { /* no difference: the noise of a log time ratio is symmetric */
            b[i] = 100 * (1 + uniform(&seed));
            a[i] = b[i] * exp(0.3 * (uniform(&seed) - uniform(&seed)));
            shifted[i] = a[i] * 0.9;
        }
        ls_interval v;
        const ls_interval_options o = {.n_resample = 500, .seed = (uint64_t)k + 1};
        assert_int_equal(ls_interval_speed(a, b, N, o, &v, &p, NULL), LS_OK);
        n_hold += holds(&v, 1.0);
        n_alarm += p <= 0.05;
        assert_int_equal(ls_interval_speed(shifted, b, N, o, &v, &p, NULL), LS_OK);
        n_power += p <= 0.05;
    }
    print_message("speed: covers %d of %d, false alarms %d, 10 %% faster seen %d\n", n_hold,
                  2 * STUDIES, n_alarm, n_power);
    assert_in_range(n_hold, 2 * 915, 2 * 970);
    assert_in_range(n_alarm, 70, 130);
    assert_true(n_power > 1990);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratio_covers),
        cmocka_unit_test(speed_covers_and_keeps_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
