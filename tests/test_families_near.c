/* Every model family against Hugging Face transformers in double (tests/fixtures/make_families.py):
 * all logits of a text within the bound of float32, and the same greedy tokens. Negative controls:
 * with one feature of a family taken out, the logits are far outside. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families_rig.h"

static const ls_cpu_options best = {2, LS_SIMD_AUTO};

/* The largest |logit - reference| over the whole text, fed as one pass. */
static double largest_error(ls_rig *r, const fam_case *c) {
    ls_err err;
    ls_row rows[64];
    ls_kv *kv = ls_engine_kv(r->engine);
    const int32_t n = c->n_prompt + c->n_new - 1;
    const size_t v = (size_t)c->n_vocab;
    float *got = malloc(v * sizeof *got);
    int32_t seq;
    double worst = 0;
    assert_non_null(got);
    assert_int_equal(ls_engine_opts(r->engine)->n_vocab, c->n_vocab);
    assert_in_range(n, 1, 64);
    OK(ls_kv_open(kv, &seq, &err), &err);
    for (int32_t p = 0; p < n; p++)
        rows[p] = ls_row_chain(seq, c->token[p], p, true);
    OK(ls_pass(r->engine, rows, n, &err), &err);
    for (int32_t p = 0; p < n; p++) {
        OK(ls_pass_logits(r->engine, p, got, &err), &err);
        for (size_t t = 0; t < v; t++) {
            const double off = fabs((double)got[t] - c->logits[(size_t)p * v + t]);
            worst = off > worst || isnan(off) ? off : worst;
        }
    }
    ls_kv_close(kv, seq);
    free(got);
    return worst;
}

static void test_reference(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++) {
        fam_case c;
        ls_rig r;
        ls_greedy g;
        fam_load(fam_names[i], &c);
        fam_open(&r, rig_device_chosen(), &c, best, (ls_engine_options){.max_rows = 64}, NULL);
        const double worst = largest_error(&r, &c);
        print_message("%-13s largest error %.2e, bound %.2e\n", fam_names[i], worst, c.bound);
        if (!(worst <= c.bound))
            fail_msg("%s: a logit is off by %g, the bound is %g", fam_names[i], worst, c.bound);
        ls_greedy_run(&r, c.token, c.n_prompt, c.n_new, &g);
        assert_memory_equal(g.token, c.token, (size_t)(c.n_prompt + c.n_new) * sizeof *c.token);
        ls_greedy_free(&g);
        ls_rig_close(&r);
        fam_free(&c);
    }
}

/* ---- negative controls ----------------------------------------------------------------------- */

static void plain_rope(ls_model *m) {
    assert_int_not_equal(m->config.rope.kind, LS_ROPE_PLAIN);
    m->config.rope = (ls_rope_scaling){.kind = LS_ROPE_PLAIN};
}
/* every pair scaled alike */
static void linear_rope(ls_model *m) {
    m->config.rope.kind = LS_ROPE_LINEAR;
}
/* llama3 without its blend: a pair is scaled in full or not at all */
static void narrow_blend(ls_model *m) {
    m->config.rope.low = m->config.rope.high * 0.999;
}
static void drop(ls_vec *v) {
    assert_non_null(v->data);
    v->data = NULL;
}
static void no_q_bias(ls_model *m) {
    drop(&m->weights->layer[0].q_bias);
}
static void no_k_bias(ls_model *m) {
    drop(&m->weights->layer[1].k_bias);
}
static void no_v_bias(ls_model *m) {
    drop(&m->weights->layer[0].v_bias);
}
static void no_q_norm(ls_model *m) {
    drop(&m->weights->layer[1].q_norm);
}
static void no_k_norm(ls_model *m) {
    drop(&m->weights->layer[0].k_norm);
}
static void other_base(ls_model *m) {
    m->config.rope_theta /= 2;
}

static void no_window(ls_model *m) {
    assert_true(m->config.window > 0);
    m->config.window = 0;
}
static void other_window(ls_model *m) {
    m->config.window--;
}
static void window_in_layer_0(ls_model *m) {
    assert_false(m->config.local[0]);
    m->config.local[0] = true;
}
static void all_global(ls_model *m) {
    memset(m->config.local, 0, sizeof m->config.local);
}
static void no_attention_factor(ls_model *m) {
    assert_true(m->config.rope.attention > 1);
    m->config.rope.attention = 1;
}
static void whole_pairs(ls_model *m) {
    assert_false(m->config.rope.truncate);
    m->config.rope.truncate = true;
}
static void one_theta(ls_model *m) {
    m->config.rope_theta_local = m->config.rope_theta;
}
static void plain_scale(ls_model *m) {
    m->config.query_scalar = m->config.head_dim;
}
static void unscaled(ls_model *m) {
    m->config.embed_scaled = false;
}
static void silu(ls_model *m) {
    m->config.gelu = false;
}
static void no_attn_post(ls_model *m) {
    drop(&m->weights->layer[1].attn_post);
}
static void no_ffn_post(ls_model *m) {
    drop(&m->weights->layer[2].ffn_post);
}

static void test_controls(void **state) {
    (void)state;
    static const struct {
        const char *family;
        void (*change)(ls_model *);
        const char *what;
    } all[] = {
        {"llama3", plain_rope, "no scaling"},
        {"llama3", linear_rope, "linear scaling"},
        {"llama3", narrow_blend, "no blend"},
        {"llama_linear", plain_rope, "no scaling"},
        {"qwen2", no_q_bias, "no bias of queries"},
        {"qwen2", no_k_bias, "no bias of keys"},
        {"qwen2", no_v_bias, "no bias of values"},
        {"qwen3", no_q_norm, "no norm of queries"},
        {"qwen3", no_k_norm, "no norm of keys"},
        {"mistral", other_base, "another theta"},
        {"tinyllama", other_base, "another theta"},
        {"smollm2", other_base, "another theta"},
        {"mistral_window", no_window, "no window"},
        {"mistral_window", other_window, "a key less"},
        {"mistral_window", plain_rope, "no scaling"},
        {"mistral_window", linear_rope, "linear scaling"},
        {"mistral_window", no_attention_factor, "no attention factor"},
        {"qwen2_window", no_window, "no window"},
        {"qwen2_window", window_in_layer_0, "a window in layer 0"},
        {"llama_yarn", plain_rope, "no scaling"},
        {"llama_yarn", whole_pairs, "edges on whole pairs"},
        {"llama_yarn", no_attention_factor, "no attention factor"},
        {"llama_dynamic", linear_rope, "linear scaling"},
        {"gemma3", no_window, "no window"},
        {"gemma3", other_window, "a key less"},
        {"gemma3", all_global, "all layers global"},
        {"gemma3", plain_rope, "no scaling"},
        {"gemma3", one_theta, "one theta"},
        {"gemma3", plain_scale, "scores by the width"},
        {"gemma3", unscaled, "embeddings unscaled"},
        {"gemma3", silu, "SiLU"},
        {"gemma3", no_attn_post, "no norm of attention"},
        {"gemma3", no_ffn_post, "no norm of the rest"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fam_case c;
        ls_rig r;
        fam_load(all[i].family, &c);
        fam_open(&r, rig_device_chosen(), &c, best, (ls_engine_options){.max_rows = 64},
                 all[i].change);
        const double worst = largest_error(&r, &c);
        print_message("%-13s %-19s %.1f bounds\n", all[i].family, all[i].what, worst / c.bound);
        if (!(worst > 10 * c.bound))
            fail_msg("%s with %s passes: off by %g, the bound is %g", all[i].family, all[i].what,
                     worst, c.bound);
        ls_rig_close(&r);
        fam_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_controls),
    };
    return cmocka_run_group_tests_name("families_near", tests, NULL, NULL);
}
