#include "lua_module.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char host_key = 0; /* its address is the registry key */

ls_status ls_lua_gpu(ls_lua_host *host, const ls_device_args *d, ls_backend **out, ls_err *err) {
    for (int32_t i = 0; i < host->n_gpu; i++)
        if (host->gpu[i].device == d->device && host->gpu[i].profile == d->profile) {
            *out = host->gpu[i].be;
            return LS_OK;
        }
    if (host->n_gpu == LS_LUA_GPUS)
        return ls_fail(err, LS_ERR_INPUT, "more than %d devices and profiles", LS_LUA_GPUS);
    LS_TRY(ls_device_open(d, out, err));
    host->gpu[host->n_gpu].device = d->device;
    host->gpu[host->n_gpu].profile = d->profile;
    host->gpu[host->n_gpu++].be = *out;
    return LS_OK;
}

ls_lua_host *ls_lua_host_of(lua_State *L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &host_key);
    ls_lua_host *host = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return host;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The state puts the script's file and line before what is raised (lua_state.h). */
int ls_lua_bad(lua_State *L, const char *fmt, ...) {
    ls_err err = {.code = LS_ERR_SCRIPT};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.msg, sizeof err.msg, fmt, ap);
    va_end(ap);
    return ls_lua_raise(L, &err);
}

int ls_lua_bad_err(lua_State *L, const char *call, const ls_err *err) {
    ls_err up = *err;
    if (err->code != LS_ERR_STOPPED && err->code != LS_ERR_CHECK)
        ls_fail_in(&up, err->code, "%s", call);
    return ls_lua_raise(L, &up);
}

/* ---- the module ------------------------------------------------------------------------------ */

/* ls.name that does not exist: an error that says so, as for every other table of the host. */
static int f_unknown(lua_State *L) {
    char shown[96];
    return ls_lua_bad(L, "lockstep: there is no ls.%s (experiments/README.md lists what there is)",
                      lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2)
                                                    : ls_lua_show(L, 2, shown, sizeof shown));
}

static int f_fixed(lua_State *L) {
    return ls_lua_bad(L, "lockstep: the module's fields cannot be set");
}

static int open_module(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    lua_newtable(L); /* stays empty, so that every access passes the two functions */
    lua_newtable(L);
    lua_newtable(L);
    ls_lua_open_script(L);
    ls_lua_open_model(L);
    ls_lua_open_policy(L);
    ls_lua_open_generate(L);
    ls_lua_open_check(L);
    ls_lua_open_stats(L);
    ls_lua_open_data(L);
    ls_lua_open_kernel(L);
    ls_lua_open_figure(L);
    lua_pushstring(L, LS_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushinteger(L, (lua_Integer)host->run->seed);
    lua_setfield(L, -2, "seed");

    lua_newtable(L);
    lua_pushcfunction(L, f_unknown);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, f_fixed);
    lua_setfield(L, -2, "__newindex");
    lua_pushliteral(L, "lockstep");
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    return 1;
}

static int set_host(lua_State *L) {
    lua_rawsetp(L, LUA_REGISTRYINDEX, &host_key); /* the argument: the host */
    return 0;
}

ls_status ls_lua_module_install(ls_lua_host *host, ls_err *err) {
    LS_TRY(ls_lua_protect(host->lua, set_host, host, NULL, err));
    return ls_lua_preload(host->lua, "lockstep", open_module, err);
}
