/* gguf_view.h - the tensors of a GGUF file as a Hugging Face folder would hold them.
 * Names     token_embd, output_norm, output; under blk.N. attn_norm, attn_{q,k,v,output}, ffn_norm,
 *           ffn_{gate,up,down}, and where the family has them attn_{q,k}_norm, post_attention_norm
 *           and post_ffw_norm, each with .weight; attn_{q,k,v}.bias. They come out under the names
 *           of weights.h. One that is missing, has another shape, or has no place in the model is
 *           refused by name.
 * Rotation  llama files hold the rows of q and k of each head in pairs (2i, 2i + 1), rotated
 *           together; here a pair is (i, i + E/2), so these rows are put back in that order.
 * Types     F32, F16 and BF16 stay as they are, and so do matrices of Q8_0 and Q4_K (packed.h)
 *           unless all is to be widened; the other block types of quant.h come out as F32.
 * Memory    what is neither widened nor put in order stays in the file's mapping, which has to
 *           outlive the view; the rest is copied into memory the view owns.
 * Errors    LS_ERR_INPUT naming file and tensor; LS_ERR_MEMORY.
 * Threads   read-only after make. */
#ifndef LS_GGUF_VIEW_H
#define LS_GGUF_VIEW_H

#include "config.h"
#include "gguf.h"
#include "load.h"
#include "safetensors.h"

typedef struct ls_gguf_view {
    ls_st_tensor *tensor; /* [n], in no order; names as in weights.h */
    size_t n;
    void **owned; /* [n]: names with the copied data behind them */
    ls_load load; /* the caller's, before make: told of the bytes of the file that are done */
} ls_gguf_view;

#ifdef __cplusplus
extern "C" {
#endif
/* cfg: what ls_gguf_config_read says of this file. widen: no blocks are left.
 * out: zeroed but for load. */
ls_status ls_gguf_view_make(const ls_gguf *g, const ls_config *cfg, bool widen, ls_gguf_view *out,
                            ls_err *err);
/* NULL and a zeroed view are allowed; leaves it zeroed. */
void ls_gguf_view_free(ls_gguf_view *v);
#ifdef __cplusplus
}
#endif

#endif
