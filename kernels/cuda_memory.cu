/* cuda_memory.cu - device memory, and copies that keep the order of launches.
 * Upload      small: through a ring of pinned memory, and returns at once; a part of the ring is
 *             used again when the copies out of it are done. Large: through LS_STAGES pinned
 *             buffers in turn, over the end of one upload into the next, so that several threads
 *             fill some (host_copy.h) while the device copies others, or packs what it was brought.
 * Download    through the first two of these buffers; waits. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

#include "host_copy.h"

#define TRY(call, what) LS_TRY(cuda_answer((call), (what), err))

static ls_status not_recording(cuda_backend *cuda, const char *what, ls_err *err) {
    if (cuda->recording)
        return ls_fail(err, LS_ERR_STATE, "cuda: %s while launches are recorded", what);
    return LS_OK;
}

static ls_status cuda_alloc(ls_backend *be, size_t bytes, void **out, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    LS_TRY(not_recording(cuda, "an allocation", err));
    LS_TRY(cuda_enter(cuda, err));
    void *p = NULL;
    const size_t size = bytes ? bytes : 1;
    const cudaError_t answer = cudaMalloc(&p, size);
    if (answer == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        cudaGetLastError();
        TRY(cudaMemGetInfo(&available, &total), "memory");
        return ls_fail(err, LS_ERR_MEMORY,
                       "no device memory for %.1f MiB: %.1f of %.1f MiB are free: use a shorter "
                       "context, a smaller model or another profile",
                       (double)bytes / 1048576.0, (double)available / 1048576.0,
                       (double)total / 1048576.0);
    }
    TRY(answer, "allocation");
#ifdef LS_POISON
    /* NaN in every float type, -1 in integers */
    const ls_status filled =
        cuda_answer(cudaMemsetAsync(p, 0xff, size, cuda->stream), "allocation", err);
    if (filled != LS_OK) {
        cudaFree(p);
        return filled;
    }
#endif
    *out = p;
    return LS_OK;
}

static void cuda_free(ls_backend *be, void *p) {
    cuda_backend *cuda = cuda_of(be);
    ls_err why;
    if (!p)
        return;
    if (not_recording(cuda, "memory given back", &why) != LS_OK ||
        cuda_enter(cuda, &why) != LS_OK ||
        cuda_answer(cudaFree(p), "memory given back", &why) != LS_OK)
        cuda_keep(cuda, &why);
}

/* ---- pinned memory --------------------------------------------------------------------------- */

ls_status ls_cuda_memory_create(cuda_backend *cuda, ls_err *err) {
    void *p = NULL;
    TRY(cudaMallocHost(&p, LS_RING_PART * LS_RING_PARTS), "pinned memory");
    cuda->ring = (char *)p;
    for (int i = 0; i < LS_RING_PARTS; i++)
        TRY(cudaEventCreateWithFlags(&cuda->ring_done[i], cudaEventDisableTiming), "event");
    return LS_OK;
}

void ls_cuda_memory_destroy(cuda_backend *cuda) {
    if (cuda->ring)
        cudaFreeHost(cuda->ring);
    for (int i = 0; i < LS_RING_PARTS; i++)
        if (cuda->ring_done[i])
            cudaEventDestroy(cuda->ring_done[i]);
    for (int i = 0; i < LS_STAGES; i++) {
        if (cuda->stage[i])
            cudaFreeHost(cuda->stage[i]);
        if (cuda->stage_done[i])
            cudaEventDestroy(cuda->stage_done[i]);
    }
}

/* The buffers are there; a copy may still be under way in each, until its event. */
static ls_status stage_ready(cuda_backend *cuda, ls_err *err) {
    for (int i = 0; i < LS_STAGES; i++) {
        void *p = NULL;
        if (!cuda->stage_done[i])
            TRY(cudaEventCreateWithFlags(&cuda->stage_done[i], cudaEventDisableTiming), "event");
        if (!cuda->stage[i]) {
            TRY(cudaMallocHost(&p, LS_STAGE_BYTES), "pinned memory");
            cuda->stage[i] = (char *)p;
        }
    }
    return LS_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static ls_status upload_small(cuda_backend *cuda, void *dst, const void *src, size_t bytes,
                              ls_err *err) {
    if (cuda->ring_at + bytes > LS_RING_PART) {
        const int left = cuda->ring_part, next = (left + 1) % LS_RING_PARTS;
        TRY(cudaEventRecord(cuda->ring_done[left], cuda->stream), "upload");
        cuda->ring_used[left] = 1;
        if (cuda->ring_used[next])
            TRY(cudaEventSynchronize(cuda->ring_done[next]), "upload");
        cuda->ring_part = next;
        cuda->ring_at = 0;
    }
    char *at = cuda->ring + (size_t)cuda->ring_part * LS_RING_PART + cuda->ring_at;
    memcpy(at, src, bytes);
    TRY(cudaMemcpyAsync(dst, at, bytes, cudaMemcpyHostToDevice, cuda->stream), "upload");
    cuda->ring_at += (bytes + 15) / 16 * 16;
    return LS_OK;
}

static ls_status cuda_upload(ls_backend *be, void *dst, const void *src, size_t bytes,
                             ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    LS_TRY(not_recording(cuda, "an upload", err));
    LS_TRY(cuda_enter(cuda, err));
    if (bytes == 0)
        return LS_OK;
    if (bytes <= LS_RING_PART)
        return upload_small(cuda, dst, src, bytes, err);
    LS_TRY(stage_ready(cuda, err));
    for (size_t done = 0; done < bytes;) {
        const size_t n = bytes - done < LS_STAGE_BYTES ? bytes - done : LS_STAGE_BYTES;
        const int i = cuda->stage_at;
        cuda->stage_at = (i + 1) % LS_STAGES;
        TRY(cudaEventSynchronize(cuda->stage_done[i]), "upload"); /* at once if never recorded */
        ls_host_copy(cuda->stage[i], (const char *)src + done, n);
        TRY(cudaMemcpyAsync((char *)dst + done, cuda->stage[i], n, cudaMemcpyHostToDevice,
                            cuda->stream),
            "upload");
        TRY(cudaEventRecord(cuda->stage_done[i], cuda->stream), "upload");
        done += n;
    }
    return LS_OK;
}

static ls_status download_part(cuda_backend *cuda, int i, const char *src, size_t n, ls_err *err) {
    TRY(cudaMemcpyAsync(cuda->stage[i], src, n, cudaMemcpyDeviceToHost, cuda->stream), "download");
    TRY(cudaEventRecord(cuda->stage_done[i], cuda->stream), "download");
    return LS_OK;
}

static ls_status cuda_download(ls_backend *be, void *dst, const void *src, size_t bytes,
                               ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    LS_TRY(not_recording(cuda, "a download", err));
    LS_TRY(cuda_enter(cuda, err));
    LS_TRY(stage_ready(cuda, err));
    size_t asked = bytes < LS_STAGE_BYTES ? bytes : LS_STAGE_BYTES;
    if (asked)
        LS_TRY(download_part(cuda, 0, (const char *)src, asked, err));
    TRY(asked ? cudaEventSynchronize(cuda->stage_done[0]) : cudaStreamSynchronize(cuda->stream),
        "a launch before a download");
    LS_TRY(cuda_take_error(cuda, err));
    size_t done = 0;
    for (int i = 0; done < bytes; i ^= 1) { /* part i is here; the next one is asked for first */
        const size_t here = asked - done;
        const size_t more = bytes - asked < LS_STAGE_BYTES ? bytes - asked : LS_STAGE_BYTES;
        if (more)
            LS_TRY(download_part(cuda, i ^ 1, (const char *)src + asked, more, err));
        memcpy((char *)dst + done, cuda->stage[i], here);
        done += here;
        asked += more;
        if (more)
            TRY(cudaEventSynchronize(cuda->stage_done[i ^ 1]), "download");
    }
    return LS_OK;
}

static ls_status cuda_copy(ls_backend *be, void *dst, const void *src, size_t bytes, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    LS_TRY(cuda_enter(cuda, err));
    if (bytes)
        TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, cuda->stream), "copy");
    return LS_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

static ls_status cuda_weights(ls_backend *be, const void *host, size_t bytes, const void **out,
                              ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    void *p = cuda_shared_get(cuda->weights, host, bytes, 0);
    *out = p;
    if (p)
        return LS_OK;
    LS_TRY(cuda_alloc(be, bytes, &p, err));
    ls_status status = cuda_upload(be, p, host, bytes, err);
    if (status == LS_OK && !cuda_shared_put(&cuda->weights, host, bytes, p))
        status = ls_fail(err, LS_ERR_MEMORY, "weights: out of memory");
    if (status != LS_OK)
        cuda_free(be, p);
    else
        *out = p;
    return status;
}

static void cuda_weights_free(ls_backend *be, const void *w) {
    if (w && cuda_shared_drop(&cuda_of(be)->weights, w))
        cuda_free(be, (void *)w);
}

/* ieee reads weights as the file has them */
static ls_status cuda_mat(ls_backend *be, const ls_mat *host, ls_mat *dev, ls_err *err) {
    const void *data = NULL;
    LS_TRY(ls_check_mat(host, err));
    LS_TRY(cuda_weights(be, host->data,
                        (size_t)host->n_out * ls_dtype_span(host->dtype, (size_t)host->n_in), &data,
                        err));
    *dev = *host;
    dev->data = data;
    return LS_OK;
}

static void cuda_mat_free(ls_backend *be, const ls_mat *dev) {
    cuda_weights_free(be, dev->data);
}

void ls_cuda_memory_install(cuda_backend *cuda) {
    ls_backend *be = &cuda->be;
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->upload = cuda_upload;
    be->download = cuda_download;
    be->copy = cuda_copy;
    be->weights = cuda_weights;
    be->weights_free = cuda_weights_free;
    be->mat = cuda_mat;
    be->mat_free = cuda_mat_free;
}
