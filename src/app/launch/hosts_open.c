/* An agent of several hosts begins and ends: its address, its control connections, the register
 * that decides on views, the first event of the agreement.
 *
 *     host:port,..           who can listen at the first address begins the job, the others join it
 *                            (hosts_search.c); views are decided by a majority of the last view's
 *                            agents
 *     file:DIR, etcd://..    the register's newest view says whom to join; who finds none begins
 *
 * (1) A register belongs to one job: that of the same output folder, or of the same words where a
 *     job names none.  A later run of it goes on with the next epoch.
 * (2) A run that ends in order says so in the register (a view without hosts), so the next one
 *     need not wait to find out that its hosts are gone. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/auth.h"
#include "comm/rdzv.h"
#include "control/control.h"
#include "kernel/kernel.h"
#include "launch/environment.h"
#include "launch/hosts_priv.h"
#include "member/levels.h"

#define END_S       3    /* for the register to take the last view of a run */
#define LEAVE_SHARE 0.25 /* of --grace: for the others to prepare when a host leaves */

bool weft_launch_is_register(const char *rdzv)
{
    return !strncmp(rdzv, "file:", 5) || !strncmp(rdzv, "etcd://", 7) ||
           !strncmp(rdzv, "etcds://", 8);
}

static void put_words(const weft_launch_options *o, weft_text *t)
{
    const weft_launch_request *q = o->request;
    const weft_launch_sizes   *x = o->sizes;
    if (q && q->file) weft_text_add(t, "the job file is %s\n", q->file);
    for (int i = 0; q && i < q->n_assign; i++)
        weft_text_add(t, "word %d is %s\n", i + 1, q->assign[i]);
    for (int i = 0; o->program && o->program[i]; i++)
        weft_text_add(t, "word %d of the program is %s\n", i + 1, o->program[i]);
    if (!x) return;
    const int64_t     of[]   = {x->min_dp, x->max_dp, x->tp,    x->cp,
                                x->ep,     x->pp,     x->batch, x->micro_batch};
    const char *const name[] = {"the least dp", "dp", "tp",    "cp",
                                "ep",           "pp", "batch", "micro_batch"};
    for (size_t i = 0; i < WEFT_COUNT(of); i++)
        weft_text_add(t, "%s is %lld\n", name[i], (long long)of[i]);
}

/* Which job it is: that of the same keys, else of the same file and words.  lines: all that fit. */
static weft_status name_job(const weft_launch_options *o, char *name,
                            char lines[WEFT_CONTROL_KEYS])
{
    weft_text t = {0};
    if (o->keys)
        weft_text_add(&t, "%s", o->keys);
    else
        put_words(o, &t);
    weft_status     st = weft_text_status(&t);
    weft_hash_state s;
    weft_hash_init(&s, 1);
    if (st == WEFT_OK && t.n) weft_hash_add(&s, t.s, t.n);
    snprintf(name, 32, "%016llx", (unsigned long long)weft_hash_value(&s));
    size_t n = t.n < WEFT_CONTROL_KEYS - 1 ? t.n : WEFT_CONTROL_KEYS - 1;
    if (n) memcpy(lines, t.s, n);
    lines[n] = 0;
    weft_text_fini(&t);
    return st;
}

/* ---- the register ---- */

static weft_status open_register(weft_launch__run *l)
{
    char                  job[32] = "", keys[WEFT_CONTROL_KEYS];
    weft_register_options o       = {.job = l->o->output};
    if (!weft_launch_is_register(l->o->rdzv)) return WEFT_OK;
    if (l->o->request) WEFT_TRY(name_job(l->o, job, keys));
    if (!o.job || !*o.job || strlen(o.job) > 255) o.job = job;
    return weft_register_open(l->o->rdzv, &o, &l->hosts->store);
}

/* One descriptor for the register and for connections. */
static weft_status open_epoll(weft_launch__hosts *h)
{
    struct epoll_event e = {.events = EPOLLIN};
    if (!h->store) return WEFT_OK;
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0 ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, weft_control_fd(h->control), &e) ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, weft_register_fd(h->store), &e))
        return WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno));
    return WEFT_OK;
}

/* The host of an etcd that is asked first, by which this host's address is found. */
static void find_endpoint(const char *rdzv, char *out, size_t n)
{
    const char *at   = strstr(rdzv, "://") + 3;
    size_t      used = strcspn(at, ",/");
    bool        port =
        memchr(at, ']', used) ? at[used - 1] != ']' : memchr(at, ':', used) != NULL;
    snprintf(out, n, "%.*s%s", (int)used, at, port ? "" : ":2379");
}

/* The way to the first address that there is one to. */
static weft_status listen_near_any(weft_launch__hosts *h)
{
    weft_status st = WEFT_ERR_ARG;
    for (int k = 0; k < h->search.n_listed && st != WEFT_OK; k++)
        st = weft_comm_rdzv_listen_near(h->search.listed[k], &h->rdzv_fd, h->self.data,
                                        sizeof h->self.data);
    return st;
}

static weft_status listen_for_ranks(weft_launch__run *l)
{
    weft_launch__hosts *h  = l->hosts;
    char               *at = h->self.data, peer[300];
    size_t              n  = sizeof h->self.data;
    if (l->o->local_addr) {
        weft_status st = weft_comm_rdzv_listen_own(l->o->local_addr, &h->rdzv_fd, at, n);
        return st == WEFT_OK ? st : weft_fail_in(st, "--local-addr: ");
    }
    if (h->search.n_listed) return listen_near_any(h);
    if (!strncmp(l->o->rdzv, "file:", 5))
        return weft_comm_rdzv_listen_own(NULL, &h->rdzv_fd, at, n);
    find_endpoint(l->o->rdzv, peer, sizeof peer);
    return weft_comm_rdzv_listen_near(peer, &h->rdzv_fd, at, n);
}

/* ---- control connections ---- */

/* At the first address of --rdzv that is this host's and free.  Of a fixed number of hosts node 0
 * is at the first address, and no other is. */
static weft_status listen_listed(weft_launch__run *l, weft_control_options *o)
{
    weft_launch__hosts *h    = l->hosts;
    weft_status         st   = WEFT_ERR_ARG;
    int                 most = l->o->node ? h->search.n_listed : 1;
    for (int k = l->o->node > 0; k < most && st != WEFT_OK; k++) {
        o->listen = h->search.listed[k];
        st        = weft_control_open(o, &h->control);
        if (st != WEFT_OK) continue;
        h->search.begins = k == 0;
        snprintf(h->self.control, sizeof h->self.control, "%s", o->listen);
    }
    return st;
}

/* This agent listens at an address of --rdzv, and the job may begin here; or at one of its own, and
 * it joins, or asks the register.  at: of this host, with a port of its own. */
static weft_status open_control(weft_launch__run *l, const char *at)
{
    weft_launch__hosts  *h     = l->hosts;
    bool                 own   = weft_launch_is_register(l->o->rdzv);
    weft_comm_token      token = {0}, reader = {0};
    weft_control_options o = {.self = {.invariant = l->o->invariant}};
    char                 free_port[WEFT_MEMBER_NAME];
    weft_status          st = WEFT_ERR_ARG;
    snprintf(free_port, sizeof free_port, "%.*s:0", (int)(strrchr(at, ':') - at), at);
    snprintf(o.self.host, sizeof o.self.host, "%s", h->self.name);
    snprintf(o.self.build, sizeof o.self.build, "%s",
             l->o->build ? l->o->build : WEFT_VERSION);
    snprintf(o.self.kernels, sizeof o.self.kernels, "%s", weft_kernel_set_id("cpu"));
    if (l->o->request || l->o->program) WEFT_TRY(name_job(l->o, o.self.job, o.self.keys));
    WEFT_TRY(weft_launch__find_proofs(l->o, &token, &reader, &o));
    if (!own && !l->o->unused_of) /* else it begins no job there */
        st = listen_listed(l, &o);
    if (st != WEFT_OK && (own || l->o->node)) {
        o.listen = free_port;
        st       = weft_control_open(&o, &h->control);
    }
    weft_comm_token_wipe(&token);
    weft_comm_token_wipe(&reader);
    if (st != WEFT_OK) return st;
    if (!*h->self.control)
        snprintf(h->self.control, sizeof h->self.control, "%.*s:%d",
                 (int)(strrchr(at, ':') - at), at, weft_control_port(h->control));
    return WEFT_OK;
}

/* ---- the whole ---- */

static weft_status start_agreement(weft_launch__run *l)
{
    weft_launch__hosts *h       = l->hosts;
    weft_hosts_options  o       = {.self              = h->self,
                                   .shared            = h->store,
                                   .min_host          = l->o->min_node,
                                   .max_host          = l->o->n_node,
                                   .failure_timeout_s = l->o->failure_timeout_s,
                                   .wait_s            = l->o->timeout_s,
                                   .first_epoch       = weft_launch__search_epoch(l),
                                   .unused_of         = l->o->unused_of};
    unsigned            allowed = WEFT_LEVEL_ALL;
    if (l->o->levels) WEFT_TRY(weft_levels_parse(l->o->levels, &allowed));
    o.restarts    = l->restart != NULL;
    o.keeps_count = !(allowed & 1u << WEFT_LEVEL_SHRINK);
    o.never_waits = !(allowed & 1u << WEFT_LEVEL_WAIT);
    if (!l->restart) o.prepare_s = weft_launch__prepare_limit_s(l);
    o.leave_s = o.prepare_s;
    if (l->o->stop_s > 0 && l->o->stop_s * LEAVE_SHARE < o.leave_s)
        o.leave_s = l->o->stop_s * LEAVE_SHARE;
    if (o.max_host < 1) o.max_host = 1;
    if (o.min_host < 1) o.min_host = o.max_host;
    if (o.failure_timeout_s <= 0) o.failure_timeout_s = WEFT_LAUNCH_FAILURE_TIMEOUT_S;
    WEFT_TRY(weft_hosts_create(&o, &h->agreement));
    weft_launch__search_begin(l);
    return WEFT_OK;
}

weft_status weft_launch__hosts_open(weft_launch__run *l)
{
    weft_launch__hosts *h = calloc(1, sizeof *h);
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->hosts   = h;
    h->rdzv_fd = h->epoll = -1;
    h->step               = -1;
    h->was                = calloc(1, sizeof *h->was);
    if (!h->was) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_launch_host_name(h->self.name, sizeof h->self.name);
    h->self.n_rank = l->n;
    WEFT_TRY(weft_comm_random(&h->self.id, sizeof h->self.id));
    h->self.id |= 1;
    weft_launch__search_open(l);
    WEFT_TRY(open_register(l));
    WEFT_TRY(listen_for_ranks(l));
    if (l->o->program) { /* its rank 0 listens there itself */
        close(h->rdzv_fd);
        h->rdzv_fd = -1;
    }
    WEFT_TRY(open_control(l, h->self.data));
    WEFT_TRY(open_epoll(h));
    return start_agreement(l);
}

/* The first host's: all ranks have done their work, or have saved and ended. */
static void write_end(const weft_launch__run *l)
{
    const weft_launch__hosts *h       = l->hosts;
    const weft_member_view   *v       = weft_hosts_view(h->agreement);
    double                    limit_s = weft_clock_s() + END_S;
    uint8_t                   bytes[512];
    weft_register_outcome     o;
    size_t n = weft_member_view_encode_end(v, h->self.id, bytes, sizeof bytes);
    while (weft_register_next(h->store, &o)) continue; /* of calls before it */
    if (weft_register_propose(h->store, v->epoch + 1, bytes, n) != WEFT_OK) return;
    struct pollfd p = {.fd = weft_register_fd(h->store), .events = POLLIN};
    for (bool done = false; !done && weft_clock_s() < limit_s;) {
        (void)poll(&p, 1, 100);
        while (weft_register_next(h->store, &o)) done = done || o.epoch == v->epoch + 1;
    }
}

void weft_launch__hosts_close(weft_launch__run *l)
{
    weft_launch__hosts *h = l->hosts;
    if (!h) return;
    if (h->store && h->agreement && h->was->epoch && !h->over && !l->first && h->ended &&
        weft_hosts_view(h->agreement)->epoch == h->was->epoch)
        write_end(l);
    weft_hosts_destroy(h->agreement);
    weft_register_close(h->store);
    weft_control_close(h->control);
    weft_comm_key_wipe(&h->key.key);
    weft_launch__prepare_close(h);
    free(h->asking.view);
    if (h->epoll >= 0) close(h->epoll);
    if (h->rdzv_fd >= 0) close(h->rdzv_fd);
    free(h->was);
    free(h);
    l->hosts = NULL;
}
