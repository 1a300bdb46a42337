/* packed.h - weights kept in memory as the blocks of a GGUF file: where a block's fields lie.
 * Q8_0       32 elements in 34 bytes: d f16; q 32 x i8.                      w = q d
 * Q4_K       256 elements in 144 bytes: d f16; dmin f16; for 8 parts of 32 a scale s and a minimum
 *            m, six bits each, in 12 bytes; q in 128 bytes: each 32 hold the lower halves for one
 *            part, the upper halves for the next.                  w = (d s) q - (dmin m)
 * Exactness  in f32 every product is exact (11 bits times 8; 11 times 6 times 4), so the difference
 *            is the one rounding, as a subtraction or as a fma.  (N-PACK)
 * Alignment  none is asked for: files may lay blocks anywhere. */
#ifndef LS_PACKED_H
#define LS_PACKED_H

#include <stdint.h>
#include <string.h>

#include "convert.h"

#define LS_Q8_0_Q 2
#define LS_Q4_K_SCALES 4
#define LS_Q4_K_Q 16

LS_SHARED_FN uint16_t ls_u16_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

typedef struct ls_six_bits { /* s and m of a part of Q4_K */
    int scale, min;
} ls_six_bits;

/* Of part 0..7 of a block. The upper four keep their low bits in the last four bytes and their high
 * bits on top of the lower four's. */
LS_SHARED_FN ls_six_bits ls_q4_k_six(const uint8_t *block, int part) {
    const uint8_t *s = block + LS_Q4_K_SCALES;
    const int i = part & 3;
    ls_six_bits r;
    r.scale = part < 4 ? s[i] & 63 : (s[8 + i] & 15) | s[i] >> 6 << 4;
    r.min = part < 4 ? s[4 + i] & 63 : s[8 + i] >> 4 | s[4 + i] >> 6 << 4;
    return r;
}

typedef struct ls_scale_min { /* d s and dmin m of a part of Q4_K */
    float scale, min;
} ls_scale_min;

LS_SHARED_FN ls_scale_min ls_q4_k_scale(const uint8_t *block, int part) {
    const ls_six_bits six = ls_q4_k_six(block, part);
    ls_scale_min r;
    r.scale = ls_f32_of_f16(ls_u16_at(block)) * (float)six.scale;
    r.min = ls_f32_of_f16(ls_u16_at(block + 2)) * (float)six.min;
    return r;
}

#endif
