/* lua_run.h - runs an experiment script: a sandboxed Lua state in which `require "lockstep"` works.
 * Sandbox     as for policies: no io, os, load or package. A script reads models, prompts and
 *             policies through the module, and writes under out_dir only (experiments/README.md).
 * Status      LS_OK, LS_ERR_CHECK when the script called ls.fail (exit 1), LS_ERR_STOPPED when
 *             `stop` said so, LS_ERR_SCRIPT with file and line for a fault of the script, else what
 *             the host call that failed returned.
 * Kept        finished cells are on disk whatever the status (results.h).
 * Memory      strings are borrowed for the call; what a script opened is closed before return.
 * Threads     one run at a time on its own state; callbacks come on the caller's thread. */
#ifndef LS_LUA_RUN_H
#define LS_LUA_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"

typedef struct ls_lua_run {
    const char *script;     /* path of the .lua file */
    const char *const *arg; /* what follows it: name=value, or --help */
    int32_t n_arg;
    const char *out_dir;           /* NULL: ls.results is refused */
    const char *target_dir;        /* ls.model() and ls.model "target"; NULL: must be named */
    const char *draft_dir;         /* ls.model "draft" */
    const char *prompt_dir;        /* where prompt sets are found by name; NULL: by path only */
    const char *const *policy_dir; /* where length/NAME.lua and accept/NAME.lua are found */
    int32_t n_policy_dir;
    ls_device_args device; /* default of ls.engine */
    uint64_t seed;         /* ls.seed, and the default seed of ls.generate */
    int64_t n_step;        /* Lua instructions the script may spend, 0 = 20 billion */
    /* Everything below may be NULL. */
    void *self;
    void (*print)(void *self, const char *text, size_t n); /* standard output, as it comes */
    void (*note)(void *self, const char *line);            /* one line for standard error */
    void (*progress)(void *self, int64_t done, int64_t total, const char *text);
    bool (*stop)(void *self); /* asked between rounds and while the script runs */
} ls_lua_run;

ls_status ls_lua_run_script(const ls_lua_run *run, ls_err *err);

#endif
