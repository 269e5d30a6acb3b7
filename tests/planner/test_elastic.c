/* micro_batch and lanes for all numbers of ranks that a job may have. */
#include <math.h>
#include <string.h>

#include "base/lanes.h"
#include "planner/elastic.h"
#include "planner/planner.h"
#include "support/test.h"

static const int one_rank[] = {1, 1, 1, 1, 1};

/* As found where nothing is measured. */
static const char hosts[] =
    "name: here\ndevice:\n  - {name: cpu, flops: {f32: 1e11}, efficiency: 0.8, mem_Bps: "
    "1e10, mem_bytes: 8000000000, launch_s: 2e-06}\nlink:\n  - {name: net, scope: net, "
    "alpha_s: 3e-05, Bps: 1.1e9}\nnode:\n  - {name: host, count: 5, device: cpu, "
    "n_device: 1, net: net, n_port: 1}\n";

typedef struct job_sizes {
    weft_training     training;
    weft_cluster     *cluster;
    int               n;
    weft_elastic_size size[WEFT_ELASTIC_MAX_SIZE];
} job_sizes;

/* Hosts of one rank each, from min to max. */
static void open_sizes(const char *model, int batch, int min, int max, job_sizes *out)
{
    weft_compile_spec s = weft_compile_spec_default(model, batch, 128);
    *out                = (job_sizes){0};
    s.lanes = s.micro_batch = 1;
    s.reduction             = WEFT_REDUCTION_INVARIANT;
    s.dtype                 = "fp32";
    assert_ok(weft_compile_training(&s, &out->training));
    assert_ok(weft_cluster_parse("hosts", hosts, strlen(hosts), &out->cluster));
    for (int n = min; n <= max; n++)
        out->size[out->n++] = (weft_elastic_size){
            .n_host = n, .host_ranks = one_rank, .cluster = out->cluster, .n_least = min};
}

static void close_sizes(job_sizes *x)
{
    weft_training_fini(&x->training);
    weft_cluster_destroy(x->cluster);
}

static weft_elastic_request request_of(const job_sizes *x)
{
    return (weft_elastic_request){.training  = &x->training,
                                  .on_cpus   = true,
                                  .n_size    = x->n,
                                  .size      = x->size,
                                  .recompute = -1};
}

/* Lanes for the replicas of the largest size, whatever the fastest plan of that alone is, and no
 * size is worse than with fewer by what predictions are off. */
static void lanes_are_for_all_sizes(void **state)
{
    static const struct {
        int batch, min, max, lanes;
    } rows[] = {{8, 1, 2, 2}, {8, 2, 3, 4}, {8, 1, 4, 4}, {2, 1, 4, 2}, {1, 1, 2, 1}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        job_sizes           x;
        weft_elastic_answer a, of_one;
        open_sizes("tiny256", rows[i].batch, rows[i].min, rows[i].max, &x);
        weft_elastic_request q = request_of(&x);
        assert_ok(weft_elastic_choose(&q, &a));
        if (a.lanes != rows[i].lanes)
            fail_msg("batch %d, %d to %d hosts: lanes %d", rows[i].batch, rows[i].min,
                     rows[i].max, (int)a.lanes);
        assert_true(a.lanes * a.micro_batch <= rows[i].batch);
        assert_int_equal(a.recompute, 0);
        q.lanes = 1;
        assert_ok(weft_elastic_choose(&q, &of_one));
        double mean = 0;
        for (int k = 0; k < x.n; k++) mean += log(a.step_s[k] / of_one.step_s[k]) / x.n;
        assert_true(exp(mean) < 1.1 + 1e-9);
        close_sizes(&x);
    }
}

/* What the job gives stays. */
static void what_is_given_stays(void **state)
{
    (void)state;
    job_sizes           x;
    weft_elastic_answer a;
    open_sizes("tiny256", 16, 1, 4, &x);
    weft_elastic_request q = request_of(&x);
    q.lanes                = 2;
    assert_ok(weft_elastic_choose(&q, &a));
    assert_int_equal(a.lanes, 2);
    q.lanes       = 0;
    q.micro_batch = 8;
    assert_ok(weft_elastic_choose(&q, &a));
    assert_int_equal(a.micro_batch, 8);
    assert_true(a.lanes <= 2);
    q.micro_batch = 0;
    q.recompute   = WEFT_STRATEGY_FULL;
    assert_ok(weft_elastic_choose(&q, &a));
    assert_int_equal(a.recompute, WEFT_STRATEGY_FULL);
    q.n_size = 0;
    assert_int_equal(weft_elastic_choose(&q, &a), WEFT_ERR_ARG);
    close_sizes(&x);
}

/* A model that one device cannot hold: the sizes at which it fits count. */
static void sizes_at_which_nothing_fits(void **state)
{
    (void)state;
    job_sizes           x;
    weft_elastic_answer a;
    open_sizes("gpt2", 2, 1, 2, &x);
    weft_cluster *small                            = x.cluster;
    small->device[small->node[0].device].mem_bytes = INT64_C(1900) << 20;
    weft_elastic_request q                         = request_of(&x);
    assert_ok(weft_elastic_choose(&q, &a));
    assert_true(a.step_s[0] > 1e6); /* INFINITY */
    assert_true(a.step_s[x.n - 1] < 1e6);
    small->device[small->node[0].device].mem_bytes = 1 << 20;
    assert_int_equal(weft_elastic_choose(&q, &a), WEFT_ERR_NOFIT);
    close_sizes(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_for_all_sizes),
        cmocka_unit_test(what_is_given_stays),
        cmocka_unit_test(sizes_at_which_nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
