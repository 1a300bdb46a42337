/* Weights: the verdicts of the model folders, the head's rules, alignment, and wrong tensors. */
#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make_model.h"
#include "weights.h"

typedef struct opened {
    ls_config c;
    ls_checkpoint *cp;
    ls_weights *w;
} opened;

static ls_status open_dir(const char *dir, ls_head_rule rule, opened *o, ls_err *err) {
    memset(o, 0, sizeof *o);
    LS_TRY(ls_config_read(dir, &o->c, err));
    LS_TRY(ls_checkpoint_open(dir, &o->cp, err));
    return ls_weights_bind(o->cp, &o->c, rule, &o->w, err);
}

static void close_all(opened *o) {
    ls_weights_destroy(o->w);
    ls_checkpoint_close(o->cp);
}

/* A folder of cases/models; rand_tied_flag_wrong has a config only and uses rand_tied's weights. */
static ls_status open_case(const char *name, ls_head_rule rule, opened *o, ls_err *err) {
    char *config = ls_test_path("cases/models/%s/config.json", name);
    bool lone = strcmp(name, "rand_tied_flag_wrong") == 0;
    char *weights = ls_test_path("cases/models/%s/model.safetensors", lone ? "rand_tied" : name);
    char *dir = ls_test_dir_make();
    ls_test_copy(config, dir, "config.json");
    ls_test_copy(weights, dir, "model.safetensors");
    ls_status s = open_dir(dir, rule, o, err);
    ls_test_dir_remove(dir); /* the mapping outlives the name */
    free(weights);
    free(config);
    return s;
}

static const char *model_name(const char *path) {
    static char name[64];
    const char *at = strstr(path, "models/") + 7;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "/"), at);
    return name;
}

static void verdict(const char *path, const char *expect, const char *why) {
    opened o;
    ls_err err = {0};
    ls_status s = open_case(model_name(path), LS_HEAD_DECLARED, &o, &err);
    if ((s == LS_OK) != (strcmp(expect, "accept") == 0))
        fail_msg("%s: %s, expected %s (%s)", path, s == LS_OK ? "accepted" : err.msg, expect, why);
    close_all(&o);
}

static void test_verdicts(void **state) {
    (void)state;
    ls_cases_each("models/", 14, verdict);
}

static void test_head(void **state) {
    (void)state;
    opened o;
    ls_err err = {0};
    OK(open_case("rand_tied", LS_HEAD_DECLARED, &o, &err), &err);
    assert_ptr_equal(o.w->head.data, o.w->embed.data);
    close_all(&o);

    assert_int_equal(open_case("rand_tied_flag_wrong", LS_HEAD_DECLARED, &o, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "lm_head.weight", "tie_word_embeddings", NULL);
    close_all(&o);
    OK(open_case("rand_tied_flag_wrong", LS_HEAD_TIE, &o, &err), &err);
    assert_ptr_equal(o.w->head.data, o.w->embed.data);
    close_all(&o);
    assert_int_equal(open_case("rand_tied_flag_wrong", LS_HEAD_FILE, &o, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "lm_head.weight", "missing", NULL);
    close_all(&o);

    assert_int_equal(open_case("rand_tied_extra_head", LS_HEAD_DECLARED, &o, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "lm_head.weight", "tie_word_embeddings", NULL);
    close_all(&o);
    OK(open_case("rand_tied_extra_head", LS_HEAD_TIE, &o, &err), &err);
    assert_ptr_equal(o.w->head.data, o.w->embed.data);
    close_all(&o);
    OK(open_case("rand_tied_extra_head", LS_HEAD_FILE, &o, &err), &err);
    assert_ptr_not_equal(o.w->head.data, o.w->embed.data);
    close_all(&o);

    OK(open_case("rand_base", LS_HEAD_DECLARED, &o, &err), &err);
    assert_ptr_not_equal(o.w->head.data, o.w->embed.data);
    assert_int_equal(o.w->head.n_out, 272);
    close_all(&o);
    ls_weights_destroy(NULL);
}

/* ---- made-up checkpoints ---------------------------------------------------------------------
 * A folder from make_model whose safetensors header is edited as text. */

typedef struct edit {
    char *header;
    char *data;
    size_t n_data;
} edit;

static edit load_edit(const char *dir) {
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    size_t n = 0;
    char *file = ls_test_read(path, &n);
    uint64_t h = 0;
    for (int i = 7; i >= 0; i--)
        h = h << 8 | (unsigned char)file[i];
    edit e = {calloc(1, (size_t)h + 1000), malloc(n), n - 8 - (size_t)h};
    assert_non_null(e.header);
    assert_non_null(e.data);
    memcpy(e.header, file + 8, (size_t)h);
    memcpy(e.data, file + 8 + h, e.n_data);
    free(file);
    return e;
}

static void store_edit(const char *dir, const edit *e, size_t pad) {
    size_t h = strlen(e->header);
    while (h > 0 && e->header[h - 1] == ' ')
        h--;
    size_t full = h + pad;
    char *file = malloc(8 + full + e->n_data);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (char)(full >> 8 * i);
    memcpy(file + 8, e->header, h);
    memset(file + 8 + h, ' ', pad);
    memcpy(file + 8 + full, e->data, e->n_data);
    ls_test_write(dir, "model.safetensors", file, 8 + full + e->n_data);
    free(file);
}

static void replace(edit *e, const char *from, const char *to) {
    char *at = strstr(e->header, from);
    assert_non_null(at);
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
}

static void free_edit(edit *e) {
    free(e->header);
    free(e->data);
}

static ls_test_shape small(void) {
    ls_test_shape s = ls_test_shape_default();
    s.dim = 32;
    s.ffn = 48;
    s.head_dim = 12;
    return s;
}

static void test_wrong_tensors(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *name, *says;
    } all[] = {
        {"model.norm.weight", "model.norm.wright", "model.norm.weight", "missing"},
        {"[266,32]", "[32,266]", "lm_head.weight", "[32, 266], config.json makes it [266, 32]"},
        {"[32]", "[32,1]", "model.norm.weight", "[32, 1]"},
        {"[32,48]", "[48,32]", "mlp.down_proj", "[48, 32]"},
        {"model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.up_proj.weight",
         "model.layers.1.mlp.up_proj.weight", "missing"},
        {"\"F32\"", "\"I32\"", "lm_head.weight", "I32"},
        {"\"F32\"", "\"U32\"", "lm_head.weight", "U32"},
    };
    ls_test_shape shape = small();
    char *dir = ls_test_model_make(&shape);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        edit e = load_edit(dir);
        edit changed = load_edit(dir);
        replace(&changed, all[i].from, all[i].to);
        store_edit(dir, &changed, 0);
        opened o;
        ls_err err = {0};
        if (open_dir(dir, LS_HEAD_DECLARED, &o, &err) != LS_ERR_INPUT)
            fail_msg("%s -> %s was accepted", all[i].from, all[i].to);
        ls_assert_message(&err, dir, all[i].name, all[i].says, NULL);
        close_all(&o);
        store_edit(dir, &e, 0);
        OK(open_dir(dir, LS_HEAD_DECLARED, &o, &err), &err); /* as it was, it opens */
        close_all(&o);
        free_edit(&changed);
        free_edit(&e);
    }
    ls_test_model_remove(dir);
}

/* A tensor that nothing reads is arithmetic left out; old rotation tables are not. */
static void test_extra_tensors(void **state) {
    (void)state;
    ls_test_shape shape = small();
    char *dir = ls_test_model_make(&shape);
    static const struct {
        const char *name;
        bool fine;
    } all[] = {{"model.layers.0.self_attn.q_proj.bias", false},
               {"model.layers.2.mlp.up_proj.weight", false},
               {"model.layers.0.self_attn.q_norm.weight", false},
               {"model.layers.0.self_attn.rotary_emb.inv_freq", true},
               {"rotary_emb.inv_freq", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        edit e = load_edit(dir), more = load_edit(dir);
        char entry[200];
        snprintf(entry, sizeof entry,
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},", all[i].name);
        replace(&more, "{", entry);
        store_edit(dir, &more, 0);
        opened o;
        ls_err err = {0};
        ls_status s = open_dir(dir, LS_HEAD_DECLARED, &o, &err);
        assert_int_equal(s, all[i].fine ? LS_OK : LS_ERR_INPUT);
        if (!all[i].fine)
            ls_assert_message(&err, all[i].name, "no place", NULL);
        close_all(&o);
        store_edit(dir, &e, 0);
        free_edit(&more);
        free_edit(&e);
    }
    ls_test_model_remove(dir);
}

/* Tied with a head of equal bytes, then with one bit changed. */
static void test_equal_head(void **state) {
    (void)state;
    ls_test_shape shape = small();
    shape.tied = true;
    char *dir = ls_test_model_make(&shape);
    edit e = load_edit(dir);
    size_t embed = (size_t)shape.n_vocab * (size_t)shape.dim * 4, begin = e.n_data - embed;
    e.data = realloc(e.data, e.n_data + embed); /* the embedding is the last tensor */
    assert_non_null(e.data);
    memcpy(e.data + e.n_data, e.data + begin, embed);
    char entry[200];
    snprintf(
        entry, sizeof entry,
        "{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]},",
        shape.n_vocab, shape.dim, e.n_data, e.n_data + embed);
    e.n_data += embed;
    replace(&e, "{", entry);
    store_edit(dir, &e, 0);
    opened o;
    ls_err err = {0};
    OK(open_dir(dir, LS_HEAD_DECLARED, &o, &err), &err);
    assert_ptr_equal(o.w->head.data, o.w->embed.data);
    close_all(&o);
    e.data[e.n_data - 1] ^= 1;
    store_edit(dir, &e, 0);
    assert_int_equal(open_dir(dir, LS_HEAD_DECLARED, &o, &err), LS_ERR_INPUT);
    ls_assert_message(&err, "lm_head.weight", "differs", NULL);
    close_all(&o);
    free_edit(&e);
    ls_test_model_remove(dir);
}

static uint64_t sum_bytes(const ls_mat *m) {
    const unsigned char *p = m->data;
    uint64_t h = 0;
    for (size_t i = 0; i < (size_t)m->n_out * (size_t)m->n_in * ls_dtype_bytes(m->dtype); i++)
        h = h * 31 + p[i];
    return h;
}

/* A header of any length shifts the data: pointers stay aligned, values stay the same. */
static void test_alignment(void **state) {
    (void)state;
    for (int dtype = LS_F32; dtype <= LS_F16; dtype++) {
        ls_test_shape shape = small();
        shape.dtype = (ls_dtype)dtype;
        char *dir = ls_test_model_make(&shape);
        opened o;
        ls_err err = {0};
        OK(open_dir(dir, LS_HEAD_DECLARED, &o, &err), &err);
        assert_int_equal(o.w->n_copied, 0); /* aligned: borrowed as it lies */
        uint64_t want = sum_bytes(&o.w->layer[1].down);
        assert_int_equal(o.w->layer[1].down.dtype, dtype);
        close_all(&o);
        edit e = load_edit(dir);
        size_t h = strlen(e.header);
        while (e.header[h - 1] == ' ')
            h--;
        int copied = 0;
        for (size_t pad = 0; pad < 8; pad++) {
            store_edit(dir, &e, pad);
            OK(open_dir(dir, LS_HEAD_DECLARED, &o, &err), &err);
            size_t size = ls_dtype_bytes(shape.dtype);
            assert_true((o.w->n_copied > 0) == ((8 + h + pad) % size != 0));
            copied += o.w->n_copied > 0;
            const ls_layer_weights *l = &o.w->layer[1];
            const void *all[] = {o.w->embed.data, o.w->head.data,    o.w->norm.data,
                                 l->q.data,       l->attn_norm.data, l->down.data};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                assert_int_equal((uintptr_t)all[i] % size, 0);
            assert_true(sum_bytes(&l->down) == want);
            close_all(&o);
        }
        assert_int_equal(copied, dtype == LS_F32 ? 6 : 4);
        free_edit(&e);
        ls_test_model_remove(dir);
    }
}

/* Names are bound to the right places: values of make_model's own order, by shape and count. */
static void test_shapes(void **state) {
    (void)state;
    ls_test_shape shape = small();
    char *dir = ls_test_model_make(&shape);
    opened o;
    ls_err err = {0};
    OK(open_dir(dir, LS_HEAD_DECLARED, &o, &err), &err);
    const ls_layer_weights *l = &o.w->layer[0];
    assert_true(l->q.n_out == 48 && l->q.n_in == 32);
    assert_true(l->k.n_out == 24 && l->k.n_in == 32);
    assert_true(l->v.n_out == 24 && l->v.n_in == 32);
    assert_true(l->o.n_out == 32 && l->o.n_in == 48);
    assert_true(l->gate.n_out == 48 && l->down.n_out == 32 && l->down.n_in == 48);
    assert_true(l->attn_norm.n == 32 && l->ffn_norm.n == 32 && o.w->norm.n == 32);
    const void *seen[] = {l->q.data,    l->k.data,         l->v.data,
                          l->o.data,    l->gate.data,      l->up.data,
                          l->down.data, l->attn_norm.data, l->ffn_norm.data};
    static const char *const names[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
        "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm"};
    for (size_t i = 0; i < 9; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", names[i]);
        assert_ptr_equal(seen[i], ls_checkpoint_find(o.cp, name)->data);
    }
    uint64_t n = 0;
    for (size_t i = 0; i < ls_checkpoint_count(o.cp); i++)
        n += ls_checkpoint_at(o.cp, i)->n_elems;
    assert_true(o.w->n_params == n && o.w->bytes == 4 * n);
    close_all(&o);
    ls_test_model_remove(dir);
}

static int begin(void **state) {
    (void)state;
    ls_cases_begin(LS_TEST_DIR);
    return 0;
}

/* ---- tensors that only some families have ---------------------------------------------------- */

/* A fixture's tensors bound as `change` of its config says. */
static ls_status bind_family(const char *name, void (*change)(ls_config *), const char *missing,
                             ls_err *err) {
    char at[96];
    snprintf(at, sizeof at, "fixtures/families/%s", name);
    char *dir = ls_test_path(at);
    ls_config c;
    ls_checkpoint *cp = NULL;
    ls_weights *w = NULL;
    OK(ls_config_read(dir, &c, err), err);
    OK(ls_checkpoint_open(dir, &cp, err), err);
    change(&c);
    ls_status s = ls_weights_bind(cp, &c, LS_HEAD_DECLARED, &w, err);
    if (s == LS_OK) {
        const struct {
            const char *name;
            const ls_vec *vec;
            int32_t n;
            bool there;
        } all[] = {
            {"q_proj.bias", &w->layer[1].q_bias, c.n_heads * c.head_dim, c.qkv_bias},
            {"k_proj.bias", &w->layer[1].k_bias, c.n_kv * c.head_dim, c.qkv_bias},
            {"v_proj.bias", &w->layer[1].v_bias, c.n_kv * c.head_dim, c.qkv_bias},
            {"q_norm.weight", &w->layer[1].q_norm, c.head_dim, c.qk_norm},
            {"k_norm.weight", &w->layer[1].k_norm, c.head_dim, c.qk_norm},
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            char tensor[96];
            snprintf(tensor, sizeof tensor, "model.layers.1.self_attn.%s", all[i].name);
            const ls_st_tensor *t = ls_checkpoint_find(cp, tensor);
            assert_int_equal(t != NULL, all[i].there);
            assert_int_equal(all[i].vec->n, all[i].there ? all[i].n : 0);
            if (t)
                assert_memory_equal(all[i].vec->data, t->data, t->bytes);
            else
                assert_null(all[i].vec->data);
        }
    } else {
        ls_assert_message(err, dir, missing, NULL);
    }
    ls_weights_destroy(w);
    ls_checkpoint_close(cp);
    free(dir);
    return s;
}

static void as_it_is(ls_config *c) {
    (void)c;
}
static void flip_bias(ls_config *c) {
    c->qkv_bias = !c->qkv_bias;
}
static void flip_norm(ls_config *c) {
    c->qk_norm = !c->qk_norm;
}

static void test_family_tensors(void **state) {
    (void)state;
    ls_err err = {0};
    static const char *const names[] = {"llama3", "mistral", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        OK(bind_family(names[i], as_it_is, NULL, &err), &err);
    static const struct {
        const char *family;
        void (*change)(ls_config *);
        const char *says;
    } bad[] = {
        {"qwen2", flip_bias, "k_proj.bias: has no place"},
        {"qwen3", flip_norm, "k_norm.weight: has no place"},
        {"mistral", flip_bias, "model.layers.0.self_attn.q_proj.bias: is missing"},
        {"qwen2", flip_norm, "model.layers.0.self_attn.q_norm.weight: is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(bind_family(bad[i].family, bad[i].change, bad[i].says, &err),
                         LS_ERR_INPUT);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_verdicts),      cmocka_unit_test(test_head),
        cmocka_unit_test(test_wrong_tensors), cmocka_unit_test(test_extra_tensors),
        cmocka_unit_test(test_equal_head),    cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_family_tensors)};
    return cmocka_run_group_tests(all, begin, NULL);
}
