#include "rule.h"

#include <stdlib.h>
#include <string.h>

#include "draw.h"

typedef struct builtin {
    ls_rule base;
    ls_backend *be;
    float *residual; /* [V] host */
    void *residual_d, *draw_d, *token_d;
    int32_t n_vocab;
} builtin;

static void builtin_destroy(ls_rule *r) {
    builtin *b = (builtin *)r;
    if (b->residual) { /* a residual was drawn */
        b->be->free(b->be, b->residual_d);
        b->be->free(b->be, b->draw_d);
        b->be->free(b->be, b->token_d);
    }
    free(b->residual);
    free(b);
}

/* Keep the draft iff it is what plain decode draws; plain decode's token stands either way. */
static ls_status exact_judge(ls_rule *r, const ls_judge *j, ls_verdict *v, ls_err *err) {
    (void)r;
    (void)err;
    v->token = j->target->token;
    v->accept = j->draft >= 0 && j->draft == j->target->token;
    return LS_OK;
}

static ls_status residual_reserve(builtin *b, int32_t n_vocab, ls_err *err) {
    if (n_vocab <= b->n_vocab)
        return LS_OK;
    const size_t bytes = (size_t)n_vocab * sizeof(float);
    float *residual = realloc(b->residual, bytes);
    if (!residual)
        return ls_fail(err, LS_ERR_MEMORY, "rejection rule: out of memory");
    b->residual = residual;
    b->be->free(b->be, b->residual_d);
    b->residual_d = NULL;
    LS_TRY(b->be->alloc(b->be, bytes, &b->residual_d, err));
    if (!b->draw_d)
        LS_TRY(b->be->alloc(b->be, sizeof(ls_draw), &b->draw_d, err));
    if (!b->token_d)
        LS_TRY(b->be->alloc(b->be, sizeof(int32_t), &b->token_d, err));
    b->n_vocab = n_vocab;
    return LS_OK;
}

/* A draw from (p - q)+; -1 when nothing is left of it. */
static ls_status residual_draw(builtin *b, const ls_judge *j, int32_t *token, ls_err *err) {
    LS_TRY(residual_reserve(b, j->n_vocab, err));
    for (int32_t i = 0; i < j->n_vocab; i++) {
        const float q = j->p_draft ? j->p_draft[i] : i == j->draft ? 1.0f : 0.0f;
        const float w = j->p_target[i] - q;
        b->residual[i] = w > 0 ? w : 0.0f;
    }
    const ls_draw draw =
        ls_draw_key(j->seed, j->sequence, (uint32_t)j->position, LS_DRAW_RESIDUAL, 0);
    const ls_choose_args args = {.weight = b->residual_d,
                                 .draw = b->draw_d,
                                 .token = b->token_d,
                                 .n_vocab = j->n_vocab,
                                 .n_rows = 1};
    ls_backend *be = b->be;
    LS_TRY(be->upload(be, b->residual_d, b->residual, (size_t)j->n_vocab * sizeof(float), err));
    LS_TRY(be->upload(be, b->draw_d, &draw, sizeof draw, err));
    be->choose(be, &args);
    LS_TRY(be->sync(be, err));
    return be->download(be, token, b->token_d, sizeof *token, err);
}

/* Accept x with probability min(1, p(x)/q(x)); else draw from the normalised (p - q)+. The test
 * u q <= p is exact in double. A residual without mass means p = q: it cannot be refused. */
static ls_status rejection_judge(ls_rule *r, const ls_judge *j, ls_verdict *v, ls_err *err) {
    v->accept = false;
    v->token = j->target->token;
    if (j->draft < 0)
        return LS_OK;
    const double p = j->p_target[j->draft];
    const double q = j->p_draft ? (double)j->p_draft[j->draft] : 1.0;
    const ls_draw key = ls_draw_key(j->seed, j->sequence, (uint32_t)j->position, LS_DRAW_ACCEPT, 0);
    const double u = ls_draw_uniform(&key, 0);
    if (p > 0 && u * q <= p) {
        v->accept = true;
        return LS_OK;
    }
    LS_TRY(residual_draw((builtin *)r, j, &v->token, err));
    if (v->token < 0) {
        v->accept = p > 0;
        v->token = j->target->token;
    }
    return LS_OK;
}

ls_status ls_rule_builtin(const char *name, ls_backend *be, ls_rule **out, ls_err *err) {
    const bool exact = strcmp(name, "exact") == 0;
    if (!exact && strcmp(name, "rejection") != 0)
        return ls_fail(err, LS_ERR_INPUT, "rule '%s' is not built in: use exact or rejection",
                       name);
    builtin *b = calloc(1, sizeof *b);
    if (!b)
        return ls_fail(err, LS_ERR_MEMORY, "rule: out of memory");
    b->be = be;
    b->base.name = exact ? "exact" : "rejection";
    b->base.where = "built in";
    b->base.kind = exact ? LS_RULE_EXACT : LS_RULE_LOSSLESS;
    b->base.coupled = exact;
    b->base.needs_target = b->base.needs_draft = !exact;
    b->base.judge = exact ? exact_judge : rejection_judge;
    b->base.destroy = builtin_destroy;
    *out = &b->base;
    return LS_OK;
}
