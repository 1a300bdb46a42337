/* cuda_linear_packed.h - segment sums of N-LIN over packed weights (packed.h, N-PACK), for the
 * kernel of cuda_linear.cu.
 * Lanes     the threads of a warp are four groups of eight, and a group sums every fourth output. A
 *           thread stands for four lanes of N-LIN: thread q of a group adds the products of lanes
 *           4q to 4q + 3, each in an accumulator of its own. So a load brings a thread four
 *           neighbouring weights, or four of x. In the butterfly lanes xor 16, 8 and 4 are threads
 *           xor 4, 2 and 1; xor 2 and 1 meet within a thread. The additions are linear.body.h's.
 * Loads     q of Q8_0 is aligned to two bytes and read so; Q4_K is read in words, its heads whole,
 *           which asks for blocks that begin at multiples of 16: a matrix of its own allocation. x
 *           is read in fours, aligned to 16 bytes. The launcher refuses what lies elsewhere.
 * Private to the CUDA backend. */
#ifndef LS_CUDA_LINEAR_PACKED_H
#define LS_CUDA_LINEAR_PACKED_H

#include "linear.body.h"

/* Weights of a thread's four lanes. */
typedef struct packed_four {
    float w[4];
} packed_four;

/* Byte J of `word`, 0 to 255, as a float: put under the exponent of 2^23, which then goes away. */
template <int J> static __device__ __forceinline__ float byte_less(uint32_t word, float less) {
    return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + J)), less);
}

/* d q, of signed bytes whose upper bit has been turned: q + 128 */
static __device__ __forceinline__ packed_four four_q8(uint32_t word, float d) {
    const float less = 8388608.0f + 128.0f;
    packed_four r;
    r.w[0] = __fmul_rn(byte_less<0>(word, less), d);
    r.w[1] = __fmul_rn(byte_less<1>(word, less), d);
    r.w[2] = __fmul_rn(byte_less<2>(word, less), d);
    r.w[3] = __fmul_rn(byte_less<3>(word, less), d);
    return r;
}

/* scale q - min, of bytes 0 to 15; the product is exact: the fma rounds as the difference does */
static __device__ __forceinline__ packed_four four_q4(uint32_t word, float scale, float min) {
    const float less = 8388608.0f;
    packed_four r;
    r.w[0] = __fmaf_rn(scale, byte_less<0>(word, less), -min);
    r.w[1] = __fmaf_rn(scale, byte_less<1>(word, less), -min);
    r.w[2] = __fmaf_rn(scale, byte_less<2>(word, less), -min);
    r.w[3] = __fmaf_rn(scale, byte_less<3>(word, less), -min);
    return r;
}

/* Adds one step of 32 k: weights of N / 4 outputs a thread, x of M rows at x0. */
template <int N, int M>
static __device__ __forceinline__ void packed_step(const packed_four *w, const float *x0, size_t K,
                                                   float (*acc)[4]) {
    LS_UNROLLED (m, M) {
        const float4 x = *(const float4 *)(x0 + (size_t)m * K);
        LS_UNROLLED (i, N / 4) {
            float *to = acc[i * M + m];
            to[0] = __fmaf_rn(w[i].w[0], x.x, to[0]);
            to[1] = __fmaf_rn(w[i].w[1], x.y, to[1]);
            to[2] = __fmaf_rn(w[i].w[2], x.z, to[2]);
            to[3] = __fmaf_rn(w[i].w[3], x.w, to[3]);
        }
    }
}

/* `S` blocks of Q8_0, whose loads are in flight at once. row: this thread's first output; rows of
 * the others are `across` bytes on. x0: this thread's four of the first block. */
template <int N, int M, int S>
static __device__ __forceinline__ void q8_0_blocks(const uint8_t *row, size_t across,
                                                   const float *x0, size_t K, float (*acc)[4]) {
    const int q = LS_LANE & 7;
    uint32_t word[S][N / 4];
    uint16_t d[S][N / 4];
    LS_UNROLLED (s, S)
        LS_UNROLLED (i, N / 4) {
            const uint8_t *b = row + (size_t)i * across + s * 34;
            const uint16_t *at = (const uint16_t *)(b + LS_Q8_0_Q) + 2 * q;
            d[s][i] = *(const uint16_t *)b;
            word[s][i] = (uint32_t)at[0] | (uint32_t)at[1] << 16;
        }
    LS_UNROLLED (s, S) {
        packed_four w[N / 4];
        LS_UNROLLED (i, N / 4)
            w[i] = four_q8(word[s][i] ^ 0x80808080u, part_of_f16(d[s][i]));
        packed_step<N, M>(w, x0 + s * 32, K, acc);
    }
}

/* Scale and minimum of part q = 0..7 of a block, from its first 16 bytes: as ls_q4_k_scale. */
static __device__ __forceinline__ ls_scale_min q4_k_scale(uint4 head, int q) {
    const int at = 8 * (q & 3);
    const uint32_t s = head.y >> at, m = head.z >> at, low = head.w >> at;
    ls_scale_min r;
    r.scale = __fmul_rn(part_of_f16((uint16_t)head.x),
                        (float)(q < 4 ? s & 63 : (low & 15) | (s >> 2 & 48)));
    r.min = __fmul_rn(part_of_f16((uint16_t)(head.x >> 16)),
                      (float)(q < 4 ? m & 63 : (low >> 4 & 15) | (m >> 2 & 48)));
    return r;
}

/* `S` blocks of Q4_K likewise, J of the four words of each in flight. Each thread of a group makes
 * the scale of one part and tells the others. */
template <int N, int M, int S, int J>
static __device__ __forceinline__ void q4_k_blocks(const uint8_t *row, size_t across,
                                                   const float *x0, size_t K, float (*acc)[4]) {
    static_assert(S == 1 || J == 4, "blocks are added one after the other");
    const int q = LS_LANE & 7;
    uint4 head[S][N / 4];
    LS_UNROLLED (s, S)
        LS_UNROLLED (i, N / 4)
            head[s][i] = *(const uint4 *)(row + (size_t)i * across + s * 144);
#pragma unroll 1
    for (int j0 = 0; j0 < 4; j0 += J) {
        uint32_t word[S][J][N / 4];
        LS_UNROLLED (s, S)
            LS_UNROLLED (j, J)
                LS_UNROLLED (i, N / 4) {
                    const uint8_t *b = row + (size_t)i * across + s * 144 + LS_Q4_K_Q;
                    word[s][j][i] = ((const uint32_t *)b)[8 * (j0 + j) + q];
                }
        LS_UNROLLED (s, S) {
            ls_scale_min own[N / 4];
            LS_UNROLLED (i, N / 4)
                own[i] = q4_k_scale(head[s][i], q);
            LS_UNROLLED (p, 2 * J) {
                const int part = 2 * j0 + p;
                packed_four w[N / 4];
                LS_UNROLLED (i, N / 4) {
                    const float scale = __shfl_sync(0xffffffffu, own[i].scale, part, 8);
                    const float min = __shfl_sync(0xffffffffu, own[i].min, part, 8);
                    const uint32_t two = word[s][p / 2][i];
                    w[i] = four_q4((p % 2 ? two >> 4 : two) & 0x0f0f0f0fu, scale, min);
                }
                packed_step<N, M>(w, x0 + s * 256 + part * 32, K, acc);
            }
        }
    }
}

/* Blocks of Q8_0, and words of Q4_K, in flight for M rows: as many as registers hold. */
#define Q8_0_BLOCKS_OF(M) ((M) < 3 ? 8 : (M) < 5 ? 2 : 1)
#define Q4_K_BLOCKS_OF(M) ((M) < 2 ? 2 : 1)
#define Q4_K_WORDS_OF(M) ((M) < 3 ? 4 : 1)

/* Segment k0 <= k < k1 of outputs n0, n0 + step, ... (N of them) and rows r0..: the first n_sums
 * sums, output by output, to block memory. N is a multiple of 4; k0 and k1 are of the block. */
template <int N, int M, int T>
static __device__ __forceinline__ void packed_sums(const ls_linear_args *a, int n0, int step,
                                                   int r0, int k0, int k1, float *to, int n_sums) {
    const ls_dtype t = (ls_dtype)T;
    const size_t K = (size_t)a->w.n_in, row = ls_dtype_span(t, K);
    const int g = LS_LANE >> 3, q = LS_LANE & 7, BYTES = (int)ls_dtype_bytes(t);
    const int BLOCK = (int)ls_dtype_block(t), n_blocks = (k1 - k0) / BLOCK;
    const int S = T == LS_Q8_0 ? Q8_0_BLOCKS_OF(M) : Q4_K_BLOCKS_OF(M), J = Q4_K_WORDS_OF(M);
    const uint8_t *w0 =
        (const uint8_t *)a->w.data + (size_t)(n0 + g * step) * row + ls_dtype_span(t, (size_t)k0);
    const float *x0 = a->x + (size_t)r0 * K + (size_t)k0 + 4 * q;
    const size_t across = (size_t)(4 * step) * row;
    float acc[N / 4 * M][4];
    LS_UNROLLED (i, N / 4 * M)
        LS_UNROLLED (j, 4)
            acc[i][j] = 0.0f;
    int b = 0;
    for (; b + S <= n_blocks; b += S)
        if constexpr (T == LS_Q8_0)
            q8_0_blocks<N, M, S>(w0 + b * BYTES, across, x0 + b * BLOCK, K, acc);
        else
            q4_k_blocks<N, M, S, J>(w0 + b * BYTES, across, x0 + b * BLOCK, K, acc);
    for (; S > 1 && b < n_blocks; b++)
        if constexpr (T == LS_Q8_0)
            q8_0_blocks<N, M, 1>(w0 + b * BYTES, across, x0 + b * BLOCK, K, acc);
        else
            q4_k_blocks<N, M, 1, J>(w0 + b * BYTES, across, x0 + b * BLOCK, K, acc);
    LS_UNROLLED (i, N / 4)
        LS_UNROLLED (m, M) {
            float *v = acc[i * M + m];
            LS_UNROLL
            for (int o = 4; o > 0; o >>= 1)
                LS_UNROLLED (j, 4)
                    v[j] = __fadd_rn(v[j], __shfl_xor_sync(0xffffffffu, v[j], o));
            const float sum = __fadd_rn(__fadd_rn(v[0], v[2]), __fadd_rn(v[1], v[3]));
            const int at = (g + 4 * i) * M + m;
            if (q == (i * M + m) % 8 && at < n_sums) /* all eight know it: they take turns */
                to[at] = sum;
        }
}

#endif
