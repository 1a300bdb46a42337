/* cpu_avx2.c - the bodies for AVX2, FMA and F16C; built with -mavx2 -mfma -mf16c. */
#define LS_TILE_AVX2
#define LS_CPU_TABLE ls_cpu_avx2
#define LS_CPU_NAME "avx2"
#include "cpu_bodies.inc.h"
