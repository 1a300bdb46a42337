/* lua_module.h - what the files of `require "lockstep"` share: the run, handles, argument tables.
 * Files       lua_module_{args,handle,json}.c serve the others; each of lua_module_{model,policy,
 *             generate,check,stats,data,script,kernel,figure}.c brings the functions of one
 *             subject.
 * Raising     functions that take a lua_State may raise; what they hold then is freed by the
 *             collector: handles, boxes and Lua values only, never a bare malloc.
 * Messages    "script.lua:12: generate: 'max_new' must be an integer >= 1, got 'x'".
 * Included by lua_*.c only. */
#ifndef LS_LUA_MODULE_H
#define LS_LUA_MODULE_H

#include <jansson.h>
#include <lauxlib.h>
#include <lua.h>

#include "lua_run.h"
#include "lua_state.h"

/* ---- the run (lua_module.c) ------------------------------------------------------------------ */

#define LS_LUA_GPUS 16

typedef struct ls_lua_host {
    const ls_lua_run *run;
    ls_lua *lua;
    struct {
        int32_t device;
        int profile;
        ls_backend *be;
    } gpu[LS_LUA_GPUS]; /* engines of one device and profile share an order of work */
    int32_t n_gpu;
    bool busy;       /* a generation is under way: its policy and engines are taken */
    bool done;       /* --help was answered: the script ends here, and well */
    bool failed;     /* ls.fail was called */
    bool used_args;  /* ls.options was called */
    char digest[65]; /* of the script's text */
    ls_err fail;     /* what ls.fail said */
} ls_lua_host;

/* Makes `require "lockstep"` work in the state. The host outlives it. */
ls_status ls_lua_module_install(ls_lua_host *host, ls_err *err);
ls_lua_host *ls_lua_host_of(lua_State *L);

/* Adds functions to the table on top of the stack; one of these a file. */
void ls_lua_open_model(lua_State *L);
void ls_lua_open_policy(lua_State *L);
void ls_lua_open_generate(lua_State *L);
void ls_lua_open_check(lua_State *L);
void ls_lua_open_stats(lua_State *L);
void ls_lua_open_data(lua_State *L);
void ls_lua_open_script(lua_State *L);
void ls_lua_open_kernel(lua_State *L);
void ls_lua_open_figure(lua_State *L);

/* The script's backend of a GPU and profile, opened when it is first asked for and closed after the
 * script. */
ls_status ls_lua_gpu(ls_lua_host *host, const ls_device_args *d, ls_backend **out, ls_err *err);

/* Lists in the registry that go into every record: options given, models and devices opened. */
#define LS_LUA_OPTIONS "lockstep.options"
#define LS_LUA_MODELS "lockstep.models"
#define LS_LUA_DEVICES "lockstep.devices"
/* Puts the value on top into the list unless it is there, and pops it (lua_module_data.c). */
void ls_lua_remember(lua_State *L, const char *list);

/* Raises with the script's file and line before the message; they do not return. */
int ls_lua_bad(lua_State *L, const char *fmt, ...) LS_PRINTF(2, 3);
int ls_lua_bad_err(lua_State *L, const char *call, const ls_err *err);

/* ---- handles (lua_module_handle.c) ----------------------------------------------------------- */

typedef struct ls_lua_class ls_lua_class;

/* The head of every object a script can hold. A handle is a userdata with one pointer to it;
 * objects count references, so that an engine keeps its model whatever is closed first. */
typedef struct ls_lua_obj {
    const ls_lua_class *cls;
    int32_t n_ref;
    char *about; /* canonical JSON: what a record says of it; NULL: not fit for a record */
} ls_lua_obj;

struct ls_lua_class {
    const char *name;           /* "engine" */
    void (*drop)(ls_lua_obj *); /* the last reference went: free what it holds, not itself */
    const luaL_Reg *fields;     /* h.name: called with the handle, pushes the value */
    const luaL_Reg *methods;    /* h:name(...) */
};

/* Pushes a handle on a new zeroed object of `bytes`, which begins with an ls_lua_obj. */
void *ls_lua_new(lua_State *L, const ls_lua_class *cls, size_t bytes);
/* The object at idx, or an error that says what `what` ("engine: argument 1") has to be. */
void *ls_lua_check(lua_State *L, int idx, const ls_lua_class *cls, const char *what);
/* NULL when the value is no open handle of the class. */
void *ls_lua_test(lua_State *L, int idx, const ls_lua_class *cls);
ls_lua_obj *ls_lua_any(lua_State *L, int idx); /* of whatever class, NULL when it is none */
const char *ls_lua_article(const char *noun);  /* "an" before "engine" */
void ls_lua_ref(void *obj);
void ls_lua_unref(void *obj); /* NULL is allowed */
/* Sets obj->about to the JSON of the value on top of the stack and pops it. */
void ls_lua_set_about(lua_State *L, void *obj);

/* Zeroed memory on the stack that `free_fn` cleans up when the collector takes it. */
void *ls_lua_box(lua_State *L, size_t bytes, void (*free_fn)(void *));

/* ---- argument tables (lua_module_args.c) ----------------------------------------------------- */

/* A table of named fields given to a call. `call` begins every message. */
typedef struct ls_lua_args {
    lua_State *L;
    int at; /* absolute index; 0: nothing was given, every field is absent */
    const char *call;
} ls_lua_args;

/* The table at idx (optional: or nothing); refuses fields that are not in `known` (NULL-ended). */
ls_lua_args ls_lua_args_at(lua_State *L, int idx, bool optional, const char *call,
                           const char *const *known);
/* Pushes the raw field; false (and nil pushed) when absent. */
bool ls_lua_arg_push(const ls_lua_args *a, const char *name);
bool ls_lua_arg_has(const ls_lua_args *a, const char *name);
int64_t ls_lua_arg_int(const ls_lua_args *a, const char *name, int64_t min, int64_t max,
                       int64_t fallback);
double ls_lua_arg_number(const ls_lua_args *a, const char *name, double min, double max,
                         double fallback);
bool ls_lua_arg_bool(const ls_lua_args *a, const char *name, bool fallback);
/* Valid as long as the table holds it. */
const char *ls_lua_arg_string(const ls_lua_args *a, const char *name, const char *fallback);
/* Place of the string among the names (NULL-ended). */
int ls_lua_arg_choice(const ls_lua_args *a, const char *name, const char *const *names,
                      int fallback);
/* NULL when absent, which `need` refuses. */
void *ls_lua_arg_obj(const ls_lua_args *a, const char *name, const ls_lua_class *cls, bool need);
/* A list of numbers, new memory in a box pushed on the stack; *n its length. */
double *ls_lua_list_numbers(lua_State *L, int idx, const char *what, int32_t *n);

/* Integer value of a number at idx that has one (4.0 is 4). */
bool ls_lua_integer(lua_State *L, int idx, int64_t *out);
/* "'x'", "4.5", "nothing", "a table": a value in words. Returns dst. */
char *ls_lua_show(lua_State *L, int idx, char *dst, size_t cap);

/* ---- JSON (lua_module_json.c) ---------------------------------------------------------------- */

/* Pushes the value at idx as JSON text: keys sorted, whole numbers as integers, others with the
 * fewest digits that read back the same, NaN and infinities as null, a handle as its `about`.
 * `what` names the value in messages. An empty table is {}. */
const char *ls_lua_json_push(lua_State *L, int idx, const char *what, size_t *n);
/* Pushes a JSON value; null is nil. */
void ls_lua_json_pull(lua_State *L, const json_t *value);
void ls_lua_json_pull_text(lua_State *L, const char *text, size_t n, const char *name);

#endif
