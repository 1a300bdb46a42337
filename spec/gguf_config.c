#include "gguf_config.h"

#include <stdio.h>
#include <string.h>

/* What a file's architecture says and its keys do not. */
typedef struct arch {
    const char *name;
    bool qkv_bias, qk_norm;
    bool windows; /* a sliding window is every layer's */
    bool gemma;
} arch;

static const arch archs[] = {
    {"llama", false, false, true, false},
    {"qwen2", true, false, false, false},
    {"qwen3", false, true, false, false},
    {"gemma3", false, true, true, true},
};

/* What is being read: passed down so that each step can name file and key. */
typedef struct reader {
    const ls_gguf *g;
    const arch *a;
    ls_config *c;
    ls_err *err;
} reader;

#define KEY_ROOM 96
/* "llama." + key; ends in dst. */
static const char *key_of(const reader *r, char dst[KEY_ROOM], const char *key) {
    snprintf(dst, KEY_ROOM, "%s.%s", r->a->name, key);
    return dst;
}

static ls_gguf_str str_of(const char *s) {
    return (ls_gguf_str){s, strlen(s)};
}

static bool begins(ls_gguf_str s, const char *prefix) {
    const size_t n = strlen(prefix);
    return s.n >= n && memcmp(s.s, prefix, n) == 0;
}

/* ---- keys of the family ---------------------------------------------------------------------- */

enum rule {
    READ,    /* read below */
    IGNORED, /* of no effect */
    IS_ZERO, /* no effect at this value, refused at any other */
    IS_ONE,
    IS_TRUE,
    IS_FALSE,
    IS_META /* the one layout of tensors that llama files have */
};

#define GEMMA true

static const struct {
    const char *key; /* behind the architecture's name */
    enum rule rule;
    bool gemma; /* known in gemma3 alone */
} keys[] = {
    {"context_length", READ, false},
    {"embedding_length", READ, false},
    {"block_count", READ, false},
    {"feed_forward_length", READ, false},
    {"vocab_size", READ, false},
    {"attention.head_count", READ, false},
    {"attention.head_count_kv", READ, false},
    {"attention.key_length", READ, false},
    {"attention.value_length", READ, false},
    {"attention.layer_norm_rms_epsilon", READ, false},
    {"rope.dimension_count", READ, false},
    {"rope.freq_base", READ, false},
    {"rope.scaling.type", READ, false},
    {"rope.scaling.factor", READ, false},
    {"rope.scale_linear", READ, false},
    {"rope.scaling.original_context_length", READ, false},
    {"rope.scaling.yarn_beta_fast", READ, false},
    {"rope.scaling.yarn_beta_slow", READ, false},
    {"rope.scaling.attn_factor", IS_ONE, false},
    {"rope.scaling.yarn_ext_factor", IS_ONE, false},
    {"rope.scaling.yarn_attn_factor", IS_ONE, false},
    {"rope.scaling.finetuned", IGNORED, false},
    {"attention.sliding_window", READ, false},
    {"attention.sliding_window_pattern", READ, GEMMA},
    {"attention.key_length_swa", READ, GEMMA},
    {"attention.value_length_swa", READ, GEMMA},
    {"rope.dimension_count_swa", READ, GEMMA},
    {"rope.freq_base_swa", READ, GEMMA},
    {"attn_logit_softcapping", IS_ZERO, false},
    {"final_logit_softcapping", IS_ZERO, false},
    {"attention.causal", IS_TRUE, false},
    {"use_parallel_residual", IS_FALSE, false},
    {"expert_count", IS_ZERO, false},
    {"expert_used_count", IS_ZERO, false},
    {"tensor_data_layout", IS_META, false},
};

static const char *const values[] = {[IS_ZERO] = "0",
                                     [IS_ONE] = "1",
                                     [IS_TRUE] = "true",
                                     [IS_FALSE] = "false",
                                     [IS_META] = "Meta AI original pth"};

static bool holds(enum rule rule, const ls_gguf_value *v) {
    double x = 0;
    bool b = false;
    ls_gguf_str s = {NULL, 0};
    switch (rule) {
    case READ:
    case IGNORED:
        return true;
    case IS_ZERO:
    case IS_ONE:
        return ls_gguf_as_number(v, &x) && x == (rule == IS_ONE ? 1.0 : 0.0);
    case IS_TRUE:
    case IS_FALSE:
        return ls_gguf_as_bool(v, &b) && b == (rule == IS_TRUE);
    case IS_META:
    default:
        return ls_gguf_as_string(v, &s) && ls_gguf_str_is(s, values[rule]);
    }
}

static ls_status check_keys(const reader *r) {
    const size_t n = strlen(r->a->name) + 1;
    char prefix[KEY_ROOM];
    key_of(r, prefix, "");
    for (size_t i = 0; i < ls_gguf_n_keys(r->g); i++) {
        const ls_gguf_key *k = ls_gguf_key_at(r->g, i);
        if (!begins(k->key, prefix))
            continue;
        const ls_gguf_str rest = {k->key.s + n, k->key.n - n};
        size_t j = 0;
        while (j < sizeof keys / sizeof *keys &&
               (!ls_gguf_str_is(rest, keys[j].key) || (keys[j].gemma && !r->a->gemma)))
            j++;
        if (j == sizeof keys / sizeof *keys)
            return ls_gguf_fail(r->g, k->key, r->err,
                                "this program does not know the key, and leaving it out could "
                                "change the arithmetic");
        if (!holds(keys[j].rule, &k->value))
            return ls_gguf_fail(r->g, k->key, r->err,
                                "this changes the arithmetic and is not supported (only absent or "
                                "%s)",
                                values[keys[j].rule]);
    }
    return LS_OK;
}

static ls_status check_general(const ls_gguf *g, const arch **out, ls_err *err) {
    static const char name[] = "general.architecture", type[] = "general.type",
                      parts[] = "split.count", version[] = "general.quantization_version";
    char shown[64];
    ls_gguf_str s = {NULL, 0};
    int64_t n = 0;
    const ls_gguf_value *v = ls_gguf_find(g, name);
    if (!v || !ls_gguf_as_string(v, &s))
        return ls_gguf_fail(g, str_of(name), err, "is missing: the file does not say what it is");
    size_t i = 0;
    while (i < sizeof archs / sizeof *archs && !ls_gguf_str_is(s, archs[i].name))
        i++;
    if (i == sizeof archs / sizeof *archs)
        return ls_gguf_fail(g, str_of(name), err,
                            "\"%s\" is not a supported family (llama, qwen2, qwen3 and gemma3 are)",
                            ls_err_text(shown, sizeof shown, s.s, s.n));
    *out = &archs[i];
    v = ls_gguf_find(g, type);
    if (v && !(ls_gguf_as_string(v, &s) && ls_gguf_str_is(s, "model")))
        return ls_gguf_fail(g, str_of(type), err, "is not \"model\"; give a file of a whole model");
    v = ls_gguf_find(g, parts);
    if (v && !(ls_gguf_as_int(v, &n) && n <= 1))
        return ls_gguf_fail(g, str_of(parts), err,
                            "the model is split over files; join them first (gguf-split --merge)");
    v = ls_gguf_find(g, version);
    if (v && !(ls_gguf_as_int(v, &n) && n == 2))
        return ls_gguf_fail(g, str_of(version), err,
                            "blocks of another version than 2; quantise the model again");
    return LS_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The whole number at a full key, which has to be there. */
static ls_status whole(const reader *r, const char *key, int64_t min, int64_t max, int32_t *out) {
    const ls_gguf_value *v = ls_gguf_find(r->g, key);
    int64_t n = 0;
    if (!v)
        return ls_gguf_fail(r->g, str_of(key), r->err, "is missing; convert the model again");
    if (v->type == LS_GGUF_ARRAY)
        return ls_gguf_fail(r->g, str_of(key), r->err,
                            "is an array: layers that differ from each other are not supported");
    if (!ls_gguf_as_int(v, &n))
        return ls_gguf_fail(r->g, str_of(key), r->err, "is a %s; a whole number was expected",
                            ls_gguf_type_name(v->type));
    if (n < min || n > max)
        return ls_gguf_fail(r->g, str_of(key), r->err, "is %lld; %lld to %lld is supported",
                            (long long)n, (long long)min, (long long)max);
    *out = (int32_t)n;
    return LS_OK;
}

static ls_status whole_or(const reader *r, const char *key, int64_t min, int64_t max,
                          int32_t fallback, int32_t *out) {
    *out = fallback;
    return ls_gguf_find(r->g, key) ? whole(r, key, min, max, out) : LS_OK;
}

static ls_status read_int(const reader *r, const char *key, int64_t min, int64_t max,
                          int32_t *out) {
    char full[KEY_ROOM];
    return whole(r, key_of(r, full, key), min, max, out);
}

static ls_status read_int_or(const reader *r, const char *key, int64_t min, int64_t max,
                             int32_t fallback, int32_t *out) {
    char full[KEY_ROOM];
    return whole_or(r, key_of(r, full, key), min, max, fallback, out);
}

static bool has(const reader *r, const char *key) {
    char full[KEY_ROOM];
    return ls_gguf_find(r->g, key_of(r, full, key)) != NULL;
}

/* A number, fallback where there is none. */
static ls_status read_number(const reader *r, const char *key, double min, double max,
                             double fallback, double *out) {
    char full[KEY_ROOM];
    const ls_gguf_value *v = ls_gguf_find(r->g, key_of(r, full, key));
    *out = fallback;
    if (!v)
        return LS_OK;
    if (!ls_gguf_as_number(v, out))
        return ls_gguf_fail(r->g, str_of(full), r->err, "is a %s; a number was expected",
                            ls_gguf_type_name(v->type));
    if (!(*out >= min && *out <= max)) /* a NaN is neither */
        return ls_gguf_fail(r->g, str_of(full), r->err, "is %g; %g to %g is supported", *out, min,
                            max);
    return LS_OK;
}

static ls_status missing(const reader *r, const char *key) {
    char full[KEY_ROOM];
    return ls_gguf_fail(r->g, str_of(key_of(r, full, key)), r->err,
                        "is missing; convert the model again");
}

/* `key`, which has to be the width of a head when it is there. */
static ls_status must_be_width(const reader *r, const char *key, const char *why) {
    char full[KEY_ROOM];
    int32_t n = 0;
    LS_TRY(read_int_or(r, key, 0, INT32_MAX, r->c->head_dim, &n));
    if (n != r->c->head_dim)
        return ls_gguf_fail(r->g, str_of(key_of(r, full, key)), r->err,
                            "is %d, the heads are %d wide: %s", n, r->c->head_dim, why);
    return LS_OK;
}

static ls_status read_heads(const reader *r) {
    static const char kv[] = "attention.head_count_kv", width[] = "attention.key_length";
    static const char unlike[] = "keys and values of different widths are not supported",
                      partial[] = "partial rotation is not supported";
    char full[KEY_ROOM];
    ls_config *c = r->c;
    LS_TRY(read_int(r, "attention.head_count", 1, 1024, &c->n_heads));
    LS_TRY(read_int_or(r, kv, 1, 1024, c->n_heads, &c->n_kv));
    if (c->n_heads % c->n_kv != 0)
        return ls_gguf_fail(r->g, str_of(key_of(r, full, kv)), r->err,
                            "%d query heads cannot share %d key/value heads evenly", c->n_heads,
                            c->n_kv);
    key_of(r, full, width);
    if (!has(r, width) && c->dim % c->n_heads != 0)
        return ls_gguf_fail(r->g, str_of(full), r->err,
                            "is missing, and the width %d is not a multiple of the %d heads",
                            c->dim, c->n_heads);
    LS_TRY(read_int_or(r, width, 1, INT32_MAX, c->dim / c->n_heads, &c->head_dim));
    if (c->head_dim % 2 != 0 || c->head_dim > LS_HEAD_DIM_MAX || c->head_dim < 2)
        return ls_gguf_fail(r->g, str_of(full), r->err,
                            "a head width of %d; supported are even widths up to %d", c->head_dim,
                            LS_HEAD_DIM_MAX);
    LS_TRY(must_be_width(r, "attention.value_length", unlike));
    LS_TRY(must_be_width(r, "attention.key_length_swa", unlike));
    LS_TRY(must_be_width(r, "attention.value_length_swa", unlike));
    LS_TRY(must_be_width(r, "rope.dimension_count_swa", partial));
    return must_be_width(r, "rope.dimension_count", partial);
}

static ls_status read_vocab(const reader *r) {
    static const char rows[] = "token_embd.weight";
    if (has(r, "vocab_size"))
        return read_int(r, "vocab_size", 1, 4194304, &r->c->n_vocab);
    const ls_gguf_tensor *t = ls_gguf_tensor_find(r->g, rows);
    if (!t)
        return ls_gguf_fail(r->g, str_of(rows), r->err, "is missing; convert the model again");
    if (t->n_dims != 2 || t->dim[1] > 4194304)
        return ls_gguf_fail(r->g, str_of(rows), r->err,
                            "is no matrix of at most 4194304 rows: one for each token");
    r->c->n_vocab = (int32_t)t->dim[1];
    return LS_OK;
}

static ls_status read_sizes(const reader *r) {
    static const char eps_key[] = "attention.layer_norm_rms_epsilon";
    char full[KEY_ROOM];
    ls_config *c = r->c;
    LS_TRY(read_int(r, "embedding_length", 1, 131072, &c->dim));
    LS_TRY(read_int(r, "feed_forward_length", 1, 1048576, &c->ffn));
    LS_TRY(read_int(r, "block_count", 1, LS_LAYERS_MAX, &c->n_layers));
    LS_TRY(read_heads(r));
    LS_TRY(read_vocab(r));
    LS_TRY(read_int(r, "context_length", 1, 16777216, &c->n_pos));
    double eps = 0;
    if (!has(r, eps_key))
        return missing(r, eps_key);
    LS_TRY(read_number(r, eps_key, 0, 1, 0, &eps));
    c->rms_eps = (float)eps;
    if (!(c->rms_eps > 0))
        return ls_gguf_fail(r->g, str_of(key_of(r, full, eps_key)), r->err,
                            "is %g; a row of zeros needs it above zero", eps);
    c->tied = !ls_gguf_tensor_find(r->g, "output.weight");
    /* of gemma3, the largest model (62 layers) alone scales otherwise; no key says so */
    c->query_scalar = r->a->gemma && c->n_layers == 62 ? c->dim / c->n_heads : c->head_dim;
    return LS_OK;
}

/* ---- rotation and windows -------------------------------------------------------------------- */

/* rope_freqs.weight: what each pair's frequency is divided by. */
static ls_status read_factors(const reader *r, const ls_gguf_tensor *t) {
    ls_rope_scaling *rope = &r->c->rope;
    const uint64_t n = (uint64_t)r->c->head_dim / 2;
    if (rope->kind != LS_ROPE_PLAIN || r->a->gemma)
        return ls_gguf_fail(r->g, t->name, r->err,
                            "a table of factors beside other rope scaling is not supported");
    if (t->type != LS_GGML_F32 || t->n_dims != 1 || t->dim[0] != n)
        return ls_gguf_fail(r->g, t->name, r->err, "is no F32 vector of %d: a factor for each pair",
                            (int)n);
    memcpy(rope->table, t->data, (size_t)n * sizeof *rope->table);
    for (size_t i = 0; i < n; i++)
        if (!(rope->table[i] >= 1e-6f && rope->table[i] <= 1e15f))
            return ls_gguf_fail(r->g, t->name, r->err, "factor %d is %g", (int)i,
                                (double)rope->table[i]);
    rope->kind = LS_ROPE_TABLE;
    return LS_OK;
}

/* Without a type a factor is linear. */
static ls_status read_scaling(const reader *r) {
    static const char type[] = "rope.scaling.type", factor[] = "rope.scaling.factor",
                      old[] = "rope.scale_linear",
                      original[] = "rope.scaling.original_context_length";
    ls_rope_scaling *rope = &r->c->rope;
    char full[KEY_ROOM], shown[64];
    int32_t n = 0;
    LS_TRY(read_number(r, old, 1, 1e15, 1, &rope->factor));
    LS_TRY(read_number(r, factor, 1, 1e15, rope->factor, &rope->factor));
    const ls_gguf_value *v = ls_gguf_find(r->g, key_of(r, full, type));
    ls_gguf_str name = {"linear", 6};
    if (v && !ls_gguf_as_string(v, &name))
        return ls_gguf_fail(r->g, str_of(full), r->err, "is no string");
    const bool none = ls_gguf_str_is(name, "none"), yarn = ls_gguf_str_is(name, "yarn");
    if (!none && !yarn && !ls_gguf_str_is(name, "linear"))
        return ls_gguf_fail(r->g, str_of(full), r->err,
                            "\"%s\" is not supported (none, linear and yarn are)",
                            ls_err_text(shown, sizeof shown, name.s, name.n));
    if (none && rope->factor != 1)
        return ls_gguf_fail(r->g, str_of(full), r->err, "is none, and there is a factor of %g",
                            rope->factor);
    if (v && !none && !has(r, factor) && !has(r, old))
        return missing(r, factor);
    if (!yarn) {
        rope->kind = rope->factor == 1 ? LS_ROPE_PLAIN : LS_ROPE_LINEAR;
        return LS_OK;
    }
    rope->kind = LS_ROPE_YARN;
    rope->truncate = true;
    rope->attention = ls_rope_attention(rope->factor, 0, 0);
    LS_TRY(read_int(r, original, 1, 16777216, &n));
    rope->original = n;
    LS_TRY(read_number(r, "rope.scaling.yarn_beta_fast", 1e-6, 1e15, 32, &rope->beta_fast));
    LS_TRY(read_number(r, "rope.scaling.yarn_beta_slow", 1e-6, 1e15, 1, &rope->beta_slow));
    if (rope->beta_fast < rope->beta_slow || !(r->c->rope_theta > 1))
        return ls_gguf_fail(
            r->g, str_of(full), r->err,
            "yarn needs yarn_beta_fast above yarn_beta_slow, and a freq_base above 1");
    ls_config_lengthen(r->c);
    return LS_OK;
}

/* gemma3's local layers: every layer but each pattern-th, or a list that says it of each. */
static ls_status read_pattern(const reader *r) {
    static const char key[] = "attention.sliding_window_pattern";
    char full[KEY_ROOM];
    const ls_gguf_value *v = ls_gguf_find(r->g, key_of(r, full, key));
    int32_t pattern = 6;
    if (!v || v->type != LS_GGUF_ARRAY) {
        LS_TRY(read_int_or(r, key, 1, LS_LAYERS_MAX, 6, &pattern));
        for (int32_t l = 0; l < r->c->n_layers; l++)
            r->c->local[l] = (l + 1) % pattern != 0;
        return LS_OK;
    }
    ls_gguf_value item;
    size_t at = 0;
    if (v->n != (uint64_t)r->c->n_layers)
        return ls_gguf_fail(r->g, str_of(full), r->err, "has %llu entries for %d layers",
                            (unsigned long long)v->n, r->c->n_layers);
    for (int32_t l = 0; l < r->c->n_layers; l++)
        if (!ls_gguf_next(v, &at, &item) || !ls_gguf_as_bool(&item, &r->c->local[l]))
            return ls_gguf_fail(r->g, str_of(full), r->err,
                                "is no list of true and false, one for each layer");
    return LS_OK;
}

static ls_status read_window(const reader *r) {
    static const char key[] = "attention.sliding_window";
    char full[KEY_ROOM];
    ls_config *c = r->c;
    LS_TRY(read_int_or(r, key, 0, INT32_MAX, 0, &c->window));
    if (r->a->gemma && c->window == 0)
        return missing(r, key);
    if (!r->a->windows && c->window > 0 && c->window < c->n_pos)
        return ls_gguf_fail(
            r->g, str_of(key_of(r, full, key)), r->err,
            "is %d of %d positions; which layers have the window is not in a file of "
            "%s, so it is not supported (only absent, 0, or the context)",
            c->window, c->n_pos, r->a->name);
    for (int32_t l = 0; l < c->n_layers; l++)
        c->local[l] = r->a->windows && c->window > 0;
    if (r->a->gemma)
        LS_TRY(read_pattern(r));
    ls_config_settle(c);
    return LS_OK;
}

static ls_status read_rope(const reader *r) {
    ls_config *c = r->c;
    LS_TRY(read_number(r, "rope.freq_base", 1, 1e15, 10000, &c->rope_theta));
    if (r->a->gemma)
        LS_TRY(read_number(r, "rope.freq_base_swa", 1, 1e15, 10000, &c->rope_theta_local));
    LS_TRY(read_scaling(r));
    const ls_gguf_tensor *t = ls_gguf_tensor_find(r->g, "rope_freqs.weight");
    return t ? read_factors(r, t) : LS_OK;
}

/* ---- special ids ----------------------------------------------------------------------------- */

static void add_eos(ls_config *c, int32_t id) {
    if (id < 0 || ls_config_is_eos(c, id))
        return;
    int32_t i = c->n_eos++;
    for (; i > 0 && c->eos[i - 1] > id; i--)
        c->eos[i] = c->eos[i - 1];
    c->eos[i] = id;
}

static ls_status read_ids(const reader *r) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    ls_config *c = r->c;
    LS_TRY(whole_or(r, "tokenizer.ggml.bos_token_id", 0, c->n_vocab - 1, -1, &c->bos));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = -1;
        LS_TRY(whole_or(r, ends[i], 0, c->n_vocab - 1, -1, &id));
        add_eos(c, id);
    }
    return LS_OK;
}

ls_status ls_gguf_config_read(const ls_gguf *g, ls_config *out, ls_err *err) {
    ls_config c = {.bos = -1};
    reader r = {.g = g, .c = &c, .err = err};
    LS_TRY(check_general(g, &r.a, err));
    strcpy(c.family, r.a->name);
    c.qkv_bias = r.a->qkv_bias;
    c.qk_norm = r.a->qk_norm;
    c.post_norms = c.embed_scaled = c.gelu = r.a->gemma;
    LS_TRY(check_keys(&r));
    LS_TRY(read_sizes(&r));
    LS_TRY(read_rope(&r));
    LS_TRY(read_window(&r));
    LS_TRY(read_ids(&r));
    *out = c;
    return LS_OK;
}
