/* fuzz_text.h - a tokenizer that a target has loaded, used: encoded, decoded, streamed. */
#ifndef LS_FUZZ_TEXT_H
#define LS_FUZZ_TEXT_H

#include "tokenizer.h"

/* text NULL: a short one of all sorts. */
void fuzz_text(const ls_tokenizer *tok, const char *text, size_t n);

#endif
