#include "gguf_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant.h"

#define LAYER_TENSORS 16
#define NAME_ROOM 128 /* before the data: a name, and the data stays aligned to 64 bytes */

/* What is being made: passed down so that each step can name the file. */
typedef struct maker {
    const ls_gguf *g;
    const ls_config *c;
    bool widen; /* no blocks are left */
    ls_gguf_view *v;
    bool *used;            /* [tensors of g] */
    uint64_t *done, total; /* bytes of the file's tensors */
    ls_err *err;
} maker;

static ls_status no_memory(const maker *m, size_t bytes) {
    return ls_fail(m->err, LS_ERR_MEMORY, "%s: out of memory: %zu bytes of weights",
                   ls_gguf_name(m->g), bytes);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* packed: blocks may stay */
static ls_st_dtype view_type(uint32_t type, bool packed) {
    return type == LS_GGML_F16              ? LS_ST_F16
           : type == LS_GGML_BF16           ? LS_ST_BF16
           : type == LS_GGML_Q8_0 && packed ? LS_ST_Q8_0
           : type == LS_GGML_Q4_K && packed ? LS_ST_Q4_K
                                            : LS_ST_F32;
}

/* Rows of each head of width `head` from pairs (2i, 2i + 1) to pairs (i, i + head / 2). */
static void split_pairs(const uint8_t *src, uint8_t *dst, int32_t rows, int32_t head,
                        size_t row_bytes) {
    const int32_t half = head / 2;
    for (int32_t r = 0; r < rows; r++) {
        const int32_t in = r % head, from = r - in + (in % half) * 2 + in / half;
        memcpy(dst + (size_t)r * row_bytes, src + (size_t)from * row_bytes, row_bytes);
    }
}

/* Fills t's data: from the mapping, or into `room`, which holds t->bytes when it is not NULL. */
static ls_status fill(const maker *m, const ls_gguf_tensor *from, bool pairs, ls_st_tensor *t,
                      uint8_t *room) {
    const bool widen = t->bytes != from->bytes;
    t->data = room ? room : from->data;
    if (!room)
        return LS_OK;
    if (!pairs)
        return ls_quant_widen(from->type, from->data, from->bytes, (float *)(void *)room,
                              (size_t)t->n_elems, m->err);
    const int32_t rows = (int32_t)t->dim[0];
    if (!widen) {
        split_pairs(from->data, room, rows, m->c->head_dim, t->bytes / t->dim[0]);
        return LS_OK;
    }
    /* blocks lie within rows: the rows are put in order first, still as blocks */
    uint8_t *blocks = malloc(from->bytes);
    if (!blocks)
        return no_memory(m, from->bytes);
    split_pairs(from->data, blocks, rows, m->c->head_dim, from->bytes / t->dim[0]);
    ls_status s = ls_quant_widen(from->type, blocks, from->bytes, (float *)(void *)room,
                                 (size_t)t->n_elems, m->err);
    free(blocks);
    return s;
}

/* The shape as the file writes it: innermost first. */
static void shape_text(char *dst, size_t cap, const uint64_t *dim, int32_t n) {
    size_t used = (size_t)snprintf(dst, cap, "[");
    for (int32_t i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(dst + used, cap - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)dim[i]);
    if (used < cap)
        snprintf(dst + used, cap - used, "]");
}

static ls_status check_shape(const maker *m, const ls_gguf_tensor *t, int32_t n_out, int32_t n_in) {
    const uint64_t want[2] = {(uint64_t)n_in, (uint64_t)n_out};
    const int32_t n = n_out ? 2 : 1;
    char has[128], wants[64];
    if (t->n_dims == n && t->dim[0] == want[0] && (n == 1 || t->dim[1] == want[1]))
        return LS_OK;
    shape_text(has, sizeof has, t->dim, t->n_dims);
    shape_text(wants, sizeof wants, want, n);
    return ls_gguf_fail(m->g, t->name, m->err, "is %s, the metadata makes it %s", has, wants);
}

/* Tensor `name` of the file as `as`; n_out 0: a vector of n_in. */
static ls_status add(const maker *m, const char *name, const char *as, int32_t n_out, int32_t n_in,
                     bool pairs) {
    const ls_gguf_tensor *from = ls_gguf_tensor_find(m->g, name);
    const ls_gguf_str what = {name, strlen(name)};
    if (!from)
        return ls_gguf_fail(m->g, what, m->err, "is missing; convert the model again");
    if (!ls_quant_known(from->type))
        return ls_gguf_fail(m->g, what, m->err,
                            "is %s; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and "
                            "Q2_K to Q6_K",
                            ls_ggml_type(from->type, NULL, NULL));
    LS_TRY(check_shape(m, from, n_out, n_in));
    ls_st_tensor t = {.n_elems = from->n_elems,
                      .dtype = view_type(from->type, n_out > 0 && !m->widen)};
    t.n_dims = from->n_dims;
    t.dim[0] = from->dim[n_out ? 1 : 0];
    t.dim[1] = n_out ? from->dim[0] : 0;
    const uint64_t size = ls_st_dtype_bits(t.dtype) / 8;
    uint64_t bytes = from->bytes; /* of blocks that stay */
    if ((size && __builtin_mul_overflow(t.n_elems, size, &bytes)) ||
        bytes > SIZE_MAX - NAME_ROOM - 64)
        return ls_gguf_fail(m->g, what, m->err, "is too large for this machine");
    t.bytes = (size_t)bytes;
    const bool copy = pairs || t.bytes != from->bytes;
    const size_t room = NAME_ROOM + (copy ? (t.bytes + 63) / 64 * 64 : 0);
    char *p = aligned_alloc(64, room);
    if (!p)
        return no_memory(m, room);
    m->v->owned[m->v->n] = p;
    m->v->n++; /* owned from here on, whatever follows */
    snprintf(p, NAME_ROOM, "%s", as);
    t.name = p;
    LS_TRY(fill(m, from, pairs, &t, copy ? (uint8_t *)p + NAME_ROOM : NULL));
    m->v->tensor[m->v->n - 1] = t;
    m->used[from - ls_gguf_at(m->g, 0)] = true;
    *m->done += from->bytes;
    ls_load_tell(&m->v->load, *m->done, m->total, "of the file's weights");
    return LS_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static ls_status add_layer(const maker *m, int32_t layer) {
    const ls_config *c = m->c;
    const int32_t q = c->n_heads * c->head_dim, kv = c->n_kv * c->head_dim;
    const bool pairs = strcmp(c->family, "llama") == 0, post = c->post_norms;
    const struct {
        const char *name, *as;
        int32_t n_out, n_in;
        bool pairs, there;
    } all[] = {
        {"attn_norm.weight", "input_layernorm.weight", 0, c->dim, false, true},
        {"post_attention_norm.weight", "post_attention_layernorm.weight", 0, c->dim, false, post},
        {"ffn_norm.weight",
         post ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight", 0, c->dim,
         false, true},
        {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", 0, c->dim, false, post},
        {"attn_q.weight", "self_attn.q_proj.weight", q, c->dim, pairs, true},
        {"attn_k.weight", "self_attn.k_proj.weight", kv, c->dim, pairs, true},
        {"attn_v.weight", "self_attn.v_proj.weight", kv, c->dim, false, true},
        {"attn_q.bias", "self_attn.q_proj.bias", 0, q, false, c->qkv_bias},
        {"attn_k.bias", "self_attn.k_proj.bias", 0, kv, false, c->qkv_bias},
        {"attn_v.bias", "self_attn.v_proj.bias", 0, kv, false, c->qkv_bias},
        {"attn_q_norm.weight", "self_attn.q_norm.weight", 0, c->head_dim, false, c->qk_norm},
        {"attn_k_norm.weight", "self_attn.k_norm.weight", 0, c->head_dim, false, c->qk_norm},
        {"attn_output.weight", "self_attn.o_proj.weight", c->dim, q, false, true},
        {"ffn_gate.weight", "mlp.gate_proj.weight", c->ffn, c->dim, false, true},
        {"ffn_up.weight", "mlp.up_proj.weight", c->ffn, c->dim, false, true},
        {"ffn_down.weight", "mlp.down_proj.weight", c->dim, c->ffn, false, true},
    };
    _Static_assert(sizeof all / sizeof *all == LAYER_TENSORS, "room for what a layer has");
    char name[64], as[96];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].there)
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", layer, all[i].name);
        snprintf(as, sizeof as, "model.layers.%d.%s", layer, all[i].as);
        LS_TRY(add(m, name, as, all[i].n_out, all[i].n_in, all[i].pairs));
    }
    return LS_OK;
}

static ls_status check_unused(const maker *m) {
    for (size_t i = 0; i < ls_gguf_count(m->g); i++) {
        const ls_gguf_tensor *t = ls_gguf_at(m->g, i);
        if (m->used[i] || ls_gguf_str_is(t->name, "rope_freqs.weight")) /* gguf_config.c reads it */
            continue;
        return ls_gguf_fail(m->g, t->name, m->err,
                            "has no place in the model that the metadata describes; leaving it out "
                            "would change the arithmetic");
    }
    return LS_OK;
}

static ls_status add_all(const maker *m) {
    const ls_config *c = m->c;
    LS_TRY(add(m, "token_embd.weight", "model.embed_tokens.weight", c->n_vocab, c->dim, false));
    LS_TRY(add(m, "output_norm.weight", "model.norm.weight", 0, c->dim, false));
    if (!c->tied)
        LS_TRY(add(m, "output.weight", "lm_head.weight", c->n_vocab, c->dim, false));
    for (int32_t i = 0; i < c->n_layers; i++)
        LS_TRY(add_layer(m, i));
    return check_unused(m);
}

ls_status ls_gguf_view_make(const ls_gguf *g, const ls_config *cfg, bool widen, ls_gguf_view *out,
                            ls_err *err) {
    const size_t most = 3 + (size_t)cfg->n_layers * LAYER_TENSORS, n = ls_gguf_count(g);
    ls_gguf_view v = {.tensor = calloc(most, sizeof *v.tensor),
                      .owned = calloc(most, sizeof *v.owned),
                      .load = out->load};
    bool *used = calloc(n ? n : 1, sizeof *used);
    uint64_t done = 0, total = 0;
    for (size_t i = 0; i < n; i++)
        total += ls_gguf_at(g, i)->bytes;
    const maker m = {g, cfg, widen, &v, used, &done, total, err};
    ls_status s =
        v.tensor && v.owned && used ? add_all(&m) : no_memory(&m, most * sizeof *v.tensor);
    free(used);
    if (s != LS_OK) {
        ls_gguf_view_free(&v);
        return s;
    }
    *out = v;
    return LS_OK;
}

void ls_gguf_view_free(ls_gguf_view *v) {
    if (!v)
        return;
    for (size_t i = 0; i < v->n; i++)
        free(v->owned[i]);
    free(v->owned);
    free(v->tensor);
    memset(v, 0, sizeof *v);
}
