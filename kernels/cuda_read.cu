/* cuda_read.cu - the plain read: every byte of some spans once, as fast as memory gives them.
 * What a pass is measured against.
 * Tiles    spans are cut into tiles of LOADS 16-byte loads a thread; the blocks that fit on the
 *          device at once walk them, many loads in flight each. Bytes before the first and after
 *          the last aligned 16 are read one by one.
 * Kept     the words are added up, and the sum is stored where it equals a number that the host
 *          passes: the compiler cannot leave the loads out, and memory sees no stores. */
#include "cuda.h"

#define THREADS 256
#define LOADS 8
#define TILE (THREADS * LOADS) /* 16-byte words */
#define SPANS 64               /* a launch */
#define BLOCKS_A_UNIT 8

typedef struct read_launch {
    const char *data[SPANS];
    size_t bytes[SPANS];
    int64_t first[SPANS + 1]; /* tiles of span i: first[i] .. first[i + 1] - 1, at least one */
    int n;
} read_launch;

static __device__ __forceinline__ uint32_t read_tile(const char *data, size_t bytes, int64_t tile) {
    const size_t skip = (16 - ((size_t)data & 15)) & 15, head = skip < bytes ? skip : bytes;
    const size_t words = (bytes - head) / 16, tail = (bytes - head) % 16;
    const uint4 *p = (const uint4 *)(data + head);
    const size_t at = (size_t)tile * TILE + threadIdx.x;
    uint4 v[LOADS];
    uint32_t sum = 0;
    if (((size_t)tile + 1) * TILE <= words) {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            v[i] = __ldcs(p + at + (size_t)i * THREADS);
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            sum += v[i].x + v[i].y + v[i].z + v[i].w;
    } else {
        for (size_t w = at; w < words; w += THREADS) {
            const uint4 u = __ldcs(p + w);
            sum += u.x + u.y + u.z + u.w;
        }
    }
    if (tile == 0 && threadIdx.x < 32) {
        if (threadIdx.x < head)
            sum += (unsigned char)data[threadIdx.x];
        if (threadIdx.x < tail)
            sum += (unsigned char)data[bytes - tail + threadIdx.x];
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    ls_read_kernel(const read_launch p, uint32_t never, int32_t *to) {
    uint32_t sum = 0;
    int i = 0;
    for (int64_t tile = blockIdx.x; tile < p.first[p.n]; tile += gridDim.x) {
        while (tile >= p.first[i + 1])
            i++;
        sum += read_tile(p.data[i], p.bytes[i], tile - p.first[i]);
    }
    if (sum == never)
        to[1 + (threadIdx.x & 15)] = (int32_t)sum;
}

static void ls_read_cuda(ls_backend *be, const ls_span *span, int32_t n) {
    LS_CUDA_BEGIN(be, ls_check_spans(n, &why_));
    for (int32_t at = 0; at < n; at += SPANS) {
        read_launch p;
        p.n = n - at < SPANS ? n - at : SPANS;
        p.first[0] = 0;
        for (int i = 0; i < p.n; i++) {
            p.data[i] = (const char *)span[at + i].data;
            p.bytes[i] = span[at + i].bytes;
            p.first[i + 1] = p.first[i] + 1 + (int64_t)(p.bytes[i] / 16 / TILE);
        }
        const int64_t most = (int64_t)cuda->n_units * BLOCKS_A_UNIT, tiles = p.first[p.n];
        ls_read_kernel<<<(unsigned)(tiles < most ? tiles : most), THREADS, 0, cuda->stream>>>(
            p, 0x9E3779B9u, cuda->claim_d);
        cuda_launched(cuda, "read");
    }
}

void ls_cuda_read_install(cuda_backend *cuda) {
    cuda->be.read = ls_read_cuda;
}
