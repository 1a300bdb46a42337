#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 80
#define HELP_COLUMN 28

ls_status ls_parse_int(const char *text, int64_t min, int64_t max, int64_t *out, ls_err *err) {
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    /* strtoll skips blanks and takes "", neither of which is a number a person meant */
    if (end == text || *end || errno || v < min || v > max || strchr(" \t\n\v\f\r", *text))
        return ls_fail(err, LS_ERR_INPUT, "not a whole number from %lld to %lld", (long long)min,
                       (long long)max);
    *out = v;
    return LS_OK;
}

ls_status ls_parse_number(const char *text, double min, double max, double *out, ls_err *err) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end || !(v >= min && v <= max) || strchr(" \t\n\v\f\r", *text))
        return ls_fail(err, LS_ERR_INPUT, "not a number from %g to %g", min, max);
    *out = v;
    return LS_OK;
}

static ls_status parse_seed(const char *text, ls_seed *out, ls_err *err) {
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 0);
    if (end == text || *end || errno || !(*text >= '0' && *text <= '9') || v > INT64_MAX)
        return ls_fail(err, LS_ERR_INPUT, "not a whole number from 0 to 2^63 - 1");
    *out = (ls_seed){.given = true, .value = v};
    return LS_OK;
}

static ls_status parse_choice(const char *words, const char *text, int *out, ls_err *err) {
    int i = 0;
    for (const char *w = words; w; i++) {
        const char *bar = strchr(w, '|');
        const size_t n = bar ? (size_t)(bar - w) : strlen(w);
        if (strlen(text) == n && memcmp(text, w, n) == 0) {
            *out = i;
            return LS_OK;
        }
        w = bar ? bar + 1 : NULL;
    }
    return ls_fail(err, LS_ERR_INPUT, "not one of %s", words);
}

static ls_status set(const ls_opt *o, void *base, const char *value, ls_err *err) {
    void *field = (char *)base + o->at;
    switch (o->type) {
    case LS_OPT_FLAG:
        *(bool *)field = true;
        return LS_OK;
    case LS_OPT_TEXT:
        *(const char **)field = value;
        return LS_OK;
    case LS_OPT_LIST: {
        ls_list *list = field;
        if (list->n == LS_LIST_MAX)
            return ls_fail(err, LS_ERR_INPUT, "given more than %d times", LS_LIST_MAX);
        list->item[list->n++] = value;
        return LS_OK;
    }
    case LS_OPT_INT: {
        int64_t v = 0;
        LS_TRY(ls_parse_int(value, (int64_t)o->min, (int64_t)o->max, &v, err));
        *(int32_t *)field = (int32_t)v;
        return LS_OK;
    }
    case LS_OPT_NUMBER: {
        double v = 0;
        LS_TRY(ls_parse_number(value, o->min, o->max, &v, err));
        *(float *)field = (float)v;
        return LS_OK;
    }
    case LS_OPT_SEED:
        return parse_seed(value, field, err);
    case LS_OPT_CHOICE:
        return parse_choice(o->arg, value, field, err);
    case LS_OPT_OTHER:
        return o->parse(field, value, err);
    }
    return LS_OK;
}

/* An option or value as the person typed it, safe to print. */
static char *shown(char dst[96], const char *text) {
    return ls_err_text(dst, 96, text, strlen(text));
}

ls_status ls_options_parse(const ls_command *cmd, const ls_opt_group *group, size_t n_group,
                           bool stop_at_first, int argc, char **argv, ls_args *out, ls_err *err) {
    struct option table[OPTIONS_MAX];
    const ls_opt *meant[OPTIONS_MAX];
    void *base[OPTIONS_MAX];
    int n = 0;
    for (size_t g = 0; g < n_group; g++)
        for (size_t i = 0; i < group[g].n && n < OPTIONS_MAX - 2; i++, n++) {
            meant[n] = &group[g].opt[i];
            base[n] = group[g].base;
            table[n] = (struct option){
                .name = meant[n]->name, .has_arg = meant[n]->type != LS_OPT_FLAG, .val = 256 + n};
        }
    table[n] = (struct option){.name = "help", .val = 'h'};
    table[n + 1] = (struct option){0};

    *out = (ls_args){0};
    optind = 0; /* GNU: begin anew */
    opterr = 0;
    char text[96], name[96];
    for (;;) {
        const int c = getopt_long(argc, argv, stop_at_first ? "+:h" : ":h", table, NULL);
        if (c == -1)
            break;
        if (c == 'h') {
            ls_options_help(stdout, cmd, group, n_group);
            out->help = true;
            return LS_OK;
        }
        if (c == '?' || c == ':') {
            const char *why = c == ':'                            ? "needs a value"
                              : optopt >= 256 && optopt < 256 + n ? "takes no value"
                                                                  : "is not an option";
            /* a short option leaves optind where it is while its cluster lasts */
            char one[3] = {'-', (char)optopt, 0};
            const bool is_short = optopt > 0 && optopt < 256 && optopt != 'h';
            return ls_fail(err, LS_ERR_INPUT, "%s %s: try lockstep %s --help",
                           shown(text, is_short ? one : argv[optind - 1]), why, cmd->name);
        }
        const ls_opt *o = meant[c - 256];
        ls_status status = set(o, base[c - 256], optarg, err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "--%s %s", o->name, optarg ? shown(name, optarg) : "");
    }
    out->pos = (const char *const *)argv + optind;
    out->n_pos = argc - optind;
    return LS_OK;
}

/* "  --name VALUE      help", further lines of the help below its beginning. */
static void help_option(FILE *f, const char *name, const char *arg, const char *help) {
    int n = fprintf(f, "  --%s%s%s", name, arg ? " " : "", arg ? arg : "");
    for (const char *line = help; line;) {
        const char *end = strchr(line, '\n');
        if (n > HELP_COLUMN - 2)
            n = fprintf(f, "\n") - 1;
        fprintf(f, "%*s%.*s\n", HELP_COLUMN - n, "", end ? (int)(end - line) : (int)strlen(line),
                line);
        line = end ? end + 1 : NULL;
        n = 0;
    }
}

void ls_options_help(FILE *f, const ls_command *cmd, const ls_opt_group *group, size_t n_group) {
    fprintf(f, "usage: lockstep %s %s\n\n%s\n", cmd->name, cmd->usage, cmd->about);
    for (size_t g = 0; g < n_group; g++) {
        fprintf(f, "\n%s\n", group[g].title);
        for (size_t i = 0; i < group[g].n; i++)
            help_option(f, group[g].opt[i].name, group[g].opt[i].arg, group[g].opt[i].help);
    }
    if (cmd->examples)
        fprintf(f, "\nExamples\n%s", cmd->examples);
}
