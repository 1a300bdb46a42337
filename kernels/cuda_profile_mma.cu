/* cuda_profile_mma.cu - profile `mma`: what it changes in the table of the CUDA backend.
 *   linear, linears   bf16, Q8_0 and Q4_K weights on tensor cores (cuda_mma.h, N-MMA, N-MMAQ);
 *                     others as ieee
 *   norm_linears      the same weights: products of the weighted row, divided by its root (N-MMAN)
 *   norm_gates        where both have one type of those and rows are few: one launch, storing h
 *   attn, place_attn  a bf16 cache on tensor cores (cuda_mma_attn.h, N-MATTN); other caches as ieee
 *   mat               weights for tensor cores are packed; the row-major copy goes after loading
 * Which form computes an operation follows from the model's and the cache's types and shapes, so
 * that all rows of an engine are computed alike.
 * Memory  scratch grows in `mat`, before a pass needs it; recorded launches keep the old one.
 *         Row-major weights pass through one buffer, until weights_done. */
#include <stdlib.h>

#include "cuda.h"
#include "cuda_mma.h"
#include "cuda_mma_attn.h"
#include "cuda_share.h"

typedef struct mma_profile {
    ls_mma_device linear_dev;
    ls_mma_attn_device attn_dev;
    int32_t *attn_done; /* [LS_MMA_ATTN_GROUPS] */
    void *scratch;
    size_t scratch_bytes;
    cuda_shared *packed;
    /* The row ahead of a norm's linears, weighted, and its squares; what they were made of, and by
     * which entry: a linear may have left them for the very next one. */
    void *z, *squares;
    size_t z_bytes, squares_bytes;
    const float *z_of;
    const void *z_w;
    int32_t z_rows, z_dim;
    uint64_t z_entry;
    void *plain; /* row-major weights on their way */
    size_t plain_bytes;
    /* what ieee does */
    ls_status (*plain_mat)(ls_backend *, const ls_mat *, ls_mat *, ls_err *);
    void (*plain_mat_free)(ls_backend *, const ls_mat *);
    void (*plain_linear)(ls_backend *, const ls_linear_args *);
    void (*plain_attn)(ls_backend *, const ls_attn_args *);
    void (*plain_place_attn)(ls_backend *, const ls_rope_args *, const ls_kv_store_args *,
                             const ls_attn_args *);
    void (*plain_attn_launch)(ls_backend *, const ls_attn_args *, ls_launch *);
    ls_status (*plain_weights_done)(ls_backend *, ls_err *);
} mma_profile;

static mma_profile *profile_of(ls_backend *be) {
    return (mma_profile *)cuda_of(be)->profile_data;
}

static void answer(cuda_backend *cuda, cudaError_t e, const char *what) {
    ls_err why;
    if (e != cudaSuccess && cuda_answer(e, what, &why) != LS_OK)
        cuda_keep(cuda, &why);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* At least `need` bytes at *at. */
static ls_status grow(ls_backend *be, void **at, size_t *has, size_t need, ls_err *err) {
    if (need <= *has)
        return LS_OK;
    void *grown;
    LS_TRY(be->alloc(be, need, &grown, err));
    const ls_status s = cuda_retire(cuda_of(be), *at, err);
    if (s != LS_OK) {
        be->free(be, grown);
        return s;
    }
    *at = grown;
    *has = need;
    return LS_OK;
}
/* The outputs of LS_LINEARS linears of this shape may share a launch. */
static ls_status grow_scratch(ls_backend *be, const ls_mat *w, ls_err *err) {
    mma_profile *p = profile_of(be);
    LS_TRY(grow(be, &p->scratch, &p->scratch_bytes,
                ls_mma_scratch_bytes(w->dtype, w->n_out * LS_LINEARS, w->n_in, LS_ROWS_MAX), err));
    cuda_backend *cuda = cuda_of(be);
    void *x16 = cuda->x16;
    const ls_status s = grow(be, &x16, &cuda->x16_bytes, ls_mma_x_bytes(w->n_in, LS_ROWS_MAX), err);
    cuda->x16 = (uint16_t *)x16;
    LS_TRY(s);
    LS_TRY(grow(be, &p->z, &p->z_bytes, ls_mma_x_bytes(w->n_in, LS_ROWS_MAX), err));
    return grow(be, &p->squares, &p->squares_bytes, ls_mma_squares_bytes(w->n_in, LS_ROWS_MAX),
                err);
}

/* Freeing waits for what is on its way through it. */
static void drop_plain(ls_backend *be) {
    mma_profile *p = profile_of(be);
    be->free(be, p->plain);
    p->plain = NULL;
    p->plain_bytes = 0;
}

/* A larger matrix (the head of a large vocabulary) has a buffer for itself alone. */
#define PLAIN_KEPT ((size_t)512 << 20)

/* In the order of the stream, and not waited for: while a matrix is packed, which takes a small
 * part of the time of its copy, the next one already fills pinned memory. */
static ls_status pack(ls_backend *be, const ls_mat *host, void **out, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    mma_profile *p = profile_of(be);
    const size_t bytes = (size_t)host->n_out * ls_dtype_span(host->dtype, (size_t)host->n_in);
    void *packed = NULL;
    ls_status s = LS_OK;
    if (bytes > p->plain_bytes) {
        drop_plain(be);
        s = be->alloc(be, bytes, &p->plain, err);
        p->plain_bytes = s == LS_OK ? bytes : 0;
    }
    if (s == LS_OK)
        s = be->alloc(be, ls_mma_bytes(host->dtype, host->n_out, host->n_in), &packed, err);
    if (s == LS_OK)
        s = be->upload(be, p->plain, host->data, bytes, err);
    if (s == LS_OK)
        s = cuda_answer(
            ls_mma_pack(p->plain, host->dtype, host->n_out, host->n_in, packed, cuda->stream),
            "pack", err);
    if (p->plain_bytes > PLAIN_KEPT)
        drop_plain(be);
    if (s != LS_OK)
        be->free(be, packed);
    else
        *out = packed;
    return s;
}

static ls_status mat(ls_backend *be, const ls_mat *host, ls_mat *dev, ls_err *err) {
    mma_profile *p = profile_of(be);
    if (!ls_mma_has(host->dtype))
        return p->plain_mat(be, host, dev, err);
    LS_TRY(ls_check_mat(host, err));
    if (host->n_out < 1 || host->n_out > INT32_MAX / LS_LINEARS)
        return ls_fail(err, LS_ERR_SHAPE, "weights [%d, %d]", (int)host->n_out, (int)host->n_in);
    const size_t bytes = (size_t)host->n_out * ls_dtype_span(host->dtype, (size_t)host->n_in);
    LS_TRY(cuda_enter(cuda_of(be), err));
    LS_TRY(grow_scratch(be, host, err));
    *dev = *host;
    void *packed = cuda_shared_get(p->packed, host->data, bytes, 1);
    dev->data = packed;
    if (packed)
        return LS_OK;
    LS_TRY(pack(be, host, &packed, err));
    dev->data = packed;
    if (cuda_shared_put(&p->packed, host->data, bytes, packed))
        return LS_OK;
    be->free(be, packed);
    return ls_fail(err, LS_ERR_MEMORY, "weights: out of memory");
}

static void mat_free(ls_backend *be, const ls_mat *dev) {
    mma_profile *p = profile_of(be);
    if (!ls_mma_has(dev->dtype))
        p->plain_mat_free(be, dev);
    else if (cuda_shared_drop(&p->packed, dev->data))
        be->free(be, (void *)dev->data);
}

/* The wait that launches which begin early count on (cuda_mma.h). */
static ls_status weights_done(ls_backend *be, ls_err *err) {
    const ls_status s = profile_of(be)->plain_weights_done(be, err);
    drop_plain(be);
    return s;
}

/* ---- launchers ------------------------------------------------------------------------------- */

/* Scratch is for so many rows. */
static ls_status check_linear(const ls_linear_args *a, ls_err *err) {
    LS_TRY(ls_check_linear(a, err));
    LS_REFUSE(ls_mma_has(a->w.dtype) && a->n_rows > LS_ROWS_MAX,
              "linear: %d rows, at most %d a pass", (int)a->n_rows, LS_ROWS_MAX);
    return LS_OK;
}

/* One row of x16 or z serves all of them. */
static ls_status check_together(const ls_linear_args *a, const ls_linear_args *b, ls_err *err) {
    LS_REFUSE(b->x != a->x || b->n_rows != a->n_rows || b->w.n_in != a->w.n_in,
              "linears: not of the same rows");
    return LS_OK;
}
/* Whether there is something to do, and it fits. */
static bool can_do(cuda_backend *cuda, const ls_linear_args *a, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        ls_err why;
        if (check_linear(&a[i], &why) != LS_OK || check_together(a, &a[i], &why) != LS_OK) {
            cuda_keep(cuda, &why);
            return false;
        }
    }
    return n > 0 && a->n_rows > 0;
}

static bool on_tensor_cores(const ls_linear_args *a) {
    return ls_mma_has(a->w.dtype);
}
/* Linears that share a launch: neighbours of one type. */
static int32_t run_of(const ls_linear_args *a, int32_t n) {
    int32_t run = 1;
    while (run < n && on_tensor_cores(a) && a[run].w.dtype == a->w.dtype)
        run++;
    return run;
}

/* What a linear leaves for the norm behind it; false: nothing. */
static bool leave_next(cuda_backend *cuda, const ls_linear_args *a, ls_mma_next *next) {
    mma_profile *p = (mma_profile *)cuda->profile_data;
    const int32_t dim = a->w.n_out;
    if (!a->next_w || a->n_rows > LS_MMA_FEW || ls_mma_x_bytes(dim, a->n_rows) > p->z_bytes ||
        ls_mma_squares_bytes(dim, a->n_rows) > p->squares_bytes)
        return false;
    *next = ls_mma_next{a->next_w,           a->next_dtype,  (uint16_t *)p->z,
                        (float *)p->squares, LS_MMA_LD(dim), (dim + 15) / 16};
    p->z_of = a->y;
    p->z_w = a->next_w;
    p->z_rows = a->n_rows;
    p->z_dim = dim;
    p->z_entry = cuda->entries;
    return true;
}

/* Here and below what was left for this entry is asked for before the first launch: what ieee does
 * is an entry of its own (and leaves x16 and z alone). */
static void linears(ls_backend *be, const ls_linear_args *a, int32_t n) {
    LS_CUDA_BEGIN(be, ls_check_linears(n, &why_));
    mma_profile *p = (mma_profile *)cuda->profile_data;
    if (!can_do(cuda, a, n))
        return;
    bool is_there = cuda->x16_of == a->x && cuda->x16_rows == a->n_rows &&
                    cuda->x16_dim == a->w.n_in && cuda->x16_entry + 1 == cuda->entries;
    for (int32_t i = 0, run; i < n; i += run) {
        run = run_of(a + i, n - i);
        if (!on_tensor_cores(a + i)) {
            p->plain_linear(be, a + i);
            continue;
        }
        if (!is_there && ls_mma_reads_x16(a + i, run, &p->linear_dev)) {
            answer(
                cuda,
                ls_mma_round(a->x, a->w.n_in, a->n_rows, cuda->x16, &p->linear_dev, cuda->stream),
                "round");
            is_there = true;
        }
        ls_mma_next next;
        const bool leaves = n == 1 && leave_next(cuda, a, &next);
        answer(cuda,
               ls_mma_linears(a + i, run, cuda->x16, NULL, leaves ? &next : NULL, p->scratch,
                              &p->linear_dev, cuda->stream),
               "linear");
    }
}

static void linear(ls_backend *be, const ls_linear_args *a) {
    if (on_tensor_cores(a))
        linears(be, a, 1);
    else
        profile_of(be)->plain_linear(be, a);
}

/* Whether a linear has left z and squares of the norm's row for this entry. */
static bool is_weighed(const cuda_backend *cuda, const ls_rmsnorm_args *norm) {
    const mma_profile *p = (const mma_profile *)cuda->profile_data;
    return p->z_of == norm->x && p->z_w == norm->w && p->z_rows == norm->n_rows &&
           p->z_dim == norm->dim && p->z_entry + 1 == cuda->entries;
}
static void weigh(cuda_backend *cuda, const ls_rmsnorm_args *norm) {
    const mma_profile *p = (const mma_profile *)cuda->profile_data;
    answer(cuda,
           ls_mma_weigh(norm, (uint16_t *)p->z, (float *)p->squares, &p->linear_dev, cuda->stream),
           "weigh");
}
static ls_mma_norm norm_ahead(const cuda_backend *cuda, const ls_rmsnorm_args *norm) {
    const mma_profile *p = (const mma_profile *)cuda->profile_data;
    return ls_mma_norm{(const float *)p->squares, norm->eps, norm->dim};
}

/* Linears of other weights read the norm as everywhere. */
static void norm_linears(ls_backend *be, const ls_rmsnorm_args *norm, const ls_linear_args *a,
                         int32_t n) {
    LS_CUDA_BEGIN(be, ls_check_norm_linears(norm, a, n, &why_));
    mma_profile *p = (mma_profile *)cuda->profile_data;
    if (!can_do(cuda, a, n))
        return;
    bool is_there = is_weighed(cuda, norm), is_normed = false;
    const ls_mma_norm ahead = norm_ahead(cuda, norm);
    for (int32_t i = 0, run; i < n; i += run) {
        run = run_of(a + i, n - i);
        if (!on_tensor_cores(a + i)) {
            if (!is_normed)
                be->rmsnorm(be, norm);
            is_normed = true;
            p->plain_linear(be, a + i);
            continue;
        }
        if (!is_there)
            weigh(cuda, norm);
        is_there = true;
        answer(cuda,
               ls_mma_linears(a + i, run, p->z, &ahead, NULL, p->scratch, &p->linear_dev,
                              cuda->stream),
               "linear");
    }
}

static void norm_gates(ls_backend *be, const ls_rmsnorm_args *norm, const ls_linear_args both[2],
                       const ls_silu_mul_args *g, int32_t gelu) {
    if (!ls_mma_gated_fits(both) || g->gate != both[0].y || g->up != both[1].y ||
        g->n_rows != both->n_rows || g->dim != both->w.n_out) {
        ls_norm_gates_apart(be, norm, both, g, gelu);
        return;
    }
    LS_CUDA_BEGIN(be, ls_check_norm_linears(norm, both, 2, &why_));
    mma_profile *p = (mma_profile *)cuda->profile_data;
    if (!can_do(cuda, both, 2))
        return;
    if (!is_weighed(cuda, norm))
        weigh(cuda, norm);
    const ls_mma_norm ahead = norm_ahead(cuda, norm);
    const ls_mma_gates gates = {gelu ? LS_MMA_GELU : LS_MMA_SILU, g->h,
                                cuda_round_beside(cuda, g->h, g->n_rows, g->dim),
                                LS_MMA_LD(g->dim)};
    answer(cuda, ls_mma_gated(both, p->z, &ahead, &gates, &p->linear_dev, cuda->stream), "gates");
}

/* rope and store: NULL where the rows have been placed. */
static void attend(cuda_backend *cuda, const ls_rope_args *rope, const ls_kv_store_args *store,
                   const ls_attn_args *a) {
    mma_profile *p = (mma_profile *)cuda->profile_data;
    ls_mma_attn_with with = {rope, store, NULL, p->attn_done, cuda->fault, cuda->claim_d};
    if (a->only == 0)
        with.x16 = cuda_round_beside(cuda, a->out, a->n_rows, a->n_heads * a->head_dim);
    answer(cuda, ls_mma_attn(a, &with, &p->attn_dev, cuda->stream), "attention");
}

static void attn(ls_backend *be, const ls_attn_args *a) {
    if (!ls_mma_attn_fits(a)) {
        profile_of(be)->plain_attn(be, a);
        return;
    }
    LS_CUDA_BEGIN(be, ls_check_attn(a, &why_));
    attend(cuda, NULL, NULL, a);
}

static void place_attn(ls_backend *be, const ls_rope_args *rope, const ls_kv_store_args *store,
                       const ls_attn_args *a) {
    if (!ls_mma_attn_places(a, rope, store)) {
        profile_of(be)->plain_place_attn(be, rope, store, a);
        return;
    }
    LS_CUDA_BEGIN(be, ls_check_place_attn(rope, store, a, &why_));
    attend(cuda, rope, store, a);
}

static void attn_launch(ls_backend *be, const ls_attn_args *a, ls_launch *out) {
    if (ls_mma_attn_fits(a))
        ls_mma_attn_launch(a, &profile_of(be)->attn_dev, out);
    else
        profile_of(be)->plain_attn_launch(be, a, out);
}

/* ---- install --------------------------------------------------------------------------------- */

static void profile_free(cuda_backend *cuda) {
    mma_profile *p = (mma_profile *)cuda->profile_data;
    cuda->be.free(&cuda->be, p->plain);
    cuda->be.free(&cuda->be, p->scratch);
    cuda->be.free(&cuda->be, cuda->x16);
    cuda->be.free(&cuda->be, p->z);
    cuda->be.free(&cuda->be, p->squares);
    cuda->be.free(&cuda->be, p->attn_done);
    free(p);
    cuda->profile_data = NULL;
}

/* The kernels' limits are the whole device's: other backends of the process share them. */
static void plan_with(mma_profile *p, int32_t units, int32_t block_bytes) {
    const int32_t taken = block_bytes + p->attn_dev.shared_reserved;
    p->linear_dev.n_sm = p->attn_dev.units = units;
    p->linear_dev.smem_block = p->attn_dev.shared_a_block = block_bytes;
    if (p->attn_dev.shared_a_unit > taken) /* as on every device: one such block fills it */
        p->attn_dev.shared_a_unit = taken;
}

ls_status ls_mma_install(cuda_backend *cuda, ls_err *err) {
    mma_profile *p = (mma_profile *)calloc(1, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ERR_MEMORY, "profile mma: out of memory");
    cuda->profile_data = p;
    cuda->profile_free = profile_free;
    LS_TRY(cuda_answer(ls_mma_device_get(&p->linear_dev), "profile mma", err));
    LS_TRY(cuda_answer(ls_mma_attn_prepare(&p->attn_dev), "profile mma", err));
    LS_TRY(cuda_answer(ls_cuda_rows_split(), "profile mma", err));
    LS_TRY(cuda_answer(ls_cuda_bodies_split(), "profile mma", err));
    p->attn_dev.overlap = p->attn_dev.overlap && cuda->overlap;
    plan_with(p, cuda->n_units, cuda->block_bytes);
    ls_backend *be = &cuda->be;
    void *done;
    LS_TRY(be->alloc(be, LS_MMA_ATTN_GROUPS * sizeof *p->attn_done, &done, err));
    p->attn_done = (int32_t *)done;
    LS_TRY(cuda_answer(
        cudaMemsetAsync(done, 0, LS_MMA_ATTN_GROUPS * sizeof *p->attn_done, cuda->stream),
        "profile mma", err));
    p->plain_mat = be->mat;
    p->plain_mat_free = be->mat_free;
    p->plain_linear = be->linear;
    p->plain_attn = be->attn;
    p->plain_place_attn = be->place_attn;
    p->plain_attn_launch = be->attn_launch;
    p->plain_weights_done = be->weights_done;
    /* the best of eight rules, for one row and for eight */
    be->chunk = (ls_chunk_rule){LS_CHUNK_DOUBLING, 128, 32};
    be->mat = mat;
    be->mat_free = mat_free;
    be->weights_done = weights_done;
    be->linear = linear;
    be->linears = linears;
    be->norm_linears = norm_linears;
    be->norm_gates = norm_gates;
    be->attn = attn;
    be->place_attn = place_attn;
    be->attn_launch = attn_launch;
    return LS_OK;
}
