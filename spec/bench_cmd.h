/* bench_cmd.h - what the subcommands of `lockstep bench` share: options, models, the record.
 * Models      --target (and --draft), or random weights of --shape in a folder that is removed as
 *             soon as it is open; without either, the embedded pair.
 * Output      a table for people, or with --json one record (--record FILE: both): version,
 *             command, time, model, device, profile, engine, what was asked for, results.
 * Errors      LS_ERR_INPUT naming the option.
 * Memory      the job owns its models, engines and results; ls_bench_close frees them. */
#ifndef LS_BENCH_CMD_H
#define LS_BENCH_CMD_H

#include <jansson.h>

#include "bench.h"
#include "record.h"
#include "setup.h"
#include "term.h"

#define LS_BENCH_LIST 16 /* entries of a list of numbers */

typedef struct ls_bench_args {
    ls_model_args model;
    int shape;   /* 0: none, else one behind its place in LS_SHAPE_NAMES */
    int against; /* 0: none, else one behind its ls_profile */
    ls_list length, draft_rows, chunk_rows, chunk, policy, option;
    int32_t rows, repeats, calls, draft_layers, prompts, tokens;
    float divergence;
    const char *tmp, *record;
    bool json, quiet;
} ls_bench_args;

typedef struct ls_bench_job {
    ls_bench_args a;
    ls_term term;
    ls_setup setup;
    ls_backend *other_be; /* of --against */
    ls_engine *other;
    json_t *results; /* array */
} ls_bench_job;

/* How an engine of the job has to be. */
typedef struct ls_bench_need {
    int32_t context, max_rows, max_seqs; /* the last two 0: the engine's own default */
    bool pair;                           /* a draft model and its drafter too */
    bool thin;                           /* and the target's first layer alone, as `other` */
    bool against; /* and the target once more, with the profile of --against */
} ls_bench_need;
ls_status ls_bench_open(ls_bench_job *j, const ls_bench_need *need, ls_err *err);
void ls_bench_close(ls_bench_job *j);

/* The numbers of a list of options, or those of `fallback` ("128,512") when none was given. */
ls_status ls_bench_numbers(const ls_list *list, const char *name, const char *fallback, int32_t min,
                           int32_t max, int32_t out[LS_BENCH_LIST], int32_t *n, ls_err *err);
/* The rule of --chunk where there can be one. */
ls_status ls_bench_chunk(ls_bench_job *j, ls_err *err);

/* Progress and Ctrl-C of the job's terminal. */
ls_bench_how ls_bench_how_of(ls_bench_job *j);
const char *ls_bench_model_name(const ls_bench_job *j);
/* The line that says what is measured on what; nothing with --json. */
void ls_bench_heading(const ls_bench_job *j);
json_t *ls_bench_spread(ls_spread s);        /* {median_us, low_us, high_us, cv} */
json_t *ls_bench_series(const ls_series *s); /* {wall, device} */
/* With --json or --record: writes the record. extra (may be NULL) is added to it. */
ls_status ls_bench_write(ls_bench_job *j, const char *command, json_t *extra, ls_err *err);

/* The subcommands, one a file. */
ls_status ls_bench_verify(ls_bench_job *j, ls_err *err);
ls_status ls_bench_decode(ls_bench_job *j, ls_err *err);
ls_status ls_bench_attention(ls_bench_job *j, ls_err *err);
ls_status ls_bench_round(ls_bench_job *j, ls_err *err);
ls_status ls_bench_prompt(ls_bench_job *j, ls_err *err);
ls_status ls_bench_price(ls_bench_job *j, ls_err *err);
ls_status ls_bench_policy(ls_bench_job *j, ls_err *err);
ls_status ls_bench_load(ls_bench_job *j, ls_err *err);

#endif
