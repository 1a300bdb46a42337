#include "lua_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_MEMORY_BYTES ((int64_t)64 << 20)
#define DEFAULT_STEPS 10000000
#define DEFAULT_TIME_US 1000000
#define ASK_NS 2000000      /* between two questions to stop() */
#define DEEP 100000         /* nested calls: a lack of memory is then due to them */
#define BIG_BLOCK (1 << 20) /* a block of this size takes long enough to look at the clock */

static void on_count(lua_State *L, lua_Debug *ar);

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

ls_lua *ls_lua_of(lua_State *L) {
    return *(ls_lua **)lua_getextraspace(L);
}
lua_State *ls_lua_raw(ls_lua *state) {
    return state->L;
}
ls_lua_usage ls_lua_memory(const ls_lua *s) {
    return (ls_lua_usage){.now_bytes = s->now_bytes, .peak_bytes = s->peak_bytes};
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* From here on the hook fires at every instruction: safe at any point of the interpreter, as a
 * signal handler may do the same. */
static void arm(ls_lua *s, ls_lua_stop why) {
    if (s->budget.stop == LS_LUA_RUNNING)
        s->budget.stop = why;
    if (!s->armed && s->L) {
        s->armed = true;
        lua_sethook(s->L, on_count, LUA_MASKCOUNT, 1);
    }
}

static void look_at_clock(ls_lua *s) {
    if (s->depth == 0 || s->budget.stop != LS_LUA_RUNNING)
        return;
    if (s->budget.deadline_ns == INT64_MAX && !s->stop)
        return;
    const int64_t now = now_ns();
    if (now > s->budget.deadline_ns) {
        arm(s, LS_LUA_STOP_TIME);
    } else if (s->stop && now - s->asked_ns > ASK_NS) {
        s->asked_ns = now;
        if (s->stop(s->self))
            arm(s, LS_LUA_STOP_ASKED);
    }
}

static int raise_stop(ls_lua *s) {
    arm(s, s->budget.stop);
    if (!s->stopped_at[0]) /* the first time; later ones only keep the script from going on */
        ls_lua_where(s->L, s->stopped_at, sizeof s->stopped_at);
    lua_pushlightuserdata(s->L, (void *)(uintptr_t)&ls_lua_stop_key);
    return lua_error(s->L);
}

static void spend(lua_State *L, int64_t n) {
    ls_lua *s = ls_lua_of(L);
    s->budget.n_left -= n;
    if (s->budget.n_left < 0)
        arm(s, LS_LUA_STOP_STEPS);
    look_at_clock(s);
    if (s->budget.stop != LS_LUA_RUNNING)
        raise_stop(s);
}

static void on_count(lua_State *L, lua_Debug *ar) {
    (void)ar;
    spend(L, ls_lua_of(L)->armed ? 1 : LS_LUA_HOOK_STEP);
}

void ls_lua_charge(lua_State *L, int64_t n) {
    spend(L, n);
}

/* Starts a call's budget and returns the one around it. */
static ls_lua_budget enter(ls_lua *s, const ls_lua_limits *limits) {
    const ls_lua_budget outer = s->budget;
    int64_t n_step = limits ? limits->n_step : s->limits.n_step;
    int64_t time_us = limits ? limits->time_us : s->limits.time_us;
    if (n_step == 0)
        n_step = DEFAULT_STEPS;
    if (time_us == 0)
        time_us = DEFAULT_TIME_US;
    if (n_step > 0 && n_step < s->budget.n_left) {
        s->budget.n_left = n_step;
        s->budget.n_step = n_step;
    }
    if (time_us > 0) {
        const int64_t deadline =
            now_ns() + (time_us > INT64_MAX / 2000 ? INT64_MAX / 2 : time_us * 1000);
        if (deadline < s->budget.deadline_ns) {
            s->budget.deadline_ns = deadline;
            s->budget.time_us = time_us;
        }
    }
    s->depth++;
    s->refused = s->refused_deep = false;
    s->refused_at[0] = s->stopped_at[0] = 0;
    return outer;
}

static void leave(ls_lua *s, const ls_lua_budget *outer, int64_t n_start) {
    const int64_t used = n_start - s->budget.n_left;
    const ls_lua_stop stop = s->budget.stop;
    s->depth--;
    s->budget = *outer;
    if (s->depth > 0) {
        s->budget.n_left -= used;
        if (stop == LS_LUA_STOP_ASKED) /* meant for the whole run, not for the inner call */
            s->budget.stop = stop;
    }
    if (s->armed && s->budget.stop == LS_LUA_RUNNING) {
        s->armed = false;
        lua_sethook(s->L, on_count, LUA_MASKCOUNT, LS_LUA_HOOK_STEP);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Notes what runs when the limit says no. While an error unwinds, Lua may ask for a smaller stack:
 * that has no line, and does not replace the refusal that mattered. */
static void refuse(ls_lua *s) {
    char where[LS_LUA_WHERE_MAX] = "";
    lua_Debug ar;
    s->refused = true;
    look_at_clock(s); /* a script at the edge of its memory collects at every step */
    if (s->L)
        ls_lua_where(s->L, where, sizeof where);
    if (where[0]) {
        memcpy(s->refused_at, where, sizeof where);
        s->refused_deep = lua_getstack(s->L, DEEP, &ar);
    }
}

/* Lua's contract: ptr == NULL makes a block (osize is then a type, not a size), nsize == 0 frees
 * one, anything else resizes; shrinking must not fail. A refusal makes Lua collect and ask once
 * more. */
static void *allocate(void *ud, void *ptr, size_t osize, size_t nsize) {
    ls_lua *s = ud;
    const int64_t old = ptr ? (int64_t)osize : 0;
    if (nsize == 0) {
        free(ptr);
        s->now_bytes -= old;
        return NULL;
    }
    const size_t limit = (size_t)s->limits.memory_bytes;
    const bool grows = nsize > (size_t)old;
    if (nsize > BIG_BLOCK)
        look_at_clock(s);
    if (grows && (nsize > limit / 4 || (size_t)s->now_bytes + (nsize - (size_t)old) > limit)) {
        refuse(s);
        return NULL;
    }
    void *p = realloc(ptr, nsize);
    if (!p && grows)
        return NULL;
    s->now_bytes += (int64_t)nsize - old;
    if (s->now_bytes > s->peak_bytes)
        s->peak_bytes = s->now_bytes;
    return p ? p : ptr;
}

/* ---- protected calls ------------------------------------------------------------------------- */

/* Lua calls no message handler for lack of memory; `refused` says what and where. */
static void describe_memory(ls_lua *s) {
    const double mib = (double)s->limits.memory_bytes / (1 << 20);
    char text[128];
    if (s->refused_deep)
        snprintf(text, sizeof text, "stack overflow: calls are nested more than %d deep", DEEP);
    else if (s->refused)
        snprintf(text, sizeof text,
                 "out of memory: a script may use %.4g MiB, a single value %.4g MiB", mib, mib / 4);
    else
        snprintf(text, sizeof text, "the machine is out of memory");
    const char *at = s->refused ? s->refused_at : "";
    snprintf(s->message, sizeof s->message, "%s%s%s", at, at[0] ? ": " : "", text);
}

/* Puts the error of a failed pcall into err. */
static ls_status report(ls_lua *s, int rc, const char *who, ls_err *err) {
    ls_status code = s->raised == LS_OK ? LS_ERR_SCRIPT : s->raised;
    if (rc == LUA_ERRMEM) {
        describe_memory(s);
        code = s->refused ? LS_ERR_SCRIPT : LS_ERR_MEMORY;
    } else if (rc == LUA_ERRERR) {
        snprintf(s->message, sizeof s->message, "the stack overflowed while an error was handled");
    }
    if (s->budget.stop == LS_LUA_STOP_ASKED)
        code = LS_ERR_STOPPED;
    s->raised = LS_OK;
    if (who)
        return ls_fail(err, code, "%.600s (%.120s)", s->message, who);
    return ls_fail(err, code, "%s", s->message);
}

ls_status ls_lua_call_within(ls_lua *s, const ls_lua_limits *limits, int n_arg, int n_ret,
                             const char *who, ls_err *err) {
    lua_State *L = s->L;
    const int at = lua_gettop(L) - n_arg;
    if (!lua_checkstack(L, LUA_MINSTACK)) {
        lua_settop(L, at - 1);
        return ls_fail(err, LS_ERR_SCRIPT, "out of stack (%s)", who ? who : "Lua");
    }
    const ls_lua_budget outer = enter(s, limits);
    const int64_t n_start = s->budget.n_left;
    const char *loading = s->loading;
    lua_pushcfunction(L, ls_lua_on_error);
    lua_insert(L, at);
    const int rc = lua_pcall(L, n_arg, n_ret, at);
    ls_status status = LS_OK;
    if (rc == LUA_OK) {
        lua_remove(L, at);
    } else {
        status = report(s, rc, who, err);
        s->loading = loading;
        lua_settop(L, at - 1);
    }
    leave(s, &outer, n_start);
    return status;
}

ls_status ls_lua_call(ls_lua *s, int n_arg, int n_ret, const char *who, ls_err *err) {
    return ls_lua_call_within(s, NULL, n_arg, n_ret, who, err);
}

ls_status ls_lua_protect(ls_lua *s, int (*fn)(lua_State *), void *arg, const char *who,
                         ls_err *err) {
    if (!lua_checkstack(s->L, LUA_MINSTACK))
        return ls_fail(err, LS_ERR_SCRIPT, "out of stack (%s)", who ? who : "Lua");
    lua_pushcfunction(s->L, fn);
    lua_pushlightuserdata(s->L, arg);
    return ls_lua_call_within(s, NULL, 1, 0, who, err);
}

int ls_lua_raise(lua_State *L, const ls_err *err) {
    ls_lua *s = ls_lua_of(L);
    s->raised = err->code;
    if (err->code == LS_ERR_STOPPED) {
        arm(s, LS_LUA_STOP_ASKED);
        return raise_stop(s);
    }
    lua_pushstring(L, err->msg);
    return lua_error(L);
}

/* ---- random numbers -------------------------------------------------------------------------- */

void ls_lua_seed(ls_lua *s, uint64_t seed, uint32_t sequence, uint32_t position, uint32_t salt) {
    s->draw = ls_draw_key(seed, sequence, position, LS_DRAW_POLICY, salt);
    s->n_draw = 0;
}

uint32_t ls_lua_draw(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    return ls_draw_word(&s->draw, s->n_draw++);
}

/* ---- making and closing ---------------------------------------------------------------------- */

static int open_state(lua_State *L) {
    ls_lua_open_lib(L);
    return 0;
}

static ls_status copy_path(ls_lua *s, const ls_lua_options *o, ls_err *err) {
    if (o->n_path <= 0)
        return LS_OK;
    s->path = calloc((size_t)o->n_path, sizeof *s->path);
    if (!s->path)
        return ls_fail(err, LS_ERR_MEMORY, "Lua state: out of memory");
    for (int32_t i = 0; i < o->n_path; i++) {
        s->path[i] = strdup(o->path[i]);
        if (!s->path[i])
            return ls_fail(err, LS_ERR_MEMORY, "Lua state: out of memory");
        s->n_path = i + 1;
    }
    return LS_OK;
}

static ls_status create(ls_lua *s, const ls_lua_options *o, ls_err *err) {
    s->limits = o->limits;
    if (s->limits.memory_bytes == 0)
        s->limits.memory_bytes = DEFAULT_MEMORY_BYTES;
    if (s->limits.memory_bytes < 0) /* unlimited */
        s->limits.memory_bytes = INT64_MAX;
    s->patterns = o->patterns;
    s->print = o->print;
    s->stop = o->stop;
    s->self = o->self;
    s->budget.n_left = s->budget.deadline_ns = INT64_MAX;
    LS_TRY(copy_path(s, o, err));
    lua_State *L = lua_newstate(allocate, s);
    if (!L)
        return ls_fail(err, LS_ERR_MEMORY,
                       "Lua state: %lld bytes of memory are too few to make one",
                       (long long)s->limits.memory_bytes);
    *(ls_lua **)lua_getextraspace(L) = s;
    s->L = L;
    lua_sethook(L, on_count, LUA_MASKCOUNT, LS_LUA_HOOK_STEP);
    ls_lua_seed(s, 0, 0, 0, 0);
    return ls_lua_protect(s, open_state, NULL, "opening the libraries", err);
}

ls_status ls_lua_create(const ls_lua_options *options, ls_lua **out, ls_err *err) {
    static const ls_lua_options defaults = {0};
    ls_lua *s = calloc(1, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ERR_MEMORY, "Lua state: out of memory");
    const ls_status status = create(s, options ? options : &defaults, err);
    if (status != LS_OK) {
        ls_lua_destroy(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void ls_lua_destroy(ls_lua *s) {
    if (!s)
        return;
    if (s->L) /* runs no script: finalisers of scripts are refused by setmetatable */
        lua_close(s->L);
    for (int32_t i = 0; i < s->n_path; i++)
        free(s->path[i]);
    free(s->path);
    free(s);
}

void ls_lua_freeze(ls_lua *state) {
    state->frozen = true;
}
