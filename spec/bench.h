/* bench.h - what a pass costs: passes of any width and the plain read of the weights, as series that
 * bench_time.h runs in turn.
 * Pass        what a round of verification costs: the row pass, the draws of its rows and their way
 *             to the host, on a cache that holds `length` tokens, taken back afterwards.
 * Device      from before the pass to behind its draws; wall: until the statistics are on the host.
 * Read        every byte of the weights that a pass reads, read once by the device (backend.h): the
 *             ceiling that memory sets in the same run.
 * Errors      as ls_pass; LS_ERR_INPUT when length and rows do not fit.
 * Memory      a rig borrows its engine, and holds one of its sequences until it is closed.
 * Threads     one owner of the engine. */
#ifndef LS_BENCH_H
#define LS_BENCH_H

#include "bench_time.h"
#include "engine.h"

#define LS_BENCH_ROWS 64

typedef struct ls_pass_rig {
    ls_engine *e;
    int32_t seq, length, max_rows;
    int32_t *token; /* [length + max_rows] */
    ls_span *span;  /* of the weights */
    int32_t n_span;
    size_t weight_bytes; /* in the spans */
} ls_pass_rig;

/* Fills the cache with `length` tokens drawn from the seed. Close it also after an error. */
ls_status ls_pass_rig_open(ls_pass_rig *r, ls_engine *e, int32_t length, int32_t max_rows,
                           uint64_t seed, ls_err *err);
void ls_pass_rig_close(ls_pass_rig *r);

/* For ls_series.run; self is the rig. arg: rows of the pass, 1..max_rows. */
ls_status ls_pass_rig_pass(void *self, int32_t n_rows, ls_took *took, ls_err *err);
ls_status ls_pass_rig_read(void *self, int32_t unused, ls_took *took, ls_err *err);

/* What recorded launches cost when they do nothing: microseconds a launch in a chain of n, on the
 * device. 0 where there are no graphs. */
ls_status ls_bench_floor(ls_backend *be, int32_t n, int32_t n_repeat, double *us, ls_err *err);

#endif
