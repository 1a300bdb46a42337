#include "gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

#define ALIGN_DEFAULT 32
#define KEY_BYTES_MAX 65535    /* the format's limit */
#define KEY_BYTES_LEAST 13u    /* u64 length, u32 type, one byte of value */
#define TENSOR_BYTES_LEAST 24u /* u64 length, u32 dimensions, u32 type, u64 offset */

struct ls_gguf {
    ls_file file; /* zeroed when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes;
    char *name;
    uint32_t version;
    uint64_t align;
    ls_gguf_key *key; /* by name */
    size_t n_keys;
    ls_gguf_tensor *tensor; /* by name */
    size_t n;
};

static const struct {
    const char *name;
    uint32_t block, bytes;
} types[LS_GGML_N_TYPES] = {
    [LS_GGML_F32] = {"F32", 1, 4},
    [LS_GGML_F16] = {"F16", 1, 2},
    [LS_GGML_Q4_0] = {"Q4_0", 32, 18},
    [LS_GGML_Q4_1] = {"Q4_1", 32, 20},
    [LS_GGML_Q5_0] = {"Q5_0", 32, 22},
    [LS_GGML_Q5_1] = {"Q5_1", 32, 24},
    [LS_GGML_Q8_0] = {"Q8_0", 32, 34},
    [LS_GGML_Q2_K] = {"Q2_K", 256, 84},
    [LS_GGML_Q3_K] = {"Q3_K", 256, 110},
    [LS_GGML_Q4_K] = {"Q4_K", 256, 144},
    [LS_GGML_Q5_K] = {"Q5_K", 256, 176},
    [LS_GGML_Q6_K] = {"Q6_K", 256, 210},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [LS_GGML_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};

const char *ls_ggml_type(uint32_t t, uint32_t *block, uint32_t *bytes) {
    if (t >= LS_GGML_N_TYPES || !types[t].name)
        return NULL;
    if (block)
        *block = types[t].block;
    if (bytes)
        *bytes = types[t].bytes;
    return types[t].name;
}

static const struct {
    const char *name;
    uint32_t bytes; /* 0: not of one size */
} values[LS_GGUF_N_TYPES] = {
    [LS_GGUF_U8] = {"u8", 1},       [LS_GGUF_I8] = {"i8", 1},     [LS_GGUF_U16] = {"u16", 2},
    [LS_GGUF_I16] = {"i16", 2},     [LS_GGUF_U32] = {"u32", 4},   [LS_GGUF_I32] = {"i32", 4},
    [LS_GGUF_F32] = {"f32", 4},     [LS_GGUF_BOOL] = {"bool", 1}, [LS_GGUF_STRING] = {"string", 0},
    [LS_GGUF_ARRAY] = {"array", 0}, [LS_GGUF_U64] = {"u64", 8},   [LS_GGUF_I64] = {"i64", 8},
    [LS_GGUF_F64] = {"f64", 8},
};

const char *ls_gguf_type_name(ls_gguf_type t) {
    return (unsigned)t < LS_GGUF_N_TYPES ? values[t].name : "unknown";
}

/* ---- messages -------------------------------------------------------------------------------- */

static ls_gguf_str str_of(const char *s) {
    return (ls_gguf_str){s, strlen(s)};
}

bool ls_gguf_str_is(ls_gguf_str s, const char *text) {
    return s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

ls_status ls_gguf_fail(const ls_gguf *g, ls_gguf_str what, ls_err *err, const char *fmt, ...) {
    char reason[320], file[200], shown[120];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    ls_err_text(file, sizeof file, g->name, strlen(g->name));
    if (what.n == 0)
        return ls_fail(err, LS_ERR_INPUT, "%s: %s", file, reason);
    return ls_fail(err, LS_ERR_INPUT, "%s: %s: %s", file,
                   ls_err_text(shown, sizeof shown, what.s, what.n), reason);
}

static ls_status no_memory(ls_err *err) {
    return ls_fail(err, LS_ERR_MEMORY, "out of memory: the tables of a GGUF file");
}

/* ---- reading bytes --------------------------------------------------------------------------- */

static uint64_t le(const uint8_t *p, int n) {
    uint64_t v = 0;
    while (n > 0)
        v = v << 8 | p[--n];
    return v;
}

/* Where reading stands, and what is being read, for messages. */
typedef struct reader {
    const ls_gguf *g;
    size_t at, end;
    ls_gguf_str what;
    ls_err *err;
} reader;

static ls_status cut(const reader *c, const char *part) {
    return ls_gguf_fail(
        c->g, c->what, c->err,
        "%s runs past the end of the file (%zu bytes); is the file cut? copy it again", part,
        c->end);
}

static ls_status take(reader *c, int n, const char *part, uint64_t *out) {
    if (c->end - c->at < (size_t)n)
        return cut(c, part);
    *out = le(c->g->bytes + c->at, n);
    c->at += (size_t)n;
    return LS_OK;
}

static ls_status take_str(reader *c, const char *part, ls_gguf_str *out) {
    uint64_t n = 0;
    LS_TRY(take(c, 8, part, &n));
    if (n > c->end - c->at)
        return ls_gguf_fail(
            c->g, c->what, c->err,
            "%s of %llu bytes, but %zu are left in the file; is the file cut? copy it again", part,
            (unsigned long long)n, c->end - c->at);
    *out = (ls_gguf_str){(const char *)c->g->bytes + c->at, (size_t)n};
    c->at += (size_t)n;
    return LS_OK;
}

static ls_status take_type(reader *c, ls_gguf_type *out) {
    uint64_t t = 0;
    LS_TRY(take(c, 4, "the type of a value", &t));
    if (t >= LS_GGUF_N_TYPES)
        return ls_gguf_fail(c->g, c->what, c->err,
                            "%llu is no type of value; the file is damaged or of a later format",
                            (unsigned long long)t);
    *out = (ls_gguf_type)t;
    return LS_OK;
}

/* A value of the given type; depth: of arrays around it. */
static ls_status take_value(reader *c, ls_gguf_type type, int depth, ls_gguf_value *out) {
    ls_gguf_value v = {.type = type, .elem = type, .n = 1, .at = c->g->bytes + c->at};
    if (type == LS_GGUF_STRING) {
        ls_gguf_str s = {NULL, 0};
        LS_TRY(take_str(c, "a string", &s));
        v.at = (const uint8_t *)s.s;
        v.n = v.bytes = s.n;
    } else if (type == LS_GGUF_ARRAY) {
        if (depth >= LS_GGUF_DEPTH_MAX)
            return ls_gguf_fail(c->g, c->what, c->err, "more than %d arrays in each other",
                                LS_GGUF_DEPTH_MAX);
        LS_TRY(take_type(c, &v.elem));
        LS_TRY(take(c, 8, "the length of an array", &v.n));
        const size_t least = values[v.elem].bytes       ? values[v.elem].bytes
                             : v.elem == LS_GGUF_STRING ? 8
                                                        : 12;
        if (v.n > (c->end - c->at) / least)
            return ls_gguf_fail(
                c->g, c->what, c->err,
                "an array of %llu %s values, but %zu bytes are left in the file; is "
                "the file cut? copy it again",
                (unsigned long long)v.n, values[v.elem].name, c->end - c->at);
        const size_t begin = c->at;
        v.at = c->g->bytes + begin;
        if (values[v.elem].bytes && v.elem != LS_GGUF_BOOL) {
            c->at += (size_t)v.n * values[v.elem].bytes;
        } else {
            ls_gguf_value item;
            for (uint64_t i = 0; i < v.n; i++)
                LS_TRY(take_value(c, v.elem, depth + 1, &item));
        }
        v.bytes = c->at - begin;
    } else {
        uint64_t bits = 0;
        LS_TRY(take(c, (int)values[type].bytes, "a value", &bits));
        if (type == LS_GGUF_BOOL && bits > 1)
            return ls_gguf_fail(c->g, c->what, c->err, "%llu is neither false (0) nor true (1)",
                                (unsigned long long)bits);
        v.bytes = values[type].bytes;
    }
    *out = v;
    return LS_OK;
}

/* A key or the name of a tensor. */
static ls_status take_name(reader *c, const char *part, ls_gguf_str *out) {
    LS_TRY(take_str(c, part, out));
    if (out->n == 0 || out->n > KEY_BYTES_MAX || memchr(out->s, 0, out->n))
        return ls_gguf_fail(c->g, c->what, c->err,
                            "%s of %zu bytes%s; 1 to %d without a zero byte "
                            "are allowed",
                            part, out->n,
                            out->n && memchr(out->s, 0, out->n) ? " with a zero byte" : "",
                            KEY_BYTES_MAX);
    c->what = *out;
    return LS_OK;
}

/* ---- the tables ------------------------------------------------------------------------------ */

static int compare(ls_gguf_str a, ls_gguf_str b) {
    const size_t n = a.n < b.n ? a.n : b.n;
    const int d = memcmp(a.s, b.s, n);
    return d ? d : a.n < b.n ? -1 : a.n > b.n;
}

static int by_key(const void *a, const void *b) {
    return compare(((const ls_gguf_key *)a)->key, ((const ls_gguf_key *)b)->key);
}

static int by_name(const void *a, const void *b) {
    return compare(((const ls_gguf_tensor *)a)->name, ((const ls_gguf_tensor *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const ls_gguf_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static ls_status read_keys(ls_gguf *g, reader *c, uint64_t n) {
    g->key = calloc(n ? (size_t)n : 1, sizeof *g->key);
    if (!g->key)
        return no_memory(c->err);
    for (uint64_t i = 0; i < n; i++) {
        ls_gguf_key *k = &g->key[g->n_keys];
        ls_gguf_type type = LS_GGUF_U8;
        c->what = str_of("the keys");
        LS_TRY(take_name(c, "a key", &k->key));
        LS_TRY(take_type(c, &type));
        LS_TRY(take_value(c, type, 0, &k->value));
        g->n_keys++;
    }
    qsort(g->key, g->n_keys, sizeof *g->key, by_key);
    for (size_t i = 1; i < g->n_keys; i++)
        if (by_key(&g->key[i - 1], &g->key[i]) == 0)
            return ls_gguf_fail(g, g->key[i].key, c->err,
                                "the key stands twice; remove one of the two");
    return LS_OK;
}

static ls_status read_align(ls_gguf *g, ls_err *err) {
    static const char name[] = "general.alignment";
    const ls_gguf_value *v = ls_gguf_find(g, name);
    int64_t n = ALIGN_DEFAULT;
    if (v && (v->type != LS_GGUF_U32 || !ls_gguf_as_int(v, &n) || n <= 0 || (n & (n - 1)) != 0))
        return ls_gguf_fail(g, str_of(name), err,
                            "the alignment has to be a power of two as u32 (32 is usual)");
    g->align = (uint64_t)n;
    return LS_OK;
}

/* Elements and bytes of a tensor whose type and dimensions are read. */
static ls_status measure(const reader *c, ls_gguf_tensor *t) {
    uint32_t block = 1, bytes = 1;
    const char *type = ls_ggml_type(t->type, &block, &bytes);
    if (!type)
        return ls_gguf_fail(c->g, c->what, c->err,
                            "%u is no type of number this program knows; convert the file to a "
                            "current type",
                            t->type);
    uint64_t product = 1, total = 0;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] == 0 || __builtin_mul_overflow(product, t->dim[i], &product))
            return ls_gguf_fail(
                c->g, c->what, c->err, "dimension %d is %llu: the number of elements is %s", i,
                (unsigned long long)t->dim[i], t->dim[i] == 0 ? "zero" : "past 64 bits");
    if (t->dim[0] % block != 0)
        return ls_gguf_fail(c->g, c->what, c->err,
                            "rows of %llu elements are no whole blocks of %u (%s)",
                            (unsigned long long)t->dim[0], block, type);
    if (__builtin_mul_overflow(product / block, (uint64_t)bytes, &total) || total > SIZE_MAX)
        return ls_gguf_fail(c->g, c->what, c->err, "the number of bytes does not fit in 64 bits");
    t->n_elems = product;
    t->bytes = (size_t)total;
    return LS_OK;
}

static ls_status read_tensors(ls_gguf *g, reader *c, uint64_t n) {
    g->tensor = calloc(n ? (size_t)n : 1, sizeof *g->tensor);
    uint64_t *offset = calloc(n ? (size_t)n : 1, sizeof *offset);
    ls_status s = g->tensor && offset ? LS_OK : no_memory(c->err);
    for (uint64_t i = 0; i < n && s == LS_OK; i++) {
        ls_gguf_tensor *t = &g->tensor[i];
        uint64_t v = 0;
        c->what = str_of("the tensor table");
        if ((s = take_name(c, "a tensor's name", &t->name)) != LS_OK ||
            (s = take(c, 4, "the number of dimensions", &v)) != LS_OK)
            break;
        if (v == 0 || v > LS_GGUF_DIMS_MAX) {
            s = ls_gguf_fail(g, c->what, c->err, "has %llu dimensions, 1 to %d are allowed",
                             (unsigned long long)v, LS_GGUF_DIMS_MAX);
            break;
        }
        t->n_dims = (int32_t)v;
        for (int32_t d = 0; d < LS_GGUF_DIMS_MAX && s == LS_OK; d++) {
            t->dim[d] = 1;
            if (d < t->n_dims)
                s = take(c, 8, "a dimension", &t->dim[d]);
        }
        if (s != LS_OK || (s = take(c, 4, "the type of a tensor", &v)) != LS_OK)
            break;
        t->type = (uint32_t)v;
        if ((s = take(c, 8, "the offset of a tensor", &offset[i])) == LS_OK)
            s = measure(c, t);
    }
    /* the padding before the data; there need be none when there is no data */
    const size_t pad = (size_t)((g->align - c->at % g->align) % g->align);
    c->what = (ls_gguf_str){NULL, 0};
    if (s == LS_OK && n > 0 && pad > c->end - c->at)
        s = cut(c, "the padding before the data");
    for (uint64_t i = 0; i < n && s == LS_OK; i++) {
        ls_gguf_tensor *t = &g->tensor[i];
        const size_t room = c->end - c->at - pad;
        if (offset[i] % g->align != 0)
            s = ls_gguf_fail(g, t->name, c->err,
                             "begins at %llu, which is no multiple of the "
                             "alignment %llu",
                             (unsigned long long)offset[i], (unsigned long long)g->align);
        else if (offset[i] > room || t->bytes > room - offset[i])
            s = ls_gguf_fail(g, t->name, c->err,
                             "%zu bytes from %llu on, but there are %zu bytes of data; is the file "
                             "cut? copy it again",
                             t->bytes, (unsigned long long)offset[i], room);
        else
            t->data = g->bytes + c->at + pad + offset[i];
    }
    free(offset);
    LS_TRY(s);
    g->n = (size_t)n;
    return LS_OK;
}

static ls_status check_tensors(const ls_gguf *g, ls_err *err) {
    qsort(g->tensor, g->n, sizeof *g->tensor, by_place);
    for (size_t i = 1; i < g->n; i++)
        if (g->tensor[i - 1].data + g->tensor[i - 1].bytes > g->tensor[i].data)
            return ls_gguf_fail(g, g->tensor[i].name, err,
                                "shares bytes with another tensor; the file is damaged");
    qsort(g->tensor, g->n, sizeof *g->tensor, by_name);
    for (size_t i = 1; i < g->n; i++)
        if (by_name(&g->tensor[i - 1], &g->tensor[i]) == 0)
            return ls_gguf_fail(g, g->tensor[i].name, err,
                                "the tensor stands twice; remove one of the two");
    return LS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static ls_status check_version(const ls_gguf *g, const reader *c, uint64_t v) {
    if (v == 2 || v == 3)
        return LS_OK;
    if (v == 2u << 24 || v == 3u << 24)
        return ls_gguf_fail(g, c->what, c->err,
                            "is big-endian; convert it to little-endian (gguf_convert_endian.py)");
    return ls_gguf_fail(g, c->what, c->err,
                        "GGUF version %llu; versions 2 and 3 are read: convert the model again",
                        (unsigned long long)v);
}

static ls_status parse(ls_gguf *g, ls_err *err) {
    reader c = {.g = g, .end = g->n_bytes, .err = err};
    uint64_t v = 0, n_tensors = 0, n_keys = 0;
    if (g->n_bytes < 4 || memcmp(g->bytes, "GGUF", 4) != 0)
        return ls_gguf_fail(g, c.what, err, "does not begin with GGUF; give a .gguf file");
    c.at = 4;
    LS_TRY(take(&c, 4, "the version", &v));
    LS_TRY(check_version(g, &c, v));
    g->version = (uint32_t)v;
    LS_TRY(take(&c, 8, "the number of tensors", &n_tensors));
    LS_TRY(take(&c, 8, "the number of keys", &n_keys));
    const size_t room = c.end - c.at;
    /* together: each table is then in proportion to the bytes that describe it */
    if (n_keys > room / KEY_BYTES_LEAST ||
        n_tensors > (room - n_keys * KEY_BYTES_LEAST) / TENSOR_BYTES_LEAST)
        return ls_gguf_fail(g, c.what, err,
                            "%llu keys and %llu tensors in a file of %zu bytes; is the file cut? "
                            "copy it again",
                            (unsigned long long)n_keys, (unsigned long long)n_tensors, g->n_bytes);
    LS_TRY(read_keys(g, &c, n_keys));
    LS_TRY(read_align(g, err));
    LS_TRY(read_tensors(g, &c, n_tensors));
    return check_tensors(g, err);
}

static ls_status make(ls_file file, const uint8_t *bytes, size_t n, const char *name, ls_gguf **out,
                      ls_err *err) {
    ls_gguf *g = calloc(1, sizeof *g);
    const size_t size = strlen(name) + 1;
    char *copy = malloc(size);
    if (!g || !copy) {
        free(g);
        free(copy);
        ls_file_close(&file);
        return no_memory(err);
    }
    g->name = memcpy(copy, name, size);
    g->file = file;
    g->bytes = bytes;
    g->n_bytes = n;
    ls_status s = parse(g, err);
    if (s != LS_OK) {
        ls_gguf_close(g);
        return s;
    }
    *out = g;
    return LS_OK;
}

ls_status ls_gguf_parse(const uint8_t *bytes, size_t n, const char *name, ls_gguf **out,
                        ls_err *err) {
    return make((ls_file){NULL, 0}, bytes, n, name, out, err);
}

ls_status ls_gguf_open(const char *path, ls_gguf **out, ls_err *err) {
    ls_file file;
    LS_TRY(ls_file_open(path, NULL, &file, err));
    return make(file, file.data, file.bytes, path, out, err);
}

void ls_gguf_close(ls_gguf *g) {
    if (!g)
        return;
    free(g->key);
    free(g->tensor);
    free(g->name);
    ls_file_close(&g->file);
    free(g);
}

bool ls_gguf_is(const char *path) {
    ls_file f = {0};
    if (ls_file_open(path, NULL, &f, NULL) != LS_OK)
        return false;
    const bool yes = f.bytes >= 4 && memcmp(f.data, "GGUF", 4) == 0;
    ls_file_close(&f);
    return yes;
}

const char *ls_gguf_name(const ls_gguf *g) {
    return g->name;
}

uint32_t ls_gguf_version(const ls_gguf *g) {
    return g->version;
}

const uint8_t *ls_gguf_bytes(const ls_gguf *g, size_t *n) {
    *n = g->n_bytes;
    return g->bytes;
}

size_t ls_gguf_n_keys(const ls_gguf *g) {
    return g->n_keys;
}

const ls_gguf_key *ls_gguf_key_at(const ls_gguf *g, size_t i) {
    return &g->key[i];
}

const ls_gguf_value *ls_gguf_find(const ls_gguf *g, const char *key) {
    const ls_gguf_key wanted = {.key = str_of(key)};
    const ls_gguf_key *hit = bsearch(&wanted, g->key, g->n_keys, sizeof *g->key, by_key);
    return hit ? &hit->value : NULL;
}

size_t ls_gguf_count(const ls_gguf *g) {
    return g->n;
}

const ls_gguf_tensor *ls_gguf_at(const ls_gguf *g, size_t i) {
    return &g->tensor[i];
}

const ls_gguf_tensor *ls_gguf_tensor_find(const ls_gguf *g, const char *name) {
    const ls_gguf_tensor wanted = {.name = str_of(name)};
    return bsearch(&wanted, g->tensor, g->n, sizeof *g->tensor, by_name);
}

/* ---- values ---------------------------------------------------------------------------------- */

bool ls_gguf_as_int(const ls_gguf_value *v, int64_t *out) {
    const uint64_t u = v->bytes <= 8 ? le(v->at, (int)v->bytes) : 0;
    switch (v->type) {
    case LS_GGUF_U8:
    case LS_GGUF_U16:
    case LS_GGUF_U32:
    case LS_GGUF_U64:
        *out = (int64_t)u;
        return u <= INT64_MAX;
    case LS_GGUF_I8:
        *out = (int8_t)u;
        return true;
    case LS_GGUF_I16:
        *out = (int16_t)u;
        return true;
    case LS_GGUF_I32:
        *out = (int32_t)u;
        return true;
    case LS_GGUF_I64:
        *out = (int64_t)u;
        return true;
    default:
        return false;
    }
}

bool ls_gguf_as_number(const ls_gguf_value *v, double *out) {
    int64_t i = 0;
    if (v->type == LS_GGUF_F32) {
        const uint32_t u = (uint32_t)le(v->at, 4);
        float f = 0;
        memcpy(&f, &u, sizeof f);
        *out = (double)f;
        return true;
    }
    if (v->type == LS_GGUF_F64) {
        const uint64_t u = le(v->at, 8);
        memcpy(out, &u, sizeof *out);
        return true;
    }
    if (!ls_gguf_as_int(v, &i))
        return false;
    *out = (double)i;
    return true;
}

bool ls_gguf_as_bool(const ls_gguf_value *v, bool *out) {
    if (v->type != LS_GGUF_BOOL)
        return false;
    *out = v->at[0] != 0;
    return true;
}

bool ls_gguf_as_string(const ls_gguf_value *v, ls_gguf_str *out) {
    if (v->type != LS_GGUF_STRING)
        return false;
    *out = (ls_gguf_str){(const char *)v->at, v->bytes};
    return true;
}

bool ls_gguf_next(const ls_gguf_value *array, size_t *cursor, ls_gguf_value *item) {
    if (array->type != LS_GGUF_ARRAY || *cursor >= array->bytes)
        return false;
    /* the array was checked when the file was opened: reading it again cannot fail */
    const ls_gguf view = {
        .bytes = array->at, .n_bytes = array->bytes, .name = (char *)(uintptr_t) ""};
    reader c = {.g = &view, .at = *cursor, .end = array->bytes};
    if (take_value(&c, array->elem, 1, item) != LS_OK)
        return false;
    *cursor = c.at;
    return true;
}
