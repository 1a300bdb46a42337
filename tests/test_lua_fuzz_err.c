/* Random scripts against small limits: whatever they do, they end in time, within their memory, and
 * leave a state that works. The scripts are functions of the iteration's number, so a failure
 * repeats: test_lua_fuzz_err [iterations [first]] runs more of them, or that one. */
#include "lua_rig.h"

static const ls_lua_limits limits = {
    .memory_bytes = 2 << 20, .n_step = 200000, .time_us = 60000000};

/* ---- a script from random numbers ------------------------------------------------------------ */

typedef struct writer {
    ls_draw draw;
    uint32_t n;
    size_t at;
    char text[8192];
} writer;

static uint32_t pick(writer *w, uint32_t below) {
    return ls_draw_word(&w->draw, w->n++) % below;
}

static void put(writer *w, const char *text) {
    const size_t n = strlen(text);
    if (w->at + n + 2 < sizeof w->text) {
        memcpy(w->text + w->at, text, n);
        w->at += n;
        w->text[w->at++] = ' ';
        w->text[w->at] = 0;
    }
}

#define ONE_OF(w, list) put(w, list[pick(w, sizeof list / sizeof *list)])

static const char *const atoms[] = {"nil",
                                    "true",
                                    "false",
                                    "0",
                                    "1",
                                    "-1",
                                    "2",
                                    "3",
                                    "0.5",
                                    "-0.0",
                                    "0/0",
                                    "1/0",
                                    "1<<31",
                                    "1<<53",
                                    "1<<62",
                                    "math.maxinteger",
                                    "math.mininteger",
                                    "1e308",
                                    "2^53",
                                    "''",
                                    "'x'",
                                    "'10'",
                                    "'\\0\\255'",
                                    "'k'",
                                    "'n'",
                                    "a",
                                    "b",
                                    "c",
                                    "t",
                                    "u",
                                    "mt",
                                    "f",
                                    "g",
                                    "_ENV",
                                    "...",
                                    "string",
                                    "table",
                                    "math",
                                    "print",
                                    "os",
                                    "string.rep('x', 5000)",
                                    "string.rep('ab', 1<<16)",
                                    "{}",
                                    "{1, 2, 3}",
                                    "{n = 1, k = {}}",
                                    "setmetatable({}, mt)",
                                    "setmetatable({1, 2, 3}, mt)",
                                    "#t",
                                    "t.k",
                                    "u[1]",
                                    "getmetatable('')",
                                    "error",
                                    "pcall",
                                    "function(...) return ... end"};

static const char *const callees[] = {"assert",
                                      "error",
                                      "getmetatable",
                                      "ipairs",
                                      "next",
                                      "pairs",
                                      "pcall",
                                      "rawequal",
                                      "rawget",
                                      "rawlen",
                                      "rawset",
                                      "require",
                                      "select",
                                      "setmetatable",
                                      "tonumber",
                                      "tostring",
                                      "type",
                                      "string.byte",
                                      "string.char",
                                      "string.format",
                                      "string.len",
                                      "string.lower",
                                      "string.rep",
                                      "string.reverse",
                                      "string.sub",
                                      "string.upper",
                                      "table.concat",
                                      "table.insert",
                                      "table.move",
                                      "table.pack",
                                      "table.remove",
                                      "table.sort",
                                      "table.unpack",
                                      "math.abs",
                                      "math.floor",
                                      "math.fmod",
                                      "math.max",
                                      "math.random",
                                      "math.tointeger",
                                      "math.ult",
                                      "utf8.char",
                                      "utf8.codepoint",
                                      "utf8.codes",
                                      "utf8.len",
                                      "utf8.offset",
                                      "f",
                                      "g",
                                      "a",
                                      "t",
                                      "t.k",
                                      "('x').rep",
                                      "b"};

static const char *const binary[] = {"+", "-",  "*", "/",   "//", "%", "^", "..", "==", "~=",
                                     "<", "<=", ">", "and", "or", "&", "|", "~",  "<<", ">>"};
static const char *const unary[] = {"-", "not", "#", "~"};
static const char *const events[] = {
    "__index",     "__newindex", "__call", "__len",      "__eq",   "__lt",    "__le",
    "__concat",    "__unm",      "__add",  "__tostring", "__name", "__pairs", "__close",
    "__metatable", "__mode",     "__gc",   "__idiv",     "__band"};
static const char *const names[] = {"a",    "b",         "c",      "t.k", "t.n",
                                    "u[1]", "u[#u + 1]", "_ENV.z", "f",   "t[a]"};

static void expression(writer *w, int depth);
static void block(writer *w, int depth);

static void call(writer *w, int depth) {
    if (pick(w, 3) == 0)
        put(w, "pcall(");
    else
        put(w, "(");
    ONE_OF(w, callees);
    put(w, ")");
    put(w, "(");
    for (uint32_t i = pick(w, 5); i > 0; i--) {
        expression(w, depth - 1);
        if (i > 1)
            put(w, ",");
    }
    put(w, ")");
}

static void expression(writer *w, int depth) {
    if (depth <= 0) {
        ONE_OF(w, atoms);
        return;
    }
    switch (pick(w, 8)) {
    case 0:
        ONE_OF(w, unary);
        expression(w, depth - 1);
        return;
    case 1:
    case 2:
        put(w, "(");
        expression(w, depth - 1);
        put(w, ")");
        ONE_OF(w, binary);
        put(w, "(");
        expression(w, depth - 1);
        put(w, ")");
        return;
    case 3:
    case 4:
        call(w, depth);
        return;
    case 5:
        put(w, "function(...)");
        block(w, depth - 1);
        put(w, "end");
        return;
    case 6:
        put(w, "{");
        expression(w, depth - 1);
        put(w, ", k =");
        expression(w, depth - 1);
        put(w, "}");
        return;
    default:
        ONE_OF(w, atoms);
    }
}

static void statement(writer *w, int depth) {
    switch (pick(w, 12)) {
    case 0:
        put(w, "for i = 1,");
        expression(w, 0);
        put(w, "do");
        block(w, depth - 1);
        put(w, "end");
        return;
    case 1:
        put(w, "while");
        expression(w, depth - 1);
        put(w, "do");
        block(w, depth - 1);
        put(w, pick(w, 2) ? "break end" : "end");
        return;
    case 2:
        put(w, "do local x <close> =");
        expression(w, depth - 1);
        put(w, ";");
        block(w, depth - 1);
        put(w, "end");
        return;
    case 3:
        put(w, "for k, v in pairs(");
        expression(w, depth - 1);
        put(w, ") do");
        block(w, depth - 1);
        put(w, "end");
        return;
    case 4:
    case 5:
        put(w, "mt.");
        ONE_OF(w, events);
        put(w, "=");
        expression(w, depth);
        put(w, ";");
        return;
    case 6:
        put(w, "pcall(function(...)");
        block(w, depth - 1);
        put(w, "end)");
        put(w, ";");
        return;
    case 7:
        put(w, "if");
        expression(w, depth - 1);
        put(w, "then");
        block(w, depth - 1);
        put(w, "end");
        return;
    case 8:
        put(w, "local _ =");
        call(w, depth);
        put(w, ";");
        return;
    default:
        ONE_OF(w, names);
        put(w, "=");
        expression(w, depth);
        put(w, ";");
    }
}

static void block(writer *w, int depth) {
    if (depth < 0)
        return;
    for (uint32_t i = 1 + pick(w, 3); i > 0; i--)
        statement(w, depth);
}

static void write_script(writer *w, uint32_t number) {
    memset(w, 0, sizeof *w);
    w->draw = ls_draw_key(1, number, 0, LS_DRAW_TEST, 0);
    put(w, "local a, b, c, t, u, mt = 1, 'b', nil, {k = 1, n = 2, 1, 2, 3}, {}, {}\n"
           "local function f(...) return ... end local function g(...) return pcall(f, ...) end\n");
    for (int i = 0; i < 8; i++) {
        put(w, "pcall(function(...)");
        block(w, 3);
        put(w, "end, 1, t)\n");
    }
    put(w, "return");
    expression(w, 2);
}

/* ---- the test -------------------------------------------------------------------------------- */

static uint32_t n_script = 1500, first_script = 0;

static void scripts(void **unused) {
    (void)unused;
    uint32_t ran = 0, stopped = 0, memory = 0, parsed = 0;
    writer *w = malloc(sizeof *w);
    for (uint32_t i = first_script; i < first_script + n_script; i++) {
        write_script(w, i);
        ls_lua *state = ls_rig_state(limits);
        ls_err err = {0};
        const double from = ls_rig_cpu_s();
        const ls_status status = ls_rig_run(state, w->text, &err);
        if (status == LS_OK)
            ran++;
        else if (status != LS_ERR_SCRIPT)
            fail_msg("script %u: status %d: %s", i, (int)status, err.msg);
        stopped += status != LS_OK && strstr(err.msg, "stopped: more than") != NULL;
        memory += status != LS_OK && strstr(err.msg, "out of memory") != NULL;
        parsed += status == LS_OK || !strstr(err.msg, " near ");
        for (const char *c = err.msg; status != LS_OK && *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7F)
                fail_msg("script %u: control byte in: %s", i, err.msg);
        if (ls_lua_memory(state).peak_bytes > limits.memory_bytes)
            fail_msg("script %u used %lld bytes", i, (long long)ls_lua_memory(state).peak_bytes);
        /* the table with the functions may be spoilt; the interpreter may not */
        if (ls_rig_integer(state, "local x = 6 return x * 7") != 42)
            fail_msg("script %u spoilt its state", i);
        assert_int_equal(lua_gettop(ls_lua_raw(state)), 0);
        ls_lua_destroy(state);
        if (ls_rig_cpu_s() - from > 2)
            fail_msg("script %u took %.1f s", i, ls_rig_cpu_s() - from);
    }
    free(w);
    /* The scripts are worth running: most are Lua, and every kind of end is among them. */
    if (n_script >= 1000) {
        assert_true(parsed > n_script / 2);
        assert_true(ran > n_script / 20 && stopped > n_script / 100 && memory > 0);
    }
    print_message("%u scripts: %u ran, %u stopped, %u out of memory, %u parsed\n", n_script, ran,
                  stopped, memory, parsed);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scripts)};
    if (argc > 1)
        n_script = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_script = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
