/* Prometheus text: values with their labels, with and without a status of the job. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "launch/exporter.h"
#include "support/files.h"

static const weft_exporter_rank  ranks[]  = {{true, 7}, {false, 6}};
static const weft_exporter_cause causes[] = {{"kill", "replace", 2},
                                             {"hang", "replace", 1}};
static const weft_incident_phase phases[] = {{"notice", 1.5}, {"total", 0.25}};

static weft_exporter_job make_job(const char *folder)
{
    return (weft_exporter_job){.job     = "a\"b\\c\n",
                               .host    = "h",
                               .folder  = folder,
                               .now_s   = 1010,
                               .epoch   = 3,
                               .n_host  = 4,
                               .n_rank  = 2,
                               .n_cause = 2,
                               .rank    = ranks,
                               .cause   = causes};
}

static void expect(const weft_text *t, const char *line)
{
    if (!strstr(t->s, line)) fail_msg("no %s in\n%s", line, t->s);
}

static void write_status(const char *text)
{
    FILE *f = fopen(test_files_path("status.json"), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void what_the_launcher_knows(void **state)
{
    weft_text         t = {0};
    weft_exporter_job j = make_job("");
    (void)state;
    weft_exporter_print(&j, &t);
    expect(&t,
           "# TYPE weft_step gauge\nweft_step{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 7\n");
    expect(&t, "weft_view_epoch{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 3\n");
    expect(&t, ",host=\"h\",rank=\"0\"} 1\n");
    expect(&t, "weft_rank_alive{job=\"a\\\"b\\\\c\\n\",host=\"h\",rank=\"1\"} 0\n");
    expect(&t, "# TYPE weft_incidents_total counter\n");
    expect(&t, ",cause=\"kill\",level=\"replace\"} 2\n");
    expect(&t, "weft_hosts{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 4\n");
    assert_null(strstr(t.s, "weft_loss"));
    assert_null(strstr(t.s, "weft_recovery_seconds")); /* no incident is over */
    assert_null(strstr(t.s, "weft_restarts_total"));
    weft_text_fini(&t);
}

static void of_a_program(void **state)
{
    weft_text            t = {0};
    weft_exporter_counts c = {0};
    (void)state;
    for (int k = 0; k < 3; k++)
        weft_exporter_count(&c, k == 1 ? "exit" : "hang", "restart");
    weft_exporter_count(&c, "hang", "end");
    weft_exporter_job j = make_job("");
    j.is_program        = true;
    j.n_restart         = 3;
    j.n_cause           = c.n;
    j.cause             = c.of;
    weft_exporter_print(&j, &t);
    expect(&t, "# TYPE weft_restarts_total counter\nweft_restarts_total{job=\"a\\\"b\\\\c"
               "\\n\",host=\"h\"} 3\n");
    expect(&t, ",cause=\"hang\",level=\"restart\"} 2\n");
    expect(&t, ",cause=\"exit\",level=\"restart\"} 1\n");
    expect(&t, ",cause=\"hang\",level=\"end\"} 1\n");
    assert_null(strstr(t.s, "weft_step")); /* its steps are not known */
    assert_null(strstr(t.s, "weft_rank_step"));
    expect(&t, ",host=\"h\",rank=\"1\"} 0\n");
    weft_text_fini(&t);
}

static void what_ranks_know(void **state)
{
    char              folder[512];
    weft_text         t = {0};
    weft_exporter_job j;
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_files_path("status.json"));
    *strrchr(folder, '/') = 0;
    j                     = make_job(folder);
    j.n_phase             = 2;
    j.phase               = phases;
    write_status("{\"step\": 9, \"loss\": 2.5, \"step_s\": null, \"saved_step\": 5, "
                 "\"saved_time\": 1000, \"copies\": 2}");
    weft_exporter_print(&j, &t);
    expect(&t, "weft_copies{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 2\n");
    expect(&t, "# TYPE weft_recovery_seconds gauge\n");
    expect(&t, ",host=\"h\",phase=\"notice\"} 1.5\n");
    expect(&t, ",host=\"h\",phase=\"total\"} 0.25\n");
    expect(&t, ",host=\"h\"} 9\n");
    expect(&t, "weft_loss{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 2.5\n");
    expect(&t, "weft_checkpoint_age_seconds{job=\"a\\\"b\\\\c\\n\",host=\"h\"} 10\n");
    assert_null(strstr(t.s, "weft_step_seconds"));
    weft_text_fini(&t);
    static const char *const bad[] = {"", "[1]", "{\"loss\": \"x\"}", "{\"loss\":"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        t = (weft_text){0};
        write_status(bad[k]);
        weft_exporter_print(&j, &t);
        expect(&t, ",host=\"h\"} 7\n");
        assert_null(strstr(t.s, "weft_loss"));
        weft_text_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_launcher_knows),
        cmocka_unit_test(what_ranks_know),
        cmocka_unit_test(of_a_program),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
