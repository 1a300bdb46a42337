/* A tokenizer in a GGUF file gives the ids of the tokenizer.json it was made from, for every known
 * pre type; what is missing or odd in one is refused by key. */
#include "tokenizer_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_rig.h"
#include "gguf_tokenizer.h"
#include "utf8.h"

#define KEY(name) "tokenizer.ggml." name

typedef struct lists { /* the tokenizer of a file, as lists by id */
    const char **token;
    int32_t *type;
    size_t n;
    json_t *merges;
} lists;

/* Added tokens that carry a flag the format cannot keep are taken out of doc. */
static void drop_flagged(json_t *doc) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized"};
    json_t *added = json_object_get(doc, "added_tokens");
    for (size_t i = json_array_size(added); i-- > 0;)
        for (size_t f = 0; f < 4; f++)
            if (json_is_true(json_object_get(json_array_get(added, i), flags[f]))) {
                json_array_remove(added, i);
                break;
            }
}

static lists lists_of(const json_t *doc) {
    lists l = {0};
    json_t *model = json_object_get(doc, "model"), *vocab = json_object_get(model, "vocab"), *id;
    const json_t *added = json_object_get(doc, "added_tokens");
    const size_t cap = json_object_size(vocab) + 64;
    const char *key;
    l.token = calloc(cap, sizeof *l.token);
    l.type = calloc(cap, sizeof *l.type);
    assert_true(l.token && l.type);
    for (size_t i = 0; i < cap; i++) {
        l.token[i] = "<pad>";
        l.type[i] = 5;
    }
    json_object_foreach (vocab, key, id) {
        const size_t i = (size_t)json_integer_value(id);
        l.token[i] = key;
        l.type[i] = 1;
        l.n = i + 1 > l.n ? i + 1 : l.n;
    }
    for (size_t a = 0; a < json_array_size(added); a++) {
        const json_t *entry = json_array_get(added, a);
        const size_t i = (size_t)json_integer_value(json_object_get(entry, "id"));
        l.token[i] = json_string_value(json_object_get(entry, "content"));
        l.type[i] = json_is_true(json_object_get(entry, "special")) ? 3 : 4;
        l.n = i + 1 > l.n ? i + 1 : l.n;
    }
    l.n += 3; /* padding, as files have it */
    assert_true(l.n < cap);
    l.merges = json_object_get(model, "merges");
    return l;
}

static void put_lists(ls_gguf_made *m, const lists *l) {
    gguf_bytes b = {0};
    for (size_t i = 0; i < l->n; i++)
        gguf_put_str(&b, l->token[i]);
    gguf_key_array(m, KEY("tokens"), MADE_STRING, l->n, b);
    b = (gguf_bytes){0};
    for (size_t i = 0; i < l->n; i++)
        gguf_put_u(&b, (uint64_t)l->type[i], 4);
    gguf_key_array(m, KEY("token_type"), MADE_I32, l->n, b);
    b = (gguf_bytes){0};
    for (size_t i = 0; i < json_array_size(l->merges); i++) {
        const json_t *pair = json_array_get(l->merges, i);
        char text[256];
        snprintf(text, sizeof text, "%s %s", json_string_value(json_array_get(pair, 0)),
                 json_string_value(json_array_get(pair, 1)));
        gguf_put_str(&b, text);
    }
    gguf_key_array(m, KEY("merges"), MADE_STRING, json_array_size(l->merges), b);
}

static void same_ids(const ls_tokenizer *want, const ls_tokenizer *got, const char *text, size_t n,
                     const char *pre) {
    for (unsigned flags = 0; flags < 4; flags++) {
        ls_ids a = {0}, b = {0};
        ls_err err = {0};
        OK(ls_tokenizer_encode(want, text, n, flags, &a, NULL, &err), &err);
        OK(ls_tokenizer_encode(got, text, n, flags, &b, NULL, &err), &err);
        if (a.n != b.n || (a.n > 0 && memcmp(a.id, b.id, a.n * sizeof *a.id) != 0))
            fail_msg("%s: %zu ids, %zu in tokenizer.json, or others, for \"%.*s\"", pre, b.n, a.n,
                     (int)n, text);
        ls_ids_free(&a);
        ls_ids_free(&b);
    }
}

/* tokenizer.json `name`, its splitter replaced unless that is NULL, against pre in a GGUF file,
 * over the texts of the golden ids. */
static void compare(const char *name, const char *splitter, const char *pre) {
    char file[64];
    snprintf(file, sizeof file, "fixtures/tokenizer/%s.json", name);
    json_t *doc = ls_rig_json(file), *golden = ls_rig_json("fixtures/tokenizer/golden.json"), *text;
    drop_flagged(doc);
    if (splitter) {
        json_t *p = json_loads(splitter, 0, NULL);
        assert_non_null(p);
        json_object_set_new(doc, "pre_tokenizer", p);
    }
    char *json = json_dumps(doc, 0);
    ls_tokenizer *want = NULL, *got = NULL;
    ls_err err = {0};
    OK(ls_tokenizer_parse(json, strlen(json), name, NULL, &want, &err), &err);
    lists l = lists_of(doc);
    ls_gguf_made m = {0};
    gguf_key_str(&m, KEY("model"), "gpt2");
    gguf_key_str(&m, KEY("pre"), pre);
    put_lists(&m, &l);
    if (strcmp(pre, "llama-bpe") == 0)
        gguf_key_u32(&m, KEY("bos_token_id"), (uint32_t)ls_tokenizer_bos(want));
    OK(gguf_open_tokenizer(&m, &got, &err), &err);
    assert_non_null(got);
    OK(ls_tokenizer_same(want, got, &err), &err);
    assert_int_equal(ls_tokenizer_bos(got), ls_tokenizer_bos(want));
    assert_int_equal(ls_tokenizer_n_tokens(got), ls_tokenizer_n_tokens(want));
    assert_int_equal(ls_tokenizer_n_merges(got), ls_tokenizer_n_merges(want));
    size_t i, n_texts = 0;
    json_array_foreach (json_object_get(golden, "texts"), i, text) {
        const size_t n_cp = json_array_size(text);
        uint8_t *bytes = malloc(n_cp * 4 + 1);
        size_t n = 0;
        assert_non_null(bytes);
        for (size_t c = 0; c < n_cp; c++)
            n += ls_utf8_put(bytes + n, (uint32_t)json_integer_value(json_array_get(text, c)));
        same_ids(want, got, (const char *)bytes, n, pre);
        free(bytes);
        n_texts++;
    }
    assert_true(n_texts >= 300);
    ls_tokenizer_destroy(want);
    ls_tokenizer_destroy(got);
    free(l.token);
    free(l.type);
    free(json);
    json_decref(doc);
    json_decref(golden);
}

static void test_same_ids(void **state) {
    (void)state;
    static const char digits[] =
        "{\"type\": \"Sequence\", \"pretokenizers\": ["
        "{\"type\": \"Digits\", \"individual_digits\": true},"
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}]}";
    compare("gpt2", NULL, "gpt-2");
    compare("gpt2", NULL, "gpt2");
    compare("gpt2", digits, "smollm");
    compare("llama3", NULL, "llama-bpe");
    compare("qwen2", NULL, "qwen2");
}

/* ---- odd ones -------------------------------------------------------------------------------- */

enum { SKIP_NONE, SKIP_TOKENS = 1, SKIP_TYPES = 2, SKIP_MERGES = 4 };

/* Of GPT-2's alphabet; behind it "<s>". */
static const char *byte_letter(size_t i) {
    static char letter[256][5];
    if (!letter[0][0])
        for (uint32_t b = 0, other = 256; b < 256; b++) {
            const bool own = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            ls_utf8_put((uint8_t *)letter[b], own ? b : other);
            other += !own;
        }
    return i < 256 ? letter[i] : "<s>";
}

/* The 256 byte letters and "<s>", with some things left out. */
static ls_gguf_made bytes_only(const char *model, const char *pre, int skip) {
    ls_gguf_made m = {0};
    if (model)
        gguf_key_str(&m, KEY("model"), model);
    if (pre)
        gguf_key_str(&m, KEY("pre"), pre);
    gguf_bytes b = {0};
    for (size_t i = 0; i < 257; i++)
        gguf_put_str(&b, byte_letter(i));
    if (!(skip & SKIP_TOKENS))
        gguf_key_array(&m, KEY("tokens"), MADE_STRING, 257, b);
    else
        free(b.p);
    b = (gguf_bytes){0};
    for (size_t i = 0; i < 257; i++)
        gguf_put_u(&b, i == 256 ? 3 : 1, 4);
    if (!(skip & SKIP_TYPES))
        gguf_key_array(&m, KEY("token_type"), MADE_I32, 257, b);
    else
        free(b.p);
    if (!(skip & SKIP_MERGES))
        gguf_key_array(&m, KEY("merges"), MADE_STRING, 0, (gguf_bytes){0});
    return m;
}

/* All bytes, "<s>", and these. */
static ls_gguf_made bytes_with(const char *model, const char *pre, const char *const *more,
                               size_t n_more, const char *const *merges, size_t n_merges) {
    ls_gguf_made m = bytes_only(model, pre, SKIP_TOKENS | SKIP_TYPES | SKIP_MERGES);
    gguf_bytes b = {0};
    for (size_t i = 0; i < 257; i++)
        gguf_put_str(&b, byte_letter(i));
    for (size_t i = 0; i < n_more; i++)
        gguf_put_str(&b, more[i]);
    gguf_key_array(&m, KEY("tokens"), MADE_STRING, 257 + n_more, b);
    b = (gguf_bytes){0};
    for (size_t i = 0; i < 257 + n_more; i++)
        gguf_put_u(&b, i == 256 ? 3 : 1, 4);
    gguf_key_array(&m, KEY("token_type"), MADE_I32, 257 + n_more, b);
    b = (gguf_bytes){0};
    for (size_t i = 0; i < n_merges; i++)
        gguf_put_str(&b, merges[i]);
    gguf_key_array(&m, KEY("merges"), MADE_STRING, n_merges, b);
    return m;
}

static void none(ls_gguf_made m) {
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(gguf_open_tokenizer(&m, &tok, &err), &err);
    assert_null(tok);
}

static void test_none(void **state) {
    (void)state;
    none(bytes_only("bert", "default", SKIP_NONE));
    none(bytes_only("gpt2", "deepseek-llm", SKIP_NONE));
    none(bytes_only("gpt2", NULL, SKIP_NONE));
    none(bytes_only(NULL, "gpt-2", SKIP_NONE));
    none(bytes_only("gpt2", "gpt-2", SKIP_TOKENS));
    none((ls_gguf_made){0});
}

static void test_bos(void **state) {
    (void)state;
    static const struct {
        const char *pre;
        int add; /* -1: no such key */
        bool want;
    } all[] = {{"gpt-2", -1, false},    {"gpt-2", 0, false},     {"gpt-2", 1, true},
               {"llama-bpe", -1, true}, {"llama-bpe", 0, false}, {"llama-bpe", 1, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_gguf_made m = bytes_only("gpt2", all[i].pre, SKIP_NONE);
        gguf_key_u32(&m, KEY("bos_token_id"), 256);
        if (all[i].add >= 0)
            gguf_key(&m, KEY("add_bos_token"), MADE_BOOL, all[i].add ? "\1" : "\0", 1);
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        OK(gguf_open_tokenizer(&m, &tok, &err), &err);
        assert_int_equal(ls_tokenizer_bos(tok), all[i].want ? 256 : -1);
        assert_int_equal(ls_tokenizer_size(tok), 257);
        if (all[i].want)
            EXPECT(tok, "a", LS_ENCODE_TEMPLATE, 256, 'a');
        else
            EXPECT(tok, "a", LS_ENCODE_TEMPLATE, 'a');
        ls_tokenizer_destroy(tok);
    }
}

/* llama.cpp's chain for a file of unknown origin: by hand, from its list of patterns. */
static void test_default(void **state) {
    (void)state;
    ls_gguf_made m = bytes_only("gpt2", "default", SKIP_MERGES);
    gguf_bytes b = {0};
    static const char *const merges[] = {"1 2", "3 4",        "12 34",      "! !",
                                         "a !", "\xC4\xA0 a", "\xC4\xA0 !", "\xC4\xA0 \xC4\xA0"};
    for (size_t i = 0; i < 8; i++)
        gguf_put_str(&b, merges[i]);
    gguf_key_array(&m, KEY("merges"), MADE_STRING, 8, b);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    assert_int_equal(gguf_open_tokenizer(&m, &tok, &err),
                     LS_ERR_INPUT); /* the results are no tokens */
    static const char *const results[] = {"12",
                                          "34",
                                          "1234",
                                          "!!",
                                          "a!",
                                          "\xC4\xA0"
                                          "a",
                                          "\xC4\xA0!",
                                          "\xC4\xA0\xC4\xA0"};
    m = bytes_with("gpt2", "default", results, 8, merges, 8);
    err = (ls_err){0};
    OK(gguf_open_tokenizer(&m, &tok, &err), &err);
    EXPECT(tok, "1234567", 0, 257, '3', '4', '5', '6', '7'); /* 123|456|7 */
    EXPECT(tok, "a!! a !", 0, 'a', 260, 262, ' ', '!');      /* a|!!| a| |! */
    EXPECT(tok, "a   a", 0, 'a', 264, 262);                  /* a|  | a */
    EXPECT(tok, "a  ", 0, 'a', 264);
    ls_tokenizer_destroy(tok);
}

static void refuse(ls_gguf_made m, const char *key, const char *needle) {
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    assert_int_equal(gguf_open_tokenizer(&m, &tok, &err), LS_ERR_INPUT);
    assert_null(tok);
    ls_assert_message(&err, "made.gguf", key, needle, NULL);
}

static void test_refused(void **state) {
    (void)state;
    refuse(bytes_only("gpt2", "gpt-2", SKIP_TYPES), KEY("token_type"), "is missing");
    refuse(bytes_only("gpt2", "gpt-2", SKIP_MERGES), KEY("merges"), "is missing");
    ls_gguf_made m = bytes_only("gpt2", "gpt-2", SKIP_MERGES);
    gguf_key_str(&m, KEY("merges"), "a b");
    refuse(m, KEY("merges"), "no array");
    m = bytes_only("gpt2", "gpt-2", SKIP_MERGES);
    gguf_bytes b = {0};
    gguf_put_str(&b, "a b"); /* "ab" is no token */
    gguf_key_array(&m, KEY("merges"), MADE_STRING, 1, b);
    refuse(m, "merges[0]", "not in the vocabulary");
    m = bytes_only("gpt2", "gpt-2", SKIP_MERGES);
    b = (gguf_bytes){0};
    gguf_put_str(&b, "\xff");
    gguf_key_array(&m, KEY("merges"), MADE_STRING, 1, b);
    refuse(m, KEY("merges"), "entry 0: is no text in UTF-8");
    m = bytes_only("gpt2", "gpt-2", SKIP_TYPES);
    b = (gguf_bytes){0};
    for (int i = 0; i < 256; i++)
        gguf_put_u(&b, 1, 4);
    gguf_key_array(&m, KEY("token_type"), MADE_I32, 256, b);
    refuse(m, KEY("token_type"), "256 entries for 257 tokens");
    for (int type = 0; type < 9; type++) {
        m = bytes_only("gpt2", "gpt-2", SKIP_TYPES);
        b = (gguf_bytes){0};
        for (int i = 0; i < 257; i++)
            gguf_put_u(&b, i == 256 ? (uint64_t)type : 1, 4);
        gguf_key_array(&m, KEY("token_type"), MADE_I32, 257, b);
        if (type == 0 || type > 5) {
            refuse(m, KEY("token_type"), "entry 256: this type has no meaning");
            continue;
        }
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        OK(gguf_open_tokenizer(&m, &tok, &err), &err);
        assert_int_equal(ls_tokenizer_size(tok), type == 5 ? 256 : 257);
        assert_int_equal(ls_tokenizer_is_special(tok, 256), type == 2 || type == 3);
        ls_tokenizer_destroy(tok);
    }
    m = bytes_only("gpt2", "gpt-2", SKIP_TOKENS);
    b = (gguf_bytes){0};
    for (int i = 0; i < 257; i++)
        gguf_put_str(&b, "x");
    gguf_key_array(&m, KEY("tokens"), MADE_STRING, 257, b);
    refuse(m, KEY("tokens"), "entry 1: the token stands twice");
    m = bytes_only("gpt2", "gpt-2", SKIP_TOKENS);
    b = (gguf_bytes){0};
    for (int i = 0; i < 257; i++)
        gguf_put_u(&b, 65, 4);
    gguf_key_array(&m, KEY("tokens"), MADE_U32, 257, b);
    refuse(m, KEY("tokens"), "entry 0: is no text");
    refuse(bytes_only("gpt2", "llama-bpe", SKIP_NONE), KEY("bos_token_id"), "is missing");
    m = bytes_only("gpt2", "llama-bpe", SKIP_NONE);
    gguf_key_u32(&m, KEY("bos_token_id"), 257);
    refuse(m, KEY("bos_token_id"), "is 257, which no token has");
    m = bytes_only("gpt2", "gpt-2", SKIP_NONE);
    gguf_key_u32(&m, KEY("add_bos_token"), 1);
    refuse(m, KEY("add_bos_token"), "is no bool");
    m = bytes_only("gpt2", "gpt-2", SKIP_NONE);
    gguf_key(&m, KEY("add_eos_token"), MADE_BOOL, "\1", 1);
    refuse(m, KEY("eos_token_id"), "is missing");
}

/* Any one byte changed: a verdict either way, and no fault. */
static void test_every_byte(void **state) {
    (void)state;
    ls_gguf_made m = bytes_only("gpt2", "llama-bpe", SKIP_NONE);
    gguf_key_u32(&m, KEY("bos_token_id"), 256);
    gguf_bytes f = gguf_file(&m);
    size_t refused = 0;
    for (size_t i = 0; i < f.n; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            ls_gguf *g = NULL;
            ls_tokenizer *tok = NULL;
            ls_err err = {0};
            f.p[i] ^= (uint8_t)(1 << bit);
            ls_status s = ls_gguf_parse(f.p, f.n, "made.gguf", &g, &err);
            if (s == LS_OK)
                s = ls_gguf_tokenizer_open(g, NULL, &tok, &err);
            if (s != LS_OK && s != LS_ERR_INPUT)
                fail_msg("byte %zu, bit %d: %s", i, bit, err.msg);
            if (s != LS_OK)
                ls_assert_message(&err, "made.gguf: ", NULL);
            refused += s != LS_OK;
            ls_tokenizer_destroy(tok);
            ls_gguf_close(g);
            f.p[i] ^= (uint8_t)(1 << bit);
        }
    assert_true(refused > f.n);
    free(f.p);
    gguf_free(&m);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_same_ids), cmocka_unit_test(test_none),
        cmocka_unit_test(test_bos),      cmocka_unit_test(test_default),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_every_byte)};
    return cmocka_run_group_tests(all, begin, NULL);
}
