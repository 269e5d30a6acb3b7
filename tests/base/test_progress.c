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
    weft_progress_alive(); /* nobody looks */
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
    weft_progress_begin(0, "x", 1); /* nobody looks */
    assert_true(weft_progress_end(0) == 0);
    assert_false(weft_progress_is_shared());
    weft_progress_share(&record);
    assert_true(weft_progress_is_shared());
    assert_int_equal(record.task[0].begun_ns, 0); /* of the process before */
    weft_progress_beat();
    assert_int_equal(record.beat, 1);
    assert_int_equal(record.word, 0);
    weft_progress_begin(3, "a name that is longer than there is room for in a record",
                        0.5);
    assert_true(record.task[3].begun_ns > 0);
    assert_int_equal(record.task[3].longest_ns, 500000000);
    assert_string_equal(record.task[3].name, "a name that is longer than there is roo");
    assert_int_equal(record.beat, 2);
    assert_true(weft_progress_end(3) >= 0);
    assert_int_equal(record.task[3].begun_ns, 0);
    weft_progress_begin(WEFT_PROGRESS_STREAMS, "x", 1); /* no such stream */
    weft_progress_begin(-1, NULL, 1);
    weft_progress_begin(0, NULL, 0);
    assert_string_equal(record.task[0].name, "");
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
        cmocka_unit_test(files_that_are_written_move_it),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
