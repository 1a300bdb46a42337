#include "inspect.h"

#include <inttypes.h>
#include <string.h>

#include "model.h"

static void line(FILE *out, const char *label) {
    fprintf(out, "%-12s ", label);
}

/* "1.2 GB", "480 KB": three digits are enough for a person. */
static void put_size(FILE *out, double v, const char *unit) {
    static const char *const scale[] = {"", "K", "M", "G", "T"};
    size_t i = 0;
    for (; v >= 999.5 && i + 1 < sizeof scale / sizeof *scale; i++)
        v /= 1000;
    fprintf(out, "%.3g %s%s", v, scale[i], unit);
}

static void put_types(FILE *out, const ls_checkpoint *cp) {
    size_t n[LS_ST_N_ALL] = {0};
    for (size_t i = 0; i < ls_checkpoint_count(cp); i++)
        n[ls_checkpoint_at(cp, i)->dtype]++;
    const char *sep = "";
    for (int t = 0; t < LS_ST_N_ALL; t++)
        if (n[t] > 0) {
            fprintf(out, "%s%zu %s%s", sep, n[t], ls_st_dtype_name((ls_st_dtype)t),
                    t >= LS_ST_N_DTYPES ? " packed" : "");
            sep = ", ";
        }
}

static size_t count_packed(const ls_checkpoint *cp) {
    size_t n = 0;
    for (size_t i = 0; i < ls_checkpoint_count(cp); i++)
        n += ls_checkpoint_at(cp, i)->dtype >= LS_ST_N_DTYPES;
    return n;
}

/* The types as a GGUF file stores them; how many of its tensors are blocks. */
static size_t put_stored(FILE *out, const ls_gguf *g) {
    size_t n[LS_GGML_N_TYPES] = {0}, bytes = 0, n_blocks = 0;
    for (size_t i = 0; i < ls_gguf_count(g); i++) {
        n[ls_gguf_at(g, i)->type]++;
        bytes += ls_gguf_at(g, i)->bytes;
    }
    put_size(out, (double)bytes, "B");
    const char *sep = "; ";
    for (uint32_t t = 0; t < LS_GGML_N_TYPES; t++)
        if (n[t] > 0) {
            uint32_t per_block = 0;
            fprintf(out, "%s%zu %s", sep, n[t], ls_ggml_type(t, &per_block, NULL));
            n_blocks += per_block > 1 ? n[t] : 0;
            sep = ", ";
        }
    fputs(" in 1 file\n", out);
    return n_blocks;
}

static void put_weights(FILE *out, const ls_model *m) {
    const ls_gguf *g = ls_checkpoint_gguf(m->checkpoint);
    line(out, "weights");
    put_size(out, (double)m->weights->n_params, "");
    fputs(" parameters, ", out);
    if (!g) {
        put_size(out, (double)m->weights->bytes, "B");
        fputs("; ", out);
        put_types(out, m->checkpoint);
        const size_t files = ls_checkpoint_n_files(m->checkpoint);
        fprintf(out, " in %zu file%s\n", files, files == 1 ? "" : "s");
        return;
    }
    const size_t n_blocks = put_stored(out, g), n_packed = count_packed(m->checkpoint);
    if (n_blocks == 0)
        return;
    line(out, "in memory");
    put_size(out, (double)m->weights->bytes, "B");
    fputs("; ", out);
    put_types(out, m->checkpoint);
    fputs(n_blocks > n_packed ? ": the other blocks are widened to F32\n" : "\n", out);
}

/* What a GGUF file says of its tokenizer. */
static void put_stored_tokenizer(FILE *out, const ls_gguf *g) {
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre"};
    char shown[64];
    ls_gguf_str s;
    bool any = false;
    for (size_t i = 0; i < 2; i++) {
        const ls_gguf_value *v = ls_gguf_find(g, keys[i]);
        if (!v || !ls_gguf_as_string(v, &s))
            continue;
        fprintf(out, "%s%s", any ? ", " : "", ls_err_text(shown, sizeof shown, s.s, s.n));
        any = true;
    }
    fputs(any ? "; not built: scripts can give prompts as token ids\n" : "none in the file\n", out);
}

/* Bytes that text may have and that no token stands for: text with one of them cannot be
 * encoded. */
static void put_gaps(FILE *out, const ls_tokenizer *tok) {
    bool there[256] = {false};
    for (int32_t id = 0; id < ls_tokenizer_size(tok); id++) {
        size_t n = 0;
        const uint8_t *bytes = ls_tokenizer_bytes(tok, id, &n);
        if (bytes && n == 1 && !ls_tokenizer_is_special(tok, id))
            there[bytes[0]] = true;
    }
    int n = 0;
    for (int b = 0; b < 0xF5; b++) /* C0, C1 and those from F5 on are in no UTF-8 */
        if (!there[b] && b != 0xC0 && b != 0xC1) {
            if (n == 0)
                line(out, "no token for");
            if (n < 16)
                fprintf(out, "%s%02X", n ? " " : "the bytes ", (unsigned)b);
            n++;
        }
    if (n > 16)
        fprintf(out, " and %d more", n - 16);
    if (n > 0)
        fputs(": text with one of them is refused\n", out);
}

/* A token with its bytes, as 2 "</s>". */
static void put_token(FILE *out, const ls_tokenizer *tok, int32_t id) {
    fprintf(out, "%" PRId32, id);
    size_t n = 0;
    const uint8_t *bytes = tok ? ls_tokenizer_bytes(tok, id, &n) : NULL;
    char shown[64];
    if (bytes)
        fprintf(out, " \"%s\"", ls_err_text(shown, sizeof shown, (const char *)bytes, n));
}

static void put_config(FILE *out, const ls_model *m) {
    const ls_config *c = &m->config;
    line(out, "family");
    fprintf(out, "%s%s%s%s%s\n", c->family, c->qkv_bias ? ", biases of q, k and v" : "",
            c->qk_norm ? ", normed query and key heads" : "",
            c->post_norms ? ", normed blocks" : "", c->gelu ? ", GELU" : "");
    line(out, "shape");
    fprintf(out,
            "%" PRId32 " layers, width %" PRId32 ", feed-forward %" PRId32 ", %" PRId32
            " heads over %" PRId32 " of %" PRId32 "\n",
            c->n_layers, c->dim, c->ffn, c->n_heads, c->n_kv, c->head_dim);
    line(out, "context");
    fprintf(out, "%" PRId32 " positions, rope theta %g", c->n_pos, c->rope_theta);
    if (c->rope.kind == LS_ROPE_TABLE)
        fprintf(out, " (%s)", ls_rope_kind_name(c->rope.kind));
    else if (c->rope.kind != LS_ROPE_PLAIN)
        fprintf(out, " (%s, factor %g)", ls_rope_kind_name(c->rope.kind), c->rope.factor);
    fprintf(out, ", norm eps %g\n", (double)c->rms_eps);
    int32_t n_local = 0;
    for (int32_t l = 0; l < c->n_layers; l++)
        n_local += c->local[l];
    if (n_local > 0) {
        line(out, "local");
        fprintf(out, "%" PRId32 " of %" PRId32 " layers", n_local, c->n_layers);
        if (c->window)
            fprintf(out, ", a window of %" PRId32 " keys", c->window);
        if (c->rope_theta_local > 0)
            fprintf(out, ", rope theta %g", c->rope_theta_local);
        fputc('\n', out);
    }
    line(out, "head");
    fputs(m->weights->head.data == m->weights->embed.data ? "the embedding (tied)\n" : "its own\n",
          out);
    line(out, "begin id");
    if (c->bos < 0)
        fputs("none", out);
    else
        put_token(out, m->tokenizer, c->bos);
    fputc('\n', out);
    line(out, "end ids");
    if (c->n_eos == 0)
        fputs("none: only the length limit ends a text", out);
    for (int32_t i = 0; i < c->n_eos; i++) {
        fputs(i ? ", " : "", out);
        put_token(out, m->tokenizer, c->eos[i]);
    }
    fputc('\n', out);
}

static ls_status put_tokenizer(FILE *out, const ls_model *m, ls_err *err) {
    line(out, "tokenizer");
    const ls_tokenizer *tok = m->tokenizer;
    if (!tok && ls_checkpoint_gguf(m->checkpoint)) {
        put_stored_tokenizer(out, ls_checkpoint_gguf(m->checkpoint));
        return LS_OK;
    }
    if (!tok) {
        fputs("none: the folder has no tokenizer.json\n", out);
        return LS_OK;
    }
    fprintf(out, "%s BPE, %zu tokens, %zu merges, ids below %" PRId32 " of %" PRId32 " rows\n",
            ls_tokenizer_byte_level(tok) ? "byte-level" : "SentencePiece",
            ls_tokenizer_n_tokens(tok), ls_tokenizer_n_merges(tok), ls_tokenizer_size(tok),
            m->config.n_vocab);
    if (ls_tokenizer_warning(tok)) {
        line(out, "warning");
        fprintf(out, "%s\n", ls_tokenizer_warning(tok));
    }
    put_gaps(out, tok);
    char hex[LS_SHA256_HEX];
    LS_TRY(ls_tokenizer_digest(tok, hex, err));
    line(out, "vocabulary");
    fprintf(out, "sha256 %s\n", hex);
    return LS_OK;
}

/* The file's own word for itself. */
static void put_name(FILE *out, const ls_gguf *g) {
    char shown[128];
    ls_gguf_str s;
    size_t n = 0;
    line(out, "file");
    fprintf(out, "GGUF version %" PRIu32 ", ", ls_gguf_version(g));
    ls_gguf_bytes(g, &n);
    put_size(out, (double)n, "B");
    const ls_gguf_value *v = ls_gguf_find(g, "general.name");
    if (v && ls_gguf_as_string(v, &s))
        fprintf(out, ", \"%s\"", ls_err_text(shown, sizeof shown, s.s, s.n));
    fputc('\n', out);
}

/* What keys and values take: of one token, and of a text as long as the model was made for. */
static void put_cache(FILE *out, const ls_config *c) {
    const double token = 2.0 * c->n_layers * c->n_kv * c->head_dim * (double)sizeof(float);
    line(out, "cache");
    put_size(out, token, "B");
    fputs(" a token in f32, ", out);
    put_size(out, token * c->n_pos, "B");
    fputs(" for the whole context; half in bf16\n", out);
}

static ls_status put_model(FILE *out, const ls_model *m, ls_err *err) {
    char shown[256], hex[LS_SHA256_HEX];
    line(out, "model");
    fprintf(out, "%s\n", ls_err_text(shown, sizeof shown, m->dir, strlen(m->dir)));
    if (ls_checkpoint_gguf(m->checkpoint))
        put_name(out, ls_checkpoint_gguf(m->checkpoint));
    put_config(out, m);
    put_weights(out, m);
    put_cache(out, &m->config);
    LS_TRY(put_tokenizer(out, m, err));
    LS_TRY(ls_checkpoint_digest(m->checkpoint, hex, err));
    line(out, "digest");
    fprintf(out, "sha256 %s\n", hex);
    return LS_OK;
}

static void put_pair(FILE *out, const ls_model *target, const ls_model *draft) {
    ls_err why = {0};
    int32_t n = 0;
    line(out, "pair");
    if (ls_model_pair(target, draft, &n, &why) != LS_OK) {
        fprintf(out, "no: %s\n", why.msg);
        return;
    }
    fprintf(out, "yes: the same %" PRId32 " tokens; the draft has %.2g of the target's parameters",
            n, (double)draft->weights->n_params / (double)target->weights->n_params);
    if (draft->config.n_pos < target->config.n_pos)
        fprintf(out, "; the draft stops at position %" PRId32 ", the target goes on alone",
                draft->config.n_pos);
    fputc('\n', out);
}

ls_status ls_inspect_print(FILE *out, const char *dir, const char *dir2, ls_err *err) {
    const ls_model_options options = {.partial_bytes = true};
    ls_model *a = NULL, *b = NULL;
    ls_status s = ls_model_open(dir, options, &a, err);
    if (s == LS_OK && dir2)
        s = ls_model_open(dir2, options, &b, err);
    if (s == LS_OK)
        s = put_model(out, a, err);
    if (s == LS_OK && b) {
        fputc('\n', out);
        s = put_model(out, b, err);
    }
    if (s == LS_OK && b) {
        fputc('\n', out);
        put_pair(out, a, b);
    }
    ls_model_close(b);
    ls_model_close(a);
    return s;
}
