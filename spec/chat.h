/* chat.h - one user's turn in a model's own chat template, from a small table of known renderers.
 * Source    chat_template.jinja, or chat_template in tokenizer_config.json (the one named "default"
 *           of several); in a GGUF file tokenizer.chat_template. The template is a program in
 *           Jinja. It is not run: markers say which renderer it is, and its own literals what
 *           varies.
 * Known     ChatML    <|im_start|>     default system text, BOS or none, the answer's first words
 *           Llama 3   <|start_header_id|>  with Llama 3.1's lines of dates or without
 *           Gemma     <start_of_turn>  no system role: its text goes before the user's, or is
 *                                      refused where the template refuses it
 *           Mistral   [INST]           the spaces around the brackets; a system text likewise
 * Refused   a template with none of these markers or of two kinds, and one in which a known kind
 *           does something else (another line end, an unknown default, today's date): nothing is
 *           guessed.
 * Dates     Llama 3.2 asks for today's; here it is the date the template falls back on, so that a
 *           prompt is the same tomorrow.
 * Safety    a person's words are never special tokens, whatever they spell (ls_encode_part), and
 *           the template's markers always are, or the turn is refused. Markers that are plain text
 *           to the tokenizer (Mistral's first models) can be spelled by anyone.
 * Memory    a chat owns its texts; parts borrow from it and from the caller.
 * Threads   read-only after open. */
#ifndef LS_CHAT_H
#define LS_CHAT_H

#include "gguf.h"
#include "tokenizer.h"

typedef enum ls_chat_kind {
    LS_CHAT_CHATML,
    LS_CHAT_LLAMA3,
    LS_CHAT_GEMMA,
    LS_CHAT_MISTRAL
} ls_chat_kind;

typedef struct ls_chat {
    ls_chat_kind kind;
    char *name;      /* of the file, for messages */
    bool bos;        /* the template begins with bos_token */
    bool trim;       /* white space around the user's words goes */
    bool has_system; /* a system text has a place */
    char *system;    /* put where none is given; NULL: nothing */
    char *dates;     /* Llama 3.1: lines before the system text; NULL: none */
    char *open;      /* Mistral: "[INST] " */
    char *close;     /* Mistral: " [/INST]"; ChatML: what the answer begins with */
} ls_chat;

#define LS_CHAT_PARTS_MAX 12

typedef struct ls_chat_parts {
    ls_encode_part part[LS_CHAT_PARTS_MAX];
    size_t n;
} ls_chat_parts;

#ifdef __cplusplus
extern "C" {
#endif
/* Of a model's folder, or (not NULL) its GGUF file, whose path dir then is. LS_ERR_INPUT with
 * advice when there is no template, or one that is not known. */
ls_status ls_chat_open(const char *dir, const ls_gguf *gguf, ls_chat *out, ls_err *err);
/* The text of a template; name: of its file. */
ls_status ls_chat_parse(const char *text, size_t n, const char *name, ls_chat *out, ls_err *err);
void ls_chat_free(ls_chat *chat);
const char *ls_chat_kind_name(ls_chat_kind kind);

/* The turn's text. bos: what bos_token is spelled; system: NULL for none given. */
ls_status ls_chat_render(const ls_chat *chat, const char *bos, const char *system, const char *user,
                         size_t n_user, ls_chat_parts *out, ls_err *err);
/* The turn's ids, appended to out; bos_id: the model's (-1: the tokenizer's). info may be NULL. */
ls_status ls_chat_encode(const ls_chat *chat, const ls_tokenizer *tok, int32_t bos_id,
                         const char *system, const char *user, size_t n_user, ls_ids *out,
                         ls_encode_info *info, ls_err *err);
/* The token that ends the answer's turn; -1: none of its own, the model's end-of-text. */
int32_t ls_chat_end(const ls_chat *chat, const ls_tokenizer *tok);
#ifdef __cplusplus
}
#endif

#endif
