/* Halving with doubled distance, for any number of positions.
 *
 * n = M + m, M a power of two.  Positions 0 .. M-1 are the main group; the rest, if any, sums by
 * itself in the same way, then its leading m0 (a power of two) give what they hold to positions 0
 * .. m0-1, which hold the same classes of shares by then.  It is kept aside, and the half that a
 * partner needs goes along with each further message.
 *
 *     n = 5:   0 <-> 1   2 <-> 3        after the distance d a position holds the shares equal to
 *              its own 4 -> 0, aside            number modulo 2 d, summed over its aligned block
 *              of 2 d positions 0 <-> 2   1 <-> 3   ..
 *
 * So every sum is (lower block) + (upper block): the binary tree over positions, ((0+1)+(2+3))+4.
 *
 * Two parts, near = 8.  The wire between hosts idles only while the front, a quarter of the
 * vector, is exchanged inside them; then the front crosses once while the back follows inside,
 * and both go on together:
 *
 *     inside     F1 F2 F4 B1 B2 B4                                       gathering, the same read
 *     backwards between             F8 ..... B8 .......... 16 ...... 32 ... */
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

/* Whether n positions exchange distances up to x->near in two parts: there is more than one host,
 * and nothing aside travels yet. */
static bool in_parts(const weft_exchange *x, int n)
{
    int M = exchange_below(n), m = n - M;
    return x->near > 1 && x->algorithm == WEFT_EXCHANGE_HALVING && M >= 2 * x->near &&
           !(m && exchange_below(m) <= x->near);
}

/* One part is exchanged over the distances 1, 2, .. last. */
static void reduce_part(const weft_exchange *x, exchange_list *l, int base, int me,
                        int last, weft_exchange_part part)
{
    int k = me - base;
    for (int d = 1; d <= last; d *= 2) {
        weft_exchange_step *s = add(l, base + (k ^ d), base + (k ^ d));
        s->send               = class_of(x, k ^ d, 2 * d);
        s->recv               = class_of(x, k, 2 * d);
        s->use                = WEFT_EXCHANGE_ADD;
        s->part               = part;
    }
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
    bool parts = in_parts(x, n);
    if (parts) {
        reduce_part(x, l, base, me, x->near, WEFT_EXCHANGE_FRONT);
        l->step[l->n - 1].behind = true;
        reduce_part(x, l, base, me, x->near, WEFT_EXCHANGE_BACK);
    }
    for (int d = parts ? 2 * x->near : 1; d < M; d *= 2) {
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

/* From each position's class modulo `from` to its class modulo `to`. */
static void gather_part(const weft_exchange *x, exchange_list *l, int me, int from,
                        int to, weft_exchange_part part)
{
    for (int d = from / 2; d >= to; d /= 2) {
        weft_exchange_step *s = add(l, me ^ d, me ^ d);
        s->send               = class_of(x, me, 2 * d);
        s->recv               = class_of(x, me ^ d, 2 * d);
        s->part               = part;
    }
}

/* To everything, everywhere. */
static void gather(const weft_exchange *x, exchange_list *l, int me)
{
    int  M = exchange_below(x->n), near = x->near;
    bool parts = in_parts(x, M);
    if (me >= M) return;
    gather_part(x, l, me, M, parts ? 2 * near : 1, WEFT_EXCHANGE_WHOLE);
    if (!parts) return;
    gather_part(x, l, me, 2 * near, near, WEFT_EXCHANGE_BACK);
    gather_part(x, l, me, 2 * near, near, WEFT_EXCHANGE_FRONT);
    l->step[l->n - 1].behind = true;
    gather_part(x, l, me, near, 1, WEFT_EXCHANGE_BACK);
    gather_part(x, l, me, near, 1, WEFT_EXCHANGE_FRONT);
}

/* What follows a front left behind, and is not the back alone, needs it. */
static void join(exchange_list *l)
{
    bool open = false;
    for (int i = 0; i < l->n; i++) {
        weft_exchange_step *s = &l->step[i];
        s->joins              = open && s->part != WEFT_EXCHANGE_BACK;
        open                  = (open && !s->joins) || s->behind;
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

/* What follows the sum: shares to those of the rest, or everything to everybody. */
static void give_back(const weft_exchange *x, exchange_list *l, int me)
{
    int M = exchange_below(x->n);
    switch (x->kind) {
    case WEFT_REDUCE_SCATTER:
        if (me + M < x->n) add(l, me + M, -1)->send = one(me + M);
        if (me >= M) add(l, -1, me - M)->recv = one(me);
        return;
    case WEFT_ALL_GATHER:
        if (me >= M) add(l, me - M, -1)->send = one(me);
        if (me + M < x->n) add(l, -1, me + M)->recv = one(me + M);
        break;
    default: break;
    }
    if (x->algorithm == WEFT_EXCHANGE_HALVING) gather(x, l, me);
    tell_rest(x, l, me);
}

void weft_exchange__halving(const weft_exchange *x, int me, exchange_list *l)
{
    l->n = 0;
    if (x->kind != WEFT_ALL_GATHER) reduce(x, l, 0, x->n, me);
    give_back(x, l, me);
    join(l);
}
