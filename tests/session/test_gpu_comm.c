/* src/app/session/gpu_comm.c: which communication backends GPUs use, in which order. */
#include <string.h>

#include "support/test.h"

#include "session/session_priv.h"

static void expect(const char *asked, int n_gpu, bool invariant, const char *first,
                   const char *second)
{
    const char *backend[WEFT_EXEC_MAX_BACKEND] = {"?", "?"};
    weft_session__order_backends(asked, n_gpu, invariant, backend);
    if (first)
        assert_string_equal(backend[0], first);
    else
        assert_null(backend[0]);
    if (second)
        assert_string_equal(backend[1], second);
    else
        assert_null(backend[1]);
}

static void test_order(void **state)
{
    (void)state;
    expect(NULL, 1, true, "peer", NULL);
    expect(NULL, 1, false, "peer", NULL);
    expect("", 1, true, "peer", NULL);
    expect(NULL, 2, false, "nccl", "peer");
    expect(NULL, 2, true, "peer", "nccl");
    expect("staged", 2, false, NULL, NULL);
    expect("peer", 8, false, "peer", NULL);
    expect("nccl", 1, true, "nccl", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
