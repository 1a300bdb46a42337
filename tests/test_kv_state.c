/* The cache against a model of it: each row holds a number, and a naive list says which. Random
 * operations over several sequences, contiguous and paged; shared blocks; every refusal. */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { SEQS = 4, CONTEXT = 40, LAYERS = 2, G = 2, E = 4 };

/* What a store reads, on the device. */
typedef struct row_operands {
    float k[G * E], v[G * E];
    int32_t slot;
} row_operands;

typedef struct world {
    ls_backend *be;
    row_operands *row_d;
    ls_kv *kv;
    float row[SEQS][CONTEXT]; /* what each row should hold */
    int32_t len[SEQS];
    bool open[SEQS];
    float next;
} world;

static void world_open(world *w, int32_t block_rows, int32_t n_blocks) {
    ls_err err;
    memset(w, 0, sizeof *w);
    w->next = 1;
    w->be = rig_backend((ls_cpu_options){1, LS_SIMD_AUTO});
    OK(w->be->alloc(w->be, sizeof(row_operands), (void **)&w->row_d, &err), &err);
    const ls_kv_options o = {.n_layers = LAYERS,
                             .n_kv = G,
                             .head_dim = E,
                             .max_seqs = SEQS,
                             .context = CONTEXT,
                             .block_rows = block_rows,
                             .n_blocks = n_blocks,
                             .poison = 1};
    OK(ls_kv_create(w->be, o, &w->kv, &err), &err);
}

static void world_close(world *w) {
    ls_kv_destroy(w->kv);
    w->be->free(w->be, w->row_d);
    ls_backend_destroy(w->be);
}

/* Writes rows len.. of a sequence as a pass would. */
static ls_status append(world *w, int32_t seq, int32_t n, ls_err *err) {
    LS_TRY(ls_kv_reserve(w->kv, seq, w->len[seq] + n, err));
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = w->len[seq] + i;
        for (int32_t l = 0; l < LAYERS; l++) {
            row_operands row = {.slot = ls_kv_slot(w->kv, seq, at)};
            for (int32_t e = 0; e < G * E; e++) {
                row.k[e] = w->next + 0.125f * (float)l;
                row.v[e] = -row.k[e];
            }
            LS_TRY(w->be->upload(w->be, w->row_d, &row, sizeof row, err));
            const ls_kv_store_args a = {.k = w->row_d->k,
                                        .v = w->row_d->v,
                                        .k_pool = ls_kv_pool_k(w->kv, l),
                                        .v_pool = ls_kv_pool_v(w->kv, l),
                                        .slot = &w->row_d->slot,
                                        .kv_dtype = LS_F32,
                                        .n_rows = 1,
                                        .n_kv = G,
                                        .head_dim = E,
                                        .n_slots = ls_kv_slots(w->kv)};
            w->be->kv_store(w->be, &a);
        }
        w->row[seq][at] = w->next++;
    }
    w->len[seq] += n;
    ls_kv_append(w->kv, seq, w->len[seq]);
    return LS_OK;
}

static void assert_world(world *w) {
    ls_err err;
    for (int32_t s = 0; s < SEQS; s++) {
        assert_int_equal(ls_kv_len(w->kv, s), w->open[s] ? w->len[s] : -1);
        for (int32_t i = 0; w->open[s] && i < w->len[s]; i++)
            for (int32_t l = 0; l < LAYERS; l++) {
                float got[2 * G * E];
                OK(ls_kv_read(w->kv, s, l, i, got, &err), &err);
                for (int32_t e = 0; e < G * E; e++) {
                    assert_true(got[e] == w->row[s][i] + 0.125f * (float)l);
                    assert_true(got[G * E + e] == -got[e]);
                }
            }
    }
}

static void random_operations(int32_t block_rows, int32_t n_blocks) {
    world w;
    ls_err err;
    uint32_t seed = 11;
    int32_t refused = 0;
    world_open(&w, block_rows, n_blocks);
    for (int step = 0; step < 6000; step++) {
        const int32_t s = (int32_t)(((seed = seed * 1664525u + 1013904223u) >> 16) % SEQS);
        const uint32_t what = ((seed = seed * 1664525u + 1013904223u) >> 16) % 10;
        const int32_t n = (int32_t)(((seed = seed * 1664525u + 1013904223u) >> 16) % 9);
        if (!w.open[s]) {
            int32_t got;
            OK(ls_kv_open(w.kv, &got, &err), &err);
            w.open[got] = true;
            w.len[got] = 0;
        } else if (what < 4) {
            const ls_status st = append(&w, s, n, &err);
            assert_true(st == LS_OK || st == LS_ERR_FULL);
            refused += st != LS_OK;
        } else if (what < 7) {
            w.len[s] = w.len[s] > n ? w.len[s] - n : 0;
            OK(ls_kv_rewind(w.kv, s, w.len[s], &err), &err);
        } else if (what == 7) {
            int32_t got;
            const int32_t at = w.len[s] > n ? w.len[s] - n : w.len[s];
            const ls_status st = ls_kv_fork(w.kv, s, at, &got, &err);
            if (st == LS_OK) {
                w.open[got] = true;
                w.len[got] = at;
                memcpy(w.row[got], w.row[s], sizeof w.row[got]);
            } else {
                assert_int_equal(st, LS_ERR_FULL);
            }
        } else if (what == 8 && w.len[s] >= 6) {
            const int32_t p = w.len[s] - 6, index[] = {p, p + 2, p + 5};
            const ls_status st = ls_kv_keep(w.kv, s, p, index, 3, &err);
            assert_true(st == LS_OK || st == LS_ERR_FULL);
            if (st == LS_OK) {
                for (int32_t i = 0; i < 3; i++)
                    w.row[s][p + i] = w.row[s][index[i]];
                w.len[s] = p + 3;
            }
        } else if (what == 9 && n == 0) {
            ls_kv_close(w.kv, s);
            w.open[s] = false;
        }
        if (step % 16 == 0)
            assert_world(&w);
    }
    assert_true(refused > 0); /* the context and the pool were met */
    for (int32_t s = 0; s < SEQS; s++)
        ls_kv_close(w.kv, s);
    if (block_rows)
        assert_int_equal(ls_kv_free_blocks(w.kv), n_blocks);
    world_close(&w);
}

static void test_contiguous(void **state) {
    (void)state;
    random_operations(0, 0);
}

static void test_paged(void **state) {
    (void)state;
    random_operations(1, 90);
    random_operations(4, 24);
    random_operations(16, 9);
}

/* An accepted path is compacted; what was drafted after a fork leaves the fork's owner
 * untouched. */
static void test_keep_in_fork(void **state) {
    (void)state;
    for (int32_t block = 0; block <= 8; block += 4) {
        world w;
        ls_err err;
        int32_t a, b;
        world_open(&w, block, 0);
        OK(ls_kv_open(w.kv, &a, &err), &err);
        w.open[a] = true;
        OK(append(&w, a, 13, &err), &err);
        OK(ls_kv_fork(w.kv, a, 10, &b, &err), &err);
        w.open[b] = true;
        w.len[b] = 10;
        memcpy(w.row[b], w.row[a], sizeof w.row[b]);
        OK(append(&w, b, 6, &err), &err);
        const int32_t index[] = {11, 14};
        OK(ls_kv_keep(w.kv, b, 10, index, 2, &err), &err);
        w.row[b][10] = w.row[b][11];
        w.row[b][11] = w.row[b][14];
        w.len[b] = 12;
        assert_world(&w);
        OK(append(&w, a, 3, &err), &err);
        assert_world(&w);
        const int32_t bad[] = {11, 11};
        assert_int_equal(ls_kv_keep(w.kv, b, 10, bad, 2, &err), LS_ERR_STATE);
        assert_int_equal(ls_kv_rewind(w.kv, b, 13, &err), LS_ERR_STATE);
        assert_int_equal(ls_kv_reserve(w.kv, b, CONTEXT + 1, &err), LS_ERR_FULL);
        assert_int_equal(ls_kv_rewind(w.kv, 3, 0, &err), LS_ERR_STATE);
        assert_int_equal(ls_kv_fork(w.kv, a, 17, &b, &err), LS_ERR_STATE);
        assert_world(&w);
        world_close(&w);
    }
}

/* Dropped rows are NaN: nothing of a rejected draft stays readable. */
static void test_dropped_rows_are_poisoned(void **state) {
    (void)state;
    world w;
    ls_err err;
    int32_t a;
    world_open(&w, 4, 0);
    OK(ls_kv_open(w.kv, &a, &err), &err);
    w.open[a] = true;
    OK(append(&w, a, 9, &err), &err);
    const int32_t slot = ls_kv_slot(w.kv, a, 6);
    OK(ls_kv_rewind(w.kv, a, 6, &err), &err);
    float k[G * E];
    OK(w.be->download(w.be, k, (const float *)ls_kv_pool_k(w.kv, 0) + (size_t)slot * G * E,
                      sizeof k, &err),
       &err);
    for (int32_t e = 0; e < G * E; e++)
        assert_true(k[e] != k[e]);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_paged),
        cmocka_unit_test(test_keep_in_fork),
        cmocka_unit_test(test_dropped_rows_are_poisoned),
    };
    return cmocka_run_group_tests_name("kv_state", tests, NULL, NULL);
}
