/* chunk_text.h - a chunk rule as people write it: even:MIN:MAX, splits:N, doubling:MIN:MAX.
 * Errors      LS_ERR_INPUT saying what was expected; the rule's own limits by ls_chunk_check. */
#ifndef LS_CHUNK_TEXT_H
#define LS_CHUNK_TEXT_H

#include "backend.h"

#define LS_CHUNK_TEXT 48

ls_status ls_chunk_parse(const char *text, ls_chunk_rule *rule, ls_err *err);
/* Returns out. */
char *ls_chunk_text(ls_chunk_rule rule, char out[LS_CHUNK_TEXT]);

#endif
