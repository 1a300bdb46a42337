/* load.h - word of a load that may take a while: who is told how far it is, in bytes.
 * Told      ls_model_open while it copies what a GGUF file holds in blocks, ls_engine_create while
 *           it brings weights to a device; what stays in a mapping takes no time and is not told
 *           of.
 * Threads   called from the loading thread. */
#ifndef LS_LOAD_H
#define LS_LOAD_H

#include <stdint.h>

typedef struct ls_load {
    void (*progress)(void *self, uint64_t done, uint64_t total,
                     const char *text); /* NULL: nobody */
    void *self;
} ls_load;

static inline void ls_load_tell(const ls_load *load, uint64_t done, uint64_t total,
                                const char *text) {
    if (load->progress)
        load->progress(load->self, done, total, text);
}

#endif
