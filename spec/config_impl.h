/* config_impl.h - the inside of config.json's reader: config.c reads families, sizes and ids,
 * config_rope.c the rotation, config_window.c which layers see a window.
 * `at` is the object that holds the text model's fields: the file's root, or its text_config. */
#ifndef LS_CONFIG_IMPL_H
#define LS_CONFIG_IMPL_H

#include "config.h"
#include "json.h"

enum window {
    WINDOW_NONE,   /* the family has none: a declared one is refused unless it is switched off */
    WINDOW_STATED, /* in every layer; absent means 4096 and there is no switch */
    WINDOW_SWITCH, /* in the layers from max_window_layers on, where use_sliding_window is true */
    WINDOW_PATTERN /* in all layers but every sliding_window_pattern-th */
};

/* What a field means that is absent, where the files of a family leave much to its defaults. */
typedef struct ls_config_defaults {
    int32_t n_heads, n_kv, head_dim, n_vocab, n_pos, window, pattern;
    double theta, theta_local, query_scalar;
    const char *act;
    bool tied;
} ls_config_defaults;

/* What a family's name says and its fields do not. `states`: sizes whose defaults differ between
 * families have to be in the file. */
typedef struct ls_family {
    const char *type, *architecture;
    enum window window;
    bool states, states_head_dim;
    bool qkv_bias, qk_norm;
    bool nested;                     /* the text model is in text_config, beside others */
    const ls_config_defaults *gemma; /* NULL: another family */
} ls_family;

/* rope_theta, rope_scaling, rope_parameters, rope_local_base_freq; yarn may lengthen c->n_pos. */
ls_status ls_config_rope(const ls_json_at *at, const ls_family *f, ls_config *c, ls_err *err);
/* sliding_window, its switches and layer_types; c->n_layers and c->n_pos are there. */
ls_status ls_config_window(const ls_json_at *at, const ls_family *f, ls_config *c, ls_err *err);

#endif
