/* ls.plain, ls.check */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lua_module_generate.h"
#include "lua_module_stats.h"

/* ---- plain ----------------------------------------------------------------------------------- */

/* A plain run and the job it came from, which every check against it repeats. */
typedef struct plain_obj {
    ls_lua_obj base;
    ls_plain *p;
    ls_lua_engine *engine;
    int32_t *prompt;
    char **stop;
    ls_gen gen; /* prompt and stop point into the copies above */
} plain_obj;

static void plain_drop(ls_lua_obj *o) {
    plain_obj *p = (plain_obj *)o;
    ls_plain_destroy(p->p);
    ls_lua_unref(p->engine);
    free(p->prompt);
    for (int32_t i = 0; p->stop && i < p->gen.n_stop; i++)
        free(p->stop[i]);
    free(p->stop);
}

static const ls_lua_class plain_class;

static const plain_obj *plain_at(lua_State *L) {
    return ls_lua_check(L, 1, &plain_class, "plain");
}

static int plain_tokens(lua_State *L) {
    const plain_obj *p = plain_at(L);
    ls_lua_push_tokens(L, p->p->token, (size_t)p->p->n_token);
    return 1;
}

static int plain_n_new(lua_State *L) {
    lua_pushinteger(L, plain_at(L)->p->n_token);
    return 1;
}

static int plain_ended(lua_State *L) {
    lua_pushstring(L, ls_end_name(plain_at(L)->p->end));
    return 1;
}

static int plain_text(lua_State *L) {
    const plain_obj *p = plain_at(L);
    ls_lua_push_text(L, p->engine->model, p->p->token, (size_t)p->p->n_token, "plain");
    return 1;
}

static int plain_decode_us(lua_State *L) {
    lua_pushnumber(L, plain_at(L)->p->decode_us);
    return 1;
}

static int plain_margins(lua_State *L) {
    const plain_obj *p = plain_at(L);
    lua_createtable(L, p->p->n_token, 0);
    for (int32_t i = 0; i < p->p->n_token; i++) {
        lua_pushnumber(L, (double)p->p->margin[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static const luaL_Reg plain_fields[] = {
    {"tokens", plain_tokens},
    {"n_new", plain_n_new},
    {"ended", plain_ended},
    {"text", plain_text},
    {"decode_us", plain_decode_us},
    {"margins", plain_margins},
    {NULL, NULL},
};

static const ls_lua_class plain_class = {"plain", plain_drop, plain_fields, NULL};

/* The job's prompt and stop strings become the plain run's. */
static void keep_job(plain_obj *p, ls_lua_job *job) {
    p->engine = job->target;
    job->target = NULL;
    p->prompt = job->prompt.id;
    job->prompt = (ls_ids){0};
    p->stop = job->stop;
    job->stop = NULL;
    p->gen = job->gen;
    p->gen.hooks = (ls_gen_hooks){0};
}

/* ls.plain{ target =, prompt =, ... } -> plain */
static int f_plain(lua_State *L) {
    static const char *const known[] = {LS_LUA_TEXT_FIELDS, NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, false, "plain", known);
    ls_err err;
    ls_lua_job *job = ls_lua_push_job(L);
    ls_lua_job_read_text(job, &a);
    plain_obj *p = ls_lua_new(L, &plain_class, sizeof *p);
    ls_lua_job_begin(job, L);
    const ls_status s = ls_plain_run(&job->gen, job->target->e, &p->p, &err);
    ls_lua_job_end(job, L, "plain", s, &err);
    keep_job(p, job);
    return 1;
}

/* ---- check ----------------------------------------------------------------------------------- */

static void result_free(void *p) {
    ls_check_free(p);
}

/* A difference that the engines' own settings explain is no fork: refuse it. */
static void check_alike(lua_State *L, const ls_lua_engine *plain, const ls_lua_engine *spec) {
    const ls_engine_options *a = ls_engine_opts(plain->e), *b = ls_engine_opts(spec->e);
    const char *what = NULL;
    if (strcmp(plain->model->digest, spec->model->digest) != 0)
        what = "model";
    else if (a->kv_dtype != b->kv_dtype)
        what = "kv";
    else if (memcmp(&a->chunk, &b->chunk, sizeof a->chunk) != 0)
        what = "chunk";
    else if (a->n_layers != b->n_layers)
        what = "layers";
    else if (a->context != b->context)
        what = "context";
    if (what)
        ls_lua_bad(L,
                   "check: target and plain run differ in '%s', which changes the result of both: "
                   "make the plain run on an engine with the same",
                   what);
}

static void set_int(lua_State *L, const char *name, int64_t v) {
    lua_pushinteger(L, v);
    lua_setfield(L, -2, name);
}

static void set_text(lua_State *L, const char *name, const char *v) {
    lua_pushstring(L, v);
    lua_setfield(L, -2, name);
}

/* The one line of ls_fork_print, in memory. */
static void set_fork_line(lua_State *L, const ls_fork *f) {
    char *text = NULL;
    size_t n = 0;
    FILE *mem = open_memstream(&text, &n);
    if (!mem)
        ls_lua_bad_err(L, "check", &(ls_err){LS_ERR_MEMORY, "out of memory"});
    ls_fork_print(mem, f);
    fclose(mem);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    char line[1024];
    ls_err_text(line, sizeof line, text, n);
    free(text);
    set_text(L, "line", line);
}

static void push_fork(lua_State *L, const ls_fork *f) {
    static const char *const kinds[] = {"none", "logits", "token", "length", "cache"};
    char bits[16];
    lua_newtable(L);
    set_text(L, "kind", kinds[f->kind]);
    set_int(L, "position", f->position);
    set_int(L, "token_plain", f->token_plain);
    set_int(L, "token_spec", f->token_spec);
    set_int(L, "round", f->round);
    set_int(L, "row", f->row);
    set_int(L, "rows", f->rows);
    set_int(L, "layer", f->layer);
    set_text(L, "op", f->op);
    set_int(L, "element", f->element);
    snprintf(bits, sizeof bits, "0x%08x", f->bits_plain);
    set_text(L, "bits_plain", bits);
    snprintf(bits, sizeof bits, "0x%08x", f->bits_spec);
    set_text(L, "bits_spec", bits);
    set_int(L, "ulp", f->ulp);
    lua_pushnumber(L, (double)f->margin);
    lua_setfield(L, -2, "margin");
    set_fork_line(L, f);
}

static void push_result(lua_State *L, const ls_check_result *r) {
    ls_metrics counts = {0};
    ls_err err;
    if (ls_metrics_add_all(&counts, r->spec.round, r->spec.n_round, &err) != LS_OK)
        ls_lua_bad_err(L, "check", &err);
    lua_newtable(L);
    lua_pushboolean(L, r->same);
    lua_setfield(L, -2, "same");
    set_int(L, "n_position", r->n_position);
    set_int(L, "n_logit", r->n_logit);
    set_int(L, "n_cache", r->n_cache);
    set_int(L, "n_differ", r->n_differ);
    set_int(L, "n_cache_differ", r->n_cache_differ);
    set_text(L, "digest_token", r->digest_token);
    set_text(L, "digest_logits", r->digest_logits);
    set_text(L, "digest_cache", r->digest_cache);
    ls_lua_push_counts(L, &counts);
    lua_setfield(L, -2, "counts");
    if (!r->same) {
        push_fork(L, &r->fork);
        lua_setfield(L, -2, "fork");
    }
}

/* The plain run's own prompt, sampling, seed and end conditions: only the drafting is new. */
static void repeat_job(ls_lua_job *job, plain_obj *p, const ls_lua_args *a) {
    job->gen = p->gen;
    job->plain = p;
    ls_lua_ref(p);
    job->target = ls_lua_arg_obj(a, "target", &ls_lua_engine_class, false);
    if (!job->target)
        job->target = p->engine;
    ls_lua_ref(job->target);
    job->gen.target = job->target->e;
    check_alike(a->L, p->engine, job->target);
    ls_lua_job_read_draft(job, a);
}

/* ls.check{ plain =, target =, drafter =, policy =, rule = } -> result */
static int f_check(lua_State *L) {
    static const char *const known[] = {"plain", "target", LS_LUA_DRAFT_FIELDS, NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, false, "check", known);
    ls_err err;
    plain_obj *p = ls_lua_arg_obj(&a, "plain", &plain_class, true);
    ls_lua_job *job = ls_lua_push_job(L);
    ls_check_result *r = ls_lua_box(L, sizeof *r, result_free);
    repeat_job(job, p, &a);
    ls_lua_job_begin(job, L);
    job->gen.hooks.round = NULL; /* the check has its own */
    const ls_status s = ls_check_run(&job->gen, p->p, p->engine->e, r, &err);
    ls_lua_job_end(job, L, "check", s, &err);
    push_result(L, r);
    ls_check_free(r);
    return 1;
}

static const luaL_Reg functions[] = {{"plain", f_plain}, {"check", f_check}, {NULL, NULL}};

void ls_lua_open_check(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
