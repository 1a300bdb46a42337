/* cpu_read.h - the plain read: every byte of some spans once, as fast as the processor takes them.
 * What a pass is measured against. Reads in blocks of 256 KiB, each thread a contiguous range of
 * blocks; allocates nothing. */
#ifndef LS_CPU_READ_H
#define LS_CPU_READ_H

#include "backend.h"

void ls_read_spans(const ls_span *span, int32_t n, int n_threads);

#endif
