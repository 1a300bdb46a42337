/* interval.h - how sure a number is, with prompts as clusters.
 * Clusters    the tokens of one prompt depend on each other, prompts do not: whole prompts are
 *             resampled, never tokens. A cluster that counted nothing (0 of 0) stays in.
 * Bootstrap   B resamples, intervals by BCa (Efron 1987; acceleration by the jackknife), which
 *             follows bias and skew where the plain percentile interval does not. Below about 15
 *             clusters every bootstrap interval is somewhat too narrow: report n_cluster beside it.
 * Absent      known is false when the estimate has no denominator; bounded is false when there is
 *             no interval: one cluster, too many resamples without a denominator, or resamples that
 *             all agree (9 of 9 kept), where a bootstrap knows nothing (see ls_rule_of_three).
 * Random      GSL's mt19937 from options.seed: same data, same numbers.
 * Errors      LS_ERR_INPUT for a negative or non-finite value or an option out of range. */
#ifndef LS_INTERVAL_H
#define LS_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "metrics.h"

typedef struct ls_interval_options {
    double level;       /* 0 = 0.95 */
    int32_t n_resample; /* 0 = 2000 */
    uint64_t seed;      /* 0 = 1 */
} ls_interval_options;

typedef struct ls_interval {
    bool known, bounded;
    double estimate, low, high;
    double level;
    int32_t n_cluster;
} ls_interval;

/* sum(num) / sum(den) over n clusters: acceptance, tokens per pass, tokens per second, ... */
ls_status ls_interval_ratio(const double *num, const double *den, int32_t n,
                            ls_interval_options options, ls_interval *out, ls_err *err);
/* sum(num_a)/sum(den_a) - sum(num_b)/sum(den_b), entry i of both being the same prompt. */
ls_status ls_interval_ratio_diff(const double *num_a, const double *den_a, const double *num_b,
                                 const double *den_b, int32_t n, ls_interval_options options,
                                 ls_interval *out, ls_err *err);
/* Geometric mean of a[i] / b[i] over prompts (times, both > 0), from the mean of the logarithms.
 * *p_value (may be NULL): of "no difference", two-sided, by flipping the signs of the logarithms;
 * exact up to 12 prompts, else from n_resample draws, and then never below 1 / (n_resample + 1). */
ls_status ls_interval_speed(const double *a, const double *b, int32_t n,
                            ls_interval_options options, ls_interval *out, double *p_value,
                            ls_err *err);
/* Wilson's score interval of one proportion: independent trials only. */
ls_interval ls_interval_wilson(ls_rate rate, double level);

/* Holm's step-down correction: adjusted[i] is the smallest family-wise level at which i is refused.
 * adjusted may be p. */
ls_status ls_holm(const double *p, int32_t n, double *adjusted, ls_err *err);
/* Upper bound on a rate of which none was seen in n independent trials: 1 - (1 - level)^(1/n),
 * about 3/n at 0.95. 1 for n = 0. */
double ls_rule_of_three(int64_t n, double level);

#endif
