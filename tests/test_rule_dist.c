/* P2: the rejection rule keeps the target's distribution; the exact rule's text is plain sampling.
 * Chi-square at a false-alarm rate of 1e-4 a test, fixed seeds (C009, C010, C011, C015). */
#include <gsl/gsl_cdf.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define ALARM 1e-4
enum { V = 16 };

static void assert_near(double got, double want, double by) {
    if (!(fabs(got - want) <= by))
        fail_msg("%g, expected %g within %g", got, want, by);
}

/* p-value of counts against probabilities; cells expecting under 5 are pooled; a count where the
 * probability is 0 gives 0. */
static double chi_square_p(const int64_t *count, const double *p, int32_t n, int64_t total) {
    double stat = 0, rest_e = 0;
    int64_t rest_c = 0;
    int32_t cells = 0;
    for (int32_t i = 0; i < n; i++) {
        const double e = p[i] * (double)total;
        if (p[i] == 0 && count[i] > 0)
            return 0;
        if (e < 5) {
            rest_e += e;
            rest_c += count[i];
            continue;
        }
        stat += ((double)count[i] - e) * ((double)count[i] - e) / e;
        cells++;
    }
    if (rest_e >= 5) {
        stat += ((double)rest_c - rest_e) * ((double)rest_c - rest_e) / rest_e;
        cells++;
    }
    return gsl_cdf_chisq_Q(stat, cells - 1);
}

/* The model's own next-token law after each token, in double from its logits: independent of warp,
 * softmax and draw code. */
static void table_law(ls_rig *r, double law[V][V]) {
    ls_err err;
    ls_kv *kv = ls_engine_kv(r->engine);
    for (int32_t t = 0; t < V; t++) {
        int32_t seq;
        float logits[V];
        double sum = 0;
        OK(ls_kv_open(kv, &seq, &err), &err);
        const ls_row row = ls_row_chain(seq, t, 0, true);
        OK(ls_pass(r->engine, &row, 1, &err), &err);
        OK(ls_pass_logits(r->engine, 0, logits, &err), &err);
        for (int32_t i = 0; i < V; i++)
            sum += exp((double)logits[i]);
        for (int32_t i = 0; i < V; i++)
            law[t][i] = exp((double)logits[i]) / sum;
        ls_kv_close(kv, seq);
    }
}

typedef struct tally {
    int64_t first[V], second[V], joint[V * V], n, tried, kept;
} tally;

/* Texts a test draws: a launch costs a GPU more than these few additions cost a CPU. */
static int64_t texts(int64_t seeds) {
    return rig_on_gpu() ? seeds / 20 : seeds;
}

/* How far a rate may be off: `by`, or with the fewer texts of a GPU five standard deviations. */
static double room(double by, const tally *t) {
    return rig_on_gpu() ? fmax(by, 2.5 / sqrt((double)t->tried)) : by;
}

static void sample(ls_rig *target, ls_drafter *d, ls_rule *rule, int32_t k, int64_t seeds,
                   tally *out) {
    ls_err err;
    const int32_t prompt[] = {3};
    ls_policy *policy;
    memset(out, 0, sizeof *out);
    OK(ls_policy_fixed(k, &policy, &err), &err);
    for (int64_t s = 0; s < texts(seeds); s++) {
        const ls_gen g = {.target = target->engine,
                          .drafter = d,
                          .policy = policy,
                          .rule = rule,
                          .prompt = prompt,
                          .n_prompt = 1,
                          .max_new = 2,
                          .ignore_eos = true,
                          .warp = {1, 0, 1, 0},
                          .seed = (uint64_t)s * 7 + (uint64_t)k};
        ls_transcript t = {0};
        OK(ls_generate(&g, &t, &err), &err);
        out->first[t.token[0]]++;
        out->second[t.token[1]]++;
        out->joint[t.token[0] * V + t.token[1]]++;
        out->tried += t.round[0].evaluated > 0;
        out->kept += t.round[0].accepted > 0;
        out->n++;
        ls_transcript_free(&t);
    }
    ls_policy_destroy(policy);
}

static void expect_law(const tally *t, double law[V][V]) {
    double second[V] = {0}, joint[V * V];
    for (int32_t a = 0; a < V; a++)
        for (int32_t b = 0; b < V; b++) {
            joint[a * V + b] = law[3][a] * law[a][b];
            second[b] += joint[a * V + b];
        }
    /* logits of -1e30 or so: a probability under 1e-12 is taken as 0 */
    for (int32_t i = 0; i < V * V; i++)
        joint[i] = joint[i] < 1e-12 ? 0 : joint[i];
    for (int32_t i = 0; i < V; i++) {
        law[3][i] = law[3][i] < 1e-12 ? 0 : law[3][i];
        second[i] = second[i] < 1e-12 ? 0 : second[i];
    }
    assert_true(chi_square_p(t->first, law[3], V, t->n) > ALARM);
    assert_true(chi_square_p(t->second, second, V, t->n) > ALARM);
    assert_true(chi_square_p(t->joint, joint, V * V, t->n) > ALARM);
    assert_int_equal(t->first[2] + t->second[2], 0);
}

static void open_case(ls_rig *r, const char *name) {
    char *dir = ls_case_model(name);
    ls_rig_open(r, dir, (ls_cpu_options){1, LS_SIMD_AUTO}, (ls_engine_options){.context = 8});
    free(dir);
}

static void end_to_end(const char *draft_name, int64_t seeds) {
    ls_err err;
    ls_rig target, draft;
    ls_drafter *d;
    ls_rule *rejection;
    double law[V][V];
    tally t;
    open_case(&target, "table_sample_target");
    open_case(&draft, draft_name);
    OK(ls_drafter_model(draft.engine, &d, &err), &err);
    OK(ls_rule_builtin("rejection", &rejection, &err), &err);
    table_law(&target, law);
    for (int32_t k = 1; k <= 4; k *= 2) {
        sample(&target, d, rejection, k, seeds, &t);
        expect_law(&t, law);
        /* acceptance of the first draft: sum of min(p, q), known for this pair */
        assert_near((double)t.kept / (double)t.tried, 0.62439, room(0.005, &t));
    }
    sample(&target, d, NULL, 2, seeds, &t); /* exact: plain sampling, coupled */
    expect_law(&t, law);
    ls_rule_destroy(rejection);
    ls_drafter_destroy(d);
    ls_rig_close(&draft);
    ls_rig_close(&target);
}

static void test_table_pair(void **state) {
    (void)state;
    end_to_end("table_sample_draft", 200000);
}

/* C015: 8 more rows whose logits would win everything have no string and are never proposed. */
static void test_padded_draft(void **state) {
    (void)state;
    end_to_end("table_draft_padded", 60000);
}

/* The exact rule with a draft drawn independently: same law, and the acceptance of equality. */
static void test_uncoupled_equality(void **state) {
    (void)state;
    ls_err err;
    ls_rig target, draft;
    ls_drafter *d;
    ls_rule *exact;
    double law[V][V];
    tally t;
    open_case(&target, "table_sample_target");
    open_case(&draft, "table_sample_draft");
    OK(ls_drafter_model(draft.engine, &d, &err), &err);
    OK(ls_rule_builtin("exact", &exact, &err), &err);
    exact->coupled = false;
    table_law(&target, law);
    sample(&target, d, exact, 2, 100000, &t);
    expect_law(&t, law);
    assert_near((double)t.kept / (double)t.tried, 0.0638, room(0.005, &t));
    ls_rule_destroy(exact);
    ls_drafter_destroy(d);
    ls_rig_close(&draft);
    ls_rig_close(&target);
}

/* A garbage drafter is a point mass: the law stands (C011 end to end). */
static void test_point_mass(void **state) {
    (void)state;
    ls_err err;
    ls_rig target;
    ls_drafter *d;
    ls_rule *rejection;
    double law[V][V];
    tally t;
    open_case(&target, "table_sample_target");
    OK(ls_drafter_garbage(V, &d, &err), &err);
    OK(ls_rule_builtin("rejection", &rejection, &err), &err);
    table_law(&target, law);
    sample(&target, d, rejection, 3, 100000, &t);
    expect_law(&t, law);
    ls_rule_destroy(rejection);
    ls_drafter_destroy(d);
    ls_rig_close(&target);
}

/* One decision: draws x from q, judges it against p, returns the token that stands; *kept. */
static int32_t decide(ls_backend *be, const float *p, const float *q, int32_t n, uint32_t position,
                      bool point_mass, bool *kept) {
    float target[2 * 8], draft[8], weight[8];
    for (int32_t i = 0; i < n; i++) {
        target[i] = target[n + i] = logf(p[i]); /* the bonus row is not looked at here */
        draft[i] = logf(q[i]);
    }
    const ls_warp warp[2] = {{.temperature = 1, .top_p = 1}, {.temperature = 1, .top_p = 1}};
    const ls_draw of_draft = ls_draw_key(77, 0, position, LS_DRAW_DRAFT, 0);
    const ls_draw of_target[2] = {ls_draw_key(77, 0, position, LS_DRAW_TOKEN, 0),
                                  ls_draw_key(77, 0, position + 1, LS_DRAW_TOKEN, 0)};
    ls_row_stats stats[2], draft_stats;
    ls_verdict_set v = {-9, -9};
    be->stats(be, &(ls_stats_args){draft, n, n, warp, &of_draft, 0, &draft_stats, 1, 0, NULL});
    be->stats(be, &(ls_stats_args){target, n, n, warp, of_target, 0, stats, 2, 0, NULL});
    const int32_t x = draft_stats.token;
    be->accept(be, &(ls_accept_args){.kind = LS_ACCEPT_REJECTION,
                                     .token = &x,
                                     .target = stats,
                                     .draft = point_mass ? NULL : &draft_stats,
                                     .logits = target,
                                     .draft_logits = draft,
                                     .weight = weight,
                                     .out = &v,
                                     .ld_logits = n,
                                     .ld_draft = n,
                                     .n_vocab = n,
                                     .n = 1,
                                     .seed = 77,
                                     .position = position});
    *kept = v.n_accept == 1;
    return *kept ? x : v.token;
}

/* tests/cases/numeric/acceptance.json: acceptance, marginal and residual of each pair. */
static void test_acceptance_cases(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be;
    json_t *all = json_load_file(LS_TEST_DIR "/cases/numeric/acceptance.json", 0, NULL), *row;
    size_t i;
    assert_non_null(all);
    OK(ls_cpu_create((ls_cpu_options){1, LS_SIMD_AUTO}, &be, &err), &err);
    json_array_foreach (all, i, row) {
        const json_t *jp = json_object_get(row, "p"), *jq = json_object_get(row, "q");
        const json_t *jr = json_object_get(row, "residual");
        const bool point =
            strcmp(json_string_value(json_object_get(row, "name")), "point_mass_draft") == 0;
        const int32_t n = (int32_t)json_array_size(jp);
        const double alpha = json_number_value(json_object_get(row, "alpha"));
        float p[8], q[8];
        double marginal[8], residual[8] = {0};
        int64_t count[8] = {0}, drawn[8] = {0}, kept_n = 0, total = 200000;
        for (int32_t t = 0; t < n; t++) {
            marginal[t] = json_number_value(json_array_get(jp, (size_t)t));
            p[t] = (float)marginal[t];
            q[t] = (float)json_number_value(json_array_get(jq, (size_t)t));
            residual[t] = json_number_value(json_array_get(jr, (size_t)t));
        }
        for (int64_t k = 0; k < total; k++) {
            bool kept;
            const int32_t y = decide(be, p, q, n, (uint32_t)k, point, &kept);
            assert_in_range(y, 0, n - 1);
            count[y]++;
            kept_n += kept;
            drawn[y] += !kept;
        }
        /* five standard deviations of a binomial, or exact where the rate is 0 or 1 */
        assert_near((double)kept_n / (double)total, alpha,
                    5 * sqrt(alpha * (1 - alpha) / (double)total));
        if (total > kept_n && json_is_array(jr) && n > 1)
            for (int32_t t = 0; t < n; t++)
                assert_true(residual[t] > 0 || drawn[t] == 0);
        int32_t live = 0;
        for (int32_t t = 0; t < n; t++)
            live += marginal[t] > 0;
        if (live > 1)
            assert_true(chi_square_p(count, marginal, n, total) > ALARM);
    }
    json_decref(all);
    ls_backend_destroy(be);
}

/* C010: 300,000 random pairs, denormals and equal rows among them: never an invalid token, never
 * one of probability 0. */
static void test_hostile_rows(void **state) {
    (void)state;
    ls_err err;
    ls_backend *be;
    uint32_t seed = 1;
    OK(ls_cpu_create((ls_cpu_options){1, LS_SIMD_AUTO}, &be, &err), &err);
    for (uint32_t k = 0; k < 300000; k++) {
        float p[4], q[4];
        float sp = 0, sq = 0;
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            const int exponent = -(int)((seed >> 8) % 150);
            p[i] =
                (seed >> 28) == 0 ? 0.0f : ldexpf(1.0f + (float)(seed >> 16) / 65536.0f, exponent);
            seed = seed * 1664525u + 1013904223u;
            q[i] = (seed >> 28) == 0 ? 0.0f
                   : (seed >> 28) < 5
                       ? p[i]
                       : ldexpf(1.0f + (float)(seed >> 16) / 65536.0f, -(int)((seed >> 8) % 150));
            sp += p[i];
            sq += q[i];
        }
        if (!(sp > 0) || !(sq > 0))
            continue;
        for (int i = 0; i < 4; i++) {
            p[i] /= sp;
            q[i] /= sq;
        }
        if (k % 17 == 0)
            memcpy(q, p, sizeof q);
        bool kept;
        const int32_t y = decide(be, p, q, 4, k, false, &kept);
        assert_in_range(y, 0, 3);
        assert_true(p[y] > 0);
        if (k % 17 == 0)
            assert_true(kept);
    }
    ls_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_pair),         cmocka_unit_test(test_padded_draft),
        cmocka_unit_test(test_uncoupled_equality), cmocka_unit_test(test_point_mass),
        cmocka_unit_test(test_acceptance_cases),   cmocka_unit_test(test_hostile_rows),
    };
    return cmocka_run_group_tests_name("rule_dist", tests, NULL, NULL);
}
