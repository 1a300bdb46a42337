/* tokenizer_rig.h - tokenizers of the carried cases and fixtures, and what tests ask of them.
 * Errors      whatever fails here fails the test. */
#ifndef LS_TEST_TOKENIZER_RIG_H
#define LS_TEST_TOKENIZER_RIG_H

#include "cases.h"

#include <jansson.h>

#include "tokenizer.h"

/* tests/REST, REST from a format; destroy it. */
ls_tokenizer *ls_rig_tokenizer(bool partial_bytes, const char *fmt, ...) LS_PRINTF(2, 3);
json_t *ls_rig_json(const char *rest);

/* The ids of text have to be these. */
void ls_expect_ids(const ls_tokenizer *tok, const char *text, size_t n_text, unsigned flags,
                   const int32_t *want, size_t n);
void ls_expect_json_ids(const ls_tokenizer *tok, const char *text, size_t n_text, unsigned flags,
                        const json_t *want);
#define EXPECT(tok, text, flags, ...)                                       \
    ls_expect_ids(tok, text, strlen(text), flags, (int32_t[]){__VA_ARGS__}, \
                  sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

#endif
