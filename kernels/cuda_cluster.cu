/* cuda_cluster.cu - statistics and choose over a cluster of blocks (compute capability 9.0): the
 * same bodies as in cuda_bodies.cu, a row's segments spread over the warps of CLUSTER blocks.
 * Warps      segment s belongs to block s mod CLUSTER; warp 0 of block 0 is the row's warp 0.
 * Memory     every block has the whole block memory. A barrier waits for the cluster, fetches what
 *            the other blocks wrote of the arrays over segments, and waits again: after it all
 *            blocks hold the same words, as the threads of one block would. The second wait also
 *            keeps a block from writing (or ending) while another still fetches.
 * Bits       where a segment is computed is in no result: sums meet in the order of segments. */
#include <cooperative_groups.h>

#define CLUSTER 8

#define LS_WARP_FIRST ((int)(threadIdx.x >> 5) * CLUSTER + (int)(blockIdx.x % CLUSTER))
#define LS_WARP_STEP ((int)(blockDim.x >> 5) * CLUSTER)
#define LS_WARP0 if (blockIdx.x % CLUSTER == 0 && threadIdx.x < 32)
#define LS_BARRIER() cluster_barrier(mem)

#include "backend.h"
#include "tile_limits.h"

/* The body sees `mem`; the number of segments lies behind it. */
template <typename MEM> struct cluster_mem {
    MEM mem;
    int n_seg;
};
template <typename MEM> static __device__ __forceinline__ void cluster_barrier(MEM *mem);

#include "draw.body.h"
#include "stats.body.h"

#include "cuda.h"

#define THREADS 1024

/* Arrays over segments at the front of each block memory. */
template <typename MEM> struct arrays_of;
template <> struct arrays_of<ls_stats_mem> {
    enum { n = 2 + LS_STAT_PIVOTS };
};
template <> struct arrays_of<ls_choose_mem> {
    enum { n = 2 };
};
static_assert(offsetof(ls_stats_mem, out) == arrays_of<ls_stats_mem>::n * LS_STAT_SEGMENTS * 4,
              "arrays");
static_assert(sizeof(ls_choose_mem) == arrays_of<ls_choose_mem>::n * LS_STAT_SEGMENTS * 4,
              "arrays");

template <typename MEM> static __device__ __forceinline__ void cluster_barrier(MEM *mem) {
#if __CUDA_ARCH__ >= 900
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const int n_seg = ((const cluster_mem<MEM> *)(const void *)mem)->n_seg;
    uint32_t *here = (uint32_t *)(void *)mem;
    cluster.sync();
    for (int s = (int)threadIdx.x; s < n_seg; s += (int)blockDim.x) {
        const unsigned owner = (unsigned)s % CLUSTER;
        if (owner == blockIdx.x % CLUSTER)
            continue;
        const uint32_t *there = cluster.map_shared_rank(here, owner);
        uint32_t word[arrays_of<MEM>::n];
        LS_UNROLLED (i, arrays_of<MEM>::n)
            word[i] = there[i * LS_STAT_SEGMENTS + s];
        LS_UNROLLED (i, arrays_of<MEM>::n)
            here[i * LS_STAT_SEGMENTS + s] = word[i];
    }
    cluster.sync();
#else
    (void)mem;
#endif
}

static __global__ void __launch_bounds__(THREADS) ls_stats_cluster_kernel(const ls_stats_args a) {
#if __CUDA_ARCH__ >= 900
    __shared__ cluster_mem<ls_stats_mem> mem;
    if (threadIdx.x == 0)
        mem.n_seg = ls_ceil_div(a.n_vocab, LS_SEGMENT);
    __syncthreads();
    ls_body_stats(&a, (int)blockIdx.x / CLUSTER, &mem.mem);
#endif
}

static __global__ void __launch_bounds__(THREADS) ls_choose_cluster_kernel(const ls_choose_args a) {
#if __CUDA_ARCH__ >= 900
    __shared__ cluster_mem<ls_choose_mem> mem;
    if (threadIdx.x == 0)
        mem.n_seg = ls_ceil_div(a.n_vocab, LS_SEGMENT);
    __syncthreads();
    ls_body_choose(&a, (int)blockIdx.x / CLUSTER, &mem.mem);
#endif
}

/* ---- launch ---------------------------------------------------------------------------------- */

template <typename ARGS>
static void launch(cuda_backend *cuda, void (*kernel)(const ARGS), const ARGS *a,
                   const char *what) {
    const int n_seg = a->n_vocab / LS_SEGMENT + (a->n_vocab % LS_SEGMENT != 0);
    const int warps = (n_seg + CLUSTER - 1) / CLUSTER;
    cudaLaunchAttribute attr;
    cudaLaunchConfig_t config = {};
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = CLUSTER;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)a->n_rows * CLUSTER);
    config.blockDim = dim3((unsigned)(warps < THREADS / 32 ? 32 * warps : THREADS));
    config.stream = cuda->stream;
    config.attrs = &attr;
    config.numAttrs = 1;
    ls_err why;
    if (cuda_answer(cudaLaunchKernelEx(&config, kernel, *a), what, &why) != LS_OK)
        cuda_keep(cuda, &why);
}

void ls_cuda_stats_cluster(cuda_backend *cuda, const ls_stats_args *a) {
    launch(cuda, ls_stats_cluster_kernel, a, "statistics");
}
void ls_cuda_choose_cluster(cuda_backend *cuda, const ls_choose_args *a) {
    launch(cuda, ls_choose_cluster_kernel, a, "choose");
}
