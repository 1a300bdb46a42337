/* convert.h - half precisions to and from f32, in integer operations alone, for both compilers.
 * Exactness   widening is exact; narrowing rounds to nearest, ties to even; overflow gives
 *             infinity; a NaN stays a (quiet) NaN. */
#ifndef LS_CONVERT_H
#define LS_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "shape.h"

LS_SHARED_FN float ls_f32_of_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

LS_SHARED_FN float ls_f32_of_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u;
    uint32_t u;
    float f;
    if (e == 0) { /* zero or denormal: m * 2^-24 is exact in f32 */
        f = (float)m * 0x1p-24f;
        memcpy(&u, &f, sizeof u);
        u |= sign;
    } else if (e == 31) {
        u = sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0u);
    } else {
        u = sign | (e + 112u) << 23 | m << 13;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}

LS_SHARED_FN uint16_t ls_bf16_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

LS_SHARED_FN uint16_t ls_f16_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    const uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a >= 0x38800000u) /* normal in f16 */
        return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
    if (a < 0x33000000u) /* below half of the smallest denormal */
        return (uint16_t)sign;
    const uint32_t shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
    const uint32_t q = m >> shift, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return (uint16_t)(sign | (q + (rest > half || (rest == half && (q & 1u)))));
}

#endif
