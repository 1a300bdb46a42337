/* ls.options, ls.table, ls.progress, ls.note, ls.fail, ls.clock: a script's arguments and words */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "lua_module.h"

static void say(lua_State *L, const char *text, size_t n) {
    const ls_lua_run *run = ls_lua_host_of(L)->run;
    if (run->print)
        run->print(run->self, text, n);
}

/* ---- ls.options{ { "prompts", 24, "prompts of each set" }, ... } ----------------------------- */

/* One entry of the declaration is at the top of the stack; its default is left there instead. */
static const char *entry(lua_State *L, lua_Integer i, const char **help) {
    char shown[96];
    if (!lua_istable(L, -1))
        ls_lua_bad(L, "options: entry %lld must be { \"name\", default, \"help\" }, got %s",
                   (long long)i, ls_lua_show(L, -1, shown, sizeof shown));
    lua_rawgeti(L, -1, 1);
    lua_rawgeti(L, -2, 3);
    lua_rawgeti(L, -3, 2);
    const char *name = lua_type(L, -3) == LUA_TSTRING ? lua_tostring(L, -3) : "";
    const int type = lua_type(L, -1);
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
        ls_lua_bad(L, "options: entry %lld: a name has letters a-z, digits and '_', got %s",
                   (long long)i, ls_lua_show(L, -3, shown, sizeof shown));
    if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TBOOLEAN && type != LUA_TTABLE)
        ls_lua_bad(L, "options: '%s': the default must be a number, text, boolean or list, got %s",
                   name, ls_lua_show(L, -1, shown, sizeof shown));
    *help = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    lua_replace(L, -4); /* the entry's strings stay in the declaration */
    lua_pop(L, 2);
    return name;
}

/* Pushes "a,b" as { "a", "b" }; "" as {}. */
static void push_list(lua_State *L, const char *text) {
    lua_newtable(L);
    for (lua_Integer i = 1; *text; i++) {
        const size_t n = strcspn(text, ",");
        lua_pushlstring(L, text, n);
        lua_rawseti(L, -2, i);
        text += n + (text[n] == ',');
    }
}

/* Pushes the value of name=text, of the type of the default at idx. */
static void push_value(lua_State *L, const char *name, const char *text, int idx) {
    char shown[96];
    const char *wanted = "a number";
    idx = lua_absindex(L, idx);
    switch (lua_type(L, idx)) {
    case LUA_TSTRING:
        lua_pushstring(L, text);
        return;
    case LUA_TTABLE:
        push_list(L, text);
        return;
    case LUA_TBOOLEAN:
        wanted = "true or false";
        if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
            lua_pushboolean(L, text[0] == 't');
            return;
        }
        break;
    default:
        if (lua_stringtonumber(L, text) == strlen(text) + 1) {
            int64_t whole;
            if (!lua_isinteger(L, idx))
                return;
            if (ls_lua_integer(L, -1, &whole)) {
                lua_pushinteger(L, whole);
                lua_replace(L, -2);
                return;
            }
            lua_pop(L, 1);
        }
        if (lua_isinteger(L, idx))
            wanted = "an integer";
    }
    ls_lua_bad(L, "option %s=%s: it must be %s", name,
               ls_err_text(shown, sizeof shown, text, strlen(text)), wanted);
}

/* Pushes a default as it is written on the command line. */
static const char *push_written(lua_State *L, int idx) {
    idx = lua_absindex(L, idx);
    if (lua_istable(L, idx)) {
        lua_pushliteral(L, "");
        for (lua_Unsigned i = 1; i <= lua_rawlen(L, idx); i++) {
            lua_rawgeti(L, idx, (lua_Integer)i);
            lua_pushfstring(L, "%s%s%s", lua_tostring(L, -2), i > 1 ? "," : "",
                            lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?");
            lua_replace(L, -3);
            lua_pop(L, 1);
        }
    } else if (lua_isboolean(L, idx)) {
        lua_pushstring(L, lua_toboolean(L, idx) ? "true" : "false");
    } else {
        lua_pushvalue(L, idx);
    }
    return lua_tostring(L, -1);
}

static int answer_help(lua_State *L) {
    ls_lua_host *host = ls_lua_host_of(L);
    char line[1024];
    int n = snprintf(line, sizeof line, "%s [NAME=VALUE ...]\n", host->run->script);
    say(L, line, (size_t)(n < (int)sizeof line ? n : (int)sizeof line - 1));
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 1); i++) {
        const char *help;
        char text[256];
        lua_rawgeti(L, 1, i);
        const char *name = entry(L, i, &help);
        snprintf(text, sizeof text, "%s=%.200s", name, push_written(L, -1));
        n = snprintf(line, sizeof line, "  %-32s %.600s\n", text, help);
        say(L, line, (size_t)n);
        lua_pop(L, 2);
    }
    host->done = true;
    return ls_lua_raise(L, &(ls_err){LS_ERR_STOPPED, "help"});
}

/* Sets the option that `arg` names in the table at 2; its default is in the declaration at 1. */
static void set_option(lua_State *L, const char *arg) {
    const char *eq = strchr(arg, '='), *help;
    char shown[96];
    if (!eq)
        ls_lua_bad(L, "options: '%s' is not NAME=VALUE; --help lists the names",
                   ls_err_text(shown, sizeof shown, arg, strlen(arg)));
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 1); i++) {
        lua_rawgeti(L, 1, i);
        const char *name = entry(L, i, &help);
        if (strlen(name) == (size_t)(eq - arg) && memcmp(name, arg, strlen(name)) == 0) {
            push_value(L, name, eq + 1, -1);
            lua_setfield(L, 2, name);
            lua_pop(L, 1);
            return;
        }
        lua_pop(L, 1);
    }
    ls_lua_bad(L, "options: there is no '%s'; --help lists the names",
               ls_err_text(shown, sizeof shown, arg, (size_t)(eq - arg)));
}

static int f_no_option(lua_State *L) {
    char shown[96];
    return ls_lua_bad(L, "options: there is no option %s", ls_lua_show(L, 2, shown, sizeof shown));
}

static int f_options(lua_State *L) {
    ls_lua_host *host = ls_lua_host_of(L);
    char shown[96];
    lua_settop(L, 1);
    if (!lua_istable(L, 1))
        return ls_lua_bad(L, "options: takes a list of { \"name\", default, \"help\" }, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    host->used_args = true;
    lua_newtable(L);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 1); i++) {
        const char *help;
        lua_rawgeti(L, 1, i);
        const char *name = entry(L, i, &help);
        lua_setfield(L, 2, name);
    }
    for (int32_t i = 0; i < host->run->n_arg; i++) {
        const char *arg = host->run->arg[i];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            return answer_help(L);
        set_option(L, arg);
    }
    lua_pushvalue(L, 2);
    lua_setfield(L, LUA_REGISTRYINDEX, LS_LUA_OPTIONS);
    lua_newtable(L);
    lua_pushcfunction(L, f_no_option);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, 2);
    return 1;
}

/* ---- ls.table{ title =, head =, rows = } ----------------------------------------------------- */

#define TABLE_COLUMNS 32

typedef struct column {
    int width;
    bool right;    /* every cell of the body looks like a number */
    bool fraction; /* one of its numbers is not whole: all get three decimals */
} column;

/* Columns a terminal gives the text: characters, not bytes. */
static int width(const char *s, size_t n) {
    int w = 0;
    for (size_t i = 0; i < n; i++)
        w += ((unsigned char)s[i] & 0xC0) != 0x80;
    return w;
}

/* Pushes a cell as text; "-" for nothing. */
static const char *push_cell(lua_State *L, int idx, const column *col, size_t *n) {
    int64_t whole;
    char text[64];
    switch (lua_type(L, idx)) {
    case LUA_TNIL:
        lua_pushliteral(L, "-");
        break;
    case LUA_TBOOLEAN:
        lua_pushstring(L, lua_toboolean(L, idx) ? "yes" : "no");
        break;
    case LUA_TNUMBER:
        if (!col->fraction && ls_lua_integer(L, idx, &whole))
            snprintf(text, sizeof text, "%lld", (long long)whole);
        else
            snprintf(text, sizeof text, "%.3f", lua_tonumber(L, idx));
        lua_pushstring(L, text);
        break;
    case LUA_TSTRING:
        lua_pushvalue(L, idx);
        break;
    default:
        ls_lua_bad(L, "table: a cell is a text, number or boolean, got %s",
                   ls_lua_show(L, idx, text, sizeof text));
    }
    return lua_tolstring(L, -1, n);
}

static bool like_number(const char *s) {
    return s[0] && strchr("0123456789-+.", s[0]);
}

/* The row at the top of the stack widens the columns it needs. */
static void measure(lua_State *L, column *col, int n_col, bool body) {
    for (int c = 0; c < n_col; c++) {
        size_t n;
        lua_rawgeti(L, -1, c + 1);
        const char *s = push_cell(L, -1, &col[c], &n);
        const int w = width(s, n);
        col[c].width = w > col[c].width ? w : col[c].width;
        if (body && !like_number(s))
            col[c].right = false;
        lua_pop(L, 2);
    }
}

static void find_fractions(lua_State *L, column *col, int n_col) {
    int64_t whole;
    for (int c = 0; c < n_col; c++) {
        if (lua_rawgeti(L, -1, c + 1) == LUA_TNUMBER && !ls_lua_integer(L, -1, &whole))
            col[c].fraction = true;
        lua_pop(L, 1);
    }
}

static void put_row(lua_State *L, const column *col, int n_col) {
    for (int c = 0; c < n_col; c++) {
        size_t n;
        lua_rawgeti(L, -1, c + 1);
        const char *s = push_cell(L, -1, &col[c], &n);
        const bool last = c + 1 == n_col;
        int pad = col[c].width - width(s, n);
        for (; col[c].right && pad > 0; pad--)
            say(L, " ", 1);
        say(L, s, n);
        for (; !last && pad > 0; pad--)
            say(L, " ", 1);
        say(L, last ? "\n" : "  ", last ? 1 : 2);
        lua_pop(L, 2);
    }
}

static int f_table(lua_State *L) {
    static const char *const known[] = {"title", "head", "rows", NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, false, "table", known);
    const char *title = ls_lua_arg_string(&a, "title", NULL);
    column col[TABLE_COLUMNS] = {{0}};
    ls_lua_arg_push(&a, "head"); /* 2 */
    ls_lua_arg_push(&a, "rows"); /* 3 */
    if (!lua_istable(L, 2) || !lua_istable(L, 3))
        return ls_lua_bad(L, "table: takes head = { texts } and rows = { { cells }, ... }");
    const int n_col = (int)lua_rawlen(L, 2);
    const lua_Integer n_row = (lua_Integer)lua_rawlen(L, 3);
    if (n_col < 1 || n_col > TABLE_COLUMNS)
        return ls_lua_bad(L, "table: head has %d entries: 1 to %d are possible", n_col,
                          TABLE_COLUMNS);
    for (int c = 0; c < n_col; c++)
        col[c].right = true;
    for (lua_Integer i = 1; i <= n_row; i++) {
        if (lua_rawgeti(L, 3, i) != LUA_TTABLE)
            return ls_lua_bad(L, "table: row %lld is not a list of cells", (long long)i);
        find_fractions(L, col, n_col);
        lua_pop(L, 1);
    }
    for (lua_Integer i = 1; i <= n_row; i++) {
        lua_rawgeti(L, 3, i);
        measure(L, col, n_col, true);
        lua_pop(L, 1);
    }
    lua_pushvalue(L, 2);
    measure(L, col, n_col, false);
    if (title) {
        say(L, title, strlen(title));
        say(L, "\n", 1);
    }
    put_row(L, col, n_col);
    lua_pop(L, 1);
    for (lua_Integer i = 1; i <= n_row; i++) {
        lua_rawgeti(L, 3, i);
        put_row(L, col, n_col);
        lua_pop(L, 1);
    }
    say(L, "\n", 1);
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* ls.progress(done, total [, text]) */
static int f_progress(lua_State *L) {
    const ls_lua_run *run = ls_lua_host_of(L)->run;
    int64_t done, total;
    if (!ls_lua_integer(L, 1, &done) || !ls_lua_integer(L, 2, &total) || done < 0 || total < 0)
        return ls_lua_bad(L, "progress: takes two integers >= 0 and a text");
    if (run->progress)
        run->progress(run->self, done, total,
                      lua_type(L, 3) == LUA_TSTRING ? lua_tostring(L, 3) : "");
    return 0;
}

/* ls.note(text): one line for standard error */
static int f_note(lua_State *L) {
    const ls_lua_run *run = ls_lua_host_of(L)->run;
    char line[LS_ERR_MAX], shown[96];
    size_t n;
    if (lua_type(L, 1) != LUA_TSTRING)
        return ls_lua_bad(L, "note: takes a text, got %s", ls_lua_show(L, 1, shown, sizeof shown));
    const char *text = lua_tolstring(L, 1, &n);
    if (run->note)
        run->note(run->self, ls_err_text(line, sizeof line, text, n));
    return 0;
}

/* ls.fail(text): the study's check has failed; the script ends here, with exit status 1 */
static int f_fail(lua_State *L) {
    ls_lua_host *host = ls_lua_host_of(L);
    char line[LS_ERR_MAX];
    size_t n = 0;
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &n) : "the check failed";
    n = n ? n : strlen(text);
    host->failed = true;
    ls_fail(&host->fail, LS_ERR_CHECK, "%s", ls_err_text(line, sizeof line, text, n));
    return ls_lua_raise(L, &host->fail);
}

/* ls.clock() -> microseconds since some moment; only differences mean something */
static int f_clock(lua_State *L) {
    lua_pushnumber(L, ls_now_us());
    return 1;
}

static const luaL_Reg functions[] = {
    {"options", f_options}, {"table", f_table}, {"progress", f_progress},
    {"note", f_note},       {"fail", f_fail},   {"clock", f_clock},
    {NULL, NULL},
};

void ls_lua_open_script(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
