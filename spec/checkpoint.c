#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "gguf_config.h"
#include "gguf_view.h"
#include "json.h"

#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"
#define INDEX_BYTES_MAX ((size_t)64 << 20)

typedef struct shard {
    char *name; /* in the folder */
    ls_safetensors *st;
} shard;

struct ls_checkpoint {
    char *dir;
    shard *file; /* by name */
    size_t n_files;
    const ls_st_tensor **tensor; /* by tensor name */
    size_t n;
    bool has_index;
    ls_gguf *gguf; /* or NULL: a folder */
    ls_gguf_view view;
};

static ls_status no_memory(ls_err *err) {
    return ls_fail(err, LS_ERR_MEMORY, "out of memory while opening a checkpoint");
}

static char *copy_text(const char *s) {
    size_t n = strlen(s) + 1;
    char *p = malloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

static int by_shard_name(const void *a, const void *b) {
    return strcmp(((const shard *)a)->name, ((const shard *)b)->name);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp((*(const ls_st_tensor *const *)a)->name, (*(const ls_st_tensor *const *)b)->name);
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Opens files[i] from its name. */
static ls_status open_shard(const ls_checkpoint *cp, shard *f, ls_err *err) {
    char *path = NULL;
    LS_TRY(ls_file_join(cp->dir, f->name, &path, err));
    ls_status s = ls_safetensors_open(path, cp->dir, &f->st, err);
    free(path);
    return s;
}

static ls_status open_single(ls_checkpoint *cp, ls_err *err) {
    cp->file = calloc(1, sizeof *cp->file);
    if (!cp->file || !(cp->file[0].name = copy_text(SINGLE)))
        return no_memory(err);
    cp->n_files = 1;
    LS_TRY(open_shard(cp, &cp->file[0], err));
    const ls_safetensors *st = cp->file[0].st;
    size_t n = ls_safetensors_count(st);
    cp->tensor = malloc((n ? n : 1) * sizeof *cp->tensor);
    if (!cp->tensor)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        cp->tensor[i] = ls_safetensors_at(st, i);
    cp->n = n;
    return LS_OK;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* The name a weight_map entry gives, refused unless it is a plain name. */
static ls_status shard_name(const ls_json_at *at, const char **out, ls_err *err) {
    size_t n = 0;
    LS_TRY(ls_json_as_string(at, out, &n, err));
    if (n == 0 || n > 255 || strchr(*out, '/') || strchr(*out, '\\') || strcmp(*out, ".") == 0 ||
        strcmp(*out, "..") == 0)
        return ls_json_fail(at, err, "is not a plain file name; shards lie in the model folder");
    return LS_OK;
}

/* The distinct file names of the map, opened. */
static ls_status open_shards(ls_checkpoint *cp, const ls_json_at *map, ls_err *err) {
    json_t *object = (json_t *)(uintptr_t)map->value;
    size_t n = json_object_size(object), used = 0;
    const char **name = malloc((n ? n : 1) * sizeof *name);
    if (!name)
        return no_memory(err);
    ls_status s = LS_OK;
    for (void *it = json_object_iter(object); it && s == LS_OK;
         it = json_object_iter_next(object, it)) {
        ls_json_at at = ls_json_key(map, json_object_iter_key(it));
        s = shard_name(&at, &name[used], err);
        used += s == LS_OK;
    }
    if (s == LS_OK && !(cp->file = calloc(n ? n : 1, sizeof *cp->file)))
        s = no_memory(err);
    /* neighbours in a map mostly share a file, so the last one is asked first */
    for (size_t i = 0, last = 0; i < used && s == LS_OK; i++) {
        if (cp->n_files > 0 && strcmp(cp->file[last].name, name[i]) == 0)
            continue;
        for (last = 0; last < cp->n_files; last++)
            if (strcmp(cp->file[last].name, name[i]) == 0)
                break;
        if (last < cp->n_files)
            continue;
        if (!(cp->file[cp->n_files].name = copy_text(name[i])))
            s = no_memory(err);
        else
            s = open_shard(cp, &cp->file[cp->n_files++], err);
    }
    free(name);
    LS_TRY(s);
    qsort(cp->file, cp->n_files, sizeof *cp->file, by_shard_name);
    return LS_OK;
}

static ls_status bind_map(ls_checkpoint *cp, const ls_json_at *map, ls_err *err) {
    json_t *object = (json_t *)(uintptr_t)map->value;
    cp->tensor = malloc((json_object_size(object) + 1) * sizeof *cp->tensor);
    if (!cp->tensor)
        return no_memory(err);
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *tensor = json_object_iter_key(it);
        ls_json_at at = ls_json_key(map, tensor);
        shard key = {.name = (char *)(uintptr_t)json_string_value(at.value)};
        const shard *f = bsearch(&key, cp->file, cp->n_files, sizeof *cp->file, by_shard_name);
        const ls_st_tensor *t = f ? ls_safetensors_find(f->st, tensor) : NULL;
        if (!t) {
            char shown[120];
            return ls_json_fail(&at, err, "the file %s does not hold this tensor",
                                ls_err_text(shown, sizeof shown, key.name, strlen(key.name)));
        }
        cp->tensor[cp->n++] = t;
    }
    qsort(cp->tensor, cp->n, sizeof *cp->tensor, by_tensor_name);
    return LS_OK;
}

static ls_status open_index(ls_checkpoint *cp, const char *path, ls_err *err) {
    ls_json doc = {0};
    LS_TRY(ls_json_read(path, cp->dir, INDEX_BYTES_MAX, &doc, err));
    cp->has_index = true;
    ls_json_at root = ls_json_root(&doc);
    ls_json_at map = ls_json_key(&root, "weight_map");
    ls_status s = ls_json_as_object(&map, err);
    if (s == LS_OK)
        s = open_shards(cp, &map, err);
    if (s == LS_OK)
        s = bind_map(cp, &map, err);
    ls_json_free(&doc);
    return s;
}

/* ---- a GGUF file ----------------------------------------------------------------------------- */

static ls_status open_gguf(ls_checkpoint *cp, bool widen, ls_err *err) {
    ls_config c;
    LS_TRY(ls_gguf_open(cp->dir, &cp->gguf, err));
    LS_TRY(ls_gguf_config_read(cp->gguf, &c, err));
    LS_TRY(ls_gguf_view_make(cp->gguf, &c, widen, &cp->view, err));
    cp->tensor = malloc((cp->view.n ? cp->view.n : 1) * sizeof *cp->tensor);
    if (!cp->tensor)
        return no_memory(err);
    for (size_t i = 0; i < cp->view.n; i++)
        cp->tensor[i] = &cp->view.tensor[i];
    cp->n = cp->view.n;
    qsort(cp->tensor, cp->n, sizeof *cp->tensor, by_tensor_name);
    return LS_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool has(const char *dir, const char *name) {
    char *path = NULL;
    if (ls_file_join(dir, name, &path, NULL) != LS_OK)
        return false;
    bool yes = ls_file_exists(path);
    free(path);
    return yes;
}

static ls_status open_folder(ls_checkpoint *cp, ls_err *err) {
    if (has(cp->dir, INDEX)) {
        char *path = NULL;
        LS_TRY(ls_file_join(cp->dir, INDEX, &path, err));
        ls_status s = open_index(cp, path, err);
        free(path);
        return s;
    }
    if (has(cp->dir, SINGLE))
        return open_single(cp, err);
    char shown[256];
    ls_err_text(shown, sizeof shown, cp->dir, strlen(cp->dir));
    if (!ls_file_exists(cp->dir))
        return ls_fail(err, LS_ERR_INPUT, "%s: no such folder", shown);
    if (has(cp->dir, "pytorch_model.bin") || has(cp->dir, "pytorch_model.bin.index.json"))
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: weights are in pytorch_model.bin; convert them to safetensors", shown);
    return ls_fail(err, LS_ERR_INPUT, "%s: holds neither " SINGLE " nor " INDEX, shown);
}

ls_status ls_checkpoint_open_with(const char *dir, ls_checkpoint_options o, ls_checkpoint **out,
                                  ls_err *err) {
    ls_checkpoint *cp = calloc(1, sizeof *cp);
    if (!cp || !(cp->dir = copy_text(dir))) {
        free(cp);
        return no_memory(err);
    }
    cp->view.load = o.load;
    ls_status s = ls_gguf_is(dir) ? open_gguf(cp, o.widen, err) : open_folder(cp, err);
    if (s != LS_OK) {
        ls_checkpoint_close(cp);
        return s;
    }
    *out = cp;
    return LS_OK;
}

ls_status ls_checkpoint_open(const char *dir, ls_checkpoint **out, ls_err *err) {
    return ls_checkpoint_open_with(dir, (ls_checkpoint_options){0}, out, err);
}

void ls_checkpoint_close(ls_checkpoint *cp) {
    if (!cp)
        return;
    for (size_t i = 0; i < cp->n_files; i++) {
        ls_safetensors_close(cp->file[i].st);
        free(cp->file[i].name);
    }
    free(cp->file);
    ls_gguf_view_free(&cp->view);
    ls_gguf_close(cp->gguf);
    free(cp->tensor);
    free(cp->dir);
    free(cp);
}

const char *ls_checkpoint_dir(const ls_checkpoint *cp) {
    return cp->dir;
}

size_t ls_checkpoint_count(const ls_checkpoint *cp) {
    return cp->n;
}

const ls_st_tensor *ls_checkpoint_at(const ls_checkpoint *cp, size_t i) {
    return cp->tensor[i];
}

const ls_st_tensor *ls_checkpoint_find(const ls_checkpoint *cp, const char *name) {
    ls_st_tensor wanted = {.name = name};
    const ls_st_tensor *key = &wanted;
    const ls_st_tensor **hit = bsearch(&key, cp->tensor, cp->n, sizeof *cp->tensor, by_tensor_name);
    return hit ? *hit : NULL;
}

size_t ls_checkpoint_n_files(const ls_checkpoint *cp) {
    return cp->gguf ? 1 : cp->n_files;
}

const ls_gguf *ls_checkpoint_gguf(const ls_checkpoint *cp) {
    return cp->gguf;
}

/* ---- digest ---------------------------------------------------------------------------------- */

/* Adds the line sha256sum would print. */
static ls_status add_line(ls_sha256 *all, const char *name, const void *data, size_t n,
                          ls_err *err) {
    char hex[LS_SHA256_HEX];
    LS_TRY(ls_sha256_of(data, n, hex, err));
    ls_sha256_add(all, hex, LS_SHA256_HEX - 1);
    ls_sha256_add(all, "  ", 2);
    ls_sha256_add(all, name, strlen(name));
    ls_sha256_add(all, "\n", 1);
    return LS_OK;
}

static ls_status add_file(ls_sha256 *all, const ls_checkpoint *cp, const char *name, ls_err *err) {
    char *path = NULL;
    LS_TRY(ls_file_join(cp->dir, name, &path, err));
    ls_file f = {0};
    ls_status s = ls_file_open(path, cp->dir, &f, err);
    free(path);
    LS_TRY(s);
    s = add_line(all, name, f.data, f.bytes, err);
    ls_file_close(&f);
    return s;
}

static ls_status add_files(ls_sha256 *all, const ls_checkpoint *cp, ls_err *err) {
    size_t n = 0;
    if (cp->gguf) {
        const char *slash = strrchr(cp->dir, '/');
        const uint8_t *data = ls_gguf_bytes(cp->gguf, &n);
        return add_line(all, slash ? slash + 1 : cp->dir, data, n, err);
    }
    /* the two other names take their places among the sorted weight files */
    const char *extra[2];
    size_t n_extra = 0, e = 0;
    if (has(cp->dir, "config.json"))
        extra[n_extra++] = "config.json";
    if (cp->has_index)
        extra[n_extra++] = INDEX;
    ls_status s = LS_OK;
    for (size_t i = 0; i <= cp->n_files && s == LS_OK; i++) {
        while (s == LS_OK && e < n_extra &&
               (i == cp->n_files || strcmp(extra[e], cp->file[i].name) < 0))
            s = add_file(all, cp, extra[e++], err);
        if (s == LS_OK && i < cp->n_files) {
            const uint8_t *data = ls_safetensors_bytes(cp->file[i].st, &n);
            s = add_line(all, cp->file[i].name, data, n, err);
        }
    }
    return s;
}

ls_status ls_checkpoint_digest(const ls_checkpoint *cp, char hex[LS_SHA256_HEX], ls_err *err) {
    ls_sha256 all;
    LS_TRY(ls_sha256_begin(&all, err));
    ls_status s = add_files(&all, cp, err);
    char out[LS_SHA256_HEX];
    ls_status end = ls_sha256_end(&all, out, err);
    LS_TRY(s);
    LS_TRY(end);
    memcpy(hex, out, sizeof out);
    return LS_OK;
}
