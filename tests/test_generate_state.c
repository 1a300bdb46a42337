/* How a text ends and what the rounds record, on models whose every logit is known
 * (tests/cases/models/table_*): cases C002, C004, C005, C006, C008, C014, C017, C021. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "rig.h"

typedef struct pair {
    ls_rig target, draft;
    ls_drafter *drafter;
} pair;

static void pair_open_as(pair *p, const char *target, const char *draft, ls_engine_options o,
                         int32_t draft_context) {
    ls_err err;
    char *t = ls_case_model(target), *d = ls_case_model(draft);
    ls_rig_open(&p->target, t, (ls_cpu_options){1, LS_SIMD_AUTO}, o);
    ls_rig_open(&p->draft, d, (ls_cpu_options){1, LS_SIMD_AUTO},
                (ls_engine_options){.context = draft_context});
    OK(ls_drafter_model(p->draft.engine, &p->drafter, &err), &err);
    free(t);
    free(d);
}

static void pair_open(pair *p, const char *target, const char *draft, int32_t context,
                      int32_t draft_context) {
    pair_open_as(p, target, draft, (ls_engine_options){.context = context}, draft_context);
}

static void pair_close(pair *p) {
    ls_drafter_destroy(p->drafter);
    ls_rig_close(&p->draft);
    ls_rig_close(&p->target);
}

/* Cache length when the run is done. */
static ls_status keep_len(void *self, ls_engine *target, int32_t seq, ls_err *err) {
    (void)err;
    *(int32_t *)self = ls_kv_len(ls_engine_kv(target), seq);
    return LS_OK;
}

static ls_gen greedy_job(pair *p, const int32_t *prompt, int32_t n, int32_t max_new, int32_t *len) {
    return (ls_gen){.target = p->target.engine,
                    .drafter = p->drafter,
                    .prompt = prompt,
                    .n_prompt = n,
                    .max_new = max_new,
                    .warp = {0, 0, 1, 0},
                    .hooks = {.self = len, .done = len ? keep_len : NULL}};
}

static void assert_text(const ls_transcript *t, const int32_t *want, int32_t n, ls_end end) {
    assert_int_equal(t->n_token, n);
    assert_memory_equal(t->token, want, (size_t)n * sizeof *want);
    assert_int_equal(t->end, end);
}

/* C021: emitted = accepted + rounds - rounds that ended inside their draft. */
static void assert_counts(const ls_transcript *t, int32_t ended_inside) {
    int32_t emitted = 0, accepted = 0;
    for (int32_t i = 0; i < t->n_round; i++) {
        const ls_round *r = &t->round[i];
        assert_true(0 <= r->accepted && r->accepted <= r->evaluated && r->evaluated <= r->proposed);
        emitted += r->emitted;
        accepted += r->accepted;
    }
    assert_int_equal(emitted, t->n_token);
    assert_int_equal(emitted, accepted + t->n_round - ended_inside);
}

/* C002: the draft is wrong right after tokens 5 and 9; every length gives the target's text. */
static void test_first_draft_is_checked(void **state) {
    (void)state;
    static const int32_t text[] = {4,  5,  6, 7, 8, 9, 10, 11, 12, 13,
                                   14, 15, 3, 4, 5, 6, 7,  8,  9,  10};
    static const int32_t k4[] = {2, 3, 4, 3, 3}, k8[] = {2, 3, 8, 3};
    const int32_t prompt[] = {3};
    ls_err err;
    pair p;
    pair_open(&p, "table_target", "table_draft", 0, 0);
    for (int32_t k = 0; k <= 16; k++) {
        int32_t len = -1;
        ls_gen g = greedy_job(&p, prompt, 1, 20, &len);
        ls_transcript t = {0};
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_text(&t, text, 20, LS_END_LENGTH);
        assert_int_equal(len, 1 + 20 - 1);
        const int32_t *want = k == 4 ? k4 : k == 8 ? k8 : NULL;
        for (int32_t i = 0; want && i < t.n_round; i++)
            assert_int_equal(t.round[i].accepted, want[i]);
        if (want)
            assert_int_equal(t.n_round, k == 4 ? 5 : 4);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);
}

/* A draft of length 1 that always answers token 0 is never kept. */
static ls_status zero_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                            ls_err *err) {
    static const int32_t zero[LS_DRAFT_MAX] = {0};
    (void)d;
    (void)err;
    *out = (ls_draft_block){.n = job->n, .token = zero};
    return LS_OK;
}
static ls_status zero_begin(ls_drafter *d, ls_err *err) {
    (void)d;
    (void)err;
    return LS_OK;
}

static void test_wrong_draft_is_never_kept(void **state) {
    (void)state;
    const int32_t prompt[] = {3}, text[] = {4, 5, 6, 7, 8, 9, 10, 11};
    ls_err err;
    pair p;
    ls_drafter zero = {
        .name = "zero", .context = INT32_MAX, .begin = zero_begin, .draft = zero_draft};
    pair_open(&p, "table_target", "table_draft", 0, 0);
    ls_gen g = greedy_job(&p, prompt, 1, 8, NULL);
    ls_transcript t = {0};
    g.drafter = &zero;
    OK(ls_policy_fixed(1, &g.policy, &err), &err);
    OK(ls_generate(&g, &t, &err), &err);
    assert_text(&t, text, 8, LS_END_LENGTH);
    for (int32_t i = 0; i < t.n_round; i++)
        assert_int_equal(t.round[i].accepted, 0);
    ls_transcript_free(&t);
    ls_policy_destroy(g.policy);
    pair_close(&p);
}

/* C004: the end id in the middle of an accepted run. */
static void test_end_inside_draft(void **state) {
    (void)state;
    static const int32_t text[] = {4, 5, 2}, ignored[] = {4, 5, 2, 6, 7, 8, 9, 10};
    const int32_t prompt[] = {3};
    ls_err err;
    pair p;
    pair_open(&p, "table_eos", "table_eos", 0, 0);
    for (int32_t k = 0; k <= 8; k++) {
        int32_t len = -1;
        ls_gen g = greedy_job(&p, prompt, 1, 8, &len);
        ls_transcript t = {0};
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_text(&t, text, 3, LS_END_STOP);
        assert_int_equal(len, 3);
        assert_counts(&t, k >= 3 ? 1 : k == 2 || k == 0 ? 0 : k == 1 ? 1 : 0);
        if (k == 5) { /* metrics.json, eos_inside_draft */
            assert_int_equal(t.round[0].accepted, 3);
            assert_int_equal(t.round[0].evaluated, 3);
            assert_int_equal(t.round[0].emitted, 3);
            assert_int_equal(t.round[0].proposed - t.round[0].evaluated, 2);
        }
        ls_transcript_free(&t);
        g.ignore_eos = true;
        OK(ls_generate(&g, &t, &err), &err);
        assert_text(&t, ignored, 8, LS_END_LENGTH);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);
}

/* C006: any id of the set ends the text; each in turn. */
static void test_each_end_id(void **state) {
    (void)state;
    const int32_t prompt[] = {3}, eos[][2] = {{8, 15}, {15, 8}, {8, 0}};
    ls_err err;
    pair p;
    pair_open(&p, "table_target", "table_target", 0, 0);
    for (size_t i = 0; i < 3; i++) {
        ls_gen g = greedy_job(&p, prompt, 1, 20, NULL);
        ls_transcript t = {0};
        g.eos = eos[i];
        g.n_eos = 2;
        OK(ls_policy_fixed(6, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_int_equal(t.n_token, 5);
        assert_int_equal(t.end, LS_END_STOP);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);
}

/* C005: a stop exactly at the limit is a stop; one past it is the limit; never more than the
 * limit. */
static void test_stop_against_limit(void **state) {
    (void)state;
    const int32_t prompt[] = {3}, eos[] = {8};
    ls_err err;
    pair p;
    pair_open(&p, "table_target", "table_draft", 0, 0);
    for (int32_t k = 0; k <= 10; k++)
        for (int32_t max_new = 1; max_new <= 9; max_new++) {
            int32_t len = -1;
            ls_gen g = greedy_job(&p, prompt, 1, max_new, &len);
            ls_transcript t = {0};
            g.eos = eos;
            g.n_eos = 1; /* fifth token of the text */
            OK(ls_policy_fixed(k, &g.policy, &err), &err);
            OK(ls_generate(&g, &t, &err), &err);
            assert_int_equal(t.n_token, max_new < 5 ? max_new : 5);
            assert_int_equal(t.end, max_new < 5 ? LS_END_LENGTH : LS_END_STOP);
            assert_int_equal(len, t.n_token);
            ls_transcript_free(&t);
            ls_policy_destroy(g.policy);
        }
    pair_close(&p);
}

/* C008: equal maxima take the lowest id in plain, verify and bonus rows. */
static void test_ties(void **state) {
    (void)state;
    const int32_t prompt[] = {3}, text[] = {5, 5, 5, 5, 5, 5, 5, 5};
    ls_err err;
    pair p;
    pair_open(&p, "table_tie", "table_tie", 0, 0);
    for (int32_t k = 0; k <= 8; k++) {
        ls_gen g = greedy_job(&p, prompt, 1, 8, NULL);
        ls_transcript t = {0};
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_text(&t, text, 8, LS_END_LENGTH);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);
}

/* C017: the last tokens of the context, a draft with a shorter one, a prompt that fills it. */
static void test_room(void **state) {
    (void)state;
    ls_err err;
    int32_t prompt[40];
    pair p;
    for (int32_t i = 0; i < 40; i++)
        prompt[i] = 3 + i % 13;
    pair_open(&p, "table_target", "table_target", 32, 128);
    for (int32_t k = 0; k <= 16; k++) {
        int32_t len = -1;
        ls_gen g = greedy_job(&p, prompt, 28, 0, &len);
        ls_transcript t = {0};
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_int_equal(t.n_token, 4);
        assert_int_equal(t.end, LS_END_LENGTH);
        assert_int_equal(len, 31);
        for (int32_t i = 0; i < t.n_round; i++)
            assert_true(t.round[i].proposed <= 32 - t.round[i].position - 1);
        assert_int_equal(t.round[0].clamped, k > 3);
        ls_transcript_free(&t);
        g.n_prompt = 32;
        OK(ls_generate(&g, &t, &err), &err);
        assert_text(&t, prompt, 0, LS_END_LENGTH);
        ls_transcript_free(&t);
        g.n_prompt = 33;
        assert_int_equal(ls_generate(&g, &t, &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, "33"));
        assert_non_null(strstr(err.msg, "32"));
        ls_transcript_free(&t);
        g.n_prompt = 0;
        assert_int_equal(ls_generate(&g, &t, &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, "empty"));
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);

    pair_open(&p, "table_target", "table_target", 64, 24);
    for (int32_t k = 1; k <= 16; k++) {
        ls_gen g = greedy_job(&p, prompt, 20, 0, NULL);
        ls_transcript t = {0};
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_int_equal(t.n_token, 44);
        for (int32_t i = 0; i < t.n_token; i++)
            assert_int_equal(t.token[i], 3 + (20 + i) % 13);
        for (int32_t i = 0; i < t.n_round; i++)
            if (t.round[i].position >= 24)
                assert_int_equal(t.round[i].proposed, 0);
        assert_true(t.round[0].proposed > 0);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    pair_close(&p);
}

/* A verify pass wants every row's logits: a target with room for few of them drafts less. */
static void test_few_wanted_rows(void **state) {
    (void)state;
    ls_err err;
    const int32_t prompt[] = {3, 4, 5};
    for (int32_t want = 1; want <= 4; want++) {
        pair p;
        pair_open_as(&p, "table_target", "table_target",
                     (ls_engine_options){.context = 64, .max_want = want}, 64);
        ls_gen g = greedy_job(&p, prompt, 3, 20, NULL);
        ls_transcript t = {0};
        int32_t most = 0;
        OK(ls_policy_fixed(8, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_int_equal(t.n_token, 20);
        for (int32_t i = 0; i < t.n_token; i++)
            assert_int_equal(t.token[i], 3 + (3 + i) % 13);
        for (int32_t i = 0; i < t.n_round; i++)
            most = t.round[i].proposed > most ? t.round[i].proposed : most;
        assert_int_equal(most, want - 1);
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
        pair_close(&p);
    }
}

/* Two backends of one device work together; of two devices they are refused before anything
 * runs. */
static void test_two_devices(void **state) {
    (void)state;
    ls_err err;
    const int32_t prompt[] = {3, 4, 5};
    pair p;
    pair_open(&p, "table_target", "table_draft", 64, 64);
    ls_backend *other = ls_engine_backend(p.draft.engine);
    assert_ptr_not_equal(other, ls_engine_backend(p.target.engine));
    const char *name = other->name;
    const int32_t number = other->number;
    ls_gen g = greedy_job(&p, prompt, 3, 8, NULL);
    OK(ls_policy_fixed(2, &g.policy, &err), &err);
    for (int turn = 0; turn < 4; turn++) {
        ls_transcript t = {0};
        other->name = turn == 1 ? "elsewhere" : name;
        other->number = turn == 2 ? number + 7 : number;
        const ls_status s = ls_generate(&g, &t, &err);
        if (turn == 1 || turn == 2) {
            assert_int_equal(s, LS_ERR_INPUT);
            assert_non_null(strstr(err.msg, "one device"));
            assert_null(strchr(err.msg, '\n'));
            assert_int_equal(t.n_token, 0);
        } else {
            OK(s, &err);
            assert_int_equal(t.n_token, 8);
        }
        ls_transcript_free(&t);
    }
    ls_policy_destroy(g.policy);
    pair_close(&p);
}

/* C014: a NaN row that is used is an error naming the position and keeps the text so far; one that
 * a refusal makes useless is only counted. The NaN comes from a cache row that is damaged on
 * purpose: here simply from a token whose embedding row is NaN, reached only through the draft. */
static ls_status nan_draft(ls_drafter *d, const ls_draft_job *job, ls_draft_block *out,
                           ls_err *err) {
    static int32_t token[LS_DRAFT_MAX];
    (void)d;
    (void)err;
    for (int32_t i = 0; i < job->n; i++)
        token[i] = LS_TEST_BOS; /* the damaged row */
    *out = (ls_draft_block){.n = job->n, .token = token};
    return LS_OK;
}

static void test_nan_row(void **state) {
    (void)state;
    ls_err err;
    ls_test_shape shape = ls_test_shape_default();
    shape.no_eos = true;
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){1, LS_SIMD_AUTO}, (ls_engine_options){0});
    /* a copy of the embedding with one damaged row, in place of the mapped one */
    ls_weights *w = r.model->weights;
    const size_t bytes = (size_t)w->embed.n_out * (size_t)w->embed.n_in * sizeof(float);
    float *embed = malloc(bytes);
    assert_non_null(embed);
    memcpy(embed, w->embed.data, bytes);
    for (int32_t i = 0; i < w->embed.n_in; i++)
        embed[(size_t)LS_TEST_BOS * (size_t)w->embed.n_in + (size_t)i] = NAN;
    w->embed.data = embed;
    ls_engine_destroy(r.engine);
    OK(ls_engine_create(r.model, r.be, (ls_engine_options){.poison = 1}, &r.engine, &err), &err);
    ls_drafter bad = {.name = "nan", .context = INT32_MAX, .begin = zero_begin, .draft = nan_draft};
    const int32_t good[] = {104, 101}, broken[] = {104, LS_TEST_BOS};
    ls_gen g = {.target = r.engine,
                .drafter = &bad,
                .prompt = good,
                .n_prompt = 2,
                .max_new = 6,
                .warp = {0, 0, 1, 0}};
    ls_transcript t = {0};
    OK(ls_policy_fixed(2, &g.policy, &err), &err);
    OK(ls_generate(&g, &t, &err), &err);
    assert_int_equal(t.n_token, 6);
    assert_true(t.n_bad_unused >= 6);
    ls_transcript_free(&t);
    g.prompt = broken;
    assert_int_equal(ls_generate(&g, &t, &err), LS_ERR_NUMERIC);
    assert_int_equal(t.n_token, 0);
    assert_int_equal(t.end, LS_END_ERROR);
    assert_non_null(strstr(err.msg, "position 2"));
    assert_non_null(strstr(err.msg, "NaN"));
    ls_transcript_free(&t);
    ls_policy_destroy(g.policy);
    ls_rig_close(&r);
    free(embed);
    ls_test_model_remove(dir);
}

/* Stop strings: through the tokenizer, across tokens of one accepted run, the same for every k. */
static void test_stop_strings(void **state) {
    (void)state;
    ls_err err;
    ls_test_shape shape = ls_test_shape_default();
    shape.no_eos = true;
    char *dir = ls_test_model_make(&shape);
    ls_rig r;
    ls_rig_open(&r, dir, (ls_cpu_options){1, LS_SIMD_AUTO}, (ls_engine_options){.max_seqs = 2});
    ls_drafter *self_draft;
    OK(ls_drafter_model(r.engine, &self_draft, &err), &err);
    const int32_t prompt[] = {104, 105, 32};
    ls_gen g = {.target = r.engine,
                .drafter = self_draft,
                .prompt = prompt,
                .n_prompt = 3,
                .max_new = 40,
                .warp = {0, 0, 1, 0},
                .tokenizer = r.model->tokenizer};
    ls_transcript whole = {0}, t = {0};
    ls_text text = {0};
    OK(ls_generate(&g, &whole, &err), &err);
    OK(ls_tokenizer_decode(r.model->tokenizer, whole.token, 12, true, &text, &err), &err);
    /* two bytes that end inside the text: a stop string that spans tokens */
    const size_t at = text.n / 2;
    char stop[3] = {text.s[at], text.s[at + 1], 0};
    if ((stop[0] & 0x80) ||
        (stop[1] & 0x80)) { /* half characters: take a letter of the vocabulary */
        stop[0] = text.s[at] & 0x7F ? text.s[at] : 'e';
        stop[1] = 0;
    }
    const char *stops[] = {"never to be seen", stop};
    g.stop = stops;
    g.n_stop = 2;
    ls_plain *plain;
    OK(ls_plain_run(&g, r.engine, &plain, &err), &err);
    for (int32_t k = 0; k <= 9; k++) {
        OK(ls_policy_fixed(k, &g.policy, &err), &err);
        OK(ls_generate(&g, &t, &err), &err);
        assert_int_equal(t.end, plain->end);
        assert_int_equal(t.n_token, plain->n_token);
        assert_memory_equal(t.token, plain->token, (size_t)t.n_token * sizeof *t.token);
        if (t.end == LS_END_STOP) {
            ls_text cut = {0};
            OK(ls_tokenizer_decode(r.model->tokenizer, t.token, (size_t)t.n_token, true, &cut,
                                   &err),
               &err);
            assert_memory_equal(cut.s + cut.n - (size_t)t.n_text_cut, stop, strlen(stop));
            ls_text_free(&cut);
        }
        ls_transcript_free(&t);
        ls_policy_destroy(g.policy);
    }
    ls_plain_destroy(plain);
    ls_text_free(&text);
    ls_transcript_free(&whole);
    ls_drafter_destroy(self_draft);
    ls_rig_close(&r);
    ls_test_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_draft_is_checked),
        cmocka_unit_test(test_wrong_draft_is_never_kept),
        cmocka_unit_test(test_end_inside_draft),
        cmocka_unit_test(test_each_end_id),
        cmocka_unit_test(test_stop_against_limit),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_few_wanted_rows),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_nan_row),
        cmocka_unit_test(test_stop_strings),
    };
    return cmocka_run_group_tests_name("generate_state", tests, NULL, NULL);
}
