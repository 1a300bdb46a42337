#include "chunk.h"

int32_t ls_chunk_len(ls_chunk_rule rule, int32_t length) {
    return ls_chunk_len_of(rule, length);
}

int32_t ls_chunk_count(ls_chunk_rule rule, int32_t length) {
    return ls_chunk_count_of(rule, length);
}

/* Not the count at capacity: under `doubling` a shorter row can have more chunks. */
int32_t ls_chunk_bound(ls_chunk_rule rule, int32_t capacity) {
    if (capacity <= 0)
        return 0;
    if (rule.kind == LS_CHUNK_SPLITS)
        return capacity < rule.max_chunks ? capacity : rule.max_chunks;
    const int32_t longest =
        rule.kind == LS_CHUNK_DOUBLING ? ls_chunk_top(rule.min_keys) : LS_CHUNK_MAX;
    const int32_t short_rows = ls_chunk_pieces(capacity, rule.min_keys);
    const int32_t long_rows = ls_chunk_pieces(capacity, longest);
    const int32_t few = short_rows < rule.max_chunks ? short_rows : rule.max_chunks;
    return few > long_rows ? few : long_rows;
}

ls_status ls_chunk_check(ls_chunk_rule rule, ls_err *err) {
    if (rule.kind != LS_CHUNK_EVEN && rule.kind != LS_CHUNK_SPLITS &&
        rule.kind != LS_CHUNK_DOUBLING)
        return ls_fail(err, LS_ERR_INPUT, "chunk rule %d is unknown: use even, splits or doubling",
                       (int)rule.kind);
    if (rule.max_chunks < 1 || rule.max_chunks > LS_CHUNKS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "chunk rule: %d chunks, must be 1 to %d",
                       (int)rule.max_chunks, LS_CHUNKS_MAX);
    if (rule.kind != LS_CHUNK_SPLITS && (rule.min_keys < 1 || rule.min_keys > LS_CHUNK_MAX))
        return ls_fail(err, LS_ERR_INPUT, "chunk rule: at least %d keys a chunk, must be 1 to %d",
                       (int)rule.min_keys, LS_CHUNK_MAX);
    return LS_OK;
}
