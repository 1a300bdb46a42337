/* The shipped length policies against the same rules written in C, on made-up drafts and outcomes:
 * every length and every stop equal. Each has a negative control, the rule with another
 * constant. */
#include "lua_rig.h"

#include <math.h>

#define ROUNDS 3000

static ls_policy *load(const char *name, const ls_lua_option *option, int32_t n_option) {
    static const char *const path[] = {LS_SOURCE_DIR "/policies"};
    const ls_lua_script_options o = {
        .path = path, .n_path = 1, .option = option, .n_option = n_option};
    ls_policy *p = NULL;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_policy_load(name, &o, &p, &err), &err);
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    LUA_OK_OR_FAIL(p->begin(p, &ctx, &err), &err);
    return p;
}

static int64_t plan(ls_policy *p, const ls_policy_ctx *ctx) {
    int64_t n = -1;
    ls_err err;
    LUA_OK_OR_FAIL(p->plan(p, ctx, &n, &err), &err);
    return n;
}

static void observe(ls_policy *p, ls_policy_ctx *ctx, int32_t proposed, int32_t accepted) {
    ls_err err;
    ctx->last = (ls_round){.proposed = proposed, .accepted = accepted};
    ctx->n_rounds++;
    ctx->position += accepted + 1;
    LUA_OK_OR_FAIL(p->observe(p, ctx, &ctx->last, &err), &err);
}

static float uniform(uint32_t position, uint32_t i) {
    const ls_draw d = ls_draw_key(11, 0, position, LS_DRAW_TEST, 0);
    return ls_draw_uniform(&d, i);
}

static void fixed(void **unused) {
    (void)unused;
    const ls_lua_option o = {"n", "7"};
    ls_policy *p = load("fixed", NULL, 0), *q = load("fixed", &o, 1);
    ls_policy_ctx ctx = ls_rig_ctx(1);
    for (int i = 0; i < 20; i++, ctx.position++) {
        assert_int_equal(plan(p, &ctx), 4);
        assert_int_equal(plan(q, &ctx), 7);
    }
    ls_policy_destroy(p);
    ls_policy_destroy(q);
}

/* ---- heuristic ------------------------------------------------------------------------------- */

static int heuristic_next(int n, int proposed, int accepted, int up, int max) {
    if (proposed == 0)
        return n;
    n = accepted == proposed ? n + up : n - 1;
    return n < 1 ? 1 : n > max ? max : n;
}

/* Runs with outcomes that accept each token with probability `rate`, in rooms of changing size. */
static int heuristic_differs(double rate, int up) {
    ls_policy *p = load("heuristic", NULL, 0);
    ls_policy_ctx ctx = ls_rig_ctx(1);
    int n = 5, differs = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ctx.room = (int32_t)(uniform(i, 0) * 40);
        const int64_t planned = plan(p, &ctx);
        differs += planned != n;
        const int32_t proposed = (int32_t)(planned < ctx.room ? planned : ctx.room);
        int32_t accepted = 0;
        while (accepted < proposed && uniform(i, 1 + (uint32_t)accepted) < rate)
            accepted++;
        observe(p, &ctx, proposed, accepted);
        n = heuristic_next(n, proposed, accepted, up, 32);
    }
    ls_policy_destroy(p);
    return differs;
}

static void heuristic(void **unused) {
    (void)unused;
    static const double rates[] = {0, 0.3, 0.8, 0.97, 1.1};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        assert_int_equal(heuristic_differs(rates[i], 2), 0);
    assert_true(heuristic_differs(0.8, 3) > 0);
}

/* C023: it comes down when nothing is accepted, comes back from there, and grows for ever
 * otherwise. */
static void heuristic_moves(void **unused) {
    (void)unused;
    ls_policy *p = load("heuristic", NULL, 0);
    ls_policy_ctx ctx = ls_rig_ctx(1);
    for (int i = 0; i < 200; i++) {
        const int64_t n = plan(p, &ctx);
        assert_true(n >= 1);
        if (i >= 50)
            assert_int_equal(n, 1);
        observe(p, &ctx, (int32_t)n, 0);
    }
    int64_t last = 1;
    for (int i = 0; i < 200; i++) {
        const int64_t n = plan(p, &ctx);
        assert_true(n >= last);
        if (i >= 100)
            assert_int_equal(n, 32);
        last = n;
        observe(p, &ctx, (int32_t)n, (int32_t)n);
    }
    ls_policy_destroy(p);
    /* (iv): k = 1 with the one draft kept, each time */
    const ls_lua_option o[] = {{"n", "1"}, {"max", "64"}};
    p = load("heuristic", o, 2);
    assert_int_equal(plan(p, &ctx), 1);
    observe(p, &ctx, 1, 1);
    assert_int_equal(plan(p, &ctx), 3);
    ls_policy_destroy(p);
}

/* ---- confidence and svip --------------------------------------------------------------------- */

/* How many drafted tokens `more` answers otherwise than the rule; the step's numbers are floats,
 * the rule's arithmetic is double, as a script's is. */
static int stops_differ(ls_policy *p, bool (*rule)(const ls_policy_step *, double), double constant,
                        int64_t max) {
    ls_policy_ctx ctx = ls_rig_ctx(1);
    int differs = 0, stopped = 0;
    ls_err err;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ctx.position++;
        assert_int_equal(plan(p, &ctx), max);
        for (int32_t n = 1; n <= 8; n++) {
            const uint32_t at = 2 * (uint32_t)n;
            const ls_policy_step step = {.n = n,
                                         .token = n,
                                         .prob = uniform(i, at),
                                         .entropy = 2 * uniform(i, at + 1),
                                         .margin = 1};
            bool yes = false;
            LUA_OK_OR_FAIL(p->more(p, &ctx, &step, &yes, &err), &err);
            differs += yes != rule(&step, constant);
            stopped += !yes;
        }
    }
    assert_true(stopped > ROUNDS && stopped < 7 * ROUNDS); /* both answers were seen */
    return differs;
}

static bool confidence_rule(const ls_policy_step *s, double threshold) {
    return (double)s->prob >= threshold;
}

static bool svip_rule(const ls_policy_step *s, double k) {
    return sqrt(k * (double)s->entropy) <= 0.3;
}

static void confidence(void **unused) {
    (void)unused;
    const ls_lua_option o[] = {{"threshold", "0.7"}, {"max", "9"}};
    ls_policy *p = load("confidence", NULL, 0), *q = load("confidence", o, 2);
    assert_int_equal(stops_differ(p, confidence_rule, 0.4, 20), 0);
    assert_int_equal(stops_differ(q, confidence_rule, 0.7, 9), 0);
    assert_true(stops_differ(p, confidence_rule, 0.41, 20) > 0);
    ls_policy_destroy(p);
    ls_policy_destroy(q);
}

static void svip(void **unused) {
    (void)unused;
    ls_policy *p = load("svip", NULL, 0);
    assert_int_equal(stops_differ(p, svip_rule, 0.15, 40), 0);
    assert_true(stops_differ(p, svip_rule, 0.16, 40) > 0);
    ls_policy_destroy(p);
}

/* A drafter without a distribution reports probability 1 and entropy 0: never stopped. */
static void point_mass(void **unused) {
    (void)unused;
    static const char *const both[] = {"confidence", "svip"};
    for (int i = 0; i < 2; i++) {
        ls_policy *p = load(both[i], NULL, 0);
        const ls_policy_ctx ctx = ls_rig_ctx(1);
        const ls_policy_step step = {.n = 1, .prob = 1};
        bool yes = false;
        ls_err err;
        plan(p, &ctx);
        LUA_OK_OR_FAIL(p->more(p, &ctx, &step, &yes, &err), &err);
        assert_true(yes);
        ls_policy_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fixed),
                                       cmocka_unit_test(heuristic),
                                       cmocka_unit_test(heuristic_moves),
                                       cmocka_unit_test(confidence),
                                       cmocka_unit_test(svip),
                                       cmocka_unit_test(point_mass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
