/* Rows in bins, on every transport: each arrives at its bin's owner in its place, and comes home
 * again.  Routings in which all rows are in one bin, in which some positions have none, and more
 * positions than bins. */
#include "comm/memory.h"
#include "support/test.h"

enum {
    MAX_BIN = 11
};

typedef enum routing {
    EVEN,
    RANDOM,
    ALL_IN_ONE,
    LAST_ONLY,
    NOTHING,
    N_ROUTING,
} routing;

static int n_bin, width, n_row; /* at most so many of one position and bin */

/* Rows of position p in bin b. */
static int count_of(routing how, int p, int b)
{
    switch (how) {
    case EVEN: return n_row;
    case RANDOM: return (p * 31 + b * 17 + p * b * 7) % 5 * n_row / 4;
    case ALL_IN_ONE: return b == 1 ? n_row * n_bin : 0;
    case LAST_ONLY: return p == 0 && b == n_bin - 1 ? n_row : 0;
    default: return 0;
    }
}

static float value_of(int p, int b, int row, int column)
{
    return (float)(((p * MAX_BIN + b) * 4099 + row) * 7 + column % 7);
}

/* And some behind them, to see whether they are written. */
static float *floats(rank_state *r, int64_t n)
{
    void *p;
    if (get(r, n * 4 + 64, &p) != WEFT_OK) return NULL;
    return memset(p, 0x7f, (size_t)n * 4 + 64);
}

/* Rows of one position and bin, or whether they are there. */
static bool rows_at(float *x, int64_t *at, int p, int b, int n, bool fill)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) {
            if (fill)
                x[*at * width + i * width + k] = value_of(p, b, i, k);
            else if (x[*at * width + i * width + k] != value_of(p, b, i, k))
                return false;
        }
    *at += n;
    return true;
}

static weft_status move_rows(weft_comm *c, weft_comm_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out,
                             const weft_comm_rows *r)
{
    return weft_comm_run(c, &(weft_comm_call){.group  = g,
                                              .kind   = kind,
                                              .dtype  = t,
                                              .tensor = {.in = in, .out = out},
                                              .rows   = *r});
}

static weft_status there_and_back(rank_state *r, weft_comm_group *g, routing how)
{
    int32_t table[MAX_RANK * (MAX_BIN + 1)];
    int64_t home = 0, own = 0, at = 0;
    int     lo = (int)weft_comm_share_at(n_bin, 1, r->n, r->rank),
        hi     = (int)weft_comm_share_at(n_bin, 1, r->n, r->rank + 1);
    for (int p = 0; p < r->n; p++) {
        int32_t *t = table + p * (n_bin + 1);
        for (int b = t[0] = 0; b < n_bin; b++) t[b + 1] = t[b] + count_of(how, p, b);
        if (p == r->rank) home = t[n_bin];
        own += t[hi] - t[lo];
    }
    float *x = floats(r, home * width), *y = floats(r, own * width),
          *z = floats(r, home * width);
    if (!x || !y || !z) return WEFT_FAIL(WEFT_ERR_MEM, "test");
    for (int b = 0; b < n_bin; b++)
        rows_at(x, &at, r->rank, b, count_of(how, r->rank, b), true);
    weft_comm_rows out  = {width, n_bin, table, home, own};
    weft_comm_rows back = {width, n_bin, table, own, home};
    WEFT_TRY(move_rows(r->c, g, WEFT_SEND_ROWS, WEFT_DTYPE_F32, x, y, &out));
    at = 0;
    for (int b = lo; b < hi; b++)
        for (int p = 0; p < r->n; p++)
            if (!rows_at(y, &at, p, b, count_of(how, p, b), false))
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "routing %d: bin %d of rank %d", how,
                                 b, p);
    WEFT_TRY(move_rows(r->c, g, WEFT_RETURN_ROWS, WEFT_DTYPE_F32, y, z, &back));
    if (memcmp(x, z, (size_t)(home * width) * 4))
        return WEFT_FAIL(WEFT_ERR_NUMERIC, "routing %d: came home otherwise", how);
    memset(table, 0x7f, 4); /* nothing is written behind the last row */
    if (memcmp(table, y + own * width, 4) || memcmp(table, z + home * width, 4))
        return WEFT_FAIL(WEFT_ERR_NUMERIC, "routing %d: written behind the end", how);
    put(r, x);
    put(r, y);
    put(r, z);
    return WEFT_OK;
}

static weft_status every_routing(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int how = 0; how < N_ROUTING; how++)
        WEFT_TRY(there_and_back(r, g, (routing)how));
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_F32, NULL, NULL, 0);
}

static void sweep(int n_lo, int n_hi)
{
    for (int over = 0; over < N_TRANSPORT; over++)
        for (where = 0; where < n_memory(over); where++)
            for (int n = n_lo; n <= n_hi; n++) {
                run_ranks((transport)over, n, 60, every_routing);
                all_ok((transport)over, n);
            }
}

static void small(void **state)
{
    (void)state;
    for (n_bin = 3; n_bin <= MAX_BIN; n_bin += 4 * TEST_STRIDE(2)) {
        width = 5;
        n_row = 4;
        sweep(1, 5);
    }
}

/* Several chunks, streaming stores. */
static void large(void **state)
{
    (void)state;
    n_bin = 8;
    width = 1031;
    n_row = 56;
    sweep(TEST_STRIDE(2) + 1, 4 - WEFT_TEST_SANITIZED);
}

static weft_status bad_tables(rank_state *r)
{
    int32_t          table[] = {0, 2, 4, 0, 4, 2};
    float            x[8]    = {0}, y[8];
    weft_comm_group *g;
    weft_comm_rows   rows = {1, 2, table, 8, 8};
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (move_rows(r->c, g, WEFT_SEND_ROWS, WEFT_DTYPE_F32, x, y, &rows) != WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_NUMERIC, "a table that does not ascend passed");
    table[4] = 2, table[5] = 4;
    rows.out_rows = 3;
    if (move_rows(r->c, g, WEFT_SEND_ROWS, WEFT_DTYPE_F32, x, y, &rows) != WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_NUMERIC, "more rows than room passed");
    if (move_rows(r->c, g, WEFT_SHIFT, WEFT_DTYPE_F32, x, y, &rows) != WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_NUMERIC, "shift moved rows");
    return WEFT_OK;
}

static void tables_are_checked(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 20, bad_tables);
        all_ok((transport)over, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small),
        cmocka_unit_test(large),
        cmocka_unit_test(tables_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
