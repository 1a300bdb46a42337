/* tokenizer_regex.c - the patterns of tokenizer.json, compiled by PCRE2.
 *
 * The files are written for Oniguruma's Ruby dialect. What both engines read alike passes; what can
 * be said in PCRE2's words is rewritten (\s without U+180E, \uHHHH, scripts); what would mean
 * something else (\w, \b, \h, nested classes, possessive intervals, ...) is refused by name: a
 * pattern that is nearly right gives ids that are nearly right. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

/* Unicode's White_Space. The complement is written out too: inside a class it cannot be negated. */
#define SPACE                                       \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}" \
    "\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                   \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}" \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"  \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"

typedef struct translator {
    const ls_json_at *at;
    const char *p, *start, *end;
    ls_text *out;
    ls_err *err;
    bool in_class, class_begins;
} translator;

static ls_status refuse(const translator *t, const char *what, size_t n) {
    char shown[64];
    return ls_json_fail(t->at, t->err, "the pattern's \"%s\" (byte %zu) is not supported",
                        ls_err_text(shown, sizeof shown, what, n), (size_t)(what - t->start));
}

static ls_status put(const translator *t, const char *s, size_t n) {
    return ls_text_append(t->out, s, n, t->err);
}

static ls_status puts_(const translator *t, const char *s) {
    return put(t, s, strlen(s));
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* \p{...}: general categories mean the same in both; a script is its own characters, not what
 * PCRE2 calls the script's extensions. */
static ls_status property(translator *t) {
    static const char *const categories[] = {
        "Any", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu",
        "M",   "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf",
        "Pi",  "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
    const char *from = t->p; /* at the backslash */
    const char *close =
        t->p + 2 < t->end && t->p[2] == '{' ? memchr(t->p, '}', (size_t)(t->end - t->p)) : NULL;
    if (!close)
        return refuse(t, from, t->end - from < 3 ? (size_t)(t->end - from) : 3);
    const char *name = from + 3;
    bool negate = name < close && *name == '^';
    name += negate;
    size_t n = (size_t)(close - name);
    for (const char *c = name; c < close; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_'))
            return refuse(t, from, (size_t)(close + 1 - from));
    bool category = false;
    for (size_t i = 0; i < sizeof categories / sizeof *categories && !category; i++)
        category = strlen(categories[i]) == n && memcmp(categories[i], name, n) == 0;
    t->p = close + 1;
    LS_TRY(puts_(t, (from[1] == 'P') != negate ? "\\P{" : "\\p{"));
    if (!category)
        LS_TRY(puts_(t, "sc:"));
    LS_TRY(put(t, name, n));
    return put(t, "}", 1);
}

/* \x41, \x{41} and \u0041, written \x{41}. */
static ls_status code_point(translator *t) {
    const char *from = t->p;
    const char *hex = from + 2;
    bool braces = from[1] == 'x' && hex < t->end && *hex == '{';
    size_t most = braces ? 8 : from[1] == 'u' ? 4 : 2, n = 0;
    hex += braces;
    while (n < most && hex + n < t->end && is_hex(hex[n]))
        n++;
    if (n == 0 || (from[1] == 'u' && n != 4) || (braces && (hex + n >= t->end || hex[n] != '}')))
        return refuse(t, from, 2);
    /* \x80 and up is a byte in the reference, which is no character of UTF-8 */
    if (from[1] == 'x' && !braces && n == 2 && hex[0] >= '8')
        return refuse(t, from, 4);
    t->p = hex + n + braces;
    LS_TRY(puts_(t, "\\x{"));
    LS_TRY(put(t, hex, n));
    return put(t, "}", 1);
}

/* Inside a class: is the two-byte escape an end of a range, as in [a-\s] or [\s-z]? */
static bool touches_range(const translator *t) {
    bool after = t->p[-1] == '-' && t->p[-2] != '[' && t->p[-2] != '^';
    return after || (t->end - t->p > 3 && t->p[2] == '-' && t->p[3] != ']');
}

static ls_status escape(translator *t) {
    if (t->p + 1 >= t->end)
        return refuse(t, t->p, 1);
    char c = t->p[1];
    switch (c) {
    case 's':
    case 'S':
        if (t->in_class && touches_range(t))
            return refuse(t, t->p, 2);
        t->p += 2;
        if (t->in_class)
            return puts_(t, c == 's' ? SPACE : NOT_SPACE);
        return puts_(t, c == 's' ? "[" SPACE "]" : "[^" SPACE "]");
    case 'p':
    case 'P':
        return property(t);
    case 'x':
    case 'u':
        return code_point(t);
    case 'A':
    case 'z':
        if (t->in_class)
            return refuse(t, t->p, 2);
        /* fall through */
    case 'd':
    case 'D':
    case 'r':
    case 'n':
    case 't':
    case 'f':
        t->p += 2;
        return put(t, t->p - 2, 2);
    case 'v':
        t->p += 2;
        return puts_(t, "\\x{0b}");
    default:
        break;
    }
    if ((unsigned char)c < 0x80 && !is_digit(c) && !(c >= 'a' && c <= 'z') &&
        !(c >= 'A' && c <= 'Z')) {
        t->p += 2;
        return put(t, t->p - 2, 2); /* escaped punctuation is itself */
    }
    return refuse(t, t->p, 2);
}

/* "(" and what may follow it. */
static ls_status group(translator *t) {
    static const char *const heads[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                        "(?<=", "(?<!", "(?i:", "(?-i:"};
    size_t left = (size_t)(t->end - t->p);
    if (left >= 2 && t->p[1] == '*') /* a PCRE2 verb, which could lift limits */
        return refuse(t, t->p, 2);
    if (left < 2 || t->p[1] != '?') {
        t->p += 1;
        return puts_(t, "(?:"); /* nothing reads captures */
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if (left >= n && memcmp(t->p, heads[i], n) == 0) {
            t->p += n;
            return put(t, heads[i], n);
        }
    }
    /* in the middle, (?i) groups alternatives differently in the two dialects */
    if (left >= 4 && memcmp(t->p, "(?i)", 4) == 0 && t->p == t->start) {
        t->p += 4;
        return puts_(t, "(?i)");
    }
    return refuse(t, t->p, left < 4 ? left : 4);
}

/* "{": an interval, or literal. */
static ls_status interval(translator *t) {
    const char *p = t->p + 1;
    size_t low = 0, high = 0;
    while (p < t->end && is_digit(*p))
        p++, low++;
    bool comma = p < t->end && *p == ',';
    if (comma)
        for (p++; p < t->end && is_digit(*p);)
            p++, high++;
    if (p >= t->end || *p != '}' || (low == 0 && high == 0)) {
        t->p += 1;
        return puts_(t, "\\{");
    }
    p++;
    if (low == 0 ||
        (p < t->end && *p == '+')) /* {,n} and {n,m}+ mean other things here and there */
        return refuse(t, t->p, (size_t)(p - t->p));
    const char *from = t->p;
    t->p = p;
    return put(t, from, (size_t)(p - from));
}

static ls_status in_class(translator *t) {
    char c = *t->p;
    bool first = t->class_begins;
    t->class_begins = false;
    if (c == '[' || (c == '&' && t->p + 1 < t->end && t->p[1] == '&'))
        return refuse(t, t->p, 2);
    if (c == ']' && !first)
        t->in_class = false;
    else if (c == ']')
        return refuse(t, t->p, 1);
    t->p += 1;
    return put(t, &c, 1);
}

static ls_status step(translator *t) {
    char c = *t->p;
    if (c == 0)
        return refuse(t, t->p, 1);
    if (c == '\\') {
        t->class_begins = false;
        return escape(t);
    }
    if (t->in_class)
        return in_class(t);
    if (c == '(')
        return group(t);
    if (c == '{')
        return interval(t);
    t->p += 1;
    LS_TRY(put(t, &c, 1));
    if (c == '[') {
        t->in_class = t->class_begins = true;
        if (t->p < t->end && *t->p == '^') {
            t->p += 1;
            return put(t, "^", 1);
        }
    }
    return LS_OK;
}

static ls_status translate(const ls_json_at *at, const char *pattern, size_t n, bool literal,
                           ls_text *out, ls_err *err) {
    translator t = {
        .at = at, .p = pattern, .start = pattern, .end = pattern + n, .out = out, .err = err};
    LS_TRY(ls_text_append(out, "", 0, err));
    while (t.p < t.end) {
        if (!literal) {
            LS_TRY(step(&t));
            continue;
        }
        ls_utf8_step c = ls_utf8_next((const uint8_t *)t.p, (size_t)(t.end - t.p));
        char hex[16];
        snprintf(hex, sizeof hex, "\\x{%x}", (unsigned)c.cp);
        LS_TRY(puts_(&t, hex));
        t.p += c.len;
    }
    return LS_OK;
}

ls_status ls_tok_regex(const ls_json_at *at, const char *pattern, size_t n, bool literal,
                       void **out, ls_err *err) {
    if (n == 0)
        return ls_json_fail(at, err, "the pattern is empty");
    ls_text text = {0};
    ls_status s = translate(at, pattern, n, literal, &text, err);
    if (s != LS_OK) {
        ls_text_free(&text);
        return s;
    }
    int code = 0;
    PCRE2_SIZE where = 0;
    /* ^ and $ are always about lines in the reference */
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)text.s, text.n,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                       PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
                                   &code, &where, NULL);
    ls_text_free(&text);
    if (!re) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(code, why, sizeof why);
        return ls_json_fail(at, err, "the pattern does not compile: %s", (const char *)why);
    }
    /* without executable memory the interpreter gives the same answers, slower */
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    *out = re;
    return LS_OK;
}

void ls_tok_regex_free(void *regex) {
    pcre2_code_free(regex);
}
