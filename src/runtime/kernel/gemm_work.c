/* One task of a matrix product: a strip of the streamed operand by all of the shared one.
 *
 * In: a job cut by gemm.c.  Out: its part of C, summed over one chunk of k.
 * (1) Whoever first needs a panel of the shared operand packs it for all; the strip is packed into
 *     the thread's own memory, where it stays in the second-level cache.  What lies contiguous
 *     is packed by the first tiles that read it, on the way; a row-major A may not be packed at
 *     all.
 * (2) What a thread packs next is fetched while it multiplies.
 * (3) No thread waits while it holds a panel that another may wait for: claims are made in the
 *     order of panels, and tiles wait for nothing.
 * (4) Work that is dropped ends between two shared panels, where a thread has published all that
 *     it has claimed.
 *
 *         strip of B
 *         |  |####|         |     the strip stays in L2, panels of A pass through L1;
 *      A  |  |####|    C    |     the sums of a row block are finished while in L1
 *         |  |####|         |
 */
#include "kernel/gemm_priv.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

typedef weft_kernel__gemm_cut cut;
typedef weft_kernel__gemm_seg seg;
typedef weft_kernel__gemm_job job;

/* The k at which a chunk begins. */
static int64_t chunk_k0(const seg *s, int64_t chunk)
{
    return gemm_min(chunk * s->c.chunk_blocks * s->c.kc, s->g.k);
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
                      gemm_min(width, o->n_row - r), gemm_min(step, o->n_k - k), o->rs,
                      o->cs);
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
    /* unaligned */
    const int64_t slack = ((uintptr_t)o->p | (uintptr_t)pitch) % 64 ? 60 : 0;
    const int64_t pairs = gemm_ceil_div(bytes + slack, GEMM_PAIR);

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
    int64_t      slots;   /* fetches that are left to the tiles of this task */
    piece        strip;   /* what the strip is packed from */
    bool fuse_a, fuse_b;  /* the panels of this row block are packed by its tiles */
} block;

static piece shared_piece(const block *w, int64_t p0, int64_t p1)
{
    const cut *c  = &w->s->c;
    int64_t    s0 = w->j->round / c->n_chunk * c->s_rows;
    int64_t    r0 = s0 + p0 * c->s_width, r1 = gemm_min(s0 + p1 * c->s_width, c->s_dim);

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

/* What a tile adds to its sums before it writes C: C itself, then steps. */
typedef struct addends {
    int          n;
    const float *p[GEMM_ADDENDS]; /* of the batch */
    int64_t      rs[GEMM_ADDENDS];
} addends;

/* Whether the last tile may write C itself, and what it adds then. */
static bool direct(const block *w, addends *o)
{
    const weft_gemm *g      = &w->s->g;
    int              n_post = w->chunk < w->s->c.n_chunk - 1 ? 0 : g->n_post;

    *o = (addends){0};
    if (w->chunk > 0 || g->accumulate)
        *o = (addends){1, {(float *)g->c + w->batch * g->c_bs}, {g->c_rs}};
    if (g->alpha != 1.0f || g->tc != WEFT_DTYPE_F32 || g->c_cs != 1 || w->k1 == w->k0 ||
        o->n + n_post > GEMM_ADDENDS)
        return false;
    for (int s = 0; s < n_post; s++) {
        const weft_gemm_post *q = g->post + s;
        if (q->kind != WEFT_POST_ADD || q->dtype != WEFT_DTYPE_F32 || q->cs != 1)
            return false;
        o->p[o->n] = (const float *)q->p + w->batch * q->bs, o->rs[o->n++] = q->rs;
    }
    return true;
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

/* The next strip is fetched as late as is safe: earlier it would be gone from the second-level
 * cache before it is packed. */
static ahead *fetch_now(block *w)
{
    if (w->next[0].left > 0) return w->next;
    if (w->next[1].left > 0 && w->slots <= w->next[1].left * 5 / 4) return w->next + 1;
    return NULL;
}

/* What the end of this tile's sums will touch: C, and the first matrix of the steps. */
static void near(const block *w, int64_t i, int64_t j, weft_kernel__gemm_tile *t)
{
    const weft_gemm *g      = &w->s->g;
    int              n_post = w->chunk < w->s->c.n_chunk - 1 ? 0 : g->n_post;

    if (g->tc != WEFT_DTYPE_F32 || g->c_cs != 1 || w->s->part) return;
    t->near[0].p  = (const float *)g->c + w->batch * g->c_bs + i * g->c_rs + j;
    t->near[0].ld = g->c_rs;
    for (int s = 0; s < n_post; s++) {
        const weft_gemm_post *q = g->post + s;
        if (!q->p || !q->rs || q->cs != 1 || q->dtype != WEFT_DTYPE_F32) continue;
        t->near[1].p  = (const float *)q->p + w->batch * q->bs + i * q->rs + j;
        t->near[1].ld = q->rs;
        return;
    }
}

/* Panel ip of A by panels [p0,p1) of B: the sums over the chunk, then where they belong. */
static void row_block(block *w, int64_t ip, int64_t p0, int64_t p1)
{
    const weft_kernel__gemm_isa *isa = w->j->isa;
    const weft_gemm             *g   = &w->s->g;
    const int64_t                n_k = w->k1 - w->k0;
    const int64_t                i = w->i0 + ip * isa->mr, j = w->j0 + p0 * isa->nr;
    const int                    rows = (int)gemm_min(isa->mr, w->i1 - i);
    const int64_t                cols = gemm_min(w->j1 - j, (p1 - p0) * isa->nr);
    const int64_t                ld   = (p1 - p0) * isa->nr;
    addends                      add;
    const int64_t                done = direct(w, &add) ? cols / isa->nr * isa->nr : 0;
    const float *a_at = (const float *)g->a + w->batch * g->a_bs + i * g->a_rs + w->k0;
    weft_kernel__gemm_ahead idle = {(const char *)w->sum, 1, 1, -GEMM_PAIR};

    for (int64_t k = 0; k < n_k; k += w->s->c.kc) {
        weft_kernel__gemm_tile t = {.kc = gemm_min(w->s->c.kc, n_k - k), .ld_in = ld};
        for (int64_t p = p0; p < p1; p++) {
            int64_t col = (p - p0) * isa->nr;
            t.a = w->a + (ip * n_k + k) * isa->mr, t.b = w->b + (p * n_k + k) * isa->nr;
            if (w->s->c.placed) t.a = a_at + k, t.a_rs = g->a_rs;
            t.out = w->sum + col, t.ld_out = ld;
            t.in = k > 0 ? t.out : NULL;
            memset(t.add, 0, sizeof t.add);
            if (k + t.kc == n_k) near(w, i, j + col, &t);
            if (k + t.kc == n_k && col < done) {
                t.out    = (float *)g->c + w->batch * g->c_bs + i * g->c_rs + j + col;
                t.ld_out = g->c_rs;
                for (int x = 0; x < add.n; x++)
                    t.ld_add[x] = add.rs[x],
                    t.add[x]    = add.p[x] + i * add.rs[x] + j + col;
            }
            ahead *h = fetch_now(w);
            t.ahead  = h ? &h->at : &idle;
            if (h) h->left -= t.kc / GEMM_AHEAD;
            w->slots -= t.kc / GEMM_AHEAD;
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
    *r1 = gemm_min(c->p_panels * (strip + 1) / c->n_strip * c->p_width, c->p_dim);
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
    int64_t    n_a = gemm_ceil_div(w->i1 - w->i0, w->j->isa->mr);
    int64_t    n_b = gemm_ceil_div(w->j1 - w->j0, w->j->isa->nr);
    int64_t    sub = c->share_a ? 1 : c->sub_panels;
    int64_t    n = c->share_a ? n_a : n_b, n_sub = gemm_ceil_div(n, sub);
    int64_t    q = n_sub * thread / w->j->n_thread;

    w->slots = n_a * n_b * ((w->k1 - w->k0) / GEMM_AHEAD);

    for (int64_t t = 0; t < n_sub && !weft_pool_is_stopped(w->j->pool); t++) {
        int64_t p0 = q * sub, p1 = gemm_min(p0 + sub, n);
        q = q + 1 < n_sub ? q + 1 : 0;
        if (t + 1 < n_sub) shared_foresee(w, q * sub, gemm_min(q * sub + sub, n));
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

void weft_kernel__gemm_work(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    const seg *s = j->seg;

    for (; task >= s->task_end; s++) {
    }
    if (s > j->seg) task -= s[-1].task_end;

    const cut *c     = &s->c;
    int64_t    entry = task / c->n_strip, strip = task % c->n_strip, p0, p1;
    int64_t    s0   = j->round / c->n_chunk * c->s_rows;
    int64_t    s1   = gemm_min(s0 + c->s_rows, c->s_dim);
    int64_t    copy = entry * s->n_copy + (s->n_copy > 1 ? thread : 0);
    float     *area = s->shared + copy * s->shared_stride;
    float     *mem  = (float *)(void *)(j->thread_mem + (size_t)thread * j->thread_bytes);
    float     *pack = mem + GEMM_SUM_FLOATS;
    block      w    = {.j = j, .s = s, .batch = s->batch0 + entry, .sum = mem};

    w.chunk = j->round % c->n_chunk;
    w.k0 = chunk_k0(s, w.chunk), w.k1 = chunk_k0(s, w.chunk + 1);
    w.mark = (_Atomic int *)(void *)area, w.shared = area + s->n_mark;
    strip_foresee(&w, strip + 1);
    strip_rows(c, strip, &p0, &p1);
    w.strip = piece_of(&s->g, !c->share_a, w.batch, p0, p1, w.k0, w.k1);
    if (c->share_a)
        w.i0 = s0, w.i1 = s1, w.j0 = p0, w.j1 = p1, w.a = w.shared, w.b = pack;
    else
        w.i0 = p0, w.i1 = p1, w.j0 = s0, w.j1 = s1, w.a = pack, w.b = w.shared;
    multiply(&w, thread);
}
