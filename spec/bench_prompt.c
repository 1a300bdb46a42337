/* bench_prompt.c - `lockstep bench prompt`: reading a prompt in passes of many rows, by rows a
 * pass, and by the conventional engine where --against names it. */
#include <stdio.h>
#include <stdlib.h>

#include "bench_cmd.h"
#include "clock.h"

typedef struct reader { /* of one prompt by one engine */
    ls_engine *e;
    int32_t seq, n_token;
    const int32_t *token;
} reader;

/* arg: rows a pass */
static ls_status read_prompt(void *self, int32_t n_rows, ls_took *took, ls_err *err) {
    const reader *r = self;
    ls_backend *be = ls_engine_backend(r->e);
    ls_row row[LS_PASS_ROWS_MAX];
    LS_TRY(be->sync(be, err));
    const double t0 = ls_now_us();
    be->stamp(be, 0);
    for (int32_t at = 0; at < r->n_token; at += n_rows) {
        const int32_t n = r->n_token - at < n_rows ? r->n_token - at : n_rows;
        for (int32_t i = 0; i < n; i++)
            row[i] = ls_row_chain(r->seq, r->token[at + i], at + i, false);
        LS_TRY(ls_pass(r->e, row, n, err));
    }
    be->stamp(be, 1);
    LS_TRY(be->sync(be, err));
    took->wall_us = ls_now_us() - t0;
    took->device_us = be->between(be, 0, 1);
    return ls_kv_rewind(ls_engine_kv(r->e), r->seq, 0, err);
}

static const char *profile_of(const ls_series *s) {
    return ls_engine_backend(((const reader *)s->self)->e)->profile;
}

static void report(ls_bench_job *j, const ls_series *s, int32_t n_series, int32_t n_token) {
    if (!j->a.json)
        printf("a prompt of %d tokens, %d interleaved repeats\n%-8s %11s %10s %22s %12s %10s\n",
               n_token, j->a.repeats, "profile", "rows a pass", "ms", "quartiles", "tokens/s",
               "to first");
    for (int32_t i = 0; i < n_series; i++) {
        const ls_spread w = s[i].wall;
        if (!j->a.json)
            printf("%-8s %11d %10.3f %10.3f -%10.3f %12.1f %10.3f\n", profile_of(&s[i]), s[i].arg,
                   w.median / 1e3, w.low / 1e3, w.high / 1e3, n_token / w.median * 1e6,
                   w.median / s[0].wall.median);
        json_t *r = ls_bench_series(&s[i]);
        json_object_set_new(r, "profile", json_string(profile_of(&s[i])));
        json_object_set_new(r, "rows", json_integer(s[i].arg));
        json_object_set_new(r, "tokens_per_s", json_real(n_token / w.median * 1e6));
        json_array_append_new(j->results, r);
    }
}

ls_status ls_bench_prompt(ls_bench_job *j, ls_err *err) {
    int32_t rows[LS_BENCH_LIST], n_rows, most = 0, n = 0;
    LS_TRY(ls_bench_numbers(&j->a.chunk_rows, "rows-a-pass", "64,256,1024", 1, LS_PASS_ROWS_MAX,
                            rows, &n_rows, err));
    for (int32_t i = 0; i < n_rows; i++)
        most = rows[i] > most ? rows[i] : most;
    const int32_t n_token = j->a.tokens;
    const ls_bench_need need = {.context = n_token, .max_rows = most, .against = true};
    LS_TRY(ls_bench_open(j, &need, err));
    ls_bench_heading(j);
    int32_t *token = malloc((size_t)n_token * sizeof *token);
    if (!token)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    ls_bench_tokens(token, n_token, j->setup.n_vocab, 1);
    reader r[2] = {{j->setup.engine, -1, n_token, token}, {j->other, -1, n_token, token}};
    ls_series s[2 * LS_BENCH_LIST];
    ls_status status = LS_OK;
    for (int32_t k = 0; status == LS_OK && k < (j->other ? 2 : 1); k++) {
        status = ls_kv_open(ls_engine_kv(r[k].e), &r[k].seq, err);
        for (int32_t i = 0; i < n_rows; i++)
            s[n++] = (ls_series){.run = read_prompt, .self = &r[k], .arg = rows[i]};
    }
    const ls_bench_how how = ls_bench_how_of(j);
    if (status == LS_OK)
        status = ls_bench_interleave(s, n, &how, err);
    ls_term_clear(&j->term);
    if (status == LS_OK)
        report(j, s, n, n_token);
    free(token);
    return status == LS_OK
               ? ls_bench_write(j, "bench prompt", json_pack("{s:i}", "n_token", n_token), err)
               : status;
}
