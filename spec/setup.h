/* setup.h - from options to models, engines, drafter, policy and rule that are ready to use; shared
 * by every command that decodes.
 * Pair        without --target the embedded pair; a --target alone needs --draft DIR, or a drafter
 *             that needs none.
 * Errors      LS_ERR_INPUT naming the option; nothing is left open on error.
 * Memory      a setup owns all it opened; ls_setup_close frees it. Options are borrowed from argv.
 * Threads     as the engines: one owner. */
#ifndef LS_SETUP_H
#define LS_SETUP_H

#include "chunk_text.h"
#include "device.h"
#include "drafter.h"
#include "engine.h"
#include "options.h"
#include "places.h"
#include "policy.h"
#include "rule.h"

typedef enum ls_drafter_kind {
    LS_USE_MODEL = 0,
    LS_USE_NGRAM,
    LS_USE_GARBAGE,
    LS_USE_NONE,
    LS_USE_LAYERS /* the target's own first layers, norm and head: early exit */
} ls_drafter_kind;

typedef struct ls_drafter_arg {
    ls_drafter_kind kind;
    int32_t layers; /* of LS_USE_LAYERS */
} ls_drafter_arg;

typedef struct ls_model_args {
    const char *target, *draft;
    ls_drafter_arg drafter;
    int32_t context, block_rows;
    ls_device_args device;
    int kv; /* ls_dtype */
    bool eager;
    ls_chunk_rule chunk; /* zero: the engine's */
    bool no_tokenizer;   /* not an option: for commands that read no text */
    ls_load load;        /* nor is this: told of loads that take a while */
} ls_model_args;

typedef struct ls_decode_args {
    const char *rule;
    ls_list option; /* of the policy, name=value */
    int32_t top_k, max_new;
    float top_p, min_p;
    ls_seed seed;
    bool ignore_eos;
    ls_list stop;
} ls_decode_args;

/* Defaults, and the option groups that fill the structs. */
ls_model_args ls_model_args_default(void);
ls_decode_args ls_decode_args_default(void);
ls_opt_group ls_model_group(ls_model_args *a);
ls_opt_group ls_decode_group(ls_decode_args *a);

typedef struct ls_setup {
    ls_places places;
    ls_backend *be;
    ls_model *target, *draft; /* draft: NULL without a model drafter */
    ls_engine *engine, *draft_engine;
    ls_drafter *drafter; /* NULL: none */
    int32_t n_vocab;     /* ids both models know */
} ls_setup;

ls_status ls_setup_open(const ls_model_args *a, ls_setup *out, ls_err *err);
void ls_setup_close(ls_setup *s);
/* Another engine over the target with a contiguous cache, for plain decode beside a speculative
 * run. chunk: zero = as the target's. */
ls_status ls_setup_plain(const ls_setup *s, ls_chunk_rule chunk, ls_engine **out, ls_err *err);

/* "fixed:4", "svip", "svip:h=0.4,max=16", "my/policy.lua". `option` adds name=value pairs. The
 * text of the options in force goes to `options` for records. */
ls_status ls_setup_policy(const ls_setup *s, const char *text, const ls_list *option,
                          ls_policy **out, char options[256], ls_err *err);
/* "exact", "rejection", or an acceptance policy: "typical:epsilon=0.1", "my/rule.lua". */
ls_status ls_setup_rule(const ls_setup *s, const char *text, ls_rule **out, ls_err *err);

/* A seed nobody chose; small enough to be read aloud. */
ls_status ls_fresh_seed(ls_seed *seed, ls_err *err);
/* "cpu", "cuda", "cuda:1" */
ls_status ls_parse_device(void *field, const char *value, ls_err *err);
/* "even:32:64", "splits:4", "doubling:32:64" */
ls_status ls_parse_chunk(void *field, const char *value, ls_err *err);

#endif
