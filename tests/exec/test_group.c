/* src/runtime/exec/group.c: instructions that become one call of a kernel, and those that may
 * not. */
#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "support/exec.h"
#include "support/kernels.h"
#include "support/test.h"

/* ---- a device whose scale takes many calls; everything else is the CPU's ---- */

static char   log_text[512];
static size_t many_scratch;

static void log_add(const char *text)
{
    strcat(log_text, text);
}

static const weft_kernel *find_cpu(weft_op op)
{
    const weft_kernel_table *t = weft_kernel_table_at(0);
    for (int k = 0; k < t->n; k++)
        if (t->kernel[k].op == op) return &t->kernel[k];
    return NULL;
}

static weft_status run_logged(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    log_add(c->op == WEFT_OP_SCALE ? "scale " : "other ");
    return find_cpu(c->op)->run(c, x);
}

static weft_status run_many(const weft_kernel_call *const *c, int n,
                            const weft_kernel_ctx *x)
{
    char text[32];
    snprintf(text, sizeof text, "scale*%d ", n);
    log_add(text);
    memset(x->scratch, 1, 1000 * (size_t)n); /* what was asked for is there */
    for (int i = 0; i < n; i++) {
        if (c[i]->op != WEFT_OP_SCALE) return WEFT_FAIL(WEFT_ERR_INTERNAL, "not mine");
        WEFT_TRY(find_cpu(WEFT_OP_SCALE)->run(c[i], x));
    }
    return WEFT_OK;
}

static size_t scratch_many(const weft_kernel_call *const *c, int n, int n_thread)
{
    (void)c, (void)n_thread;
    many_scratch = 1000 * (size_t)n;
    return many_scratch;
}

static weft_kernel choose(weft_op op)
{
    static const weft_kernel_many many = {.run = run_many, .scratch = scratch_many};
    const weft_kernel            *cpu  = find_cpu(op);
    if (!cpu) return (weft_kernel){0};
    weft_kernel k = *cpu;
    k.run         = run_logged;
    if (op == WEFT_OP_SCALE) k.many = &many;
    return k;
}

static weft_device *logging;

static int make_device(void **state)
{
    (void)state;
    logging = test_device_with("logging", choose);
    return 0;
}

/* ---- programs ---- */

#define PROGRAM(instrs)                                                                  \
    "program p rank 0 of 1 micro 1 lanes 1 {\n"                                          \
    "  slab work work 1024\n"                                                            \
    "  slab state state 64\n"                                                            \
    "  buffer x slab state at 0 bytes 64\n"                                              \
    "  buffer a slab work at 0 bytes 64\n"                                               \
    "  buffer b slab work at 64 bytes 64\n"                                              \
    "  buffer c slab work at 128 bytes 64\n"                                             \
    "  buffer d slab work at 192 bytes 64\n"                                             \
    "  buffer e slab work at 256 bytes 64\n"                                             \
    "  bind state x x f32[16]\n"                                                         \
    "  bind output e e f32[16]\n"                                                        \
    "  stream compute compute device 0 threads 0\n"                                      \
    "  actor all on compute {\n" instrs "  }\n"                                          \
    "  list compute { all; }\n"                                                          \
    "}\n"
#define SCALE(to, from)                                                                  \
    "compute " to " scale \"alpha=2\" (" from " f32[16]) -> (" to " f32[16]) ;\n"
#define ADD(to, a, b)                                                                    \
    "compute " to " add (" a " f32[16], " b " f32[16]) -> (" to " f32[16]) ;\n"

/* Runs it on a device; the output is 16 times the same number. */
static float run_on(weft_device *d, const char *text, int trace)
{
    weft_program *p;
    weft_exec    *e;
    weft_view     v;
    assert_ok(weft_program_parse("text", text, strlen(text), &p));
    assert_ok(weft_program_verify(p));
    log_text[0] = 0;
    assert_ok(
        test_exec_create(p, &(weft_exec_options){.device = {d}, .trace = trace}, &e));
    assert_ok(weft_exec_binding(e, "x", 0, &v));
    for (int i = 0; i < 16; i++) ((float *)v.p)[i] = 1;
    assert_ok(weft_exec_run(e, 0, 1));
    assert_ok(weft_exec_binding(e, "e", 0, &v));
    float y = ((float *)v.p)[7];
    test_exec_destroy(e);
    weft_program_destroy(p);
    return y;
}

static void check(const char *text, const char *calls)
{
    float want = run_on(weft_device_cpu(), text, 0);
    assert_true(run_on(logging, text, 0) == want);
    assert_string_equal(log_text, calls);
}

static void independent_calls_are_one(void **state)
{
    (void)state;
    check(PROGRAM(SCALE("a", "x") SCALE("b", "x") SCALE("c", "x") ADD("d", "a", "b")
                      ADD("e", "d", "c")),
          "scale*3 other other ");
    assert_int_equal(many_scratch, 3000);
}

/* Between two calls is one that reads what the first one made. */
static void a_call_joins_over_others(void **state)
{
    (void)state;
    check(PROGRAM(SCALE("a", "x") ADD("c", "a", "a") SCALE("b", "x") ADD("d", "b", "c")
                      ADD("e", "d", "d")),
          "scale*2 other other other ");
}

static void what_depends_stays(void **state)
{
    (void)state;
    /* reads what an earlier call made, or what one in between made */
    check(PROGRAM(SCALE("a", "x") SCALE("b", "a") SCALE("e", "b")), "scale scale scale ");
    check(PROGRAM(SCALE("a", "x") ADD("b", "a", "x") SCALE("e", "b")),
          "scale other scale ");
    /* writes what one in between reads, or what the first one reads or wrote */
    check(PROGRAM(SCALE("a", "x") SCALE("b", "x") ADD("c", "a", "b") SCALE("b", "a")
                      ADD("e", "b", "c")),
          "scale*2 other scale other ");
    check(PROGRAM(SCALE("c", "x") SCALE("a", "c") SCALE("c", "x") ADD("e", "a", "c")),
          "scale scale scale other ");
    check(PROGRAM(SCALE("a", "x") ADD("b", "a", "x") SCALE("a", "x") ADD("e", "a", "b")),
          "scale other scale other ");
}

static void traced_calls_are_one_by_one(void **state)
{
    (void)state;
    const char *text = PROGRAM(SCALE("a", "x") SCALE("b", "x") ADD("e", "a", "b"));
    run_on(logging, text, 100);
    assert_string_equal(log_text, "scale scale other ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_calls_are_one),
        cmocka_unit_test(a_call_joins_over_others),
        cmocka_unit_test(what_depends_stays),
        cmocka_unit_test(traced_calls_are_one_by_one),
    };
    return cmocka_run_group_tests(tests, make_device, NULL);
}
