#include "rope.h"

#include <math.h>
#include <stddef.h>

#define TWO_PI 6.283185307179586

const char *ls_rope_kind_name(ls_rope_kind kind) {
    static const char *const name[] = {"default", "linear",  "llama3",
                                       "yarn",    "dynamic", "a table of factors"};
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

/* The pair, in fractions of one, that turns so often in the original context. */
static double yarn_pair(double turns, double theta, const ls_rope_scaling *c, int32_t head_dim) {
    return head_dim * log(c->original / (turns * TWO_PI)) / (2 * log(theta));
}

static double yarn(double f, double theta, const ls_rope_scaling *c, int32_t pair,
                   int32_t head_dim) {
    double low = yarn_pair(c->beta_fast, theta, c, head_dim);
    double high = yarn_pair(c->beta_slow, theta, c, head_dim);
    if (c->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, head_dim - 1);
    if (low == high)
        high += 0.001;
    const double r = fmin(fmax((pair - low) / (high - low), 0), 1);
    return f / c->factor * r + f * (1 - r);
}

static double mscale_of(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double ls_rope_attention(double factor, double mscale, double mscale_all_dim) {
    if (mscale != 0 && mscale_all_dim != 0)
        return mscale_of(factor, mscale) / mscale_of(factor, mscale_all_dim);
    return mscale_of(factor, 1);
}

double ls_rope_frequency(double theta, const ls_rope_scaling *scaling, int32_t pair,
                         int32_t head_dim) {
    const double f = pow(theta, -2.0 * (double)pair / head_dim);
    switch (scaling->kind) {
    case LS_ROPE_LINEAR:
        return f / scaling->factor;
    case LS_ROPE_LLAMA3:
        return llama3(f, scaling);
    case LS_ROPE_YARN:
        return yarn(f, theta, scaling, pair, head_dim);
    case LS_ROPE_TABLE:
        return f / (double)scaling->table[pair];
    case LS_ROPE_DYNAMIC:
    case LS_ROPE_PLAIN:
    default:
        return f;
    }
}

void ls_rope_tables(double theta, const ls_rope_scaling *scaling, int32_t head_dim, int32_t n_pos,
                    float *cosine, float *sine) {
    const size_t half = (size_t)head_dim / 2;
    const double size = scaling->kind == LS_ROPE_YARN ? scaling->attention : 1;
    for (size_t i = 0; i < half; i++) {
        const double f = ls_rope_frequency(theta, scaling, (int32_t)i, head_dim);
        for (size_t p = 0; p < (size_t)n_pos; p++) {
            cosine[p * half + i] = (float)(size * cos((double)p * f));
            sine[p * half + i] = (float)(size * sin((double)p * f));
        }
    }
}
