/* lua_inner.h - the inside of a Lua state, for lua_*.c only; the one header that includes lua.h.
 * State       found from any lua_State through its extra space (ls_lua_of): no globals.
 * Budget      `budget` is what is left to the call in progress. A call inside a call gets the
 *             smaller of its own limit and what its caller has left.
 * Stopping    a spent budget sets `budget.stop` and arms the hook to fire at every instruction; the
 *             error raised is the address of a private constant, so it needs no memory, and the
 *             sandbox's pcall hands it on. */
#ifndef LS_LUA_INNER_H
#define LS_LUA_INNER_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "draw.h"
#include "lua_state.h"

/* Instructions between two looks at the clock. One instruction can take milliseconds (comparing or
 * joining the longest strings the memory limit allows), so the number is small. */
#define LS_LUA_HOOK_STEP 100

typedef enum ls_lua_stop {
    LS_LUA_RUNNING = 0,
    LS_LUA_STOP_STEPS,
    LS_LUA_STOP_TIME,
    LS_LUA_STOP_ASKED /* by ls_lua_options.stop, or an LS_ERR_STOPPED raised by a host function */
} ls_lua_stop;

typedef struct ls_lua_budget {
    int64_t n_left, deadline_ns;
    int64_t n_step, time_us; /* the limits they came from, for the message */
    ls_lua_stop stop;
} ls_lua_budget;

#define LS_LUA_WHERE_MAX 160

struct ls_lua {
    lua_State *L;
    ls_lua_limits limits; /* defaults filled in */
    char **path;
    int32_t n_path;
    bool patterns;
    void (*print)(void *self, const char *text, size_t n);
    bool (*stop)(void *self);
    void *self;

    int64_t now_bytes, peak_bytes;
    bool refused, refused_deep;        /* the memory limit said no... */
    char refused_at[LS_LUA_WHERE_MAX]; /* ...to what runs at this line */

    ls_lua_budget budget;
    int64_t asked_ns; /* when stop() was last asked */
    int depth;        /* calls from the host in progress */
    bool armed;
    char stopped_at[LS_LUA_WHERE_MAX]; /* where a script was when it was stopped */

    bool frozen;
    ls_status raised;    /* code of the host error on its way up, LS_OK without one */
    const char *loading; /* chunk being parsed: its errors name their own line */
    char message[LS_ERR_MAX];

    ls_draw draw;
    uint32_t n_draw;
};

/* lua_message.c: where a script is, and what an error says; neither allocates nor runs a script. */
void ls_lua_where(lua_State *L, char *dst, size_t cap); /* "file:line", "" outside of scripts */
int ls_lua_on_error(lua_State *L);                      /* message handler: fills state->message */
void ls_lua_describe(ls_lua *s, const char *text, size_t n); /* message = where + text */
extern const char ls_lua_stop_key;

/* lua_load.c. Parse leaves the chunk or an error value and returns Lua's status; it never raises.
 * `path` must outlive the handling of the error. */
int ls_lua_parse(lua_State *L, const char *path, const char *text, size_t n);
ls_status ls_lua_read(const char *path, char **text, size_t *n, ls_err *err);

/* lua_lib.c, lua_table.c: called once, protected, on a bare state. */
void ls_lua_open_lib(lua_State *L);
void ls_lua_push_table_lib(lua_State *L);
int ls_lua_pairs(lua_State *L);
int ls_lua_sort(lua_State *L);

/* Keys of the registry. */
#define LS_LUA_PRELOAD "lockstep.preload"
#define LS_LUA_LOADED "lockstep.loaded"

#endif
