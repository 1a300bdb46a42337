/* bench.h - what a pass costs: passes of any width and the plain read of the weights, as series
 * that bench_time.h runs in turn.
 * Pass        what a round of verification costs: the row pass, the draws of its rows and their way
 *             to the host, on a cache that holds `length` tokens, taken back afterwards.
 * Device      from before the pass to behind its draws; wall: until the statistics are on the host.
 * Fma         on a CPU: how many multiply-adds a second its threads do in registers, in the same
 *             run; and how many a pass needs, linears and attention: the ceiling that arithmetic
 *             sets.
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
    int64_t n_step;      /* of ls_pass_rig_fma, which chooses it */
} ls_pass_rig;

/* Fills the cache with `length` tokens drawn from the seed. Close it also after an error. */
ls_status ls_pass_rig_open(ls_pass_rig *r, ls_engine *e, int32_t length, int32_t max_rows,
                           uint64_t seed, ls_err *err);
void ls_pass_rig_close(ls_pass_rig *r);

/* For ls_series.run; self is the rig. arg: rows of the pass, 1..max_rows. */
ls_status ls_pass_rig_pass(void *self, int32_t n_rows, ls_took *took, ls_err *err);
ls_status ls_pass_rig_read(void *self, int32_t unused, ls_took *took, ls_err *err);
/* The time of a million multiply-adds, measured over more of them; 0 where the device is no CPU. */
ls_status ls_pass_rig_fma(void *self, int32_t unused, ls_took *took, ls_err *err);

/* Multiply-adds of a pass of n rows. */
double ls_pass_rig_work(const ls_pass_rig *r, int32_t n_rows);
/* A pass of n rows over one of one row where each takes as long as the read, or as its arithmetic
 * if that is longer. */
double ls_pass_rig_floor(const ls_pass_rig *r, int32_t n_rows, double read_us, double million_us);

/* What recorded launches cost when they do nothing: microseconds a launch in a chain of n, on the
 * device. 0 where there are no graphs. */
ls_status ls_bench_floor(ls_backend *be, int32_t n, int32_t n_repeat, double *us, ls_err *err);

#endif
