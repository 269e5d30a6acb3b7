/* Plans: from short words, as text and back, refused where they do not fit. */
#include "support/test.h"

#include <stdlib.h>

#include "support/plan_case.h"

static void reads_back(void **state)
{
    static const struct {
        const char *model, *words;
        int         chunks, world, lane_ranks;
        bool        lanes_only;
    } row[] = {
        {"gpt2", "dp=2", 1, 2, 2, true},
        {"gpt2", "dp=2 pp=3", 2, 6, 2, true},
        {"gpt2", "dp=3 pp=2 batch_split=5,2,1", 1, 6, 3, true},
        {"gpt2", "dp=2 tp=1 pp=2", 1, 4, 2, true},
        {"gpt2", "dp=2 tp=2 pp=2 zero=1 sp=true", 1, 8, 2, false},
        {"gpt2", "dp=2 zero=3", 1, 2, 2, false},
        {"gpt2", "dp=2 zero=1 overlap_param_gather=0.66", 1, 2, 2, false},
        {"gpt2", "dp=4 zero=1 copies=2", 1, 4, 4, false},
        {"gpt2", "dp=4 copies=2", 1, 4, 4, true},
        {"gpt2", "tp=2 dp=4 mesh_order=tp,dp zero=3 copies=2", 1, 8, 4, false},
        {"gpt2", "tp=2", 1, 2, 1, false},
        {"gpt2", "pp=2", 1, 2, 1, true},
        {"llama3-8b", "tp=4 cp=2 dp=8 mesh_order=tp,cp,dp", 1, 64, 8, false},
        {"mixtral-8x7b", "ep=8 pp=4", 1, 32, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        test_shard         c;
        weft_plan         *p, *q;
        weft_shard_options o;
        int                cut[16];
        test_shard_open(&c, row[i].model, 8, 8);
        assert_ok(test_plan_make(&c, row[i].words, row[i].chunks, &p));
        if (i % 2) p->strategy.bucket_bytes = 1 << 20; /* 0 is left out of the text */
        assert_int_equal(weft_plan_world(p), row[i].world);
        assert_int_equal(weft_plan_lane_ranks(p), row[i].lane_ranks);
        assert_int_equal(weft_plan_lanes_only(p, c.t.graph), row[i].lanes_only);
        assert_ok(weft_plan_cuts(p, c.t.graph, cut));
        char *one = test_plan_text(p);
        assert_ok(weft_plan_parse("plan.json", one, strlen(one), &q));
        char *two = test_plan_text(q);
        assert_string_equal(one, two);
        assert_true(weft_plan_equal(p, q));
        assert_ok(weft_plan_shard(q, c.t.graph, c.a, &o));
        test_shard_apply(&c, &o); /* named marks do what numbered ones did */
        free(one);
        free(two);
        weft_plan_destroy(p);
        weft_plan_destroy(q);
        test_shard_close(&c);
    }
}

/* Named marks give the sharding that the strategy's own give. */
static void same_sharding(void **state)
{
    test_shard         c;
    weft_plan         *p;
    weft_strategy      h;
    weft_shard_options o;
    weft_text          one = {0}, two = {0};
    (void)state;
    test_shard_open(&c, "gpt2", 8, 8);
    assert_ok(test_plan_make(&c, "dp=2 tp=2 zero=2", 1, &p));
    assert_ok(weft_strategy_parse("dp=2 tp=2 zero=2", &h));
    assert_ok(weft_shard_expand(&h, c.t.graph, NULL, 0, c.a, &o));
    o.lanes = 1u << weft_strategy_axis_at(&h, WEFT_AXIS_DP);
    ((weft_mesh *)(uintptr_t)o.mesh)->name = "stage";
    test_shard_apply(&c, &o);
    assert_ok(weft_sharding_print(c.s, c.t.graph, &one));
    assert_ok(weft_plan_shard(p, c.t.graph, c.a, &o));
    test_shard_apply(&c, &o);
    assert_ok(weft_sharding_print(c.s, c.t.graph, &two));
    assert_string_equal(one.s, two.s);
    weft_text_fini(&one);
    weft_text_fini(&two);
    weft_plan_destroy(p);
    test_shard_close(&c);
}

/* One place of a good text replaced. */
static void mistakes(void **state)
{
    static const struct {
        const char *from, *to, *words;
    } row[] = {
        {"\"weft_plan\": 2", "\"weft_plan\": 1",
         "version 1, this build reads version 2; plan again"},
        {"\"weft_plan\"", "\"weft_plam\"", "is no plan"},
        {"\"zero\": 1", "\"zero\": 4", "zero: 4 is out of range"},
        {"\"zero\": 1", "\"zero\": 1, \"copies\": 3", "copies=3 does not divide dp=2"},
        {"\"zero\": 1,", "", "zero is missing"},
        {"\"schedule\"", "\"scedule\"", "unknown key 'scedule'"},
        {"\"1f1b\"", "\"2f2b\"", "'2f2b' is none of: 1f1b"},
        {"\"axis\": \"tp\"", "\"axis\": \"dp\"", "dp"},
        {"\"lane_axis\": \"dp\"", "\"lane_axis\": \"xp\"", "the mesh has no such axis"},
        {"\"lane_axis\": \"dp\"", "\"lane_axis\": \"dp\", \"batch_split\": [6, 1]",
         "batch_split has 7 lanes, but the gradient's sum has 8"},
        {"\"lane_axis\": \"dp\"", "\"lane_axis\": \"dp\", \"batch_split\": [8, 0]",
         "expected lanes of a rank, 1 or more"},
        {"\"lane_axis\": \"dp\"", "\"lane_axis\": \"dp\", \"batch_split\": [8]",
         "batch_split: 1 numbers for dp=2"},
        {"\"lane_axis\": \"dp\"", "\"lane_axis\": null, \"batch_split\": [7, 1]",
         "it is of lane_axis, which is null"},
        {"[4, 5, 6, 7]", "[4, 5, 7]", "stage 1: rank 6 is missing"},
        {"[4, 5, 6, 7]", "[4, 5, 6, 7, 8]", "stage 1 has 5 ranks, its mesh has 4"},
        {"[4, 5, 6, 7]", "[4, 4, 6, 7]", "stage 1: rank 5 is missing"},
        {"\"micro_batch\": 2", "\"micro_batch\": 3",
         "micro_batch 3 does not divide batch 16"},
        {"\"lanes\": 8", "\"lanes\": 6", "lanes 6 is not a power of two"},
        {"\"lanes\": 8", "\"lanes\": 16", "lanes 16 is more than the 8 micro-batches"},
        {"\"lanes\": 8", "\"lanes\": 1", "dp=2 is more than the 1 lanes"},
        {"\"chunks\": 1", "\"chunks\": 3", "expected chunks stages for each rank"},
        {"[dp ?, ?]", "[dp ?, xp]", "no axis 'xp'"},
        {"[dp ?, ?]", "[dp ?, dp]", "axis dp is used twice"},
        {"[dp ?, ?]", "[dp ?, ?] maybe", "'maybe' is too much"},
        {"\"recompute\": \"none\"", "\"recompute\": \"some\"",
         "none of: none selective full"},
        {"{\"first\": null", "{\"first\": \"wte\"", "begins at the beginning"},
        {"\"sp\": false", "\"sp\": 0", "expected true or false"},
        {"\"batch\": 16", "\"batch\": \"16\"", "expected a whole number"},
    };
    test_shard c;
    weft_plan *p, *q;
    (void)state;
    test_shard_open(&c, "gpt2", 8, 8);
    assert_ok(test_plan_make(&c, "dp=2 tp=2 pp=2 zero=1", 1, &p));
    char *good = test_plan_text(p);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        weft_text   t  = {0};
        const char *at = strstr(good, row[i].from);
        if (!at) fail_msg("no %s in the plan", row[i].from);
        weft_text_put(&t, good, (size_t)(at - good));
        weft_text_add(&t, "%s%s", row[i].to, at + strlen(row[i].from));
        assert_fails(weft_plan_parse("plan.json", t.s, t.n, &q), WEFT_ERR_ARG,
                     row[i].words);
        weft_text_fini(&t);
    }
    free(good);
    weft_plan_destroy(p);
    test_shard_close(&c);
}

static void of_another(void **state)
{
    test_shard   c;
    weft_plan   *p;
    weft_plan_of of;
    (void)state;
    test_shard_open(&c, "gpt2", 8, 8);
    assert_ok(test_plan_make(&c, "dp=2 pp=2", 1, &p));
    of = p->of;
    assert_ok(weft_plan_check(p, "plan.json", &of, 4));
    assert_ok(weft_plan_check(p, "plan.json", &of, 0));
    assert_fails(weft_plan_check(p, "plan.json", &of, 8), WEFT_ERR_ARG,
                 "plan.json is a plan for 4 ranks, but there are 8");
    of.graph_hash = 7;
    assert_fails(weft_plan_check(p, "plan.json", &of, 4), WEFT_ERR_ARG,
                 "plan of another model");
    of     = p->of;
    of.seq = 9;
    assert_fails(weft_plan_check(p, "plan.json", &of, 4), WEFT_ERR_ARG,
                 "seq is 8 there and 9 here");
    of         = p->of;
    of.kernels = "b";
    assert_ok(weft_plan_check(p, "plan.json", &of, 4));
    p->of.kernels = "a";
    assert_fails(weft_plan_check(p, "plan.json", &of, 4), WEFT_ERR_ARG,
                 "plan of another build");
    p->first[1] = "nothing";
    int cut[4];
    assert_fails(weft_plan_cuts(p, c.t.graph, cut), WEFT_ERR_ARG,
                 "stage 1 begins with nothing");
    weft_plan_destroy(p);
    test_shard_close(&c);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(reads_back),
        cmocka_unit_test(same_sharding),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(of_another),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
