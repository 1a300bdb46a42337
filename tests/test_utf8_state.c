/* UTF-8: every sequence of up to three bytes, and the edges of four, against a table of ranges. */
#include "cases.h"

#include <string.h>

#include "utf8.h"

/* Well-formed sequences as the Unicode standard tabulates them (table 3-7). */
static const struct {
    uint8_t lo[4], hi[4];
    size_t n;
} rows[] = {
    {{0x00}, {0x7F}, 1},
    {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
    {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
    {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
    {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
    {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
    {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
};

/* Longest beginning of s that also begins a row, and whether it is the row whole. */
static void by_table(const uint8_t *s, size_t n, ls_utf8_kind *kind, size_t *len) {
    *kind = LS_UTF8_BAD;
    *len = 1;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t m = 0;
        while (m < n && m < rows[r].n && s[m] >= rows[r].lo[m] && s[m] <= rows[r].hi[m])
            m++;
        if (m == 0)
            continue;
        *len = m;
        *kind = m == rows[r].n ? LS_UTF8_CHAR : m == n ? LS_UTF8_CUT : LS_UTF8_BAD;
        return; /* first bytes are in one row only */
    }
}

static void check(const uint8_t *s, size_t n) {
    ls_utf8_kind kind;
    size_t len;
    by_table(s, n, &kind, &len);
    ls_utf8_step got = ls_utf8_next(s, n);
    if (got.kind != kind || got.len != len)
        fail_msg("%02X %02X %02X (%zu): kind %d length %zu, expected %d %zu", s[0], s[1], s[2], n,
                 got.kind, got.len, kind, len);
    if (kind == LS_UTF8_CHAR) {
        uint8_t back[4];
        assert_int_equal(ls_utf8_put(back, got.cp), len);
        assert_memory_equal(back, s, len);
        assert_int_equal(ls_utf8_valid(s, len), len);
    } else {
        assert_int_equal(got.cp, 0xFFFD);
        assert_int_equal(ls_utf8_valid(s, n), 0);
    }
}

static void test_all(void **state) {
    (void)state;
    uint8_t s[4] = {0};
    for (unsigned v = 0; v < 1u << 24; v++) {
        s[0] = (uint8_t)(v >> 16);
        s[1] = (uint8_t)(v >> 8);
        s[2] = (uint8_t)v;
        if (s[0] < 0x80 && (s[1] || s[2]))
            continue; /* what follows an ASCII byte cannot matter */
        check(s, 3);
        if (!s[2])
            check(s, 2);
        if (!s[1] && !s[2])
            check(s, 1);
    }
    static const uint8_t edge[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90,
                                   0x9F, 0xA0, 0xBF, 0xC2, 0xFF};
    for (unsigned b = 0xEF; b < 0x100; b++)
        for (size_t i = 0; i < sizeof edge; i++)
            for (size_t j = 0; j < sizeof edge; j++)
                for (size_t k = 0; k < sizeof edge; k++) {
                    const uint8_t t[4] = {(uint8_t)b, edge[i], edge[j], edge[k]};
                    check(t, 4);
                }
}

static void test_text(void **state) {
    (void)state;
    static const char text[] = "a\xC3\xA9\xF0\x9F\x98\x80z\xE2\x82";
    assert_int_equal(ls_utf8_valid((const uint8_t *)text, sizeof text - 1), 8);
    assert_int_equal(ls_utf8_valid((const uint8_t *)text, 8), 8);
    assert_int_equal(ls_utf8_valid((const uint8_t *)text, 0), 0);
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
