/* Files: what is no regular file, what lies outside, what is too large. */
#define _XOPEN_SOURCE 700
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

static char *join(const char *dir, const char *name) {
    char *p = NULL;
    ls_err err = {0};
    OK(ls_file_join(dir, name, &p, &err), &err);
    return p;
}

static void opens(const char *dir, const char *name, const char *inside, const char *text) {
    char *path = join(dir, name);
    ls_file f = {0};
    ls_err err = {0};
    OK(ls_file_open(path, inside, &f, &err), &err);
    assert_int_equal(f.bytes, strlen(text));
    assert_non_null(f.data);
    assert_memory_equal(f.data, text, f.bytes);
    ls_file_close(&f);
    assert_null(f.data);
    ls_file_close(&f);
    free(path);
}

static void refuses(const char *dir, const char *name, const char *inside, ls_status want,
                    const char *needle) {
    char *path = join(dir, name), *text = NULL;
    ls_file f = {0};
    ls_err err = {0};
    size_t n = 0;
    assert_int_equal(ls_file_open(path, inside, &f, &err), want);
    ls_assert_message(&err, name, needle, NULL);
    assert_null(f.data);
    assert_int_equal(ls_file_read(path, inside, 100, &text, &n, &err), want);
    ls_assert_message(&err, name, needle, NULL);
    assert_null(text);
    free(path);
}

static void link_to(const char *target, const char *dir, const char *name) {
    char *path = join(dir, name);
    assert_int_equal(symlink(target, path), 0);
    free(path);
}

static void test_kinds(void **state) {
    (void)state;
    char *dir = ls_test_dir_make();
    ls_test_write(dir, "plain", "hello", 5);
    ls_test_write(dir, "empty", "", 0);
    char *fifo = join(dir, "pipe");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    opens(dir, "plain", NULL, "hello");
    opens(dir, "plain", dir, "hello");
    opens(dir, "empty", dir, "");
    refuses(dir, "absent", dir, LS_ERR_IO, "No such file");
    refuses(dir, "pipe", dir, LS_ERR_INPUT, "not a regular file"); /* and does not wait for it */
    refuses("/dev", "null", NULL, LS_ERR_INPUT, "not a regular file");
    refuses("/", "tmp", NULL, LS_ERR_INPUT, "is a folder");
    ls_file_close(NULL);
    free(fifo);
    ls_test_dir_remove(dir);
}

static void test_read(void **state) {
    (void)state;
    char *dir = ls_test_dir_make(), *text = NULL;
    ls_test_write(dir, "plain", "hello", 5);
    char *path = join(dir, "plain");
    ls_err err = {0};
    size_t n = 0;
    OK(ls_file_read(path, dir, 5, &text, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_string_equal(text, "hello");
    free(text);
    text = NULL;
    assert_int_equal(ls_file_read(path, dir, 4, &text, &n, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "plain", "5 bytes, at most 4", NULL);
    assert_null(text);
    free(path);
    ls_test_dir_remove(dir);
}

static void test_links(void **state) {
    (void)state;
    char *out = ls_test_dir_make(), *dir = ls_test_dir_make();
    ls_test_write(out, "secret", "x", 1);
    ls_test_write(dir, "here", "y", 1);
    char *secret = join(out, "secret"), *longer = malloc(600);
    assert_non_null(longer);
    link_to(secret, dir, "leads_out");
    link_to("here", dir, "stays");
    link_to("leads_out", dir, "twice");
    link_to("nowhere", dir, "broken");
    opens(dir, "stays", dir, "y");
    opens(dir, "leads_out", NULL, "x");
    refuses(dir, "leads_out", dir, LS_ERR_INPUT, "leads out of the model folder");
    refuses(dir, "twice", dir, LS_ERR_INPUT, "leads out of the model folder");
    refuses(dir, "broken", dir, LS_ERR_IO, "No such file");
    /* a folder whose name merely begins like the other is not inside it */
    snprintf(longer, 600, "%s-more", dir);
    assert_int_equal(mkdir(longer, 0700), 0);
    ls_test_write(longer, "secret", "x", 1);
    char *sibling = join(longer, "secret");
    link_to(sibling, dir, "to_sibling");
    refuses(dir, "to_sibling", dir, LS_ERR_INPUT, "leads out of the model folder");
    free(sibling);
    ls_test_dir_remove(longer);
    free(secret);
    ls_test_dir_remove(dir);
    ls_test_dir_remove(out);
}

/* REPO/snapshots/REV/config.json -> ../../blobs/HASH, as the Hugging Face cache lays it out. */
static void test_cache(void **state) {
    (void)state;
    char *repo = ls_test_dir_make();
    char *blobs = join(repo, "blobs"), *snapshots = join(repo, "snapshots");
    assert_int_equal(mkdir(blobs, 0700), 0);
    assert_int_equal(mkdir(snapshots, 0700), 0);
    char *rev = join(snapshots, "abc"), *other = join(repo, "other");
    assert_int_equal(mkdir(rev, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    ls_test_write(blobs, "hash", "blob", 4);
    ls_test_write(other, "file", "x", 1);
    link_to("../../blobs/hash", rev, "config.json");
    link_to("../../other/file", rev, "stray");
    link_to("../blobs/hash", other, "not_a_snapshot");
    opens(rev, "config.json", rev, "blob");
    refuses(rev, "stray", rev, LS_ERR_INPUT, "leads out");
    refuses(other, "not_a_snapshot", other, LS_ERR_INPUT, "leads out");
    free(other);
    free(rev);
    free(snapshots);
    free(blobs);
    ls_test_dir_remove(repo);
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_read),
                                     cmocka_unit_test(test_links), cmocka_unit_test(test_cache)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
