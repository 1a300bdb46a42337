/* host_copy.h - memcpy by several threads: one alone fills memory slower than a PCIe link empties
 * it, and takes the page faults of a mapped file one after another.
 * Pieces    of 512 KiB, taken in turn by OpenMP's threads; few bytes are copied by the caller
 *           alone. A file is read as its pages are touched: asking for them ahead (madvise) gained
 *           nothing on a cold file and cost a quarter of the speed on a warm one.
 * Memory    allocates nothing. */
#ifndef LS_HOST_COPY_H
#define LS_HOST_COPY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* dst and src do not overlap. */
void ls_host_copy(void *dst, const void *src, size_t bytes);
#ifdef __cplusplus
}
#endif

#endif
