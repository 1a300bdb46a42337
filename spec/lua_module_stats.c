/* ls.stats */
#include "lua_module_stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "interval.h"

/* ---- structs as tables: one list of fields for both directions ------------------------------- */

typedef struct field {
    const char *name;
    enum { INT32, INT64, FLOAT, DOUBLE, BOOL, DEPTHS } type;
    size_t at;
} field;

#define F(type, name, kind) \
    { #name, kind, offsetof(type, name) }
static const field round_fields[] = {
    F(ls_round, position, INT32),  F(ls_round, planned, INT32),   F(ls_round, proposed, INT32),
    F(ls_round, accepted, INT32),  F(ls_round, evaluated, INT32), F(ls_round, emitted, INT32),
    F(ls_round, clamped, BOOL),    F(ls_round, draft_us, FLOAT),  F(ls_round, verify_us, FLOAT),
    F(ls_round, policy_us, FLOAT), F(ls_round, accept_us, FLOAT), {NULL, INT32, 0},
};
static const field counts_fields[] = {
    F(ls_metrics, n_round, INT64),
    F(ls_metrics, n_draft_round, INT64),
    F(ls_metrics, n_drafted, INT64),
    F(ls_metrics, n_accepted, INT64),
    F(ls_metrics, n_evaluated, INT64),
    F(ls_metrics, n_emitted, INT64),
    F(ls_metrics, n_refused, INT64),
    F(ls_metrics, n_cut, INT64),
    F(ls_metrics, n_clamped, INT64),
    F(ls_metrics, draft_us, DOUBLE),
    F(ls_metrics, verify_us, DOUBLE),
    F(ls_metrics, policy_us, DOUBLE),
    F(ls_metrics, accept_us, DOUBLE),
    F(ls_metrics, kept, DEPTHS),
    F(ls_metrics, judged, DEPTHS),
    F(ls_metrics, reached, DEPTHS),
    {NULL, INT64, 0},
};
#undef F

static void push_depths(lua_State *L, const int64_t *v) {
    int n = LS_DRAFT_MAX;
    while (n > 0 && v[n - 1] == 0)
        n--;
    lua_createtable(L, n, 0);
    for (int d = 0; d < n; d++) {
        lua_pushinteger(L, v[d]);
        lua_rawseti(L, -2, d + 1);
    }
}

static void push_struct(lua_State *L, const void *s, const field *f) {
    lua_newtable(L);
    for (; f->name; f++) {
        const void *p = (const char *)s + f->at;
        switch (f->type) {
        case INT32:
            lua_pushinteger(L, *(const int32_t *)p);
            break;
        case INT64:
            lua_pushinteger(L, *(const int64_t *)p);
            break;
        case FLOAT:
            lua_pushnumber(L, (double)*(const float *)p);
            break;
        case DOUBLE:
            lua_pushnumber(L, *(const double *)p);
            break;
        case BOOL:
            lua_pushboolean(L, *(const bool *)p);
            break;
        case DEPTHS:
            push_depths(L, p);
            break;
        }
        lua_setfield(L, -2, f->name);
    }
}

void ls_lua_push_round(lua_State *L, const ls_round *r) {
    push_struct(L, r, round_fields);
}
void ls_lua_push_counts(lua_State *L, const ls_metrics *m) {
    push_struct(L, m, counts_fields);
}

static void read_depths(const ls_lua_args *a, const char *name, int64_t *v) {
    lua_State *L = a->L;
    char shown[96];
    if (!ls_lua_arg_push(a, name)) {
        lua_pop(L, 1);
        return;
    }
    if (!lua_istable(L, -1) || lua_rawlen(L, -1) > LS_DRAFT_MAX)
        ls_lua_bad(L, "%s: '%s' must be a list of at most %d counts, got %s", a->call, name,
                   LS_DRAFT_MAX, ls_lua_show(L, -1, shown, sizeof shown));
    for (lua_Unsigned d = 0; d < lua_rawlen(L, -1); d++) {
        lua_rawgeti(L, -1, (lua_Integer)d + 1);
        if (!ls_lua_integer(L, -1, &v[d]) || v[d] < 0)
            ls_lua_bad(L, "%s: '%s' must hold counts, got %s", a->call, name,
                       ls_lua_show(L, -1, shown, sizeof shown));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Unknown fields are left alone: a script may keep its own beside them. */
static void read_struct(lua_State *L, int idx, const char *call, void *s, const field *f) {
    char shown[96];
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s: takes a table, got %s", call, ls_lua_show(L, idx, shown, sizeof shown));
    const ls_lua_args a = {L, lua_absindex(L, idx), call};
    for (; f->name; f++) {
        void *p = (char *)s + f->at;
        switch (f->type) {
        case INT32:
            *(int32_t *)p = (int32_t)ls_lua_arg_int(&a, f->name, 0, INT32_MAX, 0);
            break;
        case INT64:
            *(int64_t *)p = ls_lua_arg_int(&a, f->name, 0, INT64_MAX, 0);
            break;
        case FLOAT:
            *(float *)p = (float)ls_lua_arg_number(&a, f->name, 0, 1e30, 0);
            break;
        case DOUBLE:
            *(double *)p = ls_lua_arg_number(&a, f->name, 0, 1e300, 0);
            break;
        case BOOL:
            *(bool *)p = ls_lua_arg_bool(&a, f->name, false);
            break;
        case DEPTHS:
            read_depths(&a, f->name, p);
            break;
        }
    }
}

static void check_list(lua_State *L, int idx, const char *call) {
    char shown[96];
    if (!lua_istable(L, idx))
        ls_lua_bad(L, "%s: takes a list, got %s", call, ls_lua_show(L, idx, shown, sizeof shown));
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* stats.count(rounds) -> counts */
static int f_count(lua_State *L) {
    ls_metrics m = {0};
    ls_err err;
    check_list(L, 1, "count");
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, 1); i++) {
        ls_round r = {0};
        lua_rawgeti(L, 1, (lua_Integer)i);
        read_struct(L, -1, "count", &r, round_fields);
        lua_pop(L, 1);
        if (ls_metrics_add(&m, &r, &err) != LS_OK)
            return ls_lua_bad_err(L, "count", &err);
    }
    ls_lua_push_counts(L, &m);
    return 1;
}

/* stats.pool(list of counts) -> counts */
static int f_pool(lua_State *L) {
    ls_metrics m = {0};
    check_list(L, 1, "pool");
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, 1); i++) {
        ls_metrics one = {0};
        lua_rawgeti(L, 1, (lua_Integer)i);
        read_struct(L, -1, "pool", &one, counts_fields);
        lua_pop(L, 1);
        ls_metrics_pool(&m, &one);
    }
    ls_lua_push_counts(L, &m);
    return 1;
}

/* Every rate there is: of all rounds, or at a depth. */
typedef struct rate {
    const char *name;
    ls_rate (*whole)(const ls_metrics *);
    ls_rate (*at)(const ls_metrics *, int32_t depth);
} rate;

static const rate rates[] = {
    {"acceptance", ls_metrics_acceptance, NULL},
    {"yield", ls_metrics_yield, NULL},
    {"per_pass", ls_metrics_per_pass, NULL},
    {"per_draft", ls_metrics_per_draft, NULL},
    {"conditional", NULL, ls_metrics_conditional},
    {"unconditional", NULL, ls_metrics_unconditional},
    {NULL, NULL, NULL},
};

/* Pushes the rate, or nil: what was never counted is absent, not 0. */
static void push_rate(lua_State *L, ls_rate r) {
    double v;
    if (ls_rate_get(r, &v))
        lua_pushnumber(L, v);
    else
        lua_pushnil(L);
}

/* stats.rates(counts) -> { acceptance =, yield =, ..., conditional = {}, unconditional = {} } */
static int f_rates(lua_State *L) {
    ls_metrics m = {0};
    read_struct(L, 1, "rates", &m, counts_fields);
    lua_newtable(L);
    for (const rate *r = rates; r->name; r++) {
        if (r->whole) {
            push_rate(L, r->whole(&m));
        } else {
            lua_newtable(L);
            for (int32_t d = 1; d <= ls_metrics_depth(&m); d++) {
                push_rate(L, r->at(&m, d));
                lua_rawseti(L, -2, d);
            }
        }
        lua_setfield(L, -2, r->name);
    }
    return 1;
}

/* ---- intervals ------------------------------------------------------------------------------- */

static const char *const interval_known[] = {"level", "resamples", "seed", NULL};

static ls_interval_options interval_options(lua_State *L, int idx, const char *call) {
    const ls_lua_args a = ls_lua_args_at(L, idx, true, call, interval_known);
    return (ls_interval_options){.level = ls_lua_arg_number(&a, "level", 0.5, 0.9999, 0),
                                 .n_resample =
                                     (int32_t)ls_lua_arg_int(&a, "resamples", 100, 1000000, 0),
                                 .seed = (uint64_t)ls_lua_arg_int(&a, "seed", 1, INT64_MAX, 0)};
}

/* { estimate =, low =, high =, n_cluster =, level = }; what is not known is absent */
static void push_interval(lua_State *L, const ls_interval *v) {
    lua_newtable(L);
    if (v->known) {
        lua_pushnumber(L, v->estimate);
        lua_setfield(L, -2, "estimate");
    }
    if (v->bounded) {
        lua_pushnumber(L, v->low);
        lua_setfield(L, -2, "low");
        lua_pushnumber(L, v->high);
        lua_setfield(L, -2, "high");
    }
    lua_pushnumber(L, v->level);
    lua_setfield(L, -2, "level");
    lua_pushinteger(L, v->n_cluster);
    lua_setfield(L, -2, "n_cluster");
}

/* n lists of equal length at 1..n */
static int32_t read_lists(lua_State *L, int n, const char *call, const double **out) {
    int32_t len = 0;
    char what[64];
    for (int i = 0; i < n; i++) {
        int32_t k;
        snprintf(what, sizeof what, "%s: list %d", call, i + 1);
        out[i] = ls_lua_list_numbers(L, i + 1, what, &k);
        if (i > 0 && k != len)
            ls_lua_bad(L,
                       "%s: the lists have %d and %d entries: entry i of each is the same prompt",
                       call, len, k);
        len = k;
    }
    return len;
}

/* stats.ratio(num, den [, options]) */
static int f_ratio(lua_State *L) {
    const double *v[2];
    ls_interval out;
    ls_err err;
    lua_settop(L, 3);
    const ls_interval_options o = interval_options(L, 3, "ratio");
    const int32_t n = read_lists(L, 2, "ratio", v);
    if (ls_interval_ratio(v[0], v[1], n, o, &out, &err) != LS_OK)
        return ls_lua_bad_err(L, "ratio", &err);
    push_interval(L, &out);
    return 1;
}

/* stats.ratio_diff(num_a, den_a, num_b, den_b [, options]) */
static int f_ratio_diff(lua_State *L) {
    const double *v[4];
    ls_interval out;
    ls_err err;
    lua_settop(L, 5);
    const ls_interval_options o = interval_options(L, 5, "ratio_diff");
    const int32_t n = read_lists(L, 4, "ratio_diff", v);
    if (ls_interval_ratio_diff(v[0], v[1], v[2], v[3], n, o, &out, &err) != LS_OK)
        return ls_lua_bad_err(L, "ratio_diff", &err);
    push_interval(L, &out);
    return 1;
}

/* stats.speed(a, b [, options]) -> interval of a / b, with p */
static int f_speed(lua_State *L) {
    const double *v[2];
    double p;
    ls_interval out;
    ls_err err;
    lua_settop(L, 3);
    const ls_interval_options o = interval_options(L, 3, "speed");
    const int32_t n = read_lists(L, 2, "speed", v);
    if (ls_interval_speed(v[0], v[1], n, o, &out, &p, &err) != LS_OK)
        return ls_lua_bad_err(L, "speed", &err);
    push_interval(L, &out);
    if (out.known && isfinite(p)) {
        lua_pushnumber(L, p);
        lua_setfield(L, -2, "p");
    }
    return 1;
}

/* ---- an interval of a named rate over counts, one per prompt --------------------------------- */

/* stats.interval(counts of each prompt, "acceptance" [, options])
 * stats.interval(counts of each prompt, "conditional", depth [, options]) */
static int f_interval(lua_State *L) {
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    const rate *r = rates;
    char shown[96];
    int64_t depth = 0;
    ls_interval out;
    ls_err err;
    lua_settop(L, 4);
    check_list(L, 1, "interval");
    while (r->name && strcmp(r->name, name) != 0)
        r++;
    if (!r->name)
        return ls_lua_bad(L,
                          "interval: there is no rate %s: take acceptance, yield, per_pass, "
                          "per_draft, conditional or unconditional",
                          ls_lua_show(L, 2, shown, sizeof shown));
    if (r->at && (!ls_lua_integer(L, 3, &depth) || depth < 1 || depth > LS_DRAFT_MAX))
        return ls_lua_bad(L, "interval: the depth must be an integer from 1 to %d, got %s",
                          LS_DRAFT_MAX, ls_lua_show(L, 3, shown, sizeof shown));
    const ls_interval_options o = interval_options(L, r->at ? 4 : 3, "interval");

    const size_t n = lua_rawlen(L, 1);
    double *num = ls_lua_box(L, (n + 1) * sizeof *num, NULL);
    double *den = ls_lua_box(L, (n + 1) * sizeof *den, NULL);
    for (size_t i = 0; i < n; i++) {
        ls_metrics m = {0};
        lua_rawgeti(L, 1, (lua_Integer)i + 1);
        read_struct(L, -1, "interval", &m, counts_fields);
        lua_pop(L, 1);
        const ls_rate v = r->at ? r->at(&m, (int32_t)depth) : r->whole(&m);
        num[i] = (double)v.num;
        den[i] = (double)v.den;
    }
    if (ls_interval_ratio(num, den, (int32_t)n, o, &out, &err) != LS_OK)
        return ls_lua_bad_err(L, "interval", &err);
    push_interval(L, &out);
    return 1;
}

/* ---- single numbers -------------------------------------------------------------------------- */

/* stats.holm(p) -> adjusted p */
static int f_holm(lua_State *L) {
    int32_t n;
    ls_err err;
    double *p = ls_lua_list_numbers(L, 1, "holm: argument 1", &n);
    if (ls_holm(p, n, p, &err) != LS_OK)
        return ls_lua_bad_err(L, "holm", &err);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_pushnumber(L, p[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* stats.rule_of_three(n [, level]) -> bound on the rate of what never happened in n trials */
static int f_rule_of_three(lua_State *L) {
    char shown[96];
    int64_t n;
    if (!ls_lua_integer(L, 1, &n) || n < 0)
        return ls_lua_bad(L, "rule_of_three: n must be an integer >= 0, got %s",
                          ls_lua_show(L, 1, shown, sizeof shown));
    const double level = lua_isnoneornil(L, 2) ? 0.95 : lua_tonumber(L, 2);
    if (!(level > 0 && level < 1))
        return ls_lua_bad(L, "rule_of_three: the level must lie between 0 and 1");
    lua_pushnumber(L, ls_rule_of_three(n, level));
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {
    {"count", f_count},
    {"pool", f_pool},
    {"rates", f_rates},
    {"interval", f_interval},
    {"ratio", f_ratio},
    {"ratio_diff", f_ratio_diff},
    {"speed", f_speed},
    {"holm", f_holm},
    {"rule_of_three", f_rule_of_three},
    {NULL, NULL},
};

void ls_lua_open_stats(lua_State *L) {
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "stats");
}
