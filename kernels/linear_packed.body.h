/* linear_packed.body.h - a segment of N-LIN over packed weights (packed.h, N-PACK): they become f32
 * in registers, then the same lanes, the same order of fma and the same butterfly.
 * Tile    as in linear.body.h: all rows of the tile share a weight that was made once.
 * Scales  a step of 32 is one block of Q8_0 and one part of a Q4_K block. Those of Q4_K are made
 *         for the segment first; a byte of its q serves two steps. */
#ifndef LS_LINEAR_PACKED_BODY_H
#define LS_LINEAR_PACKED_BODY_H

#include "backend.h"
#include "tile.h"

/* As ls_linear_segment. k0 and k1 are multiples of the block. */
LS_FN void ls_linear_segment_packed(const ls_linear_args *a, int n0, int step, int r0, int k0,
                                    int k1, const int N, const int M, const int P, const ls_dtype t,
                                    float *sum) {
    const int BLOCK = (int)ls_dtype_block(t), BYTES = (int)ls_dtype_bytes(t);
    const int TURNS = t == LS_Q4_K ? 2 : 1; /* steps a byte of q serves */
    const size_t K = (size_t)a->w.n_in, row = ls_dtype_span(t, K), across = (size_t)step * row;
    const uint8_t *w0 =
        (const uint8_t *)a->w.data + (size_t)n0 * row + ls_dtype_span(t, (size_t)k0);
    const float *x0 = a->x + (size_t)r0 * K + (size_t)k0;
    const int n_blocks = (k1 - k0) / BLOCK;
    lane_f32 lanes[LS_LINEAR_TILE];
    float scale[LS_LINEAR_TILE][LS_SEGMENT / 256][16];

    if (t == LS_Q4_K)
        for (int b = 0; b < n_blocks; b++)
            LS_UNROLLED (n, N)
                ls_q4_k_scales(w0 + (size_t)n * across + (size_t)(b * BYTES), scale[n][b]);
    for (int p0 = 0; p0 < LS_PARTS; p0 += P) {
        part_f32 acc[LS_LINEAR_TILE * LS_LINEAR_PARTS];
        LS_UNROLLED (i, N * M * P)
            acc[i] = part_set(0.0f);
        for (int b = 0; b < n_blocks; b++)
            for (int j = 0; j < BLOCK / 32 / TURNS; j++) {
                const uint8_t *q =
                    w0 + (size_t)(b * BYTES) + (t == LS_Q4_K ? LS_Q4_K_Q : LS_Q8_0_Q) + j * 32;
                if (p0 == 0)
                    LS_UNROLLED (n, N)
                        part_prefetch(q + (size_t)n * across + LS_LINEAR_AHEAD);
                LS_UNROLLED (turn, TURNS) {
                    const int part = j * TURNS + turn;
                    const float *x1 = x0 + b * BLOCK + part * 32;
                    ls_q4 value[LS_LINEAR_TILE];
                    part_f32 d[LS_LINEAR_TILE], w[LS_LINEAR_TILE];
                    LS_UNROLLED (n, N)
                        if (t == LS_Q4_K)
                            value[n] = part_q4(scale[n][b][part], scale[n][b][8 + part]);
                        else
                            d[n] = part_set_f16(q + (size_t)n * across - LS_Q8_0_Q);
                    LS_UNROLLED (p, P) {
                        LS_UNROLLED (n, N)
                            if (t == LS_Q4_K)
                                w[n] = part_load_q4(q + (size_t)n * across, turn, value[n], p0 + p);
                            else
                                w[n] = part_mul(part_load_i8(q + (size_t)n * across, p0 + p), d[n]);
                        LS_UNROLLED (m, M) {
                            part_f32 x = part_load(x1 + (size_t)m * K, 0, LS_F32, p0 + p);
                            if (M > 1)
                                LS_HOLD(x); /* one load for all outputs */
                            LS_UNROLLED (n, N)
                                acc[(n * M + m) * P + p] =
                                    part_fma(w[n], x, acc[(n * M + m) * P + p]);
                        }
                    }
                }
            }
        LS_UNROLLED (i, N * M)
            LS_UNROLLED (p, P)
                lanes[i].p[p0 + p] = acc[i * P + p];
    }
    LS_UNROLL
    for (int i = 0; i < N * M; i += 8)
        lane_sums_parts(lanes[i].p, N * M - i < 8 ? N * M - i : 8, sum + i);
}

#endif
