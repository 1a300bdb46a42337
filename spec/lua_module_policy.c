/* ls.policy, ls.rule */
#include "lua_module_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "lua_policy.h"
#include "lua_rule.h"
#include "sha256.h"

#define LS_LUA_OPTIONS_MAX 64

/* ---- options: a Lua table as the name=value pairs the loaders read --------------------------- */

static void check_table(lua_State *L, int idx, const char *call) {
    char shown[96];
    if (!lua_isnoneornil(L, idx) && !lua_istable(L, idx))
        ls_lua_bad(L, "%s: options are a table like { n = 4 }, got %s", call,
                   ls_lua_show(L, idx, shown, sizeof shown));
}

/* Pushes a table that holds the texts, and a box with the pairs. */
static const ls_lua_option *push_options(lua_State *L, int idx, const char *call, int32_t *n) {
    char shown[96];
    check_table(L, idx, call);
    *n = 0;
    lua_newtable(L);
    ls_lua_option *list = ls_lua_box(L, LS_LUA_OPTIONS_MAX * sizeof *list, NULL);
    if (!lua_istable(L, idx))
        return list;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        const int type = lua_type(L, -1);
        if (lua_type(L, -2) != LUA_TSTRING)
            ls_lua_bad(L, "%s: options are named, got the key %s", call,
                       ls_lua_show(L, -2, shown, sizeof shown));
        if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TBOOLEAN)
            ls_lua_bad(L, "%s: option '%s' must be a number, a text or a boolean, got %s", call,
                       lua_tostring(L, -2), ls_lua_show(L, -1, shown, sizeof shown));
        if (*n == LS_LUA_OPTIONS_MAX)
            ls_lua_bad(L, "%s: more than %d options", call, LS_LUA_OPTIONS_MAX);
        if (type == LUA_TSTRING)
            lua_pushvalue(L, -1);
        else
            ls_lua_json_push(L, -1, call, NULL); /* every digit of a number */
        list[*n] = (ls_lua_option){lua_tostring(L, -3), lua_tostring(L, -1)};
        lua_rawseti(L, -5, ++*n);
    }
    return list;
}

static ls_lua_script_options script_options(const ls_lua_host *host, const ls_lua_option *list,
                                            int32_t n) {
    return (ls_lua_script_options){.path = host->run->policy_dir,
                                   .n_path = host->run->n_policy_dir,
                                   .option = list,
                                   .n_option = n};
}

/* ---- about: a policy is what its text and its options say ------------------------------------ */

/* Sets field "digest" of the table on top: of the file, or of the script that holds the code. */
static void set_digest(lua_State *L, const char *where, const char *call) {
    char hex[LS_SHA256_HEX], *text = NULL;
    size_t n;
    ls_err err;
    if (!ls_file_exists(where)) {
        lua_pushstring(L, ls_lua_host_of(L)->digest);
    } else {
        ls_status s = ls_file_read(where, NULL, LS_LUA_FILE_MAX, &text, &n, &err);
        if (s == LS_OK)
            s = ls_sha256_of(text, n, hex, &err);
        free(text);
        if (s != LS_OK)
            ls_lua_bad_err(L, call, &err);
        lua_pushstring(L, hex);
    }
    lua_setfield(L, -2, "digest");
}

/* ---- policy ---------------------------------------------------------------------------------- */

static void policy_drop(ls_lua_obj *o) {
    ls_policy_destroy(((ls_lua_policy_obj *)o)->p);
}

static ls_lua_policy_obj *policy_at(lua_State *L) {
    return ls_lua_check(L, 1, &ls_lua_policy_class, "policy");
}

static int policy_name(lua_State *L) {
    lua_pushstring(L, policy_at(L)->p->name);
    return 1;
}

static int policy_where(lua_State *L) {
    lua_pushstring(L, policy_at(L)->p->where);
    return 1;
}

static int policy_options(lua_State *L) {
    lua_pushstring(L, ls_lua_policy_options(policy_at(L)->p));
    return 1;
}

static const luaL_Reg policy_fields[] = {
    {"name", policy_name}, {"where", policy_where}, {"options", policy_options}, {NULL, NULL}};

const ls_lua_class ls_lua_policy_class = {"policy", policy_drop, policy_fields, NULL};

/* ls.policy("svip" | path | table [, options]) */
static int f_policy(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    char shown[96];
    int32_t n;
    ls_err err;
    if (!lua_istable(L, 1) && lua_type(L, 1) != LUA_TSTRING)
        return ls_lua_bad(L, "policy: takes a name, a path or a policy table, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    lua_settop(L, 2);
    const ls_lua_option *list = push_options(L, 2, "policy", &n);
    const ls_lua_script_options o = script_options(host, list, n);
    ls_lua_policy_obj *p = ls_lua_new(L, &ls_lua_policy_class, sizeof *p);
    const ls_status s = lua_istable(L, 1) ? ls_lua_policy_take(host->lua, 1, &o, &p->p, &err)
                                          : ls_lua_policy_load(lua_tostring(L, 1), &o, &p->p, &err);
    if (s != LS_OK)
        return ls_lua_bad_err(L, "policy", &err);
    lua_newtable(L);
    lua_pushstring(L, p->p->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, ls_lua_policy_options(p->p));
    lua_setfield(L, -2, "options");
    set_digest(L, p->p->where, "policy");
    ls_lua_set_about(L, p);
    return 1;
}

/* ---- rule ------------------------------------------------------------------------------------ */

static void rule_drop(ls_lua_obj *o) {
    ls_rule_destroy(((ls_lua_rule_obj *)o)->r);
}

static ls_lua_rule_obj *rule_at(lua_State *L) {
    return ls_lua_check(L, 1, &ls_lua_rule_class, "rule");
}

static int rule_name(lua_State *L) {
    lua_pushstring(L, rule_at(L)->r->name);
    return 1;
}

static int rule_kind(lua_State *L) {
    lua_pushstring(L, ls_rule_kind_name(rule_at(L)->r->kind));
    return 1;
}

static const luaL_Reg rule_fields[] = {{"name", rule_name}, {"kind", rule_kind}, {NULL, NULL}};

const ls_lua_class ls_lua_rule_class = {"rule", rule_drop, rule_fields, NULL};

static bool is_builtin(const char *name) {
    return strcmp(name, "exact") == 0 || strcmp(name, "rejection") == 0;
}

static ls_status make_rule(lua_State *L, const ls_lua_host *host, const ls_lua_script_options *o,
                           ls_rule **out, ls_err *err) {
    if (lua_istable(L, 1))
        return ls_lua_rule_take(host->lua, 1, o, out, err);
    const char *name = lua_tostring(L, 1);
    if (is_builtin(name) && o->n_option == 0)
        return ls_rule_builtin(name, out, err);
    return ls_lua_rule_load(name, o, out, err);
}

/* ls.rule("exact" | "rejection" | name | path | table [, options]) */
static int f_rule(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    char shown[96];
    int32_t n;
    ls_err err;
    if (!lua_istable(L, 1) && lua_type(L, 1) != LUA_TSTRING)
        return ls_lua_bad(L, "rule: takes a name, a path or a rule table, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    lua_settop(L, 2);
    const ls_lua_option *list = push_options(L, 2, "rule", &n);
    const ls_lua_script_options o = script_options(host, list, n);
    ls_lua_rule_obj *r = ls_lua_new(L, &ls_lua_rule_class, sizeof *r);
    if (make_rule(L, host, &o, &r->r, &err) != LS_OK)
        return ls_lua_bad_err(L, "rule", &err);
    lua_newtable(L);
    lua_pushstring(L, r->r->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, ls_rule_kind_name(r->r->kind));
    lua_setfield(L, -2, "kind");
    if (n > 0) {
        lua_pushvalue(L, 2);
        lua_setfield(L, -2, "options");
    }
    if (strcmp(r->r->where, "built in") != 0)
        set_digest(L, r->r->where, "rule");
    ls_lua_set_about(L, r);
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {{"policy", f_policy}, {"rule", f_rule}, {NULL, NULL}};

void ls_lua_open_policy(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
