/* cuda_mma_packed.cu - blocks of a GGUF file into the groups of the tensor-core linear (MMA.md,
 * cuda_mma_format.h): once, at load. A thread makes 16 bytes. Outputs past n_out are zeros. */
#include "cuda_mma_format.h"
#include "packed.h"

/* Where 16 bytes of the packed form come from: outputs row .. row + 15, block `block` of each. */
typedef struct mma_source {
    const uint8_t *w;
    size_t row_bytes;
    int n_out, row, block;
} mma_source;

/* The block of output i of 16, or NULL. */
LS_SHARED_FN const uint8_t *source_block(const mma_source *s, int i, ls_dtype t) {
    return s->row + i < s->n_out
               ? s->w + (size_t)(s->row + i) * s->row_bytes + (size_t)s->block * ls_dtype_bytes(t)
               : NULL;
}

/* ---- Q8_0 ------------------------------------------------------------------------------------ */

/* Word i of the 16 bytes number `chunk` of a group. */
LS_SHARED_FN uint32_t q8_0_word(const mma_source *s, int chunk, int i) {
    uint32_t v = 0;
    if (chunk < MMA_Q8_0_D / 16) { /* four k of an output, plus 128: bytes 0, 2, 1, 3 */
        const uint8_t *b = source_block(s, (chunk >> 2) + (i & 1) * 8, LS_Q8_0);
        for (int k = 0; b && k < 4; k++)
            v |= (uint32_t)b[LS_Q8_0_Q + (i >> 1) * 16 + (chunk & 3) * 4 + k]
                 << ((k & 1) * 16 + (k >> 1) * 8);
        return v ^ 0x80808080u;
    }
    for (int high = 0; high < 2; high++) {
        const uint8_t *b = source_block(s, (chunk - MMA_Q8_0_D / 16) * 4 + i + high * 8, LS_Q8_0);
        v |= b ? (uint32_t)ls_u16_at(b) << high * 16 : 0;
    }
    return v;
}

/* ---- Q4_K ------------------------------------------------------------------------------------ */

LS_SHARED_FN uint32_t q4_k_word(const mma_source *s, int chunk, int i) {
    uint32_t v = 0;
    if (chunk < MMA_Q4_K_S / 16) { /* eight k of an output and part, by pairs */
        const int lane = chunk & 31, part = (chunk >> 5) * 2 + (i >> 1);
        const uint8_t *b = source_block(s, (lane >> 2) + (i & 1) * 8, LS_Q4_K);
        for (int e = 0; b && e < 8; e++) {
            const int k = (lane & 3) * 4 + (e & 3) + (e >> 2) * 16;
            const uint32_t two = b[LS_Q4_K_Q + (part >> 1) * 32 + k];
            v |= (two >> (part & 1) * 4 & 15) << ((e & 1) * 16 + (e >> 1) * 4);
        }
    } else if (chunk < MMA_Q4_K_M / 16) { /* scales of four parts */
        const uint8_t *b = source_block(s, chunk - MMA_Q4_K_S / 16 + (i & 1) * 8, LS_Q4_K);
        for (int p = 0; b && p < 4; p++)
            v |= (uint32_t)ls_q4_k_six(b, (i >> 1) * 4 + p).scale << p * 8;
    } else if (chunk < MMA_Q4_K_D / 16) { /* minima of two parts and two outputs */
        const int lane = (chunk - MMA_Q4_K_M / 16) * 4 + i;
        for (int e = 0; e < 4; e++) {
            const uint8_t *b = source_block(s, (lane >> 2) + (e & 1) * 8, LS_Q4_K);
            v |= b ? (uint32_t)ls_q4_k_six(b, (lane & 3) * 2 + (e >> 1)).min << e * 8 : 0;
        }
    } else { /* d and dmin of an output */
        const int g = (chunk - MMA_Q4_K_D / 16) * 2 + (i >> 1);
        const uint8_t *b = source_block(s, g + (i & 1) * 8, LS_Q4_K);
        v = b ? (uint32_t)ls_u16_at(b) | (uint32_t)ls_u16_at(b + 2) << 16 : 0;
    }
    return v;
}

/* ---- any of them ----------------------------------------------------------------------------- */

/* The 16 bytes number i of a matrix' packed form. */
LS_SHARED_FN uint4 mma_chunk(const uint8_t *w, ls_dtype t, int n_out, int n_in, size_t i) {
    const size_t tiles = (size_t)((n_out + MMA_TILE - 1) / MMA_TILE);
    const size_t chunks = (size_t)MMA_GROUP_BYTES(t) / 16, unit = i / chunks;
    const size_t a_segment = (size_t)(MMA_SEGMENT_STEPS / MMA_GROUP_STEPS(t));
    const size_t blocks = (size_t)n_in / ls_dtype_block(t);
    const size_t segment = unit / (tiles * a_segment), left = blocks - segment * a_segment;
    const size_t groups = left < a_segment ? left : a_segment;
    const size_t inside = unit - segment * tiles * a_segment;
    const mma_source s = {w, ls_dtype_span(t, (size_t)n_in), n_out,
                          (int)(inside / groups) * MMA_TILE,
                          (int)(segment * a_segment + inside % groups)};
    const int chunk = (int)(i - unit * chunks);
    uint32_t v[4];
    for (int j = 0; j < 4; j++)
        v[j] = t == LS_Q8_0 ? q8_0_word(&s, chunk, j) : q4_k_word(&s, chunk, j);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

__global__ void mma_pack_blocks(const uint8_t *w, ls_dtype t, int n_out, int n_in, uint4 *packed,
                                size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        packed[i] = mma_chunk(w, t, n_out, n_in, i);
}

cudaError_t ls_mma_pack_blocks(const void *blocks_d, ls_dtype t, int32_t n_out, int32_t n_in,
                               void *packed_d, cudaStream_t stream) {
    mma_pack_blocks<<<2048, 256, 0, stream>>>((const uint8_t *)blocks_d, t, n_out, n_in,
                                              (uint4 *)packed_d, ls_mma_bytes(t, n_out, n_in) / 16);
    return cudaGetLastError();
}
