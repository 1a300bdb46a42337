/* tile_plain.h - the tile language in plain C: part_f32 is a struct of 32 floats and a lane_f32 one
 * part. The reference form: what each operation means, lane by lane. Contract: tile.h. */
#ifndef LS_TILE_PLAIN_H
#define LS_TILE_PLAIN_H

#include <math.h>

#include "convert.h"
#include "packed.h"

#ifdef __SANITIZE_ADDRESS__ /* instrumented, these loops take minutes to compile when inlined */
#define LS_FN static __attribute__((noinline, unused))
#else
#define LS_FN static inline __attribute__((unused))
#endif
/* a body specialised for constants: a function of its own */
#define LS_INSTANCE static __attribute__((noinline, unused))
#define LS_UNROLL
#define LS_PARTS 1
#define LS_WARPS(i, n) for (int i = 0; i < (n); i++)
#define LS_EACH(i, n) for (int i = 0; i < (n); i++)
#define LS_WARP0
#define LS_LANE0
#define LS_BARRIER() ((void)0)
#define LS_WARP_SYNC() ((void)0)
#define LS_CONST_TABLE static const

#define LS_LINEAR_TILES(X) X(1, 2, 1) X(2, 2, 1)
#define LS_LINEAR_TILE 4
#define LS_LINEAR_PARTS 1
#define LS_LINEAR_UNIT 2
#define LS_LINEAR_BYTES 131072
#define LS_LINEAR_AHEAD 0

typedef struct part_f32 {
    float v[32];
} part_f32;
typedef struct part_i32 {
    uint32_t v[32];
} part_i32;

#define LS_EVERY for (int l = 0; l < 32; l++)

/* ---- loads and stores ------------------------------------------------------------------------ */

LS_FN float ls_widen(const void *p, size_t at, ls_dtype t) {
    if (t == LS_F32)
        return ((const float *)p)[at];
    const uint16_t h = ((const uint16_t *)p)[at];
    return t == LS_F16 ? ls_f32_of_f16(h) : ls_f32_of_bf16(h);
}
LS_FN part_f32 part_load_n(const void *p, size_t at, int n, ls_dtype t, int part) {
    part_f32 r;
    (void)part;
    LS_EVERY
        r.v[l] = l < n ? ls_widen(p, at + (size_t)l, t) : 0.0f;
    return r;
}
LS_FN part_f32 part_load(const void *p, size_t at, ls_dtype t, int part) {
    part_f32 r;
    (void)part;
    LS_EVERY
        r.v[l] = ls_widen(p, at + (size_t)l, t);
    return r;
}
/* Packed weights (packed.h). */
typedef ls_scale_min ls_q4;
LS_FN part_f32 part_set_f16(const uint8_t *h) {
    part_f32 r;
    LS_EVERY
        r.v[l] = ls_f32_of_f16(ls_u16_at(h));
    return r;
}
LS_FN part_f32 part_load_i8(const uint8_t *q, int part) {
    part_f32 r;
    (void)part;
    LS_EVERY
        r.v[l] = (float)(int8_t)q[l];
    return r;
}
LS_FN ls_q4 part_q4(float scale, float min) {
    const ls_q4 r = {scale, min};
    return r;
}
LS_FN part_f32 part_load_q4(const uint8_t *q, int high, ls_q4 value, int part) {
    part_f32 r;
    (void)part;
    LS_EVERY
        r.v[l] = value.scale * (float)(high ? q[l] >> 4 : q[l] & 15) - value.min;
    return r;
}
LS_FN void part_store_n(float *p, int n, int part, part_f32 a) {
    (void)part;
    LS_EVERY
        if (l < n)
            p[l] = a.v[l];
}
LS_FN void part_store(float *p, int part, part_f32 a) {
    part_store_n(p, 32, part, a);
}
LS_FN part_i32 part_iload_n(const int32_t *p, int n, int part) {
    part_i32 r;
    (void)part;
    LS_EVERY
        r.v[l] = l < n ? (uint32_t)p[l] : 0u;
    return r;
}
LS_FN void part_load_quads(const float *p, int n, int part, part_f32 out[4]) {
    (void)part;
    for (int w = 0; w < 4; w++)
        LS_EVERY
            out[w].v[l] = 4 * l + w < n ? p[4 * l + w] : 0.0f;
}
LS_FN void part_prefetch(const void *p) {
    (void)p;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

#define LS_PLAIN_1(type, name, from, expr) \
    LS_FN type name(from a) {              \
        type r;                            \
        LS_EVERY                           \
            r.v[l] = (expr);               \
        return r;                          \
    }
#define LS_PLAIN_2(type, name, from, expr) \
    LS_FN type name(from a, from b) {      \
        type r;                            \
        LS_EVERY                           \
            r.v[l] = (expr);               \
        return r;                          \
    }
LS_FN part_f32 part_set(float a) {
    part_f32 r;
    LS_EVERY
        r.v[l] = a;
    return r;
}
LS_PLAIN_2(part_f32, part_add, part_f32, a.v[l] + b.v[l])
LS_PLAIN_2(part_f32, part_sub, part_f32, a.v[l] - b.v[l])
LS_PLAIN_2(part_f32, part_mul, part_f32, a.v[l] * b.v[l])
LS_PLAIN_2(part_f32, part_div, part_f32, a.v[l] / b.v[l])
LS_PLAIN_2(part_f32, part_max, part_f32, a.v[l] > b.v[l] ? a.v[l] : b.v[l])
LS_PLAIN_2(part_f32, part_min, part_f32, a.v[l] < b.v[l] ? a.v[l] : b.v[l])
LS_FN part_f32 part_fma(part_f32 a, part_f32 b, part_f32 c) {
    LS_EVERY
        c.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
    return c;
}

LS_FN part_i32 part_iset(int32_t a) {
    part_i32 r;
    LS_EVERY
        r.v[l] = (uint32_t)a;
    return r;
}
LS_FN part_i32 part_iota(int part) {
    part_i32 r;
    (void)part;
    LS_EVERY
        r.v[l] = (uint32_t)l;
    return r;
}
LS_PLAIN_2(part_i32, part_iadd, part_i32, a.v[l] + b.v[l])
LS_PLAIN_2(part_i32, part_isub, part_i32, a.v[l] - b.v[l])
LS_PLAIN_2(part_i32, part_iand, part_i32, a.v[l] & b.v[l])
LS_PLAIN_2(part_i32, part_ior, part_i32, a.v[l] | b.v[l])
LS_PLAIN_2(part_i32, part_ixor, part_i32, a.v[l] ^ b.v[l])
LS_PLAIN_2(part_i32, part_imax, part_i32, (int32_t)a.v[l] > (int32_t)b.v[l] ? a.v[l] : b.v[l])
LS_PLAIN_2(part_i32, part_imin, part_i32, (int32_t)a.v[l] < (int32_t)b.v[l] ? a.v[l] : b.v[l])
LS_FN part_i32 part_isll(part_i32 a, int n) {
    LS_EVERY
        a.v[l] <<= n;
    return a;
}
LS_FN part_i32 part_isrl(part_i32 a, int n) {
    LS_EVERY
        a.v[l] >>= n;
    return a;
}
LS_FN part_i32 part_isra(part_i32 a, int n) {
    LS_EVERY
        a.v[l] = a.v[l] >> 31 ? ~(~a.v[l] >> n) : a.v[l] >> n;
    return a;
}
LS_FN part_i32 part_umullo(part_i32 a, uint32_t b) {
    LS_EVERY
        a.v[l] *= b;
    return a;
}
LS_FN part_i32 part_umulhi(part_i32 a, uint32_t b) {
    LS_EVERY
        a.v[l] = (uint32_t)((uint64_t)a.v[l] * b >> 32);
    return a;
}

#define LS_MASK(cond) ((cond) ? 0xffffffffu : 0u)
LS_PLAIN_2(part_i32, part_igt, part_i32, LS_MASK((int32_t)a.v[l] > (int32_t)b.v[l]))
LS_PLAIN_2(part_i32, part_ieq, part_i32, LS_MASK(a.v[l] == b.v[l]))
LS_PLAIN_2(part_i32, part_gt, part_f32, LS_MASK(a.v[l] > b.v[l]))
LS_PLAIN_2(part_i32, part_ge, part_f32, LS_MASK(a.v[l] >= b.v[l]))
LS_PLAIN_2(part_i32, part_eq, part_f32, LS_MASK(a.v[l] == b.v[l]))
LS_PLAIN_1(part_i32, part_nan, part_f32, LS_MASK(a.v[l] != a.v[l]))
LS_FN part_f32 part_select(part_i32 mask, part_f32 a, part_f32 b) {
    LS_EVERY
        a.v[l] = mask.v[l] ? a.v[l] : b.v[l];
    return a;
}
LS_FN part_i32 part_iselect(part_i32 mask, part_i32 a, part_i32 b) {
    LS_EVERY
        a.v[l] = mask.v[l] ? a.v[l] : b.v[l];
    return a;
}
LS_FN part_f32 part_as_f(part_i32 a) {
    part_f32 r;
    memcpy(&r, &a, sizeof r);
    return r;
}
LS_FN part_i32 part_as_i(part_f32 a) {
    part_i32 r;
    memcpy(&r, &a, sizeof r);
    return r;
}
LS_PLAIN_1(part_f32, part_from_i, part_i32, (float)(int32_t)a.v[l])

/* ---- across lanes ---------------------------------------------------------------------------- */

LS_FN float lane_sum_parts(const part_f32 *p) {
    part_f32 a = *p, b;
    for (int o = 16; o > 0; o >>= 1) {
        LS_EVERY
            b.v[l] = a.v[l] + a.v[l ^ o];
        a = b;
    }
    return a.v[0];
}
LS_FN void lane_sums_parts(const part_f32 *v, int n, float *out) {
    for (int i = 0; i < n; i++)
        out[i] = lane_sum_parts(v + i);
}
LS_FN int32_t lane_hmax_i(const part_i32 *p) {
    int32_t r = INT32_MIN;
    LS_EVERY
        r = (int32_t)p->v[l] > r ? (int32_t)p->v[l] : r;
    return r;
}
LS_FN int32_t lane_hmin_i(const part_i32 *p) {
    int32_t r = INT32_MAX;
    LS_EVERY
        r = (int32_t)p->v[l] < r ? (int32_t)p->v[l] : r;
    return r;
}
LS_FN int32_t lane_hsum_i(const part_i32 *p) {
    uint32_t r = 0;
    LS_EVERY
        r += p->v[l];
    return (int32_t)r;
}
LS_FN float part_first(part_f32 a) {
    return a.v[0];
}
LS_FN float ls_sqrt(float a) {
    return sqrtf(a);
}
LS_FN float ls_fma(float a, float b, float c) {
    return fmaf(a, b, c);
}

#endif
