/* check.h - whether the arguments of an operation belong together: the same questions and the same
 * lines on every device. What only the device knows (lengths, slots, tokens) is not asked here.
 * Errors   LS_ERR_SHAPE with one line; LS_OK leaves err alone.
 * Threads  pure functions of the arguments. */
#ifndef LS_CHECK_H
#define LS_CHECK_H

#include "backend.h"
#include "tile_limits.h"

#define LS_CHECK_FN static inline LS_CHECK_UNUSED ls_status
#if defined(__GNUC__)
#define LS_CHECK_UNUSED __attribute__((unused))
#else
#define LS_CHECK_UNUSED
#endif

#define LS_REFUSE(wrong, ...)                               \
    do {                                                    \
        if (wrong)                                          \
            return ls_fail(err, LS_ERR_SHAPE, __VA_ARGS__); \
    } while (0)

static inline LS_CHECK_UNUSED int ls_known_dtype(ls_dtype t) {
    return t == LS_F32 || t == LS_BF16 || t == LS_F16;
}

/* Matrices may be packed as well: then a row is whole blocks. */
LS_CHECK_FN ls_check_mat(const ls_mat *m, ls_err *err) {
    const int packed = m->dtype == LS_Q8_0 || m->dtype == LS_Q4_K;
    LS_REFUSE(m->n_in < 1 || m->n_out < 0 || !(packed || ls_known_dtype(m->dtype)),
              "weights [%d, %d]", (int)m->n_out, (int)m->n_in);
    LS_REFUSE(m->n_in % (int32_t)ls_dtype_block(m->dtype) != 0,
              "weights [%d, %d]: rows of %s are multiples of %d", (int)m->n_out, (int)m->n_in,
              ls_dtype_name(m->dtype), (int)ls_dtype_block(m->dtype));
    return LS_OK;
}

LS_CHECK_FN ls_check_linear(const ls_linear_args *a, ls_err *err) {
    LS_REFUSE(a->n_rows < 0, "linear: %d rows", (int)a->n_rows);
    const ls_status s = ls_check_mat(&a->w, err);
    return s == LS_OK ? s : ls_fail_in(err, s, "linear");
}

LS_CHECK_FN ls_check_linears(int32_t n, ls_err *err) {
    LS_REFUSE(n < 0 || n > LS_LINEARS, "linears: %d at once, at most %d", (int)n, LS_LINEARS);
    return LS_OK;
}

LS_CHECK_FN ls_check_embed(const ls_embed_args *a, ls_err *err) {
    LS_REFUSE(a->n_rows < 0, "embed: %d rows", (int)a->n_rows);
    const ls_status s = ls_check_mat(&a->table, err);
    return s == LS_OK ? s : ls_fail_in(err, s, "embed");
}

LS_CHECK_FN ls_check_rmsnorm(const ls_rmsnorm_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->dim > LS_NORM_SEGMENTS * LS_SEGMENT || a->n_rows < 0 ||
                  !ls_known_dtype(a->w_dtype),
              "rmsnorm: %d rows of %d, must be 1 to %d wide", (int)a->n_rows, (int)a->dim,
              LS_NORM_SEGMENTS * LS_SEGMENT);
    return LS_OK;
}

LS_CHECK_FN ls_check_norm_linears(const ls_rmsnorm_args *norm, const ls_linear_args *a, int32_t n,
                                  ls_err *err) {
    LS_REFUSE(norm->add != NULL, "norm of linears: adds to its row");
    for (int32_t i = 0; i < n; i++)
        LS_REFUSE(a[i].x != norm->y || a[i].n_rows != norm->n_rows || a[i].w.n_in != norm->dim,
                  "linears of a norm: number %d reads [%d, %d], the norm writes [%d, %d]", (int)i,
                  (int)a[i].n_rows, (int)a[i].w.n_in, (int)norm->n_rows, (int)norm->dim);
    const ls_status s = ls_check_rmsnorm(norm, err);
    return s == LS_OK ? ls_check_linears(n, err) : s;
}

LS_CHECK_FN ls_check_bias(const ls_bias_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->n_rows < 0 || !ls_known_dtype(a->b_dtype), "bias: %d rows of %d",
              (int)a->n_rows, (int)a->dim);
    return LS_OK;
}

LS_CHECK_FN ls_check_rope(const ls_rope_args *a, ls_err *err) {
    LS_REFUSE(a->head_dim < 2 || a->head_dim % 2 || a->head_dim > LS_HEAD_DIM_MAX ||
                  a->n_heads < 0 || a->n_kv < 0 || a->n_rows < 0,
              "rope: head width %d must be even, 2 to %d", (int)a->head_dim, LS_HEAD_DIM_MAX);
    return LS_OK;
}

LS_CHECK_FN ls_check_kv_store(const ls_kv_store_args *a, ls_err *err) {
    LS_REFUSE(a->n_kv < 1 || a->head_dim < 1 || a->n_rows < 0 || !ls_known_dtype(a->kv_dtype),
              "kv_store: %d rows of [%d, %d]", (int)a->n_rows, (int)a->n_kv, (int)a->head_dim);
    return LS_OK;
}

LS_CHECK_FN ls_check_place(const ls_rope_args *a, const ls_kv_store_args *b, ls_err *err) {
    LS_TRY(ls_check_rope(a, err));
    LS_TRY(ls_check_kv_store(b, err));
    LS_REFUSE(a->n_rows != b->n_rows || a->n_kv != b->n_kv || a->head_dim != b->head_dim ||
                  a->k != b->k,
              "place: rope and store are not of the same keys");
    return LS_OK;
}

LS_CHECK_FN ls_check_silu_mul(const ls_silu_mul_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->n_rows < 0, "silu_mul: %d rows of %d", (int)a->n_rows, (int)a->dim);
    return LS_OK;
}

LS_CHECK_FN ls_check_gelu_mul(const ls_gelu_mul_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->n_rows < 0, "gelu_mul: %d rows of %d", (int)a->n_rows, (int)a->dim);
    return LS_OK;
}

LS_CHECK_FN ls_check_gather(const ls_gather_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->n < 0, "gather: %d rows of %d", (int)a->n, (int)a->dim);
    return LS_OK;
}

/* Row r of `length` keys has n chunks: only its length tells, which a device finds out late. */
LS_CHECK_FN ls_check_chunks(const ls_attn_args *a, int32_t r, int32_t length, int32_t n,
                            ls_err *err) {
    LS_REFUSE(n > a->max_chunks || n > LS_CHUNKS_MAX,
              "attention: row %d of %d keys has %d chunks, scratch holds %d (at most %d)", (int)r,
              (int)length, (int)n, (int)a->max_chunks, LS_CHUNKS_MAX);
    return LS_OK;
}

LS_CHECK_FN ls_check_attn(const ls_attn_args *a, ls_err *err) {
    ls_err why;
    LS_REFUSE(a->head_dim < 2 || a->head_dim % 2 || a->head_dim > LS_HEAD_DIM_MAX || a->n_kv < 1 ||
                  a->n_heads < 1 || a->n_heads % a->n_kv || a->n_rows < 0 ||
                  !ls_known_dtype(a->kv_dtype),
              "attention: %d query heads, %d key heads of width %d (even, at most %d)",
              (int)a->n_heads, (int)a->n_kv, (int)a->head_dim, LS_HEAD_DIM_MAX);
    LS_REFUSE(ls_chunk_check(a->rule, &why) != LS_OK, "attention: %s", why.msg);
    LS_REFUSE(!a->loc.base && a->loc.block_rows < 1, "attention: blocks of %d rows",
              (int)a->loc.block_rows);
    LS_REFUSE(a->window < 0, "attention: a window of %d keys", (int)a->window);
    return LS_OK;
}

LS_CHECK_FN ls_check_place_attn(const ls_rope_args *rope, const ls_kv_store_args *store,
                                const ls_attn_args *a, ls_err *err) {
    LS_TRY(ls_check_place(rope, store, err));
    LS_REFUSE(rope->q != a->q || rope->n_rows != a->n_rows || rope->n_heads != a->n_heads ||
                  rope->n_kv != a->n_kv || rope->head_dim != a->head_dim ||
                  store->k_pool != a->k_pool || store->v_pool != a->v_pool ||
                  store->kv_dtype != a->kv_dtype || store->n_slots != a->loc.n_slots,
              "attention of placed rows: not of the same rows, heads and cache");
    return ls_check_attn(a, err);
}

LS_CHECK_FN ls_check_stats(const ls_stats_args *a, ls_err *err) {
    LS_REFUSE(a->n_vocab < 1 || a->n_vocab > LS_STAT_SEGMENTS * LS_SEGMENT ||
                  a->ld_logits < a->n_vocab,
              "statistics: %d tokens in rows of %d, must be 1 to %d", (int)a->n_vocab,
              (int)a->ld_logits, LS_STAT_SEGMENTS * LS_SEGMENT);
    LS_REFUSE(a->n_top < 0 || a->n_top > LS_TOP_MAX || a->n_rows < 0,
              "statistics: a list of %d tokens, must be 0 to %d", (int)a->n_top, LS_TOP_MAX);
    return LS_OK;
}

LS_CHECK_FN ls_check_probs(const ls_probs_args *a, ls_err *err) {
    LS_REFUSE(a->n_vocab < 1 || a->ld_logits < a->n_vocab || a->n_rows < 0,
              "probabilities: %d tokens in rows of %d", (int)a->n_vocab, (int)a->ld_logits);
    return LS_OK;
}

LS_CHECK_FN ls_check_choose(const ls_choose_args *a, ls_err *err) {
    LS_REFUSE(a->n_vocab < 1 || a->n_vocab > LS_STAT_SEGMENTS * LS_SEGMENT || a->n_rows < 0,
              "choose: %d tokens, must be 1 to %d", (int)a->n_vocab, LS_STAT_SEGMENTS * LS_SEGMENT);
    return LS_OK;
}

LS_CHECK_FN ls_check_spans(int32_t n, ls_err *err) {
    LS_REFUSE(n < 0, "read: %d spans", (int)n);
    return LS_OK;
}

LS_CHECK_FN ls_check_keep(const ls_keep_args *a, ls_err *err) {
    LS_REFUSE(a->dim < 1 || a->n < 0, "keep: one of %d rows of %d", (int)a->n, (int)a->dim);
    return LS_OK;
}

LS_CHECK_FN ls_check_feed(const ls_feed_args *a, ls_err *err) {
    LS_REFUSE(a->row < 0 || a->n < 0, "feed: row %d into a chain of %d", (int)a->row, (int)a->n);
    LS_REFUSE(!a->loc.base && a->loc.block_rows < 1, "feed: blocks of %d rows",
              (int)a->loc.block_rows);
    return LS_OK;
}

LS_CHECK_FN ls_check_take(const ls_take_args *a, ls_err *err) {
    LS_REFUSE(a->n < 0, "take: %d rows", (int)a->n);
    return LS_OK;
}

LS_CHECK_FN ls_check_accept(const ls_accept_args *a, ls_err *err) {
    LS_REFUSE(a->kind != LS_ACCEPT_EXACT && a->kind != LS_ACCEPT_REJECTION,
              "accept: no rule of kind %d", (int)a->kind);
    LS_REFUSE(a->n < 0, "accept: %d drafts", (int)a->n);
    if (a->kind == LS_ACCEPT_REJECTION && a->n > 0) {
        LS_REFUSE(a->n_vocab < 1 || a->n_vocab > LS_STAT_SEGMENTS * LS_SEGMENT,
                  "accept: %d tokens, must be 1 to %d", (int)a->n_vocab,
                  LS_STAT_SEGMENTS * LS_SEGMENT);
        LS_REFUSE(a->ld_logits < a->n_vocab || (a->draft && a->ld_draft < a->n_vocab),
                  "accept: %d tokens in rows of %d and %d", (int)a->n_vocab, (int)a->ld_logits,
                  (int)a->ld_draft);
        LS_REFUSE(a->draft && !a->draft_logits, "accept: drafts without their logits");
    }
    return LS_OK;
}

#endif
