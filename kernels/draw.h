/* draw.h - what a random number is keyed by: never a stream, so whoever asks draws the same.
 * Generator  Philox4x32-10 (Salmon et al., SC'11; Random123). Key: the 64-bit seed. Counter:
 *            (token / 4, position, sequence, purpose << 24 | salt); word token % 4 of the result.
 * Position   absolute index of the token that is drawn: the prompt's first token is position 0.
 * Salt       0 except for LS_DRAW_DRAFT: there the position at which the round began. A draft under
 *            the rejection rule must not reuse the noise of an earlier round's discarded draft: an
 *            adaptive length policy has seen its effect, and could bias the output through it. */
#ifndef LS_DRAW_H
#define LS_DRAW_H

#include "backend.h"

typedef enum ls_purpose {
    LS_DRAW_TOKEN = 0,    /* plain sampling; the coupled rule's draft draws with it too */
    LS_DRAW_DRAFT = 1,    /* a draft token under a rule that needs an independent draft */
    LS_DRAW_ACCEPT = 2,   /* the uniform of an acceptance test: token 0's word */
    LS_DRAW_RESIDUAL = 3, /* the token drawn after a rejection */
    LS_DRAW_POLICY = 4,   /* a script's own numbers (ctx.rng) */
    LS_DRAW_TEST = 5
} ls_purpose;

#ifdef __cplusplus
extern "C" {
#endif
ls_draw ls_draw_key(uint64_t seed, uint32_t sequence, uint32_t position, ls_purpose purpose,
                    uint32_t salt);
/* The word for `token`, and as a float in (0, 1): (word >> 9 + 0.5) * 2^-23, never 0 or 1. */
uint32_t ls_draw_word(const ls_draw *d, uint32_t token);
float ls_draw_uniform(const ls_draw *d, uint32_t token);
#ifdef __cplusplus
}
#endif

#endif
