/* engine_impl.h - the inside of an engine, for engine.c (what it owns) and pass.c (what it
 * runs). */
#ifndef LS_ENGINE_IMPL_H
#define LS_ENGINE_IMPL_H

#include "engine.h"

/* Weights as the device reads them. */
typedef struct dev_layer {
    ls_vec attn_norm, ffn_norm;
    ls_vec q_bias, k_bias, v_bias, q_norm, k_norm; /* data NULL where the family has none */
    ls_vec attn_post, ffn_post;                    /* likewise */
    ls_mat q, k, v, o, gate, up, down;
} dev_layer;

/* The tables of a pass, host side and device side, laid out alike: one upload a pass. */
typedef struct row_tables {
    int32_t *at;   /* [1] entries of the chain so far: every upload makes it 0 */
    ls_warp *warp; /* [max_want] of the wanted rows, where they are drawn for */
    ls_draw *draw; /* likewise */
    int32_t *token, *pos, *slot, *length, *base, *table_at, *table_len, *prefix, *want; /* [R] */
    int32_t *table; /* [max_seqs * blocks a sequence] */
    int32_t *anc;   /* [R, R], last: only a tree needs it uploaded */
} row_tables;

/* What a round leaves on the device, in the order in which one download brings it. */
typedef struct ls_result {
    ls_row_stats draft[LS_CHAIN_MAX];
    ls_verdict_set verdict;
    ls_row_stats stats[1]; /* [max_want] */
} ls_result;

/* What the launches of a pass depend on besides the device's tables. */
typedef struct pass_form {
    int32_t n_rows, n_want;
    bool tree, drawn;
    int32_t n_top, without; /* where drawn */
    int32_t max_chunks;     /* of any row: few, or as many as fit the context */
} pass_form;

/* A recorded pass. */
#define LS_GRAPHS 96
typedef struct recorded {
    pass_form form;
    ls_graph *graph;
} recorded;

struct ls_engine {
    const ls_model *model;
    ls_backend *be;
    ls_engine_options o;
    int32_t n_heads, n_kv, head_dim, dim, ffn;
    float scale, embed_scale; /* of scores; of embeddings, 0: none */
    ls_kv *kv;
    ls_mat embed, head;
    ls_vec norm;
    dev_layer *layer;
    const void **lent; /* what be->weights gave, to hand back */
    ls_mat *mat;       /* what be->mat gave */
    int32_t n_lent, n_mat;

    int32_t max_chunks, table_cap;
    int32_t max_chunks_local; /* of layers with a window */
    int32_t *host_tables;
    void *dev_tables;
    size_t tables_bytes;
    row_tables h, d;
    void *cos, *sin;
    void *cos_local, *sin_local; /* NULL: local layers rotate as the others */
    void *x, *normed, *q, *k, *v, *att, *gate, *up, *part, *wanted, *logits, *prob;
    void *stats_part;       /* scratch of statistics and verdicts */
    int32_t without;        /* filters that no warp of the last draws asks for */
    ls_result *result;      /* device */
    ls_result *result_host; /* where it is downloaded to */
    ls_row_stats *chain;    /* device [LS_CHAIN_MAX] */
    float *chain_logits;    /* device [LS_CHAIN_MAX, n_vocab], made when first wanted */

    int32_t n_want;    /* wanted rows of the last pass */
    int32_t *seq_next; /* [max_seqs] scratch of check_rows: next index of the sequence */
    int32_t
        *seq_table; /* [max_seqs] where the sequence's table begins in this pass, -1 = not yet */
    const ls_trace *trace;
    float *trace_buf;
    ls_engine_counts count;
    recorded graph[LS_GRAPHS];
    int32_t n_graph; /* recorded so far; the oldest makes room */
};

#endif
