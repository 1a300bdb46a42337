/* places.h - where the program's own data lies: policies, experiments, the embedded pair, prompts.
 * Search      the first folder that holds `policies/length` of: the executable's folder and those
 *             above it (a build tree inside the sources), share/lockstep in one of them (an
 *             installed tree), the data folder of the build, the current folder.
 * Errors      LS_ERR_INPUT naming what was looked for and the options that make it unnecessary.
 * Memory      one string each, owned; free with ls_places_free. */
#ifndef LS_PLACES_H
#define LS_PLACES_H

#include "status.h"

typedef struct ls_places {
    char *root;           /* NULL: none was found, and neither were the rest */
    char *policies;       /* ROOT/policies */
    char *prompts;        /* ROOT/experiments/prompts */
    char *target, *draft; /* ROOT/experiments/models/..., NULL: the pair is not there */
} ls_places;

/* Finding nothing is no error: what needs a place says so then. */
ls_status ls_places_find(ls_places *out, ls_err *err);
void ls_places_free(ls_places *p);

/* LS_ERR_INPUT unless the embedded pair was found. */
ls_status ls_places_need_pair(const ls_places *p, ls_err *err);

#endif
