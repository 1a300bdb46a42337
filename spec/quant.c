#include "quant.h"

#include <string.h>

#include "convert.h"

static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

static float half_at(const uint8_t *p) {
    return ls_f32_of_f16((uint16_t)u16_at(p));
}

/* ---- plain numbers --------------------------------------------------------------------------- */

static void widen_f32(const uint8_t *b, float *y) {
    const uint32_t u = u32_at(b);
    memcpy(y, &u, sizeof *y);
}

static void widen_f16(const uint8_t *b, float *y) {
    *y = half_at(b);
}

static void widen_bf16(const uint8_t *b, float *y) {
    *y = ls_f32_of_bf16((uint16_t)u16_at(b));
}

/* ---- blocks of 32: a scale d, a minimum m in some, then 4 low bits each, elements i and i + 16 in
 * one byte, and a fifth bit each in some ------------------------------------------------------- */

static void widen_q8_0(const uint8_t *b, float *y) { /* d, 32 x i8 */
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

static int low4(const uint8_t *q, int i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

static void widen_q4_0(const uint8_t *b, float *y) { /* d, 16 x u8 */
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(low4(b + 2, i) - 8);
}

static void widen_q4_1(const uint8_t *b, float *y) { /* d, m, 16 x u8 */
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)low4(b + 4, i) + m;
}

static int five(const uint8_t *q, uint32_t high, int i) {
    return low4(q, i) | (int)(high >> i & 1) << 4;
}

static void widen_q5_0(const uint8_t *b, float *y) { /* d, 32 fifth bits, 16 x u8 */
    const float d = half_at(b);
    const uint32_t high = u32_at(b + 2);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(five(b + 6, high, i) - 16);
}

static void widen_q5_1(const uint8_t *b, float *y) { /* d, m, 32 fifth bits, 16 x u8 */
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t high = u32_at(b + 4);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)five(b + 8, high, i) + m;
}

/* ---- blocks of 256: small scales of parts of 16 or 32 elements under one or two halves ------- */

/* Two bits of element i from 64 bytes: each 32 bytes hold 128 elements, 32 a pair of bits. */
static int two_bits(const uint8_t *q, int i) {
    return q[(i >> 7) * 32 + (i & 31)] >> ((i >> 5 & 3) * 2) & 3;
}

/* Four bits of element i from 128 bytes: each 32 bytes hold 64 elements, 32 a half byte. */
static int four_bits(const uint8_t *q, int i) {
    return q[(i >> 6) * 32 + (i & 31)] >> ((i >> 5 & 1) * 4) & 15;
}

static void widen_q2_k(const uint8_t *b, float *y) { /* 16 x (scale, min), 64 x u8, d, dmin */
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int part = 0; part < 16; part++) {
        const float dl = d * (float)(b[part] & 15), ml = dmin * (float)(b[part] >> 4);
        for (int i = part * 16; i < part * 16 + 16; i++)
            y[i] = dl * (float)two_bits(b + 16, i) - ml;
    }
}

/* Scale of part 0..15 from 12 bytes: 4 low bits in bytes 0..7, 2 high bits in bytes 8..11. */
static int scale6(const uint8_t *s, int part) {
    const int low = part < 8 ? s[part] & 15 : s[part - 8] >> 4;
    return (low | (s[8 + (part & 3)] >> (part >> 2) * 2 & 3) << 4) - 32;
}

static void widen_q3_k(const uint8_t *b, float *y) { /* 32 x u8 third bits, 64 x u8, scales, d */
    const float d = half_at(b + 108);
    for (int part = 0; part < 16; part++) {
        const float dl = d * (float)scale6(b + 96, part);
        for (int i = part * 16; i < part * 16 + 16; i++) {
            const int lacks = ~(b[i & 31] >> (i >> 5)) & 1; /* the third bit counts when it is 0 */
            y[i] = dl * (float)(two_bits(b + 32, i) - lacks * 4);
        }
    }
}

/* Scale and minimum of part 0..7 from 12 bytes: six bits each; the upper four parts keep their low
 * bits in bytes 8..11 and their high bits on top of the lower parts' bytes. */
static void scale_min(const uint8_t *s, int part, int *scale, int *min) {
    if (part < 4) {
        *scale = s[part] & 63;
        *min = s[part + 4] & 63;
    } else {
        *scale = (s[part + 4] & 15) | (s[part - 4] >> 6) << 4;
        *min = s[part + 4] >> 4 | (s[part] >> 6) << 4;
    }
}

static void widen_q4_k(const uint8_t *b, float *y) { /* d, dmin, scales, 128 x u8 */
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int part = 0; part < 8; part++) {
        int scale, min;
        scale_min(b + 4, part, &scale, &min);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int i = part * 32; i < part * 32 + 32; i++)
            y[i] = dl * (float)four_bits(b + 16, i) - ml;
    }
}

static void widen_q5_k(const uint8_t *b, float *y) { /* d, dmin, scales, 32 x u8 fifth, 128 x u8 */
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int part = 0; part < 8; part++) {
        int scale, min;
        scale_min(b + 4, part, &scale, &min);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int i = part * 32; i < part * 32 + 32; i++) {
            const int high = b[16 + (i & 31)] >> part & 1;
            y[i] = dl * (float)(four_bits(b + 48, i) | high << 4) - ml;
        }
    }
}

static void widen_q6_k(const uint8_t *b, float *y) { /* 128 x u8, 64 x u8 high, 16 x i8, d */
    const float d = half_at(b + 208);
    for (int part = 0; part < 16; part++) {
        const float dl = d * (float)(int8_t)b[192 + part];
        for (int i = part * 16; i < part * 16 + 16; i++) {
            /* each 64 bytes hold 128 elements, 64 a half byte */
            const int low = b[(i >> 7) * 64 + (i & 63)] >> ((i >> 6 & 1) * 4) & 15;
            y[i] = dl * (float)((low | two_bits(b + 128, i) << 4) - 32);
        }
    }
}

/* ---- any of them ----------------------------------------------------------------------------- */

static void (*const widen[LS_GGML_N_TYPES])(const uint8_t *block, float *y) = {
    [LS_GGML_F32] = widen_f32,   [LS_GGML_F16] = widen_f16,   [LS_GGML_BF16] = widen_bf16,
    [LS_GGML_Q8_0] = widen_q8_0, [LS_GGML_Q4_0] = widen_q4_0, [LS_GGML_Q4_1] = widen_q4_1,
    [LS_GGML_Q5_0] = widen_q5_0, [LS_GGML_Q5_1] = widen_q5_1, [LS_GGML_Q2_K] = widen_q2_k,
    [LS_GGML_Q3_K] = widen_q3_k, [LS_GGML_Q4_K] = widen_q4_k, [LS_GGML_Q5_K] = widen_q5_k,
    [LS_GGML_Q6_K] = widen_q6_k,
};

bool ls_quant_known(uint32_t type) {
    return type < LS_GGML_N_TYPES && widen[type];
}

ls_status ls_quant_widen(uint32_t type, const uint8_t *src, size_t n_bytes, float *dst,
                         size_t n_elems, ls_err *err) {
    uint32_t block = 1, bytes = 1;
    const char *name = ls_ggml_type(type, &block, &bytes);
    if (!ls_quant_known(type))
        return ls_fail(err, LS_ERR_INPUT, "numbers of type %s cannot be widened",
                       name ? name : "unknown");
    const size_t n = n_elems / block;
    if (n_elems % block != 0 || n_bytes % bytes != 0 || n_bytes / bytes != n)
        return ls_fail(err, LS_ERR_SHAPE, "%zu elements of %s do not fill %zu bytes", n_elems, name,
                       n_bytes);
    for (size_t i = 0; i < n; i++)
        widen[type](src + i * bytes, dst + i * block);
    return LS_OK;
}
