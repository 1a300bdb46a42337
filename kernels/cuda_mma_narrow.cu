/* cuda_mma_narrow.cu - the tensor-core linear for 1 to 16 rows (N-MMA): decode and verification.
 * Structure   one block of 8 warps a multiprocessor. The (at most 8) segments of a range are dealt to
 *             the warps, one each, so that a warp's activations stay in its registers while it walks
 *             tile after tile. With S segments there are up to 8 / S teams of S warps, each with a
 *             tile of its own. An item is what a block does between two barriers: one tile a team.
 * Weights     stream through a ring of DEPTH copies of 8 steps (4 KiB) for each warp.
 * Meeting     a team's segment sums meet in shared memory once an item, and are added in order.
 * Ranges      more than 8 segments: range sums go to scratch, and a launch behind adds them in order.
 *             (Whoever comes last adding them costs more: a fence and a counter an item.)
 * Early       before mma_wait_previous only weights are read: the rings are full by then.
 * Source      after design 5.2; where the grid, teams and DEPTH come from is in no result. */
#include "cuda_mma_device.h"

#define MMA_WARPS 8
#define MMA_THREADS (MMA_WARPS * 32)
#define MMA_STAGE_STEPS 8 /* steps of one copy into a ring */
#define MMA_STAGE_BYTES (MMA_STAGE_STEPS * MMA_STEP_BYTES)
#define MMA_STAGES (MMA_SEGMENT_STEPS / MMA_STAGE_STEPS)
#define MMA_ROWS_MAX 16

/* Items of the full ranges come first, range after range, then those of the last one, whose fewer
 * segments may leave room for more teams. With one range it is the last one. */
typedef struct mma_narrow_args {
    mma_list m;
    const uint16_t *x16; /* [n_rows, ld] see ls_mma_round */
    float *part;         /* [ranges, tiles, NT * 128] */
    int32_t n_rows, ld, segments, ranges, last_steps;
    /* [0] of a full range, [1] of the last: items = groups; warp / slots = warp * inverse / 256 */
    int32_t slots[2], teams[2], groups[2], inverse[2];
    int32_t items, share, rest; /* a block's items; one more for the first `rest` blocks */
} mma_narrow_args;

/* What a warp does in an item. */
typedef struct mma_job {
    int range, kind, tile, slot, team;
    int stages; /* copies; 0: nothing to do */
    int steps;
} mma_job;

MMA_FN mma_job mma_job_of(const mma_narrow_args *a, int item, int warp) {
    mma_job j;
    int group = item;
    j.range = 0;
    while (j.range < a->ranges - 1 && group >= a->groups[0]) {
        group -= a->groups[0];
        j.range++;
    }
    j.kind = j.range == a->ranges - 1;
    const int slots = a->slots[j.kind], teams = a->teams[j.kind];
    j.team = warp * a->inverse[j.kind] >> 8;
    j.slot = warp - j.team * slots;
    j.tile = group * teams + j.team;
    const int segment = j.range * MMA_RANGE + j.slot;
    j.steps = segment == a->segments - 1 ? a->last_steps : MMA_SEGMENT_STEPS;
    if (j.team >= teams || j.tile >= a->m.tiles)
        j.steps = 0;
    j.stages = (j.steps + MMA_STAGE_STEPS - 1) / MMA_STAGE_STEPS;
    return j;
}

/* A block's share of a linear's items. */
MMA_FN void mma_share(const mma_narrow_args *a, int *begin, int *end) {
    const int b = (int)blockIdx.x;
    *begin = b * a->share + min(b, a->rest);
    *end = *begin + a->share + (b < a->rest);
}

/* What is left of the item a warp is fed from; steps 0: there is no other. The same in all lanes. */
typedef struct mma_feed {
    const char *from;
    int steps;
} mma_feed;

/* The items of one linear that were not fed yet. */
typedef struct mma_items {
    const mma_narrow_args *a;
    int item, end;
} mma_items;
MMA_FN mma_items mma_items_of(const mma_narrow_args *a) {
    mma_items s = {a, 0, 0};
    mma_share(a, &s.item, &s.end);
    return s;
}

/* The warp's next item. */
MMA_FN mma_feed mma_more(mma_items *s, int warp) {
    mma_feed f = {NULL, 0};
    while (s->item < s->end && f.steps == 0) {
        const mma_job j = mma_job_of(s->a, s->item++, warp);
        f.steps = j.steps;
        if (j.steps > 0)
            f.from = mma_unit(&s->a->m, mma_matrix_of(&s->a->m, j.tile), j.tile,
                              j.range * MMA_RANGE + j.slot, j.steps);
    }
    return f;
}

/* The warp's segment of x: of row 8 i + g, lane t's four k of the steps 2 q and 2 q + 1. */
template <int NT>
MMA_FN void mma_take_x(const mma_narrow_args *a, uint4 x[NT][16], int segment, int lane) {
    const int g = lane >> 2, t = lane & 3, k0 = segment * MMA_SEGMENT;
#pragma unroll
    for (int i = 0; i < NT; i++) {
        const int row = i * 8 + g;
        const uint16_t *from = a->x16 + (size_t)row * (size_t)a->ld + k0 + t * 8;
#pragma unroll
        for (int q = 0; q < 16; q++) {
            x[i][q] = make_uint4(0, 0, 0, 0);
            if (row < a->n_rows && k0 + q * 32 < a->ld)
                x[i][q] = __ldcg((const uint4 *)(const void *)(from + q * 32));
        }
    }
}

/* The steps in the ring's place at w, which begin with step 8 * stage: eight, or fewer (n). */
template <int NT>
MMA_FN void mma_stage(float c[NT][4], const uint4 x[NT][16], uint32_t w, const int stage, int n) {
    uint4 v[MMA_STAGE_STEPS];
#pragma unroll
    for (int i = 0; i < MMA_STAGE_STEPS; i++)
        v[i] = mma_lds4(w + (uint32_t)(i * MMA_STEP_BYTES)); /* past n: the place is as long */
#pragma unroll
    for (int i = 0; i < MMA_STAGE_STEPS; i++)
        if (i < n)
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const uint4 b = x[j][stage * 4 + i / 2];
                mma_step(c[j], v[i], i & 1 ? b.z : b.x, i & 1 ? b.w : b.y);
            }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Where element e of a tile goes, and what is added to it: row i of x is 8 (e / 128) + column, see
 * MMA.md. y is NULL for what is no output. */
typedef struct mma_out {
    float *y;
    const float *add;
} mma_out;
MMA_FN mma_out mma_out_of(const mma_narrow_args *a, int tile, int e) {
    mma_out o = {NULL, NULL};
    if (tile >= a->m.tiles)
        return o;
    const int lane = e >> 2 & 31, q = e & 3;
    const int m = mma_matrix_of(&a->m, tile), n_out = a->m.n_out[m];
    const int out = (tile - a->m.first[m]) * MMA_TILE + (lane >> 2) + (q >> 1) * 8;
    const int row = (e >> 7) * 8 + (lane & 3) * 2 + (q & 1);
    if (row >= a->n_rows || out >= n_out)
        return o;
    const size_t at = (size_t)row * (size_t)n_out + (size_t)out;
    o.y = a->m.y[m] + at;
    o.add = a->m.add[m] ? a->m.add[m] + at : NULL;
    return o;
}
/* What is added: asked for early, since nobody else writes it. */
MMA_FN float mma_add_of(mma_out o) {
    return o.y && o.add ? __ldcg(o.add) : 0.0f;
}
MMA_FN void mma_store(mma_out o, float sum, float add) {
    if (o.y)
        *o.y = o.add ? __fadd_rn(sum, add) : sum;
}

/* The sum of a tile's ranges, from scratch. */
template <int NT> MMA_FN void mma_add_ranges(const mma_narrow_args *a, int tile, int e) {
    const mma_out o = mma_out_of(a, tile, e);
    if (!o.y)
        return;
    const size_t stride = (size_t)a->m.tiles * (NT * 128);
    const float *part = a->part + (size_t)tile * (NT * 128) + e;
    const float add = mma_add_of(o);
    float sum = __ldcg(part);
#pragma unroll 4
    for (int r = 1; r < a->ranges; r++)
        sum = __fadd_rn(sum, __ldcg(part + (size_t)r * stride));
    mma_store(o, sum, add);
}

/* ---- a block's items ------------------------------------------------------------------------- */

/* A warp's ring: the place that is used next, and the parity of its barrier. */
typedef struct mma_ring {
    uint32_t at, bars;
    int place;
    uint32_t parity;
} mma_ring;

#if LS_MMA_BULK
/* n steps into the place. One lane. */
MMA_FN void mma_copy_stage(uint32_t to, const char *from, int n, uint32_t bar) {
    mma_bar_expect(bar, (uint32_t)(n * MMA_STEP_BYTES));
    mma_bulk(to, from, (uint32_t)(n * MMA_STEP_BYTES), bar);
}
#endif

/* What a warp fills its ring with: each place again as soon as it is read. */
typedef struct mma_feeder {
    mma_items items;
    mma_feed feed;
} mma_feeder;

/* One copy into place `slot` of the ring, if there is one left. */
MMA_FN void mma_feed_one(mma_feeder *s, const mma_ring *ring, int slot, int warp, int lane) {
    mma_feed *f = &s->feed;
    if (f->steps > 0) {
        const int n = min(f->steps, MMA_STAGE_STEPS);
        const uint32_t to = ring->at + (uint32_t)(slot * MMA_STAGE_BYTES);
#if LS_MMA_BULK
        if (lane == 0)
            mma_copy_stage(to, f->from, n, ring->bars + (uint32_t)slot * 8);
#else
        for (int i = 0; i < n; i++)
            mma_copy16(to + (uint32_t)(i * MMA_STEP_BYTES + lane * 16),
                       f->from + i * MMA_STEP_BYTES + lane * 16);
#endif
        f->from += MMA_STAGE_BYTES;
        f->steps -= n;
        if (f->steps == 0)
            *f = mma_more(&s->items, warp);
    }
#if !LS_MMA_BULK
    mma_copy_commit(); /* also without a copy: the wait counts groups */
#endif
}

/* The ring's barriers, and its first copies. Before the launch ahead has ended only weights may be
 * read: this does no more. */
template <int DEPTH>
MMA_FN mma_feeder mma_ring_fill(const mma_narrow_args *a, const mma_ring *ring, int warp,
                                int lane) {
#if LS_MMA_BULK
    if (lane == 0) {
        for (int i = 0; i < DEPTH; i++)
            mma_bar_init(ring->bars + (uint32_t)i * 8, 1);
        mma_bar_fence();
    }
    __syncwarp();
#endif
    mma_feeder s = {mma_items_of(a), {NULL, 0}};
    s.feed = mma_more(&s.items, warp);
#pragma unroll 1
    for (int i = 0; i < DEPTH; i++)
        mma_feed_one(&s, ring, i, warp, lane);
    return s;
}

/* The block's items of linear `a`, whose copies are the next ones in the rings. */
template <int NT, int DEPTH>
MMA_FN void mma_walk(const mma_narrow_args &a, mma_feeder *feed, mma_ring *ring,
                     float (*meet)[MMA_WARPS][NT][32][4], int warp, int lane) {
    uint4 x[NT][16];
    int have = -1, begin, end;
    mma_share(&a, &begin, &end);
#pragma unroll 1
    for (int item = begin; item < end; item++) {
        const mma_job job = mma_job_of(&a, item, warp);
        const int buffer = item & 1, slots = a.slots[job.kind], teams = a.teams[job.kind];
        const int tile0 = job.tile - job.team;
        const mma_out out =
            mma_out_of(&a, tile0 + (int)threadIdx.x / (NT * 128), (int)threadIdx.x % (NT * 128));
        /* no further than this item: behind it are tiles that other blocks may be storing */
        const bool mine = a.ranges == 1 && (int)threadIdx.x < teams * NT * 128;
        const float add = mine ? mma_add_of(out) : 0.0f;
        float c[NT][4];
#pragma unroll
        for (int i = 0; i < NT; i++)
            c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0.0f;
        if (job.stages > 0) {
            const int segment = job.range * MMA_RANGE + job.slot;
            if (segment != have) {
                have = segment;
                mma_take_x<NT>(&a, x, segment, lane);
            }
#pragma unroll
            for (int stage = 0; stage < MMA_STAGES; stage++) { /* a constant: it picks registers */
                if (stage >= job.stages)
                    break;
#if LS_MMA_BULK
                mma_bar_wait(ring->bars + (uint32_t)ring->place * 8, ring->parity);
#else
                MMA_COPY_WAIT(DEPTH - 1);
                __syncwarp(); /* the other lanes' copies too */
#endif
                const uint32_t w = ring->at + (uint32_t)(ring->place * MMA_STAGE_BYTES + lane * 16);
                mma_stage<NT>(c, x, w, stage, job.steps - stage * MMA_STAGE_STEPS);
                __syncwarp(); /* all lanes have read the place: what they read is in the products */
                mma_feed_one(feed, ring, ring->place, warp, lane);
                if (++ring->place == DEPTH) {
                    ring->place = 0;
                    ring->parity ^= 1;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < NT; i++)
            *(float4 *)(void *)meet[buffer][warp][i][lane] =
                make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
        __syncthreads(); /* the buffer of two items ago was read before the last barrier */
        for (int i = (int)threadIdx.x; i < teams * NT * 128; i += MMA_THREADS) {
            const int team = i / (NT * 128), e = i % (NT * 128), tile = tile0 + team;
            const float *from = &meet[buffer][team * slots][0][0][0] + e;
            float sum = from[0];
            for (int s = 1; s < slots; s++)
                sum = __fadd_rn(sum, from[s * NT * 128]);
            if (a.ranges > 1) {
                const size_t at = (size_t)job.range * (size_t)a.m.tiles + (size_t)tile;
                if (tile < a.m.tiles)
                    __stcg(a.part + at * (NT * 128) + e, sum);
            } else if (i == (int)threadIdx.x) {
                mma_store(out, sum, add);
            } else {
                const mma_out o = mma_out_of(&a, tile, e);
                mma_store(o, sum, mma_add_of(o));
            }
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int NT, int DEPTH>
__global__ void __launch_bounds__(MMA_THREADS, 1)
    mma_narrow(const __grid_constant__ mma_narrow_args a) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ __align__(8) unsigned long long bar[MMA_WARPS][DEPTH];
    __shared__ __align__(16) float meet[2][MMA_WARPS][NT][32][4];
    const int lane = (int)threadIdx.x & 31;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0);
    mma_ring ring = {mma_smem(memory) + (uint32_t)(warp * DEPTH * MMA_STAGE_BYTES),
                     mma_smem(bar[warp]), 0, 0};
    mma_feeder feed = mma_ring_fill<DEPTH>(&a, &ring, warp, lane);
    mma_let_next_begin();
    mma_wait_previous();
    mma_walk<NT, DEPTH>(a, &feed, &ring, meet, warp, lane);
}

/* Adds the ranges: a thread an element. */
template <int NT> __global__ void mma_join(const __grid_constant__ mma_narrow_args a) {
    const int i = (int)(blockIdx.x * MMA_THREADS + threadIdx.x);
    mma_let_next_begin();
    mma_wait_previous();
    if (i < a.m.tiles * (NT * 128))
        mma_add_ranges<NT>(&a, i / (NT * 128), i % (NT * 128));
}

/* ---- the launch ------------------------------------------------------------------------------ */

typedef void (*mma_narrow_fn)(mma_narrow_args);
static mma_narrow_fn mma_narrow_of(int32_t n_rows, int32_t depth) {
    if (depth == 2)
        return n_rows <= 8 ? mma_narrow<1, 2> : mma_narrow<2, 2>;
    if (depth == 3)
        return n_rows <= 8 ? mma_narrow<1, 3> : mma_narrow<2, 3>;
    return n_rows <= 8 ? mma_narrow<1, 4> : mma_narrow<2, 4>;
}
static int32_t mma_ring_bytes(int32_t depth) {
    return MMA_WARPS * depth * MMA_STAGE_BYTES;
}
/* Copies a ring holds: as many as fit, beside the sums of 16 rows. */
static int32_t mma_depth(const ls_mma_device *dev) {
    int32_t depth = 4;
    while (depth > 2 && mma_ring_bytes(depth) + (24 << 10) > dev->smem_block)
        depth--;
    return depth;
}

int32_t ls_mma_narrow_rows(int32_t n_rows) {
    return n_rows < MMA_ROWS_MAX ? n_rows : MMA_ROWS_MAX;
}

size_t ls_mma_narrow_scratch(int32_t n_out, int32_t n_in, int32_t n_rows) {
    const int32_t ranges = mma_ceil(mma_ceil(n_in, MMA_SEGMENT), MMA_RANGE);
    const size_t tiles = (size_t)mma_ceil(n_out, MMA_TILE) + LS_LINEARS;
    return ranges > 1 ? (size_t)ranges * tiles * (n_rows <= 8 ? 512 : 1024) : 0;
}

/* Teams: as many as a block has warps for, unless that left multiprocessors without work. */
static void mma_deal(mma_narrow_args *k, int kind, int32_t slots, const ls_mma_device *dev) {
    const int32_t most = MMA_WARPS / slots, useful = mma_ceil(k->m.tiles * k->ranges, dev->n_sm);
    k->slots[kind] = slots;
    k->inverse[kind] = (255 + slots) / slots;
    k->teams[kind] = useful < most ? useful : most;
    k->groups[kind] = mma_ceil(k->m.tiles, k->teams[kind]);
}

static mma_narrow_args narrow_args(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                                   void *scratch, const ls_mma_device *dev) {
    mma_narrow_args k = {};
    k.m = *m;
    k.x16 = (const uint16_t *)x16;
    k.part = (float *)scratch;
    k.n_rows = n_rows;
    k.ld = mma_ceil(n_in, 32) * 32;
    k.segments = mma_ceil(n_in, MMA_SEGMENT);
    k.ranges = mma_ceil(k.segments, MMA_RANGE);
    k.last_steps = mma_ceil(n_in - (k.segments - 1) * MMA_SEGMENT, MMA_STEP);
    mma_deal(&k, 0, MMA_RANGE, dev);
    mma_deal(&k, 1, k.segments - (k.ranges - 1) * MMA_RANGE, dev);
    k.items = (k.ranges - 1) * k.groups[0] + k.groups[1];
    k.share = k.items / dev->n_sm;
    k.rest = k.items % dev->n_sm;
    return k;
}

cudaError_t ls_mma_narrow(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                          void *scratch, const ls_mma_device *dev, cudaStream_t stream) {
    mma_narrow_args k = narrow_args(m, x16, n_in, n_rows, scratch, dev);
    const int32_t depth = mma_depth(dev);
    cudaLaunchAttribute early[1];
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(k.items < dev->n_sm ? k.items : dev->n_sm));
    c.blockDim = dim3(MMA_THREADS);
    c.dynamicSmemBytes = (size_t)mma_ring_bytes(depth);
    c.stream = stream;
    c.attrs = early;
    c.numAttrs = dev->pdl ? 1 : 0;
    early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early[0].val.programmaticStreamSerializationAllowed = 1;
    void *args[] = {&k};
    const cudaError_t e = cudaLaunchKernelExC(&c, (const void *)mma_narrow_of(n_rows, depth), args);
    if (e != cudaSuccess || k.ranges == 1)
        return e;
    c.gridDim = dim3((unsigned)mma_ceil(k.m.tiles * (n_rows <= 8 ? 128 : 256), MMA_THREADS));
    c.dynamicSmemBytes = 0;
    return cudaLaunchKernelExC(&c, (const void *)(n_rows <= 8 ? mma_join<1> : mma_join<2>), args);
}

cudaError_t ls_mma_narrow_get(ls_mma_device *dev) {
    cudaError_t e = cudaSuccess;
    for (int depth = 2; depth <= 4 && e == cudaSuccess; depth++)
        for (int rows = 8; rows <= 16 && e == cudaSuccess; rows += 8) {
            const void *f = (const void *)mma_narrow_of(rows, depth);
            const int bytes = mma_ring_bytes(depth), room = dev->smem_block - (24 << 10);
            e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     bytes < room ? bytes : room);
            if (e == cudaSuccess)
                e = cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);
        }
    /* the same split of memory for the join: a multiprocessor drains to change it */
    const void *joins[] = {(const void *)mma_join<1>, (const void *)mma_join<2>};
    for (int i = 0; i < 2 && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute(joins[i], cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    cudaFuncAttributes attr;
    if (e == cudaSuccess)
        e = cudaFuncGetAttributes(&attr, (const void *)mma_narrow<1, 4>);
    if (e != cudaSuccess)
        return e;
    dev->bulk = MMA_HOST_BULK && dev->bulk && attr.ptxVersion >= 90;
    int runtime = 0, driver = 0; /* graphs keep early launches as what they are from 12.3 on */
    if ((e = cudaRuntimeGetVersion(&runtime)) == cudaSuccess)
        e = cudaDriverGetVersion(&driver);
    dev->pdl = dev->bulk && runtime >= 12030 && driver >= 12030;
    return e;
}
