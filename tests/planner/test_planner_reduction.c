/* reduction: auto is invariant, and fixed where nothing fits otherwise: FSDP of a 70B model with
 * accumulation on 64 H100. */
#include <math.h>

#include "planner/planner.h"
#include "support/test.h"

static weft_arena   *arena;
static weft_cluster *cluster;

static weft_status decide(int64_t batch, weft_reduction reduction,
                          weft_planner_answer **out)
{
    static const char *const fsdp[] = {"tp=1", "cp=1", "pp=1", "zero=3"};
    weft_planner_request     q      = {
                 .spec = weft_compile_spec_default("llama3-70b", batch, 4096), .cluster = cluster};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    q.spec.reduction                  = reduction;
    weft_search_open(&q.constraints);
    for (size_t i = 0; i < WEFT_COUNT(fsdp); i++)
        assert_ok(weft_search_constrain(&q.constraints, fsdp[i], arena));
    return weft_planner_plan(&q, out);
}

static void fixed_where_only_that_fits(void **state)
{
    weft_planner_answer *a;
    weft_text            t = {0};
    (void)state;
    assert_int_equal(decide(1024, WEFT_REDUCTION_INVARIANT, &a), WEFT_ERR_NOFIT);
    assert_ok(decide(1024, WEFT_REDUCTION_AUTO, &a));
    assert_true(a->fixed_to_fit);
    assert_int_equal(a->plan->of.reduction, WEFT_REDUCTION_FIXED);
    assert_true(a->tried[0]->choice.point.n_micro > 1);
    assert_true(a->tried[0]->mem_bytes <= a->tried[0]->mem_limit);
    weft_planner_print_reduction(a, &t);
    assert_non_null(strstr(t.s, "another number of ranks has not"));
    weft_text_fini(&t);
    /* what the search counted is what programs hold, and take */
    const weft_search_choice *c = &a->tried[0]->choice;
    print_message("memory %.4g GB, counted %.4g; step %.4g s, counted %.4g\n",
                  1e-9 * (double)a->tried[0]->mem_bytes, 1e-9 * c->score.mem_bytes,
                  a->step_s, c->score.step_s);
    assert_true(fabs(c->score.mem_bytes / (double)a->tried[0]->mem_bytes - 1) < 0.1);
    assert_true(fabs(c->score.step_s / a->step_s - 1) < 0.05);
    weft_planner_destroy(a);
}

/* Where each rank has one micro-batch, nothing is given up. */
static void invariant_where_it_fits(void **state)
{
    weft_planner_answer *a;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* the calls are those of the test above */
    assert_ok(decide(256, WEFT_REDUCTION_AUTO, &a));
    assert_false(a->fixed_to_fit);
    assert_int_equal(a->plan->of.reduction, WEFT_REDUCTION_INVARIANT);
    assert_int_equal(a->tried[0]->choice.point.n_micro, 1);
    weft_planner_destroy(a);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(fixed_where_only_that_fits),
        cmocka_unit_test(invariant_where_it_fits),
    };
    assert_ok(weft_arena_create(&arena));
    assert_ok(weft_cluster_load("8 x (8 x h100-80g)", NULL, &cluster));
    int n = cmocka_run_group_tests(test, NULL, NULL);
    weft_cluster_destroy(cluster);
    weft_arena_destroy(arena);
    return n;
}
