/* Options of a script: defaults declared in its table, overridden by name=value texts. The default
 * decides the type: true/false, a whole number, any number, or a text. `ranges` bounds numbers. */
#include "lua_script.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *shown(char *dst, size_t cap, const char *text) {
    return ls_err_text(dst, cap, text, strlen(text));
}

static void fail_input(lua_State *L, const char *option, const char *value, const char *must) {
    char name[96], text[96];
    ls_err err;
    ls_fail(&err, LS_ERR_INPUT, "option '%s' is '%s': it must be %s",
            shown(name, sizeof name, option), shown(text, sizeof text, value), must);
    ls_lua_raise(L, &err);
}

/* Pushes the names of the table at `index`, ascending, as a list. Raises for a key that is no
 * text. */
static lua_Integer push_names(lua_State *L, int index) {
    index = lua_absindex(L, index);
    lua_newtable(L);
    lua_Integer n = 0;
    for (lua_pushnil(L); lua_next(L, index);) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            luaL_error(L, "options must be named: name = default");
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, ++n);
    }
    lua_pushcfunction(L, ls_lua_sort);
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
    return n;
}

static void fail_unknown(lua_State *L, int options, const char *option) {
    char name[96], list[400] = "none";
    const lua_Integer n = push_names(L, options);
    size_t at = 0;
    for (lua_Integer i = 1; i <= n && at + 1 < sizeof list; i++) {
        lua_rawgeti(L, -1, i);
        const int k =
            snprintf(list + at, sizeof list - at, "%s%s", i > 1 ? ", " : "", lua_tostring(L, -1));
        at += k > 0 ? (size_t)k : 0;
        lua_pop(L, 1);
    }
    ls_err err;
    ls_fail(&err, LS_ERR_INPUT, "unknown option '%s': there are %s",
            shown(name, sizeof name, option), list);
    ls_lua_raise(L, &err);
}

/* Pushes `value` as the type of the default on top of the stack. */
static void push_value(lua_State *L, const char *option, const char *value) {
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
            fail_input(L, option, value, "true or false");
        lua_pushboolean(L, value[0] == 't');
        return;
    case LUA_TSTRING:
        lua_pushstring(L, value);
        return;
    default: {
        const bool whole = lua_isinteger(L, -1);
        if (lua_stringtonumber(L, value) != strlen(value) + 1 || !isfinite(lua_tonumber(L, -1)))
            fail_input(L, option, value, "a number");
        if (whole) {
            int exact;
            const lua_Integer i = lua_tointegerx(L, -1, &exact);
            if (!exact)
                fail_input(L, option, value, "a whole number");
            lua_pop(L, 1);
            lua_pushinteger(L, i);
        } else { /* 1 given for 0.5 is 1.0: a script sees the type it wrote */
            const lua_Number d = lua_tonumber(L, -1);
            lua_pop(L, 1);
            lua_pushnumber(L, d);
        }
    }
    }
}

/* Checks the value on top against ranges[option] = {lo, hi}, when there is such a range. */
static void check_range(lua_State *L, int ranges, const char *option, bool given) {
    if (!lua_istable(L, ranges) || lua_getfield(L, ranges, option) == LUA_TNIL) {
        if (lua_istable(L, ranges))
            lua_pop(L, 1);
        return;
    }
    if (!lua_istable(L, -1) || lua_type(L, -2) != LUA_TNUMBER)
        luaL_error(L, "ranges.%s must be {lowest, highest} of a number option", option);
    const bool lo_is = lua_rawgeti(L, -1, 1) == LUA_TNUMBER;
    const bool hi_is = lua_rawgeti(L, -2, 2) == LUA_TNUMBER;
    if (!lo_is || !hi_is)
        luaL_error(L, "ranges.%s must be {lowest, highest}", option);
    const double lo = lua_tonumber(L, -2), hi = lua_tonumber(L, -1), x = lua_tonumber(L, -4);
    lua_pop(L, 3);
    if (x >= lo && x <= hi)
        return;
    char value[40], must[80];
    snprintf(value, sizeof value, "%.14g", x);
    snprintf(must, sizeof must, "%.14g to %.14g", lo, hi);
    if (!given)
        luaL_error(L, "the default of option '%s' is %s: its range is %s", option, value, must);
    fail_input(L, option, value, must);
}

static const char *find_given(const ls_lua_option *given, int32_t n, const char *option) {
    const char *value = NULL;
    for (int32_t i = 0; i < n; i++) /* the last one counts */
        if (strcmp(given[i].name, option) == 0)
            value = given[i].value;
    return value;
}

static int f_unknown_option(lua_State *L) {
    return luaL_error(L, "unknown option '%s'", luaL_tolstring(L, 2, NULL));
}

/* The value on top as text, onto a string below it: "before a=1". */
static void add_text(lua_State *L, const char *option) {
    char number[40];
    const char *text = number;
    if (lua_isinteger(L, -1))
        snprintf(number, sizeof number, "%lld", (long long)lua_tointeger(L, -1));
    else if (lua_type(L, -1) == LUA_TNUMBER)
        snprintf(number, sizeof number, "%.14g", lua_tonumber(L, -1));
    else if (lua_isboolean(L, -1))
        text = lua_toboolean(L, -1) ? "true" : "false";
    else
        text = lua_tostring(L, -1);
    lua_pushfstring(L, "%s%s%s=%s", lua_tostring(L, -2), lua_rawlen(L, -2) > 0 ? " " : "", option,
                    text);
    lua_replace(L, -3);
}

void ls_lua_options_merge(lua_State *L, int index, const ls_lua_option *given, int32_t n_given) {
    index = lua_absindex(L, index);
    luaL_checkstack(L, 16, "options");
    if (lua_getfield(L, index, "options") == LUA_TNIL) {
        lua_pop(L, 1);
        lua_newtable(L);
    }
    const int defaults = lua_gettop(L), ranges = defaults + 1, merged = defaults + 2;
    lua_getfield(L, index, "ranges");
    lua_newtable(L);
    const lua_Integer n = push_names(L, defaults);
    const int names = lua_gettop(L);
    lua_pushliteral(L, ""); /* the text */
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, names, i);
        const char *option = lua_tostring(L, -1); /* lives in the list of names */
        lua_pop(L, 1);
        const int type = lua_getfield(L, defaults, option);
        if (type != LUA_TNUMBER && type != LUA_TBOOLEAN && type != LUA_TSTRING)
            luaL_error(L,
                       "option '%s' has a %s as its default: give a number, true, false or a text",
                       option, lua_typename(L, type));
        const char *value = find_given(given, n_given, option);
        if (value) {
            push_value(L, option, value);
            lua_remove(L, -2);
        }
        check_range(L, ranges, option, value != NULL);
        lua_pushvalue(L, -1);
        lua_setfield(L, merged, option);
        add_text(L, option);
        lua_pop(L, 1);
    }
    for (int32_t i = 0; i < n_given; i++) {
        if (lua_getfield(L, defaults, given[i].name) == LUA_TNIL)
            fail_unknown(L, defaults, given[i].name);
        lua_pop(L, 1);
    }
    if (lua_istable(L, ranges)) {
        for (lua_pushnil(L); lua_next(L, ranges);) {
            lua_pop(L, 1);
            lua_pushvalue(L, -1);
            if (lua_rawget(L, merged) == LUA_TNIL)
                luaL_error(L, "ranges has '%s', which is no option", luaL_tolstring(L, -2, NULL));
            lua_pop(L, 1);
        }
    }
    lua_newtable(L);
    lua_pushcfunction(L, f_unknown_option);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, f_unknown_option);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, merged);
    lua_pushvalue(L, merged);
    lua_insert(L, -2); /* options, text */
}
