/* tokenizer_split.c - a text cut into pre-tokens by the file's chain of splitters.
 *
 * Each step sees one piece of the step before as a text of its own, exactly as the reference:
 * anchors and look-behinds do not see past a piece. Steps run depth first, so pieces come out in
 * order. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

/* Backtracking steps all searches of a text may take together: generous for honest patterns, which
 * stay within a few times the text's length, and far from for ever. */
#define MATCH_STEPS_MIN 10000000u
#define MATCH_STEPS_PER_BYTE 64u
/* PCRE2 counts anew at each place where a match may begin, and does not tell what it took. So a
 * search gets few steps a place first; when they are not enough it goes on place by place, each
 * with more and more, and a place is charged with the last limit that was too low. */
#define SEARCH_STEPS 1024u
#define SEARCH_TIMES 4u

static ls_status ready(ls_tok_work *w, ls_err *err) {
    if (w->match)
        return LS_OK;
    w->match = pcre2_match_data_create(1, NULL); /* only the whole match is read */
    w->match_context = pcre2_match_context_create(NULL);
    w->jit_stack = pcre2_jit_stack_create((size_t)32 << 10, (size_t)4 << 20, NULL);
    if (!w->match || !w->match_context)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory while splitting text");
    if (w->jit_stack)
        pcre2_jit_stack_assign(w->match_context, NULL, w->jit_stack);
    w->steps_left = MATCH_STEPS_MIN;
    return LS_OK;
}

void ls_tok_work_free(ls_tok_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->match_context);
    pcre2_jit_stack_free(w->jit_stack);
    for (size_t i = 0; i < LS_TOK_SPLITS_MAX; i++) {
        free(w->cut[i].edge);
        free(w->cut[i].is_match);
        ls_text_free(&w->spaced[i]);
    }
    ls_text_free(&w->spelled);
    free(w->unit);
    free(w->symbol);
    ls_tok_queue_free(&w->queue);
}

static int try_match(ls_tok_work *w, const void *regex, const uint8_t *s, size_t n, size_t from,
                     uint64_t steps, uint32_t how) {
    /* the text is known to be UTF-8: checking it again at every call would be quadratic */
    how |= PCRE2_NO_UTF_CHECK;
    pcre2_set_match_limit(w->match_context, (uint32_t)(steps < UINT32_MAX ? steps : UINT32_MAX));
    const int rc = pcre2_match(regex, s, n, from, how, w->match, w->match_context);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT)
        return rc;
    return pcre2_match(regex, s, n, from, how | PCRE2_NO_JIT, w->match, w->match_context);
}

/* pcre2_match, within what the text has left of its steps. */
static int match(ls_tok_work *w, const void *regex, const uint8_t *s, size_t n, size_t from) {
    int rc = try_match(w, regex, s, n, from, SEARCH_STEPS, 0);
    while (rc == PCRE2_ERROR_MATCHLIMIT) {
        uint64_t limit = SEARCH_STEPS, took = 0;
        rc = try_match(w, regex, s, n, from, limit, PCRE2_ANCHORED);
        while (rc == PCRE2_ERROR_MATCHLIMIT && limit < w->steps_left) {
            took = limit;
            limit = limit * SEARCH_TIMES < w->steps_left ? limit * SEARCH_TIMES : w->steps_left;
            rc = try_match(w, regex, s, n, from, limit, PCRE2_ANCHORED);
        }
        if (rc == PCRE2_ERROR_MATCHLIMIT) /* it has used them up */
            return rc;
        w->steps_left -= took;
        if (rc != PCRE2_ERROR_NOMATCH || from >= n)
            return rc;
        from += ls_utf8_next(s + from, n - from).len;
        rc = try_match(w, regex, s, n, from, SEARCH_STEPS, 0); /* on to the next dear place */
    }
    return rc;
}

/* The next match at or after *from; *found false when there is none. */
static ls_status search(ls_tok_work *w, const ls_tok_split *sp, const uint8_t *s, size_t n,
                        size_t from, bool *found, size_t *begin, size_t *end, ls_err *err) {
    const int rc = match(w, sp->regex, s, n, from);
    *found = rc >= 0;
    if (rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match);
        *begin = at[0];
        *end = at[1];
        return LS_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return LS_OK;
    PCRE2_UCHAR why[120] = "";
    char name[200];
    pcre2_get_error_message(rc, why, sizeof why);
    return ls_fail(err, LS_ERR_INPUT, "%s: %s: the pattern gave up at byte %zu of the text: %s",
                   ls_err_text(name, sizeof name, w->tok->name, strlen(w->tok->name)), sp->where,
                   from, (const char *)why);
}

typedef struct cuts { /* pieces of one step: piece i is [edge[i], edge[i + 1]) */
    ls_tok_work *w;
    size_t step, n;
} cuts;

static ls_status cut(cuts *c, size_t end, bool is_match, ls_err *err) {
    ls_tok_work *w = c->w;
    size_t cap = w->cut[c->step].cap;
    if (c->n + 2 > cap) {
        size_t match_cap = cap;
        LS_TRY(ls_tok_grow((void **)&w->cut[c->step].edge, &cap, c->n + 2, sizeof(size_t), err));
        LS_TRY(ls_tok_grow((void **)&w->cut[c->step].is_match, &match_cap, cap, 1, err));
        w->cut[c->step].cap = cap;
    }
    w->cut[c->step].edge[0] = 0;
    w->cut[c->step].edge[++c->n] = end;
    w->cut[c->step].is_match[c->n - 1] = is_match;
    return LS_OK;
}

/* Cuts s into matches and what lies between; empty matches are pieces too, as they part others. */
static ls_status find_cuts(ls_tok_work *w, size_t step, const uint8_t *s, size_t n, size_t *count,
                           ls_err *err) {
    const ls_tok_split *sp = &w->tok->split[step];
    cuts c = {w, step, 0};
    LS_TRY(ready(w, err));
    w->steps_left += (uint64_t)n * MATCH_STEPS_PER_BYTE;
    size_t done = 0, from = 0;
    bool any = false;
    while (from <= n) {
        bool found = false;
        size_t begin = 0, end = 0;
        LS_TRY(search(w, sp, s, n, from, &found, &begin, &end, err));
        if (!found)
            break;
        if (begin == end && any && end == done) { /* an empty match right after a match is none */
            from += from < n ? ls_utf8_next(s + from, n - from).len : 1;
            continue;
        }
        if (begin > done)
            LS_TRY(cut(&c, begin, sp->invert, err));
        LS_TRY(cut(&c, end, !sp->invert, err));
        done = from = end;
        any = true;
    }
    if (done < n)
        LS_TRY(cut(&c, n, sp->invert, err));
    *count = c.n;
    return LS_OK;
}

static ls_status run(ls_tok_work *w, size_t step, const uint8_t *s, size_t n, bool first,
                     ls_err *err);

/* Joins or drops the pieces as the behavior says, and hands each on. */
static ls_status emit(ls_tok_work *w, size_t step, const uint8_t *s, size_t count, bool first,
                      ls_err *err) {
    const ls_tok_behavior behavior = w->tok->split[step].behavior;
    for (size_t i = 0; i < count;) {
        const size_t *edge = w->cut[step].edge;
        const uint8_t *match = w->cut[step].is_match;
        size_t last = i; /* the piece reaches from i to last */
        bool keep = true;
        switch (behavior) {
        case LS_TOK_REMOVED:
            keep = !match[i];
            break;
        case LS_TOK_MERGED_WITH_PREVIOUS: /* a match joins the stretch before it */
            if (!match[i] && i + 1 < count && match[i + 1])
                last = i + 1;
            break;
        case LS_TOK_MERGED_WITH_NEXT: /* the last of some matches joins the stretch behind them */
            if (match[i] && i + 1 < count && !match[i + 1])
                last = i + 1;
            break;
        case LS_TOK_CONTIGUOUS:
            while (last + 1 < count && match[last + 1] == match[i])
                last++;
            break;
        case LS_TOK_ISOLATED:
        default:
            break;
        }
        size_t begin = edge[i], end = edge[last + 1];
        if (keep && end > begin)
            LS_TRY(run(w, step + 1, s + begin, end - begin, first && begin == 0, err));
        i = last + 1;
    }
    return LS_OK;
}

/* A piece as Metaspace spells it, in w->spaced[step]. */
static ls_status spell_marks(ls_tok_work *w, size_t step, const uint8_t *s, size_t n, bool first,
                             ls_err *err) {
    const ls_tok_split *sp = &w->tok->split[step];
    ls_text *t = &w->spaced[step];
    const bool marked = s[0] == ' ' || (n >= sp->mark.n && memcmp(s, sp->mark.s, sp->mark.n) == 0);
    t->n = 0;
    if (!marked && (sp->prepend == LS_TOK_ALWAYS || (sp->prepend == LS_TOK_FIRST && first)))
        LS_TRY(ls_text_append(t, sp->mark.s, sp->mark.n, err));
    const ls_tok_replace spaces = {
        .from = " ", .n_from = 1, .to = (char *)(uintptr_t)sp->mark.s, .n_to = sp->mark.n};
    return ls_tok_replace_all(&spaces, s, n, t, err);
}

static ls_status run(ls_tok_work *w, size_t step, const uint8_t *s, size_t n, bool first,
                     ls_err *err) {
    if (step == w->tok->n_splits)
        return ls_tok_merge_piece(w, s, n, err);
    const ls_tok_split *sp = &w->tok->split[step];
    if (sp->prefix_space && s[0] != ' ') {
        ls_text *t = &w->spaced[step];
        t->n = 0;
        LS_TRY(ls_text_append(t, " ", 1, err));
        LS_TRY(ls_text_append(t, (const char *)s, n, err));
        s = (const uint8_t *)t->s;
        n = t->n;
    }
    if (sp->mark.n > 0) {
        LS_TRY(spell_marks(w, step, s, n, first, err));
        s = (const uint8_t *)w->spaced[step].s;
        n = w->spaced[step].n;
    }
    if (!sp->regex) /* only the space */
        return run(w, step + 1, s, n, first, err);
    size_t count = 0;
    LS_TRY(find_cuts(w, step, s, n, &count, err));
    return emit(w, step, s, count, first, err);
}

ls_status ls_tok_split_text(ls_tok_work *w, const uint8_t *s, size_t n, bool first, ls_err *err) {
    return n == 0 ? LS_OK : run(w, 0, s, n, first, err);
}
