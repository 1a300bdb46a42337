/* stats.body.h - all that is asked of a row of logits (N-STAT), and its probabilities.
 * Order     y = (x - max) / temperature. Sums over the row keep the lane and segment order of
 *           N-LIN; a token that is not kept adds +0 in its place.
 * Filters   thresholds, found by search over the ordered bits of y. A rounded sum of non-negative
 *           terms never grows when a term becomes 0, so kept mass falls with the threshold and the
 *           largest threshold that keeps enough is one number, however it is searched.
 * Ties      the largest logit with the lowest id; -0 equals +0.
 * Block     a row; warps share its segments of LS_SEGMENT tokens. */
#ifndef LS_STATS_BODY_H
#define LS_STATS_BODY_H

#include "backend.h"
#include "draw.body.h"
#include "math.body.h"
#include "tile.h"

#define LS_STAT_PIVOTS 7 /* thresholds tried in one reading of the row */

typedef struct ls_stats_mem {
    int32_t key[LS_STAT_SEGMENTS]; /* a segment's largest logit not yet listed, as an order key */
    int32_t flag[LS_STAT_SEGMENTS];
    uint32_t w[LS_STAT_PIVOTS][LS_STAT_SEGMENTS]; /* a segment's sums, counts or candidates */
    ls_row_stats out;
} ls_stats_mem;

/* One row as the phases see it. */
typedef struct ls_stats_row {
    const float *x;
    int n, n_seg;
    float max, temp;
    int32_t floor; /* order key of the smallest y kept */
} ls_stats_row;

LS_FN part_f32 ls_warped(const ls_stats_row *row, part_f32 x) {
    const part_f32 y = part_div(part_sub(x, part_set(row->max)), part_set(row->temp));
    return part_add(y, part_set(0.0f)); /* one zero */
}

/* y and its order key of tokens k + lane, k < end; INT32_MIN past the end. */
LS_FN part_i32 ls_warped_keys(const ls_stats_row *row, int k, int end, int i, part_f32 *y) {
    const part_f32 x = end - k >= LS_LANES ? part_load(row->x, (size_t)k, LS_F32, i)
                                           : part_load_n(row->x, (size_t)k, end - k, LS_F32, i);
    *y = ls_warped(row, x);
    return part_iselect(part_igt(part_iset(end - k), part_iota(i)), part_order(*y),
                        part_iset(INT32_MIN));
}

/* ---- logits: the maximum, and what must not be there ----------------------------------------- */

LS_FN part_i32 ls_logit_keys(const ls_stats_row *row, int k, int end, int i, part_f32 *x) {
    *x = end - k >= LS_LANES ? part_load(row->x, (size_t)k, LS_F32, i)
                             : part_load_n(row->x, (size_t)k, end - k, LS_F32, i);
    const part_i32 in = part_igt(part_iset(end - k), part_iota(i));
    return part_iselect(in, part_order(part_add(*x, part_set(0.0f))), part_iset(INT32_MIN));
}

LS_FN void ls_stats_logits(const ls_stats_row *row, int s, ls_stats_mem *mem) {
    lane_i32 top, bad;
    const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
    LS_FOR_PARTS (i) {
        top.p[i] = part_iset(INT32_MIN);
        bad.p[i] = part_iset(0);
    }
    for (int k = s * LS_SEGMENT; k < end; k += LS_LANES)
        LS_FOR_PARTS (i) {
            part_f32 x;
            const part_i32 key = ls_logit_keys(row, k, end, i, &x);
            const part_i32 nan = part_iand(part_nan(x), part_iset(LS_ROW_NAN));
            const part_i32 inf = part_iand(part_eq(x, part_set(LS_INF)), part_iset(LS_ROW_INF));
            bad.p[i] = part_ior(bad.p[i], part_ior(nan, inf));
            top.p[i] = part_imax(top.p[i], key);
        }
    const int32_t key = lane_hmax_i(top.p), flag = lane_hmax_i(bad.p);
    LS_FOR_PARTS (i)
        bad.p[i] = part_iand(bad.p[i], part_iset(LS_ROW_NAN));
    const int32_t nan = lane_hmax_i(bad.p);
    LS_LANE0 {
        mem->key[s] = key;
        mem->flag[s] = flag | nan; /* the larger flag may hide the other */
    }
}

/* The row's largest key and its flags, from the segments', in every warp. */
LS_FN int32_t ls_stats_first(const ls_stats_row *row, int32_t *flags, const ls_stats_mem *mem) {
    lane_i32 top, nan, inf;
    LS_FOR_PARTS (i) {
        top.p[i] = part_iset(INT32_MIN);
        nan.p[i] = inf.p[i] = part_iset(0);
    }
    for (int s = 0; s < row->n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(row->n_seg - s), part_iota(i));
            const part_i32 key = part_iload_n(mem->key + s, row->n_seg - s, i);
            const part_i32 flag = part_iload_n(mem->flag + s, row->n_seg - s, i);
            top.p[i] = part_imax(top.p[i], part_iselect(in, key, part_iset(INT32_MIN)));
            nan.p[i] = part_ior(nan.p[i], part_iand(flag, part_iset(LS_ROW_NAN)));
            inf.p[i] = part_ior(inf.p[i], part_iand(flag, part_iset(LS_ROW_INF)));
        }
    *flags = lane_hmax_i(nan.p) | lane_hmax_i(inf.p);
    return lane_hmax_i(top.p);
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/* What is at or above each pivot in segment s: mass (mass != 0) or count. */
LS_FN void ls_stats_above(const ls_stats_row *row, int s, const int32_t *pivot, int mass,
                          ls_stats_mem *mem) {
    lane_f32 sum[LS_STAT_PIVOTS];
    lane_i32 count[LS_STAT_PIVOTS];
    const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
    LS_FOR_PARTS (i) {
        LS_UNROLLED (j, LS_STAT_PIVOTS) {
            sum[j].p[i] = part_set(0.0f);
            count[j].p[i] = part_iset(0);
        }
        for (int k = s * LS_SEGMENT; k < end; k += LS_LANES) {
            part_f32 y;
            const part_i32 key = ls_warped_keys(row, k, end, i, &y);
            if (mass) {
                const part_i32 e = part_as_i(part_exp(y));
                LS_UNROLLED (j, LS_STAT_PIVOTS)
                    sum[j].p[i] =
                        part_add(sum[j].p[i],
                                 part_as_f(part_iand(e, part_igt(key, part_iset(pivot[j] - 1)))));
            } else {
                LS_UNROLLED (j, LS_STAT_PIVOTS)
                    count[j].p[i] =
                        part_isub(count[j].p[i], part_igt(key, part_iset(pivot[j] - 1)));
            }
        }
    }
    for (int j = 0; j < LS_STAT_PIVOTS; j++) {
        const uint32_t total =
            mass ? ls_bits_of(lane_sum(sum[j])) : (uint32_t)lane_hsum_i(count[j].p);
        LS_LANE0 mem->w[j][s] = total;
    }
}

/* Segment sums in ascending order. */
LS_FN float ls_stats_total(const uint32_t *w, int n_seg) {
    float sum = ls_float_of(w[0]);
    for (int s = 1; s < n_seg; s++)
        sum = sum + ls_float_of(w[s]);
    return sum;
}

LS_FN int ls_stats_enough(const ls_stats_row *row, const uint32_t *w, int mass, int32_t at_least,
                          float least) {
    if (mass)
        return ls_stats_total(w, row->n_seg) >= least;
    int32_t count = 0;
    for (int s = 0; s < row->n_seg; s++)
        count += (int32_t)w[s];
    return count >= at_least;
}

/* Largest order key in [row->floor, key of 0] whose tokens at or above it are enough. Each reading
 * of the row cuts the range in LS_STAT_PIVOTS + 1. */
LS_FN int32_t ls_stats_search(const ls_stats_row *row, int32_t lo, int mass, int32_t at_least,
                              float least, ls_stats_mem *mem) {
    int32_t hi = 1; /* the key after that of 0: keeps nothing */
    while ((int64_t)hi - lo > 1) {
        int32_t pivot[LS_STAT_PIVOTS];
        const int64_t range = (int64_t)hi - lo;
        for (int j = 0; j < LS_STAT_PIVOTS; j++) {
            const int64_t step = range * (j + 1) / (LS_STAT_PIVOTS + 1);
            pivot[j] = (int32_t)(lo + (step < 1 ? 1 : step));
        }
        LS_WARPS (s, row->n_seg)
            ls_stats_above(row, s, pivot, mass, mem);
        LS_BARRIER();
        LS_WARPS (j, LS_STAT_PIVOTS) { /* the flags of the segments are used up */
            const int enough = ls_stats_enough(row, mem->w[j], mass, at_least, least);
            LS_LANE0 mem->flag[j] = enough;
        }
        LS_BARRIER();
        for (int j = 0; j < LS_STAT_PIVOTS; j++) {
            if (!mem->flag[j]) {
                hi = pivot[j];
                break;
            }
            lo = pivot[j];
        }
    }
    LS_BARRIER();
    return lo;
}

/* The smallest y at or above the floor with exp(y) >= min_p, as an order key. */
LS_FN int32_t ls_stats_min_p(const ls_stats_row *row, float min_p, ls_stats_mem *mem) {
    LS_WARPS (s, row->n_seg) {
        lane_i32 least;
        LS_FOR_PARTS (i)
            least.p[i] = part_iset(INT32_MAX);
        const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
        for (int k = s * LS_SEGMENT; k < end; k += LS_LANES)
            LS_FOR_PARTS (i) {
                part_f32 y;
                const part_i32 key = ls_warped_keys(row, k, end, i, &y);
                const part_i32 in = part_iand(part_igt(key, part_iset(row->floor - 1)),
                                              part_ge(part_exp(y), part_set(min_p)));
                least.p[i] = part_imin(least.p[i], part_iselect(in, key, part_iset(INT32_MAX)));
            }
        const int32_t key = lane_hmin_i(least.p);
        LS_LANE0 mem->w[0][s] = (uint32_t)key;
    }
    LS_BARRIER();
    int32_t key = INT32_MAX;
    for (int s = 0; s < row->n_seg; s++)
        key = ls_min_i(key, (int32_t)mem->w[0][s]);
    LS_BARRIER();
    return key;
}

/* The filters of ls_warp in their order: row->floor from here on. */
LS_FN void ls_stats_filter(ls_stats_row *row, const ls_warp *warp, ls_stats_mem *mem) {
    if (warp->top_k > 0 && warp->top_k < row->n)
        row->floor = ls_stats_search(row, row->floor, 0, warp->top_k, 0.0f, mem);
    if (warp->top_p < 1.0f) {
        const int32_t pivot[LS_STAT_PIVOTS] = {row->floor, 1, 1, 1, 1, 1, 1};
        LS_WARPS (s, row->n_seg)
            ls_stats_above(row, s, pivot, 1, mem);
        LS_BARRIER();
        const float least = warp->top_p * ls_stats_total(mem->w[0], row->n_seg);
        LS_BARRIER();
        /* exp is 0 below -104: nothing there is missed */
        row->floor =
            ls_stats_search(row, ls_max_i(row->floor, ls_order(-104.0f)), 1, 0, least, mem);
    }
    if (warp->min_p > 0.0f)
        row->floor = ls_stats_min_p(row, warp->min_p < 1.0f ? warp->min_p : 1.0f, mem);
}

/* ---- mass, entropy, draw --------------------------------------------------------------------- */

/* Sums of exp(y) and exp(y) y over the kept tokens of segment s. */
LS_FN void ls_stats_mass(const ls_stats_row *row, int s, ls_stats_mem *mem) {
    lane_f32 sum = lane_set(0.0f), ent = lane_set(0.0f);
    const part_f32 zero = part_set(0.0f);
    const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
    for (int k = s * LS_SEGMENT; k < end; k += LS_LANES)
        LS_FOR_PARTS (i) {
            part_f32 y;
            const part_i32 key = ls_warped_keys(row, k, end, i, &y);
            const part_f32 e =
                part_select(part_igt(key, part_iset(row->floor - 1)), part_exp(y), zero);
            sum.p[i] = part_add(sum.p[i], e);
            /* where e is 0, y may be -inf */
            ent.p[i] = part_fma(e, part_select(part_gt(e, zero), y, zero), ent.p[i]);
        }
    const float total = lane_sum(sum), weighted = lane_sum(ent);
    LS_LANE0 {
        mem->w[0][s] = ls_bits_of(total);
        mem->w[1][s] = ls_bits_of(weighted);
    }
}

/* Best of y + noise in segment s: w[2] its order key, w[3] its token. */
LS_FN void ls_stats_draw(const ls_stats_row *row, const ls_draw *draw, int s, ls_stats_mem *mem) {
    ls_best best = ls_best_none();
    const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
    for (int k = s * LS_SEGMENT; k < end; k += 4 * LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 lane = part_iota(i);
            part_f32 x[4];
            part_i32 word[4];
            part_load_quads(row->x + k, end - k, i, x);
            part_philox(part_iadd(part_iset(k / 4), lane), draw, word);
            for (int q = 0; q < 4; q++) {
                const part_i32 id = part_iadd(part_iset(k + q), part_isll(lane, 2));
                const part_f32 y = ls_warped(row, x[q]);
                const part_i32 kept = part_iand(part_igt(part_iset(end), id),
                                                part_igt(part_order(y), part_iset(row->floor - 1)));
                ls_best_meet(&best, i, ls_best_key(part_add(y, part_gumbel(word[q])), kept), id);
            }
        }
    int32_t id;
    const int32_t key = ls_best_of(&best, &id);
    LS_LANE0 {
        mem->w[2][s] = (uint32_t)key;
        mem->w[3][s] = (uint32_t)id;
    }
}

/* ---- the largest logits ---------------------------------------------------------------------- */

/* The largest logit that comes after (key, id) in segment s: largest first, lowest id first. */
LS_FN int32_t ls_stats_next(const ls_stats_row *row, int s, int32_t key, int32_t id, int32_t *who) {
    ls_best best = ls_best_none();
    const int end = ls_min_i(row->n, (s + 1) * LS_SEGMENT);
    for (int k = s * LS_SEGMENT; k < end; k += LS_LANES)
        LS_FOR_PARTS (i) {
            part_f32 x;
            const part_i32 kx = ls_logit_keys(row, k, end, i, &x);
            const part_i32 ix = part_iadd(part_iset(k), part_iota(i));
            const part_i32 less = part_igt(part_iset(key), kx);
            const part_i32 tied =
                part_iand(part_ieq(part_iset(key), kx), part_igt(ix, part_iset(id)));
            ls_best_meet(&best, i, part_iselect(part_ior(less, tied), kx, part_iset(INT32_MIN)),
                         ix);
        }
    return ls_best_of(&best, who);
}

/* The next entry of the list after (key, id), by one warp; INT32_MIN when there is none. */
LS_FN int32_t ls_stats_list(const ls_stats_row *row, int32_t key, int32_t *id, ls_stats_mem *mem) {
    ls_best best = ls_best_none();
    for (int s = 0; s < row->n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 ks = part_iload_n(mem->key + s, row->n_seg - s, i);
            const part_i32 is = part_iadd(part_iset(s), part_iota(i));
            const part_i32 in = part_igt(part_iset(row->n_seg), is);
            ls_best_meet(&best, i, part_iselect(in, ks, part_iset(INT32_MIN)), is);
        }
    int32_t seg, next;
    const int32_t top = ls_best_of(&best, &seg);
    if (top == INT32_MIN)
        return top;
    ls_stats_next(row, seg, key, *id, id);
    const int32_t rest = ls_stats_next(row, seg, top, *id, &next);
    LS_WARP_SYNC(); /* all lanes have read the keys before one is replaced */
    LS_LANE0 mem->key[seg] = rest;
    LS_WARP_SYNC();
    return top;
}

/* ---- N-STAT ---------------------------------------------------------------------------------- */

LS_FN void ls_body_stats(const ls_stats_args *a, int r, ls_stats_mem *mem) {
    ls_stats_row row;
    row.x = a->logits + (size_t)r * (size_t)a->ld_logits;
    row.n = a->n_vocab;
    row.n_seg = ls_ceil_div(row.n, LS_SEGMENT);
    LS_WARPS (s, row.n_seg)
        ls_stats_logits(&row, s, mem);
    LS_BARRIER();
    int32_t flags;
    const int32_t top = ls_stats_first(&row, &flags, mem);
    if (flags == 0 && top == ls_order(-LS_INF))
        flags = LS_ROW_NONE;
    ls_row_stats *out = a->stats + r;
    LS_BARRIER();
    LS_WARP0 LS_LANE0 {
        memset(&mem->out, 0, sizeof mem->out);
        mem->out.flags = flags;
        mem->out.argmax = mem->out.token = -1;
    }
    if (flags) {
        LS_WARP0 LS_LANE0 *out = mem->out;
        LS_BARRIER();
        return;
    }

    const ls_warp warp = a->warp[r];
    const int greedy = !(warp.temperature >= LS_TEMPERATURE_MIN);
    const float most = 0x1.fffffep127f;
    row.max = ls_unorder(top);
    row.temp = greedy ? 1.0f : warp.temperature < most ? warp.temperature : most;
    row.floor = ls_order(-LS_INF);
    if (!greedy)
        ls_stats_filter(&row, &warp, mem);
    const ls_draw draw = a->draw[r];
    LS_WARPS (s, row.n_seg) {
        ls_stats_mass(&row, s, mem);
        if (!greedy)
            ls_stats_draw(&row, &draw, s, mem);
    }
    LS_BARRIER();

    LS_WARP0 {
        const float sum = ls_stats_total(mem->w[0], row.n_seg);
        const float part = ls_stats_total(mem->w[1], row.n_seg) / sum;
        const float floor = ls_unorder(row.floor), entropy = ls_log(sum) - part;
        int32_t drawn = INT32_MIN, token = -1;
        if (!greedy)
            for (int s = 0; s < row.n_seg; s++)
                if ((int32_t)mem->w[2][s] > drawn) {
                    drawn = (int32_t)mem->w[2][s];
                    token = (int32_t)mem->w[3][s];
                }
        /* two entries at least, for the margin */
        int32_t key = INT32_MAX, id = -1;
        for (int i = 0; i < (a->n_top > 2 ? a->n_top : 2); i++) {
            key = ls_stats_list(&row, key, &id, mem);
            const float x = ls_unorder(key), y = (x - row.max) / row.temp;
            const float p = ls_exp(y) / sum;
            const int listed = key != INT32_MIN && x > -LS_INF && y >= floor && i < a->n_top;
            LS_LANE0 {
                if (i == 0) {
                    mem->out.argmax = id;
                    mem->out.margin = LS_INF;
                } else if (i == 1 && key != INT32_MIN) {
                    mem->out.margin = row.max - x;
                }
                if (listed) {
                    mem->out.top_token[i] = id;
                    mem->out.top_prob[i] = p;
                    mem->out.n_top = i + 1;
                }
            }
            if (key == INT32_MIN)
                break;
        }
        LS_LANE0 {
            mem->out.token = greedy ? mem->out.argmax : token;
            mem->out.max = row.max;
            mem->out.temp = row.temp;
            mem->out.floor = floor;
            mem->out.sum = sum;
            mem->out.entropy = entropy;
            *out = mem->out;
        }
    }
    LS_BARRIER();
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Of tokens with logits x, from their row's statistics; a flagged row has none. */
LS_FN part_f32 ls_prob_of(const ls_row_stats *st, part_f32 x) {
    ls_stats_row row;
    row.max = st->max;
    row.temp = st->temp;
    const part_f32 y = ls_warped(&row, x), zero = part_set(0.0f);
    const part_f32 p = part_div(part_exp(y), part_set(st->sum));
    const part_i32 kept = part_igt(part_order(y), part_iset(ls_order(st->floor) - 1));
    return st->flags ? zero : part_select(kept, p, zero);
}

/* Of tokens k + lane, k < end; lanes past the end hold no token's. */
LS_FN part_f32 ls_probs_at(const float *logits, const ls_row_stats *st, int k, int end, int i) {
    return ls_prob_of(st, end - k >= LS_LANES ? part_load(logits, (size_t)k, LS_F32, i)
                                              : part_load_n(logits, (size_t)k, end - k, LS_F32, i));
}

/* Tokens [s * LS_SEGMENT, ...) of row r. */
LS_FN void ls_body_probs(const ls_probs_args *a, int r, int s) {
    const int end = ls_min_i(a->n_vocab, (s + 1) * LS_SEGMENT), k0 = s * LS_SEGMENT;
    const float *logits = a->logits + (size_t)r * (size_t)a->ld_logits;
    float *prob = a->prob + (size_t)r * (size_t)a->n_vocab;
    LS_WARPS (j, ls_ceil_div(end - k0, LS_LANES)) {
        const int k = k0 + j * LS_LANES;
        LS_FOR_PARTS (i)
            part_store_n(prob + k, end - k, i, ls_probs_at(logits, a->stats + r, k, end, i));
    }
}

#endif
