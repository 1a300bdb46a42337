#include "device_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SKIPPED 77

static const char *const names[] = {"cpu", "cuda", "cuda-mma", "cuda-mma-small"};
#define N_DEVICES ((int)(sizeof names / sizeof *names))

rig_device rig_device_chosen(void) {
    static int chosen = -1;
    if (chosen >= 0)
        return (rig_device)chosen;
    const char *s = getenv("LS_TEST_DEVICE");
    for (int i = 0; i < N_DEVICES; i++)
        if (!s || !*s || strcmp(s, names[i]) == 0)
            return (rig_device)(chosen = i);
    fprintf(stderr, "LS_TEST_DEVICE=%s is unknown: use cpu, cuda, cuda-mma or cuda-mma-small\n", s);
    exit(2);
}

rig_device rig_device_gpu(rig_device otherwise) {
    return rig_on_gpu() ? rig_device_chosen() : otherwise;
}

const char *rig_device_name(rig_device d) {
    return names[d];
}

static ls_status try_open(rig_device d, ls_cpu_options cpu, ls_backend **be, ls_err *err) {
    if (d == RIG_CPU)
        return ls_cpu_create(cpu, be, err);
    ls_cuda_options o = {.profile = d == RIG_CUDA ? LS_PROFILE_IEEE : LS_PROFILE_MMA};
    if (d == RIG_MMA_SMALL)
        o.units = 7, o.block_bytes = 99 << 10;
    return ls_cuda_create(o, be, err);
}

bool rig_device_there(rig_device d, ls_err *why) {
    ls_backend *be = NULL;
    if (try_open(d, (ls_cpu_options){0}, &be, why) != LS_OK)
        return false;
    ls_backend_destroy(be);
    return true;
}

void rig_device_need(rig_device d) {
    ls_err why = {0};
    if (rig_device_there(d, &why))
        return;
    printf("skipped on %s: %s\n", names[d], why.msg);
    exit(SKIPPED);
}

ls_backend *rig_backend_on(rig_device d, ls_cpu_options cpu) {
    ls_backend *be = NULL;
    ls_err err = {0};
    const ls_status s = try_open(d, cpu, &be, &err);
    if (s == LS_OK)
        return be;
    if (d == RIG_CPU || s != LS_ERR_INPUT)
        fail_msg("%s: %s", names[d], err.msg);
    printf("skipped on %s: %s\n", names[d], err.msg);
    exit(SKIPPED);
}

static bool is_set(const char *name) {
    const char *s = getenv(name);
    return s && *s && strcmp(s, "0") != 0;
}

/* Instrumented code is some twenty times slower. */
bool rig_thin(void) {
#ifdef __SANITIZE_ADDRESS__
    return true;
#else
    return is_set("LS_TEST_THIN");
#endif
}

bool rig_eager(void) {
    return is_set("LS_TEST_EAGER");
}
