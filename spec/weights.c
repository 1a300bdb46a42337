#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

#define NAME_ROOM 128

/* What is being bound: passed down so that each step can name the folder. */
typedef struct binder {
    const ls_checkpoint *cp;
    ls_weights *w;
    bool *used; /* [count of cp] */
    ls_err *err;
    const char *body, *head; /* names begin with it; the head's name */
} binder;

/* "model." + what; ends in dst. */
static const char *named(const binder *b, char dst[NAME_ROOM], const char *what) {
    snprintf(dst, NAME_ROOM, "%s%s", b->body, what);
    return dst;
}

static ls_status fail_at(const binder *b, const char *tensor, const char *reason) {
    char dir[200], name[160];
    const char *d = ls_checkpoint_dir(b->cp);
    return ls_fail(b->err, LS_ERR_INPUT, "%s: tensor %s: %s",
                   ls_err_text(dir, sizeof dir, d, strlen(d)),
                   ls_err_text(name, sizeof name, tensor, strlen(tensor)), reason);
}

static size_t index_of(const binder *b, const ls_st_tensor *t) {
    size_t lo = 0, hi = ls_checkpoint_count(b->cp);
    while (lo + 1 < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(ls_checkpoint_at(b->cp, mid)->name, t->name) <= 0)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void shape_text(char *dst, size_t cap, const uint64_t *dim, int32_t n) {
    size_t used = (size_t)snprintf(dst, cap, "[");
    for (int32_t i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(dst + used, cap - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)dim[i]);
    if (used < cap)
        snprintf(dst + used, cap - used, "]");
}

static bool known_dtype(ls_st_dtype t, ls_dtype *out) {
    *out = t == LS_ST_BF16   ? LS_BF16
           : t == LS_ST_F16  ? LS_F16
           : t == LS_ST_Q8_0 ? LS_Q8_0
           : t == LS_ST_Q4_K ? LS_Q4_K
                             : LS_F32;
    return t == LS_ST_F32 || *out != LS_F32;
}

/* Memory for a copy of so many bytes, owned by the weights. */
static ls_status take(const binder *b, size_t bytes, void **out) {
    ls_weights *w = b->w;
    void **grown = realloc(w->copied, ((size_t)w->n_copied + 1) * sizeof *grown);
    if (!grown)
        return ls_fail(b->err, LS_ERR_MEMORY, "out of memory");
    w->copied = grown;
    size_t room = (bytes + 63) / 64 * 64; /* aligned_alloc wants a multiple */
    void *p = aligned_alloc(64, room ? room : 64);
    if (!p)
        return ls_fail(b->err, LS_ERR_MEMORY, "out of memory: %zu bytes of weights", bytes);
    w->copied[w->n_copied++] = p;
    *out = p;
    return LS_OK;
}

/* Pointer to the tensor's data with its type's alignment: the mapping's own, or a copy. */
static ls_status aligned(const binder *b, const ls_st_tensor *t, ls_dtype dtype, const void **out) {
    void *p = NULL;
    *out = t->data;
    if (ls_dtype_block(dtype) > 1) /* blocks are read wherever they lie */
        return LS_OK;
    if ((uintptr_t)t->data % ls_dtype_bytes(dtype) == 0)
        return LS_OK;
    LS_TRY(take(b, t->bytes, &p));
    memcpy(p, t->data, t->bytes);
    *out = p;
    return LS_OK;
}

/* The tensor `name` of the given shape, refused in any other. */
static ls_status find(const binder *b, const char *name, const uint64_t *dim, int32_t n_dims,
                      const void **data, ls_dtype *dtype) {
    const ls_st_tensor *t = ls_checkpoint_find(b->cp, name);
    if (!t)
        return fail_at(b, name, "is missing from the checkpoint");
    char reason[320];
    if (!known_dtype(t->dtype, dtype)) {
        snprintf(reason, sizeof reason, "is %s; supported are F32, BF16 and F16",
                 ls_st_dtype_name(t->dtype));
        return fail_at(b, name, reason);
    }
    if (t->n_dims != n_dims || memcmp(t->dim, dim, (size_t)n_dims * sizeof *dim) != 0) {
        char has[128], wants[64];
        shape_text(has, sizeof has, t->dim, t->n_dims);
        shape_text(wants, sizeof wants, dim, n_dims);
        snprintf(reason, sizeof reason, "is %s, config.json makes it %s", has, wants);
        return fail_at(b, name, reason);
    }
    LS_TRY(aligned(b, t, *dtype, data));
    b->used[index_of(b, t)] = true;
    b->w->n_params += t->n_elems;
    b->w->bytes += t->bytes;
    return LS_OK;
}

static ls_status find_mat(const binder *b, const char *name, int32_t n_out, int32_t n_in,
                          ls_mat *out) {
    const uint64_t dim[2] = {(uint64_t)n_out, (uint64_t)n_in};
    LS_TRY(find(b, name, dim, 2, &out->data, &out->dtype));
    out->n_out = n_out;
    out->n_in = n_in;
    return LS_OK;
}

static ls_status find_vec(const binder *b, const char *name, int32_t n, ls_vec *out) {
    const uint64_t dim[1] = {(uint64_t)n};
    LS_TRY(find(b, name, dim, 1, &out->data, &out->dtype));
    out->n = n;
    return LS_OK;
}

/* A norm's weights, with the one that the file leaves out. */
static ls_status find_norm(const binder *b, const ls_config *c, const char *name, int32_t n,
                           ls_vec *out) {
    void *p = NULL;
    LS_TRY(find_vec(b, name, n, out));
    if (!c->norm_offset)
        return LS_OK;
    LS_TRY(take(b, (size_t)n * sizeof(float), &p));
    float *y = p;
    for (int32_t i = 0; i < n; i++) {
        const void *x = out->data;
        y[i] = 1.0f + (out->dtype == LS_F32    ? ((const float *)x)[i]
                       : out->dtype == LS_BF16 ? ls_f32_of_bf16(((const uint16_t *)x)[i])
                                               : ls_f32_of_f16(((const uint16_t *)x)[i]));
    }
    *out = (ls_vec){.data = p, .dtype = LS_F32, .n = n};
    return LS_OK;
}

static ls_status bind_layer(const binder *b, const ls_config *c, int32_t layer) {
    ls_layer_weights *l = &b->w->layer[layer];
    const int32_t q = c->n_heads * c->head_dim, kv = c->n_kv * c->head_dim;
    const struct {
        const char *name;
        int32_t n_out, n_in;
        ls_mat *mat;
    } mats[] = {
        {"self_attn.q_proj", q, c->dim, &l->q},      {"self_attn.k_proj", kv, c->dim, &l->k},
        {"self_attn.v_proj", kv, c->dim, &l->v},     {"self_attn.o_proj", c->dim, q, &l->o},
        {"mlp.gate_proj", c->ffn, c->dim, &l->gate}, {"mlp.up_proj", c->ffn, c->dim, &l->up},
        {"mlp.down_proj", c->dim, c->ffn, &l->down},
    };
    const struct {
        const char *name;
        bool there;
        int32_t n;
        ls_vec *vec;
    } norms[] = {
        {"input_layernorm", true, c->dim, &l->attn_norm},
        {"post_attention_layernorm", true, c->dim, c->post_norms ? &l->attn_post : &l->ffn_norm},
        {"pre_feedforward_layernorm", c->post_norms, c->dim, &l->ffn_norm},
        {"post_feedforward_layernorm", c->post_norms, c->dim, &l->ffn_post},
        {"self_attn.q_norm", c->qk_norm, c->head_dim, &l->q_norm},
        {"self_attn.k_norm", c->qk_norm, c->head_dim, &l->k_norm},
    };
    char name[NAME_ROOM];
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", b->body, layer, norms[i].name);
        if (norms[i].there)
            LS_TRY(find_norm(b, c, name, norms[i].n, norms[i].vec));
    }
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", b->body, layer, mats[i].name);
        LS_TRY(find_mat(b, name, mats[i].n_out, mats[i].n_in, mats[i].mat));
    }
    const struct {
        const char *name;
        bool there;
        int32_t n;
        ls_vec *vec;
    } vecs[] = {
        {"q_proj.bias", c->qkv_bias, q, &l->q_bias},
        {"k_proj.bias", c->qkv_bias, kv, &l->k_bias},
        {"v_proj.bias", c->qkv_bias, kv, &l->v_bias},
    };
    for (size_t i = 0; i < sizeof vecs / sizeof *vecs; i++) {
        snprintf(name, sizeof name, "%slayers.%d.self_attn.%s", b->body, layer, vecs[i].name);
        if (vecs[i].there)
            LS_TRY(find_vec(b, name, vecs[i].n, vecs[i].vec));
    }
    return LS_OK;
}

/* ---- the head -------------------------------------------------------------------------------- */

#define EMBED "embed_tokens.weight"

static ls_status bind_head(const binder *b, const ls_config *c, ls_head_rule rule) {
    char name[NAME_ROOM];
    const ls_st_tensor *head = ls_checkpoint_find(b->cp, b->head);
    const ls_st_tensor *embed = ls_checkpoint_find(b->cp, named(b, name, EMBED)); /* bound before */
    bool tie = rule == LS_HEAD_TIE;
    if (rule == LS_HEAD_DECLARED) {
        if (!head && !c->tied)
            return fail_at(b, b->head,
                           "is missing, though tie_word_embeddings is false in config.json; choose "
                           "the embedding as the head if that is meant");
        tie = !head;
        if (head && c->tied) {
            if (head->dtype != embed->dtype || head->bytes != embed->bytes ||
                memcmp(head->data, embed->data, head->bytes) != 0)
                return fail_at(b, b->head,
                               "differs from the embedding, though tie_word_embeddings is true in "
                               "config.json; choose which of the two is the head");
            tie = true;
        }
    }
    if (tie) {
        b->w->head = b->w->embed;
        if (head) /* there, and on purpose not read */
            b->used[index_of(b, head)] = true;
        return LS_OK;
    }
    return find_mat(b, b->head, c->n_vocab, c->dim, &b->w->head);
}

/* Tables that old files carry and nothing reads; in a folder of more models, those for images. */
static bool is_ignorable(const char *name, const ls_config *c) {
    static const char *const others[] = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."};
    for (size_t i = 0; c->nested && i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return true;
    static const char suffix[] = ".rotary_emb.inv_freq";
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && strcmp(name + n - k, suffix) == 0;
}

static ls_status check_unused(const binder *b, const ls_config *c) {
    size_t n = ls_checkpoint_count(b->cp);
    for (size_t i = 0; i < n; i++) {
        const char *name = ls_checkpoint_at(b->cp, i)->name;
        if (!b->used[i] && !is_ignorable(name, c))
            return fail_at(b, name,
                           "has no place in the model that config.json describes; leaving it out "
                           "would change the arithmetic");
    }
    return LS_OK;
}

static ls_status bind_all(const binder *b, const ls_config *c, ls_head_rule head) {
    char name[NAME_ROOM];
    LS_TRY(find_mat(b, named(b, name, EMBED), c->n_vocab, c->dim, &b->w->embed));
    LS_TRY(find_norm(b, c, named(b, name, "norm.weight"), c->dim, &b->w->norm));
    for (int32_t i = 0; i < c->n_layers; i++)
        LS_TRY(bind_layer(b, c, i));
    LS_TRY(bind_head(b, c, head));
    return check_unused(b, c);
}

ls_status ls_weights_bind(const ls_checkpoint *cp, const ls_config *cfg, ls_head_rule head,
                          ls_weights **out, ls_err *err) {
    size_t n = ls_checkpoint_count(cp);
    ls_weights *w = calloc(1, sizeof *w);
    bool *used = calloc(n ? n : 1, sizeof *used);
    if (w)
        w->layer = calloc((size_t)cfg->n_layers, sizeof *w->layer);
    ls_status s = LS_OK;
    if (!w || !used || !w->layer) {
        s = ls_fail(err, LS_ERR_MEMORY, "out of memory while binding weights");
    } else {
        binder b = {cp, w, used, err, "model.", "lm_head.weight"};
        if (cfg->nested) {
            const bool old = ls_checkpoint_find(cp, "language_model.model." EMBED) != NULL;
            b.body = old ? "language_model.model." : "model.language_model.";
            b.head = old ? "language_model.lm_head.weight" : "lm_head.weight";
        }
        w->n_layers = cfg->n_layers;
        s = bind_all(&b, cfg, head);
    }
    free(used);
    if (s != LS_OK) {
        ls_weights_destroy(w);
        return s;
    }
    *out = w;
    return LS_OK;
}

void ls_weights_destroy(ls_weights *w) {
    if (!w)
        return;
    for (int32_t i = 0; i < w->n_copied; i++)
        free(w->copied[i]);
    free(w->copied);
    free(w->layer);
    free(w);
}
