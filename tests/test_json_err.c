/* JSON: what is refused and how it is said, what is accepted, on a small stack. */
#include "cases.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"

static ls_status parse(const char *text, size_t n, ls_json *doc, ls_err *err) {
    return ls_json_parse(text, n, "x.json", doc, err);
}

static void refuses(const char *text, size_t n, const char *needle) {
    ls_json doc = {0};
    ls_err err = {0};
    if (parse(text, n, &doc, &err) == LS_OK)
        fail_msg("accepted: %.60s", text);
    assert_int_equal(err.code, LS_ERR_INPUT);
    ls_assert_message(&err, "x.json", needle, NULL);
    assert_null(doc.root);
}

static void test_text(void **state) {
    (void)state;
#define NO(text, needle) refuses(text, sizeof(text) - 1, needle)
    NO("", "is empty");
    NO("\xEF\xBB\xBF", "is empty");
    NO("{\"a\":1", "line 1");
    NO("{\"a\":1,\n \"b\": }", "line 2, column");
    NO("{\"a\":1} x", "line 1");
    NO("{\"a\":1,\"a\":2}", "duplicate");
    NO("{\"a\":NaN}", "line 1");
    NO("{\"a\":Infinity}", "line 1");
    NO("{\"a\":1e999}", "overflow");
    NO("{\"a\":18446744073709551616}", "too big");
    NO("{\"a\":\"\\ud83d\"}", "Unicode");
    NO("{\"a\":\"\\u0000\"}", "u0000");
    NO("{\"a\":\"\x01\"}", "control");
    NO("{\"a\":\"\xC0\xAF\"}", "line 1, column 7: not UTF-8");
    NO("{\n\"a\":\"\xED\xA0\x80\"}", "line 2, column 6: not UTF-8");
    NO("{\"a\":\"x\0y\"}", "zero byte");
    NO("{}\0", "zero byte");
    NO("\xFF\xFE{\0}\0", "UTF-16");
    NO("\xFE\xFF\0{\0}", "UTF-16");
    NO("{\0}\0", "UTF-16");
    NO("\0{\0}", "UTF-16");
    NO("'a'", "line 1");
    NO("{\"a\":01}", "line 1");
    NO("{\"a\":1,}", "line 1");
    NO("[\"\\", "line 1");
#undef NO
}

static void test_accepts(void **state) {
    (void)state;
    static const char *const good[] = {"{}",
                                       "[]",
                                       " \n{\"a\":[1,2.5,-3e2,true,false,null]}\n",
                                       "\xEF\xBB\xBF{\"a\":1}",
                                       "{\"\\u00e9\":\"\\ud83d\\ude00\"}",
                                       "[\"[[[[[[{{{{\\\"[[[\"]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ls_json doc = {0};
        ls_err err = {0};
        OK(parse(good[i], strlen(good[i]), &doc, &err), &err);
        ls_json_free(&doc);
        ls_json_free(&doc); /* zeroed: allowed again */
    }
    ls_json_free(NULL);
}

/* n levels: [[[...]]] or {"a":{"a":...}} with a value inside. */
static char *nested(size_t n, bool objects, size_t *len) {
    const char *open = objects ? "{\"a\":" : "[", *close = objects ? "}" : "]";
    char *text = malloc(n * (strlen(open) + 1) + 2), *p = text;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++, p += strlen(open))
        memcpy(p, open, strlen(open));
    *p++ = '1';
    for (size_t i = 0; i < n; i++)
        *p++ = *close;
    *len = (size_t)(p - text);
    return text;
}

typedef struct depth_job {
    char *text;
    size_t n;
    ls_status status;
    ls_err err;
    double seconds;
} depth_job;

static void *depth_thread(void *arg) {
    depth_job *j = arg;
    ls_json doc = {0};
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    j->status = parse(j->text, j->n, &doc, &j->err);
    ls_json_free(&doc);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    j->seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    return NULL;
}

/* The verdict on a thread whose stack has 64 KiB. */
static depth_job on_small_stack(size_t levels, bool objects) {
    depth_job j = {0};
    j.text = nested(levels, objects, &j.n);
    pthread_attr_t attr;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 64 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, depth_thread, &j), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    free(j.text);
    return j;
}

static void test_depth(void **state) {
    (void)state;
    for (int objects = 0; objects < 2; objects++) {
        assert_int_equal(on_small_stack(32, objects).status, LS_OK);
        assert_int_equal(on_small_stack(LS_JSON_DEPTH, objects).status, LS_OK);
        static const size_t deep[] = {LS_JSON_DEPTH + 1, 20000, 1000000};
        for (size_t i = 0; i < 3; i++) {
            depth_job j = on_small_stack(deep[i], objects);
            assert_int_equal(j.status, LS_ERR_INPUT);
            ls_assert_message(&j.err, "x.json", "deeper than 64", NULL);
            assert_true(j.seconds < 0.01); /* it stops at the 65th level */
        }
    }
}

static void test_values(void **state) {
    (void)state;
    static const char text[] =
        "{\"n\":5,\"f\":2.5,\"s\":\"a\\u001bb\",\"b\":true,\"z\":null,\"l\":[1,{\"odd key\":-7}],"
        "\"big\":9223372036854775807,\"x\":5.0}";
    ls_json doc = {0};
    ls_err err = {0};
    OK(parse(text, sizeof text - 1, &doc, &err), &err);
    ls_json_at root = ls_json_root(&doc);
    int64_t n = 0;
    double f = 0;
    bool b = false;
    const char *s = NULL;
    OK(ls_json_int(&root, "n", 5, 5, &n, &err), &err);
    assert_int_equal(n, 5);
    OK(ls_json_int(&root, "big", 0, INT64_MAX, &n, &err), &err);
    assert_true(n == INT64_MAX);
    OK(ls_json_int_or(&root, "absent", 0, 9, 3, &n, &err), &err);
    assert_int_equal(n, 3);
    OK(ls_json_int_or(&root, "z", 0, 9, 4, &n, &err), &err);
    assert_int_equal(n, 4);
    OK(ls_json_number_or(&root, "n", 0, 9, 0, &f, &err), &err);
    assert_true(f == 5);
    OK(ls_json_number_or(&root, "absent", 0, 9, 1.5, &f, &err), &err);
    assert_true(f == 1.5);
    OK(ls_json_bool_or(&root, "b", false, &b, &err), &err);
    assert_true(b);
    OK(ls_json_string(&root, "s", &s, &err), &err);
    assert_string_equal(s, "a\x1b"
                           "b");
    OK(ls_json_string_or(&root, "absent", "d", &s, &err), &err);
    assert_string_equal(s, "d");

#define REFUSED(call, ...)                                       \
    do {                                                         \
        n = 77;                                                  \
        assert_int_equal(call, LS_ERR_INPUT);                    \
        ls_assert_message(&err, "x.json: ", __VA_ARGS__, NULL);  \
        assert_int_equal(n, 77); /* outputs stay as they were */ \
    } while (0)
    REFUSED(ls_json_int(&root, "n", 6, 9, &n, &err), "n: ", "is 5, outside 6 to 9");
    REFUSED(ls_json_int(&root, "absent", 0, 9, &n, &err), "absent: is missing");
    REFUSED(ls_json_int(&root, "z", 0, 9, &n, &err), "z: is null");
    REFUSED(ls_json_int(&root, "x", 0, 9, &n, &err), "x: ", "not a whole number");
    REFUSED(ls_json_int(&root, "s", 0, 9, &n, &err), "s: ", "\"a\\x1Bb\"");
    REFUSED(ls_json_int(&root, "l", 0, 9, &n, &err), "l: is a list");
    REFUSED(ls_json_number_or(&root, "f", 3, 9, 0, &f, &err), "f: is 2.5, outside");
    REFUSED(ls_json_bool_or(&root, "n", true, &b, &err), "n: is 5, not true or false");
    REFUSED(ls_json_string(&root, "b", &s, &err), "b: is true, not a string");
    ls_json_at list = ls_json_key(&root, "l"), item = ls_json_item(&list, 1);
    REFUSED(ls_json_int(&item, "odd key", 0, 9, &n, &err), "l[1][\"odd key\"]: is -7");
    ls_json_at past = ls_json_item(&list, 2);
    REFUSED(ls_json_as_int(&past, 0, 9, &n, &err), "l[2]: is missing");
    static const char *const some[] = {"n", "f"};
    REFUSED(ls_json_only(&root, some, 2, &err), "s: this field is not understood");
#undef REFUSED
    ls_json_free(&doc);
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_accepts),
                                     cmocka_unit_test(test_depth), cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
