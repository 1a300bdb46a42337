/* tokenizer_decode.c - ids to text, whole or as they come; both are one path. */
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

ls_stream ls_stream_begin(const ls_tokenizer *tok, bool skip_special) {
    return (ls_stream){.tok = tok, .skip_special = skip_special};
}

static ls_status push_byte(ls_stream *s, uint8_t byte, ls_text *out, ls_err *err) {
    s->held[s->n_held++] = byte;
    while (s->n_held > 0) {
        ls_utf8_step step = ls_utf8_next(s->held, s->n_held);
        if (step.kind == LS_UTF8_CUT)
            break;
        if (step.kind == LS_UTF8_CHAR)
            LS_TRY(ls_text_append(out, (const char *)s->held, step.len, err));
        else
            LS_TRY(ls_text_append(out, LS_UTF8_REPLACEMENT, 3, err));
        s->n_held = (uint8_t)(s->n_held - step.len);
        memmove(s->held, s->held + step.len, s->n_held);
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
    size_t i = 0;
    while (i < n) {
        /* whole characters go out at once; around a broken one, byte by byte */
        size_t ok = s->n_held == 0 ? ls_utf8_valid(byte + i, n - i) : 0;
        if (ok > 0)
            LS_TRY(ls_text_append(out, (const char *)byte + i, ok, err));
        i += ok;
        if (i < n)
            LS_TRY(push_byte(s, byte[i++], out, err));
    }
    return LS_OK;
}

ls_status ls_stream_flush(ls_stream *s, ls_text *out, ls_err *err) {
    LS_TRY(ls_text_append(out, "", 0, err));
    if (s->n_held > 0) /* what is held is one beginning of a character: one part */
        LS_TRY(ls_text_append(out, LS_UTF8_REPLACEMENT, 3, err));
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
