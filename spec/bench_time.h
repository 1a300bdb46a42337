/* bench_time.h - times of things that are compared: all of them are run in turn, again and again,
 * so that a clock that drifts or a neighbour that wakes up touches all of them alike.
 * Order       up through the series, then down, in turns. A first repeat warms up and is thrown
 *             away.
 * Times       microseconds; wall: until the host has the result; device: between two stamps in the
 *             device's order of work (the same clock on the CPU, where work is done when it is
 *             asked for).
 * Spread      median and quartiles, and the coefficient of variation: deviation over mean.
 * Errors      those of the runs; LS_ERR_STOPPED; LS_ERR_MEMORY. */
#ifndef LS_BENCH_TIME_H
#define LS_BENCH_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

typedef struct ls_spread {
    double median, low, high, cv;
} ls_spread;

typedef struct ls_took {
    double wall_us, device_us;
} ls_took;

typedef struct ls_series {
    ls_status (*run)(void *self, int32_t arg, ls_took *took, ls_err *err);
    void *self;
    int32_t arg;
    ls_spread wall, device; /* filled */
} ls_series;

typedef struct ls_bench_how {
    int32_t n_repeat; /* timed */
    void *self;       /* of the two callbacks, which may be NULL */
    void (*progress)(void *self, int64_t done, int64_t total, const char *text);
    bool (*stop)(void *self);
} ls_bench_how;

ls_status ls_bench_interleave(ls_series *series, int32_t n, const ls_bench_how *how, ls_err *err);

/* Sorts the n >= 1 values. */
ls_spread ls_spread_of(double *value, int32_t n);

/* Reads every byte of the spans once: what memory can do, timed as everything else. */
ls_status ls_bench_read(ls_backend *be, const ls_span *span, int32_t n, ls_took *took, ls_err *err);

/* Ids in [0, n_vocab), a function of the seed. */
void ls_bench_tokens(int32_t *token, int64_t n, int32_t n_vocab, uint64_t seed);

static inline double ls_gb_per_s(double bytes, double us) {
    return bytes / us / 1e3;
}

#endif
