#include "results.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "json.h"

#define LS_RESULTS_BYTES_MAX ((size_t)1 << 32) /* of one file; past it, start another name */

typedef struct cell {
    char id[LS_SHA256_HEX];
    off_t at; /* where its line begins */
    size_t n; /* without the newline */
} cell;

struct ls_results {
    char *path;
    int fd;
    off_t end;
    cell *cells; /* file order */
    int64_t n, cap;
    json_t *index; /* id -> place in cells */
};

static ls_status io_fail(const char *path, const char *what, ls_err *err) {
    return ls_fail(err, LS_ERR_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

static ls_status check_name(const char *name, ls_err *err) {
    const size_t n = strlen(name);
    bool good = n > 0 && n <= 100 && name[0] != '.';
    for (size_t i = 0; i < n; i++)
        good = good && (isalnum((unsigned char)name[i]) || strchr("_-.", name[i]));
    char shown[128];
    return good ? LS_OK
                : ls_fail(err, LS_ERR_INPUT,
                          "results: '%s' is no name: 1 to 100 letters, digits, '_', '-' or '.', "
                          "not beginning with '.'",
                          ls_err_text(shown, sizeof shown, name, n));
}

/* ---- the index ------------------------------------------------------------------------------- */

static ls_status index_add(ls_results *r, const char *id, off_t at, size_t n, ls_err *err) {
    if (r->n == r->cap) {
        const int64_t cap = r->cap ? 2 * r->cap : 64;
        cell *grown = realloc(r->cells, (size_t)cap * sizeof *grown);
        if (!grown)
            return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", r->path);
        r->cells = grown, r->cap = cap;
    }
    if (json_object_set_new(r->index, id, json_integer(r->n)) != 0)
        return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", r->path);
    cell *c = &r->cells[r->n++];
    memcpy(c->id, id, LS_SHA256_HEX);
    c->at = at, c->n = n;
    return LS_OK;
}

static bool is_id(const char *id) {
    return id && strlen(id) == LS_SHA256_HEX - 1 &&
           strspn(id, "0123456789abcdef") == LS_SHA256_HEX - 1;
}

/* The cell id of a line; `where` names it in messages. */
static ls_status line_id(const char *line, size_t n, const char *where, char id[LS_SHA256_HEX],
                         ls_err *err) {
    ls_json doc = {0};
    LS_TRY(ls_json_parse(line, n, where, &doc, err));
    const ls_json_at root = ls_json_root(&doc);
    const char *text = NULL;
    ls_status s = ls_json_string(&root, "cell", &text, err);
    if (s == LS_OK && !is_id(text))
        s = ls_fail(err, LS_ERR_INPUT, "%s: 'cell' is not a SHA-256 in hex", where);
    if (s == LS_OK)
        memcpy(id, text, LS_SHA256_HEX);
    ls_json_free(&doc);
    return s;
}

static ls_status index_line(ls_results *r, const char *line, size_t n, off_t at, ls_err *err) {
    char id[LS_SHA256_HEX], where[512];
    snprintf(where, sizeof where, "%s: cell %lld", r->path, (long long)r->n + 1);
    LS_TRY(line_id(line, n, where, id, err));
    if (json_object_get(r->index, id))
        return ls_fail(err, LS_ERR_INPUT, "%s: its 'cell' is in the file twice; remove one line",
                       where);
    return index_add(r, id, at, n, err);
}

/* Reads the whole file once; the offset behind the last complete line goes to r->end. */
static ls_status index_file(ls_results *r, size_t bytes, ls_err *err) {
    ls_file f;
    if (bytes > LS_RESULTS_BYTES_MAX)
        return ls_fail(err, LS_ERR_INPUT, "%s: larger than 4 GiB; begin another results name",
                       r->path);
    LS_TRY(ls_file_open(r->path, NULL, &f, err));
    const char *text = (const char *)f.data;
    size_t at = 0;
    ls_status s = LS_OK;
    while (s == LS_OK && at < f.bytes) {
        const char *nl = memchr(text + at, '\n', f.bytes - at);
        if (!nl)
            break;
        const size_t n = (size_t)(nl - (text + at));
        s = index_line(r, text + at, n, (off_t)at, err);
        at += n + 1;
    }
    ls_file_close(&f);
    r->end = (off_t)at;
    return s;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The file's own entry in its folder has to survive a kill too. */
static void sync_folder(const char *dir) {
    const int fd = open(dir, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* flock, not fcntl: it also keeps out a second handle of this process, and closing one elsewhere
 * does not drop it. */
static ls_status lock_file(ls_results *r, ls_err *err) {
    if (flock(r->fd, LOCK_EX | LOCK_NB) == 0)
        return LS_OK;
    if (errno == EWOULDBLOCK)
        return ls_fail(err, LS_ERR_STATE,
                       "%s: in use by another run; wait for it, or use another output folder",
                       r->path);
    return io_fail(r->path, "lock", err);
}

static ls_status open_file(ls_results *r, const char *dir, size_t *n_torn, ls_err *err) {
    struct stat st;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return io_fail(dir, "make the folder", err);
    r->fd = open(r->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (r->fd < 0)
        return io_fail(r->path, "open", err);
    if (fstat(r->fd, &st) != 0)
        return io_fail(r->path, "read", err);
    if (!S_ISREG(st.st_mode))
        return ls_fail(err, LS_ERR_INPUT, "%s: not a regular file", r->path);
    LS_TRY(lock_file(r, err));
    LS_TRY(index_file(r, (size_t)st.st_size, err));
    if (n_torn)
        *n_torn = (size_t)(st.st_size - r->end);
    if (r->end < st.st_size && (ftruncate(r->fd, r->end) != 0 || fsync(r->fd) != 0))
        return io_fail(r->path, "drop the torn last line", err);
    sync_folder(dir);
    return LS_OK;
}

ls_status ls_results_open(const char *dir, const char *name, ls_results **out, size_t *n_torn,
                          ls_err *err) {
    LS_TRY(check_name(name, err));
    ls_results *r = calloc(1, sizeof *r);
    const size_t n = strlen(dir) + strlen(name) + sizeof "/.jsonl";
    if (r) {
        r->fd = -1;
        r->path = malloc(n);
        r->index = json_object();
    }
    if (!r || !r->path || !r->index) {
        ls_results_close(r);
        return ls_fail(err, LS_ERR_MEMORY, "results: out of memory");
    }
    snprintf(r->path, n, "%s/%s.jsonl", dir, name);
    const ls_status s = open_file(r, dir, n_torn, err);
    if (s != LS_OK) {
        ls_results_close(r);
        return s;
    }
    *out = r;
    return LS_OK;
}

void ls_results_close(ls_results *r) {
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd); /* drops the lock */
    json_decref(r->index);
    free(r->cells);
    free(r->path);
    free(r);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static const cell *find(const ls_results *r, const char *id) {
    const json_t *at = json_object_get(r->index, id);
    return at ? &r->cells[json_integer_value(at)] : NULL;
}

bool ls_results_has(const ls_results *r, const char *id) {
    return find(r, id) != NULL;
}

static ls_status read_cell(const ls_results *r, const cell *c, char **line, ls_err *err) {
    char *text = malloc(c->n + 1);
    if (!text)
        return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", r->path);
    size_t done = 0;
    while (done < c->n) {
        const ssize_t got = pread(r->fd, text + done, c->n - done, c->at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(text);
            return got == 0 ? ls_fail(err, LS_ERR_IO, "%s: was cut while in use", r->path)
                            : io_fail(r->path, "read", err);
        }
        done += (size_t)got;
    }
    text[c->n] = 0;
    *line = text;
    return LS_OK;
}

ls_status ls_results_get(const ls_results *r, const char *id, char **line, ls_err *err) {
    const cell *c = find(r, id);
    *line = NULL;
    return c ? read_cell(r, c, line, err) : LS_OK;
}

ls_status ls_results_line(const ls_results *r, int64_t i, char **line, ls_err *err) {
    if (i < 0 || i >= r->n)
        return ls_fail(err, LS_ERR_SHAPE, "%s: no cell %lld of %lld", r->path, (long long)i,
                       (long long)r->n);
    return read_cell(r, &r->cells[i], line, err);
}

static ls_status write_all(int fd, const char *text, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(fd, text + done, n - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return LS_ERR_IO;
        done += (size_t)put;
    }
    return LS_OK;
}

ls_status ls_results_add(ls_results *r, const char *id, const char *line, ls_err *err) {
    char found[LS_SHA256_HEX];
    const size_t n = strlen(line);
    if (memchr(line, '\n', n))
        return ls_fail(err, LS_ERR_SHAPE, "%s: a cell is one line", r->path);
    LS_TRY(line_id(line, n, r->path, found, err));
    if (!is_id(id) || strcmp(id, found) != 0)
        return ls_fail(err, LS_ERR_SHAPE, "%s: the line is not cell %.64s", r->path, id);
    if (find(r, id))
        return ls_fail(err, LS_ERR_STATE, "%s: cell %.12s is finished already", r->path, id);

    char *whole = malloc(n + 1);
    if (!whole)
        return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", r->path);
    memcpy(whole, line, n);
    whole[n] = '\n';
    ls_status s = write_all(r->fd, whole, n + 1);
    free(whole);
    if (s != LS_OK || fsync(r->fd) != 0) {
        s = io_fail(r->path, "write", err);
        if (ftruncate(r->fd, r->end) != 0) /* then the next open drops what is torn */
            return ls_fail_in(err, s, "half a line stays behind");
        return s;
    }
    LS_TRY(index_add(r, id, r->end, n, err));
    r->end += (off_t)(n + 1);
    return LS_OK;
}

int64_t ls_results_count(const ls_results *r) {
    return r->n;
}
const char *ls_results_path(const ls_results *r) {
    return r->path;
}
