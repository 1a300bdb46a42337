#include "prompts.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file.h"
#include "json.h"
#include "sha256.h"

#define LS_PROMPTS_BYTES_MAX ((size_t)256 << 20)
#define LS_PROMPTS_MAX 10000000

static void prompt_free(ls_prompt *p) {
    free(p->id);
    free(p->task);
    free(p->source);
    free(p->text);
    free(p->set);
}

void ls_prompts_free(ls_prompts *p) {
    if (!p)
        return;
    for (int32_t i = 0; i < p->n; i++)
        prompt_free(&p->prompt[i]);
    free(p->prompt);
    memset(p, 0, sizeof *p);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* "dir/gsm8k.jsonl" -> "gsm8k" */
static char *set_name(const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot != name && strcmp(dot, ".jsonl") == 0)
        *dot = 0;
    return name;
}

static ls_status parse_prompt(const ls_json *doc, const char *set, ls_prompt *out, ls_err *err) {
    const ls_json_at root = ls_json_root(doc);
    const char *id, *text, *task, *source;
    LS_TRY(ls_json_as_object(&root, err));
    LS_TRY(ls_json_string(&root, "id", &id, err));
    LS_TRY(ls_json_string(&root, "prompt", &text, err));
    LS_TRY(ls_json_string_or(&root, "task", set, &task, err));
    LS_TRY(ls_json_string_or(&root, "source", "", &source, err));
    if (!*id || !*text)
        return ls_json_fail(&root, err, "'id' and 'prompt' must not be empty");
    *out = (ls_prompt){.id = strdup(id),
                       .task = strdup(task),
                       .source = strdup(source),
                       .text = strdup(text),
                       .set = strdup(set)};
    if (out->id && out->task && out->source && out->text && out->set)
        return LS_OK;
    prompt_free(out);
    return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
}

static ls_status append(ls_prompts *into, ls_prompt p, ls_err *err) {
    const bool grow = (into->n & (into->n - 1)) == 0; /* 0, 1, 2, 4, 8, ... */
    if (into->n >= LS_PROMPTS_MAX)
        return ls_fail(err, LS_ERR_INPUT, "prompts: more than %d", LS_PROMPTS_MAX);
    if (grow) {
        const size_t cap = into->n ? 2 * (size_t)into->n : 1;
        ls_prompt *grown = realloc(into->prompt, cap * sizeof *grown);
        if (!grown)
            return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
        into->prompt = grown;
    }
    into->prompt[into->n++] = p;
    return LS_OK;
}

static ls_status read_line(const char *path, int line, const char *text, size_t n, const char *set,
                           ls_prompts *into, ls_err *err) {
    char where[1024];
    ls_json doc = {0};
    ls_prompt p = {0};
    snprintf(where, sizeof where, "%s line %d", path, line);
    LS_TRY(ls_json_parse(text, n, where, &doc, err));
    ls_status s = parse_prompt(&doc, set, &p, err);
    ls_json_free(&doc);
    if (s == LS_OK && (s = append(into, p, err)) != LS_OK)
        prompt_free(&p);
    return s;
}

static ls_status read_file(const char *path, ls_prompts *into, ls_err *err) {
    char *text = NULL, *set = set_name(path);
    size_t bytes = 0;
    if (!set)
        return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
    ls_status s = ls_file_read(path, NULL, LS_PROMPTS_BYTES_MAX, &text, &bytes, err);
    int line = 0;
    for (size_t at = 0; s == LS_OK && at < bytes;) {
        const char *nl = memchr(text + at, '\n', bytes - at);
        const size_t n = nl ? (size_t)(nl - (text + at)) : bytes - at;
        line++;
        if (n > strspn(text + at, " \t\r")) /* blank lines are no prompts */
            s = read_line(path, line, text + at, n, set, into, err);
        at += n + 1;
    }
    free(text);
    free(set);
    return s;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the *.jsonl of a folder, sorted; the caller frees names[0..n) and names. */
static ls_status list_folder(const char *dir, char ***names, size_t *n, ls_err *err) {
    DIR *d = opendir(dir);
    if (!d)
        return ls_fail(err, LS_ERR_IO, "%s: cannot list: %s", dir, strerror(errno));
    ls_status s = LS_OK;
    for (const struct dirent *e; s == LS_OK && (e = readdir(d));) {
        const size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.' || len < 7 || strcmp(e->d_name + len - 6, ".jsonl") != 0)
            continue;
        char **grown = realloc(*names, (*n + 1) * sizeof *grown);
        if (grown)
            *names = grown;
        if (!grown || !(grown[*n] = strdup(e->d_name)))
            s = ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
        else
            ++*n;
    }
    closedir(d);
    if (s == LS_OK && *n == 0)
        s = ls_fail(err, LS_ERR_INPUT, "%s: no *.jsonl in it", dir);
    if (s == LS_OK)
        qsort(*names, *n, sizeof **names, by_name);
    return s;
}

static ls_status read_folder(const char *dir, ls_prompts *into, ls_err *err) {
    char **names = NULL;
    size_t n = 0;
    ls_status s = list_folder(dir, &names, &n, err);
    for (size_t i = 0; s == LS_OK && i < n; i++) {
        char *path = NULL;
        s = ls_file_join(dir, names[i], &path, err);
        if (s == LS_OK)
            s = read_file(path, into, err);
        free(path);
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return s;
}

static int by_id(const void *a, const void *b) {
    return strcmp((*(const ls_prompt *const *)a)->id, (*(const ls_prompt *const *)b)->id);
}

static ls_status check_ids(const ls_prompts *p, const char *path, ls_err *err) {
    const ls_prompt **order = malloc(((size_t)p->n + 1) * sizeof *order);
    ls_status s = LS_OK;
    char shown[128];
    if (!order)
        return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
    for (int32_t i = 0; i < p->n; i++)
        order[i] = &p->prompt[i];
    qsort(order, (size_t)p->n, sizeof *order, by_id);
    for (int32_t i = 1; i < p->n && s == LS_OK; i++)
        if (by_id(&order[i - 1], &order[i]) == 0)
            s = ls_fail(err, LS_ERR_INPUT, "%s: id '%s' is there twice", path,
                        ls_err_text(shown, sizeof shown, order[i]->id, strlen(order[i]->id)));
    free(order);
    return s;
}

ls_status ls_prompts_read(const char *path, ls_prompts *into, ls_err *err) {
    struct stat st;
    const int32_t before = into->n;
    if (stat(path, &st) != 0)
        return ls_fail(err, LS_ERR_IO, "%s: %s", path, strerror(errno));
    ls_status s = S_ISDIR(st.st_mode) ? read_folder(path, into, err) : read_file(path, into, err);
    if (s == LS_OK && into->n == before)
        s = ls_fail(err, LS_ERR_INPUT, "%s: no prompts in it", path);
    if (s == LS_OK)
        s = check_ids(into, path, err);
    while (s != LS_OK && into->n > before)
        prompt_free(&into->prompt[--into->n]);
    return s;
}

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct ranked {
    ls_prompt prompt;
    char key[LS_SHA256_HEX]; /* its place in its set's order */
    int32_t set;             /* sets numbered as they first occur */
    int32_t turn;            /* its place in that order */
} ranked;

static int by_set_key(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->set != y->set ? (x->set < y->set ? -1 : 1) : strcmp(x->key, y->key);
}

static int by_turn(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->turn != y->turn ? (x->turn < y->turn ? -1 : 1)
                              : (x->set > y->set) - (x->set < y->set);
}

static ls_status rank(ranked *r, int32_t i, uint64_t seed, ls_err *err) {
    const ls_prompt *p = &r[i].prompt;
    const size_t n = strlen(p->id);
    char *text = malloc(n + 24);
    if (!text)
        return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
    const int len = snprintf(text, n + 24, "%llu:%s", (unsigned long long)seed, p->id);
    const ls_status s = ls_sha256_of(text, (size_t)len, r[i].key, err);
    free(text);
    r[i].set = i;
    for (int32_t j = i - 1; j >= 0; j--) /* neighbours share a set: found at once */
        if (strcmp(r[j].prompt.set, p->set) == 0) {
            r[i].set = r[j].set;
            break;
        }
    return s;
}

ls_status ls_prompts_sample(ls_prompts *p, int32_t n, uint64_t seed, ls_err *err) {
    const int32_t total = p->n;
    ranked *r = calloc((size_t)total + 1, sizeof *r);
    ls_status s = LS_OK;
    if (!r)
        return ls_fail(err, LS_ERR_MEMORY, "prompts: out of memory");
    for (int32_t i = 0; i < total && s == LS_OK; i++) {
        r[i].prompt = p->prompt[i];
        s = rank(r, i, seed, err);
    }
    if (s == LS_OK) {
        qsort(r, (size_t)total, sizeof *r, by_set_key);
        for (int32_t i = 1; i < total; i++)
            r[i].turn = r[i].set == r[i - 1].set ? r[i - 1].turn + 1 : 0;
        qsort(r, (size_t)total, sizeof *r, by_turn);
        for (int32_t i = 0; i < total; i++)
            p->prompt[i] = r[i].prompt;
        while (n > 0 && p->n > n)
            prompt_free(&p->prompt[--p->n]);
    }
    free(r);
    return s;
}
