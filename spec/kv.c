/* Copy-on-write at block grain: a block's `refs` counts the sequences that map it; reserve replaces
 * a shared block by a copy before it can be written. The contiguous cache is the same code with one
 * block per sequence region, never shared. */
#include "kv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct kv_seq {
    bool used;
    int32_t len;
    int32_t *table; /* [blocks_per_seq] block ids */
    int32_t n_table;
} kv_seq;

struct ls_kv {
    ls_backend *be;
    ls_kv_options o;
    int32_t block_rows, blocks_per_seq, n_blocks;
    size_t row_bytes; /* one row of one pool of one layer */
    void **k, **v;    /* [n_layers] device pools */
    kv_seq *seq;
    int32_t *refs; /* [n_blocks] */
    int32_t *free_block;
    int32_t n_free;
    unsigned char *nan_row; /* [row_bytes] host */
};

static bool mul_over(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

static ls_status pools_create(ls_kv *kv, ls_err *err) {
    size_t rows, bytes;
    if (mul_over((size_t)kv->n_blocks, (size_t)kv->block_rows, &rows) || rows > INT32_MAX ||
        mul_over(rows, kv->row_bytes, &bytes))
        return ls_fail(
            err, LS_ERR_FULL,
            "cache: %d blocks of %d rows are too many: ask for a smaller context or fewer "
            "sequences",
            kv->n_blocks, kv->block_rows);
    kv->k = calloc((size_t)kv->o.n_layers, sizeof *kv->k);
    kv->v = calloc((size_t)kv->o.n_layers, sizeof *kv->v);
    if (!kv->k || !kv->v)
        return ls_fail(err, LS_ERR_MEMORY, "cache: out of memory");
    for (int32_t l = 0; l < kv->o.n_layers; l++) {
        LS_TRY(kv->be->alloc(kv->be, bytes, &kv->k[l], err));
        LS_TRY(kv->be->alloc(kv->be, bytes, &kv->v[l], err));
    }
    return LS_OK;
}

static ls_status tables_create(ls_kv *kv, ls_err *err) {
    kv->seq = calloc((size_t)kv->o.max_seqs, sizeof *kv->seq);
    kv->refs = calloc((size_t)kv->n_blocks, sizeof *kv->refs);
    kv->free_block = calloc((size_t)kv->n_blocks, sizeof *kv->free_block);
    kv->nan_row = malloc(kv->row_bytes);
    if (!kv->seq || !kv->refs || !kv->free_block || !kv->nan_row)
        return ls_fail(err, LS_ERR_MEMORY, "cache: out of memory");
    memset(kv->nan_row, 0xFF, kv->row_bytes); /* all ones is a NaN in f32 and bf16 */
    for (int32_t s = 0; s < kv->o.max_seqs; s++) {
        kv->seq[s].table = calloc((size_t)kv->blocks_per_seq, sizeof(int32_t));
        if (!kv->seq[s].table)
            return ls_fail(err, LS_ERR_MEMORY, "cache: out of memory");
    }
    /* taken from the end, so the lowest ids go out first */
    for (int32_t b = 0; b < kv->n_blocks; b++)
        kv->free_block[b] = kv->n_blocks - 1 - b;
    kv->n_free = kv->n_blocks;
    return LS_OK;
}

ls_status ls_kv_create(ls_backend *be, ls_kv_options o, ls_kv **out, ls_err *err) {
    if (o.n_layers < 1 || o.n_kv < 1 || o.head_dim < 1 || o.max_seqs < 1 || o.context < 1 ||
        o.block_rows < 0 || o.n_blocks < 0)
        return ls_fail(err, LS_ERR_SHAPE,
                       "cache: layers, heads, sequences and context must be >= 1");
    if (o.dtype != LS_F32 && o.dtype != LS_BF16)
        return ls_fail(err, LS_ERR_INPUT, "cache: type %s is not built: use f32 or bf16",
                       ls_dtype_name(o.dtype));
    ls_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return ls_fail(err, LS_ERR_MEMORY, "cache: out of memory");
    kv->be = be;
    kv->o = o;
    kv->block_rows = o.block_rows ? o.block_rows : o.context;
    kv->blocks_per_seq = (int32_t)(((int64_t)o.context + kv->block_rows - 1) / kv->block_rows);
    int64_t all = (int64_t)o.max_seqs * kv->blocks_per_seq;
    kv->n_blocks = o.block_rows && o.n_blocks ? o.n_blocks
                   : all > INT32_MAX          ? INT32_MAX
                                              : (int32_t)all;
    kv->row_bytes = (size_t)o.n_kv * (size_t)o.head_dim * ls_dtype_bytes(o.dtype);
    ls_status s = pools_create(kv, err);
    if (s == LS_OK)
        s = tables_create(kv, err);
    if (s != LS_OK) {
        ls_kv_destroy(kv);
        return s;
    }
    *out = kv;
    return LS_OK;
}

void ls_kv_destroy(ls_kv *kv) {
    if (!kv)
        return;
    for (int32_t l = 0; l < kv->o.n_layers; l++) {
        if (kv->k)
            kv->be->free(kv->be, kv->k[l]);
        if (kv->v)
            kv->be->free(kv->be, kv->v[l]);
    }
    for (int32_t s = 0; kv->seq && s < kv->o.max_seqs; s++)
        free(kv->seq[s].table);
    free(kv->k);
    free(kv->v);
    free(kv->seq);
    free(kv->refs);
    free(kv->free_block);
    free(kv->nan_row);
    free(kv);
}

static kv_seq *seq_of(const ls_kv *kv, int32_t seq) {
    return seq >= 0 && seq < kv->o.max_seqs && kv->seq[seq].used ? &kv->seq[seq] : NULL;
}

static ls_status seq_get(const ls_kv *kv, int32_t seq, kv_seq **out, ls_err *err) {
    *out = seq_of(kv, seq);
    return *out ? LS_OK : ls_fail(err, LS_ERR_STATE, "cache: sequence %d is not open", seq);
}

static int32_t blocks_for(const ls_kv *kv, int32_t n) {
    return (int32_t)(((int64_t)n + kv->block_rows - 1) / kv->block_rows);
}

ls_status ls_kv_open(ls_kv *kv, int32_t *seq, ls_err *err) {
    for (int32_t s = 0; s < kv->o.max_seqs; s++) {
        if (kv->seq[s].used)
            continue;
        kv->seq[s].used = true;
        kv->seq[s].len = 0;
        kv->seq[s].n_table = 0;
        *seq = s;
        return LS_OK;
    }
    return ls_fail(err, LS_ERR_FULL, "cache: all %d sequences are in use", kv->o.max_seqs);
}

static size_t slot_at(const ls_kv *kv, int32_t block, int32_t row) {
    return (size_t)block * (size_t)kv->block_rows + (size_t)row;
}

static ls_status move_row(ls_kv *kv, size_t dst, size_t src, ls_err *err) {
    for (int32_t l = 0; l < kv->o.n_layers; l++) {
        char *k = kv->k[l], *v = kv->v[l];
        LS_TRY(kv->be->copy(kv->be, k + dst * kv->row_bytes, k + src * kv->row_bytes, kv->row_bytes,
                            err));
        LS_TRY(kv->be->copy(kv->be, v + dst * kv->row_bytes, v + src * kv->row_bytes, kv->row_bytes,
                            err));
    }
    return LS_OK;
}

static ls_status poison_row(ls_kv *kv, size_t slot, ls_err *err) {
    for (int32_t l = 0; l < kv->o.n_layers; l++) {
        char *k = kv->k[l], *v = kv->v[l];
        LS_TRY(kv->be->upload(kv->be, k + slot * kv->row_bytes, kv->nan_row, kv->row_bytes, err));
        LS_TRY(kv->be->upload(kv->be, v + slot * kv->row_bytes, kv->nan_row, kv->row_bytes, err));
    }
    return LS_OK;
}

static void block_release(ls_kv *kv, int32_t block) {
    if (--kv->refs[block] == 0)
        kv->free_block[kv->n_free++] = block;
}

static int32_t block_take(ls_kv *kv) {
    int32_t block = kv->free_block[--kv->n_free];
    kv->refs[block] = 1;
    return block;
}

void ls_kv_close(ls_kv *kv, int32_t seq) {
    kv_seq *s = seq_of(kv, seq);
    if (!s)
        return;
    ls_kv_rewind(kv, seq, 0, NULL);
    s->used = false;
}

/* Makes rows [from, to) of the sequence writable: blocks it lacks are taken, blocks it shares with
 * a fork are replaced by copies. All or nothing. */
static ls_status own_rows(ls_kv *kv, kv_seq *s, int32_t from, int32_t to, ls_err *err) {
    const int32_t want = blocks_for(kv, to), first = from / kv->block_rows;
    int32_t need = want > s->n_table ? want - s->n_table : 0;
    for (int32_t b = first; b < s->n_table && b < want; b++)
        need += kv->refs[s->table[b]] > 1;
    if (need > kv->n_free)
        return ls_fail(err, LS_ERR_FULL,
                       "cache: %d more blocks are needed, %d are free: use a larger pool or fewer "
                       "sequences",
                       need, kv->n_free);
    for (int32_t b = first; b < s->n_table && b < want; b++) {
        const int32_t old = s->table[b];
        if (kv->refs[old] < 2)
            continue;
        const int32_t copy = block_take(kv);
        for (int32_t r = 0; r < kv->block_rows && b * kv->block_rows + r < s->len; r++)
            LS_TRY(move_row(kv, slot_at(kv, copy, r), slot_at(kv, old, r), err));
        block_release(kv, old);
        s->table[b] = copy;
    }
    while (s->n_table < want)
        s->table[s->n_table++] = block_take(kv);
    return LS_OK;
}

ls_status ls_kv_reserve(ls_kv *kv, int32_t seq, int32_t n, ls_err *err) {
    kv_seq *s;
    LS_TRY(seq_get(kv, seq, &s, err));
    if (n > kv->o.context)
        return ls_fail(err, LS_ERR_FULL, "cache: row %d is past the context of %d", n - 1,
                       kv->o.context);
    return own_rows(kv, s, s->len, n, err);
}

void ls_kv_append(ls_kv *kv, int32_t seq, int32_t n) {
    kv_seq *s = seq_of(kv, seq);
    if (s && n > s->len && n <= s->n_table * (int64_t)kv->block_rows)
        s->len = n;
}

ls_status ls_kv_rewind(ls_kv *kv, int32_t seq, int32_t n, ls_err *err) {
    kv_seq *s;
    LS_TRY(seq_get(kv, seq, &s, err));
    if (n < 0 || n > s->len)
        return ls_fail(err, LS_ERR_STATE, "cache: rewind to %d of %d rows", n, s->len);
    for (int32_t i = n; kv->o.poison && i < s->len; i++) {
        const int32_t b = s->table[i / kv->block_rows];
        if (kv->refs[b] == 1)
            LS_TRY(poison_row(kv, slot_at(kv, b, i % kv->block_rows), err));
    }
    s->len = n;
    const int32_t keep = blocks_for(kv, n);
    while (s->n_table > keep)
        block_release(kv, s->table[--s->n_table]);
    return LS_OK;
}

ls_status ls_kv_keep(ls_kv *kv, int32_t seq, int32_t prefix, const int32_t *index, int32_t n,
                     ls_err *err) {
    kv_seq *s;
    LS_TRY(seq_get(kv, seq, &s, err));
    if (prefix < 0 || n < 0 || prefix > s->len - n)
        return ls_fail(err, LS_ERR_STATE, "cache: cannot keep %d rows after %d of %d", n, prefix,
                       s->len);
    for (int32_t i = 0; i < n; i++)
        if (index[i] < prefix + i || index[i] >= s->len || (i > 0 && index[i] <= index[i - 1]))
            return ls_fail(err, LS_ERR_STATE, "cache: kept rows must ascend within %d..%d", prefix,
                           s->len - 1);
    LS_TRY(own_rows(kv, s, prefix, prefix + n, err));
    for (int32_t i = 0; i < n; i++)
        if (index[i] != prefix + i)
            LS_TRY(move_row(kv, (size_t)ls_kv_slot(kv, seq, prefix + i),
                            (size_t)ls_kv_slot(kv, seq, index[i]), err));
    return ls_kv_rewind(kv, seq, prefix + n, err);
}

ls_status ls_kv_fork(ls_kv *kv, int32_t src, int32_t n, int32_t *seq, ls_err *err) {
    kv_seq *a;
    LS_TRY(seq_get(kv, src, &a, err));
    if (n < 0 || n > a->len)
        return ls_fail(err, LS_ERR_STATE, "cache: fork at %d of %d rows", n, a->len);
    int32_t id = -1;
    LS_TRY(ls_kv_open(kv, &id, err));
    kv_seq *b = &kv->seq[id];
    /* whole blocks are shared; a block that is only partly common is copied now */
    const int32_t whole = n / kv->block_rows, rest = n % kv->block_rows;
    if (rest && kv->n_free < 1) {
        b->used = false;
        return ls_fail(err, LS_ERR_FULL, "cache: no block is free for the fork");
    }
    for (int32_t i = 0; i < whole; i++) {
        b->table[i] = a->table[i];
        kv->refs[a->table[i]]++;
    }
    b->n_table = whole;
    b->len = whole * kv->block_rows;
    if (rest) {
        b->table[b->n_table++] = block_take(kv);
        for (int32_t r = 0; r < rest; r++) {
            ls_status st =
                move_row(kv, slot_at(kv, b->table[whole], r), slot_at(kv, a->table[whole], r), err);
            if (st != LS_OK) {
                ls_kv_close(kv, id);
                return st;
            }
        }
        b->len = n;
    }
    *seq = id;
    return LS_OK;
}

int32_t ls_kv_len(const ls_kv *kv, int32_t seq) {
    const kv_seq *s = seq_of(kv, seq);
    return s ? s->len : -1;
}

int32_t ls_kv_free_blocks(const ls_kv *kv) {
    return kv->o.block_rows ? kv->n_free : -1;
}

const ls_kv_options *ls_kv_shape(const ls_kv *kv) {
    return &kv->o;
}

int32_t ls_kv_slots(const ls_kv *kv) {
    return kv->n_blocks * kv->block_rows;
}

int32_t ls_kv_slot(const ls_kv *kv, int32_t seq, int32_t index) {
    const kv_seq *s = seq_of(kv, seq);
    if (!s || index < 0 || index >= s->n_table * (int64_t)kv->block_rows)
        return -1;
    return (int32_t)slot_at(kv, s->table[index / kv->block_rows], index % kv->block_rows);
}

int32_t ls_kv_base(const ls_kv *kv, int32_t seq) {
    return ls_kv_slot(kv, seq, 0);
}

const int32_t *ls_kv_table(const ls_kv *kv, int32_t seq, int32_t *n) {
    const kv_seq *s = seq_of(kv, seq);
    *n = s ? s->n_table : 0;
    return s ? s->table : NULL;
}

void *ls_kv_pool_k(const ls_kv *kv, int32_t layer) {
    return kv->k[layer];
}
void *ls_kv_pool_v(const ls_kv *kv, int32_t layer) {
    return kv->v[layer];
}

ls_status ls_kv_read(ls_kv *kv, int32_t seq, int32_t layer, int32_t index, void *dst, ls_err *err) {
    kv_seq *s;
    LS_TRY(seq_get(kv, seq, &s, err));
    if (index < 0 || index >= s->len || layer < 0 || layer >= kv->o.n_layers)
        return ls_fail(err, LS_ERR_STATE, "cache: row %d of layer %d is not there", index, layer);
    const size_t at = (size_t)ls_kv_slot(kv, seq, index) * kv->row_bytes;
    LS_TRY(kv->be->download(kv->be, dst, (const char *)kv->k[layer] + at, kv->row_bytes, err));
    return kv->be->download(kv->be, (char *)dst + kv->row_bytes, (const char *)kv->v[layer] + at,
                            kv->row_bytes, err);
}
