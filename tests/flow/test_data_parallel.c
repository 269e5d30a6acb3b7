/* Any number of data-parallel ranks trains like one, to the last bit.  Ranks are threads of this
 * process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "exec/exec.h"
#include "graph/train.h"
#include "model/model.h"
#include "partition/partition.h"
#include "support/exec.h"
#include "support/test.h"

enum {
    SEQ      = 16,
    STEPS    = 3,
    MAX_RANK = 8
};

/* Narrow layers make the same programs of fewer numbers; without sanitizers four lanes are wide. */
#define NARROW "tests/fixtures/four"
#define TINY   (TEST_LONG && !WEFT_TEST_SANITIZED ? "tiny256" : NARROW)
#define WIDE   (WEFT_TEST_SANITIZED ? NARROW : "tiny256")

static int n_token; /* that the model of the test has */

/* Micro-batches a step, of one sequence each, and the lanes they are dealt to. */
typedef struct deal {
    int micro, lanes;
} deal;

typedef struct result {
    float    loss[STEPS], norm[STEPS];
    uint64_t weights;
} result;

typedef struct rank {
    const weft_program        *program;
    const weft_model          *model;
    const weft_training_graph *training;
    weft_comm                 *comm;
    weft_exec                 *exec;
    int                        batch;
    result                     r;
    weft_status                st;
} rank;

static weft_status read_tokens(void *user, int64_t step, int micro, int n,
                               const weft_view *out)
{
    (void)user;
    for (int k = 0; k < n; k++) {
        int32_t *p = out[k].p;
        for (int64_t i = 0; i < weft_shape_count(&out[k].shape); i++)
            p[i] = (int32_t)((step * 7919 + micro * 104729 + i * 31 + k * 17) % n_token);
    }
    return WEFT_OK;
}

static weft_status fill(void *arg, const weft_model_param *p, const weft_model_tensor *t,
                        int64_t first, int64_t n, const float *x)
{
    weft_view v;
    WEFT_TRY(weft_exec_binding(arg, p->name, 0, &v));
    assert_int_equal(p->n_tensor,
                     1); /* a piece of the parameter is a piece of its tensor */
    (void)t;
    memcpy((float *)v.p + first, x, sizeof *x * (size_t)n);
    return WEFT_OK;
}

static weft_status put(rank *k, weft_vid v, float x)
{
    weft_view at;
    WEFT_TRY(
        weft_exec_binding(k->exec, weft_graph_value_name(k->training->graph, v), 0, &at));
    *(float *)at.p = x;
    return WEFT_OK;
}

static weft_status get(rank *k, weft_vid v, float *x)
{
    weft_view at;
    WEFT_TRY(
        weft_exec_binding(k->exec, weft_graph_value_name(k->training->graph, v), 0, &at));
    *x = *(float *)at.p;
    return WEFT_OK;
}

static weft_status train(rank *k)
{
    weft_exec_options o = {.n_thread    = 1,
                           .comm        = k->comm,
                           .batch       = k->batch,
                           .micro_batch = 1,
                           .seed        = 1,
                           .read        = read_tokens};
    weft_hash_state   h;
    WEFT_TRY(test_exec_create(k->program, &o, &k->exec));
    WEFT_TRY(weft_model_init(k->model, 7, fill, k->exec));
    for (int s = 0; s < STEPS; s++) {
        WEFT_TRY(put(k, k->training->lr, 1e-3f));
        WEFT_TRY(put(k, k->training->step, (float)(s + 1)));
        WEFT_TRY(put(k, k->training->inv_n, 1.0f / (float)(k->batch * SEQ)));
        WEFT_TRY(weft_exec_run(k->exec, s, 1));
        WEFT_TRY(get(k, k->training->loss, &k->r.loss[s]));
        WEFT_TRY(get(k, k->training->grad_norm, &k->r.norm[s]));
    }
    weft_hash_init(&h, 0);
    for (int i = 0; i < k->model->n_param; i++) {
        weft_view v;
        WEFT_TRY(weft_exec_binding(k->exec, k->model->param[i].name, 0, &v));
        weft_hash_add(&h, v.p, sizeof(float) * (size_t)weft_shape_count(&v.shape));
    }
    k->r.weights = weft_hash_value(&h);
    return WEFT_OK;
}

static void *train_thread(void *arg)
{
    rank *k = arg;
    k->st   = train(k);
    if (k->st != WEFT_OK) print_error("%s\n", weft_error_text());
    return NULL;
}

static void assert_text(const weft_program *p)
{
    weft_text     a = {0}, b = {0};
    weft_program *q;
    assert_ok(weft_program_print(p, &a));
    assert_ok(weft_program_parse("text", a.s, a.n, &q));
    assert_ok(weft_program_print(q, &b));
    assert_string_equal(a.s, b.s);
    weft_program_destroy(q);
    weft_text_fini(&a);
    weft_text_fini(&b);
}

/* All ranks of a job of `world`; each must end with the same numbers.  bucket: bytes of the sums
 * that run beside the backward pass; 0: they come behind it. */
static result run(const weft_model *m, const weft_training_graph *t, deal d, int world,
                  int64_t bucket)
{
    rank             k[MAX_RANK] = {0};
    pthread_t        thread[MAX_RANK];
    weft_program    *p[MAX_RANK];
    weft_comm_local *hub;
    assert_ok(weft_comm_local_create(world, &hub));
    for (int r = 0; r < world; r++) {
        weft_partition_options o = {.n_micro             = d.micro,
                                    .n_lane              = d.lanes,
                                    .dp                  = world,
                                    .rank                = r,
                                    .reduce_bucket_bytes = bucket};
        assert_ok(weft_partition_program(t->graph, NULL, &o, &p[r]));
        assert_text(p[r]);
        k[r] = (rank){.program = p[r], .model = m, .training = t, .batch = d.micro};
        assert_ok(weft_comm_local_join(hub, r, 30.0, &k[r].comm));
    }
    assert_ok(weft_program_verify_all((const weft_program *const *)p, world));
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, train_thread, &k[r]), 0);
    for (int r = 0; r < world; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < world; r++) {
        assert_int_equal(k[r].st, WEFT_OK);
        assert_memory_equal(&k[r].r, &k[0].r, sizeof k[0].r);
        test_exec_destroy(k[r].exec);
        weft_comm_destroy(k[r].comm);
        weft_program_destroy(p[r]);
    }
    weft_comm_local_destroy(hub);
    return k[0].r;
}

static void ranks_train_like_one(const char *model, deal d, int worlds)
{
    weft_model         *m;
    weft_training_graph t;
    weft_model_options  mo = {.batch = 1, .seq = SEQ, .with_loss = true};
    weft_train_param    param[128];

    n_token = strcmp(model, NARROW) ? 251 : 31;
    assert_ok(weft_model_load(model, &mo, &m));
    assert_true(m->n_param <= 128);
    for (int i = 0; i < m->n_param; i++)
        param[i] = (weft_train_param){m->param[i].value, m->param[i].decay};
    weft_train_options to = {.loss         = m->loss_sum,
                             .optimizer    = "adamw",
                             .beta         = {0.9, 0.95},
                             .eps          = 1e-8,
                             .weight_decay = 0.1,
                             .clip         = 1,
                             .n_param      = m->n_param,
                             .param        = param,
                             .n_micro      = d.micro};
    assert_ok(weft_graph_make_training(m->graph, &to, &t));

    result one = run(m, &t, d, 1, 0);
    assert_true(one.loss[STEPS - 1] != one.loss[0]);
    assert_true(!strcmp(model, NARROW) || one.loss[STEPS - 1] < one.loss[0]);
    for (int world = 2; world <= MAX_RANK; world++) {
        if (!(worlds >> world & 1)) continue;
        for (int64_t bucket = 0; bucket <= 1 << 20;
             bucket         = bucket ? bucket * 32 : 32768) {
            result many = run(m, &t, d, world, bucket);
            assert_memory_equal(&many, &one, sizeof one);
        }
    }
    weft_graph_destroy(t.graph);
    weft_model_destroy(m);
}

static void four_lanes(void **state)
{
    (void)state;
    ranks_train_like_one(WIDE, (deal){8, 4}, 1 << 2 | 1 << 3 | 1 << 4);
}

static void eight_lanes(void **state)
{
    (void)state;
    ranks_train_like_one(TINY, (deal){8, 8}, 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8);
}

static void lanes_of_one_and_two(void **state)
{
    (void)state;
    ranks_train_like_one(TINY, (deal){11, 8}, 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6);
    ranks_train_like_one(TINY, (deal){5, 4}, 1 << 3);
}

static void more_ranks_than_lanes_are_refused(void **state)
{
    weft_graph   *g;
    weft_program *p;
    (void)state;
    assert_ok(weft_graph_create("g", &g));
    weft_partition_options o = {.n_micro = 4, .n_lane = 2, .dp = 4};
    assert_int_equal(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "set lanes to at least 4"));
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_lanes),
        test_plain(eight_lanes),
        test_sanitized(lanes_of_one_and_two),
        cmocka_unit_test(more_ranks_than_lanes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
