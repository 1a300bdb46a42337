/* N-ATTN and N-LOC, bits: layouts, neighbours and threads are in no result, and the order of
 * arithmetic is the one written out below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "attn_rig.h"
#include "cpu_bodies.h"
#include "kernel_rig.h"

static const int edges[] = {0,   1,   31,   32,   33,   63,   64,   65,   511,
                            512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4097};
static const ls_chunk_rule rules[] = {{LS_CHUNK_EVEN, 32, 64},     {LS_CHUNK_EVEN, 100, 3},
                                      {LS_CHUNK_DOUBLING, 32, 64}, {LS_CHUNK_DOUBLING, 48, 4},
                                      {LS_CHUNK_SPLITS, 0, 1},     {LS_CHUNK_SPLITS, 0, 5}};
enum { N_EDGES = sizeof edges / sizeof *edges, N_RULES = sizeof rules / sizeof *rules };

static ls_backend *be, *two;

/* ---- the order of N-ATTN, one lane after another --------------------------------------------- */

static float butterfly(float lane[32]) {
    float next[32];
    for (int o = 16; o > 0; o /= 2) {
        for (int l = 0; l < 32; l++)
            next[l] = lane[l] + lane[l ^ o];
        memcpy(lane, next, sizeof next);
    }
    return lane[0];
}

static float exp_of(float x) {
    float y;
    ls_cpu_plain.exp(&x, &y, 1);
    return y;
}

typedef struct state {
    float m, l, acc[256];
} state;

/* Keys k0 .. k1 - 1 in one piece. */
static void piece(const ar_case *c, const float *q, int g, int k0, int k1, state *s) {
    float score[2048], lane[32] = {0};
    s->m = -INFINITY;
    for (int j = k0; j < k1; j++) {
        float dot[32] = {0};
        for (int e = 0; e < c->E; e++)
            dot[e % 32] =
                fmaf(q[e], (float)kr_value(c->k, (size_t)((j * c->G + g) * c->E + e), c->t),
                     dot[e % 32]);
        score[j - k0] = butterfly(dot) * c->scale;
        s->m = score[j - k0] > s->m ? score[j - k0] : s->m;
    }
    for (int j = k0; j < k1; j++) {
        score[j - k0] = exp_of(score[j - k0] - s->m);
        lane[(j - k0) % 32] += score[j - k0];
    }
    s->l = butterfly(lane);
    for (int e = 0; e < c->E; e++) {
        s->acc[e] = 0;
        for (int j = k0; j < k1; j++)
            s->acc[e] =
                fmaf(score[j - k0],
                     (float)kr_value(c->v, (size_t)((j * c->G + g) * c->E + e), c->t), s->acc[e]);
    }
}

static void chunk_state(const ar_case *c, const float *q, int g, int k0, int k1, state *s) {
    static state now;
    for (int k = k0; k < k1; k += 2048) {
        piece(c, q, g, k, k1 - k < 2048 ? k1 : k + 2048, k == k0 ? s : &now);
        if (k == k0)
            continue;
        const float top = s->m > now.m ? s->m : now.m;
        const float w = exp_of(s->m - top), w1 = exp_of(now.m - top);
        const float was = w * s->l, more = w1 * now.l;
        s->m = top;
        s->l = was + more;
        for (int e = 0; e < c->E; e++)
            s->acc[e] = fmaf(w1, now.acc[e], w * s->acc[e]);
    }
}

static void by_lanes(const ar_case *c, ls_chunk_rule rule, int L, const float *q, int g,
                     float *out) {
    static state s[1024];
    const int chunk = ls_chunk_len(rule, L), n = ls_chunk_count(rule, L);
    float top = -INFINITY, lane[32] = {0}, w[1024];
    for (int i = 0; i < n; i++) {
        chunk_state(c, q, g, i * chunk, L - i * chunk < chunk ? L : (i + 1) * chunk, s + i);
        top = s[i].m > top ? s[i].m : top;
    }
    for (int i = 0; i < n; i++) {
        w[i] = exp_of(s[i].m - top);
        lane[i % 32] = fmaf(w[i], s[i].l, lane[i % 32]);
    }
    const float l = butterfly(lane);
    for (int e = 0; e < c->E; e++) {
        float acc = n ? w[0] * s[0].acc[e] : 0;
        for (int i = 1; i < n; i++)
            acc = fmaf(w[i], s[i].acc[e], acc);
        out[e] = n ? acc / l : 0;
    }
}

static void written_out(void **unused) {
    (void)unused;
    if (!rig_on_ieee())
        skip(); /* another profile, another order */
    static const int lengths[] = {0, 1, 31, 33, 65, 512, 1025, 2049, 4097};
    static const int widths[] = {8, 12, 64, 40};
    for (int i = 0; i < 9; i++)
        for (int u = 0; u < N_RULES; u++) {
            ar_case c;
            const int L = lengths[i], E = L > 600 ? 12 : widths[(i + u) % 4];
            ar_case_init(&c, 3, 1, E, L ? L : 1, (ls_dtype)(u % 3), 5, 3.0f);
            float *q = ar_queries(&c, 1), got[3 * 64], want[3 * 64];
            ar_layout flat = ar_contiguous(&c, 1, 2);
            const int32_t length[1] = {L};
            ar_run(be, &c, &flat, rules[u], length, 1, q, got);
            for (int h = 0; h < 3; h++)
                by_lanes(&c, rules[u], L, q + h * E, 0, want + h * E);
            kr_same("the order written out", got, want, (size_t)(3 * E), (size_t)E);
            ar_layout_free(&flat), free(q), ar_case_free(&c);
        }
}

/* ---- what must not matter -------------------------------------------------------------------- */

static void layouts(void **unused) {
    (void)unused;
    for (int i = 1; i < N_EDGES; i++)
        for (int u = 0; u < N_RULES; u++) {
            ar_case c;
            const int L = edges[i], R = 2;
            ar_case_init(&c, 4, 2, 16, L, (ls_dtype)(i % 3), 9, 2.0f);
            float *q = ar_queries(&c, R), want[2 * 4 * 16], got[2 * 4 * 16];
            const int32_t length[2] = {L, L - 1};
            ar_layout flat = ar_contiguous(&c, R, 3);
            ar_run(be, &c, &flat, rules[u], length, R, q, want);
            ar_run(two, &c, &flat, rules[u], length, R, q, got);
            kr_same("two threads", got, want, 128, 16);
            ar_layout other[5] = {ar_paged(&c, R, 1), ar_paged(&c, R, 16), ar_paged(&c, R, 32),
                                  ar_tree(&c, R, L / 2), ar_tree(&c, R, L > 5 ? L - 5 : 0)};
            for (int o = 0; o < 5; o++) {
                ar_run(be, &c, &other[o], rules[u], length, R, q, got);
                kr_same(o < 3 ? "paged, contiguous" : "tree, contiguous", got, want, 128, 16);
                ar_layout_free(&other[o]);
            }
            ar_layout_free(&flat), free(q), ar_case_free(&c);
        }
}

/* Rows of all edge lengths in one call, each against itself alone. */
static void neighbours(void **unused) {
    (void)unused;
    ar_case c;
    ar_case_init(&c, 3, 1, 32, 4097, LS_BF16, 15, 2.0f);
    const size_t row = 96;
    float *q = ar_queries(&c, N_EDGES), *all = kr_alloc(N_EDGES * row * 4), alone[96];
    ar_layout flat = ar_contiguous(&c, N_EDGES, 0);
    for (int u = 0; u < N_RULES; u++) {
        int32_t length[N_EDGES];
        for (int turn = 0; turn < 2; turn++) { /* forwards, then backwards: other neighbours */
            for (int i = 0; i < N_EDGES; i++)
                length[i] = edges[turn ? N_EDGES - 1 - i : i];
            ar_run(turn ? two : be, &c, &flat, rules[u], length, N_EDGES, q, all);
            for (int i = 0; i < N_EDGES; i++) {
                ar_run(be, &c, &flat, rules[u], length + i, 1, q + (size_t)i * row, alone);
                kr_same("together, alone", all + (size_t)i * row, alone, row, 32);
            }
        }
    }
    ar_layout_free(&flat), free(q), free(all), ar_case_free(&c);
}

static void one_split_is_one_pass(void **unused) {
    (void)unused;
    const ls_chunk_rule splits = {LS_CHUNK_SPLITS, 0, 1}, whole = {LS_CHUNK_EVEN, 2048, 64};
    for (int i = 0; i < N_EDGES && edges[i] <= 2048; i++) {
        ar_case c;
        ar_case_init(&c, 2, 1, 64, 2048, LS_F32, 19, 2.0f);
        float *q = ar_queries(&c, 1), a[128], b[128];
        const int32_t length[1] = {edges[i]};
        ar_layout flat = ar_contiguous(&c, 1, 0);
        ar_run(be, &c, &flat, splits, length, 1, q, a);
        ar_run(be, &c, &flat, whole, length, 1, q, b);
        kr_same("splits(1), one chunk", a, b, 128, 64);
        ar_layout_free(&flat), free(q), ar_case_free(&c);
    }
}

/* Negative control: another chunk length is another order. */
static void control(void **unused) {
    (void)unused;
    ar_case c;
    ar_case_init(&c, 4, 1, 64, 1025, LS_F32, 23, 2.0f);
    float *q = ar_queries(&c, 1), a[256], b[256];
    const int32_t length[1] = {1025};
    ar_layout flat = ar_contiguous(&c, 1, 0);
    ar_run(be, &c, &flat, rules[0], length, 1, q, a);
    for (int u = 1; u < N_RULES; u += 2) {
        ar_run(be, &c, &flat, rules[u], length, 1, q, b);
        assert_true(kr_differ(NULL, a, b, 256, 64) > 20);
    }
    ar_layout_free(&flat), free(q), ar_case_free(&c);
}

/* ---- table edges (case C042) ----------------------------------------------------------------- */

/* The row's table ends at the end of a page that is followed by an unreadable one. */
static void tail_entries_are_not_read(void **unused) {
    (void)unused;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *pages = NULL;
    assert_int_equal(posix_memalign(&pages, page, 2 * page), 0);
    char *map = pages;
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    static const int lengths[] = {1, 15, 16, 17, 31, 32};
    ar_case c;
    ar_case_init(&c, 2, 1, 16, 32, LS_F32, 29, 2.0f);
    ar_layout l = ar_paged(&c, 9, 16);
    ar_layout_free(&l);
    l = ar_contiguous(&c, 9, 8 * 16 - 32); /* 8 blocks of 16 and 3 slots more */
    free(l.base);
    l.base = NULL, l.block_rows = 16, l.n_slots = 8 * 16;
    const size_t row = 16 * sizeof(float);
    memset(l.k, 0xff, 131 * row), memset(l.v, 0xff, 131 * row);
    for (int j = 0; j < 32; j++) { /* table [5, 2] */
        const size_t slot = (size_t)(j < 16 ? 5 * 16 + j : 2 * 16 + j - 16);
        memcpy((char *)l.k + slot * row, (char *)c.k + (size_t)j * row, row);
        memcpy((char *)l.v + slot * row, (char *)c.v + (size_t)j * row, row);
    }
    int32_t at[9], n_table[9];
    l.table_at = at, l.table_len = n_table;
    float *q = ar_queries(&c, 9), want[9 * 32], got[9 * 32];
    for (int i = 0; i < 6; i++)
        for (int rows = 1; rows <= 9; rows++) {
            const int blocks = (lengths[i] + 15) / 16;
            const int32_t tails[4] = {0, 0x7fffffff, -1, 7}; /* block 7 is full of NaN */
            int32_t length[9];
            for (int r = 0; r < rows; r++)
                length[r] = lengths[i] - r > 0 ? lengths[i] - r : 0, at[r] = 0;
            for (int t = 0; t < 5; t++) {
                const int entries =
                    t == 4 ? blocks : 4; /* the last: no tail at all, then the guard */
                l.table = (int32_t *)(void *)(map + page) - entries;
                const int32_t table[4] = {5, blocks > 1 ? 2 : tails[t % 4], tails[t % 4],
                                          tails[t % 4]};
                memcpy(l.table, table, (size_t)entries * sizeof *table);
                for (int r = 0; r < rows; r++)
                    n_table[r] = entries;
                ar_run(be, &c, &l, rules[0], length, rows, q, t ? got : want);
                if (t)
                    kr_same("tail entries", got, want, (size_t)(rows * 32), 16);
            }
            for (int e = 0; e < rows * 32; e++)
                assert_true(isfinite(want[e]));
        }
    free(l.k), free(l.v), free(q), ar_case_free(&c);
    assert_int_equal(mprotect(map + page, page, PROT_READ | PROT_WRITE), 0);
    free(map);
}

/* An illegal block, a table too short and an ancestor too far read as keys and values of zero. */
static void outside_is_zero(void **unused) {
    (void)unused;
    ar_case c, zero;
    const int T = 70;
    const size_t row = 2 * 16 * sizeof(float);
    ar_case_init(&c, 4, 2, 16, T, LS_F32, 31, 2.0f);
    ar_case_init(&zero, 4, 2, 16, T, LS_F32, 31, 2.0f);
    memset((char *)zero.k + 16 * row, 0, 16 * row), memset((char *)zero.v + 16 * row, 0, 16 * row);
    memset((char *)zero.k + 64 * row, 0, 6 * row), memset((char *)zero.v + 64 * row, 0, 6 * row);
    float *q = ar_queries(&c, 1), got[64], want[64];
    const int32_t length[1] = {T};
    ar_layout flat = ar_contiguous(&zero, 1, 0), paged = ar_paged(&c, 1, 16);
    ar_run(be, &c, &flat, rules[0], length, 1, q, want);
    paged.table_len[0] = 4;
    static const int32_t illegal[] = {-1, 0x7fffffff, INT32_MIN, 1000};
    for (int i = 0; i < 4; i++) {
        paged.table[1] = illegal[i];
        ar_run(be, &c, &paged, rules[0], length, 1, q, got);
        kr_same("illegal block, short table", got, want, 64, 16);
    }
    ar_layout tree = ar_tree(&c, 1, 16);
    for (int i = 0; i < 16; i++)
        tree.anc[i] = i % 2 ? -1 - i : 0x7fffffff;
    tree.ld_anc = 48;
    ar_run(be, &c, &tree, rules[0], length, 1, q, got);
    kr_same("ancestors outside", got, want, 64, 16);
    ar_layout_free(&flat), ar_layout_free(&paged), ar_layout_free(&tree);
    free(q), ar_case_free(&c), ar_case_free(&zero);
}

static int open_backends(void **unused) {
    (void)unused;
    be = kr_backend(LS_SIMD_AUTO, 1);
    two = kr_backend(LS_SIMD_AUTO, 2);
    return 0;
}
static int close_backends(void **unused) {
    (void)unused;
    ls_backend_destroy(be), ls_backend_destroy(two);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_out),    cmocka_unit_test(layouts),
        cmocka_unit_test(neighbours),     cmocka_unit_test(one_split_is_one_pass),
        cmocka_unit_test(control),        cmocka_unit_test(tail_entries_are_not_read),
        cmocka_unit_test(outside_is_zero)};
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
