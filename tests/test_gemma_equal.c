/* Gemma's folders in their other forms: the text model beside one for images, under both names its
 * tensors have had; layers and rotations listed instead of named. The same bits as the plain
 * folder; and what has no place in a folder is still refused. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef OK
#include "families_rig.h"

#define N_NEW 8

/* text with every `from` replaced; free it. */
static char *replaced(const char *text, const char *from, const char *to) {
    const size_t nf = strlen(from), nt = strlen(to);
    char *out = malloc(strlen(text) * (nt > nf ? nt : nf) / nf + nt + 1), *p = out;
    assert_non_null(out);
    for (const char *at; (at = strstr(text, from)); text = at + nf) {
        memcpy(p, text, (size_t)(at - text));
        p += at - text;
        memcpy(p, to, nt);
        p += nt;
    }
    strcpy(p, text);
    return out;
}

/* The fixture's weights, tensors named model.* as body*, and with `more` a tensor of that name. */
static void put_weights(const char *dir, const char *body, const char *more) {
    char *path = ls_test_path("fixtures/families/gemma3/model.safetensors"), to[96],
         extra[256] = "";
    size_t n = 0, h = 0;
    char *file = ls_test_read(path, &n);
    for (int i = 7; i >= 0; i--)
        h = h << 8 | (unsigned char)file[i];
    const size_t n_data = n - 8 - h;
    char *text = strndup(file + 8, h);
    assert_non_null(text);
    text[strlen(text) - strlen(strrchr(text, '}'))] = 0; /* the last brace and padding */
    snprintf(to, sizeof to, "\"%s", body);
    char *named = replaced(text, "\"model.", to);
    if (more)
        snprintf(extra, sizeof extra,
                 ",\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}", more,
                 n_data, n_data + 8);
    const size_t full = (strlen(named) + strlen(extra) + 1 + 7) / 8 * 8;
    char *out = calloc(1, 8 + full + n_data + 8 + 1);
    assert_non_null(out);
    for (int i = 0; i < 8; i++)
        out[i] = (char)(full >> 8 * i);
    memset(out + 8, ' ', full);
    const int used = sprintf(out + 8, "%s%s}", named, extra);
    out[8 + used] = ' ';
    memcpy(out + 8 + full, file + 8 + h, n_data);
    ls_test_write(dir, "model.safetensors", out, 8 + full + n_data + (more ? 8 : 0));
    free(out), free(named), free(text), free(file), free(path);
}

/* The fixture's config with one text in it replaced; nested: inside a text_config. */
static void put_config(const char *dir, bool nested, const char *from, const char *to) {
    char *path = ls_test_path("fixtures/families/gemma3/config.json");
    size_t n = 0;
    char *file = ls_test_read(path, &n), *text = replaced(file, from, to);
    assert_true(strcmp(from, to) == 0 || strcmp(file, text) != 0);
    if (nested) {
        char *inner = replaced(text, "\"architectures\": [\n  \"Gemma3ForCausalLM\"\n ],", "");
        char *outer = malloc(strlen(inner) + 200);
        assert_non_null(outer);
        sprintf(outer,
                "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\","
                "\"vision_config\":{},\"text_config\":%s}",
                inner);
        free(text), free(inner);
        text = outer;
    }
    ls_test_write(dir, "config.json", text, strlen(text));
    free(text), free(file), free(path);
}

static ls_status open_dir(const char *dir, ls_model **m, ls_err *err) {
    return ls_model_open(dir, (ls_model_options){.no_tokenizer = true}, m, err);
}

static void decode(const char *dir, const fam_case *c, ls_greedy *out) {
    ls_rig r = {0};
    ls_err err;
    r.be = rig_backend_on(RIG_CPU, (ls_cpu_options){1, LS_SIMD_AUTO});
    OK(open_dir(dir, &r.model, &err), &err);
    OK(ls_engine_create(r.model, r.be, (ls_engine_options){0}, &r.engine, &err), &err);
    ls_greedy_run(&r, c->token, c->n_prompt, N_NEW, out);
    ls_rig_close(&r);
}

static void test_forms(void **state) {
    (void)state;
    static const struct {
        bool nested;
        const char *body, *more, *from, *to;
    } all[] = {
        {true, "language_model.model.", NULL, "", ""},
        {true, "language_model.model.", "vision_tower.vision_model.x", "", ""},
        {true, "language_model.model.", "multi_modal_projector.x", "", ""},
        {true, "model.language_model.", "model.vision_tower.x", "", ""},
        {true, "model.language_model.", "model.multi_modal_projector.x", "", ""},
        {false, "model.", NULL, "\"sliding_window_pattern\": 2",
         "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]"},
        {false, "model.", NULL, "\"rope_local_base_freq\": 10000.0",
         "\"rope_parameters\":{\"full_attention\":{\"type\":\"linear\",\"factor\":8},"
         "\"sliding_attention\":{\"rope_theta\":10000}}"},
    };
    fam_case c;
    ls_greedy want;
    fam_load("gemma3", &c);
    decode(c.dir, &c, &want);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *dir = ls_test_dir_make();
        ls_greedy got;
        put_weights(dir, all[i].body, all[i].more);
        put_config(dir, all[i].nested, all[i].from[0] ? all[i].from : "\"model_type\"",
                   all[i].from[0] ? all[i].to : "\"model_type\"");
        decode(dir, &c, &got);
        ls_assert_bits(got.logits, want.logits, N_NEW * (size_t)c.n_vocab, all[i].body);
        ls_greedy_free(&got);
        ls_test_dir_remove(dir);
    }
    ls_greedy_free(&want);
    fam_free(&c);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        bool nested;
        const char *body, *more, *says;
    } all[] = {
        {false, "model.", "vision_tower.x", "vision_tower.x"},
        {true, "language_model.model.", "audio_tower.x", "audio_tower.x"},
        {true, "model.", NULL, "embed_tokens.weight: is missing"},
        {false, "language_model.model.", NULL, "model.embed_tokens.weight: is missing"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *dir = ls_test_dir_make();
        ls_model *m = NULL;
        ls_err err = {0};
        put_weights(dir, all[i].body, all[i].more);
        put_config(dir, all[i].nested, "\"model_type\"", "\"model_type\"");
        if (open_dir(dir, &m, &err) != LS_ERR_INPUT)
            fail_msg("case %zu was accepted", i);
        ls_assert_message(&err, dir, all[i].says, NULL);
        ls_test_dir_remove(dir);
    }
}

/* Norms come with the one added, in F32, rounded once. */
static void test_norms(void **state) {
    (void)state;
    fam_case c;
    ls_model *m = NULL;
    ls_err err = {0};
    fam_load("gemma3", &c);
    OK(open_dir(c.dir, &m, &err), &err);
    const ls_st_tensor *t = ls_checkpoint_find(m->checkpoint, "model.norm.weight");
    const ls_vec v = m->weights->norm;
    assert_true(t && t->dtype == LS_ST_BF16 && v.dtype == LS_F32 && v.n == 72);
    for (int i = 0; i < 72; i++) {
        const uint16_t *raw = (const void *)t->data;
        const uint32_t u = (uint32_t)raw[i] << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        assert_true(((const float *)v.data)[i] == (float)(1.0 + (double)f));
    }
    ls_model_close(m);
    fam_free(&c);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_norms)};
    return cmocka_run_group_tests_name("gemma_equal", all, begin, NULL);
}
