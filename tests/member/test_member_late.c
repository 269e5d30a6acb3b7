/* Ranks that others wait for: who is killed, and who is slow. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "member/member.h"

static void tell(weft_member *m, weft_member_event_kind kind, int slot, uint32_t epoch)
{
    weft_member_tell(m, &(weft_member_event){.kind = kind, .slot = slot, .epoch = epoch});
}

static void end_slot(weft_member *m, int slot, weft_member_cause cause, int64_t step)
{
    weft_member_tell(
        m, &(weft_member_event){
               .kind = WEFT_MEMBER_ENDED, .slot = slot, .cause = cause, .step = step});
}

static void expect(weft_member *m, weft_member_action_kind kind, int slot)
{
    weft_member_action a;
    assert_true(weft_member_next(m, &a));
    assert_int_equal(a.kind, kind);
    if (slot >= 0) assert_int_equal(a.slot, slot);
}

static void expect_nothing(weft_member *m)
{
    weft_member_action a;
    assert_false(weft_member_next(m, &a));
}

static weft_member *make_running(int n)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member       *m;
    assert_int_equal(weft_member_create(n, &limits, &m), WEFT_OK);
    for (int k = 0; k < n; k++) expect(m, WEFT_MEMBER_START, k);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_nothing(m);
    assert_int_equal(weft_member_epoch(m), 1);
    for (int k = 0; k < n; k++) tell(m, WEFT_MEMBER_READY, k, 1);
    assert_true(weft_member_is_ready(m));
    return m;
}

static void tick(weft_member *m, double now_s)
{
    weft_member_tell(m, &(weft_member_event){.kind = WEFT_MEMBER_TICK, .now_s = now_s});
}

static void who_does_not_leave_is_killed(void **state)
{
    (void)state;
    weft_member      *m     = make_running(2);
    weft_member_event alive = {.kind = WEFT_MEMBER_ALIVE, .slot = 1, .now_s = 4.9};
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    for (int k = 1; k < 50; k++) tick(m, 0.1 * k);
    expect_nothing(m);
    weft_member_tell(m, &alive); /* it writes a file */
    for (int k = 50; k < 99; k++) tick(m, 0.1 * k);
    expect_nothing(m);
    tick(m, 9.95);
    expect(m, WEFT_MEMBER_KILL, 1);
    expect_nothing(m);
    end_slot(m, 1, WEFT_MEMBER_LOST, 3);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    weft_member_destroy(m);
}

/* All were stopped, or the machine was. */
static void a_late_agent_kills_no_rank(void **state)
{
    (void)state;
    weft_member *m = make_running(2);
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    tick(m, 1);
    tick(m, 100);
    tick(m, 101);
    expect_nothing(m);
    tick(m, 103);
    expect(m, WEFT_MEMBER_KILL, 1);
    weft_member_destroy(m);
}

/* A process that has used so much of a core since it was last looked at, or waits for one. */
static void work_until(weft_member *m, int slot, double used_s, double *now_s,
                       double end_s)
{
    for (; *now_s < end_s; *now_s += 1) {
        weft_member_event e = {
            .kind = WEFT_MEMBER_WORKS, .slot = slot, .used_s = used_s, .now_s = *now_s};
        weft_member_tell(m, &e);
        e.kind = WEFT_MEMBER_TICK;
        weft_member_tell(m, &e);
    }
}

static void who_works_is_not_late(void **state)
{
    double       now_s = 1;
    weft_member *m     = make_running(2);
    (void)state;
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    work_until(m, 1, 0, &now_s, 200); /* it waits for a core */
    expect_nothing(m);
    work_until(m, 1, 0.5, &now_s, 300);
    expect_nothing(m);
    work_until(m, 0, 0.5, &now_s, 307); /* it is not the one that is waited for */
    expect(m, WEFT_MEMBER_KILL, 1);
    end_slot(m, 1, WEFT_MEMBER_LOST, 3);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    tell(m, WEFT_MEMBER_LEFT, 0, 2);
    now_s = 0;
    work_until(m, 1, 1, &now_s, 60); /* of a new process */
    expect_nothing(m);
    work_until(m, 1, 1, &now_s, 70); /* more than a start takes */
    expect(m, WEFT_MEMBER_KILL, 1);
    weft_member_destroy(m);
}

/* Where other hosts wait, too. */
static void work_is_waited_for_so_long(void **state)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member_action a;
    weft_member       *m;
    double             now_s = 0;
    (void)state;
    limits.outside = true;
    limits.most_s  = 20;
    assert_int_equal(weft_member_create(2, &limits, &m), WEFT_OK);
    weft_member_enter(m, 1, 2);
    for (int k = 0; k < 2; k++) tell(m, WEFT_MEMBER_READY, k, 1);
    while (weft_member_next(m, &a)) continue;
    weft_member_leave(m, 0);
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    work_until(m, 1, 0, &now_s, 25);
    expect_nothing(m);
    work_until(m, 1, 0, &now_s, 27);
    expect(m, WEFT_MEMBER_KILL, 1);
    end_slot(m, 1, WEFT_MEMBER_LOST, 3);
    while (weft_member_next(m, &a)) continue;
    weft_member_wait_at_most(m, 0); /* the other hosts are gone */
    weft_member_enter(m, 2, 2);
    while (weft_member_next(m, &a)) continue;
    weft_member_leave(m, now_s);
    work_until(m, 1, 0, &now_s, 300);
    expect_nothing(m);
    weft_member_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_leave_is_killed),
        cmocka_unit_test(a_late_agent_kills_no_rank),
        cmocka_unit_test(who_works_is_not_late),
        cmocka_unit_test(work_is_waited_for_so_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
