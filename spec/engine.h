/* engine.h - one model on one device: weights, cache, scratch, and the row pass.
 * The pass    decode is one row, verification of g drafts g + 1 rows, a tree its nodes, a prompt
 *             chunks of rows, a batch the rows of many sequences. There is no other code path.
 * Exactness   every result of a row is bit for bit what the row would have given alone.
 * Errors      LS_ERR_SHAPE for a row that does not belong; LS_ERR_FULL past the context; nothing is
 *             appended to the cache on error.
 * Device      passes, draws, chains and verdicts are put in the backend's order of work and not
 *             waited for; what asks for numbers in host memory waits.
 * Memory      taken at create; a pass allocates nothing (a chain that keeps logits does, once). The
 *             model and the backend are borrowed.
 * Threads     one owner. */
#ifndef LS_ENGINE_H
#define LS_ENGINE_H

#include <stdbool.h>

#include "backend.h"
#include "kv.h"
#include "model.h"

#define LS_PASS_ROWS_MAX LS_ROWS_MAX
#define LS_CHAIN_MAX 64 /* passes of one chain */

typedef struct ls_engine ls_engine;

typedef struct ls_engine_options {
    int32_t max_rows;    /* most rows of one pass; 0 = 64, at most LS_PASS_ROWS_MAX */
    int32_t max_want;    /* most of them whose logits are wanted; 0 = 65, at most max_rows */
    int32_t max_seqs;    /* 0 = 1 */
    int32_t context;     /* 0 = the model's */
    int32_t block_rows;  /* 0 = contiguous cache */
    ls_dtype kv_dtype;   /* LS_F32 (default) or LS_BF16 */
    ls_chunk_rule chunk; /* zero = the profile's */
    int32_t n_layers;    /* first layers only; 0 = all */
    int32_t n_vocab;     /* tokens that exist (padded vocabularies); 0 = the model's */
    int32_t poison;      /* see kv.h */
    int32_t eager;       /* launch every pass anew where the device could replay it */
    ls_load load;        /* told, a layer at a time, of weights that are brought to the device */
} ls_engine_options;

/* One token at one position of one sequence. */
typedef struct ls_row {
    int32_t seq;
    int32_t token;
    int32_t pos;   /* rotary position */
    int32_t index; /* logical cache index the row writes; a chain: index = pos */
    /* A tree row reads keys 0..n_prefix-1 and then anc[0..n_anc-1], the logical indices of its
     * ancestors from the root down to itself. A chain row has anc = NULL: keys 0..index. */
    const int32_t *anc;
    int32_t n_prefix, n_anc;
    bool want; /* its logits are wanted */
} ls_row;

static inline ls_row ls_row_chain(int32_t seq, int32_t token, int32_t pos, bool want) {
    ls_row r = {0};
    r.seq = seq, r.token = token, r.pos = pos, r.index = pos, r.want = want;
    return r;
}

ls_status ls_engine_create(const ls_model *model, ls_backend *be, ls_engine_options options,
                           ls_engine **out, ls_err *err);
void ls_engine_destroy(ls_engine *e);

ls_kv *ls_engine_kv(ls_engine *e);
ls_backend *ls_engine_backend(ls_engine *e);
const ls_model *ls_engine_model(const ls_engine *e);
const ls_engine_options *ls_engine_opts(const ls_engine *e); /* defaults filled in */

/* Runs the rows (n <= max_rows), appends them to the cache. Rows of one sequence come in ascending
 * index; their logits, for those that want them, are numbered 0, 1, ... in row order. */
ls_status ls_pass(ls_engine *e, const ls_row *rows, int32_t n, ls_err *err);
/* Feeds tokens at positions pos0.. in chunks of rows, no logits. */
ls_status ls_prefill(ls_engine *e, int32_t seq, const int32_t *token, int32_t n, int32_t pos0,
                     ls_err *err);

/* What is drawn for the wanted rows of a pass, as part of it: their statistics stay on the
 * device. */
typedef struct ls_draws {
    const ls_warp *warp; /* [wanted rows] */
    const ls_draw *draw; /* likewise */
    int32_t n_top;
} ls_draws;
ls_status ls_pass_drawn(ls_engine *e, const ls_row *rows, int32_t n, const ls_draws *draws,
                        ls_err *err);
/* As ls_pass, or ls_pass_drawn where `draws` is given; the tokens of the last n_chain rows are what
 * a chain drew: chain[i].token on the device (rows[i].token is then any known id). chain:
 * ls_chain_stats of an engine of this backend. */
ls_status ls_pass_after(ls_engine *e, const ls_row *rows, int32_t n, const ls_row_stats *chain,
                        int32_t n_chain, const ls_draws *draws, ls_err *err);
ls_status ls_pass_logits(ls_engine *e, int32_t row, float *dst, ls_err *err); /* [V] */
/* Judges the drafts of a verify pass, whose row 0 is the last committed token and row i + 1 draft
 * i, all wanted and drawn. */
typedef struct ls_accept {
    ls_accept_kind kind;
    int32_t n;                 /* drafts */
    bool chain;                /* they came by ls_pass_after: their statistics are there */
    const float *chain_logits; /* [n, ld_chain] device; rejection with a chain only */
    int32_t ld_chain;
    uint64_t seed;
    uint32_t sequence, position; /* of draft 0 */
} ls_accept;
ls_status ls_pass_accept(ls_engine *e, const ls_accept *how, ls_err *err);
/* Brings, in one piece, what the round left on the device: the chain's statistics [n_draft], the
 * verdict (stale unless ls_pass_accept ran; may be NULL), the statistics of wanted rows [0, n).
 * Host memory. */
ls_status ls_pass_result(ls_engine *e, ls_row_stats *draft, int32_t n_draft,
                         ls_verdict_set *verdict, ls_row_stats *stats, int32_t n, ls_err *err);

/* A chain: passes of one row whose tokens never visit the host. First ls_kv_reserve for all rows,
 * then ls_pass_drawn with rows of one sequence (the last wanted), then in turns ls_chain_feed,
 * ls_chain_pass. feed: the draw joins the chain and becomes the token of the next single row; `row`
 * is the drawn row's place in its pass (0 after ls_chain_pass). keep: its logits are kept too. A
 * chain's pass draws as the pass before it, at the position behind. */
ls_status ls_chain_feed(ls_engine *e, int32_t row, bool keep, ls_err *err);
ls_status ls_chain_pass(ls_engine *e, int32_t seq, int32_t n_top, ls_err *err);
const ls_row_stats *ls_chain_stats(const ls_engine *e); /* device [LS_CHAIN_MAX] */
const float *ls_chain_logits(const ls_engine *e); /* device [LS_CHAIN_MAX, n_vocab], or NULL */

/* Warped probabilities of one row, from what was drawn with it: [n_vocab] */
ls_status ls_pass_probs(ls_engine *e, int32_t row, const ls_row_stats *stats, float *dst,
                        ls_err *err);

/* For triage: called after every operation of a pass with its output in host memory. */
typedef struct ls_trace {
    void (*fn)(void *self, int32_t layer, const char *op, const float *data, int32_t n_rows,
               int32_t dim);
    void *self;
} ls_trace;
void ls_engine_trace(ls_engine *e, const ls_trace *trace); /* NULL = off; borrowed */

/* Counters since create: passes, rows, bytes of weights one pass reads, and products with weights
 * of each of its rows. */
typedef struct ls_engine_counts {
    int64_t n_pass, n_row;
    size_t weight_bytes;
    int64_t weight_fma;
} ls_engine_counts;
ls_engine_counts ls_engine_count(const ls_engine *e);
/* All that a pass reads in full, on the device: up to cap spans; returns how many there are. Of the
 * embedding a pass reads a row a token: not among them. */
int32_t ls_engine_weights(const ls_engine *e, ls_span *out, int32_t cap);

#endif
