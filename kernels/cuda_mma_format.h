/* cuda_mma_format.h - what the narrow kernel of N-MMA must know of a weight format
 * (kernels/MMA.md): how large a piece of a segment is, where it lies, and, of packed weights, how
 * it is multiplied into the sums (of bf16 the kernel does that itself). F is an ls_dtype: LS_BF16,
 * LS_Q8_0 or LS_Q4_K, a constant wherever the kernel reads it.
 * Group       the least that is copied: steps of 16 k of one tile, with their scales. Whole groups
 *             make a unit (tile and segment), units lie without gaps: MMA.md and MMA_PACKED.md
 *             draw them.
 * Stage       what a place of a ring holds: a few groups, about as many bytes in every format.
 * Exactness   integers of a block become bf16 without rounding, scales f32; which place and how
 *             many stages there are is in no sum.
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

/* Bytes that a warp keeps beside its segment of x, for 8 rows: the sums of mma_sums. */
#define MMA_SUMS_BYTES(F) ((F) == LS_Q4_K ? 2 * 512 : 0)

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
/* Byte j of v, 0 to 255: put under the exponent of 2^23, which then goes away. The exponent is no
 * immediate: that would leave the selector to a register, which is moved there for each byte. */
static __constant__ uint32_t mma_exponent = 0x4b000000u;
MMA_FN float mma_byte(uint32_t v, const int j, uint32_t exponent) {
    return __fsub_rn(__uint_as_float(__byte_perm(v, exponent, 0x7440u + (uint32_t)j)), 8388608.0f);
}
/* Of a pair of bf16 v k + c, exact here. */
MMA_FN uint32_t mma_fma2(uint32_t v, const uint32_t k, const uint32_t c) {
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(k), "r"(c));
    return r;
}
/* (v & mask) | bits, as the one instruction it is: from C two are made, to save a register */
MMA_FN uint32_t mma_put(uint32_t v, uint32_t mask, uint32_t bits) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
    return r;
}
/* A bf16 whose bits are u = 0 to 255 is u 2^-133 (a denormal, or the least that is none). Q8_0: one
 * multiplication by 2^127 makes that u 2^-6, and x is kept times 64. Q4_K: u is multiplied as it is
 * (of the upper four bits it is 16 times the integer), and x is kept times 2^64, of k mod 4 = 2, 3
 * times 2^60: products are 2^-69 of those of the integer and x. What is past 2^122, or 2^64, counts
 * as infinite. */
template <int F> MMA_FN uint4 mma_times(uint4 x) {
    const uint32_t even = F == LS_Q4_K ? 0x5f805f80u : 0x42804280u; /* k mod 4 = 0, 1 */
    const uint32_t odd = F == LS_Q4_K ? 0x5d805d80u : 0x42804280u;
    return make_uint4(mma_fma2(x.x, even, 0x80008000u), mma_fma2(x.y, odd, 0x80008000u),
                      mma_fma2(x.z, even, 0x80008000u), mma_fma2(x.w, odd, 0x80008000u));
}
#define MMA_Q4_K_BACK 0x1p69f /* what they are multiplied by, with d */
/* Bytes i and i + 2 of v, less 128. */
MMA_FN uint32_t mma_q8_pair(uint32_t v, const int i) {
    const uint32_t u = i ? __byte_perm(v, 0, 0x4341) : v & 0x00ff00ffu;
    return mma_fma2(u, 0x7f007f00u, 0xc000c000u);
}
/* Four bits of both halves of v, from bit 4 i on; of odd i times 16. */
MMA_FN uint32_t mma_q4_pair(uint32_t v, const int i) {
    return (i & 2 ? v >> 8 : v) & (i & 1 ? 0x00f000f0u : 0x000f000fu);
}
/* The low six bits of both halves of v, as they are: put under the exponent of 128, less 128. */
MMA_FN uint32_t mma_six_pair(uint32_t v) {
    return mma_fma2(mma_put(v, 0x003f003fu, 0x43004300u), 0x3f803f80u, 0xc300c300u);
}
/* c = A B, the first step of a chain, and c += A B, the next. Unlike mma_step they may change
 * places with what stands around them. */
MMA_FN void mma_first(float c[4], uint4 a, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(0.0f));
}
MMA_FN void mma_then(float c[4], uint4 a, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/* c = v s + c, s of output g and of g + 8 */
MMA_FN void mma_scaled(float c[4], const float v[4], float s0, float s1) {
    c[0] = __fmaf_rn(s0, v[0], c[0]);
    c[1] = __fmaf_rn(s0, v[1], c[1]);
    c[2] = __fmaf_rn(s1, v[2], c[2]);
    c[3] = __fmaf_rn(s1, v[3], c[3]);
}

/* ---- a warp's segment of x ------------------------------------------------------------------- */

/* bf16: rows 0 to 7 in registers, of rows 8 to 15 in shared memory what each lane wrote. Packed
 * weights need registers for what is on its way: up to 8 rows lie in shared memory as they are, a
 * row of zeros behind all warps' stands for those that are not there; more than 8 rows as of bf16.
 * A row takes 64 bytes more than it has, so that neighbours lie in different banks. */
#define MMA_X_HELD(F, NT) ((F) == LS_BF16 || (NT) == 2) /* rows 0 to 7, in registers */
#define MMA_ROW_BYTES (MMA_SEGMENT * 2 + 64)
#define MMA_MORE_BYTES (16 * 512) /* of rows 8 to 15, a warp */
#define MMA_ZEROS_BYTES(F, NT) (MMA_X_HELD(F, NT) ? 0 : MMA_ROW_BYTES)

/* Part p of group j of 8 rows: lane 4 g + t has row g's k 4t.. of both its steps. `more`: where a
 * lane's part 0 lies in shared memory. */
template <int F, int NT>
MMA_FN uint4 mma_x_of(const uint4 x[16], uint32_t more, const int j, const int p) {
    if (MMA_X_HELD(F, NT))
        return j ? mma_lds4(more + (uint32_t)(p * 512)) : x[p];
    return mma_lds4(more + (uint32_t)(p * 64));
}

/* ---- sums of x ------------------------------------------------------------------------------- */

/* Of Q4_K: the sums of x over parts of 32 k, of a segment, from what the warp holds (see
 * mma_take_x), into shared memory. Lane 4 g + t has those of row g and parts 2t, 2t + 1 of each of
 * two blocks, as three bf16 whose sum they are: 16 bytes a block from `sums` on. x takes the place
 * of A here, registers as they are: its rows 0 to 7 are k 0 and 1 of each four of a part, 8 to 15
 * are k 2 and 3 of the same rows; column p of B is one for part p (2^-64, see mma_times). */
template <int NT> MMA_FN void mma_sums(uint32_t sums, const uint4 x[16], uint32_t more, int lane) {
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float c[4][4]; /* of each block the even parts, the odd ones: four chains side by side */
#pragma unroll
        for (int p = 0; p < 8; p++) {
            const uint32_t one = lane >> 2 == p ? 0x1f801f80u : 0u;
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const uint4 a = mma_x_of<LS_Q4_K, NT>(x, more, j, b * 8 + p);
                if (p < 2)
                    mma_first(c[b * 2 + p], a, one, one);
                else
                    mma_then(c[b * 2 + (p & 1)], a, one, one);
            }
        }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            float s0 = __fmaf_rn(c[b * 2][2], 16.0f, c[b * 2][0]);
            float s1 = __fmaf_rn(c[b * 2 + 1][3], 16.0f, c[b * 2 + 1][1]);
            uint32_t three[3];
#pragma unroll
            for (int i = 0; i < 3; i++) {
                three[i] = mma_bf16x2(s0, s1);
                s0 = __fsub_rn(s0, __uint_as_float(three[i] << 16));
                s1 = __fsub_rn(s1, __uint_as_float(three[i] & 0xffff0000u));
            }
            mma_sts4(sums + (uint32_t)((j * 2 + b) * 512),
                     make_uint4(three[0], three[1], three[2], 0));
        }
    }
}
/* What format F keeps of a segment of x. */
template <int F, int NT>
MMA_FN void mma_sums_of(uint32_t sums, const uint4 x[16], uint32_t more, int lane) {
    if constexpr (F == LS_Q4_K)
        mma_sums<NT>(sums, x, more, lane);
}

/* ---- parts of 32 k --------------------------------------------------------------------------- */

/* What a warp has on its way of a packed segment, part (32 k) after part: words come out of the
 * ring a piece (16 bytes a lane) ahead of the part that is multiplied, and what a chain of two
 * steps gives meets its scale while the next chain runs. So nothing waits for what was begun last;
 * more on its way than this finds no registers. */
template <int F, int NT> struct mma_parts {
    uint4 q[2];         /* pieces: of an even place in the segment, of an odd one */
    uint2 s[2];         /* Q8_0: d of a part; Q4_K: s of four parts, of output g and of g + 8 */
    uint4 y[2];         /* x of a part, of the rows that lie in shared memory */
    float v[2][NT][4];  /* chains */
    float s0[2], s1[2]; /* their scales, of output g and of g + 8 */
    /* Q4_K: of a block, its sum so far, minima, d, dmin, and what the minima give */
    float block[NT][4], less[NT][4];
    uint32_t m;
    uint2 d;
    uint32_t exponent; /* see mma_byte */
};
#define MMA_PIECE_PARTS(F) ((F) == LS_Q4_K ? 2 : 1)
#define MMA_PARTS (MMA_SEGMENT_STEPS / 2)
#define MMA_STAGE_PARTS(F) (MMA_STAGE_STEPS(F) / 2)

/* The piece that begins with part p comes out of its stage at `at`. */
template <int F, int NT>
MMA_FN void mma_take_piece(mma_parts<F, NT> *w, uint32_t at, int lane, const int p) {
    const int piece = p / MMA_PIECE_PARTS(F), i = p % MMA_STAGE_PARTS(F);
    const uint32_t of_lane = (uint32_t)(lane * 16), of_row = (uint32_t)(lane >> 2);
    if constexpr (F == LS_Q8_0) {
        const uint32_t group = at + (uint32_t)(i * MMA_GROUP_BYTES(F));
        w->q[piece & 1] = mma_lds4(group + of_lane);
        w->s[piece & 1].x = mma_lds1(group + MMA_Q8_0_D + of_row * 4);
    } else {
        const uint32_t group = at + (uint32_t)(i / 8 * MMA_GROUP_BYTES(F));
        w->q[piece & 1] = mma_lds4(group + (uint32_t)(i % 8 / 2 * 512) + of_lane);
        if (p % 4 == 0)
            w->s[p / 4 & 1] =
                mma_lds2(group + MMA_Q4_K_S + of_row * 16 + (uint32_t)(p / 4 % 2 * 8));
        if (p % 8 == 6) {
            w->m = mma_lds1(group + MMA_Q4_K_M + (uint32_t)(lane * 4));
            w->d = mma_lds2(group + MMA_Q4_K_D + of_row * 8);
        }
    }
}
/* x of part p, as far as it lies in shared memory. */
template <int F, int NT>
MMA_FN void mma_take_rows(mma_parts<F, NT> *w, const uint4 x[16], uint32_t more, const int p) {
    w->y[p & 1] = mma_x_of<F, NT>(x, more, NT - 1, p);
}

/* A register of A, of a word: of Q8_0 i = 0, 1, of Q4_K 0 to 3. */
template <int F> MMA_FN uint32_t mma_pair(uint32_t v, const int i) {
    return F == LS_Q8_0 ? mma_q8_pair(v, i) : mma_q4_pair(v, i);
}
/* Part p: its chain of two steps. */
template <int F, int NT>
MMA_FN void mma_multiply(mma_parts<F, NT> *w, const uint4 x[16], uint32_t sums, const int p) {
    const uint4 q = w->q[p / MMA_PIECE_PARTS(F) & 1];
    float(*v)[4] = w->v[p & 1];
    enum { ODD = F == LS_Q8_0 ? 0 : 2 };
    uint32_t e0, e1, o0, o1; /* words of the even and the odd step, of output g and of g + 8 */
    if constexpr (F == LS_Q8_0) {
        e0 = q.x, e1 = q.y, o0 = q.z, o1 = q.w;
        const uint32_t d = w->s[p & 1].x;
        w->s0[p & 1] = mma_half(d);
        w->s1[p & 1] = mma_half(d >> 16);
    } else {
        e0 = p & 1 ? q.z : q.x, e1 = p & 1 ? q.w : q.y, o0 = e0, o1 = e1;
        w->s0[p & 1] = mma_byte(w->s[p / 4 & 1].x, p & 3, w->exponent);
        w->s1[p & 1] = mma_byte(w->s[p / 4 & 1].y, p & 3, w->exponent);
    }
    const uint4 even =
        make_uint4(mma_pair<F>(e0, 0), mma_pair<F>(e1, 0), mma_pair<F>(e0, 1), mma_pair<F>(e1, 1));
#pragma unroll
    for (int j = 0; j < NT; j++) {
        const uint4 b = j == NT - 1 ? w->y[p & 1] : x[p];
        mma_first(v[j], even, b.x, b.y);
    }
    const uint4 odd = make_uint4(mma_pair<F>(o0, ODD), mma_pair<F>(o1, ODD),
                                 mma_pair<F>(o0, ODD + 1), mma_pair<F>(o1, ODD + 1));
#pragma unroll
    for (int j = 0; j < NT; j++) {
        const uint4 b = j == NT - 1 ? w->y[p & 1] : x[p];
        mma_then(v[j], odd, b.z, b.w);
    }
    if (F == LS_Q4_K && p % 8 == 7) { /* the minima of the block */
        const uint32_t m0 = mma_six_pair(w->m);
        const uint32_t m1 = mma_six_pair(w->m >> 8);
        const uint4 minima = make_uint4(m0, m1, m0, m1);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const uint4 three = mma_lds4(sums + (uint32_t)((j * 2 + p / 8) * 512));
            mma_first(w->less[j], minima, three.z, 0);
            mma_then(w->less[j], minima, three.x, three.y);
        }
    }
}
/* What the chain of part p gave goes onto the sums. */
template <int F, int NT> MMA_FN void mma_finish(float c[NT][4], mma_parts<F, NT> *w, const int p) {
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float *to = F == LS_Q8_0 ? c[j] : w->block[j];
        if (F == LS_Q4_K && p % 8 == 0)
            to[0] = to[1] = to[2] = to[3] = 0.0f;
        mma_scaled(to, w->v[p & 1][j], w->s0[p & 1], w->s1[p & 1]);
        if (F == LS_Q4_K && p % 8 == 7) {
            mma_scaled(c[j], to, __fmul_rn(mma_half(w->d.x), MMA_Q4_K_BACK),
                       __fmul_rn(mma_half(w->d.y), MMA_Q4_K_BACK));
            mma_scaled(c[j], w->less[j], -mma_half(w->d.x >> 16), -mma_half(w->d.y >> 16));
        }
    }
}
#endif

#endif
