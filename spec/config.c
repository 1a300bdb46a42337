#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"

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
    {"query_pre_attn_scalar", NEUTRAL_NULL},
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

static ls_status check_refused(const ls_json_at *root, ls_err *err) {
    static const char *const must[] = {"null", "false", "1", "0"};
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

enum window {
    WINDOW_NONE,   /* the family has none: a declared one is refused unless it is switched off */
    WINDOW_STATED, /* absent means 4096 and there is no switch */
    WINDOW_SWITCH  /* counts unless use_sliding_window is false */
};

/* What a family's name says and its fields do not. `states`: sizes whose defaults differ between
 * families have to be in the file. */
typedef struct family {
    const char *type, *architecture;
    enum window window;
    bool states, states_head_dim;
    bool qkv_bias, qk_norm;
} family;

static const family families[] = {
    {"llama", "LlamaForCausalLM", WINDOW_NONE, false, false, false, false},
    {"mistral", "MistralForCausalLM", WINDOW_STATED, true, false, false, false},
    {"qwen2", "Qwen2ForCausalLM", WINDOW_SWITCH, true, false, true, false},
    {"qwen3", "Qwen3ForCausalLM", WINDOW_SWITCH, true, true, false, true},
};

static const family *family_of(const char *type) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].type) == 0)
            return &families[i];
    return NULL;
}

static ls_status check_family(const ls_json_at *root, const family **out, ls_err *err) {
    const char *type = NULL, *act = NULL;
    char shown[64];
    ls_json_at at = ls_json_key(root, "model_type");
    LS_TRY(ls_json_string(root, "model_type", &type, err));
    const family *f = family_of(type);
    if (!f)
        return ls_json_fail(
            &at, err, "\"%s\" is not a supported family (llama, mistral, qwen2 and qwen3 are)",
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
    at = ls_json_key(root, "hidden_act");
    LS_TRY(ls_json_string_or(root, "hidden_act", "silu", &act, err));
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return ls_json_fail(&at, err, "the activation \"%s\" is not supported (silu is)",
                            ls_err_text(shown, sizeof shown, act, strlen(act)));
    *out = f;
    return LS_OK;
}

static ls_status check_stated(const ls_json_at *root, const family *f, ls_err *err) {
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

/* A window at least as long as the longest text leaves no key out. */
static ls_status check_window(const ls_json_at *root, const family *f, int32_t n_pos, ls_err *err) {
    ls_json_at window = ls_json_key(root, "sliding_window");
    ls_json_at on = ls_json_key(root, "use_sliding_window");
    bool used = true; /* a declared window counts unless it is switched off in so many words */
    if (f->window != WINDOW_STATED)
        LS_TRY(ls_json_bool_or(root, "use_sliding_window", true, &used, err));
    const bool asked = f->window == WINDOW_SWITCH && !ls_json_none(&on) && used;
    if (!window.value && (f->window == WINDOW_STATED || asked))
        return ls_json_fail(&window, err, "is missing, which in %s means 4096; null is no window",
                            f->type);
    if (!ls_json_none(&window) && used) {
        int64_t w = 0;
        if (f->window == WINDOW_NONE)
            return ls_json_fail(&window, err, "sliding-window attention is not supported");
        LS_TRY(ls_json_as_int(&window, 1, INT32_MAX, &w, err));
        if (w < n_pos)
            return ls_json_fail(
                &window, err,
                "sliding-window attention is not supported: %d keys of %d positions "
                "(null, or a window as long as max_position_embeddings)",
                (int)w, n_pos);
    }
    ls_json_at types = ls_json_key(root, "layer_types");
    if (ls_json_none(&types))
        return LS_OK;
    size_t n = 0;
    LS_TRY(ls_json_as_array(&types, &n, err));
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_item(&types, i);
        const char *type = NULL;
        LS_TRY(ls_json_as_string(&at, &type, NULL, err));
        if (strcmp(type, "full_attention") != 0)
            return ls_json_fail(&at, err, "only full_attention layers are supported");
    }
    return LS_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static ls_status read_size(const ls_json_at *root, const char *key, int32_t max, int32_t *out,
                           ls_err *err) {
    int64_t v = 0;
    LS_TRY(ls_json_int(root, key, 1, max, &v, err));
    *out = (int32_t)v;
    return LS_OK;
}

static ls_status read_size_or(const ls_json_at *root, const char *key, int32_t max,
                              int32_t fallback, int32_t *out, ls_err *err) {
    int64_t v = 0;
    LS_TRY(ls_json_int_or(root, key, 1, max, fallback, &v, err));
    *out = (int32_t)v;
    return LS_OK;
}

static ls_status read_heads(const ls_json_at *root, ls_config *c, ls_err *err) {
    LS_TRY(read_size(root, "num_attention_heads", 1024, &c->n_heads, err));
    LS_TRY(read_size_or(root, "num_key_value_heads", 1024, c->n_heads, &c->n_kv, err));
    if (c->n_heads % c->n_kv != 0) {
        ls_json_at at = ls_json_key(root, "num_key_value_heads");
        return ls_json_fail(&at, err, "%d query heads cannot share %d key/value heads evenly",
                            c->n_heads, c->n_kv);
    }
    ls_json_at at = ls_json_key(root, "head_dim");
    if (ls_json_none(&at) && c->dim % c->n_heads != 0) {
        at = ls_json_key(root, "hidden_size");
        return ls_json_fail(&at, err,
                            "%d is not a multiple of the %d heads and there is no head_dim", c->dim,
                            c->n_heads);
    }
    LS_TRY(read_size_or(root, "head_dim", INT32_MAX, c->dim / c->n_heads, &c->head_dim, err));
    if (c->head_dim % 2 != 0 || c->head_dim < 2 || c->head_dim > LS_HEAD_DIM_MAX)
        return ls_json_fail(&at, err, "a head width of %d; supported are even widths up to %d",
                            c->head_dim, LS_HEAD_DIM_MAX);
    return LS_OK;
}

static ls_status read_sizes(const ls_json_at *root, ls_config *c, ls_err *err) {
    LS_TRY(read_size(root, "hidden_size", 131072, &c->dim, err));
    LS_TRY(read_size(root, "intermediate_size", 1048576, &c->ffn, err));
    LS_TRY(read_size(root, "num_hidden_layers", 1024, &c->n_layers, err));
    LS_TRY(read_heads(root, c, err));
    LS_TRY(read_size(root, "vocab_size", 4194304, &c->n_vocab, err));
    LS_TRY(read_size_or(root, "max_position_embeddings", 16777216, 2048, &c->n_pos, err));
    double eps = 0;
    ls_json_at at = ls_json_key(root, "rms_norm_eps");
    LS_TRY(ls_json_number_or(root, "rms_norm_eps", 0, 1, 1e-6, &eps, err));
    c->rms_eps = (float)eps;
    if (!(c->rms_eps > 0))
        return ls_json_fail(&at, err, "is %g; a row of zeros needs it above zero", eps);
    LS_TRY(ls_json_bool_or(root, "tie_word_embeddings", false, &c->tied, err));
    const char *dtype = "";
    ls_json_at name = ls_json_key(root, "torch_dtype");
    LS_TRY(ls_json_string_or(root, ls_json_none(&name) ? "dtype" : "torch_dtype", "", &dtype, err));
    ls_err_text(c->dtype, sizeof c->dtype, dtype, strlen(dtype));
    return LS_OK;
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* The number `key` of a scaling, which has to be there. */
static ls_status scaling_number(const ls_json_at *at, const char *key, double min, double *out,
                                ls_err *err) {
    ls_json_at number = ls_json_key(at, key);
    if (ls_json_none(&number))
        return ls_json_fail(&number, err, "is missing");
    return ls_json_as_number(&number, min, 1e15, out, err);
}

/* "rope_type", or "type" as old files have it; both have to agree. */
static ls_status scaling_kind(const ls_json_at *at, ls_rope_kind *out, ls_err *err) {
    static const char *const keys[] = {"rope_type", "type"};
    static const ls_rope_kind kinds[] = {LS_ROPE_PLAIN, LS_ROPE_LINEAR, LS_ROPE_LLAMA3};
    bool known = false;
    for (size_t i = 0; i < 2; i++) {
        ls_json_at type = ls_json_key(at, keys[i]);
        const char *name = NULL;
        size_t k = 0;
        if (ls_json_none(&type))
            continue;
        LS_TRY(ls_json_as_string(&type, &name, NULL, err));
        while (k < 3 && strcmp(name, ls_rope_kind_name(kinds[k])) != 0)
            k++;
        if (k == 3) {
            char shown[64];
            return ls_json_fail(
                &type, err,
                "rope scaling of type \"%s\" is not supported (default, linear and llama3 are)",
                ls_err_text(shown, sizeof shown, name, strlen(name)));
        }
        if (known && kinds[k] != *out)
            return ls_json_fail(&type, err, "is \"%s\" here and \"%s\" in rope_type", name,
                                ls_rope_kind_name(*out));
        *out = kinds[k];
        known = true;
    }
    return LS_OK;
}

/* rope_scaling, and rope_parameters which newer files have instead. Nothing in them is ignored. */
static ls_status read_scaling(const ls_json_at *at, ls_rope_scaling *out, ls_err *err) {
    static const char *const names[] = {"rope_type",        "type",
                                        "rope_theta",       "partial_rotary_factor",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "original_max_position_embeddings"};
    static const size_t n_names[] = {4, 5, 8}; /* of names, by kind */
    ls_rope_scaling c = {.kind = LS_ROPE_PLAIN};
    LS_TRY(ls_json_as_object(at, err));
    LS_TRY(scaling_kind(at, &c.kind, err));
    LS_TRY(ls_json_only(at, names, n_names[c.kind], err));
    ls_json_at partial = ls_json_key(at, "partial_rotary_factor");
    if (!ls_json_none(&partial) && !is_neutral(partial.value, NEUTRAL_ONE))
        return ls_json_fail(&partial, err, "partial rotation is not supported (only 1)");
    if (c.kind != LS_ROPE_PLAIN)
        LS_TRY(scaling_number(at, "factor", 1, &c.factor, err));
    if (c.kind == LS_ROPE_LLAMA3) {
        LS_TRY(scaling_number(at, "low_freq_factor", 1e-6, &c.low, err));
        LS_TRY(scaling_number(at, "high_freq_factor", 1e-6, &c.high, err));
        LS_TRY(scaling_number(at, "original_max_position_embeddings", 1, &c.original, err));
        ls_json_at high = ls_json_key(at, "high_freq_factor");
        if (!(c.high > c.low))
            return ls_json_fail(&high, err, "%g is not above low_freq_factor, %g", c.high, c.low);
    }
    *out = c;
    return LS_OK;
}

static bool same_scaling(const ls_rope_scaling *a, const ls_rope_scaling *b) {
    return a->kind == b->kind && a->factor == b->factor && a->low == b->low && a->high == b->high &&
           a->original == b->original;
}

static ls_status read_rope(const ls_json_at *root, ls_config *c, ls_err *err) {
    const ls_json_at at[] = {ls_json_key(root, "rope_scaling"),
                             ls_json_key(root, "rope_parameters")};
    double theta[2] = {0, 0}; /* stated inside */
    bool known = false;
    for (size_t i = 0; i < 2; i++) {
        ls_rope_scaling scaling;
        if (ls_json_none(&at[i]))
            continue;
        LS_TRY(read_scaling(&at[i], &scaling, err));
        if (known && !same_scaling(&scaling, &c->rope))
            return ls_json_fail(&at[i], err, "differs from rope_scaling");
        LS_TRY(ls_json_number_or(&at[i], "rope_theta", 1, 1e15, 0, &theta[i], err));
        c->rope = scaling;
        known = true;
    }
    const double inner = theta[1] > 0 ? theta[1] : theta[0];
    LS_TRY(ls_json_number_or(root, "rope_theta", 1, 1e15, inner > 0 ? inner : 10000.0,
                             &c->rope_theta, err));
    for (size_t i = 0; i < 2; i++)
        if (theta[i] > 0 && theta[i] != c->rope_theta)
            return ls_json_fail(&at[i], err, "rope_theta is %g here and %g elsewhere", theta[i],
                                c->rope_theta);
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
    const family *f = NULL;
    LS_TRY(check_family(&root, &f, err));
    strcpy(c->family, f->type);
    c->qkv_bias = f->qkv_bias;
    c->qk_norm = f->qk_norm;
    LS_TRY(check_refused(&root, err));
    LS_TRY(check_stated(&root, f, err));
    LS_TRY(read_sizes(&root, c, err));
    LS_TRY(check_window(&root, f, c->n_pos, err));
    LS_TRY(read_rope(&root, c, err));
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
