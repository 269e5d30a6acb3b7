/* base/failpoint.c: a process is killed, waits or ends at a named place, as the text says. */
#include "base/failpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/test.h"

/* How a child ends that arms the text and comes n times to "a", then once to "b". */
static int run_child(const char *text, const char *once, int n)
{
    int   how;
    pid_t child = fork();
    if (!child) {
        setenv("WEFT_RANK", "1", 1);
        if (weft_failpoint_arm(text, once) != WEFT_OK) _exit(99);
        for (int k = 0; k < n; k++) weft_failpoint("a");
        weft_failpoint("b");
        _exit(0);
    }
    waitpid(child, &how, 0);
    return WIFSIGNALED(how) ? -WTERMSIG(how) : WEXITSTATUS(how);
}

static void actions_are_as_the_text_has_them(void **state)
{
    (void)state;
    assert_int_equal(run_child(NULL, NULL, 3), 0);
    assert_int_equal(run_child("a:kill", NULL, 1), -SIGKILL);
    assert_int_equal(run_child("c:kill", NULL, 1), 0);
    assert_int_equal(run_child("a:exit", NULL, 1), 3);
    assert_int_equal(run_child("a:abort:nth=3", NULL, 2), 0);
    assert_int_equal(run_child("a:abort:nth=3", NULL, 3), -SIGABRT);
    assert_int_equal(run_child("a:kill:rank=0,b:exit:rank=1", NULL, 1), 3);
    assert_int_equal(run_child("a:kill:rank=none", NULL, 1), 0);
}

/* `host`: the process and its parent, as when a host is lost with its agent and its ranks. */
static void a_host_is_lost_with_its_agent(void **state)
{
    int   how;
    pid_t agent = fork();
    (void)state;
    if (!agent) _exit(run_child("a:host", NULL, 1) ? 98 : 97);
    waitpid(agent, &how, 0);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void bad_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a",         "a:",           "a:fly",        "a:kill:nth=0",
        "a:delay=x", "a:kill:rank=", "a:delay=0",    "a:work=0",
        ":kill",     "a:kill:foo=1", "a:kill:nth=+", "a:kill:while="};
    for (size_t k = 0; k < WEFT_COUNT(bad); k++)
        assert_int_equal(run_child(bad[k], NULL, 1), 99);
}

static void entries_act_once_and_in_order(void **state)
{
    (void)state;
    char folder[] = "/tmp/weft-failpoint-XXXXXX", once[64], file[80];
    assert_true(mkdtemp(folder) != NULL);
    snprintf(once, sizeof once, "%s/hit", folder);
    assert_int_equal(run_child("b:kill,a:exit", once, 2), -SIGKILL); /* a comes after b */
    assert_int_equal(run_child("b:kill,a:exit", once, 2), 3);
    assert_int_equal(run_child("b:kill,a:exit", once, 2), 0);
    for (int k = 0; k < 2; k++) {
        snprintf(file, sizeof file, "%s.%d", once, k);
        assert_int_equal(unlink(file), 0);
    }
    /* what acts every time has no place in that order */
    assert_int_equal(run_child("a:delay=1:nth=every,b:kill", once, 2), -SIGKILL);
    assert_int_equal(run_child("a:delay=1:nth=every,b:kill", once, 2), 0);
    snprintf(file, sizeof file, "%s.0", once);
    assert_int_equal(unlink(file), 0);
    rmdir(folder);
}

/* N+: from the N-th time on, in every process, whatever acted once. */
static void some_go_on_from_the_nth_time(void **state)
{
    (void)state;
    double begin = weft_clock_s();
    assert_int_equal(run_child("a:kill:nth=3+", NULL, 2), 0);
    assert_int_equal(run_child("a:kill:nth=1500000000+", NULL, 2), 0);
    assert_int_equal(run_child("a:kill:nth=3+", "/nowhere/hit", 3), -SIGKILL);
    assert_int_equal(run_child("a:delay=20:nth=2+", NULL, 4), 0);
    assert_true(weft_clock_s() - begin >= 0.06);
}

/* while=FILE: without the file nothing happens, and a delay ends when the file goes. */
static void a_file_holds(void **state)
{
    (void)state;
    char file[] = "/tmp/weft-held-XXXXXX", text[80];
    int  fd     = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    snprintf(text, sizeof text, "a:exit:while=%s", file);
    assert_int_equal(run_child(text, NULL, 1), 3);
    snprintf(text, sizeof text, "a:delay=100000:while=%s", file);
    pid_t other = fork();
    if (!other) {
        usleep(50000);
        _exit(unlink(file) != 0);
    }
    double begin = weft_clock_s();
    assert_int_equal(run_child(text, NULL, 1), 0);
    assert_true(weft_clock_s() - begin < 90);
    waitpid(other, NULL, 0);
    snprintf(text, sizeof text, "a:exit:while=%s", file);
    assert_int_equal(run_child(text, NULL, 1), 0);
}

/* Times without the file do not count: what acts once acts when the file comes. */
static void times_count_while_the_file_is_there(void **state)
{
    (void)state;
    char folder[] = "/tmp/weft-failpoint-XXXXXX", text[120], file[64];
    assert_true(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/there", folder);
    snprintf(text, sizeof text, "a:flip:nth=2:while=%s", file);
    assert_int_equal(weft_failpoint_arm(text, NULL), WEFT_OK);
    for (int k = 0; k < 3; k++) assert_false(weft_failpoint_flips("a"));
    int fd = open(file, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    close(fd);
    assert_false(weft_failpoint_flips("a"));
    assert_true(weft_failpoint_flips("a"));
    assert_false(weft_failpoint_flips("a"));
    assert_int_equal(weft_failpoint_arm(NULL, NULL), WEFT_OK);
    unlink(file);
    rmdir(folder);
}

static void numbers_flip_at_their_own_places(void **state)
{
    (void)state;
    assert_int_equal(weft_failpoint_arm("a:flip:nth=2,b:exit", NULL), WEFT_OK);
    weft_failpoint("a"); /* no place for numbers: it does not count */
    assert_false(weft_failpoint_flips("a"));
    assert_true(weft_failpoint_flips("a"));
    assert_false(weft_failpoint_flips("a"));
    assert_false(weft_failpoint_flips("b"));
    assert_int_equal(weft_failpoint_arm(NULL, NULL), WEFT_OK);
}

static void a_delay_is_waited_for(void **state)
{
    (void)state;
    double begin = weft_clock_s();
    assert_int_equal(weft_failpoint_arm("a:delay=20", NULL), WEFT_OK);
    weft_failpoint("a");
    weft_failpoint("a"); /* not the first time */
    assert_true(weft_clock_s() - begin >= 0.02);
    begin = weft_clock_s();
    assert_int_equal(weft_failpoint_arm("a:delay=10:nth=every", NULL), WEFT_OK);
    for (int k = 0; k < 3; k++) weft_failpoint("a");
    assert_true(weft_clock_s() - begin >= 0.03);
    assert_int_equal(weft_failpoint_arm(NULL, NULL), WEFT_OK);
    assert_int_equal(atomic_load(&weft_failpoint_state), WEFT_FAILPOINT_OFF);
}

/* However many other threads want that core. */
static void work_uses_a_core(void **state)
{
    (void)state;
    double begin = weft_clock_thread_s();
    assert_int_equal(weft_failpoint_arm("a:work=20", NULL), WEFT_OK);
    weft_failpoint("a");
    assert_true(weft_clock_thread_s() - begin >= 0.02);
    assert_int_equal(weft_failpoint_arm(NULL, NULL), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions_are_as_the_text_has_them),
        cmocka_unit_test(a_host_is_lost_with_its_agent),
        cmocka_unit_test(bad_text_is_refused),
        cmocka_unit_test(entries_act_once_and_in_order),
        cmocka_unit_test(some_go_on_from_the_nth_time),
        cmocka_unit_test(a_file_holds),
        cmocka_unit_test(times_count_while_the_file_is_there),
        cmocka_unit_test(numbers_flip_at_their_own_places),
        cmocka_unit_test(a_delay_is_waited_for),
        cmocka_unit_test(work_uses_a_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
