/* One source, several compilers: every operation gives the same bits in plain C, in AVX2 and in
 * AVX-512 (as far as the processor has them), with one thread and two, and on a GPU (profile ieee)
 * in two streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "cpu_bodies.h"
#include "draw.h"
#include "kernel_rig.h"

static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
enum { N_BACKENDS = 2 + KR_FORMS, WORDS = 1 << 21 };
/* the device's own choice on one thread and on two, then every form of the CPU */
static ls_backend *backend[N_BACKENDS];
static int n_backends;
static float *out[N_BACKENDS];

/* Compares what the backends left in out. */
static void compare(const char *what, size_t n, size_t row) {
    for (int b = 0; b < n_backends; b++)
        kr_sync(backend[b]);
    for (int b = 1; b < n_backends; b++) {
        if (kr_differ(NULL, out[0], out[b], n, row))
            print_error("%s against %s\n", backend[0]->device, backend[b]->device);
        kr_same(what, out[0], out[b], n, row);
    }
}

#define EACH(op, args, set)                \
    for (int b = 0; b < n_backends; b++) { \
        set;                               \
        kr_##op(backend[b], &(args));      \
    }

/* Of a grid, every step-th where tools slow a GPU down. */
static int stride(int step) {
    return rig_on_gpu() && LS_THIN ? step : 1;
}

static void rows_of_width(int D) {
    const int R = 5;
    const size_t n = (size_t)(R * D);
    float *x = kr_alloc(n * 4), *u = kr_alloc(n * 4);
    kr_fill(x, n, 1, 9.0f), kr_fill(u, n, 2, 3.0f);
    const int32_t index[5] = {4, 0, 3, 3, 1};
    for (int d = 0; d < 3; d++) {
        void *w = kr_weights((size_t)(7 * D), dtypes[d], 3, 1.0f);
        ls_rmsnorm_args norm = {x, w, dtypes[d], NULL, 1e-6f, R, D, NULL};
        EACH(rmsnorm, norm, norm.y = out[b]) compare("rmsnorm", n, (size_t)D);
        norm.add = u;
        EACH(rmsnorm, norm, norm.y = out[b]) compare("rmsnorm, residual", n, (size_t)D);
        ls_embed_args embed = {{w, dtypes[d], 7, D}, index, NULL, R, 0};
        EACH(embed, embed, embed.x = out[b]) compare("embed", n, (size_t)D);
        embed.scale = 33.94f;
        EACH(embed, embed, embed.x = out[b]) compare("scaled embed", n, (size_t)D);
        ls_linear_args lin = {.w = {w, dtypes[d], 7, D}, .x = x, .n_rows = R};
        EACH(linear, lin, lin.y = out[b]) compare("linear", (size_t)(7 * R), 7);
        free(w);
    }
    for (int d = LS_Q8_0; d <= LS_Q4_K && D % (int)ls_dtype_block((ls_dtype)d) == 0; d++) {
        void *w = kr_weights((size_t)(7 * D), (ls_dtype)d, 4, 1.0f);
        ls_embed_args embed = {{w, (ls_dtype)d, 7, D}, index, NULL, R, 0.5f};
        EACH(embed, embed, embed.x = out[b]) compare("packed embed", n, (size_t)D);
        ls_linear_args lin = {.w = {w, (ls_dtype)d, 7, D}, .x = x, .n_rows = R};
        EACH(linear, lin, lin.y = out[b]) compare("packed linear", (size_t)(7 * R), 7);
        free(w);
    }
    ls_silu_mul_args silu = {x, u, NULL, R, D};
    EACH(silu_mul, silu, silu.h = out[b]) compare("silu_mul", n, (size_t)D);
    ls_gelu_mul_args gelu = {x, u, NULL, R, D};
    EACH(gelu_mul, gelu, gelu.h = out[b]) compare("gelu_mul", n, (size_t)D);
    ls_gather_args gather = {x, index, NULL, R, D};
    EACH(gather, gather, gather.y = out[b]) compare("gather", n, (size_t)D);
    free(x), free(u);
}

static void rows(void **state) {
    (void)state;
    static const int dims[] = {1, 7, 16, 32, 768, 33, 96, 160, 576, 1025, 4097};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i += (size_t)stride(4))
        rows_of_width(dims[i]);
}

/* place leaves what rope and kv_store leave, one after the other. */
static void place_is_both(ls_backend *be, ls_rope_args rope, ls_dtype t, const float *q,
                          const float *k, const int32_t *slot, int S) {
    const size_t nq = (size_t)(rope.n_rows * rope.n_heads * rope.head_dim);
    const size_t nk = (size_t)(rope.n_rows * rope.n_kv * rope.head_dim);
    const size_t np = (size_t)(S * rope.n_kv * rope.head_dim), n = nq + nk + 2 * np;
    float *both[2];
    for (int i = 0; i < 2; i++) {
        float *o = both[i] = kr_alloc(n * 4);
        memcpy(o, q, nq * 4);
        memcpy(o + nq, k, nk * 4);
        memset(o + nq + nk, 0, 2 * np * 4);
        rope.q = o;
        rope.k = o + nq;
        const ls_kv_store_args store = {rope.k, k,           o + nq + nk, o + nq + nk + np, slot,
                                        t,      rope.n_rows, rope.n_kv,   rope.head_dim,    S};
        if (i == 0) {
            kr_rope(be, &rope);
            kr_kv_store(be, &store);
        } else {
            kr_place(be, &rope, &store);
        }
        kr_sync(be);
    }
    assert_memory_equal(both[0], both[1], n * 4);
    free(both[0]), free(both[1]);
}

static void heads(void **state) {
    (void)state;
    static const int widths[] = {2, 8, 12, 64, 80, 256};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i += (size_t)stride(3)) {
        const int E = widths[i], H = 4, G = 2, R = 6, S = 10;
        const size_t nq = (size_t)(R * H * E), nk = (size_t)(R * G * E), np = (size_t)(S * G * E);
        const int32_t pos[6] = {0, 1, 2, 9, 4, 5}, slot[6] = {3, 9, 0, -1, 10, 5};
        float *table = kr_alloc((size_t)(10 * E) * 4), *q = kr_alloc(nq * 4), *k = kr_alloc(nk * 4);
        kr_fill(table, (size_t)(10 * E), 5, 1.0f), kr_fill(q, nq, 6, 2.0f), kr_fill(k, nk, 7, 2.0f);
        ls_rope_args rope = {NULL, NULL, pos, table, table + 5 * E, R, H, G, E, 10};
        EACH(rope, rope,
             (memcpy(out[b], q, nq * 4), memcpy(out[b] + nq, k, nk * 4), rope.q = out[b],
              rope.k = out[b] + nq))
        compare("rope", nq + nk, (size_t)E);
        for (int d = 0; d < 3; d++) {
            ls_kv_store_args store = {k, k, NULL, NULL, slot, dtypes[d], R, G, E, S};
            EACH(kv_store, store,
                 (memset(out[b], 0, 2 * np * 4), store.k_pool = out[b], store.v_pool = out[b] + np))
            compare("kv_store", 2 * np, (size_t)E);
        }
        for (int b = 0; b < n_backends; b++)
            for (int d = 0; d < 3; d++)
                place_is_both(backend[b], rope, dtypes[d], q, k, slot, S);
        free(table), free(q), free(k);
    }
}

static void attention(void **state) {
    (void)state;
    static const ls_chunk_rule rules[] = {
        {LS_CHUNK_EVEN, 32, 64}, {LS_CHUNK_SPLITS, 0, 1}, {LS_CHUNK_DOUBLING, 16, 8}};
    static const int widths[] = {8, 12, 64, 96};
    for (int i = 0; i < 4; i += stride(2))
        for (int group = 1; group <= 5; group += stride(2))
            for (int d = 0; d < 3; d++) {
                const int E = widths[i], G = 2, H = G * group, S = 700, R = 4;
                const size_t nq = (size_t)(R * H * E), np = (size_t)(S * G * E);
                const int32_t length[4] = {1, 700, 0, 333}, base[4] = {5, 0, 0, 300};
                float *q = kr_alloc(nq * 4);
                void *k = kr_weights(np, dtypes[d], 8, 1.0f),
                     *v = kr_weights(np, dtypes[d], 9, 1.0f);
                kr_fill(q, nq, 10, 4.0f);
                ls_attn_args a = {.q = q, .k_pool = k, .v_pool = v, .kv_dtype = dtypes[d]};
                a.loc.base = base, a.loc.n_slots = S, a.length = length;
                a.rule = rules[(i + group + d) % 3];
                a.max_chunks = ls_chunk_bound(a.rule, S);
                a.part = kr_alloc((size_t)(R * H * a.max_chunks * (2 + E)) * 4);
                a.scale = 0.2f, a.n_rows = R, a.n_heads = H, a.n_kv = G, a.head_dim = E;
                EACH(attn, a, a.out = out[b]) compare("attention", nq, (size_t)E);
                free(q), free(k), free(v), free(a.part);
            }
}

static void vocabulary(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 31, 33, 127, 513, 1025, 5000};
    const ls_warp warp[5] = {{0, 0, 1, 0},
                             {1, 0, 1, 0},
                             {0.7f, 40, 0.9f, 0.02f},
                             {1.5f, 0, 0.8f, 0},
                             {0.9f, 0, 1, 1}}; /* of min_p 1 the largest remain: equality decides */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += (size_t)stride(3)) {
        const int V = sizes[i], R = 5;
        const size_t n = (size_t)(R * V);
        float *x = kr_alloc(n * 4);
        ls_draw draw[5];
        ls_row_stats stats[N_BACKENDS][5];
        int32_t token[N_BACKENDS][5];
        kr_fill(x, n, 12, 8.0f);
        if (V > 100)
            x[V + 50] = -INFINITY, x[3 * V + 99] = -0.0f;
        for (int r = 0; r < R; r++)
            draw[r] = ls_draw_key(99, 1, (uint32_t)r, LS_DRAW_TEST, 0);
        ls_stats_args s = {x, V, V, warp, draw, LS_TOP_MAX, NULL, R, 0, NULL};
        EACH(stats, s, (memset(stats[b], 0xff, sizeof stats[b]), s.stats = stats[b]))
        compare("stats", 0, 1);
        for (int b = 1; b < n_backends; b++)
            assert_memory_equal(stats[0], stats[b], sizeof stats[0]);
        ls_probs_args p = {x, stats[0], NULL, V, V, R};
        EACH(probs, p, p.prob = out[b]) compare("probs", n, (size_t)V);
        ls_choose_args c = {out[0], draw, NULL, V, R};
        EACH(choose, c, c.token = token[b])
        for (int b = 1; b < n_backends; b++)
            assert_memory_equal(token[0], token[b], sizeof token[0]);
        free(x);
    }
}

static void functions(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    float *x = kr_alloc(N * 4), *size = kr_alloc(N * 4);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t u = i << 16 | (i * 40503u & 0xffffu);
        memcpy(x + i, &u, 4);
        if (isnan(x[i]))
            x[i] = 1.0f; /* a NaN's payload is nobody's promise */
        size[i] = fabsf(x[i]);
    }
    static const ls_simd kinds[] = {LS_SIMD_AVX2, LS_SIMD_AVX512};
    for (int i = 0; i < 2; i++) {
        const ls_cpu_bodies *fast = kr_bodies(kinds[i]);
        if (!fast)
            continue;
        fast->exp(x, out[0], N), ls_cpu_plain.exp(x, out[1], N);
        kr_same("exp", out[0], out[1], N, N);
        fast->log(size, out[0], N), ls_cpu_plain.log(size, out[1], N);
        kr_same("log", out[0], out[1], N, N);
    }
    if (rig_on_gpu()) { /* exp through an operation; the draws of `vocabulary` have log */
        for (int i = 0; i < N; i++)
            size[i] = 1.0f;
        const ls_silu_mul_args a = {x, size, out[0], 1, N};
        kr_silu_mul(backend[0], &a); /* compares with plain C */
    }
    free(x), free(size);
}

/* Negative control: the same products in another order are another sum. */
static void control(void **state) {
    (void)state;
    enum { K = 576 };
    float w[2][K], x[2][K], y[2];
    kr_fill(w[0], K, 13, 1.0f), kr_fill(x[0], K, 14, 1.0f);
    int differ = 0;
    for (int turn = 1; turn < 20; turn++) {
        for (int k = 0; k < K; k++)
            w[1][k] = w[0][(k + turn) % K], x[1][k] = x[0][(k + turn) % K];
        for (int i = 0; i < 2; i++) {
            ls_linear_args a = {.w = {w[i], LS_F32, 1, K}, .x = x[i], .y = y + i, .n_rows = 1};
            kr_linear(backend[0], &a);
        }
        differ += memcmp(y, y + 1, 4) != 0;
    }
    assert_true(differ > 5);
}

static int open_backends(void **state) {
    (void)state;
    backend[0] = kr_backend(LS_SIMD_AUTO, 1);
    backend[1] = kr_backend(LS_SIMD_AUTO, 2);
    n_backends = 2 + kr_forms(backend + 2);
    for (int b = 0; b < n_backends; b++)
        out[b] = kr_alloc(WORDS * sizeof **out);
    return 0;
}
static int close_backends(void **state) {
    (void)state;
    for (int b = 0; b < n_backends; b++)
        ls_backend_destroy(backend[b]), free(out[b]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows),      cmocka_unit_test(heads),
                                       cmocka_unit_test(attention), cmocka_unit_test(vocabulary),
                                       cmocka_unit_test(functions), cmocka_unit_test(control)};
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
