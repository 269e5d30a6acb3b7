/* lower/live.c: where buffers of a program begin (weft_lower_options.align_bytes). */
#include "partition/partition.h"
#include "support/ranks.h"
#include "support/test.h"

/* The largest power of two that all buffers begin at a multiple of. */
static int64_t find_alignment(const test_job *j, int align_bytes, int dp)
{
    weft_partition_options o = {
        .n_micro = 2, .n_lane = 2, .dp = dp, .align_bytes = align_bytes};
    weft_program *p;
    int64_t       all = 0;
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p));
    assert_ok(weft_program_verify(p));
    for (int i = 0; i < p->n_buffer; i++) all |= p->buffer[i].offset;
    weft_program_destroy(p);
    return all & -all;
}

static void buffers_begin_at_multiples(void **state)
{
    (void)state;
    test_job j;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 7, .n_micro = 2});
    for (int dp = 1; dp < 3; dp++) {
        assert_int_equal(find_alignment(&j, 0, dp), 64);
        assert_int_equal(find_alignment(&j, 256, dp), 256);
    }
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_begin_at_multiples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
