/* cuda.cu - the CUDA backend: create, failures, stamps and graphs. */
#include "cuda.h"
#include "cuda_mma.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call, what) LS_TRY(cuda_answer((call), (what), err))
#define LS_CUDA_CAPABILITY 80 /* the oldest that is built for */

struct ls_graph {
    cudaGraphExec_t exec;
};

/* ---- failures -------------------------------------------------------------------------------- */

ls_status cuda_answer(cudaError_t answer, const char *what, ls_err *err) {
    if (answer == cudaSuccess)
        return LS_OK;
    cudaGetLastError();
    return ls_fail(err, answer == cudaErrorMemoryAllocation ? LS_ERR_MEMORY : LS_ERR_DEVICE,
                   "cuda: %s: %s (%s)", what, cudaGetErrorString(answer), cudaGetErrorName(answer));
}

ls_status cuda_enter(cuda_backend *cuda, ls_err *err) {
    cuda->entries++;
    return cuda_answer(cudaSetDevice(cuda->device), "device", err);
}

/* Of more rows the linear makes its own copy, if it reads one. */
uint16_t *cuda_round_beside(cuda_backend *cuda, const float *of, int32_t n_rows, int32_t dim) {
    const size_t bytes = (size_t)LS_MMA_LD(dim) * sizeof(uint16_t) * (size_t)n_rows;
    if (!cuda->x16 || n_rows > LS_MMA_FEW || bytes > cuda->x16_bytes)
        return NULL;
    cuda->x16_of = of;
    cuda->x16_rows = n_rows;
    cuda->x16_dim = dim;
    cuda->x16_entry = cuda->entries;
    return cuda->x16;
}

void cuda_keep(cuda_backend *cuda, const ls_err *why) {
    if (cuda->err.code == LS_OK)
        cuda->err = *why;
}

void cuda_launched(cuda_backend *cuda, const char *what) {
    ls_err why;
    if (cuda_answer(cudaGetLastError(), what, &why) != LS_OK)
        cuda_keep(cuda, &why);
}

ls_status cuda_take_error(cuda_backend *cuda, ls_err *err) {
    const volatile cuda_fault *f = cuda->fault;
    if (f->set) {
        ls_err why;
        ls_attn_args a;
        memset(&a, 0, sizeof a);
        a.max_chunks = f->max_chunks;
        if (ls_check_chunks(&a, f->row, f->length, f->chunks, &why) != LS_OK)
            cuda_keep(cuda, &why);
        cuda->fault->set = 0;
        if (cuda_answer(cudaMemsetAsync(cuda->claim_d, 0, sizeof *cuda->claim_d, cuda->stream),
                        "fault", &why) != LS_OK)
            cuda_keep(cuda, &why);
    }
    const ls_status status = cuda->err.code;
    if (status != LS_OK && err)
        *err = cuda->err;
    memset(&cuda->err, 0, sizeof cuda->err);
    return status;
}

static ls_status cuda_sync(ls_backend *be, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    ls_err why;
    if (cuda->recording)
        return ls_fail(err, LS_ERR_STATE, "cuda: a wait while launches are recorded");
    if (cuda_enter(cuda, &why) != LS_OK ||
        cuda_answer(cudaStreamSynchronize(cuda->stream), "a launch before a wait", &why) != LS_OK)
        cuda_keep(cuda, &why);
    return cuda_take_error(cuda, err);
}

static ls_status cuda_status(ls_backend *be, ls_err *err) {
    return cuda_take_error(cuda_of(be), err);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A stamp inside a recording would be a node of the graph and no time: left out. */
static void cuda_stamp(ls_backend *be, int32_t i) {
    cuda_backend *cuda = cuda_of(be);
    ls_err why;
    if (i < 0 || i >= LS_STAMPS || cuda->recording)
        return;
    cuda->stamped[i] = 0;
    if (cuda_enter(cuda, &why) != LS_OK ||
        cuda_answer(cudaEventRecord(cuda->stamp[i], cuda->stream), "stamp", &why) != LS_OK)
        cuda_keep(cuda, &why);
    else
        cuda->stamped[i] = 1;
}

static double cuda_between(ls_backend *be, int32_t i, int32_t j) {
    cuda_backend *cuda = cuda_of(be);
    ls_err why;
    float ms = 0;
    if (i < 0 || i >= LS_STAMPS || j < 0 || j >= LS_STAMPS || !cuda->stamped[i] ||
        !cuda->stamped[j])
        return 0;
    if (cuda_enter(cuda, &why) != LS_OK ||
        cuda_answer(cudaEventElapsedTime(&ms, cuda->stamp[i], cuda->stamp[j]), "stamps", &why) !=
            LS_OK) {
        cuda_keep(cuda, &why);
        return 0;
    }
    return (double)ms * 1e3;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static ls_status cuda_record(ls_backend *be, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    if (cuda->recording)
        return ls_fail(err, LS_ERR_STATE, "cuda: launches are recorded already");
    LS_TRY(cuda_enter(cuda, err));
    TRY(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "record");
    cuda->recording = 1;
    return LS_OK;
}

static ls_status cuda_record_end(ls_backend *be, ls_graph **out, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    if (!cuda->recording)
        return ls_fail(err, LS_ERR_STATE, "cuda: no launches are recorded");
    cuda->recording = 0;
    LS_TRY(cuda_enter(cuda, err));
    cudaGraph_t launches = NULL;
    TRY(cudaStreamEndCapture(cuda->stream, &launches), "record");
    cudaGraphExec_t exec = NULL;
    const ls_status status =
        cuda_answer(cudaGraphInstantiateWithFlags(&exec, launches, 0), "record", err);
    cudaGraphDestroy(launches);
    LS_TRY(status);
    ls_graph *graph = (ls_graph *)malloc(sizeof *graph);
    if (!graph) {
        cudaGraphExecDestroy(exec);
        return ls_fail(err, LS_ERR_MEMORY, "no memory for a graph");
    }
    graph->exec = exec;
    cuda->recorded = 1;
    *out = graph;
    return LS_OK;
}

ls_status cuda_retire(cuda_backend *cuda, void *p, ls_err *err) {
    if (!p)
        return LS_OK;
    if (cuda->recorded)
        return cuda_shared_put(&cuda->retired, NULL, 0, p)
                   ? LS_OK
                   : ls_fail(err, LS_ERR_MEMORY, "no memory to replace scratch");
    cuda->be.free(&cuda->be, p);
    return LS_OK;
}

static ls_status cuda_replay(ls_backend *be, ls_graph *graph, ls_err *err) {
    cuda_backend *cuda = cuda_of(be);
    if (cuda->recording)
        return ls_fail(err, LS_ERR_STATE, "cuda: a replay while launches are recorded");
    LS_TRY(cuda_enter(cuda, err));
    return cuda_answer(cudaGraphLaunch(graph->exec, cuda->stream), "replay", err);
}

static void cuda_graph_free(ls_backend *be, ls_graph *graph) {
    cuda_backend *cuda = cuda_of(be);
    ls_err why;
    if (!graph)
        return;
    /* not while it runs */
    if (cuda_enter(cuda, &why) != LS_OK ||
        (!cuda->recording &&
         cuda_answer(cudaStreamSynchronize(cuda->stream), "a launch before a graph was given back",
                     &why) != LS_OK) ||
        cuda_answer(cudaGraphExecDestroy(graph->exec), "graph given back", &why) != LS_OK)
        cuda_keep(cuda, &why);
    free(graph);
}

/* ---- create ---------------------------------------------------------------------------------- */

/* Nothing is left to report to: results are not asked for. */
static void cuda_destroy(ls_backend *be) {
    cuda_backend *cuda = cuda_of(be);
    cudaSetDevice(cuda->device);
    if (cuda->recording) {
        cudaGraph_t launches = NULL;
        cudaStreamEndCapture(cuda->stream, &launches);
        if (launches)
            cudaGraphDestroy(launches);
    }
    if (cuda->stream)
        cudaStreamSynchronize(cuda->stream);
    if (cuda->profile_free)
        cuda->profile_free(cuda);
    for (cuda_shared *r = cuda->retired, *next; r; r = next) {
        next = r->next;
        cudaFree(r->device);
        free(r);
    }
    ls_cuda_memory_destroy(cuda);
    for (int i = 0; i < LS_STAMPS; i++)
        if (cuda->stamp[i])
            cudaEventDestroy(cuda->stamp[i]);
    if (cuda->fault)
        cudaFreeHost(cuda->fault);
    if (cuda->claim_d)
        cudaFree(cuda->claim_d);
    if (cuda->stream)
        cudaStreamDestroy(cuda->stream);
    cudaGetLastError();
    free(cuda);
}

/* One line for each thing that can be missing, the plainest first. */
static ls_status find_device(int device, ls_err *err) {
    int driver = 0, runtime = 0, n = 0, major = 0, minor = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        cudaGetLastError();
        return ls_fail(err, LS_ERR_INPUT,
                       "no NVIDIA driver on this machine: install one, or use the device cpu");
    }
    TRY(cudaRuntimeGetVersion(&runtime), "version");
    const cudaError_t answer = cudaGetDeviceCount(&n);
    if (answer == cudaErrorInsufficientDriver) {
        cudaGetLastError();
        return ls_fail(err, LS_ERR_INPUT,
                       "the NVIDIA driver is for CUDA %d.%d, this build needs %d.%d: update the "
                       "driver, build with an older toolkit, or use the device cpu",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (answer == cudaErrorNoDevice || (answer == cudaSuccess && n == 0)) {
        cudaGetLastError();
        return ls_fail(err, LS_ERR_INPUT,
                       "no NVIDIA device is visible (CUDA_VISIBLE_DEVICES may hide it): use the "
                       "device cpu");
    }
    if (answer != cudaSuccess) {
        cudaGetLastError();
        return ls_fail(err, LS_ERR_INPUT, "the NVIDIA devices do not answer: %s (%s)",
                       cudaGetErrorString(answer), cudaGetErrorName(answer));
    }
    if (device < 0 || device >= n)
        return ls_fail(err, LS_ERR_INPUT, "no CUDA device %d: this machine has 0 to %d", device,
                       n - 1);
    TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
    TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
    if (10 * major + minor < LS_CUDA_CAPABILITY)
        return ls_fail(err, LS_ERR_INPUT,
                       "CUDA device %d has compute capability %d.%d, %d.%d is the least: use the "
                       "device cpu",
                       device, major, minor, LS_CUDA_CAPABILITY / 10, LS_CUDA_CAPABILITY % 10);
    return LS_OK;
}

static int32_t at_most(int32_t wanted, int32_t there) {
    return wanted > 0 && wanted < there ? wanted : there;
}

static ls_status open_device(cuda_backend *cuda, const ls_cuda_options *o, ls_err *err) {
    cudaDeviceProp prop;
    LS_TRY(cuda_enter(cuda, err));
    TRY(cudaGetDeviceProperties(&prop, cuda->device), "device");
    cuda->n_units = at_most(o->units, prop.multiProcessorCount);
    cuda->block_bytes = at_most(o->block_bytes, (int32_t)prop.sharedMemPerBlockOptin);
    cuda->threads_a_unit = prop.maxThreadsPerMultiProcessor;
    snprintf(cuda->be.device, sizeof cuda->be.device, "%.70s, compute %d.%d", prop.name, prop.major,
             prop.minor);
    const int capability = 10 * prop.major + prop.minor;
    int code = 0, runtime = 0, driver = 0;
    const cudaError_t probe = ls_cuda_bodies_probe(&code);
    if (probe == cudaErrorNoKernelImageForDevice || probe == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        return ls_fail(err, LS_ERR_INPUT,
                       "this build has no code for compute capability %d.%d: build with "
                       "-DCMAKE_CUDA_ARCHITECTURES=%d",
                       prop.major, prop.minor, capability);
    }
    TRY(probe, "kernels");
    /* PTX of an older capability lacks what is compiled for newer ones only */
    cuda->capability = code < capability ? code : capability;
    TRY(cudaRuntimeGetVersion(&runtime), "runtime");
    TRY(cudaDriverGetVersion(&driver), "driver");
    /* graphs keep such launches as what they are from CUDA 12.3 on */
    cuda->overlap = cuda->capability >= 90 && runtime >= 12030 && driver >= 12030;
    TRY(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "stream");
    for (int i = 0; i < LS_STAMPS; i++)
        TRY(cudaEventCreate(&cuda->stamp[i]), "event");
    void *p = NULL;
    TRY(cudaMallocHost(&p, sizeof *cuda->fault), "pinned memory");
    cuda->fault = (cuda_fault *)p;
    memset(cuda->fault, 0, sizeof *cuda->fault);
    TRY(cudaMalloc(&p, 17 * sizeof *cuda->claim_d), "memory");
    cuda->claim_d = (int32_t *)p;
    TRY(cudaMemsetAsync(cuda->claim_d, 0, sizeof *cuda->claim_d, cuda->stream), "memory");
    return ls_cuda_memory_create(cuda, err);
}

static ls_status install_profile(cuda_backend *cuda, ls_profile profile, ls_err *err) {
    (void)cuda;
    switch (profile) {
    case LS_PROFILE_IEEE:
        return LS_OK;
    case LS_PROFILE_MMA:
#ifdef LS_HAVE_MMA
        cuda->be.profile = "mma";
        return ls_mma_install(cuda, err);
#else
        return ls_fail(err, LS_ERR_INPUT, "profile mma is not in this build: use ieee");
#endif
    case LS_PROFILE_CUBLAS:
#ifdef LS_HAVE_CUBLAS
        cuda->be.profile = "cublas";
        return ls_cublas_install(cuda, err);
#else
        return ls_fail(err, LS_ERR_INPUT, "profile cublas is not in this build: use ieee");
#endif
    }
    return ls_fail(err, LS_ERR_INPUT, "profile %d is unknown: use ieee, mma or cublas",
                   (int)profile);
}

ls_status ls_cuda_create(ls_cuda_options options, ls_backend **out, ls_err *err) {
    LS_TRY(find_device(options.device, err));
    cuda_backend *cuda = (cuda_backend *)calloc(1, sizeof *cuda);
    if (!cuda)
        return ls_fail(err, LS_ERR_MEMORY, "no memory for a backend");
    ls_backend *be = &cuda->be;
    cuda->device = options.device;
    be->name = "cuda";
    be->number = options.device;
    be->profile = "ieee";
    be->chunk = (ls_chunk_rule){LS_CHUNK_EVEN, 32, 64};
    be->sync = cuda_sync;
    be->weights_done = cuda_sync;
    be->status = cuda_status;
    be->destroy = cuda_destroy;
    be->stamp = cuda_stamp;
    be->between = cuda_between;
    be->record = cuda_record;
    be->record_end = cuda_record_end;
    be->replay = cuda_replay;
    be->graph_free = cuda_graph_free;
    ls_cuda_memory_install(cuda);
    ls_cuda_rows_install(cuda);
    ls_cuda_bodies_install(cuda);
    ls_cuda_stats_install(cuda);
    ls_cuda_linear_install(cuda);
    ls_cuda_read_install(cuda);
    ls_status status = open_device(cuda, &options, err);
    if (status == LS_OK)
        status = install_profile(cuda, options.profile, err);
    if (status != LS_OK) {
        cuda_destroy(be);
        return status;
    }
    *out = be;
    return LS_OK;
}
