#include "lua_module.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "tokenizer.h"
#include "utf8.h"

#define LS_LUA_JSON_DEPTH 32 /* of a value; a record adds a few levels and json.h reads 64 */

/* ---- Lua to JSON ----------------------------------------------------------------------------- */

typedef struct writer {
    lua_State *L;
    ls_text *text; /* in a box: an error that unwinds the writer frees it */
    const char *what;
    int depth;
} writer;

static void write_value(lua_State *L, int idx, writer *w);

static void put(writer *w, const char *s) {
    ls_err err;
    if (ls_text_append(w->text, s, strlen(s), &err) != LS_OK)
        ls_lua_bad_err(w->L, w->what, &err);
}

static void write_string(lua_State *L, int idx, writer *w) {
    size_t n;
    const char *s = lua_tolstring(L, idx, &n);
    if (ls_utf8_valid((const uint8_t *)s, n) != n || memchr(s, 0, n)) {
        char shown[96];
        ls_lua_bad(L, "%s: a string is not UTF-8 text: %s", w->what,
                   ls_lua_show(L, idx, shown, sizeof shown));
    }
    put(w, "\"");
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        char esc[8];
        if (c == '"' || c == '\\')
            snprintf(esc, sizeof esc, "\\%c", c);
        else if (c == '\n' || c == '\t')
            snprintf(esc, sizeof esc, "\\%c", c == '\n' ? 'n' : 't');
        else if (c < 0x20)
            snprintf(esc, sizeof esc, "\\u%04x", c);
        else
            snprintf(esc, sizeof esc, "%c", c);
        put(w, esc);
    }
    put(w, "\"");
}

static void write_number(lua_State *L, int idx, writer *w) {
    char text[40];
    const double v = lua_tonumber(L, idx);
    int64_t whole;
    if (ls_lua_integer(L, idx, &whole)) {
        snprintf(text, sizeof text, "%lld", (long long)whole);
    } else if (!isfinite(v)) {
        snprintf(text, sizeof text, "null");
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, v);
            if (strtod(text, NULL) == v)
                break;
        }
    }
    put(w, text);
}

/* True when the keys are exactly 1..n, n > 0. */
static bool is_list(lua_State *L, int idx) {
    const lua_Unsigned n = lua_rawlen(L, idx);
    lua_Unsigned count = 0;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) < 1 ||
            (lua_Unsigned)lua_tointeger(L, -2) > n) {
            lua_pop(L, 2);
            return false;
        }
        count++;
    }
    return n > 0 && count == n;
}

static void write_list(lua_State *L, int idx, writer *w) {
    const lua_Unsigned n = lua_rawlen(L, idx);
    put(w, "[");
    for (lua_Unsigned i = 1; i <= n; i++) {
        if (i > 1)
            put(w, ",");
        lua_rawgeti(L, idx, (lua_Integer)i);
        write_value(L, -1, w);
        lua_pop(L, 1);
    }
    put(w, "]");
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Pushes a box with the n keys, sorted; the table holds the strings themselves. */
static const char **sorted_keys(lua_State *L, int idx, const char *what, size_t *n) {
    size_t count = 0, i = 0;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1), count++)
        if (lua_type(L, -2) != LUA_TSTRING || strlen(lua_tostring(L, -2)) != lua_rawlen(L, -2)) {
            char shown[96];
            ls_lua_bad(L, "%s: the keys of a table are names, or 1..n without a gap: found %s",
                       what, ls_lua_show(L, -2, shown, sizeof shown));
        }
    const char **keys = ls_lua_box(L, (count + 1) * sizeof *keys, NULL);
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
        keys[i++] = lua_tostring(L, -2);
    qsort(keys, count, sizeof *keys, by_text);
    *n = count;
    return keys;
}

static void write_object(lua_State *L, int idx, writer *w) {
    size_t n;
    const char **keys = sorted_keys(L, idx, w->what, &n);
    put(w, "{");
    for (size_t i = 0; i < n; i++) {
        if (i)
            put(w, ",");
        lua_pushstring(L, keys[i]);
        write_string(L, -1, w);
        put(w, ":");
        lua_rawget(L, idx);
        write_value(L, -1, w);
        lua_pop(L, 1);
    }
    put(w, "}");
    lua_pop(L, 1);
}

static void write_value(lua_State *L, int idx, writer *w) {
    char shown[96];
    idx = lua_absindex(L, idx);
    luaL_checkstack(L, 8, "JSON");
    const ls_lua_obj *obj;
    switch (lua_type(L, idx)) {
    case LUA_TNIL:
        put(w, "null");
        return;
    case LUA_TBOOLEAN:
        put(w, lua_toboolean(L, idx) ? "true" : "false");
        return;
    case LUA_TNUMBER:
        write_number(L, idx, w);
        return;
    case LUA_TSTRING:
        write_string(L, idx, w);
        return;
    case LUA_TTABLE:
        if (++w->depth > LS_LUA_JSON_DEPTH)
            ls_lua_bad(L, "%s: tables nest more than %d deep", w->what, LS_LUA_JSON_DEPTH);
        if (is_list(L, idx))
            write_list(L, idx, w);
        else
            write_object(L, idx, w);
        w->depth--;
        return;
    default:
        obj = ls_lua_any(L, idx);
        if (!obj || !obj->about)
            ls_lua_bad(L, "%s: a record holds no such value: %s", w->what,
                       ls_lua_show(L, idx, shown, sizeof shown));
        else
            put(w, obj->about);
    }
}

static void text_free(void *p) {
    ls_text_free(p);
}

const char *ls_lua_json_push(lua_State *L, int idx, const char *what, size_t *n) {
    idx = lua_absindex(L, idx);
    writer w = {L, ls_lua_box(L, sizeof(ls_text), text_free), what, 0};
    write_value(L, idx, &w);
    lua_pushlstring(L, w.text->s, w.text->n);
    lua_remove(L, -2);
    return lua_tolstring(L, -1, n);
}

/* ---- JSON to Lua ----------------------------------------------------------------------------- */

void ls_lua_json_pull(lua_State *L, const json_t *value) {
    const char *key;
    const json_t *item;
    size_t i;
    luaL_checkstack(L, 8, "JSON");
    switch (json_typeof(value)) {
    case JSON_NULL:
        lua_pushnil(L);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(value));
        return;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(value));
        return;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(value));
        return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(value), 0);
        for (i = 0; i < json_array_size(value); i++) {
            ls_lua_json_pull(L, json_array_get(value, i));
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        return;
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(value));
        json_object_foreach ((json_t *)(uintptr_t)value, key, item) {
            lua_pushstring(L, key);
            ls_lua_json_pull(L, item);
            lua_rawset(L, -3);
        }
        return;
    }
}

static void json_free(void *p) {
    ls_json_free(p);
}

void ls_lua_json_pull_text(lua_State *L, const char *text, size_t n, const char *name) {
    ls_err err;
    ls_json *doc = ls_lua_box(L, sizeof *doc, json_free);
    if (ls_json_parse(text, n, name, doc, &err) != LS_OK)
        ls_lua_bad_err(L, "JSON", &err);
    ls_lua_json_pull(L, doc->root);
    ls_json_free(doc);
    lua_remove(L, -2);
}
