/* tile_limits.h - the constants of the tile language that hosts need too. */
#ifndef LS_TILE_LIMITS_H
#define LS_TILE_LIMITS_H

#define LS_LANES 32
#define LS_SEGMENT 512        /* terms a segment of a long sum holds (N-LIN) */
#define LS_NORM_SEGMENTS 256  /* block memory for a row of 131072 */
#define LS_STAT_SEGMENTS 1024 /* block memory for a vocabulary of 524288 */
#define LS_STAT_PART 304      /* bytes of scratch for a segment of a row of logits */

#endif
