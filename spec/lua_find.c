#include "lua_find.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

#define MOST_LISTED 32

static bool is_file_name(const char *name) {
    const size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".lua") == 0);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the names of the scripts in one folder to the list; one that cannot be read adds none. */
static int32_t list_folder(const char *dir, const char *folder, char **list, int32_t n) {
    char *whole;
    if (ls_file_join(dir, folder, &whole, NULL) != LS_OK)
        return n;
    DIR *d = opendir(whole);
    free(whole);
    if (!d)
        return n;
    for (struct dirent *e = readdir(d); e && n < MOST_LISTED; e = readdir(d)) {
        const size_t k = strlen(e->d_name);
        if (e->d_name[0] == '.' || k <= 4 || strcmp(e->d_name + k - 4, ".lua") != 0)
            continue;
        list[n] = strdup(e->d_name);
        if (list[n])
            list[n++][k - 4] = 0;
    }
    closedir(d);
    return n;
}

static ls_status fail_unknown(const char *noun, const char *folder, const char *name,
                              const char *const *path, int32_t n_path, ls_err *err) {
    char *list[MOST_LISTED];
    int32_t n = 0;
    for (int32_t i = 0; i < n_path; i++)
        n = list_folder(path[i], folder, list, n);
    qsort(list, (size_t)n, sizeof *list, compare_names);
    char names[400] = "none", shown[128];
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        if ((i == 0 || strcmp(list[i], list[i - 1]) != 0) && at < sizeof names) {
            const int k = snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", list[i]);
            at += k > 0 ? (size_t)k : 0;
        }
    }
    for (int32_t i = 0; i < n; i++)
        free(list[i]);
    char safe[480];
    return ls_fail(err, LS_ERR_INPUT,
                   "no %s '%s' in %s/%s: there are %s; or give the path of a .lua file", noun,
                   ls_err_text(shown, sizeof shown, name, strlen(name)),
                   n_path > 0 ? path[0] : "the policy path", folder,
                   ls_err_text(safe, sizeof safe, names, strlen(names)));
}

ls_status ls_lua_find(const char *noun, const char *folder, const char *name,
                      const char *const *path, int32_t n_path, char **out, ls_err *err) {
    if (is_file_name(name)) {
        *out = strdup(name);
        return *out ? LS_OK : ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", noun);
    }
    for (int32_t i = 0; i < n_path && name[0]; i++) {
        for (int plain = 0; plain < 2; plain++) {
            const size_t cap = strlen(path[i]) + strlen(folder) + strlen(name) + 8;
            char *file = malloc(cap);
            if (!file)
                return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", noun);
            snprintf(file, cap, "%s/%s%s%s.lua", path[i], plain ? "" : folder, plain ? "" : "/",
                     name);
            if (ls_file_exists(file)) {
                *out = file;
                return LS_OK;
            }
            free(file);
        }
    }
    return fail_unknown(noun, folder, name, path, n_path, err);
}
