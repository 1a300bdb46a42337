/* linear.body.h - y = W x (N-LIN), a tile of outputs for a tile of rows.
 * Order   K is cut into segments of LS_SEGMENT. In a segment lane l adds k = l, l + 32, ... by fma
 *         from +0; the lanes meet in the butterfly; segment sums are added in ascending order, the
 *         first one starts the sum; `add` comes last. A step past K reads +0 on both sides.
 * Tile    N outputs and M rows, P parts of a warp at a time: loop bounds for registers and caches,
 *         and no more. Every (output, row) has accumulators of its own, so the tile is not in the
 *         result. Rows share the weight loads. LS_LINEAR_TILES of the tile language lists them.
 * Cost    n_out * n_in weights read once a call, n_out * n_in * rows fma. */
#ifndef LS_LINEAR_BODY_H
#define LS_LINEAR_BODY_H

#include "backend.h"
#include "linear_packed.body.h"
#include "tile.h"

/* Rows of the next tile when `left` rows are left. */
LS_FN int ls_linear_take(int left) {
    int m = 1;
#define LS_LINEAR_FITS(M, N, P) m = M <= left && M > m ? M : m;
    LS_LINEAR_TILES(LS_LINEAR_FITS)
    return m;
}

/* Lane sums of one segment, k0 <= k < k1, of outputs n0, n0 + step, ... and rows r0..:
 * sum[n * M + m]. */
LS_FN void ls_linear_segment(const ls_linear_args *a, int n0, int step, int r0, int k0, int k1,
                             const int N, const int M, const int P, const ls_dtype t, float *sum) {
    const size_t K = (size_t)a->w.n_in, across = (size_t)step * K, w0 = (size_t)n0 * K;
    const float *x0 = a->x + (size_t)r0 * K;
    const int whole = k0 + (k1 - k0) / LS_LANES * LS_LANES;
    lane_f32 lanes[LS_LINEAR_TILE];

    for (int p0 = 0; p0 < LS_PARTS; p0 += P) {
        part_f32 acc[LS_LINEAR_TILE * LS_LINEAR_PARTS];
        LS_UNROLLED (i, N * M * P)
            acc[i] = part_set(0.0f);
        for (int k = k0; k < whole; k += LS_LANES) {
            /* each part a share of the lines; one row alone is read fastest without */
            if (M > 1 && (P == LS_PARTS || (k / LS_LANES) % LS_PARTS == p0))
                LS_UNROLLED (n, N)
                    part_prefetch((const char *)a->w.data +
                                  (w0 + (size_t)n * across + (size_t)k) * ls_dtype_bytes(t) +
                                  LS_LINEAR_AHEAD);
            LS_UNROLLED (p, P) {
                part_f32 w[LS_LINEAR_TILE];
                LS_UNROLLED (n, N)
                    w[n] = part_load(a->w.data, w0 + (size_t)n * across + (size_t)k, t, p0 + p);
                LS_UNROLLED (m, M) {
                    part_f32 x = part_load(x0 + (size_t)m * K, (size_t)k, LS_F32, p0 + p);
                    if (M > 1)
                        LS_HOLD(x); /* one load for all outputs */
                    LS_UNROLLED (n, N)
                        acc[(n * M + m) * P + p] = part_fma(w[n], x, acc[(n * M + m) * P + p]);
                }
            }
        }
        if (whole < k1) /* the last, partial step of a K that is no multiple of 32 */
            LS_UNROLLED (p, P)
                LS_UNROLLED (i, N * M) {
                    const size_t n = (size_t)(i / M), m = (size_t)(i % M), k = (size_t)whole;
                    const part_f32 w =
                        part_load_n(a->w.data, w0 + n * across + k, k1 - whole, t, p0 + p);
                    const part_f32 x = part_load_n(x0 + m * K, k, k1 - whole, LS_F32, p0 + p);
                    acc[i * P + p] = part_fma(w, x, acc[i * P + p]);
                }
        LS_UNROLLED (i, N * M)
            LS_UNROLLED (p, P)
                lanes[i].p[p0 + p] = acc[i * P + p];
    }
    LS_UNROLL
    for (int i = 0; i < N * M; i += 8)
        lane_sums_parts(lanes[i].p, N * M - i < 8 ? N * M - i : 8, sum + i);
}

/* Outputs n, n + step, ... (N of them) for rows r .. r + M - 1: all segments, then `add`. Rows that
 * the registers do not hold go in two halves, one segment after the other: the second finds the
 * weights in the nearest cache, and its work hides the loads of what comes next. */
LS_FN void ls_linear_tile(const ls_linear_args *a, int n0, int step, int r0, const int N,
                          const int M, const int P, const ls_dtype t) {
    const int H = N * M > LS_LINEAR_TILE ? 2 : 1, MH = M / H;
    float total[2][LS_LINEAR_TILE] = {{0}}, sum[LS_LINEAR_TILE + 7]; /* sums come in groups of 8 */
    for (int k0 = 0; k0 < a->w.n_in; k0 += LS_SEGMENT)
        for (int h = 0; h < H; h++) {
            const int k1 = ls_min_i(a->w.n_in, k0 + LS_SEGMENT);
            if (ls_dtype_block(t) > 1)
                ls_linear_segment_packed(a, n0, step, r0 + h * MH, k0, k1, N, MH, P, t, sum);
            else
                ls_linear_segment(a, n0, step, r0 + h * MH, k0, k1, N, MH, P, t, sum);
            float *y = total[h];
            LS_UNROLLED (i, N * MH)
                y[i] = k0 == 0 ? sum[i] : y[i] + sum[i];
        }
    const size_t ld = (size_t)a->w.n_out, at = (size_t)r0 * ld + (size_t)n0;
    float *to = a->y + at;
    const float *add = a->add ? a->add + at : NULL;
    LS_LANE0 {
        for (int r = 0; r < M; r++, to += ld, add += add ? ld : 0)
            LS_UNROLLED (n, N) {
                const float v = total[r / MH][n * MH + r % MH];
                to[n * step] = add ? v + add[n * step] : v;
            }
    }
}

/* Outputs [n0, n1) for M rows. The outputs of a tile lie `step` apart: N streams, each of whole
 * consecutive rows, are what the hardware prefetches best. */
LS_FN void ls_linear_rows(const ls_linear_args *a, int n0, int n1, int r, const int N, const int M,
                          const int P, const ls_dtype t) {
    const int step = (n1 - n0) / N;
    for (int n = n0; n < n0 + step; n++)
        ls_linear_tile(a, n, step, r, N, M, P, t);
    for (int n = n0 + step * N; n < n1; n++)
        ls_linear_tile(a, n, 0, r, 1, M, P, t);
}

/* One function for each tile and storage type: both are constants inside it. */
#define LS_LINEAR_INSTANCE(M, N, P, T)                                                          \
    LS_INSTANCE void ls_linear_rows_##M##_##T(const ls_linear_args *a, int n0, int n1, int r) { \
        ls_linear_rows(a, n0, n1, r, N, M, P, T);                                               \
    }
#define LS_LINEAR_INSTANCES(M, N, P)                                                \
    LS_LINEAR_INSTANCE(M, N, P, LS_F32)                                             \
    LS_LINEAR_INSTANCE(M, N, P, LS_BF16)                                            \
    LS_LINEAR_INSTANCE(M, N, P, LS_F16)                                             \
    LS_LINEAR_INSTANCE(M, N, P, LS_Q8_0)                                            \
    LS_LINEAR_INSTANCE(M, N, P, LS_Q4_K)                                            \
    LS_FN void ls_linear_rows_##M(const ls_linear_args *a, int n0, int n1, int r) { \
        if (a->w.dtype == LS_F32)                                                   \
            ls_linear_rows_##M##_LS_F32(a, n0, n1, r);                              \
        else if (a->w.dtype == LS_BF16)                                             \
            ls_linear_rows_##M##_LS_BF16(a, n0, n1, r);                             \
        else if (a->w.dtype == LS_F16)                                              \
            ls_linear_rows_##M##_LS_F16(a, n0, n1, r);                              \
        else if (a->w.dtype == LS_Q8_0)                                             \
            ls_linear_rows_##M##_LS_Q8_0(a, n0, n1, r);                             \
        else                                                                        \
            ls_linear_rows_##M##_LS_Q4_K(a, n0, n1, r);                             \
    }
LS_LINEAR_TILES(LS_LINEAR_INSTANCES)

/* Outputs [n0, n1) for rows [r0, r1), a tile of rows after the other: the weights of a block come
 * from memory once and then from the cache. */
LS_FN void ls_body_linear(const ls_linear_args *a, int n0, int n1, int r0, int r1) {
    for (int r = r0, m; r < r1; r += m) {
        m = ls_linear_take(r1 - r);
        switch (m) {
#define LS_LINEAR_CASE(M, N, P)           \
    case M:                               \
        ls_linear_rows_##M(a, n0, n1, r); \
        break;
            LS_LINEAR_TILES(LS_LINEAR_CASE)
        }
    }
}

#endif
