/* attn_rig.h - attention cases: logical keys and values of one sequence laid out contiguous, paged
 * or as a tree, and rows of given lengths run over them. */
#ifndef LS_ATTN_RIG_H
#define LS_ATTN_RIG_H

#include "backend.h"

typedef struct ar_case {
    int H, G, E, T; /* T logical keys */
    ls_dtype t;
    float scale;
    void *k, *v; /* [T, G, E], logical order */
    int window;  /* of every run; 0: none */
} ar_case;

/* A pool with the case's keys in it, and the locator arrays for up to n_rows rows. */
typedef struct ar_layout {
    void *k, *v;
    int n_slots, n_rows, block_rows; /* block_rows 0: contiguous */
    int32_t *base, *table, *table_at, *table_len, *prefix, *anc;
    int ld_anc;
} ar_layout;

void ar_case_init(ar_case *c, int H, int G, int E, int T, ls_dtype t, uint32_t seed, float size);
void ar_case_free(ar_case *c);
/* Seeded queries [n_rows, H, E]; the caller frees them. */
float *ar_queries(const ar_case *c, int n_rows);
/* Contiguous from slot `offset`; the slots around it hold NaN. */
ar_layout ar_contiguous(const ar_case *c, int n_rows, int offset);
/* Blocks of block_rows in a scrambled order; unused blocks hold NaN. */
ar_layout ar_paged(const ar_case *c, int n_rows, int block_rows);
/* Keys from `prefix` on are reached through ancestors and lie elsewhere in the pool. */
ar_layout ar_tree(const ar_case *c, int n_rows, int prefix);
void ar_layout_free(ar_layout *l);
/* Rows r of q [n_rows, H, E] with their lengths; scratch is NaN before the call. */
void ar_run(ls_backend *be, const ar_case *c, const ar_layout *l, ls_chunk_rule rule,
            const int32_t *length, int n_rows, const float *q, float *out);

#endif
