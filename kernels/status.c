#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ls_status ls_fail(ls_err *err, ls_status code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        err->code = code;
    }
    return code;
}

ls_status ls_fail_in(ls_err *err, ls_status code, const char *fmt, ...) {
    if (err) {
        char was[LS_ERR_MAX];
        memcpy(was, err->msg, sizeof was);
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n + 3 < sizeof err->msg) {
            const int room = (int)(sizeof err->msg - 3 - (size_t)n);
            snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %.*s", room, was);
        }
        err->code = code;
    }
    return code;
}

/* Length of the well-formed UTF-8 character at s (n bytes left), 0 if it is not one. */
static size_t utf8_len(const unsigned char *s, size_t n) {
    size_t len = s[0] < 0x80                   ? 1
                 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                               : 0;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

char *ls_err_text(char *dst, size_t cap, const char *src, size_t n) {
    size_t out = 0, i = 0;
    const size_t room = cap > 4 ? cap - 4 : 0; /* keeps "..." and the end */
    while (i < n) {
        const unsigned char *s = (const unsigned char *)src + i;
        size_t len = utf8_len(s, n - i);
        /* C1 controls (U+0080..U+009F) steer terminals too */
        int plain = len > 1 ? !(len == 2 && s[0] == 0xC2 && s[1] < 0xA0)
                            : len == 1 && s[0] >= 0x20 && s[0] != 0x7F;
        size_t need = plain ? len : 4;
        if (out + need > room)
            break;
        if (plain) {
            memcpy(dst + out, s, len);
            out += len;
            i += len;
        } else {
            snprintf(dst + out, 5, "\\x%02X", s[0]);
            out += 4;
            i += 1;
        }
    }
    if (i < n && cap > 4) {
        memcpy(dst + out, "...", 3);
        out += 3;
    }
    if (cap > 0)
        dst[out] = 0;
    return dst;
}

const char *ls_status_name(ls_status s) {
    static const char *const names[] = {"ok",     "input",  "io",      "shape",
                                        "full",   "state",  "memory",  "numeric",
                                        "script", "device", "stopped", "check"};
    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}
