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
    _Atomic uint64_t word = 0;
    (void)state;
    uint64_t before = weft_progress_count();
    weft_progress_alive(); /* nobody looks */
    weft_progress_share(&word);
    weft_progress_mark();
    assert_int_equal(word, 1);
    assert_int_equal(weft_progress_count(), before + 1);
    weft_progress_alive();
    assert_int_equal(word, 2);
    assert_int_equal(weft_progress_count(), before + 1);
    weft_progress_share(NULL);
    weft_progress_mark();
    assert_int_equal(word, 2);
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
        cmocka_unit_test(files_that_are_written_move_it),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
