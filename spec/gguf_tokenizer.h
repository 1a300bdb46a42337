/* gguf_tokenizer.h - the tokenizer in a GGUF file, as the byte-level BPE of tokenizer.h.
 * Built     tokenizer.ggml.model "gpt2" with tokenizer.ggml.pre gpt-2 (or gpt2), llama-bpe, qwen2 or
 *           smollm: each stands for the chain that the model's tokenizer.json has. Any other gives
 *           no tokenizer, which is no error: ids still decode.
 * Tokens    normal ones are the vocabulary; control (and unknown) ones are added and special;
 *           user-defined ones are added; unused ones are gaps. What a tokenizer.json can say beside
 *           that (lstrip, rstrip, single_word, normalized) the format does not keep: taken as off.
 * BOS       before a text when tokenizer.ggml.add_bos_token says so; without that key, for llama-bpe.
 * Errors    LS_ERR_INPUT with file and key for lists that are missing or of the wrong type, and what
 *           tokenizer.h refuses.
 * Memory    the tokenizer is the caller's; it borrows nothing from the file. */
#ifndef LS_GGUF_TOKENIZER_H
#define LS_GGUF_TOKENIZER_H

#include "gguf.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
/* *out is NULL when the file has no tokenizer that is built. options may be NULL. */
ls_status ls_gguf_tokenizer_open(const ls_gguf *g, const ls_tokenizer_options *options,
                                 ls_tokenizer **out, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
