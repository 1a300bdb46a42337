/* tokenizer_symbols.c - a piece of text as the symbols that merging begins with: its bytes, or its
 * characters, with byte tokens or unk for a character that is no token. */
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

static ls_status no_token(const ls_tok_work *w, const char *what, unsigned value, ls_err *err) {
    char name[200];
    return ls_fail(err, LS_ERR_INPUT,
                   "%s: the text has %s%02X, for which the vocabulary has no token",
                   ls_err_text(name, sizeof name, w->tok->name, strlen(w->tok->name)), what, value);
}

static ls_status from_bytes(ls_tok_work *w, const uint8_t *s, size_t n, ls_err *err) {
    for (size_t i = 0; i < n; i++)
        if ((w->unit[i] = w->tok->byte_id[s[i]]) < 0)
            return no_token(w, "the byte ", s[i], err);
    return LS_OK;
}

static int32_t char_token(const ls_tok_work *w, const uint8_t *s, size_t n) {
    const ls_tokenizer *tok = w->tok;
    const int32_t id = n == 1 ? tok->ascii_id[s[0]] : ls_tok_lookup(tok, (const char *)s, n);
    return id >= 0 && (tok->token[id].flags & LS_TOK_VOCAB) && ls_tok_may_be(w, id) ? id : -1;
}

/* All its bytes have tokens: writes them. */
static bool put_fallback(const ls_tok_work *w, const uint8_t *s, size_t n, int32_t *to) {
    for (size_t i = 0; i < n; i++)
        if ((to[i] = w->tok->byte_id[s[i]]) < 0)
            return false;
    return true;
}

/* An unk is written when the next symbol shows that the run of unknown characters has ended; bytes
 * do not end it. That order is the reference's. */
static ls_status from_chars(ls_tok_work *w, const uint8_t *s, size_t n, size_t *count,
                            ls_err *err) {
    const ls_tokenizer *tok = w->tok;
    size_t m = 0;
    bool unknown = false;
    for (size_t i = 0; i < n;) {
        const ls_utf8_step c =
            s[i] < 0x80 ? (ls_utf8_step){LS_UTF8_CHAR, 1, s[i]} : ls_utf8_next(s + i, n - i);
        const int32_t id = char_token(w, s + i, c.len);
        if (id >= 0) {
            if (unknown)
                w->unit[m++] = tok->unk;
            unknown = false;
            w->unit[m++] = id;
        } else if (tok->byte_fallback && put_fallback(w, s + i, c.len, w->unit + m)) {
            m += c.len;
        } else if (tok->unk < 0) {
            return no_token(w, "the character U+", c.cp, err);
        } else {
            if (unknown && !tok->fuse_unk)
                w->unit[m++] = tok->unk;
            unknown = true;
        }
        i += c.len;
    }
    if (unknown)
        w->unit[m++] = tok->unk;
    *count = m;
    return LS_OK;
}

ls_status ls_tok_symbols(ls_tok_work *w, const uint8_t *s, size_t n, size_t *count, ls_err *err) {
    LS_TRY(ls_tok_grow((void **)&w->unit, &w->unit_cap, n, sizeof *w->unit, err));
    *count = n; /* no character becomes more symbols than it has bytes */
    return w->tok->byte_level ? from_bytes(w, s, n, err) : from_chars(w, s, n, count, err);
}
