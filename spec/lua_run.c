#include "lua_run.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "lua_module.h"
#include "sha256.h"

#define LS_SCRIPT_MEMORY ((int64_t)1 << 30) /* bytes of its state */
#define LS_SCRIPT_STEPS ((int64_t)20 << 30) /* instructions: an endless loop ends in minutes */

/* The code says how a run ended; a message for a person is in err. */
static ls_status verdict(const ls_lua_host *host, ls_status s, ls_err *err) {
    if (host->done)
        return LS_OK; /* --help */
    if (host->failed) /* even if a pcall of the script took the error */
        return ls_fail(err, LS_ERR_CHECK, "%s", host->fail.msg);
    if (s == LS_ERR_STOPPED)
        return ls_fail(err, s, "stopped: finished cells are kept, and the same command goes on");
    if (s == LS_OK && !host->used_args && host->run->n_arg > 0 && host->run->note)
        host->run->note(host->run->self,
                        "the script takes no options: its arguments were not used");
    return s;
}

static ls_status run_in(ls_lua_host *host, const char *text, size_t n, ls_err *err) {
    const ls_lua_run *run = host->run;
    const ls_lua_options options = {
        .limits = {.memory_bytes = LS_SCRIPT_MEMORY,
                   .n_step = run->n_step ? run->n_step : LS_SCRIPT_STEPS,
                   .time_us = LS_LUA_UNLIMITED},
        .path = run->policy_dir,
        .n_path = run->n_policy_dir,
        .patterns = true,
        .print = run->print,
        .stop = run->stop,
        .self = run->self};
    LS_TRY(ls_sha256_of(text, n, host->digest, err));
    LS_TRY(ls_lua_create(&options, &host->lua, err));
    LS_TRY(ls_lua_module_install(host, err));
    ls_lua_seed(host->lua, run->seed, 0, 0, 0);
    ls_lua_freeze(host->lua); /* a study has locals only: a misspelt name is an error */
    return verdict(host, ls_lua_text(host->lua, run->script, text, n, NULL, err), err);
}

ls_status ls_lua_run_script(const ls_lua_run *run, ls_err *err) {
    ls_lua_host host = {.run = run};
    char *text = NULL;
    size_t n;
    LS_TRY(ls_file_read(run->script, NULL, LS_LUA_FILE_MAX, &text, &n, err));
    const ls_status s = run_in(&host, text, n, err);
    ls_lua_destroy(host.lua); /* closes what the script left open: before the backends */
    for (int32_t i = 0; i < host.n_gpu; i++)
        ls_backend_destroy(host.gpu[i].be);
    free(text);
    return s;
}
