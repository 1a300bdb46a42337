/* draw.body.h - random numbers by lanes, and the Gumbel-max draw (N-DRAW).
 * Words   Philox4x32-10, bit for bit Random123's (draw.h says what the counter holds). A lane
 *         computes one counter: the words of tokens 4c .. 4c + 3.
 * Noise   u = (word >> 9) 2^-23 + 2^-24, exact; g = -log(-log(u)), log is N-LOG.
 * Draw    argmax of y + g over the kept tokens, the sum rounded once; ties go to the lowest id.
 *         A maximum has no order, so lanes and segments may meet in any. */
#ifndef LS_DRAW_BODY_H
#define LS_DRAW_BODY_H

#include "backend.h"
#include "math.body.h"
#include "tile.h"

/* Words of counter (c, position, sequence, purpose_salt), c per lane. */
LS_FN void part_philox(part_i32 c, const ls_draw *d, part_i32 out[4]) {
    uint32_t k0 = d->key[0], k1 = d->key[1];
    out[0] = c;
    out[1] = part_iset((int32_t)d->position);
    out[2] = part_iset((int32_t)d->sequence);
    out[3] = part_iset((int32_t)d->purpose_salt);
    for (int round = 0; round < 10; round++) {
        const part_i32 hi0 = part_umulhi(out[0], 0xD2511F53u),
                       lo0 = part_umullo(out[0], 0xD2511F53u);
        const part_i32 hi1 = part_umulhi(out[2], 0xCD9E8D57u),
                       lo1 = part_umullo(out[2], 0xCD9E8D57u);
        out[0] = part_ixor(part_ixor(hi1, out[1]), part_iset((int32_t)k0));
        out[2] = part_ixor(part_ixor(hi0, out[3]), part_iset((int32_t)k1));
        out[1] = lo1;
        out[3] = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Uniform in (0, 1) from a word. */
LS_FN part_f32 part_uniform(part_i32 word) {
    const part_f32 steps = part_from_i(part_isrl(word, 9));
    return part_fma(steps, part_set(0x1p-23f), part_set(0x1p-24f));
}

LS_FN part_f32 part_gumbel(part_i32 word) {
    const part_f32 u = part_uniform(word), minus = part_set(-0.0f);
    return part_sub(minus, part_log(part_sub(minus, part_log(u))));
}

/* ls_draw_key of draw.h on the device, for a salt of 0. */
LS_FN ls_draw ls_draw_at(uint64_t seed, uint32_t sequence, uint32_t position, uint32_t purpose) {
    ls_draw d;
    d.key[0] = (uint32_t)seed;
    d.key[1] = (uint32_t)(seed >> 32);
    d.position = position;
    d.sequence = sequence;
    d.purpose_salt = purpose << 24;
    return d;
}
/* ls_draw_uniform of draw.h for token 0. */
LS_FN float ls_draw_first(const ls_draw *d) {
    part_i32 word[4];
    part_philox(part_iset(0), d, word);
    return part_first(part_uniform(word[0]));
}

/* A candidate per lane: the order key of its value (INT32_MIN: none) and its token. */
typedef struct ls_best {
    lane_i32 key, id;
} ls_best;

LS_FN ls_best ls_best_none(void) {
    ls_best b;
    LS_FOR_PARTS (i) {
        b.key.p[i] = part_iset(INT32_MIN);
        b.id.p[i] = part_iset(INT32_MAX);
    }
    return b;
}
/* Candidates come to a lane in ascending id, so `greater` alone keeps the lowest of equals. */
LS_FN void ls_best_meet(ls_best *b, int i, part_i32 key, part_i32 id) {
    const part_i32 more = part_igt(key, b->key.p[i]);
    b->key.p[i] = part_iselect(more, key, b->key.p[i]);
    b->id.p[i] = part_iselect(more, id, b->id.p[i]);
}
/* Over the lanes: the largest key, then the lowest id that has it. */
LS_FN int32_t ls_best_of(const ls_best *b, int32_t *id) {
    const int32_t key = lane_hmax_i(b->key.p);
    lane_i32 who;
    LS_FOR_PARTS (i)
        who.p[i] =
            part_iselect(part_ieq(b->key.p[i], part_iset(key)), b->id.p[i], part_iset(INT32_MAX));
    *id = lane_hmin_i(who.p);
    return key;
}
/* Order key of a value with the two zeros made one; INT32_MIN where it is not kept. */
LS_FN part_i32 ls_best_key(part_f32 v, part_i32 kept) {
    return part_iselect(kept, part_order(part_add(v, part_set(0.0f))), part_iset(INT32_MIN));
}

/* ---- choose: a draw from weights that need not be normalised --------------------------------- */

typedef struct ls_choose_mem {
    int32_t key[LS_STAT_SEGMENTS], id[LS_STAT_SEGMENTS];
} ls_choose_mem;

/* The best of segment s of n weights: its order key, INT32_MIN where none is positive. */
LS_FN int32_t ls_choose_segment(const float *w, int n, const ls_draw *draw, int s, int32_t *token) {
    ls_best best = ls_best_none();
    const int end = ls_min_i(n, (s + 1) * LS_SEGMENT);
    for (int k = s * LS_SEGMENT; k < end; k += 4 * LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 lane = part_iota(i);
            part_f32 x[4];
            part_i32 word[4];
            part_load_quads(w + k, end - k, i, x);
            part_philox(part_iadd(part_iset(k / 4), lane), draw, word);
            for (int q = 0; q < 4; q++) {
                const part_i32 id = part_iadd(part_iset(k + q), part_isll(lane, 2));
                const part_f32 v = part_add(part_log(x[q]), part_gumbel(word[q]));
                /* past the end the weight is 0: never drawn, as any 0 */
                ls_best_meet(&best, i, ls_best_key(v, part_gt(x[q], part_set(0.0f))), id);
            }
        }
    return ls_best_of(&best, token);
}

/* The largest of one candidate a segment, the first of equals, and its segment; INT32_MIN when
 * there is none. */
LS_FN int32_t ls_best_segment(const int32_t *key, int n_seg, int32_t *seg) {
    ls_best best = ls_best_none();
    for (int s = 0; s < n_seg; s += LS_LANES)
        LS_FOR_PARTS (i) {
            const part_i32 ks = part_iload_n(key + s, n_seg - s, i);
            const part_i32 is = part_iadd(part_iset(s), part_iota(i));
            const part_i32 in = part_igt(part_iset(n_seg), is);
            ls_best_meet(&best, i, part_iselect(in, ks, part_iset(INT32_MIN)), is);
        }
    return ls_best_of(&best, seg);
}
/* The token drawn, from the best of each segment; -1 when none has one. In every warp. */
LS_FN int32_t ls_choose_of(const int32_t *key, const int32_t *id, int n_seg) {
    int32_t seg;
    return ls_best_segment(key, n_seg, &seg) == INT32_MIN ? -1 : id[seg];
}

/* The token drawn from n weights, in every thread; -1 when none is positive. */
LS_FN int32_t ls_choose_token(const float *w, int n, const ls_draw *draw, ls_choose_mem *mem) {
    const int n_seg = ls_ceil_div(n, LS_SEGMENT);
    LS_WARPS (s, n_seg) {
        int32_t id;
        const int32_t key = ls_choose_segment(w, n, draw, s, &id);
        LS_LANE0 {
            mem->key[s] = key;
            mem->id[s] = id;
        }
    }
    LS_BARRIER();
    const int32_t token = ls_choose_of(mem->key, mem->id, n_seg);
    LS_BARRIER(); /* all have read before the memory is used again */
    return token;
}

LS_FN void ls_body_choose(const ls_choose_args *a, int r, ls_choose_mem *mem) {
    const ls_draw draw = a->draw[r];
    const int32_t token =
        ls_choose_token(a->weight + (size_t)r * (size_t)a->n_vocab, a->n_vocab, &draw, mem);
    LS_WARP0 LS_LANE0 a->token[r] = token;
}

#endif
