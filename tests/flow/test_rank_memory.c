/* Memory of every rank of a plan: what was planned is what it grows by, shared memory counted at
 * its owner; ZeRO and recomputation save what they should. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lanes.h"
#include "comm/shm.h"
#include "compile/compile.h"
#include "support/files.h"
#include "support/member.h"
#include "weft/session.h"

typedef struct outcome {
    weft_status st;
    int64_t     planned, shared, grown; /* grown: private memory */
    int64_t     held;                   /* what all ranks' shared memory held then */
    char        words[256];
} outcome;

static int64_t resident(void)
{
    FILE   *f = fopen("/proc/self/status", "r");
    char    line[256];
    int64_t kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kb = strtoll(line + 8, NULL, 10);
    if (f) fclose(f);
    return kb * 1024;
}

static int64_t before, most, held;
static int     shared_fd;

static int look(void *arg)
{
    (void)arg;
    int64_t     now = resident();
    struct stat s;
    if (now > most) most = now;
    if (!fstat(shared_fd, &s) && s.st_blocks * 512 > held) held = s.st_blocks * 512;
    return 0;
}

static outcome train(const char *words, const weft_membership_source *member)
{
    char        output[512];
    const char *assign[24] = {
        output,
        "model=tiny",
        "data=src",
        "seq=128",
        "batch=8",
        "micro_batch=2",
        "lanes=4",
        "threads=1",
        "steps=2",
        "checkpoint.every=1",
        "tokenizer=bytes",
        "checkpoint.async=false"}; /* else buffers come on top, for some time */
    int                  n = 12;
    char                 copy[256], *save = NULL;
    weft_job            *job = NULL;
    weft_session_options o   = {.quiet = true, .member = member, .stop = look};
    weft_session_result  r   = {0};
    outcome              out = {0};
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        assign[n++] = w;
    snprintf(output, sizeof output, "output=%s", test_files_path("out"));
    before = most = resident();
    out.st        = weft_job_load(NULL, n, assign, &job);
    if (out.st == WEFT_OK) out.st = weft_session_run(job, &o, &r);
    snprintf(out.words, sizeof out.words, "%s",
             out.st == WEFT_OK ? "" : weft_error_text());
    weft_job_destroy(job);
    out.planned = r.mem_peak_bytes;
    out.shared  = r.mem_shared_bytes;
    out.grown   = most - before;
    out.held    = held;
    return out;
}

static void rank_main(int fd, int rank, int world, const char *words, int pipe)
{
    test_member m;
    shared_fd   = fd;
    outcome out = train(words, test_member_init(&m, fd, rank, world));
    _exit(write(pipe, &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
}

static void run_any(int world, const char *words, outcome *out)
{
    weft_comm_shm *w;
    int            p[8][2];
    test_files_begin();
    assert_ok(weft_comm_shm_create(world, &w));
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        assert_int_equal(pipe(p[r]), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) rank_main(weft_comm_shm_fd(w), r, world, words, p[r][1]);
        close(p[r][1]);
    }
    for (int r = 0; r < world; r++) {
        assert_int_equal(read(p[r][0], &out[r], sizeof *out), sizeof *out);
        close(p[r][0]);
    }
    while (wait(NULL) > 0) continue;
    weft_comm_shm_destroy(w);
    test_files_end();
}

static void run(int world, const char *words, outcome *out)
{
    run_any(world, words, out);
    for (int r = 0; r < world; r++)
        if (out[r].st != WEFT_OK) fail_msg("%s: rank %d: %s", words, r, out[r].words);
}

static void planned_is_resident(void **state)
{
    static const struct {
        int         n;
        const char *words;
        bool        more; /* much as others: make long */
    } row[] = {
        {2, "dp=2", false},
        {2, "pp=2", true},
        {4, "dp=2 pp=2 zero=1", true},
        {2, "tp=2", false},
        {2, "dp=2 zero=3", true},
        {2, "dp=2 zero=1 overlap_param_gather=0.7 bucket_bytes=1000000", true},
        {2, "dp=2 recompute=full", false},
        {4, "model=tests/fixtures/flow/mixtral ep=4 micro_batch=8 lanes=1 seq=256",
         false},
        {4, "dp=2 pp=2 zero=1 overlap_param_gather=0.7 bucket_bytes=1000000", false},
        {2, "dp=2 zero=2 lanes=2", false},
        {2, "dp=2 zero=2 lanes=2 reduction=fixed", false},
        {2, "dp=2 zero=3 lanes=2 reduction=fixed bucket_bytes=1000000", false},
        {4, "dp=2 pp=2 zero=2 lanes=2 reduction=fixed", true}};
    int64_t work[WEFT_COUNT(row)]; /* of rank 1 */
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: a sanitizer's memory is not ours\n");
    return;
#endif
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        if (row[i].more && !TEST_LONG) continue;
        outcome out[8];
        int64_t all = 0, shared = 0, planned = 0;
        run(row[i].n, row[i].words, out);
        for (int r = 0; r < row[i].n; r++) {
            double off =
                (double)(out[r].grown + out[r].shared) / (double)out[r].planned - 1;
            print_message(
                "%-24s rank %d: planned %lld, %lld of it shared, grown %lld: %+.2f %%\n",
                row[i].words, r, (long long)out[r].planned, (long long)out[r].shared,
                (long long)out[r].grown, 100 * off);
            /* rank 0 plans a buffer for files, which it uses at the end */
            if (!(fabs(off) < 0.02))
                fail_msg("%s rank %d: off by %g", row[i].words, r, off);
            shared += out[r].shared;
            planned += out[r].planned;
            all = out[r].held > all ? out[r].held : all;
        }
        double off = (double)(all - shared) / (double)planned; /* of all there is */
        print_message("%-24s shared memory holds %lld, planned %lld: %+.2f %%\n",
                      row[i].words, (long long)all, (long long)shared, 100 * off);
        if (!(fabs(off) < 0.02))
            fail_msg("%s: shared memory off by %g", row[i].words, off);
        work[i] = out[1].shared;
    }
    /* what a layer keeps for its backward pass */
    assert_true(work[6] < work[0] * 97 / 100);
    /* sums of gradients in shards */
    assert_true(work[10] < work[9]);
}

/* Parameters and Adam's two states on a rank of two, of three times the parameters. */
static double state_share(const char *words)
{
    weft_compile_spec s = weft_compile_spec_default("tiny", 8, 64);
    weft_training     t;
    weft_compiled     c;
    weft_strategy     h;
    weft_plan        *p;
    s.micro_batch = 2;
    s.lanes       = 4;
    assert_ok(weft_strategy_parse(words, &h));
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_plan(&t, &h, 0, &p));
    assert_ok(weft_compile_program(&t, p, 1, &c));
    double share = (double)weft_program_bytes(c.program, WEFT_SLAB_STATE) /
                   (12 * (double)weft_model_weights(c.model));
    weft_compiled_fini(&c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
    return share;
}

static void zero_saves(void **state)
{
    static const struct {
        const char *words;
        double      share;
    } row[] = {
        {"dp=2", 1},
        {"dp=2 zero=1", 2.0 / 3},
        {"dp=2 zero=2", 2.0 / 3},
        {"dp=2 zero=1 overlap_param_gather=1", 0.5}, /* whole parameters are work */
        {"dp=2 zero=3", 0.5},
        {"dp=2 tp=2 zero=3", 0.25},
        {"dp=4 zero=3", 0.25}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        double got = state_share(row[i].words);
        print_message("%-24s state is %.3f of a whole one\n", row[i].words, got);
        assert_true(fabs(got / row[i].share - 1) < 0.03);
    }
}

/* What one of two ranks holds with so many sequences at once. */
static int64_t planned_with(int64_t micro_batch)
{
    weft_compile_spec s = weft_compile_spec_default("tiny", 2 * micro_batch, 1024);
    weft_training     t;
    weft_compiled     c;
    int64_t           n = 0;
    s.micro_batch       = micro_batch;
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &c));
    for (int k = WEFT_SLAB_STATE; k <= WEFT_SLAB_STAGING; k++)
        n += weft_program_bytes(c.program, (weft_slab_kind)k);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    return n;
}

/* Two ranks that would fit each, but not both: nothing is allocated, all say why. */
static void too_much_is_refused(void **state)
{
    FILE     *f  = fopen("/proc/meminfo", "r");
    long long kb = 0;
    char      line[256], words[160];
    outcome   out[2];
    (void)state;
    while (f && fgets(line, sizeof line, f)) sscanf(line, "MemAvailable: %lld", &kb);
    if (f) fclose(f);
    assert_true(kb > 0);
    int64_t one = planned_with(1), each = planned_with(2) - one;
    int64_t n = (kb * 1024 * 7 / 10 - one) / each;
    snprintf(words, sizeof words, "dp=2 seq=1024 micro_batch=%lld batch=%lld lanes=2",
             (long long)n, (long long)(2 * n));
    run_any(2, words, out);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(out[r].st, WEFT_ERR_NOFIT);
        assert_non_null(strstr(out[r].words, "for the 2 ranks on"));
        assert_true(out[r].grown < 64 << 20);
    }
}

/* ---- accumulation ---- */

typedef struct split {
    const char    *model;
    int            dp, zero;
    weft_reduction reduction;
    int64_t        batch, seq;
} split;

/* What rank 0 holds with micro-batches of that size, and the default lanes of so many ranks. */
static int64_t planned_of(const split *x, int64_t micro_batch, int lanes_for)
{
    weft_compile_spec s = weft_compile_spec_default(x->model, x->batch, x->seq);
    weft_training     t;
    weft_compiled     c;
    weft_strategy     y = weft_strategy_default();
    weft_plan        *p;
    int64_t           n = 0;
    y.dp                = x->dp;
    y.zero              = x->zero;
    s.reduction         = x->reduction;
    s.micro_batch       = micro_batch;
    s.lanes             = weft_lanes_default(lanes_for, x->batch / micro_batch);
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_plan(&t, &y, 0, &p));
    assert_ok(weft_compile_program(&t, p, 0, &c));
    for (int k = WEFT_SLAB_STATE; k <= WEFT_SLAB_STAGING; k++)
        n += weft_program_bytes(c.program, (weft_slab_kind)k);
    weft_compiled_fini(&c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
    return n;
}

/* Of all parameters in fp32, and once more of the largest, the embedding, whose two uses are summed
 * apart. */
static int64_t gradient_bytes(const split *x)
{
    weft_compile_spec s = weft_compile_spec_default(x->model, x->batch, x->seq);
    weft_training     t;
    int64_t           n, largest = 0;
    assert_ok(weft_compile_training(&s, &t));
    for (weft_vid v = 0; v < t.model->graph->n_value; v++) {
        const weft_graph_value *p = &t.model->graph->value[v];
        if (p->kind == WEFT_VALUE_PARAM && weft_shape_count(&p->type.shape) > largest)
            largest = weft_shape_count(&p->type.shape);
    }
    n = 4 * (weft_model_weights(t.model) + largest);
    weft_training_fini(&t);
    return n;
}

/* The number of micro-batches costs nothing: of smaller ones there are more, and a rank needs no
 * more.  Against the batch at once they need less where activations are large; never more than one
 * gradient. */
static void accumulation_costs_no_memory(void **state)
{
    static const struct {
        split x;
        bool  less; /* than the batch at once */
    } row[] = {{{"tiny", 1, 0, WEFT_REDUCTION_INVARIANT, 16, 128}, true},
               {{"tiny", 2, 0, WEFT_REDUCTION_INVARIANT, 16, 128}, true},
               {{"tiny", 4, 0, WEFT_REDUCTION_INVARIANT, 16, 128}, true},
               {{"tiny", 2, 1, WEFT_REDUCTION_INVARIANT, 16, 128}, true},
               {{"tiny", 4, 1, WEFT_REDUCTION_FIXED, 16, 128}, true},
               {{"tiny", 4, 2, WEFT_REDUCTION_INVARIANT, 16, 128}, true},
               {{"tiny", 2, 2, WEFT_REDUCTION_FIXED, 16, 128}, true},
               {{"tiny", 4, 2, WEFT_REDUCTION_FIXED, 16, 128}, true},
               {{"tiny", 4, 3, WEFT_REDUCTION_FIXED, 16, 128}, true},
               {{"tiny", 1, 0, WEFT_REDUCTION_INVARIANT, 16, 16}, false},
               {{"tiny", 4, 1, WEFT_REDUCTION_INVARIANT, 16, 16}, false},
               {{"tiny", 4, 2, WEFT_REDUCTION_FIXED, 16, 16}, false},
               {{"tiny", 4, 3, WEFT_REDUCTION_INVARIANT, 16, 16}, false}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const split *x      = &row[i].x;
        int64_t      each   = x->batch / x->dp;
        int64_t      whole  = planned_of(x, each, x->dp);
        int64_t      limit  = row[i].less ? whole : whole + gradient_bytes(x);
        int64_t      larger = INT64_MAX;
        for (int64_t micro = each / 2; micro >= 1; micro /= 2) {
            int64_t n = planned_of(x, micro, x->dp);
            print_message("dp=%d zero=%d %s seq=%lld micro_batch=%lld: %.1f MB, all at "
                          "once %.1f\n",
                          x->dp, x->zero,
                          x->reduction == WEFT_REDUCTION_FIXED ? "fixed" : "invariant",
                          (long long)x->seq, (long long)micro, (double)n * 1e-6,
                          (double)whole * 1e-6);
            assert_true(n <= larger);
            assert_true(n <= limit);
            larger = n;
        }
        if (!x->zero) assert_true(planned_of(x, 1, 8) > planned_of(x, 1, x->dp));
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(planned_is_resident),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(zero_saves),
        cmocka_unit_test(accumulation_costs_no_memory),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
