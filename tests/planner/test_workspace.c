/* Requests, workspaces, answers: the same answer on any number of threads and from any number of
 * workspaces at once, nothing of a request is changed, an answer outlives its workspace, and steps
 * on parts of a cluster are those of plans for these devices alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "planner/planner.h"
#include "support/test.h"

#define TWO "1 x (2 x a100-80g)"
#define FEW (WEFT_TEST_SANITIZED || !TEST_LONG ? TWO : "1 x (4 x a100-80g)")

static weft_planner_request request_for(const char *model, const weft_cluster *c,
                                        int batch, int seq)
{
    weft_planner_request q = {.spec    = weft_compile_spec_default(model, batch, seq),
                              .cluster = c,
                              .n_best  = WEFT_TEST_SANITIZED ? 2 : 0};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    weft_search_open(&q.constraints);
    return q;
}

/* Text, JSON and plan file of an answer, one after another. */
static void print_all(weft_planner_workspace *w, const weft_planner_answer *a,
                      weft_text *out)
{
    assert_ok(weft_planner_print(w, a, true, out));
    assert_ok(weft_planner_print_json(w, a, out));
    assert_ok(weft_plan_print(a->plan, out));
}

static void answer(const weft_planner_request *q, weft_text *out)
{
    weft_planner_workspace *w;
    weft_planner_answer    *a;
    if (weft_planner_workspace_create(q, &w) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    if (weft_planner_decide(w, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    print_all(w, a, out);
    weft_planner_destroy(a);
    weft_planner_workspace_destroy(w);
}

static const struct {
    const char *model, *cluster;
    int         batch, seq, n_best;
} cases[] = {{"tiny256", TWO, 8, 16, 3}, /* sanitized: this one alone */
             {"gpt2", "2 x (2 x a100-80g)", 64, 256, 3},
             {"gpt2", "1 x (2 x a100-80g) + 1 x (2 x t4)", 16, 256, 3},
             {"gpt2-large", "1 x (2 x t4)", 8, 512, 3}};

/* Candidates are checked in turn and four at a time. */
static void threads_do_not_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        weft_text     one = {0}, four = {0};
        weft_cluster *c;
        if (i && (WEFT_TEST_SANITIZED || (i != 2 && !TEST_LONG))) continue;
        assert_ok(weft_cluster_load(cases[i].cluster, NULL, &c));
        weft_planner_request q =
            request_for(cases[i].model, c, cases[i].batch, cases[i].seq);
        q.n_best   = cases[i].n_best;
        q.n_thread = 1;
        answer(&q, &one);
        q.n_thread                     = 4;
        const weft_planner_request was = q;
        answer(&q, &four);
        assert_memory_equal(&was, &q, sizeof q);
        assert_string_equal(one.s, four.s);
        weft_text_fini(&one);
        weft_text_fini(&four);
        weft_cluster_destroy(c);
    }
}

enum {
    N_APART = WEFT_TEST_SANITIZED ? 2 : 4 /* workspaces */
};

typedef struct many {
    const weft_planner_request *q;
    weft_text                   text[N_APART];
} many;

static void answer_one(void *arg, int64_t task, int thread)
{
    many *m = arg;
    (void)thread;
    answer(m->q, &m->text[task]);
}

/* One request, four workspaces, four threads, and each checks two candidates at a time. */
static void workspaces_are_apart(void **state)
{
    weft_cluster *c;
    weft_pool    *pool;
    (void)state;
    assert_ok(weft_cluster_load(FEW, NULL, &c));
    weft_planner_request q = request_for("tiny256", c, 8, 16);
    many                 m = {.q = &q};
    q.n_thread             = 2;
    assert_ok(weft_pool_create(4, 0, &pool));
    weft_pool_run(pool, N_APART, answer_one, &m);
    weft_pool_destroy(pool);
    for (int i = 0; i < N_APART; i++) {
        assert_string_equal(m.text[i].s, m.text[0].s);
        if (i) weft_text_fini(&m.text[i]);
    }
    weft_text_fini(&m.text[0]);
    weft_cluster_destroy(c);
}

/* The timeline is the checked one: its step is the answer's, and nothing of it is the
 * workspace's. */
static void timelines_are_kept(void **state)
{
    weft_planner_workspace *w;
    weft_planner_answer    *a, *b;
    weft_cluster           *c;
    (void)state;
    assert_ok(weft_cluster_load(FEW, NULL, &c));
    weft_planner_request q = request_for("tiny256", c, 8, 16);
    q.n_thread             = 2;
    q.with_timeline        = true;
    assert_ok(weft_planner_workspace_create(&q, &w));
    assert_ok(weft_planner_decide(w, &a));
    assert_ok(weft_planner_decide(w, &b)); /* again: with the costs that are there */
    weft_planner_workspace_destroy(w);
    assert_non_null(a->timeline);
    assert_true(a->timeline->step_s >= a->step_s && a->timeline->step_s <= a->step_s);
    assert_true(a->step_s >= b->step_s && a->step_s <= b->step_s);
    weft_text text = {0}, again = {0};
    assert_ok(weft_timeline_print(a->timeline, &text));
    weft_planner_destroy(a);
    assert_ok(weft_timeline_print(b->timeline, &again));
    weft_planner_destroy(b);
    assert_string_equal(text.s, again.s);
    weft_text_fini(&text);
    weft_text_fini(&again);
    q.with_timeline = false;
    assert_ok(weft_planner_plan(&q, &a));
    assert_null(a->timeline);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* Powers of two up to most of 8 devices, against plans for a node with so many. */
static void check_curve(bool fast, int most)
{
    weft_planner_workspace *w;
    weft_cluster           *all, *c;
    weft_planner_answer    *a;
    assert_ok(weft_cluster_load("1 x (8 x a100-80g)", NULL, &all));
    weft_planner_request q = request_for("gpt2", all, 64, 256);
    q.n_best               = 2;
    q.fast                 = fast;
    assert_ok(weft_planner_workspace_create(&q, &w));
    for (int n = most; n >= 1; n /= 2) {
        char   line[40];
        double step_s = 0, again_s = 0;
        snprintf(line, sizeof line, "1 x (%d x a100-80g)", n);
        assert_ok(weft_cluster_load(line, NULL, &c));
        weft_planner_request alone = q;
        alone.cluster              = c;
        if (weft_planner_step_time(w, n, &step_s) != WEFT_OK)
            fail_msg("%s", weft_error_text());
        assert_ok(weft_planner_plan(&alone, &a));
        print_message("%d devices: %.6f s, planned alone %.6f s\n", n, step_s, a->step_s);
        assert_true(fabs(step_s / a->step_s - 1) < 1e-9);
        assert_ok(weft_planner_step_time(w, n, &again_s)); /* from memory */
        assert_true(again_s >= step_s && again_s <= step_s);
        weft_planner_destroy(a);
        weft_cluster_destroy(c);
    }
    double none;
    assert_int_equal(weft_planner_step_time(w, 0, &none), WEFT_ERR_ARG);
    assert_int_equal(weft_planner_step_time(w, 9, &none), WEFT_ERR_ARG);
    weft_planner_workspace_destroy(w);
    weft_cluster_destroy(all);
}

static void step_times_are_plans(void **state)
{
    (void)state;
    check_curve(true, WEFT_TEST_SANITIZED ? 2 : TEST_LONG ? 8 : 4);
    if (!WEFT_TEST_SANITIZED) check_curve(false, TEST_LONG ? 4 : 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_count), cmocka_unit_test(workspaces_are_apart),
        cmocka_unit_test(timelines_are_kept), cmocka_unit_test(step_times_are_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
