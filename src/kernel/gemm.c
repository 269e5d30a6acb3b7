/* The matrix product: how it is cut, packed and shared out.
 *
 * In: products (gemm.h).  Out: C.  What always holds:
 * (1) Where k is cut follows from k alone; a c[i][j] is summed by one task at a time, over its
 *     blocks of k in order, by one fma after the other.  All else is free to change.
 * (2) Of A and B the one with fewer rows (columns) is *shared*: whoever first needs a panel of it
 *     packs it for all, a chunk of k at a time.  The other is *streamed*: a task packs a strip of
 *     it for the chunk into its thread's memory, where it stays in the second-level cache, and
 *     multiplies it by all of the shared one.
 * (3) What a thread packs next is fetched while it multiplies.
 * (4) A round is one chunk of k.  Partial sums wait in C between rounds, or in scratch where C is
 *     not f32 with unit column stride.
 *
 *         streamed strip of B
 *            |    |####|            |     the strip stays in L2, panels of A pass through L1;
 *      A     |    |####|  C        |     the sums of a row block are finished while in L1
 *     shared |    |####|            |
 */
#include "kernel/gemm_priv.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "kernel/isa.h"

enum {
    BLOCK_K       = 512,       /* longest run of fmas */
    CHUNK_BLOCKS  = 2,         /* blocks between two visits to C */
    SHARED_ROWS   = 1536,      /* most rows of the shared operand in a round */
    SHARED_FLOATS = 2 << 20,   /* of several products together in one round */
    STRIP_FLOATS  = 104 << 10, /* most of a streamed strip */
    SUB_FLOATS    = 56 << 10,  /* columns of a shared B that are used together */
    SERIAL_FLOP   = 1 << 20,   /* not worth waking a thread for */
    TASK_FLOP     = 1 << 20,   /* nor a task */
    SUM_FLOATS    = GEMM_MAX_MR * GEMM_MAX_COLS,
    LINE          = 16, /* floats in a cache line */
};

/* How one product is cut: from its shape (and the panel sizes) alone. */
typedef struct cut {
    int64_t kc, n_block;           /* blocks of k; the last may be shorter */
    int64_t chunk_blocks, n_chunk; /* blocks a chunk */
    bool    share_a;
    bool    placed;            /* A is read where it lies */
    int     s_width, p_width;  /* panels of the shared and the streamed operand */
    int64_t s_dim, p_dim;      /* m and n, or n and m */
    int64_t s_rows, n_sblock;  /* rows of the shared operand in one round */
    int64_t p_panels, n_strip; /* of the streamed operand */
    int64_t sub_panels;        /* panels of B that meet a panel of A at once */
} cut;

/* A run of equal products within a batch, that share their rounds. */
typedef struct seg {
    weft_gemm g;
    cut       c;
    int64_t   batch0, n_batch;
    float    *shared, *part; /* part: NULL, or m n floats for each of the batch */
    int64_t   shared_stride;
    int64_t   task_end; /* tasks of this round up to and with these */
} seg;

typedef struct job {
    const weft_kernel__gemm_isa *isa;
    seg                         *seg;
    int                          n_seg;
    int64_t                      round;
    int                          n_thread;
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
    int64_t rows   = min64(floats / max64(chunk_k, 1), GEMM_MAX_COLS);
    int64_t most   = max64(1, rows / c->p_width);
    int64_t useful = max64(1, (int64_t)(2.0 * (double)g->m * (double)g->n * (double)g->k /
                                        (double)TASK_FLOP));

    c->p_panels = ceil_div(c->p_dim, c->p_width);
    c->n_strip  = ceil_div(c->p_panels, most);
    if (c->n_strip % 4) c->n_strip = round_up(c->n_strip, 4);
    c->n_strip = max64(min64(c->n_strip, useful), ceil_div(c->p_panels, most));
    c->n_strip = min64(c->n_strip, c->p_panels);
}

/* A row-major A needs no packing, unless its rows fall on the same few sets of the first-level
 * cache (lines of 64, 4096 bytes to the next of a set). */
static bool placed(const weft_gemm *g)
{
    const int64_t apart = (g->a_rs & 1023) * 4;

    return g->ta == WEFT_DTYPE_F32 && g->a_cs == 1 && g->a_rs > 0 && apart >= 128 &&
           apart <= 4096 - 128;
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
    c.placed   = isa->placed && placed(g);
    cut_strips(&c, g, chunk_k, min64(isa->strip_floats, STRIP_FLOATS));
    c.sub_panels =
        c.share_a
            ? GEMM_MAX_COLS / isa->nr
            : max64(1, min64(SUB_FLOATS / max64(chunk_k, 1), GEMM_MAX_COLS) / isa->nr);
    return c;
}

/* Most rows of a shared operand in a round, its last panel being whole. */
static int64_t shared_rows(const weft_gemm *g)
{
    return min64(min64(g->m, g->n), SHARED_ROWS) + 64;
}

/* One mark for each shared panel: none is narrower than four. */
static int64_t mark_floats(const weft_gemm *g)
{
    return round_up(shared_rows(g) / 4, LINE);
}

/* The k at which a chunk begins. */
static int64_t chunk_k0(const seg *s, int64_t chunk)
{
    return min64(chunk * s->c.chunk_blocks * s->c.kc, s->g.k);
}

/* ---- packing --------------------------------------------------------------------------- */

/* A rectangle of A or B: rows r0..r1 (columns, for B) of k0..k1. */
typedef struct piece {
    const char *p; /* its first element */
    weft_dtype  t;
    int64_t     n_row, n_k, rs, cs; /* strides from row to row and along k */
} piece;

static piece piece_of(const weft_gemm *g, bool a, int64_t batch, int64_t r0, int64_t r1,
                      int64_t k0, int64_t k1)
{
    piece   o = {.t = a ? g->ta : g->tb, .n_row = r1 - r0, .n_k = k1 - k0};
    int64_t at;

    o.rs = a ? g->a_rs : g->b_cs;
    o.cs = a ? g->a_cs : g->b_rs;
    at   = batch * (a ? g->a_bs : g->b_bs) + r0 * o.rs + k0 * o.cs;
    o.p  = (const char *)(a ? g->a : g->b) + at * (o.t == WEFT_DTYPE_F32 ? 4 : 2);
    return o;
}

/* Into panels as [panel][k][width].  Steps of 32 along k keep the lines of a row in cache from
 * panel to panel. */
static void pack_piece(const weft_kernel__gemm_isa *isa, const piece *o, int width,
                       float *dst)
{
    const int64_t size = o->t == WEFT_DTYPE_F32 ? 4 : 2;
    const int64_t step = o->rs == 1 && o->n_row > width ? 32 : o->n_k;

    for (int64_t k = 0; k < o->n_k; k += step) {
        float *d = dst + k * width;
        for (int64_t r = 0; r < o->n_row; r += width, d += width * o->n_k)
            isa->pack(width, d, o->p + (r * o->rs + k * o->cs) * size, o->t,
                      min64(width, o->n_row - r), min64(step, o->n_k - k), o->rs, o->cs);
    }
}

/* What this thread will most likely pack next, fetched while it multiplies.  A wrong guess costs
 * a little time, nothing else. */
typedef struct ahead {
    weft_kernel__gemm_ahead at;
    int64_t                 left; /* pairs of lines */
} ahead;

static ahead ahead_of(const piece *o)
{
    const int64_t size  = o->t == WEFT_DTYPE_F32 ? 4 : 2;
    const int64_t lines = o->rs == 1 ? o->n_k : o->n_row;
    const int64_t bytes = (o->rs == 1 ? o->n_row : o->n_k) * size;
    const int64_t pitch = (o->rs == 1 ? o->cs : o->rs) * size;
    const int64_t pairs = ceil_div(bytes, GEMM_PAIR);

    if ((o->rs != 1 && o->cs != 1) || lines == 0 || pairs == 0) return (ahead){0};
    return (ahead){{o->p, pairs, pairs, pitch - pairs * GEMM_PAIR}, lines * pairs};
}

/* ---- multiplying ----------------------------------------------------------------------- */

/* A block of C that one task sums over one chunk, and the panels for it. */
typedef struct block {
    const job   *j;
    const seg   *s;
    int64_t      batch, chunk, k0, k1;
    int64_t      i0, i1, j0, j1; /* rows and columns of C */
    float       *a, *b;          /* panels of all k of the chunk */
    float       *shared;
    _Atomic int *mark; /* a shared panel: 2 round + 1 claimed, 2 round + 2 packed */
    float       *sum;
    ahead        next[2]; /* shared panel, strip */
    piece        strip;   /* what the strip is packed from */
    bool fuse_a, fuse_b;  /* the panels of this row block are packed by its tiles */
} block;

static piece shared_piece(const block *w, int64_t p0, int64_t p1)
{
    const cut *c  = &w->s->c;
    int64_t    s0 = w->j->round / c->n_chunk * c->s_rows;
    int64_t    r0 = s0 + p0 * c->s_width, r1 = min64(s0 + p1 * c->s_width, c->s_dim);

    return piece_of(&w->s->g, c->share_a, w->batch, r0, r1, w->k0, w->k1);
}

/* Whether tiles can pack these panels on the way: full ones, contiguous in their matrix. */
static bool fusible(const piece *o, int64_t width)
{
    return o->rs == 1 && o->t == WEFT_DTYPE_F32 && o->n_row % width == 0 && o->n_k > 0;
}

static int packed_mark(const block *w)
{
    return (int)(2 * w->j->round + 2);
}

/* True: the panel is the caller's to pack.  False: it is packed (maybe after a wait). */
static bool shared_claim(const block *w, int64_t panel)
{
    const int    packed = packed_mark(w);
    _Atomic int *mark   = w->mark + panel;
    int          was    = atomic_load_explicit(mark, memory_order_acquire);

    if (was < packed - 1 && atomic_compare_exchange_strong(mark, &was, packed - 1))
        return true;
    while (was != packed) {
        sched_yield();
        was = atomic_load_explicit(mark, memory_order_acquire);
    }
    return false;
}

static void shared_publish(const block *w, int64_t panel)
{
    atomic_store_explicit(w->mark + panel, packed_mark(w), memory_order_release);
}

/* Makes shared panels [p0,p1) ready.  True when tiles shall pack them: then all are claimed. */
static bool shared_need(block *w, int64_t p0, int64_t p1, bool may_fuse)
{
    const int width = w->s->c.s_width;
    uint64_t  mine  = 0;

    for (int64_t p = p0; p < p1; p++) {
        piece o = shared_piece(w, p, p + 1);
        may_fuse &= fusible(&o, width);
        if (shared_claim(w, p))
            mine |= 1ull << (p - p0);
        else
            may_fuse = false;
    }
    if (may_fuse) return true;
    for (int64_t p = p0; p < p1; p++) {
        if (!(mine >> (p - p0) & 1)) continue;
        piece o = shared_piece(w, p, p + 1);
        pack_piece(w->j->isa, &o, width, w->shared + p * width * (w->k1 - w->k0));
        shared_publish(w, p);
    }
    return false;
}

/* Shared panels [p0,p1) come next: fetch the first that nobody has packed. */
static void shared_foresee(block *w, int64_t p0, int64_t p1)
{
    w->next[0] = (ahead){0};
    for (int64_t p = p0; p < p1; p++)
        if (atomic_load_explicit(w->mark + p, memory_order_relaxed) <
            2 * w->j->round + 1) {
            piece o    = shared_piece(w, p, p + 1);
            w->next[0] = ahead_of(&o);
            return;
        }
}

/* Whether the last tile may write C itself. */
static bool direct(const block *w)
{
    const weft_gemm *g = &w->s->g;

    return g->alpha == 1.0f && g->tc == WEFT_DTYPE_F32 && g->c_cs == 1 && w->k1 > w->k0 &&
           (g->n_post == 0 || w->chunk < w->s->c.n_chunk - 1);
}

static void finish(const block *w, int64_t i, int64_t j, int rows, int64_t cols,
                   int64_t ld, int64_t done)
{
    const weft_gemm *g = &w->s->g;

    if (w->k0 == w->k1) memset(w->sum, 0, (size_t)(rows * ld) * sizeof(float));
    w->j->isa->finish(&(weft_kernel__gemm_rows){
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
        .last    = w->chunk == w->s->c.n_chunk - 1,
    });
}

/* Where a panel of A or B lies unpacked, at a k of the chunk. */
static const float *source(const block *w, bool a, int64_t panel, int64_t k,
                           int64_t *step)
{
    const weft_gemm *g = &w->s->g;

    *step = a ? g->a_cs : g->b_rs;
    if (a)
        return (const float *)g->a + w->batch * g->a_bs + w->i0 + panel * w->j->isa->mr +
               (w->k0 + k) * g->a_cs;
    return (const float *)g->b + w->batch * g->b_bs + w->j0 + panel * w->j->isa->nr +
           (w->k0 + k) * g->b_rs;
}

/* Panel ip of A by panels [p0,p1) of B: the sums over the chunk, then where they belong. */
static void row_block(block *w, int64_t ip, int64_t p0, int64_t p1)
{
    const weft_kernel__gemm_isa *isa = w->j->isa;
    const weft_gemm             *g   = &w->s->g;
    const int64_t                n_k = w->k1 - w->k0;
    const int64_t                i = w->i0 + ip * isa->mr, j = w->j0 + p0 * isa->nr;
    const int                    rows = (int)min64(isa->mr, w->i1 - i);
    const int64_t                cols = min64(w->j1 - j, (p1 - p0) * isa->nr);
    const int64_t                ld   = (p1 - p0) * isa->nr;
    const int64_t                done = direct(w) ? cols / isa->nr * isa->nr : 0;
    const bool                   add  = w->chunk > 0 || g->accumulate;
    const float *a_at = (const float *)g->a + w->batch * g->a_bs + i * g->a_rs + w->k0;
    weft_kernel__gemm_ahead idle = {(const char *)w->sum, 1, 1, -GEMM_PAIR};

    for (int64_t k = 0; k < n_k; k += w->s->c.kc) {
        weft_kernel__gemm_tile t = {.kc = min64(w->s->c.kc, n_k - k), .ld_in = ld};
        for (int64_t p = p0; p < p1; p++) {
            int64_t col = (p - p0) * isa->nr;
            t.a = w->a + (ip * n_k + k) * isa->mr, t.b = w->b + (p * n_k + k) * isa->nr;
            if (w->s->c.placed) t.a = a_at + k, t.a_rs = g->a_rs;
            t.out = w->sum + col, t.ld_out = ld;
            t.in = k > 0 ? t.out : NULL, t.add = NULL;
            if (k + t.kc == n_k && col < done) {
                t.out    = (float *)g->c + w->batch * g->c_bs + i * g->c_rs + j + col;
                t.ld_out = t.ld_add = g->c_rs;
                if (add) t.add = t.out;
            }
            ahead *h = w->next[0].left > 0 ? w->next : w->next + 1;
            t.ahead  = h->left > 0 ? &h->at : &idle;
            h->left -= t.kc / GEMM_AHEAD;
            if (w->fuse_b)
                t.copy = w->b + (p * n_k + k) * isa->nr,
                t.b    = source(w, false, p, k, &t.src_step), isa->copy_b(&t);
            else if (w->fuse_a && p == p0 && rows == isa->mr)
                t.copy = w->a + (ip * n_k + k) * isa->mr,
                t.a    = source(w, true, ip, k, &t.src_step), isa->copy_a(&t);
            else
                isa->tile(rows, &t);
        }
    }
    if (done < cols) finish(w, i, j, rows, cols, ld, done);
}

/* Rows [*r0,*r1) of the streamed operand in a strip. */
static void strip_rows(const cut *c, int64_t strip, int64_t *r0, int64_t *r1)
{
    *r0 = c->p_panels * strip / c->n_strip * c->p_width;
    *r1 = min64(c->p_panels * (strip + 1) / c->n_strip * c->p_width, c->p_dim);
}

/* A panel of the shared A by the strip of B.  The first one finds the strip unpacked. */
static void shared_a(block *w, int64_t p, int64_t n_b, bool first)
{
    const int mr   = w->j->isa->mr;
    bool      full = w->i0 + (p + 1) * mr <= w->i1;

    w->fuse_b = first && full && fusible(&w->strip, w->j->isa->nr);
    if (first && !w->fuse_b) pack_piece(w->j->isa, &w->strip, w->j->isa->nr, w->b);
    w->fuse_a = !w->s->c.placed && shared_need(w, p, p + 1, !first);
    row_block(w, p, 0, n_b);
    if (w->fuse_a) shared_publish(w, p);
}

/* Panels [p0,p1) of the shared B by the strip of A. */
static void shared_b(block *w, int64_t n_a, int64_t p0, int64_t p1, bool first)
{
    const int mr   = w->j->isa->mr;
    bool      full = w->i0 + mr <= w->i1;

    w->fuse_a = first && !w->s->c.placed && fusible(&w->strip, mr);
    if (first && !w->fuse_a && !w->s->c.placed)
        pack_piece(w->j->isa, &w->strip, mr, w->a);
    w->fuse_b = shared_need(w, p0, p1, (!first || w->s->c.placed) && full);
    for (int64_t i = 0; i < n_a; i++) {
        row_block(w, i, p0, p1);
        for (int64_t p = p0; w->fuse_b && p < p1; p++) shared_publish(w, p);
        w->fuse_b = false;
    }
}

/* All panels of A by all of B.  Threads begin at different shared panels, so that each packs
 * its part of them. */
static void multiply(block *w, int thread)
{
    const cut *c   = &w->s->c;
    int64_t    n_a = ceil_div(w->i1 - w->i0, w->j->isa->mr);
    int64_t    n_b = ceil_div(w->j1 - w->j0, w->j->isa->nr);
    int64_t    sub = c->share_a ? 1 : c->sub_panels;
    int64_t    n = c->share_a ? n_a : n_b, n_sub = ceil_div(n, sub);
    int64_t    q = n_sub * thread / w->j->n_thread;

    for (int64_t t = 0; t < n_sub; t++) {
        int64_t p0 = q * sub, p1 = min64(p0 + sub, n);
        q = q + 1 < n_sub ? q + 1 : 0;
        if (t + 1 < n_sub) shared_foresee(w, q * sub, min64(q * sub + sub, n));
        if (c->share_a)
            shared_a(w, p0, n_b, t == 0);
        else
            shared_b(w, n_a, p0, p1, t == 0);
    }
}

/* The strip that this thread is likely to get next, in this chunk or the one after it. */
static void strip_foresee(block *w, int64_t strip)
{
    const seg *s  = w->s;
    int64_t    k0 = w->k0, k1 = w->k1, p0, p1;

    if (strip >= s->c.n_strip) {
        strip -= s->c.n_strip;
        k0 = k1, k1 = chunk_k0(s, w->chunk + 2);
    }
    if (strip >= s->c.n_strip || k0 == k1) return;
    strip_rows(&s->c, strip, &p0, &p1);
    piece o    = piece_of(&s->g, !s->c.share_a, w->batch, p0, p1, k0, k1);
    w->next[1] = ahead_of(&o);
}

static void work_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    const seg *s = j->seg;

    for (; task >= s->task_end; s++) {
    }
    if (s > j->seg) task -= s[-1].task_end;

    const cut *c     = &s->c;
    int64_t    entry = task / c->n_strip, strip = task % c->n_strip, p0, p1;
    int64_t    s0   = j->round / c->n_chunk * c->s_rows;
    int64_t    s1   = min64(s0 + c->s_rows, c->s_dim);
    float     *area = s->shared + entry * s->shared_stride;
    float     *mem  = (float *)(void *)(j->thread_mem + (size_t)thread * j->thread_bytes);
    float     *pack = mem + SUM_FLOATS;
    block      w    = {.j = j, .s = s, .batch = s->batch0 + entry, .sum = mem};

    w.chunk = j->round % c->n_chunk;
    w.k0 = chunk_k0(s, w.chunk), w.k1 = chunk_k0(s, w.chunk + 1);
    w.mark = (_Atomic int *)(void *)area, w.shared = area + mark_floats(&s->g);
    strip_foresee(&w, strip + j->n_thread);
    strip_rows(c, strip, &p0, &p1);
    w.strip = piece_of(&s->g, !c->share_a, w.batch, p0, p1, w.k0, w.k1);
    if (c->share_a)
        w.i0 = s0, w.i1 = s1, w.j0 = p0, w.j1 = p1, w.a = w.shared, w.b = pack;
    else
        w.i0 = p0, w.i1 = p1, w.j0 = s0, w.j1 = s1, w.a = pack, w.b = w.shared;
    multiply(&w, thread);
}

/* ---- running --------------------------------------------------------------------------- */

static bool empty(const weft_gemm *g)
{
    return g->batch <= 0 || g->m <= 0 || g->n <= 0;
}

/* Floats of the shared operand of one product in a round; never less for a larger shape. */
static int64_t shared_bound(const weft_gemm *g)
{
    int64_t k = min64(g->k, BLOCK_K * CHUNK_BLOCKS);
    return mark_floats(g) + round_up(shared_rows(g) * k, LINE);
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
        int64_t n_task = 0;
        for (int i = 0; i < j->n_seg; i++) {
            seg *s = j->seg + i;
            if (j->round < s->c.n_sblock * s->c.n_chunk)
                n_task += s->n_batch * s->c.n_strip;
            s->task_end = n_task;
        }
        weft_pool_run(pool, n_task, work_task, j);
    }
}

/* Clears the marks of the segment's shared panels. */
static void seg_clear(const seg *s)
{
    for (int64_t b = 0; b < s->n_batch; b++)
        memset(s->shared + b * s->shared_stride, 0,
               (size_t)mark_floats(&s->g) * sizeof(float));
}

void weft_gemm_run_many(const weft_gemm *g, int n_gemm, weft_pool *pool, void *scratch)
{
    int     n_thread = pool ? weft_pool_threads(pool) : 1;
    int64_t room = shared_floats(g, n_gemm), used = 0;
    job     j = {.isa = isa_now(), .seg = scratch, .n_thread = n_thread};

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
