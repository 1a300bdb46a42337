/* math.body.h - exp and log, lane by lane: the tile language's own, so no libm decides a bit.
 * N-EXP  exp(x): n = rint(x log2 e), r = x - n ln 2 in two fma, a polynomial of degree 6 in r, then
 *        two exact scalings whose product is 2^n (so denormal results round once). 0 for -inf and
 *        below -104, +inf above 88.72, exactly 1 for +-0.
 * N-LOG  log(x): x = 2^k z, z in [2/3, 4/3), r = z - 1 exactly, log1p by a polynomial of degree 10,
 *        then k ln 2 in two parts. -inf for +-0, NaN below 0, +inf for +inf, exactly 0 for 1.
 * Error  at most 1 ulp each; tests/test_math_near.c measures it over the floats.
 * Coefficients: weighted minimax fits in 120-bit arithmetic, rounded to f32. */
#ifndef LS_MATH_BODY_H
#define LS_MATH_BODY_H

#include "tile.h"

LS_FN part_f32 part_exp(part_f32 x) {
    const float magic = 0x1.8p23f;      /* adding it rounds to an integer, kept in the low bits */
    x = part_max(part_set(-105.0f), x); /* in this order a NaN stays one */
    x = part_min(part_set(89.0f), x);
    const part_f32 t = part_fma(x, part_set(0x1.715476p+0f), part_set(magic));
    const part_f32 n = part_sub(t, part_set(magic));
    part_f32 r = part_fma(n, part_set(-0x1.62e430p-1f), x);
    r = part_fma(n, part_set(0x1.05c610p-29f), r);
    part_f32 q = part_set(0x1.6a23c0p-10f);
    q = part_fma(q, r, part_set(0x1.123a22p-7f));
    q = part_fma(q, r, part_set(0x1.5558f4p-5f));
    q = part_fma(q, r, part_set(0x1.555492p-3f));
    q = part_fma(q, r, part_set(0x1.fffffcp-2f));
    q = part_fma(q, r, part_set(1.0f));
    q = part_fma(q, r, part_set(1.0f));
    const part_i32 k = part_isub(part_as_i(t), part_iset(0x4b400000));
    const part_i32 half = part_isra(k, 1), rest = part_isub(k, half), bias = part_iset(127);
    q = part_mul(q, part_as_f(part_isll(part_iadd(half, bias), 23)));
    return part_mul(q, part_as_f(part_isll(part_iadd(rest, bias), 23)));
}

LS_FN part_f32 part_log(part_f32 x) {
    const part_i32 tiny = part_gt(part_set(0x1p-126f), x);
    const part_i32 bits = part_as_i(part_select(tiny, part_mul(x, part_set(0x1p23f)), x));
    part_i32 k = part_isra(part_isub(bits, part_iset(0x3f2aaaab)), 23);
    const part_f32 z = part_as_f(part_isub(bits, part_isll(k, 23)));
    k = part_isub(k, part_iand(tiny, part_iset(23)));
    const part_f32 kf = part_from_i(k), r = part_sub(z, part_set(1.0f));
    part_f32 q = part_set(-0x1.080250p-3f);
    q = part_fma(q, r, part_set(0x1.1e67aap-3f));
    q = part_fma(q, r, part_set(-0x1.f312a8p-4f));
    q = part_fma(q, r, part_set(0x1.1ed6e2p-3f));
    q = part_fma(q, r, part_set(-0x1.559dc0p-3f));
    q = part_fma(q, r, part_set(0x1.99d02cp-3f));
    q = part_fma(q, r, part_set(-0x1.fffef0p-3f));
    q = part_fma(q, r, part_set(0x1.555506p-2f));
    q = part_fma(q, r, part_set(-0.5f));
    q = part_mul(q, part_mul(r, r));
    q = part_fma(kf, part_set(-0x1.05c610p-29f), q);
    q = part_add(r, q);
    q = part_fma(kf, part_set(0x1.62e430p-1f), q);
    /* the ends: +inf and NaN stay, zeros give -inf, negatives NaN */
    const part_f32 inf = part_set(LS_INF), zero = part_set(0.0f);
    q = part_select(part_gt(inf, x), q, x);
    q = part_select(part_eq(x, zero), part_set(-LS_INF), q);
    return part_select(part_gt(zero, x), part_as_f(part_iset(0x7fc00000)), q);
}

LS_FN lane_f32 lane_exp(lane_f32 a) {
    LS_FOR_PARTS (i)
        a.p[i] = part_exp(a.p[i]);
    return a;
}
LS_FN lane_f32 lane_log(lane_f32 a) {
    LS_FOR_PARTS (i)
        a.p[i] = part_log(a.p[i]);
    return a;
}
/* of one uniform value */
LS_FN float ls_exp(float a) {
    return part_first(part_exp(part_set(a)));
}
LS_FN float ls_log(float a) {
    return part_first(part_log(part_set(a)));
}

#endif
