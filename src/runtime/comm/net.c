/* A rank's end between hosts: opening, waiting, verdicts, leaving. */
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
#include "base/hash.h"
#include "base/progress.h"
#include "comm/net_priv.h"
#include "comm/net_tcp.h"

enum {
    AM_ID      = 7,
    FEW        = 64, /* ranks that all know each other from the start */
    WORLD_TAG  = 0x7ffffff0,
    ANSWER_MS  = 700,
    REST_MS    = 10,
    MAX_NAP_MS = 200,
};

static const double SPIN_S = 200e-6; /* before sleeping */

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

static void wake_callers(net_end *e)
{
    pthread_cond_broadcast(&e->moved);
    if (e->asleep) ring(e->kick);
}

/* ---- the lock ---- */

void weft_comm__net_lock(net_end *e)
{
    atomic_fetch_add(&e->n_want, 1);
    pthread_mutex_lock(&e->lock);
    atomic_fetch_sub(&e->n_want, 1);
}

/* To those who wait for it, in turn: the unlock gives it to the first of them
 * (PTHREAD_PRIO_INHERIT), where a plain mutex would go to the caller, who runs already. */
static void pass_lock(net_end *e, bool yield)
{
    pthread_mutex_unlock(&e->lock);
    if (yield) sched_yield();
    weft_comm__net_lock(e);
}

/* ---- waiting ----
 *
 * One caller drives the link, also for the others, who nap: those whose goal it has reached are
 * called, and get the lock next.  A driver that leaves is replaced by one of those who nap. */

typedef struct net_waiter {
    struct net_waiter *next;
    net_test          *done;
    const void        *arg;
    bool               naps, sleeps, called; /* sleeps: in sleep_on, as the driver */
} net_waiter;

static void call_those_done(net_end *e)
{
    bool any = false;
    for (net_waiter *w = e->waiter; w; w = w->next) {
        if (!(w->naps || w->sleeps) || w->called || !w->done(w->arg)) continue;
        w->called = true;
        any       = any || w->naps;
        if (w->naps) atomic_fetch_add(&e->n_want, 1);
        if (w->sleeps) ring(e->kick);
    }
    if (any) pthread_cond_broadcast(&e->moved);
}

static bool is_driven(const net_end *e)
{
    return e->n_wait > e->n_nap;
}

/* Until the link has something to do, or bell rings; the lock is free meanwhile. */
static void sleep_on(net_end *e, int bell, double until)
{
    if (!e->link->arm(e)) {             /* there is something already, perhaps */
        pthread_mutex_unlock(&e->lock); /* for UCX's own thread, which connects */
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
    weft_comm__net_lock(e);
    if (p[1].revents) quiet(bell);
}

static bool over(const net_end *e)
{
    return e->condemned && e->c.epoch <= e->condemned_epoch;
}

/* After a pump by a caller that leaves it to others: who sleeps does not know of what was queued
 * since, nor those who wait of what has come. */
static void tell_waiters(net_end *e)
{
    if (e->n_wait) call_those_done(e);
    if (e->asleep && !e->link->arm(e)) ring(e->kick);
}

/* While another caller drives.  An agent sees that this rank waits, and is not stuck itself. */
static void nap(net_end *e, net_waiter *w, double deadline)
{
    double          longest = weft_clock_s() + MAX_NAP_MS * 1e-3;
    struct timespec t       = at_time(longest < deadline ? longest : deadline);
    weft_progress_beat();
    tell_waiters(e);
    w->naps = true;
    e->n_nap++;
    while (!w->called && is_driven(e) && !over(e))
        if (pthread_cond_timedwait(&e->moved, &e->lock, &t)) break;
    e->n_nap--;
    if (w->called) atomic_fetch_sub(&e->n_want, 1);
    w->naps = w->called = false;
}

static void doze(net_end *e, net_waiter *w, double deadline)
{
    weft_progress_beat();
    e->asleep = w->sleeps = true;
    sleep_on(e, e->kick, deadline);
    e->asleep = w->sleeps = w->called = false;
}

/* The agent has decided another membership without one of these ranks. */
static void look_at_word(net_end *e)
{
    if (!e->over_word || e->condemned || e->leaving) return;
    if (atomic_load_explicit(e->over_word, memory_order_relaxed) < e->over_epoch) return;
    weft_comm__net_condemn(e, e->over_epoch, "a rank of this membership is lost");
}

/* The caller drives, until its goal is reached or it is known that it will not be. */
static net_outcome drive(net_end *e, net_waiter *w, double deadline)
{
    double spin_until = 0;
    while (!w->done(w->arg)) {
        look_at_word(e);
        if (over(e)) return NET_OVER;
        bool   moved = weft_comm__net_pump(e) > 0;
        double now   = weft_clock_s();
        if (moved && e->n_wait > 1) call_those_done(e);
        if (now >= deadline && !w->done(w->arg)) /* whatever else there is to do */
            return over(e) ? NET_OVER : NET_LATE;
        if (moved) {
            spin_until = 0;
            if (e->n_want) pass_lock(e, false);
            continue;
        }
        if (e->n_wait - e->n_nap > 1) {
            nap(e, w, deadline);
            continue;
        }
        if (spin_until <= 0) spin_until = now + SPIN_S;
        if (now >= spin_until) {
            double until = now + 0.1; /* a peer that parts is looked after */
            doze(e, w, e->n_parting && until < deadline ? until : deadline);
            spin_until = 0;
        } else if (e->n_want ||
                   e->crowded) { /* a core that is shared is given away at once */
            pass_lock(e, e->crowded);
        }
    }
    return NET_DONE;
}

net_outcome weft_comm__net_wait(net_end *e, net_test *done, const void *arg,
                                double deadline)
{
    net_waiter w = {.next = e->waiter, .done = done, .arg = arg};
    e->waiter    = &w;
    e->n_wait++;
    net_outcome  o  = drive(e, &w, deadline);
    net_waiter **at = &e->waiter;
    while (*at != &w) at = &(*at)->next;
    *at = w.next;
    e->n_wait--;
    if (e->n_nap && !is_driven(e)) pthread_cond_broadcast(&e->moved);
    return o;
}

/* Serves the peers while no caller does: questions, grants, what is still to be sent. */
static void *serve(void *arg)
{
    net_end *e    = arg;
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
        if (weft_comm__net_pump(e)) {
            if (e->n_want) pass_lock(e, false);
            continue;
        }
        sleep_on(e, e->nudge, weft_clock_s() + 10);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- verdicts ---- */

weft_status weft_comm__net_check(const net_end *e)
{
    return over(e) ? WEFT_FAIL(WEFT_ERR_PEER, "%s", e->why) : WEFT_OK;
}

void weft_comm__net_condemn(net_end *e, uint32_t epoch, const char *why)
{
    if (e->condemned && epoch <= e->condemned_epoch) return;
    e->condemned       = true;
    e->condemned_epoch = epoch;
    snprintf(e->why, sizeof e->why, "%s", why);
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].line && !e->peer[r].dead && !e->peer[r].gone)
            weft_comm__net_tell(e, r, NET_ABORT, (net_head){.epoch = epoch}, e->why);
    wake_callers(e);
    ring(e->nudge);
}

static bool answered(const void *arg)
{
    const net_peer *p = arg;
    return p->answer != NET_NO_ANSWER || p->gone || p->dead;
}

/* Along the chain of those who wait for each other, to one who does not answer or is elsewhere. */
static int find_late(net_end *e, const net_port *port, int at)
{
    for (int hop = 0; hop < e->c.world; hop++) {
        net_peer *p = &e->peer[at];
        p->answer   = NET_NO_ANSWER;
        weft_comm__net_tell(e, at, NET_ASK,
                            (net_head){.epoch = e->c.epoch,
                                       .port  = port->family ? port->family : port->id,
                                       .seq   = port->seq},
                            NULL);
        weft_comm__net_wait(e, answered, p, weft_clock_s() + ANSWER_MS * 1e-3);
        if (p->answer < 0 || p->answer >= e->c.world || p->answer == e->c.rank) break;
        at = p->answer;
    }
    return at;
}

weft_status weft_comm__net_late(net_end *e, const net_port *port, int waits_on,
                                const char *what)
{
    char why[sizeof e->why];
    int  late = find_late(e, port, waits_on);
    WEFT_TRY(weft_comm__net_check(e)); /* somebody else was quicker to find out */
    snprintf(why, sizeof why, "rank %d is silent: %srank %d waited %g s %s (tag %d)",
             late, e->peer[late].gone ? "it is gone, " : "", e->c.rank, e->c.timeout_s,
             what, (int)(uint32_t)(port->family ? port->family : port->id));
    weft_comm__net_condemn(e, e->c.epoch, why);
    return weft_comm__net_check(e);
}

weft_status weft_comm__net_enter(net_end *e, net_port *port)
{
    weft_comm__net_lock(e);
    e->n_call++;
    look_at_word(e);
    weft_status st = weft_comm__net_check(e);
    if (st == WEFT_OK && e->c.epoch < port->newest)
        st = WEFT_FAIL(WEFT_ERR_PEER, "rank %d is of epoch %u, the group is of epoch %u",
                       e->c.rank, e->c.epoch, port->newest);
    if (st != WEFT_OK) {
        pthread_mutex_unlock(&e->lock);
        return st;
    }
    if (e->c.epoch > port->epoch) weft_comm__net_renew(e, port, e->c.epoch);
    return WEFT_OK;
}

void weft_comm__net_leave(net_end *e)
{
    if (e->outbox || e->flow) weft_comm__net_pump(e);
    tell_waiters(e);
    if (e->flow && !e->n_wait) { /* what is not sent yet is the thread's to send */
        pthread_cond_signal(&e->rest);
        ring(e->nudge);
    }
    pthread_mutex_unlock(&e->lock);
}

static void net_abort(weft_comm *c, const char *why)
{
    net_end *e = net_of(c);
    char     line[sizeof e->why];
    snprintf(line, sizeof line, "rank %d gave up: %s", c->rank, why);
    weft_comm__net_lock(e);
    weft_comm__net_condemn(e, c->epoch, line);
    weft_comm__net_pump(e);
    pthread_mutex_unlock(&e->lock);
}

static weft_status net_check(weft_comm *c)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    look_at_word(e);
    weft_status st = weft_comm__net_check(e);
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* Of an older view nothing is kept: each has ends of its own. */
static void tell_note(weft_comm *c, int rank, uint32_t key, bool waits)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    if (weft_comm__net_check(e) == WEFT_OK && !e->peer[rank].dead && !e->peer[rank].gone)
        weft_comm__net_tell(e, rank, NET_NOTE,
                            (net_head){.epoch = c->epoch, .port = key, .seq = waits},
                            NULL);
    weft_comm__net_pump(e);
    tell_waiters(e);
    ring(e->nudge);
    pthread_mutex_unlock(&e->lock);
}

static bool was_noted(weft_comm *c, int rank, uint32_t key)
{
    return weft_comm_notes_has(&net_of(c)->peer[rank].notes, key);
}

static void net_pass_on(weft_comm *c, const char *verdict)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    weft_comm__net_condemn(e, c->epoch, verdict);
    weft_comm__net_pump(e);
    pthread_mutex_unlock(&e->lock);
}

/* ---- leaving ---- */

static bool all_sent(const void *arg)
{
    const net_end *e = arg;
    return !e->flow && !e->outbox;
}

static bool all_said_bye(const void *arg)
{
    const net_end *e = arg;
    for (int r = 0; r < e->c.world; r++) {
        const net_peer *p = &e->peer[r];
        if (p->line && !p->gone && !p->dead && !p->bye_acked) return false;
    }
    return !e->outbox;
}

/* Without this, a connection closed with something unread in it would take the peer's unread data
 * along. */
static void say_bye(net_end *e)
{
    double limit = e->c.timeout_s < 5 ? e->c.timeout_s : 5;
    bool   ended = over(e);
    if (!ended) weft_comm__net_wait(e, all_sent, e, weft_clock_s() + limit);
    e->leaving   = true;
    e->condemned = false; /* waiting works again */
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].line && !e->peer[r].gone && !e->peer[r].dead)
            weft_comm__net_tell(e, r, NET_BYE, (net_head){0}, NULL);
    weft_comm__net_wait(e, all_said_bye, e, weft_clock_s() + (ended ? 0.3 : 2));
}

static void net_stop(weft_comm *c)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    e->stopped = e->condemned = true;
    e->condemned_epoch        = UINT32_MAX;
    snprintf(e->why, sizeof e->why, "rank %d dropped its end", c->rank);
    wake_callers(e);
    pthread_mutex_unlock(&e->lock);
}

static void net_destroy(weft_comm *c)
{
    net_end *e = net_of(c);
    if (e->threaded) {
        weft_comm__net_lock(e);
        if (!e->stopped) say_bye(e);
        e->stop = true;
        pthread_cond_signal(&e->rest);
        ring(e->nudge);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    if (e->link_state) e->link->close(e);
    for (int r = 0; e->peer && r < c->world; r++) free(e->peer[r].address);
    for (net_opened *o = e->opened, *next; o; o = next) {
        next = o->next;
        o->free(o);
    }
    weft_comm__net_free_ports(e);
    if (e->kick >= 0) close(e->kick);
    if (e->nudge >= 0) close(e->nudge);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->moved);
    pthread_cond_destroy(&e->rest);
    free(e->peer);
    free(e->bounce);
    free(e->told);
    weft_comm_key_wipe(&e->link_key);
    weft_comm_tls_close(e->tls);
    free(e);
}

void weft_comm__net_unlist(net_end *e, net_opened *o)
{
    void **at = &e->opened;
    while (*at && *at != o) at = (void **)&((net_opened *)*at)->next;
    if (*at) *at = o->next;
}

static int list_links(weft_comm *c, weft_comm_link *out, int n)
{
    net_end *e = net_of(c);
    if (!e->link->list) return 0;
    weft_comm__net_lock(e);
    n = e->link->list(e, out, n);
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* ---- opening ---- */

static const weft_comm_ops ops = {
    .open_channel  = weft_comm__net_open_channel,
    .open_group    = weft_comm__net_open_group,
    .send          = weft_comm__net_send,
    .recv          = weft_comm__net_recv,
    .can_send      = weft_comm__net_can_send,
    .run           = weft_comm__net_run,
    .close_channel = weft_comm__net_close_channel,
    .close_group   = weft_comm__net_close_group,
    .stop          = net_stop,
    .abort         = net_abort,
    .check         = net_check,
    .note          = tell_note,
    .noted         = was_noted,
    .pass_on       = net_pass_on,
    .list_links    = list_links,
    .destroy       = net_destroy,
};

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

/* Encrypted TCP is another one for those who choose. */
static char letter_of(const net_link *link, bool encrypt)
{
    return encrypt ? 'e' : link->name[0];
}

/* What a rank tells the others; its link's address follows. */
typedef struct card {
    char     link; /* first letter */
    uint32_t machine;
} card;

static uint32_t machine(int rank)
{
    char   id[64];
    FILE  *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = f ? fread(id, 1, sizeof id, f) : 0;
    if (f) fclose(f);
    return n ? weft_hash_crc32c(0, id, n) : (uint32_t)rank;
}

static weft_status fill(net_end *e, const weft_comm_net_options *o)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutexattr_t m;
    pthread_mutexattr_init(&m);
    (void)pthread_mutexattr_setprotocol(&m, PTHREAD_PRIO_INHERIT);
    if (pthread_mutex_init(&e->lock, &m)) pthread_mutex_init(&e->lock, NULL);
    pthread_mutexattr_destroy(&m);
    pthread_cond_init(&e->moved, &a);
    pthread_cond_init(&e->rest, &a);
    pthread_condattr_destroy(&a);
    e->kick   = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->nudge  = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->keeper = -1;
    e->peer   = calloc((size_t)o->world, sizeof *e->peer);
    e->bounce = malloc((size_t)e->link->piece);
    if (!e->peer || !e->bounce || e->kick < 0 || e->nudge < 0)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->outbox_end = &e->outbox;
    e->most_held  = NET_MOST_HELD;
    /* pinned ranks have cores of their own; others share those that they see */
    e->crowded = o->local_world > cores() && o->local_world > 1;
    WEFT_TRY(e->link->open(e, o->device));
    card *told = e->told = malloc(sizeof *told + (size_t)e->address_bytes);
    if (!told) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memset(told, 0, sizeof *told); /* padding goes over the wire, too */
    told->link    = letter_of(e->link, e->encrypt);
    told->machine = machine(o->rank);
    memcpy(told + 1, e->address, (size_t)e->address_bytes);
    return WEFT_OK;
}

/* UCX where it is asked for, for networks that it knows better than sockets do. */
static weft_status choose_link(const char *by, const net_link **out, bool *encrypt)
{
    if (!by) by = getenv("WEFT_NET");
    if (!by || !*by) by = getenv("UCX_TLS") ? "ucx" : "tcp";
    *encrypt = !strcmp(by, "tls");
    *out     = !strcmp(by, "ucx") ? &weft_comm__net_ucx : &weft_comm__net_tcp;
    if (*encrypt || !strcmp(by, (*out)->name)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_NET=%s: hosts are joined by tcp, tls or ucx",
                     by);
}

weft_status weft_comm_net_open(const weft_comm_net_options *o, weft_comm **out)
{
    const net_link *link;
    bool            encrypt;
    WEFT_TRY(choose_link(o->by, &link, &encrypt));
    net_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->link        = link;
    e->encrypt     = encrypt;
    e->efd         = -1;
    e->over_word   = o->over;
    e->over_epoch  = o->epoch;
    e->c           = (weft_comm){.transport = encrypt ? "tcp+tls" : link->name,
                                 .op        = &ops,
                                 .rank      = o->rank,
                                 .world     = o->world,
                                 .timeout_s = o->timeout_s,
                                 .packs     = true,
                                 .impl      = e};
    weft_status st = fill(e, o);
    if (st != WEFT_OK)
        net_destroy(&e->c);
    else
        *out = &e->c;
    return st;
}

void weft_comm_net_address(const weft_comm *c, const void **p, int64_t *bytes)
{
    *p     = net_of(c)->told;
    *bytes = (int64_t)sizeof(card) + net_of(c)->address_bytes;
}

static weft_status meet_all(net_end *e)
{
    weft_comm_group *g;
    weft_status      st;
    int32_t         *rank = malloc(sizeof *rank * (size_t)e->c.world);
    if (!rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int r = 0; r < e->c.world; r++) rank[r] = r;
    st = weft_comm_open_group(&e->c, e->c.world, rank, WORLD_TAG, &g);
    free(rank);
    if (st != WEFT_OK) return st;
    st = weft_comm_collective(&e->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
    (void)weft_comm_close_group(&e->c, g);
    return st;
}

static bool all_lines(const void *arg)
{
    const net_end *e = arg;
    for (int r = 0; r < e->c.world; r++)
        if (r != e->c.rank && !e->peer[r].line) return false;
    return true;
}

/* Ranks that share processors let the lower one connect; who is late is named by those who meet
 * afterwards. */
static void greet_all(net_end *e)
{
    bool wait = e->crowded && e->link == &weft_comm__net_tcp;
    weft_comm__net_lock(e);
    for (int r = wait ? e->c.rank + 1 : 0; r < e->c.world; r++)
        if (r != e->c.rank) weft_comm__net_tell(e, r, NET_HELLO, (net_head){0}, NULL);
    if (wait) weft_comm__net_wait(e, all_lines, e, weft_clock_s() + e->c.timeout_s / 2);
    pthread_mutex_unlock(&e->lock);
}

/* Keys of this run's connections, and the numbers in heads between each two ranks. */
static weft_status derive_keys(net_end *e, const weft_comm_key *membership)
{
    WEFT_TRY(weft_comm_key_derive(membership, "weft link", NULL, 0, &e->link_key));
    if (e->encrypt) WEFT_TRY(weft_comm__tcp_secure_keys(e, membership));
    for (int r = 0; r < e->c.world; r++)
        for (int out = 0; out < 2; out++) {
            int32_t       pair[2] = {out ? e->c.rank : r, out ? r : e->c.rank};
            weft_comm_key k;
            WEFT_TRY(
                weft_comm_key_derive(membership, "weft heads", pair, sizeof pair, &k));
            memcpy(out ? &e->peer[r].job_out : &e->peer[r].job_in, k.byte,
                   sizeof(uint64_t));
        }
    return WEFT_OK;
}

weft_status weft_comm_net_check_address(const void *address, int64_t bytes, bool loopback)
{
    card            its;
    const net_link *link;
    bool            encrypt;
    if (bytes < (int64_t)sizeof its)
        return WEFT_FAIL(WEFT_ERR_ARG, "its address is cut short");
    memcpy(&its, address, sizeof its);
    WEFT_TRY(choose_link(NULL, &link, &encrypt));
    if (its.link != letter_of(link, encrypt))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "it does not talk over %s: set WEFT_NET alike on all hosts, and "
                         "give --encrypt on all or on none",
                         encrypt ? "tls" : link->name);
    if (link != &weft_comm__net_tcp) return WEFT_OK; /* UCX reads its own */
    return weft_comm__tcp_check((const char *)address + sizeof its,
                                bytes - (int64_t)sizeof its, loopback);
}

static weft_status copy_address(net_end *e, int r, const void *address, int64_t bytes)
{
    net_peer   *p    = &e->peer[r];
    const card *mine = e->told;
    card        its  = {0};
    if (bytes >= (int64_t)sizeof its) memcpy(&its, address, sizeof its);
    if (its.link != mine->link)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "rank %d talks over %s, rank %d over something else: set "
            "WEFT_NET alike on all hosts, and give --encrypt on all or on none",
            e->c.rank, e->encrypt ? "tls" : e->link->name, r);
    weft_status st = weft_comm_net_check_address(address, bytes, true);
    if (st != WEFT_OK) return weft_fail_in(st, "rank %d: ", r);
    p->address_bytes = bytes - (int64_t)sizeof its;
    p->address       = malloc((size_t)p->address_bytes + 1);
    if (!p->address) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(p->address, (const char *)address + sizeof its, (size_t)p->address_bytes);
    p->here = its.machine == mine->machine;
    return WEFT_OK;
}

weft_status weft_comm_net_connect(weft_comm *c, const weft_comm_key *membership,
                                  const void *const *address, const int64_t *bytes)
{
    net_end *e    = net_of(c);
    int      here = 0;
    WEFT_TRY(derive_keys(e, membership));
    for (int r = 0; r < c->world; r++) {
        WEFT_TRY(copy_address(e, r, address[r], bytes[r]));
        here += e->peer[r].here;
    }
    if (here > sysconf(_SC_NPROCESSORS_ONLN)) e->crowded = true;
    if (pthread_create(&e->thread, NULL, serve, e))
        return WEFT_FAIL(WEFT_ERR_MEM, "no thread to serve the peers with");
    e->threaded = true;
    if (c->world <= FEW) greet_all(e);
    return meet_all(e);
}
