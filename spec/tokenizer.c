/* tokenizer.c - opening, questions, and the way of a text (tokenizer_impl.h draws it). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "tokenizer_build.h"
#include "tokenizer_impl.h"
#include "utf8.h"

#define TOKENIZER_BYTES_MAX ((size_t)256 << 20)

/* ---- growing arrays -------------------------------------------------------------------------- */

ls_status ls_tok_grow(void **p, size_t *cap, size_t n, size_t elem, ls_err *err) {
    if (n <= *cap)
        return LS_OK;
    size_t want = *cap < 16 ? 16 : *cap, bytes = 0;
    while (want < n && want <= SIZE_MAX / 2)
        want *= 2;
    void *grown =
        want < n || __builtin_mul_overflow(want, elem, &bytes) ? NULL : realloc(*p, bytes);
    if (!grown)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %zu items of %zu bytes", n, elem);
    *p = grown;
    *cap = want;
    return LS_OK;
}

ls_status ls_ids_push(ls_ids *ids, int32_t id, ls_err *err) {
    LS_TRY(ls_tok_grow((void **)&ids->id, &ids->cap, ids->n + 1, sizeof *ids->id, err));
    ids->id[ids->n++] = id;
    return LS_OK;
}

void ls_ids_free(ls_ids *ids) {
    if (!ids)
        return;
    free(ids->id);
    *ids = (ls_ids){0};
}

ls_status ls_text_append(ls_text *text, const char *s, size_t n, ls_err *err) {
    if (n >= SIZE_MAX - text->n)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: a text of %zu bytes", n);
    LS_TRY(ls_tok_grow((void **)&text->s, &text->cap, text->n + n + 1, 1, err));
    if (n > 0)
        memcpy(text->s + text->n, s, n);
    text->n += n;
    text->s[text->n] = 0;
    return LS_OK;
}

void ls_text_free(ls_text *text) {
    if (!text)
        return;
    free(text->s);
    *text = (ls_text){0};
}

/* ---- opening --------------------------------------------------------------------------------- */

static ls_status load(ls_tokenizer *tok, const ls_json_at *root, const float *score, bool partial,
                      ls_err *err) {
    static const char *const known[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder",    "model"};
    LS_TRY(ls_json_only(root, known, sizeof known / sizeof *known, err));
    /* truncation and padding are a caller's settings that were saved along; a text is never cut */
    const char *version = NULL;
    ls_json_at at = ls_json_key(root, "version");
    LS_TRY(ls_json_string_or(root, "version", "1.0", &version, err));
    if (strcmp(version, "1.0") != 0)
        return ls_json_fail(&at, err, "only version 1.0 is supported");
    ls_json_at model = ls_json_key(root, "model");
    LS_TRY(ls_tok_load_parts(tok, root, err));
    LS_TRY(ls_tok_check_model(tok, &model, partial, err));
    LS_TRY(ls_tok_load_vocab(tok, root, partial, err));
    LS_TRY(score ? ls_tok_load_scores(tok, score, err) : ls_tok_load_merges(tok, &model, err));
    LS_TRY(ls_tok_load_post(tok, root, err));
    LS_TRY(ls_tok_load_bytes(tok, err));
    return ls_tok_load_tries(tok, err);
}

ls_status ls_tokenizer_build(const ls_json *doc, const float *score,
                             const ls_tokenizer_options *options, ls_tokenizer **out, ls_err *err) {
    ls_tokenizer *tok = calloc(1, sizeof *tok);
    ls_status s = LS_OK;
    if (!tok || !(tok->name = malloc(strlen(doc->name) + 1))) {
        s = ls_fail(err, LS_ERR_MEMORY, "out of memory while reading a tokenizer");
    } else {
        strcpy(tok->name, doc->name);
        ls_json_at root = ls_json_root(doc);
        s = load(tok, &root, score, options && options->partial_bytes, err);
    }
    if (s != LS_OK) {
        ls_tokenizer_destroy(tok);
        return s;
    }
    *out = tok;
    return LS_OK;
}

ls_status ls_tokenizer_parse(const char *json, size_t n, const char *name,
                             const ls_tokenizer_options *options, ls_tokenizer **out, ls_err *err) {
    if (n > TOKENIZER_BYTES_MAX)
        return ls_fail(err, LS_ERR_INPUT, "a tokenizer of %zu bytes, at most %zu are read", n,
                       TOKENIZER_BYTES_MAX);
    ls_json doc = {0};
    LS_TRY(ls_json_parse(json, n, name, &doc, err));
    ls_status s = ls_tokenizer_build(&doc, NULL, options, out, err);
    ls_json_free(&doc);
    return s;
}

ls_status ls_tokenizer_open(const char *dir, const ls_tokenizer_options *options,
                            ls_tokenizer **out, ls_err *err) {
    char *path = NULL, *text = NULL;
    size_t n = 0;
    LS_TRY(ls_file_join(dir, "tokenizer.json", &path, err));
    ls_status s = ls_file_read(path, dir, TOKENIZER_BYTES_MAX, &text, &n, err);
    if (s == LS_OK)
        s = ls_tokenizer_parse(text, n, path, options, out, err);
    free(text);
    free(path);
    return s;
}

void ls_tokenizer_destroy(ls_tokenizer *tok) {
    if (!tok)
        return;
    ls_tok_free_parts(tok);
    free(tok->raw.node);
    free(tok->norm.node);
    free(tok->added);
    free(tok->join);
    free(tok->merge);
    free(tok->slot);
    free(tok->byte);
    free(tok->spell);
    free(tok->token);
    free(tok->name);
    free(tok);
}

/* ---- added tokens in a text ------------------------------------------------------------------ */

static uint32_t char_before(const uint8_t *s, size_t at, size_t *begin) {
    size_t i = at - 1;
    while (i > 0 && (s[i] & 0xC0) == 0x80)
        i--;
    *begin = i;
    return ls_utf8_next(s + i, at - i).cp;
}

/* May an added token with these edges stand at [begin, end)? */
static bool stands_alone(const uint8_t *s, size_t n, size_t begin, size_t end) {
    size_t at;
    return !(begin > 0 && ls_tok_is_word(char_before(s, begin, &at))) &&
           !(end < n && ls_tok_is_word(ls_utf8_next(s + end, n - end).cp));
}

typedef struct pass {
    ls_tok_work *work;
    const uint8_t *text; /* all of it, in which the spans count */
    const ls_tok_span *plain;
    size_t n_plain;
} pass;

typedef struct stretch { /* of the text: raw, or normalized */
    const uint8_t *s;
    size_t n;
    bool first; /* it begins where the text begins */
} stretch;

/* Splits x at the trie's tokens and hands what lies between to `between`. */
static ls_status encode_around(const pass *p, const ls_tok_trie *trie, stretch x,
                               const ls_tok_span *plain, size_t n_plain,
                               ls_status (*between)(const pass *, stretch, ls_err *), ls_err *err) {
    const ls_tokenizer *tok = p->work->tok;
    const uint8_t *s = x.s;
    const size_t n = x.n;
    size_t done = 0, from = 0, begin = 0, end = 0;
    int32_t hit;
    while ((hit = ls_tok_find_added(tok, trie, s, n, from, plain, n_plain, &begin, &end)) >= 0) {
        const ls_tok_added *a = &tok->added[hit];
        from = end; /* a match that may not stand is passed over whole, as in the reference */
        if (a->single_word && !stands_alone(s, n, begin, end))
            continue;
        for (size_t at; a->lstrip && begin > done && ls_tok_is_space(char_before(s, begin, &at));)
            begin = at;
        while (a->rstrip && end < n) {
            ls_utf8_step c = ls_utf8_next(s + end, n - end);
            if (!ls_tok_is_space(c.cp))
                break;
            end += c.len;
        }
        if (begin > done)
            LS_TRY(between(p, (stretch){s + done, begin - done, x.first && done == 0}, err));
        LS_TRY(ls_ids_push(p->work->out, a->id, err));
        done = end;
    }
    return done < n ? between(p, (stretch){s + done, n - done, x.first && done == 0}, err) : LS_OK;
}

static ls_status encode_plain(const pass *p, stretch x, ls_err *err) {
    return ls_tok_split_text(p->work, x.s, x.n, x.first, err);
}

/* Normalizing moves bytes, so that one plain byte here makes the whole stretch plain. */
static ls_status encode_normalized(const pass *p, stretch x, ls_err *err) {
    const ls_tokenizer *tok = p->work->tok;
    const size_t at = (size_t)(x.s - p->text);
    bool plain = false;
    for (size_t i = 0; i < p->n_plain; i++)
        plain |= at < p->plain[i].end && at + x.n > p->plain[i].begin;
    ls_tok_normal t = {.s = x.s, .n = x.n};
    ls_status st = ls_tok_normalize(tok, &t, err);
    const ls_tok_span all = {0, t.n};
    if (st == LS_OK)
        st = encode_around(p, &tok->norm, (stretch){t.s, t.n, x.first}, &all, plain, encode_plain,
                           err);
    ls_tok_normal_free(&t);
    return st;
}

/* ---- encode ---------------------------------------------------------------------------------- */

/* Appends s, each maximal part that is not UTF-8 as U+FFFD. */
static ls_status sanitize(const uint8_t *s, size_t n, ls_text *out, size_t *n_replaced,
                          ls_err *err) {
    LS_TRY(ls_text_append(out, "", 0, err));
    for (size_t i = 0; i < n;) {
        size_t ok = ls_utf8_valid(s + i, n - i);
        LS_TRY(ls_text_append(out, (const char *)s + i, ok, err));
        i += ok;
        if (i < n) {
            i += ls_utf8_next(s + i, n - i).len;
            LS_TRY(ls_text_append(out, LS_UTF8_REPLACEMENT, 3, err));
            ++*n_replaced;
        }
    }
    return LS_OK;
}

static ls_status push_all(ls_ids *out, const int32_t *id, size_t n, ls_err *err) {
    for (size_t i = 0; i < n; i++)
        LS_TRY(ls_ids_push(out, id[i], err));
    return LS_OK;
}

static ls_status encode(const pass *p, size_t n, unsigned flags, ls_encode_info *info,
                        ls_err *err) {
    ls_tok_work *w = p->work;
    const ls_tokenizer *tok = w->tok;
    bool template = (flags & LS_ENCODE_TEMPLATE) != 0;
    if (template)
        LS_TRY(push_all(w->out, tok->before, tok->n_before, err));
    size_t text_at = w->out->n;
    LS_TRY(encode_around(p, &tok->raw, (stretch){p->text, n, true}, p->plain, p->n_plain,
                         encode_normalized, err));
    info->double_bos = template && tok->n_before > 0 && w->out->n > text_at &&
                       w->out->id[text_at] == tok->before[tok->n_before - 1];
    if (template)
        LS_TRY(push_all(w->out, tok->after, tok->n_after, err));
    info->merge_steps = w->steps;
    return LS_OK;
}

/* The parts joined and UTF-8; where the plain ones lie. */
static ls_status join(const ls_encode_part *part, size_t n_part, bool all_plain, ls_text *text,
                      ls_tok_span *span, size_t *n_span, size_t *n_replaced, ls_err *err) {
    for (size_t i = 0; i < n_part; i++) {
        const size_t begin = text->n;
        LS_TRY(sanitize((const uint8_t *)part[i].s, part[i].n, text, n_replaced, err));
        if (part[i].plain || all_plain)
            span[(*n_span)++] = (ls_tok_span){begin, text->n};
    }
    return LS_OK;
}

ls_status ls_tokenizer_encode_parts(const ls_tokenizer *tok, const ls_encode_part *part,
                                    size_t n_part, unsigned flags, ls_ids *out,
                                    ls_encode_info *info, ls_err *err) {
    const bool all_plain = (flags & LS_ENCODE_NO_SPECIAL) != 0;
    ls_encode_info seen = {0};
    ls_text text = {0};
    const size_t was = out->n;
    size_t n_span = 0;
    ls_tok_span one = {0}, *span = n_part > 1 ? calloc(n_part, sizeof *span) : &one;
    if (!span)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %zu parts of a text", n_part);
    ls_status st = LS_OK;
    const uint8_t *s = n_part == 1 ? (const uint8_t *)part->s : NULL;
    size_t n = n_part == 1 ? part->n : 0;
    if (n_part == 1 && ls_utf8_valid(s, n) == n) { /* as it is, without a copy */
        one = (ls_tok_span){0, n};
        n_span = part->plain || all_plain;
    } else {
        st = join(part, n_part, all_plain, &text, span, &n_span, &seen.n_replaced, err);
        s = (const uint8_t *)text.s;
        n = text.n;
    }
    ls_tok_work work = {.tok = tok, .out = out, .plain = n_span > 0};
    const pass p = {&work, s, span, n_span};
    if (st == LS_OK)
        st = encode(&p, n, flags, &seen, err);
    ls_tok_work_free(&work);
    ls_text_free(&text);
    if (span != &one)
        free(span);
    if (st != LS_OK)
        out->n = was;
    else if (info)
        *info = seen;
    return st;
}

ls_status ls_tokenizer_encode(const ls_tokenizer *tok, const char *text, size_t n, unsigned flags,
                              ls_ids *out, ls_encode_info *info, ls_err *err) {
    const ls_encode_part part = {text, n, false};
    return ls_tokenizer_encode_parts(tok, &part, 1, flags, out, info, err);
}

/* ---- questions ------------------------------------------------------------------------------- */

int32_t ls_tokenizer_size(const ls_tokenizer *tok) {
    return tok->size;
}

bool ls_tokenizer_byte_level(const ls_tokenizer *tok) {
    return tok->byte_level;
}

size_t ls_tokenizer_n_tokens(const ls_tokenizer *tok) {
    return tok->n_tokens;
}

size_t ls_tokenizer_n_merges(const ls_tokenizer *tok) {
    return tok->n_merges;
}

const char *ls_tokenizer_warning(const ls_tokenizer *tok) {
    return tok->warning[0] ? tok->warning : NULL;
}

int32_t ls_tokenizer_bos(const ls_tokenizer *tok) {
    return tok->n_before > 0 ? tok->before[0] : -1;
}

int32_t ls_tokenizer_find(const ls_tokenizer *tok, const char *spelling) {
    return ls_tok_lookup(tok, spelling, strlen(spelling));
}

static const ls_tok_entry *entry(const ls_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->size && (tok->token[id].flags & LS_TOK_THERE) ? &tok->token[id]
                                                                              : NULL;
}

const uint8_t *ls_tokenizer_bytes(const ls_tokenizer *tok, int32_t id, size_t *n) {
    const ls_tok_entry *e = entry(tok, id);
    *n = e ? e->byte_n : 0;
    return e ? tok->byte + e->byte_at : NULL;
}

bool ls_tokenizer_is_special(const ls_tokenizer *tok, int32_t id) {
    const ls_tok_entry *e = entry(tok, id);
    return e && (e->flags & LS_TOK_SPECIAL);
}

ls_status ls_tokenizer_digest(const ls_tokenizer *tok, char hex[LS_SHA256_HEX], ls_err *err) {
    ls_sha256 h;
    LS_TRY(ls_sha256_begin(&h, err));
    for (int32_t id = 0; id < tok->size; id++) {
        const ls_tok_entry *e = entry(tok, id);
        if (!e)
            continue;
        const uint32_t number[2] = {(uint32_t)id, e->byte_n};
        uint8_t head[9];
        for (int i = 0; i < 8; i++) /* little endian everywhere */
            head[i] = (uint8_t)(number[i / 4] >> (i % 4 * 8));
        head[8] = (e->flags & LS_TOK_SPECIAL) != 0;
        ls_sha256_add(&h, head, sizeof head);
        ls_sha256_add(&h, tok->byte + e->byte_at, e->byte_n);
    }
    return ls_sha256_end(&h, hex, err);
}

/* "\"the\"", "special \"<s>\"" or "nothing". */
static void describe(const ls_tokenizer *tok, int32_t id, char *dst, size_t cap) {
    const ls_tok_entry *e = entry(tok, id);
    if (!e) {
        memcpy(dst, "nothing", sizeof "nothing");
        return;
    }
    const char *head = e->flags & LS_TOK_SPECIAL ? "special \"" : "\"";
    strcpy(dst, head);
    size_t n = strlen(dst);
    ls_err_text(dst + n, cap - n - 1, (const char *)tok->byte + e->byte_at, e->byte_n);
    strcat(dst, "\"");
}

ls_status ls_tokenizer_same(const ls_tokenizer *a, const ls_tokenizer *b, ls_err *err) {
    int32_t size = a->size > b->size ? a->size : b->size;
    for (int32_t id = 0; id < size; id++) {
        const ls_tok_entry *x = entry(a, id), *y = entry(b, id);
        if (!x && !y)
            continue;
        if (x && y && x->byte_n == y->byte_n &&
            (x->flags & LS_TOK_SPECIAL) == (y->flags & LS_TOK_SPECIAL) &&
            memcmp(a->byte + x->byte_at, b->byte + y->byte_at, x->byte_n) == 0)
            continue;
        char is[96], other[96], name[160], name_b[160];
        describe(a, id, is, sizeof is);
        describe(b, id, other, sizeof other);
        return ls_fail(err, LS_ERR_INPUT,
                       "the tokenizers differ: id %d is %s in %s and %s in %s; a draft needs the "
                       "target's vocabulary",
                       id, is, ls_err_text(name, sizeof name, a->name, strlen(a->name)), other,
                       ls_err_text(name_b, sizeof name_b, b->name, strlen(b->name)));
    }
    return LS_OK;
}
