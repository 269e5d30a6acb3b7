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

/* A state with two halves of a vector: its own, and what it holds for another rank. */
static weft_state *make_three(void)
{
    weft_state_tensor t      = {"x", WEFT_DTYPE_F32, {.n = 1, .d = {8}}, NULL, 0, false};
    weft_interval     run[3] = {{0, 4}, {4, 8}, {0, 8}};
    weft_part         part[3];
    weft_state       *s, *standby;
    float             number[8];
    weft_region       all = weft_region_whole(&t.shape);
    for (int i = 0; i < 8; i++) number[i] = (float)i;
    assert_ok(weft_state_create(NULL, 192, &s));
    assert_null(weft_state_standby(s, 0));
    for (int k = 0; k < 3; k++) {
        part[k]  = (weft_part){.shape = t.shape, .n = {1}, .run = {&run[k]}};
        t.part   = &part[k];
        t.offset = 64 * k;
        if (k) assert_ok(weft_state_add_standby(s, &standby));
        assert_ok(weft_state_add(k ? standby : s, &t));
        assert_ok(weft_state_write(k ? standby : s, 0, &all, number));
    }
    return s;
}

static void must_have_all(const weft_state *s)
{
    float             number[8] = {0};
    const weft_state *standby   = weft_state_standby(s, 0);
    const weft_region all       = weft_region_whole(&weft_state_at(s, 0)->shape);
    assert_non_null(standby);
    assert_int_equal(weft_state_count(standby), 1);
    assert_ok(weft_state_read(s, 0, &all, number));
    assert_true(number[3] == 3 && number[4] == 0);
    assert_ok(weft_state_read(standby, 0, &all, number));
    for (int i = 0; i < 8; i++) assert_true(number[i] == (float)i);
    memset(number, 0, sizeof number);
    assert_int_equal(weft_state_n_standby(s), 2);
    assert_ok(weft_state_read(weft_state_standby(s, 1), 0, &all, number));
    for (int i = 0; i < 8; i++) assert_true(number[i] == (float)i);
    assert_null(weft_state_standby(s, 2));
}

/* What is held for other ranks is in tables and copies. */
static void a_table_has_the_standby(void **state)
{
    weft_state *s = make_three(), *clone, *empty;
    (void)state;
    weft_state *again = open_again(s);
    must_have_all(again);
    weft_state_destroy(again);
    assert_ok(weft_state_clone(s, &clone));
    assert_ok(weft_state_make_empty(s, &empty));
    assert_null(weft_state_standby(empty, 0));
    weft_state_destroy(s);
    must_have_all(clone);
    weft_state_destroy(clone);
    weft_state_destroy(empty);
}

/* A tensor that is marked as not there has no part, nor has what is held of it for other ranks. */
static void marks_say_what_is_there(void **state)
{
    unsigned    seed = 7;
    case_table  t;
    weft_state *s, *again;
    int64_t     n;
    int         all;
    (void)state;
    case_random_table(&t, &seed, 1, 9, 1);
    assert_ok(case_state(&t, 0, true, &s));
    char *table = table_of(s, &n);
    assert_int_equal(weft_state_table_count(table, n, &all), CASE_TENSORS);
    assert_int_equal(all, CASE_TENSORS);
    weft_state_table_mark(table, n, 2, false);
    assert_false(weft_state_table_has(table, n, 2));
    assert_true(weft_state_table_has(table, n, 1));
    assert_false(weft_state_table_has(table, n, CASE_TENSORS));
    assert_ok(weft_state_table_open(table, n, weft_state_memory(s), &again));
    for (int k = 0; k < CASE_TENSORS; k++)
        assert_int_equal(weft_state_at(again, k)->part != NULL,
                         k != 2 && weft_state_at(s, k)->part != NULL);
    weft_state_destroy(again);
    weft_state_table_mark(table, n, -1, false);
    assert_int_equal(weft_state_table_count(table, n, &all), 0);
    weft_state_table_mark(table, n, 4, true);
    assert_int_equal(weft_state_table_count(table, n, &all), 1);
    weft_state_table_mark(table, n, CASE_TENSORS, true); /* there is none */
    assert_int_equal(weft_state_table_count(table, n, &all), 1);
    assert_int_equal(weft_state_table_count(table, n - 8, &all), -1);
    free(table);
    weft_state_destroy(s);

    s     = make_three();
    table = table_of(s, &n);
    weft_state_table_mark(table, n, 0, false);
    assert_ok(weft_state_table_open(table, n, weft_state_memory(s), &again));
    assert_null(weft_state_at(again, 0)->part);
    for (int k = 0; k < 2; k++)
        assert_null(weft_state_at(weft_state_standby(again, k), 0)->part);
    weft_state_destroy(again);
    free(table);
    weft_state_destroy(s);
}

/* Tables of the same bytes share what is made of them; one that differs, by a tensor that is not
 * there or in the size of its memory, is read by itself, and is checked. */
static void equal_tables_are_read_once(void **state)
{
    weft_state_table_last last = {0};
    weft_state           *s    = make_three(), *of[4], *none;
    int64_t               n;
    char                 *table = table_of(s, &n), *more = table_of(s, &n);
    float                 other[8];
    weft_memory           m = *weft_state_memory(s), large = m;
    (void)state;
    m.address   = other;
    large.bytes = m.bytes + 8;
    assert_ok(weft_state_table_open_next(table, n, weft_state_memory(s), &last, &of[0]));
    assert_ok(weft_state_table_open_next(more, n, &m, &last, &of[1]));
    assert_ptr_equal(weft_state_at(of[0], 0), weft_state_at(of[1], 0));
    assert_ptr_equal(weft_state_at(weft_state_standby(of[0], 0), 0),
                     weft_state_at(weft_state_standby(of[1], 0), 0));
    assert_ptr_equal(weft_state_memory(of[1])->address, other);
    assert_ptr_equal(weft_state_memory(weft_state_standby(of[1], 0))->address, other);
    weft_state_set_step(of[1], 3);
    assert_int_equal(weft_state_step(of[0]), -1);
    assert_ok(weft_state_table_open_next(more, n, &large, &last, &of[2]));
    assert_ptr_not_equal(weft_state_at(of[0], 0), weft_state_at(of[2], 0));
    weft_state_table_mark(more, n, 0, false);
    assert_ok(weft_state_table_open_next(more, n, &large, &last, &of[3]));
    assert_non_null(weft_state_at(of[2], 0)->part);
    assert_null(weft_state_at(of[3], 0)->part);
    more[40] ^= 1;
    assert_int_equal(weft_state_table_open_next(more, n, &large, &last, &none),
                     WEFT_ERR_ARG);
    weft_state_table_last_fini(&last);
    for (int k = 0; k < 4; k++) weft_state_destroy(of[k]);
    weft_state_destroy(s);
    free(table);
    free(more);
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
        cmocka_unit_test(a_table_has_the_standby),
        cmocka_unit_test(marks_say_what_is_there),
        cmocka_unit_test(equal_tables_are_read_once),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(every_byte_is_copied_once),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
