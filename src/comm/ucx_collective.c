/* Collectives over UCX.
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
#include "comm/ucx_priv.h"

struct weft_comm_group {
    ucx_opened opened;
    ucx_end   *e;
    ucx_port  *port;
    int        n, me, tag;
    ucx_flow   flow; /* one message at a time */
    char      *scratch;
    size_t     scratch_bytes;
    int32_t    rank[];
};

/* One call. */
typedef struct call {
    ucx_end         *e;
    weft_comm_group *g;
    weft_comm_kind   kind;
    weft_dtype       t;
    int64_t          size; /* of an element */
    uint32_t         what;
    double           deadline;
} call;

static void free_group(void *group)
{
    weft_comm_group *g = group;
    free(g->scratch);
    free(g);
}

weft_status weft_comm__ucx_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      weft_comm_group **out)
{
    ucx_end         *e = ucx_of(c);
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
    g->port = weft_comm__ucx_port(e, UCX_GROUP, -1, hash << 32 | (uint32_t)tag);
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

typedef struct goal {
    const ucx_flow *flow; /* or NULL */
    const ucx_post *post;
    const ucx_peer *to, *from;
} goal;

static bool exchanged(const void *arg)
{
    const goal *g = arg;
    return (g->post && g->post->bad) || (g->from && !g->post->done && g->from->gone) ||
           (g->to && !g->flow->done && g->to->gone) ||
           ((!g->post || g->post->done) && (!g->flow || g->flow->done));
}

static weft_status disagree(const call *k, const ucx_post *p)
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

static weft_status conclude(const call *k, const goal *g, ucx_outcome o, int waits_on)
{
    char what[32];
    snprintf(what, sizeof what, "in %s", weft_comm_kind_name(k->kind));
    if (o == UCX_LATE) return weft_comm__ucx_late(k->e, k->g->port, waits_on, what);
    if (o == UCX_OVER) return weft_comm__ucx_check(k->e);
    if (g->post && g->post->bad) return disagree(k, g->post);
    if ((!g->post || g->post->done) && (!g->flow || g->flow->done)) return WEFT_OK;
    WEFT_TRY(weft_comm__ucx_check(k->e));
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d is silent: it is gone while others wait %s (tag %d)",
                     waits_on, what, k->g->tag);
}

/* Sends bytes at p to position `to` and receives what post says from position `from`, either -1: not. */
static weft_status exchange(call *k, uint32_t step, int to, const void *p, int64_t bytes,
                            int from, ucx_post post)
{
    ucx_end         *e    = k->e;
    weft_comm_group *g    = k->g;
    ucx_port        *port = g->port;
    goal             want = {0};
    if (from >= 0) {
        post.source = g->rank[from];
        post.epoch  = port->epoch;
        post.seq    = port->seq;
        post.step   = step;
        post.what   = k->what;
        want.post   = &post;
        want.from   = &e->peer[post.source];
        weft_comm__ucx_expect(e, port, &post, post.length > UCX_SHORT);
    }
    if (to >= 0) {
        g->flow   = (ucx_flow){.to     = g->rank[to],
                               .port   = port->id,
                               .epoch  = port->epoch,
                               .seq    = port->seq,
                               .step   = step,
                               .what   = k->what,
                               .p      = p,
                               .length = bytes};
        want.flow = &g->flow;
        want.to   = &e->peer[g->rank[to]];
        weft_comm__ucx_start(e, port, &g->flow);
    }
    port->waits_on = g->rank[from >= 0 ? from : to];
    ucx_outcome o  = weft_comm__ucx_wait(e, exchanged, &want, k->deadline);
    if (want.post && !post.done)
        port->waits_on = post.source;
    else if (want.flow && !g->flow.done)
        port->waits_on = g->flow.to;
    weft_status st = conclude(k, &want, o, port->waits_on);
    port->waits_on = -1;
    if (want.post) weft_comm__ucx_forget(port, &post);
    if (want.flow && !g->flow.done) weft_comm__ucx_stop(e, &g->flow);
    return st;
}

static ucx_post into(void *out, int64_t bytes)
{
    return (ucx_post){.out = out, .length = bytes};
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

/* in -> out: this position's slices of the sum lie in out afterwards, at their places; *own says which. */
static weft_status halve(call *k, const char *in, char *out, range *own)
{
    int         me   = k->g->me;
    const char *held = in;
    for (int bit = 1, step = 0; bit < k->g->n; bit *= 2, step++) {
        bool    upper = me & bit;
        range   keep = half(*own, upper), give = half(*own, !upper);
        int64_t at         = begin(&keep, keep.lo) * k->size,
                bytes      = begin(&keep, keep.hi) * k->size - at;
        int64_t give_at    = begin(&give, give.lo) * k->size,
                give_bytes = begin(&give, give.hi) * k->size - give_at;
        WEFT_TRY(exchange(k, (uint32_t)step, me ^ bit, held + give_at, give_bytes,
                          me ^ bit,
                          (ucx_post){.out        = out + at,
                                     .mine       = held + at,
                                     .mine_first = !upper,
                                     .dtype      = k->t,
                                     .length     = bytes}));
        held = out;
        *own = keep;
    }
    return WEFT_OK;
}

/* The way back: all slices in out. */
static weft_status spread(call *k, char *out, range own)
{
    int me = k->g->me;
    for (int bit = k->g->n / 2, step = 100; bit; bit /= 2, step++) {
        bool    upper = me & bit;
        int     width = own.hi - own.lo;
        range   give = own, get = own;
        int64_t give_at    = begin(&give, give.lo) * k->size,
                give_bytes = begin(&give, give.hi) * k->size - give_at;
        get.lo += upper ? -width : width;
        get.hi += upper ? -width : width;
        int64_t at    = begin(&get, get.lo) * k->size,
                bytes = begin(&get, get.hi) * k->size - at;
        WEFT_TRY(exchange(k, (uint32_t)step, me ^ bit, out + give_at, give_bytes,
                          me ^ bit, into(out + at, bytes)));
        if (upper)
            own.lo -= width;
        else
            own.hi += width;
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
                          (ucx_post){.out        = to,
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

/* Slice i of out from position i; own is there. */
static weft_status gather(call *k, char *out, range r)
{
    weft_comm_group *g  = k->g;
    int64_t          at = begin(&r, g->me) * k->size;
    for (int i = 1; i < g->n; i++) {
        int to, from;
        round_of(g, i, &to, &from);
        int64_t get = begin(&r, from) * k->size;
        WEFT_TRY(exchange(k, 1u << 16 | (uint32_t)i, to, out + at,
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
    bool             tree = power_of_two(g->n) && k->t != WEFT_DTYPE_BF16;
    if (tree && count * k->size <= (g->n == 2 ? UCX_SHORT : UCX_WHOLE))
        return add_whole(k, in, out, count * k->size);
    if (tree) {
        WEFT_TRY(halve(k, in, out, &all));
        return spread(k, out, all);
    }
    /* out may be in: only the own slice is written, which the others have been sent none of */
    WEFT_TRY(add_at_owner(k, in, out + begin(&all, g->me) * k->size, all));
    return gather(k, out, all);
}

/* Shares lie in the order in which halving deals them out. */
static weft_status reduce_scatter(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n, bytes = share * k->size;
    range            all = {.hi = g->n, .count = share * g->n, .n = g->n};
    char            *work;
    if (!power_of_two(g->n) || k->t == WEFT_DTYPE_BF16 || g->n == 2)
        return add_at_owner(k, in, out, all);
    WEFT_TRY(scratch(k, bytes * g->n + 1, &work));
    for (int i = 0; i < g->n && bytes; i++)
        memcpy(work + reversed(i, g->n) * bytes, in + i * bytes, (size_t)bytes);
    WEFT_TRY(halve(k, work, work, &all));
    if (bytes) memcpy(out, work + all.lo * bytes, (size_t)bytes);
    return WEFT_OK;
}

/* Neighbours first: what both hold always lies side by side. */
static weft_status all_gather(call *k, const char *in, char *out, range all)
{
    weft_comm_group *g  = k->g;
    int64_t          at = begin(&all, g->me) * k->size,
            own         = begin(&all, g->me + 1) * k->size - at;
    if (own && out + at != in) memmove(out + at, in, (size_t)own);
    if (!power_of_two(g->n)) return gather(k, out, all);
    for (int bit = 1, step = 0; bit < g->n; bit *= 2, step++) {
        int     lo = g->me & ~(bit - 1), other = lo ^ bit;
        int64_t give = begin(&all, lo) * k->size, get = begin(&all, other) * k->size;
        WEFT_TRY(exchange(k, (uint32_t)step, g->me ^ bit, out + give,
                          begin(&all, lo + bit) * k->size - give, g->me ^ bit,
                          into(out + get, begin(&all, other + bit) * k->size - get)));
    }
    return WEFT_OK;
}

static weft_status all_to_all(call *k, const char *in, char *out, int64_t count)
{
    weft_comm_group *g     = k->g;
    int64_t          share = count / g->n * k->size;
    if (share) memcpy(out + g->me * share, in + g->me * share, (size_t)share);
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
            WEFT_TRY(exchange(k, 0, g->me + bit, out, bytes, -1, (ucx_post){0}));
    for (int bit = 1; bit < low && g->me + bit < g->n; bit *= 2)
        WEFT_TRY(exchange(k, 1, -1, NULL, 0, g->me + bit, into(NULL, 0)));
    if (g->me) return exchange(k, 1, g->me - low, NULL, 0, -1, (ucx_post){0});
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
    WEFT_TRY(weft_comm__ucx_enter(g->e, g->port));
    g->port->seq++;
    return WEFT_OK;
}

weft_status weft_comm__ucx_collective(weft_comm *c, weft_comm_group *g,
                                      weft_comm_kind kind, weft_dtype t, const void *in,
                                      void *out, int64_t count)
{
    call k;
    WEFT_TRY(begin_call(&k, c, g, kind, t));
    weft_status st = run(&k, in, out, count);
    weft_comm__ucx_leave(g->e);
    return st;
}

weft_status weft_comm__ucx_shares(weft_comm *c, weft_comm_group *g, weft_comm_kind kind,
                                  weft_dtype t, const void *in, void *out, int64_t total,
                                  int64_t unit)
{
    call  k;
    range r = {.hi = g->n, .count = total, .n = g->n, .unit = unit};
    WEFT_TRY(begin_call(&k, c, g, kind, t));
    weft_status st = kind == WEFT_COMM_ALL_GATHER ? all_gather(&k, in, out, r)
                                                  : add_at_owner(&k, in, out, r);
    weft_comm__ucx_leave(g->e);
    return st;
}

weft_status weft_comm__ucx_sum_lanes(weft_comm *c, weft_comm_group *g,
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
    weft_status st = add_terms(&k, in, to, r, l);
    if (st == WEFT_OK && all) st = gather(&k, out, r);
    weft_comm__ucx_leave(g->e);
    return st;
}
