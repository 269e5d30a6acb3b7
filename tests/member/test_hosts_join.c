/* Hosts that join a running job prepare before they are in a view, and the others wait for none of
 * it. */
#include "hosts_net.h"

#define PREPARE_S 4

/* n hosts train; those that come later prepare. */
static case_net *start_prepared(int n)
{
    return start_net_with(n, &(case_rules){.min_host = 1, .prepare_s = PREPARE_S});
}

static void add_slow(case_net *net)
{
    add_agent(net);
    net->agent[net->n - 1].never = true;
}

static void end_preparing(case_net *net, int k)
{
    tell(net, k,
         (weft_hosts_event){.kind  = WEFT_HOSTS_PREPARED,
                            .epoch = weft_hosts_expected(net->agent[k].h)->epoch});
}

static void a_view_waits_for_the_prepared(void **state)
{
    (void)state;
    case_net *net   = start_prepared(1);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    pass_time(net, 0.3);
    assert_false(net->agent[1].prepares); /* others may come together with it */
    add_slow(net);
    pass_time(net, 1);
    expect_view(net, 0, epoch, 1);
    for (int k = 1; k < 3; k++) {
        const weft_member_view *v = weft_hosts_expected(net->agent[k].h);
        assert_true(net->agent[k].prepares);
        assert_int_equal(v->epoch, epoch + 1);
        assert_int_equal(v->n_host, 3);
        assert_int_equal(v->host[k].id, net->agent[k].id);
    }
    end_preparing(net, 1);
    pass_time(net, 1);
    expect_view(net, 0, epoch, 1); /* the other one is waited for */
    end_preparing(net, 2);
    pass_time(net, 0.5);
    for (int k = 0; k < 3; k++) expect_view(net, k, epoch + 1, 3);
    assert_string_equal(weft_hosts_view(net->agent[0].h)->reason, "host h2 joins");
    assert_string_equal(net->warning, "");
    end_net(net);
}

static void one_that_never_prepares_is_named(void **state)
{
    (void)state;
    case_net *net   = start_prepared(2);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    add_agent(net);
    pass_time(net, PREPARE_S - 0.5);
    expect_view(net, 0, epoch, 2);
    assert_string_equal(net->warning, "");
    pass_time(net, 1.5); /* the one that has prepared joins without it */
    assert_non_null(strstr(net->warning, "host h3"));
    assert_non_null(strstr(net->warning, "is not prepared to join after 4 s"));
    expect_view(net, 3, epoch + 1, 3);
    assert_int_equal(weft_member_view_find(weft_hosts_view(net->agent[0].h), 3), -1);
    pass_time(
        net, 1); /* it is asked for the next view: the one that it prepared for is over */
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_PREPARED, .epoch = epoch + 1});
    pass_time(net, 1);
    expect_view(net, 0, epoch + 1, 3);
    end_preparing(net, 2);
    pass_time(net, 1);
    expect_view(net, 2, epoch + 2, 4);
    end_net(net);
}

static void find_unused(case_net *net, int k)
{
    tell(net, k,
         (weft_hosts_event){.kind  = WEFT_HOSTS_UNUSED,
                            .epoch = weft_hosts_expected(net->agent[k].h)->epoch});
}

/* It is in no view, and is asked again together with another host. */
static void one_without_a_rank_waits(void **state)
{
    (void)state;
    case_net *net   = start_prepared(1);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    pass_time(net, 1);
    assert_true(net->agent[1].prepares);
    find_unused(net, 1);
    pass_time(net, 3 * PREPARE_S);
    expect_view(net, 0, epoch, 1);
    assert_string_equal(net->warning, ""); /* nobody has waited for it */
    add_slow(net);
    pass_time(net, 1);
    assert_true(net->agent[2].prepares);
    assert_int_equal(weft_hosts_expected(net->agent[1].h)->n_host, 3);
    find_unused(net, 1);
    pass_time(net, 1); /* the other one is asked alone, and has a rank */
    assert_int_equal(weft_hosts_expected(net->agent[2].h)->n_host, 2);
    end_preparing(net, 2);
    pass_time(net, 0.5);
    expect_view(net, 2, epoch + 1, 2);
    pass_time(net, 1); /* in that view it is asked once more */
    assert_int_equal(weft_hosts_expected(net->agent[1].h)->epoch, epoch + 2);
    end_preparing(net, 1);
    pass_time(net, 0.5);
    expect_view(net, 1, epoch + 2, 3);
    end_net(net);
}

/* Also where the job has no other host to take: nothing happens, until it has prepared. */
static void nobody_waits_for_one_alone(void **state)
{
    (void)state;
    case_net *net   = start_prepared(2);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    pass_time(net, 3 * PREPARE_S);
    expect_view(net, 0, epoch, 2);
    assert_non_null(strstr(net->warning, "host h3"));
    end_preparing(net, 2);
    pass_time(net, 1);
    expect_view(net, 2, epoch + 1, 3);
    end_net(net);
}

static void learn(case_net *net, int k, int percent)
{
    tell(net, k,
         (weft_hosts_event){.kind    = WEFT_HOSTS_LEARNS,
                            .epoch   = weft_hosts_expected(net->agent[k].h)->epoch,
                            .percent = percent});
}

/* All members hear how far it is; as long as that becomes more, it is not late. */
static void one_that_learns_is_not_late(void **state)
{
    (void)state;
    case_net *net     = start_prepared(2);
    uint32_t  epoch   = epoch_of(net);
    int       percent = 0;
    add_slow(net);
    pass_time(net, 1);
    assert_null(weft_hosts_learner(net->agent[0].h, 0, &percent));
    for (int k = 1; k <= 5; k++) {
        learn(net, 2, 10 * k);
        pass_time(net, PREPARE_S - 1);
        for (int m = 0; m < 2; m++) {
            const weft_member_host *x = weft_hosts_learner(net->agent[m].h, 0, &percent);
            assert_int_equal(percent, 10 * k);
            assert_int_equal(x ? x->id : 0, net->agent[2].id);
        }
        assert_null(weft_hosts_learner(net->agent[0].h, 1, &percent));
    }
    assert_string_equal(net->warning, "");
    expect_view(net, 0, epoch, 2);
    pass_time(net, PREPARE_S + 1); /* nothing more */
    assert_non_null(strstr(net->warning, "is not prepared to join after 4 s"));
    end_preparing(net, 2);
    pass_time(net, 1);
    expect_view(net, 2, epoch + 1, 3);
    end_net(net);
}

/* Nothing that the leader sent has reached it: it is asked again. */
static void one_that_was_not_reached_joins_later(void **state)
{
    (void)state;
    case_net *net   = start_prepared(1);
    uint32_t  epoch = epoch_of(net);
    add_agent(net);
    net->cut[0][1] = true;
    pass_time(net, PREPARE_S + 2);
    assert_non_null(strstr(net->warning, "is not prepared to join after 4 s"));
    assert_false(net->agent[1].prepares);
    net->cut[0][1] = false;
    pass_time(net, 2 * PREPARE_S);
    expect_view(net, 1, epoch + 1, 2);
    end_net(net);
}

static void lost_while_it_prepares(void **state)
{
    (void)state;
    case_net *net   = start_prepared(2);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    add_slow(net);
    pass_time(net, 1);
    assert_int_equal(weft_hosts_expected(net->agent[3].h)->n_host, 4);
    kill_agent(net, 2);
    pass_time(net, 1);
    for (int k = 0; k < 2; k++) expect_view(net, k, epoch, 2);
    assert_int_equal(weft_hosts_expected(net->agent[3].h)->n_host, 3); /* asked again */
    end_preparing(net, 3);
    pass_time(net, 0.5);
    expect_view(net, 3, epoch + 1, 3);
    assert_non_null(
        strstr(net->warning, "host h3 () has gone while it prepared to join"));
    end_net(net);
}

/* A rank is lost meanwhile: the view that this needs has those that were there. */
static void a_loss_does_not_wait_for_it(void **state)
{
    (void)state;
    case_net *net   = start_prepared(2);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    pass_time(net, 1);
    tell(net, 1,
         (weft_hosts_event){
             .kind = WEFT_HOSTS_CHANGE, .n_rank = 2, .text = "a rank was lost"});
    pass_time(net, 1);
    expect_view(net, 0, epoch + 1, 2);
    assert_int_equal(weft_hosts_expected(net->agent[2].h)->epoch, epoch + 2);
    kill_agent(net, 1); /* a host, too: it still prepares */
    pass_time(net, 4);
    expect_view(net, 0, epoch + 2, 1);
    end_preparing(net, 2);
    pass_time(net, 1);
    expect_view(net, 2, epoch + 3, 2);
    end_net(net);
}

/* A host that waits as the job is full replaces one that is lost, at once. */
static void one_that_waits_replaces_a_lost_one(void **state)
{
    (void)state;
    case_net *net   = start_prepared(4);
    uint32_t  epoch = epoch_of(net);
    add_slow(net);
    pass_time(net, 2);
    assert_false(net->agent[4].prepares);
    kill_agent(net, 3);
    pass_time(net, 1);
    expect_view(net, 4, epoch + 1, 4);
    assert_false(net->agent[4].prepares);
    end_net(net);
}

/* Without enough hosts no rank runs: nothing is there to prepare with. */
static void hosts_that_are_needed_join_at_once(void **state)
{
    (void)state;
    case_net *net =
        start_net_with(2, &(case_rules){.min_host = 2, .prepare_s = PREPARE_S});
    uint32_t epoch = epoch_of(net);
    assert_false(net->agent[1].prepares);
    add_slow(net);
    pass_time(net, 1);
    assert_true(net->agent[2].prepares);
    kill_agent(net, 1); /* now there are not enough */
    pass_time(net, 1);
    expect_view(net, 2, epoch + 1, 2);
    end_net(net);
}

/* ---- hosts that stay ---- */

static void hosts_that_stay_prepare_for_one_that_joins(void **state)
{
    (void)state;
    case_net *net          = start_prepared(2);
    uint32_t  epoch        = epoch_of(net);
    net->agent[0].never    = true; /* the leader, for both of them */
    net->agent[0].prepares = net->agent[1].prepares = false;
    add_agent(net);
    pass_time(net, 1.5);
    assert_true(net->agent[0].prepares && !net->agent[1].prepares);
    assert_int_equal(weft_hosts_expected(net->agent[0].h)->n_host, 3);
    expect_view(net, 0, epoch, 2);
    end_preparing(net, 0);
    pass_time(net, 0.5);
    expect_view(net, 2, epoch + 1, 3);
    pass_time(net, 1); /* a step: then one that is late is not waited for */
    add_agent(net);
    pass_time(net, PREPARE_S - 0.5);
    expect_view(net, 0, epoch + 1, 3);
    pass_time(net, 1.5);
    expect_view(net, 3, epoch + 2, 4);
    assert_string_equal(net->warning, "");
    end_net(net);
}

static case_net *start_leaving(void)
{
    case_net *net = start_net_with(
        3, &(case_rules){.min_host = 1, .prepare_s = PREPARE_S, .leave_s = PREPARE_S});
    net->agent[0].never    = true;
    net->agent[0].prepares = false;
    return net;
}

static void hosts_that_stay_prepare_before_one_leaves(void **state)
{
    (void)state;
    case_net *net   = start_leaving();
    uint32_t  epoch = epoch_of(net);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = 3});
    pass_time(net, 1);
    expect_view(net, 2, epoch, 3);
    const weft_member_view *v = weft_hosts_expected(net->agent[0].h);
    assert_true(net->agent[0].prepares && v->epoch == epoch + 1 && v->n_host == 2);
    end_preparing(net, 0);
    pass_time(net, 0.5);
    expect_view(net, 0, epoch + 1, 2);
    tell(net, 1, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = 2});
    pass_time(net, PREPARE_S - 0.5);
    expect_view(net, 0, epoch + 1, 2);
    pass_time(net, 1); /* late */
    expect_view(net, 0, epoch + 2, 1);
    end_net(net);
}

/* A signal may mean its host or the job: meanwhile the others prepare. */
static void they_prepare_while_a_signal_is_judged(void **state)
{
    (void)state;
    case_net *net   = start_leaving();
    uint32_t  epoch = epoch_of(net);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_TERM});
    pass_time(net, 0.5);
    assert_true(net->agent[0].prepares);
    end_preparing(net, 0);
    pass_time(net, 1);
    expect_view(net, 0, epoch, 3);
    pass_time(net, 1);
    expect_view(net, 0, epoch + 1, 2);
    end_net(net);
}

static void at_once_waits_for_nobody(void **state)
{
    (void)state;
    case_net *net   = start_leaving();
    uint32_t  epoch = epoch_of(net);
    tell(net, 2, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = 3, .at_once = true});
    pass_time(net, 0.5);
    expect_view(net, 0, epoch + 1, 2);
    assert_false(net->agent[0].prepares);
    end_net(net);
}

/* Two prepare, a third has not heard of the view yet; the job ends before they are in one. */
static void those_that_would_join_hear_of_the_end(void **state)
{
    (void)state;
    case_net *net = start_prepared(2);
    add_slow(net);
    add_slow(net);
    pass_time(net, 1);
    net->cut[0][4] = net->cut[1][4] = true;
    add_slow(net);
    pass_time(net, 0.5);
    assert_true(net->agent[3].prepares);
    tell(net, 1, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
    pass_time(net, 0.5);
    assert_false(net->agent[2].ended); /* a rank of the first host may still be lost */
    tell(net, 0, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
    for (int k = 2; k < 4; k++) {
        expect_end(net, k, WEFT_HOSTS_LEFT, "the job has ended");
        assert_false(weft_hosts_are_done(net->agent[0].h)); /* it lingers for them */
        kill_agent(net, k);
    }
    net->cut[0][4] = net->cut[1][4] = false;
    pass_time(net, 0.5);
    expect_end(net, 4, WEFT_HOSTS_LEFT, "the job has ended");
    kill_agent(net, 4);
    assert_true(weft_hosts_are_done(net->agent[0].h));
    assert_string_equal(net->warning, ""); /* no host is missed */
    end_net(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_waits_for_the_prepared),
        cmocka_unit_test(one_that_never_prepares_is_named),
        cmocka_unit_test(one_without_a_rank_waits),
        cmocka_unit_test(nobody_waits_for_one_alone),
        cmocka_unit_test(one_that_learns_is_not_late),
        cmocka_unit_test(one_that_was_not_reached_joins_later),
        cmocka_unit_test(lost_while_it_prepares),
        cmocka_unit_test(a_loss_does_not_wait_for_it),
        cmocka_unit_test(one_that_waits_replaces_a_lost_one),
        cmocka_unit_test(hosts_that_are_needed_join_at_once),
        cmocka_unit_test(hosts_that_stay_prepare_for_one_that_joins),
        cmocka_unit_test(hosts_that_stay_prepare_before_one_leaves),
        cmocka_unit_test(they_prepare_while_a_signal_is_judged),
        cmocka_unit_test(at_once_waits_for_nobody),
        cmocka_unit_test(those_that_would_join_hear_of_the_end),
    };
    return cmocka_run_group_tests_name("hosts_join", tests, NULL, NULL);
}
