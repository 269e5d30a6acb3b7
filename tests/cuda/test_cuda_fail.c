/* The n-th call of the driver, cublasLt or cuDNN fails, in whole jobs on libraries of ours that
 * compute (tests/cuda/stub): every third n up to the end of the first step, and 17 drawn from those
 * after it; WEFT_TEST_FAILS=all: all of them (make fault), =NAME: all of one table alone.
 *
 * A job ends with one line, or with the result of the undisturbed run; what it held is given back;
 * the same job then goes on from its last checkpoint to the same bits. */
#include "support/test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "gpu_test.h"
#include "job/job.h"
#include "support/files.h"
#include "weft/session.h"

enum {
    N_DRAWN   = 50,
    RESUMED   = 40, /* of failures before the first checkpoint, one in so many goes on */
    TIMEOUT_S = 300 /* of one table: a hang ends the test */
};

static void (*set_failure)(long n, int all);
static long (*count_calls)(void);
static long (*count_held)(int forget);

typedef struct fail_case {
    const char *name, *libs, *keys;
    double      tolerance;  /* of a loss where a library's failure chose another kernel */
    int         every;      /* of the calls and of what is drawn, one in so many */
    int         save_every; /* steps */
} fail_case;

static const fail_case cases[] = {
    {"own kernels", "none", "dtype: fp32, lanes: 1, steps: 3", 0, 3, 1},
    /* after its first step updates go on while the second one begins */
    {"offload", "none", "dtype: bf16, lanes: 1, steps: 3, offload: optimizer", 0, 24, 2},
    /* the last one: libraries stay open */
    {"libraries", "only:" WEFT_TEST_CUDA_STUB, "dtype: bf16, steps: 2", 2e-2, 3, 1},
};

/* What an undisturbed run does. */
typedef struct good_run {
    weft_session_result r;
    long first, all; /* calls up to the end of the first step, and in all */
} good_run;

static int note_calls(void *arg)
{
    good_run *g = arg;
    if (!g->first) g->first = count_calls();
    return 0;
}

static const char *write_model(void)
{
    static const char text[] =
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], "
        "\"n_embd\": 8,"
        " \"n_layer\": 1, \"n_head\": 1, \"vocab_size\": 17, \"n_positions\": 8,"
        " \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";
    uint16_t tokens[64];
    for (int i = 0; i < 64; i++) tokens[i] = (uint16_t)(i * 7 % 17);
    mkdir(test_files_path("model"), 0777);
    test_files_write(test_files_path("model/config.json"), text, sizeof text - 1);
    test_files_write(test_files_path("tokens.bin"), tokens, sizeof tokens);
    return test_files_path("model");
}

static weft_status run_job(const fail_case *c, const char *out, good_run *g,
                           weft_session_result *r)
{
    char                 text[2048];
    weft_job            *j;
    weft_session_options o = {.quiet = true, .stop = g ? note_calls : NULL, .arg = g};
    snprintf(
        text, sizeof text,
        "{model: %s, data: %s, seq: 4, batch: 2, micro_batch: 1, device: "
        "cuda, plan: off, threads: 1, init: random, checkpoint: {every: %d}, optimizer: "
        "{clip: 1}, output: %s, %s}",
        test_files_path("model"), test_files_path("tokens.bin"), c->save_every, out,
        c->keys);
    assert_ok(weft_job_parse("test.yaml", text, strlen(text), 0, NULL, &j));
    weft_status st = weft_session_run(j, &o, r);
    weft_job_destroy(j);
    return st;
}

static bool is_one_line(const char *text)
{
    return *text && !strchr(text, '\n');
}

/* How runs ended, for the table of make fault. */
typedef struct fail_counts {
    int runs, refused, failed, unharmed, other_kernel, resumed;
} fail_counts;

/* The same job again, undisturbed. */
static void check_resume(const fail_case *c, const good_run *good, long n,
                         const char *out, fail_counts *count)
{
    weft_session_result r = {0};
    assert_ok(run_job(c, out, NULL, &r));
    if (r.weights_xxh64 == good->r.weights_xxh64)
        count->resumed++;
    else if (!(fabs(r.loss - good->r.loss) <= c->tolerance))
        fail_msg("%s, call %ld: resumed to other weights", c->name, n);
    assert_int_equal(count_held(0), 0);
}

static void check_failure(const fail_case *c, const good_run *good, long n, bool lost,
                          fail_counts *count)
{
    weft_session_result r   = {0};
    const char         *out = test_files_path("out");
    char                text[1024];
    set_failure(n, lost);
    weft_status st = run_job(c, out, NULL, &r);
    snprintf(text, sizeof text, "%s", st == WEFT_OK ? "" : weft_error_text());
    count->runs++;
    count->refused += st == WEFT_ERR_ARG;
    count->failed += st != WEFT_OK && st != WEFT_ERR_ARG;
    if (st != WEFT_OK && !is_one_line(text))
        fail_msg("%s, call %ld: not one line: '%s'", c->name, n, text);
    if (st == WEFT_OK && r.weights_xxh64 == good->r.weights_xxh64) count->unharmed++;
    if (st == WEFT_OK && r.weights_xxh64 != good->r.weights_xxh64) {
        count->other_kernel++;
        if (!(fabs(r.loss - good->r.loss) <= c->tolerance))
            fail_msg("%s, call %ld: loss %g is not %g", c->name, n, r.loss, good->r.loss);
    }
    set_failure(0, 0);
    long held = count_held(1);
    if (held >
        (lost ? 1 << 20 : 1)) /* the call that gives a thing back may be the failed one */
        fail_msg("%s, call %ld: %ld things were not given back (%s)", c->name, n, held,
                 text);
    if (n > good->first || n % RESUMED == 0) check_resume(c, good, n, out, count);
    test_files_remove(out);
}

static void check_case(const fail_case *c)
{
    bool        all    = getenv("WEFT_TEST_FAILS") != NULL;
    good_run    good   = {.first = 0};
    fail_counts count  = {0};
    uint32_t    key[2] = {14, 3}, word[4];
    int         every  = c->every * (WEFT_TEST_SANITIZED ? 8 : TEST_FEW(2));
    setenv("WEFT_CUDA_LIBS", c->libs, 1);
    set_failure(0, 0);
    assert_ok(run_job(c, test_files_path("out"), &good, &good.r));
    good.all = count_calls();
    assert_true(good.first > 100 && good.all > good.first);
    assert_int_equal(count_held(0), 0);
    test_files_remove(test_files_path("out"));
    for (long n = 1; n <= (all ? good.all : good.first); n += all ? 1 : every)
        check_failure(c, &good, n, false, &count);
    for (uint32_t i = 0; i < N_DRAWN && !all; i += (uint32_t)every) {
        weft_random_philox(key, (uint32_t[4]){i, 0, 0, 0}, word);
        long after = good.first + 1 + (long)(word[0] % (uint32_t)(good.all - good.first));
        check_failure(c, &good, after, false, &count);
        check_failure(c, &good, 1 + (long)(word[1] % (uint32_t)good.all), true, &count);
    }
    for (long n = 1; all && n <= good.all; n++) check_failure(c, &good, n, true, &count);
    print_message(
        "%s: %ld calls, %ld up to the end of step 1; %d failures: %d refused, %d "
        "ended the job, %d unnoticed, %d chose another kernel; %d resumed to the "
        "same bits\n",
        c->name, good.all, good.first, count.runs, count.refused, count.failed,
        count.unharmed, count.other_kernel, count.resumed);
    assert_true(count.failed > 50 / every);
}

static void test_failures(void **state)
{
    const char *which = getenv("WEFT_TEST_FAILS");
    (void)state;
    if (test_gpu_is_real()) skip();
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        if (which && strcmp(which, "all") && strcmp(which, cases[i].name)) continue;
        alarm(which ? 0 : TIMEOUT_S);
        check_case(&cases[i]);
    }
    alarm(0);
}

static bool find_stub(void)
{
    void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol[3];
    if (!so) return test_gpu_is_real();
    symbol[0] = dlsym(so, "stub_gpu_fail");
    symbol[1] = dlsym(so, "stub_gpu_calls");
    symbol[2] = dlsym(so, "stub_gpu_held");
    memcpy(&set_failure, &symbol[0], sizeof set_failure);
    memcpy(&count_calls, &symbol[1], sizeof count_calls);
    memcpy(&count_held, &symbol[2], sizeof count_held);
    return (symbol[0] && symbol[1] && symbol[2]) || test_gpu_is_real();
}

int main(void)
{
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    if (!test_gpu_start() || !find_stub()) return 1;
    test_files_begin();
    write_model();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures)};
    int                     code    = cmocka_run_group_tests(tests, NULL, NULL);
    test_files_end();
    return code;
}
