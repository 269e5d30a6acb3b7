/* plugin/cuda/library.c: NCCL is found, its version read, its rows resolved; what is no NCCL 2 is
 * one line; cublasLt as the driver's version allows.  Each case in a process of its own: what is
 * open stays open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#include "library.h"
#include "support/files.h"

typedef weft_status (*open_fn)(void);

/* How opening ends, in another process; text: its error, or what is open. */
static weft_status run_apart(open_fn open_it, const char *libraries, const char *variable,
                             const char *version, char *text, size_t bytes)
{
    int pipes[2], code;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        char line[600];
        setenv("WEFT_CUDA_LIBS", libraries, 1);
        if (version) setenv(variable, version, 1);
        weft_status st = open_it();
        if (st == WEFT_OK)
            weft_cuda_libraries_print(line, sizeof line);
        else
            snprintf(line, sizeof line, "%s", weft_error_text());
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

static weft_status open_nccl(void)
{
    WEFT_TRY(weft_cuda_nccl_open());
    return weft_cuda_nccl_get() ? WEFT_OK : WEFT_ERR_INTERNAL;
}

static weft_status open_apart(const char *libraries, const char *version, char *text,
                              size_t bytes)
{
    return run_apart(open_nccl, libraries, "WEFT_STUB_NCCL_VERSION", version, text,
                     bytes);
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

static weft_status open_for_12(void)
{
    return weft_cuda_libraries_open(12080);
}

static weft_status open_for_13(void)
{
    return weft_cuda_libraries_open(13000);
}

/* A driver of CUDA 12 with cublasLt 13 alone: the library and both versions; a cublasLt 12 beside
 * it is taken. */
static void test_old_driver(void **state)
{
    static const char stub[] = WEFT_TEST_CUDA_STUB "/libcublasLt.so.13";
    char              text[600], only[600], folder[500];
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_files_path("x"));
    folder[strlen(folder) - 2] = 0;
    snprintf(only, sizeof only, "only:%s", folder);
    assert_int_equal(symlink(stub, test_files_path("libcublasLt.so.13")), 0);
    assert_int_equal(run_apart(open_for_12, only, NULL, NULL, text, sizeof text),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(text,
                           "libcublasLt.so.13 needs a driver of CUDA 13.0 or later, "
                           "this one is of CUDA 12.8: install a newer driver, or "
                           "cublasLt 12"));
    assert_null(strchr(text, '\n'));
    assert_int_equal(run_apart(open_for_13, only, NULL, NULL, text, sizeof text),
                     WEFT_OK);
    assert_int_equal(symlink(stub, test_files_path("libcublasLt.so.12")), 0);
    assert_int_equal(
        run_apart(open_for_12, only, "WEFT_STUB_BLAS", "120800", text, sizeof text),
        WEFT_OK);
    assert_non_null(strstr(text, "cublasLt 12.8.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stub), cmocka_unit_test(test_real),
        cmocka_unit_test(test_refused), with_files(test_old_driver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
