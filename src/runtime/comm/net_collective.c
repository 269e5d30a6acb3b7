/* Collectives between hosts.
 *
 * Sums of 2^k ranks: vector halving with distance doubling.  In step k partners r and r ^ 2^k
 * exchange halves of what they hold, and each adds what comes to the half that it keeps, lower
 * position first: after log2 n steps position r holds one slice of the perfect tree's sum.  The
 * way back doubles.  Short vectors are exchanged whole. Other counts, and bf16, which is rounded
 * once: everyone sends each slice to its owner, who adds them in the tree's order (sum.c).
 * A message costs more than what it carries up to some 64 KB (measured where ranks share
 * processors: 10 us of one against 5), so few messages win there: whole vectors are summed,
 * shares of an all_to_all travel by twos. */
#include <string.h>

#include "base/lanes.h"
#include "comm/net_legs.h"

static bool power_of_two(int n)
{
    return !(n & (n - 1));
}

/* ---- sums of 2^k ranks ---- */

/* Slices [lo, hi) of n, and the element where slice i begins; with a unit, as weft_comm_share_at
 * cuts. */
typedef struct range {
    int     lo, hi;
    int64_t count;
    int     n;
    int64_t unit;
} range;

static int64_t begin(const range *r, int slice)
{
    if (r->unit) return weft_comm_share_at(r->count, r->unit, r->n, slice);
    return r->count / r->n * slice + r->count % r->n * slice / r->n;
}

/* Of what two partners hold, the half of the one whose bit is set, or not. */
static range half(range r, bool upper)
{
    int mid = (r.lo + r.hi) / 2;
    if (upper)
        r.lo = mid;
    else
        r.hi = mid;
    return r;
}

/* Bytes of [lo, hi) and where they begin. */
static int64_t extent(const net_call *k, const range *r, int64_t *at)
{
    *at = begin(r, r->lo) * k->size;
    return begin(r, r->hi) * k->size - *at;
}

/* One step of halving: of what is held the other half goes to the partner, and its part is added
 * to the own. */
static net_leg halving(net_call *k, int bit, int step, const char *held, char *out,
                       range *own)
{
    bool    upper = k->g->me & bit;
    range   keep = half(*own, upper), give = half(*own, !upper);
    int64_t at, give_at, bytes = extent(k, &keep, &at),
                         give_bytes = extent(k, &give, &give_at);
    *own                            = keep;
    return (net_leg){.step    = (uint32_t)step,
                     .to      = k->g->me ^ bit,
                     .p       = held + give_at,
                     .bytes   = give_bytes,
                     .at_once = true,
                     .from    = k->g->me ^ bit,
                     .post    = {.out        = out + at,
                                 .mine       = held + at,
                                 .mine_first = !upper,
                                 .dtype      = k->t,
                                 .length     = bytes}};
}

/* in -> out: this position's slices of the sum lie in out afterwards, at their places; *own says
 * which. `end`: distance of the last partner, times two. */
static weft_status halve(net_call *k, const char *in, char *out, int end, range *own)
{
    const char *held = in;
    for (int bit = 1, step = 0; bit < end; bit *= 2, step++) {
        net_leg l = halving(k, bit, step, held, out, own);
        WEFT_TRY(weft_comm__net_run_legs(k, &l, 1));
        held = out;
    }
    return WEFT_OK;
}

/* One step of the way back: what is held for what the partner holds. */
static net_leg doubling(net_call *k, int bit, int step, char *out, range *own)
{
    bool    upper = k->g->me & bit;
    int     width = own->hi - own->lo;
    range   get   = *own;
    int64_t at, give_at, give_bytes = extent(k, own, &give_at), bytes;
    get.lo += upper ? -width : width;
    get.hi += upper ? -width : width;
    bytes = extent(k, &get, &at);
    if (upper)
        own->lo -= width;
    else
        own->hi += width;
    return (net_leg){.step    = (uint32_t)step,
                     .to      = k->g->me ^ bit,
                     .p       = out + give_at,
                     .bytes   = give_bytes,
                     .at_once = true,
                     .from    = k->g->me ^ bit,
                     .post    = net_into(out + at, bytes)};
}

/* Halving and back.  The last step of the one and the first of the other have the same partner:
 * what is summed goes back while the rest still comes.  In place is safe: what comes back was
 * sent before. */
static weft_status halve_and_double(net_call *k, const char *in, char *out, range all)
{
    int last = k->g->n / 2;
    WEFT_TRY(halve(k, in, out, last, &all));
    net_leg two[2];
    two[0]      = halving(k, last, 50, last > 1 ? out : in, out, &all);
    two[1]      = doubling(k, last, 100, out, &all);
    two[1].upto = &two[0].post.first;
    WEFT_TRY(weft_comm__net_run_legs(k, two, 2));
    for (int bit = last / 2, step = 101; bit; bit /= 2, step++) {
        net_leg l = doubling(k, bit, step, out, &all);
        WEFT_TRY(weft_comm__net_run_legs(k, &l, 1));
    }
    return WEFT_OK;
}

/* Whole vectors, one message a step. */
static weft_status add_whole(net_call *k, const char *in, char *out, int64_t bytes)
{
    int         me = k->g->me;
    char       *two;
    const char *held = in;
    WEFT_TRY(weft_comm__net_scratch(k, 2 * bytes + 1, &two));
    for (int bit = 1, step = 0; bit < k->g->n; bit *= 2, step++) {
        char *to = two + (step & 1) * bytes;
        WEFT_TRY(weft_comm__net_exchange(k, (uint32_t)step, me ^ bit, held, bytes,
                                         me ^ bit,
                                         (net_post){.out        = to,
                                                    .mine       = held,
                                                    .mine_first = !(me & bit),
                                                    .dtype      = k->t,
                                                    .length     = bytes}));
        held = to;
    }
    if (held != out && bytes) memmove(out, held, (size_t)bytes);
    return WEFT_OK;
}

/* ---- everything to its owner ---- */

/* Who is met in round i of n: partners where n is 2^k. */
static void round_of(const weft_comm_group *g, int i, int *to, int *from)
{
    *to = *from = g->me ^ i;
    if (power_of_two(g->n)) return;
    *to   = (g->me + i) % g->n;
    *from = (g->me + g->n - i) % g->n;
}

/* The same for several terms: in each round one after the other, as many as either has.  At most
 * 64 of each. */
static weft_status add_terms(net_call *k, const char *in, char *out, range r,
                             const weft_comm_lanes *l)
{
    weft_comm_group *g = k->g;
    int64_t count = begin(&r, g->me + 1) - begin(&r, g->me), bytes = count * k->size;
    int64_t room = (bytes + 63) / 64 * 64, step = l->stride * k->size;
    char   *got;
    weft_comm_terms x;
    int             first[WEFT_COMM_MAX_TERM + 1], n = 0;
    WEFT_TRY(weft_comm_terms_of(l, g->n, &x));
    WEFT_TRY(weft_comm__net_scratch(k, room * x.n + 1, &got));
    for (int i = 0; i < x.n; i++) {
        if (!x.which[i]) first[n++] = i;
        x.in[i] = got + i * room;
        if (x.who[i] == g->me)
            x.in[i] = in + begin(&r, g->me) * k->size + x.which[i] * step;
    }
    first[n]    = x.n;
    net_batch b = {.k = k};
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int mine = first[g->me + 1] - first[g->me], its = first[from + 1] - first[from];
        int64_t at = begin(&r, to) * k->size, give = begin(&r, to + 1) * k->size - at;
        for (int m = 0; m < mine || m < its; m++)
            WEFT_TRY(weft_comm__net_add_leg(
                &b, (net_leg){.step  = (uint32_t)(i * WEFT_LANES_MAX_TERM + m) | 1u << 17,
                              .to    = m < mine ? to : -1,
                              .p     = in + at + m * step,
                              .bytes = give,
                              .from  = m < its ? from : -1,
                              .post  = net_into(got + (first[from] + m) * room, bytes)}));
    }
    WEFT_TRY(weft_comm__net_run_batch(&b));
    return weft_comm_sum_levels(k->t, x.n, x.in, x.level, out, count);
}

/* out = the sum of slice me of all in; r: how count is cut into n slices. */
static weft_status add_at_owner(net_call *k, const char *in, char *out, range r)
{
    weft_comm_group *g = k->g;
    int64_t      count = begin(&r, g->me + 1) - begin(&r, g->me), bytes = count * k->size;
    char        *got;
    const void **part;
    int64_t      table = (int64_t)sizeof *part * g->n, room = (bytes + 63) / 64 * 64;
    net_batch    b = {.k = k};
    WEFT_TRY(weft_comm__net_scratch(k, table + 64 + room * g->n, &got));
    part = (const void **)(void *)got;
    got += (table + 63) / 64 * 64;
    part[g->me] = in + begin(&r, g->me) * k->size;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int64_t at = begin(&r, to) * k->size;
        WEFT_TRY(weft_comm__net_add_leg(
            &b, (net_leg){.step  = (uint32_t)i,
                          .to    = to,
                          .p     = in + at,
                          .bytes = begin(&r, to + 1) * k->size - at,
                          .from  = from,
                          .post  = net_into(got + from * room, bytes)}));
        part[from] = got + from * room;
    }
    WEFT_TRY(weft_comm__net_run_batch(&b));
    return weft_comm_sum(k->t, g->n, part, out, count);
}

/* The same for two, as it comes. */
static weft_status add_to_mine(net_call *k, const char *in, char *out, range r)
{
    int     me = k->g->me;
    int64_t at = begin(&r, me) * k->size, give = begin(&r, !me) * k->size;
    return weft_comm__net_exchange(
        k, 0, !me, in + give, begin(&r, !me + 1) * k->size - give, !me,
        (net_post){.out        = out,
                   .mine       = in + at,
                   .mine_first = !me,
                   .dtype      = k->t,
                   .length     = begin(&r, me + 1) * k->size - at});
}

static weft_status add_shares(net_call *k, const char *in, char *out, range r)
{
    return k->g->n == 2 ? add_to_mine(k, in, out, r) : add_at_owner(k, in, out, r);
}

/* Slice i of out from position i; the own is at `own`. */
static weft_status gather(net_call *k, const char *own, char *out, range r)
{
    weft_comm_group *g  = k->g;
    int64_t          at = begin(&r, g->me) * k->size;
    net_batch        b  = {.k = k};
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int64_t get = begin(&r, from) * k->size;
        WEFT_TRY(weft_comm__net_add_leg(
            &b,
            (net_leg){.step  = 1u << 16 | (uint32_t)i,
                      .to    = to,
                      .p     = own,
                      .bytes = begin(&r, g->me + 1) * k->size - at,
                      .from  = from,
                      .post = net_into(out + get, begin(&r, from + 1) * k->size - get)}));
    }
    return weft_comm__net_run_batch(&b);
}

/* ---- the kinds ---- */

static int reversed(int x, int n)
{
    int y = 0;
    for (int bit = 1; bit < n; bit *= 2) y = y * 2 + !!(x & bit);
    return y;
}

static weft_status all_reduce(net_call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g    = k->g;
    range            all  = {.hi = g->n, .count = count, .n = g->n};
    bool             tree = power_of_two(g->n) && (k->t != WEFT_DTYPE_BF16 || g->n == 2);
    if (tree && count * k->size <= (g->n <= 4 ? NET_SHORT : NET_WHOLE))
        return add_whole(k, in, out, count * k->size);
    if (tree) return halve_and_double(k, in, out, all);
    /* out may be in: only the own slice is written, which the others have been sent none of */
    WEFT_TRY(add_at_owner(k, in, out + begin(&all, g->me) * k->size, all));
    return gather(k, out + begin(&all, g->me) * k->size, out, all);
}

/* Shares lie in the order in which halving deals them out. */
static weft_status reduce_scatter(net_call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n, bytes = share * k->size;
    range            all = {.hi = g->n, .count = share * g->n, .n = g->n};
    char            *work;
    if (!power_of_two(g->n) || k->t == WEFT_DTYPE_BF16 || g->n == 2)
        return add_shares(k, in, out, all);
    WEFT_TRY(weft_comm__net_scratch(k, bytes * g->n + 1, &work));
    for (int i = 0; i < g->n && bytes; i++)
        memcpy(work + reversed(i, g->n) * bytes, in + i * bytes, (size_t)bytes);
    WEFT_TRY(halve(k, work, work, g->n, &all));
    if (bytes) memcpy(out, work + all.lo * bytes, (size_t)bytes);
    return WEFT_OK;
}

/* Neighbours first: what both hold always lies side by side. */
static weft_status all_gather(net_call *k, const char *in, char *out, range all)
{
    weft_comm_group *g  = k->g;
    int64_t          at = begin(&all, g->me) * k->size,
            own         = begin(&all, g->me + 1) * k->size - at;
    if (own && out + at != in) {
        k->copy_to    = out + at;
        k->copy_from  = in;
        k->copy_bytes = own;
    }
    if (!power_of_two(g->n)) return gather(k, in, out, all);
    for (int bit = 1, step = 0; bit < g->n; bit *= 2, step++) {
        int     lo = g->me & ~(bit - 1), other = lo ^ bit;
        int64_t give = begin(&all, lo) * k->size, get = begin(&all, other) * k->size;
        WEFT_TRY(weft_comm__net_exchange(
            k, (uint32_t)step, g->me ^ bit, bit == 1 ? in : out + give,
            begin(&all, lo + bit) * k->size - give, g->me ^ bit,
            net_into(out + get, begin(&all, other + bit) * k->size - get)));
    }
    return WEFT_OK;
}

/* Shares that have the bit of a step in (whose it is) ^ (where it is) cross over, all in one
 * message: log2 n messages in place of n - 1.  work holds the share of me ^ i at place i, and
 * half as much again. */
static weft_status cross_over(net_call *k, const char *in, char *out, int64_t share)
{
    weft_comm_group *g = k->g;
    char            *work, *give, *get;
    WEFT_TRY(weft_comm__net_scratch(k, 2 * g->n * share + 1, &work));
    give = work + g->n * share;
    get  = give + g->n / 2 * share;
    for (int i = 0; i < g->n; i++)
        memcpy(work + i * share, in + (g->me ^ i) * share, (size_t)share);
    for (int bit = 1, step = 0; bit < g->n; bit *= 2, step++) {
        int64_t n = 0;
        for (int i = 0; i < g->n; i++)
            if (i & bit) memcpy(give + share * n++, work + i * share, (size_t)share);
        WEFT_TRY(weft_comm__net_exchange(k, (uint32_t)step, g->me ^ bit, give, n * share,
                                         g->me ^ bit, net_into(get, n * share)));
        n = 0;
        for (int i = 0; i < g->n; i++)
            if (i & bit) memcpy(work + i * share, get + share * n++, (size_t)share);
    }
    for (int i = 0; i < g->n; i++)
        memcpy(out + (g->me ^ i) * share, work + i * share, (size_t)share);
    return WEFT_OK;
}

static weft_status all_to_all(net_call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n * k->size;
    if (power_of_two(g->n) && g->n > 2 && share && share * g->n / 2 <= NET_SHORT)
        return cross_over(k, in, out, share);
    k->copy_to    = out + g->me * share;
    k->copy_from  = in + g->me * share;
    k->copy_bytes = share;
    net_batch b   = {.k = k};
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        WEFT_TRY(weft_comm__net_add_leg(
            &b, (net_leg){.step  = (uint32_t)i,
                          .to    = to,
                          .p     = in + to * share,
                          .bytes = share,
                          .from  = from,
                          .post  = net_into(out + from * share, share)}));
    }
    return weft_comm__net_run_batch(&b);
}

/* The next run from one position to another that is not empty; *x from home -1. */
static bool next_way(const net_call *k, const weft_comm_rows *r, int from, int to,
                     weft_comm_row_run *x, weft_comm_way *w)
{
    while (weft_comm_next_run(r, k->g->n, x)) {
        *w = weft_comm_way_of(r, k->kind, k->t, x);
        if (w->from == from && w->to == to && w->bytes) return true;
    }
    return false;
}

static int count_ways(const net_call *k, const weft_comm_rows *r, int from, int to)
{
    weft_comm_row_run x = {.home = -1};
    weft_comm_way     w;
    int               n = 0;
    while (next_way(k, r, from, to, &x, &w)) n++;
    return n;
}

/* A message for each run, received where it belongs; one that is empty where there are none, so
 * that nobody leaves before all have come. */
static weft_status move_rows(net_call *k, const char *in, char *out,
                             const weft_comm_rows *r)
{
    weft_comm_group  *g   = k->g;
    weft_comm_row_run own = {.home = -1};
    net_batch         b   = {.k = k};
    weft_comm_way     w, v;
    while (next_way(k, r, g->me, g->me, &own, &w))
        memcpy(out + w.out, in + w.in, (size_t)w.bytes);
    for (int i = 1; i < g->n; i++) {
        weft_comm_row_run give = {.home = -1}, get = {.home = -1};
        int               to, from;
        round_of(g, i, &to, &from);
        int n_give = count_ways(k, r, g->me, to), n_get = count_ways(k, r, from, g->me);
        for (int m = 0; !m || m < n_give || m < n_get; m++) {
            if (!next_way(k, r, g->me, to, &give, &w)) w = (weft_comm_way){0};
            if (!next_way(k, r, from, g->me, &get, &v)) v = (weft_comm_way){0};
            net_leg l = {.step  = (uint32_t)(i * (r->n_bin + 1) + m) | 1u << 30,
                         .to    = !m || m < n_give ? to : -1,
                         .p     = in + w.in,
                         .bytes = w.bytes,
                         .from  = !m || m < n_get ? from : -1,
                         .post  = net_into(out + v.out, v.bytes)};
            WEFT_TRY(weft_comm__net_add_leg(&b, l));
        }
    }
    return weft_comm__net_run_batch(&b);
}

static weft_status shift(net_call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          bytes = count * k->size;
    if (g->n > 1)
        return weft_comm__net_exchange(k, 0, (g->me + 1) % g->n, in, bytes,
                                       (g->me + g->n - 1) % g->n, net_into(out, bytes));
    if (bytes && out != in) memcpy(out, in, (size_t)bytes);
    return WEFT_OK;
}

/* Down a tree in which the lowest bit set leads to the parent; the word that it has come goes
 * back up. */
static weft_status broadcast(net_call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          bytes = count * k->size;
    int              low = g->me ? g->me & -g->me : g->n, top = 1;
    while (top * 2 < low) top *= 2;
    if (g->me)
        WEFT_TRY(weft_comm__net_exchange(k, 0, -1, NULL, 0, g->me - low,
                                         net_into(out, bytes)));
    else if (out != in && bytes)
        memcpy(out, in, (size_t)bytes);
    for (int bit = top; bit; bit /= 2)
        if (bit < low && g->me + bit < g->n)
            WEFT_TRY(weft_comm__net_exchange(k, 0, g->me + bit, out, bytes, -1,
                                             (net_post){0}));
    for (int bit = 1; bit < low && g->me + bit < g->n; bit *= 2)
        WEFT_TRY(
            weft_comm__net_exchange(k, 1, -1, NULL, 0, g->me + bit, net_into(NULL, 0)));
    if (g->me)
        return weft_comm__net_exchange(k, 1, g->me - low, NULL, 0, -1, (net_post){0});
    return WEFT_OK;
}

static weft_status barrier(net_call *k)
{
    weft_comm_group *g = k->g;
    for (int d = 1, step = 0; d < g->n; d *= 2, step++)
        WEFT_TRY(weft_comm__net_exchange(k, (uint32_t)step, (g->me + d) % g->n, NULL, 0,
                                         (g->me + g->n - d) % g->n, net_into(NULL, 0)));
    return WEFT_OK;
}

static weft_status run(net_call *k, const void *in, void *out, int64_t count)
{
    if (k->g->n == 1 && k->kind != WEFT_BARRIER) {
        if (in != out && count) memmove(out, in, (size_t)(count * k->size));
        return WEFT_OK;
    }
    switch (k->kind) {
    case WEFT_ALL_REDUCE: return all_reduce(k, in, out, count);
    case WEFT_REDUCE_SCATTER: return reduce_scatter(k, in, out, count);
    case WEFT_ALL_GATHER:
        return all_gather(k, in, out, (range){.count = count * k->g->n, .n = k->g->n});
    case WEFT_ALL_TO_ALL: return all_to_all(k, in, out, count);
    case WEFT_BROADCAST: return broadcast(k, in, out, count);
    case WEFT_BARRIER: return barrier(k);
    case WEFT_SHIFT: return shift(k, in, out, count);
    default: break;
    }
    return WEFT_OK;
}

static weft_status run_equal(net_call *k, const weft_comm_part *x)
{
    return run(k, x->in, x->out, x->count);
}

static weft_status run_shares(net_call *k, const weft_comm_part *x)
{
    range r = {.hi = k->g->n, .count = x->count, .n = k->g->n, .unit = x->unit};
    return k->kind == WEFT_ALL_GATHER ? all_gather(k, x->in, x->out, r)
                                      : add_shares(k, x->in, x->out, r);
}

static weft_status run_lanes(net_call *k, const weft_comm_part *x,
                             const weft_comm_lanes *l)
{
    weft_comm_group *g   = k->g;
    bool             all = k->kind == WEFT_ALL_REDUCE;
    range r = {.hi = g->n, .count = x->count, .n = g->n, .unit = all ? 0 : x->unit};
    if (!all && !x->unit) r.count = x->count / g->n * g->n;
    char      *to    = all ? (char *)x->out + begin(&r, g->me) * k->size : x->out;
    weft_lanes d     = {l->n_lane, g->n, l->share};
    bool       plain = g->n > 1 && weft_lanes_right(&d) && weft_lanes_plain(&d);
    if (plain) /* a subtree each: the plain tree */
        return all       ? all_reduce(k, x->in, x->out, x->count)
               : x->unit ? add_shares(k, x->in, x->out, r)
                         : reduce_scatter(k, x->in, x->out, x->count);
    WEFT_TRY(add_terms(k, x->in, to, r, l));
    return all ? gather(k, to, x->out, r) : WEFT_OK;
}

weft_status weft_comm__net_run(weft_comm *c, const weft_comm_call *call)
{
    const weft_comm_part *x = &call->tensor;
    weft_comm_group      *g = call->group;
    weft_comm_lanes       l = weft_comm_lanes_of(call);
    net_call              k;
    weft_status           st;
    if (call->n_part) return weft_comm_run_packed(c, call);
    if (call->rows.n_bin)
        WEFT_TRY(weft_comm_check_rows(&call->rows, g->n, call->kind, g->me));
    WEFT_TRY(weft_comm__net_begin(&k, c, g, call->kind, call->dtype));
    if (call->rows.n_bin)
        st = move_rows(&k, x->in, x->out, &call->rows);
    else if (call->n_lane)
        st = run_lanes(&k, x, &l);
    else
        st = x->unit ? run_shares(&k, x) : run_equal(&k, x);
    return weft_comm__net_end(&k, st);
}
