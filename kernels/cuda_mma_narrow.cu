/* cuda_mma_narrow.cu - the tensor-core linear for 1 to 16 rows (N-MMA, N-MMAQ): decode and
 * verification. What is particular to a format of weights is in cuda_mma_format.h.
 * Structure   one block a multiprocessor: 8 warps that multiply and one that feeds them. The (at
 *             most 8) segments of a range are dealt to the warps, one each, so that a warp's
 *             activations stay in its registers while it walks tile after tile. With S segments
 *             there are up to 8 / S teams of S warps, each with a tile of its own. An item is one
 *             tile a team.
 * Weights     stream through a ring of stages (some 4 KiB) for each warp. The feeder fills a
 *             place again as soon as its warp has read it, and knows all addresses; the warps know
 *             none, and take an item in far less time than memory takes to bring it: only so does
 *             what a full ring holds make up for the time between two launches.
 * Meeting     a team's segment sums meet in shared memory once an item, and are added in order: of
 *             bf16 and up to 8 rows behind a barrier of all warps; of packed weights, whose items
 *             are shorter, and of more rows, which are more to add, while the next is multiplied,
 *             by a few warps in turn.
 * Ranges      more than 8 segments: a block makes its tiles in bands, range after range, and keeps
 *             a band's totals in shared memory. (Ranges in different blocks need a launch that
 *             joins them, or a fence and a counter an item: both cost more than an uneven share.)
 * Norms       a norm ahead is a division of the sums by the row's root; of the norm that reads y
 *             next the weighted row and its squares are left behind  (N-MMAN).
 * Gates       a gate and an up matrix are walked in turns, a tile of each. The sums of gate's wait
 *             in shared memory for those of up's, and only h is stored  (N-SILU, N-GELU).
 * Early       before cuda_wait only weights are read: the rings are full by then.
 * Source      after design 5.2; where the grid, teams and depth come from is in no result. */
#include "cuda_mma_narrow.h"

#include <stddef.h>

#define MMA_BLOCK (MMA_THREADS + 32) /* with the feeder */
#define MMA_BOUND 512 /* asks for 128 registers a thread: warps of small kernels fit beside these */
#define MMA_FIRST 2   /* copies on their way at once at first */
#define MMA_BESIDE (135 << 10) /* most memory asked for where attention is to fit beside: */
#define MMA_BESIDE_ROWS 4      /* of up to so many rows its blocks are that small (plan_near) */

/* ---- the feeder ------------------------------------------------------------------------------ */

#if LS_MMA_BULK
/* The feeder: lane w feeds warp w. No lane waits: the warps meet at the end of an item, so one that
 * waited for its own warp could keep another from what that warp waits for. A place of the first
 * round is empty. Until the warp has used one, so has its x, only MMA_FIRST copies are on their way
 * at once: x, and what the launches ahead read, queue behind all that are. */
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

/* A segment's steps of bf16 onto the sums: while a group is multiplied the next one comes out of
 * the ring (and of `more`, where there are more than 8 rows). WHOLE: there are 32. */
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
        if (b % IN_STAGE == IN_STAGE - 1 || (!WHOLE && (b + 1) * GROUP >= steps))
            mma_bar_release(used[b / IN_STAGE & 1]);
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
        if ((p + 1) % IN_STAGE == 0 || (!WHOLE && (p + 1) * 2 >= steps))
            mma_bar_release(used[p / IN_STAGE & 1]);
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

/* Items whose sums lie in shared memory at once: of packed weights and up to 8 rows, where who adds
 * takes longer than an item, one more. */
#define MMA_BUFFERS(F, NT) ((F) != LS_BF16 && (NT) == 1 ? 3 : 2)

/* What the block's warps share. */
template <int F, int NT> struct mma_shared {
    float meet[MMA_BUFFERS(F, NT)][MMA_WARPS][NT][128];
    float total[MMA_BAND][NT][128]; /* of the ranges so far; of a gate's tile, of all */
    float root[LS_MMA_FEW];         /* of the norm ahead */
    /* where they are added later, of each buffer: all warps' sums are there; all have added
     * theirs */
    unsigned long long full[MMA_BUFFERS(F, NT)], added[MMA_BUFFERS(F, NT)];
    mma_at at[MMA_WARPS][2]; /* a warp's last two items, where registers are for x */
};

/* What gate's tile, walked ahead of up's, has left for element i of this one. */
template <int F, int NT>
MMA_FN float mma_gate_of(const mma_shared<F, NT> *mem, int place, int group, int i) {
    return mem->total[place ^ 1][group][i & 127];
}

/* The warps that multiply, and only they, meet. */
MMA_FN void mma_meet(void) {
    asm volatile("bar.sync 1, %0;" ::"n"(MMA_THREADS) : "memory");
}

/* A block's items, each added up behind a barrier: of bf16 and up to 8 rows. */
MMA_FN void mma_walk_meeting(const mma_narrow_args &a, mma_ring *ring, uint32_t memory,
                             mma_shared<LS_BF16, 1> *mem, int warp, int lane) {
    /* one thread sums an element of gate's tile and then of up's */
    const int step = a.gates.gate ? 128 : MMA_THREADS;
    uint4 x[16];
    int have = -1, item = 0;
#pragma unroll 1
    for (mma_at at = mma_begin(&a); at.band < at.end; mma_next_item(&a, &at), item++) {
        const mma_job job = mma_job_of(&a, &at, warp);
        const int kind = mma_kind(&a, &at), slots = mma_slots(&a, kind);
        const int teams = mma_teams(&a, kind);
        if (job.steps > 0 && job.segment != have) {
            have = job.segment;
            mma_take_x<LS_BF16, 1>(&a, x, memory, 0, have, warp, lane);
        }
        if (a.norm.squares && item == 0) /* published by the first meeting */
            for (int r = warp; r < a.n_rows; r += MMA_WARPS)
                mma_row_root(&a.norm, r, &mem->root[r], lane);
        mma_early early = {0.0f, 0};
        const int own = at.tile + (int)threadIdx.x / 128;
        if (kind && own < at.band_end)
            early = mma_early_of(&a, mma_out_of(&a, own, 0, mma_element_of((int)threadIdx.x)));
        float c[1][4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (job.steps == MMA_SEGMENT_STEPS)
            mma_segment<1, true>(c, x, 0, ring, job.steps, lane);
        else if (job.steps > 0)
            mma_segment<1, false>(c, x, 0, ring, job.steps, lane);
        *(float4 *)(void *)&mem->meet[item & 1][warp][0][mma_meet_at(lane) * 4] =
            make_float4(c[0][0], c[0][1], c[0][2], c[0][3]);
        mma_meet(); /* the buffer of two items ago was read before the last one */
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < teams * 128; i += step) {
            const int team = i / 128, tile = at.tile + team;
            if (tile >= at.band_end || (int)threadIdx.x >= step)
                break; /* for the whole warp, and what follows too */
            const mma_element e = mma_element_of(i);
            const float *from = &mem->meet[item & 1][team * slots][0][e.at];
            float sum = from[0];
            for (int s = 1; s < slots; s++)
                sum = __fadd_rn(sum, from[s * 128]);
            const int place = (tile - at.band) & (MMA_BAND - 1);
            float *total = &mem->total[place][0][i & 127];
            if (at.range > 0)
                sum = __fadd_rn(*total, sum);
            if (!kind || (a.gates.gate && !(tile & 1))) {
                *total = sum;
                continue;
            }
            const mma_out out = mma_out_of(&a, tile, 0, e);
            if (a.gates.gate) {
                mma_store_gated(&a, out, mma_gate_of(mem, place, 0, i), sum, mem->root);
                continue;
            }
            if (i != (int)threadIdx.x)
                early = mma_early_of(&a, out);
            mma_store(&a, out, early, sum, mem->root, tile);
        }
    }
}

/* ---- items that are added up later ----------------------------------------------------------- */

/* An item's buffer: they take turns, and every round is a phase of their barriers. The round before
 * the first has ended. */
typedef struct mma_turn {
    uint32_t buffer, parity;
} mma_turn;
template <int N> MMA_FN mma_turn mma_turn_of(int item) {
    const uint32_t i = (uint32_t)(item + 2 * N), round = i / N;
    return mma_turn{i - round * N, round & 1};
}
/* Barriers of a buffer; `at`: where the block's mma_shared lies. */
template <int F, int NT> MMA_FN uint32_t mma_full_of(uint32_t at, mma_turn t) {
    typedef mma_shared<F, NT> shared;
    return at + (uint32_t)offsetof(shared, full) + t.buffer * 8;
}
template <int F, int NT> MMA_FN uint32_t mma_added_of(uint32_t at, mma_turn t) {
    typedef mma_shared<F, NT> shared;
    return at + (uint32_t)offsetof(shared, added) + t.buffer * 8;
}
/* v itself; where registers are left it is kept in one, and not made again in every item. */
template <int NT> MMA_FN uint32_t mma_kept(uint32_t v) {
    if (NT == 1)
        asm volatile("" : "+r"(v));
    return v;
}

/* Who adds up an item: the pairs of rows of all tiles go round the warps, so that each has one in
 * turn, and the same of a tile in every range; of gate's tile and up's, too: one thread adds an
 * element of both. The first pair of rows of tile `tile` is warp tile / pair * rows's. */
typedef struct mma_share {
    int rows, end; /* pairs of rows of a tile; the end of the item's tiles */
} mma_share;
MMA_FN mma_share mma_share_of(const mma_narrow_args *a, const mma_at *at) {
    return mma_share{(a->n_rows + 1) / 2,
                     min(at->tile + mma_teams(a, mma_kind(a, at)), at->band_end)};
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
template <int F, int NT>
MMA_FN void mma_add(const mma_narrow_args &a, const mma_at &at, mma_shared<F, NT> *mem,
                    uint32_t mem_at, int item, int warp, int lane, mma_early early, bool asked) {
    enum { BUFFERS = MMA_BUFFERS(F, NT) };
    const mma_turn turn = mma_turn_of<BUFFERS>(item);
    const int kind = mma_kind(&a, &at), slots = mma_slots(&a, kind);
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
        mma_bar_wait(mma_full_of<F, NT>(mem_at, turn), turn.parity);
        const float *from = &mem->meet[turn.buffer][(tile - at.tile) * slots][group][e.at];
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
            const mma_turn last = mma_turn_of<BUFFERS>(item - 1);
            if (a.gates.gate) /* who adds the item before may still read this place */
                mma_bar_wait(mma_added_of<F, NT>(mem_at, last), last.parity);
            *total = sum;
            continue;
        }
        if (a.gates.gate) {
            mma_store_gated(&a, out, mma_gate_of(mem, place, group, i), sum, mem->root);
            continue;
        }
        mma_store(&a, out, early, sum, mem->root, tile);
    }
}

/* A block's items. An item is added up after the next has been multiplied: its sums are there by
 * then, and no warp waits for another. */
template <int F, int NT>
MMA_FN void mma_walk_later(const mma_narrow_args &a, mma_ring *ring, uint32_t memory,
                           mma_shared<F, NT> *mem, int warp, int lane) {
    enum { BUFFERS = MMA_BUFFERS(F, NT), BUFFER_BYTES = MMA_WARPS * NT * 512 };
    const uint32_t more = mma_kept<NT>(mma_more_of<F, NT>(&a, memory, warp, lane));
    const uint32_t sums =
        mma_kept<NT>(mma_rows_at<F, NT>(&a, memory, MMA_WARPS) + MMA_ZEROS_BYTES(F, NT) +
                     (uint32_t)(warp * NT * MMA_SUMS_BYTES(F) + lane * 16));
    const uint32_t mem_at = mma_kept<NT>(mma_smem(mem));
    const uint32_t own_sums = (uint32_t)(warp * NT * 512 + mma_meet_at(lane) * 16);
    enum { PARK = MMA_X_HELD(F, NT) }; /* registers are for x: where it is lies in shared memory */
    enum { ASKS = F == LS_BF16 || NT == 1 }; /* there are registers for `early` */
    uint4 x[16];
    mma_early early = {0.0f, 0}; /* of the last item: no other products hide how long that takes */
    int have = -1, steps = 0;
    bool adds = false;  /* something of the item before */
    bool turned = true; /* what a warp has to do may be another thing than before (mma_next_item) */
    mma_at at = mma_begin(&a), before = at;
    at.end = (int)mma_kept<NT>((uint32_t)at.end);
    ring->at = mma_kept<NT>(ring->at);
    ring->full = mma_kept<NT>(ring->full);
    ring->empty = mma_kept<NT>(ring->empty);
#pragma unroll 1
    for (int item = 0;; item++) {
        const bool is = at.band < at.end; /* if not, only the last one is still to be added up */
        if (is) {
            if (PARK) {
                if (lane == 0)
                    mem->at[warp][item & 1] = at;
                __syncwarp();
            }
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
            const mma_turn turn = mma_turn_of<BUFFERS>(item);
            mma_bar_wait(mma_added_of<F, NT>(mem_at, turn), turn.parity ^ 1);
#pragma unroll
            for (int i = 0; i < NT; i++)
                mma_stsf4(mem_at + own_sums + turn.buffer * BUFFER_BYTES + (uint32_t)i * 512,
                          make_float4(c[i][0], c[i][1], c[i][2], c[i][3]));
            mma_bar_arrive(mma_full_of<F, NT>(mem_at, turn));
        }
        if (adds) {
            if (PARK)
                before = mem->at[warp][(item - 1) & 1];
            mma_add<F, NT>(a, before, mem, mem_at, item - 1, warp, lane, early, ASKS && !is);
        }
        if (!is)
            break;
        if (item > 0)
            mma_bar_arrive(mma_added_of<F, NT>(mem_at, mma_turn_of<BUFFERS>(item - 1)));
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
    __shared__ __align__(16) mma_shared<F, NT> mem;
    const int lane = (int)threadIdx.x & 31;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0);
    mma_ring ring = mma_ring_of<F>(&a, mma_smem(memory), mma_smem(bars), warp & (MMA_WARPS - 1));
    if (warp < MMA_WARPS && lane == 0) {
        mma_ring_init(&ring);
        if (warp < MMA_BUFFERS(F, NT)) {
            mma_bar_init(mma_smem(&mem.full[warp]), MMA_THREADS);
            mma_bar_init(mma_smem(&mem.added[warp]), MMA_THREADS);
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
    if constexpr (F == LS_BF16 && NT == 1)
        mma_walk_meeting(a, &ring, mma_smem(memory), &mem, warp, lane);
    else
        mma_walk_later<F, NT>(a, &ring, mma_smem(memory), &mem, warp, lane);
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
/* Shared memory that a launch asks for: rings, x as far as it lies there, what is kept beside it.
 * Its sums take more. */
static constexpr int32_t mma_room(ls_dtype t, int32_t n_rows, int32_t depth) {
    const int32_t groups = n_rows > 8 ? 2 : 1;
    const int32_t x =
        MMA_X_HELD(t, groups) ? (groups - 1) * MMA_MORE_BYTES : n_rows * MMA_ROW_BYTES;
    return MMA_WARPS * (depth * MMA_STAGE_BYTES(t) + x + groups * MMA_SUMS_BYTES(t)) +
           MMA_ZEROS_BYTES(t, groups);
}
#define MMA_STATIC(F, NT) \
    ((int32_t)(sizeof(mma_shared<F, NT>) + sizeof(uint64_t) * MMA_WARPS * 2 * MMA_DEPTH_MOST))
#define MMA_RESERVED 1024 /* of every block */
static constexpr bool mma_fits(int32_t smem_block, ls_dtype t, int32_t n_rows, int32_t depth) {
    const int32_t sums = n_rows > 8     ? MMA_STATIC(LS_BF16, 2)
                         : t == LS_BF16 ? MMA_STATIC(LS_BF16, 1)
                                        : MMA_STATIC(LS_Q8_0, 1);
    return mma_room(t, n_rows, depth) + sums + MMA_RESERVED <= smem_block;
}
/* The fewest copies of a ring: two, or of Q4_K, whose copy is a whole segment, one where memory is
 * small (a warp of the others waits for the next copy before it has used up this one). */
static constexpr int32_t mma_least(int32_t smem_block, ls_dtype t) {
    return t == LS_Q4_K && !mma_fits(smem_block, t, 1, 2) ? 1 : 2;
}
#define MMA_SMALLEST (99 << 10) /* of 8.6 and 8.9 */
static_assert(mma_fits(MMA_SMALLEST, LS_BF16, 8, 2) && mma_fits(MMA_SMALLEST, LS_Q8_0, 1, 2) &&
                  mma_fits(MMA_SMALLEST, LS_Q4_K, 4, mma_least(MMA_SMALLEST, LS_Q4_K)),
              "the smallest devices take a row of every format");

/* Copies a ring holds: as many as fit. */
static int32_t mma_depth(const ls_mma_device *dev, ls_dtype t, int32_t n_rows) {
    int32_t depth = MMA_DEPTH_MOST;
    while (depth > mma_least(dev->smem_block, t) && !mma_fits(dev->smem_block, t, n_rows, depth))
        depth--;
    return depth;
}

int32_t ls_mma_narrow_rows(const ls_mma_device *dev, ls_dtype t, int32_t n_rows) {
    int32_t rows = n_rows < LS_MMA_FEW ? n_rows : LS_MMA_FEW;
    while (rows > 1 && !mma_fits(dev->smem_block, t, rows, mma_least(dev->smem_block, t)))
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
    k.ld = LS_MMA_LD(n_in);
    k.segments = mma_ceil(n_in, MMA_SEGMENT);
    k.ranges = mma_ceil(k.segments, MMA_RANGE);
    k.last_steps = mma_ceil(n_in - (k.segments - 1) * MMA_SEGMENT, MMA_STEP);
    mma_deal(&k, 0, MMA_RANGE, dev);
    mma_deal(&k, 1, k.segments - (k.ranges - 1) * MMA_RANGE, dev);
    k.band = k.ranges > 1 ? MMA_BAND : m->tiles;
    k.share = m->tiles / k.pair / dev->n_sm * k.pair;
    k.rest = m->tiles / k.pair % dev->n_sm;
    k.depth = mma_depth(dev, m->format, n_rows);
    /* q, k and v leave room for the attention behind, whose blocks begin meanwhile */
    while (m->n == LS_LINEARS && n_rows <= MMA_BESIDE_ROWS && k.depth > 2 &&
           mma_room(m->format, n_rows, k.depth) > MMA_BESIDE)
        k.depth--;
    return k;
}

cudaError_t ls_mma_narrow(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                          const ls_mma_norm *norm, const ls_mma_next *next,
                          const ls_mma_gates *gates, const ls_mma_device *dev,
                          cudaStream_t stream) {
    mma_narrow_args k = narrow_args(m, x16, n_in, n_rows, norm, next, gates, dev);
    cudaLaunchAttribute early;
    if (!mma_fits(dev->smem_block, m->format, n_rows, k.depth))
        return cudaErrorInvalidValue;
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
        if (!mma_fits(dev->smem_block, t, 1, mma_least(dev->smem_block, t)))
            return cudaErrorNotSupported;
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
