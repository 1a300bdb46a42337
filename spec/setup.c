#include "setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua_policy.h"
#include "lua_rule.h"

#define GPU_ROWS 512 /* of a prompt at once, where a pass of many rows costs little more than one */
#define CONTEXT_DEFAULT 4096 /* models promise far longer texts than a study's cache should hold */
#define NGRAM_MIN 1
#define NGRAM_MAX 3

/* ---- option groups --------------------------------------------------------------------------- */

ls_model_args ls_model_args_default(void) {
    return (ls_model_args){.device.device = LS_DEVICE_CPU};
}

ls_decode_args ls_decode_args_default(void) {
    return (ls_decode_args){.rule = "exact", .max_new = 256, .top_p = 1};
}

static ls_status parse_drafter(void *field, const char *value, ls_err *err) {
    static const char *const names[] = {"model", "ngram", "garbage", "none"};
    ls_drafter_arg *d = field;
    for (int i = 0; i < 4; i++)
        if (strcmp(value, names[i]) == 0) {
            *d = (ls_drafter_arg){.kind = (ls_drafter_kind)i};
            return LS_OK;
        }
    int64_t n;
    if (strncmp(value, "layers:", 7) == 0 && ls_parse_int(value + 7, 1, 4096, &n, NULL) == LS_OK) {
        *d = (ls_drafter_arg){.kind = LS_USE_LAYERS, .layers = (int32_t)n};
        return LS_OK;
    }
    return ls_fail(err, LS_ERR_INPUT, "it must be model, ngram, layers:N, garbage or none");
}

#define AT(field) offsetof(ls_model_args, field)
static const ls_opt model_opts[] = {
    {"target", "DIR", "Hugging Face model folder or GGUF file; without it the embedded pair",
     LS_OPT_TEXT, AT(target), 0, 0, NULL},
    {"draft", "DIR", "model that drafts; its vocabulary is the target's", LS_OPT_TEXT, AT(draft), 0,
     0, NULL},
    {"drafter", "model|ngram|layers:N|garbage|none",
     "where drafts come from: the draft model, prompt look-up,\n"
     "the target's own first N layers, random tokens (the worst\n"
     "case), nowhere (plain decode)",
     LS_OPT_OTHER, AT(drafter), 0, 0, parse_drafter},
    {"context", "N", "tokens the cache holds (default: the model's, at most 4096)", LS_OPT_INT,
     AT(context), 1, 16777216, NULL},
    {"kv", "f32|bf16", "how keys and values are stored", LS_OPT_CHOICE, AT(kv), 0, 0, NULL},
    {"block-rows", "N", "paged cache with blocks of N rows (default: contiguous)", LS_OPT_INT,
     AT(block_rows), 1, 65536, NULL},
    {"chunk", "RULE",
     "how attention splits a row's keys: even:MIN:MAX, splits:N\n"
     "or doubling:MIN:MAX (default even:32:64; mma: doubling:128:32)",
     LS_OPT_OTHER, AT(chunk), 0, 0, ls_parse_chunk},
    {"device", "NAME", "cpu (default), cuda or cuda:N", LS_OPT_OTHER, AT(device.device), 0, 0,
     ls_parse_device},
    {"profile", "ieee|mma|cublas",
     "arithmetic: ieee (the same bits on every device), mma (tensor\n"
     "cores), cublas (the conventional engine, which promises nothing)",
     LS_OPT_CHOICE, AT(device.profile), 0, 0, NULL},
    {"eager", NULL, "launch every pass anew; by default a GPU replays recorded ones", LS_OPT_FLAG,
     AT(eager), 0, 0, NULL},
    {"threads", "N", "threads of the CPU (default: all cores); the bits do not depend on it",
     LS_OPT_INT, AT(device.cpu.n_threads), 1, 1024, NULL},
    {"simd", "auto|plain|avx2|avx512", "instructions of the CPU; the bits do not depend on it",
     LS_OPT_CHOICE, AT(device.cpu.simd), 0, 0, NULL},
};
#undef AT

#define AT(field) offsetof(ls_decode_args, field)
static const ls_opt decode_opts[] = {
    {"rule", "NAME|FILE",
     "acceptance: exact (default), rejection, or a Lua rule,\n"
     "whose options follow a colon: typical:epsilon=0.1",
     LS_OPT_TEXT, AT(rule), 0, 0, NULL},
    {"option", "NAME=VALUE", "option of the policy; may be repeated", LS_OPT_LIST, AT(option), 0, 0,
     NULL},
    {"top-k", "N", "sample among the N likeliest tokens (0: all)", LS_OPT_INT, AT(top_k), 0,
     16777216, NULL},
    {"top-p", "P", "sample within this much probability mass (1: all)", LS_OPT_NUMBER, AT(top_p), 0,
     1, NULL},
    {"min-p", "P", "only tokens at least P times as likely as the likeliest", LS_OPT_NUMBER,
     AT(min_p), 0, 1, NULL},
    {"seed", "N", "seed of all draws (default: a fresh one, printed)", LS_OPT_SEED, AT(seed), 0, 0,
     NULL},
    {"max-new", "N", "tokens to generate at most (default 256; 0: up to the context)", LS_OPT_INT,
     AT(max_new), 0, 16777216, NULL},
    {"ignore-eos", NULL, "go on after an end-of-text token", LS_OPT_FLAG, AT(ignore_eos), 0, 0,
     NULL},
    {"stop", "TEXT", "end before this text; may be repeated", LS_OPT_LIST, AT(stop), 0, 0, NULL},
};
#undef AT

ls_opt_group ls_model_group(ls_model_args *a) {
    return (ls_opt_group){"Models and engine", model_opts, sizeof model_opts / sizeof *model_opts,
                          a};
}

ls_opt_group ls_decode_group(ls_decode_args *a) {
    return (ls_opt_group){"Decoding", decode_opts, sizeof decode_opts / sizeof *decode_opts, a};
}

ls_status ls_parse_device(void *field, const char *value, ls_err *err) {
    return ls_device_parse(value, field, err);
}

ls_status ls_parse_chunk(void *field, const char *value, ls_err *err) {
    return ls_chunk_parse(value, field, err);
}

ls_status ls_fresh_seed(ls_seed *seed, ls_err *err) {
    uint32_t word;
    FILE *f = fopen("/dev/urandom", "rb");
    const bool ok = f && fread(&word, sizeof word, 1, f) == 1;
    if (f)
        fclose(f);
    if (!ok)
        return ls_fail(err, LS_ERR_IO, "cannot read /dev/urandom: give --seed N");
    *seed = (ls_seed){.given = true, .value = word};
    return LS_OK;
}

/* ---- open ------------------------------------------------------------------------------------ */

static ls_status open_models(const ls_model_args *a, ls_setup *s, ls_err *err) {
    const char *target = a->target, *draft = a->draft;
    if (!target) {
        LS_TRY(ls_places_need_pair(&s->places, err));
        target = s->places.target;
        draft = draft ? draft : s->places.draft;
    }
    /* published vocabularies lack control bytes: text that needs one is refused, not the model */
    const ls_model_options options = {
        .no_tokenizer = a->no_tokenizer, .partial_bytes = true, .load = a->load};
    LS_TRY(ls_model_open(target, options, &s->target, err));
    s->n_vocab = s->target->n_token;
    if (a->drafter.kind != LS_USE_MODEL)
        return LS_OK;
    if (!draft)
        return ls_fail(err, LS_ERR_INPUT,
                       "--target without --draft: name a draft model, or take --drafter ngram "
                       "or layers:N");
    LS_TRY(ls_model_open(draft, options, &s->draft, err));
    return ls_model_pair(s->target, s->draft, &s->n_vocab, err);
}

static ls_status open_engine(const ls_setup *s, const ls_model *m, const ls_model_args *a,
                             int32_t n_layers, ls_engine **out, ls_err *err) {
    int32_t context = a->context ? a->context : CONTEXT_DEFAULT;
    /* a model that drafts may know shorter texts: it stops drafting there, and that is all */
    if (context > m->config.n_pos && (!a->context || m == s->draft))
        context = m->config.n_pos;
    const ls_engine_options o = {.max_rows = a->device.device == LS_DEVICE_CPU ? 0 : GPU_ROWS,
                                 .context = context,
                                 .block_rows = a->block_rows,
                                 .kv_dtype = a->kv == 1 ? LS_BF16 : LS_F32,
                                 .chunk = a->chunk,
                                 .n_layers = n_layers,
                                 .n_vocab = s->n_vocab,
                                 .eager = a->eager,
                                 /* a CPU reads them where they are */
                                 .load =
                                     a->device.device == LS_DEVICE_CPU ? (ls_load){0} : a->load};
    return ls_engine_create(m, s->be, o, out, err);
}

static ls_status open_drafter(const ls_model_args *a, ls_setup *s, ls_err *err) {
    const ls_config *c = &s->target->config;
    switch (a->drafter.kind) {
    case LS_USE_MODEL:
        LS_TRY(open_engine(s, s->draft, a, 0, &s->draft_engine, err));
        return ls_drafter_model(s->draft_engine, &s->drafter, err);
    case LS_USE_LAYERS:
        if (a->drafter.layers >= c->n_layers)
            return ls_fail(err, LS_ERR_INPUT, "--drafter layers:%d: %s has %d layers, take fewer",
                           a->drafter.layers, s->target->dir, c->n_layers);
        LS_TRY(open_engine(s, s->target, a, a->drafter.layers, &s->draft_engine, err));
        LS_TRY(ls_drafter_model(s->draft_engine, &s->drafter, err));
        s->drafter->name = "layers";
        return LS_OK;
    case LS_USE_NGRAM:
        return ls_drafter_ngram(NGRAM_MIN, NGRAM_MAX, c->eos, c->n_eos, &s->drafter, err);
    case LS_USE_GARBAGE:
        return ls_drafter_garbage(s->n_vocab, &s->drafter, err);
    default:
        return LS_OK;
    }
}

static ls_status open_all(const ls_model_args *a, ls_setup *s, ls_err *err) {
    LS_TRY(ls_places_find(&s->places, err));
    LS_TRY(open_models(a, s, err));
    LS_TRY(ls_device_open(&a->device, &s->be, err));
    LS_TRY(open_engine(s, s->target, a, 0, &s->engine, err));
    return open_drafter(a, s, err);
}

ls_status ls_setup_open(const ls_model_args *a, ls_setup *out, ls_err *err) {
    *out = (ls_setup){0};
    ls_status status = open_all(a, out, err);
    if (status != LS_OK)
        ls_setup_close(out);
    return status;
}

void ls_setup_close(ls_setup *s) {
    ls_drafter_destroy(s->drafter);
    ls_engine_destroy(s->draft_engine);
    ls_engine_destroy(s->engine);
    ls_backend_destroy(s->be);
    ls_model_close(s->draft);
    ls_model_close(s->target);
    ls_places_free(&s->places);
    *s = (ls_setup){0};
}

ls_status ls_setup_plain(const ls_setup *s, ls_chunk_rule chunk, ls_engine **out, ls_err *err) {
    ls_engine_options o = *ls_engine_opts(s->engine);
    o.block_rows = 0;
    if (chunk.max_chunks)
        o.chunk = chunk;
    return ls_engine_create(s->target, s->be, o, out, err);
}

/* ---- policies and rules ---------------------------------------------------------------------- */

typedef struct script_args {
    char text[512]; /* the options, cut into strings in place */
    ls_lua_option option[2 * LS_LIST_MAX];
    ls_lua_script_options lua;
    const char *path[1];
} script_args;

static ls_status add_option(script_args *a, char *pair, ls_err *err) {
    char *equals = strchr(pair, '=');
    char shown[96];
    if (!equals || equals == pair)
        return ls_fail(err, LS_ERR_INPUT, "option %s: give NAME=VALUE",
                       ls_err_text(shown, sizeof shown, pair, strlen(pair)));
    if (a->lua.n_option == 2 * LS_LIST_MAX)
        return ls_fail(err, LS_ERR_INPUT, "more than %d policy options", 2 * LS_LIST_MAX);
    *equals = 0;
    a->option[a->lua.n_option++] = (ls_lua_option){pair, equals + 1};
    return LS_OK;
}

/* `pairs` is "a=1,b=2" or NULL. */
static ls_status script_options(const ls_setup *s, const char *pairs, const ls_list *list,
                                script_args *a, ls_err *err) {
    *a = (script_args){0};
    size_t at = 0;
    const int32_t n_list = list ? list->n : 0;
    for (int32_t i = -1; i < n_list; i++) {
        const char *from = i < 0 ? pairs : list->item[i];
        if (!from)
            continue;
        const size_t n = strlen(from) + 1;
        if (n > sizeof a->text - at)
            return ls_fail(err, LS_ERR_INPUT, "the policy options are longer than %zu bytes",
                           sizeof a->text);
        char *pair = memcpy(a->text + at, from, n);
        at += n;
        for (char *comma; i < 0 && (comma = strchr(pair, ',')); pair = comma + 1) {
            *comma = 0;
            LS_TRY(add_option(a, pair, err));
        }
        LS_TRY(add_option(a, pair, err));
    }
    a->path[0] = s->places.policies;
    a->lua.path = a->path;
    a->lua.n_path = s->places.policies != NULL;
    a->lua.option = a->option;
    return LS_OK;
}

/* Cuts "NAME:REST" behind the last slash; *rest NULL without a colon. */
static ls_status split_name(const char *text, char name[256], const char **rest, ls_err *err) {
    const char *slash = strrchr(text, '/'), *colon = strchr(slash ? slash : text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n == 0 || n > 255)
        return ls_fail(err, LS_ERR_INPUT, "a policy name of %zu bytes", n);
    memcpy(name, text, n);
    name[n] = 0;
    *rest = colon ? colon + 1 : NULL;
    return LS_OK;
}

ls_status ls_setup_policy(const ls_setup *s, const char *text, const ls_list *option,
                          ls_policy **out, char options[256], ls_err *err) {
    char name[256];
    const char *rest = NULL;
    LS_TRY(split_name(text, name, &rest, err));
    if (strcmp(name, "fixed") == 0 && rest && !strchr(rest, '=')) {
        int64_t n;
        ls_status status = ls_parse_int(rest, 0, LS_DRAFT_MAX, &n, err);
        if (status != LS_OK)
            return ls_fail_in(err, status, "policy fixed:N");
        if (option && option->n)
            return ls_fail(err, LS_ERR_INPUT, "policy fixed:N takes no --option");
        snprintf(options, 256, "n=%d", (int)n);
        return ls_policy_fixed((int32_t)n, out, err);
    }
    script_args a;
    LS_TRY(script_options(s, rest, option, &a, err));
    LS_TRY(ls_lua_policy_load(name, &a.lua, out, err));
    snprintf(options, 256, "%s", ls_lua_policy_options(*out));
    return LS_OK;
}

ls_status ls_setup_rule(const ls_setup *s, const char *text, ls_rule **out, ls_err *err) {
    if (strcmp(text, "exact") == 0 || strcmp(text, "rejection") == 0)
        return ls_rule_builtin(text, out, err);
    char name[256];
    const char *rest = NULL;
    script_args a;
    LS_TRY(split_name(text, name, &rest, err));
    LS_TRY(script_options(s, rest, NULL, &a, err));
    return ls_lua_rule_load(name, &a.lua, out, err);
}
