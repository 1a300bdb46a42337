/* ls.figure: the one file beside results that a script can write, a picture a browser shows */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lua_module.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* Whole or not at all: the text takes its name when it is complete. */
static ls_status write_whole(const char *dir, const char *name, const char *text, size_t n,
                             char path[1024], ls_err *err) {
    char part[1040];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ls_fail(err, LS_ERR_IO, "%s: %s", dir, strerror(errno));
    const int len = snprintf(path, 1024, "%s/%s.svg", dir, name);
    if (len < 0 || len >= 1024)
        return ls_fail(err, LS_ERR_INPUT, "the path of the output folder is too long");
    snprintf(part, sizeof part, "%s.part", path);
    FILE *f = fopen(part, "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    if (f)
        ok = fclose(f) == 0 && ok;
    ok = ok && rename(part, path) == 0;
    if (ok)
        return LS_OK;
    const int why = errno;
    remove(part);
    return ls_fail(err, LS_ERR_IO, "%s: %s", path, strerror(why));
}

/* ls.figure(name, svg) -> path of OUT/name.svg */
static int f_figure(lua_State *L) {
    const ls_lua_host *host = ls_lua_host_of(L);
    char shown[96], path[1024];
    size_t n_name, n;
    ls_err err;
    if (lua_type(L, 1) != LUA_TSTRING || lua_type(L, 2) != LUA_TSTRING)
        return ls_lua_bad(
            L, "figure: takes a name and the text of an SVG picture, got %s",
            ls_lua_show(L, lua_type(L, 1) == LUA_TSTRING ? 2 : 1, shown, sizeof shown));
    const char *name = lua_tolstring(L, 1, &n_name), *text = lua_tolstring(L, 2, &n);
    if (n_name < 1 || n_name > 100 || strspn(name, NAME_CHARS) != n_name)
        return ls_lua_bad(L, "figure: %s is no name: 1 to 100 letters, digits, '_' or '-'",
                          ls_lua_show(L, 1, shown, sizeof shown));
    if (strncmp(text, "<svg", 4) != 0)
        return ls_lua_bad(L, "figure: the text is no SVG picture: it must begin with <svg");
    if (!host->run->out_dir)
        return ls_lua_bad(L, "figure: this run has no output folder: run with --out DIR");
    if (write_whole(host->run->out_dir, name, text, n, path, &err) != LS_OK)
        return ls_lua_bad_err(L, "figure", &err);
    lua_pushstring(L, path);
    return 1;
}

void ls_lua_open_figure(lua_State *L) {
    lua_pushcfunction(L, f_figure);
    lua_setfield(L, -2, "figure");
}
