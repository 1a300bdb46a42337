/* Checkpoints: single or sharded, the index's verdicts, links, and the digest. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"

static void verdict(const char *path, const char *expect, const char *why) {
    char dir[1024];
    snprintf(dir, sizeof dir, "%.1000s", path);
    *strrchr(dir, '/') = 0;
    ls_checkpoint *cp = NULL;
    ls_err err = {0};
    ls_status s = ls_checkpoint_open(dir, &cp, &err);
    if ((s == LS_OK) != (strcmp(expect, "accept") == 0))
        fail_msg("%s: %s, expected %s (%s)", dir, s == LS_OK ? "accepted" : err.msg, expect, why);
    if (s == LS_OK) { /* each good case: a is 1,2, whatever else lies about */
        static const float a[2] = {1, 2};
        assert_int_equal(ls_checkpoint_count(cp), 2);
        assert_int_equal(ls_checkpoint_n_files(cp), 2);
        const ls_st_tensor *t = ls_checkpoint_find(cp, "a");
        assert_non_null(t);
        assert_int_equal(t->bytes, sizeof a);
        assert_memory_equal(t->data, a, sizeof a);
        assert_non_null(ls_checkpoint_find(cp, "b"));
        assert_null(ls_checkpoint_find(cp, "c"));
        assert_string_equal(ls_checkpoint_at(cp, 0)->name, "a");
        assert_string_equal(ls_checkpoint_at(cp, 1)->name, "b");
    } else {
        ls_assert_message(&err, ": ", NULL);
        assert_null(cp);
    }
    ls_checkpoint_close(cp);
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("index/", 9, verdict);
}

static void refuses(const char *dir, const char *needle) {
    ls_checkpoint *cp = NULL;
    ls_err err = {0};
    if (ls_checkpoint_open(dir, &cp, &err) == LS_OK)
        fail_msg("accepted; expected \"%s\"", needle);
    ls_assert_message(&err, needle, NULL);
    assert_null(cp);
}

#define INDEX "model.safetensors.index.json"

static void test_index(void **state) {
    (void)state;
    static const struct {
        const char *index, *says;
    } all[] = {
        {"{\"weight_map\":{\"a\":\"\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\".\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"x/../one\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"..\\\\one\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"link\"}}", "leads out"},
        {"{\"weight_map\":{\"a\":\"" INDEX "\"}}", "header"},
        {"{\"weight_map\":{\"a\":\"absent\"}}", "No such file"},
        {"{\"weight_map\":{\"z\":\"one\"}}", "does not hold"},
        {"{\"weight_map\":[\"one\"]}", "weight_map: is a list"},
        {"{\"metadata\":{}}", "weight_map: is missing"},
        {"{\"weight_map\":{\"a\":\"one\",\"a\":\"one\"}}", "duplicate"},
        {"", "is empty"},
    };
    char *dir = ls_test_dir_make(), *out = ls_test_dir_make();
    char *one = ls_test_path("cases/index/good/model-00001-of-00002.safetensors");
    ls_test_copy(one, dir, "one");
    ls_test_copy(one, out, "one");
    char link[1100], target[1100];
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(target, sizeof target, "%s/one", out);
    assert_int_equal(symlink(target, link), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_test_write(dir, INDEX, all[i].index, strlen(all[i].index));
        refuses(dir, all[i].says);
    }
    /* the same folder with a right index opens: the refusals were about the index */
    static const char good[] = "{\"weight_map\":{\"a\":\"one\"}}";
    ls_test_write(dir, INDEX, good, sizeof good - 1);
    ls_checkpoint *cp = NULL;
    ls_err err = {0};
    OK(ls_checkpoint_open(dir, &cp, &err), &err);
    ls_checkpoint_close(cp);
    /* names in no order at all: each tensor still comes from its own file */
    static const char mixed[] = "{\"weight_map\":{\"b\":\"zz\",\"a\":\"one\",\"c\":\"mid\"}}";
    for (int i = 0; i < 2; i++) { /* a file that holds b, and one that holds c */
        char file[100], head[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
        head[2] = (char)('b' + i);
        memset(file, 0, 8);
        file[0] = (char)strlen(head);
        memcpy(file + 8, head, sizeof head);
        file[8 + strlen(head)] = (char)(40 + i);
        ls_test_write(dir, i ? "mid" : "zz", file, 9 + strlen(head));
    }
    ls_test_write(dir, INDEX, mixed, sizeof mixed - 1);
    OK(ls_checkpoint_open(dir, &cp, &err), &err);
    assert_int_equal(ls_checkpoint_find(cp, "b")->data[0], 40);
    assert_int_equal(ls_checkpoint_find(cp, "c")->data[0], 41);
    assert_int_equal(ls_checkpoint_find(cp, "a")->bytes, 8);
    assert_string_equal(ls_checkpoint_at(cp, 2)->name, "c");
    ls_checkpoint_close(cp);
    free(one);
    ls_test_dir_remove(out);
    ls_test_dir_remove(dir);
}

static void test_folder(void **state) {
    (void)state;
    char *dir = ls_test_dir_make();
    refuses("/no/such/folder", "no such folder");
    refuses(dir, "holds neither");
    ls_test_write(dir, "pytorch_model.bin", "x", 1);
    refuses(dir, "convert");
    ls_test_write(dir, "model.safetensors", "x", 1);
    refuses(dir, "too short");
    ls_test_dir_remove(dir);
    ls_checkpoint_close(NULL);
}

/* Index and weights cut at every byte. */
static void test_every_cut(void **state) {
    (void)state;
    static const char *const names[] = {INDEX, "model-00001-of-00002.safetensors"};
    for (size_t k = 0; k < 2; k++) {
        char *dir = ls_test_dir_make();
        for (int i = 1; i <= 2; i++) {
            char *from = ls_test_path("cases/index/good/model-%05d-of-00002.safetensors", i),
                 name[64];
            snprintf(name, sizeof name, "model-%05d-of-00002.safetensors", i);
            ls_test_copy(from, dir, name);
            free(from);
        }
        char *index = ls_test_path("cases/index/good/" INDEX);
        ls_test_copy(index, dir, INDEX);
        char *path = ls_test_path("cases/index/good/%s", names[k]);
        size_t n = 0;
        char *data = ls_test_read(path, &n);
        while (k == 0 && data[n - 1] != '}')
            n--;
        for (size_t cut = 0; cut < n; cut++) {
            ls_test_write(dir, names[k], data, cut);
            refuses(dir, names[k]);
        }
        free(data);
        free(path);
        free(index);
        ls_test_dir_remove(dir);
    }
}

/* What `sha256sum config.json model.safetensors | sha256sum` and its like print. */
static void test_digest(void **state) {
    (void)state;
    static const struct {
        const char *dir, *hex;
    } all[] = {
        {"cases/index/good", "d782280ffb898c82d76b2f203155840fc4bd2277594f4645bb0221587d33f685"},
        {"cases/models/table_target",
         "512e7e97dd6030318af3d827270e41762d2b658659a7b1adae4c292e6896d643"}};
    for (size_t i = 0; i < 2; i++) {
        char *dir = ls_test_path("%s", all[i].dir), hex[LS_SHA256_HEX] = "";
        ls_checkpoint *cp = NULL;
        ls_err err = {0};
        OK(ls_checkpoint_open(dir, &cp, &err), &err);
        assert_string_equal(ls_checkpoint_dir(cp), dir);
        OK(ls_checkpoint_digest(cp, hex, &err), &err);
        assert_string_equal(hex, all[i].hex);
        ls_checkpoint_close(cp);
        free(dir);
    }
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_verdicts), cmocka_unit_test(test_index),
                                     cmocka_unit_test(test_folder),
                                     cmocka_unit_test(test_every_cut),
                                     cmocka_unit_test(test_digest)};
    return cmocka_run_group_tests(all, begin, NULL);
}
