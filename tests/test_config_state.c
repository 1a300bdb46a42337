/* config.json as numbers: which layers have a window, what Gemma's files say and leave out,
 * yarn. */
#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"

static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *family;
        change change[2];
        int32_t window;
        const char *local; /* L or G of each layer */
    } all[] = {
        {"mistral", {{"sliding_window", "255"}}, 255, "LL"},
        {"mistral", {{"sliding_window", "256"}}, 0, "GG"},
        {"mistral", {{"sliding_window", "null"}}, 0, "GG"},
        /* transformers reads no switch in this family */
        {"mistral", {{"sliding_window", "64"}, {"use_sliding_window", "false"}}, 64, "LL"},
        {"mistral_window", {{"sliding_window", "9"}}, 9, "LL"},
        {"qwen2", {{"use_sliding_window", "true"}, {"sliding_window", "128"}}, 128, "GG"},
        {"qwen2_window", {{"sliding_window", "7"}}, 7, "GLL"},
        {"qwen2_window", {{"max_window_layers", "0"}}, 7, "LLL"},
        {"qwen2_window", {{"use_sliding_window", "false"}}, 0, "GGG"},
        {"qwen2_window",
         {{"layer_types", "[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]"},
          {"max_window_layers", NULL}},
         7,
         "LGL"},
        {"gemma3", {{"sliding_window", "6"}}, 6, "LGL"},
        {"gemma3", {{"sliding_window_pattern", NULL}}, 6, "LLL"},
        {"gemma3", {{"sliding_window_pattern", "1"}}, 6, "GGG"},
        {"gemma3", {{"sliding_window_pattern", NULL}, {"_sliding_window_pattern", "3"}}, 6, "LLG"},
        {"gemma3",
         {{"layer_types", "[\"full_attention\",\"sliding_attention\",\"full_attention\"]"}},
         6,
         "GLG"},
        /* past the context: the local rotation stays */
        {"gemma3", {{"sliding_window", "256"}}, 0, "LGL"},
        {"gemma3", {{"sliding_window", NULL}, {"max_position_embeddings", "8192"}}, 4096, "LGL"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        OK(with_family(all[i].family, all[i].change, all[i].change[1].key ? 2 : 1, &c, &err), &err);
        assert_int_equal(c.window, all[i].window);
        assert_int_equal(c.n_layers, strlen(all[i].local));
        for (int32_t l = 0; l < c.n_layers; l++)
            if (c.local[l] != (all[i].local[l] == 'L'))
                fail_msg("%s with %s = %s: layer %d", all[i].family, all[i].change[0].key,
                         all[i].change[0].value ? all[i].change[0].value : "absent", l);
    }
}

static void test_gemma(void **state) {
    (void)state;
    ls_config c;
    ls_err err = {0};
    OK(with_family("gemma3", NULL, 0, &c, &err), &err);
    assert_true(c.rope_theta == 1e6 && c.rope_theta_local == 1e4 && c.rope.factor == 8);
    assert_true(c.query_scalar == 20 && c.post_norms && c.norm_offset && c.embed_scaled && c.gelu);
    assert_true(c.tied && c.qk_norm && !c.nested);
    static const change newer[] = {
        {"rope_scaling", NULL},
        {"rope_theta", NULL},
        {"rope_local_base_freq", NULL},
        {"rope_parameters",
         "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":5e5},"
         "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2e4}}"}};
    OK(with_family("gemma3", newer, 4, &c, &err), &err);
    assert_true(c.rope_theta == 5e5 && c.rope_theta_local == 2e4 && c.rope.factor == 4);
    /* published files leave most of it to the family */
    static const change bare[] = {{"num_attention_heads", NULL},
                                  {"num_key_value_heads", NULL},
                                  {"head_dim", NULL},
                                  {"vocab_size", NULL},
                                  {"rope_theta", NULL},
                                  {"rope_local_base_freq", NULL},
                                  {"query_pre_attn_scalar", NULL},
                                  {"hidden_activation", NULL},
                                  {"max_position_embeddings", NULL}};
    OK(with_family("gemma3", bare, sizeof bare / sizeof *bare, &c, &err), &err);
    assert_true(c.n_heads == 8 && c.n_kv == 4 && c.head_dim == 256 && c.n_vocab == 262208);
    assert_true(c.n_pos == 131072 && c.query_scalar == 256);
    assert_true(c.rope_theta == 1e6 && c.rope_theta_local == 1e4);
    /* in other families the root of the head's width */
    OK(with_family("qwen3", NULL, 0, &c, &err), &err);
    assert_true(c.query_scalar == 24 && c.rope_theta_local == 0 && !c.post_norms && !c.gelu);
}

/* text_config beside a model for images; ids stand outside. */
static void test_nested(void **state) {
    (void)state;
    static const char sizes[] = "\"hidden_size\":2560,\"intermediate_size\":10240,"
                                "\"num_hidden_layers\":34,\"sliding_window\":1024,"
                                "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}";
    static const struct {
        const char *before, *after, *says; /* says NULL: fine */
    } all[] = {
        {"{", "}", NULL},
        {"{", ",\"model_type\":\"gemma3_text\"}", NULL},
        {"{", ",\"model_type\":\"gemma2\"}", "text_config.model_type"},
        {"{", ",\"final_logit_softcapping\":30.0}", "text_config.final_logit_softcapping"},
        {"[{", "}]", "text_config"},
        {"{\"no\":{", "}}", "text_config.hidden_size"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[1024], *dir = ls_test_dir_make();
        ls_config c;
        ls_err err = {0};
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gemma3\",\"architectures\":"
                 "[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],"
                 "\"mm_tokens_per_image\":256,\"vision_config\":{\"hidden_size\":1152},"
                 "\"torch_dtype\":\"bfloat16\",\"text_config\":%s%s%s}",
                 all[i].before, sizes, all[i].after);
        ls_test_write(dir, "config.json", text, strlen(text));
        const ls_status s = ls_config_read(dir, &c, &err);
        if (all[i].says) {
            assert_int_equal(s, LS_ERR_INPUT);
            ls_assert_message(&err, "config.json", all[i].says, NULL);
        } else {
            OK(s, &err);
            assert_string_equal(c.family, "gemma3");
            assert_true(c.nested && c.tied && c.dim == 2560 && c.n_layers == 34 && c.n_eos == 2);
            assert_true(c.window == 1024 && c.local[0] && !c.local[5] && c.local[6] &&
                        !c.local[29]);
            assert_string_equal(c.dtype, "bfloat16");
        }
        ls_test_dir_remove(dir);
    }
}

/* Yarn's factor, and the longer context it is for. */
static void test_yarn(void **state) {
    (void)state;
    ls_config c;
    ls_err err = {0};
    OK(with_family("mistral_window", NULL, 0, &c, &err), &err);
    assert_true(c.rope.beta_fast == 3 && c.rope.beta_slow == 1 && c.rope.truncate);
    assert_int_equal(c.n_pos, 256);
    assert_true(fabs(c.rope.attention - (0.1 * log(4) + 1)) < 1e-15);
    OK(with_family("llama_yarn", NULL, 0, &c, &err), &err);
    assert_true(!c.rope.truncate && c.rope.beta_slow == 0.5 && c.rope_theta == 5000);
    assert_true(fabs(c.rope.attention - (0.2 * log(8) + 1) / (0.05 * log(8) + 1)) < 1e-15);
    static const change longer[] = {
        {"rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0,\"attention_factor\":1.5,"
                         "\"original_max_position_embeddings\":256}"}};
    OK(with_family("qwen2", longer, 1, &c, &err), &err);
    assert_true(c.n_pos == 1024 && c.rope.attention == 1.5);
}

/* A table of factors, each rounded to f32, as files of the other format carry them. */
static void test_table_of_factors(void **state) {
    (void)state;
    ls_config c;
    ls_err err = {0};
    OK(with_family("llama3", NULL, 0, &c, &err), &err);
    ls_rope_scaling table = {.kind = LS_ROPE_TABLE};
    const ls_rope_scaling plain = {.kind = LS_ROPE_PLAIN};
    for (int32_t i = 0; i < c.head_dim / 2; i++) {
        const double f = ls_rope_frequency(c.rope_theta, &plain, i, c.head_dim);
        const double want = ls_rope_frequency(c.rope_theta, &c.rope, i, c.head_dim);
        table.table[i] = (float)(f / want);
        const double got = ls_rope_frequency(c.rope_theta, &table, i, c.head_dim);
        assert_true(fabs(got - want) <= 0x1p-24 * want);
    }
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_windows), cmocka_unit_test(test_gemma),
                                     cmocka_unit_test(test_nested), cmocka_unit_test(test_yarn),
                                     cmocka_unit_test(test_table_of_factors)};
    return cmocka_run_group_tests_name("config_state", all, begin, NULL);
}
