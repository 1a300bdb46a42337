/* `require "lockstep"`: the scripts of tests/lua/test_module_*.lua, and what needs the host's side:
 * arguments, --help, ls.fail, stopping, resuming after a kill. */
#include "module_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void run_lua_test(void **state, const char *name) {
    ls_module_rig *r = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/lua/%s.lua", LS_TEST_DIR, name);
    if (ls_module_run_file(r, path, 0, NULL) != LS_OK)
        fail_msg("%s", r->err.msg);
}

static void generate(void **state) {
    run_lua_test(state, "test_module_generate");
}

/* model:chat gives the ids of the turn's text; without a template, or with an unknown one, an
 * error. */
static void chat(void **state) {
    ls_module_rig *r = *state;
    char path[512];
    static const char *const templates[] = {
        NULL, "{{ '<|user|>' + c }}",
        "{{ '[INST] ' + system_message + '\\n\\n' + c + '[/INST]' }}"};
    static const char *const scripts[] = {
        "assert(not ok and tostring(what):find('no chat template', 1, true), what)\n",
        "assert(not ok and tostring(what):find('--chat knows', 1, true), what)\n",
        "local function same(a, b) assert(table.concat(a, ' ') == table.concat(b, ' ')) end\n"
        "same(what, m:encode '[INST] hello[/INST]')\n"
        "same(m:chat('hello', 'be good'), m:encode '[INST] be good\\n\\nhello[/INST]')\n"
        "assert(not pcall(m.chat, m, 5))\n"};
    snprintf(path, sizeof path, "%s/chat_template.jinja", r->target);
    for (int i = 0; i < 3; i++) {
        char script[1024];
        FILE *f = templates[i] ? fopen(path, "w") : NULL;
        if (f) {
            fputs(templates[i], f);
            fclose(f);
        }
        snprintf(
            script, sizeof script,
            "local m = require 'lockstep'.model()\nlocal ok, what = pcall(m.chat, m, 'hello')\n%s",
            scripts[i]);
        ls_module_ok(r, script);
    }
    remove(path);
}

static void results(void **state) {
    run_lua_test(state, "test_module_results");
}
static void stats(void **state) {
    run_lua_test(state, "test_module_stats");
}
static void sandbox(void **state) {
    run_lua_test(state, "test_module_sandbox");
}

static const char options_script[] =
    "local ls = require 'lockstep'\n"
    "local o = ls.options {\n"
    "  { 'count', 3, 'how many' }, { 'rate', 0.5, 'how much' }, { 'name', 'x', 'what' },\n"
    "  { 'fast', false, 'whether' }, { 'list', { 'a', 'b' }, 'which' },\n"
    "}\n"
    "print(o.count, o.rate, o.name, o.fast, table.concat(o.list, '+'))\n";

static void reads_options(void **state) {
    ls_module_rig *r = *state;
    const char *some[] = {"count=7", "rate=2", "name=a=b", "fast=true", "list=x"};
    assert_int_equal(ls_module_run(r, options_script, 0, NULL), LS_OK);
    assert_string_equal(r->said, "3\t0.5\tx\tfalse\ta+b\n");
    assert_int_equal(ls_module_run(r, options_script, 5, some), LS_OK);
    assert_string_equal(r->said, "7\t2\ta=b\ttrue\tx\n");
    const struct {
        const char *arg, *says;
    } bad[] = {{"cuont=3", "there is no 'cuont'"}, {"count", "not NAME=VALUE"},
               {"count=x", "must be an integer"},  {"count=1.5", "must be an integer"},
               {"rate=fast", "must be a number"},  {"fast=yes", "must be true or false"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_module_run(r, options_script, 1, &bad[i].arg), LS_ERR_SCRIPT);
        if (!strstr(r->err.msg, bad[i].says))
            fail_msg("%s: %s", bad[i].arg, r->err.msg);
    }
    const char *help = "--help";
    assert_int_equal(ls_module_run(r, options_script, 1, &help), LS_OK);
    assert_non_null(strstr(r->said, "count=3"));
    assert_non_null(strstr(r->said, "list=a,b"));
    assert_non_null(strstr(r->said, "how much"));
    assert_null(strstr(r->said, "0.5\tx")); /* and nothing behind it ran */
    assert_int_equal(ls_module_run(r, "local x = 1\n", 1, &help), LS_OK);
    assert_non_null(strstr(r->noted, "takes no options"));
}

static void fail_is_a_failed_check(void **state) {
    ls_module_rig *r = *state;
    static const char caught[] = "local ls = require 'lockstep'\n"
                                 "pcall(ls.fail, 'two differ')\n";
    assert_int_equal(ls_module_run(r, "require 'lockstep'.fail('one differs')\n", 0, NULL),
                     LS_ERR_CHECK);
    assert_string_equal(r->err.msg, "one differs");
    assert_int_equal(ls_module_run(r, caught, 0, NULL), LS_ERR_CHECK);
    assert_string_equal(r->err.msg, "two differ");
}

static void prints_tables(void **state) {
    ls_module_rig *r = *state;
    ls_module_ok(r, "local ls = require 'lockstep'\n"
                    "ls.table { title = 'T', head = { 'name', 'n' },\n"
                    "  rows = { { 'caf\xC3\xA9', 1 }, { 'b', 22.5 }, { 'longer' } } }\n");
    assert_string_equal(r->said, "T\n"
                                 "name         n\n"
                                 "caf\xC3\xA9     1.000\n"
                                 "b       22.500\n"
                                 "longer       -\n\n");
}

static void samples_prompts(void **state) {
    ls_module_rig *r = *state;
    ls_module_ok(r, "local ls = require 'lockstep'\n"
                    "local all = ls.prompts('mini')\n"
                    "assert(#all == 3 and #ls.prompts() == 3 and #ls.prompts({ 'mini' }) == 3)\n"
                    "local two = ls.prompts('mini', { n = 2 })\n"
                    "assert(two[1].id == all[1].id and two[2].id == all[2].id and #two == 2)\n"
                    "for _, p in ipairs(all) do\n"
                    "  assert(p.set == 'mini' and p.task and #p.prompt > 0 and #p.digest == 64)\n"
                    "end\n");
}

/* A study of ten cells that counts what it does. */
static const char study[] =
    "local ls = require 'lockstep'\n"
    "local engine = ls.engine(ls.model(), { context = 64 })\n"
    "local results = ls.results('study', { target = engine })\n"
    "local done = 0\n"
    "for i = 1, 10 do\n"
    "  if not results:has { i = i } then\n"
    "    local t = ls.generate { target = engine, prompt = 'p' .. i, max_new = 20 }\n"
    "    results:add({ i = i }, { digest = t.digest })\n"
    "    done = done + 1\n"
    "    ls.progress(i, 10, 'p')\n"
    "  end\n"
    "end\n"
    "print(done, results.n)\n";

static void study_resumes_after_a_stop(void **state) {
    ls_module_rig *r = *state;
    const char *path = ls_module_results(r, "study");
    unlink(path);
    r->stop_after = 90; /* of 200 rounds */
    assert_int_equal(ls_module_run(r, study, 0, NULL), LS_ERR_STOPPED);
    r->stop_after = 0;
    const int kept = ls_module_lines(path);
    assert_true(kept > 0 && kept < 10);
    assert_int_equal(kept, r->n_progress);

    ls_module_ok(r, study);
    char want[32];
    snprintf(want, sizeof want, "%d\t10\n", 10 - kept);
    assert_string_equal(r->said, want);
    assert_int_equal(ls_module_lines(path), 10);
    ls_module_ok(r, study);
    assert_string_equal(r->said, "0\t10\n");
}

static void study_resumes_after_a_kill_in_a_write(void **state) {
    ls_module_rig *r = *state;
    const char *path = ls_module_results(r, "study");
    size_t whole, again;
    unlink(path);
    ls_module_ok(r, study);
    char *first = ls_module_read(path, &whole);
    assert_int_equal(truncate(path, (off_t)whole - 40), 0);
    ls_module_ok(r, study);
    assert_string_equal(r->said, "1\t10\n");
    assert_non_null(strstr(r->noted, "study.jsonl: dropped"));
    char *second = ls_module_read(path, &again);
    /* the same cells, the nine first ones byte for byte */
    assert_int_equal(again, whole);
    assert_non_null(strstr(second, "\"i\":10"));
    size_t nine = whole - 2;
    while (first[nine] != '\n')
        nine--;
    assert_memory_equal(first, second, nine);
    free(first);
    free(second);
}

/* A stop also ends a script that never calls the host, and no pcall takes it. */
static void stops_a_busy_script(void **state) {
    ls_module_rig *r = *state;
    r->stop_after = 3;
    assert_int_equal(
        ls_module_run(r, "while true do pcall(function() while true do end end) end\n", 0, NULL),
        LS_ERR_STOPPED);
    assert_int_equal(
        ls_module_run(r,
                      "local ls = require 'lockstep'\n"
                      "local engine = ls.engine(ls.model(), { context = 64 })\n"
                      "while true do pcall(ls.generate, { target = engine, prompt = 'x' }) end\n",
                      0, NULL),
        LS_ERR_STOPPED);
    r->stop_after = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate),
        cmocka_unit_test(chat),
        cmocka_unit_test(results),
        cmocka_unit_test(stats),
        cmocka_unit_test(sandbox),
        cmocka_unit_test(reads_options),
        cmocka_unit_test(fail_is_a_failed_check),
        cmocka_unit_test(prints_tables),
        cmocka_unit_test(samples_prompts),
        cmocka_unit_test(study_resumes_after_a_stop),
        cmocka_unit_test(study_resumes_after_a_kill_in_a_write),
        cmocka_unit_test(stops_a_busy_script),
    };
    return cmocka_run_group_tests(tests, ls_module_setup, ls_module_teardown);
}
