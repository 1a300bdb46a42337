/* chat_template.c - which renderer a chat template is, read off its markers and literals.
 *
 * What is looked at, and why that is enough for one user's turn:
 *   marker      one of four strings that only this family's templates have
 *   line ends   behind every <|im_end|> and <|end_header_id|>: a family's files agree on them
 *   literals    quoted texts: ChatML's default system text and beginning of the answer, Mistral's
 *               brackets with their spaces, Llama 3.1's lines of dates
 *   names       bos_token, trim, first_user_prefix, system_message: used, or not
 * A template that has a marker and fails one of the checks is refused. */
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "file.h"
#include "json.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

typedef struct reader {
    const char *s, *end; /* the template, which is zero-terminated at end */
    const char *name;
    ls_err *err;
} reader;

static ls_status refuse(const reader *r, const char *why) {
    return ls_fail(r->err, LS_ERR_INPUT,
                   "%s: the chat template is not one that --chat knows (ChatML, Llama 3, Gemma, "
                   "Mistral): %s; render the prompt with the model's own tools and give it with "
                   "--prompt-file",
                   r->name, why);
}

static bool has(const reader *r, const char *text) {
    return strstr(r->s, text) != NULL;
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool is_quote(char c) {
    return c == '\'' || c == '"';
}

/* The literal whose opening quote is at q, unescaped into out; *next: behind its closing quote.
 * False: no literal, or one with an escape that is not known. */
static bool literal(const reader *r, const char *q, ls_text *out, const char **next,
                    ls_status *status) {
    const char *p = q + 1;
    out->n = 0;
    *status = ls_text_append(out, "", 0, r->err);
    for (; *status == LS_OK && p < r->end && *p != *q; p++) {
        char c = *p;
        if (c == '\\') {
            c = *++p;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (!is_quote(c) && c != '\\')
                return false;
        }
        *status = ls_text_append(out, &c, 1, r->err);
    }
    *next = p + 1;
    return *status == LS_OK && p < r->end;
}

static const char *skip_spaces(const char *p) {
    while (*p == ' ')
        p++;
    return p;
}

/* Are there n line ends at p, spelled as escapes or as they are, perhaps in the next literal of a
 * sum? */
static bool line_ends(const char *p, int n) {
    for (; n > 0; n--) {
        if (is_quote(*p)) {
            const char *plus = skip_spaces(p + 1);
            if (*plus != '+')
                return false;
            plus = skip_spaces(plus + 1);
            if (!is_quote(*plus))
                return false;
            p = plus + 1;
        }
        if (*p == '\n')
            p += 1;
        else if (p[0] == '\\' && p[1] == 'n')
            p += 2;
        else
            return false;
    }
    return true;
}

static bool all_line_ends(const reader *r, const char *marker, int n) {
    for (const char *p = r->s; (p = strstr(p, marker)) != NULL;) {
        p += strlen(marker);
        if (!line_ends(p, n))
            return false;
    }
    return true;
}

static ls_status keep(const reader *r, const char *s, size_t n, char **out) {
    free(*out);
    *out = malloc(n + 1);
    if (!*out)
        return ls_fail(r->err, LS_ERR_MEMORY, "out of memory");
    memcpy(*out, s, n);
    (*out)[n] = 0;
    return LS_OK;
}

static bool starts(const ls_text *t, const char *head) {
    return t->n >= strlen(head) && memcmp(t->s, head, strlen(head)) == 0;
}

static bool ends(const ls_text *t, const char *tail) {
    const size_t n = strlen(tail);
    return t->n >= n && memcmp(t->s + t->n - n, tail, n) == 0;
}

/* ---- ChatML ---------------------------------------------------------------------------------- */

static const char system_head[] = "<|im_start|>system\n", turn_end[] = "<|im_end|>\n",
                  answer_head[] = "<|im_start|>assistant";

/* A literal that begins with the head of a system turn: only the head, with the message's own
 * content behind it; or a whole turn, which is the default. */
static ls_status system_literal(const reader *r, ls_chat *c, const ls_text *t, const char *next) {
    const size_t head = strlen(system_head), tail = strlen(turn_end);
    if (t->n == head) {
        const char *plus = skip_spaces(next);
        if (*plus != '+')
            return LS_OK;
        plus = skip_spaces(plus + 1);
        return strncmp(plus, "message", 7) == 0 || strncmp(plus, "system_message", 14) == 0
                   ? LS_OK
                   : refuse(r, "its system text is put together in an unknown way");
    }
    if (!ends(t, turn_end) || t->n <= head + tail)
        return refuse(r, "its system text is put together in an unknown way");
    const char *text = t->s + head;
    const size_t n = t->n - head - tail;
    if (c->system && (strlen(c->system) != n || memcmp(c->system, text, n) != 0))
        return refuse(r, "it has two default system texts");
    return keep(r, text, n, &c->system);
}

static ls_status chatml_literals(const reader *r, ls_chat *c, ls_text *t) {
    ls_status s = LS_OK;
    for (const char *p = r->s; (p = strstr(p, "<|im_start|>")) != NULL; p++) {
        const char *next = NULL;
        /* behind an escaped quote neither: each literal would be read to the template's end */
        if (p == r->s || !is_quote(p[-1]) || (p > r->s + 1 && p[-2] == '\\'))
            return refuse(r, "<|im_start|> stands outside of a literal");
        if (!literal(r, p - 1, t, &next, &s))
            return s != LS_OK ? s : refuse(r, "it has a literal with an unknown escape");
        if (starts(t, system_head)) {
            LS_TRY(system_literal(r, c, t, next));
        } else if (starts(t, answer_head)) {
            const char *rest = t->s + strlen(answer_head);
            if (t->n == strlen(answer_head) && *skip_spaces(next) == '+')
                return refuse(r, "the answer's beginning is put together in an unknown way");
            if (*rest == '\n') /* the last one is the answer's to come */
                LS_TRY(keep(r, rest, strlen(rest), &c->close));
        } else if (!starts(t, "<|im_start|>user") && t->n != strlen("<|im_start|>")) {
            return refuse(r, "it has turns of an unknown kind");
        }
    }
    return c->close ? LS_OK : refuse(r, "it does not begin an answer");
}

static ls_status read_chatml(const reader *r, ls_chat *c) {
    static const char *const unknown[] = {"strftime_now", "default_system", "|trim", "| trim"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (has(r, unknown[i]))
            return refuse(r, i == 0   ? "it puts today's date into the prompt"
                             : i == 1 ? "it has a default system text in a variable"
                                      : "it trims a message, which ChatML does not");
    if (!all_line_ends(r, "<|im_end|>", 1))
        return refuse(r, "an <|im_end|> is not followed by a line end");
    ls_text t = {0};
    c->has_system = true;
    const ls_status s = chatml_literals(r, c, &t);
    ls_text_free(&t);
    return s;
}

/* ---- Llama 3 --------------------------------------------------------------------------------- */

/* The literal that begins with `head`; false: there is none. */
static bool find_literal(const reader *r, const char *head, ls_text *t, ls_status *status) {
    for (const char *p = r->s; (p = strstr(p, head)) != NULL; p++) {
        const char *next = NULL;
        if (p > r->s && is_quote(p[-1]))
            return literal(r, p - 1, t, &next, status);
    }
    return false;
}

/* "Cutting Knowledge Date: ...\nToday Date: <the fallback>\n\n" */
static ls_status read_dates(const reader *r, ls_chat *c, ls_text *t, ls_text *all) {
    static const char set[] = "set date_string = ";
    ls_status s = LS_OK;
    if (!find_literal(r, "Cutting Knowledge Date: ", t, &s) || !ends(t, "\n"))
        return s != LS_OK ? s : refuse(r, "its lines of dates have an unknown form");
    LS_TRY(ls_text_append(all, t->s, t->n, r->err));
    if (!find_literal(r, "Today Date: ", t, &s) || t->n != strlen("Today Date: "))
        return s != LS_OK ? s : refuse(r, "its lines of dates have an unknown form");
    LS_TRY(ls_text_append(all, t->s, t->n, r->err));
    for (const char *p = r->s; (p = strstr(p, set)) != NULL; p++) {
        const char *q = p + strlen(set), *next = NULL;
        if (!is_quote(*q))
            continue;
        if (!literal(r, q, t, &next, &s))
            return s != LS_OK ? s : refuse(r, "its date has an unknown form");
        LS_TRY(ls_text_append(all, t->s, t->n, r->err));
        LS_TRY(ls_text_append(all, "\n\n", 2, r->err));
        return keep(r, all->s, all->n, &c->dates);
    }
    return refuse(r, "it has no date to fall back on");
}

static ls_status read_llama3(const reader *r, ls_chat *c) {
    if (!has(r, "<|eot_id|>") || !all_line_ends(r, "<|end_header_id|>", 2))
        return refuse(r, "a header is not followed by two line ends");
    c->has_system = true;
    if (!has(r, "Cutting Knowledge Date: "))
        return has(r, "strftime_now") ? refuse(r, "it puts today's date into the prompt") : LS_OK;
    ls_text t = {0}, all = {0};
    const ls_status s = read_dates(r, c, &t, &all);
    ls_text_free(&t);
    ls_text_free(&all);
    return s;
}

/* ---- Gemma and Mistral ----------------------------------------------------------------------- */

static ls_status read_gemma(const reader *r, ls_chat *c) {
    if (!has(r, "<end_of_turn>") || !all_line_ends(r, "<end_of_turn>", 1) ||
        !all_line_ends(r, "<start_of_turn>model", 1))
        return refuse(r, "a turn is not followed by a line end");
    c->has_system = has(r, "first_user_prefix");
    if (c->has_system && !has(r, "'\\n\\n'") && !has(r, "\"\\n\\n\"") && !has(r, "'\n\n'"))
        return refuse(r, "it puts a system text before the user's in an unknown way");
    return LS_OK;
}

/* The literal around `mark`, which has to be the same wherever it occurs, and one of these. */
static ls_status bracket(const reader *r, const char *mark, const char *const forms[3],
                         char **out) {
    for (const char *p = r->s; (p = strstr(p, mark)) != NULL; p++) {
        const char *begin = p, *end = p + strlen(mark);
        while (begin > r->s && begin[-1] == ' ')
            begin--;
        while (*end == ' ')
            end++;
        if (begin == r->s || !is_quote(begin[-1]) || *end != begin[-1])
            return refuse(r, "its brackets stand in an unknown form");
        const size_t n = (size_t)(end - begin);
        bool known = false;
        for (int i = 0; i < 3 && forms[i]; i++)
            known |= strlen(forms[i]) == n && memcmp(forms[i], begin, n) == 0;
        if (!known || (*out && (strlen(*out) != n || memcmp(*out, begin, n) != 0)))
            return refuse(r, "its brackets stand in several or unknown forms");
        if (!*out)
            LS_TRY(keep(r, begin, n, out));
    }
    return *out ? LS_OK : refuse(r, "it has no closing bracket");
}

static ls_status read_mistral(const reader *r, ls_chat *c) {
    static const char *const open[3] = {"[INST] ", " [INST] ", "[INST]"};
    static const char *const close[3] = {" [/INST]", "[/INST]", NULL};
    if (c->trim || has(r, ".strip("))
        return refuse(r, "it trims a message, which Mistral's do not");
    if (has(r, "<<SYS>>") || has(r, "[SYSTEM_PROMPT]") || has(r, "strftime_now"))
        return refuse(r, has(r, "<<SYS>>") ? "it is Llama 2's (<<SYS>>)"
                                           : "its system prompt has a form of its own");
    LS_TRY(bracket(r, "[INST]", open, &c->open));
    LS_TRY(bracket(r, "[/INST]", close, &c->close));
    c->has_system = has(r, "system_message");
    if (c->has_system && !has(r, "'\\n\\n'") && !has(r, "\"\\n\\n\"") && !has(r, "'\n\n'"))
        return refuse(r, "it puts a system text before the user's in an unknown way");
    return LS_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static ls_status recognise(const reader *r, ls_chat *c) {
    static const char *const marker[] = {
        [LS_CHAT_CHATML] = "<|im_start|>",
        [LS_CHAT_LLAMA3] = "<|start_header_id|>",
        [LS_CHAT_GEMMA] = "<start_of_turn>",
        [LS_CHAT_MISTRAL] = "[INST]",
    };
    static ls_status (*const read[])(const reader *, ls_chat *) = {read_chatml, read_llama3,
                                                                   read_gemma, read_mistral};
    int n = 0;
    for (int k = 0; k < 4; k++)
        if (has(r, marker[k])) {
            c->kind = (ls_chat_kind)k;
            n++;
        }
    if (n != 1)
        return refuse(r, n ? "it has the markers of two of them" : "it has none of their markers");
    c->bos = has(r, "bos_token");
    c->trim = has(r, "| trim") || has(r, "|trim");
    return read[c->kind](r, c);
}

ls_status ls_chat_parse(const char *text, size_t n, const char *name, ls_chat *out, ls_err *err) {
    *out = (ls_chat){0};
    if (n > TEMPLATE_BYTES_MAX)
        return ls_fail(err, LS_ERR_INPUT, "%s: a chat template of %zu bytes, at most %zu are read",
                       name, n, TEMPLATE_BYTES_MAX);
    char *copy = malloc(n + 1);
    reader r = {copy, copy + n, name, err};
    if (!copy)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: a chat template");
    memcpy(copy, text, n);
    copy[n] = 0;
    ls_status s = memchr(text, 0, n) ? refuse(&r, "it has a zero byte")
                                     : keep(&r, name, strlen(name), &out->name);
    if (s == LS_OK)
        s = recognise(&r, out);
    free(copy);
    if (s != LS_OK)
        ls_chat_free(out);
    return s;
}

/* ---- where a model keeps it ------------------------------------------------------------------ */

static ls_status none(const char *dir, ls_err *err) {
    return ls_fail(
        err, LS_ERR_INPUT,
        "%s has no chat template (chat_template in tokenizer_config.json, "
        "chat_template.jinja, or tokenizer.chat_template in a GGUF file): without --chat "
        "the prompt is taken as it is",
        dir);
}

/* A text, or a list of {name, template}. */
static ls_status read_config(const char *path, const char *dir, ls_chat *out, ls_err *err) {
    ls_json doc = {0};
    LS_TRY(ls_json_read(path, dir, (size_t)16 << 20, &doc, err));
    const ls_json_at root = ls_json_root(&doc);
    ls_json_at at = ls_json_key(&root, "chat_template");
    const char *text = NULL;
    size_t n = 0;
    ls_status s = LS_OK;
    if (json_is_array(at.value)) {
        for (size_t i = 0; i < json_array_size(at.value) && !text && s == LS_OK; i++) {
            const ls_json_at item = ls_json_item(&at, i), body = ls_json_key(&item, "template");
            const char *name = NULL;
            s = ls_json_string(&item, "name", &name, err);
            if (s == LS_OK && strcmp(name, "default") == 0)
                s = ls_json_as_string(&body, &text, &n, err);
        }
    } else if (!ls_json_none(&at)) {
        s = ls_json_as_string(&at, &text, &n, err);
    }
    if (s == LS_OK)
        s = text ? ls_chat_parse(text, n, path, out, err) : none(dir, err);
    ls_json_free(&doc);
    return s;
}

static ls_status read_folder(const char *dir, ls_chat *out, ls_err *err) {
    char *path = NULL, *text = NULL;
    size_t n = 0;
    LS_TRY(ls_file_join(dir, "chat_template.jinja", &path, err));
    ls_status s = LS_OK;
    if (ls_file_exists(path)) {
        s = ls_file_read(path, dir, TEMPLATE_BYTES_MAX, &text, &n, err);
        if (s == LS_OK)
            s = ls_chat_parse(text, n, path, out, err);
        free(text);
        free(path);
        return s;
    }
    free(path);
    LS_TRY(ls_file_join(dir, "tokenizer_config.json", &path, err));
    s = ls_file_exists(path) ? read_config(path, dir, out, err) : none(dir, err);
    free(path);
    return s;
}

ls_status ls_chat_open(const char *dir, const ls_gguf *gguf, ls_chat *out, ls_err *err) {
    *out = (ls_chat){0};
    if (!gguf)
        return read_folder(dir, out, err);
    const ls_gguf_value *v = ls_gguf_find(gguf, "tokenizer.chat_template");
    ls_gguf_str s;
    if (!v || !ls_gguf_as_string(v, &s))
        return none(dir, err);
    return ls_chat_parse(s.s, s.n, dir, out, err);
}
