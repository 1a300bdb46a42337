/* attn.body.h - attention of one row, split over its keys (N-ATTN), and the row locator (N-LOC).
 * Chunk   block (row, kv head, chunk): every query head of the group shares the loads of its keys.
 *             s_j   = scale * dot(q, k_j)        lanes over E by fma from +0, butterfly
 *             m     = max s_j
 *             p_j   = exp(s_j - m)
 *             l     = sum p_j                    lane j mod 32 ascending from +0, butterfly
 *             acc_e = sum p_j v_je               fma from +0, keys ascending
 *         written as (m, l, acc[E]). A chunk longer than LS_CHUNK_MAX (only under `splits`) is
 *         walked in pieces of LS_CHUNK_MAX keys, each joined to the state before it:
 *             M = max(m, m'), w = exp(m - M), w' = exp(m' - M)
 *             l = w l + w' l' (two products, one sum), acc = fma(w', acc', w acc)
 * Merge   block (row, head): M = max m_c, w_c = exp(m_c - M) (0 for an empty chunk), l = sum of
 *         w_c l_c by fma in lane c mod 32 ascending, butterfly; acc = w_0 acc_0, then
 *         fma(w_c, acc_c, acc) ascending; out = acc / l, and 0 when l = 0. One chunk comes out as
 *         acc / l unchanged: `splits(1)` is the single pass.
 * Window  a row of L keys attends to the last L' = min(L, window) of its list: key j of the above
 *         is key L - L' + j of the list, and chunks follow from L'.
 * Bounds  keys at or past the length are never read, nor are those before the window. A key whose
 *         index or block is outside its bounds reads as zeros.
 * Block   phases: slots, scores, softmax, values; a barrier publishes each one's block memory. */
#ifndef LS_ATTN_BODY_H
#define LS_ATTN_BODY_H

#include "chunk.h"
#include "math.body.h"
#include "tile.h"

#define LS_ATTN_HEADS 4 /* query heads that share loads at once */
#define LS_ATTN_KEYS 8  /* keys whose butterflies run together */

typedef struct ls_attn_mem {
    float score[LS_ATTN_HEADS][LS_CHUNK_MAX]; /* then the probabilities */
    int32_t slot[LS_CHUNK_MAX];
    float m[LS_ATTN_HEADS], l[LS_ATTN_HEADS];
} ls_attn_mem;

LS_CONST_TABLE float ls_zero_row[LS_HEAD_DIM_MAX] = {0};

/* ---- N-LOC: the slot of key j, -1 for a row of zeros ----------------------------------------- */

LS_FN int32_t ls_locate(const ls_locator *loc, int r, int32_t j) {
    int32_t index = j;
    if (loc->prefix) {
        const int32_t prefix = ls_max_i(loc->prefix[r], 0);
        if (j >= prefix) {
            const int32_t i = j - prefix;
            index = i < loc->ld_anc ? loc->anc[(size_t)r * (size_t)loc->ld_anc + (size_t)i] : -1;
        }
    }
    if (index < 0)
        return -1;
    int64_t slot;
    if (loc->base) {
        slot = (int64_t)loc->base[r] + index;
    } else {
        const int32_t at = index / loc->block_rows;
        if (at >= loc->table_len[r])
            return -1;
        const int32_t block = loc->table[(size_t)loc->table_at[r] + (size_t)at];
        slot = block < 0 ? -1 : (int64_t)block * loc->block_rows + index % loc->block_rows;
    }
    return slot < 0 || slot >= loc->n_slots ? -1 : (int32_t)slot;
}

/* ---- a piece: at most LS_CHUNK_MAX keys, whose slots are in mem ------------------------------ */

/* The row of E elements at a slot of a pool, as (pointer, first element). */
LS_FN const void *ls_kv_row(const ls_attn_args *a, const void *pool, int32_t slot, int g,
                            size_t *at) {
    *at = slot < 0 ? 0 : ((size_t)slot * (size_t)a->n_kv + (size_t)g) * (size_t)a->head_dim;
    return slot < 0 ? (const void *)ls_zero_row : pool;
}

/* The scores of one head where loads are cheap: its lanes and the sums of all keys are in
 * registers, P parts of a warp at a time, and each head reads the keys again. */
LS_FN void ls_attn_scores_of(const ls_attn_args *a, const float *q, const void *const *k,
                             const int P, const ls_dtype t, float *score) {
    const int E = a->head_dim, whole = E / LS_LANES * LS_LANES;
    lane_f32 dot[LS_ATTN_KEYS];
    for (int p0 = 0; p0 < LS_PARTS; p0 += P) {
        part_f32 acc[LS_ATTN_KEYS * LS_PARTS];
        LS_UNROLLED (i, LS_ATTN_KEYS * P)
            acc[i] = part_set(0.0f);
        for (int e = 0; e < whole; e += LS_LANES)
            LS_UNROLLED (p, P) {
                const part_f32 x = part_load(q, (size_t)e, LS_F32, p0 + p);
                LS_UNROLLED (i, LS_ATTN_KEYS)
                    acc[i * P + p] =
                        part_fma(x, part_load(k[i], (size_t)e, t, p0 + p), acc[i * P + p]);
            }
        if (whole < E)
            LS_UNROLLED (p, P) {
                const size_t e = (size_t)whole;
                const part_f32 x = part_load_n(q, e, E - whole, LS_F32, p0 + p);
                LS_UNROLLED (i, LS_ATTN_KEYS)
                    acc[i * P + p] =
                        part_fma(x, part_load_n(k[i], e, E - whole, t, p0 + p), acc[i * P + p]);
            }
        LS_UNROLLED (i, LS_ATTN_KEYS)
            LS_UNROLLED (p, P)
                dot[i].p[p0 + p] = acc[i * P + p];
    }
    const float scale = a->scale; /* for all a compiler knows, a store could change it */
    float s[LS_ATTN_KEYS];
    lane_sums_parts(dot[0].p, LS_ATTN_KEYS, s);
    LS_UNROLLED (i, LS_ATTN_KEYS)
        score[i] = s[i] * scale;
}

/* Scores of keys j0 .. j0 + 7 for NH heads; those past n are written and never read. */
LS_FN void ls_attn_scores(const ls_attn_args *a, const float *q, int g, int j0, int n, const int NH,
                          const ls_dtype t, ls_attn_mem *mem) {
    const int E = a->head_dim;
    if (LS_ATTN_HELD > 0) {
        const void *key[LS_ATTN_KEYS];
        LS_UNROLLED (i, LS_ATTN_KEYS) {
            size_t at;
            const void *k = ls_kv_row(a, a->k_pool, j0 + i < n ? mem->slot[j0 + i] : -1, g, &at);
            key[i] = (const char *)k + at * ls_dtype_bytes(t);
        }
        for (int h = 0; h < NH; h++)
            ls_attn_scores_of(a, q + h * E, key, LS_ATTN_HELD, t, mem->score[h] + j0);
        return;
    }
    const float scale = a->scale;
    lane_f32 dot[LS_ATTN_HEADS][LS_ATTN_KEYS];
    for (int i = 0; i < LS_ATTN_KEYS; i++) {
        size_t at;
        const void *k = ls_kv_row(a, a->k_pool, j0 + i < n ? mem->slot[j0 + i] : -1, g, &at);
        lane_f32 acc[LS_ATTN_HEADS];
        LS_UNROLLED (h, NH)
            acc[h] = lane_set(0.0f);
        int e = 0;
        for (; e + LS_LANES <= E; e += LS_LANES) {
            const lane_f32 kv = lane_load(k, at + (size_t)e, t);
            LS_UNROLLED (h, NH)
                acc[h] = lane_fma(lane_load(q + h * E, (size_t)e, LS_F32), kv, acc[h]);
        }
        if (e < E) {
            const lane_f32 kv = lane_load_n(k, at + (size_t)e, E - e, t);
            LS_UNROLLED (h, NH)
                acc[h] = lane_fma(lane_load_n(q + h * E, (size_t)e, E - e, LS_F32), kv, acc[h]);
        }
        LS_UNROLLED (h, NH)
            dot[h][i] = acc[h];
    }
    LS_UNROLLED (h, NH) {
        float s[LS_ATTN_KEYS];
        lane_sums_parts(dot[h][0].p, LS_ATTN_KEYS, s);
        LS_LANE0 {
            LS_UNROLLED (i, LS_ATTN_KEYS)
                mem->score[h][j0 + i] = s[i] * scale;
        }
    }
}

/* Scores to probabilities; the maximum and the sum of head h. */
LS_FN void ls_attn_softmax(float *s, int n, float *m, float *l) {
    const lane_f32 least = lane_set(-LS_INF);
    lane_f32 top = least, sum = lane_set(0.0f);
    for (int j = 0; j < n; j += LS_LANES) {
        const lane_f32 v = lane_load_n(s, (size_t)j, n - j, LS_F32);
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(n - j), part_iota(i));
            top.p[i] = part_max(top.p[i], part_select(in, v.p[i], least.p[i]));
        }
    }
    *m = lane_hmax(top);
    for (int j = 0; j < n; j += LS_LANES) {
        lane_f32 p = lane_exp(lane_sub(lane_load_n(s, (size_t)j, n - j, LS_F32), lane_set(*m)));
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(n - j), part_iota(i));
            p.p[i] = part_select(in, p.p[i], part_set(0.0f));
        }
        sum = lane_add(sum, p);
        lane_store_n(s + j, n - j, p);
    }
    *l = lane_sum(sum);
}

/* Values of the W warps from lane e on for NH heads, P parts of them at a time; joined to the state
 * of the pieces before (w, w') unless this is the first, and stored. */
LS_FN void ls_attn_values(const ls_attn_args *a, float *const *to, const float *w, const float *w1,
                          int first, int g, int e, int n, const int NH, const int W, const int P,
                          const ls_dtype t, const ls_attn_mem *mem) {
    const int ne = a->head_dim % LS_LANES ? a->head_dim - e : W * LS_LANES;
    const size_t row = (size_t)a->n_kv * (size_t)a->head_dim, at0 = (size_t)g * (size_t)a->head_dim;
    for (int p0 = 0; p0 < W * LS_PARTS; p0 += P) {
        part_f32 acc[LS_ATTN_HEADS * LS_ATTN_WARPS * LS_PARTS];
        LS_UNROLLED (i, NH * P)
            acc[i] = part_set(0.0f);
        for (int j = 0; j < n; j++) {
            const int32_t slot = mem->slot[j];
            const void *v = slot < 0 ? (const void *)ls_zero_row : a->v_pool;
            const size_t at = (slot < 0 ? 0 : (size_t)slot * row + at0) + (size_t)e;
            LS_UNROLLED (p, P) {
                const part_f32 x = ne >= W * LS_LANES ? part_load(v, at, t, p0 + p)
                                                      : part_load_n(v, at, ne, t, p0 + p);
                LS_UNROLLED (h, NH)
                    acc[h * P + p] = part_fma(part_set(mem->score[h][j]), x, acc[h * P + p]);
            }
        }
        LS_UNROLLED (i, NH * P) {
            const int h = i / P, p = p0 + i % P;
            if (!first)
                acc[i] =
                    part_fma(part_set(w1[h]), acc[i],
                             part_mul(part_set(w[h]), part_load_n(to[h] + e, 0, ne, LS_F32, p)));
            part_store_n(to[h] + e, ne, p, acc[i]);
        }
    }
}

/* Heads h0 .. h0 + NH - 1 of group g over the n keys of a piece. */
LS_FN void ls_attn_piece(const ls_attn_args *a, int r, int g, int h0, int c, int n, int first,
                         const int NH, const ls_dtype t, ls_attn_mem *mem) {
    const size_t E = (size_t)a->head_dim, row = (size_t)r * (size_t)a->n_heads + (size_t)h0;
    LS_WARPS (i, ls_ceil_div(n, LS_ATTN_KEYS))
        ls_attn_scores(a, a->q + row * E, g, i * LS_ATTN_KEYS, n, NH, t, mem);
    LS_BARRIER();
    LS_WARPS (h, NH) {
        float m, l;
        ls_attn_softmax(mem->score[h], n, &m, &l);
        LS_LANE0 {
            mem->m[h] = m;
            mem->l[h] = l;
        }
    }
    LS_BARRIER();
    float *to[LS_ATTN_HEADS], m[LS_ATTN_HEADS], l[LS_ATTN_HEADS], w[LS_ATTN_HEADS],
        w1[LS_ATTN_HEADS];
    LS_UNROLLED (h, NH) {
        to[h] = a->part + ((row + (size_t)h) * (size_t)a->max_chunks + (size_t)c) * (2 + E);
        m[h] = mem->m[h];
        l[h] = mem->l[h];
        w[h] = w1[h] = 1.0f;
        if (!first) {
            const float m0 = to[h][0], top = m0 > m[h] ? m0 : m[h];
            w[h] = ls_exp(m0 - top);
            w1[h] = ls_exp(m[h] - top);
            const float was = w[h] * to[h][1], now = w1[h] * l[h];
            l[h] = was + now;
            m[h] = top;
        }
        to[h] += 2;
    }
    if (LS_ATTN_WARPS > 1 && a->head_dim % (LS_ATTN_WARPS * LS_LANES) == 0) {
        LS_WARPS (i, a->head_dim / (LS_ATTN_WARPS * LS_LANES))
            ls_attn_values(a, to, w, w1, first, g, i * LS_ATTN_WARPS * LS_LANES, n, NH,
                           LS_ATTN_WARPS, LS_ATTN_WARPS * LS_PARTS, t, mem);
    } else {
        LS_WARPS (i, ls_ceil_div(a->head_dim, LS_LANES))
            ls_attn_values(a, to, w, w1, first, g, i * LS_LANES, n, NH, 1,
                           NH * LS_PARTS > 12 ? LS_PARTS / 2 : LS_PARTS, t, mem);
    }
    LS_BARRIER(); /* every warp has read the state before it is replaced */
    LS_WARP0 {
        LS_LANE0 {
            LS_UNROLLED (h, NH) {
                to[h][-2] = m[h];
                to[h][-1] = l[h];
            }
        }
    }
    LS_BARRIER();
}

/* One function for each number of heads and storage type: both are constants inside it. */
#define LS_ATTN_PIECE(NH, T)                                                                      \
    LS_INSTANCE void ls_attn_piece_##NH##_##T(const ls_attn_args *a, int r, int g, int h0, int c, \
                                              int n, int first, ls_attn_mem *mem) {               \
        ls_attn_piece(a, r, g, h0, c, n, first, NH, T, mem);                                      \
    }
#define LS_ATTN_PIECES(T)                                                                   \
    LS_ATTN_PIECE(1, T)                                                                     \
    LS_ATTN_PIECE(2, T)                                                                     \
    LS_ATTN_PIECE(3, T)                                                                     \
    LS_ATTN_PIECE(4, T)                                                                     \
    LS_FN void ls_attn_heads_##T(const ls_attn_args *a, int r, int g, int h0, int c, int n, \
                                 int first, int n_heads, ls_attn_mem *mem) {                \
        if (n_heads == 1)                                                                   \
            ls_attn_piece_1_##T(a, r, g, h0, c, n, first, mem);                             \
        else if (n_heads == 2)                                                              \
            ls_attn_piece_2_##T(a, r, g, h0, c, n, first, mem);                             \
        else if (n_heads == 3)                                                              \
            ls_attn_piece_3_##T(a, r, g, h0, c, n, first, mem);                             \
        else                                                                                \
            ls_attn_piece_4_##T(a, r, g, h0, c, n, first, mem);                             \
    }
LS_ATTN_PIECES(LS_F32)
LS_ATTN_PIECES(LS_BF16)
LS_ATTN_PIECES(LS_F16)

LS_FN void ls_attn_heads(const ls_attn_args *a, int r, int g, int h0, int c, int n, int first,
                         int n_heads, ls_attn_mem *mem) {
    if (a->kv_dtype == LS_F32)
        ls_attn_heads_LS_F32(a, r, g, h0, c, n, first, n_heads, mem);
    else if (a->kv_dtype == LS_BF16)
        ls_attn_heads_LS_BF16(a, r, g, h0, c, n, first, n_heads, mem);
    else
        ls_attn_heads_LS_F16(a, r, g, h0, c, n, first, n_heads, mem);
}

/* ---- N-ATTN, chunk --------------------------------------------------------------------------- */

LS_FN void ls_body_attn_chunk(const ls_attn_args *a, int r, int g, int c, ls_attn_mem *mem) {
    const int L = ls_window_len(a->window, a->length[r]), before = a->length[r] - L;
    const int chunk = ls_chunk_len_of(a->rule, L), group = a->n_heads / a->n_kv;
    if (c >= ls_chunk_count_of(a->rule, L))
        return;
    const int k1 = L - c * chunk < chunk ? L : (c + 1) * chunk;
    for (int k = c * chunk; k < k1; k += LS_CHUNK_MAX) {
        const int n = ls_min_i(k1 - k, LS_CHUNK_MAX), first = k == c * chunk;
        LS_WARPS (i, ls_ceil_div(n, LS_LANES))
            LS_EACH (l, ls_min_i(LS_LANES, n - i * LS_LANES))
                mem->slot[i * LS_LANES + l] = ls_locate(&a->loc, r, before + k + i * LS_LANES + l);
        LS_BARRIER();
        for (int h = 0; h < group; h += LS_ATTN_HEADS)
            ls_attn_heads(a, r, g, g * group + h, c, n, first, ls_min_i(group - h, LS_ATTN_HEADS),
                          mem);
    }
}

/* ---- N-ATTN, merge --------------------------------------------------------------------------- */

typedef struct ls_merge_mem {
    float m[LS_CHUNKS_MAX], l[LS_CHUNKS_MAX], w[LS_CHUNKS_MAX];
} ls_merge_mem;

/* Joins n partial states (m, l, acc[E]) at `part` into out[E]. */
LS_FN void ls_attn_join(const float *part, int n, int E, float *out, ls_merge_mem *mem) {
    const size_t step = 2 + (size_t)E;
    LS_WARP0 {
        const part_f32 least = part_set(-LS_INF);
        lane_f32 top = lane_set(-LS_INF), sum = lane_set(0.0f);
        LS_EACH (c, n) {
            mem->m[c] = part[(size_t)c * step];
            mem->l[c] = part[(size_t)c * step + 1];
        }
        /* a lane reads back what it wrote itself: no barrier */
        for (int c = 0; c < n; c += LS_LANES) {
            const lane_f32 m = lane_load_n(mem->m, (size_t)c, n - c, LS_F32);
            LS_FOR_PARTS (i) {
                const part_i32 in = part_igt(part_iset(n - c), part_iota(i));
                top.p[i] = part_max(top.p[i], part_select(in, m.p[i], least));
            }
        }
        const part_f32 most = part_set(lane_hmax(top));
        for (int c = 0; c < n; c += LS_LANES) {
            const lane_f32 m = lane_load_n(mem->m, (size_t)c, n - c, LS_F32);
            lane_f32 w;
            LS_FOR_PARTS (i) {
                const part_i32 in = part_igt(part_iset(n - c), part_iota(i));
                const part_i32 live = part_iand(in, part_gt(m.p[i], least));
                const part_f32 e = part_exp(part_sub(m.p[i], most));
                /* an empty chunk weighs 0, a NaN stays one */
                w.p[i] =
                    part_select(part_ior(live, part_iand(in, part_nan(m.p[i]))), e, part_set(0.0f));
            }
            lane_store_n(mem->w + c, n - c, w);
            sum = lane_fma(w, lane_load_n(mem->l, (size_t)c, n - c, LS_F32), sum);
        }
        const float l = lane_sum(sum);
        LS_LANE0 mem->l[0] = l; /* the sums themselves are used up */
    }
    LS_BARRIER();
    const float l = mem->l[0];
    LS_WARPS (i, ls_ceil_div(E, LS_LANES)) {
        const int e = i * LS_LANES, ne = E - e;
        lane_f32 acc = lane_mul(lane_set(mem->w[0]), lane_load_n(part + 2 + e, 0, ne, LS_F32));
        for (int c = 1; c < n; c++)
            acc = lane_fma(lane_set(mem->w[c]),
                           lane_load_n(part + 2 + e, (size_t)c * step, ne, LS_F32), acc);
        lane_store_n(out + e, ne, l == 0.0f ? lane_set(0.0f) : lane_div(acc, lane_set(l)));
    }
    LS_BARRIER();
}

LS_FN void ls_body_attn_merge(const ls_attn_args *a, int r, int h, ls_merge_mem *mem) {
    const size_t E = (size_t)a->head_dim, row = (size_t)r * (size_t)a->n_heads + (size_t)h;
    const int n = ls_chunk_count_of(a->rule, ls_window_len(a->window, a->length[r]));
    if (n > 0)
        ls_attn_join(a->part + row * (size_t)a->max_chunks * (2 + E), n, a->head_dim,
                     a->out + row * E, mem);
    else {
        LS_WARPS (i, ls_ceil_div(a->head_dim, LS_LANES)) {
            lane_store_n(a->out + row * E + i * LS_LANES, a->head_dim - i * LS_LANES,
                         lane_set(0.0f));
        }
    }
}

#endif
