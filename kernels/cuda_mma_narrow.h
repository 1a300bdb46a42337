/* cuda_mma_narrow.h - what a block of the narrow kernel works on (cuda_mma_narrow.cu): its items,
 * the warps' x, where sums go, and the rings of weights. Private to it. */
#ifndef LS_CUDA_MMA_NARROW_H
#define LS_CUDA_MMA_NARROW_H

#include "cuda_mma_format.h"
#include "rows.body.h"

#define MMA_WARPS 8
#define MMA_THREADS (MMA_WARPS * 32)
#define MMA_DEPTH_MOST 6

#define MMA_BAND 8 /* tiles whose totals a block keeps; even, as teams are that are not one */

typedef struct mma_narrow_args {
    mma_list m;
    const uint16_t *x16; /* [n_rows, ld] see ls_mma_round */
    ls_mma_norm norm;    /* ahead */
    ls_mma_next next;    /* behind; of one matrix */
    ls_mma_gates gates;  /* behind; of two matrices */
    int32_t n_rows, ld, segments, ranges, last_steps;
    /* [0] of a full range, [1] of the last; warp / slots = warp * inverse / 256 */
    int32_t slots[2], teams[2], inverse[2];
    int32_t pair;        /* tiles that stay in a block: 2, a gate's and its up's, or 1 */
    int32_t share, rest; /* a block's tiles; a pair more for the first `rest` blocks */
    int32_t band;        /* tiles of a band */
    int32_t depth;       /* stages of a ring */
} mma_narrow_args;

/* Where a block is: for each band of its tiles, for each range, the band's tiles, a team each.
 * Tiles are counted in the order they are walked in (mma_tile_of). */
typedef struct mma_at {
    int tile, range, band, band_end, end;
} mma_at;
MMA_FN mma_at mma_begin(const mma_narrow_args *a) {
    const int b = (int)blockIdx.x, begin = b * a->share + min(b, a->rest) * a->pair;
    const int end = begin + a->share + (b < a->rest ? a->pair : 0);
    return mma_at{begin, 0, begin, min(begin + a->band, end), end};
}
MMA_FN int mma_kind(const mma_narrow_args *a, const mma_at *at) {
    return at->range == a->ranges - 1;
}
/* Of a range of this kind; both are read, since an index into them is waited for. */
MMA_FN int mma_teams(const mma_narrow_args *a, int kind) {
    return kind ? a->teams[1] : a->teams[0];
}
MMA_FN int mma_slots(const mma_narrow_args *a, int kind) {
    return kind ? a->slots[1] : a->slots[0];
}
/* Tile `walked` in the list's order: as it is, or of gate and up in turns. */
MMA_FN int mma_tile_of(const mma_narrow_args *a, int walked) {
    return a->gates.gate ? (walked & 1 ? a->m.first[1] : 0) + (walked >> 1) : walked;
}
/* Whether warps may get other segments, or none: not if of one team the tile alone is new. */
MMA_FN bool mma_next_item(const mma_narrow_args *a, mma_at *at) {
    const int teams = mma_teams(a, mma_kind(a, at));
    at->tile += teams;
    if (at->tile < at->band_end)
        return teams > 1;
    if (++at->range == a->ranges) {
        at->range = 0;
        at->band = at->band_end;
        at->band_end = min(at->band + a->band, at->end);
    }
    at->tile = at->band;
    return true;
}

/* What a warp does in an item. */
typedef struct mma_job {
    int tile, segment;
    int steps; /* 0: nothing to do */
} mma_job;
MMA_FN mma_job mma_job_of(const mma_narrow_args *a, const mma_at *at, int warp) {
    mma_job j;
    const int kind = mma_kind(a, at);
    const int team = warp * (kind ? a->inverse[1] : a->inverse[0]) >> 8;
    j.tile = at->tile + team;
    j.segment = at->range * MMA_RANGE + warp - team * mma_slots(a, kind);
    j.steps = j.segment == a->segments - 1 ? a->last_steps : MMA_SEGMENT_STEPS;
    if (team >= mma_teams(a, kind) || j.tile >= at->band_end)
        j.steps = 0;
    return j;
}

/* The warp's segment of x (see mma_x_of). In registers: of row g, lane t's four k of the steps 2 q
 * and 2 q + 1; of packed weights scaled (mma_times). All in registers would leave no room for other
 * kernels' warps beside these, and nothing would begin early. */
template <int F>
MMA_FN void mma_hold_x(const mma_narrow_args *a, uint4 x[16], int row, int segment, int lane) {
    const int k0 = segment * MMA_SEGMENT;
    const uint16_t *from = a->x16 + (size_t)row * (size_t)a->ld + k0 + (lane & 3) * 8;
#pragma unroll
    for (int q = 0; q < 16; q++) {
        x[q] = make_uint4(0, 0, 0, 0);
        if (row < a->n_rows && k0 + q * 32 < a->ld)
            x[q] = __ldcg((const uint4 *)(const void *)(from + q * 32));
    }
    if (F != LS_BF16)
#pragma unroll
        for (int q = 0; q < 16; q++)
            x[q] = mma_times<F>(x[q]);
}
/* Rows as they are but scaled (mma_times), 16 bytes a lane at once, four rows on their way; past
 * the last k zeros. `to`: where the warp's lie. */
template <int F>
MMA_FN void mma_copy_x(const mma_narrow_args *a, uint32_t to, int segment, int lane) {
    const int k = segment * MMA_SEGMENT + lane * 8;
    __syncwarp(); /* of the segment before nothing is read any more */
    for (int first = 0; first < a->n_rows; first += 4) {
        uint4 v[4][2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = first + i / 2, at = k + i % 2 * 256;
            v[i / 2][i % 2] = make_uint4(0, 0, 0, 0);
            if (row < a->n_rows && at < a->ld)
                v[i / 2][i % 2] = __ldcg((const uint4 *)(const void *)(a->x16 + row * a->ld + at));
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i / 2 < a->n_rows)
                mma_sts4(to + (uint32_t)((first + i / 2) * MMA_ROW_BYTES + i % 2 * 512 + lane * 16),
                         mma_times<F>(v[i / 2][i % 2]));
    }
    __syncwarp();
}
/* Where x lies in a block's memory behind the rings: the warp's own, and the row of zeros. */
template <int F, int NT>
MMA_FN uint32_t mma_rows_at(const mma_narrow_args *a, uint32_t memory, int warp) {
    const int bytes = MMA_X_HELD(F, NT) ? MMA_MORE_BYTES : a->n_rows * MMA_ROW_BYTES;
    return memory + (uint32_t)(MMA_WARPS * a->depth * MMA_STAGE_BYTES(F) + warp * bytes);
}
/* Where a lane's part 0 of it lies: of what it wrote itself, or of row g. */
template <int F, int NT>
MMA_FN uint32_t mma_more_of(const mma_narrow_args *a, uint32_t memory, int warp, int lane) {
    const uint32_t at = mma_rows_at<F, NT>(a, memory, warp);
    if (MMA_X_HELD(F, NT))
        return at + (uint32_t)(lane * 16);
    const int g = lane >> 2;
    const uint32_t none = mma_rows_at<F, NT>(a, memory, MMA_WARPS);
    return (g < a->n_rows ? at + (uint32_t)(g * MMA_ROW_BYTES) : none) +
           (uint32_t)((lane & 3) * 16);
}
template <int F, int NT>
MMA_FN void mma_take_x(const mma_narrow_args *a, uint4 x[16], uint32_t memory, uint32_t more,
                       int segment, int warp, int lane) {
    if (!MMA_X_HELD(F, NT)) {
        mma_copy_x<F>(a, mma_rows_at<F, NT>(a, memory, warp), segment, lane);
        return;
    }
    if (NT == 2) {
        mma_hold_x<F>(a, x, 8 + (lane >> 2), segment, lane);
#pragma unroll
        for (int q = 0; q < 16; q++)
            mma_sts4(more + (uint32_t)(q * 512), x[q]);
    }
    mma_hold_x<F>(a, x, lane >> 2, segment, lane);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Threads and the elements of a tile and 8 rows: 4 warps with two rows each, lane 4 g + q with
 * output g + 8 (q / 2) of row q mod 2, so that a warp has all outputs of its rows. In shared memory
 * the 16 bytes of lane 4 g + t of a product lie at 4 g + (t xor g / 2 mod 4): a warp's reads are of
 * different banks. */
MMA_FN int mma_meet_at(int lane) {
    return lane ^ (lane >> 3 & 3);
}
typedef struct mma_element {
    int at;       /* among the floats of a product in shared memory */
    int out, row; /* of the tile, of the 8 rows */
} mma_element;
MMA_FN mma_element mma_element_of(int i) {
    const int t = i >> 5 & 3, g = i >> 2 & 7, q = i & 3;
    return mma_element{mma_meet_at(g * 4 + t) * 4 + q, g + (q >> 1) * 8, t * 2 + (q & 1)};
}

/* Where the sum of an element goes. */
typedef struct mma_out {
    int matrix, row, out;
    bool is; /* there is such a row and output */
    size_t at;
} mma_out;
MMA_FN mma_out mma_out_of(const mma_narrow_args *a, int walked, int group, mma_element e) {
    const int tile = mma_tile_of(a, walked);
    mma_out o;
    o.matrix = mma_matrix_of(&a->m, tile);
    o.row = group * 8 + e.row;
    o.out = (tile - a->m.first[o.matrix]) * MMA_TILE + e.out;
    o.is = o.row < a->n_rows && o.out < a->m.n_out[o.matrix];
    o.at = (size_t)o.row * (size_t)a->m.n_out[o.matrix] + (size_t)o.out;
    return o;
}
/* What is asked for early: what is added (nobody else writes it), and the weight of the norm
 * behind. */
typedef struct mma_early {
    float add;
    uint32_t weight; /* its bits */
} mma_early;
MMA_FN mma_early mma_early_of(const mma_narrow_args *a, mma_out o) {
    mma_early e = {0.0f, 0};
    const float *add = a->m.add[o.matrix];
    if (o.is && add)
        e.add = __ldcg(add + o.at);
    if (o.is && a->next.w)
        e.weight = mma_weight_bits(a->next.w, a->next.dtype, o.out);
    return e;
}
/* All lanes of a warp, with elements of one tile. */
MMA_FN void mma_store(const mma_narrow_args *a, mma_out o, mma_early e, float sum,
                      const float *root, int tile) {
    float v = sum;
    if (a->norm.squares && o.is) /* a zero's division is a slow one */
        v = __fdiv_rn(v, root[o.row]);
    if (a->m.add[o.matrix])
        v = __fadd_rn(v, e.add);
    if (o.is)
        a->m.y[o.matrix][o.at] = v;
    if (!a->next.w)
        return;
    v = o.is ? v : 0.0f;
    if (o.row < a->n_rows) /* past the last output zeros, as a linear's input has them */
        a->next.z[(size_t)o.row * (size_t)a->next.ld + LS_MMA_AT(o.out)] =
            cuda_bf16(__fmul_rn(v, mma_weight_of(e.weight, a->next.dtype)));
    const float square = mma_square(v, 2, 4);
    if ((threadIdx.x & 30) == 0 && o.row < a->n_rows)
        a->next.squares[(size_t)o.row * (size_t)a->next.n_squares + tile] = square;
}

/* The same of a pair with gates behind it, o of up's matrix. */
MMA_FN void mma_store_gated(const mma_narrow_args *a, mma_out o, float gate, float up,
                            const float *root) {
    if (a->norm.squares && o.is) {
        gate = __fdiv_rn(gate, root[o.row]);
        up = __fdiv_rn(up, root[o.row]);
    }
    const lane_f32 g = lane_set(gate), u = lane_set(up);
    const float v =
        (a->gates.gate == LS_MMA_GELU ? ls_gelu_mul_of(g, u) : ls_silu_mul_of(g, u)).p[0];
    if (o.is)
        a->gates.h[o.at] = v;
    if (!a->gates.x16 || o.row >= a->n_rows)
        return;
    uint16_t *x16 = a->gates.x16 + (size_t)o.row * (size_t)a->gates.ld;
    x16[LS_MMA_AT(o.out)] = cuda_bf16(o.is ? v : 0.0f);
    const int other = o.out ^ MMA_TILE; /* in the other half of these 32: past the last tile, too */
    if (other >= a->m.n_tiles[1] * MMA_TILE)
        x16[LS_MMA_AT(other)] = 0;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* A warp's ring: barriers that tell when a place is full and when it is empty, 8 bytes a place.
 * Both sides go round it alike. Each lane arrives for itself, here and in mma_walk_later: what a
 * lane has read or written is ordered by its own arrival, which racecheck sees. */
typedef struct mma_ring {
    uint32_t at, full, empty;
    int depth, place;
    uint32_t parity; /* of this round */
} mma_ring;
MMA_FN void mma_next_place(mma_ring *r) {
    if (++r->place == r->depth) {
        r->place = 0;
        r->parity ^= 1;
    }
}
/* Ring `warp` of the block. */
template <int F>
MMA_FN mma_ring mma_ring_of(const mma_narrow_args *a, uint32_t memory, uint32_t bars, int warp) {
    const uint32_t first = bars + (uint32_t)(warp * 2 * MMA_DEPTH_MOST * 8);
    return mma_ring{memory + (uint32_t)(warp * a->depth * MMA_STAGE_BYTES(F)),
                    first,
                    first + MMA_DEPTH_MOST * 8,
                    a->depth,
                    0,
                    0};
}
MMA_FN void mma_ring_init(const mma_ring *r) {
    for (int i = 0; i < r->depth; i++) {
        mma_bar_init(r->full + (uint32_t)i * 8, LS_MMA_BULK ? 1 : 32);
        mma_bar_init(r->empty + (uint32_t)i * 8, 32);
    }
}
template <int F> MMA_FN const char *mma_job_weights(const mma_narrow_args *a, const mma_job *j) {
    const int tile = mma_tile_of(a, j->tile);
    return mma_unit_of<F>(&a->m, mma_matrix_of(&a->m, tile), tile, j->segment, j->steps);
}

#endif
