/* Tokenizer files that are refused: the carried cases, each unknown part by its path, patterns that
 * would mean something else, every cut, and patterns that would run for ever. */
#include "cases.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer.h"

static ls_status parse(const char *text, size_t n, const char *name, ls_tokenizer **tok,
                       ls_err *err) {
    *tok = NULL;
    return ls_tokenizer_parse(text, n, name, NULL, tok, err);
}

static void verdict(const char *path, const char *expect, const char *why) {
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    ls_tokenizer *tok;
    ls_err err = {0};
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    ls_status s = parse(text, n, path, &tok, &err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    if (strcmp(expect, "either") != 0 && (s == LS_OK) != (strcmp(expect, "accept") == 0))
        fail_msg("%s: %s, expected %s (%s)", path, s == LS_OK ? "accepted" : err.msg, expect, why);
    if (s != LS_OK) {
        assert_int_equal(s, LS_ERR_INPUT);
        ls_assert_message(&err, ".json: ", NULL);
        assert_null(tok);
        double seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
        assert_true(seconds < 0.1);
    }
    ls_tokenizer_destroy(tok);
    free(text);
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("tok/", 27, verdict);
}

/* The two files that may go either way go one way on purpose. */
static void test_either(void **state) {
    (void)state;
    size_t n = 0;
    char *path = ls_test_path("cases/tok/bom_prefix.json"), *text = ls_test_read(path, &n);
    ls_tokenizer *tok;
    ls_err err = {0};
    OK(parse(text, n, path, &tok, &err), &err); /* a byte-order mark is skipped */
    ls_tokenizer_destroy(tok);
    free(text);
    free(path);
    path = ls_test_path("cases/tok/nul_in_content.json");
    text = ls_test_read(path, &n);
    assert_int_equal(parse(text, n, path, &tok, &err), LS_ERR_INPUT); /* a zero byte is refused */
    ls_assert_message(&err, "u0000", NULL);
    free(text);
    free(path);
}

/* ---- one thing changed ----------------------------------------------------------------------- */

static const char byte_level[] = "cases/tok/merges_as_strings.json",
                  marked[] = "fixtures/tokenizers/llama2.json";

static json_t *base_of(const char *file) {
    char *path = ls_test_path("%s", file);
    json_t *j = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(j);
    return j;
}

/* Sets the member at a dotted path to a JSON value (NULL: removes it). */
static void set(json_t *root, const char *path, const char *value) {
    char name[200];
    snprintf(name, sizeof name, "%s", path);
    char *key = name, *dot;
    for (; (dot = strchr(key, '.')); key = dot + 1) {
        *dot = 0;
        root = json_object_get(root, key);
        assert_non_null(root);
    }
    if (!value) {
        json_object_del(root, key);
        return;
    }
    json_error_t e;
    json_t *v = json_loads(value, JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("%s: %s", value, e.text);
    json_object_set_new(root, key, v);
}

static json_t *base(void) {
    return base_of(byte_level);
}

static ls_status with_in(const char *file, const char *path, const char *value, ls_tokenizer **tok,
                         ls_err *err) {
    json_t *j = base_of(file);
    set(j, path, value);
    char *text = json_dumps(j, 0);
    json_decref(j);
    ls_status s = parse(text, strlen(text), "t.json", tok, err);
    free(text);
    return s;
}

static ls_status with(const char *path, const char *value, ls_tokenizer **tok, ls_err *err) {
    return with_in(byte_level, path, value, tok, err);
}

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(pattern, rest)                                                             \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern \
    ",\"behavior\":\"Isolated\"" rest "}," BYTE_LEVEL "]}"
#define ADDED(members) "[{\"id\":260,\"content\":\"<x>\"" members "}]"
#define TEMPLATE(single, special)                         \
    "{\"type\":\"TemplateProcessing\",\"single\":" single \
    ",\"pair\":[],\"special_tokens\":" special "}"

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *path, *value, *where, *says;
    } all[] = {
        {"version", "\"2.0\"", "version", "1.0"},
        {"surprise", "1", "surprise", "not understood"},
        {"model", NULL, "model", "missing"},
        {"model.type", "\"WordPiece\"", "model.type", "WordPiece"},
        {"model.surprise", "1", "model.surprise", "not understood"},
        {"model.dropout", "0.1", "model.dropout", "random"},
        {"model.byte_fallback", "true", "model.byte_fallback", "not supported"},
        {"model.continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix", "null"},
        {"model.end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix", "null"},
        {"model.vocab", "[]", "model.vocab", "not an object"},
        {"model.vocab", "{}", "model.vocab", "empty"},
        {"model.vocab.he", "1.5", "model.vocab.he", "whole number"},
        {"model.vocab.he", "300000", "model.vocab", "gaps"},
        {"model.vocab.he", "4194304", "model.vocab.he", "outside"},
        {"model.vocab.he", "97", "model.vocab", "two spellings"},
        {"model.merges", "null", "model.merges", "not a list"},
        {"model.merges", "[5]", "model.merges[0]", "not a string"},
        {"model.merges", "[\"h e\",\"h e\"]", "model.merges[1]", "entry 0"},
        {"model.merges", "[\"h  e\"]", "model.merges[0]", "one space"},
        {"model.merges", "[\" he\"]", "model.merges[0]", "left part"},
        {"model.merges", "[\"he \"]", "model.merges[0]", "right part"},
        {"model.merges", "[[\"h\",5]]", "model.merges[0][1]", "not a string"},
        {"model.merges", "[[\"h\"]]", "model.merges[0]", "this has 1"},
        {"normalizer", "{\"type\":\"Lowercase\"}", "normalizer", "Lowercase"},
        {"normalizer",
         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Strip\"}]}",
         "normalizer.normalizers[1]", "Strip"},
        {"normalizer", "\"NFC\"", "normalizer", "not an object"},
        {"pre_tokenizer", "null", "decoder", "without a ByteLevel splitter"},
        {"pre_tokenizer", "{\"type\":\"Whitespace\"}", "pre_tokenizer", "Whitespace"},
        {"pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[]}", "decoder",
         "without a ByteLevel splitter"},
        {"pre_tokenizer",
         "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL ",{\"type\":\"Digits\"}]}",
         "pre_tokenizer.pretokenizers[1]", "behind ByteLevel"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"use_regex\":1}", "pre_tokenizer.use_regex",
         "true or false"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"surprise\":1}", "pre_tokenizer.surprise",
         "not understood"},
        {"pre_tokenizer", SPLIT("{\"Regex\":\"a\"}", ",\"invert\":2"),
         "pre_tokenizer.pretokenizers[0].invert", "true or false"},
        {"pre_tokenizer", SPLIT("{\"Regex\":\"a\",\"String\":\"a\"}", ""),
         "pre_tokenizer.pretokenizers[0].pattern", "either"},
        {"pre_tokenizer", SPLIT("{}", ""), "pre_tokenizer.pretokenizers[0].pattern", "either"},
        {"pre_tokenizer", SPLIT("\"a\"", ""), "pre_tokenizer.pretokenizers[0].pattern", "object"},
        {"pre_tokenizer", SPLIT("{\"String\":\"\"}", ""),
         "pre_tokenizer.pretokenizers[0].pattern.String", "empty"},
        {"pre_tokenizer",
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":"
         "\"a\"},"
         "\"behavior\":\"Sideways\"}," BYTE_LEVEL "]}",
         "pre_tokenizer.pretokenizers[0].behavior", "Sideways"},
        {"decoder", "null", "decoder", "ByteLevel"},
        {"decoder", "{\"type\":\"Metaspace\"}", "decoder", "Metaspace"},
        {"decoder", "{\"type\":\"B\\u007fte\"}", "decoder", "B\\x7Fte"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[]}", "decoder", "single"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[" BYTE_LEVEL "," BYTE_LEVEL "]}",
         "decoder.decoders[1]", "longer chain"},
        {"post_processor", "{\"type\":\"BertProcessing\"}", "post_processor", "BertProcessing"},
        {"post_processor", TEMPLATE("[]", "{}"), "post_processor.single", "no place"},
        {"post_processor", TEMPLATE("[{\"Sequence\":{\"id\":\"B\"}}]", "{}"),
         "post_processor.single[0].Sequence", "\"A\""},
        {"post_processor",
         TEMPLATE("[{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}]", "{}"),
         "post_processor.single[1].Sequence", "once"},
        {"post_processor",
         TEMPLATE("[{\"SpecialToken\":{\"id\":\"q\"}},{\"Sequence\":{\"id\":\"A\"}}]", "{}"),
         "post_processor.special_tokens.q", "missing"},
        {"post_processor",
         TEMPLATE("[{\"SpecialToken\":{\"id\":\"q\"}},{\"Sequence\":{\"id\":\"A\"}}]",
                  "{\"q\":{\"id\":\"q\",\"ids\":[260],\"tokens\":[\"q\"]}}"),
         "post_processor.special_tokens.q.ids[0]", "outside"},
        {"added_tokens", "{}", "added_tokens", "not a list"},
        {"added_tokens", "[5]", "added_tokens[0]", "not an object"},
        {"added_tokens", "[{\"id\":260}]", "added_tokens[0].content", "missing"},
        {"added_tokens", "[{\"content\":\"x\"}]", "added_tokens[0].id", "missing"},
        {"added_tokens", "[{\"id\":-1,\"content\":\"x\"}]", "added_tokens[0].id", "outside"},
        {"added_tokens", "[{\"id\":97,\"content\":\"<x>\"}]", "added_tokens[0]", "two spellings"},
        {"added_tokens", "[{\"id\":260,\"content\":\"he\"}]", "added_tokens[0]", "two ids"},
        {"added_tokens", ADDED(",\"surprise\":1"), "added_tokens[0].surprise", "not understood"},
        {"added_tokens", ADDED(",\"lstrip\":\"no\""), "added_tokens[0].lstrip", "true or false"},
        {"added_tokens", "[{\"id\":260,\"content\":\"<x>\"},{\"id\":260,\"content\":\"<x>\"}]",
         "added_tokens[1]", "added twice"},
        {"added_tokens", "[{\"id\":260,\"content\":\"<x>\"},{\"id\":261,\"content\":\"<x>\"}]",
         "added_tokens[1]", "two ids"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        if (with(all[i].path, all[i].value, &tok, &err) == LS_OK)
            fail_msg("%s = %s was accepted", all[i].path, all[i].value ? all[i].value : "absent");
        char where[160];
        snprintf(where, sizeof where, "t.json: %s", all[i].where);
        ls_assert_message(&err, where, all[i].says, NULL);
    }
}

#define STEPS(kind, list) "{\"type\":\"Sequence\",\"" kind "\":[" list "]}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}"
#define FALLBACK "{\"type\":\"ByteFallback\"}"
#define FUSE "{\"type\":\"Fuse\"}"
#define STRIP(start, stop) \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"
#define META(rest) "{\"type\":\"Metaspace\",\"replacement\":\"_\"" rest "}"

/* The same for a vocabulary of characters. */
static void test_refused_marks(void **state) {
    (void)state;
    static const struct {
        const char *path, *value, *where, *says;
    } all[] = {
        {"model.unk_token", "\"nobody\"", "model.unk_token", "not in the vocabulary"},
        {"model.unk_token", "7", "model.unk_token", "not a string"},
        {"model.vocab.<0x0A>", NULL, "", ""}, /* with an unk it is no fault */
        {"normalizer", "{\"type\":\"NFD\"}", "normalizer", "NFD"},
        {"normalizer", "{\"type\":\"Precompiled\"}", "normalizer", "Precompiled"},
        {"normalizer", STEPS("normalizers", REPLACE ",{\"type\":\"Lowercase\"}"),
         "normalizer.normalizers[1]", "Lowercase"},
        {"normalizer", "{\"type\":\"Prepend\"}", "normalizer.prepend", "missing"},
        {"normalizer", "{\"type\":\"Prepend\",\"prepend\":\"a\",\"x\":1}", "normalizer.x",
         "understood"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}",
         "normalizer.pattern.Regex", "regex"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
         "normalizer.pattern.String", "empty"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":\" \",\"content\":\"\"}",
         "normalizer.pattern", "not an object"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}",
         "normalizer.content", "missing"},
        {"pre_tokenizer", META(",\"prepend_scheme\":\"often\""), "pre_tokenizer.prepend_scheme",
         "often"},
        {"pre_tokenizer", META(",\"prepend_scheme\":\"first\",\"add_prefix_space\":false"),
         "pre_tokenizer.prepend_scheme", "add_prefix_space"},
        {"pre_tokenizer", META(",\"split\":0"), "pre_tokenizer.split", "true or false"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"__\"}",
         "pre_tokenizer.replacement", "one character"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"\"}",
         "pre_tokenizer.replacement", "one character"},
        {"pre_tokenizer", "{\"type\":\"Punctuation\"}", "pre_tokenizer", "Punctuation"},
        {"decoder", "null", "decoder", "is missing"},
        {"decoder", BYTE_LEVEL, "decoder", "without a ByteLevel splitter"},
        {"decoder", "{\"type\":\"WordPiece\"}", "decoder", "WordPiece"},
        {"decoder", "{\"type\":\"CTC\"}", "decoder", "CTC"},
        {"decoder", STEPS("decoders", FALLBACK "," REPLACE), "decoder.decoders[1]", "Replace"},
        {"decoder", STEPS("decoders", FUSE "," FALLBACK), "decoder.decoders[1]", "ByteFallback"},
        {"decoder", STEPS("decoders", STRIP("1", "0")), "decoder.decoders[0]", "without Fuse"},
        {"decoder", STEPS("decoders", FUSE "," STRIP("1", "1")), "decoder.decoders[1]",
         "stop above 0"},
        {"decoder", STEPS("decoders", FUSE "," STRIP("1", "0") "," STRIP("1", "0")),
         "decoder.decoders[2]", "behind another"},
        {"decoder", STEPS("decoders", FUSE "," STRIP("256", "0")), "decoder.decoders[1].start",
         "outside"},
        {"decoder", STEPS("decoders", REPLACE "," META("")), "decoder.decoders[1]", "Metaspace"},
        {"decoder", "{\"type\":\"Fuse\",\"x\":1}", "decoder.x", "not understood"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        const ls_status s = with_in(marked, all[i].path, all[i].value, &tok, &err);
        if ((s == LS_OK) != !*all[i].says)
            fail_msg("%s = %s: %s", all[i].path, all[i].value ? all[i].value : "absent",
                     s == LS_OK ? "accepted" : err.msg);
        ls_tokenizer_destroy(tok);
        if (s == LS_OK)
            continue;
        char where[160];
        snprintf(where, sizeof where, "t.json: %s", all[i].where);
        ls_assert_message(&err, where, all[i].says, NULL);
    }
    /* a byte is missing, and there is no unk: some text could not be encoded */
    json_t *j = base_of(marked);
    set(j, "model.unk_token", "null");
    set(j, "model.vocab.<0x0A>", NULL);
    char *text = json_dumps(j, 0);
    ls_tokenizer *tok;
    ls_err err = {0};
    assert_int_equal(parse(text, strlen(text), "t.json", &tok, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "t.json: model.unk_token: is missing", "some byte", NULL);
    free(text);
    set(j, "model.byte_fallback", "false");
    text = json_dumps(j, 0);
    assert_int_equal(parse(text, strlen(text), "t.json", &tok, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "t.json: model.unk_token: is missing", "no byte_fallback", NULL);
    free(text);
    json_decref(j);
}

/* Steps that would make gigabytes of a text or a token. */
static void test_growth(void **state) {
    (void)state;
#define TWICE \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaa\"}"
#define EIGHT TWICE "," TWICE "," TWICE "," TWICE "," TWICE "," TWICE "," TWICE "," TWICE
    ls_tokenizer *tok;
    ls_err err = {0};
    ls_ids ids = {0};
    OK(with_in(marked, "normalizer", STEPS("normalizers", EIGHT), &tok, &err), &err);
    char text[1000];
    memset(text, 'a', sizeof text);
    assert_int_equal(ls_tokenizer_encode(tok, text, sizeof text, 0, &ids, NULL, &err),
                     LS_ERR_INPUT);
    ls_assert_message(&err, "t.json", "normalizers", NULL);
    ls_tokenizer_destroy(tok);
    assert_int_equal(
        with_in(marked, "normalizer", STEPS("normalizers", EIGHT "," TWICE), &tok, &err),
        LS_ERR_INPUT);
    ls_assert_message(&err, "normalizers[8]", "more than 8", NULL);
    assert_int_equal(with_in(marked, "decoder", STEPS("decoders", EIGHT), &tok, &err),
                     LS_ERR_INPUT);
    ls_assert_message(&err, "t.json: decoder: ", "Replace makes", NULL);
    assert_int_equal(
        with_in(marked, "normalizer",
                "{\"type\":\"Prepend\",\"prepend\":\"0123456789012345678901234567890123456789"
                "0123456789012345678901234567890123456789\"}",
                &tok, &err),
        LS_ERR_INPUT);
    ls_assert_message(&err, "normalizer.prepend", "80 bytes", NULL);
}

static void test_accepted(void **state) {
    (void)state;
    static const struct {
        const char *path, *value;
    } all[] = {
        {"version", "\"1.0\""},
        {"truncation", "{\"max_length\":5}"},
        {"model.type", NULL},
        {"model.continuing_subword_prefix", "\"\""},
        {"model.unk_token", "\"a\""},
        {"model.dropout", "0.0"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}"},
        {"pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\","
                          "\"pretokenizers\":[{\"type\":\"Digits\"}]}," BYTE_LEVEL "]}"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"}]}"},
        {"post_processor", "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]}"},
        {"added_tokens", "[{\"id\":256,\"content\":\"he\",\"special\":true}]"},
        {"added_tokens", ADDED(",\"special\":true,\"normalized\":false")},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        OK(with(all[i].path, all[i].value, &tok, &err), &err);
        ls_tokenizer_destroy(tok);
    }
    ls_tokenizer *tok;
    ls_err err = {0};
    OK(with("model.merges", "[]", &tok, &err), &err);
    assert_non_null(ls_tokenizer_warning(tok)); /* words that nothing can build */
    ls_tokenizer_destroy(tok);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static ls_status with_pattern(const char *pattern, ls_tokenizer **tok, ls_err *err) {
    json_t *j = base();
    json_t *split = json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pattern,
                              "behavior", "Isolated", "invert", 0);
    json_t *chain = json_pack("{s:s,s:[o,o]}", "type", "Sequence", "pretokenizers", split,
                              json_loads(BYTE_LEVEL, 0, NULL));
    assert_non_null(chain);
    json_object_set_new(j, "pre_tokenizer", chain);
    char *text = json_dumps(j, 0);
    json_decref(j);
    ls_status s = parse(text, strlen(text), "t.json", tok, err);
    free(text);
    return s;
}

static void test_patterns(void **state) {
    (void)state;
    static const char *const bad[] = {"\\w+",
                                      "\\W",
                                      "\\bx",
                                      "x\\B",
                                      "\\h",
                                      "\\R",
                                      "\\X",
                                      "\\K",
                                      "\\G",
                                      "\\Z",
                                      "\\1",
                                      "(a)\\1",
                                      "\\pL",
                                      "\\p{",
                                      "\\p{L",
                                      "\\p{Script=Han}",
                                      "\\p{NoSuchScript}",
                                      "\\u12",
                                      "\\x{110000}",
                                      "\\x{}",
                                      "\\xe9",
                                      "[[:alpha:]]",
                                      "[a[bc]]",
                                      "[a&&b]",
                                      "[]a]",
                                      "[a",
                                      "[z-a]",
                                      "a{,2}",
                                      "a{1,2}+",
                                      "(?m)a",
                                      "(?x)a b",
                                      "a(?i)b",
                                      "(?<n>a)",
                                      "(?P<n>a)",
                                      "(?R)",
                                      "(?#c)",
                                      "(?(1)a|b)",
                                      "(*NO_JIT)a",
                                      "(*COMMIT)",
                                      "(?{x})",
                                      "(a",
                                      "a)",
                                      "*a",
                                      "a**(",
                                      "\\",
                                      "(?<=a+)b",
                                      "[\\s-z]",
                                      "[!-\\s]",
                                      "\\o{141}",
                                      "\\Q.\\E",
                                      "\\N",
                                      "\\C",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        if (with_pattern(bad[i], &tok, &err) == LS_OK)
            fail_msg("the pattern \"%s\" was accepted", bad[i]);
        ls_assert_message(&err, "pretokenizers[0].pattern.Regex: ", "pattern", NULL);
    }
    static const char *const good[] = {"(?i:'s|'t)|\\p{L}+",
                                       "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+",
                                       "\\s+(?!\\S)",
                                       "a{2}",
                                       "a{x",
                                       "{",
                                       "}",
                                       "]",
                                       "\\p{Han}+",
                                       "\\p{^Lu}",
                                       "\\P{N}",
                                       "\\u0041",
                                       "\\x{1F600}",
                                       "\\x41",
                                       "[\\s\\S]",
                                       "[-\\s]",
                                       "[\\s-]",
                                       "[^]\\S-]",
                                       "(?>a|b)c",
                                       "(?<!a)b",
                                       "(?<=ab)c",
                                       "^a$",
                                       ".",
                                       "a*+b++c?+",
                                       "\\Aa\\z",
                                       "(?i)abc",
                                       "\\[\\]\\(\\)\\{\\}\\-\\\\",
                                       "#",
                                       "[一-龥\\u3040-ゟ]+",
                                       "\\d{1,3}(?=(?:\\d{3})*)"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        if (strcmp(good[i], "[^]\\S-]") == 0) { /* "]" first in a class: the engines disagree */
            assert_int_equal(with_pattern(good[i], &tok, &err), LS_ERR_INPUT);
            continue;
        }
        OK(with_pattern(good[i], &tok, &err), &err);
        ls_tokenizer_destroy(tok);
    }
}

/* On aaa...b this takes exponentially many steps: an error that names the place, and soon. */
static void test_catastrophe(void **state) {
    (void)state;
    ls_tokenizer *tok;
    ls_err err = {0};
    OK(with_pattern("(?:a|aa)+$", &tok, &err), &err);
    char text[200];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    ls_ids ids = {0};
    OK(ls_tokenizer_encode(tok, text, 10, 0, &ids, NULL, &err), &err);
    size_t n = ids.n;
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    assert_int_equal(ls_tokenizer_encode(tok, text, sizeof text, 0, &ids, NULL, &err),
                     LS_ERR_INPUT);
    ls_assert_message(&err, "t.json", "pretokenizers[0].pattern.Regex", "byte 0", "limit", NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    assert_true(b.tv_sec - a.tv_sec < 5);
    assert_int_equal(ids.n, n);
    ls_ids_free(&ids);
    ls_tokenizer_destroy(tok);
}

/* Each search, or each place of one search, takes millions of steps and comes to an end: the limit
 * is for all of them. */
static void test_many_searches(void **state) {
    (void)state;
    static const char *const patterns[] = {"(?:(?:a|a){22}c|a)", "(?:(?:a|a){21}\u00d1a)"};
    for (size_t i = 0; i < 2; i++) {
        ls_tokenizer *tok;
        ls_err err = {0};
        ls_ids ids = {0};
        struct timespec a, b;
        char text[600];
        OK(with_pattern(patterns[i], &tok, &err), &err);
        memset(text, 'a', sizeof text);
        OK(ls_tokenizer_encode(tok, text, 15, 0, &ids, NULL, &err), &err);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        assert_int_equal(ls_tokenizer_encode(tok, text, sizeof text, 0, &ids, NULL, &err),
                         LS_ERR_INPUT);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        ls_assert_message(&err, "t.json", "gave up", "limit", NULL);
        assert_true(b.tv_sec - a.tv_sec < 5);
        ls_ids_free(&ids);
        ls_tokenizer_destroy(tok);
    }
}

/* ---- every cut ------------------------------------------------------------------------------- */

static void test_every_cut(void **state) {
    (void)state;
    char *path = ls_test_path("cases/models/table_target/tokenizer.json");
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    while (n > 0 && text[n - 1] != '}')
        n--;
    const ls_tokenizer_options o = {.partial_bytes = true};
    for (size_t cut = 0; cut <= n; cut++) {
        char *exact = malloc(cut ? cut : 1); /* so that a read past it shows */
        assert_non_null(exact);
        memcpy(exact, text, cut);
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        ls_status s = ls_tokenizer_parse(exact, cut, "cut.json", &o, &tok, &err);
        if ((s == LS_OK) != (cut == n))
            fail_msg("cut at %zu of %zu: %s", cut, n, s == LS_OK ? "accepted" : err.msg);
        ls_tokenizer_destroy(tok);
        free(exact);
    }
    free(text);
    free(path);
}

/* One byte changed anywhere: a verdict, no fault; what loads still encodes and decodes. */
static void test_every_byte(void **state) {
    (void)state;
    char *path = ls_test_path("cases/models/table_target/tokenizer.json");
    size_t n = 0, refused = 0, loaded = 0;
    char *text = ls_test_read(path, &n);
    static const char other[] = {'"', '0', '{', ']', ',', '\\', (char)0xC3, 'z'};
    const ls_tokenizer_options o = {.partial_bytes = true};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof other; k++) {
            char was = text[i];
            text[i] = other[k];
            ls_tokenizer *tok = NULL;
            ls_err err = {0};
            if (ls_tokenizer_parse(text, n, "x.json", &o, &tok, &err) != LS_OK) {
                refused++;
            } else {
                ls_ids ids = {0};
                ls_text back = {0};
                loaded++;
                if (ls_tokenizer_encode(tok, "abc p", 5, 1, &ids, NULL, &err) == LS_OK)
                    OK(ls_tokenizer_decode(tok, ids.id, ids.n, true, &back, &err), &err);
                ls_ids_free(&ids);
                ls_text_free(&back);
            }
            ls_tokenizer_destroy(tok);
            text[i] = was;
        }
    assert_true(refused > n && loaded > 0);
    free(text);
    free(path);
}

static void test_open(void **state) {
    (void)state;
    char *dir = ls_test_dir_make();
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    assert_int_equal(ls_tokenizer_open(dir, NULL, &tok, &err), LS_ERR_IO);
    ls_assert_message(&err, "tokenizer.json", NULL);
    ls_test_write(dir, "tokenizer.json", "", 0);
    assert_int_equal(ls_tokenizer_open(dir, NULL, &tok, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "tokenizer.json", "empty", NULL);
    ls_test_dir_remove(dir);
}

/* Ids that no text has. */
static void test_bad_ids(void **state) {
    (void)state;
    ls_tokenizer *tok;
    ls_err err = {0};
    OK(with("model.vocab.hello", "300", &tok, &err), &err); /* 259..299 are gaps */
    assert_int_equal(ls_tokenizer_size(tok), 301);
    static const int32_t bad[] = {-1, 259, 299, 301, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_text out = {0};
        char says[32];
        snprintf(says, sizeof says, "id %d", bad[i]);
        assert_int_equal(ls_tokenizer_decode(tok, &bad[i], 1, false, &out, &err), LS_ERR_INPUT);
        ls_assert_message(&err, "t.json", says, NULL);
        ls_text_free(&out);
    }
    ls_tokenizer_destroy(tok);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

/* Ids chosen so that all pairs of a list begin their search in one eighth of the table: half the
 * table would be searched for each. */
static void test_crowded_merges(void **state) {
    (void)state;
    enum { SIDE = 256, PAIRS = 4000 }; /* in 8192 slots */
    size_t n = 0, n_pair = 0;
    char *path = ls_test_path("cases/tok/merges_as_strings.json"), *text = ls_test_read(path, &n);
    json_t *doc = json_loads(text, 0, NULL), *model = json_object_get(doc, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_array();
    free(text);
    free(path);
    for (int i = 0; i < 2 * SIDE; i++) {
        const char name[] = {i < SIDE ? 'L' : 'R', (char)('a' + i % 16), (char)('a' + i / 16 % 16),
                             0};
        assert_int_equal(json_object_set_new(vocab, name, json_integer(1000 + i)), 0);
    }
    for (int i = 0; i < SIDE * SIDE && n_pair < PAIRS; i++) {
        const uint64_t left = 1000 + (uint64_t)(i / SIDE),
                       right = 1000 + SIDE + (uint64_t)(i % SIDE);
        const char l[] = {'L', (char)('a' + i / SIDE % 16), (char)('a' + i / SIDE / 16), 0};
        const char r[] = {'R', (char)('a' + i % 16), (char)('a' + i % SIDE / 16), 0};
        if ((left << 32 | right) * 0x9E3779B97F4A7C15u >> 61 != 0)
            continue;
        char joined[8];
        snprintf(joined, sizeof joined, "%s%s", l, r);
        json_object_set_new(vocab, joined, json_integer((json_int_t)(2000 + n_pair++)));
        json_array_append_new(merges, json_pack("[s, s]", l, r));
    }
    assert_int_equal(n_pair, PAIRS);
    json_object_set_new(model, "merges", merges);
    text = json_dumps(doc, 0);
    ls_tokenizer *tok;
    ls_err err = {0};
    assert_int_equal(parse(text, strlen(text), "t.json", &tok, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "t.json: model.merges[", "made to be slow", NULL);
    free(text);
    json_decref(doc);
}

/* The hash of eight bytes as the loader takes it, to choose spellings by. */
static uint64_t hash_of_8(const char *s) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ 8, v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | (uint8_t)s[i];
    h = (h ^ v) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* Spellings chosen to begin their search in one slot of the table: each would be compared with all.
 * As many that were not chosen load. */
static void test_crowded_spellings(void **state) {
    (void)state;
    enum { TOKENS = 3000, MASK = 8191 }; /* the slots of so many and the file's own, less one */
    for (int chosen = 0; chosen < 2; chosen++) {
        size_t n = 0;
        char *path = ls_test_path("cases/tok/merges_as_strings.json"),
             *text = ls_test_read(path, &n);
        json_t *doc = json_loads(text, 0, NULL);
        json_t *vocab = json_object_get(json_object_get(doc, "model"), "vocab");
        free(text);
        free(path);
        assert_true(json_object_size(vocab) + TOKENS < MASK / 2);
        json_int_t id = 1000;
        for (uint64_t i = 0; id < 1000 + TOKENS; i++) {
            char name[9];
            for (int k = 0; k < 8; k++)
                name[k] = (char)('a' + (i >> 4 * k & 15));
            name[8] = 0;
            if (!chosen || (hash_of_8(name) & MASK) == 77)
                json_object_set_new(vocab, name, json_integer(id++));
        }
        text = json_dumps(doc, 0);
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        assert_int_equal(parse(text, strlen(text), "t.json", &tok, &err),
                         chosen ? LS_ERR_INPUT : LS_OK);
        if (chosen)
            ls_assert_message(&err, "t.json: model.vocab.", "spellings", "made to be slow", NULL);
        else
            ls_tokenizer_destroy(tok);
        free(text);
        json_decref(doc);
    }
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_verdicts),       cmocka_unit_test(test_either),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_refused_marks),
        cmocka_unit_test(test_growth),         cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_patterns),       cmocka_unit_test(test_catastrophe),
        cmocka_unit_test(test_many_searches),  cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_crowded_merges), cmocka_unit_test(test_crowded_spellings),
        cmocka_unit_test(test_every_byte),     cmocka_unit_test(test_open),
        cmocka_unit_test(test_bad_ids)};
    return cmocka_run_group_tests(all, begin, NULL);
}
