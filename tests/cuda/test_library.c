/* plugin/cuda/library.c: NCCL is found, its version read, its rows resolved; what is no NCCL 2 is
 * one line.  Each case in a process of its own: what is open stays open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#include "library.h"

/* How opening NCCL ends, in another process; text: its error, or what is open. */
static weft_status open_apart(const char *libraries, const char *version, char *text,
                              size_t bytes)
{
    int pipes[2], code;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        char line[600];
        setenv("WEFT_CUDA_LIBS", libraries, 1);
        if (version) setenv("WEFT_STUB_NCCL_VERSION", version, 1);
        weft_status st = weft_cuda_nccl_open();
        if (st == WEFT_OK)
            weft_cuda_libraries_print(line, sizeof line);
        else
            snprintf(line, sizeof line, "%s", weft_error_text());
        if (st == WEFT_OK && !weft_cuda_nccl_get()) st = WEFT_ERR_INTERNAL;
        if (write(pipes[1], line, strlen(line) + 1) < 0) st = WEFT_ERR_INTERNAL;
        _exit((int)st);
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, bytes);
    close(pipes[0]);
    assert_true(n > 0);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    return (weft_status)WEXITSTATUS(code);
}

static void test_stub(void **state)
{
    (void)state;
    char text[600];
    assert_int_equal(open_apart(WEFT_TEST_CUDA_STUB, NULL, text, sizeof text), WEFT_OK);
    assert_non_null(strstr(text, "NCCL 2.28.9 " WEFT_TEST_CUDA_STUB));
}

/* The one that jobs on this machine would open. */
static void test_real(void **state)
{
    (void)state;
    char text[600];
    if (access("/usr/local/cuda/lib64/libnccl.so.2", R_OK) != 0) skip();
    assert_int_equal(open_apart("/usr/local/cuda/lib64", NULL, text, sizeof text),
                     WEFT_OK);
    assert_non_null(strstr(text, "NCCL 2."));
    assert_non_null(strstr(text, "/usr/local/cuda"));
}

static void test_refused(void **state)
{
    (void)state;
    char text[600];
    assert_int_equal(open_apart(WEFT_TEST_CUDA_STUB, "31001", text, sizeof text),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(text, "is NCCL 3.10.1: 2.14 or a later NCCL 2 is needed, or "
                                 "WEFT_GPU_COMM=staged"));
    assert_int_equal(open_apart(WEFT_TEST_CUDA_STUB, "21300", text, sizeof text),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(text, "is NCCL 2.13.0"));
    /* the stub of tests/probe has a few symbols only */
    assert_int_equal(
        open_apart(WEFT_TEST_CUDA_STUB "/../stub_nccl", NULL, text, sizeof text),
        WEFT_ERR_ARG);
    assert_non_null(strstr(text, "has no nccl"));
    assert_null(strchr(text, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stub),
                                       cmocka_unit_test(test_real),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
