/* Every model family: whatever drafts, the tokens, logits and cache of plain decode, bit for bit. A
 * model's own first layers are a drafter in each: they are what a model of so many layers
 * computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families_rig.h"

#define N_NEW 12
static const ls_cpu_options best = {2, LS_SIMD_AUTO};

/* Greedy and sampled, with each drafter; the wrong drafts of a round stay behind in no window. */
static void drafters(const char *name, int32_t block_rows, ls_dtype kv) {
    fam_case c;
    ls_rig r;
    ls_err err;
    ls_drafter *d[8];
    ls_engine *first[8];
    int32_t n = 0, n_first = 0;
    fam_load(name, &c);
    const ls_engine_options o = {.block_rows = block_rows, .kv_dtype = kv, .max_seqs = 3};
    fam_open(&r, rig_device_chosen(), &c, best, o, NULL);
    for (int32_t k = 1; k < r.model->config.n_layers; k++) {
        ls_engine_options part = o;
        part.n_layers = k, part.max_seqs = 1;
        OK(ls_engine_create(r.model, r.be, part, &first[n_first], &err), &err);
        OK(ls_drafter_model(first[n_first++], &d[n++], &err), &err);
    }
    OK(ls_drafter_ngram(1, 3, NULL, 0, &d[n++], &err), &err);
    OK(ls_drafter_garbage(c.n_vocab, &d[n++], &err), &err);
    for (int hot = 0; hot < 2; hot++) {
        ls_gen g = {.target = r.engine,
                    .prompt = c.token,
                    .n_prompt = c.n_prompt,
                    .max_new = N_NEW,
                    .warp = {.temperature = hot ? 1.0f : 0.0f, .top_p = 1},
                    .seed = 5,
                    .sequence = 2,
                    .ignore_eos = true};
        ls_plain *plain;
        OK(ls_plain_run(&g, r.engine, &plain, &err), &err);
        assert_int_equal(plain->n_token, N_NEW);
        if (!hot && kv == LS_F32 && rig_on_ieee())
            assert_memory_equal(plain->token, c.token + c.n_prompt, N_NEW * sizeof *c.token);
        for (int32_t i = 0; i < n; i++)
            for (int32_t k = 1; k <= 7; k += 3) {
                g.drafter = d[i];
                OK(ls_policy_fixed(k, &g.policy, &err), &err);
                ls_assert_plain(&g, plain, r.engine, name);
                ls_policy_destroy(g.policy);
            }
        ls_plain_destroy(plain);
    }
    for (int32_t i = 0; i < n; i++)
        ls_drafter_destroy(d[i]);
    for (int32_t i = 0; i < n_first; i++)
        ls_engine_destroy(first[i]);
    ls_rig_close(&r);
    fam_free(&c);
}

static void test_contiguous(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++)
        drafters(fam_names[i], 0, LS_F32);
}
static void test_paged_bf16(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++)
        drafters(fam_names[i], 5, LS_BF16);
}

static int32_t keep_layers;
static void shorten(ls_model *m) {
    m->config.n_layers = keep_layers;
}

static void test_first_layers(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++) {
        fam_case c;
        fam_load(fam_names[i], &c);
        for (keep_layers = 1; keep_layers < 3; keep_layers++) {
            ls_rig all, part;
            ls_greedy a, b;
            fam_open(&all, rig_device_chosen(), &c, best,
                     (ls_engine_options){.n_layers = keep_layers}, NULL);
            fam_open(&part, rig_device_chosen(), &c, best, (ls_engine_options){0}, shorten);
            ls_greedy_run(&all, c.token, c.n_prompt, 6, &a);
            ls_greedy_run(&part, c.token, c.n_prompt, 6, &b);
            ls_assert_bits(a.logits, b.logits, 6 * (size_t)c.n_vocab, fam_names[i]);
            ls_greedy_free(&a), ls_greedy_free(&b);
            ls_rig_close(&all), ls_rig_close(&part);
        }
        fam_free(&c);
    }
}

/* Dynamic scaling is plain up to the original context, and refused by name past it. */
static void test_dynamic_context(void **state) {
    (void)state;
    fam_case c;
    ls_rig r;
    ls_err err;
    ls_engine *e = NULL;
    fam_load("llama_dynamic", &c);
    fam_open(&r, RIG_CPU, &c, best, (ls_engine_options){.context = 40}, NULL);
    assert_int_equal(ls_engine_create(r.model, r.be, (ls_engine_options){.context = 41}, &e, &err),
                     LS_ERR_INPUT);
    assert_null(e);
    assert_non_null(strstr(err.msg, "context 41 is longer than the original 40"));
    assert_non_null(strstr(err.msg, "rope scaling dynamic"));
    ls_rig_close(&r);
    fam_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous), cmocka_unit_test(test_paged_bf16),
        cmocka_unit_test(test_first_layers), cmocka_unit_test(test_dynamic_context)};
    return cmocka_run_group_tests_name("families_draft_equal", tests, NULL, NULL);
}
