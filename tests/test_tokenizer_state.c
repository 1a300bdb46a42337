/* The tokenizer's answers: the carried cases, the reference's golden ids, and questions about
 * tokens. */
#include "tokenizer_rig.h"

#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "utf8.h"

/* ---- carried cases --------------------------------------------------------------------------- */

static void test_cases(void **state) {
    (void)state;
    json_t *all = ls_rig_json("cases/tok/expected.json"), *list, *item;
    const char *name;
    size_t i, n = 0;
    json_object_foreach (all, name, list) {
        if (name[0] == '_')
            continue;
        ls_tokenizer *tok = ls_rig_tokenizer(false, "cases/tok/%s.json", name);
        json_array_foreach (list, i, item) {
            const json_t *text = json_object_get(item, "text");
            ls_expect_json_ids(tok, json_string_value(text), json_string_length(text),
                               LS_ENCODE_TEMPLATE, json_object_get(item, "ids"));
            n++;
        }
        ls_tokenizer_destroy(tok);
    }
    assert_true(n >= 21);
    json_decref(all);
}

static void test_bos(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "cases/tok/bos_template.json");
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
    tok = ls_rig_tokenizer(false, "cases/tok/no_normalizer.json");
    assert_int_equal(ls_tokenizer_bos(tok), -1);
    ls_tokenizer_destroy(tok);
}

static void test_no_special(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "cases/tok/added_longest.json");
    EXPECT(tok, "<im>", 0, 256);
    EXPECT(tok, "<im>", LS_ENCODE_NO_SPECIAL, '<', 'i', 'm', '>');
    EXPECT(tok, "<im>ta", LS_ENCODE_NO_SPECIAL, 258, 'a'); /* 258 is added but not special */
    assert_true(ls_tokenizer_is_special(tok, 256) && !ls_tokenizer_is_special(tok, 258));
    assert_false(ls_tokenizer_is_special(tok, 'a') || ls_tokenizer_is_special(tok, 9999));
    ls_tokenizer_destroy(tok);
}

static void test_merges_same(void **state) {
    (void)state;
    ls_tokenizer *a = ls_rig_tokenizer(false, "cases/tok/merges_as_strings.json"),
                 *b = ls_rig_tokenizer(false, "cases/tok/merges_as_pairs.json");
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
    json_t *golden = ls_rig_json("fixtures/tokenizer/golden.json");
    const json_t *texts = json_object_get(golden, "texts");
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "digits"};
    for (size_t k = 0; k < 4; k++) {
        ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/%s.json", names[k]);
        const json_t *ids = json_object_get(golden, names[k]);
        assert_int_equal(json_array_size(ids), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            size_t n = 0;
            char *text = text_of(json_array_get(texts, i), &n);
            ls_expect_json_ids(tok, text, n, LS_ENCODE_TEMPLATE, json_array_get(ids, i));
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
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/llama3.json");
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
    ls_tokenizer *tok = ls_rig_tokenizer(true, "cases/models/table_target/tokenizer.json");
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

/* A vocabulary without bytes that hardly any text has (SmolLM2's is one) loads; such a text is
 * refused, and nothing is dropped from it. */
static void test_rare_bytes(void **state) {
    (void)state;
    json_t *doc = ls_rig_json("cases/tok/merges_as_strings.json");
    json_t *vocab = json_object_get(json_object_get(doc, "model"), "vocab");
    json_object_del(vocab, "\xC4\x84"); /* the letter of 04 */
    json_object_del(vocab, "\xC3\xB1"); /* of F1 */
    char *text = json_dumps(doc, 0);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    ls_ids ids = {0};
    OK(ls_tokenizer_parse(text, strlen(text), "t.json", NULL, &tok, &err), &err);
    OK(ls_tokenizer_encode(tok, "a\x05z", 3, 0, &ids, NULL, &err), &err);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ls_tokenizer_encode(tok, "a\x04z", 3, 0, &ids, NULL, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "byte 04", "no token", NULL);
    assert_int_equal(ls_tokenizer_encode(tok, "\xF1\x80\x80\x80", 4, 0, &ids, NULL, &err),
                     LS_ERR_INPUT);
    ls_assert_message(&err, "byte F1", NULL);
    ls_ids_free(&ids);
    ls_tokenizer_destroy(tok);
    free(text);
    json_object_del(vocab, "\xC4\x89"); /* of 09: tabs are common */
    text = json_dumps(doc, 0);
    assert_int_equal(ls_tokenizer_parse(text, strlen(text), "t.json", NULL, &tok, &err),
                     LS_ERR_INPUT);
    ls_assert_message(&err, "model.vocab", "byte 09", NULL);
    free(text);
    json_decref(doc);
}

static ls_tokenizer *make(const json_t *doc) {
    char *text = json_dumps(doc, 0);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(ls_tokenizer_parse(text, strlen(text), "t.json", NULL, &tok, &err), &err);
    free(text);
    return tok;
}

static void make_special(json_t *doc, int id, const char *content) {
    json_t *list = json_object_get(doc, "added_tokens");
    if (!json_is_array(list))
        json_object_set_new(doc, "added_tokens", list = json_array());
    json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b}", "id", id, "content", content,
                                          "special", 1, "normalized", 0));
}

/* A special token that merges, a whole piece or a character could be as well. */
static void test_special_by_merges(void **state) {
    (void)state;
    json_t *doc = ls_rig_json("cases/tok/merges_as_strings.json");
    make_special(doc, 256, "he");
    for (int whole = 0; whole < 2; whole++) {
        json_object_set_new(json_object_get(doc, "model"), "ignore_merges", json_boolean(whole));
        ls_tokenizer *tok = make(doc);
        EXPECT(tok, "he", 0, 256);
        EXPECT(tok, "he", LS_ENCODE_NO_SPECIAL, 'h', 'e');
        ls_tokenizer_destroy(tok);
    }
    json_decref(doc);
    doc = ls_rig_json("fixtures/tokenizers/llama2.json");
    ls_tokenizer *tok = make(doc);
    const int32_t e = ls_tokenizer_find(tok, "e"), byte = ls_tokenizer_find(tok, "<0x65>");
    const int32_t bar = ls_tokenizer_find(tok, "\xE2\x96\x81");
    ls_tokenizer_destroy(tok);
    assert_true(e >= 0 && byte >= 0 && bar >= 0);
    make_special(doc, e, "e");
    tok = make(doc);
    EXPECT(tok, "e", 0, e);
    EXPECT(tok, "e", LS_ENCODE_NO_SPECIAL, bar, byte);
    ls_tokenizer_destroy(tok);
    json_decref(doc);
}

static void test_same(void **state) {
    (void)state;
    ls_tokenizer *a = ls_rig_tokenizer(true, "cases/models/table_target/tokenizer.json");
    ls_tokenizer *b = ls_rig_tokenizer(true, "cases/models/table_draft_padded/tokenizer.json");
    ls_tokenizer *c = ls_rig_tokenizer(false, "cases/tok/merges_as_pairs.json"),
                 *d = ls_rig_tokenizer(false, "cases/tok/added_longest.json");
    ls_tokenizer *e = ls_rig_tokenizer(false, "cases/tok/digits_split_1.json"),
                 *f = ls_rig_tokenizer(false, "cases/tok/added_strip.json");
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
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_cases),      cmocka_unit_test(test_bos),
        cmocka_unit_test(test_no_special), cmocka_unit_test(test_merges_same),
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_bad_utf8),
        cmocka_unit_test(test_questions),  cmocka_unit_test(test_partial),
        cmocka_unit_test(test_rare_bytes), cmocka_unit_test(test_special_by_merges),
        cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(all, begin, NULL);
}
