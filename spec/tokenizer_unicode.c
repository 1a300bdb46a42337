/* tokenizer_unicode.c - what the tokenizer asks of Unicode: two classes, and normal forms C and KC
 * in time linear in the text.
 *
 * utf8proc knows decompositions and compositions, but orders combining marks by swapping
 * neighbours, which is quadratic on a long run of marks; here each run is ordered by counting. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer_impl.h"
#include "utf8.h"

#define DECOMPOSED_MAX 64 /* code points one code point can become: 18 in the tables, with room */

/* Orders the run [begin, end), whose combining classes are all above 0, stably by class. */
static void order_run(utf8proc_int32_t *cp, utf8proc_int32_t *spare, size_t begin, size_t end) {
    size_t start[257] = {0};
    if (end - begin < 2)
        return;
    for (size_t i = begin; i < end; i++)
        start[(size_t)utf8proc_get_property(cp[i])->combining_class + 1]++;
    for (size_t c = 1; c < 257; c++)
        start[c] += start[c - 1];
    for (size_t i = begin; i < end; i++)
        spare[start[(size_t)utf8proc_get_property(cp[i])->combining_class]++] = cp[i];
    memcpy(cp + begin, spare, (end - begin) * sizeof *cp);
}

static void order(utf8proc_int32_t *cp, utf8proc_int32_t *spare, size_t n) {
    size_t begin = 0;
    for (size_t i = 0; i <= n; i++)
        if (i == n || utf8proc_get_property(cp[i])->combining_class == 0) {
            order_run(cp, spare, begin, i);
            begin = i + 1;
        }
}

static ls_status decompose(const uint8_t *s, size_t n, int options, utf8proc_int32_t **out,
                           size_t *count, ls_err *err) {
    utf8proc_int32_t *cp = NULL;
    size_t cap = 0, m = 0;
    int bound = 0;
    for (size_t i = 0; i < n;) {
        ls_utf8_step c = ls_utf8_next(s + i, n - i);
        i += c.len;
        ls_status st = ls_tok_grow((void **)&cp, &cap, m + DECOMPOSED_MAX, sizeof *cp, err);
        utf8proc_ssize_t k = st == LS_OK ? utf8proc_decompose_char((utf8proc_int32_t)c.cp, cp + m,
                                                                   DECOMPOSED_MAX, options, &bound)
                                         : 0;
        if (st == LS_OK && (k < 0 || k > DECOMPOSED_MAX))
            st = ls_fail(err, LS_ERR_INPUT, "normalizing U+%04X failed", (unsigned)c.cp);
        if (st != LS_OK) {
            free(cp);
            return st;
        }
        m += (size_t)k;
    }
    *out = cp;
    *count = m;
    return LS_OK;
}

static ls_status normalize(const uint8_t *s, size_t n, bool compat, ls_text *out, ls_err *err) {
    const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    utf8proc_int32_t *cp = NULL;
    size_t m = 0;
    LS_TRY(decompose(s, n, options, &cp, &m, err));
    utf8proc_int32_t *spare = malloc((m ? m : 1) * sizeof *spare);
    if (!spare) {
        free(cp);
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: normalizing %zu bytes", n);
    }
    order(cp, spare, m);
    free(spare);
    utf8proc_ssize_t k =
        utf8proc_normalize_utf32(cp, (utf8proc_ssize_t)m, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    ls_status st = k < 0 ? ls_fail(err, LS_ERR_INPUT, "normalizing %zu bytes failed", n) : LS_OK;
    for (utf8proc_ssize_t i = 0; i < k && st == LS_OK; i++) {
        uint8_t utf8[4];
        size_t len = ls_utf8_put(utf8, (uint32_t)cp[i]);
        st = ls_text_append(out, (const char *)utf8, len, err);
    }
    free(cp);
    return st;
}

/* Is this character the same in normal form C (or KC) whatever stands before it? Answers no for
 * some that are (they cost time, not correctness): only blocks without composing vowels or Hangul
 * letters. */
static bool stays(uint32_t c, bool compat) {
    if (c < (compat ? 0x80 : 0x300))
        return true;
    bool block = (c >= 0x370 && c < 0x590) || (c >= 0x2000 && c < 0xA000) ||
                 (c >= 0xE000 && c < 0xF900) || (c >= 0x1F000 && c < 0x20000);
    if (!block)
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    return p->combining_class == 0 &&
           (p->decomp_seqindex == UINT16_MAX || (p->decomp_type != 0 && !compat));
}

bool ls_tok_nfc(const uint8_t *s, size_t n, bool compat, ls_text *out, ls_status *status,
                ls_err *err) {
    const uint8_t low = compat ? 0x80 : 0xCC; /* U+0300 is CC 80 */
    *status = LS_OK;
    for (size_t i = 0; i < n;) {
        if (s[i] < low) {
            i++;
            continue;
        }
        ls_utf8_step c = ls_utf8_next(s + i, n - i);
        if (!stays(c.cp, compat)) {
            *status = normalize(s, n, compat, out, err);
            return true;
        }
        i += c.len;
    }
    return false;
}

bool ls_tok_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool ls_tok_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* joiners, and circled letters, which are alphabetic symbols */
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
               (c >= 0x1F170 && c <= 0x1F189);
    }
}
