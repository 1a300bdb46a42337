/* N-ACC, bits: the verdict of `accept` is that of a walk on the host with probabilities by `probs`,
 * residuals drawn by `choose` and Random123's uniform; on every form of the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "draw.h"
#include "kernel_rig.h"

enum { N_MAX = 8 };

static ls_backend *form[KR_FORMS + 1]; /* form[0] is plain C */
static int n_forms;

/* What happened in the walks: every one of them has to be met often. */
enum { STANDS, RESIDUAL, EMPTY_STANDS, EMPTY_ENDS, NO_TARGET, NO_DRAFT, OUTSIDE, ALL, N_EVENTS };
static const char *const event_name[N_EVENTS] = {"stands",
                                                 "residual",
                                                 "empty residual, stands",
                                                 "empty residual, ends",
                                                 "flagged target",
                                                 "flagged draft",
                                                 "outside",
                                                 "all stand"};
static int64_t event[N_EVENTS];

typedef struct round {
    ls_accept_args a;
    ls_row_stats target[N_MAX + 1], draft[N_MAX];
    int32_t token[N_MAX];
    float *logits, *draft_logits, *p, *q, *weight; /* [n + 1, ld], [n, ld], [n + 1, V], [n, V] */
} round_case;

/* ---- the host's walk ------------------------------------------------------------------------- */

static int32_t residual(const round_case *c, int32_t i) {
    const int32_t v = c->a.n_vocab, x = c->token[i];
    const ls_draw key =
        ls_draw_key(c->a.seed, c->a.sequence, c->a.position + (uint32_t)i, LS_DRAW_RESIDUAL, 0);
    const float *p = c->p + (size_t)i * (size_t)v, *q = c->q + (size_t)i * (size_t)v;
    int32_t token = -7;
    for (int32_t k = 0; k < v; k++) {
        const float w = p[k] - (c->a.draft ? q[k] : k == x ? 1.0f : 0.0f);
        c->weight[k] = w > 0 ? w : 0.0f;
    }
    const ls_choose_args choose = {c->weight, &key, &token, v, 1};
    form[0]->choose(form[0], &choose);
    kr_sync(form[0]);
    return token;
}

static ls_verdict_set judge(const round_case *c) {
    const int32_t v = c->a.n_vocab;
    const bool exact = c->a.kind == LS_ACCEPT_EXACT;
    for (int32_t i = 0;; i++) {
        const ls_verdict_set end = {i, c->target[i].token};
        if (c->target[i].flags) {
            event[NO_TARGET]++;
            return (ls_verdict_set){i, -1};
        }
        if (i == c->a.n) {
            event[ALL] += i > 0;
            return end;
        }
        if (c->a.draft && c->draft[i].flags) {
            event[NO_DRAFT]++;
            return end;
        }
        const int32_t x = c->token[i];
        if (exact) {
            if (x != c->target[i].token)
                return end;
            continue;
        }
        if (x < 0 || x >= v) {
            event[OUTSIDE]++;
            return end;
        }
        const size_t at = (size_t)i * (size_t)v + (size_t)x;
        const double p = (double)c->p[at], q = c->a.draft ? (double)c->q[at] : 1.0;
        const ls_draw key =
            ls_draw_key(c->a.seed, c->a.sequence, c->a.position + (uint32_t)i, LS_DRAW_ACCEPT, 0);
        if (p > 0 && (double)ls_draw_uniform(&key, 0) * q <= p) {
            event[STANDS]++;
            continue;
        }
        const int32_t drawn = residual(c, i);
        event[drawn >= 0 ? RESIDUAL : p > 0 ? EMPTY_STANDS : EMPTY_ENDS]++;
        if (drawn >= 0)
            return (ls_verdict_set){i, drawn};
        if (!(p > 0))
            return end;
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static uint32_t state_of_dice;
static uint32_t dice(uint32_t n) {
    state_of_dice = state_of_dice * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(state_of_dice ^ state_of_dice >> 15) * n) >> 32);
}

static ls_warp some_warp(int32_t v) {
    static const float temperature[] = {1, 1, 0.6f, 1.8f, 0.05f, 0};
    ls_warp w = {temperature[dice(6)], 0, 1, 0};
    if (dice(3) == 0)
        w.top_k = 1 + (int32_t)dice((uint32_t)v);
    if (dice(3) == 0)
        w.top_p = 0.05f + 0.9f * (float)dice(1000) / 1000;
    if (dice(3) == 0)
        w.min_p = 0.5f * (float)dice(1000) / 1000;
    return w;
}

static void row_stats(const round_case *c, const float *logits, int32_t ld, ls_warp warp, int32_t n,
                      ls_purpose purpose, ls_row_stats *out) {
    ls_warp warps[N_MAX + 1];
    ls_draw draws[N_MAX + 1];
    for (int32_t i = 0; i < n; i++) {
        warps[i] = warp;
        draws[i] = ls_draw_key(c->a.seed, c->a.sequence, c->a.position + (uint32_t)i, purpose, 0);
    }
    const ls_stats_args stats = {logits, ld, c->a.n_vocab, warps, draws, 2, out, n, 0, NULL};
    form[0]->stats(form[0], &stats);
    kr_sync(form[0]);
}

static void row_probs(const round_case *c, const float *logits, const ls_row_stats *st, int32_t ld,
                      int32_t n, float *out) {
    const ls_probs_args probs = {logits, st, out, ld, c->a.n_vocab, n};
    form[0]->probs(form[0], &probs);
    kr_sync(form[0]);
}

/* A round of seed s over v tokens. Its kind, its rows and what is wrong with them by dice. */
static void round_make(round_case *c, uint32_t s, int32_t v) {
    memset(c, 0, sizeof *c);
    state_of_dice = s * 2654435761u + 12345u;
    const int32_t n = dice(12) == 0 ? 0 : 1 + (int32_t)dice(N_MAX);
    const int32_t ld = v + (int32_t)dice(5), ld_q = v + (int32_t)dice(5);
    const size_t rows = (size_t)n + 1;
    c->a = (ls_accept_args){.kind = dice(5) == 0 ? LS_ACCEPT_EXACT : LS_ACCEPT_REJECTION,
                            .ld_logits = ld,
                            .ld_draft = ld_q,
                            .n_vocab = v,
                            .n = n,
                            .seed = (uint64_t)s * 0x9E3779B97F4A7C15u,
                            .sequence = dice(1000),
                            .position = dice(3) ? dice(4000) : 0xfffffffcu};
    c->logits = kr_alloc(rows * (size_t)ld * 4); /* NaN beside the vocabulary: never read */
    c->draft_logits = kr_alloc(rows * (size_t)ld_q * 4);
    c->p = kr_alloc(rows * (size_t)v * 4);
    c->q = kr_alloc(rows * (size_t)v * 4);
    c->weight = kr_alloc(((size_t)v + 1) * 4);
    const float scale = (float[]){0.5f, 3, 8, 0}[dice(4)],
                noise = (float[]){0, 0, 0.3f, 4}[dice(4)];
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < (size_t)v; k++) {
            const size_t at = i * (size_t)v + k;
            const float x = dice(40) == 0 ? -INFINITY : scale * kr_uniform(s, at);
            c->logits[i * (size_t)ld + k] = x;
            c->draft_logits[i * (size_t)ld_q + k] = x + noise * kr_uniform(s + 77, at);
        }
    if (dice(4) == 0) /* a row without a token */
        c->logits[dice((uint32_t)n + 1) * (size_t)ld + dice((uint32_t)v)] = NAN;
    if (n > 0 && dice(4) == 0)
        c->draft_logits[dice((uint32_t)n) * (size_t)ld_q + dice((uint32_t)v)] = INFINITY;
    const ls_warp warp = some_warp(v), warp_q = dice(2) ? warp : some_warp(v);
    const bool same_noise = dice(2);
    row_stats(c, c->logits, ld, warp, n + 1, LS_DRAW_TOKEN, c->target);
    row_stats(c, c->draft_logits, ld_q, warp_q, n, same_noise ? LS_DRAW_TOKEN : LS_DRAW_DRAFT,
              c->draft);
    /* statistics are inputs: another sum makes p < q everywhere, and so a residual without mass */
    const float inflate = (float[]){1, 1, 1.7f}[dice(3)];
    for (int32_t i = 0; i <= n; i++)
        c->target[i].sum *= inflate;
    const uint32_t drafter = dice(4);
    for (int32_t i = 0; i < n; i++)
        c->token[i] = drafter == 0   ? (int32_t)dice((uint32_t)v)
                      : drafter == 1 ? c->target[i].token
                                     : c->draft[i].token;
    if (n > 0 && dice(12) == 0)
        c->token[dice((uint32_t)n)] = dice(2) ? -1 : v;
    row_probs(c, c->logits, c->target, ld, n + 1, c->p);
    row_probs(c, c->draft_logits, c->draft, ld_q, n, c->q);
    c->a.token = c->token;
    c->a.target = c->target;
    c->a.draft = dice(3) ? c->draft : NULL;
    c->a.logits = c->logits;
    c->a.draft_logits = c->a.draft ? c->draft_logits : NULL;
    c->a.weight = c->weight;
    if (c->a.kind == LS_ACCEPT_EXACT) { /* reads none of these */
        c->a.logits = c->a.draft_logits = NULL;
        c->a.weight = NULL;
        c->a.n_vocab = 0;
    }
}

static void round_free(round_case *c) {
    free(c->logits), free(c->draft_logits), free(c->p), free(c->q), free(c->weight);
}

static ls_verdict_set accept_by(ls_backend *be, round_case *c, int32_t v) {
    ls_verdict_set out[3];
    memset(out, 0x5a, sizeof out);
    memset(c->weight, 0xff, ((size_t)v + 1) * 4);
    c->a.out = &out[1];
    kr_accept(be, &c->a);
    kr_sync(be);
    assert_int_equal(out[0].token, 0x5a5a5a5a);
    assert_int_equal(out[2].n_accept, 0x5a5a5a5a);
    uint32_t after;
    memcpy(&after, c->weight + v, 4);
    assert_int_equal(after, 0xffffffffu);
    return out[1];
}

/* Compares a round on every form; whether its verdict is another one a position further on. */
static bool round_check(uint32_t s, int32_t v) {
    round_case c;
    round_make(&c, s, v);
    const ls_verdict_set want = judge(&c);
    for (int f = 0; f < n_forms; f++) {
        const ls_verdict_set got = accept_by(form[f], &c, v);
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg(
                "round %u, %d tokens, %d drafts, kind %d, %s: %d stand, then %d; should be %d, "
                "then %d",
                s, (int)v, (int)c.a.n, (int)c.a.kind, form[f]->device, (int)got.n_accept,
                (int)got.token, (int)want.n_accept, (int)want.token);
    }
    c.a.position++;
    const ls_verdict_set other = accept_by(form[n_forms - 1], &c, v);
    round_free(&c);
    return memcmp(&other, &want, sizeof other) != 0;
}

static void rounds(void **state) {
    (void)state;
    const uint32_t N = LS_THIN ? 1200 : 3000;
    static const int32_t edge[] = {1, 2, 3, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1024, 1025};
    uint32_t moved = 0;
    memset(event, 0, sizeof event);
    for (uint32_t s = 0; s < N; s++) {
        const int32_t v = s % 4 == 0   ? edge[s / 4 % 14]
                          : s % 4 == 1 ? 1 + (int32_t)(s * 7919u % 2000)
                                       : 1 + (int32_t)(s * 7919u % 40);
        moved += round_check(s, v);
    }
    for (int e = 0; e < N_EVENTS; e++) {
        print_message("%s: %lld\n", event_name[e], (long long)event[e]);
        assert_true(event[e] >= 10);
    }
    /* negative control: with other random numbers another verdict, where there is a choice */
    assert_true(moved > N / 20);
}

/* Many segments; block memory holds those of 524288 tokens. */
static void wide(void **state) {
    (void)state;
    static const struct {
        int32_t v;
        uint32_t seed;
    } c[] = {{32000, 4}, {128257, 4}, {524288, 12}};
    const int64_t before = event[RESIDUAL];
    const int n = LS_THIN ? 1 : 3;
    kr_shadow(LS_SIMD_AUTO);
    for (int i = 0; i < n; i++)
        round_check(c[i].seed, c[i].v);
    assert_int_equal(event[RESIDUAL] - before, n); /* each draws a residual */
    kr_shadow(LS_SIMD_PLAIN);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounds), cmocka_unit_test(wide)};
    return cmocka_run_group_tests_name("accept_equal", tests, open_forms, close_forms);
}
