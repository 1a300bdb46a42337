/* tokenizer.h - BPE from tokenizer.json, byte-level or as SentencePiece does it: text to ids, ids
 * to text.
 * Built     model BPE (merges as "a b" or ["a", "b"], ignore_merges, byte_fallback, unk_token,
 *           fuse_unk); normalizers NFC, NFKC, Prepend, Replace (literal); splitters ByteLevel,
 *           Split (regex or literal, all behaviours, invert), Digits, Metaspace; post-processors
 *           ByteLevel, TemplateProcessing; decoders ByteLevel, Replace, Metaspace, ByteFallback,
 *           Fuse, Strip of the text's beginning; Sequence of each; added tokens with all flags.
 *           Anything else is refused with its JSON path: a default would give wrong ids.
 * Stricter  than peers, on purpose: two strings with one id, a byte (or character) that the
 *           vocabulary cannot express (see partial_bytes), a merge whose parts or result are not in
 *           the vocabulary, the same merge twice and an empty added token are refused. A byte-level
 *           vocabulary may lack control characters and bytes of no assigned character; a text that
 *           has one is refused, where the reference drops it.
 * Text      is bytes. What is not UTF-8 is read as U+FFFD per maximal part (utf8.h) and counted.
 * Bytes     that make no character, in tokens: one U+FFFD per maximal part, or with byte fallback
 *           one per byte (sentencepiece's rule; the reference looks back over a whole run, which
 *           cannot be shown as it comes).
 * Time      n log n in any text under the patterns of known models. A foreign pattern that
 *           backtracks past a limit, which is for the whole text and grows with it, is an error and
 *           not a hang; one that looks ahead over the text from every place of it takes n squared.
 *           Ids or spellings chosen so that they crowd one place of a table are refused.
 * Memory    a tokenizer owns its tables; ls_ids and ls_text belong to the caller, who frees them.
 * Threads   a tokenizer is read-only after open: any number of threads may use one. */
#ifndef LS_TOKENIZER_H
#define LS_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "sha256.h"

typedef struct ls_tokenizer ls_tokenizer;

typedef struct ls_ids { /* zero-initialise; grows; ids are appended */
    int32_t *id;
    size_t n, cap;
} ls_ids;

typedef struct ls_text { /* zero-initialise; grows; zero-terminated once something was appended */
    char *s;
    size_t n, cap;
} ls_text;

typedef struct ls_tokenizer_options {
    bool partial_bytes; /* load a vocabulary that cannot express all text; text that needs more is
                           then an error */
} ls_tokenizer_options;

enum {                          /* flags of encode */
       LS_ENCODE_TEMPLATE = 1,  /* add what the post-processor adds (usually the BOS token) */
       LS_ENCODE_NO_SPECIAL = 2 /* untrusted text: special tokens spelled in it are plain text */
};

/* A text in parts: `plain` ones are a person's words, in which special tokens are plain text:
 * neither their spelling nor merges make one, also with what stands around them. Added tokens that
 * the file does not call special are read there as anywhere. */
typedef struct ls_encode_part {
    const char *s;
    size_t n;
    bool plain;
} ls_encode_part;

typedef struct ls_encode_info {
    bool double_bos;      /* the template's BOS precedes a BOS that the text itself spells */
    size_t n_replaced;    /* maximal parts that were not UTF-8 */
    uint64_t merge_steps; /* looks at candidate pairs (for tests of linear time) */
} ls_encode_info;

#ifdef __cplusplus
extern "C" {
#endif

/* dir/tokenizer.json; options may be NULL. */
ls_status ls_tokenizer_open(const char *dir, const ls_tokenizer_options *options,
                            ls_tokenizer **out, ls_err *err);
ls_status ls_tokenizer_parse(const char *json, size_t n, const char *name,
                             const ls_tokenizer_options *options, ls_tokenizer **out, ls_err *err);
void ls_tokenizer_destroy(ls_tokenizer *tok);

/* Appends the ids of text to out. info may be NULL. On error out is as it was. */
ls_status ls_tokenizer_encode(const ls_tokenizer *tok, const char *text, size_t n, unsigned flags,
                              ls_ids *out, ls_encode_info *info, ls_err *err);
/* The same for the parts joined; LS_ENCODE_NO_SPECIAL makes all of them plain. */
ls_status ls_tokenizer_encode_parts(const ls_tokenizer *tok, const ls_encode_part *part,
                                    size_t n_part, unsigned flags, ls_ids *out,
                                    ls_encode_info *info, ls_err *err);
/* Appends the text of ids; skip_special leaves special tokens out. LS_ERR_INPUT for an id without a
 * token (negative, a gap, at or past the size). */
ls_status ls_tokenizer_decode(const ls_tokenizer *tok, const int32_t *ids, size_t n,
                              bool skip_special, ls_text *out, ls_err *err);

/* Largest id + 1: ids at or past it exist in no text. */
int32_t ls_tokenizer_size(const ls_tokenizer *tok);
/* The bytes a token stands for inside a text, not zero-terminated; NULL for an id without a
 * token. */
const uint8_t *ls_tokenizer_bytes(const ls_tokenizer *tok, int32_t id, size_t *n);
bool ls_tokenizer_is_special(const ls_tokenizer *tok, int32_t id);
/* Id of the token spelled so in the file (byte letters, or a mark for a space), or of an added
 * token; -1: none. */
int32_t ls_tokenizer_find(const ls_tokenizer *tok, const char *spelling);
/* First id the template puts before a text; -1: none. */
int32_t ls_tokenizer_bos(const ls_tokenizer *tok);
/* Are its symbols bytes (true), or characters with tokens for the bytes of others? */
bool ls_tokenizer_byte_level(const ls_tokenizer *tok);
size_t ls_tokenizer_n_tokens(const ls_tokenizer *tok);
size_t ls_tokenizer_n_merges(const ls_tokenizer *tok);
/* One line worth telling a person (a vocabulary of words without merges), or NULL. */
const char *ls_tokenizer_warning(const ls_tokenizer *tok);

/* SHA-256 over every (id, special, bytes): equal for vocabularies that mean the same. */
ls_status ls_tokenizer_digest(const ls_tokenizer *tok, char hex[LS_SHA256_HEX], ls_err *err);
/* LS_OK when each id means the same in both. Else LS_ERR_INPUT naming the first id that differs.
 * The embedding rows of two models may differ: padding rows have no token and are no difference. */
ls_status ls_tokenizer_same(const ls_tokenizer *a, const ls_tokenizer *b, ls_err *err);

void ls_ids_free(ls_ids *ids);
void ls_text_free(ls_text *text);
ls_status ls_text_append(ls_text *text, const char *s, size_t n, ls_err *err);

/* ---- text as it arrives ----------------------------------------------------------------------
 * Holds back only a valid beginning of a character; the pieces joined (flush included) are the
 * whole decode, however the ids are cut into calls. Borrows the tokenizer. */
typedef struct ls_stream {
    const ls_tokenizer *tok;
    bool skip_special;
    bool begun; /* a token was shown */
    uint8_t held[4];
    uint8_t n_held;
    uint8_t n_strip; /* characters still left out where the text begins (Strip) */
} ls_stream;

ls_stream ls_stream_begin(const ls_tokenizer *tok, bool skip_special);
/* Appends what can be shown after one more id. */
ls_status ls_stream_push(ls_stream *s, int32_t id, ls_text *out, ls_err *err);
/* At the end of the text: what is still held becomes U+FFFD. */
ls_status ls_stream_flush(ls_stream *s, ls_text *out, ls_err *err);

#ifdef __cplusplus
}
#endif

#endif
