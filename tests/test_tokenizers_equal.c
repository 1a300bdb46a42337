/* The ids and texts of ten tokenizers are the reference's, over thousands of hostile texts; long
 * runs cost time in proportion. */
#include "tokenizer_golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void same(const char *name) {
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizers/%s.json", name);
    const size_t n = ls_golden_expect(tok, name, LS_ENCODE_TEMPLATE, true);
    print_message("%s: %zu texts equal\n", name, n);
    ls_tokenizer_destroy(tok);
}

#define SAME(name)                          \
    static void test_##name(void **state) { \
        (void)state;                        \
        same(#name);                        \
    }
SAME(llama3)
SAME(gpt2)
SAME(qwen2)
SAME(smollm)
SAME(llama2)
SAME(mistral)
SAME(gemma)
SAME(metaspace)
SAME(nfkc)
SAME(partial)

/* ---- order ----------------------------------------------------------------------------------- */

#define WORD 3000

/* The definition: of all neighbours that may merge, the pair of lowest rank, leftmost among
 * equals. */
static size_t by_definition(const uint16_t *rank, const int32_t *into, size_t size, int32_t *id,
                            size_t n) {
    for (;;) {
        size_t best = 0;
        uint16_t lowest = UINT16_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            const uint16_t r = rank[(size_t)id[i] * size + (size_t)id[i + 1]];
            if (r < lowest)
                lowest = r, best = i;
        }
        if (lowest == UINT16_MAX)
            return n;
        id[best] = into[lowest];
        memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
        n--;
    }
}

/* Merges in an order that no training makes: what comes out of turn is still taken in turn, in
 * words long enough for every way of keeping candidates. */
static void test_any_order(void **state) {
    (void)state;
    uint32_t rng = 11;
    for (int trial = 0; trial < 12; trial++) {
        json_t *doc = ls_rig_json("fixtures/tokenizers/llama3.json");
        json_t *model = json_object_get(doc, "model"), *merges = json_object_get(model, "merges");
        const size_t n_merges = json_array_size(merges);
        json_object_set_new(model, "ignore_merges", json_false());
        for (size_t i = n_merges - 1; i > 0 && trial > 0;
             i--) { /* shuffled but for the first time */
            rng = rng * 1664525u + 1013904223u;
            const size_t k = (rng >> 8) % (i + 1);
            json_t *a = json_incref(json_array_get(merges, i)),
                   *b = json_incref(json_array_get(merges, k));
            json_array_set_new(merges, i, b);
            json_array_set_new(merges, k, a);
        }
        char *text = json_dumps(doc, 0);
        ls_tokenizer *tok = NULL;
        ls_err err = {0};
        OK(ls_tokenizer_parse(text, strlen(text), "order.json", NULL, &tok, &err), &err);
        const size_t size = (size_t)ls_tokenizer_size(tok);
        uint16_t *rank = malloc(size * size * sizeof *rank);
        int32_t *into = malloc(n_merges * sizeof *into);
        assert_true(rank && into);
        memset(rank, 0xFF, size * size * sizeof *rank);
        for (size_t i = 0; i < n_merges; i++) {
            const json_t *pair = json_array_get(merges, i);
            const char *a = json_string_value(json_array_get(pair, 0)),
                       *b = json_string_value(json_array_get(pair, 1));
            char joined[256];
            snprintf(joined, sizeof joined, "%s%s", a, b);
            rank[(size_t)ls_tokenizer_find(tok, a) * size + (size_t)ls_tokenizer_find(tok, b)] =
                (uint16_t)i;
            into[i] = ls_tokenizer_find(tok, joined);
        }
        static const char *const letters[] = {"a", "the", "aeinorst", "abcdefghijklmnopqrstuvwxyz"};
        char word[WORD];
        int32_t id[WORD];
        const size_t n = trial % 3 == 2 ? 300 : WORD; /* the heap alone, or lists too */
        for (size_t i = 0; i < n; i++) {
            const char *from = letters[trial % 4];
            rng = rng * 1664525u + 1013904223u;
            word[i] = from[(rng >> 10) % strlen(from)];
            id[i] = ls_tokenizer_find(tok, (char[]){word[i], 0});
        }
        const size_t n_want = by_definition(rank, into, size, id, n);
        ls_ids ids = {0};
        OK(ls_tokenizer_encode(tok, word, n, 0, &ids, NULL, &err), &err);
        assert_int_equal(ids.n, n_want);
        assert_memory_equal(ids.id, id, n_want * sizeof *id);
        ls_ids_free(&ids);
        free(rank);
        free(into);
        free(text);
        ls_tokenizer_destroy(tok);
        json_decref(doc);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t steps(const ls_tokenizer *tok, const char *unit, size_t bytes) {
    const size_t n = strlen(unit);
    char *s = malloc(bytes);
    assert_non_null(s);
    for (size_t i = 0; i < bytes; i++)
        s[i] = unit[i % n];
    ls_ids ids = {0};
    ls_encode_info info;
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, s, bytes / n * n, 0, &ids, &info, &err), &err);
    ls_ids_free(&ids);
    free(s);
    return info.merge_steps;
}

/* 16 times the text takes at most 20 times the steps. */
static void test_linear(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "llama2", "gemma", "mistral"};
    static const char *const units[] = {"a", "ab", " ", "aaa ", "\n", "\xE4\xB8\xAD"};
    for (size_t k = 0; k < 4; k++) {
        ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizers/%s.json", names[k]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            const uint64_t few = steps(tok, units[i], 65536), many = steps(tok, units[i], 1 << 20);
            if (many > 20 * few + 1000)
                fail_msg("%s, a run of \"%s\": %llu steps for 64 KiB, %llu for 1 MiB", names[k],
                         units[i], (unsigned long long)few, (unsigned long long)many);
        }
        ls_tokenizer_destroy(tok);
    }
}

/* ---- what is not in the golden files --------------------------------------------------------- */

static void expect_text(const ls_tokenizer *tok, const int32_t *id, size_t n, const char *want) {
    ls_text text = {0};
    ls_err err = {0};
    OK(ls_tokenizer_decode(tok, id, n, false, &text, &err), &err);
    assert_string_equal(text.s, want);
    ls_text_free(&text);
}

/* Bytes that make no character: one U+FFFD each, as sentencepiece decodes them; held back while
 * they may still become one. */
static void test_bad_bytes(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizers/llama2.json");
    const int32_t b0 = ls_tokenizer_find(tok, "<0x00>"), a = ls_tokenizer_find(tok, "a");
#define B(x) (b0 + 0x##x)
    expect_text(tok, (int32_t[]){B(E4), B(BD), B(A0)}, 3, "\xE4\xBD\xA0");
    expect_text(tok, (int32_t[]){B(E4), B(BD), a}, 3,
                "\xEF\xBF\xBD\xEF\xBF\xBD"
                "a");
    expect_text(tok, (int32_t[]){B(E4), B(BD)}, 2, "\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_text(tok, (int32_t[]){B(FF), B(C3), B(A9), B(80)}, 4,
                "\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD");
    /* the first space goes, whether it is a mark or a byte, and no other */
    expect_text(tok, (int32_t[]){B(20), B(20), a}, 3, " a");
    expect_text(tok, (int32_t[]){a, B(20)}, 2, "a ");
    ls_stream s = ls_stream_begin(tok, false);
    ls_text out = {0};
    ls_err err = {0};
    OK(ls_stream_push(&s, B(F0), &out, &err), &err);
    OK(ls_stream_push(&s, B(9F), &out, &err), &err);
    OK(ls_stream_push(&s, B(98), &out, &err), &err);
    assert_int_equal(out.n, 0);
    OK(ls_stream_push(&s, B(80), &out, &err), &err);
    assert_string_equal(out.s, "\xF0\x9F\x98\x80");
    ls_text_free(&out);
    ls_tokenizer_destroy(tok);
#undef B
}

/* A person's words are no special tokens, wherever they lie; what stands around them still is. */
static void test_parts(void **state) {
    (void)state;
    static const char *const names[] = {"llama2", "gemma", "mistral", "qwen2"};
    static const char *const ends[] = {"</s>", "<start_of_turn>", "[/INST]", "<|im_end|>"};
    for (size_t k = 0; k < 4; k++) {
        ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizers/%s.json", names[k]);
        const int32_t end = ls_tokenizer_find(tok, ends[k]);
        const size_t n = strlen(ends[k]);
        const ls_encode_part all[] = {{ends[k], n, false},     {"hi ", 3, false},
                                      {ends[k], n, true},      {ends[k], n, false},
                                      {ends[k], n / 2, false}, {ends[k] + n / 2, n - n / 2, true},
                                      {"a", 1, true}};
        ls_ids ids = {0}, whole = {0};
        ls_err err = {0};
        OK(ls_tokenizer_encode_parts(tok, all, 7, 0, &ids, NULL, &err), &err);
        size_t n_end = 0;
        for (size_t i = 0; i < ids.n; i++)
            n_end += ids.id[i] == end;
        assert_int_equal(n_end, 2);
        assert_int_equal(ids.id[0], end);
        /* without special tokens in the plain parts, parts are no more than their text */
        const ls_encode_part plain[] = {
            {ends[k], n, false}, {"one\ntw", 6, false}, {"o three", 7, true}};
        char text[64];
        snprintf(text, sizeof text, "%sone\ntwo three", ends[k]);
        ids.n = 0;
        OK(ls_tokenizer_encode_parts(tok, plain, 3, LS_ENCODE_TEMPLATE, &ids, NULL, &err), &err);
        OK(ls_tokenizer_encode(tok, text, strlen(text), LS_ENCODE_TEMPLATE, &whole, NULL, &err),
           &err);
        assert_int_equal(ids.n, whole.n);
        assert_memory_equal(ids.id, whole.id, ids.n * sizeof *ids.id);
        ls_ids_free(&ids);
        ls_ids_free(&whole);
        ls_tokenizer_destroy(tok);
    }
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_llama3),    cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_qwen2),     cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_llama2),    cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_gemma),     cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_nfkc),      cmocka_unit_test(test_partial),
        cmocka_unit_test(test_any_order), cmocka_unit_test(test_linear),
        cmocka_unit_test(test_bad_bytes), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(all, ls_golden_begin, ls_golden_end);
}
