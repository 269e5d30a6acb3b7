/* A step that is held back is run again: numbers that were wrong once do no harm and the rank that
 * computed them is named; numbers that stay stop the job with the state before the step saved.
 *
 * The commit function is wrapped: it sees what a rank with a fault would have brought. */
#include "support/test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "job/job.h"
#include "session/session_priv.h"
#include "support/files.h"
#include "support/member.h"

enum {
    STEPS    = 4,
    BAD_STEP = 2, /* counted from 0 */
    MAX_RANK = 3,
    FOR_EVER = 99
};

typedef enum wrong_number {
    WRONG_NONE,
    WRONG_LOSS, /* NaN */
    WRONG_NORM, /* another bit */
    WRONG_READ, /* a sample less */
} wrong_number;

typedef struct fault {
    wrong_number what;
    int          rank, times;
} fault;

typedef struct result {
    weft_status         st;
    weft_session_result r;
    char                error[400];
} result;

static fault now;
static int   own_rank, n_tried;
static bool  reads_less;

weft_status       __real_weft_session__commit(void *session, int64_t step, int n,
                                              const double *value, bool *hold);
weft_status       __wrap_weft_session__commit(void *session, int64_t step, int n,
                                              const double *value, bool *hold);
weft_runner_reads __real_weft_runner_get_reads(const weft_runner *r);
weft_runner_reads __wrap_weft_runner_get_reads(const weft_runner *r);

weft_status __wrap_weft_session__commit(void *session, int64_t step, int n,
                                        const double *value, bool *hold)
{
    double x[2] = {value[0], value[1]};
    bool   bad  = step == BAD_STEP && own_rank == now.rank && n_tried++ < now.times;
    if (bad && now.what == WRONG_LOSS) x[0] = NAN;
    if (bad && now.what == WRONG_NORM) x[1] = nextafterf((float)x[1], 1);
    reads_less = bad && now.what == WRONG_READ;
    return __real_weft_session__commit(session, step, n, x, hold);
}

weft_runner_reads __wrap_weft_runner_get_reads(const weft_runner *r)
{
    weft_runner_reads x = __real_weft_runner_get_reads(r);
    if (reads_less) x.n--;
    return x;
}

static result run_rank(const char *name, const char *plan, test_member *m)
{
    char        output[512], data[512];
    const char *key[16] = {output,
                           data,
                           "steps=4",
                           "model=tiny256",
                           "seq=16",
                           "batch=12",
                           "micro_batch=1",
                           "lanes=4",
                           "threads=1",
                           "shuffle=true",
                           "optimizer.lr=0.001",
                           "checkpoint.every=0"};
    int         n_key   = 12;
    char        words[64], *save = NULL;
    snprintf(words, sizeof words, "%s", plan);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        key[n_key++] = w;
    weft_session_options o   = {.quiet = true, .member = &m->source};
    weft_job            *job = NULL;
    result               out = {0};
    snprintf(output, sizeof output, "output=%s", test_files_path("%s", name));
    snprintf(data, sizeof data, "data=%s", test_files_path("text"));
    assert_ok(weft_job_load(NULL, n_key, key, &job));
    out.st = weft_session_run(job, &o, &out.r);
    if (out.st != WEFT_OK) snprintf(out.error, sizeof out.error, "%s", weft_error_text());
    weft_job_destroy(job);
    return out;
}

static void log_to(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0) dup2(fd, STDERR_FILENO);
}

/* All ranks as processes; *log: what rank 0 wrote, the caller's. */
static void run_ranks(const char *name, const char *plan, int world, fault f, result *out,
                      char **log)
{
    weft_comm_shm *shm;
    size_t         n;
    int            p[MAX_RANK][2];
    assert_ok(weft_comm_shm_create(world, &shm));
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        assert_int_equal(pipe(p[r]), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            test_member m;
            now      = f;
            own_rank = r;
            if (!r) log_to(test_files_path("%s.log", name));
            test_member_init(&m, world > 1 ? weft_comm_shm_fd(shm) : -1, r, world);
            result x = run_rank(name, plan, &m);
            _exit(write(p[r][1], &x, sizeof x) == (ssize_t)sizeof x ? 0 : 1);
        }
        close(p[r][1]);
    }
    for (int r = 0; r < world; r++) {
        assert_int_equal(read(p[r][0], &out[r], sizeof *out), sizeof *out);
        close(p[r][0]);
    }
    while (wait(NULL) > 0) continue;
    weft_comm_shm_destroy(shm);
    *log = test_files_read(test_files_path("%s.log", name), &n);
}

static void write_text(void)
{
    FILE *f = fopen(test_files_path("text"), "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "%d bottles of beer on the wall\n", i * i);
    fclose(f);
}

static void must_say(const char *log, const char *text)
{
    if (!strstr(log, text)) fail_msg("'%s' is not in:\n%s", text, log);
}

static void numbers_that_are_wrong_once_do_no_harm(void **state)
{
    static const struct {
        const char *plan;
        int         world;
        fault       f;
        const char *says;
    } row[] = {
        {"plan=off", 1, {WRONG_LOSS, 0, 1}, "the loss is not finite, and not so when it"},
        {"dp=2", 2, {WRONG_LOSS, 1, 1}, "rank 1 computed other numbers"},
        {"pp=2", 2, {WRONG_NORM, 1, 1}, "rank 1 computed other numbers"},
        {"dp=3", 3, {WRONG_NORM, 2, 1}, "rank 2 computed another gradient norm than the"},
        {"dp=2 zero=1", 2, {WRONG_READ, 0, 1}, "its samples were not read once each"},
    };
    result good[MAX_RANK], x[MAX_RANK];
    char  *log;
    (void)state;
    test_files_begin();
    write_text();
    run_ranks("good", "plan=off", 1, (fault){0}, good, &log);
    assert_int_equal(good->st, WEFT_OK);
    assert_null(strstr(log, "run again"));
    free(log);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char name[16];
        snprintf(name, sizeof name, "once%zu", i);
        run_ranks(name, row[i].plan, row[i].world, row[i].f, x, &log);
        for (int r = 0; r < row[i].world; r++)
            if (x[r].st != WEFT_OK) fail_msg("%s: %s", row[i].plan, x[r].error);
        must_say(log, row[i].says);
        assert_int_equal(x->r.steps, STEPS);
        assert_int_equal(x->r.weights_xxh64, good->r.weights_xxh64);
        free(log);
    }
    test_files_end();
}

static void numbers_that_stay_stop_the_job(void **state)
{
    static const struct {
        const char *plan;
        int         world;
        fault       f;
        weft_status st;
        const char *says;
    } row[] = {
        {"plan=off",
         1,
         {WRONG_LOSS, 0, FOR_EVER},
         WEFT_ERR_NUMERIC,
         "step 3: the loss is not finite (lr 0.001), also when it was run again; lower "
         "optimizer.lr or set optimizer.clip; the state after step 2 is saved"},
        {"dp=2", 2, {WRONG_LOSS, 1, FOR_EVER}, WEFT_ERR_NUMERIC, "also when it was run"},
        {"dp=3",
         3,
         {WRONG_NORM, 1, FOR_EVER},
         WEFT_ERR_NUMERIC,
         "a machine or a library computes other bits: rank 1; the state after step 2"},
        {"dp=2",
         2,
         {WRONG_READ, 1, FOR_EVER},
         WEFT_ERR_INTERNAL,
         "its samples were not read once each"},
    };
    result good[MAX_RANK], x[MAX_RANK];
    char  *log;
    (void)state;
    test_files_begin();
    write_text();
    run_ranks("good", "plan=off", 1, (fault){0}, good, &log);
    free(log);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char name[16];
        snprintf(name, sizeof name, "stay%zu", i);
        run_ranks(name, row[i].plan, row[i].world, row[i].f, x, &log);
        free(log);
        for (int r = 0; r < row[i].world; r++) {
            assert_true(x[r].st == row[i].st || x[r].st == WEFT_ERR_PEER);
            if (x[r].st == row[i].st) must_say(x[r].error, row[i].says);
        }
        assert_int_equal(x->st, row[i].st);
        /* the same command goes on from the state before the step */
        run_ranks(name, row[i].plan, row[i].world, (fault){0}, x, &log);
        free(log);
        assert_int_equal(x->st, WEFT_OK);
        assert_int_equal(x->r.first_step, BAD_STEP);
        assert_int_equal(x->r.weights_xxh64, good->r.weights_xxh64);
    }
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_sanitized(numbers_that_are_wrong_once_do_no_harm),
        test_plain(numbers_that_stay_stop_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
