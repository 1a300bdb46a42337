/* clock.h - a monotonic clock in microseconds, for records and benchmarks; never for decisions. */
#ifndef LS_CLOCK_H
#define LS_CLOCK_H

#include <time.h>

static inline double ls_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

#endif
