#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
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
            assert_int_equal(d->copy(d, NULL, &y, &x), WEFT_OK);
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

/* What the other process found: 0 all is well. */
static int use_exported(int pipe_in)
{
    weft_device       *d = weft_device_cpu();
    weft_memory_handle h;
    weft_memory        m;
    if (read(pipe_in, &h, sizeof h) != (ssize_t)sizeof h) return 1;
    if (d->import_memory(d, &h, &m) != WEFT_OK) return 2;
    if (m.bytes != 5000 || ((char *)m.address)[6] != 77) return 3;
    ((char *)m.address)[4999] = 55;
    d->import_close(d, &h, &m);
    return 0;
}

static void memory_is_exported_and_imported(void **state)
{
    (void)state;
    weft_device       *d = weft_device_cpu();
    weft_memory        m, part, none;
    weft_memory_handle h;
    int                ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork(); /* before there is anything to inherit */
    if (!child) _exit(use_exported(ends[0]));
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_SHARED, 20000, &m), WEFT_OK);
    assert_int_equal(weft_memory_part(&m, 8000, 5000, &part), WEFT_OK);
    ((char *)part.address)[6] = 77;
    assert_int_equal(d->export_memory(d, &part, &h), WEFT_OK);
    assert_int_equal(write(ends[1], &h, sizeof h), (ssize_t)sizeof h);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(((char *)part.address)[4999], 55);
    weft_device_free(&m);
    assert_int_not_equal(d->import_memory(d, &h, &none), WEFT_OK); /* it is gone */
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, 20000, &m), WEFT_OK);
    assert_int_equal(d->export_memory(d, &m, &h), WEFT_ERR_ARG);
    weft_device_free(&m);
    close(ends[0]);
    close(ends[1]);
}

static void cpu_stops_at_the_first_failure(void **state)
{
    (void)state;
    weft_device *d    = weft_device_cpu();
    int          n    = 0;
    weft_task task[4] = {{count, &n, 0}, {count, &n, 0}, {count, &n, 0}, {count, &n, 0}};
    weft_stream s;
    weft_code   two, none;
    assert_int_equal(d->stream_open(d, "s", &s), WEFT_OK);
    assert_int_equal(d->load(d, task, 2, &two), WEFT_OK);
    assert_int_equal(d->launch(&s, &two), WEFT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(d->launch(&s, &two), WEFT_ERR_NUMERIC);
    assert_int_equal(n, 3);
    assert_true(s.done_s >= s.start_s);
    task[1].run = NULL;
    assert_int_equal(d->load(d, task, 2, &none), WEFT_ERR_ARG);
    d->unload(d, &two);
    d->stream_close(&s);
}

/* ---- events ---- */

typedef struct waiter {
    weft_device *d;
    weft_stream  s;
    weft_event   e;
    int          n;
    weft_status  st;
} waiter;

static void *wait_third(void *arg)
{
    waiter *w = arg;
    w->st     = w->d->wait(&w->s, &w->e, 3);
    w->n      = 100;
    return NULL;
}

static void cpu_streams_wait_for_records(void **state)
{
    (void)state;
    weft_device *d = weft_device_cpu();
    waiter       w = {.d = d};
    weft_stream  s;
    pthread_t    thread;
    double       at;
    assert_int_equal(d->stream_open(d, "a", &s), WEFT_OK);
    assert_int_equal(d->stream_open(d, "b", &w.s), WEFT_OK);
    assert_int_equal(d->event_open(d, 2, &w.e), WEFT_OK);
    assert_int_equal(d->wait(&s, &w.e, 0), WEFT_OK);
    assert_int_equal(d->query(&w.e, 1, &at), WEFT_AGAIN);
    for (int k = 0; k < 2; k++) assert_int_equal(d->record(&s, &w.e), WEFT_OK);
    pthread_create(&thread, NULL, wait_third, &w);
    usleep(20000);
    assert_int_equal(w.n, 0);
    s.done_s = 7;
    assert_int_equal(d->record(&s, &w.e), WEFT_OK);
    pthread_join(thread, NULL);
    assert_int_equal(w.st, WEFT_OK);
    assert_int_equal(w.n, 100);
    assert_int_equal(d->query(&w.e, 3, &at), WEFT_OK);
    assert_true(at == 7);
    assert_int_equal(d->sync(&w.e, 3, &at), WEFT_OK);
    d->event_close(&w.e);
}

static void waits_end_when_an_event_is_cancelled(void **state)
{
    (void)state;
    weft_device *d = weft_device_cpu();
    waiter       w = {.d = d};
    pthread_t    thread;
    assert_int_equal(d->stream_open(d, "b", &w.s), WEFT_OK);
    assert_int_equal(d->event_open(d, 1, &w.e), WEFT_OK);
    pthread_create(&thread, NULL, wait_third, &w);
    usleep(5000);
    d->cancel(&w.e);
    pthread_join(thread, NULL);
    assert_int_equal(w.st, WEFT_ERR_PEER);
    assert_int_equal(d->wait(&w.s, &w.e, 1), WEFT_ERR_PEER);
    d->event_close(&w.e);
}

/* ---- emu ---- */

static void emu_launches_return_before_their_deadline(void **state)
{
    (void)state;
    weft_device *d;
    int          n       = 0;
    weft_task    task[2] = {{count, &n, 0.05}, {count, &n, 0.025}};
    weft_stream  s, t;
    weft_event   e;
    weft_code    both;
    double       at;
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    assert_int_equal(d->stream_open(d, "s", &s), WEFT_OK);
    assert_int_equal(d->stream_open(d, "t", &t), WEFT_OK);
    assert_int_equal(d->event_open(d, 4, &e), WEFT_OK);
    assert_int_equal(d->load(d, task, 2, &both), WEFT_OK);
    double t0 = weft_clock_s();
    for (int i = 0; i < 4; i++) assert_int_equal(d->launch(&s, &both), WEFT_OK);
    assert_int_equal(d->record(&s, &e), WEFT_OK);
    assert_int_equal(d->wait(&t, &e, 1), WEFT_OK);
    assert_int_equal(d->launch(&t, &both), WEFT_OK);
    double gave = weft_clock_s();
    assert_true(gave < s.done_s && gave < t.done_s);
    assert_int_equal(d->query(&e, 1, &at), WEFT_AGAIN); /* not before its time */
    assert_int_equal(n, 0);
    assert_true(s.done_s - t0 >= 0.2999 && s.done_s - t0 < 0.3001 + (gave - t0));
    assert_true(t.start_s == s.done_s && t.done_s > s.done_s + 0.0749);

    assert_int_equal(d->sync(&e, 1, &at), WEFT_OK);
    assert_true(at == s.done_s && weft_clock_s() >= at);
    assert_int_equal(d->query(&e, 1, &at), WEFT_OK);
    assert_int_equal(d->finish(&t), WEFT_OK);
    assert_true(weft_clock_s() >= t.done_s);
    /* a stream that was waited for starts again with the clock */
    double later = weft_clock_s();
    assert_int_equal(d->launch(&t, &both), WEFT_OK);
    assert_true(t.start_s >= later);
    assert_int_equal(d->wait(&t, &e, 2), WEFT_ERR_INTERNAL);
    d->event_close(&e);
    weft_device_emu_destroy(d);
}

static weft_status last_a_second(void *arg, double *start_s, double *end_s)
{
    *(double *)arg = weft_clock_s();
    *end_s         = *start_s + 1;
    return WEFT_OK;
}

/* Host work begins when what is in front of it has ended, and lasts as it says. */
static void emu_calls_the_host_in_order(void **state)
{
    (void)state;
    weft_device *d;
    weft_task    task = {.seconds = 0.02};
    weft_stream  s;
    weft_code    code;
    double       called;
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    assert_int_equal(d->stream_open(d, "s", &s), WEFT_OK);
    assert_int_equal(d->load(d, &task, 1, &code), WEFT_OK);
    assert_int_equal(d->launch(&s, &code), WEFT_OK);
    double deadline = s.done_s;
    assert_int_equal(d->call(&s, last_a_second, &called), WEFT_OK);
    assert_true(called >= deadline && s.start_s == deadline && s.done_s == deadline + 1);
    assert_true(weft_clock_s() < s.done_s);
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
        cmocka_unit_test(memory_is_exported_and_imported),
        cmocka_unit_test(cpu_stops_at_the_first_failure),
        cmocka_unit_test(cpu_streams_wait_for_records),
        cmocka_unit_test(waits_end_when_an_event_is_cancelled),
        cmocka_unit_test(emu_launches_return_before_their_deadline),
        cmocka_unit_test(emu_calls_the_host_in_order),
        cmocka_unit_test(emu_memory_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
