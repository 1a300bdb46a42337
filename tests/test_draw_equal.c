/* N-DRAW, bits: the lanes' Philox is Random123's, and both give the published answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <Random123/philox.h>

#include "cpu_bodies.h"
#include "draw.h"
#include "kernel_rig.h"

/* of every instruction set this processor has */
static const ls_cpu_bodies *bodies[KR_FORMS];
static int n_bodies;

/* Known answers of philox4x32-10 as published with Random123. */
static void published(void **state) {
    (void)state;
    static const struct {
        uint32_t at[4], key[2], want[4];
    } kat[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                {0xffffffff, 0xffffffff},
                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                {0xa4093822, 0x299f31d0},
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (int i = 0; i < 3; i++) {
        const ls_draw d = {
            {kat[i].key[0], kat[i].key[1]}, kat[i].at[1], kat[i].at[2], kat[i].at[3]};
        uint32_t word[4];
        for (int b = 0; b < n_bodies; b++) {
            /* tokens have 32 bits, so the counter of token 4c is reached for c below 2^30 only */
            if (kat[i].at[0] < 1u << 30) {
                bodies[b]->words(&d, kat[i].at[0] * 4, word, 4);
                assert_memory_equal(word, kat[i].want, sizeof word);
            }
        }
        const philox4x32_ctr_t at = {{kat[i].at[0], kat[i].at[1], kat[i].at[2], kat[i].at[3]}};
        const philox4x32_key_t key = {{kat[i].key[0], kat[i].key[1]}};
        assert_memory_equal(philox4x32(at, key).v, kat[i].want, sizeof word);
    }
}

static void lanes(void **state) {
    (void)state;
    enum { N = 1003 };
    uint32_t word[N];
    for (uint32_t i = 0; i < 50; i++) {
        const uint32_t first = (i * 0x9E3779B9u) / 4 * 4 % 0x7fff0000u;
        const ls_draw d =
            ls_draw_key(0x123456789abcdefull * (i + 1), i * 77, i * i, LS_DRAW_TEST, i << 8);
        for (int b = 0; b < n_bodies; b++) {
            memset(word, 0, sizeof word);
            bodies[b]->words(&d, first, word, N);
            for (uint32_t k = 0; k < N; k++)
                assert_int_equal(word[k], ls_draw_word(&d, first + k));
        }
    }
}

/* Every part of the key reaches the word. */
static void keys(void **state) {
    (void)state;
    const ls_draw d = ls_draw_key(1, 2, 3, LS_DRAW_TOKEN, 0);
    const ls_draw other[] = {ls_draw_key(2, 2, 3, LS_DRAW_TOKEN, 0),
                             ls_draw_key(1 + (1ull << 32), 2, 3, LS_DRAW_TOKEN, 0),
                             ls_draw_key(1, 3, 3, LS_DRAW_TOKEN, 0),
                             ls_draw_key(1, 2, 4, LS_DRAW_TOKEN, 0),
                             ls_draw_key(1, 2, 3, LS_DRAW_DRAFT, 0),
                             ls_draw_key(1, 2, 3, LS_DRAW_TOKEN, 5)};
    for (int i = 0; i < 6; i++)
        assert_true(ls_draw_word(&d, 9) != ls_draw_word(&other[i], 9));
    assert_true(ls_draw_word(&d, 9) != ls_draw_word(&d, 10));
    for (uint32_t t = 0; t < 100000; t++) {
        const float u = ls_draw_uniform(&d, t);
        assert_true(u > 0.0f && u < 1.0f);
        assert_true((double)u == ((double)(ls_draw_word(&d, t) >> 9) + 0.5) / 8388608.0);
    }
}

static int pick(void **state) {
    (void)state;
    static const ls_simd kinds[KR_FORMS] = {LS_SIMD_PLAIN, LS_SIMD_AVX2, LS_SIMD_AVX512};
    for (int i = 0; i < KR_FORMS; i++)
        if (kr_bodies(kinds[i]))
            bodies[n_bodies++] = kr_bodies(kinds[i]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(published), cmocka_unit_test(lanes),
                                       cmocka_unit_test(keys)};
    return cmocka_run_group_tests(tests, pick, NULL);
}
