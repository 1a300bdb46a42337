/* Blocks of every type, widened: the bits the reference implementation gives (fixtures/gguf). */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant.h"

static const struct {
    uint32_t type;
    const char *name;
} built[] = {{LS_GGML_F32, "F32"},   {LS_GGML_F16, "F16"},   {LS_GGML_BF16, "BF16"},
             {LS_GGML_Q8_0, "Q8_0"}, {LS_GGML_Q4_0, "Q4_0"}, {LS_GGML_Q4_1, "Q4_1"},
             {LS_GGML_Q5_0, "Q5_0"}, {LS_GGML_Q5_1, "Q5_1"}, {LS_GGML_Q2_K, "Q2_K"},
             {LS_GGML_Q3_K, "Q3_K"}, {LS_GGML_Q4_K, "Q4_K"}, {LS_GGML_Q5_K, "Q5_K"},
             {LS_GGML_Q6_K, "Q6_K"}};
#define N_BUILT (sizeof built / sizeof *built)

static ls_gguf *open_quant(void) {
    char *path = ls_test_path("fixtures/gguf/quant.gguf");
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_open(path, &g, &err), &err);
    free(path);
    return g;
}

static const ls_gguf_tensor *wide_of(const ls_gguf *g, const char *name) {
    char key[32];
    snprintf(key, sizeof key, "%s.f32", name);
    return ls_gguf_tensor_find(g, key);
}

static void test_every_type(void **state) {
    (void)state;
    ls_gguf *g = open_quant();
    for (size_t i = 0; i < N_BUILT; i++) {
        const ls_gguf_tensor *t = ls_gguf_tensor_find(g, built[i].name),
                             *want = wide_of(g, built[i].name);
        assert_true(t && want && t->type == built[i].type && want->type == LS_GGML_F32);
        assert_true(t->n_elems >= 256 && t->n_elems == want->n_elems);
        const size_t n = (size_t)t->n_elems;
        float *got = malloc((n + 1) * sizeof *got), guard = -77.5f;
        assert_non_null(got);
        got[n] = guard;
        ls_err err = {0};
        OK(ls_quant_widen(t->type, t->data, t->bytes, got, n, &err), &err);
        for (size_t j = 0; j < n; j++)
            if (memcmp(&got[j], want->data + j * 4, 4) != 0) {
                float w;
                memcpy(&w, want->data + j * 4, 4);
                fail_msg("%s: element %zu is %a, the reference says %a", built[i].name, j,
                         (double)got[j], (double)w);
            }
        assert_memory_equal(&got[n], &guard, sizeof guard);
        free(got);
    }
    ls_gguf_close(g);
}

/* Every bit of a block moves an element: no field is skipped. */
static void test_every_bit_counts(void **state) {
    (void)state;
    static const uint8_t half[N_BUILT][2] = {
        /* where the f16 fields lie; 255: no such field */
        {255, 255}, {255, 255}, {255, 255}, {0, 255}, {0, 255}, {0, 2},    {0, 255},
        {0, 2},     {80, 82},   {108, 255}, {0, 2},   {0, 2},   {208, 255}};
    for (size_t i = 0; i < N_BUILT; i++) {
        uint32_t block = 0, bytes = 0;
        assert_string_equal(ls_ggml_type(built[i].type, &block, &bytes), built[i].name);
        float a[256], b[256];
        uint8_t x[256];
        ls_err err = {0};
        memset(x, 0x55, sizeof x);
        for (int j = 0; j < 2; j++)
            if (half[i][j] != 255) { /* 1 and 0.5 */
                x[half[i][j]] = 0;
                x[half[i][j] + 1] = j ? 0x38 : 0x3c;
            }
        OK(ls_quant_widen(built[i].type, x, bytes, a, block, &err), &err);
        for (size_t bit = 0; bit < bytes * 8u; bit++) {
            x[bit / 8] ^= (uint8_t)(1u << bit % 8);
            OK(ls_quant_widen(built[i].type, x, bytes, b, block, &err), &err);
            if (memcmp(a, b, block * sizeof *a) == 0)
                fail_msg("%s: bit %zu of byte %zu moves nothing", built[i].name, bit % 8, bit / 8);
            x[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void test_sizes(void **state) {
    (void)state;
    float y[512];
    uint8_t x[512] = {0};
    for (size_t i = 0; i < N_BUILT; i++) {
        uint32_t block = 0, bytes = 0;
        ls_err err = {0};
        assert_true(ls_quant_known(built[i].type));
        ls_ggml_type(built[i].type, &block, &bytes);
        OK(ls_quant_widen(built[i].type, x, 0, y, 0, &err), &err);
        OK(ls_quant_widen(built[i].type, x, bytes, y, block, &err), &err);
        y[0] = 5;
        assert_int_equal(ls_quant_widen(built[i].type, x, bytes - 1, y, block, &err), LS_ERR_SHAPE);
        assert_int_equal(ls_quant_widen(built[i].type, x, bytes + 1, y, block, &err), LS_ERR_SHAPE);
        assert_int_equal(ls_quant_widen(built[i].type, x, bytes, y, block + 1, &err), LS_ERR_SHAPE);
        assert_int_equal(ls_quant_widen(built[i].type, x, bytes, y, 2 * block, &err), LS_ERR_SHAPE);
        ls_assert_message(&err, built[i].name, NULL);
        assert_true(y[0] == 5); /* untouched */
    }
    static const uint32_t others[] = {4,  5,  9,  15, 16, 20,   23,        24,
                                      28, 31, 39, 41, 42, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ls_err err = {0};
        assert_false(ls_quant_known(others[i]));
        assert_int_equal(ls_quant_widen(others[i], x, 0, y, 0, &err), LS_ERR_INPUT);
        ls_assert_message(&err, "cannot be widened", NULL);
    }
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_every_type),
                                     cmocka_unit_test(test_every_bit_counts),
                                     cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(all, begin, NULL);
}
