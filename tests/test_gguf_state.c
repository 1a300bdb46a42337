/* GGUF files: what the reader finds in them, and that a model in one decodes to the bits of the
 * same model in a folder. */
#define _XOPEN_SOURCE 700
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_rig.h"
#include "inspect.h"
#undef OK
#include "rig.h"

static char *fixture(const char *name) {
    return ls_test_path("fixtures/gguf/%s", name);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static const ls_gguf_value *key(const ls_gguf *g, const char *name, ls_gguf_type type) {
    const ls_gguf_value *v = ls_gguf_find(g, name);
    if (!v || v->type != type)
        fail_msg("%s is not there as %s", name, ls_gguf_type_name(type));
    return v;
}

static int64_t whole(const ls_gguf *g, const char *name, ls_gguf_type type) {
    int64_t n = 0;
    assert_true(ls_gguf_as_int(key(g, name, type), &n));
    return n;
}

static double number(const ls_gguf *g, const char *name, ls_gguf_type type) {
    double x = 0;
    assert_true(ls_gguf_as_number(key(g, name, type), &x));
    return x;
}

static void test_values(void **state) {
    (void)state;
    char *path = fixture("small.gguf");
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_open(path, &g, &err), &err);
    assert_string_equal(ls_gguf_name(g), path);
    assert_int_equal(ls_gguf_version(g), 3);
    assert_int_equal(ls_gguf_n_keys(g), 16);
    assert_int_equal(whole(g, "v.u8", LS_GGUF_U8), 200);
    assert_int_equal(whole(g, "v.i8", LS_GGUF_I8), -100);
    assert_int_equal(whole(g, "v.u16", LS_GGUF_U16), 60000);
    assert_int_equal(whole(g, "v.i16", LS_GGUF_I16), -30000);
    assert_int_equal(whole(g, "v.u32", LS_GGUF_U32), 4000000000);
    assert_int_equal(whole(g, "v.i32", LS_GGUF_I32), -2000000000);
    assert_true(whole(g, "v.i64", LS_GGUF_I64) == -(INT64_C(1) << 62));
    int64_t n = 0;
    assert_false(ls_gguf_as_int(key(g, "v.u64", LS_GGUF_U64), &n)); /* 2^63 does not fit */
    assert_true(number(g, "v.f32", LS_GGUF_F32) == 1.5);
    assert_true(number(g, "v.f64", LS_GGUF_F64) == 0.1);
    assert_true(number(g, "v.i8", LS_GGUF_I8) == -100);
    bool yes = false;
    assert_true(ls_gguf_as_bool(key(g, "v.bool", LS_GGUF_BOOL), &yes) && yes);
    ls_gguf_str s;
    assert_true(ls_gguf_as_string(key(g, "v.string", LS_GGUF_STRING), &s));
    assert_true(ls_gguf_str_is(s, "caf\xc3\xa9"));
    double x = 0;
    assert_false(ls_gguf_as_int(key(g, "v.string", LS_GGUF_STRING), &n));
    assert_false(ls_gguf_as_number(key(g, "v.bool", LS_GGUF_BOOL), &x));
    assert_false(ls_gguf_as_bool(key(g, "v.u8", LS_GGUF_U8), &yes));
    assert_false(ls_gguf_as_string(key(g, "v.texts", LS_GGUF_ARRAY), &s));
    assert_null(ls_gguf_find(g, "v."));
    for (size_t i = 1; i < ls_gguf_n_keys(g); i++)
        assert_true(strncmp(ls_gguf_key_at(g, i - 1)->key.s, ls_gguf_key_at(g, i)->key.s,
                            ls_gguf_key_at(g, i)->key.n) <= 0);
    ls_gguf_close(g);
    ls_gguf_close(NULL);
    free(path);
}

static void test_arrays(void **state) {
    (void)state;
    char *path = fixture("small.gguf");
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_open(path, &g, &err), &err);
    size_t at = 0;
    ls_gguf_value item, inner;
    int64_t n = 0;
    static const int64_t numbers[] = {7, -8, 9};
    const ls_gguf_value *v = key(g, "v.numbers", LS_GGUF_ARRAY);
    assert_true(v->n == 3 && v->elem == LS_GGUF_I32 && v->bytes == 12);
    for (int i = 0; i < 3; i++)
        assert_true(ls_gguf_next(v, &at, &item) && ls_gguf_as_int(&item, &n) && n == numbers[i]);
    assert_false(ls_gguf_next(v, &at, &item));

    static const char *const texts[] = {"one", "", "three"};
    v = key(g, "v.texts", LS_GGUF_ARRAY);
    assert_true(v->n == 3 && v->elem == LS_GGUF_STRING);
    at = 0;
    for (int i = 0; i < 3; i++) {
        ls_gguf_str s;
        assert_true(ls_gguf_next(v, &at, &item) && ls_gguf_as_string(&item, &s));
        assert_true(ls_gguf_str_is(s, texts[i]));
    }
    assert_false(ls_gguf_next(v, &at, &item));

    static const int64_t lengths[] = {2, 1, 3};
    v = key(g, "v.nested", LS_GGUF_ARRAY);
    assert_true(v->n == 3 && v->elem == LS_GGUF_ARRAY);
    at = 0;
    int64_t next = 1;
    for (int i = 0; i < 3; i++) {
        size_t in = 0;
        int64_t count = 0;
        assert_true(ls_gguf_next(v, &at, &item) && item.type == LS_GGUF_ARRAY);
        for (; ls_gguf_next(&item, &in, &inner); count++)
            assert_true(ls_gguf_as_int(&inner, &n) && n == next++);
        assert_int_equal(count, lengths[i]);
        assert_int_equal(item.n, lengths[i]);
    }
    assert_int_equal(next, 7);
    at = 0;
    assert_false(ls_gguf_next(key(g, "v.u8", LS_GGUF_U8), &at, &item)); /* no array */
    ls_gguf_close(g);
    free(path);
}

static void test_tensors(void **state) {
    (void)state;
    char *path = fixture("small.gguf");
    ls_gguf *g = NULL;
    ls_err err = {0};
    OK(ls_gguf_open(path, &g, &err), &err);
    assert_int_equal(ls_gguf_count(g), 2);
    const ls_gguf_tensor *a = ls_gguf_tensor_find(g, "a"), *b = ls_gguf_tensor_find(g, "b");
    assert_true(a == ls_gguf_at(g, 0) && b == ls_gguf_at(g, 1));
    static const float want[6] = {0, 1, 2, 3, 4, 5};
    assert_true(a->n_dims == 2 && a->dim[0] == 3 && a->dim[1] == 2 && a->dim[2] == 1);
    assert_true(a->type == LS_GGML_F32 && a->n_elems == 6 && a->bytes == sizeof want);
    assert_memory_equal(a->data, want, sizeof want);
    assert_true(b->type == LS_GGML_Q8_0 && b->n_elems == 32 && b->bytes == 34 && b->data[33] == 33);
    assert_null(ls_gguf_tensor_find(g, "ab"));
    size_t n = 0;
    const uint8_t *bytes = ls_gguf_bytes(g, &n);
    assert_true((size_t)(a->data - bytes) % 32 == 0 && (size_t)(b->data - bytes) % 32 == 0);
    ls_gguf_close(g);
    assert_true(ls_gguf_is(path));
    free(path);
    path = fixture("tiny/config.json");
    assert_false(ls_gguf_is(path));
    free(path);
    assert_false(ls_gguf_is("/nowhere/at/all"));
}

/* Version 2 has the same layout; another alignment moves the data. */
static void test_version_and_alignment(void **state) {
    (void)state;
    static const uint64_t dim[1] = {2};
    static const float value[2] = {3, 4};
    static const uint32_t aligns[] = {1, 2, 8, 64, 4096};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        ls_gguf_made m = {.align = aligns[i]};
        gguf_key_u32(&m, "general.alignment", aligns[i]);
        gguf_tensor(&m, "first", 1, dim, 0, value, sizeof value);
        gguf_tensor(&m, "second", 1, dim, 0, value, sizeof value);
        gguf_bytes f = gguf_file(&m);
        f.p[4] = (uint8_t)(2 + i % 2);
        ls_gguf *g = NULL;
        ls_err err = {0};
        OK(ls_gguf_parse(f.p, f.n, "made", &g, &err), &err);
        assert_int_equal(ls_gguf_version(g), 2 + i % 2);
        assert_memory_equal(ls_gguf_tensor_find(g, "second")->data, value, sizeof value);
        ls_gguf_close(g);
        free(f.p);
        gguf_free(&m);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

#define N_NEW 24
static const int32_t prompt[] = {1, 9, 30, 4, 4, 17, 22, 3, 11, 0, 28, 15};
#define N_PROMPT ((int32_t)(sizeof prompt / sizeof *prompt))

static void decode(const char *name, ls_greedy *out) {
    char *path = fixture(name);
    ls_rig r;
    ls_rig_open(&r, path, (ls_cpu_options){.n_threads = 1}, (ls_engine_options){0});
    ls_greedy_run(&r, prompt, N_PROMPT, N_NEW, out);
    ls_rig_close(&r);
    free(path);
}

static void test_same_bits(void **state) {
    (void)state;
    static const char *const files[] = {"tiny-f32.gguf", "tiny-f16.gguf", "tiny-q8_0.gguf"};
    ls_greedy want, got;
    decode("tiny", &want);
    bool varied = false;
    for (int32_t i = 1; i < N_NEW; i++)
        varied = varied || want.token[N_PROMPT + i] != want.token[N_PROMPT];
    assert_true(varied); /* text that says nothing would prove nothing */
    for (size_t i = 0; i < 3; i++) {
        decode(files[i], &got);
        assert_int_equal(got.n_vocab, want.n_vocab);
        ls_assert_bits(got.logits, want.logits, (size_t)N_NEW * (size_t)want.n_vocab, files[i]);
        assert_memory_equal(got.token, want.token, (N_PROMPT + N_NEW) * sizeof *want.token);
        ls_greedy_free(&got);
    }
    ls_greedy_free(&want);
}

/* The other architectures: a folder and the file that the reference package made of the same
 * numbers, decoded past the window of those that have one. */
static void test_families_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2", "qwen3", "mistral", "llama3", "gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ls_greedy want, got;
        char file[64];
        snprintf(file, sizeof file, "%s.gguf", names[i]);
        decode(names[i], &want);
        decode(file, &got);
        int32_t varied = 0;
        for (int32_t k = 1; k < N_NEW; k++)
            varied += want.token[N_PROMPT + k] != want.token[N_PROMPT + k - 1];
        if (varied < 2)
            fail_msg("%s: a dull text proves little", names[i]);
        assert_int_equal(got.n_vocab, want.n_vocab);
        ls_assert_bits(got.logits, want.logits, (size_t)N_NEW * (size_t)want.n_vocab, names[i]);
        assert_memory_equal(got.token, want.token, (N_PROMPT + N_NEW) * sizeof *want.token);
        ls_greedy_free(&got);
        ls_greedy_free(&want);
    }
}

/* What needs no change stays in the mapping; what does is copied once. */
static void test_mapped(void **state) {
    (void)state;
    static const struct {
        const char *file;
        int32_t copied; /* q and k of two layers */
    } all[] = {{"tiny-f32.gguf", 4}, {"tiny-f16.gguf", 4}, {"tiny-q8_0.gguf", 4}};
    for (size_t i = 0; i < 3; i++) {
        char *path = fixture(all[i].file);
        ls_checkpoint *cp = NULL;
        ls_err err = {0};
        OK(ls_checkpoint_open(path, &cp, &err), &err);
        assert_int_equal(ls_checkpoint_count(cp), 21);
        assert_int_equal(ls_checkpoint_n_files(cp), 1);
        size_t n = 0;
        const uint8_t *bytes = ls_gguf_bytes(ls_checkpoint_gguf(cp), &n);
        int32_t copied = 0;
        for (size_t t = 0; t < ls_checkpoint_count(cp); t++) {
            const uint8_t *p = ls_checkpoint_at(cp, t)->data;
            copied += p < bytes || p >= bytes + n;
        }
        assert_int_equal(copied, all[i].copied);
        ls_checkpoint_close(cp);
        free(path);
    }
}

/* Who is told of a load hears of every byte once, and of the end. */
typedef struct told {
    uint64_t done, total;
    int n;
} told;

static void hear(void *self, uint64_t done, uint64_t total, const char *text) {
    told *t = self;
    assert_true(text[0] && done >= t->done && done <= total && (t->n == 0 || total == t->total));
    *t = (told){done, total, t->n + 1};
}

static void test_told(void **state) {
    (void)state;
    char *path = ls_test_path("fixtures/gguf/tiny-q8_0.gguf");
    told file = {0}, device = {0};
    ls_model *model = NULL;
    ls_engine *engine = NULL;
    ls_err err = {0};
    const ls_model_options options = {.partial_bytes = true, .load = {hear, &file}};
    OK(ls_model_open(path, options, &model, &err), &err);
    const ls_gguf *g = ls_checkpoint_gguf(model->checkpoint);
    uint64_t bytes = 0;
    for (size_t i = 0; i < ls_gguf_count(g); i++)
        bytes += ls_gguf_at(g, i)->bytes;
    assert_int_equal(file.n, ls_gguf_count(g));
    assert_true(file.done == bytes && file.total == bytes);
    ls_backend *be = rig_backend((ls_cpu_options){1, LS_SIMD_AUTO});
    OK(ls_engine_create(model, be, (ls_engine_options){.load = {hear, &device}}, &engine, &err),
       &err);
    assert_int_equal(device.n, model->config.n_layers);
    assert_true(device.total == model->weights->bytes && device.done > 0);
    ls_engine_destroy(engine);
    ls_backend_destroy(be);
    ls_model_close(model);
    free(path);
}

/* A file without output.weight: the embedding is the head. The rows of q and k in a case small
 * enough to be written down. */
static void test_head_and_rows(void **state) {
    (void)state;
    for (int head = 0; head < 2; head++) {
        char *dir = ls_test_dir_make();
        ls_gguf_made m = {0};
        gguf_llama(&m, NULL, head);
        gguf_bytes f = gguf_file(&m);
        ls_test_write(dir, "model.gguf", f.p, f.n);
        char path[512];
        snprintf(path, sizeof path, "%s/model.gguf", dir);
        ls_model *model = NULL;
        ls_err err = {0};
        OK(ls_model_open(path, (ls_model_options){0}, &model, &err), &err);
        assert_int_equal(model->config.tied, !head);
        assert_int_equal(model->weights->head.data == model->weights->embed.data, !head);
        assert_true(model->config.n_vocab == 3 && model->config.head_dim == 4);
        assert_true(model->config.bos == -1 && model->config.n_eos == 0);
        assert_true(model->config.rope_theta == 10000 && !model->tokenizer && model->n_token == 3);
        /* row r of q and k is row from[r % 4] of its head in the file */
        static const int from[4] = {0, 2, 1, 3};
        const float *q = model->weights->layer[0].q.data, *k = model->weights->layer[0].k.data,
                    *v = model->weights->layer[0].v.data;
        for (int r = 0; r < 8; r++)
            for (int j = 0; j < 4; j++) {
                assert_true(q[r * 4 + j] == (float)(400 + (r / 4 * 4 + from[r % 4]) * 4 + j));
                if (r < 4) {
                    assert_true(k[r * 4 + j] == (float)(500 + from[r] * 4 + j));
                    assert_true(v[r * 4 + j] == (float)(600 + r * 4 + j));
                }
            }
        ls_model_close(model);
        free(f.p);
        gguf_free(&m);
        ls_test_dir_remove(dir);
    }
}

static char *say(const char *name) {
    char *text = NULL, *path = fixture(name);
    size_t n = 0;
    ls_err err = {0};
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    OK(ls_inspect_print(f, path, NULL, &err), &err);
    fclose(f);
    free(path);
    return text;
}

static void test_inspect(void **state) {
    (void)state;
    static const char *const want[] = {
        "family       llama\n", "2 layers, width 32, feed-forward 32, 4 heads over 2 of 8\n",
        "64 positions, rope theta 500, norm eps 1e-05\n", "its own\n", "begin id     1\n",
        "end ids      2\n", "14.5 K parameters, 15.9 KB; 5 F32, 16 Q8_0 in 1 file\n",
        "in memory    15.9 KB; 5 F32, 16 Q8_0 packed\n",
        "tokenizer    gpt2, llama-bpe; not built: scripts can give prompts as token ids\n",
        /* sha256sum tiny-q8_0.gguf | sha256sum */
        "digest       sha256 699abf697588cf2310999103354b4f3715b4d81caaaa495cab5d8efbe554511b\n"};
    char *text = say("tiny-q8_0.gguf");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(text, want[i]))
            fail_msg("\"%s\" is not in:\n%s", want[i], text);
    free(text);
    text = say("tiny-f16.gguf");
    assert_non_null(strstr(text, "29.3 KB; 5 F32, 16 F16 in 1 file\n"));
    assert_null(strstr(text, "in memory"));
    free(text);
    text = say("llama3.gguf"); /* a table of factors, which is no weight, makes nothing widened */
    assert_null(strstr(text, "in memory"));
    free(text);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_version_and_alignment),
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_told),          cmocka_unit_test(test_families_same_bits),
        cmocka_unit_test(test_head_and_rows), cmocka_unit_test(test_inspect)};
    return cmocka_run_group_tests(all, begin, NULL);
}
