#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"

struct ls_safetensors {
    ls_file file; /* zeroed when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes;
    ls_json header; /* tensor names point into it */
    ls_st_tensor *tensor;
    size_t n;
};

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[LS_ST_N_ALL] = {
    [LS_ST_BOOL] = {"BOOL", 8},
    [LS_ST_U8] = {"U8", 8},
    [LS_ST_I8] = {"I8", 8},
    [LS_ST_U16] = {"U16", 16},
    [LS_ST_I16] = {"I16", 16},
    [LS_ST_U32] = {"U32", 32},
    [LS_ST_I32] = {"I32", 32},
    [LS_ST_U64] = {"U64", 64},
    [LS_ST_I64] = {"I64", 64},
    [LS_ST_F16] = {"F16", 16},
    [LS_ST_BF16] = {"BF16", 16},
    [LS_ST_F32] = {"F32", 32},
    [LS_ST_F64] = {"F64", 64},
    [LS_ST_C64] = {"C64", 64},
    [LS_ST_F8_E4M3] = {"F8_E4M3", 8},
    [LS_ST_F8_E5M2] = {"F8_E5M2", 8},
    [LS_ST_F8_E8M0] = {"F8_E8M0", 8},
    [LS_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [LS_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [LS_ST_F6_E2M3] = {"F6_E2M3", 6},
    [LS_ST_F6_E3M2] = {"F6_E3M2", 6},
    [LS_ST_F4] = {"F4", 4},
    [LS_ST_Q8_0] = {"Q8_0", 0},
    [LS_ST_Q4_K] = {"Q4_K", 0},
};

const char *ls_st_dtype_name(ls_st_dtype t) {
    return (unsigned)t < LS_ST_N_ALL ? dtypes[t].name : "unknown";
}

uint32_t ls_st_dtype_bits(ls_st_dtype t) {
    return (unsigned)t < LS_ST_N_ALL ? dtypes[t].bits : 0;
}

/* ---- one entry of the header ----------------------------------------------------------------- */

static ls_status read_dtype(const ls_json_at *info, ls_st_dtype *out, ls_err *err) {
    const char *name = NULL;
    LS_TRY(ls_json_string(info, "dtype", &name, err));
    for (int i = 0; i < LS_ST_N_DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (ls_st_dtype)i;
            return LS_OK;
        }
    ls_json_at at = ls_json_key(info, "dtype");
    char shown[64];
    return ls_json_fail(&at, err, "\"%s\" is no dtype of the format",
                        ls_err_text(shown, sizeof shown, name, strlen(name)));
}

/* dims, the number of elements, and the bytes they take. */
static ls_status read_shape(const ls_json_at *info, ls_st_tensor *t, uint64_t *bytes, ls_err *err) {
    ls_json_at shape = ls_json_key(info, "shape");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&shape, &n, err));
    if (n > LS_ST_DIMS_MAX)
        return ls_json_fail(&shape, err, "has %zu dimensions, at most %d are read", n,
                            LS_ST_DIMS_MAX);
    uint64_t product = 1, bits = 0;
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_item(&shape, i);
        int64_t v = 0;
        LS_TRY(ls_json_as_int(&at, 0, INT64_MAX, &v, err));
        t->dim[i] = (uint64_t)v;
        /* checked also past a dimension of 0: such a shape has no honest origin */
        if (v > 0 && __builtin_mul_overflow(product, (uint64_t)v, &product))
            return ls_json_fail(&shape, err, "the number of elements does not fit in 64 bits");
    }
    for (size_t i = 0; i < n; i++)
        if (t->dim[i] == 0)
            product = 0;
    t->n_dims = (int32_t)n;
    t->n_elems = product;
    if (__builtin_mul_overflow(product, (uint64_t)dtypes[t->dtype].bits, &bits))
        return ls_json_fail(&shape, err, "the number of bits does not fit in 64 bits");
    if (bits % 8 != 0)
        return ls_json_fail(&shape, err, "%llu elements of %s do not fill whole bytes",
                            (unsigned long long)product, dtypes[t->dtype].name);
    *bytes = bits / 8;
    return LS_OK;
}

static ls_status read_tensor(const ls_json_at *info, const uint8_t *data, uint64_t data_bytes,
                             ls_st_tensor *t, ls_err *err) {
    LS_TRY(ls_json_as_object(info, err));
    LS_TRY(read_dtype(info, &t->dtype, err));
    uint64_t bytes = 0;
    LS_TRY(read_shape(info, t, &bytes, err));
    ls_json_at span = ls_json_key(info, "data_offsets");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&span, &n, err));
    if (n != 2)
        return ls_json_fail(&span, err, "has %zu entries; begin and end were expected", n);
    int64_t edge[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        ls_json_at at = ls_json_item(&span, i);
        LS_TRY(ls_json_as_int(&at, 0, INT64_MAX, &edge[i], err));
    }
    uint64_t begin = (uint64_t)edge[0], end = (uint64_t)edge[1];
    if (begin > end)
        return ls_json_fail(&span, err, "run backwards, from %llu to %llu",
                            (unsigned long long)begin, (unsigned long long)end);
    if (end > data_bytes)
        return ls_json_fail(&span, err, "end at %llu, past the %llu bytes of data",
                            (unsigned long long)end, (unsigned long long)data_bytes);
    if (end - begin != bytes)
        return ls_json_fail(&span, err, "span %llu bytes, but the shape takes %llu",
                            (unsigned long long)(end - begin), (unsigned long long)bytes);
    t->data = data + begin;
    t->bytes = (size_t)bytes;
    return LS_OK;
}

static ls_status check_metadata(const ls_json_at *meta, ls_err *err) {
    LS_TRY(ls_json_as_object(meta, err));
    json_t *object = (json_t *)(uintptr_t)meta->value;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        ls_json_at at = ls_json_key(meta, json_object_iter_key(it));
        const char *text = NULL;
        LS_TRY(ls_json_as_string(&at, &text, NULL, err));
    }
    return LS_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const ls_st_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ls_st_tensor *)a)->name, ((const ls_st_tensor *)b)->name);
}

/* Spans in order of place have to start at 0, touch, and end at the end of the file. */
static ls_status check_cover(const ls_safetensors *st, const uint8_t *data, uint64_t data_bytes,
                             const ls_json_at *root, ls_err *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < st->n; i++) {
        const ls_st_tensor *t = &st->tensor[i];
        uint64_t begin = (uint64_t)(t->data - data);
        if (begin != at) {
            ls_json_at where = ls_json_key(root, t->name);
            return ls_json_fail(&where, err, "starts at %llu, the data before it ends at %llu: %s",
                                (unsigned long long)begin, (unsigned long long)at,
                                begin < at ? "two tensors overlap" : "a hole");
        }
        at = begin + t->bytes;
    }
    if (at != data_bytes)
        return ls_json_fail(root, err, "%llu bytes of data, the header describes %llu",
                            (unsigned long long)data_bytes, (unsigned long long)at);
    return LS_OK;
}

static ls_status read_header(ls_safetensors *st, const uint8_t *data, uint64_t data_bytes,
                             ls_err *err) {
    ls_json_at root = ls_json_root(&st->header);
    LS_TRY(ls_json_as_object(&root, err));
    size_t n = json_object_size(root.value);
    st->tensor = calloc(n ? n : 1, sizeof *st->tensor);
    if (!st->tensor)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: a table of %zu tensors", n);
    json_t *object = st->header.root;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *name = json_object_iter_key(it);
        ls_json_at info = ls_json_key(&root, name);
        if (strcmp(name, "__metadata__") == 0) {
            LS_TRY(check_metadata(&info, err));
            continue;
        }
        ls_st_tensor *t = &st->tensor[st->n++];
        t->name = name;
        LS_TRY(read_tensor(&info, data, data_bytes, t, err));
    }
    qsort(st->tensor, st->n, sizeof *st->tensor, by_place);
    LS_TRY(check_cover(st, data, data_bytes, &root, err));
    qsort(st->tensor, st->n, sizeof *st->tensor, by_name);
    return LS_OK;
}

/* Parses st->bytes; fills the rest of st. */
static ls_status parse(ls_safetensors *st, const char *name, ls_err *err) {
    char shown[256];
    ls_err_text(shown, sizeof shown, name, strlen(name));
    if (st->n_bytes < 8)
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: %zu bytes, too short for a safetensors file (8 bytes of length)", shown,
                       st->n_bytes);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | st->bytes[i];
    if (n > LS_ST_HEADER_MAX)
        return ls_fail(err, LS_ERR_INPUT, "%s: a header of %llu bytes, at most %u are allowed",
                       shown, (unsigned long long)n, LS_ST_HEADER_MAX);
    if (n > st->n_bytes - 8)
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: a header of %llu bytes in a file of %zu; is the file cut?", shown,
                       (unsigned long long)n, st->n_bytes);
    const char *text = (const char *)st->bytes + 8;
    if (n == 0 || text[0] != '{')
        return ls_fail(err, LS_ERR_INPUT, "%s: the header does not begin with an opening brace",
                       shown);
    LS_TRY(ls_json_parse(text, (size_t)n, name, &st->header, err));
    return read_header(st, st->bytes + 8 + n, st->n_bytes - 8 - n, err);
}

static ls_status make(ls_file file, const uint8_t *bytes, size_t n, const char *name,
                      ls_safetensors **out, ls_err *err) {
    ls_safetensors *st = calloc(1, sizeof *st);
    if (!st) {
        ls_file_close(&file);
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    }
    st->file = file;
    st->bytes = bytes;
    st->n_bytes = n;
    ls_status s = parse(st, name, err);
    if (s != LS_OK) {
        ls_safetensors_close(st);
        return s;
    }
    *out = st;
    return LS_OK;
}

ls_status ls_safetensors_parse(const uint8_t *bytes, size_t n, const char *name,
                               ls_safetensors **out, ls_err *err) {
    return make((ls_file){NULL, 0}, bytes, n, name, out, err);
}

ls_status ls_safetensors_open(const char *path, const char *inside, ls_safetensors **out,
                              ls_err *err) {
    ls_file file;
    LS_TRY(ls_file_open(path, inside, &file, err));
    return make(file, file.data, file.bytes, path, out, err);
}

void ls_safetensors_close(ls_safetensors *st) {
    if (!st)
        return;
    free(st->tensor);
    ls_json_free(&st->header);
    ls_file_close(&st->file);
    free(st);
}

size_t ls_safetensors_count(const ls_safetensors *st) {
    return st->n;
}

const ls_st_tensor *ls_safetensors_at(const ls_safetensors *st, size_t i) {
    return &st->tensor[i];
}

const ls_st_tensor *ls_safetensors_find(const ls_safetensors *st, const char *name) {
    ls_st_tensor key = {.name = name};
    return bsearch(&key, st->tensor, st->n, sizeof *st->tensor, by_name);
}

const uint8_t *ls_safetensors_bytes(const ls_safetensors *st, size_t *n) {
    *n = st->n_bytes;
    return st->bytes;
}
