/* cmd_inspect.c - `lockstep inspect`: what is in a model (a folder or a GGUF file), and whether two
 * make a pair. */
#include "commands.h"
#include "inspect.h"

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    ls_args args;
    LS_TRY(ls_options_parse(self, NULL, 0, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos < 1 || args.n_pos > 2)
        return ls_fail(err, LS_ERR_INPUT,
                       "give one model folder or GGUF file, or two: try lockstep inspect --help");
    return ls_inspect_print(stdout, args.pos[0], args.n_pos == 2 ? args.pos[1] : NULL, err);
}

const ls_command ls_cmd_inspect = {
    .name = "inspect",
    .line = "say what is in a model, and whether two make a pair",
    .usage = "TARGET_DIR [DRAFT_DIR]",
    .about =
        "Reads a Hugging Face folder or a GGUF file with every check that decoding makes, and\n"
        "prints its shape, vocabulary, number types and digests. With two, also says whether the\n"
        "second can draft for the first.",
    .examples = "  lockstep inspect experiments/models/target\n"
                "  lockstep inspect experiments/models/target experiments/models/draft\n",
    .run = run,
};
