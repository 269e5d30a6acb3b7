/* Who is in a job: decisions of the agent, one by one and under a seeded simulator. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void expect_end(weft_member *m, const char *word)
{
    weft_member_action a;
    assert_true(weft_member_next(m, &a));
    assert_int_equal(a.kind, WEFT_MEMBER_END);
    assert_non_null(strstr(a.why, word));
    assert_true(weft_member_is_over(m));
    end_slot(m, 0, WEFT_MEMBER_LOST, 99); /* nothing follows */
    expect_nothing(m);
}

static void a_lost_rank_is_replaced(void **state)
{
    (void)state;
    weft_member *m = make_running(3);
    end_slot(m, 1, WEFT_MEMBER_LOST, 7);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_nothing(m);
    assert_int_equal(weft_member_epoch(m), 2);
    assert_false(weft_member_is_ready(m));
    tell(m, WEFT_MEMBER_LEFT, 0,
         1); /* of the epoch before: the view is on its way to it */
    tell(m, WEFT_MEMBER_READY, 2, 1);
    expect_nothing(m);
    for (int k = 0; k < 3; k++) tell(m, WEFT_MEMBER_READY, k, 2);
    assert_true(weft_member_is_ready(m));
    weft_member_destroy(m);
}

static void ranks_that_all_leave_get_a_view(void **state)
{
    (void)state;
    weft_member *m = make_running(2);
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    expect_nothing(m);
    assert_true(weft_member_deadline_s(m) > 0);
    tell(m, WEFT_MEMBER_LEFT, 1, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_nothing(m);
    assert_true(weft_member_deadline_s(m) <= 0);
    weft_member_destroy(m);
}

static void three_losses_in_ten_steps_are_the_end(void **state)
{
    (void)state;
    static const int64_t far[] = {5, 15, 25, 35}, near[] = {5, 9, 14};
    weft_member_action   a;
    weft_member         *m = make_running(2);
    for (int k = 0; k < 4; k++) {
        end_slot(m, 1, WEFT_MEMBER_LOST, far[k]);
        assert_false(weft_member_is_over(m));
        while (weft_member_next(m, &a)) continue;
    }
    weft_member_destroy(m);
    m = make_running(2);
    for (int k = 0; k < 2; k++) {
        end_slot(m, 1, WEFT_MEMBER_LOST, near[k]);
        end_slot(m, 0, WEFT_MEMBER_LOST,
                 near[k] - 1); /* another slot's are not counted */
        while (weft_member_next(m, &a)) continue;
        assert_false(weft_member_is_over(m));
    }
    assert_true(weft_member_is_too_often(m, 1, near[2]));
    assert_false(weft_member_is_too_often(m, 1, near[0] + 10));
    weft_member_tell(m, &(weft_member_event){.kind   = WEFT_MEMBER_ENDED,
                                             .slot   = 1,
                                             .cause  = WEFT_MEMBER_LOST,
                                             .step   = near[2],
                                             .spared = true});
    expect(m, WEFT_MEMBER_START, 1);
    while (weft_member_next(m, &a)) continue;
    assert_false(weft_member_is_too_often(m, 1, near[2])); /* it begins anew */
    for (int k = 0; k < 2; k++) {
        end_slot(m, 1, WEFT_MEMBER_LOST, near[2]);
        while (weft_member_next(m, &a)) continue;
    }
    end_slot(m, 1, WEFT_MEMBER_LOST, near[2]);
    expect_end(m, "3 times within 10 steps");
    weft_member_destroy(m);
}

static void errors_and_signals_end_the_job(void **state)
{
    (void)state;
    weft_member_action a;
    weft_member       *m = make_running(2);
    end_slot(m, 1, WEFT_MEMBER_FAILED, 7);
    expect_end(m, "failed");
    weft_member_destroy(m);
    m = make_running(2);
    tell(m, WEFT_MEMBER_STOP, 0, 0);
    end_slot(m, 1, WEFT_MEMBER_LOST, 7); /* the state is not saved yet */
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    end_slot(m, 0, WEFT_MEMBER_DONE,
             8); /* it has saved and left, and nothing is left to do */
    expect_end(m, "");
    weft_member_destroy(m);
    m = make_running(3);
    tell(m, WEFT_MEMBER_STOP, 0, 0);
    end_slot(m, 1, WEFT_MEMBER_DONE, 7);
    end_slot(m, 2, WEFT_MEMBER_LOST, 7);
    expect_nothing(m);
    tell(m, WEFT_MEMBER_LEFT, 0, 1);
    assert_true(weft_member_next(m, &a));
    assert_int_equal(a.kind, WEFT_MEMBER_END);
    weft_member_destroy(m);
}

static void what_is_done_is_not_done_again(void **state)
{
    (void)state;
    weft_member_action a;
    weft_member       *m = make_running(3);
    end_slot(m, 0, WEFT_MEMBER_DONE, 9); /* rank 0 has written everything */
    end_slot(m, 1, WEFT_MEMBER_LOST, 9);
    expect_nothing(m);
    tell(m, WEFT_MEMBER_LEFT, 2, 1);
    assert_true(weft_member_next(m, &a));
    assert_int_equal(a.kind, WEFT_MEMBER_END);
    assert_string_equal(a.why, "");
    weft_member_destroy(m);
    m = make_running(2);
    end_slot(m, 1, WEFT_MEMBER_DONE, 9); /* it has, and rank 0 has not */
    end_slot(m, 0, WEFT_MEMBER_LOST, 9);
    expect(m, WEFT_MEMBER_START, 0);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    weft_member_destroy(m);
}

/* ---- the simulator ---- */

enum {
    MAX_SLOT    = 8,
    N_SCHEDULE  = 10000,
    MAX_EVENT   = 4000, /* of a schedule that does not end */
    LAST_STEP   = 60,
    MAX_MESSAGE = 8,
    MAX_VIEW    = 512
};

/* A rank as the agent sees it: it learns of views and of lost peers late, and what it says arrives
 * late.  One that is stuck is noticed by others that wait for it, so not all are. */
typedef struct sim_rank {
    bool alive, ready, left, stuck, doomed; /* doomed: it was sent SIGKILL */
    /* the newest view that is on its way to it, and the one it is in */
    uint32_t          sent, epoch;
    int               n_message;
    weft_member_event message[MAX_MESSAGE];
} sim_rank;

typedef struct sim_run {
    weft_member *m;
    int          n;
    uint32_t     random, views, epoch;
    bool         ended;
    int64_t      step;
    double       now_s;
    int          faults;          /* that are left */
    int          resizes;         /* as well */
    int          recounts;        /* that ranks ask for, as well */
    int          count[MAX_VIEW]; /* ranks of each view */
    sim_rank     rank[MAX_SLOT];
} sim_run;

static uint32_t draw(sim_run *x, uint32_t below)
{
    x->random = x->random * 1664525u + 1013904223u;
    return (x->random >> 8) % below;
}

static void kill_rank(sim_run *x, int k)
{
    x->rank[k].alive     = false;
    x->rank[k].n_message = 0;
    end_slot(x->m, k, WEFT_MEMBER_LOST, x->step);
}

static void act(sim_run *x)
{
    weft_member_action a;
    while (weft_member_next(x->m, &a)) {
        assert_false(x->ended); /* nothing after END */
        if (a.kind == WEFT_MEMBER_START) {
            assert_false(x->rank[a.slot].alive);
            x->rank[a.slot] = (sim_rank){.alive = true};
        } else if (a.kind == WEFT_MEMBER_VIEW) {
            assert_int_equal(a.epoch, x->views + 1); /* each epoch once, in order */
            x->views = a.epoch;
            assert_true(a.epoch < MAX_VIEW);
            x->count[a.epoch] = weft_member_count(x->m);
            for (int k = 0; k < x->n; k++) {
                assert_true(x->rank[k].alive || k >= x->count[a.epoch]);
                x->rank[k].sent = a.epoch;
            }
        } else if (a.kind == WEFT_MEMBER_KILL) {
            x->rank[a.slot].doomed = true;
        } else {
            x->ended = true;
        }
    }
}

static void say(sim_run *x, int k, weft_member_event_kind kind)
{
    sim_rank *r = &x->rank[k];
    if (r->n_message == MAX_MESSAGE) return;
    r->message[r->n_message++] =
        (weft_member_event){.kind = kind, .slot = k, .epoch = r->epoch, .step = x->step};
}

static void hear(sim_run *x, int k)
{
    sim_rank *r = &x->rank[k];
    if (!r->n_message) return;
    weft_member_event e = r->message[0];
    e.now_s             = x->now_s;
    memmove(r->message, r->message + 1, sizeof e * (size_t)--r->n_message);
    weft_member_tell(x->m, &e);
}

/* Are all ranks in one epoch, and alive? */
static bool is_whole(const sim_run *x, uint32_t epoch)
{
    for (int k = 0; k < x->count[epoch]; k++)
        if (!x->rank[k].alive || x->rank[k].epoch != epoch || x->rank[k].stuck ||
            x->rank[k].left)
            return false;
    return true;
}

static void move_rank(sim_run *x, int k)
{
    sim_rank *r = &x->rank[k];
    if (!r->alive || r->stuck) return;
    if (r->sent > r->epoch && k >= x->count[r->sent]) { /* it has nothing left to do */
        r->alive     = false;
        r->n_message = 0;
        end_slot(x->m, k, WEFT_MEMBER_DONE, x->step);
    } else if (r->sent > r->epoch) { /* it leaves the old epoch on the way */
        if (r->epoch && !r->left) say(x, k, WEFT_MEMBER_LEFT);
        r->epoch = r->sent;
        r->ready = r->left = false;
    } else if (r->left) {
        return; /* it waits */
    } else if (!r->ready && is_whole(x, r->epoch)) {
        if (x->recounts && draw(x, 4) == 0) { /* of use, or that end updates */
            x->recounts--;
            weft_member_recount(x->m, r->epoch, 1 + (int)draw(x, (uint32_t)x->n));
            r->left = true;
            say(x, k, WEFT_MEMBER_LEFT);
            return;
        }
        r->ready = true;
        say(x, k, WEFT_MEMBER_READY);
    } else if (r->ready && is_whole(x, r->epoch)) {
        x->step += draw(x, 3) == 0;
    } else if (draw(x, 40) == 0) {
        r->left = true; /* its timeout */
        say(x, k, WEFT_MEMBER_LEFT);
    }
}

static void reap(sim_run *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->rank[k].alive && x->rank[k].doomed) {
            kill_rank(x, k);
            act(x);
        }
}

/* One that is left alone is for the agent to notice (member/detect.h). */
static void detect_alone(sim_run *x)
{
    if (weft_member_count(x->m) == 1 && x->rank[0].alive && x->rank[0].stuck &&
        draw(x, 20) == 0)
        kill_rank(x, 0);
}

static void run_schedule(uint32_t seed)
{
    weft_member_limits limits = weft_member_default_limits();
    sim_run            x      = {.random = seed * 2654435761u + 1};
    x.n                       = 1 + (int)draw(&x, MAX_SLOT);
    x.faults                  = (int)draw(&x, 12);
    x.resizes                 = (int)draw(&x, 2) * (int)draw(&x, 12);
    x.recounts                = x.resizes ? (int)draw(&x, 4) : 0;
    limits.late_s             = 10;
    limits.max_slot           = x.n;
    assert_int_equal(weft_member_create(1 + (int)draw(&x, (uint32_t)x.n), &limits, &x.m),
                     WEFT_OK);
    act(&x);
    for (int i = 0; i < MAX_EVENT && !x.ended && x.step < LAST_STEP; i++) {
        int k = (int)draw(&x, (uint32_t)x.n);
        x.now_s += 0.01 * draw(&x, 100);
        if (x.faults && draw(&x, 20) == 0) {
            x.faults--;
            int live = weft_member_count(x.m);
            if (draw(&x, 4) == 0 && live > 1 && !x.rank[(k + 1) % live].stuck)
                x.rank[k].stuck = true;
            else if (x.rank[k].alive)
                kill_rank(&x, k);
        }
        if (x.resizes && draw(&x, 30) == 0 && weft_member_may_resize(x.m)) {
            x.resizes--;
            weft_member_resize(x.m, 1 + (int)draw(&x, (uint32_t)x.n));
        }
        act(&x);
        detect_alone(&x);
        act(&x);
        move_rank(&x, k);
        if (draw(&x, 3)) hear(&x, (int)draw(&x, (uint32_t)x.n));
        if (draw(&x, 10) == 0)
            weft_member_tell(
                x.m, &(weft_member_event){.kind = WEFT_MEMBER_TICK, .now_s = x.now_s});
        act(&x);
        reap(&x);
    }
    if (!x.ended && x.step < LAST_STEP) print_message("seed %u hangs\n", seed);
    assert_true(x.ended || x.step >= LAST_STEP); /* always an end */
    weft_member_destroy(x.m);
}

static void every_schedule_ends(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= N_SCHEDULE; seed++) run_schedule(seed);
}

/* ---- more or fewer ---- */

static void settle(weft_member *m)
{
    weft_member_action a;
    while (weft_member_next(m, &a)) continue;
    for (int k = 0; k < weft_member_count(m); k++)
        tell(m, WEFT_MEMBER_READY, weft_member_order(m)[k], weft_member_epoch(m));
    assert_true(weft_member_is_ready(m));
}

static weft_member *make_elastic(int n, int max)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member       *m;
    limits.max_slot = max;
    assert_int_equal(weft_member_create(n, &limits, &m), WEFT_OK);
    settle(m);
    return m;
}

static void ranks_come_and_go(void **state)
{
    (void)state;
    weft_member *m = make_elastic(2, 4);
    assert_true(weft_member_may_resize(m));
    weft_member_resize(m, 5); /* too many: nothing */
    expect_nothing(m);
    weft_member_resize(m, 4);
    expect(m, WEFT_MEMBER_START, 2);
    expect(m, WEFT_MEMBER_START, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    assert_false(weft_member_may_resize(m));
    settle(m);
    assert_int_equal(weft_member_count(m), 4);
    weft_member_resize(m, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    settle(m);
    assert_false(weft_member_may_resize(m)); /* processes are left */
    for (int k = 1; k < 4; k++)
        end_slot(m, k, k == 2 ? WEFT_MEMBER_LOST : WEFT_MEMBER_DONE, 9);
    expect_nothing(m); /* none of them is missed */
    assert_true(weft_member_may_resize(m));
    weft_member_resize(m, 2);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    weft_member_renew(m); /* not before all are ready */
    expect_nothing(m);
    settle(m);
    weft_member_renew(m);
    expect(m, WEFT_MEMBER_VIEW, -1);
    settle(m);
    assert_int_equal(weft_member_count(m), 2);
    weft_member_destroy(m);
}

/* However the new rank ends, those that were there go on; one of theirs is replaced. */
static void failed_growth_is_the_old_view(void **state)
{
    static const weft_member_cause how[] = {WEFT_MEMBER_LOST, WEFT_MEMBER_CRASHED,
                                            WEFT_MEMBER_FAILED};
    (void)state;
    for (int k = 0; k < 3; k++) {
        weft_member *m = make_elastic(2, 4);
        weft_member_resize(m, 4);
        while (weft_member_next(m, &(weft_member_action){0})) continue;
        uint32_t epoch = weft_member_epoch(m);
        end_slot(m, 3, how[k], 5);
        assert_int_equal(weft_member_count(m), 2);
        expect(m, WEFT_MEMBER_VIEW, -1);
        expect_nothing(m);
        assert_int_equal(weft_member_epoch(m), epoch + 1);
        settle(m);
        end_slot(m, 2, WEFT_MEMBER_DONE, 5); /* it has seen that it is not in it */
        expect_nothing(m);
        weft_member_resize(m, 3);
        while (weft_member_next(m, &(weft_member_action){0})) continue;
        end_slot(m, 0, WEFT_MEMBER_LOST, 6); /* one that was there */
        expect(m, WEFT_MEMBER_START, 0);
        assert_int_equal(weft_member_count(m), 3);
        weft_member_destroy(m);
    }
}

static void fewer_may_be_of_use(void **state)
{
    (void)state;
    weft_member *m = make_elastic(4, 4);
    weft_member_resize(m, 3);
    while (weft_member_next(m, &(weft_member_action){0})) continue;
    weft_member_recount(m, weft_member_epoch(m) - 1, 1); /* of another view */
    expect_nothing(m);
    weft_member_recount(m, weft_member_epoch(m), 2);
    expect(m, WEFT_MEMBER_VIEW, -1);
    assert_int_equal(weft_member_count(m), 2);
    settle(m);
    weft_member_destroy(m);
}

/* Updates of four ranks were broken off on the way to two: four end them first.  A process that is
 * about to leave is not waited for. */
static void more_may_be_needed_once_more(void **state)
{
    (void)state;
    weft_member *m = make_elastic(4, 5);
    weft_member_resize(m, 2);
    while (weft_member_next(m, &(weft_member_action){0})) continue;
    end_slot(m, 3, WEFT_MEMBER_LOST, 5); /* it is not missed yet */
    expect_nothing(m);
    weft_member_recount(m, weft_member_epoch(m), 6); /* too many */
    expect_nothing(m);
    weft_member_recount(m, weft_member_epoch(m), 4);
    expect(m, WEFT_MEMBER_KILL, 2);
    expect_nothing(m);
    tell(m, WEFT_MEMBER_LEFT, 0, weft_member_epoch(m));
    tell(m, WEFT_MEMBER_LEFT, 1, weft_member_epoch(m));
    expect_nothing(m); /* no view of two in between */
    end_slot(m, 2, WEFT_MEMBER_DONE, 5);
    expect(m, WEFT_MEMBER_START, 2);
    expect(m, WEFT_MEMBER_START, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_nothing(m);
    assert_int_equal(weft_member_count(m), 4);
    settle(m);
    assert_true(weft_member_may_resize(m));
    weft_member_destroy(m);
}

static void expect_order(const weft_member *m, const char *text)
{
    char found[64] = "";
    for (int k = 0; k < weft_member_count(m); k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%d ",
                 weft_member_order(m)[k]);
    assert_string_equal(found, text);
}

/* The slot that is cordoned is left out, and the last one takes its rank; it comes back only to end
 * updates, each slot with the rank that it had. */
static void a_cordoned_slot_is_left_out(void **state)
{
    (void)state;
    weft_member *m = make_elastic(4, 4);
    weft_member_cordon(m, 1);
    assert_int_equal(weft_member_usable(m), 3);
    expect_order(m, "0 1 2 3 "); /* until the number changes */
    weft_member_resize(m, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "0 3 2 ");
    assert_int_equal(weft_member_position(m, 3), 1);
    assert_false(weft_member_is_in_view(m, 1));
    weft_member_recount(m, weft_member_epoch(m), 4); /* its updates were broken off */
    expect(m, WEFT_MEMBER_KILL, 1);
    end_slot(m, 1, WEFT_MEMBER_DONE, 5);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "0 1 2 3 ");
    settle(m);
    weft_member_resize(m, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    settle(m);
    end_slot(m, 1, WEFT_MEMBER_LOST, 6); /* it is not missed */
    expect_nothing(m);
    assert_true(weft_member_may_resize(m));
    weft_member_resize(m, 4); /* there are not so many */
    weft_member_prepare(m, 4);
    expect_nothing(m);
    weft_member_cordon(m, 0);
    weft_member_resize(m, 2);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "2 3 ");
    settle(m);
    end_slot(m, 3, WEFT_MEMBER_LOST, 7); /* rank 1 */
    expect(m, WEFT_MEMBER_START, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    settle(m);
    end_slot(m, 2, WEFT_MEMBER_DONE, 8); /* rank 0: all is written */
    assert_false(weft_member_replaces(m));
    weft_member_destroy(m);
}

/* It is to be left out, and does not get as far as that. */
static void a_slot_that_does_not_start_is_left_out(void **state)
{
    (void)state;
    weft_member *m = make_elastic(4, 4);
    end_slot(m, 1, WEFT_MEMBER_LOST, 5);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    weft_member_leave_out(m, 1);
    end_slot(m, 0, WEFT_MEMBER_LOST, 5); /* another one's process */
    expect(m, WEFT_MEMBER_START, 0);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "0 1 2 3 ");
    end_slot(m, 1, WEFT_MEMBER_LOST, 5);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "0 3 2 ");
    assert_int_equal(weft_member_usable(m), 3);
    settle(m);
    weft_member_prepare(m, 4);
    expect_nothing(m);
    end_slot(m, 3, WEFT_MEMBER_LOST, 6);
    expect(m, WEFT_MEMBER_START, 3);
    expect(m, WEFT_MEMBER_VIEW, -1);
    expect_order(m, "0 3 2 ");
    weft_member_destroy(m);
}

/* New ranks prepare beyond the view; the view has them once it is asked for. */
static void new_ranks_prepare_first(void **state)
{
    (void)state;
    weft_member *m = make_elastic(2, 4);
    weft_member_prepare(m, 4);
    expect(m, WEFT_MEMBER_START, 2);
    expect(m, WEFT_MEMBER_START, 3);
    expect_nothing(m); /* no view yet */
    assert_true(weft_member_is_preparing(m, 3) && !weft_member_is_preparing(m, 1));
    assert_true(weft_member_is_ready(m) && weft_member_may_resize(m));
    tell(m, WEFT_MEMBER_IS_PREPARED, 2, 0);
    assert_false(weft_member_is_prepared(m, 4));
    end_slot(m, 1, WEFT_MEMBER_LOST, 5); /* the others go on without them */
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    assert_int_equal(weft_member_count(m), 2);
    settle(m);
    tell(m, WEFT_MEMBER_IS_PREPARED, 3, 0);
    assert_true(weft_member_is_prepared(m, 4));
    weft_member_resize(m, 4);
    expect(m, WEFT_MEMBER_VIEW, -1); /* their processes are there */
    expect_nothing(m);
    settle(m);
    assert_int_equal(weft_member_count(m), 4);
    weft_member_resize(m, 2);
    settle(m);
    for (int k = 2; k < 4; k++) end_slot(m, k, WEFT_MEMBER_DONE, 9);
    weft_member_prepare(m, 3);
    expect(m, WEFT_MEMBER_START, 2);
    end_slot(m, 2, WEFT_MEMBER_LOST, 9); /* it is not missed */
    expect_nothing(m);
    assert_false(weft_member_is_preparing(m, 2));
    weft_member_destroy(m);
}

/* A slot that is to go keeps its rank until a view has fewer; then the last one takes it, and it is
 * the first that is used again. */
static void one_slot_of_a_host_is_left_out(void **state)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member       *m;
    (void)state;
    limits.outside = true;
    assert_int_equal(weft_member_create(3, &limits, &m), WEFT_OK);
    weft_member_enter(m, 1, 3);
    weft_member_leave_out(m, 0);
    weft_member_enter(m, 2, 3);
    assert_int_equal(weft_member_position(m, 0), 0);
    weft_member_enter(m, 3, 2);
    assert_false(weft_member_is_in_view(m, 0));
    assert_int_equal(weft_member_position(m, 2), 0);
    assert_int_equal(weft_member_position(m, 1), 1);
    weft_member_enter(m, 4, 1);
    assert_int_equal(weft_member_position(m, 2), 0);
    weft_member_enter(m, 5, 3);
    assert_int_equal(weft_member_position(m, 0), 2);
    weft_member_leave_out(m, 0); /* the last one */
    weft_member_enter(m, 6, 2);
    assert_int_equal(weft_member_position(m, 0), 2);
    assert_int_equal(weft_member_position(m, 2), 0);
    weft_member_destroy(m);
}

static void the_end_does_not_wait_for_a_view(void **state)
{
    (void)state;
    weft_member *m = make_elastic(1, 2);
    weft_member_resize(m, 2);
    while (weft_member_next(m, &(weft_member_action){0})) continue;
    end_slot(m, 0, WEFT_MEMBER_DONE, 20); /* its last step was under way */
    expect_end(m, "");
    weft_member_destroy(m);
}

/* Views of several hosts: the next one is asked for once, and given. */
static void views_may_come_from_outside(void **state)
{
    weft_member_limits limits = weft_member_default_limits();
    weft_member_action a;
    weft_member       *m;
    (void)state;
    limits.outside = true;
    assert_int_equal(weft_member_create(2, &limits, &m), WEFT_OK);
    expect_nothing(m);
    assert_true(weft_member_is_stopped(m));
    weft_member_enter(m, 3, 2);
    for (int k = 0; k < 2; k++) expect(m, WEFT_MEMBER_START, k);
    expect(m, WEFT_MEMBER_VIEW, -1);
    assert_int_equal(weft_member_epoch(m), 3);
    assert_false(weft_member_is_stopped(m));
    weft_member_enter(m, 3, 2); /* the same again */
    expect_nothing(m);
    for (int k = 0; k < 2; k++) tell(m, WEFT_MEMBER_READY, k, 3);
    assert_true(weft_member_is_ready(m));
    end_slot(m, 1, WEFT_MEMBER_LOST, 7);
    expect(m, WEFT_MEMBER_WANT, -1);
    expect_nothing(m); /* nothing is started before the view is decided */
    weft_member_leave(m, 1);
    assert_true(weft_member_deadline_s(m) > 0);
    tell(m, WEFT_MEMBER_LEFT, 0, 3);
    expect_nothing(m); /* it was asked for */
    assert_true(weft_member_is_stopped(m));
    weft_member_enter(m, 5, 2);
    expect(m, WEFT_MEMBER_START, 1);
    expect(m, WEFT_MEMBER_VIEW, -1);
    assert_true(weft_member_deadline_s(m) <= 0);
    for (int k = 0; k < 2; k++) tell(m, WEFT_MEMBER_LEFT, k, 5); /* a peer elsewhere */
    expect(m, WEFT_MEMBER_WANT, -1);
    expect_nothing(m);
    weft_member_enter(m, 6, 1); /* the second is of no use */
    expect(m, WEFT_MEMBER_VIEW, -1);
    end_slot(m, 1, WEFT_MEMBER_DONE, 7);
    expect_nothing(m);
    tell(m, WEFT_MEMBER_READY, 0, 6);
    assert_true(weft_member_is_ready(m));
    for (uint32_t epoch = 7; epoch < 9; epoch++) { /* it prepares to be in one again */
        weft_member_prepare(m, 2);
        expect(m, WEFT_MEMBER_START, 1);
        expect_nothing(m);
        tell(m, WEFT_MEMBER_IS_PREPARED, 1, 0);
        assert_true(weft_member_is_prepared(m, 2));
        weft_member_enter(m, epoch, epoch == 7 ? 1 : 2);
        if (epoch == 7) expect(m, WEFT_MEMBER_KILL, 1); /* another view came first */
        expect(m, WEFT_MEMBER_VIEW, -1);
        expect_nothing(m);
        if (epoch == 7) end_slot(m, 1, WEFT_MEMBER_LOST, 8);
        for (int k = 0; k < weft_member_count(m); k++)
            tell(m, WEFT_MEMBER_READY, k, epoch);
        assert_true(weft_member_is_ready(m));
    }
    end_slot(m, 0, WEFT_MEMBER_DONE, 9);
    while (weft_member_next(m, &a)) assert_int_not_equal(a.kind, WEFT_MEMBER_WANT);
    assert_false(weft_member_replaces(m));
    weft_member_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_may_come_from_outside),
        cmocka_unit_test(one_slot_of_a_host_is_left_out),
        cmocka_unit_test(ranks_come_and_go),
        cmocka_unit_test(failed_growth_is_the_old_view),
        cmocka_unit_test(fewer_may_be_of_use),
        cmocka_unit_test(more_may_be_needed_once_more),
        cmocka_unit_test(a_cordoned_slot_is_left_out),
        cmocka_unit_test(a_slot_that_does_not_start_is_left_out),
        cmocka_unit_test(new_ranks_prepare_first),
        cmocka_unit_test(the_end_does_not_wait_for_a_view),
        cmocka_unit_test(a_lost_rank_is_replaced),
        cmocka_unit_test(ranks_that_all_leave_get_a_view),
        cmocka_unit_test(three_losses_in_ten_steps_are_the_end),
        cmocka_unit_test(errors_and_signals_end_the_job),
        cmocka_unit_test(what_is_done_is_not_done_again),
        cmocka_unit_test(every_schedule_ends),
    };
    return cmocka_run_group_tests_name("member", tests, NULL, NULL);
}
