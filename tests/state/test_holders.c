/* How many ranks, or hosts of several, hold what a rank holds. */
#include "support/test.h"

#include "state/holders.h"

enum {
    RANKS = 4
};

/* One vector of 8; rank k holds [lo[k], hi[k]). */
static weft_holders *hold(const int64_t lo[RANKS], const int64_t hi[RANKS])
{
    weft_state_tensor t = {
        .name = "x", .dtype = WEFT_DTYPE_F32, .shape = {.n = 1, .d = {8}}};
    weft_interval    run[RANKS];
    weft_part        part[RANKS];
    const weft_part *list[RANKS];
    weft_holders    *h;
    for (int k = 0; k < RANKS; k++) {
        run[k]  = (weft_interval){lo[k], hi[k]};
        part[k] = (weft_part){.shape = t.shape, .n = {1}, .run = {&run[k]}};
        list[k] = lo[k] < hi[k] ? &part[k] : NULL;
    }
    assert_ok(weft_holders_create(1, &t, RANKS, list, &h));
    return h;
}

static void counts_copies(void **state)
{
    static const struct {
        int64_t lo[RANKS], hi[RANKS];
        int     copies[RANKS], by_host[RANKS];
    } row[] = {
        {{0, 0, 0, 0}, {8, 8, 8, 8}, {4, 4, 4, 4}, {2, 2, 2, 2}}, /* replicas */
        {{0, 4, 0, 4}, {4, 8, 4, 8}, {2, 2, 2, 2}, {2, 2, 2, 2}}, /* ZeRO, copies: 2 */
        {{0, 0, 4, 4}, {4, 4, 8, 8}, {2, 2, 2, 2}, {1, 1, 1, 1}}, /* within a host */
        {{0, 2, 4, 6}, {2, 4, 6, 8}, {1, 1, 1, 1}, {1, 1, 1, 1}}, /* ZeRO */
        {{0, 4, 0, 0}, {4, 8, 8, 0}, {2, 2, 1, 0}, {2, 2, 1, 0}}, /* one has it whole */
    };
    static const int host[RANKS] = {0, 0, 1, 1};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        weft_holders *h = hold(row[i].lo, row[i].hi);
        int           n[RANKS];
        assert_ok(weft_holders_copies(h, NULL, n));
        assert_memory_equal(n, row[i].copies, sizeof n);
        assert_ok(weft_holders_copies(h, host, n));
        assert_memory_equal(n, row[i].by_host, sizeof n);
        weft_holders_destroy(h);
    }
}

/* Own parts and what ranks have for others, as one table: quarters, each in two hosts. */
static void joins_tables(void **state)
{
    static const int64_t lo[2][RANKS] = {{0, 2, 4, 6}, {4, 6, 0, 2}},
                         hi[2][RANKS] = {{2, 4, 6, 8}, {6, 8, 2, 4}};
    static const int host[2 * RANKS]  = {0, 0, 1, 1, 0, 0, 1, 1};
    int              copies[2 * RANKS];
    weft_holders    *of[2] = {hold(lo[0], hi[0]), hold(lo[1], hi[1])}, *all;
    (void)state;
    assert_ok(weft_holders_join((const weft_holders *const *)of, 2, &all));
    assert_int_equal(all->n_rank, 2 * RANKS);
    assert_ok(weft_holders_copies(all, host, copies));
    for (int h = 0; h < 2 * RANKS; h++) {
        const weft_part *p = weft_holders_part(all, 0, h);
        assert_non_null(p);
        assert_int_equal(p->run[0][0].lo, lo[h / RANKS][h % RANKS]);
        assert_int_equal(copies[h], 2);
    }
    weft_holders_destroy(all);
    weft_holders_destroy(of[0]);
    weft_holders_destroy(of[1]);
}

int main(void)
{
    const struct CMUnitTest test[] = {cmocka_unit_test(counts_copies),
                                      cmocka_unit_test(joins_tables)};
    return cmocka_run_group_tests(test, NULL, NULL);
}
