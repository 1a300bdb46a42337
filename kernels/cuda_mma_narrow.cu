/* cuda_mma_narrow.cu - the tensor-core linear for 1 to 16 rows (N-MMA, N-MMAQ): decode and
 * verification. What is particular to a format of weights is in cuda_mma_format.h.
 * Structure   one block a multiprocessor: 8 warps that multiply and one that feeds them. The (at most
 *             8) segments of a range are dealt to the warps, one each, so that a warp's activations
 *             stay in its registers while it walks tile after tile. With S segments there are up to
 *             8 / S teams of S warps, each with a tile of its own. An item is one tile a team.
 * Weights     stream through a ring of stages (some 4 KiB) for each warp. The feeder fills a
 *             place again as soon as its warp has read it, and knows all addresses; the warps know
 *             none, and take an item in far less time than memory takes to bring it: only so does
 *             what a full ring holds make up for the time between two launches.
 * Meeting     a team's segment sums meet in shared memory once an item, and are added in order, by a
 *             few warps in turn while the others go on.
 * Ranges      more than 8 segments: a block makes its tiles in bands, range after range, and keeps a
 *             band's totals in shared memory. (Ranges in different blocks need a launch that joins
 *             them, or a fence and a counter an item: both cost more than an uneven share.)
 * Norms       a norm ahead is a division of the sums by the row's root; of the norm that reads y next
 *             the weighted row and its squares are left behind  (N-MMAN).
 * Gates       a gate and an up matrix are walked in turns, a tile of each. The sums of gate's wait in
 *             shared memory for those of up's, and only h is stored  (N-SILU, N-GELU).
 * Early       before cuda_wait only weights are read: the rings are full by then.
 * Source      after design 5.2; where the grid, teams and depth come from is in no result. */
#include "cuda_mma_format.h"
#include "rows.body.h"

#define MMA_WARPS 8
#define MMA_THREADS (MMA_WARPS * 32)
#define MMA_BLOCK (MMA_THREADS + 32) /* with the feeder */
#define MMA_BOUND 512 /* asks for 128 registers a thread: warps of small kernels fit beside these */
#define MMA_DEPTH_MOST 6
#define MMA_FIRST 2            /* copies on their way at once at first */
#define MMA_BESIDE (135 << 10) /* most memory asked for where attention is to fit beside */

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

/* Where a block is: for each band of its tiles, for each range, the band's tiles, a team each. Tiles
 * are counted in the order they are walked in (mma_tile_of). */
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
/* Tile `walked` in the list's order: as it is, or of gate and up in turns. */
MMA_FN int mma_tile_of(const mma_narrow_args *a, int walked) {
    return a->gates.gate ? (walked & 1 ? a->m.first[1] : 0) + (walked >> 1) : walked;
}
/* Whether warps may get other segments, or none: not if of one team the tile alone is new. */
MMA_FN bool mma_next_item(const mma_narrow_args *a, mma_at *at) {
    const int teams = a->teams[mma_kind(a, at)];
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
    const int kind = mma_kind(a, at), team = warp * a->inverse[kind] >> 8;
    j.tile = at->tile + team;
    j.segment = at->range * MMA_RANGE + warp - team * a->slots[kind];
    j.steps = j.segment == a->segments - 1 ? a->last_steps : MMA_SEGMENT_STEPS;
    if (team >= a->teams[kind] || j.tile >= at->band_end)
        j.steps = 0;
    return j;
}

/* The warp's segment of x (see mma_x_of). In registers: of row g, lane t's four k of the steps 2 q and
 * 2 q + 1; of packed weights times 64. All in registers would leave no room for other kernels' warps
 * beside these, and nothing would begin early. */
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
            x[q] = mma_times_64(x[q]);
}
/* Rows as they are but times 64, 16 bytes a lane at once, four rows on their way; past the last k
 * zeros. `to`: where the warp's lie. */
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
                         mma_times_64(v[i / 2][i % 2]));
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
        mma_copy_x(a, mma_rows_at<F, NT>(a, memory, warp), segment, lane);
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
/* What is asked for early: what is added (nobody else writes it), and the weight of the norm behind. */
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

/* A warp's ring: barriers that tell when a place is full and when it is empty, 8 bytes a place. Both
 * sides go round it alike. */
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
        mma_bar_init(r->empty + (uint32_t)i * 8, 1);
    }
}
template <int F> MMA_FN const char *mma_job_weights(const mma_narrow_args *a, const mma_job *j) {
    const int tile = mma_tile_of(a, j->tile);
    return mma_unit_of<F>(&a->m, mma_matrix_of(&a->m, tile), tile, j->segment, j->steps);
}

#if LS_MMA_BULK
/* The feeder: lane w feeds warp w. No lane waits: the warps meet at the end of an item, so one that
 * waited for its own warp could keep another from what that warp waits for. A place of the first round
 * is empty. Until the warp has used one, so has its x, only MMA_FIRST copies are on their way at once:
 * x, and what the launches ahead read, queue behind all that are. */
template <int F>
MMA_FN void mma_feed(const mma_narrow_args *a, uint32_t memory, uint32_t bars, int lane) {
    const uint64_t once = mma_once();
    mma_ring r = mma_ring_of<F>(a, memory, bars, lane & (MMA_WARPS - 1)), landed = r;
    int under_way = 0, left = 0; /* copies from `landed` on; steps of the item */
    bool begun = false;
    const char *from = NULL;
    mma_at at = mma_begin(a);
    if (lane >= MMA_WARPS)
        at.band = at.end;
    while (__any_sync(0xffffffffu, left > 0 || at.band < at.end)) {
        bool idle = true;
        if (left <= 0 && at.band < at.end) {
            const mma_job j = mma_job_of(a, &at, lane);
            left = j.steps;
            if (left > 0)
                from = mma_job_weights<F>(a, &j);
            mma_next_item(a, &at);
        }
        if (!begun && under_way > 0) {
            begun = mma_bar_test(r.empty, 0);
            if (mma_bar_test(landed.full + (uint32_t)landed.place * 8, landed.parity)) {
                mma_next_place(&landed);
                under_way--;
            }
        }
        if (left > 0 && (begun || under_way < MMA_FIRST) &&
            mma_bar_test(r.empty + (uint32_t)r.place * 8, r.parity ^ 1)) {
            const uint32_t n = (uint32_t)mma_bytes_of<F>(min(left, MMA_STAGE_STEPS(F)));
            const uint32_t full = r.full + (uint32_t)r.place * 8;
            mma_bar_expect(full, n);
            mma_bulk_once(r.at + (uint32_t)(r.place * MMA_STAGE_BYTES(F)), from, n, full, once);
            begun = begun || r.parity; /* a second round */
            mma_next_place(&r);
            under_way++;
            left -= MMA_STAGE_STEPS(F);
            from += MMA_STAGE_BYTES(F);
            idle = false;
        }
        if (__all_sync(0xffffffffu, idle)) /* the scheduler has warps that multiply */
            __nanosleep(64);
    }
}
#else
/* The feeder: all lanes feed one warp after another; lane w remembers where warp w's ring is. */
template <int F>
MMA_FN void mma_feed(const mma_narrow_args *a, uint32_t memory, uint32_t bars, int lane) {
    mma_ring own = mma_ring_of<F>(a, memory, bars, lane & (MMA_WARPS - 1));
    for (mma_at at = mma_begin(a); at.band < at.end; mma_next_item(a, &at)) {
        const mma_job j = mma_job_of(a, &at, lane & (MMA_WARPS - 1));
        const unsigned long long from =
            j.steps ? (unsigned long long)(uintptr_t)mma_job_weights<F>(a, &j) : 0;
        for (int s = 0; s < MMA_STAGES(F); s++)
            for (int w = 0; w < MMA_WARPS; w++) {
                const int left = __shfl_sync(0xffffffffu, j.steps, w) - s * MMA_STAGE_STEPS(F);
                const mma_ring ring = mma_ring_of<F>(a, memory, bars, w);
                const int place = __shfl_sync(0xffffffffu, own.place, w);
                const uint32_t parity = __shfl_sync(0xffffffffu, own.parity, w);
                const char *w0 = (const char *)(uintptr_t)__shfl_sync(0xffffffffu, from, w) +
                                 s * MMA_STAGE_BYTES(F);
                if (left <= 0)
                    continue;
                mma_bar_wait(ring.empty + (uint32_t)place * 8, parity ^ 1);
                const int n = mma_bytes_of<F>(min(left, MMA_STAGE_STEPS(F)));
                for (int i = lane * 16; i < n; i += 32 * 16)
                    mma_copy16(ring.at + (uint32_t)(place * MMA_STAGE_BYTES(F) + i), w0 + i);
                mma_copy_arrive(ring.full + (uint32_t)place * 8);
                if (lane == w)
                    mma_next_place(&own);
            }
    }
}
#endif

/* ---- a block's items ------------------------------------------------------------------------- */

/* A segment's steps of bf16 onto the sums: while a group is multiplied the next one comes out of the
 * ring (and of `more`, where there are more than 8 rows). WHOLE: there are 32. */
template <int NT, bool WHOLE>
MMA_FN void mma_segment(float c[NT][4], const uint4 x[16], uint32_t more, mma_ring *r, int steps,
                        int lane) {
    enum { GROUP = NT == 1 ? 4 : 2, GROUPS = MMA_SEGMENT_STEPS / GROUP };
    enum { IN_STAGE = MMA_STAGE_STEPS(LS_BF16) / GROUP };
    uint4 v[2][GROUP], y[2][GROUP / 2];
    uint32_t used[2] = {0, 0}; /* the place that the stage of this parity was read from */
#pragma unroll
    for (int g = 0; g <= GROUPS; g++) { /* loads group g, multiplies group g - 1 */
        if (g < GROUPS && (WHOLE || g * GROUP < steps)) {
            if (g % IN_STAGE == 0)
                mma_bar_wait(r->full + (uint32_t)r->place * 8, r->parity);
            const uint32_t w =
                r->at + (uint32_t)(r->place * MMA_STAGE_BYTES(LS_BF16) +
                                   g % IN_STAGE * GROUP * MMA_STEP_BYTES + lane * 16);
#pragma unroll
            for (int i = 0; i < GROUP; i++) /* past `steps`: the place is as long */
                v[g & 1][i] = mma_lds4(w + (uint32_t)(i * MMA_STEP_BYTES));
            if (NT == 2)
#pragma unroll
                for (int i = 0; i < GROUP / 2; i++)
                    y[g & 1][i] = mma_lds4(more + (uint32_t)((g * GROUP / 2 + i) * 512));
            if (g % IN_STAGE == IN_STAGE - 1 || (!WHOLE && (g + 1) * GROUP >= steps)) {
                used[g / IN_STAGE & 1] = r->empty + (uint32_t)r->place * 8;
                mma_next_place(r);
            }
        }
        const int b = g - 1;
        if (b < 0 || (!WHOLE && b * GROUP >= steps))
            continue;
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            if (WHOLE || b * GROUP + i < steps)
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    const uint4 at = j ? y[b & 1][i / 2] : x[(b * GROUP + i) / 2];
                    mma_step(c[j], v[b & 1][i], i & 1 ? at.z : at.x, i & 1 ? at.w : at.y);
                }
        if (b % IN_STAGE == IN_STAGE - 1 || (!WHOLE && (b + 1) * GROUP >= steps)) {
            __syncwarp(); /* all lanes have read the place: what they read is in the products */
            if (lane == 0)
                mma_bar_arrive(used[b / IN_STAGE & 1]);
        }
    }
}

/* The same of packed weights, part by part (see mma_parts). WHOLE: there are 32 steps. */
template <int F, int NT, bool WHOLE>
MMA_FN void mma_segment_packed(float c[NT][4], const uint4 x[16], uint32_t more, uint32_t sums,
                               mma_ring *r, int steps, int lane) {
    enum { AHEAD = MMA_PIECE_PARTS(F), IN_STAGE = MMA_STAGE_PARTS(F) };
    mma_parts<F, NT> w;
    w.exponent = mma_exponent;
    uint32_t used[2] = {0, 0}; /* as above */
#pragma unroll
    for (int p = -AHEAD; p < MMA_PARTS; p++) { /* takes the piece after part p, multiplies p */
        const int t = p + AHEAD;
        if (t % AHEAD == 0 && t < MMA_PARTS && (WHOLE || t * 2 < steps)) {
            if (t % IN_STAGE == 0)
                mma_bar_wait(r->full + (uint32_t)r->place * 8, r->parity);
            mma_take_piece<F, NT>(&w, r->at + (uint32_t)(r->place * MMA_STAGE_BYTES(F)), lane, t);
            if ((t + AHEAD) % IN_STAGE == 0 || (!WHOLE && (t + AHEAD) * 2 >= steps)) {
                used[t / IN_STAGE & 1] = r->empty + (uint32_t)r->place * 8;
                mma_next_place(r);
            }
        }
        if (p + 1 >= 0 && p + 1 < MMA_PARTS)
            mma_take_rows<F, NT>(&w, x, more, p + 1);
        if (p < 0 || (!WHOLE && p * 2 >= steps))
            continue;
        mma_multiply<F, NT>(&w, x, sums, p);
        if (p >= WHOLE)
            mma_finish<F, NT>(c, &w, p - WHOLE);
        if ((p + 1) % IN_STAGE == 0 || (!WHOLE && (p + 1) * 2 >= steps)) {
            __syncwarp(); /* as above */
            if (lane == 0)
                mma_bar_arrive(used[p / IN_STAGE & 1]);
        }
    }
    if (WHOLE)
        mma_finish<F, NT>(c, &w, MMA_PARTS - 1);
}

template <int F, int NT, bool WHOLE>
MMA_FN void mma_segment_of(float c[NT][4], const uint4 x[16], uint32_t more, uint32_t sums,
                           mma_ring *r, int steps, int lane) {
    if constexpr (F == LS_BF16)
        mma_segment<NT, WHOLE>(c, x, more, r, steps, lane);
    else
        mma_segment_packed<F, NT, WHOLE>(c, x, more, sums, r, steps, lane);
}

/* What the block's warps share. */
template <int NT> struct mma_shared {
    float meet[2][MMA_WARPS][NT][128];
    float total[MMA_BAND][NT][128]; /* of the ranges so far; of a gate's tile, of all */
    float root[LS_MMA_FEW];         /* of the norm ahead */
    /* of each buffer: all warps' sums are there; all have added what is theirs */
    unsigned long long full[2], added[2];
    mma_at at[MMA_WARPS][2]; /* a warp's last two items, where registers are for x */
};

/* Who adds up an item: the pairs of rows of all tiles go round the warps, so that each has one in
 * turn, and the same of a tile in every range; of gate's tile and up's, too: one thread adds an element
 * of both. The first pair of rows of tile `tile` is warp tile / pair * rows's. */
typedef struct mma_share {
    int rows, end; /* pairs of rows of a tile; the end of the item's tiles */
} mma_share;
MMA_FN mma_share mma_share_of(const mma_narrow_args *a, const mma_at *at) {
    return mma_share{(a->n_rows + 1) / 2, min(at->tile + a->teams[mma_kind(a, at)], at->band_end)};
}
MMA_FN int mma_first_adder(const mma_narrow_args *a, int tile, int rows) {
    return (a->pair == 2 ? tile >> 1 : tile) * rows;
}
MMA_FN bool mma_adds(const mma_narrow_args *a, const mma_at *at, int warp) {
    const mma_share s = mma_share_of(a, at);
    const int first = mma_first_adder(a, at->tile, s.rows);
    const int last = mma_first_adder(a, s.end - 1, s.rows) + s.rows;
    return ((warp - first) & (MMA_WARPS - 1)) < last - first;
}
/* Whether it is the block's last. */
MMA_FN bool mma_is_last(const mma_narrow_args *a, const mma_at *at) {
    return mma_kind(a, at) && at->tile + a->teams[1] >= at->end;
}
/* Of what this warp adds up first of an item. */
MMA_FN mma_early mma_early_first(const mma_narrow_args *a, const mma_at *at, int warp, int lane) {
    const mma_share share = mma_share_of(a, at);
#pragma unroll 1
    for (int tile = at->tile; tile < share.end; tile++) {
        const int rows = (warp - mma_first_adder(a, tile, share.rows)) & (MMA_WARPS - 1);
        if (rows < share.rows)
            return mma_early_of(a,
                                mma_out_of(a, tile, rows >> 2, mma_element_of(rows * 32 + lane)));
    }
    return mma_early{0.0f, 0};
}
/* This warp's part of it. asked: `early` is there, of what comes first. */
template <int NT>
MMA_FN void mma_add(const mma_narrow_args &a, const mma_at &at, mma_shared<NT> *mem, int item,
                    int warp, int lane, mma_early early, bool asked) {
    const int kind = mma_kind(&a, &at), slots = a.slots[kind];
    const mma_share share = mma_share_of(&a, &at);
#pragma unroll 1
    for (int tile = at.tile; tile < share.end; tile++) {
        const int rows = (warp - mma_first_adder(&a, tile, share.rows)) & (MMA_WARPS - 1);
        if (rows >= share.rows)
            continue;
        const int i = rows * 32 + lane, group = i >> 7;
        const mma_element e = mma_element_of(i);
        const mma_out out = mma_out_of(&a, tile, group, e);
        if (kind && !asked)
            early = mma_early_of(&a, out);
        asked = false;
        mma_bar_wait(mma_smem(&mem->full[item & 1]), (uint32_t)item >> 1 & 1);
        const float *from = &mem->meet[item & 1][(tile - at.tile) * slots][group][e.at];
        float sum = 0.0f;
#pragma unroll 1
        for (int s = 0; s < slots; s += 4) { /* four on their way at once: more find no registers */
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (s + j < slots)
                    v[j] = from[(s + j) * NT * 128];
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (s + j < slots)
                    sum = s + j > 0 ? __fadd_rn(sum, v[j]) : v[j];
        }
        const int place = (tile - at.band) & (MMA_BAND - 1);
        float *total = &mem->total[place][group][i & 127];
        if (at.range > 0)
            sum = __fadd_rn(*total, sum);
        if (!kind || (a.gates.gate && !(tile & 1))) {
            if (a.gates.gate) /* who adds the item before may still read this place */
                mma_bar_wait(mma_smem(&mem->added[(item + 1) & 1]),
                             ((uint32_t)(item + 1) >> 1 & 1) ^ 1);
            *total = sum;
            continue;
        }
        if (a.gates.gate) {
            mma_store_gated(&a, out, mem->total[place ^ 1][group][i & 127], sum, mem->root);
            continue;
        }
        mma_store(&a, out, early, sum, mem->root, tile);
    }
    __syncwarp(); /* all lanes have read the buffer */
}

/* The block's items. An item is added up after the next has been multiplied: its sums are there by
 * then, and no warp waits for another. */
template <int F, int NT>
MMA_FN void mma_walk(const mma_narrow_args &a, mma_ring *ring, uint32_t memory, mma_shared<NT> *mem,
                     int warp, int lane) {
    const uint32_t more = mma_more_of<F, NT>(&a, memory, warp, lane);
    const uint32_t sums = mma_rows_at<F, NT>(&a, memory, MMA_WARPS) + MMA_ZEROS_BYTES(F, NT) +
                          (uint32_t)(warp * NT * MMA_SUMS_BYTES(F) + lane * 16);
    enum { PARK = MMA_X_HELD(F, NT) }; /* registers are for x: where it is lies in shared memory */
    enum { ASKS = F == LS_BF16 || NT == 1 }; /* there are registers for `early` */
    uint4 x[16];
    mma_early early = {0.0f, 0}; /* of the last item: no other products hide how long that takes */
    int have = -1, steps = 0;
    bool adds = false;  /* something of the item before */
    bool turned = true; /* what a warp has to do may be another thing than before (mma_next_item) */
    mma_at at = mma_begin(&a), before = at;
#pragma unroll 1
    for (int item = 0;; item++) {
        const bool is = at.band < at.end; /* if not, only the last one is still to be added up */
        if (is) {
            if (PARK && lane == 0)
                mem->at[warp][item & 1] = at;
            if (PARK || turned) {
                const mma_job job = mma_job_of(&a, &at, warp);
                steps = job.steps;
                if (steps > 0 && job.segment != have) {
                    have = job.segment;
                    mma_take_x<F, NT>(&a, x, memory, more, have, warp, lane);
                    mma_sums_of<F, NT>(sums, x, more, lane);
                }
                if (a.norm.squares && item == 0) /* seen by all who see this item's sums */
                    for (int r = warp; r < a.n_rows; r += MMA_WARPS)
                        mma_row_root(&a.norm, r, &mem->root[r], lane);
            }
            if (ASKS && mma_is_last(&a, &at))
                early = mma_early_first(&a, &at, warp, lane);
            float c[NT][4];
#pragma unroll
            for (int i = 0; i < NT; i++)
                c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0.0f;
            if (steps == MMA_SEGMENT_STEPS)
                mma_segment_of<F, NT, true>(c, x, more, sums, ring, steps, lane);
            else if (steps > 0)
                mma_segment_of<F, NT, false>(c, x, more, sums, ring, steps, lane);
            mma_bar_wait(mma_smem(&mem->added[item & 1]), ((uint32_t)item >> 1 & 1) ^ 1);
#pragma unroll
            for (int i = 0; i < NT; i++)
                *(float4 *)(void *)&mem->meet[item & 1][warp][i][mma_meet_at(lane) * 4] =
                    make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
            __syncwarp();
            if (lane == 0)
                mma_bar_arrive(mma_smem(&mem->full[item & 1]));
        }
        if (adds) {
            if (PARK)
                before = mem->at[warp][(item - 1) & 1];
            mma_add<NT>(a, before, mem, item - 1, warp, lane, early, ASKS && !is);
        }
        if (!is)
            break;
        if (item > 0 && lane == 0)
            mma_bar_arrive(mma_smem(&mem->added[(item - 1) & 1]));
        if (PARK)
            at = mem->at[warp][item & 1];
        adds = mma_adds(&a, &at, warp);
        before = at;
        turned = mma_next_item(&a, &at);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int F, int NT>
__global__ void __launch_bounds__(MMA_BOUND, 1)
    mma_narrow(const __grid_constant__ mma_narrow_args a) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ __align__(8) unsigned long long bars[MMA_WARPS][2][MMA_DEPTH_MOST];
    __shared__ __align__(16) mma_shared<NT> mem;
    const int lane = (int)threadIdx.x & 31;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0);
    mma_ring ring = mma_ring_of<F>(&a, mma_smem(memory), mma_smem(bars), warp & (MMA_WARPS - 1));
    if (warp < MMA_WARPS && lane == 0) {
        mma_ring_init(&ring);
        if (warp < 2) {
            mma_bar_init(mma_smem(&mem.full[warp]), MMA_WARPS);
            mma_bar_init(mma_smem(&mem.added[warp]), MMA_WARPS);
        }
        mma_bar_fence();
    }
    if (!MMA_X_HELD(F, NT) && threadIdx.x < MMA_ROW_BYTES / 16)
        mma_sts4(mma_rows_at<F, NT>(&a, mma_smem(memory), MMA_WARPS) + threadIdx.x * 16,
                 make_uint4(0, 0, 0, 0));
    __syncthreads();
    cuda_let_behind();
    if (warp == MMA_WARPS) {
        mma_feed<F>(&a, mma_smem(memory), mma_smem(bars), lane);
        return;
    }
    cuda_wait();
    mma_walk<F, NT>(a, &ring, mma_smem(memory), &mem, warp, lane);
}

/* ---- the launch ------------------------------------------------------------------------------ */

typedef void (*mma_narrow_fn)(mma_narrow_args);
static mma_narrow_fn mma_narrow_of(ls_dtype t, int32_t n_rows) {
    if (t == LS_Q8_0)
        return n_rows <= 8 ? mma_narrow<LS_Q8_0, 1> : mma_narrow<LS_Q8_0, 2>;
    if (t == LS_Q4_K)
        return n_rows <= 8 ? mma_narrow<LS_Q4_K, 1> : mma_narrow<LS_Q4_K, 2>;
    return n_rows <= 8 ? mma_narrow<LS_BF16, 1> : mma_narrow<LS_BF16, 2>;
}
/* Shared memory that a launch asks for: rings, x as far as it lies there, what is kept beside it. Its
 * sums take more. */
static int32_t mma_room(ls_dtype t, int32_t n_rows, int32_t depth) {
    const int32_t groups = n_rows > 8 ? 2 : 1;
    const int32_t x =
        MMA_X_HELD(t, groups) ? (groups - 1) * MMA_MORE_BYTES : n_rows * MMA_ROW_BYTES;
    return MMA_WARPS * (depth * MMA_STAGE_BYTES(t) + x + groups * MMA_SUMS_BYTES(t)) +
           MMA_ZEROS_BYTES(t, groups);
}
static int mma_fits(const ls_mma_device *dev, ls_dtype t, int32_t n_rows, int32_t depth) {
    const int32_t sums = (n_rows > 8 ? 27 : 18) << 10; /* enough, with what is reserved */
    return mma_room(t, n_rows, depth) + sums <= dev->smem_block;
}
/* Copies a ring holds: as many as fit, two at least. */
static int32_t mma_depth(const ls_mma_device *dev, ls_dtype t, int32_t n_rows) {
    int32_t depth = MMA_DEPTH_MOST;
    while (depth > 2 && !mma_fits(dev, t, n_rows, depth))
        depth--;
    return depth;
}

int32_t ls_mma_narrow_rows(const ls_mma_device *dev, ls_dtype t, int32_t n_rows) {
    int32_t rows = n_rows < LS_MMA_FEW ? n_rows : LS_MMA_FEW;
    while (rows > 1 && !mma_fits(dev, t, rows, 2))
        rows--;
    return rows;
}

/* Teams: as many as a block has warps for, unless that left multiprocessors without work. */
static void mma_deal(mma_narrow_args *k, int kind, int32_t slots, const ls_mma_device *dev) {
    const int32_t useful = mma_ceil(k->m.tiles / k->pair, dev->n_sm) * k->pair;
    k->slots[kind] = slots;
    k->inverse[kind] = (255 + slots) / slots;
    k->teams[kind] = 1;
    while (2 * k->teams[kind] <= MMA_WARPS / slots && k->teams[kind] < useful)
        k->teams[kind] *= 2;
}

static mma_narrow_args narrow_args(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                                   const ls_mma_norm *norm, const ls_mma_next *next,
                                   const ls_mma_gates *gates, const ls_mma_device *dev) {
    mma_narrow_args k = {};
    k.m = *m;
    k.x16 = (const uint16_t *)x16;
    k.norm = *norm;
    k.next = *next;
    k.gates = *gates;
    k.pair = gates->gate ? 2 : 1;
    k.n_rows = n_rows;
    k.ld = mma_ceil(n_in, 32) * 32;
    k.segments = mma_ceil(n_in, MMA_SEGMENT);
    k.ranges = mma_ceil(k.segments, MMA_RANGE);
    k.last_steps = mma_ceil(n_in - (k.segments - 1) * MMA_SEGMENT, MMA_STEP);
    mma_deal(&k, 0, MMA_RANGE, dev);
    mma_deal(&k, 1, k.segments - (k.ranges - 1) * MMA_RANGE, dev);
    k.band = k.ranges > 1 ? MMA_BAND : m->tiles;
    k.share = m->tiles / k.pair / dev->n_sm * k.pair;
    k.rest = m->tiles / k.pair % dev->n_sm;
    k.depth = mma_depth(dev, m->format, n_rows);
    while (m->n == LS_LINEARS && k.depth > 2 && mma_room(m->format, n_rows, k.depth) > MMA_BESIDE)
        k.depth--; /* q, k and v: blocks of the attention behind begin meanwhile */
    return k;
}

cudaError_t ls_mma_narrow(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                          const ls_mma_norm *norm, const ls_mma_next *next,
                          const ls_mma_gates *gates, const ls_mma_device *dev,
                          cudaStream_t stream) {
    mma_narrow_args k = narrow_args(m, x16, n_in, n_rows, norm, next, gates, dev);
    cudaLaunchAttribute early;
    const unsigned grid = (unsigned)(k.share ? dev->n_sm : k.rest);
    const cudaLaunchConfig_t c =
        cuda_launch_of(dim3(grid), MMA_BLOCK, (size_t)mma_room(m->format, n_rows, k.depth), stream,
                       dev->pdl, &early);
    return cudaLaunchKernelEx(&c, mma_narrow_of(m->format, n_rows), k);
}

cudaError_t ls_mma_narrow_get(ls_mma_device *dev) {
    cudaError_t e = cudaSuccess;
    const ls_dtype formats[] = {LS_BF16, LS_Q8_0, LS_Q4_K};
    for (int i = 0; i < 6 && e == cudaSuccess; i++) {
        const ls_dtype t = formats[i / 2];
        const int32_t first = 1 + i % 2 * 8;
        int32_t room = 0; /* the most that a number of rows asks for */
        for (int32_t n = first; n < first + 8 && ls_mma_narrow_rows(dev, t, n) == n; n++) {
            const int32_t of_n = mma_room(t, n, mma_depth(dev, t, n));
            room = of_n > room ? of_n : room;
        }
        if (room > 0)
            e = cuda_split((const void *)mma_narrow_of(t, first), room);
    }
    cudaFuncAttributes attr;
    if (e == cudaSuccess)
        e = cudaFuncGetAttributes(&attr, (const void *)mma_narrow<LS_BF16, 1>);
    if (e != cudaSuccess)
        return e;
    dev->bulk = MMA_HOST_BULK && dev->bulk && attr.ptxVersion >= 90;
    int runtime = 0, driver = 0; /* graphs keep early launches as what they are from 12.3 on */
    if ((e = cudaRuntimeGetVersion(&runtime)) == cudaSuccess)
        e = cudaDriverGetVersion(&driver);
    dev->pdl = dev->bulk && runtime >= 12030 && driver >= 12030;
    return e;
}
