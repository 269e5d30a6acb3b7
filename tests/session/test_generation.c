/* Generations of one session: a job that goes over to another membership between steps gives the
 * bits of one that does not, also with another plan, and holds no more after twenty of them.
 * Opening a generation that fails at any allocation leaves nothing behind, and the next one goes
 * on. */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "job/job.h"
#include "session/session_priv.h"
#include "support/count_alloc.h"
#include "support/files.h"
#include "support/member.h"
#include "support/test.h"

enum {
    STEPS          = 6,
    N_MANY         = WEFT_TEST_SANITIZED ? 7 : 21, /* memberships of a long run */
    EARLY          = 5,  /* one by which allocators have settled */
    SETTLED        = 20, /* openings by which they have */
    N_TRY          = 40,
    TRY_STRIDE     = 5, /* allocations */
    MAX_MEMBERSHIP = N_TRY + 2,
    SLACK   = 1 << 15, /* bytes: freed chunks that a thread keeps count as in use */
    MAX_KEY = 16
};

/* ---- what a process holds ---- */

typedef struct held {
    int64_t fds, tasks, resident, in_use;
} held;

static int64_t count_entries(const char *path)
{
    int64_t n = 0;
    DIR    *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int64_t read_resident(void)
{
    long long total, resident = 0;
    FILE     *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &total, &resident), 2);
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

static held look(void)
{
    struct mallinfo2 m = mallinfo2();
    return (held){.fds      = count_entries("/proc/self/fd"),
                  .tasks    = count_entries("/proc/self/task"),
                  .resident = read_resident(),
                  .in_use   = (int64_t)(m.uordblks + m.hblkhd)};
}

/* ---- jobs ---- */

typedef struct result {
    weft_status         st;
    weft_session_result r;
    int                 n_failed;    /* openings */
    held                early, late; /* in an early generation and in a late one */
    char                error[256];
} result;

static weft_job *load_job(const char *name, int steps, const char *keys)
{
    char        output[512], data[512], n_steps[32], copy[512], *save = NULL;
    const char *assign[MAX_KEY + 16] = {output,
                                        data,
                                        n_steps,
                                        "model=tiny256",
                                        "seq=16",
                                        "batch=8",
                                        "micro_batch=1",
                                        "lanes=4",
                                        "threads=1",
                                        "shuffle=true",
                                        "plan=off",
                                        "optimizer.lr=0.001",
                                        "checkpoint.every=4"};
    int         n                    = 13;
    weft_job   *job                  = NULL;
    snprintf(output, sizeof output, "output=%s", test_files_path("%s", name));
    snprintf(data, sizeof data, "data=%s", test_files_path("text"));
    snprintf(n_steps, sizeof n_steps, "steps=%d", steps);
    snprintf(copy, sizeof copy, "%s", keys);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        assign[n++] = w;
    assert_ok(weft_job_load(NULL, n, assign, &job));
    return job;
}

static void write_text(void)
{
    FILE *f = fopen(test_files_path("text"), "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "%d bottles of beer on the wall\n", i * i);
    fclose(f);
}

typedef struct watch {
    const test_member *member;
    result            *to;
} watch;

/* Asked after each step. */
static int watch_step(void *arg)
{
    watch *w = arg;
    if (w->member->n_given == EARLY) w->to->early = look();
    if (w->member->n_given == N_MANY - 1) w->to->late = look();
    return 0;
}

static result run_session(const char *name, int steps, const char *keys,
                          test_member *member)
{
    result               out = {0};
    weft_job            *job = load_job(name, steps, keys);
    watch                w   = {member, &out};
    weft_session_options o   = {
          .quiet = true, .stop = watch_step, .arg = &w, .member = &member->source};
    out.st = weft_session_run(job, &o, &out.r);
    if (out.st != WEFT_OK) snprintf(out.error, sizeof out.error, "%s", weft_error_text());
    weft_job_destroy(job);
    return out;
}

/* ---- ranks ---- */

/* What a rank does with its memberships. */
typedef struct rank_case {
    /* then: keys of the second generation's plan, or NULL */
    const char *name, *keys, *then;
    int         steps;
} rank_case;
typedef result (*rank_fn)(const rank_case *c, test_member *m);

static result run_case(const rank_case *c, test_member *m)
{
    return run_session(c->name, c->steps, c->keys, m);
}

/* n memberships of world ranks; the next one comes each `every` steps. */
static void run_ranks(const rank_case *c, rank_fn run, int n, int every, int world,
                      result *out)
{
    weft_comm_shm *shm[MAX_MEMBERSHIP];
    int            fd[MAX_MEMBERSHIP], p[8][2];
    int64_t        step[MAX_MEMBERSHIP];
    pid_t          child[8];
    bool           whole = true;
    for (int i = 0; i < n; i++) {
        assert_ok(weft_comm_shm_create(world, &shm[i]));
        weft_comm_shm_set_epoch(shm[i], (uint32_t)i);
        fd[i]   = weft_comm_shm_fd(shm[i]);
        step[i] = (i + 1) * (int64_t)every;
    }
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        assert_int_equal(pipe(p[r]), 0);
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) {
            test_member m;
            test_member_series(&m, n, fd, step, r, world);
            result x = run(c, &m);
            _exit(write(p[r][1], &x, sizeof x) == (ssize_t)sizeof x ? 0 : 1);
        }
        close(p[r][1]);
    }
    for (int r = 0; r < world; r++) {
        whole = read(p[r][0], &out[r], sizeof *out) == sizeof *out && whole;
        close(p[r][0]);
        if (!whole) /* others may wait for a rank that has failed */
            for (int k = 0; k < world; k++) kill(child[k], SIGKILL);
    }
    while (wait(NULL) > 0) continue;
    assert_true(whole);
    for (int i = 0; i < n; i++) weft_comm_shm_destroy(shm[i]);
    for (int r = 0; r < world; r++)
        if (out[r].st != WEFT_OK) fail_msg("%s: rank %d: %s", c->keys, r, out[r].error);
}

static void assert_same(const char *keys, const result *a, const result *b)
{
    if (a->r.weights_xxh64 != b->r.weights_xxh64 || a->r.loss != b->r.loss ||
        a->r.grad_norm != b->r.grad_norm || a->r.steps != b->r.steps ||
        (a->r.eval_loss == a->r.eval_loss && a->r.eval_loss != b->r.eval_loss))
        fail_msg("%s: %016llx loss %.17g, in one generation %016llx loss %.17g", keys,
                 (unsigned long long)a->r.weights_xxh64, a->r.loss,
                 (unsigned long long)b->r.weights_xxh64, b->r.loss);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const struct {
        int         world;
        const char *keys;
    } row[] = {
        {1, ""},
        {1, "dtype=bf16 dropout=true"},
        {1, "eval.every=2 eval.batches=2 eval.data=TEXT"},
        {2, "dp=2"},
        {2, "dp=2 zero=1 overlap_param_gather=0.5 bucket_bytes=10000"},
        {2, "dp=2 zero=3 dtype=bf16"},
        {2, "tp=2"},
        {2, "pp=2 eval.every=3 eval.batches=2 eval.data=TEXT"},
    };
    write_text();
    for (size_t i = WEFT_TEST_SANITIZED; i < WEFT_COUNT(row); i += TEST_STRIDE(6)) {
        result one[2], two[2];
        char   keys[512], name[32], *at;
        snprintf(keys, sizeof keys, "%s", row[i].keys);
        if ((at = strstr(keys, "TEXT")))
            snprintf(at, sizeof keys - (size_t)(at - keys), "%s",
                     test_files_path("text"));
        snprintf(name, sizeof name, "one%zu", i);
        rank_case c = {name, keys, NULL, STEPS};
        run_ranks(&c, run_case, 1, STEPS, row[i].world, one);
        snprintf(name, sizeof name, "two%zu", i);
        run_ranks(&c, run_case, 2, 3, row[i].world, two);
        for (int r = 0; r < row[i].world; r++) assert_same(keys, &two[r], &one[r]);
        if (!test_files_same(test_files_path("one%zu/final/model.safetensors", i),
                             test_files_path("two%zu/final/model.safetensors", i)))
            fail_msg("%s: other weights in final", keys);
    }
}

static void test_nothing_grows(void **state)
{
    (void)state;
    static const char *const keys[] = {"checkpoint.every=0",
                                       "checkpoint.every=0 dp=2 zero=1"};
    write_text();
    for (int world = 1; world <= 2; world++) {
        result    out[2];
        rank_case c = {world == 1 ? "g1" : "g2", keys[world - 1], NULL, N_MANY};
        run_ranks(&c, run_case, N_MANY, 1, world, out);
        for (int r = 0; r < world; r++) {
            const held *a = &out[r].early, *b = &out[r].late;
            assert_int_equal(b->fds, a->fds);
            assert_int_equal(b->tasks, a->tasks);
            if (WEFT_TEST_SANITIZED) continue;
            if (b->resident > a->resident + (1 << 20) ||
                b->in_use > a->in_use + (1 << 16))
                fail_msg("rank %d of %d: %lld bytes resident, %lld before; %lld in use, "
                         "%lld before",
                         r, world, (long long)b->resident, (long long)a->resident,
                         (long long)b->in_use, (long long)a->in_use);
        }
    }
}

/* ---- by hand: generations of one session, opened and closed ---- */

static void open_session(const weft_job *job, const weft_session_options *o,
                         weft_session *s)
{
    if (weft_session__open(job, o, s) != WEFT_OK) fail_msg("%s", weft_error_text());
}

static weft_status hash_weights(weft_session *s)
{
    return weft_weights_hash(&s->now->weights, &s->r.weights_xxh64);
}

/* Opens a generation, runs it until the membership changes or no step is left, and closes it. */
static weft_ending run_one(weft_session *s)
{
    weft_generation g;
    weft_ending     ending;
    if (weft_generation_open(s, &g) != WEFT_OK) fail_msg("%s", weft_error_text());
    if (weft_generation_run(s, &ending) != WEFT_OK) fail_msg("%s", weft_error_text());
    if (ending == WEFT_ENDING_DONE)
        assert_ok(weft_session__lead(s, hash_weights));
    else
        assert_ok(weft_generation_keep_state(s));
    weft_generation_close(s, &g);
    return ending;
}

/* The second generation has the ranks of the first, and another plan. */
static result run_two_plans(const rank_case *c, test_member *m)
{
    weft_job            *job = load_job(c->name, c->steps, c->keys), *other;
    weft_session_options o   = {.quiet = true, .member = &m->source};
    weft_session         s;
    result               out = {0};
    open_session(job, &o, &s);
    assert_int_equal(run_one(&s), WEFT_ENDING_MEMBERSHIP);
    other          = load_job(c->name, c->steps, c->then);
    s.job.strategy = other->strategy;
    assert_int_equal(run_one(&s), WEFT_ENDING_DONE);
    out.r = s.r;
    assert_ok(weft_session__close(&s));
    weft_job_destroy(other);
    weft_job_destroy(job);
    return out;
}

static void test_another_plan(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        {"dp=2", "pp=2"},
        {"pp=2", "dp=2 zero=3"},
        {"dp=2 zero=3", "dp=2"},
        {"dp=2 zero=1", "pp=2 schedule=gpipe"},
    };
    result one[2], two[2];
    write_text();
    rank_case plain = {"plain", "dp=2", NULL, STEPS};
    run_ranks(&plain, run_case, 1, STEPS, 2, one);
    for (size_t i = 0; i < WEFT_COUNT(row); i += TEST_STRIDE(3)) {
        char name[32];
        snprintf(name, sizeof name, "plans%zu", i);
        rank_case c = {name, row[i][0], row[i][1], STEPS};
        run_ranks(&c, run_two_plans, 2, 3, 2, two);
        assert_same(row[i][1], &two[0], &one[0]); /* rank 0 has the hash */
        assert_true(two[1].r.loss == one[1].r.loss);
    }
}

/* Opens a generation where the n-th allocation fails (0: none), and closes it. */
static weft_status try_to_open(weft_session *s, int64_t n)
{
    weft_generation g;
    weft_test_alloc_fail_at(n);
    weft_status st = weft_generation_open(s, &g);
    weft_test_alloc_fail_at(0);
    if (st != WEFT_OK && st != WEFT_ERR_PEER && g.comm)
        weft_comm_abort(g.comm, weft_error_text());
    weft_generation_close(s, &g);
    return st;
}

static void assert_not_grown(const held *now, const held *before, int64_t n)
{
    if (now->fds == before->fds && now->tasks == before->tasks &&
        now->in_use <= before->in_use + SLACK)
        return;
    fail_msg("allocation %lld failed: %lld descriptors, %lld threads, %lld bytes in use; "
             "%lld, %lld, %lld before",
             (long long)n, (long long)now->fds, (long long)now->tasks,
             (long long)now->in_use, (long long)before->fds, (long long)before->tasks,
             (long long)before->in_use);
}

/* Allocations fail while the second generation is opened, one at a time. */
static void test_failures_leak_nothing(void **state)
{
    (void)state;
    static const int     fd[]   = {-1, -1};
    static const int64_t step[] = {3};
    test_member          m, plain;
    weft_session         s;
    write_text();
    if (WEFT_TEST_SANITIZED) return; /* allocations cannot be made to fail */
    test_member_init(&plain, -1, 0, 1);
    result    one = run_session("plain", STEPS, "", &plain);
    weft_job *job = load_job("fails", STEPS, "");
    open_session(job,
                 &(weft_session_options){
                     .quiet = true, .member = test_member_series(&m, 2, fd, step, 0, 1)},
                 &s);
    assert_int_equal(run_one(&s), WEFT_ENDING_MEMBERSHIP);
    held    before = {0};
    int64_t calls = weft_test_allocs(), tried = 0;
    assert_ok(try_to_open(&s, 0));
    calls = weft_test_allocs() - calls;
    for (int64_t n = 1; n <= calls; n++) {
        m.n_given      = 1;
        weft_status st = try_to_open(&s, n);
        assert_true(st == WEFT_ERR_MEM || st == WEFT_OK); /* a few can be done without */
        assert_int_equal(weft_state_step(s.state), 3);
        held now = look();
        if (++tried == SETTLED) before = now;
        if (tried > SETTLED) assert_not_grown(&now, &before, n);
    }
    assert_true(tried > 2 * SETTLED);
    m.n_given = 1;
    assert_int_equal(run_one(&s), WEFT_ENDING_DONE);
    assert_true(s.r.weights_xxh64 == one.r.weights_xxh64);
    assert_true(s.r.loss == one.r.loss);
    assert_ok(weft_session__close(&s));
    weft_job_destroy(job);
}

/* The same for one of two ranks: the other one is told, or does not wait for longer than its
 * timeout. */
static pthread_barrier_t *gate; /* in memory of both */

static result run_failures(const rank_case *c, test_member *m)
{
    weft_job            *job = load_job(c->name, c->steps, c->keys);
    weft_session_options o   = {.quiet = true, .member = &m->source};
    weft_session         s;
    held                 before = {0};
    result               out    = {0};
    open_session(job, &o, &s);
    assert_int_equal(run_one(&s), WEFT_ENDING_MEMBERSHIP);
    for (int i = 0; i < N_TRY; i++) {
        int64_t n   = 1 + i * TRY_STRIDE;
        o.timeout_s = 1;
        m->n_given  = 1 + i; /* also where the last one was not asked for */
        pthread_barrier_wait(gate);
        weft_status st = try_to_open(&s, m->rank == 1 ? n : 0);
        /* ARG: a hash that could not be made differs, and all say so */
        if (st != WEFT_OK && st != WEFT_ERR_MEM && st != WEFT_ERR_PEER &&
            st != WEFT_ERR_ARG)
            fail_msg("allocation %lld: %d, %s", (long long)n, (int)st, weft_error_text());
        assert_int_equal(weft_state_step(s.state), 3);
        out.n_failed += st != WEFT_OK;
        held now = look();
        if (i == N_TRY / 2) before = now;
        if (i > N_TRY / 2) assert_not_grown(&now, &before, n);
    }
    o.timeout_s = 60;
    m->n_given  = 1 + N_TRY;
    pthread_barrier_wait(gate);
    assert_int_equal(run_one(&s), WEFT_ENDING_DONE);
    out.r = s.r;
    assert_ok(weft_session__close(&s));
    weft_job_destroy(job);
    return out;
}

static void test_failures_of_a_rank(void **state)
{
    (void)state;
    pthread_barrierattr_t a;
    result                one[2], two[2];
    if (WEFT_TEST_SANITIZED) return; /* allocations cannot be made to fail */
    write_text();
    gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    assert_true(gate != MAP_FAILED);
    pthread_barrierattr_init(&a);
    pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(gate, &a, 2);
    rank_case plain = {"plain", "dp=2", NULL, STEPS}, c = {"fails", "dp=2", NULL, STEPS};
    run_ranks(&plain, run_case, 1, STEPS, 2, one);
    run_ranks(&c, run_failures, N_TRY + 2, 3, 2, two);
    assert_same("after failures", &two[0], &one[0]); /* rank 0 has the hash */
    assert_true(two[1].n_failed > N_TRY / 4 && two[0].n_failed > N_TRY / 4);
    munmap(gate, sizeof *gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(test_same_bits),          with_files(test_another_plan),
        with_files(test_nothing_grows),      with_files(test_failures_leak_nothing),
        with_files(test_failures_of_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
