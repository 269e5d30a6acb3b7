/* What the device calls for one instruction; reading samples; the commit point. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/flight.h"
#include "base/progress.h"
#include "exec/exec_priv.h"

static weft_status run_kernel(const weft_exec__instr *x)
{
    bool done = false;
    switch (x->i->kind) {
    case WEFT_INSTR_COMPUTE:
        if (x->s->e->journal) WEFT_TRY(weft_exec__run_chunks(x, &done));
        if (done) return WEFT_OK;
        if (x->group)
            return x->kernel->many->run(x->group->call, x->group->n, &x->s->ctx);
        return x->kernel->run(&x->call, &x->s->ctx);
    case WEFT_INSTR_COPY:
        if (x->transfer)
            return x->s->device->copy(x->s->device, &x->s->dev, &x->transfer->to,
                                      &x->transfer->from);
        return x->move(&x->s->ctx, x->call.out, x->call.in);
    case WEFT_INSTR_MERGE: return x->move(&x->s->ctx, x->call.out, x->call.in);
    case WEFT_INSTR_COLLECTIVE:
    case WEFT_INSTR_SEND:
    case WEFT_INSTR_RECV: return weft_exec__run_on_device(x);
    default: return WEFT_OK;
    }
}

/* What a kernel has made that ended early is of no use. */
static weft_status run(const weft_exec__instr *x)
{
    if (weft_exec__is_dropped(x->s)) return WEFT_ERR_PEER; /* the reason is in e->text */
    WEFT_TRY(run_kernel(x));
    return weft_exec__is_dropped(x->s) ? WEFT_ERR_PEER : WEFT_OK;
}

/* Only errors ask. */
static const char *find_actor_name(const weft_exec__instr *x)
{
    const weft_program *p = x->s->e->p;
    for (int i = 0; i < p->n_actor; i++)
        if (x->i >= p->actor[i].instr && x->i < p->actor[i].instr + p->actor[i].n_instr)
            return p->actor[i].name;
    return "?";
}

weft_status weft_exec__blame(const void *instr, weft_status st)
{
    const weft_exec__instr *x = instr;
    if (st == WEFT_OK) return st;
    return weft_fail_in(st, "%s, %s '%s': ", find_actor_name(x),
                        weft_instr_kind_name(x->i->kind), x->i->name);
}

/* ---- for those who watch this process ---- */

weft_status weft_exec__open_watch(weft_exec *e)
{
    size_t n = 0;
    for (int i = 0; i < e->p->n_actor; i++) n += (size_t)e->p->actor[i].n_instr;
    e->longest       = calloc((size_t)e->p->n_actor + 1, sizeof *e->longest);
    e->longest_table = calloc(n + 1, sizeof *e->longest_table);
    if (!e->longest || !e->longest_table) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    float *at = e->longest_table;
    for (int i = 0; i < e->p->n_actor; i++) {
        e->longest[i] = at;
        at += e->p->actor[i].n_instr;
    }
    return WEFT_OK;
}

void weft_exec__close_watch(weft_exec *e)
{
    free(e->longest);
    free(e->longest_table);
}

/* How often this thread had to leave its core to another one. */
static long count_preemptions(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) ? 0 : u.ru_nivcsw;
}

/* What an instruction has taken, of which the detector of hangs makes its limit.  A rank that waits
 * for a core is not slow: of a thread that was preempted it is the time that it had of a core.  One
 * that shares the work with a pool also waits for the others, which that time leaves out. */
static float find_taken(const weft_exec__stream *s, double wall_s, float longest)
{
    bool alone = !s->ctx.pool || weft_pool_threads(s->ctx.pool) == 1;
    if (wall_s <= (double)longest || !alone || count_preemptions() == s->n_preempted)
        return (float)wall_s;
    double cpu_s = weft_clock_thread_s() - s->begun_cpu_s;
    return (float)(cpu_s > 0 && cpu_s < wall_s ? cpu_s : wall_s);
}

/* By which its time is compared with that of others; kind 0: several at a time, or it depends on
 * others. */
static weft_progress_work find_work(const weft_exec__instr *x)
{
    bool computes = x->i->kind == WEFT_INSTR_COMPUTE;
    bool copies   = x->i->kind == WEFT_INSTR_COPY || x->i->kind == WEFT_INSTR_MERGE;
    _Static_assert(WEFT_N_OP + 2 < WEFT_PROGRESS_KINDS, "a kind for each operator");
    if (x->group || !(computes || copies)) return (weft_progress_work){0};
    weft_progress_work w = {.bytes = weft_instr_bytes(x->i)};
    w.amount             = w.bytes + weft_instr_flops(x->i);
    w.kind =
        computes ? 1 + (int)x->i->op : WEFT_N_OP + 1 + (x->i->kind == WEFT_INSTR_COPY);
    return w;
}

static const char *name_op(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COMPUTE      ? weft_op_get(i->op)->name
           : i->kind == WEFT_INSTR_COLLECTIVE ? weft_collective_name(i->coll)
                                              : weft_instr_kind_name(i->kind);
}

/* The commit point is a collective of all ranks. */
int64_t weft_exec__record(const weft_exec__instr *x)
{
    const weft_program *p = x->s->e->p;
    const weft_instr   *i = x->i;
    int32_t             rank[WEFT_FLIGHT_RANKS];
    if (!weft_flight_is_on()) return -1;
    weft_flight_event e = {.kind   = WEFT_FLIGHT_TASK,
                           .stream = x->s->number,
                           .op     = name_op(i),
                           .name   = i->name,
                           .step   = x->s->job_step + 1,
                           .bytes  = (int64_t)weft_instr_bytes(i),
                           .tag    = i->tag,
                           .rank   = rank};
    if (i->kind == WEFT_INSTR_COLLECTIVE) {
        e.kind   = WEFT_FLIGHT_COLLECTIVE;
        e.n_rank = p->group[i->group].n_rank;
        e.rank   = p->group[i->group].rank;
    } else if (i->kind == WEFT_INSTR_COMMIT && p->world > 1) {
        e.kind   = WEFT_FLIGHT_COLLECTIVE;
        e.tag    = -1;
        e.n_rank = p->world;
        for (int r = 0; r < p->world && r < WEFT_FLIGHT_RANKS; r++) rank[r] = r;
    } else if (i->kind == WEFT_INSTR_SEND || i->kind == WEFT_INSTR_RECV) {
        bool sends = i->kind == WEFT_INSTR_SEND;
        e.kind     = sends ? WEFT_FLIGHT_SEND : WEFT_FLIGHT_RECV;
        e.n_rank   = 2;
        rank[0]    = sends ? p->rank : i->peer;
        rank[1]    = sends ? i->peer : p->rank;
    }
    return weft_flight_begin(&e);
}

weft_status weft_exec__task(void *arg)
{
    const weft_exec__instr  *x = arg;
    const weft_exec__stream *s = x->s;
    if (s->e->journal && !weft_exec__takes_part(x)) return WEFT_OK;
    weft_failpoint("step.task");
    weft_exec__choose_pool(x->s);
    if (!weft_progress_is_shared() || !s->device->needs_thread || !s->firing)
        return weft_exec__blame(x, run(x));
    int    actor            = s->firing->actor;
    float *longest          = &s->e->longest[actor][x->i - s->e->p->actor[actor].instr];
    x->s->begun_cpu_s       = weft_clock_thread_s();
    x->s->n_preempted       = count_preemptions();
    weft_progress_work work = {0};
    if (*longest <= 0) work = find_work(x);
    weft_progress_begin(s->number, x->i->name, (double)*longest, &work);
    int64_t     record = weft_exec__record(x);
    weft_status st     = run(x);
    if (st == WEFT_OK || weft_exec__is_dropped(s)) weft_flight_end(record);
    float taken = find_taken(x->s, weft_progress_end(s->number), *longest);
    if (taken > *longest) {
        work     = find_work(x);
        *longest = taken;
        weft_progress_note(&work, (double)taken);
    }
    return weft_exec__blame(x, st);
}

weft_status weft_exec__read(weft_exec__stream *s, const weft_exec__instr *x)
{
    const weft_exec_options *o = &s->e->o;
    /* what fails here is the user's file: the error names it, and no instruction */
    return o->read(o->user, s->job_step, s->firing->micro, x->call.n_out, x->call.out);
}

int64_t weft_exec__sample_bytes(const weft_instr *i, int result)
{
    const weft_type *t = &i->out[result].type;
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

weft_status weft_exec__put_samples(weft_exec__stream *s, const weft_exec__instr *x,
                                   const weft_memory *kept)
{
    int64_t at = 0;
    for (int k = 0; k < x->i->n_out; k++) {
        int                slab   = s->e->p->buffer[x->i->out[k].buffer].slab;
        const weft_memory *host   = &s->e->host_slab[slab];
        int64_t            bytes  = weft_exec__sample_bytes(x->i, k);
        int64_t            offset = (char *)x->call.out[k].p - (char *)host->address;
        weft_memory        to, from;
        if (!host->address) continue;
        WEFT_TRY(weft_memory_part(&s->e->slab[slab], offset, bytes, &to));
        WEFT_TRY(kept ? weft_memory_part(kept, at, bytes, &from)
                      : weft_memory_part(host, offset, bytes, &from));
        WEFT_TRY(s->device->copy(s->device, &s->dev, &to, &from));
        at += bytes;
    }
    return WEFT_OK;
}

static weft_status read_scalar(const weft_exec__stream *s, const weft_instr *i, int k,
                               double *out)
{
    const weft_operand *o    = &i->in[k];
    const weft_buffer  *b    = &s->e->p->buffer[o->buffer];
    int64_t             slot = weft_program_slot(s->e->p, i, false, o->buffer, s->firing);
    int64_t             size = weft_dtype_bytes(o->type.dtype);
    float               x;
    bool                single = o->type.dtype == WEFT_DTYPE_F32;
    void               *to     = single ? (void *)&x : out;
    const void         *there  = weft_exec__find_outcome(s->e, k);
    if (there)
        memcpy(to, there, (size_t)size);
    else
        WEFT_TRY(weft_device_read(to, &s->e->slab[b->slab],
                                  b->offset + slot * b->bytes + o->offset * size, size));
    if (single) *out = x;
    return WEFT_OK;
}

weft_status weft_exec__commit(weft_exec__stream *s, const weft_exec__instr *x)
{
    weft_exec *e = s->e;
    double     value[WEFT_MAX_OUTCOME];
    bool       hold = false;
    WEFT_TRY(weft_exec__check_device_comm(e)); /* nothing writes state after an abort */
    WEFT_TRY(weft_exec__arrive(s));
    e->busy_s = s->busy_s;
    if (!e->o.commit) {
        e->passed = s->job_step;
        return WEFT_OK;
    }
    if (x->i->n_in > WEFT_MAX_OUTCOME)
        return WEFT_FAIL(WEFT_ERR_ARG, "commit '%s': %d operands, at most %d", x->i->name,
                         x->i->n_in, WEFT_MAX_OUTCOME);
    for (int k = 0; k < x->i->n_in; k++) WEFT_TRY(read_scalar(s, x->i, k, &value[k]));
    WEFT_TRY(e->o.commit(e->o.user, s->job_step, x->i->n_in, value, &hold));
    e->held_step = hold ? s->job_step : -1; /* a step that was held back may run again */
    if (!hold) e->passed = s->job_step;
    return WEFT_OK;
}
