/* config.json: every verdict of the carried cases; each field that is refused, by name; end ids. */
#include "cases.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "config.h"
#include "config_rig.h"
#include "weights.h"

/* A config belongs to weights: what the numbers alone cannot show, the tensors of rand_base do. */
static ls_status read_case(const char *path, ls_err *err) {
    ls_config c;
    ls_checkpoint *cp = NULL;
    ls_weights *w = NULL;
    ls_status s = ls_config_read_files(path, NULL, &c, err);
    if (s != LS_OK)
        return s;
    char *dir = ls_test_path("cases/models/rand_base");
    OK(ls_checkpoint_open(dir, &cp, err), err);
    free(dir);
    s = ls_weights_bind(cp, &c, LS_HEAD_DECLARED, &w, err);
    ls_weights_destroy(w);
    ls_checkpoint_close(cp);
    return s;
}

static void verdict(const char *path, const char *expect, const char *why) {
    ls_err err = {0};
    ls_status s = read_case(path, &err);
    /* good configs of another shape cannot fit rand_base's tensors: their own numbers count */
    ls_config c;
    if (strcmp(expect, "accept") == 0)
        s = ls_config_read_files(path, NULL, &c, &err);
    if ((s == LS_OK) != (strcmp(expect, "accept") == 0))
        fail_msg("%s: %s, expected %s (%s)", path, s == LS_OK ? "accepted" : err.msg, expect, why);
    if (s != LS_OK) {
        assert_int_equal(s, LS_ERR_INPUT);
        ls_assert_message(&err, ": ", NULL);
    }
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("cfg/", 23, verdict);
}

static void test_numbers(void **state) {
    (void)state;
    ls_config c;
    ls_err err = {0};
    char *dir = ls_test_path("cases/models/rand_head_dim_12");
    OK(ls_config_read(dir, &c, &err), &err);
    free(dir);
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.dim, 32);
    assert_int_equal(c.n_heads, 4);
    assert_int_equal(c.head_dim, 12); /* the file's, not 32 / 4 */
    assert_int_equal(c.n_vocab, 272);
    assert_int_equal(c.n_pos, 256);
    assert_true(c.rms_eps == 1e-5f);
    assert_true(c.rope_theta == 10000.0);
    assert_int_equal(c.bos, 256);
    assert_int_equal(c.n_eos, 1);
    assert_true(ls_config_is_eos(&c, 257) && !ls_config_is_eos(&c, 256));
    assert_false(c.tied);
    char *path = ls_test_path("cases/cfg/good_no_kv_heads.json");
    OK(ls_config_read_files(path, NULL, &c, &err), &err);
    free(path);
    assert_int_equal(c.n_kv, c.n_heads);
}

/* good_base.json with one member replaced (NULL value: removed), read from a folder. */
static ls_status with(const char *key, const char *value, const char *generation, ls_config *c,
                      ls_err *err) {
    char *path = ls_test_path("cases/cfg/good_base.json");
    json_t *base = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(base);
    if (value) {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(base, key, v);
    } else {
        json_object_del(base, key);
    }
    char *text = json_dumps(base, 0), *dir = ls_test_dir_make();
    json_decref(base);
    assert_non_null(text);
    ls_test_write(dir, "config.json", text, strlen(text));
    if (generation)
        ls_test_write(dir, "generation_config.json", generation, strlen(generation));
    free(text);
    ls_status s = ls_config_read(dir, c, err);
    ls_test_dir_remove(dir);
    return s;
}

#define YARN(more) \
    "{\"type\":\"yarn\",\"factor\":2.0,\"original_max_position_embeddings\":128," more "}"

static void test_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } all[] = {
        {"hidden_act", "\"gelu\"", "gelu"},
        {"hidden_act", "\"relu2\"", "relu2"},
        {"model_type", "\"mamba\"", "mamba"},
        {"model_type", NULL, "missing"},
        {"architectures", "[\"LlamaForSequenceClassification\"]", "LlamaForSequenceClassification"},
        {"architectures", "[\"LlamaForCausalLM\",\"X\"]", "X"},
        {"architectures", "\"LlamaForCausalLM\"", "list"},
        {"attention_bias", "true", "not supported"},
        {"attention_bias", "1", "not supported"},
        {"mlp_bias", "true", "not supported"},
        {"sliding_window", "4096", "window"},
        {"layer_types", "[\"full_attention\",\"sliding_attention\"]", "layer_types"},
        {"rope_scaling", "{\"type\":\"linear\"}", "factor"},
        {"rope_scaling", "{\"type\":\"linear\",\"factor\":0.5}", "outside"},
        {"rope_scaling", "{\"type\":\"linear\",\"factor\":\"2\"}", "not a number"},
        {"rope_scaling", "{\"type\":\"linear\",\"factor\":2.0,\"low_freq_factor\":1.0}",
         "low_freq_factor"},
        {"rope_scaling", "{\"type\":\"linear\",\"rope_type\":\"llama3\",\"factor\":2.0}", "llama3"},
        {"rope_scaling", "{\"type\":\"dynamic\"}", "factor"},
        {"rope_scaling",
         "{\"type\":\"dynamic\",\"factor\":2.0,\"original_max_position_embeddings\":128}",
         "original_max_position_embeddings"},
        {"rope_scaling", "{\"type\":\"yarn\",\"factor\":2.0}", "original_max_position_embeddings"},
        {"rope_scaling", YARN("\"beta_fast\":0.5"), "below beta_slow"},
        {"rope_scaling", YARN("\"beta_slow\":\"1\""), "not a number"},
        {"rope_scaling", YARN("\"truncate\":1"), "not true or false"},
        {"rope_scaling", YARN("\"attention_factor\":0"), "outside"},
        {"rope_scaling", YARN("\"mscale\":-1"), "outside"},
        {"rope_scaling", YARN("\"long_factor\":[1]"), "long_factor"},
        {"rope_scaling", YARN("\"partial_rotary_factor\":0.5"), "partial"},
        {"rope_scaling", "{\"rope_type\":\"longrope\",\"factor\":2.0}", "longrope"},
        {"rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.0}", "low_freq_factor"},
        {"rope_scaling",
         "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4."
         "0}",
         "original_max_position_embeddings"},
        {"rope_scaling",
         "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":4.0,\"high_freq_factor\":4."
         "0,"
         "\"original_max_position_embeddings\":8192}",
         "not above low_freq_factor"},
        {"rope_scaling",
         "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4."
         "0,"
         "\"original_max_position_embeddings\":8192,\"attention_factor\":2.0}",
         "attention_factor"},
        {"rope_scaling", "{\"rope_theta\":5.0}", "elsewhere"},
        {"use_mrope", "true", "not supported"},
        {"rope_scaling", "{\"rope_type\":\"default\",\"factor\":8.0}", "factor"},
        {"rope_parameters", "{\"rope_type\":\"yarn\",\"rope_theta\":10000.0}", "factor"},
        {"rope_parameters", "{\"full_attention\":{\"rope_type\":\"default\"}}", "full_attention"},
        {"rope_local_base_freq", "10000.0", "no part of llama"},
        {"sliding_window_pattern", "6", "no part of llama"},
        {"query_pre_attn_scalar", "256", "no part of llama"},
        {"hidden_activation", "\"gelu_pytorch_tanh\"", "silu is"},
        {"use_bidirectional_attention", "true", "not supported"},
        {"num_kv_shared_layers", "2", "not supported"},
        {"layer_types", "[\"full_attention\"]", "1 entries for 2 layers"},
        {"layer_types", "[\"full_attention\",\"chunked_attention\"]", "only full_attention"},
        {"rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":5.0}", "rope_theta"},
        {"rope_parameters", "{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}", "partial"},
        {"quantization_config", "{\"bits\":4}", "not supported"},
        {"pretraining_tp", "2", "not supported"},
        {"partial_rotary_factor", "0.5", "not supported"},
        {"num_local_experts", "8", "not supported"},
        {"final_logit_softcapping", "30.0", "not supported"},
        {"hidden_size", "0", "outside"},
        {"hidden_size", "131073", "outside"},
        {"hidden_size", "true", "not a whole number"},
        {"hidden_size", NULL, "missing"},
        {"intermediate_size", "-1", "outside"},
        {"num_hidden_layers", "0", "outside"},
        {"num_hidden_layers", "2147483648", "outside"},
        {"num_attention_heads", "4294967300", "outside"},
        {"num_key_value_heads", "0", "outside"},
        {"num_key_value_heads", "3", "evenly"},
        {"head_dim", "0", "outside"},
        {"head_dim", "7", "even"},
        {"head_dim", "258", "even widths up to 256"},
        {"vocab_size", "4194305", "outside"},
        {"max_position_embeddings", "0", "outside"},
        {"rms_norm_eps", "0", "above zero"},
        {"rms_norm_eps", "1e-60", "above zero"},
        {"rms_norm_eps", "-1e-5", "outside"},
        {"rms_norm_eps", "\"1e-5\"", "not a number"},
        {"rope_theta", "0", "outside"},
        {"rope_theta", "-10000", "outside"},
        {"tie_word_embeddings", "\"false\"", "not true or false"},
        {"bos_token_id", "272", "outside"},
        {"bos_token_id", "-1", "outside"},
        {"bos_token_id", "[1]", "list"},
        {"eos_token_id", "272", "272"},
        {"eos_token_id", "[1,272]", "eos_token_id[1]"},
        {"eos_token_id", "[-1]", "outside"},
        {"eos_token_id", "\"</s>\"", "string"},
        {"torch_dtype", "5", "string"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c = {.dim = 77};
        ls_err err = {0};
        if (with(all[i].key, all[i].value, NULL, &c, &err) != LS_ERR_INPUT)
            fail_msg("%s = %s was accepted", all[i].key, all[i].value ? all[i].value : "absent");
        ls_assert_message(&err, "config.json", all[i].key, all[i].says, NULL);
        assert_int_equal(c.dim, 77); /* untouched */
    }
}

static void test_accepted(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
    } all[] = {
        {"rope_scaling", "null"},
        {"rope_scaling", "{\"rope_type\":\"default\"}"},
        {"rope_scaling", "{\"type\":\"dynamic\",\"factor\":2.0}"},
        {"rope_scaling", YARN("\"attention_factor\":null,\"mscale\":1,\"mscale_all_dim\":1.0")},
        {"hidden_activation", "\"silu\""},
        {"rope_scaling", "{\"type\":\"linear\",\"factor\":2.0}"},
        {"rope_parameters", "{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":10000.0}"},
        {"rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":10000.0}"},
        {"sliding_window", "null"},
        {"pretraining_tp", "1"},
        {"partial_rotary_factor", "1.0"},
        {"quantization_config", "null"},
        {"head_dim", "null"},
        {"head_dim", "256"},
        {"num_key_value_heads", "null"},
        {"layer_types", "[\"full_attention\",\"full_attention\"]"},
        {"architectures", NULL},
        {"eos_token_id", NULL},
        {"eos_token_id", "[]"},
        {"bos_token_id", "null"},
        {"initializer_range", "0.02"},
        {"rope_theta", "500000"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        OK(with(all[i].key, all[i].value, NULL, &c, &err), &err);
    }
    ls_config c;
    ls_err err = {0};
    OK(with("eos_token_id", NULL, NULL, &c, &err), &err);
    assert_int_equal(c.n_eos, 0);
    OK(with("bos_token_id", NULL, NULL, &c, &err), &err);
    assert_int_equal(c.bos, -1);
    OK(with("rope_theta", NULL, NULL, &c, &err), &err);
    assert_true(c.rope_theta == 10000);
    OK(with("tie_word_embeddings", NULL, NULL, &c, &err), &err);
    assert_false(c.tied);
}

/* ---- families -------------------------------------------------------------------------------- */

static void test_families(void **state) {
    (void)state;
    static const struct {
        const char *name, *family;
        ls_rope_kind rope;
        bool qkv_bias, qk_norm;
    } all[] = {
        {"llama3", "llama", LS_ROPE_LLAMA3, false, false},
        {"llama_linear", "llama", LS_ROPE_LINEAR, false, false},
        {"tinyllama", "llama", LS_ROPE_PLAIN, false, false},
        {"smollm2", "llama", LS_ROPE_PLAIN, false, false},
        {"mistral", "mistral", LS_ROPE_PLAIN, false, false},
        {"qwen2", "qwen2", LS_ROPE_PLAIN, true, false},
        {"qwen3", "qwen3", LS_ROPE_PLAIN, false, true},
        {"mistral_window", "mistral", LS_ROPE_YARN, false, false},
        {"qwen2_window", "qwen2", LS_ROPE_PLAIN, true, false},
        {"llama_yarn", "llama", LS_ROPE_YARN, false, false},
        {"llama_dynamic", "llama", LS_ROPE_DYNAMIC, false, false},
        {"gemma3", "gemma3", LS_ROPE_LINEAR, false, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        OK(with_family(all[i].name, NULL, 0, &c, &err), &err);
        assert_string_equal(c.family, all[i].family);
        assert_int_equal(c.rope.kind, all[i].rope);
        assert_int_equal(c.qkv_bias, all[i].qkv_bias);
        assert_int_equal(c.qk_norm, all[i].qk_norm);
    }
    ls_config c;
    ls_err err = {0};
    OK(with_family("llama3", NULL, 0, &c, &err), &err);
    assert_true(c.rope.factor == 8 && c.rope.low == 1 && c.rope.high == 4 && c.rope.original == 32);
    /* the form that newer files have says the same */
    static const change newer[] = {
        {"rope_scaling", NULL},
        {"rope_theta", NULL},
        {"rope_parameters", "{\"rope_type\":\"llama3\",\"rope_theta\":500000.0,\"factor\":32.0,"
                            "\"low_freq_factor\":1.0,"
                            "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"}};
    OK(with_family("llama3", newer, 3, &c, &err), &err);
    assert_true(c.rope.kind == LS_ROPE_LLAMA3 && c.rope.factor == 32 && c.rope.low == 1 &&
                c.rope.high == 4 && c.rope.original == 8192 && c.rope_theta == 500000);
}

#define GEMMA_ROPE(full, more)                                                                    \
    {                                                                                             \
        { "rope_parameters", "{\"full_attention\":{\"rope_type\":\"linear\"," full "}" more "}" } \
    }

static void test_family_refused(void **state) {
    (void)state;
    static const struct {
        const char *family;
        change change[2];
        const char *key, *says;
    } all[] = {
        {"mistral", {{"sliding_window", NULL}}, "sliding_window", "means 4096"},
        {"mistral", {{"sliding_window", "0"}}, "sliding_window", "outside"},
        {"mistral",
         {{"sliding_window", "64"}, {"layer_types", "[\"sliding_attention\",\"full_attention\"]"}},
         "layer_types",
         "differs from sliding_window"},
        {"mistral",
         {{"layer_types", "[\"sliding_attention\",\"full_attention\"]"}},
         "layer_types",
         "there is none"},
        {"mistral",
         {{"architectures", "[\"LlamaForCausalLM\"]"}},
         "architectures",
         "MistralForCausalLM is"},
        {"mistral", {{"num_key_value_heads", NULL}}, "num_key_value_heads", "missing"},
        {"mistral", {{"max_position_embeddings", NULL}}, "max_position_embeddings", "missing"},
        {"mistral", {{"model_type", "\"mixtral\""}}, "model_type", "mixtral"},
        {"qwen2_window", {{"max_window_layers", NULL}}, "max_window_layers", "missing"},
        {"qwen2_window", {{"sliding_window", "0"}}, "sliding_window", "outside"},
        {"qwen2_window", {{"sliding_window", "\"7\""}}, "sliding_window", "not a whole number"},
        {"qwen2",
         {{"use_sliding_window", "true"}, {"sliding_window", NULL}},
         "sliding_window",
         "means 4096"},
        {"qwen2",
         {{"use_sliding_window", NULL}, {"sliding_window", "128"}},
         "sliding_window",
         "128 of 256 positions, and use_sliding_window is missing"},
        {"qwen2",
         {{"layer_types", "[\"full_attention\",\"sliding_attention\"]"}},
         "layer_types[1]",
         "there is none"},
        {"gemma3",
         {{"hidden_activation", "\"gelu\""}},
         "hidden_activation",
         "gelu_pytorch_tanh is"},
        {"gemma3", {{"hidden_act", "\"silu\""}}, "hidden_act", "gelu_pytorch_tanh is"},
        {"gemma3",
         {{"final_logit_softcapping", "30.0"}},
         "final_logit_softcapping",
         "not supported"},
        {"gemma3", {{"attn_logit_softcapping", "50.0"}}, "attn_logit_softcapping", "not supported"},
        {"gemma3", {{"use_bidirectional_attention", "true"}}, "bidirectional", "not supported"},
        {"gemma3", {{"sliding_window", "null"}}, "sliding_window", "local layers"},
        {"gemma3", {{"sliding_window_pattern", "0"}}, "sliding_window_pattern", "outside"},
        {"gemma3", {{"query_pre_attn_scalar", "0"}}, "query_pre_attn_scalar", "outside"},
        {"gemma3", {{"layer_types", "[\"full_attention\"]"}}, "layer_types", "for 3 layers"},
        {"gemma3",
         {{"architectures", "[\"Gemma3ForSequenceClassification\"]"}},
         "architectures",
         "Gemma3ForCausalLM is"},
        {"gemma3", {{"model_type", "\"gemma2\""}}, "model_type", "gemma2"},
        {"gemma3", {{"model_type", "\"gemma3n_text\""}}, "model_type", "gemma3n_text"},
        {"gemma3",
         {{"rope_parameters", "{\"rope_type\":\"linear\",\"factor\":8.0}"}},
         "rope_parameters",
         "has no full_attention"},
        {"gemma3", GEMMA_ROPE("\"factor\":4.0", ""), "rope_parameters",
         "differs from rope_scaling"},
        {"gemma3",
         GEMMA_ROPE("\"factor\":8.0", ",\"sliding_attention\":{\"type\":\"linear\",\"factor\":8}"),
         "rope_parameters.sliding_attention", "not supported"},
        {"gemma3", GEMMA_ROPE("\"factor\":8.0", ",\"sliding_attention\":{\"rope_theta\":5.0}"),
         "rope_parameters.sliding_attention", "rope_local_base_freq"},
        {"gemma3", GEMMA_ROPE("\"factor\":8.0", ",\"chunked_attention\":{}"), "rope_parameters",
         "chunked_attention"},
        {"qwen2", {{"use_mrope", "true"}}, "use_mrope", "not supported"},
        {"qwen2", {{"model_type", "\"qwen2_moe\""}}, "model_type", "qwen2_moe"},
        {"qwen2",
         {{"architectures", "[\"Qwen3ForCausalLM\"]"}},
         "architectures",
         "Qwen2ForCausalLM is"},
        {"qwen3", {{"attention_bias", "true"}}, "attention_bias", "not supported"},
        {"qwen3", {{"head_dim", NULL}}, "head_dim", "missing"},
        {"qwen3", {{"num_experts", "128"}}, "num_experts", "not supported"},
        {"qwen3", {{"model_type", "\"qwen3_moe\""}}, "model_type", "qwen3_moe"},
        {"llama3", {{"attention_bias", "true"}}, "attention_bias", "not supported"},
        {"llama3",
         {{"rope_parameters", "{\"rope_type\":\"linear\",\"factor\":8.0}"}},
         "rope_parameters",
         "differs from rope_scaling"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c = {.dim = 77};
        ls_err err = {0};
        const size_t n = all[i].change[1].key ? 2 : 1;
        if (with_family(all[i].family, all[i].change, n, &c, &err) != LS_ERR_INPUT)
            fail_msg("%s with %s = %s was accepted", all[i].family, all[i].change[0].key,
                     all[i].change[0].value ? all[i].change[0].value : "absent");
        ls_assert_message(&err, "config.json", all[i].key, all[i].says, NULL);
        assert_int_equal(c.dim, 77);
    }
}

static void test_family_accepted(void **state) {
    (void)state;
    static const struct {
        const char *family;
        change change[2];
    } all[] = {
        {"mistral", {{"sliding_window", "256"}}}, /* as long as the context: no key is outside */
        {"mistral",
         {{"sliding_window", "64"},
          {"layer_types", "[\"sliding_attention\",\"sliding_attention\"]"}}},
        {"mistral", {{"head_dim", "16"}}},
        {"qwen2", {{"use_sliding_window", "true"}, {"sliding_window", "4096"}}},
        {"qwen2", {{"use_sliding_window", NULL}, {"sliding_window", NULL}}},
        {"qwen2", {{"layer_types", "[\"full_attention\",\"full_attention\"]"}}},
        {"qwen2", {{"rope_theta", NULL}, {"rope_parameters", "{\"rope_theta\":1000000.0}"}}},
        {"qwen3", {{"rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2.0}"}}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_config c;
        ls_err err = {0};
        OK(with_family(all[i].family, all[i].change, all[i].change[1].key ? 2 : 1, &c, &err), &err);
    }
}

static void test_end_ids(void **state) {
    (void)state;
    ls_config c;
    ls_err err = {0};
    static const int32_t want[] = {256, 257, 258, 259};
    OK(with("eos_token_id", "[258,257]", "{\"eos_token_id\":[259,257,256]}", &c, &err), &err);
    assert_int_equal(c.n_eos, 4); /* the union, each once, ascending */
    assert_memory_equal(c.eos, want, sizeof want);
    OK(with("eos_token_id", NULL, "{\"eos_token_id\":259}", &c, &err), &err);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 259);
    OK(with("bos_token_id", NULL, "{\"bos_token_id\":3}", &c, &err), &err);
    assert_int_equal(c.bos, 3);
    OK(with("bos_token_id", "4", "{\"bos_token_id\":3}", &c, &err), &err);
    assert_int_equal(c.bos, 4);
    assert_int_equal(with("bos_token_id", "4", "{\"eos_token_id\":9999}", &c, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "generation_config.json", "eos_token_id", "9999", NULL);
    assert_int_equal(with("bos_token_id", "4", "{\"eos_token_id\":", &c, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "generation_config.json", "line 1", NULL);
    char many[512] = "[0";
    for (int i = 1; i <= LS_EOS_MAX; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
    strcat(many, "]");
    assert_int_equal(with("eos_token_id", many, NULL, &c, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "more than 32 end ids", NULL);
}

/* Cut anywhere, a config is refused; so is one in which a size lost its digits. */
static void test_every_cut(void **state) {
    (void)state;
    char *path = ls_test_path("cases/cfg/good_base.json");
    size_t n = 0;
    char *text = ls_test_read(path, &n), *dir = ls_test_dir_make();
    while (n > 0 && text[n - 1] != '}')
        n--;
    for (size_t cut = 0; cut < n; cut++) {
        ls_config c;
        ls_err err = {0};
        ls_test_write(dir, "config.json", text, cut);
        if (ls_config_read(dir, &c, &err) != LS_ERR_INPUT)
            fail_msg("accepted when cut at %zu", cut);
        ls_assert_message(&err, "config.json", NULL);
    }
    /* and the file of end ids beside a whole one */
    static const char ids[] = "{\"eos_token_id\": [257, 258], \"do_sample\": true}";
    ls_test_write(dir, "config.json", text, n);
    for (size_t cut = 0; cut < sizeof ids; cut++) {
        ls_config c;
        ls_err err = {0};
        ls_test_write(dir, "generation_config.json", ids, cut);
        const ls_status s = ls_config_read(dir, &c, &err);
        if (s != (cut == sizeof ids - 1 ? LS_OK : LS_ERR_INPUT))
            fail_msg("cut at %zu: %s", cut, s == LS_OK ? "accepted" : err.msg);
        if (s != LS_OK)
            ls_assert_message(&err, "generation_config.json", NULL);
    }
    ls_test_dir_remove(dir);
    free(text);
    free(path);
}

/* Nesting in a field that nobody reads is refused all the same. */
static void test_depth(void **state) {
    (void)state;
    char *path = ls_test_path("cases/cfg/good_base.json"), *dir = ls_test_dir_make();
    size_t n = 0;
    char *base = ls_test_read(path, &n), *text = malloc(n + 50000);
    assert_non_null(text);
    static const size_t levels[] = {32, 20000};
    for (size_t i = 0; i < 2; i++) {
        char *p = text + sprintf(text, "{\"ignored\":");
        memset(p, '[', levels[i]);
        memset(p + levels[i], ']', levels[i]);
        p += 2 * levels[i];
        p += sprintf(p, ",%s", strchr(base, '{') + 1);
        ls_test_write(dir, "config.json", text, (size_t)(p - text));
        ls_config c;
        ls_err err = {0};
        ls_status s = ls_config_read(dir, &c, &err);
        assert_int_equal(s, i == 0 ? LS_OK : LS_ERR_INPUT);
        if (i > 0)
            ls_assert_message(&err, "config.json", "deeper than 64", NULL);
    }
    ls_test_dir_remove(dir);
    free(text);
    free(base);
    free(path);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_verdicts),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_refused_by_name), cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_families),        cmocka_unit_test(test_family_refused),
        cmocka_unit_test(test_family_accepted), cmocka_unit_test(test_end_ids),
        cmocka_unit_test(test_every_cut),       cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(all, begin, NULL);
}
