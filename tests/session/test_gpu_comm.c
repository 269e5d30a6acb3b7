/* src/app/session/gpu_comm.c: which ways of communication GPUs use, in which order. */
#include <string.h>

#include "support/test.h"

#include "session/session_priv.h"

static void expect(const char *asked, int n_gpu, bool invariant, const char *first,
                   const char *second)
{
    const char *way[WEFT_EXEC_MAX_WAY] = {"?", "?"};
    weft_session__order_ways(asked, n_gpu, invariant, way);
    if (first)
        assert_string_equal(way[0], first);
    else
        assert_null(way[0]);
    if (second)
        assert_string_equal(way[1], second);
    else
        assert_null(way[1]);
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
