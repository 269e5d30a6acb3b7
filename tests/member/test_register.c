/* The register: one view for each epoch, the first that is proposed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "member/register.h"

static void the_first_view_of_an_epoch_stands(void **state)
{
    (void)state;
    static weft_member_register r;
    static weft_member_view     a = {.epoch = 1, .n_slot = 2, .process = {1, 1}},
                            b     = {.epoch = 1, .n_slot = 2, .process = {1, 2}};
    assert_int_equal(weft_member_propose(&r, &a)->process[1], 1);
    assert_int_equal(weft_member_propose(&r, &b)->process[1], 1);
    b.epoch = 3;
    assert_null(weft_member_propose(&r, &b)); /* epoch 2 was not decided */
    b.epoch = 2;
    assert_int_equal(weft_member_propose(&r, &b)->process[1], 2);
    assert_int_equal(weft_member_propose(&r, &a)->epoch, 2); /* who asks was overtaken */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_view_of_an_epoch_stands)};
    return cmocka_run_group_tests_name("register", tests, NULL, NULL);
}
