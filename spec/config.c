#include "config_impl.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 20)

/* ---- what is not built ----------------------------------------------------------------------- */

/* Fields that change arithmetic: absent, null or the neutral value, else refused. A field that is
 * neither here nor read below is taken to be a matter of training or bookkeeping. */
enum neutral { NEUTRAL_NULL, NEUTRAL_FALSE, NEUTRAL_ONE, NEUTRAL_ZERO };

static const struct {
    const char *key;
    enum neutral neutral;
} refused[] = {
    {"attention_bias", NEUTRAL_FALSE},
    {"mlp_bias", NEUTRAL_FALSE},
    {"qkv_bias", NEUTRAL_FALSE},
    {"use_bias", NEUTRAL_FALSE},
    {"use_mrope", NEUTRAL_FALSE},
    {"quantization_config", NEUTRAL_NULL},
    {"pretraining_tp", NEUTRAL_ONE},
    {"partial_rotary_factor", NEUTRAL_ONE},
    {"rope_interleave", NEUTRAL_FALSE},
    {"rope_interleaved", NEUTRAL_FALSE},
    {"qk_norm", NEUTRAL_FALSE},
    {"use_qk_norm", NEUTRAL_FALSE},
    {"qk_layernorm", NEUTRAL_FALSE},
    {"attn_logit_softcapping", NEUTRAL_NULL},
    {"final_logit_softcapping", NEUTRAL_NULL},
    {"logits_soft_cap", NEUTRAL_NULL},
    {"logit_scale", NEUTRAL_ONE},
    {"logits_scaling", NEUTRAL_ONE},
    {"embedding_multiplier", NEUTRAL_ONE},
    {"residual_multiplier", NEUTRAL_ONE},
    {"attention_multiplier", NEUTRAL_NULL},
    {"use_bidirectional_attention", NEUTRAL_FALSE},
    {"num_kv_shared_layers", NEUTRAL_ZERO},
    {"hidden_size_per_layer_input", NEUTRAL_ZERO},
    {"attention_chunk_size", NEUTRAL_NULL},
    {"no_rope_layers", NEUTRAL_NULL},
    {"num_local_experts", NEUTRAL_ZERO},
    {"num_experts", NEUTRAL_ZERO},
    {"n_routed_experts", NEUTRAL_ZERO},
    {"is_encoder_decoder", NEUTRAL_FALSE},
};

static bool is_neutral(const json_t *v, enum neutral n) {
    switch (n) {
    case NEUTRAL_FALSE:
        return json_is_false(v);
    case NEUTRAL_ONE:
        return json_is_number(v) && json_number_value(v) == 1.0;
    case NEUTRAL_ZERO:
        return json_is_number(v) && json_number_value(v) == 0.0;
    case NEUTRAL_NULL:
    default:
        return false;
    }
}

/* The same in every family but Gemma, which reads them. */
static const char *const gemma_only[] = {"query_pre_attn_scalar", "rope_local_base_freq",
                                         "sliding_window_pattern"};

static ls_status check_refused(const ls_json_at *root, const ls_family *f, ls_err *err) {
    static const char *const must[] = {"null", "false", "1", "0"};
    for (size_t i = 0; i < sizeof gemma_only / sizeof *gemma_only; i++) {
        const ls_json_at at = ls_json_key(root, gemma_only[i]);
        if (!f->gemma && !ls_json_none(&at))
            return ls_json_fail(&at, err,
                                "this changes the arithmetic and is no part of %s (only absent or "
                                "null)",
                                f->type);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ls_json_at at = ls_json_key(root, refused[i].key);
        if (!ls_json_none(&at) && !is_neutral(at.value, refused[i].neutral))
            return ls_json_fail(&at, err,
                                "this changes the arithmetic and is not supported (only absent or "
                                "%s)",
                                must[refused[i].neutral]);
    }
    return LS_OK;
}

/* ---- families -------------------------------------------------------------------------------- */

static const ls_config_defaults gemma3 = {.n_heads = 8,
                                          .n_kv = 4,
                                          .head_dim = 256,
                                          .n_vocab = 262208,
                                          .n_pos = 131072,
                                          .window = 4096,
                                          .pattern = 6,
                                          .theta = 1e6,
                                          .theta_local = 1e4,
                                          .query_scalar = 256,
                                          .act = "gelu_pytorch_tanh",
                                          .tied = true};

static const ls_family families[] = {
    {"llama", "LlamaForCausalLM", WINDOW_NONE, false, false, false, false, false, NULL},
    {"mistral", "MistralForCausalLM", WINDOW_STATED, true, false, false, false, false, NULL},
    {"qwen2", "Qwen2ForCausalLM", WINDOW_SWITCH, true, false, true, false, false, NULL},
    {"qwen3", "Qwen3ForCausalLM", WINDOW_SWITCH, true, true, false, true, false, NULL},
    {"gemma3_text", "Gemma3ForCausalLM", WINDOW_PATTERN, false, false, false, true, false, &gemma3},
    {"gemma3", "Gemma3ForConditionalGeneration", WINDOW_PATTERN, false, false, false, true, true,
     &gemma3},
};

static const ls_family *family_of(const char *type) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].type) == 0)
            return &families[i];
    return NULL;
}

static ls_status check_family(const ls_json_at *root, const ls_family **out, ls_err *err) {
    const char *type = NULL;
    char shown[64];
    ls_json_at at = ls_json_key(root, "model_type");
    LS_TRY(ls_json_string(root, "model_type", &type, err));
    const ls_family *f = family_of(type);
    if (!f)
        return ls_json_fail(
            &at, err,
            "\"%s\" is not a supported family (llama, mistral, qwen2, qwen3, gemma3 and "
            "gemma3_text are)",
            ls_err_text(shown, sizeof shown, type, strlen(type)));
    ls_json_at list = ls_json_key(root, "architectures");
    if (!ls_json_none(&list)) {
        size_t n = 0;
        LS_TRY(ls_json_as_array(&list, &n, err));
        for (size_t i = 0; i < n; i++) {
            at = ls_json_item(&list, i);
            LS_TRY(ls_json_as_string(&at, &type, NULL, err));
            if (strcmp(type, f->architecture) != 0)
                return ls_json_fail(
                    &at, err, "\"%s\" is not a supported architecture of %s (%s is)",
                    ls_err_text(shown, sizeof shown, type, strlen(type)), f->type, f->architecture);
        }
    }
    *out = f;
    return LS_OK;
}

/* The object that holds the text model's fields. */
static ls_status find_text(const ls_json_at *root, const ls_family *f, ls_json_at *out,
                           ls_err *err) {
    const char *type = "gemma3_text";
    *out = f->nested ? ls_json_key(root, "text_config") : *root;
    if (!f->nested)
        return LS_OK;
    LS_TRY(ls_json_as_object(out, err));
    const ls_json_at at = ls_json_key(out, "model_type");
    LS_TRY(ls_json_string_or(out, "model_type", type, &type, err));
    char shown[64];
    if (strcmp(type, "gemma3_text") != 0)
        return ls_json_fail(&at, err, "\"%s\" is not a supported text model (gemma3_text is)",
                            ls_err_text(shown, sizeof shown, type, strlen(type)));
    return LS_OK;
}

/* Gemma names its activation hidden_activation, other families hidden_act. */
static ls_status check_activation(const ls_json_at *at, const ls_family *f, ls_err *err) {
    static const char *const keys[] = {"hidden_act", "hidden_activation"};
    const char *want = f->gemma ? f->gemma->act : "silu";
    for (size_t i = 0; i < 2; i++) {
        const ls_json_at key = ls_json_key(at, keys[i]);
        const char *act = NULL;
        char shown[64];
        LS_TRY(ls_json_string_or(at, keys[i], want, &act, err));
        if (strcmp(act, want) != 0 && (f->gemma || strcmp(act, "swish") != 0))
            return ls_json_fail(&key, err, "the activation \"%s\" is not supported (%s is)",
                                ls_err_text(shown, sizeof shown, act, strlen(act)), want);
    }
    return LS_OK;
}

static ls_status check_stated(const ls_json_at *root, const ls_family *f, ls_err *err) {
    static const char *const keys[] = {"num_key_value_heads", "max_position_embeddings",
                                       "head_dim"};
    const size_t n = f->states_head_dim ? 3 : f->states ? 2 : 0;
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_key(root, keys[i]);
        if (ls_json_none(&at))
            return ls_json_fail(&at, err, "is missing, and %s has a default of its own", f->type);
    }
    return LS_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* fallback 0: the field has to be there. */
static ls_status read_size_or(const ls_json_at *root, const char *key, int32_t max,
                              int32_t fallback, int32_t *out, ls_err *err) {
    int64_t v = 0;
    LS_TRY(fallback ? ls_json_int_or(root, key, 1, max, fallback, &v, err)
                    : ls_json_int(root, key, 1, max, &v, err));
    *out = (int32_t)v;
    return LS_OK;
}

static ls_status read_heads(const ls_json_at *root, const ls_config_defaults *d, ls_config *c,
                            ls_err *err) {
    LS_TRY(read_size_or(root, "num_attention_heads", 1024, d->n_heads, &c->n_heads, err));
    LS_TRY(read_size_or(root, "num_key_value_heads", 1024, d->n_kv ? d->n_kv : c->n_heads, &c->n_kv,
                        err));
    if (c->n_heads % c->n_kv != 0) {
        ls_json_at at = ls_json_key(root, "num_key_value_heads");
        return ls_json_fail(&at, err, "%d query heads cannot share %d key/value heads evenly",
                            c->n_heads, c->n_kv);
    }
    ls_json_at at = ls_json_key(root, "head_dim");
    if (ls_json_none(&at) && !d->head_dim && c->dim % c->n_heads != 0) {
        at = ls_json_key(root, "hidden_size");
        return ls_json_fail(&at, err,
                            "%d is not a multiple of the %d heads and there is no head_dim", c->dim,
                            c->n_heads);
    }
    LS_TRY(read_size_or(root, "head_dim", INT32_MAX,
                        d->head_dim ? d->head_dim : c->dim / c->n_heads, &c->head_dim, err));
    if (c->head_dim % 2 != 0 || c->head_dim < 2 || c->head_dim > LS_HEAD_DIM_MAX)
        return ls_json_fail(&at, err, "a head width of %d; supported are even widths up to %d",
                            c->head_dim, LS_HEAD_DIM_MAX);
    return ls_json_number_or(root, "query_pre_attn_scalar", 1e-6, 1e9,
                             d->query_scalar > 0 ? d->query_scalar : c->head_dim, &c->query_scalar,
                             err);
}

static ls_status read_sizes(const ls_json_at *root, const ls_family *f, ls_config *c, ls_err *err) {
    static const ls_config_defaults others = {.n_pos = 2048};
    const ls_config_defaults *d = f->gemma ? f->gemma : &others;
    LS_TRY(read_size_or(root, "hidden_size", 131072, 0, &c->dim, err));
    LS_TRY(read_size_or(root, "intermediate_size", 1048576, 0, &c->ffn, err));
    LS_TRY(read_size_or(root, "num_hidden_layers", LS_LAYERS_MAX, 0, &c->n_layers, err));
    LS_TRY(read_heads(root, d, c, err));
    LS_TRY(read_size_or(root, "vocab_size", 4194304, d->n_vocab, &c->n_vocab, err));
    LS_TRY(read_size_or(root, "max_position_embeddings", 16777216, d->n_pos, &c->n_pos, err));
    double eps = 0;
    ls_json_at at = ls_json_key(root, "rms_norm_eps");
    LS_TRY(ls_json_number_or(root, "rms_norm_eps", 0, 1, 1e-6, &eps, err));
    c->rms_eps = (float)eps;
    if (!(c->rms_eps > 0))
        return ls_json_fail(&at, err, "is %g; a row of zeros needs it above zero", eps);
    return LS_OK;
}

/* What stands at the file's root, of a text model inside it as well. */
static ls_status read_root(const ls_json_at *root, const ls_json_at *text, const ls_family *f,
                           ls_config *c, ls_err *err) {
    const char *dtype = "";
    c->tied = f->gemma && f->gemma->tied;
    LS_TRY(ls_json_bool_or(root, "tie_word_embeddings", c->tied, &c->tied, err));
    LS_TRY(ls_json_bool_or(text, "tie_word_embeddings", c->tied, &c->tied, err));
    ls_json_at name = ls_json_key(root, "torch_dtype");
    LS_TRY(ls_json_string_or(root, ls_json_none(&name) ? "dtype" : "torch_dtype", "", &dtype, err));
    ls_err_text(c->dtype, sizeof c->dtype, dtype, strlen(dtype));
    return LS_OK;
}

/* ---- special ids ----------------------------------------------------------------------------- */

static ls_status add_eos(ls_config *c, const ls_json_at *at, ls_err *err) {
    int64_t v = 0;
    if (json_is_integer(at->value) && json_integer_value(at->value) >= c->n_vocab)
        return ls_json_fail(at, err, "end id %lld, the vocabulary has %d",
                            (long long)json_integer_value(at->value), c->n_vocab);
    LS_TRY(ls_json_as_int(at, 0, c->n_vocab - 1, &v, err));
    if (ls_config_is_eos(c, (int32_t)v))
        return LS_OK;
    if (c->n_eos == LS_EOS_MAX)
        return ls_json_fail(at, err, "more than %d end ids", LS_EOS_MAX);
    int32_t i = c->n_eos++;
    for (; i > 0 && c->eos[i - 1] > v; i--)
        c->eos[i] = c->eos[i - 1];
    c->eos[i] = (int32_t)v;
    return LS_OK;
}

static ls_status read_ids(const ls_json_at *root, ls_config *c, ls_err *err) {
    ls_json_at eos = ls_json_key(root, "eos_token_id");
    if (json_is_array(eos.value)) {
        size_t n = json_array_size(eos.value);
        for (size_t i = 0; i < n; i++) {
            ls_json_at at = ls_json_item(&eos, i);
            LS_TRY(add_eos(c, &at, err));
        }
    } else if (!ls_json_none(&eos)) {
        LS_TRY(add_eos(c, &eos, err));
    }
    int64_t bos = -1;
    LS_TRY(ls_json_int_or(root, "bos_token_id", 0, c->n_vocab - 1, -1, &bos, err));
    if (c->bos < 0) /* config.json comes first and wins */
        c->bos = (int32_t)bos;
    return LS_OK;
}

/* ---- the files ------------------------------------------------------------------------------- */

static ls_status read_config(const ls_json *doc, ls_config *c, ls_err *err) {
    ls_json_at root = ls_json_root(doc);
    LS_TRY(ls_json_as_object(&root, err));
    const ls_family *f = NULL;
    ls_json_at text;
    LS_TRY(check_family(&root, &f, err));
    LS_TRY(find_text(&root, f, &text, err));
    strcpy(c->family, f->gemma ? "gemma3" : f->type);
    c->qkv_bias = f->qkv_bias;
    c->qk_norm = f->qk_norm;
    c->nested = f->nested;
    c->post_norms = c->norm_offset = c->embed_scaled = c->gelu = f->gemma != NULL;
    LS_TRY(check_activation(&text, f, err));
    LS_TRY(check_refused(&root, f, err));
    LS_TRY(check_refused(&text, f, err));
    LS_TRY(check_stated(&text, f, err));
    LS_TRY(read_sizes(&text, f, c, err));
    LS_TRY(read_root(&root, &text, f, c, err));
    LS_TRY(ls_config_rope(&text, f, c, err));
    LS_TRY(ls_config_window(&text, f, c, err));
    if (f->nested)
        LS_TRY(read_ids(&text, c, err));
    return read_ids(&root, c, err);
}

static ls_status read_generation(const ls_json *doc, ls_config *c, ls_err *err) {
    ls_json_at root = ls_json_root(doc);
    LS_TRY(ls_json_as_object(&root, err));
    return read_ids(&root, c, err);
}

static ls_status read_one(const char *path, const char *inside,
                          ls_status (*read)(const ls_json *, ls_config *, ls_err *), ls_config *c,
                          ls_err *err) {
    ls_json doc = {0};
    LS_TRY(ls_json_read(path, inside, CONFIG_BYTES_MAX, &doc, err));
    ls_status s = read(&doc, c, err);
    ls_json_free(&doc);
    return s;
}

static ls_status read_both(const char *config, const char *generation, const char *inside,
                           ls_config *out, ls_err *err) {
    ls_config c = {.bos = -1};
    LS_TRY(read_one(config, inside, read_config, &c, err));
    if (generation)
        LS_TRY(read_one(generation, inside, read_generation, &c, err));
    *out = c;
    return LS_OK;
}

ls_status ls_config_read_files(const char *config, const char *generation, ls_config *out,
                               ls_err *err) {
    return read_both(config, generation, NULL, out, err);
}

ls_status ls_config_read(const char *dir, ls_config *out, ls_err *err) {
    char *config = NULL, *generation = NULL;
    LS_TRY(ls_file_join(dir, "config.json", &config, err));
    ls_status s = ls_file_join(dir, "generation_config.json", &generation, err);
    if (s == LS_OK)
        s = read_both(config, ls_file_exists(generation) ? generation : NULL, dir, out, err);
    free(config);
    free(generation);
    return s;
}

bool ls_config_is_eos(const ls_config *cfg, int32_t token) {
    for (int32_t i = 0; i < cfg->n_eos; i++)
        if (cfg->eos[i] == token)
            return true;
    return false;
}

void ls_config_lengthen(ls_config *cfg) {
    const double n = cfg->rope.factor * cfg->rope.original;
    if (cfg->rope.kind == LS_ROPE_YARN && n > cfg->n_pos)
        cfg->n_pos = n < 16777216 ? (int32_t)n : 16777216;
}

void ls_config_settle(ls_config *cfg) {
    if (cfg->window >= cfg->n_pos)
        cfg->window = 0;
    if (!cfg->window && !(cfg->rope_theta_local > 0)) /* nothing sets them apart */
        memset(cfg->local, 0, sizeof cfg->local);
}
