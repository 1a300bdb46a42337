#include "lua_inner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char ls_lua_stop_key = 0;

#define FRAMES 16 /* calls looked at from the innermost out */

static const char *source_path(const char *source) {
    return source[0] == '@' ? source + 1 : source;
}

/* Lua shortens a long chunk name to "..." and its end. The length of that prefix of text plus the
 * colon, or 0 if text does not begin with it. */
static size_t own_position(const char *path, const char *text, size_t n) {
    char shown[LUA_IDSIZE];
    const size_t len = strlen(path);
    if (len < LUA_IDSIZE)
        memcpy(shown, path, len + 1);
    else
        snprintf(shown, sizeof shown, "...%s", path + len - (LUA_IDSIZE - 4));
    const size_t k = strlen(shown);
    return n > k && memcmp(text, shown, k) == 0 && text[k] == ':' ? k : 0;
}

void ls_lua_where(lua_State *L, char *dst, size_t cap) {
    lua_Debug ar;
    dst[0] = 0;
    for (int level = 0; level < FRAMES && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0) {
            snprintf(dst, cap, "%s:%d", source_path(ar.source), ar.currentline);
            return;
        }
    }
}

/* message = "where: text", or only one of them with a text that goes on with its line. */
static void describe_at(ls_lua *s, const char *where, const char *text, size_t n) {
    char *dst = s->message;
    ls_err_text(dst, sizeof s->message, where, strlen(where));
    size_t at = strlen(dst);
    if (at > 0 && !(n > 0 && text[0] == ':')) {
        memcpy(dst + at, ": ", 3);
        at += 2;
    }
    ls_err_text(dst + at, sizeof s->message - at, text, n);
}

/* A text that already says where it was raised keeps that, with the path in full; any other gets
 * the innermost script line. */
void ls_lua_describe(ls_lua *s, const char *text, size_t n) {
    lua_State *L = s->L;
    const char *path = s->loading;
    size_t k = path ? own_position(path, text, n) : 0;
    lua_Debug ar;
    for (int level = 0; k == 0 && level < FRAMES && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "S", &ar);
        path = source_path(ar.source);
        k = own_position(path, text, n);
    }
    char where[LS_LUA_WHERE_MAX];
    if (k > 0 || s->loading)
        snprintf(where, sizeof where, "%s", k > 0 ? path : s->loading);
    else
        ls_lua_where(L, where, sizeof where);
    describe_at(s, where, text + k, n - k);
}

static const char *stop_text(const ls_lua *s, char *dst, size_t cap) {
    switch (s->budget.stop) {
    case LS_LUA_STOP_STEPS:
        snprintf(dst, cap, "stopped: more than %lld instructions in one call",
                 (long long)s->budget.n_step);
        break;
    case LS_LUA_STOP_TIME:
        snprintf(dst, cap, "stopped: more than %.3g s in one call",
                 (double)s->budget.time_us * 1e-6);
        break;
    default:
        snprintf(dst, cap, "stopped on request");
    }
    return dst;
}

/* Runs when an error is raised, while the stack still shows where. No script code: an error
 * object's __tostring is not asked, since it could raise, loop, or lie. */
int ls_lua_on_error(lua_State *L) {
    ls_lua *s = ls_lua_of(L);
    char made[128];
    const char *text = made;
    size_t n = 0;
    const int type = lua_type(L, 1);
    if (lua_touserdata(L, 1) == (const void *)&ls_lua_stop_key) {
        stop_text(s, made, sizeof made);
        describe_at(s, s->stopped_at, made, strlen(made));
        return 1;
    } else if (type == LUA_TSTRING) {
        text = lua_tolstring(L, 1, &n);
    } else if (lua_isinteger(L, 1)) {
        snprintf(made, sizeof made, "error value %lld", (long long)lua_tointeger(L, 1));
    } else if (type == LUA_TNUMBER) {
        snprintf(made, sizeof made, "error value %.14g", lua_tonumber(L, 1));
    } else if (type == LUA_TNIL || type == LUA_TNONE) {
        snprintf(made, sizeof made, "an error without a message");
    } else {
        snprintf(made, sizeof made, "an error whose value is a %s, not a text",
                 lua_typename(L, type));
    }
    if (text == made)
        n = strlen(made);
    ls_lua_describe(s, text, n);
    lua_settop(L, 1);
    return 1;
}
