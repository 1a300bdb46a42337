/* cuda_mma_device.h - what the kernels of N-MMA share: sizes, the list of tiles, the instructions.
 * LS_MMA_BULK  1 where the code is compiled for sm_90 or later by CUDA 12.1 or later: bulk copies
 *              that complete on mbarriers, dependent launch. Elsewhere 16-byte cp.async. The
 *              arithmetic does not know which.
 * Private to cuda_mma*.cu. */
#ifndef LS_CUDA_MMA_DEVICE_H
#define LS_CUDA_MMA_DEVICE_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "convert.h"
#include "cuda.h"
#include "cuda_mma.h"

#define MMA_SEGMENT 512 /* k of one chain of steps */
#define MMA_STEP 16     /* k of one mma */
#define MMA_SEGMENT_STEPS 32
#define MMA_RANGE 8        /* segments of a range */
#define MMA_TILE 16        /* outputs of a tile */
#define MMA_STEP_BYTES 512 /* weights of one tile and step: 16 bytes a lane */

#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201
#define MMA_HOST_BULK 1
#else
#define MMA_HOST_BULK 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && MMA_HOST_BULK
#define LS_MMA_BULK 1
#else
#define LS_MMA_BULK 0
#endif

#define MMA_FN static __device__ __forceinline__

/* The tiles of up to three matrices, one after another. */
typedef struct mma_list {
    const char *w[LS_LINEARS];
    float *y[LS_LINEARS];
    const float *add[LS_LINEARS];
    int32_t n_out[LS_LINEARS];
    int32_t n_tiles[LS_LINEARS];
    int32_t first[LS_LINEARS]; /* a matrix' first tile; past the end where there is none */
    int32_t n, tiles;
    ls_dtype format; /* of all their weights */
} mma_list;

/* The narrow kernel: how many of n_rows rows one launch takes where weights are of format t, and
 * that launch (norm->squares and next->w NULL, gates->gate 0: none). */
int32_t ls_mma_narrow_rows(const ls_mma_device *dev, ls_dtype t, int32_t n_rows);
cudaError_t ls_mma_narrow(const mma_list *m, const void *x16, int32_t n_in, int32_t n_rows,
                          const ls_mma_norm *norm, const ls_mma_next *next,
                          const ls_mma_gates *gates, const ls_mma_device *dev, cudaStream_t stream);
/* The wide kernel: whether the device has room for it, how many blocks it makes, its launches. */
int ls_mma_wide_fits(const ls_mma_device *dev);
int32_t ls_mma_wide_blocks(const mma_list *m, int32_t n_rows);
/* x16 in place of x where a norm is ahead. */
cudaError_t ls_mma_wide(const mma_list *m, const float *x, const void *x16, int32_t n_in,
                        int32_t n_rows, const ls_mma_norm *norm, void *scratch,
                        const ls_mma_device *dev, cudaStream_t stream);
/* Scratch of the wide one, bytes; what each finds out of a device. */
size_t ls_mma_wide_scratch(int32_t n_out, int32_t n_in, int32_t n_rows);
cudaError_t ls_mma_narrow_get(ls_mma_device *dev);
cudaError_t ls_mma_wide_get(ls_mma_device *dev);

static inline int32_t mma_ceil(int32_t a, int32_t b) {
    return a / b + (a % b != 0);
}

#ifdef __CUDACC__
/* ---- shared memory and its barriers ---------------------------------------------------------- */

MMA_FN uint32_t mma_smem(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
MMA_FN uint4 mma_lds4(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
MMA_FN void mma_sts4(uint32_t at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
MMA_FN float4 mma_ldsf4(uint32_t at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
MMA_FN void mma_stsf4(uint32_t at, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
}

MMA_FN void mma_bar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/* Waits for the phase of this parity, and sees what came before its arrivals: copies, and warps of
 * this block. */
MMA_FN void mma_bar_wait(uint32_t bar, uint32_t parity) {
#if LS_MMA_BULK
    asm volatile("{\n.reg .pred p;\n"
                 "W_%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@p bra D_%=;\nbra W_%=;\nD_%=:\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#else
    asm volatile("{\n.reg .pred p;\n"
                 "W_%=: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@p bra D_%=;\nbra W_%=;\nD_%=:\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#endif
}
/* Whether that phase has ended. */
MMA_FN bool mma_bar_test(uint32_t bar, uint32_t parity) {
    uint32_t ended;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ended != 0;
}
MMA_FN void mma_bar_arrive(uint32_t bar) {
    asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared.b64 s, [%0];\n}" ::"r"(bar) : "memory");
}
/* Barriers just made are seen by the copy engine; other threads need __syncthreads as well. */
MMA_FN void mma_bar_fence(void) {
#if LS_MMA_BULK
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/* Arrives for this thread, which has read a place: when all have, copies may fill it again. Bulk
 * copies write through another proxy than loads read: a load that has only been asked for (it waits
 * behind other warps' loads) is ahead of the arrival, but not of them unless a fence says so. */
MMA_FN void mma_bar_release(uint32_t bar) {
#if LS_MMA_BULK
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    mma_bar_arrive(bar);
}
#if LS_MMA_BULK
MMA_FN void mma_bar_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
#endif

/* ---- copies into shared memory --------------------------------------------------------------- */

#if LS_MMA_BULK
MMA_FN void mma_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
/* The same of what is read once: it is the first to leave the second cache, so that what a pass
 * reads again (rows, tables, code) stays there. */
MMA_FN uint64_t mma_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
MMA_FN void mma_bulk_once(uint32_t to, const void *from, uint32_t bytes, uint32_t bar,
                          uint64_t once) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(once)
                 : "memory");
}
#endif
MMA_FN void mma_copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
MMA_FN void mma_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Arrives when this thread's copies so far have landed; the barrier counts it as any arrival. */
MMA_FN void mma_copy_arrive(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
/* Waits until at most n of this thread's newest groups are in flight. */
#define MMA_COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* c += A (16 outputs x 16 k) B (16 k x 8 rows of x): the only multiplication of N-MMA. */
MMA_FN void mma_step(float c[4], uint4 a, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/* Two f32 rounded to bf16, nearest even; the first in the low half. */
MMA_FN uint32_t mma_bf16x2(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
/* Four k of a row of x from k on, rounded; past n_in zeros. For rows of any alignment. */
MMA_FN uint2 mma_load_x(const float *row, int32_t k, int32_t n_in) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = k + i < n_in ? row[k + i] : 0.0f;
    return make_uint2(mma_bf16x2(v[0], v[1]), mma_bf16x2(v[2], v[3]));
}
/* The f16 in the low half. */
MMA_FN float mma_half(uint32_t v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)v));
    return f;
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Weight k of a norm; in two steps its bits, which nothing waits for, and what they are. */
MMA_FN uint32_t mma_weight_bits(const void *w, ls_dtype dtype, int k) {
    return dtype == LS_F32 ? ((const uint32_t *)w)[k] : ((const uint16_t *)w)[k];
}
MMA_FN float mma_weight_of(uint32_t bits, ls_dtype dtype) {
    if (dtype == LS_F32)
        return __uint_as_float(bits);
    return dtype == LS_BF16 ? ls_f32_of_bf16((uint16_t)bits) : mma_half(bits);
}
MMA_FN float mma_weight(const void *w, ls_dtype dtype, int k) {
    return mma_weight_of(mma_weight_bits(w, dtype, k), dtype);
}
/* The sum of the squares of 16 elements of a row, in all their lanes, all lanes of the warp:
 * element i is added to i xor 8, then 1, 2, 4. Lanes xor `eight` hold elements xor 8, xor `one`, 2
 * `one`, 4 `one` those xor 1, 2, 4. */
MMA_FN float mma_square(float v, int eight, int one) {
    float s = __fmul_rn(v, v);
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, eight));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, one));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 2 * one));
    return __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 4 * one));
}
/* What row r is divided by, to *root; a warp. */
MMA_FN void mma_row_root(const ls_mma_norm *a, int r, float *root, int lane) {
    const int n = (a->dim + 15) / 16;
    const float *from = a->squares + (size_t)r * (size_t)n;
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32 * 8) { /* eight on their way at once; past the last +0 */
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = i + j * 32 < n ? __ldcg(from + i + j * 32) : 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = __fadd_rn(sum, v[j]);
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1)
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, o));
    if (lane == 0)
        *root = __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)a->dim), a->eps));
}

MMA_FN int mma_matrix_of(const mma_list *m, int tile) {
    return (tile >= m->first[1]) + (tile >= m->first[2]);
}
#endif

#endif
