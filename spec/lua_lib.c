/* The globals of a script: an allow-list taken from Lua's own libraries, and replacements where
 * those could hang, escape, or give another answer on another run. What is not named here does not
 * exist. Left out: xpcall (Lua calls its handler with hooks off: a loop in it could not be
 * stopped), coroutines (each would need a hook and a depth limit of its own, and no policy has
 * missed them), load and its kin, string.dump, pack and patterns, collectgarbage, os, io, debug,
 * package. */
#include "lua_inner.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"

static const char *const base_names[] = {
    "assert", "error",  "getmetatable", "ipairs",   "next", "rawequal", "rawget", "rawlen",
    "rawset", "select", "tonumber",     "tostring", "type", "_VERSION", NULL};
static const char *const string_names[] = {"byte", "char",  "format",  "len", "lower",
                                           "sub",  "upper", "reverse", NULL};
static const char *const pattern_names[] = {"find", "gmatch", "gsub", "match", NULL};
static const char *const math_names[] = {
    "abs",  "acos", "asin", "atan", "ceil", "cos",        "deg",        "exp",  "floor",
    "fmod", "huge", "log",  "max",  "min",  "maxinteger", "mininteger", "modf", "pi",
    "rad",  "sin",  "sqrt", "tan",  "type", "ult",        "tointeger",  NULL};
static const char *const utf8_names[] = {"char", "codepoint", "codes", "len", "offset", NULL};

/* Functions whose time grows with the length of their first argument. */
static const char *const base_walks[] = {"tonumber", NULL};
static const char *const string_walks[] = {"byte",  "format",  "lower", "sub",
                                           "upper", "reverse", NULL};
static const char *const utf8_walks[] = {"codepoint", "len", "offset", NULL};

/* Standard names a script may ask for and not find: they read as nil, so that `os and os.clock`
 * works. Any other unknown name is an error. */
static const char *const absent_names[] = {
    "_G",      "arg",   "collectgarbage", "coroutine",  "debug",  "dofile",
    "io",      "load",  "loadfile",       "loadstring", "module", "os",
    "package", "print", "unpack",         "warn",       "xpcall", NULL};

/* ---- base ------------------------------------------------------------------------------------ */

/* As Lua's, but a spent budget, lack of memory and a request to stop pass through. */
static int f_pcall(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    luaL_checkany(L, 1);
    const char *loading = s->loading;
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    const int rc = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
    if (rc == LUA_OK)
        return lua_gettop(L);
    if (s->budget.stop != LS_LUA_RUNNING || rc == LUA_ERRMEM)
        return lua_error(L);
    s->loading = loading;
    s->raised = LS_OK;
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

/* As Lua's, but without finalisers: they run with hooks off, so a loop in one could not be
 * stopped. */
static int f_setmetatable(lua_State *L) {
    const int type = lua_type(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, type == LUA_TNIL || type == LUA_TTABLE, 2, "nil or table");
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        return luaL_error(L, "cannot change a protected metatable");
    lua_settop(L, 2);
    if (type == LUA_TTABLE) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "finalisers (__gc) are not available to scripts");
        lua_settop(L, 2);
    }
    lua_setmetatable(L, 1);
    return 1;
}

static int f_print(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    const int n = lua_gettop(L);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        if (i > 1)
            luaL_addchar(&b, '\t');
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&b);
    }
    luaL_addchar(&b, '\n');
    luaL_pushresult(&b);
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    s->print(s->self, text, len);
    return 0;
}

/* ---- require --------------------------------------------------------------------------------- */

/* "length.svip" -> "length/svip"; letters, digits, _ and - between single dots, so that no name
 * leaves the folders of the path. */
static void module_path(lua_State *L, const char *name, char *dst, size_t cap) {
    size_t n = 0;
    char last = '.';
    for (; name[n] && n + 1 < cap; n++) {
        const char c = name[n];
        const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!word && (c != '.' || last == '.'))
            break;
        dst[n] = c == '.' ? '/' : c;
        last = c;
    }
    if (name[n] || last == '.')
        luaL_error(L, "a module name is words joined by dots, at most %d letters: '%s' is not",
                   (int)cap - 1, name);
    dst[n] = 0;
}

/* Compiles the module's file and leaves the chunk; false when no folder has it. */
static bool find_module(lua_State *L, ls_lua *s, const char *relative) {
    for (int32_t i = 0; i < s->n_path; i++) {
        const char *path = lua_pushfstring(L, "%s/%s.lua", s->path[i], relative);
        if (!ls_file_exists(path))
            continue;
        char *text;
        size_t n;
        ls_err err;
        if (ls_lua_read(path, &text, &n, &err) != LS_OK)
            luaL_error(L, "%s", err.msg);
        const int rc = ls_lua_parse(L, path, text, n);
        free(text); /* before anything can raise */
        if (rc != LUA_OK)
            lua_error(L);
        return true;
    }
    return false;
}

static int f_require(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    const char *name = luaL_checkstring(L, 1);
    lua_settop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LS_LUA_LOADED); /* 2 */
    if (lua_getfield(L, 2, name) == LUA_TLIGHTUSERDATA)
        return luaL_error(L, "module '%s' requires itself, or has failed before", name);
    if (!lua_isnil(L, -1))
        return 1;
    lua_settop(L, 2);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LS_LUA_PRELOAD);
    if (lua_getfield(L, 3, name) == LUA_TNIL) {
        char relative[128];
        module_path(L, name, relative, sizeof relative);
        if (!find_module(L, s, relative))
            return luaL_error(
                L, "module '%s' is not known, and no folder of the policy path has %s.lua", name,
                relative);
    }
    lua_pushlightuserdata(L, s); /* marks it as being loaded */
    lua_setfield(L, 2, name);
    lua_call(L, 0, 1);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

typedef struct preload {
    const char *name;
    int (*open)(lua_State *);
} preload;

static int f_preload(lua_State *L) {
    const preload *p = lua_touserdata(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LS_LUA_PRELOAD);
    lua_pushcfunction(L, p->open);
    lua_setfield(L, -2, p->name);
    return 0;
}

ls_status ls_lua_preload(ls_lua *s, const char *name, int (*open)(lua_State *), ls_err *err) {
    preload p = {.name = name, .open = open};
    return ls_lua_protect(s, f_preload, &p, "preload", err);
}

/* ---- strings and random ---------------------------------------------------------------------- */

/* As Lua's, but repeating an empty string does not count to n. */
static int f_rep(lua_State *L) {
    size_t len, len_sep;
    const char *text = luaL_checklstring(L, 1, &len);
    const lua_Integer n = luaL_checkinteger(L, 2);
    const char *sep = luaL_optlstring(L, 3, "", &len_sep);
    if (n <= 0 || len + len_sep == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (len + len_sep > (size_t)INT32_MAX || n > INT32_MAX / (lua_Integer)(len + len_sep))
        return luaL_error(L, "resulting string too large");
    const size_t total = (size_t)n * (len + len_sep) - len_sep;
    luaL_Buffer b;
    char *dst = luaL_buffinitsize(L, &b, total);
    ls_lua_charge(L, n / 64);
    for (lua_Integer i = 0; i < n; i++) {
        memcpy(dst, text, len);
        dst += len;
        if (i + 1 < n && len_sep > 0) {
            memcpy(dst, sep, len_sep);
            dst += len_sep;
        }
    }
    luaL_pushresultsize(&b, total);
    return 1;
}

/* Lua's own function, which walks the whole of its first argument: charged for it. */
static int f_walk(lua_State *L) {
    if (lua_type(L, 1) == LUA_TSTRING)
        ls_lua_charge(L, (int64_t)(lua_rawlen(L, 1) / 16));
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/* Puts f_walk before the named functions of the table on top. */
static void charge_walks(lua_State *L, const char *const *names) {
    for (int i = 0; names[i]; i++) {
        lua_getfield(L, -1, names[i]);
        lua_pushcclosure(L, f_walk, 1);
        lua_setfield(L, -2, names[i]);
    }
}

static uint64_t draw64(lua_State *L) {
    const uint64_t high = ls_lua_draw(L);
    return high << 32 | ls_lua_draw(L);
}

/* Uniform in 0..n without bias: numbers past the largest multiple of n + 1 are drawn again. */
static uint64_t draw_below(lua_State *L, uint64_t n) {
    if (n == UINT64_MAX)
        return draw64(L);
    const uint64_t span = n + 1, skip = (UINT64_MAX % span + 1) % span;
    uint64_t x = draw64(L);
    while (x > UINT64_MAX - skip)
        x = draw64(L);
    return x % span;
}

static int f_random(lua_State *L) {
    lua_Integer lo = 1, hi;
    switch (lua_gettop(L)) {
    case 0:
        lua_pushnumber(L, (lua_Number)(draw64(L) >> 11) * 0x1p-53);
        return 1;
    case 1:
        hi = luaL_checkinteger(L, 1);
        break;
    case 2:
        lo = luaL_checkinteger(L, 1);
        hi = luaL_checkinteger(L, 2);
        break;
    default:
        return luaL_error(L, "a random number takes no, one or two bounds");
    }
    luaL_argcheck(L, lo <= hi, lua_gettop(L), "interval is empty");
    const uint64_t x = draw_below(L, (uint64_t)hi - (uint64_t)lo);
    lua_pushinteger(L, (lua_Integer)(x + (uint64_t)lo));
    return 1;
}

void ls_lua_push_rng(lua_State *L) {
    lua_pushcfunction(L, f_random);
}

/* ---- globals --------------------------------------------------------------------------------- */

static int f_global_read(lua_State *L) {
    const char *name = lua_tostring(L, 2);
    if (!ls_lua_of(L)->frozen || !name)
        return 0;
    for (int i = 0; absent_names[i]; i++)
        if (strcmp(absent_names[i], name) == 0)
            return 0;
    return luaL_error(L, "unknown global '%s'", name);
}

static int f_global_write(lua_State *L) {
    if (ls_lua_of(L)->frozen)
        return luaL_error(L, "assignment to undeclared global '%s': declare it with local",
                          luaL_tolstring(L, 2, NULL));
    lua_settop(L, 3);
    lua_rawset(L, 1);
    return 0;
}

/* Copies the named fields of the table on top into a new one, which takes its place. */
static void keep(lua_State *L, const char *const *names) {
    lua_newtable(L);
    for (int i = 0; names[i]; i++) {
        lua_getfield(L, -2, names[i]);
        lua_setfield(L, -2, names[i]);
    }
    lua_remove(L, -2);
}

static void set_function(lua_State *L, const char *name, lua_CFunction f) {
    lua_pushcfunction(L, f);
    lua_setfield(L, -2, name);
}

static void open_string(lua_State *L, bool patterns) {
    luaL_requiref(L, "string", luaopen_string, 0);
    lua_pushvalue(L, -1);
    keep(L, string_names);
    charge_walks(L, string_walks);
    if (patterns)
        for (int i = 0; pattern_names[i]; i++) {
            lua_getfield(L, -2, pattern_names[i]);
            lua_setfield(L, -2, pattern_names[i]);
        }
    set_function(L, "rep", f_rep);
    lua_remove(L, -2);
    /* ("x"):len() goes through the metatable of strings: give it this table, and close it. */
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 2);
}

static void open_other(lua_State *L, const char *name, lua_CFunction open,
                       const char *const *names) {
    luaL_requiref(L, name, open, 0);
    keep(L, names);
}

void ls_lua_open_lib(lua_State *L) {
    const ls_lua *s = ls_lua_of(L);
    luaL_requiref(L, "_G", luaopen_base, 0);
    keep(L, base_names);
    charge_walks(L, base_walks);
    set_function(L, "pcall", f_pcall);
    set_function(L, "setmetatable", f_setmetatable);
    set_function(L, "pairs", ls_lua_pairs);
    set_function(L, "require", f_require);
    if (s->print)
        set_function(L, "print", f_print);

    open_string(L, s->patterns);
    lua_setfield(L, -2, "string");
    ls_lua_push_table_lib(L);
    lua_setfield(L, -2, "table");
    open_other(L, "math", luaopen_math, math_names);
    set_function(L, "random", f_random);
    lua_setfield(L, -2, "math");
    open_other(L, "utf8", luaopen_utf8, utf8_names);
    charge_walks(L, utf8_walks);
    lua_setfield(L, -2, "utf8");

    lua_newtable(L);
    set_function(L, "__index", f_global_read);
    set_function(L, "__newindex", f_global_write);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);

    /* The new table takes the place of Lua's own globals, and the originals become unreachable. */
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
}
