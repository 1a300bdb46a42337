#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "token_digest.h"
#include "triage.h"

typedef struct checker {
    const ls_plain *plain;
    ls_check_result *r;
    ls_sha256 digest;
    int32_t round; /* of the pass that is being committed */
    int32_t n;     /* tokens seen */
    const ls_gen_hooks *caller;
    bool forked;
} checker;

static void fork_at(checker *c, ls_fork_kind kind, int32_t position, int32_t row) {
    if (c->forked)
        return;
    c->forked = true;
    ls_fork *f = &c->r->fork;
    *f = (ls_fork){.kind = kind,
                   .position = position,
                   .token_plain = -1,
                   .token_spec = -1,
                   .round = c->round,
                   .row = row,
                   .layer = -1};
    const int32_t i = position - c->plain->n_prompt;
    if (i >= 0 && i < c->plain->n_token) {
        f->token_plain = c->plain->token[i];
        f->margin = c->plain->margin[i];
    }
}

static void on_token(void *self, int32_t position, int32_t token, int32_t index, bool drafted,
                     const float *row, int32_t n_vocab) {
    checker *c = self;
    const ls_plain *p = c->plain;
    const int32_t i = c->n++;
    (void)drafted;
    if (i >= p->n_token) {
        c->r->n_differ++;
        fork_at(c, LS_FORK_LENGTH, position, index);
        return;
    }
    unsigned char digest[LS_SHA256_RAW];
    ls_sha256_add(&c->digest, row, (size_t)n_vocab * sizeof *row);
    ls_sha256_take(&c->digest, digest);
    const bool same_logits = memcmp(digest, p->logits[i], sizeof digest) == 0;
    c->r->n_position++;
    c->r->n_logit += n_vocab;
    if (same_logits && token == p->token[i])
        return;
    c->r->n_differ++;
    fork_at(c, same_logits ? LS_FORK_TOKEN : LS_FORK_LOGITS, position, index);
    if (c->r->fork.position == position)
        c->r->fork.token_spec = token;
}

static void on_round(void *self, const ls_round *round, const int32_t *draft,
                     const ls_row_stats *s) {
    checker *c = self;
    (void)draft;
    (void)s;
    if (c->forked && c->r->fork.round == c->round)
        c->r->fork.rows = round->proposed + 1;
    c->round++;
}

static ls_status on_done(void *self, ls_engine *target, int32_t seq, ls_err *err) {
    checker *c = self;
    const int32_t n = ls_kv_len(ls_engine_kv(target), seq);
    for (int32_t i = 0; i < n && i < c->plain->n_row; i++) {
        unsigned char digest[LS_SHA256_RAW];
        int64_t n_value;
        LS_TRY(ls_cache_row_digest(target, seq, i, &c->digest, digest, &n_value, err));
        c->r->n_cache += n_value;
        if (memcmp(digest, c->plain->cache[i], sizeof digest) == 0)
            continue;
        c->r->n_cache_differ++;
        fork_at(c, LS_FORK_CACHE, i, 0);
    }
    if (n != c->plain->n_row && !c->forked) {
        c->r->n_cache_differ++;
        fork_at(c, LS_FORK_CACHE, n < c->plain->n_row ? n : c->plain->n_row, 0);
    }
    return LS_OK;
}

static bool on_stop(void *self) {
    const ls_gen_hooks *h = ((checker *)self)->caller;
    return h->stop && h->stop(h->self);
}

static ls_status chain_digests(const ls_plain *p, ls_check_result *r, ls_err *err) {
    LS_TRY(ls_token_digest(p->token, p->n_token, r->digest_token, err));
    LS_TRY(ls_sha256_of(p->logits, (size_t)p->n_token * sizeof *p->logits, r->digest_logits, err));
    return ls_sha256_of(p->cache, (size_t)p->n_row * sizeof *p->cache, r->digest_cache, err);
}

ls_status ls_check_run(const ls_gen *gen, const ls_plain *plain, ls_engine *plain_engine,
                       ls_check_result *out, ls_err *err) {
    checker c = {.plain = plain, .r = out, .caller = &gen->hooks};
    LS_TRY(ls_sha256_begin(&c.digest, err));
    ls_gen spec = *gen;
    spec.hooks = (ls_gen_hooks){.self = &c,
                                .token = on_token,
                                .want_logits = true,
                                .round = on_round,
                                .done = on_done,
                                .stop = on_stop};
    ls_status s = ls_generate(&spec, &out->spec, err);
    if (s == LS_OK) {
        if (c.n < plain->n_token) {
            out->n_differ += plain->n_token - c.n;
            fork_at(&c, LS_FORK_LENGTH, plain->n_prompt + c.n, 0);
        } else if (out->spec.end != plain->end) {
            out->n_differ++;
            fork_at(&c, LS_FORK_LENGTH, plain->n_prompt + c.n - 1, 0);
        }
        out->same = !c.forked;
        s = chain_digests(plain, out, err);
        if (s == LS_OK && out->fork.kind == LS_FORK_LOGITS)
            s = ls_triage(gen, plain, plain_engine, &out->fork, err);
    }
    ls_sha256_drop(&c.digest);
    return s;
}

void ls_check_free(ls_check_result *r) {
    if (r)
        ls_transcript_free(&r->spec);
}

void ls_fork_print(FILE *f, const ls_fork *k) {
    if (k->kind == LS_FORK_NONE) {
        fprintf(f, "no fork\n");
        return;
    }
    if (k->kind == LS_FORK_LENGTH) {
        fprintf(
            f,
            "fork at position %d: one text ends where the other goes on, or for another reason: a "
            "fault of the end conditions\n",
            k->position);
        return;
    }
    if (k->kind == LS_FORK_CACHE) {
        fprintf(
            f,
            "fork in cache row %d, with equal tokens and logits: a fault of storing or rewinding\n",
            k->position);
        return;
    }
    fprintf(f,
            "fork at position %d (round %d, row %d of %d): token %d plain, %d speculative, margin "
            "%.3g; ",
            k->position, k->round, k->row, k->rows, k->token_plain, k->token_spec,
            (double)k->margin);
    if (k->kind == LS_FORK_TOKEN)
        fprintf(f, "the logits agree bit for bit: a fault of the rule or of the draw\n");
    else if (!k->op[0])
        fprintf(f, "the logits differed, but a rerun agreed: a race or stale memory\n");
    else
        fprintf(f,
                "first in layer %d, %s[%d]: 0x%08" PRIx32 " plain, 0x%08" PRIx32
                " speculative, %" PRId64 " ulp: arithmetic\n",
                k->layer, k->op, k->element, k->bits_plain, k->bits_spec, k->ulp);
}
