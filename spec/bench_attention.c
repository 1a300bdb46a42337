/* bench_attention.c - `lockstep bench attention`: the attention of one layer of a model's shape,
 * over lengths, rows and chunk rules, against a plain read of the same keys and values. */
#include <stdio.h>

#include "bench_attn.h"
#include "bench_cmd.h"
#include "synth.h"

/* Caches of several layers follow each other until this much was read: more than a device keeps
 * near. */
#define STREAM_BYTES ((size_t)256 << 20)
#define STREAM_BYTES_CPU ((size_t)32 << 20)
#define LAYERS_CPU 4

typedef struct layer {
    const char *name;
    int32_t n_heads, n_kv, head_dim;
} layer;

typedef struct point { /* of the grid */
    int32_t length, n_rows, capacity;
    ls_chunk_rule rule;
} point;

static ls_status find_layer(ls_bench_job *j, layer *out, ls_err *err) {
    if (j->a.shape) {
        const ls_shape *s = ls_shape_at(j->a.shape - 1);
        *out = (layer){s->name, s->n_heads, s->n_kv, s->head_dim};
        return LS_OK;
    }
    LS_TRY(ls_places_find(&j->setup.places, err));
    if (!j->a.model.target)
        LS_TRY(ls_places_need_pair(&j->setup.places, err));
    const char *dir = j->a.model.target ? j->a.model.target : j->setup.places.target;
    ls_config c;
    LS_TRY(ls_config_read(dir, &c, err));
    *out = (layer){dir, c.n_heads, c.n_kv, c.head_dim};
    return LS_OK;
}

static int32_t layers_for(const ls_backend *be, size_t bytes) {
    const bool cpu = !be->record;
    const size_t n = (cpu ? STREAM_BYTES_CPU : STREAM_BYTES) / bytes + 1;
    const size_t most = cpu ? LAYERS_CPU : LS_ATTN_LAYERS_MAX;
    return (int32_t)(n < most ? n : most);
}

static void show(const point *p, const ls_series *s, int32_t n_layers, size_t bytes,
                 const ls_attn_grid *g, bool grid) {
    char chunk[LS_CHUNK_TEXT];
    const double us = s[0].device.median / n_layers, read = s[3].device.median / n_layers;
    printf("%-14s %6d %4d %9.2f %5.1f%% %9.2f %9.2f %9.2f %6.3f", ls_chunk_text(p->rule, chunk),
           p->length, p->n_rows, us, 100 * s[0].device.cv, s[1].device.median / n_layers,
           s[2].device.median / n_layers, ls_gb_per_s((double)bytes, us), read / us);
    if (grid)
        printf(" %5d/%-5d %5.2f", g->live_blocks, g->launch.blocks, g->occupancy);
    printf("\n");
}

static json_t *point_json(const point *p, const ls_series *s, int32_t n_layers, size_t bytes,
                          const ls_attn_grid *g, bool grid) {
    char chunk[LS_CHUNK_TEXT];
    json_t *r =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:i, s:i}", "chunk",
                  ls_chunk_text(p->rule, chunk), "length", p->length, "rows", p->n_rows, "capacity",
                  p->capacity, "n_layers", n_layers, "bytes_a_layer", (json_int_t)bytes, "both",
                  ls_bench_series(&s[0]), "chunks", ls_bench_series(&s[1]), "merge",
                  ls_bench_series(&s[2]), "read", ls_bench_series(&s[3]), "us_a_layer",
                  s[0].device.median / n_layers, "share", s[3].device.median / s[0].device.median,
                  "live_chunks", g->live_chunks, "max_chunks", g->max_chunks);
    if (grid)
        json_object_set_new(r, "grid",
                            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "blocks",
                                      g->launch.blocks, "threads", g->launch.threads,
                                      "blocks_a_unit", g->launch.blocks_a_unit, "units",
                                      g->launch.units, "shared_bytes", g->launch.shared_bytes,
                                      "live_blocks", g->live_blocks, "occupancy", g->occupancy));
    return r;
}

/* Both launches, each of the two alone, and the read, in turns. */
static ls_status one_point(ls_bench_job *j, const layer *m, const point *p, ls_err *err) {
    ls_backend *be = j->setup.be;
    ls_attn_case c = {.n_heads = m->n_heads,
                      .n_kv = m->n_kv,
                      .head_dim = m->head_dim,
                      .length = p->length,
                      .n_rows = p->n_rows,
                      .capacity = p->capacity,
                      .block_rows = j->a.model.block_rows,
                      .kv_dtype = j->a.model.kv == 1 ? LS_BF16 : LS_F32,
                      .rule = p->rule,
                      .graph = be->record && !j->a.model.eager,
                      .seed = 1};
    const size_t row = 2 * (size_t)m->n_kv * (size_t)m->head_dim * ls_dtype_bytes(c.kv_dtype);
    c.n_layers = layers_for(be, (size_t)p->length * row);
    const ls_bench_how how = ls_bench_how_of(j);
    ls_attn_bench *b;
    LS_TRY(ls_attn_bench_open(be, &c, &b, err));
    ls_series s[LS_ATTN_PARTS + 1];
    for (int32_t part = 0; part < LS_ATTN_PARTS; part++)
        s[part] = (ls_series){.run = ls_attn_bench_run, .self = b, .arg = part};
    s[LS_ATTN_PARTS] = (ls_series){.run = ls_attn_bench_read, .self = b};
    const ls_status status = ls_bench_interleave(s, LS_ATTN_PARTS + 1, &how, err);
    ls_term_clear(&j->term);
    if (status == LS_OK) {
        ls_attn_grid g;
        const bool grid = ls_attn_bench_grid(b, &g);
        const size_t bytes = ls_attn_bench_bytes(b);
        if (!j->a.json)
            show(p, s, c.n_layers, bytes, &g, grid);
        json_array_append_new(j->results, point_json(p, s, c.n_layers, bytes, &g, grid));
    }
    ls_attn_bench_close(b);
    return status;
}

static ls_status find_rules(const ls_bench_job *j, ls_chunk_rule rule[LS_BENCH_LIST], int32_t *n,
                            ls_err *err) {
    static const char *const usual[] = {"even:32:64"};
    *n = j->a.chunk.n ? j->a.chunk.n : 1;
    if (*n > LS_BENCH_LIST)
        return ls_fail(err, LS_ERR_INPUT, "--chunk: more than %d rules", LS_BENCH_LIST);
    for (int32_t i = 0; i < *n; i++) {
        const ls_status status =
            ls_chunk_parse(j->a.chunk.n ? j->a.chunk.item[i] : usual[i], &rule[i], err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "--chunk");
    }
    return LS_OK;
}

ls_status ls_bench_attention(ls_bench_job *j, ls_err *err) {
    int32_t length[LS_BENCH_LIST], n_length, longest = 0, n_rule;
    const int32_t rows = j->a.rows < 8 ? j->a.rows : 8; /* beside one row */
    ls_chunk_rule rule[LS_BENCH_LIST];
    layer m;
    LS_TRY(ls_bench_numbers(&j->a.length, "length", "512,1024,2048,4096,8192,16384,32768", 1,
                            1 << 20, length, &n_length, err));
    LS_TRY(find_rules(j, rule, &n_rule, err));
    if (j->a.shape && j->a.model.target)
        return ls_fail(err, LS_ERR_INPUT, "--shape and --target: give one of them");
    LS_TRY(find_layer(j, &m, err));
    LS_TRY(ls_device_open(&j->a.model.device, &j->setup.be, err));
    for (int32_t i = 0; i < n_length; i++)
        longest = length[i] > longest ? length[i] : longest;
    if (!j->a.json)
        printf("%s: %d heads over %d of %d, keys and values %s; %s, profile %s; %d interleaved "
               "repeats\n%-14s %6s %4s %9s %6s %9s %9s %9s %6s\n",
               m.name, m.n_heads, m.n_kv, m.head_dim, j->a.model.kv == 1 ? "bf16" : "f32",
               j->setup.be->device, j->setup.be->profile, j->a.repeats, "chunks", "length", "rows",
               "us", "cv", "chunks us", "merge us", "GB/s", "share");
    for (int32_t k = 0; k < n_rule; k++)
        for (int32_t i = 0; i < n_length; i++)
            for (int32_t r = 0; r < (rows > 1 ? 2 : 1); r++) {
                const point p = {length[i], r ? rows : 1, longest + rows, rule[k]};
                LS_TRY(one_point(j, &m, &p, err));
            }
    return ls_bench_write(j, "bench attention",
                          json_pack("{s:{s:s, s:i, s:i, s:i}, s:s, s:i}", "layer", "name", m.name,
                                    "n_heads", m.n_heads, "n_kv", m.n_kv, "head_dim", m.head_dim,
                                    "kv", j->a.model.kv == 1 ? "bf16" : "f32", "block_rows",
                                    j->a.model.block_rows),
                          err);
}
