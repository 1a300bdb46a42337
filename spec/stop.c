#include "stop.h"

#include <stdlib.h>
#include <string.h>

struct ls_stop {
    char **string;
    size_t *len;
    int32_t n;
    char *buf; /* [shown | held] */
    size_t n_shown, n_buf, cap;
    size_t released;
    bool hit;
};

ls_status ls_stop_create(const char *const *strings, int32_t n, ls_stop **out, ls_err *err) {
    ls_stop *s = calloc(1, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ERR_MEMORY, "stop strings: out of memory");
    s->string = calloc((size_t)n + 1, sizeof *s->string);
    s->len = calloc((size_t)n + 1, sizeof *s->len);
    s->n = n;
    for (int32_t i = 0; s->string && s->len && i < n; i++) {
        s->len[i] = strlen(strings[i]);
        if (s->len[i] == 0) {
            ls_stop_destroy(s);
            return ls_fail(err, LS_ERR_INPUT,
                           "a stop string is empty: give at least one character");
        }
        s->string[i] = malloc(s->len[i] + 1);
        if (!s->string[i])
            break;
        memcpy(s->string[i], strings[i], s->len[i] + 1);
    }
    if (!s->string || !s->len || (n > 0 && !s->string[n - 1])) {
        ls_stop_destroy(s);
        return ls_fail(err, LS_ERR_MEMORY, "stop strings: out of memory");
    }
    *out = s;
    return LS_OK;
}

void ls_stop_destroy(ls_stop *s) {
    if (!s)
        return;
    for (int32_t i = 0; s->string && i < s->n; i++)
        free(s->string[i]);
    free(s->string);
    free(s->len);
    free(s->buf);
    free(s);
}

void ls_stop_reset(ls_stop *s) {
    s->n_shown = s->n_buf = s->released = 0;
    s->hit = false;
}

/* Start of the match that completes first in b[0..n); n when there is none. */
static size_t find_match(const ls_stop *s, const char *b, size_t n) {
    for (size_t end = 1; end <= n; end++) {
        size_t at = n;
        for (int32_t i = 0; i < s->n; i++)
            if (s->len[i] <= end && memcmp(b + end - s->len[i], s->string[i], s->len[i]) == 0 &&
                end - s->len[i] < at)
                at = end - s->len[i];
        if (at < n)
            return at;
    }
    return n;
}

/* Length of the longest tail of b[0..n) that begins a stop string. */
static size_t held_tail(const ls_stop *s, const char *b, size_t n) {
    size_t best = 0;
    for (int32_t i = 0; i < s->n; i++)
        for (size_t k = s->len[i] - 1 < n ? s->len[i] - 1 : n; k > best; k--)
            if (memcmp(b + n - k, s->string[i], k) == 0)
                best = k;
    return best;
}

ls_status ls_stop_feed(ls_stop *s, const char *piece, size_t n, const char **text, size_t *n_text,
                       bool *hit, ls_err *err) {
    *text = "";
    *n_text = 0;
    *hit = s->hit;
    if (s->hit)
        return LS_OK;
    /* drop what was shown by the last call */
    if (s->n_shown) {
        memmove(s->buf, s->buf + s->n_shown, s->n_buf - s->n_shown);
        s->n_buf -= s->n_shown;
        s->n_shown = 0;
    }
    if (s->n_buf + n > s->cap) {
        size_t cap = (s->n_buf + n) * 2;
        char *buf = realloc(s->buf, cap);
        if (!buf)
            return ls_fail(err, LS_ERR_MEMORY, "stop strings: out of memory");
        s->buf = buf;
        s->cap = cap;
    }
    if (n)
        memcpy(s->buf + s->n_buf, piece, n);
    s->n_buf += n;
    const size_t at = find_match(s, s->buf, s->n_buf);
    if (at < s->n_buf) {
        s->hit = *hit = true;
        s->n_shown = at;
    } else {
        s->n_shown = s->n_buf - held_tail(s, s->buf, s->n_buf);
    }
    if (s->n_shown)
        *text = s->buf;
    *n_text = s->n_shown;
    s->released += s->n_shown;
    return LS_OK;
}

void ls_stop_flush(ls_stop *s, const char **text, size_t *n_text) {
    const size_t left = s->hit ? 0 : s->n_buf - s->n_shown;
    *text = left ? s->buf + s->n_shown : "";
    *n_text = left;
    s->n_shown += left;
    s->released += left;
}

size_t ls_stop_released(const ls_stop *s) {
    return s->released;
}
