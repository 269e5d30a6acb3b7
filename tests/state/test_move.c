/* Lists of moves, against taking every element by itself: whoever shall have it gets it once, from
 * a rank that holds it. */
#include "state/cases.h"

enum {
    ROUNDS = 3000
};

static bool in_region(const weft_region *r, const int64_t *x)
{
    for (int d = 0; d < r->global.n; d++)
        if (x[d] < r->offset[d] || x[d] >= r->offset[d] + r->extent[d]) return false;
    return true;
}

/* What a rank gets of an element, and from whom: one move, from itself where it holds it. */
static void check_element(const case_table     *old, const case_table *new,
                          const weft_move_list *l, int tensor, int to, const int64_t *x)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const weft_move *m = &l->move[i];
        if (m->target != tensor || m->to != to || !in_region(&m->region, x)) continue;
        n++;
        assert_true(case_holds(&old->at[tensor][m->from], x));
        assert_true(m->from == to || !case_holds(&old->at[tensor][to], x));
    }
    assert_int_equal(n, case_holds(&new->at[tensor][to], x));
}

static void check_list(const case_table     *old, const case_table *new,
                       const weft_move_list *l)
{
    int64_t x[WEFT_MAX_DIM];
    for (int i = 0; i < l->n; i++) assert_true(weft_region_count(&l->move[i].region) > 0);
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < new->n_rank; r++)
            for (int64_t i = 0; i < weft_shape_count(&new->tensor[k].shape); i++) {
                case_position(&new->tensor[k].shape, i, x);
                check_element(old, new, l, k, r, x);
            }
}

static bool equal_moves(const weft_move *a, const weft_move *b)
{
    return a->tensor == b->tensor && a->target == b->target && a->from == b->from &&
           a->to == b->to && !memcmp(&a->region, &b->region, sizeof a->region);
}

/* What a rank gets, in the order of the whole list. */
static void check_list_to(const weft_holders *old, const weft_holders *new, int rank,
                          const weft_move_list *all)
{
    weft_move_list to = {0};
    int            at = 0;
    assert_ok(weft_move_plan_to(old, new, rank, &to));
    for (int i = 0; i < all->n; i++) {
        if (all->move[i].to != rank) continue;
        assert_true(at < to.n && equal_moves(&to.move[at], &all->move[i]));
        at++;
    }
    assert_int_equal(at, to.n);
    weft_move_list_fini(&to);
}

/* A rank's own list is the part of the whole list that it is in, in the same order. */
static void check_own_lists(const weft_holders   *old, const weft_holders *new,
                            const weft_move_list *all)
{
    for (int r = 0; r < old->n_rank; r++) {
        weft_move_list own = {0};
        int            at  = 0;
        assert_ok(weft_move_plan(old, new, r, &own));
        for (int i = 0; i < all->n; i++) {
            if (all->move[i].from != r && all->move[i].to != r) continue;
            assert_true(at < own.n && equal_moves(&own.move[at], &all->move[i]));
            at++;
        }
        assert_int_equal(at, own.n);
        weft_move_list_fini(&own);
        check_list_to(old, new, r, all);
    }
}

/* New parts of the same tensors; any. */
static void other_parts(const case_table *old, case_table *new, unsigned *seed)
{
    *new = *old;
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < old->n_rank; r++)
            case_any_part(&new->at[k][r], &old->tensor[k].shape, seed);
}

static void every_element_comes_once(void **state)
{
    static case_table old, new;
    unsigned          seed = 3;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int            n = 1 + case_random(&seed, CASE_MAX_RANK);
        weft_move_list l = {0};
        case_random_table(&old, &seed, n, 6, 1 + case_random(&seed, n));
        other_parts(&old, &new, &seed);
        weft_holders *a = case_holders(&old), *b = case_holders(&new);
        assert_ok(weft_move_plan(a, b, -1, &l));
        check_list(&old, &new, &l);
        if (round % 8 == 0) check_own_lists(a, b, &l);
        weft_move_list_fini(&l);
        weft_holders_destroy(a);
        weft_holders_destroy(b);
    }
}

/* Every rank has what it shall have, and some have more tensors; then one lacks a part. */
static void what_all_ranks_have_is_no_move(void **state)
{
    static case_table old, new;
    unsigned          seed   = 9;
    int               n_some = 0;
    (void)state;
    for (int round = 0; round < 200; round++) {
        int n = 2 + case_random(&seed, CASE_MAX_RANK - 1);
        case_random_table(&old, &seed, n, 6, 1 + case_random(&seed, n));
        new                 = old;
        int            k    = case_random(&seed, CASE_TENSORS);
        int            r    = case_random(&seed, n);
        bool           some = old.at[k][r].held;
        weft_move_list l    = {0};
        new.at[0][0].held   = false;
        weft_holders *a = case_holders(&old), *b = case_holders(&new);
        assert_true(weft_move_is_none(a, b));
        assert_ok(weft_move_plan(a, b, -1, &l));
        for (int i = 0; i < l.n; i++) assert_int_equal(l.move[i].from, l.move[i].to);
        check_list(&old, &new, &l);
        old.at[k][r].held = false;
        weft_holders *c   = case_holders(&old);
        some              = some && (k || r) && weft_holders_part(b, k, r);
        assert_int_equal(weft_move_is_none(c, b), !some);
        n_some += some;
        weft_move_list_fini(&l);
        weft_holders_destroy(a);
        weft_holders_destroy(b);
        weft_holders_destroy(c);
    }
    assert_true(n_some > 20);
}

static void whole_at(case_table *t, int first, int n)
{
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < t->n_rank; r++) {
            case_whole_part(&t->at[k][r], &t->tensor[k].shape);
            t->at[k][r].held = r >= first && r < first + n;
        }
}

/* Four replicas, four ranks that need everything: each replica sends to one of them. */
static void replicas_share_the_work(void **state)
{
    static case_table old, new;
    weft_move_list    l        = {0};
    unsigned          seed     = 5;
    int               sends[4] = {0};
    (void)state;
    old.n_rank = 8;
    case_shapes(&old, &seed, 6);
    new = old;
    whole_at(&old, 0, 4);
    whole_at(&new, 4, 4);
    weft_holders *a = case_holders(&old), *b = case_holders(&new);
    assert_int_equal(a->tensor[0].n_holder, 1);
    assert_int_equal(a->tensor[0].holder[0].n_rank, 4);
    assert_ok(weft_move_plan(a, b, -1, &l));
    assert_int_equal(l.n, 4 * CASE_TENSORS);
    for (int i = 0; i < l.n; i++) sends[l.move[i].from]++;
    for (int r = 0; r < 4; r++) assert_int_equal(sends[r], CASE_TENSORS);
    l.n             = 0;
    weft_region all = weft_region_whole(&old.tensor[2].shape);
    assert_ok(weft_move_add_region(a, 2, &all, 5, 0, &l));
    assert_int_equal(l.n, 1);
    assert_int_equal(l.move[0].from, 0); /* the lowest, where it is asked for */
    weft_move_list_fini(&l);
    weft_holders_destroy(a);
    weft_holders_destroy(b);
}

static void what_nobody_holds_is_refused(void **state)
{
    static case_table old, new;
    weft_move_list    l    = {0};
    unsigned          seed = 5;
    (void)state;
    old.n_rank = 2;
    case_shapes(&old, &seed, 6);
    new = old;
    whole_at(&old, 0, 1);
    whole_at(&new, 1, 1);
    case_shard(&old.at[2][0], &old.tensor[2].shape, 0, 0, 2);
    weft_holders *a = case_holders(&old), *b = case_holders(&new);
    assert_fails(weft_move_plan(a, b, -1, &l), WEFT_ERR_INTERNAL,
                 "no rank holds all that rank 1 needs of weight");
    weft_move_list_fini(&l);
    weft_holders_destroy(b);
    new.tensor[1].dtype = WEFT_DTYPE_BF16;
    b                   = case_holders(&new);
    assert_fails(weft_move_plan(a, b, -1, &l), WEFT_ERR_ARG, "bias is f32");
    weft_move_list_fini(&l);
    weft_holders_destroy(a);
    weft_holders_destroy(b);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(every_element_comes_once),
        cmocka_unit_test(what_all_ranks_have_is_no_move),
        cmocka_unit_test(replicas_share_the_work),
        cmocka_unit_test(what_nobody_holds_is_refused),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
