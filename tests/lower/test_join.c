/* lower/join.c: q, k and v as one matmul, forward and backward, train like three, need no more
 * memory, leave parameters where they were and have the same bits on several ranks. */
#include <math.h>

#include "graph/sums.h"
#include "support/ranks.h"
#include "support/test.h"

#define GROUPED "tests/fixtures/grouped"

enum {
    SEQ    = 12,
    LAYERS = 2,
    WIDTH  = 2048
};

typedef struct join_plan {
    const char *words; /* of a sharding; NULL: none */
    int         world, dp, pp;
    unsigned    fusions;
} join_plan;

static void open_job(test_job *j, test_job_options o)
{
    o.seq  = SEQ;
    o.rows = 2;
    test_job_open(j, GROUPED, o);
    assert_ok(weft_graph_chain_sums(j->training.graph));
}

static weft_program *make_rank(const test_job *j, const join_plan *plan, int rank,
                               int join_width)
{
    weft_partition_options o = {.n_micro    = j->o.n_micro,
                                .n_lane     = 2,
                                .dp         = plan->words ? 0 : plan->dp,
                                .pp         = plan->pp,
                                .rank       = rank,
                                .join_width = join_width,
                                .fusions    = plan->fusions};
    return test_job_compile(j, plan->words, plan->dp > 0, &o);
}

static test_result run_plan(const test_job *j, const join_plan *plan, int join_width)
{
    weft_program *p[TEST_MAX_RANK];
    for (int r = 0; r < plan->world; r++) p[r] = make_rank(j, plan, r, join_width);
    return test_job_run(j, p, plan->world, 1);
}

static int count(const weft_program *p, weft_op op)
{
    int n = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            n += p->actor[a].instr[i].kind == WEFT_INSTR_COMPUTE &&
                 p->actor[a].instr[i].op == op;
    return n;
}

static int64_t place_of(const weft_program *p, const weft_binding *b)
{
    return p->buffer[b->at.buffer].offset +
           b->at.offset * weft_dtype_bytes(b->at.type.dtype);
}

/* Three matmuls become one: of the forward pass, of the sum over them and of their weights. */
static void three_are_one(void **state)
{
    join_plan     one = {.world = 1};
    test_job      j;
    weft_program *p[3];
    (void)state;
    open_job(&j, (test_job_options){.n_micro = 2});
    for (int i = 0; i < 3; i++) p[i] = make_rank(&j, &one, 0, i * 8);
    for (int i = 0; i < 3; i++) assert_ok(weft_program_verify(p[i]));
    /* k and v have 16 columns */
    assert_int_equal(count(p[1], WEFT_OP_MATMUL), count(p[0], WEFT_OP_MATMUL));
    assert_int_equal(count(p[2], WEFT_OP_MATMUL),
                     count(p[0], WEFT_OP_MATMUL) - LAYERS * 3 * 2);
    /* q and k, forward and back */
    assert_int_equal(count(p[0], WEFT_OP_ROTARY), LAYERS * 2 * 2);
    assert_int_equal(count(p[2], WEFT_OP_ROTARY), LAYERS * 2);
    for (int i = 0; i < p[0]->n_slab; i++) { /* packed otherwise, but no larger */
        int64_t three = p[0]->slab[i].bytes, joined = p[2]->slab[i].bytes;
        assert_true(joined <= three + three / 50);
    }
    for (int b = 0; b < p[0]->n_binding; b++) {
        const weft_binding *x = &p[0]->binding[b];
        const weft_binding *y = weft_program_find(p[2], x->name);
        assert_non_null(y);
        if (x->kind == WEFT_BIND_PARAM || x->kind == WEFT_BIND_STATE)
            assert_int_equal(place_of(p[0], x), place_of(p[2], y));
    }
    for (int i = 0; i < 3; i++) weft_program_destroy(p[i]);
    test_job_close(&j);
}

/* What attention's gradient turns back itself lies where the one matmul reads it. */
static void turned_are_one(void **state)
{
    join_plan plain = {.world = 1}, turned = {.world = 1, .fusions = WEFT_FUSION_ROTARY};
    test_job  j;
    weft_program *p[2];
    (void)state;
    open_job(&j, (test_job_options){.n_micro = 2});
    p[0] = make_rank(&j, &plain, 0, WIDTH);
    p[1] = make_rank(&j, &turned, 0, WIDTH);
    assert_ok(weft_program_verify(p[1]));
    assert_int_equal(count(p[1], WEFT_OP_MATMUL), count(p[0], WEFT_OP_MATMUL));
    assert_int_equal(count(p[0], WEFT_OP_ROTARY), LAYERS * 2);
    assert_int_equal(count(p[1], WEFT_OP_ROTARY), LAYERS);
    for (int i = 0; i < p[0]->n_slab; i++)
        assert_true(p[1]->slab[i].bytes <= p[0]->slab[i].bytes);
    for (int i = 0; i < 2; i++) weft_program_destroy(p[i]);
    test_job_close(&j);
}

static void trains_like_three(void **state)
{
    static const join_plan  plan[]  = {{.world = 2, .dp = 2},
                                       {.world = 2, .dp = 1, .pp = 2},
                                       {.words = "dp=2 zero=1", .world = 2, .dp = 2},
                                       {.words = "dp=2 zero=3", .world = 2, .dp = 2}};
    static const weft_dtype dtype[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16};
    join_plan               one = {.world = 1}, tp = {.words = "tp=2", .world = 2};
    (void)state;
    for (size_t t = 0; t < 2 * WEFT_COUNT(dtype); t++) {
        test_job         j;
        test_job_options o    = {.n_micro = t % 2 ? 2 : 4,
                                 .dtype   = dtype[t / 2],
                                 .recompute =
                                  t % 2 ? WEFT_STRATEGY_FULL : WEFT_STRATEGY_KEEP};
        float            near = o.dtype == WEFT_DTYPE_F32 ? 1e-5f : 1e-2f;
        open_job(&j, o);
        test_result three = run_plan(&j, &one, 0), joined = run_plan(&j, &one, WIDTH);
        test_result parts = run_plan(&j, &tp, WIDTH);
        for (int s = 0; s < TEST_STEPS; s++) {
            assert_true(fabsf(joined.loss[s] - three.loss[s]) <= near * three.loss[s]);
            assert_true(fabsf(joined.norm[s] - three.norm[s]) <=
                        10 * near * three.norm[s]);
            assert_true(fabsf(parts.loss[s] - three.loss[s]) <= near * three.loss[s]);
        }
        for (size_t i = 0; i < WEFT_COUNT(plan); i++) {
            test_result r = run_plan(&j, &plan[i], WIDTH);
            if (r.weights != joined.weights) fail_msg("plan %d", (int)i);
        }
        test_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_are_one),
        cmocka_unit_test(turned_are_one),
        cmocka_unit_test(trains_like_three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
