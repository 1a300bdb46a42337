#define _XOPEN_SOURCE 700 /* realpath */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_status io_fail(ls_err *err, const char *path, int reason) {
    char name[256];
    return ls_fail(err, LS_ERR_IO, "%s: %s", ls_err_text(name, sizeof name, path, strlen(path)),
                   strerror(reason));
}

static ls_status input_fail(ls_err *err, const char *path, const char *reason) {
    char name[256];
    return ls_fail(err, LS_ERR_INPUT, "%s: %s", ls_err_text(name, sizeof name, path, strlen(path)),
                   reason);
}

/* Is `path` (resolved) below `folder` (resolved)? */
static bool is_below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    if (n > 0 && folder[n - 1] == '/') /* only the root ends so */
        n--;
    return strncmp(path, folder, n) == 0 && path[n] == '/';
}

/* In a Hugging Face cache, REPO/snapshots/REV holds links to REPO/blobs. Cuts `folder` to
 * REPO/blobs when it has that form. */
static bool cache_blobs(char *folder) {
    char *rev = strrchr(folder, '/');
    if (!rev || rev == folder)
        return false;
    *rev = 0;
    char *name = strrchr(folder, '/');
    if (!name || strcmp(name, "/snapshots") != 0)
        return false;
    strcpy(name, "/blobs"); /* shorter than what it replaces */
    return true;
}

/* Resolves every link of path and checks where it ends. */
static ls_status resolve(const char *path, const char *inside, char **out, ls_err *err) {
    char *real = realpath(path, NULL);
    if (!real)
        return io_fail(err, path, errno);
    if (inside) {
        char *folder = realpath(inside, NULL);
        if (!folder) {
            int reason = errno;
            free(real);
            return io_fail(err, inside, reason);
        }
        bool ok = is_below(real, folder) || (cache_blobs(folder) && is_below(real, folder));
        free(folder);
        if (!ok) {
            free(real);
            return input_fail(err, path,
                              "is a link that leads out of the model folder; copy the "
                              "file into the folder");
        }
    }
    *out = real;
    return LS_OK;
}

/* An open descriptor of a regular file, and its size. */
static ls_status open_regular(const char *path, const char *inside, int *fd, size_t *bytes,
                              ls_err *err) {
    char *real = NULL;
    LS_TRY(resolve(path, inside, &real, err));
    /* not blocking: opening a pipe would wait for a writer */
    *fd = open(real, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    int reason = errno;
    free(real);
    if (*fd < 0)
        return io_fail(err, path, reason);
    struct stat st;
    ls_status s = LS_OK;
    if (fstat(*fd, &st) != 0)
        s = io_fail(err, path, errno);
    else if (S_ISDIR(st.st_mode))
        s = input_fail(err, path, "is a folder, not a file");
    else if (!S_ISREG(st.st_mode))
        s = input_fail(err, path, "is not a regular file");
    else if (st.st_size < 0 || (uintmax_t)st.st_size > SIZE_MAX / 2)
        s = input_fail(err, path, "is too large for this machine");
    else
        *bytes = (size_t)st.st_size;
    if (s != LS_OK)
        close(*fd);
    return s;
}

ls_status ls_file_open(const char *path, const char *inside, ls_file *out, ls_err *err) {
    static const uint8_t nothing[1] = {0};
    int fd = -1;
    size_t bytes = 0;
    LS_TRY(open_regular(path, inside, &fd, &bytes, err));
    ls_file f = {nothing, 0};
    if (bytes > 0) {
        void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            int reason = errno;
            close(fd);
            return io_fail(err, path, reason);
        }
        f.data = p;
        f.bytes = bytes;
    }
    close(fd);
    *out = f;
    return LS_OK;
}

void ls_file_close(ls_file *f) {
    if (!f)
        return;
    if (f->bytes > 0)
        munmap((void *)(uintptr_t)f->data, f->bytes);
    memset(f, 0, sizeof *f);
}

ls_status ls_file_read(const char *path, const char *inside, size_t max_bytes, char **out,
                       size_t *bytes, ls_err *err) {
    int fd = -1;
    size_t size = 0, got = 0;
    LS_TRY(open_regular(path, inside, &fd, &size, err));
    ls_status s = LS_OK;
    char *p = NULL;
    if (size > max_bytes) {
        char name[256];
        s = ls_fail(err, LS_ERR_INPUT, "%s: %zu bytes, at most %zu are read",
                    ls_err_text(name, sizeof name, path, strlen(path)), size, max_bytes);
    } else if (!(p = malloc(size + 1))) {
        s = ls_fail(err, LS_ERR_MEMORY, "out of memory: %zu bytes", size);
    }
    while (s == LS_OK && got < size) {
        ssize_t n = read(fd, p + got, size - got);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0)
            break; /* cut since fstat: what is there is the file */
        else if (errno != EINTR)
            s = io_fail(err, path, errno);
    }
    close(fd);
    if (s != LS_OK) {
        free(p);
        return s;
    }
    p[got] = 0;
    *out = p;
    *bytes = got;
    return LS_OK;
}

bool ls_file_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

ls_status ls_file_join(const char *dir, const char *name, char **out, ls_err *err) {
    size_t nd = strlen(dir), nn = strlen(name);
    char *p = malloc(nd + nn + 2);
    if (!p)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: a path of %zu bytes", nd + nn);
    memcpy(p, dir, nd);
    if (nd > 0 && dir[nd - 1] != '/')
        p[nd++] = '/';
    memcpy(p + nd, name, nn + 1);
    *out = p;
    return LS_OK;
}
