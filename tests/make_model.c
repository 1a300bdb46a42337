#include "make_model.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what, const char *path) {
    fprintf(stderr, "make_model: %s: ", path);
    perror(what);
    abort();
}

static FILE *create(const char *dir, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        die("create", path);
    return f;
}

static void finish(FILE *f, const char *name) {
    if (ferror(f) || fclose(f) != 0)
        die("write", name);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Mean 0, variance 1, nearly normal: the sum of four uniforms. */
static float noise(uint64_t stream, uint64_t i) {
    uint64_t r = mix(stream ^ mix(i));
    double sum = 0;
    for (int k = 0; k < 4; k++, r >>= 16)
        sum += (double)(r & 0xFFFF) / 65536.0 + 0.5 / 65536.0 - 0.5;
    return (float)(sum * 1.7320508075688772);
}

/* Nearest, ties to even; values here are small, so no overflow. */
static uint16_t to_bf16(float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float v) {
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs((double)v);
    if (a == 0)
        return sign;
    int e;
    frexp(a, &e);                   /* a < 2^e */
    int unit = e - 11;              /* exponent of the last place of an 11-bit significand */
    unit = unit < -24 ? -24 : unit; /* subnormals share the smallest */
    double q = nearbyint(ldexp(a, -unit));
    uint32_t m = (uint32_t)q; /* up to 2048, which carries into the exponent by the sum below */
    return (uint16_t)(sign | (uint16_t)(((uint32_t)(unit + 24) << 10) + m));
}

static void put_number(FILE *f, float v, ls_dtype t) {
    unsigned char b[4];
    uint32_t u;
    if (t == LS_F32)
        memcpy(&u, &v, 4);
    else
        u = t == LS_BF16 ? to_bf16(v) : to_f16(v);
    for (size_t i = 0; i < ls_dtype_bytes(t); i++)
        b[i] = (unsigned char)(u >> 8 * i);
    fwrite(b, 1, ls_dtype_bytes(t), f);
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct tensor {
    char name[80];
    int32_t rows, cols;  /* cols 0: a vector */
    double mean, spread; /* of its numbers */
} tensor;

/* Residual branches are loud next to the embedding, so that the next token is not simply the last
 * one; queries and keys are loud too, so that attention looks at single places. */
static int list_tensors(const ls_test_shape *s, tensor *t) {
    const int32_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    const double d = sqrt(s->dim);
    int n = 0;
    if (!s->tied)
        t[n++] = (tensor){"lm_head.weight", s->n_vocab, s->dim, 0, 3 / d};
    t[n++] = (tensor){"model.norm.weight", s->dim, 0, 1, 0.1};
    for (int32_t l = 0; l < s->n_layers; l++) {
        const tensor layer[] = {
            {"mlp.down_proj", s->dim, s->ffn, 0, 3 / sqrt(s->ffn)},
            {"self_attn.o_proj", s->dim, q, 0, 2.5 / sqrt(q)},
            {"self_attn.q_proj", q, s->dim, 0, 1.7 / d},
            {"self_attn.k_proj", kv, s->dim, 0, 1.7 / d},
            {"self_attn.v_proj", kv, s->dim, 0, 1.5 / d},
            {"mlp.gate_proj", s->ffn, s->dim, 0, 1.5 / d},
            {"mlp.up_proj", s->ffn, s->dim, 0, 1.5 / d},
            {"input_layernorm", s->dim, 0, 1, 0.1},
            {"post_attention_layernorm", s->dim, 0, 1, 0.1},
        };
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++, n++) {
            t[n] = layer[i];
            snprintf(t[n].name, sizeof t[n].name, "model.layers.%d.%.40s.weight", l, layer[i].name);
        }
    }
    t[n++] = (tensor){"model.embed_tokens.weight", s->n_vocab, s->dim, 0, s->tied ? 3 / d : 1};
    return n;
}

static uint64_t count(const tensor *t) {
    return (uint64_t)t->rows * (t->cols ? (uint64_t)t->cols : 1);
}

static uint64_t name_hash(const char *name) {
    uint64_t h = 0;
    for (; *name; name++)
        h = mix(h ^ (unsigned char)*name);
    return h;
}

static void write_weights(const ls_test_shape *s, const char *dir) {
    static const char *const dtype[] = {"F32", "BF16", "F16"};
    tensor *t = calloc((size_t)s->n_layers * 9 + 3, sizeof *t);
    char *head = malloc((size_t)s->n_layers * 9 * 200 + 1000);
    if (!t || !head)
        die("memory", dir);
    int n = list_tensors(s, t);
    size_t len = 0;
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        uint64_t end = at + count(&t[i]) * ls_dtype_bytes(s->dtype);
        char shape[32];
        snprintf(shape, sizeof shape, t[i].cols ? "%d,%d" : "%d", t[i].rows, t[i].cols);
        len += (size_t)sprintf(
            head + len, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
            i ? "," : "{", t[i].name, dtype[s->dtype], shape, (unsigned long long)at,
            (unsigned long long)end);
        at = end;
    }
    head[len++] = '}';
    while (len % 8)
        head[len++] = ' ';

    FILE *f = create(dir, "model.safetensors");
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> 8 * i & 0xFF), f);
    fwrite(head, 1, len, f);
    for (int i = 0; i < n; i++) {
        uint64_t stream = mix(s->seed) ^ name_hash(t[i].name), total = count(&t[i]);
        for (uint64_t k = 0; k < total; k++)
            put_number(f, (float)(t[i].mean + t[i].spread * (double)noise(stream, k)), s->dtype);
    }
    finish(f, "model.safetensors");
    free(head);
    free(t);
}

/* ---- config and tokenizer -------------------------------------------------------------------- */

static void write_config(const ls_test_shape *s, const char *dir) {
    static const char *const dtype[] = {"float32", "bfloat16", "float16"};
    FILE *f = create(dir, "config.json");
    fprintf(f,
            "{\n \"architectures\": [\"LlamaForCausalLM\"],\n \"model_type\": \"llama\",\n"
            " \"hidden_act\": \"silu\",\n \"hidden_size\": %d,\n \"intermediate_size\": %d,\n"
            " \"num_hidden_layers\": %d,\n \"num_attention_heads\": %d,\n"
            " \"num_key_value_heads\": %d,\n \"head_dim\": %d,\n \"vocab_size\": %d,\n"
            " \"max_position_embeddings\": %d,\n \"rms_norm_eps\": 1e-05,\n"
            " \"rope_theta\": 10000.0,\n \"tie_word_embeddings\": %s,\n",
            s->dim, s->ffn, s->n_layers, s->n_heads, s->n_kv, s->head_dim, s->n_vocab, s->n_pos,
            s->tied ? "true" : "false");
    if (!s->small_vocab)
        fprintf(f, " \"bos_token_id\": %d,\n", LS_TEST_BOS);
    if (!s->small_vocab && !s->no_eos)
        fprintf(f, " \"eos_token_id\": %d,\n", LS_TEST_EOS);
    fprintf(f, " \"torch_dtype\": \"%s\"\n}\n", dtype[s->dtype]);
    finish(f, "config.json");
}

/* The letter of a byte in the byte-level alphabet, as a JSON string's inside. */
static void put_letter(FILE *f, int byte) {
    static const int gap_begin[] = {0x00, 0x7F, 0xAD}, gap_n[] = {33, 34, 1};
    int cp = byte, moved = 256;
    for (int g = 0; g < 3; g++) {
        if (byte >= gap_begin[g] && byte < gap_begin[g] + gap_n[g])
            cp = moved + byte - gap_begin[g];
        moved += gap_n[g];
    }
    fprintf(f, "\\u%04x", (unsigned)cp);
}

static void put_letters(FILE *f, const char *bytes) {
    for (; *bytes; bytes++)
        put_letter(f, (unsigned char)*bytes);
}

static void write_tokenizer(const char *dir) {
    static const char *const merge[LS_TEST_MERGES][2] = {{" ", "t"}, {"h", "e"},  {"i", "n"},
                                                         {" ", "a"}, {"r", "e"},  {"o", "n"},
                                                         {"e", "r"}, {" t", "he"}};
    FILE *f = create(dir, "tokenizer.json");
    fprintf(f, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (int i = 0; i < 2; i++)
        fprintf(f,
                "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                "\"rstrip\":false,\"normalized\":false,\"special\":true}",
                i ? "," : "", i ? LS_TEST_EOS : LS_TEST_BOS, i ? "</s>" : "<s>");
    fprintf(f, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
               "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
               "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        fprintf(f, "%s\"", b ? "," : "");
        put_letter(f, b);
        fprintf(f, "\":%d", b);
    }
    for (int i = 0; i < LS_TEST_MERGES; i++) {
        fprintf(f, ",\"");
        put_letters(f, merge[i][0]);
        put_letters(f, merge[i][1]);
        fprintf(f, "\":%d", 256 + i);
    }
    fprintf(f, "},\"merges\":[");
    for (int i = 0; i < LS_TEST_MERGES; i++) {
        fprintf(f, "%s[\"", i ? "," : "");
        put_letters(f, merge[i][0]);
        fprintf(f, "\",\"");
        put_letters(f, merge[i][1]);
        fprintf(f, "\"]");
    }
    fprintf(f, "]}}\n");
    finish(f, "tokenizer.json");
}

/* ---- the folder ------------------------------------------------------------------------------ */

ls_test_shape ls_test_shape_default(void) {
    return (ls_test_shape){.dim = 96,
                           .ffn = 160,
                           .n_layers = 2,
                           .n_heads = 4,
                           .n_kv = 2,
                           .head_dim = 24,
                           .n_vocab = LS_TEST_TOKENS,
                           .n_pos = 512,
                           .dtype = LS_F32,
                           .seed = 1};
}

char *ls_test_model_make(const ls_test_shape *s) {
    const char *tmp = getenv("TMPDIR");
    char *dir = malloc(512);
    if (!dir)
        die("memory", "a path");
    snprintf(dir, 512, "%.400s/lockstep-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        die("mkdtemp", dir);
    if (!s->small_vocab && s->n_vocab < LS_TEST_TOKENS) {
        fprintf(stderr, "make_model: n_vocab %d, the tokenizer has %d tokens\n", s->n_vocab,
                LS_TEST_TOKENS);
        abort();
    }
    write_weights(s, dir);
    write_config(s, dir);
    if (!s->small_vocab)
        write_tokenizer(dir);
    return dir;
}

void ls_test_model_remove(char *dir) {
    if (!dir)
        return;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
    free(dir);
}
