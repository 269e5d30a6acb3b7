/* weft run: ranks are started, watched and cleared away. */
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
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "launch/request.h"

enum {
    MAX = 16
};

static char out[65536], err[65536];

static void slurp(const char *path, char *to, size_t n)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    to[fread(to, 1, n - 1, f)] = 0;
    fclose(f);
}

static char out_path[64], err_path[64];

/* Starts the command with its output in files. */
static pid_t start(const char *const *word)
{
    snprintf(out_path, sizeof out_path, "/tmp/weft-run-%d.out", (int)getpid());
    snprintf(err_path, sizeof err_path, "/tmp/weft-run-%d.err", (int)getpid());
    fflush(NULL);
    pid_t p = fork();
    if (p) return p;
    const char *argv[32] = {WEFT_TEST_COMMAND, "run"};
    for (int i = 0; word[i]; i++) argv[2 + i] = word[i];
    int o = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int e = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(o, 1);
    dup2(e, 2);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int finish(pid_t p)
{
    int how;
    waitpid(p, &how, 0);
    slurp(out_path, out, sizeof out);
    slurp(err_path, err, sizeof err);
    unlink(out_path);
    unlink(err_path);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

#define RUN(...) finish(start((const char *const[]){__VA_ARGS__, NULL}))

static int children(pid_t p, pid_t *child)
{
    char path[64];
    int  n = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)p, (int)p);
    FILE *f = fopen(path, "r");
    while (f && n < MAX && fscanf(f, "%d", &child[n]) == 1) n++;
    if (f) fclose(f);
    return n;
}

/* The ranks, once they are at work (they say nothing; joined means they hold the shared memory). */
static void wait_for_ranks(pid_t p, int n, pid_t *child)
{
    for (int i = 0; i < 4000 && children(p, child) < n; i++) usleep(5000);
    assert_int_equal(children(p, child), n);
    usleep(300000);
}

static void all_gone(const pid_t *child, int n)
{
    double t0 = weft_clock_s();
    for (int i = 0; i < n; i++)
        while (!kill(child[i], 0) && weft_clock_s() - t0 < 10) usleep(2000);
    for (int i = 0; i < n; i++) assert_int_not_equal(kill(child[i], 0), 0);
}

static void checks(void **state)
{
    (void)state;
    assert_int_equal(RUN("--nproc-per-node", "3", "--check", "--json"), 0);
    assert_non_null(strstr(out, "{\"ranks\": 3, \"transport\": \"shm\""));
    assert_string_equal(err, "");
    assert_int_equal(RUN("--nproc_per_node=1", "--check"), 0);
    assert_int_equal(RUN("--check"), 0);
}

static void mistakes(void **state)
{
    (void)state;
    assert_int_equal(RUN("--nproc-per-node", "0", "--check"), 2);
    assert_int_equal(RUN("--nproc-per-node", "5000", "--check"), 2);
    assert_non_null(strstr(err, "--nproc-per-node"));
    assert_int_equal(RUN("--nproc-per-node", "2"), 2);
    assert_non_null(strstr(err, "expected a job file"));
    assert_int_equal(RUN("--nproc-per-node", "2", "--nnodes", "2", "--check"), 2);
    assert_non_null(strstr(err, "--rdzv host:port says where"));
    assert_int_equal(RUN("--nproc-per-node", "2", "--nnodes", "2", "--node-rank", "2",
                         "--rdzv", "localhost:3", "--check"),
                     2);
    assert_non_null(strstr(err, "--node-rank"));
    assert_int_equal(
        RUN("--nproc-per-node", "2", "--nnodes", "2", "--rdzv", "here:3", "--check"), 2);
    assert_non_null(strstr(err, "--node-rank says which"));
    assert_int_equal(RUN("--nproc", "2", "--check"), 2);
    assert_non_null(strstr(err, "did you mean --nproc-per-node?"));
    assert_int_equal(RUN("--nproc-per-node", "2", "--nnodes", "2", "--node-rank", "1",
                         "--rdzv", "here", "--check"),
                     2);
    assert_non_null(strstr(err, "'here' is no host:port"));
    assert_int_equal(RUN("--nproc-per-node", "1", "/nowhere/job.yaml"), 2);
    assert_non_null(strstr(err, "[rank 0] weft run: error: "));
    assert_int_equal(RUN("--nproc-per-node", "4", "/nowhere/job.yaml"), 2);
    assert_non_null(strstr(err, " and 3 more] weft run: error: "));
    assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
}

static void a_killed_rank_ends_all(void **state)
{
    (void)state;
    pid_t child[MAX];
    for (int victim = 0; victim < 4; victim += 3) {
        pid_t p = start((const char *const[]){"-q", "--nproc-per-node", "4", "--check",
                                              "--seconds", "60", NULL});
        wait_for_ranks(p, 4, child);
        double t0 = weft_clock_s();
        kill(child[victim], SIGKILL);
        assert_int_equal(finish(p), 137);
        assert_true(weft_clock_s() - t0 < 5);
        char top[64];
        snprintf(top, sizeof top, "[rank %d] rank %d: error: killed by signal 9", victim,
                 victim);
        if (strncmp(err, top, strlen(top))) fail_msg("%s", err);
        snprintf(top, sizeof top, "error: rank %d died", victim);
        int n = 0;
        for (char *s = err; (s = strstr(s, top)); s++) n++;
        assert_int_equal(n, 3); /* each of the others says so */
        all_gone(child, 4);
    }
}

static void a_stopped_rank_ends_all(void **state)
{
    (void)state;
    pid_t child[MAX];
    pid_t p = start((const char *const[]){"-q", "--nproc-per-node", "3", "--check",
                                          "--seconds", "60", "--timeout", "1.5", NULL});
    wait_for_ranks(p, 3, child);
    kill(child[1], SIGSTOP);
    assert_int_equal(finish(p), 1);
    assert_non_null(strstr(err, "rank 1 is silent"));
    all_gone(child, 3);
}

static void signals_stop_all(void **state)
{
    (void)state;
    static const int sig[]  = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    static const int code[] = {130, 143, 129, 143};
    pid_t            child[MAX];
    for (int i = 0; i < 4; i++) {
        pid_t p = start((const char *const[]){"-q", "--nproc-per-node", "3", "--check",
                                              "--seconds", "60", NULL});
        wait_for_ranks(p, 3, child);
        kill(p, sig[i]);
        assert_int_equal(finish(p), code[i]);
        assert_string_equal(err, "");
        all_gone(child, 3);
    }
}

/* One rank hears of it first: all stop between two steps, with a checkpoint and the same exit
 * code. */
static void a_signal_to_one_rank_stops_all(void **state)
{
    (void)state;
    pid_t child[MAX];
    char  dir[64], place[96], metrics[96], rm[96];
    snprintf(dir, sizeof dir, "/tmp/weft-run-%d.dir", (int)getpid());
    snprintf(place, sizeof place, "output=%s", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    pid_t p = start((const char *const[]){
        "--nproc-per-node", "2", "model=tests/fixtures/gpt2/init",
        "data=tests/fixtures/gpt2/tokens.bin", "seq=12", "batch=4", "micro_batch=1",
        "steps=1000000", "threads=1", "dp=2", place, "-q", NULL});
    wait_for_ranks(p, 2, child);
    for (int i = 0; i < 4000 && access(metrics, F_OK) != 0; i++) usleep(5000);
    kill(child[1], SIGINT);
    assert_int_equal(finish(p), 130);
    if (strstr(err, "143")) fail_msg("%s", err);
    all_gone(child, 2);
    strcat(place, "/checkpoints");
    assert_int_equal(access(place + strlen("output="), F_OK), 0);
    assert_int_equal(system(rm), 0);
}

/* A job of two ranks that has written a step; its folder is dir, at most 64 characters. */
static pid_t start_training(const char *dir, pid_t *child, const char *more)
{
    char place[96], metrics[96];
    snprintf(place, sizeof place, "output=%s", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    pid_t p = start((const char *const[]){
        "--nproc-per-node", "2", "model=tests/fixtures/gpt2/init",
        "data=tests/fixtures/gpt2/tokens.bin", "seq=12", "batch=4", "micro_batch=1",
        "steps=1000000", "threads=1", "dp=2", place, "-q", more, NULL});
    wait_for_ranks(p, 2, child);
    for (int i = 0; i < 4000 && access(metrics, F_OK) != 0; i++) usleep(5000);
    return p;
}

/* Is there a checkpoint?  The folder is removed. */
static bool has_checkpoint(const char *dir)
{
    char command[160];
    snprintf(command, sizeof command,
             "ls %s/checkpoints/MANIFEST-???????? >/dev/null 2>&1", dir);
    bool there = system(command) == 0;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    return there;
}

/* As Slurm does: all processes of a job step get the signal, the launcher passes it on, and
 * SIGTERM follows SIGUSR1.  It is one: save and stop. */
static void a_batch_system_signals_everybody(void **state)
{
    pid_t child[MAX];
    char  dir[64];
    (void)state;
    for (int early = 0; early < 2; early++) {
        snprintf(dir, sizeof dir, "/tmp/weft-run-%d.dir", (int)getpid());
        pid_t p = start_training(dir, child, NULL);
        for (int round = 0; round < 2; round++) {
            int sig = early && !round ? SIGUSR1 : SIGTERM;
            for (int r = 0; r < 2; r++) kill(child[r], sig);
            kill(p, sig);
        }
        assert_int_equal(finish(p), 143);
        assert_string_equal(err, "");
        all_gone(child, 2);
        assert_true(has_checkpoint(dir));
    }
}

/* A rank that does not stop in time is killed and named. */
static void grace_is_a_limit(void **state)
{
    pid_t child[MAX];
    char  dir[64];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/weft-run-%d.dir", (int)getpid());
    pid_t p = start_training(dir, child, "--grace=1");
    kill(child[1], SIGSTOP);
    kill(p, SIGUSR1);
    assert_int_equal(finish(p), 143);
    assert_non_null(
        strstr(err, "[rank 1] error: it was stopped (SIGSTOP), and was killed"));
    all_gone(child, 2);
    (void)has_checkpoint(dir);
}

static void no_rank_outlives_the_launcher(void **state)
{
    (void)state;
    pid_t child[MAX];
    pid_t p = start((const char *const[]){"-q", "--nproc-per-node", "3", "--check",
                                          "--seconds", "60", NULL});
    wait_for_ranks(p, 3, child);
    kill(p, SIGKILL);
    finish(p);
    all_gone(child, 3);
}

/* Ranks that somebody else starts, told by his variables. */
static void other_launchers(void **state)
{
    (void)state;
    static const char *const form[][4] = {
        {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
         "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    };
    for (size_t f = 0; f < WEFT_COUNT(form); f++) {
        pid_t p[3];
        for (int r = 0; r < 3; r++) {
            char s[16];
            snprintf(s, sizeof s, "%d", r);
            setenv(form[f][0], s, 1);
            setenv(form[f][2], s, 1);
            setenv(form[f][1], "3", 1);
            setenv(form[f][3], "3", 1);
            p[r] = fork();
            if (p[r]) continue;
            int o = open("/dev/null", O_WRONLY);
            dup2(o, 1);
            execl(WEFT_TEST_COMMAND, "weft", "run", "--check", (char *)NULL);
            _exit(127);
        }
        for (int k = 0; k < 4; k++) unsetenv(form[f][k]);
        for (int r = 0; r < 3; r++) {
            int how;
            waitpid(p[r], &how, 0);
            assert_int_equal(how, 0);
        }
    }
}

static void logs_go_to_files(void **state)
{
    (void)state;
    char dir[64], path[96];
    snprintf(dir, sizeof dir, "/tmp/weft-run-log-%d", (int)getpid());
    assert_int_equal(RUN("--nproc-per-node", "2", "--log-dir", dir, "none.yaml"), 2);
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/rank%d.log", dir, r);
        slurp(path, out, sizeof out);
        assert_non_null(strstr(out, "error: "));
        unlink(path);
    }
    rmdir(dir);
}

/* weft bench comm gives every form of every size that it was asked for. */
static void bench_of_collectives(void **state)
{
    (void)state;
    FILE *f = popen(WEFT_TEST_COMMAND " bench comm --ranks 3 --max-bytes 65536 --seconds "
                                      "0.01 --json",
                    "r");
    assert_non_null(f);
    out[fread(out, 1, sizeof out - 1, f)] = 0;
    assert_int_equal(pclose(f), 0);
    int n = 0;
    for (char *s = out; (s = strstr(s, "\"median_us\"")); s++) n++;
    assert_int_equal(n, 14);
    assert_non_null(strstr(out, "{\"ranks\": 3, "));
}

/* A rank does what the launcher's request says, and reads no arguments. */
static void ranks_read_the_request(void **state)
{
    (void)state;
    weft_launch_request q = {.check = true, .json = true, .timeout_s = 5};
    char                fd_text[16];
    int                 fd;
    assert_int_equal(weft_launch_request_seal(&q, &fd), WEFT_OK);
    fcntl(fd, F_SETFD, 0);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    setenv("WEFT_REQUEST_FD", fd_text, 1);
    assert_int_equal(RUN("--no-such-option", "no-such-job.yaml"), 0);
    assert_non_null(strstr(out, "\"ranks\": 1"));
    setenv("WEFT_REQUEST_FD", "0", 1);
    assert_int_equal(RUN("--check"), 2);
    assert_non_null(strstr(err, "WEFT_REQUEST_FD is '0', expected a descriptor"));
    unsetenv("WEFT_REQUEST_FD");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks),
        cmocka_unit_test(ranks_read_the_request),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(a_killed_rank_ends_all),
        cmocka_unit_test(a_stopped_rank_ends_all),
        cmocka_unit_test(signals_stop_all),
        cmocka_unit_test(a_signal_to_one_rank_stops_all),
        cmocka_unit_test(a_batch_system_signals_everybody),
        cmocka_unit_test(grace_is_a_limit),
        cmocka_unit_test(no_rank_outlives_the_launcher),
        cmocka_unit_test(other_launchers),
        cmocka_unit_test(logs_go_to_files),
        cmocka_unit_test(bench_of_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
