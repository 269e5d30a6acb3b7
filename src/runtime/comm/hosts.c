#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"
#include "comm/hosts_priv.h"
#include "exchange/exchange.h"

enum {
    TAG = 1 << 22 /* of the group in which ranks of a host tell who they are */
};

struct weft_comm_channel {
    weft_comm         *by;
    weft_comm_channel *inner, *next;
};

weft_comm *weft_comm__hosts_current(const weft_comm *c, weft_comm *by)
{
    if (by->epoch != c->epoch) weft_comm_set_epoch(by, c->epoch);
    if (by->timeout_s != c->timeout_s) by->timeout_s = c->timeout_s;
    return by;
}

/* The verdict of the near end, to which the far end's is passed on: what came first to any rank of
 * this host, which all of them report, whichever end a call fails at. */
static weft_status find_verdict(weft_comm *c, weft_status st)
{
    weft_comm *near = weft_comm__hosts_current(c, ((hosts_pair *)c->impl)->near);
    char       text[240];
    if (st != WEFT_ERR_PEER) return st;
    snprintf(text, sizeof text, "%s", weft_error_text());
    near->op->pass_on(near, text);
    weft_status first = weft_comm_check(near);
    return first != WEFT_OK ? first : WEFT_FAIL(st, "%s", text);
}

/* Who has failed leaves a word at both ends: nobody waits at one for a rank that has given up at
 * the other. */
weft_status weft_comm__hosts_told(weft_comm *c, weft_status st)
{
    weft_comm *far = weft_comm__hosts_current(c, ((hosts_pair *)c->impl)->far);
    char       text[240];
    st = find_verdict(c, st);
    if (st != WEFT_ERR_PEER) return st;
    snprintf(text, sizeof text, "%s", weft_error_text());
    far->op->pass_on(far, text);
    return WEFT_FAIL(st, "%s", text);
}

/* Before calls of several threads are in flight. */
static void update_ends(const weft_comm *c)
{
    const hosts_pair *p = c->impl;
    (void)weft_comm__hosts_current(c, p->near);
    (void)weft_comm__hosts_current(c, p->far);
}

static void count_bytes(weft_comm *c)
{
    const hosts_pair *p = c->impl;
    c->bytes            = p->near->bytes + p->far->bytes;
}

/* The ends count instances themselves. */
static weft_status open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                uint32_t instance, int64_t bytes, int credits,
                                weft_comm_channel **out)
{
    hosts_pair        *p       = c->impl;
    bool               at_home = p->near_rank[peer] >= 0;
    weft_comm_channel *h       = calloc(1, sizeof *h);
    (void)instance;
    update_ends(c);
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a channel");
    h->by          = at_home ? p->near : p->far;
    weft_status st = weft_comm_open_channel(weft_comm__hosts_current(c, h->by),
                                            at_home ? p->near_rank[peer] : peer, side,
                                            tag, bytes, credits, &h->inner);
    if (st != WEFT_OK) {
        free(h);
        return st;
    }
    h->next    = p->channel;
    p->channel = h;
    count_bytes(c);
    *out = h;
    return WEFT_OK;
}

/* Inside this host, or flat, and by levels where it lies so. */
static weft_status open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                              uint32_t instance, weft_comm_group **out)
{
    hosts_pair      *p       = c->impl;
    weft_comm_group *g       = calloc(1, sizeof *g + sizeof *rank * (size_t)n);
    int32_t         *mine    = calloc((size_t)n, sizeof *mine);
    bool             at_home = true;
    weft_status      st      = WEFT_OK;
    (void)instance;
    update_ends(c);
    if (!g || !mine) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group"));
    g->p = p;
    g->n = n;
    for (int i = 0; i < n; i++) {
        g->rank[i] = rank[i];
        mine[i]    = p->near_rank[rank[i]];
        at_home    = at_home && mine[i] >= 0;
        if (rank[i] == c->rank) g->me = i;
    }
    g->by = at_home ? p->near : p->far;
    WEFT_GO(weft_comm_open_group(weft_comm__hosts_current(c, g->by), n,
                                 at_home ? mine : rank, tag, &g->inner));
    for (int i = 0; i < n; i++) mine[i] = p->host[rank[i]];
    g->m = at_home ? 0 : weft_exchange_levels(n, mine);
    if (g->m) WEFT_GO(weft_comm__levels_open(p, g, tag));
    g->next  = p->group;
    p->group = g;
    count_bytes(c);
    *out = g;
    g    = NULL;
out:
    free(mine);
    free(g);
    return st;
}

static weft_status close_channel(weft_comm *c, weft_comm_channel *ch)
{
    hosts_pair         *p  = c->impl;
    weft_comm_channel **at = &p->channel;
    weft_status         st = weft_comm_close_channel(ch->by, ch->inner);
    while (*at != ch) at = &(*at)->next;
    *at = ch->next;
    free(ch);
    count_bytes(c);
    return st;
}

static weft_status close_group(weft_comm *c, weft_comm_group *g)
{
    hosts_pair       *p  = c->impl;
    weft_comm_group **at = &p->group;
    weft_status       st = weft_comm_close_group(g->by, g->inner);
    if (g->m) {
        weft_status home = weft_comm_close_group(p->near, g->home);
        weft_status rail = weft_comm_close_group(p->far, g->rail);
        if (st == WEFT_OK) st = home != WEFT_OK ? home : rail;
        weft_comm__levels_close(g);
    }
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    free(g);
    count_bytes(c);
    return st;
}

static weft_status send_message(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes)
{
    return weft_comm__hosts_told(
        c, weft_comm_send(weft_comm__hosts_current(c, ch->by), ch->inner, p, bytes));
}

static weft_status recv_message(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes)
{
    return weft_comm__hosts_told(
        c, weft_comm_recv(weft_comm__hosts_current(c, ch->by), ch->inner, p, bytes));
}

static bool can_send(weft_comm *c, weft_comm_channel *ch)
{
    return weft_comm_can_send(weft_comm__hosts_current(c, ch->by), ch->inner);
}

/* By levels where that gives the same sum; else flat. */
static bool goes_by_levels(const weft_comm_group *g, const weft_comm_call *call)
{
    const weft_comm_part *x     = &call->tensor;
    weft_lanes            lanes = {call->n_lane, g->n, call->lane_share};
    int64_t               whole = x->count;
    if (call->rows.n_bin || call->n_part) return false;
    if (call->kind == WEFT_ALL_GATHER && !x->unit) whole *= g->n;
    if (!weft_comm__levels_can(g, call->kind, call->dtype, whole)) return false;
    /* lanes: a subtree each is the plain tree */
    return !call->n_lane || (weft_lanes_right(&lanes) && weft_lanes_plain(&lanes));
}

static weft_status run(weft_comm *c, const weft_comm_call *call)
{
    const weft_comm_part *x = &call->tensor;
    weft_comm_group      *g = call->group;
    hosts_pair           *p = c->impl;
    if (call->n_part && g->by != p->near) /* each load as its size wants it */
        return weft_comm_run_packed(c, call);
    if (goes_by_levels(g, call))
        return x->unit && call->kind != WEFT_ALL_REDUCE
                   ? weft_comm__levels_shares(g, call->kind, call->dtype, x->in, x->out,
                                              x->count, x->unit)
                   : weft_comm__levels_collective(g, call->kind, call->dtype, x->in,
                                                  x->out, x->count);
    weft_comm_call flat = *call;
    weft_comm     *by   = weft_comm__hosts_current(c, g->by);
    flat.group          = g->inner;
    return weft_comm__hosts_told(c, by->op->run(by, &flat));
}

static void give_up(weft_comm *c, const char *why)
{
    hosts_pair *p = c->impl;
    weft_comm_abort(weft_comm__hosts_current(c, p->near), why);
    (void)weft_comm__hosts_told(c, weft_comm_check(p->near));
}

static weft_status check(weft_comm *c)
{
    hosts_pair *p = c->impl;
    WEFT_TRY(weft_comm_check(weft_comm__hosts_current(c, p->near)));
    return find_verdict(c, weft_comm_check(weft_comm__hosts_current(c, p->far)));
}

static void stop(weft_comm *c)
{
    hosts_pair *p = c->impl;
    p->near->op->stop(p->near);
    p->far->op->stop(p->far);
}

/* Whom this rank reaches in shared memory reads it there. */
static void note(weft_comm *c, int rank, uint32_t key, bool waits)
{
    hosts_pair *p    = c->impl;
    int         near = p->near_rank[rank];
    weft_comm  *by   = weft_comm__hosts_current(c, near >= 0 ? p->near : p->far);
    by->op->note(by, near >= 0 ? near : rank, key, waits);
}

static bool noted(weft_comm *c, int rank, uint32_t key)
{
    hosts_pair *p    = c->impl;
    int         near = p->near_rank[rank];
    return near >= 0 ? p->near->op->noted(p->near, near, key)
                     : p->far->op->noted(p->far, rank, key);
}

static void free_tables(hosts_pair *p)
{
    free(p->near_rank);
    free(p->name);
    free(p->host);
}

static void destroy(weft_comm *c)
{
    hosts_pair *p = c->impl;
    for (weft_comm_group *g = p->group, *next; g; g = next) {
        next = g->next;
        if (g->m) weft_comm__levels_close(g);
        free(g);
    }
    for (weft_comm_channel *h = p->channel, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    weft_comm_destroy(p->far);
    weft_comm_destroy(p->near);
    free_tables(p);
    free(p);
}

/* Who is on this host, by what each says of itself. */
static weft_status find_neighbours(hosts_pair *p)
{
    int      n   = p->near->world;
    int32_t *all = p->name = calloc((size_t)n, sizeof *all),
            *order         = calloc((size_t)n, sizeof *order);
    weft_comm_group *g     = NULL;
    weft_status      st    = WEFT_OK;
    int32_t          mine  = p->far->rank;
    if (!all || !order) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d ranks", n));
    for (int i = 0; i < n; i++) order[i] = i;
    for (int r = 0; r < p->far->world; r++) p->near_rank[r] = -1;
    WEFT_GO(weft_comm_open_group(p->near, n, order, TAG, &g));
    WEFT_GO(
        weft_comm_collective(p->near, g, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &mine, all, 1));
    for (int i = 0; i < n; i++) {
        if (all[i] < 0 || all[i] >= p->far->world || p->near_rank[all[i]] >= 0)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "process %d of this host says it is rank %d of %d", i,
                              all[i], p->far->world));
        p->near_rank[all[i]] = i;
    }
out:
    if (g) (void)weft_comm_close_group(p->near, g);
    free(order);
    return st;
}

static int list_links(weft_comm *c, weft_comm_link *out, int n)
{
    hosts_pair *p = c->impl;
    return weft_comm_list_links(p->far, out, n);
}

static const weft_comm_ops ops = {.open_channel  = open_channel,
                                  .open_group    = open_group,
                                  .send          = send_message,
                                  .recv          = recv_message,
                                  .can_send      = can_send,
                                  .run           = run,
                                  .close_channel = close_channel,
                                  .close_group   = close_group,
                                  .stop          = stop,
                                  .abort         = give_up,
                                  .check         = check,
                                  .note          = note,
                                  .noted         = noted,
                                  .list_links    = list_links,
                                  .destroy       = destroy};

/* Which ranks are on one host, by what all say. */
static weft_status find_hosts(weft_comm *far, int32_t first, int32_t *host)
{
    weft_comm_group *g     = NULL;
    weft_status      st    = WEFT_OK;
    int32_t         *order = calloc((size_t)far->world, sizeof *order);
    if (!order) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d ranks", far->world);
    for (int r = 0; r < far->world; r++) order[r] = r;
    WEFT_GO(weft_comm_open_group(far, far->world, order, TAG, &g));
    WEFT_GO(
        weft_comm_collective(far, g, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &first, host, 1));
out:
    if (g) (void)weft_comm_close_group(far, g);
    free(order);
    return st;
}

weft_status weft_comm_hosts_create(weft_comm *near, weft_comm *far, weft_comm **out)
{
    hosts_pair *p     = calloc(1, sizeof *p);
    size_t      n     = (size_t)far->world;
    weft_status st    = WEFT_OK;
    int32_t     first = far->rank;
    if (p) p->near_rank = calloc(n, sizeof *p->near_rank);
    if (p) p->host = calloc(n, sizeof *p->host);
    if (!p || !p->near_rank || !p->host)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for an end"));
    p->near = near;
    p->far  = far;
    if (near) WEFT_GO(find_neighbours(p));
    if (near) first = p->name[0];
    WEFT_GO(find_hosts(far, first, p->host));
    if (near) {
        near->name     = p->name; /* last: the thread that watches near reads it */
        p->c           = *far;
        p->c.transport = !strcmp(far->transport, "ucx")       ? "shm+ucx"
                         : !strcmp(far->transport, "tcp+tls") ? "shm+tcp+tls"
                                                              : "shm+tcp";
        p->c.op        = &ops;
        p->c.opened    = NULL;
        p->c.impl      = p;
        p->c.packs     = true;
        count_bytes(&p->c);
        *out = &p->c;
        return WEFT_OK;
    }
    *out = far;
out:
    if (p) free_tables(p);
    free(p);
    return st;
}

weft_comm *weft_comm_shared_end(weft_comm *c)
{
    if (c && c->op == &ops) c = ((hosts_pair *)c->impl)->near;
    return c && !strcmp(c->transport, "shm") ? c : NULL;
}

const int32_t *weft_comm_hosts_of(const weft_comm *c)
{
    return c && c->op == &ops ? ((const hosts_pair *)c->impl)->host : NULL;
}
