#include "places.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

#define LEVELS_UP 5 /* build/PRESET/spec/lockstep lies four below the sources */

#define SHARE "/share/lockstep" /* PREFIX/bin/lockstep, wherever the prefix was moved to */

/* *out = dir/name when that exists, NULL when not. */
static ls_status existing(const char *dir, const char *name, char **out, ls_err *err) {
    char *path;
    LS_TRY(ls_file_join(dir, name, &path, err));
    if (!ls_file_exists(path)) {
        free(path);
        path = NULL;
    }
    *out = path;
    return LS_OK;
}

static ls_status try_root(const char *dir, ls_places *p, ls_err *err) {
    char *marker;
    LS_TRY(existing(dir, "policies/length", &marker, err));
    if (!marker)
        return LS_OK;
    free(marker);
    p->root = malloc(strlen(dir) + 1);
    if (!p->root)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    strcpy(p->root, dir);
    return LS_OK;
}

static ls_status find_root(ls_places *p, ls_err *err) {
    char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) {
        path[n] = 0;
        for (int up = 0; up < LEVELS_UP && !p->root; up++) {
            char *slash = strrchr(path, '/');
            if (!slash || slash == path)
                break;
            *slash = 0;
            LS_TRY(try_root(path, p, err));
            if (p->root || strlen(path) + sizeof SHARE > sizeof path)
                continue;
            strcpy(slash, SHARE);
            LS_TRY(try_root(path, p, err));
            *slash = 0;
        }
    }
#ifdef LS_DATA_DIR
    if (!p->root)
        LS_TRY(try_root(LS_DATA_DIR, p, err));
#endif
    return p->root ? LS_OK : try_root(".", p, err);
}

static ls_status find_all(ls_places *p, ls_err *err) {
    LS_TRY(find_root(p, err));
    if (!p->root)
        return LS_OK;
    LS_TRY(existing(p->root, "policies", &p->policies, err));
    LS_TRY(existing(p->root, "experiments/prompts", &p->prompts, err));
    char *config;
    LS_TRY(existing(p->root, "experiments/models/target/config.json", &config, err));
    if (!config)
        return LS_OK;
    free(config);
    LS_TRY(existing(p->root, "experiments/models/target", &p->target, err));
    return existing(p->root, "experiments/models/draft", &p->draft, err);
}

ls_status ls_places_find(ls_places *out, ls_err *err) {
    *out = (ls_places){0};
    ls_status status = find_all(out, err);
    if (status != LS_OK)
        ls_places_free(out);
    return status;
}

void ls_places_free(ls_places *p) {
    free(p->root);
    free(p->policies);
    free(p->prompts);
    free(p->target);
    free(p->draft);
    *p = (ls_places){0};
}

ls_status ls_places_need_pair(const ls_places *p, ls_err *err) {
    if (p->target && p->draft)
        return LS_OK;
    return ls_fail(
        err, LS_ERR_INPUT,
        "the embedded pair is not at %s/experiments/models: run from the source tree, or "
        "give --target DIR (and --draft DIR)",
        p->root ? p->root : ".");
}
