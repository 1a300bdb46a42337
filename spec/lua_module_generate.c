/* ls.generate */
#include "lua_module_generate.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua_module_stats.h"

/* ---- the job --------------------------------------------------------------------------------- */

static void job_free(void *p) {
    ls_lua_job *job = p;
    ls_lua_unref(job->target);
    ls_lua_unref(job->drafter);
    ls_lua_unref(job->policy);
    ls_lua_unref(job->rule);
    ls_lua_unref(job->plain);
    ls_ids_free(&job->prompt);
    for (int32_t i = 0; job->stop && i < job->gen.n_stop; i++)
        free(job->stop[i]);
    free(job->stop);
}

ls_lua_job *ls_lua_push_job(lua_State *L) {
    ls_lua_job *job = ls_lua_box(L, sizeof *job, job_free);
    job->host = ls_lua_host_of(L);
    return job;
}

static void *take(const ls_lua_args *a, const char *name, const ls_lua_class *cls, bool need) {
    void *obj = ls_lua_arg_obj(a, name, cls, need);
    if (obj)
        ls_lua_ref(obj);
    return obj;
}

/* stop = "text" or { "a", "b" }: copied, since a callback may change the table meanwhile */
static void read_stop(ls_lua_job *job, const ls_lua_args *a) {
    lua_State *L = a->L;
    char shown[96];
    if (!ls_lua_arg_push(a, "stop")) {
        lua_pop(L, 1);
        return;
    }
    if (lua_type(L, -1) == LUA_TSTRING) {
        lua_createtable(L, 1, 0);
        lua_insert(L, -2);
        lua_rawseti(L, -2, 1);
    }
    const lua_Unsigned n = lua_istable(L, -1) ? lua_rawlen(L, -1) : 0;
    if (n < 1 || n > 64)
        ls_lua_bad(L, "%s: 'stop' must be a text or a list of 1 to 64 texts, got %s", a->call,
                   ls_lua_show(L, -1, shown, sizeof shown));
    job->stop = calloc((size_t)n, sizeof *job->stop);
    for (lua_Unsigned i = 0; job->stop && i < n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TSTRING || lua_rawlen(L, -1) == 0)
            ls_lua_bad(L, "%s: 'stop' holds texts that are not empty, got %s", a->call,
                       ls_lua_show(L, -1, shown, sizeof shown));
        job->stop[i] = strdup(lua_tostring(L, -1));
        if (!job->stop[i])
            break;
        job->gen.n_stop++;
        lua_pop(L, 1);
    }
    if (job->gen.n_stop != (int32_t)n)
        ls_lua_bad_err(L, a->call, &(ls_err){LS_ERR_MEMORY, "out of memory"});
    lua_pop(L, 1);
    job->gen.stop = (const char *const *)job->stop;
    job->gen.tokenizer = job->target->model->m->tokenizer;
}

void ls_lua_job_read_text(ls_lua_job *job, const ls_lua_args *a) {
    lua_State *L = a->L;
    ls_gen *g = &job->gen;
    job->target = take(a, "target", &ls_lua_engine_class, true);
    g->target = job->target->e;

    ls_lua_arg_push(a, "prompt");
    ls_ids *ids = ls_lua_push_ids(L, -1, job->target->model, a->call);
    job->prompt = *ids;
    *ids = (ls_ids){0}; /* the job frees it now */
    lua_pop(L, 2);
    g->prompt = job->prompt.id;
    g->n_prompt = (int32_t)job->prompt.n;

    g->max_new = (int32_t)ls_lua_arg_int(a, "max_new", 1, INT32_MAX, 0);
    g->warp.temperature = (float)ls_lua_arg_number(a, "temperature", 0, FLT_MAX, 0);
    g->warp.top_k = (int32_t)ls_lua_arg_int(a, "top_k", 0, INT32_MAX, 0);
    g->warp.top_p = (float)ls_lua_arg_number(a, "top_p", 1e-6, 1, 1);
    g->warp.min_p = (float)ls_lua_arg_number(a, "min_p", 0, 1, 0);
    g->seed = (uint64_t)ls_lua_arg_int(a, "seed", 0, INT64_MAX, (int64_t)job->host->run->seed);
    g->sequence = (uint32_t)ls_lua_arg_int(a, "sequence", 0, UINT32_MAX, 0);
    g->ignore_eos = ls_lua_arg_bool(a, "ignore_eos", false);
    read_stop(job, a);
}

/* Two engines can decode together when their ids mean the same. */
static void check_pair(ls_lua_job *job, lua_State *L, const char *call) {
    ls_err err;
    int32_t n;
    const ls_lua_engine *draft = job->drafter->engine;
    const ls_lua_model *source = draft ? draft->model : job->drafter->model;
    if (draft == job->target)
        ls_lua_bad(L, "%s: the drafter's engine is the target's: make one of its own", call);
    if (job->drafter->paired == job->target->model || source == job->target->model)
        return;
    if (ls_model_pair(job->target->model->m, source->m, &n, &err) != LS_OK)
        ls_lua_bad_err(L, call, &err);
    ls_lua_unref(job->drafter->paired);
    job->drafter->paired = job->target->model;
    ls_lua_ref(job->drafter->paired);
}

void ls_lua_job_read_draft(ls_lua_job *job, const ls_lua_args *a) {
    job->drafter = take(a, "drafter", &ls_lua_drafter_class, false);
    job->policy = take(a, "policy", &ls_lua_policy_class, false);
    job->rule = take(a, "rule", &ls_lua_rule_class, false);
    if (!job->drafter != !job->policy)
        ls_lua_bad(a->L, "%s: 'drafter' and 'policy' go together: one was given", a->call);
    if (job->drafter)
        check_pair(job, a->L, a->call);
    job->gen.drafter = job->drafter ? job->drafter->d : NULL;
    job->gen.policy = job->policy ? job->policy->p : NULL;
    job->gen.rule = job->rule ? job->rule->r : NULL;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct round_call {
    ls_lua_job *job;
    const ls_round *round;
    const int32_t *draft;
} round_call;

static int call_on_round(lua_State *L) {
    const round_call *c = lua_touserdata(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, c->job);
    ls_lua_push_round(L, c->round);
    ls_lua_push_tokens(L, c->draft, (size_t)c->round->proposed);
    lua_setfield(L, -2, "draft");
    lua_call(L, 1, 0);
    return 0;
}

static void on_round(void *self, const ls_round *round, const int32_t *draft,
                     const ls_row_stats *stats) {
    ls_lua_job *job = self;
    round_call c = {.job = job, .round = round, .draft = draft};
    (void)stats;
    if (job->failed.code == LS_OK)
        ls_lua_protect(job->host->lua, call_on_round, &c, "on_round", &job->failed);
}

static bool should_stop(void *self) {
    const ls_lua_job *job = self;
    const ls_lua_run *run = job->host->run;
    return job->failed.code != LS_OK || (run->stop && run->stop(run->self));
}

void ls_lua_job_begin(ls_lua_job *job, lua_State *L) {
    if (job->host->busy)
        ls_lua_bad(L, "a callback cannot start another generation");
    job->host->busy = true;
    job->gen.hooks.self = job;
    job->gen.hooks.stop = should_stop;
    job->gen.hooks.round = job->on_round ? on_round : NULL;
}

void ls_lua_job_end(ls_lua_job *job, lua_State *L, const char *call, ls_status s,
                    const ls_err *err) {
    job->host->busy = false;
    if (job->on_round) {
        lua_pushnil(L);
        lua_rawsetp(L, LUA_REGISTRYINDEX, job);
    }
    if (job->failed.code != LS_OK)
        ls_lua_raise(L, &job->failed);
    if (s != LS_OK)
        ls_lua_bad_err(L, call, err);
}

/* ---- generate -------------------------------------------------------------------------------- */

static void transcript_free(void *p) {
    ls_transcript_free(p);
}

void ls_lua_set_text(lua_State *L, const ls_lua_model *m, const int32_t *token, int32_t n,
                     int32_t cut, ls_end end) {
    ls_lua_push_tokens(L, token, (size_t)n);
    lua_setfield(L, -2, "tokens");
    lua_pushinteger(L, n);
    lua_setfield(L, -2, "n_new");
    lua_pushstring(L, ls_end_name(end));
    lua_setfield(L, -2, "ended");
    if (!m->m->tokenizer)
        return;
    ls_lua_push_text(L, m, token, (size_t)n, "text");
    if (cut > 0) {
        size_t bytes;
        const char *text = lua_tolstring(L, -1, &bytes);
        lua_pushlstring(L, text, bytes - ((size_t)cut < bytes ? (size_t)cut : bytes));
        lua_remove(L, -2);
    }
    lua_setfield(L, -2, "text");
}

static void set_int(lua_State *L, const char *name, int64_t v) {
    lua_pushinteger(L, v);
    lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, double v) {
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

static void push_transcript(lua_State *L, const ls_lua_job *job, const ls_transcript *t) {
    const ls_gen *g = &job->gen;
    ls_metrics counts = {0};
    ls_err err;
    if (ls_metrics_add_all(&counts, t->round, t->n_round, &err) != LS_OK)
        ls_lua_bad_err(L, "generate", &err);
    lua_newtable(L);
    ls_lua_set_text(L, job->target->model, t->token, t->n_token, t->n_text_cut, t->end);
    lua_createtable(L, t->n_round, 0);
    for (int32_t i = 0; i < t->n_round; i++) {
        ls_lua_push_round(L, &t->round[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "rounds");
    ls_lua_push_counts(L, &counts);
    lua_setfield(L, -2, "counts");
    lua_pushstring(L, t->digest);
    lua_setfield(L, -2, "digest");
    lua_pushstring(L, g->rule ? g->rule->name : "exact");
    lua_setfield(L, -2, "rule");
    lua_pushstring(L, ls_rule_kind_name(g->rule ? g->rule->kind : LS_RULE_EXACT));
    lua_setfield(L, -2, "rule_kind");
    set_int(L, "n_prompt", g->n_prompt);
    set_int(L, "n_clamped", t->n_clamped);
    set_int(L, "n_bad_unused", t->n_bad_unused);
    set_int(L, "seed", (int64_t)g->seed);
    set_int(L, "sequence", g->sequence);
    set_number(L, "prefill_us", t->prefill_us);
    set_number(L, "decode_us", t->total_us - t->prefill_us);
    set_number(L, "total_us", t->total_us);
}

/* ls.generate{ target =, prompt =, ... } -> transcript */
static int f_generate(lua_State *L) {
    static const char *const known[] = {LS_LUA_TEXT_FIELDS, LS_LUA_DRAFT_FIELDS, "on_round", NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, false, "generate", known);
    ls_err err;
    ls_lua_job *job = ls_lua_push_job(L);
    ls_transcript *t = ls_lua_box(L, sizeof *t, transcript_free);
    ls_lua_job_read_text(job, &a);
    ls_lua_job_read_draft(job, &a);
    job->on_round = ls_lua_arg_push(&a, "on_round");
    if (job->on_round && !lua_isfunction(L, -1))
        return ls_lua_bad(L, "generate: 'on_round' must be a function(round)");
    ls_lua_job_begin(job, L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, job);
    const ls_status s = ls_generate(&job->gen, t, &err);
    ls_lua_job_end(job, L, "generate", s, &err);
    push_transcript(L, job, t);
    ls_transcript_free(t);
    return 1;
}

static const luaL_Reg functions[] = {{"generate", f_generate}, {NULL, NULL}};

void ls_lua_open_generate(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
