/* The CUDA backend, profile ieee, against the CPU: whole texts of the embedded pair (tokens, logits
 * and cache by their digests), recorded launches against launched ones at growing lengths, two
 * engines in two streams, and the same run twice. Skipped where there is no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

static const int32_t prompt[] = {84, 104, 101, 32, 109, 111, 111, 110, 32, 119, 97, 115};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };
static const ls_cpu_options on_cpu = {0, LS_SIMD_AUTO};
static const ls_warp warps[] = {{0, 0, 1, 0}, {1, 0, 1, 0}, {0.8f, 40, 0.95f, 0.02f}};
enum { N_WARPS = sizeof warps / sizeof *warps };

static void open_pair(ls_rig *target, ls_rig *draft, rig_device where, ls_engine_options o) {
    o.max_seqs = 2;
    ls_rig_open_on(target, where, LS_SOURCE_DIR "/experiments/models/target", on_cpu, o);
    ls_rig_open_on(draft, where, LS_SOURCE_DIR "/experiments/models/draft", on_cpu, o);
}

static ls_gen job(ls_rig *target, size_t warp, int32_t n) {
    return (ls_gen){.target = target->engine,
                    .prompt = prompt,
                    .n_prompt = N_PROMPT,
                    .max_new = n,
                    .ignore_eos = true,
                    .warp = warps[warp],
                    .seed = 31 + warp,
                    .sequence = 2};
}

static void assert_same_plain(const ls_plain *a, const ls_plain *b, const char *what) {
    assert_int_equal(a->n_token, b->n_token);
    assert_int_equal(a->n_row, b->n_row);
    for (int32_t i = 0; i < a->n_token; i++) {
        if (a->token[i] != b->token[i])
            fail_msg("%s: token %d is %d and %d", what, i, a->token[i], b->token[i]);
        if (memcmp(a->logits[i], b->logits[i], LS_SHA256_RAW) != 0)
            fail_msg("%s: the logits of token %d differ", what, i);
    }
    for (int32_t i = 0; i < a->n_row; i++)
        if (memcmp(a->cache[i], b->cache[i], LS_SHA256_RAW) != 0)
            fail_msg("%s: cache row %d differs", what, i);
}

/* Plain on both; then drafts on the GPU, judged there, against the CPU's plain text. */
static void whole_texts(ls_engine_options o) {
    const int32_t n = LS_THIN ? 6 : 40;
    ls_err err;
    ls_rig cpu, cpu_draft, gpu, gpu_draft;
    ls_drafter *d;
    open_pair(&cpu, &cpu_draft, RIG_CPU, o);
    open_pair(&gpu, &gpu_draft, RIG_CUDA, o);
    OK(ls_drafter_model(gpu_draft.engine, &d, &err), &err);
    for (size_t w = 0; w < N_WARPS; w += LS_THIN ? 2 : 1) {
        ls_gen here = job(&cpu, w, n), there = job(&gpu, w, n);
        ls_plain *a, *b, *again;
        OK(ls_plain_run(&here, cpu.engine, &a, &err), &err);
        OK(ls_plain_run(&there, gpu.engine, &b, &err), &err);
        assert_same_plain(a, b, "plain, CPU and CUDA");
        OK(ls_plain_run(&there, gpu.engine, &again, &err), &err);
        assert_same_plain(b, again, "plain, twice");
        there.drafter = d;
        for (int32_t k = 1; k <= 8; k *= LS_THIN ? 8 : 2) {
            ls_check_result r = {0};
            OK(ls_policy_fixed(k, &there.policy, &err), &err);
            OK(ls_check_run(&there, a, cpu.engine, &r, &err), &err);
            if (!r.same) {
                ls_fork_print(stderr, &r.fork);
                fail_msg("%d drafts: CUDA forked from the CPU at position %d", k, r.fork.position);
            }
            assert_int_equal(r.n_position, n);
            assert_true(r.n_cache > 0);
            ls_check_free(&r);
            ls_policy_destroy(there.policy);
        }
        ls_plain_destroy(a), ls_plain_destroy(b), ls_plain_destroy(again);
    }
    ls_drafter_destroy(d);
    ls_rig_close(&gpu_draft), ls_rig_close(&gpu);
    ls_rig_close(&cpu_draft), ls_rig_close(&cpu);
}

static void test_contiguous(void **state) {
    (void)state;
    whole_texts((ls_engine_options){.context = 256});
}

static void test_paged_bf16(void **state) {
    (void)state;
    whole_texts((ls_engine_options){.context = 256, .block_rows = 16, .kv_dtype = LS_BF16});
}

/* Rejection: the drafts, the verdicts and the residual draws agree, so the texts do. */
static void test_rejection(void **state) {
    (void)state;
    ls_err err;
    char digest[2][65] = {"", ""};
    for (int where = 0; where < 2; where++) {
        ls_rig target, draft;
        ls_drafter *d;
        ls_transcript t = {0};
        open_pair(&target, &draft, where ? RIG_CUDA : RIG_CPU, (ls_engine_options){.context = 256});
        OK(ls_drafter_model(draft.engine, &d, &err), &err);
        ls_gen g = job(&target, 1, LS_THIN ? 6 : 60);
        g.drafter = d;
        OK(ls_policy_fixed(4, &g.policy, &err), &err);
        OK(ls_rule_builtin("rejection", &g.rule, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        memcpy(digest[where], t.digest, sizeof t.digest);
        ls_transcript_free(&t);
        ls_rule_destroy(g.rule);
        ls_policy_destroy(g.policy);
        ls_drafter_destroy(d);
        ls_rig_close(&draft), ls_rig_close(&target);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* ---- recorded launches ----------------------------------------------------------------------- */

typedef struct walk {
    ls_engine *e;
    int32_t seq;
    float *logits; /* [9, V] */
} walk;

static void walk_pass(walk *w, const int32_t *token, int32_t pos, int32_t m) {
    ls_err err;
    ls_row rows[9];
    const size_t v = (size_t)ls_engine_opts(w->e)->n_vocab;
    for (int32_t i = 0; i < m; i++)
        rows[i] = ls_row_chain(w->seq, token[pos + i], pos + i, true);
    OK(ls_pass(w->e, rows, m, &err), &err);
    for (int32_t i = 0; i < m; i++)
        OK(ls_pass_logits(w->e, i, w->logits + (size_t)i * v, &err), &err);
}

/* One engine replays, the other launches: the same logits at every length from 1 to 97, and up to
 * 4097, for decode and for passes of 5 rows; after a rewind, too. */
static void replay_against_eager(ls_engine_options o) {
    ls_err err;
    enum { LEN = 4110 };
    static int32_t token[LEN];
    ls_test_shape s = ls_test_shape_default();
    s.n_pos = 4200, s.dim = 64, s.ffn = 96, s.n_heads = 4, s.n_kv = 2, s.head_dim = 32;
    char *dir = ls_test_model_make(&s);
    ls_rig r;
    ls_engine *eager;
    for (int32_t i = 0; i < LEN; i++)
        token[i] = i * 37 % 256;
    o.max_seqs = 2, o.max_rows = 256;
    ls_rig_open_on(&r, rig_device_gpu(RIG_CUDA), dir, on_cpu, o);
    o.eager = 1, o.poison = 1;
    OK(ls_engine_create(r.model, r.be, o, &eager, &err), &err);
    walk w[2] = {{.e = r.engine}, {.e = eager}};
    const size_t v = (size_t)ls_engine_opts(eager)->n_vocab;
    for (int i = 0; i < 2; i++) {
        w[i].logits = malloc(9 * v * sizeof(float));
        assert_non_null(w[i].logits);
        OK(ls_kv_open(ls_engine_kv(w[i].e), &w[i].seq, &err), &err);
    }
    for (int32_t pos = 0; pos < LEN - 9;) {
        if (pos == 98) { /* a jump by prompt chunks to just below the longest */
            const int32_t to = LS_THIN ? 1020 : 4090;
            for (int i = 0; i < 2; i++)
                OK(ls_prefill(w[i].e, w[i].seq, token + pos, to - pos, pos, &err), &err);
            pos = to;
        }
        for (int32_t m = 1; m <= 5; m += 4) {
            for (int i = 0; i < 2; i++) {
                OK(ls_kv_rewind(ls_engine_kv(w[i].e), w[i].seq, pos, &err), &err);
                walk_pass(&w[i], token, pos, m);
            }
            ls_assert_bits(w[0].logits, w[1].logits, (size_t)m * v, "replayed, launched");
        }
        pos++;
        for (int i = 0; i < 2; i++)
            OK(ls_kv_rewind(ls_engine_kv(w[i].e), w[i].seq, pos, &err), &err);
        if (LS_THIN && pos > 1027)
            break;
    }
    free(w[0].logits), free(w[1].logits);
    ls_engine_destroy(eager);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

static void test_replay(void **state) {
    (void)state;
    replay_against_eager((ls_engine_options){0});
    replay_against_eager((ls_engine_options){.block_rows = 16});
    if (!LS_THIN)
        replay_against_eager((ls_engine_options){.chunk = {LS_CHUNK_SPLITS, 0, 7}});
}

/* Whole rounds, chains of drafts among them, replayed and launched. */
static void test_replayed_rounds(void **state) {
    (void)state;
    ls_err err;
    char digest[2][65] = {"", ""};
    for (int eager = 0; eager < 2; eager++) {
        ls_rig target, draft;
        ls_drafter *d;
        ls_transcript t = {0};
        open_pair(&target, &draft, RIG_CUDA, (ls_engine_options){.context = 256, .eager = eager});
        OK(ls_drafter_model(draft.engine, &d, &err), &err);
        ls_gen g = job(&target, 1, LS_THIN ? 6 : 60);
        g.drafter = d;
        OK(ls_policy_fixed(4, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        memcpy(digest[eager], t.digest, sizeof t.digest);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
        ls_drafter_destroy(d);
        ls_rig_close(&draft), ls_rig_close(&target);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* ---- two streams ----------------------------------------------------------------------------- */

/* Two backends, an engine on each, their passes in turns; each against the CPU. */
static void test_two_streams(void **state) {
    (void)state;
    enum { N = 24 };
    ls_err err;
    ls_test_shape s = ls_test_shape_default();
    char *dir = ls_test_model_make(&s);
    ls_rig cpu, gpu[2];
    ls_greedy want[2];
    int32_t seq[2];
    float *row = malloc((size_t)LS_TEST_TOKENS * sizeof *row);
    assert_non_null(row);
    ls_rig_open_on(&cpu, RIG_CPU, dir, on_cpu, (ls_engine_options){0});
    for (int i = 0; i < 2; i++) {
        ls_greedy_run(&cpu, prompt + i, N_PROMPT - i, N, &want[i]);
        ls_rig_open_on(&gpu[i], RIG_CUDA, dir, on_cpu, (ls_engine_options){0});
        OK(ls_kv_open(ls_engine_kv(gpu[i].engine), &seq[i], &err), &err);
        OK(ls_prefill(gpu[i].engine, seq[i], prompt + i, N_PROMPT - i - 1, 0, &err), &err);
    }
    for (int32_t step = 0; step < N; step++) {
        for (int i = 0; i < 2; i++) { /* both are launched before either is waited for */
            const int32_t pos = want[i].n_prompt - 1 + step;
            const ls_row one = ls_row_chain(seq[i], want[i].token[pos], pos, true);
            OK(ls_pass(gpu[i].engine, &one, 1, &err), &err);
        }
        for (int i = 1; i >= 0; i--) {
            OK(ls_pass_logits(gpu[i].engine, 0, row, &err), &err);
            ls_assert_bits(row, ls_greedy_row(&want[i], want[i].n_prompt + step),
                           (size_t)want[i].n_vocab, "two streams");
        }
    }
    for (int i = 0; i < 2; i++) {
        ls_greedy_free(&want[i]);
        ls_rig_close(&gpu[i]);
    }
    free(row);
    ls_rig_close(&cpu);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous),      cmocka_unit_test(test_paged_bf16),
        cmocka_unit_test(test_rejection),       cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replayed_rounds), cmocka_unit_test(test_two_streams),
    };
    rig_device_need(RIG_CUDA);
    return cmocka_run_group_tests_name("cuda_equal", tests, NULL, NULL);
}
