/* lua_module_policy.h - the objects behind handles on length policies and acceptance rules.
 * Memory      a policy given as a table borrows the script's state, which is closed after it.
 * Included by lua_module_*.c only. */
#ifndef LS_LUA_MODULE_POLICY_H
#define LS_LUA_MODULE_POLICY_H

#include "lua_module.h"
#include "policy.h"
#include "rule.h"

typedef struct ls_lua_policy_obj {
    ls_lua_obj base;
    ls_policy *p;
} ls_lua_policy_obj;

typedef struct ls_lua_rule_obj {
    ls_lua_obj base;
    ls_rule *r;
} ls_lua_rule_obj;

extern const ls_lua_class ls_lua_policy_class, ls_lua_rule_class;

#endif
