/* Plans over networks that are shared or unlike: the fast estimate, the simulated step, and
 * devices that stay idle. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/planner.h"
#include "support/test.h"

static weft_planner_request ask_for(const char *model, const weft_cluster *c, int batch,
                                    int seq)
{
    weft_planner_request q = {
        .spec = weft_compile_spec_default(model, batch, seq), .cluster = c, .n_best = 1};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    weft_search_open(&q.constraints);
    return q;
}

/* The step of gpt2-xl in 16 stages of one device, simulated; *estimate: the fast one. */
static double chain_step(const char *cluster, double *estimate)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    assert_ok(weft_cluster_load(cluster, NULL, &c));
    weft_planner_request q = ask_for("gpt2-xl", c, 64, 1024);
    weft_search_fix(&q.constraints, WEFT_KEY_tp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_cp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_dp, 1);
    q.constraints.micro_batch = 1;
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 16);
    if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    double s  = a->step_s;
    *estimate = a->tried[0]->choice.score.step_s;
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
    return s;
}

/* Of the eight ranks of a node one sends to the other node: it has the port for itself. */
static void a_chain_has_the_whole_port(void **state)
{
    double one_estimate, all_estimate;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* two more plans, compared by their numbers */
    double one = chain_step("2 x (8 x v100-32g), 1 x eth-25g", &one_estimate);
    double all = chain_step("2 x (8 x v100-32g, nvlink2, 8 x eth-25g)", &all_estimate);
    print_message("one port %.4f s (estimate %.4f), eight %.4f s (estimate %.4f)\n", one,
                  one_estimate, all, all_estimate);
    assert_true(one > 0.84 && one < 0.88);
    assert_true(fabs(one / all - 1) < 1e-3);
    assert_true(fabs(one_estimate / all_estimate - 1) < 1e-3);
    assert_true(fabs(one_estimate / one - 1) < 0.03);
}

/* 112 devices of four kinds, whose stages each have their own network.  The plan of all of them
 * is the fastest, though only one candidate is checked. */
static void kinds_have_their_own_networks(void **state)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_cluster_load("4 x (8 x v100-32g) + 4 x (8 x a100-40g) + "
                                "4 x (8 x a100-80g) + 2 x (8 x h100-80g)",
                                NULL, &c));
    weft_planner_request q = ask_for("llama3-8b", c, 512, 4096);
    weft_search_fix(&q.constraints, WEFT_KEY_tp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_cp, 1);
    q.constraints.micro_batch = 1;
    weft_search_fix(&q.constraints, WEFT_KEY_dp, 16);
    weft_search_fix(&q.constraints, WEFT_KEY_zero, 2);
    weft_search_fix(&q.constraints, WEFT_KEY_recompute, WEFT_RECOMPUTE_NONE);
    weft_search_fix(&q.constraints, WEFT_KEY_schedule, WEFT_COST_ZERO_BUBBLE);
    if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    const weft_search_choice *x = &a->tried[0]->choice;
    print_message("%.4f s simulated, %.4f s estimated, %d devices\n", a->step_s,
                  x->score.step_s, (int)weft_search_ranks(x));
    assert_int_equal(weft_search_ranks(x), 112);
    assert_true(fabs(a->step_s / 4.08 - 1) < 0.02);
    assert_true(fabs(x->score.step_s / a->step_s - 1) < 0.03);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* What is said of all devices was simulated, and was not shorter. */
static void all_devices_are_simulated(void **state)
{
    if (WEFT_TEST_SANITIZED) skip(); /* the calls are those of the tests above */
    weft_cluster           *c;
    weft_planner_workspace *w;
    weft_planner_answer    *a;
    weft_text               t     = {0};
    int                     n_all = 0;
    char                    want[80];
    (void)state;
    assert_ok(weft_cluster_load("1 x (2 x a100-80g) + 1 x (2 x t4)", NULL, &c));
    weft_planner_request q = ask_for("gpt2", c, 16, 256);
    assert_ok(weft_planner_workspace_create(&q, &w));
    assert_ok(weft_planner_decide(w, &a));
    assert_int_equal(weft_search_ranks(&a->tried[0]->choice), 2);
    assert_ok(weft_planner_print(w, a, false, &t));
    weft_planner_workspace_destroy(w);
    for (int i = 1; i < a->n_tried; i++) {
        const weft_planner_tried *x = a->tried[i];
        assert_true(x->end != WEFT_PLANNER_FITS || x->step_s >= a->step_s);
        if (weft_search_ranks(&x->choice) < 4 || n_all++) continue;
        assert_true(x->step_s > 0);
        snprintf(want, sizeof want,
                 "2 x t4 idle: with all 4 devices the best step is %.4g s, %.2f times",
                 x->step_s, x->step_s / a->step_s);
        assert_non_null(strstr(t.s, want));
    }
    assert_true(n_all > 0);
    weft_text_fini(&t);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* One kind of device in two kinds of nodes has layer costs for each: TP over NVLink in the first
 * stage, over PCIe in the second. */
static void one_device_in_two_kinds_of_nodes(void **state)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_cluster_load("1 x (8 x a100-80g, nvlink3, 8 x ib-hdr) + "
                                "1 x (8 x a100-80g, pcie4, 1 x eth-25g)",
                                NULL, &c));
    weft_planner_request q = ask_for("gpt2", c, 64, 256);
    weft_search_fix(&q.constraints, WEFT_KEY_tp, 4);
    weft_search_fix(&q.constraints, WEFT_KEY_cp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_dp, 2);
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 2);
    q.constraints.micro_batch = 4;
    weft_search_fix(&q.constraints, WEFT_KEY_zero, 0);
    assert_ok(weft_search_constrain(&q.constraints, "tp_exclude=none", NULL));
    weft_planner_workspace *w;
    assert_ok(weft_planner_workspace_create(&q, &w));
    assert_ok(weft_planner_decide(w, &a));
    double estimate = a->tried[0]->choice.score.step_s;
    print_message("%.4f s simulated, %.4f s estimated\n", a->step_s, estimate);
    assert_int_equal(weft_planner_problem(w)->machines->n, 2);
    weft_planner_workspace_destroy(w);
    assert_true(fabs(estimate / a->step_s - 1) < 0.03);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_has_the_whole_port),
        cmocka_unit_test(kinds_have_their_own_networks),
        cmocka_unit_test(all_devices_are_simulated),
        cmocka_unit_test(one_device_in_two_kinds_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
