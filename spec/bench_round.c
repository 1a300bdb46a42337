/* bench_round.c - `lockstep bench round`: what speculation gives from end to end, against what the
 * costs of its passes promise.
 * Measured   plain decode and rounds of fixed:g on the same random prompts, in turns; from the end
 *            of the second round to the end of the text, by the wall clock, in rounds that drafted
 *            g (the last of a text may be cut short). speed = plain time a token over speculative
 *            time a token, median of the prompts' own.
 * Promised   tau / (v(g + 1) + g c): tau tokens a round; v(M) a target pass of M rows and c a draft
 *            pass of one, over a target pass of one row; on the device, in the same run, at the
 *            length the texts have half-way.
 * Idle       a round by the wall clock, less the passes it is made of by the device's: the verify
 *            pass and g draft passes (the rows a drafter catches up with are counted as idle). */
#include <stdio.h>
#include <stdlib.h>

#include "bench_cmd.h"
#include "clock.h"

#define SKIP 2 /* rounds that end before the clock starts: a drafter reads the prompt there */
#define COST_REPEATS 5 /* passes of each width timed beside every prompt */

/* ---- one text -------------------------------------------------------------------------------- */

typedef struct text { /* what is counted of one, or summed over several */
    double us, draft_us, verify_us;
    int64_t n_round, n_token, n_drafted, n_accepted, n_evaluated;
    int32_t g;    /* drafts of the rounds that are counted */
    int32_t seen; /* rounds so far */
    double last_us;
} text;

static void on_round(void *self, const ls_round *r, const int32_t *draft,
                     const ls_row_stats *stats) {
    text *t = self;
    const double now = ls_now_us();
    (void)draft;
    (void)stats;
    if (t->seen++ >= SKIP && r->proposed == t->g) {
        t->us += now - t->last_us;
        t->draft_us += (double)r->draft_us;
        t->verify_us += (double)r->verify_us;
        t->n_round++;
        t->n_token += r->emitted;
        t->n_drafted += r->proposed;
        t->n_accepted += r->accepted;
        t->n_evaluated += r->evaluated;
    }
    t->last_us = now;
}

static void add(text *sum, const text *t) {
    sum->us += t->us, sum->draft_us += t->draft_us, sum->verify_us += t->verify_us;
    sum->n_round += t->n_round, sum->n_token += t->n_token, sum->n_drafted += t->n_drafted;
    sum->n_accepted += t->n_accepted, sum->n_evaluated += t->n_evaluated;
}

typedef struct arm {
    int32_t g;         /* 0: plain decode */
    ls_policy *policy; /* NULL: plain decode */
    text sum;
    double *speed, *round_us; /* [n_prompt]; round_us: mean of the prompt */
} arm;

typedef struct bench {
    ls_bench_job *j;
    int32_t n_prompt, length, n_arm; /* prompts, tokens of one; arm 0 is plain */
    arm arm[LS_BENCH_LIST + 1];
    int32_t *prompt;
    ls_pass_rig target, draft;
    ls_series cost[LS_BENCH_LIST + 2]; /* v(1), v(g + 1) by arm, c */
    double *cost_us;                   /* [n_cost][2][n_prompt]: device, wall */
} bench;

static ls_status one_text(bench *b, const arm *a, text *t, ls_err *err) {
    ls_setup *s = &b->j->setup;
    const ls_gen gen = {.target = s->engine,
                        .drafter = a->policy ? s->drafter : NULL,
                        .policy = a->policy,
                        .prompt = b->prompt,
                        .n_prompt = b->length,
                        .max_new = b->j->a.tokens,
                        .warp = {.top_p = 1},
                        .seed = 1,
                        .ignore_eos = true,
                        .hooks = {.self = t, .round = on_round}};
    ls_transcript out = {0};
    *t = (text){.g = a->g};
    const ls_status status = ls_generate(&gen, &out, err);
    ls_transcript_free(&out);
    if (status != LS_OK)
        return status;
    return ls_term_stopped(NULL) ? ls_fail(err, LS_ERR_STOPPED, "stopped") : LS_OK;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static ls_status one_cost(bench *b, int32_t prompt, ls_err *err) {
    const ls_setup *s = &b->j->setup;
    const int32_t n = b->n_arm + 1, length = b->length + b->j->a.tokens / 2;
    const ls_bench_how how = {.n_repeat = COST_REPEATS, .stop = ls_term_stopped};
    int32_t widest = 1;
    for (int32_t i = 1; i < b->n_arm; i++)
        widest = b->arm[i].g + 1 > widest ? b->arm[i].g + 1 : widest;
    ls_status status = ls_pass_rig_open(&b->target, s->engine, length, widest, 1, err);
    if (status == LS_OK) {
        /* a second sequence: the drafter keeps its own */
        status = ls_pass_rig_open(&b->draft, s->draft_engine, length, 1, 1, err);
        for (int32_t i = 0; i < b->n_arm; i++)
            b->cost[i] =
                (ls_series){.run = ls_pass_rig_pass, .self = &b->target, .arg = b->arm[i].g + 1};
        b->cost[b->n_arm] = (ls_series){.run = ls_pass_rig_pass, .self = &b->draft, .arg = 1};
        if (status == LS_OK)
            status = ls_bench_interleave(b->cost, n, &how, err);
        ls_pass_rig_close(&b->draft);
    }
    ls_pass_rig_close(&b->target);
    for (int32_t i = 0; status == LS_OK && i < n; i++) {
        b->cost_us[(2 * i) * b->n_prompt + prompt] = b->cost[i].device.median;
        b->cost_us[(2 * i + 1) * b->n_prompt + prompt] = b->cost[i].wall.median;
    }
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Prompt -1 warms up. Every other prompt goes through the arms from the last to the first. */
static ls_status one_prompt(bench *b, int32_t prompt, ls_err *err) {
    text t[LS_BENCH_LIST + 1];
    ls_bench_tokens(b->prompt, b->length, b->j->setup.n_vocab, (uint64_t)(prompt + 2));
    for (int32_t k = 0; k < b->n_arm; k++) {
        const int32_t i = prompt % 2 ? b->n_arm - 1 - k : k;
        LS_TRY(one_text(b, &b->arm[i], &t[i], err));
    }
    if (prompt < 0)
        return LS_OK;
    for (int32_t i = 0; i < b->n_arm; i++) {
        if (t[i].n_token < 1)
            return ls_fail(err, LS_ERR_INPUT, "--tokens %d: too few for rounds of %d drafts",
                           b->j->a.tokens, b->arm[i].g);
        add(&b->arm[i].sum, &t[i]);
        b->arm[i].speed[prompt] = t[0].us / (double)t[0].n_token / (t[i].us / (double)t[i].n_token);
        b->arm[i].round_us[prompt] = t[i].us / (double)t[i].n_round;
    }
    LS_TRY(one_cost(b, prompt, err));
    ls_term_progress(&b->j->term, prompt + 1, b->n_prompt, "prompts");
    return LS_OK;
}

static ls_status prepare(bench *b, const int32_t *g, int32_t n_g, ls_err *err) {
    const size_t n = (size_t)b->n_prompt;
    b->n_arm = n_g + 1;
    b->prompt = malloc((size_t)b->length * sizeof *b->prompt);
    b->cost_us = malloc((size_t)(b->n_arm + 1) * 2 * n * sizeof *b->cost_us);
    if (!b->prompt || !b->cost_us)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < b->n_arm; i++) {
        b->arm[i].speed = malloc(n * sizeof *b->arm[i].speed);
        b->arm[i].round_us = malloc(n * sizeof *b->arm[i].round_us);
        if (!b->arm[i].speed || !b->arm[i].round_us)
            return ls_fail(err, LS_ERR_MEMORY, "out of memory");
        b->arm[i].g = i ? g[i - 1] : 0;
        if (i)
            LS_TRY(ls_policy_fixed(b->arm[i].g, &b->arm[i].policy, err));
    }
    return LS_OK;
}

static void tidy(bench *b) {
    for (int32_t i = 0; i < b->n_arm; i++) {
        ls_policy_destroy(b->arm[i].policy);
        free(b->arm[i].speed);
        free(b->arm[i].round_us);
    }
    free(b->prompt);
    free(b->cost_us);
}

/* ---- what it says ---------------------------------------------------------------------------- */

typedef struct verdict {
    ls_spread speed;
    double tau, v, c, promised, wall_promised; /* v, c and promised by the device */
    double round_us, pass_us;
} verdict;

static double cost_of(bench *b, int32_t i, int32_t wall) {
    return ls_spread_of(b->cost_us + (size_t)(2 * i + wall) * (size_t)b->n_prompt, b->n_prompt)
        .median;
}

static double promise(bench *b, int32_t i, double tau, int32_t wall) {
    const double one = cost_of(b, 0, wall);
    return tau / (cost_of(b, i, wall) / one + b->arm[i].g * cost_of(b, b->n_arm, wall) / one);
}

static verdict judge(bench *b, int32_t i) {
    const text *t = &b->arm[i].sum;
    const double one = cost_of(b, 0, 0), draft = cost_of(b, b->n_arm, 0);
    verdict v = {.speed = ls_spread_of(b->arm[i].speed, b->n_prompt),
                 .tau = (double)t->n_token / (double)t->n_round,
                 .v = cost_of(b, i, 0) / one,
                 .c = draft / one,
                 .round_us = ls_spread_of(b->arm[i].round_us, b->n_prompt).median,
                 .pass_us = cost_of(b, i, 0) + b->arm[i].g * draft};
    v.promised = promise(b, i, v.tau, 0);
    v.wall_promised = promise(b, i, v.tau, 1);
    return v;
}

static void show(bench *b) {
    const verdict plain = judge(b, 0);
    printf("%d prompts of %d tokens, %d new ones each; greedy, rule exact\n", b->n_prompt,
           b->length, b->j->a.tokens);
    printf("plain decode: %.1f us a token by the wall clock, a pass %.1f us on the device, idle "
           "%.1f us\n",
           plain.round_us, plain.pass_us, plain.round_us - plain.pass_us);
    printf("%3s %7s %7s %7s %7s %15s %9s %8s %11s %9s %6s\n", "g", "accept", "tau", "v(g+1)", "c",
           "speed", "promised", "to that", "us a round", "idle us", "share");
    for (int32_t i = 1; i < b->n_arm; i++) {
        const text *t = &b->arm[i].sum;
        const verdict v = judge(b, i);
        printf("%3d %7.3f %7.3f %7.3f %7.3f %6.3f %.2f-%.2f %7.3f %8.3f %11.1f %9.1f %6.3f\n",
               b->arm[i].g, t->n_evaluated ? (double)t->n_accepted / (double)t->n_evaluated : 0,
               v.tau, v.v, v.c, v.speed.median, v.speed.low, v.speed.high, v.promised,
               v.speed.median / v.promised, v.round_us, v.round_us - v.pass_us,
               (v.round_us - v.pass_us) / v.round_us);
    }
}

static void keep(bench *b) {
    for (int32_t i = 0; i < b->n_arm; i++) {
        const text *t = &b->arm[i].sum;
        const verdict v = judge(b, i);
        const double n = (double)t->n_round;
        json_t *r = json_pack(
            "{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "g", b->arm[i].g,
            "n_round", (json_int_t)t->n_round, "n_token", (json_int_t)t->n_token, "n_drafted",
            (json_int_t)t->n_drafted, "n_accepted", (json_int_t)t->n_accepted, "n_evaluated",
            (json_int_t)t->n_evaluated, "round_us", v.round_us, "draft_us", t->draft_us / n,
            "verify_us", t->verify_us / n, "pass_device_us", v.pass_us, "idle_us",
            v.round_us - v.pass_us, "speed", v.speed.median, "tau", v.tau);
        json_object_set_new(r, "speed_low", json_real(v.speed.low));
        json_object_set_new(r, "speed_high", json_real(v.speed.high));
        json_object_set_new(r, "v", json_real(v.v));
        json_object_set_new(r, "c", json_real(v.c));
        json_object_set_new(r, "promised", json_real(v.promised));
        json_object_set_new(r, "promised_wall", json_real(v.wall_promised));
        json_object_set_new(r, "to_promised", json_real(v.speed.median / v.promised));
        json_object_set_new(r, "verify_device_us", json_real(cost_of(b, i, 0)));
        json_object_set_new(r, "verify_wall_us", json_real(cost_of(b, i, 1)));
        json_object_set_new(r, "draft_device_us", json_real(cost_of(b, b->n_arm, 0)));
        json_object_set_new(r, "draft_wall_us", json_real(cost_of(b, b->n_arm, 1)));
        json_array_append_new(b->j->results, r);
    }
}

ls_status ls_bench_round(ls_bench_job *j, ls_err *err) {
    int32_t g[LS_BENCH_LIST], n_g, length[LS_BENCH_LIST], n_length;
    LS_TRY(ls_bench_numbers(&j->a.draft_rows, "drafts", "4", 1, LS_BENCH_ROWS - 1, g, &n_g, err));
    LS_TRY(ls_bench_numbers(&j->a.length, "length", "128", 1, 1 << 20, length, &n_length, err));
    if (n_length != 1)
        return ls_fail(err, LS_ERR_INPUT, "--length: round takes one length of prompts");
    bench b = {.j = j, .n_prompt = j->a.prompts, .length = length[0]};
    const ls_bench_need need = {
        .context = length[0] + j->a.tokens + LS_BENCH_ROWS, .max_seqs = 2, .pair = true};
    LS_TRY(ls_bench_open(j, &need, err));
    ls_bench_heading(j);
    ls_status status = prepare(&b, g, n_g, err);
    for (int32_t i = -1; status == LS_OK && i < b.n_prompt; i++)
        status = one_prompt(&b, i, err);
    ls_term_clear(&j->term);
    if (status == LS_OK && !j->a.json)
        show(&b);
    if (status == LS_OK)
        keep(&b);
    tidy(&b);
    return status == LS_OK ? ls_bench_write(j, "bench round",
                                            json_pack("{s:i, s:i, s:i}", "n_prompt", b.n_prompt,
                                                      "length", b.length, "max_new", j->a.tokens),
                                            err)
                           : status;
}
