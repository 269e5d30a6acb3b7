/* The rules of coalescing, number by number. */
#include "program/coalesce.h"

#include "base/status.h"
#include "support/test.h"

/* A bucket has what reaches its limit; nothing is split. */
static void buckets_fill(void **state)
{
    static const struct {
        int64_t limit, each;
        int     n, n_bucket;
    } rows[] = {
        {100, 10, 20, 2}, {100, 10, 25, 3}, {100, 30, 8, 2}, {100, 99, 4, 2},
        {100, 100, 4, 4}, {100, 500, 3, 3}, {1, 0, 5, 1},    {100, 1, 1, 1},
    };
    (void)state;
    for (size_t r = 0; r < WEFT_COUNT(rows); r++) {
        int n_bucket = 0;
        for (int i = 0; i < rows[r].n; n_bucket++) {
            weft_coalesce_bucket b = {.limit = rows[r].limit};
            for (; i < rows[r].n && !weft_coalesce_is_complete(&b); i++)
                weft_coalesce_add(&b, rows[r].each);
        }
        assert_int_equal(n_bucket, rows[r].n_bucket);
    }
}

static void limits(void **state)
{
    const int64_t full = WEFT_COALESCE_BYTES, parts = WEFT_COALESCE_BACKWARD_PARTS;
    (void)state;
    assert_int_equal(weft_coalesce_limit(0), full);
    assert_int_equal(weft_coalesce_limit(1000), 1000);
    assert_int_equal(weft_coalesce_limit(2 * full), full);
    /* so many parts at least, whatever is given */
    assert_int_equal(weft_coalesce_backward_limit(0, parts * full), full);
    assert_int_equal(weft_coalesce_backward_limit(0, parts * 500), 500);
    assert_int_equal(weft_coalesce_backward_limit(100, parts * 500), 100);
    assert_int_equal(weft_coalesce_backward_limit(1000, parts * 500), 500);
    assert_int_equal(weft_coalesce_backward_limit(0, 3), 1);
}

/* Whole buckets as counted; of less than parts of them as many as there are parts. */
static void counts(void **state)
{
    const int64_t full = WEFT_COALESCE_BYTES, parts = WEFT_COALESCE_BACKWARD_PARTS;
    (void)state;
    assert_true(weft_coalesce_backward_count(0, parts * full, 7.5) == 7.5);
    assert_true(weft_coalesce_backward_count(0, 100 * full, 95) == 95);
    assert_true(weft_coalesce_backward_count(0, full, 1) == (double)parts);
    assert_true(weft_coalesce_backward_count(1000, full, 8000) == 8000);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(buckets_fill),
        cmocka_unit_test(limits),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
