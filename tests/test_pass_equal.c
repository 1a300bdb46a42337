/* A row's logits do not depend on what rides along: widths, chunks of the prompt, cache layout,
 * batch, tree, threads, instruction set. Plain one-row decode is the reference; bits are
 * compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

#define N_PROMPT 60
#define N_NEW 40

static void make_prompt(int32_t *prompt, int32_t n, uint32_t seed) {
    for (int32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        prompt[i] = (int32_t)(seed >> 24);
    }
}

static float *row_buffer(const ls_greedy *g) {
    float *row = malloc((size_t)g->n_vocab * sizeof *row);
    assert_non_null(row);
    return row;
}

/* Rows [first, first + n) of the last pass against the reference at positions pos0 + 1 ... */
static void assert_rows(ls_rig *r, const ls_greedy *ref, int32_t first, int32_t n, int32_t pos0,
                        const char *what) {
    ls_err err;
    char where[128];
    float *row = row_buffer(ref);
    for (int32_t i = 0; i < n; i++) {
        OK(ls_pass_logits(r->engine, first + i, row, &err), &err);
        snprintf(where, sizeof where, "%s: row %d of %d, position %d", what, i, n, pos0 + 1 + i);
        ls_assert_bits(row, ls_greedy_row(ref, pos0 + 1 + i), (size_t)ref->n_vocab, where);
    }
    free(row);
}

/* Feeds tokens at[..] as one pass of m rows, all wanted. */
static void pass_chain(ls_rig *r, int32_t seq, const int32_t *token, int32_t pos, int32_t m) {
    ls_err err;
    ls_row rows[LS_PASS_ROWS_MAX];
    for (int32_t i = 0; i < m; i++)
        rows[i] = ls_row_chain(seq, token[pos + i], pos + i, true);
    OK(ls_pass(r->engine, rows, m, &err), &err);
}

/* C001: every width 1..17 at every start offset, the prompt fed in n_ways of three ways; a stride
 * above 1 takes every stride-th width, another set at each offset. */
static void widths(ls_rig *r, const ls_greedy *ref, size_t n_ways, int32_t stride) {
    static const int32_t first_chunk[] = {59, 58, 1};
    ls_err err;
    ls_kv *kv = ls_engine_kv(r->engine);
    for (size_t c = 0; c < n_ways; c++) {
        int32_t seq;
        OK(ls_kv_open(kv, &seq, &err), &err);
        OK(ls_prefill(r->engine, seq, ref->token, first_chunk[c], 0, &err), &err);
        OK(ls_prefill(r->engine, seq, ref->token + first_chunk[c], 59 - first_chunk[c],
                      first_chunk[c], &err),
           &err);
        for (int32_t t = 0; t + 17 <= N_NEW; t++) {
            const int32_t pos = N_PROMPT - 1 + t;
            for (int32_t m = 1 + t % stride; m <= 17; m += stride) {
                pass_chain(r, seq, ref->token, pos, m);
                assert_rows(r, ref, 0, m, pos, "width");
                OK(ls_kv_rewind(kv, seq, pos, &err), &err);
            }
            pass_chain(r, seq, ref->token, pos, 1);
        }
        ls_kv_close(kv, seq);
    }
}

/* The draft is wrong after `good` tokens: rows up to it are right, and a rewind leaves no trace. */
static void rejected_drafts(ls_rig *r, const ls_greedy *ref) {
    ls_err err;
    int32_t seq, token[N_PROMPT + N_NEW];
    ls_kv *kv = ls_engine_kv(r->engine);
    OK(ls_kv_open(kv, &seq, &err), &err);
    OK(ls_prefill(r->engine, seq, ref->token, N_PROMPT - 1, 0, &err), &err);
    int32_t pos = N_PROMPT - 1;
    for (int32_t k = 0; pos + 9 < N_PROMPT + N_NEW; k = (k + 1) % 8) {
        memcpy(token, ref->token, sizeof token);
        for (int32_t i = k + 1; i <= 8; i++)
            token[pos + i] = (ref->token[pos + i] + 1 + i) % ref->n_vocab;
        pass_chain(r, seq, token, pos, 9);
        assert_rows(r, ref, 0, k + 1, pos, "before the wrong draft");
        pos += k + 1;
        OK(ls_kv_rewind(kv, seq, pos, &err), &err);
    }
    ls_kv_close(kv, seq);
}

/* A tree whose nodes mix the right chain with wrong siblings; then keep, and go on. */
static void trees(ls_rig *r, const ls_greedy *ref) {
    ls_err err;
    int32_t seq;
    ls_kv *kv = ls_engine_kv(r->engine);
    OK(ls_kv_open(kv, &seq, &err), &err);
    OK(ls_prefill(r->engine, seq, ref->token, N_PROMPT - 1, 0, &err), &err);
    int32_t pos = N_PROMPT - 1;
    while (pos + 5 < N_PROMPT + N_NEW) {
        /* node: parent, depth; right nodes are 0, 2, 4, 7, the rest are wrong siblings */
        static const int32_t parent[] = {-1, 0, 0, 1, 2, 2, 3, 4, 4};
        static const int32_t right[] = {0, 2, 4, 7};
        enum { NODES = sizeof parent / sizeof *parent };
        int32_t depth[NODES], anc[NODES][NODES];
        ls_row rows[NODES];
        for (int32_t i = 0; i < NODES; i++) {
            depth[i] = parent[i] < 0 ? 0 : depth[parent[i]] + 1;
            for (int32_t d = 0; d < depth[i]; d++)
                anc[i][d] = anc[parent[i]][d];
            anc[i][depth[i]] = pos + i;
            const bool good = i == 0 || i == 2 || i == 4 || i == 7;
            rows[i] = ls_row_chain(seq, ref->token[pos + depth[i]], pos + depth[i], true);
            if (!good)
                rows[i].token = (rows[i].token + 7 + i) % ref->n_vocab;
            rows[i].index = pos + i;
            rows[i].anc = anc[i];
            rows[i].n_anc = depth[i] + 1;
            rows[i].n_prefix = pos;
        }
        OK(ls_pass(r->engine, rows, NODES, &err), &err);
        int32_t index[4];
        for (int32_t d = 0; d < 4; d++) {
            assert_rows(r, ref, right[d], 1, pos + d, "tree node");
            index[d] = pos + right[d];
        }
        OK(ls_kv_keep(kv, seq, pos, index, 4, &err), &err);
        pos += 4;
        pass_chain(r, seq, ref->token, pos, 1); /* the kept rows serve the next decode step */
        assert_rows(r, ref, 0, 1, pos, "after keep");
        pos += 1;
    }
    ls_kv_close(kv, seq);
}

/* C045: the rows of one sequence among those of others, and a fork of a shared prefix. */
static void batches(ls_rig *r, const ls_greedy *ref) {
    ls_err err;
    ls_kv *kv = ls_engine_kv(r->engine);
    int32_t seq[3], noise[64];
    make_prompt(noise, 64, 99);
    for (int i = 0; i < 3; i++)
        OK(ls_kv_open(kv, &seq[i], &err), &err);
    OK(ls_prefill(r->engine, seq[0], noise, 1, 0, &err), &err);
    OK(ls_prefill(r->engine, seq[1], ref->token, N_PROMPT - 1, 0, &err), &err);
    OK(ls_prefill(r->engine, seq[2], noise, 40, 0, &err), &err);
    int32_t fork;
    OK(ls_kv_fork(kv, seq[1], N_PROMPT - 1, &fork, &err), &err);
    int32_t len[3] = {1, N_PROMPT - 1, 40}, fork_len = N_PROMPT - 1;
    for (int32_t step = 0; step < 8; step++) {
        ls_row rows[16];
        int32_t n = 0;
        for (int32_t i = 0; i < 2; i++, n++, len[0]++)
            rows[n] = ls_row_chain(seq[0], noise[len[0] % 64], len[0], true);
        for (int32_t i = 0; i < 3; i++, n++, len[1]++)
            rows[n] = ls_row_chain(seq[1], ref->token[len[1]], len[1], true);
        for (int32_t i = 0; i < 1 + step % 3; i++, n++, len[2]++)
            rows[n] = ls_row_chain(seq[2], noise[(len[2] + 5) % 64], len[2], true);
        const int32_t at_fork = n;
        for (int32_t i = 0; i < 3; i++, n++, fork_len++)
            rows[n] = ls_row_chain(fork, ref->token[fork_len], fork_len, true);
        OK(ls_pass(r->engine, rows, n, &err), &err);
        assert_rows(r, ref, 2, 3, len[1] - 3, "in a batch");
        assert_rows(r, ref, at_fork, 3, fork_len - 3, "forked prefix");
    }
    for (int i = 0; i < 3; i++)
        ls_kv_close(kv, seq[i]);
    ls_kv_close(kv, fork);
}

typedef struct variant {
    const char *name;
    ls_cpu_options cpu;
    ls_engine_options engine;
    size_t n_ways;
    int32_t stride;
} variant;

/* The reference is made once, contiguous, one thread, plain C (on a device with bits of its own:
 * there); each variant repeats everything. */
static void whole_matrix(const ls_test_shape *shape) {
    static const variant variants[] = {
        {"contiguous", {2, LS_SIMD_AUTO}, {.max_rows = 64}, 3, 1},
        {"paged 16", {2, LS_SIMD_AUTO}, {.max_rows = 64, .block_rows = 16}, 1, 1},
        {"paged 1", {1, LS_SIMD_AUTO}, {.max_rows = 64, .block_rows = 1}, 1, 3},
        {"small passes", {1, LS_SIMD_AUTO}, {.max_rows = 17, .block_rows = 7}, 1, 3},
        {"plain C", {2, LS_SIMD_PLAIN}, {.max_rows = 64}, 0, 1}, /* fmaf by call: slow */
    };
    char *dir = ls_test_model_make(shape);
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 1);
    ls_rig base;
    ls_greedy ref;
    ls_rig_open_on(&base, rig_on_ieee() ? RIG_CPU : rig_device_chosen(), dir,
                   (ls_cpu_options){1, LS_SIMD_PLAIN}, (ls_engine_options){.max_rows = 3});
    ls_greedy_run(&base, prompt, N_PROMPT, N_NEW, &ref);
    ls_rig_close(&base);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += LS_THIN ? 2 : 1) {
        ls_rig r;
        ls_engine_options o = variants[i].engine;
        o.max_seqs = 4;
        if (rig_on_gpu() && variants[i].cpu.simd != LS_SIMD_AUTO)
            continue; /* instruction sets are the CPU's */
        ls_rig_open(&r, dir, variants[i].cpu, o);
        widths(&r, &ref, LS_THIN ? variants[i].n_ways > 1 : variants[i].n_ways,
               LS_THIN ? 16 : variants[i].stride);
        rejected_drafts(&r, &ref);
        trees(&r, &ref);
        batches(&r, &ref);
        ls_rig_close(&r);
    }
    ls_greedy_free(&ref);
    ls_test_model_remove(dir);
}

static void test_default_shape(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    whole_matrix(&s);
}

static void test_wide_bf16_tied(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    s.dim = 160, s.ffn = 544, s.n_heads = 5, s.n_kv = 1, s.head_dim = 12, s.dtype = LS_BF16;
    s.tied = true;
    s.seed = 5;
    if (!LS_THIN)
        whole_matrix(&s);
}

/* Hidden size 2560 crosses the 512-wide segments five times; one variant is enough for its cost. */
static void test_many_segments(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    s.dim = 2560, s.ffn = 1056, s.n_layers = 1, s.n_heads = 4, s.n_kv = 2, s.head_dim = 64;
    s.dtype = LS_F16;
    char *dir = ls_test_model_make(&s);
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 3);
    ls_rig r;
    ls_greedy ref;
    ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO}, (ls_engine_options){.max_seqs = 4});
    ls_greedy_run(&r, prompt, N_PROMPT, N_NEW, &ref);
    rejected_drafts(&r, &ref);
    trees(&r, &ref);
    ls_greedy_free(&ref);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

/* Lengths around every chunk edge: 9 rows that straddle the edge, each against decode. */
static void chunk_edges(const char *dir, ls_chunk_rule rule) {
    static const int32_t edge[] = {31, 32, 33, 63, 64, 65, 511, 513, 1024, 2047, 2048, 2049, 4096};
    ls_err err;
    ls_rig r;
    enum { LEN = 4110 };
    int32_t *token = malloc(LEN * sizeof *token), seq, other;
    assert_non_null(token);
    make_prompt(token, LEN, 17);
    ls_rig_open(
        &r, dir, (ls_cpu_options){2, LS_SIMD_AUTO},
        (ls_engine_options){
            .max_seqs = 2, .max_rows = 256, .max_want = 256, .chunk = rule, .block_rows = 32});
    ls_kv *kv = ls_engine_kv(r.engine);
    const size_t v = (size_t)ls_engine_opts(r.engine)->n_vocab;
    float *one = malloc(9 * v * sizeof *one), *row = malloc(v * sizeof *row);
    OK(ls_kv_open(kv, &seq, &err), &err);
    OK(ls_kv_open(kv, &other, &err), &err);
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
        const int32_t at = edge[i] - 5, have = ls_kv_len(kv, seq);
        if (have > at)
            OK(ls_kv_rewind(kv, seq, at, &err), &err);
        else
            OK(ls_prefill(r.engine, seq, token + have, at - have, have, &err), &err);
        for (int32_t k = 0; k < 9; k++) {
            pass_chain(&r, seq, token, at + k, 1);
            OK(ls_pass_logits(r.engine, 0, one + (size_t)k * v, &err), &err);
        }
        OK(ls_kv_rewind(kv, seq, at, &err), &err);
        pass_chain(&r, seq, token, at, 9);
        for (int32_t k = 0; k < 9; k++) {
            OK(ls_pass_logits(r.engine, k, row, &err), &err);
            ls_assert_bits(row, one + (size_t)k * v, v, "chunk edge");
        }
    }
    free(one);
    free(row);
    free(token);
    ls_rig_close(&r);
}

static void test_chunk_edges(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    s.n_pos = 4200, s.n_layers = 1, s.dim = 32, s.ffn = 48, s.n_heads = 2, s.n_kv = 1,
    s.head_dim = 16;
    char *dir = ls_test_model_make(&s);
    chunk_edges(dir, (ls_chunk_rule){LS_CHUNK_EVEN, 32, 64});
    chunk_edges(dir, (ls_chunk_rule){LS_CHUNK_SPLITS, 0, 1});
    chunk_edges(dir, (ls_chunk_rule){LS_CHUNK_SPLITS, 0, 7});
    chunk_edges(dir, (ls_chunk_rule){LS_CHUNK_DOUBLING, 32, 64});
    ls_test_model_remove(dir);
}

static void ignore(void *self, int32_t layer, const char *op, const float *data, int32_t n_rows,
                   int32_t dim) {
    (void)layer, (void)op, (void)data, (void)n_rows, (void)dim;
    ++*(int *)self;
}

/* A pass that is watched is not replayed, and brings every step to the host: a device may hand
 * results from step to step in another form otherwise. The logits are the same. */
static void test_watched(void **state) {
    (void)state;
    static const int32_t width[] = {1, 5, 16, 20};
    ls_test_shape s = ls_test_shape_default();
    s.dtype = LS_BF16;
    char *dir = ls_test_model_make(&s);
    int32_t token[64], seq;
    make_prompt(token, 64, 21);
    ls_err err;
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO},
                (ls_engine_options){.max_rows = 32, .kv_dtype = LS_BF16});
    ls_kv *kv = ls_engine_kv(r.engine);
    const size_t v = (size_t)ls_engine_opts(r.engine)->n_vocab;
    float *seen = malloc(2 * v * sizeof *seen);
    int steps = 0;
    const ls_trace trace = {.fn = ignore, .self = &steps};
    OK(ls_kv_open(kv, &seq, &err), &err);
    OK(ls_prefill(r.engine, seq, token, 30, 0, &err), &err);
    for (size_t w = 0; w < sizeof width / sizeof *width; w++)
        for (int32_t row = 0; row < width[w]; row += 3) {
            for (int i = 0; i < 2; i++) {
                ls_engine_trace(r.engine, i ? &trace : NULL);
                pass_chain(&r, seq, token, 30, width[w]);
                OK(ls_pass_logits(r.engine, row, seen + (size_t)i * v, &err), &err);
                OK(ls_kv_rewind(kv, seq, 30, &err), &err);
            }
            ls_assert_bits(seen, seen + v, v, "watched");
        }
    assert_true(steps > 100);
    free(seen);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

/* Negative control: another chunk rule is other arithmetic, and the comparison sees it. */
static void test_other_rule_differs(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    char *dir = ls_test_model_make(&s);
    int32_t prompt[200];
    make_prompt(prompt, 200, 8);
    ls_greedy a, b;
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO}, (ls_engine_options){0});
    ls_greedy_run(&r, prompt, 200, 1, &a);
    ls_rig_close(&r);
    ls_rig_open(&r, dir, (ls_cpu_options){2, LS_SIMD_AUTO},
                (ls_engine_options){.chunk = {LS_CHUNK_SPLITS, 0, 2}});
    ls_greedy_run(&r, prompt, 200, 1, &b);
    ls_rig_close(&r);
    assert_true(ls_count_bits(a.logits, b.logits, (size_t)a.n_vocab) > 0);
    ls_greedy_free(&a);
    ls_greedy_free(&b);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_shape), cmocka_unit_test(test_wide_bf16_tied),
        cmocka_unit_test(test_many_segments), cmocka_unit_test(test_chunk_edges),
        cmocka_unit_test(test_watched),       cmocka_unit_test(test_other_rule_differs),
    };
    return cmocka_run_group_tests_name("pass_equal", tests, NULL, NULL);
}
