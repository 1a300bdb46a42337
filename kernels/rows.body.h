/* rows.body.h - bodies that move one row: embedding, gather, the store into the cache, the bias of
 * a linear, SiLU(gate) * up and GELU(gate) * up.
 * N-EMB   widening is exact (N-PACK: one rounding); a scale is one product more. A token outside
 *         the table gives a row of zeros.
 * N-KV    rounded to the cache's type, nearest even. A slot outside the pool stores nothing.
 * N-BIAS  one addition an element, the bias widened exactly.
 * N-SILU  silu(a) = a / (1 + exp(-a)), then times up, each rounded; exp is N-EXP.
 * N-GELU  gelu(a) = a / (1 + exp(-t)), t = 2 sqrt(2/pi) (a + 0.044715 a^3): the form with tanh,
 *         since (1 + tanh(t / 2)) / 2 = 1 / (1 + exp(-t)). */
#ifndef LS_ROWS_BODY_H
#define LS_ROWS_BODY_H

#include "backend.h"
#include "convert.h"
#include "math.body.h"
#include "tile.h"

LS_FN void ls_body_embed(const ls_embed_args *a, int r) {
    const int D = a->table.n_in, token = a->token[r];
    const int known = token >= 0 && token < a->table.n_out;
    float *x = a->x + (size_t)r * (size_t)D;
    LS_WARPS (i, ls_ceil_div(D, LS_LANES)) {
        const int k = i * LS_LANES;
        const size_t at = known ? (size_t)token * (size_t)D + (size_t)k : 0;
        lane_f32 v;
        if (known && ls_dtype_block(a->table.dtype) > 1) /* D is whole blocks */
            v = lane_load_packed(a->table.data, at, a->table.dtype);
        else
            v = lane_load_n(a->table.data, at, known ? D - k : 0, a->table.dtype);
        if (a->scale != 0.0f)
            v = lane_mul(v, lane_set(a->scale));
        lane_store_n(x + k, D - k, v);
    }
}

LS_FN void ls_body_gather(const ls_gather_args *a, int i) {
    const float *x = a->x + (size_t)a->index[i] * (size_t)a->dim;
    float *y = a->y + (size_t)i * (size_t)a->dim;
    LS_WARPS (j, ls_ceil_div(a->dim, LS_LANES)) {
        const int k = j * LS_LANES;
        lane_store_n(y + k, a->dim - k, lane_load_n(x, (size_t)k, a->dim - k, LS_F32));
    }
}

LS_FN void ls_kv_put(void *pool, size_t at, ls_dtype t, float v) {
    if (t == LS_F32)
        ((float *)pool)[at] = v;
    else
        ((uint16_t *)pool)[at] = t == LS_F16 ? ls_f16_of_f32(v) : ls_bf16_of_f32(v);
}
/* Lanes' values at `at`, at + 1, ..., of the first n lanes. */
LS_FN void ls_kv_put_lanes(void *pool, size_t at, int n, ls_dtype t, lane_f32 v) {
#ifdef __CUDACC__
    LS_EACH (e, ls_min_i(LS_LANES, n))
        ls_kv_put(pool, at + (size_t)e, t, v.p[0]); /* a thread is one lane */
#else
    float f[LS_LANES];
    lane_store_n(f, n, v);
    LS_EACH (e, ls_min_i(LS_LANES, n))
        ls_kv_put(pool, at + (size_t)e, t, f[e]);
#endif
}
LS_FN void ls_body_kv_store(const ls_kv_store_args *a, int r) {
    const int slot = a->slot[r], n = a->n_kv * a->head_dim;
    if (slot < 0 || slot >= a->n_slots)
        return;
    const size_t from = (size_t)r * (size_t)n, to = (size_t)slot * (size_t)n;
    LS_WARPS (i, ls_ceil_div(n, LS_LANES)) {
        const int e0 = i * LS_LANES;
        LS_EACH (e, ls_min_i(LS_LANES, n - e0)) {
            const size_t k = (size_t)(e0 + e);
            ls_kv_put(a->k_pool, to + k, a->kv_dtype, a->k[from + k]);
            ls_kv_put(a->v_pool, to + k, a->kv_dtype, a->v[from + k]);
        }
    }
}

LS_FN void ls_body_bias(const ls_bias_args *a, int r) {
    float *y = a->y + (size_t)r * (size_t)a->dim;
    LS_WARPS (i, ls_ceil_div(a->dim, LS_LANES)) {
        const int k = i * LS_LANES, n = a->dim - k;
        lane_store_n(y + k, n,
                     lane_add(lane_load_n(y, (size_t)k, n, LS_F32),
                              lane_load_n(a->b, (size_t)k, n, a->b_dtype)));
    }
}

/* A row of gated values; ls_OP_of makes 32 of them. */
#define LS_GATE_BODY(op)                                                         \
    LS_FN void ls_body_##op(const ls_##op##_args *a, int r) {                    \
        const int F = a->dim;                                                    \
        const size_t row = (size_t)r * (size_t)F;                                \
        LS_WARPS (i, ls_ceil_div(F, LS_LANES)) {                                 \
            const int k = i * LS_LANES, n = F - k;                               \
            const lane_f32 g = lane_load_n(a->gate + row, (size_t)k, n, LS_F32); \
            const lane_f32 u = lane_load_n(a->up + row, (size_t)k, n, LS_F32);   \
            lane_store_n(a->h + row + k, n, ls_##op##_of(g, u));                 \
        }                                                                        \
    }

LS_FN lane_f32 ls_silu_mul_of(lane_f32 gate, lane_f32 up) {
    const lane_f32 e = lane_exp(lane_sub(lane_set(-0.0f), gate));
    return lane_mul(lane_div(gate, lane_add(lane_set(1.0f), e)), up);
}
LS_GATE_BODY(silu_mul)

LS_FN lane_f32 ls_gelu_mul_of(lane_f32 gate, lane_f32 up) {
    /* 2 sqrt(2 / pi), and 0.044715 times it */
    const lane_f32 c1 = lane_set(0x1.988454p+0f), c3 = lane_set(0x1.2444f2p-4f);
    const lane_f32 t = lane_mul(lane_fma(lane_mul(gate, gate), c3, c1), gate);
    const lane_f32 e = lane_exp(lane_sub(lane_set(-0.0f), t));
    return lane_mul(lane_div(gate, lane_add(lane_set(1.0f), e)), up);
}
LS_GATE_BODY(gelu_mul)

#endif
