/* Making an exec, running it, looking into it. */
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/exec_priv.h"

static weft_status check(const weft_program *p, const weft_exec_options *o)
{
    if (o->comm && (o->comm->rank != p->rank || o->comm->world != p->world))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "program %s is for rank %d of %d, this is rank %d of %d",
                         p->name, p->rank, p->world, o->comm->rank, o->comm->world);
    if (!o->comm && !o->carry && !o->alone && p->world > 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "program %s is for rank %d of %d and needs a transport", p->name,
                         p->rank, p->world);
    return WEFT_OK;
}

static weft_status build(weft_exec *e)
{
    WEFT_TRY(weft_arena_create(&e->arena));
    if (!e->o.pool &&
        (e->o.n_thread > 1 || e->o.comm)) /* drop.c: kernels may end early */
        WEFT_TRY(
            weft_pool_create(e->o.n_thread > 1 ? e->o.n_thread : 1, 0, &e->own_pool));
    WEFT_TRY(weft_exec__prepare(e));
    WEFT_TRY(weft_exec__open_drop(e));
    WEFT_TRY(weft_exec__open_numbers(e));
    WEFT_TRY(weft_exec__open_watch(e));
    if (e->o.journal) WEFT_TRY(weft_exec__open_journal(e));
    return weft_exec__start_threads(e);
}

weft_status weft_exec_create(const weft_program *p, const weft_exec_options *o,
                             weft_exec **out)
{
    static const weft_exec_options none;
    if (!o) o = &none;
    WEFT_TRY(check(p, o));
    weft_exec *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->p         = p;
    e->o         = *o;
    e->held_step = -1;
    e->arrived   = -1;
    e->passed    = -1;
    if (!o->device[0]) e->o.device[0] = weft_device_cpu();
    if (e->o.trace < 0) e->o.trace = 0;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->moved, NULL);
    weft_status st = build(e);
    if (st != WEFT_OK)
        weft_exec_destroy(e);
    else
        *out = e;
    return st;
}

void weft_exec_destroy(weft_exec *e)
{
    if (!e) return;
    weft_exec__close_drop(e);
    weft_exec__stop_threads(e);
    weft_exec__free_graph(e);
    weft_exec__close_device_links(e);
    weft_exec__close_links(e);
    weft_exec__close_edges(e);
    for (int i = 0; i < e->n_stream; i++) weft_exec__close_stream(&e->stream[i]);
    weft_exec__free_staging(e);
    weft_pool_destroy(e->drop_pool);
    weft_pool_destroy(e->own_pool);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->moved);
    weft_arena_destroy(e->arena);
    weft_exec__close_watch(e);
    free(e->number);
    free(e);
}

/* ---- runs ---- */

/* all: those that were left open, too. */
static bool is_busy(const weft_exec *e, bool all)
{
    for (int i = 1; i < e->n_issuer; i++)
        if ((all || !e->issuer[i].open) && e->issuer[i].done < e->turn) return true;
    return false;
}

static void wait_for_threads(weft_exec *e, bool all)
{
    pthread_mutex_lock(&e->lock);
    while (is_busy(e, all)) pthread_cond_wait(&e->moved, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* A step that was dropped while no stream of it failed: ranks of other hosts wait for this one. */
static void report_dropped(weft_exec *e)
{
    pthread_mutex_lock(&e->lock);
    bool reports        = e->reports_to_peers;
    e->reports_to_peers = false;
    pthread_mutex_unlock(&e->lock);
    if (reports && e->o.comm) weft_comm_abort(e->o.comm, e->text);
}

/* After an error: all threads stop, what the step has done is found out once. */
static weft_status end_failed(weft_exec *e)
{
    wait_for_threads(e, true);
    report_dropped(e);
    if (!e->ended) {
        bool torn = weft_exec__finish_left(e) != WEFT_OK;
        weft_exec__end_failed(e);
        if (torn) e->outcome = WEFT_EXEC_TORN;
    }
    e->ended = true;
    return WEFT_FAIL(e->st, "%s", e->text);
}

weft_status weft_exec_settle(weft_exec *e)
{
    wait_for_threads(e, true);
    if (!e->stop) {
        weft_status st = weft_exec__finish_left(e);
        if (st != WEFT_OK) weft_exec__fail(&e->issuer[0], st);
    }
    return e->stop ? end_failed(e) : WEFT_OK;
}

static void begin_run(weft_exec *e, int64_t step, int n_step)
{
    pthread_mutex_lock(&e->lock);
    if (e->origin_s == 0) {
        e->origin_s    = weft_clock_s();
        e->origin_step = step;
    }
    /* threads that go on with the step before may read it */
    if (e->first_step != step - e->until) e->first_step = step - e->until;
    e->run_step = step;
    e->until += n_step;
    e->arrived = e->passed = step - 1;
    weft_exec__begin_numbers(e);
    if (e->journal && !e->gathers_again) weft_exec__begin_journal(e, step);
    e->turn++;
    e->in_run    = true;
    bool dropped = weft_exec__drop_lost(e);
    pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
    if (dropped) weft_exec__cancel_events(e);
}

static void end_run(weft_exec *e)
{
    pthread_mutex_lock(&e->lock);
    e->in_run = false;
    pthread_mutex_unlock(&e->lock);
}

weft_status weft_exec_start(weft_exec *e, int64_t step, int n_step)
{
    if (e->stop) return end_failed(e);
    if (!e->n_stream || n_step <= 0) return WEFT_OK;
    if (step != e->first_step + e->until) WEFT_TRY(weft_exec_settle(e));
    begin_run(e, step, n_step);
    weft_exec__run_issuer(&e->issuer[0]);
    wait_for_threads(e, e->journal != NULL); /* a journal is of one step */
    end_run(e);
    if (e->stop) return end_failed(e);
    e->outcome = e->held_step == step + n_step - 1 ? WEFT_EXEC_HELD : WEFT_EXEC_RAN;
    return WEFT_OK;
}

weft_status weft_exec_run(weft_exec *e, int64_t step, int n_step)
{
    WEFT_TRY(weft_exec_start(e, step, n_step));
    return weft_exec_settle(e);
}

weft_exec_progress weft_exec_get_progress(const weft_exec *e)
{
    return (weft_exec_progress){e->outcome, e->arrived, e->passed};
}

weft_exec_stats weft_exec_get_stats(const weft_exec *e)
{
    return (weft_exec_stats){
        .steps = e->until, .host_wakeups = e->host_wakeups, .busy_s = e->busy_s};
}

void weft_exec_get_gaps(const weft_exec *e, weft_exec_gap *between, weft_exec_gap *commit)
{
    weft_exec__sum_gaps(weft_exec__graph_gaps(e), between, commit);
}

weft_exec_memory weft_exec_mem(const weft_exec *e)
{
    weft_exec_memory m = {0};
    for (int i = 0; i < e->p->n_slab; i++) m.slab_bytes += e->p->slab[i].bytes;
    for (int i = 0; i < e->n_stream; i++)
        m.scratch_bytes += e->stream[i].scratch.bytes + e->stream[i].scalars.bytes +
                           e->stream[i].stage_bytes;
    m.scratch_bytes += weft_exec__graph_bytes(e);
    for (int i = 0; i < e->p->n_slab; i++) m.scratch_bytes += e->host_slab[i].bytes;
    if (e->o.comm) m.comm_bytes = e->o.comm->bytes;
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        if (e->o.device_comm[k]) m.comm_bytes += e->o.device_comm[k]->bytes;
    for (int i = 0; i < e->n_link; i++) m.scratch_bytes += e->link[i]->room.bytes;
    m.table_bytes = (int64_t)sizeof *e + weft_arena_bytes(e->arena) + e->event_bytes;
    m.total_bytes = m.slab_bytes + m.scratch_bytes + m.comm_bytes + m.table_bytes;
    return m;
}

weft_status weft_exec_timeline(weft_exec *e, weft_timeline **out)
{
    weft_timeline *t      = NULL;
    int            n_step = 0;
    weft_status    st     = WEFT_OK;
    wait_for_threads(e, true);
    WEFT_TRY(weft_timeline_create("measured", &e->p, 1, &t));
    for (int i = 0; i < e->n_stream; i++) {
        weft_exec__trace *r = &e->stream[i].trace;
        WEFT_GO(weft_exec__find_times(&e->stream[i]));
        for (int64_t k = r->n > r->cap ? r->n - r->cap : 0; k < r->n; k++) {
            weft_slice s = r->slice[k % r->cap];
            s.start_s -= e->origin_s;
            s.end_s -= e->origin_s;
            if (s.step >= n_step) n_step = s.step + 1;
            WEFT_GO(weft_timeline_add(t, &s));
        }
        r->n = 0;
    }
    weft_timeline_finish(t, n_step);
    t->origin_s = e->origin_s;
    e->origin_s = 0;
    *out        = t;
    return WEFT_OK;
out:
    weft_timeline_destroy(t);
    return st;
}
