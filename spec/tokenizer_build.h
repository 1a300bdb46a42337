/* tokenizer_build.h - a tokenizer from a tree that is already read (gguf_tokenizer.c makes one).
 * Tree      that of a tokenizer.json; tokenizer.h says what may be in it.
 * Scores    NULL: the tree's merges. Else one for every id of the vocabulary, as SentencePiece has
 *           them: two neighbours merge when what they spell together is a token of the vocabulary,
 *           the highest score first, and the leftmost among equals; merges are not read.
 * Memory    the tokenizer borrows nothing. */
#ifndef LS_TOKENIZER_BUILD_H
#define LS_TOKENIZER_BUILD_H

#include "json.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
ls_status ls_tokenizer_build(const ls_json *doc, const float *score,
                             const ls_tokenizer_options *options, ls_tokenizer **out, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
