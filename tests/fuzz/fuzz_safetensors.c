/* A .safetensors file: the whole of safetensors.h. */
#include "fuzz.h"
#include "safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    ls_safetensors *st = NULL;
    ls_err err = {0};
    fuzz_mem_begin();
    if (fuzz_verdict(ls_safetensors_parse(data, n, FUZZ_NAME, &st, &err), &err)) {
        size_t covered = 0;
        volatile uint8_t last = 0; /* so that the bytes are read */
        for (size_t i = 0; i < ls_safetensors_count(st); i++) {
            const ls_st_tensor *t = ls_safetensors_at(st, i);
            fuzz_require(ls_safetensors_find(st, t->name) == t,
                         "a tensor is not found by its name");
            fuzz_require(t->bytes * 8 == t->n_elems * ls_st_dtype_bits(t->dtype),
                         "bytes of a shape");
            fuzz_require(t->bytes == 0 || (t->data >= data && t->data + t->bytes <= data + n),
                         "a tensor outside of the file");
            for (size_t b = 0; b < t->bytes; b++)
                last = t->data[b];
            covered += t->bytes;
        }
        uint64_t header = 0;
        memcpy(&header, data, 8);
        fuzz_require(covered == n - 8 - header, "tensors that do not cover the data");
        (void)last;
    }
    ls_safetensors_close(st);
    fuzz_mem_end(n, 100, 1 << 16);
    return 0;
}
