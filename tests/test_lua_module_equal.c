/* Tokens from a script are those of ls_generate called from C: same models, prompt and seed. */
#include "module_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"

enum { N_NEW = 48, SEED = 11 };

#define OK(call)                     \
    do {                             \
        if ((call) != LS_OK)         \
            fail_msg("%s", err.msg); \
    } while (0)

/* Decodes from C, drafting `width` tokens a round; the tokens as Lua would print them. */
static void run_c(const ls_module_rig *r, float temperature, uint64_t seed, int32_t width,
                  char *out, size_t cap) {
    ls_err err = {0};
    ls_backend *be = NULL;
    ls_model *target = NULL, *draft = NULL;
    ls_engine *te = NULL, *de = NULL;
    ls_drafter *drafter = NULL;
    ls_policy *policy = NULL;
    ls_transcript t = {0};
    ls_ids ids = {0};
    OK(ls_cpu_create((ls_cpu_options){1, LS_SIMD_AUTO}, &be, &err));
    OK(ls_model_open(r->target, (ls_model_options){0}, &target, &err));
    OK(ls_model_open(r->draft, (ls_model_options){0}, &draft, &err));
    const ls_engine_options o = {.n_vocab = target->n_token};
    OK(ls_engine_create(target, be, o, &te, &err));
    OK(ls_engine_create(draft, be, o, &de, &err));
    OK(ls_drafter_model(de, &drafter, &err));
    OK(ls_policy_fixed(width, &policy, &err));
    OK(ls_tokenizer_encode(target->tokenizer, "It was", 6, LS_ENCODE_TEMPLATE, &ids, NULL, &err));
    const ls_gen g = {.target = te,
                      .drafter = drafter,
                      .policy = policy,
                      .prompt = ids.id,
                      .n_prompt = (int32_t)ids.n,
                      .max_new = N_NEW,
                      .warp = {temperature, 0, 1, 0},
                      .seed = seed};
    OK(ls_generate(&g, &t, &err));
    size_t n = 0;
    for (int32_t i = 0; i < t.n_token; i++)
        n += (size_t)snprintf(out + n, cap - n, "%d ", t.token[i]);
    snprintf(out + n, cap - n, "%d rounds\n", t.n_round);
    ls_transcript_free(&t);
    ls_ids_free(&ids);
    ls_policy_destroy(policy);
    ls_drafter_destroy(drafter);
    ls_engine_destroy(te);
    ls_engine_destroy(de);
    ls_model_close(target);
    ls_model_close(draft);
    ls_backend_destroy(be);
}

static const char script[] =
    "local ls = require 'lockstep'\n"
    "local o = ls.options { { 'temperature', 0.0, '' }, { 'seed', 0, '' }, { 'width', 0, '' } }\n"
    "local t = ls.generate {\n"
    "  target = ls.engine(ls.model()), prompt = 'It was', max_new = 48,\n"
    "  temperature = o.temperature, seed = o.seed,\n"
    "  drafter = ls.drafter('model', ls.engine(ls.model 'draft')),\n"
    "  policy = ls.policy('fixed', { n = o.width }),\n"
    "}\n"
    "print(table.concat(t.tokens, ' ') .. ' ' .. #t.rounds .. ' rounds')\n";

static void lua_equals_c(void **state) {
    ls_module_rig *r = *state;
    const float temperatures[] = {0, 0.7f, 1};
    const int32_t widths[] = {0, 1, 4, 16};
    char temperature[32], seed[32], width[32], c[4096], other[4096];
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 4; k++) {
            snprintf(temperature, sizeof temperature, "temperature=%.9g", (double)temperatures[i]);
            snprintf(seed, sizeof seed, "seed=%d", SEED);
            snprintf(width, sizeof width, "width=%d", widths[k]);
            const char *arg[] = {temperature, seed, width};
            if (ls_module_run(r, script, 3, arg) != LS_OK)
                fail_msg("%s", r->err.msg);
            run_c(r, temperatures[i], SEED, widths[k], c, sizeof c);
            assert_string_equal(r->said, c);
            if (temperatures[i] > 0) { /* the comparison can fail: another seed is another text */
                run_c(r, temperatures[i], SEED + 1, widths[k], other, sizeof other);
                assert_string_not_equal(r->said, other);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lua_equals_c)};
    return cmocka_run_group_tests(tests, ls_module_setup, ls_module_teardown);
}
