/* The experiments run to their end, report what they promise, and a second run only reports. On
 * random-weight models always; on the embedded pair where it is there. */
#include "module_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPERIMENT(name) LS_SOURCE_DIR "/experiments/" name ".lua"

static void run_ok(ls_module_rig *r, const char *path, int n, const char *const *arg) {
    if (ls_module_run_file(r, path, n, arg) != LS_OK)
        fail_msg("%s: %s", path, r->err.msg);
}

static void assert_said(const ls_module_rig *r, const char *text) {
    if (!strstr(r->said, text))
        fail_msg("'%s' is not in:\n%s", text, r->said);
}

static void acceptance_rate(ls_module_rig *r) {
    const char *arg[] = {"prompts=3", "max_new=12", "policies=fixed,svip", "by=task"};
    const char *path = ls_module_results(r, "acceptance_rate");
    run_ok(r, EXPERIMENT("acceptance_rate"), 4, arg);
    assert_int_equal(ls_module_lines(path), 12); /* 3 prompts, 2 policies, 2 temperatures */
    assert_int_equal(r->n_progress, 12);
    assert_said(r, "By policy\n");
    assert_said(r, "By depth");
    assert_said(r, "By task\n");
    assert_said(r, "rule exact is exact: 0 of 12 texts differ from plain decode\n");
    char *first = strdup(r->said);
    run_ok(r, EXPERIMENT("acceptance_rate"), 4, arg);
    assert_string_equal(r->said, first);
    assert_int_equal(ls_module_lines(path), 12);
    free(first);

    /* what a cell depends on makes another cell */
    const char *more[] = {"prompts=3", "max_new=12", "policies=fixed,svip", "width=2"};
    run_ok(r, EXPERIMENT("acceptance_rate"), 4, more);
    assert_int_equal(ls_module_lines(path), 18);

    /* other drafters make other cells, and the text stays plain decode's */
    const char *lookup[] = {"prompts=1", "max_new=8", "policies=fixed", "temperatures=0",
                            "drafter=ngram"};
    run_ok(r, EXPERIMENT("acceptance_rate"), 5, lookup);
    assert_int_equal(ls_module_lines(path), 19);
    assert_said(r, "ngram drafts for ");
    assert_said(r, "rule exact is exact: 0 of 1 texts differ from plain decode\n");
    const char *first_layer[] = {"prompts=1", "max_new=8", "policies=fixed", "temperatures=0",
                                 "drafter=layers:1"};
    run_ok(r, EXPERIMENT("acceptance_rate"), 5, first_layer);
    assert_int_equal(ls_module_lines(path), 20);
    assert_said(r, "layers:1 drafts for ");
    assert_said(r, "rule exact is exact: 0 of 1 texts differ from plain decode\n");

    const char *lossy[] = {"prompts=2", "max_new=12", "policies=fixed", "rule=typical",
                           "temperatures=1"};
    run_ok(r, EXPERIMENT("acceptance_rate"), 5, lossy);
    assert_said(r, "rule typical is lossy: ");
}

static void reproducibility(ls_module_rig *r, const char *threads, int n_check) {
    const char *arg[] = {"prompts=1", "max_new=10", "widths=3", "block_rows=4", threads};
    char want[64];
    run_ok(r, EXPERIMENT("reproducibility"), 5, arg);
    snprintf(want, sizeof want, "no bit differs in %d checks\n", n_check);
    assert_said(r, want);
    assert_said(r, "keeps every draft): noticed\n");
}

static void on_random_weights(void **state) {
    acceptance_rate(*state);
    /* 11 ways to draft, 2 ways to store, 2 layouts, 2 thread counts, 2 temperatures */
    reproducibility(*state, "threads=1,2", 176);
}

static void on_the_embedded_pair(void **state) {
    ls_module_rig *r = *state;
    if (access(LS_SOURCE_DIR "/experiments/models/target/config.json", F_OK) != 0)
        skip();
    char *target = r->target, *draft = r->draft;
    char pair[2][256];
    snprintf(pair[0], sizeof pair[0], "%s/experiments/models/target", LS_SOURCE_DIR);
    snprintf(pair[1], sizeof pair[1], "%s/experiments/models/draft", LS_SOURCE_DIR);
    unlink(ls_module_results(r, "acceptance_rate"));
    r->target = pair[0], r->draft = pair[1];
    acceptance_rate(r);
    reproducibility(r, "threads=1", 88);
    r->target = target, r->draft = draft;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_random_weights),
        cmocka_unit_test(on_the_embedded_pair),
    };
    return cmocka_run_group_tests(tests, ls_module_setup, ls_module_teardown);
}
