#include "interval.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESAMPLE_MAX 1000000
#define EXACT_FLIPS 12 /* prompts up to which every pattern of signs is tried */

/* A statistic of a sample of clusters; false when it has no denominator there. */
typedef struct stat {
    bool (*value)(const struct stat *s, const int32_t *pick, int32_t n, double *out);
    const double *a, *b, *c, *d;
} stat;

static bool ratio_of(const double *num, const double *den, const int32_t *pick, int32_t n,
                     double *out) {
    double top = 0, bottom = 0;
    for (int32_t i = 0; i < n; i++)
        top += num[pick[i]], bottom += den[pick[i]];
    if (!(bottom > 0))
        return false;
    *out = top / bottom;
    return true;
}

static bool stat_ratio(const stat *s, const int32_t *pick, int32_t n, double *out) {
    return ratio_of(s->a, s->b, pick, n, out);
}

static bool stat_diff(const stat *s, const int32_t *pick, int32_t n, double *out) {
    double a, b;
    if (!ratio_of(s->a, s->b, pick, n, &a) || !ratio_of(s->c, s->d, pick, n, &b))
        return false;
    *out = a - b;
    return true;
}

static bool stat_mean(const stat *s, const int32_t *pick, int32_t n, double *out) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += s->a[pick[i]];
    *out = sum / n;
    return n > 0;
}

static ls_status fill_options(ls_interval_options *o, ls_err *err) {
    if (o->level == 0)
        o->level = 0.95;
    if (o->n_resample == 0)
        o->n_resample = 2000;
    if (o->seed == 0)
        o->seed = 1;
    if (!(o->level > 0 && o->level < 1))
        return ls_fail(err, LS_ERR_INPUT, "interval level %g is not between 0 and 1", o->level);
    if (o->n_resample < 100 || o->n_resample > RESAMPLE_MAX)
        return ls_fail(err, LS_ERR_INPUT, "%d resamples: give 100 to %d", o->n_resample,
                       RESAMPLE_MAX);
    return LS_OK;
}

static ls_status check_values(const double *x, int32_t n, ls_err *err) {
    if (n < 0)
        return ls_fail(err, LS_ERR_INPUT, "%d clusters", n);
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] >= 0) || isinf(x[i]))
            return ls_fail(err, LS_ERR_INPUT, "cluster %d holds %g: counts and times are >= 0", i,
                           x[i]);
    return LS_OK;
}

static int by_value(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Quantile of sorted values, linear between neighbours. */
static double quantile(const double *sorted, int32_t n, double q) {
    const double at = q * (n - 1);
    const int32_t i = (int32_t)floor(at);
    if (i >= n - 1)
        return sorted[n - 1];
    return sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]);
}

/* Acceleration: a sixth of the skewness of the leave-one-out estimates. */
static double jackknife(const stat *s, int32_t n, int32_t *pick, double *leave) {
    int32_t m = 0;
    double mean = 0;
    for (int32_t out = 0; out < n; out++) {
        for (int32_t i = 0; i < n - 1; i++)
            pick[i] = i < out ? i : i + 1;
        if (s->value(s, pick, n - 1, &leave[m]))
            mean += leave[m++];
    }
    if (m < 2)
        return 0;
    mean /= m;
    double second = 0, third = 0;
    for (int32_t i = 0; i < m; i++) {
        const double d = mean - leave[i];
        second += d * d, third += d * d * d;
    }
    return second > 0 ? third / (6 * pow(second, 1.5)) : 0;
}

/* Where in the bootstrap distribution the BCa bound of normal quantile z lies. */
static double bca_level(double bias, double accel, double z) {
    const double w = bias + z, below = 1 - accel * w;
    return below > 0 ? gsl_cdf_ugaussian_P(bias + w / below) : z < 0 ? 0 : 1;
}

static ls_status bootstrap(const stat *s, int32_t n, const ls_interval_options *o, ls_interval *out,
                           ls_err *err) {
    *out = (ls_interval){.level = o->level, .n_cluster = n};
    const size_t n_pick = n > 0 ? (size_t)n : 1, n_draw = (size_t)o->n_resample;
    int32_t *pick = malloc(n_pick * sizeof *pick);
    double *draw = malloc((n_draw + n_pick) * sizeof *draw);
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    ls_status status = LS_OK;
    if (!pick || !draw || !rng) {
        status = ls_fail(err, LS_ERR_MEMORY, "out of memory for %d resamples", o->n_resample);
        goto end;
    }
    for (int32_t i = 0; i < n; i++)
        pick[i] = i;
    out->known = s->value(s, pick, n, &out->estimate);
    if (!out->known || n < 2)
        goto end;

    gsl_rng_set(rng, (unsigned long)(o->seed ^ (o->seed >> 32)));
    int32_t n_ok = 0, n_below = 0, n_equal = 0;
    for (int32_t b = 0; b < o->n_resample; b++) {
        for (int32_t i = 0; i < n; i++)
            pick[i] = (int32_t)gsl_rng_uniform_int(rng, (unsigned long)n);
        if (!s->value(s, pick, n, &draw[n_ok]))
            continue;
        n_below += draw[n_ok] < out->estimate;
        n_equal += draw[n_ok] == out->estimate;
        n_ok++;
    }
    if (n_ok < o->n_resample - o->n_resample / 20)
        goto end; /* one resample in twenty says nothing: neither would the interval */
    qsort(draw, (size_t)n_ok, sizeof *draw, by_value);
    if (draw[0] == draw[n_ok - 1])
        goto end; /* 9 of 9 kept says "often", not "always": no spread was seen, so none is told */
    const double tail = (1 - o->level) / 2, z = gsl_cdf_ugaussian_Pinv(tail);
    /* ties with the estimate count half, so that a constant sample has no bias */
    const double share = (n_below + 0.5 * n_equal) / n_ok;
    const double half = 0.5 / n_ok;
    const double bias = gsl_cdf_ugaussian_Pinv(share < half       ? half
                                               : share > 1 - half ? 1 - half
                                                                  : share);
    const double accel = jackknife(s, n, pick, draw + n_draw);
    out->low = quantile(draw, n_ok, bca_level(bias, accel, z));
    out->high = quantile(draw, n_ok, bca_level(bias, accel, -z));
    out->bounded = true;
end:
    gsl_rng_free(rng);
    free(draw);
    free(pick);
    return status;
}

ls_status ls_interval_ratio(const double *num, const double *den, int32_t n,
                            ls_interval_options options, ls_interval *out, ls_err *err) {
    LS_TRY(fill_options(&options, err));
    LS_TRY(check_values(num, n, err));
    LS_TRY(check_values(den, n, err));
    const stat s = {.value = stat_ratio, .a = num, .b = den};
    return bootstrap(&s, n, &options, out, err);
}

ls_status ls_interval_ratio_diff(const double *num_a, const double *den_a, const double *num_b,
                                 const double *den_b, int32_t n, ls_interval_options options,
                                 ls_interval *out, ls_err *err) {
    LS_TRY(fill_options(&options, err));
    LS_TRY(check_values(num_a, n, err));
    LS_TRY(check_values(den_a, n, err));
    LS_TRY(check_values(num_b, n, err));
    LS_TRY(check_values(den_b, n, err));
    const stat s = {.value = stat_diff, .a = num_a, .b = den_a, .c = num_b, .d = den_b};
    return bootstrap(&s, n, &options, out, err);
}

/* Share of sign patterns whose |sum| is at least the one seen. */
static ls_status sign_flips(const double *x, int32_t n, const ls_interval_options *o, double *p,
                            ls_err *err) {
    double seen = 0, scale = 0;
    for (int32_t i = 0; i < n; i++)
        seen += x[i], scale += fabs(x[i]);
    seen = fabs(seen) - 1e-12 * scale; /* sums that differ by rounding are the same sum */
    int64_t n_extreme = 0;
    if (n <= EXACT_FLIPS) {
        const int64_t n_pattern = (int64_t)1 << n;
        for (int64_t pattern = 0; pattern < n_pattern; pattern++) {
            double sum = 0;
            for (int32_t i = 0; i < n; i++)
                sum += pattern >> i & 1 ? -x[i] : x[i];
            n_extreme += fabs(sum) >= seen;
        }
        *p = (double)n_extreme / (double)n_pattern;
        return LS_OK;
    }
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    if (!rng)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory for a random number generator");
    gsl_rng_set(rng, (unsigned long)(o->seed ^ (o->seed >> 32)));
    for (int32_t b = 0; b < o->n_resample; b++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += gsl_rng_uniform_int(rng, 2) ? -x[i] : x[i];
        n_extreme += fabs(sum) >= seen;
    }
    gsl_rng_free(rng);
    *p = (double)(n_extreme + 1) / (o->n_resample + 1);
    return LS_OK;
}

ls_status ls_interval_speed(const double *a, const double *b, int32_t n,
                            ls_interval_options options, ls_interval *out, double *p_value,
                            ls_err *err) {
    LS_TRY(fill_options(&options, err));
    LS_TRY(check_values(a, n, err));
    LS_TRY(check_values(b, n, err));
    double *x = malloc((n > 0 ? (size_t)n : 1) * sizeof *x);
    if (!x)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory for %d time ratios", n);
    for (int32_t i = 0; i < n; i++) {
        if (a[i] == 0 || b[i] == 0) {
            free(x);
            return ls_fail(err, LS_ERR_INPUT, "prompt %d took no time: leave it out", i);
        }
        x[i] = log(a[i]) - log(b[i]);
    }
    const stat s = {.value = stat_mean, .a = x};
    ls_status status = bootstrap(&s, n, &options, out, err);
    if (status == LS_OK && p_value)
        status = sign_flips(x, n, &options, p_value, err);
    free(x);
    LS_TRY(status);
    if (out->known)
        out->estimate = exp(out->estimate);
    if (out->bounded)
        out->low = exp(out->low), out->high = exp(out->high);
    return LS_OK;
}

ls_interval ls_interval_wilson(ls_rate rate, double level) {
    ls_interval out = {.level = level,
                       .n_cluster = (int32_t)(rate.den < INT32_MAX ? rate.den : INT32_MAX)};
    out.known = ls_rate_get(rate, &out.estimate);
    if (!out.known || !(level > 0 && level < 1))
        return out;
    const double n = (double)rate.den, z = gsl_cdf_ugaussian_Pinv((1 + level) / 2), zz = z * z;
    const double mid = (out.estimate + zz / (2 * n)) / (1 + zz / n);
    const double half =
        z / (1 + zz / n) * sqrt(out.estimate * (1 - out.estimate) / n + zz / (4 * n * n));
    /* at 0 and at n the bound is the end itself, which rounding must not miss */
    out.low = rate.num == 0 ? 0 : mid - half;
    out.high = rate.num == rate.den ? 1 : mid + half;
    out.bounded = true;
    return out;
}

typedef struct ranked {
    double p;
    int32_t at;
} ranked;

static int by_p(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->p != b->p)
        return a->p < b->p ? -1 : 1;
    return a->at - b->at;
}

ls_status ls_holm(const double *p, int32_t n, double *adjusted, ls_err *err) {
    for (int32_t i = 0; i < n; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            return ls_fail(err, LS_ERR_INPUT, "p value %d is %g: not between 0 and 1", i, p[i]);
    ranked *order = malloc((n > 0 ? (size_t)n : 1) * sizeof *order);
    if (!order)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory for %d p values", n);
    for (int32_t i = 0; i < n; i++)
        order[i] = (ranked){p[i], i};
    qsort(order, n > 0 ? (size_t)n : 0, sizeof *order, by_p);
    double most = 0; /* a p value is never adjusted below a smaller one */
    for (int32_t i = 0; i < n; i++) {
        const double q = order[i].p * (n - i);
        most = q > most ? q : most;
        adjusted[order[i].at] = most < 1 ? most : 1;
    }
    free(order);
    return LS_OK;
}

double ls_rule_of_three(int64_t n, double level) {
    return n > 0 ? -expm1(log1p(-level) / (double)n) : 1;
}
