/* lua_policy.h - a length policy written in Lua (policies/README.md is its users' page).
 * Names       "svip" is PATH/length/svip.lua or PATH/svip.lua of the policy path; anything with a
 *             slash or ending in .lua is a file.
 * A run       `begin` gives it a fresh `self`, and a policy from a file a fresh Lua state as well:
 *             the file's text is read once, at load, and runs again for each run.
 * Errors      LS_ERR_SCRIPT for a fault of the script, LS_ERR_INPUT for an unknown name or option.
 * Memory      destroy frees the state it owns. A policy taken from a state borrows that state and
 *             is destroyed before it.
 * Cost        under a microsecond for a small callback; ls_lua_policy_bench measures it. */
#ifndef LS_LUA_POLICY_H
#define LS_LUA_POLICY_H

#include "lua_state.h"
#include "policy.h"

/* An option as the command line gives it: "threshold", "0.4". */
typedef struct ls_lua_option {
    const char *name, *value;
} ls_lua_option;

typedef struct ls_lua_script_options {
    ls_lua_limits limits;
    const char *const *path; /* policy path: folders, copied */
    int32_t n_path;
    const ls_lua_option *option; /* override the script's defaults; read during the call only */
    int32_t n_option;
} ls_lua_script_options;

#ifdef __cplusplus
extern "C" {
#endif

ls_status ls_lua_policy_load(const char *name, const ls_lua_script_options *options,
                             ls_policy **out, ls_err *err);
/* The policy table at `index` of the state's stack, which is left as it was. Options as above;
 * memory and path are the state's; each call has the budget of `limits`, or the default one. */
ls_status ls_lua_policy_take(ls_lua *state, int index, const ls_lua_script_options *options,
                             ls_policy **out, ls_err *err);

/* The options in force, "h=0.3 k=0.15 max=40", sorted by name: for records. */
const char *ls_lua_policy_options(const ls_policy *policy);

/* Median and 99th percentile of one call over n_call rounds of plan, more and observe on a made-up
 * context; more is 0 where the policy has none. */
typedef struct ls_lua_policy_cost {
    double plan_median_us, plan_p99_us;
    double more_median_us, more_p99_us;
    double observe_median_us, observe_p99_us;
} ls_lua_policy_cost;
ls_status ls_lua_policy_bench(ls_policy *policy, int32_t n_call, ls_lua_policy_cost *out,
                              ls_err *err);

#ifdef __cplusplus
}
#endif

#endif
