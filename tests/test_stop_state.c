/* Stop strings in a stream: tests/cases/numeric/stop.json, and a naive search over random texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "stop.h"

/* Feeds the pieces; returns the shown text and after how many pieces a match was complete (0:
 * none). */
static size_t feed_all(ls_stop *s, const char *const *piece, size_t n, char *shown) {
    ls_err err;
    const char *text;
    size_t n_text, at = 0, i;
    bool hit = false;
    for (i = 0; i < n && !hit; i++) {
        assert_int_equal(ls_stop_feed(s, piece[i], strlen(piece[i]), &text, &n_text, &hit, &err),
                         LS_OK);
        memcpy(shown + at, text, n_text);
        at += n_text;
    }
    ls_stop_flush(s, &text, &n_text);
    memcpy(shown + at, text, n_text);
    at += n_text;
    shown[at] = 0;
    assert_int_equal(ls_stop_released(s), at);
    return hit ? i : 0;
}

static void test_cases(void **state) {
    (void)state;
    ls_err err;
    json_t *all = json_load_file(LS_TEST_DIR "/cases/numeric/stop.json", 0, NULL), *row;
    size_t i, n_seen = 0;
    assert_non_null(all);
    json_array_foreach (all, i, row) {
        json_t *pieces = json_object_get(row, "pieces"),
               *kept = json_object_get(row, "tokens_kept");
        if (!pieces)
            continue;
        const char *piece[16], *stop = json_string_value(json_object_get(row, "stop_string"));
        char shown[256];
        ls_stop *s;
        for (size_t k = 0; k < json_array_size(pieces); k++)
            piece[k] = json_string_value(json_array_get(pieces, k));
        assert_int_equal(ls_stop_create(&stop, 1, &s, &err), LS_OK);
        const size_t used = feed_all(s, piece, json_array_size(pieces), shown);
        assert_string_equal(shown, json_string_value(json_object_get(row, "text")));
        assert_int_equal(used > 0,
                         strcmp(json_string_value(json_object_get(row, "reason")), "stop") == 0);
        if (kept)
            assert_int_equal(used, json_integer_value(kept));
        ls_stop_destroy(s);
        n_seen++;
    }
    assert_int_equal(n_seen, 3);
    json_decref(all);
}

/* Random texts over two letters, cut into random pieces, against a search in the whole text. */
static void test_against_search(void **state) {
    (void)state;
    ls_err err;
    uint32_t seed = 7;
#define RAND(n) ((seed = seed * 1664525u + 1013904223u) >> 16) % (n)
    for (int trial = 0; trial < 4000; trial++) {
        char text[41], stop_a[5], stop_b[5], shown[64], buf[40][8];
        const char *stops[] = {stop_a, stop_b}, *piece[40];
        size_t n = RAND(40) + 1, n_piece = 0;
        for (size_t k = 0; k < n; k++)
            text[k] = (char)('a' + RAND(2));
        text[n] = 0;
        for (int w = 0; w < 2; w++) {
            char *st = w ? stop_b : stop_a;
            size_t len = RAND(4) + 1;
            for (size_t k = 0; k < len; k++)
                st[k] = (char)('a' + RAND(2));
            st[len] = 0;
        }
        for (size_t at = 0; at < n;) {
            size_t len = RAND(5);
            len = len > n - at ? n - at : len;
            memcpy(buf[n_piece], text + at, len);
            buf[n_piece][len] = 0;
            piece[n_piece] = buf[n_piece];
            at += len;
            if (++n_piece == 40 || len == 0)
                n_piece -= len == 0;
        }
        /* the match that completes first; of those the one that begins first */
        size_t end = n + 1, begin = n;
        for (size_t e = 1; e <= n && end > n; e++)
            for (int w = 0; w < 2; w++) {
                const size_t len = strlen(stops[w]);
                if (len <= e && memcmp(text + e - len, stops[w], len) == 0) {
                    end = e;
                    begin = e - len < begin ? e - len : begin;
                }
            }
        ls_stop *s;
        assert_int_equal(ls_stop_create(stops, 2, &s, &err), LS_OK);
        const size_t used = feed_all(s, piece, n_piece, shown);
        assert_int_equal(used > 0, end <= n);
        assert_int_equal(strlen(shown), end <= n ? begin : n);
        assert_memory_equal(shown, text, strlen(shown));
        ls_stop_destroy(s);
    }
}

static void test_empty_string(void **state) {
    (void)state;
    ls_err err;
    const char *stops[] = {"a", ""};
    ls_stop *s = NULL;
    assert_int_equal(ls_stop_create(stops, 2, &s, &err), LS_ERR_INPUT);
    assert_null(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_against_search),
        cmocka_unit_test(test_empty_string),
    };
    return cmocka_run_group_tests_name("stop_state", tests, NULL, NULL);
}
