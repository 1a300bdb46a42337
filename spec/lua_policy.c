#include "lua_policy.h"

#include <math.h>
#include <stdlib.h>

#include "lua_script.h"
#include "lua_view.h"

/* ---- what a policy's table may have, and what its callbacks see ------------------------------ */

static const ls_lua_field fields[] = {
    {"name", LUA_TSTRING, true},      {"paper", LUA_TSTRING, false},
    {"options", LUA_TTABLE, false},   {"ranges", LUA_TTABLE, false},
    {"n_top", LUA_TNUMBER, false},    {"begin", LUA_TFUNCTION, false},
    {"plan", LUA_TFUNCTION, true},    {"more", LUA_TFUNCTION, false},
    {"observe", LUA_TFUNCTION, false}};
static const ls_lua_role role = {"policy", "length", fields, sizeof fields / sizeof *fields};

#define FIELD(type, kind, name) \
    { #name, kind, offsetof(type, name), 0, 0, NULL, NULL }
#define ARRAY(type, kind, name, lo, hi) \
    { #name, kind, offsetof(type, name), lo, hi, NULL, NULL }

static const ls_view_field round_fields[] = {
    FIELD(ls_round, LS_VIEW_I32, position),  FIELD(ls_round, LS_VIEW_I32, planned),
    FIELD(ls_round, LS_VIEW_I32, proposed),  FIELD(ls_round, LS_VIEW_I32, accepted),
    FIELD(ls_round, LS_VIEW_I32, evaluated), FIELD(ls_round, LS_VIEW_I32, emitted),
    FIELD(ls_round, LS_VIEW_BOOL, clamped),  FIELD(ls_round, LS_VIEW_F32, draft_us),
    FIELD(ls_round, LS_VIEW_F32, verify_us), FIELD(ls_round, LS_VIEW_F32, policy_us),
    FIELD(ls_round, LS_VIEW_F32, accept_us)};
static const ls_view_class round_class = {"round", round_fields,
                                          sizeof round_fields / sizeof *round_fields};

static void push_rng(lua_State *L, const void *base, void *user) {
    (void)base;
    (void)user;
    ls_lua_push_rng(L);
}

static const ls_view_field ctx_fields[] = {
    FIELD(ls_policy_ctx, LS_VIEW_I32, position),
    FIELD(ls_policy_ctx, LS_VIEW_I32, n_prompt),
    FIELD(ls_policy_ctx, LS_VIEW_I32, n_new),
    FIELD(ls_policy_ctx, LS_VIEW_I32, room),
    FIELD(ls_policy_ctx, LS_VIEW_I32, n_rounds),
    {"last", LS_VIEW_STRUCT, offsetof(ls_policy_ctx, last), 0, 0, &round_class, NULL},
    ARRAY(ls_policy_ctx, LS_VIEW_I32_ARRAY, tried, 1, LS_DRAFT_MAX),
    ARRAY(ls_policy_ctx, LS_VIEW_I32_ARRAY, accepted, 1, LS_DRAFT_MAX),
    FIELD(ls_policy_ctx, LS_VIEW_F64, draft_us),
    ARRAY(ls_policy_ctx, LS_VIEW_F64_ARRAY, verify_us, 0, LS_DRAFT_MAX),
    FIELD(ls_policy_ctx, LS_VIEW_F32, temperature),
    {"rng", LS_VIEW_PUSH, 0, 0, 0, NULL, push_rng}};
static const ls_view_class ctx_class = {"ctx", ctx_fields, sizeof ctx_fields / sizeof *ctx_fields};

static void push_top(lua_State *L, const void *base, void *user) {
    const ls_policy_step *step = base;
    const int32_t n_asked = *(const int32_t *)user;
    ls_lua_push_top(L, "step", n_asked, step->n_top, step->top_token, step->top_prob);
}

static const ls_view_field step_fields[] = {
    FIELD(ls_policy_step, LS_VIEW_I32, n),      FIELD(ls_policy_step, LS_VIEW_I32, token),
    FIELD(ls_policy_step, LS_VIEW_F32, prob),   FIELD(ls_policy_step, LS_VIEW_F32, entropy),
    FIELD(ls_policy_step, LS_VIEW_F32, margin), {"top", LS_VIEW_PUSH, 0, 0, 0, NULL, push_top}};
static const ls_view_class step_class = {"step", step_fields,
                                         sizeof step_fields / sizeof *step_fields};

/* ---- the policy ------------------------------------------------------------------------------ */

enum { CTX, STEP, ROUND, N_VIEW };

typedef struct lua_policy {
    ls_policy base;
    ls_lua_script script;
    ls_lua_callback begin, plan, more, observe;
    ls_view *view[N_VIEW];
    int view_ref[N_VIEW];
} lua_policy;

static ls_status call(lua_policy *p, const ls_lua_callback *cb, const ls_policy_ctx *ctx,
                      int second, const void *base, int n_ret, ls_err *err) {
    const int refs[2] = {p->view_ref[CTX], p->view_ref[second]};
    ls_view_set(p->view[CTX], ctx);
    if (base)
        ls_view_set(p->view[second], base);
    const ls_status status = ls_lua_script_call(&p->script, cb, refs, base ? 2 : 1, n_ret, err);
    ls_view_set(p->view[CTX], NULL);
    if (base)
        ls_view_set(p->view[second], NULL);
    return status;
}

/* A whole number >= 0, as an integer or a float. What is too large for an int64 is still only "more
 * than the room left", so it saturates; the comparison is in double, before the cast. */
static bool whole_number(lua_State *L, int64_t *n) {
    if (lua_isinteger(L, -1)) {
        if (lua_tointeger(L, -1) < 0)
            return false;
        *n = lua_tointeger(L, -1);
        return true;
    }
    if (lua_type(L, -1) != LUA_TNUMBER)
        return false;
    const double x = lua_tonumber(L, -1);
    if (!isfinite(x) || x != floor(x) || x < 0)
        return false;
    *n = x < 0x1p63 ? (int64_t)x : INT64_MAX;
    return true;
}

static ls_status lua_plan(ls_policy *base, const ls_policy_ctx *ctx, int64_t *n, ls_err *err) {
    lua_policy *p = (lua_policy *)base;
    ls_lua_script_seed(&p->script, ctx->seed, ctx->sequence, ctx->position, LS_LUA_AT_ROUND);
    LS_TRY(call(p, &p->plan, ctx, CTX, NULL, 1, err));
    if (!whole_number(p->script.state->L, n))
        return ls_lua_script_bad_result(&p->script, &p->plan, "plan", "a whole number, 0 or more",
                                        err);
    lua_pop(p->script.state->L, 1);
    return LS_OK;
}

static ls_status lua_more(ls_policy *base, const ls_policy_ctx *ctx, const ls_policy_step *step,
                          bool *yes, ls_err *err) {
    lua_policy *p = (lua_policy *)base;
    LS_TRY(call(p, &p->more, ctx, STEP, step, 1, err));
    if (!lua_isboolean(p->script.state->L, -1))
        return ls_lua_script_bad_result(&p->script, &p->more, "more", "true or false", err);
    *yes = lua_toboolean(p->script.state->L, -1);
    lua_pop(p->script.state->L, 1);
    return LS_OK;
}

static ls_status lua_observe(ls_policy *base, const ls_policy_ctx *ctx, const ls_round *round,
                             ls_err *err) {
    lua_policy *p = (lua_policy *)base;
    return call(p, &p->observe, ctx, ROUND, round, 0, err);
}

static int run_bind(lua_State *L) {
    lua_policy *p = lua_touserdata(L, 1);
    static const ls_view_class *const classes[N_VIEW] = {&ctx_class, &step_class, &round_class};
    p->base.n_top = ls_lua_script_n_top(&p->script);
    ls_lua_script_callback(&p->script, "begin", &p->begin);
    ls_lua_script_callback(&p->script, "plan", &p->plan);
    ls_lua_script_callback(&p->script, "more", &p->more);
    ls_lua_script_callback(&p->script, "observe", &p->observe);
    for (int i = 0; i < N_VIEW; i++) {
        p->view[i] = ls_view_push(L, classes[i], &p->base.n_top);
        p->view_ref[i] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    return 0;
}

/* Finds the callbacks; an absent one is a NULL of the vtable and costs nothing. */
static ls_status bind(lua_policy *p, ls_err *err) {
    const ls_status status = ls_lua_protect(p->script.state, run_bind, p, p->script.who, err);
    if (status != LS_OK)
        return p->script.owned ? ls_fail_in(err, status, "%s", p->script.path) : status;
    p->base.name = p->script.name;
    p->base.where = p->script.path;
    p->base.more = p->more.ref == LUA_NOREF ? NULL : lua_more;
    p->base.observe = p->observe.ref == LUA_NOREF ? NULL : lua_observe;
    return LS_OK;
}

static ls_status lua_begin(ls_policy *base, const ls_policy_ctx *ctx, ls_err *err) {
    lua_policy *p = (lua_policy *)base;
    LS_TRY(ls_lua_script_begin(&p->script, ctx->seed, ctx->sequence, err));
    if (p->script.owned)
        LS_TRY(bind(p, err));
    if (p->begin.ref == LUA_NOREF)
        return LS_OK;
    ls_lua_script_seed(&p->script, ctx->seed, ctx->sequence, ctx->position, LS_LUA_AT_BEGIN);
    return call(p, &p->begin, ctx, CTX, NULL, 0, err);
}

static void lua_destroy(ls_policy *base) {
    lua_policy *p = (lua_policy *)base;
    if (!p->script.owned && p->script.state) {
        lua_State *L = p->script.state->L;
        const int refs[] = {p->begin.ref, p->plan.ref, p->more.ref, p->observe.ref};
        for (size_t i = 0; i < sizeof refs / sizeof *refs; i++)
            luaL_unref(L, LUA_REGISTRYINDEX, refs[i]);
        for (int i = 0; i < N_VIEW; i++)
            luaL_unref(L, LUA_REGISTRYINDEX, p->view_ref[i]);
    }
    ls_lua_script_destroy(&p->script);
    free(p);
}

static lua_policy *create(ls_err *err) {
    lua_policy *p = calloc(1, sizeof *p);
    if (!p) {
        ls_fail(err, LS_ERR_MEMORY, "policy: out of memory");
        return NULL;
    }
    p->begin.ref = p->plan.ref = p->more.ref = p->observe.ref = LUA_NOREF;
    for (int i = 0; i < N_VIEW; i++)
        p->view_ref[i] = LUA_NOREF;
    p->base.begin = lua_begin;
    p->base.plan = lua_plan;
    p->base.destroy = lua_destroy;
    return p;
}

ls_status ls_lua_policy_load(const char *name, const ls_lua_script_options *options,
                             ls_policy **out, ls_err *err) {
    lua_policy *p = create(err);
    if (!p)
        return LS_ERR_MEMORY;
    ls_status status = ls_lua_script_load(&p->script, &role, name, options, err);
    if (status == LS_OK)
        status = bind(p, err);
    if (status == LS_OK)
        *out = &p->base;
    else
        lua_destroy(&p->base);
    return status;
}

ls_status ls_lua_policy_take(ls_lua *state, int index, const ls_lua_script_options *options,
                             ls_policy **out, ls_err *err) {
    lua_policy *p = create(err);
    if (!p)
        return LS_ERR_MEMORY;
    ls_status status = ls_lua_script_take(&p->script, &role, state, index, options, err);
    if (status == LS_OK)
        status = bind(p, err);
    if (status == LS_OK)
        *out = &p->base;
    else
        lua_destroy(&p->base);
    return status;
}

const char *ls_lua_policy_options(const ls_policy *policy) {
    return policy->plan == lua_plan ? ((const lua_policy *)policy)->script.options_text : "";
}
