/* cpu_plain.c - the bodies in plain C, for any processor: the same bits, slowly. */
#define LS_CPU_TABLE ls_cpu_plain
#define LS_CPU_NAME "plain"
#include "cpu_bodies.inc.h"
