/* safetensors: every verdict of the carried cases, and every cut of a good file. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

static void verdict(const char *path, const char *expect, const char *why) {
    ls_safetensors *st = NULL;
    ls_err err = {0};
    ls_status s = ls_safetensors_open(path, NULL, &st, &err);
    if ((s == LS_OK) != (strcmp(expect, "accept") == 0))
        fail_msg("%s: %s, expected %s (%s)", path, s == LS_OK ? "accepted" : err.msg, expect, why);
    if (s != LS_OK) {
        assert_int_equal(s, LS_ERR_INPUT);
        ls_assert_message(&err, ".safetensors", NULL);
        assert_null(st);
    }
    ls_safetensors_close(st);
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("st/", 37, verdict);
}

static ls_safetensors *open_case(const char *name) {
    char *path = ls_test_path("cases/st/%s.safetensors", name);
    ls_safetensors *st = NULL;
    ls_err err = {0};
    OK(ls_safetensors_open(path, NULL, &st, &err), &err);
    free(path);
    return st;
}

static void test_contents(void **state) {
    (void)state;
    ls_safetensors *st = open_case("good_2x2");
    assert_int_equal(ls_safetensors_count(st), 1);
    const ls_st_tensor *t = ls_safetensors_at(st, 0);
    static const float want[4] = {1, 2, 3, 4};
    assert_int_equal(t->dtype, LS_ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_true(t->dim[0] == 2 && t->dim[1] == 2 && t->n_elems == 4);
    assert_int_equal(t->bytes, 16);
    assert_memory_equal(t->data, want, 16);
    assert_ptr_equal(ls_safetensors_find(st, t->name), t);
    assert_null(ls_safetensors_find(st, "no such"));
    ls_safetensors_close(st);

    st = open_case("good_scalar_shape_empty");
    t = ls_safetensors_at(st, 0);
    assert_true(t->n_dims == 0 && t->n_elems == 1 && t->bytes == 4);
    ls_safetensors_close(st);

    st = open_case("good_escaped_name");
    assert_non_null(ls_safetensors_find(st, "w.q"));
    ls_safetensors_close(st);

    st = open_case("good_zero_length_tensor");
    size_t empty = 0;
    for (size_t i = 0; i < ls_safetensors_count(st); i++)
        empty += ls_safetensors_at(st, i)->n_elems == 0;
    assert_int_equal(empty, 1);
    ls_safetensors_close(st);

    st = open_case("good_unsorted_names");
    for (size_t i = 1; i < ls_safetensors_count(st); i++)
        assert_true(strcmp(ls_safetensors_at(st, i - 1)->name, ls_safetensors_at(st, i)->name) < 0);
    ls_safetensors_close(st);
    ls_safetensors_close(NULL);
}

/* A copy in memory of exactly n bytes, so that the address sanitizer sees a read past them. */
static ls_status parse_copy(const char *data, size_t n, ls_err *err) {
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, data, n);
    ls_safetensors *st = NULL;
    ls_status s = ls_safetensors_parse(exact, n, "cut.safetensors", &st, err);
    ls_safetensors_close(st);
    free(exact);
    return s;
}

static void test_every_cut(void **state) {
    (void)state;
    static const char *const names[] = {"good_2x2", "good_unsorted_names",
                                        "good_zero_length_tensor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = ls_test_path("cases/st/%s.safetensors", names[i]);
        size_t n = 0;
        char *data = ls_test_read(path, &n);
        for (size_t cut = 0; cut < n; cut++) {
            ls_err err = {0};
            if (parse_copy(data, cut, &err) != LS_ERR_INPUT)
                fail_msg("%s cut at %zu was accepted", names[i], cut);
            ls_assert_message(&err, "cut.safetensors", NULL);
        }
        ls_err err = {0};
        OK(parse_copy(data, n, &err), &err); /* the whole is good: the loop could have failed */
        free(data);
        free(path);
    }
}

/* Any one byte changed: a verdict either way, and no fault. */
static void test_every_byte(void **state) {
    (void)state;
    char *path = ls_test_path("cases/st/good_unsorted_names.safetensors");
    size_t n = 0, refused = 0;
    char *data = ls_test_read(path, &n);
    for (size_t i = 0; i < n; i++)
        for (int v = 0; v < 256; v += 5) {
            char was = data[i];
            data[i] = (char)v;
            ls_err err = {0};
            refused += parse_copy(data, n, &err) != LS_OK;
            data[i] = was;
        }
    assert_true(refused > n); /* most of the header matters */
    free(data);
    free(path);
}

/* One tensor of any dtype: the span has to fit its size exactly. */
static ls_status one(const char *dtype, const char *shape, unsigned bytes, ls_err *err) {
    char file[400];
    int n = snprintf(file + 8, sizeof file - 8,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%u]}}", dtype,
                     shape, bytes);
    assert_true(n > 0 && (size_t)n + 8 + bytes <= sizeof file);
    for (int i = 0; i < 8; i++)
        file[i] = (char)((unsigned long long)n >> 8 * i);
    memset(file + 8 + n, 0, bytes);
    return parse_copy(file, 8 + (size_t)n + bytes, err);
}

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned bytes; /* of 8 elements */
    } all[] = {{"BOOL", 8},  {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},
               {"U32", 32},  {"I32", 32},    {"U64", 64},    {"I64", 64},    {"F16", 16},
               {"BF16", 16}, {"F32", 32},    {"F64", 64},    {"C64", 64},    {"F8_E4M3", 8},
               {"F4", 4},    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_err err = {0};
        OK(one(all[i].name, "[2,4]", all[i].bytes, &err), &err);
        assert_int_equal(one(all[i].name, "[2,4]", all[i].bytes + 1, &err), LS_ERR_INPUT);
        assert_int_equal(one(all[i].name, "[2,4]", all[i].bytes - 1, &err), LS_ERR_INPUT);
    }
    ls_err err = {0};
    static const char *const unknown[] = {"F31", "f32", "", "F32 ", "FLOAT", "Q8_0", "Q4_K"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(one(unknown[i], "[2,4]", 32, &err), LS_ERR_INPUT);
        ls_assert_message(&err, "t.dtype", "no dtype", NULL);
    }
    assert_int_equal(one("F4", "[3]", 1, &err), LS_ERR_INPUT); /* 12 bits */
    ls_assert_message(&err, "whole bytes", NULL);
    OK(one("F32", "[1,1,1,1,1,1,1,1]", 4, &err), &err);
    assert_int_equal(one("F32", "[1,1,1,1,1,1,1,1,1]", 4, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "9 dimensions", NULL);
    assert_int_equal(one("F32", "[0,9223372036854775807,9]", 0, &err), LS_ERR_INPUT);
    assert_int_equal(one("U8", "[2305843009213693952,8]", 0, &err), LS_ERR_INPUT);
    assert_int_equal(one("F32", "[4611686018427387904]", 0, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "does not fit", NULL);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_verdicts), cmocka_unit_test(test_contents),
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_dtypes)};
    return cmocka_run_group_tests(all, begin, NULL);
}
