/* Prompt sets: what a file may hold, and that a sample is a function of its ids and the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prompts.h"

typedef struct place {
    char dir[64], a[96], b[96];
} place;

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

/* Sets a (12 prompts) and b (4). */
static int make_place(void **state) {
    char text[2048] = "";
    place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/ls_prompts_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->a, sizeof p->a, "%s/a.jsonl", p->dir);
    snprintf(p->b, sizeof p->b, "%s/b.jsonl", p->dir);
    for (int i = 0; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"id\":\"a%d\",\"task\":\"t\",\"prompt\":\"p%d\"}\n", i, i);
    write_file(p->a, text);
    text[0] = 0;
    for (int i = 0; i < 4; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"id\":\"b%d\",\"prompt\":\"p%d\",\"more\":1}\n", i, i);
    write_file(p->b, text);
    *state = p;
    return 0;
}

static int drop_place(void **state) {
    place *p = *state;
    unlink(p->a);
    unlink(p->b);
    rmdir(p->dir);
    free(p);
    return 0;
}

static ls_prompts read_ok(const char *path) {
    ls_prompts p = {0};
    ls_err err = {0};
    if (ls_prompts_read(path, &p, &err) != LS_OK)
        fail_msg("%s", err.msg);
    return p;
}

static void reads_a_folder(void **state) {
    const place *at = *state;
    ls_prompts p = read_ok(at->dir);
    assert_int_equal(p.n, 16);
    assert_string_equal(p.prompt[0].id, "a0");
    assert_string_equal(p.prompt[0].set, "a");
    assert_string_equal(p.prompt[0].task, "t");
    assert_string_equal(p.prompt[15].id, "b3");
    assert_string_equal(p.prompt[15].task, "b"); /* its set, where the file names none */
    ls_prompts_free(&p);
    assert_int_equal(p.n, 0);
}

static void sample_is_nested_and_takes_turns(void **state) {
    const place *at = *state;
    ls_prompts all = read_ok(at->dir);
    assert_int_equal(ls_prompts_sample(&all, 0, 7, NULL), LS_OK);
    assert_int_equal(all.n, 16);
    for (int32_t n = 1; n < 16; n++) {
        ls_prompts p = read_ok(at->dir);
        assert_int_equal(ls_prompts_sample(&p, n, 7, NULL), LS_OK);
        assert_int_equal(p.n, n);
        int of_b = 0;
        for (int32_t i = 0; i < n; i++) {
            assert_string_equal(p.prompt[i].id, all.prompt[i].id);
            of_b += p.prompt[i].set[0] == 'b';
        }
        assert_int_equal(of_b, n / 2 < 4 ? n / 2 : 4);
        ls_prompts_free(&p);
    }
    ls_prompts_free(&all);
}

static void sample_depends_on_the_seed_not_on_neighbours(void **state) {
    const place *at = *state;
    ls_prompts p = read_ok(at->a), q = read_ok(at->a), r;
    assert_int_equal(ls_prompts_sample(&p, 0, 1, NULL), LS_OK);
    assert_int_equal(ls_prompts_sample(&q, 0, 2, NULL), LS_OK);
    int same = 0;
    for (int32_t i = 0; i < 12; i++)
        same += strcmp(p.prompt[i].id, q.prompt[i].id) == 0;
    assert_true(same < 12);

    FILE *f = fopen(at->a, "a");
    fputs("{\"id\":\"new\",\"prompt\":\"x\"}\n", f);
    fclose(f);
    r = read_ok(at->a);
    assert_int_equal(ls_prompts_sample(&r, 0, 1, NULL), LS_OK);
    for (int32_t i = 0, j = 0; i < 13; i++)
        if (strcmp(r.prompt[i].id, "new") != 0)
            assert_string_equal(r.prompt[i].id, p.prompt[j++].id);
    ls_prompts_free(&p);
    ls_prompts_free(&q);
    ls_prompts_free(&r);
}

static void refuses_bad_files(void **state) {
    const place *at = *state;
    const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"id\":\"x\",\"prompt\":\"p\"}\nnope\n", "line 2"},
        {"{\"prompt\":\"p\"}\n", "id"},
        {"{\"id\":\"x\"}\n", "prompt"},
        {"{\"id\":3,\"prompt\":\"p\"}\n", "id"},
        {"{\"id\":\"x\",\"prompt\":\"\"}\n", "empty"},
        {"{\"id\":\"x\",\"prompt\":\"p\",\"task\":[]}\n", "task"},
        {"[1]\n", "line 1"},
        {"{\"id\":\"x\",\"prompt\":\"p\"}\n{\"id\":\"x\",\"prompt\":\"q\"}\n",
         "'x' is there twice"},
        {"\n \n", "no prompts"},
        {"", "no prompts"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_prompts p = read_ok(at->b);
        ls_err err = {0};
        write_file(at->a, bad[i].text);
        assert_int_equal(ls_prompts_read(at->a, &p, &err), LS_ERR_INPUT);
        assert_non_null(strstr(err.msg, at->a));
        assert_non_null(strstr(err.msg, bad[i].says));
        assert_int_equal(p.n, 4); /* what was there is as it was */
        ls_prompts_free(&p);
    }
    ls_prompts p = {0};
    ls_err err = {0};
    assert_int_equal(ls_prompts_read("/nonexistent/x.jsonl", &p, &err), LS_ERR_IO);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)
    const struct CMUnitTest tests[] = {
        T(reads_a_folder),
        T(sample_is_nested_and_takes_turns),
        T(sample_depends_on_the_seed_not_on_neighbours),
        T(refuses_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
