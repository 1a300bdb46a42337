/* rig.h - what most tests set up: a backend, a model folder, an engine; and small oracles.
 * Errors      abort the test with the library's own message. */
#ifndef LS_TEST_RIG_H
#define LS_TEST_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "check.h"
#include "device_rig.h"
#include "draw.h"
#include "engine.h"
#include "triage.h"

typedef struct ls_rig {
    ls_backend *be;
    ls_model *model;
    ls_engine *engine;
} ls_rig;

/* LS_OK or the test fails with the message. */
#define OK(call, err)                   \
    do {                                \
        if ((call) != LS_OK)            \
            fail_msg("%s", (err)->msg); \
    } while (0)

/* A backend of the device under test (device_rig.h); `cpu` says how on the CPU. */
ls_backend *rig_backend(ls_cpu_options cpu);
/* On the device under test. Engines of a rig poison what they drop: options.poison is set here, and
 * options.eager where the environment asks for it. */
void ls_rig_open(ls_rig *r, const char *dir, ls_cpu_options cpu, ls_engine_options options);
void ls_rig_open_on(ls_rig *r, rig_device where, const char *dir, ls_cpu_options cpu,
                    ls_engine_options options);
void ls_rig_close(ls_rig *r);
/* A folder of tests/cases/models; free it. */
char *ls_case_model(const char *name);
/* Whole file, zero-terminated; free it. */
char *ls_read_all(const char *path, size_t *n);

/* memcmp of two float rows; on a difference fails with the first index and both bit patterns. */
void ls_assert_bits(const float *a, const float *b, size_t n, const char *what);
/* How many of n floats differ in bits. */
size_t ls_count_bits(const float *a, const float *b, size_t n);

/* Runs g and fails unless its tokens, logits and cache are those of `plain`, decoded by `engine`,
 * bit for bit; says the first difference. */
void ls_assert_plain(const ls_gen *g, const ls_plain *plain, ls_engine *engine, const char *what);

/* Decodes n tokens greedily, one row a pass, from the prompt; keeps the logits rows [n, V]. */
typedef struct ls_greedy {
    int32_t *token; /* prompt and n new ones */
    int32_t n_prompt, n_new, n_vocab;
    float *logits; /* [n_new, V] */
} ls_greedy;
void ls_greedy_run(ls_rig *r, const int32_t *prompt, int32_t n_prompt, int32_t n_new,
                   ls_greedy *out);
void ls_greedy_free(ls_greedy *g);
static inline const float *ls_greedy_row(const ls_greedy *g, int32_t position) {
    return g->logits + (size_t)(position - g->n_prompt) * (size_t)g->n_vocab;
}

#endif
