/* A length policy as the host sees it: what its callbacks are shown, what a run begins with, where
 * its options and its random numbers come from. */
#include "lua_rig.h"

#include "file.h"

static const char *const path[] = {LS_SOURCE_DIR "/policies"};

/* A policy from text, through a file as users have it. */
static ls_status load(const char *text, const ls_lua_option *option, int32_t n_option,
                      ls_policy **out, ls_err *err) {
    const ls_lua_script_options options = {
        .path = path, .n_path = 1, .option = option, .n_option = n_option};
    return ls_lua_policy_load(ls_rig_write("p.lua", text, strlen(text)), &options, out, err);
}

static ls_policy *loaded(const char *text) {
    ls_policy *p = NULL;
    ls_err err;
    LUA_OK_OR_FAIL(load(text, NULL, 0, &p, &err), &err);
    return p;
}

static void begin(ls_policy *p, uint64_t seed) {
    const ls_policy_ctx ctx = ls_rig_ctx(seed);
    ls_err err;
    LUA_OK_OR_FAIL(p->begin(p, &ctx, &err), &err);
}

static int64_t plan(ls_policy *p, const ls_policy_ctx *ctx) {
    int64_t n = -1;
    ls_err err;
    LUA_OK_OR_FAIL(p->plan(p, ctx, &n, &err), &err);
    return n;
}

static void load_fails(const char *text, const char *want) {
    ls_policy *p = NULL;
    ls_err err = {0};
    assert_int_equal(load(text, NULL, 0, &p, &err), LS_ERR_SCRIPT);
    assert_null(p);
    assert_string_equal(err.msg, want);
}

/* plan must fail with this message. */
static void plan_fails(const char *text, const char *want) {
    ls_policy *p = loaded(text);
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    int64_t n;
    ls_err err;
    begin(p, 1);
    assert_int_equal(p->plan(p, &ctx, &n, &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg, want);
    ls_policy_destroy(p);
}

/* ---- finding and loading --------------------------------------------------------------------- */

static void shipped(void **unused) {
    (void)unused;
    static const struct {
        const char *name, *options;
        bool more, observe;
    } all[] = {{"fixed", "n=4", false, false},
               {"heuristic", "max=32 n=5", false, true},
               {"confidence", "max=20 threshold=0.4", true, false},
               {"svip", "h=0.3 k=0.15 max=40", true, false}};
    const ls_lua_script_options options = {.path = path, .n_path = 1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_policy *p;
        ls_err err;
        char where[512];
        LUA_OK_OR_FAIL(ls_lua_policy_load(all[i].name, &options, &p, &err), &err);
        snprintf(where, sizeof where, "%s/length/%s.lua", path[0], all[i].name);
        assert_string_equal(p->name, all[i].name);
        assert_string_equal(p->where, where);
        assert_string_equal(ls_lua_policy_options(p), all[i].options);
        assert_int_equal(p->more != NULL, all[i].more); /* absent callbacks cost nothing */
        assert_int_equal(p->observe != NULL, all[i].observe);
        begin(p, 1);
        const ls_policy_ctx ctx = ls_rig_ctx(1);
        assert_true(plan(p, &ctx) > 0);
        ls_policy_destroy(p);
    }
}

static void names(void **unused) {
    (void)unused;
    const ls_lua_script_options options = {.path = path, .n_path = 1};
    ls_policy *p = NULL;
    ls_err err;
    assert_int_equal(ls_lua_policy_load("svpi", &options, &p, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "no policy 'svpi' in "));
    assert_non_null(strstr(err.msg,
                           "there are confidence, fixed, heuristic, svip; or give the path of a "
                           ".lua file"));
    assert_int_equal(ls_lua_policy_load("", &options, &p, &err), LS_ERR_INPUT);
    assert_int_equal(ls_lua_policy_load("x/\x1b[2J", &options, &p, &err), LS_ERR_IO);
    assert_null(strchr(err.msg, '\x1b'));
    assert_int_equal(ls_lua_policy_load("svip", NULL, &p, &err), LS_ERR_INPUT); /* no path */
    assert_null(p);
}

static void tables(void **unused) {
    (void)unused;
#define LOAD " (policy 'lua_test_p', load)"
    load_fails("return 4", "lua_test_p.lua: a policy is a table, not a number: end the file with "
                           "return { ... }" LOAD);
    load_fails("local x = 1", "lua_test_p.lua: a policy is a table, not a nil: end the file with "
                              "return { ... }" LOAD);
    load_fails("return {}", "lua_test_p.lua: the policy has no field 'name' (a string)" LOAD);
    load_fails("return { name = 'x' }",
               "lua_test_p.lua: the policy has no field 'plan' (a function)" LOAD);
    load_fails("return { name = 'x', plan = 4 }",
               "lua_test_p.lua: field 'plan' is a number: it must be a function" LOAD);
    load_fails(
        "return { name = 'x', plan = function() end, obverse = function() end }",
        "lua_test_p.lua: unknown field 'obverse': a policy has name, paper, options, ranges, "
        "n_top, begin, plan, more, observe" LOAD);
    load_fails(
        "return { name = 'x', plan = function() end, 4 }",
        "lua_test_p.lua: unknown field '1': a policy has name, paper, options, ranges, n_top, "
        "begin, plan, more, observe" LOAD);
    load_fails(
        "return { name = 'x y', plan = function() end }",
        "lua_test_p.lua: the name of a policy is 1 to 64 letters, digits, or any of _ - . +" LOAD);
    load_fails("return { name = 'x', n_top = 9, plan = function() end }",
               "lua_test_p.lua: n_top is 9: it must be a whole number, 0 to 8 (policy 'x', load)");
    load_fails(
        "return { name = 'x', options = { n = {} }, plan = function() end }",
        "lua_test_p.lua: option 'n' has a table as its default: give a number, true, false or a "
        "text" LOAD);
    load_fails("return { name = 'x', options = { 4 }, plan = function() end }",
               "lua_test_p.lua: options must be named: name = default" LOAD);
    load_fails(
        "return { name = 'x', options = { n = 4 }, ranges = { n = { 5, 6 } }, plan = print }",
        "lua_test_p.lua: the policy has no field 'plan' (a function)" LOAD);
    load_fails(
        "return { name = 'x', options = { n = 4 }, ranges = { n = { 5, 6 } }, plan = error }",
        "lua_test_p.lua: the default of option 'n' is 4: its range is 5 to 6" LOAD);
    load_fails(
        "return { name = 'x', options = { n = 4 }, ranges = { m = { 5, 6 } }, plan = error }",
        "lua_test_p.lua: ranges has 'm', which is no option" LOAD);
    load_fails("return { name = 'x', options = { n = 4 }, ranges = { n = { 5 } }, plan = error }",
               "lua_test_p.lua: ranges.n must be {lowest, highest}" LOAD);
    load_fails("\nreturn { name = }", "lua_test_p.lua:2: unexpected symbol near '}'" LOAD);
}

/* ---- options --------------------------------------------------------------------------------- */

static const char *const option_policy =
    "return { name = 'o', options = { n = 4, f = 0.5, b = true, s = 'x' }, ranges = { n = { 0, 9 } "
    "},\n"
    "  plan = function(self)\n"
    "    local o = self.options\n"
    "    assert(math.type(o.n) == 'integer' and math.type(o.f) == 'float')\n"
    "    assert(type(o.b) == 'boolean' and type(o.s) == 'string')\n"
    "    return o.n\n"
    "  end }";

static void option_fails(const char *name, const char *value, const char *want) {
    const ls_lua_option o = {name, value};
    ls_policy *p = NULL;
    ls_err err;
    char message[256];
    assert_int_equal(load(option_policy, &o, 1, &p, &err), LS_ERR_INPUT);
    snprintf(message, sizeof message, "lua_test_p.lua: %s (policy 'lua_test_p', load)", want);
    assert_string_equal(err.msg, message);
}

static void options(void **unused) {
    (void)unused;
    const ls_lua_option given[] = {
        {"n", "1"}, {"f", "2"}, {"b", "false"}, {"s", "a b"}, {"n", "9.0"}};
    ls_policy *p;
    ls_err err;
    LUA_OK_OR_FAIL(load(option_policy, given, 5, &p, &err), &err);
    assert_string_equal(ls_lua_policy_options(p), "b=false f=2 n=9 s=a b");
    for (int run = 0; run < 2; run++) { /* also in the second run's fresh state */
        const ls_policy_ctx ctx = ls_rig_ctx(1);
        begin(p, 1);
        assert_int_equal(plan(p, &ctx), 9);
    }
    ls_policy_destroy(p);
    option_fails("m", "1", "unknown option 'm': there are b, f, n, s");
    option_fails("n", "10", "option 'n' is '10': it must be 0 to 9");
    option_fails("n", "1.5", "option 'n' is '1.5': it must be a whole number");
    option_fails("n", "x", "option 'n' is 'x': it must be a number");
    option_fails("n", "", "option 'n' is '': it must be a number");
    option_fails("n", "nan", "option 'n' is 'nan': it must be a number");
    option_fails("f", "1e999", "option 'f' is '1e999': it must be a number");
    option_fails("f", "inf", "option 'f' is 'inf': it must be a number");
    option_fails("b", "yes", "option 'b' is 'yes': it must be true or false");
    option_fails("n", "\x1b[2J", "option 'n' is '\\x1B[2J': it must be a number");
}

/* ---- what the callbacks see ------------------------------------------------------------------ */

static void fields(void **unused) {
    (void)unused;
    ls_policy *p = loaded(
        "local function near(a, b) return math.abs(a - b) < 1e-6 end\n"
        "local function round_is(r, base)\n"
        "  assert(r.position == base and r.planned == base + 1 and r.proposed == base + 2)\n"
        "  assert(r.accepted == base + 3 and r.evaluated == base + 4 and r.emitted == base + 5)\n"
        "  assert(r.clamped == true and near(r.draft_us, 1.5) and near(r.verify_us, 2.5))\n"
        "  assert(near(r.policy_us, 3.5) and near(r.accept_us, 4.5))\n"
        "end\n"
        "local function ctx_is(ctx)\n"
        "  assert(ctx.position == 100 and ctx.n_prompt == 60 and ctx.n_new == 40 and ctx.room == "
        "17)\n"
        "  assert(ctx.n_rounds == 9 and near(ctx.temperature, 0.75) and near(ctx.draft_us, "
        "12.25))\n"
        "  round_is(ctx.last, 200)\n"
        "  assert(#ctx.tried == 64 and #ctx.accepted == 64 and #ctx.verify_us == 64)\n"
        "  for d = 1, 64 do\n"
        "    assert(ctx.tried[d] == 1000 + d - 1 and ctx.accepted[d] == 500 + d - 1)\n"
        "  end\n"
        "  for n = 0, 64 do assert(ctx.verify_us[n] == 0.5 * n) end\n"
        "  assert(ctx.tried[0] == nil and ctx.tried[65] == nil and ctx.verify_us[65] == nil)\n"
        "  assert(ctx.tried[2.0] == 1001 and ctx.tried[-1] == nil and ctx.tried[math.maxinteger] "
        "== nil)\n"
        "  local n = 0 for _ in ipairs(ctx.tried) do n = n + 1 end assert(n == 64)\n"
        "  local x = ctx.rng() assert(x >= 0 and x < 1) assert(ctx.rng(1) == 1)\n"
        "  local i = ctx.rng(3, 5) assert(i >= 3 and i <= 5)\n"
        "end\n"
        "return { name = 'fields', n_top = 2,\n"
        "  begin = function(self, ctx) ctx_is(ctx) self.began = true end,\n"
        "  plan = function(self, ctx) ctx_is(ctx) assert(self.began) return 3 end,\n"
        "  more = function(self, ctx, step)\n"
        "    ctx_is(ctx)\n"
        "    assert(step.n == 2 and step.token == 77 and near(step.prob, 0.25))\n"
        "    assert(near(step.entropy, 1.25) and near(step.margin, 0.125) and #step.top == 2)\n"
        "    assert(step.top[1].token == 5 and near(step.top[1].prob, 0.5))\n"
        "    assert(step.top[2].token == 77 and near(step.top[2].prob, 0.25))\n"
        "    return true\n"
        "  end,\n"
        "  observe = function(self, ctx, round) ctx_is(ctx) round_is(round, 300) end }");
    ls_policy_ctx ctx = {.position = 100,
                         .n_prompt = 60,
                         .n_new = 40,
                         .room = 17,
                         .n_rounds = 9,
                         .draft_us = 12.25,
                         .temperature = 0.75f};
    ls_round round = {.position = 200,
                      .planned = 201,
                      .proposed = 202,
                      .accepted = 203,
                      .evaluated = 204,
                      .emitted = 205,
                      .clamped = true,
                      .draft_us = 1.5f,
                      .verify_us = 2.5f,
                      .policy_us = 3.5f,
                      .accept_us = 4.5f};
    ctx.last = round;
    for (int i = 0; i < LS_DRAFT_MAX; i++) {
        ctx.tried[i] = 1000 + i;
        ctx.accepted[i] = 500 + i;
    }
    for (int i = 0; i <= LS_DRAFT_MAX; i++)
        ctx.verify_us[i] = 0.5 * i;
    const int32_t token[] = {5, 77, 6};
    const float prob[] = {0.5f, 0.25f, 0.125f};
    const ls_policy_step step = {.n = 2,
                                 .token = 77,
                                 .prob = 0.25f,
                                 .entropy = 1.25f,
                                 .margin = 0.125f,
                                 .n_top = 3,
                                 .top_token = token,
                                 .top_prob = prob};
    ls_err err;
    bool yes = false;
    int64_t n = 0;
    assert_int_equal(p->n_top, 2);
    LUA_OK_OR_FAIL(p->begin(p, &ctx, &err), &err);
    LUA_OK_OR_FAIL(p->plan(p, &ctx, &n, &err), &err);
    assert_int_equal(n, 3);
    LUA_OK_OR_FAIL(p->more(p, &ctx, &step, &yes, &err), &err);
    assert_true(yes);
    round.position = 300, round.planned = 301, round.proposed = 302;
    round.accepted = 303, round.evaluated = 304, round.emitted = 305;
    LUA_OK_OR_FAIL(p->observe(p, &ctx, &round, &err), &err);
    /* a drafter without a distribution lists nothing */
    const ls_policy_step bare = {.n = 2, .token = 77, .prob = 1};
    assert_int_equal(p->more(p, &ctx, &bare, &yes, &err), LS_ERR_SCRIPT);
    ls_policy_destroy(p);
}

static void strict(void **unused) {
    (void)unused;
#define PLAN(body) "return { name = 'p', plan = function(self, ctx) " body " end }"
#define SAYS(text) "lua_test_p.lua:1: " text " (policy 'p', plan)"
    plan_fails(
        PLAN("return ctx.romm"),
        SAYS("ctx has no field 'romm': it has position, n_prompt, n_new, room, n_rounds, last, "
             "tried, accepted, draft_us, verify_us, temperature, rng"));
    plan_fails(
        PLAN("return ctx.last.rate"),
        SAYS("round has no field 'rate': it has position, planned, proposed, accepted, evaluated, "
             "emitted, clamped, draft_us, verify_us, policy_us, accept_us"));
    plan_fails(
        PLAN("return ctx[1]"),
        SAYS("ctx has no field '1': it has position, n_prompt, n_new, room, n_rounds, last, tried, "
             "accepted, draft_us, verify_us, temperature, rng"));
    plan_fails(PLAN("ctx.room = 5"), SAYS("ctx is read-only"));
    plan_fails(PLAN("ctx.extra = 5"), SAYS("ctx is read-only"));
    plan_fails(PLAN("ctx.tried[1] = 5"), SAYS("tried is read-only"));
    plan_fails(PLAN("ctx.last.accepted = 5"), SAYS("round is read-only"));
    plan_fails(PLAN("return ctx.tried.one"),
               SAYS("tried is indexed by whole numbers, not by 'one'"));
    plan_fails(PLAN("return ctx.tried[1.5]"),
               SAYS("tried is indexed by whole numbers, not by '1.5'"));
    plan_fails(PLAN("return ctx.tried['1']"),
               SAYS("tried is indexed by whole numbers, not by '1'"));
    plan_fails(PLAN("return getmetatable(ctx).x"), SAYS("attempt to index a boolean value"));
    plan_fails(PLAN("return self.options.n"), SAYS("unknown option 'n'"));
    plan_fails(PLAN("self.options.n = 1"), SAYS("unknown option 'n'"));
    plan_fails(PLAN("return ctx.rng(0)"), SAYS("bad argument #1 to 'rng' (interval is empty)"));
    plan_fails(PLAN("x = 1"), SAYS("assignment to undeclared global 'x': declare it with local"));
    plan_fails(PLAN("return optoins"), SAYS("unknown global 'optoins'"));
    plan_fails(PLAN("return ctx"),
               SAYS("plan returned a userdata: it must be a whole number, 0 or more"));
}

/* Lengths beyond those of the carried cases: floats at the edges of an int64. */
static void results_of_plan(void **unused) {
    (void)unused;
    static const struct {
        const char *answer, *error;
        int64_t n;
    } all[] = {{"2.0 ^ 62", NULL, INT64_C(1) << 62},
               {"2.0 ^ 63", NULL, INT64_MAX},
               {"2.0 ^ 63 - 1024", NULL, INT64_MAX - 1023},
               {"1e300", NULL, INT64_MAX},
               {"-1.0", "-1", 0},
               {"-2.0 ^ 63", "-9.2233720368547758e+18", 0},
               {"-1e300", "-1.0000000000000001e+300", 0},
               {"0.1", "0.10000000000000001", 0},
               {"-math.huge", "-inf", 0}};
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[128], want[192];
        snprintf(text, sizeof text, PLAN("return %s"), all[i].answer);
        if (all[i].error) {
            snprintf(want, sizeof want,
                     SAYS("plan returned %s: it must be a whole number, 0 or more"), all[i].error);
            plan_fails(text, want);
        } else {
            ls_policy *p = loaded(text);
            begin(p, 1);
            assert_int_equal(plan(p, &ctx), all[i].n);
            ls_policy_destroy(p);
        }
    }
}

static void results_of_more(void **unused) {
    (void)unused;
    ls_policy *p = loaded("local answers = { true, false, 1, 'true', nil, {} }\n"
                          "return { name = 'm', plan = function() return 1 end,\n"
                          "  more = function(self, ctx, step)\n"
                          "    if step.n == 9 then return step.top end\n"
                          "    return answers[step.n]\n"
                          "  end }");
    static const char *const shown[] = {NULL,     NULL, "1", "the text 'true'", "nothing (nil)",
                                        "a table"};
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    ls_err err;
    begin(p, 1);
    for (int i = 0; i < 6; i++) {
        const ls_policy_step step = {.n = i + 1};
        bool yes = i != 0;
        char want[160];
        snprintf(want, sizeof want,
                 "lua_test_p.lua:3: more returned %s: it must be true or false (policy 'm', more)",
                 shown[i] ? shown[i] : "");
        if (i < 2) {
            LUA_OK_OR_FAIL(p->more(p, &ctx, &step, &yes, &err), &err);
            assert_int_equal(yes, i == 0);
        } else {
            assert_int_equal(p->more(p, &ctx, &step, &yes, &err), LS_ERR_SCRIPT);
            assert_string_equal(err.msg, want);
        }
    }
    const ls_policy_step step = {.n = 9};
    bool yes;
    assert_int_equal(p->more(p, &ctx, &step, &yes, &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg,
                        "lua_test_p.lua:4: step.top needs n_top = 1 to 8 in the script's table "
                        "(policy 'm', more)");
    ls_policy_destroy(p);
}

/* A view kept past its call says so, and does not read memory that is gone. */
static void views_expire(void **unused) {
    (void)unused;
    ls_policy *p =
        loaded("return { name = 'v',\n"
               "  plan = function(self, ctx) self.ctx, self.last = ctx, ctx.last return 1 end,\n"
               "  observe = function(self, ctx, round)\n"
               "    if not self.round then self.round = round return end\n"
               "    assert(self.ctx == ctx and self.round == round)\n"
               "    self.kept = round\n"
               "  end,\n"
               "  more = function(self, ctx, step)\n"
               "    if step.n == 1 then return self.round.accepted > 0 end\n"
               "    return self.last.accepted > 0\n"
               "  end }");
    ls_policy_ctx ctx = ls_rig_ctx(1);
    ls_err err;
    bool yes;
    begin(p, 1);
    plan(p, &ctx);
    const ls_round round = {.accepted = 1};
    LUA_OK_OR_FAIL(p->observe(p, &ctx, &round, &err), &err);
    LUA_OK_OR_FAIL(p->observe(p, &ctx, &round, &err), &err);
    const ls_policy_step first = {.n = 1}, second = {.n = 2};
    assert_int_equal(p->more(p, &ctx, &first, &yes, &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg,
                        "lua_test_p.lua:9: round is only there during the call it was given to "
                        "(policy 'v', more)");
    ctx.last.accepted = 1; /* ctx.last belongs to ctx, which is there in every call */
    LUA_OK_OR_FAIL(p->more(p, &ctx, &second, &yes, &err), &err);
    assert_true(yes);
    ls_policy_destroy(p);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const char *const counting = "local calls = 0\n"
                                    "return { name = 'c', plan = function(self)\n"
                                    "  calls = calls + 1 self.calls = (self.calls or 0) + 1\n"
                                    "  return calls * 100 + self.calls\n"
                                    "end }";

static void a_run_begins_fresh(void **unused) {
    (void)unused;
    ls_policy *a = loaded(counting), *b = loaded(counting);
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    int64_t n;
    ls_err err;
    assert_int_equal(a->plan(a, &ctx, &n, &err), LS_ERR_STATE); /* no run has begun */
    begin(a, 1);
    begin(b, 1);
    assert_int_equal(plan(a, &ctx), 101);
    assert_int_equal(plan(a, &ctx), 202);
    assert_int_equal(plan(b, &ctx), 101);
    begin(a, 1);
    assert_int_equal(plan(a, &ctx), 101);
    assert_int_equal(plan(b, &ctx), 202);
    /* the file's text was read at load: what becomes of the file does not matter */
    ls_rig_write("p.lua", "nonsense(", 9);
    begin(a, 1);
    assert_int_equal(plan(a, &ctx), 101);
    ls_policy_destroy(a);
    ls_policy_destroy(b);
}

/* A policy inside an experiment: `self` is fresh, the script's own locals go on. */
static void inline_policy(void **unused) {
    (void)unused;
    const ls_lua_limits limits = {.n_step = LS_LUA_UNLIMITED, .time_us = LS_LUA_UNLIMITED};
    ls_lua *state = ls_rig_state(limits);
    lua_State *L = ls_lua_raw(state);
    ls_policy *p;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_text(state, "exp.lua", counting, strlen(counting), NULL, &err), &err);
    LUA_OK_OR_FAIL(ls_lua_policy_take(state, -1, NULL, &p, &err), &err);
    assert_int_equal(lua_gettop(L), 1);
    lua_pop(L, 1);
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    begin(p, 1);
    assert_int_equal(plan(p, &ctx), 101);
    begin(p, 1);
    assert_int_equal(plan(p, &ctx), 201);
    ls_policy_destroy(p);
    /* its calls have the default budget, though the experiment has none */
    const char *loop = "return { name = 'l', plan = function() while true do end end }";
    LUA_OK_OR_FAIL(ls_lua_text(state, "exp.lua", loop, strlen(loop), NULL, &err), &err);
    LUA_OK_OR_FAIL(ls_lua_policy_take(state, -1, NULL, &p, &err), &err);
    begin(p, 1);
    int64_t n;
    assert_int_equal(p->plan(p, &ctx, &n, &err), LS_ERR_SCRIPT);
    assert_non_null(strstr(err.msg, "exp.lua:1: stopped: more than "));
    ls_policy_destroy(p);
    ls_lua_destroy(state);
}

/* A run that ended in an error does not spoil the next. */
static void after_an_error(void **unused) {
    (void)unused;
    ls_policy *p =
        loaded("return { name = 'e',\n"
               "  begin = function(self, ctx) if ctx.n_new == 7 then error('seven') end end,\n"
               "  plan = function(self, ctx) if ctx.room == 1 then while true do end end "
               "return 2 end }");
    ls_policy_ctx ctx = ls_rig_ctx(1);
    ls_err err;
    int64_t n;
    begin(p, 1);
    ctx.room = 1;
    assert_int_equal(p->plan(p, &ctx, &n, &err), LS_ERR_SCRIPT);
    ctx.room = 20;
    assert_int_equal(plan(p, &ctx), 2);
    ctx.n_new = 7;
    assert_int_equal(p->begin(p, &ctx, &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg, "lua_test_p.lua:2: seven (policy 'e', begin)");
    begin(p, 1);
    assert_int_equal(plan(p, &ctx), 2);
    ls_policy_destroy(p);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void lengths(ls_policy *p, uint64_t seed, uint32_t sequence, int64_t out[16]) {
    ls_policy_ctx ctx = ls_rig_ctx(seed);
    ls_err err;
    ctx.sequence = sequence;
    LUA_OK_OR_FAIL(p->begin(p, &ctx, &err), &err);
    for (int i = 0; i < 16; i++) {
        ctx.position = 10 + 3 * i;
        out[i] = plan(p, &ctx);
    }
}

static void random_lengths(void **unused) {
    (void)unused;
    ls_policy *a =
        loaded("return { name = 'r', plan = function(s, ctx) return ctx.rng(1 << 40) end }");
    ls_policy *b =
        loaded("return { name = 'r', plan = function(s, ctx) return math.random(1 << 40) end }");
    /* draws 0 to 9 numbers more a round, after the one that counts */
    ls_policy *c =
        loaded("return { name = 'r', plan = function(s, ctx) local n = ctx.rng(1 << 40)\n"
               "for i = 1, ctx.position % 10 do ctx.rng() end return n end }");
    int64_t x[16], y[16];
    lengths(a, 5, 0, x);
    for (int i = 1; i < 16; i++)
        assert_int_not_equal(x[i], x[0]);
    lengths(a, 5, 0, y);
    assert_memory_equal(x, y, sizeof x);
    lengths(b, 5, 0, y);
    assert_memory_equal(x, y, sizeof x);
    lengths(c, 5, 0, y); /* a round's numbers do not depend on how many the last one drew */
    assert_memory_equal(x, y, sizeof x);
    lengths(a, 6, 0, y);
    assert_memory_not_equal(x, y, sizeof x);
    lengths(a, 5, 1, y);
    assert_memory_not_equal(x, y, sizeof x);
    ls_policy_destroy(a);
    ls_policy_destroy(b);
    ls_policy_destroy(c);
}

/* Numbers of a policy inside an experiment do not move the experiment's own. */
static void random_apart(void **unused) {
    (void)unused;
    lua_Integer own[2];
    for (int with = 0; with < 2; with++) {
        ls_lua *state = ls_rig_state((ls_lua_limits){0});
        lua_State *L = ls_lua_raw(state);
        const char *text = "return { name = 'r', plan = function(s, ctx) return ctx.rng(8) end }";
        ls_policy *p;
        ls_err err;
        ls_rig_integer(state, "return math.random(1 << 50)");
        LUA_OK_OR_FAIL(ls_lua_text(state, "exp.lua", text, strlen(text), NULL, &err), &err);
        LUA_OK_OR_FAIL(ls_lua_policy_take(state, -1, NULL, &p, &err), &err);
        lua_pop(L, 1);
        const ls_policy_ctx ctx = ls_rig_ctx(3);
        begin(p, 3);
        for (int i = 0; i < 5 * with; i++)
            plan(p, &ctx);
        own[with] = ls_rig_integer(state, "return math.random(1 << 50)");
        ls_policy_destroy(p);
        ls_lua_destroy(state);
    }
    assert_int_equal(own[0], own[1]);
}

/* The hostile policy of the generation tests: lengths of every kind, none of them an error. */
static void hostile(void **unused) {
    (void)unused;
    ls_policy *p;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_policy_load(LS_TEST_DIR "/lua/hostile.lua", NULL, &p, &err), &err);
    ls_policy_ctx ctx = ls_rig_ctx(1);
    begin(p, 1);
    int none = 0, huge = 0, most = 0;
    for (int i = 0; i < 400; i++) {
        ctx.position++;
        const int64_t n = plan(p, &ctx);
        none += n == 0;
        huge += n == INT64_MAX;
        most += n == ctx.room;
    }
    assert_true(none > 20 && huge > 40 && most > 20);
    ls_policy_destroy(p);
}

/* The page its users read begins with a policy: it works. */
static void example_of_the_readme(void **unused) {
    (void)unused;
    char *page, text[2048];
    size_t n, at = 0;
    ls_err err;
    LUA_OK_OR_FAIL(
        ls_file_read(LS_SOURCE_DIR "/policies/README.md", NULL, 1 << 20, &page, &n, &err), &err);
    const char *line = strstr(page, "    return {\n");
    assert_non_null(line);
    while (strncmp(line, "    ", 4) == 0) {
        const char *end = strchr(line, '\n') + 1;
        const size_t k = (size_t)(end - line) - 4;
        assert_true(at + k < sizeof text);
        memcpy(text + at, line + 4, k);
        at += k;
        line = end;
    }
    text[at] = 0;
    free(page);
    const ls_lua_option o = {"gain", "0.5"};
    ls_policy *p;
    LUA_OK_OR_FAIL(load(text, &o, 1, &p, &err), &err);
    ls_policy_ctx ctx = ls_rig_ctx(1);
    begin(p, 1);
    assert_int_equal(plan(p, &ctx), 5); /* a mean of 4, and one more */
    const ls_round none = {.proposed = 5}, all = {.proposed = 5, .accepted = 10};
    LUA_OK_OR_FAIL(p->observe(p, &ctx, &none, &err), &err);
    assert_int_equal(plan(p, &ctx), 3);
    LUA_OK_OR_FAIL(p->observe(p, &ctx, &all, &err), &err);
    assert_int_equal(plan(p, &ctx), 7);
    ls_policy_destroy(p);
}

static void cost(void **unused) {
    (void)unused;
    const ls_lua_script_options o = {.path = path, .n_path = 1};
    ls_policy *p;
    ls_err err;
    ls_lua_policy_cost c;
    LUA_OK_OR_FAIL(ls_lua_policy_load("svip", &o, &p, &err), &err);
    LUA_OK_OR_FAIL(ls_lua_policy_bench(p, 2000, &c, &err), &err);
    assert_true(c.plan_median_us > 0 && c.plan_median_us <= c.plan_p99_us);
    assert_true(c.more_median_us > 0 && c.more_median_us <= c.more_p99_us);
    assert_true(c.observe_median_us == 0 && c.observe_p99_us == 0);
    assert_int_equal(ls_lua_policy_bench(p, 0, &c, &err), LS_ERR_INPUT);
    ls_policy_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shipped),
                                       cmocka_unit_test(names),
                                       cmocka_unit_test(tables),
                                       cmocka_unit_test(options),
                                       cmocka_unit_test(fields),
                                       cmocka_unit_test(strict),
                                       cmocka_unit_test(results_of_plan),
                                       cmocka_unit_test(results_of_more),
                                       cmocka_unit_test(views_expire),
                                       cmocka_unit_test(a_run_begins_fresh),
                                       cmocka_unit_test(inline_policy),
                                       cmocka_unit_test(after_an_error),
                                       cmocka_unit_test(random_lengths),
                                       cmocka_unit_test(random_apart),
                                       cmocka_unit_test(hostile),
                                       cmocka_unit_test(example_of_the_readme),
                                       cmocka_unit_test(cost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
