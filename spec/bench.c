#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "clock.h"

#define BLOCK_BYTES ((size_t)256 << 10)

/* ---- the plain read -------------------------------------------------------------------------- */

typedef struct span {
    const uint64_t *word;
    size_t n;
} span;

typedef struct reader {
    span *block;
    size_t n, cap;
    bool wide; /* the processor has AVX2 */
} reader;

static ls_status add_span(reader *r, const void *data, size_t bytes, ls_err *err) {
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        const size_t n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
        if (r->n == r->cap) {
            const size_t cap = r->cap ? 2 * r->cap : 1024;
            span *grown = realloc(r->block, cap * sizeof *grown);
            if (!grown)
                return ls_fail(err, LS_ERR_MEMORY, "out of memory");
            r->block = grown, r->cap = cap;
        }
        r->block[r->n++] = (span){(const uint64_t *)(const void *)((const char *)data + at), n / 8};
    }
    return LS_OK;
}

static ls_status add_mat(reader *r, ls_mat m, ls_err *err) {
    return add_span(r, m.data, (size_t)m.n_out * (size_t)m.n_in * ls_dtype_bytes(m.dtype), err);
}

static ls_status add_vec(reader *r, ls_vec v, ls_err *err) {
    return add_span(r, v.data, (size_t)v.n * ls_dtype_bytes(v.dtype), err);
}

/* All that a pass reads in full. Of the embedding it reads a row a token: not counted. */
static ls_status add_weights(reader *r, const ls_weights *w, int32_t n_layers, ls_err *err) {
    for (int32_t i = 0; i < n_layers; i++) {
        const ls_layer_weights *l = &w->layer[i];
        const ls_mat mats[] = {l->q, l->k, l->v, l->o, l->gate, l->up, l->down};
        for (size_t k = 0; k < sizeof mats / sizeof *mats; k++)
            LS_TRY(add_mat(r, mats[k], err));
        LS_TRY(add_vec(r, l->attn_norm, err));
        LS_TRY(add_vec(r, l->ffn_norm, err));
    }
    LS_TRY(add_vec(r, w->norm, err));
    return add_mat(r, w->head, err);
}

/* Sixteen sums keep as many loads in flight as the processor has room for. */
static inline uint64_t sum_of(const uint64_t *p, size_t n) {
    uint64_t s[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++)
            s[k] += p[i + k];
    for (; i < n; i++)
        s[0] += p[i];
    for (size_t k = 1; k < 16; k++)
        s[0] += s[k];
    return s[0];
}

static uint64_t sum_plain(const uint64_t *p, size_t n) {
    return sum_of(p, n);
}

#if defined(__x86_64__) && defined(__GNUC__)
/* the same loop with wide registers: a read that is slower than it could be flatters the passes */
__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint64_t *p, size_t n) {
    return sum_of(p, n);
}
#else
#define sum_avx2 sum_plain
#endif

static double time_read(const reader *r, int32_t n_threads, volatile uint64_t *sink) {
    const int n = n_threads > 0 ? n_threads : omp_get_max_threads();
    const double t0 = ls_now_us();
    uint64_t total = 0;
    uint64_t (*const sum)(const uint64_t *, size_t) = r->wide ? sum_avx2 : sum_plain;
    const int64_t n_block = (int64_t)r->n;
#pragma omp parallel for num_threads(n) reduction(+ : total) schedule(static)
    for (int64_t i = 0; i < n_block; i++)
        total += sum(r->block[i].word, r->block[i].n);
    *sink = total; /* a sum nobody wants would not be computed */
    return ls_now_us() - t0;
}

/* ---- the passes ------------------------------------------------------------------------------ */

typedef struct bench {
    ls_engine *e;
    const ls_bench_options *o;
    ls_bench_result *r;
    int32_t seq;
    reader reader;
    int32_t *token;
    double *time; /* [max_rows + 2][n_repeat]: widths, the control at 0, the read last */
    volatile uint64_t sink;
} bench;

static double *times(const bench *b, int32_t series) {
    return b->time + (size_t)series * (size_t)b->r->n_repeat;
}

static ls_status time_pass(bench *b, int32_t n_rows, double *us, ls_err *err) {
    ls_row row[LS_BENCH_ROWS];
    ls_warp warp[LS_BENCH_ROWS];
    ls_draw draw[LS_BENCH_ROWS];
    ls_row_stats stats[LS_BENCH_ROWS];
    memset(draw, 0, sizeof draw);
    for (int32_t i = 0; i < n_rows; i++) {
        row[i] = ls_row_chain(b->seq, b->token[b->o->length + i], b->o->length + i, true);
        warp[i] = (ls_warp){.top_p = 1};
    }
    const double t0 = ls_now_us();
    LS_TRY(ls_pass(b->e, row, n_rows, err));
    LS_TRY(ls_pass_stats(b->e, 0, n_rows, warp, draw, 0, stats, err));
    *us = ls_now_us() - t0;
    return ls_kv_rewind(ls_engine_kv(b->e), b->seq, b->o->length, err);
}

/* One repeat: up through the widths, then down, in turns. Repeat -1 warms up. */
static ls_status one_repeat(bench *b, int32_t repeat, ls_err *err) {
    const int32_t n = b->r->max_rows + 1;
    for (int32_t k = 0; k < n; k++) {
        const int32_t series = repeat % 2 ? n - 1 - k : k;
        double us;
        LS_TRY(time_pass(b, series ? series : 1, &us, err));
        if (repeat >= 0)
            times(b, series)[repeat] = us;
        if (b->o->stop && b->o->stop(b->o->self))
            return ls_fail(err, LS_ERR_STOPPED, "stopped");
    }
    const double us = time_read(&b->reader, b->o->n_threads, &b->sink);
    if (repeat >= 0)
        times(b, n)[repeat] = us;
    if (b->o->progress)
        b->o->progress(b->o->self, repeat + 2, b->r->n_repeat + 1, "repeats");
    return LS_OK;
}

static int by_value(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static ls_spread spread(double *us, int32_t n) {
    qsort(us, (size_t)n, sizeof *us, by_value);
    return (ls_spread){(us[(n - 1) / 2] + us[n / 2]) / 2, us[n / 4], us[n - 1 - n / 4]};
}

static ls_status measure(bench *b, ls_err *err) {
    const ls_engine_options *eo = ls_engine_opts(b->e);
    const ls_model *m = ls_engine_model(b->e);
    const ls_bench_options *o = b->o;
    b->r->max_rows = o->max_rows < eo->max_rows ? o->max_rows : eo->max_rows;
    if (b->r->max_rows > LS_BENCH_ROWS)
        b->r->max_rows = LS_BENCH_ROWS;
    b->r->n_repeat = o->n_repeat;
    b->r->length = o->length;
    b->r->weight_bytes = ls_engine_count(b->e).weight_bytes;
    const int64_t n_token = (int64_t)o->length + b->r->max_rows;
    if (o->length < 1 || b->r->max_rows < 1 || o->n_repeat < 1)
        return ls_fail(err, LS_ERR_INPUT, "length, rows and repeats must be at least 1");
    if (n_token > eo->context)
        return ls_fail(err, LS_ERR_INPUT, "length %d and %d rows do not fit the context of %d",
                       o->length, b->r->max_rows, eo->context);
#if defined(__x86_64__) && defined(__GNUC__)
    b->reader.wide = __builtin_cpu_supports("avx2");
#endif
    LS_TRY(add_weights(&b->reader, m->weights, eo->n_layers ? eo->n_layers : m->weights->n_layers,
                       err));
    b->token = malloc((size_t)n_token * sizeof *b->token);
    b->time = malloc((size_t)(b->r->max_rows + 2) * (size_t)o->n_repeat * sizeof *b->time);
    if (!b->token || !b->time)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    uint64_t seed = o->seed;
    for (int64_t i = 0; i < n_token; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b->token[i] = (int32_t)((seed >> 33) % (uint64_t)eo->n_vocab);
    }
    LS_TRY(ls_kv_open(ls_engine_kv(b->e), &b->seq, err));
    LS_TRY(ls_prefill(b->e, b->seq, b->token, o->length, 0, err));
    for (int32_t repeat = -1; repeat < o->n_repeat; repeat++)
        LS_TRY(one_repeat(b, repeat, err));
    b->r->control = spread(times(b, 0), o->n_repeat);
    for (int32_t n = 1; n <= b->r->max_rows; n++)
        b->r->pass[n] = spread(times(b, n), o->n_repeat);
    b->r->read = spread(times(b, b->r->max_rows + 1), o->n_repeat);
    return LS_OK;
}

ls_status ls_bench_passes(ls_engine *e, const ls_bench_options *options, ls_bench_result *out,
                          ls_err *err) {
    *out = (ls_bench_result){0};
    bench b = {.e = e, .o = options, .r = out, .seq = -1};
    ls_status status = measure(&b, err);
    if (b.seq >= 0)
        ls_kv_close(ls_engine_kv(e), b.seq);
    free(b.reader.block);
    free(b.token);
    free(b.time);
    return status;
}
