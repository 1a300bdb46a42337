/* prompts.h - prompt sets: JSONL files of {id, task, source, prompt}, and a sample of them.
 * File        one object a line; "id" and "prompt" are non-empty strings, "task" and "source" are
 *             optional strings, other fields are ignored. An id occurs once.
 * Sample      n of them, the same for the same files, n and seed: every set is put in an order
 *             drawn from (seed, id) alone, then the sets take turns. So a sample of n is the
 *             beginning of the sample of n + 1, and an added prompt does not reshuffle the others.
 * Errors      LS_ERR_INPUT naming file, line and field. On error nothing is added.
 * Memory      ls_prompts owns its strings: zero it first, free it with ls_prompts_free. */
#ifndef LS_PROMPTS_H
#define LS_PROMPTS_H

#include <stdint.h>

#include "status.h"

typedef struct ls_prompt {
    char *id, *task, *source, *text;
    char *set; /* the file's name without folder and ".jsonl" */
} ls_prompt;

typedef struct ls_prompts {
    ls_prompt *prompt;
    int32_t n;
} ls_prompts;

/* Appends the prompts of one file, or of every *.jsonl of a folder in the order of their names. */
ls_status ls_prompts_read(const char *path, ls_prompts *into, ls_err *err);
/* Keeps n of them in the sample's order; n <= 0 or n >= p->n keeps all, in that order too. */
ls_status ls_prompts_sample(ls_prompts *p, int32_t n, uint64_t seed, ls_err *err);
void ls_prompts_free(ls_prompts *p);

#endif
