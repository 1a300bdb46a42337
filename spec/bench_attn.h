/* bench_attn.h - one attention of a decode or verify step, alone on a device, to be timed.
 * Case        n_rows rows of one sequence as a verify pass has them: row r reads length + r keys.
 *             The keys and values are random; the launches of n_layers caches of their own follow
 *             each other, so that no cache is still near when its turn comes again. Times are of
 *             all the layers together.
 * Grid        made for `capacity` keys, as an engine's is for its context; the caches hold only the
 *             keys that are read.
 * Paged       blocks lie in the pool in an order drawn from the seed.
 * Errors      LS_ERR_INPUT naming the field; LS_ERR_MEMORY; those of the backend.
 * Memory      a rig owns its device memory; the backend is borrowed.
 * Threads     one owner of the backend. */
#ifndef LS_BENCH_ATTN_H
#define LS_BENCH_ATTN_H

#include "bench_time.h"

#define LS_ATTN_ROWS_MAX 64
#define LS_ATTN_LAYERS_MAX 64

/* ls_attn_args.only */
enum { LS_ATTN_BOTH = 0, LS_ATTN_CHUNKS = 1, LS_ATTN_MERGE = 2, LS_ATTN_PARTS = 3 };

typedef struct ls_attn_case {
    int32_t n_heads, n_kv, head_dim;
    int32_t length;     /* keys of row 0, at least 1 */
    int32_t n_rows;     /* 1..LS_ATTN_ROWS_MAX */
    int32_t capacity;   /* 0 = length + n_rows - 1, the least there can be */
    int32_t block_rows; /* 0 = contiguous */
    int32_t n_layers;   /* 1..LS_ATTN_LAYERS_MAX */
    ls_dtype kv_dtype;  /* LS_F32 or LS_BF16 */
    ls_chunk_rule rule;
    bool graph; /* recorded once and replayed, instead of launched each time */
    uint64_t seed;
} ls_attn_case;

typedef struct ls_attn_bench ls_attn_bench;

ls_status ls_attn_bench_open(ls_backend *be, const ls_attn_case *c, ls_attn_bench **out,
                             ls_err *err);
void ls_attn_bench_close(ls_attn_bench *b); /* NULL is allowed */

/* For ls_series.run; self is the bench. part: LS_ATTN_ */
ls_status ls_attn_bench_run(void *self, int32_t part, ls_took *took, ls_err *err);
/* A plain read of the keys and values of all layers. */
ls_status ls_attn_bench_read(void *self, int32_t unused, ls_took *took, ls_err *err);

/* Keys and values of one layer that the rows read, each counted once. */
size_t ls_attn_bench_bytes(const ls_attn_bench *b);

/* How the device launches the chunks. live_blocks: those that find keys, as far as the grid is made
 * of equal parts for each of the chunks there is room for. occupancy: warps of live blocks that run
 * at once over the warps the device can hold. Both are computed, not measured. False: the device's
 * blocks are no launches. */
typedef struct ls_attn_grid {
    ls_launch launch;
    int32_t max_chunks, live_chunks; /* room for, and those of the longest row */
    int32_t live_blocks;
    double occupancy;
} ls_attn_grid;
bool ls_attn_bench_grid(const ls_attn_bench *b, ls_attn_grid *out);

#endif
