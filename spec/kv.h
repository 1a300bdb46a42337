/* kv.h - the key/value cache: sequences of rows in one pool per layer.
 * Shapes      pools k, v: [n_slots, G, E] per layer, of `dtype`. A sequence maps logical index
 *             0, 1, 2, ... to slots: contiguous (its region of `context` slots) or paged (blocks of
 *             `block_rows` slots from a free list).
 * States      a sequence holds rows [0, len). Writing index i needs i < len + the rows of the pass;
 *             append grows len, rewind shrinks it, keep compacts an accepted tree path.
 * Invariants  (1) a row below len is never rewritten except by keep, which moves bits only
 *             (2) no row reads an index at or above the length its pass gave it
 *             (3) a block shared by a fork is never written: the writer gets its own copy first
 * Errors      LS_ERR_FULL when the pool or the context is used up; on error nothing changed.
 * Memory      all of it is taken at create. Dropped rows are filled with NaN when `poison` is set.
 * Threads     one owner. */
#ifndef LS_KV_H
#define LS_KV_H

#include "backend.h"

typedef struct ls_kv ls_kv;

typedef struct ls_kv_options {
    int32_t n_layers, n_kv, head_dim; /* shape */
    int32_t max_seqs;                 /* sequences alive at once */
    int32_t context;                  /* most rows a sequence may hold */
    int32_t block_rows;               /* 0 = contiguous */
    int32_t n_blocks; /* paged: blocks in the pool; 0 = enough for all at full length */
    ls_dtype dtype;   /* LS_F32 or LS_BF16 */
    int32_t poison;   /* NaN into every dropped row (tests) */
} ls_kv_options;

ls_status ls_kv_create(ls_backend *be, ls_kv_options options, ls_kv **out, ls_err *err);
void ls_kv_destroy(ls_kv *kv);

/* A new empty sequence; ids are small integers, reused after close. */
ls_status ls_kv_open(ls_kv *kv, int32_t *seq, ls_err *err);
void ls_kv_close(ls_kv *kv, int32_t seq);

/* Makes [0, n) writable: takes blocks, and copies blocks shared with a fork from row len on. */
ls_status ls_kv_reserve(ls_kv *kv, int32_t seq, int32_t n, ls_err *err);
/* The pass wrote rows up to n: len = max(len, n), n at most what was reserved. */
void ls_kv_append(ls_kv *kv, int32_t seq, int32_t n);
/* Drops rows at and past n; blocks that hold none go back to the pool. */
ls_status ls_kv_rewind(ls_kv *kv, int32_t seq, int32_t n, ls_err *err);
/* Row index[i] (ascending, >= prefix) becomes row prefix + i, the rest is dropped: the accepted
 * path of a tree. Keys were rotated by depth, so the bits need no change. */
ls_status ls_kv_keep(ls_kv *kv, int32_t seq, int32_t prefix, const int32_t *index, int32_t n,
                     ls_err *err);
/* A new sequence whose first n rows are those of src: whole blocks shared, the rest copied. */
ls_status ls_kv_fork(ls_kv *kv, int32_t src, int32_t n, int32_t *seq, ls_err *err);

int32_t ls_kv_len(const ls_kv *kv, int32_t seq);
int32_t ls_kv_free_blocks(const ls_kv *kv); /* paged only, else -1 */
const ls_kv_options *ls_kv_shape(const ls_kv *kv);
int32_t ls_kv_slots(const ls_kv *kv); /* rows in each pool */
/* Slot of a reserved logical index, -1 outside. */
int32_t ls_kv_slot(const ls_kv *kv, int32_t seq, int32_t index);
/* Contiguous: slot of index 0. Paged: the block table (host memory, valid until the next reserve,
 * rewind, keep or close of the sequence) and its length. */
int32_t ls_kv_base(const ls_kv *kv, int32_t seq);
const int32_t *ls_kv_table(const ls_kv *kv, int32_t seq, int32_t *n);
void *ls_kv_pool_k(const ls_kv *kv, int32_t layer); /* device memory */
void *ls_kv_pool_v(const ls_kv *kv, int32_t layer);
/* Copies the stored bytes of one row, k then v, 2 * G * E values of dtype, to host memory. */
ls_status ls_kv_read(ls_kv *kv, int32_t seq, int32_t layer, int32_t index, void *dst, ls_err *err);

#endif
