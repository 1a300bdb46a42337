/* config.json; behind a zero byte, generation_config.json. What is accepted is held against the
 * tensors of a small checkpoint, as a model is when it is opened. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "config.h"
#include "weights.h"

static void check(const ls_config *c) {
    fuzz_require(c->dim >= 1 && c->dim <= 131072 && c->ffn >= 1 && c->ffn <= 1048576, "widths");
    fuzz_require(c->n_layers >= 1 && c->n_layers <= 1024, "layers");
    fuzz_require(c->n_heads >= 1 && c->n_heads <= 1024, "heads");
    fuzz_require(c->n_kv >= 1 && c->n_heads % c->n_kv == 0, "key/value heads");
    fuzz_require(c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= LS_HEAD_DIM_MAX,
                 "width of a head");
    fuzz_require(c->n_vocab >= 1 && c->n_vocab <= 4194304, "vocabulary");
    fuzz_require(c->n_pos >= 1 && c->n_pos <= 16777216, "positions");
    fuzz_require(c->rms_eps > 0 && c->rope_theta >= 1, "eps and theta");
    fuzz_require(c->n_eos >= 0 && c->n_eos <= LS_EOS_MAX, "end ids");
    for (int32_t i = 0; i < c->n_eos; i++) {
        fuzz_require(c->eos[i] >= 0 && c->eos[i] < c->n_vocab, "an end id without a row");
        fuzz_require(i == 0 || c->eos[i] > c->eos[i - 1], "end ids in order");
    }
    for (int32_t i = 0; i < c->head_dim / 2; i++) {
        const double f = ls_rope_frequency(c->rope_theta, &c->rope, i, c->head_dim);
        fuzz_require(f >= 0 && f <= 1, "an angle");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static ls_checkpoint *cp; /* kept: reachable at exit */
    ls_err err = {0};
    char path[2][200];
    if (!cp)
        fuzz_require(ls_checkpoint_open(LS_TEST_DIR "/cases/models/rand_base", &cp, &err) == LS_OK,
                     "no checkpoint to compare with");
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    const size_t first = zero ? (size_t)(zero - data) : n;
    fuzz_write("config.json", data, first);
    if (zero)
        fuzz_write("generation_config.json", zero + 1, n - first - 1);
    snprintf(path[0], sizeof path[0], "%s/config.json", fuzz_dir());
    snprintf(path[1], sizeof path[1], "%s/generation_config.json", fuzz_dir());
    ls_config c;
    ls_weights *w = NULL;
    fuzz_mem_begin();
    if (fuzz_verdict(ls_config_read_files(path[0], zero ? path[1] : NULL, &c, &err), &err)) {
        check(&c);
        fuzz_verdict(ls_weights_bind(cp, &c, LS_HEAD_DECLARED, &w, &err), &err);
        ls_weights_destroy(w);
    }
    fuzz_mem_end(n, 100, 1 << 20); /* a table of at most 1024 layers */
    return 0;
}
