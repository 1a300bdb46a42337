/* rope.h - the angles of the rotary embedding: frequencies of a model, and their tables.
 * Frequency  of pair i of a head of width E, in radians a position: theta^(-2i/E), then scaled.
 *   PLAIN    as it is
 *   LINEAR   divided by `factor`: positions are squeezed together
 *   LLAMA3   by wavelength w = 2 pi / frequency: above original / low divided by `factor`; below
 *            original / high as it is; between, ((1 - s) / factor + s) times it, with
 *            s = (original / w - low) / (high - low)
 *   YARN     ((1 - r_i) + r_i / factor) times it, r_i rising from 0 to 1 between the pairs that
 *            turn beta_fast and beta_slow times in `original` positions, on whole pairs with
 *            `truncate`; cosines and sines are multiplied by `attention`
 *   DYNAMIC  as it is: up to the original context nothing is scaled. Past it every angle of a text
 *            would change with the text's length, the cached ones too: no function of a row
 *            (engine.c refuses)
 *   TABLE    divided by table[i]
 * Source     rope_scaling of Hugging Face config.json (Llama 3.1 for LLAMA3); rope_freqs.weight of
 *            GGUF for TABLE.
 * Numerics   all in double; a table entry is rounded to float once.
 * Threads    pure functions. */
#ifndef LS_ROPE_H
#define LS_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#include "shape.h"

typedef enum ls_rope_kind {
    LS_ROPE_PLAIN = 0,
    LS_ROPE_LINEAR,
    LS_ROPE_LLAMA3,
    LS_ROPE_YARN,
    LS_ROPE_DYNAMIC,
    LS_ROPE_TABLE
} ls_rope_kind;

typedef struct ls_rope_scaling {
    ls_rope_kind kind;
    double factor;    /* LINEAR, LLAMA3, YARN, DYNAMIC: >= 1 */
    double low, high; /* LLAMA3: low_freq_factor < high_freq_factor, both above 0 */
    double original;  /* LLAMA3, YARN: original_max_position_embeddings, positions, >= 1 */
    double beta_fast, beta_slow, attention; /* YARN: above 0 */
    bool truncate;                          /* YARN */
    float table[LS_HEAD_DIM_MAX / 2];       /* TABLE: above 0, of each pair */
} ls_rope_scaling;

#ifdef __cplusplus
extern "C" {
#endif
const char *ls_rope_kind_name(ls_rope_kind kind); /* as config.json has it: "default", "linear" */
double ls_rope_frequency(double theta, const ls_rope_scaling *scaling, int32_t pair,
                         int32_t head_dim);
/* What yarn multiplies cosines and sines by where a file does not say: 0.1 mscale ln(factor) + 1,
 * over the same of mscale_all_dim where both are given (not 0). */
double ls_rope_attention(double factor, double mscale, double mscale_all_dim);
/* cosine, sine: [n_pos, head_dim / 2] of position times frequency */
void ls_rope_tables(double theta, const ls_rope_scaling *scaling, int32_t head_dim, int32_t n_pos,
                    float *cosine, float *sine);
#ifdef __cplusplus
}
#endif

#endif
