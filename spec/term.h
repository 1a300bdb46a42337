/* term.h - the person in front: a progress line, colours, and Ctrl-C.
 * Progress    on stderr, only when that is a terminal; redrawn at most ten times a second and gone
 *             before anything else is printed (ls_term_clear).
 * Colours     on stdout: always, never, or (auto) only when it is a terminal.
 * Ctrl-C      the first sets a flag that long work asks for between rounds; the second ends the
 *             program at once. The flag is the one variable of the program that is not in a struct:
 *             a signal handler can reach nothing else.
 * Threads     one owner; ls_term_stopped may be called from any. */
#ifndef LS_TERM_H
#define LS_TERM_H

#include <stdbool.h>
#include <stdint.h>

#include "load.h"

#define LS_TERM_COLORS "auto|always|never"

typedef enum ls_style {
    LS_STYLE_NONE = 0,
    LS_STYLE_DRAFTED,  /* an accepted drafted token */
    LS_STYLE_TARGET,   /* the target's own: bonus or correction */
    LS_STYLE_REJECTED, /* a drafted token that was refused */
    LS_STYLE_FAINT,
    LS_STYLE_GOOD,
    LS_STYLE_BAD
} ls_style;

typedef struct ls_term {
    bool color, progress;
    bool drawn; /* a progress line stands on the terminal */
    double drawn_us;
} ls_term;

ls_term ls_term_open(int color, bool quiet); /* color: place in LS_TERM_COLORS */
/* "" when there are no colours. */
const char *ls_term_style(const ls_term *t, ls_style style);
/* total <= 0: not known. text: what is being done, may be NULL. */
void ls_term_progress(ls_term *t, int64_t done, int64_t total, const char *text);
void ls_term_clear(ls_term *t);
/* Loads of LS_TERM_LOAD_BYTES and more as a progress line of t. */
#define LS_TERM_LOAD_BYTES ((uint64_t)256 << 20)
ls_load ls_term_load(ls_term *t);

void ls_term_catch(void);         /* from now on Ctrl-C sets the flag */
bool ls_term_stopped(void *self); /* a stop callback: ls_gen_hooks.stop, ls_lua_run.stop */

#endif
