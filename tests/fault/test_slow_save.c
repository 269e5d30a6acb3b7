/* Slow is not stuck: a save may take longer than the timeout, after a signal too; and who is
 * stuck (stopped, or in one call that does not end) keeps neither the job nor the launcher from
 * ending. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "support/files.h"

enum {
    MAX_RANK = 8,
    MAX_WORD = 40
};

/* A launcher; what it says is in files. */
typedef struct job {
    const char *name; /* of its output folder, and of its files */
    const char *slow, *slow_file;
    pid_t       pid;
    char       *err;
} job;

static const char *const model[] = {"model=tests/fixtures/gpt2/init",
                                    "data=tests/fixtures/gpt2/tokens.bin",
                                    "seq=12",
                                    "batch=12",
                                    "micro_batch=1",
                                    "threads=1",
                                    "--json",
                                    "-q",
                                    NULL};

static void start(job *j, const char *output, const char *const *word)
{
    const char *argv[MAX_WORD] = {"weft", "run"};
    char        place[600];
    int         n = 2;
    snprintf(place, sizeof place, "output=%s", test_files_path("%s", output));
    for (int i = 0; model[i]; i++) argv[n++] = model[i];
    for (int i = 0; word[i]; i++) argv[n++] = word[i];
    argv[n++] = place;
    fflush(NULL);
    j->pid = fork();
    assert_true(j->pid >= 0);
    if (j->pid) return;
    int out =
        open(test_files_path("%s.out", j->name), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err =
        open(test_files_path("%s.err", j->name), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(err, 2);
    if (j->slow) {
        setenv("SLOW_SYNC_S", j->slow, 1);
        if (j->slow_file) setenv("SLOW_SYNC_FILE", j->slow_file, 1);
        setenv("LD_PRELOAD", WEFT_TEST_SLOW_SYNC, 1);
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    }
    execv(WEFT_TEST_COMMAND, (char *const *)(uintptr_t)argv);
    _exit(99);
}

#define START(j, ...) start(j, (j)->name, (const char *const[]){__VA_ARGS__, NULL})

/* The exit code, or -1 after `most` seconds, when it is killed. */
static int finish(job *j, double most)
{
    double end = weft_clock_s() + most;
    int    how = 0, done = 0;
    size_t n;
    while (!(done = waitpid(j->pid, &how, WNOHANG)) && weft_clock_s() < end)
        usleep(20000);
    if (!done) {
        kill(j->pid, SIGKILL);
        waitpid(j->pid, &how, 0);
    }
    free(j->err);
    j->err = test_files_read(test_files_path("%s.err", j->name), &n);
    if (!done) return -1;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static void expect(job *j, int code, double most, const char *says)
{
    int got = finish(j, most);
    if (got != code || (says && !strstr(j->err, says)))
        fail_msg("%s: exit code %d, expected %d and '%s':\n%s", j->name, got, code,
                 says ? says : "", j->err);
    if (!says && *j->err) fail_msg("%s: said %s", j->name, j->err);
    free(j->err);
    j->err = NULL;
}

static bool wait_for_file(const char *path)
{
    for (int i = 0; i < 3000 && !weft_io_exists(path); i++) usleep(10000);
    return weft_io_exists(path);
}

/* Its ranks, in order, once the first step is written. */
static void find_ranks(const job *j, int n, pid_t *rank)
{
    char path[64];
    int  k = 0;
    assert_true(wait_for_file(test_files_path("%s/metrics.jsonl", j->name)));
    usleep(200000);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)j->pid, (int)j->pid);
    FILE *f = fopen(path, "r");
    while (f && k < MAX_RANK && fscanf(f, "%d", &rank[k]) == 1) k++;
    if (f) fclose(f);
    assert_int_equal(k, n);
}

static void all_gone(const pid_t *rank, int n)
{
    double end = weft_clock_s() + 10;
    for (int i = 0; i < n; i++)
        while (!kill(rank[i], 0) && weft_clock_s() < end) usleep(5000);
    for (int i = 0; i < n; i++) assert_int_not_equal(kill(rank[i], 0), 0);
}

/* ---- slow ---- */

static void a_save_longer_than_the_timeout(void **state)
{
    job j = {.name = "long", .slow = "0.35"}, one = {.name = "one"};
    (void)state;
    START(&j, "--nproc-per-node", "3", "--timeout", "2", "dp=3", "lanes=4", "steps=3");
    START(&one, "--nproc-per-node", "1", "steps=3", "dp=1", "lanes=4");
    expect(&one, 0, 60, NULL);
    expect(&j, 0, 60, NULL);
    assert_true(test_files_same(test_files_path("long/final/model.safetensors"),
                                test_files_path("one/final/model.safetensors")));
}

/* The test networks of this machine need no secret, where weft knows of one. */
static bool knows_insecure(void)
{
    char  text[16384];
    FILE *f = popen(WEFT_TEST_COMMAND " help run", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    pclose(f);
    return strstr(text, "--insecure-network") != NULL;
}

/* One that is free at the moment. */
static int find_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr   = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t          n = sizeof a;
    int                s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    close(s);
    return ntohs(a.sin_port);
}

static void a_save_longer_than_the_timeout_between_hosts(void **state)
{
    job  a = {.name = "host0", .slow = "0.35"}, b = {.name = "host1"};
    char at[64];
    (void)state;
    snprintf(at, sizeof at, "--rdzv=127.0.0.1:%d", find_port());
    const char *more = knows_insecure() ? "--insecure-network" : NULL;
    START(&a, "--nproc-per-node", "2", "--timeout", "2.5", "--nnodes", "2", "--node-rank",
          "0", at, "dp=4", "steps=3", more);
    start(&b, "host0",
          (const char *const[]){"--nproc-per-node", "2", "--timeout", "2.5", "--nnodes",
                                "2", "--node-rank", "1", at, "dp=4", "steps=3", more,
                                NULL});
    int first = finish(&a, 60), second = finish(&b, 60);
    if (first || second) fail_msg("%d %d\n%s%s", first, second, a.err, b.err);
    free(a.err);
    free(b.err);
    assert_true(weft_io_exists(test_files_path("host0/final/model.safetensors")));
}

/* One sync longer than all that the launcher waits for ranks that do nothing: of several ranks,
 * and of one. */
static void a_long_save_after_a_signal(void **state)
{
    job   j[2] = {{.name = "stop2", .slow = "8", .slow_file = "state.json"},
                  {.name = "stop1", .slow = "8", .slow_file = "state.json"}};
    pid_t rank[MAX_RANK];
    (void)state;
    START(&j[0], "--nproc-per-node", "2", "--timeout", "2", "dp=2", "steps=1000000");
    START(&j[1], "--nproc-per-node", "1", "--timeout", "2", "dp=1", "steps=1000000");
    for (int i = 0; i < 2; i++) find_ranks(&j[i], 2 - i, rank);
    for (int i = 0; i < 2; i++) kill(j[i].pid, SIGTERM);
    for (int i = 0; i < 2; i++) {
        expect(&j[i], 143, 60, NULL);
        size_t n;
        char  *text = test_files_read(test_files_path("%s.out", j[i].name), &n);
        assert_non_null(strstr(text, "\"stopped_by_signal\": 15"));
        free(text);
    }
}

/* What is due while a checkpoint is written is left out, and training goes on; the last one of the
 * run is written whatever is under way. */
static void due_ones_are_left_out(void **state)
{
    job j[2] = {{.name = "due2", .slow = "2", .slow_file = "state.json"},
                {.name = "due1", .slow = "2", .slow_file = "state.json"}};
    (void)state;
    START(&j[0], "--nproc-per-node", "2", "dp=2", "lanes=2", "steps=40",
          "checkpoint.every=3", "checkpoint.keep=99", "checkpoint.wait=0.1");
    START(&j[1], "--nproc-per-node", "1", "dp=1", "lanes=2", "steps=40",
          "checkpoint.every=3", "checkpoint.keep=99", "checkpoint.wait=0.1");
    for (int i = 0; i < 2; i++) {
        const char *name = j[i].name;
        expect(&j[i], 0, 60, "checkpoint of step 6 is left out: that of step 3 is still");
        assert_true(
            weft_io_exists(test_files_path("%s/checkpoints/MANIFEST-00000003", name)));
        assert_false(
            weft_io_exists(test_files_path("%s/checkpoints/MANIFEST-00000006", name)));
        assert_true(
            weft_io_exists(test_files_path("%s/checkpoints/MANIFEST-00000040", name)));
    }
    assert_true(test_files_same(test_files_path("due2/final/model.safetensors"),
                                test_files_path("due1/final/model.safetensors")));
}

static void a_due_one_may_wait(void **state)
{
    job j = {.name = "wait", .slow = "0.7", .slow_file = "state.json"};
    (void)state;
    START(&j, "--nproc-per-node", "2", "dp=2", "steps=9", "checkpoint.every=3",
          "checkpoint.keep=99", "checkpoint.wait=50");
    expect(&j, 0, 60, NULL);
    for (int step = 3; step <= 9; step += 3)
        assert_true(
            weft_io_exists(test_files_path("wait/checkpoints/MANIFEST-%08d", step)));
}

/* ---- stuck ---- */

static void one_call_that_does_not_end(void **state)
{
    job j = {.name = "device", .slow = "1000", .slow_file = "state.json"};
    (void)state;
    START(&j, "--nproc-per-node", "2", "--timeout", "2", "--io-timeout", "1", "dp=2",
          "steps=3");
    expect(&j, 1, 40, "rank 0 gave up: one call on its files has taken longer than 1 s");
}

/* One that is due waits for longer than checkpoint.wait where it is not known that calls end. */
static void a_due_one_finds_a_stuck_call(void **state)
{
    job j = {.name = "due", .slow = "1000", .slow_file = "state.json"};
    (void)state;
    START(&j, "--nproc-per-node", "2", "--timeout", "2", "--io-timeout", "1", "dp=2",
          "steps=1000000", "checkpoint.every=3", "checkpoint.wait=0.1");
    expect(&j, 1, 40, "rank 0 gave up: one call on its files has taken longer than 1 s");
}

/* Rank 0 has all it needs: its save gets through, and then the job ends. */
static void a_stopped_rank_during_a_save(void **state)
{
    job   j = {.name = "half", .slow = "6", .slow_file = "state.json"};
    pid_t rank[MAX_RANK];
    (void)state;
    START(&j, "--nproc-per-node", "3", "--timeout", "2", "dp=3", "steps=1000000",
          "checkpoint.every=1");
    assert_true(
        wait_for_file(test_files_path("half/checkpoints/step-00000001.tmp/state.json")));
    find_ranks(&j, 3, rank);
    kill(rank[2], SIGSTOP);
    double begin = weft_clock_s();
    expect(&j, 1, 40, "rank 2 is silent: rank");
    assert_true(weft_clock_s() - begin < 25);
    assert_true(weft_io_exists(test_files_path("half/checkpoints/MANIFEST-00000001")));
    all_gone(rank, 3);
}

static void a_stopped_writer(void **state)
{
    job   j = {.name = "writer", .slow = "6", .slow_file = "state.json"};
    pid_t rank[MAX_RANK];
    (void)state;
    START(&j, "--nproc-per-node", "2", "--timeout", "2", "dp=2", "steps=1000000",
          "checkpoint.every=1");
    assert_true(wait_for_file(
        test_files_path("writer/checkpoints/step-00000001.tmp/state.json")));
    find_ranks(&j, 2, rank);
    kill(rank[0], SIGSTOP);
    double begin = weft_clock_s();
    expect(&j, 1, 40, "rank 0 is silent: rank 1 waited 2 s");
    assert_true(weft_clock_s() - begin < 20);
    all_gone(rank, 2);
}

/* Who has to be killed is named; the exit code is the signal's. */
static void a_signal_while_a_rank_is_stuck(void **state)
{
    static const struct {
        const char *name, *n, *mesh;
        bool        stopped; /* the last rank; else its save does not end */
        bool        dies;    /* the first one, meanwhile */
    } way[] = {{"term3", "3", "dp=3", true, false},
               {"term1", "1", "dp=1", true, false},
               {"dies3", "3", "dp=3", true, true},
               {"disk1", "1", "dp=1", false, false}};
    enum {
        N = 4
    };
    job   j[N];
    pid_t rank[N][MAX_RANK];
    (void)state;
    for (int i = 0; i < N; i++) {
        int n = atoi(way[i].n);
        j[i]  = (job){.name = way[i].name};
        if (!way[i].stopped) j[i].slow = "1000", j[i].slow_file = "state.json";
        START(&j[i], "--nproc-per-node", way[i].n, "--timeout", "2", "--io-timeout", "1",
              way[i].mesh, "steps=1000000");
        find_ranks(&j[i], n, rank[i]);
        if (way[i].stopped) kill(rank[i][n - 1], SIGSTOP);
        kill(j[i].pid, SIGTERM);
        if (way[i].dies) kill(rank[i][0], SIGKILL);
    }
    for (int i = 0; i < N; i++) {
        int  n = atoi(way[i].n);
        char who[80];
        snprintf(who, sizeof who, "[rank %d] error: %s, and was killed", n - 1,
                 way[i].stopped ? "it was stopped (SIGSTOP)"
                                : "it did not end after the signal");
        expect(&j[i], 143, 40, who);
        all_gone(rank[i], n);
    }
}

static void one_dies_while_another_is_stopped(void **state)
{
    job   j = {.name = "both"};
    pid_t rank[MAX_RANK];
    (void)state;
    START(&j, "--nproc-per-node", "3", "dp=3", "steps=1000000");
    find_ranks(&j, 3, rank);
    kill(rank[2], SIGSTOP);
    kill(rank[1], SIGKILL);
    expect(&j, 137, 30, "[rank 2] error: it was stopped (SIGSTOP), and was killed");
    all_gone(rank, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_longer_than_the_timeout),
        cmocka_unit_test(a_save_longer_than_the_timeout_between_hosts),
        cmocka_unit_test(a_long_save_after_a_signal),
        cmocka_unit_test(due_ones_are_left_out),
        cmocka_unit_test(a_due_one_may_wait),
        cmocka_unit_test(a_due_one_finds_a_stuck_call),
        cmocka_unit_test(one_call_that_does_not_end),
        cmocka_unit_test(a_stopped_rank_during_a_save),
        cmocka_unit_test(a_stopped_writer),
        cmocka_unit_test(a_signal_while_a_rank_is_stuck),
        cmocka_unit_test(one_dies_while_another_is_stopped),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
