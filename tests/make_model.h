/* make_model.h - writes a random-weight Llama folder for tests: config.json, model.safetensors,
 * tokenizer.json. Shares no code with the loaders, so that a fault in one shows.
 * Weights    a function of (seed, tensor, element); scaled so that greedy text is varied.
 * Tokenizer  byte b is id b, then LS_TEST_MERGES merges of frequent pairs (ids 256..), then "<s>"
 *            and "</s>" as the last two ids (bos, eos); ids up to n_vocab beyond are padding.
 * Errors     anything that fails aborts the test with a message: there is nothing to recover. */
#ifndef LS_TEST_MAKE_MODEL_H
#define LS_TEST_MAKE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "shape.h"

#define LS_TEST_MERGES 8
#define LS_TEST_TOKENS (256 + LS_TEST_MERGES + 2) /* tokens the tokenizer has */
#define LS_TEST_BOS (LS_TEST_TOKENS - 2)
#define LS_TEST_EOS (LS_TEST_TOKENS - 1)

typedef struct ls_test_shape {
    int32_t dim, ffn, n_layers, n_heads, n_kv, head_dim;
    int32_t n_vocab; /* >= LS_TEST_TOKENS: rows beyond are padding */
    int32_t n_pos;
    ls_dtype dtype;
    bool tied;
    bool no_eos;      /* leave the end id out of config.json: text runs to the limit */
    bool small_vocab; /* no tokenizer.json; n_vocab may be any size >= 1, no bos or eos */
    uint64_t seed;
} ls_test_shape;

/* 2 layers, hidden 96, ffn 160, 4 heads over 2 of 24, LS_TEST_TOKENS rows, 512 positions, f32. */
ls_test_shape ls_test_shape_default(void);

/* Makes a new folder under TMPDIR or /tmp and fills it; returns its path (free by remove). */
char *ls_test_model_make(const ls_test_shape *shape);
/* Deletes the folder and its files and frees the path; NULL is allowed. */
void ls_test_model_remove(char *dir);

#endif
