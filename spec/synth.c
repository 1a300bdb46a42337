#include "synth.h"

#include <errno.h>
#include <fcntl.h>
#include <gsl/gsl_cdf.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"

#define BLOCK ((int64_t)1 << 20) /* numbers written at a time */
#define TABLE 4096               /* quantiles a normal number is drawn from */
#define Q_SCALE 3.0
#define WRITE_SCALE 2.0

static const ls_shape shapes[] = {
    {"tiny", 64, 160, 2, 4, 2, 16, 272, 512, 10000, 1e-5, true},
    {"smollm2-135m", 576, 1536, 30, 9, 3, 64, 49152, 8192, 100000, 1e-5, true},
    {"llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 500000, 1e-5, true},
    {"llama-3-8b", 4096, 14336, 32, 32, 8, 128, 128256, 131072, 500000, 1e-5, false},
};

static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};

const ls_shape *ls_shape_at(int i) {
    return i >= 0 && (size_t)i < sizeof shapes / sizeof *shapes ? &shapes[i] : NULL;
}

/* ---- the tensors of a shape, in file order --------------------------------------------------- */

typedef struct tensor {
    char name[80];
    int32_t n_out, n_in; /* n_in 0: a vector of ones */
    int32_t layer;       /* -1: of none */
    double scale;        /* times 1 / sqrt(n_in): the standard deviation */
} tensor;

static int32_t n_tensors(const ls_shape *s) {
    return 2 + 9 * s->n_layers + !s->tied;
}

static tensor tensor_at(const ls_shape *s, int32_t i) {
    const int32_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    const struct {
        const char *name;
        int32_t n_out, n_in;
        double scale;
    } layer[9] = {{"input_layernorm", s->dim, 0, 1},
                  {"mlp.down_proj", s->dim, s->ffn, WRITE_SCALE},
                  {"mlp.gate_proj", s->ffn, s->dim, 1},
                  {"mlp.up_proj", s->ffn, s->dim, 1},
                  {"post_attention_layernorm", s->dim, 0, 1},
                  {"self_attn.k_proj", kv, s->dim, 1},
                  {"self_attn.o_proj", s->dim, q, WRITE_SCALE},
                  {"self_attn.q_proj", q, s->dim, Q_SCALE},
                  {"self_attn.v_proj", kv, s->dim, 1}};
    tensor t = {"model.embed_tokens.weight", s->n_vocab, s->dim, -1, sqrt(log(s->n_vocab))};
    if (i == 1)
        t = (tensor){"model.norm.weight", s->dim, 0, -1, 1};
    if (i == 2 + 9 * s->n_layers)
        strcpy(t.name, "lm_head.weight");
    else if (i >= 2) {
        const int32_t k = (i - 2) % 9;
        t.layer = (i - 2) / 9;
        snprintf(t.name, sizeof t.name, "model.layers.%d.%s.weight", t.layer, layer[k].name);
        t.n_out = layer[k].n_out, t.n_in = layer[k].n_in, t.scale = layer[k].scale;
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

/* ---- random numbers -------------------------------------------------------------------------- */

static const uint64_t step = 0x9E3779B97F4A7C15u; /* of splitmix64 */

static inline uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t key_of(uint64_t seed, const char *name) {
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return mix(seed * step + h);
}

/* Numbers first, first + 1, ... of a tensor: four from each word, each picks one of the quantiles
 * of the normal distribution. `first` is a multiple of 4. */
static void fill(uint16_t *out, int64_t n, uint64_t key, int64_t first, const uint16_t *quantile) {
    uint64_t at = key + (uint64_t)(first / 4) * step;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint64_t z = mix(at += step);
        out[i] = quantile[z % TABLE];
        out[i + 1] = quantile[(z >> 16) % TABLE];
        out[i + 2] = quantile[(z >> 32) % TABLE];
        out[i + 3] = quantile[(z >> 48) % TABLE];
    }
    for (uint64_t z = mix(at + step); i < n; i++, z >>= 16)
        out[i] = quantile[z % TABLE];
}

/* ---- the weights ----------------------------------------------------------------------------- */

/* One model of a run: a shape, and from which layer on writes are scaled by how much. */
typedef struct writer {
    const ls_shape *shape;
    const ls_synth_options *o;
    int32_t late_from;
    double late_scale;
    const double *normal; /* [TABLE] quantiles of variance 1 */
    int64_t done, total;  /* bytes, of the whole run */
    FILE *f;
    int64_t data_at; /* where the tensors begin in the file */
} writer;

static double tensor_scale(const writer *w, const tensor *t) {
    const bool writes = t->layer >= w->late_from && (strstr(t->name, ".o_proj.") != NULL ||
                                                     strstr(t->name, ".down_proj.") != NULL);
    return t->scale * (writes ? w->late_scale : 1);
}

/* A block of a tensor: its numbers, and where they lie in the file. */
typedef struct block {
    int32_t tensor;
    int64_t first, n, at;
} block;

static block *cut_blocks(const writer *w, int64_t *n_block) {
    int64_t n = 0;
    block *b = NULL;
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = w->data_at;
        n = 0;
        for (int32_t i = 0; i < n_tensors(w->shape); i++) {
            const tensor t = tensor_at(w->shape, i);
            const int64_t all = tensor_values(&t);
            for (int64_t first = 0; first < all; first += BLOCK, n++)
                if (b)
                    b[n] = (block){i, first, all - first < BLOCK ? all - first : BLOCK,
                                   at + 2 * first};
            at += 2 * all;
        }
        if (!b && !(b = malloc((size_t)n * sizeof *b)))
            return NULL;
    }
    *n_block = n;
    return b;
}

static bool put(int fd, const void *data, size_t n, int64_t at) {
    const char *p = data;
    while (n > 0) {
        const ssize_t m = pwrite(fd, p, n, (off_t)at);
        if (m < 0 && errno == EINTR)
            continue;
        if (m <= 0)
            return false;
        p += m, at += m, n -= (size_t)m;
    }
    return true;
}

/* The table of one scale; a thread keeps it from block to block. */
typedef struct table {
    double deviation;
    uint16_t quantile[TABLE];
    uint16_t out[BLOCK];
} table;

static bool write_block(const writer *w, table *s, const block *b) {
    const tensor t = tensor_at(w->shape, b->tensor);
    const double deviation = t.n_in ? tensor_scale(w, &t) / sqrt((double)t.n_in) : -1;
    if (deviation != s->deviation) {
        for (int i = 0; i < TABLE; i++)
            s->quantile[i] = ls_bf16_of_f32(t.n_in ? (float)(w->normal[i] * deviation) : 1.0f);
        s->deviation = deviation;
    }
    fill(s->out, b->n, key_of(w->o->seed, t.name), b->first, s->quantile);
    return put(fileno(w->f), s->out, (size_t)b->n * 2, b->at);
}

static ls_status write_values(writer *w, ls_err *err) {
    int64_t n = 0;
    block *b = cut_blocks(w, &n);
    if (!b)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    const int threads = w->o->n_threads > 0 ? w->o->n_threads : omp_get_max_threads();
    /* an errno, or -1: no memory, -2: stopped; asked here too, since others may do all blocks */
    int failed = w->o->stop && w->o->stop(w->o->self) ? -2 : 0;
    int64_t done = w->done;
#pragma omp parallel num_threads(threads)
    {
        table *s = malloc(sizeof *s);
        if (s)
            s->deviation = -2;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) {
            int now;
#pragma omp atomic read
            now = failed;
            if (now)
                continue;
            const int bad = !s ? -1 : write_block(w, s, &b[i]) ? 0 : errno ? errno : EIO;
            int64_t seen;
#pragma omp atomic capture
            seen = done += 2 * b[i].n;
            const bool mine = omp_get_thread_num() == 0; /* callbacks stay on the caller's thread */
            if (mine && w->o->progress)
                w->o->progress(w->o->self, seen, w->total);
            const int why = bad ? bad : mine && w->o->stop && w->o->stop(w->o->self) ? -2 : 0;
            if (why) {
#pragma omp atomic write
                failed = why;
            }
        }
        free(s);
    }
    free(b);
    w->done = done;
    if (failed == -1)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    if (failed == -2)
        return ls_fail(err, LS_ERR_STOPPED, "stopped");
    errno = failed;
    return failed ? LS_ERR_IO : LS_OK;
}

static ls_status write_weights(writer *w, ls_err *err) {
    char *header = NULL;
    size_t n = 0;
    FILE *h = open_memstream(&header, &n);
    if (!h)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
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
    fprintf(h, "%*s", (int)(63 - (n + 7) % 64), ""); /* tensors begin at a multiple of 64 */
    if (fclose(h) != 0) {
        free(header);
        return ls_fail(err, LS_ERR_MEMORY, "out of memory");
    }
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> (8 * i));
    const bool ok =
        fwrite(length, 8, 1, w->f) == 1 && fwrite(header, n, 1, w->f) == 1 && fflush(w->f) == 0;
    free(header);
    w->data_at = 8 + (int64_t)n;
    return ok ? write_values(w, err) : LS_ERR_IO;
}

/* ---- the other files ------------------------------------------------------------------------- */

static ls_status write_config(writer *w, ls_err *err) {
    const ls_shape *s = w->shape;
    (void)err;
    fprintf(w->f,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
            "\"hidden_act\": \"silu\",\n"
            " \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,\n"
            " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d,\n"
            " \"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": %g,\n"
            " \"rope_theta\": %g, \"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"}\n",
            s->dim, s->ffn, s->n_layers, s->n_heads, s->n_kv, s->head_dim, s->n_vocab, s->n_pos,
            s->rms_eps, s->rope_theta, s->tied ? "true" : "false");
    return LS_OK;
}

/* A byte's letter in byte-level vocabularies: itself where it prints, else the next from U+0100.
 * The other ids are " 256", " 257", ...: no merge makes them, but a model may say them. */
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
    for (int32_t id = 256; id < w->shape->n_vocab; id++)
        fprintf(w->f, ", \"\\u0120%d\": %d", id, id);
    fputs("}}}\n", w->f);
    return LS_OK;
}

static ls_status write_file(writer *w, const char *dir, const char *name,
                            ls_status (*content)(writer *, ls_err *), ls_err *err) {
    char *path;
    LS_TRY(ls_file_join(dir, name, &path, err));
    w->f = fopen(path, "wb");
    ls_status status = w->f ? content(w, err) : LS_ERR_IO;
    if (status == LS_OK && ferror(w->f))
        status = LS_ERR_IO;
    const int why = errno;
    if (w->f && fclose(w->f) != 0 && status == LS_OK)
        status = LS_ERR_IO;
    else
        errno = why;
    if (status == LS_ERR_IO)
        ls_fail(err, status, "%s: %s", path, strerror(errno));
    free(path);
    return status;
}

/* ---- folders --------------------------------------------------------------------------------- */

static ls_status make_folder(const char *dir, ls_err *err) {
    char shown[256];
    if (mkdir(dir, 0777) == 0)
        return LS_OK;
    const int why = errno;
    ls_err_text(shown, sizeof shown, dir, strlen(dir));
    return why == EEXIST ? ls_fail(err, LS_ERR_INPUT, "%s exists: name a new folder", shown)
                         : ls_fail(err, LS_ERR_IO, "%s: %s", shown, strerror(why));
}

static ls_status write_model(writer *w, const char *dir, ls_err *err) {
    LS_TRY(write_file(w, dir, files[0], write_config, err));
    LS_TRY(write_file(w, dir, files[2], write_tokenizer, err));
    return write_file(w, dir, files[1], write_weights, err);
}

static ls_status write_in(writer *w, const char *dir, const char *name, ls_err *err) {
    char *path;
    LS_TRY(ls_file_join(dir, name, &path, err));
    ls_status status = make_folder(path, err);
    if (status == LS_OK)
        status = write_model(w, path, err);
    free(path);
    return status;
}

static ls_status write_all(writer *w, const char *dir, ls_err *err) {
    const int32_t n = w->o->draft_layers, n_layers = w->shape->n_layers;
    w->total = ls_shape_bytes(w->shape);
    w->late_from = n_layers;
    if (n == 0)
        return write_model(w, dir, err);
    ls_shape draft = *w->shape;
    draft.n_layers = n;
    w->total += ls_shape_bytes(&draft);
    w->late_from = n;
    w->late_scale = w->o->divergence * sqrt((double)n / (n_layers - n));
    LS_TRY(write_in(w, dir, "target", err));
    w->shape = &draft;
    return write_in(w, dir, "draft", err);
}

ls_status ls_synth_write(const ls_shape *shape, const ls_synth_options *options, const char *dir,
                         ls_err *err) {
    double normal[TABLE];
    if (options->draft_layers < 0 || options->draft_layers >= shape->n_layers)
        return ls_fail(err, LS_ERR_INPUT, "a draft of %d layers: %s has %d, so 1 to %d",
                       options->draft_layers, shape->name, shape->n_layers, shape->n_layers - 1);
    if (!(options->divergence >= 0 && options->divergence <= 1000))
        return ls_fail(err, LS_ERR_INPUT, "a divergence of %g: it is a number from 0 to 1000",
                       options->divergence);
    for (int i = 0; i < TABLE; i++)
        normal[i] = gsl_cdf_ugaussian_Pinv((i + 0.5) / TABLE);
    writer w = {.shape = shape, .o = options, .normal = normal};
    LS_TRY(make_folder(dir, err));
    ls_status status = write_all(&w, dir, err);
    if (status != LS_OK)
        ls_synth_remove(dir);
    return status;
}

static void remove_model(const char *dir) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path;
        if (ls_file_join(dir, files[i], &path, NULL) != LS_OK)
            return;
        unlink(path);
        free(path);
    }
    rmdir(dir);
}

void ls_synth_remove(const char *dir) {
    static const char *const inner[] = {"target", "draft"};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        char *path;
        if (ls_file_join(dir, inner[i], &path, NULL) != LS_OK)
            return;
        remove_model(path);
        free(path);
    }
    remove_model(dir);
}
