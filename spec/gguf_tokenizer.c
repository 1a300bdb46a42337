#include "gguf_tokenizer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_build.h"

#define KEY(name) "tokenizer.ggml." name

/* Types of tokens, as the format numbers them. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

/* ---- chains ---------------------------------------------------------------------------------- */

#define BYTES(regex)                                                                  \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_" \
    "regex\":" regex "}"
#define SPLIT(digits)                                                                          \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"    \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits           \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}," \
    "\"behavior\":\"Isolated\",\"invert\":false}," BYTES("false") "]}"

#define ISOLATE(regex)                                    \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"Isolated\",\"invert\":"           \
    "false},"

/* U+2581, which stands for a space in SentencePiece. */
#define BAR "\xE2\x96\x81"
#define REPLACE(from, to) \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define TO_BARS REPLACE(" ", BAR)
#define FROM_BARS REPLACE(BAR, " ") ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

static const char bars[] = TO_BARS;
static const char space_and_bars[] =
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
    "\"prepend\":\"" BAR "\"}," TO_BARS "]}";
static const char from_bars[] = "{\"type\":\"Sequence\",\"decoders\":[" FROM_BARS "]}";
static const char from_space_and_bars[] =
    "{\"type\":\"Sequence\",\"decoders\":[" FROM_BARS
    ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";

struct chain {
    const char *pre, *splitter, *normalizer;
    bool ignore_merges, bos;
};

/* SentencePiece; its normalizer depends on the file. */
static const struct chain spm = {NULL, "null", NULL, false, true};

static const struct chain chains[] = {
    {"gpt-2", BYTES("true"), "null", false, false},
    {"gpt2", BYTES("true"), "null", false, false},
    {"llama-bpe", SPLIT("\\\\p{N}{1,3}"), "null", true, true},
    {"qwen2", SPLIT("\\\\p{N}"), "{\"type\":\"NFC\"}", false, false},
    {"smollm",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}"
     "," BYTES("true") "]}",
     "null", false, false},
    /* what llama.cpp does with a file whose converter did not know the model */
    {"default",
     "{\"type\":\"Sequence\",\"pretokenizers\":[" ISOLATE("[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+")
         ISOLATE("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "
                 "?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)") ISOLATE("\\\\p{N}+")
             ISOLATE("[0-9][0-9][0-9]") BYTES("false") "]}",
     "null", false, false},
};

static bool is_text(const ls_gguf *g, const char *key, const char *want) {
    const ls_gguf_value *v = ls_gguf_find(g, key);
    ls_gguf_str s;
    return v && ls_gguf_as_string(v, &s) && ls_gguf_str_is(s, want);
}

static const struct chain *find_chain(const ls_gguf *g) {
    if (!ls_gguf_find(g, KEY("tokens")))
        return NULL;
    if (is_text(g, KEY("model"), "llama"))
        return &spm;
    if (!is_text(g, KEY("model"), "gpt2"))
        return NULL;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        if (is_text(g, KEY("pre"), chains[i].pre))
            return &chains[i];
    return NULL;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* A tokenizer.json is put together in `root`, whose parts it owns. */
typedef struct maker {
    const ls_gguf *g;
    const struct chain *chain;
    bool space;                                    /* a text begins with one (SentencePiece) */
    float *score;                                  /* by id, of a SentencePiece model; owned */
    json_t *root, *model, *vocab, *merges, *added; /* borrowed from root but root itself */
    ls_err *err;
} maker;

static ls_status fail(const maker *m, const char *key, const char *reason, long long i) {
    return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err, "entry %lld: %s", i, reason);
}

static ls_status no_memory(const maker *m) {
    return ls_fail(m->err, LS_ERR_MEMORY, "out of memory: the tokenizer of %s", ls_gguf_name(m->g));
}

static ls_status find_list(const maker *m, const char *key, const ls_gguf_value **out) {
    *out = ls_gguf_find(m->g, key);
    if (!*out || (*out)->type != LS_GGUF_ARRAY)
        return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err,
                            "is %s; convert the model again", *out ? "no array" : "missing");
    return LS_OK;
}

/* Item as JSON text; NULL when it is no string, empty, or no UTF-8 without zero bytes. */
static json_t *text_of(const ls_gguf_value *item) {
    ls_gguf_str s;
    if (!ls_gguf_as_string(item, &s) || s.n == 0 || memchr(s.s, 0, s.n))
        return NULL;
    return json_stringn(s.s, s.n);
}

static ls_status add_token(const maker *m, int64_t id, int64_t type, json_t *text) {
    const bool spm_model = m->chain == &spm;
    if (type == TOKEN_NORMAL || (type == TOKEN_BYTE && spm_model)) {
        if (json_object_get(m->vocab, json_string_value(text)))
            return fail(m, KEY("tokens"), "the token stands twice", id);
        if (json_object_set_new(m->vocab, json_string_value(text), json_integer(id)) != 0)
            return no_memory(m);
        return LS_OK;
    }
    if (type == TOKEN_UNUSED)
        return LS_OK;
    if (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN && type != TOKEN_USER)
        return fail(m, KEY("token_type"),
                    spm_model ? "this type is unknown"
                              : "this type has no meaning in a byte-level BPE",
                    id);
    if (spm_model && type == TOKEN_UNKNOWN && json_object_get(m->model, "unk_token") == NULL &&
        json_object_set(m->model, "unk_token", text) != 0)
        return no_memory(m);
    /* the user's runs of spaces are those of U+2581 as well, which the normalizer makes the same */
    const int bars_too = spm_model && !m->space && strchr(json_string_value(text), ' ') != NULL;
    json_t *entry = json_pack("{s:I, s:O, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                              "content", text, "special", type != TOKEN_USER, "normalized",
                              bars_too, "lstrip", 0, "rstrip", 0, "single_word", 0);
    return entry && json_array_append_new(m->added, entry) == 0 ? LS_OK : no_memory(m);
}

static ls_status add_tokens(const maker *m) {
    const ls_gguf_value *tokens = NULL, *types = NULL;
    ls_gguf_value token, type;
    size_t at = 0, at_type = 0;
    LS_TRY(find_list(m, KEY("tokens"), &tokens));
    LS_TRY(find_list(m, KEY("token_type"), &types));
    if (tokens->n != types->n)
        return ls_gguf_fail(m->g, (ls_gguf_str){KEY("token_type"), strlen(KEY("token_type"))},
                            m->err, "has %llu entries for %llu tokens; convert the model again",
                            (unsigned long long)types->n, (unsigned long long)tokens->n);
    for (int64_t id = 0; ls_gguf_next(tokens, &at, &token); id++) {
        int64_t kind = 0;
        if (!ls_gguf_next(types, &at_type, &type) || !ls_gguf_as_int(&type, &kind))
            return fail(m, KEY("token_type"), "is no whole number", id);
        json_t *text = text_of(&token);
        if (!text)
            return fail(m, KEY("tokens"), "is no text in UTF-8", id);
        ls_status s = add_token(m, id, kind, text);
        json_decref(text);
        LS_TRY(s);
    }
    return LS_OK;
}

static ls_status add_merges(const maker *m) {
    const ls_gguf_value *merges = NULL;
    ls_gguf_value item;
    size_t at = 0;
    LS_TRY(find_list(m, KEY("merges"), &merges));
    for (int64_t i = 0; ls_gguf_next(merges, &at, &item); i++) {
        json_t *text = text_of(&item);
        if (!text)
            return fail(m, KEY("merges"), "is no text in UTF-8", i);
        if (json_array_append_new(m->merges, text) != 0)
            return no_memory(m);
    }
    return LS_OK;
}

/* One for each token. */
static ls_status read_scores(maker *m) {
    const ls_gguf_value *scores = NULL, *tokens = NULL;
    ls_gguf_value item;
    size_t at = 0;
    LS_TRY(find_list(m, KEY("scores"), &scores));
    LS_TRY(find_list(m, KEY("tokens"), &tokens));
    if (scores->n != tokens->n)
        return ls_gguf_fail(m->g, (ls_gguf_str){KEY("scores"), strlen(KEY("scores"))}, m->err,
                            "has %llu entries for %llu tokens; convert the model again",
                            (unsigned long long)scores->n, (unsigned long long)tokens->n);
    m->score = malloc(((size_t)scores->n + 1) * sizeof *m->score);
    if (!m->score)
        return no_memory(m);
    for (int64_t i = 0; ls_gguf_next(scores, &at, &item); i++) {
        double v = 0;
        if (!ls_gguf_as_number(&item, &v) || !isfinite(v))
            return fail(m, KEY("scores"), "is no number", i);
        m->score[i] = (float)v;
    }
    return LS_OK;
}

/* ---- what is put around a text --------------------------------------------------------------- */

static ls_status read_flag(const maker *m, const char *key, bool fallback, bool *out) {
    const ls_gguf_value *v = ls_gguf_find(m->g, key);
    *out = fallback;
    if (v && !ls_gguf_as_bool(v, out))
        return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err, "is no bool");
    return LS_OK;
}

/* The token that the key names, as {"SpecialToken"} at the end of `single`. */
static ls_status add_around(const maker *m, const char *key, json_t *single, json_t *specials) {
    const ls_gguf_value *v = ls_gguf_find(m->g, key), *tokens = ls_gguf_find(m->g, KEY("tokens"));
    int64_t id = 0;
    if (!v || !ls_gguf_as_int(v, &id) || id < 0)
        return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err,
                            "is missing, though it goes around every text");
    ls_gguf_value item;
    size_t at = 0;
    for (int64_t i = 0; i <= id; i++)
        if (!ls_gguf_next(tokens, &at, &item))
            return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err,
                                "is %lld, which no token has", (long long)id);
    json_t *text = text_of(&item);
    if (!text)
        return fail(m, KEY("tokens"), "is no text in UTF-8", id);
    const char *name = json_string_value(text);
    const int failed = json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "SpecialToken",
                                                               "id", name, "type_id", 0)) |
                       json_object_set_new(specials, name,
                                           json_pack("{s:s, s:[I], s:[s]}", "id", name, "ids",
                                                     (json_int_t)id, "tokens", name));
    json_decref(text);
    return failed ? no_memory(m) : LS_OK;
}

static ls_status add_template(const maker *m) {
    bool bos = false, eos = false;
    LS_TRY(read_flag(m, KEY("add_bos_token"), m->chain->bos, &bos));
    LS_TRY(read_flag(m, KEY("add_eos_token"), false, &eos));
    if (!bos && !eos)
        return LS_OK;
    json_t *single = json_array(), *specials = json_object();
    json_t *post = json_pack("{s:s, s:o, s:[], s:o}", "type", "TemplateProcessing", "single",
                             single, "pair", "special_tokens", specials);
    if (!post || json_object_set_new(m->root, "post_processor", post) != 0)
        return no_memory(m);
    if (bos)
        LS_TRY(add_around(m, KEY("bos_token_id"), single, specials));
    if (json_array_append_new(
            single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0)) != 0)
        return no_memory(m);
    return eos ? add_around(m, KEY("eos_token_id"), single, specials) : LS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static json_t *part(const char *text) {
    return json_loads(text, JSON_DECODE_ANY, NULL);
}

/* The parts around the model: of SentencePiece, by whether a text begins with a space. */
static ls_status add_parts(const maker *m) {
    static const char extra_key[] = KEY("remove_extra_whitespaces");
    const bool scored = m->chain == &spm;
    bool extra = false;
    if (scored)
        LS_TRY(read_flag(m, extra_key, false, &extra));
    if (extra)
        return ls_gguf_fail(m->g, (ls_gguf_str){extra_key, strlen(extra_key)}, m->err,
                            "is true, which is not supported (only absent or false)");
    const char *normalizer = !scored ? m->chain->normalizer : m->space ? space_and_bars : bars;
    const char *decoder = !scored ? BYTES("true") : m->space ? from_space_and_bars : from_bars;
    const int failed =
        json_object_set_new(m->root, "normalizer", part(normalizer)) |
        json_object_set_new(m->root, "pre_tokenizer", part(m->chain->splitter)) |
        json_object_set_new(m->root, "decoder", part(decoder)) |
        json_object_set_new(m->model, "byte_fallback", json_boolean(scored)) |
        json_object_set_new(m->model, "fuse_unk", json_boolean(scored)) |
        json_object_set_new(m->model, "ignore_merges", json_boolean(m->chain->ignore_merges));
    return failed ? no_memory(m) : LS_OK;
}

static ls_status fill(maker *m) {
    m->vocab = json_object();
    m->merges = json_array();
    m->added = json_array();
    m->model = json_pack("{s:s, s:o, s:o}", "type", "BPE", "vocab", m->vocab, "merges", m->merges);
    m->root =
        json_pack("{s:s, s:o, s:o}", "version", "1.0", "model", m->model, "added_tokens", m->added);
    if (!m->root)
        return no_memory(m);
    if (m->chain == &spm)
        LS_TRY(read_flag(m, KEY("add_space_prefix"), true, &m->space));
    LS_TRY(add_tokens(m));
    LS_TRY(m->chain == &spm ? read_scores(m) : add_merges(m));
    LS_TRY(add_parts(m));
    return add_template(m);
}

ls_status ls_gguf_tokenizer_open(const ls_gguf *g, const ls_tokenizer_options *options,
                                 ls_tokenizer **out, ls_err *err) {
    maker m = {.g = g, .chain = find_chain(g), .err = err};
    *out = NULL;
    if (!m.chain)
        return LS_OK;
    ls_status s = fill(&m);
    if (s == LS_OK) {
        const ls_json doc = {m.root, (char *)(uintptr_t)ls_gguf_name(g)};
        s = ls_tokenizer_build(&doc, m.score, options, out, err);
    }
    json_decref(m.root);
    free(m.score);
    return s;
}

static void name_of(const ls_gguf *g, const char *key, char *dst, size_t cap) {
    const ls_gguf_value *v = ls_gguf_find(g, key);
    ls_gguf_str s;
    if (v && ls_gguf_as_string(v, &s))
        ls_err_text(dst, cap, s.s, s.n);
    else
        snprintf(dst, cap, "none");
}

ls_status ls_gguf_tokenizer_refuse(const ls_gguf *g, ls_err *err) {
    char model[80], pre[80];
    if (!ls_gguf_find(g, KEY("tokens")))
        return ls_gguf_fail(
            g, (ls_gguf_str){KEY("tokens"), strlen(KEY("tokens"))}, err,
            "is missing: the file has no tokenizer, and text cannot be read or shown; "
            "convert the model again, or give token ids in a script (lockstep run)");
    name_of(g, KEY("model"), model, sizeof model);
    name_of(g, KEY("pre"), pre, sizeof pre);
    return ls_gguf_fail(
        g, (ls_gguf_str){KEY("model"), strlen(KEY("model"))}, err,
        "the tokenizer \"%s\" with pre type \"%s\" is not supported (only llama, and "
        "gpt2 with gpt-2, llama-bpe, qwen2, smollm or default)",
        model, pre);
}
