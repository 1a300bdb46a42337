/* Models whose matrices stay the blocks of a GGUF file: the logits are, bit for bit, those of the
 * same file widened to f32, at every width, on every instruction set and device. In profile mma,
 * whose packed linear is another (N-MMAQ), they are near to those, and the same at every width. */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_rig.h"
#include "rig.h"

/* Rows of 256 are half a segment, of 768 one and a half. */
enum { D = 256, F = 768, H = 4, G = 2, E = 64, V = 72, LAYERS = 2, N_NEW = 12, WIDEST = 20 };
static const int32_t prompt[] = {1, 9, 30, 4, 4, 17, 22, 3, 11, 0, 28, 15};
#define N_PROMPT ((int32_t)(sizeof prompt / sizeof *prompt))

/* ---- files ----------------------------------------------------------------------------------- */

/* Where a block's f16 fields lie, and about what they hold: weights of about 1 / sqrt(D). */
static const struct {
    uint32_t type, block, bytes, at[2];
    double half[2];
} kinds[] = {{LS_GGML_Q8_0, 32, 34, {0}, {8e-4}},
             {LS_GGML_Q4_K, 256, 144, {0, 2}, {2.4e-4, 1.8e-3}},
             {LS_GGML_Q6_K, 256, 210, {208}, {1.5e-4}},
             {LS_GGML_F16, 1, 2, {0}, {0.06}}};

static uint32_t noise(uint64_t *s) {
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

/* f16 bits of x, a normal number of f16, cut. */
static uint16_t half_of(double x) {
    int e = 0;
    const double m = frexp(fabs(x), &e); /* 0.5 to 1 */
    return (uint16_t)((x < 0 ? 0x8000 : 0) | (e + 14) << 10 | ((int)(m * 2048) & 1023));
}

static void matrix(ls_gguf_made *m, const char *name, uint32_t type, uint64_t n_in, uint64_t n_out,
                   uint64_t *seed) {
    size_t k = 0;
    while (kinds[k].type != type)
        k++;
    const size_t n = (size_t)(n_in * n_out / kinds[k].block), bytes = kinds[k].bytes;
    uint8_t *data = malloc(n * bytes);
    assert_non_null(data);
    for (size_t i = 0; i < n * bytes; i++)
        data[i] = (uint8_t)noise(seed);
    for (size_t b = 0; b < n; b++)
        for (int j = 0; j < 2 && kinds[k].half[j] > 0; j++) {
            const double spread = 0.5 + noise(seed) % 1024 / 1024.0;
            const bool minus = type == LS_GGML_F16 ? noise(seed) % 2 : b % 16 == 3;
            const uint16_t h = half_of((minus ? -1 : 1) * kinds[k].half[j] * spread);
            memcpy(data + b * bytes + kinds[k].at[j], &h, 2);
        }
    gguf_tensor(m, name, 2, (const uint64_t[2]){n_in, n_out}, type, data, n * bytes);
    free(data);
}

static void vector(ls_gguf_made *m, const char *name, uint64_t *seed) {
    float v[D];
    for (int i = 0; i < D; i++)
        v[i] = 0.5f + (float)(noise(seed) % 1024) / 1024.0f;
    gguf_tensor(m, name, 1, (const uint64_t[1]){D}, LS_GGML_F32, v, sizeof v);
}

/* Types in the order embedding, head (0: tied), q, k, v, output, gate, up, down. */
typedef struct shape {
    const char *name;
    uint32_t type[9];
    uint32_t align;
    int n_packed; /* matrices of the file that stay blocks */
} shape;

#define Q8 LS_GGML_Q8_0
#define Q4 LS_GGML_Q4_K
static const shape shapes[] = {
    {"Q8_0, tied", {Q8, 0, Q8, Q8, Q8, Q8, Q8, Q8, Q8}, 32, 1 + 7 * LAYERS},
    {"Q4_K, a head of its own", {Q4, Q4, Q4, Q4, Q4, Q4, Q4, Q4, Q4}, 32, 2 + 7 * LAYERS},
    {"mixed, at odd addresses",
     {Q4, Q8, Q4, Q8, LS_GGML_F16, LS_GGML_Q6_K, Q8, Q4, Q8},
     1,
     2 + 5 * LAYERS},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static gguf_bytes make(const shape *s) {
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"llama.context_length", 64},      {"llama.embedding_length", D},
                {"llama.block_count", LAYERS},     {"llama.feed_forward_length", F},
                {"llama.attention.head_count", H}, {"llama.attention.head_count_kv", G},
                {"llama.attention.key_length", E}};
    static const struct {
        const char *name;
        uint64_t n_in, n_out;
    } mats[] = {{"attn_q", D, H * E},      {"attn_k", D, G * E}, {"attn_v", D, G * E},
                {"attn_output", H * E, D}, {"ffn_gate", D, F},   {"ffn_up", D, F},
                {"ffn_down", F, D}};
    ls_gguf_made m = {.align = s->align};
    uint64_t seed = 12;
    char name[64];
    gguf_key_str(&m, "general.architecture", "llama");
    gguf_key_f32(&m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_key_u32(&m, "general.alignment", s->align);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        gguf_key_u32(&m, keys[i].key, keys[i].v);
    matrix(&m, "token_embd.weight", s->type[0], D, V, &seed);
    if (s->align == 1) /* a byte between: even addresses before it or behind */
        gguf_put(&m.data, "", 1);
    vector(&m, "output_norm.weight", &seed);
    if (s->type[1])
        matrix(&m, "output.weight", s->type[1], D, V, &seed);
    for (int l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", l);
        vector(&m, name, &seed);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", l);
        vector(&m, name, &seed);
        for (size_t i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, mats[i].name);
            matrix(&m, name, s->type[2 + i], mats[i].n_in, mats[i].n_out, &seed);
        }
    }
    const gguf_bytes f = gguf_file(&m);
    gguf_free(&m);
    return f;
}

/* Writes a file of its own; delete and free it. */
static char *write_file(const uint8_t *p, size_t n) {
    const char *tmp = getenv("TMPDIR");
    char *path = malloc(512);
    assert_non_null(path);
    snprintf(path, 512, "%s/lockstep-packed-XXXXXX", tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t at = 0; at < n;) {
        const ssize_t done = write(fd, p + at, n - at);
        assert_true(done > 0);
        at += (size_t)done;
    }
    close(fd);
    return path;
}

static char *write_shape(const shape *s) {
    gguf_bytes f = make(s);
    char *path = write_file(f.p, f.n);
    free(f.p);
    return path;
}

static void drop(char *path) {
    unlink(path);
    free(path);
}

/* ---- logits ---------------------------------------------------------------------------------- */

static void open_as(ls_rig *r, const char *path, bool widen, rig_device where, ls_cpu_options cpu) {
    ls_err err;
    memset(r, 0, sizeof *r);
    r->be = rig_backend_on(where, cpu);
    OK(ls_model_open(path, (ls_model_options){.widen = widen}, &r->model, &err), &err);
    OK(ls_engine_create(r->model, r->be, (ls_engine_options){.poison = 1}, &r->engine, &err), &err);
}

static void decode(const char *path, bool widen, rig_device where, ls_cpu_options cpu,
                   ls_greedy *out) {
    ls_rig r;
    open_as(&r, path, widen, where, cpu);
    ls_greedy_run(&r, prompt, N_PROMPT, N_NEW, out);
    ls_rig_close(&r);
}

static void same(const ls_greedy *got, const ls_greedy *want, const char *what) {
    assert_int_equal(got->n_vocab, V);
    ls_assert_bits(got->logits, want->logits, (size_t)N_NEW * V, what);
    assert_memory_equal(got->token, want->token, (N_PROMPT + N_NEW) * sizeof *want->token);
}

/* In profile mma. Each of a row's linears, 7 a layer and the head, rounds its x by at most 2^-9 of
 * it; were all of that error kept, it would be so many times 2^-9 of the logits, in the root mean
 * square. Compared as long as both texts are the same. */
static void near_to(const ls_greedy *got, const ls_greedy *want, const char *what) {
    int32_t n = 1;
    double off = 0, size = 0;
    while (n < N_NEW && got->token[N_PROMPT + n - 1] == want->token[N_PROMPT + n - 1])
        n++;
    for (size_t i = 0; i < (size_t)n * V; i++) {
        const double w = (double)want->logits[i], d = (double)got->logits[i] - w;
        off += d * d;
        size += w * w;
    }
    if (!(sqrt(off / size) <= (7 * LAYERS + 1) * 0x1p-9))
        fail_msg("%s: off by %.3g of the logits' size over %d rows", what, sqrt(off / size), n);
    assert_true(off > 0); /* another arithmetic: the same bits would be the other profile's */
}

static void test_same_as_widened(void **state) {
    (void)state;
    static const ls_cpu_options ways[] = {{1, LS_SIMD_AUTO},
                                          {2, LS_SIMD_AUTO},
                                          {1, LS_SIMD_PLAIN},
                                          {1, LS_SIMD_AVX2},
                                          {1, LS_SIMD_AVX512}};
    for (size_t i = 0; i < N_SHAPES; i++) {
        char *path = write_shape(&shapes[i]);
        ls_greedy want, got;
        const rig_device here = rig_device_chosen();
        decode(path, true, here, ways[0], &want);
        bool varied = false;
        for (int32_t k = 1; k < N_NEW; k++)
            varied = varied || want.token[N_PROMPT + k] != want.token[N_PROMPT];
        assert_true(varied); /* text that says nothing would prove nothing */
        for (size_t k = 0; k < (size_t)V * N_NEW; k++)
            assert_true(isfinite(want.logits[k]));
        decode(path, false, here, ways[1], &got);
        if (rig_on_ieee())
            same(&got, &want, shapes[i].name);
        else
            near_to(&got, &want, shapes[i].name);
        ls_greedy_free(&got);
        for (size_t w = 0; w < sizeof ways / sizeof *ways && rig_on_ieee(); w++) {
            ls_backend *be;
            ls_err err;
            if (ls_cpu_create(ways[w], &be, &err) != LS_OK)
                continue; /* not on this processor */
            ls_backend_destroy(be);
            decode(path, false, RIG_CPU, ways[w], &got);
            same(&got, &want, shapes[i].name);
            ls_greedy_free(&got);
        }
        ls_greedy_free(&want);
        drop(path);
    }
}

static void test_widths(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        char *path = write_shape(&shapes[i]), what[96];
        ls_greedy want;
        ls_rig r;
        ls_err err;
        int32_t seq;
        float logits[V];
        decode(path, rig_on_ieee(), rig_device_chosen(), (ls_cpu_options){1, LS_SIMD_AUTO}, &want);
        open_as(&r, path, false, rig_device_chosen(), (ls_cpu_options){2, LS_SIMD_AUTO});
        ls_kv *kv = ls_engine_kv(r.engine);
        OK(ls_kv_open(kv, &seq, &err), &err);
        const int32_t end = N_PROMPT + N_NEW - 1;
        for (int32_t m = 1; m <= WIDEST; m++) {
            ls_row rows[WIDEST];
            const int32_t first = end - m; /* its rows are the last m that were decoded */
            OK(ls_kv_rewind(kv, seq, 0, &err), &err);
            OK(ls_prefill(r.engine, seq, want.token, first, 0, &err), &err);
            for (int32_t k = 0; k < m; k++)
                rows[k] = ls_row_chain(seq, want.token[first + k], first + k, true);
            OK(ls_pass(r.engine, rows, m, &err), &err);
            for (int32_t k = 0; k < m; k++) {
                if (first + k + 1 < N_PROMPT)
                    continue; /* of the prompt there are no logits */
                OK(ls_pass_logits(r.engine, k, logits, &err), &err);
                snprintf(what, sizeof what, "%s: row %d of %d", shapes[i].name, k, m);
                ls_assert_bits(logits, ls_greedy_row(&want, first + k + 1), V, what);
            }
        }
        ls_rig_close(&r);
        ls_greedy_free(&want);
        drop(path);
    }
}

/* ---- what is in memory ----------------------------------------------------------------------- */

static void test_mapped(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        char *path = write_shape(&shapes[i]);
        ls_model *m = NULL;
        ls_err err = {0};
        OK(ls_model_open(path, (ls_model_options){0}, &m, &err), &err);
        const ls_gguf *g = ls_checkpoint_gguf(m->checkpoint);
        size_t n = 0, bytes = 0;
        const uint8_t *file = ls_gguf_bytes(g, &n);
        int packed = 0, odd = 0, copied = 0;
        for (size_t k = 0; k < ls_checkpoint_count(m->checkpoint); k++) {
            const ls_st_tensor *t = ls_checkpoint_at(m->checkpoint, k);
            if (t->dtype != LS_ST_Q8_0 && t->dtype != LS_ST_Q4_K)
                continue;
            packed++;
            odd += (uintptr_t)t->data % 2 != 0;
            copied += t->data < file || t->data >= file + n;
            bytes += t->bytes;
        }
        assert_int_equal(packed, shapes[i].n_packed);
        assert_int_equal(copied, 2 * LAYERS); /* q and k, whose rows are put in order */
        assert_true(shapes[i].align > 1 || odd > 0);
        const ls_mat *down = &m->weights->layer[1].down;
        assert_int_equal(down->dtype, shapes[i].type[8] == Q8 ? LS_Q8_0 : LS_Q4_K);
        assert_true((const uint8_t *)down->data > file && (const uint8_t *)down->data < file + n);
        assert_int_equal(m->weights->norm.dtype, LS_F32);
        if (i < 2) { /* all packed: in memory what the file has */
            size_t stored = 0;
            for (size_t k = 0; k < ls_gguf_count(g); k++)
                stored += ls_gguf_at(g, k)->bytes;
            assert_int_equal(m->weights->bytes, stored);
            assert_true(bytes < stored);
        }
        ls_model_close(m);
        OK(ls_model_open(path, (ls_model_options){.widen = true}, &m, &err), &err);
        assert_int_equal(m->weights->layer[1].down.dtype, LS_F32);
        ls_model_close(m);
        drop(path);
    }
}

/* A file cut anywhere in its last blocks, or with rows that are no whole blocks. */
static void test_damaged(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        gguf_bytes f = make(&shapes[i]);
        for (size_t cut = 1; cut <= 160; cut++) {
            char *path = write_file(f.p, f.n - cut);
            ls_model *m = NULL;
            ls_err err = {0};
            assert_int_equal(ls_model_open(path, (ls_model_options){0}, &m, &err), LS_ERR_INPUT);
            assert_null(m);
            assert_non_null(strstr(err.msg, "blk.1.ffn_down.weight"));
            drop(path);
        }
        free(f.p);
        ls_gguf_made made = {0};
        uint8_t block[256] = {0};
        const uint64_t dim[2] = {i ? 384 : 48, 2};
        gguf_tensor(&made, "w", 2, dim, shapes[i].type[0], block, sizeof block);
        f = gguf_file(&made);
        ls_gguf *g = NULL;
        ls_err err = {0};
        assert_int_equal(ls_gguf_parse(f.p, f.n, "made", &g, &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, i ? "Q4_K" : "Q8_0"));
        free(f.p);
        gguf_free(&made);
    }
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_same_as_widened),
                                     cmocka_unit_test(test_widths), cmocka_unit_test(test_mapped),
                                     cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
