/* cuda_mma_attn.cu - attention of the profile `mma`. Contract: cuda_mma_attn.h; arithmetic and the
 * drawing of the fragments: MMA_ATTN.md.
 * A block is 4 key warps by C column warps. Its columns, 8 a column warp, are (row, query head)
 * pairs of one key/value head; it walks items: an item is one chunk of one run of rows. Inside an
 * item key warp w takes the 16-key tiles w, w + 4, ... of the chunk, with its own ring of copies
 * and its own running maximum, sum and values; the C warps that share a ring differ in their
 * columns alone. At the end the 4 states of a column meet in shared memory, in warp order.
 * Few rows    rope and the store (cuda_mma_attn_place.h), and with few chunks the merge
 *             (cuda_mma_attn_merge.h), are in the same launch.
 * Early       before the launch ahead has ended nothing is written, and only tables and keys of
 *             older passes are read (cuda.h, cuda_wait_first). */
#include "cuda.h"
#include "cuda_mma.h"
#include "cuda_mma_attn.h"
#include "cuda_mma_attn_merge.h"
#include "cuda_mma_attn_place.h"
#include "cuda_mma_device.h"

#define STAGES 4                   /* most tiles of a ring */
#define COLUMN_WARPS 4             /* most of a block */
#define LOG2_E 0x1.715476p+0f      /* scores are scaled so that the exponential is a power of two */
#define STATE_PITCH(EP) ((EP) + 4) /* floats of a column's values at the end */

/* How the columns of a launch are laid out. */
typedef struct geometry {
    int32_t heads;       /* query heads of a block: column p is row p / heads, head p % heads */
    int32_t inverse;     /* p / heads is p inverse / 65536 */
    int32_t head_blocks; /* blocks that share out the heads of a group */
    int32_t rows;        /* rows of a block */
    int32_t stages;      /* tiles of a ring */
    int32_t region;      /* bytes of a ring; a key warp's states at the end lie in the same place */
} geometry;

/* Row of the block that column p (below 32) belongs to, and the head. */
DEV int row_of(const geometry &geo, int p) {
    return p * geo.inverse >> 16;
}
DEV int head_of(const geometry &geo, int p) {
    return p - row_of(geo, p) * geo.heads;
}

DEV uint32_t shared_at(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Shared memory of a block: the rings, then these. */
template <int EP, int C> struct block_mem {
    uint16_t q[C * COLUMNS][EP + 8];
    unsigned long long bars[KEY_WARPS]; /* of a ring's warps */
    float m[KEY_WARPS][C * COLUMNS], l[KEY_WARPS][C * COLUMNS];
    own_rows own[KEY_WARPS]; /* of a ring's tiles */
    /* that neighbours have put here: of blocks that merge near each other, else not there */
    float part[NEAR_PARTS(C * COLUMNS)][PART_PITCH(EP)];
};

/* Where the warps that share a ring meet: their copies have landed, and the tile before is used up.
 * A barrier in shared memory, since racecheck sees no order behind a named one. */
typedef struct meeting {
    uint32_t bar, parity;
} meeting;
template <int C> DEV void ring_sync(meeting &m) {
    if (C == 1) {
        __syncwarp();
        return;
    }
    mma_bar_arrive(m.bar);
    mma_bar_wait(m.bar, m.parity);
    m.parity ^= 1;
}

/* What a lane reads of the queries of the block's columns, turned where they are still to be; zeros
 * where there is none. Where they lie is found before the launch ahead has ended. */
template <int EP> struct query_at { int32_t from[(EP + 63) / 64], pos[(EP + 63) / 64]; };
template <int EP> struct queries { float4 x[(EP + 63) / 64]; };
template <int EP, int C>
DEV query_at<EP> find_queries(const ls_attn_args &a, const lane_place &own, const geometry &geo,
                              int row0, int n, int head0, int n_heads) {
    query_at<EP> y;
#pragma unroll
    for (int j = 0; j < (EP + 63) / 64; j++) {
        const int i = (int)threadIdx.x + j * KEY_WARPS * C * 32, p = i / (EP / 4);
        const int r = row_of(geo, p), h = head_of(geo, p);
        y.pos[j] = __shfl_sync(FULL, own.pos, (row0 + r) & 31);
        y.from[j] = -1;
        if (r < n && h < n_heads && i % (EP / 4) * 4 < a.head_dim)
            y.from[j] = ((row0 + r) * a.n_heads + head0 + h) * a.head_dim;
    }
    return y;
}
template <int EP, int C>
DEV queries<EP> read_queries(const ls_attn_args &a, const placing &ahead, const query_at<EP> &at) {
    queries<EP> y;
#pragma unroll
    for (int j = 0; j < (EP + 63) / 64; j++) {
        const int i = (int)threadIdx.x + j * KEY_WARPS * C * 32;
        y.x[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at.from[j] >= 0)
            y.x[j] =
                read_turned(ahead, a.q + at.from[j], i % (EP / 4) * 4, a.head_dim / 2, at.pos[j]);
    }
    return y;
}
/* Rounds them, and gives every warp the fragments of its columns. */
template <int EP, int C>
DEV void share_queries(block_mem<EP, C> *mem, const queries<EP> &y, int column_warp,
                       uint32_t (&q)[EP / 16][2]) {
    const int lane = (int)(threadIdx.x & 31u);
#pragma unroll
    for (int j = 0; j < (EP + 63) / 64; j++) {
        const int i = (int)threadIdx.x + j * KEY_WARPS * C * 32;
        const int p = i / (EP / 4), e = i % (EP / 4) * 4;
        if (p < C * COLUMNS)
            *(uint2 *)&mem->q[p][e] =
                make_uint2(pair_of(y.x[j].x, y.x[j].y), pair_of(y.x[j].z, y.x[j].w));
    }
    __syncthreads(); /* publishes the queries */
#pragma unroll
    for (int i = 0; i < EP / 16; i += 2) {
        uint32_t b[4];
        load_4(b, shared_at(mem->q[column_warp * COLUMNS + (lane & 7)]) +
                      (uint32_t)((lane >> 3) * 16 + i * 32));
        q[i][0] = b[0], q[i][1] = b[1], q[i + 1][0] = b[2], q[i + 1][1] = b[3];
    }
}

DEV float4 scaled_add(float f, float4 x, float4 acc) {
    return make_float4(__fmaf_rn(f, x.x, acc.x), __fmaf_rn(f, x.y, acc.y), __fmaf_rn(f, x.z, acc.z),
                       __fmaf_rn(f, x.w, acc.w));
}

/* Joins the states of the four key warps; stores a column as the chunk's part, or as the result
 * where there is no other chunk to merge. A lane finds the weights of column `lane`, then a warp
 * takes a column, four elements a lane. */
template <int EP, int C>
DEV void join_warps(const ls_attn_args &a, const geometry &geo, const block_mem<EP, C> *mem,
                    bool is_near, const neighbours &near, const unsigned char *rings, uint16_t *x16,
                    const row_info &rows, const item_info &x, int row0, int head0, int n_heads) {
    const int warp = (int)(threadIdx.x >> 5), lane = (int)(threadIdx.x & 31u);
    const int p = min(lane, C * COLUMNS - 1), r = row_of(geo, p), h = head_of(geo, p);
    const int32_t length = __shfl_sync(FULL, rows.length, r & 31); /* all lanes, or it waits */
    const int32_t count = __shfl_sync(FULL, rows.count, r & 31);
    const bool live =
        r >= x.first && r < x.end && h < n_heads && length > x.k0 && x.chunk < a.max_chunks;
    const uint32_t lives = __ballot_sync(FULL, live), wholes = __ballot_sync(FULL, count == 1);
    float top = mem->m[0][p], l = 0.0f, f[KEY_WARPS];
#pragma unroll
    for (int w = 1; w < KEY_WARPS; w++)
        top = fmaxf(top, mem->m[w][p]);
    const float z = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int w = 0; w < KEY_WARPS; w++) {
        f[w] = exp2_of(__fsub_rn(mem->m[w][p], z));
        l = __fmaf_rn(f[w], mem->l[w][p], l);
    }
    for (int c = warp; c < C * COLUMNS; c += KEY_WARPS * C) {
        if (!(lives >> c & 1u))
            continue;
        float fc[KEY_WARPS];
#pragma unroll
        for (int w = 0; w < KEY_WARPS; w++)
            fc[w] = __shfl_sync(FULL, f[w], c);
        const float lc = __shfl_sync(FULL, l, c), topc = __shfl_sync(FULL, top, c);
        const int row = row0 + row_of(geo, c), head = head0 + head_of(geo, c);
        const size_t row_head = (size_t)row * (size_t)a.n_heads + (size_t)head;
        float *to =
            a.part + (row_head * (size_t)a.max_chunks + (size_t)x.chunk) * (2 + (size_t)a.head_dim);
        for (int e = lane * 4; e < a.head_dim; e += 128) {
            float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int w = 0; w < KEY_WARPS; w++) {
                const float *state = (const float *)(rings + (size_t)(w * geo.region));
                acc = scaled_add(fc[w], *(const float4 *)(state + c * STATE_PITCH(EP) + e), acc);
            }
            /* a zero has no sign: whether products of zeros were added to it is the launch's
             * business */
            acc.x = __fadd_rn(acc.x, 0.0f), acc.y = __fadd_rn(acc.y, 0.0f);
            acc.z = __fadd_rn(acc.z, 0.0f), acc.w = __fadd_rn(acc.w, 0.0f);
            if (wholes >> c & 1u) {
                float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (lc != 0.0f)
                    y = make_float4(__fdiv_rn(acc.x, lc), __fdiv_rn(acc.y, lc),
                                    __fdiv_rn(acc.z, lc), __fdiv_rn(acc.w, lc));
                *(float4 *)(a.out + row_head * (size_t)a.head_dim + e) = y;
                if (x16)
                    *(uint2 *)(x16 + rounded_at(a, row, head, e)) =
                        make_uint2(pair_of(y.x, y.y), pair_of(y.z, y.w));
            } else if (is_near) {
                const uint32_t there =
                    near_part<EP>(mem->part[0], near, row_of(geo, c) * n_heads + head_of(geo, c));
                put_near(there + (uint32_t)e * 4u, acc);
                if (e == 0)
                    put_near(there + EP * 4u, make_float2(topc, lc));
            } else {
                if (e == 0)
                    *(float2 *)to = make_float2(topc, lc);
                *(float2 *)(to + 2 + e) = make_float2(acc.x, acc.y);
                *(float2 *)(to + 4 + e) = make_float2(acc.z, acc.w);
            }
        }
    }
}

/* Where keys stop in an item, for the columns of column warp c. */
DEV edge find_edge(const row_info &rows, const item_info &x, const geometry &geo, int n, int c) {
    const int lane = (int)(threadIdx.x & 31u);
    edge e;
    e.first = row_of(geo, c * COLUMNS);
    e.last = min(row_of(geo, c * COLUMNS + COLUMNS - 1), n - 1);
    const bool in_item = lane >= x.first && lane < x.end && rows.length > x.k0;
    const bool here = in_item && lane >= e.first && lane <= e.last;
    e.of_row = in_item ? min(rows.length, x.k1) : 0;
    e.whole = __reduce_min_sync(FULL, here ? e.of_row : NONE);
    e.top = __reduce_max_sync(FULL, here ? e.of_row : 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = row_of(geo, c * COLUMNS + 2 * (lane & 3) + i);
        const int32_t limit = __shfl_sync(FULL, e.of_row, r & 31);
        e.row[i] = r < n ? r : -1;
        e.limit[i] = r < n ? limit : 0;
    }
    return e;
}

/* A key warp's way through an item. */
DEV walk walk_of(const row_info &rows, const item_info &x, int row0, int key_warp) {
    walk k;
    k.k0 = x.k0 + key_warp * TILE;
    k.k1 = x.k1;
    k.stride = KEY_WARPS * TILE;
    k.n_tiles = (k.k1 - k.k0 + KEY_WARPS * TILE - 1) / (KEY_WARPS * TILE);
    k.row = row0 + x.first;
    k.at = __shfl_sync(FULL, rows.at, x.first);
    k.n_table = __shfl_sync(FULL, rows.n_table, x.first);
    k.prefix = __shfl_sync(FULL, rows.prefix, x.first);
    return k;
}

/* Grid: (row blocks, kv heads * head_blocks, any number: items are walked with its stride). */
template <int EP, int C>
static __global__ void __launch_bounds__(KEY_WARPS *C * 32, EP > 128 || C == 4 ? 1 : 4 / C)
    chunk_kernel(const __grid_constant__ ls_attn_args a, const __grid_constant__ geometry geo,
                 const __grid_constant__ placing ahead, const __grid_constant__ merging behind) {
    extern __shared__ __align__(16) unsigned char rings[];
    block_mem<EP, C> *mem = (block_mem<EP, C> *)(rings + (size_t)(KEY_WARPS * geo.region));
    const int lane = (int)(threadIdx.x & 31u), g = lane >> 2, t = lane & 3;
    const int key_warp = (int)(threadIdx.x >> 5) / C, column_warp = (int)(threadIdx.x >> 5) % C;
    const int kv_head = (int)blockIdx.y / geo.head_blocks, group = a.n_heads / a.n_kv;
    const int h0 = (int)blockIdx.y % geo.head_blocks * geo.heads;
    const int n_heads = min(geo.heads, group - h0), head0 = kv_head * group + h0;
    const int row0 = (int)blockIdx.x * geo.rows, n = min(geo.rows, a.n_rows - row0);

    const size_t head_at = (size_t)kv_head * (size_t)a.head_dim * 2;
    const pools from = {(const unsigned char *)a.k_pool + head_at,
                        (const unsigned char *)a.v_pool + head_at,
                        (uint32_t)(a.n_kv * a.head_dim * 2), (uint32_t)(a.head_dim * 2)};
    const float scale = __fmul_rn(a.scale, LOG2_E);
    unsigned char *mine = rings + (size_t)(key_warp * geo.region);
    const uint32_t ring = shared_at(mine);
    const uint32_t k_lane = (uint32_t)((lane & 15) * PITCH_BYTES(EP) + (lane >> 4) * 16);
    const uint32_t v_lane = (uint32_t)(HALF_TILE_BYTES(EP) + ((lane >> 3) & 1) * 16 +
                                       ((lane & 7) + (lane >> 4) * 8) * PITCH_BYTES(EP));

    meeting ring_warps = {shared_at(&mem->bars[key_warp]), 0};
    if (C > 1) {
        if (threadIdx.x == 0)
#pragma unroll
            for (int i = 0; i < KEY_WARPS; i++)
                mma_bar_init(shared_at(&mem->bars[i]), C * 32);
        __syncthreads();
    }

    const row_info rows = read_rows(a, row0, n, lane);
    /* without work; but the grid ends no sooner than what is ahead of it */
    if (blockIdx.z > 0 && (int)blockIdx.z >= rows.n_items)
        return;
    const bool is_near = behind.done && rows.plain && rows.n_items <= CLUSTER && rows.n_items > 0 &&
                         __any_sync(FULL, lane < n && rows.count != 1);
    if (is_near)
        cluster_arrive();
    const neighbours near = find_neighbours(rows.n_items, n * n_heads);
    const lane_place own = read_places(ahead, a.n_rows, lane);
    const query_at<EP> query = find_queries<EP, C>(a, own, geo, row0, n, head0, n_heads);
    bool waited = false, stores = false; /* whether any of its tiles has keys of this pass */
    for (int it = (int)blockIdx.z; it < rows.n_items; it += (int)gridDim.z)
        stores = stores || (ahead.k && find_item(rows, it).k1 > rows.older);
    if (stores && column_warp == 0)
        note_none(&mem->own[key_warp]);
    uint32_t q[EP / 16][2] = {};
    for (int it = (int)blockIdx.z; it < rows.n_items; it += (int)gridDim.z) {
        const item_info x = find_item(rows, it);
        edge e = {};
        const walk k = walk_of(rows, x, row0, key_warp);
        warp_state<EP> s;
        clear(s);

        /* Turn i: the copies into the place that tile i - 1 has left start, the slots for the next
         * ones are found, and tile i is used.
         * Below 0  turns fill the ring. What need not come before the copies is done in the last of
         *          them, which every warp has: the wait for the launch ahead, and the queries.
         *          While it waits a block uses its first tile once for nothing: then the code of a
         *          turn is at hand.
         * Groups   of copies are closed every turn but 0, empty past the last tile: waits count
         *          them.
         * Own      keys of this pass are not copied into tiles below turn 0: store_rows puts them
         *          there, and into the cache, from where later tiles have them. */
        const int stages = geo.stages;
        const uint32_t ring_end = ring + (uint32_t)stages * TILE_BYTES(EP);
        uint32_t fill = ring, use = ring; /* the place that is filled, and that of tile i */
        int32_t slot = find_slots(a.loc, k, 0);
        for (int i = -stages; i < k.n_tiles; i++) {
            if (i >= 0) {
                if (i == 0 || stages > 1)
                    copies_wait(i == 0 ? stages - 1 : stages - 2);
                ring_sync<C>(ring_warps);
            }
            if (i != 0) {
                const int coming = i < 0 ? i + stages : i + stages - 1;
                if (coming < k.n_tiles) {
                    const bool due = min(k.k0 + coming * k.stride + TILE, k.k1) > rows.older;
                    uint32_t own_keys = 0;
                    if (due && !waited && !ahead.k) {
                        cuda_wait(); /* keys of this pass, placed ahead */
                        waited = true;
                    }
                    if (due && !waited) {
                        int32_t key_of;
                        own_keys = find_own(own, a.n_rows, slot, &key_of);
                        if (column_warp == 0)
                            note_own<EP>(&mem->own[key_warp], fill, key_of);
                    }
                    fetch<EP, C>(from, slot, own_keys, fill, column_warp);
                }
                copies_close();
                fill = fill + TILE_BYTES(EP) == ring_end ? ring : fill + TILE_BYTES(EP);
                slot = find_slots(a.loc, k, coming + 1);
            }
            if (i < -1)
                continue;
            const bool rehearsal = i == -1 && !waited && behind.done;
            if (i == -1)
                e = find_edge(rows, x, geo, n, column_warp);
            if (stages == 1 || rehearsal) {
                copies_wait(stages - 1); /* a ring of one; or the wait of turn 0 */
                ring_sync<C>(ring_warps);
            }
            if (i == 0) /* not before: its copies would slow the loads of the first turn */
                cuda_let_behind();
            const int32_t key0 = k.k0 + max(i, 0) * KEY_WARPS * TILE;
            if ((i >= 0 || rehearsal) && key0 < e.top)
                add_tile<EP>(s, q, use + k_lane, use + v_lane, scale, key0, e);
            if (i >= 0) {
                use = use + TILE_BYTES(EP) == ring_end ? ring : use + TILE_BYTES(EP);
                continue;
            }
            const bool first = it == (int)blockIdx.z;
            if (first && stores)
                __syncthreads(); /* publishes which rows are in tiles */
            if (!waited)
                cuda_wait();
            waited = true;
            if (first) {
                const queries<EP> y = read_queries<EP, C>(a, ahead, query);
                if (stores)
                    store_rows<EP>(a, ahead, own, kv_head, mem->own, KEY_WARPS, (int)threadIdx.x,
                                   KEY_WARPS * C * 32);
                share_queries<EP, C>(mem, y, column_warp, q); /* publishes what is stored */
            }
            clear(s);
        }

        ring_sync<C>(ring_warps); /* the ring is used up: the states take its place */
        const int p = column_warp * COLUMNS + 2 * t;
        float *to = (float *)mine + p * STATE_PITCH(EP) + g;
#pragma unroll
        for (int i = 0; i < EP / 16; i++) {
            to[i * 16] = s.acc[i][0], to[i * 16 + STATE_PITCH(EP)] = s.acc[i][1];
            to[i * 16 + 8] = s.acc[i][2], to[i * 16 + STATE_PITCH(EP) + 8] = s.acc[i][3];
        }
        if (g == 0) {
            mem->m[key_warp][p] = s.m[0], mem->m[key_warp][p + 1] = s.m[1];
            mem->l[key_warp][p] = s.l[0], mem->l[key_warp][p + 1] = s.l[1];
        }
        __syncthreads(); /* publishes the states */
        if (is_near)
            cluster_wait(); /* the neighbours have begun */
        join_warps<EP, C>(a, geo, mem, is_near, near, rings, behind.x16, rows, x, row0, head0,
                          n_heads);
        if (it + (int)gridDim.z < rows.n_items)
            __syncthreads(); /* the states are read: the next item may take their place */
    }
    if (!waited)
        cuda_wait(); /* without an item: what waits for this launch counts on those before it */
    cuda_let_behind();
    if (rows.n_items == 0 && ahead.k) /* nobody reads them */
        store_rows<EP>(a, ahead, own, kv_head, NULL, 0, (int)threadIdx.x, KEY_WARPS * C * 32);
    if (is_near) {
        cluster_arrive();
        cluster_wait();
        merge_near<EP>(a, behind, mem->part[0], near, rows.count, row0, n, head0, n_heads);
    } else if (behind.done) {
        merge_within(a, behind, rows.count, row0, n, head0, n_heads,
                     max(min(rows.n_items, (int)gridDim.z), 1));
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef void (*chunk_fn)(const ls_attn_args, const geometry, const placing, const merging);
typedef struct instance {
    int32_t head_dim;     /* most it holds: narrower heads are padded with zeros */
    int32_t column_warps; /* C */
    int32_t tile_bytes, states_bytes, block_bytes;
    int32_t near_bytes; /* more, where blocks merge near each other */
    chunk_fn kernel;
} instance;

#define NEAR_BYTES(EP, C) ((int32_t)sizeof(block_mem<EP, C>::part))
#define BLOCK_BYTES(EP, C) ((int32_t)sizeof(block_mem<EP, C>) - NEAR_BYTES(EP, C))
#define STATES_BYTES(EP, C) ((C)*COLUMNS * STATE_PITCH(EP) * (int32_t)sizeof(float))
/* With a ring of one tile every instance fits the block memory of 8.6 and 8.9, static memory too. */
template <int EP, int C> constexpr int32_t checked(int32_t bytes) {
    static_assert(KEY_WARPS * TILE_BYTES(EP) + BLOCK_BYTES(EP, C) + 64 <= 99 << 10 &&
                      KEY_WARPS * STATES_BYTES(EP, C) + BLOCK_BYTES(EP, C) + 64 <= 99 << 10,
                  "a block of the smallest devices");
    return bytes;
}
#define INSTANCE(EP, C)                                                                 \
    {                                                                                   \
        EP, C, TILE_BYTES(EP), STATES_BYTES(EP, C), checked<EP, C>(BLOCK_BYTES(EP, C)), \
            NEAR_BYTES(EP, C), chunk_kernel<EP, C>                                      \
    }
static const instance instances[] = {
    INSTANCE(64, 1),  INSTANCE(64, 2),  INSTANCE(64, 4),  INSTANCE(96, 1),
    INSTANCE(96, 2),  INSTANCE(96, 4),  INSTANCE(128, 1), INSTANCE(128, 2),
    INSTANCE(128, 4), INSTANCE(256, 1), INSTANCE(256, 2),
};
#define N_INSTANCES (sizeof instances / sizeof instances[0])
#define WARPS_FOR_REGISTERS 16 /* of a multiprocessor, at 128 registers a lane */

typedef struct plan {
    const instance *of;
    geometry geo;
    int32_t shared_bytes, resident; /* of a block; blocks a multiprocessor holds */
    bool near;                      /* clusters of blocks, which merge */
    dim3 grid;
} plan;

static int32_t pieces(int32_t n, int32_t of) {
    return (n + of - 1) / of;
}

/* The fewest column warps that hold the pass's columns, or `most`; how the columns lie in blocks of
 * them, and the grid but for z. False: no instance holds such a head. */
static bool lay_out(const ls_attn_args *a, int32_t most, plan *p) {
    const int32_t group = a->n_heads / a->n_kv;
    p->of = NULL;
    for (size_t i = 0; i < N_INSTANCES; i++) {
        const instance *x = &instances[i];
        if (x->head_dim < a->head_dim || (p->of && x->head_dim > p->of->head_dim) ||
            x->column_warps > most)
            continue;
        if (!p->of || p->of->column_warps * COLUMNS < (int64_t)a->n_rows * group)
            p->of = x;
    }
    if (!p->of)
        return false;
    const int32_t columns = p->of->column_warps * COLUMNS;
    p->geo.heads = group < columns ? group : columns;
    p->geo.inverse = 65536 / p->geo.heads + 1;
    p->geo.head_blocks = pieces(group, p->geo.heads);
    p->geo.rows = columns / p->geo.heads;
    p->grid =
        dim3((unsigned)pieces(a->n_rows, p->geo.rows), (unsigned)(a->n_kv * p->geo.head_blocks), 1);
    return true;
}

/* The longest ring, up to `longest` tiles, that leaves room for two blocks a multiprocessor where
 * registers do, else for one. */
static bool choose_stages(const ls_mma_attn_device *dev, int32_t longest, plan *p) {
    const int32_t warps = KEY_WARPS * p->of->column_warps;
    const int32_t most = WARPS_FOR_REGISTERS / warps > 1 ? 2 : 1;
    for (int32_t blocks = most; blocks >= 1; blocks--) {
        for (int32_t stages = longest; stages >= (blocks == 2 ? 2 : 1); stages--) {
            const int32_t ring = stages * p->of->tile_bytes;
            p->geo.stages = stages;
            p->geo.region = ring > p->of->states_bytes ? ring : p->of->states_bytes;
            p->shared_bytes =
                KEY_WARPS * p->geo.region + p->of->block_bytes + (p->near ? p->of->near_bytes : 0);
            const int32_t by_shared = dev->shared_a_unit / (p->shared_bytes + dev->shared_reserved);
            p->resident =
                by_shared < WARPS_FOR_REGISTERS / warps ? by_shared : WARPS_FOR_REGISTERS / warps;
            if (p->shared_bytes <= dev->shared_a_block && p->resident >= blocks)
                return true;
        }
    }
    return false;
}

/* Rows and chunks so few that one launch does it all. */
static bool fits_near(const ls_attn_args *a, const ls_mma_attn_device *dev) {
    return dev->overlap && a->only == 0 && a->n_rows <= LS_MMA_FEW && a->max_chunks <= CLUSTER &&
           a->n_rows * a->n_heads <= LS_MMA_ATTN_GROUPS;
}

/* Near, blocks of one column warp fit beside those of the linear ahead, which leaves them room:
 * what is done before it ends takes as long as what is done behind. As many as there are
 * multiprocessors: more would wait for those, and fewer of more columns are faster. */
static bool plan_near(const ls_attn_args *a, const ls_mma_attn_device *dev, plan *p) {
    p->near = fits_near(a, dev);
    if (!p->near || !lay_out(a, 1, p))
        return false;
    if ((int64_t)p->grid.x * p->grid.y * CLUSTER > dev->units)
        lay_out(a, COLUMN_WARPS, p);
    p->grid.z = CLUSTER;
    return choose_stages(dev, p->of->column_warps == 1 ? 2 : STAGES, p);
}

static bool make_plan(const ls_attn_args *a, const ls_mma_attn_device *dev, plan *p) {
    if (plan_near(a, dev, p))
        return true;
    p->near = false;
    if (!lay_out(a, COLUMN_WARPS, p) || !choose_stages(dev, STAGES, p))
        return false;
    const int32_t rows = p->geo.rows < a->n_rows ? p->geo.rows : a->n_rows;
    /* no more blocks than items, nor than are resident: the rest would only take turns */
    const int64_t items = (int64_t)a->max_chunks * rows, others = (int64_t)p->grid.x * p->grid.y;
    const int64_t room = (int64_t)dev->waves * dev->units * p->resident / others;
    const int64_t z = items < room ? items : room;
    p->grid.z = (unsigned)(z < 1 ? 1 : z > 65535 ? 65535 : z);
    return true;
}

cudaError_t ls_mma_attn_prepare(ls_mma_attn_device *dev) {
    int device, major, minor, value, driver, runtime;
    cudaError_t e = cudaGetDevice(&device);
    const struct {
        enum cudaDeviceAttr attr;
        int32_t *to;
    } read[] = {
        {cudaDevAttrMultiProcessorCount, &dev->units},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &dev->shared_a_unit},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, &dev->shared_a_block},
        {cudaDevAttrReservedSharedMemoryPerBlock, &dev->shared_reserved},
        {cudaDevAttrMaxThreadsPerMultiProcessor, &dev->warps_a_unit},
    };
    for (size_t i = 0; i < sizeof read / sizeof read[0] && e == cudaSuccess; i++) {
        e = cudaDeviceGetAttribute(&value, read[i].attr, device);
        *read[i].to = value;
    }
    dev->warps_a_unit /= 32;
    dev->waves = 1;
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (e == cudaSuccess)
        e = cudaDriverGetVersion(&driver);
    if (e == cudaSuccess)
        e = cudaRuntimeGetVersion(&runtime);
    if (e != cudaSuccess)
        return e;
    if (major < 8)
        return cudaErrorNotSupported;
    /* captured into graphs from 12.3 on */
    dev->overlap = major >= 9 && driver >= 12030 && runtime >= 12030;
    for (size_t i = 0; i < N_INSTANCES; i++) {
        plan p = {};
        p.of = &instances[i];
        if (!choose_stages(dev, STAGES, &p))
            return cudaErrorNotSupported;
        plan near = p;
        near.near = true;
        const bool both = dev->overlap && choose_stages(dev, STAGES, &near);
        e = cuda_split((const void *)instances[i].kernel, both && near.shared_bytes > p.shared_bytes
                                                              ? near.shared_bytes
                                                              : p.shared_bytes);
        if (e != cudaSuccess)
            return e;
    }
    return cuda_split((const void *)merge_kernel, 0);
}

bool ls_mma_attn_fits(const ls_attn_args *a) {
    const uintptr_t pools = (uintptr_t)a->k_pool | (uintptr_t)a->v_pool;
    const uintptr_t rows = (uintptr_t)a->q | (uintptr_t)a->out;
    return a->window == 0 && a->kv_dtype == LS_BF16 && a->head_dim >= 16 && a->head_dim % 16 == 0 &&
           a->head_dim <= LS_HEAD_DIM_MAX && a->n_kv > 0 && a->n_heads % a->n_kv == 0 &&
           pools % 16 == 0 && rows % 16 == 0 && (uintptr_t)a->part % 8 == 0;
}

bool ls_mma_attn_places(const ls_attn_args *a, const ls_rope_args *rope,
                        const ls_kv_store_args *store) {
    const uintptr_t fours =
        (uintptr_t)rope->k | (uintptr_t)store->v | (uintptr_t)rope->cos | (uintptr_t)rope->sin;
    return ls_mma_attn_fits(a) && a->only == 0 && a->max_chunks > 0 && a->n_rows <= LS_MMA_FEW &&
           fours % 16 == 0;
}

cudaError_t ls_mma_attn(const ls_attn_args *a, const ls_mma_attn_with *with,
                        const ls_mma_attn_device *dev, cudaStream_t stream) {
    cudaLaunchAttribute attr[2];
    merging behind = {with->x16, NULL, with->fault, with->claim};
    if (a->n_rows <= 0)
        return cudaSuccess;
    if (a->only != 2 && a->max_chunks > 0) {
        plan p = {};
        placing ahead = {};
        if (!make_plan(a, dev, &p))
            return cudaErrorNotSupported;
        if (with->rope)
            ahead = {with->rope->k,
                     with->store->v,
                     with->rope->cos,
                     with->rope->sin,
                     with->rope->pos,
                     with->store->slot,
                     (uint16_t *)with->store->k_pool,
                     (uint16_t *)with->store->v_pool,
                     with->rope->n_pos,
                     with->store->n_slots};
        behind.done = p.near ? with->done : NULL;
        cudaLaunchConfig_t c =
            cuda_launch_of(p.grid, (unsigned)(KEY_WARPS * p.of->column_warps * 32),
                           (size_t)p.shared_bytes, stream, dev->overlap, attr);
        if (p.near) {
            attr[1].id = cudaLaunchAttributeClusterDimension;
            attr[1].val.clusterDim.x = attr[1].val.clusterDim.y = 1;
            attr[1].val.clusterDim.z = CLUSTER;
            c.numAttrs = 2;
        }
        const cudaError_t e = cudaLaunchKernelEx(&c, p.of->kernel, *a, p.geo, ahead, behind);
        if (e != cudaSuccess || behind.done)
            return e;
    }
    if (a->only == 1)
        return cudaSuccess;
    const cudaLaunchConfig_t c =
        cuda_launch_of(dim3((unsigned)a->n_rows * (unsigned)a->n_heads),
                       (unsigned)pieces(a->head_dim, 32) * 32, 0, stream, dev->overlap, attr);
    return cudaLaunchKernelEx(&c, merge_kernel, *a, behind);
}

void ls_mma_attn_launch(const ls_attn_args *a, const ls_mma_attn_device *dev, ls_launch *out) {
    plan p = {};
    *out = {};
    if (a->n_rows <= 0 || !make_plan(a, dev, &p))
        return;
    out->blocks = (int32_t)(p.grid.x * p.grid.y * p.grid.z);
    out->threads = KEY_WARPS * p.of->column_warps * 32;
    out->blocks_a_unit = p.resident;
    out->warps_a_unit = dev->warps_a_unit;
    out->units = dev->units;
    out->shared_bytes = p.shared_bytes;
}
