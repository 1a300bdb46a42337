/* cuda_rounded.h - pieces of rows stored with their copy rounded to bf16 beside them (x16 of
 * cuda_mma.h).
 * Bits    of the bodies; the copy is a rounding of what is stored. */
#ifndef LS_CUDA_ROUNDED_H
#define LS_CUDA_ROUNDED_H

#include "tile.h"

#include "cuda.h"
#include "cuda_mma.h"

/* Stores lane values of elements k.. of a row of n, and rounded. */
LS_FN void cuda_put_rounded(float *y, uint16_t *x16, int k, int n, lane_f32 v) {
    lane_store_n(y + k, n - k, v);
    if (x16)
        x16[LS_MMA_AT(k + LS_LANE)] = cuda_bf16(k + LS_LANE < n ? v.p[0] : 0.0f);
}
LS_FN size_t cuda_rounded_ld(int n) {
    return (size_t)((n + 31) / 32 * 32);
}

#endif
