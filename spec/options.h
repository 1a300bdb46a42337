/* options.h - command lines: one table of options, read by getopt_long and printed by --help, so
 * that the help cannot promise what is not read.
 * Types       each entry names a field of a struct by offset and says what may be put there.
 * Repeats     a LIST collects; anything else takes the last value given.
 * Errors      LS_ERR_INPUT naming the option, the value and what it may be.
 * Memory      texts are borrowed from argv. Nothing to free. */
#ifndef LS_OPTIONS_H
#define LS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "status.h"

#define LS_LIST_MAX 64

typedef struct ls_list {
    const char *item[LS_LIST_MAX];
    int32_t n;
} ls_list;

typedef struct ls_seed {
    bool given;
    uint64_t value;
} ls_seed;

typedef enum ls_opt_type {
    LS_OPT_FLAG,   /* bool; no value */
    LS_OPT_TEXT,   /* const char * */
    LS_OPT_LIST,   /* ls_list */
    LS_OPT_INT,    /* int32_t in [min, max] */
    LS_OPT_NUMBER, /* float in [min, max] */
    LS_OPT_SEED,   /* ls_seed */
    LS_OPT_CHOICE, /* int: which of the words of `arg`, "auto|plain|avx2|avx512", in order */
    LS_OPT_OTHER   /* parse(field, value) */
} ls_opt_type;

typedef struct ls_opt {
    const char *name; /* without the dashes */
    const char *arg;  /* what --help calls its value; NULL for a flag */
    const char *help; /* '\n' begins the next line */
    ls_opt_type type;
    size_t at;
    double min, max;
    ls_status (*parse)(void *field, const char *value, ls_err *err);
} ls_opt;

typedef struct ls_opt_group {
    const char *title;
    const ls_opt *opt;
    size_t n;
    void *base; /* the struct the offsets are in */
} ls_opt_group;

/* A command of the program. run may print; it returns LS_ERR_CHECK when a check failed. */
typedef struct ls_command ls_command;
struct ls_command {
    const char *name, *line; /* line: in `lockstep help` */
    const char *usage;       /* behind "lockstep NAME " */
    const char *about, *examples;
    ls_status (*run)(const ls_command *self, int argc, char **argv, ls_err *err);
};

typedef struct ls_args {
    bool help;              /* --help was asked for and printed to stdout: nothing is left to do */
    const char *const *pos; /* what is not an option */
    int32_t n_pos;
} ls_args;

/* argv[0] is the command's name. stop_at_first: from the first non-option on all is positional. */
ls_status ls_options_parse(const ls_command *cmd, const ls_opt_group *group, size_t n_group,
                           bool stop_at_first, int argc, char **argv, ls_args *out, ls_err *err);
void ls_options_help(FILE *f, const ls_command *cmd, const ls_opt_group *group, size_t n_group);

/* For parse functions: the whole text is one integer or number in range. */
ls_status ls_parse_int(const char *text, int64_t min, int64_t max, int64_t *out, ls_err *err);
ls_status ls_parse_number(const char *text, double min, double max, double *out, ls_err *err);

#endif
