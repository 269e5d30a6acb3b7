/* src/runtime/exec/need.c: what is said before equals what an exec then takes. */
#include "support/test.h"

#include "base/pool.h"
#include "compile/compile.h"
#include "support/exec.h"

static weft_status read_nothing(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    (void)user, (void)step, (void)micro, (void)n, (void)out;
    return WEFT_OK;
}

static int64_t staging_bytes(const weft_program *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind == WEFT_SLAB_STAGING) bytes += p->slab[i].bytes;
    return bytes;
}

static void check_program(const weft_program *p, weft_pool *pool)
{
    weft_exec_options o = {
        .device = {weft_device_cpu()}, .pool = pool, .read = read_nothing};
    weft_exec *e    = NULL;
    int64_t    need = 0, guarded = 0;
    assert_ok(weft_exec_need(p, weft_device_cpu(), pool, &need));
    assert_ok(test_exec_create(p, &o, &e));
    assert_true(need > 0);
    assert_int_equal(need, weft_exec_mem(e).scratch_bytes);
    test_exec_destroy(e);
    /* memory that the host does not reach: staging has a copy there */
    assert_ok(weft_exec_need(p, weft_device_guard(), pool, &guarded));
    assert_int_equal(guarded, need + staging_bytes(p));
}

static void check_model(const char *model, const char *optimizer,
                        weft_strategy_recompute r)
{
    weft_training     t = {0};
    weft_compiled     c = {0};
    weft_pool        *pool;
    weft_compile_spec s = weft_compile_spec_default(model, 6, 12);
    s.micro_batch       = 2;
    s.lanes             = 2;
    s.recompute         = r;
    s.optimizer.name    = optimizer;
    s.optimizer.clip    = 1;
    assert_ok(weft_pool_create(2, 0, &pool));
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &c));
    check_program(c.program, pool);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    weft_pool_destroy(pool);
}

static void test_scratch(void **state)
{
    (void)state;
    check_model("tests/fixtures/gpt2/init", "adamw", WEFT_STRATEGY_KEEP);
    check_model("tests/fixtures/llama/init", "lamb", WEFT_STRATEGY_SELECTIVE);
    check_model("tests/fixtures/gpt2/init", "sgd", WEFT_STRATEGY_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
