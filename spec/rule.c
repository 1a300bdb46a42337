#include "rule.h"

#include <stdlib.h>
#include <string.h>

static void builtin_destroy(ls_rule *r) {
    free(r);
}

ls_status ls_rule_builtin(const char *name, ls_rule **out, ls_err *err) {
    const bool exact = strcmp(name, "exact") == 0;
    if (!exact && strcmp(name, "rejection") != 0)
        return ls_fail(err, LS_ERR_INPUT, "rule '%s' is not built in: use exact or rejection",
                       name);
    ls_rule *r = calloc(1, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ERR_MEMORY, "rule: out of memory");
    r->name = exact ? "exact" : "rejection";
    r->where = "built in";
    r->kind = exact ? LS_RULE_EXACT : LS_RULE_LOSSLESS;
    r->accept = exact ? LS_ACCEPT_EXACT : LS_ACCEPT_REJECTION;
    r->coupled = exact;
    r->needs_draft = !exact;
    r->destroy = builtin_destroy;
    *out = r;
    return LS_OK;
}
