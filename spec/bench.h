/* bench.h - what a pass costs, as medians over interleaved repeats: every width and the plain read
 * of the weights are timed in turn, again and again, so that a clock that drifts or a neighbour that
 * wakes up touches all of them alike.
 * Pass        what a round of verification costs: the row pass and the statistics of its rows, on a
 *             cache that holds `length` tokens, taken back afterwards.
 * Control     width 1 is timed twice under two names; the quotient of the two is what noise can do.
 * Read        the bytes a pass reads of the weights, summed up by the same number of threads: the
 *             ceiling that memory sets in the same run.
 * Errors      as ls_pass; LS_ERR_STOPPED.
 * Threads     one owner of the engine. */
#ifndef LS_BENCH_H
#define LS_BENCH_H

#include <stdbool.h>

#include "engine.h"

#define LS_BENCH_ROWS 64

typedef struct ls_bench_options {
    int32_t length;    /* tokens in the cache */
    int32_t max_rows;  /* widths 1..max_rows, at most LS_BENCH_ROWS and the engine's */
    int32_t n_repeat;  /* timed; the first repeat is thrown away on top */
    int32_t n_threads; /* of the plain read; 0 = OpenMP's default */
    uint64_t seed;     /* of the tokens */
    void *self;        /* of the two callbacks, which may be NULL */
    void (*progress)(void *self, int64_t done, int64_t total, const char *text);
    bool (*stop)(void *self);
} ls_bench_options;

typedef struct ls_spread { /* microseconds: median and quartiles */
    double median, low, high;
} ls_spread;

typedef struct ls_bench_result {
    int32_t max_rows, n_repeat, length;
    ls_spread pass[LS_BENCH_ROWS + 1]; /* [rows] */
    ls_spread control;                 /* rows = 1, again */
    ls_spread read;
    size_t weight_bytes; /* a pass reads */
} ls_bench_result;

ls_status ls_bench_passes(ls_engine *e, const ls_bench_options *options, ls_bench_result *out,
                          ls_err *err);

#endif
