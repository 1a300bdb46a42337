/* bench_price.c - `lockstep bench price`: what exactness costs, and what going without it costs.
 * Time       passes of 1 to N rows of the profile and of the conventional engine (--against), in
 *            turns.
 * Flips      each engine decodes prompts plainly, then reads its own text again in verify passes of
 *            g + 1 rows, as if a drafter had proposed exactly that text. A row whose greedy token
 *            is not the one plain decode took has flipped: rate over all rows, and the first place
 *            of each prompt (from there on the texts would part). Every flip of a drafted place is
 *            a correct draft refused: the acceptance lost. The exact engine's own rate is the
 *            control. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cmd.h"

/* ---- time by width --------------------------------------------------------------------------- */

static ls_status widths(ls_bench_job *j, int32_t length, json_t *out, ls_err *err) {
    ls_pass_rig rig[2];
    ls_series s[2 * LS_BENCH_ROWS];
    int32_t n = 0;
    ls_status status = LS_OK;
    memset(rig, 0, sizeof rig);
    rig[0].seq = rig[1].seq = -1;
    for (int32_t k = 0; status == LS_OK && k < 2; k++)
        status =
            ls_pass_rig_open(&rig[k], k ? j->other : j->setup.engine, length, j->a.rows, 1, err);
    for (int32_t m = 1; m <= j->a.rows; m++)
        for (int32_t k = 0; k < 2; k++)
            s[n++] = (ls_series){.run = ls_pass_rig_pass, .self = &rig[k], .arg = m};
    const ls_bench_how how = ls_bench_how_of(j);
    if (status == LS_OK)
        status = ls_bench_interleave(s, n, &how, err);
    for (int32_t k = 0; k < 2; k++)
        ls_pass_rig_close(&rig[k]);
    ls_term_clear(&j->term);
    if (status != LS_OK)
        return status;
    if (!j->a.json)
        printf("a pass of M rows at length %d, %d interleaved repeats; wall ms (device ms)\n"
               "%5s %21s %21s %9s %9s\n",
               length, j->a.repeats, "rows", j->setup.be->profile, j->other_be->profile, "ratio",
               "device");
    for (int32_t m = 1; m <= j->a.rows; m++) {
        const ls_series *a = &s[2 * (m - 1)], *b = a + 1;
        if (!j->a.json)
            printf("%5d %10.3f (%8.3f) %10.3f (%8.3f) %9.3f %9.3f\n", m, a->wall.median / 1e3,
                   a->device.median / 1e3, b->wall.median / 1e3, b->device.median / 1e3,
                   a->wall.median / b->wall.median, a->device.median / b->device.median);
        json_array_append_new(out, json_pack("{s:i, s:o, s:o, s:f, s:f}", "rows", m, "profile",
                                             ls_bench_series(a), "against", ls_bench_series(b),
                                             "ratio", a->wall.median / b->wall.median,
                                             "ratio_device", a->device.median / b->device.median));
    }
    return LS_OK;
}

/* ---- flips ----------------------------------------------------------------------------------- */

#define PROMPTS_MAX 1024

typedef struct flips {
    int64_t n_row, n_flip;         /* rows of verify passes */
    int64_t n_draft, n_draft_flip; /* those that judge a draft, not the bonus row */
    int32_t n_prompt, n_forked;    /* prompts, and those with a flip */
    int32_t first[PROMPTS_MAX];    /* of the forked: new tokens before it */
} flips;

/* Reads prompt and text [n] again, from the last prompt token on in passes of m rows. */
static ls_status verify_text(ls_engine *e, int32_t seq, const int32_t *text, int32_t n_prompt,
                             int32_t n, int32_t m, flips *f, ls_err *err) {
    ls_row row[LS_BENCH_ROWS];
    ls_warp warp[LS_BENCH_ROWS];
    ls_draw draw[LS_BENCH_ROWS];
    ls_row_stats stats[LS_BENCH_ROWS];
    int32_t first = -1;
    memset(draw, 0, sizeof draw);
    LS_TRY(ls_prefill(e, seq, text, n_prompt - 1, 0, err));
    for (int32_t at = n_prompt - 1; at + 1 < n; at += m) {
        const int32_t k = n - 1 - at < m ? n - 1 - at : m;
        for (int32_t i = 0; i < k; i++) {
            row[i] = ls_row_chain(seq, text[at + i], at + i, true);
            warp[i] = (ls_warp){.top_p = 1};
        }
        LS_TRY(ls_pass_drawn(e, row, k, &(ls_draws){.warp = warp, .draw = draw}, err));
        LS_TRY(ls_pass_result(e, NULL, 0, NULL, stats, k, err));
        for (int32_t i = 0; i < k; i++) {
            const bool flip = stats[i].token != text[at + i + 1];
            f->n_row++, f->n_flip += flip;
            if (i + 1 < k)
                f->n_draft++, f->n_draft_flip += flip;
            if (flip && first < 0)
                first = at + i + 1 - n_prompt;
        }
    }
    f->n_prompt++;
    if (first >= 0)
        f->first[f->n_forked++] = first;
    return LS_OK;
}

static ls_status one_prompt(ls_bench_job *j, ls_engine *e, int32_t *text, int32_t n_prompt,
                            int32_t m, flips *f, ls_err *err) {
    const ls_gen gen = {.target = e,
                        .prompt = text,
                        .n_prompt = n_prompt,
                        .max_new = j->a.tokens,
                        .warp = {.top_p = 1},
                        .seed = 1,
                        .ignore_eos = true};
    ls_transcript t = {0};
    int32_t seq = -1;
    ls_status status = ls_generate(&gen, &t, err);
    if (status == LS_OK) {
        memcpy(text + n_prompt, t.token, (size_t)t.n_token * sizeof *text);
        status = ls_kv_open(ls_engine_kv(e), &seq, err);
    }
    if (status == LS_OK)
        status = verify_text(e, seq, text, n_prompt, n_prompt + t.n_token, m, f, err);
    if (seq >= 0)
        ls_kv_close(ls_engine_kv(e), seq);
    ls_transcript_free(&t);
    return status;
}

static int by_place(const void *x, const void *y) {
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

static void report(const ls_bench_job *j, const ls_backend *be, flips *f, json_t *out) {
    qsort(f->first, (size_t)f->n_forked, sizeof *f->first, by_place);
    if (!j->a.json) {
        printf("%-8s %lld of %lld greedy tokens flipped (%.5f); %d of %d prompts part", be->profile,
               (long long)f->n_flip, (long long)f->n_row, (double)f->n_flip / (double)f->n_row,
               f->n_forked, f->n_prompt);
        if (f->n_forked)
            printf(", at new token %d first, %d in the middle", f->first[0],
                   f->first[f->n_forked / 2]);
        printf("; acceptance lost %.5f\n",
               f->n_draft ? (double)f->n_draft_flip / (double)f->n_draft : 0);
    }
    json_t *first = json_array();
    for (int32_t i = 0; i < f->n_forked; i++)
        json_array_append_new(first, json_integer(f->first[i]));
    json_array_append_new(out, json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:o}", "profile",
                                         be->profile, "n_row", (json_int_t)f->n_row, "n_flip",
                                         (json_int_t)f->n_flip, "n_draft", (json_int_t)f->n_draft,
                                         "n_draft_flip", (json_int_t)f->n_draft_flip, "n_prompt",
                                         f->n_prompt, "n_forked", f->n_forked, "first", first));
}

static ls_status count_flips(ls_bench_job *j, int32_t length, int32_t g, json_t *out, ls_err *err) {
    flips *f = calloc(2, sizeof *f);
    int32_t *text = malloc(((size_t)length + (size_t)j->a.tokens) * sizeof *text);
    ls_status status = f && text ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; status == LS_OK && i < j->a.prompts; i++) {
        for (int32_t k = 0; status == LS_OK && k < 2; k++) {
            ls_bench_tokens(text, length, j->setup.n_vocab, (uint64_t)i + 1);
            status = one_prompt(j, k ? j->other : j->setup.engine, text, length, g + 1, &f[k], err);
        }
        if (status == LS_OK && ls_term_stopped(NULL))
            status = ls_fail(err, LS_ERR_STOPPED, "stopped");
        ls_term_progress(&j->term, i + 1, j->a.prompts, "prompts");
    }
    ls_term_clear(&j->term);
    if (status == LS_OK) {
        if (!j->a.json)
            printf("%d prompts of %d tokens, %d new ones each, read again in passes of %d rows\n",
                   j->a.prompts, length, j->a.tokens, g + 1);
        report(j, j->setup.be, &f[0], out);
        report(j, j->other_be, &f[1], out);
    }
    free(f);
    free(text);
    return status;
}

ls_status ls_bench_price(ls_bench_job *j, ls_err *err) {
    int32_t length[LS_BENCH_LIST], n_length, g[LS_BENCH_LIST], n_g;
    LS_TRY(ls_bench_numbers(&j->a.length, "length", "256", 1, 1 << 20, length, &n_length, err));
    LS_TRY(ls_bench_numbers(&j->a.draft_rows, "drafts", "4", 1, LS_BENCH_ROWS - 1, g, &n_g, err));
    if (n_length != 1 || n_g != 1)
        return ls_fail(err, LS_ERR_INPUT, "price takes one --length and one --drafts");
    if (j->a.prompts > PROMPTS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "--prompts: at most %d", PROMPTS_MAX);
    if (!j->a.against)
        j->a.against = 1 + LS_PROFILE_CUBLAS;
    const ls_bench_need need = {.context = length[0] + j->a.tokens + LS_BENCH_ROWS,
                                .against = true};
    LS_TRY(ls_bench_open(j, &need, err));
    ls_bench_heading(j);
    json_t *time = json_array(), *flip = json_array();
    ls_status status = widths(j, length[0], time, err);
    if (status == LS_OK)
        status = count_flips(j, length[0], g[0], flip, err);
    json_array_append_new(j->results,
                          json_pack("{s:i, s:o, s:i, s:i, s:i, s:o}", "length", length[0], "widths",
                                    time, "drafts", g[0], "n_prompt", j->a.prompts, "max_new",
                                    j->a.tokens, "flips", flip));
    return status == LS_OK ? ls_bench_write(j, "bench price", NULL, err) : status;
}
