/* cmd_synth.c - `lockstep synth`: a model folder with random weights. */
#include <stddef.h>

#include "commands.h"
#include "synth.h"
#include "term.h"

typedef struct own {
    int shape;
    ls_seed seed;
    bool quiet;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"shape", LS_SHAPE_NAMES, "whose sizes to take (default tiny)", LS_OPT_CHOICE, AT(shape), 0, 0,
     NULL},
    {"seed", "N", "seed of the weights (default 1)", LS_OPT_SEED, AT(seed), 0, 0, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

static void on_progress(void *self, int64_t done, int64_t total) {
    ls_term_progress(self, done >> 20, (total >> 20) + 1, "MiB of weights");
}

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    own a = {.seed = {.value = 1}};
    const ls_opt_group group = {"Synth", own_opts, sizeof own_opts / sizeof *own_opts, &a};
    ls_args args;
    LS_TRY(ls_options_parse(self, &group, 1, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos != 1)
        return ls_fail(err, LS_ERR_INPUT, "name one new folder: try lockstep synth --help");
    ls_term term = ls_term_open(0, a.quiet);
    ls_status status = ls_synth_write(ls_shape_at(a.shape), a.seed.value, args.pos[0], on_progress,
                                      ls_term_stopped, &term, err);
    ls_term_clear(&term);
    return status;
}

const ls_command ls_cmd_synth = {
    .name = "synth",
    .line = "write a model folder with random weights, for speed tests",
    .usage = "[OPTIONS] NEW_DIR",
    .about = "Writes config.json, model.safetensors (bf16) and a tokenizer of 256 bytes. The model "
             "says\n"
             "nothing sensible; its passes cost what those of the real one cost.",
    .examples = "  lockstep synth --shape smollm2-135m /tmp/m135\n"
                "  lockstep bench verify --target /tmp/m135\n",
    .run = run,
};
