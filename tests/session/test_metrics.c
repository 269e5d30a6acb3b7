/* metrics.jsonl: each step has one line, whatever was cut off and resumed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/metrics.h"
#include "support/files.h"

static void add(const char *dir, int64_t done, int64_t from, int64_t to)
{
    weft_metrics *m;
    assert_int_equal(weft_metrics_open(dir, done, false, &m), WEFT_OK);
    for (int64_t s = from; s <= to; s++) {
        weft_metrics_row r = {
            .step = s, .loss = 0.1 + (double)s, .lr = 1e-3, .eval_loss = NAN};
        assert_int_equal(weft_metrics_add(m, &r), WEFT_OK);
    }
    assert_int_equal(weft_metrics_close(m), WEFT_OK);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; (text = strchr(text, '\n')); text++) n++;
    return n;
}

/* A run that went past its checkpoint and was cut inside a line, resumed: each step once. */
static void test_one_line_a_step(void **s)
{
    (void)s;
    const char *dir  = test_files_begin();
    const char *path = test_files_path("metrics.jsonl");
    size_t      n;
    add(dir, 0, 1, 7);
    char *text = test_files_read(path, &n);
    test_files_write(path, text, n - 5);
    free(text);
    add(dir, 4, 5, 9);
    text = test_files_read(path, &n);
    assert_int_equal(count_lines(text), 9);
    for (int i = 1; i <= 9; i++) {
        char want[32];
        snprintf(want, sizeof want, "{\"step\": %d, ", i);
        assert_non_null(strstr(text, want));
    }
    assert_non_null(strstr(text, "\"loss\": 9.1, "));
    free(text);
    weft_metrics *m; /* a step whose line is missing gets it from elsewhere */
    assert_int_equal(weft_metrics_open(dir, 10, false, &m), WEFT_OK);
    assert_int_equal(weft_metrics_kept(m), 9);
    assert_int_equal(weft_metrics_add_text(m, "{\"step\": 10}", 12), WEFT_OK);
    assert_int_equal(weft_metrics_close(m), WEFT_OK);
    assert_int_equal(weft_metrics_open(dir, 10, false, &m), WEFT_OK);
    assert_int_equal(weft_metrics_kept(m), 10);
    assert_int_equal(weft_metrics_close(m), WEFT_OK);
    add(dir, 0, 1, 2); /* anew: nothing of the old run stays */
    text = test_files_read(path, &n);
    assert_int_equal(count_lines(text), 2);
    free(text);
    test_files_end();
}

/* A writer that was replaced while it was stopped goes on: nothing of it is in the file. */
static void test_a_fenced_writer(void **s)
{
    (void)s;
    const char      *dir  = test_files_begin();
    const char      *path = test_files_path("metrics.jsonl");
    weft_metrics_row r    = {.step = 3, .loss = 7, .eval_loss = NAN};
    weft_metrics    *old, *m;
    size_t           n;
    add(dir, 0, 1, 2);
    assert_int_equal(weft_metrics_open(dir, 2, true, &old), WEFT_OK);
    assert_int_equal(weft_metrics_open(dir, 2, true, &m), WEFT_OK);
    assert_int_equal(weft_metrics_kept(m), 2);
    assert_int_equal(weft_metrics_add(old, &r), WEFT_OK);
    r.loss = 5;
    assert_int_equal(weft_metrics_add(m, &r), WEFT_OK);
    r.step = 4;
    assert_int_equal(weft_metrics_add(old, &r), WEFT_OK);
    assert_int_equal(weft_metrics_close(old), WEFT_OK);
    assert_int_equal(weft_metrics_close(m), WEFT_OK);
    char *text = test_files_read(path, &n);
    assert_int_equal(count_lines(text), 3);
    assert_non_null(strstr(text, "{\"step\": 3, \"loss\": 5"));
    free(text);
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_one_line_a_step),
        cmocka_unit_test(test_a_fenced_writer),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
