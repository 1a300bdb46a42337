/* model.h - a model on disk, opened: config, weights, tokenizer, and where they came from.
 * Disk        a Hugging Face folder, or one GGUF file (gguf_tokenizer.h).
 * Memory      weights stay in the file mapping; nothing is copied but what alignment forces, and
 *             what a GGUF file holds in blocks that have no body, or in another order of rows
 *             (gguf_view.h).
 * Errors      LS_ERR_INPUT naming the file, the field and how to mend; never a partly open model.
 * Threads     immutable after open; any number of engines may borrow it. */
#ifndef LS_MODEL_H
#define LS_MODEL_H

#include "config.h"
#include "checkpoint.h"
#include "tokenizer.h"
#include "weights.h"

typedef struct ls_model {
    char *dir; /* the folder, or the path of the GGUF file */
    ls_config config;
    ls_checkpoint *checkpoint;
    ls_weights *weights;
    ls_tokenizer *tokenizer; /* NULL: the model has none, or it was not asked for */
    int32_t n_token;         /* ids that have a string, at most config V; V without a tokenizer */
} ls_model;

typedef struct ls_model_options {
    bool no_tokenizer;  /* do not read it */
    bool partial_bytes; /* accept a tokenizer that lacks bytes (tokenizer.h) */
    bool widen;         /* block types of a GGUF file all become f32: to compare with */
    ls_load load;       /* told of what takes a while */
    ls_head_rule head;  /* when the file and the tied flag disagree (weights.h) */
} ls_model_options;

ls_status ls_model_open(const char *dir, ls_model_options options, ls_model **out, ls_err *err);
void ls_model_close(ls_model *m);

/* Can `draft` draft for `target`? Same strings for the same ids; padding may differ. On success
 * *n_vocab is the number of ids both know. */
ls_status ls_model_pair(const ls_model *target, const ls_model *draft, int32_t *n_vocab,
                        ls_err *err);

#endif
