/* chat.c - the renderers, and their ids. Recognising a template is chat_template.c. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

static const struct {
    const char *name;
    const char *marker[3]; /* have to be special tokens, the first ends a turn; NULL: none */
} kinds[] = {
    [LS_CHAT_CHATML] = {"ChatML", {"<|im_end|>", "<|im_start|>"}},
    [LS_CHAT_LLAMA3] = {"Llama 3", {"<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"}},
    [LS_CHAT_GEMMA] = {"Gemma", {"<end_of_turn>", "<start_of_turn>"}},
    [LS_CHAT_MISTRAL] = {"Mistral", {NULL}},
};

const char *ls_chat_kind_name(ls_chat_kind kind) {
    return kinds[kind].name;
}

void ls_chat_free(ls_chat *chat) {
    if (!chat)
        return;
    free(chat->name);
    free(chat->system);
    free(chat->dates);
    free(chat->open);
    free(chat->close);
    *chat = (ls_chat){0};
}

/* ---- text ------------------------------------------------------------------------------------ */

static void add(ls_chat_parts *p, const char *s, size_t n, bool plain) {
    if (n > 0)
        p->part[p->n++] = (ls_encode_part){s, n, plain};
}

/* The template's own words, in which special tokens are meant. */
static void own(ls_chat_parts *p, const char *s) {
    add(p, s, s ? strlen(s) : 0, false);
}

/* What Jinja's trim takes off: Python's white space. */
static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static void trim(const char **s, size_t *n) {
    const uint8_t *p = (const uint8_t *)*s, *end = p + *n;
    while (p < end) {
        const ls_utf8_step c = ls_utf8_next(p, (size_t)(end - p));
        if (!is_space(c.cp))
            break;
        p += c.len;
    }
    while (p < end) {
        const uint8_t *last = end - 1;
        while (last > p && end - last < 4 && (*last & 0xC0) == 0x80)
            last--;
        const ls_utf8_step c = ls_utf8_next(last, (size_t)(end - last));
        if (!is_space(c.cp) || last + c.len != end)
            break;
        end = last;
    }
    *s = (const char *)p;
    *n = (size_t)(end - p);
}

/* A person's words. */
static void words(ls_chat_parts *p, const ls_chat *c, const char *s, size_t n) {
    if (c->trim)
        trim(&s, &n);
    add(p, s, n, true);
}

/* ---- the renderers --------------------------------------------------------------------------- */

static void chatml(const ls_chat *c, const char *system, const char *user, size_t n_user,
                   ls_chat_parts *p) {
    if (system || c->system) {
        own(p, "<|im_start|>system\n");
        if (system)
            words(p, c, system, strlen(system));
        else
            own(p, c->system);
        own(p, "<|im_end|>\n");
    }
    own(p, "<|im_start|>user\n");
    words(p, c, user, n_user);
    own(p, "<|im_end|>\n<|im_start|>assistant");
    own(p, c->close);
}

static void llama3(const ls_chat *c, const char *system, const char *user, size_t n_user,
                   ls_chat_parts *p) {
    if (system || c->dates) {
        own(p, "<|start_header_id|>system<|end_header_id|>\n\n");
        own(p, c->dates);
        if (system)
            words(p, c, system, strlen(system));
        own(p, "<|eot_id|>");
    }
    own(p, "<|start_header_id|>user<|end_header_id|>\n\n");
    words(p, c, user, n_user);
    own(p, "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void gemma(const ls_chat *c, const char *system, const char *user, size_t n_user,
                  ls_chat_parts *p) {
    own(p, "<start_of_turn>user\n");
    if (system) { /* as it is: only the user's words are trimmed */
        add(p, system, strlen(system), true);
        own(p, "\n\n");
    }
    words(p, c, user, n_user);
    own(p, "<end_of_turn>\n<start_of_turn>model\n");
}

static void mistral(const ls_chat *c, const char *system, const char *user, size_t n_user,
                    ls_chat_parts *p) {
    own(p, c->open);
    if (system) {
        words(p, c, system, strlen(system));
        own(p, "\n\n");
    }
    words(p, c, user, n_user);
    own(p, c->close);
}

ls_status ls_chat_render(const ls_chat *c, const char *bos, const char *system, const char *user,
                         size_t n_user, ls_chat_parts *out, ls_err *err) {
    static void (*const render[])(const ls_chat *, const char *, const char *, size_t,
                                  ls_chat_parts *) = {chatml, llama3, gemma, mistral};
    *out = (ls_chat_parts){0};
    if (system && !c->has_system)
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: the chat template (%s) has no place for a system text: put it into the "
                       "prompt",
                       c->name, kinds[c->kind].name);
    if (c->bos)
        own(out, bos);
    render[c->kind](c, system, user, n_user, out);
    return LS_OK;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static ls_status need_special(const ls_chat *c, const ls_tokenizer *tok, const char *marker,
                              ls_err *err) {
    const int32_t id = ls_tokenizer_find(tok, marker);
    if (id >= 0 && ls_tokenizer_is_special(tok, id))
        return LS_OK;
    return ls_fail(
        err, LS_ERR_INPUT,
        "%s: the chat template is written with \"%s\", which is no special token of the "
        "tokenizer: anyone's text could spell it; render the prompt with the model's own "
        "tools",
        c->name, marker);
}

static ls_status bos_text(const ls_chat *c, const ls_tokenizer *tok, int32_t id, ls_text *out,
                          ls_err *err) {
    size_t n = 0;
    const uint8_t *s = ls_tokenizer_bytes(tok, id, &n);
    if (n == 0 || !ls_tokenizer_is_special(tok, id))
        return ls_fail(err, LS_ERR_INPUT,
                       "%s: the chat template begins with bos_token, and neither the model nor the "
                       "tokenizer says which token that is",
                       c->name);
    return ls_text_append(out, (const char *)s, n, err);
}

/* Is the marker in the ids as often as the template writes it? A tokenizer that reads it only
 * behind white space, say, or in normalized text, would spell it, and the turn would be without an
 * end. */
static ls_status need_read(const ls_chat *c, const ls_tokenizer *tok, const char *marker,
                           const ls_chat_parts *parts, const ls_ids *ids, size_t was, ls_err *err) {
    const int32_t want = ls_tokenizer_find(tok, marker);
    size_t n_written = 0, n_read = 0;
    for (size_t i = 0; i < parts->n; i++) /* the template's parts are zero-terminated */
        for (const char *p = parts->part[i].s; !parts->part[i].plain && (p = strstr(p, marker));
             p++)
            n_written++;
    for (size_t i = was; i < ids->n; i++)
        n_read += ids->id[i] == want;
    if (n_written == n_read)
        return LS_OK;
    char shown[80];
    return ls_fail(
        err, LS_ERR_INPUT,
        "%s: the chat template writes \"%s\" %zu times, which the tokenizer reads as its "
        "special token %zu times; render the prompt with the model's own tools",
        c->name, ls_err_text(shown, sizeof shown, marker, strlen(marker)), n_written, n_read);
}

static ls_status encode(const ls_chat *c, const ls_tokenizer *tok, const ls_chat_parts *parts,
                        const char *bos, ls_ids *out, ls_encode_info *info, ls_err *err) {
    const size_t was = out->n;
    /* the template says what goes before the text, the tokenizer's own does not apply */
    ls_status s = ls_tokenizer_encode_parts(tok, parts->part, parts->n, 0, out, info, err);
    for (int i = 0; i < 3 && kinds[c->kind].marker[i] && s == LS_OK; i++)
        s = need_read(c, tok, kinds[c->kind].marker[i], parts, out, was, err);
    if (s == LS_OK && c->bos)
        s = need_read(c, tok, bos, parts, out, was, err);
    if (s != LS_OK)
        out->n = was;
    return s;
}

ls_status ls_chat_encode(const ls_chat *c, const ls_tokenizer *tok, int32_t bos_id,
                         const char *system, const char *user, size_t n_user, ls_ids *out,
                         ls_encode_info *info, ls_err *err) {
    ls_chat_parts parts;
    ls_text bos = {0};
    for (int i = 0; i < 3 && kinds[c->kind].marker[i]; i++)
        LS_TRY(need_special(c, tok, kinds[c->kind].marker[i], err));
    if (c->bos)
        LS_TRY(bos_text(c, tok, bos_id >= 0 ? bos_id : ls_tokenizer_bos(tok), &bos, err));
    ls_status s = ls_chat_render(c, bos.s, system, user, n_user, &parts, err);
    if (s == LS_OK)
        s = encode(c, tok, &parts, bos.s, out, info, err);
    ls_text_free(&bos);
    return s;
}

int32_t ls_chat_end(const ls_chat *c, const ls_tokenizer *tok) {
    return kinds[c->kind].marker[0] ? ls_tokenizer_find(tok, kinds[c->kind].marker[0]) : -1;
}
