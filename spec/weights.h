/* weights.h - the tensors of a checkpoint, found by name, every shape and type checked.
 * Names     model.embed_tokens.weight [V, D], model.norm.weight [D], lm_head.weight [V, D]; under
 *           model.layers.N. input_layernorm and post_attention_layernorm [D],
 *           self_attn.{q,k,v,o}_proj [H*E, D] [G*E, D] [G*E, D] [D, H*E],
 *           mlp.{gate,up,down}_proj [F, D] [F, D] [D, F]; where config.h says so
 *           self_attn.{q,k,v}_proj.bias [H*E] [G*E] [G*E], self_attn.{q,k}_norm [E], and with norms
 *           behind the blocks too post_attention_layernorm is the one behind attention,
 *           {pre,post}_feedforward_layernorm [D] those around the feed-forward. In a folder with
 *           text_config, language_model.model. or model.language_model. stands for model., and the
 *           image model's tensors are skipped, as are old rotary_emb.inv_freq tables; any other
 *           tensor is refused by name (it would be arithmetic left out).
 * Offset    norms stored less one come out as F32 with the one added, rounded once.
 * Types     F32, BF16, F16, each tensor its own; matrices of a GGUF file also Q8_0 and Q4_K.
 * Head      tied and absent: the embedding. Tied and present: equal bytes are fine, others
 *           refused. Untied and absent: refused. ls_head_rule decides where a person knows better.
 * Memory    pointers borrow the checkpoint's mapping, which has to outlive this; tensors whose
 *           bytes are not aligned to their type, and norms with the one added, are copied into
 *           memory owned here.
 * Threads   read-only after bind. */
#ifndef LS_WEIGHTS_H
#define LS_WEIGHTS_H

#include "backend.h"
#include "checkpoint.h"
#include "config.h"

typedef enum ls_head_rule {
    LS_HEAD_DECLARED = 0, /* as the flag says; refuse a contradiction */
    LS_HEAD_TIE,          /* the embedding, whatever the file holds */
    LS_HEAD_FILE          /* lm_head.weight, whatever the flag says */
} ls_head_rule;

typedef struct ls_vec { /* [n] */
    const void *data;
    ls_dtype dtype;
    int32_t n;
} ls_vec;

typedef struct ls_layer_weights {
    ls_vec attn_norm, ffn_norm;    /* [D] */
    ls_vec attn_post, ffn_post;    /* [D]; data NULL without post_norms */
    ls_vec q_bias, k_bias, v_bias; /* [H*E] [G*E] [G*E]; data NULL without qkv_bias */
    ls_vec q_norm, k_norm;         /* [E] each; data NULL without qk_norm */
    ls_mat q, k, v, o;             /* [H*E, D] [G*E, D] [G*E, D] [D, H*E] */
    ls_mat gate, up, down;         /* [F, D] [F, D] [D, F] */
} ls_layer_weights;

typedef struct ls_weights {
    ls_mat embed;            /* [V, D] */
    ls_vec norm;             /* [D] */
    ls_mat head;             /* [V, D]; head.data == embed.data when the embedding is the head */
    ls_layer_weights *layer; /* [n_layers] */
    int32_t n_layers;
    uint64_t n_params; /* numbers in distinct tensors */
    size_t bytes;      /* of the distinct tensors */
    void **copied;     /* aligned copies, owned */
    int32_t n_copied;
} ls_weights;

#ifdef __cplusplus
extern "C" {
#endif
ls_status ls_weights_bind(const ls_checkpoint *cp, const ls_config *cfg, ls_head_rule head,
                          ls_weights **out, ls_err *err);
void ls_weights_destroy(ls_weights *w);
#ifdef __cplusplus
}
#endif

#endif
