/* bodies_cuda.cu - every body once as a kernel: the guard that one source has two compilers.
 * A block is whole warps of one dimension; what its warps share is in shared memory. The grids are
 * the simplest that reach every block: row (and item) by block index. */
#include "attn.body.h"
#include "draw.body.h"
#include "linear.body.h"
#include "norm.body.h"
#include "rope.body.h"
#include "rows.body.h"
#include "stats.body.h"

/* one warp a block: LS_LINEAR_UNIT outputs of all rows */
__global__ void ls_linear_kernel(ls_linear_args a) {
    const int n0 = (int)blockIdx.x * LS_LINEAR_UNIT;
    ls_body_linear(&a, n0, ls_min_i(a.w.n_out, n0 + LS_LINEAR_UNIT), 0, a.n_rows);
}

__global__ void ls_embed_kernel(ls_embed_args a) {
    ls_body_embed(&a, (int)blockIdx.x);
}
__global__ void ls_gather_kernel(ls_gather_args a) {
    ls_body_gather(&a, (int)blockIdx.x);
}
__global__ void ls_rope_kernel(ls_rope_args a) {
    ls_body_rope(&a, (int)blockIdx.x);
}
__global__ void ls_kv_store_kernel(ls_kv_store_args a) {
    ls_body_kv_store(&a, (int)blockIdx.x);
}
__global__ void ls_silu_mul_kernel(ls_silu_mul_args a) {
    ls_body_silu_mul(&a, (int)blockIdx.x);
}

__global__ void ls_rmsnorm_kernel(ls_rmsnorm_args a) {
    __shared__ ls_norm_mem mem;
    ls_body_rmsnorm(&a, (int)blockIdx.x, &mem);
}

/* chunks past the row's count return at once: the grid is a bound */
__global__ void ls_attn_chunk_kernel(ls_attn_args a) {
    __shared__ ls_attn_mem mem;
    ls_body_attn_chunk(&a, (int)blockIdx.z, (int)blockIdx.y, (int)blockIdx.x, &mem);
}
__global__ void ls_attn_merge_kernel(ls_attn_args a) {
    __shared__ ls_merge_mem mem;
    ls_body_attn_merge(&a, (int)blockIdx.y, (int)blockIdx.x, &mem);
}

__global__ void ls_stats_kernel(ls_stats_args a) {
    __shared__ ls_stats_mem mem;
    ls_body_stats(&a, (int)blockIdx.x, &mem);
}
__global__ void ls_probs_kernel(ls_probs_args a) {
    ls_body_probs(&a, (int)blockIdx.y, (int)blockIdx.x);
}
__global__ void ls_choose_kernel(ls_choose_args a) {
    __shared__ ls_choose_mem mem;
    ls_body_choose(&a, (int)blockIdx.x, &mem);
}
