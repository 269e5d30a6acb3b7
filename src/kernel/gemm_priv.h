/* What the vector files give to gemm.c.  Panels: a panel holds `width` rows of A (or columns of
 * B) for a block of k, as [k][width]; width is mr for A and nr for B. */
#ifndef WEFT_KERNEL_GEMM_PRIV_H
#define WEFT_KERNEL_GEMM_PRIV_H

#include "kernel/gemm.h"

enum {
    GEMM_MAX_MR   = 16,
    GEMM_AHEAD    = 4,   /* steps of k between two fetches of what is packed next */
    GEMM_PAIR     = 128, /* bytes of two cache lines */
    GEMM_MAX_COLS = 256, /* most columns of a row block; a multiple of every nr */
};

/* Rows of C whose sums over a chunk of k are ready in `sum`, to be put where they belong. */
typedef struct weft_kernel__gemm_rows {
    const weft_gemm *g;
    int64_t          batch, i, j; /* first row and column in C */
    int              rows;
    int64_t          cols;
    float           *sum; /* overwritten; readable up to a multiple of nr columns */
    int64_t          ld_sum;
    float           *part; /* where partial sums lie when C cannot hold them, else NULL */
    int64_t          ld_part;
    bool             first, last; /* chunk of k */
} weft_kernel__gemm_rows;

/* What is fetched towards the cache meanwhile: pairs of lines, `run` of them one after the other,
 * then `skip` bytes on to the next run. */
typedef struct weft_kernel__gemm_ahead {
    const char *p;
    int64_t     left, run, skip;
} weft_kernel__gemm_ahead;

/* out = add + (in + a b) over kc, for a tile of rows x nr; in and add may be NULL, out may be
 * either.  On the way, once in GEMM_AHEAD steps of k, a pair of lines is fetched. */
typedef struct weft_kernel__gemm_tile {
    int64_t      kc;
    const float *a, *b; /* panels, at the first k of the block */
    const float *in, *add;
    float       *out;
    int64_t      ld_in, ld_add, ld_out;
    int64_t      a_rs; /* 0, or a is not packed: row major, rows this far apart */
    weft_kernel__gemm_ahead *ahead;
    int64_t                  src_step; /* copy_a, copy_b: from k to k in the source */
    float                   *copy;     /* and the panel to fill */
} weft_kernel__gemm_tile;

typedef struct weft_kernel__gemm_isa {
    int  mr, nr;
    int  strip_floats; /* of a packed strip that shall stay in L2: 40 % of it */
    bool placed;       /* tiles may read a row-major A unpacked, and gain by it */

    void (*tile)(int rows, const weft_kernel__gemm_tile *t); /* rows <= mr */

    /* A full tile that reads A (or B) from its matrix, where a row of the panel is contiguous, and
     * packs it on the way. */
    void (*copy_a)(const weft_kernel__gemm_tile *t);
    void (*copy_b)(const weft_kernel__gemm_tile *t);

    /* Packs rows [0,rows) of src, k columns, into a panel; the other rows of it become 0. */
    void (*pack)(int width, float *panel, const void *src, weft_dtype t, int64_t rows,
                 int64_t k, int64_t rs, int64_t cs);

    void (*finish)(const weft_kernel__gemm_rows *r);
} weft_kernel__gemm_isa;

extern const weft_kernel__gemm_isa weft_kernel__gemm_plain, weft_kernel__gemm_avx2,
    weft_kernel__gemm_avx512;

#endif
