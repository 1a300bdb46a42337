#include "bench_attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "convert.h"

struct ls_attn_bench {
    ls_backend *be;
    ls_attn_case c;
    int32_t n_slots, max_chunks;
    size_t pool_bytes; /* keys, or values, of one layer */
    void *k, *v;       /* [n_layers] pools, one after another */
    float *q, *out, *part;
    int32_t *tables; /* length [R], base [R] or table_at [R], table_len [R], table [n_blocks] */
    ls_attn_args args;
    ls_graph *graph[LS_ATTN_PARTS];
    ls_span span[2 * LS_ATTN_LAYERS_MAX];
};

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* n numbers of magnitude 0.5 to 1, either sign, of the type. */
static void fill(void *dst, ls_dtype type, size_t n, uint64_t *seed) {
    uint16_t *h = dst;
    float *f = dst;
    for (size_t i = 0; i < n;) {
        uint64_t z = next(seed);
        for (int k = 0; k < 4 && i < n; k++, i++, z >>= 16) {
            const uint16_t bits = (uint16_t)(0x3f00u | (z & 0x807fu));
            if (type == LS_F32)
                f[i] = ls_f32_of_bf16(bits);
            else
                h[i] = bits;
        }
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

static ls_status check(const ls_backend *be, const ls_attn_case *c, ls_err *err) {
    const int64_t keys = (int64_t)c->length + c->n_rows - 1;
    if (c->n_heads < 1 || c->n_kv < 1 || c->n_heads % c->n_kv || c->n_heads > 1024)
        return ls_fail(err, LS_ERR_INPUT, "%d heads over %d: the first is a multiple of the second",
                       c->n_heads, c->n_kv);
    if (c->head_dim < 2 || c->head_dim % 2 || c->head_dim > LS_HEAD_DIM_MAX)
        return ls_fail(err, LS_ERR_INPUT, "head_dim %d: even, at most %d", c->head_dim,
                       LS_HEAD_DIM_MAX);
    if (c->length < 1 || c->n_rows < 1 || c->n_rows > LS_ATTN_ROWS_MAX || c->n_layers < 1 ||
        c->n_layers > LS_ATTN_LAYERS_MAX || c->block_rows < 0 || keys > 1 << 24)
        return ls_fail(err, LS_ERR_INPUT, "length %d, %d rows, %d layers, blocks of %d rows",
                       c->length, c->n_rows, c->n_layers, c->block_rows);
    if (c->capacity && c->capacity < keys)
        return ls_fail(err, LS_ERR_INPUT, "a capacity of %d keys: %d rows from %d on need %d",
                       c->capacity, c->n_rows, c->length, (int)keys);
    if (c->kv_dtype != LS_F32 && c->kv_dtype != LS_BF16)
        return ls_fail(err, LS_ERR_INPUT, "keys and values are f32 or bf16");
    if (c->graph && !be->record)
        return ls_fail(err, LS_ERR_INPUT, "the device %s has no graphs", be->name);
    return ls_chunk_check(c->rule, err);
}

/* One layer's content, copied to all: which bits are read makes no difference to the time. */
static ls_status fill_pools(ls_attn_bench *b, uint64_t *seed, ls_err *err) {
    ls_backend *be = b->be;
    void *host = malloc(b->pool_bytes);
    if (!host)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    fill(host, b->c.kv_dtype, b->pool_bytes / ls_dtype_bytes(b->c.kv_dtype), seed);
    ls_status status = LS_OK;
    for (size_t l = 0; status == LS_OK && l < (size_t)b->c.n_layers; l++) {
        char *k = (char *)b->k + l * b->pool_bytes, *v = (char *)b->v + l * b->pool_bytes;
        status = l ? be->copy(be, k, b->k, b->pool_bytes, err)
                   : be->upload(be, k, host, b->pool_bytes, err);
        if (status == LS_OK)
            status = be->copy(be, v, b->k, b->pool_bytes, err);
    }
    free(host);
    return status;
}

/* Lengths, and where the rows' keys are. */
static ls_status fill_tables(ls_attn_bench *b, uint64_t *seed, ls_err *err) {
    const int32_t r = b->c.n_rows, block = b->c.block_rows;
    const int32_t n_block = block ? b->n_slots / block : 0;
    const size_t n = 3 * (size_t)r + (size_t)n_block;
    int32_t *h = calloc(n, sizeof *h);
    if (!h)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < r; i++) {
        h[i] = b->c.length + i;
        h[2 * r + i] = n_block;
    }
    int32_t *table = h + 3 * r;
    for (int32_t i = 0; i < n_block; i++) { /* a shuffle from the inside out */
        const int32_t j = (int32_t)(next(seed) % (uint64_t)(i + 1));
        table[i] = table[j];
        table[j] = i;
    }
    ls_backend *be = b->be;
    ls_status status = be->alloc(be, n * sizeof *h, (void **)&b->tables, err);
    if (status == LS_OK)
        status = be->upload(be, b->tables, h, n * sizeof *h, err);
    free(h);
    return status;
}

static ls_status take_memory(ls_attn_bench *b, ls_err *err) {
    const ls_attn_case *c = &b->c;
    const size_t r = (size_t)c->n_rows, he = (size_t)c->n_heads * (size_t)c->head_dim;
    const size_t part = r * (size_t)c->n_heads * (size_t)b->max_chunks * (2 + (size_t)c->head_dim);
    const struct {
        void **p;
        size_t bytes;
    } need[] = {{&b->k, (size_t)c->n_layers * b->pool_bytes},
                {&b->v, (size_t)c->n_layers * b->pool_bytes},
                {(void **)&b->q, r * he * sizeof(float)},
                {(void **)&b->out, r * he * sizeof(float)},
                {(void **)&b->part, part * sizeof(float)}};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        LS_TRY(b->be->alloc(b->be, need[i].bytes, need[i].p, err));
    return LS_OK;
}

static ls_status fill_query(ls_attn_bench *b, uint64_t *seed, ls_err *err) {
    const size_t n = (size_t)b->c.n_rows * (size_t)b->c.n_heads * (size_t)b->c.head_dim;
    float *host = malloc(n * sizeof *host);
    if (!host)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    fill(host, LS_F32, n, seed);
    ls_status status = b->be->upload(b->be, b->q, host, n * sizeof *host, err);
    free(host);
    return status;
}

static void launch(ls_attn_bench *b, int32_t part) {
    ls_attn_args a = b->args;
    a.only = part;
    for (size_t l = 0; l < (size_t)b->c.n_layers; l++) {
        a.k_pool = (const char *)b->k + l * b->pool_bytes;
        a.v_pool = (const char *)b->v + l * b->pool_bytes;
        b->be->attn(b->be, &a);
    }
}

static ls_status build(ls_attn_bench *b, ls_err *err) {
    ls_attn_case *c = &b->c;
    ls_backend *be = b->be;
    uint64_t seed = c->seed;
    const int32_t block = c->block_rows, keys = c->length + c->n_rows - 1;
    c->capacity = c->capacity ? c->capacity : keys;
    b->n_slots = block ? (keys + block - 1) / block * block : keys;
    b->max_chunks = ls_chunk_bound(c->rule, c->capacity);
    const size_t row_bytes = (size_t)c->n_kv * (size_t)c->head_dim * ls_dtype_bytes(c->kv_dtype);
    b->pool_bytes = (size_t)b->n_slots * row_bytes;
    LS_TRY(take_memory(b, err));
    LS_TRY(fill_pools(b, &seed, err));
    LS_TRY(fill_tables(b, &seed, err));
    LS_TRY(fill_query(b, &seed, err));
    ls_locator loc = {.block_rows = block, .n_slots = b->n_slots};
    if (block)
        loc.table_at = b->tables + c->n_rows, loc.table_len = b->tables + 2 * c->n_rows,
        loc.table = b->tables + 3 * c->n_rows;
    else
        loc.base = b->tables + c->n_rows;
    b->args = (ls_attn_args){.q = b->q,
                             .k_pool = b->k,
                             .v_pool = b->v,
                             .kv_dtype = c->kv_dtype,
                             .loc = loc,
                             .length = b->tables,
                             .rule = c->rule,
                             .max_chunks = b->max_chunks,
                             .part = b->part,
                             .out = b->out,
                             .scale = (float)(1 / sqrt((double)c->head_dim)),
                             .n_rows = c->n_rows,
                             .n_heads = c->n_heads,
                             .n_kv = c->n_kv,
                             .head_dim = c->head_dim};
    for (size_t l = 0; l < (size_t)c->n_layers; l++) {
        const size_t bytes = (size_t)keys * row_bytes;
        b->span[2 * l] = (ls_span){(const char *)b->k + l * b->pool_bytes, bytes};
        b->span[2 * l + 1] = (ls_span){(const char *)b->v + l * b->pool_bytes, bytes};
    }
    launch(b, LS_ATTN_BOTH); /* a merge alone finds the chunks of this */
    LS_TRY(be->sync(be, err));
    for (int32_t part = 0; c->graph && part < LS_ATTN_PARTS; part++) {
        LS_TRY(be->record(be, err));
        launch(b, part);
        LS_TRY(be->record_end(be, &b->graph[part], err));
    }
    return LS_OK;
}

ls_status ls_attn_bench_open(ls_backend *be, const ls_attn_case *c, ls_attn_bench **out,
                             ls_err *err) {
    LS_TRY(check(be, c, err));
    ls_attn_bench *b = calloc(1, sizeof *b);
    if (!b)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    b->be = be;
    b->c = *c;
    ls_status status = build(b, err);
    if (status == LS_OK)
        *out = b;
    else
        ls_attn_bench_close(b);
    return status;
}

void ls_attn_bench_close(ls_attn_bench *b) {
    if (!b)
        return;
    for (int32_t part = 0; part < LS_ATTN_PARTS; part++)
        if (b->graph[part])
            b->be->graph_free(b->be, b->graph[part]);
    void *dev[] = {b->k, b->v, b->q, b->out, b->part, b->tables};
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        b->be->free(b->be, dev[i]);
    free(b);
}

/* ---- run ------------------------------------------------------------------------------------- */

ls_status ls_attn_bench_run(void *self, int32_t part, ls_took *took, ls_err *err) {
    ls_attn_bench *b = self;
    ls_backend *be = b->be;
    const double t0 = ls_now_us();
    be->stamp(be, 0);
    if (b->graph[part])
        LS_TRY(be->replay(be, b->graph[part], err));
    else
        launch(b, part);
    be->stamp(be, 1);
    LS_TRY(be->sync(be, err));
    took->wall_us = ls_now_us() - t0;
    took->device_us = be->between(be, 0, 1);
    return LS_OK;
}

ls_status ls_attn_bench_read(void *self, int32_t unused, ls_took *took, ls_err *err) {
    const ls_attn_bench *b = self;
    (void)unused;
    return ls_bench_read(b->be, b->span, 2 * b->c.n_layers, took, err);
}

size_t ls_attn_bench_bytes(const ls_attn_bench *b) {
    return 2 * b->span[0].bytes;
}

bool ls_attn_bench_grid(const ls_attn_bench *b, ls_attn_grid *out) {
    *out = (ls_attn_grid){.max_chunks = b->max_chunks};
    for (int32_t r = 0; r < b->c.n_rows; r++) {
        const int32_t n = ls_chunk_count(b->c.rule, b->c.length + r);
        out->live_chunks = n > out->live_chunks ? n : out->live_chunks;
    }
    if (!b->be->attn_launch)
        return false;
    b->be->attn_launch(b->be, &b->args, &out->launch);
    const ls_launch *l = &out->launch;
    if (l->units < 1 || l->warps_a_unit < 1) /* it failed; the next run says why */
        return false;
    const int64_t live = (int64_t)l->blocks * out->live_chunks / out->max_chunks;
    const int64_t at_once = (int64_t)l->blocks_a_unit * l->units;
    const double warps = (double)(live < at_once ? live : at_once) * ((l->threads + 31) / 32);
    out->live_blocks = (int32_t)live;
    out->occupancy = warps / ((double)l->warps_a_unit * l->units);
    return true;
}
