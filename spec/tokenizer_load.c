/* tokenizer_load.c - the tables of a BPE model: tokens, their bytes, added tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"
#include "utf8.h"

/* ---- byte letters ---------------------------------------------------------------------------- */

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards. */
static bool is_own_letter(uint32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

uint32_t ls_tok_letter(uint8_t byte) {
    if (is_own_letter(byte))
        return byte;
    /* its place among those that are not: 00-20, 7F-A0, AD */
    return 256u + (byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7Fu + 33u : 67u);
}

int32_t ls_tok_unletter(uint32_t cp) {
    if (cp < 256)
        return is_own_letter(cp) ? (int32_t)cp : -1;
    uint32_t i = cp - 256;
    return i < 33 ? (int32_t)i : i < 67 ? (int32_t)(i - 33 + 0x7F) : i == 67 ? 0xAD : -1;
}

/* ---- spellings ------------------------------------------------------------------------------- */

static uint64_t hash(const char *data, size_t n) {
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v = 0;
        for (int i = 7; i >= 0; i--) /* the same on every byte order */
            v = v << 8 | p[i];
        h = (h ^ v) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* The slot that holds the spelling, or the empty one where it belongs; NULL: neither is near
 * enough, for the file's spellings were chosen to make searches long. */
static ls_tok_slot *find_slot(const ls_tokenizer *tok, const char *s, size_t n, uint32_t *tag) {
    const uint64_t h = hash(s, n);
    size_t mask = tok->n_slots - 1, i = (size_t)h & mask;
    *tag = (uint32_t)(h >> 32);
    for (size_t probe = 0; probe < LS_TOK_PROBES_MAX; probe++, i = (i + 1) & mask) {
        if (!tok->slot[i].next_id)
            return &tok->slot[i];
        if (tok->slot[i].tag != *tag)
            continue;
        const ls_tok_entry *e = &tok->token[tok->slot[i].next_id - 1];
        if (e->spell_n == n && memcmp(tok->spell + e->spell_at, s, n) == 0)
            return &tok->slot[i];
    }
    return NULL;
}

int32_t ls_tok_lookup(const ls_tokenizer *tok, const char *spelling, size_t n) {
    uint32_t tag;
    const ls_tok_slot *slot = find_slot(tok, spelling, n, &tag);
    return slot ? (int32_t)slot->next_id - 1 : -1; /* loading let none lie further off */
}

/* Appends what the token stands for: bytes when every character is a byte letter, else itself
 * (a token such as "<|end|>" in the reference's decoder). */
static void put_bytes(ls_tokenizer *tok, ls_tok_entry *e, uint32_t *used) {
    const uint8_t *s = (const uint8_t *)tok->spell + e->spell_at;
    uint8_t *dst = tok->byte + *used;
    uint32_t n = 0;
    bool letters = true;
    for (uint32_t i = 0; i < e->spell_n && letters;) {
        ls_utf8_step c = ls_utf8_next(s + i, e->spell_n - i);
        int32_t byte = ls_tok_unletter(c.cp);
        letters = byte >= 0;
        if (letters)
            dst[n++] = (uint8_t)byte;
        i += (uint32_t)c.len;
    }
    if (!letters) {
        memcpy(dst, s, e->spell_n);
        n = e->spell_n;
    } else if (e->flags & LS_TOK_VOCAB) {
        e->flags |= LS_TOK_LETTERS;
    }
    e->byte_at = *used;
    e->byte_n = n;
    *used += n;
}

static ls_status set_token(ls_tokenizer *tok, const ls_json_at *at, int32_t id, const char *s,
                           size_t n, uint8_t flags, uint32_t *spelled, uint32_t *bytes,
                           ls_err *err) {
    ls_tok_entry *e = &tok->token[id];
    if (e->flags & LS_TOK_THERE) {
        char was[80], is[80];
        return ls_json_fail(at, err,
                            "id %d has two spellings, \"%s\" and \"%s\"; decoding would be "
                            "ambiguous",
                            id, ls_err_text(was, sizeof was, tok->spell + e->spell_at, e->spell_n),
                            ls_err_text(is, sizeof is, s, n));
    }
    *e = (ls_tok_entry){*spelled, (uint32_t)n, 0, 0, (uint8_t)(flags | LS_TOK_THERE)};
    memcpy(tok->spell + *spelled, s, n);
    *spelled += (uint32_t)n;
    if (tok->byte_level)
        put_bytes(tok, e, bytes);
    uint32_t tag;
    ls_tok_slot *slot = find_slot(tok, s, n, &tag);
    if (!slot)
        return ls_json_fail(at, err,
                            "the tokens' spellings crowd one place of a table, as only spellings "
                            "that were chosen for it do; a vocabulary that is made to be slow is "
                            "refused");
    *slot = (ls_tok_slot){(uint32_t)id + 1, tag};
    tok->n_tokens++;
    return LS_OK;
}

/* ---- sizes first ----------------------------------------------------------------------------- */

typedef struct extent {
    int64_t max_id;
    size_t n_tokens, n_bytes;
} extent;

/* What an iterator of the vocabulary is at, without a search for its key. */
static ls_json_at member(const ls_json_at *object, void *it) {
    return (ls_json_at){
        .value = json_object_iter_value(it), .up = object, .key = json_object_iter_key(it)};
}

static ls_status measure(const ls_json_at *vocab, const ls_json_at *added, extent *x, ls_err *err) {
    json_t *object = (json_t *)(uintptr_t)vocab->value;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const ls_json_at at = member(vocab, it);
        int64_t id = 0;
        LS_TRY(ls_json_as_int(&at, 0, LS_TOK_ID_MAX - 1, &id, err));
        x->max_id = id > x->max_id ? id : x->max_id;
        x->n_bytes += strlen(at.key);
        x->n_tokens++;
    }
    size_t n = 0;
    if (!ls_json_none(added))
        LS_TRY(ls_json_as_array(added, &n, err));
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_item(added, i);
        int64_t id = 0;
        const char *content = NULL;
        LS_TRY(ls_json_as_object(&at, err));
        LS_TRY(ls_json_int(&at, "id", 0, LS_TOK_ID_MAX - 1, &id, err));
        LS_TRY(ls_json_string(&at, "content", &content, err));
        x->max_id = id > x->max_id ? id : x->max_id;
        x->n_bytes += strlen(content);
        x->n_tokens++;
    }
    if (x->n_tokens == 0)
        return ls_json_fail(vocab, err, "the vocabulary is empty");
    if (x->n_bytes > UINT32_MAX) /* a tree made of a GGUF file has no limit of its own */
        return ls_json_fail(vocab, err, "the tokens are spelled in %zu bytes, at most 4 GiB",
                            x->n_bytes);
    /* the table is dense: a forged id may not make it large */
    if ((size_t)x->max_id > 65536 + 8 * x->n_tokens)
        return ls_json_fail(vocab, err,
                            "an id of %lld among %zu tokens; nearly all ids would be gaps",
                            (long long)x->max_id, x->n_tokens);
    return LS_OK;
}

static ls_status make_tables(ls_tokenizer *tok, const extent *x, ls_err *err) {
    tok->size = (int32_t)(x->max_id + 1);
    tok->n_slots = 16;
    while (tok->n_slots < 2 * x->n_tokens)
        tok->n_slots *= 2;
    tok->token = calloc((size_t)tok->size, sizeof *tok->token);
    tok->slot = calloc(tok->n_slots, sizeof *tok->slot);
    tok->spell = malloc(x->n_bytes + 1);
    tok->byte = malloc(x->n_bytes + 1);
    if (!tok->token || !tok->slot || !tok->spell || !tok->byte)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: a vocabulary of %zu tokens",
                       x->n_tokens);
    return LS_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static ls_status load_added(ls_tokenizer *tok, const ls_json_at *at, uint32_t *spelled,
                            uint32_t *bytes, ls_err *err) {
    static const char *const known[] = {"id",     "content", "single_word", "lstrip",
                                        "rstrip", "special", "normalized"};
    LS_TRY(ls_json_only(at, known, sizeof known / sizeof *known, err));
    int64_t id = 0;
    const char *content = NULL;
    ls_tok_added a = {0};
    LS_TRY(ls_json_int(at, "id", 0, LS_TOK_ID_MAX - 1, &id, err));
    LS_TRY(ls_json_string(at, "content", &content, err));
    LS_TRY(ls_json_bool_or(at, "special", false, &a.special, err));
    LS_TRY(ls_json_bool_or(at, "single_word", false, &a.single_word, err));
    LS_TRY(ls_json_bool_or(at, "lstrip", false, &a.lstrip, err));
    LS_TRY(ls_json_bool_or(at, "rstrip", false, &a.rstrip, err));
    LS_TRY(ls_json_bool_or(at, "normalized", !a.special, &a.normalized, err));
    a.id = (int32_t)id;
    size_t n = strlen(content);
    ls_json_at text = ls_json_key(at, "content");
    if (n == 0)
        return ls_json_fail(&text, err, "an empty token would match everywhere");
    if (n > LS_TOK_ADDED_BYTES_MAX)
        return ls_json_fail(&text, err, "an added token of %zu bytes, at most %d are supported", n,
                            LS_TOK_ADDED_BYTES_MAX);
    uint8_t flags = (uint8_t)(LS_TOK_ADDED | (a.special ? LS_TOK_SPECIAL : 0));
    int32_t was = ls_tok_lookup(tok, content, n);
    if (was < 0) {
        LS_TRY(set_token(tok, at, a.id, content, n, flags, spelled, bytes, err));
    } else if (was != a.id) {
        char shown[80];
        return ls_json_fail(at, err, "\"%s\" has two ids, %d and %d",
                            ls_err_text(shown, sizeof shown, content, n), was, a.id);
    } else if (tok->token[was].flags & LS_TOK_ADDED) {
        return ls_json_fail(at, err, "id %d is added twice", was);
    } else {
        tok->token[was].flags |= flags;
    }
    tok->added[tok->n_added++] = a;
    return LS_OK;
}

static ls_status load_all_added(ls_tokenizer *tok, const ls_json_at *list, uint32_t *spelled,
                                uint32_t *bytes, ls_err *err) {
    size_t n = 0;
    if (ls_json_none(list))
        return LS_OK;
    LS_TRY(ls_json_as_array(list, &n, err));
    tok->added = calloc(n ? n : 1, sizeof *tok->added);
    if (!tok->added)
        return ls_fail(err, LS_ERR_MEMORY, "out of memory: %zu added tokens", n);
    for (size_t i = 0; i < n; i++) {
        ls_json_at at = ls_json_item(list, i);
        LS_TRY(load_added(tok, &at, spelled, bytes, err));
    }
    return LS_OK;
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static int32_t find_vocab(const ls_tokenizer *tok, const char *s, size_t n) {
    int32_t id = ls_tok_lookup(tok, s, n);
    return id >= 0 && (tok->token[id].flags & LS_TOK_VOCAB) ? id : -1;
}

/* Where the symbols are characters: the tokens for one that is none itself. */
static ls_status find_fallbacks(ls_tokenizer *tok, const ls_json_at *model, bool partial,
                                ls_err *err) {
    ls_json_at at = ls_json_key(model, "unk_token");
    const char *unk = NULL;
    bool all = tok->byte_fallback;
    char name[8];
    for (int c = 0; c < 128; c++) {
        const char one = (char)c;
        tok->ascii_id[c] = find_vocab(tok, &one, 1);
    }
    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        tok->byte_id[b] = tok->byte_fallback ? find_vocab(tok, name, 6) : -1;
        all &= tok->byte_id[b] >= 0;
        if (tok->byte_id[b] >= 0)
            tok->token[tok->byte_id[b]].flags |= LS_TOK_ODD;
    }
    tok->unk = -1;
    LS_TRY(ls_json_string_or(model, "unk_token", NULL, &unk, err));
    if (unk)
        tok->unk = ls_tok_lookup(tok, unk, strlen(unk));
    if (unk && tok->unk < 0)
        return ls_json_fail(&at, err, "is not in the vocabulary");
    if (unk)
        tok->token[tok->unk].flags |= LS_TOK_ODD;
    if (!unk && !all && !partial)
        return ls_json_fail(&at, err, "is missing, and %s: some text could not be encoded",
                            tok->byte_fallback ? "some byte (\"<0xE2>\") has no token"
                                               : "there is no byte_fallback");
    return LS_OK;
}

/* Bytes that real vocabularies lack (SmolLM2's does): those of no assigned character in UTF-8, and
 * control characters other than tab and line ends. */
static bool is_rare(uint32_t b) {
    return (b < 0x20 && b != '\t' && b != '\n' && b != '\r') || b == 0x7F || b == 0xC0 ||
           b == 0xC1 || b == 0xF1 || b == 0xF2 || b >= 0xF5;
}

static ls_status find_bytes(ls_tokenizer *tok, const ls_json_at *vocab, bool partial, ls_err *err) {
    for (uint32_t b = 0; b < 256; b++) {
        uint8_t utf8[4];
        size_t n = ls_utf8_put(utf8, ls_tok_letter((uint8_t)b));
        int32_t id = ls_tok_lookup(tok, (const char *)utf8, n);
        if (id >= 0 && !(tok->token[id].flags & LS_TOK_LETTERS))
            id = -1;
        tok->byte_id[b] = id;
        if (id < 0 && !partial && !is_rare(b))
            return ls_json_fail(
                vocab, err,
                "the byte %02X has no token (\"%.*s\" in byte letters), so some text "
                "could not be encoded",
                b, (int)n, (const char *)utf8);
    }
    return LS_OK;
}

ls_status ls_tok_load_vocab(ls_tokenizer *tok, const ls_json_at *root, bool partial_bytes,
                            ls_err *err) {
    ls_json_at model = ls_json_key(root, "model");
    ls_json_at vocab = ls_json_key(&model, "vocab");
    ls_json_at added = ls_json_key(root, "added_tokens");
    LS_TRY(ls_json_as_object(&vocab, err));
    extent x = {0};
    LS_TRY(measure(&vocab, &added, &x, err));
    LS_TRY(make_tables(tok, &x, err));
    uint32_t spelled = 0, bytes = 0; /* sums fit: measured */
    json_t *object = (json_t *)(uintptr_t)vocab.value;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const ls_json_at at = member(&vocab, it);
        const char *s = at.key;
        int32_t id = (int32_t)json_integer_value(at.value);
        LS_TRY(set_token(tok, &at, id, s, strlen(s), LS_TOK_VOCAB, &spelled, &bytes, err));
    }
    LS_TRY(load_all_added(tok, &added, &spelled, &bytes, err));
    return tok->byte_level ? find_bytes(tok, &vocab, partial_bytes, err)
                           : find_fallbacks(tok, &model, partial_bytes, err);
}
