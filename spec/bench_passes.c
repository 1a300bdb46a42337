/* bench_passes.c - `lockstep bench verify` and `decode`: widths against one row, and one row
 * against memory and against launches that do nothing. */
#include <stdio.h>
#include <string.h>

#include "bench_cmd.h"

#define LAUNCHES 256 /* of the chain that the floor is measured on */

/* ---- the series of one length ---------------------------------------------------------------- */

typedef struct table {
    int32_t length, n_width;
    int32_t width[LS_BENCH_ROWS];
    ls_series series[LS_BENCH_ROWS + 4]; /* the widths, width 1 again, the read, fma, one layer */
    const ls_series *control, *read, *fma;
    const ls_series *thin; /* a row through one layer; NULL: not asked for */
    size_t weight_bytes;
    /* of the widest pass of at most 8 rows */
    int32_t at;
    double work, floor; /* its multiply-adds; it over one row by read and arithmetic alone */
} table;

/* Every width up to 16; the powers of two when it goes further. */
static void choose_widths(table *t, int32_t rows) {
    t->n_width = 0;
    for (int32_t n = 1; n <= rows; n = rows > 16 ? 2 * n : n + 1)
        t->width[t->n_width++] = n;
    if (t->width[t->n_width - 1] != rows)
        t->width[t->n_width++] = rows;
}

static ls_status measure(ls_bench_job *j, table *t, ls_err *err) {
    ls_pass_rig rig, thin = {.seq = -1};
    const ls_bench_how how = ls_bench_how_of(j);
    const int32_t widest = t->width[t->n_width - 1];
    ls_status status = ls_pass_rig_open(&rig, j->setup.engine, t->length, widest, 1, err);
    int32_t n = 0;
    for (; n < t->n_width; n++)
        t->series[n] = (ls_series){.run = ls_pass_rig_pass, .self = &rig, .arg = t->width[n]};
    t->control = &t->series[n];
    t->series[n++] = (ls_series){.run = ls_pass_rig_pass, .self = &rig, .arg = 1};
    t->read = &t->series[n];
    t->series[n++] = (ls_series){.run = ls_pass_rig_read, .self = &rig};
    t->fma = &t->series[n];
    t->series[n++] = (ls_series){.run = ls_pass_rig_fma, .self = &rig};
    t->thin = j->other ? &t->series[n] : NULL;
    if (status == LS_OK && j->other) {
        status = ls_pass_rig_open(&thin, j->other, t->length, 1, 1, err);
        t->series[n++] = (ls_series){.run = ls_pass_rig_pass, .self = &thin, .arg = 1};
    }
    if (status == LS_OK)
        status = ls_bench_interleave(t->series, n, &how, err);
    t->weight_bytes = rig.weight_bytes;
    for (t->at = t->n_width - 1; t->width[t->at] > 8;)
        t->at--;
    if (status == LS_OK) {
        t->work = ls_pass_rig_work(&rig, t->width[t->at]);
        t->floor =
            ls_pass_rig_floor(&rig, t->width[t->at], t->read->device.median, t->fma->device.median);
    }
    ls_pass_rig_close(&rig);
    ls_pass_rig_close(&thin);
    ls_term_clear(&j->term);
    return status;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void verify_table(const ls_bench_job *j, const table *t) {
    const double one = t->series[0].wall.median, one_device = t->series[0].device.median;
    printf("length %d, %d interleaved repeats; wall time, and on the device alone\n", t->length,
           j->a.repeats);
    printf("%5s %10s %22s %7s %11s %10s %7s\n", "rows", "ms", "quartiles", "to one", "us a row",
           "device", "to one");
    for (int32_t i = 0; i < t->n_width; i++) {
        const ls_series *s = &t->series[i];
        printf("%5d %10.3f %10.3f -%10.3f %7.2f %11.1f %10.3f %7.2f\n", s->arg,
               s->wall.median / 1e3, s->wall.low / 1e3, s->wall.high / 1e3, s->wall.median / one,
               s->wall.median / s->arg, s->device.median / 1e3, s->device.median / one_device);
    }
    printf("one row timed twice: %.3f (what noise can do)\n", t->control->wall.median / one);
}

static void decode_lines(const table *t) {
    const double bytes = (double)t->weight_bytes;
    const ls_series *one = &t->series[0];
    const double read = t->read->device.median;
    printf(
        "length %d: a token takes %.3f ms (%.1f a second), %.3f ms on the device\n"
        "%.3f GB of weights at %.2f GB/s, plain read of the same memory %.2f GB/s: share %.3f (on "
        "the device %.3f)\n",
        t->length, one->wall.median / 1e3, 1e6 / one->wall.median, one->device.median / 1e3,
        bytes / 1e9, ls_gb_per_s(bytes, one->wall.median), ls_gb_per_s(bytes, read),
        read / one->wall.median, read / one->device.median);
}

/* What a pass of rows can reach on a CPU: one row waits for memory, several for arithmetic. */
static void fma_line(const table *t) {
    const double us = t->series[t->at].wall.median, million = t->fma->device.median;
    if (million > 0)
        printf("%d rows: %.1f GFMA/s, in registers alone %.1f: share %.3f; the longer of read and "
               "arithmetic would make %d rows over one %.2f\n",
               t->width[t->at], t->work / us / 1e3, 1e3 / million, t->work * 1e-6 * million / us,
               t->width[t->at], t->floor);
}

static json_t *table_json(const table *t) {
    const ls_series *one = &t->series[0];
    const double bytes = (double)t->weight_bytes;
    json_t *passes = json_array();
    for (int32_t i = 0; i < t->n_width; i++) {
        json_t *p = ls_bench_series(&t->series[i]);
        json_object_set_new(p, "rows", json_integer(t->series[i].arg));
        json_object_set_new(p, "to_one", json_real(t->series[i].wall.median / one->wall.median));
        json_object_set_new(p, "to_one_device",
                            json_real(t->series[i].device.median / one->device.median));
        json_array_append_new(passes, p);
    }
    json_t *r = json_pack("{s:i, s:I, s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "length", t->length,
                          "read_bytes", (json_int_t)t->weight_bytes, "passes", passes, "control",
                          ls_bench_series(t->control), "read", ls_bench_series(t->read),
                          "weight_gb_per_s", ls_gb_per_s(bytes, one->wall.median), "read_gb_per_s",
                          ls_gb_per_s(bytes, t->read->device.median), "share",
                          t->read->device.median / one->wall.median, "share_device",
                          t->read->device.median / one->device.median);
    const double million = t->fma->device.median, us = t->series[t->at].wall.median;
    if (million > 0)
        json_object_set_new(r, "fma",
                            json_pack("{s:i, s:f, s:f, s:f, s:f}", "rows", t->width[t->at], "n_fma",
                                      t->work, "gfma_per_s", 1e3 / million, "share",
                                      t->work * 1e-6 * million / us, "floor_to_one", t->floor));
    return r;
}

/* What a layer adds to decode: all of them less the first, over their number; and that in launches
 * that do nothing. */
static ls_status layer_line(ls_bench_job *j, const table *t, json_t *result, ls_err *err) {
    double us;
    if (!t->thin)
        return LS_OK;
    const int32_t n_layers = j->setup.target->config.n_layers;
    const double layer = (t->series[0].device.median - t->thin->device.median) / (n_layers - 1);
    LS_TRY(ls_bench_floor(j->setup.be, LAUNCHES, j->a.repeats, &us, err));
    json_object_set_new(result, "one_layer", ls_bench_series(t->thin));
    json_object_set_new(result, "us_a_layer", json_real(layer));
    json_object_set_new(result, "floor_us_a_launch", us > 0 ? json_real(us) : json_null());
    if (!j->a.json)
        printf("%.2f us a layer (%d of them), %.2f us for the rest", layer, n_layers,
               t->series[0].device.median - n_layers * layer);
    if (!j->a.json && us > 0)
        printf("; a recorded launch that does nothing takes %.2f us: %.1f of them a layer", us,
               layer / us);
    if (!j->a.json)
        printf("\n");
    return LS_OK;
}

static ls_status passes(ls_bench_job *j, bool verify, ls_err *err) {
    int32_t length[LS_BENCH_LIST], n, longest = 0;
    table t;
    LS_TRY(ls_bench_numbers(&j->a.length, "length", "256", 1, 1 << 20, length, &n, err));
    for (int32_t i = 0; i < n; i++)
        longest = length[i] > longest ? length[i] : longest;
    choose_widths(&t, verify ? j->a.rows : 1);
    const ls_bench_need need = {.context = longest + t.width[t.n_width - 1], .thin = !verify};
    LS_TRY(ls_bench_open(j, &need, err));
    ls_bench_heading(j);
    for (int32_t i = 0; i < n; i++) {
        t.length = length[i];
        LS_TRY(measure(j, &t, err));
        if (!j->a.json && verify)
            verify_table(j, &t);
        if (!j->a.json)
            decode_lines(&t);
        if (!j->a.json && verify)
            fma_line(&t);
        json_t *result = table_json(&t);
        json_array_append_new(j->results, result);
        LS_TRY(layer_line(j, &t, result, err));
    }
    return ls_bench_write(j, verify ? "bench verify" : "bench decode", NULL, err);
}

ls_status ls_bench_verify(ls_bench_job *j, ls_err *err) {
    return passes(j, true, err);
}

ls_status ls_bench_decode(ls_bench_job *j, ls_err *err) {
    return passes(j, false, err);
}
