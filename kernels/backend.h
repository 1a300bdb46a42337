/* backend.h - the operations a device offers: one launcher an operation, the same bits everywhere.
 * Shapes      letters of shape.h; every pointer in an args struct is device memory of the backend
 *             that runs it (on the CPU: host memory) and row-major without padding unless a leading
 *             dimension `ld_` is given (in elements).
 * Exactness   result row r is a function of row r's inputs, the shapes and row r's own length.
 *             n_rows, the grid, the number of threads and max_chunks are bounds, never choices.
 * Errors      launchers return nothing; the first failure is kept and returned by `sync`,
 *             `status` and `download`.
 * Memory      launchers allocate nothing. Scratch comes in the args.
 * Threads     one owner per backend; work runs in the order it was launched.
 * Numerics    kernels/NUMERICS.md, ids beside each operation. */
#ifndef LS_BACKEND_H
#define LS_BACKEND_H

#include "shape.h"
#include "status.h"
#include "tile_limits.h"

/* ---- linear (N-LIN) -------------------------------------------------------------------------- */

typedef struct ls_mat { /* weights [n_out, n_in]; packed types: n_in is whole blocks */
    const void *data;
    ls_dtype dtype;
    int32_t n_out, n_in;
} ls_mat;

/* y[r, n] = sum_k w[n, k] x[r, k], then + add[r, n] when add is given (add may be y itself). */
typedef struct ls_linear_args {
    ls_mat w;
    const float *x;   /* [R, n_in] */
    float *y;         /* [R, n_out] */
    const float *add; /* [R, n_out] or NULL: the residual stream */
    int32_t n_rows;
    /* [n_out] of next_dtype, or NULL: the weights of the norm that reads y next. A hint: a back end
     * may begin that norm (norm_linears); no bit follows from it. */
    const void *next_w;
    ls_dtype next_dtype;
} ls_linear_args;

/* y[r, :] += b[:], in place: after a linear with a bias  (N-BIAS) */
typedef struct ls_bias_args {
    float *y;      /* [R, dim] */
    const void *b; /* [dim] of b_dtype */
    ls_dtype b_dtype;
    int32_t n_rows, dim;
} ls_bias_args;

/* ---- elementwise and norms ------------------------------------------------------------------- */

/* x[r, :] = widen(table[token[r], :]), times `scale` where it is not 0  (N-EMB) */
typedef struct ls_embed_args {
    ls_mat table; /* [V, D] */
    const int32_t *token;
    float *x; /* [R, D] */
    int32_t n_rows;
    float scale; /* 0: none */
} ls_embed_args;

/* y[r, :] = x[r, :] / sqrt(mean(x^2) + eps) * w, then + add[r, :] when it is given  (N-NORM) */
typedef struct ls_rmsnorm_args {
    const float *x; /* [R, D] */
    const void *w;  /* [D] of w_dtype */
    ls_dtype w_dtype;
    float *y; /* [R, D], may be x */
    float eps;
    int32_t n_rows, dim;
    const float *add; /* [R, D] or NULL: the residual stream; may be y, not x */
} ls_rmsnorm_args;

/* Rotates q and k in place, half-split pairs (i, i + E/2)  (N-ROPE) */
typedef struct ls_rope_args {
    float *q; /* [R, H, E] */
    float *k; /* [R, G, E] */
    const int32_t *pos;
    const float *cos, *sin; /* [n_pos, E/2], made on the host in double */
    int32_t n_rows, n_heads, n_kv, head_dim, n_pos;
} ls_rope_args;

/* Stores k, v of row r at slot[r] of the pools, rounded to kv_dtype (nearest, ties to even). A slot
 * outside [0, n_slots) stores nothing.  (N-KV) */
typedef struct ls_kv_store_args {
    const float *k, *v;    /* [R, G, E] */
    void *k_pool, *v_pool; /* [n_slots, G, E] */
    const int32_t *slot;   /* [R] */
    ls_dtype kv_dtype;
    int32_t n_rows, n_kv, head_dim, n_slots;
} ls_kv_store_args;

/* h[r, f] = silu(gate[r, f]) * up[r, f], silu(a) = a / (1 + exp(-a))  (N-SILU) */
typedef struct ls_silu_mul_args {
    const float *gate, *up; /* [R, F] */
    float *h;               /* [R, F], may be gate */
    int32_t n_rows, dim;
} ls_silu_mul_args;

/* h[r, f] = gelu(gate[r, f]) * up[r, f], in the form with tanh  (N-GELU) */
typedef ls_silu_mul_args ls_gelu_mul_args;

/* y[i, :] = x[index[i], :] */
typedef struct ls_gather_args {
    const float *x;
    const int32_t *index; /* [n] */
    float *y;             /* [n, dim] */
    int32_t n, dim;
} ls_gather_args;

/* ---- attention (N-ATTN) ---------------------------------------------------------------------- */

/* Chunk length as a function of the row's length alone. */
typedef enum ls_chunk_kind {
    LS_CHUNK_EVEN = 0,
    LS_CHUNK_SPLITS = 1,
    LS_CHUNK_DOUBLING = 2
} ls_chunk_kind;

typedef struct ls_chunk_rule {
    ls_chunk_kind kind;
    int32_t min_keys;   /* even, doubling: shortest chunk, 1..LS_CHUNK_MAX */
    int32_t max_chunks; /* even, doubling: most chunks; splits: the number of splits */
} ls_chunk_rule;

#ifdef __cplusplus
extern "C" {
#endif
/* even: max(min, ceil(L / max)); splits: ceil(L / s); doubling: min, doubled until the row has at
 * most max chunks. 0 for L = 0. At most LS_CHUNK_MAX: a longer row gets more chunks instead (never
 * more than LS_CHUNKS_MAX), except under `splits`, which walks a chunk in pieces (N-ATTN). */
int32_t ls_chunk_len(ls_chunk_rule rule, int32_t length);
int32_t ls_chunk_count(ls_chunk_rule rule, int32_t length);
/* Most chunks any length in 0..capacity can have: the scratch and grid bound. */
int32_t ls_chunk_bound(ls_chunk_rule rule, int32_t capacity);
ls_status ls_chunk_check(ls_chunk_rule rule, ls_err *err);
#ifdef __cplusplus
}
#endif

/* Where key j of row r lives. Logical index first (tree), then the slot (contiguous or paged); an
 * index or block outside its bounds reads as a row of zeros and never faults.  (N-LOC) */
typedef struct ls_locator {
    const int32_t *base;      /* [R] contiguous: slot of logical index 0; NULL when paged */
    const int32_t *table;     /* paged: block ids of all sequences, one after another */
    const int32_t *table_at;  /* [R] where the row's table begins in `table` */
    const int32_t *table_len; /* [R] entries in the row's table */
    const int32_t *prefix;    /* [R] tree: key j < prefix has logical index j; NULL = chains only */
    const int32_t *anc;       /* [R, ld_anc] tree: logical index of key prefix + i */
    int32_t ld_anc;
    int32_t block_rows; /* rows a block holds when paged */
    int32_t n_slots;    /* rows in the pool */
} ls_locator;

typedef struct ls_attn_args {
    const float *q;              /* [R, H, E] */
    const void *k_pool, *v_pool; /* [n_slots, G, E] of kv_dtype, this layer's */
    ls_dtype kv_dtype;
    ls_locator loc;
    const int32_t *length; /* [R] keys of the row, its own included */
    int32_t window;        /* a row attends to the last min(length, window) of them; 0: to all */
    ls_chunk_rule rule;
    /* scratch bound: at least the chunks of what any row attends to. Who knows that no row has more
     * than LS_CHUNKS_FEW says so: a backend may then take fewer launches */
    int32_t max_chunks;
    float *part; /* [R, H, max_chunks, 2 + E]: m, l, acc */
    float *out;  /* [R, H, E] */
    float scale; /* 1 / sqrt(E), or a family's own, rounded once on the host */
    int32_t n_rows, n_heads, n_kv, head_dim;
    int32_t only; /* for measuring: 0 both launches, 1 the chunks alone, 2 the merge alone */
} ls_attn_args;

#define LS_CHUNKS_FEW 8

/* How a backend would launch the chunks of an attention, for studies of occupancy. */
typedef struct ls_launch {
    int32_t blocks, threads; /* the grid, and threads a block */
    int32_t blocks_a_unit;   /* blocks one multiprocessor holds at once */
    int32_t warps_a_unit;    /* warps one multiprocessor can hold */
    int32_t units;           /* multiprocessors */
    int32_t shared_bytes;    /* block memory */
} ls_launch;

/* ---- row statistics and the draw (N-STAT, N-DRAW) -------------------------------------------- */

/* How logits become the distribution that is sampled: y = (x - max) / temperature, then keep
 *   top_k: y among the top_k largest (a tie at the edge keeps all of it), 0 = all
 *   top_p: the largest threshold whose kept mass is >= top_p (ties together), 1 = all
 *   min_p: exp(y) >= min_p, 0 = all
 * in this order, then normalise. Temperature below LS_TEMPERATURE_MIN is greedy. */
typedef struct ls_warp {
    float temperature;
    int32_t top_k;
    float top_p, min_p;
} ls_warp;
#define LS_TEMPERATURE_MIN 1e-4f

LS_SHARED_FN int ls_warp_greedy(const ls_warp *w) {
    return !(w->temperature >= LS_TEMPERATURE_MIN); /* a NaN, too */
}
/* The filters that a row of n_vocab logits gets. */
enum { LS_FILTER_TOP_K = 1, LS_FILTER_TOP_P = 2, LS_FILTER_MIN_P = 4 };
LS_SHARED_FN int ls_warp_filters(const ls_warp *w, int32_t n_vocab) {
    if (ls_warp_greedy(w))
        return 0;
    return (w->top_k > 0 && w->top_k < n_vocab ? LS_FILTER_TOP_K : 0) |
           (w->top_p < 1.0f ? LS_FILTER_TOP_P : 0) | (w->min_p > 0.0f ? LS_FILTER_MIN_P : 0);
}

/* The counter a row's random numbers come from: Philox4x32-10 with key (seed), counter
 * (token / 4, position, sequence, purpose << 24 | salt). See draw.h. */
typedef struct ls_draw {
    uint32_t key[2];
    uint32_t position, sequence, purpose_salt;
} ls_draw;

enum {                 /* ls_row_stats.flags */
       LS_ROW_NAN = 1, /* a NaN among the logits: no token */
       LS_ROW_INF = 2, /* +inf among the logits: no token */
       LS_ROW_NONE = 4 /* every logit is -inf: no token */
};

/* All that leaves the device of a row of logits. Probabilities, entropy and the top list are of the
 * warped distribution; of temperature 1 without filters when the warp is greedy.
 * Probability of token i: y_i >= floor ? exp(y_i) / sum : 0, with y_i as in ls_warp. */
typedef struct ls_row_stats {
    int32_t flags;
    int32_t argmax;   /* lowest id of the largest logit; -1 with flags */
    int32_t token;    /* greedy: argmax; else Gumbel-max over the warped row */
    float token_prob; /* probability of `token` */
    float max;        /* largest logit */
    float temp;       /* divisor of the statistics: 1 when greedy */
    float floor;      /* smallest y kept, -inf when all are */
    float sum;        /* sum of exp(y) over the kept */
    float entropy;    /* nats */
    float margin;     /* largest minus second largest logit (0 on a tie; +inf for one token) */
    int32_t n_top;    /* entries below, largest first, ties by lowest id */
    int32_t top_token[LS_TOP_MAX];
    float top_prob[LS_TOP_MAX];
} ls_row_stats;

typedef struct ls_stats_args {
    const float *logits; /* [R, ld_logits] */
    int32_t ld_logits;
    int32_t n_vocab; /* tokens that exist: ids at or past it are ignored (padded vocabularies) */
    const ls_warp *warp; /* [R] */
    const ls_draw *draw; /* [R] */
    int32_t n_top;       /* 0..LS_TOP_MAX */
    ls_row_stats *stats; /* [R] */
    int32_t n_rows;
    int32_t
        without; /* filters (LS_FILTER_) that no row's warp asks for: steps saved; 0: not known */
    void *part;  /* [R, ls_stats_part_bytes] scratch of a GPU; a CPU needs none */
} ls_stats_args;

/* Scratch of a row whose segments are shared by blocks. */
LS_SHARED_FN size_t ls_stats_part_bytes(int32_t n_vocab) {
    return 256 + (size_t)(n_vocab / LS_SEGMENT + 1) * LS_STAT_PART;
}

/* prob[r, i] = warped probability of token i, from the row's statistics (0 past n_vocab). */
typedef struct ls_probs_args {
    const float *logits; /* [R, ld_logits] */
    const ls_row_stats *stats;
    float *prob; /* [R, n_vocab] */
    int32_t ld_logits, n_vocab, n_rows;
} ls_probs_args;

/* token[r] = Gumbel-max draw from weights w[r, :] >= 0, not necessarily normalised: argmax of
 * log(w) + noise; a weight of 0 is never drawn; -1 when no weight is positive.  (N-DRAW) */
typedef struct ls_choose_args {
    const float *weight; /* [R, n_vocab] */
    const ls_draw *draw; /* [R] */
    int32_t *token;
    int32_t n_vocab, n_rows;
} ls_choose_args;

/* ---- chains of passes, and the verdicts of a round ------------------------------------------- */

/* y[at[0], :] = x[:]; nothing where at[0] is outside [0, n). */
typedef struct ls_keep_args {
    const float *x;    /* [dim] */
    const int32_t *at; /* [1] */
    float *y;          /* [n, dim] */
    int32_t n, dim;
} ls_keep_args;

/* Makes a single row's draw the input of the next single-row pass, so that a chain of passes needs
 * no host between them. The drawn row's statistics go to chain[at[0]], at[0] grows by one; row 0 of
 * the tables becomes row `row` one position on: token = the token drawn (-1 with flags), pos and
 * length + 1, slot of the new index; draw[0].position + 1. Nothing where at[0] is outside [0, n).
 * All rows of the pass are of one sequence, and no tree. */
typedef struct ls_feed_args {
    const ls_row_stats *stats;            /* [1] */
    ls_row_stats *chain;                  /* [n] */
    int32_t *at;                          /* [1] */
    int32_t *token, *pos, *slot, *length; /* [R] tables of the pass */
    ls_locator loc;
    ls_draw *draw; /* [1] */
    int32_t row, n;
} ls_feed_args;

/* token[i] = chain[i].token, and copy[i] = chain[i] */
typedef struct ls_take_args {
    const ls_row_stats *chain; /* [n] */
    int32_t *token;            /* [n] */
    ls_row_stats *copy;        /* [n] */
    int32_t n;
} ls_take_args;

typedef enum ls_accept_kind {
    LS_ACCEPT_NONE = 0, /* the host judges */
    LS_ACCEPT_EXACT,
    LS_ACCEPT_REJECTION
} ls_accept_kind;

/* What a rule decided about a round: the first n_accept drafts stand, then `token` follows (-1: the
 * row has no token, see its flags). */
typedef struct ls_verdict_set {
    int32_t n_accept, token;
} ls_verdict_set;

/* Judges n drafts against n + 1 verified rows, in order (N-ACC). Row i is the target's view of the
 * place of draft i, row n of the bonus token.
 *   EXACT      keeps draft i iff it is target[i].token, the token plain decode draws
 *   REJECTION  keeps x with probability min(1, p(x) / q(x)), else draws from (p - q)+
 * A draft whose statistics have flags ends the drafts: its row is the bonus row. */
typedef struct ls_accept_args {
    ls_accept_kind kind;
    const int32_t *token;       /* [n] drafted */
    const ls_row_stats *target; /* [n + 1] */
    const ls_row_stats *draft;  /* [n]; NULL: point masses, q = 1 */
    const float *logits;        /* [n + 1, ld_logits] the target's; REJECTION only */
    const float *draft_logits;  /* [n, ld_draft]; REJECTION with `draft` only */
    float *weight;              /* [n_vocab] scratch; REJECTION only */
    ls_verdict_set *out;
    int32_t ld_logits, ld_draft, n_vocab, n;
    uint64_t seed; /* of the draws: position + i is the place of draft i */
    uint32_t sequence, position;
    void *part; /* [ls_stats_part_bytes] scratch of a GPU; REJECTION only */
} ls_accept_args;

/* ---- the device ------------------------------------------------------------------------------ */

typedef struct ls_span { /* device memory */
    const void *data;
    size_t bytes;
} ls_span;

typedef struct ls_graph ls_graph; /* launches recorded once, to be replayed */
#define LS_STAMPS 4

typedef struct ls_backend ls_backend;
struct ls_backend {
    const char *name;    /* "cpu", "cuda" */
    char device[96];     /* for records: "AMD EPYC, avx2, 2 threads" */
    int32_t number;      /* which of the devices of this name; memory belongs to (name, number) */
    const char *profile; /* "ieee", "mma", or "cublas", which promises nothing */
    ls_chunk_rule chunk; /* attention's rule where nobody names one: part of the profile */

    /* Memory. alloc gives 64-byte aligned memory (NaN-filled in test builds); free takes NULL.
     * upload has read src when it returns, download has written dst; both keep the order of
     * launches, and download returns the first failure before it, as sync does. */
    ls_status (*alloc)(ls_backend *, size_t bytes, void **out, ls_err *);
    void (*free)(ls_backend *, void *);
    ls_status (*upload)(ls_backend *, void *dst_d, const void *src, size_t bytes, ls_err *);
    ls_status (*download)(ls_backend *, void *dst, const void *src_d, size_t bytes, ls_err *);
    ls_status (*copy)(ls_backend *, void *dst_d, const void *src_d, size_t bytes, ls_err *);
    /* Makes host weights readable by the device: the CPU lends the pointer back. */
    ls_status (*weights)(ls_backend *, const void *host, size_t bytes, const void **out_d,
                         ls_err *);
    void (*weights_free)(ls_backend *, const void *w_d);
    /* Weights in the form `linear` of this profile reads: dev->data may be another layout. */
    ls_status (*mat)(ls_backend *, const ls_mat *host, ls_mat *dev, ls_err *);
    void (*mat_free)(ls_backend *, const ls_mat *dev);
    /* After the last of weights and mat, before a launch reads what they gave, and after a failure
     * among them too: waits until they are there, and gives back what bringing them took. As sync,
     * it returns the first failure. */
    ls_status (*weights_done)(ls_backend *, ls_err *);

    ls_status (*sync)(ls_backend *, ls_err *);   /* waits; the first failure since the last sync */
    ls_status (*status)(ls_backend *, ls_err *); /* the same without waiting: what is known now */
    void (*destroy)(ls_backend *);

    /* Time: stamp i < LS_STAMPS marks this place in the order of launches; between two of them,
     * microseconds, after a sync or download that came later. */
    void (*stamp)(ls_backend *, int32_t i);
    double (*between)(ls_backend *, int32_t i, int32_t j);

    /* Graphs; record is NULL where there are none. Between record and record_end launches are kept,
     * not run; uploads, downloads and allocations are errors. A replay reads the same addresses. A
     * launch that is refused is missing in the graph: ask status before replaying it. */
    ls_status (*record)(ls_backend *, ls_err *);
    ls_status (*record_end)(ls_backend *, ls_graph **out, ls_err *);
    ls_status (*replay)(ls_backend *, ls_graph *, ls_err *);
    void (*graph_free)(ls_backend *, ls_graph *);

    void (*embed)(ls_backend *, const ls_embed_args *);
    void (*rmsnorm)(ls_backend *, const ls_rmsnorm_args *);
    void (*linear)(ls_backend *, const ls_linear_args *);
    /* n <= LS_LINEARS linears of the same x, of equal n_rows: as n calls, in fewer launches */
    void (*linears)(ls_backend *, const ls_linear_args *, int32_t n);
    /* linears of the norm of norm->x, all of x = norm->y, which is scratch: rmsnorm and then
     * linears, or where a profile says so (N-MMAN) the products first and the division by the root
     * after */
    void (*norm_linears)(ls_backend *, const ls_rmsnorm_args *norm, const ls_linear_args *,
                         int32_t n);
    /* norm_linears of gate and up, and silu_mul, or where `gelu` says so gelu_mul, of g->gate and
     * g->up, their y: the same h, bit for bit. Only h is promised afterwards: gate and up are
     * scratch. */
    void (*norm_gates)(ls_backend *, const ls_rmsnorm_args *norm, const ls_linear_args both[2],
                       const ls_silu_mul_args *g, int32_t gelu);
    void (*bias)(ls_backend *, const ls_bias_args *);
    void (*rope)(ls_backend *, const ls_rope_args *);
    void (*kv_store)(ls_backend *, const ls_kv_store_args *);
    /* rope, then kv_store of the same k, in one launch */
    void (*place)(ls_backend *, const ls_rope_args *, const ls_kv_store_args *);
    /* chunks, then the merge. Of the keys that a row's list names those that rows of the same pass
     * store come last, and row r has at most r + 1 of them: a backend may read the others early */
    void (*attn)(ls_backend *, const ls_attn_args *);
    /* place, then attn of the same rows, heads and pools: as the two calls, in fewer launches. q
     * and k are scratch: who wants them rotated calls place. */
    void (*place_attn)(ls_backend *, const ls_rope_args *, const ls_kv_store_args *,
                       const ls_attn_args *);
    void (*silu_mul)(ls_backend *, const ls_silu_mul_args *);
    void (*gelu_mul)(ls_backend *, const ls_gelu_mul_args *);
    void (*gather)(ls_backend *, const ls_gather_args *);
    void (*stats)(ls_backend *, const ls_stats_args *);
    void (*probs)(ls_backend *, const ls_probs_args *);
    void (*choose)(ls_backend *, const ls_choose_args *);
    void (*keep)(ls_backend *, const ls_keep_args *);
    void (*feed)(ls_backend *, const ls_feed_args *);
    void (*take)(ls_backend *, const ls_take_args *);
    void (*accept)(ls_backend *, const ls_accept_args *);

    /* For measuring. read reads every byte of n spans once and keeps nothing of them; attn_launch
     * is NULL where blocks are no launches. */
    void (*read)(ls_backend *, const ls_span *, int32_t n);
    void (*attn_launch)(ls_backend *, const ls_attn_args *, ls_launch *out);
};
#define LS_LINEARS 3

typedef enum ls_simd {
    LS_SIMD_AUTO = 0,
    LS_SIMD_PLAIN = 1,
    LS_SIMD_AVX2 = 2,
    LS_SIMD_AVX512 = 3
} ls_simd;

typedef struct ls_cpu_options {
    int32_t n_threads; /* 0 = OpenMP's default */
    /* AUTO: AVX-512 where the processor has it, else AVX2 + FMA, else plain C. All give the same
     * bits. Some older Intel processors lower their clock under AVX-512: try AVX2 there. */
    ls_simd simd;
} ls_cpu_options;

typedef enum ls_profile {
    LS_PROFILE_IEEE = 0, /* the bits of the CPU */
    LS_PROFILE_MMA,      /* tensor cores: the same bits on every run on one architecture */
    LS_PROFILE_CUBLAS    /* linears by cuBLAS: the conventional engine, for comparison only */
} ls_profile;

typedef struct ls_cuda_options {
    int32_t device; /* as cudaSetDevice counts */
    ls_profile profile;
    /* What is planned with, 0: all there is, and never more. For tests: no bit follows from it, and
     * a large device shows what smaller ones do. */
    int32_t units;       /* multiprocessors */
    int32_t block_bytes; /* shared memory that a block of profile mma may ask for */
} ls_cuda_options;

#ifdef __cplusplus
extern "C" {
#endif
/* LS_ERR_INPUT, one line: a build without CUDA, no device, a driver or a device too old. */
ls_status ls_cuda_create(ls_cuda_options options, ls_backend **out, ls_err *err);
ls_status ls_cpu_create(ls_cpu_options options, ls_backend **out, ls_err *err);
/* For measuring: n_step fma in each of some chains in registers, on all threads at once, with the
 * instructions of the bodies. Returns how many single fma that was; 0 where be is not a CPU. */
int64_t ls_cpu_fma(ls_backend *be, int64_t n_step);
/* norm_gates as the two operations it stands for, of a backend that knows no shorter way. */
void ls_norm_gates_apart(ls_backend *be, const ls_rmsnorm_args *norm, const ls_linear_args both[2],
                         const ls_silu_mul_args *g, int32_t gelu);
/* destroy through the backend; NULL is allowed */
void ls_backend_destroy(ls_backend *be);
#ifdef __cplusplus
}
#endif

#endif
