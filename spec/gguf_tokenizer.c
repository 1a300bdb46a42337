#include "gguf_tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* Types of tokens, as the format numbers them. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED };

/* ---- chains ---------------------------------------------------------------------------------- */

#define BYTES(regex)                                                                  \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_" \
    "regex\":" regex "}"
#define SPLIT(digits)                                                                          \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"    \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits           \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}," \
    "\"behavior\":\"Isolated\",\"invert\":false}," BYTES("false") "]}"

static const struct chain {
    const char *pre, *splitter, *normalizer;
    bool ignore_merges, bos;
} chains[] = {
    {"gpt-2", BYTES("true"), "null", false, false},
    {"gpt2", BYTES("true"), "null", false, false},
    {"llama-bpe", SPLIT("\\\\p{N}{1,3}"), "null", true, true},
    {"qwen2", SPLIT("\\\\p{N}"), "{\"type\":\"NFC\"}", false, false},
    {"smollm",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}"
     "," BYTES("true") "]}",
     "null", false, false},
};

static bool is_text(const ls_gguf *g, const char *key, const char *want) {
    const ls_gguf_value *v = ls_gguf_find(g, key);
    ls_gguf_str s;
    return v && ls_gguf_as_string(v, &s) && ls_gguf_str_is(s, want);
}

static const struct chain *find_chain(const ls_gguf *g) {
    if (!is_text(g, KEY("model"), "gpt2") || !ls_gguf_find(g, KEY("tokens")))
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
    json_t *root, *vocab, *merges, *added; /* borrowed from root but root itself */
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
    if (type == TOKEN_NORMAL) {
        if (json_object_get(m->vocab, json_string_value(text)))
            return fail(m, KEY("tokens"), "the token stands twice", id);
        if (json_object_set_new(m->vocab, json_string_value(text), json_integer(id)) != 0)
            return no_memory(m);
        return LS_OK;
    }
    if (type == TOKEN_UNUSED)
        return LS_OK;
    if (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN && type != TOKEN_USER)
        return fail(m, KEY("token_type"), "this type has no meaning in a byte-level BPE", id);
    json_t *entry = json_pack("{s:I, s:O, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                              "content", text, "special", type != TOKEN_USER, "normalized", 0,
                              "lstrip", 0, "rstrip", 0, "single_word", 0);
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

/* ---- what is put before a text --------------------------------------------------------------- */

static ls_status read_flag(const maker *m, const char *key, bool fallback, bool *out) {
    const ls_gguf_value *v = ls_gguf_find(m->g, key);
    *out = fallback;
    if (v && !ls_gguf_as_bool(v, out))
        return ls_gguf_fail(m->g, (ls_gguf_str){key, strlen(key)}, m->err, "is no bool");
    return LS_OK;
}

static ls_status add_template(const maker *m, const struct chain *c) {
    static const char end_key[] = KEY("add_eos_token"), bos_key[] = KEY("bos_token_id");
    bool bos = false, eos = false;
    int64_t id = 0;
    LS_TRY(read_flag(m, end_key, false, &eos));
    LS_TRY(read_flag(m, KEY("add_bos_token"), c->bos, &bos));
    if (eos)
        return ls_gguf_fail(
            m->g, (ls_gguf_str){end_key, strlen(end_key)}, m->err,
            "an end id behind every prompt is not supported (only absent or false)");
    if (!bos)
        return LS_OK;
    const ls_gguf_value *v = ls_gguf_find(m->g, bos_key),
                        *tokens = ls_gguf_find(m->g, KEY("tokens"));
    if (!v || !ls_gguf_as_int(v, &id) || id < 0)
        return ls_gguf_fail(m->g, (ls_gguf_str){bos_key, strlen(bos_key)}, m->err,
                            "is missing, though it goes before every text");
    ls_gguf_value item;
    size_t at = 0;
    for (int64_t i = 0; i <= id; i++)
        if (!ls_gguf_next(tokens, &at, &item))
            return ls_gguf_fail(m->g, (ls_gguf_str){bos_key, strlen(bos_key)}, m->err,
                                "is %lld, which no token has", (long long)id);
    json_t *text = text_of(&item);
    const char *name = json_string_value(text);
    json_t *post =
        json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[I], s:[s]}}}",
                  "type", "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id", 0,
                  "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens", name, "id", name,
                  "ids", (json_int_t)id, "tokens", name);
    json_decref(text);
    return post && json_object_set_new(m->root, "post_processor", post) == 0 ? LS_OK : no_memory(m);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static json_t *part(const char *text) {
    return json_loads(text, JSON_DECODE_ANY, NULL);
}

static ls_status fill(maker *m, const struct chain *c) {
    m->vocab = json_object();
    m->merges = json_array();
    m->added = json_array();
    m->root = json_pack("{s:s, s:{s:s, s:b, s:o, s:o}, s:o, s:o, s:o, s:n, s:o}", "version", "1.0",
                        "model", "type", "BPE", "ignore_merges", c->ignore_merges, "vocab",
                        m->vocab, "merges", m->merges, "added_tokens", m->added, "normalizer",
                        part(c->normalizer), "pre_tokenizer", part(c->splitter), "post_processor",
                        "decoder", part(BYTES("true")));
    if (!m->root)
        return no_memory(m);
    LS_TRY(add_tokens(m));
    LS_TRY(add_merges(m));
    return add_template(m, c);
}

ls_status ls_gguf_tokenizer_open(const ls_gguf *g, const ls_tokenizer_options *options,
                                 ls_tokenizer **out, ls_err *err) {
    const struct chain *c = find_chain(g);
    maker m = {.g = g, .err = err};
    if (!c) {
        *out = NULL;
        return LS_OK;
    }
    ls_status s = fill(&m, c);
    char *text = s == LS_OK ? json_dumps(m.root, JSON_COMPACT) : NULL;
    json_decref(m.root);
    if (s == LS_OK)
        s = text ? ls_tokenizer_parse(text, strlen(text), ls_gguf_name(g), options, out, err)
                 : no_memory(&m);
    free(text);
    return s;
}
