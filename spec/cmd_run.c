/* cmd_run.c - `lockstep run`: an experiment written in Lua. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "file.h"
#include "lua_run.h"
#include "setup.h"
#include "term.h"

typedef struct own {
    const char *out, *target, *draft;
    ls_list policy_dir;
    ls_device_args device;
    ls_seed seed;
    bool quiet;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"out", "DIR", "where results go (default: results)", LS_OPT_TEXT, AT(out), 0, 0, NULL},
    {"target", "DIR", "what the script calls \"target\" (default: the embedded pair's)",
     LS_OPT_TEXT, AT(target), 0, 0, NULL},
    {"draft", "DIR", "what it calls \"draft\"", LS_OPT_TEXT, AT(draft), 0, 0, NULL},
    {"policy-dir", "DIR", "where policies are looked for first; may be repeated", LS_OPT_LIST,
     AT(policy_dir), 0, 0, NULL},
    {"seed", "N", "seed the script begins with (default 1: a study repeats itself)", LS_OPT_SEED,
     AT(seed), 0, 0, NULL},
    {"device", "NAME", "device of engines that name none: cpu (default), cuda or cuda:N",
     LS_OPT_OTHER, AT(device.device), 0, 0, ls_parse_device},
    {"profile", "ieee|mma|cublas", "arithmetic of engines that name none", LS_OPT_CHOICE,
     AT(device.profile), 0, 0, NULL},
    {"threads", "N", "threads of the CPU (default: all cores); the bits do not depend on it",
     LS_OPT_INT, AT(device.cpu.n_threads), 1, 1024, NULL},
    {"simd", "auto|plain|avx2|avx512", "instructions of the CPU; the bits do not depend on it",
     LS_OPT_CHOICE, AT(device.cpu.simd), 0, 0, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

static void on_print(void *self, const char *text, size_t n) {
    ls_term_clear(self);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

static void on_note(void *self, const char *line) {
    ls_term_clear(self);
    fprintf(stderr, "%s\n", line);
}

static void on_progress(void *self, int64_t done, int64_t total, const char *text) {
    ls_term_progress(self, done, total, text);
}

static ls_status work(const own *a, const ls_args *args, const ls_places *places, ls_err *err) {
    ls_term term = ls_term_open(0, a->quiet);
    const char *dirs[LS_LIST_MAX + 1];
    int32_t n_dir = 0;
    for (; n_dir < a->policy_dir.n; n_dir++)
        dirs[n_dir] = a->policy_dir.item[n_dir];
    if (places->policies)
        dirs[n_dir++] = places->policies;
    const ls_lua_run run = {.script = args->pos[0],
                            .arg = args->pos + 1,
                            .n_arg = args->n_pos - 1,
                            .out_dir = a->out,
                            .target_dir = a->target ? a->target : places->target,
                            .draft_dir = a->draft ? a->draft : places->draft,
                            .prompt_dir = places->prompts,
                            .policy_dir = dirs,
                            .n_policy_dir = n_dir,
                            .device = a->device,
                            .seed = a->seed.value,
                            .self = &term,
                            .print = on_print,
                            .note = on_note,
                            .progress = on_progress,
                            .stop = ls_term_stopped};
    ls_status status = ls_lua_run_script(&run, err);
    ls_term_clear(&term);
    return status;
}

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    own a = {.out = "results", .seed = {.value = 1}, .device.device = LS_DEVICE_CPU};
    const ls_opt_group group = {"Run (before the script's name)", own_opts,
                                sizeof own_opts / sizeof *own_opts, &a};
    ls_args args;
    LS_TRY(ls_options_parse(self, &group, 1, true, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos < 1)
        return ls_fail(err, LS_ERR_INPUT, "name a script: try lockstep run --help");
    ls_places places;
    LS_TRY(ls_places_find(&places, err));
    ls_status status = work(&a, &args, &places, err);
    ls_places_free(&places);
    return status;
}

const ls_command ls_cmd_run = {
    .name = "run",
    .line = "run an experiment written in Lua",
    .usage = "[OPTIONS] SCRIPT.lua [NAME=VALUE...]",
    .about =
        "Runs the script in a sandbox where require \"lockstep\" gives models, prompts, policies\n"
        "and statistics. What stands behind its name is the script's own; --help there lists it.\n"
        "Finished cells are kept whatever happens: run it again, and it goes on.",
    .examples = "  lockstep run experiments/acceptance_rate.lua\n"
                "  lockstep run experiments/acceptance_rate.lua --help\n"
                "  lockstep run --out /tmp/study experiments/reproducibility.lua\n",
    .run = run,
};
