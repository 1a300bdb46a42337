/* Scripts that mean harm or go wrong, against a bare state: each ends in time, with one line, and
 * the state goes on. The carried cases are in test_lua_cases_err.c. */
#include "lua_rig.h"

#include <sys/stat.h>

#include <unistd.h>

static const ls_lua_limits limits = {.n_step = 3000000, .time_us = 1000000};
#define GRACE_S 1.0 /* what a script may take past its limit (C048) */

/* Runs text, which must fail in time with a message that contains `want`. */
static void must_fail_within(ls_lua_limits within, const char *text, const char *want) {
    ls_lua *state = ls_rig_state(within);
    ls_err err = {0};
    const double from = ls_rig_cpu_s();
    const ls_status status = ls_rig_run(state, text, &err);
    const double took = ls_rig_cpu_s() - from;
    if (status == LS_OK)
        fail_msg("ran: %s", text);
    assert_int_equal(status, LS_ERR_SCRIPT);
    if (!strstr(err.msg, want))
        fail_msg("%s\n  said: %s\n  not: %s", text, err.msg, want);
    if (took > (double)within.time_us * 1e-6 + GRACE_S)
        fail_msg("%.2f s: %s", took, text);
    assert_null(strchr(err.msg, '\n'));
    assert_int_equal(ls_rig_integer(state, "return 6 * 7"), 42);
    if (within.memory_bytes > 0)
        assert_true(ls_lua_memory(state).peak_bytes <= within.memory_bytes);
    ls_lua_destroy(state);
    assert_true(ls_rig_cpu_s() - from < (double)within.time_us * 1e-6 + 2 * GRACE_S);
}

static void must_fail(const char *text, const char *want) {
    must_fail_within(limits, text, want);
}

#define MEMORY "out of memory: a script may use 8 MiB, a single value 2 MiB"
#define STOPPED "t.lua:1: stopped: more than "

/* Time enough even on a busy machine, so that memory is what ends them. */
static void out_of_memory(const char *text, const char *want) {
    must_fail_within(
        (ls_lua_limits){.memory_bytes = 8 << 20, .n_step = LS_LUA_UNLIMITED, .time_us = 30000000},
        text, want);
}

static void memory(void **unused) {
    (void)unused;
    out_of_memory("local t = {} for i = 1, 1e9 do t[i] = i end", "t.lua:1: " MEMORY);
    out_of_memory("local s = 'x'\nwhile true do s = s .. s end", "t.lua:2: " MEMORY);
    out_of_memory("return string.rep('x', 1 << 30)", "t.lua:1: " MEMORY);
    out_of_memory("return string.rep('x', 1 << 62)", "t.lua:1: resulting string too large");
    out_of_memory("local t = {}\nlocal u = t\nfor i = 1, 1e9 do u.x = {} u = u.x end", "t.lua:3: ");
    out_of_memory("local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1000) .. i end",
                  "t.lua:1: " MEMORY);
    /* a block too large by itself, with room for two of it */
    out_of_memory("return string.rep('x', 5 << 19)", "t.lua:1: " MEMORY);
    /* The limit is not for a script to catch. */
    out_of_memory("local n = 0 for i = 1, 1e9 do pcall(string.rep, 'x', 1 << 22) n = n + 1 end",
                  "t.lua:1: " MEMORY);
    /* At the edge of its memory every step collects the lot. */
    out_of_memory("local t, keep = {}, {} for i = 1, 75000 do keep[i] = {} end\n"
                  "while true do local ok = pcall(function() t[#t + 1] = {{}, {}} end) end",
                  "t.lua:");
}

static void endless(void **unused) {
    (void)unused;
    must_fail("while true do end", STOPPED);
    must_fail("local function f() while true do end end while true do pcall(f) end", STOPPED);
    must_fail("local function f() return pcall(f) end while true do f() end", STOPPED);
    must_fail("local function g() while true do pcall(g2) end end\n"
              "function g2() while true do end end while true do pcall(pcall, pcall, g) end",
              ": stopped: more than ");
    must_fail("local x <close> = setmetatable({}, {__close = function() while true do end end})",
              STOPPED);
    must_fail("local mt = {__close = function() while true do pcall(function() while true do end "
              "end) end end} local a <close>, b = setmetatable({}, mt) while true do end",
              STOPPED);
    must_fail("local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
              "t.lua:1: ");
    must_fail("goto a ::a:: goto a", STOPPED);
    must_fail("for i = 1, math.huge do end", STOPPED);
    must_fail("setmetatable({}, {__gc = function() while true do end end})",
              "t.lua:1: finalisers (__gc) are not available");
    must_fail("local t = setmetatable({}, {__eq = function() while true do end end})\n"
              "return t == setmetatable({}, getmetatable(t))",
              "stopped");
    must_fail("table.sort({3, 2, 1}, function() while true do end end)", STOPPED);
    must_fail("tostring(setmetatable({}, {__tostring = function() while true do end end}))",
              STOPPED);
}

/* After the stop no handler gets another step. */
static void stopped_at_once(void **unused) {
    (void)unused;
    ls_lua *state = ls_rig_state(limits);
    ls_err err;
    assert_int_equal(
        ls_rig_run(state,
                   "steps = 0 local x <close> = setmetatable({}, {__close = function()\n"
                   "steps = 1 end}) while true do end",
                   &err),
        LS_ERR_SCRIPT);
    assert_int_equal(ls_rig_integer(state, "return steps"), 0);
    assert_false(state->armed);
    ls_lua_destroy(state);
}

/* One call into C that no instruction count interrupts. */
static void long_calls(void **unused) {
    (void)unused;
    must_fail("return #string.rep('', 1 << 62) + nil", "arithmetic"); /* returns at once */
    must_fail("table.move({}, 1, 1 << 62, 2)", "too many elements to move");
    must_fail("while true do table.move({}, 1, 1 << 23, 2) end", STOPPED);
    must_fail("table.concat(setmetatable({}, {__index = rawlen}), '', 1, 1 << 62)",
              "invalid value (at index 1)");
    must_fail("table.insert(setmetatable({}, {__len = function() return 1 << 62 end}), 1, 2)\n"
              "table.remove(setmetatable({}, {__len = function() return 1 << 62 end}), 1)\n"
              "table.sort(setmetatable({}, {__len = function() return 1 << 30 end}), rawequal)\n"
              "error('reached')",
              "t.lua:4: reached");
    must_fail("return table.unpack({}, 1, 1 << 40)", "too many results");
    must_fail("local t = {} for i = 1, 200000 do t[i] = -i end while true do table.sort(t) end",
              STOPPED);
    must_fail("local a, b = string.rep('x', 1 << 23) .. 'a', string.rep('x', 1 << 23) .. 'b'\n"
              "local t = {} for i = 1, 1000 do t[i] = i % 2 == 0 and a or b end table.sort(t)",
              ": stopped: ");
    must_fail("local a, b = string.rep('x', 1 << 23) .. 'a', string.rep('x', 1 << 23) .. 'b'\n"
              "while true do local c = a < b end",
              ": stopped: ");
    must_fail("local a = string.rep('x', 1 << 23) while true do local b = utf8.len(a) end",
              STOPPED);
    must_fail("local a = string.rep('x', 1 << 23) while true do local b = a:upper():reverse() end",
              STOPPED);
    must_fail("local a = string.rep(' ', 1 << 23) while true do local b = tonumber(a) end",
              STOPPED);
    must_fail("local t = {} for i = 1, 200000 do t['k' .. i] = i end\n"
              "while true do for k in pairs(t) do break end end",
              ": stopped: ");
    must_fail("local t = {} for i = 1, 200000 do t[i] = i end while true do table.remove(t, 1) "
              "t[200000] = 1 end",
              STOPPED);
    must_fail("local t = {} for i = 1, 300000 do t[i] = 'x' end while true do table.concat(t) end",
              STOPPED);
    must_fail(
        "local s = string.rep('%s', 30) while true do local x = string.rep('x', 1 << 18)\n"
        "string.format(s, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x,"
        "x, x, x, x, x, x, x) end",
        ": stopped: ");
}

/* Parsing has no hook either: what bounds it is the size of the text. */
static void parsing(void **unused) {
    (void)unused;
    static const char *const parts[] = {" and x", " .. x", "(",       "{",    "-",
                                        "not ",   ";",     "goto a ", "x=1 ", "a[x] "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t k = strlen(parts[i]);
        char *text = malloc(LS_LUA_FILE_MAX + 16);
        size_t n = (size_t)snprintf(text, 16, "local y = x");
        if (i >= 2)
            n = i < 6 ? (size_t)snprintf(text, 16, "return ") : 0;
        while (n + k < LS_LUA_FILE_MAX) {
            memcpy(text + n, parts[i], k);
            n += k;
        }
        ls_lua *state = ls_rig_state(limits);
        ls_err err;
        const double from = ls_rig_cpu_s();
        if (ls_lua_text(state, "t.lua", text, n, NULL, &err) != LS_OK)
            assert_non_null(strstr(err.msg, "t.lua:"));
        assert_true(ls_rig_cpu_s() - from < (double)limits.time_us * 1e-6 + GRACE_S);
        ls_lua_destroy(state);
        free(text);
    }
}

static void globals_and_escapes(void **unused) {
    (void)unused;
    must_fail("getmetatable('').__index = nil", "attempt to index a boolean value");
    must_fail("setmetatable(_ENV, {})", "cannot change a protected metatable");
    must_fail("require('../tests/x')",
              "words joined by dots, at most 127 letters: '../tests/x' is not");
    must_fail("require('/etc/passwd')", "is words joined by dots");
    must_fail("require('a..b')", "is words joined by dots");
    must_fail("require('.a')", "is words joined by dots");
    must_fail("require('a.')", "is words joined by dots");
    must_fail("require('')", "is words joined by dots");
    must_fail("require(string.rep('a', 1000))", "is words joined by dots");
    must_fail("require('nothing')", "no folder of the policy path has nothing.lua");
    must_fail("require(nil)", "bad argument #1 to 'require'");
    must_fail("print('x')", "attempt to call a nil value (global 'print')");
    must_fail("('x'):gsub('x', 'y')", "attempt to call a nil value (method 'gsub')");
    must_fail("math.randomseed(1)", "attempt to call a nil value (field 'randomseed')");
    must_fail("local s = string.format('%d', 'x')", "bad argument #2 to 'format'");
    must_fail("error(setmetatable({}, {__name = 'x\\ny'}))",
              "t.lua:1: an error whose value is a table");
    must_fail("error('two\\nlines')", "t.lua:1: two\\x0Alines");
    must_fail("error('far', 2)", "far");
    must_fail("error(12)", "t.lua:1: error value 12");
    must_fail("error(string.rep('long ', 1000))", "long long");
    must_fail("error(true)", "t.lua:1: an error whose value is a boolean");
    must_fail("local a <close> = 4", "variable 'a' got a non-closable value");
}

static void frozen(void **unused) {
    (void)unused;
    ls_lua *state = ls_rig_state(limits);
    ls_err err;
    LUA_OK_OR_FAIL(ls_rig_run(state, "declared = 1 assert(undeclared == nil)", &err), &err);
    ls_lua_freeze(state);
    LUA_OK_OR_FAIL(ls_rig_run(state, "declared = declared + 1 assert(declared == 2)", &err), &err);
    LUA_OK_OR_FAIL(ls_rig_run(state, "assert(not (os and os.clock) and not io)", &err), &err);
    assert_int_equal(ls_rig_run(state, "local x = undeclared", &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg, "t.lua:1: unknown global 'undeclared'");
    assert_int_equal(ls_rig_run(state, "\nundeclared = 1", &err), LS_ERR_SCRIPT);
    assert_string_equal(
        err.msg, "t.lua:2: assignment to undeclared global 'undeclared': declare it with local");
    ls_lua_destroy(state);
}

static void files(void **unused) {
    (void)unused;
    ls_lua *state = ls_rig_state(limits);
    ls_err err;
    assert_int_equal(ls_lua_file(state, "no/such/file.lua", NULL, &err), LS_ERR_IO);
    assert_non_null(strstr(err.msg, "no/such/file.lua"));
    assert_int_not_equal(ls_lua_file(state, ".", NULL, &err), LS_OK);
    /* A named pipe would wait for its writer for ever. */
    (void)unlink("lua_test_pipe.lua");
    assert_int_equal(mkfifo("lua_test_pipe.lua", 0600), 0);
    assert_int_not_equal(ls_lua_file(state, "lua_test_pipe.lua", NULL, &err), LS_OK);
    (void)unlink("lua_test_pipe.lua");
    char *big = malloc(LS_LUA_FILE_MAX + 1);
    memset(big, ' ', LS_LUA_FILE_MAX + 1);
    const char *path = ls_rig_write("big.lua", big, LS_LUA_FILE_MAX + 1);
    assert_int_not_equal(ls_lua_file(state, path, NULL, &err), LS_OK);
    assert_non_null(strstr(err.msg, path));
    path = ls_rig_write("big.lua", big, LS_LUA_FILE_MAX);
    LUA_OK_OR_FAIL(ls_lua_file(state, path, NULL, &err), &err);
    free(big);
    /* A # line is skipped and counted; so is one without an end. */
    path = ls_rig_write("hash.lua", "#!/usr/bin/lua\nerror('here')", 28);
    assert_int_equal(ls_lua_file(state, path, "policy 'x', load", &err), LS_ERR_SCRIPT);
    assert_string_equal(err.msg, "lua_test_hash.lua:2: here (policy 'x', load)");
    path = ls_rig_write("hash.lua", "# only", 6);
    LUA_OK_OR_FAIL(ls_lua_file(state, path, NULL, &err), &err);
    path = ls_rig_write("hash.lua", "", 0);
    LUA_OK_OR_FAIL(ls_lua_file(state, path, NULL, &err), &err);
    assert_int_equal(lua_gettop(ls_lua_raw(state)), 3); /* one result for each that ran */
    ls_lua_destroy(state);
}

/* ---- host functions -------------------------------------------------------------------------- */

static int host_fails(lua_State *L) {
    ls_err err;
    ls_fail(&err, (ls_status)lua_tointeger(L, 1), "the host's words");
    return ls_lua_raise(L, &err);
}

static int open_host(lua_State *L) {
    lua_pushcfunction(L, host_fails);
    return 1;
}

static void host_errors(void **unused) {
    (void)unused;
    ls_lua *state = ls_rig_state(limits);
    ls_err err;
    char text[128];
    LUA_OK_OR_FAIL(ls_lua_preload(state, "host", open_host, &err), &err);
    LUA_OK_OR_FAIL(
        ls_rig_run(state, "fails = require 'host' assert(fails == require 'host')", &err), &err);
    for (int code = LS_ERR_INPUT; code <= LS_ERR_CHECK; code++) {
        snprintf(text, sizeof text, "\nfails(%d)", code);
        assert_int_equal(ls_rig_run(state, text, &err), code);
        assert_string_equal(err.msg, code == LS_ERR_STOPPED ? "t.lua:2: stopped on request"
                                                            : "t.lua:2: the host's words");
        /* Caught, it is an error like any other, and its code goes with it; a request to stop
         * stays. */
        snprintf(text, sizeof text, "local ok, m = pcall(fails, %d) error('own: ' .. m)", code);
        assert_int_equal(ls_rig_run(state, text, &err),
                         code == LS_ERR_STOPPED ? LS_ERR_STOPPED : LS_ERR_SCRIPT);
        if (code != LS_ERR_STOPPED)
            assert_string_equal(err.msg, "t.lua:1: own: the host's words");
    }
    ls_lua_destroy(state);
}

static bool stop_after_three(void *self) {
    return ++*(int *)self >= 3;
}

static void asked_to_stop(void **unused) {
    (void)unused;
    int asked = 0;
    const ls_lua_options options = {
        .limits = {.n_step = LS_LUA_UNLIMITED, .time_us = LS_LUA_UNLIMITED},
        .stop = stop_after_three,
        .self = &asked};
    ls_lua *state;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_create(&options, &state, &err), &err);
    const double from = ls_rig_cpu_s();
    assert_int_equal(
        ls_rig_run(state, "while true do pcall(function() while true do end end) end", &err),
        LS_ERR_STOPPED);
    assert_int_equal(asked, 3);
    assert_true(ls_rig_cpu_s() - from < 1);
    ls_lua_destroy(state);
}

/* ---- calls inside calls ---------------------------------------------------------------------- */

static const ls_lua_limits *inner_limits;
static ls_status inner_status;
static ls_err inner_err;

/* inner(f): calls f as the host calls a policy, within inner_limits. */
static int inner(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    lua_settop(L, 1);
    inner_status = ls_lua_call_within(s, inner_limits, 0, 0, "policy 'in', plan", &inner_err);
    return 0;
}

static int open_inner(lua_State *L) {
    lua_pushcfunction(L, inner);
    return 1;
}

/* A policy that overruns ends; the script that ran it goes on, with what is left of its own
 * budget. */
static void nested_budgets(void **unused) {
    (void)unused;
    const ls_lua_limits tight = {.n_step = 10000, .time_us = 60000000};
    ls_lua *state = ls_rig_state((ls_lua_limits){.n_step = 3000000, .time_us = 60000000});
    ls_err err;
    inner_limits = &tight;
    LUA_OK_OR_FAIL(ls_lua_preload(state, "inner", open_inner, &err), &err);
    LUA_OK_OR_FAIL(ls_rig_run(state,
                              "inner = require 'inner'\n"
                              "inner(function() while true do end end)\n"
                              "local n = 0 for i = 1, 100000 do n = n + i end after = n",
                              &err),
                   &err);
    assert_false(state->armed);
    assert_int_equal(inner_status, LS_ERR_SCRIPT);
    assert_string_equal(inner_err.msg, "t.lua:2: stopped: more than 10000 instructions in one call "
                                       "(policy 'in', plan)");
    assert_int_equal(ls_rig_integer(state, "return after"), 5000050000);
    /* What the inner call used is gone for the outer one. */
    inner_limits = NULL;
    assert_int_equal(ls_rig_run(state,
                                "inner(function() for i = 1, 2000000 do end end)\n"
                                "for i = 1, 2000000 do end",
                                &err),
                     LS_ERR_SCRIPT);
    assert_int_equal(inner_status, LS_OK);
    assert_string_equal(err.msg, "t.lua:2: stopped: more than 3000000 instructions in one call");
    /* An error inside unwinds to the inner call only. */
    LUA_OK_OR_FAIL(ls_rig_run(state, "inner(function() error() end) after = 7", &err), &err);
    assert_int_equal(inner_status, LS_ERR_SCRIPT);
    assert_int_equal(ls_rig_integer(state, "return after"), 7);
    ls_lua_destroy(state);
}

/* Every allocation of the making of a state, and of a script, fails once: an error, no crash, no
 * leak. */
static void too_little_memory(void **unused) {
    (void)unused;
    int made = 0, ran = 0;
    for (int64_t bytes = 1; bytes < 120000; bytes += 97) {
        const ls_lua_options options = {.limits = {.memory_bytes = bytes}};
        ls_lua *state = NULL;
        ls_err err = {0};
        if (ls_lua_create(&options, &state, &err) != LS_OK) {
            assert_null(state);
            assert_true(err.msg[0] != 0);
            continue;
        }
        made++;
        if (ls_rig_run(state,
                       "local t = {} for i = 1, 50 do t['k' .. i] = {i} end table.sort({2, 1})",
                       &err) == LS_OK)
            ran++;
        else
            assert_int_equal(err.code, LS_ERR_SCRIPT);
        ls_lua_destroy(state);
    }
    assert_true(made > 100 && ran > 50 && ran < made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),          cmocka_unit_test(endless),
        cmocka_unit_test(stopped_at_once), cmocka_unit_test(long_calls),
        cmocka_unit_test(parsing),         cmocka_unit_test(globals_and_escapes),
        cmocka_unit_test(frozen),          cmocka_unit_test(files),
        cmocka_unit_test(host_errors),     cmocka_unit_test(asked_to_stop),
        cmocka_unit_test(nested_budgets),  cmocka_unit_test(too_little_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
