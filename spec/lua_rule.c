#include "lua_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua_script.h"
#include "lua_view.h"

/* ---- what a rule's table may have, and the row its judge sees -------------------------------- */

static const ls_lua_field fields[] = {
    {"name", LUA_TSTRING, true},      {"paper", LUA_TSTRING, false},
    {"kind", LUA_TSTRING, false},     {"rule", LUA_TSTRING, false},
    {"options", LUA_TTABLE, false},   {"ranges", LUA_TTABLE, false},
    {"n_top", LUA_TNUMBER, false},    {"needs_draft", LUA_TBOOLEAN, false},
    {"coupled", LUA_TBOOLEAN, false}, {"begin", LUA_TFUNCTION, false},
    {"judge", LUA_TFUNCTION, false}};
static const ls_lua_role role = {"rule", "accept", fields, sizeof fields / sizeof *fields};

typedef struct row {
    int32_t token, position, index, n_draft, target_token;
    float p_target, p_draft; /* of the drafted token */
    float entropy, margin, temperature;
    const ls_row_stats *target;
} row;

typedef struct lua_rule {
    ls_rule base;
    ls_lua_script script;
    ls_lua_callback begin, judge;
    ls_view *view;
    int view_ref;
    bool begun; /* the run's state stands */
} lua_rule;

static void push_p_draft(lua_State *L, const void *base, void *user) {
    if (!((const lua_rule *)user)->base.needs_draft)
        luaL_error(L, "row.p_draft needs needs_draft = true in the script's table");
    lua_pushnumber(L, (double)((const row *)base)->p_draft);
}

static void push_top(lua_State *L, const void *base, void *user) {
    const ls_row_stats *t = ((const row *)base)->target;
    ls_lua_push_top(L, "row", ((const lua_rule *)user)->base.n_top, t->n_top, t->top_token,
                    t->top_prob);
}

static void push_rng(lua_State *L, const void *base, void *user) {
    (void)base;
    (void)user;
    ls_lua_push_rng(L);
}

#define FIELD(kind, name) \
    { #name, kind, offsetof(row, name), 0, 0, NULL, NULL }

static const ls_view_field row_fields[] = {FIELD(LS_VIEW_I32, token),
                                           FIELD(LS_VIEW_I32, position),
                                           FIELD(LS_VIEW_I32, index),
                                           FIELD(LS_VIEW_I32, n_draft),
                                           FIELD(LS_VIEW_I32, target_token),
                                           FIELD(LS_VIEW_F32, p_target),
                                           {"p_draft", LS_VIEW_PUSH, 0, 0, 0, NULL, push_p_draft},
                                           FIELD(LS_VIEW_F32, entropy),
                                           FIELD(LS_VIEW_F32, margin),
                                           FIELD(LS_VIEW_F32, temperature),
                                           {"top", LS_VIEW_PUSH, 0, 0, 0, NULL, push_top},
                                           {"rng", LS_VIEW_PUSH, 0, 0, 0, NULL, push_rng}};
static const ls_view_class row_class = {"row", row_fields, sizeof row_fields / sizeof *row_fields};

/* ---- judging --------------------------------------------------------------------------------- */

static int run_bind(lua_State *L) {
    lua_rule *r = lua_touserdata(L, 1);
    ls_lua_script *s = &r->script;
    r->base.n_top = ls_lua_script_n_top(s);
    ls_lua_script_field(s, "needs_draft");
    r->base.needs_draft = lua_toboolean(L, -1);
    ls_lua_script_field(s, "coupled");
    r->base.coupled = lua_isnil(L, -1) || lua_toboolean(L, -1);
    ls_lua_script_callback(s, "begin", &r->begin);
    ls_lua_script_callback(s, "judge", &r->judge);
    r->view = ls_view_push(L, &row_class, r);
    r->view_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

static ls_status bind(lua_rule *r, ls_err *err) {
    const ls_status status = ls_lua_protect(r->script.state, run_bind, r, r->script.who, err);
    if (status != LS_OK && r->script.owned)
        return ls_fail_in(err, status, "%s", r->script.path);
    return status;
}

/* The run's state is made at the first row, which brings the seed. */
static ls_status start(lua_rule *r, const ls_judge *j, ls_err *err) {
    LS_TRY(ls_lua_script_begin(&r->script, j->seed, j->sequence, err));
    if (r->script.owned)
        LS_TRY(bind(r, err));
    r->begun = true;
    if (r->begin.ref == LUA_NOREF)
        return LS_OK;
    ls_lua_script_seed(&r->script, j->seed, j->sequence, j->position, LS_LUA_AT_BEGIN);
    return ls_lua_script_call(&r->script, &r->begin, NULL, 0, 0, err);
}

/* true, false, or a token of the vocabulary. */
static ls_status read_verdict(lua_rule *r, const ls_judge *j, ls_verdict *v, ls_err *err) {
    lua_State *L = r->script.state->L;
    v->token = j->target->token;
    if (lua_isboolean(L, -1)) {
        v->accept = lua_toboolean(L, -1);
        lua_pop(L, 1);
        return LS_OK;
    }
    int whole = 0;
    lua_Integer token = -1;
    if (lua_type(L, -1) == LUA_TNUMBER)
        token = lua_tointegerx(L, -1, &whole);
    if (!whole || token < 0 || token >= j->n_vocab) {
        char must[96];
        snprintf(must, sizeof must, "true, false or a token, 0 to %d", j->n_vocab - 1);
        return ls_lua_script_bad_result(&r->script, &r->judge, "judge", must, err);
    }
    lua_pop(L, 1);
    v->accept = token == j->draft;
    v->token = (int32_t)token;
    return LS_OK;
}

static ls_status script_judge(ls_rule *base, const ls_judge *j, ls_verdict *v, ls_err *err) {
    lua_rule *r = (lua_rule *)base;
    if (j->draft < 0) { /* the bonus row */
        *v = (ls_verdict){.accept = false, .token = j->target->token};
        return LS_OK;
    }
    if (j->draft >= j->n_vocab || !j->p_target)
        return ls_fail(err, LS_ERR_SHAPE, "token %d of %d has no probability (%s)", j->draft,
                       j->n_vocab, r->judge.who);
    if (!r->begun)
        LS_TRY(start(r, j, err));
    const row seen = {.token = j->draft,
                      .position = j->position,
                      .index = j->index,
                      .n_draft = j->n_draft,
                      .target_token = j->target->token,
                      .p_target = j->p_target[j->draft],
                      .p_draft = j->p_draft ? j->p_draft[j->draft] : 1, /* a point mass */
                      .entropy = j->target->entropy,
                      .margin = j->target->margin,
                      .temperature = j->temperature,
                      .target = j->target};
    ls_lua_script_seed(&r->script, j->seed, j->sequence, j->position, LS_LUA_AT_JUDGE);
    ls_view_set(r->view, &seen);
    const ls_status status = ls_lua_script_call(&r->script, &r->judge, &r->view_ref, 1, 1, err);
    ls_view_set(r->view, NULL);
    return status == LS_OK ? read_verdict(r, j, v, err) : status;
}

static ls_status script_begin(ls_rule *base, ls_err *err) {
    (void)err;
    ((lua_rule *)base)->begun = false;
    return LS_OK;
}

static void destroy(ls_rule *base) {
    lua_rule *r = (lua_rule *)base;
    if (!r->script.owned && r->script.state) {
        lua_State *L = r->script.state->L;
        luaL_unref(L, LUA_REGISTRYINDEX, r->begin.ref);
        luaL_unref(L, LUA_REGISTRYINDEX, r->judge.ref);
        luaL_unref(L, LUA_REGISTRYINDEX, r->view_ref);
    }
    ls_lua_script_destroy(&r->script);
    free(r);
}

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct choice {
    lua_rule *r;
    char rule[32], kind[16]; /* "" where the table has none */
} choice;

static void copy_field(lua_State *L, ls_lua_script *s, const char *field, char *dst, size_t cap) {
    ls_lua_script_field(s, field);
    const char *text = lua_isnil(L, -1) ? "" : lua_tostring(L, -1);
    if (strlen(text) >= cap)
        luaL_error(L, "field '%s' is '%s', which is not known", field, text);
    memcpy(dst, text, strlen(text) + 1);
    lua_pop(L, 1);
}

/* Either a built-in rule or a judge; a judge is lossy. */
static int run_choose(lua_State *L) {
    choice *c = lua_touserdata(L, 1);
    ls_lua_script *s = &c->r->script;
    copy_field(L, s, "rule", c->rule, sizeof c->rule);
    copy_field(L, s, "kind", c->kind, sizeof c->kind);
    if (c->kind[0] && strcmp(c->kind, "exact") != 0 && strcmp(c->kind, "lossless") != 0 &&
        strcmp(c->kind, "lossy") != 0)
        return luaL_error(L, "kind is '%s': it must be exact, lossless or lossy", c->kind);
    ls_lua_script_field(s, "judge");
    const bool judges = !lua_isnil(L, -1);
    if (judges == (c->rule[0] != 0))
        return luaL_error(
            L, "a rule has either a judge function or rule = \"exact\" or \"rejection\"");
    if (judges && c->kind[0] && strcmp(c->kind, "lossy") != 0)
        return luaL_error(L, "kind is '%s': a rule that judges in Lua is always lossy", c->kind);
    return 0;
}

static ls_status pick_builtin(lua_rule *r, const choice *c, ls_err *err) {
    ls_rule *picked;
    LS_TRY(ls_rule_builtin(c->rule, &picked, err));
    r->base = *picked;
    ls_rule_destroy(picked);
    if (c->kind[0] && strcmp(c->kind, ls_rule_kind_name(r->base.kind)) != 0)
        return ls_fail(err, LS_ERR_SCRIPT,
                       "kind is '%s', but the rule '%s' is %s (rule '%s', load)", c->kind, c->rule,
                       ls_rule_kind_name(r->base.kind), r->script.name);
    return LS_OK;
}

static ls_status settle(lua_rule *r, ls_err *err) {
    choice c = {.r = r};
    LS_TRY(ls_lua_protect(r->script.state, run_choose, &c, r->script.who, err));
    if (c.rule[0]) {
        LS_TRY(pick_builtin(r, &c, err));
    } else {
        r->base.kind = LS_RULE_LOSSY;
        r->base.needs_target = true;
        r->base.judge = script_judge;
        r->base.begin = script_begin;
        LS_TRY(ls_lua_protect(r->script.state, run_bind, r, r->script.who, err));
    }
    r->base.name = r->script.name;
    r->base.where = r->script.path;
    r->base.destroy = destroy;
    return LS_OK;
}

static lua_rule *create(ls_err *err) {
    lua_rule *r = calloc(1, sizeof *r);
    if (!r)
        ls_fail(err, LS_ERR_MEMORY, "rule: out of memory");
    else
        r->begin.ref = r->judge.ref = r->view_ref = LUA_NOREF;
    return r;
}

ls_status ls_lua_rule_load(const char *name, const ls_lua_script_options *options, ls_rule **out,
                           ls_err *err) {
    lua_rule *r = create(err);
    if (!r)
        return LS_ERR_MEMORY;
    ls_status status = ls_lua_script_load(&r->script, &role, name, options, err);
    if (status == LS_OK && (status = settle(r, err)) != LS_OK)
        ls_fail_in(err, status, "%s", r->script.path);
    if (status == LS_OK)
        *out = &r->base;
    else
        destroy(&r->base);
    return status;
}

ls_status ls_lua_rule_take(ls_lua *state, int index, const ls_lua_script_options *options,
                           ls_rule **out, ls_err *err) {
    lua_rule *r = create(err);
    if (!r)
        return LS_ERR_MEMORY;
    ls_status status = ls_lua_script_take(&r->script, &role, state, index, options, err);
    if (status == LS_OK)
        status = settle(r, err);
    if (status == LS_OK)
        *out = &r->base;
    else
        destroy(&r->base);
    return status;
}

const char *ls_lua_rule_options(const ls_rule *rule) {
    return rule->destroy == destroy ? ((const lua_rule *)rule)->script.options_text : "";
}
