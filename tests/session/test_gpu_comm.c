/* src/app/session/gpu_comm.c: which communication backends GPUs use, in which order. */
#include <string.h>

#include "support/test.h"

#include "session/session_priv.h"

/* order: names with blanks between. */
static void expect(const char *asked, int n_gpu, bool invariant, const char *order)
{
    const char *backend[WEFT_EXEC_MAX_BACKEND] = {"?", "?", "?"};
    char        text[64]                       = "";
    weft_session__order_backends(asked, n_gpu, invariant, backend);
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND && backend[k]; k++) {
        if (k) strcat(text, " ");
        strcat(text, backend[k]);
    }
    assert_string_equal(text, order);
}

static void test_order(void **state)
{
    (void)state;
    expect(NULL, 1, true, "peer staged");
    expect(NULL, 1, false, "peer staged");
    expect("", 1, true, "peer staged");
    expect(NULL, 2, false, "nccl peer staged");
    expect(NULL, 2, true, "peer nccl staged");
    expect("staged", 2, false, "staged");
    expect("peer", 8, false, "peer");
    expect("nccl", 1, true, "nccl");
}

static void test_wait_limit(void **state)
{
    (void)state;
    assert_float_equal(weft_session__find_wait_limit(2, 9), 0, 0); /* not known yet */
    assert_float_equal(weft_session__find_wait_limit(3, 0.1), 5, 0);
    assert_float_equal(weft_session__find_wait_limit(3, 2), 10, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_wait_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
