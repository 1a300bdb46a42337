/* lua_module_stats.h - rounds and counts as Lua tables.
 * Counts      { n_round, n_draft_round, n_drafted, n_accepted, n_evaluated, n_emitted, n_refused,
 *             n_cut, n_clamped, kept = {...}, judged = {...}, reached = {...}, draft_us, verify_us,
 *             policy_us, accept_us }: the fields of ls_metrics, lists cut to the deepest draft.
 * Included by lua_module_*.c only. */
#ifndef LS_LUA_MODULE_STATS_H
#define LS_LUA_MODULE_STATS_H

#include "lua_module.h"
#include "metrics.h"

void ls_lua_push_round(lua_State *L, const ls_round *r);
void ls_lua_push_counts(lua_State *L, const ls_metrics *m);

#endif
