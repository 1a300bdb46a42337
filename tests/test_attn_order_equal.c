/* What attention may read before the launch ahead of it has ended, bits: keys that `place` stores
 * right ahead, or place_attn itself, behind a linear that keeps the device busy, are those that are
 * there when everything is waited for in between. On a CPU launches have ended when they return;
 * there this holds by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernel_rig.h"

enum { H = 8, G = 2, E = 64, SLOTS = 512, BUSY = 2048, BUSY_OUT = 4608, REPEATS = 12 };

typedef struct layer {
    ls_backend *be;
    ls_mat busy_w; /* a linear of nothing to do with the rest */
    void *busy_x, *busy_y;
    void *q, *k, *v, *cos, *sin, *k_pool, *v_pool, *part, *out; /* on the device */
    void *pos, *slot, *length, *base;
    int32_t max_chunks;
} layer;

static void layer_open(layer *l, ls_backend *be) {
    const size_t pool = (size_t)SLOTS * G * E;
    uint16_t *keys = kr_weights(pool, LS_BF16, 2, 1.0f);
    *l = (layer){.be = be, .busy_w = kr_mat(be, BUSY_OUT, BUSY, LS_BF16, 1, 0.1f)};
    l->busy_x = kr_filled(be, 8 * BUSY, 3, 1.0f);
    l->busy_y = kr_dev(be, NULL, 8 * BUSY_OUT * sizeof(float));
    l->cos = kr_filled(be, SLOTS * E / 2, 4, 1.0f);
    l->sin = kr_filled(be, SLOTS * E / 2, 5, 1.0f);
    l->k_pool = kr_dev(be, keys, pool * sizeof *keys);
    l->v_pool = kr_dev(be, keys, pool * sizeof *keys);
    l->max_chunks = ls_chunk_bound(be->chunk, SLOTS);
    l->part = kr_dev(be, NULL, (size_t)(H * l->max_chunks * (2 + E)) * sizeof(float));
    l->out = kr_dev(be, NULL, H * E * sizeof(float));
    l->q = kr_filled(be, H * E, 6, 1.0f);
    l->k = kr_filled(be, G * E, 7, 1.0f);
    l->v = kr_filled(be, G * E, 8, 1.0f);
    const int32_t zero = 0;
    l->pos = kr_dev(be, &zero, sizeof zero), l->slot = kr_dev(be, &zero, sizeof zero);
    l->length = kr_dev(be, &zero, sizeof zero), l->base = kr_dev(be, &zero, sizeof zero);
    free(keys);
}
static void layer_close(layer *l) {
    void *all[] = {l->busy_x, l->busy_y, l->q,   l->k,   l->v,    l->cos,    l->sin, l->k_pool,
                   l->v_pool, l->part,   l->out, l->pos, l->slot, l->length, l->base};
    kr_mat_free(l->be, &l->busy_w);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kr_free(l->be, all[i]);
}

enum how { APART, TOGETHER, WAITED }; /* place and attn; place_attn; apart, with waits between */
/* Row `at`: placed, and what it attends to. */
static void run(layer *l, int32_t at, enum how how, float out[H * E]) {
    ls_backend *be = l->be;
    const int32_t length = at + 1;
    const size_t row = (size_t)G * E * sizeof(uint16_t);
    uint16_t none[G * E];
    memset(none, 0xff, sizeof none); /* NaN where the row's keys and values go */
    kr_up(be, (char *)l->k_pool + (size_t)at * row, none, row);
    kr_up(be, (char *)l->v_pool + (size_t)at * row, none, row);
    float turned[H * E]; /* rope turns its operands in place */
    kr_fill(turned, H * E, 9 + (uint32_t)at, 1.0f);
    kr_up(be, l->q, turned, sizeof turned);
    kr_up(be, l->k, turned, G * E * sizeof *turned);
    kr_up(be, l->pos, &at, sizeof at);
    kr_up(be, l->slot, &at, sizeof at);
    kr_up(be, l->length, &length, sizeof length);
    const ls_linear_args busy = {.w = l->busy_w, .x = l->busy_x, .y = l->busy_y, .n_rows = 8};
    const ls_rope_args rope = {.q = l->q,
                               .k = l->k,
                               .pos = l->pos,
                               .cos = l->cos,
                               .sin = l->sin,
                               .n_rows = 1,
                               .n_heads = H,
                               .n_kv = G,
                               .head_dim = E,
                               .n_pos = SLOTS};
    const ls_kv_store_args store = {.k = l->k,
                                    .v = l->v,
                                    .k_pool = l->k_pool,
                                    .v_pool = l->v_pool,
                                    .slot = l->slot,
                                    .kv_dtype = LS_BF16,
                                    .n_rows = 1,
                                    .n_kv = G,
                                    .head_dim = E,
                                    .n_slots = SLOTS};
    const ls_attn_args attn = {.q = l->q,
                               .k_pool = l->k_pool,
                               .v_pool = l->v_pool,
                               .kv_dtype = LS_BF16,
                               .loc = {.base = l->base, .n_slots = SLOTS},
                               .length = l->length,
                               .rule = be->chunk,
                               .max_chunks = l->max_chunks,
                               .part = l->part,
                               .out = l->out,
                               .scale = 0.125f,
                               .n_rows = 1,
                               .n_heads = H,
                               .n_kv = G,
                               .head_dim = E};
    kr_sync(be);
    be->linear(be, &busy);
    if (how == WAITED)
        kr_sync(be);
    if (how == TOGETHER) {
        be->place_attn(be, &rope, &store, &attn);
    } else {
        be->place(be, &rope, &store);
        if (how == WAITED)
            kr_sync(be);
        be->attn(be, &attn);
    }
    kr_sync(be);
    kr_down(be, out, l->out, H * E * sizeof *out);
}

static void keys_placed_right_ahead(void **state) {
    (void)state;
    static const int32_t rows[] = {0, 5, 15, 16, 100, 127, 128, 300, SLOTS - 1};
    ls_backend *be = kr_backend(LS_SIMD_AUTO, 2);
    layer l;
    layer_open(&l, be);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float want[H * E], got[H * E];
        run(&l, rows[i], WAITED, want);
        for (int k = 0; k < H * E; k++)
            assert_true(want[k] == want[k]);
        for (int n = 0; n < 2 * REPEATS; n++) {
            run(&l, rows[i], n % 2 ? TOGETHER : APART, got);
            kr_same(n % 2 ? "place_attn" : "attention right behind place", got, want, H * E, E);
        }
    }
    layer_close(&l);
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_placed_right_ahead)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
