/* stats.body.h - all that is asked of a row of logits (N-STAT), and its probabilities.
 * Order     y = (x - max) / temperature. Sums over the row keep the lane and segment order of
 *           N-LIN; a token that is not kept adds +0 in its place.
 * Filters   thresholds, found by search over the ordered bits of y. A rounded sum of non-negative
 *           terms never grows when a term becomes 0, so kept mass falls with the threshold and the
 *           largest threshold that keeps enough is one number, however it is searched.
 * Ties      the largest logit with the lowest id; -0 equals +0.
 * Steps     a row is read in steps (ls_stats_plan): in each, every segment of LS_SEGMENT tokens
 *           leaves what it found in the row's scratch (ls_stats_segment), and what all of them
 *           found is concluded before the next (ls_stats_conclude); the last is joined
 *           (ls_stats_join). A segment needs nothing of another in its step: where and when it is
 *           read is in no result.
 * Block     conclude and join: a block, whose threads all call it. */
#ifndef LS_STATS_BODY_H
#define LS_STATS_BODY_H

#include "backend.h"
#include "draw.body.h"
#include "math.body.h"
#include "tile.h"

#ifndef LS_STAT_PIVOTS
#define LS_STAT_PIVOTS 7 /* thresholds tried in one reading of the row */
#endif

typedef enum ls_stats_step {
    LS_STATS_LOGITS, /* the maximum, and what must not be there */
    LS_STATS_TOP_K,  /* one reading of the search */
    LS_STATS_TOTAL,  /* mass above the floor so far */
    LS_STATS_TOP_P,  /* one reading of the search */
    LS_STATS_MIN_P,
    LS_STATS_KEPT /* mass, entropy, the draw */
} ls_stats_step;

/* One row as the steps see it. */
typedef struct ls_stats_row {
    const float *x;
    int n, n_seg;
    int32_t flags;
    float max, temp;
    int32_t floor;  /* order key of the smallest y kept */
    int32_t lo, hi; /* order keys: the search is between them */
    float least;    /* mass that the search for top_p keeps */
} ls_stats_row;

/* What a segment found at or above each threshold: mass or count. */
typedef struct ls_stats_above {
    uint32_t v[LS_STAT_PIVOTS + 1];
} ls_stats_above;

/* What the segments of a row found: arrays over them. */
typedef struct ls_stats_part {
    int32_t *key, *id; /* the largest logit not yet listed, as an order key, and its token */
    int32_t *next;     /* the second largest; INT32_MIN where there is none */
    int32_t *flag;
    int32_t *least;        /* order key of the smallest y that min_p keeps */
    uint32_t *sum, *ent;   /* of exp(y) and of exp(y) y, over the kept, as their bits */
    int32_t *best, *drawn; /* the largest y + noise, as an order key, and its token */
    ls_stats_above *above;
} ls_stats_part;

/* unit: the temperature is 1, and dividing by it changes nothing. */
LS_FN part_f32 ls_warped(const ls_stats_row *row, int unit, part_f32 x) {
    const part_f32 d = part_sub(x, part_set(row->max));
    const part_f32 y = unit ? d : part_div(d, part_set(row->temp));
    return part_add(y, part_set(0.0f)); /* one zero */
}

/* A segment: tokens [k0, end), whose logits are x[0], ..., wherever they were brought. */
typedef struct ls_stats_seg {
    const float *x;
    int k0, end;
} ls_stats_seg;

LS_FN ls_stats_seg ls_stats_seg_of(const ls_stats_row *row, int s) {
    ls_stats_seg seg;
    seg.k0 = s * LS_SEGMENT;
    seg.x = row->x + seg.k0;
    seg.end = ls_min_i(row->n, seg.k0 + LS_SEGMENT);
    return seg;
}

/* The pieces of a segment, 32 logits each. */
#define LS_STAT_PIECES(j, seg) \
    LS_UNROLL_4                \
    for (int j = 0; (seg)->k0 + j * LS_LANES < (seg)->end; j++)

LS_FN part_f32 ls_stats_x(const ls_stats_seg *seg, int j, int i) {
    const int k = j * LS_LANES, n = seg->end - seg->k0 - k;
    return n >= LS_LANES ? part_load(seg->x, (size_t)k, LS_F32, i)
                         : part_load_n(seg->x, (size_t)k, n, LS_F32, i);
}
/* Tokens of piece j that exist. */
LS_FN part_i32 ls_stats_in(const ls_stats_seg *seg, int j, int i) {
    return part_igt(part_iset(seg->end - seg->k0 - j * LS_LANES), part_iota(i));
}

/* y and its order key of piece j; INT32_MIN past the end. */
LS_FN part_i32 ls_warped_keys(const ls_stats_row *row, int unit, const ls_stats_seg *seg, int j,
                              int i, part_f32 *y) {
    *y = ls_warped(row, unit, ls_stats_x(seg, j, i));
    return part_iselect(ls_stats_in(seg, j, i), part_order(*y), part_iset(INT32_MIN));
}

/* ---- logits: the maximum, and what must not be there ----------------------------------------- */

LS_FN part_i32 ls_logit_keys(const ls_stats_seg *seg, int j, int i, part_f32 *x) {
    *x = ls_stats_x(seg, j, i);
    return part_iselect(ls_stats_in(seg, j, i), part_order(part_add(*x, part_set(0.0f))),
                        part_iset(INT32_MIN));
}

LS_FN void ls_stats_logits(const ls_stats_seg *seg, int s, const ls_stats_part *part) {
    ls_best best = ls_best_none();
    lane_i32 bad, second; /* of each lane */
    LS_FOR_PARTS (i) {
        bad.p[i] = part_iset(0);
        second.p[i] = part_iset(INT32_MIN);
    }
    LS_STAT_PIECES (j, seg)
        LS_FOR_PARTS (i) {
            part_f32 x;
            const part_i32 key = ls_logit_keys(seg, j, i, &x);
            const part_i32 nan = part_iand(part_nan(x), part_iset(LS_ROW_NAN));
            const part_i32 inf = part_iand(part_eq(x, part_set(LS_INF)), part_iset(LS_ROW_INF));
            bad.p[i] = part_ior(bad.p[i], part_ior(nan, inf));
            second.p[i] = part_imax(second.p[i], part_imin(key, best.key.p[i]));
            ls_best_meet(&best, i, key, part_iadd(part_iset(seg->k0 + j * LS_LANES), part_iota(i)));
        }
    int32_t id;
    const int32_t key = ls_best_of(&best, &id), flag = lane_hmax_i(bad.p);
    LS_FOR_PARTS (i) {
        const part_i32 first = part_ieq(best.id.p[i], part_iset(id));
        second.p[i] = part_iselect(first, second.p[i], best.key.p[i]);
        bad.p[i] = part_iand(bad.p[i], part_iset(LS_ROW_NAN));
    }
    const int32_t nan = lane_hmax_i(bad.p), next = lane_hmax_i(second.p);
    LS_LANE0 {
        part->key[s] = key;
        part->id[s] = id;
        part->next[s] = next;
        part->flag[s] = flag | nan; /* the larger flag may hide the other */
    }
}

/* What every segment's maximum and flags make of the row, in every warp. */
LS_FN void ls_stats_first(ls_stats_row *row, const ls_warp *warp, const ls_stats_part *part) {
    lane_i32 top, nan, inf;
    LS_FOR_PARTS (i) {
        top.p[i] = part_iset(INT32_MIN);
        nan.p[i] = inf.p[i] = part_iset(0);
    }
    for (int s = 0; s < row->n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(row->n_seg - s), part_iota(i));
            const part_i32 key = part_iload_n(part->key + s, row->n_seg - s, i);
            const part_i32 flag = part_iload_n(part->flag + s, row->n_seg - s, i);
            top.p[i] = part_imax(top.p[i], part_iselect(in, key, part_iset(INT32_MIN)));
            nan.p[i] = part_ior(nan.p[i], part_iand(flag, part_iset(LS_ROW_NAN)));
            inf.p[i] = part_ior(inf.p[i], part_iand(flag, part_iset(LS_ROW_INF)));
        }
    const int32_t key = lane_hmax_i(top.p);
    const float most = 0x1.fffffep127f, t = warp->temperature;
    row->flags = lane_hmax_i(nan.p) | lane_hmax_i(inf.p);
    if (row->flags == 0 && key == ls_order(-LS_INF))
        row->flags = LS_ROW_NONE;
    row->max = ls_unorder(key);
    row->temp = ls_warp_greedy(warp) ? 1.0f : t < most ? t : most;
    row->floor = row->lo = ls_order(-LS_INF);
    row->hi = 1; /* the key after that of 0: keeps nothing */
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/* Threshold j of the next reading: it cuts the range in LS_STAT_PIVOTS + 1. */
LS_FN int32_t ls_stats_pivot(const ls_stats_row *row, int j) {
    const int64_t step = ((int64_t)row->hi - row->lo) * (j + 1) / (LS_STAT_PIVOTS + 1);
    return (int32_t)(row->lo + (step < 1 ? 1 : step));
}
/* So many readings cut any range down to one key. */
LS_SHARED_FN int ls_stats_readings(void) {
    int n = 0;
    for (int64_t range = (int64_t)1 << 31; range > 1; n++)
        range = (range + LS_STAT_PIVOTS) / (LS_STAT_PIVOTS + 1);
    return n;
}
LS_FN int ls_stats_found(const ls_stats_row *row) {
    return (int64_t)row->hi - row->lo <= 1;
}

/* What is at or above each threshold in segment s: mass (mass != 0) or count. Of LS_STATS_TOTAL the
 * first is the floor and the others keep nothing. */
LS_FN void ls_stats_cut(const ls_stats_row *row, const ls_stats_seg *seg, int total, int mass,
                        int s, const ls_stats_part *part) {
    lane_f32 sum[LS_STAT_PIVOTS];
    lane_i32 count[LS_STAT_PIVOTS];
    int32_t pivot[LS_STAT_PIVOTS];
    LS_UNROLLED (j, LS_STAT_PIVOTS)
        pivot[j] = !total ? ls_stats_pivot(row, j) : j == 0 ? row->floor : 1;
    LS_FOR_PARTS (i) {
        LS_UNROLLED (j, LS_STAT_PIVOTS) {
            sum[j].p[i] = part_set(0.0f);
            count[j].p[i] = part_iset(0);
        }
        LS_STAT_PIECES (k, seg) {
            part_f32 y;
            const part_i32 key = ls_warped_keys(row, 0, seg, k, i, &y);
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
    LS_UNROLLED (j, LS_STAT_PIVOTS) {
        const uint32_t above =
            mass ? ls_bits_of(lane_sum(sum[j])) : (uint32_t)lane_hsum_i(count[j].p);
        LS_LANE0 part->above[s].v[j] = above;
    }
    LS_LANE0 part->above[s].v[LS_STAT_PIVOTS] = 0;
}

/* A total over segments, in ascending order, goes on with n more, `step` words apart. -0 begins it:
 * the first sum starts the total as it is. */
LS_FN float ls_stats_more(float total, const uint32_t *sum, int step, int n) {
    enum { AT_ONCE = 16 };
    int s = 0;
    for (; s + AT_ONCE <= n; s += AT_ONCE) {
        float v[AT_ONCE];
        LS_UNROLLED (i, AT_ONCE)
            v[i] = ls_float_of(sum[(s + i) * step]);
        LS_UNROLLED (i, AT_ONCE)
            total = total + v[i];
    }
    for (; s < n; s++)
        total = total + ls_float_of(sum[s * step]);
    return total;
}

/* What is above threshold j, the bits of a mass or a count: begun, and gone on with n segments. */
LS_FN uint32_t ls_stats_none_above(int mass) {
    return mass ? ls_bits_of(-0.0f) : 0;
}
LS_FN uint32_t ls_stats_more_above(uint32_t total, int mass, const ls_stats_above *above, int j,
                                   int n) {
    if (mass)
        return ls_bits_of(ls_stats_more(ls_float_of(total), above->v + j, LS_STAT_PIVOTS + 1, n));
    for (int s = 0; s < n; s++)
        total += above[s].v[j];
    return total;
}

/* One reading of a search: the range shrinks to that between the last threshold whose tokens at or
 * above it are enough and the next. */
LS_FN void ls_stats_narrow(ls_stats_row *row, int mass, int32_t at_least, const uint32_t *total) {
    const ls_stats_row was = *row;
    for (int j = 0; j < LS_STAT_PIVOTS; j++) {
        const int32_t pivot = ls_stats_pivot(&was, j);
        if (mass ? ls_float_of(total[j]) >= row->least : (int32_t)total[j] >= at_least) {
            row->lo = pivot;
        } else {
            row->hi = pivot;
            break;
        }
    }
}

/* The smallest y at or above the floor with exp(y) >= min_p, as an order key. */
LS_FN void ls_stats_min_p(const ls_stats_row *row, const ls_stats_seg *seg, float min_p, int s,
                          const ls_stats_part *part) {
    lane_i32 least;
    LS_FOR_PARTS (i)
        least.p[i] = part_iset(INT32_MAX);
    LS_STAT_PIECES (j, seg)
        LS_FOR_PARTS (i) {
            part_f32 y;
            const part_i32 key = ls_warped_keys(row, 0, seg, j, i, &y);
            const part_i32 in = part_iand(part_igt(key, part_iset(row->floor - 1)),
                                          part_ge(part_exp(y), part_set(min_p)));
            least.p[i] = part_imin(least.p[i], part_iselect(in, key, part_iset(INT32_MAX)));
        }
    const int32_t key = lane_hmin_i(least.p);
    LS_LANE0 part->least[s] = key;
}
LS_FN int32_t ls_stats_least(const ls_stats_row *row, const ls_stats_part *part) {
    lane_i32 least;
    LS_FOR_PARTS (i)
        least.p[i] = part_iset(INT32_MAX);
    for (int s = 0; s < row->n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(row->n_seg - s), part_iota(i));
            const part_i32 key = part_iload_n(part->least + s, row->n_seg - s, i);
            least.p[i] = part_imin(least.p[i], part_iselect(in, key, part_iset(INT32_MAX)));
        }
    return lane_hmin_i(least.p);
}

/* ---- mass, entropy, draw --------------------------------------------------------------------- */

/* Sums of exp(y) and exp(y) y over the kept tokens of segment s. */
LS_FN void ls_stats_mass(const ls_stats_row *row, int unit, const ls_stats_seg *seg, int s,
                         const ls_stats_part *part) {
    lane_f32 sum = lane_set(0.0f), ent = lane_set(0.0f);
    const part_f32 zero = part_set(0.0f);
    LS_STAT_PIECES (j, seg)
        LS_FOR_PARTS (i) {
            part_f32 y;
            const part_i32 key = ls_warped_keys(row, unit, seg, j, i, &y);
            const part_f32 e =
                part_select(part_igt(key, part_iset(row->floor - 1)), part_exp(y), zero);
            sum.p[i] = part_add(sum.p[i], e);
            /* where e is 0, y may be -inf */
            ent.p[i] = part_fma(e, part_select(part_gt(e, zero), y, zero), ent.p[i]);
        }
    const float total = lane_sum(sum), weighted = lane_sum(ent);
    LS_LANE0 {
        part->sum[s] = ls_bits_of(total);
        part->ent[s] = ls_bits_of(weighted);
    }
}

/* Best of y + noise in segment s. */
LS_FN void ls_stats_draw(const ls_stats_row *row, int unit, const ls_stats_seg *seg,
                         const ls_draw *draw, int s, const ls_stats_part *part) {
    ls_best best = ls_best_none();
    const int end = seg->end;
    for (int k = seg->k0; k < end; k += 4 * LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 lane = part_iota(i);
            part_f32 x[4];
            part_i32 word[4];
            part_load_quads(seg->x + (k - seg->k0), end - k, i, x);
            part_philox(part_iadd(part_iset(k / 4), lane), draw, word);
            for (int q = 0; q < 4; q++) {
                const part_i32 id = part_iadd(part_iset(k + q), part_isll(lane, 2));
                const part_f32 y = ls_warped(row, unit, x[q]);
                const part_i32 kept = part_iand(part_igt(part_iset(end), id),
                                                part_igt(part_order(y), part_iset(row->floor - 1)));
                ls_best_meet(&best, i, ls_best_key(part_add(y, part_gumbel(word[q])), kept), id);
            }
        }
    int32_t id;
    const int32_t key = ls_best_of(&best, &id);
    LS_LANE0 {
        part->best[s] = key;
        part->drawn[s] = id;
    }
}

LS_FN void ls_stats_kept(const ls_stats_row *row, int unit, const ls_stats_seg *seg,
                         const ls_warp *warp, const ls_draw *draw, int s,
                         const ls_stats_part *part) {
    ls_stats_mass(row, unit, seg, s, part);
    if (!ls_warp_greedy(warp))
        ls_stats_draw(row, unit, seg, draw, s, part);
}

/* ---- the steps ------------------------------------------------------------------------------- */

#define LS_STATS_STEPS 32 /* of one row, at most */

/* The steps of rows whose warps ask for these filters and no others; how many there are. */
LS_SHARED_FN int ls_stats_plan(int filters, ls_stats_step *step) {
    const int readings = ls_stats_readings();
    int n = 0;
    step[n++] = LS_STATS_LOGITS;
    for (int i = 0; (filters & LS_FILTER_TOP_K) && i < readings; i++)
        step[n++] = LS_STATS_TOP_K;
    if (filters & LS_FILTER_TOP_P)
        step[n++] = LS_STATS_TOTAL;
    for (int i = 0; (filters & LS_FILTER_TOP_P) && i < readings; i++)
        step[n++] = LS_STATS_TOP_P;
    if (filters & LS_FILTER_MIN_P)
        step[n++] = LS_STATS_MIN_P;
    step[n++] = LS_STATS_KEPT;
    return n;
}

LS_FN ls_stats_row ls_stats_row_of(const ls_stats_args *a, int r) {
    ls_stats_row row;
    memset(&row, 0, sizeof row);
    row.x = a->logits + (size_t)r * (size_t)a->ld_logits;
    row.n = a->n_vocab;
    row.n_seg = ls_ceil_div(row.n, LS_SEGMENT);
    return row;
}

/* Whether the row takes part in a step: its warp asks for the filter, and has not found it yet. */
LS_FN int ls_stats_asks(const ls_stats_row *row, const ls_warp *warp, ls_stats_step step) {
    const int filters = ls_warp_filters(warp, row->n);
    if (row->flags)
        return 0;
    switch (step) {
    case LS_STATS_TOP_K:
        return (filters & LS_FILTER_TOP_K) && !ls_stats_found(row);
    case LS_STATS_TOTAL:
        return filters & LS_FILTER_TOP_P;
    case LS_STATS_TOP_P:
        return (filters & LS_FILTER_TOP_P) && !ls_stats_found(row);
    case LS_STATS_MIN_P:
        return filters & LS_FILTER_MIN_P;
    default:
        return 1;
    }
}
LS_SHARED_FN int ls_stats_counts(ls_stats_step step) { /* its thresholds are to be totalled */
    return step == LS_STATS_TOP_K || step == LS_STATS_TOTAL || step == LS_STATS_TOP_P;
}
LS_FN float ls_stats_min_of(const ls_warp *warp) {
    return warp->min_p < 1.0f ? warp->min_p : 1.0f;
}

/* A warp: segment s in a step. */
LS_FN void ls_stats_segment(const ls_stats_row *row, const ls_stats_seg *seg, const ls_warp *warp,
                            const ls_draw *draw, ls_stats_step step, int s,
                            const ls_stats_part *part) {
    if (!ls_stats_asks(row, warp, step))
        return;
    switch (step) {
    case LS_STATS_LOGITS:
        ls_stats_logits(seg, s, part);
        break;
    case LS_STATS_TOP_K:
        ls_stats_cut(row, seg, 0, 0, s, part);
        break;
    case LS_STATS_TOTAL:
        ls_stats_cut(row, seg, 1, 1, s, part);
        break;
    case LS_STATS_TOP_P:
        ls_stats_cut(row, seg, 0, 1, s, part);
        break;
    case LS_STATS_MIN_P:
        ls_stats_min_p(row, seg, ls_stats_min_of(warp), s, part);
        break;
    case LS_STATS_KEPT:
        if (row->temp == 1.0f)
            ls_stats_kept(row, 1, seg, warp, draw, s, part);
        else
            ls_stats_kept(row, 0, seg, warp, draw, s, part);
        break;
    }
}

/* What the segments of a step make of the row, in every warp. total: of each threshold, where
 * ls_stats_counts. */
LS_FN void ls_stats_conclude(ls_stats_row *row, const ls_warp *warp, ls_stats_step step,
                             const ls_stats_part *part, const uint32_t *total) {
    if (!ls_stats_asks(row, warp, step))
        return;
    if (step == LS_STATS_LOGITS) {
        ls_stats_first(row, warp, part);
    } else if (step == LS_STATS_MIN_P) {
        row->floor = ls_stats_least(row, part);
    } else if (step == LS_STATS_TOTAL) {
        row->least = warp->top_p * ls_float_of(total[0]);
        /* exp is 0 below -104: nothing there is missed */
        row->lo = ls_max_i(row->floor, ls_order(-104.0f));
        row->hi = 1;
    } else if (ls_stats_counts(step)) {
        ls_stats_narrow(row, step == LS_STATS_TOP_P, warp->top_k, total);
    }
    if (ls_stats_counts(step) && ls_stats_found(row))
        row->floor = row->lo;
}

/* ---- the largest logits ---------------------------------------------------------------------- */

typedef struct ls_stats_join_mem {
    uint32_t total[2]; /* of exp(y), of exp(y) y */
    int32_t drawn, n_listed;
    int32_t second; /* the second largest logit, as an order key */
    int32_t key[LS_TOP_MAX], id[LS_TOP_MAX];
    ls_row_stats out;
} ls_stats_join_mem;

/* The largest logit that comes after (key, id) in segment s: largest first, lowest id first. */
LS_FN int32_t ls_stats_next(const ls_stats_row *row, int s, int32_t key, int32_t id, int32_t *who) {
    ls_best best = ls_best_none();
    const ls_stats_seg seg = ls_stats_seg_of(row, s);
    LS_STAT_PIECES (j, &seg)
        LS_FOR_PARTS (i) {
            part_f32 x;
            const part_i32 kx = ls_logit_keys(&seg, j, i, &x);
            const part_i32 ix = part_iadd(part_iset(seg.k0 + j * LS_LANES), part_iota(i));
            const part_i32 less = part_igt(part_iset(key), kx);
            const part_i32 tied =
                part_iand(part_ieq(part_iset(key), kx), part_igt(ix, part_iset(id)));
            ls_best_meet(&best, i, part_iselect(part_ior(less, tied), kx, part_iset(INT32_MIN)),
                         ix);
        }
    return ls_best_of(&best, who);
}

/* The largest key but that of segment `top`, of which it is the second. */
LS_FN int32_t ls_stats_second(const ls_stats_row *row, int32_t top, const ls_stats_part *part) {
    lane_i32 most;
    LS_FOR_PARTS (i)
        most.p[i] = part_iset(INT32_MIN);
    for (int s = 0; s < row->n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 in = part_igt(part_iset(row->n_seg - s), part_iota(i));
            const part_i32 is = part_iadd(part_iset(s), part_iota(i));
            const part_i32 key = part_iselect(part_ieq(is, part_iset(top)),
                                              part_iload_n(part->next + s, row->n_seg - s, i),
                                              part_iload_n(part->key + s, row->n_seg - s, i));
            most.p[i] = part_imax(most.p[i], part_iselect(in, key, part_iset(INT32_MIN)));
        }
    return lane_hmax_i(most.p);
}

/* The n > 0 largest logits, and the second, by one warp. */
LS_FN void ls_stats_list(const ls_stats_row *row, int n, const ls_stats_part *part,
                         ls_stats_join_mem *mem) {
    int i = 0;
    for (; i < n; i++) {
        int32_t seg, next;
        const int32_t key = ls_best_segment(part->key, row->n_seg, &seg);
        if (key == INT32_MIN)
            break;
        if (i == 0) {
            const int32_t second = ls_stats_second(row, seg, part);
            LS_LANE0 mem->second = second;
        }
        const int32_t id = part->id[seg];
        LS_LANE0 {
            mem->key[i] = key;
            mem->id[i] = id;
        }
        if (i + 1 == n)
            continue;
        const int32_t rest = ls_stats_next(row, seg, key, id, &next);
        LS_WARP_SYNC(); /* all lanes have read the entry before it is replaced */
        LS_LANE0 {
            part->key[seg] = rest;
            part->id[seg] = next;
        }
        LS_WARP_SYNC();
    }
    LS_LANE0 mem->n_listed = i;
}

/* ---- N-STAT ---------------------------------------------------------------------------------- */

/* The row's statistics, from what the segments of its last step found. The list of `part` is used
 * up. */
LS_FN void ls_stats_join(const ls_stats_args *a, int r, const ls_stats_row *row,
                         const ls_stats_part *part, ls_stats_join_mem *mem) {
    const int greedy = ls_warp_greedy(a->warp + r);
    LS_WARP0 LS_LANE0 {
        memset(&mem->out, 0, sizeof mem->out);
        mem->out.flags = row->flags;
        mem->out.argmax = mem->out.token = -1;
    }
    if (!row->flags)
        LS_WARPS (j, 3) {
            if (j == 0) {
                LS_EACH (i, 2)
                    mem->total[i] =
                        ls_bits_of(ls_stats_more(-0.0f, i ? part->ent : part->sum, 1, row->n_seg));
            } else if (j == 1) {
                const int32_t drawn =
                    greedy ? -1 : ls_choose_of(part->best, part->drawn, row->n_seg);
                LS_LANE0 mem->drawn = drawn;
            } else {
                ls_stats_list(row, ls_max_i(a->n_top, 1), part, mem);
            }
        }
    LS_BARRIER();
    LS_WARP0 {
        ls_row_stats *out = &mem->out;
        if (!row->flags) {
            const float sum = ls_float_of(mem->total[0]);
            const float part_ent = ls_float_of(mem->total[1]) / sum;
            const float floor = ls_unorder(row->floor), entropy = ls_log(sum) - part_ent;
            for (int i = 0; i < mem->n_listed && i < a->n_top; i++) {
                const float x = ls_unorder(mem->key[i]), y = (x - row->max) / row->temp;
                const float p = ls_exp(y) / sum;
                LS_LANE0 if (x > -LS_INF && y >= floor) {
                    out->top_token[i] = mem->id[i];
                    out->top_prob[i] = p;
                    out->n_top = i + 1;
                }
            }
            const int32_t token = greedy ? mem->id[0] : mem->drawn;
            const float of_token =
                token < 0 ? 0.0f : ls_exp((row->x[token] - row->max) / row->temp) / sum;
            LS_LANE0 {
                out->argmax = mem->id[0];
                out->margin =
                    mem->second == INT32_MIN ? LS_INF : row->max - ls_unorder(mem->second);
                out->token = token;
                out->token_prob = of_token;
                out->max = row->max;
                out->temp = row->temp;
                out->floor = floor;
                out->sum = sum;
                out->entropy = entropy;
            }
        }
        LS_LANE0 a->stats[r] = *out;
    }
    LS_BARRIER();
}

/* A row by one block, whose memory holds the scratch. */
typedef struct ls_stats_mem {
    int32_t key[LS_STAT_SEGMENTS], id[LS_STAT_SEGMENTS], next[LS_STAT_SEGMENTS];
    int32_t flag[LS_STAT_SEGMENTS];
    int32_t least[LS_STAT_SEGMENTS], best[LS_STAT_SEGMENTS], drawn[LS_STAT_SEGMENTS];
    uint32_t sum[LS_STAT_SEGMENTS], ent[LS_STAT_SEGMENTS];
    ls_stats_above above[LS_STAT_SEGMENTS];
    uint32_t total[LS_STAT_PIVOTS];
    ls_stats_join_mem join;
} ls_stats_mem;

LS_FN void ls_body_stats(const ls_stats_args *a, int r, ls_stats_mem *mem) {
    const ls_stats_part part = {mem->key, mem->id,  mem->next, mem->flag,  mem->least,
                                mem->sum, mem->ent, mem->best, mem->drawn, mem->above};
    ls_stats_row row = ls_stats_row_of(a, r);
    const ls_warp warp = a->warp[r];
    const ls_draw draw = a->draw[r];
    ls_stats_step step[LS_STATS_STEPS];
    const int n_step = ls_stats_plan(ls_warp_filters(&warp, row.n), step);
    for (int t = 0; t < n_step; t++) {
        LS_WARPS (s, row.n_seg) {
            const ls_stats_seg seg = ls_stats_seg_of(&row, s);
            ls_stats_segment(&row, &seg, &warp, &draw, step[t], s, &part);
        }
        LS_BARRIER();
        LS_WARP0 LS_EACH (j, ls_stats_counts(step[t]) ? LS_STAT_PIVOTS : 0) {
            const int mass = step[t] != LS_STATS_TOP_K;
            mem->total[j] =
                ls_stats_more_above(ls_stats_none_above(mass), mass, part.above, j, row.n_seg);
        }
        LS_BARRIER();
        ls_stats_conclude(&row, &warp, step[t], &part, mem->total);
        LS_BARRIER();
    }
    ls_stats_join(a, r, &row, &part, &mem->join);
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Of tokens with logits x, from their row's statistics; a flagged row has none. */
LS_FN part_f32 ls_prob_of(const ls_row_stats *st, part_f32 x) {
    ls_stats_row row;
    row.max = st->max;
    row.temp = st->temp;
    const part_f32 y = ls_warped(&row, 0, x), zero = part_set(0.0f);
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
