/* config_rig.h - the config.json of a fixture with members changed, read again.
 * Errors   abort the test; what the reader says comes back. */
#ifndef LS_TEST_CONFIG_RIG_H
#define LS_TEST_CONFIG_RIG_H

#include "config.h"

/* A member replaced (a JSON text, null among them), or removed (NULL). */
typedef struct change {
    const char *key, *value;
} change;

/* tests/fixtures/families/NAME/config.json with n changes. */
ls_status with_family(const char *name, const change *list, size_t n, ls_config *c, ls_err *err);

#endif
