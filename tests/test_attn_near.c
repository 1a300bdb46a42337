/* N-ATTN against softmax attention in double, on cases built to hurt.
 * Bound: a score is off by ds <= (E/32 + 8) 2^-24 scale sum |q k|, a probability by a factor
 * exp(+-2 ds) and 3 ulp of exp, products and sums pass at most `chunk` + 80 roundings:
 * |error| <= (4 ds + 8 2^-23 + (chunk + 80) 2^-24) max |v|, doubled for the quotient.
 * Profile mma, bf16 caches (N-MATTN): q is rounded to bf16 first, and with u = 2^-23
 * ds <= (E + 8) u scale sum |q k| + 2 u (4 + |s|), |error| <= (2^-8 + ds + 6 u + 4 u (L / 64 + 80))
 * max |v|, doubled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <jansson.h>
#include <cmocka.h>

#include "attn_rig.h"
#include "cpu_bodies.h"
#include "kernel_rig.h"

static ls_backend *be;

/* One row and head in double; returns the bound. */
static double by_double(const ar_case *c, int L, int chunk, const float *q, int g, double *out) {
    double *s = malloc((size_t)(L + 1) * sizeof *s), top = -INFINITY, l = 0, ds = 0, vmax = 0;
    assert_non_null(s);
    memset(out, 0, (size_t)c->E * sizeof *out);
    const bool mma =
        strcmp(be->profile, "mma") == 0 && c->t == LS_BF16 && c->E % 16 == 0 && !c->window;
    const int first = c->window && L > c->window ? L - c->window : 0;
    for (int j = first; j < L; j++) {
        double size = 0;
        s[j] = 0;
        for (int e = 0; e < c->E; e++) {
            const double p = (mma ? kr_to_bf16((double)q[e]) : (double)q[e]) *
                             kr_value(c->k, (size_t)((j * c->G + g) * c->E + e), c->t);
            s[j] += p;
            size += fabs(p);
        }
        s[j] *= (double)c->scale;
        ds = fmax(ds,
                  mma ? (c->E + 8) * 0x1p-23 * size * (double)c->scale + 0x1p-22 * (4 + fabs(s[j]))
                      : (c->E / 32 + 8) * 0x1p-24 * size * (double)c->scale);
        top = fmax(top, s[j]);
    }
    for (int j = first; j < L; j++) {
        const double p = exp(s[j] - top);
        l += p;
        for (int e = 0; e < c->E; e++) {
            const double v = kr_value(c->v, (size_t)((j * c->G + g) * c->E + e), c->t);
            out[e] += p * v;
            vmax = fmax(vmax, fabs(v));
        }
    }
    for (int e = 0; e < c->E; e++)
        out[e] = L ? out[e] / l : 0;
    free(s);
    if (mma)
        return 2 * vmax * (0x1p-8 + ds + 6 * 0x1p-23 + 4 * 0x1p-23 * (L / 64 + 80));
    return 2 * vmax * (4 * ds + 8 * 0x1p-23 + (chunk + 80) * 0x1p-24);
}

static void check(const char *what, const ar_case *c, int L, ls_chunk_rule rule, const float *q) {
    float *got = kr_alloc((size_t)(c->H * c->E) * 4);
    double want[256];
    const int32_t length[1] = {L};
    ar_layout flat = ar_contiguous(c, 1, 1);
    ar_run(be, c, &flat, rule, length, 1, q, got);
    for (int h = 0; h < c->H; h++) {
        const int g = h / (c->H / c->G), longest = ls_chunk_len(rule, L);
        const double bound =
            by_double(c, L, longest < 2048 ? longest : 2048, q + h * c->E, g, want);
        for (int e = 0; e < c->E; e++)
            kr_near(what, (double)got[h * c->E + e], want[e], bound);
    }
    ar_layout_free(&flat);
    free(got);
}

static const ls_chunk_rule rules[] = {{LS_CHUNK_EVEN, 32, 64},
                                      {LS_CHUNK_DOUBLING, 32, 16},
                                      {LS_CHUNK_SPLITS, 0, 1},
                                      {LS_CHUNK_SPLITS, 0, 7}};

static void random_rows(void **state) {
    (void)state;
    static const int widths[] = {2, 8, 12, 64, 128, 256}, lengths[] = {0, 1, 33, 777, 2500};
    for (int i = 0; i < 6; i++)
        for (int n = 0; n < 5; n++) {
            ar_case c;
            const int L = lengths[n], H = i % 2 ? 3 : 4, G = i % 2 ? 3 : 2;
            ar_case_init(&c, H, G, widths[i], L ? L : 1, (ls_dtype)(n % 3), 3, 2.0f);
            float *q = kr_alloc((size_t)(H * widths[i]) * 4);
            kr_fill(q, (size_t)(H * widths[i]), 4, 3.0f);
            check("random", &c, L, rules[(i + n) % 4], q);
            free(q), ar_case_free(&c);
        }
}

/* The head counts and widths of real models. */
static void grouped_heads(void **state) {
    (void)state;
    static const int heads[][2] = {{4, 4}, {8, 2}, {8, 1}, {14, 2}}, widths[] = {32, 64, 128, 256};
    static const int lengths[] = {1, 65, 300, 1025, 2049};
    for (int h = 0; h < 4; h++)
        for (int w = 0; w < 4; w++) {
            ar_case c;
            const int H = heads[h][0], E = widths[w];
            const int L = lengths[(h + w) % (LS_THIN ? 3 : 5)];
            ar_case_init(&c, H, heads[h][1], E, L, (ls_dtype)((h + w) % 3), 13, 2.0f);
            float *q = kr_alloc((size_t)(H * E) * 4);
            kr_fill(q, (size_t)(H * E), 14, 3.0f);
            check("grouped heads", &c, L, rules[(h + 2 * w) % 4], q);
            free(q), ar_case_free(&c);
        }
}

static void sliding_windows(void **state) {
    (void)state;
    static const int windows[] = {1, 5, 64, 700, 4096};
    for (int w = 0; w < 5; w++)
        for (int u = 0; u < 4; u++) {
            ar_case c;
            const int E = u % 2 ? 24 : 64, L = 3 + 300 * w;
            ar_case_init(&c, 4, 2, E, L, (ls_dtype)((w + u) % 3), 33, 2.0f);
            c.window = windows[w];
            float *q = kr_alloc((size_t)(4 * E) * 4);
            kr_fill(q, (size_t)(4 * E), 34, 3.0f);
            check("a window", &c, L, rules[u], q);
            free(q), ar_case_free(&c);
        }
}

/* Keys are multiples of the query's direction, so scores are what the case wants. */
static void scores_built_to_hurt(void **state) {
    (void)state;
    enum { E = 16, L = 300 };
    float q[E];
    for (int e = 0; e < E; e++)
        q[e] = 1.0f;
    for (int kind = 0; kind < 5; kind++)
        for (int u = 0; u < 4; u++) {
            ar_case c;
            ar_case_init(&c, 1, 1, E, L, LS_F32, 6, 1.0f);
            for (int j = 0; j < L; j++) {
                float s = kr_uniform(7, (size_t)j);
                s = kind == 0   ? (j == L - 1 ? 30.0f : s) /* the maximum in the last chunk */
                    : kind == 1 ? 0.5f                     /* all equal */
                    : kind == 2 ? (j == 40 ? 9000.0f : s)  /* one huge score */
                    : kind == 3 ? (float)j * 0.7f          /* each chunk above the one before */
                                : -5000.0f + s;            /* all far below zero */
                for (int e = 0; e < E; e++)
                    ((float *)c.k)[j * E + e] = s / 4.0f; /* dot / sqrt(16) = s */
            }
            check("built to hurt", &c, L, rules[u], q);
            ar_case_free(&c);
        }
}

/* NaN behind the length is never read; a NaN before it is not hidden. */
static void nan_behind_the_length(void **state) {
    (void)state;
    enum { E = 12, T = 130 };
    ar_case c;
    ar_case_init(&c, 2, 1, E, T, LS_F32, 8, 2.0f);
    float q[2 * E], got[2 * E];
    kr_fill(q, 2 * E, 9, 2.0f);
    for (int L = 1; L < T; L++) {
        float kept[2 * E];
        memcpy(kept, (float *)c.v + L * E, sizeof *kept * E);
        memcpy(kept + E, (float *)c.k + L * E, sizeof *kept * E);
        for (int e = 0; e < E; e++)
            ((float *)c.v)[L * E + e] = ((float *)c.k)[L * E + e] = NAN;
        check("NaN behind the length", &c, L, rules[L % 4], q);
        const int32_t length[1] = {L + 1};
        ar_layout flat = ar_contiguous(&c, 1, 1);
        ar_run(be, &c, &flat, rules[L % 4], length, 1, q, got);
        for (int e = 0; e < 2 * E; e++)
            assert_true(isnan(got[e]));
        ar_layout_free(&flat);
        memcpy((float *)c.v + L * E, kept, sizeof *kept * E);
        memcpy((float *)c.k + L * E, kept + E, sizeof *kept * E);
    }
    ar_case_free(&c);
}

/* The merge of n states: the body itself, or on a GPU a launch of it alone (one column of zeros
 * more where the width is odd). */
static void join(const float *all, int n, int E, float *out) {
    if (!rig_on_gpu()) {
        kr_bodies(LS_SIMD_AUTO)->attn_join(all, n, E, out);
        return;
    }
    const int W = E + E % 2;
    float part[8 * 9] = {0}, wide[8] = {0};
    const int32_t length[1] = {n}, base[1] = {0}; /* n splits of a key each */
    for (int i = 0; i < n; i++)
        memcpy(part + i * (2 + W), all + i * (2 + E), (size_t)(2 + E) * 4);
    void *mem[] = {kr_dev(be, part, sizeof part), kr_dev(be, wide, sizeof wide),
                   kr_dev(be, length, sizeof length), kr_dev(be, base, sizeof base)};
    ls_attn_args a = {.part = mem[0], .out = mem[1], .length = mem[2], .loc.base = mem[3]};
    a.q = a.k_pool = a.v_pool = mem[1]; /* not looked at */
    a.rule = (ls_chunk_rule){LS_CHUNK_SPLITS, 0, n}, a.max_chunks = n, a.loc.n_slots = 1;
    a.scale = 1, a.n_rows = a.n_heads = a.n_kv = 1, a.head_dim = W, a.only = 2;
    be->attn(be, &a);
    kr_down(be, wide, mem[1], sizeof wide);
    memcpy(out, wide, (size_t)E * 4);
    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        kr_free(be, mem[i]);
}

/* tests/cases/numeric/splitkv.json: (m, l, o) of parts, o divided by l already. */
static void split_cases(void **state) {
    (void)state;
    json_error_t why;
    json_t *cases = json_load_file(LS_TEST_DIR "/cases/numeric/splitkv.json", 0, &why), *one;
    size_t i, p, e;
    if (!cases)
        fail_msg("%s", why.text);
    assert_int_equal(json_array_size(cases), 3);
    json_array_foreach (cases, i, one) {
        json_t *parts = json_object_get(one, "parts"), *part, *x;
        json_t *want = json_object_get(json_object_get(one, "right"), "o");
        const size_t E = json_array_size(want), n = json_array_size(parts);
        float out[8];
        assert_true(E >= 1 && E <= 6 && n >= 1 && n <= 7);
        for (int empty = 0; empty < 2; empty++) { /* an empty part in front changes nothing */
            float all[8 * 8] = {0}, *to = all + (empty ? 2 + E : 0);
            all[0] = -INFINITY;
            json_array_foreach (parts, p, part) {
                const double l = json_number_value(json_object_get(part, "l"));
                to[p * (2 + E)] = (float)json_number_value(json_object_get(part, "m"));
                to[p * (2 + E) + 1] = (float)l;
                json_array_foreach (json_object_get(part, "o"), e, x)
                    to[p * (2 + E) + 2 + e] = (float)(json_number_value(x) * l);
            }
            join(all, (int)n + empty, (int)E, out);
            json_array_foreach (want, e, x)
                kr_near(json_string_value(json_object_get(one, "name")), (double)out[e],
                        json_number_value(x), 4 * 0x1p-24 * fmax(1, fabs(json_number_value(x))));
        }
    }
    json_decref(cases);
}

/* Case C040 as a whole kernel: q = 0, v = 1 for the last 64 of 3136 keys and 0 before. */
static void share_of_the_last_keys(void **state) {
    (void)state;
    enum { E = 2, L = 3136 };
    ar_case c;
    ar_case_init(&c, 1, 1, E, L, LS_F32, 8, 2.0f);
    const float q[E] = {0, 0};
    for (int j = 0; j < L * E; j++)
        ((float *)c.v)[j] = j >= (L - 64) * E ? 1.0f : 0.0f;
    for (int u = 0; u < 4; u++) {
        float out[E];
        const int32_t length[1] = {L};
        ar_layout flat = ar_contiguous(&c, 1, 0);
        ar_run(be, &c, &flat, rules[u], length, 1, q, out);
        kr_near("64 of 3136", (double)out[0], 64.0 / 3136, 2 * 0x1p-24 * 64 / 3136);
        ar_layout_free(&flat);
    }
    ar_case_free(&c);
}

static int open_backend(void **state) {
    (void)state;
    be = kr_backend(LS_SIMD_AUTO, 0);
    return 0;
}
static int close_backend(void **state) {
    (void)state;
    ls_backend_destroy(be);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_rows),           cmocka_unit_test(grouped_heads),
        cmocka_unit_test(sliding_windows),       cmocka_unit_test(scores_built_to_hurt),
        cmocka_unit_test(nan_behind_the_length), cmocka_unit_test(split_cases),
        cmocka_unit_test(share_of_the_last_keys)};
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
