/* What a policy's callbacks cost: a made-up run, each call timed by itself. */
#include "lua_policy.h"

#include <stdlib.h>
#include <time.h>

#include "draw.h"

#define MORE_CALLS 4 /* a round */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare_times(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *t, int32_t n, double *median, double *p99) {
    *median = *p99 = 0;
    if (n == 0)
        return;
    qsort(t, (size_t)n, sizeof *t, compare_times);
    *median = t[n / 2];
    *p99 = t[(int64_t)n * 99 / 100];
}

/* A round as a real run could have it: proposed and accepted from the counter-based generator. */
static void make_round(ls_policy_ctx *ctx, int64_t planned) {
    const ls_draw d = ls_draw_key(1, 0, (uint32_t)ctx->position, LS_DRAW_TEST, 0);
    ls_round *r = &ctx->last;
    r->position = ctx->position;
    r->planned = (int32_t)(planned < ctx->room ? planned : ctx->room);
    r->proposed = r->planned;
    r->accepted =
        r->proposed > 0 ? (int32_t)(ls_draw_word(&d, 0) % (uint32_t)(r->proposed + 1)) : 0;
    r->evaluated = r->accepted < r->proposed ? r->accepted + 1 : r->accepted;
    r->emitted = r->accepted + 1;
    for (int32_t i = 0; i < r->evaluated; i++) {
        ctx->tried[i]++;
        ctx->accepted[i] += i < r->accepted;
    }
    ctx->position += r->emitted;
    ctx->n_new += r->emitted;
    ctx->n_rounds++;
}

typedef struct times {
    double *plan, *more, *observe;
    int32_t n_plan, n_more, n_observe;
} times;

static ls_status run(ls_policy *p, int32_t n_call, times *t, ls_err *err) {
    ls_policy_ctx ctx = {.position = 16, .n_prompt = 16, .room = LS_DRAFT_MAX, .temperature = 1};
    ctx.draft_us = 50;
    for (int i = 0; i <= LS_DRAFT_MAX; i++)
        ctx.verify_us[i] = 400 + 20 * i;
    if (p->begin)
        LS_TRY(p->begin(p, &ctx, err));
    for (int32_t i = 0; i < n_call; i++) {
        int64_t n = 0;
        double from = now_us();
        LS_TRY(p->plan(p, &ctx, &n, err));
        t->plan[t->n_plan++] = now_us() - from;
        for (int32_t k = 1; p->more && k <= MORE_CALLS; k++) {
            const ls_draw d = ls_draw_key(2, 0, (uint32_t)ctx.position, LS_DRAW_TEST, 0);
            const float u = ls_draw_uniform(&d, (uint32_t)k);
            const int32_t token[LS_TOP_MAX] = {1, 2, 3, 4, 5, 6, 7, 8};
            const float prob[LS_TOP_MAX] = {u, 1 - u};
            const ls_policy_step step = {.n = k,
                                         .token = 1,
                                         .prob = u,
                                         .entropy = 3 * (1 - u),
                                         .margin = u,
                                         .n_top = p->n_top,
                                         .top_token = token,
                                         .top_prob = prob};
            bool yes;
            from = now_us();
            LS_TRY(p->more(p, &ctx, &step, &yes, err));
            t->more[t->n_more++] = now_us() - from;
        }
        make_round(&ctx, n);
        if (p->observe) {
            from = now_us();
            LS_TRY(p->observe(p, &ctx, &ctx.last, err));
            t->observe[t->n_observe++] = now_us() - from;
        }
    }
    return LS_OK;
}

ls_status ls_lua_policy_bench(ls_policy *policy, int32_t n_call, ls_lua_policy_cost *out,
                              ls_err *err) {
    if (n_call < 1 || n_call > 10000000)
        return ls_fail(err, LS_ERR_INPUT, "policy bench: %d calls: give 1 to 10000000", n_call);
    const size_t n = (size_t)n_call;
    times t = {.plan = malloc(n * sizeof(double)),
               .more = malloc(MORE_CALLS * n * sizeof(double)),
               .observe = malloc(n * sizeof(double))};
    ls_status status = t.plan && t.more && t.observe
                           ? run(policy, n_call, &t, err)
                           : ls_fail(err, LS_ERR_MEMORY, "policy bench: out of memory");
    if (status == LS_OK) {
        summarise(t.plan, t.n_plan, &out->plan_median_us, &out->plan_p99_us);
        summarise(t.more, t.n_more, &out->more_median_us, &out->more_p99_us);
        summarise(t.observe, t.n_observe, &out->observe_median_us, &out->observe_p99_us);
    }
    free(t.plan);
    free(t.more);
    free(t.observe);
    return status;
}
