/* Communication runs beside compute, with kernels that sleep and links that are slowed.
 * Data parallel: links so slow that the sums take as long as the backward pass; a step takes
 * little longer than computing alone.  ZeRO 3, and ZeRO 1 whose parameters come back in the next
 * step: so slow that all communication takes as long as all compute; likewise.  What hides and
 * what cannot is also said in virtual time, exactly. */
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "comm/throttle.h"
#include "exec/exec.h"
#include "partition/partition.h"
#include "support/exec.h"
#include "support/kernels.h"
#include "support/ranks.h"
#include "support/sim.h"
#include "support/test.h"

enum {
    WORLD      = 2,
    PRODUCT_US = 4000,
    STEPS      = 3,
};

static int n_product; /* of one rank in one step; forward and backward */
static int n_backward;

/* ---- kernels that take time and do nothing ---- */

static weft_status run_product(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    struct timespec t = {0, PRODUCT_US * 1000L};
    (void)c, (void)x;
    nanosleep(&t, NULL);
    return WEFT_OK;
}

static weft_status run_nothing(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    (void)c, (void)x;
    return WEFT_OK;
}

static weft_kernel choose_sleeper(weft_op op)
{
    return (weft_kernel){.run = op == WEFT_OP_MATMUL ? run_product : run_nothing};
}

static weft_device *sleeper;

static int make_sleeper(void **state)
{
    (void)state;
    sleeper = test_device_with("sleeper", choose_sleeper);
    return 0;
}

static weft_status read_nothing(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    (void)user, (void)step, (void)micro, (void)n, (void)out;
    return WEFT_OK;
}

/* ---- one job ---- */

typedef struct rank {
    weft_program *program;
    weft_comm    *comm;
    double        best_s;
    weft_status   st;
} rank;

static weft_status run_rank(rank *k)
{
    weft_exec        *e;
    weft_status       st = WEFT_OK;
    weft_exec_options o  = {.device      = {sleeper},
                            .n_thread    = 1,
                            .comm        = k->comm,
                            .batch       = WORLD,
                            .micro_batch = 1,
                            .read        = read_nothing};
    WEFT_TRY(test_exec_create(k->program, &o, &e));
    k->best_s = 1e9;
    for (int s = 0; s < STEPS && st == WEFT_OK; s++) {
        double start = weft_clock_s();
        st           = weft_exec_run(e, s, 1);
        double took  = weft_clock_s() - start;
        if (took < k->best_s) k->best_s = took;
    }
    test_exec_destroy(e);
    return st;
}

static void *rank_thread(void *arg)
{
    rank *k = arg;
    k->st   = run_rank(k);
    return NULL;
}

typedef void (*maker)(const test_job *j, int r, int64_t bucket, weft_program **out);

static void make_lanes(const test_job *j, int r, int64_t bucket, weft_program **out)
{
    weft_partition_options o = {.n_micro             = WORLD,
                                .n_lane              = WORLD,
                                .dp                  = WORLD,
                                .rank                = r,
                                .reduce_bucket_bytes = bucket};
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, out));
}

/* As the words say. */
static void make_by(const test_job *j, const char *words, int r, int64_t bucket,
                    weft_program **out)
{
    weft_arena            *a;
    weft_strategy          h;
    weft_shard_options     o;
    weft_sharding         *s;
    weft_partition_options po = {.n_micro            = j->o.n_micro,
                                 .n_lane             = WORLD,
                                 .rank               = r,
                                 .shard_bucket_bytes = bucket};
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_strategy_parse(words, &h));
    po.gather_once = h.overlap_param_gather > 0;
    assert_ok(weft_shard_expand(&h, j->training.graph, NULL, 0, a, &o));
    o.n_mesh = 1;
    o.lanes  = 1u << weft_strategy_axis_at(&h, WEFT_AXIS_DP);
    assert_ok(weft_shard_propagate(j->training.graph, &o, &s));
    assert_ok(weft_partition_program(j->training.graph, s, &po, out));
    assert_ok(weft_program_verify(*out));
    weft_sharding_destroy(s);
    weft_arena_destroy(a);
}

/* Parameters, gradients and states in parts. */
static void make_parts(const test_job *j, int r, int64_t bucket, weft_program **out)
{
    make_by(j, "dp=2 zero=3", r, bucket, out);
}

/* States in parts, of two parameters of three, which the next step gathers. */
static void make_later(const test_job *j, int r, int64_t bucket, weft_program **out)
{
    make_by(j, "dp=2 zero=1 overlap_param_gather=0.66", r, bucket, out);
}

/* Seconds of the quickest step. */
static double run(const test_job *j, maker make, int64_t bucket, double bytes_per_s)
{
    weft_comm_local *hub;
    rank             k[WORLD];
    weft_comm       *inner[WORLD];
    pthread_t        thread[WORLD];
    double           s = 0;
    assert_ok(weft_comm_local_create(WORLD, &hub));
    for (int r = 0; r < WORLD; r++) {
        make(j, r, bucket, &k[r].program);
        assert_ok(weft_comm_local_join(hub, r, 60.0, &inner[r]));
        assert_ok(weft_comm_throttle(inner[r], bytes_per_s, 0, &k[r].comm));
    }
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, rank_thread, &k[r]), 0);
    for (int r = 0; r < WORLD; r++) {
        pthread_join(thread[r], NULL);
        assert_int_equal(k[r].st, WEFT_OK);
        if (k[r].best_s > s) s = k[r].best_s;
        weft_program_destroy(k[r].program);
        weft_comm_destroy(k[r].comm);
        weft_comm_destroy(inner[r]);
    }
    weft_comm_local_destroy(hub);
    return s;
}

/* What one rank sends in a step, and how many products it does. */
static int64_t count(const test_job *j)
{
    weft_partition_options o = {.n_micro = WORLD, .n_lane = WORLD, .dp = WORLD};
    weft_program          *p;
    int64_t                bytes = 0;
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p));
    n_product = n_backward = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++) {
            const weft_instr *q = &p->actor[a].instr[i];
            for (int t = 0; q->kind == WEFT_INSTR_COLLECTIVE && t < q->n_in; t++)
                bytes += weft_comm_wire_bytes(WEFT_ALL_REDUCE, q->in[t].type.dtype, WORLD,
                                              weft_shape_count(&q->in[t].type.shape));
            bool product = q->kind == WEFT_INSTR_COMPUTE && q->op == WEFT_OP_MATMUL;
            n_product += product;
            n_backward += product && a == 2;
        }
    weft_program_destroy(p);
    return bytes;
}

static void sums_hide_behind_the_backward_pass(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = WORLD});
    int64_t bytes = count(&j);
    assert_true(n_backward > n_product / 2);
    double compute = 1e9, behind = 1e9, beside = 1e9;
    /* a busy machine wakes sleepers late: the best of some tries, in turn */
    for (int i = 0;
         i < 8 && (i < 1 || beside > 1.17 * compute || behind < 1.55 * compute); i++) {
        double rate = (double)bytes / (1e-6 * PRODUCT_US * n_backward);
        double a = run(&j, make_lanes, 0, 1e12), b = run(&j, make_lanes, 0, rate),
               c = run(&j, make_lanes, 80000, rate);
        if (a < compute) compute = a;
        if (b < behind) behind = b;
        if (c < beside) beside = c;
    }
    print_message("compute alone %.0f ms; sums as long as the backward pass: behind it "
                  "%.0f ms, beside it %.0f ms (%.2f of compute)\n",
                  1e3 * compute, 1e3 * behind, 1e3 * beside, beside / compute);
    assert_true(WEFT_TEST_SANITIZED || behind > 1.5 * compute);
    /* tables of tokens and positions, a fifth of all bytes here, are finished last: nothing is
     * left to hide their sums behind */
    assert_true(WEFT_TEST_SANITIZED || beside < 1.2 * compute);
    test_job_close(&j);
}

/* Links so slow that communication takes as long as compute; rate: about what it takes. */
static void hides(maker make, int64_t bucket, double rate)
{
    test_job j;
    test_job_open(&j, "tests/fixtures/deep",
                  (test_job_options){.seq = 4, .n_micro = WORLD});
    bool   hidden  = false;
    double compute = 0, turn = 0, beside = 0, longer = 1;
    /* a busy machine wakes sleepers late: some tries, each judged by its own runs */
    for (int i = 0; i < 8 && !hidden; i++) {
        compute = run(&j, make, 0, 1e12);
        turn    = run(&j, make, 0, rate);
        if (turn < 1.85 * compute || turn > 2.15 * compute) { /* not as long: again */
            if (turn > 1.05 * compute) rate *= (turn - compute) / compute;
            continue;
        }
        beside = run(&j, make, bucket, rate);
        longer = turn - compute > compute ? turn - compute : compute;
        hidden = beside < 1.15 * longer;
    }
    print_message(
        "compute alone %.0f ms; communication as long: in turn %.0f ms, beside it "
        "%.0f ms (%.2f of the longer)\n",
        1e3 * compute, 1e3 * turn, 1e3 * beside, beside / longer);
    if (!WEFT_TEST_SANITIZED) assert_true(hidden);
    test_job_close(&j);
}

static void parts_are_gathered_and_scattered_beside_compute(void **state)
{
    (void)state;
    hides(make_parts, 150000, 3.5e6);
}

static void parameters_are_gathered_later(void **state)
{
    (void)state;
    hides(make_later, 40000, 2.3e6);
}

/* ---- in virtual time ---- */

/* Bytes that the rank sends for it. */
static double wire(const weft_instr *q)
{
    static const weft_collective op[]  = {[WEFT_ALL_REDUCE]     = WEFT_ALL_REDUCE,
                                          [WEFT_REDUCE_SCATTER] = WEFT_REDUCE_SCATTER,
                                          [WEFT_ALL_GATHER]     = WEFT_ALL_GATHER};
    double                       bytes = 0;
    for (int t = 0; t < q->n_in; t++)
        bytes += (double)weft_comm_wire_bytes(op[q->coll], q->in[t].type.dtype, WORLD,
                                              weft_shape_count(&q->in[t].type.shape));
    return bytes;
}

/* States the seconds of every instruction; the sums of a step. */
static void state_seconds(weft_program *p, double bytes_per_s, double *compute,
                          double *bytes)
{
    *compute = *bytes = 0;
    for (int a = 0; a < p->n_actor; a++) {
        int fires = 0;
        for (int s = 0; s < p->n_stream; s++)
            for (int f = 0; f < p->stream[s].n_firing; f++)
                fires += p->stream[s].firing[f].actor == a;
        for (int i = 0; i < p->actor[a].n_instr; i++) {
            weft_instr *q  = &p->actor[a].instr[i];
            bool   product = q->kind == WEFT_INSTR_COMPUTE && q->op == WEFT_OP_MATMUL;
            double sent    = q->kind == WEFT_INSTR_COLLECTIVE ? wire(q) : 0;
            q->seconds     = product ? 1e-6 * PRODUCT_US : sent / bytes_per_s;
            *compute += product ? fires * q->seconds : 0;
            *bytes += fires * sent;
        }
    }
}

/* A step where communication takes as long as compute, in units of either. */
static double step_of(const test_job *j, const char *words, int64_t bucket)
{
    weft_program       *p[WORLD];
    const weft_program *all[WORLD];
    weft_timeline      *t;
    double              compute, bytes;
    for (int r = 0; r < WORLD; r++) {
        make_by(j, words, r, bucket, &p[r]);
        state_seconds(p[r], 1, &compute, &bytes);
        state_seconds(p[r], bytes / compute, &compute, &bytes);
        all[r] = p[r];
    }
    assert_ok(test_simulate(all, WORLD, NULL, NULL, &t));
    double step = t->step_s / compute;
    weft_timeline_destroy(t);
    for (int r = 0; r < WORLD; r++) weft_program_destroy(p[r]);
    return step;
}

/* The forward pass is a third of compute.  Sums hide behind the backward pass, gathers behind the
 * forward pass: when all parameters are gathered, 1/2 of communication does not fit into 1/3 of
 * compute, and 7/6 is the least; of two thirds of them it does.  With m micro-batches a rank only
 * the first forward and the last backward pass hide anything: 2 - 1/m. */
static void what_can_hide(void **state)
{
    static const struct {
        int         n_micro;
        const char *words;
        double      least, most;
    } row[] = {{1, "dp=2 zero=1", 1.5, 1.53},
               {1, "dp=2 zero=1 overlap_param_gather=1", 7.0 / 6, 1.21},
               {1, "dp=2 zero=1 overlap_param_gather=0.8", 1, 1.12},
               {1, "dp=2 zero=1 overlap_param_gather=0.66", 1, 1.06},
               {2, "dp=2 zero=1 overlap_param_gather=0.66", 1.5, 1.53},
               {4, "dp=2 zero=2 overlap_param_gather=1", 1.75, 1.78}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        test_job j;
        test_job_open(&j, "tests/fixtures/deep",
                      (test_job_options){.seq = 4, .n_micro = row[i].n_micro * WORLD});
        double step = step_of(&j, row[i].words, 40000);
        print_message("%s, %d micro-batches a rank: %.3f\n", row[i].words, row[i].n_micro,
                      step);
        assert_true(step >= row[i].least && step <= row[i].most);
        test_job_close(&j);
    }
}

/* ---- a bucket is one message ---- */

static void count_calls(const weft_program *p, int *n_call, int *n_tensor)
{
    *n_call = *n_tensor = 0;
    for (int s = 0; s < p->n_stream; s++)
        for (int f = 0; f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int i = 0; i < a->n_instr; i++)
                if (a->instr[i].kind == WEFT_INSTR_COLLECTIVE) {
                    ++*n_call;
                    *n_tensor += a->instr[i].n_in;
                }
        }
}

/* Calls of a step: one a bucket, whose number its bytes say; behind the backward pass one for
 * all. */
static void a_bucket_is_one_call(void **state)
{
    test_job      j;
    weft_program *p;
    int           n_call, n_tensor;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = WORLD});
    make_lanes(&j, 0, 0, &p);
    count_calls(p, &n_call, &n_tensor);
    assert_int_equal(n_call, 1);
    assert_true(n_tensor > j.model->n_param);
    weft_program_destroy(p);
    make_lanes(&j, 0, 400000, &p);
    assert_ok(weft_program_verify(p));
    count_calls(p, &n_call, &n_tensor);
    print_message("%d tensors in %d calls\n", n_tensor, n_call);
    assert_int_equal(n_call, weft_program_stream(p, WEFT_STREAM_COMM)->n_firing);
    assert_in_range(n_call, 5, 12);
    weft_program_destroy(p);
    /* gathers, scatters, squares and what was updated */
    make_parts(&j, 0, 400000, &p);
    count_calls(p, &n_call, &n_tensor);
    print_message("zero=3: %d tensors in %d calls\n", n_tensor, n_call);
    assert_true(n_tensor > 3 * j.model->n_param);
    assert_true(n_call < n_tensor / 5);
    weft_program_destroy(p);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_is_one_call),
        cmocka_unit_test(sums_hide_behind_the_backward_pass),
        cmocka_unit_test(parts_are_gathered_and_scattered_beside_compute),
        cmocka_unit_test(parameters_are_gathered_later),
        cmocka_unit_test(what_can_hide),
    };
    return cmocka_run_group_tests(tests, make_sleeper, NULL);
}
