/* show.h - generated text on standard output as it comes, token by token in its colour.
 * Whole       never half a character, nothing of a stop string, nothing behind it.
 * Safe        on a terminal control characters other than newline and tab become \xHH: a model may
 *             write anything, and a terminal obeys it.
 * Rejected    drafts that were refused are shown where they stood, in their colour, or between [-
 *             and -] without colours; they are no part of the text.
 * Memory      owns its buffers; borrows tokenizer, terminal and stop strings. */
#ifndef LS_SHOW_H
#define LS_SHOW_H

#include <stdio.h>

#include "stop.h"
#include "term.h"
#include "tokenizer.h"

typedef struct ls_show {
    FILE *out;
    const ls_term *term;
    ls_stream stream;
    ls_stop *stop; /* NULL: no stop strings */
    ls_text queue; /* text not yet shown, */
    ls_text style; /* and one ls_style for each of its bytes */
    bool ended;    /* a stop string is complete: what is queued is never shown */
    bool clean;    /* escape control characters */
    ls_style now;  /* what the terminal is set to */
} ls_show;

ls_status ls_show_begin(ls_show *s, FILE *out, const ls_term *term, const ls_tokenizer *tok,
                        const char *const *stop, int32_t n_stop, ls_err *err);
ls_status ls_show_token(ls_show *s, int32_t token, ls_style style, ls_err *err);
ls_status ls_show_rejected(ls_show *s, const int32_t *token, int32_t n, ls_err *err);
/* End of the text: shows what was held back, unless a stop string ended it, and ends the line. */
ls_status ls_show_end(ls_show *s, ls_err *err);
void ls_show_free(ls_show *s);

#endif
