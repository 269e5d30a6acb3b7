/* Memory: a step allocates nothing, and what was planned is what the process grows by. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "weft/session.h"
#include "session/session_priv.h"
#include "support/count_alloc.h"
#include "support/files.h"

/* While a checkpoint is written that training waits for (session/checkpoint.c). */
#define CHECKPOINT_BUFFERS (16 << 20)
#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

typedef struct counts {
    int     n;
    int64_t at[64];
} counts;

static int count(void *arg)
{
    counts *c     = arg;
    c->at[c->n++] = weft_test_allocs();
    return 0;
}

static weft_session_result run(const char *job, weft_session_options *o)
{
    weft_job           *j;
    weft_session_result r;
    char                out[512];
    snprintf(out, sizeof out, "output=%s", test_files_path("out"));
    OK(weft_job_parse("test.yaml", job, strlen(job), 1, (const char *[]){out}, &j));
    OK(weft_session_run(j, o, &r));
    weft_job_destroy(j);
    return r;
}

/* Between the commit points of two steps lies a whole step: data, program, metrics, events. */
static void check_no_alloc(const char *job)
{
    counts               c = {0};
    weft_session_options o = {.quiet = true, .stop = count, .arg = &c};
    test_files_begin();
    run(job, &o);
    assert_true(c.n >= 4);
    for (int i = 1; i < c.n; i++)
        if (c.at[i] != c.at[i - 1])
            fail_msg("step %d made %lld allocations", i + 1,
                     (long long)(c.at[i] - c.at[i - 1]));
    /* the checkpoint after the last step shows that they are counted */
    assert_true(weft_test_allocs() > c.at[c.n - 1]);
    test_files_end();
}

static void test_step_allocates_nothing(void **s)
{
    (void)s;
    check_no_alloc(
        "{model: tests/fixtures/gpt2/init, data: tests/fixtures/gpt2/tokens.bin, seq: 12,"
        " batch: 6, micro_batch: 2, steps: 6, threads: 2, optimizer: {clip: 1}}");
    check_no_alloc(
        "{model: tests/fixtures/llama/init, data: tests/fixtures/llama/tokens.bin, seq: "
        "9,"
        " batch: 3, steps: 5, threads: 1, shuffle: true, optimizer: {name: lamb}}");
}

/* VmHWM or VmRSS of this process, in bytes. */
static int64_t status(const char *key)
{
    FILE   *f = fopen("/proc/self/status", "r");
    char    line[256];
    int64_t kb = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            kb = strtoll(line + strlen(key) + 1, NULL, 10);
    fclose(f);
    return kb * 1024;
}

static void test_planned_is_resident(void **s)
{
    (void)s;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: a sanitizer's memory is not ours\n");
    return;
#endif
    weft_session_options o = {.quiet = true};
    FILE                *f = fopen("/proc/self/clear_refs", "w");
    test_files_begin();
    if (!f || fputs("5", f) < 0 || fclose(f)) {
        print_message("skipped: the resident peak cannot be reset here\n");
        test_files_end();
        return;
    }
    int64_t             before = status("VmRSS:");
    weft_session_result r =
        run("{model: tiny, data: src, tokenizer: bytes, seq: 128, batch: 8, steps: 1, "
            "threads: 2}",
            &o);
    int64_t grown = status("VmHWM:") - before;
    print_message("planned %lld bytes, grown by %lld: %+.2f %%\n",
                  (long long)r.mem_peak_bytes, (long long)grown,
                  100 * ((double)grown / (double)r.mem_peak_bytes - 1));
    assert_true(r.mem_peak_bytes > 256 << 20);
    assert_true((double)grown > 0.98 * (double)r.mem_peak_bytes);
    assert_true((double)(grown - CHECKPOINT_BUFFERS) < 1.02 * (double)r.mem_peak_bytes);
    test_files_end();
}

/* A group without a limit says a number near the largest; pages of files may be more than what it
 * had a moment before. */
static void test_no_limit_is_not_less_than_nothing(void **state)
{
    (void)state;
    assert_true(weft_session__left(INT64_MAX - 4095, 1000, 900000) > INT64_MAX / 2);
    assert_true(weft_session__left(INT64_MAX, 0, INT64_MAX) > INT64_MAX / 2);
    assert_int_equal(weft_session__left(1000, 700, 200), 500);
    assert_int_equal(weft_session__left(1000, 700, 0), 300);
    assert_int_equal(weft_session__left(1000, 1100, 0), -100);
}

/* Old and new states together leave an eighth of what is free on each host; ranks of a host need
 * theirs together. */
static void test_short_memory_means_batches(void **state)
{
    static const int32_t host[] = {0, 0, 1};
    (void)state;
    weft_session__room of[] = {{400, 800}, {300, 800}, {700, 800}};
    assert_false(weft_session__is_short(of, host, 3));
    assert_true(weft_session__is_short(of, NULL, 3)); /* all on one host */
    of[1].need++;
    assert_true(weft_session__is_short(of, host, 3));
    of[1].need--;
    of[2].need++;
    assert_true(weft_session__is_short(of, host, 3));
    of[2] = (weft_session__room){0, -1}; /* it has not even what it needs now */
    assert_true(weft_session__is_short(of, host, 3));
    of[2] = (weft_session__room){0, 0};
    assert_false(weft_session__is_short(of, host, 3));
    of[0].have = of[1].have = INT64_MAX; /* no limit is known */
    assert_false(weft_session__is_short(of, host, 3));
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_step_allocates_nothing),
        cmocka_unit_test(test_planned_is_resident),
        cmocka_unit_test(test_no_limit_is_not_less_than_nothing),
        cmocka_unit_test(test_short_memory_means_batches),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
