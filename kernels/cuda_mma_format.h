/* cuda_mma_format.h - what the narrow kernel of N-MMA must know of a weight format (kernels/MMA.md):
 * how large a piece of a segment is, where it lies, and, of packed weights, how it is multiplied into
 * the sums (of bf16 the kernel does that itself). F is an ls_dtype: LS_BF16, LS_Q8_0 or LS_Q4_K, a
 * constant wherever the kernel reads it.
 * Group       the least that is copied: steps of 16 k of one tile, with their scales. Whole groups
 *             make a unit (tile and segment), units lie without gaps: MMA.md and MMA_PACKED.md
 *             draw them.
 * Stage       what a place of a ring holds: a few groups, about as many bytes in every format.
 * Exactness   integers of a block become bf16 without rounding, scales f32; which place and how many
 *             stages there are is in no sum.
 * Private to cuda_mma*.cu. */
#ifndef LS_CUDA_MMA_FORMAT_H
#define LS_CUDA_MMA_FORMAT_H

#include "cuda_mma_device.h"

#define MMA_GROUP_STEPS(F) ((F) == LS_Q4_K ? 16 : (F) == LS_Q8_0 ? 2 : 1)
#define MMA_GROUP_BYTES(F) ((F) == LS_Q4_K ? 2368 : (F) == LS_Q8_0 ? 544 : MMA_STEP_BYTES)
#define MMA_STAGE_GROUPS(F) ((F) == LS_Q4_K ? 2 : 8)
#define MMA_STAGE_STEPS(F) (MMA_STAGE_GROUPS(F) * MMA_GROUP_STEPS(F))
#define MMA_STAGE_BYTES(F) (MMA_STAGE_GROUPS(F) * MMA_GROUP_BYTES(F))
#define MMA_STAGES(F) (MMA_SEGMENT_STEPS / MMA_STAGE_STEPS(F)) /* of a whole segment */

/* Inside a group of Q8_0 and of Q4_K: q first, then */
#define MMA_Q8_0_D 512
#define MMA_Q4_K_S 2048
#define MMA_Q4_K_M 2176
#define MMA_Q4_K_D 2304

/* Words of a segment of x that a format keeps beside it, for a row of 8: the sums of mma_sums. */
#define MMA_SUMS 6

/* Row-major blocks of a GGUF file, in device memory, into groups; does not wait. */
cudaError_t ls_mma_pack_blocks(const void *blocks_d, ls_dtype t, int32_t n_out, int32_t n_in,
                               void *packed_d, cudaStream_t stream);

#ifdef __CUDACC__
/* ---- where pieces lie ------------------------------------------------------------------------ */

/* Bytes of so many steps, whole groups. */
template <int F> MMA_FN int mma_bytes_of(int steps) {
    return steps / MMA_GROUP_STEPS(F) * MMA_GROUP_BYTES(F);
}
/* Where the groups of (matrix, segment, tile) begin; `steps` of that segment. */
template <int F>
MMA_FN const char *mma_unit_of(const mma_list *m, int i, int tile, int segment, int steps) {
    const size_t tiles = (size_t)m->n_tiles[i];
    const size_t local = (size_t)(tile - m->first[i]);
    const size_t groups = (size_t)segment * tiles * (MMA_SEGMENT_STEPS / MMA_GROUP_STEPS(F)) +
                          local * (size_t)(steps / MMA_GROUP_STEPS(F));
    return m->w[i] + groups * MMA_GROUP_BYTES(F);
}

/* ---- numbers --------------------------------------------------------------------------------- */

MMA_FN uint32_t mma_lds1(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
MMA_FN uint2 mma_lds2(uint32_t at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}
/* Byte j of v, 0 to 255: put under the exponent of 2^23, which then goes away. */
MMA_FN float mma_byte(uint32_t v, const int j) {
    return __fsub_rn(__uint_as_float(__byte_perm(v, 0x4b000000u, 0x7440u + (uint32_t)j)),
                     8388608.0f);
}
/* A pair of bf16 plus another, exact here: 4300 is 128, whose last bit is worth 1. */
MMA_FN uint32_t mma_plus(uint32_t v, uint32_t w) {
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x3f803f80u), "r"(w));
    return r;
}
/* (v & mask) | bits, as the one instruction it is: from C two are made, to save a register */
MMA_FN uint32_t mma_put(uint32_t v, uint32_t mask, uint32_t bits) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
    return r;
}
/* Bytes 0 and 2 of v, signed: 128 + seven bits, less 128 or 256. */
MMA_FN uint32_t mma_q8_pair(uint32_t v) {
    return mma_plus(mma_put(v, 0x007f007fu, 0x43004300u), mma_put(v, 0x00800080u, 0xc300c300u));
}
/* The bits of a mask in both halves of v, seven or fewer. */
MMA_FN uint32_t mma_bits_pair(uint32_t v, const uint32_t mask) {
    return mma_plus(mma_put(v, mask, 0x43004300u), 0xc300c300u);
}
/* c = A B: the first step of a chain. */
MMA_FN void mma_first(float c[4], uint4 a, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(0.0f));
}
/* c = v s + c, s of output g and of g + 8 */
MMA_FN void mma_scaled(float c[4], const float v[4], float s0, float s1) {
    c[0] = __fmaf_rn(s0, v[0], c[0]);
    c[1] = __fmaf_rn(s0, v[1], c[1]);
    c[2] = __fmaf_rn(s1, v[2], c[2]);
    c[3] = __fmaf_rn(s1, v[3], c[3]);
}

/* The 32 k from 32 q on of the warp's segment of x, rows 0 to 7 or (j = 1) 8 to 15: see mma_take_x. */
MMA_FN uint4 mma_x_of(const uint4 x[16], uint32_t more, const int j, const int q) {
    return j ? mma_lds4(more + (uint32_t)(q * 512)) : x[q];
}

/* ---- sums of x ------------------------------------------------------------------------------- */

/* Of Q4_K: the sums of x over parts of 32 k, of a segment, from what the warp holds (see
 * mma_take_x). Lane 4 g + t gets those of row g and parts 2t, 2t + 1 of each of two blocks, as three
 * bf16 whose sum they are. x takes the place of A here, registers as they are: its rows 0 to 7 are k
 * 0 and 1 of each four of a part, 8 to 15 are k 2 and 3 of the same rows; column p of B is one for
 * part p. */
template <int NT>
MMA_FN void mma_sums(uint32_t sum[NT][MMA_SUMS], const uint4 x[16], uint32_t more, int lane) {
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int b = 0; b < 2; b++) {
            float c[2][4]; /* of the even parts, of the odd ones */
#pragma unroll
            for (int p = 0; p < 8; p++) {
                const uint4 a = mma_x_of(x, more, j, b * 8 + p);
                const uint32_t one = lane >> 2 == p ? 0x3f803f80u : 0u;
                if (p < 2)
                    mma_first(c[p & 1], a, one, one);
                else
                    mma_step(c[p & 1], a, one, one);
            }
            float s0 = __fadd_rn(c[0][0], c[0][2]), s1 = __fadd_rn(c[1][1], c[1][3]);
#pragma unroll
            for (int i = 0; i < 3; i++) {
                const uint32_t two = mma_bf16x2(s0, s1);
                sum[j][b * 3 + i] = two;
                s0 = __fsub_rn(s0, __uint_as_float(two << 16));
                s1 = __fsub_rn(s1, __uint_as_float(two & 0xffff0000u));
            }
        }
}
/* What format F keeps of a segment of x. */
template <int F, int NT>
MMA_FN void mma_sums_of(uint32_t sum[NT][MMA_SUMS], const uint4 x[16], uint32_t more, int lane) {
    if constexpr (F == LS_Q4_K)
        mma_sums<NT>(sum, x, more, lane);
}

/* ---- a stage --------------------------------------------------------------------------------- */

/* Q8_0, n blocks of 32 k of a stage: a chain of two steps each, then times d. Four at once, so that
 * their chains overlap: those past n have the scale 0 and meet an x of 0. */
template <int NT>
MMA_FN void mma_stage_q8_0(float c[NT][4], const uint4 x[16], uint32_t more, uint32_t at, int lane,
                           const int first, int n) {
#pragma unroll
    for (int h = 0; h < MMA_STAGE_GROUPS(LS_Q8_0); h += 4)
        if (h < n) {
            uint4 q[4];
            uint32_t d[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t group = at + (uint32_t)((h + i) * MMA_GROUP_BYTES(LS_Q8_0));
                q[i] = mma_lds4(group + (uint32_t)(lane * 16));
                d[i] = mma_lds1(group + MMA_Q8_0_D + (uint32_t)((lane >> 2) * 4));
                d[i] = h + i < n ? d[i] : 0;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 even = make_uint4(mma_q8_pair(q[i].x), mma_q8_pair(q[i].y),
                                              mma_q8_pair(q[i].x >> 8), mma_q8_pair(q[i].y >> 8));
                const uint4 odd = make_uint4(mma_q8_pair(q[i].z), mma_q8_pair(q[i].w),
                                             mma_q8_pair(q[i].z >> 8), mma_q8_pair(q[i].w >> 8));
                const float d0 = mma_half(d[i]), d1 = mma_half(d[i] >> 16);
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    const uint4 b = mma_x_of(x, more, j, first / 2 + h + i);
                    float v[4];
                    mma_first(v, even, b.x, b.y);
                    mma_step(v, odd, b.z, b.w);
                    mma_scaled(c[j], v, d0, d1);
                }
            }
        }
}

/* Two k of Q4_K: of the four pairs in a word. */
MMA_FN uint32_t mma_q4_pair(uint32_t v, const int i) {
    return mma_bits_pair(v >> 4 * i, 0x000f000fu);
}
/* Q4_K, a block of 256 k: parts of 32, a chain of two steps each, times s; what they give times d,
 * and what the minima give (two steps over the three parts of the sums) times dmin. */
template <int NT>
MMA_FN void mma_block_q4_k(float c[NT][4], const uint4 x[16], uint32_t more,
                           const uint32_t sum[NT][MMA_SUMS], uint32_t at, int lane, const int b) {
    const uint4 s = mma_lds4(at + MMA_Q4_K_S + (uint32_t)((lane >> 2) * 16));
    const uint32_t m = mma_lds1(at + MMA_Q4_K_M + (uint32_t)(lane * 4));
    const uint2 d = mma_lds2(at + MMA_Q4_K_D + (uint32_t)((lane >> 2) * 8));
    uint4 q[4];
    float v[NT][4];
#pragma unroll
    for (int h = 0; h < 4; h++)
        q[h] = mma_lds4(at + (uint32_t)(h * 512 + lane * 16));
#pragma unroll
    for (int j = 0; j < NT; j++)
        v[j][0] = v[j][1] = v[j][2] = v[j][3] = 0.0f;
#pragma unroll
    for (int p = 0; p < 8; p++) {
        const uint32_t q0 = p & 1 ? q[p / 2].z : q[p / 2].x;
        const uint32_t q1 = p & 1 ? q[p / 2].w : q[p / 2].y;
        const uint4 even = make_uint4(mma_q4_pair(q0, 0), mma_q4_pair(q1, 0), mma_q4_pair(q0, 1),
                                      mma_q4_pair(q1, 1));
        const uint4 odd = make_uint4(mma_q4_pair(q0, 2), mma_q4_pair(q1, 2), mma_q4_pair(q0, 3),
                                     mma_q4_pair(q1, 3));
        const float s0 = mma_byte(p < 4 ? s.x : s.y, p & 3);
        const float s1 = mma_byte(p < 4 ? s.z : s.w, p & 3);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const uint4 k = mma_x_of(x, more, j, b * 8 + p);
            float part[4];
            mma_first(part, even, k.x, k.y);
            mma_step(part, odd, k.z, k.w);
            mma_scaled(v[j], part, s0, s1);
        }
    }
    const uint32_t m0 = mma_bits_pair(m, 0x003f003fu), m1 = mma_bits_pair(m >> 8, 0x003f003fu);
    const uint4 minima = make_uint4(m0, m1, m0, m1);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float less[4];
        mma_first(less, minima, sum[j][b * 3 + 2], 0);
        mma_step(less, minima, sum[j][b * 3], sum[j][b * 3 + 1]);
        mma_scaled(c[j], v[j], mma_half(d.x), mma_half(d.y));
        mma_scaled(c[j], less, -mma_half(d.x >> 16), -mma_half(d.y >> 16));
    }
}

/* Packed weights: the groups in the ring's place at `at`, which begin with stage `stage` of the
 * segment: `steps` are left of it, a whole stage or less. x, sum: the warp's segment (mma_take_x,
 * mma_sums_of). */
template <int F, int NT>
MMA_FN void mma_stage(float c[NT][4], const uint4 x[16], uint32_t more,
                      const uint32_t sum[NT][MMA_SUMS], uint32_t at, int lane, const int stage,
                      int steps) {
    const int n = steps / MMA_GROUP_STEPS(F);
    if constexpr (F == LS_Q8_0)
        mma_stage_q8_0<NT>(c, x, more, at, lane, stage * MMA_STAGE_STEPS(F), n);
    else
#pragma unroll
        for (int b = 0; b < MMA_STAGE_GROUPS(F); b++)
            if (b < n)
                mma_block_q4_k<NT>(c, x, more, sum, at + (uint32_t)(b * MMA_GROUP_BYTES(F)), lane,
                                   stage * MMA_STAGE_GROUPS(F) + b);
}
#endif

#endif
