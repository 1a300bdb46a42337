/* cuda_cublas.cu - profile `cublas`: the conventional engine, whose linears are cuBLAS products. It
 * exists to be compared with: which kernel cuBLAS takes may depend on the number of rows, on its
 * version and on the device, so nothing is promised of its bits.
 * Product     y[R, N] = x[R, K] W[N, K]^T (+ add), x rounded to the weights' type, sums in f32.
 * Library     opened at run time, so that a program starts where cuBLAS is not installed.
 * Memory      a workspace, and x rounded; both grow in `mat`, never while passes run. */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "cuda.h"

#define WORKSPACE_BYTES ((size_t)32 << 20)

typedef struct cublas_profile {
    void *library;
    cublasHandle_t handle;
    void *workspace, *x;
    size_t x_bytes;
    ls_status (*plain_mat)(ls_backend *, const ls_mat *, ls_mat *, ls_err *);
    void (*plain_linear)(ls_backend *, const ls_linear_args *); /* of packed weights */
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void *, const void *, cudaDataType, int, const void *,
                           cudaDataType, int, const void *, void *, cudaDataType, int,
                           cublasComputeType_t, cublasGemmAlgo_t);
} cublas_profile;

__global__ void ls_round_kernel(const float *x, uint16_t *to, size_t n, ls_dtype t) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = t == LS_BF16 ? ls_bf16_of_f32(x[i]) : ls_f16_of_f32(x[i]);
}

static void linear(ls_backend *be, const ls_linear_args *a) {
    LS_CUDA_BEGIN(be, ls_check_linear(a, &why_));
    cublas_profile *p = (cublas_profile *)cuda->profile_data;
    if (ls_dtype_block(a->w.dtype) > 1) {
        p->plain_linear(be, a);
        return;
    }
    ls_err why;
    const int N = a->w.n_out, K = a->w.n_in, R = a->n_rows;
    if (N == 0 || R == 0)
        return;
    const size_t n = (size_t)R * (size_t)K, y_bytes = (size_t)R * (size_t)N * sizeof(float);
    const void *x = a->x;
    cudaDataType type = CUDA_R_32F;
    if (a->w.dtype != LS_F32) {
        if (n * sizeof(uint16_t) > p->x_bytes) {
            ls_fail(&why, LS_ERR_SHAPE, "linear: %d rows of %d, at most %d rows a pass", R, K,
                    LS_ROWS_MAX);
            cuda_keep(cuda, &why);
            return;
        }
        const size_t blocks = (n + 255) / 256;
        ls_round_kernel<<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, cuda->stream>>>(
            a->x, (uint16_t *)p->x, n, a->w.dtype);
        cuda_launched(cuda, "round");
        x = p->x;
        type = a->w.dtype == LS_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    }
    const float one = 1.0f, beta = a->add ? 1.0f : 0.0f;
    if (a->add && a->add != a->y &&
        cudaMemcpyAsync(a->y, a->add, y_bytes, cudaMemcpyDeviceToDevice, cuda->stream) !=
            cudaSuccess) {
        cuda_launched(cuda, "linear: add");
        return;
    }
    const cublasStatus_t s =
        p->gemm(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, N, R, K, &one, a->w.data, type, K, x, type, K,
                &beta, a->y, CUDA_R_32F, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (s != CUBLAS_STATUS_SUCCESS) {
        ls_fail(&why, LS_ERR_DEVICE, "cuBLAS refused a product of %d rows with [%d, %d]: status %d",
                R, N, K, (int)s);
        cuda_keep(cuda, &why);
    }
}

static void linears(ls_backend *be, const ls_linear_args *a, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        linear(be, &a[i]);
}

static ls_status mat(ls_backend *be, const ls_mat *host, ls_mat *dev, ls_err *err) {
    cublas_profile *p = (cublas_profile *)cuda_of(be)->profile_data;
    const size_t need = (size_t)LS_ROWS_MAX * (size_t)host->n_in * sizeof(uint16_t);
    if (need > p->x_bytes) {
        void *grown;
        LS_TRY(be->alloc(be, need, &grown, err));
        const ls_status s = cuda_retire(cuda_of(be), p->x, err);
        if (s != LS_OK) {
            be->free(be, grown);
            return s;
        }
        p->x = grown;
        p->x_bytes = need;
    }
    return p->plain_mat(be, host, dev, err);
}

static void profile_free(cuda_backend *cuda) {
    cublas_profile *p = (cublas_profile *)cuda->profile_data;
    if (p->handle)
        p->destroy(p->handle);
    cuda->be.free(&cuda->be, p->x);
    cuda->be.free(&cuda->be, p->workspace);
    if (p->library)
        dlclose(p->library);
    free(p);
    cuda->profile_data = NULL;
}

/* Fills what is needed of the library; false when a name is missing. */
static bool find(cublas_profile *p, const char *name, void *field, size_t bytes) {
    void *at = dlsym(p->library, name);
    memcpy(field, &at, bytes);
    return at != NULL;
}
#define FIND(p, name, field) find(p, name, &(field), sizeof(field))

static ls_status open_library(cublas_profile *p, cuda_backend *cuda, ls_err *err) {
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    char name[32];
    snprintf(name, sizeof name, "libcublas.so.%d", CUDART_VERSION / 1000);
    p->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!p->library)
        p->library = dlopen("/usr/local/cuda/lib64/libcublas.so", RTLD_NOW | RTLD_LOCAL);
    if (!p->library)
        return ls_fail(err, LS_ERR_INPUT,
                       "profile cublas: %s was not found: install cuBLAS or name its folder in "
                       "LD_LIBRARY_PATH",
                       name);
    if (!FIND(p, "cublasCreate_v2", create) || !FIND(p, "cublasSetStream_v2", set_stream) ||
        !FIND(p, "cublasSetWorkspace_v2", set_workspace) ||
        !FIND(p, "cublasDestroy_v2", p->destroy) || !FIND(p, "cublasGemmEx", p->gemm))
        return ls_fail(err, LS_ERR_INPUT, "profile cublas: %s lacks a function this needs", name);
    if (create(&p->handle) != CUBLAS_STATUS_SUCCESS)
        return ls_fail(err, LS_ERR_DEVICE, "profile cublas: cuBLAS could not be started");
    LS_TRY(cuda->be.alloc(&cuda->be, WORKSPACE_BYTES, &p->workspace, err));
    if (set_stream(p->handle, cuda->stream) != CUBLAS_STATUS_SUCCESS ||
        set_workspace(p->handle, p->workspace, WORKSPACE_BYTES) != CUBLAS_STATUS_SUCCESS)
        return ls_fail(err, LS_ERR_DEVICE, "profile cublas: cuBLAS did not take its workspace");
    return LS_OK;
}

ls_status ls_cublas_install(cuda_backend *cuda, ls_err *err) {
    cublas_profile *p = (cublas_profile *)calloc(1, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ERR_MEMORY, "profile cublas: out of memory");
    cuda->profile_data = p;
    cuda->profile_free = profile_free;
    LS_TRY(open_library(p, cuda, err));
    p->plain_mat = cuda->be.mat;
    p->plain_linear = cuda->be.linear;
    cuda->be.profile = "cublas";
    cuda->be.linear = linear;
    cuda->be.linears = linears;
    cuda->be.mat = mat;
    return LS_OK;
}
