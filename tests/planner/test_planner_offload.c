/* Optimizer states go to the host's memory where nothing fits otherwise, or where a constraint says
 * so: what the plan predicts is what its programs hold and take. */
#include <math.h>

#include "cost/cost.h"
#include "planner/planner.h"
#include "support/test.h"

static weft_arena *arena;

static weft_status decide(const weft_cluster *c, const char *constraint,
                          const char *optimizer, weft_planner_answer **out)
{
    weft_planner_request q = {.spec    = weft_compile_spec_default("gpt2-medium", 4, 256),
                              .cluster = c};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    q.spec.optimizer.name             = optimizer;
    q.engine_bytes                    = 1;
    weft_search_open(&q.constraints);
    if (constraint) assert_ok(weft_search_constrain(&q.constraints, constraint, arena));
    return weft_planner_plan(&q, out);
}

/* An h100 with so much memory; the host's part as it was "timed". */
static weft_cluster *make_cluster(int64_t bytes)
{
    weft_cluster *c;
    weft_text     t = {0};
    weft_text_add(
        &t,
        "name: one\nversion: 1\ndevice:\n  - {name: small, like: h100-80g, "
        "mem_bytes: %lld}\nnode:\n  - {name: box, count: 1, device: small, "
        "n_device: 1}\ntiming:\n  - {device: small, work: \"host copy\", size: "
        "[1000000000], s: 0.04}\n  - {device: small, work: \"host update\", size: "
        "[1000000000], s: 0.01}\n",
        (long long)bytes);
    if (weft_cluster_parse("one", t.s, t.n, &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_text_fini(&t);
    return c;
}

static int64_t find_memory(const weft_cluster *c, const char *constraint)
{
    weft_planner_answer *a;
    if (decide(c, constraint, "adamw", &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    int64_t bytes = a->tried[0]->mem_bytes;
    weft_planner_destroy(a);
    return bytes;
}

static void proposed_where_only_that_fits(void **state)
{
    weft_cluster        *large = make_cluster((int64_t)80e9), *c;
    weft_planner_answer *a;
    weft_text            t = {0};
    (void)state;
    assert_ok(decide(large, NULL, "adamw", &a));
    assert_false(a->offload_to_fit);
    assert_int_equal(a->plan->strategy.offload, WEFT_OFFLOAD_NONE);
    assert_true(a->tried[0]->host_bytes == 0);
    weft_planner_destroy(a);
    /* less than the least that fits without, more than the least that fits with */
    int64_t with = find_memory(large, "offload=optimizer");
    weft_cluster_destroy(large);
    c = make_cluster((int64_t)(1.02 / (1 - WEFT_CLUSTER_MEM_RESERVE) * (double)with));
    assert_int_equal(decide(c, "offload=none", "adamw", &a), WEFT_ERR_NOFIT);
    assert_int_equal(decide(c, NULL, "lamb", &a), WEFT_ERR_NOFIT);
    if (decide(c, NULL, "adamw", &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_true(a->offload_to_fit);
    assert_int_equal(a->plan->strategy.offload, WEFT_OFFLOAD_OPTIMIZER);
    assert_true(a->tried[0]->mem_bytes <= a->tried[0]->mem_limit);
    weft_planner_print_offload(a, &t);
    weft_planner_print_line(a, &t);
    print_message("%s\n", t.s);
    assert_non_null(strstr(t.s, "as nothing fits without offload=optimizer"));
    assert_non_null(strstr(t.s, " offload=optimizer: "));
    assert_non_null(strstr(t.s, "nothing fits without)"));
    weft_text_fini(&t);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* Momenta and master weights of matrices, 12 bytes a parameter; gradients on their way; the step
 * has the host's updates in it, and layer costs know both. */
static void priced_as_it_runs(void **state)
{
    weft_cluster        *c = make_cluster((int64_t)80e9);
    weft_planner_answer *plain, *moved;
    (void)state;
    assert_ok(decide(c, "offload=none", "adamw", &plain));
    assert_ok(decide(c, "offload=optimizer", "adamw", &moved));
    const weft_planner_tried *a = plain->tried[0], *b = moved->tried[0];
    double                    saved = (double)(a->mem_bytes - b->mem_bytes);
    print_message(
        "memory %.4g and %.4g GB, on the host %.4g; step %.4g and %.4g s, of it "
        "updates %.4g s, counted %.4g s and %.4g GB\n",
        1e-9 * (double)a->mem_bytes, 1e-9 * (double)b->mem_bytes,
        1e-9 * (double)b->host_bytes, a->step_s, b->step_s, b->host_s,
        b->choice.score.step_s, 1e-9 * b->choice.score.mem_bytes);
    assert_true(saved > 11.5 * 354e6 && saved < 12 * 356e6);
    double gradients = 4 * 355e6; /* in pinned memory */
    assert_true((double)b->host_bytes > saved + 0.99 * gradients &&
                (double)b->host_bytes < saved + gradients + 4e8);
    /* the forward pass overlaps with updates, the backward pass does not */
    assert_true(b->step_s > a->step_s / 2 + b->host_s);
    assert_true(b->step_s < a->step_s + 1.1 * b->host_s);
    assert_true(b->step_s < a->step_s + 1.2 * b->host_s);
    assert_true(fabs(b->choice.score.step_s / b->step_s - 1) < 0.2);
    double counted = a->choice.score.mem_bytes - b->choice.score.mem_bytes;
    print_message("saved %.5g GB, counted %.5g\n", 1e-9 * saved, 1e-9 * counted);
    assert_true(fabs(counted / saved - 1) < 0.01);
    weft_planner_destroy(plain);
    weft_planner_destroy(moved);
    weft_cluster_destroy(c);
}

static void refused_where_it_means_nothing(void **state)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_cluster_load("1 x cpu", NULL, &c));
    assert_fails(decide(c, "offload=optimizer", "adamw", &a), WEFT_ERR_ARG,
                 "has other devices");
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposed_where_only_that_fits),
        cmocka_unit_test(priced_as_it_runs),
        cmocka_unit_test(refused_where_it_means_nothing),
    };
    if (weft_arena_create(&arena) != WEFT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_arena_destroy(arena);
    return failed;
}
