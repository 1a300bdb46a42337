/* config.h - config.json and generation_config.json as checked numbers.
 * Families  by model_type, with the architecture of its causal language model:
 *             llama    LlamaForCausalLM; Llama 2 and 3, TinyLlama, SmolLM2
 *             mistral  MistralForCausalLM; sliding_window has to be stated (absent means 4096)
 *             qwen2    Qwen2ForCausalLM; Qwen2 and 2.5: biases of q, k, v
 *             qwen3    Qwen3ForCausalLM: a norm of each query and key head
 *             gemma3_text  Gemma3ForCausalLM: four norms a layer, scaled embeddings, GELU,
 *                          local and global layers with a base of rotation each
 *             gemma3   Gemma3ForConditionalGeneration: the same in text_config; what it has for
 *                      images is left aside
 *           Mistral and Qwen have to state the sizes whose defaults differ between families; of
 *           Gemma, whose published files leave them out, an absent field means what transformers
 *           takes for it.
 * Rotation  rope_scaling or rope_parameters of type default, linear, llama3, yarn or dynamic
 *           (rope.h). Yarn makes the text as long as factor times the original context. In Gemma
 *           they are of the global layers; rope_local_base_freq, or sliding_attention in
 *           rope_parameters, of the others.
 * Window    a row of a local layer sees its last `window` keys. Which layers are local: in mistral
 *           all; in qwen2 and qwen3, where use_sliding_window is true, those from max_window_layers
 *           on; in gemma3 all but every sliding_window_pattern-th; or what layer_types says. A
 *           window as long as the context leaves no key out and is none. In llama a declared one is
 *           refused.
 * Refused   by name: every field that would change arithmetic and is not built (other activation,
 *           other biases, other rope scaling, quantisation, tensor-parallel slices, partial
 *           rotation, soft caps, experts, attention to later tokens).
 * Bounds    every size is in the range below, so that products of two fit in 64 bits and a forged
 *           file cannot ask for absurd memory.
 * End ids   the union of config.json and generation_config.json, ascending; each below n_vocab.
 *           May be empty: then only the length limit ends a text.
 * Errors    LS_ERR_INPUT with file, field and reason; LS_ERR_IO.
 * Threads   plain values. */
#ifndef LS_CONFIG_H
#define LS_CONFIG_H

#include <stdbool.h>

#include "rope.h"
#include "shape.h"
#include "status.h"

#define LS_EOS_MAX 32
#define LS_LAYERS_MAX 1024

typedef struct ls_config {
    char family[16];   /* model_type: "llama", "mistral", "qwen2", "qwen3", "gemma3" */
    int32_t dim;       /* D  1..131072 */
    int32_t ffn;       /* F  1..1048576 */
    int32_t n_layers;  /*    1..1024 */
    int32_t n_heads;   /* H  1..1024 */
    int32_t n_kv;      /* G  divides H */
    int32_t head_dim;  /* E  even, 2..LS_HEAD_DIM_MAX; the file's, else D / H */
    int32_t n_vocab;   /* V  1..4194304, rows of the embedding (a tokenizer may have fewer) */
    int32_t n_pos;     /*    1..16777216, longest text the model was made for */
    float rms_eps;     /* > 0 */
    double rope_theta; /* >= 1 */
    ls_rope_scaling rope;
    double rope_theta_local; /* base of local layers, unscaled; 0: they rotate as the others */
    int32_t window;          /* keys a row of a local layer sees; 0: all */
    bool local[LS_LAYERS_MAX];
    double query_scalar; /* > 0: scores are divided by its root; E but in Gemma */
    bool qkv_bias;       /* the query, key and value projections have a bias (Qwen2) */
    bool qk_norm;        /* each query and key head is normed before the rotation (Qwen3, Gemma) */
    bool post_norms;     /* norms behind attention and feed-forward as well (Gemma) */
    bool norm_offset;    /* norm weights are stored less one (folders of Gemma) */
    bool embed_scaled;   /* embeddings are multiplied by the root of D (Gemma) */
    bool gelu;           /* the feed-forward is gated by GELU, not by SiLU (Gemma) */
    bool nested;         /* tensors lie beside those of other models (gemma3 with text_config) */
    bool tied;           /* tie_word_embeddings */
    int32_t bos;         /* -1: none */
    int32_t n_eos;
    int32_t eos[LS_EOS_MAX];
    char dtype[16]; /* declared torch_dtype or dtype, "" when absent; the tensors' own type decides
                     */
} ls_config;

#ifdef __cplusplus
extern "C" {
#endif
/* dir/config.json, and dir/generation_config.json when it is there. */
ls_status ls_config_read(const char *dir, ls_config *out, ls_err *err);
/* The files by name; generation may be NULL. */
ls_status ls_config_read_files(const char *config, const char *generation, ls_config *out,
                               ls_err *err);
bool ls_config_is_eos(const ls_config *cfg, int32_t token);
/* For readers: yarn's longer context; a window that leaves nothing out becomes none. */
void ls_config_lengthen(ls_config *cfg);
void ls_config_settle(ls_config *cfg);
#ifdef __cplusplus
}
#endif

#endif
