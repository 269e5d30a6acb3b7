/* Links: between two ranks, and as a group of them sees it.
 *
 * Two devices of a node talk over the node's link.  Two nodes talk over the innermost switch that
 * both hang on: by the devices' own links where the switch has one, else through the ports of
 * both nodes, which their devices share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster_priv.h"

static weft_status no_rank(const weft_cluster *c, int rank)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has %d devices, there is none for rank %d",
                     c->name, weft_cluster_count(c), rank);
}

/* The innermost switch over both nodes, n_switch: none, the net outside. */
static int switch_over(const weft_cluster *c, int a, int b)
{
    int i = 0;
    while (i < c->n_switch && c->sw[i].span && a / c->sw[i].span != b / c->sw[i].span)
        i++;
    return i;
}

static double health_link(const weft_cluster *c, int rank)
{
    const weft_health *h = weft_cluster__health_of(c, rank);
    return h ? h->link : 1;
}

static void own_link(const weft_link_kind *l, double alpha_s, double health,
                     weft_path *out)
{
    out->link     = l;
    out->alpha_s  = l->alpha_s + alpha_s;
    out->Bps      = l->Bps * l->share * health;
    out->busy_Bps = out->Bps;
}

/* What one port of a node of kind k carries, and all of them through the switches up to sw. */
static void port_rates(const weft_cluster *c, const weft_host_kind *k, int sw,
                       double health, double *one_Bps, double *all_Bps)
{
    const weft_link_kind *l     = &c->link[k->net];
    double                taper = 1;
    for (int i = 0; i <= sw && i < c->n_switch; i++) taper = fmin(taper, c->sw[i].taper);
    *one_Bps = l->Bps * l->share * health;
    *all_Bps = *one_Bps * k->n_port * taper;
}

/* Through the ports of two nodes of kinds ka and kb. */
static void by_ports(const weft_cluster *c, const weft_host_kind *ka,
                     const weft_host_kind *kb, int sw, double health, weft_path *out)
{
    const weft_host_kind *end[2] = {ka, kb};
    double                extra  = 0;
    for (int i = 0; i <= sw && i < c->n_switch; i++)
        extra += c->sw[i].link < 0 || i == sw ? c->sw[i].alpha_s : 0;
    for (int i = 0; i < 2; i++) {
        const weft_host_kind *k = end[i];
        const weft_link_kind *l = &c->link[k->net];
        double                one, all;
        port_rates(c, k, sw, health, &one, &all);
        double busy = fmin(one, all / k->n_device);
        if (!i || one < out->Bps) out->Bps = one, out->link = l;
        if (!i || busy < out->busy_Bps) out->busy_Bps = busy;
        if (!i || l->alpha_s + extra > out->alpha_s) out->alpha_s = l->alpha_s + extra;
    }
}

weft_status weft_cluster_path(const weft_cluster *c, int a, int b, weft_path *out)
{
    int node_a = weft_cluster_node(c, a, NULL), node_b = weft_cluster_node(c, b, NULL);
    if (node_a < 0 || node_b < 0) return no_rank(c, node_a < 0 ? a : b);
    const weft_host_kind *ka     = weft_cluster__kind_of_node(c, node_a);
    const weft_host_kind *kb     = weft_cluster__kind_of_node(c, node_b);
    double                health = fmin(health_link(c, a), health_link(c, b));
    memset(out, 0, sizeof *out);
    if (a == b) {
        out->Bps = out->busy_Bps =
            c->device[ka->device].mem_Bps / 2; /* read and written */
        return WEFT_OK;
    }
    if (node_a == node_b) {
        out->level = 1;
        own_link(&c->link[ka->link], 0, health, out);
        return WEFT_OK;
    }
    int sw     = switch_over(c, node_a, node_b);
    out->level = 2 + sw;
    if (sw < c->n_switch && c->sw[sw].link >= 0)
        own_link(&c->link[c->sw[sw].link], c->sw[sw].alpha_s, health, out);
    else
        by_ports(c, ka, kb, sw, health, out);
    return WEFT_OK;
}

bool weft_cluster_ports(const weft_cluster *c, int rank, int level, double *one_Bps,
                        double *all_Bps)
{
    int node = weft_cluster_node(c, rank, NULL), sw = level - 2;
    if (node < 0 || level < 2 || (sw < c->n_switch && c->sw[sw].link >= 0)) return false;
    const weft_host_kind *k = weft_cluster__kind_of_node(c, node);
    if (k->net < 0) return false;
    port_rates(c, k, sw, health_link(c, rank), one_Bps, all_Bps);
    return true;
}

const weft_link_kind *weft_cluster_link(const weft_cluster *c, int a, int b)
{
    weft_path p;
    int       n = weft_cluster_count(c);
    if (a < 0 || b < 0 || a >= n || b >= n) return NULL;
    return weft_cluster_path(c, a, b, &p) == WEFT_OK ? p.link : NULL;
}

/* ---- groups ---- */

/* The number of the island of a node: the first node of the widest switch with a link over it. */
static int island_of(const weft_cluster *c, int node)
{
    for (int i = c->n_switch - 1; i >= 0; i--)
        if (c->sw[i].link >= 0) return c->sw[i].span ? node - node % c->sw[i].span : 0;
    return node;
}

static int first_rank_of(const weft_cluster *c, int node)
{
    const weft_host_kind *k = weft_cluster__kind_of_node(c, node);
    return k->first_rank + (node - k->first_node) * k->n_device;
}

weft_rank_range weft_cluster_node_ranks(const weft_cluster *c, int rank)
{
    int node = weft_cluster_node(c, rank, NULL);
    if (node < 0) return (weft_rank_range){rank, 0};
    return (weft_rank_range){first_rank_of(c, node),
                             weft_cluster__kind_of_node(c, node)->n_device};
}

weft_rank_range weft_cluster_island_ranks(const weft_cluster *c, int rank)
{
    int node = weft_cluster_node(c, rank, NULL), n_node = weft_cluster_n_node(c);
    if (node < 0) return (weft_rank_range){rank, 0};
    int from = island_of(c, node), to = node + 1;
    while (to < n_node && island_of(c, to) == from) to++;
    int first = first_rank_of(c, from);
    int end   = to < n_node ? first_rank_of(c, to) : weft_cluster_count(c);
    return (weft_rank_range){first, end - first};
}

static void slower(weft_path *to, const weft_path *p)
{
    double alpha_s = fmax(to->alpha_s, p->alpha_s);
    double busy    = to->Bps > 0 ? fmin(to->busy_Bps, p->busy_Bps) : p->busy_Bps;
    int    level   = p->level > to->level ? p->level : to->level;
    if (!(to->Bps > 0) || p->Bps < to->Bps) *to = *p;
    to->alpha_s  = alpha_s;
    to->busy_Bps = busy;
    to->level    = level;
}

/* Members come by rising rank, so nodes and islands come in runs, and neighbours show every link
 * there is between runs but for the widest switch, which the first and the last show. */
typedef struct walk {
    const weft_cluster *c;
    weft_group_shape   *g;
    int                 first, last; /* ranks */
    int                 node, island, in_node, in_island;
    double              health;   /* of the links of the node's members, the least */
    double              port_Bps; /* what members of a node get of its ports, the least */
} walk;

static void end_node(walk *w)
{
    const weft_host_kind *k = weft_cluster__kind_of_node(w->c, w->node);
    if (k->net >= 0) {
        const weft_link_kind *l     = &w->c->link[k->net];
        double                share = fmin(1, (double)k->n_port / w->in_node) * w->health;
        w->port_Bps                 = fmin(w->port_Bps, l->Bps * l->share * share);
    }
    if (w->in_node > w->g->per_node) w->g->per_node = w->in_node;
    w->g->n_node++;
}

static void end_island(walk *w)
{
    weft_group_shape *g = w->g;
    if (w->in_island > g->per_island) g->per_island = w->in_island;
    if (!g->n_island || w->in_island < g->least_per_island)
        g->least_per_island = w->in_island;
    g->n_island++;
}

static weft_status visit(walk *w, int rank)
{
    weft_path          p;
    int                node = weft_cluster_node(w->c, rank, NULL), island;
    const weft_health *h    = weft_cluster__health_of(w->c, rank);
    if (node < 0) return no_rank(w->c, rank);
    if (h) w->g->speed = fmin(w->g->speed, h->speed);
    island = island_of(w->c, node);
    if (w->last < 0) {
        w->first = rank;
    } else {
        WEFT_TRY(weft_cluster_path(w->c, w->last, rank, &p));
        if (p.level) slower(island == w->island ? &w->g->inner : &w->g->outer, &p);
    }
    if (w->last >= 0 && node != w->node) end_node(w), w->in_node = 0, w->health = 1;
    if (w->last >= 0 && island != w->island) end_island(w), w->in_island = 0;
    w->health = fmin(w->health, h ? h->link : 1);
    w->node   = node;
    w->island = island;
    w->last   = rank;
    w->in_node++;
    w->in_island++;
    w->g->n++;
    return WEFT_OK;
}

static weft_status finish(walk *w)
{
    weft_path p;
    if (w->last < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: a group of no ranks", w->c->name);
    end_node(w);
    end_island(w);
    if (w->g->n_island > 1) {
        WEFT_TRY(weft_cluster_path(w->c, w->first, w->last, &p));
        slower(&w->g->outer, &p);
        if (w->g->outer.link->scope == WEFT_LINK_NET)
            w->g->outer.Bps = fmin(w->g->outer.Bps, w->port_Bps);
    }
    return WEFT_OK;
}

static void start(walk *w, const weft_cluster *c, weft_group_shape *g)
{
    memset(g, 0, sizeof *g);
    g->speed = 1;
    *w       = (walk){.c = c, .g = g, .last = -1, .health = 1, .port_Bps = INFINITY};
}

weft_status weft_cluster_group_stride(const weft_cluster *c, int first, int n, int stride,
                                      weft_group_shape *out)
{
    walk w;
    start(&w, c, out);
    if (stride < 0) {
        first += (n - 1) * stride;
        stride = -stride;
    }
    for (int i = 0; i < n; i++) WEFT_TRY(visit(&w, first + i * stride));
    return finish(&w);
}

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

weft_status weft_cluster_group(const weft_cluster *c, const int *rank, int n,
                               weft_group_shape *out)
{
    walk        w;
    int        *sorted = NULL, i;
    weft_status st     = WEFT_OK;
    for (i = 1; i < n && rank[i - 1] < rank[i]; i++) {
    }
    if (i < n) {
        sorted = malloc(sizeof(int) * (size_t)n);
        if (!sorted) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group of %d", n);
        memcpy(sorted, rank, sizeof(int) * (size_t)n);
        qsort(sorted, (size_t)n, sizeof(int), by_rank);
        rank = sorted;
    }
    start(&w, c, out);
    for (i = 0; i < n; i++) WEFT_GO(visit(&w, rank[i]));
    WEFT_GO(finish(&w));
out:
    free(sorted);
    return st;
}
