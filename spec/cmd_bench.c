/* cmd_bench.c - `lockstep bench`: what passes, rounds, kernels, policies and loads cost, as ratios
 * measured in one run. */
#include <string.h>

#include "bench_cmd.h"
#include "commands.h"
#include "synth.h"

#define AT(field) offsetof(ls_bench_args, field)
static const ls_opt model_opts[] = {
    {"target", "DIR", "model to measure (default: the embedded target)", LS_OPT_TEXT,
     AT(model.target), 0, 0, NULL},
    {"draft", "DIR", "round: model that drafts", LS_OPT_TEXT, AT(model.draft), 0, 0, NULL},
    {"shape", "none|" LS_SHAPE_NAMES,
     "random weights of this shape instead, in a folder that is\n"
     "removed at once (see lockstep synth)",
     LS_OPT_CHOICE, AT(shape), 0, 0, NULL},
    {"draft-layers", "N", "round with --shape: layers of the draft (default 1)", LS_OPT_INT,
     AT(draft_layers), 1, 1024, NULL},
    {"divergence", "S", "round with --shape: how seldom it agrees (default 0.1)", LS_OPT_NUMBER,
     AT(divergence), 0, 1000, NULL},
    {"tmp", "DIR", "where the folder of --shape is made (default /tmp)", LS_OPT_TEXT, AT(tmp), 0, 0,
     NULL},
    {"device", "NAME", "cpu (default), cuda or cuda:N", LS_OPT_OTHER, AT(model.device.device), 0, 0,
     ls_parse_device},
    {"profile", "ieee|mma|cublas", "arithmetic", LS_OPT_CHOICE, AT(model.device.profile), 0, 0,
     NULL},
    {"against", "none|ieee|mma|cublas",
     "price (default cublas), prompt: another engine in the same\n"
     "run, with this profile",
     LS_OPT_CHOICE, AT(against), 0, 0, NULL},
    {"threads", "N", "threads of the CPU (default: all cores)", LS_OPT_INT,
     AT(model.device.cpu.n_threads), 1, 1024, NULL},
    {"simd", "auto|plain|avx2|avx512", "instructions of the CPU", LS_OPT_CHOICE,
     AT(model.device.cpu.simd), 0, 0, NULL},
    {"eager", NULL, "launch every pass anew; by default a GPU replays recorded ones", LS_OPT_FLAG,
     AT(model.eager), 0, 0, NULL},
    {"kv", "f32|bf16", "how keys and values are stored", LS_OPT_CHOICE, AT(model.kv), 0, 0, NULL},
    {"block-rows", "N", "paged cache with blocks of N rows", LS_OPT_INT, AT(model.block_rows), 1,
     65536, NULL},
    {"chunk", "RULE",
     "even:MIN:MAX, splits:N or doubling:MIN:MAX; attention: may be\n"
     "repeated",
     LS_OPT_LIST, AT(chunk), 0, 0, NULL},
};
static const ls_opt own_opts[] = {
    {"length", "N,...",
     "tokens in the cache (verify, decode, price: 256;\n"
     "attention: 512 to 32768), or of a prompt (round: 128)",
     LS_OPT_LIST, AT(length), 0, 0, NULL},
    {"rows", "N",
     "verify, price: widths 1 to N (default 16; past 16 the powers of\n"
     "two); attention: 1 and N (at most 8)",
     LS_OPT_INT, AT(rows), 1, LS_BENCH_ROWS, NULL},
    {"drafts", "N,...", "round, price: drafted tokens a round (default 4)", LS_OPT_LIST,
     AT(draft_rows), 0, 0, NULL},
    {"rows-a-pass", "N,...", "prompt: rows a pass (default 64,256,1024)", LS_OPT_LIST,
     AT(chunk_rows), 0, 0, NULL},
    {"prompts", "N", "round, price: random prompts (default 8)", LS_OPT_INT, AT(prompts), 1, 1024,
     NULL},
    {"tokens", "N",
     "round, price: new tokens of each (default 64); prompt: its length\n"
     "(default 1024)",
     LS_OPT_INT, AT(tokens), 1, 1 << 20, NULL},
    {"repeats", "N", "timed repeats of everything compared, interleaved (default 15)", LS_OPT_INT,
     AT(repeats), 1, 100000, NULL},
    {"policy", "NAME|FILE", "policy: may be repeated (default: those of policies/length)",
     LS_OPT_LIST, AT(policy), 0, 0, NULL},
    {"calls", "N", "policy: rounds asked for (default 20000)", LS_OPT_INT, AT(calls), 100,
     100000000, NULL},
    {"json", NULL, "print a JSON record instead of the table", LS_OPT_FLAG, AT(json), 0, 0, NULL},
    {"record", "FILE", "write the JSON record to FILE beside the table", LS_OPT_TEXT, AT(record), 0,
     0, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

static const struct {
    const char *name;
    ls_status (*run)(ls_bench_job *, ls_err *);
    int32_t tokens; /* default of --tokens */
} subjects[] = {
    {"verify", ls_bench_verify, 0},       {"decode", ls_bench_decode, 0},
    {"attention", ls_bench_attention, 0}, {"round", ls_bench_round, 64},
    {"prompt", ls_bench_prompt, 1024},    {"price", ls_bench_price, 64},
    {"policy", ls_bench_policy, 0},       {"load", ls_bench_load, 0},
};

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    ls_bench_job j = {.a = {.model = ls_model_args_default(),
                            .rows = 16,
                            .repeats = 15,
                            .calls = 20000,
                            .draft_layers = 1,
                            .divergence = 0.1f,
                            .prompts = 8,
                            .tmp = "/tmp"}};
    const ls_opt_group groups[] = {
        {"Models and engine", model_opts, sizeof model_opts / sizeof *model_opts, &j.a},
        {"Bench", own_opts, sizeof own_opts / sizeof *own_opts, &j.a}};
    ls_args args;
    LS_TRY(ls_options_parse(self, groups, 2, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    const char *what = args.n_pos == 1 ? args.pos[0] : "";
    j.term = ls_term_open(0, j.a.quiet);
    j.results = json_array();
    ls_status status = LS_ERR_INPUT;
    size_t i = 0, n = sizeof subjects / sizeof *subjects;
    while (i < n && strcmp(what, subjects[i].name) != 0)
        i++;
    if (i < n) {
        j.a.tokens = j.a.tokens ? j.a.tokens : subjects[i].tokens;
        status = subjects[i].run(&j, err);
    } else {
        ls_fail(err, status,
                "say what to measure: verify, decode, attention, round, prompt, price, policy or "
                "load (lockstep bench --help)");
    }
    ls_bench_close(&j);
    return status;
}

const ls_command ls_cmd_bench = {
    .name = "bench",
    .line = "measure passes, rounds, attention, prompts, policies and loads, as ratios",
    .usage = "verify|decode|attention|round|prompt|price|policy|load [OPTIONS]",
    .about =
        "verify     a pass of 1 to N rows over a pass of one: what it costs to verify N - 1 "
        "drafts\n"
        "           (on a CPU also its multiply-adds a second against registers alone, and what "
        "the "
        "longer\n           of read and arithmetic would make of 8 rows over one)\n"
        "decode     one token, and the weights' bytes a second against a plain read of the same "
        "memory\n"
        "attention  one layer's attention by length, rows and chunk rule, against a plain read\n"
        "round      speculation from end to end, against what the costs of its passes promise\n"
        "prompt     reading a prompt, by rows a pass\n"
        "price      an exact profile against cuBLAS: time by width, tokens that flip, acceptance "
        "lost\n"
        "policy     a call of a length policy: median and 99th percentile\n"
        "load       opening a model and making its engine, against a plain read of the weights; "
        "on a\n           GPU also against an upload of as many bytes\n"
        "All that is compared is timed in turns in the same run, and reported as medians.",
    .examples = "  lockstep bench verify --shape smollm2-135m --threads 2\n"
                "  lockstep bench decode --length 16,1024\n"
                "  lockstep bench attention --shape llama-3-8b --kv bf16 --device cuda --chunk "
                "even:128:64 --chunk splits:8\n"
                "  lockstep bench round --shape llama-3.2-1b --draft-layers 2 --drafts 2,4,8\n"
                "  lockstep bench price --shape llama-3.2-1b --device cuda --profile mma\n"
                "  lockstep bench policy --policy svip --policy my/policy.lua\n"
                "  lockstep bench load --target DIR --device cuda --profile mma\n",
    .run = run,
};
