/* Kernels timed from a script: the calls, what they refuse, and the experiment that is made of
 * them, which runs to its end, answers its questions, and a second time only reports. */
#include "module_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void run_ok(ls_module_rig *r, const char *path, int n, const char *const *arg) {
    if (ls_module_run_file(r, path, n, arg) != LS_OK)
        fail_msg("%s: %s", path, r->err.msg);
}

static void assert_said(const ls_module_rig *r, const char *text) {
    if (!strstr(r->said, text))
        fail_msg("'%s' is not in:\n%s", text, r->said);
}

static void calls(void **state) {
    ls_module_rig *r = *state;
    char path[128];
    size_t n;
    run_ok(r, LS_TEST_DIR "/lua/test_module_kernel.lua", 0, NULL);
    snprintf(path, sizeof path, "%s/fig_1.svg", r->out);
    char *svg = ls_module_read(path, &n);
    assert_string_equal(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>\n");
    free(svg);
    snprintf(path, sizeof path, "%s/fig_1.svg.part", r->out);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void occupancy(void **state) {
    ls_module_rig *r = *state;
    static const char script[] = LS_SOURCE_DIR "/experiments/decode_occupancy.lua";
    const char *arg[] = {"lengths=8,33,128", "rules=splits:1,even:64:64,splits:4",
                         "block_rows=16",    "rounds=2",
                         "repeats=3",        "layers=2",
                         "capacity=128",     "device=cpu"};
    const char *path = ls_module_results(r, "decode_occupancy");
    char svg[128];
    run_ok(r, script, 8, arg);
    /* 3 lengths, 3 rules, 2 rounds, eager: two layouts, and the chunks alone of one */
    assert_int_equal(ls_module_lines(path), 3 * 3 * 2 * 3);
    assert_said(r, "By length, contiguous, eager");
    assert_said(r, "Paged over contiguous");
    assert_said(r, "Best rule by length (eager): 8..");
    assert_said(r, "Crossover: ");
    assert_said(r, "Short rows: ");
    assert_said(r, "Merge: the second launch costs ");
    char *first = strdup(r->said);
    run_ok(r, script, 8, arg);
    assert_string_equal(r->said, first);
    assert_int_equal(ls_module_lines(path), 3 * 3 * 2 * 3);
    free(first);
    size_t n;
    snprintf(svg, sizeof svg, "%s/decode_occupancy.svg", r->out);
    char *text = ls_module_read(svg, &n);
    assert_true(strncmp(text, "<svg", 4) == 0);
    assert_string_equal(text + n - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls), cmocka_unit_test(occupancy)};
    return cmocka_run_group_tests(tests, ls_module_setup, ls_module_teardown);
}
