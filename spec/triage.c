#include "triage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One row's part of one operation's output. */
typedef struct op_out {
    int32_t layer, dim;
    char op[24];
    float *data;
} op_out;

typedef struct recorder {
    int32_t row; /* of the pass; operations on fewer rows than that record nothing */
    op_out *out;
    int32_t n, cap;
    bool failed;
} recorder;

static void record_op(void *self, int32_t layer, const char *op, const float *data, int32_t n_rows,
                      int32_t dim) {
    recorder *r = self;
    if (r->failed || r->row >= n_rows)
        return;
    if (r->n == r->cap) {
        const int32_t cap = r->cap ? 2 * r->cap : 64;
        op_out *grown = realloc(r->out, (size_t)cap * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return;
        }
        r->out = grown;
        r->cap = cap;
    }
    op_out *o = &r->out[r->n];
    *o = (op_out){.layer = layer, .dim = dim, .data = malloc((size_t)dim * sizeof(float))};
    if (!o->data) {
        r->failed = true;
        return;
    }
    strncpy(o->op, op, sizeof o->op - 1);
    memcpy(o->data, data + (size_t)r->row * (size_t)dim, (size_t)dim * sizeof(float));
    r->n++;
}

static void recorder_free(recorder *r) {
    for (int32_t i = 0; i < r->n; i++)
        free(r->out[i].data);
    free(r->out);
}

/* Repeats the speculative run; the trace is on for the passes of one round. */
typedef struct rerun {
    const ls_gen *g;
    int32_t round, at;
    const ls_trace *trace;
} rerun;

static bool rerun_stop(void *self) {
    rerun *r = self;
    const bool past = r->at > r->round;
    ls_engine_trace(r->g->target, r->at == r->round ? r->trace : NULL);
    r->at++;
    return past;
}

static ls_status trace_spec(const ls_gen *gen, int32_t round, const ls_trace *trace, ls_err *err) {
    ls_gen again = *gen;
    rerun r = {.g = gen, .round = round, .trace = trace};
    ls_transcript t = {0};
    again.hooks = (ls_gen_hooks){.self = &r, .stop = rerun_stop};
    ls_status s = ls_generate(&again, &t, err);
    ls_engine_trace(gen->target, NULL);
    ls_transcript_free(&t);
    return s == LS_ERR_STOPPED ? LS_OK : s;
}

int64_t ls_ulp_distance(uint32_t a, uint32_t b) {
    const int64_t x = a >> 31 ? -1 - (int64_t)(a & 0x7FFFFFFF) : (int64_t)a;
    const int64_t y = b >> 31 ? -1 - (int64_t)(b & 0x7FFFFFFF) : (int64_t)b;
    return x > y ? x - y : y - x;
}

static void compare(const recorder *plain, const recorder *spec, ls_fork *fork) {
    for (int32_t i = 0; i < plain->n && i < spec->n; i++) {
        const op_out *p = &plain->out[i], *s = &spec->out[i];
        if (p->dim != s->dim || strcmp(p->op, s->op) != 0)
            return;
        for (int32_t k = 0; k < p->dim; k++) {
            memcpy(&fork->bits_plain, &p->data[k], 4);
            memcpy(&fork->bits_spec, &s->data[k], 4);
            if (fork->bits_plain == fork->bits_spec)
                continue;
            fork->layer = p->layer;
            memcpy(fork->op, p->op, sizeof fork->op);
            fork->element = k;
            fork->ulp = ls_ulp_distance(fork->bits_plain, fork->bits_spec);
            return;
        }
    }
    fork->bits_plain = fork->bits_spec = 0;
}

ls_status ls_triage(const ls_gen *gen, const ls_plain *plain, ls_engine *plain_engine,
                    ls_fork *fork, ls_err *err) {
    recorder a = {.row = 0}, b = {.row = fork->row};
    const ls_trace ta = {record_op, &a}, tb = {record_op, &b};
    ls_status s = ls_plain_trace(gen, plain_engine, plain, fork->position, &ta, err);
    if (s == LS_OK)
        s = trace_spec(gen, fork->round, &tb, err);
    if (s == LS_OK && (a.failed || b.failed))
        s = ls_fail(err, LS_ERR_MEMORY, "triage: out of memory");
    if (s == LS_OK)
        compare(&a, &b, fork);
    recorder_free(&a);
    recorder_free(&b);
    return s;
}
