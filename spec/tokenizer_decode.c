/* tokenizer_decode.c - ids to text, whole or as they come; both are one path. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

/* ---- the file's decoder ---------------------------------------------------------------------- */

/* Each step here works on one token alone, or on the beginning of the text; a chain that would look
 * at more of it could not be shown as it comes, and is refused. */

static ls_status misplaced(const ls_json_at *at, const char *type, const char *why, ls_err *err) {
    return ls_json_fail(at, err, "a %s decoder %s is not supported", type, why);
}

static ls_status load_replace(ls_tok_decoder *d, const ls_json_at *at, ls_err *err) {
    if (d->mark.n > 0 || d->byte_fallback || d->fuse)
        return misplaced(at, "Replace", "behind Metaspace, ByteFallback or Fuse", err);
    if (d->n_replace == LS_TOK_STEPS_MAX)
        return ls_json_fail(at, err, "more than %d Replace decoders", LS_TOK_STEPS_MAX);
    return ls_tok_read_replace(at, &d->replace[d->n_replace++], err);
}

static ls_status load_metaspace(ls_tok_decoder *d, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep");
    bool space = true;
    const char *scheme = NULL;
    if (d->mark.n > 0 || d->n_replace > 0 || d->byte_fallback || d->fuse)
        return misplaced(at, "Metaspace", "behind another", err);
    LS_TRY(ls_tok_read_mark(at, "replacement", &d->mark, err));
    LS_TRY(ls_json_bool_or(at, "add_prefix_space", true, &space, err));
    LS_TRY(ls_json_string_or(at, "prepend_scheme", space ? "always" : "never", &scheme, err));
    d->drop_first = strcmp(scheme, "never") != 0;
    return LS_OK;
}

static ls_status load_strip(ls_tok_decoder *d, const ls_json_at *at, ls_err *err) {
    LS_TOK_ONLY(at, err, "content", "start", "stop");
    int64_t start = 0, stop = 0;
    LS_TRY(ls_json_int_or(at, "start", 0, UINT8_MAX, 0, &start, err));
    LS_TRY(ls_json_int_or(at, "stop", 0, UINT8_MAX, 0, &stop, err));
    if (stop > 0)
        return misplaced(at, "Strip", "of the end (stop above 0)", err);
    if (!d->fuse)
        return misplaced(at, "Strip", "of every token (without Fuse before it)", err);
    if (d->n_strip > 0)
        return misplaced(at, "Strip", "behind another", err);
    d->n_strip = (uint8_t)start;
    return ls_tok_read_mark(at, "content", &d->strip, err);
}

static ls_status load_step(ls_tokenizer *tok, const ls_json_at *at, bool *any, ls_err *err) {
    ls_tok_decoder *d = &tok->decoder;
    const char *type = NULL;
    LS_TRY(ls_tok_type_of(at, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        LS_TOK_ONLY(at, err, "decoders");
        ls_json_at items = ls_json_key(at, "decoders");
        size_t n = 0;
        LS_TRY(ls_json_as_array(&items, &n, err));
        for (size_t i = 0; i < n; i++) {
            ls_json_at item = ls_json_item(&items, i);
            LS_TRY(load_step(tok, &item, any, err));
        }
        return LS_OK;
    }
    const bool byte_level = strcmp(type, "ByteLevel") == 0;
    char shown[80];
    if (byte_level != tok->byte_level || (byte_level && *any))
        return ls_json_fail(at, err, "the decoder \"%s\" is not supported %s",
                            ls_err_text(shown, sizeof shown, type, strlen(type)),
                            !tok->byte_level ? "without a ByteLevel splitter"
                            : *any           ? "in a longer chain"
                                             : "with a ByteLevel splitter (only ByteLevel)");
    *any = true;
    if (byte_level) {
        LS_TOK_ONLY(at, err, "add_prefix_space", "trim_offsets", "use_regex");
        return LS_OK;
    }
    if (strcmp(type, "Replace") == 0)
        return load_replace(d, at, err);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(d, at, err);
    if (strcmp(type, "Strip") == 0)
        return load_strip(d, at, err);
    const bool fuse = strcmp(type, "Fuse") == 0;
    if (!fuse && strcmp(type, "ByteFallback") != 0)
        return ls_tok_unknown(at, "decoder", type, err);
    LS_TOK_ONLY(at, err, "type");
    if (!fuse && d->fuse)
        return misplaced(at, "ByteFallback", "behind Fuse", err);
    *(fuse ? &d->fuse : &d->byte_fallback) = true;
    return LS_OK;
}

ls_status ls_tok_load_decoder(ls_tokenizer *tok, const ls_json_at *at, ls_err *err) {
    bool any = false;
    LS_TRY(load_step(tok, at, &any, err));
    return any || !tok->byte_level
               ? LS_OK
               : ls_json_fail(at, err, "is empty; a single ByteLevel is needed");
}

/* ---- what a token stands for ----------------------------------------------------------------- */

static int nibble(uint8_t c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* "<0xE2>" is E2; -1: something else. */
static int byte_of(const uint8_t *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || nibble(s[3]) < 0 || nibble(s[4]) < 0)
        return -1;
    return nibble(s[3]) << 4 | nibble(s[4]);
}

/* The token's spelling after the steps that see one token; it ends in one of the two texts. */
static ls_status decode_token(const ls_tokenizer *tok, const uint8_t *s, size_t n, ls_text *to,
                              ls_text *spare, ls_text **out, ls_err *err) {
    const ls_tok_decoder *d = &tok->decoder;
    const ls_tok_replace space = {
        .from = (char *)(uintptr_t)d->mark.s, .n_from = d->mark.n, .to = " ", .n_to = 1};
    to->n = 0;
    if (d->mark.n > 0)
        LS_TRY(ls_tok_replace_all(&space, s, n, to, err));
    else
        LS_TRY(ls_text_append(to, (const char *)s, n, err));
    for (size_t i = 0; i < d->n_replace; i++) {
        spare->n = 0;
        LS_TRY(ls_tok_replace_all(&d->replace[i], (const uint8_t *)to->s, to->n, spare, err));
        ls_text *swap = to;
        to = spare;
        spare = swap;
        if (to->n > 4 * n + LS_TOK_REPLACE_BYTES_MAX) { /* a file made to fill the memory */
            char name[200];
            return ls_fail(err, LS_ERR_INPUT,
                           "%s: decoder: Replace makes %zu bytes of a token of %zu",
                           ls_err_text(name, sizeof name, tok->name, strlen(tok->name)), to->n, n);
        }
    }
    *out = to;
    return LS_OK;
}

static ls_status fill(ls_tokenizer *tok, ls_text *all, ls_text *a, ls_text *b, ls_err *err) {
    for (int32_t id = 0; id < tok->size; id++) {
        ls_tok_entry *e = &tok->token[id];
        if (!(e->flags & LS_TOK_THERE))
            continue;
        ls_text *text = NULL;
        LS_TRY(decode_token(tok, (const uint8_t *)tok->spell + e->spell_at, e->spell_n, a, b, &text,
                            err));
        const int byte =
            tok->decoder.byte_fallback ? byte_of((const uint8_t *)text->s, text->n) : -1;
        const char one = (char)byte;
        e->byte_at = (uint32_t)all->n;
        e->byte_n = byte >= 0 ? 1 : (uint32_t)text->n;
        e->flags |= byte >= 0 ? LS_TOK_BYTE : 0;
        LS_TRY(ls_text_append(all, byte >= 0 ? &one : text->s, e->byte_n, err));
        if (all->n > UINT32_MAX / 2)
            return ls_fail(err, LS_ERR_INPUT, "the decoder makes more than 2 GiB of the tokens");
    }
    return LS_OK;
}

ls_status ls_tok_load_bytes(ls_tokenizer *tok, ls_err *err) {
    if (tok->byte_level) /* byte letters were read with the vocabulary */
        return LS_OK;
    ls_text all = {0}, a = {0}, b = {0};
    ls_status st = ls_text_append(&all, "", 0, err);
    if (st == LS_OK)
        st = fill(tok, &all, &a, &b, err);
    ls_text_free(&a);
    ls_text_free(&b);
    free(tok->byte);
    tok->byte = (uint8_t *)all.s; /* freed with tok, also after an error */
    return st;
}

/* ---- text as it arrives ---------------------------------------------------------------------- */

ls_stream ls_stream_begin(const ls_tokenizer *tok, bool skip_special) {
    return (ls_stream){.tok = tok, .skip_special = skip_special, .n_strip = tok->decoder.n_strip};
}

/* Whole characters go out, but for those that are stripped where the text begins. */
static ls_status show(ls_stream *s, const char *text, size_t n, ls_text *out, ls_err *err) {
    const ls_tok_mark *strip = &s->tok->decoder.strip;
    while (s->n_strip > 0 && n > 0) {
        if (n < strip->n || memcmp(text, strip->s, strip->n) != 0) {
            s->n_strip = 0;
            break;
        }
        text += strip->n;
        n -= strip->n;
        s->n_strip--;
    }
    return ls_text_append(out, text, n, err);
}

/* n bytes that are part of no character: one U+FFFD, or with byte fallback one for each, which is
 * what sentencepiece gives. */
static ls_status show_bad(ls_stream *s, size_t n, ls_text *out, ls_err *err) {
    for (size_t i = 0; i < (s->tok->decoder.byte_fallback ? n : 1); i++)
        LS_TRY(show(s, LS_UTF8_REPLACEMENT, 3, out, err));
    return LS_OK;
}

static ls_status push_byte(ls_stream *s, uint8_t byte, ls_text *out, ls_err *err) {
    s->held[s->n_held++] = byte;
    while (s->n_held > 0) {
        ls_utf8_step step = ls_utf8_next(s->held, s->n_held);
        if (step.kind == LS_UTF8_CUT)
            break;
        if (step.kind == LS_UTF8_CHAR)
            LS_TRY(show(s, (const char *)s->held, step.len, out, err));
        else
            LS_TRY(show_bad(s, step.len, out, err));
        s->n_held = (uint8_t)(s->n_held - step.len);
        memmove(s->held, s->held + step.len, s->n_held);
    }
    return LS_OK;
}

static ls_status push_bytes(ls_stream *s, const uint8_t *byte, size_t n, ls_text *out,
                            ls_err *err) {
    for (size_t i = 0; i < n;) {
        /* whole characters go out at once; around a broken one, byte by byte */
        size_t ok = s->n_held == 0 ? ls_utf8_valid(byte + i, n - i) : 0;
        if (ok > 0)
            LS_TRY(show(s, (const char *)byte + i, ok, out, err));
        i += ok;
        if (i < n)
            LS_TRY(push_byte(s, byte[i++], out, err));
    }
    return LS_OK;
}

/* A first token under Metaspace: its marks are nothing, where later ones are spaces. */
static ls_status push_first(ls_stream *s, int32_t id, ls_text *out, ls_err *err) {
    const ls_tok_entry *e = &s->tok->token[id];
    const ls_tok_mark *mark = &s->tok->decoder.mark;
    const char *p = s->tok->spell + e->spell_at, *const end = p + e->spell_n;
    while (p < end) {
        if ((size_t)(end - p) >= mark->n && memcmp(p, mark->s, mark->n) == 0) {
            p += mark->n;
            continue;
        }
        LS_TRY(push_bytes(s, (const uint8_t *)p++, 1, out, err));
    }
    return LS_OK;
}

ls_status ls_stream_push(ls_stream *s, int32_t id, ls_text *out, ls_err *err) {
    size_t n = 0;
    const uint8_t *byte = ls_tokenizer_bytes(s->tok, id, &n);
    if (!byte) {
        char name[200];
        return ls_fail(err, LS_ERR_INPUT, "%s: no token has the id %d",
                       ls_err_text(name, sizeof name, s->tok->name, strlen(s->tok->name)), id);
    }
    if (s->skip_special && ls_tokenizer_is_special(s->tok, id))
        return LS_OK;
    LS_TRY(ls_text_append(out, "", 0, err)); /* terminated even when nothing can be shown */
    const bool first = !s->begun;
    s->begun = true;
    if (first && s->tok->decoder.drop_first && !(s->tok->token[id].flags & LS_TOK_BYTE))
        return push_first(s, id, out, err);
    return push_bytes(s, byte, n, out, err);
}

ls_status ls_stream_flush(ls_stream *s, ls_text *out, ls_err *err) {
    LS_TRY(ls_text_append(out, "", 0, err));
    if (s->n_held > 0) /* what is held is one beginning of a character: one part */
        LS_TRY(show_bad(s, s->n_held, out, err));
    s->n_held = 0;
    return LS_OK;
}

ls_status ls_tokenizer_decode(const ls_tokenizer *tok, const int32_t *ids, size_t n,
                              bool skip_special, ls_text *out, ls_err *err) {
    ls_stream s = ls_stream_begin(tok, skip_special);
    for (size_t i = 0; i < n; i++)
        LS_TRY(ls_stream_push(&s, ids[i], out, err));
    return ls_stream_flush(&s, out, err);
}
