/* The matrix product: how it is cut, packed and shared out.
 *
 * In: products (gemm.h).  Out: C.  What always holds:
 * (1) Where k is cut follows from k alone; a c[i][j] is summed by one task at a time, over its
 *     blocks of k in order, by one fma after the other.  All else is free to change.
 * (2) Of A and B the one with fewer rows (columns) is *shared*: packed once by all threads, a
 *     chunk of k at a time.  The other is *streamed*: a task packs a strip of it for the chunk into
 *     its thread's memory, where it stays in the second-level cache, and multiplies it by all of
 *     the shared one.
 * (3) A round is: pack the shared operands, then the tasks.  Partial sums wait in C between
 *     rounds, or in scratch where C is not f32 with unit column stride.
 *
 *         streamed strip of B
 *            |    |####|            |     the strip stays in L2, panels of A pass through L1;
 *      A     |    |####|  C        |     the sums of a row block are finished while in L1
 *     shared |    |####|            |
 */
#include "kernel/gemm_priv.h"

#include <assert.h>
#include <string.h>

#include "kernel/isa.h"

enum {
    BLOCK_K       = 384,      /* longest run of fmas */
    CHUNK_BLOCKS  = 3,        /* blocks between two visits to C */
    SHARED_ROWS   = 1536,     /* most rows of the shared operand in a round */
    SHARED_FLOATS = 2 << 20,  /* of several products together in one round */
    STRIP_FLOATS  = 80 << 10, /* a streamed strip: a third of a 1 MiB cache */
    SUB_FLOATS    = 56 << 10, /* columns of a shared B that are used together */
    STREAM_BYTES  = 24 << 20, /* a C this large is stored around the caches */
    SERIAL_FLOP   = 1 << 20,  /* not worth waking a thread for */
    TASK_FLOP     = 1 << 20,  /* nor a task */
    SUM_FLOATS    = GEMM_MAX_MR * GEMM_MAX_COLS,
    LINE          = 16, /* floats in a cache line */
};

/* How one product is cut: from its shape (and the panel sizes) alone. */
typedef struct cut {
    int64_t kc, n_block;           /* blocks of k; the last may be shorter */
    int64_t chunk_blocks, n_chunk; /* blocks a chunk */
    bool    share_a;
    int     s_width, p_width;  /* panels of the shared and the streamed operand */
    int64_t s_dim, p_dim;      /* m and n, or n and m */
    int64_t s_rows, n_sblock;  /* rows of the shared operand in one round */
    int64_t p_panels, n_strip; /* of the streamed operand */
    int64_t sub_panels;        /* panels of B that meet a panel of A at once */
    int64_t n_pack;            /* packing tasks a round */
} cut;

/* A run of equal products within a batch, that share their rounds. */
typedef struct seg {
    weft_gemm g;
    cut       c;
    int64_t   batch0, n_batch;
    float    *shared, *part; /* part: NULL, or m n floats for each of the batch */
    int64_t   shared_stride;
    int64_t   pack_end, work_end; /* tasks of this round up to and with this one */
    bool      stream;
} seg;

typedef struct job {
    const weft_kernel__gemm_isa *isa;
    seg                         *seg;
    int                          n_seg;
    int64_t                      round;
    char                        *thread_mem;
    size_t                       thread_bytes;
} job;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

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
    return "gemm-1 k384x3 f32fma";
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
static void cut_strips(cut *c, const weft_gemm *g, int64_t chunk_k)
{
    int64_t rows   = min64(STRIP_FLOATS / max64(chunk_k, 1), GEMM_MAX_COLS);
    int64_t most   = max64(1, rows / c->p_width);
    int64_t useful = max64(1, (int64_t)(2.0 * (double)g->m * (double)g->n * (double)g->k /
                                        (double)TASK_FLOP));

    c->p_panels = ceil_div(c->p_dim, c->p_width);
    c->n_strip  = ceil_div(c->p_panels, most);
    if (c->n_strip % 4) c->n_strip = round_up(c->n_strip, 4);
    c->n_strip = max64(min64(c->n_strip, useful), ceil_div(c->p_panels, most));
    c->n_strip = min64(c->n_strip, c->p_panels);
}

static cut cut_make(const weft_gemm *g, const weft_kernel__gemm_isa *isa)
{
    cut     c = {0};
    int64_t chunk_k;

    c.n_block      = ceil_div(g->k, BLOCK_K);
    c.kc           = c.n_block ? ceil_div(g->k, c.n_block) : 0;
    c.n_chunk      = max64(1, ceil_div(c.n_block, CHUNK_BLOCKS));
    c.chunk_blocks = CHUNK_BLOCKS;
    chunk_k        = min64(g->k, c.kc * c.chunk_blocks);

    c.share_a  = g->m <= g->n;
    c.s_dim    = c.share_a ? g->m : g->n;
    c.p_dim    = c.share_a ? g->n : g->m;
    c.s_width  = c.share_a ? isa->mr : isa->nr;
    c.p_width  = c.share_a ? isa->nr : isa->mr;
    c.n_sblock = max64(1, ceil_div(c.s_dim, SHARED_ROWS));
    c.s_rows   = round_up(ceil_div(c.s_dim, c.n_sblock), c.s_width);
    c.n_sblock = c.s_dim ? ceil_div(c.s_dim, c.s_rows) : 1;
    c.n_pack   = ceil_div(c.s_rows / c.s_width, 4);
    cut_strips(&c, g, chunk_k);
    c.sub_panels =
        c.share_a
            ? GEMM_MAX_COLS / isa->nr
            : max64(1, min64(SUB_FLOATS / max64(chunk_k, 1), GEMM_MAX_COLS) / isa->nr);
    return c;
}

/* The k of block b, and where a chunk begins. */
static int64_t block_k0(const cut *c, const weft_gemm *g, int64_t b)
{
    return min64(b * c->kc, g->k);
}

/* ---- packing --------------------------------------------------------------------------- */

typedef struct operand {
    const char *p;
    weft_dtype  t;
    int64_t     rs, cs; /* along its rows (A) or columns (B), and along k */
} operand;

static operand operand_of(const weft_gemm *g, bool a, int64_t batch)
{
    weft_dtype t    = a ? g->ta : g->tb;
    int64_t    size = t == WEFT_DTYPE_F32 ? 4 : 2;

    if (a)
        return (operand){(const char *)g->a + batch * g->a_bs * size, t, g->a_rs,
                         g->a_cs};
    return (operand){(const char *)g->b + batch * g->b_bs * size, t, g->b_cs, g->b_rs};
}

/* Rows [r0,r1) of k [k0,k1) into panels as [panel][k][width].  Steps of 32 along k keep the lines
 * of a row in cache from panel to panel. */
static void pack_block(const weft_kernel__gemm_isa *isa, const operand *o, int64_t k0,
                       int64_t k1, int64_t r0, int64_t r1, int width, float *dst)
{
    const int64_t size = o->t == WEFT_DTYPE_F32 ? 4 : 2;
    const int64_t step = o->rs == 1 ? 32 : k1 - k0;

    for (int64_t k = k0; k < k1; k += step) {
        float *d = dst + (k - k0) * width;
        for (int64_t r = r0; r < r1; r += width, d += width * (k1 - k0))
            isa->pack(width, d, o->p + (r * o->rs + k * o->cs) * size, o->t,
                      min64(width, r1 - r), min64(step, k1 - k), o->rs, o->cs);
    }
}

/* Finds the segment of a task; the task becomes an index within it. */
static const seg *seg_find(const job *j, bool work, int64_t *task)
{
    int64_t before = 0;

    for (const seg *s = j->seg;; s++) {
        int64_t end = work ? s->work_end : s->pack_end;
        if (*task < end) {
            *task -= before;
            return s;
        }
        before = end;
    }
}

static void pack_task(void *arg, int64_t task, int thread)
{
    const job *j     = arg;
    const seg *s     = seg_find(j, false, &task);
    const cut *c     = &s->c;
    int64_t    entry = task / c->n_pack, part = task % c->n_pack;
    int64_t    chunk = j->round % c->n_chunk, row0 = j->round / c->n_chunk * c->s_rows;
    int64_t    total = c->s_rows / c->s_width;
    int64_t    p0 = total * part / c->n_pack, p1 = total * (part + 1) / c->n_pack;
    int64_t    b0  = chunk * c->chunk_blocks;
    int64_t    r1  = min64(row0 + p1 * c->s_width, c->s_dim);
    float     *dst = s->shared + entry * s->shared_stride;
    operand    o   = operand_of(&s->g, c->share_a, s->batch0 + entry);

    (void)thread;
    for (int64_t b = b0; b < min64(b0 + c->chunk_blocks, c->n_block); b++) {
        int64_t k0 = block_k0(c, &s->g, b), k1 = block_k0(c, &s->g, b + 1);
        pack_block(j->isa, &o, k0, k1, row0 + p0 * c->s_width, r1, c->s_width,
                   dst + p0 * c->s_width * (k1 - k0));
        dst += total * c->s_width * (k1 - k0);
    }
}

/* ---- multiplying ----------------------------------------------------------------------- */

/* A block of C that one task sums over one chunk, and the panels for it. */
typedef struct block {
    const job   *j;
    const seg   *s;
    int64_t      batch, chunk;
    int64_t      i0, i1, j0, j1;
    const float *a, *b;
    int64_t      a_panels, b_panels;
    float       *sum;
} block;

/* Whether the last tile may write C itself. */
static bool direct(const block *w, int64_t n_block)
{
    const weft_gemm *g   = &w->s->g;
    bool             add = w->chunk > 0 || g->accumulate;

    return g->alpha == 1.0f && g->tc == WEFT_DTYPE_F32 && g->c_cs == 1 &&
           g->n_post == 0 && !w->s->stream && n_block > 0 && !(add && n_block > 1);
}

/* One panel of A by panels [p0,p1) of B: the sums over the chunk, then where they belong. */
static void row_block(const block *w, int64_t ip, int64_t p0, int64_t p1)
{
    const weft_kernel__gemm_isa *isa = w->j->isa;
    const weft_gemm             *g   = &w->s->g;
    const cut                   *c   = &w->s->c;
    const int64_t                b0  = w->chunk * c->chunk_blocks;
    const int64_t                b1  = min64(b0 + c->chunk_blocks, c->n_block);
    const int64_t                i = w->i0 + ip * isa->mr, j = w->j0 + p0 * isa->nr;
    const int64_t                cols = min64(w->j1 - j, (p1 - p0) * isa->nr);
    const int                    rows = (int)min64(isa->mr, w->i1 - i);
    const int64_t                ld   = (p1 - p0) * isa->nr;
    const int64_t                done = direct(w, b1 - b0) ? cols / isa->nr * isa->nr : 0;
    const bool                   add  = w->chunk > 0 || g->accumulate;
    const float                 *a = w->a, *b = w->b;

    for (int64_t q = b0; q < b1; q++) {
        int64_t kc = block_k0(c, g, q + 1) - block_k0(c, g, q);
        for (int64_t p = p0; p < p1; p++) {
            int64_t      col = (p - p0) * isa->nr;
            float       *out = w->sum + col;
            const float *in  = q > b0 ? out : NULL;
            int64_t      ldo = ld, ldi = ld;

            if (q == b1 - 1 && col < done) {
                out = (float *)g->c + w->batch * g->c_bs + i * g->c_rs + j + col;
                ldo = g->c_rs;
                if (q == b0 && add) in = out, ldi = ldo;
            }
            isa->tile(rows, kc, a + ip * isa->mr * kc, b + p * isa->nr * kc, in, ldi, out,
                      ldo);
        }
        a += w->a_panels * isa->mr * kc;
        b += w->b_panels * isa->nr * kc;
    }
    if (done == cols) return;
    if (b0 == b1) memset(w->sum, 0, (size_t)(rows * ld) * sizeof(float));
    isa->finish(&(weft_kernel__gemm_rows){
        .g       = g,
        .batch   = w->batch,
        .i       = i,
        .j       = j + done,
        .rows    = rows,
        .cols    = cols - done,
        .sum     = w->sum + done,
        .ld_sum  = ld,
        .part    = w->s->part ? w->s->part + w->batch * g->m * g->n : NULL,
        .ld_part = g->n,
        .first   = w->chunk == 0,
        .last    = w->chunk == c->n_chunk - 1,
        .stream  = w->s->stream,
    });
}

/* The streamed strip's rows [p0,p1) for the chunk. */
static void pack_strip(const block *w, int64_t p0, int64_t p1, float *dst)
{
    const cut *c  = &w->s->c;
    int64_t    b0 = w->chunk * c->chunk_blocks;
    operand    o  = operand_of(&w->s->g, !c->share_a, w->batch);

    for (int64_t b = b0; b < min64(b0 + c->chunk_blocks, c->n_block); b++) {
        int64_t k0 = block_k0(c, &w->s->g, b), k1 = block_k0(c, &w->s->g, b + 1);
        pack_block(w->j->isa, &o, k0, k1, p0, p1, c->p_width, dst);
        dst += round_up(p1 - p0, c->p_width) * (k1 - k0);
    }
}

static void work_task(void *arg, int64_t task, int thread)
{
    const job *j     = arg;
    const seg *s     = seg_find(j, true, &task);
    const cut *c     = &s->c;
    int64_t    entry = task / c->n_strip, strip = task % c->n_strip;
    int64_t    s0  = j->round / c->n_chunk * c->s_rows;
    int64_t    s1  = min64(s0 + c->s_rows, c->s_dim);
    int64_t    p0  = c->p_panels * strip / c->n_strip * c->p_width;
    int64_t    p1  = min64(c->p_panels * (strip + 1) / c->n_strip * c->p_width, c->p_dim);
    float     *mem = (float *)(void *)(j->thread_mem + (size_t)thread * j->thread_bytes);
    float     *pack     = mem + SUM_FLOATS;
    int64_t    panels   = ceil_div(p1 - p0, c->p_width);
    const float *shared = s->shared + entry * s->shared_stride;
    block        w      = {.j = j, .s = s, .batch = s->batch0 + entry, .sum = mem};

    w.chunk = j->round % c->n_chunk;
    pack_strip(&w, p0, p1, pack);
    if (c->share_a) {
        w.i0 = s0, w.i1 = s1, w.a = shared, w.a_panels = c->s_rows / c->s_width;
        w.j0 = p0, w.j1 = p1, w.b = pack, w.b_panels = panels;
    } else {
        w.i0 = p0, w.i1 = p1, w.a = pack, w.a_panels = panels;
        w.j0 = s0, w.j1 = s1, w.b = shared, w.b_panels = c->s_rows / c->s_width;
    }
    int64_t n_a = ceil_div(w.i1 - w.i0, j->isa->mr),
            n_b = ceil_div(w.j1 - w.j0, j->isa->nr);
    for (int64_t p = 0; p < n_b; p += c->sub_panels)
        for (int64_t i = 0; i < n_a; i++)
            row_block(&w, i, p, min64(p + c->sub_panels, n_b));
}

/* ---- running --------------------------------------------------------------------------- */

static bool empty(const weft_gemm *g)
{
    return g->batch <= 0 || g->m <= 0 || g->n <= 0;
}

/* Floats of the shared operand of one product in a round; never less for a larger shape. */
static int64_t shared_bound(const weft_gemm *g)
{
    int64_t rows = min64(min64(g->m, g->n), SHARED_ROWS) + 64;
    return round_up(max64(1, rows * min64(g->k, BLOCK_K * CHUNK_BLOCKS)), LINE);
}

static bool needs_part(const weft_gemm *g)
{
    return g->k > BLOCK_K * CHUNK_BLOCKS && (g->tc != WEFT_DTYPE_F32 || g->c_cs != 1);
}

static int64_t part_floats(const weft_gemm *g)
{
    return needs_part(g) && !empty(g) ? round_up(g->batch * g->m * g->n, LINE) : 0;
}

static size_t thread_bytes(const weft_gemm *g, int n_gemm)
{
    int64_t most = 0;

    for (int i = 0; i < n_gemm; i++) {
        int64_t k = min64(g[i].k, BLOCK_K * CHUNK_BLOCKS);
        most      = max64(most, min64(STRIP_FLOATS, (max64(g[i].m, g[i].n) + 64) * k));
    }
    return (size_t)round_up(SUM_FLOATS + most, LINE) * sizeof(float);
}

static size_t table_bytes(int n_gemm)
{
    return (size_t)round_up(n_gemm * (int64_t)sizeof(seg), 64);
}

static int64_t shared_floats(const weft_gemm *g, int n_gemm)
{
    double  sum  = 0;
    int64_t most = 0;

    for (int i = 0; i < n_gemm; i++) {
        if (empty(g + i)) continue;
        sum += (double)g[i].batch * (double)shared_bound(g + i);
        most = max64(most, shared_bound(g + i));
    }
    return max64(most, (int64_t)(sum < SHARED_FLOATS ? sum : SHARED_FLOATS));
}

size_t weft_gemm_scratch_many(const weft_gemm *g, int n_gemm, int n_thread)
{
    size_t part = 0;

    for (int i = 0; i < n_gemm; i++) part += (size_t)part_floats(g + i);
    return table_bytes(n_gemm) + (size_t)n_thread * thread_bytes(g, n_gemm) +
           ((size_t)shared_floats(g, n_gemm) + part) * sizeof(float);
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
    seg s = {.g = turned(g), .batch0 = batch0, .part = needs_part(g) ? part : NULL};

    assert((g->ta == WEFT_DTYPE_F32 || g->ta == WEFT_DTYPE_BF16) &&
           (g->tb == WEFT_DTYPE_F32 || g->tb == WEFT_DTYPE_BF16) &&
           (g->tc == WEFT_DTYPE_F32 || g->tc == WEFT_DTYPE_BF16));
    s.c             = cut_make(&s.g, j->isa);
    s.shared_stride = shared_bound(g);
    s.stream        = !g->accumulate && s.c.n_chunk == 1 && s.g.tc == WEFT_DTYPE_F32 &&
               s.g.c_cs == 1 && (double)g->m * (double)g->n * 4.0 >= (double)STREAM_BYTES;
    return s;
}

/* All rounds of the segments gathered so far. */
static void run_group(job *j, weft_pool *pool)
{
    int64_t n_round = 0;
    double  flop    = 0;

    for (int i = 0; i < j->n_seg; i++) {
        const seg *s = j->seg + i;
        n_round      = max64(n_round, s->c.n_sblock * s->c.n_chunk);
        flop +=
            2.0 * (double)s->n_batch * (double)s->g.m * (double)s->g.n * (double)s->g.k;
    }
    if (flop < SERIAL_FLOP) pool = NULL;
    for (j->round = 0; j->round < n_round; j->round++) {
        int64_t pack = 0, work = 0;
        for (int i = 0; i < j->n_seg; i++) {
            seg *s      = j->seg + i;
            bool on     = j->round < s->c.n_sblock * s->c.n_chunk;
            s->pack_end = pack += on ? s->n_batch * s->c.n_pack : 0;
            s->work_end = work += on ? s->n_batch * s->c.n_strip : 0;
        }
        weft_pool_run(pool, pack, pack_task, j);
        weft_pool_run(pool, work, work_task, j);
    }
}

void weft_gemm_run_many(const weft_gemm *g, int n_gemm, weft_pool *pool, void *scratch)
{
    int     n_thread = pool ? weft_pool_threads(pool) : 1;
    int64_t room = shared_floats(g, n_gemm), used = 0;
    job     j = {.isa = isa_now(), .seg = scratch};

    j.thread_bytes = thread_bytes(g, n_gemm);
    j.thread_mem   = (char *)scratch + table_bytes(n_gemm);
    float *shared  = (float *)(void *)(j.thread_mem + (size_t)n_thread * j.thread_bytes);
    float *part    = shared + room;

    for (int i = 0; i < n_gemm; part += part_floats(g + i), i++) {
        if (empty(g + i)) continue;
        int64_t each = shared_bound(g + i);
        for (int64_t b = 0; b < g[i].batch;) {
            int64_t n = min64(g[i].batch - b, (room - used) / each);
            if (n == 0) {
                run_group(&j, pool);
                j.n_seg = 0, used = 0;
                continue;
            }
            seg *s     = j.seg + j.n_seg++;
            *s         = seg_make(&j, g + i, b, part);
            s->n_batch = n, s->shared = shared + used;
            used += n * each, b += n;
        }
    }
    if (j.n_seg) run_group(&j, pool);
}

void weft_gemm_run(const weft_gemm *g, weft_pool *pool, void *scratch)
{
    weft_gemm_run_many(g, 1, pool, scratch);
}
