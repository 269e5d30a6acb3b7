/* Calls of collectives: checked, run at once, or prepared and started.
 *
 * A group has a queue of the calls that were started.  Whoever is free runs the first of them, one
 * at a time: the group's thread, which the first start creates, or a caller who waits.  So calls
 * of one group run in the order in which they were started, and transports need no more than to
 * run a call to its end on some thread. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/call_priv.h"

typedef enum call_state {
    CALL_IDLE,
    CALL_STARTED,
    CALL_DONE,
} call_state;

struct weft_comm_request {
    weft_comm         *c;
    weft_comm_call     call;
    weft_comm_queue   *queue;
    weft_comm_request *next;
    call_state         state;
    weft_status        st;
    char               text[240]; /* of a failure */
    weft_comm_part     part[];    /* of the call */
};

struct weft_comm_queue {
    pthread_mutex_t    lock;
    pthread_cond_t     work, done;
    pthread_t          thread;
    bool               threaded, stop, busy; /* busy: somebody runs a call */
    weft_comm_request *first, *last;
};

static weft_comm_group_head *head_of(weft_comm_group *g)
{
    return (weft_comm_group_head *)(void *)g;
}

/* ---- checks ---- */

static weft_status check_part(const weft_comm_call *call, const weft_comm_part *x)
{
    const char *name = weft_collective_name(call->kind);
    if (x->unit && call->kind != WEFT_ALL_GATHER && call->kind != WEFT_REDUCE_SCATTER &&
        !call->n_lane)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s has no shares of different sizes", name);
    if (x->count < 0 || x->unit < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %lld elements in units of %lld", name,
                         (long long)x->count, (long long)x->unit);
    return WEFT_OK;
}

static weft_status check_rows(const weft_comm_call *call)
{
    const weft_comm_rows *r    = &call->rows;
    const char           *name = weft_collective_name(call->kind);
    bool moves = call->kind == WEFT_SEND_ROWS || call->kind == WEFT_RETURN_ROWS;
    if (!moves && (r->n_bin || r->table))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s moves no rows", name);
    if (moves && (r->width < 1 || r->n_bin < 1 || r->in_rows < 0 || r->out_rows < 0))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %d bins of rows of %lld elements", name,
                         r->n_bin, (long long)r->width);
    return WEFT_OK;
}

static weft_status check_call(const weft_comm_call *call)
{
    weft_collective kind = call->kind;
    bool            sum  = kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER;
    if (call->n_part && !sum && kind != WEFT_ALL_GATHER)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s of several tensors",
                         weft_collective_name(kind));
    if (call->n_lane && !sum)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s has no lanes", weft_collective_name(kind));
    WEFT_TRY(check_rows(call));
    for (int i = 0; i < call->n_part; i++) WEFT_TRY(check_part(call, &call->part[i]));
    return call->n_part ? WEFT_OK : check_part(call, &call->tensor);
}

/* ---- a queue ---- */

static void *run_started(void *queue);

static weft_status create_queue(weft_comm_group *g)
{
    weft_comm_group_head *h = head_of(g);
    if (h->queue) return WEFT_OK;
    weft_comm_queue *q = calloc(1, sizeof *q);
    if (!q) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, NULL);
    h->queue = q;
    return WEFT_OK;
}

void weft_comm__close_queue(weft_comm_group *g)
{
    weft_comm_queue *q = head_of(g)->queue;
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    if (q->threaded) pthread_join(q->thread, NULL);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    free(q);
    head_of(g)->queue = NULL;
}

/* Signals stay with the threads of the caller. */
static weft_status create_thread(weft_comm_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    q->threaded = !pthread_create(&q->thread, NULL, run_started, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return q->threaded ? WEFT_OK
                       : WEFT_FAIL(WEFT_ERR_MEM, "no thread to run started calls with");
}

/* The lock is held, and free while the call runs. */
static void run_first(weft_comm_queue *q)
{
    weft_comm_request *r = q->first;
    q->first             = r->next;
    q->busy              = true;
    pthread_mutex_unlock(&q->lock);
    weft_status st = r->c->op->run(r->c, &r->call);
    if (st != WEFT_OK) snprintf(r->text, sizeof r->text, "%s", weft_error_text());
    pthread_mutex_lock(&q->lock);
    q->busy  = false;
    r->st    = st;
    r->state = CALL_DONE;
    pthread_cond_broadcast(&q->done);
}

static void *run_started(void *queue)
{
    weft_comm_queue *q = queue;
    pthread_mutex_lock(&q->lock);
    while (!q->stop || q->first) {
        if (q->first && !q->busy) {
            run_first(q);
            continue;
        }
        pthread_cond_wait(q->first ? &q->done : &q->work, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void append(weft_comm_queue *q, weft_comm_request *r)
{
    r->state = CALL_STARTED;
    r->next  = NULL;
    if (q->first)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
}

static weft_status wait_locked(weft_comm_queue *q, weft_comm_request *r)
{
    while (r->state == CALL_STARTED) {
        if (q->first && !q->busy)
            run_first(q);
        else
            pthread_cond_wait(&q->done, &q->lock);
    }
    weft_status st = r->state == CALL_DONE ? r->st : WEFT_OK;
    r->state       = CALL_IDLE;
    return st;
}

static weft_status status_of(const weft_comm_request *r, weft_status st)
{
    return st == WEFT_OK ? WEFT_OK : WEFT_FAIL(st, "%s", r->text);
}

/* ---- calls ---- */

/* One tensor is one tensor, however it is written. */
static weft_comm_call simplest(const weft_comm_call *call)
{
    return call->n_part == 1 ? weft_comm_part_call(call, &call->part[0]) : *call;
}

weft_status weft_comm_run(weft_comm *c, const weft_comm_call *call)
{
    weft_comm_queue *q = head_of(call->group)->queue;
    WEFT_TRY(check_call(call));
    if (!q && call->n_part != 1) return c->op->run(c, call);
    weft_comm_request r = {.c = c, .call = simplest(call), .queue = q};
    return q ? weft_comm_run_request(&r) : c->op->run(c, &r.call);
}

weft_status weft_comm_collective(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                 weft_dtype t, const void *in, void *out, int64_t count)
{
    return weft_comm_run(
        c, &(weft_comm_call){.group  = g,
                             .kind   = kind,
                             .dtype  = t,
                             .tensor = {.in = in, .out = out, .count = count}});
}

weft_status weft_comm_broadcast_bytes(weft_comm *c, weft_comm_group *g, void *p,
                                      int64_t bytes)
{
    return weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_U8, p, p, bytes);
}

weft_status weft_comm_prepare(weft_comm *c, const weft_comm_call *call,
                              weft_comm_request **out)
{
    WEFT_TRY(check_call(call));
    WEFT_TRY(create_queue(call->group));
    size_t             bytes = sizeof *call->part * (size_t)call->n_part;
    weft_comm_request *r     = calloc(1, sizeof *r + bytes);
    if (!r) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    r->c     = c;
    r->call  = simplest(call);
    r->queue = head_of(call->group)->queue;
    if (r->call.n_part) r->call.part = memcpy(r->part, call->part, bytes);
    *out = r;
    return WEFT_OK;
}

weft_status weft_comm_start(weft_comm_request *r)
{
    weft_comm_queue *q  = r->queue;
    weft_status      st = WEFT_OK;
    pthread_mutex_lock(&q->lock);
    if (r->state != CALL_IDLE)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s is in flight already",
                          weft_collective_name(r->call.kind)));
    if (!q->threaded) WEFT_GO(create_thread(q));
    append(q, r);
    pthread_cond_signal(&q->work);
out:
    pthread_mutex_unlock(&q->lock);
    return st;
}

weft_status weft_comm_test(weft_comm_request *r, bool *done)
{
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&r->queue->lock);
    *done = r->state != CALL_STARTED;
    if (*done) st = wait_locked(r->queue, r);
    pthread_mutex_unlock(&r->queue->lock);
    return status_of(r, st);
}

weft_status weft_comm_wait(weft_comm_request *r)
{
    pthread_mutex_lock(&r->queue->lock);
    weft_status st = wait_locked(r->queue, r);
    pthread_mutex_unlock(&r->queue->lock);
    return status_of(r, st);
}

weft_status weft_comm_run_request(weft_comm_request *r)
{
    weft_comm_queue *q = r->queue;
    pthread_mutex_lock(&q->lock);
    if (r->state == CALL_IDLE) append(q, r);
    weft_status st = wait_locked(q, r);
    pthread_mutex_unlock(&q->lock);
    return status_of(r, st);
}

void weft_comm_release(weft_comm_request *r)
{
    free(r);
}
