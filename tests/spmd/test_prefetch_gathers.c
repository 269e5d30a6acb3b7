/* spmd/prefetch_gathers.c: steps are fused with matmuls whether or not parameters are gathered. */
#include "partition/partition.h"
#include "support/ranks.h"
#include "support/test.h"

/* Rank 0 of two; words NULL: one rank. */
static weft_program *make_program(const test_job *j, const char *words, int64_t bucket)
{
    weft_partition_options po = {
        .n_micro = j->o.n_micro, .n_lane = 2, .shard_bucket_bytes = bucket};
    weft_program *p = test_job_compile(j, words, true, &po);
    assert_ok(weft_program_verify(p));
    return p;
}

/* Matmuls of the program by how many steps are fused with them. */
static void count_steps(const weft_program *p, int n[8])
{
    for (int i = 0; i < 8; i++) n[i] = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++) {
            const weft_instr *q = &p->actor[a].instr[i];
            if (q->kind != WEFT_INSTR_COMPUTE || q->op != WEFT_OP_MATMUL) continue;
            assert_in_range(q->n_post, 0, 7);
            n[q->n_post]++;
        }
}

static void steps_are_fused_with_shards_as_without(void **state)
{
    static const int64_t bucket[] = {0, 1000, 20000, 400000};
    test_job             j;
    weft_program        *one;
    int                  want[8], got[8];
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = 4});
    one = make_program(&j, NULL, 0);
    count_steps(one, want);
    assert_true(want[1] > 0); /* a bias alone, at least */
    for (size_t i = 0; i < WEFT_COUNT(bucket); i++) {
        weft_program *p = make_program(&j, "dp=2 zero=3", bucket[i]);
        count_steps(p, got);
        assert_memory_equal(got, want, sizeof got);
        weft_program_destroy(p);
    }
    weft_program_destroy(one);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_fused_with_shards_as_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
