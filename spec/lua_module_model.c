/* ls.model, ls.engine, ls.drafter */
#include "lua_module_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "chunk_text.h"
#include "lua_module.h"
#include "tokenizer.h"

/* ---- model ----------------------------------------------------------------------------------- */

static void model_drop(ls_lua_obj *o) {
    ls_model_close(((ls_lua_model *)o)->m);
}

static ls_lua_model *model_at(lua_State *L, const char *what) {
    return ls_lua_check(L, 1, &ls_lua_model_class, what);
}

static const ls_config *config_at(lua_State *L) {
    return &model_at(L, "model")->m->config;
}

static int push_int(lua_State *L, int64_t v) {
    lua_pushinteger(L, v);
    return 1;
}

static int model_name(lua_State *L) {
    const char *dir = model_at(L, "model")->m->dir;
    const char *slash = strrchr(dir, '/');
    lua_pushstring(L, slash && slash[1] ? slash + 1 : dir);
    return 1;
}

static int model_dir(lua_State *L) {
    lua_pushstring(L, model_at(L, "model")->m->dir);
    return 1;
}

static int model_n_params(lua_State *L) {
    return push_int(L, (int64_t)model_at(L, "model")->m->weights->n_params);
}

static int model_vocab(lua_State *L) {
    return push_int(L, model_at(L, "model")->m->n_token);
}
static int model_context(lua_State *L) {
    return push_int(L, config_at(L)->n_pos);
}
static int model_layers(lua_State *L) {
    return push_int(L, config_at(L)->n_layers);
}

static int model_digest(lua_State *L) {
    lua_pushstring(L, model_at(L, "model")->digest);
    return 1;
}

static const ls_tokenizer *tokenizer_of(lua_State *L, const ls_lua_model *m, const char *call) {
    if (!m->m->tokenizer)
        ls_lua_bad(
            L,
            "%s: %s has no tokenizer (tokenizer.json, or one in the GGUF file that is supported); "
            "give token ids instead of text",
            call, m->m->dir);
    return m->m->tokenizer;
}

static void ids_free(void *p) {
    ls_ids_free(p);
}
static void text_free(void *p) {
    ls_text_free(p);
}

ls_ids *ls_lua_push_ids(lua_State *L, int idx, const ls_lua_model *m, const char *call) {
    char shown[96];
    size_t n;
    ls_err err;
    idx = lua_absindex(L, idx);
    ls_ids *ids = ls_lua_box(L, sizeof *ids, ids_free);
    if (lua_type(L, idx) == LUA_TSTRING) {
        const char *text = lua_tolstring(L, idx, &n);
        if (ls_tokenizer_encode(tokenizer_of(L, m, call), text, n, LS_ENCODE_TEMPLATE, ids, NULL,
                                &err) != LS_OK)
            ls_lua_bad_err(L, call, &err);
        return ids;
    }
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s: the prompt must be text or a list of token ids, got %s", call,
                   ls_lua_show(L, idx, shown, sizeof shown));
    n = lua_rawlen(L, idx);
    ids->cap = n + 1;
    ids->id = n < ((size_t)1 << 28) ? malloc(ids->cap * sizeof *ids->id) : NULL;
    if (!ids->id)
        ls_lua_bad(L, "%s: a list of %zu token ids does not fit in memory", call, n);
    for (; ids->n < n; ids->n++) {
        int64_t v;
        lua_rawgeti(L, idx, (lua_Integer)ids->n + 1);
        if (!ls_lua_integer(L, -1, &v) || v < 0 || v >= m->m->config.n_vocab)
            ls_lua_bad(L, "%s: token id %zu must be an integer from 0 to %d, got %s", call,
                       ids->n + 1, m->m->config.n_vocab - 1,
                       ls_lua_show(L, -1, shown, sizeof shown));
        ids->id[ids->n] = (int32_t)v;
        lua_pop(L, 1);
    }
    return ids;
}

void ls_lua_push_text(lua_State *L, const ls_lua_model *m, const int32_t *id, size_t n,
                      const char *call) {
    ls_err err;
    ls_text *text = ls_lua_box(L, sizeof *text, text_free);
    if (ls_tokenizer_decode(tokenizer_of(L, m, call), id, n, true, text, &err) != LS_OK)
        ls_lua_bad_err(L, call, &err);
    lua_pushlstring(L, text->n ? text->s : "", text->n);
    ls_text_free(text);
    lua_remove(L, -2);
}

void ls_lua_push_tokens(lua_State *L, const int32_t *id, size_t n) {
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushinteger(L, id[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* model:encode(text) -> ids, as a prompt is encoded */
static int model_encode(lua_State *L) {
    const ls_lua_model *m = model_at(L, "encode");
    const ls_ids *ids = ls_lua_push_ids(L, 2, m, "encode");
    ls_lua_push_tokens(L, ids->id, ids->n);
    return 1;
}

/* model:decode(ids) -> text without special tokens */
static int model_decode(lua_State *L) {
    const ls_lua_model *m = model_at(L, "decode");
    if (!lua_istable(L, 2))
        return ls_lua_bad(L, "decode: takes a list of token ids");
    const ls_ids *ids = ls_lua_push_ids(L, 2, m, "decode");
    ls_lua_push_text(L, m, ids->id, ids->n, "decode");
    return 1;
}

/* model:chat(text [, system]) -> ids of a user's turn in the model's own chat template */
static int model_chat(lua_State *L) {
    const ls_lua_model *m = model_at(L, "chat");
    const ls_tokenizer *tok = tokenizer_of(L, m, "chat");
    size_t n = 0, n_system = 0;
    if (lua_type(L, 2) != LUA_TSTRING || (!lua_isnoneornil(L, 3) && lua_type(L, 3) != LUA_TSTRING))
        return ls_lua_bad(L, "chat: takes a text, and perhaps a system text");
    const char *text = lua_tolstring(L, 2, &n), *system = lua_tolstring(L, 3, &n_system);
    if (system && strlen(system) != n_system)
        return ls_lua_bad(L, "chat: the system text has a zero byte");
    ls_ids *ids = ls_lua_box(L, sizeof *ids, ids_free);
    ls_chat chat;
    ls_err err;
    ls_status s = ls_chat_open(m->m->dir, ls_checkpoint_gguf(m->m->checkpoint), &chat, &err);
    if (s == LS_OK)
        s = ls_chat_encode(&chat, tok, m->m->config.bos, system, text, n, ids, NULL, &err);
    ls_chat_free(&chat);
    if (s != LS_OK)
        ls_lua_bad_err(L, "chat", &err);
    ls_lua_push_tokens(L, ids->id, ids->n);
    return 1;
}

static const luaL_Reg model_fields[] = {
    {"name", model_name},         {"dir", model_dir},
    {"n_params", model_n_params}, {"vocab", model_vocab},
    {"context", model_context},   {"n_layers", model_layers},
    {"digest", model_digest},     {NULL, NULL},
};
static const luaL_Reg model_methods[] = {
    {"encode", model_encode}, {"decode", model_decode}, {"chat", model_chat}, {NULL, NULL}};

const ls_lua_class ls_lua_model_class = {"model", model_drop, model_fields, model_methods};

static void model_about(lua_State *L, ls_lua_model *m) {
    const char *slash = strrchr(m->m->dir, '/');
    lua_newtable(L);
    lua_pushstring(L, slash && slash[1] ? slash + 1 : m->m->dir);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, m->digest);
    lua_setfield(L, -2, "digest");
    lua_pushinteger(L, (lua_Integer)m->m->weights->n_params);
    lua_setfield(L, -2, "n_params");
    lua_pushvalue(L, -1);
    ls_lua_remember(L, LS_LUA_MODELS);
    ls_lua_set_about(L, m);
}

/* ls.model(), ls.model "target", ls.model "draft", ls.model(dir) */
static int f_model(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    char shown[96];
    ls_err err;
    if (!lua_isnoneornil(L, 1) && lua_type(L, 1) != LUA_TSTRING)
        return ls_lua_bad(L, "model: takes a folder, \"target\" or \"draft\", got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    const char *name = lua_isnoneornil(L, 1) ? "target" : lua_tostring(L, 1);
    const char *dir = name;
    if (strcmp(name, "target") == 0 || strcmp(name, "draft") == 0) {
        dir = name[0] == 't' ? host->run->target_dir : host->run->draft_dir;
        if (!dir)
            return ls_lua_bad(L, "model: no %s model was given: run with --%s DIR", name, name);
    }
    ls_lua_model *m = ls_lua_new(L, &ls_lua_model_class, sizeof *m);
    if (ls_model_open(dir, (ls_model_options){.partial_bytes = true}, &m->m, &err) != LS_OK ||
        ls_checkpoint_digest(m->m->checkpoint, m->digest, &err) != LS_OK)
        return ls_lua_bad_err(L, "model", &err);
    model_about(L, m);
    return 1;
}

#define CONTEXT_MAX \
    4096 /* default: models promise far longer texts than a study's cache should hold */

/* ---- engine ---------------------------------------------------------------------------------- */

static void engine_drop(ls_lua_obj *o) {
    ls_lua_engine *e = (ls_lua_engine *)o;
    ls_engine_destroy(e->e);
    if (e->own_be)
        ls_backend_destroy(e->be);
    ls_lua_unref(e->model);
}

static ls_lua_engine *engine_at(lua_State *L) {
    return ls_lua_check(L, 1, &ls_lua_engine_class, "engine");
}

static int engine_device(lua_State *L) {
    lua_pushstring(L, engine_at(L)->be->device);
    return 1;
}

static int engine_context(lua_State *L) {
    return push_int(L, ls_engine_opts(engine_at(L)->e)->context);
}

static int engine_passes(lua_State *L) {
    return push_int(L, ls_engine_count(engine_at(L)->e).n_pass);
}
static int engine_rows(lua_State *L) {
    return push_int(L, ls_engine_count(engine_at(L)->e).n_row);
}

static const luaL_Reg engine_fields[] = {
    {"device", engine_device},
    {"context", engine_context},
    {"n_pass", engine_passes},
    {"n_row", engine_rows},
    {NULL, NULL},
};

const ls_lua_class ls_lua_engine_class = {"engine", engine_drop, engine_fields, NULL};

/* Zero, the engine's own, when the field is absent. */
static ls_chunk_rule chunk_rule(const ls_lua_args *a) {
    const char *text = ls_lua_arg_string(a, "chunk", NULL);
    ls_chunk_rule rule = {0};
    ls_err err;
    if (text && ls_chunk_parse(text, &rule, &err) != LS_OK)
        ls_lua_bad(a->L, "%s: 'chunk' is '%s': %s", a->call, text, err.msg);
    return rule;
}

static void engine_about(lua_State *L, ls_lua_engine *e) {
    const ls_engine_options *o = ls_engine_opts(e->e);
    char chunk[LS_CHUNK_TEXT];
    lua_newtable(L);
    ls_lua_json_pull_text(L, e->model->base.about, strlen(e->model->base.about), "about");
    lua_setfield(L, -2, "model");
    lua_pushstring(L, e->be->name);
    lua_setfield(L, -2, "backend");
    lua_pushstring(L, e->be->device);
    lua_setfield(L, -2, "device");
    lua_pushstring(L, e->be->profile);
    lua_setfield(L, -2, "profile");
    lua_pushstring(L, ls_dtype_name(o->kv_dtype));
    lua_setfield(L, -2, "kv");
    lua_pushinteger(L, o->block_rows);
    lua_setfield(L, -2, "block_rows");
    lua_pushinteger(L, o->context);
    lua_setfield(L, -2, "context");
    lua_pushinteger(L, o->n_layers);
    lua_setfield(L, -2, "n_layers");
    lua_pushstring(L, ls_chunk_text(o->chunk, chunk));
    lua_setfield(L, -2, "chunk");
    ls_lua_set_about(L, e);
    lua_pushfstring(L, "%s (%s)", e->be->device, e->be->profile);
    ls_lua_remember(L, LS_LUA_DEVICES);
}

/* The backend of an engine: its own on the CPU, the script's on a GPU. */
static ls_status device_of(ls_lua_host *host, const ls_device_args *d, ls_lua_engine *e,
                           ls_err *err) {
    e->own_be = d->device == LS_DEVICE_CPU;
    if (e->own_be)
        return ls_device_open(d, &e->be, err);
    return ls_lua_gpu(host, d, &e->be, err);
}

/* ls.engine(model [, { ... }]) */
static int f_engine(lua_State *L) {
    static const char *const known[] = {"device", "profile",    "threads", "simd",
                                        "kv",     "block_rows", "context", "max_rows",
                                        "chunk",  "layers",     "eager",   NULL};
    static const char *const profiles[] = {"ieee", "mma", "cublas", NULL};
    static const char *const simds[] = {"auto", "plain", "avx2", "avx512", NULL};
    static const char *const kvs[] = {"f32", "bf16", NULL};
    ls_lua_host *host = ls_lua_host_of(L);
    ls_lua_model *m = ls_lua_check(L, 1, &ls_lua_model_class, "engine: argument 1");
    const ls_lua_args a = ls_lua_args_at(L, 2, true, "engine", known);
    ls_err err;

    const int32_t n_pos = m->m->config.n_pos, context = n_pos < CONTEXT_MAX ? n_pos : CONTEXT_MAX;
    ls_device_args device = host->run->device;
    const char *name = ls_lua_arg_string(&a, "device", NULL);
    if (name && ls_device_parse(name, &device.device, &err) != LS_OK)
        return ls_lua_bad_err(L, "engine", &err);
    device.profile = ls_lua_arg_choice(&a, "profile", profiles, device.profile);
    device.cpu.n_threads = (int32_t)ls_lua_arg_int(&a, "threads", 1, 1024, device.cpu.n_threads);
    device.cpu.simd = (ls_simd)ls_lua_arg_choice(&a, "simd", simds, (int)device.cpu.simd);
    const ls_engine_options options = {
        .max_rows = (int32_t)ls_lua_arg_int(&a, "max_rows", 1, 4096, 0),
        .context = (int32_t)ls_lua_arg_int(&a, "context", 1, 16777216, context),
        .block_rows = (int32_t)ls_lua_arg_int(&a, "block_rows", 0, 65536, 0),
        .kv_dtype = ls_lua_arg_choice(&a, "kv", kvs, 0) ? LS_BF16 : LS_F32,
        .chunk = chunk_rule(&a),
        .n_layers = (int32_t)ls_lua_arg_int(&a, "layers", 1, m->m->config.n_layers, 0),
        .n_vocab = m->m->n_token,
        .eager = ls_lua_arg_bool(&a, "eager", false)};

    ls_lua_engine *e = ls_lua_new(L, &ls_lua_engine_class, sizeof *e);
    e->model = m;
    ls_lua_ref(m);
    if (device_of(host, &device, e, &err) != LS_OK ||
        ls_engine_create(m->m, e->be, options, &e->e, &err) != LS_OK)
        return ls_lua_bad_err(L, "engine", &err);
    engine_about(L, e);
    return 1;
}

/* ---- drafter --------------------------------------------------------------------------------- */

static void drafter_drop(ls_lua_obj *o) {
    ls_lua_drafter *d = (ls_lua_drafter *)o;
    ls_drafter_destroy(d->d);
    ls_lua_unref(d->engine);
    ls_lua_unref(d->model);
    ls_lua_unref(d->paired);
}

static int drafter_name(lua_State *L) {
    const ls_lua_drafter *d = ls_lua_check(L, 1, &ls_lua_drafter_class, "drafter");
    lua_pushstring(L, d->d->name);
    return 1;
}

static const luaL_Reg drafter_fields[] = {{"name", drafter_name}, {NULL, NULL}};

const ls_lua_class ls_lua_drafter_class = {"drafter", drafter_drop, drafter_fields, NULL};

static ls_status make_drafter(ls_lua_drafter *d, int kind, int32_t n_min, int32_t n_max,
                              ls_err *err) {
    if (kind == 0)
        return ls_drafter_model(d->engine->e, &d->d, err);
    const ls_model *m = d->model->m;
    if (kind == 1)
        return ls_drafter_ngram(n_min, n_max, m->config.eos, m->config.n_eos, &d->d, err);
    return ls_drafter_garbage(m->n_token, &d->d, err);
}

/* ls.drafter("model", engine), ls.drafter("ngram", model [, { min =, max = }]),
 * ls.drafter("garbage", model) */
static int f_drafter(lua_State *L) {
    static const char *const kinds[] = {"model", "ngram", "garbage", NULL};
    static const char *const known[] = {"min", "max", NULL};
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    char shown[96];
    ls_err err;
    int kind = 0;
    while (kinds[kind] && strcmp(kinds[kind], name) != 0)
        kind++;
    if (!kinds[kind])
        return ls_lua_bad(L, "drafter: must be \"model\", \"ngram\" or \"garbage\", got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    ls_lua_obj *source = kind == 0 ? ls_lua_check(L, 2, &ls_lua_engine_class, "drafter: argument 2")
                                   : ls_lua_check(L, 2, &ls_lua_model_class, "drafter: argument 2");
    const ls_lua_args a = ls_lua_args_at(L, 3, true, "drafter", known);
    if (kind != 1 && a.at)
        return ls_lua_bad(L, "drafter: \"%s\" takes no options", name);
    const int32_t n_max = (int32_t)ls_lua_arg_int(&a, "max", 1, 64, 3);
    const int32_t n_min = (int32_t)ls_lua_arg_int(&a, "min", 1, n_max, 1);

    ls_lua_drafter *d = ls_lua_new(L, &ls_lua_drafter_class, sizeof *d);
    ls_lua_ref(source);
    if (kind == 0)
        d->engine = (ls_lua_engine *)source;
    else
        d->model = (ls_lua_model *)source;
    if (make_drafter(d, kind, n_min, n_max, &err) != LS_OK)
        return ls_lua_bad_err(L, "drafter", &err);

    lua_newtable(L);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "kind");
    if (kind == 0) {
        ls_lua_json_pull_text(L, source->about, strlen(source->about), "about");
        lua_setfield(L, -2, "engine");
    } else if (kind == 1) {
        lua_pushinteger(L, n_min);
        lua_setfield(L, -2, "min");
        lua_pushinteger(L, n_max);
        lua_setfield(L, -2, "max");
    }
    ls_lua_set_about(L, d);
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {
    {"model", f_model}, {"engine", f_engine}, {"drafter", f_drafter}, {NULL, NULL}};

void ls_lua_open_model(lua_State *L) {
    luaL_setfuncs(L, functions, 0);
}
