/* A state of several pieces from memory that host code does not reach to host memory and back: the
 * same bytes; one that is given up ends with an error. */
#include "state/staged_copy.h"

#include <stdlib.h>

#include "support/test.h"

enum {
    BYTES = (35 << 20) + 4096 /* two pieces and a part of one */
};

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

static void there_and_back(void **state)
{
    weft_device *d    = weft_device_guard();
    char        *want = malloc(BYTES), *host = calloc(1, BYTES), *back = malloc(BYTES);
    weft_memory  m = {d, WEFT_SPACE_SHARED, host, BYTES};
    weft_state  *on_device, *on_host;
    _Atomic bool stop = true;
    (void)state;
    assert_true(want && host && back);
    for (int i = 0; i < BYTES; i++) want[i] = (char)(i * 7 + i / 4096);
    assert_ok(weft_state_create(d, BYTES, &on_device));
    assert_ok(weft_state_create_over(&m, keep_memory, NULL, &on_host));
    assert_ok(weft_device_write(weft_state_memory(on_device), 0, want, BYTES));
    weft_state_set_step(on_device, 7);
    assert_int_equal(weft_state_copy_staged(on_device, on_host, NULL, &stop),
                     WEFT_ERR_PEER);
    assert_int_equal(weft_state_step(on_host), -1);
    stop = false;
    assert_ok(weft_state_copy_staged(on_device, on_host, NULL, &stop));
    assert_memory_equal(host, want, BYTES);
    assert_int_equal(weft_state_step(on_host), 7);
    assert_ok(weft_state_zero(on_device));
    assert_ok(weft_state_copy_staged(on_host, on_device, NULL, NULL));
    assert_ok(weft_device_read(back, weft_state_memory(on_device), 0, BYTES));
    assert_memory_equal(back, want, BYTES);
    weft_state_destroy(on_host);
    weft_state_destroy(on_device);
    free(want);
    free(host);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
