/* kernel_stage.c - host operands on a device: copied there, the results back and compared with the
 * CPU's. An operation's operands are listed once, results first, and mapped twice: to the device
 * and, for the comparison, to copies in host memory. */
#include "kernel_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_ITEMS = 32, SLACK = 512 };

typedef enum use { READ, RESULT, SCRATCH } use;
/* what two results are compared as: a NaN equals a NaN of the same type */
typedef enum as { AS_F32 = LS_F32, AS_BF16 = LS_BF16, AS_F16 = LS_F16, AS_BYTES, AS_STATS } as;

typedef struct item {
    const void *host;
    void *mem;
    size_t bytes;
    use u;
    as t;
} item;

typedef struct stage {
    ls_backend *be; /* NULL: copies in host memory */
    item item[MAX_ITEMS];
    int n;
    ls_mat mat[LS_LINEARS];
    int n_mat;
} stage;

static ls_simd shadow_simd = LS_SIMD_PLAIN;

void kr_shadow(ls_simd simd) {
    shadow_simd = simd;
}

/* ---- device memory --------------------------------------------------------------------------- */

static void must(ls_status s, const ls_err *err) {
    if (s != LS_OK)
        fail_msg("%s", err->msg);
}

void kr_up(ls_backend *be, void *dev, const void *host, size_t bytes) {
    ls_err err;
    must(be->upload(be, dev, host, bytes, &err), &err);
}

void kr_down(ls_backend *be, void *host, const void *dev, size_t bytes) {
    ls_err err;
    must(be->download(be, host, dev, bytes, &err), &err);
}

/* Device memory full of NaN: a little from the host, then copies of it. */
static void fill_nan(ls_backend *be, char *dev, size_t bytes) {
    ls_err err;
    size_t n = bytes < 65536 ? bytes : 65536;
    char *nan = kr_alloc(n);
    kr_up(be, dev, nan, n);
    free(nan);
    for (; n < bytes; n *= 2)
        must(be->copy(be, dev + n, dev, n < bytes - n ? n : bytes - n, &err), &err);
}

void *kr_dev(ls_backend *be, const void *host, size_t bytes) {
    ls_err err;
    void *dev = NULL;
    const size_t slack = rig_thin() ? 0 : SLACK;
    must(be->alloc(be, bytes + slack ? bytes + slack : 1, &dev, &err), &err);
    if (host && bytes)
        kr_up(be, dev, host, bytes);
    if (host && slack)
        fill_nan(be, (char *)dev + bytes, slack);
    else if (!host)
        fill_nan(be, dev, bytes + slack);
    return dev;
}

void kr_free(ls_backend *be, void *dev) {
    be->free(be, dev);
}

void *kr_filled(ls_backend *be, size_t n, uint32_t seed, float scale) {
    float *v = kr_alloc(n * sizeof *v);
    kr_fill(v, n, seed, scale);
    void *dev = kr_dev(be, v, n * sizeof *v);
    free(v);
    return dev;
}

ls_mat kr_mat(ls_backend *be, int n_out, int n_in, ls_dtype t, uint32_t seed, float scale) {
    ls_err err;
    const ls_mat host = {kr_weights((size_t)n_out * (size_t)n_in, t, seed, scale), t, n_out, n_in};
    ls_mat dev;
    must(be->mat(be, &host, &dev, &err), &err);
    must(be->weights_done(be, &err), &err);
    if (dev.data != host.data) /* the CPU lends it back */
        free((void *)(uintptr_t)host.data);
    return dev;
}
void kr_mat_free(ls_backend *be, ls_mat *m) {
    const int lent = strcmp(be->name, "cpu") == 0;
    void *data = (void *)(uintptr_t)m->data;
    be->mat_free(be, m);
    if (lent)
        free(data);
}

/* ---- a stage --------------------------------------------------------------------------------- */

/* Where `bytes` at host are in this stage. Results come first, so that an operand that is also a
 * result (in place) is found as one. */
static void *put(stage *s, const void *host, size_t bytes, use u, as t) {
    if (!host)
        return NULL;
    for (int i = 0; i < s->n; i++)
        if (s->item[i].host == host) {
            assert_true(bytes <= s->item[i].bytes);
            return s->item[i].mem;
        }
    if (!s->be && u == READ)
        return (void *)(uintptr_t)host;
    assert_true(s->n < MAX_ITEMS);
    item *it = &s->item[s->n++];
    *it = (item){host, NULL, bytes, u, t};
    if (s->be) {
        it->mem = kr_dev(s->be, u == SCRATCH ? NULL : host, bytes);
    } else {
        it->mem = kr_alloc(bytes);
        memcpy(it->mem, host, bytes);
    }
    return it->mem;
}

#define RD(p, n, size) put(s, (p), (size_t)(n) * (size), READ, AS_BYTES)
#define WR(p, n, type) put(s, (p), (size_t)(n)*4, RESULT, (type))

static ls_mat mat(stage *s, ls_mat w) {
    ls_err err;
    if (!s->be)
        return w;
    if (!s->be->mat) {
        w.data = RD(w.data, w.n_out, ls_dtype_span(w.dtype, (size_t)w.n_in));
        return w;
    }
    assert_true(s->n_mat < LS_LINEARS);
    must(s->be->mat(s->be, &w, &s->mat[s->n_mat], &err), &err);
    must(s->be->weights_done(s->be, &err), &err);
    return s->mat[s->n_mat++];
}

static bool is_nan(uint32_t u, as t) {
    return t == AS_F32    ? (u & 0x7fffffffu) > 0x7f800000u
           : t == AS_BF16 ? (u & 0x7fffu) > 0x7f80u
           : t == AS_F16  ? (u & 0x7fffu) > 0x7c00u
                          : false;
}

static bool same_stats(const ls_row_stats *a, const ls_row_stats *b) {
    uint32_t u[sizeof *a / 4], v[sizeof *a / 4];
    if (a->flags == 0 || b->flags == 0)
        return memcmp(a, b, sizeof *a) == 0;
    memcpy(u, a, sizeof *a), memcpy(v, b, sizeof *b);
    for (size_t i = 0; i < sizeof *a / 4; i++) /* of a flagged row, sums may be NaN */
        if (u[i] != v[i] && !(i > 2 && is_nan(u[i], AS_F32) && is_nan(v[i], AS_F32)))
            return false;
    return true;
}

static void compare(const char *what, const item *got, const item *want) {
    const size_t size = got->t == AS_STATS                      ? sizeof(ls_row_stats)
                        : got->t == AS_BF16 || got->t == AS_F16 ? 2
                                                                : 4;
    const char *a = got->mem, *b = want->mem;
    size_t bad = 0, first = 0;
    if (memcmp(a, b, got->bytes) == 0)
        return;
    for (size_t i = 0; i < got->bytes / size; i++) {
        uint32_t u = 0, v = 0;
        if (memcmp(a + i * size, b + i * size, size) == 0)
            continue;
        if (got->t == AS_STATS) {
            if (same_stats((const ls_row_stats *)(const void *)(a + i * size),
                           (const ls_row_stats *)(const void *)(b + i * size)))
                continue;
        } else {
            memcpy(&u, a + i * size, size), memcpy(&v, b + i * size, size);
            if (is_nan(u, got->t) && is_nan(v, got->t))
                continue;
        }
        if (bad++ == 0)
            first = i;
    }
    if (bad == 0)
        return;
    uint32_t u = 0, v = 0;
    size_t at = 0; /* first differing word of it */
    while (at + 4 < size && memcmp(a + first * size + at, b + first * size + at, 4) == 0)
        at += 4;
    memcpy(&u, a + first * size + at, size < 4 ? size : 4);
    memcpy(&v, b + first * size + at, size < 4 ? size : 4);
    fail_msg("%s: %zu of %zu results differ from plain C's, first %zu (word %zu): %08x, %08x", what,
             bad, got->bytes / size, first, at / 4, u, v);
}

/* Results come to host memory; then the device memory of the stage is gone. */
static void collect(stage *s) {
    for (int i = 0; i < s->n; i++) {
        item *it = &s->item[i];
        if (s->be && it->u == RESULT && it->bytes) {
            char *host = kr_alloc(it->bytes);
            kr_down(s->be, host, it->mem, it->bytes);
            kr_free(s->be, it->mem);
            it->mem = host;
        } else if (s->be) {
            kr_free(s->be, it->mem);
            it->mem = NULL;
        }
    }
    for (int i = 0; i < s->n_mat; i++)
        s->be->mat_free(s->be, &s->mat[i]);
}

static void drop(stage *s) {
    for (int i = 0; i < s->n; i++)
        free(s->item[i].mem);
}

/* The CPU's side of the comparison, or NULL where none is promised. Kept until the program ends. */
static ls_backend *shadow_of(const ls_backend *be) {
    static ls_backend *cpu[2];
    ls_backend **c = &cpu[shadow_simd != LS_SIMD_PLAIN];
    if (strcmp(be->profile, "ieee") != 0)
        return NULL;
    if (!*c)
        *c = kr_cpu(shadow_simd, 0);
    return *c;
}

static void finish(const char *what, ls_backend *be, ls_backend *cpu, stage *d, stage *h) {
    kr_sync(be);
    collect(d);
    if (cpu) {
        kr_sync(cpu);
        assert_true(d->n >= h->n);
        for (int i = 0; i < h->n; i++) /* results come first in both */
            if (h->item[i].u == RESULT)
                compare(what, &d->item[i], &h->item[i]);
    }
    for (int i = 0; i < d->n; i++)
        if (d->item[i].u == RESULT && d->item[i].bytes)
            memcpy((void *)(uintptr_t)d->item[i].host, d->item[i].mem, d->item[i].bytes);
    drop(d), drop(h);
}

static bool on_host(const ls_backend *be) {
    return strcmp(be->name, "cpu") == 0;
}

/* kr_NAME from map_NAME: the arguments with every pointer in this stage's memory. */
#define STAGED(op)                                          \
    void kr_##op(ls_backend *be, const ls_##op##_args *a) { \
        if (on_host(be)) {                                  \
            be->op(be, a);                                  \
            return;                                         \
        }                                                   \
        stage d = {.be = be}, h = {0};                      \
        ls_backend *cpu = shadow_of(be);                    \
        const ls_##op##_args there = map_##op(&d, *a);      \
        be->op(be, &there);                                 \
        if (cpu) {                                          \
            const ls_##op##_args here = map_##op(&h, *a);   \
            cpu->op(cpu, &here);                            \
        }                                                   \
        finish(#op, be, cpu, &d, &h);                       \
    }

/* ---- the operands of each operation ---------------------------------------------------------- */

static size_t cells(int32_t a, int32_t b) {
    return (size_t)a * (size_t)b;
}

static ls_embed_args map_embed(stage *s, ls_embed_args a) {
    a.x = WR(a.x, cells(a.n_rows, a.table.n_in), AS_F32);
    a.table.data =
        RD(a.table.data, a.table.n_out, ls_dtype_span(a.table.dtype, (size_t)a.table.n_in));
    a.token = RD(a.token, a.n_rows, 4);
    return a;
}
STAGED(embed)

static ls_rmsnorm_args map_rmsnorm(stage *s, ls_rmsnorm_args a) {
    a.y = WR(a.y, cells(a.n_rows, a.dim), AS_F32);
    a.x = RD(a.x, cells(a.n_rows, a.dim), 4);
    a.w = RD(a.w, a.dim, ls_dtype_bytes(a.w_dtype));
    a.add = RD(a.add, cells(a.n_rows, a.dim), 4);
    return a;
}
STAGED(rmsnorm)

static ls_linear_args map_linear(stage *s, ls_linear_args a) {
    a.y = WR(a.y, cells(a.n_rows, a.w.n_out), AS_F32);
    a.x = RD(a.x, cells(a.n_rows, a.w.n_in), 4);
    a.add = RD(a.add, cells(a.n_rows, a.w.n_out), 4);
    a.w = mat(s, a.w);
    return a;
}
STAGED(linear)

void kr_linears(ls_backend *be, const ls_linear_args *a, int32_t n) {
    if (on_host(be)) {
        be->linears(be, a, n);
        return;
    }
    assert_in_range(n, 1, LS_LINEARS);
    stage d = {.be = be}, h = {0};
    ls_backend *cpu = shadow_of(be);
    ls_linear_args there[LS_LINEARS], here[LS_LINEARS];
    stage *const s = &d;
    for (int i = 0; i < n; i++) /* every result before any operand */
        WR(a[i].y, cells(a[i].n_rows, a[i].w.n_out), AS_F32);
    for (int i = 0; i < n; i++)
        there[i] = map_linear(&d, a[i]);
    be->linears(be, there, n);
    for (int i = 0; cpu && i < n; i++) {
        here[i] = map_linear(&h, a[i]);
        cpu->linear(cpu, &here[i]);
    }
    finish("linears", be, cpu, &d, &h);
}

static ls_bias_args map_bias(stage *s, ls_bias_args a) {
    a.y = WR(a.y, cells(a.n_rows, a.dim), AS_F32);
    a.b = RD(a.b, a.dim, ls_dtype_bytes(a.b_dtype));
    return a;
}
STAGED(bias)

static ls_rope_args map_rope(stage *s, ls_rope_args a) {
    a.q = WR(a.q, cells(a.n_rows, a.n_heads * a.head_dim), AS_F32);
    a.k = WR(a.k, cells(a.n_rows, a.n_kv * a.head_dim), AS_F32);
    a.pos = RD(a.pos, a.n_rows, 4);
    a.cos = RD(a.cos, cells(a.n_pos, a.head_dim / 2), 4);
    a.sin = RD(a.sin, cells(a.n_pos, a.head_dim / 2), 4);
    return a;
}
STAGED(rope)

static ls_kv_store_args map_kv_store(stage *s, ls_kv_store_args a) {
    const size_t pool = cells(a.n_slots, a.n_kv * a.head_dim) * ls_dtype_bytes(a.kv_dtype);
    a.k_pool = put(s, a.k_pool, pool, RESULT, (as)a.kv_dtype);
    a.v_pool = put(s, a.v_pool, pool, RESULT, (as)a.kv_dtype);
    a.k = RD(a.k, cells(a.n_rows, a.n_kv * a.head_dim), 4);
    a.v = RD(a.v, cells(a.n_rows, a.n_kv * a.head_dim), 4);
    a.slot = RD(a.slot, a.n_rows, 4);
    return a;
}
STAGED(kv_store)

void kr_place(ls_backend *be, const ls_rope_args *a, const ls_kv_store_args *b) {
    if (on_host(be)) {
        be->place(be, a, b);
        return;
    }
    stage d = {.be = be}, h = {0};
    ls_backend *cpu = shadow_of(be);
    stage *const s = &d; /* every result before any operand */
    WR(a->q, cells(a->n_rows, a->n_heads * a->head_dim), AS_F32);
    WR(a->k, cells(a->n_rows, a->n_kv * a->head_dim), AS_F32);
    const ls_kv_store_args store = map_kv_store(&d, *b);
    const ls_rope_args rope = map_rope(&d, *a);
    be->place(be, &rope, &store);
    if (cpu) {
        const ls_rope_args rope_here = map_rope(&h, *a);
        const ls_kv_store_args store_here = map_kv_store(&h, *b);
        cpu->place(cpu, &rope_here, &store_here);
    }
    finish("place", be, cpu, &d, &h);
}

static ls_locator map_locator(stage *s, ls_locator l, int32_t n_rows) {
    int32_t entries = 0;
    for (int32_t r = 0; !l.base && r < n_rows; r++)
        if (l.table_at[r] + l.table_len[r] > entries)
            entries = l.table_at[r] + l.table_len[r];
    l.base = RD(l.base, n_rows, 4);
    l.table = RD(l.table, entries, 4);
    l.table_at = RD(l.table_at, n_rows, 4);
    l.table_len = RD(l.table_len, n_rows, 4);
    l.prefix = RD(l.prefix, n_rows, 4);
    l.anc = RD(l.anc, cells(n_rows, l.ld_anc), 4);
    return l;
}

static ls_attn_args map_attn(stage *s, ls_attn_args a) {
    const size_t rows = cells(a.n_rows, a.n_heads), pool = cells(a.loc.n_slots, a.n_kv);
    const size_t key = (size_t)a.head_dim * ls_dtype_bytes(a.kv_dtype);
    a.out = WR(a.out, rows * (size_t)a.head_dim, AS_F32);
    a.part = put(s, a.part, rows * (size_t)a.max_chunks * (size_t)(2 + a.head_dim) * 4, SCRATCH,
                 AS_BYTES);
    a.q = RD(a.q, rows * (size_t)a.head_dim, 4);
    a.k_pool = RD(a.k_pool, pool, key);
    a.v_pool = RD(a.v_pool, pool, key);
    a.length = RD(a.length, a.n_rows, 4);
    a.loc = map_locator(s, a.loc, a.n_rows);
    return a;
}
STAGED(attn)

static ls_silu_mul_args map_silu_mul(stage *s, ls_silu_mul_args a) {
    a.h = WR(a.h, cells(a.n_rows, a.dim), AS_F32);
    a.gate = RD(a.gate, cells(a.n_rows, a.dim), 4);
    a.up = RD(a.up, cells(a.n_rows, a.dim), 4);
    return a;
}
STAGED(silu_mul)
#define map_gelu_mul map_silu_mul
STAGED(gelu_mul)

/* The source of a gather has the rows that its indices name. */
static ls_gather_args map_gather(stage *s, ls_gather_args a) {
    int32_t rows = 0;
    for (int32_t i = 0; i < a.n; i++)
        rows = a.index[i] >= rows ? a.index[i] + 1 : rows;
    a.y = WR(a.y, cells(a.n, a.dim), AS_F32);
    a.x = RD(a.x, cells(rows, a.dim), 4);
    a.index = RD(a.index, a.n, 4);
    return a;
}
STAGED(gather)

/* Scratch that only a device has, under a host address that no operand has. */
static void *device_scratch(stage *s, const void *unused, size_t bytes) {
    return s->be ? put(s, (const char *)unused + 1, bytes, SCRATCH, AS_BYTES) : NULL;
}

static ls_stats_args map_stats(stage *s, ls_stats_args a) {
    a.stats = put(s, a.stats, (size_t)a.n_rows * sizeof *a.stats, RESULT, AS_STATS);
    a.logits = RD(a.logits, cells(a.n_rows, a.ld_logits), 4);
    a.warp = RD(a.warp, a.n_rows, sizeof *a.warp);
    a.draw = RD(a.draw, a.n_rows, sizeof *a.draw);
    a.part = device_scratch(s, a.stats, (size_t)a.n_rows * ls_stats_part_bytes(a.n_vocab));
    return a;
}
STAGED(stats)

static ls_probs_args map_probs(stage *s, ls_probs_args a) {
    a.prob = WR(a.prob, cells(a.n_rows, a.n_vocab), AS_F32);
    a.logits = RD(a.logits, cells(a.n_rows, a.ld_logits), 4);
    a.stats = RD(a.stats, a.n_rows, sizeof *a.stats);
    return a;
}
STAGED(probs)

static ls_choose_args map_choose(stage *s, ls_choose_args a) {
    a.token = WR(a.token, a.n_rows, AS_BYTES);
    a.weight = RD(a.weight, cells(a.n_rows, a.n_vocab), 4);
    a.draw = RD(a.draw, a.n_rows, sizeof *a.draw);
    return a;
}
STAGED(choose)

static ls_keep_args map_keep(stage *s, ls_keep_args a) {
    a.y = WR(a.y, cells(a.n, a.dim), AS_F32);
    a.x = RD(a.x, a.dim, 4);
    a.at = RD(a.at, 1, 4);
    return a;
}
STAGED(keep)

/* One row of the tables beyond row `row` is none of its business: they hold row + 1 rows. */
static ls_feed_args map_feed(stage *s, ls_feed_args a) {
    const int32_t rows = a.row + 1;
    a.chain = put(s, a.chain, (size_t)a.n * sizeof *a.chain, RESULT, AS_STATS);
    a.at = WR(a.at, 1, AS_BYTES);
    a.token = WR(a.token, rows, AS_BYTES);
    a.pos = WR(a.pos, rows, AS_BYTES);
    a.slot = WR(a.slot, rows, AS_BYTES);
    a.length = WR(a.length, rows, AS_BYTES);
    a.draw = put(s, a.draw, sizeof *a.draw, RESULT, AS_BYTES);
    a.stats = RD(a.stats, 1, sizeof *a.stats);
    a.loc = map_locator(s, a.loc, rows);
    return a;
}
STAGED(feed)

static ls_take_args map_take(stage *s, ls_take_args a) {
    a.token = WR(a.token, a.n, AS_BYTES);
    a.copy = put(s, a.copy, (size_t)a.n * sizeof *a.copy, RESULT, AS_STATS);
    a.chain = RD(a.chain, a.n, sizeof *a.chain);
    return a;
}
STAGED(take)

static ls_accept_args map_accept(stage *s, ls_accept_args a) {
    a.out = put(s, a.out, sizeof *a.out, RESULT, AS_BYTES);
    a.weight = put(s, a.weight, (size_t)a.n_vocab * 4, SCRATCH, AS_BYTES);
    a.token = RD(a.token, a.n, 4);
    a.target = RD(a.target, a.n + 1, sizeof *a.target);
    a.draft = RD(a.draft, a.n, sizeof *a.draft);
    a.logits = RD(a.logits, cells(a.n + 1, a.ld_logits), 4);
    a.draft_logits = RD(a.draft_logits, cells(a.n, a.ld_draft), 4);
    a.part = device_scratch(s, a.out, ls_stats_part_bytes(a.n_vocab));
    return a;
}
STAGED(accept)
