/* record.h - the JSON records the program prints: the same names and units wherever they appear.
 * Absent      a number that is not known is null, never 0 and never NaN.
 * Times       _us, measured; everything else in a record is the same on every run with its seed.
 * Memory      every function gives a new json_t the caller owns, NULL only when memory is out.
 * Numbers     counts as integers, rates as the quotient of the counts beside them. */
#ifndef LS_RECORD_H
#define LS_RECORD_H

#include <jansson.h>
#include <stdio.h>

#include "generate.h"
#include "interval.h"
#include "metrics.h"
#include "setup.h"

/* {lockstep, command, profile, device, target, draft, drafter, engine}: reads the weights once for
 * their digests. */
ls_status ls_record_setup(const char *command, const ls_setup *s, json_t **out, ls_err *err);
/* {dir, sha256, tokenizer_sha256, n_params} */
ls_status ls_record_model(const ls_model *m, json_t **out, ls_err *err);
json_t *ls_record_engine(const ls_engine *e);
json_t *ls_record_warp(const ls_warp *w);
json_t *ls_record_policy(const ls_policy *p, const char *options); /* {name, where, options} */
json_t *ls_record_rule(const ls_rule *r);                          /* {name, where, kind} */
json_t *ls_record_rate(ls_rate r);                                 /* a number or null */
json_t *ls_record_metrics(const ls_metrics *m);
json_t *ls_record_tokens(const int32_t *token, int32_t n);

/* Writes the record (in one line, or indented for a person) and a newline to `path` ("-" = stdout);
 * drops it, also on error. */
ls_status ls_record_write(json_t *record, const char *path, bool indent, ls_err *err);

#endif
