/* tokenizer_added.c - added tokens in a text: leftmost, then longest, as the reference finds them.
 * A walk of a byte tree from each place; patterns have at most LS_TOK_ADDED_BYTES_MAX bytes. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

static int32_t child_of(const ls_tok_trie *t, int32_t node, uint8_t byte) {
    if (node == 0)
        return t->first[byte];
    for (int32_t c = t->node[node].child; c >= 0; c = t->node[c].next)
        if (t->node[c].byte == byte)
            return c;
    return -1;
}

static ls_status insert(ls_tok_trie *t, const uint8_t *s, size_t n, int32_t added, ls_err *err) {
    int32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t c = child_of(t, at, s[i]);
        if (c < 0) {
            LS_TRY(ls_tok_grow((void **)&t->node, &t->cap, t->n + 1, sizeof *t->node, err));
            c = (int32_t)t->n++;
            t->node[c] = (ls_tok_node){-1, -1, -1, s[i]};
            if (at == 0) {
                t->first[s[i]] = c;
            } else {
                t->node[c].next = t->node[at].child;
                t->node[at].child = c;
            }
        }
        at = c;
    }
    if (t->node[at].added < 0) /* two spellings may be one after normalization: the first counts */
        t->node[at].added = added;
    return LS_OK;
}

static ls_status make_root(ls_tok_trie *t, ls_err *err) {
    LS_TRY(ls_tok_grow((void **)&t->node, &t->cap, 1, sizeof *t->node, err));
    t->node[0] = (ls_tok_node){-1, -1, -1, 0};
    t->n = 1;
    for (int b = 0; b < 256; b++)
        t->first[b] = -1;
    return LS_OK;
}

ls_status ls_tok_load_tries(ls_tokenizer *tok, ls_err *err) {
    LS_TRY(make_root(&tok->raw, err));
    LS_TRY(make_root(&tok->norm, err));
    for (size_t i = 0; i < tok->n_added; i++) {
        const ls_tok_added *a = &tok->added[i];
        const ls_tok_entry *e = &tok->token[a->id];
        ls_tok_normal t = {.s = (const uint8_t *)tok->spell + e->spell_at, .n = e->spell_n};
        ls_status st = a->normalized ? ls_tok_normalize(tok, &t, err) : LS_OK;
        if (st == LS_OK && t.n > 0)
            st = insert(a->normalized ? &tok->norm : &tok->raw, t.s, t.n, (int32_t)i, err);
        ls_tok_normal_free(&t);
        LS_TRY(st);
    }
    return LS_OK;
}

static bool touches(const ls_tok_span *plain, size_t n_plain, size_t begin, size_t end) {
    for (size_t i = 0; i < n_plain; i++)
        if (begin < plain[i].end && end > plain[i].begin)
            return true;
    return false;
}

int32_t ls_tok_find_added(const ls_tokenizer *tok, const ls_tok_trie *trie, const uint8_t *s,
                          size_t n, size_t from, const ls_tok_span *plain, size_t n_plain,
                          size_t *begin, size_t *end) {
    if (trie->n <= 1)
        return -1;
    for (size_t at = from; at < n; at++) {
        if (trie->first[s[at]] < 0)
            continue;
        int32_t hit = -1, node = 0;
        for (size_t i = at; i < n && (node = child_of(trie, node, s[i])) >= 0; i++) {
            int32_t a = trie->node[node].added;
            if (a >= 0 && !(tok->added[a].special && touches(plain, n_plain, at, i + 1))) {
                hit = a;
                *end = i + 1;
            }
        }
        if (hit >= 0) {
            *begin = at;
            return hit;
        }
    }
    return -1;
}
