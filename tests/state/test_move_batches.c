/* Batches of a move: each tensor once, no rank gets more than the largest value at a time, and the
 * memory of all ranks together stays below what it is before or after, plus that. */
#include "state/cases.h"
#include "state/move_batches.h"

static int64_t bytes_of(const case_table *t, int tensor, int r)
{
    const case_part *c = &t->at[tensor][r];
    return c->held ? weft_part_count(&c->part) * weft_dtype_bytes(t->tensor[tensor].dtype)
                   : 0;
}

static int64_t bytes_of_all(const case_table *t, int tensor)
{
    int64_t n = 0;
    for (int r = 0; r < t->n_rank; r++) n += bytes_of(t, tensor, r);
    return n;
}

/* Bytes at each moment: a batch's tensors are there twice, then once. */
static void check_batches(const case_table        *old, const case_table *new,
                          const weft_move_batches *b, int64_t most)
{
    int64_t before = 0, after = 0, now = 0;
    bool    seen[CASE_TENSORS] = {0};
    for (int k = 0; k < CASE_TENSORS; k++) {
        before += bytes_of_all(old, k);
        after += bytes_of_all(new, k);
    }
    now           = before;
    int64_t bound = before > after ? before : after;
    assert_int_equal(b->first[0], 0);
    assert_int_equal(b->first[b->n], CASE_TENSORS);
    for (int i = 0; i < b->n; i++) {
        int64_t rank[CASE_MAX_RANK] = {0}, gets = 0, given = 0;
        assert_true(b->first[i] < b->first[i + 1]);
        for (int at = b->first[i]; at < b->first[i + 1]; at++) {
            int k = b->tensor[at];
            assert_false(seen[k]);
            seen[k] = true;
            gets += bytes_of_all(new, k);
            given += bytes_of_all(old, k);
            for (int r = 0; r < new->n_rank; r++) rank[r] += bytes_of(new, k, r);
        }
        assert_true(now <= bound);
        for (int r = 0; r < new->n_rank; r++)
            assert_true(rank[r] <= most || b->first[i + 1] == b->first[i] + 1);
        now += gets - given;
    }
    assert_int_equal(now, after);
}

static void memory_is_bounded(void **state)
{
    unsigned   seed = 3;
    case_table old, new;
    int        several = 0;
    (void)state;
    for (int round = 0; round < 300; round++) {
        int n_rank = 1 + case_random(&seed, CASE_MAX_RANK);
        case_random_table(&old, &seed, n_rank, 30, 1 + case_random(&seed, n_rank));
        new = old;
        for (int k = 0; k < CASE_TENSORS; k++)
            for (int r = 0; r < n_rank; r++) {
                case_any_part(&new.at[k][r], &new.tensor[k].shape, &seed);
                for (int d = 0; d < WEFT_MAX_DIM; d++)
                    new.at[k][r].part.run[d] = new.at[k][r].run[d];
                for (int d = 0; d < WEFT_MAX_DIM; d++)
                    old.at[k][r].part.run[d] = old.at[k][r].run[d];
            }
        weft_holders     *from = case_holders(&old), *to = case_holders(&new);
        weft_move_batches b       = {0};
        int64_t           largest = weft_move_largest(to) / (1 + round % 3);
        assert_ok(weft_move_batches_make(from, to, NULL, largest, &b));
        check_batches(&old, &new, &b, largest);
        several += b.n > 1;
        weft_move_batches_fini(&b);
        assert_ok(weft_move_batches_make(from, to, NULL, INT64_MAX, &b));
        assert_int_equal(b.n, 1);
        check_batches(&old, &new, &b, INT64_MAX);
        weft_move_batches_fini(&b);
        /* what is held for another rank counts */
        assert_ok(weft_move_batches_make(from, to, to, largest, &b));
        for (int i = 0; i < b.n; i++)
            for (int r = 0; r < n_rank; r++) {
                int64_t gets = 0;
                for (int at = b.first[i]; at < b.first[i + 1]; at++)
                    gets += 2 * bytes_of(&new, b.tensor[at], r);
                assert_true(gets <= largest || b.first[i + 1] == b.first[i] + 1);
            }
        weft_move_batches_fini(&b);
        weft_holders_destroy(from);
        weft_holders_destroy(to);
    }
    assert_true(several > 100);
}

/* Shrinking tensors come first, whatever their order in the table. */
static void growth_comes_last(void **state)
{
    unsigned   seed = 9;
    case_table old  = {.n_rank = 4}, new;
    (void)state;
    case_shapes(&old, &seed, 30);
    new = old;
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < 4; r++) {
            case_whole_part(&old.at[k][r], &old.tensor[k].shape);
            case_whole_part(&new.at[k][r], &new.tensor[k].shape);
            old.at[k][r].held = k % 2 || !r; /* odd ones: from all ranks to one */
            new.at[k][r].held = !(k % 2) || !r;
        }
    weft_holders     *from = case_holders(&old), *to = case_holders(&new);
    weft_move_batches b = {0};
    assert_ok(weft_move_batches_make(from, to, NULL, 1, &b));
    assert_int_equal(b.n, CASE_TENSORS); /* one each */
    assert_true(b.tensor[0] % 2 == 1 && b.tensor[1] % 2 == 1 && b.tensor[2] % 2 == 0);
    check_batches(&old, &new, &b, 1);
    weft_move_batches_fini(&b);
    weft_holders_destroy(from);
    weft_holders_destroy(to);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(growth_comes_last),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
