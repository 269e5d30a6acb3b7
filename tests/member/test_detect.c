/* Who is lost without having ended: by hand, with the times of a machine that is slow, stopped or
 * overloaded. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "member/detect.h"

enum {
    N = 3
};

/* Three ranks that beat, and a clock. */
typedef struct scene {
    weft_detect       *d;
    double             now_s, load;
    weft_detect_sample s[N];
    bool               mute[N]; /* it does not beat */
    weft_detect_found  found[N];
} scene;

static void open_scene(scene *x, double timeout_s, weft_detect_on_stop on_stop)
{
    *x = (scene){.now_s = 100, .load = 1};
    assert_int_equal(
        weft_detect_create(N, &(weft_detect_options){timeout_s, on_stop}, &x->d),
        WEFT_OK);
    for (int k = 0; k < N; k++)
        x->s[k] = (weft_detect_sample){.there = true, .running = true};
}

static int look_after(scene *x, double seconds)
{
    x->now_s += seconds;
    for (int k = 0; k < N; k++)
        if (!x->mute[k] && !x->s[k].stopped) x->s[k].beat++;
    return weft_detect_look(x->d, x->now_s, x->load, x->s, x->found);
}

/* Looks for so long, or until a rank is found. */
static int pass(scene *x, double seconds)
{
    int n = 0;
    for (double end = x->now_s + seconds; x->now_s < end && !n;) n = look_after(x, 0.1);
    return n;
}

static void no_rank_fails_without_cause(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 1, WEFT_DETECT_STOP_TIMEOUT);
    assert_int_equal(pass(&x, 20), 0);
    x.mute[1] = true; /* it computes for long: it uses a core */
    for (int k = 0; k < 100; k++) {
        x.s[1].cpu_s += 0.1;
        assert_int_equal(look_after(&x, 0.1), 0);
    }
    x.s[1].on_disk = true;
    assert_int_equal(pass(&x, 5), 0);
    x.s[1].on_disk = false;
    x.s[1].running = false; /* it starts, or has left */
    assert_int_equal(pass(&x, 5), 0);
    x.s[1].there = false;
    assert_int_equal(pass(&x, 5), 0);
    weft_detect_destroy(x.d);
}

static void silence_while_others_go_on(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 1, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.mute[2]    = true;
    double begin = x.now_s;
    assert_int_equal(pass(&x, 5), 1);
    assert_int_equal(x.found[0].slot, 2);
    assert_int_equal(x.found[0].cause, WEFT_DETECT_SILENT);
    assert_true(x.now_s - begin > 0.95 && x.now_s - begin < 1.35);
    x.s[2].there = false; /* replaced: its time begins anew */
    look_after(&x, 0.1);
    x.s[2].there = true;
    assert_int_equal(pass(&x, 0.8), 0);
    assert_int_equal(pass(&x, 0.5), 1);
    x.mute[0] = x.mute[1] =
        true; /* no rank makes progress: the machine may be the cause */
    weft_detect_forgive(x.d);
    assert_int_equal(pass(&x, 5), 0);
    weft_detect_destroy(x.d);
}

static void load_and_waiting_for_a_core_excuse(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 1, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.mute[0] = true;
    x.load    = 4;
    assert_int_equal(pass(&x, 3.8), 0);
    assert_int_equal(pass(&x, 0.6), 1);
    weft_detect_forgive(x.d);
    x.load = 1;
    for (int k = 0; k < 50; k++) { /* runnable, without a core */
        x.s[0].wait_s += 0.1;
        assert_int_equal(look_after(&x, 0.1), 0);
    }
    assert_int_equal(pass(&x, 1.5), 1);
    weft_detect_destroy(x.d);
}

static void a_stalled_observer_marks_no_rank(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 1, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.mute[1]      = true;
    x.s[1].begun_s = x.now_s, x.s[1].longest_s = 0.01;
    x.s[2].stopped = true;
    for (int k = 0; k < 4; k++) assert_int_equal(look_after(&x, 30), 0);
    assert_true(pass(&x, 3) > 0); /* it looks again */
    weft_detect_destroy(x.d);
}

static void a_rank_stopped_alone(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 1, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.s[0].stopped = true;
    x.s[0].running = false; /* wherever it is */
    assert_int_equal(pass(&x, 0.8), 0);
    assert_int_equal(pass(&x, 0.5), 1);
    assert_int_equal(x.found[0].cause, WEFT_DETECT_STOPPED);
    x.s[0].stopped = false;
    assert_int_equal(pass(&x, 2), 0);
    weft_detect_destroy(x.d);
    open_scene(&x, 10, WEFT_DETECT_STOP_REPLACE);
    pass(&x, 1);
    x.s[0].stopped = true;
    assert_int_equal(look_after(&x, 0.04), 0); /* others may stop as well */
    assert_int_equal(pass(&x, 0.3), 1);
    weft_detect_destroy(x.d);
    open_scene(&x, 1, WEFT_DETECT_STOP_WAIT);
    pass(&x, 1);
    x.s[0].stopped = true;
    assert_int_equal(pass(&x, 100), 0);
    x.s[0].stopped = false;
    x.mute[0]      = true; /* it goes on, and its silence counts from now */
    assert_int_equal(pass(&x, 0.8), 0);
    assert_int_equal(pass(&x, 0.5), 1);
    weft_detect_destroy(x.d);
}

static void all_stopped_is_no_failure(void **state)
{
    static const weft_detect_on_stop list[] = {
        WEFT_DETECT_STOP_TIMEOUT, WEFT_DETECT_STOP_REPLACE, WEFT_DETECT_STOP_WAIT};
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene x;
        open_scene(&x, 1, list[i]);
        pass(&x, 1);
        for (int k = 0; k < N; k++) x.s[k].begun_s = x.now_s, x.s[k].longest_s = 0.02;
        for (int k = 0; k < N; k++) { /* one after another */
            x.s[k].stopped = true;
            assert_int_equal(look_after(&x, 0.01), 0);
        }
        assert_int_equal(pass(&x, 100), 0);
        for (int k = 0; k < N; k++) {
            x.s[k].stopped = false;
            assert_int_equal(look_after(&x, 0.01), 0);
        }
        for (int k = 0; k < N; k++) x.s[k].begun_s = x.s[k].longest_s = 0;
        assert_int_equal(pass(&x, 3), 0);
        weft_detect_destroy(x.d);
    }
}

/* The agent runs, so the host is not stopped. */
static void the_only_rank_stopped(void **state)
{
    static const weft_detect_on_stop list[] = {
        WEFT_DETECT_STOP_TIMEOUT, WEFT_DETECT_STOP_REPLACE, WEFT_DETECT_STOP_WAIT};
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene x;
        open_scene(&x, 1, list[i]);
        for (int k = 1; k < N; k++) x.s[k].there = false;
        pass(&x, 1);
        x.s[0].stopped = true;
        assert_int_equal(pass(&x, 0.8), 0);
        assert_int_equal(look_after(&x, 60), 0); /* the agent was stopped, too */
        assert_int_equal(pass(&x, 1), list[i] != WEFT_DETECT_STOP_WAIT);
        weft_detect_destroy(x.d);
    }
}

static void an_instruction_that_hangs(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 10, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.s[1].begun_s = x.now_s; /* for the first time: how long it takes is not known */
    assert_int_equal(pass(&x, 60), 0);
    x.s[1].begun_s   = x.now_s;
    x.s[1].longest_s = 0.01;
    assert_int_equal(pass(&x, 0.8), 0);
    assert_int_equal(pass(&x, 0.4), 1); /* another stream of it beats */
    assert_int_equal(x.found[0].cause, WEFT_DETECT_HANG);
    assert_true(x.found[0].limit_s == 1);
    x.s[1].begun_s   = x.now_s;
    x.s[1].longest_s = 0.5;
    x.load           = 2;
    assert_int_equal(pass(&x, 7.8), 0);
    assert_int_equal(pass(&x, 0.5), 1); /* 8 x 0.5 s x 2 */
    x.s[1].begun_s = x.now_s;
    for (int k = 0; k < 120; k++) { /* it has half a core */
        x.s[1].wait_s += 0.05;
        assert_int_equal(look_after(&x, 0.1), 0);
    }
    x.s[1].begun_s = x.now_s; /* the next one */
    assert_int_equal(pass(&x, 7.8), 0);
    x.s[1].begun_s = x.now_s; /* another rank was lost, and it does not leave the view */
    x.s[1].running = false;
    assert_int_equal(pass(&x, 8.3), 1);
    x.s[1].running   = true;
    x.s[1].begun_s   = x.now_s;
    x.s[1].longest_s = 0.01;
    x.s[1].first     = true; /* as others of its kind took */
    assert_int_equal(pass(&x, 4.8), 0);
    assert_int_equal(pass(&x, 0.5), 1);
    weft_detect_destroy(x.d);
}

static bool works(weft_detect_sample was, weft_detect_sample is)
{
    double used_s;
    return weft_detect_works(&was, &is, 1, &used_s);
}

/* A process that is waited for: what it does, and not what it says. */
static void a_core_is_a_sign_of_life(void **state)
{
    weft_detect_sample was = {.cpu_s = 5, .wait_s = 7}, is = was;
    double             used_s;
    (void)state;
    assert_false(works(was, was));
    is.beat = 9; /* it waits for its peers */
    assert_false(works(was, is));
    is.cpu_s = 5.01; /* and looks at the time */
    assert_false(works(was, is));
    is.cpu_s = 5.05;
    assert_true(works(was, is));
    assert_true(weft_detect_works(&was, &is, 1, &used_s) && used_s > 0.04 &&
                used_s < 0.06);
    is        = was;
    is.wait_s = 7.2;
    assert_true(works(was, is));
    is            = was;
    is.wants_core = true; /* it had none before, perhaps */
    assert_false(works(was, is));
    was.wants_core = true;
    assert_true(works(was, is));
    was = is   = (weft_detect_sample){.on_disk = true};
    is.stopped = true;
    assert_true(works(was, was));
    assert_false(works(was, is));
}

/* The floor of 1 s does not depend on load: what counts is the time that a rank had a core, or did
 * not want one. */
static void an_overloaded_machine_marks_no_rank(void **state)
{
    scene x;
    (void)state;
    open_scene(&x, 10, WEFT_DETECT_STOP_TIMEOUT);
    pass(&x, 1);
    x.load            = 20;
    x.s[1].longest_s  = 0.002;
    x.s[1].begun_s    = x.now_s;
    x.s[1].wants_core = true; /* in the queue: the kernel has not counted that yet */
    for (int k = 0; k < 40; k++) assert_int_equal(look_after(&x, 0.1), 0);
    x.s[1].begun_s = x.now_s;
    for (int k = 0; k < 100;
         k++) { /* a twentieth of a core, by several threads in turn */
        x.s[1].cpu_s += 0.005;
        x.s[1].wait_s += 0.01;
        assert_int_equal(look_after(&x, 0.1), 0);
    }
    x.s[1].begun_s = x.now_s; /* the next one has a core, and does not end */
    for (int k = 0; k < 9; k++) {
        x.s[1].cpu_s += 0.1;
        assert_int_equal(look_after(&x, 0.1), 0);
    }
    x.s[1].cpu_s += 0.3;
    assert_int_equal(look_after(&x, 0.3), 1);
    assert_int_equal(x.found[0].cause, WEFT_DETECT_HANG);
    x.s[1].wants_core = false; /* or sleeps, on a machine that is overloaded */
    x.s[1].begun_s    = x.now_s;
    assert_int_equal(pass(&x, 0.8), 0);
    assert_int_equal(pass(&x, 0.5), 1);
    weft_detect_destroy(x.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_fails_without_cause),
        cmocka_unit_test(silence_while_others_go_on),
        cmocka_unit_test(load_and_waiting_for_a_core_excuse),
        cmocka_unit_test(a_stalled_observer_marks_no_rank),
        cmocka_unit_test(a_rank_stopped_alone),
        cmocka_unit_test(all_stopped_is_no_failure),
        cmocka_unit_test(the_only_rank_stopped),
        cmocka_unit_test(an_instruction_that_hangs),
        cmocka_unit_test(an_overloaded_machine_marks_no_rank),
        cmocka_unit_test(a_core_is_a_sign_of_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
