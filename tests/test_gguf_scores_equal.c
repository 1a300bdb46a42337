/* A SentencePiece model in a GGUF file gives the ids that sentencepiece itself gives, and those of
 * the tokenizer.json made from the same model. */
#include "tokenizer_golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_rig.h"
#include "gguf_tokenizer.h"

#define KEY(name) "tokenizer.ggml." name

static void put_flag(ls_gguf_made *m, const char *key, int value) {
    if (value >= 0)
        gguf_key(m, key, MADE_BOOL, value ? "\1" : "\0", 1);
}

/* fixtures/tokenizers/NAME-sp.json as metadata; flags: -1 leaves the key out. */
static ls_gguf_made made(const json_t *doc, int space_prefix, int bos, int eos) {
    ls_gguf_made m = {0};
    const json_t *tokens = json_object_get(doc, "tokens"), *item;
    const size_t n = json_array_size(tokens);
    gguf_bytes b = {0};
    size_t i;
    gguf_key_str(&m, KEY("model"), "llama");
    gguf_key_str(&m, KEY("pre"), "default");
    json_array_foreach (tokens, i, item)
        gguf_put_str(&b, json_string_value(item));
    gguf_key_array(&m, KEY("tokens"), MADE_STRING, n, b);
    b = (gguf_bytes){0};
    json_array_foreach (json_object_get(doc, "scores"), i, item) {
        const float score = (float)json_number_value(item);
        gguf_put(&b, &score, sizeof score);
    }
    gguf_key_array(&m, KEY("scores"), MADE_F32, n, b);
    b = (gguf_bytes){0};
    json_array_foreach (json_object_get(doc, "types"), i, item)
        gguf_put_u(&b, (uint64_t)json_integer_value(item), 4);
    gguf_key_array(&m, KEY("token_type"), MADE_I32, n, b);
    put_flag(&m, KEY("add_space_prefix"), space_prefix);
    put_flag(&m, KEY("add_bos_token"), bos);
    put_flag(&m, KEY("add_eos_token"), eos);
    return m;
}

/* control: "<start_of_turn>" and its end, which are the user's own to sentencepiece, as converters
 * enter it. */
static ls_tokenizer *opened(const char *name, int space_prefix, uint32_t bos_id, bool control) {
    char file[64];
    snprintf(file, sizeof file, "fixtures/tokenizers/%s-sp.json", name);
    json_t *doc = ls_rig_json(file);
    json_t *types = json_object_get(doc, "types"), *token;
    size_t i;
    json_array_foreach (json_object_get(doc, "tokens"), i, token)
        if (control && strstr(json_string_value(token), "_of_turn>"))
            json_array_set_new(types, i, json_integer(3));
    ls_gguf_made m = made(doc, space_prefix, -1, -1);
    gguf_key_u32(&m, KEY("bos_token_id"), bos_id);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(gguf_open_tokenizer(&m, &tok, &err), &err);
    assert_non_null(tok);
    json_decref(doc);
    return tok;
}

/* without_bars: U+2581 spelled in a text next to spaces is another run of them to sentencepiece
 * than to tokenizer.json, whose added tokens are looked for before spaces become U+2581. */
static void same_as_json(const ls_tokenizer *tok, const char *name, bool without_bars) {
    ls_tokenizer *json = ls_rig_tokenizer(false, "fixtures/tokenizers/%s.json", name);
    ls_ids a = {0}, b = {0};
    ls_err err = {0};
    size_t n_same = 0;
    OK(ls_tokenizer_same(tok, json, &err), &err);
    assert_int_equal(ls_tokenizer_bos(tok), ls_tokenizer_bos(json));
    for (size_t i = 0; i < ls_golden.n; i++) {
        const ls_golden_text *x = &ls_golden.text[i];
        char shown[200];
        if (without_bars && strstr(x->s, "\xE2\x96\x81"))
            continue;
        a.n = b.n = 0;
        OK(ls_tokenizer_encode(tok, x->s, x->n, LS_ENCODE_TEMPLATE, &a, NULL, &err), &err);
        OK(ls_tokenizer_encode(json, x->s, x->n, LS_ENCODE_TEMPLATE, &b, NULL, &err), &err);
        if (a.n != b.n || memcmp(a.id, b.id, a.n * sizeof *a.id) != 0)
            fail_msg("%s, text %zu \"%s\": other ids than tokenizer.json gives", name, i,
                     ls_golden_show(shown, x->s, x->n));
        n_same++;
        ls_text p = {0}, q = {0};
        OK(ls_tokenizer_decode(tok, a.id, a.n, true, &p, &err), &err);
        OK(ls_tokenizer_decode(json, a.id, a.n, true, &q, &err), &err);
        assert_string_equal(p.s, q.s);
        ls_text_free(&p);
        ls_text_free(&q);
    }
    print_message("%s: %zu texts as tokenizer.json gives them\n", name, n_same);
    assert_true(n_same > ls_golden.n / 4 * 3);
    ls_ids_free(&a);
    ls_ids_free(&b);
    ls_tokenizer_destroy(json);
}

/* Control tokens are none to sentencepiece in a text; the user's own are. */
static void compare(const char *name, int space_prefix, uint32_t bos_id) {
    char gold[64];
    ls_tokenizer *tok = opened(name, space_prefix, bos_id, false);
    snprintf(gold, sizeof gold, "%s-sp", name);
    const size_t n = ls_golden_expect(tok, gold, LS_ENCODE_NO_SPECIAL, false);
    print_message("%s: %zu texts as sentencepiece gives them\n", name, n);
    ls_tokenizer_destroy(tok);
    tok = opened(name, space_prefix, bos_id, true);
    same_as_json(tok, name, space_prefix == 0);
    ls_tokenizer_destroy(tok);
}

static void test_llama2(void **state) {
    (void)state;
    compare("llama2", -1, 1);
}

static void test_gemma(void **state) {
    (void)state;
    compare("gemma", 0, 2);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_around(void **state) {
    (void)state;
    json_t *doc = ls_rig_json("fixtures/tokenizers/llama2-sp.json");
    for (int bos = -1; bos < 2; bos++)
        for (int eos = -1; eos < 2; eos++) {
            ls_gguf_made m = made(doc, -1, bos, eos);
            gguf_key_u32(&m, KEY("bos_token_id"), 1);
            gguf_key_u32(&m, KEY("eos_token_id"), 2);
            ls_tokenizer *tok = NULL;
            ls_err err = {0};
            ls_ids ids = {0};
            OK(gguf_open_tokenizer(&m, &tok, &err), &err);
            OK(ls_tokenizer_encode(tok, "a", 1, LS_ENCODE_TEMPLATE, &ids, NULL, &err), &err);
            assert_int_equal(ids.n, 1 + (bos != 0) + (eos == 1));
            assert_int_equal(ids.id[0] == 1, bos != 0);
            assert_int_equal(ids.id[ids.n - 1] == 2, eos == 1);
            ls_ids_free(&ids);
            ls_tokenizer_destroy(tok);
        }
    json_decref(doc);
}

static void refuse(json_t *doc, ls_gguf_made m, const char *key, const char *needle) {
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    gguf_key_u32(&m, KEY("bos_token_id"), 1);
    assert_int_equal(gguf_open_tokenizer(&m, &tok, &err), LS_ERR_INPUT);
    assert_null(tok);
    ls_assert_message(&err, "made.gguf", key, needle, NULL);
    json_decref(doc);
}

static json_t *changed(const char *list, int64_t i, json_t *value) {
    json_t *doc = ls_rig_json("fixtures/tokenizers/llama2-sp.json");
    if (value)
        json_array_set_new(json_object_get(doc, list), (size_t)i, value);
    return doc;
}

static void test_refused(void **state) {
    (void)state;
    json_t *doc = changed(NULL, 0, NULL);
    ls_gguf_made m = made(doc, -1, -1, -1);
    gguf_key(&m, KEY("remove_extra_whitespaces"), MADE_BOOL, "\1", 1);
    refuse(doc, m, KEY("remove_extra_whitespaces"), "not supported");
    doc = changed("types", 700, json_integer(7));
    refuse(doc, made(doc, -1, -1, -1), KEY("token_type"), "entry 700: this type is unknown");
    doc = changed("tokens", 300, json_string("in"));
    refuse(doc, made(doc, -1, -1, -1), KEY("tokens"), "stands twice");
    doc = changed("tokens", 10, json_string("<0x0a>")); /* a byte is lost, and there is no unk */
    json_array_set_new(json_object_get(doc, "types"), 0, json_integer(3));
    refuse(doc, made(doc, -1, -1, -1), "unk_token", "some byte");
    /* scores: missing, too few, no number */
    static const char *const says[] = {"is missing", "for 257 tokens", "is no number"};
    for (int k = 0; k < 3; k++) {
        gguf_bytes b = {0};
        m = (ls_gguf_made){0};
        gguf_key_str(&m, KEY("model"), "llama");
        for (int i = 0; i < 257; i++) {
            char name[8];
            snprintf(name, sizeof name, i < 256 ? "<0x%02X>" : "<s>", (unsigned)i);
            gguf_put_str(&b, name);
        }
        gguf_key_array(&m, KEY("tokens"), MADE_STRING, 257, b);
        b = (gguf_bytes){0};
        for (int i = 0; i < 257; i++)
            gguf_put_u(&b, i < 256 ? 6 : 3, 4);
        gguf_key_array(&m, KEY("token_type"), MADE_I32, 257, b);
        b = (gguf_bytes){0};
        for (int i = 0; i < 257 - (k == 1); i++)
            gguf_put_u(&b, k == 2 && i == 5 ? 0x7FC00000 : 0, 4);
        gguf_key_array(&m, k > 0 ? KEY("scores") : "other", MADE_F32, 257 - (k == 1), b);
        refuse(json_object(), m, KEY("scores"), says[k]);
    }
}

/* Byte tokens, "<unk>", "<s>" and these, with their scores; user: the last one is the user's
 * own. */
static json_t *small(const char *const *more, const double *score, int n, bool user) {
    json_t *doc = json_pack("{s:[], s:[], s:[]}", "tokens", "scores", "types");
    for (int i = 0; i < 258 + n; i++) {
        char name[8];
        snprintf(name, sizeof name, i < 256 ? "<0x%02X>" : i == 256 ? "<unk>" : "<s>", (unsigned)i);
        const int type = i < 256 ? 6 : i == 256 ? 2 : i == 257 ? 3 : user && i == 257 + n ? 4 : 1;
        json_array_append_new(json_object_get(doc, "tokens"),
                              json_string(i < 258 ? name : more[i - 258]));
        json_array_append_new(json_object_get(doc, "scores"),
                              json_real(i < 258 ? 0 : score[i - 258]));
        json_array_append_new(json_object_get(doc, "types"), json_integer(type));
    }
    return doc;
}

/* Two tokens of one score that overlap: the left one is made, though the right one's parts were
 * there first; in a word short enough for looking at all pairs, and in a long one. */
static void test_ties(void **state) {
    (void)state;
    static const char *const more[] = {"p", "q", "r", "rr", "pp", "ppq", "qrr", "rp"};
    static const double score[] = {-9, -9, -9, -1, -2, -3, -3, -8};
    json_t *doc = small(more, score, 8, false);
    ls_gguf_made m = made(doc, 0, 0, 0);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(gguf_open_tokenizer(&m, &tok, &err), &err);
    for (size_t times = 1; times < 1000; times = 2 * times + 1) {
        char text[5000];
        ls_ids ids = {0};
        for (size_t i = 0; i < 5 * times; i++)
            text[i] = "ppqrr"[i % 5];
        OK(ls_tokenizer_encode(tok, text, 5 * times, 0, &ids, NULL, &err), &err);
        assert_int_equal(ids.n, 2 * times);
        for (size_t i = 0; i < ids.n; i++)
            assert_int_equal(ids.id[i], ls_tokenizer_find(tok, i % 2 ? "rr" : "ppq"));
        ls_ids_free(&ids);
    }
    ls_tokenizer_destroy(tok);
    json_decref(doc);
}

/* Any one byte of the lists changed: a verdict either way, and no fault. */
static void test_every_byte(void **state) {
    (void)state;
    static const char *const more[] = {"a", "b", "\xE2\x96\x81", "ab", "aba", "  "};
    static const double score[] = {-5, -5, -5, -1, -2, 0};
    json_t *doc = small(more, score, 6, true);
    ls_gguf_made m = made(doc, 0, 1, 1);
    gguf_key_u32(&m, KEY("bos_token_id"), 257);
    gguf_key_u32(&m, KEY("eos_token_id"), 257);
    gguf_bytes f = gguf_file(&m);
    size_t refused = 0, loaded = 0;
    for (size_t i = 0; i < f.n; i++) {
        ls_gguf *g = NULL;
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        const uint8_t bit = (uint8_t)(1u << i % 8);
        f.p[i] ^= bit;
        ls_status s = ls_gguf_parse(f.p, f.n, "made.gguf", &g, &err);
        if (s == LS_OK)
            s = ls_gguf_tokenizer_open(g, NULL, &tok, &err);
        if (s != LS_OK && s != LS_ERR_INPUT)
            fail_msg("byte %zu: %s", i, err.msg);
        if (s != LS_OK)
            ls_assert_message(&err, "made.gguf: ", NULL);
        ls_ids ids = {0};
        ls_text text = {0};
        if (tok && ls_tokenizer_encode(tok, "  ababa \xFF", 9, 1, &ids, NULL, &err) == LS_OK)
            OK(ls_tokenizer_decode(tok, ids.id, ids.n, false, &text, &err), &err);
        refused += s != LS_OK;
        loaded += tok != NULL;
        ls_ids_free(&ids);
        ls_text_free(&text);
        ls_tokenizer_destroy(tok);
        ls_gguf_close(g);
        f.p[i] ^= bit;
    }
    assert_true(refused > 1000 && loaded > 1000);
    free(f.p);
    gguf_free(&m);
    json_decref(doc);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_llama2), cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_around), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ties),   cmocka_unit_test(test_every_byte)};
    return cmocka_run_group_tests(all, ls_golden_begin, ls_golden_end);
}
