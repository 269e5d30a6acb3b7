#include "support/test.h"
#include "support/count_alloc.h"
#include "base/arena.h"

static void zeroed_aligned_apart(void **state)
{
    (void)state;
    weft_arena *a;
    assert_ok(weft_arena_create(&a));
    unsigned char *last   = NULL;
    size_t         last_n = 0, sum = 0;
    assert_int_equal(weft_arena_bytes(NULL), 0);
    for (size_t i = 0; i < 4000; i++) {
        size_t         n = i * i % 5003;
        unsigned char *p = weft_arena_alloc(a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t k = 0; k < n; k++) assert_int_equal(p[k], 0);
        memset(p, 0xaa, n);
        if (last_n) assert_int_equal(last[last_n - 1], 0xaa);
        last   = p;
        last_n = n;
        sum += n;
    }
    assert_true(weft_arena_bytes(a) >= (int64_t)sum);
    assert_true((double)weft_arena_bytes(a) < 1.02 * (double)sum); /* 8 of 2500 each */
    assert_ok(weft_arena_status(a));
    weft_arena_destroy(a);
    weft_arena_destroy(NULL);
}

static void strings(void **state)
{
    (void)state;
    weft_arena *a;
    assert_ok(weft_arena_create(&a));
    assert_string_equal(weft_arena_strdup(a, "woof"), "woof");
    assert_string_equal(weft_arena_strndup(a, "woof", 2), "wo");
    assert_string_equal(weft_arena_strndup(a, "w", 10), "w");
    assert_string_equal(weft_arena_printf(a, "%s-%d", "x", 12), "x-12");
    assert_memory_equal(weft_arena_memdup(a, "a\0b", 4), "a\0b", 4);
    assert_non_null(weft_arena_memdup(a, NULL, 0));
    weft_arena_destroy(a);
}

static void grow_keeps_what_was(void **state)
{
    (void)state;
    weft_arena *a;
    void       *p   = NULL;
    int         cap = 0;
    assert_ok(weft_arena_create(&a));
    for (int i = 0; i < 10000; i++) {
        assert_ok(weft_arena_grow(a, &p, &cap, i + 1, sizeof(int)));
        assert_true(cap > i);
        ((int *)p)[i] = i;
    }
    for (int i = 0; i < 10000; i++) assert_int_equal(((int *)p)[i], i);
    weft_arena_destroy(a);
}

static void impossible_sizes(void **state)
{
    (void)state;
    weft_arena *a;
    void       *p   = NULL;
    int         cap = 0;
    assert_ok(weft_arena_create(&a));
    assert_null(weft_arena_alloc(a, SIZE_MAX));
    assert_fails(weft_arena_status(a), WEFT_ERR_MEM, "out of memory");
    assert_fails(weft_arena_grow(a, &p, &cap, INT32_MAX, SIZE_MAX / 8), WEFT_ERR_MEM,
                 "memory");
    assert_int_equal(cap, 0);
    assert_non_null(weft_arena_alloc(a, 10)); /* still usable, still says so */
    assert_int_equal(weft_arena_status(a), WEFT_ERR_MEM);
    weft_arena_destroy(a);
}

static void no_memory(void **state)
{
    (void)state;
    weft_arena *a;
    if (!weft_test_alloc_fail_at(1)) skip();
    assert_int_equal(weft_arena_create(&a), WEFT_ERR_MEM);
    assert_ok(weft_arena_create(&a));
    weft_test_alloc_fail_at(1);
    assert_null(weft_arena_strdup(a, "x"));
    weft_test_alloc_fail_at(0);
    assert_int_equal(weft_arena_status(a), WEFT_ERR_MEM);
    weft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_aligned_apart),
        cmocka_unit_test(strings),
        cmocka_unit_test(grow_keeps_what_was),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
