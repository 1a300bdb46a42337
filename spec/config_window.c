/* config_window.c - which layers of a model see a window of their keys, and how long it is. */
#include <string.h>

#include "config_impl.h"

/* The window as the file has it: *out 0 where there is none. */
static ls_status read_length(const ls_json_at *at, const ls_family *f, const ls_config *c,
                             int32_t *out, ls_err *err) {
    const ls_json_at window = ls_json_key(at, "sliding_window");
    const ls_json_at on = ls_json_key(at, "use_sliding_window");
    bool used = true;
    int64_t w = f->gemma ? f->gemma->window : 0;
    *out = 0;
    if (f->window == WINDOW_NONE || f->window == WINDOW_SWITCH)
        LS_TRY(ls_json_bool_or(at, "use_sliding_window", true, &used, err));
    const bool asked = f->window == WINDOW_SWITCH && !ls_json_none(&on) && used;
    if (!window.value && (f->window == WINDOW_STATED || asked))
        return ls_json_fail(&window, err, "is missing, which in %s means 4096; null is no window",
                            f->type);
    if (ls_json_none(&window) && window.value && f->gemma)
        return ls_json_fail(&window, err, "is null, and %s has local layers", f->type);
    if (!used || (ls_json_none(&window) && !f->gemma))
        return LS_OK;
    if (f->window == WINDOW_NONE)
        return ls_json_fail(&window, err, "sliding-window attention is not part of %s", f->type);
    if (!ls_json_none(&window))
        LS_TRY(ls_json_as_int(&window, 1, INT32_MAX, &w, err));
    if (f->window == WINDOW_SWITCH && !asked && w < c->n_pos)
        return ls_json_fail(&window, err,
                            "is %d of %d positions, and use_sliding_window is missing: state "
                            "whether it counts (true or false)",
                            (int)w, c->n_pos);
    *out = (int32_t)w;
    return LS_OK;
}

/* The layers that see it where layer_types does not say. */
static ls_status by_family(const ls_json_at *at, const ls_family *f, bool listed, ls_config *c,
                           ls_err *err) {
    int64_t from = 0, pattern = f->gemma ? f->gemma->pattern : 1;
    const ls_json_at max = ls_json_key(at, "max_window_layers");
    if (f->window == WINDOW_SWITCH && c->window && !listed) {
        if (ls_json_none(&max) && c->window < c->n_pos)
            return ls_json_fail(&max, err, "is missing, and %s has a default of its own", f->type);
        LS_TRY(ls_json_int_or(at, "max_window_layers", 0, INT32_MAX, 0, &from, err));
    }
    if (f->gemma) {
        static const char *const keys[] = {"_sliding_window_pattern", "sliding_window_pattern"};
        for (size_t i = 0; i < 2; i++)
            LS_TRY(ls_json_int_or(at, keys[i], 1, LS_LAYERS_MAX, pattern, &pattern, err));
    }
    for (int32_t l = 0; l < c->n_layers; l++)
        c->local[l] = c->window && (f->gemma ? (l + 1) % pattern != 0 : l >= from);
    return LS_OK;
}

static ls_status by_list(const ls_json_at *types, const ls_family *f, ls_config *c, ls_err *err) {
    size_t n = 0;
    LS_TRY(ls_json_as_array(types, &n, err));
    if (n != (size_t)c->n_layers)
        return ls_json_fail(types, err, "has %zu entries for %d layers", n, c->n_layers);
    for (size_t i = 0; i < n; i++) {
        const ls_json_at at = ls_json_item(types, i);
        const char *type = NULL;
        LS_TRY(ls_json_as_string(&at, &type, NULL, err));
        const bool local = strcmp(type, "sliding_attention") == 0;
        if (!local && strcmp(type, "full_attention") != 0)
            return ls_json_fail(&at, err,
                                "only full_attention and sliding_attention layers are supported");
        if (local && !c->window)
            return ls_json_fail(&at, err, "is a layer with a window, and there is none");
        if (f->window == WINDOW_STATED && local != (c->window > 0))
            return ls_json_fail(
                &at, err, "differs from sliding_window, which in %s is every layer's", f->type);
        c->local[i] = local;
    }
    return LS_OK;
}

ls_status ls_config_window(const ls_json_at *at, const ls_family *f, ls_config *c, ls_err *err) {
    const ls_json_at types = ls_json_key(at, "layer_types");
    const bool listed = !ls_json_none(&types);
    LS_TRY(read_length(at, f, c, &c->window, err));
    LS_TRY(by_family(at, f, listed, c, err));
    if (listed)
        LS_TRY(by_list(&types, f, c, err));
    ls_config_settle(c);
    return LS_OK;
}
