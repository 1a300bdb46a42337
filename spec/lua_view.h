/* lua_view.h - a C struct as scripts see it: named fields, read-only, and strict.
 * Cost        nothing is copied when a callback is called: one pointer is set, and a field is read
 *             when the script asks for it.
 * Strict      reading an unknown field, writing any, and use after the call are errors with the
 *             names.
 * Arrays      an index outside of the array reads as nil, as in a Lua table.
 * Memory      the views live in their state; the C side keeps the pointer while it keeps the
 *             state's reference to the userdata. The struct is borrowed between set(base) and
 *             set(NULL). */
#ifndef LS_LUA_VIEW_H
#define LS_LUA_VIEW_H

#include "lua_inner.h"

typedef enum ls_view_kind {
    LS_VIEW_I32,
    LS_VIEW_F32,
    LS_VIEW_F64,
    LS_VIEW_BOOL,
    LS_VIEW_I32_ARRAY,
    LS_VIEW_F64_ARRAY,
    LS_VIEW_STRUCT,
    LS_VIEW_PUSH
} ls_view_kind;

typedef struct ls_view_class ls_view_class;
typedef struct ls_view_field {
    const char *name;
    ls_view_kind kind;
    size_t offset;           /* in the struct */
    int32_t first, last;     /* ARRAY: lowest and highest index */
    const ls_view_class *of; /* STRUCT: a struct inside this one */
    /* PUSH: leaves one value; base is the struct, user what ls_view_push got */
    void (*push)(lua_State *L, const void *base, void *user);
} ls_view_field;

struct ls_view_class {
    const char *name;
    const ls_view_field *field;
    int32_t n_field;
};

typedef struct ls_view ls_view;

/* Leaves the userdata on the stack; raises when memory is short. */
ls_view *ls_view_push(lua_State *L, const ls_view_class *cls, void *user);
void ls_view_set(ls_view *view, const void *base);

/* Pushes a list of {token, prob}, largest first; raises when the script's table asked for none.
 * `whose` ("step") is for the message. */
void ls_lua_push_top(lua_State *L, const char *whose, int32_t n_asked, int32_t n,
                     const int32_t *token, const float *prob);

#endif
