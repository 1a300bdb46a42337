/* P1: whatever drafts, however much, under whatever cache: the tokens, logits and cache of plain
 * decode, bit for bit; greedy and sampled. The negative control is plain decode under another chunk
 * rule, whose first difference the triage has to find. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"
#include "triage.h"

typedef struct bench {
    char *target_dir, *draft_dir;
    ls_rig target, draft;
} bench;

static const int32_t prompt[] = {84, 104, 101, 32, 109, 111, 111, 110, 32, 119, 97, 115};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 48 };

static void bench_open(bench *b, ls_engine_options o, ls_cpu_options cpu) {
    ls_test_shape t = ls_test_shape_default(), d = t;
    t.no_eos = d.no_eos = true;
    d.n_layers = 1, d.dim = 64, d.ffn = 96, d.n_heads = 2, d.n_kv = 1, d.head_dim = 32;
    d.seed = t.seed + 1;
    b->target_dir = ls_test_model_make(&t);
    b->draft_dir = ls_test_model_make(&d);
    o.max_seqs = 3;
    ls_rig_open(&b->target, b->target_dir, cpu, o);
    ls_rig_open(&b->draft, b->draft_dir, cpu, o);
}

static void bench_close(bench *b) {
    ls_rig_close(&b->draft);
    ls_rig_close(&b->target);
    ls_test_model_remove(b->target_dir);
    ls_test_model_remove(b->draft_dir);
}

/* A policy that asks for anything: 0, small, absurd; and stops drafts at random. */
typedef struct wild {
    ls_policy base;
    uint32_t seed;
} wild;

static uint32_t wild_next(wild *w) {
    return (w->seed = w->seed * 1664525u + 1013904223u) >> 16;
}

static ls_status wild_plan(ls_policy *p, const ls_policy_ctx *ctx, int64_t *n, ls_err *err) {
    wild *w = (wild *)p;
    (void)ctx;
    (void)err;
    const uint32_t what = wild_next(w) % 4;
    *n = what == 0 ? 0 : what == 1 ? INT64_MAX : wild_next(w) % 20;
    return LS_OK;
}

static ls_status wild_more(ls_policy *p, const ls_policy_ctx *ctx, const ls_policy_step *step,
                           bool *yes, ls_err *err) {
    (void)ctx;
    (void)step;
    (void)err;
    *yes = wild_next((wild *)p) % 5 != 0;
    return LS_OK;
}

static const ls_warp warps[] = {
    {0, 0, 1, 0}, {1, 0, 1, 0}, {0.7f, 40, 1, 0}, {1.3f, 0, 0.9f, 0}, {1, 0, 1, 0.05f}};

static ls_gen job(bench *b, ls_drafter *drafter, size_t warp) {
    return (ls_gen){.target = b->target.engine,
                    .drafter = drafter,
                    .prompt = prompt,
                    .n_prompt = N_PROMPT,
                    .max_new = N_NEW,
                    .warp = warps[warp],
                    .seed = 20 + warp,
                    .sequence = 3};
}

static void every_drafter(ls_engine_options o, ls_cpu_options cpu) {
    bench b;
    ls_err err;
    bench_open(&b, o, cpu);
    ls_drafter *drafter[4];
    OK(ls_drafter_model(b.draft.engine, &drafter[0], &err), &err);
    OK(ls_drafter_model(b.target.engine, &drafter[1], &err),
       &err); /* the target drafts for itself */
    OK(ls_drafter_ngram(1, 3, NULL, 0, &drafter[2], &err), &err);
    OK(ls_drafter_garbage(LS_TEST_TOKENS, &drafter[3], &err), &err);
    for (size_t w = 0; w < sizeof warps / sizeof *warps; w += LS_THIN ? 3 : 1) {
        ls_gen g = job(&b, NULL, w);
        ls_plain *plain;
        OK(ls_plain_run(&g, b.target.engine, &plain, &err), &err);
        assert_int_equal(plain->n_token, N_NEW);
        ls_assert_plain(&g, plain, b.target.engine, "no drafter");
        for (size_t d = 0; d < 4; d++) {
            g.drafter = drafter[d];
            for (int32_t k = 0; k <= 16; k += LS_THIN ? 8 : k < 5 ? 1 : 3) {
                OK(ls_policy_fixed(k, &g.policy, &err), &err);
                ls_assert_plain(&g, plain, b.target.engine, drafter[d]->name);
                ls_policy_destroy(g.policy);
            }
            wild p = {.base = {.name = "wild", .plan = wild_plan, .more = wild_more}, .seed = 5};
            g.policy = &p.base;
            ls_assert_plain(&g, plain, b.target.engine, "wild policy");
        }
        ls_plain_destroy(plain);
    }
    for (size_t d = 0; d < 4; d++)
        ls_drafter_destroy(drafter[d]);
    bench_close(&b);
}

static void test_contiguous(void **state) {
    (void)state;
    every_drafter((ls_engine_options){0}, (ls_cpu_options){2, LS_SIMD_AUTO});
}

static void test_paged(void **state) {
    (void)state;
    every_drafter((ls_engine_options){.block_rows = 16, .max_rows = 20},
                  (ls_cpu_options){1, LS_SIMD_AUTO});
}

static void test_bf16_cache_doubling(void **state) {
    (void)state;
    every_drafter((ls_engine_options){.kv_dtype = LS_BF16, .chunk = {LS_CHUNK_DOUBLING, 8, 4}},
                  (ls_cpu_options){2, LS_SIMD_AUTO});
}

/* The coupled rule pays: a drafter equal to the target is always right, greedy and sampled. */
static void test_own_drafts_are_kept(void **state) {
    (void)state;
    bench b;
    ls_err err;
    bench_open(&b, (ls_engine_options){0}, (ls_cpu_options){1, LS_SIMD_AUTO});
    ls_drafter *d;
    OK(ls_drafter_model(b.target.engine, &d, &err), &err);
    for (size_t w = 0; w < sizeof warps / sizeof *warps; w++) {
        ls_gen g = job(&b, d, w);
        ls_transcript t = {0};
        OK(ls_policy_fixed(5, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        for (int32_t i = 0; i < t.n_round; i++)
            assert_int_equal(t.round[i].accepted, t.round[i].proposed);
        assert_int_equal(t.n_round, N_NEW / 6);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    ls_drafter_destroy(d);
    bench_close(&b);
}

/* C016: a text is a function of its own seed and sequence, not of what ran before or beside it. */
static void test_seeds(void **state) {
    (void)state;
    bench b;
    ls_err err;
    bench_open(&b, (ls_engine_options){0}, (ls_cpu_options){1, LS_SIMD_AUTO});
    ls_drafter *d;
    OK(ls_drafter_model(b.draft.engine, &d, &err), &err);
    ls_gen g = job(&b, d, 1);
    ls_transcript first = {0}, again = {0}, other = {0};
    OK(ls_policy_fixed(4, &g.policy, &err), &err);
    OK(ls_generate(&g, &first, &err), &err);
    for (uint64_t s = 100; s < 110; s++) {
        g.seed = s;
        OK(ls_generate(&g, &other, &err), &err);
        assert_string_not_equal(other.digest, first.digest);
        ls_transcript_free(&other);
    }
    g.seed = 21;
    g.sequence = 4;
    OK(ls_generate(&g, &other, &err), &err);
    assert_string_not_equal(other.digest, first.digest);
    g.sequence = 3;
    OK(ls_generate(&g, &again, &err), &err);
    assert_string_equal(again.digest, first.digest);
    ls_transcript_free(&first);
    ls_transcript_free(&again);
    ls_transcript_free(&other);
    ls_policy_destroy(g.policy);
    ls_drafter_destroy(d);
    bench_close(&b);
}

/* Negative control: the plain side splits its keys otherwise. The triage names the attention of the
 * first layer, with a distance of a few ulp; nothing before it differs. */
static void test_fork_is_found(void **state) {
    (void)state;
    bench b;
    ls_err err;
    bench_open(&b, (ls_engine_options){0}, (ls_cpu_options){1, LS_SIMD_AUTO});
    ls_engine *other;
    OK(ls_engine_create(b.target.model, b.target.be,
                        (ls_engine_options){.chunk = {LS_CHUNK_SPLITS, 0, 3}}, &other, &err),
       &err);
    ls_drafter *d;
    OK(ls_drafter_model(b.draft.engine, &d, &err), &err);
    ls_gen g = job(&b, d, 0);
    ls_plain *plain;
    ls_check_result r = {0};
    OK(ls_policy_fixed(4, &g.policy, &err), &err);
    OK(ls_plain_run(&g, other, &plain, &err), &err);
    OK(ls_check_run(&g, plain, other, &r, &err), &err);
    assert_false(r.same);
    assert_true(r.n_differ > 0);
    assert_int_equal(r.fork.kind, LS_FORK_LOGITS);
    assert_int_equal(r.fork.layer, 0);
    assert_string_equal(r.fork.op, "attention");
    assert_true(r.fork.ulp > 0 && r.fork.bits_plain != r.fork.bits_spec);
    ls_check_free(&r);
    ls_plain_destroy(plain);
    ls_policy_destroy(g.policy);
    ls_drafter_destroy(d);
    ls_engine_destroy(other);
    bench_close(&b);
}

/* A rule that replaces a token is logic, not arithmetic, and is told apart. */
static ls_status liar_judge(ls_rule *r, const ls_judge *j, ls_verdict *v, ls_err *err) {
    (void)r;
    (void)err;
    v->accept = false;
    v->token = j->position == N_PROMPT + 9 ? (j->target->token + 1) % j->n_vocab : j->target->token;
    return LS_OK;
}

static void test_faulty_rule_is_told_apart(void **state) {
    (void)state;
    bench b;
    ls_err err;
    bench_open(&b, (ls_engine_options){0}, (ls_cpu_options){1, LS_SIMD_AUTO});
    ls_rule liar = {.name = "liar", .judge = liar_judge};
    ls_gen g = job(&b, NULL, 0);
    ls_plain *plain;
    ls_check_result r = {0};
    g.rule = &liar;
    OK(ls_plain_run(&g, b.target.engine, &plain, &err), &err);
    OK(ls_check_run(&g, plain, b.target.engine, &r, &err), &err);
    assert_false(r.same);
    assert_int_equal(r.fork.kind, LS_FORK_TOKEN);
    assert_int_equal(r.fork.position, N_PROMPT + 9);
    assert_int_not_equal(r.fork.token_plain, r.fork.token_spec);
    ls_check_free(&r);
    ls_plain_destroy(plain);
    bench_close(&b);
}

static void test_ulp_distance(void **state) {
    (void)state;
    assert_int_equal(ls_ulp_distance(0x3F800000, 0x3F800001), 1);
    assert_int_equal(ls_ulp_distance(0x00000000, 0x80000000), 1);
    assert_int_equal(ls_ulp_distance(0x00000001, 0x80000001), 3);
    assert_int_equal(ls_ulp_distance(0xBF800000, 0xBF800003), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_paged),
        cmocka_unit_test(test_bf16_cache_doubling),
        cmocka_unit_test(test_own_drafts_are_kept),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_fork_is_found),
        cmocka_unit_test(test_faulty_rule_is_told_apart),
        cmocka_unit_test(test_ulp_distance),
    };
    return cmocka_run_group_tests_name("generate_equal", tests, NULL, NULL);
}
