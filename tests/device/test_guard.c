/* The guard device: DEVICE memory is reached in launches and copies, and nowhere else. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "support/test.h"

/* The signal that a process dies of when it reads there; 0: none. */
static int signal_of_read(const volatile char *p)
{
    int   status;
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        _exit(*p & 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void only_device_memory_is_guarded(void **state)
{
    (void)state;
    weft_device *d = weft_device_guard();
    for (int s = 0; s < WEFT_N_SPACE; s++) {
        weft_memory m;
        assert_ok(weft_device_alloc(d, (weft_space)s, 10000, &m));
        bool guarded = s == WEFT_SPACE_DEVICE;
        if (!WEFT_TEST_SANITIZED)
            assert_int_equal(signal_of_read((char *)m.address + 9999),
                             guarded ? SIGSEGV : 0);
        assert_ptr_equal(weft_memory_host(&m), guarded ? NULL : m.address);
        weft_device_free(&m);
    }
}

static weft_status add_one(void *arg)
{
    ++*(char *)arg;
    return WEFT_OK;
}

static void launches_and_copies_reach_it(void **state)
{
    (void)state;
    weft_device *d = weft_device_guard();
    weft_memory  m, n;
    weft_stream  s;
    weft_code    code;
    char         x[3] = {5, 6, 7};
    assert_ok(weft_device_alloc(d, WEFT_SPACE_DEVICE, 3, &m));
    assert_ok(weft_device_alloc(d, WEFT_SPACE_DEVICE, 3, &n));
    assert_ok(d->stream_open(d, "s", &s));
    assert_ok(weft_device_write(&m, 0, x, 3));
    weft_task task[2] = {{add_one, (char *)m.address + 1, 0}, {add_one, m.address, 0}};
    assert_ok(d->load(d, task, 2, &code));
    assert_ok(d->launch(&s, &code));
    assert_ok(d->copy(d, &s, &n, &m));
    assert_ok(weft_device_read(x, &n, 0, 3));
    assert_memory_equal(x, ((char[]){6, 7, 7}), 3);
    if (!WEFT_TEST_SANITIZED) assert_int_equal(signal_of_read(m.address), SIGSEGV);
    weft_device_free(&n);
    assert_ok(weft_device_read(x, &m, 0, 3));
    weft_device_free(&m);
}

static void the_environment_chooses_it(void **state)
{
    (void)state;
    unsetenv("WEFT_DEVICE");
    assert_ptr_equal(weft_device_default(), weft_device_cpu());
    setenv("WEFT_DEVICE", "guard", 1);
    assert_ptr_equal(weft_device_default(), weft_device_guard());
    assert_ok(weft_device_check_default());
    setenv("WEFT_DEVICE", "gaurd", 1);
    assert_fails(weft_device_check_default(), WEFT_ERR_ARG,
                 "WEFT_DEVICE is 'gaurd': it is cpu, or guard for tests");
    setenv("WEFT_DEVICE", "cpu", 1);
    assert_ok(weft_device_check_default());
    unsetenv("WEFT_DEVICE");
    assert_ok(weft_device_check_default());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_device_memory_is_guarded),
        cmocka_unit_test(launches_and_copies_reach_it),
        cmocka_unit_test(the_environment_chooses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
