/* The job file: keys, overrides, defaults, ranges, what a resume compares. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "job/job.h"

#define MIN "model: tiny256\ndata: x.bin\nseq: 64\nbatch: 8\nsteps: 10\n"

static weft_job *parse(const char *text, int n, const char *const *assign)
{
    weft_job *j = NULL;
    if (weft_job_parse("job.yaml", text, strlen(text), n, assign, &j) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return j;
}

static void refuse(const char *text, const char *words)
{
    weft_job *j = NULL;
    assert_int_equal(weft_job_parse("job.yaml", text, strlen(text), 0, NULL, &j),
                     WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), words))
        fail_msg("'%s' lacks '%s'", weft_error_text(), words);
}

static void test_defaults(void **s)
{
    (void)s;
    weft_job *j = parse(MIN, 0, NULL);
    assert_int_equal(j->micro_batch, 8);
    assert_int_equal(j->lanes, 1);
    assert_string_equal(j->optimizer.name, "adamw");
    assert_true(j->init);
    assert_null(j->eval.data);
    weft_job_destroy(j);
}

static void test_all_keys(void **s)
{
    (void)s;
    weft_job *j = parse(
        MIN "micro_batch: 2\nlanes: 2\nreduction: fixed\nshuffle: true\ndtype: bf16\n"
            "seed: 9\noutput: o\ninit: random\nrecompute: true\nthreads: 2\n"
            "optimizer: {name: sgd, lr: 1e-2, betas: [0.8, 0.95], eps: 1e-6,\n"
            "  weight_decay: 0.1, momentum: 0.9, clip: 1}\n"
            "lr_schedule: {name: cosine, warmup: 3, decay_steps: 9, min_lr: 1e-4}\n"
            "checkpoint: {every: 5, keep: 3}\n"
            "eval: {data: e.bin, every: 4, batches: 2}\n",
        0, NULL);
    assert_int_equal(j->lanes, 2);
    assert_int_equal(j->strategy.recompute, WEFT_STRATEGY_FULL);
    assert_true(j->optimizer.beta[1] == 0.95);
    assert_true(j->lr_schedule.min_lr == 1e-4);
    assert_int_equal(j->eval.batches, 2);

    weft_text t = {0}, u = {0};
    weft_job *k = NULL;
    weft_job_print(j, &t);
    assert_int_equal(weft_job_parse("job.json", t.s, t.n, 0, NULL, &k), WEFT_OK);
    weft_job_print(k, &u);
    assert_string_equal(t.s, u.s);
    weft_text_fini(&t);
    weft_text_fini(&u);
    weft_job_destroy(j);
    weft_job_destroy(k);
}

static void test_overrides(void **s)
{
    (void)s;
    const char *a[] = {"optimizer.lr=0.25", "micro_batch=1", "eval.data=a=b.bin",
                       "batch=24",          "tp_exclude=0",  "dp=3"};
    weft_job   *j   = parse(MIN, 6, a);
    assert_true(j->optimizer.lr == 0.25);
    assert_int_equal(j->strategy.n_tp_exclude, 1); /* layer 0: a number, and a text */
    assert_int_equal(j->strategy.tp_exclude[0].last, 0);
    assert_int_equal(j->lanes, 4); /* the smallest power of two from dp on */
    assert_string_equal(j->eval.data, "a=b.bin");
    weft_job_destroy(j);
}

static void test_refused(void **s)
{
    (void)s;
    refuse(MIN "stesp: 4\n", "did you mean 'steps'");
    refuse(MIN "optimizer: {lrr: 1}\n", "did you mean 'lr'");
    refuse(MIN "micro_batch: 3\n", "does not divide");
    refuse(MIN "micro_batch: 1\nlanes: 3\n", "power of two");
    refuse(MIN "micro_batch: 4\nlanes: 4\n", "lanes 4 is more");
    refuse(MIN "threads: -1\n", "job.yaml:6: threads");
    refuse(MIN "dtype: fp16\n", "fp16 is not supported yet: use bf16");
    refuse(MIN "dtype: fp8_e4m3\n", "it is fp8 here, with fp8_format: e4m3 or hybrid");
    refuse(MIN "dtype: fp8\nfp8_format: e5m2\n", "'e5m2' is none of: e4m3 hybrid");
    refuse(MIN "dtype: bf16\nfp8_format: hybrid\n", "is for dtype=fp8, not for bf16");
    refuse(MIN "optimizer: {betas: [1]}\n", "two numbers");
    refuse(MIN "optimizer: 3\n", "map");
    refuse(MIN "shuffle: 3\n", "true or false");
    refuse(MIN "mesh: dp=2\n",
           "job.yaml:6: unknown key 'mesh': parallel sizes are plain");
    refuse(MIN "sums: fast\n", "unknown key 'sums': it is reduction now");
    refuse(MIN "learning_rate: 1e-3\n", "it is optimizer.lr here");
    refuse(MIN "zero: 4\n", "job.yaml:6: zero: 4 is out of range, from 0 to 3");
    refuse(MIN "init: false\n", "expected one of: load random");
    refuse(MIN "tp_exclude: -1\n", "expected input, head, blocks or layers");
    refuse(MIN "plan: p.json\ndp: 2\n", "plan says it all");
    refuse(MIN "eval: {every: 5}\n", "eval.every is given without eval.data");
    refuse(MIN "eval: {batches: 5}\n", "eval.batches is given without eval.data");
    refuse(MIN "lanes: 4\nmicro_batch: 8\n", "set micro_batch to at most 2");
    refuse(MIN "lanes: 16\n", "lanes 16 is more than batch 8");
    refuse("model: a\ndata: b\nbatch: 2\n", "steps is missing");
    refuse("data: b\n", "model is missing");
    refuse("[1, 2]\n", "map of keys");
}

static void allow_names_known_keys_only(void **s)
{
    unsigned bits;
    (void)s;
    assert_int_equal(weft_job_parse_allow(NULL, &bits), WEFT_OK);
    assert_int_equal(bits, 0);
    assert_int_equal(weft_job_parse_allow("micro_batch", &bits), WEFT_OK);
    assert_int_equal(bits, WEFT_JOB_ALLOW_MICRO_BATCH);
    assert_int_equal(weft_job_parse_allow("micro_batch,lanes", &bits), WEFT_OK);
    assert_int_equal(bits, WEFT_JOB_ALLOW_ALL);
    assert_int_equal(weft_job_parse_allow("lanes,optimizer.lr", &bits), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "'optimizer.lr' is none of the keys"));
    assert_int_equal(weft_job_parse_allow("", &bits), WEFT_ERR_ARG);
}

static void test_schedule(void **s)
{
    (void)s;
    const char *a[] = {
        "lr_schedule={name: linear, warmup: 4, decay_steps: 8, min_lr: 0.1}",
        "optimizer.lr=1"};
    weft_job *j      = parse(MIN, 2, a);
    double    want[] = {0.25, 0.5, 0.75, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1};
    for (int i = 0; i < 10; i++)
        assert_true(fabs(weft_job_lr(j, i + 1) - want[i]) < 1e-12);
    weft_job_destroy(j);
    const char *b[] = {"lr_schedule.name=cosine", "optimizer.lr=2"};
    j               = parse(MIN, 2, b);
    assert_true(weft_job_lr(j, 1) == 2);
    assert_true(fabs(weft_job_lr(j, 6) - 1) < 1e-12); /* half of 10 steps */
    assert_true(weft_job_lr(j, 11) == 0);
    weft_job_destroy(j);
}

/* micro_batch and lanes are compared where the plan is decided: --allow may change them. */
static void lists_of_levels(void **s)
{
    (void)s;
    static const struct {
        const char *text, *want;
    } list[] = {{"recover: [replace, shrink]\n", "replace,shrink"},
                {"recover: replace,stop\n", "replace,stop"},
                {"recover: [checkpoint]\n", "checkpoint"},
                {"recover: on\n", "on"},
                {"", "off"}};
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", MIN, list[k].text);
        weft_job *j = parse(text, 0, NULL);
        assert_string_equal(j->recover, list[k].want);
        weft_job_destroy(j);
    }
    refuse(MIN "recover: [replace, of]\n", "'of' is none of");
    refuse(MIN "recover: replace,on\n", "'on' stands alone");
    refuse(MIN "recover: replace,\n", "is none of");
    refuse(MIN "recover: []\n", "expected some of");
    refuse(MIN "recover: 3\n", "expected some of");
}

static void test_same(void **s)
{
    (void)s;
    const char *more[] = {"steps=20", "threads=3", "output=elsewhere"};
    const char *lr[]   = {"optimizer.betas=[0.9,0.95]"};
    weft_text   id     = {0};
    weft_job   *j = parse(MIN "micro_batch: 2\n", 0, NULL), *k = parse(MIN, 3, more);
    weft_job_print_identity(j, &id);
    assert_non_null(strstr(id.s, "\"micro_batch\": 2, \"lanes\": 1"));
    assert_int_equal(weft_job_same(k, id.s, "step-10"), WEFT_OK);
    weft_job_destroy(k);
    k = parse(MIN "micro_batch: 2\n", 1, lr);
    assert_int_equal(weft_job_same(k, id.s, "step-10"), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "optimizer.betas"));
    weft_job_destroy(j);
    weft_job_destroy(k);
    weft_text_fini(&id);
    /* reduction as earlier builds have it, and auto, which is invariant here */
    j = parse(MIN, 0, NULL);
    assert_int_equal(weft_job_same(j, "{\"sums\": \"bitwise\"}", "step-2"), WEFT_OK);
    assert_int_equal(weft_job_same(j, "{\"sums\": \"fast\"}", "step-2"), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "reduction is \"fixed\" there"));
    assert_int_equal(weft_job_same(j, "{\"reduction\": \"invariant\"}", "step-2"),
                     WEFT_OK);
    weft_job_destroy(j);
}

/* docs/job.md shows the table of job.def as it is. */
static void test_documented(void **s)
{
    (void)s;
    weft_text t = {0};
    char     *doc;
    size_t    n;
    weft_job_print_keys_md(&t);
    assert_int_equal(weft_io_read_file("docs/job.md", &doc, &n), WEFT_OK);
    if (!strstr(doc, t.s)) fail_msg("docs/job.md lacks this table:\n%s", t.s);
    free(doc);
    weft_text_fini(&t);
}

/* Entry r of a list for a host of n ranks, as "cuda 1"; or its error. */
static const char *device(const char *list, int r, int n)
{
    static char     text[256];
    weft_job_device d;
    if (weft_job_parse_device("job.yaml", list, r, n, &d) != WEFT_OK)
        return weft_error_text();
    snprintf(text, sizeof text, "%s %d", d.name, d.number);
    return text;
}

static void test_devices(void **state)
{
    (void)state;
    assert_string_equal(device("cpu", 0, 1), "cpu -1");
    assert_string_equal(device("cuda", 3, 4), "cuda -1");
    assert_string_equal(device("auto", 0, 2), "auto -1");
    assert_string_equal(device("cuda:12", 1, 2), "cuda 12");
    assert_string_equal(device("cuda:1,cpu,cuda", 0, 3), "cuda 1");
    assert_string_equal(device("cuda:1,cpu,cuda", 1, 3), "cpu -1");
    assert_string_equal(device("cuda:1,cpu,cuda", 2, 3), "cuda -1");
    assert_string_equal(
        device("cuda,cpu", 0, 3),
        "job.yaml: device cuda,cpu names 2 devices, and a host has 3 ranks: give one "
        "for each, or one for all");
    static const char *const bad[] = {"",        "gpu",        "cuda:",   "cuda:x",
                                      "cuda:-1", "cud",        "cuda:1x", "cuda 1",
                                      "Cuda",    "cuda:99999", "cpu,,",   ",cpu,cpu"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        int n = 1;
        for (const char *p = bad[i]; *p; p++) n += *p == ',';
        bool refused = false;
        for (int r = 0; r < n; r++)
            refused = refused ||
                      strstr(device(bad[i], r, n), "device is cpu, cuda, cuda:N or auto");
        if (!refused) fail_msg("'%s' is taken", bad[i]);
    }
    const char *word = "device=cuda:0,gpu";
    weft_job   *j;
    assert_int_equal(weft_job_parse("job.yaml", MIN, sizeof MIN - 1, 1, &word, &j),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "not 'gpu': a GPU is cuda"));
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(allow_names_known_keys_only),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(lists_of_levels),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_documented),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
