/* norm.body.h - RMSNorm of one row (N-NORM): y = x / sqrt(mean(x^2) + eps) * w (+ add).
 * Order   the sum of squares in the lane and segment order of N-LIN; the mean is sum / D, then
 *         x / s, then times w, then + add where it is given, each rounded.
 * Block   a row; warps share its segments. Barrier 1 publishes the segment sums, barrier 2 keeps
 *         the next row from overwriting them while a warp still reads. */
#ifndef LS_NORM_BODY_H
#define LS_NORM_BODY_H

#include "backend.h"
#include "tile.h"

typedef struct ls_norm_mem {
    float sum[LS_NORM_SEGMENTS];
} ls_norm_mem;

/* What the row is divided by; the block's warps share the segments. */
LS_FN float ls_norm_root(const float *x, int D, float eps, ls_norm_mem *mem) {
    const int n_seg = ls_ceil_div(D, LS_SEGMENT);
    LS_WARPS (s, n_seg) {
        lane_f32 acc = lane_set(0.0f);
        const int k1 = ls_min_i(D, (s + 1) * LS_SEGMENT);
        for (int k = s * LS_SEGMENT; k < k1; k += LS_LANES) {
            const lane_f32 v = lane_load_n(x, (size_t)k, k1 - k, LS_F32);
            acc = lane_fma(v, v, acc);
        }
        const float sum = lane_sum(acc);
        LS_LANE0 mem->sum[s] = sum;
    }
    LS_BARRIER();
    float total = mem->sum[0];
    for (int s = 1; s < n_seg; s++)
        total = total + mem->sum[s];
    return ls_sqrt(total / (float)D + eps);
}
LS_FN lane_f32 ls_norm_of(lane_f32 x, lane_f32 root, lane_f32 w) {
    return lane_mul(lane_div(x, root), w);
}

LS_FN void ls_body_rmsnorm(const ls_rmsnorm_args *a, int r, ls_norm_mem *mem) {
    const int D = a->dim;
    const float *x = a->x + (size_t)r * (size_t)D;
    float *y = a->y + (size_t)r * (size_t)D;
    const float *add = a->add ? a->add + (size_t)r * (size_t)D : NULL;
    const lane_f32 root = lane_set(ls_norm_root(x, D, a->eps, mem));
    LS_WARPS (i, ls_ceil_div(D, LS_LANES)) {
        const int k = i * LS_LANES, n = D - k;
        const lane_f32 w = lane_load_n(a->w, (size_t)k, n, a->w_dtype);
        lane_f32 v = ls_norm_of(lane_load_n(x, (size_t)k, n, LS_F32), root, w);
        if (add)
            v = lane_add(v, lane_load_n(add, (size_t)k, n, LS_F32));
        lane_store_n(y + k, n, v);
    }
    LS_BARRIER();
}

#endif
