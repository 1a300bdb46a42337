/* config_rope.c - the rotation of a model: bases, and the scaling of its frequencies. */
#include <stdlib.h>
#include <string.h>

#include "config_impl.h"

#define FULL "full_attention"
#define LOCAL "sliding_attention"

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
    static const ls_rope_kind kinds[] = {LS_ROPE_PLAIN, LS_ROPE_LINEAR, LS_ROPE_LLAMA3,
                                         LS_ROPE_YARN, LS_ROPE_DYNAMIC};
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    bool known = false;
    for (size_t i = 0; i < 2; i++) {
        ls_json_at type = ls_json_key(at, keys[i]);
        const char *name = NULL;
        size_t k = 0;
        if (ls_json_none(&type))
            continue;
        LS_TRY(ls_json_as_string(&type, &name, NULL, err));
        while (k < N_KINDS && strcmp(name, ls_rope_kind_name(kinds[k])) != 0)
            k++;
        if (k == N_KINDS) {
            char shown[64];
            return ls_json_fail(&type, err,
                                "rope scaling of type \"%s\" is not supported (default, linear, "
                                "llama3, yarn and dynamic are)",
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

static ls_status read_llama3(const ls_json_at *at, ls_rope_scaling *c, ls_err *err) {
    LS_TRY(scaling_number(at, "low_freq_factor", 1e-6, &c->low, err));
    LS_TRY(scaling_number(at, "high_freq_factor", 1e-6, &c->high, err));
    LS_TRY(scaling_number(at, "original_max_position_embeddings", 1, &c->original, err));
    const ls_json_at high = ls_json_key(at, "high_freq_factor");
    if (!(c->high > c->low))
        return ls_json_fail(&high, err, "%g is not above low_freq_factor, %g", c->high, c->low);
    return LS_OK;
}

static ls_status read_yarn(const ls_json_at *at, ls_rope_scaling *c, ls_err *err) {
    double mscale = 0, all = 0;
    LS_TRY(scaling_number(at, "original_max_position_embeddings", 1, &c->original, err));
    LS_TRY(ls_json_number_or(at, "beta_fast", 1e-6, 1e15, 32, &c->beta_fast, err));
    LS_TRY(ls_json_number_or(at, "beta_slow", 1e-6, 1e15, 1, &c->beta_slow, err));
    LS_TRY(ls_json_bool_or(at, "truncate", true, &c->truncate, err));
    LS_TRY(ls_json_number_or(at, "mscale", 0, 1e6, 0, &mscale, err));
    LS_TRY(ls_json_number_or(at, "mscale_all_dim", 0, 1e6, 0, &all, err));
    const ls_json_at fast = ls_json_key(at, "beta_fast");
    if (c->beta_fast < c->beta_slow)
        return ls_json_fail(&fast, err, "is %g, below beta_slow, %g", c->beta_fast, c->beta_slow);
    return ls_json_number_or(at, "attention_factor", 1e-6, 1e6,
                             ls_rope_attention(c->factor, mscale, all), &c->attention, err);
}

/* rope_scaling, and rope_parameters which newer files have instead. Nothing in them is ignored. */
static ls_status read_scaling(const ls_json_at *at, ls_rope_scaling *out, ls_err *err) {
    static const char *const linear[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                         "factor"};
    static const char *const llama3[] = {"rope_type",
                                         "type",
                                         "rope_theta",
                                         "factor",
                                         "partial_rotary_factor",
                                         "low_freq_factor",
                                         "high_freq_factor",
                                         "original_max_position_embeddings"};
    static const char *const yarn[] = {"rope_type",
                                       "type",
                                       "rope_theta",
                                       "factor",
                                       "partial_rotary_factor",
                                       "original_max_position_embeddings",
                                       "attention_factor",
                                       "beta_fast",
                                       "beta_slow",
                                       "truncate",
                                       "mscale",
                                       "mscale_all_dim"};
    ls_rope_scaling c = {.kind = LS_ROPE_PLAIN};
    double partial = 1;
    LS_TRY(ls_json_as_object(at, err));
    LS_TRY(scaling_kind(at, &c.kind, err));
    if (c.kind == LS_ROPE_LLAMA3)
        LS_TRY(ls_json_only(at, llama3, sizeof llama3 / sizeof *llama3, err));
    else if (c.kind == LS_ROPE_YARN)
        LS_TRY(ls_json_only(at, yarn, sizeof yarn / sizeof *yarn, err));
    else /* the factor is the last of the names */
        LS_TRY(ls_json_only(at, linear, c.kind == LS_ROPE_PLAIN ? 4 : 5, err));
    const ls_json_at rotated = ls_json_key(at, "partial_rotary_factor");
    LS_TRY(ls_json_number_or(at, "partial_rotary_factor", 0, 1, 1, &partial, err));
    if (partial != 1)
        return ls_json_fail(&rotated, err, "partial rotation is not supported (only 1)");
    if (c.kind != LS_ROPE_PLAIN)
        LS_TRY(scaling_number(at, "factor", 1, &c.factor, err));
    if (c.kind == LS_ROPE_LLAMA3)
        LS_TRY(read_llama3(at, &c, err));
    if (c.kind == LS_ROPE_YARN)
        LS_TRY(read_yarn(at, &c, err));
    *out = c;
    return LS_OK;
}

static bool same_scaling(const ls_rope_scaling *a, const ls_rope_scaling *b) {
    return a->kind == b->kind && a->factor == b->factor && a->low == b->low && a->high == b->high &&
           a->original == b->original && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention == b->attention &&
           a->truncate == b->truncate;
}

/* The rotation of local layers: a base, which nothing scales. */
static ls_status read_local(const ls_json_at *at, const ls_json_at *parameters, const ls_family *f,
                            ls_config *c, ls_err *err) {
    const ls_json_at inner = ls_json_key(parameters, LOCAL);
    const ls_json_at outer = ls_json_key(at, "rope_local_base_freq");
    ls_rope_scaling scaling;
    double stated = f->gemma->theta_local;
    LS_TRY(ls_json_number_or(at, "rope_local_base_freq", 1, 1e15, stated, &stated, err));
    c->rope_theta_local = stated;
    if (ls_json_none(&inner))
        return LS_OK;
    LS_TRY(read_scaling(&inner, &scaling, err));
    if (scaling.kind != LS_ROPE_PLAIN)
        return ls_json_fail(&inner, err, "rope scaling of local layers is not supported");
    LS_TRY(ls_json_number_or(&inner, "rope_theta", 1, 1e15, stated, &c->rope_theta_local, err));
    if (!ls_json_none(&outer) && c->rope_theta_local != stated)
        return ls_json_fail(&inner, err, "rope_theta is %g here and %g in rope_local_base_freq",
                            c->rope_theta_local, stated);
    return LS_OK;
}

ls_status ls_config_rope(const ls_json_at *at, const ls_family *f, ls_config *c, ls_err *err) {
    static const char *const kinds[] = {FULL, LOCAL};
    const ls_json_at parameters = ls_json_key(at, "rope_parameters");
    const ls_json_at full = ls_json_key(&parameters, FULL);
    const bool by_kind = f->gemma && json_is_object(parameters.value) && full.value;
    const ls_json_at where[] = {ls_json_key(at, "rope_scaling"), by_kind ? full : parameters};
    double theta[2] = {0, 0}; /* stated inside */
    bool known = false;
    if (by_kind)
        LS_TRY(ls_json_only(&parameters, kinds, 2, err));
    else if (f->gemma && !ls_json_none(&parameters)) /* transformers would not look at it */
        return ls_json_fail(&parameters, err, "has no " FULL ": in %s it is by kind of layer",
                            f->type);
    for (size_t i = 0; i < 2; i++) {
        ls_rope_scaling scaling;
        if (ls_json_none(&where[i]))
            continue;
        LS_TRY(read_scaling(&where[i], &scaling, err));
        if (known && !same_scaling(&scaling, &c->rope))
            return ls_json_fail(&where[i], err, "differs from rope_scaling");
        LS_TRY(ls_json_number_or(&where[i], "rope_theta", 1, 1e15, 0, &theta[i], err));
        c->rope = scaling;
        known = true;
    }
    const double inner = theta[1] > 0 ? theta[1] : theta[0];
    const double fallback = inner > 0 ? inner : f->gemma ? f->gemma->theta : 10000.0;
    const ls_json_at outer = ls_json_key(at, "rope_theta");
    LS_TRY(ls_json_number_or(at, "rope_theta", 1, 1e15, fallback, &c->rope_theta, err));
    for (size_t i = 0; i < 2; i++)
        if (theta[i] > 0 && theta[i] != c->rope_theta)
            return ls_json_fail(&where[i], err, "rope_theta is %g here and %g elsewhere", theta[i],
                                c->rope_theta);
    if (f->gemma)
        LS_TRY(read_local(at, &parameters, f, c, err));
    if (c->rope.kind == LS_ROPE_YARN && !(c->rope_theta > 1))
        return ls_json_fail(&outer, err, "is 1, and yarn needs a base above it");
    ls_config_lengthen(c);
    return LS_OK;
}
