#include "rope.h"

#include <math.h>
#include <stddef.h>

#define TWO_PI 6.283185307179586

const char *ls_rope_kind_name(ls_rope_kind kind) {
    static const char *const name[] = {"default", "linear", "llama3"};
    return name[kind];
}

static double llama3(double f, const ls_rope_scaling *c) {
    const double turns = c->original * f / TWO_PI; /* in the original context */
    if (turns < c->low)
        return f / c->factor;
    if (turns > c->high)
        return f;
    const double s = (turns - c->low) / (c->high - c->low);
    return (1 - s) * f / c->factor + s * f;
}

double ls_rope_frequency(double theta, const ls_rope_scaling *scaling, int32_t pair,
                         int32_t head_dim) {
    const double f = pow(theta, -2.0 * (double)pair / head_dim);
    switch (scaling->kind) {
    case LS_ROPE_LINEAR:
        return f / scaling->factor;
    case LS_ROPE_LLAMA3:
        return llama3(f, scaling);
    case LS_ROPE_PLAIN:
    default:
        return f;
    }
}

void ls_rope_tables(double theta, const ls_rope_scaling *scaling, int32_t head_dim, int32_t n_pos,
                    float *cosine, float *sine) {
    const size_t half = (size_t)head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        const double f = ls_rope_frequency(theta, scaling, (int32_t)i, head_dim);
        for (size_t p = 0; p < (size_t)n_pos; p++) {
            cosine[p * half + i] = (float)cos((double)p * f);
            sine[p * half + i] = (float)sin((double)p * f);
        }
    }
}
