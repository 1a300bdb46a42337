#include "draw.h"

#include <Random123/philox.h>

ls_draw ls_draw_key(uint64_t seed, uint32_t sequence, uint32_t position, ls_purpose purpose,
                    uint32_t salt) {
    ls_draw d = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                 .position = position,
                 .sequence = sequence,
                 .purpose_salt = (uint32_t)purpose << 24 | (salt & 0xffffffu)};
    return d;
}

uint32_t ls_draw_word(const ls_draw *d, uint32_t token) {
    const philox4x32_ctr_t at = {{token / 4, d->position, d->sequence, d->purpose_salt}};
    const philox4x32_key_t key = {{d->key[0], d->key[1]}};
    return philox4x32(at, key).v[token % 4];
}

float ls_draw_uniform(const ls_draw *d, uint32_t token) {
    return (float)(ls_draw_word(d, token) >> 9) * 0x1p-23f + 0x1p-24f;
}
