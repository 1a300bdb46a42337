/* cpu.c - the CPU backend: launchers that check their arguments and spread blocks over threads.
 * Which thread runs a block, and how many there are, is in no result. */
#include "backend.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_bodies.h"
#include "tile_limits.h"

typedef struct cpu_backend {
    ls_backend be; /* first: a backend pointer is one of these */
    const ls_cpu_bodies *bodies;
    int n_threads;
    ls_err err; /* the first failure since the last sync */
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

/* Items [0, n) in contiguous ranges that begin at multiples of `unit`, one range a thread. */
#define SPREAD(cpu, n, unit, item_ns, call)                                                    \
    do {                                                                                       \
        const int64_t n_ = (n), unit_ = (unit), blocks_ = (n_ + unit_ - 1) / unit_;            \
        const int threads_ = threads_for((cpu), blocks_, (item_ns) * (double)n_);              \
        if (threads_ == 1) {                                                                   \
            const int64_t i0 = 0, i1 = n_;                                                     \
            call;                                                                              \
        } else {                                                                               \
            _Pragma("omp parallel num_threads(threads_)") {                                    \
                const int64_t t_ = omp_get_thread_num(), nt_ = omp_get_num_threads();          \
                const int64_t i0 = blocks_ * t_ / nt_ * unit_, to_ = blocks_ * (t_ + 1) / nt_; \
                const int64_t i1 = to_ == blocks_ ? n_ : to_ * unit_;                          \
                if (i0 < i1)                                                                   \
                    call;                                                                      \
            }                                                                                  \
        }                                                                                      \
    } while (0)

/* Keeps the first failure for sync; returns 1 when the launch must not run. */
#define REFUSE(cpu, wrong, ...)                                  \
    do {                                                         \
        if (wrong) {                                             \
            if ((cpu)->err.code == LS_OK)                        \
                ls_fail(&(cpu)->err, LS_ERR_SHAPE, __VA_ARGS__); \
            return;                                              \
        }                                                        \
    } while (0)

static int known_dtype(ls_dtype t) {
    return t == LS_F32 || t == LS_BF16 || t == LS_F16;
}

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
static ls_status cpu_sync(ls_backend *be, ls_err *err) {
    cpu_backend *cpu = cpu_of(be);
    const ls_status status = cpu->err.code;
    if (status != LS_OK && err)
        *err = cpu->err;
    cpu->err = (ls_err){0};
    return status;
}
static void cpu_destroy(ls_backend *be) {
    free(be);
}

/* ---- launchers: costs in ns are rough, they only decide whether threads are woken ------------ */

static void ls_linear_cpu(ls_backend *be, const ls_linear_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->w.n_in < 1 || a->w.n_out < 0 || a->n_rows < 0 || !known_dtype(a->w.dtype),
           "linear: weights [%d, %d] for %d rows", (int)a->w.n_out, (int)a->w.n_in, (int)a->n_rows);
    SPREAD(cpu, a->w.n_out, cpu->bodies->linear_unit, 0.1 * a->w.n_in * (1 + 0.25 * a->n_rows),
           cpu->bodies->linear(a, (int)i0, (int)i1));
}

static void ls_embed_cpu(ls_backend *be, const ls_embed_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->table.n_in < 1 || a->n_rows < 0 || !known_dtype(a->table.dtype),
           "embed: table [%d, %d] for %d rows", (int)a->table.n_out, (int)a->table.n_in,
           (int)a->n_rows);
    SPREAD(cpu, a->n_rows, 1, 0.1 * a->table.n_in, cpu->bodies->embed(a, (int)i0, (int)i1));
}

static void ls_rmsnorm_cpu(ls_backend *be, const ls_rmsnorm_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu,
           a->dim < 1 || a->dim > LS_NORM_SEGMENTS * LS_SEGMENT || a->n_rows < 0 ||
               !known_dtype(a->w_dtype),
           "rmsnorm: %d rows of %d, must be 1 to %d wide", (int)a->n_rows, (int)a->dim,
           LS_NORM_SEGMENTS * LS_SEGMENT);
    SPREAD(cpu, a->n_rows, 1, 0.4 * a->dim, cpu->bodies->rmsnorm(a, (int)i0, (int)i1));
}

static void ls_rope_cpu(ls_backend *be, const ls_rope_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu,
           a->head_dim < 2 || a->head_dim % 2 || a->head_dim > LS_HEAD_DIM_MAX || a->n_heads < 0 ||
               a->n_kv < 0 || a->n_rows < 0,
           "rope: head width %d must be even, 2 to %d", (int)a->head_dim, LS_HEAD_DIM_MAX);
    SPREAD(cpu, a->n_rows, 1, 0.3 * (a->n_heads + a->n_kv) * a->head_dim,
           cpu->bodies->rope(a, (int)i0, (int)i1));
}

static void ls_kv_store_cpu(ls_backend *be, const ls_kv_store_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->n_kv < 1 || a->head_dim < 1 || a->n_rows < 0 || !known_dtype(a->kv_dtype),
           "kv_store: %d rows of [%d, %d]", (int)a->n_rows, (int)a->n_kv, (int)a->head_dim);
    SPREAD(cpu, a->n_rows, 1, 0.5 * a->n_kv * a->head_dim,
           cpu->bodies->kv_store(a, (int)i0, (int)i1));
}

static void ls_silu_mul_cpu(ls_backend *be, const ls_silu_mul_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->dim < 1 || a->n_rows < 0, "silu_mul: %d rows of %d", (int)a->n_rows,
           (int)a->dim);
    SPREAD(cpu, a->n_rows, 1, 1.5 * a->dim, cpu->bodies->silu_mul(a, (int)i0, (int)i1));
}

static void ls_gather_cpu(ls_backend *be, const ls_gather_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->dim < 1 || a->n < 0, "gather: %d rows of %d", (int)a->n, (int)a->dim);
    SPREAD(cpu, a->n, 1, 0.1 * a->dim, cpu->bodies->gather(a, (int)i0, (int)i1));
}

static void ls_attn_cpu(ls_backend *be, const ls_attn_args *a) {
    cpu_backend *cpu = cpu_of(be);
    ls_err why;
    REFUSE(cpu,
           a->head_dim < 2 || a->head_dim % 2 || a->head_dim > LS_HEAD_DIM_MAX || a->n_kv < 1 ||
               a->n_heads < 1 || a->n_heads % a->n_kv || a->n_rows < 0 || !known_dtype(a->kv_dtype),
           "attention: %d query heads, %d key heads of width %d (even, at most %d)",
           (int)a->n_heads, (int)a->n_kv, (int)a->head_dim, LS_HEAD_DIM_MAX);
    REFUSE(cpu, ls_chunk_check(a->rule, &why) != LS_OK, "attention: %s", why.msg);
    REFUSE(cpu, !a->loc.base && a->loc.block_rows < 1, "attention: blocks of %d rows",
           (int)a->loc.block_rows);
    int64_t n_items = 0, n_keys = 0;
    for (int r = 0; r < a->n_rows; r++) {
        const int32_t n = ls_chunk_count(a->rule, a->length[r]);
        REFUSE(cpu, n > a->max_chunks || n > LS_CHUNKS_MAX,
               "attention: row %d of %d keys has %d chunks, scratch holds %d (at most %d)", r,
               (int)a->length[r], (int)n, (int)a->max_chunks, LS_CHUNKS_MAX);
        n_items += (int64_t)n * a->n_kv;
        n_keys += n > 0 ? a->length[r] : 0;
    }
    if (n_items > 0) {
        const double ns = 0.08 * (double)n_keys * a->n_heads * a->head_dim / (double)n_items;
        SPREAD(cpu, n_items, 1, ns, cpu->bodies->attn_chunk(a, i0, i1));
    }
    SPREAD(cpu, (int64_t)a->n_rows * a->n_heads, 1,
           100 + 0.1 * a->head_dim * (double)n_items / (a->n_rows ? a->n_rows : 1),
           cpu->bodies->attn_merge(a, (int)i0, (int)i1));
}

static void ls_stats_cpu(ls_backend *be, const ls_stats_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu,
           a->n_vocab < 1 || a->n_vocab > LS_STAT_SEGMENTS * LS_SEGMENT ||
               a->ld_logits < a->n_vocab,
           "statistics: %d tokens in rows of %d, must be 1 to %d", (int)a->n_vocab,
           (int)a->ld_logits, LS_STAT_SEGMENTS * LS_SEGMENT);
    REFUSE(cpu, a->n_top < 0 || a->n_top > LS_TOP_MAX || a->n_rows < 0,
           "statistics: a list of %d tokens, must be 0 to %d", (int)a->n_top, LS_TOP_MAX);
    SPREAD(cpu, a->n_rows, 1, 2.0 * a->n_vocab, cpu->bodies->stats(a, (int)i0, (int)i1));
}

static void ls_probs_cpu(ls_backend *be, const ls_probs_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->n_vocab < 1 || a->ld_logits < a->n_vocab || a->n_rows < 0,
           "probabilities: %d tokens in rows of %d", (int)a->n_vocab, (int)a->ld_logits);
    const int64_t n_seg = (a->n_vocab + LS_SEGMENT - 1) / LS_SEGMENT;
    SPREAD(cpu, n_seg * a->n_rows, 1, 1.0 * LS_SEGMENT, cpu->bodies->probs(a, (int)i0, (int)i1));
}

static void ls_choose_cpu(ls_backend *be, const ls_choose_args *a) {
    cpu_backend *cpu = cpu_of(be);
    REFUSE(cpu, a->n_vocab < 1 || a->n_vocab > LS_STAT_SEGMENTS * LS_SEGMENT || a->n_rows < 0,
           "choose: %d tokens, must be 1 to %d", (int)a->n_vocab, LS_STAT_SEGMENTS * LS_SEGMENT);
    SPREAD(cpu, a->n_rows, 1, 4.0 * a->n_vocab, cpu->bodies->choose(a, (int)i0, (int)i1));
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
        options.simd != LS_SIMD_AVX2)
        return ls_fail(err, LS_ERR_INPUT, "simd %d is unknown: use auto, plain or avx2",
                       (int)options.simd);
#ifdef LS_HAVE_AVX2
    if (options.simd != LS_SIMD_PLAIN && has_avx2())
        bodies = &ls_cpu_avx2;
#endif
    if (options.simd == LS_SIMD_AVX2 && bodies == &ls_cpu_plain)
        return ls_fail(err, LS_ERR_INPUT,
                       "this processor or build has no AVX2, FMA and F16C: use simd plain or auto");
    cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return ls_fail(err, LS_ERR_MEMORY, "no memory for a backend");
    cpu->bodies = bodies;
    cpu->n_threads = options.n_threads ? options.n_threads : omp_get_max_threads();
    cpu->be = (ls_backend){
        .name = "cpu",
        .profile = "ieee",
        .alloc = cpu_alloc,
        .free = cpu_free,
        .upload = cpu_copy,
        .download = cpu_copy,
        .copy = cpu_copy,
        .weights = cpu_weights,
        .weights_free = cpu_weights_free,
        .sync = cpu_sync,
        .destroy = cpu_destroy,
        .embed = ls_embed_cpu,
        .rmsnorm = ls_rmsnorm_cpu,
        .linear = ls_linear_cpu,
        .rope = ls_rope_cpu,
        .kv_store = ls_kv_store_cpu,
        .attn = ls_attn_cpu,
        .silu_mul = ls_silu_mul_cpu,
        .gather = ls_gather_cpu,
        .stats = ls_stats_cpu,
        .probs = ls_probs_cpu,
        .choose = ls_choose_cpu,
    };
    char model[64];
    cpu_model(model, sizeof model);
    snprintf(cpu->be.device, sizeof cpu->be.device, "%s, %s, %d threads", model, bodies->name,
             cpu->n_threads);
    *out = &cpu->be;
    return LS_OK;
}

void ls_backend_destroy(ls_backend *be) {
    if (be)
        be->destroy(be);
}
