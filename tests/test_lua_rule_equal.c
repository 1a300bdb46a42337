/* Acceptance policies from Lua: the shipped ones against the rule written in C or the built-in one,
 * and what a judge of one's own may see and answer. */
#include "lua_rig.h"

#include <float.h>
#include <math.h>

#include "lua_rule.h"

#define V 8

static ls_rule *load_with(const char *name, const ls_lua_option *option, int32_t n_option) {
    static const char *const path[] = {LS_SOURCE_DIR "/policies"};
    const ls_lua_script_options o = {.limits = {.time_us = 60000000},
                                     .path = path,
                                     .n_path = 1,
                                     .option = option,
                                     .n_option = n_option};
    ls_rule *r = NULL;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_rule_load(name, &o, &r, &err), &err);
    return r;
}

static ls_rule *from_text(const char *text) {
    return load_with(ls_rig_write("r.lua", text, strlen(text)), NULL, 0);
}

/* A row as an engine would give it: p and q over 8 tokens, a draft, and the target's own draw. */
typedef struct case_row {
    float p[V], q[V];
    ls_row_stats target, draft_stats;
    ls_judge judge;
} case_row;

static void make_row(case_row *c, uint32_t i) {
    const ls_draw d = ls_draw_key(3, 0, i, LS_DRAW_TEST, 0);
    double sum_p = 0, sum_q = 0, entropy = 0;
    const double sharp = 1 + 12 * (double)ls_draw_uniform(&d, 60);
    for (uint32_t t = 0; t < V; t++) {
        sum_p += c->p[t] = (float)pow((double)ls_draw_uniform(&d, t), sharp);
        sum_q += c->q[t] = ls_draw_uniform(&d, 20 + t);
    }
    memset(&c->target, 0, sizeof c->target);
    for (int t = 0; t < V; t++) {
        c->p[t] = (float)((double)c->p[t] / sum_p);
        c->q[t] = (float)((double)c->q[t] / sum_q);
        entropy -= (double)c->p[t] * log((double)c->p[t] + DBL_MIN);
        c->target.top_token[t] = t;
        c->target.top_prob[t] = c->p[t];
    }
    c->target.n_top = V;
    c->target.entropy = (float)entropy;
    c->target.margin = 0.5f;
    c->target.token = (int32_t)(ls_draw_word(&d, 40) % V);
    c->draft_stats = c->target;
    c->judge = (ls_judge){.position = 50 + (int32_t)i,
                          .index = 1,
                          .n_draft = 4,
                          .draft = (int32_t)(ls_draw_word(&d, 44) % V),
                          .target = &c->target,
                          .draft_stats = &c->draft_stats,
                          .p_target = c->p,
                          .p_draft = c->q,
                          .n_vocab = V,
                          .seed = 9,
                          .sequence = 2,
                          .temperature = 0.5f};
}

static ls_verdict judge(ls_rule *r, const ls_judge *j) {
    ls_verdict v = {.accept = false, .token = -9};
    ls_err err;
    LUA_OK_OR_FAIL(r->judge(r, j, &v, &err), &err);
    return v;
}

/* ---- the shipped ----------------------------------------------------------------------------- */

/* Verdicts other than Medusa's rule in double, over many rows. */
static int typical_differs(ls_rule *r, double epsilon, double delta) {
    int differs = 0, kept = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        case_row c;
        make_row(&c, i);
        const double least = fmin(epsilon, delta * exp(-(double)c.target.entropy));
        const bool keep = (double)c.p[c.judge.draft] > least;
        const ls_verdict v = judge(r, &c.judge);
        differs += v.accept != keep || v.token != c.target.token;
        kept += v.accept;
    }
    assert_true(kept > 400 && kept < 3600);
    return differs;
}

static void typical(void **unused) {
    (void)unused;
    const ls_lua_option o[] = {{"epsilon", "0.2"}, {"delta", "0.9"}};
    ls_rule *r = load_with("typical", NULL, 0), *s = load_with("typical", o, 2);
    assert_int_equal(r->kind, LS_RULE_LOSSY);
    assert_string_equal(r->name, "typical");
    assert_true(r->needs_target && !r->needs_draft && r->n_top == 0);
    assert_string_equal(ls_lua_rule_options(r), "delta=0.3 epsilon=0.09");
    assert_string_equal(ls_lua_rule_options(s), "delta=0.9 epsilon=0.2");
    assert_int_equal(typical_differs(r, 0.09, 0.3), 0);
    assert_int_equal(typical_differs(s, 0.2, 0.9), 0);
    assert_true(typical_differs(r, 0.1, 0.3) > 0); /* the controls */
    assert_true(typical_differs(r, 0.09, 0.31) > 0);
    ls_rule_destroy(r);
    ls_rule_destroy(s);
}

/* exact.lua and rejection.lua are the built-in rules: the device judges for them all the same. */
static void builtins(void **unused) {
    (void)unused;
    static const char *const names[] = {"exact", "rejection"};
    for (int k = 0; k < 2; k++) {
        ls_rule *lua = load_with(names[k], NULL, 0), *own;
        ls_err err;
        LUA_OK_OR_FAIL(ls_rule_builtin(names[k], &own, &err), &err);
        assert_string_equal(lua->name, names[k]);
        assert_non_null(strstr(lua->where, "policies/accept/"));
        assert_int_equal(lua->kind, k == 0 ? LS_RULE_EXACT : LS_RULE_LOSSLESS);
        assert_int_equal(lua->accept, k == 0 ? LS_ACCEPT_EXACT : LS_ACCEPT_REJECTION);
        assert_int_equal(lua->accept, own->accept);
        assert_int_equal(lua->coupled, own->coupled);
        assert_int_equal(lua->needs_target, own->needs_target);
        assert_int_equal(lua->needs_draft, own->needs_draft);
        assert_int_equal(lua->n_top, own->n_top);
        assert_null(lua->judge);
        ls_rule_destroy(lua);
        ls_rule_destroy(own);
    }
}

/* ---- a judge of one's own -------------------------------------------------------------------- */

static void answers(void **unused) {
    (void)unused;
    static const struct {
        const char *answer, *error; /* error NULL: a verdict */
        int32_t token;              /* -1: the target's */
        bool accept;
    } all[] = {{"true", NULL, -1, true},
               {"false", NULL, -1, false},
               {"3", NULL, 3, false},
               {"3.0", NULL, 3, false},
               {"0", NULL, 0, false},
               {"7", NULL, 7, false},
               {"row.token", NULL, 5, true}, /* the drafted one stays, and the round goes on */
               {"true, 3", NULL, -1, true},  /* the first result counts */
               {"8", "8", 0, false},
               {"-1", "-1", 0, false},
               {"3.5", "3.5", 0, false},
               {"0/0", "nan", 0, false},
               {"math.huge", "inf", 0, false},
               {"1 << 40", "1099511627776", 0, false},
               {"2.0 ^ 70", "1.1805916207174113e+21", 0, false},
               {"'3'", "the text '3'", 0, false},
               {"nil", "nothing (nil)", 0, false},
               {"{}", "a table", 0, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[160], want[200];
        snprintf(text, sizeof text,
                 "return { name = 'a', judge = function(self, row) return %s end }", all[i].answer);
        ls_rule *r = from_text(text);
        case_row c;
        ls_err err;
        make_row(&c, 1);
        c.judge.draft = 5;
        c.target.token = 2;
        if (all[i].error) {
            ls_verdict v;
            assert_int_equal(r->judge(r, &c.judge, &v, &err), LS_ERR_SCRIPT);
            snprintf(
                want, sizeof want,
                "lua_test_r.lua:1: judge returned %s: it must be true, false or a token, 0 to 7 "
                "(rule 'a', judge)",
                all[i].error);
            assert_string_equal(err.msg, want);
        } else {
            const ls_verdict v = judge(r, &c.judge);
            assert_int_equal(v.accept, all[i].accept);
            assert_int_equal(v.token, all[i].token < 0 ? 2 : all[i].token);
        }
        /* It is not asked about the bonus row: the target's draw stands. */
        c.judge.draft = -1;
        const ls_verdict bonus = judge(r, &c.judge);
        assert_int_equal(bonus.accept, false);
        assert_int_equal(bonus.token, 2);
        ls_rule_destroy(r);
    }
}

static void what_a_judge_sees(void **unused) {
    (void)unused;
    ls_rule *r = from_text(
        "local function near(a, b) return math.abs(a - b) < 1e-7 end\n"
        "return { name = 'sees', n_top = 3, needs_draft = true, coupled = false,\n"
        "  begin = function(self) self.rows = 0 end,\n"
        "  judge = function(self, row)\n"
        "    self.rows = self.rows + 1\n"
        "    assert(row.token == 5 and row.position == 51 and row.index == 1 and row.n_draft == "
        "4)\n"
        "    assert(row.target_token == 2 and row.temperature == 0.5 and near(row.margin, 0.5))\n"
        "    assert(#row.top == 3 and row.top[2].token == 1)\n"
        "    local x = row.rng() assert(x >= 0 and x < 1)\n"
        "    if self.rows == 1 then return row.p_draft > 0 end\n"
        "    return self.rows\n"
        "  end }");
    case_row c;
    make_row(&c, 1);
    c.judge.draft = 5;
    c.target.token = 2;
    assert_true(r->needs_draft && !r->coupled && r->n_top == 3);
    assert_true(judge(r, &c.judge).accept);
    assert_int_equal(judge(r, &c.judge).token, 2); /* self lives from row to row */
    assert_int_equal(judge(r, &c.judge).token, 3);
    ls_err err;
    LUA_OK_OR_FAIL(r->begin(r, &err), &err); /* and begins again with a run */
    assert_true(judge(r, &c.judge).accept);
    ls_rule_destroy(r);
}

/* The probabilities are those of the drafted token; a drafter without any is a point mass. */
static void probabilities(void **unused) {
    (void)unused;
    char text[400];
    case_row c;
    make_row(&c, 7);
    c.judge.draft = 6;
    for (int mass = 0; mass < 2; mass++) {
        snprintf(text, sizeof text,
                 "return { name = 'p', needs_draft = true, judge = function(self, row)\n"
                 "return row.p_target == %a and row.p_draft == %a and row.entropy == %a end }",
                 (double)c.p[6], mass ? 1.0 : (double)c.q[6], (double)c.target.entropy);
        if (mass)
            c.judge.p_draft = NULL;
        ls_rule *r = from_text(text);
        assert_true(judge(r, &c.judge).accept);
        c.p[6] = nextafterf(c.p[6], 1); /* the control */
        assert_false(judge(r, &c.judge).accept);
        c.p[6] = nextafterf(c.p[6], 0);
        ls_rule_destroy(r);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void load_fails(const char *text, ls_status code, const char *want) {
    ls_rule *r = NULL;
    ls_err err;
    char message[LS_ERR_MAX];
    const char *file = ls_rig_write("r.lua", text, strlen(text));
    assert_int_equal(ls_lua_rule_load(file, NULL, &r, &err), code);
    assert_null(r);
    snprintf(message, sizeof message, "lua_test_r.lua: %s", want);
    assert_string_equal(err.msg, message);
}

static void loading(void **unused) {
    (void)unused;
    load_fails(
        "return { name = 'x' }", LS_ERR_SCRIPT,
        "a rule has either a judge function or rule = \"exact\" or \"rejection\" (rule 'x', load)");
    load_fails(
        "return { name = 'x', rule = 'exact', judge = function() end }", LS_ERR_SCRIPT,
        "a rule has either a judge function or rule = \"exact\" or \"rejection\" (rule 'x', load)");
    load_fails("return { name = 'x', kind = 'exact', judge = function() end }", LS_ERR_SCRIPT,
               "kind is 'exact': a rule that judges in Lua is always lossy (rule 'x', load)");
    load_fails("return { name = 'x', kind = 'fine', judge = function() end }", LS_ERR_SCRIPT,
               "kind is 'fine': it must be exact, lossless or lossy (rule 'x', load)");
    load_fails("return { name = 'x', kind = 'exact', rule = 'rejection' }", LS_ERR_SCRIPT,
               "kind is 'exact', but the rule 'rejection' is lossless (rule 'x', load)");
    load_fails("return { name = 'x', rule = 'nice' }", LS_ERR_INPUT,
               "rule 'nice' is not built in: use exact or rejection");
    load_fails("return { name = 'x', plan = function() end }", LS_ERR_SCRIPT,
               "unknown field 'plan': a rule has name, paper, kind, rule, options, ranges, n_top, "
               "needs_draft, coupled, begin, judge (rule 'lua_test_r', load)");
}

static void judge_fails(const char *body, const char *want) {
    char text[300];
    snprintf(text, sizeof text, "return { name = 'f', judge = function(self, row) %s end }", body);
    ls_rule *r = from_text(text);
    case_row c;
    ls_verdict v;
    ls_err err;
    make_row(&c, 1);
    assert_int_equal(r->judge(r, &c.judge, &v, &err), LS_ERR_SCRIPT);
    snprintf(text, sizeof text, "lua_test_r.lua:1: %s (rule 'f', judge)", want);
    assert_string_equal(err.msg, text);
    ls_rule_destroy(r);
}

static void running(void **unused) {
    (void)unused;
    judge_fails("return row.p_draft > 0",
                "row.p_draft needs needs_draft = true in the script's table");
    judge_fails("return row.top[1]", "row.top needs n_top = 1 to 8 in the script's table");
    judge_fails("return row.p",
                "row has no field 'p': it has token, position, index, n_draft, "
                "target_token, p_target, p_draft, entropy, margin, temperature, top, rng");
    judge_fails("row.token = 1", "row is read-only");
    judge_fails("while true do end", "stopped: more than 10000000 instructions in one call");
    /* a row that its caller filled wrongly is an error too, not a read past the end */
    ls_rule *r = from_text("return { name = 'f', judge = function(self, row) return true end }");
    case_row c;
    ls_verdict v;
    ls_err err;
    make_row(&c, 1);
    c.judge.draft = V;
    assert_int_equal(r->judge(r, &c.judge, &v, &err), LS_ERR_SHAPE);
    c.judge.draft = 1;
    c.judge.p_target = NULL;
    assert_int_equal(r->judge(r, &c.judge, &v, &err), LS_ERR_SHAPE);
    ls_rule_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typical),       cmocka_unit_test(builtins),
        cmocka_unit_test(answers),       cmocka_unit_test(what_a_judge_sees),
        cmocka_unit_test(probabilities), cmocka_unit_test(loading),
        cmocka_unit_test(running)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
