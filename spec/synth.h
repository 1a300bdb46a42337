/* synth.h - model folders with random weights, for measuring speed at shapes nobody ships.
 * Weights     bf16, normal with variance 1 / n_in, so that activations keep their size through the
 *             layers; norms are 1; the embedding is the head, as in the models the shapes are from.
 * Tokenizer   one token a byte, so that such a folder also works with generate; ids past 255 have
 *             no text.
 * Random      a function of the seed and the shape: the same bytes on every machine.
 * Errors      LS_ERR_INPUT when the folder exists, LS_ERR_IO from the system, LS_ERR_STOPPED; what
 *             was written is removed again.
 * Memory      a megabyte, whatever the model's size. */
#ifndef LS_SYNTH_H
#define LS_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct ls_shape {
    const char *name;
    int32_t dim, ffn, n_layers, n_heads, n_kv, head_dim, n_vocab, n_pos;
    double rope_theta, rms_eps;
} ls_shape;

#define LS_SHAPE_NAMES "tiny|smollm2-135m|llama-3.2-1b"

/* By place in LS_SHAPE_NAMES. */
const ls_shape *ls_shape_at(int i);
/* Bytes of the weights file without its header. */
int64_t ls_shape_bytes(const ls_shape *s);

/* Makes the folder `dir`. progress (bytes written) and stop may be NULL. */
ls_status ls_synth_write(const ls_shape *shape, uint64_t seed, const char *dir,
                         void (*progress)(void *self, int64_t done, int64_t total),
                         bool (*stop)(void *self), void *self, ls_err *err);
/* Removes the files ls_synth_write makes, and the folder if nothing else is in it. */
void ls_synth_remove(const char *dir);

#endif
