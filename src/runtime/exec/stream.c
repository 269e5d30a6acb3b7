/* A stream's way through its list of firings, and the threads that streams have.
 *
 * The counters of program/order.h are the mailboxes: a firing waits until they have come far
 * enough and moves them on when it ends. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/exec_priv.h"

/* ---- mailboxes ---- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static bool may_start(const weft_exec *e, const weft_firing_order *f, int step,
                      double *ready)
{
    *ready = 0;
    for (int i = 0; i < f->n_wait; i++) {
        const weft_wait       *w    = &f->wait[i];
        const weft_exec__edge *x    = &e->edge[w->edge];
        int64_t                need = (int64_t)step * w->per_step + w->at;
        if (x->count[w->credit] < need) return false;
        if (need > 0) *ready = later(*ready, x->at[w->credit][(need - 1) % x->cap]);
    }
    return true;
}

static weft_status wait_for(weft_exec__stream *s, const weft_firing_order *f)
{
    weft_exec *e = s->e;
    s->ready_s   = 0;
    if (!f->n_wait && e->n_stream == 1) return WEFT_OK;
    pthread_mutex_lock(&e->lock);
    while (!e->stop && !may_start(e, f, s->step, &s->ready_s))
        pthread_cond_wait(&e->moved, &e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return stop ? WEFT_ERR_PEER : WEFT_OK; /* the reason is in e->text already */
}

static void give(weft_exec__stream *s, const weft_firing_order *f)
{
    weft_exec *e = s->e;
    if (!f->n_give) return;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < f->n_give; i++) {
        weft_exec__edge *x               = &e->edge[f->give[i].edge];
        int              k               = f->give[i].credit;
        x->at[k][x->count[k]++ % x->cap] = s->dev.done_s;
    }
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
}

/* ---- firings ---- */

static void trace(weft_exec__stream *s, int instr, double start, double end)
{
    weft_exec__trace *t = &s->trace;
    if (!t->cap) return;
    t->slice[t->n++ % t->cap] =
        (weft_slice){.stream  = s->number,
                     .actor   = s->firing->actor,
                     .instr   = instr,
                     .micro   = s->firing->micro,
                     .step    = (int32_t)(s->ctx.step - s->e->origin_step),
                     .start_s = start,
                     .end_s   = end};
}

/* When a stream of a device that only lasts is ready to talk. */
static double emulated_now(const weft_exec__stream *s)
{
    double t = later(s->ready_s, s->dev.done_s);
    return t > 0 ? t : weft_clock_s();
}

static weft_status call_host(weft_exec__stream *s, weft_exec__instr *x)
{
    switch (x->i->kind) {
    case WEFT_INSTR_READ: return weft_exec__read(s, x);
    case WEFT_INSTR_COMMIT: return weft_exec__commit(s, x);
    default: return weft_exec__communicate(s, x);
    }
}

/* An instruction that does not go to the device as it is: communication, reading, the commit
 * point. */
static weft_status run_own(weft_exec__stream *s, weft_exec__variant *v, int n)
{
    weft_device      *d    = s->e->device;
    weft_exec__instr *x    = &v->instr[n];
    bool              comm = weft_instr_is_comm(x->i);
    if (!d->computes) {
        if (!comm) return d->submit(d, &s->dev, s->ready_s, &v->task[n], 1);
        if (!d->talks) return weft_exec__emulate(s, x);
    }
    s->dev.start_s = d->computes ? weft_clock_s() : emulated_now(s);
    weft_device_set_moment(s->dev.start_s);
    weft_status st = call_host(s, x);
    s->dev.done_s  = d->computes ? weft_clock_s() : weft_device_moment();
    if (st != WEFT_OK && comm)
        return weft_fail_in(st, "%s, %s '%s': ", x->actor->name,
                            weft_instr_kind_name(x->i->kind), x->i->name);
    return st;
}

/* Is the step held back?  Asked only by actors that write state: they are ordered after the
 * commit point, or have it. */
static bool is_held(const weft_exec__stream *s, int actor)
{
    return s->e->actor[actor].writes_state && s->e->held_step == s->ctx.step;
}

static weft_status fire(weft_exec__stream *s, int at)
{
    weft_exec          *e   = s->e;
    const weft_firing  *f   = &e->p->stream[s->number].firing[at];
    weft_exec__variant *v   = s->variant[at];
    const int          *run = e->actor[f->actor].run;
    s->firing               = f;
    s->ctx.sample =
        s->ctx.step * e->o.batch + (f->micro < 0 ? 0 : f->micro * e->o.micro_batch);
    for (int n = 0; n < e->p->actor[f->actor].n_instr;) {
        bool held = is_held(s, f->actor);
        if (held && weft_instr_writes_state(e->p, v->instr[n].i)) {
            n++;
        } else if (run[n]) {
            int many = held ? 1 : run[n];
            WEFT_TRY(
                e->device->submit(e->device, &s->dev, s->ready_s, &v->task[n], many));
            trace(s, n, s->dev.start_s, s->dev.done_s);
            n += many;
        } else {
            WEFT_TRY(run_own(s, v, n));
            trace(s, n, s->dev.start_s, s->dev.done_s);
            n++;
        }
    }
    return WEFT_OK;
}

static weft_status run_steps(weft_exec__stream *s)
{
    weft_exec *e = s->e;
    for (s->step = 0; s->step < e->n_step; s->step++) {
        s->ctx.step = e->step + s->step;
        for (int i = 0; i < e->p->stream[s->number].n_firing; i++) {
            const weft_firing_order *f = &e->order.firing[s->number][i];
            WEFT_TRY(wait_for(s, f));
            WEFT_TRY(fire(s, i));
            give(s, f);
        }
    }
    return WEFT_OK;
}

weft_status weft_exec__run_stream(weft_exec__stream *s)
{
    weft_status st = run_steps(s);
    if (st != WEFT_OK) weft_exec__fail(s->e, st);
    return st;
}

/* ---- failure ---- */

void weft_exec__fail(weft_exec *e, weft_status st)
{
    pthread_mutex_lock(&e->lock);
    bool mine = !e->stop;
    if (mine) {
        e->stop = true;
        e->st   = st;
        snprintf(e->text, sizeof e->text, "%s", weft_error_text());
    }
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    if (mine && e->o.comm) weft_comm_abort(e->o.comm, e->text);
}

/* ---- threads ---- */

static void *thread_main(void *arg)
{
    weft_exec__stream *s    = arg;
    weft_exec         *e    = s->e;
    int64_t            turn = 0;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->quit && e->turn == turn) pthread_cond_wait(&e->moved, &e->lock);
        if (e->quit) break;
        turn = e->turn;
        pthread_mutex_unlock(&e->lock);
        weft_exec__run_stream(s);
        pthread_mutex_lock(&e->lock);
        e->n_busy--;
        pthread_cond_broadcast(&e->moved);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The first stream runs on the caller's thread. */
weft_status weft_exec__start_threads(weft_exec *e)
{
    for (int i = 1; i < e->n_stream; i++) {
        if (pthread_create(&e->stream[i].thread, NULL, thread_main, &e->stream[i]))
            return WEFT_FAIL(WEFT_ERR_MEM, "no thread for stream %s",
                             e->p->stream[e->stream[i].number].name);
        e->stream[i].has_thread = true;
    }
    return WEFT_OK;
}

void weft_exec__stop_threads(weft_exec *e)
{
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_stream; i++)
        if (e->stream[i].has_thread) pthread_join(e->stream[i].thread, NULL);
}
