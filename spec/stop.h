/* stop.h - stop strings in a stream of text pieces.
 * Holds back  the longest tail that could still become a stop string; a half match that fails is
 *             released. The text ends before the earliest match; of two that begin together the
 *             shorter was complete first and wins.
 * Memory      strings are copied. A released piece is valid until the next call. */
#ifndef LS_STOP_H
#define LS_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct ls_stop ls_stop;

/* Empty strings are LS_ERR_INPUT. n may be 0: everything is released at once. */
ls_status ls_stop_create(const char *const *strings, int32_t n, ls_stop **out, ls_err *err);
void ls_stop_destroy(ls_stop *s);
void ls_stop_reset(ls_stop *s);
/* Takes the next piece; *text, *n_text is what may be shown now. *hit: a stop string is complete,
 * nothing more will be released. */
ls_status ls_stop_feed(ls_stop *s, const char *piece, size_t n, const char **text, size_t *n_text,
                       bool *hit, ls_err *err);
/* The end came without a match: releases what was held. */
void ls_stop_flush(ls_stop *s, const char **text, size_t *n_text);
/* Bytes released since create or reset. */
size_t ls_stop_released(const ls_stop *s);

#endif
