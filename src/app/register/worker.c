/* A register over a store whose calls may wait: a thread makes them.
 *
 * A thread, because calls on a shared file system that stalls have no time limit and cannot be
 * broken off, and because one mechanism serves both files and etcd.  The agent's loop sees a
 * descriptor that becomes readable.  A call that takes longer than the limit is given up by the
 * caller; the thread ends it some time, and the result is dropped.  A thread that is stuck when the
 * register is closed owns what it uses and frees it when it comes back. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "register/register_priv.h"

typedef struct store_call {
    uint64_t       ticket;
    uint32_t       epoch;
    int64_t        n; /* -1: read */
    uint8_t       *bytes;
    double         asked_s;
    bool           done;
    weft_status    st;
    register_value value;
    char           why[300];
} store_call;

/* What the caller and the thread share; the last of them frees it. */
typedef struct store_worker {
    pthread_mutex_t       lock;
    pthread_cond_t        wake;
    int                   n_user;
    bool                  closing;
    int                   event; /* eventfd */
    const register_store *op;
    void                 *store;
    int                   n_call, first;
    uint64_t              n_ticket, n_begun;
    store_call            call[WEFT_REGISTER_QUEUE];
} store_worker;

typedef struct store_register {
    weft_register base;
    store_worker *worker;
    double        limit_s;
    uint8_t      *given; /* the value of the last outcome */
    char          where[256];
} store_register;

static void free_call(store_call *c)
{
    free(c->bytes);
    free(c->value.bytes);
    *c = (store_call){0};
}

/* With the lock held; unlocks. */
static void leave_worker(store_worker *w)
{
    bool last = --w->n_user == 0;
    pthread_mutex_unlock(&w->lock);
    if (!last) return;
    for (int k = 0; k < WEFT_REGISTER_QUEUE; k++) free_call(&w->call[k]);
    if (w->store) w->op->destroy(w->store);
    if (w->event >= 0) close(w->event);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* The first call that was not begun, or NULL. */
static store_call *find_waiting(store_worker *w)
{
    for (int k = 0; k < w->n_call; k++) {
        store_call *c = &w->call[(w->first + k) % WEFT_REGISTER_QUEUE];
        if (c->ticket > w->n_begun) return c;
    }
    return NULL;
}

static store_call *find_ticket(store_worker *w, uint64_t ticket)
{
    for (int k = 0; k < w->n_call; k++) {
        store_call *c = &w->call[(w->first + k) % WEFT_REGISTER_QUEUE];
        if (c->ticket == ticket) return c;
    }
    return NULL;
}

static void note_result(store_worker *w, const store_call *made)
{
    static const uint64_t one = 1;
    store_call           *c   = find_ticket(w, made->ticket);
    if (!c) { /* it was given up */
        free(made->value.bytes);
        return;
    }
    c->value = made->value;
    c->st    = made->st;
    c->done  = true;
    if (made->st != WEFT_OK) snprintf(c->why, sizeof c->why, "%s", weft_error_text());
    if (write(w->event, &one, sizeof one) < 0) return; /* it is readable already */
}

static void *serve_calls(void *arg)
{
    store_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        store_call *c = find_waiting(w);
        if (!c) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        store_call made = {.ticket = c->ticket, .epoch = c->epoch, .n = c->n};
        uint8_t   *own  = c->bytes;
        c->bytes        = NULL;
        w->n_begun      = c->ticket;
        pthread_mutex_unlock(&w->lock);
        if (made.n >= 0) weft_failpoint("register.write");
        made.st = w->op->ask(w->store, made.epoch, own, made.n, &made.value);
        if (made.n >= 0) weft_failpoint("register.written");
        free(own);
        pthread_mutex_lock(&w->lock);
        note_result(w, &made);
    }
    leave_worker(w);
    return NULL;
}

/* ---- the caller's side ---- */

static store_register *store_of(weft_register *r)
{
    return (store_register *)(void *)r;
}

static weft_status ask_store(weft_register *r, uint32_t epoch, const void *bytes,
                             int64_t n)
{
    store_worker *w    = store_of(r)->worker;
    size_t        size = n >= 0 ? (size_t)n : bytes ? sizeof(uint64_t) : 0;
    uint8_t      *own  = NULL;
    if (n >= 0 || size) {
        own = malloc(size + 1);
        if (!own) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        if (size) memcpy(own, bytes, size);
    }
    pthread_mutex_lock(&w->lock);
    bool full = w->n_call == WEFT_REGISTER_QUEUE;
    if (!full)
        w->call[(w->first + w->n_call++) % WEFT_REGISTER_QUEUE] =
            (store_call){.ticket  = ++w->n_ticket,
                         .epoch   = epoch,
                         .n       = n,
                         .bytes   = own,
                         .asked_s = weft_clock_s()};
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (!full) return WEFT_OK;
    free(own);
    return WEFT_FAIL(WEFT_ERR_ARG, "%d calls of a register are under way",
                     WEFT_REGISTER_QUEUE);
}

static void give_outcome(store_register *s, store_call *c, weft_register_outcome *out)
{
    free(s->given);
    s->given       = c->value.bytes;
    c->value.bytes = NULL;
    *out = (weft_register_outcome){.result = c->value.stands ? WEFT_REGISTER_STANDS
                                                             : WEFT_REGISTER_EMPTY,
                                   .epoch  = c->value.epoch,
                                   .beat   = c->value.beat,
                                   .bytes  = s->given,
                                   .n      = c->value.n};
    if (c->done && c->st == WEFT_OK) return;
    out->result = WEFT_REGISTER_UNKNOWN;
    out->epoch  = c->epoch;
    if (c->done)
        snprintf(out->why, sizeof out->why, "%s", c->why);
    else
        snprintf(
            out->why, sizeof out->why,
            "register %.160s has not answered for %.3g s: is its host or file system "
            "there?",
            s->where, s->limit_s);
}

static bool next_of_store(weft_register *r, weft_register_outcome *out)
{
    store_register *s = store_of(r);
    store_worker   *w = s->worker;
    uint64_t        n;
    pthread_mutex_lock(&w->lock);
    store_call *c    = w->n_call ? &w->call[w->first] : NULL;
    bool        give = c && (c->done || weft_clock_s() - c->asked_s >= s->limit_s);
    if (give) {
        give_outcome(s, c, out);
        free_call(c);
        w->first = (w->first + 1) % WEFT_REGISTER_QUEUE;
        w->n_call--;
    }
    /* readable as long as the first call is done */
    bool more = w->n_call && w->call[w->first].done;
    if (!more && read(w->event, &n, sizeof n) < 0) n = 0;
    pthread_mutex_unlock(&w->lock);
    return give;
}

static int fd_of_store(const weft_register *r)
{
    return ((const store_register *)(const void *)r)->worker->event;
}

static void close_store(weft_register *r)
{
    store_register *s = store_of(r);
    pthread_mutex_lock(&s->worker->lock);
    s->worker->closing = true;
    pthread_cond_signal(&s->worker->wake);
    leave_worker(s->worker);
    free(s->given);
    free(s);
}

static weft_status start_worker(store_worker *w)
{
    pthread_t      thread;
    pthread_attr_t attr;
    sigset_t       all, old;
    sigfillset(&all);
    w->n_user = 2;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &attr, serve_calls, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (!error) return WEFT_OK;
    w->n_user = 1;
    return WEFT_FAIL(WEFT_ERR_IO, "no thread for the register: %s", strerror(error));
}

/* The name of the job is the value of epoch 0. */
static weft_status claim_job(store_register *s, const char *job)
{
    struct pollfd         p = {.fd = s->worker->event, .events = POLLIN};
    weft_register_outcome o;
    WEFT_TRY(ask_store(&s->base, 0, job, (int64_t)strlen(job)));
    while (!next_of_store(&s->base, &o))
        if (poll(&p, 1, 50) < 0 && errno != EINTR)
            return WEFT_FAIL(WEFT_ERR_IO, "poll: %s", strerror(errno));
    if (o.result != WEFT_REGISTER_STANDS) return WEFT_FAIL(WEFT_ERR_ARG, "%s", o.why);
    if (o.n == strlen(job) && !memcmp(o.bytes, job, o.n)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "register %s holds the views of job '%.*s', this is job '%s': give "
                     "another --rdzv",
                     s->where, (int)(o.n < 80 ? o.n : 80), (const char *)o.bytes, job);
}

weft_status weft_register__open_store(const register_store *op, void *store,
                                      const char *where, const weft_register_options *o,
                                      weft_register **out)
{
    static const register_ops ops = {
        .ask = ask_store, .next = next_of_store, .fd = fd_of_store, .close = close_store};
    store_register *s  = calloc(1, sizeof *s);
    store_worker   *w  = calloc(1, sizeof *w);
    weft_status     st = WEFT_OK;
    if (!s || !w) {
        free(s), free(w);
        op->destroy(store);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->op      = op;
    w->store   = store;
    w->n_user  = 1;
    w->event   = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->base.op = &ops;
    s->worker  = w;
    s->limit_s = o->limit_s > 0 ? o->limit_s : 5;
    snprintf(s->where, sizeof s->where, "%s", where);
    if (w->event < 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "no descriptor for the register: %s",
                          strerror(errno)));
    WEFT_GO(start_worker(w));
    WEFT_GO(claim_job(s, o->job));
    *out = &s->base;
    return WEFT_OK;
out:
    close_store(&s->base);
    return st;
}
