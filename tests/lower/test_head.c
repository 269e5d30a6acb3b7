/* lower/head.c: logits, loss and gradient in parts train like all rows at once, with less memory,
 * and have the same bits on several ranks. */
#include <math.h>

#include "support/ranks.h"
#include "support/test.h"

#include "graph/recompute.h"

enum {
    SEQ   = 16,
    MICRO = 4
};

typedef struct head_plan {
    const char *words; /* of a sharding; NULL: none */
    int         world, dp, pp;
} head_plan;

static weft_program *make_rank(const test_job *j, const head_plan *plan, int rank,
                               int head_rows)
{
    weft_partition_options o = {.n_micro   = j->o.n_micro,
                                .n_lane    = 2,
                                .dp        = plan->words ? 0 : plan->dp,
                                .pp        = plan->pp,
                                .rank      = rank,
                                .head_rows = head_rows};
    return test_job_compile(j, plan->words, true, &o);
}

static test_result run_plan(const test_job *j, const head_plan *plan, int head_rows)
{
    weft_program *p[TEST_MAX_RANK];
    for (int r = 0; r < plan->world; r++) p[r] = make_rank(j, plan, r, head_rows);
    return test_job_run(j, p, plan->world, 1);
}

static int count_losses(const weft_program *p)
{
    int n = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            n += p->actor[a].instr[i].kind == WEFT_INSTR_COMPUTE &&
                 p->actor[a].instr[i].op == WEFT_OP_CROSS_ENTROPY;
    return n;
}

static int64_t work_bytes(const weft_program *p)
{
    int64_t end = 0;
    for (int i = 0; i < p->n_buffer; i++) {
        const weft_buffer *b = &p->buffer[i];
        int64_t            e = b->offset + b->bytes * b->n_slot;
        if (!strcmp(p->slab[b->slab].name, "work") && e > end) end = e;
    }
    return end;
}

/* Two sequences of 16 rows: cut by sequences, then not at all. */
static void parts_have_whole_rows(void **state)
{
    static const struct {
        int rows, head_rows, parts;
    } c[] = {{2, 0, 1}, {2, 64, 1}, {2, 32, 1}, {2, 16, 2}, {2, 4, 2},
             {1, 4, 4}, {1, 5, 2},  {1, 1, 16}, {6, 32, 3}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(c); i++) {
        test_job j;
        test_job_open(&j, "tiny256",
                      (test_job_options){.seq = SEQ, .n_micro = 1, .rows = c[i].rows});
        weft_program *p;
        assert_ok(weft_partition_program(
            j.training.graph, NULL,
            &(weft_partition_options){
                .n_micro = 1, .n_lane = 1, .head_rows = c[i].head_rows},
            &p));
        assert_ok(weft_program_verify(p));
        assert_int_equal(count_losses(p), c[i].parts);
        weft_program_destroy(p);
        test_job_close(&j);
    }
}

static void parts_take_less_memory(void **state)
{
    (void)state;
    test_job      j;
    head_plan     one = {.world = 1};
    weft_program *p[2];
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = 2, .rows = 64});
    for (int i = 0; i < 2; i++) p[i] = make_rank(&j, &one, 0, i ? 32 : 0);
    print_message("work: %ld bytes, in parts %ld\n", (long)work_bytes(p[0]),
                  (long)work_bytes(p[1]));
    assert_true(work_bytes(p[1]) < work_bytes(p[0]));
    for (int i = 0; i < 2; i++) weft_program_destroy(p[i]);
    test_job_close(&j);
}

/* The buffer that the matmul of that name reads first, or writes (-1: there is none). */
static int find_buffer(const weft_program *p, const char *name, bool written)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int k = 0; k < p->actor[a].n_instr; k++) {
            const weft_instr *i = &p->actor[a].instr[k];
            if (i->kind == WEFT_INSTR_COMPUTE && i->op == WEFT_OP_MATMUL &&
                !strcmp(i->name, name))
                return written ? i->out[0].buffer : i->in[0].buffer;
        }
    return -1;
}

/* With norms made again the head still has parts, the gradient of its operand lies over that, and
 * the norm before it is made once. */
static void recomputation_keeps_parts(void **state)
{
    (void)state;
    test_job      j;
    weft_graph   *g;
    weft_program *p[2];
    test_job_open(&j, "tiny256", (test_job_options){.seq = SEQ, .n_micro = 1, .rows = 2});
    assert_ok(weft_graph_recompute(j.training.graph, WEFT_STRATEGY_SELECTIVE, &g));
    for (int i = 0; i < 2; i++) {
        assert_ok(weft_partition_program(
            i ? g : j.training.graph, NULL,
            &(weft_partition_options){.n_micro = 1, .n_lane = 1, .head_rows = SEQ},
            &p[i]));
        assert_ok(weft_program_verify(p[i]));
        assert_int_equal(count_losses(p[i]), 2);
        int x = find_buffer(p[i], "logits", false);
        assert_true(x >= 0);
        assert_int_equal(x, find_buffer(p[i], "ln_f.d", true));
    }
    for (int i = 0; i < 2; i++) weft_program_destroy(p[i]);
    weft_graph_destroy(g);
    test_job_close(&j);
}

static void parts_train_like_all_rows(void **state)
{
    static const head_plan  plan[]  = {{NULL, 2, 2, 0},
                                       {NULL, 2, 1, 2},
                                       {"dp=2 zero=1", 2, 2, 0},
                                       {"dp=2 zero=3", 2, 2, 0}};
    static const weft_dtype dtype[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16};
    (void)state;
    for (size_t t = 0; t < 2 * WEFT_COUNT(dtype); t += TEST_STRIDE(6)) {
        test_job  j;
        head_plan one = {.world = 1};
        test_job_open(&j, "tiny256",
                      (test_job_options){.seq     = SEQ,
                                         .n_micro = t % 2 ? 2 : MICRO,
                                         .rows    = 2,
                                         .dtype   = dtype[t / 2]});
        test_result whole = run_plan(&j, &one, 0), parts = run_plan(&j, &one, SEQ);
        for (int s = 0; s < TEST_STEPS; s++) {
            assert_true(fabsf(parts.loss[s] - whole.loss[s]) <= 1e-5f * whole.loss[s]);
            assert_true(fabsf(parts.norm[s] - whole.norm[s]) <= 1e-3f * whole.norm[s]);
        }
        for (size_t i = 0; i < WEFT_COUNT(plan); i++) {
            test_result r = run_plan(&j, &plan[i], SEQ);
            if (r.weights != parts.weights) fail_msg("plan %d", (int)i);
        }
        test_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_whole_rows),
        cmocka_unit_test(recomputation_keeps_parts),
        cmocka_unit_test(parts_take_less_memory),
        test_plain(parts_train_like_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
