/* The door: hands each call to the transport. */
#include "comm/comm.h"

#include "base/hash.h"
#include "base/lanes.h"

weft_status weft_comm_open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                   int64_t bytes, int credits, weft_comm_channel **out)
{
    if (peer < 0 || peer >= c->world || peer == c->rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d: there is no other rank %d of %d",
                         c->rank, peer, c->world);
    return c->op->open_channel(c, peer, side, tag, bytes, credits, out);
}

weft_status weft_comm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                           int64_t bytes)
{
    return c->op->send(c, ch, p, bytes);
}

weft_status weft_comm_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes)
{
    return c->op->recv(c, ch, p, bytes);
}

bool weft_comm_can_send(weft_comm *c, weft_comm_channel *ch)
{
    return !c->op->can_send || c->op->can_send(c, ch);
}

weft_status weft_comm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                 weft_comm_group **out)
{
    int me = -1;
    for (int i = 0; i < n; i++) {
        if (rank[i] < 0 || rank[i] >= c->world)
            return WEFT_FAIL(WEFT_ERR_ARG, "rank %d: a group names rank %d of %d",
                             c->rank, rank[i], c->world);
        if (rank[i] == c->rank) me = i;
    }
    if (me < 0) return WEFT_FAIL(WEFT_ERR_ARG, "rank %d is not in its group", c->rank);
    return c->op->open_group(c, n, rank, tag, out);
}

weft_status weft_comm_collective(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                 weft_dtype t, const void *in, void *out, int64_t count)
{
    return c->op->collective(c, g, kind, t, in, out, count);
}

int64_t weft_comm_share_at(int64_t total, int64_t unit, int n, int k)
{
    int64_t units = (total + unit - 1) / unit, more = units % n;
    int64_t at = (units / n * k + (k < more ? k : more)) * unit;
    return at < total ? at : total;
}

weft_status weft_comm_shares(weft_comm *c, weft_comm_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out, int64_t total,
                             int64_t unit)
{
    if (kind != WEFT_ALL_GATHER && kind != WEFT_REDUCE_SCATTER)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s has no shares of different sizes",
                         weft_collective_name(kind));
    if (total < 0 || unit < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %lld elements in units of %lld",
                         weft_collective_name(kind), (long long)total, (long long)unit);
    if (!c->op->shares)
        return WEFT_FAIL(WEFT_ERR_ARG, "transport %s has equal shares only",
                         c->transport);
    return c->op->shares(c, g, kind, t, in, out, total, unit);
}

uint32_t weft_comm_dealt(const weft_comm_lanes *l, int n)
{
    if (!l->share) return 0;
    return (uint32_t)weft_hash_xxh64(l->share, sizeof *l->share * (size_t)n, 0) | 1;
}

weft_status weft_comm_terms_of(const weft_comm_lanes *l, int n, weft_comm_terms *out)
{
    weft_lanes d = {l->n_lane, n, l->share};
    if (!weft_lanes_right(&d) || l->stride < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d members share %d lanes, %lld elements apart",
                         n, l->n_lane, (long long)l->stride);
    out->n = out->most = 0;
    for (int k = 0; k < n; k++) {
        int first, end, level[WEFT_LANES_MAX_TERM];
        weft_lanes_of(&d, k, &first, &end);
        int m = weft_lanes_terms(first, end, level);
        if (out->n + m > WEFT_COMM_MAX_TERM)
            return WEFT_FAIL(WEFT_ERR_ARG, "%d members and %d lanes: more than %d terms",
                             n, l->n_lane, WEFT_COMM_MAX_TERM);
        if (m > out->most) out->most = m;
        for (int i = 0; i < m; i++, out->n++) {
            out->who[out->n]   = k;
            out->which[out->n] = i;
            out->level[out->n] = level[i];
        }
    }
    return WEFT_OK;
}

weft_status weft_comm_sum_lanes(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out, int64_t total,
                                int64_t unit, const weft_comm_lanes *l)
{
    if (kind != WEFT_ALL_REDUCE && kind != WEFT_REDUCE_SCATTER)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s has no lanes", weft_collective_name(kind));
    if (total < 0 || unit < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %lld elements in units of %lld",
                         weft_collective_name(kind), (long long)total, (long long)unit);
    if (!c->op->sum_lanes)
        return WEFT_FAIL(WEFT_ERR_ARG, "transport %s has sums of one term a member only",
                         c->transport);
    return c->op->sum_lanes(c, g, kind, t, in, out, total, unit, l);
}

weft_status weft_comm_move_rows(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out,
                                const weft_comm_rows *r)
{
    if (kind != WEFT_SEND_ROWS && kind != WEFT_RETURN_ROWS)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s moves no rows", weft_collective_name(kind));
    if (r->width < 1 || r->n_bin < 1 || r->in_rows < 0 || r->out_rows < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %d bins of rows of %lld elements",
                         weft_collective_name(kind), r->n_bin, (long long)r->width);
    if (!c->op->rows)
        return WEFT_FAIL(WEFT_ERR_ARG, "transport %s moves no rows", c->transport);
    return c->op->rows(c, g, kind, t, in, out, r);
}

void weft_comm_abort(weft_comm *c, const char *why)
{
    c->op->abort(c, why);
}

void weft_comm_set_epoch(weft_comm *c, uint32_t epoch)
{
    c->epoch = epoch;
}

void weft_comm_destroy(weft_comm *c)
{
    if (c) c->op->destroy(c);
}
