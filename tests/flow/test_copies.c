/* copies: shards of ZeRO that several ranks hold.  The same bits as one rank and as without
 * copies, no further bytes on the wire in fp32, and every shard in as many ranks.  Ranks are
 * threads of this process. */
#include <string.h>

#include "cost/fabric.h"
#include "program/work.h"
#include "support/plans.h"
#include "support/test.h"

/* ---- bits ---- */

static const test_plan plans[] = {
    {"dp=4 zero=1 copies=2", 4, 1, NULL},
    {"dp=4 zero=2 copies=2", 4, 1, NULL},
    {"dp=4 zero=3 copies=2", 4, 1, NULL},
    {"dp=2 zero=1 copies=2", 2, 1, NULL}, /* nothing is left to shard */
    {"dp=8 zero=1 copies=4", 8, 1, NULL},
    {"dp=4 pp=2 zero=2 copies=2", 4, 1, "1f1b"},
    {"dp=4 zero=2 copies=2 batch_split=3,1,2,2", 8, 1, NULL},
    {"dp=6 zero=1 copies=2", 8, 1, NULL}};

static void trains_like_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(plans); i += TEST_STRIDE(6))
        test_plan_each(
            "tests/fixtures/four",
            (test_job_options){.seq     = 8,
                               .n_micro = plans[i].n_lane,
                               .dtype   = i % 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32},
            &plans[i], 1, NULL, test_plan_same_bits);
}

/* Communication overlapped with compute, with and without micro-batches that are summed first. */
static void trains_in_buckets(void **state)
{
    static const test_plan t[] = {
        {"dp=4 zero=1 copies=2", 4, 1, NULL},
        {"dp=4 zero=3 copies=2", 4, 1, NULL},
        {"dp=4 zero=1 copies=2 overlap_param_gather=0.7", 4, 1, NULL}};
    test_plan_how how = {.gather_bytes = 3000};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++)
        test_plan_each("tests/fixtures/four",
                       (test_job_options){.seq       = 8,
                                          .n_micro   = i % 2 ? 8 : 4,
                                          .optimizer = i == 1 ? "lamb" : NULL},
                       &t[i], 1, &how, test_plan_same_bits);
}

/* ---- bytes ---- */

/* What a rank sends in a step, in collectives. */
static double sent_bytes(const weft_program *p)
{
    double sum = 0;
    for (int s = 0; s < p->n_stream; s++)
        for (int f = 0; f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < a->n_instr; n++) {
                const weft_instr *i = &a->instr[n];
                if (i->kind != WEFT_INSTR_COLLECTIVE) continue;
                const weft_group *g = &p->group[i->group];
                sum += weft_cost_group_sent(g->n_rank, i->coll, weft_instr_given(i, g));
            }
        }
    return sum;
}

static void measure(const test_job *j, const char *words, double *sent, int64_t *held)
{
    weft_program *p[TEST_MAX_RANK];
    int n = test_plan_programs(j, (test_plan){words, j->o.n_micro, 1, NULL}, NULL, p);
    *sent = 0;
    *held = 0;
    for (int r = 0; r < n; r++) {
        *sent += sent_bytes(p[r]);
        *held += weft_program_bytes(p[r], WEFT_SLAB_STATE);
        weft_program_destroy(p[r]);
    }
}

/* A tied embedding has two gradients, which are reduced apart in a step of one micro-batch. */
static void sends_no_further_bytes(void **state)
{
    static const struct {
        const char *model, *once, *twice;
        int         n_micro;
        double      times; /* of the state in memory, at least */
    } row[] = {
        {"tests/fixtures/families/llama", "dp=4 zero=1", "dp=4 zero=1 copies=2", 4, 1.3},
        {"tests/fixtures/families/llama", "dp=4 zero=3", "dp=4 zero=3 copies=2", 4, 1.9},
        {"tests/fixtures/families/llama", "dp=8 zero=2", "dp=8 zero=2 copies=2", 8, 1.1},
        {"tests/fixtures/four", "dp=4 zero=1", "dp=4 zero=1 copies=2", 8, 1.3},
        {"tests/fixtures/four", "dp=4 zero=3", "dp=4 zero=3 copies=4", 8, 3.8}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        double   sent[2];
        int64_t  held[2];
        test_job j;
        test_job_open(&j, row[i].model,
                      (test_job_options){.seq = 8, .n_micro = row[i].n_micro});
        measure(&j, row[i].once, &sent[0], &held[0]);
        measure(&j, row[i].twice, &sent[1], &held[1]);
        test_job_close(&j);
        print_message("%s: %.0f bytes sent, %.0f with copies; state %.2f times\n",
                      row[i].once, sent[0], sent[1], (double)held[1] / (double)held[0]);
        assert_true(sent[1] <= 1.001 * sent[0]); /* shares of norms differ */
        assert_true((double)held[1] >= row[i].times * (double)held[0]);
    }
}

/* A sum over the second axis is one call for each call over the first. */
static void coalesces_both_sums(void **state)
{
    weft_program *p[TEST_MAX_RANK];
    test_job      j;
    int           n[2] = {0};
    (void)state;
    test_job_open(&j, "tests/fixtures/families/llama",
                  (test_job_options){.seq = 8, .n_micro = 4});
    int n_rank =
        test_plan_programs(&j, (test_plan){"dp=4 zero=1 copies=2", 4, 1, NULL}, NULL, p);
    for (int a = 0; a < p[0]->n_actor; a++)
        for (int k = 0; k < p[0]->actor[a].n_instr; k++) {
            const weft_instr *i = &p[0]->actor[a].instr[k];
            if (i->kind != WEFT_INSTR_COLLECTIVE || weft_instr_bytes(i) < 1000) continue;
            n[0] += i->coll == WEFT_REDUCE_SCATTER;
            n[1] += i->coll == WEFT_ALL_REDUCE;
        }
    assert_true(n[0] > 0);
    assert_int_equal(n[0], n[1]);
    for (int r = 0; r < n_rank; r++) weft_program_destroy(p[r]);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(trains_like_one_rank),
        cmocka_unit_test(trains_in_buckets),
        cmocka_unit_test(sends_no_further_bytes),
        cmocka_unit_test(coalesces_both_sums),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
