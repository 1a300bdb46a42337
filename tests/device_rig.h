/* device_rig.h - which device the tests run on, from the environment, the same for kernel and spec
 * tests.
 *   LS_TEST_DEVICE   cpu (default), cuda (profile ieee: the bits of the CPU), cuda-mma, or
 *                    cuda-mma-small: as on a device of 7 multiprocessors and 99 KiB a block
 *   LS_TEST_THIN     set: grids are thinned, the cases stay (instrumented builds always are)
 *   LS_TEST_EAGER    set: engines of rig.h launch every pass anew, where a tool cannot look into
 *                    recorded launches
 * Errors      a device that is not there ends the program with status 77, which CTest shows as
 *             skipped; an unknown name ends it with status 2. */
#ifndef LS_TEST_DEVICE_RIG_H
#define LS_TEST_DEVICE_RIG_H

#include <stdbool.h>

#include "backend.h"

typedef enum rig_device { RIG_CPU = 0, RIG_CUDA, RIG_MMA, RIG_MMA_SMALL } rig_device;

rig_device rig_device_chosen(void);
const char *rig_device_name(rig_device d);
static inline bool rig_on_gpu(void) {
    return rig_device_chosen() != RIG_CPU;
}
/* The device under test where that is a GPU, else `otherwise`: for what only a GPU can show. */
rig_device rig_device_gpu(rig_device otherwise);
/* Same bits as plain C on the CPU? */
static inline bool rig_on_ieee(void) {
    return rig_device_chosen() < RIG_MMA;
}
/* A backend of this device; `cpu` says how on the CPU. The test fails, or is skipped as above. */
ls_backend *rig_backend_on(rig_device d, ls_cpu_options cpu);
/* Is there a GPU that this build can use? *why: the backend's own words otherwise. */
bool rig_device_there(rig_device d, ls_err *why);
/* Prints one line and ends the program as skipped unless there is one. */
void rig_device_need(rig_device d);

bool rig_thin(void);
#define LS_THIN (rig_thin() ? 1 : 0)
bool rig_eager(void);

#endif
