/* The parts of a CPU backend that compute nothing: kept failures, copies, lent weights, stamps, the
 * plain read, attention by halves, linears together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "host_copy.h"
#include "kernel_rig.h"

static ls_backend *be;

static void refuse(int32_t dim) {
    float x = 0;
    be->silu_mul(be, &(ls_silu_mul_args){&x, &x, &x, 1, dim});
}

/* The first failure comes once, from whichever of the four is asked first. */
static void failures(void **state) {
    (void)state;
    ls_err err;
    int32_t from = 3, to = 0;
    for (int who = 0; who < 4; who++) {
        refuse(-1), refuse(-2);
        ls_status got = who == 0   ? be->sync(be, &err)
                        : who == 1 ? be->status(be, &err)
                        : who == 2 ? be->weights_done(be, &err)
                                   : be->download(be, &to, &from, sizeof to, &err);
        assert_int_equal(got, LS_ERR_SHAPE);
        assert_non_null(strstr(err.msg, "-1"));
        assert_int_equal(be->status(be, &err), LS_OK);
        assert_int_equal(be->sync(be, &err), LS_OK);
        assert_int_equal(be->download(be, &to, &from, sizeof to, &err), LS_OK);
        assert_int_equal(to, 3);
    }
}

/* Around the ends of pieces, at any alignment, with the bytes behind left alone. */
static void copies(void **state) {
    (void)state;
    static const size_t bytes[] = {0, 1, 63, 524287, 524288, 524289, 1048577, 5000003};
    enum { MOST = 5000003 + 16, GUARD = 8 };
    unsigned char *src = kr_alloc(MOST), *dst = kr_alloc(MOST);
    for (size_t i = 0; i < MOST; i++)
        src[i] = (unsigned char)(i * 2654435761u >> 24);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        memset(dst, 0xee, MOST);
        ls_host_copy(dst + i, src + 7 - i, bytes[i]);
        assert_memory_equal(dst + i, src + 7 - i, bytes[i]);
        for (size_t k = 0; k < GUARD; k++)
            assert_int_equal(dst[i + bytes[i] + k], 0xee);
    }
    free(src), free(dst);
}

static void lends(void **state) {
    (void)state;
    ls_err err;
    float w[6] = {0};
    const ls_mat host = {w, LS_F32, 2, 3};
    ls_mat dev;
    assert_int_equal(be->mat(be, &host, &dev, &err), LS_OK);
    assert_ptr_equal(dev.data, w);
    assert_int_equal(dev.n_out, 2);
    assert_int_equal(dev.n_in, 3);
    be->mat_free(be, &dev);
    assert_null(be->record);
    assert_null(be->attn_launch);
}

static void stamps(void **state) {
    (void)state;
    const int n = 1 << 20;
    float *x = kr_alloc((size_t)n * 4);
    memset(x, 0, (size_t)n * 4);
    for (int32_t i = 0; i < LS_STAMPS; i++) {
        be->stamp(be, i);
        be->silu_mul(be, &(ls_silu_mul_args){x, x, x, 1, n});
    }
    kr_sync(be);
    for (int32_t i = 0; i + 1 < LS_STAMPS; i++)
        assert_true(be->between(be, i, i + 1) > 1); /* a million exp take longer */
    assert_true(be->between(be, 0, 3) > be->between(be, 0, 1));
    assert_true(be->between(be, 1, 0) == -be->between(be, 0, 1));
    free(x);
}

/* Every size and offset ends where its memory ends: the sanitizers watch. */
static void reads(void **state) {
    (void)state;
    static const size_t bytes[] = {0, 1, 7, 8, 127, 128, 129, 262143, 262144, 262145, 1000003};
    enum { N = sizeof bytes / sizeof *bytes };
    ls_span span[N];
    char *own[N];
    for (size_t i = 0; i < N; i++) {
        own[i] = kr_alloc(bytes[i] + i);
        span[i] = (ls_span){own[i] + i, bytes[i]};
    }
    for (int32_t n = 0; n <= N; n++)
        be->read(be, span, n);
    kr_sync(be);
    /* it takes the time of reading: sixteen times the bytes take longer */
    const size_t much = (size_t)64 << 20;
    char *big = kr_alloc(much);
    const ls_span part = {big, much / 16}, all = {big, much};
    double short_us = 1e30, long_us = 1e30;
    for (int k = 0; k < 5; k++) {
        be->stamp(be, 0);
        be->read(be, &part, 1);
        be->stamp(be, 1);
        be->read(be, &all, 1);
        be->stamp(be, 2);
        kr_sync(be);
        short_us = be->between(be, 0, 1) < short_us ? be->between(be, 0, 1) : short_us;
        long_us = be->between(be, 1, 2) < long_us ? be->between(be, 1, 2) : long_us;
    }
    assert_true(long_us > 2 * short_us);
    free(big);
    for (size_t i = 0; i < N; i++)
        free(own[i]);
}

/* The chunks alone, then the merge alone: the bits of both at once, and each leaves the other's. */
static void halves(void **state) {
    (void)state;
    enum { R = 3, H = 4, G = 2, E = 32, T = 200, CHUNKS = 64 };
    const size_t n_part = (size_t)R * H * CHUNKS * (2 + E), n_out = (size_t)R * H * E;
    float *q = kr_alloc(n_out * 4), *k = kr_alloc(T * G * E * 4), *v = kr_alloc(T * G * E * 4);
    float *part = kr_alloc(n_part * 4), *out = kr_alloc(n_out * 4), *want = kr_alloc(n_out * 4);
    const int32_t base[R] = {0, 0, 0}, length[R] = {1, 100, 197};
    kr_fill(q, n_out, 1, 1), kr_fill(k, T * G * E, 2, 1), kr_fill(v, T * G * E, 3, 1);
    ls_attn_args a = {.q = q,
                      .k_pool = k,
                      .v_pool = v,
                      .kv_dtype = LS_F32,
                      .loc = {.base = base, .n_slots = T},
                      .length = length,
                      .rule = {LS_CHUNK_EVEN, 32, CHUNKS},
                      .max_chunks = CHUNKS,
                      .part = part,
                      .out = want,
                      .scale = 0.176776695f,
                      .n_rows = R,
                      .n_heads = H,
                      .n_kv = G,
                      .head_dim = E};
    be->attn(be, &a);
    memset(part, 0xff, n_part * 4);
    a.out = out, a.only = 1;
    be->attn(be, &a);
    for (size_t i = 0; i < n_out * 4; i++)
        assert_int_equal(((unsigned char *)out)[i], 0xff);
    memset(k, 0xff, T * G * E * 4); /* the merge reads no key */
    a.only = 2;
    be->attn(be, &a);
    kr_sync(be);
    kr_same("halves", out, want, n_out, E);
    free(q), free(k), free(v), free(part), free(out), free(want);
}

static void together(void **state) {
    (void)state;
    enum { IN = 70, R = 3 };
    static const int32_t n_out[LS_LINEARS] = {5, 64, 33};
    float x[R * IN], y[LS_LINEARS][R * 64], want[R * 64];
    ls_linear_args a[LS_LINEARS + 1] = {{.n_rows = 0}};
    kr_fill(x, R * IN, 4, 1);
    for (int i = 0; i < LS_LINEARS; i++) {
        a[i] = (ls_linear_args){.w = {kr_weights((size_t)n_out[i] * IN, LS_BF16, (uint32_t)i, 1),
                                      LS_BF16, n_out[i], IN},
                                .x = x,
                                .y = y[i],
                                .n_rows = R};
    }
    be->linears(be, a, LS_LINEARS);
    kr_sync(be);
    for (int i = 0; i < LS_LINEARS; i++) {
        ls_linear_args one = a[i];
        one.y = want;
        be->linear(be, &one);
        kr_sync(be);
        kr_same("linears", y[i], want, (size_t)(R * n_out[i]), (size_t)n_out[i]);
        free((void *)(uintptr_t)a[i].w.data);
    }
    ls_err err;
    be->linears(be, a, LS_LINEARS + 1);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
}

static int open_backend(void **state) {
    (void)state;
    be = kr_cpu(LS_SIMD_AUTO, 2);
    return 0;
}
static int close_backend(void **state) {
    (void)state;
    ls_backend_destroy(be);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(failures), cmocka_unit_test(copies),
                                       cmocka_unit_test(lends),    cmocka_unit_test(stamps),
                                       cmocka_unit_test(reads),    cmocka_unit_test(halves),
                                       cmocka_unit_test(together)};
    return cmocka_run_group_tests_name("backend_state", tests, open_backend, close_backend);
}
