/* What a run promises: the same bits for any number of threads, stopped and resumed or not; one
 * line a step; clear refusals; updates skipped where no label counts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/io.h"
#include "ckpt/ckpt.h"
#include "job/job.h"
#include "weft/session.h"
#include "store/hf_dir.h"
#include "support/files.h"

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

static const char *const base_job =
    "{model: tests/fixtures/gpt2/init, data: tests/fixtures/gpt2/tokens.bin, seq: 12, "
    "batch: 6,"
    " micro_batch: 2, steps: 6, shuffle: true, threads: 1,"
    " optimizer: {lr: 0.01, weight_decay: 0.1, clip: 1}}";

typedef struct stopper {
    int after, seen;
} stopper;

static int stop_after(void *arg)
{
    stopper *s = arg;
    return ++s->seen == s->after ? 15 : 0;
}

static weft_status try_run(const char *out, const char *const *assign, int n,
                           stopper *stop, bool fresh, weft_session_result *r)
{
    weft_job            *j;
    const char          *all[16];
    char                 place[512];
    weft_session_options o = {.quiet = true, .fresh = fresh};
    snprintf(place, sizeof place, "output=%s", test_files_path("%s", out));
    for (int i = 0; i < n; i++) all[i] = assign[i];
    all[n++] = place;
    if (stop) o.stop = stop_after, o.arg = stop;
    WEFT_TRY(weft_job_parse("test.yaml", base_job, strlen(base_job), n, all, &j));
    weft_status st = weft_session_run(j, &o, r);
    weft_job_destroy(j);
    return st;
}

/* Words are assignments, space between them. */
static weft_session_result run(const char *out, const char *words)
{
    weft_session_result r;
    char                copy[1024], *save = NULL;
    const char         *a[12];
    int                 n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        a[n++] = w;
    OK(try_run(out, a, n, NULL, false, &r));
    return r;
}

static int lines_of(const char *out)
{
    size_t n;
    int    lines = 0;
    char  *text  = test_files_read(test_files_path("%s/metrics.jsonl", out), &n);
    for (char *p = text; (p = strchr(p, '\n')); p++) lines++;
    free(text);
    return lines;
}

static void test_threads(void **s)
{
    (void)s;
    test_files_begin();
    uint64_t one = run("a", "").weights_xxh64;
    assert_true(run("b", "").weights_xxh64 == one);
    assert_true(run("c", "threads=2").weights_xxh64 == one);
    assert_true(run("d", "threads=3").weights_xxh64 == one);
    assert_true(run("e", "seed=2").weights_xxh64 != one); /* another order of samples */
    assert_true(test_files_same(test_files_path("a/final/model.safetensors"),
                                test_files_path("c/final/model.safetensors")));
    test_files_end();
}

static void test_threads_llama(void **s)
{
    (void)s;
    const char *llama =
        "model=tests/fixtures/llama/init data=tests/fixtures/llama/tokens.bin ";
    char two[256];
    snprintf(two, sizeof two, "%s threads=2", llama);
    test_files_begin();
    assert_true(run("a", llama).weights_xxh64 == run("b", two).weights_xxh64);
    test_files_end();
}

/* Without a causal mask, or an encoder-decoder: streams of tokens are refused. */
static bool needs_rows(const char *family)
{
    return !strcmp(family, "bert") || !strcmp(family, "ernie") ||
           !strncmp(family, "t5", 2);
}

/* The n tokens as rows of seq: labels are next tokens. */
static void write_rows(const char *path, const uint16_t *token, int n, int seq)
{
    int      rows   = (n - 1) / seq;
    int64_t  dim[2] = {rows, seq};
    int32_t *ids    = malloc(sizeof *ids * (size_t)(rows * seq) * 2);
    assert_non_null(ids);
    for (int i = 0; i < rows * seq; i++) {
        ids[i]              = token[i];
        ids[rows * seq + i] = token[i + 1];
    }
    weft_store_item item[2] = {
        {"input_ids", WEFT_DTYPE_I32, weft_shape_make(2, dim), {.data = ids}},
        {"labels", WEFT_DTYPE_I32, weft_shape_make(2, dim), {.data = ids + rows * seq}}};
    OK(weft_store_write(path, &(weft_store_spec){.item = item, .n_item = 2}));
    free(ids);
}

/* Every family: the same bits with 2 threads, recomputed, and resumed; near them in bf16. */
static void test_families(void **s)
{
    (void)s;
    static const char *const family[] = {"bert",    "ernie", "gpt2", "llama",   "mistral",
                                         "mixtral", "qwen2", "t5",   "t5-gated"};
    uint16_t                 token[400];
    for (size_t i = 0; i < 400; i++) token[i] = (uint16_t)(1 + i * i % 29);
    for (size_t i = 0; i < WEFT_COUNT(family); i++) {
        char job[512], two[600], full[600], half[600], part[600];
        test_files_begin();
        write_rows(test_files_path("t.safetensors"), token, 400, 8);
        test_files_write(test_files_path("t.bin"), token, sizeof token);
        snprintf(job, sizeof job,
                 "model=tests/fixtures/families/%s data=%s seq=8 batch=4 steps=4",
                 family[i],
                 test_files_path(needs_rows(family[i]) ? "t.safetensors" : "t.bin"));
        snprintf(two, sizeof two, "%s threads=2 recompute=selective", job);
        snprintf(full, sizeof full, "%s recompute=full", job);
        snprintf(half, sizeof half, "%s dtype=bf16", job);
        snprintf(part, sizeof part, "%s steps=2", job);
        weft_session_result a = run("a", job);
        if (!isfinite(a.loss) || run("b", two).weights_xxh64 != a.weights_xxh64 ||
            run("c", full).weights_xxh64 != a.weights_xxh64)
            fail_msg("%s: other bits", family[i]);
        run("d", part);
        if (run("d", job).weights_xxh64 != a.weights_xxh64)
            fail_msg("%s: other bits after a resume", family[i]);
        if (!(fabs(run("e", half).loss / a.loss - 1) < 0.03))
            fail_msg("%s: bf16", family[i]);
        test_files_end();
    }
}

/* Recomputation changes what is kept, not a bit of the result. */
static void test_recompute(void **s)
{
    (void)s;
    test_files_begin();
    weft_session_result none = run("a", ""), some = run("b", "recompute=selective"),
                        full = run("c", "recompute=full");
    assert_true(some.weights_xxh64 == none.weights_xxh64);
    assert_true(full.weights_xxh64 == none.weights_xxh64);
    test_files_end();
}

/* Three steps, then six: the bits of six at once; also after a stop in the middle. */
static void test_resume(void **s)
{
    (void)s;
    weft_session_result r;
    stopper             stop = {.after = 2};
    test_files_begin();
    uint64_t whole = run("a", "").weights_xxh64;
    run("b", "steps=3");
    r = run("b", "threads=2");
    assert_int_equal(r.first_step, 3);
    assert_true(r.weights_xxh64 == whole);
    assert_int_equal(lines_of("b"), 6);

    OK(try_run("c", NULL, 0, &stop, false, &r));
    assert_int_equal(r.stopped, 15);
    assert_int_equal(r.steps, 2);
    r = run("c", "");
    assert_true(r.weights_xxh64 == whole);
    assert_int_equal(lines_of("c"), 6);

    weft_session_result again = run("c", ""); /* nothing left to do */
    assert_true(again.weights_xxh64 == whole && again.loss == r.loss && again.steps == 6);
    assert_int_equal(lines_of("c"), 6);
    test_files_end();
}

/* Rows of a file say how long a sequence is, in the first run and in the second. */
static void test_resume_by_rows(void **s)
{
    (void)s;
    struct {
        uint64_t n_head;
        char     head[160];
        int32_t  id[2 * 16 * 8];
    } f = {.n_head = sizeof f.head};
    char job[512], part[600];
    snprintf(f.head, sizeof f.head, "%-159s",
             "{\"input_ids\": {\"dtype\": \"I32\", \"shape\": [16,8], \"data_offsets\": "
             "[0,512]}, \"labels\": {\"dtype\": \"I32\", \"shape\": [16,8], "
             "\"data_offsets\": [512,1024]}}");
    f.head[sizeof f.head - 1] = ' ';
    for (int i = 0; i < 256; i++) f.id[i] = 1 + i * i % 29;
    test_files_begin();
    test_files_write(test_files_path("t.safetensors"), &f, sizeof f);
    snprintf(job, sizeof job,
             "model=tests/fixtures/families/bert data=%s seq=0 batch=4 steps=4",
             test_files_path("t.safetensors"));
    snprintf(part, sizeof part, "%s steps=2", job);
    uint64_t whole = run("a", job).weights_xxh64;
    run("b", part);
    weft_session_result r = run("b", job);
    assert_int_equal(r.first_step, 2);
    assert_true(r.weights_xxh64 == whole);
    test_files_end();
}

/* Every optimizer, storage type and schedule goes through a resume unchanged. */
static void test_resume_kinds(void **s)
{
    (void)s;
    static const char *const kind[] = {
        "dtype=bf16",
        "optimizer.name=sgd optimizer.momentum=0.9",
        "optimizer.name=sgd",
        "optimizer.name=adam",
        "optimizer.name=adagrad",
        "optimizer.name=lamb",
        "lr_schedule.name=cosine lr_schedule.warmup=2 lr_schedule.decay_steps=6 "
        "micro_batch=1 lanes=2",
        "checkpoint.every=1 checkpoint.keep=1 eval.data=tests/fixtures/gpt2/tokens.bin "
        "eval.every=2 eval.batches=2",
    };
    for (size_t i = 0; i < WEFT_COUNT(kind); i++) {
        char part[512];
        test_files_begin();
        weft_session_result a = run("a", kind[i]);
        assert_true(isfinite(a.loss) && a.loss > 0 && a.loss < 6);
        snprintf(part, sizeof part, "%s steps=3", kind[i]);
        run("b", part);
        if (run("b", kind[i]).weights_xxh64 != a.weights_xxh64) fail_msg("%s", kind[i]);
        assert_int_equal(lines_of("b"), 6);
        test_files_end();
    }
}

static void refuse(const char *words, weft_status want, const char *text)
{
    weft_session_result r;
    char                copy[512], *save = NULL;
    const char         *a[12];
    int                 n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        a[n++] = w;
    assert_int_equal(try_run("a", a, n, NULL, false, &r), want);
    if (!strstr(weft_error_text(), text))
        fail_msg("%s: '%s' lacks '%s'", words, weft_error_text(), text);
}

static void test_refused(void **s)
{
    (void)s;
    weft_session_result r;
    test_files_begin();
    uint64_t hash = run("a", "steps=2").weights_xxh64;
    refuse("optimizer.lr=0.02", WEFT_ERR_ARG, "optimizer.lr is 0.01 there and 0.02 here");
    refuse("model=tests/fixtures/llama/init", WEFT_ERR_ARG, "another model");
    refuse("data=tests/fixtures/llama/tokens.bin", WEFT_ERR_ARG, "other data");
    OK(try_run("a", (const char *[]){"steps=2"}, 1, NULL, true, &r)); /* --fresh */
    assert_non_null(strstr(r.output, "/a/run-2"));
    assert_int_equal(r.first_step, 0);
    assert_true(r.weights_xxh64 == hash);
    assert_int_equal(lines_of("a/run-2"), 2);
    test_files_end();

    test_files_begin();
    refuse("model=tests/fixtures/absent", WEFT_ERR_ARG, "tests/fixtures/absent");
    refuse("data=tests/absent.bin", WEFT_ERR_ARG, "tests/absent.bin");
    refuse("seq=17", WEFT_ERR_ARG, "17");
    refuse("data=tests/session/test_session.c", WEFT_ERR_ARG,
           "gpt2/init's vocabulary has 61 tokens; weft reads text as bytes");
    refuse("data=tests/session tokenizer=auto", WEFT_ERR_ARG, "or set tokenizer: bytes");
    refuse("eval.data=tests/session", WEFT_ERR_ARG, "or set tokenizer: bytes");
    refuse("data=tests/session/test_session.c tokenizer=bytes", WEFT_ERR_ARG,
           "vocabulary");
    refuse("optimizer.name=sgd optimizer.lr=1e6 optimizer.clip=0 steps=30",
           WEFT_ERR_NUMERIC, "is not finite");
    test_files_end();
}

/* Rows whose labels are all ignored: loss 0, weights untouched, said in the metrics. */
/* A folder has one run at a time; the next one waits a moment for it to end. */
static void test_two_runs(void **s)
{
    (void)s;
    weft_session_result r;
    test_files_begin();
    run("a", "steps=2");
    int fd = open(test_files_path("a"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refuse("steps=3", WEFT_ERR_ARG, "another run writes there");
    OK(try_run("a", (const char *[]){"steps=2"}, 1, NULL, true, &r)); /* --fresh */
    close(fd);
    assert_int_equal(run("a", "steps=3").first_step, 2);
    test_files_end();
}

static void test_no_labels(void **s)
{
    (void)s;
    int32_t         ids[4 * 4] = {1, 2, 3, 4, 5, 6, 7, 8}, labels[4 * 4];
    int64_t         dim[2]     = {4, 4};
    size_t          n;
    const char     *words;
    char            buf[512];
    weft_store_item item[2];
    for (int i = 0; i < 16; i++) labels[i] = -100;
    item[0] = (weft_store_item){
        "input_ids", WEFT_DTYPE_I32, weft_shape_make(2, dim), {.data = ids}};
    item[1] = (weft_store_item){
        "labels", WEFT_DTYPE_I32, weft_shape_make(2, dim), {.data = labels}};
    test_files_begin();
    OK(weft_store_write(test_files_path("d.safetensors"),
                        &(weft_store_spec){item, 2, NULL, 0, NULL}));
    snprintf(buf, sizeof buf, "data=%s seq=4 batch=2 micro_batch=2 steps=2",
             test_files_path("d.safetensors"));
    refuse(buf, WEFT_ERR_ARG, "no label in it counts"); /* in all of the data */
    labels[3 * 4] = 1; /* what a causal model does not learn from */
    OK(weft_store_write(test_files_path("d.safetensors"),
                        &(weft_store_spec){item, 2, NULL, 0, NULL}));
    refuse(buf, WEFT_ERR_ARG, "no label in it counts");
    labels[3 * 4 + 1] = 1;
    OK(weft_store_write(test_files_path("d.safetensors"),
                        &(weft_store_spec){item, 2, NULL, 0, NULL}));
    snprintf(buf, sizeof buf, "data=%s seq=4 batch=2 micro_batch=2 steps=1 shuffle=false",
             test_files_path("d.safetensors"));
    words                 = buf;
    weft_session_result r = run("b", words);
    assert_true(r.loss == 0);
    char *text = test_files_read(test_files_path("b/metrics.jsonl"), &n);
    assert_non_null(strstr(text, "\"labels\": 0, \"skipped\": true"));
    free(text);
    assert_true(test_files_same("tests/fixtures/gpt2/init/model.safetensors",
                                test_files_path("b/final/model.safetensors")));
    test_files_end();
}

/* A damaged newest checkpoint is passed over for the one before it. */
static void test_damaged(void **s)
{
    (void)s;
    size_t n;
    test_files_begin();
    uint64_t whole = run("a", "").weights_xxh64;
    run("b", "steps=4 checkpoint.every=2 checkpoint.wait=60");
    const char *path = test_files_path("b/checkpoints/step-00000004/model.safetensors");
    if (!weft_io_exists(path)) { /* the folder's name is ckpt's affair */
        weft_ckpt_info *info;
        int             k;
        OK(weft_ckpt_list(test_files_path("b/checkpoints"), false, &info, &k));
        path = test_files_path("b/checkpoints/%s/model.safetensors", info[0].dir);
        free(info);
    }
    char *text = test_files_read(path, &n);
    text[n / 2] ^= 1;
    test_files_write(path, text, n);
    free(text);
    weft_session_result r = run("b", "");
    assert_int_equal(r.first_step, 2);
    assert_true(r.weights_xxh64 == whole);
    assert_int_equal(lines_of("b"), 6);
    test_files_end();
}

/* The disk is full at the n-th write: said so, nothing lost, and the run goes on when there is
 * room. */
static void test_full_disk(void **s)
{
    (void)s;
    weft_session_result r;
    const char         *words[] = {"steps=5", "checkpoint.every=1"};
    test_files_begin();
    uint64_t whole = run("a", "steps=5").weights_xxh64;
    run("b", "steps=2");
    int failed = 0;
    for (int64_t n = 1; n < 400; n += 7) {
        weft_io_fail_at(n, ENOSPC, true);
        weft_status st = try_run("b", words, 2, NULL, false, &r);
        weft_io_fail_at(0, 0, false);
        if (st == WEFT_OK) break;
        if (st != WEFT_ERR_FULL) fail_msg("write %d: %s", (int)n, weft_error_text());
        failed++;
    }
    assert_true(failed > 3);
    OK(try_run("b", words, 2, NULL, false, &r));
    assert_true(r.weights_xxh64 == whole);
    assert_int_equal(lines_of("b"), 5);
    test_files_end();
}

/* init: random draws weights, so the files' numbers do not matter; lr: 0 only exports. */
static void test_init(void **s)
{
    (void)s;
    test_files_begin();
    assert_true(run("a", "steps=1 optimizer.lr=0").weights_xxh64 !=
                run("b", "steps=1 optimizer.lr=0 init=random").weights_xxh64);
    assert_true(test_files_same("tests/fixtures/gpt2/init/model.safetensors",
                                test_files_path("a/final/model.safetensors")));
    assert_true(test_files_same("tests/fixtures/gpt2/init/config.json",
                                test_files_path("a/final/config.json")));
    weft_session_result r = run("c", "init=random steps=1");
    assert_true(fabs(r.loss - log(61)) < 0.1); /* knows nothing yet: all tokens alike */
    test_files_end();
}

/* Shards with an index and a tensor nobody knows go in and come out as the same bytes. */
static void test_shards(void **s)
{
    (void)s;
    static const int64_t  odd[3] = {1, -2, 3};
    const weft_store_pair meta   = {"format", "pt"};
    weft_store_dir       *d;
    weft_store_item       item[64];
    char                  words[512];
    size_t                n_text;
    int                   n = 0;
    test_files_begin();
    OK(weft_store_dir_open("tests/fixtures/gpt2/init", &d));
    for (int i = 0; i < weft_store_dir_count(d); i++) {
        const weft_store_tensor *t = weft_store_dir_at(d, i);
        item[n++] = (weft_store_item){t->name, t->dtype, t->shape, {.data = t->data}};
    }
    item[n++] = (weft_store_item){
        "extra.steps", WEFT_DTYPE_I64, weft_shape_make(1, (int64_t[]){3}), {.data = odd}};
    OK(weft_store_dir_write(test_files_path("m"), item, n, &meta, 1, 12000));
    weft_store_dir_close(d);
    char *text = test_files_read("tests/fixtures/gpt2/init/config.json", &n_text);
    test_files_write(test_files_path("m/config.json"), text, n_text);
    free(text);
    snprintf(words, sizeof words, "model=%s steps=1 optimizer.lr=0",
             test_files_path("m"));
    run("a", words);
    assert_true(test_files_same(test_files_path("m/model.safetensors.index.json"),
                                test_files_path("a/final/model.safetensors.index.json")));
    assert_true(
        test_files_same(test_files_path("m/model-00001-of-00003.safetensors"),
                        test_files_path("a/final/model-00001-of-00003.safetensors")));
    assert_true(
        test_files_same(test_files_path("m/model-00003-of-00003.safetensors"),
                        test_files_path("a/final/model-00003-of-00003.safetensors")));
    test_files_end();
}

/* What is dropped depends on seed, step, sample and place: not on threads, cuts or recomputation.
 */
static void test_dropout(void **s)
{
    (void)s;
    char   job[512], words[600];
    size_t n;
    char  *text = test_files_read("tests/fixtures/gpt2/init/config.json", &n), *at;
    test_files_begin();
    at = strstr(text, "\"resid_pdrop\": 0.0");
    assert_non_null(at);
    at[17] = '2'; /* 0.0 -> 0.2 */
    OK(weft_io_mkdirs(test_files_path("m")));
    test_files_write(test_files_path("m/config.json"), text, n);
    free(text);
    text = test_files_read("tests/fixtures/gpt2/init/model.safetensors", &n);
    test_files_write(test_files_path("m/model.safetensors"), text, n);
    free(text);
    snprintf(job, sizeof job, "model=%s dropout=true micro_batch=6",
             test_files_path("m"));
    weft_session_result a = run("a", job), none = run("b", "micro_batch=6");
    assert_true(a.loss != none.loss);
    snprintf(words, sizeof words, "%s threads=2 recompute=full", job);
    assert_true(run("c", words).weights_xxh64 == a.weights_xxh64);
    snprintf(words, sizeof words, "%s micro_batch=1", job);
    assert_true(fabs(run("d", words).loss / a.loss - 1) < 1e-5);
    snprintf(words, sizeof words, "%s steps=3", job);
    run("e", words);
    assert_true(run("e", job).weights_xxh64 == a.weights_xxh64);
    test_files_end();
}

/* With a rate of 0, evaluating the step's own batch gives the step's own loss. */
static void test_eval(void **s)
{
    (void)s;
    test_files_begin();
    weft_session_result r =
        run("a", "steps=1 shuffle=false optimizer.lr=0 eval.batches=1 "
                 "eval.data=tests/fixtures/gpt2/tokens.bin");
    assert_true(r.eval_loss == r.loss);
    r = run("b", "shuffle=false eval.batches=2 eval.data=tests/fixtures/gpt2/tokens.bin");
    assert_true(r.eval_loss < r.loss + 0.5 && r.eval_loss > 0);
    test_files_end();
}

/* bf16 storage stays near fp32. */
static void test_bf16(void **s)
{
    (void)s;
    test_files_begin();
    weft_session_result a = run("a", ""), b = run("b", "dtype=bf16");
    assert_true(a.weights_xxh64 != b.weights_xxh64);
    assert_true(fabs(a.loss / b.loss - 1) < 0.02);
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_threads_llama),
        cmocka_unit_test(test_recompute),    cmocka_unit_test(test_families),
        cmocka_unit_test(test_resume),       cmocka_unit_test(test_resume_by_rows),
        cmocka_unit_test(test_resume_kinds), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_two_runs),     cmocka_unit_test(test_no_labels),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_init),
        cmocka_unit_test(test_bf16),         cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_shards),       cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_eval),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
