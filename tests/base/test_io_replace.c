/* weft_io_replace_*: what a path may be, and what becomes of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/files.h"
#include "support/test.h"
#include "base/io.h"

static void check_content(const char *path, const char *want)
{
    size_t n;
    char  *text = test_files_read(path, &n);
    assert_string_equal(text, want);
    free(text);
}

static mode_t mode_of(const char *path)
{
    struct stat s;
    assert_int_equal(lstat(path, &s), 0);
    return s.st_mode;
}

/* Entries of the scratch folder: nothing else was left there. */
static int entries(void)
{
    int            n = 0;
    struct dirent *e;
    DIR           *d = opendir(test_files_path("."));
    assert_non_null(d);
    while ((e = readdir(d))) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void a_mode_is_kept(void **state)
{
    static const mode_t modes[] = {0600, 0640, 0755, 0444};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(modes); i++) {
        const char *path = test_files_path("m%zu", i);
        test_files_write(path, "old", 3);
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_ok(weft_io_replace_file(path, "new", 3));
        assert_int_equal(mode_of(path), S_IFREG | modes[i]);
        check_content(path, "new");
    }
    mode_t mask = umask(022);
    assert_ok(weft_io_replace_file(test_files_path("fresh"), "x", 1));
    umask(mask);
    assert_int_equal(mode_of(test_files_path("fresh")), S_IFREG | 0644);
}

static void links_are_followed(void **state)
{
    (void)state;
    const char *target = test_files_path("folder/target"), *one = test_files_path("one");
    const char *two = test_files_path("two"), *none = test_files_path("none");
    assert_int_equal(mkdir(test_files_path("folder"), 0777), 0);
    test_files_write(target, "old", 3);
    assert_int_equal(chmod(target, 0600), 0);
    assert_int_equal(symlink("folder/target", one), 0);
    assert_int_equal(symlink(one, two), 0);
    assert_ok(weft_io_replace_file(two, "new", 3));
    check_content(target, "new");
    assert_int_equal(mode_of(target), S_IFREG | 0600);
    assert_true(S_ISLNK(mode_of(one)) && S_ISLNK(mode_of(two)));

    assert_int_equal(symlink("folder/later", none), 0); /* names nothing yet */
    assert_ok(weft_io_replace_file(none, "made", 4));
    check_content(test_files_path("folder/later"), "made");
    assert_true(S_ISLNK(mode_of(none)));
    assert_int_equal(entries(), 4);

    assert_int_equal(symlink("loop", test_files_path("loop")), 0);
    assert_fails(weft_io_replace_file(test_files_path("loop"), "x", 1), WEFT_ERR_ARG,
                 "symbolic links");
    assert_int_equal(symlink("no/where", test_files_path("lost")), 0);
    assert_fails(weft_io_replace_file(test_files_path("lost"), "x", 1), WEFT_ERR_ARG,
                 "there is no folder");
    assert_fails(weft_io_replace_file(test_files_path("folder"), "x", 1), WEFT_ERR_ARG,
                 "Is a directory");
}

/* Links at the names that temporary files had, or might have. */
static void prepared_names_are_not_followed(void **state)
{
    (void)state;
    const char *victim = test_files_path("victim"), *path = test_files_path("out");
    test_files_write(victim, "kept", 4);
    assert_int_equal(symlink(victim, test_files_path("out.tmp")), 0);
    assert_int_equal(symlink(victim, test_files_path("out.tmp.%ld", (long)getpid())), 0);
    assert_int_equal(symlink(victim, test_files_path("out.tmp.0123456789abcdef")), 0);
    assert_ok(weft_io_replace_file(path, "new", 3));
    check_content(victim, "kept");
    check_content(path, "new");
    assert_true(S_ISREG(mode_of(path)));
    assert_int_equal(entries(), 5);

    int fd = -1; /* a checkpoint's files have known names, and are new */
    assert_fails(weft_io_open_write(test_files_path("out.tmp"), true, &fd), WEFT_ERR_IO,
                 "File exists");
    check_content(victim, "kept");
}

static void a_pipe_is_written_in_place(void **state)
{
    (void)state;
    const char *pipe    = test_files_path("pipe");
    char        got[16] = "";
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int fd = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_true(weft_io_is_stream(pipe));
    assert_ok(weft_io_replace_file(pipe, "through", 7));
    assert_int_equal(read(fd, got, sizeof got), 7);
    assert_string_equal(got, "through");
    close(fd);
    assert_int_equal(mode_of(pipe), S_IFIFO | 0600);
    assert_int_equal(entries(), 1);
    alarm(30); /* a call that waits ends this test */
    assert_fails(weft_io_replace_file(pipe, "x", 1), WEFT_ERR_ARG,
                 "nothing reads from this pipe");
    alarm(0);
}

static void a_device_is_written_in_place(void **state)
{
    (void)state;
    const char *link = test_files_path("link");
    assert_int_equal(symlink("/dev/null", link), 0);
    assert_ok(weft_io_replace_file(link, "gone", 4));
    assert_true(S_ISLNK(mode_of(link)) && S_ISCHR(mode_of("/dev/null")));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/dev/full", link), 0);
    assert_fails(weft_io_replace_file(link, "gone", 4), WEFT_ERR_FULL, "No space left");
    assert_int_equal(entries(), 1);
    if (mknod(test_files_path("node"), S_IFCHR | 0600, (1 << 8) | 3) == 0) { /* by root */
        assert_ok(weft_io_replace_file(test_files_path("node"), "x", 1));
        assert_true(S_ISCHR(mode_of(test_files_path("node"))));
    }
}

/* As in `weft graph -o /dev/stdout >>file`: behind what is there. */
static void a_descriptor_is_written_where_it_stands(void **state)
{
    (void)state;
    char        name[64];
    const char *path = test_files_path("file");
    int         fd   = open(path, O_WRONLY | O_CREAT, 0666);
    assert_int_equal(write(fd, "before ", 7), 7);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_true(weft_io_is_stream(name));
    assert_false(weft_io_is_stream(path));
    assert_ok(weft_io_replace_file(name, "here ", 5));
    assert_int_equal(write(fd, "after", 5), 5);
    close(fd);
    check_content(path, "before here after");
    assert_int_equal(entries(), 1);
}

/* Old ones that no process holds are swept; young and strange ones are not touched. */
static void leftovers_are_swept(void **state)
{
    (void)state;
    const struct timeval old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    const char          *stale  = test_files_path("out.tmp.0123456789abcdef"),
               *young           = test_files_path("out.tmp.0123456789abcde0"),
               *other           = test_files_path("out.tmp.notes");
    test_files_write(stale, "half", 4);
    test_files_write(young, "half", 4);
    test_files_write(other, "mine", 4);
    assert_int_equal(utimes(stale, old), 0);
    assert_int_equal(utimes(other, old), 0);
    assert_ok(weft_io_replace_file(test_files_path("out"), "new", 3));
    assert_int_equal(access(stale, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);

    weft_io_replacement r; /* being written, for long */
    assert_ok(weft_io_replace_begin(test_files_path("out"), &r));
    assert_int_equal(utimes(r.temp, old), 0);
    assert_ok(weft_io_replace_file(test_files_path("out"), "newer", 5));
    assert_int_equal(access(r.temp, F_OK), 0);
    assert_ok(weft_io_replace_end(&r, "out"));
    check_content(test_files_path("out"), "");
    assert_int_equal(entries(), 3);
}

/* A caller with closed standard streams: its log must not reach our file. */
static void data_is_never_on_a_standard_stream(void **state)
{
    (void)state;
    const char *path = test_files_path("data");
    pid_t       pid  = fork();
    if (pid == 0) {
        weft_io_replacement r;
        int                 fd, in;
        close(0), close(1), close(2);
        bool fine = weft_io_open_write(path, true, &fd) == WEFT_OK && fd > 2 &&
                    weft_io_open_read(path, &in, NULL) == WEFT_OK && in > 2 &&
                    weft_io_replace_begin(path, &r) == WEFT_OK && r.fd > 2;
        _exit(fine ? 0 : 1);
    }
    int how = 0;
    waitpid(pid, &how, 0);
    assert_int_equal(how, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(a_mode_is_kept),
        with_files(links_are_followed),
        with_files(prepared_names_are_not_followed),
        with_files(a_pipe_is_written_in_place),
        with_files(a_device_is_written_in_place),
        with_files(a_descriptor_is_written_where_it_stands),
        with_files(leftovers_are_swept),
        with_files(data_is_never_on_a_standard_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
