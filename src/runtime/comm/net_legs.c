/* Messages of a collective: several under way at once, and what is said when one does not come.
 * Nobody leaves a collective before all have come to it, so a peer is at most one call ahead. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/net_legs.h"

static void free_group(void *group)
{
    weft_comm_group *g =
        (void *)((char *)group - offsetof(struct weft_comm_group, opened));
    free(g->scratch);
    free(g);
}

weft_status weft_comm__net_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      uint32_t instance, weft_comm_group **out)
{
    net_end         *e = net_of(c);
    weft_comm_group *g = calloc(1, sizeof *g + sizeof *rank * (size_t)n);
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    uint64_t hash = weft_hash_crc32c((uint32_t)n, rank, sizeof *rank * (size_t)n);
    hash =
        weft_hash_crc32c((uint32_t)hash, &instance, sizeof instance) | NET_IS_GROUP >> 32;
    g->opened.free = free_group;
    g->e           = e;
    g->n           = n;
    g->tag         = tag;
    memcpy(g->rank, rank, sizeof *rank * (size_t)n);
    while (rank[g->me] != c->rank) g->me++;
    weft_comm__net_lock(e);
    g->port = weft_comm__net_port(e, NET_GROUP, -1, hash << 32 | (uint32_t)tag);
    if (g->port) {
        g->opened.next = e->opened;
        e->opened      = &g->opened;
    }
    pthread_mutex_unlock(&e->lock);
    if (!g->port) {
        free(g);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    *out = g;
    return WEFT_OK;
}

/* Nobody leaves a call before all its messages have come, so nothing comes for the port any more;
 * it stays, so that who asks gets an answer. */
weft_status weft_comm__net_close_group(weft_comm *c, weft_comm_group *g)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    weft_comm__net_unlist(e, &g->opened);
    g->port->elsewhere = NULL;
    g->port->rail      = NULL;
    pthread_mutex_unlock(&e->lock);
    free_group(&g->opened);
    return WEFT_OK;
}

/* ---- one exchange ---- */

typedef struct goal {
    const net_leg *leg;
    int            n;
} goal;

static bool leg_done(const net_leg *l)
{
    return (l->from < 0 || l->post.done) && (l->to < 0 || l->flow->done);
}

/* One who took its leave takes nothing more; of what the link has, it says itself what became of
 * it. */
static bool leg_hopeless(const net_leg *l)
{
    return l->post.bad || (l->from >= 0 && !l->post.done && l->comes_from->gone) ||
           (l->to >= 0 && !weft_comm__net_handed_over(l->flow) && l->sends_to->gone);
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

static weft_status disagree(const net_call *k, const net_post *p)
{
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "rank %d calls %s of %s with %lld bytes in step %u where rank %d calls "
        "%s of %s with %lld",
        k->e->c.rank, weft_collective_name(k->kind), weft_dtype_name(k->t),
        (long long)p->length, p->step, p->source,
        weft_collective_name(p->came.what >> 8 <= WEFT_RETURN_ROWS
                                 ? (weft_collective)(p->came.what >> 8)
                                 : WEFT_BARRIER),
        weft_dtype_name((weft_dtype)(p->came.what & 0xff)), (long long)p->came.length);
}

static weft_status conclude(const net_call *k, const goal *g, net_outcome o, int waits_on)
{
    char what[32];
    bool all = true;
    snprintf(what, sizeof what, "in %s", weft_collective_name(k->kind));
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

static void start(net_call *k, net_leg *l)
{
    net_end  *e       = k->e;
    net_port *port    = k->g->port;
    int64_t   unasked = l->at_once ? e->link->piece : NET_SHORT;
    if (l->from >= 0) {
        l->post.source = k->g->rank[l->from];
        l->post.epoch  = port->epoch;
        l->post.seq    = port->seq;
        l->post.step   = l->step;
        l->post.what   = k->what;
        l->comes_from  = &e->peer[l->post.source];
        weft_comm__net_expect(e, port, &l->post, l->post.length > unasked);
    }
    if (l->to < 0) return;
    *l->flow    = (net_flow){.to      = k->g->rank[l->to],
                             .port    = port->id,
                             .epoch   = port->epoch,
                             .seq     = port->seq,
                             .step    = l->step,
                             .what    = k->what,
                             .p       = l->p,
                             .upto    = l->upto,
                             .unasked = l->bytes > unasked ? NET_SHORT : unasked,
                             .length  = l->bytes};
    l->sends_to = &e->peer[l->flow->to];
    weft_comm__net_start(e, port, l->flow);
}

static void copy_meanwhile(net_call *k)
{
    if (!k->copy_bytes) return;
    weft_comm__net_pump(k->e);
    memmove(k->copy_to, k->copy_from, (size_t)k->copy_bytes);
    k->copy_bytes = 0;
}

weft_status weft_comm__net_run_legs(net_call *k, net_leg *l, int n)
{
    net_port *port = k->g->port, *before = k->e->joined;
    goal      want = {l, n};
    k->e->joined   = port;
    for (int i = 0; i < n; i++) {
        l[i].flow = &k->g->flow[i];
        start(k, &l[i]);
    }
    copy_meanwhile(k);
    net_outcome o        = weft_comm__net_wait(k->e, exchanged, &want, k->deadline);
    int         waits_on = k->e->c.rank;
    for (int i = n - 1; i >= 0; i--) {
        if (l[i].to >= 0 && !l[i].flow->done) waits_on = l[i].flow->to;
        if (l[i].from >= 0 && !l[i].post.done) waits_on = l[i].post.source;
    }
    weft_status st = conclude(k, &want, o, waits_on);
    for (int i = 0; i < n; i++) {
        if (l[i].from >= 0) weft_comm__net_forget(k->e, port, &l[i].post);
        if (l[i].to >= 0 && !l[i].flow->done) weft_comm__net_stop(k->e, l[i].flow);
    }
    k->e->joined = before;
    return st;
}

weft_status weft_comm__net_exchange(net_call *k, uint32_t step, int to, const void *p,
                                    int64_t bytes, int from, net_post post)
{
    net_leg l = {.step    = step,
                 .to      = to,
                 .p       = p,
                 .bytes   = bytes,
                 .at_once = true,
                 .from    = from,
                 .post    = post};
    return weft_comm__net_run_legs(k, &l, 1);
}

weft_status weft_comm__net_add_leg(net_batch *b, net_leg l)
{
    l.at_once      = b->k->g->n == 2;
    b->leg[b->n++] = l;
    return b->n < NET_AT_ONCE ? WEFT_OK : weft_comm__net_run_batch(b);
}

weft_status weft_comm__net_run_batch(net_batch *b)
{
    int n = b->n;
    b->n  = 0;
    return n ? weft_comm__net_run_legs(b->k, b->leg, n) : WEFT_OK;
}

weft_status weft_comm__net_scratch(net_call *k, int64_t bytes, char **out)
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

/* ---- a call ---- */

weft_status weft_comm__net_begin(net_call *k, weft_comm *c, weft_comm_group *g,
                                 weft_collective kind, weft_dtype t)
{
    *k = (net_call){.e        = g->e,
                    .g        = g,
                    .kind     = kind,
                    .t        = t,
                    .size     = weft_dtype_bytes(t),
                    .what     = (uint32_t)kind << 8 | (uint32_t)t,
                    .deadline = weft_clock_s() + c->timeout_s};
    if (kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER)
        WEFT_TRY(weft_comm_sum(t, 1, &(const void *){g}, g, 0)); /* can it be summed? */
    WEFT_TRY(weft_comm__net_enter(g->e, g->port));
    g->port->seq++;
    return WEFT_OK;
}

weft_status weft_comm__net_end(net_call *k, weft_status st)
{
    if (st == WEFT_OK) copy_meanwhile(k); /* nothing was sent */
    weft_comm__net_leave(k->e);
    return st;
}

/* ---- groups by levels ---- */

void weft_comm_net_family(weft_comm *c, weft_comm_group *flat, weft_comm_group *rail,
                          int (*elsewhere)(void *arg), void *arg)
{
    if (c->op->run != weft_comm__net_run) return;
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    rail->port->family    = flat->port->id;
    flat->port->rail      = rail->port;
    flat->port->elsewhere = elsewhere;
    flat->port->arg       = arg;
    pthread_mutex_unlock(&e->lock);
}

weft_status weft_comm_net_blame(weft_comm *c, weft_comm_group *flat, int rank,
                                const char *what)
{
    if (c->op->run != weft_comm__net_run) return WEFT_OK;
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    weft_status st = weft_comm__net_late(e, flat->port, rank, what);
    weft_comm__net_leave(e);
    return st;
}
