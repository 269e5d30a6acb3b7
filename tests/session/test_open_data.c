/* What a job's data are to its model: text and bytes, streams and rows, labels that are shifted
 * or not; a file that is truncated under a running job. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "data/data.h"
#include "job/job.h"
#include "weft/session.h"
#include "store/safetensors.h"
#include "support/files.h"

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

enum {
    ROWS = 24,
    SEQ  = 12
};

static const char *const base_job =
    "{model: tests/fixtures/gpt2/init, batch: 6, micro_batch: 2, steps: 4, shuffle: "
    "true, "
    "threads: 1, plan: 'off', optimizer: {lr: 0.01, clip: 1}}";

/* Truncates a file after some steps. */
typedef struct truncation {
    const char *path;
    int         after, seen;
} truncation;

static int truncate_after(void *arg)
{
    truncation *t = arg;
    if (++t->seen == t->after) assert_int_equal(truncate(t->path, 64), 0);
    return 0;
}

static weft_status try_run(const char *out, const char *words, truncation *t,
                           weft_session_result *r)
{
    weft_job            *j;
    char                 copy[2048], place[512], *save = NULL;
    const char          *assign[16];
    int                  n = 0;
    weft_session_options o = {.quiet = true};
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        assign[n++] = w;
    snprintf(place, sizeof place, "output=%s", test_files_path("%s", out));
    assign[n++] = place;
    if (t) o.stop = truncate_after, o.arg = t;
    WEFT_TRY(weft_job_parse("test.yaml", base_job, strlen(base_job), n, assign, &j));
    weft_status st = weft_session_run(j, &o, r);
    weft_job_destroy(j);
    return st;
}

static weft_session_result run(const char *out, const char *words)
{
    weft_session_result r = {0};
    OK(try_run(out, words, NULL, &r));
    return r;
}

static void refuse(const char *words, weft_status want, const char *text)
{
    weft_session_result r;
    assert_int_equal(try_run("refused", words, NULL, &r), want);
    if (!strstr(weft_error_text(), text))
        fail_msg("%s: '%s' lacks '%s'", words, weft_error_text(), text);
}

/* Rows: which label a position has, and which positions attention_mask leaves out. */
typedef struct row_file {
    int32_t id[ROWS * SEQ], label[ROWS * SEQ];
    uint8_t mask[ROWS * SEQ];
} row_file;

/* ids drawn, labels aligned with them, those of the first four of a row ignored. */
static void fill(row_file *f)
{
    uint32_t x = 7;
    for (int i = 0; i < ROWS * SEQ; i++) {
        x           = x * 1664525u + 1013904223u;
        f->id[i]    = (int32_t)(x >> 20) % 61;
        f->label[i] = i % SEQ < 4 ? -100 : f->id[i];
        f->mask[i]  = 1;
    }
}

static const char *write_rows(const char *name, const row_file *f, bool mask)
{
    int64_t         dim[2]  = {ROWS, SEQ};
    weft_shape      shape   = weft_shape_make(2, dim);
    weft_store_item item[3] = {
        {"input_ids", WEFT_DTYPE_I32, shape, {.data = f->id}},
        {"labels", WEFT_DTYPE_I32, shape, {.data = f->label}},
        {"attention_mask", WEFT_DTYPE_BOOL, shape, {.data = f->mask}}};
    const char *path = test_files_path("%s", name);
    OK(weft_store_write(path, &(weft_store_spec){.item = item, .n_item = mask ? 3 : 2}));
    return path;
}

/* Labels aligned with input_ids train as the same labels written as next tokens do; so does an
 * evaluation. */
static void causal_labels_are_shifted(void **s)
{
    (void)s;
    row_file f;
    char     a[600], b[600];
    test_files_begin();
    fill(&f);
    const char *path = write_rows("aligned.safetensors", &f, false);
    snprintf(a, sizeof a, "data=%s eval.data=%s eval.batches=2", path, path);
    for (int i = 0; i < ROWS * SEQ; i++)
        f.label[i] = i % SEQ == SEQ - 1 ? -100 : f.label[i + 1];
    path = write_rows("next.safetensors", &f, false);
    snprintf(b, sizeof b, "data=%s eval.data=%s eval.batches=2 labels_shifted=true", path,
             path);
    weft_session_result x = run("a", a), y = run("b", b);
    assert_true(x.weights_xxh64 == y.weights_xxh64);
    assert_true(x.loss == y.loss && x.eval_loss == y.eval_loss);
    snprintf(a, sizeof a, "data=%s", path); /* shifted twice: another result */
    assert_true(run("c", a).weights_xxh64 != y.weights_xxh64);
    /* masked models and encoder-decoders learn labels[t] at position t, so labels_shifted is
     * refused */
    for (int i = 0; i < ROWS * SEQ; i++) f.id[i] %= 31, f.label[i] = f.id[i];
    path = write_rows("masked.safetensors", &f, false);
    snprintf(a, sizeof a,
             "model=tests/fixtures/families/bert data=%s labels_shifted=true", path);
    refuse(a, WEFT_ERR_ARG, "labels_shifted: true is for causal models");
    snprintf(a, sizeof a, "model=tests/fixtures/families/t5 data=%s labels_shifted=true",
             path);
    refuse(a, WEFT_ERR_ARG, "labels_shifted: true is for causal models");
    test_files_end();
}

/* A mask may hide padding at the end of a row whose labels do not count; nothing else. */
static void attention_mask_is_checked(void **s)
{
    (void)s;
    row_file f;
    char     job[600];
    test_files_begin();
    fill(&f);
    snprintf(job, sizeof job, "data=%s", write_rows("all.safetensors", &f, false));
    for (int i = 0; i < ROWS * SEQ; i++)
        if (i % SEQ >= 9) f.mask[i] = 0, f.label[i] = -100;
    snprintf(job, sizeof job, "data=%s", write_rows("right.safetensors", &f, true));
    uint64_t padded = run("a", job).weights_xxh64;
    snprintf(job, sizeof job, "data=%s", write_rows("bare.safetensors", &f, false));
    assert_true(run("b", job).weights_xxh64 == padded);
    f.label[9] = 3;
    snprintf(job, sizeof job, "data=%s", write_rows("label.safetensors", &f, true));
    refuse(job, WEFT_ERR_ARG, "a masked token has a label that counts");
    fill(&f);
    f.mask[2 * SEQ] = 0;
    snprintf(job, sizeof job, "data=%s", write_rows("left.safetensors", &f, true));
    refuse(job, WEFT_ERR_ARG,
           "row 2: attention_mask is not applied, and here it decides: tokens follow");
    for (int i = 0; i < ROWS * SEQ; i++) {
        f.id[i] %= 31;
        f.label[i] = i % SEQ < 9 ? f.id[i] : -100;
        f.mask[i]  = i % SEQ < 9;
    }
    snprintf(job, sizeof job, "model=tests/fixtures/families/bert data=%s",
             write_rows("bert.safetensors", &f, true));
    refuse(job, WEFT_ERR_ARG, "without a causal mask every token sees the padding");
    assert_null(strstr(weft_error_text(), "leave attention_mask out"));
    test_files_end();
}

/* The newest checkpoint as a weft that did not know the key would have written it. */
static void drop_key(const char *out, const char *key)
{
    weft_ckpt *c;
    size_t     n;
    char       dir[512], text[8192];
    snprintf(dir, sizeof dir, "%s", test_files_path("%s/checkpoints", out));
    OK(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, NULL, &c));
    snprintf(text, sizeof text, "%s", weft_ckpt_text(c, "state.json", &n));
    char *at = strstr(text, key), *end = at ? strchr(at, ',') : NULL;
    assert_non_null(end);
    memmove(at, end + 1, strlen(end + 1) + 1);
    const weft_store_file *model = weft_ckpt_tensors(c, "model.safetensors");
    const weft_store_file *opt   = weft_ckpt_tensors(c, "optimizer.safetensors");
    weft_ckpt_file f[] = {{.name = "model.safetensors", .tensors = {.like = model}},
                          {.name = "optimizer.safetensors", .tensors = {.like = opt}},
                          {.name = "state.json", .text = text, .n_text = strlen(text)}};
    OK(weft_ckpt_save(test_files_path("%s/old", out), 2, f, 3, NULL));
    weft_ckpt_close(c);
    char command[2048];
    snprintf(command, sizeof command, "rm -r %s && mv %s %s", dir,
             test_files_path("%s/old", out), dir);
    assert_int_equal(system(command), 0);
}

/* One more tensor in the file: what it says where weft does the same is taken, else refused. */
static void other_tensors_are_checked(void **s)
{
    (void)s;
    static const struct {
        const char *name;
        int         kind; /* 0: zeros, 1: 0 .. SEQ - 1 */
        const char *text;
    } row[] = {{"token_type_ids", 0, "token_type_ids is 1 at position 7, not 0"},
               {"position_ids", 1, "position_ids is 8 at position 7, not 7"}};
    static row_file f;
    int32_t         more[ROWS * SEQ];
    int64_t         dim[2] = {ROWS, SEQ};
    char            job[600];
    test_files_begin();
    fill(&f);
    for (size_t r = 0; r < WEFT_COUNT(row); r++) {
        weft_shape      shape   = weft_shape_make(2, dim);
        weft_store_item item[3] = {{"input_ids", WEFT_DTYPE_I32, shape, {.data = f.id}},
                                   {"labels", WEFT_DTYPE_I32, shape, {.data = f.label}},
                                   {row[r].name, WEFT_DTYPE_I32, shape, {.data = more}}};
        const char     *path    = test_files_path("more.safetensors");
        for (int i = 0; i < ROWS * SEQ; i++) more[i] = row[r].kind ? i % SEQ : 0;
        snprintf(job, sizeof job, "data=%s", path);
        OK(weft_store_write(path, &(weft_store_spec){.item = item, .n_item = 3}));
        run(row[r].name, job);
        more[5 * SEQ + 7]++;
        OK(weft_store_write(path, &(weft_store_spec){.item = item, .n_item = 3}));
        refuse(job, WEFT_ERR_ARG, row[r].text);
    }
    /* a tensor that weft does not know is named */
    weft_shape      shape   = weft_shape_make(2, dim);
    weft_store_item item[3] = {{"input_ids", WEFT_DTYPE_I32, shape, {.data = f.id}},
                               {"labels", WEFT_DTYPE_I32, shape, {.data = f.label}},
                               {"loss_mask", WEFT_DTYPE_I32, shape, {.data = more}}};
    const char     *path    = test_files_path("unknown.safetensors");
    weft_data      *d;
    weft_text       t = {0};
    OK(weft_store_write(path, &(weft_store_spec){.item = item, .n_item = 3}));
    OK(weft_data_open(path, &(weft_data_options){.labels = WEFT_DATA_LABELS_SHIFT}, &d));
    weft_data_warn(d, &t);
    assert_string_equal(t.s, "not used: loss_mask\n");
    weft_text_fini(&t);
    weft_data_close(d);
    /* labels of a stream cannot be shifted */
    refuse("data=tests/fixtures/gpt2/tokens.bin seq=12 labels_shifted=true", WEFT_ERR_ARG,
           "is a stream of tokens, which has none");
    test_files_end();
}

/* A resume sees one label that changed, in the middle of the file; a checkpoint from before
 * content ids goes on. */
static void changed_labels_are_noticed(void **s)
{
    (void)s;
    static row_file f;
    char            job[600], part[640];
    test_files_begin();
    fill(&f);
    snprintf(job, sizeof job, "data=%s", write_rows("r.safetensors", &f, false));
    snprintf(part, sizeof part, "%s steps=2", job);
    run("refused", part);
    f.label[11 * SEQ + 7] = (f.label[11 * SEQ + 7] + 1) % 61;
    write_rows("r.safetensors", &f, false);
    refuse(job, WEFT_ERR_ARG, "was trained on other tokens or labels than those of ");
    drop_key("refused", "\"content_id\":");
    assert_int_equal(run("refused", job).first_step, 2);
    test_files_end();
}

/* A checkpoint without the key took labels as next tokens: only labels_shifted: true goes on with
 * it. */
static void old_checkpoints_took_next_tokens(void **s)
{
    (void)s;
    row_file f;
    char     job[600], next[640], part[700];
    test_files_begin();
    fill(&f);
    snprintf(job, sizeof job, "data=%s", write_rows("r.safetensors", &f, false));
    snprintf(next, sizeof next, "%s labels_shifted=true", job);
    snprintf(part, sizeof part, "%s steps=2", next);
    uint64_t whole = run("whole", next).weights_xxh64;
    run("refused", part);
    refuse(job, WEFT_ERR_ARG, "labels_shifted is true there and false here");
    drop_key("refused", "\"labels_shifted\":");
    refuse(job, WEFT_ERR_ARG, "set labels_shifted: true to continue like that");
    weft_session_result r = run("refused", next);
    assert_int_equal(r.first_step, 2);
    assert_true(r.weights_xxh64 == whole);
    /* nothing changed for a stream */
    snprintf(job, sizeof job, "data=tests/fixtures/gpt2/tokens.bin seq=12");
    snprintf(part, sizeof part, "%s steps=2", job);
    whole = run("stream", job).weights_xxh64;
    run("s", part);
    drop_key("s", "\"labels_shifted\":");
    r = run("s", job);
    assert_int_equal(r.first_step, 2);
    assert_true(r.weights_xxh64 == whole);
    test_files_end();
}

static void truncated(const char *out, const char *words, const char *path)
{
    truncation          t = {.path = path, .after = 1};
    weft_session_result r;
    weft_status         st = try_run(out, words, &t, &r);
    if (st != WEFT_ERR_IO ||
        !strstr(weft_error_text(), "was truncated while it was being read: it had ") ||
        strchr(weft_error_text(), '\n'))
        fail_msg("%s: %d '%s'", words, st, st == WEFT_OK ? "" : weft_error_text());
}

/* A file that gets shorter under a running job is one line, whatever its format. */
static void truncated_data_are_an_error(void **s)
{
    (void)s;
    row_file f;
    char     job[2000], path[600];
    uint16_t token[4000];
    test_files_begin();
    fill(&f);
    for (int i = 0; i < 4000; i++) token[i] = (uint16_t)(i * i % 61);
    test_files_write(test_files_path("t.bin"), token, sizeof token);
    snprintf(path, sizeof path, "%s", test_files_path("t.bin"));
    snprintf(job, sizeof job, "data=%s seq=12", path);
    truncated("bin", job, path);

    snprintf(path, sizeof path, "%s", write_rows("t.safetensors", &f, false));
    snprintf(job, sizeof job, "data=%s", path);
    truncated("rows", job, path);

    test_files_write(test_files_path("e.bin"), token, sizeof token);
    snprintf(path, sizeof path, "%s", test_files_path("e.bin"));
    snprintf(job, sizeof job,
             "data=tests/fixtures/gpt2/tokens.bin seq=12 eval.data=%s eval.every=1",
             path);
    truncated("eval", job, path);

    /* more files than are kept open */
    mkdir(test_files_path("text"), 0777);
    memset(job, 'x', 1500);
    for (int i = 0; i < 20; i++)
        test_files_write(test_files_path("text/%02d.txt", i), job, 1500);
    snprintf(path, sizeof path, "%s", test_files_path("text/00.txt"));
    snprintf(job, sizeof job, "model=tiny256 data=%s seq=12 shuffle=false",
             test_files_path("text"));
    truncated("text", job, path);
    test_files_end();
}

/* The model's own weights that get shorter: what is written at the end does not need them. */
static void truncated_weights_do_not_end_a_job(void **s)
{
    (void)s;
    weft_session_result r;
    truncation          t;
    char                job[700], path[600], command[1200];
    test_files_begin();
    snprintf(command, sizeof command, "cp -r tests/fixtures/gpt2/init %s",
             test_files_path("m"));
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s", test_files_path("m/model.safetensors"));
    snprintf(job, sizeof job, "model=%s data=tests/fixtures/gpt2/tokens.bin seq=12",
             test_files_path("m"));
    uint64_t whole = run("a", job).weights_xxh64;
    t              = (truncation){.path = path, .after = 1};
    OK(try_run("b", job, &t, &r));
    assert_true(r.weights_xxh64 == whole);
    assert_true(test_files_same(test_files_path("a/final/model.safetensors"),
                                test_files_path("b/final/model.safetensors")));
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_labels_are_shifted),
        cmocka_unit_test(attention_mask_is_checked),
        cmocka_unit_test(other_tensors_are_checked),
        cmocka_unit_test(changed_labels_are_noticed),
        cmocka_unit_test(old_checkpoints_took_next_tokens),
        cmocka_unit_test(truncated_data_are_an_error),
        cmocka_unit_test(truncated_weights_do_not_end_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
