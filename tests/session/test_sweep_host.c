/* The host's updates and copies for a device, timed: on the guard device, which has memory of its
 * own. */
#include <stdlib.h>
#include <string.h>

#include "session/sweep.h"
#include "support/test.h"

static void updates_and_copies(void **state)
{
    weft_timing t;
    weft_pool  *pool;
    (void)state;
    assert_ok(weft_pool_create(2, 0, &pool));
    assert_ok(weft_sweep_host_update(weft_device_guard(), pool, 100000 + 16, &t));
    assert_string_equal(t.work, "host update");
    assert_true(t.n_size == 1 && t.s > 0 && t.link == -1);
    /* p, m and v both ways, the gradient, the bf16 copy; three numbers of the step */
    assert_true(t.size[0] >= 30.0 * 100016 && t.size[0] < 30.0 * 100016 + 64);
    assert_ok(weft_sweep_host_copy(weft_device_guard(), 1 << 20, &t));
    assert_string_equal(t.work, "host copy");
    assert_true(t.size[0] == 1 << 20 && t.s > 0);
    weft_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(updates_and_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
