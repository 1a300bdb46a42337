/* What the CUDA backend refuses: a device that is not there, more memory than there is, host
 * traffic while launches are recorded. One clear line each, and the backend lives on. Without a
 * GPU: the line that says so. And uploads to a device that lags behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernel_rig.h"

/* One line, not empty, that says what it is about. */
static void assert_line(const ls_err *err) {
    assert_true(strlen(err->msg) > 10);
    assert_null(strchr(err->msg, '\n'));
    if (!strstr(err->msg, "CUDA") && !strstr(err->msg, "cuda") && !strstr(err->msg, "NVIDIA") &&
        !strstr(err->msg, "profile") && !strstr(err->msg, "memory") && !strstr(err->msg, "record"))
        fail_msg("does not say what it is about: %s", err->msg);
}

static ls_backend *open_gpu(void) {
    return rig_backend_on(rig_device_gpu(RIG_CUDA), (ls_cpu_options){0});
}

static bool there(void) {
    ls_err why;
    return rig_device_there(RIG_CUDA, &why);
}

static void no_such_device(void **state) {
    (void)state;
    static const int32_t devices[] = {-1, 64, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        ls_backend *be = NULL;
        ls_err err = {0};
        assert_int_equal(ls_cuda_create((ls_cuda_options){.device = devices[i]}, &be, &err),
                         LS_ERR_INPUT);
        assert_null(be);
        assert_line(&err);
        assert_int_equal(ls_cuda_create((ls_cuda_options){.device = devices[i]}, &be, NULL),
                         LS_ERR_INPUT);
    }
}

static void no_such_profile(void **state) {
    (void)state;
    ls_backend *be = NULL;
    ls_err err = {0};
    assert_int_equal(ls_cuda_create((ls_cuda_options){.profile = (ls_profile)9}, &be, &err),
                     LS_ERR_INPUT);
    assert_null(be);
    assert_line(&err);
}

/* The small allocation after the absurd one works: the failure is not kept. */
static void too_much_memory(void **state) {
    (void)state;
    if (!there())
        skip();
    ls_backend *be = open_gpu();
    static const size_t absurd[] = {(size_t)1 << 46, SIZE_MAX - 5, SIZE_MAX};
    for (int i = 0; i < 3; i++) {
        ls_err err = {0};
        void *p = NULL;
        assert_int_equal(be->alloc(be, absurd[i], &p, &err), LS_ERR_MEMORY);
        assert_null(p);
        assert_line(&err);
        const float x[4] = {1, 2, 3, 4};
        float y[4] = {0};
        void *q = kr_dev(be, x, sizeof x);
        assert_int_equal((uintptr_t)q % 64, 0);
        kr_down(be, y, q, sizeof y);
        assert_memory_equal(x, y, sizeof x);
        kr_free(be, q);
        kr_sync(be);
    }
    be->free(be, NULL);
    ls_backend_destroy(be);
}

static void recording(void **state) {
    (void)state;
    if (!there())
        skip();
    ls_backend *be = open_gpu();
    enum { N = 64 };
    ls_err err = {0};
    ls_graph *graph = NULL;
    float x[N], y[N] = {0}, want[N];
    if (!be->record) {
        ls_backend_destroy(be);
        skip();
    }
    kr_fill(x, N, 3, 1.0f);
    void *x_d = kr_dev(be, x, sizeof x), *y_d = kr_dev(be, NULL, sizeof y), *p = NULL;
    const int32_t index[1] = {0};
    void *index_d = kr_dev(be, index, sizeof index);
    const ls_gather_args copy = {x_d, index_d, y_d, 1, N};
    assert_int_equal(be->record(be, &err), LS_OK);
    assert_int_not_equal(be->upload(be, x_d, x, sizeof x, &err), LS_OK);
    assert_line(&err);
    assert_int_not_equal(be->download(be, y, x_d, sizeof y, &err), LS_OK);
    assert_line(&err);
    assert_int_not_equal(be->alloc(be, 64, &p, &err), LS_OK);
    assert_line(&err);
    assert_int_not_equal(be->record(be, &err), LS_OK); /* twice */
    be->gather(be, &copy);
    assert_int_equal(be->record_end(be, &graph, &err), LS_OK);
    assert_int_not_equal(be->record_end(be, &graph, &err), LS_OK); /* none is going on */
    /* the refusals above spoilt nothing: kept, not run; then run, on what lies there at the time */
    kr_down(be, y, y_d, sizeof y);
    assert_true(y[0] != y[0]);
    for (int turn = 0; turn < 3; turn++) {
        kr_fill(want, N, (uint32_t)turn + 9, 1.0f);
        kr_up(be, x_d, want, sizeof want);
        assert_int_equal(be->replay(be, graph, &err), LS_OK);
        kr_down(be, y, y_d, sizeof y);
        kr_same("replayed", y, want, N, N);
    }
    be->graph_free(be, graph);
    be->graph_free(be, NULL);
    kr_free(be, x_d), kr_free(be, y_d), kr_free(be, index_d);
    kr_sync(be);
    ls_backend_destroy(be);
}

/* Lengths are in device memory, so a kernel finds the row that has more chunks than the scratch
 * holds: the next sync says so, once. What lies behind the scratch stays as it was. */
static void too_many_chunks_of(ls_backend *be, ls_dtype t) {
    enum { E = 32, T = 100 };
    ls_err err = {0};
    const int32_t length[1] = {T}, short_length[1] = {90}, base[1] = {0};
    float part[10 * (2 + E)], after[2 + E], out[E];
    kr_fill(part, 10 * (2 + E), 4, 1.0f);
    void *mem[] = {kr_dev(be, NULL, E * 4),      kr_dev(be, NULL, T * E * 4),
                   kr_dev(be, NULL, T * E * 4),  kr_dev(be, part, sizeof part),
                   kr_dev(be, part, E * 4),      kr_dev(be, length, sizeof length),
                   kr_dev(be, base, sizeof base)};
    ls_attn_args a = {.q = mem[0], .k_pool = mem[1], .v_pool = mem[2], .part = mem[3]};
    a.out = mem[4], a.length = mem[5], a.loc.base = mem[6], a.loc.n_slots = T, a.scale = 1;
    a.n_rows = a.n_heads = a.n_kv = 1, a.head_dim = E, a.kv_dtype = t;
    a.rule = (ls_chunk_rule){LS_CHUNK_EVEN, 10, 64}, a.max_chunks = 9; /* ten are needed */
    be->attn(be, &a);
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    assert_non_null(strstr(err.msg, "100 keys"));
    assert_int_equal(be->sync(be, &err), LS_OK);
    kr_down(be, after, (float *)mem[3] + 9 * (2 + E), sizeof after);
    kr_same("behind the scratch", after, part + 9 * (2 + E), 2 + E, 2 + E);
    kr_down(be, out, mem[4], sizeof out);
    assert_true(out[0] != out[0]);
    kr_up(be, mem[5], short_length, sizeof short_length);
    be->attn(be, &a);
    assert_int_equal(be->sync(be, &err), LS_OK);
    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        kr_free(be, mem[i]);
}

static void too_many_chunks(void **state) {
    (void)state;
    if (!there())
        skip();
    ls_backend *be = open_gpu();
    too_many_chunks_of(be, LS_F32);
    too_many_chunks_of(be, LS_BF16); /* on tensor cores, where the profile has them */
    ls_backend_destroy(be);
}

/* An upload has read its source when it returns, though the device is still busy with what came
 * before: the source may be overwritten then. */
static void uploads(void **state) {
    (void)state;
    if (!there())
        skip();
    enum { LAG = 4000, STEP = 977 };
    static const size_t bytes[] = {65536,    65537,    1000001,  8388607,  8388608, 8388609,
                                   33554432, 33554433, 67108863, 16777217, 5000000, 41943041};
    enum { N = sizeof bytes / sizeof *bytes };
    ls_backend *be = open_gpu();
    ls_err err = {0};
    const size_t most = 67108864, room = most + N * STEP;
    unsigned char *host = kr_alloc(room), *want = kr_alloc(room), *back = kr_alloc(most);
    char *busy = kr_dev(be, NULL, 4 * most), *dev[N];
    for (size_t k = 0; k < room; k++)
        want[k] = (unsigned char)(k * 2654435761u >> 24);
    memcpy(host, want, room);
    for (size_t i = 0; i < N; i++)
        dev[i] = kr_dev(be, NULL, bytes[i]);
    for (int k = 0; k < LAG; k++)
        assert_int_equal(be->copy(be, busy, busy + 2 * most, 2 * most, &err), LS_OK);
    for (size_t i = 0; i < N; i++)
        kr_up(be, dev[i], host + i * STEP, bytes[i]);
    memset(host, 0, room);
    for (size_t i = 0; i < N; i++) {
        kr_down(be, back, dev[i], bytes[i]);
        if (memcmp(back, want + i * STEP, bytes[i]) != 0)
            fail_msg("upload %zu of %zu bytes came out wrong", i, bytes[i]);
        kr_free(be, dev[i]);
    }
    kr_free(be, busy);
    free(host), free(want), free(back);
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_device),  cmocka_unit_test(no_such_profile),
        cmocka_unit_test(too_much_memory), cmocka_unit_test(recording),
        cmocka_unit_test(too_many_chunks), cmocka_unit_test(uploads)};
    if (rig_on_gpu()) /* asked for by name */
        rig_device_need(rig_device_chosen());
    return cmocka_run_group_tests_name("cuda_err", tests, NULL, NULL);
}
