/* lua_module_generate.h - one decoding job as a script describes it, for generate, plain and check.
 * Memory      a job lies in a box and holds references on all it uses; the script may close its
 *             handles meanwhile.
 * Busy        one job at a time in a run: a callback cannot start another on the same engines.
 * Included by lua_module_*.c only. */
#ifndef LS_LUA_MODULE_GENERATE_H
#define LS_LUA_MODULE_GENERATE_H

#include "generate.h"
#include "lua_module_model.h"
#include "lua_module_policy.h"

typedef struct ls_lua_job {
    ls_lua_host *host;
    ls_lua_engine *target;
    ls_lua_drafter *drafter;
    ls_lua_policy_obj *policy;
    ls_lua_rule_obj *rule;
    void *plain; /* object whose prompt and stop strings gen borrows, in a check */
    ls_ids prompt;
    char **stop;
    ls_gen gen;
    bool on_round; /* its function is in the registry under the job's address */
    ls_err failed; /* what on_round raised; LS_OK: nothing */
} ls_lua_job;

/* What a job may name, for argument lists: the first two are "target" and "prompt". */
#define LS_LUA_TEXT_FIELDS                                                                       \
    "target", "prompt", "max_new", "temperature", "top_k", "top_p", "min_p", "seed", "sequence", \
        "ignore_eos", "stop"
#define LS_LUA_DRAFT_FIELDS "drafter", "policy", "rule"

/* Pushes a box with a job. read_text reads target, prompt, sampling; read_draft the rest. */
ls_lua_job *ls_lua_push_job(lua_State *L);
void ls_lua_job_read_text(ls_lua_job *job, const ls_lua_args *a);
void ls_lua_job_read_draft(ls_lua_job *job, const ls_lua_args *a);
/* Puts the job's hooks in; begin and end bracket the host call that uses job->gen. End raises what
 * went wrong, if anything did. */
void ls_lua_job_begin(ls_lua_job *job, lua_State *L);
void ls_lua_job_end(ls_lua_job *job, lua_State *L, const char *call, ls_status s,
                    const ls_err *err);

/* Sets text, tokens, n_new, ended in the table on top; cut: bytes to drop from the text's end. */
void ls_lua_set_text(lua_State *L, const ls_lua_model *m, const int32_t *token, int32_t n,
                     int32_t cut, ls_end end);

#endif
