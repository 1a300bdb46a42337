/* cmd_synth.c - `lockstep synth`: a model folder with random weights, or a pair of them. */
#include <stddef.h>

#include "commands.h"
#include "synth.h"
#include "term.h"

typedef struct own {
    int shape;
    ls_seed seed;
    int32_t draft_layers, threads;
    float divergence;
    bool quiet;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"shape", LS_SHAPE_NAMES, "whose sizes to take (default tiny)", LS_OPT_CHOICE, AT(shape), 0, 0,
     NULL},
    {"draft-layers", "N",
     "make a pair, NEW_DIR/target and NEW_DIR/draft: the draft is\n"
     "the target's first N layers with its embedding and head",
     LS_OPT_INT, AT(draft_layers), 1, 1024, NULL},
    {"divergence", "S",
     "how much the target's later layers add, over what the first\n"
     "N added; 0: the draft always agrees (default 0.1)",
     LS_OPT_NUMBER, AT(divergence), 0, 1000, NULL},
    {"seed", "N", "seed of the weights (default 1)", LS_OPT_SEED, AT(seed), 0, 0, NULL},
    {"threads", "N", "threads (default: all cores); the bytes do not depend on it", LS_OPT_INT,
     AT(threads), 1, 1024, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

static void on_progress(void *self, int64_t done, int64_t total) {
    ls_term_progress(self, done >> 20, (total >> 20) + 1, "MiB of weights");
}

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    own a = {.seed = {.value = 1}, .divergence = 0.1f};
    const ls_opt_group group = {"Synth", own_opts, sizeof own_opts / sizeof *own_opts, &a};
    ls_args args;
    LS_TRY(ls_options_parse(self, &group, 1, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos != 1)
        return ls_fail(err, LS_ERR_INPUT, "name one new folder: try lockstep synth --help");
    ls_term term = ls_term_open(0, a.quiet);
    const ls_synth_options o = {.seed = a.seed.value,
                                .draft_layers = a.draft_layers,
                                .divergence = (double)a.divergence,
                                .n_threads = a.threads,
                                .self = &term,
                                .progress = on_progress,
                                .stop = ls_term_stopped};
    ls_status status = ls_synth_write(ls_shape_at(a.shape), &o, args.pos[0], err);
    ls_term_clear(&term);
    return status;
}

const ls_command ls_cmd_synth = {
    .name = "synth",
    .line = "write a model folder with random weights, for speed tests",
    .usage = "[OPTIONS] NEW_DIR",
    .about =
        "Writes config.json, model.safetensors (bf16) and tokenizer.json. The model says nothing\n"
        "sensible; its passes cost what those of the real one cost, and the entropy of its next\n"
        "token is about half of what its vocabulary allows.\n\n"
        "A pair agrees the less the larger --divergence is. Greedy acceptance (kept / judged) in\n"
        "drafts of 4, measured:\n"
        "  divergence                         0  0.05   0.1   0.2   0.4   0.8\n"
        "  tiny, 1 of 2 layers             1.00  0.94  0.91  0.79  0.62  0.36\n"
        "  smollm2-135m, 4 of 30 layers    1.00  0.88  0.78  0.60  0.28  0.09\n"
        "The larger the vocabulary, the steeper; seeds and texts move it by some hundredths.",
    .examples =
        "  lockstep synth --shape smollm2-135m /tmp/m135\n"
        "  lockstep bench verify --target /tmp/m135\n"
        "  lockstep synth --shape llama-3-8b --draft-layers 2 --divergence 0.1 /dev/shm/p8\n"
        "  lockstep bench round --target /dev/shm/p8/target --draft /dev/shm/p8/draft\n",
    .run = run,
};
