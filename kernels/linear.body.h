/* linear.body.h - y = W x (N-LIN), a tile of outputs for a tile of rows.
 * Order   K is cut into segments of LS_SEGMENT. In a segment lane l adds k = l, l + 32, ... by fma
 *         from +0; the lanes meet in the butterfly; segment sums are added in ascending order, the
 *         first one starts the sum; `add` comes last. A step past K reads +0 on both sides.
 * Tile    N outputs and M rows, P parts of a warp at a time: loop bounds for registers and caches,
 *         and no more. Every (output, row) has accumulators of its own, so the tile is not in the
 *         result. Rows share the weight loads.
 * Cost    n_out * n_in weights read once a call, n_out * n_in * rows fma. */
#ifndef LS_LINEAR_BODY_H
#define LS_LINEAR_BODY_H

#include "backend.h"
#include "tile.h"

#define LS_LINEAR_PASS 8 /* most rows a block handles at once */

/* Rows of the next tile when `left` rows are left. */
LS_FN int ls_linear_take(int left) {
    int m = 1;
#define LS_LINEAR_FITS(M, N, P) m = M <= left && M > m ? M : m;
    LS_LINEAR_TILES(LS_LINEAR_FITS)
    return m;
}

/* Lane sums of one segment, k0 <= k < k1, of outputs n0.. and rows r0..: sum[n * M + m]. `ahead` is
 * how many weights further the prefetch looks. */
LS_FN void ls_linear_segment(const ls_linear_args *a, int n0, int r0, int k0, int k1, size_t ahead,
                             const int N, const int M, const int P, const ls_dtype t, float *sum) {
    const size_t K = (size_t)a->w.n_in;
    const size_t w0 = (size_t)n0 * K;
    const float *x0 = a->x + (size_t)r0 * K;
    const int whole = k0 + (k1 - k0) / LS_LANES * LS_LANES;
    lane_f32 lanes[LS_LINEAR_TILE];

    for (int p0 = 0; p0 < LS_PARTS; p0 += P) {
        part_f32 acc[LS_LINEAR_TILE * LS_LINEAR_PARTS];
        LS_UNROLL for (int i = 0; i < N * M * P; i++) acc[i] = part_set(0.0f);
        for (int k = k0; k < whole; k += LS_LANES) {
            if (ahead && (P == LS_PARTS || (k / LS_LANES & 3) == p0))
                LS_UNROLL for (int n = 0; n < N; n++) part_prefetch(
                    (const char *)a->w.data + (w0 + ahead + (size_t)n * K + (size_t)k) * ls_dtype_bytes(t));
            LS_UNROLL for (int p = 0; p < P; p++) {
                part_f32 w[LS_LINEAR_TILE];
                LS_UNROLL for (int n = 0; n < N; n++) w[n] =
                    part_load(a->w.data, w0 + (size_t)n * K + (size_t)k, t, p0 + p);
                LS_UNROLL for (int m = 0; m < M; m++) {
                    const part_f32 x = part_load(x0 + (size_t)m * K, (size_t)k, LS_F32, p0 + p);
                    LS_UNROLL for (int n = 0; n < N; n++) acc[(n * M + m) * P + p] =
                        part_fma(w[n], x, acc[(n * M + m) * P + p]);
                }
            }
        }
        if (whole < k1) /* the last, partial step of a K that is no multiple of 32 */
            LS_UNROLL for (int p = 0; p < P; p++) LS_UNROLL for (int i = 0; i < N * M; i++) {
                const int n = i / M, m = i % M;
                const part_f32 w = part_load_n(a->w.data, w0 + (size_t)n * K + (size_t)whole,
                                               k1 - whole, t, p0 + p);
                const part_f32 x =
                    part_load_n(x0 + (size_t)m * K, (size_t)whole, k1 - whole, LS_F32, p0 + p);
                acc[i * P + p] = part_fma(w, x, acc[i * P + p]);
            }
        LS_UNROLL for (int i = 0; i < N * M; i++)
            LS_UNROLL for (int p = 0; p < P; p++) lanes[i].p[p0 + p] = acc[i * P + p];
    }
    LS_UNROLL for (int i = 0; i < N * M; i += 8)
        lane_sums_parts(lanes[i].p, N * M - i < 8 ? N * M - i : 8, sum + i);
}

/* One segment of outputs [n0, n1) for M rows, added to y[output - n0, row - r0]. */
LS_FN void ls_linear_rows(const ls_linear_args *a, int n0, int n1, int r0, int r, int k0, const int N,
                          const int M, const int P, const ls_dtype t, float *y) {
    const int k1 = ls_min_i(a->w.n_in, k0 + LS_SEGMENT);
    float sum[LS_LINEAR_TILE];
    for (int n = n0; n < n1;) {
        const int tile = n1 - n >= N ? N : 1;
        if (tile == N)
            ls_linear_segment(a, n, r, k0, k1, r == r0 ? (size_t)N * (size_t)a->w.n_in : 0, N, M, P,
                              t, sum);
        else
            ls_linear_segment(a, n, r, k0, k1, 0, 1, M, P, t, sum);
        for (int i = 0; i < tile * M; i++) {
            float *to = y + (n - n0 + i / M) * LS_LINEAR_PASS + (r - r0 + i % M);
            *to = k0 == 0 ? sum[i] : *to + sum[i];
        }
        n += tile;
    }
}

/* One function for each tile and storage type: both are constants inside it. */
#define LS_LINEAR_INSTANCE(M, N, P, T)                                                             \
    LS_INSTANCE void ls_linear_rows_##M##_##T(const ls_linear_args *a, int n0, int n1, int r0,     \
                                              int r, int k0, float *y) {                           \
        ls_linear_rows(a, n0, n1, r0, r, k0, N, M, P, T, y);                                       \
    }
#define LS_LINEAR_INSTANCES(M, N, P)                                                               \
    LS_LINEAR_INSTANCE(M, N, P, LS_F32)                                                            \
    LS_LINEAR_INSTANCE(M, N, P, LS_BF16)                                                           \
    LS_LINEAR_INSTANCE(M, N, P, LS_F16)                                                            \
    LS_FN void ls_linear_rows_##M(const ls_linear_args *a, int n0, int n1, int r0, int r, int k0,  \
                                  float *y) {                                                      \
        if (a->w.dtype == LS_F32)                                                                  \
            ls_linear_rows_##M##_LS_F32(a, n0, n1, r0, r, k0, y);                                  \
        else if (a->w.dtype == LS_BF16)                                                            \
            ls_linear_rows_##M##_LS_BF16(a, n0, n1, r0, r, k0, y);                                 \
        else                                                                                       \
            ls_linear_rows_##M##_LS_F16(a, n0, n1, r0, r, k0, y);                                  \
    }
LS_LINEAR_TILES(LS_LINEAR_INSTANCES)

/* Outputs [n0, n1), at most LS_LINEAR_BLOCK, for rows [r0, r1), at most LS_LINEAR_PASS. Segments are
 * the outer loop: a segment of a few rows of x stays in the nearest cache. */
LS_FN void ls_body_linear(const ls_linear_args *a, int n0, int n1, int r0, int r1) {
    float y[LS_LINEAR_BLOCK * LS_LINEAR_PASS];
    for (int k0 = 0; k0 < a->w.n_in; k0 += LS_SEGMENT)
        for (int r = r0, m; r < r1; r += m) {
            m = ls_linear_take(r1 - r);
            switch (m) {
#define LS_LINEAR_CASE(M, N, P)                                                                    \
    case M:                                                                                        \
        ls_linear_rows_##M(a, n0, n1, r0, r, k0, y);                                               \
        break;
                LS_LINEAR_TILES(LS_LINEAR_CASE)
            }
        }
    LS_LANE0 for (int r = r0; r < r1; r++) for (int n = n0; n < n1; n++) {
        const size_t at = (size_t)r * (size_t)a->w.n_out + (size_t)n;
        const float v = y[(n - n0) * LS_LINEAR_PASS + (r - r0)];
        a->y[at] = a->add ? v + a->add[at] : v;
    }
}

#endif
