/* tokenizer_normal.c - the file's normalizers: read, and run over a text in their order. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

#define GROWTH_MAX 32 /* NFKC: 11 */

/* ---- reading --------------------------------------------------------------------------------- */

static ls_status copy(const char *s, size_t n, char **out, ls_err *err) {
    *out = malloc(n + 1);
    if (!*out)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    memcpy(*out, s, n);
    (*out)[n] = 0;
    return LS_OK;
}

ls_status ls_tok_read_replace(const ls_json_at *at, ls_tok_replace *out, ls_err *err) {
    LS_TOK_ONLY(at, err, "pattern", "content");
    ls_json_at pattern = ls_json_key(at, "pattern"), content = ls_json_key(at, "content");
    LS_TRY(ls_json_as_object(&pattern, err));
    ls_json_at regex = ls_json_key(&pattern, "Regex"), literal = ls_json_key(&pattern, "String");
    if (regex.value)
        return ls_json_fail(&regex, err, "replacing a regex is not supported (only \"String\")");
    const char *from = NULL, *to = NULL;
    LS_TRY(ls_json_as_string(&literal, &from, &out->n_from, err));
    LS_TRY(ls_json_as_string(&content, &to, &out->n_to, err));
    if (out->n_from == 0)
        return ls_json_fail(&literal, err, "an empty pattern would match everywhere");
    if (out->n_from > LS_TOK_REPLACE_BYTES_MAX) /* the search compares it at every place */
        return ls_json_fail(&literal, err, "has %zu bytes, at most %d are supported", out->n_from,
                            LS_TOK_REPLACE_BYTES_MAX);
    if (out->n_to > LS_TOK_REPLACE_BYTES_MAX)
        return ls_json_fail(&content, err, "has %zu bytes, at most %d are supported", out->n_to,
                            LS_TOK_REPLACE_BYTES_MAX);
    LS_TRY(copy(from, out->n_from, &out->from, err));
    return copy(to, out->n_to, &out->to, err);
}

static ls_status add_step(ls_tokenizer *tok, const ls_json_at *at, ls_tok_normal_kind kind,
                          ls_tok_replace **out, ls_err *err) {
    if (tok->n_normal == LS_TOK_STEPS_MAX)
        return ls_json_fail(at, err, "more than %d normalizers", LS_TOK_STEPS_MAX);
    *out = &tok->normal[tok->n_normal++]; /* what it owns is freed with tok */
    (*out)->kind = kind;
    return LS_OK;
}

static ls_status load_prepend(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "prepend");
    ls_json_at text = ls_json_key(at, "prepend");
    ls_tok_replace *r = NULL;
    const char *s = NULL;
    LS_TRY(add_step(tok, at, LS_TOK_PREPEND, &r, err));
    LS_TRY(ls_json_as_string(&text, &s, &r->n_to, err));
    if (r->n_to > LS_TOK_REPLACE_BYTES_MAX)
        return ls_json_fail(&text, err, "has %zu bytes, at most %d are supported", r->n_to,
                            LS_TOK_REPLACE_BYTES_MAX);
    return copy(s, r->n_to, &r->to, err);
}

ls_status ls_tok_load_normal(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    const char *type = NULL;
    ls_tok_replace *r = NULL;
    LS_TRY(ls_tok_type_of(at, &type, err));
    const bool nfc = strcmp(type, "NFC") == 0;
    if (nfc || strcmp(type, "NFKC") == 0) {
        LS_TOK_ONLY(at, err, "type");
        return add_step(tok, at, nfc ? LS_TOK_NFC : LS_TOK_NFKC, &r, err);
    }
    if (strcmp(type, "Prepend") == 0)
        return load_prepend(tok, at, err);
    if (strcmp(type, "Replace") == 0) {
        LS_TRY(add_step(tok, at, LS_TOK_REPLACE, &r, err));
        return ls_tok_read_replace(at, r, err);
    }
    if (strcmp(type, "Sequence") != 0)
        return ls_tok_unknown(at, "normalizer", type, err);
    LS_TOK_ONLY(at, err, "normalizers");
    ls_json_at items = ls_json_key(at, "normalizers");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&items, &n, err));
    for (size_t i = 0; i < n; i++) { /* nesting ends at the depth limit of JSON */
        ls_json_at item = ls_json_item(&items, i);
        LS_TRY(ls_tok_load_normal(tok, &item, err));
    }
    return LS_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

ls_status ls_tok_replace_all(const ls_tok_replace *r, const uint8_t *s, size_t n, ls_text *out,
                             ls_err *err) {
    const char *at = (const char *)s, *const end = at + n, *look = at;
    LS_TRY(ls_text_append(out, "", 0, err));
    while ((size_t)(end - look) >= r->n_from) {
        const char *hit = memchr(look, r->from[0], (size_t)(end - look) - r->n_from + 1);
        if (!hit)
            break;
        look = hit + 1;
        if (memcmp(hit, r->from, r->n_from) != 0)
            continue;
        LS_TRY(ls_text_append(out, at, (size_t)(hit - at), err));
        LS_TRY(ls_text_append(out, r->to, r->n_to, err));
        at = look = hit + r->n_from;
    }
    return ls_text_append(out, at, (size_t)(end - at), err);
}

/* One step into out, which is empty; *changed false: s stays as it is. */
static ls_status run(const ls_tok_replace *r, const uint8_t *s, size_t n, ls_text *out,
                     bool *changed, ls_err *err) {
    ls_status st = LS_OK;
    *changed = true;
    switch (r->kind) {
    case LS_TOK_PREPEND: /* nothing is put before nothing */
        if (n == 0) {
            *changed = false;
            return LS_OK;
        }
        LS_TRY(ls_text_append(out, r->to, r->n_to, err));
        return ls_text_append(out, (const char *)s, n, err);
    case LS_TOK_REPLACE:
        return ls_tok_replace_all(r, s, n, out, err);
    case LS_TOK_NFC:
    case LS_TOK_NFKC:
    default:
        *changed = ls_tok_nfc(s, n, r->kind == LS_TOK_NFKC, out, &st, err);
        return st;
    }
}

ls_status ls_tok_normalize(const ls_tokenizer *tok, ls_tok_normal *t, ls_err *err) {
    ls_text *to = &t->a, *other = &t->b;
    const size_t most = t->n > SIZE_MAX / 64 ? SIZE_MAX : t->n * GROWTH_MAX + 1024;
    for (size_t i = 0; i < tok->n_normal; i++) {
        bool changed = false;
        to->n = 0;
        LS_TRY(run(&tok->normal[i], t->s, t->n, to, &changed, err));
        if (!changed)
            continue;
        t->s = (const uint8_t *)to->s;
        t->n = to->n;
        if (t->n > most) { /* a file made to fill the memory */
            char name[200];
            return ls_fail(
                err, LS_ERR_INPUT, "%s: the normalizers make more than %d bytes of one of the text",
                ls_err_text(name, sizeof name, tok->name, strlen(tok->name)), GROWTH_MAX);
        }
        ls_text *swap = to;
        to = other;
        other = swap;
    }
    return LS_OK;
}

void ls_tok_normal_free(ls_tok_normal *t) {
    ls_text_free(&t->a);
    ls_text_free(&t->b);
}
