/* lua_state.h - one sandboxed Lua 5.4 state: what a script may reach, and what a call may cost.
 * Reach       an allow-list (lua_lib.c): parts of base, string, table, math, utf8, and `require`
 *             for files under the policy path and for preloaded modules. Source text only.
 * Globals     may be made while scripts load; after ls_lua_freeze, writing an undeclared global or
 *             reading an unknown one is an error that names it.
 * Budgets     instructions and wall clock of each outermost call from the host, the load of a file
 *             included; memory of the whole state. A nested call also counts for the one around it.
 *             Once a budget is spent every further step fails, so that no pcall outlives it.
 * Protected   every entry. Nothing a script does aborts the host, and no script code runs while an
 *             error is put into words.
 * Errors      LS_ERR_SCRIPT, or the code a host function raised with ls_lua_raise. One line:
 *             "policies/length/x.lua:12: what happened (policy 'x', plan)", foreign bytes escaped.
 * Random      math.random and ls_lua_draw are functions of the seed set by ls_lua_seed; nothing
 *             else in a state is random: pairs walks its keys in ascending order.
 * Memory      the state copies its options; the caller destroys it after all that holds on to it.
 * Threads     one owner; states are independent of each other.
 * lua.h is included by lua_*.c only; a file that needs the raw state includes both. */
#ifndef LS_LUA_STATE_H
#define LS_LUA_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct lua_State lua_State;
typedef struct ls_lua ls_lua;

#define LS_LUA_UNLIMITED (-1)
#define LS_LUA_FILE_MAX (64 * 1024) /* bytes of a script: parsing cannot be stopped half-way */

typedef struct ls_lua_limits {
    int64_t memory_bytes; /* 0 = 64 MiB; no single block may exceed a quarter of it */
    int64_t n_step;       /* instructions a call: 0 = 10 million, LS_LUA_UNLIMITED */
    int64_t time_us;      /* wall clock a call: 0 = 1 second, LS_LUA_UNLIMITED */
} ls_lua_limits;

typedef struct ls_lua_options {
    ls_lua_limits limits;
    const char *const *path; /* folders `require "a.b"` searches for a/b.lua; may be NULL with 0 */
    int32_t n_path;
    bool patterns; /* string.find, match, gmatch, gsub: one such call can outlive the time budget,
                    * so only for a script its user trusts */
    void (*print)(void *self, const char *text, size_t n); /* what print writes, newline included;
                                                            * NULL: there is no print */
    bool (*stop)(void *self); /* asked every few milliseconds while a script runs: true ends it with
                               * LS_ERR_STOPPED, which no pcall keeps; may be NULL */
    void *self;
} ls_lua_options;

#ifdef __cplusplus
extern "C" {
#endif

ls_status ls_lua_create(const ls_lua_options *options, ls_lua **out, ls_err *err);
void ls_lua_destroy(ls_lua *state);

lua_State *ls_lua_raw(ls_lua *state);
ls_lua *ls_lua_of(lua_State *L);

/* `require "name"` gives what open(L) returns (one value), made at the first require. */
ls_status ls_lua_preload(ls_lua *state, const char *name, int (*open)(lua_State *), ls_err *err);

/* Runs a script and leaves its first result (nil without one) on the stack; on error nothing. A
 * file may begin with a byte-order mark or a # line. `who` is what the message says in brackets
 * ("policy 'x', load"); NULL for none. `path` of a text is what messages call it. */
ls_status ls_lua_file(ls_lua *state, const char *path, const char *who, ls_err *err);
ls_status ls_lua_text(ls_lua *state, const char *path, const char *text, size_t n, const char *who,
                      ls_err *err);
void ls_lua_freeze(ls_lua *state);

/* Calls the function below the n_arg values on top of the stack. They are popped in every case; on
 * success n_ret results (LUA_MULTRET allowed) take their place. Calls nest: script, host,
 * script. */
ls_status ls_lua_call(ls_lua *state, int n_arg, int n_ret, const char *who, ls_err *err);
/* The same under a tighter budget than the state's (memory stays the state's); NULL = the
 * state's. */
ls_status ls_lua_call_within(ls_lua *state, const ls_lua_limits *limits, int n_arg, int n_ret,
                             const char *who, ls_err *err);
/* The same for a C function that gets `arg` as a light userdata: for host code that allocates in
 * the state. Leaves no results. */
ls_status ls_lua_protect(ls_lua *state, int (*fn)(lua_State *), void *arg, const char *who,
                         ls_err *err);

/* ---- for C functions called by scripts; these do not return --------------------------------- */

/* Raises err as a Lua error whose code survives up to the host if no pcall takes it on the way;
 * LS_ERR_STOPPED is never taken. */
int ls_lua_raise(lua_State *L, const ls_err *err);
/* Charges n instructions for work done in C and looks at the clock; raises when the budget is
 * gone. */
void ls_lua_charge(lua_State *L, int64_t n);

/* ---- a script's own random numbers ----------------------------------------------------------- */

/* From now on numbers are those of (seed, sequence, position, salt), starting at the first. */
void ls_lua_seed(ls_lua *state, uint64_t seed, uint32_t sequence, uint32_t position, uint32_t salt);
uint32_t ls_lua_draw(lua_State *L);
/* Pushes the function rng() -> [0, 1), rng(n) -> 1..n, rng(lo, hi), which math.random also is. */
void ls_lua_push_rng(lua_State *L);

/* Bytes in use now, and the most there ever were. */
typedef struct ls_lua_usage {
    int64_t now_bytes, peak_bytes;
} ls_lua_usage;
ls_lua_usage ls_lua_memory(const ls_lua *state);

#ifdef __cplusplus
}
#endif

#endif
