/* When a checkpoint's state is copied into memory that is free: copies of all ranks that share it,
 * and a part that stays free. */
#include "session/session_priv.h"
#include "support/test.h"

static void room_for_copies(void **state)
{
    (void)state;
    assert_true(weft_session__has_room(90, 1, 100, 320));
    assert_false(weft_session__has_room(91, 1, 100, 320)); /* a 32nd stays free */
    assert_true(weft_session__has_room(45, 2, 100, 320));
    assert_false(weft_session__has_room(46, 2, 100, 320));
    assert_false(weft_session__has_room(1, 1, 10, 320));
    assert_false(weft_session__has_room(1, 1, 5, 320));
    assert_true(weft_session__has_room(INT64_MAX / 4, 3, INT64_MAX, INT64_MAX));
    assert_false(weft_session__has_room(INT64_MAX / 2, 3, INT64_MAX, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(room_for_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
