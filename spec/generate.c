#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "draw.h"
#include "stop.h"
#include "token_digest.h"

typedef struct run {
    const ls_gen *g;
    ls_transcript *t;
    ls_rule *rule, *own_rule; /* own_rule: made here because the caller gave none */
    int32_t seq, n_vocab, context;
    int32_t *token; /* prompt and new tokens; the last is not in the cache yet */
    int32_t n, n_limit;
    const int32_t *eos;
    int32_t n_eos;
    ls_stop *stop;
    ls_stream stream;
    ls_text piece;
    float *p_row, *logits;
    ls_policy_ctx ctx;
    double draft_sum_us, verify_sum_us[LS_DRAFT_MAX + 1];
    int64_t draft_n, verify_n[LS_DRAFT_MAX + 1];
    double more_us;         /* time of `more` calls inside the draft */
    ls_verdict_set verdict; /* of a rule that judges on the device */
    int32_t cap_round;
    ls_warp warp[LS_DRAFT_MAX + 1];
    ls_draw draw[LS_DRAFT_MAX + 1];
    ls_row_stats stats[LS_DRAFT_MAX + 1];
    ls_row_stats drafted[LS_DRAFT_MAX];
    ls_row row[LS_DRAFT_MAX + 1];
} run;

/* Stamps of a round, in the target's order of work. */
enum { STAMP_DRAFT, STAMP_VERIFY, STAMP_END };

/* ---- begin ----------------------------------------------------------------------------------- */

static ls_status check_job(const ls_gen *g, ls_err *err) {
    const ls_engine_options *o = ls_engine_opts(g->target);
    if (g->n_prompt < 1)
        return ls_fail(err, LS_ERR_INPUT, "the prompt is empty: give at least one token");
    if (g->n_prompt > o->context)
        return ls_fail(
            err, LS_ERR_INPUT,
            "the prompt of %d tokens does not fit the context of %d: shorten it or raise "
            "the context",
            g->n_prompt, o->context);
    for (int32_t i = 0; i < g->n_prompt; i++)
        if (g->prompt[i] < 0 || g->prompt[i] >= o->n_vocab)
            return ls_fail(err, LS_ERR_INPUT, "prompt token %d is %d: the vocabulary has %d", i,
                           g->prompt[i], o->n_vocab);
    if (!(g->warp.temperature >= 0) || isinf(g->warp.temperature))
        return ls_fail(err, LS_ERR_INPUT, "temperature %g: it must be a finite number, 0 or more",
                       (double)g->warp.temperature);
    if (g->warp.top_k < 0 || !(g->warp.top_p > 0 && g->warp.top_p <= 1) ||
        !(g->warp.min_p >= 0 && g->warp.min_p <= 1))
        return ls_fail(
            err, LS_ERR_INPUT,
            "top_k %d, top_p %g, min_p %g: need top_k >= 0, 0 < top_p <= 1, 0 <= min_p <= 1",
            g->warp.top_k, (double)g->warp.top_p, (double)g->warp.min_p);
    if (g->drafter && g->drafter->engine) { /* its drafts are read where they lie */
        const ls_backend *a = ls_engine_backend(g->target);
        const ls_backend *b = ls_engine_backend(g->drafter->engine);
        if (strcmp(a->name, b->name) != 0 || a->number != b->number)
            return ls_fail(err, LS_ERR_INPUT,
                           "the target is on %s:%d and the draft model on %s:%d: put both on one "
                           "device",
                           a->name, a->number, b->name, b->number);
    }
    if (g->n_stop > 0 && !g->tokenizer)
        return ls_fail(err, LS_ERR_INPUT, "stop strings need a tokenizer: the model has none");
    return LS_OK;
}

static ls_status run_begin(run *r, const ls_gen *g, ls_transcript *t, ls_err *err) {
    memset(r, 0, sizeof *r);
    r->g = g;
    r->t = t;
    r->seq = -1;
    LS_TRY(check_job(g, err));
    const ls_engine_options *o = ls_engine_opts(g->target);
    const ls_config *c = &ls_engine_model(g->target)->config;
    r->n_vocab = o->n_vocab;
    r->context = o->context;
    r->n = g->n_prompt;
    r->n_limit = g->max_new > 0 && g->max_new < r->context - r->n ? r->n + g->max_new : r->context;
    r->eos = g->n_eos ? g->eos : c->eos;
    r->n_eos = g->ignore_eos ? 0 : g->n_eos ? g->n_eos : c->n_eos;
    r->token = malloc((size_t)r->context * sizeof *r->token);
    t->token = malloc((size_t)(r->n_limit - r->n + 1) * sizeof *t->token);
    r->p_row = malloc((size_t)r->n_vocab * sizeof *r->p_row);
    r->logits = malloc((size_t)r->n_vocab * sizeof *r->logits);
    if (!r->token || !t->token || !r->p_row || !r->logits)
        return ls_fail(err, LS_ERR_MEMORY, "generate: out of memory");
    memcpy(r->token, g->prompt, (size_t)r->n * sizeof *r->token);
    if (g->n_stop > 0) {
        LS_TRY(ls_stop_create(g->stop, g->n_stop, &r->stop, err));
        r->stream = ls_stream_begin(g->tokenizer, true);
    }
    r->rule = g->rule;
    if (!r->rule) {
        LS_TRY(ls_rule_builtin("exact", &r->own_rule, err));
        r->rule = r->own_rule;
    }
    r->ctx.n_prompt = g->n_prompt;
    r->ctx.position = g->n_prompt;
    r->ctx.temperature = g->warp.temperature;
    r->ctx.seed = g->seed;
    r->ctx.sequence = g->sequence;
    return ls_kv_open(ls_engine_kv(g->target), &r->seq, err);
}

static void run_end(run *r) {
    if (r->seq >= 0)
        ls_kv_close(ls_engine_kv(r->g->target), r->seq);
    ls_rule_destroy(r->own_rule);
    ls_stop_destroy(r->stop);
    ls_text_free(&r->piece);
    free(r->token);
    free(r->p_row);
    free(r->logits);
}

/* ---- draft ----------------------------------------------------------------------------------- */

static int32_t room_left(const run *r) {
    int32_t room = r->n_limit - r->n - 1; /* the bonus token needs its place */
    const int32_t rows = ls_engine_opts(r->g->target)->max_want - 1; /* at most max_rows */
    const ls_drafter *d = r->g->drafter;
    if (!d)
        return 0;
    if (room > d->context - r->n)
        room = d->context - r->n;
    if (room > rows)
        room = rows;
    if (room > LS_DRAFT_MAX)
        room = LS_DRAFT_MAX;
    return room > 0 ? room : 0;
}

static ls_status ask_more(void *self, int32_t n, int32_t token, const ls_row_stats *s, bool *yes,
                          ls_err *err) {
    run *r = self;
    ls_policy_step step = {.n = n, .token = token, .prob = 1};
    if (s) {
        step.prob = s->token_prob;
        step.entropy = s->entropy;
        step.margin = s->margin;
        step.n_top = s->n_top;
        step.top_token = s->top_token;
        step.top_prob = s->top_prob;
    }
    const double t0 = ls_now_us();
    ls_status st = r->g->policy->more(r->g->policy, &r->ctx, &step, yes, err);
    r->more_us += ls_now_us() - t0;
    return st;
}

static ls_status draft(run *r, ls_round *round, ls_draft_block *block, ls_err *err) {
    const ls_gen *g = r->g;
    int64_t planned = 0;
    const double t0 = ls_now_us();
    r->more_us = 0;
    if (g->policy && g->drafter)
        LS_TRY(g->policy->plan(g->policy, &r->ctx, &planned, err));
    const double t1 = ls_now_us();
    round->planned = planned > INT32_MAX ? INT32_MAX : (int32_t)planned;
    round->clamped = planned > r->ctx.room;
    const ls_draft_job job = {.token = r->token,
                              .n_token = r->n,
                              .n = round->clamped ? r->ctx.room : (int32_t)planned,
                              .warp = g->warp,
                              .seed = g->seed,
                              .sequence = g->sequence,
                              .coupled = r->rule->coupled,
                              .want_probs = r->rule->needs_draft,
                              .n_top = g->policy ? g->policy->n_top : 0,
                              .more = g->policy && g->policy->more ? ask_more : NULL,
                              .more_self = r};
    ls_backend *be = ls_engine_backend(g->target);
    be->stamp(be, STAMP_DRAFT);
    block->n = 0;
    if (job.n > 0)
        LS_TRY(g->drafter->draft(g->drafter, &job, block, err));
    round->policy_us = (float)(t1 - t0 + r->more_us);
    return LS_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

/* What the device judges, it judges here; whatever the round left there comes back in one piece. */
static ls_status collect(run *r, ls_draft_block *block, int32_t m, ls_err *err) {
    const ls_gen *g = r->g;
    const int32_t n_draft = block->pending ? block->n : 0;
    if (r->rule->accept != LS_ACCEPT_NONE) {
        const ls_accept how = {.kind = r->rule->accept,
                               .n = block->n,
                               .chain = block->chain != NULL,
                               .chain_logits = block->chain_logits,
                               .ld_chain = block->ld_chain,
                               .seed = g->seed,
                               .sequence = g->sequence,
                               .position = (uint32_t)r->n};
        LS_TRY(ls_pass_accept(g->target, &how, err));
    }
    ls_backend *be = ls_engine_backend(g->target);
    be->stamp(be, STAMP_END);
    LS_TRY(ls_pass_result(g->target, r->drafted, n_draft, &r->verdict, r->stats, m, err));
    if (block->pending)
        g->drafter->settle(g->drafter, r->drafted, block);
    return LS_OK;
}

static ls_status verify(run *r, ls_draft_block *block, ls_round *round, ls_err *err) {
    const ls_gen *g = r->g;
    ls_backend *be = ls_engine_backend(g->target);
    const int32_t m = block->n + 1, n_chain = block->chain ? block->n : 0;
    be->stamp(be, STAMP_VERIFY);
    for (int32_t i = 0; i < m; i++) {
        const int32_t token = i == 0           ? r->token[r->n - 1]
                              : block->pending ? 0
                                               : block->token[i - 1];
        r->row[i] = ls_row_chain(r->seq, token, r->n - 1 + i, true);
        r->warp[i] = g->warp;
        r->draw[i] = ls_draw_key(g->seed, g->sequence, (uint32_t)(r->n + i), LS_DRAW_TOKEN, 0);
    }
    ls_backend *drafts_on = n_chain ? ls_engine_backend(g->drafter->engine) : be;
    if (drafts_on != be) /* another order of work */
        LS_TRY(drafts_on->sync(drafts_on, err));
    const ls_draws draws = {.warp = r->warp, .draw = r->draw, .n_top = r->rule->n_top};
    LS_TRY(ls_pass_after(g->target, r->row, m, block->chain, n_chain, &draws, err));
    LS_TRY(collect(r, block, m, err));
    round->proposed = block->n;
    round->draft_us = (float)(be->between(be, STAMP_DRAFT, STAMP_VERIFY) - r->more_us);
    round->verify_us = (float)be->between(be, STAMP_VERIFY, STAMP_END);
    return LS_OK;
}

static ls_status judge(run *r, const ls_draft_block *block, int32_t i, ls_verdict *v, ls_err *err) {
    const ls_gen *g = r->g;
    const bool bonus = i == block->n;
    ls_judge j = {.position = r->n,
                  .index = i,
                  .n_draft = block->n,
                  .draft = bonus ? -1 : block->token[i],
                  .target = &r->stats[i],
                  .draft_stats = bonus || !block->stats ? NULL : &block->stats[i],
                  .n_vocab = r->n_vocab,
                  .seed = g->seed,
                  .sequence = g->sequence,
                  .temperature = g->warp.temperature};
    if (r->stats[i].flags)
        return ls_fail(
            err, LS_ERR_NUMERIC,
            "position %d (row %d of %d): the logits hold %s: the model or its weights are "
            "damaged",
            r->n, i, block->n + 1,
            r->stats[i].flags & LS_ROW_NAN   ? "NaN"
            : r->stats[i].flags & LS_ROW_INF ? "+inf"
                                             : "only -inf");
    if (r->rule->accept != LS_ACCEPT_NONE) {
        v->accept = i < r->verdict.n_accept;
        v->token = v->accept ? block->token[i] : r->verdict.token;
        return LS_OK;
    }
    if (r->rule->needs_target && !bonus) {
        LS_TRY(ls_pass_probs(g->target, i, &r->stats[i], r->p_row, err));
        j.p_target = r->p_row;
    }
    if (r->rule->needs_draft && j.draft_stats)
        LS_TRY(g->drafter->probs(g->drafter, i, &j.p_draft, err));
    v->accept = false;
    v->token = -1;
    LS_TRY(r->rule->judge(r->rule, &j, v, err));
    if (v->accept && !bonus)
        v->token = block->token[i];
    if (v->token < 0 || v->token >= r->n_vocab)
        return ls_fail(err, LS_ERR_SCRIPT,
                       "rule '%s': token %d at position %d is outside the vocabulary "
                       "of %d",
                       r->rule->name, v->token, r->n, r->n_vocab);
    return LS_OK;
}

/* ---- commit ---------------------------------------------------------------------------------- */

static bool is_eos(const run *r, int32_t token) {
    for (int32_t i = 0; i < r->n_eos; i++)
        if (r->eos[i] == token)
            return true;
    return false;
}

/* Did this token end the text? A stop wins a tie with the limit. */
static ls_status find_end(run *r, int32_t token, ls_err *err) {
    bool hit = is_eos(r, token);
    if (!hit && r->stop) {
        const char *text;
        size_t n_text;
        r->piece.n = 0;
        LS_TRY(ls_stream_push(&r->stream, token, &r->piece, err));
        LS_TRY(ls_stop_feed(r->stop, r->piece.s ? r->piece.s : "", r->piece.n, &text, &n_text, &hit,
                            err));
        if (hit) {
            ls_text whole = {0};
            ls_status s = ls_tokenizer_decode(r->g->tokenizer, r->t->token, (size_t)r->t->n_token,
                                              true, &whole, err);
            r->t->n_text_cut = (int32_t)(whole.n - ls_stop_released(r->stop));
            ls_text_free(&whole);
            LS_TRY(s);
        }
    }
    if (hit)
        r->t->end = LS_END_STOP;
    else if (r->n == r->n_limit)
        r->t->end = LS_END_LENGTH;
    return LS_OK;
}

/* Judges the rows in order, committing one token each, until a refusal, the bonus or the end. */
static ls_status accept(run *r, const ls_draft_block *block, ls_round *round, ls_err *err) {
    const ls_gen_hooks *h = &r->g->hooks;
    const double t0 = ls_now_us();
    bool stands = true;
    int32_t i;
    for (i = 0; stands && r->t->end == LS_END_NONE && i <= block->n; i++) {
        ls_verdict v;
        LS_TRY(judge(r, block, i, &v, err));
        const float *row = NULL;
        if (h->want_logits) {
            LS_TRY(ls_pass_logits(r->g->target, i, r->logits, err));
            row = r->logits;
        }
        const int32_t position = r->n;
        r->token[r->n++] = v.token;
        r->t->token[r->t->n_token++] = v.token;
        round->emitted++;
        round->evaluated += i < block->n;
        round->accepted += v.accept;
        stands = v.accept;
        LS_TRY(find_end(r, v.token, err));
        if (h->token)
            h->token(h->self, position, v.token, i, v.accept, row, r->n_vocab);
    }
    for (; i <= block->n; i++)
        r->t->n_bad_unused += r->stats[i].flags != 0;
    round->accept_us = (float)(ls_now_us() - t0);
    return LS_OK;
}

static ls_status record(run *r, const ls_round *round, ls_err *err) {
    if (r->t->n_round == r->cap_round) {
        const int32_t cap = r->cap_round ? r->cap_round * 2 : 64;
        ls_round *grown = realloc(r->t->round, (size_t)cap * sizeof *grown);
        if (!grown)
            return ls_fail(err, LS_ERR_MEMORY, "generate: out of memory");
        r->t->round = grown;
        r->cap_round = cap;
    }
    r->t->round[r->t->n_round++] = *round;
    r->t->n_clamped += round->clamped;
    return LS_OK;
}

static void learn(run *r, const ls_round *round) {
    ls_policy_ctx *c = &r->ctx;
    c->last = *round;
    c->n_rounds++;
    c->n_new = r->t->n_token;
    c->position = r->n;
    for (int32_t d = 0; d < round->evaluated; d++) {
        c->tried[d]++;
        c->accepted[d] += d < round->accepted;
    }
    r->draft_sum_us += (double)round->draft_us;
    r->draft_n += round->proposed;
    c->draft_us = r->draft_n ? r->draft_sum_us / (double)r->draft_n : 0;
    const int32_t g = round->proposed;
    r->verify_sum_us[g] += (double)round->verify_us;
    c->verify_us[g] = r->verify_sum_us[g] / (double)++r->verify_n[g];
}

static ls_status one_round(run *r, ls_err *err) {
    const ls_gen *g = r->g;
    ls_round round = {.position = r->n};
    ls_draft_block block = {0};
    r->ctx.room = room_left(r);
    LS_TRY(draft(r, &round, &block, err));
    LS_TRY(verify(r, &block, &round, err));
    ls_status s = accept(r, &block, &round, err);
    /* whatever was judged so far is committed; the rest leaves the cache */
    ls_status back =
        ls_kv_rewind(ls_engine_kv(g->target), r->seq, r->n - 1, s == LS_OK ? err : NULL);
    if (s != LS_OK || back != LS_OK)
        return s != LS_OK ? s : back;
    LS_TRY(record(r, &round, err));
    learn(r, &round);
    if (g->hooks.round)
        g->hooks.round(g->hooks.self, &round, block.token, block.stats);
    if (g->policy && g->policy->observe)
        LS_TRY(g->policy->observe(g->policy, &r->ctx, &round, err));
    return LS_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ls_status rounds(run *r, ls_err *err) {
    const ls_gen *g = r->g;
    const double t0 = ls_now_us();
    if (g->policy && g->policy->begin)
        LS_TRY(g->policy->begin(g->policy, &r->ctx, err));
    if (r->rule->begin)
        LS_TRY(r->rule->begin(r->rule, err));
    if (g->drafter)
        LS_TRY(g->drafter->begin(g->drafter, err));
    LS_TRY(ls_prefill(g->target, r->seq, r->token, r->n - 1, 0, err));
    if (r->n == r->context) /* the prompt leaves no place for a token */
        r->t->end = LS_END_LENGTH;
    r->t->prefill_us = ls_now_us() - t0;
    while (r->t->end == LS_END_NONE) {
        if (g->hooks.stop && g->hooks.stop(g->hooks.self))
            return ls_fail(err, LS_ERR_STOPPED, "stopped after %d tokens", r->t->n_token);
        LS_TRY(one_round(r, err));
    }
    r->t->total_us = ls_now_us() - t0;
    return g->hooks.done ? g->hooks.done(g->hooks.self, g->target, r->seq, err) : LS_OK;
}

ls_status ls_generate(const ls_gen *gen, ls_transcript *out, ls_err *err) {
    run r;
    ls_status s = run_begin(&r, gen, out, err);
    if (s == LS_OK)
        s = rounds(&r, err);
    if (s != LS_OK)
        out->end = LS_END_ERROR;
    if (r.token && s == LS_OK)
        s = ls_token_digest(r.token, r.n, out->digest, err);
    run_end(&r);
    return s;
}

void ls_transcript_free(ls_transcript *t) {
    if (!t)
        return;
    free(t->token);
    free(t->round);
    memset(t, 0, sizeof *t);
}
