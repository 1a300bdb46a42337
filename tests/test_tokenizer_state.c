/* The tokenizer's answers: the carried cases, the reference's golden ids, streaming in every cut, and
 * work that grows with the text and not with its square. */
#include "cases.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "tokenizer.h"
#include "utf8.h"

static ls_tokenizer *open_path(char *path, bool partial) {
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    ls_tokenizer *tok = NULL;
    ls_tokenizer_options o = {.partial_bytes = partial};
    ls_err err = {0};
    OK(ls_tokenizer_parse(text, n, path, &o, &tok, &err), &err);
    free(text);
    free(path);
    return tok;
}

static ls_tokenizer *open_case(const char *name) {
    return open_path(ls_test_path("cases/tok/%s.json", name), false);
}

static json_t *load(const char *rest) {
    char *path = ls_test_path("%s", rest);
    json_t *j = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(j);
    return j;
}

/* Encodes and compares with a JSON list of ids. */
static void expect_ids(const ls_tokenizer *tok, const char *text, size_t n, unsigned flags,
                       const json_t *want, const char *what) {
    ls_ids ids = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, text, n, flags, &ids, NULL, &err), &err);
    size_t m = json_array_size(want);
    for (size_t i = 0; i < m || i < ids.n; i++) {
        long long is = i < ids.n ? ids.id[i] : -1;
        long long should = i < m ? json_integer_value(json_array_get(want, i)) : -1;
        if (is != should)
            fail_msg("%s \"%s\": id %zu is %lld, expected %lld", what, text, i, is, should);
    }
    ls_ids_free(&ids);
}

static void expect(const ls_tokenizer *tok, const char *text, unsigned flags, size_t n,
                   const int32_t *want) {
    ls_ids ids = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, text, strlen(text), flags, &ids, NULL, &err), &err);
    if (ids.n != n || memcmp(ids.id, want, n * sizeof *want) != 0)
        fail_msg("\"%s\": other ids than expected (%zu of them)", text, ids.n);
    ls_ids_free(&ids);
}
#define EXPECT(tok, text, flags, ...)                                            \
    expect(tok, text, flags, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), \
           (int32_t[]){__VA_ARGS__})

/* ---- carried cases --------------------------------------------------------------------------- */

static void test_cases(void **state) {
    (void)state;
    json_t *all = load("cases/tok/expected.json"), *list, *item;
    const char *name;
    size_t i, n = 0;
    json_object_foreach(all, name, list) {
        if (name[0] == '_')
            continue;
        ls_tokenizer *tok = open_case(name);
        json_array_foreach(list, i, item) {
            const json_t *text = json_object_get(item, "text");
            expect_ids(tok, json_string_value(text), json_string_length(text), LS_ENCODE_TEMPLATE,
                       json_object_get(item, "ids"), name);
            n++;
        }
        ls_tokenizer_destroy(tok);
    }
    assert_true(n >= 21);
    json_decref(all);
}

static void test_bos(void **state) {
    (void)state;
    ls_tokenizer *tok = open_case("bos_template");
    ls_err err = {0};
    ls_ids ids = {0};
    ls_encode_info info;
    assert_int_equal(ls_tokenizer_bos(tok), 256);
    OK(ls_tokenizer_encode(tok, "a", 1, LS_ENCODE_TEMPLATE, &ids, &info, &err), &err);
    assert_false(info.double_bos);
    OK(ls_tokenizer_encode(tok, "<s>a", 4, LS_ENCODE_TEMPLATE, &ids, &info, &err), &err);
    assert_true(info.double_bos);
    OK(ls_tokenizer_encode(tok, "<s>a", 4, 0, &ids, &info, &err), &err);
    assert_false(info.double_bos);      /* one BOS, the text's own */
    assert_int_equal(ids.n, 2 + 3 + 2); /* appended each time */
    /* an empty text is what the template alone gives */
    EXPECT(tok, "", LS_ENCODE_TEMPLATE, 256);
    EXPECT(tok, "<s>a", LS_ENCODE_TEMPLATE | LS_ENCODE_NO_SPECIAL, 256, '<', 's', '>', 'a');
    ls_ids_free(&ids);
    ls_tokenizer_destroy(tok);
    tok = open_case("no_normalizer");
    assert_int_equal(ls_tokenizer_bos(tok), -1);
    ls_tokenizer_destroy(tok);
}

static void test_no_special(void **state) {
    (void)state;
    ls_tokenizer *tok = open_case("added_longest");
    EXPECT(tok, "<im>", 0, 256);
    EXPECT(tok, "<im>", LS_ENCODE_NO_SPECIAL, '<', 'i', 'm', '>');
    EXPECT(tok, "<im>ta", LS_ENCODE_NO_SPECIAL, 258, 'a'); /* 258 is added but not special */
    assert_true(ls_tokenizer_is_special(tok, 256) && !ls_tokenizer_is_special(tok, 258));
    assert_false(ls_tokenizer_is_special(tok, 'a') || ls_tokenizer_is_special(tok, 9999));
    ls_tokenizer_destroy(tok);
}

static void test_merges_same(void **state) {
    (void)state;
    ls_tokenizer *a = open_case("merges_as_strings"), *b = open_case("merges_as_pairs");
    char x[LS_SHA256_HEX], y[LS_SHA256_HEX];
    ls_err err = {0};
    assert_int_equal(ls_tokenizer_n_merges(a), 4);
    assert_int_equal(ls_tokenizer_n_merges(b), 4);
    assert_null(ls_tokenizer_warning(a));
    OK(ls_tokenizer_same(a, b, &err), &err);
    OK(ls_tokenizer_digest(a, x, &err), &err);
    OK(ls_tokenizer_digest(b, y, &err), &err);
    assert_string_equal(x, y);
    /* every text of a few letters, up to six long, in both */
    static const char letter[] = "helo ";
    for (unsigned v = 0; v < 15625; v++) {
        char text[7] = "";
        for (unsigned i = 0, w = v; i < 6; i++, w /= 5)
            text[i] = letter[w % 5];
        ls_ids p = {0}, q = {0};
        OK(ls_tokenizer_encode(a, text, 6, 0, &p, NULL, &err), &err);
        OK(ls_tokenizer_encode(b, text, 6, 0, &q, NULL, &err), &err);
        assert_int_equal(p.n, q.n);
        assert_memory_equal(p.id, q.id, p.n * sizeof *p.id);
        ls_ids_free(&p);
        ls_ids_free(&q);
    }
    ls_tokenizer_destroy(a);
    ls_tokenizer_destroy(b);
}

/* ---- the reference's ids --------------------------------------------------------------------- */

static char *text_of(const json_t *cps, size_t *n) {
    char *s = malloc(json_array_size(cps) * 4 + 1);
    assert_non_null(s);
    *n = 0;
    for (size_t i = 0; i < json_array_size(cps); i++)
        *n += ls_utf8_put((uint8_t *)s + *n, (uint32_t)json_integer_value(json_array_get(cps, i)));
    s[*n] = 0;
    return s;
}

static void test_golden(void **state) {
    (void)state;
    json_t *golden = load("fixtures/tokenizer/golden.json");
    const json_t *texts = json_object_get(golden, "texts");
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "digits"};
    for (size_t k = 0; k < 4; k++) {
        ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/%s.json", names[k]), false);
        const json_t *ids = json_object_get(golden, names[k]);
        assert_int_equal(json_array_size(ids), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            size_t n = 0;
            char *text = text_of(json_array_get(texts, i), &n);
            expect_ids(tok, text, n, LS_ENCODE_TEMPLATE, json_array_get(ids, i), names[k]);
            if (k == 0) { /* no normalizer and nothing stripped: decoding gives the text back */
                ls_ids e = {0};
                ls_text back = {0};
                ls_err err = {0};
                OK(ls_tokenizer_encode(tok, text, n, 0, &e, NULL, &err), &err);
                OK(ls_tokenizer_decode(tok, e.id, e.n, false, &back, &err), &err);
                assert_int_equal(back.n, n);
                assert_memory_equal(back.s, text, n);
                ls_ids_free(&e);
                ls_text_free(&back);
            }
            free(text);
        }
        ls_tokenizer_destroy(tok);
    }
    json_decref(golden);
}

/* Bytes that are not UTF-8 encode as the text with U+FFFD in their place. */
static void test_bad_utf8(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *as;
        size_t n_replaced;
    } all[] = {{"a\xFFz", "a\xEF\xBF\xBDz", 1},
               {"\xE2\x82", "\xEF\xBF\xBD", 1},
               {"\xF0\x9F\x98 x\xC0\xAF", "\xEF\xBF\xBD x\xEF\xBF\xBD\xEF\xBF\xBD", 3},
               {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 3},
               {"fine \xC3\xA9", "fine \xC3\xA9", 0}};
    ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/llama3.json"), false);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_ids a = {0}, b = {0};
        ls_err err = {0};
        ls_encode_info info;
        OK(ls_tokenizer_encode(tok, all[i].bytes, strlen(all[i].bytes), 0, &a, &info, &err), &err);
        assert_int_equal(info.n_replaced, all[i].n_replaced);
        OK(ls_tokenizer_encode(tok, all[i].as, strlen(all[i].as), 0, &b, &info, &err), &err);
        assert_int_equal(info.n_replaced, 0);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
        ls_ids_free(&a);
        ls_ids_free(&b);
    }
    ls_tokenizer_destroy(tok);
}

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
    json_t *all = load("cases/tok/expected.json");
    const json_t *list = json_object_get(json_object_get(all, "_streaming_decode"), "cases");
    ls_tokenizer *tok = open_case("no_normalizer");
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
    ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/gpt2.json"), false);
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
    ls_tokenizer *tok = open_case("added_longest");
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

/* ---- work ------------------------------------------------------------------------------------ */

static uint64_t steps_for(const ls_tokenizer *tok, const char *unit, size_t n, bool exact) {
    size_t u = strlen(unit);
    char *text = malloc(n + u);
    assert_non_null(text);
    for (size_t i = 0; i < n; i += u)
        memcpy(text + i, unit, u);
    ls_ids ids = {0};
    ls_err err = {0};
    ls_encode_info info;
    OK(ls_tokenizer_encode(tok, text, n / u * u, 0, &ids, &info, &err), &err);
    ls_text back = {0};
    OK(ls_tokenizer_decode(tok, ids.id, ids.n, false, &back, &err), &err);
    if (exact) {
        assert_int_equal(back.n, n / u * u);
        assert_memory_equal(back.s, text, back.n);
    }
    ls_text_free(&back);
    ls_ids_free(&ids);
    free(text);
    return info.merge_steps;
}

/* A few candidates a byte, whatever the length: counted, not timed. */
static void test_linear(void **state) {
    (void)state;
    static const char *const units[] = {"a", "ab", " ", "\n", "'", "the ", "aA1 ", "e\xCC\x81"};
    static const char *const names[] = {"gpt2", "llama3", "digits"};
    for (size_t k = 0; k < 3; k++) {
        ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/%s.json", names[k]), false);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            uint64_t small = steps_for(tok, units[i], 1 << 14, k < 2); /* the third adds spaces */
            uint64_t large = steps_for(tok, units[i], 1 << 20, k < 2);
            if (large > 5u << 20 || large > small * 66 + 100)
                fail_msg("%s, \"%s\": %llu steps for 16 KiB, %llu for 1 MiB", names[k], units[i],
                         (unsigned long long)small, (unsigned long long)large);
        }
        ls_tokenizer_destroy(tok);
    }
}

/* Marks in the worst order for normalization: every class after a higher one. */
static void test_many_marks(void **state) {
    (void)state;
    ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/qwen2.json"), false);
    const size_t n = 1 << 18;
    char *text = malloc(4 * n + 1), *sorted = malloc(4 * n + 1);
    assert_true(text && sorted);
    text[0] = sorted[0] = 'q';
    for (size_t i = 0; i < n; i++) { /* U+0301 is of class 230, U+0323 of 220 */
        memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\xA3", 4);
        memcpy(sorted + 1 + 2 * i, "\xCC\xA3", 2);
        memcpy(sorted + 1 + 2 * n + 2 * i, "\xCC\x81", 2);
    }
    ls_ids a = {0}, b = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, text, 4 * n + 1, 0, &a, NULL, &err), &err);
    OK(ls_tokenizer_encode(tok, sorted, 4 * n + 1, 0, &b, NULL, &err), &err);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
    ls_ids_free(&a);
    ls_ids_free(&b);
    free(text);
    free(sorted);
    ls_tokenizer_destroy(tok);
}

/* One tokenizer, four threads at once: each gets what one alone got. */
typedef struct encode_job {
    const ls_tokenizer *tok;
    const char *text;
    size_t n;
    ls_ids ids;
} encode_job;

static void *encode_thread(void *arg) {
    encode_job *j = arg;
    for (int i = 0; i < 20; i++) {
        j->ids.n = 0;
        if (ls_tokenizer_encode(j->tok, j->text, j->n, 0, &j->ids, NULL, NULL) != LS_OK)
            j->ids.n = 0;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    ls_tokenizer *tok = open_path(ls_test_path("fixtures/tokenizer/qwen2.json"), false);
    char *path = ls_test_path("fixtures/tokenizer/README.md");
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    encode_job alone = {tok, text, n, {0}}, job[4];
    pthread_t thread[4];
    encode_thread(&alone);
    assert_true(alone.ids.n > 100);
    for (int i = 0; i < 4; i++) {
        job[i] = (encode_job){tok, text, n, {0}};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_thread, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].ids.n, alone.ids.n);
        assert_memory_equal(job[i].ids.id, alone.ids.id, alone.ids.n * sizeof(int32_t));
        ls_ids_free(&job[i].ids);
    }
    ls_ids_free(&alone.ids);
    free(text);
    free(path);
    ls_tokenizer_destroy(tok);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void test_questions(void **state) {
    (void)state;
    ls_test_shape shape = ls_test_shape_default();
    char *dir = ls_test_model_make(&shape);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(ls_tokenizer_open(dir, NULL, &tok, &err), &err);
    assert_int_equal(ls_tokenizer_size(tok), LS_TEST_TOKENS);
    assert_int_equal(ls_tokenizer_n_tokens(tok), LS_TEST_TOKENS);
    assert_int_equal(ls_tokenizer_find(tok, "</s>"), LS_TEST_EOS);
    assert_int_equal(ls_tokenizer_find(tok, "\xC4\xA0the"),
                     263); /* byte letters: G-dot is a space */
    assert_int_equal(ls_tokenizer_find(tok, " the"), -1);
    EXPECT(tok, "in the", 0, 258, 263);
    size_t n = 0;
    assert_memory_equal(ls_tokenizer_bytes(tok, 263, &n), " the", 4);
    assert_int_equal(n, 4);
    for (int32_t b = 0; b < 256; b++) {
        const uint8_t *p = ls_tokenizer_bytes(tok, b, &n);
        assert_true(p && n == 1 && p[0] == b);
    }
    assert_null(ls_tokenizer_bytes(tok, -1, &n));
    assert_null(ls_tokenizer_bytes(tok, LS_TEST_TOKENS, &n));
    ls_tokenizer_destroy(tok);
    ls_tokenizer_destroy(NULL);
    ls_test_model_remove(dir);
}

static void test_partial(void **state) {
    (void)state;
    ls_tokenizer *tok = open_path(ls_test_path("cases/models/table_target/tokenizer.json"), true);
    ls_ids ids = {0};
    ls_err err = {0};
    assert_int_equal(ls_tokenizer_size(tok), 16);
    EXPECT(tok, "abp", 0, 0, 1, 15);
    assert_int_equal(ls_tokenizer_encode(tok, "abz", 3, 0, &ids, NULL, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "byte 7A", "no token", NULL);
    assert_int_equal(ids.n, 0); /* as it was */
    ls_ids_free(&ids);
    ls_tokenizer_destroy(tok);
}

static void test_same(void **state) {
    (void)state;
    ls_tokenizer *a = open_path(ls_test_path("cases/models/table_target/tokenizer.json"), true);
    ls_tokenizer *b =
        open_path(ls_test_path("cases/models/table_draft_padded/tokenizer.json"), true);
    ls_tokenizer *c = open_case("merges_as_pairs"), *d = open_case("added_longest");
    ls_tokenizer *e = open_case("digits_split_1"), *f = open_case("added_strip");
    ls_err err = {0};
    OK(ls_tokenizer_same(a, b, &err),
       &err); /* the models differ in padding, the vocabularies not */
    assert_int_equal(ls_tokenizer_same(c, e, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "id 256", "\"he\"", "\"12\"", NULL);
    assert_int_equal(ls_tokenizer_same(c, a, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "id 0 ", "\\x00", NULL);
    assert_int_equal(ls_tokenizer_same(d, f, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "id 256", "special \"<im>\"", "special \"<m>\"", NULL);
    char x[LS_SHA256_HEX], y[LS_SHA256_HEX];
    OK(ls_tokenizer_digest(c, x, &err), &err);
    OK(ls_tokenizer_digest(e, y, &err), &err);
    assert_string_not_equal(x, y);
    ls_tokenizer *all[] = {a, b, c, d, e, f};
    for (size_t i = 0; i < 6; i++)
        ls_tokenizer_destroy(all[i]);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_cases),
                                     cmocka_unit_test(test_bos),
                                     cmocka_unit_test(test_no_special),
                                     cmocka_unit_test(test_merges_same),
                                     cmocka_unit_test(test_golden),
                                     cmocka_unit_test(test_bad_utf8),
                                     cmocka_unit_test(test_stream_cases),
                                     cmocka_unit_test(test_stream_rounds),
                                     cmocka_unit_test(test_decode_special),
                                     cmocka_unit_test(test_linear),
                                     cmocka_unit_test(test_many_marks),
                                     cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_questions),
                                     cmocka_unit_test(test_partial),
                                     cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(all, begin, NULL);
}
