#include "families_rig.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fam_names[FAM_COUNT] = {
    "llama3", "llama_linear",   "tinyllama",    "smollm2",    "mistral",       "qwen2",
    "qwen3",  "mistral_window", "qwen2_window", "llama_yarn", "llama_dynamic", "gemma3"};

void fam_load(const char *name, fam_case *out) {
    char path[600];
    memset(out, 0, sizeof *out);
    snprintf(out->dir, sizeof out->dir, "%s/fixtures/families/%s", LS_TEST_DIR, name);
    snprintf(path, sizeof path, "%s/expected.json", out->dir);
    json_t *e = json_load_file(path, 0, NULL);
    if (!e)
        fail_msg("cannot read %s", path);
    const json_t *prompt = json_object_get(e, "prompt"), *greedy = json_object_get(e, "greedy");
    const json_t *rows = json_object_get(e, "logits");
    out->n_prompt = (int32_t)json_array_size(prompt);
    out->n_new = (int32_t)json_array_size(greedy);
    out->n_vocab = (int32_t)json_array_size(json_array_get(rows, 0));
    out->bound = json_number_value(json_object_get(e, "bound"));
    const size_t n = (size_t)(out->n_prompt + out->n_new), v = (size_t)out->n_vocab;
    assert_true(out->n_prompt > 1 && out->n_new > 1 && v > 1 && out->bound > 0);
    assert_int_equal(json_array_size(rows), n - 1);
    out->token = malloc(n * sizeof *out->token);
    out->logits = malloc((n - 1) * v * sizeof *out->logits);
    assert_true(out->token && out->logits);
    for (size_t i = 0; i < n; i++) {
        const size_t p = (size_t)out->n_prompt;
        const json_t *id = i < p ? json_array_get(prompt, i) : json_array_get(greedy, i - p);
        assert_true(json_is_integer(id));
        out->token[i] = (int32_t)json_integer_value(id);
    }
    for (size_t p = 0; p + 1 < n; p++)
        for (size_t t = 0; t < v; t++) {
            const json_t *x = json_array_get(json_array_get(rows, p), t);
            assert_true(json_is_number(x));
            out->logits[p * v + t] = json_number_value(x);
        }
    json_decref(e);
}

void fam_free(fam_case *c) {
    free(c->token);
    free(c->logits);
}

void fam_open(ls_rig *r, rig_device where, const fam_case *c, ls_cpu_options cpu,
              ls_engine_options options, void (*change)(ls_model *)) {
    ls_err err;
    memset(r, 0, sizeof *r);
    options.poison = 1;
    r->be = rig_backend_on(where, cpu);
    OK(ls_model_open(c->dir, (ls_model_options){.partial_bytes = true}, &r->model, &err), &err);
    if (change)
        change(r->model);
    OK(ls_engine_create(r->model, r->be, options, &r->engine, &err), &err);
}
