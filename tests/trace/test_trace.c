/* Traces read back, side by side, and constants found again from one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/cost.h"
#include "trace/trace.h"

static weft_cluster *parse(const char *text)
{
    weft_cluster *c;
    if (weft_cluster_parse("c", text, strlen(text), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static const char truth[] = "device:\n  - {name: d, flops: {f32: 5e10}, efficiency: 0.8, "
                            "mem_Bps: 7e9, mem_bytes: "
                            "1000, launch_s: 3e-06}\n"
                            "link:\n  - {name: l, alpha_s: 2e-05, Bps: 3e9}\n"
                            "node:\n  - {device: d, n_device: 2, link: l}\n";
static const char guess[] = "device:\n  - {name: d, flops: {f32: 2e11}, efficiency: 0.9, "
                            "mem_Bps: 2e10, mem_bytes: "
                            "1000, launch_s: 1e-06}\n"
                            "link:\n  - {name: l, alpha_s: 5e-06, Bps: 1e10}\n"
                            "node:\n  - {device: d, n_device: 2, link: l}\n";

/* What two ranks of the machine would show, with noise that only adds. */
static void put_trace(const weft_cluster *c, double noise, weft_text *t)
{
    double   at   = 0;
    uint64_t seed = 3;
    weft_text_add(t, "{\"traceEvents\":[\n");
    for (int i = 0; i < 200; i++) {
        double flops = i % 2 ? pow(10, 5 + i % 6) : 100, bytes = pow(10, 3 + i % 5), s;
        bool   comm = i % 7 == 0, msg = i % 14 == 0;
        if (msg)
            s = c->link[0].alpha_s + bytes / c->link[0].Bps;
        else if (comm)
            s = weft_cost_collective(WEFT_ALL_REDUCE, 2, bytes, c->link[0].alpha_s,
                                     1 / c->link[0].Bps);
        else
            s = weft_cost_roofline(&c->device[0], "f32", flops, bytes);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        s *= 1 + noise * (double)(seed >> 40) / (double)(1 << 24);
        weft_text_add(
            t,
            "{\"ph\":\"X\",\"name\":\"i%d\",\"cat\":\"%s\",\"pid\":%d,\"tid\":0,"
            "\"ts\":%.9g,\"dur\":%.9g,\"args\":{\"actor\":\"a\",\"micro\":0,"
            "\"step\":%d,\"flops\":%.9g,\"bytes\":%.9g}},\n",
            i / 2,
            msg    ? "send"
            : comm ? "all_reduce"
                   : "matmul",
            i % 2, at, 1e6 * s, i / 100, comm ? 0 : flops, bytes);
        at += 1e6 * s;
    }
    weft_text_add(t, "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0}]}\n");
}

static weft_trace *make(const weft_cluster *c, double noise)
{
    weft_text   t = {0};
    weft_trace *m;
    put_trace(c, noise, &t);
    if (weft_trace_parse("m.json", t.s, t.n, &m) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_text_fini(&t);
    return m;
}

static void constants_come_back(void **state)
{
    (void)state;
    weft_cluster     *c = parse(truth), *g = parse(guess), *f;
    weft_trace       *m = make(c, 0);
    weft_trace_fitted r;
    assert_int_equal(m->n_event, 200);
    assert_int_equal(m->n_rank, 2);
    assert_int_equal(m->n_step, 2);
    assert_int_equal(weft_trace_fit(m, g, &f, &r), WEFT_OK);
    assert_true(f->version == g->version + 1);
    assert_true(r.error_before > 0.5 && r.error_after < 0.02);
    const weft_device_kind *d = &f->device[0];
    assert_true(fabs(weft_cluster_flops(d, "f32") * d->efficiency / 4e10 - 1) < 0.03);
    assert_true(fabs(d->mem_Bps / 7e9 - 1) < 0.03);
    assert_true(fabs(d->launch_s / 3e-6 - 1) < 0.1);
    assert_true(fabs(f->link[0].Bps / 3e9 - 1) < 0.03);
    assert_true(fabs(f->link[0].alpha_s / 2e-5 - 1) < 0.03);
    assert_non_null(strstr(d->source, "m.json"));
    weft_cluster_destroy(f);
    weft_trace_destroy(m);
    weft_cluster_destroy(c);
    weft_cluster_destroy(g);
}

/* With noise, from any start: the error shrinks; from the truth it does not grow. */
static void error_shrinks(void **state)
{
    (void)state;
    weft_cluster     *c = parse(truth), *g = parse(guess), *f;
    weft_trace       *m = make(c, 0.5);
    weft_trace_fitted r;
    assert_int_equal(weft_trace_fit(m, g, &f, &r), WEFT_OK);
    assert_true(r.error_after < 0.25 * r.error_before);
    assert_true(fabs(r.sum_after - r.sum_measured) < fabs(r.sum_before - r.sum_measured));
    weft_cluster_destroy(f);
    assert_int_equal(weft_trace_fit(m, c, &f, &r), WEFT_OK);
    assert_true(r.error_after <= r.error_before + 1e-12);
    weft_cluster_destroy(f);
    weft_trace_destroy(m);
    weft_cluster_destroy(c);
    weft_cluster_destroy(g);
}

static void side_by_side(void **state)
{
    (void)state;
    weft_cluster *c = parse(truth), *g = parse(guess);
    weft_trace   *p = make(g, 0), *m = make(c, 0);
    weft_text     t = {0};
    assert_int_equal(weft_trace_diff(p, m, &t), WEFT_OK);
    assert_non_null(strstr(t.s, "matmul"));
    assert_non_null(strstr(t.s, "all_reduce"));
    assert_non_null(strstr(t.s, "all instructions"));
    assert_non_null(strstr(t.s, "\nby class "));
    assert_non_null(strstr(t.s, "\nproducts "));
    assert_non_null(strstr(t.s, "\ngaps "));
    weft_text_fini(&t);
    /* a track for each class and side, all events of both last steps, read back as a trace */
    assert_int_equal(weft_trace_overlay(p, m, &t), WEFT_OK);
    assert_non_null(strstr(t.s, "\"name\":\"products, predicted\""));
    assert_non_null(strstr(t.s, "\"name\":\"products, measured\""));
    int n = 0, want = 0;
    for (const char *s = t.s; (s = strstr(s, "\"ph\":\"X\"")); s++) n++;
    for (int i = 0; i < p->n_event; i++) want += p->event[i].step == p->n_step - 1;
    for (int i = 0; i < m->n_event; i++) want += m->event[i].step == m->n_step - 1;
    assert_true(n > 0 && n == want);
    weft_text_fini(&t);
    weft_trace_destroy(p);
    weft_trace_destroy(m);
    weft_cluster_destroy(c);
    weft_cluster_destroy(g);
}

/* ---- timings ---- */

/* Two ranks, two steps of which the first is cut off; rank 1 comes 30 us late to a collective
 * that takes 10. */
static const char met[] =
    "{\"traceEvents\":[\n"
    "{\"ph\":\"X\",\"name\":\"h\",\"cat\":\"add\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":5,"
    "\"args\":{\"actor\":\"f\",\"micro\":0,\"step\":3,\"flops\":0,\"bytes\":4000,"
    "\"work\":\"add\",\"size\":[4000]}},\n"
    "{\"ph\":\"X\",\"name\":\"h\",\"cat\":\"add\",\"pid\":0,\"tid\":0,\"ts\":100,\"dur\":"
    "20,"
    "\"args\":{\"actor\":\"f\",\"micro\":0,\"step\":4,\"flops\":0,\"bytes\":4000,"
    "\"work\":\"add\",\"size\":[4000]}},\n"
    "{\"ph\":\"X\",\"name\":\"h\",\"cat\":\"add\",\"pid\":1,\"tid\":0,\"ts\":130,\"dur\":"
    "20,"
    "\"args\":{\"actor\":\"f\",\"micro\":0,\"step\":4,\"flops\":0,\"bytes\":4000,"
    "\"work\":\"add\",\"size\":[4000]}},\n"
    "{\"ph\":\"X\",\"name\":\"g\",\"cat\":\"all_reduce\",\"pid\":0,\"tid\":0,\"ts\":120,"
    "\"dur\":40,\"args\":{\"actor\":\"f\",\"micro\":0,\"step\":4,\"flops\":0,\"bytes\":"
    "800,"
    "\"ranks\":2,\"first\":0,\"given\":800}},\n"
    "{\"ph\":\"X\",\"name\":\"g\",\"cat\":\"all_reduce\",\"pid\":1,\"tid\":0,\"ts\":150,"
    "\"dur\":10,\"args\":{\"actor\":\"f\",\"micro\":0,\"step\":4,\"flops\":0,\"bytes\":"
    "800,"
    "\"ranks\":2,\"first\":0,\"given\":800}},\n"
    "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0}]}\n";

static void waiting_is_not_work(void **state)
{
    (void)state;
    weft_trace *m;
    if (weft_trace_parse("m.json", met, strlen(met), &m) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(m->n_step, 1);
    assert_int_equal(m->n_event, 4);
    assert_true(fabs(m->step_s - 60e-6) < 1e-12);
    for (int i = 0; i < m->n_event; i++) {
        const weft_trace_event *e = &m->event[i];
        if (strcmp(e->kind, "all_reduce")) continue;
        assert_true(fabs(e->dur_s - 10e-6) < 1e-12);
        assert_true(fabs(e->wait_s - (e->rank ? 0 : 30e-6)) < 1e-12);
    }
    weft_trace_destroy(m);
}

static void timings_are_learned(void **state)
{
    (void)state;
    char text[1200];
    snprintf(text, sizeof text,
             "%stiming:\n"
             "  - {device: d, work: add, size: [4000], s: 1e-05}\n"
             "  - {device: d, work: add, size: [8000], s: 3e-05}\n"
             "  - {link: l, work: all_reduce, n: 2, size: [1600], s: 1e-06}\n",
             truth);
    weft_cluster     *c = parse(text), *f;
    weft_trace       *m;
    weft_trace_fitted r;
    double            s;
    assert_int_equal(weft_trace_parse("m.json", met, strlen(met), &m), WEFT_OK);
    if (weft_trace_fit(m, c, &f, &r) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_true(r.error_after < 1e-9 && r.error_before > 0.4);
    assert_int_equal(f->version, c->version + 1);
    weft_workload w = {.kind = "add", .n = 1, .size = {4000}};
    assert_true(weft_cost_timed_work(f, 0, &w, &s) && fabs(s - 20e-6) < 1e-12);
    w.size[0] = 8000; /* did not run: in proportion */
    assert_true(weft_cost_timed_work(f, 0, &w, &s) && fabs(s - 60e-6) < 1e-12);
    assert_true(weft_cost_timed_link(f, 0, "all_reduce", 2, 800, &s));
    assert_true(fabs(s - 10e-6) < 1e-12);
    weft_cluster_destroy(c);
    weft_cluster_destroy(f);
    weft_trace_destroy(m);
}

/* What two calibrations differ by is believed in part; where the trace itself is unsure, less. */
static void chance_is_not_learned(void **state)
{
    (void)state;
    static const double said[] = {19e-6, 10e-6};
    for (int i = 0; i < 2; i++) {
        char text[1200];
        snprintf(text, sizeof text,
                 "%stiming:\n"
                 "  - {device: d, work: add, size: [4000], s: %g}\n"
                 "  - {link: l, work: all_reduce, n: 2, size: [800], s: 1e-05}\n",
                 truth, said[i]);
        weft_cluster     *c = parse(text), *f;
        weft_trace       *m;
        weft_trace_fitted r;
        weft_workload     w = {.kind = "add", .n = 1, .size = {4000}};
        double            s;
        assert_int_equal(weft_trace_parse("m.json", met, strlen(met), &m), WEFT_OK);
        assert_int_equal(weft_trace_fit(m, c, &f, &r), WEFT_OK);
        assert_true(weft_cost_timed_work(f, 0, &w, &s));
        if (i == 0)
            assert_true(s > 19.2e-6 && s < 19.9e-6); /* it took 20 */
        else
            assert_true(fabs(s - 20e-6) < 1e-12);
        assert_true(r.error_after < r.error_before);
        weft_cluster_destroy(c);
        weft_cluster_destroy(f);
        weft_trace_destroy(m);
    }
}

/* Where ranks shared cores, waiting looks like work. */
static void crowds_teach_nothing(void **state)
{
    (void)state;
    static const char oversubscription[] =
        "device:\n  - {name: d, flops: {f32: 5e10}, mem_Bps: 7e9, mem_bytes: 1000}\n"
        "link:\n  - {name: l, alpha_s: 2e-05, Bps: 3e9}\n"
        "node:\n  - {device: d, n_device: 2, link: l, oversubscription: [1, 2]}\n"
        "timing:\n  - {device: d, work: add, size: [4000], s: 1e-05}\n";
    weft_cluster     *c = parse(oversubscription), *f;
    weft_trace       *m;
    weft_trace_fitted r;
    assert_int_equal(weft_trace_parse("m.json", met, strlen(met), &m), WEFT_OK);
    assert_int_equal(weft_trace_fit(m, c, &f, &r), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "its 2 ranks shared cores"));
    weft_cluster_destroy(c);
    weft_trace_destroy(m);
}

static void bad_traces(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{}", "no traceEvents"},
        {"{\"traceEvents\": []}", "no instructions"},
        {"{\"traceEvents\": [\n3]}", "t:2: expected an event"},
        {"{\"traceEvents\": [{\"ph\": \"X\",\n\"dur\": \"a\"}]}", "t:2: dur"},
    };
    weft_trace *m;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        assert_int_equal(weft_trace_parse("t", bad[i][0], strlen(bad[i][0]), &m),
                         WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), bad[i][1])) fail_msg("%s", weft_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_come_back),  cmocka_unit_test(error_shrinks),
        cmocka_unit_test(side_by_side),         cmocka_unit_test(waiting_is_not_work),
        cmocka_unit_test(timings_are_learned),  cmocka_unit_test(chance_is_not_learned),
        cmocka_unit_test(crowds_teach_nothing), cmocka_unit_test(bad_traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
