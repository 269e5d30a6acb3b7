/* The operator table over NVIDIA's libraries that compute on the CPU: every case of matmul and
 * attention that their rows take, and those that go on to the own kernels. */
#include <stdlib.h>

#include "support/test.h"

#include "cuda_priv.h"
#include "library.h"
#include "support/op_table.h"

static void test_rows(void **state)
{
    (void)state;
    weft_op_table_options o = {.only         = "matmul,attention,attention_grad",
                               .seed         = 11,
                               .small        = true,
                               .small_stride = WEFT_TEST_SANITIZED ? 8 : TEST_FEW(2)};
    weft_op_table_report  r;
    static weft_device    d;
    setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    assert_ok(weft_cuda_libraries_open(13000));
    assert_ok(weft_kernel_register(&weft_cuda_table));
    d         = *weft_device_guard();
    d.kernels = "cuda";
    assert_ok(weft_op_table_run(&d, &o, &r));
    assert_int_equal(r.n_failed, 0);
    assert_true(r.n_trial > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
