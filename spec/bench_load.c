/* bench_load.c - `lockstep bench load`: what stands between a model's files and its first pass,
 * against a plain read of the same bytes.
 * Open      mappings, tables and names; what a GGUF file holds in blocks is widened here.
 * Read      every byte of the tensors once through a fresh mapping, by the threads of the CPU: each
 *           page is faulted in, as it is for the engine.
 * Engine    an engine of a short context, made over a fresh mapping: on a GPU its weights are
 *           brought there and packed, on a CPU they stay in the mapping.
 * Upload    GPU: as many bytes from a buffer that is warm already: what the link gives.
 * First     the very first load of the run, from wherever the files lay; the peak of memory is
 *           taken behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench_cmd.h"
#include "clock.h"

#define CONTEXT 16
#define BUFFER_BYTES ((size_t)64 << 20)

enum { OPEN, READ, ENGINE, UPLOAD, N_PARTS };
static const char *const names[N_PARTS] = {"open", "read", "engine", "upload"};

typedef struct loader {
    const char *path;
    ls_backend *be;     /* under test */
    ls_backend *reader; /* a CPU's */
    ls_engine_options o;
    uint64_t bytes, n_params; /* of the weights */
    char *buffer;             /* warm: UPLOAD */
    void *device;             /* [BUFFER_BYTES] of be */
} loader;

static ls_status open_model(const loader *l, ls_model **out, ls_took *took, ls_err *err) {
    const double t0 = ls_now_us();
    const ls_model_options o = {.no_tokenizer = true, .load = l->o.load};
    LS_TRY(ls_model_open(l->path, o, out, err));
    took->wall_us = took->device_us = ls_now_us() - t0;
    return LS_OK;
}

static ls_status make_engine(const loader *l, const ls_model *m, ls_took *took, ls_err *err) {
    ls_engine *e;
    ls_engine_options o = l->o;
    if (o.context > m->config.n_pos)
        o.context = m->config.n_pos;
    const double t0 = ls_now_us();
    LS_TRY(ls_engine_create(m, l->be, o, &e, err));
    took->wall_us = took->device_us = ls_now_us() - t0;
    ls_engine_destroy(e);
    return LS_OK;
}

static ls_status read_tensors(const loader *l, const ls_model *m, ls_took *took, ls_err *err) {
    const size_t n = ls_checkpoint_count(m->checkpoint);
    ls_span *span = malloc((n ? n : 1) * sizeof *span);
    if (!span)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const ls_st_tensor *t = ls_checkpoint_at(m->checkpoint, i);
        span[i] = (ls_span){t->data, t->bytes};
    }
    const ls_status s = ls_bench_read(l->reader, span, (int32_t)n, took, err);
    free(span);
    return s;
}

static ls_status upload(const loader *l, ls_took *took, ls_err *err) {
    ls_backend *be = l->be;
    LS_TRY(be->sync(be, err));
    const double t0 = ls_now_us();
    for (uint64_t done = 0; done < l->bytes; done += BUFFER_BYTES) {
        const uint64_t left = l->bytes - done;
        LS_TRY(be->upload(be, l->device, l->buffer,
                          left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES, err));
    }
    LS_TRY(be->sync(be, err));
    took->wall_us = took->device_us = ls_now_us() - t0;
    return LS_OK;
}

/* For ls_series.run. */
static ls_status run_part(void *self, int32_t part, ls_took *took, ls_err *err) {
    const loader *l = self;
    ls_model *m;
    if (part == UPLOAD)
        return upload(l, took, err);
    LS_TRY(open_model(l, &m, took, err));
    const ls_status s = part == READ     ? read_tensors(l, m, took, err)
                        : part == ENGINE ? make_engine(l, m, took, err)
                                         : LS_OK;
    ls_model_close(m);
    return s;
}

static ls_status load_first(loader *l, double *us, ls_err *err) {
    ls_model *m;
    ls_took opened, made;
    LS_TRY(open_model(l, &m, &opened, err));
    l->bytes = m->weights->bytes;
    l->n_params = m->weights->n_params;
    const ls_status s = make_engine(l, m, &made, err);
    ls_model_close(m);
    *us = opened.wall_us + made.wall_us;
    return s;
}

static ls_status take_buffer(loader *l, ls_err *err) {
    l->buffer = malloc(BUFFER_BYTES);
    if (!l->buffer)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    memset(l->buffer, 1, BUFFER_BYTES);
    return l->be->alloc(l->be, BUFFER_BYTES, &l->device, err);
}

/* Does this part move the weights' bytes? */
static bool moves(const loader *l, int32_t part) {
    return part == READ || part == UPLOAD || (part == ENGINE && l->device);
}

static void report(ls_bench_job *j, const loader *l, const ls_series *s, int32_t n) {
    if (!j->a.json)
        printf("%-8s %10s %22s %9s %10s\n", "part", "ms", "quartiles", "GB/s", "over read");
    for (int32_t i = 0; i < n; i++) {
        const ls_spread w = s[i].wall;
        const double to_read = w.median / s[READ].wall.median;
        const double rate = ls_gb_per_s((double)l->bytes, w.median);
        json_t *r = ls_bench_series(&s[i]);
        json_object_set_new(r, "part", json_string(names[i]));
        json_object_set_new(r, "to_read", json_real(to_read));
        if (moves(l, i))
            json_object_set_new(r, "gb_per_s", json_real(rate));
        json_array_append_new(j->results, r);
        if (j->a.json)
            continue;
        printf("%-8s %10.3f %10.3f -%10.3f ", names[i], w.median / 1e3, w.low / 1e3, w.high / 1e3);
        if (moves(l, i))
            printf("%9.2f %10.3f\n", rate, to_read);
        else
            printf("%9s %10.3f\n", "-", to_read);
    }
}

static ls_status measure(ls_bench_job *j, loader *l, ls_err *err) {
    double first_us;
    struct rusage used;
    LS_TRY(ls_device_open(&j->a.model.device, &j->setup.be, err));
    l->be = j->setup.be;
    LS_TRY(ls_cpu_create(j->a.model.device.cpu, &l->reader, err));
    LS_TRY(load_first(l, &first_us, err));
    getrusage(RUSAGE_SELF, &used);
    const int64_t peak = (int64_t)used.ru_maxrss * 1024;
    if (l->be->record) /* no CPU: weights are copied */
        LS_TRY(take_buffer(l, err));
    ls_series s[N_PARTS];
    const int32_t n = l->device ? N_PARTS : UPLOAD;
    for (int32_t i = 0; i < n; i++)
        s[i] = (ls_series){.run = run_part, .self = l, .arg = i};
    const ls_bench_how how = ls_bench_how_of(j);
    LS_TRY(ls_bench_interleave(s, n, &how, err));
    ls_term_clear(&j->term);
    if (!j->a.json) {
        printf("%s: %.1f M parameters, %.1f MB of weights; %s, profile %s; %d interleaved repeats\n"
               "the first load: %.3f ms",
               l->path, (double)l->n_params / 1e6, (double)l->bytes / 1e6, l->be->device,
               l->be->profile, j->a.repeats, first_us / 1e3);
        if (moves(l, ENGINE))
            printf(", %.2f GB/s", ls_gb_per_s((double)l->bytes, first_us));
        printf(
            "; memory then at most %.1f MB, %.2f of the weights, pages of mapped files among it\n",
            (double)peak / 1e6, (double)peak / (double)l->bytes);
    }
    report(j, l, s, n);
    return ls_bench_write(j, "bench load",
                          json_pack("{s:{s:s, s:I}, s:I, s:f, s:I}", "model", "name", l->path,
                                    "n_params", (json_int_t)l->n_params, "weight_bytes",
                                    (json_int_t)l->bytes, "first_us", first_us, "peak_bytes",
                                    (json_int_t)peak),
                          err);
}

ls_status ls_bench_load(ls_bench_job *j, ls_err *err) {
    const ls_model_args *a = &j->a.model;
    if (j->a.shape)
        return ls_fail(err, LS_ERR_INPUT,
                       "load opens its model again and again, and --shape leaves none to open: "
                       "write one with lockstep synth, and name it by --target");
    LS_TRY(ls_places_find(&j->setup.places, err));
    if (!a->target)
        LS_TRY(ls_places_need_pair(&j->setup.places, err));
    loader l = {.path = a->target ? a->target : j->setup.places.target,
                .o = {.max_rows = 1,
                      .context = CONTEXT,
                      .block_rows = a->block_rows,
                      .kv_dtype = a->kv == 1 ? LS_BF16 : LS_F32,
                      .load = ls_term_load(&j->term)}};
    const ls_status s = measure(j, &l, err);
    ls_term_clear(&j->term);
    if (l.device)
        l.be->free(l.be, l.device);
    free(l.buffer);
    ls_backend_destroy(l.reader);
    return s;
}
