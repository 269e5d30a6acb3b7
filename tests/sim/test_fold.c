/* Folded runs are whole runs: the same times of every instruction of every rank. */
#include <math.h>
#include <time.h>

#include "compile/world.h"
#include "cost/cost.h"
#include "sim/fold.h"
#include "support/sim.h"
#include "support/test.h"

typedef struct plan_case {
    const char *model, *words, *schedule;
    int         chunks, batch, micro, lanes;
    const char *cluster;
    int         most_classes; /* 0: as many as there are */
} plan_case;

static weft_plan *open_plan(const plan_case *x, weft_training *t)
{
    weft_strategy     h;
    weft_plan        *p;
    weft_compile_spec s = weft_compile_spec_default(x->model, x->batch, 16);
    s.micro_batch       = x->micro;
    s.lanes             = x->lanes;
    assert_ok(weft_strategy_parse(x->words, &h));
    if (x->schedule) h.schedule = weft_strategy_word("schedule", x->schedule);
    if (x->chunks) h.chunks = x->chunks;
    assert_ok(weft_compile_training(&s, t));
    if (weft_compile_plan(t, &h, 0, &p) != WEFT_OK)
        fail_msg("%s: %s", x->words, weft_error_text());
    return p;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b)) + 1e-18;
}

/* The k-th slice of a stream of a rank from *at on; NULL: no more. */
static const weft_slice *next_slice(const weft_timeline *t, int rank, int stream, int *at)
{
    for (; *at < t->n_slice; ++*at)
        if (t->slice[*at].program == rank && (int)t->slice[*at].stream == stream)
            return &t->slice[(*at)++];
    return NULL;
}

static void same_timelines(const plan_case *x, const weft_timeline *a,
                           const weft_timeline *b)
{
    assert_int_equal(a->n_slice, b->n_slice);
    if (!near(a->step_s, b->step_s) || !near(a->total_s, b->total_s))
        fail_msg("%s: %.17g s a step for %.17g", x->words, a->step_s, b->step_s);
    for (int r = 0; r < a->n_program; r++)
        for (int s = 0; s < a->program[r]->n_stream; s++)
            for (int i = 0, k = 0;;) {
                const weft_slice *p = next_slice(a, r, s, &i),
                                 *q = next_slice(b, r, s, &k);
                assert_true(!p == !q);
                if (!p) break;
                assert_true(p->actor == q->actor && p->instr == q->instr);
                if (!near(p->start_s, q->start_s) || !near(p->end_s, q->end_s))
                    fail_msg("%s, rank %d: %.17g..%.17g for %.17g..%.17g", x->words, r,
                             p->start_s, p->end_s, q->start_s, q->end_s);
            }
}

static void same_traffic(const plan_case *x, const weft_sim_folded *f,
                         const weft_compiled_world *all, const weft_cluster *c)
{
    double a[WEFT_COST_LEVELS] = {0}, b[WEFT_COST_LEVELS] = {0};
    for (int k = 0; k < f->n_class; k++) assert_ok(weft_sim_folded_traffic(f, c, k, a));
    for (int r = 0; r < all->world.n; r++) {
        const weft_program *p = all->like[r];
        for (int k = 0; k < p->n_actor; k++)
            for (int i = 0; i < p->stream[p->actor[k].stream].n_firing; i++)
                if (p->stream[p->actor[k].stream].firing[i].actor == k)
                    for (int m = 0; m < p->actor[k].n_instr; m++)
                        assert_ok(weft_cost_traffic(p, &p->actor[k].instr[m], c, b));
    }
    for (int l = 0; l < WEFT_COST_LEVELS; l++)
        if (fabs(a[l] - b[l]) > 1e-9 * b[l])
            fail_msg("%s, level %d: %g bytes for %g", x->words, l, a[l], b[l]);
}

/* Few programs compiled and few simulated against all compiled and all simulated. */
static void fold_one(const plan_case *x)
{
    weft_training        t;
    weft_cluster        *c;
    weft_compiled_world *few, *all;
    weft_sim_folded     *f;
    weft_timeline       *folded, *whole;
    weft_plan           *p = open_plan(x, &t);
    assert_ok(weft_cluster_load(x->cluster, NULL, &c));
    if (weft_compile_world(&t, p, WEFT_RANKS_FOLDED, &few) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_ok(weft_compile_world(&t, p, WEFT_RANKS_EACH, &all));
    if (weft_sim_fold(&few->world, c, NULL, &f) != WEFT_OK)
        fail_msg("%s: %s", x->words, weft_error_text());
    assert_ok(weft_sim_folded_expand(f, &few->world, &folded));
    assert_ok(weft_program_verify_all(all->like, all->world.n));
    assert_ok(test_simulate(all->like, all->world.n, c, NULL, &whole));
    print_message("%s on %s: %d ranks, %d compiled, %d classes, %.6f s a step\n",
                  x->words, x->cluster, all->world.n, few->n_made, f->n_class,
                  whole->step_s);
    same_timelines(x, folded, whole);
    same_traffic(x, f, all, c);
    if (x->most_classes) assert_true(f->n_class <= x->most_classes);
    weft_timeline_destroy(whole);
    weft_timeline_destroy(folded);
    weft_sim_folded_destroy(f);
    weft_compiled_world_destroy(all);
    weft_compiled_world_destroy(few);
    weft_cluster_destroy(c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
}

static void folded_is_whole(void **state)
{
    (void)state;
    static const char two[] = "2 x (4 x a100-80g)", four[] = "4 x (4 x v100-32g)";
    const plan_case   table[] = {
          {"tiny256", "dp=8", NULL, 1, 8, 1, 8, two, 1},
          {"tiny256", "dp=6", NULL, 1, 12, 1, 8, two, 0},
          {"tiny256", "pp=4", "1f1b", 1, 8, 1, 4, two, 4},
          {"tiny256", "dp=4 pp=2", "gpipe", 1, 16, 1, 8, two, 2},
          {"tiny256", "dp=2 pp=2", "interleaved", 2, 16, 1, 8, two, 2},
          {"tiny256", "dp=4 pp=2", "zb-h1", 1, 16, 1, 8, two, 2},
          {"tiny256", "dp=2 tp=2 pp=2", NULL, 1, 8, 1, 8, two, 0},
          {"tiny256", "dp=2 tp=2 pp=2 zero=1", NULL, 1, 8, 1, 8, two, 0},
          {"tiny256", "dp=3 tp=2 zero=2", NULL, 1, 12, 1, 8, two, 0},
          {"tiny256", "dp=16 zero=3", NULL, 1, 16, 1, 16, four, 0},
          {"tiny256", "dp=2 tp=4 sp=true", NULL, 1, 4, 1, 2, two, 0},
          /* a slow half, nodes of two kinds, nodes that are not full */
          {"tiny256", "dp=8", NULL, 1, 8, 1, 8, "1 x (4 x a100-80g) + 1 x (4 x h100-80g)",
           2},
          {"tiny256", "dp=3 pp=2", NULL, 1, 12, 1, 4, two, 0},
          {"tiny256", "dp=8 batch_split=3,3,3,3,1,1,1,1", NULL, 1, 16, 1, 16,
           "1 x (4 x h100-80g) + 1 x (4 x a100-80g)", 4},
          {"tiny256", "dp=8 batch_split=1,3,3,1,5,1,1,1 zero=1", NULL, 1, 19, 1, 16, two,
           0},
          {"tiny256", "dp=3 tp=2 batch_split=1,2,1", NULL, 1, 4, 1, 4, two, 0},
          {"tiny256", "dp=2 pp=2 batch_split=3,1 zero=3", NULL, 1, 8, 1, 4, two, 0},
    };
    for (size_t i = 0; i < WEFT_COUNT(table); i++) fold_one(&table[i]);
}

/* Only ends of axes are made: the same first ranks, and about the same step, where replicas own
 * unlike parts. */
static void ends_stand_for_all(void **state)
{
    (void)state;
    const plan_case      x = {"tiny256", "dp=8 tp=2 pp=2 zero=1", NULL, 1, 32, 1,
                              8,         "4 x (8 x a100-80g)",    0};
    weft_training        t;
    weft_cluster        *c;
    weft_compiled_world *all, *ends;
    weft_sim_folded     *a, *e;
    weft_plan           *p = open_plan(&x, &t);
    assert_ok(weft_cluster_load(x.cluster, NULL, &c));
    assert_ok(weft_compile_world(&t, p, WEFT_RANKS_FOLDED, &all));
    assert_ok(weft_compile_world(&t, p, WEFT_RANKS_ENDS, &ends));
    assert_true(all->n_made > 8); /* else there is nothing to leave out */
    assert_true(ends->n_made <= 8);
    assert_true(weft_program_likeness(ends->like[0]) ==
                weft_program_likeness(all->like[0]));
    assert_ok(weft_sim_fold(&all->world, c, NULL, &a));
    assert_ok(weft_sim_fold(&ends->world, c, NULL, &e));
    print_message("%d and %d programs: %g and %g s a step\n", all->n_made, ends->n_made,
                  a->timeline->step_s, e->timeline->step_s);
    assert_true(fabs(e->timeline->step_s / a->timeline->step_s - 1) < 0.02);
    weft_sim_folded_destroy(a);
    weft_sim_folded_destroy(e);
    weft_compiled_world_destroy(all);
    weft_compiled_world_destroy(ends);
    weft_cluster_destroy(c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
}

/* A thousand ranks in a few seconds. */
static void many_ranks(void **state)
{
    (void)state;
    const plan_case table[] = {
        {"gpt2", "dp=256 pp=4", NULL, 1, 1024, 1, 256, "128 x (8 x a100-80g)", 4},
        {"tiny256", "dp=256 tp=2 pp=2 zero=1", NULL, 1, 512, 1, 256,
         "128 x (8 x a100-80g)", 0},
    };
    for (size_t i = 0; i < WEFT_COUNT(table); i++) {
        weft_training        t;
        weft_cluster        *c;
        weft_compiled_world *w;
        weft_sim_folded     *f;
        clock_t    start = clock(); /* of the processor: others may use it, too */
        weft_plan *p     = open_plan(&table[i], &t);
        assert_ok(weft_cluster_load(table[i].cluster, NULL, &c));
        assert_ok(weft_compile_world(&t, p, WEFT_RANKS_FOLDED, &w));
        assert_int_equal(w->world.n, 1024);
        if (weft_sim_fold(&w->world, c, NULL, &f) != WEFT_OK)
            fail_msg("%s: %s", table[i].words, weft_error_text());
        double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        print_message("%s %s: %d compiled, %d classes, %.3f s a step, found in %.2f s\n",
                      table[i].model, table[i].words, w->n_made, f->n_class,
                      f->timeline->step_s, took);
        assert_true(took < (WEFT_TEST_SANITIZED ? 200 : 30));
        if (table[i].most_classes) assert_int_equal(f->n_class, table[i].most_classes);
        weft_sim_folded_destroy(f);
        weft_compiled_world_destroy(w);
        weft_cluster_destroy(c);
        weft_plan_destroy(p);
        weft_training_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(folded_is_whole),
        cmocka_unit_test(ends_stand_for_all),
        test_sanitized(many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
