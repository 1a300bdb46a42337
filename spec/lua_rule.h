/* lua_rule.h - an acceptance policy: a Lua file that picks a built-in rule, or judges tokens.
 * Names       as in lua_policy.h, with PATH/accept/NAME.lua.
 * Kinds       a file that says rule = "exact" or "rejection" is that rule, with its kind. A file
 *             with a judge function is lossy, whatever it says of itself.
 * Judge       is asked about drafted tokens in order, never about the bonus row, where the target's
 *             own draw stands. It answers true (keep), false (take the target's own token) or a
 *             token of the vocabulary to stand instead; the drafted token itself means true.
 * A run       begins with a fresh `self`, and a rule from a file with a fresh Lua state.
 * Errors      as in lua_policy.h.
 * Memory      a rule taken from a state borrows the state. */
#ifndef LS_LUA_RULE_H
#define LS_LUA_RULE_H

#include "lua_policy.h"
#include "rule.h"

#ifdef __cplusplus
extern "C" {
#endif

ls_status ls_lua_rule_load(const char *name, const ls_lua_script_options *options, ls_rule **out,
                           ls_err *err);
ls_status ls_lua_rule_take(ls_lua *state, int index, const ls_lua_script_options *options,
                           ls_rule **out, ls_err *err);

/* As ls_lua_policy_options. */
const char *ls_lua_rule_options(const ls_rule *rule);

#ifdef __cplusplus
}
#endif

#endif
