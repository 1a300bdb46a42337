#include "tokenizer_golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL_EVERY 20 /* make.py's numbers */
#define N_DECODES 400

typedef struct bytes {
    const uint8_t *p, *end;
} bytes;

static uint64_t uvarint(bytes *b) {
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(b->p < b->end && shift < 64);
        v |= (uint64_t)(*b->p & 0x7F) << shift;
        if (*b->p++ < 0x80)
            return v;
    }
}

static uint32_t word(bytes *b) {
    assert_true(b->end - b->p >= 4);
    const uint8_t *p = b->p;
    b->p += 4;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t fnv(uint32_t h, const void *data, size_t n) {
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x01000193u;
    return h;
}

static uint32_t ids_digest(const ls_ids *ids) {
    uint32_t h = 0x811C9DC5u;
    for (size_t i = 0; i < ids->n; i++)
        for (int k = 0; k < 32; k += 8) {
            const uint8_t byte = (uint8_t)((uint32_t)ids->id[i] >> k);
            h = fnv(h, &byte, 1);
        }
    return h;
}

const char *ls_golden_show(char dst[200], const char *s, size_t n) {
    return ls_err_text(dst, 200, s, n);
}

/* ---- texts ----------------------------------------------------------------------------------- */

ls_golden_texts ls_golden;

static ls_golden_texts read_texts(void) {
    char *path = ls_test_path("fixtures/tokenizers/texts.bin");
    size_t n = 0, cap = 0;
    char *file = ls_test_read(path, &n);
    ls_golden_texts t = {0};
    for (bytes b = {(const uint8_t *)file, (const uint8_t *)file + n}; b.p < b.end; t.n++) {
        const size_t piece = (size_t)uvarint(&b), times = (size_t)uvarint(&b);
        assert_true(piece <= (size_t)(b.end - b.p) && times < 100000);
        if (t.n == cap) {
            cap = cap ? 2 * cap : 1024;
            t.text = realloc(t.text, cap * sizeof *t.text);
            assert_non_null(t.text);
        }
        ls_golden_text *x = &t.text[t.n];
        *x = (ls_golden_text){malloc(piece * times + 1), piece * times};
        assert_non_null(x->s);
        x->s[x->n] = 0;
        for (size_t i = 0; i < times; i++)
            memcpy(x->s + i * piece, b.p, piece);
        b.p += piece;
    }
    free(file);
    free(path);
    assert_true(t.n >= 3000);
    return t;
}

int ls_golden_begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    ls_golden = read_texts();
    return 0;
}

int ls_golden_end(void **state) {
    (void)state;
    for (size_t i = 0; i < ls_golden.n; i++)
        free(ls_golden.text[i].s);
    free(ls_golden.text);
    ls_golden = (ls_golden_texts){0};
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* What differs, id by id where the file has them all. */
static void differs(const char *name, size_t i, const ls_golden_text *x, const ls_ids *ids,
                    const int32_t *want, size_t n_want) {
    char text[200], line[400] = "";
    size_t at = 0, n = 0;
    while (want && at < ids->n && at < n_want && ids->id[at] == want[at])
        at++;
    for (size_t k = at; k < ids->n && k < at + 12; k++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %d", ids->id[k]);
    if (want)
        fail_msg(
            "%s, text %zu \"%s\": %zu ids, %zu expected; id %zu is %d, expected %d; from there:%s",
            name, i, ls_golden_show(text, x->s, x->n), ids->n, n_want, at,
            at < ids->n ? ids->id[at] : -1, at < n_want ? want[at] : -1, line);
    fail_msg(
        "%s, text %zu \"%s\": the digest of the ids differs (make.py show %s %zu); they are:%s",
        name, i, ls_golden_show(text, x->s, x->n), name, i, line);
}

static void expect_one(const char *name, size_t i, const ls_golden_text *x, const ls_ids *ids,
                       bytes *b) {
    const uint32_t digest = word(b);
    int32_t *want = NULL;
    size_t n_want = 0;
    size_t n_chars = 0;
    for (size_t k = 0; k < x->n; k++)
        n_chars += ((uint8_t)x->s[k] & 0xC0) != 0x80;
    if (i % FULL_EVERY == 0 && n_chars < 1000) {
        n_want = (size_t)uvarint(b);
        want = malloc((n_want + 1) * sizeof *want);
        assert_non_null(want);
        for (size_t k = 0; k < n_want; k++)
            want[k] = (int32_t)uvarint(b);
    }
    if (digest != ids_digest(ids))
        differs(name, i, x, ids, want, n_want);
    free(want);
}

/* ---- decoded texts --------------------------------------------------------------------------- */

static int32_t byte_id(const ls_tokenizer *tok, unsigned byte) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    return ls_tokenizer_find(tok, name);
}

static bool is_byte_name(const ls_tokenizer *tok, int32_t id) {
    for (unsigned b = 0; b < 256; b++)
        if (byte_id(tok, b) == id)
            return true;
    return false;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* make.py's rule. */
static size_t sequence(const ls_tokenizer *tok, uint32_t *state, int32_t *id) {
    static const char *const chars[] = {"\xC3\xA9", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "A",
                                        " ",        "\xCC\x81"};
    const bool fallback = byte_id(tok, 0xE2) >= 0 && byte_id(tok, 0x41) >= 0;
    const uint32_t length = 1 + draw(state) % 10;
    size_t n = 0;
    for (uint32_t i = 0; i < length; i++) {
        const uint32_t r = draw(state);
        const int32_t one = (int32_t)(r / 4 % (uint32_t)ls_tokenizer_size(tok));
        size_t n_bytes = 0;
        if (fallback && r % 4 == 0)
            for (const char *c = chars[r / 4 % 6]; *c; c++)
                id[n++] = byte_id(tok, (uint8_t)*c);
        else if (ls_tokenizer_bytes(tok, one, &n_bytes) && !is_byte_name(tok, one) &&
                 one != ls_tokenizer_find(tok, "\xEF\xAC\x81n") &&
                 one != ls_tokenizer_find(tok, "--x"))
            id[n++] = one;
    }
    return n;
}

static void expect_decodes(const ls_tokenizer *tok, const char *name, bytes *b) {
    uint32_t state = 99;
    for (size_t i = 0; i < N_DECODES; i++) {
        int32_t id[64];
        const size_t n = sequence(tok, &state, id);
        for (int skip = 0; skip < 2; skip++) {
            const uint32_t want = word(b);
            ls_text whole = {0}, pieces = {0};
            ls_err err = {0};
            char text[200];
            OK(ls_tokenizer_decode(tok, id, n, skip, &whole, &err), &err);
            if (fnv(0x811C9DC5u, whole.s, whole.n) != want)
                fail_msg("%s, decoded list %zu%s: \"%s\" has another digest than the reference's",
                         name, i, skip ? " without special tokens" : "",
                         ls_golden_show(text, whole.s, whole.n));
            /* as it comes: always whole characters, and joined the same */
            ls_stream s = ls_stream_begin(tok, skip);
            for (size_t k = 0; k < n; k++) {
                OK(ls_stream_push(&s, id[k], &pieces, &err), &err);
                assert_memory_equal(pieces.s, whole.s, pieces.n);
                assert_true(pieces.n == whole.n || ((uint8_t)whole.s[pieces.n] & 0xC0) != 0x80);
            }
            OK(ls_stream_flush(&s, &pieces, &err), &err);
            assert_int_equal(pieces.n, whole.n);
            ls_text_free(&whole);
            ls_text_free(&pieces);
        }
    }
}

size_t ls_golden_expect(const ls_tokenizer *tok, const char *name, unsigned flags, bool decodes) {
    char *path = ls_test_path("fixtures/tokenizers/%s.gold", name);
    size_t n = 0;
    char *file = ls_test_read(path, &n);
    bytes b = {(const uint8_t *)file, (const uint8_t *)file + n};
    ls_ids ids = {0};
    for (size_t i = 0; i < ls_golden.n; i++) {
        ls_err err = {0};
        ids.n = 0;
        OK(ls_tokenizer_encode(tok, ls_golden.text[i].s, ls_golden.text[i].n, flags, &ids, NULL,
                               &err),
           &err);
        expect_one(name, i, &ls_golden.text[i], &ids, &b);
    }
    if (decodes)
        expect_decodes(tok, name, &b);
    assert_true(b.p == b.end);
    ls_ids_free(&ids);
    free(file);
    free(path);
    return ls_golden.n;
}
