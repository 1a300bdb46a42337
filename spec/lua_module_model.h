/* lua_module_model.h - the objects behind handles on models, engines and drafters.
 * Memory      an engine holds its model, a drafter its engine or model: closing the handle of what
 *             is still in use only drops the script's own hold on it.
 * Included by lua_module_*.c only. */
#ifndef LS_LUA_MODULE_MODEL_H
#define LS_LUA_MODULE_MODEL_H

#include "drafter.h"
#include "lua_module.h"

typedef struct ls_lua_model {
    ls_lua_obj base;
    ls_model *m;
    char digest[65];
} ls_lua_model;

typedef struct ls_lua_engine {
    ls_lua_obj base;
    ls_lua_model *model;
    ls_backend *be;
    bool own_be; /* else the run's: engines of a GPU share it */
    ls_engine *e;
} ls_lua_engine;

typedef struct ls_lua_drafter {
    ls_lua_obj base;
    ls_lua_engine *engine; /* of a draft model */
    ls_lua_model *model;   /* whose vocabulary the others draft from */
    ls_lua_model *paired;  /* target it was last found to fit */
    ls_drafter *d;
} ls_lua_drafter;

extern const ls_lua_class ls_lua_model_class, ls_lua_engine_class, ls_lua_drafter_class;

/* Pushes a box of the ids of the text or list at idx. */
ls_ids *ls_lua_push_ids(lua_State *L, int idx, const ls_lua_model *m, const char *call);
/* Pushes the text of ids, special tokens left out. */
void ls_lua_push_text(lua_State *L, const ls_lua_model *m, const int32_t *id, size_t n,
                      const char *call);
/* Pushes a list of ids. */
void ls_lua_push_tokens(lua_State *L, const int32_t *id, size_t n);

#endif
