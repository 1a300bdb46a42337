/* N-EXP, N-LOG and N-GELU against libm in double, over a dense sweep of the floats: every sixteenth
 * of all bit patterns, with a phase that moves, and every float of the ranges that matter most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "cpu_bodies.h"
#include "kernel_rig.h"

#define BATCH 65536
#define BOUND_ULP 1.0

static const ls_cpu_bodies *bodies;

static float of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Distance in units of the right value's last place (of the smallest denormal below 2^-126). */
static double ulps(float got, double want) {
    const double unit = fabs(want) < 0x1p-126 ? 0x1p-149 : ldexp(1.0, ilogb(want) - 23);
    return fabs((double)got - want) / unit;
}

/* Largest error of one function over the bit patterns first, first + step, ... up to last. */
static double sweep(int is_log, uint64_t first, uint64_t last, uint32_t step) {
    static float x[BATCH], y[BATCH];
    double worst = 0;
    for (uint64_t u = first; u <= last;) {
        int n = 0;
        for (; n < BATCH && u <= last; n++, u += step)
            x[n] = of_bits((uint32_t)u + (step > 1 ? (uint32_t)(u / 977 % step) : 0));
        (is_log ? bodies->log : bodies->exp)(x, y, n);
        for (int i = 0; i < n; i++) {
            const double in = (double)x[i];
            if (isnan(in) || (is_log && in <= 0)) {
                if (!(is_log && in == 0 ? y[i] == -INFINITY : isnan(y[i])))
                    fail_msg("%s(%a) = %a", is_log ? "log" : "exp", in, (double)y[i]);
                continue;
            }
            const double want = is_log ? log(in) : exp(in);
            /* past the largest float the result is infinite, or the largest on the way there */
            if (want >= 0x1.ffffffp127) {
                if (!(y[i] >= 0x1.fffffep127f))
                    fail_msg("%s(%a) = %a", is_log ? "log" : "exp", in, (double)y[i]);
                continue;
            }
            const double e = ulps(y[i], want);
            if (!(e <= BOUND_ULP))
                fail_msg("%s(%a) = %a, should be %a: %.3f ulp", is_log ? "log" : "exp", in,
                         (double)y[i], want, e);
            worst = e > worst ? e : worst;
        }
    }
    return worst;
}

static void exp_near(void **state) {
    (void)state;
    double e = sweep(0, 0, 0xffffffffu, 61);
    e = fmax(e, sweep(0, 0x3f000000u, 0x42d00000u, 5)); /* 0.5 to 104 */
    e = fmax(e, sweep(0, 0xbf000000u, 0xc2d20000u, 5)); /* and below 0, into the denormals */
    print_message("exp: at most %.3f ulp\n", e);
}

static void log_near(void **state) {
    (void)state;
    double e = sweep(1, 0, 0xffffffffu, 61);
    e = fmax(e, sweep(1, 0x3f000000u, 0x40000000u, 1)); /* every float from 0.5 to 2 */
    e = fmax(e, sweep(1, 0, 0x00ffffffu, 7));           /* denormals */
    print_message("log: at most %.3f ulp\n", e);
}

/* gelu(x) in units of 2^-24 of its value, over the bound of N-GELU: (5 + (1 - s)(2 + 3.5 |t|)). */
static double gelu_sweep(uint64_t first, uint64_t last, uint32_t step) {
    static float x[BATCH], one[BATCH], y[BATCH];
    const double c = 2 * sqrt(2 / acos(-1));
    double worst = 0;
    for (int i = 0; i < BATCH; i++)
        one[i] = 1.0f;
    for (uint64_t u = first; u <= last;) {
        int n = 0;
        for (; n < BATCH && u <= last; n++, u += step)
            x[n] = of_bits((uint32_t)u + (uint32_t)(u / 977 % step));
        const ls_gelu_mul_args a = {x, one, y, 1, n};
        bodies->gelu_mul(&a, 0, 1);
        for (int i = 0; i < n; i++) {
            const double in = (double)x[i], t = c * (in + 0.044715 * in * in * in);
            if (isnan(in) || in == -INFINITY) {
                assert_true(isnan(y[i]));
                continue;
            }
            if (t < -87) { /* the result is below 2^-120, and comes out so or as a zero */
                if (!(y[i] <= 0 && y[i] > -0x1p-118f))
                    fail_msg("gelu(%a) = %a", in, (double)y[i]);
                continue;
            }
            const double want = in / (1 + exp(-t));
            const double bound = (5 + (2 + 3.5 * fabs(t)) / (1 + exp(t))) * 0x1p-24 * fabs(want);
            const double off = fabs((double)y[i] - want);
            if (!(off <= bound + 0x1p-149) && !(in == INFINITY && y[i] == INFINITY))
                fail_msg("gelu(%a) = %a, should be %a: %.3f bounds", in, (double)y[i], want,
                         off / bound);
            if (fabs(want) > 0x1p-100 && in < INFINITY)
                worst = fmax(worst, off / bound);
        }
    }
    return worst;
}

static void gelu_near(void **state) {
    (void)state;
    double e = gelu_sweep(0, 0xffffffffu, 61);
    e = fmax(e, gelu_sweep(0x3a000000u, 0x41800000u, 7)); /* 2^-11 to 16 */
    e = fmax(e, gelu_sweep(0xba000000u, 0xc1800000u, 7)); /* and below 0 */
    print_message("gelu: at most %.3f of its bound\n", e);
}

static void ends(void **state) {
    (void)state;
    const float x[8] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN, 1.0f, -104.0f, 89.0f};
    float y[8];
    bodies->exp(x, y, 8);
    assert_true(y[0] == 1.0f && y[1] == 1.0f && y[2] == 0.0f && y[3] == INFINITY && isnan(y[4]));
    assert_true(!signbit(y[2]) && y[6] == 0.0f && y[7] == INFINITY);
    bodies->log(x, y, 8);
    assert_true(y[0] == -INFINITY && y[1] == -INFINITY && isnan(y[2]) && y[3] == INFINITY);
    assert_true(isnan(y[4]) && y[5] == 0.0f && !signbit(y[5]) && isnan(y[6]));
}

/* min_p asks for a threshold in y: between neighbouring floats exp falls by no more than an ulp. */
static void exp_is_nearly_monotone(void **state) {
    (void)state;
    static float x[BATCH], y[BATCH];
    float last = 0.0f;
    for (uint32_t u = 0xc2d20000u; u > 0x80000000u + BATCH; u -= BATCH) {
        for (uint32_t i = 0; i < BATCH; i++)
            x[i] = of_bits(u - i);
        bodies->exp(x, y, BATCH);
        for (int i = 0; i < BATCH; i += 8) {
            assert_true((double)y[i] >= (double)last * (1 - 0x1p-22));
            last = y[i];
        }
        if (u < 0xa0000000u)
            break; /* below 2^-63 all is 1 */
    }
}

static int pick(void **state) {
    (void)state;
    bodies = kr_bodies(LS_SIMD_AUTO);
    assert_non_null(bodies);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exp_near), cmocka_unit_test(log_near),
                                       cmocka_unit_test(gelu_near), cmocka_unit_test(ends),
                                       cmocka_unit_test(exp_is_nearly_monotone)};
    return cmocka_run_group_tests(tests, pick, NULL);
}
