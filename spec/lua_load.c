#include "lua_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

/* ---- source text ----------------------------------------------------------------------------- */

ls_status ls_lua_read(const char *path, char **text, size_t *n, ls_err *err) {
    return ls_file_read(path, NULL, LS_LUA_FILE_MAX, text, n, err);
}

/* Skips a byte-order mark, then a first line that begins with # (its end stays: lines keep their
 * numbers). */
static const char *skip_mark(const char *text, size_t *n) {
    if (*n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        *n -= 3;
    }
    if (*n > 0 && text[0] == '#') {
        const char *end = memchr(text, '\n', *n);
        const size_t skip = end ? (size_t)(end - text) : *n;
        text += skip;
        *n -= skip;
    }
    return text;
}

int ls_lua_parse(lua_State *L, const char *path, const char *text, size_t n) {
    char chunk[4096];
    snprintf(chunk, sizeof chunk, "@%s", path);
    text = skip_mark(text, &n);
    const int rc = luaL_loadbufferx(L, text, n, chunk, "t");
    if (rc != LUA_OK)
        ls_lua_of(L)->loading = path; /* for the message; whoever catches the error resets it */
    return rc;
}

/* ---- running a script ------------------------------------------------------------------------ */

typedef struct source {
    const char *path, *text;
    size_t n;
} source;

static int run_source(lua_State *L) {
    const source *src = lua_touserdata(L, 1);
    if (ls_lua_parse(L, src->path, src->text, src->n) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 1);
    return 1;
}

ls_status ls_lua_text(ls_lua *s, const char *path, const char *text, size_t n, const char *who,
                      ls_err *err) {
    source src = {.path = path, .text = text, .n = n};
    if (!lua_checkstack(s->L, LUA_MINSTACK))
        return ls_fail(err, LS_ERR_SCRIPT, "%s: out of stack", path);
    lua_pushcfunction(s->L, run_source);
    lua_pushlightuserdata(s->L, &src);
    return ls_lua_call(s, 1, 1, who, err);
}

ls_status ls_lua_file(ls_lua *s, const char *path, const char *who, ls_err *err) {
    char *text;
    size_t n;
    LS_TRY(ls_lua_read(path, &text, &n, err));
    const ls_status status = ls_lua_text(s, path, text, n, who, err);
    free(text);
    return status;
}
