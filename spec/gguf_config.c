#include "gguf_config.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "llama."

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
    IGNORED, /* means something only beside a key that is refused */
    IS_ZERO, /* no effect at this value, refused at any other */
    IS_ONE,
    IS_TRUE,
    IS_FALSE,
    IS_NONE, /* the word none */
    IS_META  /* the one layout of tensors that llama files have */
};

static const struct {
    const char *key; /* behind the prefix */
    enum rule rule;
} keys[] = {
    {"context_length", READ},
    {"embedding_length", READ},
    {"block_count", READ},
    {"feed_forward_length", READ},
    {"vocab_size", READ},
    {"attention.head_count", READ},
    {"attention.head_count_kv", READ},
    {"attention.key_length", READ},
    {"attention.value_length", READ},
    {"attention.layer_norm_rms_epsilon", READ},
    {"rope.dimension_count", READ},
    {"rope.freq_base", READ},
    {"rope.scaling.type", IS_NONE},
    {"rope.scaling.factor", IS_ONE},
    {"rope.scaling.attn_factor", IS_ONE},
    {"rope.scale_linear", IS_ONE},
    {"rope.scaling.original_context_length", IGNORED},
    {"rope.scaling.finetuned", IGNORED},
    {"attention.sliding_window", IS_ZERO},
    {"attention.causal", IS_TRUE},
    {"use_parallel_residual", IS_FALSE},
    {"expert_count", IS_ZERO},
    {"expert_used_count", IS_ZERO},
    {"tensor_data_layout", IS_META},
};

static const char *const values[] = {
    [IS_ZERO] = "0",      [IS_ONE] = "1",     [IS_TRUE] = "true",
    [IS_FALSE] = "false", [IS_NONE] = "none", [IS_META] = "Meta AI original pth"};

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
    case IS_NONE:
    case IS_META:
    default:
        return ls_gguf_as_string(v, &s) && ls_gguf_str_is(s, values[rule]);
    }
}

static ls_status check_keys(const ls_gguf *g, ls_err *err) {
    for (size_t i = 0; i < ls_gguf_n_keys(g); i++) {
        const ls_gguf_key *k = ls_gguf_key_at(g, i);
        if (!begins(k->key, PREFIX))
            continue;
        const size_t n = strlen(PREFIX);
        const ls_gguf_str rest = {k->key.s + n, k->key.n - n};
        size_t j = 0;
        while (j < sizeof keys / sizeof *keys && !ls_gguf_str_is(rest, keys[j].key))
            j++;
        if (j == sizeof keys / sizeof *keys)
            return ls_gguf_fail(g, k->key, err,
                                "this program does not know the key, and leaving it out could "
                                "change the arithmetic");
        if (!holds(keys[j].rule, &k->value))
            return ls_gguf_fail(g, k->key, err,
                                "this changes the arithmetic and is not supported (only absent or "
                                "%s)",
                                values[keys[j].rule]);
    }
    return LS_OK;
}

static ls_status check_general(const ls_gguf *g, ls_err *err) {
    static const char arch[] = "general.architecture", type[] = "general.type",
                      parts[] = "split.count", version[] = "general.quantization_version";
    char shown[64];
    ls_gguf_str s = {NULL, 0};
    int64_t n = 0;
    const ls_gguf_value *v = ls_gguf_find(g, arch);
    if (!v || !ls_gguf_as_string(v, &s))
        return ls_gguf_fail(g, str_of(arch), err, "is missing: the file does not say what it is");
    if (!ls_gguf_str_is(s, "llama"))
        return ls_gguf_fail(g, str_of(arch), err, "\"%s\" is not a supported family (llama is)",
                            ls_err_text(shown, sizeof shown, s.s, s.n));
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

static ls_status read_int(const ls_gguf *g, const char *key, int64_t min, int64_t max, int32_t *out,
                          ls_err *err) {
    const ls_gguf_value *v = ls_gguf_find(g, key);
    int64_t n = 0;
    if (!v)
        return ls_gguf_fail(g, str_of(key), err, "is missing; convert the model again");
    if (v->type == LS_GGUF_ARRAY)
        return ls_gguf_fail(g, str_of(key), err,
                            "is an array: layers that differ from each other are not supported");
    if (!ls_gguf_as_int(v, &n))
        return ls_gguf_fail(g, str_of(key), err, "is a %s; a whole number was expected",
                            ls_gguf_type_name(v->type));
    if (n < min || n > max)
        return ls_gguf_fail(g, str_of(key), err, "is %lld; %lld to %lld is supported", (long long)n,
                            (long long)min, (long long)max);
    *out = (int32_t)n;
    return LS_OK;
}

static ls_status read_int_or(const ls_gguf *g, const char *key, int64_t min, int64_t max,
                             int32_t fallback, int32_t *out, ls_err *err) {
    *out = fallback;
    return ls_gguf_find(g, key) ? read_int(g, key, min, max, out, err) : LS_OK;
}

static ls_status read_number(const ls_gguf *g, const char *key, double min, double max,
                             double fallback, double *out, ls_err *err) {
    const ls_gguf_value *v = ls_gguf_find(g, key);
    *out = fallback;
    if (!v)
        return LS_OK;
    if (!ls_gguf_as_number(v, out))
        return ls_gguf_fail(g, str_of(key), err, "is a %s; a number was expected",
                            ls_gguf_type_name(v->type));
    if (!(*out >= min && *out <= max)) /* a NaN is neither */
        return ls_gguf_fail(g, str_of(key), err, "is %g; %g to %g is supported", *out, min, max);
    return LS_OK;
}

/* `key`, which has to be `want` when it is there. */
static ls_status must_be(const ls_gguf *g, const char *key, int32_t want, const char *why,
                         ls_err *err) {
    int32_t n = want;
    LS_TRY(read_int_or(g, key, 0, INT32_MAX, want, &n, err));
    if (n != want)
        return ls_gguf_fail(g, str_of(key), err, "is %d, the heads are %d wide: %s", n, want, why);
    return LS_OK;
}

static ls_status read_heads(const ls_gguf *g, ls_config *c, ls_err *err) {
    static const char kv[] = PREFIX "attention.head_count_kv",
                      width[] = PREFIX "attention.key_length";
    LS_TRY(read_int(g, PREFIX "attention.head_count", 1, 1024, &c->n_heads, err));
    LS_TRY(read_int_or(g, kv, 1, 1024, c->n_heads, &c->n_kv, err));
    if (c->n_heads % c->n_kv != 0)
        return ls_gguf_fail(g, str_of(kv), err,
                            "%d query heads cannot share %d key/value heads evenly", c->n_heads,
                            c->n_kv);
    if (!ls_gguf_find(g, width) && c->dim % c->n_heads != 0)
        return ls_gguf_fail(g, str_of(width), err,
                            "is missing, and the width %d is not a multiple of the %d heads",
                            c->dim, c->n_heads);
    LS_TRY(read_int_or(g, width, 1, INT32_MAX, c->dim / c->n_heads, &c->head_dim, err));
    if (c->head_dim % 2 != 0 || c->head_dim > LS_HEAD_DIM_MAX || c->head_dim < 2)
        return ls_gguf_fail(g, str_of(width), err,
                            "a head width of %d; supported are even widths up to %d", c->head_dim,
                            LS_HEAD_DIM_MAX);
    LS_TRY(must_be(g, PREFIX "attention.value_length", c->head_dim,
                   "keys and values of different widths are not supported", err));
    return must_be(g, PREFIX "rope.dimension_count", c->head_dim,
                   "partial rotation is not supported", err);
}

static ls_status read_vocab(const ls_gguf *g, ls_config *c, ls_err *err) {
    static const char key[] = PREFIX "vocab_size", rows[] = "token_embd.weight";
    if (ls_gguf_find(g, key))
        return read_int(g, key, 1, 4194304, &c->n_vocab, err);
    const ls_gguf_tensor *t = ls_gguf_tensor_find(g, rows);
    if (!t)
        return ls_gguf_fail(g, str_of(rows), err, "is missing; convert the model again");
    if (t->n_dims != 2 || t->dim[1] > 4194304)
        return ls_gguf_fail(g, str_of(rows), err,
                            "is no matrix of at most 4194304 rows: one for each token");
    c->n_vocab = (int32_t)t->dim[1];
    return LS_OK;
}

static ls_status read_sizes(const ls_gguf *g, ls_config *c, ls_err *err) {
    static const char eps_key[] = PREFIX "attention.layer_norm_rms_epsilon";
    LS_TRY(read_int(g, PREFIX "embedding_length", 1, 131072, &c->dim, err));
    LS_TRY(read_int(g, PREFIX "feed_forward_length", 1, 1048576, &c->ffn, err));
    LS_TRY(read_int(g, PREFIX "block_count", 1, 1024, &c->n_layers, err));
    LS_TRY(read_heads(g, c, err));
    LS_TRY(read_vocab(g, c, err));
    LS_TRY(read_int(g, PREFIX "context_length", 1, 16777216, &c->n_pos, err));
    double eps = 0;
    if (!ls_gguf_find(g, eps_key))
        return ls_gguf_fail(g, str_of(eps_key), err, "is missing; convert the model again");
    LS_TRY(read_number(g, eps_key, 0, 1, 0, &eps, err));
    c->rms_eps = (float)eps;
    if (!(c->rms_eps > 0))
        return ls_gguf_fail(g, str_of(eps_key), err, "is %g; a row of zeros needs it above zero",
                            eps);
    c->tied = !ls_gguf_tensor_find(g, "output.weight");
    return read_number(g, PREFIX "rope.freq_base", 1, 1e15, 10000, &c->rope_theta, err);
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

static ls_status read_ids(const ls_gguf *g, ls_config *c, ls_err *err) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    LS_TRY(read_int_or(g, "tokenizer.ggml.bos_token_id", 0, c->n_vocab - 1, -1, &c->bos, err));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = -1;
        LS_TRY(read_int_or(g, ends[i], 0, c->n_vocab - 1, -1, &id, err));
        add_eos(c, id);
    }
    return LS_OK;
}

ls_status ls_gguf_config_read(const ls_gguf *g, ls_config *out, ls_err *err) {
    ls_config c = {.bos = -1};
    LS_TRY(check_general(g, err));
    strcpy(c.family, "llama");
    LS_TRY(check_keys(g, err));
    LS_TRY(read_sizes(g, &c, err));
    LS_TRY(read_ids(g, &c, err));
    *out = c;
    return LS_OK;
}
