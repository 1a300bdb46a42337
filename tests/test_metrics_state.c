/* The counts and rates of rounds, against the worked logs of tests/cases/numeric/metrics.json. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "metrics.h"

static json_t *cases(const char *name) {
    json_error_t error;
    json_t *root = json_load_file(LS_TEST_DIR "/cases/numeric/metrics.json", 0, &error);
    assert_non_null(root);
    json_t *found = json_incref(json_object_get(root, name));
    json_decref(root);
    assert_non_null(found);
    return found;
}

static int64_t count(const json_t *c, const char *key) {
    const json_t *v = json_object_get(c, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static void is_near(ls_rate rate, const json_t *expected) {
    double value = -1;
    assert_true(json_is_number(expected));
    assert_true(ls_rate_get(rate, &value));
    assert_true(fabs(value - json_number_value(expected)) < 1e-12);
}

/* Every round of the log was judged to a refusal or to its end. */
static ls_metrics of_log(const json_t *c) {
    ls_metrics m = {0};
    size_t i;
    json_t *r;
    json_array_foreach (json_object_get(c, "rounds"), i, r) {
        ls_round round = {.proposed = (int32_t)count(r, "drafted"),
                          .accepted = (int32_t)count(r, "accepted"),
                          .emitted = (int32_t)count(r, "emitted")};
        round.evaluated = round.accepted + (round.accepted < round.proposed);
        assert_int_equal(ls_metrics_add(&m, &round, NULL), LS_OK);
    }
    return m;
}

static void log_of_five_rounds(void **state) {
    (void)state;
    json_t *c = cases("log");
    const ls_metrics m = of_log(c);
    assert_int_equal(m.n_round, count(c, "target_passes"));
    assert_int_equal(m.n_draft_round, count(c, "rounds_with_draft"));
    assert_int_equal(m.n_drafted, count(c, "drafted"));
    assert_int_equal(m.n_accepted, count(c, "accepted"));
    assert_int_equal(m.n_emitted, count(c, "emitted"));
    assert_int_equal(m.n_cut, 0);
    is_near(ls_metrics_yield(&m), json_object_get(c, "acceptance_rate"));
    is_near(ls_metrics_per_pass(&m), json_object_get(c, "emitted_per_target_pass"));
    is_near(ls_metrics_per_draft(&m), json_object_get(c, "mean_accepted_per_drafting_round"));
    const json_t *rates = json_object_get(c, "conditional_rate_by_position");
    const json_t *tries = json_object_get(c, "positions_reached");
    assert_int_equal(json_array_size(rates), 4);
    assert_int_equal(ls_metrics_depth(&m), 4);
    for (int32_t d = 1; d <= 4; d++) {
        const ls_rate rate = ls_metrics_conditional(&m, d);
        assert_int_equal(rate.den, json_integer_value(json_array_get(tries, (size_t)d - 1)));
        is_near(rate, json_array_get(rates, (size_t)d - 1));
    }
    /* 8 kept, two rounds ended in a refusal */
    assert_int_equal(ls_metrics_acceptance(&m).num, 8);
    assert_int_equal(ls_metrics_acceptance(&m).den, 10);
    assert_int_equal(m.n_evaluated, 10);
    /* depth 3: rounds 1, 2 and 4 drafted so far, one of them kept it */
    assert_int_equal(ls_metrics_unconditional(&m, 3).num, 1);
    assert_int_equal(ls_metrics_unconditional(&m, 3).den, 3);
    json_decref(c);
}

static void end_inside_a_draft(void **state) {
    (void)state;
    json_t *c = cases("eos_inside_draft");
    const ls_round round = {.proposed = (int32_t)count(c, "drafted"),
                            .accepted = (int32_t)count(c, "accepted"),
                            .evaluated = (int32_t)count(c, "evaluated"),
                            .emitted = (int32_t)count(c, "emitted")};
    ls_metrics m = {0};
    assert_int_equal(ls_metrics_add(&m, &round, NULL), LS_OK);
    assert_int_equal(m.n_emitted, 3);
    assert_int_equal(m.n_accepted, 3);
    assert_int_equal(m.n_drafted - m.n_evaluated, count(c, "not_evaluated"));
    assert_int_equal(m.n_refused, 0);
    assert_int_equal(m.n_cut, 1);
    /* what stood behind the end counts at no depth */
    assert_int_equal(ls_metrics_conditional(&m, 4).den, 0);
    assert_int_equal(ls_metrics_unconditional(&m, 4).den, 0);
    assert_int_equal(ls_metrics_unconditional(&m, 3).num, 1);
    json_decref(c);
}

static void pooled_then_divided(void **state) {
    (void)state;
    json_t *c = cases("pooled");
    ls_metrics all = {0};
    size_t i;
    json_t *run;
    json_array_foreach (json_object_get(c, "runs"), i, run) {
        ls_round r = {.accepted = (int32_t)json_integer_value(json_array_get(run, 0)),
                      .proposed = (int32_t)json_integer_value(json_array_get(run, 1))};
        r.evaluated = r.accepted + 1, r.emitted = r.accepted + 1;
        ls_metrics m = {0};
        assert_int_equal(ls_metrics_add(&m, &r, NULL), LS_OK);
        ls_metrics_pool(&all, &m);
    }
    is_near(ls_metrics_yield(&all),
            json_object_get(c, json_string_value(json_object_get(c, "right"))));
    json_decref(c);
}

static void nothing_drafted_is_absent(void **state) {
    (void)state;
    json_t *c = cases("zero_drafts");
    const ls_metrics m = of_log(c);
    double value = 7;
    assert_true(json_is_null(json_object_get(c, "acceptance_rate")));
    assert_false(ls_rate_get(ls_metrics_acceptance(&m), &value));
    assert_false(ls_rate_get(ls_metrics_yield(&m), &value));
    assert_false(ls_rate_get(ls_metrics_per_draft(&m), &value));
    assert_false(ls_rate_get(ls_metrics_conditional(&m, 1), &value));
    assert_true(value == 7);
    assert_int_equal(ls_metrics_depth(&m), 0);
    is_near(ls_metrics_per_pass(&m), json_object_get(c, "emitted_per_target_pass"));
    const ls_metrics none = {0};
    assert_false(ls_rate_get(ls_metrics_per_pass(&none), &value));
    json_decref(c);
}

static void pool_is_the_sum(void **state) {
    (void)state;
    ls_metrics whole = {0}, part[2] = {{0}, {0}};
    for (int32_t i = 0; i < 100; i++) {
        ls_round r = {
            .proposed = i % 9, .draft_us = 1, .verify_us = 2, .policy_us = 3, .accept_us = 4};
        r.accepted = i % 4 < r.proposed ? i % 4 : r.proposed;
        r.evaluated = r.accepted + (r.accepted < r.proposed);
        r.emitted = r.accepted + 1, r.clamped = i % 11 == 0;
        assert_int_equal(ls_metrics_add(&whole, &r, NULL), LS_OK);
        assert_int_equal(ls_metrics_add(&part[i % 2], &r, NULL), LS_OK);
    }
    ls_metrics_pool(&part[0], &part[1]);
    assert_memory_equal(&part[0], &whole, sizeof whole);
    assert_true(whole.n_clamped == 10 && whole.verify_us == 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_of_five_rounds),  cmocka_unit_test(end_inside_a_draft),
        cmocka_unit_test(pooled_then_divided), cmocka_unit_test(nothing_drafted_is_absent),
        cmocka_unit_test(pool_is_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
