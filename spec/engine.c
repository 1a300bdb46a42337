#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine_impl.h"

/* ---- create ---------------------------------------------------------------------------------- */

static ls_status lend(ls_engine *e, const void **p, size_t bytes, ls_err *err) {
    const void *d;
    LS_TRY(e->be->weights(e->be, *p, bytes, &d, err));
    e->lent[e->n_lent++] = d;
    *p = d;
    return LS_OK;
}

static size_t mat_bytes(const ls_mat *m) {
    return (size_t)m->n_out * ls_dtype_span(m->dtype, (size_t)m->n_in);
}

/* Weights for `linear`, in whatever form the profile reads. */
static ls_status lend_mat(ls_engine *e, ls_mat *m, ls_err *err) {
    const ls_mat host = *m;
    LS_TRY(e->be->mat(e->be, &host, m, err));
    e->mat[e->n_mat++] = *m;
    e->count.weight_bytes += mat_bytes(m);
    e->count.weight_fma += (int64_t)m->n_out * m->n_in;
    return LS_OK;
}

/* What a family does not have (data NULL) stays so. */
static ls_status lend_vec(ls_engine *e, ls_vec *v, ls_err *err) {
    if (!v->data)
        return LS_OK;
    return lend(e, &v->data, (size_t)v->n * ls_dtype_bytes(v->dtype), err);
}

/* The vectors of a layer, those a family does not have among them. */
#define LAYER_VECS 9
static void layer_vecs(dev_layer *l, ls_vec *out[LAYER_VECS]) {
    ls_vec *const all[LAYER_VECS] = {&l->attn_norm, &l->ffn_norm,  &l->q_bias,
                                     &l->k_bias,    &l->v_bias,    &l->q_norm,
                                     &l->k_norm,    &l->attn_post, &l->ffn_post};
    memcpy(out, all, sizeof all);
}

static ls_status lend_all(ls_engine *e, ls_err *err) {
    const ls_weights *w = e->model->weights;
    const int32_t n = e->o.n_layers;
    e->layer = calloc((size_t)n, sizeof *e->layer);
    e->lent = calloc((size_t)n * LAYER_VECS + 2, sizeof *e->lent);
    e->mat = calloc((size_t)n * 7 + 1, sizeof *e->mat);
    if (!e->layer || !e->lent || !e->mat)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    e->embed = w->embed;
    e->head = w->head;
    e->norm = w->norm;
    /* padding rows of the head stand for no token: they are not computed */
    e->head.n_out = e->o.n_vocab;
    LS_TRY(lend(e, &e->embed.data, mat_bytes(&e->embed), err));
    LS_TRY(lend_vec(e, &e->norm, err));
    LS_TRY(lend_mat(e, &e->head, err));
    for (int32_t l = 0; l < n; l++) {
        ls_load_tell(&e->o.load, e->count.weight_bytes, w->bytes, "of weights to the device");
        const ls_layer_weights *s = &w->layer[l];
        dev_layer *d = &e->layer[l];
        *d = (dev_layer){.attn_norm = s->attn_norm,
                         .ffn_norm = s->ffn_norm,
                         .q_bias = s->q_bias,
                         .k_bias = s->k_bias,
                         .v_bias = s->v_bias,
                         .q_norm = s->q_norm,
                         .k_norm = s->k_norm,
                         .attn_post = s->attn_post,
                         .ffn_post = s->ffn_post,
                         .q = s->q,
                         .k = s->k,
                         .v = s->v,
                         .o = s->o,
                         .gate = s->gate,
                         .up = s->up,
                         .down = s->down};
        ls_mat *mats[] = {&d->q, &d->k, &d->v, &d->o, &d->gate, &d->up, &d->down};
        for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
            LS_TRY(lend_mat(e, mats[i], err));
        ls_vec *vecs[LAYER_VECS];
        layer_vecs(d, vecs);
        for (size_t i = 0; i < LAYER_VECS; i++)
            LS_TRY(lend_vec(e, vecs[i], err));
    }
    return LS_OK;
}

/* Weights are on their way together, and waited for once. */
static ls_status take_weights(ls_engine *e, ls_err *err) {
    const ls_status s = lend_all(e, err);
    const ls_status done = e->be->weights_done(e->be, s == LS_OK ? err : NULL);
    return s != LS_OK ? s : done;
}

/* Carves the tables out of one block; counts only when base is NULL. */
static size_t carve_tables(const ls_engine *e, int32_t *base, row_tables *t) {
    const size_t r = (size_t)e->o.max_rows;
    int32_t **rows[] = {&t->token,    &t->pos,       &t->slot,   &t->length, &t->base,
                        &t->table_at, &t->table_len, &t->prefix, &t->want};
    const size_t w = (size_t)e->o.max_want;
    size_t at = 1;
    t->at = base;
    t->warp = base ? (void *)(base + at) : NULL;
    at += w * (sizeof *t->warp / sizeof *base);
    t->draw = base ? (void *)(base + at) : NULL;
    at += w * (sizeof *t->draw / sizeof *base);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++, at += r)
        *rows[i] = base ? base + at : NULL;
    t->table = base ? base + at : NULL;
    at += (size_t)e->table_cap;
    t->anc = base ? base + at : NULL;
    at += r * r;
    return at * sizeof(int32_t);
}

static ls_status take_tables(ls_engine *e, ls_err *err) {
    const int32_t per_seq =
        e->o.block_rows ? (e->o.context + e->o.block_rows - 1) / e->o.block_rows : 0;
    if ((int64_t)per_seq * e->o.max_seqs > INT32_MAX / 8)
        return ls_fail(err, LS_ERR_FULL, "engine: block tables too large: use larger blocks");
    e->table_cap = per_seq * e->o.max_seqs;
    e->tables_bytes = carve_tables(e, NULL, &e->h);
    e->host_tables = calloc(1, e->tables_bytes);
    e->seq_next = calloc((size_t)e->o.max_seqs, sizeof(int32_t));
    e->seq_table = calloc((size_t)e->o.max_seqs, sizeof(int32_t));
    if (!e->host_tables || !e->seq_next || !e->seq_table)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    carve_tables(e, e->host_tables, &e->h);
    LS_TRY(e->be->alloc(e->be, e->tables_bytes, &e->dev_tables, err));
    carve_tables(e, e->dev_tables, &e->d);
    return LS_OK;
}

/* The cosines and sines of every position, from double. */
static ls_status take_angles(ls_engine *e, double theta, const ls_rope_scaling *scaling, void **cos,
                             void **sin, ls_err *err) {
    const size_t half = (size_t)e->head_dim / 2, n = (size_t)e->o.context * half;
    float *buf = malloc(2 * n * sizeof *buf);
    if (!buf)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    ls_rope_tables(theta, scaling, e->head_dim, e->o.context, buf, buf + n);
    ls_status s = e->be->alloc(e->be, n * sizeof *buf, cos, err);
    if (s == LS_OK)
        s = e->be->alloc(e->be, n * sizeof *buf, sin, err);
    if (s == LS_OK)
        s = e->be->upload(e->be, *cos, buf, n * sizeof *buf, err);
    if (s == LS_OK)
        s = e->be->upload(e->be, *sin, buf + n, n * sizeof *buf, err);
    free(buf);
    return s;
}

static ls_status take_scratch(ls_engine *e, ls_err *err) {
    const size_t r = (size_t)e->o.max_rows, d = (size_t)e->dim, f = (size_t)e->ffn;
    const size_t w = (size_t)e->o.max_want, he = (size_t)e->n_heads * (size_t)e->head_dim;
    const size_t ge = (size_t)e->n_kv * (size_t)e->head_dim, v = (size_t)e->o.n_vocab;
    const size_t part = (size_t)e->n_heads * (size_t)e->max_chunks * (2 + (size_t)e->head_dim);
    const struct {
        void **p;
        size_t bytes;
    } need[] = {
        {&e->x, r * d * 4},
        {&e->normed, r * d * 4},
        {&e->q, r * he * 4},
        {&e->k, r * ge * 4},
        {&e->v, r * ge * 4},
        {&e->att, r * he * 4},
        {&e->gate, r * f * 4},
        {&e->up, r * f * 4},
        {&e->part, r * part * 4},
        {&e->wanted, w * d * 4},
        {&e->logits, w * v * 4},
        {&e->prob, v * 4},
        {&e->stats_part, w * ls_stats_part_bytes(e->o.n_vocab)},
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        LS_TRY(e->be->alloc(e->be, need[i].bytes, need[i].p, err));
    void *chain, *on_device;
    LS_TRY(e->be->alloc(e->be, LS_CHAIN_MAX * sizeof(ls_row_stats), &chain, err));
    e->chain = chain;
    const size_t result = sizeof(ls_result) + (w - 1) * sizeof(ls_row_stats);
    LS_TRY(e->be->alloc(e->be, result, &on_device, err));
    e->result = on_device;
    e->result_host = malloc(result);
    return e->result_host ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
}

static ls_status fill_defaults(ls_engine *e, ls_engine_options o, ls_err *err) {
    const ls_config *c = &e->model->config;
    if (o.max_rows < 0 || o.max_want < 0 || o.max_seqs < 0 || o.context < 0 || o.block_rows < 0 ||
        o.n_layers < 0 || o.n_vocab < 0)
        return ls_fail(err, LS_ERR_INPUT, "engine: a size is negative");
    if (o.max_rows > LS_PASS_ROWS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "engine: %d rows a pass: at most %d", o.max_rows,
                       LS_PASS_ROWS_MAX);
    o.max_rows = o.max_rows ? o.max_rows : 64;
    o.max_want = o.max_want ? o.max_want : LS_CHAIN_MAX + 1;
    if (o.max_want > o.max_rows)
        o.max_want = o.max_rows;
    o.max_seqs = o.max_seqs ? o.max_seqs : 1;
    o.context = o.context ? o.context : c->n_pos;
    if (o.context > c->n_pos && c->rope.kind == LS_ROPE_DYNAMIC)
        return ls_fail(err, LS_ERR_INPUT,
                       "context %d is longer than the original %d of %s, and rope scaling dynamic "
                       "past it is not supported: there every angle changes with the text's length",
                       o.context, c->n_pos, e->model->dir);
    if (o.context > c->n_pos)
        return ls_fail(err, LS_ERR_INPUT, "context %d is longer than the model's %d (%s)",
                       o.context, c->n_pos, e->model->dir);
    o.n_layers = o.n_layers ? o.n_layers : c->n_layers;
    o.n_vocab = o.n_vocab ? o.n_vocab : e->model->n_token;
    if (o.n_layers > c->n_layers || o.n_vocab > c->n_vocab)
        return ls_fail(err, LS_ERR_INPUT, "engine: %d layers or %d tokens are more than %s has",
                       o.n_layers, o.n_vocab, e->model->dir);
    if (o.chunk.min_keys == 0 && o.chunk.max_chunks == 0)
        o.chunk = e->be->chunk;
    LS_TRY(ls_chunk_check(o.chunk, err));
    e->o = o;
    return LS_OK;
}

/* The root of D in the embedding's own type, as models are trained and transformers runs them. */
static float embed_scale(int32_t dim, ls_dtype type) {
    const float root = (float)sqrt((double)dim);
    return type == LS_BF16  ? ls_f32_of_bf16(ls_bf16_of_f32(root))
           : type == LS_F16 ? ls_f32_of_f16(ls_f16_of_f32(root))
                            : root;
}

static ls_status build(ls_engine *e, ls_engine_options options, ls_err *err) {
    const ls_config *c = &e->model->config;
    LS_TRY(fill_defaults(e, options, err));
    e->n_heads = c->n_heads, e->n_kv = c->n_kv, e->head_dim = c->head_dim;
    e->dim = c->dim, e->ffn = c->ffn;
    e->scale = (float)(1.0 / sqrt(c->query_scalar));
    e->embed_scale = c->embed_scaled ? embed_scale(c->dim, e->model->weights->embed.dtype) : 0;
    e->max_chunks = ls_chunk_bound(e->o.chunk, e->o.context);
    e->max_chunks_local = ls_chunk_bound(
        e->o.chunk, c->window && c->window < e->o.context ? c->window : e->o.context);
    LS_TRY(take_weights(e, err));
    const ls_kv_options kv = {.n_layers = e->o.n_layers,
                              .n_kv = e->n_kv,
                              .head_dim = e->head_dim,
                              .max_seqs = e->o.max_seqs,
                              .context = e->o.context,
                              .block_rows = e->o.block_rows,
                              .dtype = e->o.kv_dtype,
                              .poison = e->o.poison};
    LS_TRY(ls_kv_create(e->be, kv, &e->kv, err));
    LS_TRY(take_tables(e, err));
    static const ls_rope_scaling plain = {.kind = LS_ROPE_PLAIN};
    LS_TRY(take_angles(e, c->rope_theta, &c->rope, &e->cos, &e->sin, err));
    if (c->rope_theta_local > 0)
        LS_TRY(take_angles(e, c->rope_theta_local, &plain, &e->cos_local, &e->sin_local, err));
    return take_scratch(e, err);
}

ls_status ls_engine_create(const ls_model *model, ls_backend *be, ls_engine_options options,
                           ls_engine **out, ls_err *err) {
    ls_engine *e = calloc(1, sizeof *e);
    if (!e)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    e->model = model;
    e->be = be;
    ls_status s = build(e, options, err);
    if (s != LS_OK) {
        ls_engine_destroy(e);
        return s;
    }
    *out = e;
    return LS_OK;
}

void ls_engine_destroy(ls_engine *e) {
    if (!e)
        return;
    ls_backend *be = e->be;
    for (int32_t i = 0; i < LS_GRAPHS; i++)
        if (e->graph[i].graph)
            be->graph_free(be, e->graph[i].graph);
    void *dev[] = {e->cos_local, e->sin_local, e->dev_tables, e->cos,   e->sin,
                   e->x,         e->normed,    e->q,          e->k,     e->v,
                   e->att,       e->gate,      e->up,         e->part,  e->wanted,
                   e->logits,    e->prob,      e->stats_part, e->chain, e->chain_logits,
                   e->result};
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        be->free(be, dev[i]);
    for (int32_t i = 0; i < e->n_lent; i++)
        be->weights_free(be, e->lent[i]);
    for (int32_t i = 0; i < e->n_mat; i++)
        be->mat_free(be, &e->mat[i]);
    ls_kv_destroy(e->kv);
    free(e->layer);
    free(e->lent);
    free(e->mat);
    free(e->result_host);
    free(e->host_tables);
    free(e->seq_next);
    free(e->seq_table);
    free(e->trace_buf);
    free(e);
}

ls_kv *ls_engine_kv(ls_engine *e) {
    return e->kv;
}
ls_backend *ls_engine_backend(ls_engine *e) {
    return e->be;
}
const ls_model *ls_engine_model(const ls_engine *e) {
    return e->model;
}
const ls_engine_options *ls_engine_opts(const ls_engine *e) {
    return &e->o;
}
ls_engine_counts ls_engine_count(const ls_engine *e) {
    return e->count;
}

int32_t ls_engine_weights(const ls_engine *e, ls_span *out, int32_t cap) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_mat; i++, n++)
        if (n < cap)
            out[n] = (ls_span){e->mat[i].data, mat_bytes(&e->mat[i])};
    for (int32_t l = 0; l < e->o.n_layers; l++) {
        ls_vec *v[LAYER_VECS];
        layer_vecs(&e->layer[l], v);
        for (int i = 0; i < LAYER_VECS; i++) {
            if (!v[i]->data)
                continue;
            if (n < cap)
                out[n] = (ls_span){v[i]->data, (size_t)v[i]->n * ls_dtype_bytes(v[i]->dtype)};
            n++;
        }
    }
    if (n < cap)
        out[n] = (ls_span){e->norm.data, (size_t)e->norm.n * ls_dtype_bytes(e->norm.dtype)};
    return n + 1;
}
