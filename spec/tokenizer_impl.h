/* tokenizer_impl.h - what the tokenizer's files share; nobody else includes it.
 * A text's way  sanitize (utf8) -> added tokens that want raw text -> normalize (NFC) -> added
 *               tokens that want normalized text -> split into pre-tokens -> merge bytes -> ids.
 * Files         tokenizer.c: questions and the way above; _load: vocabulary, merges, added tokens;
 *               _parts: the file's other components; _added: finding added tokens; _unicode: NFC
 *               and classes; _regex: patterns; _split: pre-tokens; _bpe: merges; _decode: to text.
 * Tables        token i: its spelling in the file and the bytes it stands for, both in arenas. */
#ifndef LS_TOKENIZER_IMPL_H
#define LS_TOKENIZER_IMPL_H

#include "tokenizer.h"

#include "json.h"

#define LS_TOK_ID_MAX ((int64_t)1 << 22)
#define LS_TOK_ADDED_BYTES_MAX 1024
#define LS_TOK_TEMPLATE_MAX 16
#define LS_TOK_SPLITS_MAX 16

/* ls_tok_entry.flags */
enum {
    LS_TOK_THERE = 1,
    LS_TOK_SPECIAL = 2,
    LS_TOK_ADDED = 4,
    LS_TOK_VOCAB = 8,   /* of the model's vocabulary (it may be added too) */
    LS_TOK_LETTERS = 16 /* and spelled in byte letters: merged bytes can become it */
};

typedef struct ls_tok_entry {
    uint32_t spell_at, spell_n; /* in spell[] */
    uint32_t byte_at, byte_n;   /* in byte[] */
    uint8_t flags;
} ls_tok_entry;

typedef struct ls_tok_added {
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} ls_tok_added;

/* Patterns as a tree of bytes; node 0 is the root. */
typedef struct ls_tok_node {
    int32_t child, next; /* -1: none */
    int32_t added;       /* index of the pattern that ends here, -1: none */
    uint8_t byte;
} ls_tok_node;

typedef struct ls_tok_trie {
    ls_tok_node *node;
    size_t n, cap;
    int32_t first[256]; /* child of the root for a byte, -1: none */
} ls_tok_trie;

typedef struct ls_tok_merge { /* slot of the hash table; id < 0: empty */
    uint64_t pair;
    uint32_t rank;
    int32_t id;
} ls_tok_merge;

typedef enum ls_tok_behavior {
    LS_TOK_REMOVED,
    LS_TOK_ISOLATED,
    LS_TOK_MERGED_WITH_PREVIOUS,
    LS_TOK_MERGED_WITH_NEXT,
    LS_TOK_CONTIGUOUS
} ls_tok_behavior;

typedef struct ls_tok_split {
    void *regex; /* pcre2_code */
    char *where; /* path in the file, for messages */
    ls_tok_behavior behavior;
    bool invert;
    bool prefix_space; /* put a space before a piece that does not begin with one */
} ls_tok_split;

struct ls_tokenizer {
    char *name; /* of the file */
    ls_tok_entry *token;
    int32_t size; /* entries; the last one is there */
    size_t n_tokens;
    char *spell;
    uint8_t *byte;
    uint32_t *slot; /* hash of spellings: id + 1, 0 empty */
    size_t n_slots; /* power of two */
    int32_t byte_id[256];

    ls_tok_merge *merge;
    size_t n_merge_slots; /* power of two, or 0 */
    unsigned merge_shift; /* 64 - log2(n_merge_slots) */
    size_t n_merges;
    bool ignore_merges;

    ls_tok_added *added;
    size_t n_added;
    ls_tok_trie raw, norm;

    bool nfc;
    ls_tok_split split[LS_TOK_SPLITS_MAX];
    size_t n_splits;
    int32_t before[LS_TOK_TEMPLATE_MAX], after[LS_TOK_TEMPLATE_MAX];
    size_t n_before, n_after;
    char warning[160];
};

/* Memory of one encode call. */
typedef struct ls_tok_work {
    const ls_tokenizer *tok;
    ls_ids *out;
    uint64_t steps;
    struct { /* per split step: the pieces it found */
        size_t *edge;
        uint8_t *is_match;
        size_t cap;
    } cut[LS_TOK_SPLITS_MAX];
    void *match, *jit_stack, *match_context; /* pcre2, made when first needed */
    ls_text spaced[LS_TOK_SPLITS_MAX];       /* a piece with a space before it */
    ls_text spelled;                         /* a piece in byte letters */
    struct ls_tok_symbol *symbol;
    size_t n_symbols;
    struct ls_tok_candidate *heap;
    size_t n_heap, heap_cap;
} ls_tok_work;

/* ---- byte letters (_load) -------------------------------------------------------------------- */
/* The character that stands for a byte, and back (-1: none). */
uint32_t ls_tok_letter(uint8_t byte);
int32_t ls_tok_unletter(uint32_t cp);
/* -1: none */
int32_t ls_tok_lookup(const ls_tokenizer *tok, const char *spelling, size_t n);

/* Where the search for a pair begins: the top bits of the product, which depend on both ids. */
static inline size_t ls_tok_merge_slot(const ls_tokenizer *tok, uint64_t pair) {
    return (size_t)(pair * 0x9E3779B97F4A7C15u >> tok->merge_shift);
}

/* ---- loading --------------------------------------------------------------------------------- */
/* First: refuses what is not a BPE this can run. */
ls_status ls_tok_check_model(ls_tokenizer *tok, const ls_json_at *model, bool partial_bytes,
                             ls_err *err);
ls_status ls_tok_load_vocab(ls_tokenizer *tok, const ls_json_at *root, bool partial_bytes,
                            ls_err *err);
ls_status ls_tok_load_merges(ls_tokenizer *tok, const ls_json_at *model, ls_err *err);
ls_status ls_tok_load_parts(ls_tokenizer *tok, const ls_json_at *root, ls_err *err);
/* After the parts: patterns of added tokens, normalized where they ask for it. */
ls_status ls_tok_load_tries(ls_tokenizer *tok, ls_err *err);
void ls_tok_free_parts(ls_tokenizer *tok);

/* ---- encoding -------------------------------------------------------------------------------- */
/* The pattern (reference dialect, or literal text) compiled. */
ls_status ls_tok_regex(const ls_json_at *at, const char *pattern, size_t n, bool literal,
                       void **out, ls_err *err);
void ls_tok_regex_free(void *regex);

/* The longest pattern at the leftmost place at or after `from`: index in tok->added, or -1. */
int32_t ls_tok_find_added(const ls_tokenizer *tok, const ls_tok_trie *trie, const uint8_t *s,
                          size_t n, size_t from, bool no_special, size_t *begin, size_t *end);

/* Appends s in NFC to out, or returns false and leaves out alone when s is NFC already by a look at
 * its bytes. *status tells of memory. */
bool ls_tok_nfc(const uint8_t *s, size_t n, ls_text *out, ls_status *status, ls_err *err);

/* White_Space, and \w of the engine that the reference asks about an added token's neighbours. */
bool ls_tok_is_space(uint32_t cp);
bool ls_tok_is_word(uint32_t cp);

/* Pre-tokens of s, each merged and appended to work->out. */
ls_status ls_tok_split_text(ls_tok_work *work, const uint8_t *s, size_t n, ls_err *err);
ls_status ls_tok_merge_piece(ls_tok_work *work, const uint8_t *s, size_t n, ls_err *err);
void ls_tok_work_free(ls_tok_work *work);

/* Doubles until n fit; elem > 0. */
ls_status ls_tok_grow(void **p, size_t *cap, size_t n, size_t elem, ls_err *err);
ls_status ls_ids_push(ls_ids *ids, int32_t id, ls_err *err);

#endif
