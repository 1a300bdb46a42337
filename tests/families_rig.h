/* families_rig.h - the checkpoints of tests/fixtures/families: one for each model family, with what
 * Hugging Face transformers computed of it in double (tests/fixtures/make_families.py).
 * Errors   abort the test with a message. */
#ifndef LS_TEST_FAMILIES_RIG_H
#define LS_TEST_FAMILIES_RIG_H

#include "rig.h"

enum { FAM_COUNT = 12 };
extern const char *const fam_names[FAM_COUNT];

typedef struct fam_case {
    char dir[512];
    int32_t *token; /* [n_prompt + n_new] prompt, then greedy */
    int32_t n_prompt, n_new, n_vocab;
    double *logits; /* [n_prompt + n_new - 1, n_vocab], row p follows token p */
    double bound;   /* of a float32 engine */
} fam_case;

void fam_load(const char *name, fam_case *out);
void fam_free(fam_case *c);
/* As ls_rig_open, of a model that `change` (or NULL) may alter before the engine reads it. */
void fam_open(ls_rig *r, rig_device where, const fam_case *c, ls_cpu_options cpu,
              ls_engine_options options, void (*change)(ls_model *));

#endif
