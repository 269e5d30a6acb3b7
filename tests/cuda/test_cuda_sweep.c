/* src/app/session/sweep_gpu.c: a calibration's steps on the plugin's device over a driver without a
 * GPU. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cost/cost.h"
#include "gpu_test.h"
#include "program/work.h"
#include "session/device.h"
#include "session/runner.h"
#include "session/sweep.h"
#include "session/sweep_priv.h"

static const weft_timing *find_work(const weft_timing *t, int n, const char *work)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].work, work)) return &t[i];
    return NULL;
}

/* All kinds of a step's work are there, once for each size, with positive times. */
static void instructions_are_timed(void **state)
{
    (void)state;
    static const char *const work[] = {"attention by keys",
                                       "attention_grad by keys",
                                       "matmul nt",
                                       "layer_norm",
                                       "adamw",
                                       "sumsq",
                                       "embedding",
                                       "read"};
    weft_device             *d      = NULL;
    weft_arena              *a      = NULL;
    weft_timing             *t      = NULL;
    weft_text                list   = {0};
    int                      n      = 0;
    assert_ok(weft_session_open_device(&(weft_session_device){.list = "cuda:0"}, &d));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_sweep_gpu(
        &(weft_sweep_gpu_options){
            .device = d, .n_model = 1, .settle_s = 0.05, .list = &list},
        a, &t, &n));
    for (size_t i = 0; i < WEFT_COUNT(work); i++)
        if (!find_work(t, n, work[i])) fail_msg("no time of %s", work[i]);
    for (int i = 0; i < n; i++) {
        assert_true(t[i].s > 0 && t[i].link == -1);
        assert_true(t[i].s < 10 || t[i].size[0] > 1e6);
        for (int k = i + 1; k < n; k++)
            assert_true(strcmp(t[i].work, t[k].work) || t[i].n_size != t[k].n_size ||
                        memcmp(t[i].size, t[k].size, sizeof t[i].size));
    }
    /* too few models to solve for the rest of a step */
    assert_null(find_work(t, n, WEFT_WORK_NODE));
    assert_null(find_work(t, n, WEFT_WORK_STEP));
    assert_non_null(strstr(list.s, "\ngpt,64,32,32,1,0,1,256,"));
    weft_text_fini(&list);
    weft_arena_destroy(a);
    weft_session_close_device(d);
}

/* A calibration runs for minutes: none of its models may be one that does not compile. */
static void every_model_compiles(void **state)
{
    int                      n;
    const weft_sweep__model *m = weft_sweep__gpu_models(&n);
    (void)state;
    for (int i = 0; i < n; i++) {
        char              text[640] = "";
        weft_training     training  = {0};
        weft_compile_spec spec = weft_compile_spec_default(text, m[i].batch, m[i].seq);
        weft_sweep__describe(&m[i], text, sizeof text);
        spec.micro_batch = m[i].batch;
        spec.recompute   = m[i].recompute;
        spec.dtype       = "bf16";
        weft_compile_for_cuda(&spec);
        assert_ok(weft_compile_training(&spec, &training));
        weft_training_fini(&training);
    }
}

/* A launch of 20 us, 0.1 us a tensor, 4 TB/s: found from models of few tensors and of many, to
 * what is measured in them. */
static void a_launch_is_split_from_its_tensors(void **state)
{
    (void)state;
    const int          count[] = {16, 52, 292, 28, 40};
    const double       bytes[] = {1e6, 4e6, 2e7, 4e10, 1e8};
    weft_sweep__shared all[5];
    for (int i = 0; i < 5; i++)
        all[i] = (weft_sweep__shared){.kind  = "sumsq",
                                      .n     = count[i],
                                      .bytes = bytes[i],
                                      .s = 20e-6 + 0.1e-6 * count[i] + bytes[i] / 4e12};
    weft_sweep__shared x = all[3];
    weft_sweep__fit_launch(all, 5, &x);
    assert_true(fabs(x.once_s - 20e-6) < 1e-6 && fabs(x.each_s - 0.1e-6) < 1e-8);
    weft_sweep__fit_launch(all + 3, 1, &x); /* one model: all of it is its bytes */
    assert_true(x.once_s < 1e-12 && x.each_s < 1e-12);
}

/* Of an even number of times the mean of the two in the middle: two runs of a model are no reason
 * to take the slower one. */
static void times_are_medians(void **state)
{
    (void)state;
    static const double times[] = {5, 1, 3, 2, 9}, median[] = {5, 3, 3, 2.5, 3};
    for (int n = 1; n <= 5; n++) {
        weft_sweep__samples s = {.n = n};
        weft_arena         *a = NULL;
        weft_timing        *t = NULL;
        int                 k = 0;
        assert_ok(weft_arena_create(&a));
        s.sample = calloc((size_t)n, sizeof *s.sample);
        for (int i = 0; i < n; i++)
            s.sample[i] =
                (weft_sweep__sample){{.kind = "add", .n = 1, .size = {8}}, times[i]};
        assert_ok(weft_sweep__sum_up(&s, a, &t, &k));
        assert_int_equal(k, 1);
        assert_true(t[0].s == median[n - 1]);
        free(s.sample);
        weft_arena_destroy(a);
    }
}

/* With a file for them, algorithms of matmuls are measured and written; nothing is timed. */
static void algorithms_are_written(void **state)
{
    (void)state;
    char         path[] = "/tmp/weft-test-XXXXXX", line[600];
    int          fd = mkstemp(path), n = 0, n_line = 0;
    weft_device *d = NULL;
    weft_arena  *a = NULL;
    weft_timing *t = NULL;
    assert_true(fd >= 0);
    setenv("WEFT_CUDA_TUNE", path, 1);
    assert_ok(weft_session_open_device(&(weft_session_device){.list = "cuda:0"}, &d));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_sweep_gpu(
        &(weft_sweep_gpu_options){.device = d, .n_model = 1, .tunes = true}, a, &t, &n));
    assert_int_equal(n, 0);
    unsetenv("WEFT_CUDA_TUNE");
    weft_arena_destroy(a);
    weft_session_close_device(d);
    FILE *f = fdopen(fd, "r");
    while (fgets(line, sizeof line, f)) n_line += line[0] != '#';
    fclose(f);
    remove(path);
    assert_true(n_line >= 5); /* qkv, out, fc, proj, head and their gradients */
}

static char said[400];

static void keep_line(const char *line)
{
    snprintf(said, sizeof said, "%s", line);
}

static void a_choice_has_a_limit(void **state)
{
    (void)state;
    weft_device *d = NULL;
    weft_arena  *a = NULL;
    weft_timing *t = NULL;
    int          n = 0;
    assert_ok(weft_session_open_device(&(weft_session_device){.list = "cuda:0"}, &d));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_sweep_gpu(&(weft_sweep_gpu_options){.device       = d,
                                                       .n_model      = 2,
                                                       .tunes        = true,
                                                       .tune_limit_s = 1e-9,
                                                       .log          = keep_line},
                             a, &t, &n));
    assert_non_null(strstr(said, "2 models are left out after 1e-09 s"));
    weft_arena_destroy(a);
    weft_session_close_device(d);
}

/* What weft plan says a program takes is what it takes, all but tables of the host's. */
static void memory_is_as_planned(void **state)
{
    (void)state;
    weft_device      *d    = NULL;
    weft_training     t    = {0};
    weft_compiled     c    = {0};
    weft_runner      *r    = NULL;
    weft_device_kind  kind = {.name = "gpu", .vendor = "nvidia"};
    weft_compile_spec spec = weft_compile_spec_default(
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 2, "
        "\"vocab_size\": 300, \"n_positions\": 64}",
        2, 64);
    spec.dtype = "bf16";
    weft_compile_for_cuda(&spec);
    assert_ok(weft_session_open_device(&(weft_session_device){.list = "cuda:0"}, &d));
    assert_ok(weft_compile_training(&spec, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &c));
    assert_ok(weft_runner_create(&(weft_runner_options){.made = &c, .device = d}, &r));
    weft_runner_memory m       = weft_runner_mem(r);
    double             planned = (double)weft_cost_program_bytes(c.program, &kind);
    double             taken   = (double)(m.bytes - m.table_bytes) -
                   (double)weft_state_bytes(weft_runner_state(r));
    if (fabs(planned / taken - 1) > 0.01)
        fail_msg("%g bytes, %g planned", taken, planned);
    weft_runner_destroy(r);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    weft_session_close_device(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_timed),
        cmocka_unit_test(every_model_compiles),
        cmocka_unit_test(a_launch_is_split_from_its_tensors),
        cmocka_unit_test(times_are_medians),
        cmocka_unit_test(algorithms_are_written),
        cmocka_unit_test(a_choice_has_a_limit),
        cmocka_unit_test(memory_is_as_planned),
    };
    if (!test_gpu_start()) return 1;
    if (!test_gpu_is_real()) setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
