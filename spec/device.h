/* device.h - which machine runs the passes: "cpu", "cuda" or "cuda:N", and the numeric profile.
 * Errors   LS_ERR_INPUT: an unknown name; a profile the device does not have; whatever creating the
 *          backend finds wrong (no device, a build without CUDA).
 * Memory   a backend belongs to who opened it (ls_backend_destroy). */
#ifndef LS_DEVICE_H
#define LS_DEVICE_H

#include "backend.h"

#define LS_DEVICE_CPU (-1)

typedef struct ls_device_args {
    int32_t device;     /* LS_DEVICE_CPU, or as cudaSetDevice counts */
    int profile;        /* ls_profile */
    ls_cpu_options cpu; /* where the device is the CPU */
} ls_device_args;

/* Reads "cpu", "cuda", "cuda:N". */
ls_status ls_device_parse(const char *text, int32_t *device, ls_err *err);
ls_status ls_device_open(const ls_device_args *args, ls_backend **out, ls_err *err);

#endif
