/* A step that loses a peer before its commit point ends in the middle of its kernels; after it
 * every update is made to its end, whichever rank is lost. */
#include <sched.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "exec/exec.h"
#include "support/exec.h"
#include "support/kernels.h"
#include "support/test.h"

enum {
    N_TASK = 1000 /* of a kernel */
};

static const char step_text[] =
    "program drop rank 0 of 2 micro 1 lanes 1 {\n"
    "  slab state state 64\n"
    "  slab work work 128\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer y slab work at 0 bytes 64\n"
    "  buffer norm slab work at 64 bytes 64\n"
    "  bind state w w f32[16]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor step on compute {\n"
    "    compute y gelu (w f32[16]) -> (y f32[16]) ;\n"
    "    compute norm sumsq (y f32[16]) -> (norm f64[]) ;\n"
    "    commit step (norm f64[]) ;\n"
    "    compute w_next scale \"alpha=2\" (y f32[16]) -> (w f32[16]) ;\n"
    "  }\n"
    "  list compute { step; }\n"
    "}\n";

/* The update is a stream of its own, which stays open when the step has ended. */
static const char open_text[] =
    "program open rank 0 of 2 micro 1 lanes 1 {\n"
    "  slab state state 128\n"
    "  slab work work 192\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer v slab state at 64 bytes 64\n"
    "  buffer y slab work at 0 bytes 64\n"
    "  buffer norm slab work at 64 bytes 64\n"
    "  buffer g slab work at 128 bytes 64\n"
    "  bind state w w f32[16]\n"
    "  bind state v v f32[16]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream update host device 0 threads 0\n"
    "  actor first on compute { compute y gelu (v f32[16]) -> (y f32[16]) ; }\n"
    "  actor step on compute {\n"
    "    compute norm sumsq (y f32[16]) -> (norm f64[]) ;\n"
    "    copy g (y f32[16]) -> (g f32[16]) ;\n"
    "    commit step (norm f64[]) ;\n"
    "  }\n"
    "  actor late on update {\n"
    "    compute w_next scale \"alpha=2\" (g f32[16]) -> (w f32[16]) ;\n"
    "  }\n"
    "  edge step -> late credits 1 per_step\n"
    "  edge late -> step credits 1 per_step delay 1\n"
    "  list compute { first; step; }\n"
    "  list update { late; }\n"
    "}\n";

/* Where the other rank gives up. */
typedef enum lost_in {
    NOWHERE,
    BEFORE_IT_IS_MADE,
    A_KERNEL,
    THE_VOTE, /* which still goes through */
    A_VOTE_THAT_FAILS,
    AN_UPDATE,
    AN_OPEN_UPDATE, /* when the next step has begun */
} lost_in;

static struct {
    weft_comm  *other;
    lost_in     lost;
    atomic_int  n_kernel, n_update; /* tasks that ran */
    atomic_bool next_has_begun, is_lost;
} run;

static void lose_other(void)
{
    weft_comm_abort(run.other, "it is lost");
    atomic_store(&run.is_lost, true);
}

/* The first task loses the peer; those that run beside it wait until it is lost. */
static void kernel_task(void *arg, int64_t task, int thread)
{
    (void)arg, (void)task, (void)thread;
    int  n     = atomic_fetch_add(&run.n_kernel, 1);
    bool waits = run.lost == A_KERNEL || (run.lost == AN_OPEN_UPDATE && n >= N_TASK);
    if (n == 0 && run.lost == A_KERNEL) lose_other();
    if (n >= N_TASK) atomic_store(&run.next_has_begun, true);
    while (waits && !atomic_load(&run.is_lost)) sched_yield();
}

static void update_task(void *arg, int64_t task, int thread)
{
    (void)arg, (void)task, (void)thread;
    if (atomic_fetch_add(&run.n_update, 1) || run.lost < AN_UPDATE) return;
    while (run.lost == AN_OPEN_UPDATE && !atomic_load(&run.next_has_begun)) sched_yield();
    lose_other();
}

static weft_status run_kernel(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    if (c->op == WEFT_OP_GELU) weft_pool_run(x->pool, N_TASK, kernel_task, NULL);
    if (c->op == WEFT_OP_SCALE) weft_pool_run(x->pool, N_TASK, update_task, NULL);
    memset(
        c->out[0].p, 0,
        (size_t)(weft_shape_count(&c->out[0].shape) * weft_dtype_bytes(c->out[0].dtype)));
    return WEFT_OK;
}

static weft_kernel choose(weft_op op)
{
    (void)op;
    return (weft_kernel){.run = run_kernel};
}

static weft_status vote(void *user, int64_t step, int n, const double *value, bool *hold)
{
    (void)user, (void)step, (void)n, (void)value, (void)hold;
    if (run.lost == THE_VOTE || run.lost == A_VOTE_THAT_FAILS) lose_other();
    return run.lost == A_VOTE_THAT_FAILS ? WEFT_FAIL(WEFT_ERR_PEER, "no vote") : WEFT_OK;
}

typedef struct two_ranks {
    weft_comm_local *world;
    weft_comm       *c[2];
    weft_program    *p;
    weft_exec       *e;
} two_ranks;

static two_ranks begin(int n_thread, lost_in lost)
{
    static weft_device *device;
    two_ranks           t    = {0};
    weft_exec_options   o    = {.n_thread = n_thread, .commit = vote};
    const char         *text = lost == AN_OPEN_UPDATE ? open_text : step_text;
    if (!device) device = test_device_with("dropping", choose);
    assert_ok(weft_program_parse("text", text, strlen(text), &t.p));
    assert_ok(weft_program_verify(t.p));
    assert_ok(weft_comm_local_create(2, &t.world));
    for (int i = 0; i < 2; i++) assert_ok(weft_comm_local_join(t.world, i, 60, &t.c[i]));
    o.comm      = t.c[0];
    o.device[0] = device;
    run.other   = t.c[1];
    run.lost    = lost;
    atomic_store(&run.n_kernel, 0);
    atomic_store(&run.n_update, 0);
    atomic_store(&run.next_has_begun, false);
    atomic_store(&run.is_lost, false);
    if (lost == BEFORE_IT_IS_MADE) lose_other();
    assert_ok(test_exec_create(t.p, &o, &t.e));
    return t;
}

static void end(two_ranks *t)
{
    test_exec_destroy(t->e);
    for (int i = 0; i < 2; i++) weft_comm_destroy(t->c[i]);
    weft_comm_local_destroy(t->world);
    weft_program_destroy(t->p);
}

static void check_held(const two_ranks *t, int64_t step)
{
    weft_exec_progress p = weft_exec_get_progress(t->e);
    assert_int_equal(p.outcome, WEFT_EXEC_HELD);
    assert_int_equal(p.arrived, step - 1);
    assert_int_equal(p.passed, step - 1);
    assert_int_equal(atomic_load(&run.n_update), 0);
}

static void a_kernel_ends_early(void **state)
{
    (void)state;
    for (int n_thread = 0; n_thread < 4; n_thread++) {
        two_ranks t = begin(n_thread, NOWHERE);
        assert_ok(weft_exec_run(t.e, 4, 1));
        assert_int_equal(atomic_exchange(&run.n_kernel, 0), N_TASK);
        assert_int_equal(atomic_exchange(&run.n_update, 0), N_TASK);
        run.lost = A_KERNEL;
        assert_fails(weft_exec_run(t.e, 5, 1), WEFT_ERR_PEER,
                     "rank 1 gave up: it is lost");
        assert_in_range(atomic_load(&run.n_kernel), 1, n_thread < 1 ? 1 : n_thread);
        check_held(&t, 5);
        end(&t);
    }
}

static void a_run_after_a_loss_does_nothing(void **state)
{
    (void)state;
    two_ranks t = begin(1, NOWHERE);
    assert_ok(weft_exec_run(t.e, 0, 1));
    atomic_store(&run.n_kernel, 0);
    atomic_store(&run.n_update, 0);
    lose_other();
    assert_fails(weft_exec_run(t.e, 1, 1), WEFT_ERR_PEER, "rank 1 gave up: it is lost");
    assert_int_equal(atomic_load(&run.n_kernel), 0);
    check_held(&t, 1);
    end(&t);
}

static void a_loss_before_it_is_made_counts(void **state)
{
    (void)state;
    two_ranks t = begin(1, BEFORE_IT_IS_MADE);
    assert_fails(weft_exec_run(t.e, 0, 1), WEFT_ERR_PEER, "rank 1 gave up: it is lost");
    assert_int_equal(atomic_load(&run.n_kernel), 0);
    check_held(&t, 0);
    end(&t);
}

static void updates_are_made_to_their_end(void **state)
{
    (void)state;
    static const lost_in list[] = {THE_VOTE, AN_UPDATE};
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        two_ranks t = begin(2, list[k]);
        assert_ok(weft_exec_run(t.e, 0, 1));
        assert_int_equal(atomic_load(&run.n_update), N_TASK);
        assert_int_equal(weft_exec_get_progress(t.e).outcome, WEFT_EXEC_RAN);
        end(&t);
    }
    two_ranks t = begin(2, A_VOTE_THAT_FAILS);
    assert_fails(weft_exec_run(t.e, 0, 1), WEFT_ERR_PEER, "no vote");
    assert_int_equal(weft_exec_get_progress(t.e).outcome, WEFT_EXEC_HELD);
    assert_int_equal(weft_exec_get_progress(t.e).arrived, 0);
    assert_ok(weft_exec_finish_alone(t.e)); /* another rank has passed */
    assert_int_equal(atomic_load(&run.n_update), N_TASK);
    assert_int_equal(weft_exec_get_progress(t.e).outcome, WEFT_EXEC_ALONE);
    end(&t);
}

/* An update that is under way when the next run begins had its pool before that. */
static void an_open_update_is_made_to_its_end(void **state)
{
    (void)state;
    two_ranks t = begin(1, AN_OPEN_UPDATE);
    assert_ok(weft_exec_start(t.e, 0, 1));
    while (!atomic_load(&run.n_update)) sched_yield();
    assert_fails(weft_exec_start(t.e, 1, 1), WEFT_ERR_PEER, "rank 1 gave up: it is lost");
    assert_int_equal(atomic_load(&run.n_kernel), N_TASK + 1);
    assert_int_equal(atomic_load(&run.n_update), N_TASK);
    assert_int_equal(weft_exec_get_progress(t.e).outcome, WEFT_EXEC_HELD);
    assert_int_equal(weft_exec_get_progress(t.e).passed, 0);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_ends_early),
        cmocka_unit_test(a_run_after_a_loss_does_nothing),
        cmocka_unit_test(a_loss_before_it_is_made_counts),
        cmocka_unit_test(updates_are_made_to_their_end),
        cmocka_unit_test(an_open_update_is_made_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
