/* A rank's end over UCX: opening, waiting, verdicts, leaving. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/ucx_priv.h"

#define api weft_comm__ucx

enum {
    AM_ID      = 7,
    FEW        = 64, /* ranks that all know each other from the start */
    WORLD_TAG  = 0x7ffffff0,
    ANSWER_MS  = 700,
    REST_MS    = 10,
    MAX_NAP_MS = 200,
};

static struct timespec at_time(double s)
{
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec         = (long)((s - (double)t.tv_sec) * 1e9);
    return t;
}

static void ring(int fd)
{
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) return; /* full: it rings already */
}

static void quiet(int fd)
{
    uint64_t n;
    if (read(fd, &n, sizeof n) < 0) return;
}

static void wake_callers(ucx_end *e)
{
    pthread_cond_broadcast(&e->moved);
    if (e->asleep) ring(e->kick);
}

/* ---- waiting ---- */

/* Until UCX has something to do, or bell rings; the lock is free meanwhile. */
static void sleep_on(ucx_end *e, int bell, double until)
{
    if (api->worker_arm(e->worker) != UCS_OK) { /* there is something already, perhaps */
        pthread_mutex_unlock(&e->lock);         /* for UCX's own thread, which connects */
        sched_yield();
        pthread_mutex_lock(&e->lock);
        return;
    }
    double s  = until - weft_clock_s();
    int    ms = s <= 0 ? 0 : s > MAX_NAP_MS * 1e-3 ? MAX_NAP_MS : (int)(s * 1e3) + 1;
    struct pollfd p[2] = {{.fd = e->efd, .events = POLLIN},
                          {.fd = bell, .events = POLLIN}};
    pthread_mutex_unlock(&e->lock);
    poll(p, 2, ms);
    pthread_mutex_lock(&e->lock);
    if (p[1].revents) quiet(bell);
}

static void doze(ucx_end *e, double deadline)
{
    if (e->asleep) { /* one sleeper is enough; it passes on what it learns */
        double          nap = weft_clock_s() + MAX_NAP_MS * 1e-3;
        struct timespec t   = at_time(nap < deadline ? nap : deadline);
        pthread_cond_timedwait(&e->moved, &e->lock, &t);
        return;
    }
    e->asleep = true;
    sleep_on(e, e->kick, deadline);
    e->asleep = false;
    if (e->n_wait > 1) pthread_cond_broadcast(&e->moved);
}

static bool over(const ucx_end *e)
{
    return e->condemned && e->c.epoch <= e->condemned_epoch;
}

ucx_outcome weft_comm__ucx_wait(ucx_end *e, ucx_test *done, const void *arg,
                                double deadline)
{
    double      spin_until = 0;
    ucx_outcome o          = UCX_DONE;
    e->n_wait++;
    while (!done(arg)) {
        if (over(e)) {
            o = UCX_OVER;
            break;
        }
        if (weft_comm__ucx_pump(e)) {
            spin_until = 0;
            if (e->n_wait > 1) wake_callers(e);
            continue;
        }
        double now = weft_clock_s();
        if (now >= deadline) {
            o = UCX_LATE;
            break;
        }
        if (spin_until <= 0) spin_until = now + e->spin_s;
        if (now >= spin_until) {
            doze(e, deadline);
            spin_until = 0;
        } else if (e->n_want) {
            pthread_mutex_unlock(&e->lock);
            sched_yield();
            pthread_mutex_lock(&e->lock);
        }
    }
    e->n_wait--;
    return o;
}

/* Serves the peers while no caller does: questions, grants, what is still to be sent. */
static void *serve(void *arg)
{
    ucx_end *e    = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        bool mine = e->n_call == seen || e->flow || e->outbox;
        if (e->n_wait || !mine) { /* between two calls it would only be in the way */
            struct timespec t = at_time(weft_clock_s() + REST_MS * 1e-3);
            seen              = e->n_call;
            pthread_cond_timedwait(&e->rest, &e->lock, &t);
            continue;
        }
        if (weft_comm__ucx_pump(e)) {
            wake_callers(e);
            continue;
        }
        sleep_on(e, e->nudge, weft_clock_s() + 10);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- verdicts ---- */

weft_status weft_comm__ucx_check(const ucx_end *e)
{
    return over(e) ? WEFT_FAIL(WEFT_ERR_PEER, "%s", e->why) : WEFT_OK;
}

void weft_comm__ucx_condemn(ucx_end *e, uint32_t epoch, const char *why)
{
    if (e->condemned && epoch <= e->condemned_epoch) return;
    e->condemned       = true;
    e->condemned_epoch = epoch;
    snprintf(e->why, sizeof e->why, "%s", why);
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].ep && !e->peer[r].dead && !e->peer[r].gone)
            weft_comm__ucx_tell(e, r, UCX_ABORT, (ucx_head){.epoch = epoch}, e->why);
    wake_callers(e);
    ring(e->nudge);
}

static bool answered(const void *arg)
{
    const ucx_peer *p = arg;
    return p->answer != UCX_NO_ANSWER || p->gone || p->dead;
}

/* Along the chain of those who wait for each other, to one who does not answer or is elsewhere. */
static int find_late(ucx_end *e, const ucx_port *port, int at)
{
    for (int hop = 0; hop < e->c.world; hop++) {
        ucx_peer *p = &e->peer[at];
        p->answer   = UCX_NO_ANSWER;
        weft_comm__ucx_tell(
            e, at, UCX_ASK,
            (ucx_head){.epoch = port->epoch, .port = port->id, .seq = port->seq}, NULL);
        weft_comm__ucx_wait(e, answered, p, weft_clock_s() + ANSWER_MS * 1e-3);
        if (p->answer < 0 || p->answer >= e->c.world || p->answer == e->c.rank) break;
        at = p->answer;
    }
    return at;
}

weft_status weft_comm__ucx_late(ucx_end *e, const ucx_port *port, int waits_on,
                                const char *what)
{
    char why[sizeof e->why];
    int  late = port->side == UCX_GROUP ? find_late(e, port, waits_on) : waits_on;
    WEFT_TRY(weft_comm__ucx_check(e)); /* somebody else was quicker to find out */
    snprintf(why, sizeof why, "rank %d is silent: %srank %d waited %g s %s (tag %d)",
             late, e->peer[late].gone ? "it is gone, " : "", e->c.rank, e->c.timeout_s,
             what, (int)(uint32_t)port->id);
    weft_comm__ucx_condemn(e, e->c.epoch, why);
    return weft_comm__ucx_check(e);
}

weft_status weft_comm__ucx_enter(ucx_end *e, ucx_port *port)
{
    atomic_fetch_add(&e->n_want, 1);
    pthread_mutex_lock(&e->lock);
    atomic_fetch_sub(&e->n_want, 1);
    e->n_call++;
    weft_status st = weft_comm__ucx_check(e);
    if (st == WEFT_OK && e->c.epoch < port->newest)
        st = WEFT_FAIL(WEFT_ERR_PEER, "rank %d is of epoch %u, the group is of epoch %u",
                       e->c.rank, e->c.epoch, port->newest);
    if (st != WEFT_OK) {
        pthread_mutex_unlock(&e->lock);
        return st;
    }
    if (e->c.epoch > port->epoch) weft_comm__ucx_renew(e, port, e->c.epoch);
    return WEFT_OK;
}

void weft_comm__ucx_leave(ucx_end *e)
{
    if (e->outbox || e->flow) weft_comm__ucx_pump(e);
    if (e->flow && !e->n_wait) { /* what is not sent yet is the thread's to send */
        pthread_cond_signal(&e->rest);
        ring(e->nudge);
    }
    pthread_mutex_unlock(&e->lock);
}

static void ucx_abort(weft_comm *c, const char *why)
{
    ucx_end *e = ucx_of(c);
    char     line[sizeof e->why];
    snprintf(line, sizeof line, "rank %d gave up: %s", c->rank, why);
    pthread_mutex_lock(&e->lock);
    weft_comm__ucx_condemn(e, c->epoch, line);
    weft_comm__ucx_pump(e);
    pthread_mutex_unlock(&e->lock);
}

/* ---- leaving ---- */

static bool all_sent(const void *arg)
{
    const ucx_end *e = arg;
    return !e->flow && !e->outbox;
}

static bool all_said_bye(const void *arg)
{
    const ucx_end *e = arg;
    for (int r = 0; r < e->c.world; r++) {
        const ucx_peer *p = &e->peer[r];
        if (p->ep && !p->gone && !p->dead && !p->bye_acked) return false;
    }
    return !e->outbox;
}

/* Without this, a connection closed with something unread in it would take the peer's unread data along. */
static void say_bye(ucx_end *e)
{
    double limit = e->c.timeout_s < 5 ? e->c.timeout_s : 5;
    bool   ended = over(e);
    if (!ended) weft_comm__ucx_wait(e, all_sent, e, weft_clock_s() + limit);
    e->leaving   = true;
    e->condemned = false; /* waiting works again */
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].ep && !e->peer[r].gone && !e->peer[r].dead)
            weft_comm__ucx_tell(e, r, UCX_BYE, (ucx_head){0}, NULL);
    weft_comm__ucx_wait(e, all_said_bye, e, weft_clock_s() + (ended ? 0.3 : 2));
}

static void close_all(ucx_end *e)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    for (int r = 0; r < e->c.world; r++) {
        if (e->peer[r].ep) {
            ucs_status_ptr_t q = api->ep_close(e->peer[r].ep, &force);
            if (UCS_PTR_IS_PTR(q)) api->request_free(q);
        }
        free(e->peer[r].address);
    }
    for (int i = 0; i < 100; i++) api->worker_progress(e->worker);
}

static void ucx_destroy(weft_comm *c)
{
    ucx_end *e = ucx_of(c);
    if (e->threaded) {
        pthread_mutex_lock(&e->lock);
        say_bye(e);
        e->stop = true;
        pthread_cond_signal(&e->rest);
        ring(e->nudge);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    if (e->worker) close_all(e);
    if (e->address) api->worker_release_address(e->worker, e->address);
    if (e->worker) api->worker_destroy(e->worker);
    if (e->context) api->cleanup(e->context);
    for (ucx_opened *o = e->opened, *next; o; o = next) {
        next = o->next;
        o->free(o);
    }
    weft_comm__ucx_free_ports(e);
    if (e->kick >= 0) close(e->kick);
    if (e->nudge >= 0) close(e->nudge);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->moved);
    pthread_cond_destroy(&e->rest);
    free(e->peer);
    free(e->bounce);
    free(e);
}

/* ---- opening ---- */

static const weft_comm_ops ops = {
    .open_channel = weft_comm__ucx_open_channel,
    .open_group   = weft_comm__ucx_open_group,
    .send         = weft_comm__ucx_send,
    .recv         = weft_comm__ucx_recv,
    .collective   = weft_comm__ucx_collective,
    .shares       = weft_comm__ucx_shares,
    .sum_lanes    = weft_comm__ucx_sum_lanes,
    .abort        = ucx_abort,
    .destroy      = ucx_destroy,
};

static weft_status fail_ucx(const char *what, ucs_status_t st)
{
    return WEFT_FAIL(WEFT_ERR_IO, "UCX: %s: %s", what, api->status_string(st));
}

static weft_status make_worker(ucx_end *e)
{
    ucp_params_t           cp = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features          = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)e->c.world};
    ucp_worker_params_t    wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                               UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
                                 .thread_mode  = UCS_THREAD_MODE_SERIALIZED,
                                 .am_alignment = 64};
    ucp_am_handler_param_t am = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id    = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb    = weft_comm__ucx_arrive,
        .arg   = e};
    ucs_status_t st =
        api->init_version(UCP_API_MAJOR, UCP_API_MINOR, &cp, NULL, &e->context);
    if (st != UCS_OK) return fail_ucx("no network device can be used", st);
    st = api->worker_create(e->context, &wp, &e->worker);
    if (st != UCS_OK) return fail_ucx("worker", st);
    st = api->set_am_handler(e->worker, &am);
    if (st != UCS_OK) return fail_ucx("messages", st);
    st = api->worker_get_efd(e->worker, &e->efd);
    if (st != UCS_OK) return fail_ucx("sleeping", st);
    st = api->worker_get_address(e->worker, &e->address, &e->address_bytes);
    return st == UCS_OK ? WEFT_OK : fail_ucx("address", st);
}

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static weft_status fill(ucx_end *e, const weft_comm_ucx_options *o)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->moved, &a);
    pthread_cond_init(&e->rest, &a);
    pthread_condattr_destroy(&a);
    e->kick   = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->nudge  = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->peer   = calloc((size_t)o->world, sizeof *e->peer);
    e->bounce = malloc(UCX_PIECE);
    if (!e->peer || !e->bounce || e->kick < 0 || e->nudge < 0)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->outbox_end = &e->outbox;
    /* pinned ranks have cores of their own; others share those that they see */
    e->spin_s = o->local_world <= cores() || o->local_world <= 1 ? 200e-6 : 0;
    return make_worker(e);
}

weft_status weft_comm_ucx_open(const weft_comm_ucx_options *o, weft_comm **out)
{
    const ucx_api *loaded;
    WEFT_TRY(weft_comm__ucx_load(o->device, &loaded));
    ucx_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->c           = (weft_comm){.transport = "ucx",
                                 .op        = &ops,
                                 .rank      = o->rank,
                                 .world     = o->world,
                                 .timeout_s = o->timeout_s,
                                 .impl      = e};
    weft_status st = fill(e, o);
    if (st != WEFT_OK)
        ucx_destroy(&e->c);
    else
        *out = &e->c;
    return st;
}

void weft_comm_ucx_address(const weft_comm *c, const void **p, int64_t *bytes)
{
    *p     = ucx_of(c)->address;
    *bytes = (int64_t)ucx_of(c)->address_bytes;
}

static weft_status meet_all(ucx_end *e)
{
    weft_comm_group *g;
    weft_status      st;
    int32_t         *rank = malloc(sizeof *rank * (size_t)e->c.world);
    if (!rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int r = 0; r < e->c.world; r++) rank[r] = r;
    st = weft_comm_open_group(&e->c, e->c.world, rank, WORLD_TAG, &g);
    free(rank);
    if (st != WEFT_OK) return st;
    return weft_comm_collective(&e->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL,
                                0);
}

weft_status weft_comm_ucx_connect(weft_comm *c, uint64_t job, const void *const *address,
                                  const int64_t *bytes)
{
    ucx_end *e = ucx_of(c);
    e->job     = job;
    for (int r = 0; r < c->world; r++) {
        e->peer[r].address = malloc((size_t)bytes[r] + 1);
        if (!e->peer[r].address) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        memcpy(e->peer[r].address, address[r], (size_t)bytes[r]);
    }
    if (pthread_create(&e->thread, NULL, serve, e))
        return WEFT_FAIL(WEFT_ERR_MEM, "no thread to serve the peers with");
    e->threaded = true;
    pthread_mutex_lock(&e->lock);
    for (int r = 0; r < c->world && c->world <= FEW; r++)
        if (r != c->rank) weft_comm__ucx_tell(e, r, UCX_HELLO, (ucx_head){0}, NULL);
    pthread_mutex_unlock(&e->lock);
    return meet_all(e);
}
