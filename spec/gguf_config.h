/* gguf_config.h - the metadata of a GGUF file as the numbers of a config.
 * Family    general.architecture llama, qwen2, qwen3 or gemma3. Every key of it (llama.*) is either
 *           read, of no effect, at the one value that has none, or refused by name: a key left out
 *           would be arithmetic left out. So are a model in parts (split.count), an adapter and an
 *           old form of quantised blocks.
 * Rotation  rope.scaling.* of type none, linear and yarn, or rope_freqs.weight, a table of factors
 *           (Llama 3.1). In gemma3 they are of the global layers; rope.freq_base_swa is the others'
 *           base.
 * Window    llama: every layer's. gemma3: attention.sliding_window_pattern, 6 where it is absent.
 *           In qwen2 and qwen3 one shorter than the context is refused: no key says which layers
 *           have it.
 * Norms     of gemma3 are stored with the one added, unlike a folder's.
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
