/* gguf_tokenizer.h - the tokenizer in a GGUF file, as a BPE of tokenizer.h.
 * Built     tokenizer.ggml.model "gpt2" with tokenizer.ggml.pre gpt-2 (or gpt2), llama-bpe, qwen2
 *           or smollm: each stands for the chain that the model's tokenizer.json has; default: for
 *           llama.cpp's own. Model "llama": SentencePiece, merged by tokenizer.ggml.scores (two
 *           neighbours whose joint spelling is a normal token, highest score first, leftmost among
 *           equals), with byte tokens for characters that have none. Any other gives no tokenizer,
 *           which is no error: the model runs on ids.
 * Tokens    normal and byte ones are the vocabulary; control (and unknown) ones are added and
 *           special; user-defined ones are added; unused ones are gaps. What a tokenizer.json can
 *           say beside that (lstrip, rstrip, single_word, normalized) the format does not keep:
 *           taken as off.
 * Spaces    "llama": a text, and what follows an added token, begins with one unless
 *           tokenizer.ggml.add_space_prefix is false; decoding leaves out the first.
 * BOS, EOS  around a text when tokenizer.ggml.add_bos_token and add_eos_token say so; without the
 *           keys, BOS for llama-bpe and "llama".
 * Errors    LS_ERR_INPUT with file and key for lists that are missing or of the wrong type, and
 *           what tokenizer.h refuses.
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
/* LS_ERR_INPUT: which tokenizer the file has, when none was built. */
ls_status ls_gguf_tokenizer_refuse(const ls_gguf *g, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
