/* The journal of a step's updates, in memory that outlives the process.
 *
 * In: positions of streams, chunks of updates.  Out: the rest of a step that another process has
 * begun.  A process that is killed has executed a prefix of each thread's stores, and all of them
 * are there when it is waited for; so what counts is the order of stores in each thread.
 *
 * (1) A stream's position is the instruction that it is in: those before it are done, those after
 *     it have not begun.  Instructions that wait for it on other streams have not begun either, so
 *     what it reads is as it was, but for what it overwrites itself.
 * (2) An instruction that overwrites none of its operands is repeated from its beginning.
 * (3) An update (WEFT_OP_UPDATE) overwrites its operands.  It is made chunk by chunk:
 *
 *         undo of this thread says: this chunk of this instruction, no block of it
 *         the kernel, on the chunk, with old values block by block -> undo (kernel/undo.h)
 *         done[chunk] = this instruction
 *
 *     The kernel has the old values in its registers or in the first-level cache, so memory is
 *     read once.  A chunk that was begun has at most one block that is broken off: that is
 *     restored, and the rest of the chunk is made.
 * (4) Whatever else overwrites its operands cannot be repeated: WEFT_ERR_ARG. */
#include <string.h>

#include "base/failpoint.h"
#include "exec/exec_priv.h"
#include "kernel/undo.h"
#include "program/own.h"

enum {
    CHUNK   = 1 << 16, /* elements, whole blocks */
    MAX_OUT = 6,       /* with those of casts that are part of it */
    MAX_IN  = 16,
    LINE    = 64,
    MAGIC   = 0x314a4657 /* "WFJ1" */
};

typedef struct undo_slot {
    _Atomic uint64_t tag; /* of the instruction; 0: nothing is in it */
    _Atomic int64_t  chunk;
    char             line[LINE - 2 * sizeof(uint64_t)];
    weft_kernel_undo undo;
} undo_slot;

/* The beginning of the memory; then of each stream its chunks and undos. */
typedef struct journal_head {
    uint64_t         magic, bytes;
    _Atomic int64_t  step;                      /* that positions are of; -1: none */
    _Atomic uint64_t position[WEFT_MAX_STREAM]; /* firing << 32 | instruction */
} journal_head;

/* Of the exec's stream of the same number. */
typedef struct stream_journal {
    /* of each chunk: the tag of the last update that it was made in */
    _Atomic uint64_t *done;
    undo_slot        *undo; /* of each thread */
    int               n_thread;
    int at, instr; /* resumed: instructions of that firing before it are done */
} stream_journal;

struct weft_exec__journal {
    journal_head     *head;
    stream_journal    stream[WEFT_MAX_STREAM];
    weft_commit_place commit;
    bool             *late; /* of each buffer: gathered after the commit point */
    bool              can_gather;
};

/* ---- what is made by chunks ---- */

static int64_t count_operand(const weft_operand *o)
{
    return weft_shape_count(&o->type.shape);
}

/* Element by element, with its casts. */
static bool is_elementwise(const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COMPUTE || !(weft_op_get(i->op)->flags & WEFT_OP_UPDATE))
        return false;
    for (int k = 0; k < i->n_post; k++)
        if (i->post[k].op != WEFT_OP_CAST) return false;
    return true;
}

static bool is_chunkable(const weft_instr *i)
{
    int64_t n = i->n_out ? count_operand(&i->out[0]) : 0;
    if (!is_elementwise(i) || n < 1 || i->add || i->into ||
        i->n_own_out > WEFT_UNDO_RESULT || i->n_out > MAX_OUT || i->n_in > MAX_IN)
        return false;
    for (int k = 0; k < i->n_out; k++)
        if (count_operand(&i->out[k]) != n || !weft_operand_contiguous(&i->out[k]) ||
            weft_dtype_bytes(i->out[k].type.dtype) > (int64_t)sizeof(float))
            return false;
    for (int k = 0; k < i->n_in; k++) {
        int64_t m = count_operand(&i->in[k]);
        if ((m != n && m != 1) || !weft_operand_contiguous(&i->in[k])) return false;
    }
    return true;
}

static int64_t count_chunks(const weft_instr *i)
{
    return is_chunkable(i) ? (count_operand(&i->out[0]) + CHUNK - 1) / CHUNK : 0;
}

/* Of the largest update of a stream; 0: it has none. */
static int64_t find_most_chunks(const weft_program *p, int stream)
{
    int64_t most = 0;
    for (int f = 0; f < p->stream[stream].n_firing; f++) {
        const weft_actor *a = &p->actor[p->stream[stream].firing[f].actor];
        for (int n = 0; n < a->n_instr; n++) {
            int64_t c = count_chunks(&a->instr[n]);
            if (c > most) most = c;
        }
    }
    return most;
}

/* ---- memory ---- */

static int64_t round_line(int64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t done_bytes(int64_t n_chunk)
{
    return round_line(n_chunk * (int64_t)sizeof(uint64_t));
}

int64_t weft_exec_journal_bytes(const weft_program *p, int n_thread)
{
    int64_t bytes = round_line(sizeof(journal_head));
    for (int s = 0; s < p->n_stream; s++) {
        int64_t n = find_most_chunks(p, s);
        if (n) bytes += done_bytes(n) + n_thread * (int64_t)sizeof(undo_slot);
    }
    return bytes;
}

static int count_threads(const weft_exec *e)
{
    const weft_pool *pool = e->o.pool ? e->o.pool : e->own_pool;
    return pool ? weft_pool_threads(pool) : 1;
}

static void place_streams(weft_exec *e, weft_exec__journal *j)
{
    char *p = (char *)j->head + round_line(sizeof(journal_head));
    for (int k = 0; k < e->n_stream; k++) {
        int64_t n             = find_most_chunks(e->p, e->stream[k].number);
        j->stream[k].at       = -1;
        j->stream[k].done     = (_Atomic uint64_t *)(void *)p;
        j->stream[k].undo     = (undo_slot *)(void *)(p + done_bytes(n));
        j->stream[k].n_thread = n ? count_threads(e) : 0;
        if (n) p += done_bytes(n) + count_threads(e) * (int64_t)sizeof(undo_slot);
    }
}

/* Chunks that are done, of steps that may be run again. */
static void clear_chunks(const weft_exec *e, weft_exec__journal *j)
{
    for (int k = 0; k < e->n_stream; k++) {
        stream_journal *s = &j->stream[k];
        if (!s->n_thread) continue;
        memset((void *)s->done, 0, (size_t)((char *)s->undo - (char *)s->done));
        for (int t = 0; t < s->n_thread; t++) atomic_store(&s->undo[t].tag, 0);
    }
}

static void clear_journal(const weft_exec *e, weft_exec__journal *j, int64_t bytes)
{
    atomic_store(&j->head->step, -1);
    clear_chunks(e, j);
    j->head->bytes = (uint64_t)bytes;
    j->head->magic = MAGIC;
}

static weft_status find_late(const weft_program *p, weft_arena *a, weft_exec__journal *j);

weft_status weft_exec__open_journal(weft_exec *e)
{
    int64_t             bytes = weft_exec_journal_bytes(e->p, count_threads(e));
    weft_exec__journal *j     = WEFT_ARENA_NEW(e->arena, weft_exec__journal);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int k = 0; k < e->n_stream; k++)
        if (!e->stream[k].device->needs_thread || !e->stream[k].device->host_access)
            return WEFT_FAIL(WEFT_ERR_ARG, "program %s: no journal of updates on %s",
                             e->p->name, e->stream[k].device->name);
    j->head = e->o.journal;
    place_streams(e, j);
    if (e->o.resumes && (j->head->magic != MAGIC || j->head->bytes != (uint64_t)bytes))
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: the journal is of another program",
                         e->p->name);
    if (!e->o.resumes) clear_journal(e, j, bytes);
    WEFT_TRY(find_late(e->p, e->arena, j));
    e->journal = j;
    return WEFT_OK;
}

/* ---- positions ---- */

static int number_of(const weft_exec__stream *s)
{
    return (int)(s - s->e->stream);
}

static void set_position(const weft_exec__stream *s, int at, int instr)
{
    atomic_store_explicit(&s->e->journal->head->position[number_of(s)],
                          (uint64_t)at << 32 | (uint64_t)instr, memory_order_release);
}

void weft_exec__begin_journal(weft_exec *e, int64_t step)
{
    atomic_store(&e->journal->head->step, -1);
    for (int k = 0; k < e->n_stream; k++) set_position(&e->stream[k], 0, 0);
    atomic_store(&e->journal->head->step, step);
}

int64_t weft_exec_journal_step(const weft_exec *e)
{
    return e->journal ? atomic_load(&e->journal->head->step) : -1;
}

static int find_place(const weft_exec__instr *x)
{
    return (int)(x - x->s->variant[x->s->at]->instr);
}

static bool is_gathered_again(const weft_exec__instr *x);
static bool is_after(const weft_exec__journal *j, int stream, int at, int instr);

bool weft_exec__takes_part(const weft_exec__instr *x)
{
    const weft_exec__stream *s = x->s;
    const stream_journal    *j = &s->e->journal->stream[number_of(s)];
    int                      n = find_place(x);
    if (s->e->gathers_again) return is_gathered_again(x);
    if (s->at == j->at && n < j->instr) return false;
    if (is_after(s->e->journal, s->number, s->at, n)) weft_failpoint("update.instr");
    set_position(s, s->at, n);
    if (weft_instr_is_comm(x->i) && is_after(s->e->journal, s->number, s->at, n))
        weft_failpoint("update.gather");
    return true;
}

void weft_exec__note_fired(const weft_exec__stream *s)
{
    if (!s->e->gathers_again) set_position(s, s->at + 1, 0);
}

/* ---- chunks ---- */

/* Of a step, one instruction of one firing; never 0. */
static uint64_t find_tag(const weft_exec__instr *x)
{
    return (uint64_t)(x->s->job_step + 1) << 36 | (uint64_t)x->s->at << 18 |
           (uint64_t)find_place(x);
}

typedef struct chunk_job {
    const weft_exec__instr *x;
    stream_journal         *j;
    uint64_t                tag;
    int64_t                 n;
    _Atomic int             st;
} chunk_job;

static chunk_job make_job(const weft_exec__instr *x)
{
    return (chunk_job){.x   = x,
                       .j   = &x->s->e->journal->stream[number_of(x->s)],
                       .tag = find_tag(x),
                       .n   = weft_shape_count(&x->call.out[0].shape)};
}

static bool is_journaled(const weft_exec__instr *x)
{
    return is_chunkable(x->i) && x->kernel->undoes && !x->kernel->scratch;
}

static weft_view cut_view(const weft_view *v, int64_t lo, int64_t n, int64_t all)
{
    weft_view out = *v;
    if (weft_shape_count(&v->shape) != all) return out; /* a scalar */
    out.p         = (char *)v->p + lo * weft_dtype_bytes(v->dtype);
    out.shape     = (weft_shape){.n = 1, .d = {n}};
    out.stride[0] = 1;
    return out;
}

/* A chunk from a block of it on. */
static weft_status run_part(const chunk_job *c, int64_t chunk, int64_t block,
                            weft_kernel_undo *undo)
{
    weft_kernel_call call = c->x->call;
    weft_kernel_ctx  ctx  = c->x->s->ctx;
    weft_view        in[MAX_IN], out[MAX_OUT];
    int64_t          lo = chunk * CHUNK + block * WEFT_UNDO_BLOCK;
    int64_t          hi = (chunk + 1) * CHUNK < c->n ? (chunk + 1) * CHUNK : c->n;
    for (int k = 0; k < call.n_in; k++) in[k] = cut_view(&call.in[k], lo, hi - lo, c->n);
    for (int k = 0; k < call.n_out; k++)
        out[k] = cut_view(&call.out[k], lo, hi - lo, c->n);
    undo->first = block;
    call.in     = in;
    call.out    = out;
    call.undo   = undo;
    ctx.pool    = NULL; /* this is a task of it */
    return c->x->kernel->run(&call, &ctx);
}

static void begin_chunk(const chunk_job *c, int64_t chunk, undo_slot *u)
{
    atomic_store(&u->tag, 0); /* what follows belongs to it */
    atomic_store_explicit(&u->undo.block, -1, memory_order_release);
    atomic_store_explicit(&u->chunk, chunk, memory_order_release);
    atomic_store_explicit(&u->tag, c->tag, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

static void end_chunk(chunk_job *c, int64_t chunk, weft_status st)
{
    if (st != WEFT_OK) atomic_store(&c->st, (int)st);
    atomic_store_explicit(&c->j->done[chunk], c->tag, memory_order_release);
    weft_failpoint("update.chunk_done");
}

static void run_chunk(void *arg, int64_t chunk, int thread)
{
    chunk_job *c = arg;
    undo_slot *u = &c->j->undo[thread];
    if (atomic_load_explicit(&c->j->done[chunk], memory_order_relaxed) == c->tag) return;
    begin_chunk(c, chunk, u);
    weft_failpoint("update.chunk_begun");
    weft_status st = run_part(c, chunk, 0, &u->undo);
    weft_failpoint("update.chunk_made");
    end_chunk(c, chunk, st);
}

static weft_status report_chunks(chunk_job *c)
{
    weft_status st = (weft_status)atomic_load(&c->st);
    return st == WEFT_OK ? WEFT_OK : WEFT_FAIL(st, "a chunk of the update failed");
}

weft_status weft_exec__run_chunks(const weft_exec__instr *x, bool *done)
{
    if (!is_journaled(x)) return WEFT_OK;
    chunk_job c = make_job(x);
    *done       = true;
    weft_pool_run(x->s->ctx.pool, count_chunks(x->i), run_chunk, &c);
    return report_chunks(&c);
}

/* ---- another process goes on ---- */

static void restore_block(const chunk_job *c, int64_t chunk, int64_t block,
                          const weft_kernel_undo *undo)
{
    int64_t lo = chunk * CHUNK + block * WEFT_UNDO_BLOCK, n = c->n - lo;
    if (n > WEFT_UNDO_BLOCK) n = WEFT_UNDO_BLOCK;
    for (int k = 0; k < c->x->call.n_own_out; k++)
        memcpy((float *)c->x->call.out[k].p + lo, undo->old[block % 2][k],
               (size_t)n * sizeof(float));
}

/* Ends chunks that were begun.  Each keeps its undo, into which the kernel first stores the same
 * values again: so this can be broken off as well. */
static weft_status end_chunks(const weft_exec__instr *x)
{
    chunk_job c = make_job(x);
    for (int t = 0; t < c.j->n_thread; t++) {
        undo_slot *u     = &c.j->undo[t];
        int64_t    chunk = atomic_load(&u->chunk), block = atomic_load(&u->undo.block);
        if (atomic_load(&u->tag) != c.tag || chunk < 0 || chunk >= count_chunks(x->i) ||
            atomic_load(&c.j->done[chunk]) == c.tag)
            continue;
        if (block < -1 || block >= CHUNK / WEFT_UNDO_BLOCK ||
            chunk * CHUNK + block * WEFT_UNDO_BLOCK >= c.n)
            return WEFT_FAIL(WEFT_ERR_ARG, "the journal has block %lld of a chunk",
                             (long long)block);
        if (block >= 0) restore_block(&c, chunk, block, &u->undo);
        atomic_signal_fence(memory_order_seq_cst);
        end_chunk(&c, chunk, run_part(&c, chunk, block < 0 ? 0 : block, &u->undo));
    }
    return report_chunks(&c);
}

static int64_t span_of(const weft_view *v)
{
    int64_t last = 0;
    for (int d = 0; d < v->shape.n; d++) last += (v->shape.d[d] - 1) * v->stride[d];
    return weft_shape_count(&v->shape) ? (last + 1) * weft_dtype_bytes(v->dtype) : 0;
}

static bool is_overlapping(const weft_view *a, const weft_view *b)
{
    const char *x = a->p, *y = b->p;
    return x && y && x < y + span_of(b) && y < x + span_of(a);
}

static bool can_repeat(const weft_exec__instr *x)
{
    if (weft_instr_is_comm(x->i) || x->i->kind == WEFT_INSTR_READ ||
        x->i->kind == WEFT_INSTR_COMMIT)
        return true;
    if (x->call.add || x->i->kind == WEFT_INSTR_MERGE) return false;
    for (int k = 0; k < x->call.n_out; k++)
        for (int i = 0; i < x->call.n_in; i++)
            if (is_overlapping(&x->call.out[k], &x->call.in[i])) return false;
    return true;
}

/* The beginning of the launch that has the instruction. */
static int find_run_start(const int *run, int instr)
{
    int n = 0;
    while (n + (run[n] ? run[n] : 1) <= instr) n += run[n] ? run[n] : 1;
    return n;
}

/* To the stream's position in the journal. */
static weft_status find_stream(weft_exec *e, int k, int64_t step)
{
    weft_exec__stream *s        = &e->stream[k];
    stream_journal    *j        = &e->journal->stream[k];
    uint64_t           position = atomic_load(&e->journal->head->position[k]);
    int                at = (int)(position >> 32), instr = (int)(position & 0xffffffff);
    int                n_firing = e->p->stream[s->number].n_firing;
    bool               within   = at >= 0 && at < n_firing && instr >= 0;
    s->step                     = at == n_firing;
    s->at = s->instr = 0;
    j->at            = -1;
    if (at == n_firing) return WEFT_OK;
    const weft_firing *f = within ? &e->p->stream[s->number].firing[at] : NULL;
    if (!f || instr >= e->p->actor[f->actor].n_instr)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: the journal is of another program",
                         e->p->name);
    s->at               = at;
    s->firing           = f;
    s->job_step         = step;
    s->instr            = find_run_start(e->actor[f->actor].run, instr);
    j->at               = at;
    j->instr            = instr;
    weft_exec__instr *x = &s->variant[at]->instr[instr];
    if (is_journaled(x)) return end_chunks(x);
    if (!can_repeat(x))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "step %lld: '%s' was broken off and cannot be repeated",
                         (long long)step, x->i->name);
    return WEFT_OK;
}

weft_status weft_exec_resume(weft_exec *e, int64_t step)
{
    weft_status st = WEFT_OK;
    if (weft_exec_journal_step(e) != step || step < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: the journal has no step %lld",
                         e->p->name, (long long)step);
    e->first_step = step;
    e->held_step  = -1;
    for (int k = 0; k < e->n_stream && st == WEFT_OK; k++) st = find_stream(e, k, step);
    e->alone = true;
    if (st == WEFT_OK) st = weft_exec__fire_rest(e, step);
    e->alone = false;
    if (st == WEFT_OK) clear_chunks(e, e->journal); /* positions say that all is done */
    for (int k = 0; k < e->n_stream; k++) {
        e->stream[k].step = e->stream[k].at = e->stream[k].instr = 0;
        e->journal->stream[k].at                                 = -1;
    }
    return st;
}

/* ---- gathers ---- */

static bool is_after(const weft_exec__journal *j, int stream, int at, int instr)
{
    if (at != j->commit.before[stream]) return at > j->commit.before[stream];
    return stream != j->commit.stream || instr > j->commit.instr;
}

static bool is_copy(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COPY ||
           (i->kind == WEFT_INSTR_COMPUTE &&
            (i->op == WEFT_OP_CAST || i->op == WEFT_OP_CONCAT));
}

static bool is_state(const weft_program *p, const weft_operand *o)
{
    return o->buffer >= 0 &&
           weft_slab_kind_is_state(p->slab[p->buffer[o->buffer].slab].kind);
}

static bool takes_late(const weft_exec__journal *j, const weft_instr *i)
{
    for (int k = 0; k < i->n_in; k++)
        if (i->in[k].buffer >= 0 && j->late[i->in[k].buffer]) return true;
    return false;
}

/* Can a late instruction be run again out of state and what was gathered alone? */
static bool has_sources(const weft_exec__journal *j, const weft_program *p,
                        const weft_instr *i)
{
    bool gather = weft_exec__is_gather(i);
    for (int k = 0; k < i->n_in; k++)
        if (!is_state(p, &i->in[k]) &&
            !(i->in[k].buffer >= 0 && j->late[i->in[k].buffer]) &&
            !(gather && k < i->n_out && is_state(p, &i->out[k])))
            return false;
    return true;
}

/* true: a buffer was not known to be late. */
static bool mark_late(weft_exec__journal *j, const weft_program *p, const weft_instr *i)
{
    bool more = false;
    if (!weft_exec__is_gather(i) && i->kind != WEFT_INSTR_RECV &&
        !(is_copy(i) && takes_late(j, i)))
        return false;
    if (i->kind == WEFT_INSTR_RECV || !has_sources(j, p, i)) j->can_gather = false;
    for (int k = 0; k < i->n_out; k++) {
        int32_t b = i->out[k].buffer;
        if (b < 0 || j->late[b]) continue;
        j->late[b] = more = true;
    }
    return more;
}

/* Its commit point, and what is gathered after it. */
static weft_status find_late(const weft_program *p, weft_arena *a, weft_exec__journal *j)
{
    j->late = WEFT_ARENA_ARRAY(a, bool, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weft_program_find_before(p, a, &j->commit));
    for (bool more = j->commit.stream >= 0; more;) {
        more          = false;
        j->can_gather = true; /* what lacks a source now may have it when all are known */
        for (int s = 0; s < p->n_stream; s++)
            for (int f = j->commit.before[s]; f < p->stream[s].n_firing; f++) {
                const weft_actor *x = &p->actor[p->stream[s].firing[f].actor];
                for (int n = 0; n < x->n_instr; n++)
                    if (is_after(j, s, f, n)) more |= mark_late(j, p, &x->instr[n]);
            }
    }
    return WEFT_OK;
}

weft_status weft_exec_find_late(const weft_program *p, weft_arena *a, bool *late)
{
    weft_exec__journal j = {0};
    WEFT_TRY(find_late(p, a, &j));
    for (int b = 0; b < p->n_buffer; b++) late[b] = j.late[b];
    return WEFT_OK;
}

static bool is_gathered_again(const weft_exec__instr *x)
{
    const weft_exec__journal *j = x->s->e->journal;
    if (!is_after(j, x->s->number, x->s->at, find_place(x))) return false;
    if (!weft_exec__is_gather(x->i)) return is_copy(x->i) && takes_late(j, x->i);
    weft_exec__take_own_share(x);
    return true;
}

bool weft_exec_gathers(const weft_exec *e)
{
    for (int b = 0; e->journal && b < e->p->n_buffer; b++)
        if (e->journal->late[b]) return true;
    return false;
}

void weft_exec_gather_ranks(const weft_exec *e, bool *with)
{
    const weft_program       *p = e->p;
    const weft_exec__journal *j = e->journal;
    for (int s = 0; j && j->commit.stream >= 0 && s < p->n_stream; s++)
        for (int f = j->commit.before[s]; f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < a->n_instr; n++) {
                const weft_instr *i = &a->instr[n];
                if (!weft_exec__is_gather(i) || !is_after(j, s, f, n)) continue;
                for (int k = 0; k < p->group[i->group].n_rank; k++)
                    with[p->group[i->group].rank[k]] = true;
            }
        }
}

bool weft_exec_can_gather_again(const weft_exec *e)
{
    return e->journal && e->journal->can_gather;
}

weft_status weft_exec_gather_again(weft_exec *e, int64_t step)
{
    if (!weft_exec_can_gather_again(e))
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: its gathers cannot be repeated",
                         e->p->name);
    e->gathers_again = true;
    e->held_step     = -1;
    weft_status st   = weft_exec_run(e, step, 1);
    e->gathers_again = false;
    return st;
}
