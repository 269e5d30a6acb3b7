/* A copy of a plan says what the plan says and outlives it; plans are equal where their texts
 * are. */
#include "support/test.h"

#include <stdlib.h>

#include "support/count_alloc.h"
#include "support/plan_case.h"

static const char *const words[] = {
    "dp=2",
    "pp=2",
    "dp=2 pp=3",
    "dp=2 pp=3 chunks=2 schedule=interleaved",
    "dp=3 pp=2 batch_split=5,2,1",
    "dp=3 pp=2 batch_split=5,1,2",
    "dp=2 tp=2 pp=2 zero=1 sp=true",
    "tp=2 dp=2 mesh_order=tp,dp",
    "tp=2 tp_exclude=input",
    "tp=2 tp_exclude=blocks",
    "dp=4 zero=1 copies=2",
    "pp=2 copies=2",
    "dp=2 zero=1 overlap_param_gather=0.66",
    "dp=2 recompute=full",
    "cp=2 cp_comm=ring",
};

enum {
    N_PLAN = sizeof words / sizeof words[0]
};

/* All that a plan says besides its strategy. */
static void fill_rest(weft_plan *p, int i)
{
    static const char *other[] = {"dp=4: 20% slower", "tp=4: does not fit"};
    int                n       = weft_plan_world(p);
    p->strategy.bucket_bytes   = i << 20;
    p->of.kernels              = weft_arena_strdup(p->arena, "some kernels");
    p->of.dtype                = weft_arena_strdup(p->arena, "bf16");
    p->of.reduction            = WEFT_REDUCTION_FIXED;
    if (p->n_axis) p->axis[0].link = 1;
    p->machines = (weft_plan_machines){
        "machines", 7, 8, n, WEFT_ARENA_ARRAY(p->arena, int, n)}; /* others are idle */
    for (int r = 0; r < n; r++) p->machines.device[r] = 2 * r;
    p->predicted = (weft_plan_predicted){
        .step_s  = 1.5,
        .step_lo = 1.25,
        .step_hi = 1.75,
        .bound_s = 1,
        .time  = {.compute_s = 0.75, .update_s = 0.25, .comm_s = 0.125, .idle_s = 0.0625},
        .n_mem = n,
        .mem_bytes = WEFT_ARENA_ARRAY(p->arena, int64_t, n),
        .n_other   = 2,
        .other     = WEFT_ARENA_ARRAY(p->arena, const char *, 2)};
    for (int r = 0; r < n; r++) p->predicted.mem_bytes[r] = 1000 + r;
    for (int k = 0; k < 2; k++)
        p->predicted.other[k] = weft_arena_strdup(p->arena, other[k]);
}

/* Twice as many plans as words: as made, and with all the rest. */
static void make_plans(test_shard *c, weft_plan *p[2 * N_PLAN])
{
    test_shard_open(c, "gpt2", 8, 8);
    for (int i = 0; i < 2 * N_PLAN; i++) {
        int chunks = strstr(words[i / 2], "chunks") ? 2 : 1;
        assert_ok(test_plan_make(c, words[i / 2], chunks, &p[i]));
        if (i % 2) fill_rest(p[i], i);
    }
}

static void destroy_plans(test_shard *c, weft_plan *p[2 * N_PLAN])
{
    for (int i = 0; i < 2 * N_PLAN; i++) weft_plan_destroy(p[i]);
    test_shard_close(c);
}

static void test_copy_outlives(void **state)
{
    test_shard c;
    weft_plan *p[2 * N_PLAN];
    (void)state;
    make_plans(&c, p);
    for (int i = 0; i < 2 * N_PLAN; i++) {
        weft_plan *q;
        char      *one = test_plan_text(p[i]);
        assert_ok(weft_plan_copy(p[i], &q));
        assert_true(weft_plan_equal(p[i], q));
        weft_plan_destroy(p[i]);
        p[i]      = q;
        char *two = test_plan_text(q);
        assert_string_equal(one, two);
        assert_ok(weft_plan_verify(q));
        free(one);
        free(two);
    }
    destroy_plans(&c, p);
}

static void test_equal_where_texts_are(void **state)
{
    test_shard c;
    weft_plan *p[2 * N_PLAN], *back;
    char      *text[2 * N_PLAN];
    (void)state;
    make_plans(&c, p);
    for (int i = 0; i < 2 * N_PLAN; i++) text[i] = test_plan_text(p[i]);
    for (int i = 0; i < 2 * N_PLAN; i++) {
        assert_ok(weft_plan_parse("plan.json", text[i], strlen(text[i]), &back));
        for (int k = 0; k < 2 * N_PLAN; k++)
            if (weft_plan_equal(back, p[k]) != !strcmp(text[i], text[k]))
                fail_msg("'%s' and '%s': equal is not what their texts say", words[i / 2],
                         words[k / 2]);
        weft_plan_destroy(back);
    }
    for (int i = 0; i < 2 * N_PLAN; i++) free(text[i]);
    destroy_plans(&c, p);
}

/* One value after another is changed in a copy: it is another plan then. */
static void test_every_value_counts(void **state)
{
    test_shard c;
    weft_plan *p, *q;
    (void)state;
    test_shard_open(&c, "gpt2", 8, 8);
    assert_ok(test_plan_make(&c, "dp=3 pp=2 batch_split=5,2,1", 1, &p));
    fill_rest(p, 1);
    for (int k = 0;; k++) {
        assert_ok(weft_plan_copy(p, &q));
        switch (k) {
        case 0: q->of.model = "n"; break;
        case 1: q->of.kernels = NULL; break;
        case 2: q->of.dtype = "fp32"; break;
        case 3: q->of.graph_hash++; break;
        case 4: q->of.batch *= 2; break;
        case 5: q->of.seq++; break;
        case 6: q->of.micro_batch = 1; break;
        case 7: q->of.lanes *= 2; break;
        case 8: q->of.reduction = WEFT_REDUCTION_INVARIANT; break;
        case 9: q->axis[0].name = "ep"; break;
        case 10: q->axis[0].link++; break;
        case 11: q->share[0]++; break;
        case 12: q->share = NULL; break;
        case 13: q->first[1] = "elsewhere"; break;
        case 14: q->strategy.schedule = WEFT_STRATEGY_GPIPE; break;
        case 15: q->strategy.bucket_bytes++; break;
        case 16: q->strategy.offload = WEFT_OFFLOAD_OPTIMIZER; break;
        case 17: q->n_mark--; break;
        case 18: q->mark[0].name = "wte.weight"; break;
        case 19: q->mark[0].open ^= 1; break;
        case 20: q->mark[0].layout.split[0].unit++; break;
        case 21: q->machines.name = "others"; break;
        case 22: q->machines.shape++; break;
        case 23: q->machines.constants++; break;
        case 24: q->machines.device[1]++; break;
        case 25: q->machines.n_device = 0; break;
        case 26: q->predicted.step_s *= 2; break;
        case 27: q->predicted.step_lo = 0; break;
        case 28: q->predicted.step_hi *= 2; break;
        case 29: q->predicted.bound_s *= 2; break;
        case 30: q->predicted.time.compute_s = 0; break;
        case 31: q->predicted.time.update_s *= 2; break;
        case 32: q->predicted.time.comm_s *= 2; break;
        case 33: q->predicted.time.idle_s *= 2; break;
        case 34: q->predicted.n_mem = 0; break;
        case 35: q->predicted.mem_bytes[1]++; break;
        case 36: q->predicted.n_other--; break;
        case 37: q->predicted.other[1] = ""; break;
        default: k = -1; break;
        }
        char *one = test_plan_text(p), *two = test_plan_text(q);
        bool  equal = weft_plan_equal(p, q), same = !strcmp(one, two);
        free(one);
        free(two);
        weft_plan_destroy(q);
        if (equal != same || equal != (k < 0))
            fail_msg("change %d: equal %d, texts the same %d", k, equal, same);
        if (k < 0) break;
    }
    weft_plan_destroy(p);
    test_shard_close(&c);
}

/* Every allocation of a copy fails once. */
static void test_without_memory(void **state)
{
    test_shard c;
    weft_plan *p, *q = NULL;
    int        n = 0;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* allocations cannot be made to fail */
    test_shard_open(&c, "gpt2", 8, 8);
    assert_ok(test_plan_make(&c, "dp=2 tp=2 pp=2 zero=1", 1, &p));
    fill_rest(p, 1);
    for (weft_status st = WEFT_ERR_MEM; st != WEFT_OK;) {
        weft_test_alloc_fail_at(++n);
        st = weft_plan_copy(p, &q);
        weft_test_alloc_fail_at(0);
        assert_true(st == WEFT_OK || (st == WEFT_ERR_MEM && !q));
    }
    assert_true(n > 2 && weft_plan_equal(p, q));
    weft_plan_destroy(p);
    weft_plan_destroy(q);
    test_shard_close(&c);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(test_copy_outlives),
        cmocka_unit_test(test_equal_where_texts_are),
        cmocka_unit_test(test_every_value_counts),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
