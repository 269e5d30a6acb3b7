/* Agents of several hosts, one case at a time: messages arrive at once unless a link is cut. */
#include "hosts_net.h"

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

static void cut_between(case_net *net, int first)
{
    for (int i = 0; i < net->n; i++)
        for (int k = 0; k < net->n; k++)
            if ((i < first) != (k < first)) net->cut[i][k] = true;
}

/* Two of five: the other three decide without them. */
static void hosts_that_are_no_majority_save_together(void **state)
{
    (void)state;
    case_net *net   = start_net(5, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    cut_between(net, 3);
    pass_time(net, 8);
    expect_view(net, 0, epoch + 1, 3);
    for (int k = 3; k < 5; k++) {
        const weft_member_view *v = weft_hosts_view(net->agent[k].h);
        expect_end(net, k, WEFT_HOSTS_ALONE,
                   "2 of 5 hosts can be reached, which is no majority");
        assert_true(net->agent[k].saves && net->agent[k].together);
        assert_int_equal(v->epoch, epoch + 1);
        assert_int_equal(v->n_host, 2);
        assert_int_equal(v->host[0].id, net->agent[3].id);
        assert_int_equal(v->host[1].id, net->agent[4].id);
    }
    end_net(net);
    /* one that sees both sides goes on with the majority */
    net   = start_net(5, 1, NULL);
    epoch = epoch_of(net);
    cut_between(net, 1);
    net->cut[0][4] = net->cut[4][0] = false;
    pass_time(net, 12);
    expect_end(net, 0, WEFT_HOSTS_FENCED, "decided without this host");
    expect_view(net, 4, epoch + 1, 4);
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
    kill_agent(net, 0); /* announced: no other side is there to wait for */
    pass_time(net, 0.3);
    expect_view(net, 1, epoch + 1, 1);
    end_net(net);
    weft_register_close(r);
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    net   = start_net(2, 1, r);
    epoch = epoch_of(net);
    cut_off(net, 0); /* in silence, and the first does not run: its side might be alive */
    net->agent[0].alive = false;
    pass_time(net, 4.5);
    expect_view(net, 1, epoch, 2);
    pass_time(net, 1.5);
    expect_view(net, 1, epoch + 1, 1);
    end_net(net);
    weft_register_close(r);
    assert_int_equal(weft_register_open_memory(&r), WEFT_OK);
    net   = start_net(4, 1, r);
    epoch = epoch_of(net);
    kill_agent(net, 0); /* of the three that are left two hear each other */
    for (int k = 1; k < 3; k++) net->cut[3][k] = net->cut[k][3] = true;
    pass_time(net, 7);
    expect_view(net, 1, epoch + 1, 2);
    expect_end(net, 3, WEFT_HOSTS_FENCED, "");
    end_net(net);
    weft_register_close(r);
}

/* ---- detection ---- */

static void a_second_agent_confirms(void **state)
{
    (void)state;
    case_net *net = start_net(3, 1, NULL);
    cut_off(net, 2);
    /* 0.8 of 2 s: the second agent has not heard of it either */
    double s = wait_for(net, 0, 2);
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

/* It leaves; where the others are lost meanwhile it is of use, and stays. */
static void a_host_of_no_use(void **state)
{
    (void)state;
    case_net *net   = start_net(3, 1, NULL);
    uint32_t  epoch = epoch_of(net);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_IDLE});
    pass_time(net, 1);
    expect_end(net, 2, WEFT_HOSTS_LEFT, "");
    expect_view(net, 0, epoch + 1, 2);
    kill_agent(net, 1);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_IDLE});
    pass_time(net, 5);
    expect_view(net, 0, epoch + 2, 1);
    assert_false(net->agent[0].saving);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_IDLE});
    pass_time(net, 1);
    expect_view(net, 0, epoch + 2, 1);
    assert_false(net->agent[0].saving);
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

/* recover without shrink: three hosts ran, so three are needed; a host that leaves is no loss. */
static void a_lost_host_has_to_be_replaced(void **state)
{
    (void)state;
    case_net *net = start_net_with(4, &(case_rules){.min_host = 1, .keeps_count = true});
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = 4});
    pass_time(net, 1);
    uint32_t epoch = epoch_of(net);
    expect_view(net, 0, epoch, 3);
    assert_true(weft_hosts_is_enough(net->agent[0].h));
    kill_agent(net, 2);
    pass_time(net, 5);
    expect_view(net, 0, epoch + 1, 2);
    assert_int_equal(weft_hosts_view(net->agent[1].h)->least, 3);
    assert_false(weft_hosts_is_enough(net->agent[0].h) || net->agent[0].saving);
    add_agent(net);
    pass_time(net, 2);
    expect_view(net, 4, epoch + 2, 3);
    assert_true(weft_hosts_is_enough(net->agent[4].h)); /* also for the one that is new */
    kill_agent(net, 4);
    pass_time(net, 14);
    for (int k = 0; k < 2; k++) {
        assert_true(net->agent[k].saving);
        assert_non_null(strstr(net->agent[k].why, "2 of at least 3 hosts"));
    }
    end_net(net);
}

/* recover without wait: the start waits for MIN hosts, the job does not. */
static void a_lost_host_is_not_waited_for(void **state)
{
    (void)state;
    case_net *net = start_net_with(3, &(case_rules){.min_host = 2, .never_waits = true});
    kill_agent(net, 2);
    pass_time(net, 1);
    assert_true(weft_hosts_is_enough(net->agent[0].h)); /* two may go on */
    kill_agent(net, 1);
    pass_time(net, 4);
    assert_true(net->agent[0].saving);
    assert_non_null(strstr(net->agent[0].why,
                           "1 of at least 2 hosts are there, and recover "
                           "allows no waiting"));
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

/* ---- runs without a shared register ---- */

/* Another run has written the same output: the first view is above those of that run, and restarts
 * nothing. */
static void a_run_begins_above_another(void **state)
{
    (void)state;
    case_net *net = calloc(1, sizeof *net);
    net->min_host = 1;
    net->max_host = 2;
    add_agent(net);
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = 5});
    pass_time(net, 0.2);
    expect_view(net, 0, 5, 1);
    assert_false(weft_hosts_view(net->agent[0].h)->restarts);
    add_agent(net);
    pass_time(net, 2);
    for (int k = 0; k < 2; k++) expect_view(net, k, 6, 2);
    end_net(net);
}

/* A candidate has asked for a place, and the run has ended: it begins the next one, above the view
 * that it has heard of. */
static void a_candidate_begins(void **state)
{
    (void)state;
    case_net *net  = start_net(2, 1, NULL);
    uint32_t  last = epoch_of(net);
    net->max_host  = 2;
    net->is_slow   = true; /* no view with it comes */
    add_agent(net);
    pass_time(net, 0.3);
    assert_false(weft_hosts_is_member(net->agent[2].h));
    assert_int_equal(weft_hosts_view(net->agent[2].h)->epoch, last);
    kill_agent(net, 0);
    kill_agent(net, 1);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = 1});
    pass_time(net, 0.3);
    expect_view(net, 2, last + 1, 1);
    assert_int_equal(weft_hosts_view(net->agent[2].h)->host[0].id, net->agent[2].id);
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
        cmocka_unit_test(hosts_that_are_no_majority_save_together),
        cmocka_unit_test(a_shared_register_lets_either_go_on),
        cmocka_unit_test(a_second_agent_confirms),
        cmocka_unit_test(two_that_do_not_hear_each_other),
        cmocka_unit_test(a_late_observer_marks_no_host),
        cmocka_unit_test(hosts_join_and_leave),
        cmocka_unit_test(a_host_of_no_use),
        cmocka_unit_test(signals_to_two_hosts_end_the_job),
        cmocka_unit_test(an_interrupt_ends_the_job),
        cmocka_unit_test(failed_growth_is_the_old_view),
        cmocka_unit_test(a_waiting_host_takes_the_place_of_a_lost_one),
        cmocka_unit_test(fewer_than_min_wait_and_save),
        cmocka_unit_test(a_lost_host_has_to_be_replaced),
        cmocka_unit_test(a_lost_host_is_not_waited_for),
        cmocka_unit_test(the_rule_of_commit),
        cmocka_unit_test(hosts_whose_ranks_left_nothing),
        cmocka_unit_test(a_run_begins_above_another),
        cmocka_unit_test(a_candidate_begins),
        cmocka_unit_test(a_register_with_something_else),
        cmocka_unit_test(a_dead_run_is_taken_over),
        cmocka_unit_test(a_run_behind_a_firewall_is_left_alone),
        cmocka_unit_test(an_ended_run_is_followed_at_once),
        cmocka_unit_test(an_agent_that_finds_no_job),
        cmocka_unit_test(sixty_four_hosts),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
