#include "synth.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"

#define BLOCK 524288 /* numbers written at a time */

static const ls_shape shapes[] = {
    {"tiny", 64, 160, 2, 4, 2, 16, 272, 512, 10000, 1e-5},
    {"smollm2-135m", 576, 1536, 30, 9, 3, 64, 49152, 8192, 100000, 1e-5},
    {"llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 500000, 1e-5},
};

static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};

const ls_shape *ls_shape_at(int i) {
    return i >= 0 && (size_t)i < sizeof shapes / sizeof *shapes ? &shapes[i] : NULL;
}

/* ---- the tensors of a shape, in file order --------------------------------------------------- */

typedef struct tensor {
    char name[80];
    int32_t n_out, n_in; /* n_in 0: a vector of ones */
} tensor;

static int32_t n_tensors(const ls_shape *s) {
    return 2 + 9 * s->n_layers;
}

static tensor tensor_at(const ls_shape *s, int32_t i) {
    const int32_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    const struct {
        const char *name;
        int32_t n_out, n_in;
    } layer[9] = {{"input_layernorm", s->dim, 0},          {"mlp.down_proj", s->dim, s->ffn},
                  {"mlp.gate_proj", s->ffn, s->dim},       {"mlp.up_proj", s->ffn, s->dim},
                  {"post_attention_layernorm", s->dim, 0}, {"self_attn.k_proj", kv, s->dim},
                  {"self_attn.o_proj", s->dim, q},         {"self_attn.q_proj", q, s->dim},
                  {"self_attn.v_proj", kv, s->dim}};
    tensor t = {"model.embed_tokens.weight", s->n_vocab, s->dim};
    if (i == 1)
        t = (tensor){"model.norm.weight", s->dim, 0};
    if (i >= 2) {
        const int32_t k = (i - 2) % 9;
        snprintf(t.name, sizeof t.name, "model.layers.%d.%s.weight", (i - 2) / 9, layer[k].name);
        t.n_out = layer[k].n_out, t.n_in = layer[k].n_in;
    }
    return t;
}

static int64_t tensor_values(const tensor *t) {
    return (int64_t)t->n_out * (t->n_in ? t->n_in : 1);
}

int64_t ls_shape_bytes(const ls_shape *s) {
    int64_t n = 0;
    for (int32_t i = 0; i < n_tensors(s); i++) {
        const tensor t = tensor_at(s, i);
        n += 2 * tensor_values(&t);
    }
    return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct writer {
    const ls_shape *shape;
    uint64_t seed;
    FILE *f;
    int64_t done;
    void (*progress)(void *self, int64_t done, int64_t total);
    bool (*stop)(void *self);
    void *self;
} writer;

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Near enough to normal for a speed test: four uniform numbers of 16 bits, variance 1. */
static float normal(uint64_t *s) {
    const uint64_t z = next(s);
    const int32_t sum = (int32_t)(z & 0xFFFF) + (int32_t)(z >> 16 & 0xFFFF) +
                        (int32_t)(z >> 32 & 0xFFFF) + (int32_t)(z >> 48);
    return (float)(sum - 131070) * (float)(1.7320508 / 65536);
}

static ls_status write_values(writer *w, const tensor *t, uint16_t *block, ls_err *err) {
    const int64_t n = tensor_values(t), total = ls_shape_bytes(w->shape);
    const float scale = t->n_in ? (float)(1 / sqrt((double)t->n_in)) : 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const size_t m = (size_t)(n - at < BLOCK ? n - at : BLOCK);
        for (size_t i = 0; i < m; i++)
            block[i] = ls_bf16_of_f32(t->n_in ? normal(&w->seed) * scale : 1.0f);
        if (fwrite(block, 2, m, w->f) != m)
            return LS_ERR_IO;
        w->done += 2 * (int64_t)m;
        if (w->progress)
            w->progress(w->self, w->done, total);
        if (w->stop && w->stop(w->self))
            return ls_fail(err, LS_ERR_STOPPED, "stopped");
    }
    return LS_OK;
}

static ls_status write_weights(writer *w, ls_err *err) {
    char *header = NULL;
    size_t n = 0;
    FILE *h = open_memstream(&header, &n);
    uint16_t *block = malloc(BLOCK * sizeof *block);
    if (!h || !block) {
        if (h)
            fclose(h);
        free(header);
        free(block);
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    }
    int64_t at = 0;
    for (int32_t i = 0; i < n_tensors(w->shape); i++) {
        const tensor t = tensor_at(w->shape, i);
        const int64_t end = at + 2 * tensor_values(&t);
        fprintf(h, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d", i ? ',' : '{', t.name, t.n_out);
        if (t.n_in)
            fprintf(h, ",%d", t.n_in);
        fprintf(h, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    fprintf(h, "}");
    fflush(h);
    fprintf(h, "%*s", (int)(8 - n % 8) % 8, ""); /* tensors begin at a multiple of 8 */
    fclose(h);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> (8 * i));
    ls_status status =
        fwrite(length, 8, 1, w->f) == 1 && fwrite(header, n, 1, w->f) == 1 ? LS_OK : LS_ERR_IO;
    for (int32_t i = 0; status == LS_OK && i < n_tensors(w->shape); i++) {
        const tensor t = tensor_at(w->shape, i);
        status = write_values(w, &t, block, err);
    }
    free(header);
    free(block);
    return status;
}

static ls_status write_config(writer *w, ls_err *err) {
    const ls_shape *s = w->shape;
    (void)err;
    fprintf(w->f,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
            "\"hidden_act\": \"silu\",\n"
            " \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,\n"
            " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d,\n"
            " \"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": %g,\n"
            " \"rope_theta\": %g, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}\n",
            s->dim, s->ffn, s->n_layers, s->n_heads, s->n_kv, s->head_dim, s->n_vocab, s->n_pos,
            s->rms_eps, s->rope_theta);
    return LS_OK;
}

/* A byte's letter in byte-level vocabularies: itself where it prints, else the next from U+0100. */
static ls_status write_tokenizer(writer *w, ls_err *err) {
    (void)err;
    fputs("{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null,\n"
          " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
          "\"trim_offsets\": true, \"use_regex\": true},\n"
          " \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
          "true, \"trim_offsets\": true, \"use_regex\": true},\n"
          " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
          "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
          "  \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, "
          "\"merges\": [], \"vocab\": {",
          w->f);
    int other = 256;
    for (int b = 0; b < 256; b++) {
        const bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        fprintf(w->f, "%s\"\\u%04x\": %d", b ? ", " : "", prints ? b : other++, b);
    }
    fputs("}}}\n", w->f);
    return LS_OK;
}

static ls_status write_file(writer *w, const char *dir, const char *name,
                            ls_status (*content)(writer *, ls_err *), ls_err *err) {
    char *path;
    LS_TRY(ls_file_join(dir, name, &path, err));
    w->f = fopen(path, "wb");
    ls_status status = w->f ? content(w, err) : LS_ERR_IO;
    if (w->f && fclose(w->f) != 0 && status == LS_OK)
        status = LS_ERR_IO;
    if (status == LS_ERR_IO)
        ls_fail(err, status, "%s: %s", path, strerror(errno));
    free(path);
    return status;
}

ls_status ls_synth_write(const ls_shape *shape, uint64_t seed, const char *dir,
                         void (*progress)(void *self, int64_t done, int64_t total),
                         bool (*stop)(void *self), void *self, ls_err *err) {
    writer w = {.shape = shape, .seed = seed, .progress = progress, .stop = stop, .self = self};
    if (mkdir(dir, 0777) != 0) {
        char shown[256];
        const int why = errno;
        ls_err_text(shown, sizeof shown, dir, strlen(dir));
        return why == EEXIST ? ls_fail(err, LS_ERR_INPUT, "%s exists: name a new folder", shown)
                             : ls_fail(err, LS_ERR_IO, "%s: %s", shown, strerror(why));
    }
    ls_status status = write_file(&w, dir, files[0], write_config, err);
    if (status == LS_OK)
        status = write_file(&w, dir, files[2], write_tokenizer, err);
    if (status == LS_OK)
        status = write_file(&w, dir, files[1], write_weights, err);
    if (status != LS_OK)
        ls_synth_remove(dir);
    return status;
}

void ls_synth_remove(const char *dir) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path;
        if (ls_file_join(dir, files[i], &path, NULL) != LS_OK)
            return;
        unlink(path);
        free(path);
    }
    rmdir(dir);
}
