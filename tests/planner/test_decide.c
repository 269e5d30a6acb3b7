/* What the planner returns fits exactly, is the same each time, and is the fastest simulated of
 * what it tried. */
#include <stdlib.h>
#include <string.h>

#include "compile/world.h"
#include "cost/cost.h"
#include "planner/planner.h"
#include "support/test.h"

enum {
    ENGINE = 1 << 20
};

static weft_planner_request ask_for(const char *model, const weft_cluster *c, int batch)
{
    weft_planner_request q = {.spec         = weft_compile_spec_default(model, batch, 16),
                              .cluster      = c,
                              .n_best       = 3,
                              .engine_bytes = ENGINE};
    q.spec.micro_batch = q.spec.lanes = 0;
    weft_search_open(&q.constraints);
    return q;
}

static weft_cluster *machines(int n, int64_t mem_bytes)
{
    weft_cluster         *c;
    weft_cluster_measured m = {.n_device = n, .mem_bytes = mem_bytes};
    assert_ok(weft_cluster_this_host(&m, &c));
    return c;
}

/* The most that a rank of the plan needs, by its program. */
static int64_t need_of(const weft_planner_request *q, const weft_plan *p)
{
    weft_compiled_world *w;
    weft_training        t;
    weft_compile_spec    s      = q->spec;
    int64_t              most   = 0;
    s.micro_batch               = p->of.micro_batch;
    s.lanes                     = p->of.lanes;
    s.recompute                 = (weft_strategy_recompute)p->strategy.recompute;
    const weft_device_kind *d   = weft_cluster_device(q->cluster, 0);
    bool                    cpu = weft_cluster_is_cpu(d);
    if (weft_cluster_is_cuda(q->cluster)) weft_compile_for_cuda(&s);
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_world(&t, p, WEFT_RANKS_EACH, &w));
    for (int r = 0; r < w->world.n; r++) {
        int64_t n = weft_cost_program_bytes(w->like[r], d);
        assert_int_equal(n + (cpu ? ENGINE : 0), p->predicted.mem_bytes[r]);
        if (n > most) most = n;
    }
    weft_compiled_world_destroy(w);
    weft_training_fini(&t);
    return most + ENGINE;
}

static void never_returns_what_does_not_fit(void **state)
{
    unsigned seed = 12345;
    int      fit = 0, none = 0;
    (void)state;
    for (int i = 0; i < (WEFT_TEST_SANITIZED ? 4 : TEST_LONG ? 16 : 6); i++) {
        weft_planner_answer *a;
        seed                     = seed * 1103515245u + 12345;
        int64_t              mem = (6 + (seed >> 16) % 26) * (int64_t)1000000;
        weft_cluster        *c   = machines(1 + i % 4, mem);
        weft_planner_request q   = ask_for("tiny256", c, 8);
        weft_status          st  = weft_planner_plan(&q, &a);
        if (st == WEFT_OK) {
            assert_true(a->checked);
            assert_true(need_of(&q, a->plan) <= mem);
            weft_planner_destroy(a);
            fit++;
        } else {
            assert_int_equal(st, WEFT_ERR_NOFIT);
            assert_non_null(
                strstr(weft_error_text(), "nothing fits: the closest plan, "));
            assert_non_null(strstr(weft_error_text(), "more memory"));
            none++;
        }
        weft_cluster_destroy(c);
    }
    assert_true(fit > 0 && none > 0);
}

static void the_same_twice(void **state)
{
    weft_text x[2] = {{0}, {0}};
    if (WEFT_TEST_SANITIZED) skip(); /* the calls are those of the test above */
    weft_cluster *c = machines(4, (int64_t)1 << 30);
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_planner_answer *a;
        weft_planner_request q = ask_for("tiny256", c, 8);
        weft_plan           *back;
        assert_ok(weft_planner_plan(&q, &a));
        assert_ok(weft_plan_print(a->plan, &x[i]));
        assert_ok(weft_plan_parse("plan", x[i].s, x[i].n, &back));
        assert_true(weft_plan_equal(a->plan, back));
        assert_true(back->predicted.n_mem == weft_plan_world(back));
        assert_true(back->predicted.n_other == a->n_tried - 1);
        assert_true(back->machines.shape == weft_cluster_hash_shape(c));
        weft_plan_destroy(back);
        weft_planner_destroy(a);
    }
    assert_true(x[0].n == x[1].n && !memcmp(x[0].s, x[1].s, x[0].n));
    weft_text_fini(&x[0]);
    weft_text_fini(&x[1]);
    weft_cluster_destroy(c);
}

/* Plans of a job that gives bucket_bytes are priced and simulated with it, and have it. */
static void buckets_are_the_jobs(void **state)
{
    double        step_s[2];
    weft_cluster *c = machines(4, (int64_t)1 << 30);
    (void)state;
    for (int k = 0; k < 2; k++) {
        weft_planner_request q = ask_for("tiny256", c, 8);
        weft_planner_answer *a;
        q.world = 4;
        weft_search_fix(&q.constraints, WEFT_KEY_dp, 4);
        weft_search_fix(&q.constraints, WEFT_KEY_zero, 0);
        if (k) q.bucket_bytes = 20000;
        assert_ok(weft_planner_plan(&q, &a));
        assert_int_equal(a->plan->strategy.bucket_bytes, q.bucket_bytes);
        step_s[k] = a->step_s;
        weft_planner_destroy(a);
    }
    assert_true(step_s[0] != step_s[1]);
    weft_cluster_destroy(c);
}

static void the_fastest_of_those_tried(void **state)
{
    if (WEFT_TEST_SANITIZED) skip(); /* more plans of the same calls */
    weft_cluster        *c = machines(4, (int64_t)1 << 30);
    weft_planner_request q = ask_for("tiny256", c, 8);
    weft_planner_answer *a;
    (void)state;
    q.world = 4;
    assert_ok(weft_planner_plan(&q, &a));
    assert_int_equal(weft_plan_world(a->plan), 4);
    assert_true(a->n_tried > 1 && a->tried[0]->end == WEFT_PLANNER_FITS);
    assert_true(a->lo < a->step_s && a->step_s < a->hi);
    for (int i = 1; i < a->n_tried; i++) {
        assert_true(a->tried[i]->why[0] != 0);
        if (a->tried[i]->end == WEFT_PLANNER_FITS)
            assert_true(a->tried[i]->step_s >= a->step_s);
    }
    const weft_plan_time *t   = &a->plan->predicted.time;
    double                sum = t->compute_s + t->update_s + t->comm_s + t->idle_s;
    assert_true(sum > 0.999 * a->step_s && sum < 1.001 * a->step_s);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* What the job fixes stays; what it leaves out is chosen. */
static void keeps_what_is_said(void **state)
{
    weft_cluster        *c = machines(2, (int64_t)1 << 30);
    weft_planner_request q = ask_for("tiny256", c, 8);
    weft_planner_answer *a;
    (void)state;
    q.spec.micro_batch = 2;
    q.spec.lanes       = 4;
    weft_search_fix(&q.constraints, WEFT_KEY_recompute, WEFT_RECOMPUTE_FULL);
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 2);
    assert_ok(weft_planner_plan(&q, &a));
    assert_int_equal(a->plan->of.micro_batch, 2);
    assert_int_equal(a->plan->of.lanes, 4);
    assert_int_equal(a->plan->strategy.pp, 2);
    assert_int_equal(a->plan->strategy.recompute, WEFT_STRATEGY_FULL);
    weft_planner_destroy(a);
    q.constraints.micro_batch = 4;
    assert_int_equal(weft_planner_plan(&q, &a), WEFT_ERR_ARG);
    weft_cluster_destroy(c);
}

/* Slow devices in front of fast ones: the plan says which device each rank has. */
static void names_devices(void **state)
{
    weft_cluster        *c;
    weft_planner_request q;
    weft_planner_answer *a;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* more plans of the same calls */
    assert_ok(weft_cluster_load("1 x (2 x v100-32g) + 1 x (2 x a100-80g)", NULL, &c));
    q              = ask_for("tiny256", c, 8);
    q.engine_bytes = 0;
    q.world        = 2;
    assert_ok(weft_planner_plan(&q, &a));
    assert_int_equal(a->plan->machines.n_device, 2);
    assert_int_equal(a->plan->machines.device[0], 2);
    assert_int_equal(a->plan->machines.device[1], 3);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* Layers 2 and 3 on node 0: it and the one that would have had them change places. */
/* Replicas on the faster half have more of the batch; the plan says so, fits by its programs, and
 * is simulated. */
static void shares_by_speed(void **state)
{
    weft_cluster        *c;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_cluster_load("1 x (2 x a100-80g) + 1 x (2 x h100-80g)", NULL, &c));
    weft_planner_request q = ask_for("gpt2", c, 512);
    q.spec.seq             = 256;
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_tp, 1);
    q.world = 4;
    if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    const weft_plan *p = a->plan;
    assert_non_null(p->share);
    assert_int_equal(weft_plan_lane_ranks(p), 4);
    for (int r = 0; r < 4; r++) { /* devices 0 and 1 are the slow ones */
        int device = p->machines.n_device ? p->machines.device[r] : r;
        for (int o = 0; o < 4; o++) {
            int other = p->machines.n_device ? p->machines.device[o] : o;
            if (device >= 2 && other < 2) assert_true(p->share[r] > p->share[o]);
        }
    }
    need_of(&q, p);
    double step_s = p->predicted.step_s;
    weft_planner_destroy(a);
    q.world = 2; /* the faster ones alone */
    assert_ok(weft_planner_plan(&q, &a));
    print_message("%.4f s a step on four, %.4f s on the faster two\n", step_s,
                  a->plan->predicted.step_s);
    assert_true(step_s < 0.9 * a->plan->predicted.step_s);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* Of ZeRO's shards two copies: only plans that have them, with the memory that they take. */
static void plans_with_copies(void **state)
{
    weft_cluster        *c = machines(4, INT64_C(1) << 30);
    weft_planner_answer *a;
    int64_t              need[2];
    (void)state;
    for (int copies = 1; copies <= 2; copies++) {
        weft_planner_request q = ask_for("tiny256", c, 8);
        weft_search_fix(&q.constraints, WEFT_KEY_zero, 3);
        weft_search_fix(&q.constraints, WEFT_KEY_dp, 4);
        weft_search_fix(&q.constraints, WEFT_KEY_copies, copies);
        if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
        assert_int_equal(a->plan->strategy.copies, copies);
        need[copies - 1] = need_of(&q, a->plan);
        assert_true(a->plan->predicted.mem_bytes[0] <= need[copies - 1]);
        weft_planner_destroy(a);
    }
    assert_true(need[1] > need[0]);
    weft_planner_request q = ask_for("tiny256", c, 8);
    weft_search_fix(&q.constraints, WEFT_KEY_copies, 2);
    assert_ok(weft_planner_plan(&q, &a));
    assert_true(a->plan->strategy.dp >= 2 && a->plan->strategy.copies == 2);
    weft_planner_destroy(a);
    weft_search_fix(&q.constraints, WEFT_KEY_dp, 1);
    weft_search_fix(&q.constraints, WEFT_KEY_copies, 3); /* two standby replicas */
    assert_ok(weft_planner_plan(&q, &a));
    assert_int_equal(weft_plan_n_standby(a->plan), 2);
    weft_planner_destroy(a);
    weft_search_fix(&q.constraints, WEFT_KEY_copies, 5); /* a rank holds at most three */
    assert_fails(weft_planner_plan(&q, &a), WEFT_ERR_ARG,
                 "copies=5: dp=1 has fewer replicas");
    weft_cluster_destroy(c);
}

/* Copies on as many hosts: not the fastest plan, whose replicas are neighbours, but the fastest of
 * those of which a lost host takes no part of the state alone. */
static void copies_are_on_several_hosts(void **state)
{
    static const int     two[] = {2, 2};
    weft_cluster        *c;
    weft_planner_answer *a;
    double               step_s[2];
    (void)state;
    assert_ok(weft_cluster_load("2 x (2 x epyc-7763), 1 x eth-10g", NULL, &c));
    for (int spreads = 0; spreads <= 1; spreads++) {
        weft_planner_request q = ask_for("tiny256", c, 16);
        q.keep_bits            = true;
        q.world                = 4;
        weft_search_fix(&q.constraints, WEFT_KEY_copies, 2);
        q.constraints.n_host     = spreads ? 2 : 0;
        q.constraints.host_ranks = two;
        if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
        assert_int_equal(weft_strategy_state_hosts(&a->plan->strategy, 2, two),
                         1 + spreads);
        step_s[spreads] = a->step_s;
        weft_planner_destroy(a);
    }
    assert_true(step_s[1] >= step_s[0]);
    weft_cluster_destroy(c);
}

/* A pipeline alone with copies: every rank holds the state of another one, too, and its gradients;
 * the step has the messages and one more update. */
static void plans_with_standby_replicas(void **state)
{
    weft_cluster        *c = machines(4, INT64_C(1) << 30);
    weft_planner_answer *a;
    int64_t              need[3];
    double               step_s[3];
    (void)state;
    for (int copies = 1; copies <= 3; copies++) {
        weft_planner_request q = ask_for("tiny256", c, 8);
        weft_search_fix(&q.constraints, WEFT_KEY_dp, 1);
        weft_search_fix(&q.constraints, WEFT_KEY_pp, 4);
        weft_search_fix(&q.constraints, WEFT_KEY_tp, 1);
        weft_search_fix(&q.constraints, WEFT_KEY_copies, copies);
        if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
        assert_int_equal(weft_plan_n_standby(a->plan), copies - 1);
        need[copies - 1]   = need_of(&q, a->plan);
        step_s[copies - 1] = a->plan->predicted.step_s;
        assert_true(a->plan->predicted.mem_bytes[0] <= need[copies - 1]);
        weft_planner_destroy(a);
    }
    for (int k = 0; k < 3; k++)
        print_message("pp=4 copies=%d: %ld bytes, %.4f s a step\n", 1 + k, (long)need[k],
                      step_s[k]);
    for (int k = 1; k < 3; k++) {
        assert_true(need[k] - need[k - 1] > need[0] / 5);
        assert_true(step_s[k] > step_s[k - 1]);
    }
    weft_cluster_destroy(c);
}

static void layers_lie_where_they_are_pinned(void **state)
{
    const int            want[] = {2, 3, 0, 1};
    weft_cluster        *c;
    weft_arena          *tmp;
    weft_planner_request q;
    weft_planner_answer *a;
    (void)state;
    assert_ok(weft_arena_create(&tmp));
    assert_ok(weft_cluster_load("2 x (2 x a100-80g)", NULL, &c));
    q              = ask_for("tiny256", c, 8);
    q.engine_bytes = 0;
    assert_ok(weft_search_constrain(&q.constraints, "layers 2..3 on node 0", tmp));
    assert_ok(weft_search_constrain(&q.constraints, "pp=2", tmp));
    assert_ok(weft_search_constrain(&q.constraints, "dp=2", tmp));
    assert_ok(weft_planner_plan(&q, &a));
    assert_int_equal(a->plan->machines.n_device, 4);
    assert_memory_equal(a->plan->machines.device, want, sizeof want);
    assert_true(a->tried[0]->choice.point.cut[0] <= 2);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
    weft_arena_destroy(tmp);
}

static void machines_are_compared(void **state)
{
    weft_cluster *c = machines(2, (int64_t)1 << 30), *d = machines(4, (int64_t)1 << 30),
                 *e        = machines(2, (int64_t)1 << 31);
    weft_planner_request q = ask_for("tiny256", c, 8);
    weft_planner_answer *a;
    weft_plan_machines   have;
    weft_arena          *tmp;
    bool                 warn;
    (void)state;
    assert_ok(weft_arena_create(&tmp));
    assert_ok(weft_planner_plan(&q, &a));
    assert_ok(weft_planner_name_machines(c, tmp, &have));
    assert_ok(weft_plan_check_machines(a->plan, "p", &have, &warn));
    assert_false(warn);
    assert_ok(weft_planner_name_machines(e, tmp, &have));
    assert_ok(weft_plan_check_machines(a->plan, "p", &have, &warn));
    assert_true(warn);
    assert_ok(weft_planner_name_machines(d, tmp, &have));
    assert_int_equal(weft_plan_check_machines(a->plan, "p", &have, &warn), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "1 x (2 x cpu) there, 1 x (4 x cpu) here"));
    weft_planner_destroy(a);
    weft_arena_destroy(tmp);
    weft_cluster_destroy(c);
    weft_cluster_destroy(d);
    weft_cluster_destroy(e);
}

/* An encoder's result goes past stages to all of the decoder: nobody waits for what waits for
 * him. */
static void long_pipelines_of_two_halves(void **state)
{
    weft_planner_answer *a;
    weft_cluster        *c;
    (void)state;
    if (WEFT_TEST_SANITIZED && !TEST_LONG)
        skip(); /* a large model: the calls of small ones */
    assert_ok(weft_cluster_load("2 x (8 x a100-80g)", NULL, &c));
    weft_planner_request q = ask_for("t5-large", c, 256);
    q.n_best               = 1;
    q.engine_bytes         = 0;
    q.spec.seq             = 512;
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 16);
    q.constraints.micro_batch = 8;
    for (int k = 0; k < (WEFT_TEST_SANITIZED ? 1 : 3); k += 2 * TEST_FEW(2)) {
        weft_search_fix(&q.constraints, WEFT_KEY_schedule, k);
        if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
        assert_true(a->checked);
        for (int i = 0; i < a->n_tried; i++)
            assert_int_not_equal(a->tried[i]->end, WEFT_PLANNER_NO_PLAN);
        weft_planner_destroy(a);
    }
    weft_cluster_destroy(c);
}

/* Messages between stages hide behind work, sums of replicas do not: ranks lie where the step is
 * shortest, not where the bytes are fewest. */
static void what_hides_is_not_in_the_way(void **state)
{
    weft_planner_answer *a;
    weft_cluster        *c;
    int                  at;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* a minute of compiling */
    assert_ok(weft_cluster_load("4 x (8 x a100-80g)", NULL, &c));
    weft_planner_request q = ask_for("gpt2-large", c, 512);
    q.n_best               = 1;
    q.engine_bytes         = 0;
    q.spec.seq             = 1024;
    weft_search_fix(&q.constraints, WEFT_KEY_pp, 8);
    weft_search_fix(&q.constraints, WEFT_KEY_dp, 4);
    weft_search_fix(&q.constraints, WEFT_KEY_zero, 2);
    q.constraints.micro_batch = 4;
    weft_search_fix(&q.constraints, WEFT_KEY_schedule, WEFT_COST_ZERO_BUBBLE);
    q.spec.dtype = "bf16";
    if (weft_planner_plan(&q, &a) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_true(a->tried[0]->plain);
    assert_true(a->step_s < 1.03 * a->tried[0]->choice.score.step_s);
    const weft_plan_machines *m = &a->plan->machines;
    for (int r = 0; r < 4; r++) /* a stage's replicas share a node */
        assert_int_equal(weft_cluster_node(c, m->n_device ? m->device[r] : r, &at), 0);
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
}

/* The step with these constraints, and what the plan then has of later. */
static double step_with(const weft_planner_request *q, int zero, int later, int *got)
{
    weft_planner_answer *a;
    weft_planner_request one = *q;
    weft_search_fix(&one.constraints, WEFT_KEY_zero, zero);
    weft_search_fix(&one.constraints, WEFT_KEY_overlap_param_gather, later);
    assert_ok(weft_planner_plan(&one, &a));
    assert_int_equal(a->plan->strategy.overlap_param_gather,
                     a->tried[0]->choice.strategy.overlap_param_gather);
    if (zero >= 0) assert_int_equal(a->plan->strategy.zero, zero);
    double step_s = a->step_s;
    *got          = a->plan->strategy.overlap_param_gather;
    weft_planner_destroy(a);
    return step_s;
}

static void says_later(const weft_planner_request *q, const weft_planner_answer *a)
{
    weft_text               t = {0}, j = {0}, p = {0};
    weft_planner_workspace *w;
    assert_ok(weft_planner_workspace_create(q, &w));
    assert_ok(weft_planner_print(w, a, true, &t));
    assert_ok(weft_planner_print_json(w, a, &j));
    weft_planner_workspace_destroy(w);
    assert_ok(weft_plan_print(a->plan, &p));
    assert_non_null(strstr(t.s, " overlap_param_gather="));
    assert_non_null(strstr(t.s, "during the next step's forward pass"));
    assert_non_null(strstr(j.s, "\"without_overlap_s\": "));
    assert_non_null(strstr(p.s, "\"overlap_param_gather\": "));
    assert_non_null(strstr(p.s, "\"bucket_bytes\": "));
    weft_text_fini(&t);
    weft_text_fini(&j);
    weft_text_fini(&p);
}

/* Hosts on a slow wire: parameters come back in the next step's forward pass, unless somebody has
 * said otherwise. */
static void gathers_later_over_slow_wires(void **state)
{
    static const struct {
        const char *cluster, *dtype;
        int         later;
    } on[] = {{"2 x (1 x t4)", "fp32", 66}, {"4 x (1 x t4)", NULL, 100}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(on); i += TEST_FEW(2)) {
        weft_cluster        *c;
        weft_planner_answer *a;
        int                  got;
        assert_ok(weft_cluster_load(on[i].cluster, NULL, &c));
        weft_planner_request q = ask_for("gpt2", c, 32);
        q.spec.seq             = 256;
        q.spec.dtype           = on[i].dtype;
        weft_search_fix(&q.constraints, WEFT_KEY_pp, 1);
        weft_search_fix(&q.constraints, WEFT_KEY_tp, 1);
        assert_ok(weft_planner_plan(&q, &a));
        assert_int_equal(a->plan->strategy.overlap_param_gather, on[i].later);
        assert_true(a->plan->strategy.zero > 0 && a->plan->strategy.bucket_bytes > 0);
        assert_true(a->step_s < 0.99 * a->tried[0]->without_s);
        assert_true(a->step_s < 0.99 * a->tried[0]->buckets_s);
        q.spec.dtype = a->plan->of.dtype;
        assert_true(need_of(&q, a->plan) <= a->tried[0]->mem_limit);
        q.spec.dtype = on[i].dtype;
        says_later(&q, a);
        assert_true(step_with(&q, 0, -1, &got) > 1.01 * a->step_s && !got);
        assert_true(step_with(&q, -1, 0, &got) > 1.01 * a->step_s && !got);
        step_with(&q, 2, 50, &got);
        assert_int_equal(got, 50);
        weft_search_fix(&q.constraints, WEFT_KEY_zero, 3);
        weft_search_fix(&q.constraints, WEFT_KEY_overlap_param_gather, 50);
        weft_planner_destroy(a);
        assert_int_equal(weft_planner_plan(&q, &a), WEFT_ERR_ARG);
        weft_cluster_destroy(c);
    }
}

/* Two ranks and one micro-batch: the answer says that stages wait for each other; with two
 * micro-batches that they do not. */
static void says_that_a_pipeline_has_too_few_micro_batches(void **state)
{
    weft_cluster *c = machines(2, (int64_t)1 << 30);
    (void)state;
    for (int n = 1; n <= 2; n++) {
        weft_planner_answer *a;
        weft_planner_request q = ask_for("tiny256", c, 8);
        q.world                = 2;
        weft_search_fix(&q.constraints, WEFT_KEY_pp, 2);
        q.spec.micro_batch = 8 / n;
        q.spec.lanes       = 1;
        assert_ok(weft_planner_plan(&q, &a));
        assert_int_equal(a->plan->strategy.pp, 2);
        assert_int_equal(weft_planner_missing_micro(a), 2 - n);
        weft_planner_destroy(a);
    }
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_that_a_pipeline_has_too_few_micro_batches),
        cmocka_unit_test(gathers_later_over_slow_wires),
        cmocka_unit_test(what_hides_is_not_in_the_way),
        cmocka_unit_test(long_pipelines_of_two_halves),
        cmocka_unit_test(never_returns_what_does_not_fit),
        cmocka_unit_test(the_same_twice),
        cmocka_unit_test(buckets_are_the_jobs),
        cmocka_unit_test(the_fastest_of_those_tried),
        cmocka_unit_test(keeps_what_is_said),
        cmocka_unit_test(names_devices),
        cmocka_unit_test(shares_by_speed),
        cmocka_unit_test(plans_with_copies),
        cmocka_unit_test(copies_are_on_several_hosts),
        cmocka_unit_test(plans_with_standby_replicas),
        cmocka_unit_test(layers_lie_where_they_are_pinned),
        cmocka_unit_test(machines_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
