/* A row on the GPU gives its bits whatever rides along: passes of 1 to 64 rows, prompts in any
 * chunks, trees, rows of several sequences at once; profile ieee, or mma (LS_TEST_DEVICE). Weights
 * of each type, shapes that fit the tensor cores' tiles and shapes that do not. The reference is
 * decode, one row a pass. Thin, for tools that make a launch some hundred times as long: one layer,
 * short texts, few widths. Skipped where there is no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

enum { SEQS = 3, N_PROMPT = 20, N_NEW = 80, N_NEW_THIN = 24, MOST = 64 };

typedef struct bench {
    char *dir;
    ls_rig r;
    int32_t seq[SEQS];
    ls_greedy ref[SEQS];
    float *row;
    uint32_t random;
} bench;

static int32_t n_seqs(void) {
    return LS_THIN ? 2 : SEQS;
}
static int32_t n_new(void) {
    return LS_THIN ? N_NEW_THIN : N_NEW;
}

static int32_t below(bench *b, int32_t n) {
    b->random = b->random * 1664525u + 1013904223u;
    return (int32_t)((b->random >> 16) % (uint32_t)n);
}

static void bench_open(bench *b, const ls_test_shape *shape, ls_engine_options o) {
    ls_err err;
    ls_test_shape made = *shape;
    made.n_layers = LS_THIN ? 1 : made.n_layers;
    *b = (bench){.dir = ls_test_model_make(&made), .random = 5};
    o.max_seqs = SEQS, o.max_rows = o.max_want = MOST;
    ls_rig_open_on(&b->r, rig_device_gpu(RIG_CUDA), b->dir, (ls_cpu_options){0}, o);
    b->row = malloc((size_t)shape->n_vocab * sizeof *b->row);
    assert_non_null(b->row);
    for (int32_t s = 0; s < n_seqs(); s++) {
        int32_t prompt[N_PROMPT];
        for (int32_t i = 0; i < N_PROMPT; i++)
            prompt[i] = below(b, 256);
        ls_greedy_run(&b->r, prompt, N_PROMPT, n_new(), &b->ref[s]);
    }
    for (int32_t s = 0; s < n_seqs(); s++)
        OK(ls_kv_open(ls_engine_kv(b->r.engine), &b->seq[s], &err), &err);
}

static void bench_close(bench *b) {
    for (int32_t s = 0; s < n_seqs(); s++)
        ls_greedy_free(&b->ref[s]);
    free(b->row);
    ls_rig_close(&b->r);
    ls_test_model_remove(b->dir);
}

/* Row i of the last pass, fed at `pos` of sequence s. */
static void assert_row(bench *b, int32_t i, int32_t s, int32_t pos, const char *what) {
    ls_err err;
    char text[128];
    OK(ls_pass_logits(b->r.engine, i, b->row, &err), &err);
    snprintf(text, sizeof text, "%s: row %d, sequence %d, position %d", what, i, s, pos);
    ls_assert_bits(b->row, ls_greedy_row(&b->ref[s], pos + 1), (size_t)b->ref[s].n_vocab, text);
}

static void rewind_to(bench *b, int32_t s, int32_t n) {
    ls_err err;
    OK(ls_kv_rewind(ls_engine_kv(b->r.engine), b->seq[s], n, &err), &err);
}

static void widths(bench *b) {
    static const int32_t few[] = {1, 2, 8, 17};
    ls_err err;
    const int32_t pos = N_PROMPT - 1;
    OK(ls_prefill(b->r.engine, b->seq[0], b->ref[0].token, pos, 0, &err), &err);
    for (int32_t w = 0; w < (LS_THIN ? 4 : MOST); w++) {
        const int32_t m = LS_THIN ? few[w] : w + 1;
        ls_row rows[MOST];
        for (int32_t i = 0; i < m; i++)
            rows[i] = ls_row_chain(b->seq[0], b->ref[0].token[pos + i], pos + i, true);
        OK(ls_pass(b->r.engine, rows, m, &err), &err);
        for (int32_t i = 0; i < m; i++)
            assert_row(b, i, 0, pos + i, "width");
        rewind_to(b, 0, pos);
    }
    rewind_to(b, 0, 0);
}

static void chunks(bench *b) {
    static const int32_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 33, 63, 64};
    ls_err err;
    const int32_t pos = N_PROMPT + n_new() - 10;
    for (size_t k = LS_THIN ? 2 : 0; k < sizeof sizes / sizeof *sizes; k += LS_THIN ? 4 : 1) {
        for (int32_t at = 0; at < pos; at += sizes[k]) {
            const int32_t n = sizes[k] < pos - at ? sizes[k] : pos - at;
            OK(ls_prefill(b->r.engine, b->seq[0], b->ref[0].token + at, n, at, &err), &err);
        }
        const ls_row one = ls_row_chain(b->seq[0], b->ref[0].token[pos], pos, true);
        OK(ls_pass(b->r.engine, &one, 1, &err), &err);
        assert_row(b, 0, 0, pos, "after a prompt in chunks");
        rewind_to(b, 0, 0);
    }
}

/* Random trees whose siblings repeat the right token: every node at a depth has the same inputs. */
static void trees(bench *b) {
    enum { NODES = 48 };
    ls_err err;
    const int32_t pos = N_PROMPT - 1;
    static int32_t anc[NODES][NODES];
    OK(ls_prefill(b->r.engine, b->seq[0], b->ref[0].token, pos, 0, &err), &err);
    for (int32_t turn = 0; turn < (LS_THIN ? 1 : 12); turn++) {
        const int32_t n = 2 + below(b, LS_THIN ? 11 : NODES - 1);
        int32_t depth[NODES];
        ls_row rows[NODES];
        for (int32_t i = 0; i < n; i++) {
            const int32_t parent = i ? below(b, i) : -1;
            depth[i] = parent < 0 ? 0 : depth[parent] + 1;
            for (int32_t d = 0; d < depth[i]; d++)
                anc[i][d] = anc[parent][d];
            anc[i][depth[i]] = pos + i;
            rows[i] =
                ls_row_chain(b->seq[0], b->ref[0].token[pos + depth[i]], pos + depth[i], true);
            rows[i].index = pos + i;
            rows[i].anc = anc[i], rows[i].n_anc = depth[i] + 1, rows[i].n_prefix = pos;
        }
        OK(ls_pass(b->r.engine, rows, n, &err), &err);
        for (int32_t i = 0; i < n; i++)
            assert_row(b, i, 0, pos + depth[i], "tree");
        rewind_to(b, 0, pos);
    }
    rewind_to(b, 0, 0);
}

/* Rows of several sequences in one pass, some wanted, at other lengths in each. */
static void batches(bench *b) {
    ls_err err;
    for (int32_t turn = 0; turn < (LS_THIN ? 2 : 25); turn++) {
        ls_row rows[MOST];
        int32_t n = 0, n_want = 0, from[MOST], at[MOST];
        for (int32_t s = 0; s < n_seqs(); s++) {
            const int32_t pos = N_PROMPT - 1 + below(b, LS_THIN ? 8 : 40);
            const int32_t m = 1 + below(b, LS_THIN ? 8 : 20);
            OK(ls_prefill(b->r.engine, b->seq[s], b->ref[s].token, pos, 0, &err), &err);
            for (int32_t i = 0; i < m; i++, n++) {
                const bool want = below(b, 3) != 0;
                rows[n] = ls_row_chain(b->seq[s], b->ref[s].token[pos + i], pos + i, want);
                if (want)
                    from[n_want] = s, at[n_want++] = pos + i;
            }
        }
        OK(ls_pass(b->r.engine, rows, n, &err), &err);
        for (int32_t i = 0; i < n_want; i++)
            assert_row(b, i, from[i], at[i], "batch");
        for (int32_t s = 0; s < n_seqs(); s++)
            rewind_to(b, s, 0);
    }
}

static void all_of(const ls_test_shape *shape, ls_engine_options o) {
    bench b;
    bench_open(&b, shape, o);
    widths(&b);
    chunks(&b);
    trees(&b);
    batches(&b);
    bench_close(&b);
}

static ls_test_shape tiles(ls_dtype t) {
    ls_test_shape s = ls_test_shape_default();
    s.dim = 256, s.ffn = 512, s.n_heads = 4, s.n_kv = 2, s.head_dim = 64, s.n_vocab = 320;
    s.dtype = t, s.no_eos = true;
    return s;
}

static void test_bf16(void **state) {
    (void)state;
    const ls_test_shape s = tiles(LS_BF16);
    /* a bf16 cache is what takes the tensor cores' attention: instrumented runs of mma look at
     * that */
    if (!LS_THIN || rig_device_gpu(RIG_CUDA) < RIG_MMA)
        all_of(&s, (ls_engine_options){0});
    if (!LS_THIN || rig_device_gpu(RIG_CUDA) >= RIG_MMA)
        all_of(&s, (ls_engine_options){.block_rows = 16, .kv_dtype = LS_BF16});
}

static void test_f16(void **state) {
    (void)state;
    ls_test_shape s = tiles(LS_F16);
    s.n_kv = 1, s.head_dim = 128, s.n_heads = 2;
    all_of(&s, (ls_engine_options){.block_rows = 32});
}

static void test_f32(void **state) {
    (void)state;
    const ls_test_shape s = tiles(LS_F32);
    if (!LS_THIN)
        all_of(&s, (ls_engine_options){0});
}

/* Nothing is a multiple of anything. */
static void test_odd_shapes(void **state) {
    (void)state;
    ls_test_shape s = ls_test_shape_default();
    s.dim = 90, s.ffn = 214, s.n_heads = 5, s.n_kv = 1, s.head_dim = 18, s.n_vocab = 299;
    for (int t = 0; t < (LS_THIN ? 1 : 3); t++) {
        s.dtype = (ls_dtype)((t + 1) % 3);
        all_of(&s, (ls_engine_options){.block_rows = 7});
    }
}

/* Inputs so long that their sums come in ranges (MMA.md): nine segments of 512. */
static void test_long_inputs(void **state) {
    (void)state;
    ls_test_shape s = tiles(LS_BF16);
    s.dim = 128, s.ffn = 4400, s.n_heads = 2, s.n_kv = 1;
    if (!LS_THIN) {
        all_of(&s, (ls_engine_options){.kv_dtype = LS_BF16});
        return;
    }
    bench b; /* what racecheck keeps of more of them takes over 100 GB of memory */
    bench_open(&b, &s, (ls_engine_options){.kv_dtype = LS_BF16});
    widths(&b);
    bench_close(&b);
}

/* A larger model on the same device makes scratch grow: passes recorded before it give their bits,
 * and write into nothing of its own. */
static void test_larger_model_behind(void **state) {
    (void)state;
    if (LS_THIN)
        return;
    ls_err err;
    bench b;
    ls_greedy before, after;
    const ls_test_shape small = tiles(LS_BF16);
    ls_test_shape large = tiles(LS_BF16);
    large.dim = 384, large.ffn = 5120, large.n_heads = 6, large.n_vocab = 900;
    bench_open(&b, &small, (ls_engine_options){.kv_dtype = LS_BF16});
    widths(&b);
    char *dir = ls_test_model_make(&large);
    ls_rig second = {.be = b.r.be};
    OK(ls_model_open(dir, (ls_model_options){.partial_bytes = true}, &second.model, &err), &err);
    OK(ls_engine_create(second.model, second.be,
                        (ls_engine_options){.max_rows = MOST, .kv_dtype = LS_BF16, .poison = 1},
                        &second.engine, &err),
       &err);
    ls_greedy_run(&second, b.ref[0].token, N_PROMPT, 8, &before);
    widths(&b);
    ls_greedy_run(&second, b.ref[0].token, N_PROMPT, 8, &after);
    ls_assert_bits(after.logits, before.logits, 8 * (size_t)before.n_vocab, "the larger model");
    ls_greedy_free(&before);
    ls_greedy_free(&after);
    ls_engine_destroy(second.engine);
    ls_model_close(second.model);
    widths(&b);
    ls_test_model_remove(dir);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_f16),
                                       cmocka_unit_test(test_f32),
                                       cmocka_unit_test(test_long_inputs),
                                       cmocka_unit_test(test_larger_model_behind),
                                       cmocka_unit_test(test_odd_shapes)};
    rig_device_need(rig_device_gpu(RIG_CUDA));
    return cmocka_run_group_tests_name("cuda_width_equal", tests, NULL, NULL);
}
