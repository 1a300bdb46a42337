#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gguf_config.h"
#include "gguf_tokenizer.h"

static bool has_file(const char *dir, const char *name) {
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *path = malloc(n);
    struct stat st;
    if (!path)
        return true; /* let the reader report it */
    strcpy(path, dir);
    strcat(path, "/");
    strcat(path, name);
    const bool found = stat(path, &st) == 0;
    free(path);
    return found;
}

/* The tokenizer is there: how many ids it knows, each with a row in the embedding. */
static ls_status count_tokens(ls_model *m, const char *file, ls_err *err) {
    m->n_token = ls_tokenizer_size(m->tokenizer);
    if (m->n_token > m->config.n_vocab)
        return ls_fail(err, LS_ERR_INPUT,
                       "%s%s: id %d has no row in the embedding of %d: the tokenizer "
                       "belongs to another model",
                       m->dir, file, m->n_token - 1, m->config.n_vocab);
    return LS_OK;
}

static ls_status open_gguf(ls_model *m, ls_model_options o, ls_err *err) {
    const ls_checkpoint_options how = {.widen = o.widen, .load = o.load};
    LS_TRY(ls_checkpoint_open_with(m->dir, how, &m->checkpoint, err));
    const ls_gguf *g = ls_checkpoint_gguf(m->checkpoint);
    LS_TRY(ls_gguf_config_read(g, &m->config, err));
    LS_TRY(ls_weights_bind(m->checkpoint, &m->config, o.head, &m->weights, err));
    m->n_token = m->config.n_vocab;
    if (o.no_tokenizer)
        return LS_OK;
    const ls_tokenizer_options topt = {.partial_bytes = o.partial_bytes};
    LS_TRY(ls_gguf_tokenizer_open(g, &topt, &m->tokenizer, err));
    return m->tokenizer ? count_tokens(m, "", err) : LS_OK;
}

static ls_status open_parts(ls_model *m, ls_model_options o, ls_err *err) {
    struct stat st;
    if (ls_gguf_is(m->dir))
        return open_gguf(m, o, err);
    if (stat(m->dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: not a folder: give a Hugging Face model folder (config.json, "
                       "model.safetensors, tokenizer.json), or a GGUF file",
                       m->dir);
    LS_TRY(ls_config_read(m->dir, &m->config, err));
    LS_TRY(ls_checkpoint_open(m->dir, &m->checkpoint, err));
    LS_TRY(ls_weights_bind(m->checkpoint, &m->config, o.head, &m->weights, err));
    m->n_token = m->config.n_vocab;
    if (o.no_tokenizer || !has_file(m->dir, "tokenizer.json"))
        return LS_OK;
    const ls_tokenizer_options topt = {.partial_bytes = o.partial_bytes};
    LS_TRY(ls_tokenizer_open(m->dir, &topt, &m->tokenizer, err));
    return count_tokens(m, "/tokenizer.json", err);
}

ls_status ls_model_open(const char *dir, ls_model_options options, ls_model **out, ls_err *err) {
    ls_model *m = calloc(1, sizeof *m);
    if (m)
        m->dir = malloc(strlen(dir) + 1);
    if (!m || !m->dir) {
        free(m);
        return ls_fail(err, LS_ERR_MEMORY, "%s: out of memory", dir);
    }
    strcpy(m->dir, dir);
    ls_status s = open_parts(m, options, err);
    if (s != LS_OK) {
        ls_model_close(m);
        return s;
    }
    *out = m;
    return LS_OK;
}

void ls_model_close(ls_model *m) {
    if (!m)
        return;
    ls_tokenizer_destroy(m->tokenizer);
    ls_weights_destroy(m->weights);
    ls_checkpoint_close(m->checkpoint);
    free(m->dir);
    free(m);
}

ls_status ls_model_pair(const ls_model *target, const ls_model *draft, int32_t *n_vocab,
                        ls_err *err) {
    if (target->tokenizer && draft->tokenizer) {
        ls_status s = ls_tokenizer_same(target->tokenizer, draft->tokenizer, err);
        if (s != LS_OK)
            return ls_fail_in(err, s, "%s cannot draft for %s", draft->dir, target->dir);
    } else if (target->config.n_vocab != draft->config.n_vocab) {
        return ls_fail(err, LS_ERR_INPUT,
                       "%s cannot draft for %s: vocabularies of %d and %d, and no tokenizers to "
                       "compare: add tokenizer.json to both",
                       draft->dir, target->dir, draft->config.n_vocab, target->config.n_vocab);
    }
    *n_vocab = target->n_token < draft->n_token ? target->n_token : draft->n_token;
    return LS_OK;
}
