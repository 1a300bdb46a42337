#include "show.h"

#include <string.h>
#include <unistd.h>

ls_status ls_show_begin(ls_show *s, FILE *out, const ls_term *term, const ls_tokenizer *tok,
                        const char *const *stop, int32_t n_stop, ls_err *err) {
    *s = (ls_show){.out = out,
                   .term = term,
                   .stream = ls_stream_begin(tok, true),
                   .clean = isatty(fileno(out)) != 0};
    return n_stop > 0 ? ls_stop_create(stop, n_stop, &s->stop, err) : LS_OK;
}

void ls_show_free(ls_show *s) {
    ls_stop_destroy(s->stop);
    ls_text_free(&s->queue);
    ls_text_free(&s->style);
}

static void put(const ls_show *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool c1 = c == 0xC2 && i + 1 < n && (unsigned char)text[i + 1] < 0xA0;
        if (s->clean && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F))
            fprintf(s->out, "\\x%02X", c);
        else if (s->clean && c1)
            fprintf(s->out, "\\x%02X", (unsigned char)text[++i]);
        else
            putc(c, s->out);
    }
}

static void wear(ls_show *s, ls_style style) {
    if (s->now == style)
        return;
    if (!s->term->color && s->now == LS_STYLE_REJECTED)
        fputs("-]", s->out);
    if (s->now != LS_STYLE_NONE)
        fputs(ls_term_style(s->term, LS_STYLE_NONE), s->out);
    if (style != LS_STYLE_NONE)
        fputs(ls_term_style(s->term, style), s->out);
    if (!s->term->color && style == LS_STYLE_REJECTED)
        fputs("[-", s->out);
    s->now = style;
}

/* Shows the first n_text bytes of the text, and the rejected drafts before and behind them. */
static void release(ls_show *s, size_t n_text) {
    size_t i = 0;
    while (i < s->queue.n) {
        const char style = s->style.s[i];
        size_t n = 1;
        while (i + n < s->queue.n && s->style.s[i + n] == style)
            n++;
        if (style != LS_STYLE_REJECTED) {
            n = n < n_text ? n : n_text;
            n_text -= n;
        }
        if (n == 0)
            break;
        wear(s, (ls_style)style);
        put(s, s->queue.s + i, n);
        i += n;
    }
    wear(s, LS_STYLE_NONE);
    if (i > 0) {
        memmove(s->queue.s, s->queue.s + i, s->queue.n - i);
        memmove(s->style.s, s->style.s + i, s->style.n - i);
        s->queue.n -= i;
        s->style.n -= i;
    }
    fflush(s->out);
}

/* Gives the bytes of the queue from `from` on their style. */
static ls_status dress(ls_show *s, size_t from, ls_style style, ls_err *err) {
    const char one = (char)style;
    for (size_t i = from; i < s->queue.n; i++)
        LS_TRY(ls_text_append(&s->style, &one, 1, err));
    return LS_OK;
}

/* What was queued behind `from` has arrived; shows as much as the stop strings let go. */
static ls_status arrived(ls_show *s, size_t from, ls_style style, ls_err *err) {
    LS_TRY(dress(s, from, style, err));
    size_t n_text = s->queue.n - from;
    if (s->stop) {
        const char *text;
        LS_TRY(ls_stop_feed(s->stop, s->queue.s ? s->queue.s + from : "", n_text, &text, &n_text,
                            &s->ended, err));
    }
    release(s, n_text);
    return LS_OK;
}

ls_status ls_show_token(ls_show *s, int32_t token, ls_style style, ls_err *err) {
    const size_t from = s->queue.n;
    LS_TRY(ls_stream_push(&s->stream, token, &s->queue, err));
    return arrived(s, from, style, err);
}

ls_status ls_show_rejected(ls_show *s, const int32_t *token, int32_t n, ls_err *err) {
    if (n <= 0)
        return LS_OK;
    const size_t from = s->queue.n;
    char shown[256];
    for (int32_t i = 0; i < n; i++) {
        size_t n_byte;
        const uint8_t *byte = ls_tokenizer_bytes(s->stream.tok, token[i], &n_byte);
        if (!byte)
            continue;
        ls_err_text(shown, sizeof shown, (const char *)byte, n_byte);
        LS_TRY(ls_text_append(&s->queue, shown, strlen(shown), err));
    }
    LS_TRY(dress(s, from, LS_STYLE_REJECTED, err));
    release(s, 0);
    return LS_OK;
}

ls_status ls_show_end(ls_show *s, ls_err *err) {
    const size_t from = s->queue.n;
    if (!s->ended) {
        LS_TRY(ls_stream_flush(&s->stream, &s->queue, err));
        LS_TRY(arrived(s, from, LS_STYLE_TARGET, err));
        release(s, s->queue.n);
    }
    putc('\n', s->out);
    fflush(s->out);
    return LS_OK;
}
