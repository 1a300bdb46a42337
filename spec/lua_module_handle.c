#include "lua_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its address is the key that marks the metatables of handles: other userdata can be told apart. */
static const char handle_mark = 0;

typedef struct handle {
    ls_lua_obj *obj; /* NULL: closed */
} handle;

/* ---- references ------------------------------------------------------------------------------ */

void ls_lua_ref(void *obj) {
    ((ls_lua_obj *)obj)->n_ref++;
}

void ls_lua_unref(void *p) {
    ls_lua_obj *obj = p;
    if (!obj || --obj->n_ref > 0)
        return;
    obj->cls->drop(obj);
    free(obj->about);
    free(obj);
}

static handle *handle_at(lua_State *L, int idx) {
    if (lua_type(L, idx) != LUA_TUSERDATA || !lua_getmetatable(L, idx))
        return NULL;
    const bool ours = lua_rawgetp(L, -1, &handle_mark) != LUA_TNIL;
    lua_pop(L, 2);
    return ours ? lua_touserdata(L, idx) : NULL;
}

ls_lua_obj *ls_lua_any(lua_State *L, int idx) {
    const handle *h = handle_at(L, idx);
    return h ? h->obj : NULL;
}

/* Class of a handle, open or closed; NULL for any other value. */
static const ls_lua_class *class_at(lua_State *L, int idx) {
    if (!handle_at(L, idx) || !lua_getmetatable(L, idx))
        return NULL;
    lua_rawgetp(L, -1, &handle_mark);
    const ls_lua_class *cls = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return cls;
}

void *ls_lua_test(lua_State *L, int idx, const ls_lua_class *cls) {
    ls_lua_obj *obj = ls_lua_any(L, idx);
    return obj && obj->cls == cls ? obj : NULL;
}

const char *ls_lua_article(const char *noun) {
    return strchr("aeiou", noun[0]) ? "an" : "a";
}

void *ls_lua_check(lua_State *L, int idx, const ls_lua_class *cls, const char *what) {
    char shown[96];
    void *obj = ls_lua_test(L, idx, cls);
    if (!obj && class_at(L, idx) == cls)
        ls_lua_bad(L, "%s: the %s is closed", what, cls->name);
    if (!obj)
        ls_lua_bad(L, "%s must be %s %s, got %s", what, ls_lua_article(cls->name), cls->name,
                   ls_lua_show(L, idx, shown, sizeof shown));
    return obj;
}

/* ---- what every handle can do ---------------------------------------------------------------- */

static int handle_close(lua_State *L) {
    handle *h = handle_at(L, 1);
    if (!h)
        return ls_lua_bad(L, "close: call it as handle:close()");
    ls_lua_obj *obj = h->obj;
    h->obj = NULL;
    ls_lua_unref(obj);
    return 0;
}

static int handle_tostring(lua_State *L) {
    const ls_lua_class *cls = class_at(L, 1);
    const ls_lua_obj *obj = ls_lua_any(L, 1);
    if (!cls)
        return ls_lua_bad(L, "tostring: not a handle");
    lua_pushfstring(L, obj && obj->about ? "%s %s" : "%s%s", cls->name,
                    obj ? (obj->about ? obj->about : "") : " (closed)");
    return 1;
}

static int handle_about(lua_State *L) {
    const ls_lua_obj *obj = ls_lua_any(L, 1);
    if (!obj || !obj->about)
        lua_newtable(L);
    else
        ls_lua_json_pull_text(L, obj->about, strlen(obj->about), "about");
    return 1;
}

static lua_CFunction find(const luaL_Reg *list, const char *name) {
    for (; list && list->name; list++)
        if (strcmp(list->name, name) == 0)
            return list->func;
    return NULL;
}

static int bad_name(lua_State *L, const ls_lua_class *cls) {
    char shown[96], list[400];
    size_t n = (size_t)snprintf(list, sizeof list, "about, close()");
    for (const luaL_Reg *f = cls->fields; f && f->name && n + 1 < sizeof list; f++)
        n += (size_t)snprintf(list + n, sizeof list - n, ", %s", f->name);
    for (const luaL_Reg *f = cls->methods; f && f->name && n + 1 < sizeof list; f++)
        n += (size_t)snprintf(list + n, sizeof list - n, ", %s()", f->name);
    return ls_lua_bad(L, "%s: no field %s; it has %s", cls->name,
                      ls_lua_show(L, 2, shown, sizeof shown), list);
}

/* handle.name */
static int handle_index(lua_State *L) {
    const ls_lua_class *cls = class_at(L, 1);
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (!cls)
        return ls_lua_bad(L, "index: not a handle");
    const lua_CFunction method =
        strcmp(name, "close") == 0 ? handle_close : find(cls->methods, name);
    const lua_CFunction field = strcmp(name, "about") == 0 ? handle_about : find(cls->fields, name);
    if (method) {
        lua_pushcfunction(L, method);
        return 1;
    }
    if (!field)
        return bad_name(L, cls);
    ls_lua_check(L, 1, cls, name);
    lua_settop(L, 1);
    return field(L);
}

static int handle_newindex(lua_State *L) {
    const ls_lua_class *cls = class_at(L, 1);
    return ls_lua_bad(L, "%s: fields of a handle cannot be set", cls ? cls->name : "handle");
}

static const luaL_Reg handle_meta[] = {
    {"__gc", handle_close},          {"__close", handle_close},       {"__index", handle_index},
    {"__newindex", handle_newindex}, {"__tostring", handle_tostring}, {NULL, NULL},
};

void *ls_lua_new(lua_State *L, const ls_lua_class *cls, size_t bytes) {
    char key[64];
    handle *h = lua_newuserdatauv(L, sizeof *h, 0);
    h->obj = NULL;
    snprintf(key, sizeof key, "lockstep.%s", cls->name);
    if (luaL_newmetatable(L, key)) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)cls);
        lua_rawsetp(L, -2, &handle_mark);
        lua_pushstring(L, cls->name);
        lua_setfield(L, -2, "__metatable"); /* scripts cannot reach or change it */
        luaL_setfuncs(L, handle_meta, 0);
    }
    lua_setmetatable(L, -2);
    ls_lua_obj *obj = calloc(1, bytes);
    if (!obj) {
        const ls_err err = {LS_ERR_MEMORY, "out of memory"};
        ls_lua_bad_err(L, cls->name, &err);
        return NULL;
    }
    obj->cls = cls;
    obj->n_ref = 1;
    h->obj = obj;
    return obj;
}

void ls_lua_set_about(lua_State *L, void *p) {
    ls_lua_obj *obj = p;
    size_t n;
    const char *text = ls_lua_json_push(L, -1, obj->cls->name, &n);
    char *copy = malloc(n + 1);
    if (!copy) {
        const ls_err err = {LS_ERR_MEMORY, "out of memory"};
        ls_lua_bad_err(L, obj->cls->name, &err);
        return;
    }
    memcpy(copy, text, n + 1);
    free(obj->about);
    obj->about = copy;
    lua_pop(L, 2);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

typedef struct box {
    void (*free_fn)(void *);
    int64_t data[]; /* aligned for what the module keeps in boxes */
} box;

static int box_gc(lua_State *L) {
    box *b = lua_touserdata(L, 1);
    if (b->free_fn)
        b->free_fn(b->data);
    b->free_fn = NULL;
    return 0;
}

void *ls_lua_box(lua_State *L, size_t bytes, void (*free_fn)(void *)) {
    box *b = lua_newuserdatauv(L, sizeof *b + bytes, 0);
    memset(b, 0, sizeof *b + bytes);
    b->free_fn = free_fn;
    if (luaL_newmetatable(L, "lockstep.box")) {
        lua_pushcfunction(L, box_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return b->data;
}
