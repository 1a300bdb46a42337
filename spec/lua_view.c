#include "lua_view.h"

#include <string.h>

struct ls_view {
    const char *base;           /* NULL outside of a call */
    const ls_view_class *cls;   /* NULL: an array */
    const ls_view_field *array; /* the field an array is */
    void *user;
    size_t offset;           /* of a part in the struct around it */
    ls_view *part, *sibling; /* parts follow their whole */
};

void ls_view_set(ls_view *view, const void *base) {
    view->base = base;
    for (ls_view *p = view->part; p; p = p->sibling)
        ls_view_set(p, base ? (const char *)base + p->offset : NULL);
}

static const char *view_name(const ls_view *v) {
    return v->cls ? v->cls->name : v->array->name;
}

static void check_alive(lua_State *L, const ls_view *v) {
    if (!v->base)
        luaL_error(L, "%s is only there during the call it was given to", view_name(v));
}

static int push_field(lua_State *L, const ls_view *v, const ls_view_field *f) {
    const char *at = v->base + f->offset;
    switch (f->kind) {
    case LS_VIEW_I32:
        lua_pushinteger(L, *(const int32_t *)(const void *)at);
        break;
    case LS_VIEW_F32:
        lua_pushnumber(L, (double)*(const float *)(const void *)at);
        break;
    case LS_VIEW_F64:
        lua_pushnumber(L, *(const double *)(const void *)at);
        break;
    case LS_VIEW_BOOL:
        lua_pushboolean(L, *(const bool *)(const void *)at);
        break;
    default:
        f->push(L, v->base, v->user);
    }
    return 1;
}

static int unknown_field(lua_State *L, const ls_view *v) {
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int32_t i = 0; i < v->cls->n_field; i++) {
        luaL_addstring(&b, i ? ", " : "");
        luaL_addstring(&b, v->cls->field[i].name);
    }
    luaL_pushresult(&b);
    const char *list = lua_tostring(L, -1), *key = luaL_tolstring(L, 2, NULL);
    return luaL_error(L, "%s has no field '%s': it has %s", v->cls->name, key, list);
}

/* Upvalue: name -> number of the field, or the userdata of a part. */
static int f_index(lua_State *L) {
    const ls_view *v = lua_touserdata(L, 1);
    check_alive(L, v);
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, lua_upvalueindex(1))) {
    case LUA_TNUMBER:
        return push_field(L, v, &v->cls->field[lua_tointeger(L, -1)]);
    case LUA_TUSERDATA:
        return 1;
    default:
        return unknown_field(L, v);
    }
}

static int f_array_index(lua_State *L) {
    const ls_view *v = lua_touserdata(L, 1);
    check_alive(L, v);
    const ls_view_field *f = v->array;
    int whole;
    const lua_Integer i = lua_tointegerx(L, 2, &whole);
    if (!whole || lua_type(L, 2) != LUA_TNUMBER)
        return luaL_error(L, "%s is indexed by whole numbers, not by '%s'", f->name,
                          luaL_tolstring(L, 2, NULL));
    if (i < f->first || i > f->last)
        lua_pushnil(L);
    else if (f->kind == LS_VIEW_I32_ARRAY)
        lua_pushinteger(L, ((const int32_t *)(const void *)v->base)[i - f->first]);
    else
        lua_pushnumber(L, ((const double *)(const void *)v->base)[i - f->first]);
    return 1;
}

static int f_array_len(lua_State *L) {
    lua_pushinteger(L, ((const ls_view *)lua_touserdata(L, 1))->array->last);
    return 1;
}

static int f_read_only(lua_State *L) {
    return luaL_error(L, "%s is read-only", view_name(lua_touserdata(L, 1)));
}

/* The metatable is on top; closes it and gives it to the userdata below. */
static void finish(lua_State *L, const char *name) {
    lua_pushcfunction(L, f_read_only);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_setmetatable(L, -2);
}

static ls_view *push_array(lua_State *L, const ls_view_field *f) {
    ls_view *v = lua_newuserdatauv(L, sizeof *v, 0);
    *v = (ls_view){.array = f};
    lua_newtable(L);
    lua_pushcfunction(L, f_array_index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, f_array_len);
    lua_setfield(L, -2, "__len");
    finish(L, f->name);
    return v;
}

ls_view *ls_view_push(lua_State *L, const ls_view_class *cls, void *user) {
    luaL_checkstack(L, 8, "view");
    ls_view *v = lua_newuserdatauv(L, sizeof *v, 0);
    *v = (ls_view){.cls = cls, .user = user};
    lua_newtable(L); /* the metatable */
    lua_newtable(L); /* the names */
    for (int32_t i = 0; i < cls->n_field; i++) {
        const ls_view_field *f = &cls->field[i];
        ls_view *part = NULL;
        if (f->kind == LS_VIEW_STRUCT)
            part = ls_view_push(L, f->of, user);
        else if (f->kind == LS_VIEW_I32_ARRAY || f->kind == LS_VIEW_F64_ARRAY)
            part = push_array(L, f);
        else
            lua_pushinteger(L, i);
        if (part) {
            part->offset = f->offset;
            part->sibling = v->part;
            v->part = part;
        }
        lua_setfield(L, -2, f->name);
    }
    lua_pushcclosure(L, f_index, 1);
    lua_setfield(L, -2, "__index");
    finish(L, cls->name);
    return v;
}

void ls_lua_push_top(lua_State *L, const char *whose, int32_t n_asked, int32_t n,
                     const int32_t *token, const float *prob) {
    if (n_asked == 0)
        luaL_error(L, "%s.top needs n_top = 1 to %d in the script's table", whose, LS_TOP_MAX);
    n = n < n_asked ? n : n_asked;
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 2);
        lua_pushinteger(L, token[i]);
        lua_setfield(L, -2, "token");
        lua_pushnumber(L, (double)prob[i]);
        lua_setfield(L, -2, "prob");
        lua_rawseti(L, -2, i + 1);
    }
}
