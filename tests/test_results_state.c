/* The results file: a cell is there for good once add returned, whatever happens to the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "results.h"

typedef struct place {
    char dir[64], file[96];
} place;

static int make_place(void **state) {
    place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/ls_results_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->file, sizeof p->file, "%s/study.jsonl", p->dir);
    *state = p;
    return 0;
}

static int drop_place(void **state) {
    place *p = *state;
    unlink(p->file);
    rmdir(p->dir);
    free(p);
    return 0;
}

static char *cell_id(int i) {
    static char id[LS_SHA256_HEX];
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    assert_int_equal(ls_sha256_of(text, strlen(text), id, NULL), LS_OK);
    return id;
}

static ls_results *open_ok(const place *p, size_t *torn) {
    ls_results *r = NULL;
    ls_err err = {0};
    if (ls_results_open(p->dir, "study", &r, torn, &err) != LS_OK)
        fail_msg("%s", err.msg);
    return r;
}

static void add_ok(ls_results *r, int i) {
    char line[256];
    ls_err err = {0};
    snprintf(line, sizeof line, "{\"cell\":\"%s\",\"data\":{\"i\":%d}}", cell_id(i), i);
    if (ls_results_add(r, cell_id(i), line, &err) != LS_OK)
        fail_msg("%s", err.msg);
}

static void write_file(const place *p, const char *text, const char *mode) {
    FILE *f = fopen(p->file, mode);
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static off_t file_size(const place *p) {
    struct stat st;
    assert_int_equal(stat(p->file, &st), 0);
    return st.st_size;
}

static void keeps_cells_over_a_reopen(void **state) {
    const place *p = *state;
    ls_results *r = open_ok(p, NULL);
    assert_false(ls_results_has(r, cell_id(1)));
    for (int i = 0; i < 100; i++)
        add_ok(r, i);
    ls_results_close(r);
    size_t torn = 99;
    r = open_ok(p, &torn);
    assert_int_equal(torn, 0);
    assert_int_equal(ls_results_count(r), 100);
    for (int i = 0; i < 100; i++) {
        char *line = NULL, want[32];
        assert_true(ls_results_has(r, cell_id(i)));
        assert_int_equal(ls_results_get(r, cell_id(i), &line, NULL), LS_OK);
        snprintf(want, sizeof want, "{\"i\":%d}}", i);
        assert_non_null(strstr(line, want));
        free(line);
        assert_int_equal(ls_results_line(r, i, &line, NULL), LS_OK);
        assert_non_null(strstr(line, want));
        free(line);
    }
    assert_false(ls_results_has(r, cell_id(100)));
    ls_results_close(r);
}

/* A kill in the middle of a write leaves any number of its bytes. */
static void drops_a_torn_line_and_only_that(void **state) {
    const place *p = *state;
    ls_results *r = open_ok(p, NULL);
    for (int i = 0; i < 3; i++)
        add_ok(r, i);
    ls_results_close(r);
    const off_t whole = file_size(p);
    const off_t line = whole / 3;
    for (off_t cut = whole - line + 1; cut < whole; cut += 7) {
        assert_int_equal(truncate(p->file, cut), 0);
        size_t torn = 0;
        r = open_ok(p, &torn);
        assert_int_equal(torn, cut - (whole - line));
        assert_int_equal(ls_results_count(r), 2);
        assert_int_equal(file_size(p), whole - line);
        add_ok(r, 2); /* the cell is done again, on a line of its own */
        ls_results_close(r);
        assert_int_equal(file_size(p), whole);
    }
}

static void survives_a_killed_writer(void **state) {
    const place *p = *state;
    int said[2];
    assert_int_equal(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
        ls_results *r = open_ok(p, NULL);
        for (int i = 0;; i++) {
            add_ok(r, i);
            if (write(said[1], "x", 1) != 1)
                _exit(1);
        }
    }
    char x;
    for (int i = 0; i < 50; i++)
        assert_int_equal(read(said[0], &x, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(said[1]);
    int n = 50;
    while (read(said[0], &x, 1) == 1)
        n++;
    close(said[0]);
    ls_results *r = open_ok(p, NULL);
    for (int i = 0; i < n; i++)
        assert_true(ls_results_has(r, cell_id(i)));
    ls_results_close(r);
}

static void refuses_a_second_writer(void **state) {
    const place *p = *state;
    ls_results *a = open_ok(p, NULL), *b = NULL;
    ls_err err = {0};
    assert_int_equal(ls_results_open(p->dir, "study", &b, NULL, &err), LS_ERR_STATE);
    assert_non_null(strstr(err.msg, "in use by another run"));
    add_ok(a, 1); /* the refusal took nothing from the first */
    ls_results_close(a);
    a = open_ok(p, NULL);
    ls_results_close(a);
}

static void refuses_a_cell_twice(void **state) {
    const place *p = *state;
    ls_results *r = open_ok(p, NULL);
    char line[256];
    ls_err err = {0};
    add_ok(r, 1);
    const off_t before = file_size(p);
    snprintf(line, sizeof line, "{\"cell\":\"%s\"}", cell_id(1));
    assert_int_equal(ls_results_add(r, cell_id(1), line, &err), LS_ERR_STATE);
    assert_int_equal(ls_results_add(r, cell_id(2), line, &err), LS_ERR_SHAPE);
    assert_int_equal(ls_results_add(r, cell_id(2), "{\"cell\":\n1}", &err), LS_ERR_SHAPE);
    assert_int_equal(file_size(p), before);
    ls_results_close(r);
}

static void refuses_what_is_no_results_file(void **state) {
    const place *p = *state;
    char good[256], text[1024];
    snprintf(good, sizeof good, "{\"cell\":\"%s\"}\n", cell_id(1));
    const struct {
        const char *second, *says;
    } bad[] = {
        {"not JSON\n", "cell 2"},
        {"\n", "cell 2"},
        {"[]\n", "cell 2"},
        {"{\"data\":1}\n", "cell"},
        {"{\"cell\":\"abc\"}\n", "SHA-256"},
        {NULL, "twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_results *r = NULL;
        ls_err err = {0};
        snprintf(text, sizeof text, "%s%s%s", good, bad[i].second ? bad[i].second : good, "");
        write_file(p, text, "w");
        assert_int_equal(ls_results_open(p->dir, "study", &r, NULL, &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, p->file));
        assert_non_null(strstr(err.msg, bad[i].says));
        assert_null(strchr(err.msg, '\n'));
        assert_int_equal(file_size(p), strlen(text)); /* and was left as it was */
    }
}

static void refuses_names_that_leave_the_folder(void **state) {
    const place *p = *state;
    const char *const bad[] = {"", "..", ".x", "a/b", "../x", "a b", "a\nb", "\xC3\xA9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_results *r = NULL;
        ls_err err = {0};
        assert_int_equal(ls_results_open(p->dir, bad[i], &r, NULL, &err), LS_ERR_INPUT);
    }
    ls_results *r = NULL;
    ls_err err = {0};
    assert_int_equal(symlink("/tmp/ls_results_elsewhere", p->file), 0);
    assert_int_equal(ls_results_open(p->dir, "study", &r, NULL, &err), LS_ERR_IO);
    assert_int_not_equal(access("/tmp/ls_results_elsewhere", F_OK), 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)
    const struct CMUnitTest tests[] = {
        T(keeps_cells_over_a_reopen),
        T(drops_a_torn_line_and_only_that),
        T(survives_a_killed_writer),
        T(refuses_a_second_writer),
        T(refuses_a_cell_twice),
        T(refuses_what_is_no_results_file),
        T(refuses_names_that_leave_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
