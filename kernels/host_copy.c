#include "host_copy.h"

#include <omp.h>
#include <stdint.h>
#include <string.h>

#define PIECE_BYTES ((size_t)512 << 10)

void ls_host_copy(void *dst, const void *src, size_t bytes) {
    const int64_t n = (int64_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    const int most = omp_get_max_threads(), threads = n < most ? (int)n : most;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * PIECE_BYTES, left = bytes - at;
        memcpy((char *)dst + at, (const char *)src + at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
}
