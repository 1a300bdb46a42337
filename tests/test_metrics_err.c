/* A round that contradicts itself is refused and leaves the counts alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "metrics.h"

static void contradictions(void **state) {
    (void)state;
    const ls_round bad[] = {
        {.proposed = -1},
        {.proposed = LS_DRAFT_MAX + 1, .emitted = 1},
        {.proposed = 4, .accepted = 5, .evaluated = 5, .emitted = 6},
        {.proposed = 4, .accepted = -1, .evaluated = 0, .emitted = 1},
        {.proposed = 4, .accepted = 2, .evaluated = 1, .emitted = 3},
        {.proposed = 4, .accepted = 1, .evaluated = 3, .emitted = 2},
        {.proposed = 4, .accepted = 4, .evaluated = 5, .emitted = 5},
        {.proposed = 4, .accepted = 2, .evaluated = 3, .emitted = 1},
        {.proposed = 4, .accepted = 2, .evaluated = 3, .emitted = 4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_metrics m = {0};
        const ls_metrics before = m;
        ls_err err = {0};
        assert_int_equal(ls_metrics_add(&m, &bad[i], &err), LS_ERR_SHAPE);
        assert_non_null(strstr(err.msg, "contradicts"));
        assert_memory_equal(&m, &before, sizeof m);
    }
}

static void first_bad_round_stops(void **state) {
    (void)state;
    const ls_round rounds[] = {
        {.proposed = 2, .accepted = 1, .evaluated = 2, .emitted = 2},
        {.proposed = 2, .accepted = 3, .evaluated = 3, .emitted = 4},
        {.proposed = 2, .accepted = 1, .evaluated = 2, .emitted = 2},
    };
    ls_metrics m = {0};
    assert_int_equal(ls_metrics_add_all(&m, rounds, 3, NULL), LS_ERR_SHAPE);
    assert_int_equal(m.n_round, 1);
}

static void depth_out_of_range_is_absent(void **state) {
    (void)state;
    const ls_metrics m = {0};
    assert_int_equal(ls_metrics_conditional(&m, 0).den, 0);
    assert_int_equal(ls_metrics_unconditional(&m, LS_DRAFT_MAX + 1).den, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contradictions),
        cmocka_unit_test(first_bad_round_stops),
        cmocka_unit_test(depth_out_of_range_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
