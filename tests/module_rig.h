/* module_rig.h - runs experiment scripts on random-weight models and keeps what they said.
 * Folders     a fresh one per rig, removed at close: DIR/script.lua and DIR/out/.
 * Models      "draft" is the target's weights rounded to bf16: it agrees often, not always.
 * Errors      abort the test. */
#ifndef LS_TEST_MODULE_RIG_H
#define LS_TEST_MODULE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lua_run.h"

typedef struct ls_module_rig {
    char *target, *draft; /* model folders */
    char dir[64], out[80], script[80], prompts[96];
    char said[1 << 16], noted[4096]; /* printed; notes, a line each */
    int n_said, n_noted, n_progress;
    int stop_after; /* the stop callback says true from this call on; 0: never */
    int n_stop;
    int64_t n_step;
    ls_err err;
} ls_module_rig;

void ls_module_open(ls_module_rig *r);
void ls_module_close(ls_module_rig *r);
/* cmocka setup and teardown: *state is a rig. */
int ls_module_setup(void **state);
int ls_module_teardown(void **state);

/* Runs `text` as DIR/script.lua with n arguments. The rig's output is cleared first. */
ls_status ls_module_run(ls_module_rig *r, const char *text, int n, const char *const *arg);
/* Runs a file where it lies. */
ls_status ls_module_run_file(ls_module_rig *r, const char *path, int n, const char *const *arg);
/* The same, and the test fails with the script's message unless it ends well. */
void ls_module_ok(ls_module_rig *r, const char *text);

/* DIR/out/NAME.jsonl: its path, its bytes (free), and how many lines it has. */
const char *ls_module_results(ls_module_rig *r, const char *name);
char *ls_module_read(const char *path, size_t *n);
int ls_module_lines(const char *path);

#endif
