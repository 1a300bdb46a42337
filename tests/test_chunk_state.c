/* The chunk rules: chunks cover the row, counts stay within their bounds, edges behave as said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend.h"

static int32_t ceil_div(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a + b - 1) / b);
}

static void cover(void **state) {
    (void)state;
    static const int32_t mins[] = {1, 32, 48, 100, 1500, 2048}, maxs[] = {1, 3, 64, 1024};
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 6; i++)
            for (int k = 0; k < 4; k++) {
                const ls_chunk_rule rule = {(ls_chunk_kind)kind, mins[i], maxs[k]};
                int32_t most = 0;
                assert_int_equal(ls_chunk_check(rule, NULL), LS_OK);
                assert_int_equal(ls_chunk_len(rule, 0), 0);
                assert_int_equal(ls_chunk_count(rule, 0), 0);
                assert_int_equal(ls_chunk_bound(rule, 0), 0);
                for (int32_t L = 1; L < 12000; L += L < 5000 ? 1 : 17) {
                    const int32_t chunk = ls_chunk_len(rule, L), n = ls_chunk_count(rule, L);
                    assert_true(chunk >= 1 && n == ceil_div(L, chunk));
                    most = n > most ? n : most;
                    assert_true(most <= ls_chunk_bound(rule, L));
                    if (kind == LS_CHUNK_SPLITS) {
                        assert_int_equal(chunk, ceil_div(L, maxs[k]));
                        assert_true(n <= maxs[k]);
                    } else {
                        assert_true(chunk <= LS_CHUNK_MAX && chunk >= mins[i]);
                        if (n > maxs[k]) /* only because a chunk can grow no more */
                            assert_true(kind == LS_CHUNK_EVEN ? chunk == LS_CHUNK_MAX
                                                              : chunk > LS_CHUNK_MAX / 2);
                    }
                    if (kind == LS_CHUNK_EVEN && chunk < LS_CHUNK_MAX)
                        assert_int_equal(
                            chunk, ceil_div(L, maxs[k]) > mins[i] ? ceil_div(L, maxs[k]) : mins[i]);
                    if (kind == LS_CHUNK_DOUBLING) {
                        int32_t c = chunk;
                        while (c > mins[i] && c % 2 == 0)
                            c /= 2;
                        assert_int_equal(c, mins[i]);
                        if (chunk > mins[i]) /* half as long would have been too many */
                            assert_true(ceil_div(L, chunk / 2) > maxs[k]);
                    }
                }
            }
}

static void largest(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* no overflow at the largest length */
        const ls_chunk_rule rule = {(ls_chunk_kind)kind, 32, 64};
        assert_true(ls_chunk_count(rule, INT32_MAX) >= 1);
        assert_true(ls_chunk_bound(rule, INT32_MAX) >= ls_chunk_count(rule, INT32_MAX));
    }
}

static void refused(void **state) {
    (void)state;
    static const ls_chunk_rule bad[] = {{(ls_chunk_kind)3, 32, 64}, {LS_CHUNK_EVEN, 0, 64},
                                        {LS_CHUNK_EVEN, 2049, 64},  {LS_CHUNK_EVEN, 32, 0},
                                        {LS_CHUNK_DOUBLING, -1, 1}, {LS_CHUNK_SPLITS, 0, 0},
                                        {LS_CHUNK_SPLITS, 0, 1025}};
    for (int i = 0; i < 7; i++) {
        ls_err err = {0};
        assert_int_equal(ls_chunk_check(bad[i], &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, "chunk rule"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cover), cmocka_unit_test(largest),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
