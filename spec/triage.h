/* triage.h - where two runs part: the first operation whose output differs, and by how much.
 * Method      run both again up to the position of the fork with a trace on that one pass, then
 *             compare the operations in order. A fork in the first operations of a layer is
 *             arithmetic; operations that all agree while tokens differ are logic.
 * Errors      what keeps a run from being repeated; a rerun that agrees leaves fork->op empty. */
#ifndef LS_TRIAGE_H
#define LS_TRIAGE_H

#include "check.h"

/* fork->position, round and row are set; fills layer, op, element, bits and ulp. */
ls_status ls_triage(const ls_gen *gen, const ls_plain *plain, ls_engine *plain_engine,
                    ls_fork *fork, ls_err *err);

/* Distance in representable floats; -0 and +0 are one apart. */
int64_t ls_ulp_distance(uint32_t a, uint32_t b);

#endif
