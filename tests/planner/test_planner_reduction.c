/* reduction: auto is fixed on several GPUs and on unlike devices, invariant elsewhere, and fixed
 * where nothing fits otherwise: FSDP of a 70B model with accumulation on 64 H100. */
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
    q.on_cpus                         = true; /* the devices alone do not decide */
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
    if (TEST_LONG) /* the search below begins with this one */
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

/* A small job on the devices of a line, after an event; NULL: none. */
static void check_devices(const char *line, const char *event, int world,
                          weft_reduction asked, weft_reduction want)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    weft_text            text = {0};
    assert_ok(weft_cluster_load(line, NULL, &c));
    if (event) {
        weft_cluster *next;
        assert_ok(weft_cluster_change(c, event, &next));
        weft_cluster_destroy(c);
        c = next;
    }
    weft_planner_request q = {.spec    = weft_compile_spec_default("tiny256", 8, 16),
                              .cluster = c,
                              .world   = world,
                              .fast    = true};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    q.spec.reduction                  = asked;
    weft_search_open(&q.constraints);
    assert_ok(weft_planner_plan(&q, &a));
    if (a->reduction != want)
        fail_msg("%s: %s became %s", line, weft_reduction_name(asked),
                 weft_reduction_name(a->reduction));
    bool changed = asked == WEFT_REDUCTION_AUTO && want == WEFT_REDUCTION_FIXED;
    assert_int_equal(a->fixed_on_devices, changed);
    weft_planner_print_reduction(a, &text);
    assert_int_equal(text.n > 0 && strstr(text.s, "the default on several GPUs"),
                     changed);
    weft_text_fini(&text);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

static void devices_decide(void **state)
{
    const weft_reduction fixed     = WEFT_REDUCTION_FIXED,
                         invariant = WEFT_REDUCTION_INVARIANT, open = WEFT_REDUCTION_AUTO;
    const struct {
        const char    *line;
        const char    *event;
        int            world;
        weft_reduction asked, want;
    } t[] = {
        {"1 x (1 x a100-80g)", NULL, 0, open, invariant},
        {"1 x (2 x a100-80g)", NULL, 0, open, fixed},
        {"2 x (1 x a100-80g)", NULL, 0, open, fixed},
        {"2 x (1 x a100-80g)", "cordon node 0 why it is tested", 0, open,
         invariant}, /* one is left */
        {"1 x (1 x a100-80g)", "share node 0 ranks 2", 2, open,
         invariant},                                      /* there is one */
        {"1 x (2 x a100-80g)", NULL, 1, open, invariant}, /* one is used */
        {"1 x (1 x a100-80g) + 1 x (1 x t4)", NULL, 0, open, fixed},
        {"1 x (1 x a100-80g) + 1 x (2 x cpu)", NULL, 0, open, fixed},
        {"2 x (2 x cpu)", NULL, 0, open, invariant},
        {"1 x (2 x cpu) + 1 x (2 x epyc-9654)", NULL, 0, open, invariant},
        {"1 x (2 x a100-80g)", NULL, 0, invariant, invariant},
        {"2 x (2 x cpu)", NULL, 0, fixed, fixed},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i += WEFT_TEST_SANITIZED ? 10 : TEST_FEW(2))
        check_devices(t[i].line, t[i].event, t[i].world, t[i].asked, t[i].want);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(fixed_where_only_that_fits),
        cmocka_unit_test(invariant_where_it_fits),
        cmocka_unit_test(devices_decide),
    };
    assert_ok(weft_arena_create(&arena));
    assert_ok(weft_cluster_load("8 x (8 x h100-80g)", NULL, &cluster));
    int n = cmocka_run_group_tests(test, NULL, NULL);
    weft_cluster_destroy(cluster);
    weft_arena_destroy(arena);
    return n;
}
