/* A step that is dropped: a rank was lost, or this one failed, before any rank can have committed
 * it.  The results of its instructions are not used, so long kernels end early: their pool has a
 * stop word (base/pool.h), and comm reports a lost rank at once, also where no stream communicates
 * just then.
 *
 * (1) Only a run of which no step has come to its commit point is dropped; which of the two was
 *     first is decided under lock.  So an update is never cut short, nor is what it needs.
 * (2) Updates may last into the next run: from their step's commit point on kernels have the pool
 *     without the word.
 * (3) A run that begins after a rank was lost is dropped at once. */
#include <stdio.h>

#include "exec/exec_priv.h"

/* Of comm: a rank is lost. */
static void note_lost(void *arg, const char *why)
{
    weft_exec *e = arg;
    pthread_mutex_lock(&e->lock);
    e->lost = true;
    snprintf(e->lost_text, sizeof e->lost_text, "%s", why);
    bool dropped = e->in_run && weft_exec__drop_lost(e);
    pthread_mutex_unlock(&e->lock);
    if (dropped) weft_exec__cancel_events(e);
}

/* Devices that work by themselves end by themselves. */
weft_status weft_exec__open_drop(weft_exec *e)
{
    for (int k = 0; k < e->n_stream; k++)
        if (!e->stream[k].device->needs_thread) return WEFT_OK;
    if (!e->o.comm || e->o.price || !e->n_stream) return WEFT_OK;
    WEFT_TRY(
        weft_pool_share(e->o.pool ? e->o.pool : e->own_pool, &e->dropped, &e->drop_pool));
    e->watcher = (weft_comm_watcher){.lost = note_lost, .arg = e};
    weft_comm_watch(e->o.comm, &e->watcher);
    return WEFT_OK;
}

void weft_exec__close_drop(weft_exec *e)
{
    if (!e->drop_pool) return;
    weft_comm_unwatch(&e->watcher);
}

void weft_exec__drop_step(weft_exec *e)
{
    if (e->in_run && e->arrived < e->run_step) e->dropped = true;
}

bool weft_exec__drop_lost(weft_exec *e)
{
    if (!e->lost || e->arrived >= e->run_step) return false;
    if (!weft_exec__stop(e, WEFT_ERR_PEER, e->lost_text)) return false;
    e->reports_to_peers = true;
    return true;
}

static bool is_of_run(const weft_exec__stream *s)
{
    return s->job_step >= s->e->run_step;
}

void weft_exec__choose_pool(weft_exec__stream *s)
{
    if (s->e->drop_pool && s->pool)
        s->ctx.pool = s->job_step > s->e->arrived ? s->e->drop_pool : s->pool;
}

bool weft_exec__is_dropped(const weft_exec__stream *s)
{
    return s->e->drop_pool && s->e->dropped && is_of_run(s);
}

weft_status weft_exec__arrive(weft_exec__stream *s)
{
    weft_exec *e = s->e;
    pthread_mutex_lock(&e->lock);
    bool dropped = weft_exec__is_dropped(s);
    if (!dropped) e->arrived = s->job_step;
    pthread_mutex_unlock(&e->lock);
    return dropped ? WEFT_FAIL(WEFT_ERR_PEER, "the step is dropped") : WEFT_OK;
}
