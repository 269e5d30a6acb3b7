/* What a cluster must be like.  One line: what, where, the remedy. */
#include <math.h>
#include <string.h>

#include "cluster/cluster_priv.h"

enum {
    MOST = 1 << 24 /* devices; nodes */
};

static bool positive(double x)
{
    return isfinite(x) && x > 0;
}

static bool share(double x)
{
    return x > 0 && x <= 1;
}

/* 0: not known. */
static bool share_or_0(double x)
{
    return x >= 0 && x <= 1;
}

static bool at_least_0(double x)
{
    return isfinite(x) && x >= 0;
}

static weft_status check_device(const weft_cluster *c, const weft_device_kind *d)
{
    bool good = d->n_rate > 0 && share(d->efficiency) && positive(d->mem_Bps) &&
                d->mem_bytes > 0 && at_least_0(d->launch_s) && at_least_0(d->half_size) &&
                share_or_0(d->attention) && share_or_0(d->stream);
    for (int i = 0; i < d->n_rate; i++)
        good = good && positive(d->rate[i].flops) && share_or_0(d->rate[i].efficiency);
    if (!good)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "cluster %s, device %s: flops, mem_Bps and mem_bytes are to be above 0, "
            "efficiency in (0,1], launch_s and half_size at least 0, the other shares in "
            "[0,1]",
            c->name, d->name);
    for (int i = 0; i < d->n_point; i++)
        if (!positive(d->point[i].flops) || !share(d->point[i].share) ||
            (i && d->point[i].flops <= d->point[i - 1].flops))
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cluster %s, device %s: point %d of the curve: flops are to rise from "
                "above 0, share to be in (0,1]",
                c->name, d->name, i);
    return WEFT_OK;
}

static weft_status check_link(const weft_cluster *c, const weft_link_kind *l)
{
    if (!positive(l->Bps) || !at_least_0(l->alpha_s) || !share(l->share))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s, link %s: Bps is to be above 0, alpha_s at least 0, "
                         "share in (0,1]",
                         c->name, l->name);
    for (int i = 0; i < l->n_measured; i++) {
        const weft_link_measured *m = &l->measured[i];
        if (m->n < 2 || !positive(m->Bps) || !at_least_0(m->alpha_s) ||
            (i && m->n <= m[-1].n))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, link %s: measured: n is to rise from 2, Bps to "
                             "be above 0, alpha_s at least 0",
                             c->name, l->name);
    }
    return WEFT_OK;
}

static weft_status check_node(const weft_cluster *c, const weft_host_kind *k)
{
    if (k->count < 1 || k->n_device < 1 || (int64_t)k->count * k->n_device > MOST)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: %d nodes %s of %d devices", c->name,
                         k->count, k->name, k->n_device);
    if (k->device < 0 || k->device >= c->n_device || k->link >= c->n_link ||
        k->net >= c->n_link)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s: node %s names no known device or link", c->name,
                         k->name);
    if (k->link < 0 && k->n_device > 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: node %s has %d devices and no link",
                         c->name, k->name, k->n_device);
    for (int i = 0; i < k->n_oversubscription; i++)
        if (!positive(k->oversubscription[i]))
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cluster %s: node %s: oversubscription is how much longer work takes "
                "with 1, 2, ... devices at it: numbers above 0",
                c->name, k->name);
    if (k->net >= 0 && (k->n_port < 1 || k->n_port > MOST))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "cluster %s: node %s has %d ports to its net, expected 1 or more", c->name,
            k->name, k->n_port);
    return WEFT_OK;
}

static weft_status check_switches(const weft_cluster *c)
{
    for (int i = 0; i < c->n_switch; i++) {
        const weft_switch_kind *s = &c->sw[i];
        if (s->link >= c->n_link || !at_least_0(s->alpha_s) || !share(s->taper) ||
            s->span < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, switch %s: span and alpha_s are to be at least "
                             "0, taper in (0,1]",
                             c->name, s->name);
        if (!i) continue;
        int below = s[-1].span;
        if (!below || (s->span && (s->span <= below || s->span % below)))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, switch %s: spans %d nodes, expected a multiple "
                             "of switch %s's %d, or 0 for all",
                             c->name, s->name, s->span, s[-1].name, below);
        if (s->link >= 0 && s[-1].link < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, switch %s: has links of the devices' own, but "
                             "%s within it has none",
                             c->name, s->name, s[-1].name);
    }
    return WEFT_OK;
}

static int devices_of(const weft_cluster *c, int node)
{
    for (int i = 0; i < c->n_node; i++) {
        if (node < c->node[i].count) return c->node[i].n_device;
        node -= c->node[i].count;
    }
    return 0;
}

static weft_status check_health(const weft_cluster *c, int n_node)
{
    for (int i = 0; i < c->n_health; i++) {
        const weft_health *h = &c->health[i], *p = i ? h - 1 : NULL;
        if (h->node < 0 || h->n_node < 1 || h->node >= n_node ||
            h->n_node > n_node - h->node)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, health: there is no node %d, nodes are 0 to %d",
                             c->name, h->node < 0 ? h->node : h->node + h->n_node - 1,
                             n_node - 1);
        if (h->device < -1 || h->device >= devices_of(c, h->node) ||
            (h->device >= 0 && h->n_node > 1))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, health: node %d has devices 0 to %d, not %d",
                             c->name, h->node, devices_of(c, h->node) - 1, h->device);
        if (!share(h->speed) || !share(h->link))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s, health of node %d: speed and link are shares "
                             "in (0,1]",
                             c->name, h->node);
        if (p && (h->node < p->node + p->n_node - (p->device >= 0) ||
                  (h->node == p->node && (h->device < 0 || h->device <= p->device))))
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cluster %s, health: node %d stands after node %d, or twice; "
                "sort by node and device",
                c->name, h->node, p->node);
    }
    return WEFT_OK;
}

static weft_status check_nodes(const weft_cluster *c, int *n_node)
{
    int64_t               n = 0, n_device = 0;
    const weft_host_kind *lone = NULL;
    for (int i = 0; i < c->n_node; i++) {
        WEFT_TRY(check_node(c, &c->node[i]));
        n += c->node[i].count;
        n_device += (int64_t)c->node[i].count * c->node[i].n_device;
        if (c->node[i].net < 0) lone = &c->node[i];
        if (n > MOST || n_device > MOST)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s has more than 2^24 nodes or devices", c->name);
    }
    if (!n) return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no nodes", c->name);
    bool joined = c->n_switch && c->sw[c->n_switch - 1].link >= 0 &&
                  (!c->sw[c->n_switch - 1].span || c->sw[c->n_switch - 1].span >= n);
    if (n > 1 && lone && !joined)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s has %d nodes and no net between them: node %s needs "
                         "a net",
                         c->name, (int)n, lone->name);
    *n_node = (int)n;
    return WEFT_OK;
}

weft_status weft_cluster_verify(const weft_cluster *c)
{
    int n_node = 0;
    for (int i = 0; i < c->n_device; i++) {
        WEFT_TRY(check_device(c, &c->device[i]));
        if (weft_cluster__find_device(c, c->device[i].name) != i)
            return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: two devices are called %s",
                             c->name, c->device[i].name);
    }
    for (int i = 0; i < c->n_link; i++) {
        WEFT_TRY(check_link(c, &c->link[i]));
        if (weft_cluster__find_link(c, c->link[i].name) != i)
            return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: two links are called %s", c->name,
                             c->link[i].name);
    }
    if (c->version < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: versions start at 1", c->name);
    WEFT_TRY(check_nodes(c, &n_node));
    WEFT_TRY(check_switches(c));
    return check_health(c, n_node);
}
