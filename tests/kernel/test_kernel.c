/* Every kernel against the reference kernels: each row of ops.def over the op-test table and some
 * larger shapes, through device memory (support/op_table.h), on the CPU and on the guard device;
 * the same bits with 1 to 3 threads and with every instruction set.  WEFT_TEST_SEED draws other
 * numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "kernel/isa.h"
#include "kernel/kernel.h"
#include "support/op_table.h"
#include "support/test.h"

enum {
    MAX_SETTING = WEFT_N_ISA + 2
};

static uint64_t seed(void)
{
    const char *text = getenv("WEFT_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 11;
}

static bool use_isa(int isa)
{
    return weft_kernel_isa_use((weft_isa)isa);
}

/* The best instruction set with 1 and 3 threads (make long: 2 too), then the others. */
static int make_settings(weft_op_table_setting *s, char (*name)[64])
{
    int best = (int)weft_kernel_isa(), n = 0;
    for (int threads = 1; threads <= 3; threads += TEST_FEW(2))
        s[n++] =
            (weft_op_table_setting){.threads = threads, .enter = use_isa, .arg = best};
    for (int isa = WEFT_N_ISA - 1; isa >= 0; isa--)
        if (isa != best)
            s[n++] = (weft_op_table_setting){.threads = 1, .enter = use_isa, .arg = isa};
    for (int i = 0; i < n; i++) {
        s[i].name = name[i];
        snprintf(name[i], sizeof name[i], "%d threads, %s", s[i].threads,
                 weft_kernel_isa_name((weft_isa)s[i].arg));
    }
    return n;
}

static void check_report(const weft_op_table_report *r)
{
    assert_int_equal(r->n_failed, 0);
    assert_int_equal(r->n_missing, 0);
    assert_int_equal(r->n_without_case, 0);
    assert_true(r->n_trial > 2000);
}

static void every_row_on_the_cpu(void **state)
{
    (void)state;
    weft_op_table_setting setting[MAX_SETTING];
    char                  name[MAX_SETTING][64];
    weft_op_table_report  report;
    weft_op_table_options o = {.seed         = seed(),
                               .large_stride = WEFT_TEST_SANITIZED ? 5 : TEST_FEW(3),
                               .by_element   = true,
                               .quiet        = true};
    o.n_setting             = make_settings(setting, name);
    o.setting               = setting;
    assert_ok(weft_op_table_run(weft_device_cpu(), &o, &report));
    check_report(&report);
}

/* Other numbers than on the CPU, and memory that nothing but kernels and copies reaches. */
static void every_row_on_the_guard(void **state)
{
    (void)state;
    weft_op_table_report  report;
    weft_op_table_options o = {.seed = seed() + 100, .small = true, .quiet = true};
    assert_ok(weft_op_table_run(weft_device_guard(), &o, &report));
    check_report(&report);
}

/* What is between ranks has no kernel: tests/lower, tests/flow. */
static void no_kernels_for_communication(void **state)
{
    (void)state;
    const weft_kernel_table *t;
    for (int i = 0; (t = weft_kernel_table_at(i)); i++)
        for (int k = 0; k < t->n; k++)
            if (weft_op_get(t->kernel[k].op)->flags & WEFT_OP_COMM)
                fail_msg("%s has a kernel on %s", weft_op_get(t->kernel[k].op)->name,
                         t->device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_kernels_for_communication),
        cmocka_unit_test(every_row_on_the_cpu),
        test_plain(every_row_on_the_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
