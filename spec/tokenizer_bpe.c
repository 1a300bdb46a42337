/* tokenizer_bpe.c - the merges of one pre-token: lowest rank first, leftmost among equals.
 *
 * Short pieces are scanned anew after each merge. Longer ones keep their candidate pairs in a heap,
 * and very long ones in a list for each rank, with the heap for what comes out of turn (a merge
 * that makes a pair of lower rank, which trained vocabularies have not): a megabyte of one letter
 * costs time in proportion. All do the same merges in the same order. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

#define SHORT 24 /* symbols up to which scanning is faster than the heap */

#define LISTS_MIN 1024 /* symbols from which candidates are kept in lists by rank */

typedef struct ls_tok_symbol {
    int32_t id;
    int32_t prev, next;
    int32_t into; /* what it and the next one merge into */
    int64_t rank; /* of that merge; -1: none, or no longer a symbol */
} symbol;

static const ls_tok_merge *find_merge(ls_tok_work *w, int32_t left, int32_t right) {
    const ls_tokenizer *tok = w->tok;
    if (tok->n_merge_slots == 0)
        return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = tok->n_merge_slots - 1, i = ls_tok_merge_slot(tok, pair);
    for (int n = 0; n < LS_TOK_PROBES_MAX; n++, i = (i + 1) & mask) {
        const ls_tok_merge *m = &tok->merge[i];
        w->steps++;
        if (m->id < 0)
            return NULL;
        if (m->pair == pair)
            return ls_tok_may_be(w, m->id) ? m : NULL;
    }
    return NULL; /* loading let none lie further off */
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

/* A candidate is rank << 32 | place of the left symbol, so that keys are in the order of merging.
 * It is stale when the pair at that place has another rank by now. */

static void heap_up(ls_tok_queue *q, uint64_t key) {
    size_t i = q->n_heap++;
    for (; i > 0 && key < q->heap[(i - 1) / 2]; i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = key;
}

static uint64_t heap_pop(ls_tok_queue *q) {
    const uint64_t top = q->heap[0], last = q->heap[--q->n_heap];
    size_t i = 0, n = q->n_heap;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && q->heap[child + 1] < q->heap[child])
            child++;
        if (q->heap[child] >= last)
            break;
        q->heap[i] = q->heap[child];
    }
    if (n > 0)
        q->heap[i] = last;
    return top;
}

static ls_status queue_push(ls_tok_queue *q, uint32_t rank, int32_t at, ls_err *err) {
    if (!q->sorted || rank <= q->rank) {
        LS_TRY(ls_tok_grow((void **)&q->heap, &q->heap_cap, q->n_heap + 1, sizeof *q->heap, err));
        heap_up(q, (uint64_t)rank << 32 | (uint32_t)at);
        return LS_OK;
    }
    int32_t node = q->free_node;
    if (node >= 0) {
        q->free_node = q->node[node].next;
    } else {
        LS_TRY(ls_tok_grow((void **)&q->node, &q->node_cap, q->n_node + 1, sizeof *q->node, err));
        node = (int32_t)q->n_node++;
    }
    q->node[node].at = at;
    q->node[node].next = q->head[rank];
    q->head[rank] = node;
    q->some[rank / 64] |= (uint64_t)1 << rank % 64;
    return LS_OK;
}

static int by_place(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Takes the next rank's candidates, in order of place; false: there are none. They come off the
 * list in reverse, and went onto it in order but where several ranks made them. */
static ls_status next_batch(ls_tok_queue *q, bool *found, ls_err *err) {
    size_t word = (size_t)(q->rank + 1) / 64, n = 0;
    while (word < q->n_word && q->some[word] == 0)
        word++;
    *found = word < q->n_word;
    if (!*found)
        return LS_OK;
    const unsigned bit = (unsigned)__builtin_ctzll(q->some[word]);
    q->some[word] &= q->some[word] - 1;
    q->rank = (int64_t)(word * 64 + bit);
    int32_t node = q->head[q->rank];
    for (int32_t i = node; i >= 0; i = q->node[i].next)
        n++;
    LS_TRY(ls_tok_grow((void **)&q->batch, &q->batch_cap, n, sizeof *q->batch, err));
    q->head[q->rank] = -1;
    bool in_order = true;
    for (size_t i = n; i-- > 0;) {
        const int32_t next = q->node[node].next;
        q->batch[i] = q->node[node].at;
        in_order &= i + 1 == n || q->batch[i] <= q->batch[i + 1];
        q->node[node].next = q->free_node;
        q->free_node = node;
        node = next;
    }
    if (!in_order)
        qsort(q->batch, n, sizeof *q->batch, by_place);
    q->n_batch = n;
    q->at_batch = 0;
    return LS_OK;
}

/* The lowest key; false: none is left. What came behind the batch's rank waits in the lists, what
 * came at it or before it in the heap. */
static ls_status queue_pop(ls_tok_queue *q, bool *found, uint64_t *key, ls_err *err) {
    *found = true;
    if (q->at_batch == q->n_batch && q->n_heap == 0 && q->sorted)
        LS_TRY(next_batch(q, found, err));
    const bool batch = q->at_batch < q->n_batch;
    const uint64_t front =
        batch ? (uint64_t)q->rank << 32 | (uint32_t)q->batch[q->at_batch] : UINT64_MAX;
    if (q->n_heap > 0 && q->heap[0] <= front) {
        *key = heap_pop(q);
    } else {
        *found &= batch;
        *key = front;
        q->at_batch += batch;
    }
    return LS_OK;
}

/* Lists by rank only pay where there are many symbols for a rank. */
static ls_status queue_begin(ls_tok_queue *q, uint32_t n_rank, size_t n, ls_err *err) {
    q->sorted = n >= LISTS_MIN && n >= n_rank / 128;
    q->rank = -1;
    q->n_batch = q->at_batch = 0;
    if (!q->sorted || q->head)
        return LS_OK; /* lists are left empty by the piece before */
    q->n_word = (size_t)n_rank / 64 + 1;
    q->head = malloc(((size_t)n_rank + 1) * sizeof *q->head);
    q->some = calloc(q->n_word, sizeof *q->some);
    if (!q->head || !q->some)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %u ranks", n_rank);
    memset(q->head, 0xFF, ((size_t)n_rank + 1) * sizeof *q->head);
    q->free_node = -1;
    return LS_OK;
}

void ls_tok_queue_free(ls_tok_queue *q) {
    free(q->heap);
    free(q->node);
    free(q->head);
    free(q->some);
    free(q->batch);
}

/* Looks at the pair at this place anew. */
static ls_status look(ls_tok_work *w, int32_t at, ls_err *err) {
    symbol *s = w->symbol;
    if (at < 0)
        return LS_OK;
    const ls_tok_merge *m = s[at].next >= 0 ? find_merge(w, s[at].id, s[s[at].next].id) : NULL;
    s[at].rank = m ? (int64_t)m->rank : -1;
    s[at].into = m ? m->id : -1;
    return m ? queue_push(&w->queue, m->rank, at, err) : LS_OK;
}

static ls_status merge_long(ls_tok_work *w, const int32_t *id, size_t n, ls_err *err) {
    LS_TRY(ls_tok_grow((void **)&w->symbol, &w->n_symbols, n, sizeof *w->symbol, err));
    LS_TRY(queue_begin(&w->queue, w->tok->n_ranks, n, err));
    symbol *s = w->symbol;
    for (size_t i = 0; i < n; i++)
        s[i] =
            (symbol){.id = id[i], .prev = (int32_t)i - 1, .next = i + 1 < n ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < n; i++)
        LS_TRY(look(w, (int32_t)i, err));
    for (;;) {
        bool found = false;
        uint64_t key = 0;
        LS_TRY(queue_pop(&w->queue, &found, &key, err));
        if (!found)
            break;
        w->steps++;
        const int32_t at = (int32_t)(uint32_t)key;
        if (s[at].rank != (int64_t)(key >> 32))
            continue; /* stale */
        const int32_t right = s[at].next;
        s[at].id = s[at].into;
        s[at].next = s[right].next;
        s[right].rank = -1;
        if (s[right].next >= 0)
            s[s[right].next].prev = at;
        LS_TRY(look(w, s[at].prev, err));
        LS_TRY(look(w, at, err));
    }
    for (int32_t i = 0; i >= 0; i = s[i].next)
        LS_TRY(ls_ids_push(w->out, s[i].id, err));
    return LS_OK;
}

/* ---- one piece ------------------------------------------------------------------------------- */

/* The token that is the whole piece, -1: none. */
static ls_status whole(ls_tok_work *w, const uint8_t *s, size_t n, int32_t *id, ls_err *err) {
    uint8_t wanted = LS_TOK_VOCAB;
    w->spelled.n = 0;
    for (size_t i = 0; i < n && w->tok->byte_level; i++) {
        uint32_t cp = ls_tok_letter(s[i]);
        char utf8[2] = {(char)cp, 0};
        size_t len = 1;
        if (cp >= 0x80) { /* all letters are below U+0800 */
            utf8[0] = (char)(0xC0 | cp >> 6);
            utf8[1] = (char)(0x80 | (cp & 0x3F));
            len = 2;
        }
        LS_TRY(ls_text_append(&w->spelled, utf8, len, err));
        wanted = LS_TOK_LETTERS;
    }
    *id = w->tok->byte_level ? ls_tok_lookup(w->tok, w->spelled.s, w->spelled.n)
                             : ls_tok_lookup(w->tok, (const char *)s, n);
    if (*id >= 0 && (!(w->tok->token[*id].flags & wanted) || !ls_tok_may_be(w, *id)))
        *id = -1; /* only an added token is spelled so */
    return LS_OK;
}

static bool joins(const ls_tokenizer *tok, int32_t left, int32_t right) {
    if (tok->join_shift == 0)
        return tok->n_merge_slots > 0;
    const size_t bit = ls_tok_join_bit(tok, left, right);
    return tok->join[bit / 64] >> bit % 64 & 1;
}

/* Symbols with a place between them that no token reaches across merge apart from each other, in
 * whatever order: what is cut there gives the same ids, and words stay short. */
ls_status ls_tok_merge_piece(ls_tok_work *w, const uint8_t *s, size_t n, ls_err *err) {
    if (n == 0)
        return LS_OK;
    if (w->tok->ignore_merges) {
        int32_t id = -1;
        LS_TRY(whole(w, s, n, &id, err));
        if (id >= 0)
            return ls_ids_push(w->out, id, err);
    }
    if (n > INT32_MAX)
        return ls_fail(err, LS_ERR_INPUT, "a text of more than 2 GiB without a place to split");
    size_t count = 0;
    LS_TRY(ls_tok_symbols(w, s, n, &count, err));
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && joins(w->tok, w->unit[end - 1], w->unit[end]);)
            end++;
        LS_TRY(end - begin <= SHORT ? merge_short(w, w->unit + begin, end - begin, err)
                                    : merge_long(w, w->unit + begin, end - begin, err));
    }
    return LS_OK;
}
