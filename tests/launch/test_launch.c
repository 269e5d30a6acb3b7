/* The launcher's policies: a rank that fails ends all, or is reported while the others go on.
 * Ranks are this program again; their request says what each does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/environment.h"
#include "launch/launch.h"
#include "support/files.h"

enum {
    N_RANK = 3,
    LATE_S = 2 /* when the others end, if nobody ends them */
};

/* ---- a rank ---- */

/* assign[r] is what rank r does: "exit 3", "kill 9", "late 0" (then "done-<r>" is there). */
static int be_rank(void)
{
    weft_arena             *a;
    weft_launch_request     q;
    weft_launch_environment e;
    bool                    found;
    char                    verb[8], path[4096];
    int                     x;
    if (weft_arena_create(&a) != WEFT_OK ||
        weft_launch_request_find(a, &q, &found) != WEFT_OK || !found ||
        weft_launch_detect(&e) != WEFT_OK ||
        sscanf(q.assign[e.rank], "%7s %d", verb, &x) != 2)
        return 99;
    if (!strcmp(verb, "kill")) raise(x);
    if (!strcmp(verb, "late")) {
        sleep(LATE_S);
        snprintf(path, sizeof path, "%s/done-%d", q.file, e.rank);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    weft_arena_destroy(a);
    return x;
}

/* ---- the launcher ---- */

typedef struct exits {
    int              n;
    weft_launch_exit of[N_RANK];
    double           at_s[N_RANK];
} exits;

static void note_exit(void *arg, const weft_launch_exit *e)
{
    exits *x      = arg;
    x->at_s[x->n] = weft_clock_s();
    x->of[x->n++] = *e;
}

static int run_ranks(weft_launch_policy policy, const char *const *assign, exits *x)
{
    char               *argv[] = {"rank", NULL};
    weft_launch_request q      = {
             .file = test_files_path("ranks"), .n_assign = N_RANK, .assign = assign};
    weft_launch_options o = {.on_rank_exit = policy,
                             .report       = note_exit,
                             .arg          = x,
                             .request      = &q,
                             .grace_s      = 0.2};
    int                 code;
    *x = (exits){0};
    mkdir(q.file, 0700);
    if (weft_launch(N_RANK, argv, &o, &code) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(x->n, N_RANK);
    return code;
}

static const weft_launch_exit *exit_of(const exits *x, int rank)
{
    for (int i = 0; i < x->n; i++)
        if (x->of[i].rank == rank) return &x->of[i];
    fail_msg("rank %d did not end", rank);
    return NULL;
}

static bool went_on(int rank)
{
    const char *path = test_files_path("ranks/done-%d", rank);
    bool        done = access(path, F_OK) == 0;
    unlink(path);
    return done;
}

static void test_end_all(void **state)
{
    (void)state;
    exits x;
    int   code = run_ranks(WEFT_LAUNCH_END_ALL,
                           (const char *const[]){"late 0", "exit 3", "late 0"}, &x);
    assert_int_equal(code, 3);
    assert_false(went_on(0));
    assert_false(went_on(2));
    assert_int_equal(x.of[0].rank, 1);
    assert_int_equal(x.of[0].code, 3);
    assert_false(x.of[0].killed);
    for (int r = 0; r < N_RANK; r += 2) {
        assert_true(exit_of(&x, r)->killed);
        assert_int_equal(exit_of(&x, r)->signal, SIGKILL);
    }
}

static void test_report(void **state)
{
    (void)state;
    exits x;
    int   code = run_ranks(WEFT_LAUNCH_REPORT,
                           (const char *const[]){"late 0", "exit 3", "late 0"}, &x);
    assert_int_equal(code, 0);
    assert_true(went_on(0));
    assert_true(went_on(2));
    assert_int_equal(x.of[0].rank, 1);
    assert_int_equal(x.of[0].code, 3);
    assert_int_equal(x.of[0].signal, 0);
    assert_true(x.at_s[1] - x.at_s[0] > 0.5 * LATE_S); /* told at once, not at the end */
    for (int r = 0; r < N_RANK; r += 2) {
        assert_int_equal(exit_of(&x, r)->code, 0);
        assert_false(exit_of(&x, r)->killed);
    }
}

static void test_report_of_a_signal(void **state)
{
    (void)state;
    exits x;
    int   code = run_ranks(WEFT_LAUNCH_REPORT,
                           (const char *const[]){"kill 9", "late 5", "exit 0"}, &x);
    assert_int_equal(code, 0);
    assert_true(went_on(1));
    assert_int_equal(exit_of(&x, 0)->signal, SIGKILL);
    assert_int_equal(exit_of(&x, 0)->code, 128 + SIGKILL);
    assert_false(exit_of(&x, 0)->killed);
    assert_int_equal(exit_of(&x, 1)->code, 5);
}

/* Nobody is left who ended well: the first failure is the answer. */
static void test_report_without_survivors(void **state)
{
    (void)state;
    exits x;
    int   code = run_ranks(WEFT_LAUNCH_REPORT,
                           (const char *const[]){"late 4", "exit 3", "late 4"}, &x);
    assert_int_equal(code, 3);
    assert_true(went_on(0));
    assert_true(went_on(2));
}

int main(void)
{
    if (getenv("WEFT_REQUEST_FD")) return be_rank();
    const struct CMUnitTest tests[] = {
        with_files(test_end_all),
        with_files(test_report),
        with_files(test_report_of_a_signal),
        with_files(test_report_without_survivors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
