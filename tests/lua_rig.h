/* lua_rig.h - what the Lua tests set up: states with short budgets, and the case files as
 * policies. */
#ifndef LS_TEST_LUA_RIG_H
#define LS_TEST_LUA_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua_inner.h"
#include "lua_policy.h"

#define LUA_OK_OR_FAIL(call, err)       \
    do {                                \
        if ((call) != LS_OK)            \
            fail_msg("%s", (err)->msg); \
    } while (0)

/* Seconds of processor time: what a script took, however busy the machine is. */
double ls_rig_cpu_s(void);

/* A state with these limits and nothing else. */
ls_lua *ls_rig_state(ls_lua_limits limits);

/* Runs text as chunk "t.lua"; the status, with the message in err. Leaves nothing on the stack. */
ls_status ls_rig_run(ls_lua *state, const char *text, ls_err *err);
/* Runs text, which must succeed and return an integer. */
lua_Integer ls_rig_integer(ls_lua *state, const char *text);

/* A script under tests/cases/lua, whose draft_length becomes the plan of a policy that lives in
 * *state. On LS_OK both are the caller's; on an error nothing is (that is the case's load
 * error). */
ls_status ls_rig_case(const char *file, ls_lua_limits limits, ls_lua **state, ls_policy **policy,
                      ls_err *err);

/* Writes a policy file under the build folder and returns its path (static storage). */
const char *ls_rig_write(const char *name, const char *text, size_t n);

/* A context as a run would have it before its first round. */
ls_policy_ctx ls_rig_ctx(uint64_t seed);

#endif
