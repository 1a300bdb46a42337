/* cpu_bodies.inc.h - the table of cpu_bodies.h for the tile language selected by the file that
 * includes this; LS_CPU_TABLE is its name. */
#include "accept.body.h"
#include "attn.body.h"
#include "chain.body.h"
#include "cpu_bodies.h"
#include "draw.body.h"
#include "linear.body.h"
#include "math.body.h"
#include "norm.body.h"
#include "place.body.h"
#include "stats.body.h"

static void run_linear(const ls_linear_args *a, int n0, int n1) {
    const int64_t row = (int64_t)ls_dtype_span(a->w.dtype, (size_t)a->w.n_in);
    const int units = (int)(LS_LINEAR_BYTES / row) / LS_LINEAR_UNIT;
    const int block = (units > 0 ? units : 1) * LS_LINEAR_UNIT;
    for (int n = n0; n < n1; n += block)
        ls_body_linear(a, n, ls_min_i(n1, n + block), 0, a->n_rows);
}

#define LS_RUN_ROWS(op)                                             \
    static void run_##op(const ls_##op##_args *a, int r0, int r1) { \
        for (int r = r0; r < r1; r++)                               \
            ls_body_##op(a, r);                                     \
    }
LS_RUN_ROWS(embed)
LS_RUN_ROWS(bias)
LS_RUN_ROWS(rope)
LS_RUN_ROWS(kv_store)
LS_RUN_ROWS(silu_mul)
LS_RUN_ROWS(gelu_mul)
LS_RUN_ROWS(gather)

static void run_place(const ls_rope_args *a, const ls_kv_store_args *b, int r0, int r1) {
    for (int r = r0; r < r1; r++)
        ls_body_place(a, b, r);
}

static void run_rmsnorm(const ls_rmsnorm_args *a, int r0, int r1) {
    ls_norm_mem mem;
    for (int r = r0; r < r1; r++)
        ls_body_rmsnorm(a, r, &mem);
}

static void run_attn_chunk(const ls_attn_args *a, int64_t i0, int64_t i1) {
    ls_attn_mem mem;
    int64_t at = 0; /* first item of row r */
    for (int r = 0; r < a->n_rows && at < i1; r++) {
        const int n = ls_chunk_count_of(a->rule, ls_window_len(a->window, a->length[r]));
        const int64_t end = at + (int64_t)n * a->n_kv;
        for (int64_t i = i0 > at ? i0 : at; i < end && i < i1; i++) {
            const int g = (int)((i - at) / n), c = (int)((i - at) % n);
            ls_body_attn_chunk(a, r, g, c, &mem);
        }
        at = end;
    }
}

static void run_attn_merge(const ls_attn_args *a, int i0, int i1) {
    ls_merge_mem mem;
    for (int i = i0; i < i1; i++)
        ls_body_attn_merge(a, i / a->n_heads, i % a->n_heads, &mem);
}

static void run_attn_join(const float *part, int n, int E, float *out) {
    ls_merge_mem mem;
    ls_attn_join(part, n, E, out, &mem);
}

static void run_stats(const ls_stats_args *a, int r0, int r1) {
    ls_stats_mem mem;
    for (int r = r0; r < r1; r++)
        ls_body_stats(a, r, &mem);
}

static void run_probs(const ls_probs_args *a, int i0, int i1) {
    const int n_seg = ls_ceil_div(a->n_vocab, LS_SEGMENT);
    for (int i = i0; i < i1; i++)
        ls_body_probs(a, i / n_seg, i % n_seg);
}

static void run_choose(const ls_choose_args *a, int r0, int r1) {
    ls_choose_mem mem;
    for (int r = r0; r < r1; r++)
        ls_body_choose(a, r, &mem);
}

static void run_keep(const ls_keep_args *a, int s0, int s1) {
    for (int s = s0; s < s1; s++)
        ls_body_keep(a, s);
}

static void run_feed(const ls_feed_args *a) {
    ls_body_feed(a);
}

static void run_take(const ls_take_args *a, int i0, int i1) {
    for (int i = i0; i < i1; i++)
        ls_body_take(a, i);
}

static void run_accept(const ls_accept_args *a) {
    ls_accept_mem mem;
    ls_body_accept(a, &mem);
}

static void run_words(const ls_draw *d, uint32_t first, uint32_t *out, int n) {
    for (int k = 0; k < n; k += 4 * LS_LANES)
        LS_FOR_PARTS (i) {
            part_i32 word[4];
            part_philox(part_iadd(part_iset((int32_t)(first / 4) + k / 4), part_iota(i)), d, word);
            for (int q = 0; q < 4; q++) {
                float lanes[LS_LANES];
                part_store(lanes, i, part_as_f(word[q]));
                for (int l = i * LS_PART_LANES; l < (i + 1) * LS_PART_LANES; l++)
                    if (k + 4 * l + q < n)
                        out[k + 4 * l + q] = ls_bits_of(lanes[l]);
            }
        }
}

static void run_exp(const float *x, float *out, int n) {
    for (int i = 0; i < n; i += LS_LANES)
        lane_store_n(out + i, n - i, lane_exp(lane_load_n(x, (size_t)i, n - i, LS_F32)));
}
static void run_log(const float *x, float *out, int n) {
    for (int i = 0; i < n; i += LS_LANES)
        lane_store_n(out + i, n - i, lane_log(lane_load_n(x, (size_t)i, n - i, LS_F32)));
}

/* More chains than a processor has fma in flight, fewer than it has registers. */
#define FMA_CHAINS 12
static int64_t run_fma(int64_t n_step, float x, float *sum) {
    part_f32 acc[FMA_CHAINS];
    float out[LS_LANES];
    LS_UNROLLED (i, FMA_CHAINS)
        acc[i] = part_set((float)i);
    for (int64_t n = 0; n < n_step; n++)
        LS_UNROLLED (i, FMA_CHAINS)
            acc[i] = part_fma(acc[i], part_set(x), part_set(x));
    LS_UNROLLED (i, FMA_CHAINS) {
        part_store(out, 0, acc[i]);
        for (int l = 0; l < LS_PART_LANES; l++) /* a lane nobody asks for need not be computed */
            *sum += out[l];
    }
    return n_step * FMA_CHAINS * LS_PART_LANES;
}

const ls_cpu_bodies LS_CPU_TABLE = {
    .name = LS_CPU_NAME,
    .linear_unit = LS_LINEAR_UNIT,
    .linear = run_linear,
    .embed = run_embed,
    .rmsnorm = run_rmsnorm,
    .bias = run_bias,
    .rope = run_rope,
    .kv_store = run_kv_store,
    .place = run_place,
    .silu_mul = run_silu_mul,
    .gelu_mul = run_gelu_mul,
    .gather = run_gather,
    .attn_chunk = run_attn_chunk,
    .attn_merge = run_attn_merge,
    .attn_join = run_attn_join,
    .stats = run_stats,
    .probs = run_probs,
    .choose = run_choose,
    .keep = run_keep,
    .feed = run_feed,
    .take = run_take,
    .accept = run_accept,
    .words = run_words,
    .exp = run_exp,
    .log = run_log,
    .fma = run_fma,
};
