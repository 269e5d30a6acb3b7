#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
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
        void   *p;
        int64_t before = resident_bytes(), used = weft_device_bytes();
        assert_int_equal(d->alloc(d, sizes[i], &p), WEFT_OK);
        int64_t want = (sizes[i] + 4095) / 4096 * 4096, grown = resident_bytes() - before;
        assert_int_equal(weft_device_bytes() - used, want);
        assert_int_equal((uintptr_t)p % 4096, 0);
        /* page tables and a stray page of the C library aside */
        if (!WEFT_TEST_SANITIZED &&
            (grown < want - 65536 || grown > want + 65536 + want / 100))
            fail_msg("asked for %lld, resident grew by %lld", (long long)want,
                     (long long)grown);
        assert_int_equal(((char *)p)[sizes[i] - 1], 0);
        d->free(d, p, sizes[i]);
        assert_int_equal(weft_device_bytes(), used);
    }
    void *none = d;
    assert_int_equal(d->alloc(d, 0, &none), WEFT_OK);
    assert_null(none);
    d->free(d, none, 0);
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
    void        *p;
    int64_t      before = resident_bytes();
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    assert_int_equal(d->alloc(d, (int64_t)1 << 36, &p), WEFT_OK);
    assert_true(resident_bytes() - before < 1 << 20);
    d->free(d, p, (int64_t)1 << 36);
    weft_device_emu_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_memory_is_what_was_asked_for),
        cmocka_unit_test(cpu_stops_at_the_first_failure),
        cmocka_unit_test(emu_lasts_as_stated),
        cmocka_unit_test(emu_memory_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
