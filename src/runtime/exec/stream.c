/* A stream's way through its list of firings, and the threads that give streams their work.
 *
 * The counters of program/order.h are events of devices: a firing's launches come after the waits
 * for them, its records move them on.  Where records must be given before their waits, a thread
 * goes on with any of its streams whose next firing is so far, and sleeps when none is. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/flight.h"
#include "base/progress.h"
#include "exec/exec_priv.h"

/* ---- edges ---- */

static int64_t needed(const weft_wait *w, int64_t step)
{
    return step * w->per_step + w->at;
}

/* Under lock, where edges are tracked. */
static bool may_issue(const weft_exec *e, const weft_exec__stream *s)
{
    const weft_firing_order *f = &e->order.firing[s->number][s->at];
    for (int i = 0; i < f->n_wait; i++) {
        const weft_wait       *w = &f->wait[i];
        const weft_exec__edge *x = &e->edge[w->edge];
        if (x->tracked && x->issued[w->credit] < needed(w, s->step)) return false;
    }
    return true;
}

/* For an event of another device. */
typedef struct host_wait {
    weft_exec  *e;
    weft_event *event;
    int64_t     n;
} host_wait;

static weft_status wait_on_host(void *arg, double *start_s, double *end_s)
{
    const host_wait *w = arg;
    double           done;
    (void)start_s;
    atomic_fetch_add(&w->e->host_wakeups, 1);
    WEFT_TRY(w->event->device->sync(w->event, w->n, &done));
    if (done > *end_s) *end_s = done;
    return WEFT_OK;
}

/* Another device is so far: what is given to this one from now on comes after it, and neither
 * waits.  An emulation takes its times from the wait. */
static bool is_done(const weft_exec__stream *s, const host_wait *w)
{
    double done;
    return !s->device->needs_thread && !s->e->o.price &&
           w->event->device->query(w->event, w->n, &done) == WEFT_OK;
}

weft_status weft_exec__wait_for(weft_exec__stream *s, const weft_firing_order *f)
{
    weft_exec *e = s->e;
    if (e->stop) return WEFT_ERR_PEER; /* the reason is in e->text already */
    for (int i = 0; i < f->n_wait; i++) {
        const weft_wait *w = &f->wait[i];
        weft_exec__edge *x = &e->edge[w->edge];
        host_wait        h = {e, &x->event[w->credit], needed(w, s->step)};
        if (h.n <= 0 || (x->host && is_done(s, &h))) continue;
        WEFT_TRY(x->host ? s->device->call(&s->dev, wait_on_host, &h)
                         : s->device->wait(&s->dev, h.event, h.n));
    }
    return WEFT_OK;
}

weft_status weft_exec__give(weft_exec__stream *s, const weft_firing_order *f)
{
    weft_exec *e = s->e;
    for (int i = 0; i < f->n_give; i++)
        WEFT_TRY(s->device->record(&s->dev,
                                   &e->edge[f->give[i].edge].event[f->give[i].credit]));
    if (!e->tracked || !f->n_give) return WEFT_OK;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < f->n_give; i++)
        e->edge[f->give[i].edge].issued[f->give[i].credit]++;
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    return WEFT_OK;
}

/* ---- firings ---- */

bool weft_exec__is_timed(const weft_exec *e, const weft_device *d)
{
    return e->o.trace && d && !d->needs_thread && !e->o.price;
}

void weft_exec__add_slice(weft_exec__stream *s, int instr, double start, double end)
{
    weft_exec__trace *t = &s->trace;
    if (!t->cap) return;
    t->slice[t->n++ % t->cap] =
        (weft_slice){.stream  = s->number,
                     .actor   = s->firing->actor,
                     .instr   = instr,
                     .micro   = s->firing->micro,
                     .step    = (int32_t)(s->job_step - s->e->origin_step),
                     .start_s = start,
                     .end_s   = end};
}

static weft_status communicate(const weft_task *task, double *start_s, double *end_s)
{
    weft_exec__instr        *x = task->arg;
    const weft_exec_options *o = &x->s->e->o;
    if (o->carry)
        return weft_exec__blame(
            x, o->carry(o->carry_arg, x->i, task->seconds, start_s, end_s));
    int         call = weft_exec__note_sent(x);
    weft_status st   = weft_exec__communicate(x->s, x);
    if (st == WEFT_OK) weft_exec__note_got(x, call);
    return weft_exec__blame(x, st);
}

static weft_status do_host_work(const weft_task *task, double *start_s, double *end_s)
{
    weft_exec__instr *x = task->arg;
    if (x->s->e->journal && !weft_exec__takes_part(x)) return WEFT_OK;
    if (x->s->e->alone) return weft_exec__keep_own_share(x);
    if (x->i->kind == WEFT_INSTR_COMMIT) return weft_exec__commit(x->s, x);
    if (x->host->device_call) return weft_exec__blame(x, weft_exec__run_on_device(x));
    WEFT_TRY(weft_exec__stage_in(x->s->e, x));
    if (x->i->kind == WEFT_INSTR_READ) {
        WEFT_TRY(weft_exec__read(x->s, x));
        WEFT_TRY(weft_exec__put_samples(x->s, x, NULL));
    } else {
        WEFT_TRY(communicate(task, start_s, end_s));
    }
    return weft_exec__stage_out(x->s->e, x);
}

/* In the order of the stream, on the thread that gives it work.  It may wait for peers and files:
 * how long it took before says nothing. */
weft_status weft_exec__host_work(void *arg, double *start_s, double *end_s)
{
    const weft_task        *task = arg;
    const weft_exec__instr *x    = task->arg;
    weft_progress_begin(x->s->number, x->i->name, 0, NULL);
    int64_t     record = weft_exec__record(x);
    weft_status st     = do_host_work(task, start_s, end_s);
    if (st == WEFT_OK) weft_flight_end(record); /* what failed is what people look for */
    weft_progress_end(x->s->number);
    return st;
}

/* Is the step held back?  Asked only by actors that write state: they are ordered after the
 * commit point, or have it. */
static bool is_held(const weft_exec__stream *s, int actor)
{
    return s->e->actor[actor].writes_state && s->e->held_step == s->job_step;
}

weft_status weft_exec__launch_timed(weft_exec__stream *s, const weft_code *c,
                                    int64_t *record)
{
    WEFT_TRY(s->device->record(&s->dev, &s->timed));
    WEFT_TRY(s->device->launch(&s->dev, c));
    WEFT_TRY(s->device->record(&s->dev, &s->timed));
    *record = s->n_timed + 1;
    s->n_timed += 2;
    return WEFT_OK;
}

/* Instructions that run as one share its time by the bytes that they move. */
void weft_exec__trace_task(weft_exec__stream *s, const weft_exec__variant *v,
                           const weft_code *c, int64_t record)
{
    const weft_exec__instr *first = c->task[0].arg;
    const weft_exec__group *group = first->group;
    const weft_kernel_call *only  = &first->call, *const *call =
                                                     group ? group->call : &only;
    int    n   = group ? group->n : 1;
    double all = 0, at = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < n; k++) {
            const weft_exec__instr *x =
                (const weft_exec__instr *)(const void *)((const char *)call[k] -
                                                         offsetof(weft_exec__instr,
                                                                  call));
            double bytes = 1 + weft_instr_bytes(x->i);
            if (!pass) all += bytes;
            if (!pass) continue;
            s->trace.part[s->trace.n % s->trace.cap] =
                (weft_exec__part){at / all, (at + bytes) / all};
            weft_exec__add_slice(s, (int)(x - v->instr), (double)-record,
                                 (double)-(record + 1));
            at += bytes;
        }
}

static weft_status launch_run(weft_exec__stream *s, const weft_exec__variant *v,
                              int n_task, const weft_code **code)
{
    int64_t record;
    for (int k = 0; k < n_task; k++, ++*code) {
        WEFT_TRY(weft_exec__launch_timed(s, *code, &record));
        weft_exec__trace_task(s, v, *code, record);
    }
    return WEFT_OK;
}

weft_status weft_exec__find_times(weft_exec__stream *s)
{
    weft_exec__trace *t = &s->trace;
    for (int64_t k = t->n > t->cap ? t->n - t->cap : 0; s->timed.device && k < t->n;
         k++) {
        weft_slice *x = &t->slice[k % t->cap];
        if (x->start_s >= 0) continue;
        double                 start, end;
        const weft_exec__part *part = &t->part[k % t->cap];
        WEFT_TRY(s->device->sync(&s->timed, (int64_t)-x->end_s, &end));
        WEFT_TRY(s->device->sync(&s->timed, (int64_t)-x->start_s, &start));
        x->start_s = start + part->from * (end - start);
        x->end_s   = start + part->to * (end - start);
    }
    return WEFT_OK;
}

static double read_busy(const weft_exec *e)
{
    return e->o.price ? 0 : weft_clock_thread_s();
}

static weft_status fire_instr(weft_exec__stream *s, const weft_exec__variant *v, int n,
                              int n_code, const weft_code *c)
{
    int actor = s->firing->actor;
    if (is_held(s, actor) && weft_instr_writes_state(s->e->p, v->instr[n].i))
        return WEFT_OK;
    if (c && s->timed.device) return launch_run(s, v, n_code, &c);
    bool   computes = c && s->device->needs_thread;
    double begun_s  = computes ? read_busy(s->e) : 0;
    WEFT_TRY(c ? s->device->launch(&s->dev, c)
               : s->device->call(&s->dev, weft_exec__host_work, &v->task[n]));
    if (computes)
        s->busy_s +=
            s->e->o.price ? s->dev.done_s - s->dev.start_s : read_busy(s->e) - begun_s;
    weft_exec__add_slice(s, n, s->dev.start_s, s->dev.done_s);
    return WEFT_OK;
}

weft_status weft_exec__fire(weft_exec__stream *s)
{
    weft_exec          *e    = s->e;
    const weft_firing  *f    = &e->p->stream[s->number].firing[s->at];
    weft_exec__variant *v    = s->variant[s->at];
    const weft_code    *code = v->code;
    const int          *run  = e->actor[f->actor].run;
    int                 from = s->instr;
    s->firing                = f;
    s->job_step              = e->first_step + s->step;
    WEFT_TRY(weft_exec__write_scalars(s));
    for (int n = 0; n < e->p->actor[f->actor].n_instr; n += run[n] ? run[n] : 1) {
        const weft_code *c      = run[n] ? code : NULL;
        int              n_code = !c ? 0 : s->timed.device ? v->n_grouped[n] : 1;
        code += n_code;
        if (n < from) continue;
        s->instr = n;
        WEFT_TRY(fire_instr(s, v, n, n_code, c));
    }
    s->instr = 0;
    if (e->journal) weft_exec__note_fired(s);
    return WEFT_OK;
}

static weft_status fire_next(weft_exec__stream *s)
{
    const weft_firing_order *f = &s->e->order.firing[s->number][s->at];
    WEFT_TRY(weft_exec__wait_for(s, f));
    WEFT_TRY(weft_exec__fire(s));
    WEFT_TRY(weft_exec__give(s, f));
    if (++s->at == s->e->p->stream[s->number].n_firing) {
        s->at = 0;
        s->step++;
    }
    return WEFT_OK;
}

/* ---- threads that give work ---- */

static weft_exec__stream *find_issuable(const weft_exec__issuer *u, bool *left)
{
    *left = false;
    for (int i = 0; i < u->n; i++) {
        weft_exec__stream *s = u->stream[i];
        if (s->step >= u->e->until) continue;
        *left = true;
        if (!u->e->tracked || may_issue(u->e, s)) return s;
    }
    return NULL;
}

/* The next stream that can go on; NULL: none has anything left, or all are stopped. */
static weft_exec__stream *next_stream(weft_exec__issuer *u)
{
    weft_exec *e = u->e;
    bool       left;
    if (!e->tracked) return find_issuable(u, &left);
    pthread_mutex_lock(&e->lock);
    weft_exec__stream *s = find_issuable(u, &left);
    if (!s && left) atomic_fetch_add(&e->host_wakeups, 1);
    while (!s && left && !e->stop) {
        pthread_cond_wait(&e->moved, &e->lock);
        s = find_issuable(u, &left);
    }
    pthread_mutex_unlock(&e->lock);
    return s;
}

static weft_status issue_steps(weft_exec__issuer *u)
{
    while (u->e->graph && u->stream[0]->step < u->e->until)
        WEFT_TRY(weft_exec__replay_step(u->e));
    for (weft_exec__stream *s; (s = next_stream(u));) WEFT_TRY(fire_next(s));
    for (int i = 0; i < u->n && !weft_exec__is_left(u->e); i++)
        WEFT_TRY(u->stream[i]->device->finish(&u->stream[i]->dev));
    return u->open ? WEFT_OK : weft_exec__check_device_comm(u->e);
}

weft_status weft_exec__run_issuer(weft_exec__issuer *u)
{
    weft_status st = issue_steps(u);
    if (st != WEFT_OK) weft_exec__fail(u, st);
    return st;
}

/* ---- failure ---- */

bool weft_exec__stop(weft_exec *e, weft_status st, const char *text)
{
    if (e->stop) return false;
    e->stop = true;
    e->st   = st;
    snprintf(e->text, sizeof e->text, "%s", text);
    weft_exec__drop_step(e);
    pthread_cond_broadcast(&e->moved);
    return true;
}

void weft_exec__cancel_events(weft_exec *e)
{
    for (int i = 0; i < e->p->n_edge; i++)
        for (int k = 0; k < 2; k++) {
            weft_event *v = &e->edge[i].event[k];
            if (v->device) v->device->cancel(v);
        }
}

void weft_exec__fail(weft_exec__issuer *u, weft_status st)
{
    weft_exec *e = u->e;
    pthread_mutex_lock(&e->lock);
    bool mine  = weft_exec__stop(e, st, weft_error_text());
    bool tells = mine || e->reports_to_peers;
    if (mine) e->failed_open = u->open;
    e->reports_to_peers = false;
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    if (mine) weft_exec__cancel_events(e);
    if (tells && e->o.comm) weft_comm_abort(e->o.comm, e->text);
}

/* ---- threads ---- */

static void *thread_main(void *arg)
{
    weft_exec__issuer *u    = arg;
    weft_exec         *e    = u->e;
    int64_t            turn = 0;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->quit && e->turn == turn) pthread_cond_wait(&e->moved, &e->lock);
        if (e->quit) break;
        turn = e->turn;
        pthread_mutex_unlock(&e->lock);
        weft_exec__run_issuer(u);
        pthread_mutex_lock(&e->lock);
        u->done = turn;
        pthread_cond_broadcast(&e->moved);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The first one works on the caller's thread. */
weft_status weft_exec__start_threads(weft_exec *e)
{
    for (int i = 1; i < e->n_issuer; i++) {
        weft_exec__issuer *u = &e->issuer[i];
        if (pthread_create(&u->thread, NULL, thread_main, u))
            return WEFT_FAIL(WEFT_ERR_MEM, "no thread for stream %s",
                             e->p->stream[u->stream[0]->number].name);
        u->has_thread = true;
    }
    return WEFT_OK;
}

void weft_exec__stop_threads(weft_exec *e)
{
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_issuer; i++)
        if (e->issuer[i].has_thread) pthread_join(e->issuer[i].thread, NULL);
}
