/* Halving with doubled distance, for any number of positions.
 *
 * n = M + m, M a power of two.  Positions 0 .. M-1 are the main group; the rest, if any, sums by itself in the same
 * way, then its leading m0 (a power of two) give what they hold to positions 0 .. m0-1, which hold the same classes
 * of shares by then.  It is kept aside, and the half that a partner needs goes along with each further message.
 *
 *     n = 5:   0 <-> 1   2 <-> 3        after the distance d a position holds the shares equal to its own
 *              4 -> 0, aside            number modulo 2 d, summed over its aligned block of 2 d positions
 *              0 <-> 2   1 <-> 3   ..
 *
 * So every sum is (lower block) + (upper block): the binary tree over positions, ((0+1)+(2+3))+4. */
#include "exchange/exchange_priv.h"

static weft_exchange_step *add(exchange_list *l, int to, int from)
{
    weft_exchange_step *s = &l->step[l->n++];
    *s                    = (weft_exchange_step){.to = to, .from = from};
    return s;
}

/* Shares equal to k modulo d; with whole vectors, all. */
static weft_exchange_shares class_of(const weft_exchange *x, int k, int d)
{
    if (x->algorithm == WEFT_EXCHANGE_DOUBLING) return (weft_exchange_shares){0, 1, x->n};
    return (weft_exchange_shares){k % d, d, (x->n - k % d + d - 1) / d};
}

static weft_exchange_shares one(int k)
{
    return (weft_exchange_shares){k, 1, 1};
}

/* n positions from base on, me one of them. */
static void reduce(const weft_exchange *x, exchange_list *l, int base, int n, int me)
{
    int M = exchange_below(n), m = n - M, m0 = m ? exchange_below(m) : 0;
    int k = me - base;
    if (k >= M) {
        reduce(x, l, base + M, m, me);
        if (k - M < m0) add(l, me - M, -1)->send = class_of(x, k - M, m0);
        return;
    }
    for (int d = 1; d < M; d *= 2) {
        bool aside = m0 && d >= m0; /* positions below d have some */
        if (d == m0 && k < m0) {
            weft_exchange_step *s = add(l, -1, me + M);
            s->recv               = class_of(x, k, d);
            s->use                = WEFT_EXCHANGE_ASIDE;
        }
        weft_exchange_step *s = add(l, base + (k ^ d), base + (k ^ d));
        s->send               = class_of(x, k ^ d, 2 * d);
        s->recv               = class_of(x, k, 2 * d);
        s->use                = WEFT_EXCHANGE_ADD;
        s->send_aside         = aside && k < d;
        s->recv_aside         = aside && k >= d && k < 2 * d;
        s->finish             = m && 2 * d == M;
    }
}

/* From each position's class modulo M to everything, everywhere. */
static void gather(const weft_exchange *x, exchange_list *l, int me)
{
    int M = exchange_below(x->n);
    for (int d = M / 2; d && me < M; d /= 2) {
        weft_exchange_step *s = add(l, me ^ d, me ^ d);
        s->send               = class_of(x, me, 2 * d);
        s->recv               = class_of(x, me ^ d, 2 * d);
    }
}

/* The rest gets the whole vector. */
static void tell_rest(const weft_exchange *x, exchange_list *l, int me)
{
    int                  M   = exchange_below(x->n);
    weft_exchange_shares all = {0, 1, x->n};
    if (me + M < x->n) add(l, me + M, -1)->send = all;
    if (me >= M) add(l, -1, me - M)->recv = all;
}

void weft_exchange__halving(const weft_exchange *x, int me, exchange_list *l)
{
    int M = exchange_below(x->n);
    l->n  = 0;
    if (x->kind != WEFT_EXCHANGE_ALL_GATHER) reduce(x, l, 0, x->n, me);
    switch (x->kind) {
    case WEFT_EXCHANGE_REDUCE_SCATTER:
        if (me + M < x->n) add(l, me + M, -1)->send = one(me + M);
        if (me >= M) add(l, -1, me - M)->recv = one(me);
        return;
    case WEFT_EXCHANGE_ALL_GATHER:
        if (me >= M) add(l, me - M, -1)->send = one(me);
        if (me + M < x->n) add(l, -1, me + M)->recv = one(me + M);
        break;
    default: break;
    }
    if (x->algorithm == WEFT_EXCHANGE_HALVING) gather(x, l, me);
    tell_rest(x, l, me);
}
