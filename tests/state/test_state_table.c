/* A state's table next to its memory: its reader has the same state; a table that is damaged
 * anywhere is refused; states of processes that are gone are moved by copies, each byte once. */
#include "state/cases.h"
#include "state/table.h"

static void *table_of(const weft_state *s, int64_t *n)
{
    *n      = weft_state_table_bytes(s);
    void *t = malloc((size_t)*n);
    assert_non_null(t);
    weft_state_table_write(s, *n, t);
    return t;
}

static weft_state *open_again(const weft_state *s)
{
    int64_t     n;
    weft_state *again;
    void       *t = table_of(s, &n);
    assert_ok(weft_state_table_open(t, n, weft_state_memory(s), &again));
    free(t);
    return again;
}

static void a_table_is_the_state(void **state)
{
    unsigned   seed = 5;
    case_table t;
    (void)state;
    for (int round = 0; round < 20; round++) {
        case_random_table(&t, &seed, 3, 40, 3);
        for (int r = 0; r < 3; r++) {
            weft_state *s;
            assert_ok(case_state(&t, r, true, &s));
            weft_state *again = open_again(s);
            assert_int_equal(weft_state_count(again), CASE_TENSORS);
            for (int k = 0; k < CASE_TENSORS; k++) {
                const weft_state_tensor *a = weft_state_at(s, k);
                const weft_state_tensor *b = weft_state_at(again, k);
                assert_string_equal(a->name, b->name);
                assert_int_equal(a->dtype, b->dtype);
                assert_true(weft_shape_equal(&a->shape, &b->shape));
                assert_int_equal(!a->part, !b->part);
                if (a->part) assert_true(weft_part_equal(a->part, b->part));
            }
            assert_ok(case_check(&t, r, again));
            weft_state_destroy(again);
            weft_state_destroy(s);
        }
    }
}

static void damage_is_refused(void **state)
{
    unsigned    seed = 6;
    case_table  t;
    weft_state *s, *again;
    int64_t     n;
    (void)state;
    case_random_table(&t, &seed, 1, 9, 1);
    assert_ok(case_state(&t, 0, true, &s));
    char *table = table_of(s, &n);
    for (int64_t i = 0; i < n; i++) {
        table[i] ^= (char)(1 << i % 8);
        assert_int_equal(weft_state_table_open(table, n, weft_state_memory(s), &again),
                         WEFT_ERR_ARG);
        table[i] ^= (char)(1 << i % 8);
    }
    for (int64_t less = 0; less < n; less += 8)
        assert_int_equal(weft_state_table_open(table, less, weft_state_memory(s), &again),
                         WEFT_ERR_ARG);
    weft_memory small = *weft_state_memory(s);
    small.bytes       = 8;
    assert_int_equal(weft_state_table_open(table, n, &small, &again), WEFT_ERR_ARG);
    free(table);
    weft_state_destroy(s);
}

/* ---- moves ---- */

enum {
    DP_FROM  = 4,
    N_HOLDER = 8
};

/* zero 0: all of it; else dimension 0 by rank; ranks from n on have nothing. */
static void shard_table(case_table *t, int n, int zero)
{
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < t->n_rank; r++) {
            case_shard(&t->at[k][r], &t->tensor[k].shape, zero ? 0 : -1, r < n ? r : 0,
                       n);
            t->at[k][r].held = r < n;
        }
}

static int64_t bytes_of(const case_table *t, int r)
{
    int64_t n = 0;
    for (int k = 0; k < CASE_TENSORS; k++)
        if (t->at[k][r].held)
            n +=
                weft_part_count(&t->at[k][r].part) * weft_dtype_bytes(t->tensor[k].dtype);
    return n;
}

/* Ranks n[0] -> n[1] out of the memory of those that were. */
static void move_near(case_table *old, case_table *new, int n_new)
{
    weft_state   *source[N_HOLDER] = {0}, *was[N_HOLDER] = {0};
    weft_holders *from = case_holders(old), *to = case_holders(new);
    for (int r = 0; r < old->n_rank; r++) {
        assert_ok(case_state(old, r, true, &was[r]));
        source[r] = open_again(was[r]);
    }
    for (int r = 0; r < n_new; r++) {
        weft_state *s;
        weft_mover *m;
        assert_ok(case_state(new, r, false, &s));
        assert_ok(weft_mover_open_near(source, from, &(weft_mover_side){s, to}, r, &m));
        assert_int_equal(weft_mover_copied(m), bytes_of(new, r));
        assert_int_equal(weft_mover_sent(m) + weft_mover_received(m), 0);
        assert_ok(weft_mover_run(m));
        assert_ok(case_check(new, r, s));
        weft_mover_close(m);
        weft_state_destroy(s);
    }
    for (int r = 0; r < old->n_rank; r++) {
        weft_mover *m; /* what is there already is not copied */
        assert_ok(case_check(old, r, was[r]));
        assert_ok(
            weft_mover_open_near(source, from, &(weft_mover_side){was[r], from}, r, &m));
        assert_int_equal(weft_mover_copied(m), 0);
        weft_mover_close(m);
        weft_state_destroy(source[r]);
        weft_state_destroy(was[r]);
    }
    weft_holders_destroy(from);
    weft_holders_destroy(to);
}

static void every_byte_is_copied_once(void **state)
{
    unsigned   seed = 8;
    case_table old, new;
    (void)state;
    for (int n = 1; n <= DP_FROM; n++)
        for (int n_new = 1; n_new <= DP_FROM; n_new++)
            for (int zero = 0; zero < 4; zero++) {
                old.n_rank = DP_FROM;
                case_shapes(&old, &seed, 30);
                new = old;
                shard_table(&old, n, zero & 1);
                shard_table(&new, n_new, zero & 2);
                move_near(&old, &new, n_new);
            }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(a_table_is_the_state),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(every_byte_is_copied_once),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
