/* tile_cuda.h - the tile language on CUDA: part_f32 is the lane's own float. Contract: tile.h.
 * Blocks are whole warps in one dimension; every lane of a warp runs every operation.
 * Spread      LS_WARPS walks the warps of a block. A file whose bodies wait for nothing may define
 *             LS_WARP_FIRST and LS_WARP_STEP before it includes them, and so spread a row over
 *             several blocks. */
#ifndef LS_TILE_CUDA_H
#define LS_TILE_CUDA_H

#include "convert.h"
#include "packed.h"

#define LS_FN static __device__ __forceinline__
/* A body specialised for constants. Inlined: in a kernel that fixes the type, the others fall away,
 * and arguments stay in registers and constant memory. */
#define LS_INSTANCE static __device__ __forceinline__
#define LS_UNROLL _Pragma("unroll")
#define LS_UNROLL_4 _Pragma("unroll 4")
#define LS_PARTS 1
#define LS_LANE ((int)(threadIdx.x & 31u))
#ifndef LS_WARP_FIRST
#define LS_WARP_FIRST ((int)(threadIdx.x >> 5))
#define LS_WARP_STEP ((int)(blockDim.x >> 5))
#endif
#define LS_WARPS(i, n) for (int i = LS_WARP_FIRST; i < (n); i += LS_WARP_STEP)
#define LS_EACH(i, n) for (int i = LS_LANE; i < (n); i += 32)
#ifndef LS_BARRIER
#define LS_WARP0 if (threadIdx.x < 32)
#define LS_BARRIER() __syncthreads()
#endif
#define LS_LANE0 if (LS_LANE == 0)
#define LS_WARP_SYNC() __syncwarp()
#define LS_CONST_TABLE static __device__ const

/* The kernels of cuda_linear.cu choose their own tiles; these are what ls_body_linear would use. */
#define LS_LINEAR_TILES(X) X(1, 8, 1) X(2, 8, 1) X(4, 8, 1) X(8, 8, 1)
#define LS_LINEAR_TILE 64
#define LS_LINEAR_PARTS 1
#define LS_LINEAR_UNIT 2
#define LS_LINEAR_AHEAD 0

typedef float part_f32;
typedef uint32_t part_i32;

/* ---- loads and stores ------------------------------------------------------------------------ */

/* the processor's own widening, exact as ls_f32_of_f16 is */
LS_FN part_f32 part_of_f16(uint16_t h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
LS_FN part_f32 part_load(const void *p, size_t at, ls_dtype t, int part) {
    (void)part;
    at += (size_t)LS_LANE;
    if (t == LS_F32)
        return ((const float *)p)[at];
    const uint16_t h = ((const uint16_t *)p)[at];
    return t == LS_F16 ? part_of_f16(h) : ls_f32_of_bf16(h);
}
LS_FN part_f32 part_load_n(const void *p, size_t at, int n, ls_dtype t, int part) {
    return LS_LANE < n ? part_load(p, at, t, part) : 0.0f;
}
/* Packed weights (packed.h): a lane reads its own byte. */
typedef ls_scale_min ls_q4;
LS_FN part_f32 part_set_f16(const uint8_t *h) {
    return part_of_f16(ls_u16_at(h));
}
LS_FN part_f32 part_load_i8(const uint8_t *q, int part) {
    (void)part;
    return (float)(int8_t)q[LS_LANE];
}
LS_FN ls_q4 part_q4(float scale, float min) {
    const ls_q4 r = {scale, min};
    return r;
}
LS_FN part_f32 part_load_q4(const uint8_t *q, int high, ls_q4 value, int part) {
    (void)part;
    const int byte = q[LS_LANE];
    return __fmaf_rn(value.scale, (float)(high ? byte >> 4 : byte & 15), -value.min);
}
LS_FN void part_store(float *p, int part, part_f32 a) {
    (void)part;
    p[LS_LANE] = a;
}
LS_FN void part_store_n(float *p, int n, int part, part_f32 a) {
    if (LS_LANE < n)
        part_store(p, part, a);
}
LS_FN part_i32 part_iload_n(const int32_t *p, int n, int part) {
    (void)part;
    return LS_LANE < n ? (uint32_t)p[LS_LANE] : 0u;
}
LS_FN void part_load_quads(const float *p, int n, int part, part_f32 out[4]) {
    (void)part;
    for (int w = 0; w < 4; w++)
        out[w] = 4 * LS_LANE + w < n ? p[4 * LS_LANE + w] : 0.0f;
}
LS_FN void part_prefetch(const void *p) {
    (void)p;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

LS_FN part_f32 part_set(float a) {
    return a;
}
LS_FN part_f32 part_add(part_f32 a, part_f32 b) {
    return __fadd_rn(a, b);
}
LS_FN part_f32 part_sub(part_f32 a, part_f32 b) {
    return __fsub_rn(a, b);
}
LS_FN part_f32 part_mul(part_f32 a, part_f32 b) {
    return __fmul_rn(a, b);
}
LS_FN part_f32 part_div(part_f32 a, part_f32 b) {
    return __fdiv_rn(a, b);
}
LS_FN part_f32 part_max(part_f32 a, part_f32 b) {
    return a > b ? a : b;
}
LS_FN part_f32 part_min(part_f32 a, part_f32 b) {
    return a < b ? a : b;
}
LS_FN part_f32 part_fma(part_f32 a, part_f32 b, part_f32 c) {
    return __fmaf_rn(a, b, c);
}

LS_FN part_i32 part_iset(int32_t a) {
    return (uint32_t)a;
}
LS_FN part_i32 part_iota(int part) {
    (void)part;
    return (uint32_t)LS_LANE;
}
LS_FN part_i32 part_iadd(part_i32 a, part_i32 b) {
    return a + b;
}
LS_FN part_i32 part_isub(part_i32 a, part_i32 b) {
    return a - b;
}
LS_FN part_i32 part_iand(part_i32 a, part_i32 b) {
    return a & b;
}
LS_FN part_i32 part_ior(part_i32 a, part_i32 b) {
    return a | b;
}
LS_FN part_i32 part_ixor(part_i32 a, part_i32 b) {
    return a ^ b;
}
LS_FN part_i32 part_isll(part_i32 a, int n) {
    return a << n;
}
LS_FN part_i32 part_isrl(part_i32 a, int n) {
    return a >> n;
}
LS_FN part_i32 part_isra(part_i32 a, int n) {
    return (uint32_t)((int32_t)a >> n);
}
LS_FN part_i32 part_imax(part_i32 a, part_i32 b) {
    return (int32_t)a > (int32_t)b ? a : b;
}
LS_FN part_i32 part_imin(part_i32 a, part_i32 b) {
    return (int32_t)a < (int32_t)b ? a : b;
}
LS_FN part_i32 part_umullo(part_i32 a, uint32_t b) {
    return a * b;
}
LS_FN part_i32 part_umulhi(part_i32 a, uint32_t b) {
    return __umulhi(a, b);
}

#define LS_MASK(cond) ((cond) ? 0xffffffffu : 0u)
LS_FN part_i32 part_igt(part_i32 a, part_i32 b) {
    return LS_MASK((int32_t)a > (int32_t)b);
}
LS_FN part_i32 part_ieq(part_i32 a, part_i32 b) {
    return LS_MASK(a == b);
}
LS_FN part_i32 part_gt(part_f32 a, part_f32 b) {
    return LS_MASK(a > b);
}
LS_FN part_i32 part_ge(part_f32 a, part_f32 b) {
    return LS_MASK(a >= b);
}
LS_FN part_i32 part_eq(part_f32 a, part_f32 b) {
    return LS_MASK(a == b);
}
LS_FN part_i32 part_nan(part_f32 a) {
    return LS_MASK(a != a);
}
LS_FN part_f32 part_select(part_i32 mask, part_f32 a, part_f32 b) {
    return mask ? a : b;
}
LS_FN part_i32 part_iselect(part_i32 mask, part_i32 a, part_i32 b) {
    return mask ? a : b;
}
LS_FN part_f32 part_as_f(part_i32 a) {
    return __uint_as_float(a);
}
LS_FN part_i32 part_as_i(part_f32 a) {
    return __float_as_uint(a);
}
LS_FN part_f32 part_from_i(part_i32 a) {
    return __int2float_rn((int32_t)a);
}

/* ---- across lanes ---------------------------------------------------------------------------- */

LS_FN float lane_sum_parts(const part_f32 *p) {
    float a = *p;
    LS_UNROLL
    for (int o = 16; o > 0; o >>= 1)
        a = __fadd_rn(a, __shfl_xor_sync(0xffffffffu, a, o));
    return a;
}
/* One step of the butterfly for two vectors at once: lanes without bit `o` go on with a, the others
 * with b. Each lane adds what it has and what lane xor o has, as the plain butterfly does. */
LS_FN float lane_fold(float a, float b, int o) {
    const int high = LS_LANE & o;
    const float mine = high ? b : a, theirs = high ? a : b;
    return __fadd_rn(mine, __shfl_xor_sync(0xffffffffu, theirs, o));
}
/* Sums of n vectors. Eight meet in pairs: 17 exchanges in place of 40, the same additions. */
LS_FN void lane_sums_parts(const part_f32 *v, int n, float *out) {
    if (n == 8) {
        float a[4];
        LS_UNROLL
        for (int i = 0; i < 4; i++)
            a[i] = lane_fold(v[i], v[i + 4], 16);
        a[0] = lane_fold(a[0], a[2], 8);
        a[1] = lane_fold(a[1], a[3], 8);
        float s = lane_fold(a[0], a[1], 4); /* vector LS_LANE / 4 */
        s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 2));
        s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
        LS_UNROLL
        for (int i = 0; i < 8; i++)
            out[i] = __shfl_sync(0xffffffffu, s, 4 * i);
    } else {
        LS_UNROLL
        for (int i = 0; i < n; i++)
            out[i] = lane_sum_parts(v + i);
    }
}
LS_FN int32_t lane_hmax_i(const part_i32 *p) {
    uint32_t a = *p;
    LS_UNROLL
    for (int o = 16; o > 0; o >>= 1)
        a = part_imax(a, __shfl_xor_sync(0xffffffffu, a, o));
    return (int32_t)a;
}
LS_FN int32_t lane_hmin_i(const part_i32 *p) {
    uint32_t a = *p;
    LS_UNROLL
    for (int o = 16; o > 0; o >>= 1)
        a = part_imin(a, __shfl_xor_sync(0xffffffffu, a, o));
    return (int32_t)a;
}
LS_FN int32_t lane_hsum_i(const part_i32 *p) {
    uint32_t a = *p;
    LS_UNROLL
    for (int o = 16; o > 0; o >>= 1)
        a += __shfl_xor_sync(0xffffffffu, a, o);
    return (int32_t)a;
}
LS_FN float part_first(part_f32 a) {
    return a;
}
LS_FN float ls_sqrt(float a) {
    return __fsqrt_rn(a);
}
LS_FN float ls_fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}

#endif
