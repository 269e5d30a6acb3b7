/* States of programs: they outlive programs and executors, and go from one plan to another.
 *
 * Ranks are threads.  A model is trained for two steps under one plan; its programs and executors
 * are destroyed, its state is moved to that of another plan, perhaps on another number of ranks,
 * and trained for another step: the weights and optimizer states have the bits of three steps
 * under one plan, for lanes make every one of these plans the same sum. */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/program_state.h"
#include "session/runner.h"
#include "session/weights.h"
#include "state/mover.h"
#include "support/files.h"

enum {
    MAX_RANK = 4,
    BATCH    = 8,
    SEQ      = 16,
};

static weft_training training;
static weft_data    *data;

typedef enum work_kind {
    WORK_INIT,
    WORK_TRAIN,
    WORK_MOVE,
    WORK_HASH,
} work_kind;

/* What all ranks do, each in its own thread. */
typedef struct work {
    work_kind    kind;
    weft_plan   *plan;
    int          rank, n_rank, first_step, n_step;
    weft_state **state, **to; /* of this rank */
    weft_comm   *comm;
    uint64_t     hash;
    weft_status  st;
    char         text[256];
} work;

static weft_status compile(const work *w, weft_compiled *c)
{
    return weft_compile_program(&training, w->plan, w->rank, c);
}

static weft_status init_state(work *w)
{
    weft_compiled c = {0};
    weft_weights  x = {.model = training.model, .graph = training.graph};
    WEFT_TRY(compile(w, &c));
    weft_status st =
        weft_program_state_create(&c, w->comm, weft_device_default(), w->state);
    x.state = *w->state;
    if (st == WEFT_OK) st = weft_weights_init(&x, 5);
    weft_compiled_fini(&c);
    return st;
}

/* Some steps with a program and an executor that end with them. */
static weft_status train(work *w)
{
    weft_compiled c    = {0};
    weft_pool    *pool = NULL;
    weft_runner  *r    = NULL;
    weft_status   st   = WEFT_OK;
    WEFT_GO(compile(w, &c));
    WEFT_GO(weft_pool_create(1, 0, &pool));
    weft_runner_options o = {.made  = &c,
                             .pool  = pool,
                             .seed  = 1,
                             .data  = data,
                             .comm  = w->comm,
                             .state = *w->state};
    WEFT_GO(weft_runner_create(&o, &r));
    for (int i = w->first_step; i < w->first_step + w->n_step; i++) {
        weft_runner_put(r, "lr", 1e-2);
        weft_runner_put(r, "step", i + 1);
        weft_runner_put(r, "inv_n", 1.0 / (BATCH * SEQ));
        WEFT_GO(weft_runner_step(r, i));
        weft_state_set_step(*w->state, i + 1);
    }
out:
    weft_runner_destroy(r);
    weft_pool_destroy(pool);
    weft_compiled_fini(&c);
    return st;
}

static weft_status open_group(weft_comm *c, weft_comm_group **out)
{
    static const int32_t rank[MAX_RANK] = {0, 1, 2, 3};
    return weft_comm_open_group(c, c->world, rank, 1 << 20, out);
}

/* A rank that has no place in a plan names its tensors and holds nothing. */
static weft_status empty_state(weft_state **out)
{
    const weft_graph *g = training.graph;
    WEFT_TRY(weft_state_create(NULL, 0, out));
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind == WEFT_VALUE_PARAM ||
            (g->value[v].kind == WEFT_VALUE_STATE && g->value[v].node < 0))
            WEFT_TRY(weft_state_add(
                *out, &(weft_state_tensor){.name  = g->value[v].name,
                                           .dtype = g->value[v].type.dtype,
                                           .shape = g->value[v].type.shape}));
    return WEFT_OK;
}

/* From state to a new one for the plan; then the old one is gone. */
static weft_status move(work *w)
{
    weft_compiled    c = {0};
    weft_comm_group *g;
    weft_holders    *from = NULL, *to = NULL;
    weft_mover      *m  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(open_group(w->comm, &g));
    if (!*w->state) WEFT_GO(empty_state(w->state));
    if (w->rank < w->n_rank) {
        WEFT_GO(compile(w, &c));
        WEFT_GO(weft_program_state_create(&c, NULL, weft_device_default(), w->to));
    } else {
        WEFT_GO(empty_state(w->to));
    }
    WEFT_GO(weft_holders_exchange(*w->state, w->comm, g, &from));
    WEFT_GO(weft_holders_exchange(*w->to, w->comm, g, &to));
    WEFT_GO(weft_mover_open(&(weft_mover_side){*w->state, from},
                            &(weft_mover_side){*w->to, to}, w->comm, 3, &m));
    WEFT_GO(weft_mover_run(m));
    weft_state_set_step(*w->to, weft_state_step(*w->state));
out:
    weft_mover_close(m);
    weft_holders_destroy(from);
    weft_holders_destroy(to);
    weft_compiled_fini(&c);
    return st;
}

/* Of all tensors, at rank 0. */
static weft_status hash(work *w)
{
    weft_comm_group *group;
    weft_holders    *h  = NULL;
    weft_gather     *g  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(open_group(w->comm, &group));
    WEFT_GO(weft_holders_exchange(*w->state, w->comm, group, &h));
    WEFT_GO(weft_gather_open(*w->state, h, w->comm, 5, &g));
    if (w->rank) {
        WEFT_GO(weft_gather_serve(g));
    } else {
        for (int i = 0; i < weft_state_count(*w->state); i++) {
            weft_region r = weft_region_whole(&weft_state_at(*w->state, i)->shape);
            uint64_t    one;
            WEFT_GO(weft_gather_hash(g, i, &r, &one));
            w->hash = w->hash * 31 + one;
        }
        WEFT_GO(weft_gather_release(g));
    }
out:
    weft_gather_close(g);
    weft_holders_destroy(h);
    return st;
}

static void *run_work(void *arg)
{
    work *w = arg;
    w->st   = w->kind == WORK_INIT    ? init_state(w)
              : w->kind == WORK_TRAIN ? train(w)
              : w->kind == WORK_MOVE  ? move(w)
                                      : hash(w);
    if (w->st == WEFT_OK) return NULL;
    snprintf(w->text, sizeof w->text, "%s", weft_error_text());
    weft_comm_abort(w->comm, w->text);
    return NULL;
}

/* On n ranks with a communicator of their own; gives what rank 0 found. */
static uint64_t run_ranks(const work *what, int n, weft_state **state, weft_state **to)
{
    weft_comm_local *world;
    work             w[MAX_RANK];
    pthread_t        thread[MAX_RANK];
    assert_ok(weft_comm_local_create(n, &world));
    for (int i = 0; i < n; i++) {
        w[i]       = *what;
        w[i].rank  = i;
        w[i].state = &state[i];
        w[i].to    = to ? &to[i] : NULL;
        assert_ok(weft_comm_local_join(world, i, 20, &w[i].comm));
    }
    for (int i = 0; i < n; i++) pthread_create(&thread[i], NULL, run_work, &w[i]);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < n; i++) weft_comm_destroy(w[i].comm);
    weft_comm_local_destroy(world);
    for (int i = 0; i < n; i++)
        if (w[i].st != WEFT_OK) fail_msg("rank %d: %s", i, w[i].text);
    return w[0].hash;
}

typedef struct phase {
    const char *strategy;
    int         n_rank, n_step;
} phase;

static weft_plan *make_plan(const char *text)
{
    weft_strategy y;
    weft_plan    *p;
    assert_ok(weft_strategy_parse(text, &y));
    assert_ok(weft_compile_plan(&training, &y, 0, &p));
    return p;
}

/* One phase after another; the hash of the state at the end. */
static uint64_t train_phases(const phase *x, int n)
{
    weft_state *state[MAX_RANK] = {0}, *to[MAX_RANK] = {0};
    int         step = 0, all = 0;
    uint64_t    out = 0;
    for (int i = 0; i < n; i++) all = x[i].n_rank > all ? x[i].n_rank : all;
    for (int i = 0; i < n; i++) {
        weft_plan *p = make_plan(x[i].strategy);
        work       w = {
                  .plan = p, .n_rank = x[i].n_rank, .first_step = step, .n_step = x[i].n_step};
        w.kind = i ? WORK_MOVE : WORK_INIT;
        run_ranks(&w, i ? all : x[i].n_rank, state, to);
        for (int k = 0; k < all && i; k++) {
            weft_state_destroy(state[k]);
            state[k] = to[k];
            to[k]    = NULL;
        }
        w.kind = WORK_TRAIN;
        run_ranks(&w, x[i].n_rank, state, NULL);
        step += x[i].n_step;
        assert_int_equal(weft_state_step(state[0]), step);
        w.kind = WORK_HASH;
        out    = run_ranks(&w, x[i].n_rank, state, NULL);
        weft_plan_destroy(p);
    }
    for (int k = 0; k < all; k++) weft_state_destroy(state[k]);
    return out;
}

static void open_job(const char *dtype)
{
    static uint16_t   token[4000];
    weft_compile_spec s = weft_compile_spec_default("tiny256", BATCH, SEQ);
    s.micro_batch       = 1;
    s.lanes             = 4;
    s.dtype             = dtype;
    for (int i = 0; i < 4000; i++) token[i] = (uint16_t)(i * 7919 % 251);
    test_files_begin();
    test_files_write(test_files_path("tokens.bin"), token, sizeof token);
    assert_ok(weft_compile_training(&s, &training));
    assert_ok(weft_data_open(test_files_path("tokens.bin"),
                             &(weft_data_options){.seq = SEQ, .format = "u16"}, &data));
}

static void close_job(void)
{
    weft_data_close(data);
    weft_training_fini(&training);
    test_files_end();
}

/* The reference: three steps of dp=2 zero=1 without a move. */
static void check_phases(const phase *x, int n)
{
    static const phase whole = {"dp=2 zero=1", 2, 3};
    assert_true(train_phases(&whole, 1) == train_phases(x, n));
}

static void from_zero1_to_zero3(void **state)
{
    (void)state;
    open_job("fp32");
    check_phases((phase[]){{"dp=2 zero=1", 2, 2}, {"dp=4 zero=3", 4, 1}}, 2);
    check_phases((phase[]){{"dp=4 zero=3", 4, 1}, {"dp=2", 2, 1}, {"dp=3 zero=2", 3, 1}},
                 3);
    close_job();
}

static void to_stages_and_back(void **state)
{
    (void)state;
    open_job("bf16");
    check_phases((phase[]){{"dp=2 pp=2 zero=1", 4, 1}, {"dp=1", 1, 1}, {"pp=2", 2, 1}},
                 3);
    close_job();
}

/* tp rounds otherwise, so only the move is compared: to tp=2 and back is where it was. */
static void to_tensor_parallel_and_back(void **state)
{
    (void)state;
    open_job("bf16");
    uint64_t stay = train_phases((phase[]){{"dp=2 zero=1", 2, 2}}, 1);
    assert_true(stay ==
                train_phases((phase[]){{"dp=2 zero=1", 2, 2}, {"tp=2", 2, 0}}, 2));
    assert_true(stay == train_phases((phase[]){{"dp=2 zero=1", 2, 2},
                                               {"tp=2 dp=2 zero=3", 4, 0},
                                               {"pp=2", 2, 0}},
                                     3));
    assert_true(stay != train_phases((phase[]){{"dp=2 zero=1", 2, 1}}, 1));
    close_job();
}

int main(void)
{
    const struct CMUnitTest test[] = {
        test_sanitized(from_zero1_to_zero3),
        test_plain(to_stages_and_back),
        test_plain(to_tensor_parallel_and_back),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
