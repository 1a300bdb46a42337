/* The acceptance estimate finds the rate it was made with, whatever the draft length; the share of
 * drafted tokens that were kept does not, which is why it is not called acceptance.
 * Alarm: each estimate is held to 4.5 standard errors, 7e-6 a comparison, 16 comparisons. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "metrics.h"

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *s) {
    return (double)(next(s) >> 11) * 0x1p-53;
}

static void censored_geometric(void **state) {
    (void)state;
    const double rates[] = {0.1, 0.5, 0.8, 0.95};
    const int32_t lengths[] = {1, 4, 8, 32};
    uint64_t seed = 2024;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            ls_metrics m = {0};
            for (int n = 0; n < 20000; n++) {
                ls_round r = {.proposed = lengths[j]};
                while (r.accepted < r.proposed && uniform(&seed) < rates[i])
                    r.accepted++;
                r.evaluated = r.accepted + (r.accepted < r.proposed), r.emitted = r.accepted + 1;
                assert_int_equal(ls_metrics_add(&m, &r, NULL), LS_OK);
            }
            const double a = rates[i], g = lengths[j];
            double seen = 0, yield = 0, per_pass = 0;
            assert_true(ls_rate_get(ls_metrics_acceptance(&m), &seen));
            assert_true(ls_rate_get(ls_metrics_yield(&m), &yield));
            assert_true(ls_rate_get(ls_metrics_per_pass(&m), &per_pass));
            const double se = sqrt(a * (1 - a) / (double)ls_metrics_acceptance(&m).den);
            assert_true(fabs(seen - a) < 4.5 * se);
            /* tokens per pass is (1 - a^(g+1)) / (1 - a): Leviathan et al., equation 1 */
            assert_true(fabs(per_pass - (1 - pow(a, g + 1)) / (1 - a)) < 0.02 * per_pass);
            if (a == 0.8 && g == 4) /* negative control: the naive share reads 0.59 */
                assert_true(fabs(yield - 0.59) < 0.01);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(censored_geometric)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
