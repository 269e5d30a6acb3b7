/* What is prepared before the first step: kernels of a device once for each instruction and slot,
 * released again, also where the n-th one fails; nothing of a step is in what was prepared. */
#include <stdlib.h>

#include "exec/exec.h"
#include "support/exec.h"
#include "support/kernels.h"
#include "support/test.h"

/* Two micro-batches through two slots, so that two variants of an actor are prepared; two lanes
 * make `first` and adding variants. */
static const char slots_text[] =
    "program slots rank 0 of 1 micro 4 lanes 1 {\n"
    "  slab work work 640\n"
    "  slab state state 64\n"
    "  buffer x slab state at 0 bytes 64\n"
    "  buffer y slab work at 0 bytes 64 slots 2 by micro\n"
    "  buffer g slab work at 128 bytes 64\n"
    "  buffer total slab work at 192 bytes 64\n"
    "  bind state x x f32[16]\n"
    "  bind output total total f32[16]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor fwd on compute {\n"
    "    compute y dropout \"p=0.5 id=3\" (x f32[4,4]) -> (y f32[4,4]) ;\n"
    "    compute g reduce \"axes=[0]\" (y f32[1,16]) -> (g f32[16]) add 1 ;\n"
    "  }\n"
    "  actor end on compute {\n"
    "    compute total scale \"alpha=2\" (g f32[16]) -> (total f32[16]) ;\n"
    "  }\n"
    "  list compute { fwd 0 first; fwd 1; fwd 2; fwd 3; end; }\n"
    "}\n";
/* fwd over slot 0 stores and adds, over slot 1 adds: three variants of two; and end */
enum {
    N_PREPARED = 3 * 2 + 1
};

static weft_program *parse(const char *text)
{
    weft_program *p;
    assert_ok(weft_program_parse("text", text, strlen(text), &p));
    assert_ok(weft_program_verify(p));
    return p;
}

/* ---- a device that counts ---- */

static int n_prepared, n_released, fail_at;

static weft_status run_prepared(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    (void)x;
    /* prepared for this call, with all it may hold */
    return *(const weft_view **)c->prepared == c->in
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_INTERNAL, "not mine");
}

static weft_status prepare_counted(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                   weft_arena *arena, void **out)
{
    (void)arena;
    if (n_prepared == fail_at) return WEFT_FAIL(WEFT_ERR_IO, "no descriptor");
    if (!x->scalars || !x->scratch) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no addresses");
    const weft_view **mine = malloc(sizeof *mine); /* a leak is seen by sanitizers */
    if (!mine) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *mine = c->in;
    *out  = mine;
    n_prepared++;
    return WEFT_OK;
}

static void release_counted(void *prepared)
{
    free(prepared);
    n_released++;
}

static size_t some_scratch(const weft_kernel_call *c, int n_thread)
{
    (void)c, (void)n_thread;
    return 100;
}

static weft_kernel choose_counting(weft_op op)
{
    (void)op;
    return (weft_kernel){.run     = run_prepared,
                         .scratch = some_scratch,
                         .prepare = prepare_counted,
                         .release = release_counted};
}

static weft_device *counting;

static int make_device(void **state)
{
    (void)state;
    counting = test_device_with("counting", choose_counting);
    return 0;
}

static void prepared_once_and_released(void **state)
{
    (void)state;
    weft_program *p      = parse(slots_text);
    int64_t       before = weft_device_bytes();
    weft_exec    *e;
    n_prepared = n_released = 0;
    fail_at                 = -1;
    assert_ok(test_exec_create(p, &(weft_exec_options){.device = {counting}}, &e));
    assert_int_equal(n_prepared, N_PREPARED);
    assert_ok(weft_exec_run(e, 0, 3));
    assert_int_equal(n_prepared, N_PREPARED);
    assert_int_equal(n_released, 0);
    test_exec_destroy(e);
    assert_int_equal(n_released, N_PREPARED);
    assert_int_equal(weft_device_bytes(), before);
    weft_program_destroy(p);
}

static void the_nth_prepare_fails(void **state)
{
    (void)state;
    weft_program *p      = parse(slots_text);
    int64_t       before = weft_device_bytes();
    weft_exec    *e;
    for (fail_at = 0; fail_at < N_PREPARED; fail_at++) {
        n_prepared = n_released = 0;
        assert_fails(test_exec_create(p, &(weft_exec_options){.device = {counting}}, &e),
                     WEFT_ERR_IO, "': no descriptor");
        assert_non_null(strstr(weft_error_text(), "program slots, actor "));
        assert_int_equal(n_prepared, fail_at);
        assert_int_equal(n_released, fail_at);
        assert_int_equal(weft_device_bytes(), before);
    }
    weft_program_destroy(p);
}

/* ---- one executor for two steps, and one for each ---- */

static const weft_exec_options job = {.seed = 5, .batch = 16, .micro_batch = 4};

static weft_exec *open_exec(const weft_program *p)
{
    weft_exec *e;
    weft_view  x;
    assert_ok(test_exec_create(p, &job, &e));
    assert_ok(weft_exec_binding(e, "x", 0, &x));
    for (int i = 0; i < 16; i++) ((float *)x.p)[i] = (float)(i + 1);
    return e;
}

static void run_step(weft_exec *e, int64_t step, float *total)
{
    weft_view v;
    assert_ok(weft_exec_run(e, step, 1));
    assert_ok(weft_exec_binding(e, "total", 0, &v));
    memcpy(total, v.p, 16 * sizeof *total);
}

static void steps_are_not_prepared(void **state)
{
    (void)state;
    weft_program *p    = parse(slots_text);
    weft_exec    *once = open_exec(p);
    float         a[16], b[16], last[16] = {0};
    for (int64_t step = 3; step < 6; step++) {
        weft_exec *fresh = open_exec(p);
        run_step(once, step, a);
        run_step(fresh, step, b);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_not_equal(a, last, sizeof a); /* other masks in every step */
        memcpy(last, a, sizeof a);
        test_exec_destroy(fresh);
    }
    test_exec_destroy(once);
    weft_program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_once_and_released),
        cmocka_unit_test(the_nth_prepare_fails),
        cmocka_unit_test(steps_are_not_prepared),
    };
    return cmocka_run_group_tests(tests, make_device, NULL);
}
