/* A spare becomes the rank that the launcher says, where others see it, too; one that is not needed
 * ends. */
#include "launch/spare.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch_priv.h"
#include "support/test.h"

static void be_spare(int fd)
{
    char text[16];
    snprintf(text, sizeof text, "%d", fd);
    setenv("WEFT_SPARE_FD", text, 1);
    setenv("WEFT_RANK", "-1        ", 1);
    setenv("WEFT_LOCAL_WORLD_SIZE", "3", 1);
}

static void becomes_a_rank(void **state)
{
    static const bool   for_gpus[] = {false, true, true};
    weft_launch_options o          = {.node = 1, .n_node = 2, .spares = for_gpus};
    weft_launch__child  c[3]       = {{.pid = 0}};
    weft_launch__run    l          = {.n = 3, .first = 3, .c = c, .o = &o};
    int                 pair[2];
    (void)state;
    assert_false(weft_launch_is_spare());
    assert_false(weft_launch__spare_take(&l, 1)); /* there is none */
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    l.spare = (weft_launch__spare){
        .pid = 77, .out = dup(1), .err = dup(1), .line = dup(1), .wake = pair[0]};
    int line = l.spare.line;
    be_spare(pair[1]);
    const char *place = getenv("WEFT_RANK");
    assert_true(weft_launch_is_spare());
    assert_int_equal(weft_launch_spare_world(), 3);
    assert_false(weft_launch__spare_take(&l, 0)); /* a slot on CPUs */
    assert_true(weft_launch__spare_take(&l, 1));
    assert_int_equal(c[1].pid, 77);
    assert_int_equal(c[1].line, line);
    assert_int_equal(l.spare.pid, 0);
    assert_true(weft_launch_await_slot());
    assert_string_equal(place, "4"); /* where it was, for /proc */
    assert_string_equal(getenv("WEFT_LOCAL_RANK"), "1");
    assert_string_equal(getenv("WEFT_WORLD_SIZE"), "6");
    assert_string_equal(getenv("WEFT_LOCAL_WORLD_SIZE"), "3");
    assert_false(weft_launch_is_spare());
    close(c[1].out), close(c[1].err), close(c[1].line);
}

static void is_not_needed(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    be_spare(pair[1]);
    close(pair[0]);
    assert_false(weft_launch_await_slot());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(becomes_a_rank),
                                       cmocka_unit_test(is_not_needed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
