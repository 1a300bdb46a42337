#include "attn_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_rig.h"

void ar_case_init(ar_case *c, int H, int G, int E, int T, ls_dtype t, uint32_t seed, float size) {
    const size_t n = (size_t)T * (size_t)G * (size_t)E;
    *c = (ar_case){H, G, E, T, t, (float)(1 / sqrt((double)E)), NULL, NULL, 0};
    c->k = kr_weights(n, t, seed, size);
    c->v = kr_weights(n, t, seed + 1, 1.0f);
}

void ar_case_free(ar_case *c) {
    free(c->k);
    free(c->v);
}

static int32_t *numbers(size_t n) {
    return kr_alloc(n * sizeof(int32_t));
}

static ar_layout layout(const ar_case *c, int n_rows, int n_slots) {
    const size_t bytes = (size_t)n_slots * (size_t)(c->G * c->E) * ls_dtype_bytes(c->t);
    return (ar_layout){
        .k = kr_alloc(bytes), .v = kr_alloc(bytes), .n_slots = n_slots, .n_rows = n_rows};
}

static void put(const ar_case *c, ar_layout *l, int slot, int key) {
    const size_t row = (size_t)(c->G * c->E) * ls_dtype_bytes(c->t);
    memcpy((char *)l->k + (size_t)slot * row, (const char *)c->k + (size_t)key * row, row);
    memcpy((char *)l->v + (size_t)slot * row, (const char *)c->v + (size_t)key * row, row);
}

float *ar_queries(const ar_case *c, int n_rows) {
    const size_t n = (size_t)n_rows * (size_t)c->H * (size_t)c->E;
    float *q = kr_alloc(n * sizeof *q);
    kr_fill(q, n, 77, 3.0f);
    return q;
}

ar_layout ar_contiguous(const ar_case *c, int n_rows, int offset) {
    ar_layout l = layout(c, n_rows, c->T + offset + 3);
    l.base = numbers((size_t)n_rows);
    for (int r = 0; r < n_rows; r++)
        l.base[r] = offset;
    for (int j = 0; j < c->T; j++)
        put(c, &l, offset + j, j);
    return l;
}

static bool coprime(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a == 1;
}

ar_layout ar_paged(const ar_case *c, int n_rows, int block_rows) {
    const int used = (c->T + block_rows - 1) / block_rows, all = used + 2;
    ar_layout l = layout(c, n_rows, all * block_rows);
    l.block_rows = block_rows;
    l.table = numbers((size_t)(used ? used : 1));
    l.table_at = numbers((size_t)n_rows);
    l.table_len = numbers((size_t)n_rows);
    /* a permutation of 0 .. all - 1 by a step that shares no factor with it */
    int step = 7;
    while (!coprime(all, step))
        step += 2;
    for (int b = 0; b < used; b++)
        l.table[b] = (int32_t)(((int64_t)b * step + 1) % all);
    for (int r = 0; r < n_rows; r++)
        l.table_at[r] = 0, l.table_len[r] = used;
    for (int j = 0; j < c->T; j++)
        put(c, &l, l.table[j / block_rows] * block_rows + j % block_rows, j);
    return l;
}

/* Key prefix + i lies at logical index T + 2 - i, so the ancestors run backwards. */
ar_layout ar_tree(const ar_case *c, int n_rows, int prefix) {
    const int tail = c->T - prefix;
    ar_layout l = layout(c, n_rows, c->T + 5);
    l.base = numbers((size_t)n_rows);
    l.prefix = numbers((size_t)n_rows);
    l.ld_anc = tail;
    l.anc = numbers((size_t)(n_rows * tail + 1));
    for (int r = 0; r < n_rows; r++) {
        l.base[r] = 1;
        l.prefix[r] = prefix;
        for (int i = 0; i < tail; i++)
            l.anc[r * tail + i] = c->T + 2 - i;
    }
    for (int j = 0; j < c->T; j++)
        put(c, &l, 1 + (j < prefix ? j : c->T + 2 - (j - prefix)), j);
    return l;
}

void ar_layout_free(ar_layout *l) {
    free(l->k), free(l->v);
    free(l->base), free(l->table), free(l->table_at), free(l->table_len);
    free(l->prefix), free(l->anc);
}

void ar_run(ls_backend *be, const ar_case *c, const ar_layout *l, ls_chunk_rule rule,
            const int32_t *length, int n_rows, const float *q, float *out) {
    const int chunks = ls_chunk_bound(rule, c->T) + 1;
    float *part = kr_alloc((size_t)n_rows * (size_t)c->H * (size_t)chunks * (size_t)(2 + c->E) * 4);
    memset(out, 0xff, (size_t)(n_rows * c->H * c->E) * 4);
    ls_attn_args a = {.q = q, .k_pool = l->k, .v_pool = l->v, .kv_dtype = c->t};
    a.loc = (ls_locator){l->base, l->table,  l->table_at,   l->table_len, l->prefix,
                         l->anc,  l->ld_anc, l->block_rows, l->n_slots};
    a.window = c->window;
    a.length = length, a.rule = rule, a.max_chunks = chunks, a.part = part, a.out = out;
    a.scale = c->scale, a.n_rows = n_rows, a.n_heads = c->H, a.n_kv = c->G, a.head_dim = c->E;
    kr_attn(be, &a);
    kr_sync(be);
    free(part);
}
