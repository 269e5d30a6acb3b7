/* Steps that end each rank that runs them: crashes and want of memory, on one host and several. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "member/member.h"

static void end_slot(weft_member *m, int slot, weft_member_cause cause, int64_t step)
{
    weft_member_tell(
        m, &(weft_member_event){
               .kind = WEFT_MEMBER_ENDED, .slot = slot, .cause = cause, .step = step});
}

/* Actions so far are carried out. */
static bool has_ended(weft_member *m)
{
    weft_member_action a;
    while (weft_member_next(m, &a))
        if (a.kind == WEFT_MEMBER_END) return true;
    return false;
}

static void expect_end(weft_member *m, const char *why)
{
    weft_member_action a = {.kind = WEFT_MEMBER_START};
    while (a.kind != WEFT_MEMBER_END) assert_true(weft_member_next(m, &a));
    assert_non_null(strstr(a.why, why));
    assert_true(weft_member_is_over(m));
}

static void get_ready(weft_member *m, int n)
{
    assert_false(has_ended(m));
    for (int k = 0; k < n; k++)
        weft_member_tell(
            m, &(weft_member_event){.kind = WEFT_MEMBER_READY, .slot = k, .epoch = 1});
    assert_true(weft_member_is_ready(m));
}

static weft_member *make_running(int n)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member       *m;
    assert_int_equal(weft_member_create(n, &limits, &m), WEFT_OK);
    get_ready(m, n);
    return m;
}

static void a_step_that_ends_two_slots_is_the_end(void **state)
{
    (void)state;
    static const weft_member_cause cause[] = {WEFT_MEMBER_CRASHED, WEFT_MEMBER_OOM};
    for (int k = 0; k < 2; k++) {
        weft_member *m = make_running(3);
        end_slot(m, 1, cause[k], 7);
        end_slot(m, 2, cause[k], 8);         /* another step */
        end_slot(m, 2, cause[!k], 8);        /* the same slot */
        end_slot(m, 0, WEFT_MEMBER_LOST, 8); /* killed from outside */
        assert_false(has_ended(m));
        end_slot(m, 1, cause[k], 8);
        expect_end(m, k ? "step 9 ends each rank that runs it: two were lost in it, the "
                          "last one by want of memory"
                        : "step 9 ends each rank that runs it: two were lost in it, the "
                          "last one by a crash");
        weft_member_destroy(m);
    }
}

static weft_member *start_outside(int n)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member       *m;
    limits.outside = true;
    assert_int_equal(weft_member_create(n, &limits, &m), WEFT_OK);
    weft_member_enter(m, 1, n);
    get_ready(m, n);
    return m;
}

static weft_member *make_outside(int n, int64_t step)
{
    weft_member *m = start_outside(n);
    end_slot(m, 0, WEFT_MEMBER_CRASHED, step);
    assert_false(has_ended(m));
    return m;
}

/* Each agent hears of all of them, its own before or after those of others. */
static void a_step_that_ends_slots_of_two_hosts_is_the_end(void **state)
{
    (void)state;
    weft_member_crash x = {
        .host = 77, .slot = 0, .cause = WEFT_MEMBER_CRASHED, .step = 7};
    weft_member_crash own;
    weft_member      *m = make_outside(2, 8);
    assert_true(weft_member_last_crash(m, &own));
    assert_true(own.host == 0 && own.slot == 0 && own.step == 8);
    weft_member_crash_elsewhere(m, &x); /* a step before */
    assert_false(has_ended(m));
    x.step = 9;
    weft_member_crash_elsewhere(m, &x);
    weft_member_crash_elsewhere(m, &x); /* its slot the second time */
    assert_false(has_ended(m));
    x.slot = 1;
    weft_member_crash_elsewhere(m, &x);
    expect_end(m, "step 10 ends");
    weft_member_destroy(m);
    m      = make_outside(2, 8);
    x.step = 8;
    weft_member_crash_elsewhere(m, &x);
    expect_end(m, "step 9 ends");
    weft_member_destroy(m);
    m = make_running(2); /* one host: there are no others */
    assert_false(weft_member_last_crash(m, &own));
    end_slot(m, 0, WEFT_MEMBER_CRASHED, 8);
    weft_member_crash_elsewhere(m, &x);
    assert_false(has_ended(m));
    weft_member_destroy(m);
}

/* Of several hosts: a rank that is not replaced is not waited for. */
static void lost_when_all_was_written(void **state)
{
    (void)state;
    weft_member *m = start_outside(2);
    end_slot(m, 1, WEFT_MEMBER_DONE, 8);
    end_slot(m, 0, WEFT_MEMBER_LOST, 8);
    expect_end(m, "a rank was lost when all was written");
    weft_member_destroy(m);
    m = start_outside(2);
    end_slot(m, 1, WEFT_MEMBER_DONE, 8);
    end_slot(m, 0, WEFT_MEMBER_DONE, 8); /* in order */
    assert_false(has_ended(m));
    weft_member_destroy(m);
    m = start_outside(2);
    end_slot(m, 0, WEFT_MEMBER_LOST,
             8); /* the next view is asked for before it is seen */
    end_slot(m, 1, WEFT_MEMBER_DONE, 8);
    assert_false(has_ended(m));
    weft_member_destroy(m);
}

int main(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test(a_step_that_ends_two_slots_is_the_end),
        cmocka_unit_test(a_step_that_ends_slots_of_two_hosts_is_the_end),
        cmocka_unit_test(lost_when_all_was_written),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}
