/* cpu.c - the CPU backend: launchers that check their arguments and spread blocks over threads.
 * Which thread runs a block, and how many there are, is in no result. */
#include "backend.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "chunk.h"
#include "cpu_bodies.h"
#include "cpu_read.h"
#include "tile_limits.h"

typedef struct cpu_backend {
    ls_backend be; /* first: a backend pointer is one of these */
    const ls_cpu_bodies *bodies;
    int n_threads;
    ls_err err; /* the first failure since the last sync */
    double stamp_us[LS_STAMPS];
} cpu_backend;

static cpu_backend *cpu_of(ls_backend *be) {
    return (cpu_backend *)(void *)be;
}

/* Work below this, in rough nanoseconds of one core, is not worth waking a second one. */
#define WORTH_THREADS_NS 4000.0

static int threads_for(const cpu_backend *cpu, int64_t n_blocks, double work_ns) {
    if (n_blocks < 2 || work_ns < WORTH_THREADS_NS)
        return 1;
    return n_blocks < cpu->n_threads ? (int)n_blocks : cpu->n_threads;
}

/* Thread t of nt does items [*i0, *i1) of n; ranges begin at multiples of `unit`. */
static void range_of(int64_t n, int64_t unit, int64_t t, int64_t nt, int64_t *i0, int64_t *i1) {
    const int64_t blocks = (n + unit - 1) / unit, to = blocks * (t + 1) / nt;
    *i0 = blocks * t / nt * unit;
    *i1 = to == blocks ? n : to * unit;
}

/* Items [0, n) in contiguous ranges that begin at multiples of `unit`, one range a thread. */
#define SPREAD(cpu, n, unit, item_ns, call)                                                 \
    do {                                                                                    \
        const int64_t n_ = (n), unit_ = (unit), blocks_ = (n_ + unit_ - 1) / unit_;         \
        const int threads_ = threads_for((cpu), blocks_, (item_ns) * (double)n_);           \
        if (threads_ == 1) {                                                                \
            const int64_t i0 = 0, i1 = n_;                                                  \
            call;                                                                           \
        } else {                                                                            \
            _Pragma("omp parallel num_threads(threads_)") {                                 \
                int64_t i0, i1;                                                             \
                range_of(n_, unit_, omp_get_thread_num(), omp_get_num_threads(), &i0, &i1); \
                if (i0 < i1)                                                                \
                    call;                                                                   \
            }                                                                               \
        }                                                                                   \
    } while (0)

/* Keeps the first failure for sync; what is refused does not run. `check` writes to &why_. */
#define CHECKED(cpu, check)               \
    do {                                  \
        ls_err why_;                      \
        if ((check) != LS_OK) {           \
            if ((cpu)->err.code == LS_OK) \
                (cpu)->err = why_;        \
            return;                       \
        }                                 \
    } while (0)

/* ---- memory ---------------------------------------------------------------------------------- */

static ls_status cpu_alloc(ls_backend *be, size_t bytes, void **out, ls_err *err) {
    (void)be;
    void *p = NULL;
    if (bytes > SIZE_MAX - 64 || posix_memalign(&p, 64, bytes ? (bytes + 63) / 64 * 64 : 64) != 0)
        return ls_fail(err, LS_ERR_MEMORY, "no memory for %zu bytes", bytes);
#ifdef LS_POISON
    memset(p, 0xff,
           bytes ? (bytes + 63) / 64 * 64 : 64); /* NaN in every float type, -1 in integers */
#endif
    *out = p;
    return LS_OK;
}
static void cpu_free(ls_backend *be, void *p) {
    (void)be;
    free(p);
}
static ls_status cpu_copy(ls_backend *be, void *dst, const void *src, size_t bytes, ls_err *err) {
    (void)be;
    (void)err;
    if (bytes)
        memmove(dst, src, bytes);
    return LS_OK;
}
static ls_status cpu_weights(ls_backend *be, const void *host, size_t bytes, const void **out,
                             ls_err *err) {
    (void)be;
    (void)bytes;
    (void)err;
    *out = host;
    return LS_OK;
}
static void cpu_weights_free(ls_backend *be, const void *w) {
    (void)be;
    (void)w;
}
static ls_status cpu_mat(ls_backend *be, const ls_mat *host, ls_mat *dev, ls_err *err) {
    (void)be;
    (void)err;
    *dev = *host;
    return LS_OK;
}
static void cpu_mat_free(ls_backend *be, const ls_mat *dev) {
    (void)be;
    (void)dev;
}
/* work is done when its launcher returns: there is nothing to wait for */
static ls_status cpu_sync(ls_backend *be, ls_err *err) {
    cpu_backend *cpu = cpu_of(be);
    const ls_status status = cpu->err.code;
    if (status != LS_OK && err)
        *err = cpu->err;
    cpu->err = (ls_err){0};
    return status;
}
static ls_status cpu_download(ls_backend *be, void *dst, const void *src, size_t bytes,
                              ls_err *err) {
    LS_TRY(cpu_sync(be, err));
    return cpu_copy(be, dst, src, bytes, err);
}
static void cpu_destroy(ls_backend *be) {
    free(be);
}

static void cpu_stamp(ls_backend *be, int32_t i) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (i >= 0 && i < LS_STAMPS)
        cpu_of(be)->stamp_us[i] = (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
static double cpu_between(ls_backend *be, int32_t i, int32_t j) {
    const int known = i >= 0 && i < LS_STAMPS && j >= 0 && j < LS_STAMPS;
    return known ? cpu_of(be)->stamp_us[j] - cpu_of(be)->stamp_us[i] : 0;
}

/* ---- launchers: costs in ns are rough, they only decide whether threads are woken ------------ */

/* Threads are woken once for all of them, and each takes its range of every one. */
static void run_linears(cpu_backend *cpu, const ls_linear_args *const *a, int n) {
    const int unit = cpu->bodies->linear_unit;
    int64_t blocks = 0;
    double ns = 0;
    for (int k = 0; k < n; k++) {
        const int64_t n_out = a[k]->w.n_out, own = (n_out + unit - 1) / unit;
        blocks = own > blocks ? own : blocks;
        ns += 0.1 * a[k]->w.n_in * (1 + 0.25 * a[k]->n_rows) * (double)n_out;
    }
    const int threads = threads_for(cpu, blocks, ns);
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (int k = 0; k < n; k++) {
        int64_t i0, i1;
        range_of(a[k]->w.n_out, unit, omp_get_thread_num(), omp_get_num_threads(), &i0, &i1);
        if (i0 < i1)
            cpu->bodies->linear(a[k], (int)i0, (int)i1);
    }
}

static void ls_linear_cpu(ls_backend *be, const ls_linear_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_linear(a, &why_));
    run_linears(cpu, &a, 1);
}

static void ls_linears_cpu(ls_backend *be, const ls_linear_args *a, int32_t n) {
    cpu_backend *cpu = cpu_of(be);
    const ls_linear_args *run[LS_LINEARS];
    int n_run = 0;
    CHECKED(cpu, ls_check_linears(n, &why_));
    for (int32_t i = 0; i < n; i++) {
        ls_err why;
        if (ls_check_linear(&a[i], &why) == LS_OK)
            run[n_run++] = &a[i];
        else if (cpu->err.code == LS_OK)
            cpu->err = why;
    }
    run_linears(cpu, run, n_run);
}

static void ls_embed_cpu(ls_backend *be, const ls_embed_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_embed(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.1 * a->table.n_in, cpu->bodies->embed(a, (int)i0, (int)i1));
}

static void ls_rmsnorm_cpu(ls_backend *be, const ls_rmsnorm_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_rmsnorm(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.4 * a->dim, cpu->bodies->rmsnorm(a, (int)i0, (int)i1));
}
static void ls_norm_linears_cpu(ls_backend *be, const ls_rmsnorm_args *norm,
                                const ls_linear_args *a, int32_t n) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_norm_linears(norm, a, n, &why_));
    ls_rmsnorm_cpu(be, norm);
    ls_linears_cpu(be, a, n);
}

static void ls_bias_cpu(ls_backend *be, const ls_bias_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_bias(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.1 * a->dim, cpu->bodies->bias(a, (int)i0, (int)i1));
}

static void ls_rope_cpu(ls_backend *be, const ls_rope_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_rope(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.3 * (a->n_heads + a->n_kv) * a->head_dim,
           cpu->bodies->rope(a, (int)i0, (int)i1));
}

static void ls_kv_store_cpu(ls_backend *be, const ls_kv_store_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_kv_store(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.5 * a->n_kv * a->head_dim,
           cpu->bodies->kv_store(a, (int)i0, (int)i1));
}

static void ls_place_cpu(ls_backend *be, const ls_rope_args *a, const ls_kv_store_args *b) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_place(a, b, &why_));
    SPREAD(cpu, a->n_rows, 1, 0.5 * (a->n_heads + 2 * a->n_kv) * a->head_dim,
           cpu->bodies->place(a, b, (int)i0, (int)i1));
}

static void ls_silu_mul_cpu(ls_backend *be, const ls_silu_mul_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_silu_mul(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 1.5 * a->dim, cpu->bodies->silu_mul(a, (int)i0, (int)i1));
}

static void ls_gelu_mul_cpu(ls_backend *be, const ls_gelu_mul_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_gelu_mul(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 1.6 * a->dim, cpu->bodies->gelu_mul(a, (int)i0, (int)i1));
}

static void ls_gather_cpu(ls_backend *be, const ls_gather_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_gather(a, &why_));
    SPREAD(cpu, a->n, 1, 0.1 * a->dim, cpu->bodies->gather(a, (int)i0, (int)i1));
}

static void ls_attn_cpu(ls_backend *be, const ls_attn_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_attn(a, &why_));
    int64_t n_items = 0, n_keys = 0;
    for (int r = 0; r < a->n_rows; r++) {
        const int32_t keys = ls_window_len(a->window, a->length[r]);
        const int32_t n = ls_chunk_count(a->rule, keys);
        CHECKED(cpu, ls_check_chunks(a, r, keys, n, &why_));
        n_items += (int64_t)n * a->n_kv;
        n_keys += n > 0 ? keys : 0;
    }
    if (n_items > 0 && a->only != 2) {
        const double ns = 0.08 * (double)n_keys * a->n_heads * a->head_dim / (double)n_items;
        SPREAD(cpu, n_items, 1, ns, cpu->bodies->attn_chunk(a, i0, i1));
    }
    if (a->only == 1)
        return;
    SPREAD(cpu, (int64_t)a->n_rows * a->n_heads, 1,
           100 + 0.1 * a->head_dim * (double)n_items / (a->n_rows ? a->n_rows : 1),
           cpu->bodies->attn_merge(a, (int)i0, (int)i1));
}
static void ls_place_attn_cpu(ls_backend *be, const ls_rope_args *rope,
                              const ls_kv_store_args *store, const ls_attn_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_place_attn(rope, store, a, &why_));
    ls_place_cpu(be, rope, store);
    ls_attn_cpu(be, a);
}

static void ls_stats_cpu(ls_backend *be, const ls_stats_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_stats(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 2.0 * a->n_vocab, cpu->bodies->stats(a, (int)i0, (int)i1));
}

static void ls_probs_cpu(ls_backend *be, const ls_probs_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_probs(a, &why_));
    const int64_t n_seg = (a->n_vocab + LS_SEGMENT - 1) / LS_SEGMENT;
    SPREAD(cpu, n_seg * a->n_rows, 1, 1.0 * LS_SEGMENT, cpu->bodies->probs(a, (int)i0, (int)i1));
}

static void ls_choose_cpu(ls_backend *be, const ls_choose_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_choose(a, &why_));
    SPREAD(cpu, a->n_rows, 1, 4.0 * a->n_vocab, cpu->bodies->choose(a, (int)i0, (int)i1));
}

/* ---- chains and verdicts --------------------------------------------------------------------- */

static void ls_keep_cpu(ls_backend *be, const ls_keep_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_keep(a, &why_));
    const int64_t n_seg = (a->dim + (int64_t)LS_SEGMENT - 1) / LS_SEGMENT;
    SPREAD(cpu, n_seg, 1, 0.1 * LS_SEGMENT, cpu->bodies->keep(a, (int)i0, (int)i1));
}

static void ls_feed_cpu(ls_backend *be, const ls_feed_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_feed(a, &why_));
    cpu->bodies->feed(a);
}

static void ls_take_cpu(ls_backend *be, const ls_take_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_take(a, &why_));
    cpu->bodies->take(a, 0, a->n);
}

static void ls_accept_cpu(ls_backend *be, const ls_accept_args *a) {
    cpu_backend *cpu = cpu_of(be);
    CHECKED(cpu, ls_check_accept(a, &why_));
    cpu->bodies->accept(a);
}

static void cpu_read(ls_backend *be, const ls_span *span, int32_t n) {
    ls_read_spans(span, n, cpu_of(be)->n_threads);
}

int64_t ls_cpu_fma(ls_backend *be, int64_t n_step) {
    if (be->destroy != cpu_destroy)
        return 0;
    const cpu_backend *cpu = cpu_of(be);
    int64_t n = 0;
    float total = 0.0f;
#pragma omp parallel num_threads(cpu->n_threads) reduction(+ : n, total)
    n += cpu->bodies->fma(n_step, 0.5f, &total);
    volatile float sink = total; /* as in cpu_read.c */
    (void)sink;
    return n;
}

/* ---- create ---------------------------------------------------------------------------------- */

static int has_avx2(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#else
    return 0;
#endif
}
static int has_avx512(void) {
#if defined(__x86_64__) || defined(__i386__)
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return 0;
#endif
}

/* "AMD EPYC 7763 64-Core Processor" where the system tells, else the architecture. */
static void cpu_model(char *dst, size_t cap) {
    snprintf(dst, cap, "cpu");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            char *name = strchr(line, ':') + 1;
            name += strspn(name, " \t");
            ls_err_text(dst, cap, name, strcspn(name, "\n"));
            break;
        }
    if (f)
        fclose(f);
}

ls_status ls_cpu_create(ls_cpu_options options, ls_backend **out, ls_err *err) {
    const ls_cpu_bodies *bodies = &ls_cpu_plain;
    if (options.n_threads < 0 || options.n_threads > 1024)
        return ls_fail(err, LS_ERR_INPUT, "%d threads: use 1 to 1024, or 0 for all processors",
                       (int)options.n_threads);
    if (options.simd != LS_SIMD_AUTO && options.simd != LS_SIMD_PLAIN &&
        options.simd != LS_SIMD_AVX2 && options.simd != LS_SIMD_AVX512)
        return ls_fail(err, LS_ERR_INPUT, "simd %d is unknown: use auto, plain, avx2 or avx512",
                       (int)options.simd);
#ifdef LS_HAVE_AVX2
    if (options.simd != LS_SIMD_PLAIN && has_avx2())
        bodies = &ls_cpu_avx2;
#endif
#ifdef LS_HAVE_AVX512
    if ((options.simd == LS_SIMD_AUTO || options.simd == LS_SIMD_AVX512) && has_avx512())
        bodies = &ls_cpu_avx512;
#endif
    if (options.simd == LS_SIMD_AVX2 && bodies == &ls_cpu_plain)
        return ls_fail(err, LS_ERR_INPUT,
                       "this processor or build has no AVX2, FMA and F16C: use simd plain or auto");
    if (options.simd == LS_SIMD_AVX512 && strcmp(bodies->name, "avx512") != 0)
        return ls_fail(err, LS_ERR_INPUT,
                       "this processor or build lacks AVX-512 F, BW, DQ or VL: use avx2 or auto");
    cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return ls_fail(err, LS_ERR_MEMORY, "no memory for a backend");
    cpu->bodies = bodies;
    cpu->n_threads = options.n_threads ? options.n_threads : omp_get_max_threads();
    cpu->be = (ls_backend){
        .name = "cpu",
        .profile = "ieee",
        .chunk = {LS_CHUNK_EVEN, 32, 64},
        .alloc = cpu_alloc,
        .free = cpu_free,
        .upload = cpu_copy,
        .download = cpu_download,
        .copy = cpu_copy,
        .weights = cpu_weights,
        .weights_free = cpu_weights_free,
        .mat = cpu_mat,
        .mat_free = cpu_mat_free,
        .weights_done = cpu_sync,
        .sync = cpu_sync,
        .status = cpu_sync,
        .destroy = cpu_destroy,
        .stamp = cpu_stamp,
        .between = cpu_between,
        .embed = ls_embed_cpu,
        .rmsnorm = ls_rmsnorm_cpu,
        .linear = ls_linear_cpu,
        .linears = ls_linears_cpu,
        .norm_linears = ls_norm_linears_cpu,
        .norm_gates = ls_norm_gates_apart,
        .bias = ls_bias_cpu,
        .rope = ls_rope_cpu,
        .kv_store = ls_kv_store_cpu,
        .place = ls_place_cpu,
        .attn = ls_attn_cpu,
        .place_attn = ls_place_attn_cpu,
        .silu_mul = ls_silu_mul_cpu,
        .gelu_mul = ls_gelu_mul_cpu,
        .gather = ls_gather_cpu,
        .stats = ls_stats_cpu,
        .probs = ls_probs_cpu,
        .choose = ls_choose_cpu,
        .keep = ls_keep_cpu,
        .feed = ls_feed_cpu,
        .take = ls_take_cpu,
        .accept = ls_accept_cpu,
        .read = cpu_read,
    };
    char model[64];
    cpu_model(model, sizeof model);
    snprintf(cpu->be.device, sizeof cpu->be.device, "%s, %s, %d threads", model, bodies->name,
             cpu->n_threads);
    *out = &cpu->be;
    return LS_OK;
}

void ls_norm_gates_apart(ls_backend *be, const ls_rmsnorm_args *norm, const ls_linear_args both[2],
                         const ls_silu_mul_args *g, int32_t gelu) {
    be->norm_linears(be, norm, both, 2);
    (gelu ? be->gelu_mul : be->silu_mul)(be, g);
}

void ls_backend_destroy(ls_backend *be) {
    if (be)
        be->destroy(be);
}
