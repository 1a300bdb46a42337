/* tokenizer_merges.c - which two tokens merge, and when: from a list, or from scores; and which
 * symbols can stand side by side inside a token. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

#define JOIN_BITS_MIN 12
#define JOIN_BITS_MAX 20 /* 128 KiB: stays in a core's cache */

/* ---- the tables ------------------------------------------------------------------------------ */

static ls_status make_table(ls_tokenizer *tok, size_t n, ls_err *err) {
    tok->n_merge_slots = 16;
    tok->merge_shift = 60;
    for (; tok->n_merge_slots < 2 * n; tok->merge_shift--)
        tok->n_merge_slots *= 2;
    unsigned bits = JOIN_BITS_MIN;
    while (bits < JOIN_BITS_MAX && (size_t)1 << bits < 16 * n)
        bits++;
    tok->join_shift = 64 - bits;
    tok->merge = malloc(tok->n_merge_slots * sizeof *tok->merge);
    tok->join = calloc((size_t)1 << bits >> 6, sizeof *tok->join);
    if (!tok->merge || !tok->join)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %zu merges", n);
    for (size_t i = 0; i < tok->n_merge_slots; i++)
        tok->merge[i] = (ls_tok_merge){0, 0, -1};
    return LS_OK;
}

/* The entry of the pair, or the empty one where it belongs; NULL: the file's ids were chosen to
 * make searches long. */
static ls_tok_merge *find(const ls_tokenizer *tok, uint64_t pair) {
    size_t mask = tok->n_merge_slots - 1, i = ls_tok_merge_slot(tok, pair);
    for (size_t n = 0; n < LS_TOK_PROBES_MAX; n++, i = (i + 1) & mask)
        if (tok->merge[i].id < 0 || tok->merge[i].pair == pair)
            return &tok->merge[i];
    return NULL;
}

static const char crowded[] =
    "the merges' ids crowd one place of a table, as only ids that were chosen "
    "for it do; a vocabulary that is made to be slow is refused";

/* The token of the first or last character of a token, -1: none. */
static int32_t edge_of(const ls_tokenizer *tok, int32_t id, bool last) {
    const ls_tok_entry *e = &tok->token[id];
    const char *s = tok->spell + e->spell_at;
    size_t n = e->spell_n, at = last ? n - 1 : 0;
    while (last && at > 0 && ((uint8_t)s[at] & 0xC0) == 0x80)
        at--;
    return ls_tok_lookup(tok, s + at, last ? n - at : ls_utf8_next((const uint8_t *)s, n).len);
}

/* A symbol of several characters. Its neighbours inside tokens cannot be read off spellings. */
static bool is_odd_symbol(const ls_tokenizer *tok, int32_t id) {
    return (tok->token[id].flags & LS_TOK_ODD) != 0;
}

/* A merge of these puts symbols side by side: the left one's last and the right one's first, which
 * are the tokens themselves or those of their outer characters. */
static void join(ls_tokenizer *tok, int32_t left, int32_t right) {
    if (tok->join_shift == 0)
        return;
    if (is_odd_symbol(tok, left) || is_odd_symbol(tok, right)) {
        tok->join_shift = 0;
        return;
    }
    const int32_t l[2] = {left, edge_of(tok, left, true)};
    const int32_t r[2] = {right, edge_of(tok, right, false)};
    for (int i = 0; i < 4; i++) {
        if (l[i / 2] < 0 || r[i % 2] < 0)
            continue;
        const size_t bit = ls_tok_join_bit(tok, l[i / 2], r[i % 2]);
        tok->join[bit / 64] |= (uint64_t)1 << bit % 64;
    }
}

/* ---- from a list ----------------------------------------------------------------------------- */

/* The two spellings of a merge: "a b", or ["a", "b"]. */
static ls_status merge_parts(const ls_json_at *at, const char **a, size_t *na, const char **b,
                             size_t *nb, ls_err *err) {
    if (json_is_array(at->value)) {
        if (json_array_size(at->value) != 2)
            return ls_json_fail(at, err, "a merge joins two tokens, this has %zu",
                                json_array_size(at->value));
        ls_json_at left = ls_json_item(at, 0), right = ls_json_item(at, 1);
        LS_TRY(ls_json_as_string(&left, a, na, err));
        return ls_json_as_string(&right, b, nb, err);
    }
    size_t n = 0;
    LS_TRY(ls_json_as_string(at, a, &n, err));
    const char *space = memchr(*a, ' ', n);
    if (!space || strchr(space + 1, ' '))
        return ls_json_fail(at, err, "a merge is two tokens with one space between");
    *na = (size_t)(space - *a);
    *b = space + 1;
    *nb = n - *na - 1;
    return LS_OK;
}

static ls_status merge_token(const ls_tokenizer *tok, const ls_json_at *at, const char *s, size_t n,
                             const char *role, int32_t *id, ls_err *err) {
    *id = ls_tok_lookup(tok, s, n);
    char shown[80];
    if (*id < 0 || !(tok->token[*id].flags & LS_TOK_VOCAB))
        return ls_json_fail(at, err, "the merge's %s \"%s\" is not in the vocabulary", role,
                            ls_err_text(shown, sizeof shown, s, n));
    return LS_OK;
}

static ls_status add_merge(ls_tokenizer *tok, const ls_json_at *at, uint32_t rank, ls_text *joined,
                           ls_err *err) {
    const char *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    int32_t left = -1, right = -1, result = -1;
    LS_TRY(merge_parts(at, &a, &na, &b, &nb, err));
    LS_TRY(merge_token(tok, at, a, na, "left part", &left, err));
    LS_TRY(merge_token(tok, at, b, nb, "right part", &right, err));
    joined->n = 0;
    LS_TRY(ls_text_append(joined, a, na, err));
    LS_TRY(ls_text_append(joined, b, nb, err));
    LS_TRY(merge_token(tok, at, joined->s, joined->n, "result", &result, err));
    if (na == 0 || nb == 0)
        return ls_json_fail(at, err, "a merge with an empty part");
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    ls_tok_merge *m = find(tok, pair);
    if (!m)
        return ls_json_fail(at, err, "%s", crowded);
    if (m->id >= 0)
        return ls_json_fail(at, err, "the same merge as entry %u", m->rank);
    *m = (ls_tok_merge){pair, rank, result};
    join(tok, left, right);
    return LS_OK;
}

/* A vocabulary of words that no merge can build: text would become single bytes. */
static void warn_unmerged(ls_tokenizer *tok) {
    static const char line[] = "the tokenizer has tokens of several bytes but no merges: all text "
                               "becomes single bytes";
    for (int32_t i = 0; i < tok->size; i++)
        if ((tok->token[i].flags & LS_TOK_LETTERS) && !(tok->token[i].flags & LS_TOK_ADDED) &&
            tok->token[i].byte_n > 1) {
            memcpy(tok->warning, line, sizeof line);
            return;
        }
}

ls_status ls_tok_load_merges(ls_tokenizer *tok, const ls_json_at *model, ls_err *err) {
    ls_json_at list = ls_json_key(model, "merges");
    size_t n = 0;
    LS_TRY(ls_json_as_array(&list, &n, err));
    if (n > UINT32_MAX / 4)
        return ls_json_fail(&list, err, "has %zu entries", n);
    if (n == 0) {
        if (!tok->ignore_merges)
            warn_unmerged(tok);
        return LS_OK;
    }
    LS_TRY(make_table(tok, n, err));
    ls_text joined = {0};
    ls_status s = LS_OK;
    for (size_t i = 0; i < n && s == LS_OK; i++) {
        ls_json_at at = ls_json_item(&list, i);
        s = add_merge(tok, &at, (uint32_t)i, &joined, err);
    }
    ls_text_free(&joined);
    tok->n_merges = n;
    tok->n_ranks = (uint32_t)n;
    return s;
}

/* ---- from scores ----------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1)
                                : (x->id > y->id) - (x->id < y->id);
}

/* The tokens that can be a merge's part or result, best first. Bytes and unk are none. */
static size_t rank_tokens(const ls_tokenizer *tok, const float *score, scored *out) {
    size_t n = 0;
    for (int32_t id = 0; id < tok->size; id++)
        if ((tok->token[id].flags & LS_TOK_VOCAB) && !is_odd_symbol(tok, id))
            out[n++] = (scored){score[id], id};
    qsort(out, n, sizeof *out, by_score);
    return n;
}

typedef struct ways { /* to put tokens together from two, in the order of ranks */
    struct way {
        int32_t left, right, id;
        uint32_t rank;
    } * way;
    size_t n, cap;
} ways;

static int32_t find_part(const ls_tokenizer *tok, const char *s, size_t n) {
    const int32_t id = ls_tok_lookup(tok, s, n);
    return id >= 0 && (tok->token[id].flags & LS_TOK_VOCAB) && !is_odd_symbol(tok, id) ? id : -1;
}

static ls_status split_token(const ls_tokenizer *tok, int32_t id, uint32_t rank, ways *w,
                             ls_err *err) {
    const ls_tok_entry *e = &tok->token[id];
    const char *s = tok->spell + e->spell_at;
    if (e->spell_n > LS_TOK_SCORED_BYTES_MAX) {
        char name[200];
        return ls_fail(err, LS_ERR_INPUT, "%s: the token %d has %u bytes, at most %d are supported",
                       ls_err_text(name, sizeof name, tok->name, strlen(tok->name)), id, e->spell_n,
                       LS_TOK_SCORED_BYTES_MAX);
    }
    for (size_t at = 1; at < e->spell_n; at++) {
        if (((uint8_t)s[at] & 0xC0) == 0x80)
            continue;
        const int32_t left = find_part(tok, s, at);
        const int32_t right = left < 0 ? -1 : find_part(tok, s + at, e->spell_n - at);
        if (right < 0)
            continue;
        LS_TRY(ls_tok_grow((void **)&w->way, &w->cap, w->n + 1, sizeof *w->way, err));
        w->way[w->n++] = (struct way){left, right, id, rank};
    }
    return LS_OK;
}

static ls_status find_ways(ls_tokenizer *tok, const scored *order, size_t n, ways *w, ls_err *err) {
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        rank += i > 0 && order[i].score != order[i - 1].score;
        LS_TRY(split_token(tok, order[i].id, rank, w, err));
    }
    tok->n_ranks = rank + 1;
    tok->n_merges = w->n;
    return w->n > UINT32_MAX / 4 ? ls_fail(err, LS_ERR_INPUT, "%zu merges", w->n)
                                 : make_table(tok, w->n, err);
}

ls_status ls_tok_load_scores(ls_tokenizer *tok, const float *score, ls_err *err) {
    scored *order = malloc(((size_t)tok->size + 1) * sizeof *order);
    if (!order)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %d scores", tok->size);
    ways w = {0};
    ls_status s = find_ways(tok, order, rank_tokens(tok, score, order), &w, err);
    for (size_t i = 0; i < w.n && s == LS_OK; i++) {
        const uint64_t pair = (uint64_t)(uint32_t)w.way[i].left << 32 | (uint32_t)w.way[i].right;
        ls_tok_merge *m = find(tok, pair);
        if (!m) {
            char name[200];
            s = ls_fail(err, LS_ERR_INPUT, "%s: %s",
                        ls_err_text(name, sizeof name, tok->name, strlen(tok->name)), crowded);
            break;
        }
        *m = (ls_tok_merge){pair, w.way[i].rank, w.way[i].id};
        join(tok, w.way[i].left, w.way[i].right);
    }
    free(w.way);
    free(order);
    return s;
}
