/* Every row of ops.def by every kernel of the plugin that takes it, on its device: over a driver
 * without a GPU, or with WEFT_TEST_GPU=1 on a real one.  WEFT_TEST_OPS=matmul,add: only those. */
#include "support/test.h"

#include "gpu_test.h"
#include "plugin/plugin.h"
#include "support/op_table.h"

typedef enum sizes {
    SMALL,
    LARGE,
    ALL_SIZES
} sizes;

static weft_op_table_report run_rows(const char *only, sizes which)
{
    weft_device          *d = NULL;
    weft_op_table_report  report;
    weft_op_table_options o = {.only         = only,
                               .seed         = 11,
                               .small        = which == SMALL,
                               .large        = which == LARGE,
                               .large_stride = test_gpu_is_real() ? 1 : TEST_FEW(3),
                               .quiet        = !test_gpu_is_real()};
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    assert_ok(weft_op_table_run(d, &o, &report));
    weft_plugin_close_device(d);
    print_message("%d trials, %d failed, %d rows without kernels\n", report.n_trial,
                  report.n_failed, report.n_missing);
    assert_int_equal(report.n_failed, 0);
    return report;
}

static void every_row_on_the_gpu(void **state)
{
    (void)state;
    const char          *only = getenv("WEFT_TEST_OPS");
    weft_op_table_report report =
        run_rows(only, only || test_gpu_is_real() ? ALL_SIZES : SMALL);
    assert_int_equal(report.n_missing, 0);
    assert_true(report.n_trial > (only ? 0 : 1000));
}

/* Rows whose fast kernels take none of the small cases. */
static void rows_of_vectors(void **state)
{
    (void)state;
    if (test_gpu_is_real() || getenv("WEFT_TEST_OPS")) skip(); /* among all rows */
    run_rows("add,mul,gelu_grad,silu_grad,gate,gate_grad,dropout,layer_norm,"
             "layer_norm_grad,rms_norm,rms_norm_grad,reduce,sumsq,sumsq_parts,sumsq_tree,"
             "adam,adamw,matmul,cross_entropy,"
             "grouped_matmul,grouped_matmul_wgrad",
             LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_on_the_gpu),
                                       cmocka_unit_test(rows_of_vectors)};
    return test_gpu_start() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
