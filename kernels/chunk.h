/* chunk.h - the chunk rules of split attention (N-ATTN), for host and device: what backend.h's
 * ls_chunk_len and its companions compute. A row's chunks follow from its own length alone. */
#ifndef LS_CHUNK_H
#define LS_CHUNK_H

#include "backend.h"

/* Longest chunk `doubling` reaches: min doubled while it stays within LS_CHUNK_MAX. */
LS_SHARED_FN int32_t ls_chunk_top(int32_t min_keys) {
    int32_t chunk = min_keys;
    while (chunk <= LS_CHUNK_MAX / 2)
        chunk *= 2;
    return chunk;
}

LS_SHARED_FN int32_t ls_chunk_pieces(int32_t length, int32_t chunk) {
    return length / chunk + (length % chunk != 0);
}

LS_SHARED_FN int32_t ls_chunk_len_of(ls_chunk_rule rule, int32_t length) {
    if (length <= 0)
        return 0;
    int32_t chunk = ls_chunk_pieces(length, rule.max_chunks);
    if (rule.kind == LS_CHUNK_SPLITS)
        return chunk;
    if (rule.kind == LS_CHUNK_DOUBLING) {
        chunk = rule.min_keys;
        while (chunk <= LS_CHUNK_MAX / 2 && ls_chunk_pieces(length, chunk) > rule.max_chunks)
            chunk *= 2;
        return chunk;
    }
    chunk = chunk < rule.min_keys ? rule.min_keys : chunk;
    return chunk > LS_CHUNK_MAX ? LS_CHUNK_MAX : chunk;
}

/* Keys that a row of `length` attends to: the last ones of its list. */
LS_SHARED_FN int32_t ls_window_len(int32_t window, int32_t length) {
    return window > 0 && length > window ? window : length;
}

LS_SHARED_FN int32_t ls_chunk_count_of(ls_chunk_rule rule, int32_t length) {
    return length <= 0 ? 0 : ls_chunk_pieces(length, ls_chunk_len_of(rule, length));
}

#endif
