/* What a wrong call of the module says: file, line, field, what it takes and what it got. */
#include "module_rig.h"

#include <stdio.h>
#include <string.h>

typedef struct fault {
    const char *code; /* on line 6, after the preamble */
    const char *says;
} fault;

static const char preamble[] = "local ls = require 'lockstep'\n"
                               "local target = ls.model()\n"
                               "local engine = ls.engine(target, { context = 64 })\n"
                               "local drafter = ls.drafter('model', ls.engine(ls.model 'draft'))\n"
                               "local four = ls.policy('fixed', { n = 4 })\n";

static const fault faults[] = {
    /* the module itself */
    {"ls.generat{}", "there is no ls.generat"},
    {"ls.version = 2", "cannot be set"},
    {"require 'nothing'", "nothing"},
    {"io.write('x')", "io"},
    {"os.exit(0)", "os"},
    {"load('return 1')()", "load"},
    {"local x = undefined_name", "undefined_name"},
    {"undefined_name = 1", "undefined_name"},
    /* models and engines */
    {"ls.model('/nonexistent')", "model: /nonexistent"},
    {"ls.model(3)", "model: takes a folder, \"target\" or \"draft\", got 3"},
    {"ls.model('target'):nothing()", "model: no field 'nothing'; it has about, close(), name"},
    {"local x = target.size", "model: no field 'size'"},
    {"target.name = 'x'", "fields of a handle cannot be set"},
    {"ls.engine()", "engine: argument 1 must be a model, got nothing"},
    {"ls.engine(engine)", "engine: argument 1 must be a model, got an engine"},
    {"ls.engine(target, { thread = 1 })",
     "engine: no field 'thread'; it takes device, profile, threads, simd, kv"},
    {"ls.engine(target, { threads = 0 })", "'threads' must be an integer from 1 to 1024, got 0"},
    {"ls.engine(target, { kv = 'f16' })", "'kv' must be \"f32\" or \"bf16\", got 'f16'"},
    {"ls.engine(target, { chunk = 'even:0:64' })", "engine: "},
    {"ls.engine(target, { chunk = 'odd:1' })", "'chunk' is 'odd:1': not even"},
    {"ls.engine(target, { context = 4000 })", "engine: "},
    {"ls.drafter('suffix', target)", "must be \"model\", \"ngram\" or \"garbage\", got 'suffix'"},
    {"ls.drafter('model', target)", "argument 2 must be an engine, got a model"},
    {"ls.drafter('garbage', target, { min = 1 })", "\"garbage\" takes no options"},
    {"ls.drafter('ngram', target, { min = 4, max = 2 })", "'min' must be an integer from 1 to 2"},
    {"target:chat(5)", "chat: takes a text"},
    {"target:chat('a', 'b\\0c')", "chat: the system text has a zero byte"},
    {"target:chat('a', 'b')", "chat: "},
    {"target:close() local x = target.name", "the model is closed"},
    {"engine:close() ls.generate{ target = engine, prompt = 'x' }",
     "generate: 'target': the engine is closed"},
    /* policies and rules */
    {"ls.policy('nonesuch')", "nonesuch"},
    {"ls.policy(7)", "policy: takes a name, a path or a policy table, got 7"},
    {"ls.policy('fixed', { width = 3 })", "width"},
    {"ls.policy('fixed', { n = {} })", "option 'n' must be a number, a text or a boolean"},
    {"ls.policy('fixed', 4)", "options are a table"},
    {"ls.policy{ name = 'x' }", "plan"},
    {"ls.rule('nonesuch')", "nonesuch"},
    /* generate */
    {"ls.generate()", "generate: takes a table of named fields, got nothing"},
    {"ls.generate{ target = engine }",
     "the prompt must be text or a list of token ids, got nothing"},
    {"ls.generate{ target = engine, prompt = 'x', max_new = 'x' }",
     "generate: 'max_new' must be an integer >= 1, got 'x'"},
    {"ls.generate{ target = engine, prompt = 'x', max_new = 1.5 }", "'max_new' must be an integer"},
    {"ls.generate{ target = engine, prompt = 'x', maxnew = 1 }",
     "generate: no field 'maxnew'; it takes target, prompt, max_new"},
    {"ls.generate{ target = engine, prompt = 'x', temperature = -1 }", "'temperature' must be"},
    {"ls.generate{ target = engine, prompt = 'x', temperature = 0/0 }", "'temperature' must be"},
    {"ls.generate{ target = engine, prompt = {} }", "generate: the prompt is empty"},
    {"ls.generate{ target = engine, prompt = { 1, 'x' } }", "token id 2 must be an integer"},
    {"ls.generate{ target = engine, prompt = { 100000 } }", "token id 1 must be an integer from 0"},
    {"ls.generate{ target = engine, prompt = string.rep('x', 99) }",
     "does not fit the context of 64"},
    {"ls.generate{ target = engine, prompt = 'x', drafter = drafter }", "go together"},
    {"ls.generate{ target = engine, prompt = 'x', policy = four }", "go together"},
    {"ls.generate{ target = target, prompt = 'x' }", "'target' must be an engine, got a model"},
    {"ls.generate{ target = engine, prompt = 'x', stop = { '' } }", "'stop' holds texts"},
    {"ls.generate{ target = engine, prompt = 'x', on_round = 1 }", "'on_round' must be a function"},
    {"ls.generate{ target = engine, prompt = 'x', max_new = 4, on_round = function()\n"
     "  error('from the callback') end }",
     "from the callback"},
    {"ls.generate{ target = engine, prompt = 'x', max_new = 4, on_round = function()\n"
     "  ls.generate{ target = engine, prompt = 'x' } end }",
     "cannot start another generation"},
    {"ls.generate{ target = engine, prompt = 'x', max_new = 9, drafter = drafter,\n"
     "  policy = ls.policy{ name = 'bad', plan = function() return 'four' end } }",
     "bad"},
    {"local d = ls.drafter('model', engine) ls.generate{ target = engine, prompt = 'x', max_new = "
     "4,\n"
     "  drafter = d, policy = four }",
     "the drafter's engine is the target's"},
    /* plain and check */
    {"ls.plain{ target = engine, prompt = 'x', policy = four }", "plain: no field 'policy'"},
    {"ls.check{ target = engine }", "check: 'plain' must be a plain, got nothing"},
    {"local p = ls.plain{ target = engine, prompt = 'x', max_new = 2 }\n"
     "ls.check{ plain = p, target = ls.engine(target, { kv = 'bf16', context = 64 }) }",
     "differ in 'kv'"},
    {"local p = ls.plain{ target = engine, prompt = 'x', max_new = 2 }\n"
     "ls.check{ plain = p, prompt = 'y' }",
     "check: no field 'prompt'"},
    {"local p = ls.plain{ target = engine, prompt = 'x', max_new = 2 } p:close()\n"
     "ls.check{ plain = p }",
     "the plain is closed"},
    /* statistics */
    {"ls.stats.ratio({ 1, 2 }, { 1 })", "ratio: the lists have 2 and 1 entries"},
    {"ls.stats.ratio({ 1, 'x' }, { 1, 2 })", "list 1: entry 2 must be a number, got 'x'"},
    {"ls.stats.ratio({ -1 }, { 1 })", "ratio: "},
    {"ls.stats.ratio({ 1 }, { 1 }, { level = 2 })", "'level' must be a number from 0.5 to 0.9999"},
    {"ls.stats.interval({}, 'speed')", "there is no rate 'speed'"},
    {"ls.stats.interval({}, 'conditional')", "the depth must be an integer from 1 to 64"},
    {"ls.stats.count{ { proposed = 1, accepted = 2, evaluated = 2, emitted = 3 } }", "contradicts"},
    {"ls.stats.count{ { proposed = -1 } }", "'proposed' must be an integer >= 0"},
    {"ls.stats.holm('x')", "must be a list of numbers"},
    /* prompts and results */
    {"ls.prompts('nonesuch')", "nonesuch.jsonl"},
    {"ls.prompts('mini', { k = 1 })", "prompts: no field 'k'"},
    {"ls.prompts(3)", "prompts: takes a set, a path or a list of them, got 3"},
    {"ls.results()", "results: takes a name, got nothing"},
    {"ls.results('../x')", "'../x' is no name"},
    {"ls.results('x'):has(1)", "a key is a table"},
    {"ls.results('x'):add({}, 1)", "data is a table"},
    {"ls.results('x'):add({ f = print }, {})", "a record holds no such value"},
    {"ls.results('x'):add({ 1, a = 2 }, {})", "keys of a table"},
    {"ls.results('x'):add({}, { s = '\\xff' })", "is not UTF-8"},
    {"local t = {} t.t = t ls.results('x'):add({}, t)", "nest more than"},
    {"local r = ls.results('x') r:add({}, {}) r:add({}, {})", "is finished already"},
    {"local a = ls.results('x') local b = ls.results('x')", "in use by another run"},
    /* a script's own */
    {"ls.options(1)", "options: takes a list"},
    {"ls.options{ { 'A', 1 } }", "a name has letters a-z"},
    {"ls.options{ { 'a', print } }", "the default must be"},
    {"local x = ls.options{ { 'a', 1 } }.b", "there is no option 'b'"},
    {"ls.table{ rows = {} }", "table: takes head"},
    {"ls.table{ head = { 'a' }, rows = { { {} } } }", "a cell is a text, number or boolean"},
    {"ls.progress(1)", "progress: takes two integers"},
};

static void says_where_and_what(void **state) {
    ls_module_rig *r = *state;
    char text[2048], where[128];
    snprintf(where, sizeof where, "%s:", r->script);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        snprintf(text, sizeof text, "%s%s\n", preamble, f->code);
        const ls_status s = ls_module_run(r, text, 0, NULL);
        if (s == LS_OK)
            fail_msg("no error from: %s", f->code);
        if (!strstr(r->err.msg, f->says))
            fail_msg("%s\n  says: %s\n  not:  %s", f->code, r->err.msg, f->says);
        if (strncmp(r->err.msg, where, strlen(where)) != 0 || strchr(r->err.msg, '\n'))
            fail_msg("%s\n  is not one line that begins with the place: %s", f->code, r->err.msg);
        const int line = r->err.msg[strlen(where)] - '0';
        if (line < 6 || line > 7)
            fail_msg("%s\n  names line %d: %s", f->code, line, r->err.msg);
        if (r->err.code != s || s == LS_ERR_CHECK || s == LS_ERR_STOPPED)
            fail_msg("%s\n  has status %s", f->code, ls_status_name(s));
    }
}

static void a_fault_leaves_finished_cells(void **state) {
    ls_module_rig *r = *state;
    const ls_status s = ls_module_run(r,
                                      "local ls = require 'lockstep'\n"
                                      "local results = ls.results('study')\n"
                                      "results:add({ i = 1 }, { x = 1 })\n"
                                      "results:add({ i = 2 }, { x = function() end })\n",
                                      0, NULL);
    assert_int_equal(s, LS_ERR_SCRIPT);
    assert_non_null(strstr(r->err.msg, "script.lua:4: "));
    assert_int_equal(ls_module_lines(ls_module_results(r, "study")), 1);
}

static void syntax_errors_and_missing_files(void **state) {
    ls_module_rig *r = *state;
    assert_int_equal(ls_module_run(r, "local x = = 1\n", 0, NULL), LS_ERR_SCRIPT);
    assert_non_null(strstr(r->err.msg, "script.lua:1:"));
    assert_int_not_equal(ls_module_run_file(r, "/nonexistent.lua", 0, NULL), LS_OK);
    assert_non_null(strstr(r->err.msg, "/nonexistent.lua"));
}

static void endless_loops_and_memory_bombs_end(void **state) {
    ls_module_rig *r = *state;
    r->n_step = 10 * 1000 * 1000;
    assert_int_equal(ls_module_run(r, "while true do end\n", 0, NULL), LS_ERR_SCRIPT);
    assert_non_null(strstr(r->err.msg, "script.lua:1: stopped"));
    assert_int_equal(
        ls_module_run(r, "while true do pcall(function() while true do end end) end\n", 0, NULL),
        LS_ERR_SCRIPT);
    r->n_step = 0;
    assert_int_equal(ls_module_run(r, "local t = 'x'\nwhile true do t = t .. t end\n", 0, NULL),
                     LS_ERR_SCRIPT);
    assert_non_null(strstr(r->err.msg, "script.lua:2: out of memory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_where_and_what),
        cmocka_unit_test(a_fault_leaves_finished_cells),
        cmocka_unit_test(syntax_errors_and_missing_files),
        cmocka_unit_test(endless_loops_and_memory_bombs_end),
    };
    return cmocka_run_group_tests(tests, ls_module_setup, ls_module_teardown);
}
