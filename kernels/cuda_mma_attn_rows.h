/* cuda_mma_attn_rows.h - which rows of a block are computed together, for cuda_mma_attn.cu: the
 * block's rows, their runs, and the items a run falls into. All of it is read from the device's
 * lengths and locators; none of it changes a result (MMA_ATTN.md, "What must not matter"). They are
 * read from the second cache: before the launch ahead has ended (cuda.h, cuda_wait_first). */
#ifndef LS_CUDA_MMA_ATTN_ROWS_H
#define LS_CUDA_MMA_ATTN_ROWS_H

#include "chunk.h"

#include <limits.h>

#define FULL 0xffffffffu
#define NONE INT_MAX
#define DEV static __device__ __forceinline__

/* Lane i holds row i of the block. Rows one after another are a run when their keys are found
 * alike and their chunks have the same edges: they share the chunks whose keys are the same for
 * all of them, in a tree those below the prefix. */
typedef struct row_info {
    int32_t length, count; /* keys and chunks; 0 past the last row */
    int32_t at, n_table;   /* locator: base, or where the table begins and ends */
    int32_t prefix;        /* of a tree; NONE without one */
    int32_t first, end;    /* rows of the run */
    int32_t chunk, top;    /* of the run: chunk length, most keys */
    int32_t shared;        /* of the run: chunks that its rows share */
    int32_t items, upto;   /* of this lane, and of all lanes up to it */
    int32_t n_items;       /* of the block */
    int32_t older;         /* keys of every row's list before it are of older passes */
    bool plain;            /* one run that shares everything: items are its chunks */
} row_info;

/* One chunk of one run, or of one row. */
typedef struct item_info {
    int32_t first, end; /* rows */
    int32_t chunk;      /* index */
    int32_t k0, k1;     /* its keys: k1 is at most the longest row's length */
} item_info;

/* A warp's way through an item: its tiles are `stride` keys apart. */
typedef struct walk {
    int32_t k0, k1; /* its first key, and the end of the item's */
    int32_t stride, n_tiles;
    int32_t row; /* whose keys these are, with its place, table and prefix */
    int32_t at, n_table, prefix;
} walk;

/* the bits of lanes below i */
DEV uint32_t lanes_below(int i) {
    return i > 31 ? FULL : (1u << i) - 1u;
}

/* ls_chunk_len_of without doubling's divisions, which a short row waits for: ceil(L / c) > m is
 * L > c m. */
DEV int32_t chunk_len(const ls_chunk_rule &rule, int32_t length) {
    if (rule.kind != LS_CHUNK_DOUBLING || length <= 0)
        return ls_chunk_len_of(rule, length);
    int32_t chunk = rule.min_keys;
    while (chunk <= LS_CHUNK_MAX / 2 && length > (int64_t)chunk * rule.max_chunks)
        chunk *= 2;
    return chunk;
}
DEV int32_t chunk_count(const ls_chunk_rule &rule, int32_t length) {
    return length <= 0 ? 0 : ls_chunk_pieces(length, chunk_len(rule, length));
}

DEV row_info read_rows(const ls_attn_args &a, int row0, int n, int lane) {
    row_info w = {};
    const int r = row0 + (lane < n ? lane : 0);
    const int32_t length = __ldcg(a.length + r);
    w.at = __ldcg((a.loc.base ? a.loc.base : a.loc.table_at) + r);
    w.n_table = a.loc.base ? 0 : __ldcg(a.loc.table_len + r);
    w.prefix = a.loc.prefix ? max(__ldcg(a.loc.prefix + r), 0) : NONE;
    w.length = lane < n ? max(length, 0) : 0;
    /* of a row's keys those of its pass are the last: its own, and one a row ahead of it at most */
    w.older = max(__reduce_min_sync(FULL, lane < n ? w.length - 1 - r : NONE), 0);
    const int32_t chunk = chunk_len(a.rule, w.length);
    w.count = w.length > 0 ? ls_chunk_pieces(w.length, chunk) : 0;
    /* a single chunk ends at the length: its edges are nobody's business */
    const int32_t edges = w.count <= 1 ? NONE : chunk;

    bool alike = edges == __shfl_up_sync(FULL, edges, 1);
    alike &= w.at == __shfl_up_sync(FULL, w.at, 1);
    alike &= w.n_table == __shfl_up_sync(FULL, w.n_table, 1);
    alike &= w.prefix == __shfl_up_sync(FULL, w.prefix, 1);
    const uint32_t firsts = __ballot_sync(FULL, lane == 0 || lane >= n || !alike);

    if ((firsts & lanes_below(n)) == 1u) {
        w.end = n;
        w.top = __reduce_max_sync(FULL, w.length);
        w.chunk = __shfl_sync(FULL, edges == NONE ? max(w.top, 1) : chunk, 0);
        w.shared = w.n_items = ls_chunk_pieces(w.top, w.chunk);
        w.plain = n == 1 || __shfl_sync(FULL, w.prefix, 0) >= w.top;
        if (w.plain)
            return w;
    }

    w.first = 31 - __clz((int)(firsts & lanes_below(lane + 1)));
    const uint32_t after = firsts & ~lanes_below(lane + 1);
    w.end = after ? __ffs((int)after) - 1 : 32;
    w.top = w.length;
    for (int o = 1; o < 32; o <<= 1) {
        const int32_t other = __shfl_up_sync(FULL, w.top, (unsigned)o);
        w.top = lane - o >= w.first ? max(w.top, other) : w.top;
    }
    w.top = __shfl_sync(FULL, w.top, w.end - 1);
    w.chunk = edges == NONE ? max(w.top, 1) : chunk;
    const int32_t most = ls_chunk_pieces(w.top, w.chunk);
    w.shared = w.prefix >= w.top || w.end - w.first == 1 ? most : min(most, w.prefix / w.chunk);

    w.items = max(w.count - w.shared, 0) + (lane == w.first ? w.shared : 0);
    w.upto = w.items;
    for (int o = 1; o < 32; o <<= 1) {
        const int32_t other = __shfl_up_sync(FULL, w.upto, (unsigned)o);
        w.upto += lane >= o ? other : 0;
    }
    w.n_items = __shfl_sync(FULL, w.upto, 31);
    return w;
}

DEV item_info find_item(const row_info &w, int it) {
    item_info x;
    int32_t chunk = w.chunk, top = w.top;
    if (w.plain) {
        x.first = 0, x.end = w.end, x.chunk = it;
    } else {
        const int owner = __popc(__ballot_sync(FULL, w.upto <= it));
        const int32_t shared = __shfl_sync(FULL, w.shared, owner);
        const int32_t first = __shfl_sync(FULL, w.first, owner);
        const int32_t end = __shfl_sync(FULL, w.end, owner);
        int32_t i = it - __shfl_sync(FULL, w.upto - w.items, owner);
        const bool together = owner == first && i < shared;
        i -= owner == first ? shared : 0;
        x.first = owner, x.end = together ? end : owner + 1, x.chunk = shared + i;
        const int32_t length = __shfl_sync(FULL, w.length, owner);
        chunk = __shfl_sync(FULL, chunk, owner);
        top = __shfl_sync(FULL, top, owner);
        top = together ? top : length;
    }
    x.k0 = x.chunk * chunk;
    x.k1 = top - x.k0 < chunk ? top : x.k0 + chunk;
    return x;
}

/* N-LOC with what is the row's own already read: the slot of key j, -1 for zeros. */
DEV int32_t slot_of(const ls_locator &loc, const walk &k, int32_t j) {
    int32_t index = j;
    if (j >= k.prefix) {
        const int32_t i = j - k.prefix;
        index =
            i < loc.ld_anc ? __ldcg(loc.anc + (size_t)k.row * (size_t)loc.ld_anc + (size_t)i) : -1;
    }
    if (index < 0)
        return -1;
    int64_t slot;
    if (loc.base) {
        slot = (int64_t)k.at + index;
    } else {
        const int32_t i = index / loc.block_rows;
        if (i >= k.n_table)
            return -1;
        const int32_t block = __ldcg(loc.table + (size_t)k.at + (size_t)i);
        slot = block < 0 ? -1 : (int64_t)block * loc.block_rows + (index - i * loc.block_rows);
    }
    return slot < 0 || slot >= loc.n_slots ? -1 : (int32_t)slot;
}

/* Lanes i and i + 16: the slot of key i of the walk's tile, -1 past its end. */
DEV int32_t find_slots(const ls_locator &loc, const walk &k, int tile) {
    const int32_t j = k.k0 + tile * k.stride + (int32_t)(threadIdx.x & 15u);
    return tile < k.n_tiles && j < k.k1 ? slot_of(loc, k, j) : -1;
}

#endif
