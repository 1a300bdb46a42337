/* Every model family: verification is decode. A row's logits are, bit for bit, those of one-row
 * decode at every width from 1 to 9 (to 16 where layers have a window), as nodes of a tree, in
 * contiguous and paged caches of f32 and bf16, beside rows of another sequence, after rejected
 * drafts, and on every instruction set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families_rig.h"

#define WIDTH 16

static void assert_row(ls_rig *r, const ls_greedy *ref, int32_t row, int32_t pos, float *buf,
                       const char *what) {
    ls_err err;
    OK(ls_pass_logits(r->engine, row, buf, &err), &err);
    ls_assert_bits(buf, ls_greedy_row(ref, pos + 1), (size_t)ref->n_vocab, what);
}

/* Rows [pos, pos + m) of the text between two rows of another sequence; then a draft that is wrong
 * after `good` rows. The cache is left at pos. */
static void verify(ls_rig *r, const ls_greedy *ref, const int32_t seq[2], int32_t pos, int32_t m,
                   const char *name, float *buf) {
    ls_err err;
    ls_row rows[WIDTH + 2];
    char what[96];
    ls_kv *kv = ls_engine_kv(r->engine);
    const int32_t aside = ls_kv_len(kv, seq[1]), good = m / 2;
    rows[0] = ls_row_chain(seq[1], ref->token[1], aside, true);
    for (int32_t i = 0; i < m; i++)
        rows[1 + i] = ls_row_chain(seq[0], ref->token[pos + i], pos + i, true);
    rows[m + 1] = ls_row_chain(seq[1], ref->token[2], aside + 1, false);
    OK(ls_pass(r->engine, rows, m + 2, &err), &err);
    for (int32_t i = 0; i < m; i++) {
        snprintf(what, sizeof what, "%s: row %d of %d at position %d", name, i, m, pos + i);
        assert_row(r, ref, 1 + i, pos + i, buf, what);
    }
    OK(ls_kv_rewind(kv, seq[0], pos, &err), &err);
    OK(ls_kv_rewind(kv, seq[1], aside, &err), &err);
    for (int32_t i = 0; i < m; i++) {
        rows[i] = ls_row_chain(seq[0], ref->token[pos + i], pos + i, true);
        if (i > good)
            rows[i].token = (rows[i].token + 1 + i) % ref->n_vocab;
    }
    OK(ls_pass(r->engine, rows, m, &err), &err);
    for (int32_t i = 0; i <= good; i++)
        assert_row(r, ref, i, pos + i, buf, name);
    OK(ls_kv_rewind(kv, seq[0], pos, &err), &err);
}

/* A tree at pos: the right chain is nodes 0, 2, 4, each beside a wrong sibling that comes first. */
static void tree(ls_rig *r, const ls_greedy *ref, int32_t seq, int32_t pos, const char *name,
                 float *buf) {
    enum { NODES = 5 };
    static const int32_t parent[NODES] = {-1, 0, 0, 2, 2};
    ls_err err;
    ls_row rows[NODES];
    int32_t depth[NODES], anc[NODES][NODES];
    for (int32_t i = 0; i < NODES; i++) {
        depth[i] = parent[i] < 0 ? 0 : depth[parent[i]] + 1;
        for (int32_t d = 0; d < depth[i]; d++)
            anc[i][d] = anc[parent[i]][d];
        anc[i][depth[i]] = pos + i;
        rows[i] = ls_row_chain(seq, ref->token[pos + depth[i]], pos + depth[i], true);
        if (i % 2)
            rows[i].token = (rows[i].token + 7 + i) % ref->n_vocab;
        rows[i].index = pos + i;
        rows[i].anc = anc[i];
        rows[i].n_anc = depth[i] + 1;
        rows[i].n_prefix = pos;
    }
    OK(ls_pass(r->engine, rows, NODES, &err), &err);
    for (int32_t d = 0; d < 3; d++)
        assert_row(r, ref, 2 * d, pos + d, buf, name);
    OK(ls_kv_rewind(ls_engine_kv(r->engine), seq, pos, &err), &err);
}

static void all_widths(ls_rig *r, const ls_greedy *ref, const char *name) {
    ls_err err;
    int32_t seq[2];
    ls_kv *kv = ls_engine_kv(r->engine);
    float *buf = malloc((size_t)ref->n_vocab * sizeof *buf);
    assert_non_null(buf);
    const int32_t p = ref->n_prompt, end = p + ref->n_new;
    for (int i = 0; i < 2; i++)
        OK(ls_kv_open(kv, &seq[i], &err), &err);
    OK(ls_prefill(r->engine, seq[0], ref->token, p - 1, 0, &err), &err);
    OK(ls_prefill(r->engine, seq[1], ref->token + 3, p / 2, 0, &err), &err);
    int32_t n_checked = 0, window = 0;
    for (int32_t l = 0; l < r->model->config.n_layers; l++)
        window = window || r->model->config.local[l];
    const int32_t width = window ? WIDTH : 9;
    for (int32_t pos = p - 1; pos + 1 < end; pos++) {
        for (int32_t m = 1; m <= width && pos + m < end; m++, n_checked++)
            verify(r, ref, seq, pos, m, name, buf);
        if (pos + 5 < end)
            tree(r, ref, seq[0], pos, name, buf);
        const ls_row row = ls_row_chain(seq[0], ref->token[pos], pos, true);
        OK(ls_pass(r->engine, &row, 1, &err), &err);
        assert_row(r, ref, 0, pos, buf, name);
    }
    assert_true(n_checked >= 100);
    for (int i = 0; i < 2; i++)
        ls_kv_close(kv, seq[i]);
    free(buf);
}

typedef struct variant {
    const char *name;
    ls_cpu_options cpu;
    int32_t block_rows;
} variant;

/* The reference is one-row decode, contiguous, plain C (on a device with bits of its own:
 * there). */
static void family(const char *name, ls_dtype kv) {
    static const variant variants[] = {{"contiguous", {2, LS_SIMD_AUTO}, 0},
                                       {"paged 16", {2, LS_SIMD_AUTO}, 16},
                                       {"paged 7", {1, LS_SIMD_AVX2}, 7},
                                       {"paged 1, plain C", {1, LS_SIMD_PLAIN}, 1}};
    fam_case c;
    ls_rig base;
    ls_greedy ref;
    fam_load(name, &c);
    fam_open(&base, rig_on_ieee() ? RIG_CPU : rig_device_chosen(), &c,
             (ls_cpu_options){1, LS_SIMD_PLAIN}, (ls_engine_options){.max_rows = 3, .kv_dtype = kv},
             NULL);
    ls_greedy_run(&base, c.token, c.n_prompt, c.n_new, &ref);
    ls_rig_close(&base);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        ls_rig r;
        ls_backend *probe;
        ls_err err;
        char what[64];
        if (rig_on_gpu() && variants[i].cpu.simd != LS_SIMD_AUTO)
            continue; /* instruction sets are the CPU's */
        if (!rig_on_gpu()) {
            if (ls_cpu_create(variants[i].cpu, &probe, &err) != LS_OK)
                continue; /* this processor has none of it */
            ls_backend_destroy(probe);
        }
        snprintf(what, sizeof what, "%s, %s", name, variants[i].name);
        fam_open(&r, rig_device_chosen(), &c, variants[i].cpu,
                 (ls_engine_options){.max_rows = WIDTH + 2,
                                     .max_seqs = 2,
                                     .kv_dtype = kv,
                                     .block_rows = variants[i].block_rows},
                 NULL);
        all_widths(&r, &ref, what);
        ls_rig_close(&r);
    }
    ls_greedy_free(&ref);
    fam_free(&c);
}

static void test_f32_cache(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++)
        family(fam_names[i], LS_F32);
}
static void test_bf16_cache(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++)
        family(fam_names[i], LS_BF16);
}

/* The steps of a family have names for triage, and a watched pass has the same bits. */
typedef struct steps {
    int n_bias, n_norm, n_post, n_all;
} steps;
static void count(void *self, int32_t layer, const char *op, const float *data, int32_t n_rows,
                  int32_t dim) {
    (void)data, (void)n_rows, (void)dim;
    steps *s = self;
    s->n_all++;
    s->n_bias += layer >= 0 && strstr(op, "_bias") != NULL;
    s->n_post += layer >= 0 && strstr(op, "_post_norm") != NULL;
    s->n_norm += layer >= 0 && (!strcmp(op, "q_norm") || !strcmp(op, "k_norm"));
}
static void test_watched(void **state) {
    (void)state;
    for (int i = 0; i < FAM_COUNT; i++) {
        fam_case c;
        ls_rig r;
        ls_greedy plain, watched;
        steps s = {0};
        const ls_trace trace = {.fn = count, .self = &s};
        fam_load(fam_names[i], &c);
        fam_open(&r, rig_device_chosen(), &c, (ls_cpu_options){2, LS_SIMD_AUTO},
                 (ls_engine_options){.max_rows = 64}, NULL);
        ls_greedy_run(&r, c.token, c.n_prompt, 2, &plain);
        ls_engine_trace(r.engine, &trace);
        ls_greedy_run(&r, c.token, c.n_prompt, 2, &watched);
        ls_assert_bits(watched.logits, plain.logits, 2 * (size_t)c.n_vocab, fam_names[i]);
        const int layers = r.model->config.n_layers, passes = 3; /* the prompt and two tokens */
        assert_int_equal(s.n_bias, r.model->config.qkv_bias ? 3 * layers * passes : 0);
        assert_int_equal(s.n_norm, r.model->config.qk_norm ? 2 * layers * passes : 0);
        assert_int_equal(s.n_post, r.model->config.post_norms ? 2 * layers * passes : 0);
        assert_true(s.n_all > 10 * layers * passes);
        ls_greedy_free(&plain);
        ls_greedy_free(&watched);
        ls_rig_close(&r);
        fam_free(&c);
    }
}

/* Negative control: another chunk rule is other arithmetic in every family, and bits tell; in some
 * at least where the next linear rounds them to bf16. */
static void test_other_rule_differs(void **state) {
    (void)state;
    size_t all = 0;
    for (int i = 0; i < FAM_COUNT; i++) {
        fam_case c;
        ls_greedy g[2];
        fam_load(fam_names[i], &c);
        for (int k = 0; k < 2; k++) {
            ls_rig r;
            const ls_chunk_rule rule = {LS_CHUNK_SPLITS, 0, 1 + 2 * k};
            fam_open(&r, rig_device_chosen(), &c, (ls_cpu_options){2, LS_SIMD_AUTO},
                     (ls_engine_options){.chunk = rule}, NULL);
            ls_greedy_run(&r, c.token, c.n_prompt, 4, &g[k]);
            ls_rig_close(&r);
        }
        const size_t differ = ls_count_bits(g[0].logits, g[1].logits, 4 * (size_t)c.n_vocab);
        assert_true(differ > 0 || !rig_on_ieee());
        all += differ;
        ls_greedy_free(&g[0]);
        ls_greedy_free(&g[1]);
        fam_free(&c);
    }
    assert_true(all > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_cache),
        cmocka_unit_test(test_bf16_cache),
        cmocka_unit_test(test_watched),
        cmocka_unit_test(test_other_rule_differs),
    };
    return cmocka_run_group_tests_name("families_equal", tests, NULL, NULL);
}
