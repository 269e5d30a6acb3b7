/* Agents of several hosts, one case at a time: messages arrive at once unless a link is cut. */
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
    weft_hosts            *h;
    uint64_t               id;
    bool                   alive;
    bool                   ended, saving, interrupts, saves;
    weft_hosts_action_kind how;
    char                   why[200];
    int64_t                arrived, passed; /* what its ranks report */
} case_agent;

typedef struct case_event {
    int              to;
    weft_hosts_event e;
} case_event;

typedef struct case_net {
    int            n;
    double         now_s;
    case_agent     agent[MAX_AGENT];
    bool           cut[MAX_AGENT][MAX_AGENT]; /* from, to */
    bool           is_slow;                   /* joiners are not ready */
    bool           knows_register;            /* agents are told of nothing else */
    weft_register *shared;
    int            min_host, max_host;
    int            n_posted, cap;
    case_event    *posted;
} case_net;

/* Told later, in order. */
static void post_event(case_net *net, int to, weft_hosts_event e)
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

static void take_action(case_net *net, int k, const weft_hosts_action *a)
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
    case WEFT_HOSTS_WARN: break;
    case WEFT_HOSTS_SAVE:
        self->saving     = true;
        self->interrupts = a->interrupts;
        break;
    default:
        self->ended = true;
        self->alive = false;
        self->how   = a->kind;
        self->saves = a->saves;
        break;
    }
    if (a->kind >= WEFT_HOSTS_WARN) snprintf(self->why, sizeof self->why, "%s", a->why);
}

static void tell_one(case_net *net, int k, const weft_hosts_event *e)
{
    weft_hosts_action a;
    if (!net->agent[k].alive) return;
    weft_hosts_tell(net->agent[k].h, e);
    while (weft_hosts_next(net->agent[k].h, &a)) take_action(net, k, &a);
}

/* An event, and all that follows from it. */
static void tell(case_net *net, int k, weft_hosts_event e)
{
    tell_one(net, k, &e);
    for (int i = 0; i < net->n_posted; i++) {
        case_event p = net->posted[i];
        tell_one(net, p.to, &p.e);
        if (p.e.n) free((void *)(uintptr_t)p.e.bytes);
    }
    net->n_posted = 0;
}

static void pass_time(case_net *net, double s)
{
    for (double end_s = net->now_s + s; net->now_s < end_s;) {
        net->now_s += TICK_S;
        for (int k = 0; k < net->n; k++)
            tell(net, k,
                 (weft_hosts_event){.kind = WEFT_HOSTS_TICK, .now_s = net->now_s});
    }
}

static void add_agent(case_net *net)
{
    case_agent        *a = &net->agent[net->n++];
    weft_hosts_options o = {.self              = {.id = (uint64_t)net->n, .n_rank = 2},
                            .shared            = net->shared,
                            .min_host          = net->min_host,
                            .max_host          = net->max_host,
                            .failure_timeout_s = 2,
                            .wait_s            = 10};
    snprintf(o.self.name, sizeof o.self.name, "h%d", net->n);
    *a = (case_agent){.id = (uint64_t)net->n, .alive = true};
    assert_int_equal(weft_hosts_create(&o, &a->h), WEFT_OK);
    if (net->n > 1 && !net->knows_register)
        tell(net, net->n - 1, (weft_hosts_event){.kind = WEFT_HOSTS_CONTACT, .id = 1});
}

/* A job of n hosts, all in one view. */
static case_net *start_net(int n, int min_host, weft_register *shared)
{
    case_net *net = calloc(1, sizeof *net);
    net->shared   = shared;
    net->min_host = min_host;
    net->max_host = n > 4 ? n : 4;
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

static void end_net(case_net *net)
{
    for (int k = 0; k < net->n; k++) weft_hosts_destroy(net->agent[k].h);
    free(net->posted);
    free(net);
}

static void cut_off(case_net *net, int k)
{
    for (int i = 0; i < net->n; i++) net->cut[k][i] = net->cut[i][k] = true;
}

/* Its process ends, and the kernel of its host says so. */
static void kill_agent(case_net *net, int k)
{
    net->agent[k].alive = false;
    for (int i = 0; i < net->n; i++)
        tell(net, i, (weft_hosts_event){.kind = WEFT_HOSTS_GONE, .id = net->agent[k].id});
}

static void expect_view(const case_net *net, int k, uint32_t epoch, int n_host)
{
    const weft_member_view *v = weft_hosts_view(net->agent[k].h);
    assert_true(net->agent[k].alive && weft_hosts_is_member(net->agent[k].h));
    assert_int_equal(v->epoch, epoch);
    assert_int_equal(v->n_host, n_host);
}

static void expect_end(const case_net *net, int k, weft_hosts_action_kind how,
                       const char *why)
{
    assert_true(net->agent[k].ended);
    assert_int_equal(net->agent[k].how, how);
    assert_null(strchr(net->agent[k].why, '\n'));
    if (!strstr(net->agent[k].why, why))
        fail_msg("%s\nexpected: %s", net->agent[k].why, why);
}

static uint32_t epoch_of(const case_net *net)
{
    return weft_hosts_view(net->agent[0].h)->epoch;
}

/* ---- two hosts ---- */

static void of_two_hosts_the_first_goes_on(void **state)
{
    (void)state;
    case_net *net   = start_net(2, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    cut_off(net, 1);
    pass_time(net, 1.8);
    expect_view(net, 0, epoch,
                2); /* a link that is back within the timeout is no failure */
    pass_time(net, 0.8);
    expect_view(net, 0, epoch + 1, 1);
    pass_time(net, 5);
    expect_end(net, 1, WEFT_HOSTS_ALONE,
               "1 of 2 hosts can be reached, which is no majority");
    end_net(net);
    net = start_net(2, 1, NULL);
    kill_agent(net, 0);
    pass_time(net, 5);
    expect_end(net, 1, WEFT_HOSTS_ALONE, "no majority: file: or etcd:// lets them go on");
    assert_true(net->agent[1].saves); /* its ranks have stopped, and hold the state */
    end_net(net);
}

static void a_shared_register_lets_either_go_on(void **state)
{
    (void)state;
    weft_register *r;
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    case_net *net   = start_net(2, 1, r);
    uint32_t  epoch = epoch_of(net);
    cut_off(net, 1); /* both reach the register: the first is faster */
    pass_time(net, 8);
    expect_view(net, 0, epoch + 1, 1);
    expect_end(net, 1, WEFT_HOSTS_FENCED, "decided without this host (host h2 was lost)");
    end_net(net);
    weft_register_close(r);
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    net   = start_net(2, 1, r);
    epoch = epoch_of(net);
    kill_agent(net, 0);
    pass_time(net, 2.5);
    expect_view(net, 1, epoch, 2); /* it waits: the other side may be larger */
    pass_time(net, 1);
    expect_view(net, 1, epoch + 1, 1);
    end_net(net);
    weft_register_close(r);
}

/* ---- detection ---- */

/* Ticks until agent k is in a view of n hosts. */
static double wait_for(case_net *net, int k, int n_host)
{
    double from_s = net->now_s;
    while (weft_hosts_view(net->agent[k].h)->n_host != n_host) {
        pass_time(net, TICK_S);
        assert_true(net->now_s - from_s < 30);
    }
    return net->now_s - from_s;
}

static void a_second_agent_confirms(void **state)
{
    (void)state;
    case_net *net = start_net(3, 1, NULL);
    cut_off(net, 2);
    double s =
        wait_for(net, 0, 2); /* 0.8 of 2 s: the second agent has not heard of it either */
    assert_true(s > 1.5 && s < 2);
    end_net(net);
    net            = start_net(3, 1, NULL);
    net->cut[2][0] = true; /* the second agent hears it */
    s              = wait_for(net, 0, 2);
    assert_true(s > 1.9 && s < 2.5);
    expect_end(net, 2, WEFT_HOSTS_FENCED, "host h3 was lost");
    end_net(net);
    net = start_net(3, 1, NULL);
    kill_agent(net, 1);
    assert_true(wait_for(net, 0, 2) < 0.3); /* announced: at once */
    end_net(net);
}

static void two_that_do_not_hear_each_other(void **state)
{
    (void)state;
    case_net *net  = start_net(4, 1, NULL);
    net->cut[1][2] = net->cut[2][1] = true;
    wait_for(net, 0, 3);
    expect_end(net, 2, WEFT_HOSTS_FENCED, "");
    assert_true(net->agent[1].alive && net->agent[3].alive);
    end_net(net);
}

static void a_late_observer_marks_no_host(void **state)
{
    (void)state;
    case_net *net   = start_net(3, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    for (int k = 0; k < 20; k++) { /* its clock jumps, or it did not run for 9 s */
        tell(net, 1,
             (weft_hosts_event){.kind = WEFT_HOSTS_TICK, .now_s = net->now_s + 9});
        tell(net, 1,
             (weft_hosts_event){.kind = WEFT_HOSTS_TICK, .now_s = net->now_s - 9});
        pass_time(net, TICK_S);
    }
    pass_time(net, 3);
    for (int k = 0; k < 3; k++) expect_view(net, k, epoch, 3);
    end_net(net);
}

/* ---- joining and leaving ---- */

static void hosts_join_and_leave(void **state)
{
    (void)state;
    case_net *net   = start_net(2, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    add_agent(net);
    pass_time(net, 1);
    for (int k = 0; k < 3; k++) expect_view(net, k, epoch + 1, 3);
    tell(net, 0,
         (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = 2}); /* weft drain h2 */
    pass_time(net, 1);
    expect_end(net, 1, WEFT_HOSTS_LEFT, "");
    expect_view(net, 0, epoch + 2, 2);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_TERM}); /* the leader itself */
    pass_time(net, 1.5);
    expect_view(net, 2, epoch + 2, 2);
    pass_time(net, 1.5);
    expect_end(net, 0, WEFT_HOSTS_LEFT, "");
    expect_view(net, 2, epoch + 3, 1);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_TERM}); /* the last one */
    pass_time(net, 0.5);
    assert_true(net->agent[2].saving);
    end_net(net);
}

static void signals_to_two_hosts_end_the_job(void **state)
{
    (void)state;
    case_net *net = start_net(4, 1, NULL);
    tell(net, 1, (weft_hosts_event){.kind = WEFT_HOSTS_TERM});
    pass_time(net, 1);
    tell(net, 3, (weft_hosts_event){.kind = WEFT_HOSTS_TERM});
    pass_time(net, 1);
    for (int k = 0; k < 4; k++) assert_true(net->agent[k].alive && net->agent[k].saving);
    end_net(net);
}

/* SIGINT at one host: all know that it was one; then each that its peers are done. */
static void an_interrupt_ends_the_job(void **state)
{
    (void)state;
    case_net *net = start_net(3, 1, NULL);
    tell(net, 1, (weft_hosts_event){.kind = WEFT_HOSTS_SAVE_ALL, .interrupts = true});
    pass_time(net, 1);
    for (int k = 0; k < 3; k++) {
        assert_true(net->agent[k].saving && net->agent[k].interrupts);
        assert_false(weft_hosts_are_done(net->agent[k].h));
    }
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
    tell(net, 1, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
    pass_time(net, 0.5);
    assert_true(weft_hosts_are_done(net->agent[2].h));
    assert_false(weft_hosts_are_done(net->agent[0].h));
    kill_agent(net, 2);
    pass_time(net, 0.5);
    assert_true(weft_hosts_are_done(net->agent[0].h));
    end_net(net);
}

static void failed_growth_is_the_old_view(void **state)
{
    (void)state;
    case_net *net   = start_net(2, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    net->is_slow    = true;
    add_agent(net);
    pass_time(net, 1);
    expect_view(net, 0, epoch + 1, 3);
    kill_agent(net, 2); /* before all are ready */
    pass_time(net, 1);
    for (int k = 0; k < 2; k++) expect_view(net, k, epoch + 2, 2);
    end_net(net);
}

static void a_waiting_host_takes_the_place_of_a_lost_one(void **state)
{
    (void)state;
    case_net *net   = start_net(4, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    add_agent(net);
    pass_time(net, 15);
    for (int k = 0; k < 4; k++)
        expect_view(net, k, epoch, 4); /* as many as there may be */
    assert_true(net->agent[4].alive && !weft_hosts_is_member(net->agent[4].h));
    kill_agent(net, 1);
    pass_time(net, 1);
    expect_view(net, 4, epoch + 1, 4);
    end_net(net);
}

static void fewer_than_min_wait_and_save(void **state)
{
    (void)state;
    case_net *net = start_net(3, 3, NULL);
    kill_agent(net, 2);
    pass_time(net, 8);
    assert_false(weft_hosts_is_enough(net->agent[0].h) || net->agent[0].saving);
    pass_time(net, 4);
    for (int k = 0; k < 2; k++) {
        assert_true(net->agent[k].saving);
        assert_non_null(strstr(net->agent[k].why, "2 of at least 3 hosts"));
    }
    end_net(net);
}

/* ---- the first step ---- */

static int64_t step_after(const int64_t (*at)[2])
{
    case_net *net = start_net(3, 1, NULL);
    for (int k = 0; k < 3; k++) {
        net->agent[k].arrived = at[k][0];
        net->agent[k].passed  = at[k][1];
    }
    kill_agent(net, 2);
    pass_time(net, 1);
    int64_t step = weft_hosts_view(net->agent[0].h)->first_step;
    end_net(net);
    return step;
}

static void the_rule_of_commit(void **state)
{
    (void)state;
    /* one has passed 7, so 7 is committed, and the lost one cannot have passed 8 */
    assert_int_equal(step_after((int64_t[3][2]){{7, 6}, {7, 7}, {7, 7}}), 8);
    /* all that are left have arrived at 7: the lost one may have passed it */
    assert_int_equal(step_after((int64_t[3][2]){{7, 6}, {7, 6}, {7, 7}}), 8);
    /* one has not arrived at 7: it runs again */
    assert_int_equal(step_after((int64_t[3][2]){{6, 6}, {7, 6}, {7, 6}}), 7);
    /* the ranks of one have left nothing (a crash): as if it was lost */
    assert_int_equal(step_after((int64_t[3][2]){{7, 6}, {-1, -1}, {7, 6}}), 8);
    assert_int_equal(step_after((int64_t[3][2]){{6, 6}, {-1, -1}, {7, 6}}), 7);
    /* no step has been run yet */
    assert_int_equal(step_after((int64_t[3][2]){{-1, -1}, {-1, -1}, {-1, -1}}), 1);
}

/* Ranks are lost before the first step, or have crashed: their host is in the next view. */
static void hosts_whose_ranks_left_nothing(void **state)
{
    (void)state;
    case_net *net = start_net(3, 1, NULL);
    for (int k = 0; k < 3; k++) net->agent[k].arrived = net->agent[k].passed = -1;
    kill_agent(net, 2);
    pass_time(net, 1);
    assert_int_equal(weft_hosts_view(net->agent[0].h)->n_host, 2);
    end_net(net);
}

/* ---- bad input, and many hosts ---- */

static void a_register_with_something_else(void **state)
{
    (void)state;
    weft_register        *r;
    weft_register_outcome o;
    case_net             *net = calloc(1, sizeof *net);
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    assert_int_equal(weft_register_propose(r, 1, "hello", 5), WEFT_OK);
    assert_true(weft_register_next(r, &o));
    net->shared   = r;
    net->min_host = net->max_host = 1;
    add_agent(net);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = 1});
    expect_end(net, 0, WEFT_HOSTS_ALONE,
               "something else than views for epoch 1: give another");
    end_net(net);
    weft_register_close(r);
}

/* Three agents that know nothing but the register: each joins the job. */
static case_net *start_by_register(weft_register *r)
{
    case_net *net       = calloc(1, sizeof *net);
    net->shared         = r;
    net->min_host       = 2;
    net->max_host       = 4;
    net->knows_register = true;
    for (int k = 0; k < 3; k++) {
        add_agent(net);
        tell(net, k, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
        pass_time(net, 1.5);
    }
    for (int k = 0; k < 3; k++) expect_view(net, k, 3, 3);
    return net;
}

/* A run whose hosts are gone is taken over by the next epoch, after the failure timeout; hosts of
 * it that wake up find that out by themselves. */
static void a_dead_run_is_taken_over(void **state)
{
    (void)state;
    weft_register *r;
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    case_net *net = start_by_register(r);
    for (int k = 0; k < 3; k++) net->agent[k].alive = false;
    net->min_host = 1;
    add_agent(net);
    tell(net, 3, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
    pass_time(net, 1.8);
    assert_false(weft_hosts_is_member(net->agent[3].h));
    pass_time(net, 0.5);
    expect_view(net, 3, 4, 1);
    assert_true(weft_hosts_view(net->agent[3].h)->restarts);
    assert_non_null(strstr(net->agent[3].why, "this host takes the job over"));
    for (int k = 0; k < 3; k++) net->agent[k].alive = true; /* they were stopped */
    cut_off(net, 3);
    pass_time(net, 1);
    for (int k = 0; k < 3; k++)
        expect_end(net, k, WEFT_HOSTS_FENCED,
                   "view 4 has been decided without this host (host h4 takes");
    expect_view(net, 3, 4, 1);
    end_net(net);
    weft_register_close(r);
}

/* A host that hears none of the others, which leave beats in the register, takes nothing over. */
static void a_run_behind_a_firewall_is_left_alone(void **state)
{
    (void)state;
    weft_register *r;
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    case_net *net = start_by_register(r);
    add_agent(net);
    cut_off(net, 3);
    tell(net, 3, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
    pass_time(net, 11);
    expect_end(net, 3, WEFT_HOSTS_ALONE, "the hosts of view 3 run, by the register, but");
    for (int k = 0; k < 3; k++) expect_view(net, k, 3, 3);
    end_net(net);
    weft_register_close(r);
}

static void leave_end(weft_register *r, uint32_t epoch)
{
    uint8_t               bytes[256];
    weft_register_outcome o;
    weft_member_view     *v = calloc(1, sizeof *v);
    *v                      = (weft_member_view){.epoch = epoch, .proposer = 1};
    size_t n                = weft_member_view_encode(v, bytes, sizeof bytes);
    assert_int_equal(weft_register_propose(r, epoch, bytes, n), WEFT_OK);
    assert_true(weft_register_next(r, &o));
    free(v);
}

/* A run that has ended in order: the next one begins at once; who waits to join it ends. */
static void an_ended_run_is_followed_at_once(void **state)
{
    (void)state;
    weft_register *r;
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    case_net *net = start_by_register(r);
    for (int k = 0; k < 3; k++) net->agent[k].alive = false;
    add_agent(net);
    tell(net, 3, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
    pass_time(net, 0.5);
    leave_end(r, 4);
    net->min_host = 1;
    add_agent(net);
    tell(net, 4, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
    pass_time(net, 0.2);
    expect_view(net, 4, 5, 1);
    assert_non_null(strstr(weft_hosts_view(net->agent[4].h)->reason, "host h5 begins"));
    net->agent[4].alive = false;
    leave_end(r, 6);
    pass_time(net, 2);
    expect_end(net, 3, WEFT_HOSTS_LEFT, "the job has ended");
    end_net(net);
    weft_register_close(r);
}

static void an_agent_that_finds_no_job(void **state)
{
    (void)state;
    case_net *net = calloc(1, sizeof *net);
    net->min_host = net->max_host = 2;
    net->n                        = 1; /* agent 1 is not there */
    add_agent(net);
    pass_time(net, 11);
    expect_end(net, 1, WEFT_HOSTS_ALONE, "no host of the job has answered for 10 s");
    end_net(net);
}

static void sixty_four_hosts(void **state)
{
    (void)state;
    case_net *net   = start_net(MAX_AGENT, MAX_AGENT / 2, NULL);
    uint32_t  epoch = epoch_of(net);
    kill_agent(net, 0); /* the leader */
    pass_time(net, 0.3);
    assert_int_equal(epoch, 2); /* all came at once */
    for (int k = 1; k < MAX_AGENT; k++) expect_view(net, k, epoch + 1, MAX_AGENT - 1);
    end_net(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_hosts_the_first_goes_on),
        cmocka_unit_test(a_shared_register_lets_either_go_on),
        cmocka_unit_test(a_second_agent_confirms),
        cmocka_unit_test(two_that_do_not_hear_each_other),
        cmocka_unit_test(a_late_observer_marks_no_host),
        cmocka_unit_test(hosts_join_and_leave),
        cmocka_unit_test(signals_to_two_hosts_end_the_job),
        cmocka_unit_test(an_interrupt_ends_the_job),
        cmocka_unit_test(failed_growth_is_the_old_view),
        cmocka_unit_test(a_waiting_host_takes_the_place_of_a_lost_one),
        cmocka_unit_test(fewer_than_min_wait_and_save),
        cmocka_unit_test(the_rule_of_commit),
        cmocka_unit_test(hosts_whose_ranks_left_nothing),
        cmocka_unit_test(a_register_with_something_else),
        cmocka_unit_test(a_dead_run_is_taken_over),
        cmocka_unit_test(a_run_behind_a_firewall_is_left_alone),
        cmocka_unit_test(an_ended_run_is_followed_at_once),
        cmocka_unit_test(an_agent_that_finds_no_job),
        cmocka_unit_test(sixty_four_hosts),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
