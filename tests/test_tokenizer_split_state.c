/* How text is cut and merged, against definitions; and that the work grows with the text, not its
 * square. */
#include "tokenizer_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

/* ---- merging --------------------------------------------------------------------------------- */

/* The definition, word for word: of all neighbours that may merge, the pair of lowest rank,
 * leftmost among equals, until none is left. Parts are strings; the list of merges is searched from
 * its beginning. */
static size_t merge_by_definition(const json_t *merges, char part[][16], size_t n) {
    for (size_t r = 0; r < json_array_size(merges);) {
        const json_t *m = json_array_get(merges, r);
        const char *a = json_string_value(json_array_get(m, 0));
        const char *b = json_string_value(json_array_get(m, 1));
        size_t i = 0;
        while (i + 1 < n && (strcmp(part[i], a) != 0 || strcmp(part[i + 1], b) != 0))
            i++;
        if (i + 1 >= n) {
            r++;
            continue;
        }
        strcat(part[i], b);
        memmove(part + i + 1, part + i + 2, (n - i - 2) * sizeof *part);
        n--;
        r = 0; /* the new part may make a pair of any rank */
    }
    return n;
}

/* Words on both sides of the length at which the method changes, from letters that merge a lot. */
static void test_merge_order(void **state) {
    (void)state;
    json_t *file = ls_rig_json("fixtures/tokenizer/gpt2.json");
    const json_t *merges = json_object_get(json_object_get(file, "model"), "merges");
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/gpt2.json");
    static const char *const alphabet[] = {"els", "thein", "abcdefghijklmnopqrstuvwxyz", "oar",
                                           "l"};
    uint32_t rng = 3;
    size_t n_merged = 0;
    for (int trial = 0; trial < 400; trial++) {
        const char *letters = alphabet[trial % 5];
        size_t n = 1 + (size_t)trial / 5;
        char text[128] = "", part[128][16];
        for (size_t i = 0; i < n; i++) {
            rng = rng * 1664525u + 1013904223u;
            text[i] = letters[(rng >> 10) % strlen(letters)];
            snprintf(part[i], sizeof part[i], "%c", text[i]);
        }
        size_t m = merge_by_definition(merges, part, n);
        ls_ids ids = {0};
        ls_err err = {0};
        OK(ls_tokenizer_encode(tok, text, n, 0, &ids, NULL, &err), &err);
        for (size_t i = 0; i < m && i < ids.n; i++)
            if (ids.id[i] != ls_tokenizer_find(tok, part[i]))
                fail_msg("%s: token %zu is %d, expected \"%s\"", text, i, ids.id[i], part[i]);
        assert_int_equal(ids.n, m);
        n_merged += n - m;
        ls_ids_free(&ids);
    }
    assert_true(n_merged > 2000); /* there was something to get wrong */
    ls_tokenizer_destroy(tok);
    json_decref(file);
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* A vocabulary in which "hello" is one token, with one splitter before the bytes. */
static ls_tokenizer *with_split(const char *pattern, const char *behavior, bool invert) {
    json_t *file = ls_rig_json("cases/tok/merges_as_strings.json");
    json_t *chain = json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b}]}", "type", "Sequence",
                              "pretokenizers", "type", "Split", "pattern", "Regex", pattern,
                              "behavior", behavior, "invert", (int)invert, "type", "ByteLevel",
                              "add_prefix_space", 0, "use_regex", 0);
    assert_non_null(chain);
    json_object_set_new(file, "pre_tokenizer", chain);
    char *text = json_dumps(file, 0);
    json_decref(file);
    ls_tokenizer *tok = NULL;
    ls_err err = {0};
    OK(ls_tokenizer_parse(text, strlen(text), "split.json", NULL, &tok, &err), &err);
    free(text);
    return tok;
}

/* What the reference makes of "hello" (104 101 108 108 111; he 256, lo 257, hel 258, hello 259). */
static void test_behaviors(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *behavior;
        bool invert;
        size_t n;
        int32_t id[5];
    } all[] = {
        {"l", "Removed", false, 2, {256, 111}},
        {"l", "Removed", true, 2, {108, 108}},
        {"l", "Isolated", false, 4, {256, 108, 108, 111}},
        {"l", "Isolated", true, 4, {256, 108, 108, 111}},
        {"l", "MergedWithPrevious", false, 3, {258, 108, 111}},
        {"l", "MergedWithPrevious", true, 3, {256, 108, 257}},
        {"l", "MergedWithNext", false, 3, {256, 108, 257}},
        {"l", "MergedWithNext", true, 3, {258, 108, 111}},
        {"l", "Contiguous", false, 4, {256, 108, 108, 111}},
        {"l", "Contiguous", true, 4, {256, 108, 108, 111}},
        {"h|e", "Removed", false, 2, {108, 257}},
        {"h|e", "Removed", true, 2, {104, 101}},
        {"h|e", "Isolated", false, 4, {104, 101, 108, 257}},
        {"h|e", "Isolated", true, 4, {104, 101, 108, 257}},
        {"h|e", "MergedWithPrevious", false, 4, {104, 101, 108, 257}},
        {"h|e", "MergedWithPrevious", true, 4, {104, 101, 108, 257}},
        {"h|e", "MergedWithNext", false, 4, {104, 101, 108, 257}},
        {"h|e", "MergedWithNext", true, 4, {104, 101, 108, 257}},
        {"h|e", "Contiguous", false, 3, {256, 108, 257}},
        {"h|e", "Contiguous", true, 3, {256, 108, 257}},
        {"x*", "Removed", false, 5, {104, 101, 108, 108, 111}},
        {"x*", "Removed", true, 0, {0}},
        {"x*", "Isolated", false, 5, {104, 101, 108, 108, 111}},
        {"x*", "Isolated", true, 5, {104, 101, 108, 108, 111}},
        {"x*", "MergedWithPrevious", false, 5, {104, 101, 108, 108, 111}},
        {"x*", "MergedWithPrevious", true, 5, {104, 101, 108, 108, 111}},
        {"x*", "MergedWithNext", false, 5, {104, 101, 108, 108, 111}},
        {"x*", "MergedWithNext", true, 5, {104, 101, 108, 108, 111}},
        {"x*", "Contiguous", false, 5, {104, 101, 108, 108, 111}},
        {"x*", "Contiguous", true, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "Removed", false, 4, {101, 108, 108, 111}},
        {"h|(?=o)", "Removed", true, 1, {104}},
        {"h|(?=o)", "Isolated", false, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "Isolated", true, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "MergedWithPrevious", false, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "MergedWithPrevious", true, 3, {258, 108, 111}},
        {"h|(?=o)", "MergedWithNext", false, 3, {258, 108, 111}},
        {"h|(?=o)", "MergedWithNext", true, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "Contiguous", false, 5, {104, 101, 108, 108, 111}},
        {"h|(?=o)", "Contiguous", true, 5, {104, 101, 108, 108, 111}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_tokenizer *tok = with_split(all[i].pattern, all[i].behavior, all[i].invert);
        ls_expect_ids(tok, "hello", 5, 0, all[i].id, all[i].n);
        ls_tokenizer_destroy(tok);
    }
}

/* Is the character removed by a splitter that removes this pattern? */
static bool removed(const ls_tokenizer *tok, uint32_t cp) {
    uint8_t text[4];
    size_t n = ls_utf8_put(text, cp);
    ls_ids ids = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, (const char *)text, n, 0, &ids, NULL, &err), &err);
    bool none = ids.n == 0;
    assert_true(none || ids.n == n);
    ls_ids_free(&ids);
    return none;
}

/* Classes mean what they mean to the reference, inside and outside of brackets: white space is
 * Unicode's White_Space, and a script is not what else is used with it. */
static void test_classes(void **state) {
    (void)state;
    static const char *const patterns[] = {"\\s", "[\\s]", "[^\\S]", "\\S", "[\\S]", "[^\\s]"};
    static const struct {
        uint32_t cp;
        bool space;
    } all[] = {{0x08, false},   {0x09, true},    {0x0D, true},    {0x0E, false},    {0x1C, false},
               {0x1F, false},   {0x20, true},    {0x21, false},   {0x85, true},     {0xA0, true},
               {0x1680, true},  {0x180E, false}, {0x1FFF, false}, {0x2000, true},   {0x200A, true},
               {0x200B, false}, {0x2028, true},  {0x2029, true},  {0x202F, true},   {0x205F, true},
               {0x2060, false}, {0x3000, true},  {0xFEFF, false}, {0x10FFFF, false}};
    for (size_t k = 0; k < 6; k++) {
        ls_tokenizer *tok = with_split(patterns[k], "Removed", false);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (removed(tok, all[i].cp) != (all[i].space == (k < 3)))
                fail_msg("%s and U+%04X", patterns[k], (unsigned)all[i].cp);
        ls_tokenizer_destroy(tok);
    }
    ls_tokenizer *tok = with_split("\\p{Han}", "Removed", false);
    assert_true(removed(tok, 0x4E2D) && removed(tok, 0x3005));
    assert_false(removed(tok, 0x3001) || removed(tok, 0x30FC) || removed(tok, 'a'));
    ls_tokenizer_destroy(tok);
}

/* ---- work ------------------------------------------------------------------------------------ */

static uint64_t steps_for(const ls_tokenizer *tok, const char *unit, size_t n, bool exact) {
    size_t u = strlen(unit);
    char *text = malloc(n + u);
    assert_non_null(text);
    for (size_t i = 0; i < n; i += u)
        memcpy(text + i, unit, u);
    ls_ids ids = {0};
    ls_err err = {0};
    ls_encode_info info;
    OK(ls_tokenizer_encode(tok, text, n / u * u, 0, &ids, &info, &err), &err);
    ls_text back = {0};
    OK(ls_tokenizer_decode(tok, ids.id, ids.n, false, &back, &err), &err);
    if (exact) {
        assert_int_equal(back.n, n / u * u);
        assert_memory_equal(back.s, text, back.n);
    }
    ls_text_free(&back);
    ls_ids_free(&ids);
    free(text);
    return info.merge_steps;
}

/* A few candidates a byte, whatever the length: counted, not timed. */
static void test_linear(void **state) {
    (void)state;
    static const char *const units[] = {"a", "ab", " ", "\n", "'", "the ", "aA1 ", "e\xCC\x81"};
    static const char *const names[] = {"gpt2", "llama3", "digits"};
    for (size_t k = 0; k < 3; k++) {
        ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/%s.json", names[k]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            uint64_t small = steps_for(tok, units[i], 1 << 14, k < 2); /* the third adds spaces */
            uint64_t large = steps_for(tok, units[i], 1 << 20, k < 2);
            if (large > 5u << 20 || large > small * 66 + 100)
                fail_msg("%s, \"%s\": %llu steps for 16 KiB, %llu for 1 MiB", names[k], units[i],
                         (unsigned long long)small, (unsigned long long)large);
        }
        ls_tokenizer_destroy(tok);
    }
}

/* Marks in the worst order for normalization: every class after a higher one. */
static void test_many_marks(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/qwen2.json");
    const size_t n = 1 << 18;
    char *text = malloc(4 * n + 1), *sorted = malloc(4 * n + 1);
    assert_true(text && sorted);
    text[0] = sorted[0] = 'q';
    for (size_t i = 0; i < n; i++) { /* U+0301 is of class 230, U+0323 of 220 */
        memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\xA3", 4);
        memcpy(sorted + 1 + 2 * i, "\xCC\xA3", 2);
        memcpy(sorted + 1 + 2 * n + 2 * i, "\xCC\x81", 2);
    }
    ls_ids a = {0}, b = {0};
    ls_err err = {0};
    OK(ls_tokenizer_encode(tok, text, 4 * n + 1, 0, &a, NULL, &err), &err);
    OK(ls_tokenizer_encode(tok, sorted, 4 * n + 1, 0, &b, NULL, &err), &err);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
    ls_ids_free(&a);
    ls_ids_free(&b);
    free(text);
    free(sorted);
    ls_tokenizer_destroy(tok);
}

/* One tokenizer, four threads at once: each gets what one alone got. */
typedef struct encode_job {
    const ls_tokenizer *tok;
    const char *text;
    size_t n;
    ls_ids ids;
} encode_job;

static void *encode_thread(void *arg) {
    encode_job *j = arg;
    for (int i = 0; i < 20; i++) {
        j->ids.n = 0;
        if (ls_tokenizer_encode(j->tok, j->text, j->n, 0, &j->ids, NULL, NULL) != LS_OK)
            j->ids.n = 0;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    ls_tokenizer *tok = ls_rig_tokenizer(false, "fixtures/tokenizer/qwen2.json");
    char *path = ls_test_path("fixtures/tokenizer/README.md");
    size_t n = 0;
    char *text = ls_test_read(path, &n);
    encode_job alone = {tok, text, n, {0}}, job[4];
    pthread_t thread[4];
    encode_thread(&alone);
    assert_true(alone.ids.n > 100);
    for (int i = 0; i < 4; i++) {
        job[i] = (encode_job){tok, text, n, {0}};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_thread, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].ids.n, alone.ids.n);
        assert_memory_equal(job[i].ids.id, alone.ids.id, alone.ids.n * sizeof(int32_t));
        ls_ids_free(&job[i].ids);
    }
    ls_ids_free(&alone.ids);
    free(text);
    free(path);
    ls_tokenizer_destroy(tok);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_merge_order), cmocka_unit_test(test_behaviors),
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_linear),
        cmocka_unit_test(test_many_marks),  cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(all, begin, NULL);
}
