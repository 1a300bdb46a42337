/* generate.h - prompt in, tokens out: rounds of draft, verify, accept, commit.
 * Round       the last committed token is not yet in the cache. Draft g tokens, verify g + 1 rows
 *             in one pass, judge them in order, commit, rewind both caches to the committed length.
 * End         the first of: an end-of-text token (emitted), a stop string (its token emitted, the
 *             text cut before it), max_new, the context. A stop wins a tie with the limit. Tokens
 *             after the end are neither emitted, counted nor cached.
 * Cache       when `done` is called it holds prompt + new - 1 rows, whatever was drafted.
 * Randomness  a function of (seed, sequence, position, purpose): see draw.h.
 * Errors      an empty prompt or one longer than the context, and a draft model on another device
 *             than the target: LS_ERR_INPUT. A prompt that fills the context gives no tokens and
 *             LS_END_LENGTH. NaN or +inf in a row that is used: LS_ERR_NUMERIC; in a row that is
 *             not used it is counted only. After an error the transcript holds the committed
 *             rounds so far, a prefix of the right text. */
#ifndef LS_GENERATE_H
#define LS_GENERATE_H

#include "drafter.h"
#include "policy.h"
#include "rule.h"
#include "tokenizer.h"

typedef enum ls_end { LS_END_NONE = 0, LS_END_STOP, LS_END_LENGTH, LS_END_ERROR } ls_end;
static inline const char *ls_end_name(ls_end e) {
    return e == LS_END_STOP     ? "stop"
           : e == LS_END_LENGTH ? "length"
           : e == LS_END_ERROR  ? "error"
                                : "none";
}

/* Everything optional; called in commit order. */
typedef struct ls_gen_hooks {
    void *self;
    /* A token was committed at `position`. row: the target's logits that chose it, [V] host memory,
     * given only when want_logits is set. index: its place in its round; drafted: it was
     * accepted. */
    void (*token)(void *self, int32_t position, int32_t token, int32_t index, bool drafted,
                  const float *row, int32_t n_vocab);
    bool want_logits;
    /* A round ended: its drafts (proposed of them) with the drafter's statistics (NULL = none). */
    void (*round)(void *self, const ls_round *round, const int32_t *draft,
                  const ls_row_stats *stats);
    /* Before the sequence is closed: the cache may be read. */
    ls_status (*done)(void *self, ls_engine *target, int32_t seq, ls_err *err);
    /* Asked between rounds; true ends the run with LS_ERR_STOPPED. */
    bool (*stop)(void *self);
} ls_gen_hooks;

typedef struct ls_gen {
    ls_engine *target;
    ls_drafter *drafter; /* NULL: plain decode */
    ls_policy *policy;   /* NULL: draft nothing */
    ls_rule *rule;       /* NULL: exact */
    const int32_t *prompt;
    int32_t n_prompt;
    int32_t max_new; /* <= 0: up to the context */
    ls_warp warp;    /* temperature 0 = greedy */
    uint64_t seed;
    uint32_t sequence;
    const int32_t *eos; /* NULL with n_eos 0: the model's set; ignore_eos: none */
    int32_t n_eos;
    bool ignore_eos;
    const char *const *stop; /* stop strings, UTF-8 */
    int32_t n_stop;
    const ls_tokenizer *tokenizer; /* needed for stop strings only */
    ls_gen_hooks hooks;
} ls_gen;

typedef struct ls_transcript {
    int32_t *token; /* new tokens */
    int32_t n_token;
    ls_round *round;
    int32_t n_round;
    ls_end end;
    int32_t n_text_cut;   /* bytes to cut from the decoded text's end: the stop string and after */
    int32_t n_clamped;    /* plans that did not fit */
    int32_t n_bad_unused; /* rows with NaN or +inf that were not used */
    double prefill_us, total_us;
    char digest[65]; /* SHA-256 over (prompt, new tokens) as little-endian int32 */
} ls_transcript;

/* Fills the transcript (zero it first; free it with ls_transcript_free, also after an error). */
ls_status ls_generate(const ls_gen *gen, ls_transcript *out, ls_err *err);
void ls_transcript_free(ls_transcript *t);

#endif
