/* cmd_bench.c - `lockstep bench`: what passes and policies cost, as ratios measured in one run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "commands.h"
#include "lua_policy.h"
#include "record.h"
#include "setup.h"
#include "synth.h"
#include "term.h"

#define LENGTHS_MAX 16

static const char *const default_policies[] = {"fixed", "heuristic", "confidence", "svip"};

typedef struct own {
    ls_model_args model;
    int shape;
    ls_list length, policy, option;
    int32_t rows, repeats, calls;
    const char *tmp;
    bool json, quiet;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"target", "DIR", "model to measure (default: the embedded target)", LS_OPT_TEXT,
     AT(model.target), 0, 0, NULL},
    {"shape", "none|" LS_SHAPE_NAMES,
     "random weights of this shape instead, in a folder that is\n"
     "removed at once (see lockstep synth)",
     LS_OPT_CHOICE, AT(shape), 0, 0, NULL},
    {"length", "N", "tokens in the cache; may be repeated (default 256)", LS_OPT_LIST, AT(length),
     0, 0, NULL},
    {"rows", "N", "verify: widths 1 to N (default 16)", LS_OPT_INT, AT(rows), 1, LS_BENCH_ROWS,
     NULL},
    {"repeats", "N", "timed repeats of every width, interleaved (default 15)", LS_OPT_INT,
     AT(repeats), 1, 100000, NULL},
    {"policy", "NAME|FILE", "policy: may be repeated (default: those of policies/length)",
     LS_OPT_LIST, AT(policy), 0, 0, NULL},
    {"calls", "N", "policy: rounds asked for (default 20000)", LS_OPT_INT, AT(calls), 100,
     100000000, NULL},
    {"threads", "N", "threads (default: all cores)", LS_OPT_INT, AT(model.threads), 1, 1024, NULL},
    {"simd", "auto|plain|avx2", "instructions", LS_OPT_CHOICE, AT(model.simd), 0, 0, NULL},
    {"kv", "f32|bf16", "how keys and values are stored", LS_OPT_CHOICE, AT(model.kv), 0, 0, NULL},
    {"block-rows", "N", "paged cache with blocks of N rows", LS_OPT_INT, AT(model.block_rows), 1,
     65536, NULL},
    {"chunk", "RULE", "even:MIN:MAX, splits:N or doubling:MIN:MAX", LS_OPT_OTHER, AT(model.chunk),
     0, 0, ls_parse_chunk},
    {"tmp", "DIR", "where the folder of --shape is made (default /tmp)", LS_OPT_TEXT, AT(tmp), 0, 0,
     NULL},
    {"json", NULL, "print a JSON record instead of the table", LS_OPT_FLAG, AT(json), 0, 0, NULL},
    {"quiet", NULL, "no progress line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

typedef struct job {
    own a;
    ls_term term;
    ls_setup setup;
    int32_t length[LENGTHS_MAX], n_length;
} job;

static void on_progress(void *self, int64_t done, int64_t total, const char *text) {
    ls_term_progress(self, done, total, text);
}

static void on_write(void *self, int64_t done, int64_t total) {
    ls_term_progress(self, done >> 20, (total >> 20) + 1, "MiB of random weights");
}

/* ---- verify and decode ----------------------------------------------------------------------- */

/* Random weights in a new folder, opened and removed: the mapping keeps them while it is open. */
static ls_status open_shape(job *j, ls_err *err) {
    char dir[512];
    const int n = snprintf(dir, sizeof dir, "%s/lockstep-bench-XXXXXX", j->a.tmp);
    if (n < 0 || (size_t)n >= sizeof dir - 8 || !mkdtemp(dir))
        return ls_fail(err, LS_ERR_IO, "cannot make a folder in --tmp %s", j->a.tmp);
    char model[520];
    snprintf(model, sizeof model, "%s/model", dir);
    ls_status status = ls_synth_write(ls_shape_at(j->a.shape - 1), 1, model, on_write,
                                      ls_term_stopped, &j->term, err);
    if (status == LS_OK) {
        j->a.model.target = model;
        status = ls_setup_open(&j->a.model, &j->setup, err);
        j->a.model.target = NULL;
        ls_synth_remove(model);
    }
    remove(dir);
    return status;
}

static ls_status open_target(job *j, ls_err *err) {
    if (j->a.length.n == 0)
        j->a.length.item[j->a.length.n++] = "256";
    if (j->a.length.n > LENGTHS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "more than %d lengths", LENGTHS_MAX);
    int64_t longest = 0;
    for (; j->n_length < j->a.length.n; j->n_length++) {
        int64_t n;
        ls_status status = ls_parse_int(j->a.length.item[j->n_length], 1, 1 << 20, &n, err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "--length");
        j->length[j->n_length] = (int32_t)n;
        longest = n > longest ? n : longest;
    }
    if (j->a.shape && j->a.model.target)
        return ls_fail(err, LS_ERR_INPUT, "--shape and --target: give one of them");
    j->a.model.drafter = LS_USE_NONE;
    j->a.model.no_tokenizer = true;
    j->a.model.context = (int32_t)longest + j->a.rows;
    return j->a.shape ? open_shape(j, err) : ls_setup_open(&j->a.model, &j->setup, err);
}

static double gb_per_s(size_t bytes, double us) {
    return (double)bytes / us / 1e3;
}

static void verify_table(const ls_bench_result *r) {
    printf("length %d, %d interleaved repeats\n", r->length, r->n_repeat);
    printf("%5s %10s %22s %9s %14s\n", "rows", "ms", "quartiles", "to one", "us a row");
    for (int32_t n = 1; n <= r->max_rows; n++)
        printf("%5d %10.3f %10.3f -%10.3f %9.2f %14.1f\n", n, r->pass[n].median / 1e3,
               r->pass[n].low / 1e3, r->pass[n].high / 1e3, r->pass[n].median / r->pass[1].median,
               r->pass[n].median / n);
    printf("one row timed twice: %.3f (what noise can do)\n",
           r->control.median / r->pass[1].median);
}

static void decode_line(const ls_bench_result *r) {
    const double pass = gb_per_s(r->weight_bytes, r->pass[1].median);
    const double read = gb_per_s(r->weight_bytes, r->read.median);
    printf(
        "length %d: a token takes %.3f ms (%.1f a second); weights at %.2f GB/s, plain read of the "
        "same memory %.2f GB/s: share %.3f\n",
        r->length, r->pass[1].median / 1e3, 1e6 / r->pass[1].median, pass, read, pass / read);
}

static json_t *spread_json(int32_t rows, ls_spread s, double one) {
    return json_pack("{s:i, s:f, s:f, s:f, s:f}", "rows", rows, "median_us", s.median, "low_us",
                     s.low, "high_us", s.high, "to_one", s.median / one);
}

static json_t *result_json(const ls_bench_result *r) {
    json_t *passes = json_array();
    for (int32_t n = 1; n <= r->max_rows; n++)
        json_array_append_new(passes, spread_json(n, r->pass[n], r->pass[1].median));
    return json_pack("{s:i, s:i, s:I, s:o, s:o, s:o, s:f, s:f}", "length", r->length, "n_repeat",
                     r->n_repeat, "weight_bytes", (json_int_t)r->weight_bytes, "passes", passes,
                     "control", spread_json(1, r->control, r->pass[1].median), "read",
                     spread_json(0, r->read, r->pass[1].median), "weight_gb_per_s",
                     gb_per_s(r->weight_bytes, r->pass[1].median), "read_gb_per_s",
                     gb_per_s(r->weight_bytes, r->read.median));
}

static ls_status run_passes(job *j, bool verify, ls_err *err) {
    LS_TRY(open_target(j, err));
    const ls_weights *w = j->setup.target->weights;
    const char *name = j->a.shape ? ls_shape_at(j->a.shape - 1)->name : j->setup.target->dir;
    json_t *results = json_array();
    if (!j->a.json)
        printf("%s: %.1f M parameters; %s, profile %s\n", name, (double)w->n_params / 1e6,
               j->setup.be->device, j->setup.be->profile);
    ls_status status = LS_OK;
    for (int32_t i = 0; status == LS_OK && i < j->n_length; i++) {
        const ls_bench_options o = {.length = j->length[i],
                                    .max_rows = verify ? j->a.rows : 1,
                                    .n_repeat = j->a.repeats,
                                    .n_threads = j->a.model.threads,
                                    .seed = 1,
                                    .self = &j->term,
                                    .progress = on_progress,
                                    .stop = ls_term_stopped};
        ls_bench_result r;
        status = ls_bench_passes(j->setup.engine, &o, &r, err);
        ls_term_clear(&j->term);
        if (status != LS_OK)
            break;
        if (j->a.json)
            json_array_append_new(results, result_json(&r));
        else if (verify)
            verify_table(&r);
        if (!j->a.json)
            decode_line(&r);
    }
    if (status != LS_OK || !j->a.json) {
        json_decref(results);
        return status;
    }
    return ls_record_write(json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:o}", "lockstep",
                                     LS_VERSION, "command",
                                     verify ? "bench verify" : "bench decode", "model", name,
                                     "n_params", (json_int_t)w->n_params, "device",
                                     j->setup.be->device, "profile", j->setup.be->profile, "engine",
                                     ls_record_engine(j->setup.engine), "results", results),
                           "-", false, err);
}

/* ---- policy ---------------------------------------------------------------------------------- */

static ls_status bench_policy(const job *j, const char *text, json_t *results, ls_err *err) {
    ls_policy *policy = NULL;
    char options[256];
    ls_lua_policy_cost c;
    LS_TRY(ls_setup_policy(&j->setup, text, &j->a.option, &policy, options, err));
    ls_status status = ls_lua_policy_bench(policy, j->a.calls, &c, err);
    if (status == LS_OK && j->a.json)
        json_array_append_new(
            results, json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "policy",
                               ls_record_policy(policy, options), "plan_median_us",
                               c.plan_median_us, "plan_p99_us", c.plan_p99_us, "more_median_us",
                               c.more_median_us, "more_p99_us", c.more_p99_us, "observe_median_us",
                               c.observe_median_us, "observe_p99_us", c.observe_p99_us));
    else if (status == LS_OK)
        printf("%-28s %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n", policy->name, c.plan_median_us,
               c.plan_p99_us, c.more_median_us, c.more_p99_us, c.observe_median_us,
               c.observe_p99_us);
    ls_policy_destroy(policy);
    return status;
}

static ls_status run_policies(job *j, ls_err *err) {
    LS_TRY(ls_places_find(&j->setup.places, err));
    if (j->a.policy.n == 0)
        for (size_t i = 0; i < sizeof default_policies / sizeof *default_policies; i++)
            j->a.policy.item[j->a.policy.n++] = default_policies[i];
    json_t *results = json_array();
    if (!j->a.json)
        printf("one call in microseconds, %d rounds (0: the policy has no such callback)\n"
               "%-28s %17s %17s %17s\n%-28s %8s %8s %8s %8s %8s %8s\n",
               j->a.calls, "", "plan", "more", "observe", "policy", "median", "p99", "median",
               "p99", "median", "p99");
    ls_status status = LS_OK;
    for (int32_t i = 0; status == LS_OK && i < j->a.policy.n; i++)
        status = bench_policy(j, j->a.policy.item[i], results, err);
    if (status != LS_OK || !j->a.json) {
        json_decref(results);
        return status;
    }
    return ls_record_write(json_pack("{s:s, s:s, s:i, s:o}", "lockstep", LS_VERSION, "command",
                                     "bench policy", "n_call", j->a.calls, "results", results),
                           "-", false, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    job j = {.a = {.model = ls_model_args_default(),
                   .rows = 16,
                   .repeats = 15,
                   .calls = 20000,
                   .tmp = "/tmp"}};
    const ls_opt_group group = {"Bench", own_opts, sizeof own_opts / sizeof *own_opts, &j.a};
    ls_args args;
    LS_TRY(ls_options_parse(self, &group, 1, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    const char *what = args.n_pos == 1 ? args.pos[0] : "";
    j.term = ls_term_open(0, j.a.quiet);
    ls_status status;
    if (strcmp(what, "verify") == 0 || strcmp(what, "decode") == 0)
        status = run_passes(&j, *what == 'v', err);
    else if (strcmp(what, "policy") == 0)
        status = run_policies(&j, err);
    else
        status = ls_fail(err, LS_ERR_INPUT,
                         "say what to measure: verify, decode or policy (lockstep bench --help)");
    ls_setup_close(&j.setup);
    return status;
}

const ls_command ls_cmd_bench = {
    .name = "bench",
    .line = "measure verification against decode, decode against memory, and policies",
    .usage = "verify|decode|policy [OPTIONS]",
    .about =
        "verify  a pass of 1 to N rows over a pass of one: what it costs to verify N - 1 drafts\n"
        "decode  one token, and the weights' bytes a second against a plain read of the same "
        "memory\n"
        "policy  a call of a length policy: median and 99th percentile\n"
        "All that is compared is timed in turns in the same run, and reported as medians.",
    .examples = "  lockstep bench verify --shape smollm2-135m --threads 2\n"
                "  lockstep bench decode --length 16 --length 1024\n"
                "  lockstep bench policy --policy svip --policy my/policy.lua\n",
    .run = run,
};
