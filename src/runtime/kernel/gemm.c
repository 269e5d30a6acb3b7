/* The matrix product: how it is cut, packed and shared out.
 *
 * In: products (gemm.h).  Out: C.  What always holds:
 * (1) Where k is cut follows from k alone; a c[i][j] is summed by one task at a time, over its
 *     blocks of k in order, by one fma after the other.  All else is free to change.
 * (2) Of A and B the one with fewer rows (columns) is *shared*, the other *streamed*: a task
 *     multiplies a strip of it by all of the shared one (gemm_work.c).
 * (3) A round is one chunk of k.  Partial sums wait in C between rounds, or in scratch where C is
 *     not f32 with unit column stride.
 */
#include "kernel/gemm_priv.h"

#include <assert.h>
#include <string.h>

#include "kernel/isa.h"

enum {
    BLOCK_K       = 512,       /* longest run of fmas */
    CHUNK_BLOCKS  = 2,         /* blocks between two visits to C */
    SHARED_ROWS   = 1536,      /* most rows of the shared operand in a round */
    SHARED_FLOATS = 2 << 20,   /* of several products together in one round */
    OWN_FLOATS    = 384 << 10, /* so few that each thread may have its own */
    OWN_ROWS      = 64,        /* if it meets so many of the streamed operand */
    STRIP_FLOATS  = 104 << 10, /* most of a streamed strip */
    PLACED_COLS   = 8192,      /* of B that meet an unpacked A */
    SUB_FLOATS    = 56 << 10,  /* columns of a shared B that are used together */
    SERIAL_FLOP   = 1 << 20,   /* not worth waking a thread for */
    TASK_FLOP     = 1 << 20,   /* nor a task */
    LINE          = 16,        /* floats in a cache line */
};

typedef weft_kernel__gemm_cut cut;
typedef weft_kernel__gemm_seg seg;
typedef weft_kernel__gemm_job job;

static const weft_kernel__gemm_isa *isa_now(void)
{
    switch (weft_kernel_isa()) {
#if defined(__x86_64__)
    case WEFT_ISA_AVX512: return &weft_kernel__gemm_avx512;
    case WEFT_ISA_AVX2: return &weft_kernel__gemm_avx2;
#endif
    default: return &weft_kernel__gemm_plain;
    }
}

const char *weft_gemm_id(void)
{
    return "gemm-1 k512x2 f32fma";
}

weft_gemm weft_gemm_make(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs,
                         int64_t a_cs, const float *b, int64_t b_rs, int64_t b_cs,
                         float *c, int64_t c_rs)
{
    return (weft_gemm){
        .batch = 1,
        .m     = m,
        .n     = n,
        .k     = k,
        .a     = a,
        .b     = b,
        .c     = c,
        .a_rs  = a_rs,
        .a_cs  = a_cs,
        .b_rs  = b_rs,
        .b_cs  = b_cs,
        .c_rs  = c_rs,
        .c_cs  = 1,
        .alpha = 1.0f,
    };
}

/* ---- cutting --------------------------------------------------------------------------- */

/* Strips of the streamed operand: small enough to stay in cache, as many as four threads can
 * share evenly, none too short to be worth a task. */
static void cut_strips(cut *c, const weft_gemm *g, int64_t chunk_k, int64_t floats)
{
    int64_t rows   = gemm_min(floats / gemm_max(chunk_k, 1), GEMM_MAX_COLS);
    int64_t most   = gemm_max(1, rows / c->p_width);
    int64_t useful = gemm_max(1, (int64_t)(2.0 * (double)g->m * (double)g->n *
                                           (double)g->k / (double)TASK_FLOP));

    c->p_panels = gemm_ceil_div(c->p_dim, c->p_width);
    c->n_strip  = gemm_ceil_div(c->p_panels, most);
    if (c->n_strip % 4) c->n_strip = gemm_round_up(c->n_strip, 4);
    c->n_strip = gemm_max(gemm_min(c->n_strip, useful), gemm_ceil_div(c->p_panels, most));
    c->n_strip = gemm_min(c->n_strip, c->p_panels);
}

/* A row-major A needs no packing, unless it meets very many columns, or its rows fall on the same
 * few sets of the first-level cache (lines of 64, 4096 bytes to the next of a set). */
static bool placed(const weft_gemm *g)
{
    const int64_t apart = (g->a_rs & 1023) * 4;

    return g->ta == WEFT_DTYPE_F32 && g->a_cs == 1 && g->a_rs > 0 && apart >= 128 &&
           apart <= 4096 - 128 && g->n <= PLACED_COLS;
}

static cut cut_make(const weft_gemm *g, const weft_kernel__gemm_isa *isa)
{
    cut     c = {0};
    int64_t chunk_k;

    c.n_block      = gemm_ceil_div(g->k, BLOCK_K);
    c.kc           = c.n_block ? gemm_ceil_div(g->k, c.n_block) : 0;
    c.n_chunk      = gemm_max(1, gemm_ceil_div(c.n_block, CHUNK_BLOCKS));
    c.chunk_blocks = CHUNK_BLOCKS;
    chunk_k        = gemm_min(g->k, c.kc * c.chunk_blocks);

    c.share_a  = g->m <= g->n;
    c.s_dim    = c.share_a ? g->m : g->n;
    c.p_dim    = c.share_a ? g->n : g->m;
    c.s_width  = c.share_a ? isa->mr : isa->nr;
    c.p_width  = c.share_a ? isa->nr : isa->mr;
    c.n_sblock = gemm_max(1, gemm_ceil_div(c.s_dim, SHARED_ROWS));
    c.s_rows   = gemm_round_up(gemm_ceil_div(c.s_dim, c.n_sblock), c.s_width);
    c.n_sblock = c.s_dim ? gemm_ceil_div(c.s_dim, c.s_rows) : 1;
    c.placed   = isa->placed && placed(g);
    cut_strips(&c, g, chunk_k, gemm_min(isa->strip_floats, STRIP_FLOATS));
    c.sub_panels =
        c.share_a
            ? GEMM_MAX_COLS / isa->nr
            : gemm_max(1, gemm_min(SUB_FLOATS / gemm_max(chunk_k, 1), GEMM_MAX_COLS) /
                              isa->nr);
    return c;
}

/* Most rows of a shared operand in a round, its last panel being whole. */
static int64_t shared_rows(const weft_gemm *g)
{
    return gemm_min(gemm_min(g->m, g->n), SHARED_ROWS) + 64;
}

/* One mark for each shared panel: none is narrower than four. */
static int64_t mark_floats(const weft_gemm *g)
{
    return gemm_round_up(shared_rows(g) / 4, LINE);
}

/* ---- running --------------------------------------------------------------------------- */

static bool empty(const weft_gemm *g)
{
    return g->batch <= 0 || g->m <= 0 || g->n <= 0;
}

/* Floats of the shared operand of one product in a round; never less for a larger shape. */
static int64_t shared_bound(const weft_gemm *g)
{
    int64_t k = gemm_min(g->k, BLOCK_K * CHUNK_BLOCKS);
    return mark_floats(g) + gemm_round_up(shared_rows(g) * k, LINE);
}

/* Threads that share no cache pay for each line that one packs and another reads: a small shared
 * operand is packed by each for itself. */
static int copies(const weft_gemm *g, int n_thread)
{
    bool own = g->batch == 1 && shared_bound(g) <= OWN_FLOATS &&
               gemm_max(g->m, g->n) / n_thread >= OWN_ROWS;
    return own ? n_thread : 1;
}

static bool needs_part(const weft_gemm *g)
{
    return g->k > BLOCK_K * CHUNK_BLOCKS && (g->tc != WEFT_DTYPE_F32 || g->c_cs != 1);
}

static int64_t part_floats(const weft_gemm *g)
{
    return needs_part(g) && !empty(g) ? gemm_round_up(g->batch * g->m * g->n, LINE) : 0;
}

static size_t thread_bytes(const weft_gemm *g, int n_gemm)
{
    int64_t most = 0;

    for (int i = 0; i < n_gemm; i++) {
        int64_t k = gemm_min(g[i].k, BLOCK_K * CHUNK_BLOCKS);
        most =
            gemm_max(most, gemm_min(STRIP_FLOATS, (gemm_max(g[i].m, g[i].n) + 64) * k));
    }
    return (size_t)gemm_round_up(GEMM_SUM_FLOATS + most, LINE) * sizeof(float);
}

static size_t table_bytes(int n_gemm)
{
    return (size_t)gemm_round_up(n_gemm * (int64_t)sizeof(seg), 64);
}

static int64_t shared_floats(const weft_gemm *g, int n_gemm, int n_thread)
{
    double  sum  = 0;
    int64_t most = 0;

    for (int i = 0; i < n_gemm; i++) {
        if (empty(g + i)) continue;
        sum += (double)g[i].batch * (double)shared_bound(g + i);
        most = gemm_max(most, shared_bound(g + i));
        most = gemm_max(most, gemm_min(shared_bound(g + i), OWN_FLOATS) * n_thread);
    }
    return gemm_max(most, (int64_t)(sum < SHARED_FLOATS ? sum : SHARED_FLOATS));
}

size_t weft_gemm_scratch_many(const weft_gemm *g, int n_gemm, int n_thread)
{
    size_t part = 0;

    for (int i = 0; i < n_gemm; i++) part += (size_t)part_floats(g + i);
    return table_bytes(n_gemm) + (size_t)n_thread * thread_bytes(g, n_gemm) +
           ((size_t)shared_floats(g, n_gemm, n_thread) + part) * sizeof(float);
}

size_t weft_gemm_scratch(const weft_gemm *g, int n_thread)
{
    return weft_gemm_scratch_many(g, 1, n_thread);
}

/* A C whose rows are not contiguous but whose columns are: the transposed product. */
static weft_gemm turned(const weft_gemm *g)
{
    weft_gemm t = *g;

    if (g->c_cs == 1 || g->c_rs != 1 || g->n_post) return t;
    t.m = g->n, t.n = g->m, t.c_rs = g->c_cs, t.c_cs = 1;
    t.a = g->b, t.ta = g->tb, t.a_rs = g->b_cs, t.a_cs = g->b_rs, t.a_bs = g->b_bs;
    t.b = g->a, t.tb = g->ta, t.b_rs = g->a_cs, t.b_cs = g->a_rs, t.b_bs = g->a_bs;
    return t;
}

static seg seg_make(const job *j, const weft_gemm *g, int64_t batch0, float *part)
{
    seg s = {
        .g      = turned(g),
        .batch0 = batch0,
    };

    assert((g->ta == WEFT_DTYPE_F32 || g->ta == WEFT_DTYPE_BF16) &&
           (g->tb == WEFT_DTYPE_F32 || g->tb == WEFT_DTYPE_BF16) &&
           (g->tc == WEFT_DTYPE_F32 || g->tc == WEFT_DTYPE_BF16));
    s.c             = cut_make(&s.g, j->isa);
    s.shared_stride = shared_bound(g);
    s.n_mark        = mark_floats(g);
    s.part          = needs_part(&s.g) ? part : NULL;
    return s;
}

/* All rounds of the segments gathered so far. */
static void run_group(job *j, weft_pool *pool)
{
    int64_t n_round = 0;
    double  flop    = 0;

    for (int i = 0; i < j->n_seg; i++) {
        const seg *s = j->seg + i;
        n_round      = gemm_max(n_round, s->c.n_sblock * s->c.n_chunk);
        flop +=
            2.0 * (double)s->n_batch * (double)s->g.m * (double)s->g.n * (double)s->g.k;
    }
    if (flop < SERIAL_FLOP) pool = NULL;
    for (j->round = 0; j->round < n_round; j->round++) {
        int64_t n_task = 0;
        for (int i = 0; i < j->n_seg; i++) {
            seg *s = j->seg + i;
            if (j->round < s->c.n_sblock * s->c.n_chunk)
                n_task += s->n_batch * s->c.n_strip;
            s->task_end = n_task;
        }
        weft_pool_run(pool, n_task, weft_kernel__gemm_work, j);
    }
}

/* Clears the marks of the segment's shared panels. */
static void seg_clear(const seg *s)
{
    for (int64_t b = 0; b < s->n_batch * s->n_copy; b++)
        memset(s->shared + b * s->shared_stride, 0, (size_t)s->n_mark * sizeof(float));
}

void weft_gemm_run_many(const weft_gemm *g, int n_gemm, weft_pool *pool, void *scratch)
{
    int     n_thread = pool ? weft_pool_threads(pool) : 1;
    int64_t room = shared_floats(g, n_gemm, n_thread), used = 0;
    job     j = {.isa = isa_now(), .seg = scratch, .n_thread = n_thread, .pool = pool};

    j.thread_bytes = thread_bytes(g, n_gemm);
    j.thread_mem   = (char *)scratch + table_bytes(n_gemm);
    float *shared  = (float *)(void *)(j.thread_mem + (size_t)n_thread * j.thread_bytes);
    float *part    = shared + room;

    for (int i = 0; i < n_gemm; part += part_floats(g + i), i++) {
        if (empty(g + i)) continue;
        int     n_copy = copies(g + i, n_thread);
        int64_t each   = shared_bound(g + i) * n_copy;
        for (int64_t b = 0; b < g[i].batch;) {
            int64_t n = gemm_min(g[i].batch - b, (room - used) / each);
            if (n == 0) {
                run_group(&j, pool);
                j.n_seg = 0, used = 0;
                continue;
            }
            seg *s     = j.seg + j.n_seg++;
            *s         = seg_make(&j, g + i, b, part);
            s->n_batch = n, s->shared = shared + used, s->n_copy = n_copy;
            seg_clear(s);
            used += n * each, b += n;
        }
    }
    if (j.n_seg) run_group(&j, pool);
}

void weft_gemm_run(const weft_gemm *g, weft_pool *pool, void *scratch)
{
    weft_gemm_run_many(g, 1, pool, scratch);
}
