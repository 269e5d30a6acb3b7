/* A step that loses a peer before its commit point ends in the middle of its kernels; after it
 * every update is made to its end, whoever is lost. */
#include <stdatomic.h>

#include "comm/comm.h"
#include "exec/exec.h"
#include "support/exec.h"
#include "support/kernels.h"
#include "support/test.h"

enum {
    N_TASK = 1000 /* of a kernel */
};

static const char text[] =
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

/* Where the other rank gives up. */
typedef enum lost_in {
    NOWHERE,
    A_KERNEL,
    THE_VOTE, /* which still goes through */
    A_VOTE_THAT_FAILS,
    AN_UPDATE,
} lost_in;

static struct {
    weft_comm  *other;
    lost_in     lost;
    atomic_int  n_kernel, n_update; /* tasks that ran */
    atomic_bool is_lost;
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
    if (atomic_fetch_add(&run.n_kernel, 1) == 0 && run.lost == A_KERNEL) lose_other();
    while (run.lost == A_KERNEL && !atomic_load(&run.is_lost)) continue;
}

static void update_task(void *arg, int64_t task, int thread)
{
    (void)arg, (void)task, (void)thread;
    if (atomic_fetch_add(&run.n_update, 1) == 0 && run.lost == AN_UPDATE) lose_other();
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
    two_ranks           t = {0};
    weft_exec_options   o = {.n_thread = n_thread, .commit = vote};
    if (!device) device = test_device_with("dropping", choose);
    assert_ok(weft_program_parse("text", text, strlen(text), &t.p));
    assert_ok(weft_program_verify(t.p));
    assert_ok(weft_comm_local_create(2, &t.world));
    for (int i = 0; i < 2; i++) assert_ok(weft_comm_local_join(t.world, i, 60, &t.c[i]));
    o.comm      = t.c[0];
    o.device[0] = device;
    assert_ok(test_exec_create(t.p, &o, &t.e));
    run.other = t.c[1];
    run.lost  = lost;
    atomic_store(&run.n_kernel, 0);
    atomic_store(&run.n_update, 0);
    atomic_store(&run.is_lost, false);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_ends_early),
        cmocka_unit_test(a_run_after_a_loss_does_nothing),
        cmocka_unit_test(updates_are_made_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
