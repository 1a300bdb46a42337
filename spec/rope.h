/* rope.h - the angles of the rotary embedding: frequencies of a model, and their tables.
 * Frequency  of pair i of a head of width E, in radians a position: theta^(-2i/E), then scaled.
 *   PLAIN    as it is
 *   LINEAR   divided by `factor`: positions are squeezed together
 *   LLAMA3   by wavelength w = 2 pi / frequency: above original / low divided by `factor`; below
 *            original / high as it is; between, ((1 - s) / factor + s) times it, with
 *            s = (original / w - low) / (high - low)
 * Source     rope_scaling of Hugging Face config.json (Llama 3.1 for LLAMA3).
 * Numerics   all in double; a table entry is rounded to float once.
 * Threads    pure functions. */
#ifndef LS_ROPE_H
#define LS_ROPE_H

#include <stdint.h>

typedef enum ls_rope_kind { LS_ROPE_PLAIN = 0, LS_ROPE_LINEAR, LS_ROPE_LLAMA3 } ls_rope_kind;

typedef struct ls_rope_scaling {
    ls_rope_kind kind;
    double factor;    /* LINEAR, LLAMA3: >= 1 */
    double low, high; /* LLAMA3: low_freq_factor < high_freq_factor, both above 0 */
    double original;  /* LLAMA3: original_max_position_embeddings, positions, >= 1 */
} ls_rope_scaling;

#ifdef __cplusplus
extern "C" {
#endif
const char *ls_rope_kind_name(ls_rope_kind kind); /* as config.json has it: "default", "linear" */
double ls_rope_frequency(double theta, const ls_rope_scaling *scaling, int32_t pair,
                         int32_t head_dim);
/* cosine, sine: [n_pos, head_dim / 2] of position times frequency */
void ls_rope_tables(double theta, const ls_rope_scaling *scaling, int32_t head_dim, int32_t n_pos,
                    float *cosine, float *sine);
#ifdef __cplusplus
}
#endif

#endif
