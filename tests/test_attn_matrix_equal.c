/* N-ATTN and N-LOC over the matrix of shapes: heads 4/4, 8/2, 8/1, 14/2, widths 32 to 256, every
 * length of 1 to 300 and those around 512 to 4096, 16384 and 131072, each chunk rule, contiguous,
 * paged in blocks of 1, 16 and 32, trees, bad tables, layers of one allocation, and lengths that
 * grow under one recorded launch. On a GPU each result is the CPU's too (kernel_rig.h); the CPU
 * runs one rule a shape, a GPU all. test_attn_near has the values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "attn_rig.h"
#include "kernel_rig.h"

static const int heads[][2] = {{4, 4}, {8, 2}, {8, 1}, {14, 2}}, widths[] = {32, 64, 128, 256};
static const ls_chunk_rule rules[] = {{LS_CHUNK_EVEN, 32, 64},
                                      {LS_CHUNK_SPLITS, 0, 4},
                                      {LS_CHUNK_DOUBLING, 32, 64},
                                      {LS_CHUNK_SPLITS, 0, 1}};
enum { N_RULES = sizeof rules / sizeof *rules, BATCH = 101 };

static ls_backend *be, *two;

static bool every(void) {
    return rig_on_gpu() && !LS_THIN;
}

/* All rows under every layout, on two backends; rows 0 and the last alone, too. */
static void layouts(const ar_case *c, ls_chunk_rule rule, const int32_t *length, int R) {
    const size_t row = (size_t)(c->H * c->E), n = (size_t)R * row;
    float *q = ar_queries(c, R), *want = kr_alloc(n * 4), *got = kr_alloc(n * 4);
    ar_layout flat = ar_contiguous(c, R, 3);
    ar_run(be, c, &flat, rule, length, R, q, want);
    ar_run(two, c, &flat, rule, length, R, q, got);
    kr_same("a second backend", got, want, n, (size_t)c->E);
    for (int i = 0; i<R; i += R> 1 ? R - 1 : 1) {
        ar_run(be, c, &flat, rule, length + i, 1, q + (size_t)i * row, got);
        kr_same("alone, together", got, want + (size_t)i * row, row, (size_t)c->E);
    }
    ar_layout_free(&flat);
    for (int o = 0; o < 4; o++) {
        if (!every() && o != 1 && o != 3)
            continue;
        ar_layout other = o == 3   ? ar_tree(c, R, c->T > 40 ? c->T - 33 : c->T / 2)
                          : o == 2 ? ar_paged(c, R, 32)
                          : o == 1 ? ar_paged(c, R, 16)
                                   : ar_paged(c, R, 1);
        ar_run(be, c, &other, rule, length, R, q, got);
        kr_same(o < 3 ? "paged, contiguous" : "tree, contiguous", got, want, n, (size_t)c->E);
        ar_layout_free(&other);
    }
    free(q), free(want), free(got);
}

/* f(heads, width, type, rule) for the shapes, and the rules that this device runs. */
static void shapes(void (*f)(int H, int G, int E, ls_dtype t, ls_chunk_rule rule)) {
    for (int h = 0; h < 4; h++)
        for (int w = 0; w < 4; w++)
            for (int u = 0; u < N_RULES; u++)
                if (every() || (u == (h + w) % N_RULES && (!LS_THIN || h == w)))
                    f(heads[h][0], heads[h][1], widths[w], (ls_dtype)((h + w + u) % 3), rules[u]);
}

static void short_rows(int H, int G, int E, ls_dtype t, ls_chunk_rule rule) {
    ar_case c;
    int32_t length[BATCH];
    ar_case_init(&c, H, G, E, 300, t, 41, 2.0f);
    for (int at = 0; at <= 300; at += BATCH) {
        int R = 0;
        for (int L = at; L <= 300 && L < at + BATCH; L += LS_THIN ? 29 : 1)
            length[R++] = L;
        layouts(&c, rule, length, R);
    }
    ar_case_free(&c);
}

static void long_rows(int H, int G, int E, ls_dtype t, ls_chunk_rule rule) {
    static const int32_t length[] = {4096, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 0};
    ar_case c;
    ar_case_init(&c, H, G, E, LS_THIN ? 513 : 4096, t, 43, 2.0f);
    if (LS_THIN)
        layouts(&c, rule, length + 1, 3);
    else
        layouts(&c, rule, length, 11);
    ar_case_free(&c);
}

static void test_short_rows(void **state) {
    (void)state;
    shapes(short_rows);
}

static void test_long_rows(void **state) {
    (void)state;
    shapes(long_rows);
}

/* even(32, 64) reaches its longest chunk at 131072 keys and has more chunks after it. */
static void test_longest_rows(void **state) {
    (void)state;
    static const int32_t lengths[] = {16384, 131072, 131073};
    ar_case c;
    for (int i = 0; i < (LS_THIN ? 1 : 3); i++)
        for (int u = 0; u < (every() ? N_RULES : 1); u++) {
            const int32_t length[2] = {lengths[i], lengths[i] - 1};
            ar_case_init(&c, 2, 1, 64, lengths[i], (ls_dtype)(i % 2), 47, 2.0f);
            layouts(&c, rules[u], length, 2);
            ar_case_free(&c);
        }
    if (LS_THIN)
        return;
    ar_case_init(&c, 8, 2, 128, 16384, LS_BF16, 48, 2.0f);
    layouts(&c, rules[0], lengths, 1);
    ar_case_free(&c);
}

/* More splits than keys: a chunk holds one key, and the rest are empty. */
static void test_more_splits_than_keys(void **state) {
    (void)state;
    const ls_chunk_rule many[] = {{LS_CHUNK_SPLITS, 0, 64}, {LS_CHUNK_SPLITS, 0, 7}};
    ar_case c;
    int32_t length[70];
    for (int L = 0; L < 70; L++)
        length[L] = L;
    for (int w = 0; w < (LS_THIN ? 1 : 4); w++)
        for (int u = 0; u < 2; u++) {
            ar_case_init(&c, heads[w][0], heads[w][1], widths[w], 69, (ls_dtype)(w % 3), 51, 2.0f);
            layouts(&c, many[u], length, LS_THIN ? 9 : 70);
            ar_case_free(&c);
        }
}

/* splits(1) is the single pass, contiguous and paged. */
static void test_one_split(void **state) {
    (void)state;
    static const int32_t length[] = {1, 31, 32, 33, 300, 2047, 2048};
    const ls_chunk_rule splits = {LS_CHUNK_SPLITS, 0, 1}, whole = {LS_CHUNK_EVEN, 2048, 1};
    for (int w = 0; w < 4; w++) {
        ar_case c;
        ar_case_init(&c, heads[w][0], heads[w][1], widths[w], 2048, (ls_dtype)(w % 3), 53, 2.0f);
        const size_t n = (size_t)(7 * c.H * c.E);
        float *q = ar_queries(&c, 7), *a = kr_alloc(n * 4), *b = kr_alloc(n * 4);
        ar_layout flat = ar_contiguous(&c, 7, 0), paged = ar_paged(&c, 7, 16);
        ar_run(be, &c, &flat, whole, length, LS_THIN ? 4 : 7, q, a);
        ar_run(be, &c, &flat, splits, length, LS_THIN ? 4 : 7, q, b);
        kr_same("splits(1), one chunk", b, a, LS_THIN ? n * 4 / 7 : n, (size_t)c.E);
        ar_run(be, &c, &paged, splits, length, LS_THIN ? 4 : 7, q, b);
        kr_same("splits(1) paged, one chunk", b, a, LS_THIN ? n * 4 / 7 : n, (size_t)c.E);
        ar_layout_free(&flat), ar_layout_free(&paged);
        free(q), free(a), free(b), ar_case_free(&c);
    }
}

/* Blocks with a negative id, past the pool, and a table that ends too early: keys and values of
 * zeros, as if they lay there. */
static void bad_tables(int H, int G, int E, ls_dtype t, ls_chunk_rule rule) {
    static const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, 21, 1 << 27};
    enum { T = 300, R = 4 };
    const int32_t length[R] = {T, 17, 1, 290};
    ar_case c, zero;
    ar_case_init(&c, H, G, E, T, t, 57, 2.0f);
    ar_case_init(&zero, H, G, E, T, t, 57, 2.0f);
    const size_t row = (size_t)(G * E) * ls_dtype_bytes(t), n = (size_t)(R * H * E);
    float *q = ar_queries(&c, R), *got = kr_alloc(n * 4), *want = kr_alloc(n * 4);
    ar_layout paged = ar_paged(&c, R, 16); /* 19 blocks used of 21 */
    for (int i = 0; i < 5; i++) {
        paged.table[2 * i] = bad[i];
        memset((char *)zero.k + (size_t)(32 * i) * row, 0, 16 * row);
        memset((char *)zero.v + (size_t)(32 * i) * row, 0, 16 * row);
    }
    memset((char *)zero.k + 272 * row, 0, 28 * row),
        memset((char *)zero.v + 272 * row, 0, 28 * row);
    for (int r = 0; r < R; r++)
        paged.table_len[r] = 17;
    ar_layout flat = ar_contiguous(&zero, R, 0);
    ar_run(be, &c, &flat, rule, length, R, q, want);
    ar_run(be, &c, &paged, rule, length, R, q, got);
    kr_same("bad blocks, zeros", got, want, n, (size_t)E);
    for (size_t i = 0; i < n; i++)
        assert_true(isfinite(got[i]));
    ar_layout_free(&flat), ar_layout_free(&paged);
    free(q), free(got), free(want), ar_case_free(&c), ar_case_free(&zero);
}

static void test_bad_tables(void **state) {
    (void)state;
    shapes(bad_tables);
}

/* ---- operands that stay on the device -------------------------------------------------------- */

typedef struct resident {
    ls_attn_args a;
    void *mem[8];
    int n;
} resident;

static void *stay(resident *d, const void *host, size_t bytes) {
    return d->mem[d->n++] = kr_dev(be, host, bytes);
}

/* One row over a contiguous layout, for lengths up to T; the pools are given. */
static resident reside(const ar_case *c, const ar_layout *l, ls_chunk_rule rule, const float *q,
                       const void *k, const void *v) {
    const size_t out = (size_t)(c->H * c->E) * 4;
    const int32_t chunks = ls_chunk_bound(rule, c->T), none[1] = {0};
    resident d = {.a = {.kv_dtype = c->t, .rule = rule, .max_chunks = chunks, .scale = c->scale}};
    d.a.k_pool = k, d.a.v_pool = v;
    d.a.loc.n_slots = l->n_slots, d.a.loc.base = stay(&d, l->base, sizeof *l->base);
    d.a.n_rows = 1, d.a.n_heads = c->H, d.a.n_kv = c->G, d.a.head_dim = c->E;
    d.a.q = stay(&d, q, out), d.a.out = stay(&d, NULL, out);
    d.a.length = stay(&d, none, sizeof none);
    d.a.part = stay(&d, NULL, (size_t)(c->H * chunks * (2 + c->E)) * 4);
    return d;
}

static void leave(resident *d) {
    for (int i = 0; i < d->n; i++)
        kr_free(be, d->mem[i]);
}

static size_t pool_bytes(const ar_case *c, const ar_layout *l) {
    return (size_t)l->n_slots * (size_t)(c->G * c->E) * ls_dtype_bytes(c->t);
}

/* The pools of three layers in one allocation, whose offsets are multiples of a row and no more. */
static void test_layers(void **state) {
    (void)state;
    for (int w = 0; w < 4; w++)
        for (int layer = 0; layer < 3; layer++) {
            ar_case c;
            const int32_t length[1] = {77 + w};
            ar_case_init(&c, heads[w][0], heads[w][1], widths[w], 80, (ls_dtype)((w + 1) % 3), 61,
                         2.0f);
            ar_layout flat = ar_contiguous(&c, 1, 2); /* 85 slots */
            const size_t bytes = pool_bytes(&c, &flat), n = (size_t)(c.H * c.E);
            float *q = ar_queries(&c, 1), *want = kr_alloc(n * 4), *got = kr_alloc(n * 4);
            char *k = kr_dev(be, NULL, 3 * bytes), *v = kr_dev(be, NULL, 3 * bytes);
            kr_up(be, k + (size_t)layer * bytes, flat.k, bytes);
            kr_up(be, v + (size_t)layer * bytes, flat.v, bytes);
            ar_run(be, &c, &flat, rules[w], length, 1, q, want);
            resident d = reside(&c, &flat, rules[w], q, k + (size_t)layer * bytes,
                                v + (size_t)layer * bytes);
            kr_up(be, (void *)(uintptr_t)d.a.length, length, sizeof length);
            be->attn(be, &d.a);
            kr_down(be, got, d.a.out, n * 4);
            kr_same("a layer of three", got, want, n, (size_t)c.E);
            leave(&d);
            kr_free(be, k), kr_free(be, v);
            ar_layout_free(&flat), free(q), free(want), free(got), ar_case_free(&c);
        }
}

/* Launched or recorded once at length 1, then run at every length to 96 and at some to 4097: only
 * the length in device memory changes. */
static void test_growing_lengths(void **state) {
    (void)state;
    const int T = LS_THIN ? 520 : 4097;
    for (int u = 0; u < N_RULES; u++) {
        ar_case c;
        ls_err err;
        ls_graph *graph = NULL;
        ar_case_init(&c, heads[u][0], heads[u][1], 64, T, (ls_dtype)(u % 3), 67, 2.0f);
        ar_layout flat = ar_contiguous(&c, 1, 1);
        const size_t n = (size_t)(c.H * c.E);
        float *q = ar_queries(&c, 1), *want = kr_alloc(n * 4), *got = kr_alloc(n * 4);
        void *k = kr_dev(be, flat.k, pool_bytes(&c, &flat));
        void *v = kr_dev(be, flat.v, pool_bytes(&c, &flat));
        resident d = reside(&c, &flat, rules[u], q, k, v);
        for (int32_t L = 1; L <= T;) {
            kr_up(be, (void *)(uintptr_t)d.a.length, &L, sizeof L);
            if (!be->record) {
                be->attn(be, &d.a);
            } else {
                if (!graph) {
                    assert_int_equal(be->record(be, &err), LS_OK);
                    be->attn(be, &d.a);
                    assert_int_equal(be->record_end(be, &graph, &err), LS_OK);
                }
                if (be->replay(be, graph, &err) != LS_OK)
                    fail_msg("%s", err.msg);
            }
            kr_down(be, got, d.a.out, n * 4);
            ar_run(be, &c, &flat, rules[u], &L, 1, q, want);
            kr_same("one launch, many lengths", got, want, n, (size_t)c.E);
            L += L < 96 && !LS_THIN ? 1 : L == T || L + 111 <= T ? 111 : T - L;
        }
        if (graph)
            be->graph_free(be, graph);
        leave(&d);
        kr_free(be, k), kr_free(be, v);
        ar_layout_free(&flat), free(q), free(want), free(got), ar_case_free(&c);
    }
}

static int open_backends(void **state) {
    (void)state;
    kr_shadow(LS_SIMD_AUTO);
    be = kr_backend(LS_SIMD_AUTO, 1);
    two = kr_backend(LS_SIMD_AUTO, 2);
    return 0;
}
static int close_backends(void **state) {
    (void)state;
    ls_backend_destroy(be), ls_backend_destroy(two);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_rows),   cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_longest_rows), cmocka_unit_test(test_more_splits_than_keys),
        cmocka_unit_test(test_one_split),    cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_layers),       cmocka_unit_test(test_growing_lengths)};
    return cmocka_run_group_tests_name("attn_matrix_equal", tests, open_backends, close_backends);
}
