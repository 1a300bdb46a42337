#include "rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_backend *rig_backend(ls_cpu_options cpu) {
    return rig_backend_on(rig_device_chosen(), cpu);
}

void ls_rig_open(ls_rig *r, const char *dir, ls_cpu_options cpu, ls_engine_options options) {
    ls_rig_open_on(r, rig_device_chosen(), dir, cpu, options);
}

void ls_rig_open_on(ls_rig *r, rig_device where, const char *dir, ls_cpu_options cpu,
                    ls_engine_options options) {
    ls_err err;
    memset(r, 0, sizeof *r);
    options.poison = 1;
    options.eager = options.eager || rig_eager();
    r->be = rig_backend_on(where, cpu);
    OK(ls_model_open(dir, (ls_model_options){.partial_bytes = true}, &r->model, &err), &err);
    OK(ls_engine_create(r->model, r->be, options, &r->engine, &err), &err);
}

void ls_rig_close(ls_rig *r) {
    ls_engine_destroy(r->engine);
    ls_model_close(r->model);
    ls_backend_destroy(r->be);
    memset(r, 0, sizeof *r);
}

char *ls_case_model(const char *name) {
    const size_t n = strlen(LS_TEST_DIR) + strlen(name) + 32;
    char *path = malloc(n);
    assert_non_null(path);
    snprintf(path, n, "%s/cases/models/%s", LS_TEST_DIR, name);
    return path;
}

char *ls_read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    text[size] = 0;
    fclose(f);
    if (n)
        *n = (size_t)size;
    return text;
}

size_t ls_count_bits(const float *a, const float *b, size_t n) {
    size_t differ = 0;
    for (size_t i = 0; i < n; i++)
        differ += memcmp(a + i, b + i, sizeof *a) != 0;
    return differ;
}

void ls_assert_bits(const float *a, const float *b, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        uint32_t x, y;
        memcpy(&x, a + i, 4);
        memcpy(&y, b + i, 4);
        if (x != y)
            fail_msg("%s: element %zu: 0x%08" PRIx32 " (%g) against 0x%08" PRIx32
                     " (%g); %zu of %zu differ",
                     what, i, x, (double)a[i], y, (double)b[i], ls_count_bits(a, b, n), n);
    }
}

void ls_assert_plain(const ls_gen *g, const ls_plain *plain, ls_engine *engine, const char *what) {
    ls_err err;
    ls_check_result r = {0};
    OK(ls_check_run(g, plain, engine, &r, &err), &err);
    if (!r.same) {
        ls_fork_print(stderr, &r.fork);
        fail_msg("%s: forked at position %d", what, r.fork.position);
    }
    assert_int_equal(r.n_position, plain->n_token);
    assert_true(r.n_differ == 0 && r.n_cache_differ == 0 && r.n_logit > 0 && r.n_cache > 0);
    ls_check_free(&r);
}

void ls_greedy_run(ls_rig *r, const int32_t *prompt, int32_t n_prompt, int32_t n_new,
                   ls_greedy *out) {
    ls_err err;
    int32_t seq;
    const int32_t v = ls_engine_opts(r->engine)->n_vocab;
    *out = (ls_greedy){.n_prompt = n_prompt, .n_new = n_new, .n_vocab = v};
    out->token = malloc((size_t)(n_prompt + n_new) * sizeof *out->token);
    out->logits = malloc((size_t)n_new * (size_t)v * sizeof *out->logits);
    assert_true(out->token && out->logits);
    memcpy(out->token, prompt, (size_t)n_prompt * sizeof *prompt);
    OK(ls_kv_open(ls_engine_kv(r->engine), &seq, &err), &err);
    OK(ls_prefill(r->engine, seq, prompt, n_prompt - 1, 0, &err), &err);
    for (int32_t i = 0; i < n_new; i++) {
        const int32_t pos = n_prompt - 1 + i;
        const ls_row row = ls_row_chain(seq, out->token[pos], pos, true);
        float *logits = out->logits + (size_t)i * (size_t)v;
        OK(ls_pass(r->engine, &row, 1, &err), &err);
        OK(ls_pass_logits(r->engine, 0, logits, &err), &err);
        int32_t best = 0;
        for (int32_t t = 1; t < v; t++)
            if (logits[t] > logits[best])
                best = t;
        out->token[pos + 1] = best;
    }
    ls_kv_close(ls_engine_kv(r->engine), seq);
}

void ls_greedy_free(ls_greedy *g) {
    free(g->token);
    free(g->logits);
}
