/* ls.kernel: single kernels on a device, timed */
#include <stdio.h>
#include <string.h>

#include "bench_attn.h"
#include "chunk_text.h"
#include "lua_module.h"

/* ---- devices --------------------------------------------------------------------------------- */

/* What one call holds: freed by the collector when it raises. */
typedef struct call {
    ls_backend *be, *own; /* own: a CPU of this call; a GPU is the script's */
    ls_attn_bench *attn;
    void *memory;
} call;

static void call_free(void *p) {
    call *c = p;
    ls_attn_bench_close(c->attn);
    if (c->memory)
        c->be->free(c->be, c->memory);
    ls_backend_destroy(c->own);
    *c = (call){0};
}

static call *open_device(lua_State *L, const ls_lua_args *a) {
    static const char *const profiles[] = {"ieee", "mma", "cublas", NULL};
    ls_lua_host *host = ls_lua_host_of(L);
    ls_device_args d = host->run->device;
    ls_err err;
    call *c = ls_lua_box(L, sizeof *c, call_free);
    const char *name = ls_lua_arg_string(a, "device", NULL);
    if (name && ls_device_parse(name, &d.device, &err) != LS_OK)
        ls_lua_bad_err(L, a->call, &err);
    d.profile = ls_lua_arg_choice(a, "profile", profiles, d.profile);
    d.cpu.n_threads = (int32_t)ls_lua_arg_int(a, "threads", 1, 1024, d.cpu.n_threads);
    const bool cpu = d.device == LS_DEVICE_CPU;
    const ls_status s =
        cpu ? ls_device_open(&d, &c->own, &err) : ls_lua_gpu(host, &d, &c->be, &err);
    if (s != LS_OK)
        ls_lua_bad_err(L, a->call, &err);
    c->be = cpu ? c->own : c->be;
    lua_pushfstring(L, "%s (%s)", c->be->device, c->be->profile);
    ls_lua_remember(L, LS_LUA_DEVICES);
    return c;
}

/* ---- results --------------------------------------------------------------------------------- */

static void set_number(lua_State *L, const char *name, double v) {
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}
static void set_int(lua_State *L, const char *name, int64_t v) {
    lua_pushinteger(L, v);
    lua_setfield(L, -2, name);
}
static void set_text(lua_State *L, const char *name, const char *v) {
    lua_pushstring(L, v);
    lua_setfield(L, -2, name);
}

/* { us =, cv =, q25 =, q75 =, wall_us =, repeats =, device =, profile = }, of each of n. */
static void push_times(lua_State *L, const ls_series *s, int32_t n, int32_t repeats,
                       const ls_backend *be) {
    lua_newtable(L);
    set_number(L, "us", s->device.median / n);
    set_number(L, "cv", s->device.cv);
    set_number(L, "q25", s->device.low / n);
    set_number(L, "q75", s->device.high / n);
    set_number(L, "wall_us", s->wall.median / n);
    set_int(L, "repeats", repeats);
    set_text(L, "device", be->device);
    set_text(L, "profile", be->profile);
}

static ls_bench_how how_of(lua_State *L, const ls_lua_args *a) {
    const ls_lua_run *run = ls_lua_host_of(L)->run;
    return (ls_bench_how){.n_repeat = (int32_t)ls_lua_arg_int(a, "repeats", 1, 100000, 15),
                          .self = run->self,
                          .stop = run->stop};
}

/* ---- attention ------------------------------------------------------------------------------- */

static ls_attn_case case_of(lua_State *L, const ls_lua_args *a, const ls_backend *be) {
    static const char *const kvs[] = {"f32", "bf16", NULL};
    const char *text = ls_lua_arg_string(a, "rule", "even:32:64");
    ls_err err;
    ls_attn_case c = {.n_heads = (int32_t)ls_lua_arg_int(a, "heads", 1, 1024, 32),
                      .n_kv = (int32_t)ls_lua_arg_int(a, "kv_heads", 1, 1024, 8),
                      .head_dim = (int32_t)ls_lua_arg_int(a, "head_dim", 2, LS_HEAD_DIM_MAX, 128),
                      .length = (int32_t)ls_lua_arg_int(a, "length", 1, 1 << 20, 1024),
                      .n_rows = (int32_t)ls_lua_arg_int(a, "rows", 1, LS_ATTN_ROWS_MAX, 1),
                      .capacity = (int32_t)ls_lua_arg_int(a, "capacity", 1, 1 << 24, 0),
                      .block_rows = (int32_t)ls_lua_arg_int(a, "block_rows", 0, 65536, 0),
                      .n_layers = (int32_t)ls_lua_arg_int(a, "layers", 1, LS_ATTN_LAYERS_MAX, 8),
                      .kv_dtype = ls_lua_arg_choice(a, "kv", kvs, 1) ? LS_BF16 : LS_F32,
                      .graph = ls_lua_arg_bool(a, "graph", be->record != NULL),
                      .seed = (uint64_t)ls_lua_arg_int(a, "seed", 0, INT64_MAX, 1)};
    if (ls_chunk_parse(text, &c.rule, &err) != LS_OK)
        ls_lua_bad(L, "%s: 'rule' is '%s': %s", a->call, text, err.msg);
    return c;
}

static void push_grid(lua_State *L, const ls_attn_bench *b) {
    ls_attn_grid g;
    const bool known = ls_attn_bench_grid(b, &g);
    set_int(L, "live_chunks", g.live_chunks);
    set_int(L, "max_chunks", g.max_chunks);
    if (!known)
        return;
    set_int(L, "blocks", g.launch.blocks);
    set_int(L, "threads", g.launch.threads);
    set_int(L, "blocks_a_unit", g.launch.blocks_a_unit);
    set_int(L, "units", g.launch.units);
    set_int(L, "shared_bytes", g.launch.shared_bytes);
    set_int(L, "live_blocks", g.live_blocks);
    set_number(L, "occupancy", g.occupancy);
}

/* kernel.attention{ heads =, ... } -> what experiments/README.md lists */
static int f_attention(lua_State *L) {
    static const char *const known[] = {"device",   "profile",    "threads", "heads", "kv_heads",
                                        "head_dim", "length",     "rows",    "kv",    "rule",
                                        "capacity", "block_rows", "layers",  "graph", "part",
                                        "repeats",  "seed",       NULL};
    static const char *const parts[] = {"both", "chunks", "merge", NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, false, "attention", known);
    ls_err err;
    const int part = ls_lua_arg_choice(&a, "part", parts, LS_ATTN_BOTH);
    const ls_bench_how how = how_of(L, &a);
    call *c = open_device(L, &a);
    const ls_attn_case k = case_of(L, &a, c->be);
    if (ls_attn_bench_open(c->be, &k, &c->attn, &err) != LS_OK)
        return ls_lua_bad_err(L, "attention", &err);
    ls_series s = {.run = ls_attn_bench_run, .self = c->attn, .arg = part};
    if (ls_bench_interleave(&s, 1, &how, &err) != LS_OK)
        return ls_lua_bad_err(L, "attention", &err);
    push_times(L, &s, k.n_layers, how.n_repeat, c->be);
    push_grid(L, c->attn);
    if (part != LS_ATTN_MERGE) { /* a merge reads no keys */
        const size_t bytes = ls_attn_bench_bytes(c->attn);
        set_int(L, "bytes", (int64_t)bytes);
        set_number(L, "gbps", ls_gb_per_s((double)bytes, s.device.median / k.n_layers));
    }
    call_free(c);
    return 1;
}

/* ---- read ------------------------------------------------------------------------------------ */

typedef struct reading {
    ls_backend *be;
    ls_span span;
} reading;

static ls_status read_once(void *self, int32_t unused, ls_took *took, ls_err *err) {
    const reading *r = self;
    (void)unused;
    return ls_bench_read(r->be, &r->span, 1, took, err);
}

/* Memory nobody wrote may be one page of zeros mapped many times: it is written first. */
static ls_status take(call *c, size_t bytes, ls_err *err) {
    static const char block[1 << 16] = {1};
    LS_TRY(c->be->alloc(c->be, bytes, &c->memory, err));
    size_t have = bytes < sizeof block ? bytes : sizeof block;
    LS_TRY(c->be->upload(c->be, c->memory, block, have, err));
    for (size_t n; have < bytes; have += n) {
        n = bytes - have < have ? bytes - have : have;
        LS_TRY(c->be->copy(c->be, (char *)c->memory + have, c->memory, n, err));
    }
    return LS_OK;
}

/* kernel.read{ bytes = } -> how fast the device reads memory */
static int f_read(lua_State *L) {
    static const char *const known[] = {"device", "profile", "threads", "bytes", "repeats", NULL};
    const ls_lua_args a = ls_lua_args_at(L, 1, true, "read", known);
    ls_err err;
    const int64_t bytes =
        ls_lua_arg_int(&a, "bytes", 64, (int64_t)1 << 40, (int64_t)256 << 20) / 64 * 64;
    const ls_bench_how how = how_of(L, &a);
    call *c = open_device(L, &a);
    if (take(c, (size_t)bytes, &err) != LS_OK)
        return ls_lua_bad_err(L, "read", &err);
    reading r = {c->be, {c->memory, (size_t)bytes}};
    ls_series s = {.run = read_once, .self = &r};
    if (ls_bench_interleave(&s, 1, &how, &err) != LS_OK)
        return ls_lua_bad_err(L, "read", &err);
    push_times(L, &s, 1, how.n_repeat, c->be);
    set_int(L, "bytes", bytes);
    set_number(L, "gbps", ls_gb_per_s((double)bytes, s.device.median));
    call_free(c);
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {{"attention", f_attention}, {"read", f_read}, {NULL, NULL}};

void ls_lua_open_kernel(lua_State *L) {
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "kernel");
}
