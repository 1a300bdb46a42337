/* cpu_avx512.c - the bodies for AVX-512 F, BW, DQ and VL, with FMA and F16C for scalars and short
 * loads; built with the flags of the same names. */
#define LS_TILE_AVX512
#define LS_CPU_TABLE ls_cpu_avx512
#define LS_CPU_NAME "avx512"
#include "cpu_bodies.inc.h"
