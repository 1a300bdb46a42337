/* tokenizer_parts.c - the components around the model: splitters, template, and the checks of
 * all. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

/* GPT-2's splitter, which ByteLevel carries inside. */
static const char byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

ls_status ls_tok_type_of(const ls_json_at *at, const char **type, ls_err *err) {
    LS_TRY(ls_json_as_object(at, err));
    return ls_json_string(at, "type", type, err);
}

ls_status ls_tok_unknown(const ls_json_at *at, const char *what, const char *type, ls_err *err) {
    char shown[80];
    return ls_json_fail(at, err, "the %s \"%s\" is not supported", what,
                        ls_err_text(shown, sizeof shown, type, strlen(type)));
}

ls_status ls_tok_read_mark(const ls_json_at *at, const char *key, ls_tok_mark *out, ls_err *err) {
    ls_json_at text = ls_json_key(at, key);
    const char *s = NULL;
    size_t n = 0;
    LS_TRY(ls_json_as_string(&text, &s, &n, err));
    if (n == 0 || ls_utf8_next((const uint8_t *)s, n).len != n)
        return ls_json_fail(&text, err, "is not one character");
    memcpy(out->s, s, n);
    out->n = (uint8_t)n;
    return LS_OK;
}

/* ---- splitters ------------------------------------------------------------------------------- */

static char *path_of(const ls_json_at *at) {
    char path[256];
    ls_json_path(at, path, sizeof path);
    char *p = malloc(strlen(path) + 1);
    return p ? strcpy(p, path) : NULL;
}

static ls_status add_split(ls_tokenizer *tok, const ls_json_at *at, const char *pattern, size_t n,
                           bool literal, ls_tok_split split, ls_err *err) {
    if (tok->n_splits == LS_TOK_SPLITS_MAX)
        return ls_json_fail(at, err, "more than %d splitters", LS_TOK_SPLITS_MAX);
    if (pattern)
        LS_TRY(ls_tok_regex(at, pattern, n, literal, &split.regex, err));
    split.where = path_of(at);
    tok->split[tok->n_splits++] = split; /* owned by tok from here on */
    return split.where ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "out of memory");
}

static ls_status read_behavior(const ls_json_at *at, ls_tok_behavior *out, ls_err *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    LS_TRY(ls_json_string(at, "behavior", &name, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (ls_tok_behavior)i;
            return LS_OK;
        }
    ls_json_at where = ls_json_key(at, "behavior");
    return ls_tok_unknown(&where, "behavior", name, err);
}

static ls_status load_split(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "pattern", "behavior", "invert");
    ls_tok_split split = {0};
    LS_TRY(read_behavior(at, &split.behavior, err));
    LS_TRY(ls_json_bool_or(at, "invert", false, &split.invert, err));
    ls_json_at pattern = ls_json_key(at, "pattern");
    LS_TRY(ls_json_as_object(&pattern, err));
    static const char *const kinds[] = {"Regex", "String"};
    LS_TRY(ls_json_only(&pattern, kinds, 2, err));
    ls_json_at regex = ls_json_key(&pattern, "Regex"), literal = ls_json_key(&pattern, "String");
    if (!!regex.value == !!literal.value)
        return ls_json_fail(&pattern, err, "needs either \"Regex\" or \"String\"");
    const ls_json_at *text = regex.value ? &regex : &literal;
    const char *s = NULL;
    size_t n = 0;
    LS_TRY(ls_json_as_string(text, &s, &n, err));
    return add_split(tok, text, s, n, text == &literal, split, err);
}

static ls_status load_digits(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "individual_digits");
    bool single = false;
    LS_TRY(ls_json_bool_or(at, "individual_digits", false, &single, err));
    ls_tok_split split = {.behavior = single ? LS_TOK_ISOLATED : LS_TOK_CONTIGUOUS};
    static const char pattern[] = "\\p{N}";
    return add_split(tok, at, pattern, sizeof pattern - 1, false, split, err);
}

static ls_status load_byte_level(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "add_prefix_space", "trim_offsets", "use_regex");
    ls_tok_split split = {.behavior = LS_TOK_ISOLATED};
    bool use_regex = true, trim = true; /* offsets are not reported */
    LS_TRY(ls_json_bool_or(at, "add_prefix_space", true, &split.prefix_space, err));
    LS_TRY(ls_json_bool_or(at, "use_regex", true, &use_regex, err));
    LS_TRY(ls_json_bool_or(at, "trim_offsets", true, &trim, err));
    if (!use_regex && !split.prefix_space)
        return LS_OK;
    return add_split(tok, at, use_regex ? byte_level_pattern : NULL, sizeof byte_level_pattern - 1,
                     false, split, err);
}

/* When a mark is put before a piece; old files say so with a flag. */
static ls_status read_prepend(const ls_json_at *at, ls_tok_prepend *out, ls_err *err) {
    static const char *const names[] = {"always", "never", "first"};
    const char *scheme = NULL;
    bool space = true;
    LS_TRY(ls_json_bool_or(at, "add_prefix_space", true, &space, err));
    LS_TRY(ls_json_string_or(at, "prepend_scheme", space ? "always" : "never", &scheme, err));
    ls_json_at where = ls_json_key(at, "prepend_scheme");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(scheme, names[i]) != 0)
            continue;
        *out = (ls_tok_prepend)i;
        if (!space && *out != LS_TOK_NEVER)
            return ls_json_fail(&where, err, "is \"%s\", but add_prefix_space is false", scheme);
        return LS_OK;
    }
    return ls_tok_unknown(&where, "scheme", scheme, err);
}

static ls_status load_metaspace(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep");
    ls_tok_split split = {.behavior = LS_TOK_MERGED_WITH_NEXT};
    bool cut = true;
    LS_TRY(ls_tok_read_mark(at, "replacement", &split.mark, err));
    LS_TRY(read_prepend(at, &split.prepend, err));
    LS_TRY(ls_json_bool_or(at, "split", true, &cut, err));
    return add_split(tok, at, cut ? split.mark.s : NULL, split.mark.n, true, split, err);
}

/* The chain in order. ByteLevel turns text into byte letters, so it has to be the last. */
static ls_status load_splitter(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    const char *type = NULL;
    LS_TRY(ls_tok_type_of(at, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        LS_TOK_ONLY(at, err, "pretokenizers");
        ls_json_at items = ls_json_key(at, "pretokenizers");
        size_t n = 0;
        LS_TRY(ls_json_as_array(&items, &n, err));
        for (size_t i = 0; i < n; i++) {
            ls_json_at item = ls_json_item(&items, i);
            LS_TRY(load_splitter(tok, &item, err));
        }
        return LS_OK;
    }
    if (tok->byte_level)
        return ls_json_fail(at, err,
                            "a splitter behind ByteLevel would see byte letters; not "
                            "supported");
    if (strcmp(type, "Split") == 0)
        return load_split(tok, at, err);
    if (strcmp(type, "Digits") == 0)
        return load_digits(tok, at, err);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(tok, at, err);
    if (strcmp(type, "ByteLevel") == 0) {
        tok->byte_level = true;
        return load_byte_level(tok, at, err);
    }
    return ls_tok_unknown(at, "splitter", type, err);
}

/* ---- template -------------------------------------------------------------------------------- */

/* The ids of a SpecialToken piece, appended before or behind the text. */
static ls_status template_token(ls_tokenizer *tok, const ls_json_at *piece,
                                const ls_json_at *specials, bool behind, ls_err *err) {
    const char *name = NULL;
    LS_TRY(ls_json_as_object(piece, err));
    LS_TRY(ls_json_string(piece, "id", &name, err));
    ls_json_at special = ls_json_key(specials, name);
    LS_TRY(ls_json_as_object(&special, err));
    ls_json_at ids = ls_json_key(&special, "ids");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&ids, &n, err));
    size_t *count = behind ? &tok->n_after : &tok->n_before;
    int32_t *to = behind ? tok->after : tok->before;
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_item(&ids, i);
        int64_t id = 0;
        LS_TRY(ls_json_as_int(&at, 0, tok->size - 1, &id, err));
        if (!(tok->token[id].flags & LS_TOK_THERE))
            return ls_json_fail(&at, err, "no token has the id %lld", (long long)id);
        if (*count == LS_TOK_TEMPLATE_MAX)
            return ls_json_fail(&at, err, "more than %d tokens around a text", LS_TOK_TEMPLATE_MAX);
        to[(*count)++] = (int32_t)id;
    }
    return LS_OK;
}

static ls_status load_template(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "single", "pair", "special_tokens");
    ls_json_at single = ls_json_key(at, "single"), specials = ls_json_key(at, "special_tokens");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&single, &n, err));
    LS_TRY(ls_json_as_object(&specials, err));
    if (tok->n_before > 0 || tok->n_after > 0)
        return ls_json_fail(at, err, "a second template is not supported");
    bool behind = false;
    for (size_t i = 0; i < n; i++) {
        ls_json_at piece = ls_json_item(&single, i);
        LS_TRY(ls_json_as_object(&piece, err));
        static const char *const pieces[] = {"SpecialToken", "Sequence"};
        LS_TRY(ls_json_only(&piece, pieces, 2, err));
        ls_json_at text = ls_json_key(&piece, "Sequence");
        ls_json_at token = ls_json_key(&piece, "SpecialToken");
        if (!!text.value == !!token.value)
            return ls_json_fail(&piece, err, "needs either \"SpecialToken\" or \"Sequence\"");
        if (token.value) {
            LS_TRY(template_token(tok, &token, &specials, behind, err));
            continue;
        }
        const char *id = NULL;
        LS_TRY(ls_json_as_object(&text, err));
        LS_TRY(ls_json_string(&text, "id", &id, err));
        if (behind || strcmp(id, "A") != 0)
            return ls_json_fail(&text, err, "a single text is the sequence \"A\", once");
        behind = true;
    }
    return behind ? LS_OK : ls_json_fail(&single, err, "has no place for the text");
}

static ls_status load_post(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    const char *type = NULL;
    LS_TRY(ls_tok_type_of(at, &type, err));
    if (strcmp(type, "TemplateProcessing") == 0)
        return load_template(tok, at, err);
    if (strcmp(type, "ByteLevel") == 0) { /* trims offsets, which are not reported */
        LS_TOK_ONLY(at, err, "add_prefix_space", "trim_offsets", "use_regex");
        return LS_OK;
    }
    if (strcmp(type, "Sequence") == 0) {
        LS_TOK_ONLY(at, err, "processors");
        ls_json_at items = ls_json_key(at, "processors");
        size_t n = 0;
        LS_TRY(ls_json_as_array(&items, &n, err));
        for (size_t i = 0; i < n; i++) {
            ls_json_at item = ls_json_item(&items, i);
            LS_TRY(load_post(tok, &item, err));
        }
        return LS_OK;
    }
    return ls_tok_unknown(at, "post-processor", type, err);
}

ls_status ls_tok_load_post(ls_tokenizer *tok, const ls_json_at *root, ls_err *err) {
    ls_json_at at = ls_json_key(root, "post_processor");
    return ls_json_none(&at) ? LS_OK : load_post(tok, &at, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* A text field that has to be absent, null or empty. */
static ls_status no_text(const ls_json_at *model, const char *key, ls_err *err) {
    const char *text = NULL;
    ls_json_at at = ls_json_key(model, key);
    LS_TRY(ls_json_string_or(model, key, "", &text, err));
    return *text ? ls_json_fail(&at, err, "is not supported (only null)") : LS_OK;
}

ls_status ls_tok_check_model(ls_tokenizer *tok, const ls_json_at *model, bool partial_bytes,
                             ls_err *err) {
    const char *type = NULL;
    ls_json_at at = ls_json_key(model, "type");
    LS_TRY(ls_json_as_object(model, err));
    LS_TRY(ls_json_string_or(model, "type", "BPE", &type, err)); /* old files have none */
    if (strcmp(type, "BPE") != 0)
        return ls_tok_unknown(&at, "model", type, err);
    LS_TOK_ONLY(model, err, "dropout", "unk_token", "continuing_subword_prefix",
                "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                "merges");
    double dropout = 0;
    LS_TRY(ls_json_number_or(model, "dropout", 0, 1, 0, &dropout, err));
    LS_TRY(ls_json_bool_or(model, "byte_fallback", false, &tok->byte_fallback, err));
    LS_TRY(ls_json_bool_or(model, "fuse_unk", false, &tok->fuse_unk, err));
    LS_TRY(ls_json_bool_or(model, "ignore_merges", false, &tok->ignore_merges, err));
    LS_TRY(no_text(model, "continuing_subword_prefix", err));
    LS_TRY(no_text(model, "end_of_word_suffix", err));
    /* an unk token is never needed where every byte has a token, which loading then demands */
    if (partial_bytes)
        LS_TRY(no_text(model, "unk_token", err));
    at = ls_json_key(model, "dropout");
    if (dropout != 0)
        return ls_json_fail(&at, err, "ids would be random; only null is supported");
    at = ls_json_key(model, "byte_fallback");
    return tok->byte_level && tok->byte_fallback
               ? ls_json_fail(&at, err, "is not supported with ByteLevel (only false)")
               : LS_OK;
}

ls_status ls_tok_load_parts(ls_tokenizer *tok, const ls_json_at *root, ls_err *err) {
    ls_json_at at = ls_json_key(root, "normalizer");
    if (!ls_json_none(&at))
        LS_TRY(ls_tok_load_normal(tok, &at, err));
    at = ls_json_key(root, "pre_tokenizer");
    if (!ls_json_none(&at))
        LS_TRY(load_splitter(tok, &at, err));
    at = ls_json_key(root, "decoder");
    if (ls_json_none(&at)) /* the reference would put spaces between all tokens */
        return ls_json_fail(&at, err, "is missing; %s is supported",
                            tok->byte_level ? "ByteLevel" : "Metaspace, or Replace and others,");
    return ls_tok_load_decoder(tok, &at, err);
}

static void free_replaces(ls_tok_replace *r, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(r[i].from);
        free(r[i].to);
    }
}

void ls_tok_free_parts(ls_tokenizer *tok) {
    free_replaces(tok->normal, tok->n_normal);
    free_replaces(tok->decoder.replace, tok->decoder.n_replace);
    for (size_t i = 0; i < tok->n_splits; i++) {
        ls_tok_regex_free(tok->split[i].regex);
        free(tok->split[i].where);
    }
    tok->n_splits = 0;
}
