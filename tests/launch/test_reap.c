/* Ranks that have ended, where the kernel takes its time to be rid of one of them: the launcher
 * goes on meanwhile. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/launch.h"
#include "support/test.h"

enum {
    N_RANK  = 3,
    LIMIT_S = 5
};

static _Atomic int  n_report;
static _Atomic bool was_slow, gave_up;

/* In the place of the C library's.  For the first process that has ended it returns when another
 * one was reported. */
pid_t waitpid(pid_t pid, int *how, int options)
{
    int    own;
    int   *status = how ? how : &own;
    pid_t  got    = wait4(pid, status, options, NULL);
    double end_s  = weft_clock_s() + LIMIT_S;
    if (got <= 0 || WIFSTOPPED(*status) || WIFCONTINUED(*status)) return got;
    if (atomic_exchange(&was_slow, true)) return got;
    while (atomic_load(&n_report) < 2 && weft_clock_s() < end_s) usleep(1000);
    if (atomic_load(&n_report) < 2) atomic_store(&gave_up, true);
    return got;
}

static void note_exit(void *arg, const weft_launch_exit *e)
{
    (void)arg;
    assert_int_equal(e->code, e->rank == 2 ? 128 + SIGKILL : e->rank);
    assert_int_equal(e->signal, e->rank == 2 ? SIGKILL : 0);
    n_report++;
}

static void a_rank_that_goes_slowly_is_not_waited_for(void **state)
{
    char *program[] = {"sh", "-c", "[ $RANK = 2 ] && kill -9 $$; exit $RANK", NULL};
    int   code      = -1;
    (void)state;
    weft_launch_options o = {.program      = program,
                             .rdzv         = "127.0.0.1:29400",
                             .on_rank_exit = WEFT_LAUNCH_REPORT,
                             .report       = note_exit};
    assert_ok(weft_launch(N_RANK, program, &o, &code));
    assert_int_equal(n_report, N_RANK);
    assert_true(was_slow);
    assert_false(gave_up);
    assert_int_equal(wait4(-1, NULL, WNOHANG, NULL), -1); /* none is left */
}

/* Stops and continues of a rank are no end of it. */
static void a_rank_may_stop_and_go_on(void **state)
{
    char *program[] = {"sh", "-c",
                       "(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit $RANK", NULL};
    int   code      = -1;
    (void)state;
    n_report              = 0;
    weft_launch_options o = {.program      = program,
                             .rdzv         = "127.0.0.1:29400",
                             .on_rank_exit = WEFT_LAUNCH_REPORT,
                             .report       = note_exit};
    assert_ok(weft_launch(1, program, &o, &code));
    assert_int_equal(n_report, 1);
    assert_int_equal(code, 0);
}

static pid_t lasting;

/* A child that runs no other program, as one that writes a dump. */
static void start_lasting(void *arg, const weft_launch_exit *e)
{
    (void)arg, (void)e;
    lasting = fork();
    if (lasting) return;
    sleep(LIMIT_S);
    _exit(0);
}

static void children_that_last_are_not_waited_for(void **state)
{
    char *program[] = {"true", NULL};
    int   code      = -1;
    (void)state;
    weft_launch_options o       = {.program      = program,
                                   .rdzv         = "127.0.0.1:29400",
                                   .on_rank_exit = WEFT_LAUNCH_REPORT,
                                   .report       = start_lasting};
    double              begin_s = weft_clock_s();
    assert_ok(weft_launch(1, program, &o, &code));
    assert_true(weft_clock_s() - begin_s < LIMIT_S - 1);
    assert_true(lasting > 0);
    assert_int_equal(kill(lasting, SIGKILL), 0);
    assert_int_equal(wait4(lasting, NULL, 0, NULL), lasting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_goes_slowly_is_not_waited_for),
        cmocka_unit_test(a_rank_may_stop_and_go_on),
        cmocka_unit_test(children_that_last_are_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
