/* inspect.h - what is in a model (a folder, or a GGUF file), for a person: the text of `lockstep
 * inspect`.
 * Errors    what cannot be read is an error; that two models are no pair is an answer, not one.
 * Cost      reads every byte of the weights for the digest. */
#ifndef LS_INSPECT_H
#define LS_INSPECT_H

#include <stdio.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Writes to out; with dir2, describes both and says whether they can be target and draft. */
ls_status ls_inspect_print(FILE *out, const char *dir, const char *dir2, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
