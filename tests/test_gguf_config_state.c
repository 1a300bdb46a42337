/* The metadata of GGUF files as numbers: architectures, rope scaling, windows. */
#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_config.h"
#include "gguf_rig.h"

/* Keys of a file without tensors: name behind the architecture's, and a value. */
typedef struct key {
    const char *name;
    char type; /* u, f, s, l: a list of true (1) and false (0) */
    double v;
    const char *text;
} key;

static void add_key(ls_gguf_made *m, const char *arch, const key *k) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, k->name);
    if (k->type == 'u') {
        gguf_key_u32(m, name, (uint32_t)k->v);
    } else if (k->type == 'f') {
        gguf_key_f32(m, name, (float)k->v);
    } else if (k->type == 's') {
        gguf_key_str(m, name, k->text);
    } else {
        gguf_bytes b = {0};
        gguf_put_u(&b, MADE_BOOL, 4);
        gguf_put_u(&b, strlen(k->text), 8);
        for (const char *p = k->text; *p; p++)
            gguf_put_u(&b, *p == '1', 1);
        gguf_key(m, name, MADE_ARRAY, b.p, b.n);
        free(b.p);
    }
}

/* A file of `layers` layers with n keys more. */
static ls_status read_made(const char *arch, int layers, const key *more, size_t n, ls_config *c,
                           ls_err *err) {
    static const key keys[] = {{"context_length", 'u', 256, NULL},
                               {"embedding_length", 'u', 48, NULL},
                               {"feed_forward_length", 'u', 32, NULL},
                               {"attention.head_count", 'u', 4, NULL},
                               {"attention.head_count_kv", 'u', 2, NULL},
                               {"attention.key_length", 'u', 16, NULL},
                               {"vocab_size", 'u', 100, NULL},
                               {"attention.layer_norm_rms_epsilon", 'f', 1e-6, NULL}};
    ls_gguf_made m = {0};
    gguf_key_str(&m, "general.architecture", arch);
    const key depth = {"block_count", 'u', layers, NULL};
    add_key(&m, arch, &depth);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_key(&m, arch, &keys[i]);
    for (size_t i = 0; i < n; i++)
        add_key(&m, arch, &more[i]);
    gguf_bytes f = gguf_file(&m);
    ls_gguf *g = NULL;
    ls_status s = ls_gguf_parse(f.p, f.n, "made.gguf", &g, err);
    if (s == LS_OK)
        s = ls_gguf_config_read(g, c, err);
    ls_gguf_close(g);
    free(f.p);
    gguf_free(&m);
    return s;
}

static void test_architectures(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        bool bias, norm, gemma;
    } all[] = {{"llama", false, false, false},
               {"qwen2", true, false, false},
               {"qwen3", false, true, false},
               {"gemma3", false, true, true}};
    static const key window = {"attention.sliding_window", 'u', 64, NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        OK(read_made(all[i].arch, 7, &window, all[i].gemma, &c, &err), &err);
        assert_string_equal(c.family, all[i].arch);
        assert_true(c.qkv_bias == all[i].bias && c.qk_norm == all[i].norm);
        assert_true(c.post_norms == all[i].gemma && c.gelu == all[i].gemma);
        assert_true(c.embed_scaled == all[i].gemma && !c.norm_offset); /* the one is added */
        assert_true(c.query_scalar == 16 && c.tied && c.n_layers == 7);
        assert_true(c.rope_theta == 10000 && c.rope_theta_local == (all[i].gemma ? 10000 : 0));
    }
    ls_config c;
    ls_err err = {0};
    OK(read_made("gemma3", 62, &window, 1, &c, &err), &err); /* the largest */
    assert_true(c.query_scalar == 12);
    assert_int_equal(read_made("gemma2", 2, &window, 1, &c, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "general.architecture", "\"gemma2\"", "gemma3 are", NULL);
}

static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        key more[2];
        int32_t window;
        const char *local, *says; /* L or G of each of 7 layers, or what is refused */
    } all[] = {
        {"llama", {{"rope.freq_base", 'f', 500, NULL}}, 0, "GGGGGGG", NULL},
        {"llama", {{"attention.sliding_window", 'u', 255, NULL}}, 255, "LLLLLLL", NULL},
        {"llama", {{"attention.sliding_window", 'u', 256, NULL}}, 0, "GGGGGGG", NULL},
        {"llama", {{"attention.sliding_window", 'u', 0, NULL}}, 0, "GGGGGGG", NULL},
        {"qwen2", {{"attention.sliding_window", 'u', 256, NULL}}, 0, "GGGGGGG", NULL},
        {"qwen2", {{"attention.sliding_window", 'u', 64, NULL}}, 0, NULL, "which layers"},
        {"qwen3", {{"attention.sliding_window", 'u', 64, NULL}}, 0, NULL, "which layers"},
        {"gemma3", {{"attention.sliding_window", 'u', 64, NULL}}, 64, "LLLLLGL", NULL},
        {"gemma3", {{"attention.sliding_window", 'u', 512, NULL}}, 0, "LLLLLGL", NULL},
        {"gemma3", {{"attention.causal", 'u', 0, NULL}}, 0, NULL, "only absent or true"},
        {"gemma3", {{"rope.freq_base", 'f', 500, NULL}}, 0, NULL, "is missing"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL},
          {"attention.sliding_window_pattern", 'u', 3, NULL}},
         64,
         "LLGLLGL",
         NULL},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL},
          {"attention.sliding_window_pattern", 'l', 0, "1001011"}},
         64,
         "LGGLGLL",
         NULL},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL},
          {"attention.sliding_window_pattern", 'l', 0, "100101"}},
         0,
         NULL,
         "6 entries for 7 layers"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL},
          {"attention.sliding_window_pattern", 's', 0, "LLG"}},
         0,
         NULL,
         "a whole number"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL}, {"attention.key_length_swa", 'u', 8, NULL}},
         0,
         NULL,
         "different widths"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 64, NULL}, {"final_logit_softcapping", 'f', 30, NULL}},
         0,
         NULL,
         "only absent or 0"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        const size_t n = all[i].more[1].name ? 2 : 1;
        const ls_status s = read_made(all[i].arch, 7, all[i].more, n, &c, &err);
        if (all[i].says) {
            if (s != LS_ERR_INPUT)
                fail_msg("case %zu was accepted", i);
            ls_assert_message(&err, "made.gguf", all[i].arch, all[i].says, NULL);
            continue;
        }
        OK(s, &err);
        assert_int_equal(c.window, all[i].window);
        for (int32_t l = 0; l < 7; l++)
            if (c.local[l] != (all[i].local[l] == 'L'))
                fail_msg("case %zu, layer %d", i, l);
    }
}

static void test_rope(void **state) {
    (void)state;
    static const struct {
        key more[4];
        ls_rope_kind kind;
        double factor;
        const char *says;
    } all[] = {
        {{{"rope.freq_base", 'f', 500, NULL}}, LS_ROPE_PLAIN, 1, NULL},
        {{{"rope.scaling.factor", 'f', 8, NULL}}, LS_ROPE_LINEAR, 8, NULL},
        {{{"rope.scale_linear", 'f', 2, NULL}}, LS_ROPE_LINEAR, 2, NULL},
        {{{"rope.scaling.type", 's', 0, "linear"}, {"rope.scaling.factor", 'f', 4, NULL}},
         LS_ROPE_LINEAR,
         4,
         NULL},
        {{{"rope.scaling.type", 's', 0, "none"}, {"rope.scaling.factor", 'f', 4, NULL}},
         LS_ROPE_PLAIN,
         0,
         "is none, and there is a factor"},
        {{{"rope.scaling.type", 's', 0, "linear"}}, LS_ROPE_PLAIN, 0, "is missing"},
        {{{"rope.scaling.type", 's', 0, "yarn"}, {"rope.scaling.factor", 'f', 4, NULL}},
         LS_ROPE_PLAIN,
         0,
         "original_context_length"},
        {{{"rope.scaling.type", 's', 0, "yarn"},
          {"rope.scaling.factor", 'f', 4, NULL},
          {"rope.scaling.original_context_length", 'u', 128, NULL},
          {"rope.scaling.yarn_beta_fast", 'f', 0.5, NULL}},
         LS_ROPE_PLAIN,
         0,
         "yarn_beta_fast"},
        {{{"rope.scaling.type", 's', 0, "yarn"},
          {"rope.scaling.factor", 'f', 4, NULL},
          {"rope.scaling.original_context_length", 'u', 128, NULL},
          {"rope.scaling.yarn_beta_fast", 'f', 16, NULL}},
         LS_ROPE_YARN,
         4,
         NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        size_t n = 0;
        while (n < 4 && all[i].more[n].name)
            n++;
        const ls_status s = read_made("qwen2", 2, all[i].more, n, &c, &err);
        if (all[i].says) {
            if (s != LS_ERR_INPUT)
                fail_msg("case %zu was accepted", i);
            ls_assert_message(&err, "made.gguf", "rope.scaling", all[i].says, NULL);
            continue;
        }
        OK(s, &err);
        assert_int_equal(c.rope.kind, all[i].kind);
        assert_true(c.rope.factor == all[i].factor);
        assert_int_equal(c.n_pos, all[i].kind == LS_ROPE_YARN ? 512 : 256);
        if (all[i].kind == LS_ROPE_YARN) {
            assert_true(c.rope.beta_fast == 16 && c.rope.beta_slow == 1 && c.rope.truncate);
            assert_true(fabs(c.rope.attention - (0.1 * log(4) + 1)) < 1e-15);
        }
    }
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_architectures),
                                     cmocka_unit_test(test_windows), cmocka_unit_test(test_rope)};
    return cmocka_run_group_tests_name("gguf_config_state", all, begin, NULL);
}
