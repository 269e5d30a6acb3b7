/* One conformance test over all registers: one value for each epoch, the first that is proposed.
 * What only one of them has (a folder that is no register, another job) follows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "register/conformance.h"

static char folder[] = "/tmp/weft-register-XXXXXX";

static void memory_conforms(void **state)
{
    (void)state;
    shared_register s = {0};
    assert_int_equal(weft_register_open_memory(&s.first), WEFT_OK);
    s.second = s.first;
    check_register(&s);
    /* who asks for an epoch that is long past has been overtaken */
    expect_standing(propose(&s, s.first, 99, "new"), 99, "new");
    expect_standing(propose(&s, s.first, 1, "old"), 99, "new");
    weft_register_close(s.first);
}

static weft_register *open_at(const char *where, const char *job)
{
    weft_register *r;
    if (weft_register_open(where, &(weft_register_options){.job = job}, &r) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return r;
}

static void expect_refused(const char *where, const char *job, const char *why)
{
    weft_register *r = NULL;
    assert_int_equal(weft_register_open(where, &(weft_register_options){.job = job}, &r),
                     WEFT_ERR_ARG);
    assert_null(r);
    assert_null(strchr(weft_error_text(), '\n'));
    if (!strstr(weft_error_text(), why))
        fail_msg("%s\nexpected: %s", weft_error_text(), why);
}

static const char *name_in(const char *name)
{
    static char where[200];
    snprintf(where, sizeof where, "file:%s/%s", folder, name);
    return where;
}

static void files_conform(void **state)
{
    (void)state;
    shared_register s = {.first  = open_at(name_in("a"), "run"),
                         .second = open_at(name_in("a"), "run")};
    check_register(&s);
    weft_register_close(s.first);
    weft_register_close(s.second);
    s.first = open_at(name_in("a"), "run"); /* it outlives its users */
    expect_standing(read_epoch(&s, s.first, WEFT_REGISTER_NEWEST), 24, "0");
    expect_standing(propose(&s, s.first, 1, "z"), 1, "a");
    weft_register_close(s.first);
}

/* Processes that all propose for each epoch, and are killed at times. */
static void files_between_processes(void **state)
{
    (void)state;
    enum {
        N_PROCESS = 4,
        N_EPOCH   = 30
    };
    pid_t       pid[N_PROCESS];
    const char *where = name_in("b");
    for (int k = 0; k < N_PROCESS; k++) {
        pid[k] = fork();
        assert_true(pid[k] >= 0);
        if (pid[k]) continue;
        weft_register *own = open_at(where, "run");
        for (uint32_t epoch = 1; epoch <= N_EPOCH; epoch++) {
            char value[32];
            snprintf(value, sizeof value, "%d of %u", k, epoch);
            if (propose(NULL, own, epoch, value).result != WEFT_REGISTER_STANDS) _exit(1);
        }
        _exit(0);
    }
    usleep(5000);
    kill(pid[0], SIGKILL);
    for (int k = 0; k < N_PROCESS; k++) {
        int status;
        assert_int_equal(waitpid(pid[k], &status, 0), pid[k]);
        if (k) assert_int_equal(status, 0);
    }
    weft_register *r = open_at(where, "run");
    for (uint32_t epoch = 1; epoch <= N_EPOCH; epoch++) {
        weft_register_outcome o = read_epoch(NULL, r, epoch);
        unsigned              by, of;
        char                  value[16] = {0};
        assert_int_equal(o.result, WEFT_REGISTER_STANDS);
        memcpy(value, o.bytes, o.n < 15 ? o.n : 15);
        assert_int_equal(sscanf(value, "%u of %u", &by, &of), 2);
        assert_int_equal(of, epoch);
    }
    weft_register_close(r);
}

/* ---- a majority ---- */

static void open_voters(shared_register *s, int n)
{
    *s = (shared_register){.n_voter = n};
    for (int k = 0; k < n; k++) {
        s->id[k] = 100 - (uint64_t)k;
        assert_int_equal(weft_register_open_majority(s->id[k], &s->voter[k]), WEFT_OK);
    }
    advance_voters(s, &(weft_register_outcome){.epoch = 0});
    s->first  = s->voter[0];
    s->second = s->voter[n > 1];
}

static void close_voters(shared_register *s)
{
    for (int k = 0; k < s->n_voter; k++) weft_register_close(s->voter[k]);
}

static void majorities_conform(void **state)
{
    (void)state;
    shared_register s;
    for (int n = 1; n <= N_VOTER; n++) {
        open_voters(&s, n);
        check_register(&s);
        close_voters(&s);
    }
}

/* Proposes by voter `by` while some are lost: a value, or nothing is known. */
static weft_register_result propose_by(shared_register *s, int by, uint32_t epoch)
{
    return propose(s, s->voter[by], epoch, "v").result;
}

static void half_needs_the_first(void **state)
{
    (void)state;
    shared_register s;
    open_voters(&s, 2);
    s.lost[1] = true;
    assert_int_equal(propose_by(&s, 0, 1), WEFT_REGISTER_STANDS);
    close_voters(&s);
    open_voters(&s, 2);
    s.lost[0] = true;
    assert_int_equal(propose_by(&s, 1, 1), WEFT_REGISTER_UNKNOWN);
    close_voters(&s);
    open_voters(&s, 4);
    s.lost[0] = s.lost[1] = true;
    assert_int_equal(propose_by(&s, 3, 1), WEFT_REGISTER_UNKNOWN);
    s.lost[0] = false;
    assert_int_equal(propose_by(&s, 3, 1), WEFT_REGISTER_STANDS);
    close_voters(&s);
    open_voters(&s, 5);
    s.lost[0] = s.lost[1] = true;
    assert_int_equal(propose_by(&s, 4, 1), WEFT_REGISTER_STANDS);
    close_voters(&s);
}

/* A value that a quorum has accepted stands, though its proposer is gone; one that fewer have
 * may. */
static void what_was_accepted_stands(void **state)
{
    (void)state;
    shared_register       s;
    weft_majority_message m;
    open_voters(&s, 3);
    assert_int_equal(weft_register_propose(s.voter[0], 1, "first", 5), WEFT_OK);
    for (int round = 0; round < 2; round++) /* prepare and accept reach voter 1 alone */
        while (weft_majority_send(s.voter[0], &m)) {
            if (m.to != s.id[1]) continue;
            weft_majority_receive(s.voter[1], s.id[0], m.bytes, m.n);
            while (!round && weft_majority_send(s.voter[1], &m))
                weft_majority_receive(s.voter[0], s.id[1], m.bytes, m.n);
        }
    s.lost[0] = true;
    expect_standing(propose(&s, s.voter[2], 1, "third"), 1, "first");
    close_voters(&s);
}

static void any_bytes_are_no_message(void **state)
{
    (void)state;
    shared_register       s;
    weft_majority_message m;
    uint32_t              random = 1;
    open_voters(&s, 3);
    for (int k = 0; k < 20000; k++) {
        uint8_t bytes[64];
        for (size_t i = 0; i < sizeof bytes; i++) {
            random   = random * 1664525u + 1013904223u;
            bytes[i] = (uint8_t)(random >> 24);
        }
        bytes[0] %= 5; /* none is DECIDED, which is believed */
        weft_majority_receive(s.voter[0], s.id[1 + k % 2], bytes, random % sizeof bytes);
        while (weft_majority_send(s.voter[0], &m)) continue;
    }
    expect_standing(propose(&s, s.voter[1], 1, "v"), 1, "v");
    close_voters(&s);
}

static void bad_registers(void **state)
{
    (void)state;
    char where[200], blocked[100];
    weft_register_close(open_at(name_in("c"), "run"));
    expect_refused(
        name_in("c"), "other",
        "holds the views of job 'run', this is job 'other': give another --rdzv");
    expect_refused("file:", "run", "a folder is needed");
    expect_refused("redis://x", "run", "expected file:DIR");
    expect_refused(name_in("c"), "", "name of a job");
    snprintf(blocked, sizeof blocked, "%s/d", folder);
    FILE *f = fopen(blocked, "w");
    assert_non_null(f);
    fclose(f);
    snprintf(where, sizeof where, "file:%s", blocked);
    expect_refused(where, "run", blocked);
    expect_refused(where, "run", "give file: a folder that all hosts see and can write");
}

/* What killed processes left is removed when the register is opened; what is new stays. */
static void old_files_are_removed(void **state)
{
    (void)state;
    char            path[2][200];
    struct timespec old[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 1000}};
    weft_register_close(open_at(name_in("f"), "run"));
    for (int k = 0; k < 2; k++) {
        snprintf(path[k], sizeof path[k], "%s/f/views/.new-%d", folder, k);
        assert_int_equal(weft_io_replace_file(path[k], "x", 1), WEFT_OK);
    }
    assert_false(utimensat(AT_FDCWD, path[0], old, 0));
    weft_register_close(open_at(name_in("f"), "run"));
    assert_false(weft_io_exists(path[0]));
    assert_true(weft_io_exists(path[1]));
}

/* A call that fails leaves nothing, says why, and the next one does. */
static void failing_calls(void **state)
{
    (void)state;
    weft_register *r        = open_at(name_in("e"), "run");
    int            n_failed = 0;
    for (uint32_t epoch = 1; epoch < 8; epoch++) {
        weft_io_fail_at(epoch, EIO, false);
        weft_register_outcome o = propose(NULL, r, epoch, "v");
        weft_io_fail_at(0, 0, false);
        if (o.result == WEFT_REGISTER_UNKNOWN) {
            assert_non_null(strstr(o.why, "Input/output error"));
            n_failed++;
        }
        o = propose(NULL, r, epoch,
                    "w"); /* "v" may stand although its outcome is not known */
        assert_int_equal(o.result, WEFT_REGISTER_STANDS);
        assert_true(o.n == 1 && (*o.bytes == 'v' || *o.bytes == 'w'));
    }
    assert_true(n_failed >= 4);
    weft_register_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_conforms),
        cmocka_unit_test(files_conform),
        cmocka_unit_test(files_between_processes),
        cmocka_unit_test(bad_registers),
        cmocka_unit_test(old_files_are_removed),
        cmocka_unit_test(failing_calls),
        cmocka_unit_test(majorities_conform),
        cmocka_unit_test(half_needs_the_first),
        cmocka_unit_test(what_was_accepted_stands),
        cmocka_unit_test(any_bytes_are_no_message),
    };
    if (!mkdtemp(folder)) return 1;
    int failed = cmocka_run_group_tests_name("register", tests, NULL, NULL);
    return weft_io_remove_tree(folder) == WEFT_OK ? failed : 1;
}
