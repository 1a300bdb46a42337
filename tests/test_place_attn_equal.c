/* place_attn, bits: what attention gives and what the cache holds are those of place and then attn,
 * for chains, trees, pages and batches of two sequences, rows without keys and rows that store
 * nothing, few rows (which a profile may take in one launch) and many; time after time, since such
 * a launch leaves its counters as it found them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernel_rig.h"

enum { MAX_ROWS = 33, FEW_KEYS = 700, MANY_KEYS = 4100, BLOCK = 16 };
/* Slots of two sequences of so many keys, whole blocks. */
#define SLOTS_OF(keys) (2 * ((keys) + MAX_ROWS + 3 * BLOCK) / BLOCK * BLOCK)
enum { SLOTS_MOST = SLOTS_OF(MANY_KEYS) };
enum form { CHAIN, PAGED, TREE, BATCH, N_FORMS };

typedef struct shape {
    int H, G, E;
    ls_dtype t;
} shape;

/* The tables of a pass, on the host. */
typedef struct tables {
    int32_t pos[MAX_ROWS], slot[MAX_ROWS], length[MAX_ROWS], base[MAX_ROWS], prefix[MAX_ROWS];
    int32_t table[SLOTS_MOST / BLOCK], table_at[MAX_ROWS], table_len[MAX_ROWS];
    int32_t anc[MAX_ROWS * MAX_ROWS];
} tables;

typedef struct world {
    ls_backend *be;
    shape s;
    float *q_h, *k_h;                  /* as the linears gave them */
    void *q, *k, *v, *cos, *sin, *out; /* on the device */
    void *first[2], *k_pool, *v_pool;  /* host: the pools before; device */
    void *part;
    tables *t; /* device */
    int32_t max_chunks, slots;
    ls_chunk_rule rule;
} world;

static size_t pool_bytes(const world *w) {
    return (size_t)w->slots * (size_t)(w->s.G * w->s.E) * ls_dtype_bytes(w->s.t);
}
static size_t rows_of(const world *w, int heads) {
    return (size_t)MAX_ROWS * (size_t)heads * (size_t)w->s.E;
}
static float *values(size_t n, uint32_t seed) {
    float *x = kr_alloc(n * sizeof *x);
    kr_fill(x, n, seed, 2.0f);
    return x;
}
static void world_open(world *w, ls_backend *be, shape s, ls_chunk_rule rule, int keys) {
    *w = (world){.be = be, .s = s, .rule = rule, .slots = SLOTS_OF(keys)};
    w->q_h = values(rows_of(w, s.H), 1), w->k_h = values(rows_of(w, s.G), 2);
    w->q = kr_dev(be, NULL, rows_of(w, s.H) * sizeof(float));
    w->k = kr_dev(be, NULL, rows_of(w, s.G) * sizeof(float));
    w->v = kr_filled(be, rows_of(w, s.G), 3, 2.0f);
    w->cos = kr_filled(be, (size_t)w->slots * (size_t)s.E / 2, 4, 2.0f);
    w->sin = kr_filled(be, (size_t)w->slots * (size_t)s.E / 2, 5, 2.0f);
    w->out = kr_dev(be, NULL, rows_of(w, s.H) * sizeof(float));
    for (int i = 0; i < 2; i++)
        w->first[i] =
            kr_weights((size_t)w->slots * (size_t)(s.G * s.E), s.t, 6 + (uint32_t)i, 1.0f);
    w->k_pool = kr_dev(be, NULL, pool_bytes(w)), w->v_pool = kr_dev(be, NULL, pool_bytes(w));
    w->max_chunks = ls_chunk_bound(rule, keys + MAX_ROWS);
    w->part = kr_dev(be, NULL,
                     (size_t)(MAX_ROWS * s.H) * (size_t)w->max_chunks * (size_t)(2 + s.E) *
                         sizeof(float));
    w->t = kr_dev(be, NULL, sizeof *w->t);
}
static void world_close(world *w) {
    void *dev[] = {w->q, w->k, w->v, w->cos, w->sin, w->out, w->k_pool, w->v_pool, w->part, w->t};
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        kr_free(w->be, dev[i]);
    free(w->q_h), free(w->k_h), free(w->first[0]), free(w->first[1]);
}

/* n rows behind `keys` keys. */
static void fill(tables *t, int slots, enum form form, int keys, int n) {
    memset(t, 0, sizeof *t);
    const int blocks =
        slots / BLOCK; /* in an order that meets each once: 7 divides no such number */
    assert_int_not_equal(blocks % 7, 0);
    for (int i = 0; i < blocks; i++)
        t->table[i] = (i * 7 + 3) % blocks;
    for (int r = 0; r < n; r++) {
        /* a batch: the second half is another, shorter sequence */
        const bool other = form == BATCH && r >= (n + 1) / 2;
        const int index = other ? keys / 3 + r - (n + 1) / 2 : keys + r;
        t->base[r] = other ? slots / 2 : 5;
        t->table_at[r] = 0, t->table_len[r] = blocks;
        t->pos[r] = index, t->length[r] = index + 1, t->prefix[r] = INT32_MAX;
        t->slot[r] =
            form == PAGED ? t->table[index / BLOCK] * BLOCK + index % BLOCK : t->base[r] + index;
        if (form == TREE) { /* row r hangs on row (r - 1) / 2 */
            int32_t path[MAX_ROWS], depth = 0;
            for (int i = r;; i = (i - 1) / 2) {
                path[depth++] = i;
                if (i == 0)
                    break;
            }
            t->prefix[r] = keys, t->length[r] = keys + depth, t->pos[r] = keys + depth - 1;
            for (int i = 0; i < depth; i++)
                t->anc[r * MAX_ROWS + i] = keys + path[depth - 1 - i];
        }
        if (form == BATCH && r % 5 == 3) /* a row that is not one */
            t->length[r] = 0, t->slot[r] = r % 2 ? -1 : slots - 1 - r;
        if (form == BATCH && r % 7 == 6)
            t->pos[r] = -1; /* left as it is */
    }
}

/* Runs the rows on fresh pools and takes down what they leave. */
static void run(world *w, const tables *t, enum form form, int n, bool together, float *out,
                void *k_pool, void *v_pool) {
    ls_backend *be = w->be;
    const shape s = w->s;
    const size_t row = (size_t)(s.G * s.E) * ls_dtype_bytes(s.t);
    for (int i = 0; i < 2; i++) {
        void *pool = kr_alloc(pool_bytes(w)); /* NaN in the rows' own slots */
        char none[256 * 8 * 4];
        memset(none, 0xff, sizeof none);
        memcpy(pool, w->first[i], pool_bytes(w));
        for (int r = 0; r < n; r++)
            if (t->slot[r] >= 0)
                memcpy((char *)pool + (size_t)t->slot[r] * row, none, row);
        kr_up(be, i ? w->v_pool : w->k_pool, pool, pool_bytes(w));
        free(pool);
    }
    kr_up(be, w->q, w->q_h, rows_of(w, s.H) * sizeof(float));
    kr_up(be, w->k, w->k_h, rows_of(w, s.G) * sizeof(float));
    kr_up(be, w->t, t, sizeof *t);
    ls_locator loc = {.n_slots = w->slots, .block_rows = form == PAGED ? BLOCK : 0};
    if (form == PAGED)
        loc.table = w->t->table, loc.table_at = w->t->table_at, loc.table_len = w->t->table_len;
    else
        loc.base = w->t->base;
    if (form == TREE)
        loc.prefix = w->t->prefix, loc.anc = w->t->anc, loc.ld_anc = MAX_ROWS;
    const ls_rope_args rope = {.q = w->q,
                               .k = w->k,
                               .pos = w->t->pos,
                               .cos = w->cos,
                               .sin = w->sin,
                               .n_rows = n,
                               .n_heads = s.H,
                               .n_kv = s.G,
                               .head_dim = s.E,
                               .n_pos = w->slots};
    const ls_kv_store_args store = {.k = w->k,
                                    .v = w->v,
                                    .k_pool = w->k_pool,
                                    .v_pool = w->v_pool,
                                    .slot = w->t->slot,
                                    .kv_dtype = s.t,
                                    .n_rows = n,
                                    .n_kv = s.G,
                                    .head_dim = s.E,
                                    .n_slots = w->slots};
    const ls_attn_args attn = {.q = w->q,
                               .k_pool = w->k_pool,
                               .v_pool = w->v_pool,
                               .kv_dtype = s.t,
                               .loc = loc,
                               .length = w->t->length,
                               .rule = w->rule,
                               .max_chunks = w->max_chunks,
                               .part = w->part,
                               .out = w->out,
                               .scale = 0.1f,
                               .n_rows = n,
                               .n_heads = s.H,
                               .n_kv = s.G,
                               .head_dim = s.E};
    if (together) {
        be->place_attn(be, &rope, &store, &attn);
    } else {
        be->place(be, &rope, &store);
        be->attn(be, &attn);
    }
    kr_sync(be);
    kr_down(be, out, w->out, (size_t)(n * s.H * s.E) * sizeof *out);
    kr_down(be, k_pool, w->k_pool, pool_bytes(w));
    kr_down(be, v_pool, w->v_pool, pool_bytes(w));
}

static void same_as_apart(world *w, enum form form, int keys, int n) {
    tables t;
    fill(&t, w->slots, form, keys, n);
    const size_t n_out = (size_t)(n * w->s.H * w->s.E);
    float *out[2];
    void *k[2], *v[2];
    for (int i = 0; i < 2; i++) {
        out[i] = kr_alloc(n_out * sizeof(float));
        k[i] = kr_alloc(pool_bytes(w)), v[i] = kr_alloc(pool_bytes(w));
        run(w, &t, form, n, i == 1, out[i], k[i], v[i]);
    }
    for (size_t i = 0; i < n_out; i++)
        if (out[0][i] != out[0][i])
            fail_msg("a NaN: row %zu", i / (size_t)(w->s.H * w->s.E));
    const size_t row = (size_t)(w->s.H * w->s.E);
    if (kr_differ("together, apart", out[1], out[0], n_out, row) ||
        memcmp(k[0], k[1], pool_bytes(w)) != 0 || memcmp(v[0], v[1], pool_bytes(w)) != 0)
        fail_msg("heads %d/%d of %d, form %d, %d rows behind %d keys: bits differ", w->s.H, w->s.G,
                 w->s.E, form, n, keys);
    for (int i = 0; i < 2; i++)
        free(out[i]), free(k[i]), free(v[i]);
}

static void as_apart(void **state) {
    (void)state;
    static const shape shapes[] = {{8, 2, 64, LS_BF16},  {8, 2, 128, LS_BF16}, {14, 2, 64, LS_BF16},
                                   {4, 4, 32, LS_BF16},  {3, 1, 256, LS_BF16}, {6, 2, 96, LS_BF16},
                                   {20, 1, 16, LS_BF16}, {4, 2, 64, LS_F32},   {4, 2, 40, LS_BF16}};
    static const int keys[] = {0, 15, 16, 127, 511, FEW_KEYS};
    static const int n_rows[] = {1, 3, 8, 16, MAX_ROWS};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    const ls_chunk_rule rules[] = {be->chunk, {LS_CHUNK_SPLITS, 0, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        world w;
        world_open(&w, be, shapes[i], rules[i == 1], FEW_KEYS);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            for (size_t n = 0; n < sizeof n_rows / sizeof *n_rows; n++)
                if (!LS_THIN || (i + 2 * k + n) % 5 == 0)
                    same_as_apart(&w, (enum form)((i + k + n) % N_FORMS), keys[k], n_rows[n]);
        world_close(&w);
    }
    ls_backend_destroy(be);
}

/* More chunks than a cluster of blocks has, and past where doubling changes their length. */
static void many_keys(void **state) {
    (void)state;
    static const int keys[] = {897, 1015, 1024, 2050, 4088, 4095, MANY_KEYS};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    world w;
    world_open(&w, be, (shape){8, 2, 64, LS_BF16}, be->chunk, MANY_KEYS);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int n = 1; n <= (LS_THIN ? 4 : 16); n *= 4)
            same_as_apart(&w, (enum form)((i + (size_t)n) % N_FORMS), keys[i], n);
    world_close(&w);
    ls_backend_destroy(be);
}

/* Every form at each of a few widths. */
static void forms(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    world w;
    world_open(&w, be, (shape){8, 2, 64, LS_BF16}, be->chunk, FEW_KEYS);
    for (int form = 0; form < N_FORMS; form++)
        for (int n = 1; n <= 16; n += n < 4 ? 1 : 3)
            for (int keys = 60; keys < (LS_THIN ? 100 : 700); keys += 317)
                same_as_apart(&w, (enum form)form, keys, n);
    world_close(&w);
    ls_backend_destroy(be);
}

/* Operands that do not belong together are refused. */
static void refused(void **state) {
    (void)state;
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 1);
    for (int wrong = 0; wrong < 4; wrong++) {
        float q[64], k[64];
        char pool[64 * 8];
        int32_t table[2] = {0, 0};
        const ls_rope_args rope = {.q = q,
                                   .k = k,
                                   .pos = table,
                                   .cos = q,
                                   .sin = q,
                                   .n_rows = 1,
                                   .n_heads = wrong == 0 ? 2 : 1,
                                   .n_kv = 1,
                                   .head_dim = 32,
                                   .n_pos = 1};
        const ls_kv_store_args store = {.k = k,
                                        .v = k,
                                        .k_pool = pool + (wrong == 1 ? 64 : 0),
                                        .v_pool = pool,
                                        .slot = table,
                                        .kv_dtype = wrong == 2 ? LS_F32 : LS_BF16,
                                        .n_rows = 1,
                                        .n_kv = 1,
                                        .head_dim = 32,
                                        .n_slots = 2};
        const ls_attn_args attn = {.q = wrong == 3 ? k : q,
                                   .k_pool = pool,
                                   .v_pool = pool,
                                   .kv_dtype = LS_BF16,
                                   .loc = {.base = table, .n_slots = 2},
                                   .length = table,
                                   .rule = be->chunk,
                                   .max_chunks = 1,
                                   .part = q,
                                   .out = q,
                                   .scale = 1.0f,
                                   .n_rows = 1,
                                   .n_heads = 1,
                                   .n_kv = 1,
                                   .head_dim = 32};
        ls_err err;
        be->place_attn(be, &rope, &store, &attn);
        assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    }
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_apart), cmocka_unit_test(many_keys),
                                       cmocka_unit_test(forms), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
