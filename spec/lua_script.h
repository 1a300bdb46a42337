/* lua_script.h - what length and acceptance policies share: a script that gives one table, found by
 * name, run afresh for each run, checked field by field, with options. Used by lua_*.c only.
 * A run       a script from a file gets a new state, in which its text (read once) runs again;
 *             every script gets a new `self`: an empty table through which the script's own is
 *             read, and self.options, the defaults with what the user gave in their place.
 * Random      each callback draws from numbers keyed by the run and where it is; what the rest of
 *             the state draws is not moved.
 * Errors      LS_ERR_SCRIPT for a fault in the script, LS_ERR_INPUT for a name or an option. */
#ifndef LS_LUA_SCRIPT_H
#define LS_LUA_SCRIPT_H

#include "lua_inner.h"
#include "lua_policy.h"

#define LS_LUA_NAME_MAX 64

/* A field the script's table may have; any other is an error. */
typedef struct ls_lua_field {
    const char *name;
    int type; /* LUA_T... */
    bool needed;
} ls_lua_field;

typedef struct ls_lua_role {
    const char *noun;   /* "policy", "rule": for messages */
    const char *folder; /* "length", "accept" */
    const ls_lua_field *field;
    int32_t n_field;
} ls_lua_role;

typedef struct ls_lua_script {
    const ls_lua_role *role;
    ls_lua *state;
    bool owned;        /* the state is the script's own, made anew for each run */
    char *path, *text; /* owned scripts; path is the table's place for others */
    size_t n_text;
    ls_lua_script_options options; /* a copy */
    char name[LS_LUA_NAME_MAX + 1];
    char who[LS_LUA_NAME_MAX + 40]; /* "policy 'x', load" */
    char *options_text;
    int ref_table, ref_options, ref_self; /* in the registry */
    ls_draw draw;                         /* where its random numbers stand */
    uint32_t n_draw;
} ls_lua_script;

/* A function of the script's table. */
typedef struct ls_lua_callback {
    int ref;                      /* LUA_NOREF: the script has none */
    char where[LS_LUA_WHERE_MAX]; /* "file:line" of the function */
    char who[LS_LUA_NAME_MAX + 40];
} ls_lua_callback;

/* Salts of a script's random numbers: what it is doing. */
enum { LS_LUA_AT_LOAD, LS_LUA_AT_BEGIN, LS_LUA_AT_ROUND, LS_LUA_AT_JUDGE };

/* Both zero *s first. After them, and after an error, destroy it. */
ls_status ls_lua_script_load(ls_lua_script *s, const ls_lua_role *role, const char *name,
                             const ls_lua_script_options *options, ls_err *err);
ls_status ls_lua_script_take(ls_lua_script *s, const ls_lua_role *role, ls_lua *state, int index,
                             const ls_lua_script_options *options, ls_err *err);
void ls_lua_script_destroy(ls_lua_script *s);

/* A new run: references and callbacks of an owned script are void after it. */
ls_status ls_lua_script_begin(ls_lua_script *s, uint64_t seed, uint32_t sequence, ls_err *err);
void ls_lua_script_seed(ls_lua_script *s, uint64_t seed, uint32_t sequence, int32_t position,
                        uint32_t salt);

/* Fields of the script's table. Callbacks raise only for lack of memory: call within
 * ls_lua_protect. */
void ls_lua_script_callback(ls_lua_script *s, const char *field, ls_lua_callback *out);
void ls_lua_script_field(ls_lua_script *s, const char *field); /* pushes it, nil if absent */
/* n_top of the table, 0 without; raises unless it is 0 to LS_TOP_MAX. */
int32_t ls_lua_script_n_top(ls_lua_script *s);

/* Calls with self and the values of the given references. The caller takes n_ret results off. */
ls_status ls_lua_script_call(ls_lua_script *s, const ls_lua_callback *cb, const int *arg_ref,
                             int n_arg, int n_ret, ls_err *err);
/* LS_ERR_SCRIPT about the value on top of the stack, which is popped: "file:line: plan returned
 * 4.5: `must`" */
ls_status ls_lua_script_bad_result(ls_lua_script *s, const ls_lua_callback *cb, const char *what,
                                   const char *must, ls_err *err);

/* lua_options.c. Merges the defaults of the table at `index` (fields options and ranges) with the
 * given ones; pushes the table of options, then its text "a=1 b=x". Raises LS_ERR_INPUT for what
 * the user gave, LS_ERR_SCRIPT for what the script declares. */
void ls_lua_options_merge(lua_State *L, int index, const ls_lua_option *given, int32_t n_given);

#endif
