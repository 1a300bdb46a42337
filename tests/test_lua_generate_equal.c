/* Policies and rules from Lua in whole runs (tests/cases/models/table_*): no length policy changes
 * a token, whatever it answers (C047, C048, C051, C053); a lossy rule does, and says so. */
#include "lua_rig.h"

#include "lua_rule.h"
#include "plain.h"
#include "rig.h"
#include "rig.h"

enum { N_NEW = 24, N_SAMPLED = 40 };

typedef struct pair {
    ls_rig target, draft;
    ls_drafter *drafter;
    ls_plain *plain;
    ls_gen gen;
} pair;

static const int32_t prompt[] = {3};

/* Opens two table models and decodes plainly, at this temperature. */
static void pair_open(pair *p, const char *target, const char *draft, float temperature) {
    ls_err err;
    char *t = ls_case_model(target), *d = ls_case_model(draft);
    const ls_engine_options o = {.max_seqs = 2};
    memset(p, 0, sizeof *p);
    ls_rig_open(&p->target, t, (ls_cpu_options){1, LS_SIMD_AUTO}, o);
    ls_rig_open(&p->draft, d, (ls_cpu_options){1, LS_SIMD_AUTO}, o);
    free(t);
    free(d);
    OK(ls_drafter_model(p->draft.engine, &p->drafter, &err), &err);
    p->gen = (ls_gen){.target = p->target.engine,
                      .drafter = p->drafter,
                      .prompt = prompt,
                      .n_prompt = 1,
                      .max_new = temperature > 0 ? N_SAMPLED : N_NEW,
                      .ignore_eos = true,
                      .seed = 77,
                      .warp = {temperature, 0, 1, 0}};
    OK(ls_plain_run(&p->gen, p->target.engine, &p->plain, &err), &err);
}

static void pair_close(pair *p) {
    ls_plain_destroy(p->plain);
    ls_drafter_destroy(p->drafter);
    ls_rig_close(&p->draft);
    ls_rig_close(&p->target);
}

static ls_status generate(pair *p, ls_policy *policy, ls_rule *rule, ls_transcript *t,
                          ls_err *err) {
    memset(t, 0, sizeof *t);
    p->gen.policy = policy;
    p->gen.rule = rule;
    return ls_generate(&p->gen, t, err);
}

static bool same_text(const pair *p, const ls_transcript *t) {
    const int32_t n = p->plain->n_token;
    return n == t->n_token && memcmp(p->plain->token, t->token, (size_t)n * sizeof(int32_t)) == 0;
}

static ls_policy *policy_named(const char *name) {
    static const char *const path[] = {LS_SOURCE_DIR "/policies"};
    const ls_lua_script_options o = {.path = path, .n_path = 1};
    ls_policy *policy = NULL;
    ls_err err;
    OK(ls_lua_policy_load(name, &o, &policy, &err), &err);
    return policy;
}

static ls_policy *policy_text(const char *text) {
    return policy_named(ls_rig_write("g.lua", text, strlen(text)));
}

static ls_rule *rule_text(const char *text) {
    ls_rule *rule = NULL;
    ls_err err;
    OK(ls_lua_rule_load(ls_rig_write("g.lua", text, strlen(text)), NULL, &rule, &err), &err);
    return rule;
}

/* ---- length policies ------------------------------------------------------------------------- */

static void no_policy_changes_the_text(void **unused) {
    (void)unused;
    static const char *const names[] = {"fixed", "heuristic", "confidence", "svip",
                                        LS_TEST_DIR "/lua/hostile.lua"};
    for (int sampled = 0; sampled < 2; sampled++) {
        pair p;
        if (sampled)
            pair_open(&p, "table_sample_target", "table_sample_draft", 1);
        else
            pair_open(&p, "table_target", "table_draft", 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            ls_policy *policy = policy_named(names[i]);
            ls_transcript t, again;
            ls_err err;
            OK(generate(&p, policy, NULL, &t, &err), &err);
            assert_true(same_text(&p, &t));
            assert_true(t.n_round > 1);
            OK(generate(&p, policy, NULL, &again, &err), &err); /* the same lengths, too */
            assert_int_equal(again.n_round, t.n_round);
            for (int32_t r = 0; r < t.n_round; r++) {
                assert_int_equal(again.round[r].planned, t.round[r].planned);
                assert_int_equal(again.round[r].proposed, t.round[r].proposed);
            }
            ls_transcript_free(&t);
            ls_transcript_free(&again);
            ls_policy_destroy(policy);
        }
        pair_close(&p);
    }
}

/* Case scripts that answer a length: the text is plain decode's, and what did not fit was
 * counted. */
static void case_lengths(void **unused) {
    (void)unused;
    static const struct {
        const char *file;
        bool clamped;
    } all[] = {
        {"ret_int_4.lua", false},     {"ret_zero.lua", false},        {"ret_minus_zero.lua", false},
        {"ret_two_pow_31.lua", true}, {"ret_two_pow_53.lua", true},   {"ret_maxinteger.lua", true},
        {"clock_policy.lua", false},  {"random_unseeded.lua", false}, {"state_counter.lua", false}};
    pair p;
    pair_open(&p, "table_target", "table_draft", 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_lua *state;
        ls_policy *policy;
        ls_transcript t;
        ls_err err;
        OK(ls_rig_case(all[i].file, (ls_lua_limits){0}, &state, &policy, &err), &err);
        OK(generate(&p, policy, NULL, &t, &err), &err);
        assert_true(same_text(&p, &t));
        /* random and counted lengths may ask for more than is left near the end */
        if (all[i].clamped)
            assert_int_equal(t.n_clamped, t.n_round);
        for (int32_t r = 0; r < t.n_round && all[i].clamped; r++)
            assert_true(t.round[r].clamped && t.round[r].proposed < N_NEW);
        ls_transcript_free(&t);
        ls_policy_destroy(policy);
        ls_lua_destroy(state);
    }
    pair_close(&p);
}

/* C047: an error in the 5th round leaves the text of four, a prefix of the right one. */
static void error_in_the_fifth_round(void **unused) {
    (void)unused;
    static const char *const faults[] = {"error('fifth')", "while true do end", "return -1",
                                         "return nil + 1"};
    pair p;
    pair_open(&p, "table_target", "table_draft", 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "local calls = 0 return { name = 'e', plan = function()\n"
                 "calls = calls + 1 if calls == 5 then %s end return 2 end }",
                 faults[i]);
        ls_policy *policy = policy_text(text);
        for (int run = 0; run < 2; run++) { /* and the second run begins at the first call again */
            ls_transcript t;
            ls_err err;
            assert_int_equal(generate(&p, policy, NULL, &t, &err), LS_ERR_SCRIPT);
            assert_int_equal(t.n_round, 4);
            assert_int_equal(t.end, LS_END_ERROR);
            assert_true(t.n_token >= 4 && t.n_token < p.plain->n_token);
            assert_memory_equal(t.token, p.plain->token, (size_t)t.n_token * sizeof(int32_t));
            assert_non_null(strstr(err.msg, "lua_test_g.lua:"));
            assert_non_null(strstr(err.msg, "(policy 'e', plan)"));
            ls_transcript_free(&t);
        }
        ls_policy_destroy(policy);
    }
    pair_close(&p);
}

/* A policy whose assertions hold, and which does not change the text. */
static void passes(const char *policy_script) {
    pair p;
    pair_open(&p, "table_target", "table_draft", 0);
    ls_policy *policy = policy_text(policy_script);
    ls_transcript t;
    ls_err err;
    OK(generate(&p, policy, NULL, &t, &err), &err);
    assert_true(same_text(&p, &t));
    ls_transcript_free(&t);
    ls_policy_destroy(policy);
    pair_close(&p);
}

/* more sees the draft's own distribution: greedy, the token is the list's first. */
static void drafts_are_seen(void **unused) {
    (void)unused;
    passes("return { name = 's', n_top = 2,\n"
           "  plan = function() return 4 end,\n"
           "  more = function(self, ctx, step)\n"
           "    assert(step.prob > 0 and step.prob <= 1)\n"
           "    assert(step.token == step.top[1].token)\n"
           "    assert(math.abs(step.prob - step.top[1].prob) <= 1e-6 * step.prob)\n"
           "    return true\n"
           "  end }");
}

/* observe and ctx are told what the transcript says. */
static void told_the_truth(void **unused) {
    (void)unused;
    passes("local rounds, new = 0, 0\n"
           "return { name = 't',\n"
           "  plan = function(self, ctx)\n"
           "    assert(ctx.n_rounds == rounds and ctx.n_new == new and ctx.n_prompt == 1)\n"
           "    assert(ctx.position == 1 + new and ctx.room == 24 - new - 1)\n"
           "    return 4\n"
           "  end,\n"
           "  observe = function(self, ctx, round)\n"
           "    rounds, new = rounds + 1, new + round.emitted\n"
           "    assert(ctx.last.emitted == round.emitted and round.planned == 4)\n"
           "    assert(round.accepted <= round.proposed and round.emitted <= round.accepted + 1)\n"
           "    local tried = 0\n"
           "    for d = 1, #ctx.tried do tried = tried + ctx.tried[d] end\n"
           "    self.evaluated = (self.evaluated or 0) + round.evaluated\n"
           "    assert(tried == self.evaluated)\n"
           "  end }");
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void rules(void **unused) {
    (void)unused;
    pair p;
    pair_open(&p, "table_target", "table_draft", 0);
    ls_policy *policy = policy_text("return { name = 'four', plan = function() return 4 end }");
    ls_transcript t;
    ls_err err;
    /* A judge that follows the target is plain decode; but no promise is made of it. */
    ls_rule *follow = rule_text("return { name = 'follow', judge = function(self, row)\n"
                                "return row.token == row.target_token end }");
    assert_int_equal(follow->kind, LS_RULE_LOSSY);
    OK(generate(&p, policy, follow, &t, &err), &err);
    assert_true(same_text(&p, &t));
    ls_transcript_free(&t);
    /* One that keeps all is the draft's text: after token 5 the draft goes another way. */
    ls_rule *all = rule_text("return { name = 'all', judge = function() return true end }");
    OK(generate(&p, policy, all, &t, &err), &err);
    assert_false(same_text(&p, &t));
    for (int32_t r = 0; r + 1 < t.n_round; r++)
        assert_int_equal(t.round[r].accepted, 4);
    ls_transcript_free(&t);
    /* One that puts token 9 in the place of every draft. */
    ls_rule *nine = rule_text("return { name = 'nine', judge = function() return 9 end }");
    OK(generate(&p, policy, nine, &t, &err), &err);
    for (int32_t i = 0; i + 1 < t.n_token; i++)
        assert_int_equal(t.token[i], 9);
    ls_transcript_free(&t);
    /* Fresh with each run: the third row of a run is refused, in both runs alike. */
    ls_rule *third =
        rule_text("local rows = 0 return { name = 'third', judge = function(self, row)\n"
                  "rows = rows + 1 if rows == 3 then error('third') end return true end }");
    for (int run = 0; run < 2; run++) {
        assert_int_equal(generate(&p, policy, third, &t, &err), LS_ERR_SCRIPT);
        assert_string_equal(err.msg, "lua_test_g.lua:2: third (rule 'third', judge)");
        assert_int_equal(t.n_round, 0);
        ls_transcript_free(&t);
    }
    ls_rule_destroy(follow);
    ls_rule_destroy(all);
    ls_rule_destroy(nine);
    ls_rule_destroy(third);
    ls_policy_destroy(policy);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_policy_changes_the_text),
                                       cmocka_unit_test(case_lengths),
                                       cmocka_unit_test(error_in_the_fifth_round),
                                       cmocka_unit_test(drafts_are_seen),
                                       cmocka_unit_test(told_the_truth),
                                       cmocka_unit_test(rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
