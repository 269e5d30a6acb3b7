/* The device of libweft_cuda.so on a driver without a GPU (tests/cuda/stub), and what is said where
 * something is missing. */
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_test.h"
#include "plugin/plugin.h"

static weft_device *open_gpu(void)
{
    weft_device *d = NULL;
    if (weft_plugin_open_device("cuda", 0, &d) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return d;
}

/* ---- memory and copies ---- */

static void memory_is_zeroed_and_copied(void **state)
{
    (void)state;
    weft_device *d = open_gpu();
    assert_string_equal(d->name, "cuda:0");
    assert_false(d->host_access);
    for (int a = 0; a < WEFT_N_SPACE; a++)
        for (int b = 0; b < WEFT_N_SPACE; b++) {
            weft_memory from, to;
            char        text[5000], back[5000], zero[5000] = {0};
            for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7 + (size_t)a);
            assert_int_equal(weft_device_alloc(d, (weft_space)a, sizeof text, &from),
                             WEFT_OK);
            assert_int_equal(weft_device_alloc(d, (weft_space)b, sizeof text, &to),
                             WEFT_OK);
            assert_int_equal(weft_device_read(back, &to, 0, sizeof back), WEFT_OK);
            assert_memory_equal(back, zero, sizeof back);
            assert_int_equal(weft_device_write(&from, 0, text, sizeof text), WEFT_OK);
            assert_int_equal(d->copy(d, NULL, &to, &from), WEFT_OK);
            assert_int_equal(weft_device_read(back, &to, 0, sizeof back), WEFT_OK);
            assert_memory_equal(back, text, sizeof back);
            assert_true((weft_memory_host(&to) == NULL) == (b == WEFT_SPACE_DEVICE));
            weft_device_free(&from);
            weft_device_free(&to);
        }
    weft_plugin_close_device(d);
}

static void host_code_does_not_reach_device_memory(void **state)
{
    (void)state;
    if (test_gpu_is_real()) skip(); /* of the stub */
    int   status;
    pid_t child = fork();
    if (!child) {
        weft_memory m;
        signal(SIGSEGV, SIG_DFL); /* cmocka's */
        weft_device_alloc(open_gpu(), WEFT_SPACE_DEVICE, 64, &m);
        *(volatile char *)m.address = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
}

/* ---- streams ---- */

typedef struct fill_job {
    weft_stream *stream;
    weft_memory  memory;
    float        value;
} fill_job;

/* A kernel of the plugin, as exec finds it. */
static weft_status run_fill(void *arg)
{
    fill_job        *j     = arg;
    int64_t          n     = j->memory.bytes / 4;
    weft_shape       shape = weft_shape_make(1, &n);
    weft_view        out   = weft_view_make(j->memory.address, WEFT_DTYPE_F32, &shape);
    weft_attr        attr[WEFT_MAX_ATTR] = {0};
    weft_kernel_call call                = {
                       .op = WEFT_OP_FILL, .attr = attr, .n_out = 1, .n_own_out = 1, .out = &out};
    weft_kernel_ctx    ctx = {.queue = j->stream->impl};
    const weft_kernel *k;
    weft_op_attr_defaults(WEFT_OP_FILL, attr);
    attr[weft_op_attr_index(WEFT_OP_FILL, "value")].f = (double)j->value;
    WEFT_TRY(weft_kernel_find("cuda", &call, &k));
    return k->run(&call, &ctx);
}

static float read_float(const weft_memory *m, int64_t i)
{
    float x = -1;
    assert_int_equal(weft_device_read(&x, m, 4 * i, 4), WEFT_OK);
    return x;
}

typedef struct two_streams {
    weft_device *d;
    weft_stream  s[2];
    weft_event   e;
    weft_memory  m[2];
    fill_job     job;
    weft_task    task;
    weft_code    code;
} two_streams;

static void open_two(two_streams *t)
{
    *t = (two_streams){.d = open_gpu()};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t->d->stream_open(t->d, i ? "second" : "first", &t->s[i]),
                         WEFT_OK);
        assert_int_equal(weft_device_alloc(t->d, WEFT_SPACE_DEVICE, 4000, &t->m[i]),
                         WEFT_OK);
    }
    assert_int_equal(t->d->event_open(t->d, 3, &t->e), WEFT_OK);
    t->job  = (fill_job){&t->s[0], t->m[0], 3};
    t->task = (weft_task){.run = run_fill, .arg = &t->job};
    assert_int_equal(t->d->load(t->d, &t->task, 1, &t->code), WEFT_OK);
}

static void close_two(two_streams *t)
{
    t->d->event_close(&t->e);
    t->d->unload(t->d, &t->code);
    for (int i = 0; i < 2; i++) {
        weft_device_free(&t->m[i]);
        t->d->stream_close(&t->s[i]);
    }
    weft_plugin_close_device(t->d);
}

/* A kernel on one stream, then a copy on another one that waits for it. */
static void give_both(two_streams *t, int64_t n)
{
    assert_int_equal(t->d->launch(&t->s[0], &t->code), WEFT_OK);
    assert_int_equal(t->d->record(&t->s[0], &t->e), WEFT_OK);
    assert_int_equal(t->d->wait(&t->s[1], &t->e, n), WEFT_OK);
    assert_int_equal(t->d->copy(t->d, &t->s[1], &t->m[1], &t->m[0]), WEFT_OK);
}

static void events_order_streams(void **state)
{
    (void)state;
    two_streams t;
    double      at;
    open_two(&t);
    assert_int_equal(t.d->query(&t.e, 1, &at), WEFT_AGAIN);
    for (int i = 1; i <= 8; i++) { /* more than the ring keeps */
        t.job.value = (float)i;
        give_both(&t, i);
        assert_int_equal(t.d->finish(&t.s[1]), WEFT_OK);
        assert_true(read_float(&t.m[1], 999) == (float)i);
        assert_int_equal(t.d->sync(&t.e, i, &at), WEFT_OK);
        assert_true(at > 0);
    }
    assert_int_equal(t.d->wait(&t.s[1], &t.e, 1), WEFT_OK); /* long ago */
    assert_int_equal(t.d->wait(&t.s[1], &t.e, 9), WEFT_ERR_INTERNAL);
    t.d->cancel(&t.e);
    assert_int_equal(t.d->sync(&t.e, 9, &at), WEFT_ERR_PEER);
    close_two(&t);
}

static weft_status look(void *arg, double *start_s, double *end_s)
{
    two_streams *t = arg;
    (void)start_s, (void)end_s;
    return read_float(&t->m[1], 5) == t->job.value
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_INTERNAL, "called too early");
}

static void calls_come_after_what_was_given(void **state)
{
    (void)state;
    two_streams t;
    open_two(&t);
    give_both(&t, 1);
    assert_int_equal(t.d->call(&t.s[1], look, &t), WEFT_OK);
    close_two(&t);
}

static void captured_work_runs_when_it_is_replayed(void **state)
{
    (void)state;
    two_streams   t;
    weft_captured g = {0};
    double        at;
    open_two(&t);
    weft_stream *s[2] = {&t.s[0], &t.s[1]};
    give_both(&t, 1); /* plainly: 3 */
    for (int i = 0; i < 2; i++) assert_int_equal(t.d->finish(&t.s[i]), WEFT_OK);
    t.job.value = 5;
    assert_int_equal(t.d->capture_begin(t.d, s, 2), WEFT_OK);
    give_both(&t, 2);
    assert_int_equal(t.d->capture_end(t.d, &g), WEFT_OK);
    assert_int_equal(t.d->finish(&t.s[1]), WEFT_OK);
    assert_true(read_float(&t.m[1], 0) == 3); /* nothing has run */
    assert_int_equal(t.d->query(&t.e, 2, &at), WEFT_AGAIN);
    for (int i = 2; i < 6; i++) {
        assert_int_equal(t.d->replay(&t.s[0], &g), WEFT_OK);
        assert_int_equal(t.d->finish(&t.s[0]), WEFT_OK);
        assert_true(read_float(&t.m[1], 0) == 5);
        assert_int_equal(t.d->query(&t.e, i, &at), WEFT_OK);
        assert_int_equal(t.d->query(&t.e, i + 1, &at), WEFT_AGAIN);
    }
    t.job.value = 6;
    give_both(&t, 6); /* and plainly again */
    assert_int_equal(t.d->finish(&t.s[1]), WEFT_OK);
    assert_true(read_float(&t.m[1], 0) == 6);
    t.d->captured_free(&g);
    close_two(&t);
}

/* As a snapshot's does while a step is captured: what it has given is done when its event says so,
 * and is no part of the graph. */
static void a_stream_outside_of_a_capture_goes_on(void **state)
{
    (void)state;
    two_streams   t;
    weft_captured g = {0};
    double        at;
    open_two(&t);
    weft_stream *s[1] = {&t.s[0]};
    assert_int_equal(t.d->launch(&t.s[0], &t.code), WEFT_OK); /* 3 */
    assert_int_equal(t.d->finish(&t.s[0]), WEFT_OK);
    assert_int_equal(t.d->capture_begin(t.d, s, 1), WEFT_OK);
    t.job.value = 5;
    assert_int_equal(t.d->launch(&t.s[0], &t.code), WEFT_OK);
    assert_int_equal(t.d->copy(t.d, &t.s[1], &t.m[1], &t.m[0]), WEFT_OK);
    assert_int_equal(t.d->record(&t.s[1], &t.e), WEFT_OK);
    assert_int_equal(t.d->sync(&t.e, 1, &at), WEFT_OK);
    assert_true(at > 0); /* of a record in a capture it is not known */
    assert_int_equal(t.d->capture_end(t.d, &g), WEFT_OK);
    assert_true(read_float(&t.m[1], 0) == 3);
    assert_int_equal(t.d->query(&t.e, 1, &at), WEFT_OK);
    assert_int_equal(t.d->replay(&t.s[0], &g), WEFT_OK);
    assert_int_equal(t.d->finish(&t.s[0]), WEFT_OK);
    assert_int_equal(t.d->query(&t.e, 2, &at), WEFT_AGAIN);
    t.d->captured_free(&g);
    close_two(&t);
}

/* ---- what is said ---- */

/* The error of opening cuda:number in a process with this environment; "": none. */
static const char *say(const char *name, const char *value, int number)
{
    static char text[1024];
    int         pipes[2];
    memset(text, 0, sizeof text);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        weft_device *d;
        if (name) setenv(name, value, 1);
        const char *said = weft_plugin_open_device("cuda", number, &d) == WEFT_OK
                               ? ""
                               : weft_error_text();
        _exit(write(pipes[1], said, strlen(said)) < 0);
    }
    close(pipes[1]);
    size_t n = 0;
    for (ssize_t k; (k = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    close(pipes[0]);
    waitpid(child, NULL, 0);
    return text;
}

#define SAYS(text, words)                                                                \
    do {                                                                                 \
        const char *said_ = (text);                                                      \
        if (!strstr(said_, (words))) fail_msg("'%s' instead of '%s'", said_, (words));   \
    } while (0)

static void what_is_missing_is_said_in_a_line(void **state)
{
    (void)state;
    if (test_gpu_is_real()) skip(); /* of the stub */
    assert_string_equal(say(NULL, NULL, 0), "");
    SAYS(say(NULL, NULL, 3), "device cuda:3: this machine has 1 GPU, cuda:0");
    SAYS(say("WEFT_STUB_GPUS", "4", 7),
         "device cuda:7: this machine has 4 GPUs, cuda:0 to cuda:3");
    SAYS(say("WEFT_STUB_GPUS", "0", 0), "no GPU");
    SAYS(say("WEFT_STUB_CAPABILITY", "75", 0),
         "of compute capability 7.5: 8.0 is the least");
    SAYS(say("WEFT_STUB_DRIVER", "11080", 0),
         "the NVIDIA driver is of CUDA 11.8, the kernels are of ");
    SAYS(say("WEFT_STUB_FAIL", "2", 0),
         "cuDriverGetVersion fails with 999: unknown error");
}

static void plugins_of_other_builds_are_refused(void **state)
{
    (void)state;
    const weft_plugin *p;
    setenv("WEFT_PLUGINS", "/nonexistent", 1);
    assert_int_equal(weft_plugin_open("none", &p), WEFT_ERR_ARG);
    SAYS(weft_error_text(), "no libweft_none.so in WEFT_PLUGINS=/nonexistent");
    setenv("WEFT_PLUGINS", WEFT_TEST_PLUGINS, 1);
}

static void facts_are_of_the_gpu(void **state)
{
    (void)state;
    if (test_gpu_is_real()) skip(); /* of the stub */
    weft_device      *d = open_gpu();
    weft_device_facts a, b;
    weft_memory       m;
    assert_int_equal(d->facts(d, &a), WEFT_OK);
    assert_string_equal(a.name, "Stub GPU");
    assert_int_equal(a.capability, 90);
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, 1 << 20, &m), WEFT_OK);
    assert_int_equal(d->facts(d, &b), WEFT_OK);
    assert_int_equal(a.free_bytes - b.free_bytes, 1 << 20);
    weft_memory large;
    assert_int_equal(weft_device_alloc(d, WEFT_SPACE_DEVICE, 9000000000, &large),
                     WEFT_ERR_NOFIT);
    SAYS(weft_error_text(), "cuda:0 has no 9.00 GB free: 8.00 of 8.00 GB are");
    weft_device_free(&m);
    weft_plugin_close_device(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_said_in_a_line), /* before anything is open */
        cmocka_unit_test(plugins_of_other_builds_are_refused),
        cmocka_unit_test(memory_is_zeroed_and_copied),
        cmocka_unit_test(host_code_does_not_reach_device_memory),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(calls_come_after_what_was_given),
        cmocka_unit_test(captured_work_runs_when_it_is_replayed),
        cmocka_unit_test(a_stream_outside_of_a_capture_goes_on),
        cmocka_unit_test(facts_are_of_the_gpu),
    };
    if (!test_gpu_start()) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
