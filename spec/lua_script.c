#include "lua_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "lua_find.h"

/* ---- a copy of what the caller gave ---------------------------------------------------------- */

static ls_status copy_options(ls_lua_script_options *dst, const ls_lua_script_options *src,
                              ls_err *err) {
    dst->limits = src->limits;
    char **path = calloc((size_t)src->n_path + 1, sizeof *path);
    ls_lua_option *option = calloc((size_t)src->n_option + 1, sizeof *option);
    dst->path = (const char *const *)path;
    dst->option = option;
    bool ok = path && option;
    for (int32_t i = 0; ok && i < src->n_path; i++) {
        ok = (path[i] = strdup(src->path[i])) != NULL;
        dst->n_path = i + 1;
    }
    for (int32_t i = 0; ok && i < src->n_option; i++) {
        option[i].name = strdup(src->option[i].name);
        option[i].value = strdup(src->option[i].value);
        ok = option[i].name && option[i].value;
        dst->n_option = i + 1;
    }
    return ok ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "script: out of memory");
}

static void free_options(ls_lua_script_options *o) {
    for (int32_t i = 0; o->path && i < o->n_path; i++)
        free((void *)(uintptr_t)o->path[i]);
    for (int32_t i = 0; o->option && i < o->n_option; i++) {
        free((void *)(uintptr_t)o->option[i].name);
        free((void *)(uintptr_t)o->option[i].value);
    }
    free((void *)(uintptr_t)o->path);
    free((void *)(uintptr_t)o->option);
    memset(o, 0, sizeof *o);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const ls_lua_field *find_field(const ls_lua_role *role, const char *name) {
    for (int32_t i = 0; i < role->n_field; i++)
        if (strcmp(role->field[i].name, name) == 0)
            return &role->field[i];
    return NULL;
}

static void check_fields(lua_State *L, const ls_lua_role *role, int table) {
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const ls_lua_field *f = name ? find_field(role, name) : NULL;
        if (!f) {
            luaL_Buffer b;
            luaL_buffinit(L, &b);
            for (int32_t i = 0; i < role->n_field; i++) {
                luaL_addstring(&b, i ? ", " : "");
                luaL_addstring(&b, role->field[i].name);
            }
            luaL_pushresult(&b);
            const char *list = lua_tostring(L, -1), *key = luaL_tolstring(L, -3, NULL);
            luaL_error(L, "unknown field '%s': a %s has %s", key, role->noun, list);
        }
        if (lua_type(L, -1) != f->type)
            luaL_error(L, "field '%s' is a %s: it must be a %s", f->name, luaL_typename(L, -1),
                       lua_typename(L, f->type));
    }
    for (int32_t i = 0; i < role->n_field; i++) {
        if (role->field[i].needed && lua_getfield(L, table, role->field[i].name) == LUA_TNIL)
            luaL_error(L, "the %s has no field '%s' (a %s)", role->noun, role->field[i].name,
                       lua_typename(L, role->field[i].type));
    }
}

/* Names go into records, file names and tables. */
static void check_name(lua_State *L, const ls_lua_role *role, const char *name) {
    const size_t n = strlen(name);
    if (n == 0 || n > LS_LUA_NAME_MAX ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+") != n)
        luaL_error(L, "the name of a %s is 1 to %d letters, digits, or any of _ - . +", role->noun,
                   LS_LUA_NAME_MAX);
}

/* Arguments: the script, and its table. */
static int run_adopt(lua_State *L) {
    ls_lua_script *s = lua_touserdata(L, 1);
    if (!lua_istable(L, 2))
        return luaL_error(L, "a %s is a table, not a %s: end the file with return { ... }",
                          s->role->noun, luaL_typename(L, 2));
    check_fields(L, s->role, 2);
    lua_getfield(L, 2, "name");
    const char *name = lua_tostring(L, -1);
    check_name(L, s->role, name);
    memcpy(s->name, name, strlen(name) + 1);
    ls_lua_options_merge(L, 2, s->options.option, s->options.n_option);
    free(s->options_text);
    s->options_text = strdup(lua_tostring(L, -1));
    if (!s->options_text)
        return luaL_error(L, "the machine is out of memory");
    lua_pop(L, 1);
    s->ref_options = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, 2);
    s->ref_table = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* Takes the value on top of the state's stack, in every case off it. */
static ls_status adopt(ls_lua_script *s, ls_err *err) {
    lua_State *L = s->state->L;
    lua_pushcfunction(L, run_adopt);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, s);
    lua_insert(L, -2);
    const ls_status status = ls_lua_call(s->state, 2, 0, s->who, err);
    if (status != LS_OK && s->owned)
        return ls_fail_in(err, status, "%s", s->path);
    snprintf(s->who, sizeof s->who, "%s '%s', load", s->role->noun, s->name);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A new state in which the script's text has run. */
static ls_status open_state(ls_lua_script *s, uint64_t seed, uint32_t sequence, ls_err *err) {
    const ls_lua_options options = {
        .limits = s->options.limits, .path = s->options.path, .n_path = s->options.n_path};
    ls_lua_destroy(s->state);
    s->state = NULL;
    s->ref_table = s->ref_options = s->ref_self = LUA_NOREF;
    LS_TRY(ls_lua_create(&options, &s->state, err));
    ls_lua_seed(s->state, seed, sequence, 0, LS_LUA_AT_LOAD);
    LS_TRY(ls_lua_text(s->state, s->path, s->text, s->n_text, s->who, err));
    LS_TRY(adopt(s, err));
    ls_lua_freeze(s->state);
    return LS_OK;
}

static void base_name(const char *path, char *dst, size_t cap) {
    const char *slash = strrchr(path, '/');
    const char *from = slash ? slash + 1 : path;
    size_t n = strlen(from);
    if (n > 4 && strcmp(from + n - 4, ".lua") == 0)
        n -= 4;
    ls_err_text(dst, cap, from, n);
}

ls_status ls_lua_script_load(ls_lua_script *s, const ls_lua_role *role, const char *name,
                             const ls_lua_script_options *options, ls_err *err) {
    static const ls_lua_script_options defaults = {0};
    s->role = role;
    s->owned = true;
    LS_TRY(copy_options(&s->options, options ? options : &defaults, err));
    LS_TRY(ls_lua_find(role->noun, role->folder, name, s->options.path, s->options.n_path, &s->path,
                       err));
    LS_TRY(ls_lua_read(s->path, &s->text, &s->n_text, err));
    char base[LS_LUA_NAME_MAX + 1];
    base_name(s->path, base, sizeof base);
    snprintf(s->who, sizeof s->who, "%s '%s', load", role->noun, base);
    return open_state(s, 0, 0, err);
}

ls_status ls_lua_script_take(ls_lua_script *s, const ls_lua_role *role, ls_lua *state, int index,
                             const ls_lua_script_options *options, ls_err *err) {
    static const ls_lua_script_options defaults = {0};
    s->role = role;
    s->state = state;
    s->ref_table = s->ref_options = s->ref_self = LUA_NOREF;
    LS_TRY(copy_options(&s->options, options ? options : &defaults, err));
    char where[LS_LUA_WHERE_MAX];
    ls_lua_where(state->L, where, sizeof where);
    s->path = strdup(where[0] ? where : "inline");
    if (!s->path || !lua_checkstack(state->L, LUA_MINSTACK))
        return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", role->noun);
    lua_pushvalue(state->L, index);
    snprintf(s->who, sizeof s->who, "%s, load", role->noun);
    return adopt(s, err);
}

void ls_lua_script_destroy(ls_lua_script *s) {
    if (s->owned) {
        ls_lua_destroy(s->state);
    } else if (s->state) {
        luaL_unref(s->state->L, LUA_REGISTRYINDEX, s->ref_table);
        luaL_unref(s->state->L, LUA_REGISTRYINDEX, s->ref_options);
        luaL_unref(s->state->L, LUA_REGISTRYINDEX, s->ref_self);
    }
    free_options(&s->options);
    free(s->options_text);
    free(s->path);
    free(s->text);
    memset(s, 0, sizeof *s);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static int run_self(lua_State *L) {
    ls_lua_script *s = lua_touserdata(L, 1);
    luaL_unref(L, LUA_REGISTRYINDEX, s->ref_self);
    s->ref_self = LUA_NOREF;
    lua_createtable(L, 0, 4);
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->ref_options);
    lua_setfield(L, -2, "options");
    lua_createtable(L, 0, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->ref_table);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    s->ref_self = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

ls_status ls_lua_script_begin(ls_lua_script *s, uint64_t seed, uint32_t sequence, ls_err *err) {
    if (s->owned)
        LS_TRY(open_state(s, seed, sequence, err));
    return ls_lua_protect(s->state, run_self, s, s->who, err);
}

void ls_lua_script_seed(ls_lua_script *s, uint64_t seed, uint32_t sequence, int32_t position,
                        uint32_t salt) {
    s->draw = ls_draw_key(seed, sequence, (uint32_t)position, LS_DRAW_POLICY, salt);
    s->n_draw = 0;
}

void ls_lua_script_field(ls_lua_script *s, const char *field) {
    lua_State *L = s->state->L;
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->ref_table);
    lua_pushstring(L, field);
    lua_rawget(L, -2);
    lua_remove(L, -2);
}

int32_t ls_lua_script_n_top(ls_lua_script *s) {
    lua_State *L = s->state->L;
    ls_lua_script_field(s, "n_top");
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return 0;
    }
    int whole;
    const lua_Integer n = lua_tointegerx(L, -1, &whole);
    if (!whole || n < 0 || n > LS_TOP_MAX)
        luaL_error(L, "n_top is %s: it must be a whole number, 0 to %d", lua_tostring(L, -1),
                   LS_TOP_MAX);
    lua_pop(L, 1);
    return (int32_t)n;
}

void ls_lua_script_callback(ls_lua_script *s, const char *field, ls_lua_callback *out) {
    lua_State *L = s->state->L;
    out->ref = LUA_NOREF;
    ls_lua_script_field(s, field);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return;
    }
    lua_Debug ar;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    const char *source = ar.source[0] == '@' ? ar.source + 1 : ar.source;
    char where[LS_LUA_WHERE_MAX];
    snprintf(where, sizeof where, "%s:%d", source, ar.linedefined);
    ls_err_text(out->where, sizeof out->where, where, strlen(where));
    snprintf(out->who, sizeof out->who, "%s '%s', %s", s->role->noun, s->name, field);
    out->ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

ls_status ls_lua_script_call(ls_lua_script *s, const ls_lua_callback *cb, const int *arg_ref,
                             int n_arg, int n_ret, ls_err *err) {
    if (s->ref_self == LUA_NOREF) /* before the first begin, or after one that failed */
        return ls_fail(err, LS_ERR_STATE, "called before begin (%s)", cb->who);
    ls_lua *state = s->state;
    lua_State *L = state->L;
    if (!lua_checkstack(L, LUA_MINSTACK))
        return ls_fail(err, LS_ERR_SCRIPT, "out of stack (%s)", cb->who);
    lua_rawgeti(L, LUA_REGISTRYINDEX, cb->ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->ref_self);
    for (int i = 0; i < n_arg; i++)
        lua_rawgeti(L, LUA_REGISTRYINDEX, arg_ref[i]);
    /* The state's own numbers go on afterwards where they were. */
    const ls_draw draw = state->draw;
    const uint32_t n_draw = state->n_draw;
    state->draw = s->draw;
    state->n_draw = s->n_draw;
    const ls_status status =
        ls_lua_call_within(state, &s->options.limits, n_arg + 1, n_ret, cb->who, err);
    s->n_draw = state->n_draw;
    state->draw = draw;
    state->n_draw = n_draw;
    return status;
}

ls_status ls_lua_script_bad_result(ls_lua_script *s, const ls_lua_callback *cb, const char *what,
                                   const char *must, ls_err *err) {
    lua_State *L = s->state->L;
    char value[96], text[80];
    switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1))
            snprintf(value, sizeof value, "%lld", (long long)lua_tointeger(L, -1));
        else
            snprintf(value, sizeof value, "%.17g", lua_tonumber(L, -1));
        if (strcmp(value, "-nan") == 0)
            memcpy(value, "nan", 4);
        break;
    case LUA_TSTRING: {
        size_t n;
        const char *raw = lua_tolstring(L, -1, &n);
        snprintf(value, sizeof value, "the text '%s'", ls_err_text(text, sizeof text, raw, n));
        break;
    }
    case LUA_TBOOLEAN:
        snprintf(value, sizeof value, "%s", lua_toboolean(L, -1) ? "true" : "false");
        break;
    case LUA_TNIL:
        snprintf(value, sizeof value, "nothing (nil)");
        break;
    default:
        snprintf(value, sizeof value, "a %s", luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return ls_fail(err, LS_ERR_SCRIPT, "%s: %s returned %s: it must be %s (%s)", cb->where, what,
                   value, must, cb->who);
}
