/* Moves between states of ranks, over every transport: every byte is where it belongs afterwards,
 * for any parts and any numbers of ranks; a rank that dies ends it for all. */
#include "comm/kill.h"
#include "state/cases.h"
#include "support/test.h"

enum {
    TAG = 77
};

static case_table old_table, new_table;

/* ---- one move ---- */

static weft_status move_state(weft_comm *c, weft_state *from, weft_state *to, int runs)
{
    weft_comm_group *g;
    weft_holders    *a = NULL, *b = NULL;
    weft_mover      *t  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_TRY(weft_comm_open_group(c, c->world, everyone, TAG, &g));
    WEFT_GO(weft_holders_exchange(from, c, g, &a));
    WEFT_GO(weft_holders_exchange(to, c, g, &b));
    WEFT_GO(weft_mover_open(&(weft_mover_side){from, a}, &(weft_mover_side){to, b}, c,
                            TAG + 1, &t));
    for (int i = 0; i < runs; i++) {
        WEFT_GO(weft_mover_run(t));
        rank[c->rank].count++;
    }
    rank[c->rank].note_s = (double)weft_mover_received(t);
out:
    weft_mover_close(t);
    weft_holders_destroy(a);
    weft_holders_destroy(b);
    return st;
}

/* From the parts of old_table to those of new_table, twice. */
static weft_status move_tables(rank_state *r)
{
    weft_state *from = NULL, *to = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(case_state(&old_table, r->rank, true, &from));
    WEFT_GO(case_state(&new_table, r->rank, false, &to));
    WEFT_GO(move_state(r->c, from, to, 2));
    WEFT_GO(case_check(&new_table, r->rank, to));
    WEFT_GO(case_check(&old_table, r->rank, from)); /* nothing is taken away */
out:
    weft_state_destroy(from);
    weft_state_destroy(to);
    return st;
}

/* ---- any parts ---- */

static void any_parts(void **state)
{
    unsigned seed = 21;
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int round = 0; round < (is_process((transport)over) ? 4 : 25);
             round += TEST_STRIDE(6)) {
            int n = 1 + case_random(&seed, MAX_RANK);
            if (over == HOSTS && n < 2) n = 2;
            case_random_table(&old_table, &seed, n, round % 2 ? 7 : 90,
                              1 + case_random(&seed, n));
            new_table = old_table;
            for (int k = 0; k < CASE_TENSORS; k++)
                for (int r = 0; r < n; r++)
                    case_any_part(&new_table.at[k][r], &old_table.tensor[k].shape, &seed);
            run_ranks((transport)over, n, 20, move_tables);
            all_ok((transport)over, n);
        }
}

/* ---- as plans shard ---- */

/* Ranks 0 to dp * tp - 1 hold parameters (0 to 2) and states (3, 4): tp shards dimension 1 of
 * matrices, ZeRO dimension 0: of states at 1, of parameters too at 3; no other rank has any. */
static void shard_table(case_table *t, int dp, int tp, int zero)
{
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < t->n_rank; r++) {
            const weft_shape *s   = &t->tensor[k].shape;
            case_part        *c   = &t->at[k][r], by_dp;
            bool              cut = zero == 3 || (zero && k >= 3);
            case_shard(c, s, s->n < 2 ? -1 : 1, r % tp, tp);
            case_shard(&by_dp, s, 0, r / tp % dp, dp);
            if (cut && s->n) {
                c->run[0][0] = by_dp.run[0][0];
                c->part.n[0] = by_dp.part.n[0];
            }
            c->held = r < dp * tp;
        }
}

typedef struct plan_pair {
    int n, dp, tp, zero, new_dp, new_tp, new_zero;
} plan_pair;

static const plan_pair pairs[] = {
    {4, 2, 1, 1, 4, 1, 3}, /* dp=2 zero=1 -> dp=4 zero=3 */
    {4, 2, 1, 1, 1, 2, 0}, /* dp=2 zero=1 -> tp=2 */
    {4, 4, 1, 3, 2, 2, 1}, /* dp=4 zero=3 -> dp=2 tp=2 zero=1 */
    {3, 1, 1, 0, 3, 1, 3}, /* one rank -> three */
    {6, 6, 1, 3, 1, 1, 0}, /* six ranks -> one */
    {8, 3, 2, 1, 4, 2, 3}, /* six ranks -> eight */
    {7, 7, 1, 3, 5, 1, 3}, /* seven -> five */
};

/* A rank receives what it did not have, and no more. */
static void check_received(int n)
{
    for (int r = 0; r < n; r++) {
        int64_t bytes = 0, x[WEFT_MAX_DIM];
        for (int k = 0; k < CASE_TENSORS; k++)
            for (int64_t i = 0; i < weft_shape_count(&new_table.tensor[k].shape); i++) {
                case_position(&new_table.tensor[k].shape, i, x);
                if (case_holds(&new_table.at[k][r], x) &&
                    !case_holds(&old_table.at[k][r], x))
                    bytes += weft_dtype_bytes(new_table.tensor[k].dtype);
            }
        assert_true((double)bytes == rank[r].note_s);
    }
}

static void from_plan_to_plan(void **state)
{
    unsigned seed = 31;
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int i = 0; i < (int)(sizeof pairs / sizeof *pairs); i++) {
            const plan_pair *p = &pairs[i];
            if (is_process((transport)over) && i > 2 && i % 2 != over % 2)
                continue; /* time */
            if (!TEST_HERE(over + i / 2)) continue;
            old_table.n_rank = p->n;
            case_shapes(&old_table, &seed, 300);
            old_table.tensor[2].shape = old_table.tensor[3].shape =
                (weft_shape){.n = 2, .d = {301 / TEST_STRIDE(4), 777 / TEST_STRIDE(4)}};
            new_table = old_table;
            shard_table(&old_table, p->dp, p->tp, p->zero);
            shard_table(&new_table, p->new_dp, p->new_tp, p->new_zero);
            run_ranks((transport)over, p->n, 20, move_tables);
            all_ok((transport)over, p->n);
            check_received(p->n);
        }
}

/* ---- several hosts, more states than ranks ---- */

/* The states of old_table, of which rank r serves r and r + n; those of its host are reached. */
static weft_status move_hosts(rank_state *r)
{
    int           n = r->c->world, n_state = old_table.n_rank;
    weft_state   *source[CASE_MAX_RANK] = {0}, *to = NULL;
    int32_t       host[CASE_MAX_RANK];
    weft_holders *from = case_holders(&old_table), *holders = case_holders(&new_table);
    weft_mover   *t  = NULL;
    weft_status   st = WEFT_OK;
    for (int h = 0; h < n_state; h++) {
        host[h] = h % n / 2;
        if (host[h] == r->rank / 2) WEFT_GO(case_state(&old_table, h, true, &source[h]));
    }
    WEFT_GO(weft_holders_set_hosts(from, host));
    WEFT_GO(case_state(&new_table, r->rank, false, &to));
    WEFT_GO(weft_mover_open_hosts(source, from, &(weft_mover_side){to, holders}, host,
                                  r->c, TAG, &t));
    WEFT_GO(weft_mover_run(t));
    rank[r->rank].note_s = (double)weft_mover_received(t);
    WEFT_GO(case_check(&new_table, r->rank, to));
out:
    weft_mover_close(t);
    weft_holders_destroy(from);
    weft_holders_destroy(holders);
    weft_state_destroy(to);
    for (int h = 0; h < n_state; h++) weft_state_destroy(source[h]);
    return st;
}

/* Bytes of rank r's new parts that its host does not hold: what has to be sent. */
static int64_t count_missing(int r, int n)
{
    int64_t bytes = 0, x[WEFT_MAX_DIM];
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int64_t i = 0; i < weft_shape_count(&new_table.tensor[k].shape); i++) {
            case_position(&new_table.tensor[k].shape, i, x);
            bool here = !case_holds(&new_table.at[k][r], x);
            for (int h = 0; h < old_table.n_rank && !here; h++)
                here = h % n / 2 == r / 2 && case_holds(&old_table.at[k][h], x);
            if (!here) bytes += weft_dtype_bytes(new_table.tensor[k].dtype);
        }
    return bytes;
}

/* States of slots that have no rank any more are served by others; what is on a host is not sent
 * to it. */
static void over_hosts(void **state)
{
    unsigned seed = 51;
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int round = 0; round < (is_process((transport)over) ? 2 : 12); round++) {
            int n = 2 + case_random(&seed, 3), most = 2 * n < 8 ? 2 * n : 8;
            case_random_table(&old_table, &seed, n + case_random(&seed, most - n + 1), 40,
                              n);
            new_table        = old_table;
            new_table.n_rank = n;
            for (int k = 0; k < CASE_TENSORS; k++)
                for (int r = 0; r < n; r++)
                    case_any_part(&new_table.at[k][r], &old_table.tensor[k].shape, &seed);
            run_ranks((transport)over, n, 20, move_hosts);
            all_ok((transport)over, n);
            for (int r = 0; r < n; r++)
                assert_true((double)count_missing(r, n) == rank[r].note_s);
        }
}

/* ---- in place ---- */

static void keep(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

static void hold(weft_state *s, const weft_part *part, int64_t offset)
{
    weft_state_tensor t = {.name   = "weight",
                           .dtype  = WEFT_DTYPE_F32,
                           .shape  = part->shape,
                           .part   = part,
                           .offset = offset};
    assert_ok(weft_state_add(s, &t));
}

/* Rows 2 and 3 of a (6,4) tensor are where the whole tensor shall be, as of a rank that has made
 * its updates and whose gathers are missing: they stay, the others come from another state. */
static void rows_in_place(void **state)
{
    float               own[6 * 4], other[6 * 4];
    const weft_interval row[2] = {{0, 6}, {2, 4}}, col = {0, 4};
    weft_part           whole        = {{.n = 2, .d = {6, 4}}, {1, 1}, {&row[0], &col}};
    weft_part           rows         = {{.n = 2, .d = {6, 4}}, {1, 1}, {&row[1], &col}};
    const weft_part    *from_part[2] = {&rows, &whole};
    weft_memory         m[2]         = {
                        {weft_device_cpu(), WEFT_SPACE_HOST, own, sizeof own},
                        {weft_device_cpu(), WEFT_SPACE_HOST, other, sizeof other},
    };
    weft_state   *source[2], *to;
    weft_holders *from, *wanted;
    weft_mover   *t;
    (void)state;
    for (int i = 0; i < 6 * 4; i++) {
        own[i]   = i / 4 == 2 || i / 4 == 3 ? (float)i : -1.0f;
        other[i] = (float)i;
    }
    for (int k = 0; k < 2; k++)
        assert_ok(weft_state_create_over(&m[k], keep, NULL, &source[k]));
    assert_ok(weft_state_create_over(&m[0], keep, NULL, &to));
    hold(source[0], &rows, 2 * 4 * (int64_t)sizeof *own);
    hold(source[1], &whole, 0);
    hold(to, &whole, 0);
    assert_ok(weft_holders_create(1, weft_state_at(to, 0), 2, from_part, &from));
    assert_ok(weft_holders_create(1, weft_state_at(to, 0), 1, &from_part[1], &wanted));
    assert_ok(weft_holders_set_hosts(from, (int32_t[]){0, 1}));
    assert_ok(weft_mover_open_near(source, from, &(weft_mover_side){to, wanted}, 0, &t));
    assert_int_equal(weft_mover_copied(t), 4 * 4 * (int64_t)sizeof *own);
    assert_ok(weft_mover_run(t));
    assert_memory_equal(own, other, sizeof own);
    weft_mover_close(t);
    weft_holders_destroy(from);
    weft_holders_destroy(wanted);
    for (int k = 0; k < 2; k++) weft_state_destroy(source[k]);
    weft_state_destroy(to);
}

/* ---- death ---- */

static weft_status move_for_ever(rank_state *r)
{
    weft_state *from = NULL, *to = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(case_state(&old_table, r->rank, true, &from));
    WEFT_GO(case_state(&new_table, r->rank, false, &to));
    WEFT_GO(move_state(r->c, from, to, 1 << 30));
out:
    weft_state_destroy(from);
    weft_state_destroy(to);
    return st;
}

static void big_tables(void)
{
    unsigned seed    = 41;
    old_table.n_rank = 4;
    case_shapes(&old_table, &seed, 9);
    old_table.tensor[2].shape = old_table.tensor[3].shape =
        (weft_shape){.n = 2, .d = {600, 700}};
    new_table = old_table;
    shard_table(&old_table, 4, 1, 3);
    shard_table(&new_table, 1, 4, 0);
}

/* One of four is killed at any moment of a move: the others name it, none hangs. */
static void a_killed_rank_is_named(void **state)
{
    (void)state;
    big_tables();
    for (int over = SHM; over < N_TRANSPORT; over++)
        for (int i = 0; i < 5; i += TEST_STRIDE(4))
            kill_one((transport)over, 4, move_for_ever, 15);
}

static void a_stopped_rank_times_out(void **state)
{
    (void)state;
    big_tables();
    for (int over = SHM; over < N_TRANSPORT; over++)
        stop_one((transport)over, 4, move_for_ever);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(any_parts),        cmocka_unit_test(from_plan_to_plan),
        test_sanitized(over_hosts),         cmocka_unit_test(rows_in_place),
        test_plain(a_killed_rank_is_named), test_sanitized(a_stopped_rank_times_out),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
