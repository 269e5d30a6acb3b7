/* SIGINT and SIGTERM: the step is finished, a checkpoint written, the exit code says which; the
 * same command goes on to the same weights.  SIGKILL anywhere loses no more than the steps since
 * a checkpoint. */
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
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "support/files.h"

enum {
    STEPS = 60
};

static pid_t start(const char *out)
{
    char place[512], steps[32];
    snprintf(place, sizeof place, "output=%s", test_files_path("%s", out));
    snprintf(steps, sizeof steps, "steps=%d", STEPS);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd =
            open(test_files_path("%s.json", out), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, 1);
        execl(WEFT_TEST_COMMAND, "weft", "train", "model=tests/fixtures/gpt2/init",
              "data=tests/fixtures/gpt2/tokens.bin", "seq=13", "batch=12",
              "micro_batch=1", "threads=1", "checkpoint.every=7", steps, place, "--json",
              "-q", (char *)NULL);
        _exit(99);
    }
    return pid;
}

static int lines_of(const char *out)
{
    const char *path = test_files_path("%s/metrics.jsonl", out);
    size_t      n;
    int         lines = 0;
    if (!weft_io_exists(path)) return 0;
    char *text = test_files_read(path, &n);
    for (char *p = text; (p = strchr(p, '\n')); p++) lines++;
    free(text);
    return lines;
}

static int wait_for(pid_t pid)
{
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

/* Sends sig once a few more steps are written; the exit code, or -signal. */
static int interrupt(const char *out, int sig)
{
    int             had = lines_of(out);
    pid_t           pid = start(out);
    struct timespec ms  = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && lines_of(out) < had + 3; i++) nanosleep(&ms, NULL);
    kill(pid, sig);
    return wait_for(pid);
}

static void hash_of(const char *out, char hash[17])
{
    size_t n;
    char  *text = test_files_read(test_files_path("%s.json", out), &n);
    char  *at   = strstr(text, "\"weights_xxh64\": \"");
    assert_non_null(at);
    memcpy(hash, at + 18, 16);
    hash[16] = 0;
    free(text);
}

static void test_signals(void **s)
{
    (void)s;
    char whole[17], parts[17];
    test_files_begin();
    assert_int_equal(wait_for(start("a")), 0);
    hash_of("a", whole);

    int code = interrupt("b", SIGTERM);
    assert_true(code == 143 || code == 0); /* 0: it was done before the signal came */
    code = interrupt("b", SIGINT);
    assert_true(code == 130 || code == 0);
    code = interrupt("b", SIGKILL);
    assert_true(code == -SIGKILL || code == 0);
    assert_int_equal(wait_for(start("b")), 0);
    hash_of("b", parts);
    assert_string_equal(parts, whole);
    assert_int_equal(lines_of("b"), STEPS);
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
