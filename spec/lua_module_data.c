/* ls.prompts, ls.results */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "file.h"
#include "lua_module.h"
#include "prompts.h"
#include "results.h"
#include "sha256.h"

/* ---- prompts --------------------------------------------------------------------------------- */

static void prompts_free(void *p) {
    ls_prompts_free(p);
}
static void string_free(void *p) {
    free(*(char **)p);
}

/* Adds the prompts of one set (a name in the prompt folder) or path. */
static void read_set(lua_State *L, ls_prompts *into, const char *name) {
    const char *dir = ls_lua_host_of(L)->run->prompt_dir;
    const size_t n = strlen(name);
    const bool is_path = strchr(name, '/') || (n > 6 && strcmp(name + n - 6, ".jsonl") == 0);
    ls_err err;
    ls_status s = LS_OK;
    if (is_path) {
        s = ls_prompts_read(name, into, &err);
    } else {
        if (!dir)
            ls_lua_bad(L,
                       "prompts: '%s' is the name of a set, and there is no prompt folder: "
                       "give a path",
                       name);
        char **path = ls_lua_box(L, sizeof *path, string_free);
        char file[256];
        snprintf(file, sizeof file, "%.200s%s", name, *name ? ".jsonl" : "");
        s = ls_file_join(dir, file, path, &err);
        if (s == LS_OK)
            s = ls_prompts_read(*path, into, &err);
        lua_pop(L, 1);
    }
    if (s != LS_OK)
        ls_lua_bad_err(L, "prompts", &err);
}

static void set_text(lua_State *L, const char *name, const char *v) {
    lua_pushstring(L, v);
    lua_setfield(L, -2, name);
}

/* ls.prompts([set or path or list of them] [, { n =, seed = }]) -> list of { id, set, task, source,
 * prompt, digest } */
static int f_prompts(lua_State *L) {
    static const char *const known[] = {"n", "seed", NULL};
    char shown[96];
    ls_err err;
    lua_settop(L, 2);
    const ls_lua_args a = ls_lua_args_at(L, 2, true, "prompts", known);
    const int32_t n = (int32_t)ls_lua_arg_int(&a, "n", 1, INT32_MAX, 0);
    const uint64_t seed = (uint64_t)ls_lua_arg_int(&a, "seed", 0, INT64_MAX, 0);
    ls_prompts *p = ls_lua_box(L, sizeof *p, prompts_free);
    if (lua_isnoneornil(L, 1)) {
        read_set(L, p, "");
    } else if (lua_type(L, 1) == LUA_TSTRING) {
        read_set(L, p, lua_tostring(L, 1));
    } else if (lua_istable(L, 1)) {
        for (lua_Unsigned i = 1; i <= lua_rawlen(L, 1); i++) {
            if (lua_rawgeti(L, 1, (lua_Integer)i) != LUA_TSTRING)
                return ls_lua_bad(L, "prompts: a list holds names of sets or paths, got %s",
                                  ls_lua_show(L, -1, shown, sizeof shown));
            read_set(L, p, lua_tostring(L, -1));
            lua_pop(L, 1);
        }
    } else {
        return ls_lua_bad(L, "prompts: takes a set, a path or a list of them, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    }
    if (ls_prompts_sample(p, n, seed, &err) != LS_OK)
        return ls_lua_bad_err(L, "prompts", &err);
    lua_createtable(L, p->n, 0);
    for (int32_t i = 0; i < p->n; i++) {
        const char *text = p->prompt[i].text;
        char digest[LS_SHA256_HEX];
        if (ls_sha256_of(text, strlen(text), digest, &err) != LS_OK)
            return ls_lua_bad_err(L, "prompts", &err);
        lua_createtable(L, 0, 6);
        set_text(L, "digest", digest);
        set_text(L, "id", p->prompt[i].id);
        set_text(L, "set", p->prompt[i].set);
        set_text(L, "task", p->prompt[i].task);
        set_text(L, "source", p->prompt[i].source);
        set_text(L, "prompt", text);
        lua_rawseti(L, -2, i + 1);
    }
    ls_prompts_free(p);
    return 1;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct results_obj {
    ls_lua_obj base;
    ls_results *r;
    char *common; /* JSON of what every key shares */
} results_obj;

static void results_drop(ls_lua_obj *o) {
    results_obj *r = (results_obj *)o;
    ls_results_close(r->r);
    free(r->common);
}

static const ls_lua_class results_class;

static results_obj *results_at(lua_State *L, const char *what) {
    return ls_lua_check(L, 1, &results_class, what);
}

/* Pushes the canonical key {"common":, "key":, "version":} of the table at idx; and its id. */
static const char *push_key(lua_State *L, const results_obj *r, int idx, const char *call,
                            char id[LS_SHA256_HEX]) {
    char shown[96];
    size_t n;
    ls_err err;
    idx = lua_absindex(L, idx);
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s: a key is a table of what the cell depends on, got %s", call,
                   ls_lua_show(L, idx, shown, sizeof shown));
    ls_lua_json_push(L, idx, "key", NULL);
    lua_pushfstring(L, "{\"common\":%s,\"key\":%s,\"version\":\"%s\"}", r->common,
                    lua_tostring(L, -1), LS_VERSION);
    lua_remove(L, -2);
    const char *text = lua_tolstring(L, -1, &n);
    if (ls_sha256_of(text, n, id, &err) != LS_OK)
        ls_lua_bad_err(L, call, &err);
    return text;
}

/* results:has(key) */
static int results_has(lua_State *L) {
    const results_obj *r = results_at(L, "results:has");
    char id[LS_SHA256_HEX];
    push_key(L, r, 2, "results:has", id);
    lua_pushboolean(L, ls_results_has(r->r, id));
    return 1;
}

/* Pushes field "data" of a line of the file, or the whole record. */
static void push_line(lua_State *L, char **line, bool whole) {
    ls_lua_json_pull_text(L, *line, strlen(*line), "results");
    if (!whole) {
        lua_getfield(L, -1, "data");
        lua_remove(L, -2);
    }
}

/* results:get(key) -> the cell's data, or nil */
static int results_get(lua_State *L) {
    const results_obj *r = results_at(L, "results:get");
    char id[LS_SHA256_HEX];
    ls_err err;
    push_key(L, r, 2, "results:get", id);
    char **line = ls_lua_box(L, sizeof *line, string_free);
    if (ls_results_get(r->r, id, line, &err) != LS_OK)
        return ls_lua_bad_err(L, "results:get", &err);
    if (*line)
        push_line(L, line, false);
    else
        lua_pushnil(L);
    return 1;
}

/* results:records() -> every record of the file, in the order they were finished */
static int results_records(lua_State *L) {
    const results_obj *r = results_at(L, "results:records");
    ls_err err;
    char **line = ls_lua_box(L, sizeof *line, string_free);
    lua_newtable(L);
    for (int64_t i = 0; i < ls_results_count(r->r); i++) {
        if (ls_results_line(r->r, i, line, &err) != LS_OK)
            return ls_lua_bad_err(L, "results:records", &err);
        push_line(L, line, true);
        lua_rawseti(L, -2, i + 1);
        free(*line);
        *line = NULL;
    }
    return 1;
}

/* Pushes what a record says of the run it comes from, as JSON. */
static const char *push_provenance(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    const char *slash = strrchr(host->run->script, '/');
    const char *script = slash ? slash + 1 : host->run->script;
    const time_t now = time(NULL);
    struct tm utc;
    char at[32], shown[256];
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    lua_newtable(L);
    set_text(L, "version", LS_VERSION);
    set_text(L, "script", ls_err_text(shown, sizeof shown, script, strlen(script)));
    set_text(L, "script_digest", host->digest);
    set_text(L, "at", at);
    lua_pushinteger(L, (lua_Integer)host->run->seed);
    lua_setfield(L, -2, "seed");
    lua_getfield(L, LUA_REGISTRYINDEX, LS_LUA_OPTIONS);
    lua_setfield(L, -2, "options");
    lua_getfield(L, LUA_REGISTRYINDEX, LS_LUA_MODELS);
    lua_setfield(L, -2, "models");
    lua_getfield(L, LUA_REGISTRYINDEX, LS_LUA_DEVICES);
    lua_setfield(L, -2, "devices");
    const char *text = ls_lua_json_push(L, -1, "results:add: provenance", NULL);
    lua_remove(L, -2);
    return text;
}

void ls_lua_remember(lua_State *L, const char *list) {
    const char *text = ls_lua_json_push(L, -1, list, NULL);
    if (lua_getfield(L, LUA_REGISTRYINDEX, list) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, LUA_REGISTRYINDEX, list);
    }
    bool known = false;
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, -1) && !known; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i);
        known = strcmp(ls_lua_json_push(L, -1, list, NULL), text) == 0;
        lua_pop(L, 2);
    }
    if (!known) {
        lua_pushvalue(L, -3);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
    lua_pop(L, 3);
}

/* results:add(key, data): on disk when it returns */
static int results_add(lua_State *L) {
    const results_obj *r = results_at(L, "results:add");
    char id[LS_SHA256_HEX], shown[96];
    ls_err err;
    if (!lua_istable(L, 3))
        return ls_lua_bad(L, "results:add: data is a table, got %s",
                          ls_lua_show(L, 3, shown, sizeof shown));
    push_key(L, r, 2, "results:add", id);
    lua_pop(L, 1);
    const char *key = ls_lua_json_push(L, 2, "results:add: key", NULL);
    const char *data = ls_lua_json_push(L, 3, "results:add: data", NULL);
    const char *run = push_provenance(L);
    const char *line =
        lua_pushfstring(L, "{\"cell\":\"%s\",\"key\":%s,\"common\":%s,\"data\":%s,\"run\":%s}", id,
                        key, r->common, data, run);
    if (ls_results_add(r->r, id, line, &err) != LS_OK)
        return ls_lua_bad_err(L, "results:add", &err);
    return 0;
}

static int results_path(lua_State *L) {
    lua_pushstring(L, ls_results_path(results_at(L, "results")->r));
    return 1;
}

static int results_n(lua_State *L) {
    lua_pushinteger(L, ls_results_count(results_at(L, "results")->r));
    return 1;
}

static const luaL_Reg results_fields[] = {{"path", results_path}, {"n", results_n}, {NULL, NULL}};
static const luaL_Reg results_methods[] = {{"has", results_has},
                                           {"get", results_get},
                                           {"add", results_add},
                                           {"records", results_records},
                                           {NULL, NULL}};

static const ls_lua_class results_class = {"results", results_drop, results_fields,
                                           results_methods};

static void note_torn(const ls_lua_host *host, const ls_results *r, size_t n_torn) {
    char line[512];
    if (n_torn == 0 || !host->run->note)
        return;
    snprintf(line, sizeof line,
             "%s: dropped %zu bytes of a last line that was cut off; its cell will be done again",
             ls_results_path(r), n_torn);
    host->run->note(host->run->self, line);
}

/* ls.results(name [, common]) */
static int f_results(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    char shown[96];
    size_t n_torn = 0;
    ls_err err;
    lua_settop(L, 2);
    if (lua_type(L, 1) != LUA_TSTRING)
        return ls_lua_bad(L, "results: takes a name, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    if (!lua_isnil(L, 2) && !lua_istable(L, 2))
        return ls_lua_bad(L, "results: what all keys share is a table, got %s",
                          ls_lua_show(L, 2, shown, sizeof shown));
    if (!host->run->out_dir)
        return ls_lua_bad(L, "results: this run has no output folder: run with --out DIR");
    if (lua_isnil(L, 2)) {
        lua_newtable(L);
        lua_replace(L, 2);
    }
    const char *common = ls_lua_json_push(L, 2, "results: common", NULL);
    results_obj *r = ls_lua_new(L, &results_class, sizeof *r);
    r->common = strdup(common);
    if (!r->common)
        return ls_lua_bad_err(L, "results", &(ls_err){LS_ERR_MEMORY, "out of memory"});
    if (ls_results_open(host->run->out_dir, lua_tostring(L, 1), &r->r, &n_torn, &err) != LS_OK)
        return ls_lua_bad_err(L, "results", &err);
    note_torn(host, r->r, n_torn);
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {{"prompts", f_prompts}, {"results", f_results}, {NULL, NULL}};

void ls_lua_open_data(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
