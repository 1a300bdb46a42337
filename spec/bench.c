#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "chunk.h"
#include "clock.h"

/* ---- passes ---------------------------------------------------------------------------------- */

static ls_status take_spans(ls_pass_rig *r, ls_err *err) {
    r->n_span = ls_engine_weights(r->e, NULL, 0);
    r->span = malloc((size_t)(r->n_span + 1) * sizeof *r->span);
    if (!r->span)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    ls_engine_weights(r->e, r->span, r->n_span);
    r->weight_bytes = 0;
    for (int32_t i = 0; i < r->n_span; i++)
        r->weight_bytes += r->span[i].bytes;
    return LS_OK;
}

ls_status ls_pass_rig_open(ls_pass_rig *r, ls_engine *e, int32_t length, int32_t max_rows,
                           uint64_t seed, ls_err *err) {
    const ls_engine_options *o = ls_engine_opts(e);
    *r = (ls_pass_rig){.e = e, .seq = -1, .length = length, .max_rows = max_rows};
    if (length < 1 || max_rows < 1 || max_rows > o->max_rows || max_rows > LS_BENCH_ROWS)
        return ls_fail(err, LS_ERR_INPUT, "length %d and %d rows: at least 1, at most %d rows",
                       length, max_rows, o->max_rows < LS_BENCH_ROWS ? o->max_rows : LS_BENCH_ROWS);
    const int64_t n = (int64_t)length + max_rows;
    if (n > o->context)
        return ls_fail(err, LS_ERR_INPUT, "length %d and %d rows do not fit the context of %d",
                       length, max_rows, o->context);
    r->token = malloc((size_t)n * sizeof *r->token);
    if (!r->token)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    ls_bench_tokens(r->token, n, o->n_vocab, seed);
    LS_TRY(take_spans(r, err));
    LS_TRY(ls_kv_open(ls_engine_kv(e), &r->seq, err));
    return ls_prefill(e, r->seq, r->token, length, 0, err);
}

void ls_pass_rig_close(ls_pass_rig *r) {
    if (r->e && r->seq >= 0)
        ls_kv_close(ls_engine_kv(r->e), r->seq);
    free(r->token);
    free(r->span);
    *r = (ls_pass_rig){.seq = -1};
}

ls_status ls_pass_rig_pass(void *self, int32_t n_rows, ls_took *took, ls_err *err) {
    const ls_pass_rig *r = self;
    ls_backend *be = ls_engine_backend(r->e);
    ls_row row[LS_BENCH_ROWS];
    ls_warp warp[LS_BENCH_ROWS];
    ls_draw draw[LS_BENCH_ROWS];
    ls_row_stats stats[LS_BENCH_ROWS];
    memset(draw, 0, sizeof draw);
    for (int32_t i = 0; i < n_rows; i++) {
        row[i] = ls_row_chain(r->seq, r->token[r->length + i], r->length + i, true);
        warp[i] = (ls_warp){.top_p = 1};
    }
    LS_TRY(be->sync(be, err));
    const double t0 = ls_now_us();
    be->stamp(be, 0);
    LS_TRY(ls_pass_drawn(r->e, row, n_rows, &(ls_draws){.warp = warp, .draw = draw}, err));
    be->stamp(be, 1);
    LS_TRY(ls_pass_result(r->e, NULL, 0, NULL, stats, n_rows, err));
    took->wall_us = ls_now_us() - t0;
    took->device_us = be->between(be, 0, 1);
    return ls_kv_rewind(ls_engine_kv(r->e), r->seq, r->length, err);
}

ls_status ls_pass_rig_read(void *self, int32_t unused, ls_took *took, ls_err *err) {
    const ls_pass_rig *r = self;
    (void)unused;
    return ls_bench_read(ls_engine_backend(r->e), r->span, r->n_span, took, err);
}

#define FMA_US 1000.0 /* a probe takes at least: a thread that wakes up late is not in the figure */

ls_status ls_pass_rig_fma(void *self, int32_t unused, ls_took *took, ls_err *err) {
    ls_pass_rig *r = self;
    double us;
    int64_t n;
    (void)unused;
    (void)err;
    do {
        r->n_step = r->n_step ? r->n_step : 64;
        const double t0 = ls_now_us();
        n = ls_cpu_fma(ls_engine_backend(r->e), r->n_step);
        us = ls_now_us() - t0;
    } while (n && us < FMA_US && (r->n_step *= 2));
    took->wall_us = took->device_us = n ? us / ((double)n * 1e-6) : 0;
    return LS_OK;
}

double ls_pass_rig_work(const ls_pass_rig *r, int32_t n_rows) {
    const ls_engine_options *o = ls_engine_opts(r->e);
    const ls_config *c = &ls_engine_model(r->e)->config;
    /* a row sees the tokens before it and itself: a product with each key, and one with each
     * value */
    double keys = 0;
    for (int32_t l = 0; l < o->n_layers; l++)
        for (int32_t i = 1; i <= n_rows; i++)
            keys += ls_window_len(c->local[l] ? c->window : 0, r->length + i);
    return (double)n_rows * (double)ls_engine_count(r->e).weight_fma +
           2.0 * c->n_heads * c->head_dim * keys;
}

static double longer(double x, double y) {
    return x > y ? x : y;
}

double ls_pass_rig_floor(const ls_pass_rig *r, int32_t n_rows, double read_us, double million_us) {
    return longer(read_us, ls_pass_rig_work(r, n_rows) * 1e-6 * million_us) /
           longer(read_us, ls_pass_rig_work(r, 1) * 1e-6 * million_us);
}

/* ---- the floor of launches ------------------------------------------------------------------- */

static ls_status time_floor(ls_backend *be, ls_graph *g, int32_t n, int32_t n_repeat, double *us,
                            ls_err *err) {
    double *time = malloc((size_t)n_repeat * sizeof *time);
    if (!time)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    ls_status status = LS_OK;
    for (int32_t i = -1; status == LS_OK && i < n_repeat; i++) {
        be->stamp(be, 0);
        status = be->replay(be, g, err);
        be->stamp(be, 1);
        if (status == LS_OK)
            status = be->sync(be, err);
        if (i >= 0)
            time[i] = be->between(be, 0, 1) / n;
    }
    if (status == LS_OK)
        *us = ls_spread_of(time, n_repeat).median;
    free(time);
    return status;
}

ls_status ls_bench_floor(ls_backend *be, int32_t n, int32_t n_repeat, double *us, ls_err *err) {
    const float zero[2] = {0};
    void *x = NULL;
    ls_graph *g = NULL;
    *us = 0;
    if (!be->record)
        return LS_OK;
    LS_TRY(be->alloc(be, sizeof zero, &x, err));
    ls_status status = be->upload(be, x, zero, sizeof zero, err);
    if (status == LS_OK)
        status = be->record(be, err);
    if (status == LS_OK) {
        const ls_silu_mul_args tiny = {.gate = x, .up = x, .h = x, .n_rows = 1, .dim = 1};
        for (int32_t i = 0; i < n; i++)
            be->silu_mul(be, &tiny);
        status = be->record_end(be, &g, err);
    }
    if (status == LS_OK)
        status = time_floor(be, g, n, n_repeat, us, err);
    if (g)
        be->graph_free(be, g);
    be->free(be, x);
    return status;
}
