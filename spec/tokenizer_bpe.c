/* tokenizer_bpe.c - the merges of one pre-token: lowest rank first, leftmost among equals.
 *
 * Short pieces are scanned anew after each merge; long ones keep their candidate pairs in a heap,
 * so that a megabyte of one letter costs n log n. Both do the same merges in the same order. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

#define SHORT 24 /* symbols up to which scanning is faster than the heap */

typedef struct ls_tok_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
} symbol;

typedef struct ls_tok_candidate { /* a pair that may merge; stale when its symbols changed */
    uint32_t rank;
    int32_t at; /* the left symbol */
    int32_t left, right, id;
} candidate;

static const ls_tok_merge *find_merge(ls_tok_work *w, int32_t left, int32_t right) {
    const ls_tokenizer *tok = w->tok;
    if (tok->n_merge_slots == 0)
        return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = tok->n_merge_slots - 1;
    for (size_t i = ls_tok_merge_slot(tok, pair);; i = (i + 1) & mask) {
        const ls_tok_merge *m = &tok->merge[i];
        w->steps++;
        if (m->id < 0)
            return NULL;
        if (m->pair == pair)
            return m;
    }
}

/* ---- short pieces ---------------------------------------------------------------------------- */

static ls_status merge_short(ls_tok_work *w, int32_t *id, size_t n, ls_err *err) {
    const ls_tok_merge *pair[SHORT]; /* pair[i]: of id[i] and id[i + 1] */
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_merge(w, id[i], id[i + 1]);
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && (best == n || pair[i]->rank < pair[best]->rank))
                best = i;
        if (best == n)
            break;
        id[best] = pair[best]->id;
        for (size_t i = best + 1; i + 1 < n; i++) {
            id[i] = id[i + 1];
            pair[i] = i + 2 < n ? pair[i + 1] : NULL;
        }
        n--;
        if (best > 0)
            pair[best - 1] = find_merge(w, id[best - 1], id[best]);
        pair[best] = best + 1 < n ? find_merge(w, id[best], id[best + 1]) : NULL;
    }
    for (size_t i = 0; i < n; i++)
        LS_TRY(ls_ids_push(w->out, id[i], err));
    return LS_OK;
}

/* ---- long pieces ----------------------------------------------------------------------------- */

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static ls_status push(ls_tok_work *w, int32_t at, ls_err *err) {
    const symbol *s = w->symbol;
    int32_t right = at >= 0 ? s[at].next : -1;
    if (right < 0)
        return LS_OK;
    const ls_tok_merge *m = find_merge(w, s[at].id, s[right].id);
    if (!m)
        return LS_OK;
    LS_TRY(ls_tok_grow((void **)&w->heap, &w->heap_cap, w->n_heap + 1, sizeof *w->heap, err));
    candidate c = {m->rank, at, s[at].id, s[right].id, m->id};
    size_t i = w->n_heap++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
    return LS_OK;
}

static candidate pop(ls_tok_work *w) {
    candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, n = w->n_heap;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    if (n > 0)
        w->heap[i] = last;
    return top;
}

static ls_status merge_long(ls_tok_work *w, size_t n, ls_err *err) {
    symbol *s = w->symbol;
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        LS_TRY(push(w, (int32_t)i, err));
    while (w->n_heap > 0) {
        candidate c = pop(w);
        w->steps++;
        int32_t right = s[c.at].id == c.left ? s[c.at].next : -1;
        if (right < 0 || s[right].id != c.right)
            continue; /* stale */
        s[c.at].id = c.id;
        s[right].id = -1;
        s[c.at].next = s[right].next;
        if (s[right].next >= 0)
            s[s[right].next].prev = c.at;
        LS_TRY(push(w, s[c.at].prev, err));
        LS_TRY(push(w, c.at, err));
    }
    for (int32_t i = 0; i >= 0; i = s[i].next)
        LS_TRY(ls_ids_push(w->out, s[i].id, err));
    return LS_OK;
}

/* ---- one piece ------------------------------------------------------------------------------- */

/* The token that is the whole piece, -1: none. */
static ls_status whole(ls_tok_work *w, const uint8_t *s, size_t n, int32_t *id, ls_err *err) {
    w->spelled.n = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = ls_tok_letter(s[i]);
        char utf8[2] = {(char)cp, 0};
        size_t len = 1;
        if (cp >= 0x80) { /* all letters are below U+0800 */
            utf8[0] = (char)(0xC0 | cp >> 6);
            utf8[1] = (char)(0x80 | (cp & 0x3F));
            len = 2;
        }
        LS_TRY(ls_text_append(&w->spelled, utf8, len, err));
    }
    *id = ls_tok_lookup(w->tok, w->spelled.s, w->spelled.n);
    if (*id >= 0 && !(w->tok->token[*id].flags & LS_TOK_LETTERS))
        *id = -1; /* only an added token is spelled so */
    return LS_OK;
}

static ls_status byte_token(const ls_tok_work *w, uint8_t byte, int32_t *id, ls_err *err) {
    *id = w->tok->byte_id[byte];
    if (*id >= 0)
        return LS_OK;
    char name[200];
    return ls_fail(err, LS_ERR_INPUT,
                   "%s: the text has the byte %02X, for which the vocabulary has no token",
                   ls_err_text(name, sizeof name, w->tok->name, strlen(w->tok->name)), byte);
}

ls_status ls_tok_merge_piece(ls_tok_work *w, const uint8_t *s, size_t n, ls_err *err) {
    if (n == 0)
        return LS_OK;
    if (w->tok->ignore_merges) {
        int32_t id = -1;
        LS_TRY(whole(w, s, n, &id, err));
        if (id >= 0)
            return ls_ids_push(w->out, id, err);
    }
    if (n <= SHORT) {
        int32_t id[SHORT];
        for (size_t i = 0; i < n; i++)
            LS_TRY(byte_token(w, s[i], &id[i], err));
        return merge_short(w, id, n, err);
    }
    if (n > INT32_MAX)
        return ls_fail(err, LS_ERR_INPUT, "a text of more than 2 GiB without a place to split");
    LS_TRY(ls_tok_grow((void **)&w->symbol, &w->n_symbols, n, sizeof *w->symbol, err));
    for (size_t i = 0; i < n; i++) {
        LS_TRY(byte_token(w, s[i], &w->symbol[i].id, err));
        w->symbol[i].prev = (int32_t)i - 1;
        w->symbol[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    return merge_long(w, n, err);
}
