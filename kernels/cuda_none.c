/* cuda_none.c - ls_cuda_create of a build without the CUDA backend. */
#include "backend.h"

ls_status ls_cuda_create(ls_cuda_options options, ls_backend **out, ls_err *err) {
    (void)options;
    (void)out;
    return ls_fail(
        err, LS_ERR_INPUT,
        "this build has no CUDA backend: build with cmake --preset cuda (needs nvcc), or "
        "use the device cpu");
}
