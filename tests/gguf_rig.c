#include "gguf_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gguf_tokenizer.h"

void gguf_put(gguf_bytes *b, const void *data, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 64;
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    if (n > 0)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

void gguf_put_u(gguf_bytes *b, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) {
        const uint8_t byte = (uint8_t)(v >> 8 * i);
        gguf_put(b, &byte, 1);
    }
}

void gguf_put_str(gguf_bytes *b, const char *s) {
    gguf_put_u(b, strlen(s), 8);
    gguf_put(b, s, strlen(s));
}

void gguf_key(ls_gguf_made *m, const char *key, uint32_t type, const void *value, size_t n) {
    gguf_put_str(&m->keys, key);
    gguf_put_u(&m->keys, type, 4);
    gguf_put(&m->keys, value, n);
    m->n_keys++;
}

void gguf_key_u32(ls_gguf_made *m, const char *key, uint32_t v) {
    gguf_bytes b = {0};
    gguf_put_u(&b, v, 4);
    gguf_key(m, key, MADE_U32, b.p, b.n);
    free(b.p);
}

void gguf_key_f32(ls_gguf_made *m, const char *key, float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    gguf_bytes b = {0};
    gguf_put_u(&b, u, 4);
    gguf_key(m, key, MADE_F32, b.p, b.n);
    free(b.p);
}

void gguf_key_str(ls_gguf_made *m, const char *key, const char *v) {
    gguf_bytes b = {0};
    gguf_put_str(&b, v);
    gguf_key(m, key, MADE_STRING, b.p, b.n);
    free(b.p);
}

void gguf_key_array(ls_gguf_made *m, const char *key, uint32_t elem, size_t n, gguf_bytes items) {
    gguf_bytes b = {0};
    gguf_put_u(&b, elem, 4);
    gguf_put_u(&b, n, 8);
    gguf_put(&b, items.p, items.n);
    gguf_key(m, key, MADE_ARRAY, b.p, b.n);
    free(b.p);
    free(items.p);
}

void gguf_info(ls_gguf_made *m, const char *name, uint32_t n_dims, const uint64_t *dim,
               uint32_t type, uint64_t offset) {
    gguf_put_str(&m->infos, name);
    gguf_put_u(&m->infos, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        gguf_put_u(&m->infos, dim[i], 8);
    gguf_put_u(&m->infos, type, 4);
    gguf_put_u(&m->infos, offset, 8);
    m->n_tensors++;
}

static void pad(gguf_bytes *b, uint32_t align) {
    while (b->n % (align ? align : 32) != 0)
        gguf_put(b, "", 1);
}

void gguf_tensor(ls_gguf_made *m, const char *name, uint32_t n_dims, const uint64_t *dim,
                 uint32_t type, const void *data, size_t n) {
    pad(&m->data, m->align);
    gguf_info(m, name, n_dims, dim, type, m->data.n);
    gguf_put(&m->data, data, n);
}

gguf_bytes gguf_file(const ls_gguf_made *m) {
    gguf_bytes f = {0};
    gguf_put(&f, "GGUF", 4);
    gguf_put_u(&f, 3, 4);
    gguf_put_u(&f, m->n_tensors, 8);
    gguf_put_u(&f, m->n_keys, 8);
    gguf_put(&f, m->keys.p, m->keys.n);
    gguf_put(&f, m->infos.p, m->infos.n);
    pad(&f, m->align);
    gguf_put(&f, m->data.p, m->data.n);
    return f;
}

void gguf_free(ls_gguf_made *m) {
    free(m->keys.p);
    free(m->infos.p);
    free(m->data.p);
    memset(m, 0, sizeof *m);
}

void gguf_llama(ls_gguf_made *m, const char *without, int head) {
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"llama.context_length", 16},      {"llama.embedding_length", 4},
                {"llama.block_count", 1},          {"llama.feed_forward_length", 6},
                {"llama.attention.head_count", 2}, {"llama.attention.head_count_kv", 1},
                {"llama.attention.key_length", 4}};
    static const struct {
        const char *name;
        uint64_t dim[2]; /* innermost first; 0: a vector */
    } tensors[] = {{"token_embd.weight", {4, 3}},      {"output_norm.weight", {4, 0}},
                   {"blk.0.attn_norm.weight", {4, 0}}, {"blk.0.ffn_norm.weight", {4, 0}},
                   {"blk.0.attn_q.weight", {4, 8}},    {"blk.0.attn_k.weight", {4, 4}},
                   {"blk.0.attn_v.weight", {4, 4}},    {"blk.0.attn_output.weight", {8, 4}},
                   {"blk.0.ffn_gate.weight", {4, 6}},  {"blk.0.ffn_up.weight", {4, 6}},
                   {"blk.0.ffn_down.weight", {6, 4}},  {"output.weight", {4, 3}}};
    const char *skip = without ? without : "";
    if (strcmp(skip, "general.architecture") != 0)
        gguf_key_str(m, "general.architecture", "llama");
    if (strcmp(skip, "llama.attention.layer_norm_rms_epsilon") != 0)
        gguf_key_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(skip, keys[i].key) != 0)
            gguf_key_u32(m, keys[i].key, keys[i].v);
    float value[32];
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const int n_dims = tensors[i].dim[1] ? 2 : 1;
        const size_t n = (size_t)(tensors[i].dim[0] * (n_dims == 2 ? tensors[i].dim[1] : 1));
        for (size_t j = 0; j < n; j++)
            value[j] = (float)(i * 100 + j);
        if (strcmp(skip, tensors[i].name) != 0 &&
            (head || strcmp(tensors[i].name, "output.weight") != 0))
            gguf_tensor(m, tensors[i].name, (uint32_t)n_dims, tensors[i].dim, 0, value,
                        n * sizeof *value);
    }
}

ls_status gguf_open_tokenizer(ls_gguf_made *m, ls_tokenizer **out, ls_err *err) {
    gguf_bytes f = gguf_file(m);
    ls_gguf *g = NULL;
    if (ls_gguf_parse(f.p, f.n, "made.gguf", &g, err) != LS_OK)
        fail_msg("%s", err->msg);
    const ls_status s = ls_gguf_tokenizer_open(g, NULL, out, err);
    ls_gguf_close(g);
    free(f.p);
    gguf_free(m);
    return s;
}
