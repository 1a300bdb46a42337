/* tokenizer_impl.h - what the tokenizer's files share; nobody else includes it.
 * A text's way  sanitize (utf8) -> added tokens that want raw text -> normalize -> added tokens
 *               that want normalized text -> split into pre-tokens -> first symbols -> cut where no
 *               token reaches across -> merge -> ids.
 * Symbols       byte level (the file has a ByteLevel splitter): the bytes; else characters, and for
 *               one without a token the tokens of its bytes, or unk.
 * Files         tokenizer.c: questions and the way above; _load: vocabulary, added tokens; _merges:
 *               merges, from a list or from scores; _parts: splitters and template; _normal:
 *               normalizers; _added: finding added tokens; _unicode: NFC, NFKC and classes; _regex:
 *               patterns; _split: pre-tokens; _symbols: first symbols; _bpe: merging; _decode: to
 *               text.
 * Tables        token i: its spelling in the file and the bytes it stands for, both in arenas. */
#ifndef LS_TOKENIZER_IMPL_H
#define LS_TOKENIZER_IMPL_H

#include "tokenizer.h"

#include "json.h"

#define LS_TOK_ID_MAX ((int64_t)1 << 22)
#define LS_TOK_ADDED_BYTES_MAX 1024
#define LS_TOK_SCORED_BYTES_MAX 256 /* a token that merges are found for by trying all splits */
#define LS_TOK_REPLACE_BYTES_MAX 64 /* of what a normalizer or decoder looks for and puts in */
#define LS_TOK_PROBES_MAX 2048 /* for a merge or a spelling; half a million honest ones need 40 */
#define LS_TOK_TEMPLATE_MAX 16
#define LS_TOK_SPLITS_MAX 16
#define LS_TOK_STEPS_MAX 8 /* of the normalizer, and of the decoder */

/* ls_tok_entry.flags */
enum {
    LS_TOK_THERE = 1,
    LS_TOK_SPECIAL = 2,
    LS_TOK_ADDED = 4,
    LS_TOK_VOCAB = 8,    /* of the model's vocabulary (it may be added too) */
    LS_TOK_LETTERS = 16, /* and spelled in byte letters: merged bytes can become it */
    LS_TOK_BYTE = 32,    /* "<0xE2>", which the decoder takes for the byte */
    LS_TOK_ODD = 64      /* a symbol that is no character: a byte's token, or unk */
};

typedef struct ls_tok_entry {
    uint32_t spell_at, spell_n; /* in spell[] */
    uint32_t byte_at, byte_n;   /* in byte[] */
    uint8_t flags;
} ls_tok_entry;

typedef struct ls_tok_slot {
    uint32_t next_id; /* id + 1; 0: empty */
    uint32_t tag;     /* of the hash: most other spellings are told apart by it */
} ls_tok_slot;

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

typedef enum ls_tok_normal_kind {
    LS_TOK_NFC,
    LS_TOK_NFKC,
    LS_TOK_PREPEND,
    LS_TOK_REPLACE
} ls_tok_normal_kind;

typedef struct ls_tok_replace { /* every `from` becomes `to` (Prepend: only `to`) */
    ls_tok_normal_kind kind;    /* of a normalizer */
    char *from, *to;
    size_t n_from, n_to;
} ls_tok_replace;

typedef enum ls_tok_prepend { LS_TOK_ALWAYS, LS_TOK_NEVER, LS_TOK_FIRST } ls_tok_prepend;

typedef struct ls_tok_mark { /* the character that stands for a space; n 0: none */
    char s[4];
    uint8_t n;
} ls_tok_mark;

typedef struct ls_tok_split {
    void *regex; /* pcre2_code; NULL: nothing is cut */
    char *where; /* path in the file, for messages */
    ls_tok_behavior behavior;
    bool invert;
    bool prefix_space;      /* put a space before a piece that does not begin with one */
    ls_tok_mark mark;       /* Metaspace: spaces become this, and one is put before a piece */
    ls_tok_prepend prepend; /* ... that does not begin with one: when */
} ls_tok_split;

typedef struct ls_tok_decoder {
    ls_tok_replace replace[LS_TOK_STEPS_MAX]; /* in every token */
    size_t n_replace;
    ls_tok_mark mark; /* Metaspace: a space, and in the first token nothing (if drop_first) */
    bool drop_first;
    bool byte_fallback, fuse;
    ls_tok_mark strip; /* n_strip of these are left out where the text begins */
    uint8_t n_strip;
} ls_tok_decoder;

struct ls_tokenizer {
    char *name;      /* of the file */
    bool byte_level; /* symbols are bytes, and the vocabulary is spelled in byte letters */
    ls_tok_entry *token;
    int32_t size; /* entries; the last one is there */
    size_t n_tokens;
    char *spell;
    uint8_t *byte;
    ls_tok_slot *slot;     /* hash of spellings */
    size_t n_slots;        /* power of two */
    int32_t byte_id[256];  /* of "<0xE2>" when the symbols are characters */
    int32_t ascii_id[128]; /* of a character that is a token, -1: none */
    int32_t unk;           /* -1: none */
    bool byte_fallback, fuse_unk;

    ls_tok_merge *merge;
    size_t n_merge_slots; /* power of two, or 0 */
    unsigned merge_shift; /* 64 - log2(n_merge_slots) */
    size_t n_merges;
    uint32_t n_ranks; /* ranks are below this */
    bool ignore_merges;
    uint64_t *join;      /* bits by pair of symbols: may stand side by side inside a token */
    unsigned join_shift; /* 64 - log2(bits); 0: any may */

    ls_tok_added *added;
    size_t n_added;
    ls_tok_trie raw, norm;

    ls_tok_replace normal[LS_TOK_STEPS_MAX];
    size_t n_normal;
    ls_tok_decoder decoder;
    ls_tok_split split[LS_TOK_SPLITS_MAX];
    size_t n_splits;
    int32_t before[LS_TOK_TEMPLATE_MAX], after[LS_TOK_TEMPLATE_MAX];
    size_t n_before, n_after;
    char warning[160];
};

/* The candidates of a long piece, lowest rank first (tokenizer_bpe.c). */
typedef struct ls_tok_queue {
    uint64_t *heap;
    size_t n_heap, heap_cap;
    bool sorted;    /* the lists are in use */
    int64_t rank;   /* of the batch; -1: none yet */
    int32_t *head;  /* by rank: first node, -1: none */
    uint64_t *some; /* bits by rank: there are nodes */
    size_t n_word;
    struct {
        int32_t at, next;
    } * node;
    size_t n_node, node_cap;
    int32_t free_node; /* -1: none */
    int32_t *batch;
    size_t n_batch, at_batch, batch_cap;
} ls_tok_queue;

/* Memory of one encode call. */
typedef struct ls_tok_work {
    const ls_tokenizer *tok;
    ls_ids *out;
    bool plain; /* some of the text is a person's: what is no added token is no special token */
    uint64_t steps;
    struct { /* per split step: the pieces it found */
        size_t *edge;
        uint8_t *is_match;
        size_t cap;
    } cut[LS_TOK_SPLITS_MAX];
    void *match, *jit_stack, *match_context; /* pcre2, made when first needed */
    uint64_t steps_left;                     /* of backtracking, for the whole text */
    ls_text spaced[LS_TOK_SPLITS_MAX];       /* a piece with a space before it */
    ls_text spelled;                         /* a piece in byte letters */
    int32_t *unit;                           /* first symbols of a piece */
    size_t unit_cap;
    struct ls_tok_symbol *symbol;
    size_t n_symbols;
    ls_tok_queue queue;
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

/* May a symbol or a merge of this text be the token? A vocabulary can spell "<s>", and have the
 * merges that build it. Unk and bytes have no other. */
static inline bool ls_tok_may_be(const ls_tok_work *w, int32_t id) {
    return !w->plain || !(w->tok->token[id].flags & LS_TOK_SPECIAL);
}

/* Where the bit of a pair of symbols is. */
static inline size_t ls_tok_join_bit(const ls_tokenizer *tok, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)(pair * 0xD6E8FEB86659FD93u >> tok->join_shift);
}

/* ---- loading, in this order ------------------------------------------------------------------ */
/* Normalizers, splitters (they say whether this is byte level), decoder. */
ls_status ls_tok_load_parts(ls_tokenizer *tok, const ls_json_at *root, ls_err *err);
ls_status ls_tok_load_normal(ls_tokenizer *tok, const ls_json_at *at, ls_err *err);
ls_status ls_tok_load_decoder(ls_tokenizer *tok, const ls_json_at *at, ls_err *err);
/* Refuses what is not a BPE this can run. */
ls_status ls_tok_check_model(ls_tokenizer *tok, const ls_json_at *model, bool partial_bytes,
                             ls_err *err);
ls_status ls_tok_load_vocab(ls_tokenizer *tok, const ls_json_at *root, bool partial_bytes,
                            ls_err *err);
ls_status ls_tok_load_merges(ls_tokenizer *tok, const ls_json_at *model, ls_err *err);
/* Instead of a list: two tokens merge when what they spell is a token, the highest score first and
 * the leftmost among equals. score[id] for the ids of the vocabulary. */
ls_status ls_tok_load_scores(ls_tokenizer *tok, const float *score, ls_err *err);
/* The template around a text. */
ls_status ls_tok_load_post(ls_tokenizer *tok, const ls_json_at *root, ls_err *err);
/* What the tokens stand for, by the decoder. */
ls_status ls_tok_load_bytes(ls_tokenizer *tok, ls_err *err);
/* Patterns of added tokens, normalized where they ask for it. */
ls_status ls_tok_load_tries(ls_tokenizer *tok, ls_err *err);

/* "type" of a component; "the WHAT "TYPE" is not supported". */
ls_status ls_tok_type_of(const ls_json_at *at, const char **type, ls_err *err);
ls_status ls_tok_unknown(const ls_json_at *at, const char *what, const char *type, ls_err *err);
/* {"type", "pattern": {"String"}, "content"}; owned by out. */
ls_status ls_tok_read_replace(const ls_json_at *at, ls_tok_replace *out, ls_err *err);
/* The member is one character. */
ls_status ls_tok_read_mark(const ls_json_at *at, const char *key, ls_tok_mark *out, ls_err *err);
/* A component's members are the type and these. */
#define LS_TOK_ONLY(at, err, ...)                                           \
    do {                                                                    \
        static const char *const only_[] = {"type", __VA_ARGS__};           \
        LS_TRY(ls_json_only(at, only_, sizeof only_ / sizeof *only_, err)); \
    } while (0)
void ls_tok_free_parts(ls_tokenizer *tok);

/* ---- encoding -------------------------------------------------------------------------------- */
/* The pattern (reference dialect, or literal text) compiled. */
ls_status ls_tok_regex(const ls_json_at *at, const char *pattern, size_t n, bool literal,
                       void **out, ls_err *err);
void ls_tok_regex_free(void *regex);

typedef struct ls_tok_span { /* bytes of a text */
    size_t begin, end;
} ls_tok_span;

/* The longest pattern at the leftmost place at or after `from`: index in tok->added, or -1. A
 * special token is none where it touches one of the spans in `plain`. */
int32_t ls_tok_find_added(const ls_tokenizer *tok, const ls_tok_trie *trie, const uint8_t *s,
                          size_t n, size_t from, const ls_tok_span *plain, size_t n_plain,
                          size_t *begin, size_t *end);

/* Appends s in NFC (compat: NFKC) to out, or returns false and leaves out alone when s is that
 * already by a look at its bytes. *status tells of memory. */
bool ls_tok_nfc(const uint8_t *s, size_t n, bool compat, ls_text *out, ls_status *status,
                ls_err *err);

/* s through the file's normalizers; s and n lie in the text given, or in a or b. */
typedef struct ls_tok_normal {
    const uint8_t *s;
    size_t n;
    ls_text a, b;
} ls_tok_normal;
ls_status ls_tok_normalize(const ls_tokenizer *tok, ls_tok_normal *t, ls_err *err);
void ls_tok_normal_free(ls_tok_normal *t);
/* Appends s to out with every r->from replaced. */
ls_status ls_tok_replace_all(const ls_tok_replace *r, const uint8_t *s, size_t n, ls_text *out,
                             ls_err *err);

/* White_Space, and \w of the engine that the reference asks about an added token's neighbours. */
bool ls_tok_is_space(uint32_t cp);
bool ls_tok_is_word(uint32_t cp);

/* Pre-tokens of s, each merged and appended to work->out. first: s is where the text begins. */
ls_status ls_tok_split_text(ls_tok_work *work, const uint8_t *s, size_t n, bool first, ls_err *err);
/* The first symbols of a piece, in work->unit. */
ls_status ls_tok_symbols(ls_tok_work *work, const uint8_t *s, size_t n, size_t *count, ls_err *err);
ls_status ls_tok_merge_piece(ls_tok_work *work, const uint8_t *s, size_t n, ls_err *err);
void ls_tok_work_free(ls_tok_work *work);
void ls_tok_queue_free(ls_tok_queue *queue);

/* Doubles until n fit; elem > 0. */
ls_status ls_tok_grow(void **p, size_t *cap, size_t n, size_t elem, ls_err *err);
ls_status ls_ids_push(ls_ids *ids, int32_t id, ls_err *err);

#endif
