/* What ranks agree on at the commit point of a step: each case on two ranks, as threads. */
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "session/session_priv.h"

typedef struct member {
    double              loss, norm;
    int                 signal; /* that it got; 0 none */
    weft_comm          *comm;
    weft_status         st;
    bool                hold;
    int                 stopped;
    weft_session__fault fault;
} member;

static int find_signal(void *arg)
{
    return ((const member *)arg)->signal;
}

static void *agree(void *arg)
{
    member              *m       = arg;
    weft_session_options o       = {.stop = find_signal, .arg = m};
    weft_generation      g       = {.comm = m->comm};
    weft_session         s       = {.o = &o, .now = &g};
    int32_t              of[]    = {0, 1};
    double               value[] = {m->loss, m->norm};
    m->st = weft_comm_open_group(m->comm, 2, of, WEFT_SESSION__TAG, &g.group);
    if (m->st == WEFT_OK) m->st = weft_session__commit(&s, 0, 2, value, &m->hold);
    m->stopped = s.r.stopped;
    m->fault   = s.trial.fault;
    return NULL;
}

static void check(member a, member b, weft_session__fault fault, int stopped)
{
    member           m[2] = {a, b};
    pthread_t        thread[2];
    weft_comm_local *hub;
    assert_ok(weft_comm_local_create(2, &hub));
    for (int r = 0; r < 2; r++) assert_ok(weft_comm_local_join(hub, r, 20, &m[r].comm));
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, agree, &m[r]), 0);
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(m[r].st, WEFT_OK);
        assert_int_equal(m[r].fault, fault);
        assert_int_equal(m[r].hold, fault != WEFT_SESSION__NO_FAULT);
        assert_int_equal(m[r].stopped, stopped);
        weft_comm_destroy(m[r].comm);
    }
    weft_comm_local_destroy(hub);
}

static void ranks_hold_a_step_back_together(void **state)
{
    member good = {.loss = 2, .norm = 0.1f}, other = {.loss = 2};
    (void)state;
    check(good, good, WEFT_SESSION__NO_FAULT, 0);
    check(good, (member){.loss = NAN, .norm = 0.1f}, WEFT_SESSION__NOT_FINITE, 0);
    check((member){.loss = 2, .norm = INFINITY}, good, WEFT_SESSION__NOT_FINITE, 0);
    check((member){.loss = NAN, .norm = NAN}, (member){.loss = NAN, .norm = NAN},
          WEFT_SESSION__NOT_FINITE, 0);
    other.norm = nextafterf(0.1f, 1); /* one bit */
    check(good, other, WEFT_SESSION__DIFFERS, 0);
    other.norm = -0.1f;
    check(good, other, WEFT_SESSION__DIFFERS, 0);
}

static void ranks_stop_together(void **state)
{
    member none = {.loss = 1, .norm = 1}, term = none, interrupt = none;
    (void)state;
    term.signal      = SIGTERM;
    interrupt.signal = SIGINT;
    check(none, term, WEFT_SESSION__NO_FAULT, SIGTERM);
    check(interrupt, none, WEFT_SESSION__NO_FAULT, SIGINT);
    check(interrupt, term, WEFT_SESSION__NO_FAULT, SIGINT);
    term.norm = NAN;
    check(none, term, WEFT_SESSION__NOT_FINITE, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_hold_a_step_back_together),
        cmocka_unit_test(ranks_stop_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
