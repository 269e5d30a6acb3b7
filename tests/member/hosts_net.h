/* Agents of several hosts in one process: messages arrive at once unless a link is cut. */
#ifndef WEFT_TEST_HOSTS_NET_H
#define WEFT_TEST_HOSTS_NET_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member/hosts.h"

enum {
    MAX_AGENT = 64
};

#define TICK_S 0.1

typedef struct case_agent {
    weft_hosts *h;
    uint64_t    id;
    bool        alive;
    bool        ended, saving, interrupts, saves, together;
    bool        prepares, never; /* its ranks; never: they do not end with it */
    weft_hosts_action_kind how;
    char                   why[200];
    int64_t                arrived, passed; /* what its ranks report */
} case_agent;

typedef struct case_event {
    int              to;
    weft_hosts_event e;
} case_event;

/* What agents of a job have in common. */
typedef struct case_rules {
    weft_register *shared;
    int            min_host;
    bool           keeps_count, never_waits;
    double         prepare_s; /* 0: hosts join unprepared */
    double         leave_s;   /* 0: they leave so */
} case_rules;

typedef struct case_net {
    int            n;
    double         now_s;
    case_agent     agent[MAX_AGENT];
    bool           cut[MAX_AGENT][MAX_AGENT]; /* from, to */
    bool           is_slow;                   /* joiners are not ready */
    bool           knows_register;            /* agents are told of nothing else */
    weft_register *shared;
    int            min_host, max_host;
    bool           keeps_count, never_waits;
    double         prepare_s; /* 0: hosts join unprepared */
    double         leave_s;   /* 0: they leave so */
    char           warning[200];
    int            n_posted, cap;
    case_event    *posted;
} case_net;

/* Told later, in order. */
static inline void post_event(case_net *net, int to, weft_hosts_event e)
{
    if (net->n_posted == net->cap) {
        net->cap    = net->cap ? 2 * net->cap : 256;
        net->posted = realloc(net->posted, sizeof *net->posted * (size_t)net->cap);
        assert_non_null(net->posted);
    }
    if (e.n) {
        void *copy = malloc(e.n);
        memcpy(copy, e.bytes, e.n);
        e.bytes = copy;
    }
    net->posted[net->n_posted++] = (case_event){.to = to, .e = e};
}

static inline void take_action(case_net *net, int k, const weft_hosts_action *a)
{
    case_agent *self = &net->agent[k];
    int         to   = (int)a->id - 1;
    switch (a->kind) {
    case WEFT_HOSTS_SEND:
        assert_true(to >= 0 && to < net->n);
        if (!net->cut[k][to])
            post_event(net, to,
                       (weft_hosts_event){.kind  = WEFT_HOSTS_MESSAGE,
                                          .id    = self->id,
                                          .bytes = a->bytes,
                                          .n     = a->n});
        break;
    case WEFT_HOSTS_STOP_RANKS:
        post_event(net, k,
                   (weft_hosts_event){.kind    = WEFT_HOSTS_STOPPED,
                                      .epoch   = a->epoch,
                                      .arrived = self->arrived,
                                      .passed  = self->passed,
                                      .n_rank  = 2});
        break;
    case WEFT_HOSTS_VIEW:
        if (net->is_slow) break;
        post_event(net, k,
                   (weft_hosts_event){.kind = WEFT_HOSTS_READY, .epoch = a->epoch});
        post_event(net, k, (weft_hosts_event){.kind = WEFT_HOSTS_STEP, .passed = 1});
        break;
    case WEFT_HOSTS_WARN:
        snprintf(net->warning, sizeof net->warning, "%s", a->why);
        break;
    case WEFT_HOSTS_PREPARE:
        self->prepares = true;
        if (self->never) break;
        post_event(net, k,
                   (weft_hosts_event){.kind  = WEFT_HOSTS_PREPARED,
                                      .epoch = weft_hosts_expected(self->h)->epoch});
        break;
    case WEFT_HOSTS_SAVE:
        self->saving     = true;
        self->interrupts = a->interrupts;
        break;
    default:
        self->ended    = true;
        self->alive    = false;
        self->how      = a->kind;
        self->saves    = a->saves;
        self->together = a->together;
        break;
    }
    if (a->kind >= WEFT_HOSTS_WARN) snprintf(self->why, sizeof self->why, "%s", a->why);
}

static inline void tell_one(case_net *net, int k, const weft_hosts_event *e)
{
    weft_hosts_action a;
    if (!net->agent[k].alive) return;
    weft_hosts_tell(net->agent[k].h, e);
    while (weft_hosts_next(net->agent[k].h, &a)) take_action(net, k, &a);
}

/* An event, and all that follows from it. */
static inline void tell(case_net *net, int k, weft_hosts_event e)
{
    tell_one(net, k, &e);
    for (int i = 0; i < net->n_posted; i++) {
        case_event p = net->posted[i];
        tell_one(net, p.to, &p.e);
        if (p.e.n) free((void *)(uintptr_t)p.e.bytes);
    }
    net->n_posted = 0;
}

static inline void pass_time(case_net *net, double s)
{
    for (double end_s = net->now_s + s; net->now_s < end_s;) {
        net->now_s += TICK_S;
        for (int k = 0; k < net->n; k++)
            tell(net, k,
                 (weft_hosts_event){.kind = WEFT_HOSTS_TICK, .now_s = net->now_s});
    }
}

static inline void add_agent(case_net *net)
{
    case_agent        *a = &net->agent[net->n++];
    weft_hosts_options o = {.self              = {.id = (uint64_t)net->n, .n_rank = 2},
                            .shared            = net->shared,
                            .min_host          = net->min_host,
                            .max_host          = net->max_host,
                            .keeps_count       = net->keeps_count,
                            .never_waits       = net->never_waits,
                            .failure_timeout_s = 2,
                            .prepare_s         = net->prepare_s,
                            .leave_s           = net->leave_s,
                            .wait_s            = 10};
    snprintf(o.self.name, sizeof o.self.name, "h%d", net->n);
    *a = (case_agent){.id = (uint64_t)net->n, .alive = true};
    assert_int_equal(weft_hosts_create(&o, &a->h), WEFT_OK);
    if (net->n > 1 && !net->knows_register)
        tell(net, net->n - 1, (weft_hosts_event){.kind = WEFT_HOSTS_CONTACT, .id = 1});
}

/* A job of n hosts, all in one view, with these options of theirs. */
static inline case_net *start_net_with(int n, const case_rules *o)
{
    case_net *net    = calloc(1, sizeof *net);
    net->shared      = o->shared;
    net->min_host    = o->min_host;
    net->max_host    = n > 4 ? n : 4;
    net->keeps_count = o->keeps_count;
    net->never_waits = o->never_waits;
    net->prepare_s   = o->prepare_s;
    net->leave_s     = o->leave_s;
    for (int k = 0; k < n; k++) add_agent(net);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = 1});
    for (int k = 0; k < 50 && weft_hosts_view(net->agent[0].h)->n_host < n; k++)
        pass_time(net, TICK_S);
    pass_time(net, 0.5);
    for (int k = 0; k < n; k++) {
        assert_true(weft_hosts_is_member(net->agent[k].h));
        assert_int_equal(weft_hosts_view(net->agent[k].h)->n_host, n);
    }
    assert_true(weft_hosts_is_ready(net->agent[0].h));
    return net;
}

static inline case_net *start_net(int n, int min_host, weft_register *shared)
{
    return start_net_with(n, &(case_rules){.shared = shared, .min_host = min_host});
}

static inline void end_net(case_net *net)
{
    for (int k = 0; k < net->n; k++) weft_hosts_destroy(net->agent[k].h);
    free(net->posted);
    free(net);
}

static inline void cut_off(case_net *net, int k)
{
    for (int i = 0; i < net->n; i++) net->cut[k][i] = net->cut[i][k] = true;
}

/* Its process ends, and the kernel of its host says so. */
static inline void kill_agent(case_net *net, int k)
{
    net->agent[k].alive = false;
    for (int i = 0; i < net->n; i++)
        tell(net, i, (weft_hosts_event){.kind = WEFT_HOSTS_GONE, .id = net->agent[k].id});
}

static inline void expect_view(const case_net *net, int k, uint32_t epoch, int n_host)
{
    const weft_member_view *v = weft_hosts_view(net->agent[k].h);
    assert_true(net->agent[k].alive && weft_hosts_is_member(net->agent[k].h));
    assert_int_equal(v->epoch, epoch);
    assert_int_equal(v->n_host, n_host);
}

static inline void expect_end(const case_net *net, int k, weft_hosts_action_kind how,
                              const char *why)
{
    assert_true(net->agent[k].ended);
    assert_int_equal(net->agent[k].how, how);
    assert_null(strchr(net->agent[k].why, '\n'));
    if (!strstr(net->agent[k].why, why))
        fail_msg("%s\nexpected: %s", net->agent[k].why, why);
}

static inline uint32_t epoch_of(const case_net *net)
{
    return weft_hosts_view(net->agent[0].h)->epoch;
}

/* Ticks until agent k is in a view of n hosts. */
static inline double wait_for(case_net *net, int k, int n_host)
{
    double from_s = net->now_s;
    while (weft_hosts_view(net->agent[k].h)->n_host != n_host) {
        pass_time(net, TICK_S);
        assert_true(net->now_s - from_s < 30);
    }
    return net->now_s - from_s;
}

#endif
