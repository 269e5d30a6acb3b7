/* plugin/cuda/pace.c: how long a host thread sleeps while a graph runs, on a device of known
 * times. */
#include "support/test.h"

#include "pace.h"

/* A run of a graph that takes run_s; lazy: only while it is waited for.  Returns how long the host
 * was asleep; *late_s: how long after the end of the run it noticed that. */
static double run_graph(weft_cuda_pace *p, double *now_s, double run_s, bool lazy,
                        double *late_s)
{
    weft_cuda_wait w = {.begin_s = *now_s};
    w.wake_s         = weft_cuda_pace_wake(p, w.begin_s);
    w.asked_s        = w.wake_s > 0 ? w.wake_s + 80e-6 : w.begin_s; /* timers are late */
    double end       = (lazy ? w.asked_s : w.begin_s) + run_s;
    w.done_s         = (end > w.asked_s ? end : w.asked_s) + 10e-6;
    *late_s          = w.done_s - end;
    *now_s           = w.done_s;
    weft_cuda_pace_note(p, &w);
    return w.wake_s > 0 ? w.wake_s - w.begin_s : 0;
}

static void sleeps_most_of_a_run(void **state)
{
    weft_cuda_pace all[WEFT_CUDA_MAX_PACE] = {{0}};
    double         now                     = 1000, late, asleep;
    (void)state;
    for (int i = 0; i < 100; i++) {
        asleep = run_graph(weft_cuda_pace_of(all, 7), &now, 0.050 + 0.002 * (i % 3),
                           false, &late);
        assert_true(late < 20e-6);
        assert_true(i < WEFT_CUDA_PACE_RUNS ? asleep == 0
                                            : asleep > 0.041 && asleep < 0.045);
        /* another graph of the stream, too short to sleep */
        assert_true(run_graph(weft_cuda_pace_of(all, 9), &now, 0.0012, false, &late) ==
                    0);
    }
}

static void leaves_a_millisecond(void **state)
{
    weft_cuda_pace p   = {.capture = 1};
    double         now = 0.5, late, asleep = 0;
    (void)state;
    for (int i = 0; i < 10; i++) asleep = run_graph(&p, &now, 0.003, false, &late);
    assert_true(asleep > 0.0015 && asleep < 0.0021);
}

/* Runs that get shorter are followed within some steps, and one slow run changes nothing. */
static void follows_shorter_runs(void **state)
{
    weft_cuda_pace p   = {.capture = 1};
    double         now = 0.5, late, lost = 0;
    (void)state;
    for (int i = 0; i < 10; i++) run_graph(&p, &now, 0.100, false, &late);
    for (int i = 0; i < 20; i++) {
        run_graph(&p, &now, 0.050, false, &late);
        lost += late;
        if (i > 8) assert_true(late < 20e-6);
    }
    assert_true(lost < 0.150);
    run_graph(&p, &now, 1, false, &late);
    for (int i = 0; i < 10; i++) {
        run_graph(&p, &now, 0.050, false, &late);
        assert_true(late < 20e-6);
    }
}

/* A device that works only while it is waited for: sleeping is given up. */
static void gives_up_in_vain(void **state)
{
    weft_cuda_pace p   = {.capture = 1};
    double         now = 0.5, late, asleep = 0, begin = 0;
    (void)state;
    for (int i = 0; i < 40; i++) {
        if (i == 20) begin = now;
        asleep = run_graph(&p, &now, 0.020, true, &late);
        if (i >= 20) assert_true(asleep == 0);
    }
    assert_true(now - begin < 20 * 0.0201);
}

static void many_graphs(void **state)
{
    weft_cuda_pace all[WEFT_CUDA_MAX_PACE] = {{0}};
    (void)state;
    for (int64_t k = 1; k < 30; k++) weft_cuda_pace_of(all, k)->n = k;
    for (int64_t k = 29; k > 29 - WEFT_CUDA_MAX_PACE; k--)
        assert_int_equal(weft_cuda_pace_of(all, k)->n, k);
    assert_int_equal(weft_cuda_pace_of(all, 3)->n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleeps_most_of_a_run), cmocka_unit_test(leaves_a_millisecond),
        cmocka_unit_test(follows_shorter_runs), cmocka_unit_test(gives_up_in_vain),
        cmocka_unit_test(many_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
