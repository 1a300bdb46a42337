#include "device.h"

#include <stdlib.h>
#include <string.h>

ls_status ls_device_parse(const char *text, int32_t *device, ls_err *err) {
    *device = LS_DEVICE_CPU;
    if (strcmp(text, "cpu") == 0)
        return LS_OK;
    *device = 0;
    if (strcmp(text, "cuda") == 0)
        return LS_OK;
    char *end = NULL;
    const long n = strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9'
                       ? strtol(text + 5, &end, 10)
                       : -1;
    char shown[96];
    if (n < 0 || n > 1023 || *end)
        return ls_fail(err, LS_ERR_INPUT, "device %s: it must be cpu, cuda or cuda:N",
                       ls_err_text(shown, sizeof shown, text, strlen(text)));
    *device = (int32_t)n;
    return LS_OK;
}

ls_status ls_device_open(const ls_device_args *args, ls_backend **out, ls_err *err) {
    if (args->device != LS_DEVICE_CPU)
        return ls_cuda_create(
            (ls_cuda_options){.device = args->device, .profile = (ls_profile)args->profile}, out,
            err);
    if (args->profile != LS_PROFILE_IEEE)
        return ls_fail(err, LS_ERR_INPUT,
                       "the CPU has the profile ieee only: take --device cuda for the others");
    return ls_cpu_create(args->cpu, out, err);
}
