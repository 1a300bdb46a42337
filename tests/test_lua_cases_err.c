/* Every script under tests/cases/lua, each with its verdict: what it answers, or where it ends and
 * what is said. A file without a verdict fails the test. */
#include "lua_rig.h"

#include <dirent.h>

enum verdict { LOAD_ERROR, CALL_ERROR, VALUE };

typedef struct lua_case {
    const char *file;
    enum verdict verdict;
    int64_t n;        /* VALUE */
    const char *text; /* an error: how the message goes on after the path */
} lua_case;

#define GLOBAL(name) ":1: attempt to index a nil value (global '" name "') (policy 'case', plan)"
#define NIL_CALL(name) ":1: attempt to call a nil value (global '" name "') (policy 'case', plan)"
#define STEPS ":1: stopped: more than 3000000 instructions in one call (policy 'case', "
#define NOT_LENGTH(value) \
    ": plan returned " value ": it must be a whole number, 0 or more (policy 'case', plan)"

static const lua_case cases[] = {
    {"err_runtime.lua", CALL_ERROR, 0,
     ":1: attempt to perform arithmetic on a nil value (policy 'case', plan)"},
    {"err_no_value.lua", CALL_ERROR, 0, ":1: an error without a message (policy 'case', plan)"},
    {"err_table.lua", CALL_ERROR, 0,
     ":1: an error whose value is a table, not a text (policy 'case', plan)"},
    {"err_tostring_raises.lua", CALL_ERROR, 0,
     ":1: an error whose value is a table, not a text (policy 'case', plan)"},
    {"err_binary_message.lua", CALL_ERROR, 0, ":1: \\x00\\xFF\\x1B[2J (policy 'case', plan)"},
    {"err_syntax.lua", LOAD_ERROR, 0, ":1: ')' expected near 'return' (policy 'case', load)"},
    {"err_at_top_level.lua", LOAD_ERROR, 0, ":1: top (policy 'case', load)"},
    {"no_hook.lua", LOAD_ERROR, 0, "the policy has no field 'plan' (a function)"},
    {"hook_not_function.lua", LOAD_ERROR, 0, "field 'plan' is a number: it must be a function"},
    {"deep_recursion.lua", CALL_ERROR, 0,
     ":1: stack overflow: calls are nested more than 100000 deep (policy 'case', plan)"},
    {"c_stack_recursion.lua", CALL_ERROR, 0, ":2: C stack overflow (policy 'case', plan)"},
    {"sort_invalid.lua", VALUE, 4, NULL},
    {"crlf_bom.lua", VALUE, 4, NULL},
    {"loop_forever.lua", CALL_ERROR, 0, STEPS "plan)"},
    {"loop_at_load.lua", LOAD_ERROR, 0, STEPS "load)"},
    {"loop_pcall.lua", CALL_ERROR, 0, STEPS "plan)"},
    {"loop_xpcall_handler.lua", CALL_ERROR, 0, NIL_CALL("xpcall")},
    {"loop_coroutine.lua", CALL_ERROR, 0, GLOBAL("coroutine")},
    {"loop_gc.lua", LOAD_ERROR, 0,
     ":1: finalisers (__gc) are not available to scripts (policy 'case', load)"},
    {"loop_close.lua", CALL_ERROR, 0, STEPS "plan)"},
    {"pattern_backtrack.lua", CALL_ERROR, 0,
     ":3: attempt to call a nil value (method 'find') (policy 'case', plan)"},
    {"escape_os_exit.lua", CALL_ERROR, 0, GLOBAL("os")},
    {"escape_os_execute.lua", CALL_ERROR, 0, GLOBAL("os")},
    {"escape_os_getenv.lua", CALL_ERROR, 0, GLOBAL("os")},
    {"escape_io_open.lua", CALL_ERROR, 0, GLOBAL("io")},
    {"escape_io_popen.lua", CALL_ERROR, 0, GLOBAL("io")},
    {"escape_require.lua", CALL_ERROR, 0,
     ":1: module 'os' is not known, and no folder of the policy path has os.lua (policy 'case', "
     "plan)"},
    {"escape_package_loadlib.lua", CALL_ERROR, 0, GLOBAL("package")},
    {"escape_dofile.lua", CALL_ERROR, 0, NIL_CALL("dofile")},
    {"escape_loadfile.lua", CALL_ERROR, 0, NIL_CALL("loadfile")},
    {"escape_debug_registry.lua", CALL_ERROR, 0, GLOBAL("debug")},
    {"escape_debug_sethook.lua", CALL_ERROR, 0, GLOBAL("debug")},
    {"escape_collectgarbage_stop.lua", CALL_ERROR, 0, NIL_CALL("collectgarbage")},
    {"escape_load_env_escape.lua", CALL_ERROR, 0, NIL_CALL("load")},
    {"escape_string_dump.lua", CALL_ERROR, 0,
     ":1: attempt to call a nil value (field 'dump') (policy 'case', plan)"},
    {"escape_bytecode.lua", CALL_ERROR, 0, NIL_CALL("load")},
    {"escape_bytecode_file.lua", LOAD_ERROR, 0,
     ": attempt to load a binary chunk (mode is 't') (policy 'case', load)"},
    {"pollute_a.lua", LOAD_ERROR, 0, ":1: attempt to index a boolean value (policy 'case', load)"},
    {"pollute_b.lua", VALUE, 3, NULL},
    {"pollute_g.lua", LOAD_ERROR, 0,
     ":1: bad argument #1 to 'setmetatable' (table expected, got nil) (policy 'case', load)"},
    {"state_counter.lua", VALUE, 1, NULL},
    {"random_unseeded.lua", VALUE, -1, NULL}, /* any length: see test_lua_policy_state */
    {"clock_policy.lua", VALUE, 4, NULL},     /* a script may ask whether there is a clock */
    {"ret_int_4.lua", VALUE, 4, NULL},
    {"ret_float_4.lua", VALUE, 4, NULL},
    {"ret_division.lua", VALUE, 4, NULL},
    {"ret_minus_zero.lua", VALUE, 0, NULL},
    {"ret_zero.lua", VALUE, 0, NULL},
    {"ret_two_pow_31.lua", VALUE, INT64_C(1) << 31, NULL}, /* the host clamps and counts */
    {"ret_two_pow_53.lua", VALUE, INT64_C(1) << 53, NULL},
    {"ret_maxinteger.lua", VALUE, INT64_MAX, NULL},
    {"ret_two_values.lua", VALUE, 4, NULL}, /* the first result counts */
    {"ret_float_4_5.lua", CALL_ERROR, 0, NOT_LENGTH("4.5")},
    {"ret_nan.lua", CALL_ERROR, 0, NOT_LENGTH("nan")},
    {"ret_inf.lua", CALL_ERROR, 0, NOT_LENGTH("inf")},
    {"ret_minus_1.lua", CALL_ERROR, 0, NOT_LENGTH("-1")},
    {"ret_mininteger.lua", CALL_ERROR, 0, NOT_LENGTH("-9223372036854775808")},
    {"ret_string_4.lua", CALL_ERROR, 0, NOT_LENGTH("the text '4'")},
    {"ret_nil.lua", CALL_ERROR, 0, NOT_LENGTH("nothing (nil)")},
    {"ret_nothing.lua", CALL_ERROR, 0, NOT_LENGTH("nothing (nil)")},
    {"ret_true.lua", CALL_ERROR, 0, NOT_LENGTH("true")},
    {"ret_table.lua", CALL_ERROR, 0, NOT_LENGTH("a table")},
    {"ret_many_values.lua", CALL_ERROR, 0, NOT_LENGTH("nothing (nil)")},
    {"ret_yield.lua", CALL_ERROR, 0, GLOBAL("coroutine")},
};
enum { N_CASE = sizeof cases / sizeof *cases };

/* Instructions are what ends them here, on a machine as busy as it likes. */
static const ls_lua_limits limits = {.n_step = 3000000, .time_us = 60000000};

/* Messages begin with the path in full, longer though it is than Lua would show. A wrong result is
 * put where the function begins, which for these is the wrapper. */
static void check_message(const lua_case *c, const ls_err *err) {
    char want[LS_ERR_MAX];
    if (c->text[0] != ':')
        snprintf(want, sizeof want, "%s (policy, load)", c->text);
    else if (strncmp(c->text, ": plan", 6) == 0)
        snprintf(want, sizeof want, "wrapper:2%s", c->text);
    else
        snprintf(want, sizeof want, "%s/cases/lua/%s%s", LS_TEST_DIR, c->file, c->text);
    assert_string_equal(err->msg, want);
    assert_int_equal(err->code, LS_ERR_SCRIPT);
    assert_null(strchr(err->msg, '\n'));
}

static void run_case(const lua_case *c) {
    ls_lua *state = NULL;
    ls_policy *policy = NULL;
    ls_err err = {0};
    const ls_policy_ctx ctx = ls_rig_ctx(1);
    const double from = ls_rig_cpu_s();
    ls_status status = ls_rig_case(c->file, limits, &state, &policy, &err);
    if (c->verdict == LOAD_ERROR) {
        if (status == LS_OK)
            fail_msg("%s: loaded", c->file);
        check_message(c, &err);
        assert_true(ls_rig_cpu_s() - from < 3);
        return;
    }
    if (status != LS_OK)
        fail_msg("%s: %s", c->file, err.msg);
    int64_t n = -7;
    status = policy->plan(policy, &ctx, &n, &err);
    if (c->verdict == VALUE) {
        if (status != LS_OK)
            fail_msg("%s: %s", c->file, err.msg);
        if (c->n >= 0)
            assert_int_equal(n, c->n);
    } else {
        if (status == LS_OK)
            fail_msg("%s: answered %lld", c->file, (long long)n);
        check_message(c, &err);
        assert_int_equal(n, -7); /* outputs are untouched */
        /* The state is whole: it runs other scripts, and the same one fails the same way. */
        assert_int_equal(ls_rig_integer(state, "return 6 * 7"), 42);
        assert_int_not_equal(policy->plan(policy, &ctx, &n, &err), LS_OK);
        check_message(c, &err);
    }
    assert_int_equal(lua_gettop(ls_lua_raw(state)), 0);
    ls_policy_destroy(policy);
    ls_lua_destroy(state);
    assert_true(ls_rig_cpu_s() - from < 5);
}

static void verdicts(void **unused) {
    (void)unused;
    /* A script that could open it would stop with another message than the one above. */
    ls_rig_write("probe.txt", "secret", 6);
    for (int i = 0; i < N_CASE; i++)
        run_case(&cases[i]);
}

static void every_file_has_one(void **unused) {
    (void)unused;
    DIR *d = opendir(LS_TEST_DIR "/cases/lua");
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        const size_t k = strlen(e->d_name);
        if (k < 5 || strcmp(e->d_name + k - 4, ".lua") != 0)
            continue;
        n++;
        int i = 0;
        while (i < N_CASE && strcmp(cases[i].file, e->d_name) != 0)
            i++;
        if (i == N_CASE)
            fail_msg("%s has no verdict", e->d_name);
    }
    closedir(d);
    assert_int_equal(n, N_CASE);
}

/* The endless ones again with no instruction limit: the clock alone ends them. */
static void clock_ends_loops(void **unused) {
    (void)unused;
    static const char *const loops[] = {"loop_forever.lua", "loop_pcall.lua", "loop_close.lua",
                                        "loop_at_load.lua"};
    const ls_lua_limits slow = {.n_step = LS_LUA_UNLIMITED, .time_us = 200000};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        ls_lua *state = NULL;
        ls_policy *policy = NULL;
        ls_err err = {0};
        const ls_policy_ctx ctx = ls_rig_ctx(1);
        int64_t n;
        const double from = ls_rig_cpu_s();
        ls_status status = ls_rig_case(loops[i], slow, &state, &policy, &err);
        if (status == LS_OK) {
            status = policy->plan(policy, &ctx, &n, &err);
            ls_policy_destroy(policy);
            ls_lua_destroy(state);
        }
        assert_int_equal(status, LS_ERR_SCRIPT);
        if (!strstr(err.msg, ": stopped: more than 0.2 s in one call"))
            fail_msg("%s", err.msg);
        assert_true(ls_rig_cpu_s() - from < 1.2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts),
                                       cmocka_unit_test(every_file_has_one),
                                       cmocka_unit_test(clock_ends_loops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
