/* results.h - the finished cells of a study: one JSON object a line, kept whatever happens.
 * File        DIR/NAME.jsonl, only ever appended to. A line is one cell, {"cell": id, ...}.
 * Commit      add returns after one write of the whole line and an fsync: a kill loses the cell in
 *             work and no other. A write that fails half way is taken back.
 * Torn line   a last line without its newline is a write that was cut off: it is dropped at open
 *             and counted. Anything else that is not a cell is an error naming the line: a study is
 *             not repaired by guessing.
 * Identity    a cell is found by its id, a SHA-256 in hex of whatever it depends on.
 * Errors      LS_ERR_INPUT for a bad name or line, LS_ERR_IO from the system, LS_ERR_STATE when the
 *             file is in use by another run or the cell is there already.
 * Memory      an id and an offset a cell; lines stay in the file.
 * Threads     one owner. */
#ifndef LS_RESULTS_H
#define LS_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sha256.h"

typedef struct ls_results ls_results;

/* Makes DIR (one level) and the file where missing, and locks the file against other runs. NAME:
 * letters, digits, '_', '-' and '.', not beginning with '.'. *n_torn (may be NULL) is the number of
 * bytes dropped from the end. */
ls_status ls_results_open(const char *dir, const char *name, ls_results **out, size_t *n_torn,
                          ls_err *err);
void ls_results_close(ls_results *r);

bool ls_results_has(const ls_results *r, const char *id);
/* The line of a finished cell without its newline (free it); NULL when there is none. */
ls_status ls_results_get(const ls_results *r, const char *id, char **line, ls_err *err);
/* Line i in file order, 0-based. */
ls_status ls_results_line(const ls_results *r, int64_t i, char **line, ls_err *err);
/* `line` is one JSON object with "cell": id, without a newline. */
ls_status ls_results_add(ls_results *r, const char *id, const char *line, ls_err *err);

int64_t ls_results_count(const ls_results *r);
const char *ls_results_path(const ls_results *r);

#endif
