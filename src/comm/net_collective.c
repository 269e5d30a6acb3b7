/* Collectives between hosts.
 *
 * Sums of 2^k ranks: vector halving with distance doubling.  In step k partners r and r ^ 2^k exchange halves of
 * what they hold, and each adds what comes to the half that it keeps, lower position first: after log2 n steps
 * position r holds one slice of the perfect tree's sum.  The way back doubles.  Short vectors are exchanged whole.
 * Other counts, and bf16, which is rounded once: everyone sends each slice to its owner, who adds them in
 * the tree's order (sum.c).
 * Nobody leaves a collective before all have come to it, so a peer is at most one call ahead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/lanes.h"
#include "comm/net_priv.h"

struct weft_comm_group {
    net_opened opened;
    net_end   *e;
    net_port  *port;
    int        n, me, tag;
    net_flow   flow[2]; /* of one exchange */
    char      *scratch;
    size_t     scratch_bytes;
    int32_t    rank[];
};

/* One call. */
typedef struct call {
    net_end         *e;
    weft_comm_group *g;
    weft_comm_kind   kind;
    weft_dtype       t;
    int64_t          size; /* of an element */
    uint32_t         what;
    double           deadline;
    /* a copy that waits until something is under way */
    void       *copy_to;
    const void *copy_from;
    int64_t     copy_bytes;
} call;

static void free_group(void *group)
{
    weft_comm_group *g = group;
    free(g->scratch);
    free(g);
}

weft_status weft_comm__net_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      weft_comm_group **out)
{
    net_end         *e = net_of(c);
    weft_comm_group *g = calloc(1, sizeof *g + sizeof *rank * (size_t)n);
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    uint64_t hash  = weft_hash_crc32c((uint32_t)n, rank, sizeof *rank * (size_t)n) | 1;
    g->opened.free = free_group;
    g->e           = e;
    g->n           = n;
    g->tag         = tag;
    memcpy(g->rank, rank, sizeof *rank * (size_t)n);
    while (rank[g->me] != c->rank) g->me++;
    pthread_mutex_lock(&e->lock);
    g->port = weft_comm__net_port(e, NET_GROUP, -1, hash << 32 | (uint32_t)tag);
    if (g->port) {
        g->opened.next = e->opened;
        e->opened      = g;
    }
    pthread_mutex_unlock(&e->lock);
    if (!g->port) {
        free(g);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    *out = g;
    return WEFT_OK;
}

/* ---- one exchange ---- */

/* A message each way: bytes at p to position `to`, and what post says from position `from`; either -1: none. */
typedef struct leg {
    uint32_t    step;
    int         to;
    const void *p;
    int64_t     bytes;
    int         from;
    net_post    post;
    /* while it is under way */
    net_flow       *flow;
    const net_peer *sends_to, *comes_from;
} leg;

typedef struct goal {
    const leg *leg;
    int        n;
} goal;

static bool leg_done(const leg *l)
{
    return (l->from < 0 || l->post.done) && (l->to < 0 || l->flow->done);
}

static bool leg_hopeless(const leg *l)
{
    return l->post.bad || (l->from >= 0 && !l->post.done && l->comes_from->gone) ||
           (l->to >= 0 && !l->flow->done && l->sends_to->gone);
}

static bool exchanged(const void *arg)
{
    const goal *g   = arg;
    bool        all = true;
    for (int i = 0; i < g->n; i++) {
        if (leg_hopeless(&g->leg[i])) return true;
        all = all && leg_done(&g->leg[i]);
    }
    return all;
}

static weft_status disagree(const call *k, const net_post *p)
{
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "rank %d calls %s of %s with %lld bytes in step %u where rank %d calls "
        "%s of %s with %lld",
        k->e->c.rank, weft_comm_kind_name(k->kind), weft_dtype_name(k->t),
        (long long)p->length, p->step, p->source,
        weft_comm_kind_name(p->came.what >> 8 <= WEFT_COMM_BARRIER
                                ? (weft_comm_kind)(p->came.what >> 8)
                                : WEFT_COMM_BARRIER),
        weft_dtype_name((weft_dtype)(p->came.what & 0xff)), (long long)p->came.length);
}

static weft_status conclude(const call *k, const goal *g, net_outcome o, int waits_on)
{
    char what[32];
    bool all = true;
    snprintf(what, sizeof what, "in %s", weft_comm_kind_name(k->kind));
    if (o == NET_LATE) return weft_comm__net_late(k->e, k->g->port, waits_on, what);
    if (o == NET_OVER) return weft_comm__net_check(k->e);
    for (int i = 0; i < g->n; i++) {
        if (g->leg[i].post.bad) return disagree(k, &g->leg[i].post);
        all = all && leg_done(&g->leg[i]);
    }
    if (all) return WEFT_OK;
    WEFT_TRY(weft_comm__net_check(k->e));
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d is silent: it is gone while others wait %s (tag %d)",
                     waits_on, what, k->g->tag);
}

static void start(call *k, leg *l)
{
    net_end  *e    = k->e;
    net_port *port = k->g->port;
    if (l->from >= 0) {
        l->post.source = k->g->rank[l->from];
        l->post.epoch  = port->epoch;
        l->post.seq    = port->seq;
        l->post.step   = l->step;
        l->post.what   = k->what;
        l->comes_from  = &e->peer[l->post.source];
        weft_comm__net_expect(e, port, &l->post, l->post.length > NET_SHORT);
    }
    if (l->to < 0) return;
    const int64_t *upto = l->flow->upto;
    *l->flow            = (net_flow){.to     = k->g->rank[l->to],
                                     .port   = port->id,
                                     .epoch  = port->epoch,
                                     .seq    = port->seq,
                                     .step   = l->step,
                                     .what   = k->what,
                                     .p      = l->p,
                                     .upto   = upto,
                                     .length = l->bytes};
    l->sends_to         = &e->peer[l->flow->to];
    weft_comm__net_start(e, port, l->flow);
}

static void copy_meanwhile(call *k)
{
    if (!k->copy_bytes) return;
    weft_comm__net_pump(k->e);
    memmove(k->copy_to, k->copy_from, (size_t)k->copy_bytes);
    k->copy_bytes = 0;
}

static weft_status run_legs(call *k, leg *l, int n)
{
    net_port *port = k->g->port;
    goal      want = {l, n};
    for (int i = 0; i < n; i++) start(k, &l[i]);
    copy_meanwhile(k);
    port->waits_on = k->g->rank[l->from >= 0 ? l->from : l->to];
    net_outcome o  = weft_comm__net_wait(k->e, exchanged, &want, k->deadline);
    for (int i = n - 1; i >= 0; i--) {
        if (l[i].to >= 0 && !l[i].flow->done) port->waits_on = l[i].flow->to;
        if (l[i].from >= 0 && !l[i].post.done) port->waits_on = l[i].post.source;
    }
    weft_status st = conclude(k, &want, o, port->waits_on);
    port->waits_on = -1;
    for (int i = 0; i < n; i++) {
        if (l[i].from >= 0) weft_comm__net_forget(k->e, port, &l[i].post);
        if (l[i].to >= 0 && !l[i].flow->done) weft_comm__net_stop(k->e, l[i].flow);
    }
    return st;
}

/* Sends bytes at p to position `to` and receives what post says from position `from`, either -1: not. */
static weft_status exchange(call *k, uint32_t step, int to, const void *p, int64_t bytes,
                            int from, net_post post)
{
    leg l        = {.step  = step,
                    .to    = to,
                    .p     = p,
                    .bytes = bytes,
                    .from  = from,
                    .post  = post,
                    .flow  = &k->g->flow[0]};
    l.flow->upto = NULL;
    return run_legs(k, &l, 1);
}

static net_post into(void *out, int64_t bytes)
{
    return (net_post){.out = out, .length = bytes};
}

static weft_status scratch(call *k, int64_t bytes, char **out)
{
    weft_comm_group *g = k->g;
    if (g->scratch_bytes < (size_t)bytes) {
        free(g->scratch);
        g->scratch       = malloc((size_t)bytes);
        g->scratch_bytes = g->scratch ? (size_t)bytes : 0;
        if (!g->scratch) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    *out = g->scratch;
    return WEFT_OK;
}

static bool power_of_two(int n)
{
    return !(n & (n - 1));
}

/* ---- sums of 2^k ranks ---- */

/* Slices [lo, hi) of n, and the element where slice i begins; with a unit, as weft_comm_shares cuts. */
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
static int64_t extent(const call *k, const range *r, int64_t *at)
{
    *at = begin(r, r->lo) * k->size;
    return begin(r, r->hi) * k->size - *at;
}

/* One step of halving: of what is held the other half goes to the partner, and its part is added to the own. */
static leg halving(call *k, int bit, int step, const char *held, char *out, range *own)
{
    bool    upper = k->g->me & bit;
    range   keep = half(*own, upper), give = half(*own, !upper);
    int64_t at, give_at, bytes = extent(k, &keep, &at),
                         give_bytes = extent(k, &give, &give_at);
    *own                            = keep;
    return (leg){.step  = (uint32_t)step,
                 .to    = k->g->me ^ bit,
                 .p     = held + give_at,
                 .bytes = give_bytes,
                 .from  = k->g->me ^ bit,
                 .flow  = &k->g->flow[0],
                 .post  = {.out        = out + at,
                           .mine       = held + at,
                           .mine_first = !upper,
                           .dtype      = k->t,
                           .length     = bytes}};
}

/* in -> out: this position's slices of the sum lie in out afterwards, at their places; *own says which.
 * `end`: distance of the last partner, times two. */
static weft_status halve(call *k, const char *in, char *out, int end, range *own)
{
    const char *held = in;
    for (int bit = 1, step = 0; bit < end; bit *= 2, step++) {
        leg l        = halving(k, bit, step, held, out, own);
        l.flow->upto = NULL;
        WEFT_TRY(run_legs(k, &l, 1));
        held = out;
    }
    return WEFT_OK;
}

/* One step of the way back: what is held for what the partner holds. */
static leg doubling(call *k, int bit, int step, char *out, range *own)
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
    return (leg){.step  = (uint32_t)step,
                 .to    = k->g->me ^ bit,
                 .p     = out + give_at,
                 .bytes = give_bytes,
                 .from  = k->g->me ^ bit,
                 .flow  = &k->g->flow[1],
                 .post  = into(out + at, bytes)};
}

/* Halving and back.  The last step of the one and the first of the other have the same partner: what is summed goes
 * back while the rest still comes.  In place is safe: what comes back was sent before. */
static weft_status halve_and_double(call *k, const char *in, char *out, range all)
{
    int last = k->g->n / 2;
    WEFT_TRY(halve(k, in, out, last, &all));
    leg two[2];
    two[0]            = halving(k, last, 50, last > 1 ? out : in, out, &all);
    two[1]            = doubling(k, last, 100, out, &all);
    two[0].flow->upto = NULL;
    two[1].flow->upto = &two[0].post.first;
    WEFT_TRY(run_legs(k, two, 2));
    for (int bit = last / 2, step = 101; bit; bit /= 2, step++) {
        leg l        = doubling(k, bit, step, out, &all);
        l.flow->upto = NULL;
        WEFT_TRY(run_legs(k, &l, 1));
    }
    return WEFT_OK;
}

/* Whole vectors, one message a step. */
static weft_status add_whole(call *k, const char *in, char *out, int64_t bytes)
{
    int         me = k->g->me;
    char       *two;
    const char *held = in;
    WEFT_TRY(scratch(k, 2 * bytes + 1, &two));
    for (int bit = 1, step = 0; bit < k->g->n; bit *= 2, step++) {
        char *to = two + (step & 1) * bytes;
        WEFT_TRY(exchange(k, (uint32_t)step, me ^ bit, held, bytes, me ^ bit,
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

/* The same for several terms: in each round one after the other, as many as either has.  At most 64 of each. */
static weft_status add_terms(call *k, const char *in, char *out, range r,
                             const weft_comm_lanes *l)
{
    weft_comm_group *g = k->g;
    int64_t count = begin(&r, g->me + 1) - begin(&r, g->me), bytes = count * k->size;
    int64_t room = (bytes + 63) / 64 * 64, step = l->stride * k->size;
    char   *got;
    weft_comm_terms x;
    int             first[WEFT_COMM_MAX_TERM + 1], n = 0;
    WEFT_TRY(weft_comm_terms_of(l, g->n, &x));
    WEFT_TRY(scratch(k, room * x.n + 1, &got));
    for (int i = 0; i < x.n; i++) {
        if (!x.which[i]) first[n++] = i;
        x.in[i] = got + i * room;
        if (x.who[i] == g->me)
            x.in[i] = in + begin(&r, g->me) * k->size + x.which[i] * step;
    }
    first[n] = x.n;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int mine = first[g->me + 1] - first[g->me], its = first[from + 1] - first[from];
        int64_t at = begin(&r, to) * k->size, give = begin(&r, to + 1) * k->size - at;
        for (int m = 0; m < mine || m < its; m++)
            WEFT_TRY(exchange(k, (uint32_t)(i * WEFT_LANES_MAX_TERM + m) | 1u << 17,
                              m < mine ? to : -1, in + at + m * step, give,
                              m < its ? from : -1,
                              into(got + (first[from] + m) * room, bytes)));
    }
    return weft_comm_sum_levels(k->t, x.n, x.in, x.level, out, count);
}

/* out = the sum of slice me of all in; r: how count is cut into n slices. */
static weft_status add_at_owner(call *k, const char *in, char *out, range r)
{
    weft_comm_group *g = k->g;
    int64_t      count = begin(&r, g->me + 1) - begin(&r, g->me), bytes = count * k->size;
    char        *got;
    const void **part;
    int64_t      table = (int64_t)sizeof *part * g->n, room = (bytes + 63) / 64 * 64;
    WEFT_TRY(scratch(k, table + 64 + room * g->n, &got));
    part = (const void **)(void *)got;
    got += (table + 63) / 64 * 64;
    part[g->me] = in + begin(&r, g->me) * k->size;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int64_t at = begin(&r, to) * k->size;
        WEFT_TRY(exchange(k, (uint32_t)i, to, in + at, begin(&r, to + 1) * k->size - at,
                          from, into(got + from * room, bytes)));
        part[from] = got + from * room;
    }
    return weft_comm_sum(k->t, g->n, part, out, count);
}

/* The same for two, as it comes. */
static weft_status add_to_mine(call *k, const char *in, char *out, range r)
{
    int     me = k->g->me;
    int64_t at = begin(&r, me) * k->size, give = begin(&r, !me) * k->size;
    return exchange(k, 0, !me, in + give, begin(&r, !me + 1) * k->size - give, !me,
                    (net_post){.out        = out,
                               .mine       = in + at,
                               .mine_first = !me,
                               .dtype      = k->t,
                               .length     = begin(&r, me + 1) * k->size - at});
}

static weft_status add_shares(call *k, const char *in, char *out, range r)
{
    return k->g->n == 2 ? add_to_mine(k, in, out, r) : add_at_owner(k, in, out, r);
}

/* Slice i of out from position i; the own is at `own`. */
static weft_status gather(call *k, const char *own, char *out, range r)
{
    weft_comm_group *g  = k->g;
    int64_t          at = begin(&r, g->me) * k->size;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int64_t get = begin(&r, from) * k->size;
        WEFT_TRY(exchange(k, 1u << 16 | (uint32_t)i, to, own,
                          begin(&r, g->me + 1) * k->size - at, from,
                          into(out + get, begin(&r, from + 1) * k->size - get)));
    }
    return WEFT_OK;
}

/* ---- the kinds ---- */

static int reversed(int x, int n)
{
    int y = 0;
    for (int bit = 1; bit < n; bit *= 2) y = y * 2 + !!(x & bit);
    return y;
}

static weft_status all_reduce(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g    = k->g;
    range            all  = {.hi = g->n, .count = count, .n = g->n};
    bool             tree = power_of_two(g->n) && (k->t != WEFT_DTYPE_BF16 || g->n == 2);
    if (tree && count * k->size <= (g->n == 2 ? NET_SHORT : NET_WHOLE))
        return add_whole(k, in, out, count * k->size);
    if (tree) return halve_and_double(k, in, out, all);
    /* out may be in: only the own slice is written, which the others have been sent none of */
    WEFT_TRY(add_at_owner(k, in, out + begin(&all, g->me) * k->size, all));
    return gather(k, out + begin(&all, g->me) * k->size, out, all);
}

/* Shares lie in the order in which halving deals them out. */
static weft_status reduce_scatter(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n, bytes = share * k->size;
    range            all = {.hi = g->n, .count = share * g->n, .n = g->n};
    char            *work;
    if (!power_of_two(g->n) || k->t == WEFT_DTYPE_BF16 || g->n == 2)
        return add_shares(k, in, out, all);
    WEFT_TRY(scratch(k, bytes * g->n + 1, &work));
    for (int i = 0; i < g->n && bytes; i++)
        memcpy(work + reversed(i, g->n) * bytes, in + i * bytes, (size_t)bytes);
    WEFT_TRY(halve(k, work, work, g->n, &all));
    if (bytes) memcpy(out, work + all.lo * bytes, (size_t)bytes);
    return WEFT_OK;
}

/* Neighbours first: what both hold always lies side by side. */
static weft_status all_gather(call *k, const char *in, char *out, range all)
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
        WEFT_TRY(exchange(k, (uint32_t)step, g->me ^ bit, bit == 1 ? in : out + give,
                          begin(&all, lo + bit) * k->size - give, g->me ^ bit,
                          into(out + get, begin(&all, other + bit) * k->size - get)));
    }
    return WEFT_OK;
}

static weft_status all_to_all(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n * k->size;
    k->copy_to             = out + g->me * share;
    k->copy_from           = in + g->me * share;
    k->copy_bytes          = share;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        WEFT_TRY(exchange(k, (uint32_t)i, to, in + to * share, share, from,
                          into(out + from * share, share)));
    }
    return WEFT_OK;
}

static weft_status shift(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          bytes = count * k->size;
    if (g->n > 1)
        return exchange(k, 0, (g->me + 1) % g->n, in, bytes, (g->me + g->n - 1) % g->n,
                        into(out, bytes));
    if (bytes && out != in) memcpy(out, in, (size_t)bytes);
    return WEFT_OK;
}

/* Down a tree in which the lowest bit set leads to the parent; the word that it has come goes back up. */
static weft_status broadcast(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          bytes = count * k->size;
    int              low = g->me ? g->me & -g->me : g->n, top = 1;
    while (top * 2 < low) top *= 2;
    if (g->me)
        WEFT_TRY(exchange(k, 0, -1, NULL, 0, g->me - low, into(out, bytes)));
    else if (out != in && bytes)
        memcpy(out, in, (size_t)bytes);
    for (int bit = top; bit; bit /= 2)
        if (bit < low && g->me + bit < g->n)
            WEFT_TRY(exchange(k, 0, g->me + bit, out, bytes, -1, (net_post){0}));
    for (int bit = 1; bit < low && g->me + bit < g->n; bit *= 2)
        WEFT_TRY(exchange(k, 1, -1, NULL, 0, g->me + bit, into(NULL, 0)));
    if (g->me) return exchange(k, 1, g->me - low, NULL, 0, -1, (net_post){0});
    return WEFT_OK;
}

static weft_status barrier(call *k)
{
    weft_comm_group *g = k->g;
    for (int d = 1, step = 0; d < g->n; d *= 2, step++)
        WEFT_TRY(exchange(k, (uint32_t)step, (g->me + d) % g->n, NULL, 0,
                          (g->me + g->n - d) % g->n, into(NULL, 0)));
    return WEFT_OK;
}

static weft_status run(call *k, const void *in, void *out, int64_t count)
{
    if (k->g->n == 1 && k->kind != WEFT_COMM_BARRIER) {
        if (in != out && count) memmove(out, in, (size_t)(count * k->size));
        return WEFT_OK;
    }
    switch (k->kind) {
    case WEFT_COMM_ALL_REDUCE: return all_reduce(k, in, out, count);
    case WEFT_COMM_REDUCE_SCATTER: return reduce_scatter(k, in, out, count);
    case WEFT_COMM_ALL_GATHER:
        return all_gather(k, in, out, (range){.count = count * k->g->n, .n = k->g->n});
    case WEFT_COMM_ALL_TO_ALL: return all_to_all(k, in, out, count);
    case WEFT_COMM_BROADCAST: return broadcast(k, in, out, count);
    case WEFT_COMM_BARRIER: return barrier(k);
    case WEFT_COMM_SHIFT: return shift(k, in, out, count);
    }
    return WEFT_OK;
}

static weft_status begin_call(call *k, weft_comm *c, weft_comm_group *g,
                              weft_comm_kind kind, weft_dtype t)
{
    *k = (call){.e        = g->e,
                .g        = g,
                .kind     = kind,
                .t        = t,
                .size     = weft_dtype_bytes(t),
                .what     = (uint32_t)kind << 8 | (uint32_t)t,
                .deadline = weft_clock_s() + c->timeout_s};
    if (kind == WEFT_COMM_ALL_REDUCE || kind == WEFT_COMM_REDUCE_SCATTER)
        WEFT_TRY(weft_comm_sum(t, 1, &(const void *){g}, g, 0)); /* can it be summed? */
    WEFT_TRY(weft_comm__net_enter(g->e, g->port));
    g->port->seq++;
    return WEFT_OK;
}

static weft_status end_call(call *k, weft_status st)
{
    if (st == WEFT_OK) copy_meanwhile(k); /* nothing was sent */
    weft_comm__net_leave(k->e);
    return st;
}

weft_status weft_comm__net_collective(weft_comm *c, weft_comm_group *g,
                                      weft_comm_kind kind, weft_dtype t, const void *in,
                                      void *out, int64_t count)
{
    call k;
    WEFT_TRY(begin_call(&k, c, g, kind, t));
    weft_status st = run(&k, in, out, count);
    return end_call(&k, st);
}

weft_status weft_comm__net_shares(weft_comm *c, weft_comm_group *g, weft_comm_kind kind,
                                  weft_dtype t, const void *in, void *out, int64_t total,
                                  int64_t unit)
{
    call  k;
    range r = {.hi = g->n, .count = total, .n = g->n, .unit = unit};
    WEFT_TRY(begin_call(&k, c, g, kind, t));
    weft_status st = kind == WEFT_COMM_ALL_GATHER ? all_gather(&k, in, out, r)
                                                  : add_shares(&k, in, out, r);
    return end_call(&k, st);
}

weft_status weft_comm__net_sum_lanes(weft_comm *c, weft_comm_group *g,
                                     weft_comm_kind kind, weft_dtype t, const void *in,
                                     void *out, int64_t total, int64_t unit,
                                     const weft_comm_lanes *l)
{
    call  k;
    bool  all = kind == WEFT_COMM_ALL_REDUCE;
    range r   = {.hi = g->n, .count = total, .n = g->n, .unit = all ? 0 : unit};
    if (!all && !unit) r.count = total / g->n * g->n;
    WEFT_TRY(begin_call(&k, c, g, kind, t));
    char       *to = all ? (char *)out + begin(&r, g->me) * k.size : out;
    weft_status st;
    weft_lanes  d     = {l->n_lane, g->n, l->share};
    bool        plain = g->n > 1 && weft_lanes_right(&d) && weft_lanes_plain(&d);
    if (plain) { /* a subtree each: the plain tree */
        st = all    ? all_reduce(&k, in, out, total)
             : unit ? add_shares(&k, in, out, r)
                    : reduce_scatter(&k, in, out, total);
    } else {
        st = add_terms(&k, in, to, r, l);
        if (st == WEFT_OK && all) st = gather(&k, to, out, r);
    }
    return end_call(&k, st);
}
