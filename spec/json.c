#include "json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "utf8.h"

/* ---- text ------------------------------------------------------------------------------------ */

static ls_status text_fail(ls_err *err, const char *name, const char *reason) {
    char shown[256];
    return ls_fail(err, LS_ERR_INPUT, "%s: %s",
                   ls_err_text(shown, sizeof shown, name, strlen(name)), reason);
}

static ls_status text_fail_at(ls_err *err, const char *name, size_t line, size_t column,
                              const char *reason) {
    char shown[256], why[320];
    return ls_fail(err, LS_ERR_INPUT, "%s: line %zu, column %zu: %s",
                   ls_err_text(shown, sizeof shown, name, strlen(name)), line, column,
                   ls_err_text(why, sizeof why, reason, strlen(reason)));
}

/* Everything that has to be known before a recursive parser may see the text. */
static ls_status scan(const char *text, size_t n, const char *name, ls_err *err) {
    const unsigned char *t = (const unsigned char *)text;
    if (n == 0)
        return text_fail(err, name, "is empty; JSON was expected");
    if (n >= 2 && ((t[0] == 0xFF && t[1] == 0xFE) || (t[0] == 0xFE && t[1] == 0xFF) ||
                   (t[0] == 0) != (t[1] == 0)))
        return text_fail(err, name, "is UTF-16 or UTF-32 text; convert it to UTF-8");
    size_t depth = 0, line = 1, line_start = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = t[i];
        if (c == 0)
            return text_fail_at(err, name, line, i - line_start + 1, "a zero byte in the text");
        if (c >= 0x80) {
            ls_utf8_step step = ls_utf8_next(t + i, n - i);
            if (step.kind != LS_UTF8_CHAR)
                return text_fail_at(err, name, line, i - line_start + 1, "not UTF-8");
            i += step.len - 1;
            continue;
        }
        if (c == '\n') {
            line++;
            line_start = i + 1;
        }
        if (in_string) {
            if (c == '\\' && i + 1 < n && (t[i + 1] == '"' || t[i + 1] == '\\'))
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > LS_JSON_DEPTH) {
                char why[64];
                snprintf(why, sizeof why, "nested deeper than %d levels", LS_JSON_DEPTH);
                return text_fail_at(err, name, line, i - line_start + 1, why);
            }
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return LS_OK;
}

ls_status ls_json_parse(const char *text, size_t n, const char *name, ls_json *out, ls_err *err) {
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a byte-order mark means UTF-8: skip */
        text += 3;
        n -= 3;
    }
    LS_TRY(scan(text, n, name, err));
    json_error_t e;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) {
        if (json_error_code(&e) == json_error_out_of_memory)
            return ls_fail(err, LS_ERR_MEMORY, "out of memory while reading JSON");
        size_t line = e.line > 0 ? (size_t)e.line : 1;
        size_t column = e.column > 0 ? (size_t)e.column : 1;
        return text_fail_at(err, name, line, column, e.text);
    }
    char *copy = malloc(strlen(name) + 1);
    if (!copy) {
        json_decref(root);
        return ls_fail(err, LS_ERR_MEMORY, "out of memory while reading JSON");
    }
    strcpy(copy, name);
    out->root = root;
    out->name = copy;
    return LS_OK;
}

ls_status ls_json_read(const char *path, const char *inside, size_t max_bytes, ls_json *out,
                       ls_err *err) {
    char *text = NULL;
    size_t n = 0;
    LS_TRY(ls_file_read(path, inside, max_bytes, &text, &n, err));
    ls_status s = ls_json_parse(text, n, path, out, err);
    free(text);
    return s;
}

void ls_json_free(ls_json *doc) {
    if (!doc)
        return;
    json_decref(doc->root);
    free(doc->name);
    memset(doc, 0, sizeof *doc);
}

/* ---- cursors --------------------------------------------------------------------------------- */

ls_json_at ls_json_root(const ls_json *doc) {
    return (ls_json_at){.value = doc->root, .file = doc->name};
}

ls_json_at ls_json_key(const ls_json_at *object, const char *key) {
    return (ls_json_at){.value = json_object_get(object->value, key), .up = object, .key = key};
}

ls_json_at ls_json_item(const ls_json_at *array, size_t index) {
    return (ls_json_at){.value = json_array_get(array->value, index), .up = array, .index = index};
}

bool ls_json_none(const ls_json_at *at) {
    return !at->value || json_is_null(at->value);
}

static bool is_plain_key(const char *key) {
    if (!*key)
        return false;
    for (const char *c = key; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '_'))
            return false;
    return true;
}

void ls_json_path(const ls_json_at *at, char *dst, size_t cap) {
    const ls_json_at *step[LS_JSON_DEPTH + 1];
    size_t n = 0, used = 0;
    for (; at->up && n < LS_JSON_DEPTH + 1; at = at->up)
        step[n++] = at;
    dst[0] = 0;
    while (n-- > 0 && used < cap - 1) {
        char key[160];
        int w;
        if (!step[n]->key)
            w = snprintf(dst + used, cap - used, "[%zu]", step[n]->index);
        else if (is_plain_key(step[n]->key))
            w = snprintf(dst + used, cap - used, "%s%s", used ? "." : "", step[n]->key);
        else
            w = snprintf(dst + used, cap - used, "[\"%s\"]",
                         ls_err_text(key, sizeof key, step[n]->key, strlen(step[n]->key)));
        used += w > 0 ? (size_t)w : 0;
    }
}

ls_status ls_json_fail(const ls_json_at *at, ls_err *err, const char *fmt, ...) {
    char reason[320], path[256], name[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    ls_json_path(at, path, sizeof path);
    while (at->up)
        at = at->up;
    const char *file = at->file ? at->file : "JSON";
    ls_err_text(name, sizeof name, file, strlen(file));
    return path[0] ? ls_fail(err, LS_ERR_INPUT, "%s: %s: %s", name, path, reason)
                   : ls_fail(err, LS_ERR_INPUT, "%s: %s", name, reason);
}

static ls_status wrong_type(const ls_json_at *at, const char *wanted, ls_err *err) {
    if (!at->value)
        return ls_json_fail(at, err, "is missing; %s was expected", wanted);
    char shown[80];
    switch (json_typeof(at->value)) {
    case JSON_STRING:
        return ls_json_fail(at, err, "is the string \"%s\", not %s",
                            ls_err_text(shown, sizeof shown, json_string_value(at->value),
                                        json_string_length(at->value)),
                            wanted);
    case JSON_INTEGER:
        return ls_json_fail(at, err, "is %lld, not %s", (long long)json_integer_value(at->value),
                            wanted);
    case JSON_REAL:
        return ls_json_fail(at, err, "is %g, not %s", json_real_value(at->value), wanted);
    case JSON_TRUE:
    case JSON_FALSE:
        return ls_json_fail(at, err, "is %s, not %s", json_is_true(at->value) ? "true" : "false",
                            wanted);
    case JSON_NULL:
        return ls_json_fail(at, err, "is null, not %s", wanted);
    case JSON_ARRAY:
        return ls_json_fail(at, err, "is a list, not %s", wanted);
    case JSON_OBJECT:
    default:
        return ls_json_fail(at, err, "is an object, not %s", wanted);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

ls_status ls_json_as_object(const ls_json_at *at, ls_err *err) {
    return json_is_object(at->value) ? LS_OK : wrong_type(at, "an object", err);
}

ls_status ls_json_as_array(const ls_json_at *at, size_t *n, ls_err *err) {
    if (!json_is_array(at->value))
        return wrong_type(at, "a list", err);
    *n = json_array_size(at->value);
    return LS_OK;
}

ls_status ls_json_as_int(const ls_json_at *at, int64_t min, int64_t max, int64_t *out,
                         ls_err *err) {
    if (!json_is_integer(at->value))
        return wrong_type(at, "a whole number", err);
    int64_t v = json_integer_value(at->value);
    if (v < min || v > max)
        return ls_json_fail(at, err, "is %lld, outside %lld to %lld", (long long)v, (long long)min,
                            (long long)max);
    *out = v;
    return LS_OK;
}

ls_status ls_json_as_number(const ls_json_at *at, double min, double max, double *out,
                            ls_err *err) {
    if (!json_is_number(at->value))
        return wrong_type(at, "a number", err);
    double v = json_number_value(at->value);
    if (!isfinite(v) || v < min || v > max)
        return ls_json_fail(at, err, "is %g, outside %g to %g", v, min, max);
    *out = v;
    return LS_OK;
}

ls_status ls_json_as_bool(const ls_json_at *at, bool *out, ls_err *err) {
    if (!json_is_boolean(at->value))
        return wrong_type(at, "true or false", err);
    *out = json_is_true(at->value);
    return LS_OK;
}

ls_status ls_json_as_string(const ls_json_at *at, const char **out, size_t *n, ls_err *err) {
    if (!json_is_string(at->value))
        return wrong_type(at, "a string", err);
    *out = json_string_value(at->value);
    if (n)
        *n = json_string_length(at->value);
    return LS_OK;
}

ls_status ls_json_int(const ls_json_at *object, const char *key, int64_t min, int64_t max,
                      int64_t *out, ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    return ls_json_as_int(&at, min, max, out, err);
}

ls_status ls_json_int_or(const ls_json_at *object, const char *key, int64_t min, int64_t max,
                         int64_t fallback, int64_t *out, ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    if (!ls_json_none(&at))
        return ls_json_as_int(&at, min, max, out, err);
    *out = fallback;
    return LS_OK;
}

ls_status ls_json_number_or(const ls_json_at *object, const char *key, double min, double max,
                            double fallback, double *out, ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    if (!ls_json_none(&at))
        return ls_json_as_number(&at, min, max, out, err);
    *out = fallback;
    return LS_OK;
}

ls_status ls_json_bool_or(const ls_json_at *object, const char *key, bool fallback, bool *out,
                          ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    if (!ls_json_none(&at))
        return ls_json_as_bool(&at, out, err);
    *out = fallback;
    return LS_OK;
}

ls_status ls_json_string(const ls_json_at *object, const char *key, const char **out, ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    return ls_json_as_string(&at, out, NULL, err);
}

ls_status ls_json_string_or(const ls_json_at *object, const char *key, const char *fallback,
                            const char **out, ls_err *err) {
    ls_json_at at = ls_json_key(object, key);
    if (!ls_json_none(&at))
        return ls_json_as_string(&at, out, NULL, err);
    *out = fallback;
    return LS_OK;
}

ls_status ls_json_only(const ls_json_at *object, const char *const *names, size_t n, ls_err *err) {
    LS_TRY(ls_json_as_object(object, err));
    for (void *it = json_object_iter((json_t *)(uintptr_t)object->value); it;
         it = json_object_iter_next((json_t *)(uintptr_t)object->value, it)) {
        const char *key = json_object_iter_key(it);
        size_t i = 0;
        while (i < n && strcmp(names[i], key) != 0)
            i++;
        if (i == n) {
            ls_json_at at = ls_json_key(object, key);
            return ls_json_fail(&at, err, "this field is not understood");
        }
    }
    return LS_OK;
}
