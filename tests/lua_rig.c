#include "lua_rig.h"

#include <time.h>

double ls_rig_cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

ls_lua *ls_rig_state(ls_lua_limits limits) {
    const ls_lua_options options = {.limits = limits};
    ls_lua *state = NULL;
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_create(&options, &state, &err), &err);
    return state;
}

ls_status ls_rig_run(ls_lua *state, const char *text, ls_err *err) {
    const int top = lua_gettop(ls_lua_raw(state));
    const ls_status status = ls_lua_text(state, "t.lua", text, strlen(text), NULL, err);
    lua_settop(ls_lua_raw(state), top);
    return status;
}

lua_Integer ls_rig_integer(ls_lua *state, const char *text) {
    lua_State *L = ls_lua_raw(state);
    ls_err err;
    LUA_OK_OR_FAIL(ls_lua_text(state, "t.lua", text, strlen(text), NULL, &err), &err);
    assert_true(lua_isinteger(L, -1));
    const lua_Integer i = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return i;
}

ls_status ls_rig_case(const char *file, ls_lua_limits limits, ls_lua **state, ls_policy **policy,
                      ls_err *err) {
    static const char wrapper[] =
        "local f = draft_length\n"
        "if type(f) == 'function' then f = function(self, ctx) return draft_length(ctx) end end\n"
        "return { name = 'case', plan = f }\n";
    char path[512];
    snprintf(path, sizeof path, "%s/cases/lua/%s", LS_TEST_DIR, file);
    ls_lua *s = ls_rig_state(limits);
    *policy = NULL;
    ls_status status = ls_lua_file(s, path, "policy 'case', load", err);
    if (status == LS_OK)
        status = ls_lua_text(s, "wrapper", wrapper, sizeof wrapper - 1, NULL, err);
    if (status == LS_OK) {
        const ls_lua_script_options options = {.limits = limits};
        ls_lua_freeze(s);
        status = ls_lua_policy_take(s, -1, &options, policy, err);
    }
    lua_settop(ls_lua_raw(s), 0);
    if (status == LS_OK) {
        const ls_policy_ctx ctx = ls_rig_ctx(1);
        status = (*policy)->begin(*policy, &ctx, err);
    }
    if (status != LS_OK) {
        ls_policy_destroy(*policy);
        ls_lua_destroy(s);
        return status;
    }
    *state = s;
    return LS_OK;
}

const char *ls_rig_write(const char *name, const char *text, size_t n) {
    static char path[256];
    snprintf(path, sizeof path, "lua_test_%s", name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

ls_policy_ctx ls_rig_ctx(uint64_t seed) {
    return (ls_policy_ctx){.position = 10, .n_prompt = 10, .room = 20, .seed = seed};
}
