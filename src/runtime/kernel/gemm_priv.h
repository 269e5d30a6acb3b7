/* What the vector files give to gemm.c.  Panels: a panel holds `width` rows of A (or columns of
 * B) for a block of k, as [k][width]; width is mr for A and nr for B. */
#ifndef WEFT_KERNEL_GEMM_PRIV_H
#define WEFT_KERNEL_GEMM_PRIV_H

#include "kernel/gemm.h"

enum {
    GEMM_MAX_MR     = 16,
    GEMM_AHEAD      = 4,   /* steps of k between two fetches of what is packed next */
    GEMM_ADDENDS    = 3,   /* matrices a tile adds to its sums: C, bias, residual */
    GEMM_PAIR       = 128, /* bytes of two cache lines */
    GEMM_SUM_FLOATS = 16 * 256, /* GEMM_MAX_MR rows of GEMM_MAX_COLS */
    GEMM_MAX_COLS   = 256,      /* most columns of a row block; a multiple of every nr */
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

/* Rows that are read or written when the sums are ready: C, and what a step reads or stores.  The
 * tile fetches one of them in GEMM_AHEAD steps of k: all at once would keep its own loads
 * waiting. */
typedef struct weft_kernel__gemm_near {
    const float *p; /* NULL: none */
    int64_t      ld;
} weft_kernel__gemm_near;

/* out = add[2] + (add[1] + (add[0] + (in + a b))) over kc, for a tile of rows x nr; in and any of
 * add may be NULL, out may be any of them.  On the way, once in GEMM_AHEAD steps of k, a pair of
 * lines is fetched. */
typedef struct weft_kernel__gemm_tile {
    int64_t      kc;
    const float *a, *b; /* panels, at the first k of the block */
    const float *in, *add[GEMM_ADDENDS];
    float       *out;
    int64_t      ld_in, ld_add[GEMM_ADDENDS], ld_out;
    int64_t      a_rs; /* 0, or a is not packed: row major, rows this far apart */
    weft_kernel__gemm_near   near[2];
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

static inline int64_t gemm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t gemm_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t gemm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t gemm_round_up(int64_t a, int64_t b)
{
    return gemm_ceil_div(a, b) * b;
}

/* ---- between gemm.c, which cuts, and gemm_work.c, which multiplies ---------------------- */

/* How one product is cut: from its shape (and the panel sizes) alone. */
typedef struct weft_kernel__gemm_cut {
    int64_t kc, n_block;           /* blocks of k; the last may be shorter */
    int64_t chunk_blocks, n_chunk; /* blocks a chunk */
    bool    share_a;
    bool    placed;            /* A is read where it lies */
    int     s_width, p_width;  /* panels of the shared and the streamed operand */
    int64_t s_dim, p_dim;      /* m and n, or n and m */
    int64_t s_rows, n_sblock;  /* rows of the shared operand in one round */
    int64_t p_panels, n_strip; /* of the streamed operand */
    int64_t sub_panels;        /* panels of B that meet a panel of A at once */
} weft_kernel__gemm_cut;

/* A run of equal products within a batch, that share their rounds. */
typedef struct weft_kernel__gemm_seg {
    weft_gemm             g;
    weft_kernel__gemm_cut c;
    int64_t               batch0, n_batch;
    float                *shared; /* for each of the batch: marks, then panels */
    float                *part;   /* NULL, or m n floats for each of the batch */
    int64_t               n_mark, shared_stride; /* floats */
    int                   n_copy;   /* 1, or each thread has its own shared panels */
    int64_t               task_end; /* tasks of this round up to and with these */
} weft_kernel__gemm_seg;

typedef struct weft_kernel__gemm_job {
    const weft_kernel__gemm_isa *isa;
    weft_kernel__gemm_seg       *seg;
    int                          n_seg;
    int64_t                      round;
    int                          n_thread;
    const weft_pool             *pool; /* its work may be dropped */
    char                        *thread_mem;
    size_t                       thread_bytes;
} weft_kernel__gemm_job;

/* Task `task` of the job's round: one strip of one product over one chunk of k. */
void weft_kernel__gemm_work(void *job, int64_t task, int thread);

extern const weft_kernel__gemm_isa weft_kernel__gemm_plain, weft_kernel__gemm_avx2,
    weft_kernel__gemm_avx512;

#endif
