/* Ids to text as they come: nothing is shown too early, and nothing is held too long. */
#include "tokenizer_rig.h"

#include <string.h>

#include "utf8.h"

/* ---- streaming ------------------------------------------------------------------------------- */

static void stream_case(const ls_tokenizer *tok, const json_t *c) {
    const json_t *ids = json_object_get(c, "ids"), *pieces = json_object_get(c, "pieces");
    const char *final = json_string_value(json_object_get(c, "final"));
    const char *flush = json_string_value(json_object_get(c, "flush"));
    int32_t id[16];
    size_t n = json_array_size(ids);
    assert_true(n <= 16);
    ls_stream s = ls_stream_begin(tok, false);
    ls_text all = {0};
    ls_err err = {0};
    for (size_t i = 0; i < n; i++) {
        id[i] = (int32_t)json_integer_value(json_array_get(ids, i));
        ls_text piece = {0};
        OK(ls_stream_push(&s, id[i], &piece, &err), &err);
        if (pieces)
            assert_string_equal(piece.s, json_string_value(json_array_get(pieces, i)));
        OK(ls_text_append(&all, piece.s, piece.n, &err), &err);
        ls_text_free(&piece);
    }
    size_t before = all.n;
    OK(ls_stream_flush(&s, &all, &err), &err);
    if (flush)
        assert_string_equal(all.s + before, flush);
    assert_string_equal(all.s, final);
    ls_text whole = {0};
    OK(ls_tokenizer_decode(tok, id, n, false, &whole, &err), &err);
    assert_string_equal(whole.s, final);
    ls_text_free(&whole);
    ls_text_free(&all);
}

static void test_stream_cases(void **state) {
    (void)state;
    json_t *all = ls_rig_json("cases/tok/expected.json");
    const json_t *list = json_object_get(json_object_get(all, "_streaming_decode"), "cases");
    ls_tokenizer *tok = ls_rig_tokenizer(false, "cases/tok/no_normalizer.json");
    assert_int_equal(json_array_size(list), 6);
    for (size_t i = 0; i < json_array_size(list); i++)
        stream_case(tok, json_array_get(list, i));
    ls_tokenizer_destroy(tok);
    json_decref(all);
}

/* Python's decoder rule on whole bytes, the oracle of the streaming one. */
static void oracle(const uint8_t *s, size_t n, ls_text *out) {
    ls_err err = {0};
    OK(ls_text_append(out, "", 0, &err), &err);
    for (size_t i = 0; i < n;) {
        ls_utf8_step c = ls_utf8_next(s + i, n - i);
        if (c.kind == LS_UTF8_CHAR)
            OK(ls_text_append(out, (const char *)s + i, c.len, &err), &err);
        else
            OK(ls_text_append(out, LS_UTF8_REPLACEMENT, 3, &err), &err);
        i += c.len;
    }
}

/* The same ids committed in rounds of every size: what is shown joins to the whole decode, and
 * nothing but a beginning of a character is ever held back. */
static void test_stream_rounds(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/gpt2.json");
    uint32_t rng = 7;
    for (int trial = 0; trial < 60; trial++) {
        int32_t id[40];
        uint8_t bytes[1200];
        size_t n_bytes = 0;
        for (size_t i = 0; i < 40; i++) {
            rng = rng * 1664525u + 1013904223u;
            /* mostly the ids of high bytes, so that characters break everywhere */
            uint32_t r = rng >> 8;
            id[i] = (int32_t)(r % 4 ? r / 4 % 256 : r / 4 % (uint32_t)ls_tokenizer_size(tok));
            size_t n = 0;
            const uint8_t *b = ls_tokenizer_bytes(tok, id[i], &n);
            memcpy(bytes + n_bytes, b, n);
            n_bytes += n;
        }
        ls_text want = {0}, whole = {0};
        ls_err err = {0};
        oracle(bytes, n_bytes, &want);
        OK(ls_tokenizer_decode(tok, id, 40, false, &whole, &err), &err);
        assert_string_equal(whole.s, want.s);
        for (size_t size = 1; size <= 40; size++) {
            ls_stream s = ls_stream_begin(tok, false);
            ls_text shown = {0};
            size_t read = 0;
            for (size_t i = 0; i < 40; i++) {
                size_t n = 0;
                ls_tokenizer_bytes(tok, id[i], &n);
                read += n;
                OK(ls_stream_push(&s, id[i], &shown, &err), &err);
                if ((i + 1) % size != 0)
                    continue;
                /* at the end of a round: all but a cut character is out */
                assert_memory_equal(shown.s, want.s, shown.n);
                ls_text now = {0};
                oracle(bytes, read - s.n_held, &now);
                assert_string_equal(shown.s, now.s);
                ls_text_free(&now);
            }
            OK(ls_stream_flush(&s, &shown, &err), &err);
            assert_string_equal(shown.s, want.s);
            ls_text_free(&shown);
        }
        ls_text_free(&want);
        ls_text_free(&whole);
    }
    ls_tokenizer_destroy(tok);
}

static void test_decode_special(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "cases/tok/added_longest.json");
    static const int32_t ids[] = {'a', 256, 0xC3, 256, 258, 0xA9};
    ls_text all = {0}, some = {0}, none = {0};
    ls_err err = {0};
    OK(ls_tokenizer_decode(tok, ids, 6, false, &all, &err), &err);
    assert_string_equal(all.s, "a<im>\xEF\xBF\xBD<im><im>t\xEF\xBF\xBD");
    OK(ls_tokenizer_decode(tok, ids, 6, true, &some, &err), &err);
    assert_string_equal(some.s, "a\xEF\xBF\xBD<im>t\xEF\xBF\xBD");
    OK(ls_tokenizer_decode(tok, ids + 1, 1, true, &none, &err), &err);
    assert_string_equal(none.s, "");
    ls_text_free(&all);
    ls_text_free(&some);
    ls_text_free(&none);
    ls_tokenizer_destroy(tok);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_stream_cases),
                                     cmocka_unit_test(test_stream_rounds),
                                     cmocka_unit_test(test_decode_special)};
    return cmocka_run_group_tests(all, begin, NULL);
}
