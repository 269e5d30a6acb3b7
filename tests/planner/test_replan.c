/* The next plan of a running job: kinds of plans for (running plan, ranks), lanes that do not
 * divide, ranks left idle, hosts with unequal numbers of ranks, what is kept, the plan cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "planner/planner.h"
#include "planner/replan.h"
#include "support/test.h"

typedef struct planned_job {
    weft_training training;
    weft_cluster *cluster;
} planned_job;

static void open_job(const char *model, int batch, int lanes, int micro, const char *on,
                     planned_job *out)
{
    weft_compile_spec s = weft_compile_spec_default(model, batch, 16);
    *out                = (planned_job){0};
    s.lanes             = lanes;
    s.micro_batch       = micro;
    s.reduction         = WEFT_REDUCTION_INVARIANT;
    s.dtype             = "fp32";
    if (on && strstr(on, "a100")) weft_compile_for_cuda(&s);
    assert_ok(weft_compile_training(&s, &out->training));
    if (on) assert_ok(weft_cluster_load(on, NULL, &out->cluster));
}

static void close_job(planned_job *j)
{
    weft_training_fini(&j->training);
    weft_cluster_destroy(j->cluster);
}

static weft_plan *make_plan(const planned_job *j, const char *words)
{
    weft_strategy y;
    weft_plan    *p;
    assert_ok(weft_strategy_parse(words, &y));
    assert_ok(weft_compile_plan(&j->training, &y, 0, &p));
    return p;
}

/* Every rank of the answer has a program, and together they have all lanes. */
static void check_answer(const planned_job *j, const weft_plan *was,
                         const weft_replan_answer *a, int n_rank)
{
    weft_compiled one = {0};
    assert_true(a->n_rank >= 1 && a->n_rank <= n_rank);
    assert_int_equal(a->n_rank + a->n_idle, n_rank);
    assert_int_equal(a->plan->of.lanes, j->training.spec.lanes);
    assert_int_equal(a->plan->of.micro_batch, j->training.spec.micro_batch);
    assert_true(weft_plan_lane_ranks(a->plan) <= j->training.spec.lanes);
    assert_int_equal(a->plan->strategy.tp, was->strategy.tp);
    assert_int_equal(a->plan->strategy.cp, was->strategy.cp);
    assert_int_equal(a->plan->strategy.recompute, was->strategy.recompute);
    for (int r = 0; r<a->n_rank; r += a->n_rank> 1 ? a->n_rank - 1 : 1) {
        assert_ok(weft_compile_program(&j->training, a->plan, r, &one));
        weft_compiled_fini(&one);
    }
}

/* The job's keys say how: only replicas change, and stages where ranks are fewer. */
static void keeps_the_shape(void **state)
{
    static const struct {
        const char      *was, *then;
        int              n_rank, most_lanes, n_idle;
        weft_replan_kind kind;
        const char      *shape; /* of the job's keys; NULL: as it was */
    } rows[] = {
        {"dp=2", "dp=4", 4, 1, 0, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=4", "dp=3", 3, 2, 0, WEFT_REPLAN_REPLICAS, NULL}, /* 4 lanes as 2, 1, 1 */
        {"dp=4", "dp=4", 4, 1, 0, WEFT_REPLAN_SAME, NULL},
        {"dp=4", "dp=4", 7, 1, 3, WEFT_REPLAN_SAME, NULL}, /* no more than lanes */
        {"dp=3", "dp=1", 1, 4, 0, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=2 pp=2", "dp=1 pp=2", 3, 4, 1, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=2 pp=2", "dp=1", 1, 4, 0, WEFT_REPLAN_SHAPE, NULL},
        {"pp=2", "dp=2 pp=2", 4, 2, 0, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=3 zero=3", "dp=2 zero=3", 2, 2, 0, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=2 zero=1", "dp=1", 1, 4, 0, WEFT_REPLAN_REPLICAS, NULL},
        /* copies divide dp, as near to what the job asks for as can be */
        {"dp=4 zero=1 copies=2", "dp=3 zero=1 copies=3", 3, 2, 0, WEFT_REPLAN_REPLICAS,
         NULL},
        {"dp=4 zero=3 copies=4", "dp=2 zero=3 copies=2", 2, 2, 0, WEFT_REPLAN_REPLICAS,
         NULL},
        {"dp=3 zero=1 copies=3", "dp=4 zero=1 copies=2", 4, 1, 0, WEFT_REPLAN_REPLICAS,
         "dp=4 zero=1 copies=2"},
        {"tp=2", "dp=2 tp=2", 5, 2, 1, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=2 tp=2", "dp=1 tp=2", 3, 4, 1, WEFT_REPLAN_REPLICAS, NULL},
        {"dp=1", "dp=1 pp=2", 2, 4, 0, WEFT_REPLAN_SHAPE, "pp=2"}, /* back to it */
        {"dp=1", "dp=3 zero=3", 3, 2, 0, WEFT_REPLAN_REPLICAS, "dp=4 zero=3"},
        {"pp=2", "dp=1 pp=3", 3, 4, 0, WEFT_REPLAN_SHAPE, "pp=4"},
        {"dp=2 zero=1 overlap_param_gather=0.5", "dp=1", 1, 4, 0, WEFT_REPLAN_REPLICAS,
         NULL},
    };
    (void)state;
    planned_job     j;
    weft_replanner *r;
    open_job("tiny256", 8, 4, 1, NULL, &j);
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_replan_answer a   = {0};
        weft_plan         *was = make_plan(&j, rows[i].was);
        weft_text          t   = {0};
        weft_strategy      shape;
        assert_ok(
            weft_strategy_parse(rows[i].shape ? rows[i].shape : rows[i].was, &shape));
        assert_ok(weft_replanner_create(
            &(weft_replan_job){.training = &j.training, .shape = &shape}, &r));
        assert_ok(weft_replanner_decide(
            r, &(weft_replan_request){.was = was, .n_rank = rows[i].n_rank}, &a));
        check_answer(&j, was, &a, rows[i].n_rank);
        weft_strategy_print(&a.plan->strategy, &t);
        if (strncmp(t.s, rows[i].then, strlen(rows[i].then)) != 0)
            fail_msg("%s with %d ranks: %s", rows[i].was, rows[i].n_rank, t.s);
        assert_int_equal(a.kind, rows[i].kind);
        assert_int_equal(a.most_lanes, rows[i].most_lanes);
        assert_int_equal(a.n_idle, rows[i].n_idle);
        weft_text_fini(&t);
        weft_plan_destroy(was);
        weft_replan_answer_fini(&a);
        weft_replanner_destroy(r);
    }
    close_job(&j);
}

/* Every rank has a program of the plan's own lanes and micro-batch. */
static void check_cut(const planned_job *j, const weft_plan *p, int lanes, int micro)
{
    weft_training        own = {0};
    const weft_training *t;
    weft_compiled        one = {0};
    assert_int_equal(p->of.lanes, lanes);
    assert_int_equal(p->of.micro_batch, micro);
    assert_ok(weft_compile_training_of(&j->training, &p->of, &own, &t));
    assert_true((t == &own) == (j->training.spec.lanes != lanes));
    for (int r = 0; r < weft_plan_world(p); r++) {
        assert_ok(weft_compile_program(t, p, r, &one));
        weft_compiled_fini(&one);
    }
    weft_training_fini(&own);
}

/* More replicas than lanes: where sums may follow the plan, it has as many lanes as are needed, and
 * a smaller micro-batch where a step has too few of them; else the lanes are the most replicas. */
static void more_replicas_than_lanes(void **state)
{
    static const struct {
        weft_reduction reduction;
        const char    *on; /* NULL: nothing is priced */
        int            micro, n_rank, dp, lanes, then_micro;
    } rows[] = {
        {WEFT_REDUCTION_FIXED, NULL, 1, 2, 2, 2, 1},
        {WEFT_REDUCTION_FIXED, NULL, 1, 3, 3, 4, 1},
        {WEFT_REDUCTION_FIXED, NULL, 4, 4, 4, 4, 2},
        {WEFT_REDUCTION_FIXED, NULL, 4, 16, 8, 8, 1}, /* no more than the batch */
        {WEFT_REDUCTION_FIXED, "1 x (4 x epyc-7763)", 1, 4, 4, 4, 1},
        {WEFT_REDUCTION_FIXED, "1 x (4 x epyc-7763)", 4, 4, 4, 4, 2},
        {WEFT_REDUCTION_FIXED, "1 x (4 x epyc-7763)", 2, 1, 1, 2, 2},
        {WEFT_REDUCTION_INVARIANT, NULL, 4, 4, 2, 2, 4},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        planned_job        j;
        weft_replanner    *r;
        weft_replan_answer a = {0}, late = {0};
        open_job("tiny256", 8, 2, rows[i].micro, rows[i].on, &j);
        weft_compile_spec s = j.training.spec;
        s.reduction         = rows[i].reduction;
        s.seq               = 256; /* replicas are worth their sums */
        weft_training_fini(&j.training);
        assert_ok(weft_compile_training(&s, &j.training));
        weft_plan *was = make_plan(&j, "dp=2");
        assert_ok(weft_replanner_create(
            &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
        weft_replan_request q = {.was = was, .n_rank = rows[i].n_rank};
        assert_ok(weft_replanner_decide(r, &q, &a));
        assert_ok(weft_replanner_search(r, &q, &late));
        assert_int_equal(a.plan->strategy.dp, rows[i].dp);
        assert_int_equal(a.most_lanes, (rows[i].lanes + rows[i].dp - 1) / rows[i].dp);
        check_cut(&j, a.plan, rows[i].lanes, rows[i].then_micro);
        check_cut(&j, late.plan, rows[i].lanes, rows[i].then_micro);
        assert_true((a.step_s > 0) == (rows[i].on != NULL));
        weft_plan_destroy(was);
        weft_replan_answer_fini(&a);
        weft_replan_answer_fini(&late);
        weft_replanner_destroy(r);
        close_job(&j);
    }
}

/* With copies the next plan has them on as many hosts, quickly or with time. */
static void copies_stay_on_several_hosts(void **state)
{
    static const int ranks[] = {2, 2};
    (void)state;
    planned_job     j;
    weft_replanner *r;
    weft_strategy   y;
    open_job("tiny256", 16, 8, 1, "2 x (2 x epyc-7763), 1 x eth-10g", &j);
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    for (int copies = 1; copies <= 2; copies++) {
        weft_replan_answer quick = {0}, late = {0};
        assert_ok(weft_strategy_parse("dp=2", &y));
        y.copies = copies;
        weft_plan          *was;
        weft_replan_request q = {.n_rank = 4, .n_host = 2, .host_ranks = ranks};
        assert_ok(weft_compile_plan(&j.training, &y, 0, &was));
        q.was = was;
        assert_ok(weft_replanner_decide(r, &q, &quick));
        assert_ok(weft_replanner_search(r, &q, &late));
        int hosts[] = {weft_strategy_state_hosts(&quick.plan->strategy, 2, ranks),
                       weft_strategy_state_hosts(&late.plan->strategy, 2, ranks)};
        assert_int_equal(hosts[0], copies);
        assert_int_equal(hosts[1], copies);
        weft_plan_destroy(was);
        weft_replan_answer_fini(&quick);
        weft_replan_answer_fini(&late);
    }
    weft_replanner_destroy(r);
    close_job(&j);
}

/* Sums go to buckets as before, whatever the number of ranks. */
static void buckets_stay(void **state)
{
    (void)state;
    planned_job     j;
    weft_replanner *r;
    open_job("tiny256", 16, 8, 1, "2 x (2 x epyc-7763), 1 x eth-10g", &j);
    weft_plan *was             = make_plan(&j, "dp=2");
    was->strategy.bucket_bytes = 3 << 20;
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    for (int n = 1; n <= 4; n++) {
        weft_replan_answer  quick = {0}, late = {0};
        weft_replan_request q = {.was = was, .n_rank = n};
        assert_ok(weft_replanner_decide(r, &q, &quick));
        assert_ok(weft_replanner_search(r, &q, &late));
        assert_int_equal(quick.plan->strategy.bucket_bytes, 3 << 20);
        assert_int_equal(late.plan->strategy.bucket_bytes, 3 << 20);
        weft_replan_answer_fini(&quick);
        weft_replan_answer_fini(&late);
    }
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* A plan that was read names the axes of its mesh alone; replicas come before them. */
static void read_plan_gets_replicas(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer a = {0};
    weft_text          t = {0};
    weft_plan         *read;
    open_job("tiny256", 8, 4, 1, NULL, &j);
    weft_plan *was = make_plan(&j, "tp=2");
    assert_ok(weft_plan_print(was, &t));
    assert_ok(weft_plan_parse("plan.json", t.s, t.n, &read));
    assert_ok(weft_replanner_create(&(weft_replan_job){.training = &j.training}, &r));
    assert_ok(
        weft_replanner_decide(r, &(weft_replan_request){.was = read, .n_rank = 4}, &a));
    check_answer(&j, read, &a, 4);
    assert_int_equal(a.n_rank, 4);
    assert_string_equal(a.plan->axis[0].name, "dp");
    assert_string_equal(a.plan->axis[1].name, "tp");
    weft_text_fini(&t);
    weft_plan_destroy(was);
    weft_plan_destroy(read);
    weft_replan_answer_fini(&a);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* Of priced plans, too, there is one for every number of ranks, and the same plan is never said to
 * cost a move. */
static void every_number_has_a_plan(void **state)
{
    static const char *const was[] = {"dp=4", "dp=2 pp=2", "pp=4", "dp=4 zero=1"};
    (void)state;
    planned_job     j;
    weft_replanner *r;
    open_job("tiny256", 8, 4, 1, "1 x (8 x a100-80g)", &j);
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    for (size_t i = 0; i < WEFT_COUNT(was); i++) {
        weft_plan *p = make_plan(&j, was[i]);
        for (int n = 1; n <= 5; n++) {
            weft_replan_answer a = {0};
            assert_ok(weft_replanner_decide(
                r, &(weft_replan_request){.was = p, .n_rank = n}, &a));
            check_answer(&j, p, &a, n);
            assert_true(a.step_s > 0);
            if (a.kind == WEFT_REPLAN_SAME) assert_int_equal(a.move_bytes, 0);
            weft_replan_answer_fini(&a);
        }
        weft_plan_destroy(p);
    }
    weft_replanner_destroy(r);
    close_job(&j);
}

/* A short horizon keeps the running shape where a long one pays for moving everything. */
static void moving_costs(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer soon = {0}, late = {0};
    open_job("tiny256", 8, 4, 1, "1 x (4 x a100-80g)", &j);
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    weft_plan *was = make_plan(&j, "dp=2 pp=2");
    assert_ok(weft_replanner_decide(
        r, &(weft_replan_request){.was = was, .n_rank = 4, .horizon_s = 1e-9}, &soon));
    assert_ok(weft_replanner_decide(
        r, &(weft_replan_request){.was = was, .n_rank = 4, .horizon_s = 1e5}, &late));
    assert_int_equal(soon.kind, WEFT_REPLAN_SAME);
    assert_true(late.step_s <= soon.step_s);
    assert_int_equal(late.kind, WEFT_REPLAN_SHAPE);
    assert_true(late.move_s > 0 && late.move_bytes > 0);
    weft_replan_answer_fini(&soon);
    weft_replan_answer_fini(&late);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

static void hosts_may_be_unequal(void **state)
{
    static const int three[] = {3, 2, 1}, ones[] = {1, 1};
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer a = {0};
    open_job("tiny256", 8, 4, 1, NULL, &j);
    assert_ok(weft_replanner_create(&(weft_replan_job){.training = &j.training}, &r));
    weft_plan *was = make_plan(&j, "dp=2 tp=2");
    assert_ok(weft_replanner_decide(
        r,
        &(weft_replan_request){.was = was, .n_rank = 6, .n_host = 3, .host_ranks = three},
        &a));
    assert_int_equal(a.n_rank, 4); /* a pair on the first, a pair on the second */
    weft_replan_answer_fini(&a);
    /* a pair across hosts, where no host has room for one */
    assert_ok(weft_replanner_decide(
        r,
        &(weft_replan_request){.was = was, .n_rank = 2, .n_host = 2, .host_ranks = ones},
        &a));
    assert_int_equal(a.n_rank, 2);
    weft_replan_answer_fini(&a);
    assert_int_equal(weft_replanner_decide(
                         r,
                         &(weft_replan_request){
                             .was = was, .n_rank = 1, .n_host = 1, .host_ranks = ones},
                         &a),
                     WEFT_ERR_ARG);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* The second time it is a copy; times are compared with each other, not with a clock. */
static void answers_are_kept(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer a = {0}, b = {0};
    open_job("gpt2", 64, 64, 1, "8 x (8 x a100-80g)", &j);
    double t0 = weft_clock_s();
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    weft_plan          *was = make_plan(&j, "dp=64");
    weft_replan_request q   = {.was = was, .n_rank = 63};
    double              t1  = weft_clock_s();
    assert_ok(weft_replanner_decide(r, &q, &a));
    double t2 = weft_clock_s();
    assert_ok(weft_replanner_decide(r, &q, &b));
    double t3 = weft_clock_s();
    if (getenv("WEFT_TEST_TIMES"))
        printf("open %.1f ms, decide %.1f ms, again %.1f ms\n", 1e3 * (t1 - t0),
               1e3 * (t2 - t1), 1e3 * (t3 - t2));
    assert_false(a.from_cache);
    assert_true(b.from_cache);
    assert_true(weft_plan_equal(a.plan, b.plan));
    assert_int_equal(a.kind, b.kind);
    assert_true(t3 - t2 < t2 - t1);
    weft_replan_answer_fini(&a);
    weft_replan_answer_fini(&b);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

static bool count_down(void *left)
{
    int *n = left;
    return (*n)-- <= 0;
}

/* A search that is late takes what it has: nothing yet means more or fewer replicas of the running
 * plan, one plan means that shape, priced; and such an answer is not kept. */
static void late_answers_are_not_waited_for(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer a = {0}, all = {0};
    int                left = 0;
    open_job("tiny256", 8, 4, 1, "1 x (4 x a100-80g)", &j);
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    weft_plan          *was = make_plan(&j, "dp=2 pp=2");
    weft_replan_request q   = {
          .was = was, .n_rank = 3, .is_late = count_down, .late_arg = &left};
    for (int n_priced = 0; n_priced < 2; n_priced++) {
        left = n_priced;
        assert_ok(weft_replanner_decide(r, &q, &a));
        check_answer(&j, was, &a, 3);
        assert_true(a.cut_short && !a.from_cache);
        assert_int_equal(a.kind, WEFT_REPLAN_REPLICAS);
        assert_int_equal(a.plan->strategy.pp, 2);
        assert_int_equal(a.n_rank, 2);
        assert_true((a.step_s > 0) == (n_priced > 0));
        assert_int_equal(left, -1); /* it is asked no more */
        weft_replan_answer_fini(&a);
    }
    left = 1000;
    assert_ok(weft_replanner_decide(r, &q, &a));
    q.is_late = NULL;
    assert_ok(weft_replanner_decide(r, &q, &all));
    assert_false(a.cut_short || a.from_cache);
    assert_true(all.from_cache && weft_plan_equal(a.plan, all.plan));
    assert_int_equal(all.kind, WEFT_REPLAN_SHAPE); /* three replicas without stages */
    weft_replan_answer_fini(&a);
    weft_replan_answer_fini(&all);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* With time the answer is within 5 % of what the planner finds when it knows no running plan. */
static void as_good_as_a_search_from_nothing(void **state)
{
    static const struct {
        const char *model, *on, *was;
        int         batch, lanes, n_rank;
    } rows[] = {
        {"tiny256", "1 x (7 x a100-80g)", "dp=8", 16, 8, 7},
        {"tiny256", "5 x (1 x a100-80g)", "dp=2 pp=3", 16, 8, 5},
        {"tiny256", "3 x (1 x epyc-7763)", "dp=4", 8, 4, 3},
        {"gpt2", "15 x (1 x a100-40g)", "dp=4 pp=4", 32, 16, 15},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i += TEST_STRIDE(2)) {
        planned_job          j;
        weft_replanner      *r;
        weft_replan_answer   a    = {0};
        weft_planner_answer *anew = NULL;
        open_job(rows[i].model, rows[i].batch, rows[i].lanes, 1, rows[i].on, &j);
        weft_plan           *was = make_plan(&j, rows[i].was);
        weft_planner_request q   = {
              .spec = j.training.spec, .cluster = j.cluster, .keep_bits = true};
        weft_search_open(&q.constraints);
        weft_search_fix(&q.constraints, WEFT_KEY_recompute, 0);
        assert_ok(weft_planner_plan(&q, &anew));
        assert_ok(weft_replanner_create(
            &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
        assert_ok(weft_replanner_search(
            r, &(weft_replan_request){.was = was, .n_rank = rows[i].n_rank}, &a));
        check_answer(&j, was, &a, rows[i].n_rank);
        if (a.step_s > 1.05 * anew->step_s)
            fail_msg("%s on %s: %g s, the planner finds %g", rows[i].model, rows[i].on,
                     a.step_s, anew->step_s);
        weft_planner_destroy(anew);
        weft_replan_answer_fini(&a);
        weft_replanner_destroy(r);
        weft_plan_destroy(was);
        close_job(&j);
    }
}

/* The running plan stays where the gain is less than the pause. */
static void a_pause_has_to_pay(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer soon = {0}, late = {0};
    open_job("tiny256", 16, 8, 1, "1 x (8 x a100-80g)", &j);
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .cluster = j.cluster}, &r));
    weft_plan          *was = make_plan(&j, "dp=1 pp=4");
    weft_replan_request q   = {.was = was, .n_rank = 8, .horizon_s = 60, .pause_s = 1e5};
    assert_ok(weft_replanner_search(r, &q, &soon));
    assert_int_equal(soon.kind, WEFT_REPLAN_SAME);
    assert_true(weft_plan_equal(soon.plan, was));
    q.pause_s = 0.5;
    assert_ok(weft_replanner_search(r, &q, &late));
    assert_int_not_equal(late.kind, WEFT_REPLAN_SAME);
    assert_true(late.was_step_s > 0 && late.step_s < late.was_step_s);
    weft_replan_answer_fini(&soon);
    weft_replan_answer_fini(&late);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* What is least of ranks that help nothing: those that the job needs, that the running plan has for
 * about the same step, and that hold what no other does. */
static void ranks_are_kept(void **state)
{
    static const struct {
        const char *was;
        int n_rank, n_least, n_then; /* on hosts of one rank; n_then: of the answer */
    } rows[] = {
        {"dp=1", 2, 0, 1}, /* over this network a second host makes no step shorter */
        {"dp=1", 2, 2, 2}, /* but the job needs it */
        {"dp=2", 2, 0, 1}, {"pp=2", 2, 0, 2}, /* each holds what the other does not */
        {"pp=3", 2, 0, 2},
    };
    static const char slow[] =
        "name: slow\ndevice:\n  - {name: cpu, flops: {f32: 5e10}, efficiency: 0.8, "
        "mem_Bps: 1e10, mem_bytes: 4000000000, launch_s: 2e-06}\nlink:\n  - {name: net, "
        "scope: net, alpha_s: 1e-03, Bps: 1e6}\nnode:\n  - {name: host, count: 4, "
        "device: "
        "cpu, n_device: 1, net: net, n_port: 1}\n";
    const int one[] = {1, 1, 1, 1};
    (void)state;
    planned_job     j;
    weft_replanner *r;
    open_job("tiny256", 8, 4, 2, NULL, &j);
    assert_ok(weft_cluster_parse("slow", slow, strlen(slow), &j.cluster));
    assert_ok(weft_replanner_create(&(weft_replan_job){.training = &j.training,
                                                       .cluster  = j.cluster,
                                                       .on_cpus  = true},
                                    &r));
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_replan_answer  a   = {0};
        weft_plan          *was = make_plan(&j, rows[i].was);
        weft_replan_request q   = {.was        = was,
                                   .n_rank     = rows[i].n_rank,
                                   .n_host     = rows[i].n_rank,
                                   .host_ranks = one,
                                   .n_least    = rows[i].n_least};
        for (int search = 0; search < 2; search++) {
            assert_ok(search ? weft_replanner_search(r, &q, &a)
                             : weft_replanner_decide(r, &q, &a));
            if (a.n_rank != rows[i].n_then)
                fail_msg("%s on %d hosts: %d ranks", rows[i].was, rows[i].n_rank,
                         a.n_rank);
            weft_replan_answer_fini(&a);
        }
        weft_plan_destroy(was);
    }
    weft_replanner_destroy(r);
    close_job(&j);
}

/* One that is there stays where the step is about as long without it; one that comes waits. */
static void hosts_that_are_there_stay(void **state)
{
    const int one[] = {1, 1, 1};
    (void)state;
    planned_job     j;
    weft_replanner *r;
    int             n[2];
    open_job("tiny256", 64, 4, 16, "3 x (1 x epyc-7763)", &j);
    assert_ok(weft_replanner_create(&(weft_replan_job){.training = &j.training,
                                                       .cluster  = j.cluster,
                                                       .on_cpus  = true},
                                    &r));
    for (int k = 0; k < 2; k++) {
        weft_replan_answer a   = {0};
        weft_plan         *was = make_plan(&j, k ? "dp=4" : "dp=2");
        assert_ok(weft_replanner_decide(
            r,
            &(weft_replan_request){
                .was = was, .n_rank = 3, .n_host = 3, .host_ranks = one},
            &a));
        n[k] = a.n_rank;
        weft_replan_answer_fini(&a);
        weft_plan_destroy(was);
    }
    assert_true(n[0] <= n[1]);
    assert_int_equal(n[1], 3);
    weft_replanner_destroy(r);
    close_job(&j);
}

/* Lanes go from slow replicas to the others, and none has nothing. */
static void slow_ranks_get_less_work(void **state)
{
    static const struct {
        const char *was, *then;
        double      slow[4], ratio;
    } rows[] = {
        {"dp=2", "5,3", {1, 1.5}, 5.0 / 6},
        {"dp=2", NULL, {1, 1.1}, 1}, /* 5, 3 would take 5 */
        {"dp=4", "3,2,2,1", {1, 1, 1, 2}, 3.0 / 4},
        {"dp=4 zero=1", "3,2,2,1", {1, 1, 1, 2}, 3.0 / 4},
        {"dp=2 pp=2", NULL, {1, 2, 1, 1}, 1},
        {"pp=2", NULL, {1, 2}, 1},
    };
    (void)state;
    planned_job j;
    open_job("tiny256", 8, 8, 1, NULL, &j);
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_plan *was = make_plan(&j, rows[i].was), *p = NULL;
        weft_text  t = {0};
        double     ratio;
        assert_ok(weft_replanner_rebalance(&j.training, was, rows[i].slow, &p, &ratio));
        assert_true(ratio > rows[i].ratio - 1e-9 && ratio < rows[i].ratio + 1e-9);
        assert_true(!p == !rows[i].then);
        for (int k = 0; p && k < weft_plan_lane_ranks(p); k++)
            weft_text_add(&t, "%s%d", k ? "," : "", p->share[k]);
        if (p && strcmp(t.s, rows[i].then) != 0) fail_msg("%s: %s", rows[i].was, t.s);
        weft_text_fini(&t);
        weft_plan_destroy(p);
        weft_plan_destroy(was);
    }
    close_job(&j);
}

static int draw(uint32_t *state, int n)
{
    *state = *state * 1664525u + 1013904223u;
    return (int)((*state >> 8) % (uint32_t)n);
}

/* Fewer replicas of the running plan are always an answer: random plans, hosts and losses. */
static void fewer_replicas_are_an_answer(void **state)
{
    (void)state;
    planned_job     j;
    weft_replanner *r[2];
    uint32_t        rng = 20261118;
    open_job("tiny256", 8, 4, 1, "1 x (8 x a100-80g)", &j);
    for (int priced = 0; priced < 2; priced++)
        assert_ok(weft_replanner_create(
            &(weft_replan_job){.training = &j.training,
                               .cluster  = priced ? j.cluster : NULL},
            &r[priced]));
    for (int k = 0; k < 400; k++) {
        int  dp = 1 + draw(&rng, 4), pp = 1 + draw(&rng, 3);
        int  tp = 1 + draw(&rng, 2), zero = dp > 1 ? draw(&rng, 4) : 0;
        int  copies = zero && dp % 2 == 0 && draw(&rng, 2) ? 2 : 1;
        int  local = tp * (1 + draw(&rng, 2)), host[32], n_host = 0, n_rank = 0;
        char words[96];
        snprintf(words, sizeof words, "dp=%d tp=%d pp=%d zero=%d copies=%d", dp, tp, pp,
                 zero, copies);
        weft_plan *was   = make_plan(&j, words);
        int        world = dp * tp * pp, fits = 0;
        while (n_rank < world) { /* what is left of each host */
            int all = world - n_rank < local ? world - n_rank : local;
            n_rank += all;
            int left = draw(&rng, 3) ? all : draw(&rng, all + 1);
            if (!left) continue;
            host[n_host++] = left;
            fits += left / tp;
        }
        n_rank = 0;
        for (int i = 0; i < n_host; i++) n_rank += host[i];
        weft_replan_request q = {
            .was = was, .n_rank = n_rank, .n_host = n_host, .host_ranks = host};
        weft_replan_answer a = {0};
        /* one group of tp is enough: the stages become fewer */
        weft_status st =
            n_rank ? weft_replanner_decide(r[tp == 1 && k % 2], &q, &a) : WEFT_ERR_ARG;
        if ((st == WEFT_OK) != (fits > 0))
            fail_msg("%s, %d ranks on %d hosts: %s", words, n_rank, n_host,
                     weft_error_text());
        if (st == WEFT_OK) {
            assert_true(a.n_rank >= 1 && a.n_rank <= n_rank);
            assert_int_equal(a.plan->strategy.tp > 1 ? a.plan->strategy.tp : 1, tp);
        }
        weft_replan_answer_fini(&a);
        weft_plan_destroy(was);
    }
    weft_replanner_destroy(r[0]);
    weft_replanner_destroy(r[1]);
    close_job(&j);
}

/* reduction: fixed: too few ranks for tp go on without it, and get it back. */
static void tp_may_change_where_sums_follow_the_plan(void **state)
{
    (void)state;
    planned_job        j;
    weft_replanner    *r;
    weft_replan_answer a = {0};
    open_job("tiny256", 8, 4, 1, "1 x (8 x a100-80g)", &j);
    j.training.spec.reduction = WEFT_REDUCTION_FIXED;
    weft_plan    *was         = make_plan(&j, "dp=2 tp=2");
    weft_strategy shape       = was->strategy;
    assert_ok(weft_replanner_create(
        &(weft_replan_job){.training = &j.training, .shape = &shape}, &r));
    for (int n = 4; n >= 1; n--) {
        weft_replan_request q = {.was = was, .n_rank = n};
        assert_ok(weft_replanner_decide(r, &q, &a));
        assert_int_equal(a.plan->strategy.tp, n > 1 ? 2 : 0);
        assert_int_equal(a.n_rank, n > 1 ? n / 2 * 2 : 1);
        if (n > 1) weft_replan_answer_fini(&a);
    }
    weft_replan_answer b = {0};
    assert_ok(
        weft_replanner_decide(r, &(weft_replan_request){.was = a.plan, .n_rank = 3}, &b));
    assert_int_equal(b.plan->strategy.tp, 2);
    assert_int_equal(b.kind, WEFT_REPLAN_SHAPE);
    weft_replan_answer_fini(&a);
    weft_replan_answer_fini(&b);
    weft_plan_destroy(was);
    weft_replanner_destroy(r);
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_shape),
        cmocka_unit_test(more_replicas_than_lanes),
        cmocka_unit_test(copies_stay_on_several_hosts),
        cmocka_unit_test(buckets_stay),
        cmocka_unit_test(read_plan_gets_replicas),
        cmocka_unit_test(every_number_has_a_plan),
        cmocka_unit_test(moving_costs),
        cmocka_unit_test(hosts_may_be_unequal),
        cmocka_unit_test(answers_are_kept),
        cmocka_unit_test(late_answers_are_not_waited_for),
        test_plain(as_good_as_a_search_from_nothing),
        cmocka_unit_test(a_pause_has_to_pay),
        cmocka_unit_test(ranks_are_kept),
        cmocka_unit_test(hosts_that_are_there_stay),
        cmocka_unit_test(slow_ranks_get_less_work),
        test_sanitized(fewer_replicas_are_an_answer),
        cmocka_unit_test(tp_may_change_where_sums_follow_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
