/* A line of incidents.jsonl: what was lost, what was decided, phases that add up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <string.h>

#include "launch/incident.h"

static const weft_incident lost = {.rank      = 2,
                                   .pid       = 77,
                                   .epoch     = 4,
                                   .step      = 9,
                                   .cause     = "kill",
                                   .host      = "h",
                                   .what      = "killed by signal 9 (SIGKILL)",
                                   .noticed   = "waitpid",
                                   .wall_s    = 1000.5,
                                   .noticed_s = 10};

static void a_job_that_goes_on(void **state)
{
    (void)state;
    weft_text             t = {0};
    weft_incident_outcome o = {.decided     = "replace",
                               .why         = "",
                               .epoch       = 5,
                               .step        = 10,
                               .n_rank      = 3,
                               .plan        = "plans/b.json",
                               .was         = {4, 2, 4, "plans/a.json"},
                               .decided_s   = 10.001,
                               .at_s        = {10.002, 10.004, 10.005, 10.015, 10.016},
                               .committed_s = 10.1,
                               .move        = {.bytes       = 5000000000,
                                               .sent        = 1,
                                               .predicted_s = 2.5,
                                               .seconds     = 3,
                                               .n_batch     = 7,
                                               .peak_bytes  = 6000000000,
                                               .made_bytes  = 7000000000,
                                               .learned     = 8000000000}};
    weft_incident_print(&lost, &o, &t);
    assert_string_equal(
        t.s, "{\"time\": 1000.500, \"rank\": 2, \"pid\": 77, \"epoch\": 4, \"step\": 9, "
             "\"host\": \"h\", \"cause\": \"kill\", \"what\": \"killed by signal 9 "
             "(SIGKILL)\", \"noticed\": \"waitpid\", "
             "\"decided\": \"replace\", \"next_epoch\": 5, \"next_step\": 10, "
             "\"ranks\": 3, \"plan\": \"plans/b.json\", \"view\": {\"epoch\": 4, "
             "\"first_step\": 2, \"ranks\": 4, \"plan\": \"plans/a.json\"}, "
             "\"move\": {\"bytes\": 5000000000, \"sent\": 1, \"predicted_s\": 2.5, "
             "\"seconds\": 3, \"batches\": 7, \"peak_bytes\": 6000000000}, "
             "\"learned\": 8000000000, \"made_bytes\": 7000000000, "
             "\"ms\": {\"decide\": 1.000, \"leave\": 1.000, \"start\": 2.000, "
             "\"connect\": 1.000, \"build\": 10.000, \"move\": 1.000, \"step\": 84.000, "
             "\"total\": 100.000}}\n");
    weft_text_fini(&t);
}

/* From the last sign of life until it was noticed; not in the total. */
static void when_it_was_noticed(void **state)
{
    weft_text             t    = {0};
    weft_incident         late = lost;
    weft_incident_outcome o    = {
           .decided = "shrink", .why = "", .decided_s = 10.5, .committed_s = 12};
    weft_incident_phase phase[WEFT_INCIDENT_MAX_PHASE];
    (void)state;
    late.seen_s = 7.75;
    weft_incident_print(&late, &o, &t);
    assert_non_null(strstr(t.s, "\"ms\": {\"notice\": 2250.000, \"decide\": 500.000, "));
    assert_non_null(strstr(t.s, ", \"total\": 2000.000}}\n"));
    int n = weft_incident_find_phases(&late, &o, phase);
    assert_int_equal(n, WEFT_INCIDENT_MAX_PHASE);
    assert_string_equal(phase[0].name, "notice");
    assert_true(phase[0].seconds == 2.25 && phase[n - 1].seconds == 2);
    double sum = 0;
    for (int k = 1; k < n - 1; k++) sum += phase[k].seconds;
    assert_true(sum == phase[n - 1].seconds);
    o.committed_s = 0; /* it is not over */
    assert_int_equal(weft_incident_find_phases(&late, &o, phase), 2);
    weft_text_fini(&t);
}

static void a_job_that_ends(void **state)
{
    (void)state;
    weft_text             t = {0};
    weft_incident_outcome o = {.decided = "end", .why = "too \"often\""};
    weft_incident_print(&lost, &o, &t);
    assert_non_null(strstr(
        t.s, "\"decided\": \"end\", \"why\": \"too \\\"often\\\"\", \"ms\": {}}\n"));
    weft_text_fini(&t);
}

/* The first rank that leaves an epoch says why; one that does not come is described by it. */
static void why_others_have_left(void **state)
{
    weft_incident_left left     = {0};
    char               what[40] = "killed";
    (void)state;
    weft_incident_add_left(&left, what, sizeof what);
    assert_string_equal(what, "killed");
    weft_incident_note_left(&left, 3, "rank 1 is silent");
    weft_incident_note_left(&left, 3, "rank 0 gave up");
    weft_incident_note_left(&left, 4, "");
    weft_incident_add_left(&left, what, sizeof what);
    assert_string_equal(what, "killed; rank 1 is silent");
    weft_incident_note_left(&left, 4, "all_reduce 'grads' of step 7; missing: 2");
    weft_incident_add_left(&left, what, sizeof what);
    assert_int_equal(strlen(what), sizeof what - 1);
}

static void causes_of_signals(void **state)
{
    static const struct {
        int         signal;
        bool        oom;
        const char *cause;
    } list[] = {{0, true, "exit"},        {SIGKILL, false, "kill"},
                {SIGKILL, true, "oom"},   {SIGBUS, false, "bus"},
                {SIGSEGV, true, "crash"}, {SIGABRT, false, "crash"},
                {SIGTERM, true, "kill"}};
    (void)state;
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        assert_string_equal(weft_incident_find_cause(list[k].signal, list[k].oom),
                            list[k].cause);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_goes_on), cmocka_unit_test(when_it_was_noticed),
        cmocka_unit_test(a_job_that_ends),    cmocka_unit_test(why_others_have_left),
        cmocka_unit_test(causes_of_signals),
    };
    return cmocka_run_group_tests_name("incident", tests, NULL, NULL);
}
