#include "module_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "make_model.h"

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

void ls_module_open(ls_module_rig *r) {
    ls_test_shape shape = ls_test_shape_default();
    memset(r, 0, sizeof *r);
    shape.no_eos = true;
    r->target = ls_test_model_make(&shape);
    shape.dtype = LS_BF16;
    r->draft = ls_test_model_make(&shape);
    strcpy(r->dir, "/tmp/ls_module_XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->out, sizeof r->out, "%s/out", r->dir);
    snprintf(r->script, sizeof r->script, "%s/script.lua", r->dir);
    snprintf(r->prompts, sizeof r->prompts, "%s/mini.jsonl", r->dir);
    write_text(r->prompts, "{\"id\":\"a\",\"task\":\"x\",\"prompt\":\"The first prompt\"}\n"
                           "{\"id\":\"b\",\"task\":\"y\",\"prompt\":\"Another one, longer\"}\n"
                           "{\"id\":\"c\",\"task\":\"x\",\"prompt\":\"Z\"}\n");
}

static void remove_folder(const char *dir) {
    char path[512];
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (const struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(dir);
}

void ls_module_close(ls_module_rig *r) {
    ls_test_model_remove(r->target);
    ls_test_model_remove(r->draft);
    remove_folder(r->out);
    remove_folder(r->dir);
}

int ls_module_setup(void **state) {
    ls_module_rig *r = malloc(sizeof *r);
    assert_non_null(r);
    ls_module_open(r);
    *state = r;
    return 0;
}

int ls_module_teardown(void **state) {
    ls_module_close(*state);
    free(*state);
    return 0;
}

static void on_print(void *self, const char *text, size_t n) {
    ls_module_rig *r = self;
    const size_t room = sizeof r->said - (size_t)r->n_said - 1;
    const size_t put = n < room ? n : room;
    memcpy(r->said + r->n_said, text, put);
    r->n_said += (int)put;
    r->said[r->n_said] = 0;
}

static void on_note(void *self, const char *line) {
    ls_module_rig *r = self;
    r->n_noted +=
        snprintf(r->noted + r->n_noted, sizeof r->noted - (size_t)r->n_noted, "%s\n", line);
    assert_true((size_t)r->n_noted < sizeof r->noted);
}

static void on_progress(void *self, int64_t done, int64_t total, const char *text) {
    (void)text;
    assert_true(done <= total);
    ((ls_module_rig *)self)->n_progress++;
}

static bool on_stop(void *self) {
    ls_module_rig *r = self;
    return ++r->n_stop >= r->stop_after && r->stop_after > 0;
}

ls_status ls_module_run_file(ls_module_rig *r, const char *path, int n, const char *const *arg) {
    static const char *const policies[] = {LS_SOURCE_DIR "/policies"};
    r->n_said = r->n_noted = r->n_progress = r->n_stop = 0;
    r->said[0] = r->noted[0] = r->err.msg[0] = 0;
    const ls_lua_run run = {.script = path,
                            .arg = arg,
                            .n_arg = n,
                            .out_dir = r->out,
                            .target_dir = r->target,
                            .draft_dir = r->draft,
                            .prompt_dir = r->dir,
                            .policy_dir = policies,
                            .n_policy_dir = 1,
                            .device = {.device = LS_DEVICE_CPU, .cpu.n_threads = 1},
                            .seed = 1,
                            .n_step = r->n_step,
                            .self = r,
                            .print = on_print,
                            .note = on_note,
                            .progress = on_progress,
                            .stop = on_stop};
    return ls_lua_run_script(&run, &r->err);
}

ls_status ls_module_run(ls_module_rig *r, const char *text, int n, const char *const *arg) {
    write_text(r->script, text);
    return ls_module_run_file(r, r->script, n, arg);
}

void ls_module_ok(ls_module_rig *r, const char *text) {
    if (ls_module_run(r, text, 0, NULL) != LS_OK)
        fail_msg("%s", r->err.msg);
}

const char *ls_module_results(ls_module_rig *r, const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s.jsonl", r->out, name);
    return path;
}

char *ls_module_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

int ls_module_lines(const char *path) {
    size_t n;
    int lines = 0;
    char *text = ls_module_read(path, &n);
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    free(text);
    return lines;
}
