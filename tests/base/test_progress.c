#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/progress.h"
#include "support/files.h"

static void work_moves_the_count_and_the_word(void **state)
{
    weft_progress_record record = {0};
    (void)state;
    uint64_t before = weft_progress_count();
    weft_progress_alive(); /* it is not shared */
    weft_progress_share(&record);
    weft_progress_mark();
    assert_int_equal(record.word, 1);
    assert_int_equal(weft_progress_count(), before + 1);
    weft_progress_alive();
    assert_int_equal(record.word, 2);
    assert_int_equal(weft_progress_count(), before + 1);
    weft_progress_share(NULL);
    weft_progress_mark();
    assert_int_equal(record.word, 2);
}

static void tasks_and_beats_are_seen(void **state)
{
    weft_progress_record record = {.task = {{.begun_ns = 7}}};
    (void)state;
    weft_progress_begin(0, "x", 1, NULL); /* it is not shared */
    assert_true(weft_progress_end(0) == 0);
    assert_false(weft_progress_is_shared());
    weft_progress_share(&record);
    assert_true(weft_progress_is_shared());
    assert_int_equal(record.task[0].begun_ns, 0); /* of the process before */
    weft_progress_beat();
    assert_int_equal(record.beat, 1);
    assert_int_equal(record.word, 0);
    weft_progress_begin(3, "a name that is longer than there is room for in a record",
                        0.5, NULL);
    assert_true(record.task[3].begun_ns > 0);
    assert_int_equal(record.task[3].longest_ns, 500000000);
    assert_string_equal(record.task[3].name, "a name that is longer than there is roo");
    assert_int_equal(record.beat, 2);
    assert_true(weft_progress_end(3) >= 0);
    assert_int_equal(record.task[3].begun_ns, 0);
    weft_progress_begin(WEFT_PROGRESS_STREAMS, "x", 1, NULL); /* no such stream */
    weft_progress_begin(-1, NULL, 1, NULL);
    weft_progress_begin(0, NULL, 0, NULL);
    assert_string_equal(record.task[0].name, "");
    weft_progress_share(NULL);
}

static double estimate(const weft_progress_record *r, int kind, double amount)
{
    return weft_progress_estimate(r,
                                  &(weft_progress_work){.kind = kind, .amount = amount});
}

/* Of a task that has not run yet: by those of its kind. */
static void times_are_estimated(void **state)
{
    static weft_progress_record record;
    weft_progress_work          work = {.kind = 3, .amount = 1e6};
    (void)state;
    weft_progress_note(&work, 1); /* it is not shared */
    weft_progress_share(&record);
    assert_true(estimate(&record, 3, 1e6) == 0);
    weft_progress_note(&work, 0.01);
    weft_progress_note(&work, 0.002);
    assert_true(estimate(&record, 3, 1e6) >= 0.01 && estimate(&record, 3, 1e6) < 0.011);
    assert_true(estimate(&record, 3, 10) < 0.011); /* a smaller one takes no longer */
    assert_true(estimate(&record, 3, 1e8) >= 1 && estimate(&record, 3, 1e8) < 12);
    assert_true(estimate(&record, 4, 1e6) == 0); /* of another kind */
    work = (weft_progress_work){.kind = 3, .amount = 1e9};
    weft_progress_note(&work, 0.02); /* larger and nearer */
    assert_true(estimate(&record, 3, 1e8) >= 0.02 && estimate(&record, 3, 1e8) < 0.021);
    work.bytes = 1e9; /* with pages that are made */
    assert_true(weft_progress_estimate(&record, &work) >= 4);
    weft_progress_share(NULL);
    weft_progress_share(&record); /* a process after this one */
    assert_true(estimate(&record, 3, 1e6) >= 0.01);
    for (int kind = -1; kind <= WEFT_PROGRESS_KINDS; kind += WEFT_PROGRESS_KINDS + 1) {
        work = (weft_progress_work){.kind = kind, .amount = 1e30};
        weft_progress_note(&work, 1e9);
        assert_true(weft_progress_estimate(&record, &work) == 0);
    }
    work = (weft_progress_work){.kind = 1, .amount = 1e300};
    weft_progress_note(&work, 1e9);
    assert_true(estimate(&record, 1, 1e300) > 4000);
    weft_progress_share(NULL);
}

static void files_that_are_written_move_it(void **state)
{
    (void)state;
    uint64_t before = weft_progress_count();
    assert_int_equal(weft_io_replace_file(test_files_path("x"), "x", 1), WEFT_OK);
    assert_true(weft_progress_count() >= before + 4); /* open, write, sync, rename */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_moves_the_count_and_the_word),
        cmocka_unit_test(tasks_and_beats_are_seen),
        cmocka_unit_test(times_are_estimated),
        cmocka_unit_test(files_that_are_written_move_it),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
