/* utf8.h - one rule for bytes that are not UTF-8: each maximal part becomes one U+FFFD.
 * Rule      a maximal part is the longest prefix of a well-formed character (Unicode 15, section
 *           3.9; Python's and the WHATWG decoder's rule): E2 82 41 is U+FFFD then "A"; C0 can begin
 *           no character and is a part alone; the three bytes of a surrogate are three parts.
 * Threads   pure functions. */
#ifndef LS_UTF8_H
#define LS_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum ls_utf8_kind {
    LS_UTF8_CHAR = 0, /* a well-formed character */
    LS_UTF8_BAD,      /* a maximal part that no further byte can complete */
    LS_UTF8_CUT       /* the bytes end inside a character that could still be completed */
} ls_utf8_kind;

typedef struct ls_utf8_step {
    ls_utf8_kind kind;
    size_t len;  /* bytes it takes, at least 1 */
    uint32_t cp; /* the character; U+FFFD unless kind is LS_UTF8_CHAR */
} ls_utf8_step;

#define LS_UTF8_REPLACEMENT "\xEF\xBF\xBD"

#ifdef __cplusplus
extern "C" {
#endif
/* What begins at s; n >= 1 bytes are there. */
ls_utf8_step ls_utf8_next(const uint8_t *s, size_t n);
/* Length of the longest valid prefix. */
size_t ls_utf8_valid(const uint8_t *s, size_t n);
/* Writes cp (a scalar value) to dst, returns 1..4. */
size_t ls_utf8_put(uint8_t dst[4], uint32_t cp);
#ifdef __cplusplus
}
#endif

#endif
