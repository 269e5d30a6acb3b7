/* Blocks that live at the same time never overlap, and little room is wasted. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/random.h"
#include "partition/partition_priv.h"

static uint32_t draw(uint32_t i, uint32_t what)
{
    uint32_t out[4];
    weft_random_philox((uint32_t[]){1, 2}, (uint32_t[]){i, what, 0, 0}, out);
    return out[0];
}

static void test_blocks_do_not_overlap(void **state)
{
    enum {
        N = 300,
        T = 200
    };
    static weft_partition__block b[N];
    weft_arena                  *tmp;
    int64_t                      total, alive[T] = {0}, most = 0;
    (void)state;

    assert_int_equal(weft_arena_create(&tmp), WEFT_OK);
    for (uint32_t i = 0; i < N; i++) {
        b[i].bytes = 64 * (1 + draw(i, 0) % 1000);
        b[i].first = (int)(draw(i, 1) % T);
        b[i].last  = b[i].first + (int)(draw(i, 2) % 20);
        if (b[i].last >= T) b[i].last = T - 1;
        for (int t = b[i].first; t <= b[i].last; t++) alive[t] += b[i].bytes;
    }
    for (int t = 0; t < T; t++) most = alive[t] > most ? alive[t] : most;
    assert_int_equal(weft_partition__pack(b, N, tmp, &total), WEFT_OK);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) {
            if (b[i].first > b[k].last || b[k].first > b[i].last) continue;
            assert_true(b[i].offset + b[i].bytes <= b[k].offset ||
                        b[k].offset + b[k].bytes <= b[i].offset);
        }
    assert_true(total >= most);
    assert_true((double)total <= 1.15 * (double)most);
    weft_arena_destroy(tmp);
}

static void test_lanes_are_consecutive_runs(void **state)
{
    int first, end;
    (void)state;
    weft_partition_lane(7, 4, 0, &first, &end);
    assert_int_equal(first, 0);
    assert_int_equal(end, 2);
    weft_partition_lane(7, 4, 2, &first, &end);
    assert_int_equal(first, 4);
    assert_int_equal(end, 6);
    weft_partition_lane(7, 4, 3, &first, &end);
    assert_int_equal(first, 6);
    assert_int_equal(end, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_do_not_overlap),
        cmocka_unit_test(test_lanes_are_consecutive_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
