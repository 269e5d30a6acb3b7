#include "support/fixture.h"

#include "base/random.h"

weft_arena *arena;
weft_pool  *pool;

static uint32_t drawn;

int test_arena_setup(void **state)
{
    (void)state;
    return weft_arena_create(&arena) == WEFT_OK ? 0 : -1;
}

int test_arena_teardown(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    arena = NULL;
    return 0;
}

int test_pool_setup(void **state)
{
    drawn = 0;
    if (weft_pool_create(2, 0, &pool) != WEFT_OK) return -1;
    return test_arena_setup(state);
}

int test_pool_teardown(void **state)
{
    weft_pool_destroy(pool);
    pool = NULL;
    return test_arena_teardown(state);
}

uint32_t test_draw(void)
{
    uint32_t w[4];
    weft_random_philox((uint32_t[]){1, 2}, (uint32_t[]){drawn++, 0, 0, 0}, w);
    return w[0];
}
