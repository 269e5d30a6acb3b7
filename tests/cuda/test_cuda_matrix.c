/* The plans of make matrix with at most four processes (tests/flow/plans.def), as ranks that share
 * one GPU: the bits of one rank, or close to it where sums are split differently.
 *
 * Ranks are four processes that keep their driver, context and kernels from plan to plan: a plan is
 * a request that the first n of them get.  Without arguments few plans run, two steps each, on the
 * stub.  `test_cuda_matrix all[:FIRST[:END]] [peer|staged ...]` runs all that fit (those from FIRST
 * to END) over each way, 10 steps on a GPU, and prints a table. */
#include "support/test.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/shm.h"
#include "cuda/gpu_test.h"
#include "plugin/plugin.h"
#include "support/files.h"
#include "support/member.h"
#include "support/plan_jobs.h"
#include "weft/job.h"
#include "weft/session.h"

enum {
    MAX_RANK   = 4,
    MAX_KEY    = 64,
    STEPS      = 10, /* on a GPU */
    SURE_STEPS = 5,  /* that rounding does not decide in */
    FEW_STEPS  = 2,  /* on the stub, which computes on the CPU */
    FEW        = WEFT_TEST_SANITIZED ? 12 : 4, /* one quick row in so many */
    PATIENCE_S = 120 /* for one plan: ranks that do not answer are killed */
};

static int         n_step;
static const char *all_ways[] = {"peer", "staged"};

/* ---- ranks ---- */

/* What ranks are to do: keys of a job, the way they communicate, the memory they meet in. */
typedef struct plan_request {
    char keys[3000], way[16];
    int  world, parent_fd;
} plan_request;

typedef struct plan_reply {
    weft_status st;
    uint64_t    weights;
    char        text[400];
} plan_reply;

typedef struct matrix_rank {
    pid_t pid;
    int   to, from; /* pipes; -1: it is not there */
} matrix_rank;

static matrix_rank rank[MAX_RANK];

static weft_status train(const plan_request *q, int me, plan_reply *out)
{
    char                 copy[sizeof q->keys], shm[64], *save = NULL;
    const char          *assign[MAX_KEY];
    int                  n = 0, fd = -1;
    weft_job            *job = NULL;
    weft_session_result  r   = {0};
    weft_session_options o   = {.quiet = true, .timeout_s = PATIENCE_S / 2};
    test_member          member;
    snprintf(copy, sizeof copy, "%s", q->keys);
    for (char *w = strtok_r(copy, " ", &save); w && n < MAX_KEY;
         w       = strtok_r(NULL, " ", &save))
        assign[n++] = w;
    setenv("WEFT_GPU_COMM", q->way, 1);
    WEFT_TRY(weft_job_load(NULL, n, assign, &job));
    snprintf(shm, sizeof shm, "/proc/%d/fd/%d", (int)getppid(), q->parent_fd);
    if (q->world > 1) {
        fd       = open(shm, O_RDWR | O_CLOEXEC);
        o.member = test_member_init(&member, fd, me, q->world);
    }
    weft_status st = weft_session_run(job, &o, &r);
    out->weights   = r.weights_xxh64;
    if (fd >= 0) close(fd);
    weft_job_destroy(job);
    return st;
}

/* A rank's life: the GPU stays open, so that its context outlives every plan. */
static void serve(int me, int from, int to)
{
    weft_device *gpu = NULL;
    plan_request q;
    if (!test_gpu_start()) _exit(2);
    if (!test_gpu_is_real()) setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    weft_status opened = weft_plugin_open_device("cuda", 0, &gpu);
    while (read(from, &q, sizeof q) == (ssize_t)sizeof q) {
        plan_reply a = {.st = opened};
        if (opened == WEFT_OK) a.st = train(&q, me, &a);
        if (a.st != WEFT_OK) snprintf(a.text, sizeof a.text, "%s", weft_error_text());
        if (write(to, &a, sizeof a) != (ssize_t)sizeof a) break;
    }
    weft_plugin_close_device(gpu);
    _exit(0);
}

static void start_rank(int me)
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int r = 0; r < MAX_RANK; r++) { /* so that each sees its own pipe end */
            if (rank[r].pid) close(rank[r].to), close(rank[r].from);
        }
        close(down[1]);
        close(up[0]);
        serve(me, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    rank[me] = (matrix_rank){pid, down[1], up[0]};
}

static void end_ranks(bool kill_them)
{
    for (int r = 0; r < MAX_RANK; r++) {
        if (!rank[r].pid) continue;
        if (kill_them) kill(rank[r].pid, SIGKILL);
        close(rank[r].to);
        close(rank[r].from);
        waitpid(rank[r].pid, NULL, 0);
        rank[r] = (matrix_rank){0};
    }
}

/* Of one rank, until the deadline. */
static bool take_reply(int r, double deadline, plan_reply *a)
{
    struct pollfd p    = {.fd = rank[r].from, .events = POLLIN};
    double        left = deadline - weft_clock_s();
    *a                 = (plan_reply){.st = WEFT_ERR_PEER};
    if (poll(&p, 1, left > 0 ? (int)(1e3 * left) : 0) == 1 &&
        read(rank[r].from, a, sizeof *a) == (ssize_t)sizeof *a)
        return true;
    snprintf(a->text, sizeof a->text, "rank %d died or did not answer within %d s", r,
             PATIENCE_S);
    return false;
}

/* ---- plans ---- */

static test_plan_outcome run_plan(const test_plan_row *row, int n, const char *way)
{
    test_plan_outcome o     = {0};
    plan_request      q     = {.world = n, .parent_fd = -1};
    double            begin = weft_clock_s();
    weft_comm_shm    *shm   = NULL;
    bool              whole = true;
    const char       *out   = test_files_path("out");
    snprintf(q.way, sizeof q.way, "%s", way);
    snprintf(q.keys, sizeof q.keys,
             "%s %s output=%s device=cuda share_gpu=true init=random plan=off",
             test_plan_job_keys(row->model, n_step), n > 1 ? row->words : "", out);
    if (n > 1) {
        assert_ok(weft_comm_shm_create(n, &shm));
        q.parent_fd = weft_comm_shm_fd(shm);
    }
    for (int r = 0; r < n; r++) {
        if (!rank[r].pid) start_rank(r);
        whole = write(rank[r].to, &q, sizeof q) == (ssize_t)sizeof q && whole;
    }
    for (int r = 0; r < n; r++) {
        plan_reply a;
        whole = take_reply(r, begin + PATIENCE_S, &a) && whole;
        if (a.st != WEFT_OK && !o.code) snprintf(o.words, sizeof o.words, "%s", a.text);
        if (a.st != WEFT_OK) o.code = 1;
        if (r == 0)
            snprintf(o.hash, sizeof o.hash, "%016llx", (unsigned long long)a.weights);
    }
    if (!whole) end_ranks(true);
    weft_comm_shm_destroy(shm);
    o.seconds = weft_clock_s() - begin;
    if (!o.code) test_plan_read_metrics(test_files_path("out/metrics.jsonl"), &o);
    test_files_remove(out);
    return o;
}

/* The first step whose loss or norm is off by more than 1e-5; 0: none. */
static int find_step_off(const test_plan_outcome *one, const test_plan_outcome *o)
{
    for (int i = 0; i < o->n && i < one->n; i++)
        if (!(fabs(o->loss[i] / one->loss[i] - 1) <= 1e-5 &&
              fabs(o->norm[i] / one->norm[i] - 1) <= 1e-5))
            return i + 1;
    return 0;
}

/* A token that stands between two experts goes to the other one by rounding: from then on the two
 * runs are different ones. */
static bool may_choose_otherwise(const test_plan_row *row, int step_off)
{
    return row->kind == CLOSE && strstr(row->model, "mixtral") && step_off > SURE_STEPS;
}

static bool check_row(const test_plan_row *row, const char *way,
                      const test_plan_outcome *one)
{
    double            loss = 0, norm = 0;
    char              what[40] = "FAILED";
    test_plan_outcome o        = run_plan(row, row->n, way);
    bool              good = !o.code && test_plan_same(row->kind, one, &o, &loss, &norm);
    int               off  = o.code ? 0 : find_step_off(one, &o);
    if (good)
        snprintf(what, sizeof what, "%s", row->kind == CLOSE ? "close" : "bitwise");
    else if (off && may_choose_otherwise(row, off))
        snprintf(what, sizeof what, "close before step %d", off);
    print_message("%s,%d,\"%s\",%s,%s,%.2g,%.2g,%.2f%s%.300s\n", row->model, row->n,
                  row->words, way, what, loss, norm, o.seconds, o.code ? ": " : "",
                  o.code ? o.words : "");
    return strcmp(what, "FAILED") != 0;
}

/* Rows without a GPU: a few of unlike kinds, small enough for the stub. */
static bool is_chosen(const test_plan_row *row, bool all, int *n_quick)
{
    if (row->n > MAX_RANK || row->when == LATER) return false;
    if (all) return true;
    return row->when == QUICK && row->n == 2 && (*n_quick)++ % FEW == 0;
}

static int run_table(bool all, int from, int end, int n_way, const char *const *ways)
{
    const char       *model   = "";
    test_plan_outcome one     = {0};
    int               n_quick = 0, n_chosen = 0, n_run = 0, n_bad = 0;
    double            begin = weft_clock_s();
    print_message("model,ranks,plan,way,result,loss,grad_norm,seconds\n");
    for (int i = 0; i < test_plan_table_rows; i++) {
        const test_plan_row *row = &test_plan_table[i];
        if (!is_chosen(row, all, &n_quick) || n_chosen++ < from || n_chosen > end)
            continue;
        if (strcmp(model, row->model)) {
            model = row->model;
            one   = run_plan(row, 1, "staged");
            if (one.code) print_message("%s, one rank: FAILED: %s\n", model, one.words);
            n_bad += one.code != 0;
        }
        for (int k = 0; k < n_way && !one.code; k++, n_run++)
            n_bad += !check_row(row, ways[k], &one);
    }
    print_message("%d plans, %d FAILED, %.0f s\n", n_run, n_bad, weft_clock_s() - begin);
    return n_bad;
}

static int    n_way = 1;
static bool   run_all;
static int    first; /* rows before it are left out: an earlier run was cut off there */
static int    end = INT_MAX; /* so is this one, and those after it */
static char **asked;

static void plans_share_the_gpu(void **state)
{
    (void)state;
    test_plan_jobs_write();
    signal(SIGPIPE, SIG_IGN);
    n_step    = test_gpu_is_real() ? STEPS : FEW_STEPS;
    int n_bad = run_table(run_all, first, end, n_way,
                          asked ? (const char *const *)asked : all_ways);
    end_ranks(false);
    if (n_bad) fail_msg("%d plans do not train like one rank", n_bad);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest test[] = {with_files(plans_share_the_gpu)};
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    run_all = argc > 1 && !strncmp(argv[1], "all", 3); /* all, all:21, or all:21:40 */
    if (run_all) sscanf(argv[1], "all:%d:%d", &first, &end);
    if (run_all) n_way = (int)WEFT_COUNT(all_ways);
    if (argc > 2) n_way = argc - 2, asked = argv + 2;
    return cmocka_run_group_tests(test, NULL, NULL);
}
