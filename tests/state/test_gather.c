/* Whole tensors at rank 0, over every transport: for any parts, any regions and any order of reads;
 * a rank that dies or asks for nonsense ends it for all. */
#include "comm/kill.h"
#include "state/cases.h"
#include "state/gather.h"
#include "support/test.h"

enum {
    TAG = 99
};

static case_table table;
static unsigned   order; /* of reads */

static weft_status check_elements(int tensor, const weft_region *r, int64_t first,
                                  int64_t n, const char *got)
{
    const weft_shape *s    = &table.tensor[tensor].shape;
    int64_t           size = weft_dtype_bytes(table.tensor[tensor].dtype);
    for (int64_t i = first; i < first + n; i++) {
        int64_t left = i, at = 0, stride = 1;
        for (int d = s->n - 1; d >= 0; d--) {
            at += (r->offset[d] + left % r->extent[d]) * stride;
            left /= r->extent[d];
            stride *= s->d[d];
        }
        uint64_t number = case_number(tensor, at);
        if (memcmp(&number, got + (i - first) * size, (size_t)size))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "%s: element %lld of a region",
                             case_name[tensor], (long long)i);
    }
    return WEFT_OK;
}

/* A region of a tensor: forwards in pieces, with jumps in between. */
static weft_status read_region(weft_gather *g, int tensor, const weft_region *r,
                               unsigned *seed)
{
    int64_t n = weft_region_count(r), size = weft_dtype_bytes(table.tensor[tensor].dtype);
    char   *got    = malloc((size_t)(n * size) + 1);
    weft_status st = WEFT_OK;
    if (!got) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int64_t at = 0, k; at < n; at += k) {
        k = 1 + (rand_r(seed) % 3 ? rand_r(seed) % (int)(n - at) : (int)(n - at) - 1);
        WEFT_GO(weft_gather_read(g, tensor, r, at, k, got));
        WEFT_GO(check_elements(tensor, r, at, k, got));
        if (rand_r(seed) % 4) continue;
        int64_t first = rand_r(seed) % n;
        WEFT_GO(weft_gather_read(g, tensor, r, first, 1, got));
        WEFT_GO(check_elements(tensor, r, first, 1, got));
    }
out:
    free(got);
    return st;
}

static weft_status read_all(weft_gather *g)
{
    unsigned seed = order;
    for (int i = 0; i < 2 * CASE_TENSORS; i++) {
        int         k = rand_r(&seed) % CASE_TENSORS;
        weft_region r = weft_region_whole(&table.tensor[k].shape);
        for (int d = 0; d < r.global.n && i % 2; d++) {
            r.offset[d] = rand_r(&seed) % (int)r.global.d[d];
            r.extent[d] = 1 + rand_r(&seed) % (int)(r.global.d[d] - r.offset[d]);
        }
        WEFT_TRY(read_region(g, k, &r, &seed));
    }
    return WEFT_OK;
}

static weft_status gather_twice(rank_state *r)
{
    weft_comm_group *group;
    weft_state      *s  = NULL;
    weft_holders    *h  = NULL;
    weft_gather     *g  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(case_state(&table, r->rank, true, &s));
    WEFT_GO(weft_comm_open_group(r->c, r->n, everyone, TAG, &group));
    WEFT_GO(weft_holders_exchange(s, r->c, group, &h));
    WEFT_GO(weft_gather_open(s, h, r->c, TAG + 1, &g));
    for (int i = 0; i < 2; i++) {
        if (r->rank == 0) {
            WEFT_GO(read_all(g));
            WEFT_GO(weft_gather_keep_alive(g, 0));
            WEFT_GO(weft_gather_release(g));
        } else {
            WEFT_GO(weft_gather_serve(g));
        }
    }
out:
    weft_gather_close(g);
    weft_holders_destroy(h);
    weft_state_destroy(s);
    return st;
}

static void any_parts(void **state)
{
    unsigned seed = 51;
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int round = 0; round < (is_process((transport)over) ? 4 : 20);
             round += TEST_STRIDE(6)) {
            int n = 2 + case_random(&seed, MAX_RANK - 1);
            case_random_table(&table, &seed, n, round % 2 ? 9 : 900,
                              1 + case_random(&seed, n));
            order = seed;
            run_ranks((transport)over, n, 20, gather_twice);
            all_ok((transport)over, n);
        }
}

/* Alone: without ranks, tables or messages. */
static void one_rank(void **state)
{
    unsigned     seed = 61;
    weft_state  *s;
    weft_gather *g;
    (void)state;
    case_random_table(&table, &seed, 1, 400, 1);
    assert_ok(case_state(&table, 0, true, &s));
    assert_ok(weft_gather_open(s, NULL, NULL, 0, &g));
    order = seed;
    assert_ok(read_all(g));
    assert_ok(weft_gather_release(g));
    weft_gather_close(g);
    weft_state_destroy(s);
}

/* ---- a slow rank 0, death ---- */

static void sharded(int n)
{
    unsigned seed = 71;
    table.n_rank  = n;
    case_shapes(&table, &seed, 9);
    table.tensor[2].shape = (weft_shape){.n = 2, .d = {600, 700}};
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < n; r++)
            case_shard(&table.at[k][r], &table.tensor[k].shape, 0, r, n);
}

static weft_status open_gather(rank_state *r, weft_state **s, weft_holders **h,
                               weft_gather **g)
{
    weft_comm_group *group;
    WEFT_TRY(case_state(&table, r->rank, true, s));
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, TAG, &group));
    WEFT_TRY(weft_holders_exchange(*s, r->c, group, h));
    return weft_gather_open(*s, *h, r->c, TAG + 1, g);
}

/* Rank 0 takes longer than the timeout between two reads; what it says meanwhile keeps the others
 * waiting. */
static weft_status slow_leader(rank_state *r)
{
    weft_state   *s;
    weft_holders *h;
    weft_gather  *g;
    weft_region   all = weft_region_whole(&table.tensor[2].shape);
    float         x;
    WEFT_TRY(open_gather(r, &s, &h, &g));
    if (r->rank) return weft_gather_serve(g);
    WEFT_TRY(weft_gather_read(g, 2, &all, 0, 1, &x));
    for (int i = 0; i < 15; i++) {
        usleep(100000);
        WEFT_TRY(weft_gather_keep_alive(g, 0.05));
    }
    WEFT_TRY(weft_gather_read(g, 2, &all, 600 * 700 - 1, 1, &x));
    WEFT_TRY(check_elements(2, &all, 600 * 700 - 1, 1, (char *)&x));
    return weft_gather_release(g);
}

static void a_slow_leader_is_waited_for(void **state)
{
    (void)state;
    sharded(3);
    for (int over = SHM; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 0.5, slow_leader);
        all_ok((transport)over, 3);
    }
}

static weft_status gather_for_ever(rank_state *r)
{
    weft_state   *s;
    weft_holders *h;
    weft_gather  *g;
    weft_region   all = weft_region_whole(&table.tensor[2].shape);
    static float  x[600 * 700];
    WEFT_TRY(open_gather(r, &s, &h, &g));
    for (;;) {
        r->count++;
        if (r->rank) {
            WEFT_TRY(weft_gather_serve(g));
            continue;
        }
        WEFT_TRY(weft_gather_read(g, 2, &all, 0, 600 * 700, x));
        WEFT_TRY(weft_gather_release(g));
    }
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    sharded(4);
    for (int over = SHM; over < N_TRANSPORT; over++)
        for (int i = 0; i < 5; i++) kill_one((transport)over, 4, gather_for_ever, 15);
}

static void a_stopped_rank_times_out(void **state)
{
    (void)state;
    sharded(4);
    for (int over = SHM; over < N_TRANSPORT; over++)
        stop_one((transport)over, 4, gather_for_ever);
}

/* ---- nonsense ---- */

/* Parts that cannot be: runs that do not ascend, numbers that are missing. */
static weft_status lie_about_parts(rank_state *r)
{
    weft_comm_group *group;
    weft_holders    *h;
    weft_state      *s;
    int32_t          n = 5;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, TAG, &group));
    if (r->rank == 0) {
        WEFT_TRY(case_state(&table, 0, true, &s));
        weft_status st = weft_holders_exchange(s, r->c, group, &h);
        weft_state_destroy(s);
        return st;
    }
    int32_t sizes[2];
    WEFT_TRY(
        weft_comm_collective(r->c, group, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &n, sizes, 1));
    int32_t  most = sizes[0] > sizes[1] ? sizes[0] : sizes[1];
    int32_t *mine = calloc((size_t)most + 8, 4), *both = calloc(2 * (size_t)most + 8, 4);
    mine[0] = 0;                                        /* the scalar */
    mine[1] = 1, mine[2] = 1, mine[3] = 5, mine[4] = 3; /* bias: [5, 3) */
    weft_status st = weft_comm_collective(r->c, group, WEFT_ALL_GATHER, WEFT_DTYPE_I32,
                                          mine, both, most);
    free(mine);
    free(both);
    return st;
}

static void parts_are_checked(void **state)
{
    (void)state;
    sharded(2);
    run_ranks(LOCAL, 2, 5, lie_about_parts);
    assert_int_equal(rank[0].st, WEFT_ERR_PEER);
    assert_non_null(strstr(rank[0].text, "rank 1 failed: it sent a part of bias"));
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(any_parts),
        cmocka_unit_test(one_rank),
        test_plain(a_slow_leader_is_waited_for),
        test_plain(a_killed_rank_is_named),
        test_sanitized(a_stopped_rank_times_out),
        cmocka_unit_test(parts_are_checked),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
