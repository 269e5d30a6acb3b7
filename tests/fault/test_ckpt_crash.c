/* Checkpoints under fire, written by one rank and by three: the n-th call fails, the
 * process dies at the n-th call, files are cut and bits flip, the disk is full, a writer
 * stops at the n-th call and wakes when another one has its place.
 * Afterwards the old or the new checkpoint loads whole, always. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/status.h"
#include "support/ckpt_case.h"
#include "support/files.h"
#include "support/test.h"

/* What is done to a directory that holds step 10 (seed 1), and for prune also step 20
 * (seed 2). */
typedef enum act {
    SAVE_NEXT,
    SAVE_AGAIN,
    PRUNE,
    N_ACT
} act;

/* From one call that fails to the next. */
#define CALL_STRIDE (TEST_LONG ? 1 : WEFT_TEST_SANITIZED ? 13 : 3)

static void prepare(const char *dir, act what)
{
    assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
    if (what == PRUNE) assert_int_equal(test_ckpt_save(dir, 20, 2), WEFT_OK);
}

static weft_status perform(const char *dir, act what)
{
    if (what == SAVE_NEXT) return test_ckpt_save(dir, 20, 2);
    if (what == SAVE_AGAIN) return test_ckpt_save(dir, 10, 2);
    return weft_ckpt_prune(dir, 20, 1, NULL);
}

static int count_names(const char *dir)
{
    DIR           *d = opendir(dir);
    struct dirent *e;
    int            n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Whole, old or new; new for sure when done; and the next save works and cleans up: all
 * that is left is one folder and its manifest. */
static void check(const char *dir, act what, bool done)
{
    weft_ckpt_findings found = {0};
    int64_t            step  = -1;
    int                seed  = test_ckpt_newest(dir, &step, &found);

    assert_int_equal(found.warn.n,
                     0); /* nothing half-made even looks like a checkpoint */
    assert_true(seed == 1 || seed == 2);
    if (done || what == PRUNE) assert_int_equal(seed, 2);
    assert_int_equal(step, what == SAVE_AGAIN || seed == 1 ? 10 : 20);
    assert_int_equal(test_ckpt_save(dir, 30, 3), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &step, &found), 3);
    assert_int_equal(weft_ckpt_prune(dir, 30, 1, &found), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &step, &found), 3);
    assert_int_equal(found.warn.n, 0);
    weft_ckpt_findings_fini(&found);
    assert_int_equal(count_names(dir), 2);
}

/* Act k % N_ACT, by one writer and then by three. */
static act use_writers(int k)
{
    test_ckpt_n_writer = k < N_ACT ? 1 : 3;
    return (act)(k % N_ACT);
}

static void each_call_fails(void **state)
{
    static const struct {
        int  err;
        bool sticky;
    } way[]   = {{EIO, false}, {ENOSPC, true}, {EIO, true}};
    int total = 0;
    (void)state;

    for (int k = 0; k < 2 * N_ACT; k++)
        for (size_t w = 0; w < WEFT_COUNT(way) - (k >= N_ACT); w++)
            for (int n = 1 + (int)w % CALL_STRIDE;; n += CALL_STRIDE, total++) {
                act         what = use_writers(k);
                const char *dir  = test_files_path("fail-%d-%zu-%d", k, w, n);
                weft_status st;
                bool        reached;

                prepare(dir, what);
                int64_t before = weft_io_calls();
                weft_io_fail_at(n, way[w].err, way[w].sticky);
                st      = perform(dir, what);
                reached = weft_io_calls() - before >= n;
                weft_io_fail_at(0, 0, false);
                if (reached && way[w].err == ENOSPC && st != WEFT_OK)
                    assert_int_equal(st, WEFT_ERR_FULL);
                if (reached && st != WEFT_OK) assert_true(strlen(weft_error_text()) > 10);
                check(dir, what, st == WEFT_OK);
                weft_io_remove_tree(dir);
                if (!reached) {
                    assert_int_equal(st, WEFT_OK);
                    assert_true(n > 5);
                    break;
                }
            }
    print_message("%d failed calls survived\n", total);
    assert_true(total > 120 / CALL_STRIDE);
}

/* The child is this program again, so that it counts its calls from 1. */
static int child(const char *dir, act what, int n)
{
    char  num[16], which[16], writers[16];
    pid_t pid;
    int   status;

    snprintf(num, sizeof num, "%d", n);
    snprintf(which, sizeof which, "%d", (int)what);
    snprintf(writers, sizeof writers, "%d", test_ckpt_n_writer);
    pid = fork();
    if (pid == 0) {
        setenv("WEFT_IO_KILL", num, 1);
        execl("/proc/self/exe", "test_ckpt_crash", "--child", dir, which, writers,
              (char *)NULL);
        _exit(99);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void each_call_kills(void **state)
{
    int total = 0;
    (void)state;

    for (int k = 0; k < 2 * N_ACT; k++)
        for (int n = 1 + k % CALL_STRIDE;; n += CALL_STRIDE, total++) {
            act         what = use_writers(k);
            const char *dir  = test_files_path("kill-%d-%d", k, n);
            int         status;

            prepare(dir, what);
            status = child(dir, what, n);
            if (WIFSIGNALED(status))
                assert_int_equal(WTERMSIG(status), SIGKILL);
            else
                assert_int_equal(WEXITSTATUS(status), 0);
            check(dir, what, !WIFSIGNALED(status));
            weft_io_remove_tree(dir);
            if (!WIFSIGNALED(status)) break;
        }
    print_message("%d kills survived\n", total);
    assert_true(total > 30 / CALL_STRIDE);
}

/* ---- writers that stop, and wake in a later epoch ---- */

enum {
    OLD_SEED   = 2,
    NEW_SEED   = 4,
    STEP_SEEDS = 100 /* "step 20 with seed 4" is 20 * STEP_SEEDS + 4 */
};

/* A writer of an epoch that stops before its n-th call; 0: never. */
static pid_t start_writer(const char *dir, int epoch, int step, int seed, int n)
{
    char  num[16], which[16], writers[16], of[16];
    pid_t pid;

    snprintf(num, sizeof num, "%d", n);
    snprintf(which, sizeof which, "%d", step * STEP_SEEDS + seed);
    snprintf(writers, sizeof writers, "%d", test_ckpt_n_writer);
    snprintf(of, sizeof of, "%d", epoch);
    pid = fork();
    if (pid == 0) {
        if (n) setenv("WEFT_IO_STOP", num, 1);
        execl("/proc/self/exe", "test_ckpt_crash", "--writer", dir, which, writers, of,
              (char *)NULL);
        _exit(99);
    }
    assert_true(pid > 0);
    return pid;
}

/* true: it has stopped; false: it has ended, and *fine says how. */
static bool wait_stopped(pid_t pid, bool *fine)
{
    int status;

    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) return true;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    *fine = WEXITSTATUS(status) == 0;
    return false;
}

static void wake(pid_t pid, bool *fine)
{
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_false(wait_stopped(pid, fine));
}

/* One of the seeds as a whole, the old one only where its writer has come to its end. */
static void check_fenced(const char *dir, int step, bool old_fine)
{
    weft_ckpt_findings found = {0};
    int64_t            at    = -1;
    int                seed  = test_ckpt_newest(dir, &at, &found);

    assert_int_equal(found.warn.n, 0);
    assert_int_equal(at, step);
    assert_true(seed == NEW_SEED || (old_fine && step == 20 && seed == OLD_SEED));
    assert_int_equal(test_ckpt_save(dir, 40, 3), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &at, &found), 3);
    assert_int_equal(weft_ckpt_prune(dir, 40, 1, NULL), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &at, &found), 3);
    assert_int_equal(at, 40);
    weft_ckpt_findings_fini(&found);
}

/* A save of step 20 that did not commit: the old writer deletes its folder. */
static void leave_folder(const char *dir)
{
    char from[256], to[264];

    snprintf(from, sizeof from, "%s/MANIFEST-00000020", dir);
    snprintf(to, sizeof to, "%s.tmp", from);
    assert_int_equal(test_ckpt_save(dir, 20, 1), WEFT_OK);
    assert_int_equal(rename(from, to), 0);
}

/* The old writer of step 20 stops before call n; the new one saves `step` meanwhile, or stops
 * before call m, the old one ends, and it goes on.  false: the old one has no call n. */
static bool fence(const char *dir, int step, int n, int m, bool leftover,
                  bool *new_stopped)
{
    bool  old_fine = false, new_fine = false;
    pid_t old, new;

    prepare(dir, SAVE_NEXT);
    if (leftover) leave_folder(dir);
    old          = start_writer(dir, 1, 20, OLD_SEED, n);
    bool exists  = wait_stopped(old, &old_fine);
    new          = start_writer(dir, 2, step, NEW_SEED, m);
    *new_stopped = wait_stopped(new, &new_fine);
    if (exists) wake(old, &old_fine);
    if (*new_stopped) wake(new, &new_fine);
    /* whatever the other one does; but a whole save of the step within that of the new one */
    if (!new_fine && !(exists && old_fine && *new_stopped && step == 20))
        fail_msg("step %d: stopped before calls %d and %d, the new writer failed", step,
                 n, m);
    check_fenced(dir, step, exists && old_fine);
    weft_io_remove_tree(dir);
    return exists;
}

static void a_writer_wakes_in_a_later_epoch(void **state)
{
    int total = 0;
    (void)state;

    for (int k = 0; k < 4; k++) {
        int  step = k % 2 ? 30 : 20;
        bool more = true, stopped = true;
        test_ckpt_n_writer = k < 2 ? 1 : 3;
        for (int n = 1; more; n += (k < 2 ? 1 : 3) * CALL_STRIDE, total++)
            more =
                fence(test_files_path("wake-%d-%d", k, n), step, n, 0, false, &stopped);
        /* both stop: the old one at a few places, the new one everywhere */
        for (int m = 1 + k % 2; (stopped || m < 3) && k < 2;
             m += 2 * CALL_STRIDE, total++)
            fence(test_files_path("both-%d-%d", k, m), step, 1 + m * 7 % 29, m, false,
                  &stopped);
    }
    test_ckpt_n_writer = 1;
    for (int n = 1; n <= 10; n++, total++) { /* in its sweep */
        bool stopped;
        fence(test_files_path("swept-%d", n), 20, n, 0, true, &stopped);
    }
    print_message("%d writers woken\n", total);
    assert_true(total > 100 / CALL_STRIDE);
}

/* ---- damage at rest ---- */

static const char *const member[] = {
    "MANIFEST-00000020", "step-00000020/config.json", "step-00000020/model.safetensors",
    "step-00000020/optimizer.safetensors", "step-00000020/state.json"};

/* Step 20 is damaged: step 10 loads, and it is said loudly. */
static void expect_fallback(const char *dir, const char *what)
{
    weft_ckpt_findings found = {0};
    weft_ckpt_info    *list;
    int64_t            step = -1;
    int                n;

    if (test_ckpt_newest(dir, &step, &found) != 1 || step != 10)
        fail_msg("%s: loaded", what);
    assert_non_null(strstr(found.warn.s, "CHECKPOINT OF STEP 20 IS DAMAGED"));
    weft_ckpt_findings_fini(&found);
    assert_int_equal(weft_ckpt_list(dir, true, &list, &n), WEFT_OK);
    assert_int_equal(n, 2);
    assert_int_not_equal(list[0].status, WEFT_OK);
    assert_true(strlen(list[0].why) > 10);
    free(list);
}

static void cuts_and_flips(void **state)
{
    const char *dir = test_files_path("damage");
    (void)state;

    test_ckpt_n_writer = 3;
    assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
    assert_int_equal(test_ckpt_save(dir, 20, 2), WEFT_OK);
    for (size_t k = 0; k < WEFT_COUNT(member); k++) {
        const char *path = test_files_path("damage/%s", member[k]);
        size_t      n;
        char       *p     = test_files_read(path, &n);
        size_t      cut[] = {0, 1, n / 2, n - 1};

        for (size_t i = 0; i < WEFT_COUNT(cut); i++) {
            test_files_write(path, p, cut[i]);
            expect_fallback(dir, "cut");
        }
        p    = realloc(p, n + 2); /* one byte longer */
        p[n] = p[n + 1] = 0;
        test_files_write(path, p, n + 1);
        expect_fallback(dir, "longer");
        for (size_t bit = 0; bit<8 * n; bit += n> 1000 ? 61 : 7) {
            p[bit / 8] = (char)(p[bit / 8] ^ (1 << bit % 8));
            test_files_write(path, p, n);
            expect_fallback(dir, "flip");
            p[bit / 8] = (char)(p[bit / 8] ^ (1 << bit % 8));
        }
        if (k > 0) { /* without its manifest it is not there at all */
            unlink(path);
            expect_fallback(dir, "gone");
        }
        test_files_write(path, p, n);
        free(p);
        assert_int_equal(test_ckpt_newest(dir, NULL, NULL), 2);
    }
}

/* The manifest of one step under the name of another. */
static void swapped_manifest(void **state)
{
    const char *dir = test_files_path("swap");
    size_t      n;
    char       *p;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
    assert_int_equal(test_ckpt_save(dir, 20, 2), WEFT_OK);
    p = test_files_read(test_files_path("swap/MANIFEST-00000010"), &n);
    test_files_write(test_files_path("swap/MANIFEST-00000020"), p, n);
    free(p);
    expect_fallback(dir, "swap");
}

/* ---- a full disk ---- */

static void full_disk(void **state)
{
    const char *dir = test_files_path("small");
    char       *big = calloc(1, 3 << 20);
    int         n   = 0;
    (void)state;

    test_ckpt_n_writer = 3;
    mkdir(dir, 0777);
    if (mount("none", dir, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: no small tmpfs without root\n");
        free(big);
        skip();
    }
    assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
    weft_store_item it  = {"w", WEFT_DTYPE_U8, {1, {3 << 20}}, {.data = big}};
    weft_ckpt_file  f[] = {
         {.name = "state.json", .text = "{}", .n_text = 2},
         {.name = "model.safetensors", .tensors = {.item = &it, .n_item = 1}}};
    assert_int_equal(weft_ckpt_save(dir, 20, f, 2, NULL), WEFT_ERR_FULL);
    assert_non_null(strstr(weft_error_text(), "model.safetensors"));
    assert_int_equal(access(test_files_path("small/step-00000020.tmp"), F_OK), -1);
    assert_int_equal(test_ckpt_newest(dir, NULL, NULL), 1);
    for (n = 11; test_ckpt_save(dir, n, n) == WEFT_OK;
         n++) { /* until it is full of small ones */
        int64_t step;

        assert_true(n < 1000);
        assert_int_equal(test_ckpt_newest(dir, &step, NULL), n);
    }
    assert_true(n > 12);
    assert_non_null(strstr(weft_error_text(), "No space left"));
    assert_int_equal(test_ckpt_newest(dir, NULL, NULL), n - 1);
    assert_int_equal(weft_ckpt_prune(dir, n - 1, 2, NULL),
                     WEFT_OK); /* room is made, and the job goes on */
    assert_int_equal(test_ckpt_save(dir, n, n), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, NULL, NULL), n);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    free(big);
}

static int begin(void **state)
{
    (void)state;
    test_files_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    umount2(test_files_path("small"), MNT_DETACH);
    test_files_end();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(each_call_kills),
        cmocka_unit_test(cuts_and_flips),
        cmocka_unit_test(swapped_manifest),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(a_writer_wakes_in_a_later_epoch),
    };

    if (argc >= 5) test_ckpt_n_writer = atoi(argv[4]);
    if (argc == 6 && strcmp(argv[1], "--writer") == 0) {
        int what        = atoi(argv[3]);
        test_ckpt_epoch = (uint32_t)atoi(argv[5]);
        return test_ckpt_save(argv[2], what / STEP_SEEDS, what % STEP_SEEDS) != WEFT_OK;
    }
    if (argc == 5 && strcmp(argv[1], "--child") == 0)
        return perform(argv[2], (act)atoi(argv[3])) != WEFT_OK;
    return cmocka_run_group_tests(tests, begin, end);
}
