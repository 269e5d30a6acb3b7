/* Choices as values: their strategy has their ranks, two are the same by what they do, and keys of
 * constraints are given, kept and released one by one. */
#include <stdlib.h>

#include "search/bench.h"

static const sizes model = {24, 1024, 16, 1024, 50000, 0, 64};

static void strategies_have_the_ranks(void **state)
{
    static const sizes  experts = {24, 1024, 16, 1024, 50000, 8, 64};
    weft_search_result *r;
    bench               b;
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_bench(&b, "2 x (8 x a100-80g)", i ? &experts : &model, "weft");
        b.p.n_best = 12;
        assert_ok(weft_search_run(&b.p, &r));
        assert_true(r->n > 4);
        for (int k = 0; k < r->n; k++) {
            const weft_search_choice *x = &r->choice[k];
            weft_engine_plan          p = weft_search_engine_plan(x);
            assert_ok(weft_strategy_check(&x->strategy));
            assert_int_equal(weft_strategy_world(&x->strategy), weft_search_ranks(x));
            assert_int_equal(x->strategy.zero, x->point.zero);
            assert_int_equal(x->strategy.pp, x->point.pp);
            assert_true(weft_strategy_equal(&p.strategy, &x->strategy));
            assert_int_equal(p.dp * x->variant.tp * x->variant.cp * p.strategy.pp,
                             weft_search_ranks(x));
            assert_int_equal(p.global_batch, 64);
        }
        weft_search_destroy(r);
        close_bench(&b);
    }
}

/* Whatever splits work otherwise is another choice; what is predicted is not compared. */
static void same_is_by_value(void **state)
{
    weft_search_result *r;
    bench               b;
    (void)state;
    open_bench(&b, "2 x (8 x a100-80g)", &model, "weft");
    weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 4);
    assert_ok(weft_search_run(&b.p, &r));
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->n; k++)
            assert_int_equal(weft_search_same_choice(&r->choice[i], &r->choice[k]),
                             i == k);
    const weft_search_choice x = r->choice[0];
    weft_search_choice       y = x;
    uint16_t cut[4] = {x.point.cut[0], x.point.cut[1], x.point.cut[2], x.point.cut[3]};
    y.point.cut     = cut;
    y.score.step_s  = 1e9;
    y.why           = "another";
    assert_true(weft_search_same_choice(&x, &y));
    cut[0]++;
    assert_false(weft_search_same_choice(&x, &y));
    cut[0]--;
    y.variant.micro_batch *= 2;
    assert_false(weft_search_same_choice(&x, &y));
    y                               = x;
    y.strategy.overlap_param_gather = 50;
    assert_false(weft_search_same_choice(&x, &y));
    y                   = x;
    y.variant.recompute = WEFT_RECOMPUTE_LIGHT;
    assert_false(weft_search_same_choice(&x, &y));
    y               = x;
    y.strategy.zero = 3 - x.strategy.zero;
    assert_false(weft_search_same_choice(&x, &y));
    weft_search_destroy(r);
    close_bench(&b);
}

/* Lanes of unlike replicas are batch_split of the strategy, of any number of replicas. */
static void shares_are_in_the_strategy(void **state)
{
    static const char *const cluster[] = {"1 x (4 x a100-80g) + 1 x (4 x v100-32g)",
                                          "12 x (8 x a100-80g) + 4 x (8 x v100-32g)"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(cluster); i++) {
        sizes               unlike = {24, 1024, 16, 1024, 50000, 0, i ? 2048 : 64};
        weft_search_result *r;
        bench               b;
        int                 n = 0;
        open_bench(&b, cluster[i], &unlike, "weft");
        weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 1);
        weft_search_fix(&b.p.constraints, WEFT_KEY_tp, 1);
        weft_search_fix(&b.p.constraints, WEFT_KEY_dp, i ? 128 : 8);
        assert_ok(weft_search_run(&b.p, &r));
        for (int k = 0; k < r->n; k++) {
            const weft_search_choice *x = &r->choice[k];
            int32_t                   lanes[128];
            n += x->point.deal.n > 0;
            assert_int_equal(x->strategy.n_batch_split > 0, x->point.deal.n > 0);
            if (!x->point.deal.n) continue;
            assert_ok(weft_strategy_check(&x->strategy));
            assert_int_equal(weft_strategy_split_ranks(&x->strategy), x->point.dp);
            weft_strategy_expand_split(&x->strategy, lanes);
            for (int d = 0; d < x->point.dp; d++)
                assert_int_equal(lanes[d], weft_cost_deal_share(&x->point.deal, d, NULL));
            weft_search_choice y = *x;
            y.strategy.batch_split[0].lanes++;
            assert_false(weft_search_same_choice(x, &y));
        }
        assert_true(n > 0);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

static void constraints_are_released(void **state)
{
    static const char *const word[] = {"tp=4",
                                       "cp=1",
                                       "ep=1",
                                       "dp=2",
                                       "sp=true",
                                       "zero=0",
                                       "chunks=2",
                                       "recompute=light",
                                       "schedule=interleaved",
                                       "micro_batch=2",
                                       "recompute_layers=3",
                                       "overlap_param_gather=0.5",
                                       "tp_exclude=blocks",
                                       "stages=1-2",
                                       "batch_split=3,1"};
    weft_search_constraints  p;
    weft_arena              *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_search_open(&p);
    for (size_t i = 0; i < WEFT_COUNT(word); i++)
        assert_ok(weft_search_constrain(&p, word[i], a));
    assert_int_equal(weft_search_given(&p, WEFT_KEY_zero), 0);
    assert_int_equal(weft_search_given(&p, WEFT_KEY_sp), 1);
    assert_int_equal(weft_search_given(&p, WEFT_KEY_recompute), WEFT_RECOMPUTE_LIGHT);
    assert_int_equal(weft_search_given(&p, WEFT_KEY_overlap_param_gather), 50);
    assert_int_equal(weft_search_given(&p, WEFT_KEY_pp), 2);
    assert_int_equal(weft_search_given(&p, WEFT_KEY_bucket_bytes), -1);
    for (size_t i = 0; i < WEFT_COUNT(word); i++) {
        char   name[32] = "";
        size_t n        = strcspn(word[i], "=");
        memcpy(name, word[i], n);
        if (!strcmp(name, "stages")) memcpy(name, "pp", 3); /* what they are stages of */
        assert_true(weft_search_release(&p, name));
        assert_false(weft_search_release(&p, name));
    }
    assert_int_equal(p.given, 0);
    assert_null(p.cut);
    assert_int_equal(p.micro_batch, -1);
    assert_false(weft_search_release(&p, "model"));
    weft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strategies_have_the_ranks),
                                       cmocka_unit_test(same_is_by_value),
                                       cmocka_unit_test(shares_are_in_the_strategy),
                                       cmocka_unit_test(constraints_are_released)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
