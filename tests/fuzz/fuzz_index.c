/* model.safetensors.index.json in a folder with two sound shards, a damaged one and a link that
 * leads out. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"

/* One tensor of one byte, with this name. */
static void write_shard(const char *file, char tensor, const char *dtype) {
    char all[200];
    const int n =
        snprintf(all + 8, sizeof all - 8,
                 "{\"%c\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor, dtype);
    memset(all, 0, 8);
    all[0] = (char)n;
    all[8 + n] = 7;
    fuzz_write(file, all, 9 + (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static int ready;
    if (!ready) {
        char link[200];
        write_shard("model-00001-of-00002.safetensors", 'a', "U8");
        write_shard("model-00002-of-00002.safetensors", 'b', "I8");
        write_shard("bad", 'c', "U16");
        snprintf(link, sizeof link, "%s/out", fuzz_dir());
        fuzz_require(symlink("/etc/hostname", link) == 0, "no link");
        ready = 1;
    }
    fuzz_write("model.safetensors.index.json", data, n);
    ls_checkpoint *cp = NULL;
    ls_err err = {0};
    char hex[LS_SHA256_HEX];
    fuzz_mem_begin();
    if (fuzz_verdict(ls_checkpoint_open(fuzz_dir(), &cp, &err), &err)) {
        fuzz_require(ls_checkpoint_count(cp) <= 2, "more tensors than there are");
        for (size_t i = 0; i < ls_checkpoint_count(cp); i++)
            fuzz_require(ls_checkpoint_at(cp, i)->data[0] == 7, "another tensor");
        fuzz_require(ls_checkpoint_digest(cp, hex, &err) == LS_OK, "no digest");
    }
    ls_checkpoint_close(cp);
    fuzz_mem_end(n, 100, 1 << 16);
    return 0;
}
