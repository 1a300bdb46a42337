/* What the benches are made of: spreads, the order of repeats, passes that leave the cache as it
 * was, and attentions of every layout. Times are not looked at, but for being there. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_attn.h"
#include "make_model.h"

/* ---- spreads and repeats --------------------------------------------------------------------- */

static void spreads(void **state) {
    (void)state;
    double five[] = {5, 1, 4, 2, 3}, two[] = {3, 1}, one[] = {7};
    ls_spread s = ls_spread_of(five, 5);
    assert_true(s.median == 3 && s.low == 2 && s.high == 4);
    assert_true(fabs(s.cv - sqrt(2.5) / 3) < 1e-12);
    s = ls_spread_of(two, 2);
    assert_true(s.median == 2 && s.low == 1 && s.high == 3);
    s = ls_spread_of(one, 1);
    assert_true(s.median == 7 && s.low == 7 && s.high == 7 && s.cv == 0);
}

typedef struct log_of {
    char order[64];
    int n, fail_at, n_stop;
} log_of;

static ls_status note(void *self, int32_t arg, ls_took *took, ls_err *err) {
    log_of *l = self;
    if (l->n == l->fail_at)
        return ls_fail(err, LS_ERR_NUMERIC, "told to");
    l->order[l->n++] = (char)('a' + arg);
    took->wall_us = 10 * l->n; /* the warm-up's are 10, 20, 30 */
    took->device_us = l->n;
    return LS_OK;
}

static bool stop_third(void *self) {
    return ++((log_of *)self)->n_stop == 3;
}

static void up_and_down(void **state) {
    (void)state;
    log_of l = {.fail_at = -1};
    ls_err err;
    ls_series s[3];
    ls_bench_how how = {.n_repeat = 3};
    for (int32_t i = 0; i < 3; i++)
        s[i] = (ls_series){.run = note, .self = &l, .arg = i};
    OK(ls_bench_interleave(s, 3, &how, &err), &err);
    assert_string_equal(l.order, "cbaabccbaabc");
    /* a: 4th, 9th, 10th of all runs; the warm-up is not among them */
    assert_true(s[0].device.low == 4 && s[0].device.median == 9 && s[0].device.high == 10);
    assert_true(s[0].wall.median == 90);
    assert_true(s[1].device.median == 8);

    l = (log_of){.fail_at = 5};
    assert_int_equal(ls_bench_interleave(s, 3, &how, &err), LS_ERR_NUMERIC);
    l = (log_of){.fail_at = -1};
    how.self = &l, how.stop = stop_third;
    assert_int_equal(ls_bench_interleave(s, 3, &how, &err), LS_ERR_STOPPED);
    assert_int_equal(l.n, 3);
    how.n_repeat = 0;
    assert_int_equal(ls_bench_interleave(s, 3, &how, &err), LS_ERR_INPUT);
}

static void tokens(void **state) {
    (void)state;
    int32_t a[100], b[100], seen = 0;
    ls_bench_tokens(a, 100, 7, 1);
    ls_bench_tokens(b, 100, 7, 1);
    assert_memory_equal(a, b, sizeof a);
    ls_bench_tokens(b, 100, 7, 2);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < 100; i++) {
        assert_in_range(a[i], 0, 6);
        seen |= 1 << a[i];
    }
    assert_int_equal(seen, 127);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void passes(void **state) {
    ls_rig *r = *state;
    ls_pass_rig p;
    ls_err err;
    ls_took took = {0};
    OK(ls_pass_rig_open(&p, r->engine, 20, 8, 1, &err), &err);
    assert_int_equal(ls_kv_len(ls_engine_kv(r->engine), p.seq), 20);
    const int64_t before = ls_engine_count(r->engine).n_row;
    OK(ls_pass_rig_pass(&p, 8, &took, &err), &err);
    assert_true(took.device_us > 0 && took.wall_us >= took.device_us);
    assert_int_equal(ls_engine_count(r->engine).n_row, before + 8);
    assert_int_equal(ls_kv_len(ls_engine_kv(r->engine), p.seq), 20);
    took = (ls_took){0};
    OK(ls_pass_rig_read(&p, 0, &took, &err), &err);
    assert_true(took.device_us > 0);
    /* the spans are all matrices a pass reads, and the vectors of the norms */
    const size_t mats = ls_engine_count(r->engine).weight_bytes;
    assert_true(p.weight_bytes >= mats && p.weight_bytes < mats + mats / 16);
    ls_pass_rig_close(&p);
    int32_t seq; /* the sequence is free again */
    OK(ls_kv_open(ls_engine_kv(r->engine), &seq, &err), &err);
    ls_kv_close(ls_engine_kv(r->engine), seq);

    const struct { int32_t length, rows; } bad[] = {{0, 1}, {1, 0}, {1, 65}, {60, 5}, {64, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_pass_rig_open(&p, r->engine, bad[i].length, bad[i].rows, 1, &err),
                         LS_ERR_INPUT);
        ls_pass_rig_close(&p);
    }
}

/* The floor of arithmetic: what a pass needs, how long the device takes for it, and which of read
 * and arithmetic is the longer. */
static void floors(void **state) {
    ls_rig *r = *state;
    ls_pass_rig p;
    ls_err err;
    ls_took took = {.wall_us = -1, .device_us = -1};
    OK(ls_pass_rig_open(&p, r->engine, 20, 8, 1, &err), &err);
    const ls_test_shape s = ls_test_shape_default();
    const int he = s.n_heads * s.head_dim, ge = s.n_kv * s.head_dim;
    const double row = s.n_layers * (s.dim * (2.0 * he + 2 * ge) + 3.0 * s.dim * s.ffn) +
                       (double)s.n_vocab * s.dim;
    /* rows 20, 21 and 22 see 21, 22 and 23 tokens */
    const double attn = 2.0 * s.n_layers * he;
    assert_true(fabs(ls_pass_rig_work(&p, 1) - (row + attn * 21)) < 0.5);
    assert_true(fabs(ls_pass_rig_work(&p, 3) - (3 * row + attn * (21 + 22 + 23))) < 0.5);
    ls_config *c = &r->model->config; /* a window in one layer: there no row sees more than 22 */
    c->local[0] = true, c->window = 22;
    assert_true(fabs(ls_pass_rig_work(&p, 3) - (3 * row + attn * (21 + 22 + 23) - 2.0 * he)) < 0.5);
    c->local[0] = false, c->window = 0;

    const double one = ls_pass_rig_work(&p, 1) * 1e-6, four = ls_pass_rig_work(&p, 4) * 1e-6;
    assert_true(ls_pass_rig_floor(&p, 4, 1e9, 1) == 1);                     /* read alone */
    assert_true(fabs(ls_pass_rig_floor(&p, 4, 0, 1) - four / one) < 1e-12); /* arithmetic alone */
    assert_true(fabs(ls_pass_rig_floor(&p, 4, 2 * one, 1) - four / one / 2) < 1e-12);

    OK(ls_pass_rig_fma(&p, 0, &took, &err), &err);
    if (!rig_on_gpu())
        assert_true(took.device_us > 0 && p.n_step >= 64);
    else
        assert_true(took.device_us == 0);
    ls_pass_rig_close(&p);
}

/* Every form counts what it does, on every thread. */
static void fma_counts(void **state) {
    (void)state;
    static const ls_simd simd[] = {LS_SIMD_PLAIN, LS_SIMD_AVX2, LS_SIMD_AVX512};
    static const int lanes[] = {32, 8, 16};
    ls_err err;
    for (int i = 0; i < 3; i++) {
        int64_t one = 0;
        for (int threads = 1; threads <= 3; threads++) {
            ls_backend *be = NULL;
            if (ls_cpu_create((ls_cpu_options){.n_threads = threads, .simd = simd[i]}, &be, &err) !=
                LS_OK)
                continue; /* not this processor */
            const int64_t n = ls_cpu_fma(be, 10);
            one = threads == 1 ? n : one;
            assert_true(one > 0 && one % (10 * lanes[i]) == 0);
            assert_true(n == threads * one && ls_cpu_fma(be, 30) == 3 * n);
            ls_backend_destroy(be);
        }
    }
}

static int open_engine(void **state) {
    ls_test_shape shape = ls_test_shape_default();
    shape.dtype = LS_BF16;
    char *dir = ls_test_model_make(&shape);
    ls_rig *r = malloc(sizeof *r);
    ls_rig_open(r, dir, (ls_cpu_options){.n_threads = 2}, (ls_engine_options){.context = 64});
    ls_test_model_remove(dir);
    *state = r;
    return 0;
}

static int close_engine(void **state) {
    ls_rig_close(*state);
    free(*state);
    return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

static ls_attn_case base(void) {
    return (ls_attn_case){.n_heads = 6,
                          .n_kv = 2,
                          .head_dim = 16,
                          .length = 40,
                          .n_rows = 3,
                          .n_layers = 2,
                          .kv_dtype = LS_BF16,
                          .rule = {LS_CHUNK_SPLITS, 0, 4},
                          .seed = 1};
}

static void attention(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be = NULL;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 2}, &be, &err), &err);
    for (int k = 0; k < 4; k++) { /* contiguous and paged, tight and roomy */
        ls_attn_case c = base();
        ls_attn_bench *b = NULL;
        ls_attn_grid g;
        c.block_rows = k & 1 ? 16 : 0;
        c.capacity = k & 2 ? 500 : 0;
        c.kv_dtype = k & 2 ? LS_F32 : LS_BF16;
        OK(ls_attn_bench_open(be, &c, &b, &err), &err);
        for (int32_t part = 0; part < LS_ATTN_PARTS; part++) {
            ls_took took = {0};
            OK(ls_attn_bench_run(b, part, &took, &err), &err);
            assert_true(took.device_us > 0 && took.wall_us >= took.device_us);
        }
        ls_took took = {0};
        OK(ls_attn_bench_read(b, 0, &took, &err), &err);
        assert_true(took.device_us > 0);
        /* 42 keys of the last row, keys and values, 2 heads of 16 */
        assert_int_equal(ls_attn_bench_bytes(b), 2 * 42 * 2 * 16 * (c.kv_dtype == LS_F32 ? 4 : 2));
        assert_false(ls_attn_bench_grid(b, &g)); /* a CPU launches no blocks */
        assert_int_equal(g.live_chunks, 4);
        assert_int_equal(g.max_chunks, 4);
        ls_attn_bench_close(b);
    }
    ls_attn_bench_close(NULL);
    ls_backend_destroy(be);
}

/* A grid as a device would say it: 8 chunks of room, of which a row of 40 keys fills 2. */
static void say_launch(ls_backend *be, const ls_attn_args *a, ls_launch *out) {
    (void)be;
    *out = (ls_launch){.blocks = a->max_chunks * a->n_kv,
                       .threads = 128,
                       .blocks_a_unit = 2,
                       .warps_a_unit = 64,
                       .units = 4};
}

static void occupancy(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be = NULL;
    ls_attn_bench *b = NULL;
    ls_attn_grid g;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 1}, &be, &err), &err);
    be->attn_launch = say_launch;
    ls_attn_case c = base();
    c.n_rows = 1;
    c.rule = (ls_chunk_rule){LS_CHUNK_EVEN, 32, 8};
    c.capacity = 256;
    OK(ls_attn_bench_open(be, &c, &b, &err), &err);
    assert_true(ls_attn_bench_grid(b, &g));
    assert_int_equal(g.max_chunks, 8);
    assert_int_equal(g.live_chunks, 2);
    assert_int_equal(g.launch.blocks, 16);
    assert_int_equal(g.live_blocks, 4);
    assert_true(g.occupancy == 4 * 4 / 256.0); /* 4 blocks of 4 warps; 4 units hold 256 warps */
    ls_attn_bench_close(b);
    c.length = c.capacity = 256; /* all 16 blocks have keys; 8 fit at once */
    OK(ls_attn_bench_open(be, &c, &b, &err), &err);
    assert_true(ls_attn_bench_grid(b, &g));
    assert_int_equal(g.live_blocks, 16);
    assert_true(g.occupancy == 8 * 4 / 256.0);
    ls_attn_bench_close(b);
    ls_backend_destroy(be);
}

/* A device that records: what is asked of it is counted. */
static int n_record, n_replay, n_graph;
static ls_status say_record(ls_backend *be, ls_err *err) {
    (void)be, (void)err;
    n_record++;
    return LS_OK;
}
static ls_status say_end(ls_backend *be, ls_graph **out, ls_err *err) {
    (void)be, (void)err;
    *out = (ls_graph *)&n_graph;
    n_graph++;
    return LS_OK;
}
static ls_status say_replay(ls_backend *be, ls_graph *g, ls_err *err) {
    (void)be, (void)err;
    assert_ptr_equal(g, &n_graph);
    n_replay++;
    return LS_OK;
}
static void say_free(ls_backend *be, ls_graph *g) {
    (void)be, (void)g;
    n_graph--;
}

static void graphs(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be = NULL;
    ls_attn_bench *b = NULL;
    ls_took took;
    double us = -1;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 1}, &be, &err), &err);
    OK(ls_bench_floor(be, 8, 3, &us, &err), &err);
    assert_true(us == 0); /* nothing is recorded on a CPU */
    be->record = say_record, be->record_end = say_end;
    be->replay = say_replay, be->graph_free = say_free;
    ls_attn_case c = base();
    c.graph = true;
    OK(ls_attn_bench_open(be, &c, &b, &err), &err);
    assert_int_equal(n_record, LS_ATTN_PARTS);
    OK(ls_attn_bench_run(b, LS_ATTN_MERGE, &took, &err), &err);
    assert_int_equal(n_replay, 1);
    ls_attn_bench_close(b);
    assert_int_equal(n_graph, 0);
    n_record = n_replay = 0;
    OK(ls_bench_floor(be, 8, 3, &us, &err), &err);
    assert_true(us >= 0);
    assert_int_equal(n_record, 1);
    assert_int_equal(n_replay, 4); /* the first warms up */
    assert_int_equal(n_graph, 0);
    ls_backend_destroy(be);
}

static void wrong_cases(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be = NULL;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 1}, &be, &err), &err);
    ls_attn_case bad[10];
    for (int i = 0; i < 10; i++)
        bad[i] = base();
    bad[0].n_heads = 5;
    bad[1].head_dim = 15;
    bad[2].length = 0;
    bad[3].n_rows = LS_ATTN_ROWS_MAX + 1;
    bad[4].n_layers = 0;
    bad[5].capacity = 41;
    bad[6].kv_dtype = LS_F16;
    bad[7].graph = true;
    bad[8].rule.max_chunks = 0;
    bad[9].block_rows = -1;
    for (int i = 0; i < 10; i++) {
        ls_attn_bench *b = NULL;
        assert_int_equal(ls_attn_bench_open(be, &bad[i], &b, &err), LS_ERR_INPUT);
        assert_null(b);
    }
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spreads),
        cmocka_unit_test(up_and_down),
        cmocka_unit_test(tokens),
        cmocka_unit_test_setup_teardown(passes, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(floors, open_engine, close_engine),
        cmocka_unit_test(fma_counts),
        cmocka_unit_test(attention),
        cmocka_unit_test(occupancy),
        cmocka_unit_test(graphs),
        cmocka_unit_test(wrong_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
