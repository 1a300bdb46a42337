#include "cases.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *tests = ".";

void ls_cases_begin(const char *test_dir) {
    tests = test_dir;
}

char *ls_test_path(const char *fmt, ...) {
    char rest[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    size_t n = strlen(tests) + strlen(rest) + 2;
    char *path = malloc(n);
    assert_non_null(path);
    snprintf(path, n, "%s/%s", tests, rest);
    return path;
}

char *ls_test_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    assert_true(size >= 0);
    rewind(f);
    char *p = malloc((size_t)size + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)size, f), size);
    fclose(f);
    p[size] = 0;
    *n = (size_t)size;
    return p;
}

void ls_cases_each(const char *prefix, size_t at_least, ls_case_fn fn) {
    char *path = ls_test_path("cases/manifest.json");
    json_t *list = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(list);
    size_t i, n = 0;
    json_t *entry;
    json_array_foreach (list, i, entry) {
        const char *file = json_string_value(json_object_get(entry, "file"));
        const char *expect = json_string_value(json_object_get(entry, "expect"));
        const char *why = json_string_value(json_object_get(entry, "why"));
        if (strncmp(file, prefix, strlen(prefix)) != 0 || strcmp(expect, "data") == 0)
            continue;
        path = ls_test_path("cases/%s", file);
        fn(path, expect, why ? why : "");
        free(path);
        n++;
    }
    json_decref(list);
    if (n < at_least)
        fail_msg("%zu cases under %s, at least %zu expected", n, prefix, at_least);
}

char *ls_test_dir_make(void) {
    const char *tmp = getenv("TMPDIR");
    char *dir = malloc(512);
    assert_non_null(dir);
    snprintf(dir, 512, "%.400s/lockstep-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static void remove_tree(const char *dir, int depth) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        snprintf(path, sizeof path, "%.700s/%s", dir, e->d_name);
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth > 0)
            remove_tree(path, depth - 1);
        else
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

void ls_test_dir_remove(char *dir) {
    remove_tree(dir, 3);
    free(dir);
}

void ls_test_write(const char *dir, const char *name, const void *data, size_t n) {
    char path[1024];
    snprintf(path, sizeof path, "%.700s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void ls_test_copy(const char *from, const char *dir, const char *name) {
    size_t n = 0;
    char *data = ls_test_read(from, &n);
    ls_test_write(dir, name, data, n);
    free(data);
}

void ls_assert_message(const ls_err *err, ...) {
    if (!err->msg[0] || strchr(err->msg, '\n'))
        fail_msg("not one line: \"%s\"", err->msg);
    va_list ap;
    va_start(ap, err);
    for (const char *needle; (needle = va_arg(ap, const char *));)
        if (!strstr(err->msg, needle))
            fail_msg("\"%s\" lacks \"%s\"", err->msg, needle);
    va_end(ap);
}
