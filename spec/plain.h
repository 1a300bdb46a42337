/* plain.h - plain decode: the reference every promise is measured against.
 * Loop        its own few lines: one row a pass, the row's own token; no rounds, no drafter, no
 *             policy, and its own search for stop strings (the whole text, each time).
 * Keeps       tokens, and one SHA-256 per position of the logits row and of the cache row.
 * Errors      as ls_generate.
 * Memory      68 bytes a position. */
#ifndef LS_PLAIN_H
#define LS_PLAIN_H

#include "generate.h"
#include "sha256.h"

typedef struct ls_plain {
    int32_t *token; /* new tokens */
    int32_t n_token, n_prompt;
    ls_end end;
    unsigned char (*logits)[LS_SHA256_RAW]; /* [n_token] digest of the row that chose each token */
    unsigned char (
        *cache)[LS_SHA256_RAW]; /* [n_row] digest of each cache row, all layers, k and v */
    int32_t n_row;              /* prompt + new - 1 */
    float *margin;              /* [n_token] largest minus second largest logit */
    double prefill_us, decode_us;
} ls_plain;

/* Decodes gen's prompt under its warp, seed and end conditions (drafter, policy, rule and hooks but
 * `stop` are not looked at) on `engine`, which may be gen->target. */
ls_status ls_plain_run(const ls_gen *gen, ls_engine *engine, ls_plain **out, ls_err *err);
void ls_plain_destroy(ls_plain *p);

/* Runs plain decode again up to the row that chooses the token at absolute `position`, that one
 * pass under `trace`. */
ls_status ls_plain_trace(const ls_gen *gen, ls_engine *engine, const ls_plain *plain,
                         int32_t position, const ls_trace *trace, ls_err *err);

/* SHA-256 of one cache row: for each layer, k then v, as stored. *n_value: how many values that
 * is. */
ls_status ls_cache_row_digest(ls_engine *engine, int32_t seq, int32_t index, ls_sha256 *h,
                              unsigned char out[LS_SHA256_RAW], int64_t *n_value, ls_err *err);

#endif
