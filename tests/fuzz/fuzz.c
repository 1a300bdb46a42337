#define _XOPEN_SOURCE 700
#include "fuzz.h"

#include <dirent.h>
#include <jansson.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory ---------------------------------------------------------------------------------- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __wrap_free(void *p);

/* Blocks that libraries hand over (realpath's) are freed here and were not counted: too little is
 * counted then, by a path's length. */
static ptrdiff_t now, most;
static bool counting;

static void *took(void *p) {
    if (p && counting) {
        now += (ptrdiff_t)malloc_usable_size(p);
        most = now > most ? now : most;
    }
    return p;
}

static void gave(void *p) {
    if (p && counting)
        now -= (ptrdiff_t)malloc_usable_size(p);
}

void *__wrap_malloc(size_t n) {
    return took(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size) {
    return took(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n) {
    const size_t was = p && counting ? malloc_usable_size(p) : 0;
    void *q = __real_realloc(p, n);
    if (q || n == 0) /* both may be there at once */
        took(q), now -= (ptrdiff_t)was;
    return q;
}

void *__wrap_aligned_alloc(size_t align, size_t n) {
    return took(__real_aligned_alloc(align, n));
}

void __wrap_free(void *p) {
    gave(p);
    __real_free(p);
}

void fuzz_mem_begin(void) {
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    now = most = 0;
    counting = true;
}

void fuzz_mem_end(size_t n, size_t times, size_t base) {
    counting = false;
    if ((size_t)(most > 0 ? most : 0) > base + times * n) {
        fprintf(stderr, "fuzz: %td bytes in use for an input of %zu, at most %zu + %zu times it\n",
                most, n, base, times);
        abort();
    }
    if (now > 0) {
        fprintf(stderr, "fuzz: %td bytes were not freed\n", now);
        abort();
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

void fuzz_require(int condition, const char *text) {
    if (condition)
        return;
    fprintf(stderr, "fuzz: %s\n", text);
    abort();
}

int fuzz_verdict(ls_status s, const ls_err *err) {
    if (s == LS_OK)
        return 1;
    if (s != LS_ERR_INPUT && s != LS_ERR_IO)
        fprintf(stderr, "fuzz: status %s: %s\n", ls_status_name(s), err->msg);
    fuzz_require(s == LS_ERR_INPUT || s == LS_ERR_IO, "an error of another kind than input");
    fuzz_require(err->code == s && err->msg[0], "an error without a message");
    for (const char *c = err->msg; *c; c++)
        fuzz_require((unsigned char)*c >= 0x20 && *c != 0x7f, "a control byte in a message");
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char folder[64];

static void remove_folder(void) {
    DIR *d = opendir(folder);
    char path[400];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

const char *fuzz_dir(void) {
    if (folder[0])
        return folder;
    /* in memory where there is such a place: a file is written for every input */
    strcpy(folder, "/dev/shm/ls-fuzz-XXXXXX");
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/ls-fuzz-XXXXXX");
        fuzz_require(mkdtemp(folder) != NULL, "no temporary folder");
    }
    atexit(remove_folder);
    return folder;
}

void fuzz_write(const char *name, const void *data, size_t n) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    FILE *f = fopen(path, "wb");
    fuzz_require(f != NULL, "cannot write");
    fuzz_require(fwrite(data, 1, n, f) == n && fclose(f) == 0, "cannot write");
}
