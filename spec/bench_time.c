#include "bench_time.h"

#include <math.h>
#include <stdlib.h>

#include "clock.h"

static int by_value(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

ls_spread ls_spread_of(double *value, int32_t n) {
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++)
        mean += value[i] / n;
    for (int32_t i = 0; i < n; i++)
        square += (value[i] - mean) * (value[i] - mean);
    qsort(value, (size_t)n, sizeof *value, by_value);
    return (ls_spread){.median = (value[(n - 1) / 2] + value[n / 2]) / 2,
                       .low = value[n / 4],
                       .high = value[n - 1 - n / 4],
                       .cv = n > 1 && mean != 0 ? sqrt(square / (n - 1)) / fabs(mean) : 0};
}

/* One repeat of all series; -1 warms up. times: [n][2][n_repeat] */
static ls_status one_repeat(ls_series *s, int32_t n, int32_t repeat, const ls_bench_how *how,
                            double *times, ls_err *err) {
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = repeat % 2 ? n - 1 - k : k;
        ls_took took = {0};
        LS_TRY(s[i].run(s[i].self, s[i].arg, &took, err));
        if (repeat >= 0) {
            double *mine = times + (size_t)i * 2 * (size_t)how->n_repeat;
            mine[repeat] = took.wall_us;
            mine[how->n_repeat + repeat] = took.device_us;
        }
        if (how->stop && how->stop(how->self))
            return ls_fail(err, LS_ERR_STOPPED, "stopped");
    }
    if (how->progress)
        how->progress(how->self, repeat + 2, how->n_repeat + 1, "repeats");
    return LS_OK;
}

ls_status ls_bench_interleave(ls_series *s, int32_t n, const ls_bench_how *how, ls_err *err) {
    if (n < 1 || how->n_repeat < 1)
        return ls_fail(err, LS_ERR_INPUT, "nothing to repeat: repeats must be at least 1");
    double *times = malloc((size_t)n * 2 * (size_t)how->n_repeat * sizeof *times);
    if (!times)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    ls_status status = LS_OK;
    for (int32_t repeat = -1; status == LS_OK && repeat < how->n_repeat; repeat++)
        status = one_repeat(s, n, repeat, how, times, err);
    for (int32_t i = 0; status == LS_OK && i < n; i++) {
        double *mine = times + (size_t)i * 2 * (size_t)how->n_repeat;
        s[i].wall = ls_spread_of(mine, how->n_repeat);
        s[i].device = ls_spread_of(mine + how->n_repeat, how->n_repeat);
    }
    free(times);
    return status;
}

ls_status ls_bench_read(ls_backend *be, const ls_span *span, int32_t n, ls_took *took,
                        ls_err *err) {
    const double t0 = ls_now_us();
    be->stamp(be, 0);
    be->read(be, span, n);
    be->stamp(be, 1);
    LS_TRY(be->sync(be, err));
    took->wall_us = ls_now_us() - t0;
    took->device_us = be->between(be, 0, 1);
    return LS_OK;
}

void ls_bench_tokens(int32_t *token, int64_t n, int32_t n_vocab, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        token[i] = (int32_t)((seed >> 33) % (uint64_t)n_vocab);
    }
}
