/* cmd_generate.c - `lockstep generate`: a prompt in, text out as it is accepted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "commands.h"
#include "file.h"
#include "gguf_tokenizer.h"
#include "record.h"
#include "setup.h"
#include "show.h"
#include "term.h"

#define PROMPT_MAX ((size_t)16 << 20)

typedef struct own {
    const char *prompt, *prompt_file, *system, *policy;
    float temperature;
    bool chat, show_drafts, compare, json, quiet;
    int color;
} own;

#define AT(field) offsetof(own, field)
static const ls_opt own_opts[] = {
    {"prompt", "TEXT", "what to go on from", LS_OPT_TEXT, AT(prompt), 0, 0, NULL},
    {"prompt-file", "FILE", "the same from a file; - is standard input", LS_OPT_TEXT,
     AT(prompt_file), 0, 0, NULL},
    {"chat", NULL, "the prompt is a user's turn in the model's own chat template", LS_OPT_FLAG,
     AT(chat), 0, 0, NULL},
    {"system", "TEXT", "with --chat: the system text", LS_OPT_TEXT, AT(system), 0, 0, NULL},
    {"policy", "NAME|FILE",
     "how much to draft: fixed:4 (default), a name from\n"
     "policies/length, or a Lua file; svip:h=0.4",
     LS_OPT_TEXT, AT(policy), 0, 0, NULL},
    {"temperature", "T", "0 (default) is greedy", LS_OPT_NUMBER, AT(temperature), 0, 1000, NULL},
    {"show-drafts", NULL, "also show the drafted tokens that were refused", LS_OPT_FLAG,
     AT(show_drafts), 0, 0, NULL},
    {"compare", NULL, "decode plainly as well, and compare time and tokens", LS_OPT_FLAG,
     AT(compare), 0, 0, NULL},
    {"json", NULL, "print one JSON record instead of the text", LS_OPT_FLAG, AT(json), 0, 0, NULL},
    {"color", LS_TERM_COLORS, "colours on standard output", LS_OPT_CHOICE, AT(color), 0, 0, NULL},
    {"quiet", NULL, "no summary line", LS_OPT_FLAG, AT(quiet), 0, 0, NULL},
};
#undef AT

typedef struct job {
    own a;
    ls_model_args model;
    ls_decode_args decode;
    ls_term term;
    ls_setup setup;
    ls_policy *policy;
    char policy_options[256];
    ls_rule *rule;
    ls_ids prompt;
    int32_t eos[LS_EOS_MAX + 1]; /* the model's, and what ends a turn */
    int32_t n_eos;               /* 0: the model's */
    ls_show show;
    ls_gen gen;
    ls_transcript spec, plain;
    ls_metrics metrics;
    int32_t token[LS_DRAFT_MAX + 1]; /* of the round that is running */
    bool drafted[LS_DRAFT_MAX + 1];
    ls_status shown; /* what showing ended with; the run stops on it */
    ls_err *err;
} job;

/* ---- the prompt ------------------------------------------------------------------------------ */

static ls_status read_stdin(char **out, size_t *n, ls_err *err) {
    ls_text text = {0};
    char buffer[65536];
    size_t got;
    ls_status s = LS_OK;
    while (s == LS_OK && (got = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        s = text.n + got > PROMPT_MAX
                ? ls_fail(err, LS_ERR_INPUT, "standard input: a prompt of more than 16 MiB")
                : ls_text_append(&text, buffer, got, err);
    if (s == LS_OK && ferror(stdin))
        s = ls_fail(err, LS_ERR_IO, "standard input: cannot be read: %s", strerror(errno));
    *out = text.s; /* the caller's to free, also after an error */
    *n = text.n;
    return s;
}

/* The text as a turn of the model's own chat template, which the turn's end token ends as well. */
static ls_status encode_turn(job *j, const char *text, size_t n, ls_encode_info *info,
                             ls_err *err) {
    const ls_model *m = j->setup.target;
    ls_chat chat;
    LS_TRY(ls_chat_open(m->dir, ls_checkpoint_gguf(m->checkpoint), &chat, err));
    const ls_status s = ls_chat_encode(&chat, m->tokenizer, m->config.bos, j->a.system, text, n,
                                       &j->prompt, info, err);
    const int32_t end = ls_chat_end(&chat, m->tokenizer);
    ls_chat_free(&chat);
    if (end >= 0 && !ls_config_is_eos(&m->config, end)) {
        for (; j->n_eos < m->config.n_eos; j->n_eos++)
            j->eos[j->n_eos] = m->config.eos[j->n_eos];
        j->eos[j->n_eos++] = end;
    }
    return s;
}

static ls_status encode_text(job *j, const char *text, size_t n, ls_encode_info *info,
                             ls_err *err) {
    if (n == 0)
        return ls_fail(err, LS_ERR_INPUT, "the prompt is empty");
    if (j->a.chat)
        return encode_turn(j, text, n, info, err);
    return ls_tokenizer_encode(j->setup.target->tokenizer, text, n, LS_ENCODE_TEMPLATE, &j->prompt,
                               info, err);
}

/* What the command line alone says, before a model is read. */
static ls_status check_options(const own *a, ls_err *err) {
    if (!a->prompt == !a->prompt_file)
        return ls_fail(err, LS_ERR_INPUT,
                       "give --prompt TEXT or --prompt-file FILE (- is standard input)%s",
                       a->prompt ? ", not both" : "");
    if (a->prompt && !*a->prompt)
        return ls_fail(err, LS_ERR_INPUT, "the prompt is empty");
    if (a->system && !a->chat)
        return ls_fail(err, LS_ERR_INPUT, "--system goes with --chat");
    return LS_OK;
}

static ls_status read_prompt(job *j, ls_err *err) {
    const own *a = &j->a;
    const char *text = a->prompt;
    size_t n = text ? strlen(text) : 0;
    char *owned = NULL;
    ls_status status = LS_OK;
    if (a->prompt_file) {
        status = strcmp(a->prompt_file, "-") == 0
                     ? read_stdin(&owned, &n, err)
                     : ls_file_read(a->prompt_file, NULL, PROMPT_MAX, &owned, &n, err);
        text = owned;
    }
    ls_encode_info info = {0};
    if (status == LS_OK)
        status = encode_text(j, text, n, &info, err);
    free(owned);
    LS_TRY(status);
    if (info.double_bos)
        fprintf(stderr, "lockstep generate: note: the prompt spells a begin-of-text token, and the "
                        "tokenizer adds another\n");
    if (info.n_replaced)
        fprintf(stderr, "lockstep generate: note: %zu parts of the prompt are not UTF-8\n",
                info.n_replaced);
    return LS_OK;
}

/* ---- as it runs ------------------------------------------------------------------------------ */

static void on_token(void *self, int32_t position, int32_t token, int32_t index, bool drafted,
                     const float *row, int32_t n_vocab) {
    job *j = self;
    (void)position, (void)row, (void)n_vocab;
    if (index <= LS_DRAFT_MAX)
        j->token[index] = token, j->drafted[index] = drafted;
}

static ls_status show_round(job *j, const ls_round *r, const int32_t *draft, ls_err *err) {
    const bool rejected = j->a.show_drafts && r->proposed > r->accepted;
    for (int32_t i = 0; i < r->emitted; i++) {
        if (i == r->accepted && rejected)
            LS_TRY(ls_show_rejected(&j->show, draft + i, r->proposed - i, err));
        LS_TRY(ls_show_token(&j->show, j->token[i],
                             j->drafted[i] ? LS_STYLE_DRAFTED : LS_STYLE_TARGET, err));
    }
    return LS_OK;
}

static void on_round(void *self, const ls_round *r, const int32_t *draft,
                     const ls_row_stats *stats) {
    job *j = self;
    (void)stats;
    if (j->shown == LS_OK && !j->a.json)
        j->shown = show_round(j, r, draft, j->err);
}

static bool on_stop(void *self) {
    const job *j = self;
    return j->shown != LS_OK || ls_term_stopped(NULL);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static double ms_per_token(const ls_transcript *t) {
    return t->n_token ? (t->total_us - t->prefill_us) / t->n_token / 1000 : 0;
}

static bool same_tokens(const ls_transcript *a, const ls_transcript *b) {
    return a->n_token == b->n_token && a->end == b->end &&
           memcmp(a->token, b->token, (size_t)a->n_token * sizeof *a->token) == 0;
}

static void summary(const job *j) {
    const ls_transcript *t = &j->spec;
    const ls_metrics *m = &j->metrics;
    double v;
    fprintf(stderr, "%d tokens in %lld passes", t->n_token, (long long)m->n_round);
    if (ls_rate_get(ls_metrics_per_pass(m), &v))
        fprintf(stderr, ", %.2f a pass", v);
    if (ls_rate_get(ls_metrics_acceptance(m), &v))
        fprintf(stderr, "; acceptance %.3f (%lld of %lld judged)", v, (long long)m->n_accepted,
                (long long)m->n_evaluated);
    else
        fprintf(stderr, "; nothing was drafted");
    fprintf(stderr, "; %.2f ms a token; seed %llu; ended by %s\n", ms_per_token(t),
            (unsigned long long)j->decode.seed.value, ls_end_name(t->end));
    if (!j->a.compare)
        return;
    fprintf(stderr, "plain: %.2f ms a token; speculative takes %.2f of its time; ",
            ms_per_token(&j->plain), ms_per_token(t) / ms_per_token(&j->plain));
    if (same_tokens(t, &j->plain))
        fputs("the same tokens\n", stderr);
    else
        fprintf(stderr, "other tokens (rule %s is %s)\n", j->rule->name,
                ls_rule_kind_name(j->rule->kind));
}

static json_t *rounds_json(const ls_transcript *t) {
    json_t *out = json_array();
    for (int32_t i = 0; i < t->n_round; i++) {
        const ls_round *r = &t->round[i];
        json_array_append_new(out, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "position",
                                             r->position, "planned", r->planned, "proposed",
                                             r->proposed, "evaluated", r->evaluated, "accepted",
                                             r->accepted, "emitted", r->emitted));
    }
    return out;
}

static ls_status print_record(const job *j, ls_err *err) {
    json_t *record;
    LS_TRY(ls_record_setup("generate", &j->setup, &record, err));
    ls_text text = {0};
    ls_status status = ls_tokenizer_decode(j->setup.target->tokenizer, j->spec.token,
                                           (size_t)j->spec.n_token, true, &text, err);
    if (status != LS_OK) {
        json_decref(record);
        return status;
    }
    const size_t n_text = text.n - (size_t)j->spec.n_text_cut;
    json_object_set_new(record, "policy", ls_record_policy(j->policy, j->policy_options));
    json_object_set_new(record, "rule", ls_record_rule(j->rule));
    json_object_set_new(record, "sampling", ls_record_warp(&j->gen.warp));
    json_object_set_new(record, "seed", json_integer((json_int_t)j->decode.seed.value));
    json_object_set_new(record, "n_prompt", json_integer(j->gen.n_prompt));
    json_object_set_new(record, "text", n_text ? json_stringn(text.s, n_text) : json_string(""));
    json_object_set_new(record, "tokens", ls_record_tokens(j->spec.token, j->spec.n_token));
    json_object_set_new(record, "end", json_string(ls_end_name(j->spec.end)));
    json_object_set_new(record, "digest", json_string(j->spec.digest));
    json_object_set_new(record, "metrics", ls_record_metrics(&j->metrics));
    json_object_set_new(record, "rounds", rounds_json(&j->spec));
    json_object_set_new(record, "prefill_us", json_real(j->spec.prefill_us));
    json_object_set_new(record, "total_us", json_real(j->spec.total_us));
    if (j->a.compare)
        json_object_set_new(record, "plain",
                            json_pack("{s:b, s:s, s:f, s:f}", "same",
                                      same_tokens(&j->spec, &j->plain), "digest", j->plain.digest,
                                      "prefill_us", j->plain.prefill_us, "total_us",
                                      j->plain.total_us));
    ls_text_free(&text);
    return ls_record_write(record, "-", false, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static ls_status decode(job *j, ls_err *err) {
    ls_status status = ls_generate(&j->gen, &j->spec, err);
    if (!j->a.json && (status == LS_OK || j->spec.n_token > 0))
        LS_TRY(ls_show_end(&j->show, status == LS_OK ? err : NULL));
    LS_TRY(j->shown);
    if (status != LS_OK && status != LS_ERR_STOPPED)
        return status;
    LS_TRY(ls_metrics_add_all(&j->metrics, j->spec.round, j->spec.n_round, err));
    if (status == LS_OK && j->a.compare) {
        ls_gen plain = j->gen;
        plain.drafter = NULL, plain.policy = NULL, plain.rule = NULL;
        plain.hooks = (ls_gen_hooks){.stop = ls_term_stopped};
        LS_TRY(ls_generate(&plain, &j->plain, err));
    }
    return status;
}

static ls_status prepare(job *j, ls_err *err) {
    j->model.load = ls_term_load(&j->term);
    const ls_status opened = ls_setup_open(&j->model, &j->setup, err);
    ls_term_clear(&j->term);
    LS_TRY(opened);
    const ls_tokenizer *tok = j->setup.target->tokenizer;
    const ls_gguf *gguf = ls_checkpoint_gguf(j->setup.target->checkpoint);
    if (!tok && gguf)
        return ls_gguf_tokenizer_refuse(gguf, err);
    if (!tok)
        return ls_fail(err, LS_ERR_INPUT,
                       "%s has no tokenizer.json: text cannot be read or shown; copy it from where "
                       "the model is from, or give token ids in a script (lockstep run)",
                       j->setup.target->dir);
    LS_TRY(read_prompt(j, err));
    LS_TRY(ls_setup_policy(&j->setup, j->a.policy, &j->decode.option, &j->policy, j->policy_options,
                           err));
    LS_TRY(ls_setup_rule(&j->setup, j->decode.rule, &j->rule, err));
    if (!j->decode.seed.given)
        LS_TRY(ls_fresh_seed(&j->decode.seed, err));
    j->gen = (ls_gen){.target = j->setup.engine,
                      .drafter = j->setup.drafter,
                      .policy = j->policy,
                      .rule = j->rule,
                      .prompt = j->prompt.id,
                      .n_prompt = (int32_t)j->prompt.n,
                      .max_new = j->decode.max_new,
                      .warp = {.temperature = j->a.temperature,
                               .top_k = j->decode.top_k,
                               .top_p = j->decode.top_p,
                               .min_p = j->decode.min_p},
                      .seed = j->decode.seed.value,
                      .ignore_eos = j->decode.ignore_eos,
                      .eos = j->eos,
                      .n_eos = j->n_eos,
                      .stop = j->decode.stop.item,
                      .n_stop = j->decode.stop.n,
                      .tokenizer = tok,
                      .hooks = {.self = j, .token = on_token, .round = on_round, .stop = on_stop}};
    return ls_show_begin(&j->show, stdout, &j->term, tok, j->gen.stop, j->gen.n_stop, err);
}

static ls_status work(job *j, ls_err *err) {
    LS_TRY(prepare(j, err));
    ls_status status = decode(j, err);
    if (status != LS_OK && status != LS_ERR_STOPPED)
        return status;
    if (j->a.json && status == LS_OK)
        LS_TRY(print_record(j, err));
    else if (!j->a.quiet && !j->a.json)
        summary(j);
    LS_TRY(status);
    if (j->a.compare && j->rule->kind == LS_RULE_EXACT && !same_tokens(&j->spec, &j->plain))
        return ls_fail(
            err, LS_ERR_CHECK,
            "the tokens are not those of plain decode: lockstep check says where and why");
    return LS_OK;
}

static ls_status run(const ls_command *self, int argc, char **argv, ls_err *err) {
    job j = {.a = {.policy = "fixed:4"},
             .model = ls_model_args_default(),
             .decode = ls_decode_args_default(),
             .err = err};
    const ls_opt_group groups[] = {{"Generate", own_opts, sizeof own_opts / sizeof *own_opts, &j.a},
                                   ls_decode_group(&j.decode),
                                   ls_model_group(&j.model)};
    ls_args args;
    LS_TRY(ls_options_parse(self, groups, 3, false, argc, argv, &args, err));
    if (args.help)
        return LS_OK;
    if (args.n_pos)
        return ls_fail(err, LS_ERR_INPUT,
                       "the prompt goes behind --prompt: try lockstep generate "
                       "--help");
    LS_TRY(check_options(&j.a, err));
    j.term = ls_term_open(j.a.color, j.a.quiet);
    ls_status status = work(&j, err);
    ls_transcript_free(&j.plain);
    ls_transcript_free(&j.spec);
    ls_show_free(&j.show);
    ls_ids_free(&j.prompt);
    ls_rule_destroy(j.rule);
    ls_policy_destroy(j.policy);
    ls_setup_close(&j.setup);
    return status;
}

const ls_command ls_cmd_generate = {
    .name = "generate",
    .line = "continue a prompt, drafted tokens and the target's own in their colours",
    .usage = "--prompt TEXT [OPTIONS]",
    .about =
        "Decodes speculatively: a drafter proposes tokens, the target judges them all in one "
        "pass.\nUnder the default rule the text is bit for bit that of plain decoding, whatever "
        "drafter\nand policy are chosen; they only decide how fast it comes.",
    .examples =
        "  lockstep generate --prompt \"Once upon a time\"\n"
        "  lockstep generate --prompt \"The sea\" --policy svip --show-drafts --compare\n"
        "  lockstep generate --prompt \"The sea\" --temperature 0.8 --top-p 0.95 --seed 7 --json\n"
        "  lockstep generate --target DIR --drafter ngram --chat --prompt \"Why is the sky "
        "blue?\"\n"
        "  lockstep generate --target DIR --drafter ngram --prompt-file - < notes.txt\n",
    .run = run,
};
