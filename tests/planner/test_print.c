/* What is printed of an answer: a bound is never above the step, an engine that never ran on the
 * devices says so first, and its interval is as wide as measured steps of other engines are from
 * such simulations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"
#include "support/test.h"

static uint64_t draw(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % (uint64_t)n;
}

/* The number after a name; 0: it is null or not there. */
static double number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : 0;
}

/* The answer's placement is that of its plan, and the one that is printed. */
static void check_placement(const weft_planner_answer *a, const char *json)
{
    const weft_placement     *p  = &a->placement.p;
    const weft_plan_machines *m  = a->checked ? &a->plan->machines : NULL;
    const char               *at = strstr(json, "\"device_of_rank\": [");
    assert_int_equal(p->n_rank, weft_search_ranks(&a->tried[0]->choice));
    assert_non_null(at);
    at = strchr(at, '[');
    for (int r = 0; r < p->n_rank; r++) {
        if (m) assert_int_equal(p->device[r], m->n_device ? m->device[r] : r);
        assert_int_equal(strtol(at + 1, NULL, 10), p->device[r]);
        at = strpbrk(at + 1, ",]");
    }
    assert_int_equal(*at, ']');
}

/* Text and JSON of the answer to one question. */
static void check_question(const char *model, const char *line, int batch, int seq,
                           const char *engine, bool fast, bool unmeasured)
{
    weft_cluster           *c;
    weft_planner_workspace *w;
    weft_planner_answer    *a;
    weft_text               text = {0}, json = {0};
    assert_ok(weft_cluster_load(line, NULL, &c));
    weft_planner_request q = {.spec    = weft_compile_spec_default(model, batch, seq),
                              .cluster = c,
                              .n_best  = 2,
                              .engine  = engine,
                              .fast    = fast};
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.dtype                      = NULL;
    weft_search_open(&q.constraints);
    assert_ok(weft_planner_workspace_create(&q, &w));
    assert_ok(weft_planner_decide(w, &a));
    assert_ok(weft_planner_print(w, a, true, &text));
    assert_ok(weft_planner_print_json(w, a, &json));
    check_placement(a, json.s);
    bool at_best = weft_planner_problem(w)->best_case;
    weft_planner_workspace_destroy(w);
    if (a->bound_s > a->step_s || a->search->bound_s > a->step_s)
        fail_msg("%s on %s: bound %g above the step of %g s", model, line, a->bound_s,
                 a->step_s);
    assert_true(number_after(json.s, "\"bound_s\": ") <= 1.00001 * a->step_s);
    assert_true(number_after(text.s, " is below ") <= 1.0005 * a->step_s);
    const char *of =
        engine ? "plans of this search space" : "plans without overlap_param_gather";
    assert_non_null(strstr(text.s, of)); /* what is bounded, bound or not */
    if (a->bound_s > 0) assert_non_null(strstr(json.s, "\"bound_of\": \"plans "));
    if (a->bound_s == 0)
        assert_non_null(strstr(json.s, "\"bound_s\": null, \"gap\": null"));
    if (engine) {
        assert_int_equal(!strncmp(text.s, "no step of ", 11), unmeasured);
        assert_int_equal(strstr(json.s, "\"engine_ran_there\": false") != NULL,
                         unmeasured);
        assert_int_equal(a->hi > 1.4 * a->step_s && a->lo < 0.75 * a->step_s, unmeasured);
    }
    double per_s =
        batch * seq / a->step_s / (double)weft_search_ranks(&a->tried[0]->choice);
    double mfu = number_after(json.s, "\"mfu\": ");
    assert_true(fabs(number_after(json.s, "\"tokens_per_s_device\": ") / per_s - 1) <
                1e-4);
    assert_true(mfu > 0 && mfu < 1);
    assert_non_null(strstr(text.s, " tokens/s a device, MFU "));
    assert_int_equal(strstr(text.s, " s at best") != NULL, at_best);
    assert_int_equal(at_best, !engine && unmeasured);
    bool ours = !engine, cpu = !strncmp(c->device[c->node[0].device].name, "cpu", 3);
    bool first = !strncmp(text.s, "weft was not timed on these GPUs (", 34);
    assert_int_equal(first, ours && !cpu);
    if (ours)
        assert_int_equal(strstr(json.s, "\"engine_ran_there\": false") != NULL, !cpu);
    if (ours && !cpu) assert_true(a->hi >= 1.9 * a->step_s);
    if (cpu) assert_true(a->hi < 1.5 * a->step_s);
    assert_true(a->lo < a->step_s && a->step_s < a->hi);
    weft_text_fini(&text);
    weft_text_fini(&json);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

static void bounds_are_below_answers(void **state)
{
    static const char *const clusters[] = {
        "4 x (1 x a100-80g), 1 x eth-100g",
        "2 x (2 x h100-80g), 1 x eth-25g",
        "2 x (2 x v100-32g)",
        "1 x (4 x h200-141g)",
        "1 x (2 x v100-32g) + 1 x (2 x a100-80g)",
    };
    uint64_t r = 7;
    (void)state;
    /* with gathers in the next step: shorter than all that the search counts */
    if (!WEFT_TEST_SANITIZED)
        check_question("gpt2", clusters[0], 32, 128, NULL, false, true);
    for (int i = 0; i < (WEFT_TEST_SANITIZED ? 0 : TEST_LONG ? 5 : 3); i++)
        check_question("tiny256", clusters[draw(&r, (int)WEFT_COUNT(clusters))],
                       8 << draw(&r, 3), 16 << draw(&r, 3), NULL, draw(&r, 3) == 0, true);
}

static void engines_that_ran_do_not_say_otherwise(void **state)
{
    (void)state;
    check_question("tiny256", "1 x (2 x cpu)", 8, 16, NULL, false, false);
    check_question("gpt2", "2 x (8 x a100-80g)", 64, 128, "megatron", false, false);
    check_question("gpt2", "8 x (8 x a100-80g)", 64, 128, NULL, true,
                   true); /* by sizes */
}

/* Other engines where none of their steps was measured, whether others were measured there or not.
 */
static void unmeasured_engines_say_so_first(void **state)
{
    (void)state;
    check_question("gpt2", "1 x (8 x t4)", 64, 128, "megatron", false, true);
    check_question("gpt2", "1 x (8 x v100-32g)", 64, 128, "megatron", false, true);
    check_question("llama3-8b", "2 x (8 x v100-32g)", 64, 128, "torchtitan", false, true);
    check_question("llama3-8b", "2 x (8 x h100-80g)", 64, 128, "torchtitan", false,
                   false);
    check_question("gpt2", "1 x (4 x a100-80g) + 1 x (4 x t4)", 64, 128, "megatron",
                   false, true);
}

/* No plan fills the reserve, and none of ours is made in 8 bits. */
static void memory_has_a_reserve(void **state)
{
    weft_cluster     *c;
    weft_device_kind *d;
    (void)state;
    assert_ok(weft_cluster_load("1 x (1 x h100-80g) + 1 x (1 x cpu)", NULL, &c));
    d = &c->device[c->node[0].device];
    assert_true(d->mem_bytes < 80LL << 30); /* as the driver counts it */
    assert_true((double)weft_cluster_usable_bytes(d) <=
                (1 - WEFT_CLUSTER_MEM_RESERVE) * (double)d->mem_bytes);
    d = &c->device[c->node[1].device];
    assert_int_equal(weft_cluster_usable_bytes(d), d->mem_bytes);
    weft_cluster_destroy(c);
    assert_ok(weft_cluster_load("1 x (1 x epyc-7763)", NULL, &c));
    assert_true(weft_cluster_is_cpu(&c->device[c->node[0].device]));
    weft_cluster_destroy(c);
}

static void four_bits_are_refused(void **state)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_cluster_load("1 x (2 x h100-80g)", NULL, &c));
    weft_planner_request q = {.spec      = weft_compile_spec_default("tiny256", 8, 16),
                              .cluster   = c,
                              .precision = "fp4"};
    q.spec.micro_batch = q.spec.lanes = 0;
    weft_search_open(&q.constraints);
    assert_int_equal(weft_planner_plan(&q, &a), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "weft does not train in fp4"));
    q.precision = "fp8";
    assert_ok(weft_planner_plan(&q, &a));
    weft_planner_destroy(a);
    q.engine = "megatron";
    assert_ok(weft_planner_plan(&q, &a));
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(bounds_are_below_answers),
        test_sanitized(engines_that_ran_do_not_say_otherwise),
        cmocka_unit_test(unmeasured_engines_say_so_first),
        cmocka_unit_test(memory_has_a_reserve),
        test_sanitized(four_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
