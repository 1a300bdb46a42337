#include "utf8.h"

ls_utf8_step ls_utf8_next(const uint8_t *s, size_t n) {
    const ls_utf8_step bad = {LS_UTF8_BAD, 1, 0xFFFD};
    uint8_t b = s[0];
    if (b < 0x80)
        return (ls_utf8_step){LS_UTF8_CHAR, 1, b};
    if (b < 0xC2 || b > 0xF4)
        return bad;
    size_t len = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    uint32_t cp = b & (0xFFu >> (len + 1));
    /* the second byte's range shuts out overlong forms, surrogates and what is past 10FFFF */
    uint8_t lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    uint8_t hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < len; i++) {
        if (i == n)
            return (ls_utf8_step){LS_UTF8_CUT, i, 0xFFFD};
        if (s[i] < lo || s[i] > hi)
            return (ls_utf8_step){LS_UTF8_BAD, i, 0xFFFD};
        cp = cp << 6 | (s[i] & 0x3F);
        lo = 0x80;
        hi = 0xBF;
    }
    return (ls_utf8_step){LS_UTF8_CHAR, len, cp};
}

size_t ls_utf8_valid(const uint8_t *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        if (s[i] < 0x80) { /* most text */
            i++;
            continue;
        }
        ls_utf8_step step = ls_utf8_next(s + i, n - i);
        if (step.kind != LS_UTF8_CHAR)
            break;
        i += step.len;
    }
    return i;
}

size_t ls_utf8_put(uint8_t dst[4], uint32_t cp) {
    if (cp < 0x80) {
        dst[0] = (uint8_t)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6)
        dst[i] = (uint8_t)(0x80 | (cp & 0x3F));
    dst[0] = (uint8_t)((0xF00u >> len & 0xFF) | cp);
    return len;
}
