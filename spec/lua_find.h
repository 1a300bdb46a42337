/* lua_find.h - scripts by name: "svip" is PATH/length/svip.lua, else PATH/svip.lua, in the first
 * folder of the path that has one. A name with a slash or ending in .lua is a file as it stands.
 * Errors      LS_ERR_INPUT for a name nobody has; the message lists those there are. */
#ifndef LS_LUA_FIND_H
#define LS_LUA_FIND_H

#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `noun` ("policy") is for the message; *out is malloc'd. */
ls_status ls_lua_find(const char *noun, const char *folder, const char *name,
                      const char *const *path, int32_t n_path, char **out, ls_err *err);

#ifdef __cplusplus
}
#endif

#endif
