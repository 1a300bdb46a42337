#include "chunk_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"even", "splits", "doubling"};

ls_status ls_chunk_parse(const char *text, ls_chunk_rule *rule, ls_err *err) {
    char kind[16] = "", rest;
    int x = 0, y = 0;
    const int n = sscanf(text, "%15[a-z]:%9d:%9d%c", kind, &x, &y, &rest);
    for (int k = 0; k < 3; k++) {
        const bool splits = k == LS_CHUNK_SPLITS;
        if (strcmp(kind, kinds[k]) != 0 || n != (splits ? 2 : 3))
            continue;
        const ls_chunk_rule r = {
            .kind = (ls_chunk_kind)k, .min_keys = splits ? 0 : x, .max_chunks = splits ? x : y};
        LS_TRY(ls_chunk_check(r, err));
        *rule = r;
        return LS_OK;
    }
    return ls_fail(err, LS_ERR_INPUT, "not even:MIN:MAX, splits:N or doubling:MIN:MAX");
}

char *ls_chunk_text(ls_chunk_rule rule, char out[LS_CHUNK_TEXT]) {
    if (rule.kind == LS_CHUNK_SPLITS)
        snprintf(out, LS_CHUNK_TEXT, "splits:%d", rule.max_chunks);
    else
        snprintf(out, LS_CHUNK_TEXT, "%s:%d:%d", kinds[rule.kind], rule.min_keys, rule.max_chunks);
    return out;
}
