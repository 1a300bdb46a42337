/* keep, feed and take: a step of a chain keeps what it should where it should, and touches nothing
 * else; outside its bounds it touches nothing at all. On every form of the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "draw.h"
#include "kernel_rig.h"

enum { N = 4, R = 3, NO_SLOT = -1 };

static ls_backend *form[KR_FORMS + 1];
static int n_forms;

static void keeps_one_row(void **state) {
    (void)state;
    static const int32_t dims[] = {1, 31, 32, 511, 512, 513, 1100, 5000};
    static const int32_t places[] = {INT32_MIN, -1, 0, 2, N - 1, N, INT32_MAX};
    for (int f = 0; f < n_forms; f++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (size_t w = 0; w < sizeof places / sizeof *places; w++) {
                const size_t dim = (size_t)dims[d], all = dim * N + 3;
                const int32_t at = places[w];
                float *x = kr_alloc(dim * 4), *y = kr_alloc(all * 4), *want = kr_alloc(all * 4);
                kr_fill(x, dim, 7, 3.0f);
                memcpy(x + dim / 2, &(uint32_t){0x7fc12345u}, 4); /* a NaN keeps its bits */
                kr_fill(y, all, 8, 1.0f);
                memcpy(want, y, all * 4);
                if (at >= 0 && at < N)
                    memcpy(want + (size_t)at * dim, x, dim * 4);
                const ls_keep_args a = {x, &at, y, N, dims[d]};
                kr_keep(form[f], &a);
                kr_sync(form[f]);
                assert_memory_equal(y, want, all * 4);
                free(x), free(y), free(want);
            }
}

/* The tables of a pass of R rows, and a chain; guards on both sides of the chain. */
typedef struct chain {
    ls_row_stats stats, guard0, chain[N], guard1;
    int32_t at, token[R], pos[R], slot[R], length[R];
    ls_draw draw;
} chain;

static void chain_fill(chain *c, int32_t row, int32_t index, int32_t at) {
    memset(c, 0x3c, sizeof *c);
    c->stats.flags = 0;
    c->stats.token = 41;
    c->at = at;
    for (int32_t r = 0; r < R; r++) {
        c->token[r] = 100 + r;
        c->pos[r] = 1000 + index + r - row;
        c->slot[r] = 500 + r;
        c->length[r] = index + 1 + r - row;
    }
    c->draw = ls_draw_key(0x123456789abcull, 5, 77, LS_DRAW_DRAFT, 9);
}

/* One feed of row `row`, whose logical index is `index`, against what the contract says. */
static void feed_once(ls_backend *be, ls_locator loc, int32_t row, int32_t index, int32_t at,
                      int32_t flags, int32_t want_slot) {
    chain c, want;
    chain_fill(&c, row, index, at);
    c.stats.flags = flags;
    want = c;
    const ls_feed_args a = {.stats = &c.stats,
                            .chain = c.chain,
                            .at = &c.at,
                            .token = c.token,
                            .pos = c.pos,
                            .slot = c.slot,
                            .length = c.length,
                            .loc = loc,
                            .draw = &c.draw,
                            .row = row,
                            .n = N};
    kr_feed(be, &a);
    kr_sync(be);
    if (at >= 0 && at < N) {
        want.chain[at] = want.stats;
        want.at = at + 1;
        want.token[0] = flags ? -1 : 41;
        want.pos[0] = 1000 + index + 1;
        want.length[0] = index + 2;
        want.slot[0] = want_slot;
        want.draw.position = 78;
    }
    assert_int_equal(c.slot[0], want.slot[0]);
    assert_int_equal(c.pos[0], want.pos[0]);
    assert_int_equal(c.length[0], want.length[0]);
    assert_int_equal(c.token[0], want.token[0]);
    assert_memory_equal(&c, &want, sizeof c);
}

static void feeds_contiguous(void **state) {
    (void)state;
    const int32_t base[R] = {40, 40, 40};
    const int32_t no_tree[R] = {INT32_MAX, INT32_MAX, INT32_MAX}, anc[1] = {0};
    ls_locator loc = {.base = base, .n_slots = 64};
    for (int f = 0; f < n_forms; f++)
        for (int tables = 0; tables < 2; tables++) {
            loc.prefix = tables ? no_tree : NULL;
            loc.anc = tables ? anc : NULL;
            for (int32_t row = 0; row < R; row++)
                for (int32_t at = -1; at <= N; at++) {
                    feed_once(form[f], loc, row, 9, at, 0, 50);
                    feed_once(form[f], loc, row, 22, at, 0, 63);
                    feed_once(form[f], loc, row, 23, at, 0, NO_SLOT); /* past the pool */
                    feed_once(form[f], loc, row, 9, at, LS_ROW_NAN, 50);
                }
            feed_once(form[f], loc, 0, 9, INT32_MAX, 0, 50);
            feed_once(form[f], loc, 0, 9, INT32_MIN, 0, 50);
        }
}

static void feeds_paged(void **state) {
    (void)state;
    /* blocks of 4 rows; the sequence's table begins at entry 2: blocks 6, 1, none, 3, one past the
     * pool */
    const int32_t table[] = {9, 9, 6, 1, -1, 3, 8, 9};
    const int32_t at[R] = {2, 2, 2}, len[R] = {5, 5, 5};
    const ls_locator loc = {
        .table = table, .table_at = at, .table_len = len, .block_rows = 4, .n_slots = 32};
    static const int32_t slot[][2] = {/* index of the row fed from, slot of the next */
                                      {2, 27},  {3, 4},        {6, 7},        {7, NO_SLOT},
                                      {11, 12}, {15, NO_SLOT}, {19, NO_SLOT}, {400, NO_SLOT}};
    for (int f = 0; f < n_forms; f++)
        for (int32_t row = 0; row < R; row++)
            for (size_t i = 0; i < sizeof slot / sizeof *slot; i++)
                for (int32_t k = -1; k <= N; k++)
                    feed_once(form[f], loc, row, slot[i][0], k, 0, slot[i][1]);
}

/* Keep and feed in turn, more often than the chain is long, then take. */
static void walks(void **state) {
    (void)state;
    enum { D = 40 };
    const int32_t base[R] = {0, 0, 0};
    for (int f = 0; f < n_forms; f++) {
        ls_backend *be = form[f];
        chain c;
        float x[D], y[N][D];
        chain_fill(&c, 2, 5, 0);
        for (int step = 0; step < N + 3; step++) {
            const ls_keep_args keep = {x, &c.at, y[0], N, D};
            const ls_feed_args feed = {.stats = &c.stats,
                                       .chain = c.chain,
                                       .at = &c.at,
                                       .token = c.token,
                                       .pos = c.pos,
                                       .slot = c.slot,
                                       .length = c.length,
                                       .loc = {.base = base, .n_slots = 100},
                                       .draw = &c.draw,
                                       .row = step == 0 ? 2 : 0,
                                       .n = N};
            for (int i = 0; i < D; i++)
                x[i] = (float)(1000 * step + i);
            c.stats.token = 60 + step;
            c.stats.flags = step == N - 1 ? LS_ROW_NONE : 0;
            kr_keep(be, &keep);
            kr_feed(be, &feed);
        }
        kr_sync(be);
        assert_int_equal(c.at, N);
        assert_int_equal(c.pos[0], 1005 + N);
        assert_int_equal(c.length[0], 6 + N);
        assert_int_equal(c.slot[0], 5 + N);
        assert_int_equal(c.draw.position, 77 + N);
        assert_int_equal(c.token[0], -1); /* the last of the chain had no token */
        int32_t token[N + 1];
        ls_row_stats copy[N + 1];
        memset(token, 0x77, sizeof token);
        memset(copy, 0x77, sizeof copy);
        const ls_take_args take = {c.chain, token, copy, N};
        kr_take(be, &take);
        kr_sync(be);
        for (int i = 0; i < N; i++) {
            assert_int_equal(token[i], 60 + i);
            assert_int_equal(c.chain[i].flags, i == N - 1 ? LS_ROW_NONE : 0);
            for (int k = 0; k < D; k++)
                assert_true(y[i][k] == (float)(1000 * i + k));
        }
        assert_memory_equal(copy, c.chain, sizeof c.chain);
        assert_int_equal(token[N], 0x77777777);
        assert_int_equal(copy[N].flags, 0x77777777);
    }
}

static void expect_refused(ls_backend *be) {
    ls_err err;
    assert_int_equal(be->sync(be, &err), LS_ERR_SHAPE);
    assert_true(err.msg[0] != 0);
    assert_int_equal(be->sync(be, &err), LS_OK);
}

static void refuses(void **state) {
    (void)state;
    ls_backend *be = form[0];
    float x[2] = {1, 2}, y[2] = {3, 4};
    int32_t at = 0;
    be->keep(be, &(ls_keep_args){x, &at, y, 1, 0});
    expect_refused(be);
    be->keep(be, &(ls_keep_args){x, &at, y, -1, 2});
    expect_refused(be);
    assert_true(y[0] == 3 && y[1] == 4);
    chain c;
    chain_fill(&c, 0, 5, 0);
    const chain was = c;
    ls_feed_args feed = {.stats = &c.stats,
                         .chain = c.chain,
                         .at = &c.at,
                         .token = c.token,
                         .pos = c.pos,
                         .slot = c.slot,
                         .length = c.length,
                         .draw = &c.draw,
                         .n = N};
    be->feed(be, &feed); /* paged, blocks of no rows */
    expect_refused(be);
    feed.loc.block_rows = 4, feed.row = -1;
    be->feed(be, &feed);
    expect_refused(be);
    assert_memory_equal(&c, &was, sizeof c);
    be->take(be, &(ls_take_args){c.chain, &at, &c.guard1, -1});
    expect_refused(be);

    ls_verdict_set out = {-5, -6};
    const int32_t token = 0;
    ls_row_stats target[2];
    memset(target, 0, sizeof target);
    const ls_accept_args good = {.kind = LS_ACCEPT_REJECTION,
                                 .token = &token,
                                 .target = target,
                                 .logits = x,
                                 .weight = y,
                                 .out = &out,
                                 .ld_logits = 1,
                                 .n_vocab = 1,
                                 .n = 1};
    ls_accept_args bad = good;
    bad.kind = LS_ACCEPT_NONE;
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.n = -1;
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.n_vocab = 0;
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.n_vocab = 2; /* wider than a row */
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.draft = target, bad.draft_logits = x, bad.ld_draft = 0;
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.draft = target, bad.ld_draft = 1; /* a chain that kept no logits */
    be->accept(be, &bad);
    expect_refused(be);
    bad = good, bad.n_vocab = bad.ld_logits = 524289; /* more than block memory has segments for */
    be->accept(be, &bad);
    expect_refused(be);
    assert_int_equal(out.n_accept, -5);
    bad = good, bad.n = 0, bad.n_vocab = 0; /* the bonus row alone reads no logits */
    target[0].token = 7;
    be->accept(be, &bad);
    kr_sync(be);
    assert_int_equal(out.n_accept, 0);
    assert_int_equal(out.token, 7);
}

static int open_forms(void **state) {
    (void)state;
    n_forms = kr_forms(form);
    form[n_forms++] = kr_backend(LS_SIMD_AUTO, 2); /* threads, or the device */
    return 0;
}
static int close_forms(void **state) {
    (void)state;
    while (n_forms > 0)
        ls_backend_destroy(form[--n_forms]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_one_row), cmocka_unit_test(feeds_contiguous),
        cmocka_unit_test(feeds_paged), cmocka_unit_test(walks), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests_name("chain_state", tests, open_forms, close_forms);
}
