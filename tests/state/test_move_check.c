/* Lists of moves before they are carried out: right ones pass, one that is changed in any way does
 * not; bytes and seconds by ranks and hosts. */
#include "state/cases.h"

#include "state/move_check.h"

enum {
    ROUNDS = 300
};

static void expect_wrong(const weft_move_list *l, const weft_holders *old,
                         const weft_holders *new)
{
    assert_int_equal(weft_move_verify(l, old, new), WEFT_ERR_INTERNAL);
}

/* One change of a right list. */
static void spoil_list(weft_move_list *l, const weft_holders *old,
                       const weft_holders *new, unsigned     *seed)
{
    int       i    = case_random(seed, l->n);
    weft_move last = l->move[l->n - 1], was = l->move[i];
    l->n--; /* one is missing */
    expect_wrong(l, old, new);
    l->move[l->n++] = was; /* one comes twice, unless it was the last */
    if (i != l->n - 1) expect_wrong(l, old, new);
    l->move[l->n - 1] = last;
    l->move[i].to     = new->n_rank; /* to no rank */
    expect_wrong(l, old, new);
    l->move[i] = was;
    for (int h = 0; h < old->n_rank; h++) { /* from one that has nothing of it */
        if (weft_holders_part(old, was.tensor, h)) continue;
        l->move[i].from = h;
        expect_wrong(l, old, new);
    }
    l->move[i] = was;
    if (was.region.global.n && was.region.extent[0] > 1) { /* a part of it */
        l->move[i].region.extent[0]--;
        expect_wrong(l, old, new);
    }
    l->move[i] = was;
    assert_ok(weft_move_verify(l, old, new));
}

static void changed_lists_are_found(void **state)
{
    unsigned seed = 7;
    (void)state;
    for (int k = 0; k < ROUNDS; k++) {
        static case_table a, b;
        weft_move_list    l = {0};
        int               n = 1 + case_random(&seed, CASE_MAX_RANK);
        case_random_table(&a, &seed, n, 6, 1 + case_random(&seed, n));
        b = a;
        for (int t = 0; t < CASE_TENSORS; t++)
            for (int r = 0; r < n; r++)
                case_any_part(&b.at[t][r], &a.tensor[t].shape, &seed);
        weft_holders *old = case_holders(&a), *new = case_holders(&b);
        assert_ok(weft_move_plan(old, new, -1, &l));
        assert_ok(weft_move_verify(&l, old, new));
        if (l.n) spoil_list(&l, old, new, &seed);
        weft_move_list_fini(&l);
        weft_holders_destroy(old);
        weft_holders_destroy(new);
    }
}

static void seconds_by_ranks_and_hosts(void **state)
{
    const int32_t    host[4] = {0, 0, 2, 2};
    weft_move_load   load[4] = {{.copied = 1000},
                                {.copied = 3000},
                                {.copied = 500, .received = 200},
                                {.sent = 0, .received = 600}};
    weft_move_routes near = {.world = 4}, far = {.world = 4, .host = host};
    weft_move_speed  speed = {.copy_Bps = 1000, .port_Bps = 400, .alpha_s = 0.25};
    (void)state;
    load[0].sent = 800;
    assert_true(weft_move_simulate(load, &near, &speed) == 3);
    assert_true(weft_move_simulate(load, &far, &speed) == 3 + 0.25 + 2);
    for (int r = 0; r < 4; r++) load[r].make_s = 0.5; /* pages, before that */
    assert_true(weft_move_simulate(load, &near, &speed) == 3.5);
    for (int r = 0; r < 4; r++) load[r].copied = 0;
    load[1].make_s = 4;
    assert_true(weft_move_simulate(load, &near, &speed) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_lists_are_found),
        cmocka_unit_test(seconds_by_ranks_and_hosts),
    };
    return cmocka_run_group_tests_name("move_check", tests, NULL, NULL);
}
