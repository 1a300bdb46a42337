/* synth.h - model folders with random weights, for measuring speed at shapes nobody ships, and
 * pairs whose draft agrees with its target as often as is wanted.
 * Weights     bf16, normal of mean 0; norms are 1. Variances, so that nothing degenerates:
 *               q_proj           9 / n_in   scores of standard deviation 3: few keys matter
 *               o_proj, down     4 / n_in   layers outweigh the token they began with
 *               other linears    1 / n_in   activations keep their size
 *               embedding, head  ln(V) / D  logits of variance ln(V): entropy near ln(V) / 2
 * Head        the embedding where the real model's is (all but llama-3-8b).
 * Pair        the draft is the target's embedding, first N layers and head, bit for bit. The later
 *             layers of the target write into the residual stream scaled by S sqrt(N / (L - N)):
 *             all of them together add S times what the first N added. S = 0: every draft agrees.
 *             The hidden states of the two have a cosine near 1 / sqrt(1 + S^2) whatever the shape.
 * Tokenizer   one token a byte, ids from 256 on are words of their own number: such a folder works
 *             with generate, check and run at its full vocabulary.
 * Random      a tensor is a function of the seed, its name and its shape: the same bytes on every
 *             machine, for any number of threads.
 * Errors      LS_ERR_INPUT when the folder exists or a pair has no later layers, LS_ERR_IO from the
 *             system, LS_ERR_STOPPED; what was written is removed again.
 * Memory      two megabytes a thread.
 * Threads     progress and stop are called on the caller's thread. */
#ifndef LS_SYNTH_H
#define LS_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct ls_shape {
    const char *name;
    int32_t dim, ffn, n_layers, n_heads, n_kv, head_dim, n_vocab, n_pos;
    double rope_theta, rms_eps;
    bool tied; /* the embedding is the head */
} ls_shape;

#define LS_SHAPE_NAMES "tiny|smollm2-135m|llama-3.2-1b|llama-3-8b"

/* By place in LS_SHAPE_NAMES. */
const ls_shape *ls_shape_at(int i);
/* Bytes of the weights file without its header. */
int64_t ls_shape_bytes(const ls_shape *s);

typedef struct ls_synth_options {
    uint64_t seed;
    int32_t draft_layers; /* 0: one model. Else a pair in dir/target and dir/draft */
    double divergence;    /* S of a pair, >= 0 */
    int32_t n_threads;    /* 0 = OpenMP's default */
    void *self;           /* of the callbacks, which may be NULL */
    void (*progress)(void *self, int64_t done, int64_t total); /* bytes written */
    bool (*stop)(void *self);
} ls_synth_options;

/* Makes the folder `dir`. */
ls_status ls_synth_write(const ls_shape *shape, const ls_synth_options *options, const char *dir,
                         ls_err *err);
/* Removes the files ls_synth_write makes, and each folder if nothing else is in it. */
void ls_synth_remove(const char *dir);

#endif
