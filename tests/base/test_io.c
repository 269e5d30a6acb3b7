#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"
#include "base/io.h"

static char dir[64], path[128], other[128];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-io-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(other, sizeof other, "%s/a/b/c", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weft_io_fail_at(0, 0, false);
    return weft_io_remove_tree(dir) != WEFT_OK;
}

static void check_content(const char *want)
{
    char  *text;
    size_t n;
    assert_ok(weft_io_read_file(path, &text, &n));
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
    free(text);
}

static void replace_and_read(void **state)
{
    (void)state;
    assert_ok(weft_io_replace_file(path, "one", 3));
    check_content("one");
    assert_ok(weft_io_replace_file(path, "", 0));
    check_content("");
    assert_true(weft_io_exists(path));
    assert_false(weft_io_exists(other));
}

static void large_file(void **state)
{
    (void)state;
    enum {
        N = 300001
    };
    char *big = malloc(N), *text;
    for (int i = 0; i < N; i++) big[i] = (char)(i % 251);
    size_t n;
    assert_ok(weft_io_replace_file(path, big, N));
    assert_ok(weft_io_read_file(path, &text, &n));
    assert_int_equal(n, N);
    assert_memory_equal(text, big, N);
    weft_io_map m;
    assert_ok(weft_io_map_file(path, &m));
    assert_int_equal(m.n, N);
    assert_memory_equal(m.p, big, N);
    weft_io_unmap(&m);
    free(text);
    free(big);
}

static void read_errors(void **state)
{
    (void)state;
    char       *text;
    size_t      n;
    weft_io_map m;
    assert_fails(weft_io_read_file(other, &text, &n), WEFT_ERR_ARG, "No such file");
    assert_fails(weft_io_read_file(dir, &text, &n), WEFT_ERR_ARG, "Is a directory");
    assert_fails(weft_io_map_file(other, &m), WEFT_ERR_ARG, other);
    assert_fails(weft_io_map_file(dir, &m), WEFT_ERR_ARG, "Is a directory");
    assert_ok(weft_io_replace_file(path, "", 0));
    assert_ok(weft_io_map_file(path, &m));
    assert_int_equal(m.n, 0);
    assert_non_null(m.p);
    weft_io_unmap(&m);
}

static void directories(void **state)
{
    (void)state;
    char file_in[160];
    assert_ok(weft_io_mkdirs(other));
    assert_ok(weft_io_mkdirs(other));
    snprintf(file_in, sizeof file_in, "%s/", other);
    assert_ok(weft_io_mkdirs(file_in));
    snprintf(file_in, sizeof file_in, "%s/x", other);
    assert_ok(weft_io_replace_file(file_in, "x", 1));
    assert_fails(weft_io_mkdirs(file_in), WEFT_ERR_ARG, "Not a directory");
    assert_ok(weft_io_remove_tree(other));
    assert_false(weft_io_exists(other));
    assert_ok(weft_io_remove_tree(other)); /* absent is fine */
}

static void links_are_not_followed(void **state)
{
    (void)state;
    char link_to[160];
    assert_ok(weft_io_mkdirs(other));
    assert_ok(weft_io_replace_file(path, "kept", 4));
    snprintf(link_to, sizeof link_to, "%s/link", other);
    assert_int_equal(symlink(dir, link_to), 0);
    assert_ok(weft_io_remove_tree(other));
    check_content("kept");
}

static void reserve_and_close(void **state)
{
    (void)state;
    int         fd;
    struct stat s;
    assert_ok(weft_io_open_write(path, true, &fd));
    assert_ok(weft_io_reserve(fd, path, 10000));
    assert_ok(weft_io_reserve(fd, path, 0));
    assert_int_equal(fstat(fd, &s), 0);
    assert_int_equal(s.st_size, 10000);
    assert_ok(weft_io_sync(fd, path));
    assert_ok(weft_io_close(fd, path));
    assert_fails(weft_io_write(fd, path, "x", 1), WEFT_ERR_IO, "Bad file descriptor");
}

/* Failing each call of a replacement in turn: the old or the new file, whole, and no litter. */
static void every_call_may_fail(void **state)
{
    (void)state;
    char  *text;
    size_t n;
    assert_ok(weft_io_replace_file(path, "old", 3));
    int64_t before = weft_io_calls();
    assert_ok(weft_io_replace_file(path, "old", 3));
    int64_t calls = weft_io_calls() - before;
    assert_int_equal(calls, 6); /* open write sync close rename sync_dir */
    for (int64_t k = 1; k <= calls; k++)
        for (int sticky = 0; sticky < 2; sticky++) {
            assert_ok(weft_io_replace_file(path, "old", 3));
            weft_io_fail_at(k, ENOSPC, sticky);
            assert_fails(weft_io_replace_file(path, "newer", 5), WEFT_ERR_FULL,
                         "No space left");
            weft_io_fail_at(0, 0, false);
            assert_ok(weft_io_read_file(path, &text, &n));
            assert_string_equal(text, k < calls ? "old" : "newer");
            free(text);
            assert_int_equal(rmdir(dir), -1);
            assert_int_equal(unlink(path), 0);
            assert_int_equal(rmdir(dir), 0); /* nothing else was in it */
            assert_int_equal(mkdir(dir, 0777), 0);
        }
    weft_io_fail_at(1, EIO, false);
    assert_fails(weft_io_replace_file(path, "x", 1), WEFT_ERR_IO, "Input/output error");
    assert_ok(
        weft_io_replace_file(path, "x", 1)); /* not sticky: the next one goes through */
}

/* ---- what is no regular file ---- */

static void pipes_and_devices_are_refused_at_once(void **state)
{
    (void)state;
    static const char *const special[] = {"/dev/zero", "/dev/null", NULL};
    char                    *text;
    size_t                   n;
    int                      fd;
    weft_io_map              m;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(30); /* a call that waits ends this test */
    for (size_t i = 0; i < WEFT_COUNT(special); i++) {
        const char *name = special[i] ? special[i] : path;
        const char *why  = special[i] ? "it is a device" : "it is a pipe";
        assert_fails(weft_io_read_file(name, &text, &n), WEFT_ERR_ARG, why);
        assert_fails(weft_io_read_as(name, WEFT_IO_LARGE, &text, &n), WEFT_ERR_ARG, why);
        assert_fails(weft_io_map_file(name, &m), WEFT_ERR_ARG, why);
        assert_fails(weft_io_open_read(name, &fd, NULL), WEFT_ERR_ARG, why);
    }
    /* where a pipe will do, one without a writer does not */
    assert_fails(weft_io_read_as(path, WEFT_IO_PIPES, &text, &n), WEFT_ERR_ARG,
                 "nothing is written to this pipe");
    alarm(0);
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    char  *text, half[5001];
    size_t n;
    assert_int_equal(mkfifo(path, 0600), 0);
    memset(half, 'x', sizeof half);
    pid_t pid = fork();
    if (pid == 0) { /* slowly, and not before the reader is there */
        usleep(100000);
        FILE *f = fopen(path, "w");
        fwrite(half, 1, sizeof half, f);
        fflush(f);
        usleep(100000);
        fwrite(half, 1, sizeof half, f);
        fclose(f);
        _exit(0);
    }
    assert_ok(weft_io_read_as(path, WEFT_IO_PIPES, &text, &n));
    waitpid(pid, NULL, 0);
    assert_int_equal(n, 2 * sizeof half);
    free(text);
}

static void texts_have_a_limit(void **state)
{
    (void)state;
    char  *text;
    size_t n;
    assert_ok(weft_io_replace_file(path, "x", 1));
    assert_int_equal(truncate(path, WEFT_IO_TEXT_MOST + 1ll), 0);
    assert_fails(weft_io_read_file(path, &text, &n), WEFT_ERR_ARG, "larger than 64 MB");
    assert_fails(weft_io_read_as("/dev/zero", WEFT_IO_PIPES, &text, &n), WEFT_ERR_ARG,
                 "larger than 64 MB");
    assert_ok(weft_io_read_as(path, WEFT_IO_LARGE, &text, &n));
    assert_int_equal(n, WEFT_IO_TEXT_MOST + 1ll);
    free(text);
    assert_int_equal(truncate(path, WEFT_IO_LARGE_MOST + 1), 0);
    assert_fails(weft_io_read_as(path, WEFT_IO_LARGE, &text, &n), WEFT_ERR_ARG,
                 "larger than 4096 MB");
}

static void ignore(int sig)
{
    (void)sig;
}

/* With a handler that restarts calls, as weft train has. */
static void a_signal_ends_the_wait_for_a_pipe(void **state)
{
    (void)state;
    int how = 0;
    assert_int_equal(mkfifo(path, 0600), 0);
    int   writer = open(path, O_RDWR); /* it never writes */
    pid_t pid    = fork();
    if (pid == 0) {
        struct sigaction a = {.sa_handler = ignore, .sa_flags = SA_RESTART};
        char            *text;
        size_t           n;
        sigaction(SIGTERM, &a, NULL);
        _exit((int)weft_io_read_as(path, WEFT_IO_PIPES, &text, &n));
    }
    for (int i = 0; i < 200 && waitpid(pid, &how, WNOHANG) == 0; i++) {
        usleep(100000);
        kill(pid, SIGTERM);
        how = -1;
    }
    close(writer);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), WEFT_ERR_IO);
}

/* In a process of its own, with the hook set through the environment. */
static int child(const char *name, const char *value)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv(name, value, 1);
        execl("/proc/self/exe", "test_io", "child", path, (char *)NULL);
        _exit(99);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

static void environment(void **state)
{
    (void)state;
    assert_ok(weft_io_replace_file(path, "old", 3));
    int st = child("WEFT_IO_FAIL", "2:28:sticky");
    assert_true(WIFEXITED(st));
    assert_int_equal(WEXITSTATUS(st), WEFT_ERR_FULL);
    check_content("old");
    st = child("WEFT_IO_FAIL", "2:EIO");
    assert_int_equal(WEXITSTATUS(st), WEFT_ERR_IO);
    st = child("WEFT_IO_KILL", "5");
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
    check_content("old");
    st = child("WEFT_IO_KILL", "6"); /* renamed already */
    assert_true(WIFSIGNALED(st));
    check_content("new");
    st = child("WEFT_IO_KILL", "7");
    assert_true(WIFEXITED(st));
    assert_int_equal(WEXITSTATUS(st), 0);
}

/* Bytes from several places in memory, in order; a failing call leaves no more than the first. */
static void parts_of_a_write(void **state)
{
    char         a[] = "one ", b[] = "two ", c[] = "three";
    struct iovec part[] = {{a, 4}, {b, 0}, {b, 4}, {c, 5}}, again[3];
    int          fd;
    (void)state;
    memcpy(again, part + 1, sizeof again);
    assert_ok(weft_io_open_write(path, true, &fd));
    assert_ok(weft_io_write_at(fd, path, "0123456789abcdef", 16, 0));
    assert_ok(weft_io_write_parts_at(fd, path, part, 4, 2));
    check_content("01one two threef");
    int64_t before = weft_io_calls();
    weft_io_fail_at(1, ENOSPC, false);
    assert_int_equal(weft_io_write_parts_at(fd, path, again, 3, 0), WEFT_ERR_FULL);
    assert_int_equal(weft_io_calls() - before, 1);
    check_content("01one two threef");
    assert_ok(weft_io_write_parts_at(fd, path, again, 3, 0));
    check_content("two three threef");
    assert_ok(weft_io_close(fd, path));
}

/* A number that memory can be aligned to. */
static void alignment(void **state)
{
    int fd;
    (void)state;
    assert_ok(weft_io_replace_file(path, "", 0));
    assert_ok(weft_io_open_direct(path, &fd));
    int64_t n = weft_io_direct_align(fd);
    assert_true(n > 0 && n <= WEFT_IO_ALIGN && WEFT_IO_ALIGN % n == 0);
    if (fd >= 0) close(fd);
    assert_int_equal(weft_io_direct_align(-1), WEFT_IO_ALIGN);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "child"))
        return (int)weft_io_replace_file(argv[2], "new", 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replace_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(large_file, setup, teardown),
        cmocka_unit_test_setup_teardown(read_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(directories, setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(reserve_and_close, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_of_a_write, setup, teardown),
        cmocka_unit_test_setup_teardown(alignment, setup, teardown),
        cmocka_unit_test_setup_teardown(every_call_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(environment, setup, teardown),
        cmocka_unit_test_setup_teardown(pipes_and_devices_are_refused_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_pipe_is_read_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_have_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signal_ends_the_wait_for_a_pipe, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
