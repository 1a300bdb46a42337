#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

/* Weights as the device reads them. */
typedef struct dev_layer {
    ls_vec attn_norm, ffn_norm;
    ls_mat q, k, v, o, gate, up, down;
} dev_layer;

/* The tables of a pass, host side and device side, laid out alike: one upload a pass. */
typedef struct row_tables {
    int32_t *token, *pos, *slot, *length, *base, *table_at, *table_len, *prefix, *want; /* [R] */
    int32_t *table; /* [max_seqs * blocks a sequence] */
    int32_t *anc;   /* [R, R], last: only a tree needs it uploaded */
} row_tables;

struct ls_engine {
    const ls_model *model;
    ls_backend *be;
    ls_engine_options o;
    int32_t n_heads, n_kv, head_dim, dim, ffn;
    float scale;
    ls_kv *kv;
    ls_mat embed, head;
    ls_vec norm;
    dev_layer *layer;
    const void **lent; /* what be->weights gave, to hand back */
    int32_t n_lent;

    int32_t max_chunks, table_cap;
    int32_t *host_tables;
    void *dev_tables;
    size_t tables_bytes;
    row_tables h, d;
    void *cos, *sin;
    void *x, *normed, *q, *k, *v, *att, *gate, *up, *part, *wanted, *logits, *prob;
    void *warp, *draw, *stats;

    int32_t n_want;    /* wanted rows of the last pass */
    int32_t *seq_next; /* [max_seqs] scratch of check_rows: next index of the sequence */
    int32_t
        *seq_table; /* [max_seqs] where the sequence's table begins in this pass, -1 = not yet */
    const ls_trace *trace;
    float *trace_buf;
    ls_engine_counts count;
};

/* ---- create ---------------------------------------------------------------------------------- */

static ls_status lend(ls_engine *e, const void **p, size_t bytes, ls_err *err) {
    const void *d;
    LS_TRY(e->be->weights(e->be, *p, bytes, &d, err));
    e->lent[e->n_lent++] = d;
    *p = d;
    return LS_OK;
}

static ls_status lend_mat(ls_engine *e, ls_mat *m, ls_err *err) {
    return lend(e, &m->data, (size_t)m->n_out * (size_t)m->n_in * ls_dtype_bytes(m->dtype), err);
}

static ls_status lend_vec(ls_engine *e, ls_vec *v, ls_err *err) {
    return lend(e, &v->data, (size_t)v->n * ls_dtype_bytes(v->dtype), err);
}

static size_t mat_bytes(const ls_mat *m) {
    return (size_t)m->n_out * (size_t)m->n_in * ls_dtype_bytes(m->dtype);
}

static ls_status take_weights(ls_engine *e, ls_err *err) {
    const ls_weights *w = e->model->weights;
    const int32_t n = e->o.n_layers;
    e->layer = calloc((size_t)n, sizeof *e->layer);
    e->lent = calloc((size_t)n * 9 + 3, sizeof *e->lent);
    if (!e->layer || !e->lent)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    e->embed = w->embed;
    e->head = w->head;
    e->norm = w->norm;
    const bool tied = w->head.data == w->embed.data;
    LS_TRY(lend_mat(e, &e->embed, err));
    LS_TRY(lend_vec(e, &e->norm, err));
    if (tied)
        e->head.data = e->embed.data;
    else
        LS_TRY(lend_mat(e, &e->head, err));
    /* padding rows of the head stand for no token: they are not computed */
    e->head.n_out = e->o.n_vocab;
    e->count.weight_bytes = mat_bytes(&e->head);
    for (int32_t l = 0; l < n; l++) {
        const ls_layer_weights *s = &w->layer[l];
        dev_layer *d = &e->layer[l];
        *d =
            (dev_layer){s->attn_norm, s->ffn_norm, s->q, s->k, s->v, s->o, s->gate, s->up, s->down};
        ls_mat *mats[] = {&d->q, &d->k, &d->v, &d->o, &d->gate, &d->up, &d->down};
        for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
            LS_TRY(lend_mat(e, mats[i], err));
            e->count.weight_bytes += mat_bytes(mats[i]);
        }
        LS_TRY(lend_vec(e, &d->attn_norm, err));
        LS_TRY(lend_vec(e, &d->ffn_norm, err));
    }
    return LS_OK;
}

/* Carves the tables out of one block; counts only when base is NULL. */
static size_t carve_tables(const ls_engine *e, int32_t *base, row_tables *t) {
    const size_t r = (size_t)e->o.max_rows;
    int32_t **rows[] = {&t->token,    &t->pos,       &t->slot,   &t->length, &t->base,
                        &t->table_at, &t->table_len, &t->prefix, &t->want};
    size_t at = 0;
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

/* cos and sin of pos * theta^(-2i/E) in double, rounded once. */
static ls_status take_angles(ls_engine *e, ls_err *err) {
    const size_t half = (size_t)e->head_dim / 2, n = (size_t)e->o.context * half;
    float *buf = malloc(2 * n * sizeof *buf);
    if (!buf)
        return ls_fail(err, LS_ERR_MEMORY, "engine: out of memory");
    for (size_t i = 0; i < half; i++) {
        const double f = pow(e->model->config.rope_theta, -2.0 * (double)i / e->head_dim);
        for (size_t p = 0; p < (size_t)e->o.context; p++) {
            buf[p * half + i] = (float)cos((double)p * f);
            buf[n + p * half + i] = (float)sin((double)p * f);
        }
    }
    ls_status s = e->be->alloc(e->be, n * sizeof *buf, &e->cos, err);
    if (s == LS_OK)
        s = e->be->alloc(e->be, n * sizeof *buf, &e->sin, err);
    if (s == LS_OK)
        s = e->be->upload(e->be, e->cos, buf, n * sizeof *buf, err);
    if (s == LS_OK)
        s = e->be->upload(e->be, e->sin, buf + n, n * sizeof *buf, err);
    free(buf);
    return s;
}

static ls_status take_scratch(ls_engine *e, ls_err *err) {
    const size_t r = (size_t)e->o.max_rows, d = (size_t)e->dim, f = (size_t)e->ffn;
    const size_t he = (size_t)e->n_heads * (size_t)e->head_dim;
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
        {&e->wanted, r * d * 4},
        {&e->logits, r * v * 4},
        {&e->prob, v * 4},
        {&e->warp, r * sizeof(ls_warp)},
        {&e->draw, r * sizeof(ls_draw)},
        {&e->stats, r * sizeof(ls_row_stats)},
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        LS_TRY(e->be->alloc(e->be, need[i].bytes, need[i].p, err));
    return LS_OK;
}

static ls_status fill_defaults(ls_engine *e, ls_engine_options o, ls_err *err) {
    const ls_config *c = &e->model->config;
    if (o.max_rows < 0 || o.max_seqs < 0 || o.context < 0 || o.block_rows < 0 || o.n_layers < 0 ||
        o.n_vocab < 0)
        return ls_fail(err, LS_ERR_INPUT, "engine: a size is negative");
    if (o.max_rows > LS_PASS_ROWS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "engine: %d rows a pass: at most %d", o.max_rows,
                       LS_PASS_ROWS_MAX);
    o.max_rows = o.max_rows ? o.max_rows : 64;
    o.max_seqs = o.max_seqs ? o.max_seqs : 1;
    o.context = o.context ? o.context : c->n_pos;
    if (o.context > c->n_pos)
        return ls_fail(err, LS_ERR_INPUT, "context %d is longer than the model's %d (%s)",
                       o.context, c->n_pos, e->model->dir);
    o.n_layers = o.n_layers ? o.n_layers : c->n_layers;
    o.n_vocab = o.n_vocab ? o.n_vocab : e->model->n_token;
    if (o.n_layers > c->n_layers || o.n_vocab > c->n_vocab)
        return ls_fail(err, LS_ERR_INPUT, "engine: %d layers or %d tokens are more than %s has",
                       o.n_layers, o.n_vocab, e->model->dir);
    if (o.chunk.min_keys == 0 && o.chunk.max_chunks == 0)
        o.chunk = (ls_chunk_rule){LS_CHUNK_EVEN, 32, 64};
    LS_TRY(ls_chunk_check(o.chunk, err));
    e->o = o;
    return LS_OK;
}

static ls_status build(ls_engine *e, ls_engine_options options, ls_err *err) {
    const ls_config *c = &e->model->config;
    LS_TRY(fill_defaults(e, options, err));
    e->n_heads = c->n_heads, e->n_kv = c->n_kv, e->head_dim = c->head_dim;
    e->dim = c->dim, e->ffn = c->ffn;
    e->scale = (float)(1.0 / sqrt((double)c->head_dim));
    e->max_chunks = ls_chunk_bound(e->o.chunk, e->o.context);
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
    LS_TRY(take_angles(e, err));
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
    void *dev[] = {e->dev_tables, e->cos,    e->sin,  e->x,    e->normed, e->q,
                   e->k,          e->v,      e->att,  e->gate, e->up,     e->part,
                   e->wanted,     e->logits, e->prob, e->warp, e->draw,   e->stats};
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        be->free(be, dev[i]);
    for (int32_t i = 0; i < e->n_lent; i++)
        be->weights_free(be, e->lent[i]);
    ls_kv_destroy(e->kv);
    free(e->layer);
    free(e->lent);
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

/* ---- the rows of a pass ----------------------------------------------------------------------- */

static ls_status check_tree_row(const ls_row *r, int32_t i, ls_err *err) {
    bool ok = r->n_prefix >= 0 && r->n_anc >= 1 && r->n_prefix <= r->index &&
              r->anc[r->n_anc - 1] == r->index;
    for (int32_t a = 0; ok && a < r->n_anc; a++)
        ok = r->anc[a] >= r->n_prefix && (a == 0 || r->anc[a] > r->anc[a - 1]);
    return ok ? LS_OK
              : ls_fail(
                    err, LS_ERR_SHAPE,
                    "pass: row %d: ancestors must ascend from the prefix of %d to its own index %d",
                    i, r->n_prefix, r->index);
}

/* Every row belongs: open sequence, known token, next free index, ancestors that exist. */
static ls_status check_rows(ls_engine *e, const ls_row *rows, int32_t n, ls_err *err) {
    if (n < 1 || n > e->o.max_rows)
        return ls_fail(err, LS_ERR_SHAPE, "pass: %d rows, from 1 to %d fit", n, e->o.max_rows);
    for (int32_t s = 0; s < e->o.max_seqs; s++) {
        e->seq_next[s] = ls_kv_len(e->kv, s);
        e->seq_table[s] = -1;
    }
    for (int32_t i = 0; i < n; i++) {
        const ls_row *r = &rows[i];
        if (r->seq < 0 || r->seq >= e->o.max_seqs || e->seq_next[r->seq] < 0)
            return ls_fail(err, LS_ERR_STATE, "pass: row %d: sequence %d is not open", i, r->seq);
        if (r->token < 0 || r->token >= e->embed.n_out)
            return ls_fail(err, LS_ERR_INPUT,
                           "pass: row %d: token %d is outside the vocabulary of %d", i, r->token,
                           e->embed.n_out);
        if (r->pos < 0 || r->pos >= e->o.context)
            return ls_fail(err, LS_ERR_FULL, "pass: row %d: position %d is past the context of %d",
                           i, r->pos, e->o.context);
        if (r->index != e->seq_next[r->seq]++)
            return ls_fail(err, LS_ERR_SHAPE, "pass: row %d: index %d, the next free one is %d", i,
                           r->index, e->seq_next[r->seq] - 1);
        if (r->anc)
            LS_TRY(check_tree_row(r, i, err));
    }
    for (int32_t s = 0; s < e->o.max_seqs; s++)
        if (e->seq_next[s] > ls_kv_len(e->kv, s))
            LS_TRY(ls_kv_reserve(e->kv, s, e->seq_next[s], err));
    return LS_OK;
}

/* Fills the host tables; true when some row is a tree row. */
static bool fill_tables(ls_engine *e, const ls_row *rows, int32_t n) {
    row_tables *t = &e->h;
    bool tree = false;
    int32_t n_table = 0;
    e->n_want = 0;
    for (int32_t i = 0; i < n; i++) {
        const ls_row *r = &rows[i];
        t->token[i] = r->token;
        t->pos[i] = r->pos;
        t->slot[i] = ls_kv_slot(e->kv, r->seq, r->index);
        t->length[i] = r->anc ? r->n_prefix + r->n_anc : r->index + 1;
        t->base[i] = ls_kv_base(e->kv, r->seq);
        t->prefix[i] = r->anc ? r->n_prefix : INT32_MAX;
        tree = tree || r->anc;
        for (int32_t a = 0; r->anc && a < r->n_anc; a++)
            t->anc[(size_t)i * (size_t)e->o.max_rows + (size_t)a] = r->anc[a];
        if (r->want)
            t->want[e->n_want++] = i;
        if (!e->o.block_rows)
            continue;
        int32_t len;
        const int32_t *table = ls_kv_table(e->kv, r->seq, &len);
        if (e->seq_table[r->seq] < 0) {
            memcpy(t->table + n_table, table, (size_t)len * sizeof *table);
            e->seq_table[r->seq] = n_table;
            n_table += len;
        }
        t->table_at[i] = e->seq_table[r->seq];
        t->table_len[i] = len;
    }
    return tree;
}

static ls_locator locator(const ls_engine *e, bool tree) {
    ls_locator loc = {.n_slots = ls_kv_slots(e->kv), .block_rows = e->o.block_rows};
    if (e->o.block_rows)
        loc.table = e->d.table, loc.table_at = e->d.table_at, loc.table_len = e->d.table_len;
    else
        loc.base = e->d.base;
    if (tree)
        loc.prefix = e->d.prefix, loc.anc = e->d.anc, loc.ld_anc = e->o.max_rows;
    return loc;
}

/* ---- the pass --------------------------------------------------------------------------------- */

static ls_status traced(ls_engine *e, int32_t layer, const char *op, const void *data,
                        int32_t n_rows, int32_t dim, ls_err *err) {
    if (!e->trace)
        return LS_OK;
    const size_t bytes = (size_t)n_rows * (size_t)dim * sizeof(float);
    float *buf = realloc(e->trace_buf, bytes ? bytes : 1);
    if (!buf)
        return ls_fail(err, LS_ERR_MEMORY, "trace: out of memory");
    e->trace_buf = buf;
    LS_TRY(e->be->sync(e->be, err));
    LS_TRY(e->be->download(e->be, buf, data, bytes, err));
    e->trace->fn(e->trace->self, layer, op, buf, n_rows, dim);
    return LS_OK;
}

static void linear(ls_engine *e, ls_mat w, const void *x, void *y, const void *add, int32_t n) {
    const ls_linear_args a = {.w = w, .x = x, .y = y, .add = add, .n_rows = n};
    e->be->linear(e->be, &a);
}

static void rmsnorm(ls_engine *e, ls_vec w, const void *x, void *y, int32_t n) {
    const ls_rmsnorm_args a = {.x = x,
                               .w = w.data,
                               .w_dtype = w.dtype,
                               .y = y,
                               .eps = e->model->config.rms_eps,
                               .n_rows = n,
                               .dim = e->dim};
    e->be->rmsnorm(e->be, &a);
}

static ls_status attention(ls_engine *e, int32_t l, const ls_locator *loc, int32_t n, ls_err *err) {
    const int32_t he = e->n_heads * e->head_dim, ge = e->n_kv * e->head_dim;
    const dev_layer *w = &e->layer[l];
    rmsnorm(e, w->attn_norm, e->x, e->normed, n);
    LS_TRY(traced(e, l, "attn_norm", e->normed, n, e->dim, err));
    linear(e, w->q, e->normed, e->q, NULL, n);
    linear(e, w->k, e->normed, e->k, NULL, n);
    linear(e, w->v, e->normed, e->v, NULL, n);
    LS_TRY(traced(e, l, "q_proj", e->q, n, he, err));
    LS_TRY(traced(e, l, "k_proj", e->k, n, ge, err));
    LS_TRY(traced(e, l, "v_proj", e->v, n, ge, err));
    const ls_rope_args rope = {.q = e->q,
                               .k = e->k,
                               .pos = e->d.pos,
                               .cos = e->cos,
                               .sin = e->sin,
                               .n_rows = n,
                               .n_heads = e->n_heads,
                               .n_kv = e->n_kv,
                               .head_dim = e->head_dim,
                               .n_pos = e->o.context};
    e->be->rope(e->be, &rope);
    LS_TRY(traced(e, l, "rope_q", e->q, n, he, err));
    LS_TRY(traced(e, l, "rope_k", e->k, n, ge, err));
    const ls_kv_store_args store = {.k = e->k,
                                    .v = e->v,
                                    .k_pool = ls_kv_pool_k(e->kv, l),
                                    .v_pool = ls_kv_pool_v(e->kv, l),
                                    .slot = e->d.slot,
                                    .kv_dtype = e->o.kv_dtype,
                                    .n_rows = n,
                                    .n_kv = e->n_kv,
                                    .head_dim = e->head_dim,
                                    .n_slots = loc->n_slots};
    e->be->kv_store(e->be, &store);
    const ls_attn_args attn = {.q = e->q,
                               .k_pool = store.k_pool,
                               .v_pool = store.v_pool,
                               .kv_dtype = e->o.kv_dtype,
                               .loc = *loc,
                               .length = e->d.length,
                               .rule = e->o.chunk,
                               .max_chunks = e->max_chunks,
                               .part = e->part,
                               .out = e->att,
                               .scale = e->scale,
                               .n_rows = n,
                               .n_heads = e->n_heads,
                               .n_kv = e->n_kv,
                               .head_dim = e->head_dim};
    e->be->attn(e->be, &attn);
    LS_TRY(traced(e, l, "attention", e->att, n, he, err));
    linear(e, w->o, e->att, e->x, e->x, n);
    return traced(e, l, "o_proj", e->x, n, e->dim, err);
}

static ls_status feed_forward(ls_engine *e, int32_t l, int32_t n, ls_err *err) {
    const dev_layer *w = &e->layer[l];
    rmsnorm(e, w->ffn_norm, e->x, e->normed, n);
    LS_TRY(traced(e, l, "ffn_norm", e->normed, n, e->dim, err));
    linear(e, w->gate, e->normed, e->gate, NULL, n);
    linear(e, w->up, e->normed, e->up, NULL, n);
    LS_TRY(traced(e, l, "gate_proj", e->gate, n, e->ffn, err));
    LS_TRY(traced(e, l, "up_proj", e->up, n, e->ffn, err));
    const ls_silu_mul_args silu = {
        .gate = e->gate, .up = e->up, .h = e->gate, .n_rows = n, .dim = e->ffn};
    e->be->silu_mul(e->be, &silu);
    LS_TRY(traced(e, l, "silu_mul", e->gate, n, e->ffn, err));
    linear(e, w->down, e->gate, e->x, e->x, n);
    return traced(e, l, "down_proj", e->x, n, e->dim, err);
}

static ls_status head(ls_engine *e, ls_err *err) {
    if (e->n_want == 0)
        return LS_OK;
    const ls_gather_args gather = {
        .x = e->x, .index = e->d.want, .y = e->wanted, .n = e->n_want, .dim = e->dim};
    e->be->gather(e->be, &gather);
    rmsnorm(e, e->norm, e->wanted, e->wanted, e->n_want);
    LS_TRY(traced(e, -1, "final_norm", e->wanted, e->n_want, e->dim, err));
    linear(e, e->head, e->wanted, e->logits, NULL, e->n_want);
    return traced(e, -1, "head", e->logits, e->n_want, e->o.n_vocab, err);
}

ls_status ls_pass(ls_engine *e, const ls_row *rows, int32_t n, ls_err *err) {
    LS_TRY(check_rows(e, rows, n, err));
    const bool tree = fill_tables(e, rows, n);
    const size_t used =
        tree ? e->tables_bytes : (size_t)((char *)e->h.anc - (char *)e->host_tables);
    LS_TRY(e->be->upload(e->be, e->dev_tables, e->host_tables, used, err));
    const ls_locator loc = locator(e, tree);
    const ls_embed_args embed = {.table = e->embed, .token = e->d.token, .x = e->x, .n_rows = n};
    e->be->embed(e->be, &embed);
    LS_TRY(traced(e, -1, "embed", e->x, n, e->dim, err));
    for (int32_t l = 0; l < e->o.n_layers; l++) {
        LS_TRY(attention(e, l, &loc, n, err));
        LS_TRY(feed_forward(e, l, n, err));
    }
    LS_TRY(head(e, err));
    LS_TRY(e->be->sync(e->be, err));
    for (int32_t i = 0; i < n; i++)
        ls_kv_append(e->kv, rows[i].seq, rows[i].index + 1);
    e->count.n_pass++;
    e->count.n_row += n;
    return LS_OK;
}

ls_status ls_prefill(ls_engine *e, int32_t seq, const int32_t *token, int32_t n, int32_t pos0,
                     ls_err *err) {
    ls_row *rows = malloc((size_t)e->o.max_rows * sizeof *rows);
    if (!rows)
        return ls_fail(err, LS_ERR_MEMORY, "prefill: out of memory");
    ls_status s = LS_OK;
    for (int32_t at = 0; s == LS_OK && at < n; at += e->o.max_rows) {
        const int32_t m = n - at < e->o.max_rows ? n - at : e->o.max_rows;
        for (int32_t i = 0; i < m; i++)
            rows[i] = ls_row_chain(seq, token[at + i], pos0 + at + i, false);
        s = ls_pass(e, rows, m, err);
    }
    free(rows);
    return s;
}

/* ---- what the last pass found ------------------------------------------------------------------ */

static ls_status check_wanted(const ls_engine *e, int32_t first, int32_t n, ls_err *err) {
    return first >= 0 && n >= 1 && n <= e->n_want - first
               ? LS_OK
               : ls_fail(err, LS_ERR_STATE, "pass: logits %d..%d were asked for, %d are there",
                         first, first + n - 1, e->n_want);
}

ls_status ls_pass_stats(ls_engine *e, int32_t first, int32_t n, const ls_warp *warp,
                        const ls_draw *draw, int32_t n_top, ls_row_stats *stats, ls_err *err) {
    ls_backend *be = e->be;
    LS_TRY(check_wanted(e, first, n, err));
    LS_TRY(be->upload(be, e->warp, warp, (size_t)n * sizeof *warp, err));
    LS_TRY(be->upload(be, e->draw, draw, (size_t)n * sizeof *draw, err));
    const ls_stats_args a = {.logits =
                                 (const float *)e->logits + (size_t)first * (size_t)e->o.n_vocab,
                             .ld_logits = e->o.n_vocab,
                             .n_vocab = e->o.n_vocab,
                             .warp = e->warp,
                             .draw = e->draw,
                             .n_top = n_top,
                             .stats = (ls_row_stats *)e->stats + first,
                             .n_rows = n};
    be->stats(be, &a);
    LS_TRY(be->sync(be, err));
    return be->download(be, stats, a.stats, (size_t)n * sizeof *stats, err);
}

ls_status ls_pass_logits(ls_engine *e, int32_t row, float *dst, ls_err *err) {
    LS_TRY(check_wanted(e, row, 1, err));
    const size_t v = (size_t)e->o.n_vocab;
    return e->be->download(e->be, dst, (const float *)e->logits + (size_t)row * v, v * sizeof *dst,
                           err);
}

ls_status ls_pass_probs(ls_engine *e, int32_t row, const ls_row_stats *stats, float *dst,
                        ls_err *err) {
    ls_backend *be = e->be;
    LS_TRY(check_wanted(e, row, 1, err));
    ls_row_stats *stats_d = (ls_row_stats *)e->stats + row;
    LS_TRY(be->upload(be, stats_d, stats, sizeof *stats, err));
    const ls_probs_args a = {.logits =
                                 (const float *)e->logits + (size_t)row * (size_t)e->o.n_vocab,
                             .stats = stats_d,
                             .prob = e->prob,
                             .ld_logits = e->o.n_vocab,
                             .n_vocab = e->o.n_vocab,
                             .n_rows = 1};
    be->probs(be, &a);
    LS_TRY(be->sync(be, err));
    return be->download(be, dst, e->prob, (size_t)e->o.n_vocab * sizeof *dst, err);
}

void ls_engine_trace(ls_engine *e, const ls_trace *trace) {
    e->trace = trace;
}
