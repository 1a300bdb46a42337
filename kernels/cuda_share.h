/* cuda_share.h - weights on a device, found again by the host memory they came from, so that
 * engines of one backend over one model hold one copy.
 * Memory   an entry lives until it was dropped as often as it was given; the device memory is freed
 *          by the caller that drop answers.
 * Threads  the backend's owner. Private to the CUDA backend. */
#ifndef LS_CUDA_SHARE_H
#define LS_CUDA_SHARE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct cuda_shared {
    const void *host;
    size_t bytes; /* of host memory */
    void *device;
    int32_t n_ref;
    struct cuda_shared *next;
} cuda_shared;

/* The device copy of at least `bytes` from `host` (exactly as many when `exact`), or NULL. */
static inline void *cuda_shared_get(cuda_shared *list, const void *host, size_t bytes, int exact) {
    for (cuda_shared *s = list; s; s = s->next)
        if (s->host == host && (exact ? s->bytes == bytes : s->bytes >= bytes)) {
            s->n_ref++;
            return s->device;
        }
    return NULL;
}

/* False when there is no memory for the entry. */
static inline int cuda_shared_put(cuda_shared **list, const void *host, size_t bytes,
                                  void *device) {
    cuda_shared *s = (cuda_shared *)malloc(sizeof *s);
    if (!s)
        return 0;
    s->host = host;
    s->bytes = bytes;
    s->device = device;
    s->n_ref = 1;
    s->next = *list;
    *list = s;
    return 1;
}

/* True when that was the last reference: the device memory is the caller's to free. */
static inline int cuda_shared_drop(cuda_shared **list, const void *device) {
    for (cuda_shared **at = list; *at; at = &(*at)->next)
        if ((*at)->device == device) {
            cuda_shared *s = *at;
            if (--s->n_ref > 0)
                return 0;
            *at = s->next;
            free(s);
            return 1;
        }
    return 0;
}

#endif
