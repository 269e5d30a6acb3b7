/* Assembly: one stage is a pipeline of length 1.  What its program lists, that the name of a
 * schedule changes nothing of it, what memory lives from micro-batch to micro-batch, and what a
 * rank with fewer micro-batches than others does. */
#include "support/test.h"

#include <string.h>

#include "support/plans.h"

#define FOUR "tests/fixtures/four"

static weft_program *compile(const weft_graph *g, weft_partition_options o)
{
    weft_program *p;
    assert_ok(weft_partition_program(g, NULL, &o, &p));
    assert_ok(weft_program_verify(p));
    return p;
}

/* The compute stream: "name micro" for each firing, " !" where it begins a lane. */
static void check_list(const weft_program *p, const char *want)
{
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    weft_text               t = {0};
    for (int i = 0; i < s->n_firing; i++) {
        const weft_firing *f = &s->firing[i];
        weft_text_add(&t, "%s%s", i ? ", " : "", p->actor[f->actor].name);
        if (f->micro >= 0) weft_text_add(&t, " %d", f->micro);
        if (f->first) weft_text_add(&t, "!");
    }
    assert_string_equal(t.s, want);
    weft_text_fini(&t);
}

static void one_stage_runs_each_micro_batch_to_its_end(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FOUR, (test_job_options){.seq = 6, .n_micro = 4});
    weft_program *p =
        compile(j.training.graph, (weft_partition_options){.n_micro = 4, .n_lane = 2});
    check_list(p, "read 0!, forward 0!, backward 0!, read 1, forward 1, backward 1, "
                  "read 2!, forward 2!, backward 2!, read 3, forward 3, backward 3, "
                  "merge, update");
    assert_int_equal(p->n_actor, 5);
    assert_int_equal(p->n_edge, 0);
    weft_program_destroy(p);
    p = compile(j.model->graph, (weft_partition_options){.n_micro = 2, .n_lane = 2});
    check_list(p, "read 0!, forward 0!, read 1!, forward 1!");
    weft_program_destroy(p);
    test_job_close(&j);
}

static void a_schedule_changes_nothing_of_one_stage(void **state)
{
    static const char *const name[] = {"1f1b", "gpipe", "zb-h1", "interleaved"};
    test_job                 j;
    (void)state;
    test_job_open(&j, FOUR, (test_job_options){.seq = 6, .n_micro = 4});
    weft_partition_options o = {.n_micro = 4, .n_lane = 2};
    weft_program          *p = compile(j.training.graph, o);
    weft_text              t = {0};
    assert_ok(weft_program_print(p, &t));
    weft_program_destroy(p);
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        weft_text u = {0};
        o.schedule  = name[i];
        p           = compile(j.training.graph, o);
        assert_ok(weft_program_print(p, &u));
        assert_string_equal(u.s, t.s);
        weft_text_fini(&u);
        weft_program_destroy(p);
    }
    weft_text_fini(&t);
    test_job_close(&j);
}

static int64_t work_bytes(const weft_program *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind == WEFT_SLAB_WORK) n += p->slab[i].bytes;
    return n;
}

static int count_slotted(const weft_program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_buffer; i++)
        n += p->buffer[i].slot_by == WEFT_SLOT_MICRO && p->buffer[i].n_slot > 1;
    return n;
}

static int64_t compile_bytes(const test_job *j, weft_partition_options o)
{
    weft_program *p = compile(j->training.graph, o);
    int64_t       n = work_bytes(p);
    weft_program_destroy(p);
    return n;
}

/* In a micro-batch one stage holds nothing of the next; the first of two stages does.  A sum lasts
 * from micro-batch to micro-batch only where a rank has several; with one, a rank of two needs no
 * more than one alone, though it sums both uses of the tied embedding by themselves. */
static void memory_follows_the_schedule(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FOUR, (test_job_options){.seq = 6, .n_micro = 4});
    for (int pp = 1; pp < 3; pp++) {
        weft_program *p =
            compile(j.training.graph,
                    (weft_partition_options){.n_micro = 4, .n_lane = 1, .pp = pp});
        assert_int_equal(count_slotted(p) > 0, pp > 1);
        weft_program_destroy(p);
    }
    int64_t several =
        compile_bytes(&j, (weft_partition_options){.n_micro = 4, .n_lane = 2, .dp = 2});
    int64_t one_each =
        compile_bytes(&j, (weft_partition_options){.n_micro = 2, .n_lane = 2, .dp = 2});
    int64_t one = compile_bytes(&j, (weft_partition_options){.n_micro = 1, .n_lane = 1});
    print_message("work memory: %lld, %lld, %lld bytes\n", (long long)several,
                  (long long)one_each, (long long)one);
    assert_true(one_each < several);
    assert_int_equal(one, one_each);
    test_job_close(&j);
}

/* ZeRO 3 gathers in every micro-batch, of which rank 0 has three and rank 1 one. */
static void a_rank_with_fewer_micro_batches_joins_the_others(void **state)
{
    static const char *const words[] = {"dp=2 zero=3 batch_split=3,1",
                                        "dp=2 pp=2 zero=3 batch_split=3,1"};
    test_job                 j;
    weft_program            *p[TEST_MAX_RANK];
    (void)state;
    test_job_open(&j, FOUR, (test_job_options){.seq = 6, .n_micro = 4});
    int n = test_plan_programs(&j, (test_plan){words[0], 4, 1, NULL}, NULL, p);
    assert_int_equal(n, 2);
    check_list(p[1], "read 3!, forward 3!, backward 3!, join.forward 0, join.backward 0, "
                     "join.forward 1, join.backward 1, update");
    for (int i = 0; i < n; i++) weft_program_destroy(p[i]);
    n = test_plan_programs(&j, (test_plan){words[1], 4, 1, NULL}, NULL, p);
    assert_int_equal(n, 4);
    check_list(p[3], "read 3!, forward 3!, backward 3!, join.forward 0, join.backward 0, "
                     "join.forward 1, join.backward 1, update.0, exchange.0, update.1");
    for (int i = 0; i < n; i++) weft_program_destroy(p[i]);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_runs_each_micro_batch_to_its_end),
        cmocka_unit_test(a_schedule_changes_nothing_of_one_stage),
        cmocka_unit_test(memory_follows_the_schedule),
        cmocka_unit_test(a_rank_with_fewer_micro_batches_joins_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
