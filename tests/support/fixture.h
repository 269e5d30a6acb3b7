/* What a test has from before it runs until after it.
 *     const struct CMUnitTest tests[] = {with_arena(first), with_arena(second)}; */
#ifndef TEST_SUPPORT_FIXTURE_H
#define TEST_SUPPORT_FIXTURE_H

#include "base/arena.h"
#include "base/pool.h"
#include "support/test.h"

extern weft_arena *arena; /* of the test that runs */
extern weft_pool  *pool;  /* two threads */

#define with_arena(test)                                                                 \
    cmocka_unit_test_setup_teardown(test, test_arena_setup, test_arena_teardown)
#define with_pool(test)                                                                  \
    cmocka_unit_test_setup_teardown(test, test_pool_setup, test_pool_teardown)

int test_arena_setup(void **state);
int test_arena_teardown(void **state);
/* The same, and a pool; draws begin anew. */
int test_pool_setup(void **state);
int test_pool_teardown(void **state);

uint32_t test_draw(void);

#endif
