#include <errno.h>
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
    char   temp[200], *text;
    size_t n;
    snprintf(temp, sizeof temp, "%s.tmp.%ld", path, (long)getpid());
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
            assert_false(weft_io_exists(temp));
        }
    weft_io_fail_at(1, EIO, false);
    assert_fails(weft_io_replace_file(path, "x", 1), WEFT_ERR_IO, "Input/output error");
    assert_ok(
        weft_io_replace_file(path, "x", 1)); /* not sticky: the next one goes through */
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
        cmocka_unit_test_setup_teardown(every_call_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(environment, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
