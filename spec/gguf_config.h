/* gguf_config.h - the metadata of a GGUF file as the numbers of a config.
 * Family    general.architecture "llama". Every llama.* key is either read, of no effect, at the one
 *           value that has none, or refused by name: a key left out would be arithmetic left out.
 *           So are a model in parts (split.count), an adapter and an old form of quantised blocks.
 * Bounds    those of config.h.
 * Head      tied when the file holds no output.weight.
 * Ids       bos, and the end ids eos, eot and eom of tokenizer.ggml.
 * Errors    LS_ERR_INPUT with file, key, reason and how to mend.
 * Threads   plain values. */
#ifndef LS_GGUF_CONFIG_H
#define LS_GGUF_CONFIG_H

#include "config.h"
#include "gguf.h"

#ifdef __cplusplus
extern "C" {
#endif
ls_status ls_gguf_config_read(const ls_gguf *g, ls_config *out, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
