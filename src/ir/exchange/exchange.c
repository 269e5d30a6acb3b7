/* The door, and the algorithms that need no list: ring and direct. */
#include "exchange/exchange_priv.h"

const char *weft_collective_name(weft_collective c)
{
    static const char *const name[] = {"all_reduce", "reduce_scatter", "all_gather",
                                       "all_to_all", "broadcast",      "barrier",
                                       "shift",      "send_rows",      "return_rows"};
    return name[c];
}

bool weft_exchange_can(const weft_exchange *x)
{
    if (x->n < 1 || x->near < 0 || (x->near & (x->near - 1))) return false;
    switch (x->algorithm) {
    case WEFT_EXCHANGE_DIRECT: return true;
    case WEFT_EXCHANGE_DOUBLING: return x->kind == WEFT_ALL_REDUCE;
    case WEFT_EXCHANGE_HALVING:
    case WEFT_EXCHANGE_RING: return x->kind != WEFT_ALL_TO_ALL;
    }
    return false;
}

static bool is_list(const weft_exchange *x)
{
    return x->algorithm == WEFT_EXCHANGE_HALVING ||
           x->algorithm == WEFT_EXCHANGE_DOUBLING;
}

int weft_exchange_count(const weft_exchange *x, int me)
{
    exchange_list l;
    if (!is_list(x)) return x->kind == WEFT_ALL_REDUCE ? 2 * (x->n - 1) : x->n - 1;
    weft_exchange__halving(x, me, &l);
    return l.n;
}

static weft_exchange_shares one(int k, int n)
{
    return (weft_exchange_shares){(k % n + n) % n, 1, 1};
}

/* Step i of n - 1.  Adding, a share goes round from the neighbour behind its owner to the owner. */
static weft_exchange_step ring(const weft_exchange *x, int me, int i, bool adds)
{
    int                n = x->n, at = adds ? me - 1 - i : me - i;
    weft_exchange_step s = {.to = (me + 1) % n, .from = (me + n - 1) % n};
    s.send               = one(at, n);
    s.recv               = one(at - 1, n);
    s.use                = adds ? WEFT_EXCHANGE_ADD : WEFT_EXCHANGE_TAKE;
    return s;
}

static weft_exchange_step direct(const weft_exchange *x, int me, int i, bool gathers)
{
    int                n = x->n, to = (me + 1 + i) % n, from = (me + n - 1 - i) % n;
    bool               adds = !gathers && x->kind != WEFT_ALL_TO_ALL;
    weft_exchange_step s    = {.to = to, .from = from};
    s.send                  = one(gathers ? me : to, n);
    s.recv                  = one(adds ? me : from, n);
    s.use                   = adds ? WEFT_EXCHANGE_ADD : WEFT_EXCHANGE_TAKE;
    return s;
}

weft_exchange_step weft_exchange_at(const weft_exchange *x, int me, int i)
{
    exchange_list l;
    bool          gathers = x->kind == WEFT_ALL_GATHER;
    if (is_list(x)) {
        weft_exchange__halving(x, me, &l);
        return l.step[i];
    }
    if (x->kind == WEFT_ALL_REDUCE && i >= x->n - 1) {
        gathers = true;
        i -= x->n - 1;
    }
    if (x->algorithm == WEFT_EXCHANGE_DIRECT) return direct(x, me, i, gathers);
    return ring(x, me, i, !gathers);
}

double weft_exchange_sent(const weft_exchange_step *s)
{
    static const double part[] = {1, 0.25, 0.75};
    if (s->to < 0) return 0;
    return part[s->part] * (s->send_aside ? 2 : 1) * s->send.n;
}

int weft_exchange_place(const weft_exchange *x, int share)
{
    if (x->kind != WEFT_ALL_REDUCE || x->algorithm != WEFT_EXCHANGE_HALVING) return share;
    /* by the reversed bits of the number modulo M, so that classes modulo 2, 4, .. are pieces of
     * pieces */
    int M = exchange_below(x->n), m = x->n - M, low = share % M, back = 0, place = 0;
    for (int b = 1, r = M / 2; r; b *= 2, r /= 2)
        if (low & b) back += r;
    place = back;
    for (int k = 0; k < m; k++) { /* second shares of classes that come before */
        int r = 0;
        for (int b = 1, h = M / 2; h; b *= 2, h /= 2)
            if (k & b) r += h;
        place += r < back;
    }
    return place + share / M;
}

int weft_exchange_levels(int n, const int32_t *host)
{
    int m = 1;
    while (m < n && host[m] == host[0]) m++;
    if (m < 2 || m == n || n % m) return 0;
    for (int i = 0; i < n; i++) {
        if (i % m) {
            if (host[i] != host[i - 1]) return 0;
            continue;
        }
        for (int k = 0; k < i; k += m)
            if (host[k] == host[i]) return 0;
    }
    return m;
}

bool weft_exchange_levels_pay(int near, int64_t bytes)
{
    enum {
        CROSS = 16 << 10 /* measured, 2 hosts of 2 ranks: flat is quicker up to here */
    };
    return bytes * near > CROSS;
}

bool weft_exchange_levels_add(int near, bool rounds)
{
    return near > 1 && !(near & (near - 1)) && !rounds;
}

const char *weft_exchange_algorithm_name(weft_exchange_algorithm a)
{
    static const char *const name[] = {"halving", "doubling", "ring", "direct"};
    return name[a];
}
