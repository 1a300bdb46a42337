/* GGUF files that are cut, damaged or forged: one line that says what and where, never a fault. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_config.h"
#include "gguf_rig.h"
#include "gguf_view.h"
#include "model.h"

static const uint64_t two[1] = {2};
static const float pair[2] = {1, 2};

/* A copy in memory of exactly n bytes, so that the address sanitizer sees a read past them. With
 * `deep`, also as a model. */
static ls_status parse_copy(const void *data, size_t n, bool deep, ls_err *err) {
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    if (n > 0)
        memcpy(exact, data, n);
    ls_gguf *g = NULL;
    ls_config c;
    ls_gguf_view v = {0};
    ls_status s = ls_gguf_parse(exact, n, "made.gguf", &g, err);
    if (s == LS_OK && deep)
        s = ls_gguf_config_read(g, &c, err);
    if (s == LS_OK && deep)
        s = ls_gguf_view_make(g, &c, false, &v, err);
    ls_gguf_view_free(&v);
    ls_gguf_close(g);
    free(exact);
    return s;
}

static void refuse_bytes(gguf_bytes f, bool deep, const char *a, const char *b) {
    ls_err err = {0};
    const ls_status s = parse_copy(f.p, f.n, deep, &err);
    if (s != LS_ERR_INPUT)
        fail_msg("accepted, or another error (%s); \"%s\" was expected", err.msg, b);
    ls_assert_message(&err, "made.gguf", a, b, NULL);
}

/* The file of m, refused with a message that holds a and b; m is used up. */
static void refuse(ls_gguf_made *m, bool deep, const char *a, const char *b) {
    gguf_bytes f = gguf_file(m);
    refuse_bytes(f, deep, a, b);
    free(f.p);
    gguf_free(m);
}

static void accept(ls_gguf_made *m, bool deep) {
    gguf_bytes f = gguf_file(m);
    ls_err err = {0};
    OK(parse_copy(f.p, f.n, deep, &err), &err);
    free(f.p);
    gguf_free(m);
}

static ls_gguf_made small(void) {
    ls_gguf_made m = {0};
    gguf_key_u32(&m, "some.key", 7);
    gguf_key_str(&m, "some.text", "hello");
    gguf_tensor(&m, "one", 1, two, 0, pair, sizeof pair);
    gguf_tensor(&m, "other", 1, two, 0, pair, sizeof pair);
    return m;
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Bytes up to the end of the last tensor: cut before that, and something is missing. */
static size_t needed(const char *data, size_t n) {
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_parse((const uint8_t *)data, n, "whole", &g, &err), &err);
    size_t end = 0;
    for (size_t i = 0; i < ls_gguf_count(g); i++) {
        const ls_gguf_tensor *t = ls_gguf_at(g, i);
        const size_t e = (size_t)(t->data - (const uint8_t *)data) + t->bytes;
        end = e > end ? e : end;
    }
    ls_gguf_close(g);
    return end;
}

static void test_every_cut(void **state) {
    (void)state;
    static const char *const names[] = {"small", "quant", "tiny-q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = ls_test_path("fixtures/gguf/%s.gguf", names[i]);
        size_t n = 0;
        char *data = ls_test_read(path, &n);
        const size_t end = needed(data, n);
        assert_true(end <= n && n - end < 32);
        for (size_t cut = 0; cut < end; cut++) {
            ls_err err = {0};
            if (parse_copy(data, cut, false, &err) != LS_ERR_INPUT)
                fail_msg("%s cut at %zu was accepted", names[i], cut);
            ls_assert_message(&err, "made.gguf: ", NULL);
        }
        for (size_t cut = end; cut <= n; cut++) { /* only padding is missing */
            ls_err err = {0};
            OK(parse_copy(data, cut, false, &err), &err);
        }
        free(data);
        free(path);
    }
}

/* Any one byte changed: a verdict either way, and no fault. */
static void every_byte(const char *name, size_t most, bool deep, int step) {
    char *path = ls_test_path("fixtures/gguf/%s.gguf", name);
    size_t n = 0, refused = 0;
    char *data = ls_test_read(path, &n);
    const size_t last = n < most ? n : most;
    for (size_t i = 0; i < last; i++)
        for (int v = 0; v < 256; v += step) {
            const char was = data[i];
            data[i] = (char)v;
            ls_err err = {0};
            const ls_status s = parse_copy(data, n, deep, &err);
            if (s != LS_OK && s != LS_ERR_INPUT)
                fail_msg("%s, byte %zu as %d: %s", name, i, v, err.msg);
            if (s != LS_OK)
                ls_assert_message(&err, "made.gguf: ", NULL);
            refused += s != LS_OK;
            data[i] = was;
        }
    assert_true(refused > last); /* most of these bytes matter */
    free(data);
    free(path);
}

static void test_every_byte(void **state) {
    (void)state;
    every_byte("small", 4096, false, 5);
    every_byte("tiny-q8_0", 2000, true, 51);
}

/* ---- the carried cases ----------------------------------------------------------------------- */

static void verdict(const char *path, const char *expect, const char *why) {
    size_t n = 0;
    char *data = ls_test_read(path, &n);
    ls_err err = {0};
    const bool good = strcmp(expect, "accept") == 0;
    /* two are sound as files, and no models */
    const bool deep = strstr(path, "head_count") || strstr(path, "block_count");
    const ls_status s = parse_copy(data, n, deep, &err);
    if ((s == LS_OK) != good)
        fail_msg("%s: %s, expected %s (%s)", path, s == LS_OK ? "accepted" : err.msg, expect, why);
    if (s != LS_OK)
        ls_assert_message(&err, "made.gguf: ", NULL);
    free(data);
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("gguf/", 30, verdict);
    /* refused for what they say, and not for what else they lack */
    static const struct {
        const char *name, *needle;
    } all[] = {{"bad_version_1", "version 1"},
               {"bad_version_big_endian", "big-endian"},
               {"bad_n_dims_0", "has 0 dimensions"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *path = ls_test_path("cases/gguf/%s.gguf", all[i].name);
        ls_err err = {0};
        size_t n = 0;
        char *data = ls_test_read(path, &n);
        assert_int_equal(parse_copy(data, n, true, &err), LS_ERR_INPUT);
        ls_assert_message(&err, all[i].needle, NULL);
        free(data);
        free(path);
    }
    char *path = ls_test_path("cases/gguf/good_one_tensor.gguf");
    static const float want[4] = {1, 2, 3, 4};
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_open(path, &g, &err), &err);
    assert_int_equal(ls_gguf_count(g), 1);
    assert_int_equal(ls_gguf_at(g, 0)->bytes, sizeof want);
    assert_memory_equal(ls_gguf_at(g, 0)->data, want, sizeof want);
    ls_gguf_close(g);
    free(path);
}

/* ---- forged counts and lengths --------------------------------------------------------------- */

static void test_header(void **state) {
    (void)state;
    static const struct {
        size_t at, n;
        uint64_t v;
        const char *needle;
    } all[] = {
        {0, 4, 0x46554746, "does not begin with GGUF"},
        {4, 4, 1, "version 1; versions 2 and 3"},
        {4, 4, 4, "version 4"},
        {4, 4, 3u << 24, "big-endian"},
        {8, 8, 3, ""}, /* tensors: one more than there are */
        {8, 8, 1000, "1000 tensors"},
        {8, 8, UINT64_MAX, "tensors in a file of"},
        {8, 8, UINT64_MAX / 24 + 1, "tensors in a file of"},
        {8, 8, UINT64_C(1) << 63, "tensors in a file of"},
        {16, 8, UINT64_MAX, "keys and"},
        {16, 8, UINT64_MAX / 13 + 1, "keys and"},
        {16, 8, 3, ""},                  /* keys: the tensor table read as one */
        {16, 8, 1, ""},                  /* the last key read as a tensor */
        {24, 8, UINT64_MAX, "a key of"}, /* the length of the first key */
        {24, 8, 0, "a key of 0 bytes"},
        {24, 8, 1000, "is the file cut"},
        {40, 4, 13, "some.key: 13 is no type of value"},
        {40, 4, UINT32_MAX, "no type of value"},
        {40, 4, 9, "some.key: "}, /* an array of what follows */
        {40, 4, 8, "some.key: a string of"},
    };
    ls_gguf_made m = small();
    gguf_bytes f = gguf_file(&m);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gguf_bytes g = {0};
        gguf_put(&g, f.p, f.n);
        for (size_t j = 0; j < all[i].n; j++)
            g.p[all[i].at + j] = (uint8_t)(all[i].v >> 8 * j);
        refuse_bytes(g, false, "", all[i].needle);
        free(g.p);
    }
    gguf_bytes g = {0}; /* a first key that ends one byte past the file */
    gguf_put(&g, f.p, f.n);
    for (size_t j = 0; j < 8; j++)
        g.p[24 + j] = (uint8_t)((f.n - 32 + 1) >> 8 * j);
    refuse_bytes(g, false, "a key of", "are left in the file");
    free(g.p);
    ls_err err = {0};
    OK(parse_copy(f.p, f.n, false, &err), &err); /* the whole is good: the loop could have failed */
    free(f.p);
    gguf_free(&m);
    refuse_bytes((gguf_bytes){0}, false, "", "does not begin with GGUF");
}

static gguf_bytes array(uint32_t elem, uint64_t n, size_t n_bytes) {
    gguf_bytes b = {0};
    gguf_put_u(&b, elem, 4);
    gguf_put_u(&b, n, 8);
    for (size_t i = 0; i < n_bytes; i++)
        gguf_put_u(&b, 0, 1);
    return b;
}

static void refuse_array(uint32_t elem, uint64_t n, size_t n_bytes, const char *needle) {
    ls_gguf_made m = {0};
    gguf_bytes b = array(elem, n, n_bytes);
    gguf_key(&m, "an.array", MADE_ARRAY, b.p, b.n);
    refuse(&m, false, "an.array", needle);
    free(b.p);
}

static void test_arrays(void **state) {
    (void)state;
    refuse_array(MADE_U32, UINT64_MAX, 40, "18446744073709551615 u32 values");
    refuse_array(MADE_U32, UINT64_MAX / 4 + 2, 40, "u32 values");
    refuse_array(12, UINT64_C(1) << 61, 40, "f64 values");
    refuse_array(MADE_STRING, UINT64_MAX, 40, "string values");
    refuse_array(MADE_STRING, 11, 60, "string values");
    refuse_array(MADE_ARRAY, UINT64_MAX, 40, "array values");
    refuse_array(MADE_BOOL, UINT64_MAX, 40, "bool values");
    refuse_array(13, 1, 40, "no type of value");
    refuse_array(UINT32_MAX, 0, 40, "no type of value");
    /* a string that is longer than the file, in an array */
    ls_gguf_made m = {0};
    gguf_bytes b = array(MADE_STRING, 2, 8);
    gguf_put_u(&b, UINT64_MAX - 3, 8);
    gguf_key(&m, "an.array", MADE_ARRAY, b.p, b.n);
    refuse(&m, false, "an.array", "a string of 18446744073709551612 bytes");
    free(b.p);
    /* 8 arrays in each other are fine, 9 and 10000 are not */
    static const int depths[] = {8, 9, 10000};
    for (int i = 0; i < 3; i++) {
        b = (gguf_bytes){0};
        for (int d = 0; d < depths[i]; d++) {
            gguf_put_u(&b, d + 1 < depths[i] ? MADE_ARRAY : MADE_U32, 4);
            gguf_put_u(&b, d + 1 < depths[i], 8);
        }
        gguf_key(&m, "deep", MADE_ARRAY, b.p, b.n);
        if (i == 0)
            accept(&m, false);
        else
            refuse(&m, false, "deep", "more than 8 arrays in each other");
        free(b.p);
    }
    /* neither true nor false */
    gguf_key(&m, "a.bool", MADE_BOOL, "\2", 1);
    refuse(&m, false, "a.bool", "neither false (0) nor true (1)");
    b = array(MADE_BOOL, 2, 1);
    gguf_put_u(&b, 255, 1);
    gguf_key(&m, "bools", MADE_ARRAY, b.p, b.n);
    refuse(&m, false, "bools", "neither");
    free(b.p);
}

static void test_names(void **state) {
    (void)state;
    ls_gguf_made m = small();
    gguf_key_u32(&m, "some.key", 7);
    refuse(&m, false, "some.key", "the key stands twice");
    m = small();
    gguf_tensor(&m, "one", 1, two, 0, pair, sizeof pair);
    refuse(&m, false, "one", "the tensor stands twice");
    m = small();
    gguf_info(&m, "", 1, two, 0, 64);
    refuse(&m, false, "", "a tensor's name of 0 bytes");
    m = small();
    gguf_put_u(&m.keys, 3, 8); /* a\0b */
    gguf_put(&m.keys, "a\0b", 3);
    gguf_put_u(&m.keys, MADE_BOOL, 4);
    gguf_put_u(&m.keys, 1, 1);
    m.n_keys++;
    refuse(&m, false, "", "with a zero byte");
    char *text = malloc(70000);
    assert_non_null(text);
    memset(text, 'x', 69999);
    text[69999] = 0;
    m = small();
    gguf_key_u32(&m, text, 7);
    refuse(&m, false, "", "a key of 69999 bytes");
    text[65535] = 0;
    m = small();
    gguf_key_u32(&m, text, 7);
    accept(&m, false);
    free(text);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* A tensor "odd" beside two good ones, at offset 64 of 72 bytes of data. */
static void refuse_tensor(uint32_t n_dims, const uint64_t *dim, uint32_t type, uint64_t offset,
                          const char *needle) {
    ls_gguf_made m = small();
    gguf_info(&m, "odd", n_dims, dim, type, offset);
    gguf_put_u(&m.data, 0, 8);
    while (m.data.n < 72)
        gguf_put_u(&m.data, 0, 1);
    refuse(&m, false, "odd", needle);
}

#define DIMS(...)        \
    (const uint64_t[]) { \
        __VA_ARGS__      \
    }
#define BIG (UINT64_C(1) << 32)

static void test_tensors(void **state) {
    (void)state;
    refuse_tensor(5, DIMS(1, 1, 1, 1, 1), 0, 64, "5 dimensions, 1 to 4");
    refuse_tensor(1, DIMS(0), 0, 64, "is zero");
    refuse_tensor(2, DIMS(2, 0), 0, 64, "is zero");
    refuse_tensor(2, DIMS(BIG, BIG), 0, 64, "past 64 bits");
    refuse_tensor(4, DIMS(BIG, 2, BIG, 2), 0, 64, "past 64 bits");
    refuse_tensor(1, DIMS(UINT64_C(1) << 62), 0, 64, "does not fit");
    refuse_tensor(1, DIMS(UINT64_MAX), 0, 64, "does not fit");
    refuse_tensor(1, DIMS(UINT64_C(1) << 61), 0, 64, "9223372036854775808 bytes from 64");
    refuse_tensor(1, DIMS(3), 0, 64, "12 bytes from 64 on, but there are 72");
    refuse_tensor(1, DIMS(2), 0, 96, "8 bytes from 96 on");
    refuse_tensor(1, DIMS(2), 0, UINT64_MAX - 31, "bytes from 18446744073709551584 on");
    refuse_tensor(1, DIMS(1), 0, 68, "no multiple of the alignment 32");
    refuse_tensor(1, DIMS(2), 0, 32, "shares bytes");
    refuse_tensor(1, DIMS(9), 0, 0, "shares bytes");
    refuse_tensor(1, DIMS(2), 4, 64, "4 is no type of number");
    refuse_tensor(1, DIMS(2), 42, 64, "42 is no type of number");
    refuse_tensor(1, DIMS(2), UINT32_MAX, 64, "4294967295 is no type of number");
    refuse_tensor(1, DIMS(33), 8, 64, "no whole blocks of 32 (Q8_0)");
    refuse_tensor(2, DIMS(16, 2), 8, 64, "no whole blocks of 32 (Q8_0)");
    refuse_tensor(0, NULL, 8, 64, "0 dimensions, 1 to 4");
    refuse_tensor(1, DIMS(128), 12, 64, "no whole blocks of 256 (Q4_K)");
    ls_gguf_made m = small();
    gguf_info(&m, "odd", 0, NULL, 0, 64);
    memset(m.infos.p + m.infos.n - 16, 255, 4); /* the number of dimensions */
    refuse(&m, false, "odd", "4294967295 dimensions, 1 to 4");
    m = small();
    gguf_tensor(&m, "odd", 0, NULL, 0, pair, 4); /* one number without dimensions */
    refuse(&m, false, "odd", "0 dimensions, 1 to 4");
}

static void test_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 3, 24, 33, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_gguf_made m = small();
        gguf_key_u32(&m, "general.alignment", bad[i]);
        refuse(&m, false, "general.alignment", "a power of two");
    }
    ls_gguf_made m = small();
    gguf_key_str(&m, "general.alignment", "32");
    refuse(&m, false, "general.alignment", "a power of two");
    m = small();
    gguf_key(&m, "general.alignment", MADE_I32, "\40\0\0\0", 4);
    refuse(&m, false, "general.alignment", "as u32");
    m = small();
    gguf_key_u32(&m, "general.alignment", 1u << 31); /* padding past the end */
    refuse(&m, false, "", "the padding before the data");
    m = small();
    gguf_key_u32(&m, "general.alignment", 64); /* but the offsets are made for 32 */
    refuse(&m, false, "other", "alignment 64");
}

/* ---- as a model ------------------------------------------------------------------------------ */

static void test_without(void **state) {
    (void)state;
    static const char *const all[] = {
        "general.architecture",       "llama.attention.layer_norm_rms_epsilon",
        "llama.context_length",       "llama.embedding_length",
        "llama.block_count",          "llama.feed_forward_length",
        "llama.attention.head_count", "token_embd.weight",
        "output_norm.weight",         "blk.0.attn_norm.weight",
        "blk.0.ffn_norm.weight",      "blk.0.attn_q.weight",
        "blk.0.attn_k.weight",        "blk.0.attn_v.weight",
        "blk.0.attn_output.weight",   "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",        "blk.0.ffn_down.weight"};
    ls_gguf_made m = {0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gguf_llama(&m, all[i], 1);
        refuse(&m, true, all[i], "is missing");
    }
    gguf_llama(&m, NULL, 1);
    accept(&m, true);
    gguf_llama(&m, "output.weight", 1); /* the embedding is the head */
    accept(&m, true);
    gguf_llama(&m, "llama.attention.head_count_kv", 1); /* as many as heads: k is too small then */
    refuse(&m, true, "blk.0.attn_k.weight", "is [4, 4], the metadata makes it [4, 8]");
}

/* Keys that are added to a good model. */
static void test_keys(void **state) {
    (void)state;
    static const struct {
        const char *key;
        char type; /* u, f, s, b */
        double v;
        const char *text, *needle; /* needle NULL: fine */
    } all[] = {
        {"llama.rope.scaling.type", 's', 0, "longrope", "none, linear and yarn are"},
        {"llama.rope.scaling.type", 'u', 1, NULL, "is no string"},
        {"llama.rope.scaling.type", 's', 0, "none", NULL},
        {"llama.rope.scaling.factor", 'f', 8, NULL, NULL},
        {"llama.rope.scaling.factor", 'f', 0.5, NULL, "is 0.5; 1 to"},
        {"llama.rope.scaling.factor", 's', 0, "8", "a number was expected"},
        {"llama.rope.scaling.factor", 'f', 1, NULL, NULL},
        {"llama.rope.scale_linear", 'f', 2, NULL, NULL},
        {"llama.rope.scale_linear", 'f', 0, NULL, "is 0; 1 to"},
        {"llama.rope.scaling.attn_factor", 'f', 0.5, NULL, "only absent or 1"},
        {"llama.rope.scaling.original_context_length", 'u', 8192, NULL, NULL},
        {"llama.rope.scaling.yarn_ext_factor", 'f', 1, NULL, NULL},
        {"llama.rope.scaling.yarn_ext_factor", 'f', 0, NULL, "only absent or 1"},
        {"llama.rope.scaling.yarn_attn_factor", 'f', 2, NULL, "only absent or 1"},
        {"llama.rope.scaling.yarn_log_multiplier", 'f', 1, NULL, "does not know the key"},
        {"llama.rope.freq_base_swa", 'f', 10000, NULL, "does not know the key"},
        {"llama.attention.sliding_window_pattern", 'u', 6, NULL, "does not know the key"},
        {"llama.final_logit_softcapping", 'f', 30, NULL, "only absent or 0"},
        {"llama.attn_logit_softcapping", 'f', 50, NULL, "only absent or 0"},
        {"llama.rope.dimension_count", 'u', 4, NULL, NULL},
        {"llama.rope.dimension_count", 'u', 2, NULL, "partial rotation"},
        {"llama.rope.freq_base", 'f', 0.5, NULL, "is 0.5"},
        {"llama.rope.freq_base", 's', 0, "much", "a number was expected"},
        {"llama.rope.freq_base", 'f', 500000, NULL, NULL},
        {"llama.attention.value_length", 'u', 4, NULL, NULL},
        {"llama.attention.value_length", 'u', 8, NULL, "different widths"},
        {"llama.attention.sliding_window", 'u', 4096, NULL, NULL},
        {"llama.attention.sliding_window", 's', 0, "5", "a whole number"},
        {"llama.attention.sliding_window", 'u', 0, NULL, NULL},
        {"llama.attention.causal", 'b', 0, NULL, "only absent or true"},
        {"llama.attention.causal", 'b', 1, NULL, NULL},
        {"llama.attention.clamp_kqv", 'f', 8, NULL, "does not know the key"},
        {"llama.attention.scale", 'f', 1, NULL, "does not know the key"},
        {"llama.use_parallel_residual", 'b', 1, NULL, "only absent or false"},
        {"llama.expert_count", 'u', 8, NULL, "only absent or 0"},
        {"llama.expert_used_count", 'u', 0, NULL, NULL},
        {"llama.logit_scale", 'f', 1, NULL, "does not know the key"},
        {"llama.", 'u', 1, NULL, "does not know the key"},
        {"llama.tensor_data_layout", 's', 0, "Meta AI original pth", NULL},
        {"llama.tensor_data_layout", 's', 0, "rows", "changes the arithmetic"},
        {"llama.vocab_size", 'u', 3, NULL, NULL},
        {"llama.vocab_size", 'u', 4, NULL, "token_embd.weight"},
        {"llama.vocab_size", 'u', 0, NULL, "is 0; 1 to 4194304"},
        {"llama.vocab_size", 'f', 3, NULL, "is a f32; a whole number"},
        {"general.type", 's', 0, "adapter", "not \"model\""},
        {"general.type", 's', 0, "model", NULL},
        {"split.count", 'u', 2, NULL, "split over files"},
        {"split.count", 'u', 1, NULL, NULL},
        {"general.quantization_version", 'u', 1, NULL, "quantise the model again"},
        {"general.quantization_version", 'u', 2, NULL, NULL},
        {"general.name", 's', 0, "whatever", NULL},
        {"qwen2.attention.sliding_window", 'u', 5, NULL, NULL}, /* of another family */
        {"tokenizer.ggml.bos_token_id", 'u', 3, NULL, "0 to 2"},
        {"tokenizer.ggml.bos_token_id", 'u', 2, NULL, NULL},
        {"tokenizer.ggml.eos_token_id", 'u', 3, NULL, "0 to 2"},
        {"tokenizer.ggml.eot_token_id", 's', 0, "end", "a whole number"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_gguf_made m = {0};
        gguf_llama(&m, NULL, 1);
        if (all[i].type == 'u')
            gguf_key_u32(&m, all[i].key, (uint32_t)all[i].v);
        else if (all[i].type == 'f')
            gguf_key_f32(&m, all[i].key, (float)all[i].v);
        else if (all[i].type == 's')
            gguf_key_str(&m, all[i].key, all[i].text);
        else
            gguf_key(&m, all[i].key, MADE_BOOL, all[i].v != 0 ? "\1" : "\0", 1);
        if (!all[i].needle)
            accept(&m, true);
        else
            refuse(&m, true, strncmp(all[i].needle, "token_embd", 10) == 0 ? "" : all[i].key,
                   all[i].needle);
    }
}

/* Keys of a good model at other values. */
static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t v;
        const char *needle;
    } all[] = {
        {"llama.block_count", 0, "is 0; 1 to 1024"},
        {"llama.block_count", 2, "blk.1.attn_norm.weight: is missing"},
        {"llama.block_count", UINT32_MAX, "1 to 1024"},
        {"llama.embedding_length", 8, "the metadata makes it"},
        {"llama.embedding_length", 1u << 30, "1 to 131072"},
        {"llama.feed_forward_length", 7,
         "blk.0.ffn_gate.weight: is [4, 6], the metadata makes it [4, 7]"},
        {"llama.attention.head_count", 0, "is 0"},
        {"llama.attention.head_count", 4, "blk.0.attn_q.weight"},
        {"llama.attention.head_count_kv", 3, "cannot share"},
        {"llama.attention.key_length", 3, "even widths"},
        {"llama.attention.key_length", 65536, "even widths"},
        {"llama.attention.key_length", UINT32_MAX, "key_length"},
        {"llama.context_length", 0, "is 0"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_gguf_made m = {0};
        gguf_llama(&m, all[i].key, 1);
        gguf_key_u32(&m, all[i].key, all[i].v);
        refuse(&m, true, "", all[i].needle);
    }
    static const float eps[] = {0, -1, 2};
    for (size_t i = 0; i < sizeof eps / sizeof *eps; i++) {
        ls_gguf_made m = {0};
        gguf_llama(&m, "llama.attention.layer_norm_rms_epsilon", 1);
        gguf_key_f32(&m, "llama.attention.layer_norm_rms_epsilon", eps[i]);
        refuse(&m, true, "layer_norm_rms_epsilon", "is ");
    }
    ls_gguf_made m = {0};
    gguf_bytes b = array(MADE_U32, 1, 4);
    gguf_llama(&m, "llama.feed_forward_length", 1);
    gguf_key(&m, "llama.feed_forward_length", MADE_ARRAY, b.p, b.n);
    refuse(&m, true, "feed_forward_length", "layers that differ");
    free(b.p);
    gguf_llama(&m, "general.architecture", 1);
    gguf_key_str(&m, "general.architecture", "mam\nba");
    refuse(&m, true, "general.architecture", "\"mam\\x0Aba\" is not a supported family");
}

static void test_odd_tensors(void **state) {
    (void)state;
    ls_gguf_made m = {0};
    static const uint64_t wide[2] = {32, 1};
    static const float zero[2] = {1, 0};
    static const uint64_t one[1] = {1};
    gguf_llama(&m, NULL, 1);
    gguf_tensor(&m, "rope_freqs.weight", 1, two, 0, pair, sizeof pair);
    accept(&m, true);
    gguf_llama(&m, NULL, 1);
    gguf_tensor(&m, "rope_freqs.weight", 1, two, 0, zero, sizeof zero);
    refuse(&m, true, "rope_freqs.weight", "factor 1 is 0");
    gguf_llama(&m, NULL, 1);
    gguf_tensor(&m, "rope_freqs.weight", 1, one, 0, pair, sizeof *pair);
    refuse(&m, true, "rope_freqs.weight", "no F32 vector of 2");
    gguf_llama(&m, NULL, 1);
    gguf_tensor(&m, "rope_freqs.weight", 1, two, 1, pair, 4);
    refuse(&m, true, "rope_freqs.weight", "no F32 vector of 2");
    gguf_llama(&m, NULL, 1);
    gguf_key_f32(&m, "llama.rope.scaling.factor", 2);
    gguf_tensor(&m, "rope_freqs.weight", 1, two, 0, pair, sizeof pair);
    refuse(&m, true, "rope_freqs.weight", "beside other rope scaling");
    gguf_llama(&m, NULL, 1);
    gguf_tensor(&m, "blk.0.attn_q.bias", 1, two, 0, pair, sizeof pair);
    refuse(&m, true, "blk.0.attn_q.bias", "has no place in the model");
    uint8_t data[64] = {0};
    gguf_llama(&m, "output_norm.weight", 1);
    gguf_tensor(&m, "output_norm.weight", 1, wide, 20, data, 18);
    refuse(&m, true, "output_norm.weight", "is IQ4_NL; supported are");
    gguf_llama(&m, "output_norm.weight", 1);
    gguf_tensor(&m, "output_norm.weight", 1, wide, 8, data, 34);
    refuse(&m, true, "output_norm.weight", "is [32], the metadata makes it [4]");
    gguf_llama(&m, "output_norm.weight", 1);
    gguf_tensor(&m, "output_norm.weight", 2, (const uint64_t[]){4, 1}, 0, data, 16);
    refuse(&m, true, "output_norm.weight", "is [4, 1], the metadata makes it [4]");
}

/* From disk: the path is in the message, and nothing is left open. */
static void test_model(void **state) {
    (void)state;
    char *dir = ls_test_dir_make(), path[512];
    ls_gguf_made m = small();
    gguf_bytes f = gguf_file(&m);
    ls_test_write(dir, "a.gguf", f.p, f.n);
    ls_test_write(dir, "b.gguf", f.p, 30);
    ls_test_write(dir, "c.gguf", "GGML", 4);
    static const char *const needles[][2] = {{"a.gguf", "general.architecture: is missing"},
                                             {"b.gguf", "copy it again"},
                                             {"c.gguf", "or a GGUF file"},
                                             {"d.gguf", "or a GGUF file"}};
    for (size_t i = 0; i < 4; i++) {
        ls_model *model = NULL;
        ls_err err = {0};
        snprintf(path, sizeof path, "%s/%s", dir, needles[i][0]);
        assert_int_equal(ls_model_open(path, (ls_model_options){0}, &model, &err), LS_ERR_INPUT);
        assert_null(model);
        ls_assert_message(&err, needles[i][0], needles[i][1], NULL);
    }
    ls_gguf *g = NULL;
    ls_err err = {0};
    assert_int_equal(ls_gguf_open(path, &g, &err), LS_ERR_IO);
    ls_assert_message(&err, "d.gguf", NULL);
    free(f.p);
    gguf_free(&m);
    ls_test_dir_remove(dir);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_verdicts),  cmocka_unit_test(test_header),
        cmocka_unit_test(test_arrays),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_without),   cmocka_unit_test(test_keys),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_odd_tensors),
        cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(all, begin, NULL);
}
