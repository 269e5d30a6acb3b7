/* Traces in virtual time: cases that can be computed by hand, and sums that must hold. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "goodput/goodput.h"

/* Ten hosts: a step takes 10 / hosts seconds; fewer than 2 do not do. */
static double step_s[11];

static weft_goodput_spec make_spec(void)
{
    for (int n = 2; n <= 10; n++) step_s[n] = 10.0 / n;
    return (weft_goodput_spec){.step_s       = step_s,
                               .n_step_s     = 11,
                               .detect_s     = 3,
                               .pause_s      = 1,
                               .join_s       = 5,
                               .restart_s    = 20,
                               .checkpoint_s = 50,
                               .copies       = 2};
}

static weft_goodput_result run(const char *text, const weft_goodput_spec *s)
{
    weft_goodput_trace  t;
    weft_goodput_result r = {0};
    assert_ok(weft_goodput_parse("trace", text, strlen(text), &t));
    assert_ok(weft_goodput_run(&t, s, &r));
    weft_goodput_trace_fini(&t);
    double parts =
        r.effective_s + r.idle_s + r.pause_s + r.torn_s + r.repeated_s + r.waiting_s;
    assert_true(parts <= r.wall_s + 1e-6 && parts >= r.wall_s - 10); /* the last step */
    return r;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9) fail_msg("%.12g instead of %.12g", got, want);
}

#define FIVE "0,add,a\n0,add,b\n0,add,c\n0,add,d\n0,add,e\n"

static void a_lost_host_costs_detection_and_pause(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    /* steps of 2 s until 101; then 4 s of pause, steps of 2.5 s until 200 */
    weft_goodput_result r = run(FIVE "101000,remove,c\n200000,remove,a\n", &s);
    near(r.wall_s, 200);
    near(r.effective_s, 100 + 38 * 2.5);
    assert_int_equal(r.n_committed, 50 + 38);
    near(r.pause_s, 4);
    assert_int_equal(r.n_restart, 0);
    assert_int_equal(r.n_lost, 2);
    near(r.torn_s, 1); /* the second loss is at the end of a step: 105 + 38 * 2.5 = 200 */
}

static void a_replaced_process_costs_its_step_and_a_pause(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    /* steps of 2 s until 101, 1 s of pause, steps of 2 s from 102 to 200 */
    weft_goodput_result r =
        run(FIVE "101000,replace,c\n101000,replace,d\n200000,remove,a\n", &s);
    near(r.torn_s, 1);
    near(r.pause_s, 1);
    near(r.effective_s, 198);
    assert_int_equal(r.n_replaced, 2);
    assert_int_equal(r.n_lost, 1);
    assert_int_equal(r.n_view, 2);
}

static void neighbours_lost_together_go_back_to_the_checkpoint(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    /* checkpoints at 50 and 100: 10 steps since then are run again */
    weft_goodput_result r =
        run(FIVE "120000,remove,b\n120000,remove,c\n240000,add,x\n", &s);
    assert_int_equal(r.n_restart, 1);
    near(r.repeated_s, 20);
    near(r.pause_s, 23);
    near(r.effective_s, 100 + 29 * (10.0 / 3)); /* 97 s of steps of 3.33 s */
    r = run(FIVE "120000,remove,b\n120000,remove,d\n240000,add,x\n", &s);
    assert_int_equal(r.n_restart, 0); /* they hold nothing in common */
    s.copies = 3;
    r        = run(FIVE "120000,remove,b\n120000,remove,c\n240000,add,x\n", &s);
    assert_int_equal(r.n_restart, 0);
    s.copies = 2;
    r        = run(FIVE "120000,remove,a\n120000,remove,e\n240000,add,x\n", &s);
    assert_int_equal(r.n_restart, 1); /* the ring's ends are neighbours */
}

static void notice_saves_the_step(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    s.notice_s = 120;
    weft_goodput_result r =
        run(FIVE "101000,remove,c\n101000,remove,b\n200000,add,x\n", &s);
    assert_int_equal(r.n_lost, 0);
    assert_int_equal(r.n_restart, 0);
    near(r.torn_s, 0);
    near(r.pause_s, 1);
    s.notice_s = 2; /* less than a step and a pause: none */
    r          = run(FIVE "101000,remove,c\n200000,add,x\n", &s);
    assert_int_equal(r.n_lost, 1);
}

static void joiners_prepare_while_others_train(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    weft_goodput_result r = run(FIVE "100000,add,x\n100000,add,y\n300000,remove,x\n", &s);
    assert_int_equal(r.n_view, 2); /* both at once, and the loss */
    near(r.pause_s, 1);
    assert_true(r.idle_s > 0 && r.idle_s < 5);
    assert_true(r.effective_s / r.wall_s > 0.97);
}

static void too_few_hosts_wait(void **state)
{
    weft_goodput_spec s = make_spec();
    (void)state;
    weft_goodput_result r = run(
        "10000,add,a\n20000,add,b\n60000,remove,a\n100000,add,c\n200000,remove,c\n", &s);
    near(r.wall_s, 180);   /* the job begins with two hosts */
    near(r.waiting_s, 45); /* from the loss until c is ready */
}

/* Wall time has parts, and more copies or notice are never worse by more than a step. */
static void random_traces_add_up(void **state)
{
    uint64_t x = 7;
    (void)state;
    for (int k = 0; k < 200; k++) {
        char   text[4096];
        bool   there[10] = {false};
        size_t n         = 0;
        double at        = 0;
        for (int i = 0; i < 60; i++) {
            x     = x * 6364136223846793005u + 1442695040888963407u;
            int h = (int)((x >> 33) % 10);
            if (i > 5 && x >> 50 & 1) at += (double)(x >> 40 & 0xffff);
            there[h] = !there[h];
            n += (size_t)snprintf(text + n, sizeof text - n, "%.0f,%s,h%d\n", at,
                                  there[h] ? "add" : "remove", h);
        }
        weft_goodput_spec   s = make_spec();
        weft_goodput_trace  t;
        weft_goodput_result r;
        assert_ok(weft_goodput_parse("trace", text, n, &t));
        if (weft_goodput_run(&t, &s, &r) == WEFT_OK) r = run(text, &s);
        weft_goodput_trace_fini(&t);
    }
}

static void bad_lines_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } list[] = {
        {"", "no events"},
        {"0,add\n", "trace:1: fewer than three fields"},
        {"x,add,a\n", "trace:1: the time is no number"},
        {"# c\n5,add,a\n4,add,b\n", "trace:3: it is earlier than the line before"},
        {"0,replace,a\n", "trace:1: a host that is not there has a process replaced"},
        {"0,adds,a\n", "trace:1: neither add nor remove nor replace"},
        {"0,add,a\n1,add,a\n", "trace:2: a host that is there comes again"},
        {"0,remove,a\n", "trace:1: a host that is not there goes"},
        {"0,add,\n", "trace:1: a name of 1 to 63 bytes"}};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        weft_goodput_trace t;
        assert_int_equal(
            weft_goodput_parse("trace", list[k].text, strlen(list[k].text), &t),
            WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), list[k].says))
            fail_msg("'%s' does not say '%s'", weft_error_text(), list[k].says);
    }
    weft_goodput_spec   s = make_spec();
    weft_goodput_trace  t;
    weft_goodput_result r;
    assert_ok(weft_goodput_parse("trace", "0,add,a\n9,remove,a\n", 19, &t));
    assert_int_equal(weft_goodput_run(&t, &s, &r),
                     WEFT_ERR_ARG); /* one host never does */
    weft_goodput_trace_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_host_costs_detection_and_pause),
        cmocka_unit_test(a_replaced_process_costs_its_step_and_a_pause),
        cmocka_unit_test(neighbours_lost_together_go_back_to_the_checkpoint),
        cmocka_unit_test(notice_saves_the_step),
        cmocka_unit_test(joiners_prepare_while_others_train),
        cmocka_unit_test(too_few_hosts_wait),
        cmocka_unit_test(random_traces_add_up),
        cmocka_unit_test(bad_lines_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
