#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/device.h"

/* Exact, unlike statm, and without pages of files that the first use of code brings in. */
static int64_t resident_bytes(void)
{
    char  line[256];
    long  kb = 0;
    FILE *f  = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Anonymous: %ld kB", &kb) == 1) break;
    fclose(f);
    assert_true(kb > 0);
    return (int64_t)kb * 1024;
}

static void cpu_memory_is_what_was_asked_for(void **state)
{
    (void)state;
    weft_device *d       = weft_device_cpu();
    int64_t      sizes[] = {1, 4096, 5000, (3 << 20) + 100, (64 << 20) + 4097};
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        weft_memory m;
        int64_t     before = resident_bytes(), used = weft_device_bytes();
        assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, sizes[i], &m), WEFT_OK);
        int64_t want = (sizes[i] + 4095) / 4096 * 4096, grown = resident_bytes() - before;
        assert_int_equal(weft_device_bytes() - used, want);
        assert_int_equal((uintptr_t)m.address % 4096, 0);
        /* page tables and a stray page of the C library aside */
        if (!WEFT_TEST_SANITIZED &&
            (grown < want - 65536 || grown > want + 65536 + want / 100))
            fail_msg("asked for %lld, resident grew by %lld", (long long)want,
                     (long long)grown);
        assert_int_equal(((char *)m.address)[sizes[i] - 1], 0);
        weft_device_free(&m);
        assert_int_equal(weft_device_bytes(), used);
    }
    weft_memory none = {.address = d};
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, 0, &none), WEFT_OK);
    assert_null(none.address);
    weft_device_free(&none);
}

static void memory_is_copied_between_any_two_spaces(void **state)
{
    (void)state;
    weft_device *d = weft_device_cpu();
    for (int a = 0; a < WEFT_N_SPACE; a++)
        for (int b = 0; b < WEFT_N_SPACE; b++) {
            weft_memory x, y;
            char        back[5] = {0};
            assert_int_equal(weft_device_alloc(d, (weft_space)a, 100, &x), WEFT_OK);
            assert_int_equal(weft_device_alloc(d, (weft_space)b, 100, &y), WEFT_OK);
            assert_int_equal(weft_device_write(&x, 95, "hello", 5), WEFT_OK);
            assert_int_equal(d->copy(d, &y, &x), WEFT_OK);
            assert_int_equal(weft_device_read(back, &y, 95, 5), WEFT_OK);
            assert_memory_equal(back, "hello", 5);
            weft_device_free(&x);
            weft_device_free(&y);
            assert_null(y.address);
        }
}

static void parts_stay_inside(void **state)
{
    (void)state;
    weft_memory m, part;
    assert_int_equal(weft_device_alloc(weft_device_cpu(), WEFT_SPACE_HOST, 100, &m),
                     WEFT_OK);
    assert_int_equal(weft_memory_part(&m, 40, 60, &part), WEFT_OK);
    assert_ptr_equal(part.address, (char *)m.address + 40);
    assert_int_equal(weft_memory_part(&m, 41, 60, &part), WEFT_ERR_ARG);
    assert_int_equal(weft_memory_part(&m, -1, 2, &part), WEFT_ERR_ARG);
    assert_int_equal(weft_device_write(&m, 100, "x", 1), WEFT_ERR_ARG);
    assert_int_equal(weft_device_read(NULL, &m, 100, 0), WEFT_OK);
    weft_device_free(&m);
}

/* What a process that was forked later writes is seen here. */
static void shared_memory_is_shared(void **state)
{
    (void)state;
    weft_memory m;
    assert_int_equal(weft_device_alloc(weft_device_cpu(), WEFT_SPACE_SHARED, 100, &m),
                     WEFT_OK);
    pid_t child = fork();
    if (!child) {
        ((char *)m.address)[7] = 'x';
        _exit(0);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(((char *)m.address)[7], 'x');
    weft_device_free(&m);
}

static weft_status count(void *arg)
{
    int *n = arg;
    return ++*n == 3 ? WEFT_FAIL(WEFT_ERR_NUMERIC, "third") : WEFT_OK;
}

static void cpu_stops_at_the_first_failure(void **state)
{
    (void)state;
    weft_device *d    = weft_device_cpu();
    int          n    = 0;
    weft_task task[4] = {{count, &n, 0}, {count, &n, 0}, {count, &n, 0}, {count, &n, 0}};
    weft_stream s     = {0};
    assert_int_equal(d->submit(d, &s, 0, task, 2), WEFT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(d->submit(d, &s, 0, task, 2), WEFT_ERR_NUMERIC);
    assert_int_equal(n, 3);
    assert_true(s.done_s >= s.start_s);
}

static void emu_lasts_as_stated(void **state)
{
    (void)state;
    weft_device *d;
    int          n       = 0;
    weft_task    task[2] = {{count, &n, 0.001}, {count, &n, 0.0005}};
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    double      t0 = weft_clock_s();
    weft_stream s  = {.done_s = t0};
    for (int i = 0; i < 40; i++) assert_int_equal(d->submit(d, &s, 0, task, 2), WEFT_OK);
    double stated = s.done_s - t0, took = weft_clock_s() - t0;
    assert_int_equal(n, 0);
    assert_true(stated > 0.0599 && stated < 0.0601);
    assert_true(took >= 0.0599);
    double ready = s.done_s + 0.005;
    assert_int_equal(d->submit(d, &s, ready, task, 1), WEFT_OK);
    assert_true(s.start_s == ready && s.done_s == ready + 0.001);
    weft_device_emu_destroy(d);
}

static void emu_memory_costs_nothing(void **state)
{
    (void)state;
    weft_device *d;
    weft_memory  m;
    char         back[8] = "filled";
    int64_t      before  = resident_bytes();
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, (int64_t)1 << 36, &m),
                     WEFT_OK);
    assert_int_equal(weft_device_write(&m, 5, back, 8), WEFT_OK);
    assert_int_equal(weft_device_read(back, &m, 5, 8), WEFT_OK);
    assert_int_equal(back[0], 0);
    assert_null(weft_memory_host(&m));
    assert_true(resident_bytes() - before < 1 << 20);
    weft_device_free(&m);
    weft_device_emu_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_memory_is_what_was_asked_for),
        cmocka_unit_test(memory_is_copied_between_any_two_spaces),
        cmocka_unit_test(parts_stay_inside),
        cmocka_unit_test(shared_memory_is_shared),
        cmocka_unit_test(cpu_stops_at_the_first_failure),
        cmocka_unit_test(emu_lasts_as_stated),
        cmocka_unit_test(emu_memory_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
