/* tokenizer_golden.h - the texts and golden ids of fixtures/tokenizers, as its README.md lays them
 * out.
 * Memory      the texts are there from ls_golden_begin to ls_golden_end, a group's set-up and its
 *             end.
 * Errors      whatever fails here fails the test. */
#ifndef LS_TEST_TOKENIZER_GOLDEN_H
#define LS_TEST_TOKENIZER_GOLDEN_H

#include "tokenizer_rig.h"

typedef struct ls_golden_text {
    char *s;
    size_t n;
} ls_golden_text;

typedef struct ls_golden_texts {
    ls_golden_text *text;
    size_t n;
} ls_golden_texts;

extern ls_golden_texts ls_golden;
int ls_golden_begin(void **state);
int ls_golden_end(void **state);

/* The ids of every text have to be those of fixtures/tokenizers/NAME.gold: returns how many are.
 * decodes: the file's decoded texts follow and are compared as well. */
size_t ls_golden_expect(const ls_tokenizer *tok, const char *name, unsigned flags, bool decodes);

/* An escaped beginning of a text, for messages. */
const char *ls_golden_show(char dst[200], const char *s, size_t n);

#endif
