#include <stdlib.h>

#include "policy.h"

typedef struct fixed {
    ls_policy base;
    int32_t n;
} fixed;

static ls_status fixed_plan(ls_policy *p, const ls_policy_ctx *ctx, int64_t *n, ls_err *err) {
    (void)ctx;
    (void)err;
    *n = ((fixed *)p)->n;
    return LS_OK;
}

static void fixed_destroy(ls_policy *p) {
    free(p);
}

ls_status ls_policy_fixed(int32_t n, ls_policy **out, ls_err *err) {
    if (n < 0)
        return ls_fail(err, LS_ERR_INPUT, "fixed draft length %d: it must be 0 or more", n);
    fixed *f = calloc(1, sizeof *f);
    if (!f)
        return ls_fail(err, LS_ERR_MEMORY, "policy: out of memory");
    f->n = n;
    f->base.name = "fixed";
    f->base.where = "built in";
    f->base.plan = fixed_plan;
    f->base.destroy = fixed_destroy;
    *out = &f->base;
    return LS_OK;
}
