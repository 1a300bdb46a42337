#include "cpu_read.h"

#include <omp.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)256 << 10)

static inline uint64_t word_at(const unsigned char *p) {
    uint64_t w;
    memcpy(&w, p, sizeof w); /* weights in a file need not be aligned */
    return w;
}

/* Sixteen sums keep as many loads in flight as the processor has room for. */
static inline uint64_t sum_of(const unsigned char *p, size_t bytes) {
    uint64_t s[16] = {0};
    size_t i = 0;
    for (; i + 128 <= bytes; i += 128)
        for (size_t k = 0; k < 16; k++)
            s[k] += word_at(p + i + 8 * k);
    for (; i + 8 <= bytes; i += 8)
        s[0] += word_at(p + i);
    for (; i < bytes; i++)
        s[0] += p[i];
    for (size_t k = 1; k < 16; k++)
        s[0] += s[k];
    return s[0];
}

static uint64_t sum_plain(const unsigned char *p, size_t bytes) {
    return sum_of(p, bytes);
}

#if defined(__x86_64__) && defined(__GNUC__)
/* the same loop with wide registers: a read that is slower than it could be flatters the passes */
__attribute__((target("avx2"))) static uint64_t sum_avx2(const unsigned char *p, size_t bytes) {
    return sum_of(p, bytes);
}
static int is_wide(void) {
    return __builtin_cpu_supports("avx2");
}
#else
#define sum_avx2 sum_plain
static int is_wide(void) {
    return 0;
}
#endif

static size_t blocks_of(const ls_span *s) {
    return (s->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

void ls_read_spans(const ls_span *span, int32_t n, int n_threads) {
    uint64_t (*const sum)(const unsigned char *, size_t) = is_wide() ? sum_avx2 : sum_plain;
    size_t n_block = 0;
    uint64_t total = 0;
    for (int32_t i = 0; i < n; i++)
        n_block += blocks_of(&span[i]);
#pragma omp parallel num_threads(n_threads) reduction(+ : total)
    {
        const size_t t = (size_t)omp_get_thread_num(), n_team = (size_t)omp_get_num_threads();
        const size_t b0 = n_block * t / n_team, b1 = n_block * (t + 1) / n_team;
        size_t first = 0; /* block of the span's first byte */
        for (int32_t i = 0; i < n && first < b1; i++) {
            const size_t blocks = blocks_of(&span[i]);
            for (size_t b = b0 > first ? b0 - first : 0; b < blocks && first + b < b1; b++) {
                const size_t at = b * BLOCK_BYTES, left = span[i].bytes - at;
                total += sum((const unsigned char *)span[i].data + at,
                             left < BLOCK_BYTES ? left : BLOCK_BYTES);
            }
            first += blocks;
        }
    }
    volatile uint64_t sink = total; /* a sum nobody wants would not be computed */
    (void)sink;
}
