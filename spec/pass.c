/* pass.c - the row pass of engine.h: tables, launches, recorded graphs, and what a pass found. */
#include <stdlib.h>
#include <string.h>

#include "engine_impl.h"

/* ---- the rows of a pass ---------------------------------------------------------------------- */

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
    int32_t n_want = 0;
    for (int32_t i = 0; i < n; i++)
        n_want += rows[i].want;
    if (n_want > e->o.max_want)
        return ls_fail(err, LS_ERR_SHAPE, "pass: logits of %d rows are wanted, %d fit", n_want,
                       e->o.max_want);
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
    *t->at = 0;
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

static void fill_draws(ls_engine *e, const ls_draws *draws) {
    int filters = 0;
    memcpy(e->h.warp, draws->warp, (size_t)e->n_want * sizeof *draws->warp);
    memcpy(e->h.draw, draws->draw, (size_t)e->n_want * sizeof *draws->draw);
    for (int32_t i = 0; i < e->n_want; i++)
        filters |= ls_warp_filters(&draws->warp[i], e->o.n_vocab);
    e->without = ~filters;
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

/* Bound of the chunks of rows that have at most so many keys. */
static int32_t chunks_of(const ls_engine *e, int32_t keys) {
    return e->max_chunks > LS_CHUNKS_FEW && ls_chunk_bound(e->o.chunk, keys) <= LS_CHUNKS_FEW
               ? LS_CHUNKS_FEW
               : e->max_chunks;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static ls_status traced(ls_engine *e, int32_t layer, const char *op, const void *data,
                        int32_t n_rows, int32_t dim, ls_err *err) {
    if (!e->trace)
        return LS_OK;
    const size_t bytes = (size_t)n_rows * (size_t)dim * sizeof(float);
    float *buf = realloc(e->trace_buf, bytes ? bytes : 1);
    if (!buf)
        return ls_fail(err, LS_ERR_MEMORY, "trace: out of memory");
    e->trace_buf = buf;
    LS_TRY(e->be->download(e->be, buf, data, bytes, err));
    e->trace->fn(e->trace->self, layer, op, buf, n_rows, dim);
    return LS_OK;
}

static ls_linear_args linear_of(ls_mat w, const void *x, void *y, const void *add, int32_t n) {
    return (ls_linear_args){.w = w, .x = x, .y = y, .add = add, .n_rows = n};
}

/* n rows of the weight's width: rows of the pass, or their heads. */
static ls_rmsnorm_args norm_of(ls_engine *e, ls_vec w, const void *x, void *y, int32_t n) {
    return (ls_rmsnorm_args){.x = x,
                             .w = w.data,
                             .w_dtype = w.dtype,
                             .y = y,
                             .eps = e->model->config.rms_eps,
                             .n_rows = n,
                             .dim = w.n};
}

/* Linears of the norm of x, by way of e->normed. What a trace shows of the norm is rmsnorm's own;
 * norm_linears may not need it. */
static ls_status norm_linears(ls_engine *e, int32_t l, const char *op, ls_vec w, const void *x,
                              const ls_linear_args *a, int32_t n_linears, ls_err *err) {
    const ls_rmsnorm_args norm = norm_of(e, w, x, e->normed, a->n_rows);
    if (e->trace)
        e->be->rmsnorm(e->be, &norm);
    LS_TRY(traced(e, l, op, e->normed, a->n_rows, w.n, err));
    e->be->norm_linears(e->be, &norm, a, n_linears);
    return LS_OK;
}

/* x += the norm of y, which a family with norms behind its blocks adds instead of y. */
static ls_status add_normed(ls_engine *e, int32_t l, const char *op, ls_vec w, const void *y,
                            int32_t n, ls_err *err) {
    ls_rmsnorm_args a = norm_of(e, w, y, e->x, n);
    a.add = e->x;
    e->be->rmsnorm(e->be, &a);
    return traced(e, l, op, e->x, n, w.n, err);
}

/* The linear at a block's end, added to the residual stream, by way of a norm where there is one;
 * `next` is the norm that reads the stream next. */
static ls_status add_block(ls_engine *e, int32_t l, const char *op, ls_mat w, const void *x,
                           const char *norm, ls_vec post, ls_vec next, int32_t n, ls_err *err) {
    void *y = post.data ? e->normed : e->x;
    ls_linear_args a = linear_of(w, x, y, post.data ? NULL : e->x, n);
    if (!post.data)
        a.next_w = next.data, a.next_dtype = next.dtype;
    e->be->linear(e->be, &a);
    LS_TRY(traced(e, l, op, y, n, e->dim, err));
    return post.data ? add_normed(e, l, norm, post, y, n, err) : LS_OK;
}

/* What a family does to a projection before the rotation: a bias, a norm of each head. */
static ls_status add_bias(ls_engine *e, int32_t l, const char *op, ls_vec b, void *y, int32_t n,
                          ls_err *err) {
    if (!b.data)
        return LS_OK;
    const ls_bias_args a = {.y = y, .b = b.data, .b_dtype = b.dtype, .n_rows = n, .dim = b.n};
    e->be->bias(e->be, &a);
    return traced(e, l, op, y, n, b.n, err);
}

static ls_status norm_heads(ls_engine *e, int32_t l, const char *op, ls_vec w, void *x,
                            int32_t n_heads, int32_t n, ls_err *err) {
    if (!w.data)
        return LS_OK;
    const ls_rmsnorm_args a = norm_of(e, w, x, x, n * n_heads);
    e->be->rmsnorm(e->be, &a);
    return traced(e, l, op, x, n, n_heads * w.n, err);
}

static ls_status attention(ls_engine *e, int32_t l, const ls_locator *loc, const pass_form *form,
                           ls_err *err) {
    const int32_t n = form->n_rows;
    const int32_t he = e->n_heads * e->head_dim, ge = e->n_kv * e->head_dim;
    const dev_layer *w = &e->layer[l];
    const ls_config *c = &e->model->config;
    const bool own = c->local[l] && e->cos_local; /* a rotation of its own */
    const int32_t window = c->local[l] ? c->window : 0;
    const ls_linear_args qkv[] = {linear_of(w->q, e->normed, e->q, NULL, n),
                                  linear_of(w->k, e->normed, e->k, NULL, n),
                                  linear_of(w->v, e->normed, e->v, NULL, n)};
    LS_TRY(norm_linears(e, l, "attn_norm", w->attn_norm, e->x, qkv, 3, err));
    LS_TRY(traced(e, l, "q_proj", e->q, n, he, err));
    LS_TRY(traced(e, l, "k_proj", e->k, n, ge, err));
    LS_TRY(traced(e, l, "v_proj", e->v, n, ge, err));
    LS_TRY(add_bias(e, l, "q_bias", w->q_bias, e->q, n, err));
    LS_TRY(add_bias(e, l, "k_bias", w->k_bias, e->k, n, err));
    LS_TRY(add_bias(e, l, "v_bias", w->v_bias, e->v, n, err));
    LS_TRY(norm_heads(e, l, "q_norm", w->q_norm, e->q, e->n_heads, n, err));
    LS_TRY(norm_heads(e, l, "k_norm", w->k_norm, e->k, e->n_kv, n, err));
    const ls_rope_args rope = {.q = e->q,
                               .k = e->k,
                               .pos = e->d.pos,
                               .cos = own ? e->cos_local : e->cos,
                               .sin = own ? e->sin_local : e->sin,
                               .n_rows = n,
                               .n_heads = e->n_heads,
                               .n_kv = e->n_kv,
                               .head_dim = e->head_dim,
                               .n_pos = e->o.context};
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
    const ls_attn_args attn = {.q = e->q,
                               .k_pool = store.k_pool,
                               .v_pool = store.v_pool,
                               .kv_dtype = e->o.kv_dtype,
                               .loc = *loc,
                               .length = e->d.length,
                               .window = window,
                               .rule = e->o.chunk,
                               .max_chunks = window ? e->max_chunks_local : form->max_chunks,
                               .part = e->part,
                               .out = e->att,
                               .scale = e->scale,
                               .n_rows = n,
                               .n_heads = e->n_heads,
                               .n_kv = e->n_kv,
                               .head_dim = e->head_dim};
    if (e->trace) { /* place_attn keeps to itself what rope gives */
        e->be->place(e->be, &rope, &store);
        LS_TRY(traced(e, l, "rope_q", e->q, n, he, err));
        LS_TRY(traced(e, l, "rope_k", e->k, n, ge, err));
        e->be->attn(e->be, &attn);
    } else {
        e->be->place_attn(e->be, &rope, &store, &attn);
    }
    LS_TRY(traced(e, l, "attention", e->att, n, he, err));
    return add_block(e, l, "o_proj", w->o, e->att, "attn_post_norm", w->attn_post, w->ffn_norm, n,
                     err);
}

static ls_status feed_forward(ls_engine *e, int32_t l, int32_t n, ls_err *err) {
    const dev_layer *w = &e->layer[l];
    const ls_linear_args both[] = {linear_of(w->gate, e->normed, e->gate, NULL, n),
                                   linear_of(w->up, e->normed, e->up, NULL, n)};
    const ls_silu_mul_args gate = {
        .gate = e->gate, .up = e->up, .h = e->gate, .n_rows = n, .dim = e->ffn};
    const bool gelu = e->model->config.gelu;
    if (e->trace) { /* one operation after the other: it shows them all */
        LS_TRY(norm_linears(e, l, "ffn_norm", w->ffn_norm, e->x, both, 2, err));
        LS_TRY(traced(e, l, "gate_proj", e->gate, n, e->ffn, err));
        LS_TRY(traced(e, l, "up_proj", e->up, n, e->ffn, err));
        (gelu ? e->be->gelu_mul : e->be->silu_mul)(e->be, &gate);
    } else {
        const ls_rmsnorm_args norm = norm_of(e, w->ffn_norm, e->x, e->normed, n);
        e->be->norm_gates(e->be, &norm, both, &gate, gelu);
    }
    LS_TRY(traced(e, l, gelu ? "gelu_mul" : "silu_mul", e->gate, n, e->ffn, err));
    /* behind the last layer rows are gathered first */
    const ls_vec next = l + 1 < e->o.n_layers ? e->layer[l + 1].attn_norm : (ls_vec){0};
    return add_block(e, l, "down_proj", w->down, e->gate, "ffn_post_norm", w->ffn_post, next, n,
                     err);
}

static ls_status head(ls_engine *e, ls_err *err) {
    if (e->n_want == 0)
        return LS_OK;
    const ls_gather_args gather = {
        .x = e->x, .index = e->d.want, .y = e->wanted, .n = e->n_want, .dim = e->dim};
    e->be->gather(e->be, &gather);
    const ls_linear_args a = linear_of(e->head, e->normed, e->logits, NULL, e->n_want);
    LS_TRY(norm_linears(e, -1, "final_norm", e->norm, e->wanted, &a, 1, err));
    return traced(e, -1, "head", e->logits, e->n_want, e->o.n_vocab, err);
}

/* Statistics and draws of the wanted rows. */
static void draw(ls_engine *e, const pass_form *form) {
    const ls_stats_args a = {.logits = e->logits,
                             .ld_logits = e->o.n_vocab,
                             .n_vocab = e->o.n_vocab,
                             .warp = e->d.warp,
                             .draw = e->d.draw,
                             .n_top = form->n_top,
                             .stats = e->result->stats,
                             .n_rows = e->n_want,
                             .without = form->without,
                             .part = e->stats_part};
    e->be->stats(e->be, &a);
}

/* All launches of a pass; the tables are on the device. */
static ls_status launch(ls_engine *e, const pass_form *form, ls_err *err) {
    const int32_t n = form->n_rows;
    const ls_locator loc = locator(e, form->tree);
    const ls_embed_args embed = {
        .table = e->embed, .token = e->d.token, .x = e->x, .n_rows = n, .scale = e->embed_scale};
    e->be->embed(e->be, &embed);
    LS_TRY(traced(e, -1, "embed", e->x, n, e->dim, err));
    for (int32_t l = 0; l < e->o.n_layers; l++) {
        LS_TRY(attention(e, l, &loc, form, err));
        LS_TRY(feed_forward(e, l, n, err));
    }
    LS_TRY(head(e, err));
    if (form->drawn && e->n_want > 0)
        draw(e, form);
    return LS_OK;
}

static ls_status record(ls_engine *e, recorded *r, ls_err *err) {
    if (r->graph)
        e->be->graph_free(e->be, r->graph);
    r->graph = NULL;
    LS_TRY(e->be->record(e->be, err));
    const ls_status s = launch(e, &r->form, err);
    ls_status end = e->be->record_end(e->be, &r->graph, s == LS_OK ? err : NULL);
    if (s != LS_OK || end != LS_OK)
        return s != LS_OK ? s : end;
    end = e->be->status(e->be, err); /* a launch that was refused is missing in the graph */
    if (end != LS_OK) {
        e->be->graph_free(e->be, r->graph);
        r->graph = NULL;
    }
    return end;
}

static bool same_form(const pass_form *a, const pass_form *b) {
    return a->n_rows == b->n_rows && a->n_want == b->n_want && a->tree == b->tree &&
           a->drawn == b->drawn && a->n_top == b->n_top && a->without == b->without &&
           a->max_chunks == b->max_chunks;
}

/* Passes that give logits come again and again: their launches are recorded once and replayed. */
static ls_status run(ls_engine *e, const pass_form *form, ls_err *err) {
    if (!e->be->record || e->o.eager || e->trace || e->n_want == 0)
        return launch(e, form, err);
    const int32_t known = e->n_graph < LS_GRAPHS ? e->n_graph : LS_GRAPHS;
    recorded *r = NULL;
    for (int32_t i = 0; i < known && !r; i++)
        if (same_form(&e->graph[i].form, form))
            r = &e->graph[i];
    if (!r) {
        r = &e->graph[e->n_graph++ % LS_GRAPHS];
        r->form = *form;
        const ls_status s = record(e, r, err);
        if (s != LS_OK) {
            r->form.n_rows = 0;
            return s;
        }
    }
    return e->be->replay(e->be, r->graph, err);
}

static ls_status ran(ls_engine *e, int32_t n, ls_err *err) {
    e->count.n_pass++;
    e->count.n_row += n;
    return e->be->status(e->be, err);
}

ls_status ls_pass_after(ls_engine *e, const ls_row *rows, int32_t n, const ls_row_stats *chain,
                        int32_t n_chain, const ls_draws *draws, ls_err *err) {
    if (n_chain < 0 || n_chain >= n || n_chain > LS_CHAIN_MAX)
        return ls_fail(err, LS_ERR_SHAPE, "pass: %d of %d rows from a chain", n_chain, n);
    LS_TRY(check_rows(e, rows, n, err));
    const bool tree = fill_tables(e, rows, n);
    if (draws)
        fill_draws(e, draws);
    const size_t anc = tree ? (size_t)n * (size_t)e->o.max_rows : 0;
    const size_t used = (size_t)((char *)(e->h.anc + anc) - (char *)e->host_tables);
    LS_TRY(e->be->upload(e->be, e->dev_tables, e->host_tables, used, err));
    if (n_chain) {
        const ls_take_args take = {.chain = chain,
                                   .token = e->d.token + (n - n_chain),
                                   .copy = e->result->draft,
                                   .n = n_chain};
        e->be->take(e->be, &take);
    }
    int32_t keys = 0;
    for (int32_t i = 0; i < n; i++)
        keys = e->h.length[i] > keys ? e->h.length[i] : keys;
    const pass_form form = {.n_rows = n,
                            .max_chunks = chunks_of(e, keys),
                            .n_want = e->n_want,
                            .tree = tree,
                            .drawn = draws != NULL,
                            .n_top = draws ? draws->n_top : 0,
                            .without = draws ? e->without : 0};
    LS_TRY(run(e, &form, err));
    LS_TRY(ran(e, n, err));
    for (int32_t i = 0; i < n; i++)
        ls_kv_append(e->kv, rows[i].seq, rows[i].index + 1);
    return LS_OK;
}

ls_status ls_pass(ls_engine *e, const ls_row *rows, int32_t n, ls_err *err) {
    return ls_pass_after(e, rows, n, NULL, 0, NULL, err);
}

ls_status ls_pass_drawn(ls_engine *e, const ls_row *rows, int32_t n, const ls_draws *draws,
                        ls_err *err) {
    return ls_pass_after(e, rows, n, NULL, 0, draws, err);
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

/* ---- what the last pass found ---------------------------------------------------------------- */

static ls_status check_wanted(const ls_engine *e, int32_t first, int32_t n, ls_err *err) {
    return first >= 0 && n >= 1 && n <= e->n_want - first
               ? LS_OK
               : ls_fail(err, LS_ERR_STATE, "pass: logits %d..%d were asked for, %d are there",
                         first, first + n - 1, e->n_want);
}

ls_status ls_pass_accept(ls_engine *e, const ls_accept *how, ls_err *err) {
    LS_TRY(check_wanted(e, 0, how->n + 1, err));
    const ls_accept_args a = {.kind = how->kind,
                              .token = e->d.token + 1,
                              .target = e->result->stats,
                              .draft = how->chain ? e->result->draft : NULL,
                              .logits = e->logits,
                              .draft_logits = how->chain_logits,
                              .weight = e->prob,
                              .out = &e->result->verdict,
                              .ld_logits = e->o.n_vocab,
                              .ld_draft = how->ld_chain,
                              .n_vocab = e->o.n_vocab,
                              .n = how->n,
                              .seed = how->seed,
                              .sequence = how->sequence,
                              .position = how->position,
                              .part = e->stats_part};
    e->be->accept(e->be, &a);
    return e->be->status(e->be, err);
}

ls_status ls_pass_result(ls_engine *e, ls_row_stats *draft, int32_t n_draft,
                         ls_verdict_set *verdict, ls_row_stats *stats, int32_t n, ls_err *err) {
    LS_TRY(check_wanted(e, 0, n, err));
    ls_result *h = e->result_host;
    /* from the drafts, or from the verdict on, to the last row: one piece */
    const size_t from = n_draft ? 0 : offsetof(ls_result, verdict);
    const size_t to = offsetof(ls_result, stats) + (size_t)n * sizeof *stats;
    LS_TRY(
        e->be->download(e->be, (char *)h + from, (const char *)e->result + from, to - from, err));
    if (n_draft)
        memcpy(draft, h->draft, (size_t)n_draft * sizeof *draft);
    if (verdict)
        *verdict = h->verdict;
    memcpy(stats, (const char *)h + offsetof(ls_result, stats), (size_t)n * sizeof *stats);
    return LS_OK;
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
    ls_row_stats *stats_d = e->result->stats + row;
    LS_TRY(be->upload(be, stats_d, stats, sizeof *stats, err));
    const ls_probs_args a = {.logits =
                                 (const float *)e->logits + (size_t)row * (size_t)e->o.n_vocab,
                             .stats = stats_d,
                             .prob = e->prob,
                             .ld_logits = e->o.n_vocab,
                             .n_vocab = e->o.n_vocab,
                             .n_rows = 1};
    be->probs(be, &a);
    return be->download(be, dst, e->prob, (size_t)e->o.n_vocab * sizeof *dst, err);
}

/* ---- chains ---------------------------------------------------------------------------------- */

ls_status ls_chain_feed(ls_engine *e, int32_t row, bool keep, ls_err *err) {
    ls_backend *be = e->be;
    LS_TRY(check_wanted(e, 0, 1, err));
    if (row < 0 || row >= e->o.max_rows)
        return ls_fail(err, LS_ERR_SHAPE, "chain: row %d of a pass of at most %d", row,
                       e->o.max_rows);
    if (keep && !e->chain_logits) {
        void *d;
        LS_TRY(be->alloc(be, LS_CHAIN_MAX * (size_t)e->o.n_vocab * sizeof(float), &d, err));
        e->chain_logits = d;
    }
    if (keep) {
        const ls_keep_args a = {.x = e->logits,
                                .at = e->d.at,
                                .y = e->chain_logits,
                                .n = LS_CHAIN_MAX,
                                .dim = e->o.n_vocab};
        be->keep(be, &a);
    }
    const ls_feed_args a = {.stats = e->result->stats,
                            .chain = e->chain,
                            .at = e->d.at,
                            .token = e->d.token,
                            .pos = e->d.pos,
                            .slot = e->d.slot,
                            .length = e->d.length,
                            .loc = locator(e, false),
                            .draw = e->d.draw,
                            .row = row,
                            .n = LS_CHAIN_MAX};
    be->feed(be, &a);
    return be->status(be, err);
}

ls_status ls_chain_pass(ls_engine *e, int32_t seq, int32_t n_top, ls_err *err) {
    const int32_t index = ls_kv_len(e->kv, seq);
    if (index < 0 || ls_kv_slot(e->kv, seq, index) < 0 || index >= e->o.context)
        return ls_fail(err, LS_ERR_FULL, "chain: row %d of sequence %d was not reserved", index,
                       seq);
    e->n_want = 1;
    if (e->h.want[0] != 0) { /* of a pass of one row, row 0 */
        e->h.want[0] = 0;
        LS_TRY(e->be->upload(e->be, e->d.want, e->h.want, sizeof *e->h.want, err));
    }
    const pass_form form = {.n_rows = 1,
                            .max_chunks = chunks_of(e, index + 1),
                            .n_want = 1,
                            .drawn = true,
                            .n_top = n_top,
                            .without = e->without};
    LS_TRY(run(e, &form, err));
    LS_TRY(ran(e, 1, err));
    ls_kv_append(e->kv, seq, index + 1);
    return LS_OK;
}

const ls_row_stats *ls_chain_stats(const ls_engine *e) {
    return e->chain;
}
const float *ls_chain_logits(const ls_engine *e) {
    return e->chain_logits;
}

void ls_engine_trace(ls_engine *e, const ls_trace *trace) {
    e->trace = trace;
}
