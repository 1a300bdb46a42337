/* table.* and pairs for scripts. Lua's own walk as far as a metatable tells them to, inside one C
 * call that no hook interrupts; these use raw access, so that the work is bounded by what a table
 * holds, and charge the budget for it. pairs walks its keys in ascending order, so that two runs of
 * a script do the same thing: Lua's order depends on addresses. */
#include "lua_inner.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MOVED (1 << 24) /* elements one call may touch without their being there */

static lua_Integer length(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    return (lua_Integer)lua_rawlen(L, 1);
}

static int f_insert(lua_State *L) {
    const lua_Integer end = length(L) + 1;
    switch (lua_gettop(L)) {
    case 2:
        lua_rawseti(L, 1, end);
        return 0;
    case 3: {
        const lua_Integer pos = luaL_checkinteger(L, 2);
        luaL_argcheck(L, pos >= 1 && pos <= end, 2, "position out of bounds");
        ls_lua_charge(L, (end - pos) / 4);
        for (lua_Integer i = end; i > pos; i--) {
            lua_rawgeti(L, 1, i - 1);
            lua_rawseti(L, 1, i);
        }
        lua_rawseti(L, 1, pos);
        return 0;
    }
    default:
        return luaL_error(L, "wrong number of arguments to 'insert'");
    }
}

static int f_remove(lua_State *L) {
    const lua_Integer n = length(L);
    lua_Integer pos = luaL_optinteger(L, 2, n);
    if (!lua_isnoneornil(L, 2))
        luaL_argcheck(L, pos >= 1 && pos <= n + 1, 2, "position out of bounds");
    lua_rawgeti(L, 1, pos);
    ls_lua_charge(L, (n - pos) / 4);
    for (; pos < n; pos++) {
        lua_rawgeti(L, 1, pos + 1);
        lua_rawseti(L, 1, pos);
    }
    lua_pushnil(L);
    lua_rawseti(L, 1, pos);
    return 1;
}

static int f_move(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    const lua_Integer from = luaL_checkinteger(L, 2), to = luaL_checkinteger(L, 3);
    const lua_Integer at = luaL_checkinteger(L, 4);
    const int dst = lua_isnoneornil(L, 5) ? 1 : 5;
    luaL_checktype(L, dst, LUA_TTABLE);
    if (to >= from) {
        luaL_argcheck(L, (uint64_t)to - (uint64_t)from < MOST_MOVED, 3,
                      "too many elements to move");
        const lua_Integer n = to - from + 1;
        luaL_argcheck(L, at <= LUA_MAXINTEGER - n + 1, 4, "destination wrap around");
        ls_lua_charge(L, n / 4);
        const bool up = dst == 1 && at > from && at <= to; /* overlaps what is still to be read */
        for (lua_Integer k = 0; k < n; k++) {
            const lua_Integer i = up ? n - 1 - k : k;
            lua_rawgeti(L, 1, from + i);
            lua_rawseti(L, dst, at + i);
        }
    }
    lua_pushvalue(L, dst);
    return 1;
}

static int f_concat(lua_State *L) {
    const lua_Integer n = length(L);
    size_t len_sep;
    const char *sep = luaL_optlstring(L, 2, "", &len_sep);
    const lua_Integer from = luaL_optinteger(L, 3, 1), to = luaL_optinteger(L, 4, n);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (lua_Integer i = from; i <= to; i++) {
        if ((i & 1023) == 0)
            ls_lua_charge(L, 256);
        lua_rawgeti(L, 1, i);
        if (!lua_isstring(L, -1))
            return luaL_error(L, "invalid value (at index %I) in table for 'concat'",
                              (LUAI_UACINT)i);
        luaL_addvalue(&b);
        if (i == to)
            break; /* to may be the largest integer */
        luaL_addlstring(&b, sep, len_sep);
    }
    luaL_pushresult(&b);
    return 1;
}

static int f_pack(lua_State *L) {
    const int n = lua_gettop(L);
    lua_createtable(L, n, 1);
    lua_insert(L, 1);
    for (int i = n; i >= 1; i--)
        lua_rawseti(L, 1, i);
    lua_pushinteger(L, n);
    lua_setfield(L, 1, "n");
    return 1;
}

static int f_unpack(lua_State *L) {
    const lua_Integer len = length(L);
    const lua_Integer from = luaL_optinteger(L, 2, 1), to = luaL_optinteger(L, 3, len);
    if (from > to)
        return 0;
    const uint64_t n = (uint64_t)to - (uint64_t)from + 1;
    if (n == 0 || n >= INT32_MAX || !lua_checkstack(L, (int)n))
        return luaL_error(L, "too many results to unpack");
    ls_lua_charge(L, (int64_t)n / 4);
    for (uint64_t i = 0; i < n; i++)
        lua_rawgeti(L, 1, (lua_Integer)((uint64_t)from + i));
    return (int)n;
}

/* ---- sort: a heap, which ends after n log n comparisons whatever the order function says ----- */

/* Stack: 1 the table, 2 the order function or nil. */
static bool less(lua_State *L, int a, int b) {
    if (lua_isnil(L, 2))
        return lua_compare(L, a, b, LUA_OPLT);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, a);
    lua_pushvalue(L, b);
    lua_call(L, 2, 1);
    const bool yes = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return yes;
}

/* Lets the element at root sink in the heap 1..n. */
static void sift(lua_State *L, lua_Integer root, lua_Integer n) {
    lua_rawgeti(L, 1, root); /* 3: what sinks */
    for (lua_Integer child = 2 * root; child <= n; child = 2 * root) {
        lua_rawgeti(L, 1, child); /* 4: the larger child */
        if (child < n) {
            lua_rawgeti(L, 1, child + 1);
            if (less(L, 4, 5)) {
                lua_replace(L, 4);
                child++;
            } else {
                lua_pop(L, 1);
            }
        }
        if (!less(L, 3, 4)) {
            lua_pop(L, 1);
            break;
        }
        lua_rawseti(L, 1, root);
        root = child;
    }
    lua_rawseti(L, 1, root);
}

int ls_lua_sort(lua_State *L) {
    const lua_Integer n = length(L);
    if (!lua_isnoneornil(L, 2))
        luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    int depth = 1;
    while (n >> depth)
        depth++;
    for (lua_Integer root = n / 2; root >= 1; root--) {
        ls_lua_charge(L, 2 * depth);
        sift(L, root, n);
    }
    for (lua_Integer end = n; end > 1; end--) {
        lua_rawgeti(L, 1, 1);
        lua_rawgeti(L, 1, end);
        lua_rawseti(L, 1, 1);
        lua_rawseti(L, 1, end);
        ls_lua_charge(L, 2 * depth);
        sift(L, 1, end - 1);
    }
    return 0;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

enum { KEY_NUMBER, KEY_STRING, KEY_BOOLEAN, KEY_OTHER };

typedef struct key {
    int kind;
    bool exact; /* an integer: i is right, else d */
    lua_Integer i;
    double d;
    const char *text; /* lives in the table of keys */
    size_t n;
    lua_Integer at; /* its place in Lua's order */
} key;

static int compare_keys(const void *pa, const void *pb) {
    const key *a = pa, *b = pb;
    int c = a->kind - b->kind;
    if (c == 0 && a->kind == KEY_STRING) {
        c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
        if (c == 0)
            c = (a->n > b->n) - (a->n < b->n);
    } else if (c == 0 && a->kind == KEY_NUMBER && !(a->exact && b->exact)) {
        c = (a->d > b->d) - (a->d < b->d);
    }
    if (c == 0)
        c = (a->i > b->i) - (a->i < b->i);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

/* The key on top of the stack. */
static key read_key(lua_State *L, lua_Integer at) {
    key k = {.kind = KEY_OTHER, .at = at};
    switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
        k.kind = KEY_NUMBER;
        k.exact = lua_isinteger(L, -1);
        k.i = lua_tointeger(L, -1);
        k.d = lua_tonumber(L, -1);
        break;
    case LUA_TSTRING:
        k.kind = KEY_STRING;
        k.text = lua_tolstring(L, -1, &k.n);
        break;
    case LUA_TBOOLEAN:
        k.kind = KEY_BOOLEAN;
        k.i = lua_toboolean(L, -1);
        break;
    default:
        break;
    }
    return k;
}

/* Upvalues: the keys, the number already given. Keys removed meanwhile are skipped. */
static int next_pair(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        lua_settop(L, 1);
        if (lua_rawgeti(L, lua_upvalueindex(1), ++i) == LUA_TNIL)
            return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) != LUA_TNIL)
            break;
    }
    lua_pushinteger(L, i);
    lua_replace(L, lua_upvalueindex(2));
    return 2;
}

int ls_lua_pairs(lua_State *L) {
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_insert(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_newtable(L); /* 2: the keys in Lua's order */
    lua_Integer n = 0;
    for (lua_pushnil(L); lua_next(L, 1); n++) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawseti(L, 2, n + 1);
    }
    ls_lua_charge(L, n);
    key *keys = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *keys, 0); /* 3 */
    bool sorted = true;
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        keys[i] = read_key(L, i + 1);
        lua_pop(L, 1);
        sorted = sorted && (i == 0 || compare_keys(&keys[i - 1], &keys[i]) < 0);
    }
    if (!sorted) {
        qsort(keys, (size_t)n, sizeof *keys, compare_keys);
        lua_createtable(L, (int)n, 0); /* 4: in ascending order */
        for (lua_Integer i = 0; i < n; i++) {
            lua_rawgeti(L, 2, keys[i].at);
            lua_rawseti(L, 4, i + 1);
        }
        lua_replace(L, 2);
    }
    lua_settop(L, 2);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_pair, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

void ls_lua_push_table_lib(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"concat", f_concat}, {"insert", f_insert},  {"move", f_move},     {"pack", f_pack},
        {"remove", f_remove}, {"sort", ls_lua_sort}, {"unpack", f_unpack}, {NULL, NULL}};
    luaL_newlib(L, functions);
}
