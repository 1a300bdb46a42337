/* quant.h - blocks of the number types of GGUF files, widened to f32.
 * Types     F32, F16, BF16; Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 (blocks of 32); Q2_K, Q3_K, Q4_K, Q5_K,
 *           Q6_K (blocks of 256).
 * Numerics  every product and sum is one f32 operation, in the order of the reference `gguf` Python
 *           package: the same bits. Scales are widened from f16 first.
 * Layout    blocks follow each other; multi-byte fields are little endian; no alignment is needed.
 * Errors    LS_ERR_SHAPE when the sizes do not belong together; nothing is written then.
 *           LS_ERR_INPUT for a type that is not built.
 * Threads   plain functions. */
#ifndef LS_QUANT_H
#define LS_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Is this type built? type: LS_GGML_. */
bool ls_quant_known(uint32_t type);
/* src: n_bytes of whole blocks; dst: [n_elems], exactly what they hold. */
ls_status ls_quant_widen(uint32_t type, const uint8_t *src, size_t n_bytes, float *dst,
                         size_t n_elems, ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
