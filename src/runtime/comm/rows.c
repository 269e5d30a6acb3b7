/* Rows in bins: which runs go from where to where.  Everything follows from the table, which all
 * positions have. */
#include "comm/comm.h"

static const int32_t *row_of(const weft_comm_rows *r, int position)
{
    return r->table + (int64_t)position * (r->n_bin + 1);
}

bool weft_comm_next_run(const weft_comm_rows *r, int n, weft_comm_row_run *x)
{
    if (x->home < 0)
        *x = (weft_comm_row_run){.home = -1};
    else
        x->at_owner += x->n;
    if (++x->home == n) {
        x->home = 0;
        x->bin++;
    }
    if (x->bin >= r->n_bin) return false;
    while (x->bin >= weft_comm_share_at(r->n_bin, 1, n, x->owner + 1)) {
        x->owner++;
        x->at_owner = 0;
    }
    const int32_t *t = row_of(r, x->home);
    x->at_home       = t[x->bin];
    x->n             = t[x->bin + 1] - t[x->bin];
    return true;
}

weft_comm_way weft_comm_way_of(const weft_comm_rows *r, weft_collective kind,
                               weft_dtype t, const weft_comm_row_run *x)
{
    int64_t row  = r->width * weft_dtype_bytes(t);
    bool    send = kind == WEFT_SEND_ROWS;
    return (weft_comm_way){.from  = send ? x->home : x->owner,
                           .to    = send ? x->owner : x->home,
                           .in    = row * (send ? x->at_home : x->at_owner),
                           .out   = row * (send ? x->at_owner : x->at_home),
                           .bytes = row * x->n};
}

/* Up to the last row, also where the first bins begin behind 0. */
int64_t weft_comm_count_rows(const weft_comm_rows *r, int n, weft_collective kind, int k,
                             bool in)
{
    int64_t sum = 0;
    if ((kind == WEFT_SEND_ROWS) == in) return row_of(r, k)[r->n_bin];
    int64_t lo = weft_comm_share_at(r->n_bin, 1, n, k),
            hi = weft_comm_share_at(r->n_bin, 1, n, k + 1);
    for (int p = 0; p < n; p++) sum += row_of(r, p)[hi] - row_of(r, p)[lo];
    return sum;
}

weft_status weft_comm_check_rows(const weft_comm_rows *r, int n, weft_collective kind,
                                 int me)
{
    for (int p = 0; p < n; p++)
        for (int b = 0; b <= r->n_bin; b++)
            if (row_of(r, p)[b] < (b ? row_of(r, p)[b - 1] : 0))
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "%s: rows of position %d do not ascend at bin %d",
                                 weft_collective_name(kind), p, b);
    int64_t in  = weft_comm_count_rows(r, n, kind, me, true),
            out = weft_comm_count_rows(r, n, kind, me, false);
    if (in > r->in_rows || out > r->out_rows)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %lld rows of %lld to %lld of %lld",
                         weft_collective_name(kind), (long long)in, (long long)r->in_rows,
                         (long long)out, (long long)r->out_rows);
    return WEFT_OK;
}
