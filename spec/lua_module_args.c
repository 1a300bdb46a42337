#include "lua_module.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values in words ------------------------------------------------------------------------- */

bool ls_lua_integer(lua_State *L, int idx, int64_t *out) {
    int whole = 0;
    if (lua_type(L, idx) != LUA_TNUMBER)
        return false;
    *out = lua_tointegerx(L, idx, &whole);
    return whole;
}

char *ls_lua_show(lua_State *L, int idx, char *dst, size_t cap) {
    char text[80];
    size_t n;
    const char *s;
    const ls_lua_obj *obj;
    switch (lua_type(L, idx)) {
    case LUA_TNONE:
    case LUA_TNIL:
        snprintf(dst, cap, "nothing");
        break;
    case LUA_TBOOLEAN:
        snprintf(dst, cap, "%s", lua_toboolean(L, idx) ? "true" : "false");
        break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, idx))
            snprintf(dst, cap, "%lld", (long long)lua_tointeger(L, idx));
        else
            snprintf(dst, cap, "%.14g", lua_tonumber(L, idx));
        break;
    case LUA_TSTRING:
        s = lua_tolstring(L, idx, &n);
        snprintf(dst, cap, "'%s'", ls_err_text(text, sizeof text, s, n));
        break;
    case LUA_TUSERDATA:
        obj = ls_lua_any(L, idx);
        s = obj ? obj->cls->name : "closed handle";
        snprintf(dst, cap, "%s %s", ls_lua_article(s), s);
        break;
    default:
        snprintf(dst, cap, "a %s", lua_typename(L, lua_type(L, idx)));
    }
    return dst;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool is_known(const char *name, const char *const *known) {
    for (; *known; known++)
        if (strcmp(name, *known) == 0)
            return true;
    return false;
}

static int bad_field(lua_State *L, const char *call, int key, const char *const *known) {
    char shown[96], list[400] = "";
    size_t n = 0;
    for (; *known && n + 1 < sizeof list; known++) {
        const int put = snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", *known);
        n += put > 0 ? (size_t)put : 0;
    }
    return ls_lua_bad(L, "%s: no field %s; it takes %s", call,
                      ls_lua_show(L, key, shown, sizeof shown), list);
}

ls_lua_args ls_lua_args_at(lua_State *L, int idx, bool optional, const char *call,
                           const char *const *known) {
    ls_lua_args a = {L, 0, call};
    char shown[96];
    if (optional && lua_isnoneornil(L, idx))
        return a;
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s: takes a table of named fields, got %s", call,
                   ls_lua_show(L, idx, shown, sizeof shown));
    a.at = lua_absindex(L, idx);
    for (lua_pushnil(L); lua_next(L, a.at); lua_pop(L, 1))
        if (lua_type(L, -2) != LUA_TSTRING || !is_known(lua_tostring(L, -2), known))
            bad_field(L, call, -2, known);
    return a;
}

bool ls_lua_arg_push(const ls_lua_args *a, const char *name) {
    if (!a->at) {
        lua_pushnil(a->L);
        return false;
    }
    lua_pushstring(a->L, name);
    return lua_rawget(a->L, a->at) != LUA_TNIL;
}

bool ls_lua_arg_has(const ls_lua_args *a, const char *name) {
    const bool has = ls_lua_arg_push(a, name);
    lua_pop(a->L, 1);
    return has;
}

static int bad_value(const ls_lua_args *a, const char *name, const char *wanted) {
    char shown[96];
    return ls_lua_bad(a->L, "%s: '%s' must be %s, got %s", a->call, name, wanted,
                      ls_lua_show(a->L, -1, shown, sizeof shown));
}

/* ---- fields ---------------------------------------------------------------------------------- */

int64_t ls_lua_arg_int(const ls_lua_args *a, const char *name, int64_t min, int64_t max,
                       int64_t fallback) {
    int64_t v = fallback;
    char wanted[96];
    if (ls_lua_arg_push(a, name) && (!ls_lua_integer(a->L, -1, &v) || v < min || v > max)) {
        if (max >= INT32_MAX)
            snprintf(wanted, sizeof wanted, "an integer >= %lld", (long long)min);
        else
            snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)min,
                     (long long)max);
        bad_value(a, name, wanted);
    }
    lua_pop(a->L, 1);
    return v;
}

double ls_lua_arg_number(const ls_lua_args *a, const char *name, double min, double max,
                         double fallback) {
    double v = fallback;
    char wanted[96];
    if (ls_lua_arg_push(a, name)) {
        v = lua_type(a->L, -1) == LUA_TNUMBER ? lua_tonumber(a->L, -1) : NAN;
        if (!(v >= min && v <= max)) { /* NaN too */
            snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
            bad_value(a, name, wanted);
        }
    }
    lua_pop(a->L, 1);
    return v;
}

bool ls_lua_arg_bool(const ls_lua_args *a, const char *name, bool fallback) {
    bool v = fallback;
    if (ls_lua_arg_push(a, name)) {
        if (!lua_isboolean(a->L, -1))
            bad_value(a, name, "true or false");
        v = lua_toboolean(a->L, -1);
    }
    lua_pop(a->L, 1);
    return v;
}

const char *ls_lua_arg_string(const ls_lua_args *a, const char *name, const char *fallback) {
    const char *v = fallback;
    if (ls_lua_arg_push(a, name)) {
        if (lua_type(a->L, -1) != LUA_TSTRING ||
            strlen(lua_tostring(a->L, -1)) != lua_rawlen(a->L, -1))
            bad_value(a, name, "a string without zero bytes");
        v = lua_tostring(a->L, -1);
    }
    lua_pop(a->L, 1);
    return v;
}

int ls_lua_arg_choice(const ls_lua_args *a, const char *name, const char *const *names,
                      int fallback) {
    int v = fallback;
    if (ls_lua_arg_push(a, name)) {
        const char *s = lua_type(a->L, -1) == LUA_TSTRING ? lua_tostring(a->L, -1) : "";
        for (v = 0; names[v] && strcmp(names[v], s) != 0; v++)
            ;
        if (!names[v]) {
            char wanted[200];
            size_t n = 0;
            for (int i = 0; names[i] && n + 1 < sizeof wanted; i++)
                n += (size_t)snprintf(wanted + n, sizeof wanted - n, "%s\"%s\"", i ? " or " : "",
                                      names[i]);
            bad_value(a, name, wanted);
        }
    }
    lua_pop(a->L, 1);
    return v;
}

void *ls_lua_arg_obj(const ls_lua_args *a, const char *name, const ls_lua_class *cls, bool need) {
    void *obj = NULL;
    char what[96];
    if (ls_lua_arg_push(a, name) || need) {
        snprintf(what, sizeof what, "%s: '%s'", a->call, name);
        obj = ls_lua_check(a->L, -1, cls, what);
    }
    lua_pop(a->L, 1); /* the table still holds it */
    return obj;
}

double *ls_lua_list_numbers(lua_State *L, int idx, const char *what, int32_t *n) {
    char shown[96];
    idx = lua_absindex(L, idx);
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s must be a list of numbers, got %s", what,
                   ls_lua_show(L, idx, shown, sizeof shown));
    const lua_Unsigned len = lua_rawlen(L, idx);
    if (len > 10000000)
        ls_lua_bad(L, "%s: more than ten million numbers", what);
    double *list = ls_lua_box(L, ((size_t)len + 1) * sizeof *list, NULL);
    for (lua_Unsigned i = 0; i < len; i++) {
        if (lua_rawgeti(L, idx, (lua_Integer)i + 1) != LUA_TNUMBER)
            ls_lua_bad(L, "%s: entry %lld must be a number, got %s", what, (long long)i + 1,
                       ls_lua_show(L, -1, shown, sizeof shown));
        list[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    *n = (int32_t)len;
    return list;
}
